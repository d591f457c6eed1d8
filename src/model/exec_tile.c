/* Executor tile: small nets, a vector's worth of images at a time, side by side in its lanes.
 *
 * Overhead dominates small nets: calls that take longer than their work, changes of layout, vectors that a
 * plane of 10 x 10 does not fill. With one image per lane every layer is whole vectors whatever its shape,
 * only the input rows change their layout, and a tile of LeNet (16 images) stays in the second-level cache
 * from the first convolution to the last gradient. tile_kernels_impl.h describes the kernels.
 *
 * A batch is computed tile after tile, forward and backward. Invariants:
 * 1. In the backward pass, the gradient of an array replaces the array: the operation that reads x writes
 * d(loss)/d(x) there, already multiplied by the derivative of the activation that produced x. So an operation
 * adds to the gradient of its weights first, and needs nothing of its y but the gradient.
 * 2. Gradients are functions of batch and weights: tiles add to them in their order. Those of fully connected
 *    layers go straight to the ranges, which the first tile overwrites where they are fresh; those of
 *    convolutions are kept by lane and added up after the last tile.
 * 3. Weights are packed once per batch, after need, or once for several batches of a step; ranges are ready
 * in the last tile.
 *
 * Layers of other kinds are computed by their plain functions, on rows; layers that have state (batch norm)
 * are not, as they must see the whole batch at once. */
#include <string.h>

#include "base/alloc.h"
#include "model/exec_tile_impl.h"

#define SUITS_WEIGHTS (1u << 19) /* 2 MB */
#define SUITS_NUMBERS (1u << 14) /* between two layers: 1 MB in 16 lanes */

extern const mst_executor mst_executor_tile;

static mst_status tile_can(const mst_chain *chain)
{
    TRY(mst_executor_chain_only(&mst_executor_tile, chain));
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        const mst_layer *layer = chain->layers[i];
        for (uint32_t j = 0; j < layer->n_params; j++)
            if (layer->params[j].kind == MST_VIEW_STATE)
                return mst_fail(MST_EUNSUPPORTED,
                                "--executor tile takes a few images at a time, and %s (%s) needs the whole "
                                "batch at once: choose another",
                                layer->name, layer->ops->name);
    }
    return MST_OK;
}

/* Every tile reads all weights three times and writes their gradients, and walks over the arrays between
 * layers several times: all should stay in the caches. oneDNN is faster beyond. */
static bool tile_suits(const mst_chain *chain)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        if (mst_dims_size(&chain->layers[i]->out) > SUITS_NUMBERS)
            return false;
        for (uint32_t j = 0; j < chain->layers[i]->n_params; j++)
            n += mst_layer_param_size(&chain->layers[i]->params[j]);
    }
    return n <= SUITS_WEIGHTS;
}

static uint32_t tile_part_rows(const mst_kernels *kernels)
{
    return mst_tile_kernels_get(kernels->isa)->lanes;
}

static void tile_close(mst_replica *base)
{
    tile_replica *self = (tile_replica *)base;
    if (self == NULL)
        return;
    for (uint32_t i = 0; i < self->n_blocks; i++)
        mst_free(self->blocks[i]);
    mst_free(self);
}

static mst_status tile_open(const mst_chain *chain, const mst_kernels *kernels, uint32_t max_rows,
                            unsigned n_threads, bool training, mst_replica **out)
{
    tile_replica *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->base = (mst_replica){.executor = &mst_executor_tile,
                               .chain = chain,
                               .kernels = kernels,
                               .max_rows = max_rows,
                               .n_threads = n_threads};
    self->tile = mst_tile_kernels_get(kernels->isa);
    self->training = training;
    mst_status st = mst_tile_plan(self);
    if (st != MST_OK) {
        tile_close(&self->base);
        return st;
    }
    *out = &self->base;
    return MST_OK;
}

/* ---- forward ---- */

static const float *tile_weight_of(const tile_op *op, const mst_weights *w)
{
    return w->ranges[op->layer->first_range];
}

static const float *bias_of(const tile_op *op, const mst_weights *w)
{
    return op->layer->n_params > 1 ? w->ranges[op->layer->first_range + 1] : NULL;
}

