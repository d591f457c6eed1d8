/* Logistic regression: margin = bias + x . w, loss = log(1 + exp(-y * margin)), y in {-1, +1}.
 *
 * Views: "weight" [features], one weight per key; "bias" [1]. Gradient layout: range 0 is the dense prefix of
 * the weights (features that every row has), range 1 the bias; everything else is sparse with width 1. */
#include <string.h>

#include "base/alloc.h"
#include "model/linear_start.h"
#include "observe/trace_file.h"

enum { RANGE_DENSE, RANGE_BIAS };

#define TILE_ROWS 32 /* of a batch, at a time */

typedef struct logreg {
    mst_model base;
    uint32_t weight, bias; /* views */
} logreg;

static mst_status logreg_init(mst_model *self, const mst_model_options *options, const mst_shape *shape)
{
    TRY(mst_linear_check_init(self, options));
    if (shape->n_classes > 2)
        return mst_fail(
            MST_EINPUT,
            "logreg takes labels 0/1 or -1/+1, but the data has labels up to %u; use --model softmax",
            shape->n_classes - 1);
    if (shape->n_features == 0)
        return mst_fail(MST_EINPUT, "the data has no features: nothing to train");
    self->n_scores = 1;
    self->shape.n_fields = 0;
    return MST_OK;
}

static mst_status logreg_declare(mst_model *self, mst_params *params)
{
    logreg *m = (logreg *)self;
    TRY(mst_params_add(params, "weight", MST_VIEW_TRAINABLE, 1, 1, &self->shape.n_features, &m->weight));
    params->views[m->weight].head = self->shape.n_dense;
    if (self->options.bias)
        TRY(mst_params_add(params, "bias", MST_VIEW_TRAINABLE, 0, 1, (uint64_t[]){1}, &m->bias));
    return MST_OK;
}

static void logreg_layout(const mst_model *self, const mst_params *params, mst_grad *layout)
{
    const logreg *m = (const logreg *)self;
    const mst_view *weight = &params->views[m->weight];
    layout->ranges[RANGE_DENSE] = (mst_range){.offset = weight->offset, .size = self->shape.n_dense};
    layout->n_ranges = 1;
    if (self->options.bias) {
        layout->ranges[RANGE_BIAS] = (mst_range){.offset = params->views[m->bias].offset, .size = 1};
        layout->n_ranges = 2;
    }
    layout->sparse_offset = weight->offset;
    layout->width = 1;
}

static size_t logreg_scratch_size(const mst_model *self, uint32_t max_rows)
{
    /* margins, then coefficients; gradient of the dense ranges, for descend_rule */
    return (max_rows + (self->shape.n_dense <= MST_HEAD_MAX ? MST_HEAD_MAX + 1 : 0)) * sizeof(float);
}

static mst_linear linear_of(const mst_model *self, const mst_weights *w)
{
    return (mst_linear){
        .dense = w->ranges[RANGE_DENSE],
        .sparse = w->sparse,
        .bias = self->options.bias ? w->ranges[RANGE_BIAS] : NULL,
        .stride = w->stride,
        .head = w->head,
        .state = w->state,
        .shared = w->shared,
        .near = w->near,
        .after = w->after,
    };
}

static mst_status logreg_forward(const mst_model *self, void *scratch, const mst_batch *batch,
                                 const mst_weights *w, float *scores)
{
    (void)scratch;
    mst_linear linear = linear_of(self, w);
    self->kernels->margins(batch->rows, batch->n_rows, &linear, scores);
    return MST_OK;
}

/* Margins and then d(loss)/d(margin) of the rows, into coefs, which hold the part of the keys beyond the
 * prefix if `summed`; adds the loss. Returns the time, for a trace. */
static uint64_t logreg_find_coefs(const mst_model *self, const mst_batch *batch, const mst_linear *linear,
                                  bool summed, float *coefs, mst_loss_sum *sum)
{
    uint64_t at = mst_trace_now();
    if (summed)
        self->kernels->add_prefix(batch->rows, batch->n_rows, self->shape.n_dense, linear, coefs);
    else
        self->kernels->margins(batch->rows, batch->n_rows, linear, coefs);
    at = mst_trace_op("gather+dot", at, mst_trace_floats(batch->n_rows, 0));
    mst_count_binary(batch, coefs, self->options.pos_weight, sum);
    sum->loss +=
        self->kernels->logistic(batch->rows, batch->n_rows, coefs, (float)self->options.pos_weight, coefs);
    return mst_trace_op("loss", at, mst_trace_floats(batch->n_rows, 0));
}

