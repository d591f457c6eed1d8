/* Registry and life of models; contract in model.h. */
#include "model/model.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/memory_limit.h"

extern const mst_model_ops mst_model_logreg, mst_model_softmax, mst_model_fm, mst_model_ffm, mst_model_fwfm;
extern const mst_model_ops mst_model_net, mst_model_lenet, mst_model_lenet_small, mst_model_alexnet,
    mst_model_alexnet_paper, mst_model_mlp, mst_model_wide_deep, mst_model_deepfm, mst_model_dcn,
    mst_model_dlrm;

const mst_model_ops *const mst_models[] = {
    &mst_model_logreg,  &mst_model_softmax,       &mst_model_fm,    &mst_model_ffm,
    &mst_model_fwfm,    &mst_model_net,           &mst_model_lenet, &mst_model_lenet_small,
    &mst_model_alexnet, &mst_model_alexnet_paper, &mst_model_mlp,   &mst_model_wide_deep,
    &mst_model_deepfm,  &mst_model_dcn,           &mst_model_dlrm,  NULL,
};

#define FIELD(name)    offsetof(mst_model_options, name)
#define FACTORS        "fm|ffm|fwfm"
#define LINEAR         "logreg|softmax|" FACTORS
#define EMBEDDING_NETS "wide-deep|deepfm|dcn|dlrm"
#define BUILT_IN_NETS  "lenet|lenet-small|alexnet|alexnet-paper|mlp|" EMBEDDING_NETS
#define NETS           "net|" BUILT_IN_NETS
#define LINEAR_ONLY    .option = "model", .values = LINEAR
#define FACTORS_ONLY   .option = "model", .values = FACTORS
#define NETS_ONLY      .option = "model", .values = NETS
#define ONE_SCORE_ONLY .option = "model", .values = "logreg|" FACTORS "|net|" EMBEDDING_NETS
#define EMBEDDING_ONLY .option = "model", .values = EMBEDDING_NETS
const mst_option mst_model_option_table[] = {
    {.name = "model",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(model),
     .fallback = "logreg",
     .choices = LINEAR "|" NETS,
     .help = "Model to train; net: the net in the file --net.",
     .facts = MST_OPTION_SELF_NAMED},
    {.name = "bias",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(bias),
     .fallback = "true",
     .help = "Add a bias, for softmax one per class.",
     .needs = {{LINEAR_ONLY}}},
    {.name = "pos-weight",
     .type = MST_OPTION_REAL,
     .offset = FIELD(pos_weight),
     .fallback = "1",
     .min = 1e-6,
     .max = 1e6,
     .metavar = "X",
     .help = "Weight of rows with a positive label, multiplied by their own weight.",
     .needs = {{ONE_SCORE_ONLY}}},
    {.name = "factors",
     .type = MST_OPTION_INT,
     .offset = FIELD(factors),
     .fallback = "8",
     .min = 1,
     .max = MST_FACTORS_MAX,
     .metavar = "K",
     .help = "Factors of a feature (ffm: per field of the other feature).",
     .needs = {{FACTORS_ONLY}}},
    {.name = "init-scale",
     .type = MST_OPTION_REAL,
     .offset = FIELD(init_scale),
     .fallback = "0.05",
     .min = 0,
     .max = 1e6,
     .metavar = "X",
     .help = "Size of the initial factors: the bound of uniform (-X to X) and positive (0 to X), the "
             "deviation of normal.",
     .needs = {{FACTORS_ONLY}},
     .facts = MST_OPTION_AT_START},
    {.name = "l2-factors",
     .type = MST_OPTION_REAL,
     .offset = FIELD(l2_factors),
     .fallback = "0",
     .min = 0,
     .max = 1e9,
     .metavar = "STRENGTH",
     .help = "L2 regularisation of the factors, besides --l2: every row adds STRENGTH times the factors that "
             "it uses to its gradient.",
     .needs = {{FACTORS_ONLY}}},
    {.name = "row-norm",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(row_norm),
     .fallback = "false",
     .help = "Scale every row to length 1.",
     .needs = {{FACTORS_ONLY}}},
    {.name = "keep-negatives",
     .type = MST_OPTION_REAL,
     .offset = FIELD(keep_negatives),
     .fallback = "1",
     .min = 1e-6,
     .max = 1,
     .metavar = "R",
     .help = "Train on this share of the rows with a negative label, chosen by --seed, and on all others. "
             "Evaluations and predictions correct the odds for it; the training loss and the progressive "
             "loss do not: they are those of the kept rows. --epochs and --rows count the rows that are "
             "kept.",
     .needs = {{ONE_SCORE_ONLY}},
     .facts = MST_OPTION_AT_START},
    {.name = "net",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(net),
     .metavar = "FILE",
     .help = "Net file, one layer per line; implies --model net. `muster model show FILE` prints the layers "
             "and sizes.",
     .facts = MST_MODEL_OPTION_OF_NET},
    {.name = "image",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(image),
     .metavar = "CxHxW",
     .help = "Shape of the rows, channels x height x width, if the data does not have it.",
     .needs = {{NETS_ONLY}},
     .facts = MST_MODEL_OPTION_OF_NET},
    {.name = "activation",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(activation),
     .fallback = "relu",
     .choices = "relu|tanh|sigmoid",
     .help = "Activation between the layers of a built-in net.",
     .needs = {{.option = "model", .values = BUILT_IN_NETS}},
     .facts = MST_MODEL_OPTION_OF_NET},
    {.name = "init",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(init),
     .fallback = "default",
     .choices = "default|glorot|he|uniform|normal|constant|zeros|ones|positive",
     .help = "Initial weights. logreg, softmax: zeros (default), ones, uniform (-0.05 to 0.05) or normal "
             "(deviation 0.05). fm, ffm, fwfm: of the factors, uniform (default), normal or positive; see "
             "--init-scale. "
             "Nets: of layers that set none; default: as the net defines.",
     .facts = MST_MODEL_OPTION_OF_NET | MST_OPTION_AT_START},
    {.name = "hidden",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(hidden),
     .metavar = "N,N,...",
     .help = "Sizes of the hidden layers. Default: 300,100 of mlp, 400,400,400 of nets over embeddings.",
     .needs = {{.option = "model", .values = "mlp|" EMBEDDING_NETS}},
     .facts = MST_MODEL_OPTION_OF_NET},
    {.name = "embedding",
     .type = MST_OPTION_INT,
     .offset = FIELD(embedding),
     .fallback = "0",
     .min = 0,
     .max = 4096,
     .metavar = "K",
     .help = "Numbers per key in nets over embeddings; 0: as the net defines (16).",
     .needs = {{EMBEDDING_ONLY}},
     .facts = MST_MODEL_OPTION_OF_NET},
    {.name = "dropout",
     .type = MST_OPTION_REAL,
     .offset = FIELD(dropout),
     .fallback = "0",
     .min = 0,
     .max = 0.999,
     .metavar = "P",
     .help = "Fraction of the units to drop after each hidden layer of nets over embeddings.",
     .needs = {{EMBEDDING_ONLY}},
     .facts = MST_MODEL_OPTION_OF_NET},
    {.name = "batch-norm",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(batch_norm),
     .fallback = "false",
     .help = "Normalise each hidden layer of nets over embeddings over the batch.",
     .needs = {{EMBEDDING_ONLY}},
     .facts = MST_MODEL_OPTION_OF_NET},
    {.name = "cross-layers",
     .type = MST_OPTION_INT,
     .offset = FIELD(cross_layers),
     .fallback = "0",
     .min = 0,
     .max = 32,
     .metavar = "N",
     .help = "Cross layers of dcn; 0: as the net defines (2).",
     .needs = {{.option = "model", .values = "dcn"}},
     .facts = MST_MODEL_OPTION_OF_NET},
    {.name = "executor",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(executor),
     .fallback = "auto",
     .metavar = "NAME",
     .help = "Implementation of the net's layers (see `muster list executors`); auto: the fastest one that "
             "supports the net.",
     .needs = {{NETS_ONLY}}},
    {.name = "device",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(device),
     .fallback = "cpu",
     .metavar = "NAME",
     .help = "Device that computes: cpu, cuda (a GPU; processes of a job on one host take turns), cuda:N, or "
             "auto: a GPU if there are one, its plug-in (`make cuda`) and support for the model, else the "
             "CPU.",
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "precision",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(precision),
     .fallback = "fp32",
     .choices = "fp32|tf32|bf16",
     .help = "Precision of products on a GPU; weights, sums and optimizer state are fp32 in all of them.",
     .needs = {{NETS_ONLY}},
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = NULL},
};

