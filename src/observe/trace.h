/* --trace: what every watched thread did when, for Perfetto and chrome://tracing.
 *
 * Each lane (spans.h) has a ring that its thread writes and one reader empties a few times a second into
 * lines of JSON; a ring that is full drops what comes, and the file says how much. The file is an array that
 * is never wrong: readers of this format take one that was cut off, and the end closes it.
 *
 * Names are copied, at most MST_TRACE_NAME - 1 bytes of them. Thread: ops, flows and counters: the lane's
 * own; drain: one reader. */
#ifndef MST_OBSERVE_TRACE_H
#define MST_OBSERVE_TRACE_H

#include "observe/bytes.h"
#include "observe/spans.h"

#define MST_TRACE_NAME 23

typedef enum mst_trace_kind {
    MST_TRACE_PHASE,
    MST_TRACE_OP,       /* something within a phase: a layer */
    MST_TRACE_FLOW_OUT, /* an arrow begins here */
    MST_TRACE_FLOW_IN,  /* and ends here, in whichever process has the same id */
    MST_TRACE_COUNTER,
} mst_trace_kind;

mst_status mst_trace_ring_new(mst_trace_ring **out);
void mst_trace_ring_destroy(mst_trace_ring *self); /* NULL-safe */

/* How a process's trace is told apart from others' in one picture. */
typedef struct mst_trace_identity {
    const char *process;
    unsigned pid, tid;
    int64_t clock_ns; /* added to the monotonic clock: time since 1970 on the coordinator's */
} mst_trace_identity;

/* The beginning of the file: "[", and who the process is. */
void mst_trace_begin(mst_bytes *out, const mst_trace_identity *who);
void mst_trace_thread(mst_bytes *out, const mst_trace_identity *who, const char *name);
/* Appends what the ring has, of steps in [from_step, to_step]; returns how many. *dropped: in all so far. */
size_t mst_trace_drain(mst_trace_ring *self, const mst_trace_identity *who, uint64_t from_step,
                       uint64_t to_step, mst_bytes *out, uint64_t *dropped);
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

/* One step's push of one worker to one server, seen from both. */
static inline uint64_t mst_trace_flow_id(uint64_t step, uint32_t worker, uint32_t server)
{
    return step << 24 ^ (uint64_t)(worker & 0xfff) << 12 ^ (server & 0xfff);
}

static inline void mst_trace_flow(bool in, uint64_t id)
{
    if (mst_tracing())
        mst_trace_put(mst_this_lane->trace, in ? MST_TRACE_FLOW_IN : MST_TRACE_FLOW_OUT, "push", mst_now_ns(),
                      0, mst_this_lane->step, id);
}

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
