/* Evidence and sentences of a verdict, and the table of causes: the name of each, its evidence, its sentence,
 * and the advice against it. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/figure.h"
#include "report/verdict_impl.h"

#define HOST_TEXT     224
#define SENTENCE_SIZE (sizeof((mst_verdict *)NULL)->sentence)

/* ---- evidence ---- */

static void evidence_add(mst_verdict *v, double value, const char *unit, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void evidence_add(mst_verdict *v, double value, const char *unit, const char *format, ...)
{
    va_list args;
    if (isnan(value) || v->n_evidence == MST_EVIDENCE_MAX)
        return;
    mst_evidence *e = &v->evidence[v->n_evidence++];
    va_start(args, format);
    vsnprintf(e->what, sizeof e->what, format, args);
    va_end(args);
    e->value = value;
    snprintf(e->unit, sizeof e->unit, "%s", unit);
}

/* "the host of worker-1"; of a process that is alone: "the host". */
static const char *cause_host(const mst_facts *f, const mst_process_use *p, char out[HOST_TEXT])
{
    bool alone = mst_facts_alone(f);
    snprintf(out, HOST_TEXT, "the host%s%s", alone ? "" : " of ", alone ? "" : p->name);
    return out;
}

static void link_evidence(mst_verdict *v, double use, const mst_process_use *p)
{
    char speed[MST_FIGURE_SIZE];
    evidence_add(v, use, "share", "use of the link of %s (%s)", p->name,
                 mst_figure_bits(p->link_bytes, speed));
}

static void server_network_evidence(const mst_facts *f, mst_verdict *v)
{
    if (!isnan(f->server_link))
        link_evidence(v, f->server_link, &f->servers[f->linked_server]);
}

static void worker_network_evidence(const mst_facts *f, mst_verdict *v)
{
    if (!isnan(f->worker_link))
        link_evidence(v, f->worker_link, &f->workers[f->linked_worker]);
    evidence_add(v, mst_facts_bytes(f) > 0 ? mst_facts_bytes(f) : NAN, "bytes",
                 "messages of a step of one %s, both ways", mst_facts_noun(f));
}

static void server_cpu_evidence(const mst_facts *f, mst_verdict *v)
{
    if (f->n_servers > 0)
        evidence_add(v, f->server_busy, "share", "busy share of %s", f->servers[f->busiest_server].name);
}

static void compute_evidence(const mst_facts *f, mst_verdict *v)
{
    char host[HOST_TEXT];
    if (f->n_workers == 0)
        return;
    const mst_process_use *w = &f->workers[f->slowest];
    evidence_add(v, w->host_busy, "share", "CPU use of %s, all cores", cause_host(f, w, host));
    evidence_add(v, w->busiest, "share", "busiest core of %s", cause_host(f, w, host));
}

static void disk_evidence(const mst_facts *f, mst_verdict *v)
{
    if (f->n_workers > 0 && f->workers[f->slowest].read_rate >= MST_VERDICT_READ_RATE)
        evidence_add(v, f->workers[f->slowest].read_rate, "bytes/s", "read from disks by %s",
                     f->workers[f->slowest].name);
}

static void stragglers_evidence(const mst_facts *f, mst_verdict *v)
{
    if (f->n_workers > 1)
        evidence_add(v, f->slowest_ratio, "ratio", "own work per step of the slowest %s (%s) over the median",
                     mst_facts_noun(f), f->workers[f->slowest].name);
    if (f->held >= MST_VERDICT_HELD && f->n_workers > 0)
        evidence_add(v, f->held, "share", "time that steps were held open for %s alone",
                     f->workers[f->held_worker].name);
}

static void synchronisation_evidence(const mst_facts *f, mst_verdict *v)
{
    bool alone = mst_facts_alone(f);
    evidence_add(v, f->step_s > 0 ? f->step_s : NAN, "s", "wall time of a step%s%s", alone ? "" : " of one ",
                 alone ? "" : mst_facts_noun(f));
}

static void cores_evidence(const mst_facts *f, mst_verdict *v)
{
    char host[HOST_TEXT];
    if (mst_facts_has_guests(f))
        evidence_add(v, f->others, "cores", "CPU of %s that other programs use",
                     cause_host(f, f->guest, host));
}

/* ---- sentences ---- */

static const char *cause_share(const mst_verdict *v, mst_bottleneck kind, char *out)
{
    return mst_figure_percent(v->shares[kind], out);
}

/* The greatest share of another cause, for runs that are balanced. */
static mst_bottleneck cause_greatest_but(const mst_verdict *v, mst_bottleneck but)
{
    mst_bottleneck best = but == MST_BOTTLENECK_COMPUTE ? MST_BOTTLENECK_INPUT : MST_BOTTLENECK_COMPUTE;
    for (int k = 0; k < MST_BOTTLENECKS; k++)
        if (k != (int)but && v->shares[k] > v->shares[best])
            best = (mst_bottleneck)k;
    return best;
}

static void none_sentence(const mst_facts *f, mst_verdict *v)
{
    char first[MST_FIGURE_SIZE], second[MST_FIGURE_SIZE];
    mst_bottleneck a = cause_greatest_but(v, MST_BOTTLENECK_NONE), b = cause_greatest_but(v, a);
    snprintf(v->sentence, SENTENCE_SIZE,
             "Nothing dominates: the greatest shares of a %s's time are %s (%s) and %s (%s).",
             mst_facts_noun(f), mst_bottleneck_title(a), cause_share(v, a, first), mst_bottleneck_title(b),
             cause_share(v, b, second));
}

/* Parts of own work that tables count in columns of their own. */
static const char *cause_included_parts(const mst_facts *f, const mst_verdict *v)
{
    double more = f->own - f->typical[MST_COST_READ] - f->typical[MST_COST_COMPUTE];
    return more >= fmax(MST_VERDICT_MENTIONED, 0.1 * v->shares[MST_BOTTLENECK_COMPUTE])
               ? " (preparing rows, sending and applying included)"
               : "";
}

/* When threads wait for a core, if it is in both: in own work, and while they wait for others. */
static const char *cause_core_parts(const mst_verdict *v, char out[120])
{
    char own[MST_FIGURE_SIZE], other[MST_FIGURE_SIZE];
    double waiting = v->shares[MST_BOTTLENECK_CORES] - v->core_wait_own;
    *out = '\0';
    if (v->core_wait_own >= MST_VERDICT_MENTIONED && waiting >= MST_VERDICT_MENTIONED)
        snprintf(out, 120, " (%s in their own work, %s while they wait for others)",
                 mst_figure_percent(v->core_wait_own, own), mst_figure_percent(waiting, other));
    return out;
}

static const char *cause_core_words(const mst_verdict *v, char out[120])
{
    char share[MST_FIGURE_SIZE];
    *out = '\0';
    if (v->shares[MST_BOTTLENECK_CORES] >= MST_VERDICT_MENTIONED)
        snprintf(out, 120, ", waiting for a core %s", cause_share(v, MST_BOTTLENECK_CORES, share));
    return out;
}

static void compute_sentence(const mst_facts *f, mst_verdict *v)
{
    char share[MST_FIGURE_SIZE], core[MST_FIGURE_SIZE], busy[MST_FIGURE_SIZE], host[HOST_TEXT], parts[120];
    char cpu[HOST_TEXT + 80] = "";
    const mst_process_use *w = &f->workers[f->slowest];
    const char *noun = mst_facts_noun(f);
    cause_share(v, MST_BOTTLENECK_COMPUTE, share);
    if (w->host_busy >= 0)
        snprintf(cpu, sizeof cpu, "; the CPU of %s is used %s", cause_host(f, w, host),
                 mst_figure_percent(w->host_busy, busy));
    if (v->shares[MST_BOTTLENECK_CORES] >= MST_VERDICT_CORES_LACK)
        snprintf(v->sentence, SENTENCE_SIZE,
                 "Cores are the bottleneck: %ss compute %s of their time%s and wait for a core %s of it%s%s.",
                 noun, share, cause_included_parts(f, v), cause_share(v, MST_BOTTLENECK_CORES, core),
                 cause_core_parts(v, parts), cpu);
    else
        snprintf(v->sentence, SENTENCE_SIZE, "Computing is the bottleneck: it takes %s of a %s's time%s%s%s.",
                 share, noun, cause_included_parts(f, v), cause_core_words(v, parts), cpu);
}

static void network_sentence(const mst_facts *f, mst_verdict *v)
{
    char share[MST_FIGURE_SIZE], number[MST_FIGURE_SIZE], speed[MST_FIGURE_SIZE];
    bool server = v->kind == MST_BOTTLENECK_SERVER_NETWORK;
    double use = server ? f->server_link : f->worker_link;
    const char *everyone = f->ranks ? "the ranks" : "the workers";
    const char *place = v->process[0] != '\0' ? v->process : everyone;
    cause_share(v, v->kind, share);
    if (isnan(use)) {
        snprintf(v->sentence, SENTENCE_SIZE,
                 "The network at %s is the bottleneck: %ss wait %s of their time, and a step moves %s.",
                 place, mst_facts_noun(f), share, mst_figure_bytes(mst_facts_bytes(f), number));
        return;
    }
    const mst_process_use *p = server ? &f->servers[f->linked_server] : &f->workers[f->linked_worker];
    snprintf(v->sentence, SENTENCE_SIZE,
             "The bandwidth of the network at %s is the bottleneck: %ss wait %s of their time for bytes, and "
             "its link of %s is used %s.",
             place, mst_facts_noun(f), share, mst_figure_bits(p->link_bytes, speed),
             mst_figure_percent(use, number));
}

/* The use of the busiest link, for sentences that name another cause. */
static const char *cause_link_words(const mst_facts *f, char out[120])
{
    char use[MST_FIGURE_SIZE];
    double most = fmax(f->server_link, f->worker_link); /* of NAN and a number: the number */
    *out = '\0';
    if (!isnan(most))
        snprintf(out, 120, ", and the busiest link is used %s", mst_figure_percent(most, use));
    return out;
}

static void latency_evidence(const mst_facts *f, mst_verdict *v)
{
    if (!isnan(f->trip_s))
        evidence_add(v, f->trip_s, "s", "round trip between %s and the servers",
                     f->workers[f->far_worker].name);
}

static void latency_sentence(const mst_facts *f, mst_verdict *v)
{
    char share[MST_FIGURE_SIZE], trip[MST_FIGURE_SIZE], step[MST_FIGURE_SIZE], link[120];
    snprintf(v->sentence, SENTENCE_SIZE,
             "Latency is the bottleneck: round trips of up to %s take %s of a %s's time, with steps of %s%s.",
             mst_figure_seconds(f->trip_s, trip), cause_share(v, v->kind, share), mst_facts_noun(f),
             mst_figure_seconds(f->step_s, step), cause_link_words(f, link));
}

static void server_cpu_sentence(const mst_facts *f, mst_verdict *v)
{
    char share[MST_FIGURE_SIZE], busy[MST_FIGURE_SIZE];
    snprintf(v->sentence, SENTENCE_SIZE,
             "The CPU of %s is the bottleneck: it is busy %s, and workers wait %s for it.", v->process,
             mst_figure_percent(f->server_busy, busy), cause_share(v, v->kind, share));
}

static void input_sentence(const mst_facts *f, mst_verdict *v)
{
    char share[MST_FIGURE_SIZE];
    snprintf(v->sentence, SENTENCE_SIZE,
             "Input is the bottleneck: training waits for rows %s%.256s %s of the time%s.",
             f->pipe != NULL                 ? "from "
             : f->source_waits || !f->parses ? "to be read"
                                             : "to be parsed",
             f->pipe != NULL ? f->pipe : "", cause_share(v, v->kind, share),
             f->pipe != NULL && f->source_waits ? ", since the program that writes them is slow" : "");
}

static void disk_sentence(const mst_facts *f, mst_verdict *v)
{
    char share[MST_FIGURE_SIZE];
    (void)f;
    snprintf(v->sentence, SENTENCE_SIZE, "The disk is the bottleneck: training waits for it %s of the time.",
             cause_share(v, v->kind, share));
}

static void stragglers_sentence(const mst_facts *f, mst_verdict *v)
{
    char share[MST_FIGURE_SIZE];
    cause_share(v, v->kind, share);
    if (mst_facts_is_held(f))
        snprintf(v->sentence, SENTENCE_SIZE,
                 "%s is the bottleneck: the others wait for it alone %s of the time.", v->process, share);
    else
        snprintf(v->sentence, SENTENCE_SIZE,
                 "%s is the bottleneck: its steps take %.2f times as long as the median %s's, and the others "
                 "wait for it %s of the time.%s",
                 v->process[0] != '\0' ? v->process : "A slow worker", f->slowest_ratio, mst_facts_noun(f),
                 share, mst_facts_is_starved(f) ? " It uses all of its CPU quota." : "");
}

static void synchronisation_sentence(const mst_facts *f, mst_verdict *v)
{
    char share[MST_FIGURE_SIZE], step[MST_FIGURE_SIZE], link[120];
    bool trips = isnan(f->latency) && !mst_facts_alone(f);
    snprintf(
        v->sentence, SENTENCE_SIZE,
        "Waiting for others is the bottleneck: %s of a %s's time goes into %sbarriers, not into bytes or "
        "work; a step takes %s%s.",
        cause_share(v, v->kind, share), mst_facts_noun(f), trips ? "round trips and " : "",
        mst_figure_seconds(f->step_s, step), cause_link_words(f, link));
}

static void evaluation_sentence(const mst_facts *f, mst_verdict *v)
{
    char share[MST_FIGURE_SIZE];
    (void)f;
    snprintf(v->sentence, SENTENCE_SIZE, "Evaluation is the bottleneck: it takes %s of the time.",
             cause_share(v, v->kind, share));
}

/* ---- the table ---- */

static const mst_cause causes[MST_BOTTLENECKS + 1] = {
    [MST_BOTTLENECK_COMPUTE] = {.name = "compute",
                                .title = "computing",
                                .evidence = compute_evidence,
                                .sentence = compute_sentence,
                                .advice = {mst_advise_workers, mst_advise_threads}},
    [MST_BOTTLENECK_SERVER_NETWORK] = {.name = "server-network",
                                       .title = "bandwidth at the servers",
                                       .evidence = server_network_evidence,
                                       .sentence = network_sentence,
                                       .advice = {mst_advise_servers}},
    [MST_BOTTLENECK_WORKER_NETWORK] = {.name = "worker-network",
                                       .title = "bandwidth at the workers",
                                       .evidence = worker_network_evidence,
                                       .sentence = network_sentence,
                                       .advice = {mst_advise_wire}},
    /* more servers, as for their network */
    [MST_BOTTLENECK_SERVER_CPU] = {.name = "server-cpu",
                                   .title = "work of the servers",
                                   .evidence = server_cpu_evidence,
                                   .sentence = server_cpu_sentence},
    [MST_BOTTLENECK_INPUT] = {.name = "input",
                              .title = "waiting for input",
                              .sentence = input_sentence,
                              .advice = {mst_advise_cache}},
    [MST_BOTTLENECK_DISK] = {.name = "disk",
                             .title = "disk",
                             .evidence = disk_evidence,
                             .sentence = disk_sentence,
                             .advice = {mst_advise_disk, mst_advise_saves}},
    [MST_BOTTLENECK_STRAGGLERS] = {.name = "stragglers",
                                   .title = "slow workers",
                                   .evidence = stragglers_evidence,
                                   .sentence = stragglers_sentence,
                                   .advice = {mst_advise_quorum}},
    [MST_BOTTLENECK_SYNCHRONISATION] = {.name = "synchronisation",
                                        .title = "waiting for others",
                                        .evidence = synchronisation_evidence,
                                        .sentence = synchronisation_sentence,
                                        .advice = {mst_advise_batch, mst_advise_async, mst_advise_pipeline}},
    [MST_BOTTLENECK_EVALUATION] = {.name = "evaluation",
                                   .title = "evaluation",
                                   .sentence = evaluation_sentence,
                                   .advice = {mst_advise_evaluations}},
    /* never the bottleneck itself: compute stands for both */
    [MST_BOTTLENECK_CORES] = {.name = "cores",
                              .title = "waiting for a core",
                              .evidence = cores_evidence,
                              .advice = {mst_advise_others}},
    /* advice as for synchronisation */
    [MST_BOTTLENECK_LATENCY] = {.name = "latency",
                                .title = "latency: round trips",
                                .evidence = latency_evidence,
                                .sentence = latency_sentence},
    [MST_BOTTLENECK_NONE] = {.name = "none", .title = "nothing in particular", .sentence = none_sentence},
};

const mst_cause *mst_cause_of(mst_bottleneck kind)
{
    return &causes[kind];
}

const char *mst_bottleneck_name(mst_bottleneck kind)
{
    return causes[kind].name;
}

const char *mst_bottleneck_title(mst_bottleneck kind)
{
    return causes[kind].title;
}

json_t *mst_causes_json(void)
{
    json_t *list = json_array();
    for (int k = 0; k < MST_BOTTLENECKS; k++)
        json_array_append_new(list, json_pack("[s, s]", causes[k].name, causes[k].title));
    return list;
}

/* ---- explaining ---- */

static void explain_evidence(const mst_facts *f, mst_verdict *v)
{
    char since[64] = "", step[MST_FIGURE_SIZE];
    const char *noun = mst_facts_noun(f);
    if (!isnan(f->since))
        snprintf(since, sizeof since, ", after step %s", mst_figure_count(f->since_step, step));
    evidence_add(v, f->rows_per_s > 0 ? f->rows_per_s : NAN, "rows/s",
                 "rows per second, all %ss, evaluations and saving included%s", noun, since);
    for (int k = 0; k < MST_BOTTLENECKS; k++)
        if (v->shares[k] >= MST_VERDICT_SHOWN)
            evidence_add(v, v->shares[k], "share", "share of a %s's time: %s", noun, causes[k].title);
    for (int k = 0; k < MST_BOTTLENECKS; k++)
        if (causes[k].evidence != NULL)
            causes[k].evidence(f, v);
    if (f->losses.share > 0) {
        evidence_add(v, f->losses.share, "share", "share of the wall time that losses of processes took");
        evidence_add(v, f->losses.recovery_s, "s", "time of recovery");
        evidence_add(v, f->losses.train_s, "s", "time of training that was repeated");
    }
}

/* Parsing that has cores which training lacks. */
static void explain_parsing(const mst_facts *f, mst_verdict *v)
{
    size_t n = strlen(v->sentence);
    double all = f->parsing + f->training;
    if (f->parses && f->cores_full && !f->source_waits && f->parsing > f->training)
        snprintf(v->sentence + n, SENTENCE_SIZE - n,
                 " Parsing uses %.2f of the %.2f cores that the process gets.", f->parsing, all);
}

/* The threads of a local run that would do; all of them: n_threads.
 *
 * n threads that wait for each other a part w of the time compute n (1 - w) of it together. At worst one
 * thread alone computes while the others wait, for s = w n / (n - 1) of a step, and they divide the rest,
 * 1 - s: m threads then take s + (1 - s) n / m. Barriers that cost more with every thread, or unequal shares
 * of the rows, leave less to m threads. So the least m for which that is at most 1 + MST_VERDICT_SPARE is
 * enough, whatever the threads wait for. Threads beyond the cores add nothing, nor do those for which a batch
 * has too few rows, and their waits hide the others. */
static double explain_enough(const mst_facts *f, const mst_verdict *v)
{
    double n = f->figures.n_threads,
           training = 1 - v->shares[MST_BOTTLENECK_EVALUATION] - f->typical[MST_COST_CHECKPOINT];
    if (!mst_facts_alone(f) || !(n >= 2) || !(training > 0))
        return n;
    if (n > mst_facts_room(f) || n > f->figures.threads_most)
        return fmax(1, fmin(mst_facts_room(f), f->figures.threads_most));
    double alone = fmin(1, v->shares[MST_BOTTLENECK_SYNCHRONISATION] / training * n / (n - 1));
    return fmin(n, fmax(1, ceil(n * (1 - alone) / (1 + MST_VERDICT_SPARE - alone))));
}

static void explain_threads(const mst_facts *f, mst_verdict *v)
{
    size_t n = strlen(v->sentence);
    double enough = explain_enough(f, v), all = f->figures.n_threads, room = mst_facts_room(f);
    if (!(enough < all))
        return;
    evidence_add(v, enough, "threads", "threads that would do, for at least %.0f%% of the rate",
                 100 / (1 + MST_VERDICT_SPARE));
    if (all > room)
        snprintf(v->sentence + n, SENTENCE_SIZE - n,
                 " %.0f of the %.0f threads would do: the process has %.0f core%s.", enough, all, room,
                 room > 1 ? "s" : "");
    else if (all > f->figures.threads_most)
        snprintf(v->sentence + n, SENTENCE_SIZE - n,
                 " %.0f of the %.0f threads would do: with batches of %.0f row%s, more are slower.", enough,
                 all, f->figures.batch, f->figures.batch > 1 ? "s" : "");
    else
        snprintf(v->sentence + n, SENTENCE_SIZE - n,
                 " %.0f of the %.0f threads would do: the others add at most a tenth to the rows per second.",
                 enough, all);
}

/* Other programs on a host make every figure doubtful: the sentence ends with them. */
static void explain_others(const mst_facts *f, mst_verdict *v)
{
    size_t n = strlen(v->sentence);
    char host[HOST_TEXT];
    if (mst_facts_has_guests(f))
        snprintf(v->sentence + n, SENTENCE_SIZE - n, " Other programs use %.1f of the %.0f cores of %s%s.",
                 f->others, f->guest->cores, cause_host(f, f->guest, host),
                 v->shares[MST_BOTTLENECK_CORES] >= MST_VERDICT_MENTIONED ? ", which slows it down" : "");
}

/* Losses take time that the shares do not have: they are of a worker's time while it trains. */
static void explain_losses(const mst_facts *f, mst_verdict *v)
{
    const mst_loss_figures *l = &f->losses;
    size_t n = strlen(v->sentence);
    char share[40], recovery[40], repeated[40];
    if (l->share >= MST_VERDICT_MENTIONED)
        snprintf(v->sentence + n, SENTENCE_SIZE - n,
                 " Losses of processes took %s of the wall time: %s of recovery, and %s of training that was "
                 "repeated.",
                 mst_figure_percent(l->share, share), mst_figure_seconds(l->recovery_s, recovery),
                 mst_figure_seconds(l->train_s, repeated));
}

void mst_verdict_explain(const mst_facts *f, const mst_places *places, mst_verdict *v)
{
    const mst_process_use *p = v->kind != MST_BOTTLENECK_NONE ? places->of[v->kind] : NULL;
    if (p != NULL)
        snprintf(v->process, sizeof v->process, "%s", p->name);
    explain_evidence(f, v);
    causes[v->kind].sentence(f, v);
    explain_parsing(f, v);
    explain_threads(f, v);
    explain_losses(f, v);
    explain_others(f, v);
}
