/* Shared by the built-in layers: options of weights, sizes of windows. Executors include it for the layers
 * that they compute themselves. */
#ifndef MST_MODEL_LAYER_IMPL_H
#define MST_MODEL_LAYER_IMPL_H

#include "model/layer.h"

#define MST_SIDE_MAX  (1 << 16)    /* of kernels, strides and padding */
#define MST_WIDTH_MAX (1 << 24)    /* filters and outputs */
#define MST_SIZE_MAX  (1ull << 28) /* numbers of one image between two layers */

/* First values of a weight and its bias. */
typedef struct mst_weight_options {
    int init; /* mst_init */
    double init_scale, bias_init;
    bool bias;
} mst_weight_options;

/* Rows of an option table; `at` is the offset of the mst_weight_options in the options' struct. */
#define MST_WEIGHT_ROWS(at)                                                                                  \
    {.name = "init",                                                                                         \
     .type = MST_OPTION_CHOICE,                                                                              \
     .offset = (at) + offsetof(mst_weight_options, init),                                                    \
     .fallback = "he",                                                                                       \
     .choices = "glorot|he|uniform|normal|constant",                                                         \
     .help = "Initial values of the weights."},                                                              \
        {.name = "init-scale",                                                                               \
         .type = MST_OPTION_REAL,                                                                            \
         .offset = (at) + offsetof(mst_weight_options, init_scale),                                          \
         .fallback = "0.05",                                                                                 \
         .min = -1e6,                                                                                        \
         .max = 1e6,                                                                                         \
         .metavar = "X",                                                                                     \
         .help = "uniform: bound; normal: standard deviation; constant: value."},                            \
        {.name = "bias-init",                                                                                \
         .type = MST_OPTION_REAL,                                                                            \
         .offset = (at) + offsetof(mst_weight_options, bias_init),                                           \
         .fallback = "0",                                                                                    \
         .min = -1e6,                                                                                        \
         .max = 1e6,                                                                                         \
         .metavar = "X",                                                                                     \
         .help = "Initial value of the bias."},                                                              \
    {                                                                                                        \
        .name = "bias", .type = MST_OPTION_FLAG, .offset = (at) + offsetof(mst_weight_options, bias),        \
        .fallback = "true", .help = "Add a bias."                                                            \
    }

/* Declares "weight" with the given dimensions, and "bias" [n_out] where wanted. */
void mst_layer_weights(mst_layer *self, const mst_weight_options *options, uint32_t n_dims,
                       const uint64_t *dims, uint64_t fan_in, uint64_t fan_out, uint64_t n_out);

/* The shape function of layers whose output has the shape of their input. */
mst_status mst_layer_same_shape(mst_layer *self);

/* A window that slides over an image. */
typedef struct mst_window {
    uint32_t kh, kw, stride, pad;
} mst_window;

/* The output size of a side of n; MST_EINPUT, naming the layer, when the window does not fit. */
mst_status mst_window_out(const mst_layer *self, const mst_window *window, mst_dims *out);

/* The area of a window at output (oy, ox) within the image: rows [y0, y1) and columns [x0, x1) of
 * the input, and where the window starts, which may be negative. */
typedef struct mst_window_area {
    int64_t top, left;
    uint32_t y0, y1, x0, x1;
} mst_window_area;
mst_window_area mst_window_at(const mst_window *window, const mst_dims *in, uint32_t oy, uint32_t ox);

/* ---- the built-in kinds, as executors see them ---- */

extern const mst_layer_ops mst_layer_conv, mst_layer_maxpool, mst_layer_avgpool, mst_layer_relu,
    mst_layer_tanh, mst_layer_sigmoid, mst_layer_linear, mst_layer_lrn, mst_layer_dropout,
    mst_layer_batchnorm, mst_layer_concat, mst_layer_add, mst_layer_cross, mst_layer_fm, mst_layer_dot,
    mst_layer_embedding, mst_layer_numbers, mst_layer_wide;

typedef struct mst_conv {
    mst_layer base;
    struct {
        int64_t filters, kernel, kernel_h, kernel_w, stride, pad, groups;
        mst_weight_options weights;
    } options;
    mst_window window;
    uint32_t groups;
} mst_conv; /* params: weight (out, in / groups, kh, kw), bias (out) unless bias=false */

typedef struct mst_pool {
    mst_layer base;
    struct {
        int64_t kernel, stride, pad;
    } options;
    mst_window window;
} mst_pool;

typedef struct mst_linear_layer {
    mst_layer base;
    struct {
        int64_t outputs;
        mst_weight_options weights;
    } options;
} mst_linear_layer; /* params: weight (out, in), bias (out) unless bias=false */

typedef struct mst_lrn {
    mst_layer base;
    struct {
        int64_t size;
        double alpha, beta, k;
    } options;
} mst_lrn;

typedef struct mst_dropout {
    mst_layer base;
    struct {
        double rate;
    } options;
} mst_dropout;

typedef struct mst_batchnorm {
    mst_layer base;
    struct {
        double momentum, eps;
    } options;
} mst_batchnorm; /* params: weight, bias; running_mean and running_var are state */

typedef struct mst_embedding {
    mst_layer base;
    struct {
        int64_t width;
        double init_scale;
    } options;
} mst_embedding;

typedef struct mst_mlp {
    mst_layer base;
    struct {
        char *hidden;
        double dropout;
        int activation;
        bool batchnorm;
    } options;
} mst_mlp;

typedef struct mst_cross {
    mst_layer base;
    struct {
        int64_t layers;
        mst_weight_options weights;
    } options;
} mst_cross; /* params: weight (layers, in, in), bias (layers, in) unless bias=false */

typedef struct mst_fm {
    mst_layer base;
    struct {
        bool sum;
    } options;
} mst_fm;

/* The vectors that a layer over vectors reads: parts of C x 1 x K are C vectors of K numbers, a part of K
 * numbers is one. MST_EINPUT, naming the layer, when they have different lengths. */
mst_status mst_layer_vectors(const mst_layer *self, uint32_t *n, uint32_t *length);

/* Dropout's factors for the units of row `row` of the batch: 0, or 1 / (1 - rate). A function of the
 * layer's name, the pass, and the row alone. n units from the first. */
void mst_dropout_row(const mst_layer *self, const mst_pass *pass, uint64_t row, uint64_t n, float *factors);
/* The seed of the streams of a layer in a pass: row r has the stream of that seed, MST_RNG_DROPOUT and its
 * number in the global batch. */
uint64_t mst_dropout_seed(const mst_layer *self, const mst_pass *pass);

#endif
