/* The plan of the tile executor: the operations of a chain, and memory for them.
 *
 * An activation belongs to the operation before it, so that it is applied while the numbers are in registers,
 * and its derivative when the gradient of that array is written. */
#include <string.h>

#include "base/alloc.h"
#include "model/exec_tile_impl.h"

static mst_tile_act act_of(const mst_layer *layer)
{
    return layer->ops == &mst_layer_relu      ? MST_TILE_RELU
           : layer->ops == &mst_layer_tanh    ? MST_TILE_TANH
           : layer->ops == &mst_layer_sigmoid ? MST_TILE_SIGMOID
                                              : MST_TILE_SAME;
}

static tile_kind tile_plan_kind_of(const mst_layer *layer)
{
    static const struct {
        const mst_layer_ops *ops;
        tile_kind kind;
    } kinds[] = {
        {&mst_layer_conv, TILE_CONV},       {&mst_layer_linear, TILE_LINEAR},
        {&mst_layer_maxpool, TILE_MAXPOOL}, {&mst_layer_avgpool, TILE_AVGPOOL},
        {&mst_layer_dropout, TILE_DROPOUT}, {&mst_layer_relu, TILE_SAME},
        {&mst_layer_tanh, TILE_SAME},       {&mst_layer_sigmoid, TILE_SAME},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].ops == layer->ops)
            return kinds[i].kind;
    return TILE_PLAIN;
}

static mst_tile_window tile_plan_window_of(const mst_layer *layer, const mst_window *window, uint32_t groups)
{
    return (mst_tile_window){
        .c_in = layer->in.c,
        .h_in = layer->in.h,
        .w_in = layer->in.w,
        .c_out = layer->out.c,
        .h_out = layer->out.h,
        .w_out = layer->out.w,
        .kernel_h = window->kh,
        .kernel_w = window->kw,
        .stride_h = window->stride,
        .stride_w = window->stride,
        .pad_h = window->pad,
        .pad_w = window->pad,
        .groups = groups,
    };
}

static void plan_ops(tile_replica *self)
{
    const mst_chain *chain = self->base.chain;
    bool back = false;
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        const mst_layer *layer = chain->layers[i];
        mst_tile_act act = act_of(layer);
        tile_op *before = self->n_ops > 0 ? &self->ops[self->n_ops - 1] : NULL;
        if (act != MST_TILE_SAME && before != NULL && before->act == MST_TILE_SAME) {
            before->act = act;
            continue;
        }
        tile_op *op = &self->ops[self->n_ops++];
        *op = (tile_op){
            .kind = tile_plan_kind_of(layer),
            .layer = layer,
            .in_size = mst_dims_size(&layer->in),
            .out_size = mst_dims_size(&layer->out),
            .act_in = before != NULL ? before->act : MST_TILE_SAME,
            .act = act,
            .back = back,
        };
        back = back || layer->n_params > 0;
        if (op->kind == TILE_CONV)
            op->window = tile_plan_window_of(layer, &((const mst_conv *)layer)->window,
                                             ((const mst_conv *)layer)->groups);
        else if (op->kind == TILE_MAXPOOL || op->kind == TILE_AVGPOOL)
            op->window = tile_plan_window_of(layer, &((const mst_pool *)layer)->window, 1);
    }
}

/* ---- memory ---- */

/* Zeroed; lives as long as the replica. */
static mst_status take_bytes(tile_replica *self, size_t size, void **out)
{
    void *block = mst_alloc_lines(size);
    if (block == NULL)
        return mst_fail_memory();
    memset(block, 0, size);
    self->blocks[self->n_blocks++] = block;
    *out = block;
    return MST_OK;
}

static mst_status tile_plan_take(tile_replica *self, size_t n, float **out)
{
    void *block = NULL;
    TRY(take_bytes(self, n * sizeof **out, &block));
    *out = block;
    return MST_OK;
}

static mst_status take_op(tile_replica *self, tile_op *op)
{
    const size_t lanes = self->tile->lanes, n_weights = mst_layer_param_size(&op->layer->params[0]);
    TRY(tile_plan_take(self, op->out_size * lanes, &op->y));
    switch (op->kind) {
    case TILE_CONV:
        TRY(tile_plan_take(self, n_weights, &op->packed));
        if (!self->training)
            return MST_OK;
        TRY(tile_plan_take(self, n_weights, &op->packed_back));
        TRY(tile_plan_take(self, n_weights * lanes, &op->gw));
        return tile_plan_take(self, op->layer->out.c * lanes, &op->gb);
    case TILE_LINEAR:
        return tile_plan_take(self, n_weights, &op->packed);
    case TILE_DROPOUT:
        return self->training ? tile_plan_take(self, op->out_size * lanes, &op->factors) : MST_OK;
    case TILE_PLAIN: {
        const mst_layer_ops *ops = op->layer->ops;
        size_t state =
            self->training && ops->state_size != NULL ? ops->state_size(op->layer, self->tile->lanes) : 0;
        if (state > 0)
            TRY(take_bytes(self, state, &op->state));
        TRY(tile_plan_take(self, op->in_size * lanes, &op->x_rows));
        return tile_plan_take(self, op->out_size * lanes, &op->y_rows);
    }
    default:
        return MST_OK;
    }
}

mst_status mst_tile_plan(tile_replica *self)
{
    const size_t lanes = self->tile->lanes;
    size_t most = mst_dims_size(&self->base.chain->in);
    TRY(tile_plan_take(self, most * lanes, &self->input));
    plan_ops(self);
    for (uint32_t i = 0; i < self->n_ops; i++) {
        tile_op *op = &self->ops[i];
        TRY(take_op(self, op));
        op->x = i > 0 ? self->ops[i - 1].y : self->input;
        most = op->out_size > most ? op->out_size : most;
    }
    TRY(tile_plan_take(self, most * lanes, &self->scratch));
    most += lanes; /* rows may be filled up to a multiple of lanes */
    TRY(tile_plan_take(self, most * lanes, &self->rows));
    return tile_plan_take(self, most * lanes, &self->more_rows);
}
