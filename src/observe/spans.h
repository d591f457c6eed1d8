/* Where the time of a process's threads goes, by phase of the training loop: timed always, read once a second
 * by the thread that writes spans.csv.
 *
 * A thread that is watched is in exactly one phase at a time: mst_span_enter ends the one it was in, for one
 * look at the clock. Nesting is by putting the phase before back:
 *
 *     mst_phase before = mst_span_enter(MST_PHASE_READ);
 *     ... wait for rows ...
 *     mst_span_enter(before);
 *
 * Reading rows is a part of evaluating: a thread that evaluates stays in that phase.
 *
 * A thread that is not watched pays one load. Counters are relaxed atomics with one writer each, the thread;
 * whoever reads sees sums that only grow.
 *
 * Thread: attach, enter and the counts: the watched thread. Everything else: any thread. */
#ifndef MST_OBSERVE_SPANS_H
#define MST_OBSERVE_SPANS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/status.h"

/* X(name, column): the order of the columns of spans.csv. */
#define MST_PHASE_MAP(X)                                                                                     \
    X(READ, "read")                                                                                          \
    X(PREPARE, "prepare")                                                                                    \
    X(COMPUTE, "compute")                                                                                    \
    X(PULL_WAIT, "pull_wait")                                                                                \
    X(BARRIER_WAIT, "barrier_wait")                                                                          \
    X(PUSH, "push")                                                                                          \
    X(APPLY, "apply")                                                                                        \
    X(SERVE, "serve")                                                                                        \
    X(EVALUATE, "evaluate")                                                                                  \
    X(CHECKPOINT, "checkpoint")                                                                              \
    X(IDLE, "idle")

typedef enum mst_phase {
#define X(name, column) MST_PHASE_##name,
    MST_PHASE_MAP(X)
#undef X
        MST_PHASES
} mst_phase;
const char *mst_phase_name(mst_phase phase);

typedef struct mst_trace_ring mst_trace_ring; /* trace_file.h */

/* One thread's counters. */
typedef struct mst_lane {
    _Alignas(64) atomic_uint_fast64_t ns[MST_PHASES + 1]; /* the last: nobody has it, which does not count */
    atomic_uint_fast64_t since_ns;                        /* when the phase began */
    atomic_uint phase;
    atomic_uint_fast64_t steps, rows, bytes_in, bytes_out, dropped_rows;
    atomic_uint_fast64_t stale_sum, stale_count, stale_max;
    atomic_bool used;      /* some thread has had it */
    atomic_bool beside;    /* of a thread that is none of those that train or serve */
    mst_trace_ring *trace; /* NULL: not traced */
    uint64_t step;         /* the step under way, for the trace; the thread's own */
    uint64_t more_steps;   /* that are taken together with it */
} mst_lane;

#define MST_LANE_MAX 64 /* threads of a process that are watched; those beyond are not */

typedef struct mst_spans mst_spans;

mst_status mst_spans_new(mst_spans **out);
void mst_spans_destroy(mst_spans *self); /* NULL-safe; no thread may be attached to it any more */

/* The calling thread is lane `index` from here on, in a phase; NULL spans: is not watched. Cheap where it is
 * that already. Lanes of one process are numbered by whoever starts the threads. */
void mst_spans_attach(mst_spans *self, unsigned index, mst_phase phase);
/* Likewise, for a thread that works beside those that train: its phases count, but it is no more thread. */
void mst_spans_attach_beside(mst_spans *self, unsigned index, mst_phase phase);
/* The calling thread is not watched any more; its lane is idle until somebody takes it again. */
void mst_spans_detach(void);
/* Likewise, for a thread that works now and then: time until somebody takes the lane again counts nowhere. */
void mst_spans_leave(void);

mst_lane *mst_spans_lane(mst_spans *self, unsigned index); /* NULL beyond MST_LANE_MAX */