/* The weights in the order of the kernels. */
static void pack_weights(const tile_replica *self, const tile_op *op, const mst_weights *w)
{
    const mst_tile_kernels *tile = self->tile;
    if (op->kind == TILE_LINEAR)
        tile->pack(tile_weight_of(op, w), op->layer->out.c, op->in_size, op->packed);
    if (op->kind != TILE_CONV)
        return;
    const mst_tile_window *g = &op->window;
    const uint32_t n_out = g->c_out / g->groups, n_in = g->c_in / g->groups, taps = g->kernel_h * g->kernel_w;
    const size_t size = (size_t)n_out * n_in * taps;
    for (uint32_t i = 0; i < g->groups; i++) {
        const float *group = tile_weight_of(op, w) + i * size;
        tile->pack(group, n_out, (size_t)n_in * taps, op->packed + i * size);
        if (op->back && self->training)
            tile->pack_back(group, n_out, n_in, taps, op->packed_back + i * size);
    }
}

static void tile_drop(const tile_replica *self, const tile_op *op, const mst_pass *pass, uint32_t n)
{
    if (!pass->training) {
        self->tile->act_forward(MST_TILE_SAME, op->out_size, op->x, op->y);
        return;
    }
    for (uint32_t r = 0; r < n; r++)
        mst_dropout_row(op->layer, pass, r, op->out_size, self->rows + r * op->out_size);
    self->tile->to_lanes(self->rows, op->out_size, n, op->out_size, op->factors);
    self->tile->act_backward(MST_TILE_SAME, op->out_size, op->x, op->factors, op->y);
}

static void forward_plain(const tile_replica *self, const tile_op *op, const mst_pass *pass, uint32_t n,
                          const mst_weights *w)
{
    self->tile->to_rows(op->x, op->in_size, n, op->x_rows, op->in_size);
    op->layer->ops->forward(op->layer, pass->training ? op->state : NULL, pass, n, op->x_rows,
                            (float *const *)w->ranges + op->layer->first_range, op->y_rows);
    self->tile->to_lanes(op->y_rows, op->out_size, n, op->out_size, op->y);
}

static void forward_op(const tile_replica *self, const tile_op *op, const mst_pass *pass, uint32_t n,
                       const mst_weights *w)
{
    const mst_tile_kernels *tile = self->tile;
    const bool relu = op->act == MST_TILE_RELU;
    switch (op->kind) {
    case TILE_CONV:
        tile->conv_forward(&op->window, op->x, op->packed, bias_of(op, w), relu, op->y);
        break;
    case TILE_LINEAR:
        tile->linear_forward((uint32_t)op->in_size, (uint32_t)op->out_size, op->x, op->packed, bias_of(op, w),
                             relu, op->y);
        break;
    case TILE_MAXPOOL:
        tile->max_forward(&op->window, op->x, op->y);
        break;
    case TILE_AVGPOOL:
        tile->average_forward(&op->window, op->x, op->y);
        break;
    case TILE_DROPOUT:
        tile_drop(self, op, pass, n);
        break;
    case TILE_SAME:
        tile->act_forward(op->act, op->out_size, op->x, op->y);
        return;
    case TILE_PLAIN:
        forward_plain(self, op, pass, n, w);
        break;
    }
    if (op->act != MST_TILE_SAME && !(relu && (op->kind == TILE_CONV || op->kind == TILE_LINEAR)))
        tile->act_forward(op->act, op->out_size, op->y, op->y);
}

/* A tile's rows up to the scores, which are left in rows (n_rows, classes). The first tile of a batch waits
 * for weights. */
static mst_status forward_tile(const tile_replica *self, const mst_batch *rows, const mst_pass *pass,
                               const mst_weights *w, bool first, mst_step *step)
{
    const mst_tile_kernels *tile = self->tile;
    const tile_op *last = &self->ops[self->n_ops - 1];
    const size_t in = mst_dims_size(&self->base.chain->in);
    mst_replica_load(&self->base, rows->rows, rows->n_rows, self->rows);
    uint64_t start = mst_trace_now();
    tile->to_lanes(self->rows, in, rows->n_rows, in, self->input);
    mst_trace_op("to lanes", start, mst_dims_output(&self->base.chain->in, rows->n_rows));
    for (uint32_t i = 0; i < self->n_ops; i++) {
        const tile_op *op = &self->ops[i];
        for (uint32_t j = 0; first && j < op->layer->n_params; j++)
            TRY(mst_step_need(step, op->layer->first_range + j));
        start = mst_trace_now();
        if (first && (step == NULL || !step->again))
            pack_weights(self, op, w);
        forward_op(self, op, pass, rows->n_rows, w);
        start = mst_trace_layer(op->layer->name, "forward", start,
                                mst_dims_output(&op->layer->out, rows->n_rows));
    }
    tile->to_rows(last->y, last->out_size, rows->n_rows, self->rows, last->out_size);
    mst_trace_op("scores to rows", start, mst_trace_floats(rows->n_rows, last->out_size));
    return MST_OK;
}

