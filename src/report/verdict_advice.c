/* clang-format off */
/* Advice: the changes of docs/REPORT.md, with their gain by the model of a step (step_model.h).
 *
 * The unit of the model is the present time of a worker's step. The shares of the verdict are its parts;
 * without lockstep the demands of stations come from the measured use (demand = use / (W steps per unit of
 * time)). A change alters these numbers; its gain is rows/s after the change over rows/s before it, both by the
 * model.
 *
 *  --servers 2M     server and server link halve; not if workers host the model
 *  --workers 2W     twice the rows per step; in lockstep server and server link take twice as long; on other
 *                   hosts if the workers' hosts have no free cores. For an MPI job the advice is for its
 *                   launcher (mpirun -n); ranks have no servers, and share a given global batch. If a program
 *                   writes rows into a pipe too slowly, the workers share its rows
 *  --batch 4B       own * 4, rows * 4; round trips, MST_STEP_MESSAGE_S of sending and the fixed part of
 *                   stragglers stay; bytes and server work stay if the whole model travels, and grow by
 *                   4^SPARSE_POWER if only the keys of the batch do
 *  --wire bf16      half the bytes of values, of which a push has as many as an answer; servers' work by bytes
 *  --mode async     no stragglers and no barrier: the queueing model; not for ranks
 *  --quorum W-1     does not wait for the slowest worker; not if there is a quorum
 *  --pipeline 2     three requests of a worker in flight: three times the customers, whose own work is
 *                   sequential
 *  --cache          input * CACHED; and if text is parsed on saturated cores, or the training threads and other
 *                   programs would leave none saturated, own work takes the CPU time of the training threads
 *                   over the cores of the process, and barrier waits of threads are scaled by the remaining
 *                   CPU demand
 *  --threads C      local and ranks, C: the cores of the host, or those that limits and other ranks leave, or
 *                   fewer if more would be slower (threads_most of the manifest): own work over the cores
 *                   that the threads get, if other programs keep as many threads runnable as they use cores,
 *                   and all threads share the cores evenly; the advice states this. If threads outnumber C:
 *                   own work, without waits at barriers, over these cores; barrier waits are scaled by the
 *                   number of threads, none for one thread; no larger batch is advised if they outnumber
 *                   the cores
 *  --eval-every, --checkpoint-every times MST_VERDICT_RARER
 *                   a quarter of those before the last step, and the one at the end; only if there were
 *                   MST_VERDICT_SEVERAL
 *  stopping other programs on this host
 *                   own work takes the CPU time of the process over all cores of the host
 *
 * Advice with a gain below MST_VERDICT_WORTH is omitted. Advice that needs more hardware comes after other
 * advice, unless its gain is MST_VERDICT_HARDWARE times as much. */
/* clang-format on */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "report/verdict_impl.h"

#define SPARSE_POWER 0.8
#define CACHED       0.01
#define REQUEST_S                                                                                            \
    6e-5 /* of a server's work for a request, however few bytes it has (measured in the lab)                 \
          */

/* ---- today ---- */

/* In lockstep a worker prepares rows while it waits. If the server, the link and round trips take more than
 * the waits, the difference is hidden by that work. */
static void model_take_overlap(const mst_facts *f, mst_step_model *m)
{
    double hides = f->typical[MST_COST_READ] + f->typical[MST_COST_PREPARE];
    double waits = m->trips + m->server + m->server_link + m->worker_link;
    double link = f->link_at_worker ? f->worker_link : mst_or_zero(f->server_link);
    double all = f->server_busy + link + mst_or_zero(f->latency);
    if (!(all > waits) || !(hides > 0))
        return;
    double part = fmin(1, hides / (all - waits)); /* the rest was not measured consistently */
    m->trips += part * fmax(0, mst_or_zero(f->latency) - m->trips);
    m->server += part * fmax(0, f->server_busy - m->server);
    *(f->link_at_worker ? &m->worker_link : &m->server_link) +=
        part * fmax(0, link - (f->link_at_worker ? m->worker_link : m->server_link));
    m->overlap = m->trips + m->server + m->server_link + m->worker_link - waits;
}

/* The use of the busiest server by workers that do not wait for each other: without the wake-ups that it
 * spares when requests queue. In lockstep W gradients are added up and applied once, which is one pass more
 * than W. */
