/* Inputs of nets over embeddings, and mlp: kinds that the parser turns into something else (chain_parse.c).
 * Executors load the inputs with net_table.h. */
#include "model/layer_impl.h"

/* ---- inputs ---- */

#define FIELD(name) offsetof(mst_embedding, options.name) - offsetof(mst_embedding, options)
static const mst_option embedding_options[] = {
    {.name = "width",
     .type = MST_OPTION_INT,
     .offset = FIELD(width),
     .fallback = "16",
     .min = 1,
     .max = 4096,
     .metavar = "K",
     .help = "Numbers per key."},
    {.name = "init-scale",
     .type = MST_OPTION_REAL,
     .offset = FIELD(init_scale),
     .fallback = "0.05",
     .min = 0,
     .max = 1e6,
     .metavar = "X",
     .help = "Bound of the initial values, which are uniform."},
    {.name = NULL},
};

static uint64_t input_flops(const mst_layer *self)
{
    return mst_dims_size(&self->out);
}

const mst_layer_ops mst_layer_embedding = {
    .name = "embedding",
    .help = "input: a vector per field, the sum over its keys: embedding WIDTH",
    .size = sizeof(mst_embedding),
    .options = embedding_options,
    .options_at = offsetof(mst_embedding, options),
    .main_option = "width",
    .flops = input_flops,
};

const mst_layer_ops mst_layer_numbers = {
    .name = "numbers",
    .help = "input: the dense numbers of a row",
    .size = sizeof(mst_layer),
    .flops = input_flops,
};

const mst_layer_ops mst_layer_wide = {
    .name = "wide",
    .help = "input: the sum of a linear weight per key",
    .size = sizeof(mst_layer),
    .flops = input_flops,
};

const mst_layer_ops *const mst_input_layers[] = {
    &mst_layer_embedding,
    &mst_layer_numbers,
    &mst_layer_wide,
    NULL,
};

/* ---- mlp ---- */

#undef FIELD
#define FIELD(name) offsetof(mst_mlp, options.name) - offsetof(mst_mlp, options)
static const mst_option mlp_options[] = {
    {.name = "hidden",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(hidden),
     .fallback = "300,100",
     .metavar = "N,N,...",
     .help = "Sizes of the layers."},
    {.name = "dropout",
     .type = MST_OPTION_REAL,
     .offset = FIELD(dropout),
     .fallback = "0",
     .min = 0,
     .max = 0.999,
     .metavar = "P",
     .help = "Fraction of the units to drop after each layer."},
    {.name = "batchnorm",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(batchnorm),
     .fallback = "false",
     .help = "Normalise each layer over the batch, before its activation."},
    {.name = "activation",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(activation),
     .fallback = "relu",
     .choices = "relu|tanh|sigmoid",
     .help = "Activation after each layer."},
    {.name = NULL},
};

const mst_layer_ops mst_layer_mlp = {
    .name = "mlp",
    .help = "several linear layers with activations: mlp 400,400 (dropout, batchnorm, activation)",
    .size = sizeof(mst_mlp),
    .options = mlp_options,
    .options_at = offsetof(mst_mlp, options),
    .main_option = "hidden",
};