const mst_model_ops *mst_model_find(const char *name)
{
    for (size_t i = 0; name != NULL && mst_models[i] != NULL; i++)
        if (strcmp(mst_models[i]->name, name) == 0)
            return mst_models[i];
    return NULL;
}

/* docs/GPU.md has the arithmetic. */
mst_status mst_model_gpu_trains_alone(const mst_model *self)
{
    if (self->options.use == MST_DEVICE_COMPUTES)
        return mst_fail(
            MST_EUNSUPPORTED,
            "--device %s: %s runs on a GPU only in training with --strategy local; use --device cpu",
            self->options.device, mst_model_chain(self) != NULL ? "a net over embeddings" : self->ops->name);
    return MST_OK;
}

mst_status mst_model_gpu_use_sparse(mst_model *self)
{
    TRY(mst_model_gpu_trains_alone(self));
    return self->gpu.ops == NULL || self->gpu.ops->sparse != NULL
               ? MST_OK
               : mst_fail(MST_EUNSUPPORTED,
                          "this GPU plug-in does not train sparse models; use --device cpu");
}

bool mst_model_leave_gpu(mst_model *self)
{
    static atomic_bool warned; /* a process may make the model several times */
    if (self->gpu.ops == NULL || strcmp(self->options.device, "auto") != 0)
        return false;
    if (!atomic_exchange(&warned, true))
        mst_warn("--device auto computes on the CPU: %s", mst_error_text());
    self->gpu = (mst_cuda){0};
    self->ops->gpu_use(self); /* without a GPU: sets the executor */
    return true;
}

