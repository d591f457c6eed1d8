/* Chains of layers: life, views in the store, first values; contract in layer.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "model/chain_impl.h"

static const mst_option no_options[] = {{0}};

mst_option_group mst_layer_options(const mst_layer *layer)
{
    const mst_layer_ops *ops = layer->ops;
    return (mst_option_group){.title = ops->name,
                              .table = ops->options != NULL ? ops->options : no_options,
                              .base = (char *)layer + ops->options_at};
}

mst_status mst_layer_new(const mst_layer_ops *ops, mst_layer **out)
{
    mst_layer *layer = mst_zalloc(ops->size);
    if (layer == NULL)
        return mst_fail_memory();
    layer->ops = ops;
    mst_option_group group = mst_layer_options(layer);
    mst_status st = mst_options_init(&group, 1);
    if (st != MST_OK) {
        mst_layer_destroy(layer);
        return st;
    }
    *out = layer;
    return MST_OK;
}

void mst_layer_destroy(mst_layer *layer)
{
    if (layer == NULL)
        return;
    mst_option_group group = mst_layer_options(layer);
    mst_options_fini(&group, 1);
    mst_free(layer);
}

void mst_chain_destroy(mst_chain *chain)
{
    if (chain == NULL)
        return;
    for (uint32_t i = 0; i < chain->n_layers; i++)
        mst_layer_destroy(chain->layers[i]);
    mst_free(chain->text);
    mst_free(chain);
}

uint64_t mst_layer_param_size(const mst_layer_param *param)
{
    uint64_t size = 1;
    for (uint32_t i = 0; i < param->n_dims; i++)
        if (__builtin_mul_overflow(size, param->dims[i], &size) || size > UINT32_MAX)
            return 0;
    return size;
}

/* The table is first: range 0 is its beginning, as servers want it. It has the name of the embedding. */
static mst_status chain_declare_table(mst_chain *chain, mst_params *params)
{
    mst_net_table *table = &chain->table;
    char name[sizeof params->views->name];
    snprintf(name, sizeof name, "%s.weight",
             chain->layers[table->factors != 0 ? table->embedding : table->wide]->name);
    TRY(mst_params_add(params, name, MST_VIEW_TRAINABLE, table->width, 2,
                       (uint64_t[]){table->n_keys, table->width}, &table->view));
    params->views[table->view].head = table->n_dense; /* range 0 has state of its own */
    return MST_OK;
}

mst_status mst_chain_declare(mst_chain *chain, mst_params *params)
{
    if (chain->table.width != 0)
        TRY(chain_declare_table(chain, params));
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        mst_layer *layer = chain->layers[i];
        for (uint32_t j = 0; j < layer->n_params; j++) {
            const mst_layer_param *param = &layer->params[j];
            char name[sizeof params->views->name];
            snprintf(name, sizeof name, "%s.%s", layer->name, param->name);
            TRY(mst_params_add(params, name, param->kind, 0, param->n_dims, param->dims, &layer->views[j]));
        }
    }
    return MST_OK;
}

/* ---- first values ---- */

static void fill_uniform(float *w, uint64_t n, double bound, mst_rng *rng)
{
    for (uint64_t i = 0; i < n; i++)
        w[i] = (float)(bound * ((double)mst_rng_u32(rng) * 0x1p-31 - 1.0));
}

/* Box and Muller: two at a time. */
static void fill_normal(float *w, uint64_t n, double deviation, mst_rng *rng)
{
    for (uint64_t i = 0; i < n; i += 2) {
        float u = ((float)(mst_rng_u32(rng) >> 8) + 1.0f) * 0x1p-24f; /* (0, 1]: the logarithm is finite */
        float angle = (float)(mst_rng_u32(rng) >> 8) * (0x1p-24f * 6.2831853f), sine, cosine;
        float radius = (float)deviation * sqrtf(-2.0f * logf(u));
        sincosf(angle, &sine, &cosine);
        w[i] = radius * cosine;
        if (i + 1 < n)
            w[i + 1] = radius * sine;
    }
}

static void fill_constant(float *w, uint64_t n, float value)
{
    for (uint64_t i = 0; value != 0.0f && i < n; i++) /* the store is zero at first */
        w[i] = value;
}

void mst_layer_param_start(const mst_layer_param *param, float *w, uint64_t n, mst_rng *rng)
{
    double in = (double)param->fan_in, out = (double)param->fan_out;
    switch (param->init) {
    case MST_INIT_GLOROT:
        fill_uniform(w, n, sqrt(6.0 / (in + out)), rng);
        break;
    case MST_INIT_HE:
        fill_normal(w, n, sqrt(2.0 / in), rng);
        break;
    case MST_INIT_UNIFORM:
        fill_uniform(w, n, param->init_scale, rng);
        break;
    case MST_INIT_NORMAL:
        fill_normal(w, n, param->init_scale, rng);
        break;
    case MST_INIT_CONSTANT:
        fill_constant(w, n, (float)param->init_scale);
        break;
    }
}

/* Keys below n_dense are numbers, which have no embedding. A table of linear weights alone stays untouched,
 * and takes no memory until it is used. */
void mst_chain_start_keys(const mst_chain *chain, mst_params *params, uint64_t seed, uint64_t first,
                          uint64_t n)
{
    const mst_net_table *table = &chain->table;
    if (table->factors == 0 || table->init_scale <= 0.0)
        return;
    mst_key_rows rows = mst_params_keys(params, params->views[table->view].offset, table->width, NULL);
    uint64_t end = first + n < table->n_keys ? first + n : table->n_keys;
    for (uint64_t key = first > table->n_dense ? first : table->n_dense; key < end; key++) {
        mst_rng rng;
        mst_rng_init(&rng, seed, MST_RNG_TABLE, key);
        fill_uniform(rows.at + key * rows.stride, table->factors, table->init_scale, &rng);
    }
}

void mst_chain_start(const mst_chain *chain, mst_params *params, uint64_t seed)
{
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        const mst_layer *layer = chain->layers[i];
        for (uint32_t j = 0; j < layer->n_params; j++) {
            const mst_view *view = &params->views[layer->views[j]];
            mst_rng rng;
            mst_rng_init(&rng, seed, MST_RNG_INIT, layer->first_range + j);
            mst_layer_param_start(&layer->params[j], params->w + view->offset, view->size, &rng);
        }
    }
}

uint64_t mst_chain_flops(const mst_chain *chain)
{
    uint64_t flops = 0;
    for (uint32_t i = 0; i < chain->n_layers; i++)
        flops += chain->layers[i]->ops->flops != NULL ? chain->layers[i]->ops->flops(chain->layers[i]) : 0;
    return flops;
}
