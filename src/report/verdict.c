/* The rules of the verdict (verdict.h), on the facts of verdict_facts.c.
 *
 * A worker's time, of the typical worker (the mean of those whose own work per step is at most 1.5 times the
 * median's), is divided into the shares of the possible bottlenecks:
 *
 *  1. evaluation: evaluate_s, or eval_seconds over all wall time of the run where that is more (the others
 *     wait meanwhile: the difference is taken off idle time first, then off waits).
 *  2. disk: checkpoint_s; and, where there are signs of it, the part of the own phases (read, prepare,
 *     compute, push, apply) in which the process neither ran nor was ready to, taken off read_s first. Signs:
 *     the host waits for disks for at least 0.2 of a core; or 50 major faults/s; or 1 MB/s read from disks
 *     (where the system does not tell who was ready: while at least 0.3 of the host's CPU is free).
 *  3. input: the rest of read_s.
 *  4. cores: the part of the rest of the other own phases in which the process did not run though it was
 * ready to: it waits for a core; compute: what remains of them.
 *  5. Waits (pull_wait_s + barrier_wait_s) are divided among
 *     a. stragglers: in lockstep (sync, ssp), the time of a step by which the slowest worker's own work is
 *        longer than the median's, from 1.2 times on; or, where that is more, the time that the coordinator
 *        saw steps held open for one worker alone, beyond any other's, from 0.1 on, unless its link is the
 *        reason. Without lockstep: idle time, when one worker is idle 0.3 of the time more than another;
 *     b. server-cpu, server-network, worker-network, by use: busy share of the busiest server (apply_s +
 *        serve_s over its threads, or its CPU over what its threads, cores and limits let it use), use of
 *        the busiest link against its speed (in lockstep in + out, else the greater of them). In lockstep
 *        the use of a thing is its share of the step. Without lockstep one that is used 0.7 of the time or
 *        more is what queues form at, and gets all waits; otherwise each gets waits by use / 0.7. Of the
 *        links of servers and workers, which carry the same bytes, the more used one counts. Measured speeds
 *        are lower bounds, and workers that share a slow link of a server measure parts of it: so a worker's
 *        use counts a quarter, but four times when its link is a third as fast as all others', since then
 *        the servers' is not what is slow;
 *     c. cores, all of the rest, where several processes or threads of the run are on a host whose cores
 *        are used up (0.95 busy);
 *     d. the rest: the network where no link speed is known, workers and servers (or ranks, which are workers
 *        without servers) are on different hosts and a step moves 32 kB or more: at a worker that waits 1.5
 * times as long per step as the median (without lockstep), or where there are no servers; else at the
 * servers. Otherwise synchronisation: round trips and barriers.
 *
 * The greatest share (compute and cores together count as one, compute) is the bottleneck when it is at least
 * 0.4 and 1.25 times the second, or when a server or a link is used 0.9 of the time or more and workers wait
 * at least 0.15 of it; else there is none.
 *
 * Without spans.csv the manifest tells how long workers computed, read and waited, but not for what: waits
 * then have no share, and where they are the greatest part nothing is known.
 *
 * Invariants
 * 1. Shares are between 0 and 1 and add up to 1 at most.
 * 2. A file that lacks a column changes shares only by what the column would have told. */
#include "report/verdict.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "base/strings.h"
#include "report/verdict_impl.h"

#define DOMINATES      0.4
#define LEADS          1.25
#define SATURATED      0.9
#define SATURATED_WAIT 0.15
#define QUEUES         0.7
#define SLOWER         1.2
#define HELD           0.1
#define FAR_FAVOUR     4.0
#define IDLE_GAP       0.3
#define WAITS_LONGER   1.5
#define IOWAIT         0.2
#define FAULTS         50
#define READ_RATE      1e6
#define CPU_FREE       0.3
#define OTHERS         0.25 /* of a host's cores, before other programs are worth a word */
#define STEP_BYTES     32768
#define WORTH_A_WORD   0.05 /* of a worker's time */
#define CORES_LACK     0.15 /* of it, before waiting for a core is what the sentence is about */
#define HOST_TEXT      224