/* The rows' part of the dense ranges' gradient. Returns the time, for a trace. */
static uint64_t logreg_add_dense(const mst_model *self, const mst_batch *batch, const float *coefs,
                                 float scale, mst_grad *grad, uint64_t at)
{
    mst_linear dense = {.dense = grad->ranges[RANGE_DENSE].g,
                        .bias = self->options.bias ? grad->ranges[RANGE_BIAS].g : NULL};
    self->kernels->scatter_dense(batch->rows, batch->n_rows, coefs, scale, self->shape.n_dense, &dense);
    return mst_trace_op("scatter dense", at, mst_trace_floats(self->shape.n_dense + (dense.bias != NULL), 0));
}

static mst_status logreg_compute(const mst_model *self, void *scratch, const mst_batch *batch,
                                 const mst_weights *w, float scale, mst_grad *grad, mst_step *step,
                                 mst_loss_sum *sum)
{
    float *coefs = scratch;
    size_t n_keys = 0;
    mst_linear linear = linear_of(self, w);
    for (uint32_t i = 0; i < batch->n_rows; i++)
        n_keys += batch->rows[i].n_keys;
    TRY(mst_grad_room(grad, n_keys));
    for (uint32_t range = 0; range < grad->n_ranges; range++)
        TRY(mst_step_need(step, range));
    uint64_t at = logreg_find_coefs(self, batch, &linear, false, coefs, sum);
    at = logreg_add_dense(self, batch, coefs, scale, grad, at);
    /* Keys inside the dense prefix (rows of a chunk whose prefix is shorter) have joined the dense range. */
    self->kernels->emit_keys(batch->rows, batch->n_rows, coefs, scale, self->shape.n_dense, grad->owners,
                             grad->n_owners);
    mst_trace_op("scatter", at, mst_trace_array(sizeof(uint32_t) + sizeof(float), n_keys, 0));
    for (uint32_t range = 0; range < grad->n_ranges; range++)
        TRY(mst_step_ready(step, range));
    return MST_OK;
}

/* The weights that rows add to, each as often as it occurs. */
static mst_trace_output logreg_touched(const mst_batch *batch)
{
    uint64_t n = 0;
    for (uint32_t i = 0; mst_tracing() && i < batch->n_rows; i++)
        n += batch->rows[i].n_keys + batch->rows[i].n_dense;
    return mst_trace_floats(n, 0);
}

static void logreg_descend(const mst_model *self, void *scratch, const mst_batch *rows, uint32_t batch_rows,
                           const mst_weights *w, const float *lrs, mst_loss_sum *sum)
{
    const mst_kernels *k = self->kernels;
    float *margins = scratch;
    float pos_weight = (float)self->options.pos_weight;
    mst_linear linear = linear_of(self, w);
    if (batch_rows == 1) {
        uint64_t at = mst_trace_now();
        k->descend_rows(rows->rows, rows->n_rows, pos_weight, &linear, lrs, margins, w->map, w->map_scratch);
        at = mst_trace_op("gather+dot+apply", at, mst_trace_floats(rows->n_rows, 0));
        mst_count_binary(rows, margins, self->options.pos_weight, sum);
        sum->loss += k->logistic_loss(rows->rows, rows->n_rows, margins, pos_weight);
        mst_trace_op("loss", at, mst_trace_floats(rows->n_rows, 0));
        return;
    }
    for (uint32_t from = 0, step = 0; from < rows->n_rows; from += batch_rows, step++) {
        mst_batch part = mst_batch_range(rows, from, batch_rows);
        uint64_t at = logreg_find_coefs(self, &part, &linear, false, margins, sum);
        k->scatter(part.rows, part.n_rows, margins, -lrs[step] / (float)part.n_rows, &linear);
        mst_trace_op("scatter+apply", at, logreg_touched(&part));
    }
}

/* A batch: the gradient of the dense ranges is in g, that of the keys in sums. Some rows at a time, so that
 * they are read from memory once. */