/* --precision without a GPU: with --device auto, the CPU computes in fp32. */
static mst_status model_refuse_precision(const char *device)
{
    static atomic_bool warned;
    if (device == NULL || strcmp(device, "auto") != 0)
        return mst_fail(MST_EUSAGE, "--precision is for --device cuda, and the CPU computes here");
    if (!atomic_exchange(&warned, true))
        mst_warn("--device auto computes on the CPU, in fp32: --precision is for GPUs");
    return MST_OK;
}

/* The GPU of --device, if the model can use it. */
static mst_status model_choose_device(mst_model *self)
{
    const char *device = self->options.device;
    mst_status st = mst_cuda_choose(device, self->options.device_turn, &self->gpu);
    if (self->gpu.ops != NULL || st == MST_EUNSUPPORTED) {
        /* Also without a plug-in: advice to build it is for models that a GPU computes. */
        mst_status can = self->ops->gpu_use(self);
        st = can != MST_OK ? can : st;
    }
    if (st != MST_OK && (st != MST_EUNSUPPORTED || !mst_model_leave_gpu(self)))
        return st;
    if (self->gpu.ops == NULL && self->options.precision != MST_CUDA_FP32)
        TRY(model_refuse_precision(device));
    self->gpu.precision = (mst_cuda_precision)self->options.precision;
    return MST_OK;
}

