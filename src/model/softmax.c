/* Softmax regression: logits = W x + b, loss = cross-entropy of softmax(logits) with the row's class.
 *
 * Two layouts, chosen by the number of features alone so that every process agrees:
 *
 *   up to 4096 features    "weight" [classes, features]: rows are expanded and go through matrix kernels
 *   more                   "weight" [features, classes]: a key's weights are adjacent, rows stay sparse
 *
 * "bias" is [classes]. Gradient layout: range 0 is the whole weight (dense) or the dense prefix's part of it
 * (sparse, width = classes), range 1 the bias. */
#include "base/racy.h"
#include "model/linear_start.h"
#include "observe/trace_file.h"

#define DENSE_FEATURES 4096
#define TILE_ROWS      64 /* rows computed at a time: their dense form stays in the second-level cache */

enum { RANGE_WEIGHT, RANGE_BIAS };

typedef struct softmax_model {
    mst_model base;
    uint32_t weight, bias; /* views */
    bool dense;
} softmax_model;

static mst_status softmax_init(mst_model *self, const mst_model_options *options, const mst_shape *shape)
{
    softmax_model *m = (softmax_model *)self;
    TRY(mst_linear_check_init(self, options));
    if (shape->n_classes < 2)
        return mst_fail(MST_EINPUT, "softmax needs at least two classes; the data has %u", shape->n_classes);
    if (shape->n_features == 0)
        return mst_fail(MST_EINPUT, "the data has no features: nothing to train");
    m->dense = shape->n_features <= DENSE_FEATURES;
    self->n_scores = shape->n_classes;
    self->shape.n_fields = 0;
    return MST_OK;
}

static mst_status softmax_declare(mst_model *self, mst_params *params)
{
    softmax_model *m = (softmax_model *)self;
    uint64_t classes = self->shape.n_classes, features = self->shape.n_features;
    if (m->dense)
        TRY(mst_params_add(params, "weight", MST_VIEW_TRAINABLE, 0, 2, (uint64_t[]){classes, features},
                           &m->weight));
    else
        TRY(mst_params_add(params, "weight", MST_VIEW_TRAINABLE, (uint32_t)classes, 2,
                           (uint64_t[]){features, classes}, &m->weight));
    params->views[m->weight].head = m->dense ? 0 : self->shape.n_dense;
    if (self->options.bias)
        TRY(mst_params_add(params, "bias", MST_VIEW_TRAINABLE, 0, 1, &classes, &m->bias));
    return MST_OK;
}

static void softmax_layout(const mst_model *self, const mst_params *params, mst_grad *layout)
{
    const softmax_model *m = (const softmax_model *)self;
    const mst_view *weight = &params->views[m->weight];
    uint64_t prefix = (uint64_t)self->shape.n_dense * self->shape.n_classes;
    layout->ranges[RANGE_WEIGHT] =
        (mst_range){.offset = weight->offset, .size = m->dense ? weight->size : prefix};
    layout->n_ranges = 1;
    if (self->options.bias) {
        const mst_view *bias = &params->views[m->bias];
        layout->ranges[RANGE_BIAS] = (mst_range){.offset = bias->offset, .size = bias->size};
        layout->n_ranges = 2;
    }
    layout->sparse_offset = weight->offset;
    layout->width = m->dense ? 0 : self->shape.n_classes;
}

static size_t softmax_scratch_size(const mst_model *self, uint32_t max_rows)
{
    const softmax_model *m = (const softmax_model *)self;
    size_t row = self->shape.n_classes + (m->dense ? self->shape.n_features : 0);
    (void)max_rows; /* larger batches go through in tiles */
    return TILE_ROWS * row * sizeof(float);
}

/* y += a * w over the classes */
MST_RACY static void add_scaled(float a, const float *w, float *y, uint32_t n)
{
    for (uint32_t c = 0; c < n; c++)
        y[c] += a * w[c];
}

static float softmax_dense_value(const mst_row *row, uint32_t i)
{
    return row->bytes ? (float)row->bytes[i] * (1.0f / 255) : row->dense[i];
}

MST_RACY static void sparse_logits(const mst_model *self, const mst_row *row, const mst_weights *w, float *y)
{
    uint32_t classes = self->shape.n_classes;
    for (uint32_t c = 0; c < classes; c++)
        y[c] = self->options.bias ? w->ranges[RANGE_BIAS][c] : 0.0f;
    for (uint32_t i = 0; i < row->n_dense;
         i++) { /* rows to evaluate may have a longer prefix than the model */
        const float *first = w->ranges[RANGE_WEIGHT] + (size_t)i * classes, *rest = first + 1;
        if (w->by_rows && i >= w->head)
            mst_weights_of_key(w, i, &first, &rest);
        y[0] += softmax_dense_value(row, i) * first[0];
        add_scaled(softmax_dense_value(row, i), rest, y + 1, classes - 1);
    }
    for (uint32_t i = 0; i < row->n_keys; i++) {
        const float *first = w->ranges[RANGE_WEIGHT] + (size_t)row->keys[i] * classes, *rest = first + 1;
        if (row->keys[i] >= w->head)
            mst_weights_of_key(w, row->keys[i], &first, &rest);
        float x = row->values ? row->values[i] : 1.0f;
        y[0] += x * first[0];
        add_scaled(x, rest, y + 1, classes - 1);
    }
}