static double model_server_work(const mst_facts *f)
{
    double passes = f->lockstep ? (double)f->n_workers / (double)(f->n_workers + 1) : 1;
    double work = passes * f->server_apply + f->server_serve;
    return work > 0 ? fmin(work, f->server_busy) : f->server_busy;
}

/* Without lockstep workers differ: those beside the server make more steps. So the unit is a second, and the
 * demand of a station for one step is its use over the steps per second that visit it. */
static void model_take_queues(const mst_facts *f, mst_step_model *m)
{
    mst_facts_class c[2];
    mst_facts_classes(f, c);
    double steps = c[0].steps_per_s + c[1].steps_per_s, parts = m->own + m->input + m->disk;
    double own = (c[0].n * c[0].own_s + c[1].n * c[1].own_s) / fmax(1, c[0].n + c[1].n);
    if (!(c[0].steps_per_s > 0))
        return;
    double second = parts > 0 ? own / parts : f->step_s, *own_parts[] = {&m->own, &m->input, &m->disk};
    for (size_t i = 0; i < sizeof own_parts / sizeof *own_parts; i++)
        *own_parts[i] *= second;
    m->trips = c[0].trip_s > 0 ? c[0].trip_s : m->trips * f->step_s;
    m->worker_link *= f->step_s;
    m->server_use = model_server_work(f) / steps;
    m->cores_use = f->shared_cores / steps;
    m->link_use *= m->workers / c[0].steps_per_s;
    if (m->link_use > 0 && !isnan(f->server_link)) { /* the other direction is a delay */
        const mst_process_use *s = &f->servers[f->linked_server];
        m->link_delay = fmin(s->link_in, s->link_out) / c[0].steps_per_s;
    }
    m->local = m->in_flight > 1 ? MST_STEP_LOCAL_S : fmax(MST_STEP_LOCAL_S, c[1].wait_s - m->server_use);
    double near;
    m->base_workers = mst_step_model_steps(m, &near);
}

/* The parts of a step, whose time now is 1; without lockstep in seconds. */
static mst_step_model model_today(const mst_facts *f, const mst_verdict *v)
{
    double pipeline = mst_run_data_option_real(f->run, "pipeline");
    const double *s = v->shares;
    mst_facts_class c[2];
    mst_facts_classes(f, c);
    mst_step_model m = {
        .lockstep = f->lockstep || !f->ps,
        .workers = fmax(1, (double)f->n_workers),
        .near = c[1].n,
        .rows = 1,
        .in_flight = pipeline > 0 ? 1 + pipeline : 1,
        .input = s[MST_BOTTLENECK_INPUT],
        .disk = fmax(0, s[MST_BOTTLENECK_DISK] - f->typical[MST_COST_CHECKPOINT]),
        .own = mst_verdict_own(v),
        .straggle = s[MST_BOTTLENECK_STRAGGLERS],
        .trips = s[MST_BOTTLENECK_SYNCHRONISATION] + s[MST_BOTTLENECK_LATENCY],
        .server = s[MST_BOTTLENECK_SERVER_CPU],
        .server_link = s[MST_BOTTLENECK_SERVER_NETWORK],
        .worker_link = s[MST_BOTTLENECK_WORKER_NETWORK],
        .evaluation = s[MST_BOTTLENECK_EVALUATION],
        .saving = f->typical[MST_COST_CHECKPOINT],
    };
    m.training = fmax(0.01, 1 - m.evaluation - m.saving);
    m.base_workers = m.workers;
    m.n_cores = f->n_workers > 0 ? mst_or_zero(f->workers[0].cores) : 0;
    if (m.lockstep && f->ps)
        model_take_overlap(f, &m);
    double *parts[] = {&m.own,    &m.input,       &m.disk,        &m.straggle, &m.trips,
                       &m.server, &m.server_link, &m.worker_link, &m.overlap};
    double inside = -2 * m.overlap; /* which is in own work and in the waits */
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        inside += *parts[i];
    for (size_t i = 0; inside > 0 && i < sizeof parts / sizeof *parts; i++)
        *parts[i] /= inside;
    m.server_use = f->server_busy / m.workers;
    if (m.server_link >= m.worker_link) /* workers share the link; the other one is a worker's own */
        m.link_use = (isnan(f->server_link) ? (m.server_link > 0 ? 0.95 : 0) : f->server_link) / m.workers;
    if (m.lockstep)
        m.cores = fmin(1, f->shared_cores);
    else
        model_take_queues(f, &m);
    return m;
}