static void logreg_step_rule(const mst_model *self, const mst_batch *batch, float *coefs, float *g,
                             const mst_linear *linear, const mst_rule *rule, mst_row_sums *sums,
                             mst_loss_sum *sum)
{
    const mst_kernels *k = self->kernels;
    float scale = 1.0f / (float)batch->n_rows, pos_weight = (float)self->options.pos_weight;
    uint32_t n_dense = self->shape.n_dense;
    uint64_t at = mst_trace_now();
    memset(g, 0, (n_dense + 1) * sizeof *g);
    mst_linear dense = {.dense = g, .bias = g + n_dense}, w = *linear;
    sums->n = 1;
    for (uint32_t from = 0; from < batch->n_rows; from += TILE_ROWS) {
        mst_batch tile = mst_batch_range(batch, from, TILE_ROWS);
        w.after = linear->after + batch->n_rows - from - tile.n_rows;
        k->place_rows(tile.rows, tile.n_rows, &w, sums, coefs);
        mst_count_binary(&tile, coefs, self->options.pos_weight, sum);
        sum->loss += k->logistic(tile.rows, tile.n_rows, coefs, pos_weight, coefs);
        k->scatter_dense(tile.rows, tile.n_rows, coefs, scale, n_dense, &dense);
        k->sum_rows(tile.rows, tile.n_rows, coefs, scale, sums);
    }
    at = mst_trace_op("gather+dot+sum", at, mst_trace_floats(sums->n - 1, 1));
    k->apply_sums(rule, linear, sums);
    k->apply_dense(rule, linear->dense, linear->state, g, n_dense);
    if (linear->bias != NULL)
        k->apply_dense(rule, linear->bias, linear->state, g + n_dense, 1);
    mst_trace_op("apply", at, mst_trace_floats(sums->n - 1 + n_dense + 1, 0));
}

static mst_status logreg_descend_rule(const mst_model *self, void *scratch, const mst_batch *rows,
                                      uint32_t batch_rows, const mst_weights *w, const mst_rule *rules,
                                      mst_touched *touched, mst_loss_sum *sum)
{
    const mst_kernels *k = self->kernels;
    float *g = scratch, *margins = g + MST_HEAD_MAX + 1;
    float pos_weight = (float)self->options.pos_weight;
    mst_linear linear = linear_of(self, w);
    if (batch_rows == 1) {
        uint64_t at = mst_trace_now();
        k->train_rows(rows->rows, rows->n_rows, pos_weight, &linear, rules, margins, w->map, w->map_scratch);
        at = mst_trace_op("gather+dot+apply", at, mst_trace_floats(rows->n_rows, 0));
        mst_count_binary(rows, margins, self->options.pos_weight, sum);
        sum->loss += k->logistic_loss(rows->rows, rows->n_rows, margins, pos_weight);
        mst_trace_op("loss", at, mst_trace_floats(rows->n_rows, 0));
        return MST_OK;
    }
    for (uint32_t from = 0, step = 0; from < rows->n_rows; from += batch_rows, step++) {
        mst_batch part = mst_batch_range(rows, from, batch_rows);
        size_t n_keys = 2; /* place 0, and the room for one more */
        for (uint32_t i = 0; i < part.n_rows; i++)
            n_keys += part.rows[i].n_keys;
        if (!mst_grow(&touched->keys, &touched->capacity, 3 * n_keys, sizeof *touched->keys))
            return mst_fail_memory();
        mst_row_sums sums = {.keys = touched->keys,
                             .places = touched->keys + n_keys,
                             .sums = (float *)(void *)(touched->keys + 2 * n_keys)};
        linear.after = w->after + rows->n_rows - from - part.n_rows;
        logreg_step_rule(self, &part, margins, g, &linear, &rules[step], &sums, sum);
    }
    return MST_OK;
}

static mst_status logreg_gradient(const mst_model *self, void *scratch, const mst_batch *batch,
                                  const mst_weights *w, float scale, float *coefs, const mst_weights *g,
                                  mst_loss_sum *sum)
{
    (void)scratch;
    mst_linear linear = linear_of(self, w), out = linear_of(self, g);
    uint64_t at = logreg_find_coefs(self, batch, &linear, false, coefs, sum);
    self->kernels->scatter(batch->rows, batch->n_rows, coefs, scale, &out);
    mst_trace_op("scatter", at, logreg_touched(batch));
    return MST_OK;
}

static void logreg_coefficients(const mst_model *self, const mst_batch *batch, const mst_weights *w,
                                float scale, bool summed, float *coefs, mst_grad *grad, mst_loss_sum *sum)
{
    mst_linear linear = linear_of(self, w);
    uint64_t at = logreg_find_coefs(self, batch, &linear, summed, coefs, sum);
    logreg_add_dense(self, batch, coefs, scale, grad, at);
}

const mst_model_ops mst_model_logreg = {
    .name = "logreg",
    .help = "logistic regression on sparse or dense rows, labels 0/1 or -1/+1",
    .size = sizeof(logreg),
    .capabilities = MST_MODEL_LINEAR | MST_MODEL_BINARY,
    .init = logreg_init,
    .declare = logreg_declare,
    .start = mst_linear_start,
    .layout = logreg_layout,
    .scratch_size = logreg_scratch_size,
    .compute = logreg_compute,
    .forward = logreg_forward,
    .gpu_use = mst_model_gpu_use_sparse,
    .gpu_kind = MST_CUDA_LOGREG,
    .descend = logreg_descend,
    .descend_rule = logreg_descend_rule,
    .gradient = logreg_gradient,
    .coefficients = logreg_coefficients,
};
