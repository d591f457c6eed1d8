/* Time limits; contract in coordinator_deadlines.h. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "ps/coordinator_impl.h"

#define EVALUATIONS 10  /* an evaluation may take so many times as long as the longest before it */
#define HURRY       0.3 /* shares of the time after a stop request: the others continue without workers that */
#define LAST        0.6 /* have not finished; the job ends without its last checkpoint */

static void deadlines_drop(mst_server *s, uint32_t worker, const char *what, uint64_t limit_ns)
{
    char why[160];
    snprintf(why, sizeof why, "it has not %s within %.1f s", what, 1e-9 * (double)limit_ns);
    mst_server_refuse_worker(s, worker, why);
}

/* Workers that are connected and do not join. */
static void deadlines_check_joins(mst_server *s, uint64_t now)
{
    uint64_t limit = s->options.stall_timeout_ms * MST_MS;
    for (uint32_t w = 0; w < s->options.n_workers && !s->over; w++)
        if (s->workers[w].peer != MST_PEER_NONE && !s->co->members[w].joined &&
            now - s->workers[w].up_ns > limit)
            deadlines_drop(s, w, "joined", limit);
}

void mst_deadlines_chief_begins(mst_server *s)
{
    s->co->deadlines.chief_ns = mst_now_ns();
}

void mst_deadlines_chief_evaluated(mst_server *s)
{
    mst_job_deadlines *d = &s->co->deadlines;
    uint64_t took = mst_now_ns() - d->chief_ns;
    d->longest_ns = took > d->longest_ns ? took : d->longest_ns;
}

/* The chief opens its sets, or evaluates. */
static void deadlines_check_chief(mst_server *s, uint64_t now)
{
    const mst_coordinator *co = s->co;
    uint64_t stall = s->options.stall_timeout_ms * MST_MS, limit = EVALUATIONS * stall;
    bool opens = co->start.evaluates && co->cuts.n_listed < s->options.n_servers;
    if (co->cuts.chief == UINT32_MAX || (!opens && !co->cuts.evaluating))
        return;
    if (!opens && co->deadlines.longest_ns > 0) {
        limit = EVALUATIONS * co->deadlines.longest_ns;
        limit = limit < stall ? stall : limit;
    }
    if (now - co->deadlines.chief_ns > limit)
        deadlines_drop(s, co->cuts.chief, opens ? "opened the sets to evaluate on" : "evaluated", limit);
}

/* Workers that have no more work and do not report their end. */
static void deadlines_check_ends(mst_server *s, uint64_t now)
{
    mst_coordinator *co = s->co;
    uint64_t limit = s->options.stall_timeout_ms * MST_MS, since = co->deadlines.end_ns;
    if (co->phase != MST_JOB_STOP)
        return;
    if (since == 0)
        since = co->deadlines.end_ns = now;
    since = since > co->pace.closed_ns ? since : co->pace.closed_ns;
    for (uint32_t w = 0; w < s->options.n_workers && !s->over && now - since > limit; w++)
        if (mst_alive(s, w) && !co->members[w].done)
            deadlines_drop(s, w, "reported its end", limit);
}

/* After a stop request nothing that a peer does or does not do delays the end. */
static void deadlines_check_stop(mst_server *s, uint64_t now)
{
    mst_coordinator *co = s->co;
    mst_job_deadlines *d = &co->deadlines;
    uint64_t grace = s->options.stop_grace_ms * MST_MS, hurry = (uint64_t)(HURRY * (double)grace);
    co->outcome.stopped |= s->options.stop != NULL && atomic_load(s->options.stop);
    if (!co->outcome.stopped)
        return;
    if (d->stop_ns == 0)
        d->stop_ns = now;
    if (now - d->stop_ns > hurry && !d->hurried) {
        d->hurried = true;
        if (co->phase == MST_JOB_FINAL && (co->cuts.evaluating || co->cuts.eval_due))
            mst_warn("the last evaluation is left out: the worker that evaluates has not finished it");
        mst_cuts_abandon_evaluation(s);
        for (uint32_t w = 0; w < s->options.n_workers && !s->over; w++)
            if (mst_alive(s, w) && !co->members[w].done)
                deadlines_drop(s, w, "finished its requests", hurry);
    }
    if (!s->over && now - d->stop_ns > (uint64_t)(LAST * (double)grace))
        mst_server_fail(s, mst_fail_lead(MST_ESTOPPED, "stopped",
                                         "; the last checkpoint was not complete within %.1f s",
                                         LAST * 1e-9 * (double)grace));
}

void mst_deadlines_check(mst_server *s)
{
    uint64_t now = mst_now_ns();
    deadlines_check_stop(s, now);
    if (!s->over)
        deadlines_check_joins(s, now);
    if (!s->over)
        deadlines_check_chief(s, now);
    if (!s->over)
        deadlines_check_ends(s, now);
}
