/* Nets on a GPU: the section `net` of the table of cuda.h.
 *
 * A net is described as a chain of layers, or as a graph. Open allocates everything that a step needs:
 * weights, gradients, optimizer state, outputs of the layers for max_rows rows, and two staging buffers of
 * rows in pinned host memory. A step is captured once per number of rows as a CUDA graph, and launched as one
 * unit.
 *
 * Parameters are numbered as the ranges of the model's gradient; write and read convert between the store's
 * layout and the one on the GPU. */
#ifndef MST_CUDA_CUDA_NET_H
#define MST_CUDA_CUDA_NET_H

#include "cuda/cuda.h"
#include "tensor/rule.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mst_cuda_kind {
    MST_CUDA_CONV,
    MST_CUDA_LINEAR,
    MST_CUDA_MAXPOOL,
    MST_CUDA_AVGPOOL,
    MST_CUDA_RELU,
    MST_CUDA_TANH,
    MST_CUDA_SIGMOID,
    MST_CUDA_LRN,
    MST_CUDA_BATCHNORM,
    MST_CUDA_DROPOUT,
    /* In graphs: */
    MST_CUDA_CONCAT,
    MST_CUDA_ADD,
    MST_CUDA_VECTORS_FM,
    MST_CUDA_VECTORS_DOT,
    MST_CUDA_CROSS,
    MST_CUDA_EMBEDDING, /* inputs of rows with keys */
    MST_CUDA_NUMBERS,
    MST_CUDA_WIDE,
} mst_cuda_kind;

typedef struct mst_cuda_dims {
    uint32_t c, h, w;
} mst_cuda_dims;

#define MST_CUDA_INPUTS   16
#define MST_CUDA_THE_ROWS UINT32_MAX /* as an input: the rows of the data */

/* A layer; params of model/layer_impl.h, in their order. */
typedef struct mst_cuda_layer {
    mst_cuda_kind kind;
    uint32_t n_inputs, inputs[MST_CUDA_INPUTS]; /* in graphs: layers before it */
    mst_cuda_dims in, out;
    uint32_t n_params, first_param;
    uint32_t kh, kw, stride, pad, groups; /* conv and pools */
    uint32_t size;                        /* lrn: channels */
    double alpha, beta, k;                /* lrn */
    double momentum, eps;                 /* batch norm */
    double rate;                          /* dropout */
    uint32_t vectors, length;             /* fm, dot: their number, and the numbers of each */
} mst_cuda_layer;

typedef struct mst_cuda_param {
    uint64_t size; /* floats */
    bool state;    /* replaced by its "gradient", never updated by the rule */
} mst_cuda_param;

/* The table of a net over embeddings, as mst_net_table of model/layer.h. */
typedef struct mst_cuda_table {
    uint64_t n_keys;
    uint32_t width; /* floats of a key; 0: no table */
    uint32_t factors, n_fields;
    uint32_t head; /* keys from there on have one float of state, if state_per_key */
    bool state_per_key;
    mst_rule_kind rule;
} mst_cuda_table;

typedef struct mst_cuda_net_spec {
    uint32_t device;
    mst_cuda_precision precision;
    uint32_t n_layers, n_params;
    const mst_cuda_layer *layers;
    const mst_cuda_param *params;
    bool graph; /* layers have inputs; otherwise each reads the one before it */
    mst_cuda_table table;
    mst_cuda_dims in;  /* a row; of a net over embeddings: its numbers, which may be none (c 0) */
    uint32_t n_scores; /* of the last layer: classes, or 1 */
    float pos_weight;  /* of one score */
    uint32_t max_rows;
    bool training; /* false: forward only */
    bool updates;  /* step is called: there is state for the rule */
    mst_rule_kind rule;
} mst_cuda_net_spec;

/* Rows as images of bytes, which the GPU crops, mirrors and normalises as data/augment.h does. */
#define MST_CUDA_CHANNELS 16
typedef struct mst_cuda_images {
    uint32_t channels, height, width; /* of the dataset's images */
    uint32_t out_height, out_width;   /* of the crop, which is the net's input */
    bool normalise;                   /* a number is scale * byte + shift of its channel; false: byte / 255 */
    float scale[MST_CUDA_CHANNELS], shift[MST_CUDA_CHANNELS];
    uint64_t n_rows; /* of the dataset: those that stay on the GPU, if they fit; 0: none */
} mst_cuda_images;

/* A row of a step: its number in the dataset, and the place of the net's input in the image. */
typedef struct mst_cuda_pick {
    uint32_t number;
    int32_t y, x;
    uint32_t mirror;
} mst_cuda_pick;

/* The source of the rows of a step. */
typedef enum mst_cuda_source {
    MST_CUDA_ROWS,   /* `bytes` or `numbers` */
    MST_CUDA_IMAGES, /* `images` and `picks`; the images stay on the GPU, if they fit. Nets over embeddings,
                        after keep_rows: rows and `picks`; the rows stay */
    MST_CUDA_KEPT,   /* `picks` alone: images or rows, labels and weights are on the GPU */
} mst_cuda_source;

