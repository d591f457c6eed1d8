/* Models: rows and weights in, loss and gradient out. One const table per model, listed in mst_models.
 *
 * A model declares named views in the parameter store and never sees more of it than that. It computes on
 * "weights": pointers to each dense range of its gradient layout and to key 0 of its sparse view. These point
 * into the store (local), at private copies (hot weights of asynchronous threads), or at pulled weights with
 * localised keys (parameter server). Models are read-only while training: any number of threads may compute
 * at once, each with its own scratch. */
#ifndef MST_MODEL_MODEL_H
#define MST_MODEL_MODEL_H

#include <jansson.h>
#include <stdbool.h>

#include "base/option.h"
#include "cuda/cuda.h"
#include "cuda/cuda_sparse.h"
#include "tensor/batch.h"
#include "tensor/grad.h"
#include "tensor/kernels.h"
#include "tensor/params.h"

/* The use of --device. */
typedef enum mst_device_use {
    MST_DEVICE_TRAINS,   /* local training: weights and optimizer state may stay there */
    MST_DEVICE_COMPUTES, /* gradients or scores, with weights of the host */
} mst_device_use;

typedef struct mst_model_options {
    int model;             /* --model logreg|softmax|net|lenet|...: index into mst_models */
    bool bias;             /* --bias / --no-bias (logreg, softmax) */
    double pos_weight;     /* --pos-weight: weight of rows with a positive label; 0: 1 */
    double keep_negatives; /* --keep-negatives: share of the negative rows that training sees; 0: all */
    int init;              /* --init (mst_init_choice); nets: where the net does not set it */
    /* fm, ffm, fwfm: */
    int64_t factors;   /* --factors: k */
    double init_scale; /* --init-scale: of the factors */
    double l2_factors; /* --l2-factors: per row that has the feature */
    bool row_norm;     /* --row-norm: rows are scaled to length 1 */
    /* nets: */
    char *net;            /* --net FILE, with --model net */
    char *image;          /* --image CxHxW, where the data does not give it; or NULL */
    int activation;       /* --activation: in place of the relu of built-in nets; 0: unchanged */
    char *hidden;         /* --hidden N,N,...: of mlp and nets over embeddings */
    int64_t embedding;    /* --embedding K: width of the built-in nets' embeddings; 0: unchanged */
    double dropout;       /* --dropout P: after each hidden layer of these nets */
    bool batch_norm;      /* --batch-norm: before each activation of these nets */
    int64_t cross_layers; /* --cross-layers N: of dcn; 0: unchanged */
    char *executor;       /* --executor; NULL: auto */
    /* all models: */
    char *device;       /* --device auto|cpu|cuda[:N]; NULL: cpu */
    int precision;      /* --precision: mst_cuda_precision */
    mst_device_use use; /* of the device */
    uint32_t
        device_turn; /* of this process among those of the job on this host: chooses one of several GPUs */
    const char *net_text; /* the text of the net, in place of --net and of the model's own; borrowed
                             until mst_model_new returns */
    const struct mst_layer_ops *const *kinds; /* of layers that the net may have besides the built-in ones;
                                                 NULL-terminated; must outlive the model; or NULL */
} mst_model_options;
typedef enum mst_init_choice {
    MST_START_DEFAULT, /* linear models: zeros; nets: unchanged */
    MST_START_GLOROT,
    MST_START_HE,
    MST_START_UNIFORM,
    MST_START_NORMAL,
    MST_START_CONSTANT,
    MST_START_ZEROS, /* from here on: linear models only */
    MST_START_ONES,
    MST_START_POSITIVE, /* fm, ffm, fwfm only */
} mst_init_choice;
extern const mst_option mst_model_option_table[];
#define MST_FACTORS_MAX         1024                        /* --factors */
#define MST_MODEL_OPTION_OF_NET (MST_OPTION_FACT_FREE << 1) /* a fact: the option describes a net */