mst_status mst_model_new(const mst_model_options *options, const mst_shape *shape, const mst_kernels *kernels,
                         mst_model **out)
{
    const mst_model_ops *ops = mst_models[options->model];
    if (options->net != NULL && options->net_text == NULL && !mst_model_has(ops, MST_MODEL_NET))
        return mst_fail(MST_EUSAGE, "--net %s is for --model net, and --model is %s", options->net,
                        ops->name);
    mst_model *self = mst_zalloc(ops->size);
    if (self == NULL)
        return mst_fail_memory();
    self->ops = ops;
    self->kernels = kernels;
    self->options = *options;
    self->shape = *shape;
    mst_status st = ops->init(self, options, shape);
    if (st == MST_OK)
        st = model_choose_device(self);
    bool corrected = options->keep_negatives > 0.0 && options->keep_negatives < 1.0;
    bool weighted = options->pos_weight > 0.0 && options->pos_weight != 1.0;
    if (st == MST_OK && (corrected || (weighted && mst_model_has(ops, MST_MODEL_NET))) && self->n_scores != 1)
        st = mst_fail(MST_EUSAGE, "--%s needs one score per row: end the net in `linear 1`",
                      corrected ? "keep-negatives" : "pos-weight");
    if (st != MST_OK) {
        mst_model_destroy(self);
        return st;
    }
    *out = self;
    return MST_OK;
}

mst_status mst_model_check_memory(const mst_model *self, const mst_params *params, bool state, uint64_t bytes)
{
    int64_t init = self->options.init;
    bool weights = self->ops->start_keys != NULL || (init != MST_START_DEFAULT && init != MST_START_ZEROS);
    return weights || state || mst_params_huge(params)
               ? mst_memory_limit_check(bytes, "the model's parameters")
               : MST_OK;
}

void mst_model_destroy(mst_model *self)
{
    if (self != NULL && self->ops->fini != NULL)
        self->ops->fini(self);
    mst_free(self);
}

mst_status mst_model_scratch_new(const mst_model *self, uint32_t max_rows, unsigned n_threads, bool training,
                                 void **out)
{
    if (self->ops->open != NULL)
        return self->ops->open(self, max_rows, n_threads, training, out);
    void *scratch = mst_alloc_lines(self->ops->scratch_size(self, max_rows));
    if (scratch == NULL)
        return mst_fail_memory();
    *out = scratch;
    return MST_OK;
}

void mst_model_each(const mst_model *self, void *scratch, unsigned n, void (*fn)(void *arg, unsigned i),
                    void *arg)
{
    if (self->ops->each != NULL) {
        self->ops->each(self, scratch, n, fn, arg);
        return;
    }
    for (unsigned i = 0; i < n; i++)
        fn(arg, i);
}

void mst_model_scratch_free(const mst_model *self, void *scratch)
{
    if (scratch == NULL)
        return;
    if (self->ops->close != NULL)
        self->ops->close(self, scratch);
    else
        mst_free(scratch);
}

mst_status mst_model_score(const mst_model *self, void *scratch, const mst_batch *batch, const mst_weights *w,
                           float *scores)
{
    double kept = self->options.keep_negatives;
    TRY(self->ops->forward(self, scratch, batch, w, scores));
    if (kept > 0.0 && kept < 1.0 && self->n_scores == 1)
        for (uint32_t i = 0; i < batch->n_rows; i++)
            scores[i] += (float)log(kept);
    return MST_OK;
}

void mst_model_weights(const mst_model *self, const mst_params *params, mst_weights *out)
{
    mst_grad layout = {0};
    self->ops->layout(self, params, &layout);
    for (uint32_t i = 0; i < layout.n_ranges; i++)
        out->ranges[i] = params->w + layout.ranges[i].offset;
    mst_key_rows rows = mst_params_keys(params, layout.sparse_offset, layout.width, NULL);
    out->by_rows = params->rows.stride != 0;
    out->sparse = layout.width != 0 ? rows.at : NULL;
    out->stride = rows.stride;
    out->head = out->by_rows ? (uint32_t)(rows.n_keys - (rows.end - rows.first) / rows.width) : 0;
    out->shared = 0;
    out->near = false;
    out->state = params->slot_step;
    out->map = NULL;
    out->map_scratch = NULL;
    out->version = 0;
}

void mst_model_pin(const mst_model *self, void *at, size_t bytes)
{
    if (self->gpu.ops != NULL && bytes > 0)
        self->gpu.ops->pin(self->gpu.device, at, bytes);
}

