/* Executor gemm: nets over embeddings and other graphs of small layers. Matrix products are oneDNN's; the
 * rest are loops over rows.
 *
 * A batch is computed TILE_ROWS rows at a time, forward and backward, so that the numbers between layers stay
 * in the second-level cache. Each thread of a strategy has a replica. Batch norm needs the whole batch: then
 * a tile is the batch, and threads work inside of the products.
 *
 * Invariants
 * 1. Every layer has an array for its output and one for the gradient of it. An activation behind a linear
 * layer that nothing else reads shares both with it, and so does a concat with its only input that has
 * numbers.
 * 2. In the backward pass, the last layer that reads an output sets the output's gradient, the others add to
 * it.
 * 3. Gradients of parameters are added tile after tile; those of a fresh gradient are set by the first. */
#include <string.h>

#include "base/alloc.h"
#include "model/exec_gemm_impl.h"
#include "tensor/dnnl_ops.h"

#define TILE_ROWS 128
#define NARROW    8 /* outputs up to which products are loops over rows */

extern const mst_executor mst_executor_gemm;

/* The arguments of a tile. */
typedef struct gemm_tile {
    const mst_gemm_replica *self;
    mst_batch rows;
    const mst_weights *w;
    mst_pass pass;
    mst_grad *grad;
    bool fresh; /* gradients are set */
} gemm_tile;

/* ---- arrays of a layer ---- */

static const float *gemm_input(const gemm_tile *t, const mst_layer *layer, uint32_t i)
{
    return layer->inputs[i] == MST_INPUT_ROWS ? t->self->input : t->self->layers[layer->inputs[i]].y;
}

/* Where the gradient of input i goes; NULL: nowhere. */
static float *gemm_input_diff(const gemm_tile *t, const mst_layer *layer, uint32_t i)
{
    return layer->inputs[i] == MST_INPUT_ROWS ? NULL : t->self->layers[layer->inputs[i]].d;
}

static float *gemm_weight(const gemm_tile *t, const mst_layer *layer, uint32_t i)
{
    return i < layer->n_params ? t->w->ranges[layer->first_range + i] : NULL;
}

static float *gemm_gradient(const gemm_tile *t, const mst_layer *layer, uint32_t i)
{
    return i < layer->n_params ? t->grad->ranges[layer->first_range + i].g : NULL;
}

/* ---- loops over rows ---- */

static void add_row(float *restrict y, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

static void add_product(float *restrict y, const float *restrict a, const float *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += a[i] * b[i];
}

static void set_product(float *restrict y, const float *restrict a, const float *restrict b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] * b[i];
}

/* y = x, or y += x */
static void put_row(float *restrict y, const float *restrict x, size_t n, bool adds)
{
    if (adds)
        add_row(y, x, n);
    else
        memcpy(y, x, n * sizeof *y);
}

static void add_bias(float *y, const float *bias, uint32_t n, size_t size)
{
    for (uint32_t r = 0; bias != NULL && r < n; r++)
        add_row(y + r * size, bias, size);
}

/* The gradient of a bias: column sums. */
static void bias_gradient(float *g, const float *dy, uint32_t n, size_t size, bool fresh)
{
    for (uint32_t r = 0; g != NULL && r < n; r++)
        put_row(g, dy + r * size, size, r > 0 || !fresh);
}

/* ---- linear ---- */

static mst_status gemm_linear(const gemm_tile *t, const mst_layer *layer, float *y)
{
    size_t in = mst_dims_size(&layer->in), out = layer->out.c;
    const float *x = gemm_input(t, layer, 0), *w = gemm_weight(t, layer, 0), *b = gemm_weight(t, layer, 1);
    if (out <= NARROW) {
        t->self->base.kernels->dense_forward(x, in, t->rows.n_rows, (uint32_t)in, w, b, (uint32_t)out, y);
        return MST_OK;
    }
    TRY(mst_dnnl_gemm_turned(t->rows.n_rows, (int64_t)out, (int64_t)in, x, w, 0.0f, y));
    add_bias(y, b, t->rows.n_rows, out);
    return MST_OK;
}