/* The part of the servers' work for a request that does not depend on its bytes. */
static double model_fixed(const mst_facts *f)
{
    double steps = f->step_s > 0 ? (double)f->n_workers / f->step_s : 0;
    mst_facts_class c[2];
    mst_facts_classes(f, c);
    steps = f->lockstep ? steps : c[0].steps_per_s + c[1].steps_per_s;
    return f->server_busy > 0 ? fmin(0.9, REQUEST_S * steps / f->server_busy) : 0;
}

/* The time of the servers' link relative to the present one, if pushes and answers have these parts of their
 * bytes. */
static double model_link(const mst_facts *f, double push, double answer)
{
    if (isnan(f->server_link) || !(f->server_link > 0))
        return (push + answer) / 2;
    const mst_process_use *s = &f->servers[f->linked_server];
    return (f->lockstep ? mst_facts_lockstep_link(f, s, push, answer)
                        : fmax(s->link_in * push, s->link_out * answer)) /
           f->server_link;
}

/* The directions of the servers' link, which takes `share` of a step in lockstep, overlap without it: the
 * busier one is a station, the other one a delay. */
static void model_divide_link(const mst_facts *f, double share, mst_step_model *m)
{
    double far = fmax(1, m->workers - m->near), in = 0.5, out = 0.5;
    if (!isnan(f->server_link) && f->server_link > 0) {
        const mst_process_use *s = &f->servers[f->linked_server];
        in = s->link_in / f->server_link;
        out = s->link_out / f->server_link;
    }
    m->link_use = share * fmax(in, out) / far;
    m->link_delay = share * fmin(in, out) / far;
}

/* Own work of a step of `more` times the rows over the present one. Sending has a fixed part for each
 * message, and grows with the bytes. */
static double model_own_growth(const mst_facts *f, double more, double bytes)
{
    double send = f->typical[MST_COST_PUSH], own = f->own - f->typical[MST_COST_READ];
    double fixed = fmin(send, f->step_s > 0 ? MST_STEP_MESSAGE_S / f->step_s : 0);
    return own > 0 ? ((own - send) * more + fixed + (send - fixed) * bytes) / own : more;
}

/* ---- changes ---- */

typedef enum needs { NEEDS_NOTHING, NEEDS_HARDWARE } needs;

/* The order of advice. */
static double model_rank_of(const mst_advice *a)
{
    return a->hardware ? a->gain / MST_VERDICT_HARDWARE : a->gain;
}

static void advise(mst_verdict *v, const mst_step_model *now, const mst_step_model *then, needs what,
                   const char *change, const char *format, ...) __attribute__((format(printf, 6, 7)));
static void advise(mst_verdict *v, const mst_step_model *now, const mst_step_model *then, needs what,
                   const char *change, const char *format, ...)
{
    va_list args;
    mst_advice new = {.gain = mst_step_model_rate(then) / mst_step_model_rate(now),
                      .hardware = what == NEEDS_HARDWARE};
    if (!(new.gain >= MST_VERDICT_WORTH) || !isfinite(new.gain))
        return;
    if (v->n_advice == MST_ADVICE_MAX && model_rank_of(&v->advice[MST_ADVICE_MAX - 1]) >= model_rank_of(&new))
        return;
    size_t at = v->n_advice < MST_ADVICE_MAX ? v->n_advice++ : MST_ADVICE_MAX - 1;
    for (; at > 0 && model_rank_of(&v->advice[at - 1]) < model_rank_of(&new); at--)
        v->advice[at] = v->advice[at - 1];
    mst_advice *a = &v->advice[at];
    *a = new;
    snprintf(a->change, sizeof a->change, "%s", change);
    va_start(args, format);
    vsnprintf(a->text, sizeof a->text, format, args);
    va_end(args);
}

/* The option for more processes: "--workers 4", or that of an MPI launcher. out holds 96 bytes. */
static void model_ask_for(const mst_facts *f, double servers, double workers, char *out)
{
    const char *l = f->launcher != NULL ? f->launcher : f->ranks ? "mpirun" : NULL;
    double ranks = workers + (f->ps ? servers : 0);
    if (l == NULL)
        snprintf(out, 96, "--workers %.0f", workers);
    else if (strncmp(l, "muster", 6) == 0)
        snprintf(out, 96, "%.32s --ranks %.0f", l, ranks);
    else
        snprintf(out, 96, "%.*s -n %.0f", (int)strcspn(l, " "), l, ranks);
}

