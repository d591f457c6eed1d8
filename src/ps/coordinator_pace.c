/* Counts of pushes, the quorum, and workers that are ahead or stalled; contract in coordinator_pace.h. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "ps/coordinator_impl.h"

/* ---- counting ---- */

static void pace_count_push(mst_server *s, const mst_store_request *r)
{
    mst_coordinator *co = s->co;
    mst_job_member *m = &co->members[r->worker];
    m->steps++;
    m->rows += r->head.rows;
    co->progress.rows += r->head.rows;
    co->progress.loss.loss += r->head.loss;
    co->progress.loss.weight += r->head.weight;
    co->progress.loss.rows += r->head.rows;
    co->progress.loss.correct += r->head.correct;
}

void mst_pace_arrived(mst_server *s, uint32_t worker, bool last)
{
    mst_coordinator *co = s->co;
    uint64_t now = mst_now_ns();
    if (last && co->pace.arrived_ns > co->pace.closed_ns)
        co->members[worker].held_ns += now - co->pace.arrived_ns;
    co->pace.arrived_ns = now;
}

mst_status mst_pace_applied(mst_server *s, uint64_t step, const mst_store_request *const *requests,
                            uint32_t n)
{
    mst_coordinator *co = s->co;
    uint64_t start = mst_trace_now();
    co->progress.steps = step;
    co->pace.closed_ns = mst_now_ns();
    for (uint32_t i = 0; i < n; i++) {
        pace_count_push(s, requests[i]);
        mst_rows_pushed(s, requests[i]->worker, requests[i]->head.rows);
    }
    mst_rows_closed(s, step);
    mst_status st = mst_coordinator_advance_at_step(s);
    mst_trace_op("count", start, (mst_trace_output){0});
    return st;
}

void mst_pace_dropped(mst_server *s, uint32_t worker, const mst_store_request *request)
{
    mst_job_member *m = &s->co->members[worker];
    m->dropped_steps++;
    m->dropped_rows += request->head.rows;
    mst_rows_pushed(s, worker, request->head.rows); /* its rows are used up */
}

/* ---- quorum ---- */

/* Whether a push of the worker may arrive. */
static bool pace_expects(const mst_server *s, uint32_t worker)
{
    const mst_job_member *m = &s->co->members[worker];
    return mst_alive(s, worker) && !m->done && !m->idle;
}

bool mst_pace_quorum_reached(const mst_server *s, uint64_t step, mst_step_close *close)
{
    uint32_t here = 0, active = 0;
    *close = (mst_step_close){.step = step};
    for (uint32_t i = 0; i < s->options.n_workers; i++) {
        const mst_server_worker *w = &s->workers[i];
        active += !w->exhausted && pace_expects(s, i);
        if (mst_steps_waits_for(w, step)) {
            mst_bit_set(close->workers, i);
            here++;
        }
    }
    return here > 0 && here >= (active < s->options.quorum ? active : s->options.quorum);
}

/* ---- ssp ---- */

/* The fewest pushes of the workers that push, except for one. UINT64_MAX: there are none. */
static uint64_t pace_slowest_but(const mst_server *s, uint32_t worker)
{
    uint64_t slowest = UINT64_MAX;
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        if (w != worker && pace_expects(s, w) && s->workers[w].pushes < slowest)
            slowest = s->workers[w].pushes;
    return slowest;
}

void mst_pace_catch_up(mst_server *s, uint32_t worker)
{
    uint64_t slowest = pace_slowest_but(s, worker);
    if (slowest != UINT64_MAX && s->workers[worker].pushes < slowest)
        s->workers[worker].pushes = slowest;
}

bool mst_pace_ahead(const mst_server *s, uint32_t worker)
{
    if (s->options.mode != MST_MODE_SSP)
        return false;
    uint64_t slowest = pace_slowest_but(s, worker);
    return slowest != UINT64_MAX && s->workers[worker].pushes > slowest + s->options.staleness;
}

/* ---- stalls ---- */

/* Whether the job waits for a push of this worker. */
static bool pace_awaits_push(const mst_server *s, uint32_t w)
{
    return !s->co->cuts.held && pace_expects(s, w) && !s->workers[w].pending && s->workers[w].n_deferred == 0;
}

const char *mst_pace_waiting(mst_server *s)
{
    const mst_coordinator *co = s->co;
    char *out = s->co->pace.waiting;
    size_t n = 0, size = sizeof co->pace.waiting;
    uint32_t missing = 0, alive = 0;
    if (mst_now_ns() - co->pace.closed_ns <= MST_S)
        return NULL;
    if (co->cuts.held)
        return "an evaluation";
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        bool empty = mst_members_slot_empty(s, w);
        alive += empty || (mst_alive(s, w) && !co->members[w].done);
        if (!empty && !pace_awaits_push(s, w))
            continue;
        if (missing++ < 3)
            n += (size_t)snprintf(out + n, size - n, "%sworker %" PRIu32, n > 0 ? ", " : "", w);
    }
    if (missing == alive && missing > 1)
        snprintf(out, size, "all %" PRIu32 " workers", missing);
    else if (missing > 3)
        snprintf(out, size, "%" PRIu32 " of %" PRIu32 " workers", missing, alive);
    return missing > 0 ? out : NULL;
}

mst_status mst_pace_check_stalls(mst_server *s)
{
    mst_coordinator *co = s->co;
    uint64_t now = mst_now_ns(), patience = s->options.stall_timeout_ms * MST_MS;
    bool idle = false;
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        idle |= mst_alive(s, w) && co->members[w].idle;
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        if (!pace_awaits_push(s, w))
            continue;
        uint64_t since = mst_is_sync(s) ? co->pace.closed_ns : co->members[w].pushed_ns;
        if (now - since > patience) {
            char why[128];
            snprintf(why, sizeof why, "it has pushed nothing for %" PRIu32 " s",
                     s->options.stall_timeout_ms / 1000);
            mst_server_expel(s, w, why);
        } else if (idle && mst_rows_overdue(s, w, now - since)) {
            TRY(mst_rows_take_back(s, w));
        }
    }
    return MST_OK;
}