/* dx of a layer with few outputs. */
static void narrow_dx(const float *dy, const float *w, uint32_t n, size_t in, size_t out, bool adds,
                      float *dx)
{
    for (uint32_t r = 0; r < n; r++, dy += out, dx += in)
        for (size_t o = 0; o < out; o++)
            for (size_t j = 0; j < in; j++)
                dx[j] = adds || o > 0 ? dx[j] + dy[o] * w[o * in + j] : dy[o] * w[o * in + j];
}

static mst_status gemm_linear_back(const gemm_tile *t, const mst_layer *layer, const mst_gemm_layer *l)
{
    uint32_t n = t->rows.n_rows;
    size_t in = mst_dims_size(&layer->in), out = layer->out.c;
    const float *x = gemm_input(t, layer, 0), *w = gemm_weight(t, layer, 0);
    float *dx = gemm_input_diff(t, layer, 0), *gw = gemm_gradient(t, layer, 0),
          *gb = gemm_gradient(t, layer, 1);
    if (out <= NARROW) {
        if (t->fresh)
            memset(gw, 0, in * out * sizeof *gw);
        if (t->fresh && gb != NULL)
            memset(gb, 0, out * sizeof *gb);
        t->self->base.kernels->dense_backward(x, in, n, (uint32_t)in, l->d, (uint32_t)out, gw, gb);
        if (dx != NULL)
            narrow_dx(l->d, w, n, in, out, l->adds[0], dx);
        return MST_OK;
    }
    bias_gradient(gb, l->d, n, out, t->fresh);
    TRY(mst_dnnl_gemm(true, (int64_t)out, (int64_t)in, n, l->d, x, t->fresh ? 0.0f : 1.0f, gw));
    if (dx == NULL)
        return MST_OK;
    return mst_dnnl_gemm(false, n, (int64_t)in, (int64_t)out, l->d, w, l->adds[0] ? 1.0f : 0.0f, dx);
}

/* ---- cross: u is kept in the state (layer_cross.c) ---- */

static mst_status gemm_cross(const gemm_tile *t, const mst_layer *layer, const mst_gemm_layer *l)
{
    uint32_t n = t->rows.n_rows;
    size_t d = layer->out.c;
    const float *x0 = gemm_input(t, layer, 0), *x = gemm_input(t, layer, layer->n_inputs - 1);
    float *u = l->state != NULL ? l->state : t->self->room;
    TRY(mst_dnnl_gemm_turned(n, (int64_t)d, (int64_t)d, x, gemm_weight(t, layer, 0), 0.0f, u));
    add_bias(u, gemm_weight(t, layer, 1), n, d);
    memcpy(l->y, x, n * d * sizeof *l->y);
    add_product(l->y, x0, u, n * d);
    return MST_OK;
}

static mst_status gemm_cross_back(const gemm_tile *t, const mst_layer *layer, const mst_gemm_layer *l)
{
    uint32_t n = t->rows.n_rows, last = layer->n_inputs - 1;
    size_t d = layer->out.c;
    const float *x0 = gemm_input(t, layer, 0), *x = gemm_input(t, layer, last);
    float *dx0 = gemm_input_diff(t, layer, 0), *dx = gemm_input_diff(t, layer, last), *du = t->self->room;
    set_product(du, l->d, x0, n * d);
    bias_gradient(gemm_gradient(t, layer, 1), du, n, d, t->fresh);
    TRY(mst_dnnl_gemm(true, (int64_t)d, (int64_t)d, n, du, x, t->fresh ? 0.0f : 1.0f,
                      gemm_gradient(t, layer, 0)));
    if (dx0 != NULL) {
        if (l->adds[0])
            add_product(dx0, l->d, l->state, n * d);
        else
            set_product(dx0, l->d, l->state, n * d);
    }
    if (dx == NULL)
        return MST_OK;
    put_row(dx, l->d, n * d, last == 0 || l->adds[last]);
    return mst_dnnl_gemm(false, n, (int64_t)d, (int64_t)d, du, gemm_weight(t, layer, 0), 1.0f, dx);
}

/* ---- concat and add ---- */