void mst_advise_servers(const mst_facts *f, mst_verdict *v, const mst_step_model *now)
{
    char change[96], started[96] = "";
    mst_step_model m = *now;
    double servers = fmax(f->figures.n_servers, (double)f->n_servers);
    if (f->hosted || !(servers >= 1) || !(m.server + m.server_link + m.worker_link + m.server_use > 0))
        return;
    double work = (1 + model_fixed(f)) / 2;
    m.server *= work;
    m.server_use *= work;
    m.server_link *= model_link(f, 0.5, 0.5);
    m.link_use *= 0.5;
    m.link_delay *= 0.5;
    m.near = 0; /* no worker is beside both */
    if (f->launcher != NULL)
        model_ask_for(f, servers * 2, (double)f->n_workers, started);
    snprintf(change, sizeof change, "--servers %.0f%s%.60s", servers * 2, f->launcher != NULL ? " and " : "",
             started);
    advise(v, now, &m, NEEDS_HARDWARE, change,
           "Twice the servers, each with its own link and cores: each applies and sends half of the model.");
}

/* Whether the hosts of the workers have as many cores free as the workers use; true if not known. */
static bool model_cores_left(const mst_facts *f)
{
    double least = INFINITY, needed = 0;
    for (size_t i = 0; i < f->n_workers; i++) {
        const mst_process_use *w = &f->workers[i];
        double on_host = 0;
        if (w->process == NULL || isnan(w->host_busy * w->cores))
            continue;
        for (size_t k = 0; k < f->n_workers; k++)
            if (f->workers[k].process != NULL && strcmp(f->workers[k].process->host, w->process->host) == 0)
                on_host += fmax(0.5, f->workers[k].cpu); /* of NAN and a number: the number */
        double left = w->cores * (1 - w->host_busy) - on_host;
        if (left < least) {
            least = left;
            needed = on_host;
        }
    }
    return least >= -0.25 * needed;
}

void mst_advise_workers(const mst_facts *f, mst_verdict *v, const mst_step_model *now)
{
    char change[96], started[96];
    mst_step_model m = *now;
    if (!f->ps && !f->ranks)
        return;
    bool fixed = f->ranks && mst_run_data_option_real(f->run, "global-batch") > 0;
    m.workers *= 2;
    if (f->pipe != NULL && f->source_waits)
        m.input *= 2;
    if (fixed) {
        m.rows /= 2;
        m.own /= 2;
        m.input /= 2;
        m.disk /= 2;
        m.straggle /= 2;
    }
    if (m.lockstep && !f->ranks) {
        m.server *= 2;
        m.server_link *= m.workers > 2 * m.near ? (m.workers - m.near) / (m.workers / 2 - m.near) : 2;
    }
    m.cores *= 2;
    model_ask_for(f, fmax(f->figures.n_servers, (double)f->n_servers), 2 * (double)f->n_workers, started);
    snprintf(change, sizeof change, "%.60s%s", started,
             model_cores_left(f) ? "" : ", the new ones on other hosts");
    advise(v, now, &m, NEEDS_HARDWARE, change,
           fixed ? "Twice the ranks on cores of their own: each computes half as many rows."
           : f->ranks
               ? "Twice the ranks on cores of their own: twice the rows in a step."
               : "Twice the workers on cores of their own: twice the rows in a step, which servers and "
                 "their links have to carry.");
}

