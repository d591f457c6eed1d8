/* --trace: what every watched thread did when, for Perfetto and chrome://tracing.
 *
 * Each lane (spans.h) has a ring that its thread writes and one reader empties a few times a second into
 * lines of JSON; a ring that is full drops what comes, and the file says how much. The file is an array that
 * is never wrong: readers of this format take one that was cut off, and the end closes it.
 *
 * Names are copied, at most MST_TRACE_NAME - 1 bytes of them. Thread: ops, flows and counters: the lane's
 * own; drain: one reader. */
#ifndef MST_OBSERVE_TRACE_FILE_H
#define MST_OBSERVE_TRACE_FILE_H

#include "observe/bytes.h"
#include "observe/job_clock.h"
#include "observe/spans.h"

#define MST_TRACE_NAME 23

typedef enum mst_trace_kind {
    MST_TRACE_PHASE,
    MST_TRACE_OP,       /* something within a phase: a layer */
    MST_TRACE_FLOW_OUT, /* an arrow begins here */
    MST_TRACE_FLOW_IN,  /* and ends here, in whichever process has the same id */
    MST_TRACE_COUNTER,
} mst_trace_kind;

/* Takes what belongs to steps in [from_step, to_step]. */
mst_status mst_trace_ring_new(uint64_t from_step, uint64_t to_step, mst_trace_ring **out);
void mst_trace_ring_destroy(mst_trace_ring *self); /* NULL-safe */

/* How a process's trace is told apart from others' in one picture. */
typedef struct mst_trace_identity {
    const char *process;
    unsigned pid, tid;
    mst_job_clock *clock; /* what times are counted by */
} mst_trace_identity;

/* The beginning of the file: "[", and who the process is. */
void mst_trace_begin(mst_bytes *out, const mst_trace_identity *who);
/* When the job began, which is 0 in the file. Once, before anything that has a time. */
void mst_trace_date(mst_bytes *out, const mst_trace_identity *who);
void mst_trace_thread(mst_bytes *out, const mst_trace_identity *who, const char *name);
/* Appends what the ring has; returns how many. *dropped: in all so far. */
size_t mst_trace_drain(mst_trace_ring *self, const mst_trace_identity *who, mst_bytes *out,
                       uint64_t *dropped);
void mst_trace_end(mst_bytes *out, const mst_trace_identity *who, uint64_t dropped);

/* ---- the lane's thread ---- */

void mst_trace_put(mst_trace_ring *ring, mst_trace_kind kind, const char *name, uint64_t at_ns, uint64_t ns,
                   uint64_t step, uint64_t value);

static inline bool mst_tracing(void)
{
    return mst_this_lane != NULL && mst_this_lane->trace != NULL;
}

/* Now, if it will be needed: begins an op. */
static inline uint64_t mst_trace_now(void)
{
    return mst_tracing() ? mst_now_ns() : 0;
}

/* Ends an op that began at from_ns; bytes: of what it puts out. */
static inline void mst_trace_op(const char *name, uint64_t from_ns, uint64_t bytes)
{
    if (mst_tracing())
        mst_trace_put(mst_this_lane->trace, MST_TRACE_OP, name, from_ns, mst_now_ns() - from_ns,
                      mst_this_lane->step, bytes);
}

/* The same for a pass through a layer: "conv1 forward". */
void mst_trace_layer(const char *layer, const char *pass, uint64_t from_ns, uint64_t bytes);

/* A push of one worker to one server. Both know the same step of it, which decides whether it is traced, so
 * that an arrow has both its ends or none. */
typedef struct mst_trace_push {
    uint64_t step;        /* as the request says */
    uint64_t incarnation; /* of the worker: a restarted one counts from 1 again */
    uint32_t worker, server;
} mst_trace_push;

/* The push leaves the worker, or is applied by the server. */
void mst_trace_flow(mst_trace_kind end, const mst_trace_push *push);

/* Counters of this name: bytes on their way. A worker: pushed or asked for and not answered yet; a server:
 * that the system has not taken yet. */
#define MST_TRACE_FLIGHT "bytes in flight"

static inline void mst_trace_counter(const char *name, uint64_t value)
{
    if (mst_tracing())
        mst_trace_put(mst_this_lane->trace, MST_TRACE_COUNTER, name, mst_now_ns(), 0, mst_this_lane->step,
                      value);
}

#endif