static void gemm_merge(const gemm_tile *t, const mst_layer *layer, const mst_gemm_layer *l)
{
    size_t row = mst_dims_size(&layer->out), at = 0;
    bool sum = layer->ops == &mst_layer_add, first = true;
    for (uint32_t i = 0; i < layer->n_inputs; i++) {
        size_t size = mst_dims_size(&layer->parts[i]);
        const float *x = gemm_input(t, layer, i);
        for (uint32_t r = 0; size > 0 && r < t->rows.n_rows; r++)
            put_row(l->y + r * row + at, x + r * size, size, sum && !first);
        first = first && size == 0;
        at += sum ? 0 : size;
    }
}

static void gemm_merge_back(const gemm_tile *t, const mst_layer *layer, const mst_gemm_layer *l)
{
    size_t row = mst_dims_size(&layer->out), at = 0;
    bool sum = layer->ops == &mst_layer_add;
    for (uint32_t i = 0; i < layer->n_inputs; i++) {
        size_t size = mst_dims_size(&layer->parts[i]);
        float *dx = gemm_input_diff(t, layer, i);
        for (uint32_t r = 0; dx != NULL && size > 0 && r < t->rows.n_rows; r++)
            put_row(dx + r * size, l->d + r * row + at, size, l->adds[i]);
        at += sum ? 0 : size;
    }
}

/* ---- fm ---- */

/* The sum of a row's vectors, over all inputs; pairs, if not NULL, is the sum of the products of two of them.
 */
static void sum_vectors(const gemm_tile *t, const mst_layer *layer, uint32_t r, uint32_t k,
                        float *restrict sum, float *restrict pairs)
{
    memset(sum, 0, k * sizeof *sum);
    if (pairs != NULL)
        memset(pairs, 0, k * sizeof *pairs);
    for (uint32_t i = 0; i < layer->n_inputs; i++) {
        size_t size = mst_dims_size(&layer->parts[i]);
        const float *x = gemm_input(t, layer, i) + r * size;
        for (size_t v = 0; v < size; v += k) {
            if (pairs != NULL)
                add_product(pairs, sum, x + v, k);
            add_row(sum, x + v, k);
        }
    }
}

static void gemm_fm(const gemm_tile *t, const mst_layer *layer, const mst_gemm_layer *l)
{
    uint32_t n_vectors, k, out = layer->out.c;
    if (mst_layer_vectors(layer, &n_vectors, &k) != MST_OK)
        return;
    float *sum = t->self->room, *pairs = sum + k;
    for (uint32_t r = 0; r < t->rows.n_rows; r++) {
        float total = 0.0f, *y = l->y + (size_t)r * out;
        sum_vectors(t, layer, r, k, sum, pairs);
        for (uint32_t j = 0; j < k; j++) {
            total += pairs[j];
            y[out == 1 ? 0 : j] = out == 1 ? total : pairs[j];
        }
    }
}

/* dx += by * (sum - x) */
static void add_fm(float *restrict dx, const float *restrict by, const float *restrict sum,
                   const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dx[i] += by[i] * (sum[i] - x[i]);
}

static void gemm_fm_back(const gemm_tile *t, const mst_layer *layer, const mst_gemm_layer *l)
{
    uint32_t n_vectors, k, out = layer->out.c;
    if (mst_layer_vectors(layer, &n_vectors, &k) != MST_OK)
        return;
    float *sum = t->self->room, *by = sum + k;
    for (uint32_t r = 0; r < t->rows.n_rows; r++) {
        const float *dy = l->d + (size_t)r * out;
        sum_vectors(t, layer, r, k, sum, NULL);
        for (uint32_t j = 0; j < k; j++)
            by[j] = dy[out == 1 ? 0 : j];
        for (uint32_t i = 0; i < layer->n_inputs; i++) {
            size_t size = mst_dims_size(&layer->parts[i]);
            const float *x = gemm_input(t, layer, i) + r * size;
            float *dx = gemm_input_diff(t, layer, i);
            if (dx == NULL)
                continue;
            dx += r * size;
            if (!l->adds[i])
                memset(dx, 0, size * sizeof *dx);
            for (size_t v = 0; v < size; v += k)
                add_fm(dx + v, by, sum, x + v, k);
        }
    }
}

/* ---- activations ---- */

