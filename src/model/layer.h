/* Layers of nets. One const table per kind, in mst_layers; a net file names them, `muster
 * list` shows them, and the contract tests loop over them (finite differences, plain against fast
 * implementations).
 *
 * A layer is described once (mst_layer: options, shapes, parameters) and never changes after that. An
 * executor computes it (executor.h): the fast ones support the built-in kinds; for every other kind they call
 * the table's plain functions, which work on rows of plain numbers: image after image, (n, c, h, w). */
#ifndef MST_MODEL_LAYER_H
#define MST_MODEL_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/option.h"
#include "base/status.h"
#include "tensor/params.h"

/* Of one image; plain numbers are c x 1 x 1. */
typedef struct mst_dims {
    uint32_t c, h, w;
} mst_dims;

static inline uint64_t mst_dims_size(const mst_dims *d)
{
    return (uint64_t)d->c * d->h * d->w;
}

/* "3x224x224", or fewer sides: the others are 1. False when text is not that, or beyond 2^28 numbers. */
bool mst_dims_parse(const char *text, mst_dims *out);

typedef enum mst_init {
    MST_INIT_GLOROT,  /* uniform in +-sqrt(6 / (fan_in + fan_out)) */
    MST_INIT_HE,      /* normal, sqrt(2 / fan_in) */
    MST_INIT_UNIFORM, /* in +-init-scale */
    MST_INIT_NORMAL,  /* init-scale times a standard normal */
    MST_INIT_CONSTANT,
} mst_init;

/* A parameter of a layer: a view of the store and a dense range of the gradient. The "gradient" of a state
 * parameter (MST_VIEW_STATE: a running mean) is its new value: strategies replace it instead of adding to it.
 */
#define MST_LAYER_PARAMS 4
typedef struct mst_layer_param {
    const char *name; /* "weight", "bias", "running_mean", ...: the view is LAYER.name */
    mst_view_kind kind;
    uint32_t n_dims;
    uint64_t dims[MST_VIEW_NDIM];
    mst_init init;
    double init_scale; /* of UNIFORM, NORMAL and CONSTANT */
    uint64_t fan_in, fan_out;
} mst_layer_param;

/* Numbers of a parameter; 0: more than 2^32 - 1. */
uint64_t mst_layer_param_size(const mst_layer_param *param);

/* Writes the initial values of n numbers, which are zero. */
struct mst_rng;
void mst_layer_param_start(const mst_layer_param *param, float *w, uint64_t n, struct mst_rng *rng);

typedef struct mst_layer_ops mst_layer_ops;

#define MST_LAYER_INPUTS 16
#define MST_INPUT_ROWS   UINT32_MAX

/* A layer of a net, described. Options of a kind follow the base struct in the kind's own. */
typedef struct mst_layer {
    const mst_layer_ops *ops;
    char name[32];
    unsigned line; /* of the net file; 0: none */
    /* Several inputs are one row, one after the other: in is then n x 1 x 1. */
    uint32_t n_inputs;
    uint32_t inputs[MST_LAYER_INPUTS]; /* layers of the net; MST_INPUT_ROWS: the rows of the data */
    mst_dims parts[MST_LAYER_INPUTS];  /* of each input */
    mst_dims in, out;
    uint32_t n_params;
    mst_layer_param params[MST_LAYER_PARAMS];
    uint32_t views[MST_LAYER_PARAMS]; /* in the store */
    uint32_t first_range;             /* its parameters are ranges one after the other */
} mst_layer;

/* The arguments of a pass besides numbers. */
typedef struct mst_pass {
    bool training; /* dropout drops, batch norm uses the batch's own mean and variance */
    uint64_t seed, step,
        first_row; /* random numbers are keyed by (seed, step, row in the global batch, unit) */
} mst_pass;

struct mst_layer_ops {
    const char *name, *help;
    size_t size;               /* of the derived struct */
    const mst_option *options; /* key=value words of the net file; or NULL */
    size_t options_at;         /* their offset in the derived struct */
    const char
        *main_option; /* the option that a bare first number sets: "conv 6" is "conv filters=6"; or NULL */
    bool many;        /* takes several inputs */

    /* Checks options and self->in, sets self->out and the parameters. A failure names what does not fit. */
    mst_status (*shape)(mst_layer *self);
    uint64_t (*flops)(const mst_layer *self); /* of one image, forward, a multiply-add counting as two */
    size_t (*state_size)(const mst_layer *self,
                         uint32_t n); /* bytes kept from forward to backward; NULL: none */