void mst_advise_batch(const mst_facts *f, mst_verdict *v, const mst_step_model *now)
{
    char change[96];
    mst_step_model m = *now;
    double more = 4, bytes = f->sparse ? pow(more, SPARSE_POWER) : 1, fixed = model_fixed(f);
    double work = fixed + (1 - fixed) * bytes, own = model_own_growth(f, more, bytes);
    if (!(f->figures.batch >= 1) || (mst_facts_alone(f) && f->figures.n_threads > mst_facts_room(f)) ||
        now->trips + now->server + now->server_link + now->worker_link + now->server_use < 0.02)
        return;
    m.rows *= more;
    m.own *= own;
    m.input *= more;
    m.disk *= more;
    m.straggle *= more;
    m.overlap *= more;
    if (f->shared_cores > 0) { /* own work takes longer, not the messages */
        double longer = (own - 1) * now->own / f->workers[0].cores;
        m.cores += m.cores > 0 ? longer * now->workers : 0;
        m.cores_use += longer;
    }
    m.server *= work;
    m.server_link *= bytes;
    m.worker_link *= bytes;
    m.server_use *= work;
    m.link_use *= bytes;
    m.link_delay *= bytes;
    double global = mst_run_data_option_real(f->run, "global-batch");
    snprintf(change, sizeof change, "--%s %.0f", global > 0 ? "global-batch" : "batch",
             (global > 0 ? global : f->figures.batch) * more);
    advise(
        v, now, &m, NEEDS_NOTHING, change,
        "Four times the rows in a step: the same round trips for four times the rows%s. Adjust the learning "
        "rate (--lr) with it.",
        f->sparse ? ", and keys that several rows share travel once"
                  : ", and the model travels a quarter as often");
}

void mst_advise_wire(const mst_facts *f, mst_verdict *v, const mst_step_model *now)
{
    mst_step_model m = *now;
    /* a push has the keys besides as many values as an answer */
    double pull = f->pull_bytes, push = f->push_bytes, values = fmin(pull, push), fixed = model_fixed(f);
    bool known = values > 0 && !f->ranks;
    double out = known ? 1 - values / push / 2 : 0.5, in = 0.5;
    double factor = known ? (out * push + in * pull) / (push + pull) : 0.5;
    if ((!f->ps && !f->ranks) || !mst_run_data_option_is(f->run, "wire", "fp32") ||
        !(now->server_link + now->worker_link > 0))
        return;
    m.server_link *= model_link(f, out, in);
    m.worker_link *= factor;
    m.link_use *= model_link(f, out, in);
    m.link_delay *= factor;
    m.server *= fixed + (1 - fixed) * factor;
    m.server_use *= fixed + (1 - fixed) * factor;
    if (m.cores > 0 && m.n_cores > 0)
        m.cores -= fmin(m.cores, (now->server - m.server) / m.n_cores);
    advise(v, now, &m, NEEDS_NOTHING, "--wire bf16",
           f->ranks ? "Half the bytes for each gradient; weights keep full precision."
                    : "Half the bytes for each weight and gradient; servers keep full precision.");
}

/* Whether workers close a step together. */
static bool model_in_sync(const mst_facts *f)
{
    return f->ps && !f->ranks && !f->given_allreduce && f->lockstep && strcmp(f->figures.mode, "sync") == 0 &&
           f->n_workers > 1;
}

void mst_advise_async(const mst_facts *f, mst_verdict *v, const mst_step_model *now)
{
    mst_step_model m = *now;
    if (!model_in_sync(f))
        return;
    m.lockstep = false;
    m.straggle = m.overlap = 0;
    /* workers that start a step together lack cores together; the stations have the remaining waits */
    if (f->shared_cores > 0 && mst_verdict_own(v) > 0)
        m.own *= 1 - v->core_wait_own / mst_verdict_own(v);
    m.trips = fmin(m.trips, isnan(f->latency) ? m.trips / 2 : f->latency); /* no barrier */
    m.server_use = now->server * (f->server_busy > 0 ? model_server_work(f) / f->server_busy : 1) / m.workers;
    model_divide_link(f, now->server_link, &m);
    m.local = f->step_s > 0 ? MST_STEP_LOCAL_S / f->step_s : 0;
    /* fewer wake-ups: the CPU time of own work and of the server remains */
    m.cores_use = f->shared_cores > 0 ? (m.own + m.server_use) / f->workers[0].cores : 0;
    /* the typical worker does not wait for the slowest: the sum of every worker's own speed */
    if (f->slowest_ratio > MST_VERDICT_SLOWER)
        m.rows *= (m.workers - 1 + 1 / f->slowest_ratio) / m.workers;
    advise(v, now, &m, NEEDS_NOTHING, "--mode async",
           "No worker waits for a step to close; gradients are somewhat stale.");
}

void mst_advise_quorum(const mst_facts *f, mst_verdict *v, const mst_step_model *now)
{
    char change[96];
    mst_step_model m = *now;
    if (!model_in_sync(f) || !(now->straggle > 0) || f->n_workers <= 2 || f->quorum < (double)f->n_workers)
        return;
    m.straggle = 0;
    m.rows *= (m.workers - 1) / m.workers;
    snprintf(change, sizeof change, "--quorum %.0f", m.workers - 1);
    advise(v, now, &m, NEEDS_NOTHING, change,
           "A step closes without its slowest worker, whose rows are dropped when late.");
}