const char *mst_bottleneck_name(mst_bottleneck kind)
{
    static const char *const names[] = {
#define X(name, text, title) text,
        MST_BOTTLENECK_MAP(X)
#undef X
            "none",
    };
    return names[kind];
}

const char *mst_bottleneck_title(mst_bottleneck kind)
{
    static const char *const titles[] = {
#define X(name, text, title) title,
        MST_BOTTLENECK_MAP(X)
#undef X
            "nothing in particular",
    };
    return titles[kind];
}

json_t *mst_causes_json(void)
{
    json_t *list = json_array();
    for (int k = 0; k < MST_BOTTLENECKS; k++)
        json_array_append_new(list, json_pack("[s, s]", mst_bottleneck_name((mst_bottleneck)k),
                                              mst_bottleneck_title((mst_bottleneck)k)));
    return list;
}

/* ---- rules 1 to 4: a worker's own time ---- */

/* What evaluation takes beyond the typical worker's own part of it comes off idle time, then waits. */
static double take_evaluation(const mst_facts *f, mst_verdict *v, double *idle)
{
    double extra = fmax(0, f->eval_share - f->typical[MST_COST_EVALUATE]), wait = f->wait;
    v->shares[MST_BOTTLENECK_EVALUATION] = fmin(1, f->typical[MST_COST_EVALUATE] + extra);
    double from_idle = fmin(extra, *idle);
    *idle -= from_idle;
    return fmax(0, wait - (extra - from_idle));
}

static bool disk_signs(const mst_party *w)
{
    return w->iowait >= IOWAIT || w->fault_rate >= FAULTS ||
           (w->read_rate >= READ_RATE && (1 - w->host_busy >= CPU_FREE || w->delay >= 0));
}

/* Of the time of the workers' threads, their own work that they were ready to do and did not; 0 where nobody
 * tells. */
static double ready_share(const mst_facts *f)
{
    double sum = 0;
    for (size_t i = 0; i < f->n_workers; i++) {
        const mst_party *w = &f->workers[i];
        double own = w->share[MST_COST_PREPARE] + w->share[MST_COST_COMPUTE] + w->share[MST_COST_PUSH] +
                     w->share[MST_COST_APPLY];
        double each = w->thread_seconds > 0 ? w->seconds / w->thread_seconds : 0;
        if (w->delay > 0 && w->cpu >= 0)
            sum += fmin(w->delay * each, fmax(0, own - w->ran * each));
    }
    return f->n_workers > 0 ? sum / (double)f->n_workers : 0;
}

static void take_own(const mst_facts *f, mst_verdict *v)
{
    double off = 0, read = f->typical[MST_COST_READ], rest = f->own - read;
    size_t n = 0;
    for (size_t i = 0; i < f->n_workers; i++) {
        const mst_party *w = &f->workers[i];
        if (!disk_signs(w) || isnan(w->cpu))
            continue;
        double own = w->share[MST_COST_READ] + w->share[MST_COST_PREPARE] + w->share[MST_COST_COMPUTE] +
                     w->share[MST_COST_PUSH] + w->share[MST_COST_APPLY];
        double ran = w->cpu + (w->delay >= 0 ? w->delay : 0); /* or was ready to */
        off += fmax(0, own - ran * w->seconds / w->thread_seconds);
        n++;
    }
    off = n > 0 ? off / (double)f->n_workers : 0;
    double of_read = fmin(off, read), of_rest = fmin(off - of_read, rest);
    v->shares[MST_BOTTLENECK_DISK] = f->typical[MST_COST_CHECKPOINT] + of_read + of_rest;
    v->shares[MST_BOTTLENECK_INPUT] = read - of_read;
    v->core_wait_own = fmin(rest - of_rest, ready_share(f));
    v->shares[MST_BOTTLENECK_CORES] = v->core_wait_own;
    v->shares[MST_BOTTLENECK_COMPUTE] = rest - of_rest - v->core_wait_own;
}

