/* Strategy allreduce: one step of a rank; contract in allreduce_impl.h.
 *
 * The dense gradient of a rank lies in one flat vector, its ranges in reverse order: the order in which the
 * backward pass finishes them. The vector is cut into slices of about 4 MB; a slice is posted to the
 * communication thread when the last of its ranges is ready, and its sum replaces it there. The update of a
 * range is applied when the next step's forward pass needs its weights, slice by slice as they arrive: what
 * is ready first is needed last, so that most of the reduction has the rest of the backward pass and the next
 * forward pass to happen in. The last step of an order is drained at its end.
 *
 * Several training threads (models that do not use threads themselves) have gradients of their own, which are
 * added in thread order before anything is posted; and models with a sparse part wait for it: there the
 * update is applied at the end of the step, by all threads.
 *
 * Invariants
 * 1. A slice belongs to the communication thread from post to wait.
 * 2. Slices are posted in order, whatever order ranges become ready in.
 * 3. A range's part of `flat` is zero when its backward pass begins, which adds to it. need comes before
 * that: it applies the update and clears the range. Where the update was applied before (the end of an order,
 * and steps without overlap) the gradient stays, for whoever looks at it between orders, and the next step
 * clears all of it first. Models that overwrite their gradient need no zeros. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "observe/spans.h"
#include "strategy/allreduce_impl.h"
#include "tensor/clip.h"

#define SLICE (1u << 20) /* floats */
#define MOST  2048       /* slices */
#define LINE  16         /* floats: ranges begin on lines */

/* ---- slices ---- */

static void add_op(mst_allreduce *self, uint64_t from, uint64_t to, uint32_t last_range, bool copy)
{
    if (to == from)
        return;
    self->last_range[self->n_ops] = last_range;
    self->ops[self->n_ops++] =
        (mst_reduce_op){.data = self->flat + from, .n = to - from, .copy = copy, .way = MST_REDUCE_DIRECT};
}

/* Cuts flat; *from is where the slice under construction begins. */
static void cut(mst_allreduce *self, const mst_grad *layout, uint64_t slice)
{
    uint64_t from = 0;
    for (uint32_t r = layout->n_ranges; r-- > 0;) {
        uint64_t at = self->flat_at[r], end = at + layout->ranges[r].size;
        bool state = layout->ranges[r].state;
        if (state) { /* a slice of its own */
            add_op(self, from, at, r + 1, false);
            add_op(self, at, end, r, true);
            from = end;
            continue;
        }
        while (end - from > slice) {
            add_op(self, from, from + slice, r, false);
            from += slice;
        }
        if (end - from >= slice / 2 || r == 0) {
            add_op(self, from, end, r, false);
            from = end;
        }
    }
}

/* Which slices hold a range. */
static void find_ops(mst_allreduce *self, const mst_grad *layout)
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

mst_status mst_allreduce_lay_out(mst_allreduce *self, const mst_grad *layout)
{
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
    cut(self, layout, slice);
    find_ops(self, layout);
    return mst_comm_shape(self->comm, (mst_wire)self->base.options.wire, slice);
}

/* Posts the slices whose ranges are all ready, in order. */
static mst_status post_ready(mst_allreduce *self)
{
    const mst_grad *grad = &self->workers[0].grad;
    while (self->next_op < self->n_ops) {
        uint32_t upper = self->next_op > 0 ? self->last_range[self->next_op - 1] : grad->n_ranges;
        for (uint32_t r = upper; r-- > self->last_range[self->next_op];)
            if (!self->ready[r])
                return MST_OK;
        if (!self->ready[self->last_range[self->next_op]])
            return MST_OK;
        if (mst_allreduce_reduces(self))
            TRY(mst_comm_post(self->comm, &self->ops[self->next_op]));
        self->next_op++;
    }
    return MST_OK;
}

static mst_status post_all(mst_allreduce *self)
{
    for (uint32_t r = 0; r < self->workers[0].grad.n_ranges; r++)
        self->ready[r] = self->pending[r] = true;
    return post_ready(self);
}

static mst_status wait_op(mst_allreduce *self, mst_reduce_op *op)
{
    if (atomic_load(&op->done) == op->posted)
        return MST_OK;
    uint64_t start = mst_now_ns();
    mst_phase before = mst_span_enter(MST_PHASE_BARRIER_WAIT);
    mst_status st = mst_comm_wait(self->comm, op);
    mst_span_enter(before);
    self->counts.wait_seconds += mst_seconds_since(start);
    return st;
}

