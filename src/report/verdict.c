/* clang-format off */
/* The rules of the verdict (verdict.h), on the facts of verdict_facts.c, with verdict_thresholds.h.
 *
 * The time of the typical worker (the mean of those whose own work per step is at most MST_VERDICT_STRAGGLES
 * times the median's) is divided into the shares of the causes:
 *
 *  1. evaluation: evaluate_s, or eval_seconds over all wall time of the run if that is more. The other
 *     workers wait during an evaluation, so the difference is subtracted from idle time first, then from
 *     waits.
 *  2. disk: checkpoint_s; and, with signs of disk waits, the part of the own phases (read, prepare, compute,
 *     push, apply) in which the process was neither running nor runnable, subtracted from read_s first.
 *     Signs:
 *     - MST_VERDICT_IOWAIT cores of the host wait for disks; or
 *     - MST_VERDICT_FAULTS major faults/s; or
 *     - MST_VERDICT_READ_RATE bytes/s read from disks (if the system does not report runnable time: while at
 *       least MST_VERDICT_CPU_FREE of the host's CPU is free).
 *  3. input: the rest of read_s. One of the threads of a synchronous local run takes the rows of a step: the
 *     barrier waits of the others, at most its read_s each, belong to read_s.
 *  4. cores: the part of the rest of the other own phases in which the process was runnable but not running;
 *     compute: the remainder.
 *  5. Waits (pull_wait_s + barrier_wait_s) are divided among
 *     a. stragglers.
 *        - In lockstep (sync, ssp): the time of a step by which the slowest worker's own work exceeds the
 *          median's, from MST_VERDICT_SLOWER times on; or, if that is more, the time for which the
 *          coordinator held steps open for one worker alone, beyond any other's, from MST_VERDICT_HELD on,
 *          unless its link is the reason: used MST_VERDICT_DOMINATES, or MST_VERDICT_SLOW_LINK if half of the
 *          links have twice its capacity. Then the time, less that of its longer round trip, belongs to the
 *          link. With a quorum, the slowest is the last one of the quorum. If the slowest exceeds the median
 *          MST_VERDICT_SLOWER times and uses all of its CPU quota, MST_VERDICT_FULL, and at most half of the
 *          workers do, all waits are for it: its messages and sums are late, too.
 *        - Without lockstep: idle time, if one worker idles MST_VERDICT_IDLE_GAP of the time more than
 *          another.
 *     b. server-cpu, server-network, worker-network, by use: the busy share of the busiest server (apply_s +
 *        serve_s over its threads, or its CPU over what its threads, cores and CPU quota allow), and the use
 *        of the busiest link relative to its capacity (in lockstep both directions as they overlap, see
 *        mst_step_link; else the greater of them); and latency, by the round trips of a step relative to its
 *        time.
 *        - In lockstep the use of a resource is its share of the step. Their sum may exceed the waits, because
 *          a worker prepares rows meanwhile: round trips, which nothing shortens, keep theirs, and the others
 *          are scaled to the rest.
 *        - Without lockstep, workers queue at servers and links: each gets the time that a worker spends
 *          there by the model of a step (step_model.h), at most its waits. Workers beside the server have
 *          neither link nor round trips.
 *        - The links of servers and workers carry the same bytes, so the more used one counts: a worker's if
 *          it is used MST_VERDICT_ENDS times as much as any server's. The link of a host with both is a
 *          server's.
 *     c. cores: the rest, if several processes or threads of the run are on a host whose cores are saturated
 *        (MST_VERDICT_CROWDED busy); at most the time in which processes of the run waited for a core, without
 *        lockstep the longest of the workers and of the servers.
 *     d. Otherwise the network, if neither capacities nor round trips are known, workers and servers (or
 *        ranks, which are workers without servers) are on different hosts and a step moves
 *        MST_VERDICT_STEP_BYTES or more: at a worker that waits MST_VERDICT_WAITS_LONGER times as long per
 *        step as the median (without lockstep), or if there are no servers; else at the servers.
 *     e. Otherwise synchronisation: waiting for others, and round trips where they are not known.
 *
 * The greatest share (compute and cores together count as one, compute) is the bottleneck if it is at least
 * MST_VERDICT_DOMINATES and MST_VERDICT_LEADS times the second, or if a server or a link is used
 * MST_VERDICT_SATURATED of the time or more and workers wait at least MST_VERDICT_SATURATED_WAIT of it; else
 * there is none.
 *
 * Without spans.csv the manifest has the times in which workers computed, read and waited, but not the cause
 * of waits: waits then have no share, and if they are the greatest part the bottleneck is unknown.
 *
 * Invariants
 * 1. Shares are between 0 and 1, and their sum is at most 1.
 * 2. A missing column affects only the shares that depend on it. */