/* ---- rule 5: waits ---- */

/* Steps are held open for one worker, and not because of its link. */
static bool is_held(const mst_facts *f)
{
    return f->held >= HELD && !(f->far_worker && f->linked_worker == f->held_worker);
}

/* Returns what is left of the waits. */
static double take_stragglers(const mst_facts *f, mst_verdict *v, double wait, double idle)
{
    double share = 0;
    if (f->n_workers < 2)
        return wait;
    if (f->lockstep && (f->slowest_ratio >= SLOWER || is_held(f))) {
        double slowest = f->workers[f->slowest].own_s;
        share = f->slowest_ratio >= SLOWER ? (slowest - slowest / f->slowest_ratio) / f->step_s : 0;
        share = fmin(wait, is_held(f) ? fmax(share, f->held) : share);
        wait -= share;
    } else if (!f->lockstep) {
        double least = 1, most = 0;
        for (size_t i = 0; i < f->n_workers; i++) {
            least = fmin(least, f->workers[i].share[MST_COST_IDLE]);
            most = fmax(most, f->workers[i].share[MST_COST_IDLE]);
        }
        share = most - least >= IDLE_GAP ? idle : 0;
    }
    v->shares[MST_BOTTLENECK_STRAGGLERS] = share;
    return wait;
}

/* The worker that waits longest per step, when it stands out; n_workers: none does. */
static size_t find_far_worker(const mst_facts *f)
{
    size_t far = 0, shorter = 0;
    for (size_t i = 1; i < f->n_workers; i++)
        if (f->workers[i].wait_s > f->workers[far].wait_s)
            far = i;
    for (size_t i = 0; i < f->n_workers; i++)
        shorter += f->workers[i].wait_s * WAITS_LONGER <= f->workers[far].wait_s;
    return !f->lockstep && f->n_workers > 1 && shorter * 2 >= f->n_workers ? far : f->n_workers;
}

typedef struct places {
    const mst_party *server, *link_server, *link_worker, *straggler;
} places;

static void take_waits(const mst_facts *f, mst_verdict *v, double wait, places *at)
{
    double server = f->server_busy, link = 0;
    bool known = !isnan(f->server_link) || !isnan(f->worker_link);
    mst_bottleneck where = f->n_servers > 0 ? MST_BOTTLENECK_SERVER_NETWORK : MST_BOTTLENECK_WORKER_NETWORK;
    if (known) {
        bool worker = !(f->server_link >= f->worker_link * (f->far_worker ? FAR_FAVOUR : 1 / FAR_FAVOUR)) &&
                      !isnan(f->worker_link);
        where = worker ? MST_BOTTLENECK_WORKER_NETWORK : MST_BOTTLENECK_SERVER_NETWORK;
        link = worker ? f->worker_link : f->server_link;
        at->link_worker = worker ? &f->workers[f->linked_worker] : NULL;
        at->link_server = worker ? NULL : &f->servers[f->linked_server];
    }
    if (f->lockstep) {
        double sum = server + link, scale = sum > wait ? wait / sum : 1;
        server *= scale;
        link *= scale;
    } else if (fmax(server, link) >= QUEUES) {
        bool is_server = server >= link;
        server = is_server ? wait : 0;
        link = is_server ? 0 : wait;
    } else {
        double scale = fmin(1, (server + link) / QUEUES) * wait / fmax(server + link, 1e-9);
        server *= scale;
        link *= scale;
    }
    double rest = fmax(0, wait - server - link);
    v->shares[MST_BOTTLENECK_SERVER_CPU] = server;
    v->shares[where] += link;
    if (f->crowded) { /* what is not explained otherwise is waiting for a core */
        v->shares[MST_BOTTLENECK_CORES] += rest;
        return;
    }
    bool processes = f->n_servers > 0 || f->n_workers > 1 || f->ps;
    if (!known && processes && f->apart && f->bytes_per_step >= STEP_BYTES) {
        size_t far = find_far_worker(f);
        if (far < f->n_workers) {
            where = MST_BOTTLENECK_WORKER_NETWORK;
            at->link_worker = &f->workers[far];
        }
        v->shares[where] += rest;
    } else {
        v->shares[MST_BOTTLENECK_SYNCHRONISATION] = rest;
    }
}

