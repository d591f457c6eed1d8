/* The plan of the tile executor: the operations of a chain, and memory for them.
 *
 * An activation belongs to the operation before it, so that it is applied while the numbers are in registers,
 * and its derivative when the gradient of that array is written. */

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

/* All arrays are one piece of memory, on huge pages if it is large: what is used together then takes
 * different places of the second-level cache. A first pass adds up its size. */
#define HUGE_PAGE   (2u << 20)
#define LARGE_PLANE 256 /* of a convolution: two threads of a crew compute its halves */

/* Zeroed; lives as long as the replica. */
static void *tile_plan_bytes(tile_replica *self, size_t *at, size_t size)
{
    char *out = self->memory != NULL ? self->memory + *at : NULL;
    *at += (size + 63) / 64 * 64;
    return out;
}

static float *tile_plan_take(tile_replica *self, size_t *at, size_t n)
{
    return tile_plan_bytes(self, at, n * sizeof(float));
}

static void take_op(tile_replica *self, size_t *at, tile_op *op)
{
    const size_t lanes = self->tile->lanes, n_weights = mst_layer_param_size(&op->layer->params[0]);
    op->y = tile_plan_take(self, at, op->out_size * lanes);
    switch (op->kind) {
    case TILE_CONV:
        op->packed = tile_plan_take(self, at, n_weights);
        if (!self->training)
            return;
        op->packed_back = tile_plan_take(self, at, n_weights);
        op->gw = tile_plan_take(self, at, n_weights * lanes);
        op->gb = tile_plan_take(self, at, op->layer->out.c * lanes);
        if ((size_t)op->window.h_out * op->window.w_out >= LARGE_PLANE) {
            op->gw_more = tile_plan_take(self, at, n_weights * lanes);
            op->gb_more = tile_plan_take(self, at, op->layer->out.c * lanes);
        }
        return;
    case TILE_LINEAR:
        op->packed = tile_plan_take(self, at, n_weights);
        return;
    case TILE_DROPOUT:
        op->factors = self->training ? tile_plan_take(self, at, op->out_size * lanes) : NULL;
        return;
    case TILE_PLAIN: {
        const mst_layer_ops *ops = op->layer->ops;
        size_t state =
            self->training && ops->state_size != NULL ? ops->state_size(op->layer, self->tile->lanes) : 0;
        op->state = state > 0 ? tile_plan_bytes(self, at, state) : NULL;
        op->x_rows = tile_plan_take(self, at, op->in_size * lanes);
        op->y_rows = tile_plan_take(self, at, op->out_size * lanes);
        return;
    }
    default:
        return;
    }
}

/* Bytes of all arrays. */
static size_t tile_plan_memory(tile_replica *self)
{
    const size_t lanes = self->tile->lanes;
    size_t most = mst_dims_size(&self->base.chain->in), at = 0;
    self->input = tile_plan_take(self, &at, most * lanes);
    for (uint32_t i = 0; i < self->n_ops; i++) {
        tile_op *op = &self->ops[i];
        take_op(self, &at, op);
        op->x = i > 0 ? self->ops[i - 1].y : self->input;
        most = op->out_size > most ? op->out_size : most;
    }
    self->scratch = tile_plan_take(self, &at, most * lanes);
    most += lanes; /* rows may be filled up to a multiple of lanes */
    self->rows = tile_plan_take(self, &at, most * lanes);
    self->more_rows = tile_plan_take(self, &at, most * lanes);
    return at;
}

mst_status mst_tile_plan(tile_replica *self)
{
    plan_ops(self);
    self->size = tile_plan_memory(self);
    bool huge = self->size >= HUGE_PAGE / 2;
    if (huge) /* room for whole pages */
        self->size = (self->size + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE + HUGE_PAGE;
    self->pages = mst_pages_reserve(self->size, huge);
    if (self->pages == NULL)
        return mst_fail_memory();
    self->memory = self->pages;
    if (huge)
        self->memory += -(uintptr_t)self->pages % HUGE_PAGE;
    tile_plan_memory(self);
    return MST_OK;
}