/* Sums over all lanes since the start. */
typedef struct mst_span_sums {
    uint64_t ns[MST_PHASES];
    uint64_t steps, rows, bytes_in, bytes_out, dropped_rows, stale_sum, stale_count;
    unsigned threads; /* lanes that somebody has, or is to come back to; but those beside */
} mst_span_sums;
/* Phases under way count up to now_ns. Two calls in order give sums in order. stale_max: the greatest since
 * the last call that asked for it; or NULL. One reader at a time. */
void mst_spans_sum(mst_spans *self, uint64_t now_ns, mst_span_sums *out, uint64_t *stale_max);

/* ---- the watched thread ---- */

extern _Thread_local mst_lane *mst_this_lane __attribute__((tls_model("initial-exec")));

void mst_span_traced(mst_lane *lane, mst_phase phase, uint64_t from_ns, uint64_t to_ns);

static inline void mst_lane_add(atomic_uint_fast64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* Returns the phase that ends. */
static inline mst_phase mst_span_enter(mst_phase phase)
{
    mst_lane *lane = mst_this_lane;
    if (lane == NULL)
        return phase;
    mst_phase before = (mst_phase)atomic_load_explicit(&lane->phase, memory_order_relaxed);
    if (before == MST_PHASE_EVALUATE && (phase == MST_PHASE_READ || phase == before))
        return before;
    uint64_t now = mst_now_ns(), since = atomic_load_explicit(&lane->since_ns, memory_order_relaxed);
    mst_lane_add(&lane->ns[before], now - since);
    atomic_store_explicit(&lane->since_ns, now, memory_order_relaxed);
    atomic_store_explicit(&lane->phase, phase, memory_order_relaxed);
    if (lane->trace != NULL)
        mst_span_traced(lane, before, since, now);
    return before;
}

/* Likewise, and without a look at the clock where the thread is in that phase already. */
static inline mst_phase mst_span_keep(mst_phase phase)
{
    const mst_lane *lane = mst_this_lane;
    if (lane == NULL || atomic_load_explicit(&lane->phase, memory_order_relaxed) == phase)
        return phase;
    return mst_span_enter(phase);
}

/* Steps and rows that have ended. */
static inline void mst_span_steps(uint64_t steps, uint64_t rows)
{
    if (mst_this_lane != NULL) {
        mst_lane_add(&mst_this_lane->steps, steps);
        mst_lane_add(&mst_this_lane->rows, rows);
    }
}

static inline void mst_span_bytes(uint64_t in, uint64_t out)
{
    if (mst_this_lane != NULL) {
        mst_lane_add(&mst_this_lane->bytes_in, in);
        mst_lane_add(&mst_this_lane->bytes_out, out);
    }
}

/* A push that was `steps` behind. */
static inline void mst_span_stale(uint64_t steps)
{
    mst_lane *lane = mst_this_lane;
    if (lane == NULL)
        return;
    mst_lane_add(&lane->stale_sum, steps);
    mst_lane_add(&lane->stale_count, 1);
    if (steps > atomic_load_explicit(&lane->stale_max, memory_order_relaxed))
        atomic_store_explicit(&lane->stale_max, steps, memory_order_relaxed);
}

static inline void mst_span_dropped(uint64_t rows)
{
    if (mst_this_lane != NULL)
        mst_lane_add(&mst_this_lane->dropped_rows, rows);
}

/* The n steps, from `step` on, that the thread takes in one piece, for the trace. */
static inline void mst_span_together(uint64_t step, uint64_t n)
{
    if (mst_this_lane != NULL) {
        mst_this_lane->step = step;
        mst_this_lane->more_steps = n > 0 ? n - 1 : 0;
    }
}

/* The step that the thread works on, for the trace. */
static inline void mst_span_step(uint64_t step)
{
    mst_span_together(step, 1);
}

/* How many steps, from `step` on, the thread may take together: those selected by --trace-steps are traced
 * one by one. */
uint64_t mst_span_most_steps(uint64_t step);

#endif