/* ---- choosing ---- */

double mst_verdict_own(const mst_verdict *v)
{
    return v->shares[MST_BOTTLENECK_COMPUTE] + v->shares[MST_BOTTLENECK_CORES];
}

/* A share as a candidate: compute and cores are one. */
static double weight_of(const mst_verdict *v, int kind)
{
    return kind == MST_BOTTLENECK_COMPUTE ? mst_verdict_own(v)
           : kind == MST_BOTTLENECK_CORES ? 0
                                          : v->shares[kind];
}

static mst_bottleneck choose(const mst_facts *f, const mst_verdict *v)
{
    mst_bottleneck first = MST_BOTTLENECK_COMPUTE;
    double second = 0;
    for (int k = 1; k < MST_BOTTLENECKS; k++)
        if (weight_of(v, k) > weight_of(v, (int)first))
            first = (mst_bottleneck)k;
    for (int k = 0; k < MST_BOTTLENECKS; k++)
        if (k != (int)first)
            second = fmax(second, weight_of(v, k));
    if (weight_of(v, (int)first) >= DOMINATES && weight_of(v, (int)first) >= LEADS * second)
        return first;
    if (f->wait >= SATURATED_WAIT) {
        if (f->server_busy >= SATURATED && !(fmax(f->server_link, f->worker_link) > f->server_busy))
            return MST_BOTTLENECK_SERVER_CPU;
        if (f->server_link >= SATURATED && !f->far_worker)
            return MST_BOTTLENECK_SERVER_NETWORK;
        if (f->worker_link >= SATURATED)
            return MST_BOTTLENECK_WORKER_NETWORK;
    }
    return MST_BOTTLENECK_NONE;
}

/* ---- evidence ---- */

