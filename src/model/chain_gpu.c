/* Chains of layers on a GPU; contract in chain_gpu.h. */
#include "model/chain_gpu.h"

#include <string.h>

#include "model/layer_impl.h"

#define PARAMS_MAX (MST_NET_LAYERS * MST_LAYER_PARAMS)

static const struct {
    const mst_layer_ops *ops;
    mst_cuda_kind kind;
} gpu_kinds[] = {
    {&mst_layer_conv, MST_CUDA_CONV},           {&mst_layer_linear, MST_CUDA_LINEAR},
    {&mst_layer_maxpool, MST_CUDA_MAXPOOL},     {&mst_layer_avgpool, MST_CUDA_AVGPOOL},
    {&mst_layer_relu, MST_CUDA_RELU},           {&mst_layer_tanh, MST_CUDA_TANH},
    {&mst_layer_sigmoid, MST_CUDA_SIGMOID},     {&mst_layer_lrn, MST_CUDA_LRN},
    {&mst_layer_batchnorm, MST_CUDA_BATCHNORM}, {&mst_layer_dropout, MST_CUDA_DROPOUT},
};
#define N_GPU_KINDS (sizeof gpu_kinds / sizeof *gpu_kinds)

static bool gpu_kind(const mst_layer *layer, mst_cuda_kind *out)
{
    for (size_t i = 0; i < N_GPU_KINDS; i++)
        if (gpu_kinds[i].ops == layer->ops) {
            *out = gpu_kinds[i].kind;
            return true;
        }
    return false;
}

mst_status mst_chain_gpu_can(const mst_chain *chain)
{
    mst_cuda_kind kind;
    if (chain->graph)
        return mst_fail(MST_EUNSUPPORTED,
                        "--device cuda computes plain chains of layers, and this net has from= or an "
                        "embedding; use --device cpu");
    for (uint32_t i = 0; i < chain->n_layers; i++)
        if (!gpu_kind(chain->layers[i], &kind))
            return mst_fail(MST_EUNSUPPORTED,
                            "--device cuda does not compute layers of kind %s (%s); use --device cpu",
                            chain->layers[i]->ops->name, chain->layers[i]->name);
    return MST_OK;
}

static mst_cuda_dims gpu_dims(const mst_dims *d)
{
    return (mst_cuda_dims){.c = d->c, .h = d->h, .w = d->w};
}

static void gpu_window(mst_cuda_layer *to, const mst_window *window)
{
    to->kh = window->kh;
    to->kw = window->kw;
    to->stride = window->stride;
    to->pad = window->pad;
}

static mst_cuda_layer gpu_layer(const mst_layer *layer)
{
    mst_cuda_layer to = {.in = gpu_dims(&layer->in),
                         .out = gpu_dims(&layer->out),
                         .n_params = layer->n_params,
                         .first_param = layer->first_range,
                         .groups = 1};
    gpu_kind(layer, &to.kind);
    if (layer->ops == &mst_layer_conv) {
        gpu_window(&to, &((const mst_conv *)layer)->window);
        to.groups = ((const mst_conv *)layer)->groups;
    } else if (layer->ops == &mst_layer_maxpool || layer->ops == &mst_layer_avgpool) {
        gpu_window(&to, &((const mst_pool *)layer)->window);
    } else if (layer->ops == &mst_layer_lrn) {
        const mst_lrn *lrn = (const mst_lrn *)layer;
        to.size = (uint32_t)lrn->options.size;
        to.alpha = lrn->options.alpha;
        to.beta = lrn->options.beta;
        to.k = lrn->options.k;
    } else if (layer->ops == &mst_layer_batchnorm) {
        to.momentum = ((const mst_batchnorm *)layer)->options.momentum;
        to.eps = ((const mst_batchnorm *)layer)->options.eps;
    } else if (layer->ops == &mst_layer_dropout) {
        to.rate = ((const mst_dropout *)layer)->options.rate;
    }
    return to;
}

mst_status mst_chain_gpu_open(const mst_cuda *gpu, const mst_chain *chain,
                              const mst_chain_gpu_options *options, mst_cuda_net **out)
{
    mst_cuda_layer layers[MST_NET_LAYERS];
    mst_cuda_param params[PARAMS_MAX];
    mst_cuda_net_spec spec = {
        .device = gpu->device,
        .precision = gpu->precision,
        .n_layers = chain->n_layers,
        .n_params = chain->n_ranges,
        .layers = layers,
        .params = params,
        .in = gpu_dims(&chain->in),
        .n_scores = (uint32_t)mst_dims_size(&chain->layers[chain->n_layers - 1]->out),
        .pos_weight = options->pos_weight > 0.0f ? options->pos_weight : 1.0f,
        .max_rows = options->max_rows,
        .training = options->training,
        .updates = options->updates,
        .rule = options->rule,
    };
    TRY(mst_chain_gpu_can(chain));
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        const mst_layer *layer = chain->layers[i];
        layers[i] = gpu_layer(layer);
        for (uint32_t j = 0; j < layer->n_params; j++)
            params[layer->first_range + j] =
                (mst_cuda_param){.size = mst_layer_param_size(&layer->params[j]),
                                 .state = layer->params[j].kind == MST_VIEW_STATE};
    }
    return gpu->ops->net->open(&spec, out);
}

void mst_chain_gpu_dropout(const mst_chain *chain, const mst_pass *pass, uint64_t *out)
{
    for (uint32_t i = 0; i < chain->n_layers; i++)
        if (chain->layers[i]->ops == &mst_layer_dropout)
            *out++ = mst_dropout_seed(chain->layers[i], pass);
}

bool mst_rows_need_floats(const mst_batch *batch, uint64_t size)
{
    for (uint32_t r = 0; r < batch->n_rows; r++) {
        const mst_row *row = &batch->rows[r];
        if (row->bytes == NULL || row->n_dense != size || row->n_keys != 0)
            return true;
    }
    return false;
}

void mst_rows_stage(const mst_kernels *kernels, const mst_batch *batch, uint32_t from, uint32_t to,
                    uint64_t size, bool floats, const mst_cuda_rows *places)
{
    if (floats)
        mst_rows_expand(kernels, batch->rows + from, to - from, size, places->numbers + from * size);
    for (uint32_t r = from; r < to; r++) {
        const mst_row *row = &batch->rows[r];
        if (!floats)
            memcpy(places->bytes + r * size, row->bytes, size);
        places->labels[r] = row->label;
        places->weights[r] = row->weight;
    }
}
