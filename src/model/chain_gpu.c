/* Chains of layers on a GPU; contract in chain_gpu.h. */
#include "model/chain_gpu.h"

#include <string.h>

#include "model/layer_impl.h"
#include "model/net_table.h"

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
    {&mst_layer_concat, MST_CUDA_CONCAT},       {&mst_layer_add, MST_CUDA_ADD},
    {&mst_layer_fm, MST_CUDA_VECTORS_FM},       {&mst_layer_dot, MST_CUDA_VECTORS_DOT},
    {&mst_layer_cross, MST_CUDA_CROSS},         {&mst_layer_embedding, MST_CUDA_EMBEDDING},
    {&mst_layer_numbers, MST_CUDA_NUMBERS},     {&mst_layer_wide, MST_CUDA_WIDE},
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
    if (chain->table.n_keys >= UINT32_MAX)
        return mst_fail(MST_EUNSUPPORTED,
                        "--device cuda trains nets of fewer than 2^32 keys; use --device cpu");
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

static bool gpu_is_input(const mst_layer *layer)
{
    return layer->ops == &mst_layer_embedding || layer->ops == &mst_layer_numbers ||
           layer->ops == &mst_layer_wide;
}

static mst_cuda_layer gpu_layer(const mst_layer *layer)
{
    mst_cuda_layer to = {.in = gpu_dims(&layer->in),
                         .out = gpu_dims(&layer->out),
                         .n_params = layer->n_params,
                         .first_param = layer->first_range,
                         .groups = 1,
                         .n_inputs = layer->n_inputs};
    gpu_kind(layer, &to.kind);
    for (uint32_t j = 0; j < layer->n_inputs; j++)
        to.inputs[j] = layer->inputs[j] == MST_INPUT_ROWS ? MST_CUDA_THE_ROWS : layer->inputs[j];
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
    } else if (layer->ops == &mst_layer_fm || layer->ops == &mst_layer_dot) {
        mst_layer_vectors(layer, &to.vectors, &to.length); /* cannot fail: the shape was made with it */
    } else if (layer->ops == &mst_layer_cross) {
        to.in = gpu_dims(&layer->parts[0]);
    } else if (gpu_is_input(layer)) {
        to.n_inputs = 0;
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
        .graph = chain->graph,
        .in = chain->table.n_keys != 0 ? (mst_cuda_dims){chain->table.n_dense, 1, 1} : gpu_dims(&chain->in),
        .n_scores = (uint32_t)mst_dims_size(&chain->layers[chain->n_layers - 1]->out),
        .pos_weight = options->pos_weight > 0.0f ? options->pos_weight : 1.0f,
        .max_rows = options->max_rows,
        .training = options->training,
        .updates = options->updates,
        .rule = options->rule,
    };
    TRY(mst_chain_gpu_can(chain));
    if (chain->table.width != 0) {
        spec.table = (mst_cuda_table){.n_keys = chain->table.n_keys,
                                      .width = chain->table.width,
                                      .factors = chain->table.factors,
                                      .n_fields = chain->table.n_fields,
                                      .head = options->head,
                                      .state_per_key = options->state_per_key,
                                      .rule = options->rule_keys};
        params[0] = (mst_cuda_param){.size = 1}; /* range 0 is a part of the table */
    }
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

uint64_t mst_rows_count_keys(const mst_batch *batch, uint32_t from, uint32_t to)
{
    uint64_t n = 0;
    for (uint32_t r = from; r < to; r++)
        n += batch->rows[r].n_keys;
    return n;
}

void mst_rows_stage_keys(const mst_net_table *table, const mst_batch *batch, uint32_t from, uint32_t to,
                         uint64_t first, const mst_cuda_rows *places, const mst_cuda_entries *entries)
{
    uint64_t n = first;
    for (uint32_t r = from; r < to; r++) {
        const mst_row *row = &batch->rows[r];
        places->labels[r] = row->label;
        places->weights[r] = row->weight;
        if (table->n_dense != 0)
            mst_net_table_numbers(table, row, places->numbers + (size_t)r * table->n_dense);
        if (table->width == 0)
            continue;
        for (uint32_t i = 0; i < row->n_keys; i++, n++) {
            uint32_t key = row->keys[i], field = mst_net_table_field(table, row, i);
            bool left_out = key < table->n_dense || key >= table->n_keys || field >= table->n_fields;
            entries->keys[n] = left_out ? (uint32_t)table->n_keys : key;
            entries->places[n] = r * table->n_fields + (left_out ? 0 : field);
            entries->values[n] = left_out ? 0.0f : row->values != NULL ? row->values[i] : 1.0f;
        }
        entries->ends[r] = (uint32_t)n;
    }
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