/* ---- the update ---- */

/* What the gradient is multiplied with under --clip-norm; all slices are there then. sparse: the squares of
 * the sparse part. */
static mst_status find_clip(mst_allreduce *self, double square)
{
    const mst_grad *grad = &self->workers[0].grad;
    double limit = self->base.env.optimizer->options.clip_norm;
    self->clip = 1.0f;
    self->clip_known = true;
    if (limit <= 0.0)
        return MST_OK;
    for (uint32_t i = 0; i < self->n_ops; i++)
        TRY(wait_op(self, &self->ops[i]));
    for (uint32_t r = 0; r < grad->n_ranges; r++)
        square += grad->ranges[r].state ? 0.0 : mst_clip_squares(grad->ranges[r].g, grad->ranges[r].size);
    self->clip = mst_clip_factor(square, limit);
    return MST_OK;
}

/* Applies floats [from, to) of a range's gradient. */
static void apply_part(mst_allreduce *self, uint32_t r, uint64_t from, uint64_t to)
{
    const mst_optimizer *optimizer = self->base.env.optimizer;
    mst_params *params = self->base.env.params;
    const mst_range *range = &self->workers[0].grad.ranges[r];
    float *g = range->g + from, *slots[MST_SLOT_MAX];
    uint64_t at = range->offset + from, n = to - from;
    if (n == 0)
        return;
    if (range->state) {
        memcpy(params->w + at, g, n * sizeof *g);
    } else {
        for (uint32_t s = 0; s < params->n_slots; s++)
            slots[s] = params->slots[s] + at;
        mst_clip_scale(g, n, self->clip);
        optimizer->ops->apply_range(optimizer, &self->update, params->w + at, slots, g, n);
    }
}

/* Applies a range's update, if there is one, as its slices arrive; clear: and leaves zeros. */
static mst_status apply_range(mst_allreduce *self, uint32_t r, bool clear)
{
    uint64_t at = self->flat_at[r], end = at + self->workers[0].grad.ranges[r].size;
    if (!self->pending[r])
        return MST_OK;
    if (!self->clip_known)
        TRY(find_clip(self, 0.0));
    for (uint32_t i = self->first_op[r]; i < self->end_op[r]; i++) {
        uint64_t from = (uint64_t)(self->ops[i].data - self->flat), to = from + self->ops[i].n;
        TRY(wait_op(self, &self->ops[i]));
        mst_phase before = mst_span_enter(MST_PHASE_APPLY);
        apply_part(self, r, (from > at ? from : at) - at, (to < end ? to : end) - at);
        mst_span_enter(before);
    }
    self->pending[r] = false;
    if (clear && !self->overwritten)
        memset(self->flat + at, 0, (end - at) * sizeof *self->flat);
    self->applied |= !clear;
    return MST_OK;
}

static mst_status drain(mst_allreduce *self, bool clear)
{
    for (uint32_t r = 0; r < self->workers[0].grad.n_ranges; r++)
        TRY(apply_range(self, r, clear));
    return MST_OK;
}

mst_status mst_allreduce_drain(mst_allreduce *self)
{
    return drain(self, false);
}

/* ---- the model's hooks ---- */

typedef struct hooked_step {
    mst_step base;
    mst_allreduce *self;
} hooked_step;

static mst_status on_need(mst_step *step, uint32_t range)
{
    return apply_range(((hooked_step *)step)->self, range, true);
}

/* The update of the step before this one has been applied to all ranges whose gradients are final now: need
 * was called for every one of them. */
static mst_status on_ready(mst_step *step, uint32_t range)
{
    mst_allreduce *self = ((hooked_step *)step)->self;
    self->ready[range] = true;
    return post_ready(self);
}

/* ---- threads ---- */

static mst_batch share_of(const mst_allreduce *self, unsigned t)
{
    uint32_t rows = self->to - self->from;
    uint32_t from = self->from + (uint32_t)((uint64_t)rows * t / self->n);
    uint32_t to = self->from + (uint32_t)((uint64_t)rows * (t + 1) / self->n);
    return (mst_batch){.rows = self->global.rows + from, .n_rows = to - from};
}