void mst_advise_pipeline(const mst_facts *f, mst_verdict *v, const mst_step_model *now)
{
    mst_step_model m = *now;
    if (!f->ps || f->ranks || f->lockstep || !(mst_run_data_option_real(f->run, "pipeline") < 1))
        return;
    m.in_flight = 3;
    advise(v, now, &m, NEEDS_NOTHING, "--pipeline 2",
           "Requests in flight while the worker computes hide the round trips.");
}

/* Workers on the host of the first. */
static double model_beside(const mst_facts *f)
{
    const mst_process_data *first = f->n_workers > 0 ? f->workers[0].process : NULL;
    double n = 0;
    for (size_t i = 0; first != NULL && i < f->n_workers; i++)
        n += f->workers[i].process != NULL && strcmp(f->workers[i].process->host, first->host) == 0;
    return fmax(n, 1);
}

/* ---- cores ---- */

/* The first worker's CPU quota; NAN: none. */
static double model_limit_of(const mst_facts *f)
{
    return f->n_workers > 0 && f->workers[0].process != NULL ? f->workers[0].process->cpu_limit : NAN;
}

/* Whether all known workers are on the host of the guest. */
static bool model_all_beside(const mst_facts *f, const mst_process_use *guest)
{
    for (size_t i = 0; i < f->n_workers; i++)
        if (f->workers[i].process == NULL || guest->process == NULL ||
            strcmp(f->workers[i].process->host, guest->process->host) != 0)
            return false;
    return true;
}

/* The CPU demand on the first worker's host after a change over the present one: barrier waits of threads
 * scale with it. Each training thread counts as one. */
static double model_crowd(const mst_facts *f, double others, double parsing)
{
    const mst_process_use *w = &f->workers[0];
    double got = w->delay > 0 ? w->cpu / (w->cpu + w->delay) : 1;
    double threads = fmax(1, w->thread_seconds / w->seconds), parses = w->parsing > 0 ? w->parsing / got : 0;
    return (threads + parsing * parses + others) / (threads + parses + f->others);
}

/* Own work as a share of the time of a step if the first worker's process, and similar ones on its host, have
 * the cores of the host except `others`, and parsing takes `parsing` times its present CPU time: the longer
 * of all CPU time over these cores and the CPU time of the training threads. Barrier waits of threads that
 * outnumber their cores remain, scaled by the CPU demand. At most the present share; the present share if not
 * known. */
static double model_own_on(const mst_facts *f, const mst_verdict *v, double others, double parsing)
{
    const mst_process_use *w = &f->workers[0];
    double now = mst_verdict_own(v), threads = fmax(1, w->thread_seconds / w->seconds);
    double each =
        fmin((w->cores - others) / model_beside(f), model_limit_of(f)); /* of NAN and a number: the number */
    if (isnan(f->parsing) || !(w->ran > 0) || !(each > 0) || !(now > 0))
        return now;
    double all = w->ran + parsing * w->parsing, turns = 0;
    if (f->crowded && mst_facts_alone(f) && threads >= each + 0.5)
        turns = fmin(f->wait, now) * model_crowd(f, others, parsing);
    return fmin(now, fmax(w->ran / threads + turns, all / each));
}

static void model_set_own(const mst_verdict *v, mst_step_model *m, double share)
{
    if (mst_verdict_own(v) > 0)
        m->own *= share / mst_verdict_own(v);
}

void mst_advise_cache(const mst_facts *f, mst_verdict *v, const mst_step_model *now)
{
    mst_step_model m = *now;
    if (!f->parses || f->pipe != NULL || f->n_workers == 0)
        return;
    m.input *= CACHED;
    /* the cores of parsing become free for training */
    double threads = f->workers[0].thread_seconds / f->workers[0].seconds;
    if (f->cores_full || model_beside(f) * threads + f->others <= f->workers[0].cores) {
        model_set_own(v, &m, model_own_on(f, v, f->others, 0));
        m.trips *= mst_facts_alone(f) ? model_crowd(f, f->others, 0) : 1;
    }
    advise(v, now, &m, NEEDS_NOTHING, "--cache",
           "The data is parsed once into a binary cache and mapped from then on%s.",
           f->cores_full && f->parsing >= MST_VERDICT_OTHERS
               ? ", and the cores that parsing takes are free to train"
               : "");
}

