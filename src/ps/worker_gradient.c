/* Gradients on pulled weights; contract in worker_impl.h.
 *
 * A slot's floats are the model's dense ranges, in ascending order, then the weights of the batch's keys; a
 * gradient is laid out the same way. The model computes on them as it would on the store: its ranges and its
 * key 0 are pointed there, and the rows carry localised keys. Keys below the dense prefix keep their numbers,
 * which is right because the prefix is the first range. With --dense-model the slot holds the whole vector
 * and rows stay as they are.
 *
 * Sums have the order they have in the local strategy: row by row, key by key. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "ps/worker_impl.h"

/* Where range i stands among a slot's floats, and the dense prefix. */
static mst_status place_ranges(mst_worker *self)
{
    const mst_grad *l = &self->layout;
    const mst_range *prefix = NULL;
    for (uint32_t i = 0; i < l->n_ranges; i++) {
        uint64_t at = 0;
        for (uint32_t j = 0; j < l->n_ranges; j++)
            at += l->ranges[j].offset < l->ranges[i].offset ? l->ranges[j].size : 0;
        self->range_at[i] = self->job->dense_model ? l->ranges[i].offset : at;
        if (l->width != 0 && l->ranges[i].size > 0 && l->ranges[i].offset == l->sparse_offset)
            prefix = &l->ranges[i];
    }
    self->sparse_at = self->job->dense_model ? l->sparse_offset : 0;
    if (prefix == NULL)
        return MST_OK;
    self->n_prefix = (uint32_t)(prefix->size / l->width);
    if (prefix->size % l->width != 0 || (!self->job->dense_model && self->range_at[prefix - l->ranges] != 0))
        return mst_fail(
            MST_EUNSUPPORTED,
            "the dense prefix of %s is not the first of its parameters: train it with --dense-model",
            self->job->model->ops->name);
    return MST_OK;
}

/* Keys of the sparse view. */
static uint64_t n_sparse_keys(const mst_worker *self)
{
    const mst_params *p = self->job->params;
    for (uint32_t i = 0; i < p->n_views; i++)
        if (p->views[i].width != 0 && p->views[i].offset == self->layout.sparse_offset)
            return p->views[i].size / p->views[i].width;
    return 0;
}

mst_status mst_worker_gradient_init(mst_worker *self)
{
    const mst_model *model = self->job->model;
    memset(&self->layout, 0, sizeof self->layout);
    model->ops->layout(model, self->job->params, &self->layout);
    TRY(place_ranges(self));
    if (self->layout.width != 0) {
        TRY(mst_grad_init(&self->sparse, NULL, 0, self->layout.sparse_offset, self->layout.width, 1));
        if (!self->job->dense_model)
            TRY(mst_row_localiser_new(n_sparse_keys(self), self->n_slots, &self->localiser));
    }
    TRY(mst_model_scratch_new(model, self->job->batch, self->job->n_threads, true, &self->scratch));
    self->coefs = mst_calloc(self->max_rows, sizeof *self->coefs);
    if (self->coefs == NULL)
        return mst_fail_memory();
    return MST_OK;
}

void mst_worker_gradient_fini(mst_worker *self)
{
    mst_grad_fini(&self->sparse);
    mst_model_scratch_free(self->job->model, self->scratch);
    mst_free(self->coefs);
    self->scratch = NULL;
    self->coefs = NULL;
}

void mst_worker_ranges(const mst_worker *self, mst_key_list *list)
{
    const mst_grad *l = &self->layout;
    list->n_ranges = 0;
    if (self->job->dense_model) {
        list->ranges[list->n_ranges++] = (mst_extent){0, self->job->params->size};
        return;
    }
    for (uint32_t i = 0; i < l->n_ranges; i++) { /* in ascending order; a layout has few */
        uint32_t at = list->n_ranges;
        if (l->ranges[i].size == 0)
            continue;
        for (; at > 0 && list->ranges[at - 1].first > l->ranges[i].offset; at--)
            list->ranges[at] = list->ranges[at - 1];
        list->ranges[at] = (mst_extent){l->ranges[i].offset, l->ranges[i].size};
        list->n_ranges++;
    }
}

static mst_status gradient_room(mst_turn *turn, uint64_t floats)
{
    if (floats <= turn->g_room)
        return MST_OK;
    mst_free(turn->g);
    turn->g_room = 0;
    uint64_t room = floats + floats / 4;
    turn->g = mst_alloc_lines((size_t)room * sizeof *turn->g);
    if (turn->g == NULL)
        return mst_fail_memory();
    turn->g_room = room;
    return MST_OK;
}

/* What is random in the step. Asynchronous workers draw numbers of their own; worker 0 alone draws what local
 * training draws. */
static mst_step step_of(const mst_worker *self, uint32_t slot)
{
    const mst_turn *turn = &self->turns[slot];
    uint64_t apart = self->job->mode == MST_MODE_SYNC ? 0 : self->options.net.self.index;
    return (mst_step){
        .seed = self->job->seed + apart * 0x9E3779B97F4A7C15ull,
        .number = turn->step != 0 ? turn->step : mst_client_reply(self->client, slot)->version + 1,
        .first_row = turn->first_row,
    };
}

/* A share that has grown, because another worker was lost, is computed in parts of a batch each. With
 * clipping no gradient is final before all are there. */