static void gemm_activate(const gemm_tile *t, const mst_layer *layer, const mst_gemm_layer *l)
{
    size_t size = t->rows.n_rows * mst_dims_size(&layer->out);
    const float *x = gemm_input(t, layer, 0);
    float *y = l->y;
    if (layer->ops != &mst_layer_relu) {
        layer->ops->forward(layer, NULL, &t->pass, t->rows.n_rows, x, NULL, y);
        return;
    }
    for (size_t i = 0; i < size; i++)
        y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}

/* The gradient of relu, in place. */
static void relu_back(const float *restrict y, float *restrict d, size_t n)
{
    for (size_t i = 0; i < n; i++)
        d[i] = y[i] > 0.0f ? d[i] : 0.0f;
}

static void gemm_activate_back(const gemm_tile *t, const mst_layer *layer, const mst_gemm_layer *l)
{
    size_t size = t->rows.n_rows * mst_dims_size(&layer->out);
    float *dx = gemm_input_diff(t, layer, 0);
    if (dx == NULL)
        return;
    if (layer->ops == &mst_layer_relu)
        relu_back(l->y, l->d, size);
    else
        layer->ops->backward(layer, NULL, &t->pass, t->rows.n_rows, NULL, l->y, l->d, NULL, l->d, NULL);
    if (!l->shares)
        put_row(dx, l->d, size, l->adds[0]);
}

/* ---- other kinds: their own functions ---- */

static const float *gemm_gather(const gemm_tile *t, const mst_layer *layer, const mst_gemm_layer *l)
{
    size_t row = mst_dims_size(&layer->in), at = 0;
    if (layer->n_inputs == 1)
        return gemm_input(t, layer, 0);
    for (uint32_t i = 0; i < layer->n_inputs; i++) {
        size_t size = mst_dims_size(&layer->parts[i]);
        const float *x = gemm_input(t, layer, i);
        for (uint32_t r = 0; r < t->rows.n_rows; r++)
            memcpy(l->rows + r * row + at, x + r * size, size * sizeof *x);
        at += size;
    }
    return l->rows;
}

static void gemm_plain(const gemm_tile *t, const mst_layer *layer, const mst_gemm_layer *l)
{
    layer->ops->forward(layer, l->state, &t->pass, t->rows.n_rows, gemm_gather(t, layer, l),
                        (float *const *)t->w->ranges + layer->first_range, l->y);
}

static void gemm_plain_back(const gemm_tile *t, const mst_layer *layer, const mst_gemm_layer *l)
{
    size_t row = mst_dims_size(&layer->in), at = 0;
    float *g[MST_LAYER_PARAMS] = {0};
    for (uint32_t i = 0; i < layer->n_params; i++) {
        const mst_range *range = &t->grad->ranges[layer->first_range + i];
        g[i] = range->g;
        if (t->fresh)
            memset(range->g, 0, range->size * sizeof *range->g);
    }
    layer->ops->backward(layer, l->state, &t->pass, t->rows.n_rows,
                         layer->n_inputs == 1 ? gemm_input(t, layer, 0) : l->rows, l->y, l->d,
                         (float *const *)t->w->ranges + layer->first_range, l->d_rows, g);
    for (uint32_t i = 0; i < layer->n_inputs; i++) {
        size_t size = mst_dims_size(&layer->parts[i]);
        float *dx = gemm_input_diff(t, layer, i);
        for (uint32_t r = 0; dx != NULL && r < t->rows.n_rows; r++)
            put_row(dx + r * size, l->d_rows + r * row + at, size, l->adds[i]);
        at += size;
    }
}

/* ---- passes ---- */

static mst_status layer_forward(const gemm_tile *t, const mst_layer *layer, const mst_gemm_layer *l)
{
    const mst_layer_ops *ops = layer->ops;
    if (ops == &mst_layer_linear)
        return gemm_linear(t, layer, l->y);
    if (ops == &mst_layer_cross)
        return gemm_cross(t, layer, l);
    if (mst_gemm_is_activation(layer))
        gemm_activate(t, layer, l);
    else if (ops == &mst_layer_fm)
        gemm_fm(t, layer, l);
    else if (!mst_gemm_is_own(layer))
        gemm_plain(t, layer, l);
    else if (!l->shares)
        gemm_merge(t, layer, l);
    return MST_OK;
}

