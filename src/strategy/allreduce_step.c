/* Strategy allreduce: one step of a rank; contract in allreduce_impl.h.
 *
 * The dense gradient is reduced slice by slice (grad_slices.h). The update of a range is applied when the
 * next step's forward pass needs its weights, slice by slice as they arrive: the range that is ready first is
 * needed last, so most of the reduction overlaps with the rest of the backward pass and the next forward
 * pass. The last step of an order is drained at its end.
 *
 * Several training threads (models that do not use threads themselves) have their own gradients, which are
 * added in thread order before anything is posted; and models with a sparse part wait for it
 * (sparse_exchange.h): there all threads apply the update at the end of the step.
 *
 * Invariant: a range's part of the flat vector is zero when its backward pass begins, which adds to it.
 * `need` comes before that: it applies the update and clears the range. Where the update was applied before
 * (at the end of an order, and in steps without overlap) the gradient is kept so that it can be read between
 * orders, and the next step clears all of it first. Models that overwrite their gradient need no zeros. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "observe/trace_file.h"
#include "strategy/allreduce_impl.h"
#include "tensor/clip.h"

/* ---- the update ---- */

/* The factor of --clip-norm, for which all slices must have arrived. square: of the sparse part. */
static mst_status step_find_clip(mst_allreduce *self, double square)
{
    const mst_grad *grad = &self->threads[0].grad;
    double limit = self->base.env.optimizer->options.clip_norm;
    self->pending.clip = 1.0f;
    self->pending.clip_known = true;
    if (limit <= 0.0)
        return MST_OK;
    for (uint32_t i = 0; i < self->slices.n_ops; i++)
        TRY(mst_grad_slices_wait(&self->slices, i, &self->counts.wait_seconds));
    for (uint32_t r = 0; r < grad->n_ranges; r++)
        square += grad->ranges[r].state ? 0.0 : mst_clip_squares(grad->ranges[r].g, grad->ranges[r].size);
    self->pending.clip = mst_clip_factor(square, limit);
    return MST_OK;
}

/* Applies floats [from, to) of a range's gradient. */
static void step_apply_part(mst_allreduce *self, uint32_t r, uint64_t from, uint64_t to)
{
    mst_params *params = self->base.env.params;
    const mst_range *range = &self->threads[0].grad.ranges[r];
    float *g = range->g + from;
    uint64_t at = range->offset + from, n = to - from;
    if (n == 0)
        return;
    if (range->state) {
        memcpy(params->w + at, g, n * sizeof *g);
    } else {
        mst_clip_scale(g, n, self->pending.clip);
        mst_optimizer_apply_range(self->base.env.optimizer, &self->pending.update, params, at, g, n);
    }
}

/* Applies a range's update, if there is one, as its slices arrive; clear: and leaves zeros. */
static mst_status step_apply_range(mst_allreduce *self, uint32_t r, bool clear)
{
    uint64_t at = self->slices.flat_at[r], end = at + self->threads[0].grad.ranges[r].size;
    if (!self->pending.range[r])
        return MST_OK;
    if (!self->pending.clip_known)
        TRY(step_find_clip(self, 0.0));
    for (uint32_t i = self->slices.first_op[r]; i < self->slices.end_op[r]; i++) {
        uint64_t from, to;
        mst_grad_slices_extent(&self->slices, i, &from, &to);
        TRY(mst_grad_slices_wait(&self->slices, i, &self->counts.wait_seconds));
        mst_phase before = mst_span_enter(MST_PHASE_APPLY);
        uint64_t start = mst_trace_now();
        from = (from > at ? from : at) - at;
        to = (to < end ? to : end) - at;
        step_apply_part(self, r, from, to);
        mst_trace_op("apply", start, mst_trace_floats(to - from, 0));
        mst_span_enter(before);
    }
    self->pending.range[r] = false;
    if (clear && !self->overwritten)
        memset(self->slices.flat + at, 0, (end - at) * sizeof *self->slices.flat);
    self->pending.applied |= !clear;
    return MST_OK;
}

static mst_status step_drain(mst_allreduce *self, bool clear)
{
    for (uint32_t r = 0; r < self->threads[0].grad.n_ranges; r++)
        TRY(step_apply_range(self, r, clear));
    return MST_OK;
}

mst_status mst_allreduce_drain(mst_allreduce *self)
{
    return step_drain(self, false);
}

/* ---- the model's hooks ---- */

typedef struct hooked_step {
    mst_step base;
    mst_allreduce *self;
} hooked_step;

static mst_status step_on_need(mst_step *step, uint32_t range)
{
    return step_apply_range(((hooked_step *)step)->self, range, true);
}

/* The update of the step before this one has been applied to all ranges whose gradients are final now: need
 * was called for every one of them. */
static mst_status step_on_ready(mst_step *step, uint32_t range)
{
    mst_allreduce *self = ((hooked_step *)step)->self;
    return mst_grad_slices_ready(&self->slices, range);
}

/* ---- threads ---- */

static mst_batch step_share(const mst_allreduce *self, unsigned t)
{
    uint32_t rows = self->now.to - self->now.from;
    uint32_t from = self->now.from + (uint32_t)((uint64_t)rows * t / self->n);
    uint32_t to = self->now.from + (uint32_t)((uint64_t)rows * (t + 1) / self->n);
    return (mst_batch){.rows = self->now.global.rows + from, .n_rows = to - from};
}

