/* Contract in trace_file.h. A ring has one writer, which owns `head`, and one reader, which owns `tail`. Each
 * publishes its progress with a release store. */
#include "observe/trace_file.h"

#include <stdio.h>

#define RING ((uint64_t)1 << 14)

typedef struct trace_entry {
    char name[MST_TRACE_NAME];
    uint8_t kind;
    uint64_t at_ns, ns, step;
    mst_trace_output out; /* of an op; its bytes are the value of other kinds */
} trace_entry;

struct mst_trace_ring {
    _Alignas(64) atomic_uint_fast64_t head;
    atomic_uint_fast64_t dropped;
    _Alignas(64) atomic_uint_fast64_t tail;
    uint64_t from_step, to_step;
    trace_entry entries[RING];
};

mst_status mst_trace_ring_new(uint64_t from_step, uint64_t to_step, mst_trace_ring **out)
{
    mst_trace_ring *self = mst_alloc_lines(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    atomic_init(&self->head, 0);
    atomic_init(&self->tail, 0);
    atomic_init(&self->dropped, 0);
    self->from_step = from_step;
    self->to_step = to_step;
    *out = self;
    return MST_OK;
}

void mst_trace_ring_destroy(mst_trace_ring *self)
{
    mst_free(self);
}

void mst_trace_put(mst_trace_ring *self, mst_trace_kind kind, const char *name, uint64_t at_ns, uint64_t ns,
                   uint64_t step, mst_trace_output out)
{
    uint64_t head = atomic_load_explicit(&self->head, memory_order_relaxed);
    uint64_t last = kind == MST_TRACE_PHASE ? step + out.bytes : step;
    if (last < self->from_step || step > self->to_step)
        return;
    if (head - atomic_load_explicit(&self->tail, memory_order_acquire) >= RING) {
        mst_lane_add(&self->dropped, 1);
        return;
    }
    trace_entry *e = &self->entries[head % RING];
    size_t n = strnlen(name, MST_TRACE_NAME - 1);
    memcpy(e->name, name, n);
    e->name[n] = 0;
    e->kind = (uint8_t)kind;
    e->at_ns = at_ns;
    e->ns = ns;
    e->step = step;
    e->out = out;
    atomic_store_explicit(&self->head, head + 1, memory_order_release);
}

static uint64_t trace_step(const mst_lane *lane)
{
    return atomic_load_explicit(&lane->step, memory_order_relaxed);
}

/* Idle time counts from the first step on. */
void mst_span_traced(mst_lane *lane, mst_phase phase, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t step = trace_step(lane);
    if (phase < MST_PHASE_IDLE || (phase == MST_PHASE_IDLE && step > 0))
        mst_trace_put(lane->trace, MST_TRACE_PHASE, mst_phase_name(phase), from_ns, to_ns - from_ns, step,
                      (mst_trace_output){.bytes = lane->more_steps});
}

void mst_span_traced_steps(mst_lane *lane, uint64_t steps, uint64_t rows)
{
    mst_trace_put(lane->trace, MST_TRACE_STEPS, "steps", mst_now_ns(), rows, trace_step(lane),
                  (mst_trace_output){.bytes = steps});
}

uint64_t mst_span_most_steps(uint64_t step)
{
    const mst_trace_ring *ring = mst_this_lane != NULL ? mst_this_lane->trace : NULL;
    if (ring == NULL || (ring->from_step == 0 && ring->to_step == UINT64_MAX) || step > ring->to_step)
        return UINT64_MAX;
    return step < ring->from_step ? ring->from_step - step : 1;
}

uint64_t mst_trace_put_op(const char *name, uint64_t from_ns, mst_trace_output out)
{
    const mst_lane *lane = mst_this_lane;
    uint64_t now = mst_now_ns(), since = atomic_load_explicit(&lane->since_ns, memory_order_relaxed);
    from_ns = from_ns > since ? from_ns : since;
    mst_trace_put(lane->trace, MST_TRACE_OP, name, from_ns, now - from_ns, trace_step(lane), out);
    return now;
}

uint64_t mst_trace_layer(const char *layer, const char *pass, uint64_t from_ns, mst_trace_output out)
{
    char name[64];
    if (!mst_tracing())
        return 0;
    snprintf(name, sizeof name, "%.13s %s", layer, pass);
    return mst_trace_put_op(name, from_ns, out);
}

void mst_trace_beside(mst_spans *spans, unsigned index, const char *name, uint64_t from_ns,
                      mst_trace_output out)
{
    const mst_lane *lane = mst_spans_lane(spans, index);
    if (lane != NULL && lane->trace != NULL)
        mst_trace_put(lane->trace, MST_TRACE_OP, name, from_ns, mst_now_ns() - from_ns,
                      trace_step(mst_spans_lane(spans, 0)), out);
}

/* Returns the id of an arrow: at most 53 bits, which every JSON reader represents exactly. */
static uint64_t trace_flow_id(const mst_trace_push *push)
{
    uint64_t parts[] = {push->step, push->incarnation, (uint64_t)push->worker << 32 | push->server}, id = 0;
    for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++) { /* the finalizer of SplitMix64 */
        id = (id ^ parts[i]) + 0x9e3779b97f4a7c15ull;
        id = (id ^ id >> 30) * 0xbf58476d1ce4e5b9ull;
        id = (id ^ id >> 27) * 0x94d049bb133111ebull;
        id ^= id >> 31;
    }
    return id >> 11;
}