/* The shape of the data. */
typedef struct mst_shape {
    uint64_t n_features;
    uint32_t n_dense;   /* the longest dense prefix any row may have */
    uint32_t n_classes; /* 2 for binary labels */
    uint32_t c, h, w;   /* of rows that are images; 0: not known */
    uint32_t n_fields;  /* the dense prefix included (mst_row_field); 0: the data has no fields, or the model
                           does not use them (in mst_model.shape): rows are checked against it */
} mst_shape;

/* Sums over rows. */
typedef struct mst_loss_sum {
    double loss;   /* of weighted rows */
    double weight; /* of the rows */
    uint64_t rows;
    double correct; /* rows that the model classifies correctly; NAN: not known */
} mst_loss_sum;

static inline void mst_add_loss(mst_loss_sum *to, const mst_loss_sum *sum)
{
    to->loss += sum->loss;
    to->weight += sum->weight;
    to->rows += sum->rows;
    to->correct += sum->correct;
}

/* The rows of a batch that the model classifies correctly, by its scores (n_rows x n_scores): one score is a
 * margin, of several the first of the highest counts. */
uint32_t mst_count_correct(const mst_batch *batch, const float *scores, uint32_t n_scores);

/* Adds the rows of a binary model to a sum, except for their loss; positive rows weigh pos_weight times their
 * weight. */
void mst_count_binary(const mst_batch *batch, const float *margins, double pos_weight, mst_loss_sum *sum);

/* Pointers to the model's weights: ranges[i] is dense range i of its gradient layout, sparse is key 0. */
typedef struct mst_weights {
    float *ranges[MST_RANGE_MAX];
    float *sparse;
    uint32_t stride, head; /* of the keys: mst_key_rows; by_rows: keys below head are in range 0 */
    bool by_rows;
    uint32_t shared; /* keys below it are updated by other threads at the same time */
    bool near;       /* they are few: all are in a cache */
    uint32_t after;  /* descend: rows that follow the given ones in memory, and are next */
    uint64_t state;  /* by rows: floats from a weight of a dense range to its state */
    /* For descend with batch 1: keys are translated on the way (kernels.h, descend_rows). NULL: keys are used
     * as they are. */
    const mst_key_map *map;
    uint32_t *map_scratch;
    /* Equal numbers: the same weights, unchanged (mst_weights_version). A device copies them once. 0: they
     * may have changed since the last call. */
    uint64_t version;
} mst_weights;

/* A number that no weights of this process have had. Any thread. */
uint64_t mst_weights_version(void);

/* The first weight of a key that is not below head, and its others, side by side. */
static inline void mst_weights_of_key(const mst_weights *w, uint32_t key, const float **first,
                                      const float **rest)
{
    *first = w->sparse + (w->by_rows ? mst_row_first(key, w->stride) : (size_t)key * w->stride);
    *rest = w->by_rows ? w->sparse + mst_row_rest(key, w->stride) : *first + 1;
}

/* Keys that a step touches. */
typedef struct mst_touched {
    uint32_t *keys;
    size_t capacity;
} mst_touched;

/* A step of a strategy. The model calls need(range) before the first read of a dense range in the step: on
 * return the range has the weights of this step, and its gradient is cleared if the model adds to it. The
 * model calls ready(range) when the gradient of that range is final: it does not write that gradient again in
 * the step. Every range gets both calls once per step, also if the batch is empty. A failure of either ends
 * the step. The step or either function may be NULL (local: nothing to do). Random numbers of a step
 * (dropout) are keyed by seed, number, and the row's place in the global batch, of which first_row is the
 * start of this share. */
typedef struct mst_step {
    mst_status (*need)(struct mst_step *self, uint32_t range);
    mst_status (*ready)(struct mst_step *self, uint32_t range);
    uint64_t seed, number; /* of the training; of the step, from 1 */
    uint64_t first_row;    /* of the batch computed on, in the global batch */
    bool again;            /* with the weights of the call before with the same scratch */
} mst_step;