/* clang-format on */
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

/* ---- rules 1 to 4: a worker's own time ---- */

/* The part of evaluations beyond the typical worker's own comes off idle time, then off waits. */
static double verdict_take_evaluation(const mst_facts *f, mst_verdict *v, double *idle)
{
    double extra = fmax(0, f->eval_share - f->typical[MST_COST_EVALUATE]), wait = f->wait;
    v->shares[MST_BOTTLENECK_EVALUATION] = fmin(1, f->typical[MST_COST_EVALUATE] + extra);
    double from_idle = fmin(extra, *idle);
    *idle -= from_idle;
    return fmax(0, wait - (extra - from_idle));
}

static bool process_waits_for_disk(const mst_process_use *w)
{
    return w->iowait >= MST_VERDICT_IOWAIT || w->fault_rate >= MST_VERDICT_FAULTS ||
           (w->read_rate >= MST_VERDICT_READ_RATE &&
            (1 - w->host_busy >= MST_VERDICT_CPU_FREE || w->delay >= 0));
}

/* The share of the workers' thread time in which they were runnable in their own work without running; 0 if
 * not known. */
static double verdict_ready_share(const mst_facts *f)
{
    double sum = 0;
    for (size_t i = 0; i < f->n_workers; i++) {
        const mst_process_use *w = &f->workers[i];
        double own = w->share[MST_COST_PREPARE] + w->share[MST_COST_COMPUTE] + w->share[MST_COST_PUSH] +
                     w->share[MST_COST_APPLY];
        double each = w->thread_seconds > 0 ? w->seconds / w->thread_seconds : 0;
        if (w->delay > 0 && w->cpu >= 0)
            sum += fmin(w->delay * each, fmax(0, own - w->ran * each));
    }
    return f->n_workers > 0 ? sum / (double)f->n_workers : 0;
}