void mst_advise_others(const mst_facts *f, mst_verdict *v, const mst_step_model *now)
{
    mst_step_model m = *now;
    if (!mst_facts_has_guests(f) || !model_all_beside(f, f->guest))
        return;
    model_set_own(v, &m, model_own_on(f, v, 0, 1));
    const mst_process_use *w = &f->workers[0];
    double got = w->delay > 0 && w->cpu > 0 ? w->cpu / (w->cpu + w->delay) : 1;
    if (!f->source_waits && m.input > 0) /* the part of the waits in which the process was ready to run */
        m.input *= 1 - (1 - got) * fmin(1, mst_or_zero(w->delay) / f->typical[MST_COST_READ]);
    m.evaluation *= got;
    advise(v, now, &m, NEEDS_NOTHING, "stopping other programs on this host",
           "They use %.1f of its %.0f cores: stop them, or train on another host.", f->others,
           f->guest->cores);
}

/* ---- rarer evaluations and saves ---- */

/* MST_VERDICT_RARER times the interval of an option, such as "2000rows" for "500 rows"; else by the steps
 * between those that were. False: neither is known. out holds 48 bytes. */
static bool model_rarer(const mst_facts *f, const char *option, const mst_events *events, char *out)
{
    static const char *const units[][2] = {{"steps", "steps"}, {"step", "steps"},    {"rows", "rows"},
                                           {"row", "rows"},    {"epochs", "epochs"}, {"epoch", "epochs"},
                                           {"seconds", "s"},   {"s", "s"},           {"", "steps"}};
    char *text = mst_run_data_option(f->run, option), *end;
    const char *unit = NULL;
    double value = 0;
    size_t n = text != NULL ? strlen(text) : 0;
    for (size_t i = 0; unit == NULL && n > 0 && i < sizeof units / sizeof *units; i++) {
        size_t k = strlen(units[i][0]);
        if (k >= n || strcmp(text + n - k, units[i][0]) != 0)
            continue;
        unit = units[i][1];
        text[n - k] = '\0';
        text[strcspn(text, " \t")] = '\0';
        int64_t whole;
        if (mst_parse_int(text, &whole))
            value = (double)whole;
        else if ((value = strtod(text, &end), *end != '\0'))
            value = 0;
    }
    mst_free(text);
    if (!(value > 0) && events->spacing >= 1) {
        value = round(events->spacing);
        unit = "steps";
    }
    snprintf(out, 48, "%.12g%s", value * MST_VERDICT_RARER, unit != NULL ? unit : "");
    return value > 0 && isfinite(value);
}

/* The remaining part of them at MST_VERDICT_RARER times the interval; the one at the end stays. 1: no change.
 */
static double model_stays(const mst_facts *f, const char *option, const mst_events *events)
{
    if (mst_run_data_option_is(f->run, option, "never"))
        return 1;
    if (!events->known)
        return 1.0 / MST_VERDICT_RARER;
    if (events->during < MST_VERDICT_SEVERAL)
        return 1;
    return (events->all - events->during + floor(events->during / MST_VERDICT_RARER)) / events->all;
}

/* Advice to multiply the interval of an option by MST_VERDICT_RARER. */
static void advise_rarer(const mst_facts *f, mst_verdict *v, const mst_step_model *now,
                         const mst_step_model *then, const char *option, const mst_events *events,
                         const char *text)
{
    char change[96], value[48];
    if (!model_rarer(f, option, events, value))
        return;
    snprintf(change, sizeof change, "--%s %s", option, value);
    advise(v, now, then, NEEDS_NOTHING, change, "%s", text);
}

void mst_advise_evaluations(const mst_facts *f, mst_verdict *v, const mst_step_model *now)
{
    mst_step_model m = *now;
    m.evaluation *= model_stays(f, "eval-every", &f->evaluations);
    advise_rarer(f, v, now, &m, "eval-every", &f->evaluations,
                 "Evaluate a quarter as often, or on fewer rows (--eval-rows): rows per second, evaluations "
                 "and saving included.");
}

