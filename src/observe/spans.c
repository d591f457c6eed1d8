/* Contract in spans.h.
 *
 * The reader adds the time since the start of the current phase. It may see the start and the sum of a phase
 * from before and after a change, and be off by that span once. Sums are cumulative, so the next reading is
 * correct, and `seen` keeps the returned sums from decreasing. */
#include "observe/spans.h"

#include <string.h>

#include "base/alloc.h"

struct mst_spans {
    mst_lane lanes[MST_LANE_MAX];
    uint64_t seen[MST_LANE_MAX][MST_PHASES]; /* used by the reader only */
};

_Thread_local mst_lane *mst_this_lane = NULL;

const char *mst_phase_name(mst_phase phase)
{
    static const char *const names[] = {
#define X(name, column) column,
        MST_PHASE_MAP(X)
#undef X
    };
    return phase < MST_PHASES ? names[phase] : "?";
}

mst_status mst_spans_new(mst_spans **out)
{
    mst_spans *self = mst_alloc_lines(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    memset(self, 0, sizeof *self);
    *out = self;
    return MST_OK;
}

void mst_spans_destroy(mst_spans *self)
{
    mst_free(self);
}

mst_lane *mst_spans_lane(mst_spans *self, unsigned index)
{
    return index < MST_LANE_MAX ? &self->lanes[index] : NULL;
}

void mst_spans_attach(mst_spans *self, unsigned index, mst_phase phase)
{
    mst_lane *lane = self != NULL ? mst_spans_lane(self, index) : NULL;
    if (lane == mst_this_lane) {
        mst_span_enter(phase);
        return;
    }
    mst_spans_detach();
    mst_this_lane = lane;
    if (lane == NULL)
        return;
    if (!atomic_load_explicit(&lane->used, memory_order_relaxed)) {
        atomic_store_explicit(&lane->since_ns, mst_now_ns(), memory_order_relaxed);
        atomic_store_explicit(&lane->phase, MST_PHASE_IDLE, memory_order_relaxed);
        atomic_store_explicit(&lane->used, true, memory_order_release);
    }
    mst_span_enter(phase);
}

void mst_spans_attach_beside(mst_spans *self, unsigned index, mst_phase phase)
{
    mst_lane *lane = self != NULL ? mst_spans_lane(self, index) : NULL;
    if (lane != NULL)
        atomic_store_explicit(&lane->beside, true, memory_order_relaxed);
    mst_spans_attach(self, index, phase);
}

void mst_spans_detach(void)
{
    if (mst_this_lane == NULL)
        return;
    mst_span_enter(MST_PHASE_IDLE);
    mst_this_lane = NULL;
}

void mst_spans_leave(void)
{
    if (mst_this_lane == NULL)
        return;
    mst_span_enter(MST_PHASES);
    mst_this_lane = NULL;
}

static uint64_t spans_get(const atomic_uint_fast64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

static void spans_sum_phases(mst_lane *lane, uint64_t *seen, uint64_t now_ns, mst_span_sums *out)
{
    uint64_t since = spans_get(&lane->since_ns);
    unsigned phase = atomic_load_explicit(&lane->phase, memory_order_relaxed);
    for (unsigned p = 0; p < MST_PHASES; p++) {
        uint64_t ns = spans_get(&lane->ns[p]);
        if (p == phase && now_ns > since)
            ns += now_ns - since;
        if (ns > seen[p])
            seen[p] = ns;
        out->ns[p] += seen[p];
    }
}

void mst_spans_sum(mst_spans *self, uint64_t now_ns, mst_span_sums *out, uint64_t *stale_max)
{
    memset(out, 0, sizeof *out);
    if (stale_max != NULL)
        *stale_max = 0;
    for (unsigned i = 0; i < MST_LANE_MAX; i++) {
        mst_lane *lane = &self->lanes[i];
        if (!atomic_load_explicit(&lane->used, memory_order_acquire))
            continue;
        out->threads += atomic_load_explicit(&lane->phase, memory_order_relaxed) != MST_PHASES &&
                        !atomic_load_explicit(&lane->beside, memory_order_relaxed);
        spans_sum_phases(lane, self->seen[i], now_ns, out);
        out->steps += spans_get(&lane->steps);
        out->rows += spans_get(&lane->rows);
        out->bytes_in += spans_get(&lane->bytes_in);
        out->bytes_out += spans_get(&lane->bytes_out);
        out->dropped_rows += spans_get(&lane->dropped_rows);
        out->stale_sum += spans_get(&lane->stale_sum);
        out->stale_count += spans_get(&lane->stale_count);
        out->loss += atomic_load_explicit(&lane->loss, memory_order_relaxed);
        out->weight += atomic_load_explicit(&lane->weight, memory_order_relaxed);
        out->judged += spans_get(&lane->judged);
        out->correct += spans_get(&lane->correct);
        if (stale_max != NULL) {
            uint64_t max = atomic_exchange_explicit(&lane->stale_max, 0, memory_order_relaxed);
            *stale_max = max > *stale_max ? max : *stale_max;
        }
    }
}