void mst_trace_flow(mst_trace_kind end, const mst_trace_push *push)
{
    if (mst_tracing())
        mst_trace_put(mst_this_lane->trace, end, "push", mst_now_ns(), 0, push->step,
                      (mst_trace_output){.bytes = trace_flow_id(push)});
}

/* ---- the file ---- */

__attribute__((format(printf, 2, 3))) static void trace_add(mst_bytes *out, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (n > 0)
        mst_bytes_add(out, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

/* Adds a name inside JSON quotes. */
static void trace_add_name(mst_bytes *out, const char *name)
{
    for (const char *p = name; *p != 0; p++)
        if (*p == '"' || *p == '\\')
            trace_add(out, "\\%c", *p);
        else
            trace_add(out, "%c", (unsigned char)*p < 32 || (unsigned char)*p > 126 ? '?' : *p);
}

void mst_trace_begin(mst_bytes *out, const mst_trace_identity *who)
{
    trace_add(out, "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,\"tid\":0,\"args\":{\"name\":\"",
              who->pid);
    trace_add_name(out, who->process);
    trace_add(out, "\"}},\n");
}

void mst_trace_date(mst_bytes *out, const mst_trace_identity *who)
{
    trace_add(out,
              "{\"name\":\"job_start\",\"ph\":\"M\",\"pid\":%u,\"tid\":0,\"args\":{\"unix_us\":%llu}},\n",
              who->pid, (unsigned long long)(mst_job_clock_began(who->clock) / 1000));
}

void mst_trace_thread(mst_bytes *out, const mst_trace_identity *who, const char *name)
{
    trace_add(out, "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%u,\"tid\":%u,\"args\":{\"name\":\"",
              who->pid, who->tid);
    trace_add_name(out, name);
    trace_add(out, "\"}},\n");
}

static void trace_add_output(mst_bytes *out, const mst_trace_output *output)
{
    trace_add(out, ",\"bytes\":%llu", (unsigned long long)output->bytes);
    for (unsigned i = 0; i < MST_TRACE_DIMS && output->dims[i] != 0; i++)
        trace_add(out, "%s%lu", i == 0 ? ",\"shape\":[" : ",", (unsigned long)output->dims[i]);
    if (output->dims[0] != 0)
        trace_add(out, "]");
}

static void trace_add_entry(mst_bytes *out, const mst_trace_identity *who, const trace_entry *e)
{
    static const char *const phase_types[] = {"X", "X", "s", "f", "C", "i"};
    static const char *const categories[] = {"phase", "op", "flow", "flow", "counter", "steps"};
    bool slice = e->kind == MST_TRACE_PHASE || e->kind == MST_TRACE_OP;
    unsigned long long at = mst_job_clock_at(who->clock, e->at_ns),
                       ns = slice ? mst_job_clock_at(who->clock, e->at_ns + e->ns) - at : 0,
                       value = e->out.bytes;
    ns -= ns > 0; /* readers round decimals: the slice must not overlap the next one */
    trace_add(out, "{\"name\":\"");
    trace_add_name(out, e->name);
    trace_add(out, "\",\"cat\":\"%s\",\"ph\":\"%s\",\"pid\":%u,\"tid\":%u,\"ts\":%llu.%03llu",
              categories[e->kind], phase_types[e->kind], who->pid, who->tid, at / 1000, at % 1000);
    if (slice)
        trace_add(out, ",\"dur\":%llu.%03llu,\"args\":{\"step\":%llu", ns / 1000, ns % 1000,
                  (unsigned long long)e->step);
    switch ((mst_trace_kind)e->kind) {
    case MST_TRACE_PHASE:
        if (value > 0)
            trace_add(out, ",\"last_step\":%llu", (unsigned long long)e->step + value);
        trace_add(out, "}},\n");
        break;
    case MST_TRACE_OP:
        trace_add_output(out, &e->out);
        trace_add(out, "}},\n");
        break;
    case MST_TRACE_FLOW_OUT:
        trace_add(out, ",\"id\":%llu},\n", value);
        break;
    case MST_TRACE_FLOW_IN:
        trace_add(out, ",\"bp\":\"e\",\"id\":%llu},\n", value);
        break;
    case MST_TRACE_COUNTER:
        trace_add(out, ",\"args\":{\"value\":%llu}},\n", value);
        break;
    case MST_TRACE_STEPS:
        trace_add(out, ",\"s\":\"t\",\"args\":{\"step\":%llu,\"steps\":%llu,\"rows\":%llu}},\n",
                  (unsigned long long)e->step, value, (unsigned long long)e->ns);
        break;
    }
}

size_t mst_trace_drain(mst_trace_ring *self, const mst_trace_identity *who, mst_bytes *out, uint64_t *dropped)
{
    uint64_t tail = atomic_load_explicit(&self->tail, memory_order_relaxed),
             head = atomic_load_explicit(&self->head, memory_order_acquire);
    size_t n = (size_t)(head - tail);
    for (; tail < head; tail++)
        trace_add_entry(out, who, &self->entries[tail % RING]);
    atomic_store_explicit(&self->tail, tail, memory_order_release);
    *dropped = atomic_load_explicit(&self->dropped, memory_order_relaxed);
    return n;
}

void mst_trace_end(mst_bytes *out, const mst_trace_identity *who, uint64_t dropped)
{
    trace_add(out, "{\"name\":\"dropped\",\"ph\":\"M\",\"pid\":%u,\"tid\":0,\"args\":{\"value\":%llu}}\n]\n",
              who->pid, (unsigned long long)dropped);
}
