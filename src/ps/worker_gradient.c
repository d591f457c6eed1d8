/* Gradients on pulled weights; contract in worker_gradient.h. */
#include "ps/worker_gradient.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "observe/trace_file.h"
#include "ps/worker_overlap.h"
#include "tensor/clip.h"

/* Sets the position of every range among the floats of a request, and the dense prefix. */
static mst_status gradient_place_ranges(mst_worker_gradient *self)
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
            "the dense prefix of %s is not the first of its parameters; train it with --dense-model",
            self->job->model->ops->name);
    return MST_OK;
}

uint64_t mst_worker_gradient_keys(const mst_worker_gradient *self)
{
    const mst_params *p = self->job->params;
    for (uint32_t i = 0; i < p->n_views; i++)
        if (p->views[i].width != 0 && p->views[i].offset == self->layout.sparse_offset)
            return p->views[i].size / p->views[i].width;
    return 0;
}

mst_status mst_worker_gradient_init(mst_worker_gradient *self, uint32_t max_rows)
{
    const mst_model *model = self->job->model;
    memset(&self->layout, 0, sizeof self->layout);
    model->ops->layout(model, self->job->params, &self->layout);
    TRY(gradient_place_ranges(self));
    if (self->layout.width != 0)
        TRY(mst_grad_init(&self->sparse, NULL, 0, self->layout.sparse_offset, self->layout.width, 1));
    TRY(mst_model_scratch_new(model, self->job->batch, self->job->n_threads, true, &self->scratch));
    self->coefs = mst_calloc(max_rows, sizeof *self->coefs);
    if (self->coefs == NULL)
        return mst_fail_memory();
    return MST_OK;
}

void mst_worker_gradient_fini(mst_worker_gradient *self)
{
    mst_grad_fini(&self->sparse);
    mst_model_scratch_free(self->job->model, self->scratch);
    mst_free(self->coefs);
    self->scratch = NULL;
    self->coefs = NULL;
    for (uint32_t i = 0; i < MST_LISTS; i++) {
        mst_model_unpin(self->job->model, self->buffers[i].g);
        mst_free(self->buffers[i].g);
        self->buffers[i] = (mst_gradient_buffer){0};
    }
}

void mst_worker_gradient_ranges(const mst_worker_gradient *self, mst_key_list *list)
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

static mst_status gradient_reserve(mst_worker_gradient *self, uint32_t request, uint64_t floats)
{
    mst_gradient_buffer *buffer = &self->buffers[self->one_buffer ? 0 : request];
    if (floats <= buffer->capacity)
        return MST_OK;
    mst_model_unpin(self->job->model, buffer->g);
    mst_free(buffer->g);
    buffer->capacity = 0;
    uint64_t capacity = floats + floats / 4;
    buffer->g = mst_alloc_lines((size_t)capacity * sizeof *buffer->g);
    if (buffer->g == NULL)
        return mst_fail_memory();
    buffer->capacity = capacity;
    mst_model_pin(self->job->model, buffer->g, (size_t)capacity * sizeof *buffer->g);
    return MST_OK;
}

/* The random numbers of the step. Asynchronous workers draw their own; worker 0 alone draws the numbers that
 * local training draws. */
static mst_step gradient_step(const mst_worker_gradient *self, uint32_t request,
                              const mst_worker_batch *batch)
{
    return (mst_step){
        .seed = self->seed,
        .number = batch->step != 0 ? batch->step : mst_client_reply(self->client, request)->version + 1,
        .first_row = batch->first_row,
    };
}

/* Computes a share that has grown, because another worker was lost, one batch at a time. With clipping no
 * gradient is final before all are computed. *waited_ns: time spent waiting for weights. */
static mst_status gradient_compute_batches(mst_worker_gradient *self, uint32_t request,
                                           const mst_worker_batch *batch, const mst_weights *w, float scale,
                                           mst_grad *grad, mst_loss_sum *sum, uint64_t *waited_ns)
{
    const mst_model *model = self->job->model;
    mst_worker_overlap *overlap = self->overlap;
    mst_overlap_step step = {.step = gradient_step(self, request, batch)};
    mst_status st = MST_OK;
    if (overlap != NULL)
        mst_worker_overlap_begin(overlap, request, &step);
    for (uint32_t from = 0; st == MST_OK && from < batch->batch.n_rows; from += self->job->batch) {
        mst_batch some = mst_batch_range(&batch->batch, from, self->job->batch);
        if (overlap != NULL && from + some.n_rows == batch->batch.n_rows && !self->job->clip)
            mst_worker_overlap_last(&step);
        st = model->ops->compute(model, self->scratch, &some, w, scale, grad, &step.step, sum);
        step.step.first_row += some.n_rows;
    }
    if (overlap == NULL)
        return st;
    mst_error error;
    mst_error_save(&error, st);
    mst_status end = mst_worker_overlap_end(overlap);
    *waited_ns = overlap->waited_ns;
    return st != MST_OK ? mst_error_restore(&error) : end;
}