static void add_evidence(mst_verdict *v, double value, const char *unit, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
static void add_evidence(mst_verdict *v, double value, const char *unit, const char *format, ...)
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

/* "the host of worker-1"; a process that is alone: "the host". */
static const char *host_of(const mst_facts *f, const mst_party *p, char out[HOST_TEXT])
{
    bool alone = mst_facts_alone(f);
    snprintf(out, HOST_TEXT, "the host%s%s", alone ? "" : " of ", alone ? "" : p->name);
    return out;
}

static void take_evidence(const mst_facts *f, mst_verdict *v)
{
    char speed[40], host[HOST_TEXT], since[64] = "", step[40];
    const char *who = mst_facts_noun(f);
    if (!isnan(f->since))
        snprintf(since, sizeof since, ", after step %s", mst_figure_count(f->since_step, step));
    add_evidence(v, f->rows_per_s > 0 ? f->rows_per_s : NAN, "rows/s",
                 "rows per second, all %ss, evaluations and saving included%s", who, since);
    for (int k = 0; k < MST_BOTTLENECKS; k++)
        if (v->shares[k] >= 0.02)
            add_evidence(v, v->shares[k], "share", "share of a %s's time: %s", who,
                         mst_bottleneck_title((mst_bottleneck)k));
    if (!isnan(f->server_link))
        add_evidence(v, f->server_link, "share", "use of the link of %s (%s)",
                     f->servers[f->linked_server].name,
                     mst_figure_bits(f->servers[f->linked_server].link_bytes, speed));
    if (!isnan(f->worker_link))
        add_evidence(v, f->worker_link, "share", "use of the link of %s (%s)",
                     f->workers[f->linked_worker].name,
                     mst_figure_bits(f->workers[f->linked_worker].link_bytes, speed));
    if (f->n_servers > 0)
        add_evidence(v, f->server_busy, "share", "busy share of %s", f->servers[f->busiest_server].name);
    if (f->n_workers > 1)
        add_evidence(v, f->slowest_ratio, "ratio", "own work per step of the slowest %s (%s) over the median",
                     who, f->workers[f->slowest].name);
    if (f->n_workers > 0) {
        const mst_party *w = &f->workers[f->slowest];
        add_evidence(v, w->host_busy, "share", "CPU use of %s, all cores", host_of(f, w, host));
        add_evidence(v, w->busiest, "share", "busiest core of %s", host_of(f, w, host));
        add_evidence(v, w->read_rate >= READ_RATE ? w->read_rate : NAN, "bytes/s", "read from disks by %s",
                     w->name);
    }
    if (f->guest != NULL && f->others >= OTHERS * f->guest->cores)
        add_evidence(v, f->others, "cores", "CPU of %s that other programs use", host_of(f, f->guest, host));
    add_evidence(v, f->held >= HELD ? f->held : NAN, "share", "time that steps were held open for %s alone",
                 f->n_workers > 0 ? f->workers[f->held_worker].name : "");
    add_evidence(v, f->bytes_per_step > 0 ? f->bytes_per_step : NAN, "bytes",
                 "messages of a step of one %s, both ways", who);
    add_evidence(v, f->step_s > 0 ? f->step_s : NAN, "s", "wall time of a step%s%s",
                 mst_facts_alone(f) ? "" : " of one ", mst_facts_alone(f) ? "" : who);
}

/* ---- the sentence ---- */

static void name_place(const mst_facts *f, mst_verdict *v, const places *at)
{
    const mst_party *p = v->kind == MST_BOTTLENECK_SERVER_CPU       ? at->server
                         : v->kind == MST_BOTTLENECK_SERVER_NETWORK ? at->link_server
                         : v->kind == MST_BOTTLENECK_WORKER_NETWORK ? at->link_worker
                         : v->kind == MST_BOTTLENECK_STRAGGLERS     ? at->straggler
                                                                    : NULL;
    if (p == NULL && v->kind == MST_BOTTLENECK_SERVER_NETWORK && f->n_servers > 0)
        p = &f->servers[0];
    if (p != NULL)
        snprintf(v->process, sizeof v->process, "%s", p->name);
}

/* The second greatest share, for runs that are balanced. */
static mst_bottleneck greatest_but(const mst_verdict *v, mst_bottleneck but)
{
    mst_bottleneck best = but == MST_BOTTLENECK_COMPUTE ? MST_BOTTLENECK_INPUT : MST_BOTTLENECK_COMPUTE;
    for (int k = 0; k < MST_BOTTLENECKS; k++)
        if (k != (int)but && v->shares[k] > v->shares[best])
            best = (mst_bottleneck)k;
    return best;
}

/* Others on a host make every figure doubtful: the sentence ends with them. */
static void add_others(const mst_facts *f, mst_verdict *v)
{
    size_t n = strlen(v->sentence);
    char host[HOST_TEXT];
    if (f->guest != NULL && f->others >= OTHERS * f->guest->cores)
        snprintf(v->sentence + n, sizeof v->sentence - n,
                 " Other programs use %.1f of the %.0f cores of %s%s.", f->others, f->guest->cores,
                 host_of(f, f->guest, host),
                 v->kind == MST_BOTTLENECK_INPUT && f->source_waits ? "" : ", which slows it down");
}

/* Cores that parsing has, training has not. */
static void add_parsing(const mst_facts *f, mst_verdict *v)
{
    size_t n = strlen(v->sentence);
    double all = f->parsing + f->training;
    if (f->parses && f->cores_full && !f->source_waits && f->parsing > f->training)
        snprintf(v->sentence + n, sizeof v->sentence - n,
                 " Parsing uses %.2f of the %.2f cores that the process gets.", f->parsing, all);
}

/* Tables count what is part of computing here in columns of their own. */
static const char *included(const mst_facts *f, const mst_verdict *v)
{
    double more = f->own - f->typical[MST_COST_READ] - f->typical[MST_COST_COMPUTE];
    return more >= fmax(WORTH_A_WORD, 0.1 * v->shares[MST_BOTTLENECK_COMPUTE])
               ? " (preparing rows, sending and applying included)"
               : "";
}

/* While doing what, where it is both. */
static const char *core_parts(const mst_verdict *v, char out[120])
{
    char own[40], other[40];
    double waiting = v->shares[MST_BOTTLENECK_CORES] - v->core_wait_own;
    *out = '\0';
    if (v->core_wait_own >= WORTH_A_WORD && waiting >= WORTH_A_WORD)
        snprintf(out, 120, " (%s in their own work, %s while they wait for others)",
                 mst_figure_percent(v->core_wait_own, own), mst_figure_percent(waiting, other));
    return out;
}

static const char *core_words(const mst_verdict *v, char out[120])
{
    char share[40];
    *out = '\0';
    if (v->shares[MST_BOTTLENECK_CORES] >= WORTH_A_WORD)
        snprintf(out, 120, ", waiting for a core %s",
                 mst_figure_percent(v->shares[MST_BOTTLENECK_CORES], share));
    return out;
}

static void write_sentence(const mst_facts *f, mst_verdict *v)
{
    char share[40], extra[320] = "", number[40], core[40], host[HOST_TEXT], parts[120];
    const char *who = mst_facts_noun(f);
    size_t size = sizeof v->sentence;
    if (v->kind == MST_BOTTLENECK_NONE) {
        char second_share[40];
        mst_bottleneck a = greatest_but(v, MST_BOTTLENECK_NONE), b = greatest_but(v, a);
        snprintf(v->sentence, size,
                 "Nothing dominates: the greatest shares of a %s's time are %s (%s) and %s (%s).", who,
                 mst_bottleneck_title(a), mst_figure_percent(v->shares[a], share), mst_bottleneck_title(b),
                 mst_figure_percent(v->shares[b], second_share));
        return;
    }
    mst_figure_percent(v->shares[v->kind], share);
    switch (v->kind) {
    case MST_BOTTLENECK_COMPUTE:
        if (f->workers[f->slowest].host_busy >= 0)
            snprintf(extra, sizeof extra, "; the CPU of %s is used %s",
                     host_of(f, &f->workers[f->slowest], host),
                     mst_figure_percent(f->workers[f->slowest].host_busy, number));
        if (v->shares[MST_BOTTLENECK_CORES] >= CORES_LACK)
            snprintf(v->sentence, size,
                     "Cores are the bottleneck: %ss compute %s of their time%s and wait for a core %s of "
                     "it%s%s.",
                     who, share, included(f, v), mst_figure_percent(v->shares[MST_BOTTLENECK_CORES], core),
                     core_parts(v, parts), extra);
        else
            snprintf(v->sentence, size, "Computing is the bottleneck: it takes %s of a %s's time%s%s%s.",
                     share, who, included(f, v), core_words(v, parts), extra);
        break;
    case MST_BOTTLENECK_SERVER_NETWORK:
    case MST_BOTTLENECK_WORKER_NETWORK: {
        double use = v->kind == MST_BOTTLENECK_SERVER_NETWORK ? f->server_link : f->worker_link;
        if (!isnan(use))
            snprintf(extra, sizeof extra, ", and its link is used %s", mst_figure_percent(use, number));
        else
            snprintf(extra, sizeof extra, ", and a step moves %s",
                     mst_figure_bytes(f->bytes_per_step, number));
        snprintf(v->sentence, size, "The network at %s%s is the bottleneck: %ss wait %s of their time%s.",
                 v->process[0] != '\0' ? v->process : "the ",
                 v->process[0] != '\0' ? ""
                 : f->ranks            ? "ranks"
                                       : "workers",
                 who, share, extra);
        break;
    }
    case MST_BOTTLENECK_SERVER_CPU:
        snprintf(v->sentence, size,
                 "The CPU of %s is the bottleneck: it is busy %s, and workers wait %s for it.", v->process,
                 mst_figure_percent(f->server_busy, number), share);
        break;
    case MST_BOTTLENECK_INPUT:
        snprintf(extra, sizeof extra, "%s%.256s",
                 f->pipe != NULL   ? "from "
                 : f->source_waits ? "to be read"
                                   : "to be parsed",
                 f->pipe != NULL ? f->pipe : "");
        snprintf(v->sentence, size, "Input is the bottleneck: training waits for rows %s %s of the time%s.",
                 extra, share,
                 f->pipe != NULL && f->source_waits ? ", since the program that writes them is slow" : "");
        break;
    case MST_BOTTLENECK_DISK:
        snprintf(v->sentence, size, "The disk is the bottleneck: training waits for it %s of the time.",
                 share);
        break;
    case MST_BOTTLENECK_STRAGGLERS:
        if (is_held(f)) {
            snprintf(v->sentence, size, "%s is the bottleneck: the others wait for it alone %s of the time.",
                     v->process, share);
            break;
        }
        snprintf(v->sentence, size,
                 "%s is the bottleneck: its steps take %.2f times as long as the median %s's, and the others "
                 "wait for it %s of the time.",
                 v->process[0] != '\0' ? v->process : "A slow worker", f->slowest_ratio, who, share);
        break;
    case MST_BOTTLENECK_SYNCHRONISATION:
        snprintf(v->sentence, size,
                 "Synchronisation is the bottleneck: %s of a %s's time goes into round trips and barriers, "
                 "not into bytes or work; a step takes %s.",
                 share, who, mst_figure_seconds(f->step_s, number));
        break;
    default:
        snprintf(v->sentence, size, "Evaluation is the bottleneck: it takes %s of the time.", share);
    }
}

/* Rounding and files that overlap may make more than the whole of it. Evaluation has the part of the wall
 * time that it took; the rest is divided among the others. */
static void normalise(mst_verdict *v)
{
    double others = 0, evaluation;
    for (int k = 0; k < MST_BOTTLENECKS; k++) {
        v->shares[k] = v->shares[k] > 0 ? fmin(v->shares[k], 1) : 0;
        others += k != MST_BOTTLENECK_EVALUATION ? v->shares[k] : 0;
    }
    evaluation = v->shares[MST_BOTTLENECK_EVALUATION];
    if (evaluation + others > 1)
        v->core_wait_own *= (1 - evaluation) / others;
    for (int k = 0; evaluation + others > 1 && k < MST_BOTTLENECKS; k++)
        v->shares[k] *= k != MST_BOTTLENECK_EVALUATION ? (1 - evaluation) / others : 1;
}

/* Whether the waits, whose cause nobody knows, are more than any other share. */
static bool waits_most(const mst_verdict *v, double wait)
{
    for (int k = 0; k < MST_BOTTLENECKS; k++)
        if (v->shares[k] >= wait)
            return false;
    return wait > 0;
}

mst_status mst_verdict_of(const mst_run_data *run, mst_verdict *out)
{
    mst_facts f;
    places at = {0};
    *out = (mst_verdict){.kind = MST_BOTTLENECK_NONE};
    TRY(mst_facts_of(run, &f));
    double idle = f.typical[MST_COST_IDLE];
    double wait = take_evaluation(&f, out, &idle);
    if (f.n_workers == 0) {
        out->known = out->shares[MST_BOTTLENECK_EVALUATION] >= DOMINATES;
        normalise(out);
        bool early = strcmp(f.figures.state, "running") == 0;
        snprintf(out->sentence, sizeof out->sentence, "%s",
                 early ? "It is too early to say what the bottleneck is: the run's files show no trained "
                         "rows yet."
                       : "What the bottleneck is cannot be said: the run has no spans.csv with "
                         "trained rows.");
        if (out->known) {
            out->kind = MST_BOTTLENECK_EVALUATION;
            write_sentence(&f, out);
        }
        mst_facts_fini(&f);
        return MST_OK;
    }
    out->known = true;
    take_own(&f, out);
    if (f.spans) {
        wait = take_stragglers(&f, out, wait, idle);
        take_waits(&f, out, wait, &at);
    }
    normalise(out);
    if (!f.spans && waits_most(out, wait)) {
        char number[40];
        snprintf(out->sentence, sizeof out->sentence,
                 "What the bottleneck is cannot be said: %ss wait %s of their time, and the run has no "
                 "spans.csv that tells for what.",
                 mst_facts_noun(&f), mst_figure_percent(wait, number));
        out->known = false;
        mst_facts_fini(&f);
        return MST_OK;
    }
    at.server = f.n_servers > 0 ? &f.servers[f.busiest_server] : NULL;
    at.straggler = &f.workers[is_held(&f) ? f.held_worker : f.slowest];
    out->kind = choose(&f, out);
    name_place(&f, out, &at);
    take_evidence(&f, out);
    write_sentence(&f, out);
    add_parsing(&f, out);
    add_others(&f, out);
    mst_verdict_advise(&f, out);
    mst_facts_fini(&f);
    return MST_OK;
}

/* ---- verdict.json ---- */

json_t *mst_verdict_json(const mst_verdict *v)
{
    json_t *shares = json_object(), *evidence = json_array(), *advice = json_array();
    bool fine = shares != NULL && evidence != NULL && advice != NULL;
    for (int k = 0; fine && k < MST_BOTTLENECKS; k++)
        fine =
            json_object_set_new(shares, mst_bottleneck_name((mst_bottleneck)k), json_real(v->shares[k])) == 0;
    for (size_t i = 0; fine && i < v->n_evidence; i++)
        fine = json_array_append_new(evidence,
                                     json_pack("{s:s, s:f, s:s}", "what", v->evidence[i].what, "value",
                                               v->evidence[i].value, "unit", v->evidence[i].unit)) == 0;
    for (size_t i = 0; fine && i < v->n_advice; i++)
        fine = json_array_append_new(advice,
                                     json_pack("{s:s, s:s, s:f}", "change", v->advice[i].change, "text",
                                               v->advice[i].text, "predicted_gain", v->advice[i].gain)) == 0;
    json_t *out =
        fine ? json_pack("{s:s, s:s, s:s, s:b, s:O, s:O, s:O}", "bottleneck", mst_bottleneck_name(v->kind),
                         "process", v->process, "sentence", v->sentence, "known", (int)v->known, "evidence",
                         evidence, "shares", shares, "advice", advice)
             : NULL;
    json_decref(shares);
    json_decref(evidence);
    json_decref(advice);
    return out;
}

mst_status mst_verdict_write(const char *run_path)
{
    mst_status st;
    mst_run_data *run = NULL;
    mst_verdict verdict;
    mst_string text = {0};
    json_t *json = NULL;
    TRY(mst_run_data_new(run_path, &run));
    TRY_OUT(st, mst_verdict_of(run, &verdict));
    json = mst_verdict_json(&verdict);
    char *dumped = json != NULL ? json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : NULL;
    if (dumped == NULL)
        TRY_OUT(st, mst_fail_memory());
    mst_string_add(&text, dumped);
    mst_string_add(&text, "\n");
    free(dumped);
    st = mst_string_save(&text, run->verdict_path);
out:
    json_decref(json);
    mst_string_fini(&text);
    mst_run_data_destroy(run);
    return st;
}
