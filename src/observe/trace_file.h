/* --trace: the spans and operations of every observed thread, for Perfetto and chrome://tracing.
 *
 * Each lane (spans.h) has a ring that its thread writes; one reader converts its entries to lines of JSON a
 * few times per second. A full ring drops new entries, and the file has their number. The file is a JSON
 * array. Readers of this format accept a truncated one; the end closes it.
 *
 * Names are copied, at most MST_TRACE_NAME - 1 bytes. Thread: ops, flows and counters: that of the lane;
 * drain: one reader. */
#ifndef MST_OBSERVE_TRACE_FILE_H
#define MST_OBSERVE_TRACE_FILE_H

#include "observe/bytes.h"
#include "observe/job_clock.h"
#include "observe/spans.h"

#define MST_TRACE_NAME 23

typedef enum mst_trace_kind {
    MST_TRACE_PHASE,
    MST_TRACE_OP,       /* an operation within a phase: a layer, a product, a message */
    MST_TRACE_FLOW_OUT, /* start of an arrow */
    MST_TRACE_FLOW_IN,  /* end of the arrow with the same id, possibly in another process */
    MST_TRACE_COUNTER,
    MST_TRACE_STEPS, /* completed steps and their rows */
} mst_trace_kind;

#define MST_TRACE_DIMS 4

/* The output of an op. */
typedef struct mst_trace_output {
    uint64_t bytes;
    uint32_t dims[MST_TRACE_DIMS]; /* its shape, outermost first; 0 ends it */
} mst_trace_output;

/* Accepts entries of steps in [from_step, to_step]. */
mst_status mst_trace_ring_new(uint64_t from_step, uint64_t to_step, mst_trace_ring **out);
void mst_trace_ring_destroy(mst_trace_ring *self); /* NULL-safe */

/* Identifies the process and thread in a merged trace. */
typedef struct mst_trace_identity {
    const char *process;
    unsigned pid, tid;
    mst_job_clock *clock; /* the clock of all times */
} mst_trace_identity;

/* Writes the start of the file: "[" and the name of the process. */
void mst_trace_begin(mst_bytes *out, const mst_trace_identity *who);
/* Writes the start of the job, time 0 of the file. Once, before any entry with a time. */
void mst_trace_date(mst_bytes *out, const mst_trace_identity *who);
void mst_trace_thread(mst_bytes *out, const mst_trace_identity *who, const char *name);
/* Appends the entries of the ring; returns their number. *dropped is the total number of dropped entries. */
size_t mst_trace_drain(mst_trace_ring *self, const mst_trace_identity *who, mst_bytes *out,
                       uint64_t *dropped);
void mst_trace_end(mst_bytes *out, const mst_trace_identity *who, uint64_t dropped);

/* ---- the thread of the lane ---- */

void mst_trace_put(mst_trace_ring *ring, mst_trace_kind kind, const char *name, uint64_t at_ns, uint64_t ns,
                   uint64_t step, mst_trace_output out);

static inline bool mst_tracing(void)
{
    return mst_this_lane != NULL && mst_this_lane->trace != NULL;
}

/* An output of a x b elements (b 0 or 1: a vector) of `size` bytes each. */
static inline mst_trace_output mst_trace_array(size_t size, uint64_t a, uint64_t b)
{
    return (mst_trace_output){.bytes = size * a * (b > 1 ? b : 1),
                              .dims = {(uint32_t)a, b > 1 ? (uint32_t)b : 0}};
}

static inline mst_trace_output mst_trace_floats(uint64_t a, uint64_t b)
{
    return mst_trace_array(sizeof(float), a, b);
}

/* Returns the start time of an op, 0 without a trace. */
static inline uint64_t mst_trace_now(void)
{
    return mst_tracing() ? mst_now_ns() : 0;
}

/* mst_trace_op of a traced thread. An op does not cover more than one phase: of one that began
 * before the current phase, the time in this phase counts. */
uint64_t mst_trace_put_op(const char *name, uint64_t from_ns, mst_trace_output out);

/* Ends an op that began at from_ns. Returns its end, the start of an op that follows. */
static inline uint64_t mst_trace_op(const char *name, uint64_t from_ns, mst_trace_output out)
{
    return mst_tracing() ? mst_trace_put_op(name, from_ns, out) : 0;
}

/* The same for a pass of a layer: "conv1 forward". */
uint64_t mst_trace_layer(const char *layer, const char *pass, uint64_t from_ns, mst_trace_output out);

/* Ops that follow one another: the current one, and its start. */
typedef struct mst_trace_chain {
    const char *name; /* NULL: none */
    uint64_t from_ns;
} mst_trace_chain;

/* Ends the current op and begins the next (NULL: none). */
static inline void mst_trace_next(mst_trace_chain *self, const char *name, mst_trace_output out)
{
    if (!mst_tracing())
        return;
    self->from_ns = self->name != NULL ? mst_trace_put_op(self->name, self->from_ns, out) : mst_now_ns();
    self->name = name;
}

/* Records an op of a thread that is not observed itself, for example of one that parses rows ahead, in a lane
 * that no other thread uses. Its step is the current one of lane 0. */
void mst_trace_beside(mst_spans *spans, unsigned lane, const char *name, uint64_t from_ns,
                      mst_trace_output out);

/* A push of one worker to one server. Both use the same step to decide whether it is traced, so an arrow has
 * both ends or none. */
typedef struct mst_trace_push {
    uint64_t step;        /* from the request */
    uint64_t incarnation; /* of the worker: a restarted worker counts from 1 again */
    uint32_t worker, server;
} mst_trace_push;

/* Records that the push leaves the worker, or that the server applies it. */
void mst_trace_flow(mst_trace_kind end, const mst_trace_push *push);

/* The counter of bytes in flight. Worker: pushed or requested and not answered; server: queued and not
 * accepted by the system. */
#define MST_TRACE_FLIGHT "bytes in flight"

static inline void mst_trace_counter(const char *name, uint64_t value)
{
    if (mst_tracing())
        mst_trace_put(mst_this_lane->trace, MST_TRACE_COUNTER, name, mst_now_ns(), 0,
                      atomic_load_explicit(&mst_this_lane->step, memory_order_relaxed),
                      (mst_trace_output){.bytes = value});
}

#endif