static mst_status compute(mst_allreduce *self, unsigned t, mst_step *step)
{
    const mst_model *model = self->base.env.model;
    mst_allreduce_worker *w = &self->workers[t];
    mst_batch share = share_of(self, t);
    uint32_t from = (uint32_t)(share.rows - self->global.rows);
    for (uint32_t i = 0; w->grad.owners != NULL && i < w->grad.n_owners; i++)
        w->grad.owners[i].n = 0;
    if (t > 0) {
        mst_grad_clear(&w->grad);
    } else {
        w->grad.fresh = self->overwritten;
        if (self->applied && !self->overwritten)
            memset(self->flat, 0, self->n_flat * sizeof *self->flat);
        self->applied = false;
    }
    if (self->reduction == MST_REDUCTION_ONLY)
        return MST_OK;
    uint64_t start = mst_now_ns();
    TRY(mst_feed_fill(self->feed, 0, from, from + share.n_rows));
    if (t == 0)
        self->counts.input_seconds += mst_seconds_since(start);
    step->seed = self->base.env.seed;
    step->number = self->step;
    step->first_row = from;
    start = mst_now_ns();
    double waited = self->counts.wait_seconds;
    mst_span_enter(MST_PHASE_COMPUTE);
    mst_status st = model->ops->compute(model, w->scratch, &share, &self->weights,
                                        1.0f / (float)self->global.n_rows, &w->grad, step, &w->loss);
    if (t == 0)
        self->counts.compute_seconds += mst_seconds_since(start) - (self->counts.wait_seconds - waited);
    mst_span_enter(MST_PHASE_PREPARE);
    return st;
}

static void keep_status(mst_allreduce_worker *w, mst_status st)
{
    w->status = st;
    mst_error_save(&w->error, st);
}

mst_status mst_allreduce_collect(mst_allreduce *self)
{
    for (unsigned t = 0; t < self->n; t++)
        if (self->workers[t].status != MST_OK)
            return mst_error_restore(&self->workers[t].error);
    return MST_OK;
}

static void compute_thread(void *arg, unsigned t)
{
    mst_allreduce *self = arg;
    mst_step step = {0};
    keep_status(&self->workers[t], compute(self, t, &step));
}

/* Adds the threads' dense gradients in thread order. */
static void sum_thread(void *arg, unsigned t)
{
    mst_allreduce *self = arg;
    for (unsigned s = 1; s < self->n; s++)
        mst_grad_add_slices(&self->workers[0].grad, &self->workers[s].grad, t, self->n);
}

static void apply_thread(void *arg, unsigned t)
{
    mst_allreduce *self = arg;
    const mst_grad *grad = &self->workers[0].grad;
    for (uint32_t r = 0; r < grad->n_ranges; r++) {
        uint64_t from, to;
        mst_grad_slice(grad->ranges[r].size, t, self->n, &from, &to);
        apply_part(self, r, from, to);
    }
}

/* ---- a step ---- */

static void begin(mst_allreduce *self)
{
    uint32_t n = self->workers[0].grad.n_ranges;
    self->next_op = 0;
    for (uint32_t r = 0; r < n; r++)
        self->ready[r] = false;
}

/* What the gradients under way will be applied with. */
static void begin_update(mst_allreduce *self)
{
    self->update = (mst_update){.lr = mst_learning_rate(&self->base.env.optimizer->options, self->step),
                                .step = self->step};
    self->clip_known = false;
}

/* One thread on a dense model: need and ready do most of it. */
static mst_status step_overlapped(mst_allreduce *self)
{
    hooked_step step = {.base = {.need = on_need, .ready = on_ready}, .self = self};
    TRY(compute(self, 0, &step.base));
    TRY(drain(self, true)); /* what the model did not ask for */
    begin_update(self);
    return post_all(self);
}

mst_status mst_allreduce_step(mst_allreduce *self)
{
    bool sparse = self->workers[0].grad.width != 0;
    double square = 0.0;
    begin(self);
    if (self->n == 1 && !sparse)
        return step_overlapped(self);
    mst_team_run(self->team, compute_thread, self);
    TRY(mst_allreduce_collect(self));
    if (self->n > 1)
        mst_team_run(self->team, sum_thread, self);
    begin_update(self);
    TRY(post_all(self));
    if (sparse)
        TRY(mst_sparse_sum(self, &square));
    for (uint32_t i = 0; i < self->n_ops; i++)
        TRY(wait_op(self, &self->ops[i]));
    TRY(find_clip(self, square));
    mst_span_enter(MST_PHASE_APPLY);
    mst_team_run(self->team, apply_thread, self);
    for (uint32_t r = 0; r < self->workers[0].grad.n_ranges; r++)
        self->pending[r] = false;
    self->applied = true;
    mst_status st = sparse ? mst_sparse_apply(self, self->clip) : MST_OK;
    mst_span_enter(MST_PHASE_PREPARE);
    return st;
}