void mst_model_unpin(const mst_model *self, void *at)
{
    if (self->gpu.ops != NULL && at != NULL)
        self->gpu.ops->unpin(at);
}

uint64_t mst_weights_version(void)
{
    static _Atomic uint64_t last;
    return atomic_fetch_add(&last, 1) + 1;
}

/* Prefetches a row's dense part: rows are in shuffled order, so hardware prefetching does not work. */
static void prefetch_dense(const mst_row *row)
{
    const char *data = row->bytes ? (const char *)row->bytes : (const char *)row->dense;
    size_t size = row->bytes ? row->n_dense : row->n_dense * sizeof(float);
    for (size_t i = 0; i < size; i += 64)
        __builtin_prefetch(data + i);
}

void mst_rows_expand(const mst_kernels *kernels, const mst_row *rows, uint32_t n, size_t size, float *x)
{
    enum { AHEAD = 6 }; /* rows */
    for (uint32_t r = 0; r < n; r++, x += size) {
        const mst_row *row = &rows[r];
        if (r + AHEAD < n)
            prefetch_dense(&rows[r + AHEAD]);
        if (row->bytes)
            kernels->unpack_bytes(row->bytes, row->n_dense, x);
        else if (row->n_dense)
            memcpy(x, row->dense, row->n_dense * sizeof *x);
        if (row->n_dense < size)
            memset(x + row->n_dense, 0, (size - row->n_dense) * sizeof *x);
        for (uint32_t i = 0; i < row->n_keys; i++)
            x[row->keys[i]] += row->values ? row->values[i] : 1.0f;
    }
}

void mst_count_binary(const mst_batch *batch, const float *margins, double pos_weight, mst_loss_sum *sum)
{
    uint32_t correct = 0;
    double weight = sum->weight, factors[2] = {1.0, pos_weight}; /* labels cannot be predicted: no branch */
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        bool positive = mst_label_positive(batch->rows[i].label);
        weight += (double)batch->rows[i].weight * factors[positive];
        correct += (margins[i] > 0.0f) == positive;
    }
    sum->rows += batch->n_rows;
    sum->weight = weight;
    sum->correct += correct;
}

uint32_t mst_scores_class(const float *scores, uint32_t n)
{
    uint32_t best = 0;
    if (n == 1)
        return scores[0] > 0.0f;
    for (uint32_t c = 1; c < n; c++)
        best = scores[c] > scores[best] ? c : best;
    return best;
}

mst_status mst_scores_check(const float *scores, uint32_t n_scores, uint32_t n, uint64_t first)
{
    for (size_t i = 0; i < (size_t)n * n_scores; i++)
        if (!isfinite(scores[i]))
            return mst_fail(MST_EINPUT,
                            "the model's score of row %" PRIu64 " is not a finite number: the numbers of the "
                            "row or the weights are too large",
                            first + i / n_scores);
    return MST_OK;
}

double mst_probability(double margin)
{
    return margin >= 0.0 ? 1.0 / (1.0 + exp(-margin)) : exp(margin) / (1.0 + exp(margin));
}

void mst_probabilities(const float *scores, uint32_t n, float *out)
{
    double top = (double)scores[0], sum = 0.0;
    for (uint32_t c = 1; c < n; c++)
        top = fmax(top, (double)scores[c]);
    for (uint32_t c = 0; c < n; c++)
        sum += exp((double)scores[c] - top);
    for (uint32_t c = 0; c < n; c++)
        out[c] = (float)(exp((double)scores[c] - top) / sum);
}

uint32_t mst_count_correct(const mst_batch *batch, const float *scores, uint32_t n_scores)
{
    uint32_t correct = 0;
    for (uint32_t i = 0; n_scores == 1 && i < batch->n_rows; i++)
        correct += (scores[i] > 0.0f) == mst_label_positive(batch->rows[i].label);
    for (uint32_t i = 0; n_scores > 1 && i < batch->n_rows; i++, scores += n_scores)
        correct += mst_scores_class(scores, n_scores) == mst_label_class(batch->rows[i].label);
    return correct;
}