static mst_status layer_backward(const gemm_tile *t, const mst_layer *layer, const mst_gemm_layer *l)
{
    const mst_layer_ops *ops = layer->ops;
    if (ops == &mst_layer_linear)
        return gemm_linear_back(t, layer, l);
    if (ops == &mst_layer_cross)
        return gemm_cross_back(t, layer, l);
    if (mst_gemm_is_activation(layer))
        gemm_activate_back(t, layer, l);
    else if (ops == &mst_layer_fm)
        gemm_fm_back(t, layer, l);
    else if (!mst_gemm_is_own(layer))
        gemm_plain_back(t, layer, l);
    else if (!l->shares)
        gemm_merge_back(t, layer, l);
    return MST_OK;
}

static mst_net_inputs input_arrays(const mst_gemm_replica *self, bool gradients)
{
    const mst_net_table *table = &self->base.chain->table;
    mst_net_inputs out = {0};
    struct {
        uint32_t layer;
        float **to;
    } all[] = {{table->embedding, &out.embedding}, {table->numbers, &out.numbers}, {table->wide, &out.wide}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].layer != MST_INPUT_ROWS)
            *all[i].to = gradients ? self->layers[all[i].layer].d : self->layers[all[i].layer].y;
    return out;
}

static void load_rows(const gemm_tile *t)
{
    const mst_chain *chain = t->self->base.chain;
    mst_net_inputs inputs = input_arrays(t->self, false);
    uint64_t start = mst_trace_now();
    if (t->self->input != NULL)
        mst_replica_load(&t->self->base, t->rows.rows, t->rows.n_rows, t->self->input);
    if (chain->table.n_keys == 0)
        return;
    mst_net_table_load(&chain->table, &t->rows, t->w->sparse, t->w->stride, &inputs);
    mst_trace_op("gather", start,
                 mst_trace_floats(t->rows.n_rows, chain->table.n_fields * chain->table.factors));
}

/* step: NULL where the weights of the step are there. */
static mst_status tile_forward(const gemm_tile *t, mst_step *step)
{
    const mst_chain *chain = t->self->base.chain;
    if (chain->table.width != 0)
        TRY(mst_step_need(step, 0));
    load_rows(t);
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        const mst_layer *layer = chain->layers[i];
        if (!mst_gemm_computes(layer))
            continue;
        for (uint32_t j = 0; j < layer->n_params; j++)
            TRY(mst_step_need(step, layer->first_range + j));
        uint64_t start = mst_trace_now();
        TRY(layer_forward(t, layer, &t->self->layers[i]));
        mst_trace_layer(layer->name, "forward", start, mst_dims_output(&layer->out, t->rows.n_rows));
    }
    return MST_OK;
}

/* step: of the last tile; else NULL. */
static mst_status tile_backward(const gemm_tile *t, mst_step *step)
{
    const mst_chain *chain = t->self->base.chain;
    for (uint32_t i = chain->n_layers; i-- > 0;) {
        const mst_layer *layer = chain->layers[i];
        if (!mst_gemm_computes(layer))
            continue;
        uint64_t start = mst_trace_now();
        TRY(layer_backward(t, layer, &t->self->layers[i]));
        mst_trace_layer(layer->name, "backward", start, mst_dims_output(&layer->in, t->rows.n_rows));
        for (uint32_t j = layer->n_params; j-- > 0;)
            TRY(mst_step_ready(step, layer->first_range + j));
    }
    if (chain->table.width == 0)
        return MST_OK;
    if (t->fresh)
        memset(t->grad->ranges[0].g, 0, t->grad->ranges[0].size * sizeof(float));
    uint64_t start = mst_trace_now();
    mst_net_inputs d = input_arrays(t->self, true);
    TRY(mst_net_table_scatter(&chain->table, &t->rows, &d, t->grad));
    mst_trace_op("scatter", start,
                 mst_trace_floats(t->rows.n_rows, chain->table.n_fields * chain->table.width));
    return mst_step_ready(step, 0);
}