void mst_advise_saves(const mst_facts *f, mst_verdict *v, const mst_step_model *now)
{
    mst_step_model m = *now;
    m.saving *= model_stays(f, "checkpoint-every", &f->saves);
    advise_rarer(f, v, now, &m, "checkpoint-every", &f->saves,
                 "Save a quarter as often: rows per second, evaluations and saving included.");
}

/* ---- the rest ---- */

double mst_facts_room(const mst_facts *f)
{
    return f->n_workers == 0 ? NAN
                             : floor(fmin(f->workers[0].cores / model_beside(f), model_limit_of(f)) + 0.25);
}

/* Cores that n threads of the first worker's process get, if other programs keep as many threads runnable as
 * they use cores now and the system divides the cores evenly between threads. */
static double model_fair_cores(const mst_facts *f, double n)
{
    double cores = f->workers[0].cores / model_beside(f), all = n + f->others / model_beside(f);
    return fmin(n, model_limit_of(f)) * fmin(1, cores / all); /* of NAN and a number: the number */
}

void mst_advise_threads(const mst_facts *f, mst_verdict *v, const mst_step_model *now)
{
    char change[96], assumed[200] = "";
    mst_step_model m = *now;
    if (f->n_workers == 0 || f->ps)
        return;
    double threads = f->figures.n_threads, room = mst_facts_room(f),
           most = fmin(room, f->figures.threads_most); /* of NAN and a number: the number */
    const char *shared = model_beside(f) > 1 ? ", which the ranks there share" : "";
    if (isnan(room))
        return;
    if (most >= threads + 1 && threads >= 1) {
        double slower = model_fair_cores(f, threads) / model_fair_cores(f, most);
        m.own *= slower;
        m.input *= f->pipe != NULL && f->source_waits ? 1 : slower;
        if (mst_facts_has_guests(f))
            snprintf(
                assumed, sizeof assumed,
                " The prediction assumes that other programs keep %.1f cores busy, and that they and the "
                "threads share the cores evenly; if they stop, more is gained.",
                f->others);
        snprintf(change, sizeof change, "--threads %.0f", most);
        advise(v, now, &m, NEEDS_NOTHING, change, "One thread for each core of the host%s.%s", shared,
               assumed);
    } else if (most >= 1 && threads >= most + 1) {
        /* at most: threads run whenever they are in their own work, and wait for a core at barriers */
        double own = fmin((f->own - f->typical[MST_COST_READ]) * threads, mst_or_zero(f->workers[0].cpu));
        if (own > 0)
            model_set_own(v, &m, own / model_fair_cores(f, most));
        m.trips *= most > 1 ? most / threads : 0;
        snprintf(change, sizeof change, "--threads %.0f", most);
        if (most < room)
            advise(v, now, &m, NEEDS_NOTHING, change,
                   "With this model and batches of %.0f row%s, more synchronous threads are slower.",
                   f->figures.batch, f->figures.batch > 1 ? "s" : "");
        else
            advise(v, now, &m, NEEDS_NOTHING, change,
                   "One thread for each core of the host%s: threads without a core let the others wait.",
                   shared);
    } else if (!f->ranks && f->pipe == NULL && threads >= room && v->kind == MST_BOTTLENECK_COMPUTE) {
        m.own /= 2;
        advise(
            v, now, &m, NEEDS_HARDWARE, "muster launch --hosts FILE --servers 1 --workers 2",
            "All cores of the host compute: a worker on a second host would share the work. FILE names the "
            "hosts, and this train command stands behind --.");
    }
}

void mst_advise_disk(const mst_facts *f, mst_verdict *v, const mst_step_model *now)
{
    mst_step_model m = *now;
    (void)f;
    if (now->disk <= 0.05)
        return;
    m.disk = 0;
    advise(v, now, &m, NEEDS_NOTHING, "--cache-folder",
           "Put the data, or its cache, on a faster disk or into memory (/dev/shm).");
}

void mst_verdict_advise(const mst_facts *f, mst_verdict *v)
{
    mst_step_model now = model_today(f, v);
    v->n_advice = 0;
    for (int k = 0; k < MST_BOTTLENECKS; k++) {
        const mst_cause *cause = mst_cause_of((mst_bottleneck)k);
        for (size_t i = 0; i < sizeof cause->advice / sizeof *cause->advice && cause->advice[i] != NULL; i++)
            cause->advice[i](f, v, &now);
    }
}