static inline mst_status mst_step_need(mst_step *step, uint32_t range)
{
    return step != NULL && step->need != NULL ? step->need(step, range) : MST_OK;
}

static inline mst_status mst_step_ready(mst_step *step, uint32_t range)
{
    return step != NULL && step->ready != NULL ? step->ready(step, range) : MST_OK;
}

typedef struct mst_model mst_model;

/* Properties of a model that other code depends on, instead of its name. */
typedef enum mst_model_capability {
    MST_MODEL_LINEAR = 1u << 0,   /* scores begin with a weight per feature: takes sparse rows, and --bias */
    MST_MODEL_BINARY = 1u << 1,   /* two classes, labels 0/1 or -1/+1, one score per row */
    MST_MODEL_NET = 1u << 2,      /* a chain of layers */
    MST_MODEL_NET_FILE = 1u << 3, /* a net that --net or the program provides */
    MST_MODEL_FACTORS = 1u << 4,  /* features own rows of parameters: --factors and its companions */
    MST_MODEL_FIELDS = 1u << 5,   /* needs to know the field of every key */
} mst_model_capability;

typedef struct mst_model_ops {
    const char *name, *help;
    size_t size;           /* of the derived struct */
    unsigned capabilities; /* mst_model_capability bits */

    /* Checks the shape against the model (one message when it does not fit) and copies what it needs. */
    mst_status (*init)(mst_model *self, const mst_model_options *options, const mst_shape *shape);
    void (*fini)(mst_model *self); /* also after a failed init; NULL: nothing to do */
    /* Declares views. */
    mst_status (*declare)(mst_model *self, mst_params *params);
    /* Initial weights, when not zero. NULL: zero. */
    void (*start)(const mst_model *self, mst_params *params, uint64_t seed);
    /* Those of keys [first, first + n) of the sparse view: a function of seed and key, so that a server can
     * start the keys it owns. NULL: start does all. */
    void (*start_keys)(const mst_model *self, mst_params *params, uint64_t seed, uint64_t first, uint64_t n);
    /* The gradient layout: dense ranges (offset and size; g unused) and the sparse view. */
    void (*layout)(const mst_model *self, const mst_params *params, mst_grad *layout);
    /* Scratch, made through mst_model_scratch_new: either its size in bytes, or functions that make and free
     * it (scratch_size is NULL then). */
    size_t (*scratch_size)(const mst_model *self, uint32_t max_rows);
    mst_status (*open)(const mst_model *self, uint32_t max_rows, unsigned n_threads, bool training,
                       void **out);
    void (*close)(const mst_model *self, void *scratch);

    /* Forward and backward over the batch: adds scale * d(loss)/d(weights), summed over rows, to grad (a
     * fresh one, where `overwrites`, is set to it), and the loss to sum. Ranges of state (mst_range.state)
     * are set to the new values instead. Room for the contributions is made here (MST_ENOMEM). */
    mst_status (*compute)(const mst_model *self, void *scratch, const mst_batch *batch, const mst_weights *w,
                          float scale, mst_grad *grad, mst_step *step, mst_loss_sum *sum);

    /* Runs fn(arg, 0..n-1) on the threads that compute uses with the scratch, while it is idle. NULL: it has
     * no threads. */
    void (*each)(const mst_model *self, void *scratch, unsigned n, void (*fn)(void *arg, unsigned i),
                 void *arg);

    /* Any thread, while another computes with the scratch: computes a part of that, to the same bits; false:
     * there is none to take. NULL: never. */
    bool (*assist)(const mst_model *self, void *scratch);

    /* Forward only: scores, n_rows x n_scores (margins, or one logit per class). */
    mst_status (*forward)(const mst_model *self, void *scratch, const mst_batch *batch, const mst_weights *w,
                          float *scores);

    /* Prepares to compute on self->gpu, for self->options.use; MST_EUNSUPPORTED with the reason where it
     * cannot. Without a GPU there (ops NULL): whether it could; it computes on the CPU. */
    mst_status (*gpu_use)(mst_model *self);
    mst_cuda_sparse_kind gpu_kind; /* models without layers: their kernels on a GPU */

    /* Plain SGD in place: rows in steps of `batch_rows` (the last may be shorter), step i at learning rate
     * lrs[i]; equals compute + additive update to rounding (a contract test holds it to that). NULL: not
     * offered. */
    void (*descend)(const mst_model *self, void *scratch, const mst_batch *rows, uint32_t batch_rows,
                    const mst_weights *w, const float *lrs, mst_loss_sum *sum);

    /* The same with any rule on a store by rows, step i under rules[i] (all of one kind); equals compute, the
     * sum by key and the optimizer's update to rounding. touched: memory that grows as needed. NULL: not
     * offered. */
    mst_status (*descend_rule)(const mst_model *self, void *scratch, const mst_batch *rows,
                               uint32_t batch_rows, const mst_weights *w, const mst_rule *rules,
                               mst_touched *touched, mst_loss_sum *sum);

    /* Whether descend_rule takes batches in one pass over the rows of the keys, several times as fast as
     * compute, on a store whose first `head` keys are no rows. NULL: it does not. */
    bool (*fuses)(const mst_model *self, uint32_t head);

    /* Adds scale * d(loss)/dw of the rows to g, row by row. g is laid out like w, where the dense prefix is
     * in front of the keys: a key below it is in range 0. coefs is room for as many floats as there are rows.
     * NULL: compute does the same by contributions. */
    mst_status (*gradient)(const mst_model *self, void *scratch, const mst_batch *batch, const mst_weights *w,
                           float scale, float *coefs, const mst_weights *g, mst_loss_sum *sum);

    /* Where the gradient of a key is the sum of coefs[i] * x_i over the rows i that have it: these
     * coefficients of the rows. Adds scale times the gradient of the dense ranges to grad, and the loss. Keys
     * below the dense prefix belong to range 0. summed: coefs hold the sums of weight * value of the other
     * keys. NULL: other models. */
    void (*coefficients)(const mst_model *self, const mst_batch *batch, const mst_weights *w, float scale,
                         bool summed, float *coefs, mst_grad *grad, mst_loss_sum *sum);
} mst_model_ops;