static mst_status compute_parts(mst_worker *self, uint32_t slot, const mst_weights *w, float scale,
                                mst_grad *grad, mst_loss_sum *sum)
{
    const mst_model *model = self->job->model;
    const mst_batch *batch = &self->turns[slot].batch;
    mst_overlap_step step = {.step = step_of(self, slot)};
    mst_status st = MST_OK;
    if (self->overlap.on)
        mst_worker_overlap_begin(self, slot, &step);
    for (uint32_t from = 0; st == MST_OK && from < batch->n_rows; from += self->job->batch) {
        mst_batch part = mst_batch_part(batch, from, self->job->batch);
        if (self->overlap.on && from + part.n_rows == batch->n_rows && !self->job->clip)
            mst_worker_overlap_last(&step);
        st = model->ops->compute(model, self->scratch, &part, w, scale, grad, &step.step, sum);
        step.step.first_row += part.n_rows;
    }
    if (!self->overlap.on)
        return st;
    mst_error error;
    mst_error_save(&error, st);
    mst_status end = mst_worker_overlap_end(self);
    self->waited_seconds = (double)self->overlap.waited_ns * 1e-9;
    return st != MST_OK ? mst_error_restore(&error) : end;
}

/* The model's weights, or its gradient, at a slot's floats. */
static void point(const mst_worker *self, float *floats, mst_weights *out)
{
    for (uint32_t i = 0; i < self->layout.n_ranges; i++)
        out->ranges[i] = floats + self->range_at[i];
    out->sparse = self->layout.width != 0 ? floats + self->sparse_at : NULL;
    out->map = NULL;
    out->map_scratch = NULL;
}

static void add_contributions(const mst_contributions *list, uint32_t width, float *g)
{
    for (size_t i = 0; i < list->n; i++) {
        float *at = g + (size_t)list->keys[i] * width;
        for (uint32_t c = 0; c < width; c++)
            at[c] += list->values[i * width + c];
    }
}

static double square_of(const float *g, uint64_t n)
{
    double square = 0.0;
    for (uint64_t i = 0; i < n; i++)
        square += (double)g[i] * g[i];
    return square;
}

static void scale_by(float *g, uint64_t n, float by)
{
    for (uint64_t i = 0; i < n; i++)
        g[i] *= by;
}

/* Scales the gradient down to the limit. State among it is no gradient. */
static void clip(const mst_grad *grad, float *g, uint64_t n, double limit)
{
    double square = square_of(g, n);
    for (uint32_t i = 0; i < grad->n_ranges; i++)
        square -= grad->ranges[i].state ? square_of(grad->ranges[i].g, grad->ranges[i].size) : 0.0;
    double norm = sqrt(square > 0.0 ? square : 0.0);
    if (norm <= limit)
        return;
    float by = (float)(limit / norm);
    scale_by(g, n, by);
    for (uint32_t i = 0; i < grad->n_ranges; i++)
        if (grad->ranges[i].state)
            scale_by(grad->ranges[i].g, grad->ranges[i].size, 1.0f / by);
}

mst_status mst_worker_compute(mst_worker *self, uint32_t slot, mst_loss_sum *sum)
{
    const mst_model *model = self->job->model;
    mst_turn *turn = &self->turns[slot];
    uint64_t floats = mst_client_floats(self->client, slot), start = mst_now_ns();
    double limit = self->job->optimizer->options.clip_norm;
    *sum = (mst_loss_sum){0};
    self->waited_seconds = 0.0;
    self->watch.g = NULL;
    TRY(gradient_room(mst_worker_gradient_of(self, slot), floats));
    float *sums = mst_worker_gradient_of(self, slot)->g;
    bool fresh = model->overwrites && turn->batch.n_rows > 0 && self->layout.width == 0 &&
                 !self->job->dense_model; /* the ranges are all there is */
    if (floats > 0 && !fresh)
        memset(sums, 0, floats * sizeof *sums);
    if (turn->batch.n_rows == 0)
        return MST_OK;

    mst_weights w, g;
    mst_grad grad = self->layout; /* the dense ranges lie in g; contributions are the worker's */
    float scale = 1.0f / (float)turn->batch.n_rows;
    point(self, mst_client_weights(self->client, slot), &w);
    point(self, sums, &g);
    for (uint32_t i = 0; i < grad.n_ranges; i++)
        grad.ranges[i].g = g.ranges[i];
    grad.fresh = fresh;
    grad.n_owners = self->sparse.n_owners;
    grad.owners = self->sparse.owners;
    if (model->ops->coefficients != NULL && self->layout.width != 0) {
        model->ops->coefficients(model, &turn->batch, &w, scale, self->coefs, &grad, sum);
        model->ops->scatter(model, &turn->batch, self->coefs, scale, &g, 0, UINT32_MAX);
    } else {
        if (self->sparse.owners != NULL)
            self->sparse.owners[0].n = 0;
        TRY(compute_parts(self, slot, &w, scale, &grad, sum));
        if (self->sparse.owners != NULL && g.sparse != NULL)
            add_contributions(&self->sparse.owners[0], self->layout.width, g.sparse);
    }
    if (self->job->clip && limit > 0.0)
        clip(&grad, sums, floats, limit);
    self->counts.compute_seconds += mst_seconds_since(start) - self->waited_seconds;
    self->counts.wait_seconds += self->waited_seconds;
    self->watch.g = sums;
    self->watch.step = step_of(self, slot).number;
    mst_worker_watch_gradient(self);
    return MST_OK;
}
