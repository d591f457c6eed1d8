/* Executor gemm: arrays between layers; contract in exec_gemm_impl.h. */
#include "base/alloc.h"
#include "model/exec_gemm_impl.h"

bool mst_gemm_is_activation(const mst_layer *layer)
{
    return layer->ops == &mst_layer_relu || layer->ops == &mst_layer_tanh || layer->ops == &mst_layer_sigmoid;
}

static uint32_t count_readers(const mst_chain *chain, uint32_t index)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < chain->n_layers; i++)
        for (uint32_t j = 0; j < chain->layers[i]->n_inputs; j++)
            n += chain->layers[i]->inputs[j] == index;
    return n;
}

/* The input whose arrays the layer shares; MST_INPUT_ROWS: none. */
static uint32_t find_shared(const mst_chain *chain, const mst_layer *layer)
{
    uint32_t only = MST_INPUT_ROWS, n = 0;
    for (uint32_t i = 0; i < layer->n_inputs; i++)
        if (mst_dims_size(&layer->parts[i]) > 0) {
            only = layer->inputs[i];
            n++;
        }
    if (n != 1 || only == MST_INPUT_ROWS)
        return MST_INPUT_ROWS;
    if (layer->ops == &mst_layer_concat)
        return only;
    return mst_gemm_is_activation(layer) && chain->layers[only]->ops == &mst_layer_linear &&
                   count_readers(chain, only) == 1
               ? only
               : MST_INPUT_ROWS;
}

bool mst_gemm_is_own(const mst_layer *layer)
{
    const mst_layer_ops *ops = layer->ops;
    return ops == &mst_layer_linear || ops == &mst_layer_concat || ops == &mst_layer_add ||
           ops == &mst_layer_cross || ops == &mst_layer_fm || mst_gemm_is_activation(layer);
}

bool mst_gemm_computes(const mst_layer *layer)
{
    return layer->n_inputs > 0 && mst_dims_size(&layer->out) > 0;
}

static mst_status gemm_room(const mst_gemm_replica *self, uint64_t n, float **out)
{
    *out = mst_alloc_lines((size_t)n * self->tile * sizeof **out);
    return *out != NULL ? MST_OK : mst_fail_memory();
}

static mst_status plan_layer(mst_gemm_replica *self, uint32_t index)
{
    const mst_layer *layer = self->base.chain->layers[index];
    mst_gemm_layer *l = &self->layers[index];
    uint32_t shared = find_shared(self->base.chain, layer);
    uint64_t in = mst_dims_size(&layer->in), out = mst_dims_size(&layer->out);
    l->owner = index;
    if (shared != MST_INPUT_ROWS) {
        l->shares = true;
        l->owner = self->layers[shared].owner;
        l->y = self->layers[shared].y;
        l->d = self->layers[shared].d;
        return MST_OK;
    }
    TRY(gemm_room(self, out, &l->y));
    if (mst_gemm_computes(layer) && !mst_gemm_is_own(layer) && layer->n_inputs > 1)
        TRY(gemm_room(self, in, &l->rows));
    if (!self->training)
        return MST_OK;
    TRY(gemm_room(self, out, &l->d));
    if (mst_gemm_computes(layer) && !mst_gemm_is_own(layer))
        TRY(gemm_room(self, in, &l->d_rows));
    size_t state = mst_gemm_computes(layer) && layer->ops->state_size != NULL
                       ? layer->ops->state_size(layer, self->tile)
                       : 0;
    if (state > 0 && (l->state = mst_alloc_lines(state)) == NULL)
        return mst_fail_memory();
    return MST_OK;
}

/* Whether a gradient is set already when the backward pass reaches a layer. */
static void plan_gradients(mst_gemm_replica *self)
{
    const mst_chain *chain = self->base.chain;
    bool set[MST_NET_LAYERS] = {false};
    for (uint32_t i = chain->n_layers; i-- > 0;) {
        const mst_layer *layer = chain->layers[i];
        bool moves = mst_gemm_computes(layer) && !self->layers[i].shares; /* else the gradient is there */
        for (uint32_t j = 0; moves && j < layer->n_inputs; j++) {
            if (layer->inputs[j] == MST_INPUT_ROWS)
                continue;
            uint32_t owner = self->layers[layer->inputs[j]].owner;
            self->layers[i].adds[j] = set[owner];
            set[owner] = true;
        }
    }
}

mst_status mst_gemm_plan(mst_gemm_replica *self)
{
    const mst_chain *chain = self->base.chain;
    uint64_t most = 1;
    bool rows = false;
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        const mst_layer *layer = chain->layers[i];
        uint64_t in = mst_dims_size(&layer->in);
        most = in > most ? in : most;
        for (uint32_t j = 0; j < layer->n_inputs; j++)
            rows |= layer->inputs[j] == MST_INPUT_ROWS;
        TRY(plan_layer(self, i));
    }
    plan_gradients(self);
    if (rows)
        TRY(gemm_room(self, mst_dims_size(&chain->in), &self->input));
    return gemm_room(self, most, &self->room);
}