struct mst_model {
    const mst_model_ops *ops;
    const mst_kernels *kernels;
    mst_model_options options;
    mst_shape shape;
    mst_cuda gpu;       /* --device; ops NULL: the CPU */
    uint32_t n_scores;  /* per row: 1 for logreg, n_classes for softmax and nets */
    bool threads;       /* set by init: see mst_model_threads */
    bool overwrites;    /* set by init: compute takes gradients that are `fresh` */
    uint32_t part_rows; /* set by init: compute takes a batch in parts of so many rows; 0: as a whole */
    unsigned crew;      /* set by init: threads that have work in a part, with assist; 0 or 1: one */
};

extern const mst_model_ops *const mst_models[]; /* NULL-terminated; order = choices of --model */

/* The model of that name; NULL: there is none (name may be NULL). */
const mst_model_ops *mst_model_find(const char *name);

static inline bool mst_model_has(const mst_model_ops *ops, mst_model_capability capability)
{
    return (ops->capabilities & (unsigned)capability) != 0;
}

/* *out is the caller's to destroy; set only on MST_OK. */
mst_status mst_model_new(const mst_model_options *options, const mst_shape *shape, const mst_kernels *kernels,
                         mst_model **out);
void mst_model_destroy(mst_model *self); /* NULL-safe */

/* Fails if `bytes` of the parameters are filled at the start, state by the optimizer if `state`, and the
 * memory of this process is too small for them. */
mst_status mst_model_check_memory(const mst_model *self, const mst_params *params, bool state,
                                  uint64_t bytes);

/* The memory that a thread needs to compute on batches of up to max_rows rows. n_threads: threads for one
 * batch, where mst_model_threads; or for a part of one, which other threads assist. training false: forward
 * only. *out is the caller's, to be freed before the model. */
