/* The time of a process's threads by phase of the training loop: measured always, read once per second by the
 * observer thread for spans.csv.
 *
 * An observed thread is in exactly one phase at a time: mst_span_enter ends the current one, at the cost of
 * one clock reading. To nest, restore the previous phase:
 *
 *     mst_phase before = mst_span_enter(MST_PHASE_READ);
 *     ... wait for rows ...
 *     mst_span_enter(before);
 *
 * Reading rows is part of an evaluation: a thread that evaluates stays in that phase.
 *
 * A thread that is not observed pays one load. Counters are relaxed atomics with one writer each, the thread
 * (of a worker's bytes: the owner of its net); readers see sums that only grow.
 *
 * Thread: attach, enter and the counters: the observed thread. Other functions: any thread. */
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
    _Alignas(64) atomic_uint_fast64_t ns[MST_PHASES + 1]; /* the last: the lane is vacant; not counted */
    atomic_uint_fast64_t since_ns;                        /* start of the phase */
    atomic_uint phase;
    atomic_uint_fast64_t steps, rows, bytes_in, bytes_out, dropped_rows;
    atomic_uint_fast64_t stale_sum, stale_count, stale_max;
    _Atomic double loss, weight;          /* of rows that a worker or rank has trained on: sums */
    atomic_uint_fast64_t judged, correct; /* such rows, and those that the model classified correctly */
    atomic_bool used;                     /* a thread has used it */
    atomic_bool beside;                   /* used by a thread that neither trains nor serves */
    mst_trace_ring *trace;                /* NULL: not traced */
    atomic_uint_fast64_t step;            /* the current step, for the trace */
    uint64_t more_steps;                  /* computed together with it; only the thread uses it */
} mst_lane;

#define MST_LANE_MAX 64 /* observed threads of a process; further ones are not observed */

typedef struct mst_spans mst_spans;

mst_status mst_spans_new(mst_spans **out);
void mst_spans_destroy(mst_spans *self); /* NULL-safe; no thread may be attached */

/* Makes the calling thread lane `index` and enters a phase; with NULL spans, the thread is not observed.
 * Cheap if it is that lane already. The code that starts the threads of a process numbers their lanes. */
void mst_spans_attach(mst_spans *self, unsigned index, mst_phase phase);
/* The same for a thread beside the training threads: its phases count, but it does not count as a thread. */
void mst_spans_attach_beside(mst_spans *self, unsigned index, mst_phase phase);
/* Ends the observation of the calling thread. Its lane is idle until a thread attaches again. */
void mst_spans_detach(void);
/* The same for a thread that works occasionally: the time until a thread attaches again is not counted. */
void mst_spans_leave(void);

mst_lane *mst_spans_lane(mst_spans *self, unsigned index); /* NULL beyond MST_LANE_MAX */

/* Sums over all lanes since the start. */
typedef struct mst_span_sums {
    uint64_t ns[MST_PHASES];
    uint64_t steps, rows, bytes_in, bytes_out, dropped_rows, stale_sum, stale_count;
    double loss, weight;
    uint64_t judged, correct;
    unsigned threads; /* lanes in use or idle, without those beside the training threads */
} mst_span_sums;
/* The current phases count up to now_ns. The sums of consecutive calls do not decrease. stale_max (or NULL)
 * is the maximum since the last call with stale_max. One reader at a time. */
void mst_spans_sum(mst_spans *self, uint64_t now_ns, mst_span_sums *out, uint64_t *stale_max);

/* ---- the observed thread ---- */

extern _Thread_local mst_lane *mst_this_lane __attribute__((tls_model("initial-exec")));

void mst_span_traced(mst_lane *lane, mst_phase phase, uint64_t from_ns, uint64_t to_ns);
void mst_span_traced_steps(mst_lane *lane, uint64_t steps, uint64_t rows);

static inline void mst_lane_add(atomic_uint_fast64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* Enters a phase; returns the previous one. */
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

/* The same, without a clock reading if the thread is in that phase already. */
static inline mst_phase mst_span_keep(mst_phase phase)
{
    const mst_lane *lane = mst_this_lane;
    if (lane == NULL || atomic_load_explicit(&lane->phase, memory_order_relaxed) == phase)
        return phase;
    return mst_span_enter(phase);
}

/* Counts completed steps and rows. */
static inline void mst_span_steps(uint64_t steps, uint64_t rows)
{
    if (mst_this_lane != NULL) {
        mst_lane_add(&mst_this_lane->steps, steps);
        mst_lane_add(&mst_this_lane->rows, rows);
        if (mst_this_lane->trace != NULL)
            mst_span_traced_steps(mst_this_lane, steps, rows);
    }
}

static inline void mst_span_bytes(uint64_t in, uint64_t out)
{
    if (mst_this_lane != NULL) {
        mst_lane_add(&mst_this_lane->bytes_in, in);
        mst_lane_add(&mst_this_lane->bytes_out, out);
    }
}

/* Counts a push that is `steps` behind. */
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

/* Counts the loss of rows, summed with their weights, and the rows that were classified correctly. */
static inline void mst_span_loss(double loss, double weight, uint64_t rows, uint64_t correct)
{
    mst_lane *lane = mst_this_lane;
    if (lane == NULL)
        return;
    atomic_store_explicit(&lane->loss, atomic_load_explicit(&lane->loss, memory_order_relaxed) + loss,
                          memory_order_relaxed);
    atomic_store_explicit(&lane->weight, atomic_load_explicit(&lane->weight, memory_order_relaxed) + weight,
                          memory_order_relaxed);
    mst_lane_add(&lane->judged, rows);
    mst_lane_add(&lane->correct, correct);
}

static inline void mst_span_dropped(uint64_t rows)
{
    if (mst_this_lane != NULL)
        mst_lane_add(&mst_this_lane->dropped_rows, rows);
}

/* Sets the n steps, starting at `step`, that the thread computes together, for the trace. */
static inline void mst_span_together(uint64_t step, uint64_t n)
{
    if (mst_this_lane != NULL) {
        atomic_store_explicit(&mst_this_lane->step, step, memory_order_relaxed);
        mst_this_lane->more_steps = n > 0 ? n - 1 : 0;
    }
}

/* Sets the step of the thread, for the trace. */
static inline void mst_span_step(uint64_t step)
{
    mst_span_together(step, 1);
}

/* Returns the number of steps, starting at `step`, that the thread may compute together: steps selected by
 * --trace-steps are traced one by one. */
uint64_t mst_span_most_steps(uint64_t step);

#endif