/* Points the model's weights, or its gradient, at the floats of a request. */
static void gradient_point(const mst_worker_gradient *self, float *floats, mst_weights *out)
{
    for (uint32_t i = 0; i < self->layout.n_ranges; i++)
        out->ranges[i] = floats + self->range_at[i];
    out->sparse = self->layout.width != 0 ? floats + self->sparse_at : NULL;
    out->stride = self->layout.width;
    out->head = 0;
    out->by_rows = false;
    out->near = !self->job->dense_model;
    out->state = 0;
    out->map = NULL;
    out->map_scratch = NULL;
    out->version = 0;
}

static void gradient_add(const mst_contributions *list, uint32_t width, float *g)
{
    for (size_t i = 0; i < list->n; i++) {
        float *at = g + (size_t)list->keys[i] * width;
        for (uint32_t c = 0; c < width; c++)
            at[c] += list->values[i * width + c];
    }
}

/* Scales the gradient down to the limit. Ranges that hold state are no gradient. */
static void gradient_clip(const mst_grad *grad, float *g, uint64_t n, double limit)
{
    double square = mst_clip_squares(g, n);
    for (uint32_t i = 0; i < grad->n_ranges; i++)
        square -= grad->ranges[i].state ? mst_clip_squares(grad->ranges[i].g, grad->ranges[i].size) : 0.0;
    float by = mst_clip_factor(square > 0.0 ? square : 0.0, limit);
    if (by == 1.0f)
        return;
    mst_clip_scale(g, n, by);
    for (uint32_t i = 0; i < grad->n_ranges; i++)
        if (grad->ranges[i].state)
            mst_clip_scale(grad->ranges[i].g, grad->ranges[i].size, 1.0f / by);
}

mst_status mst_worker_gradient_compute(mst_worker_gradient *self, uint32_t request,
                                       const mst_worker_batch *batch, mst_loss_sum *sum)
{
    const mst_model *model = self->job->model;
    const mst_batch *rows = &batch->batch;
    uint64_t floats = mst_client_floats(self->client, request), start = mst_now_ns(), waited_ns = 0;
    double limit = self->job->optimizer->options.clip_norm;
    *sum = (mst_loss_sum){0};
    self->last = NULL;
    TRY(gradient_reserve(self, request, floats));
    float *sums = mst_worker_gradient_of(self, request);
    bool fresh = model->overwrites && rows->n_rows > 0 && self->layout.width == 0 &&
                 !self->job->dense_model; /* the ranges are the whole gradient */
    uint64_t at = mst_trace_now();
    if (floats > 0 && !fresh)
        memset(sums, 0, floats * sizeof *sums);
    mst_trace_op("clear", at, mst_trace_floats(fresh ? 0 : floats, 0));
    if (rows->n_rows == 0)
        return MST_OK;

    mst_weights w, g;
    mst_grad grad = self->layout; /* the dense ranges lie in g; contributions in self->sparse */
    float scale = 1.0f / (float)rows->n_rows;
    gradient_point(self, mst_client_weights(self->client, request), &w);
    gradient_point(self, sums, &g);
    for (uint32_t i = 0; i < grad.n_ranges; i++)
        grad.ranges[i].g = g.ranges[i];
    grad.fresh = fresh;
    grad.n_owners = self->sparse.n_owners;
    grad.owners = self->sparse.owners;
    if (model->ops->gradient != NULL && self->layout.width != 0) {
        TRY(model->ops->gradient(model, self->scratch, rows, &w, scale, self->coefs, &g, sum));
    } else {
        if (self->sparse.owners != NULL)
            self->sparse.owners[0].n = 0;
        TRY(gradient_compute_batches(self, request, batch, &w, scale, &grad, sum, &waited_ns));
        at = mst_trace_now();
        if (self->sparse.owners != NULL && g.sparse != NULL) {
            gradient_add(&self->sparse.owners[0], self->layout.width, g.sparse);
            mst_trace_op("sum", at, mst_trace_floats(floats, 0));
        }
    }
    if (self->job->clip && limit > 0.0) {
        at = mst_trace_now();
        gradient_clip(&grad, sums, floats, limit);
        mst_trace_op("clip", at, mst_trace_floats(floats, 0));
    }
    double waited = (double)waited_ns * 1e-9;
    self->counts->compute_seconds += mst_seconds_since(start) - waited;
    self->counts->wait_seconds += waited;
    self->last = sums;
    self->last_step = gradient_step(self, request, batch).number;
    return MST_OK;
}