/* Places for the rows of the next step, in pinned memory. */
typedef struct mst_cuda_rows {
    uint8_t *bytes; /* n_rows x row, each byte standing for byte/255; or, if `floats` is set, ... */
    float *numbers; /* ... n_rows x row; both are the same memory */
    float *labels, *weights;
    uint8_t *images; /* after `images`: those of the dataset, `pitch` bytes apart; or NULL */
    uint64_t pitch;
    mst_cuda_pick *picks;
} mst_cuda_rows;

/* The keys of the rows of the next step, row after row; `ends` of each row. */
typedef struct mst_cuda_entries {
    uint32_t *ends;
    uint32_t *keys;   /* below n_keys; n_keys: none */
    uint32_t *places; /* row of the step * n_fields + field */
    float *values;
} mst_cuda_entries;

/* The numbers of a step. */
typedef struct mst_cuda_step {
    uint32_t n_rows;
    mst_cuda_source source;
    bool floats;             /* source rows: they are numbers, not bytes */
    float scale;             /* of the gradient: 1 / rows of the batch */
    const uint64_t *dropout; /* for each dropout layer, in order: the seed of its stream in this step */
    uint64_t first_row;      /* of these rows in the global batch */
    mst_rule rule;           /* step only */
    mst_rule rule_keys;      /* of the table */
    double clip_norm;        /* step only; 0: off */
} mst_cuda_step;

/* Sums over the rows of steps, as mst_loss_sum. */
typedef struct mst_cuda_loss {
    double loss, weight, correct;
} mst_cuda_loss;

typedef struct mst_cuda_net mst_cuda_net;

typedef struct mst_cuda_net_ops {
    /* *out is the caller's to close. MST_EUNSUPPORTED: a library is missing, or cannot compute a layer.
     * MST_ENOMEM: the GPU's memory is too small, with the size. */
    mst_status (*open)(const mst_cuda_net_spec *spec, mst_cuda_net **out);
    void (*close)(mst_cuda_net *self); /* NULL-safe */
    /* Copies parameter `param` to the GPU or from it: its weights (slot 0), state slot - 1, or, read only,
     * its gradient (MST_CUDA_GRADIENT). Both follow the steps before. Read waits for these; write may
     * enqueue: pinned memory stays unchanged until the next read, forward or losses. */
    mst_status (*write)(mst_cuda_net *self, uint32_t slot, uint32_t param, const float *from);
    mst_status (*read)(mst_cuda_net *self, uint32_t slot, uint32_t param, float *to);
    /* Steps may have images as their source from now on; *keeps: all n_rows fit, and stay from their first
     * step on. At most once. MST_EUNSUPPORTED: not these images; rows only. */
    mst_status (*images)(mst_cuda_net *self, const mst_cuda_images *images, bool *keeps);
    /* Nets with a table: rows of row_entries entries each may stay from their first step on; *keeps: all
     * n_rows of the dataset fit. At most once. */
    mst_status (*keep_rows)(mst_cuda_net *self, uint64_t n_rows, uint32_t row_entries, bool *keeps);
    /* Places for rows, free until the next call of step, gradient or forward; waits until the GPU has copied
     * the rows that were there. */
    mst_status (*stage)(mst_cuda_net *self, mst_cuda_rows *out);
    /* After stage, for nets with a table: places for n entries. */
    mst_status (*entries)(mst_cuda_net *self, uint64_t n, mst_cuda_entries *out);
    /* Floats [first, first + n) of the table (slot 0) or of its state slot - 1. Both wait for the steps
     * before. */
    mst_status (*write_table)(mst_cuda_net *self, uint32_t slot, uint64_t first, uint64_t n,
                              const float *from);
    mst_status (*read_table)(mst_cuda_net *self, uint32_t slot, uint64_t first, uint64_t n, float *to);
    /* Forward, backward and update on the staged rows. Enqueues. */
    mst_status (*step)(mst_cuda_net *self, const mst_cuda_step *step);
    /* Forward and backward; the gradient stays on the GPU, to be read. Enqueues. Not for nets with a table.
     */
    mst_status (*gradient)(mst_cuda_net *self, const mst_cuda_step *step);
    /* Scores (n_rows x n_scores) of the staged rows, without dropout and with running means. */
    mst_status (*forward)(mst_cuda_net *self, uint32_t n_rows, bool floats, float *scores);
    /* Waits for all steps; the sums since the last call. A step that failed on the GPU is reported here. */
    mst_status (*losses)(mst_cuda_net *self, mst_cuda_loss *out);
} mst_cuda_net_ops;

#define MST_CUDA_GRADIENT UINT32_MAX

#ifdef __cplusplus
}
#endif
#endif