static mst_status train_tiles(const mst_gemm_replica *self, const mst_batch *batch, gemm_tile *t, float scale,
                              mst_step *step, mst_loss_sum *sum)
{
    const mst_gemm_layer *last = &self->layers[self->base.chain->n_layers - 1];
    uint64_t first_row = t->pass.first_row;
    for (uint32_t from = 0; from < batch->n_rows; from += self->tile) {
        t->rows = mst_batch_range(batch, from, self->tile);
        t->pass.first_row = first_row + from;
        TRY(tile_forward(t, from == 0 ? step : NULL));
        mst_replica_loss(&self->base, &t->rows, last->y, scale, last->d, sum);
        TRY(tile_backward(t, from + t->rows.n_rows == batch->n_rows ? step : NULL));
        t->fresh = false;
    }
    return MST_OK;
}

static mst_status gemm_train(mst_replica *base, const mst_batch *batch, const mst_weights *w,
                             const mst_pass *pass, float scale, mst_grad *grad, mst_step *step,
                             mst_loss_sum *sum)
{
    gemm_tile t = {
        .self = (const mst_gemm_replica *)base, .w = w, .pass = *pass, .grad = grad, .fresh = grad->fresh};
    int before = mst_dnnl_enter(base->n_threads);
    mst_status st = train_tiles(t.self, batch, &t, scale, step, sum);
    mst_dnnl_leave(before);
    grad->fresh = false;
    return st;
}

static mst_status gemm_forward(mst_replica *base, const mst_batch *batch, const mst_weights *w, float *scores)
{
    const mst_gemm_replica *self = (const mst_gemm_replica *)base;
    const mst_chain *chain = base->chain;
    size_t size = mst_dims_size(&chain->layers[chain->n_layers - 1]->out);
    gemm_tile t = {.self = self, .w = w};
    mst_status st = MST_OK;
    int before = mst_dnnl_enter(base->n_threads);
    for (uint32_t from = 0; st == MST_OK && from < batch->n_rows; from += self->tile) {
        t.rows = mst_batch_range(batch, from, self->tile);
        st = tile_forward(&t, NULL);
        memcpy(scores + from * size, self->layers[chain->n_layers - 1].y,
               t.rows.n_rows * size * sizeof *scores);
    }
    mst_dnnl_leave(before);
    return st;
}

static void gemm_each(mst_replica *self, unsigned n, void (*fn)(void *arg, unsigned i), void *arg)
{
    int before = mst_dnnl_enter(self->n_threads);
    mst_dnnl_each(n, fn, arg);
    mst_dnnl_leave(before);
}

/* ---- life ---- */

static mst_status gemm_can(const mst_chain *chain)
{
    (void)chain;
    return MST_OK;
}

static bool gemm_suits(const mst_chain *chain)
{
    return chain->graph;
}

static void gemm_close(mst_replica *base)
{
    mst_gemm_replica *self = (mst_gemm_replica *)base;
    if (self == NULL)
        return;
    for (uint32_t i = 0; i < base->chain->n_layers; i++) {
        mst_gemm_layer *l = &self->layers[i];
        if (!l->shares) {
            mst_free(l->y);
            mst_free(l->d);
        }
        mst_free(l->state);
        mst_free(l->rows);
        mst_free(l->d_rows);
    }
    mst_free(self->input);
    mst_free(self->room);
    mst_free(self);
}

static mst_status gemm_open(const mst_chain *chain, const mst_kernels *kernels, uint32_t max_rows,
                            unsigned n_threads, bool training, mst_replica **out)
{
    bool whole = training && mst_chain_has_state(chain);
    mst_gemm_replica *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->base = (mst_replica){.executor = &mst_executor_gemm,
                               .chain = chain,
                               .kernels = kernels,
                               .max_rows = max_rows,
                               .n_threads = whole && n_threads > 0 ? n_threads : 1};
    self->training = training;
    self->tile = whole || max_rows < TILE_ROWS ? max_rows : TILE_ROWS;
    mst_status st = mst_gemm_plan(self);
    if (st != MST_OK) {
        gemm_close(&self->base);
        return st;
    }
    *out = &self->base;
    return MST_OK;
}

const mst_executor mst_executor_gemm = {
    .name = "gemm",
    .help = "nets over embeddings: matrix products on some rows at a time",
    .norm_threads = true,
    .overwrites = true,
    .can = gemm_can,
    .suits = gemm_suits,
    .open = gemm_open,
    .close = gemm_close,
    .each = gemm_each,
    .train = gemm_train,
    .forward = gemm_forward,
};