static mst_status tile_forward(mst_replica *base, const mst_batch *batch, const mst_weights *w, float *scores)
{
    const tile_replica *self = (const tile_replica *)base;
    const uint32_t lanes = self->tile->lanes;
    const size_t classes = self->ops[self->n_ops - 1].out_size;
    const mst_pass pass = {0};
    for (uint32_t from = 0; from < batch->n_rows; from += lanes) {
        mst_batch rows = mst_batch_range(batch, from, lanes);
        TRY(forward_tile(self, &rows, &pass, w, from == 0, NULL));
        memcpy(scores + from * classes, self->rows, rows.n_rows * classes * sizeof *scores);
    }
    return MST_OK;
}

/* ---- backward ---- */

static size_t tile_round_up(size_t n, size_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* The place of a tile in its batch. */
typedef struct tile_place {
    uint32_t n;       /* rows */
    bool first, last; /* of the batch */
    bool fresh;       /* the gradient of the batch is overwritten */
} tile_place;

static void backward_conv(const tile_replica *self, const tile_op *op, const tile_place *tile_at,
                          float *const *g)
{
    const mst_tile_kernels *tile = self->tile;
    const mst_tile_window *window = &op->window;
    const bool bias = op->layer->n_params > 1;
    tile->conv_weights(window, op->x, op->y, op->gw, bias ? op->gb : NULL);
    if (tile_at->last) {
        tile->add_lanes(op->gw, mst_layer_param_size(&op->layer->params[0]), tile_at->fresh, g[0]);
        if (bias)
            tile->add_lanes(op->gb, window->c_out, tile_at->fresh, g[1]);
    }
    if (op->back)
        tile->conv_backward(window, op->y, op->packed_back, op->act_in, op->x);
}

static void backward_linear(const tile_replica *self, const tile_op *op, const tile_place *tile_at,
                            const mst_weights *w, float *const *g)
{
    const uint32_t n_in = (uint32_t)op->in_size, n_out = (uint32_t)op->out_size;
    const size_t ld = tile_round_up(n_in, self->tile->lanes);
    self->tile->to_rows(op->x, n_in, tile_at->n, self->rows, ld);
    self->tile->linear_weights(n_in, n_out, tile_at->n, self->rows, ld, op->y,
                               tile_at->fresh && tile_at->first, g[0], op->layer->n_params > 1 ? g[1] : NULL);
    if (op->back)
        self->tile->linear_backward(n_in, n_out, op->y, tile_weight_of(op, w), op->act_in, op->x);
}

static void backward_plain(const tile_replica *self, const tile_op *op, const mst_pass *pass,
                           const tile_place *tile_at, const mst_weights *w, float *const *g)
{
    const mst_tile_kernels *tile = self->tile;
    const uint32_t n = tile_at->n;
    for (uint32_t j = 0; tile_at->fresh && tile_at->first && j < op->layer->n_params; j++)
        memset(g[j], 0, mst_layer_param_size(&op->layer->params[j]) * sizeof *g[j]);
    tile->to_rows(op->y, op->out_size, n, self->rows, op->out_size);
    op->layer->ops->backward(op->layer, op->state, pass, n, op->x_rows, op->y_rows, self->rows,
                             (float *const *)w->ranges + op->layer->first_range,
                             op->back ? self->more_rows : NULL, g);
    if (!op->back)
        return;
    tile->to_lanes(self->more_rows, op->in_size, n, op->in_size, self->scratch);
    tile->act_backward(op->act_in, op->in_size, self->scratch, NULL, op->x);
}

static void backward_op(const tile_replica *self, const tile_op *op, const mst_pass *pass,
                        const tile_place *tile_at, const mst_weights *w, float *const *g)
{
    const mst_tile_kernels *tile = self->tile;
    if (op->kind == TILE_CONV)
        backward_conv(self, op, tile_at, g);
    else if (op->kind == TILE_LINEAR)
        backward_linear(self, op, tile_at, w, g);
    else if (op->kind == TILE_PLAIN)
        backward_plain(self, op, pass, tile_at, w, g);
    else if (!op->back)
        return;
    else if (op->kind == TILE_MAXPOOL)
        tile->max_backward(&op->window, op->y, op->act_in, op->x, self->scratch);
    else if (op->kind == TILE_AVGPOOL)
        tile->average_backward(&op->window, op->y, op->act_in, op->x, self->scratch);
    else
        tile->act_backward(op->act_in, op->in_size, op->y,
                           op->kind == TILE_DROPOUT && pass->training ? op->factors : NULL, op->x);
}

/* From d(loss)/d(scores) in rows to the gradients. */
static mst_status backward_tile(const tile_replica *self, const mst_pass *pass, const tile_place *tile_at,
                                const mst_weights *w, mst_grad *grad, mst_step *step)
{
    const uint32_t n = tile_at->n;
    const mst_tile_kernels *tile = self->tile;
    const tile_op *end = &self->ops[self->n_ops - 1];
    uint64_t start = mst_trace_now();
    tile->to_lanes(self->rows, end->out_size, n, end->out_size, self->scratch);
    tile->act_backward(end->act, end->out_size, self->scratch, NULL, end->y);
    mst_trace_op("loss to lanes", start, mst_trace_floats(n, end->out_size));
    for (uint32_t i = self->n_ops; i-- > 0;) {
        const tile_op *op = &self->ops[i];
        const mst_layer *layer = op->layer;
        float *g[MST_LAYER_PARAMS] = {0};
        for (uint32_t j = 0; j < layer->n_params; j++)
            g[j] = grad->ranges[layer->first_range + j].g;
        start = mst_trace_now();
        backward_op(self, op, pass, tile_at, w, g);
        mst_trace_layer(layer->name, "backward", start, mst_dims_output(&layer->in, n));
        for (uint32_t j = layer->n_params; tile_at->last && j-- > 0;)
            TRY(mst_step_ready(step, layer->first_range + j));
    }
    return MST_OK;
}

static void clear_sums(const tile_replica *self)
{
    const size_t vector = self->tile->lanes * sizeof(float);
    for (uint32_t i = 0; i < self->n_ops; i++) {
        const tile_op *op = &self->ops[i];
        if (op->kind != TILE_CONV)
            continue;
        memset(op->gw, 0, mst_layer_param_size(&op->layer->params[0]) * vector);
        memset(op->gb, 0, op->layer->out.c * vector);
    }
}

static mst_status tile_train(mst_replica *base, const mst_batch *batch, const mst_weights *w,
                             const mst_pass *pass, float scale, mst_grad *grad, mst_step *step,
                             mst_loss_sum *sum)
{
    const tile_replica *self = (const tile_replica *)base;
    const uint32_t lanes = self->tile->lanes;
    uint64_t start = mst_trace_now();
    clear_sums(self);
    mst_trace_op("clear", start, (mst_trace_output){0});
    for (uint32_t from = 0; from < batch->n_rows; from += lanes) {
        mst_batch rows = mst_batch_range(batch, from, lanes);
        mst_pass part = *pass;
        part.first_row += from;
        TRY(forward_tile(self, &rows, &part, w, from == 0, step));
        mst_replica_loss(base, &rows, self->rows, scale, self->rows, sum);
        const tile_place tile_at = {.n = rows.n_rows,
                                    .first = from == 0,
                                    .last = from + rows.n_rows == batch->n_rows,
                                    .fresh = grad->fresh};
        TRY(backward_tile(self, &part, &tile_at, w, grad, step));
    }
    grad->fresh = false;
    return MST_OK;
}

const mst_executor mst_executor_tile = {
    .name = "tile",
    .help = "a few images at a time, side by side in vector lanes: the fastest for small nets",
    .overwrites = true,
    .part_rows = tile_part_rows,
    .can = tile_can,
    .suits = tile_suits,
    .open = tile_open,
    .close = tile_close,
    .train = tile_train,
    .forward = tile_forward,
};