    /* Plain implementations, for n images; w[i] and g[i] are parameters and their gradients, which backward
     * adds to (state parameters: sets to the new value). dx NULL: not wanted. state is NULL where
     * pass->training is false; backward follows forward in training only. */
    void (*forward)(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n, const float *x,
                    float *const *w, float *y);
    void (*backward)(const mst_layer *self, void *state, const mst_pass *pass, uint32_t n, const float *x,
                     const float *y, const float *dy, float *const *w, float *dx, float *const *g);
};

extern const mst_layer_ops *const mst_layers[]; /* NULL-terminated */

/* Parts of a row as layers of a net: a vector per field, the dense prefix, the sum of linear weights. They
 * have no plain functions: executors load all of them at once (net_table.h). NULL-terminated. */
extern const mst_layer_ops *const mst_input_layers[];

/* "mlp": stands for several layers of a net file and never is one itself. */
extern const mst_layer_ops mst_layer_mlp;

/* ---- nets ---- */

#define MST_NET_LAYERS 128

/* The rows that a net is for. */
typedef struct mst_net_data {
    mst_dims in;        /* c 0: unknown; c x 1 x 1: as many values, which an input line may make an image */
    uint32_t n_classes; /* 0: any */
    /* For nets over embeddings: */
    uint64_t n_keys;                   /* of the embedding table: the features of the data */
    uint32_t n_dense;                  /* the longest dense prefix */
    uint32_t n_fields;                 /* the dense prefix included; 0: the keys of a row are one field */
    const mst_layer_ops *const *kinds; /* further kinds of layers, NULL-terminated, which must outlive the
                                          chain; or NULL */
} mst_net_data;

/* The table of a net over embeddings: a key owns `width` floats, its factors and then its linear weight.
 * Numbers of the dense prefix own none; their rows of the table, range 0 of the gradient, stay zero. */
typedef struct mst_net_table {
    uint64_t n_keys;
    uint32_t n_dense, n_fields;        /* n_fields: of keys, without the dense prefix */
    bool by_field;                     /* rows have fields; false: n_fields is 1 */
    uint32_t factors;                  /* per key; 0: no embedding */
    bool linear;                       /* a linear weight per key */
    uint32_t width;                    /* 0: the net has no table */
    double init_scale;                 /* factors start uniform in +-init_scale, linear weights at zero */
    uint32_t embedding, numbers, wide; /* the layers; MST_INPUT_ROWS: none */
    uint32_t view;
} mst_net_table;

/* Layers, each after those that it reads; the last gives one number per class, or one for two classes. The
 * loss is appended automatically: softmax and cross-entropy, or the logistic loss. In a plain chain each
 * layer reads the one before it, and the first one reads the rows. */
typedef struct mst_chain {
    char *text; /* the net file, as checkpoints keep it */
    mst_dims in;
    uint32_t n_layers;
    mst_layer *layers[MST_NET_LAYERS];
    uint32_t n_ranges;
    bool graph; /* not a plain chain */
    mst_net_table table;
} mst_chain;

/* Reads a net: one layer a line, "NAME: KIND [NUMBER] [option=value ...] [from=NAME,...]" or without a name
 * (conv1, conv2, ... are given then), "input CxHxW" first where the data does not give it, "defaults
 * option=value ..." for the layers below, # comments; the value "classes" is n_classes, "embedding" the width
 * of the embedding. Infers shapes and checks that the end has n_classes numbers, or one for two classes.
 * Errors name source and line. *out is the caller's to destroy. */
mst_status mst_chain_parse(const char *text, const char *source, const mst_dims *in, uint32_t n_classes,
                           mst_chain **out);
mst_status mst_chain_parse_with(const char *text, const char *source, const mst_net_data *data,
                                mst_chain **out);
void mst_chain_destroy(mst_chain *chain); /* NULL-safe */

/* Declares the views. */
mst_status mst_chain_declare(mst_chain *chain, mst_params *params);
/* First values: a function of the seed and the parameter alone. */
void mst_chain_start(const mst_chain *chain, mst_params *params, uint64_t seed);
/* Those of keys [first, first + n) of the table. */
void mst_chain_start_keys(const mst_chain *chain, mst_params *params, uint64_t seed, uint64_t first,
                          uint64_t n);
uint64_t mst_chain_flops(const mst_chain *chain); /* of one image, forward */

/* Nets that come with muster: "lenet", "alexnet", ...; NULL-terminated. */
typedef struct mst_known_net {
    const char *name, *help, *text;
    mst_dims in; /* the input it was designed for; c 0: rows with fields */
    uint32_t n_classes;
    bool takes_hidden;                    /* --hidden gives the sizes of its hidden layers */
    uint32_t fields, fields_with_numbers; /* that the data must have; 0: none */
} mst_known_net;
extern const mst_known_net mst_known_nets[];

#endif