static void verdict_take_own(const mst_facts *f, mst_verdict *v)
{
    double off = 0, read = f->typical[MST_COST_READ], rest = f->own - read;
    size_t n = 0;
    for (size_t i = 0; i < f->n_workers; i++) {
        const mst_process_use *w = &f->workers[i];
        if (!process_waits_for_disk(w) || isnan(w->cpu))
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
    v->core_wait_own = fmin(rest - of_rest, verdict_ready_share(f));
    v->shares[MST_BOTTLENECK_CORES] = v->core_wait_own;
    v->shares[MST_BOTTLENECK_COMPUTE] = rest - of_rest - v->core_wait_own;
}

/* ---- rule 5: waits ---- */

/* Returns the remaining waits. */
static double verdict_take_stragglers(const mst_facts *f, mst_verdict *v, double wait, double idle)
{
    double share = 0;
    if (f->n_workers < 2)
        return wait;
    if (f->lockstep && (f->slowest_ratio >= MST_VERDICT_SLOWER || mst_facts_is_held(f))) {
        double slowest = f->workers[f->slowest].own_s;
        share =
            f->slowest_ratio >= MST_VERDICT_SLOWER ? (slowest - slowest / f->slowest_ratio) / f->step_s : 0;
        share = mst_facts_is_starved(f) ? wait : share;
        share = fmin(wait, mst_facts_is_held(f) ? fmax(share, f->held) : share);
        wait -= share;
    } else if (!f->lockstep) {
        double least = 1, most = 0;
        for (size_t i = 0; i < f->n_workers; i++) {
            least = fmin(least, f->workers[i].share[MST_COST_IDLE]);
            most = fmax(most, f->workers[i].share[MST_COST_IDLE]);
        }
        share = most - least >= MST_VERDICT_IDLE_GAP ? idle : 0;
    }
    v->shares[MST_BOTTLENECK_STRAGGLERS] = share;
    return wait;
}

/* The worker with much longer waits per step than the others; n_workers: none. */
static size_t verdict_find_far_worker(const mst_facts *f)
{
    size_t far = 0, shorter = 0;
    for (size_t i = 1; i < f->n_workers; i++)
        if (f->workers[i].wait_s > f->workers[far].wait_s)
            far = i;
    for (size_t i = 0; i < f->n_workers; i++)
        shorter += f->workers[i].wait_s * MST_VERDICT_WAITS_LONGER <= f->workers[far].wait_s;
    return !f->lockstep && f->n_workers > 1 && shorter * 2 >= f->n_workers ? far : f->n_workers;
}

/* Divides waits without lockstep: the times at servers and link of workers that queue there, by the model of
 * a step with the measured demands. A worker visits the link both ways. */
static void verdict_queue(const mst_facts *f, double wait, double use, double *server, double *link,
                          double *trips)
{
    const mst_process_use *busiest = f->link_at_worker  ? &f->workers[f->linked_worker]
                                     : f->n_servers > 0 ? &f->servers[f->linked_server]
                                                        : NULL;
    double pipeline = mst_run_data_option_real(f->run, "pipeline"), parts[3] = {0}, sum = 0;
    double both = busiest != NULL && use > 0 ? (busiest->link_in + busiest->link_out) / use : 1;
    mst_facts_class c[2];
    mst_queue_class q[2] = {{0}};
    mst_facts_classes(f, c);
    double steps = c[0].steps_per_s + c[1].steps_per_s, in_flight = pipeline > 0 ? 1 + pipeline : 1;
    /* the busiest link of a worker carries the steps of that worker */
    double linked = f->link_at_worker ? c[0].steps_per_s / fmax(1, c[0].n) : c[0].steps_per_s;
    for (size_t k = 0; k < 2; k++)
        q[k] = (mst_queue_class){
            .customers = c[k].n * in_flight,
            .think = c[k].own_s * in_flight,
            .delay = c[k].trip_s,
            .demand = {steps > 0 ? *server / steps : 0, k == 0 && linked > 0 ? use / linked : 0}};
    mst_queue_solve(q, 2, 1);
    for (size_t k = 0; k < 2; k++) {
        double at[] = {q[k].residence[0], q[k].residence[1] * both, c[k].trip_s / in_flight};
        double all = at[0] + at[1] + at[2], scale = all > c[k].wait_s ? c[k].wait_s / all : 1;
        for (size_t i = 0; i < 3 && c[k].n > 0; i++)
            parts[i] += scale * at[i] / c[k].step_s * c[k].n / (c[0].n + c[1].n);
    }
    for (size_t i = 0; i < 3; i++)
        sum += parts[i];
    double scale = sum > wait ? wait / sum : 1;
    *server = scale * parts[0];
    *link = scale * parts[1];
    *trips = scale * parts[2];
}

/* The share of a step by which the round trip of the worker that steps are held open for exceeds any other's.
 */
static double verdict_longer_trip(const mst_facts *f)
{
    double other = 0;
    for (size_t i = 0; i < f->n_workers; i++)
        if (i != f->held_worker)
            other = fmax(other, f->workers[i].trip_s);
    return fmax(0, mst_or_zero(f->workers[f->held_worker].trip_s) - other) / f->step_s;
}

static void verdict_take_waits(const mst_facts *f, mst_verdict *v, double wait, mst_places *at)
{
    double server = f->server_busy, link = 0, trips = mst_or_zero(f->latency);
    bool known = !isnan(f->server_link) || !isnan(f->worker_link);
    mst_bottleneck where = f->n_servers > 0 ? MST_BOTTLENECK_SERVER_NETWORK : MST_BOTTLENECK_WORKER_NETWORK;
    if (known) {
        where = f->link_at_worker ? MST_BOTTLENECK_WORKER_NETWORK : MST_BOTTLENECK_SERVER_NETWORK;
        link = f->link_at_worker ? f->worker_link : f->server_link;
        if (f->lockstep && f->link_at_worker && f->slow_link && f->linked_worker == f->held_worker &&
            f->held >= MST_VERDICT_HELD && f->worker_link >= MST_VERDICT_SLOW_LINK)
            link = fmax(link, f->held - verdict_longer_trip(f));
        at->of[where] = f->link_at_worker ? &f->workers[f->linked_worker] : &f->servers[f->linked_server];
    }
    if (f->lockstep) {
        trips = fmin(trips, wait);
        double scale = server + link > wait - trips ? (wait - trips) / (server + link) : 1;
        server *= scale;
        link *= scale;
    } else {
        verdict_queue(f, wait, link, &server, &link, &trips);
    }
    double rest = fmax(0, wait - server - link - trips);
    v->shares[MST_BOTTLENECK_SERVER_CPU] = server;
    v->shares[MST_BOTTLENECK_LATENCY] = trips;
    v->shares[where] += link;
    if (f->crowded) { /* unexplained waits are waits for a core, as far as there were any */
        double cores = fmin(rest, f->core_waits);
        v->shares[MST_BOTTLENECK_CORES] += cores;
        v->shares[MST_BOTTLENECK_SYNCHRONISATION] = rest - cores;
        return;
    }
    bool processes = f->n_servers > 0 || f->n_workers > 1 || f->ps;
    if (!known && isnan(f->latency) && processes && f->apart &&
        mst_facts_bytes(f) >= MST_VERDICT_STEP_BYTES) {
        size_t far = verdict_find_far_worker(f);
        if (far < f->n_workers) {
            where = MST_BOTTLENECK_WORKER_NETWORK;
            at->of[where] = &f->workers[far];
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
static double verdict_weight(const mst_verdict *v, int kind)
{
    return kind == MST_BOTTLENECK_COMPUTE ? mst_verdict_own(v)
           : kind == MST_BOTTLENECK_CORES ? 0
                                          : v->shares[kind];
}

static mst_bottleneck verdict_choose(const mst_facts *f, const mst_verdict *v)
{
    mst_bottleneck first = MST_BOTTLENECK_COMPUTE;
    double second = 0;
    for (int k = 1; k < MST_BOTTLENECKS; k++)
        if (verdict_weight(v, k) > verdict_weight(v, (int)first))
            first = (mst_bottleneck)k;
    for (int k = 0; k < MST_BOTTLENECKS; k++)
        if (k != (int)first)
            second = fmax(second, verdict_weight(v, k));
    if (verdict_weight(v, (int)first) >= MST_VERDICT_DOMINATES &&
        verdict_weight(v, (int)first) >= MST_VERDICT_LEADS * second)
        return first;
    if (f->wait >= MST_VERDICT_SATURATED_WAIT) {
        if (f->server_busy >= MST_VERDICT_SATURATED &&
            !(fmax(f->server_link, f->worker_link) > f->server_busy))
            return MST_BOTTLENECK_SERVER_CPU;
        if (f->server_link >= MST_VERDICT_SATURATED && !f->link_at_worker)
            return MST_BOTTLENECK_SERVER_NETWORK;
        if (f->worker_link >= MST_VERDICT_SATURATED)
            return MST_BOTTLENECK_WORKER_NETWORK;
    }
    return MST_BOTTLENECK_NONE;
}

/* Rounding and overlapping files may give a sum above 1. Evaluation keeps its part of the wall time; the rest
 * is divided among the others. */
static void verdict_normalise(mst_verdict *v)
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

/* Whether the waits, whose cause is unknown, exceed every share. */
static bool verdict_waits_most(const mst_verdict *v, double wait)
{
    for (int k = 0; k < MST_BOTTLENECKS; k++)
        if (v->shares[k] >= wait)
            return false;
    return wait > 0;
}

mst_status mst_verdict_of(const mst_run_data *run, mst_verdict *out)
{
    mst_facts f;
    mst_places at = {0};
    *out = (mst_verdict){.kind = MST_BOTTLENECK_NONE};
    TRY(mst_facts_of(run, &f));
    double idle = f.typical[MST_COST_IDLE];
    double wait = verdict_take_evaluation(&f, out, &idle);
    if (f.n_workers == 0) {
        out->known = out->shares[MST_BOTTLENECK_EVALUATION] >= MST_VERDICT_DOMINATES;
        verdict_normalise(out);
        bool early = strcmp(f.figures.state, "running") == 0;
        snprintf(
            out->sentence, sizeof out->sentence, "%s",
            early ? "It is too early to determine the bottleneck: the run's files show no trained rows yet."
                  : "The bottleneck cannot be determined: the run has no spans.csv with trained rows.");
        if (out->known) {
            out->kind = MST_BOTTLENECK_EVALUATION;
            mst_cause_of(out->kind)->sentence(&f, out);
        }
        mst_facts_fini(&f);
        return MST_OK;
    }
    out->known = true;
    verdict_take_own(&f, out);
    if (f.spans) {
        wait = verdict_take_stragglers(&f, out, wait, idle);
        verdict_take_waits(&f, out, wait, &at);
    }
    verdict_normalise(out);
    if (!f.spans && verdict_waits_most(out, wait)) {
        char number[40];
        snprintf(
            out->sentence, sizeof out->sentence,
            "The bottleneck cannot be determined: %ss wait %s of their time, and the run has no spans.csv "
            "that records the reason.",
            mst_facts_noun(&f), mst_figure_percent(wait, number));
        out->known = false;
        mst_facts_fini(&f);
        return MST_OK;
    }
    at.of[MST_BOTTLENECK_SERVER_CPU] = f.n_servers > 0 ? &f.servers[f.busiest_server] : NULL;
    at.of[MST_BOTTLENECK_LATENCY] = !isnan(f.trip_s) ? &f.workers[f.far_worker] : NULL;
    at.of[MST_BOTTLENECK_STRAGGLERS] = &f.workers[mst_facts_is_held(&f) ? f.held_worker : f.slowest];
    if (at.of[MST_BOTTLENECK_SERVER_NETWORK] == NULL && f.n_servers > 0)
        at.of[MST_BOTTLENECK_SERVER_NETWORK] = &f.servers[0];
    bool long_enough = f.trained_s >= MST_VERDICT_SHORT_S;
    out->kind = long_enough ? verdict_choose(&f, out) : MST_BOTTLENECK_NONE;
    mst_verdict_explain(&f, &at, out);
    if (long_enough) {
        mst_verdict_advise(&f, out);
    } else {
        char trained[MST_FIGURE_SIZE];
        snprintf(out->sentence, sizeof out->sentence,
                 "The run is too short to determine the bottleneck: it trained for %s, and a verdict needs "
                 "%d s.",
                 mst_figure_seconds(f.trained_s, trained), MST_VERDICT_SHORT_S);
        out->known = false;
    }
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