static mst_status step_compute(mst_allreduce *self, unsigned t, mst_step *step)
{
    const mst_model *model = self->base.env.model;
    mst_allreduce_thread *w = &self->threads[t];
    mst_batch share = step_share(self, t);
    uint32_t from = (uint32_t)(share.rows - self->now.global.rows);
    uint64_t start = mst_trace_now();
    for (uint32_t i = 0; w->grad.owners != NULL && i < w->grad.n_owners; i++)
        w->grad.owners[i].n = 0;
    if (t > 0) {
        mst_grad_clear(&w->grad);
    } else {
        w->grad.fresh = self->overwritten;
        if (self->pending.applied && !self->overwritten)
            memset(self->slices.flat, 0, self->slices.n_flat * sizeof *self->slices.flat);
        self->pending.applied = false;
    }
    mst_trace_op("clear", start, (mst_trace_output){0});
    if (self->reduction == MST_REDUCTION_ONLY)
        return MST_OK;
    start = mst_now_ns();
    TRY(mst_feed_fill(self->now.feed, 0, from, from + share.n_rows));
    if (t == 0)
        self->counts.input_seconds += mst_seconds_since(start);
    step->seed = self->base.env.seed;
    step->number = self->now.step;
    step->first_row = from;
    start = mst_now_ns();
    double waited = self->counts.wait_seconds;
    mst_span_enter(MST_PHASE_COMPUTE);
    mst_status st = model->ops->compute(model, w->scratch, &share, &self->weights,
                                        1.0f / (float)self->now.global.n_rows, &w->grad, step, &w->loss);
    if (t == 0)
        self->counts.compute_seconds += mst_seconds_since(start) - (self->counts.wait_seconds - waited);
    mst_span_enter(MST_PHASE_PREPARE);
    return st;
}

static void step_keep_status(mst_allreduce_thread *w, mst_status st)
{
    w->status = st;
    mst_error_save(&w->error, st);
}

mst_status mst_allreduce_collect(mst_allreduce *self)
{
    for (unsigned t = 0; t < self->n; t++)
        if (self->threads[t].status != MST_OK)
            return mst_error_restore(&self->threads[t].error);
    return MST_OK;
}

static void step_compute_thread(void *arg, unsigned t)
{
    mst_allreduce *self = arg;
    mst_step step = {0};
    step_keep_status(&self->threads[t], step_compute(self, t, &step));
}

/* Adds the threads' dense gradients in thread order. */
static void step_sum_thread(void *arg, unsigned t)
{
    mst_allreduce *self = arg;
    mst_grad_sum_slices(&self->threads[0].grad, sizeof *self->threads, self->n, t, self->n,
                        &self->threads[0].grad);
}

static void step_apply_thread(void *arg, unsigned t)
{
    mst_allreduce *self = arg;
    const mst_grad *grad = &self->threads[0].grad;
    for (uint32_t r = 0; r < grad->n_ranges; r++) {
        uint64_t from, to;
        mst_grad_slice(grad->ranges[r].size, t, self->n, &from, &to);
        step_apply_part(self, r, from, to);
    }
}

/* ---- a step ---- */

/* All ranges that were not posted before. */
static mst_status step_post_all(mst_allreduce *self)
{
    for (uint32_t r = 0; r < self->slices.n_ranges; r++)
        self->pending.range[r] = true;
    return mst_grad_slices_ready_all(&self->slices);
}

/* The learning rate and the clip of the gradients under way. */
static void step_begin_update(mst_allreduce *self)
{
    self->pending.update = mst_optimizer_update(self->base.env.optimizer, self->now.step);
    self->pending.clip_known = false;
}

/* One thread on a dense model: need and ready do most of it. */
static mst_status step_overlapped(mst_allreduce *self)
{
    hooked_step step = {.base = {.need = step_on_need, .ready = step_on_ready}, .self = self};
    TRY(step_compute(self, 0, &step.base));
    TRY(step_drain(self, true)); /* ranges that the model did not need */
    step_begin_update(self);
    uint64_t start = mst_trace_now();
    mst_status st = step_post_all(self);
    mst_trace_op("push", start, mst_trace_floats(self->slices.n_flat, 0));
    return st;
}

mst_status mst_allreduce_step(mst_allreduce *self)
{
    bool sparse = self->threads[0].grad.width != 0;
    double square = 0.0;
    mst_grad_slices_begin(&self->slices);
    if (self->n == 1 && !sparse)
        return step_overlapped(self);
    mst_team_run(self->team, step_compute_thread, self);
    TRY(mst_allreduce_collect(self));
    uint64_t start = mst_trace_now();
    if (self->n > 1)
        mst_team_run(self->team, step_sum_thread, self);
    start = mst_trace_op("sum dense", start, mst_trace_floats(self->slices.n_flat, 0));
    step_begin_update(self);
    TRY(step_post_all(self));
    mst_trace_op("push", start, mst_trace_floats(self->slices.n_flat, 0));
    if (sparse)
        TRY(mst_sparse_sum(&self->sparse, &square, &self->counts.wait_seconds));
    for (uint32_t i = 0; i < self->slices.n_ops; i++)
        TRY(mst_grad_slices_wait(&self->slices, i, &self->counts.wait_seconds));
    TRY(step_find_clip(self, square));
    mst_span_enter(MST_PHASE_APPLY);
    start = mst_trace_now();
    mst_team_run(self->team, step_apply_thread, self);
    for (uint32_t r = 0; r < self->threads[0].grad.n_ranges; r++)
        self->pending.range[r] = false;
    self->pending.applied = true;
    if (sparse)
        mst_sparse_apply(&self->sparse, self->base.env.optimizer, &self->pending.update, self->pending.clip,
                         self->base.env.params);
    mst_trace_op("apply", start, (mst_trace_output){0});
    mst_span_enter(MST_PHASE_PREPARE);
    return MST_OK;
}