/* Logits of a tile into y (n_rows x classes); x is scratch for the dense form. */
static void softmax_tile_forward(const mst_model *self, const mst_batch *tile, const mst_weights *w, float *x,
                                 float *y)
{
    const softmax_model *m = (const softmax_model *)self;
    uint32_t classes = self->shape.n_classes, features = (uint32_t)self->shape.n_features;
    uint64_t at = mst_trace_now();
    if (m->dense) {
        mst_rows_expand(self->kernels, tile->rows, tile->n_rows, features, x);
        at = mst_trace_op("expand", at, mst_trace_floats(tile->n_rows, features));
        self->kernels->dense_forward(x, features, tile->n_rows, features, w->ranges[RANGE_WEIGHT],
                                     self->options.bias ? w->ranges[RANGE_BIAS] : NULL, classes, y);
        mst_trace_op("dot", at, mst_trace_floats(tile->n_rows, classes));
        return;
    }
    for (uint32_t r = 0; r < tile->n_rows; r++)
        sparse_logits(self, &tile->rows[r], w, y + (size_t)r * classes);
    mst_trace_op("gather+dot", at, mst_trace_floats(tile->n_rows, classes));
}

static void emit_key(mst_grad *grad, uint32_t key, float x, const float *d, uint32_t classes)
{
    mst_contributions *list = &grad->owners[mst_grad_owner(key, grad->n_owners)];
    float *values = list->values + list->n * classes;
    list->keys[list->n++] = key;
    for (uint32_t c = 0; c < classes; c++)
        values[c] = x * d[c];
}

static void sparse_backward(const mst_model *self, const mst_row *row, const float *d, mst_grad *grad)
{
    uint32_t classes = self->shape.n_classes, i = 0;
    float *prefix = grad->ranges[RANGE_WEIGHT].g;
    for (uint32_t j = 0; j < row->n_dense; j++)
        add_scaled(softmax_dense_value(row, j), d, prefix + (size_t)j * classes, classes);
    for (; i < row->n_keys && row->keys[i] < self->shape.n_dense; i++)
        add_scaled(row->values ? row->values[i] : 1.0f, d, prefix + (size_t)row->keys[i] * classes, classes);
    for (; i < row->n_keys; i++)
        emit_key(grad, row->keys[i], row->values ? row->values[i] : 1.0f, d, classes);
    if (self->options.bias)
        add_scaled(1.0f, d, grad->ranges[RANGE_BIAS].g, classes);
}

static mst_status softmax_compute(const mst_model *self, void *scratch, const mst_batch *batch,
                                  const mst_weights *w, float scale, mst_grad *grad, mst_step *step,
                                  mst_loss_sum *sum)
{
    const softmax_model *m = (const softmax_model *)self;
    uint32_t classes = self->shape.n_classes, features = (uint32_t)self->shape.n_features;
    float *y = scratch, *x = y + (size_t)TILE_ROWS * classes;
    for (uint32_t range = 0; range < grad->n_ranges; range++)
        TRY(mst_step_need(step, range));
    for (uint32_t from = 0; from < batch->n_rows; from += TILE_ROWS) {
        mst_batch tile = mst_batch_range(batch, from, TILE_ROWS);
        softmax_tile_forward(self, &tile, w, x, y);
        uint64_t at = mst_trace_now();
        sum->correct += mst_count_correct(&tile, y, classes);
        sum->loss += self->kernels->softmax(tile.rows, tile.n_rows, classes, y, scale, y);
        at = mst_trace_op("loss", at, mst_trace_floats(tile.n_rows, classes));
        if (m->dense) {
            self->kernels->dense_backward(x, features, tile.n_rows, features, y, classes,
                                          grad->ranges[RANGE_WEIGHT].g,
                                          self->options.bias ? grad->ranges[RANGE_BIAS].g : NULL);
            mst_trace_op("gradient", at, mst_trace_floats(classes, features));
            continue;
        }
        size_t n_keys = 0;
        for (uint32_t r = 0; r < tile.n_rows; r++)
            n_keys += tile.rows[r].n_keys;
        TRY(mst_grad_room(grad, n_keys));
        for (uint32_t r = 0; r < tile.n_rows; r++)
            sparse_backward(self, &tile.rows[r], y + (size_t)r * classes, grad);
        mst_trace_op("scatter", at, mst_trace_floats(n_keys, classes));
    }
    sum->rows += batch->n_rows;
    for (uint32_t r = 0; r < batch->n_rows; r++)
        sum->weight += (double)batch->rows[r].weight;
    for (uint32_t range = 0; range < grad->n_ranges; range++)
        TRY(mst_step_ready(step, range));
    return MST_OK;
}

static mst_status softmax_forward(const mst_model *self, void *scratch, const mst_batch *batch,
                                  const mst_weights *w, float *scores)
{
    for (uint32_t from = 0; from < batch->n_rows; from += TILE_ROWS) {
        mst_batch tile = mst_batch_range(batch, from, TILE_ROWS);
        softmax_tile_forward(self, &tile, w, scratch, scores + (size_t)from * self->shape.n_classes);
    }
    return MST_OK;
}

const mst_model_ops mst_model_softmax = {
    .name = "softmax",
    .help = "softmax regression on dense or sparse rows, labels 0 .. classes-1",
    .size = sizeof(softmax_model),
    .capabilities = MST_MODEL_LINEAR,
    .init = softmax_init,
    .declare = softmax_declare,
    .start = mst_linear_start,
    .layout = softmax_layout,
    .scratch_size = softmax_scratch_size,
    .compute = softmax_compute,
    .forward = softmax_forward,
    .gpu_use = mst_model_gpu_use_sparse,
    .gpu_kind = MST_CUDA_SOFTMAX,
};
