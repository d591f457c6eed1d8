/* The slices of a dense gradient; contract in grad_slices.h. */
#include "strategy/grad_slices.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "observe/spans.h"

#define SLICE (1u << 20) /* floats */
#define MOST  2048       /* slices */
#define LINE  16         /* floats: ranges begin on lines */
#define SIZES 8          /* of slices that are measured */
#define TIMES 3

static void slices_add(mst_grad_slices *self, uint64_t from, uint64_t to, uint32_t last_range, bool copy)
{
    if (to == from)
        return;
    self->last_range[self->n_ops] = last_range;
    self->ops[self->n_ops++] =
        (mst_reduce_op){.data = self->flat + from, .n = to - from, .copy = copy, .way = MST_REDUCE_DIRECT};
}

/* Cuts the vector; from is the beginning of the slice under construction. */
static void slices_split(mst_grad_slices *self, const mst_grad *layout, uint64_t slice)
{
    uint64_t from = 0;
    for (uint32_t r = layout->n_ranges; r-- > 0;) {
        uint64_t at = self->flat_at[r], end = at + layout->ranges[r].size;
        bool state = layout->ranges[r].state;
        if (state) { /* a slice of its own */
            slices_add(self, from, at, r + 1, false);
            slices_add(self, at, end, r, true);
            from = end;
            continue;
        }
        while (end - from > slice) {
            slices_add(self, from, from + slice, r, false);
            from += slice;
        }
        if (end - from >= slice / 2 || r == 0) {
            slices_add(self, from, end, r, false);
            from = end;
        }
    }
}

/* Finds the slices that hold each range. */
static void slices_find(mst_grad_slices *self, const mst_grad *layout)
{
    for (uint32_t r = 0; r < layout->n_ranges; r++) {
        uint64_t at = self->flat_at[r], end = at + layout->ranges[r].size;
        self->first_op[r] = self->end_op[r] = 0;
        for (uint32_t i = 0; i < self->n_ops && end > at; i++) {
            uint64_t from = (uint64_t)(self->ops[i].data - self->flat), to = from + self->ops[i].n;
            if (to <= at || from >= end)
                continue;
            if (self->end_op[r] == 0)
                self->first_op[r] = i;
            self->end_op[r] = i + 1;
        }
    }
}

mst_status mst_grad_slices_init(mst_grad_slices *self, mst_comm *comm, const mst_grad *layout,
                                mst_float_format wire, bool reduces)
{
    self->comm = comm;
    self->reduces = reduces;
    self->n_ranges = layout->n_ranges;
    for (uint32_t r = layout->n_ranges; r-- > 0;) {
        self->flat_at[r] = self->n_flat;
        self->n_flat += (layout->ranges[r].size + LINE - 1) / LINE * LINE;
    }
    uint64_t slice = self->n_flat / MOST > SLICE ? (self->n_flat / MOST + LINE) / LINE * LINE : SLICE;
    uint64_t most = self->n_flat / slice + 2ull * layout->n_ranges + 2;
    self->flat = mst_alloc_lines((self->n_flat + LINE) * sizeof *self->flat);
    self->ops = mst_calloc(most, sizeof *self->ops);
    self->last_range = mst_calloc(most, sizeof *self->last_range);
    if (self->flat == NULL || self->ops == NULL || self->last_range == NULL)
        return mst_fail_memory();
    memset(self->flat, 0, (self->n_flat + LINE) * sizeof *self->flat);
    slices_split(self, layout, slice);
    slices_find(self, layout);
    return mst_comm_shape(self->comm, wire, slice);
}

/* Posts the slices whose ranges are all ready, in order. */
static mst_status slices_post(mst_grad_slices *self)
{
    while (self->next_op < self->n_ops) {
        uint32_t upper = self->next_op > 0 ? self->last_range[self->next_op - 1] : self->n_ranges;
        for (uint32_t r = upper; r-- > self->last_range[self->next_op];)
            if (!self->ready[r])
                return MST_OK;
        if (!self->ready[self->last_range[self->next_op]])
            return MST_OK;
        if (self->reduces)
            TRY(mst_comm_post(self->comm, &self->ops[self->next_op]));
        self->next_op++;
    }
    return MST_OK;
}

void mst_grad_slices_begin(mst_grad_slices *self)
{
    self->next_op = 0;
    for (uint32_t r = 0; r < self->n_ranges; r++)
        self->ready[r] = false;
}

mst_status mst_grad_slices_ready(mst_grad_slices *self, uint32_t range)
{
    self->ready[range] = true;
    return slices_post(self);
}

mst_status mst_grad_slices_ready_all(mst_grad_slices *self)
{
    for (uint32_t r = 0; r < self->n_ranges; r++)
        self->ready[r] = true;
    return slices_post(self);
}

mst_status mst_grad_slices_wait(mst_grad_slices *self, uint32_t i, double *seconds)
{
    mst_reduce_op *op = &self->ops[i];
    if (atomic_load(&op->done) == op->posted)
        return MST_OK;
    uint64_t start = mst_now_ns();
    mst_phase before = mst_span_enter(MST_PHASE_BARRIER_WAIT);
    mst_status st = mst_comm_wait(self->comm, op);
    mst_span_enter(before);
    *seconds += mst_seconds_since(start);
    return st;
}

void mst_grad_slices_extent(const mst_grad_slices *self, uint32_t i, uint64_t *from, uint64_t *to)
{
    *from = (uint64_t)(self->ops[i].data - self->flat);
    *to = *from + self->ops[i].n;
}

void mst_grad_slices_fini(mst_grad_slices *self)
{
    mst_free(self->flat);
    mst_free(self->ops);
    mst_free(self->last_range);
}

mst_status mst_grad_slices_choose(mst_grad_slices *self, mst_reduce_way way)
{
    size_t sizes[SIZES];
    mst_reduce_way ways[SIZES];
    uint32_t n_sizes = 0;
    for (uint32_t i = 0; i < self->n_ops; i++) {
        mst_reduce_op *op = &self->ops[i];
        uint32_t s = 0;
        if (op->copy)
            continue;
        if (way != MST_REDUCE_WAYS) {
            op->way = way;
            continue;
        }
        while (s < n_sizes && (op->n * 2 < sizes[s] || op->n > sizes[s] * 2))
            s++;
        if (s == SIZES)
            s--;
        if (s == n_sizes) {
            double gather, direct;
            TRY(mst_comm_measure(self->comm, op, MST_REDUCE_GATHER, TIMES, &gather));
            TRY(mst_comm_measure(self->comm, op, MST_REDUCE_DIRECT, TIMES, &direct));
            sizes[n_sizes] = op->n;
            ways[n_sizes++] = gather < direct ? MST_REDUCE_GATHER : MST_REDUCE_DIRECT;
        }
        op->way = ways[s];
    }
    memset(self->flat, 0, self->n_flat * sizeof *self->flat);
    return MST_OK;
}