mst_status mst_model_scratch_new(const mst_model *self, uint32_t max_rows, unsigned n_threads, bool training,
                                 void **out);
void mst_model_scratch_free(const mst_model *self, void *scratch); /* NULL-safe */

/* The model uses several threads for one batch: strategies then make one scratch with all threads instead of
 * one per thread. */
static inline bool mst_model_threads(const mst_model *self)
{
    return self->threads;
}

/* Runs fn(arg, 0..n-1): on the threads of the scratch, or one after the other. */
void mst_model_each(const mst_model *self, void *scratch, unsigned n, void (*fn)(void *arg, unsigned i),
                    void *arg);

/* Memory of weights or gradients that a strategy copies to and from the model's GPU, if it has one, in every
 * step. Unpin before it is freed; NULL-safe. */
void mst_model_pin(const mst_model *self, void *at, size_t bytes);
void mst_model_unpin(const mst_model *self, void *at);

/* After a refusal by the GPU, with the error as its reason: with --device auto the model computes on the CPU,
 * which is logged. False: --device names the GPU, or there is none. */
bool mst_model_leave_gpu(mst_model *self);

/* MST_EUNSUPPORTED unless a local training keeps the weights on the GPU: for models whose keys have weights.
 */
mst_status mst_model_gpu_trains_alone(const mst_model *self);
/* gpu_use of models without layers. */
mst_status mst_model_gpu_use_sparse(mst_model *self);

/* The chain of layers of a net; NULL for other models. */
struct mst_chain;
const struct mst_chain *mst_model_chain(const mst_model *self);
/* Whether forward on the store may be given any keys and labels (mst_feed_options.any_keys): a linear model
 * of two classes, whose keys all address the weights or the guard behind them. */
static inline bool mst_model_any_keys(const mst_model *self, const mst_params *params)
{
    return mst_model_has(self->ops, MST_MODEL_LINEAR) && self->n_scores == 1 && params->guard != NULL;
}

/* The weight of a model with one score that adds to every score: at *at of the store. False: it has none. */
bool mst_model_bias(const mst_model *self, const mst_params *params, uint64_t *at);
/* Whether it has a batch norm over the rows of a batch alone: of one row, nothing would be left. */
bool mst_model_normalises_rows(const mst_model *self);

/* The model as a graph from rows and labels to the loss, for the event file (mst_event_graph in
 * observe/events.h): a node for each layer and each parameter, which has the name of its view as "view". New
 * reference, or NULL when memory is short. */
json_t *mst_model_graph(const mst_model *self, const mst_params *params);

/* The text of the net of a model (one with MST_MODEL_NET) with its options, without --init. Freed with
 * mst_free. */
mst_status mst_net_text(const char *model, const mst_model_options *options, char **out);

/* Rows as a dense matrix (n x size): bytes as byte/255, keys at their index, absent features as zero. */
void mst_rows_expand(const mst_kernels *kernels, const mst_row *rows, uint32_t n, size_t size, float *x);

/* Scores to probabilities: a single score is the logit of the second of two classes; of n scores, each is a
 * class's logit (out may be scores). */
double mst_probability(double margin);
void mst_probabilities(const float *scores, uint32_t n, float *out);

/* The class of a row by its n scores: of one score, 1 if it is positive; of several, the first of the
 * highest.
 */
uint32_t mst_scores_class(const float *scores, uint32_t n);
/* Fails if a score of one of n rows is not a finite number; the first row has number `first`. */
mst_status mst_scores_check(const float *scores, uint32_t n_scores, uint32_t n, uint64_t first);

/* Scores of rows as they occur: forward, plus the logarithm of --keep-negatives. A model that is trained on a
 * share R of the negatives overestimates the odds of a positive label by a factor of 1/R. */
mst_status mst_model_score(const mst_model *self, void *scratch, const mst_batch *batch, const mst_weights *w,
                           float *scores);

/* Pointers to the weights in the store. */
void mst_model_weights(const mst_model *self, const mst_params *params, mst_weights *out);

#endif
