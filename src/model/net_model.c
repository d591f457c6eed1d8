/* Nets as models: a chain of layers, computed by an executor, behind model.h. One table per net that comes
 * with muster, and one for the nets of files; all have the same functions.
 *
 * The gradient layout is one dense range per parameter of the chain, in its order; scratch is a replica of an
 * executor. Rows of images are whatever rows are: bytes, numbers, or keys. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/racy.h"
#include "model/chain_gpu.h"
#include "model/chain_impl.h"
#include "model/exec_cuda.h"
#include "model/layer_impl.h"

#define FILE_MAX (1u << 20)
/* Rows at a time in inference: batches of evaluation may be much larger than those of training. Rows of nets
 * over embeddings are small. */
#define FORWARD_ROWS       64
#define FORWARD_EMBEDDINGS 512
#define FORWARD_GPU        1024

typedef struct net_model {
    mst_model base;
    mst_chain *chain;
    const mst_executor *executor;
    const mst_executor *on_cpu;
} net_model;

/* ---- the text of the net ---- */

static const mst_known_net *net_find_known(const char *name)
{
    for (const mst_known_net *known = mst_known_nets; known->name != NULL; known++)
        if (strcmp(known->name, name) == 0)
            return known;
    return NULL;
}

/* Appends to *text, which may be NULL. */
static bool net_append(char **text, const char *more, size_t length)
{
    char *longer = mst_sprintf("%s%.*s", *text != NULL ? *text : "", (int)length, more);
    mst_free(*text);
    *text = longer;
    return longer != NULL;
}

/* The text of a known net with its relu lines replaced. own_init: without its defaults of init, which --init
 * replaces. */
static mst_status with_options(const char *text, const char *activation, bool own_init, char **out)
{
    static const char defaults[] = "defaults init=";
    char *made = NULL;
    while (*text != '\0') {
        size_t length = strcspn(text, "\n") + 1;
        bool relu = length == 5 && memcmp(text, "relu", 4) == 0;
        if (own_init && strncmp(text, defaults, sizeof defaults - 1) == 0) {
            text += length;
            continue;
        }
        if (!net_append(&made, relu ? activation : text, relu ? strlen(activation) : length - 1) ||
            !net_append(&made, "\n", 1)) {
            mst_free(made);
            return mst_fail_memory();
        }
        text += length;
    }
    *out = made;
    return MST_OK;
}

static mst_status check_hidden(const char *hidden)
{
    unsigned n = 0;
    for (const char *at = hidden; at != NULL; n++) {
        uint32_t size;
        if (n == 25 || !mst_hidden_next(&at, &size))
            return mst_fail(MST_EUSAGE,
                            "--hidden %s: sizes of hidden layers separated by commas, such as 300,100",
                            hidden);
    }
    return MST_OK;
}

static mst_status mlp_text(const char *hidden, const char *activation, char **out)
{
    char *made = NULL, line[64];
    unsigned n = 0;
    for (const char *at = hidden; at != NULL; n++) {
        uint32_t size;
        if (!mst_hidden_next(&at, &size))
            break;
        int length = snprintf(line, sizeof line, "fc%u: linear %u\n%s\n", n + 1, size, activation);
        if (!net_append(&made, line, (size_t)length))
            return mst_fail_memory();
    }
    int length = snprintf(line, sizeof line, "fc%u: linear classes\n", n + 1);
    if (!net_append(&made, line, (size_t)length))
        return mst_fail_memory();
    *out = made;
    return MST_OK;
}

/* The options as defaults of the layers, after those of the net itself. */
static char *embedding_defaults(const mst_model_options *options, const char *activation)
{
    char *line = mst_sprintf("defaults activation=%s batchnorm=%s", activation,
                             options->batch_norm ? "true" : "false");
    for (unsigned i = 0; line != NULL && i < 4; i++) {
        char *longer =
            i == 0 && options->embedding > 0
                ? mst_sprintf("%s width=%lld", line, (long long)options->embedding)
            : i == 1 && options->hidden != NULL ? mst_sprintf("%s hidden=%s", line, options->hidden)
            : i == 2 && options->dropout > 0.0  ? mst_sprintf("%s dropout=%.9g", line, options->dropout)
            : i == 3 && options->cross_layers > 0
                ? mst_sprintf("%s layers=%lld", line, (long long)options->cross_layers)
                : mst_strdup(line);
        mst_free(line);
        line = longer;
    }
    return line;
}

/* The text of a known net over embeddings with its options. */
static mst_status embedding_text(const char *text, const char *activation, const mst_model_options *options,
                                 char **out)
{
    char *made = NULL, *line = embedding_defaults(options, activation);
    const char *at = text;
    bool whole = line != NULL;
    while (*at == '#' || strncmp(at, "defaults ", 9) == 0) {
        size_t length = strcspn(at, "\n") + 1;
        if (options->init == 0 || strncmp(at, "defaults init=", 14) != 0)
            whole = whole && net_append(&made, at, length);
        at += length;
    }
    whole = whole && net_append(&made, line, strlen(line)) && net_append(&made, "\n", 1) &&
            net_append(&made, at, strlen(at));
    mst_free(line);
    if (!whole) {
        mst_free(made);
        return mst_fail_memory();
    }
    *out = made;
    return MST_OK;
}

static mst_status read_net_file(const mst_model_options *options, char **out)
{
    size_t size;
    char *text;
    if (options->net == NULL)
        return mst_fail(MST_EUSAGE, "--model net needs the net: --net FILE");
    TRY(mst_file_read_all(options->net, FILE_MAX, &text, &size));
    if (strlen(text) != size) {
        mst_free(text);
        return mst_fail(MST_EINPUT, "%s: not a net file: it holds a zero byte", options->net);
    }
    *out = text;
    return MST_OK;
}

mst_status mst_net_text(const char *model, const mst_model_options *options, char **out)
{
    static const char *const activations[] = {"relu", "tanh", "sigmoid"};
    const char *activation = activations[options->activation];
    const mst_known_net *known = net_find_known(model);
    bool takes_hidden = known != NULL && known->takes_hidden;
    if (options->net_text != NULL) {
        *out = mst_strdup(options->net_text);
        return *out != NULL ? MST_OK : mst_fail_memory();
    }
    if (options->net != NULL && known != NULL)
        return mst_fail(MST_EUSAGE, "--net %s is for --model net; --model %s has a net of its own",
                        options->net, model);
    if (options->hidden != NULL && !takes_hidden)
        return mst_fail(MST_EUSAGE, "--hidden is for --model mlp and nets over embeddings");
    if (options->hidden != NULL)
        TRY(check_hidden(options->hidden));
    if (known == NULL && options->activation != 0)
        return mst_fail(MST_EUSAGE, "--activation is for nets that come with muster: change %s instead",
                        options->net != NULL ? options->net : "the net file");
    if (known == NULL)
        return read_net_file(options, out);
    if (known->in.c == 0)
        return embedding_text(known->text, activation, options, out);
    if (options->hidden != NULL)
        return mlp_text(options->hidden, activation, out);
    return with_options(known->text, activation, options->init != 0, out);
}

/* ---- the model ---- */

/* The input: from the data, from --image, or a row of numbers. Rows that are too long have no dimensions: the
 * net must begin with an embedding. */
static mst_status input_dims(const mst_model_options *options, const mst_shape *shape, mst_dims *out)
{
    bool known = shape->c != 0;
    mst_dims given;
    *out = known ? (mst_dims){shape->c, shape->h, shape->w}
                 : (mst_dims){shape->n_features <= MST_SIZE_MAX ? (uint32_t)shape->n_features : 0, 1, 1};
    if (mst_dims_size(out) > MST_SIZE_MAX)
        return mst_fail(MST_EINPUT,
                        "rows of %" PRIu64 " features are too long for a net: at most 2^28 are possible",
                        shape->n_features);
    if (options->image == NULL)
        return MST_OK;
    if (!mst_dims_parse(options->image, &given))
        return mst_fail(MST_EUSAGE, "--image %s: must be channels x height x width, such as 3x32x32",
                        options->image);
    if (known && memcmp(&given, out, sizeof given) != 0)
        return mst_fail(MST_EUSAGE, "--image %s: the data has images of %ux%ux%u", options->image, out->c,
                        out->h, out->w);
    if (mst_dims_size(&given) < shape->n_features)
        return mst_fail(MST_EUSAGE, "--image %s: each row of the data has %" PRIu64 " values", options->image,
                        shape->n_features);
    *out = given;
    return MST_OK;
}

/* A net of convolutions that comes with muster takes no rows without an image shape. */
static mst_status net_check_images(const net_model *net, const mst_model_options *options,
                                   const mst_shape *shape)
{
    const mst_known_net *known = net_find_known(net->base.ops->name);
    if (known == NULL || known->takes_hidden || known->in.c == 0 || options->net_text != NULL ||
        options->image != NULL || shape->c != 0)
        return MST_OK;
    return mst_fail(MST_EINPUT,
                    "%s takes images, such as %ux%ux%u, but the data has rows of %" PRIu64
                    " %sfeatures; use --model %s, or give --image CxHxW if the rows are images",
                    known->name, known->in.c, known->in.h, known->in.w, shape->n_features,
                    shape->n_dense < shape->n_features ? "sparse " : "",
                    shape->n_classes > 2 ? "softmax" : "logreg");
}

/* A net that comes with muster and multiplies vectors of fields needs some. Fields count besides those of
 * numbers. */
static mst_status net_check_fields(const net_model *net, const mst_model_options *options,
                                   const mst_shape *shape)
{
    const mst_known_net *known = net_find_known(net->base.ops->name);
    uint32_t fields = shape->n_fields > shape->n_dense ? shape->n_fields - shape->n_dense : 0;
    if (known == NULL || options->net_text != NULL ||
        fields >= (shape->n_dense > 0 ? known->fields_with_numbers : known->fields))
        return MST_OK;
    return mst_fail(MST_EINPUT,
                    "%s needs data with at least two fields of keys (criteo, libffm, vw), and this data has "
                    "%s; use --model wide-deep or fm",
                    known->name, fields == 0 ? "none" : "one");
}

static mst_status net_parse(net_model *net, const mst_model_options *options, const mst_shape *shape)
{
    static const char *const inits[] = {"", "glorot", "he", "uniform", "normal", "constant"};
    const char *source =
        options->net != NULL && options->net_text == NULL ? options->net : net->base.ops->name;
    char *text = NULL, *whole = NULL;
    mst_net_data data = {.n_classes = shape->n_classes,
                         .n_keys = shape->n_features,
                         .n_dense = shape->n_dense,
                         .n_fields = shape->n_fields,
                         .kinds = options->kinds};
    mst_status st;
    TRY(net_check_images(net, options, shape));
    TRY(net_check_fields(net, options, shape));
    TRY(input_dims(options, shape, &data.in));
    TRY(mst_net_text(net->base.ops->name, options, &text));
    TRY_OUT(st, mst_chain_parse_with(text, source, &data, &net->chain));
    if (options->init == 0 || options->net_text != NULL)
        goto out;
    /* Again with the default in front, which would have shifted the lines of errors. */
    whole = mst_sprintf("defaults init=%s\n%s", inits[options->init], text);
    if (whole == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    mst_chain_destroy(net->chain);
    net->chain = NULL;
    st = mst_chain_parse_with(whole, source, &data, &net->chain);
out:
    mst_free(text);
    mst_free(whole);
    return st;
}

static void net_set_executor(net_model *net, const mst_executor *executor)
{
    net->executor = executor;
    net->base.threads = executor->threads || (executor->norm_threads && mst_chain_has_state(net->chain));
    net->base.overwrites = executor->overwrites;
    net->base.crew = executor->crew;
    net->base.part_rows = executor->part_rows != NULL ? executor->part_rows(net->base.kernels) : 0;
}

static mst_status net_init(mst_model *self, const mst_model_options *options, const mst_shape *shape)
{
    net_model *net = (net_model *)self;
    if (options->init >= MST_START_ZEROS)
        return mst_fail(MST_EUSAGE, "--init zeros and ones are for logreg and softmax, not for nets");
    if (shape->n_classes < 2)
        return mst_fail(MST_EINPUT, "a net needs at least two classes; the data has %u", shape->n_classes);
    if (shape->n_features == 0)
        return mst_fail(MST_EINPUT, "the data has no features: nothing to train");
    TRY(net_parse(net, options, shape));
    TRY(mst_executor_choose(net->chain, options->executor, &net->on_cpu));
    const mst_dims *in = &net->chain->in;
    self->options.net_text = net->chain->text;
    if (net->chain->table.n_keys == 0) {
        self->shape.n_features =
            mst_dims_size(in); /* trailing numbers that are zero in every row count too */
        self->shape.c = in->c;
        self->shape.h = in->h;
        self->shape.w = in->w;
        self->shape.n_fields = 0;
    }
    self->n_scores = (uint32_t)mst_dims_size(&net->chain->layers[net->chain->n_layers - 1]->out);
    net_set_executor(net, net->on_cpu);
    return MST_OK;
}

static void net_fini(mst_model *self)
{
    mst_chain_destroy(((net_model *)self)->chain);
}

static mst_status net_declare(mst_model *self, mst_params *params)
{
    return mst_chain_declare(((net_model *)self)->chain, params);
}

static void net_start(const mst_model *self, mst_params *params, uint64_t seed)
{
    mst_chain_start(((const net_model *)self)->chain, params, seed);
}

static void net_start_keys(const mst_model *self, mst_params *params, uint64_t seed, uint64_t first,
                           uint64_t n)
{
    mst_chain_start_keys(((const net_model *)self)->chain, params, seed, first, n);
}

static void net_layout(const mst_model *self, const mst_params *params, mst_grad *layout)
{
    const mst_chain *chain = ((const net_model *)self)->chain;
    const mst_net_table *table = &chain->table;
    layout->n_ranges = chain->n_ranges;
    layout->width = table->width;
    if (table->width != 0) { /* range 0: the dense prefix, whose numbers own no weights */
        layout->sparse_offset = params->views[table->view].offset;
        layout->ranges[0] =
            (mst_range){.offset = layout->sparse_offset, .size = (uint64_t)table->n_dense * table->width};
    }
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        const mst_layer *layer = chain->layers[i];
        for (uint32_t j = 0; j < layer->n_params; j++) {
            const mst_view *view = &params->views[layer->views[j]];
            layout->ranges[layer->first_range + j] = (mst_range){
                .offset = view->offset, .size = view->size, .state = view->kind == MST_VIEW_STATE};
        }
    }
}

static mst_status net_open(const mst_model *self, uint32_t max_rows, unsigned n_threads, bool training,
                           void **out)
{
    const net_model *net = (const net_model *)self;
    mst_replica *replica;
    bool gpu = self->gpu.ops != NULL &&
               net->chain->table.n_keys == 0; /* a table is too large to copy for each call */
    uint32_t most = gpu ? FORWARD_GPU : net->chain->table.n_keys != 0 ? FORWARD_EMBEDDINGS : FORWARD_ROWS;
    if (!training && max_rows > most)
        max_rows = most;
    if (gpu) {
        TRY(mst_exec_cuda_open(&self->gpu, net->chain, self->kernels, max_rows > 0 ? max_rows : 1,
                               (float)self->options.pos_weight, training, &replica));
        *out = replica;
        return MST_OK;
    }
    TRY(net->executor->open(net->chain, self->kernels, max_rows > 0 ? max_rows : 1, n_threads, training,
                            &replica));
    replica->pos_weight = (float)self->options.pos_weight;
    *out = replica;
    return MST_OK;
}

static void net_close(const mst_model *self, void *scratch)
{
    (void)self;
    ((mst_replica *)scratch)->executor->close(scratch);
}

/* A share without rows: state stays unchanged. */
MST_RACY static void keep_state(const mst_range *range, const float *w)
{
    for (uint64_t i = 0; i < range->size; i++)
        range->g[i] = w[i];
}

static mst_status compute_nothing(const mst_chain *chain, const mst_weights *w, mst_grad *grad,
                                  mst_step *step)
{
    for (uint32_t r = 0; r < chain->n_ranges; r++) {
        TRY(mst_step_need(step, r));
        if (grad->fresh)
            memset(grad->ranges[r].g, 0, grad->ranges[r].size * sizeof(float));
        if (grad->ranges[r].state)
            keep_state(&grad->ranges[r], w->ranges[r]);
    }
    grad->fresh = false;
    for (uint32_t r = chain->n_ranges; r-- > 0;)
        TRY(mst_step_ready(step, r));
    return MST_OK;
}

static mst_status net_compute(const mst_model *self, void *scratch, const mst_batch *batch,
                              const mst_weights *w, float scale, mst_grad *grad, mst_step *step,
                              mst_loss_sum *sum)
{
    const net_model *net = (const net_model *)self;
    mst_pass pass = {.training = true};
    if (batch->n_rows == 0)
        return compute_nothing(net->chain, w, grad, step);
    if (step != NULL) {
        pass.seed = step->seed;
        pass.step = step->number;
        pass.first_row = step->first_row;
    }
    return ((mst_replica *)scratch)->executor->train(scratch, batch, w, &pass, scale, grad, step, sum);
}

static void net_each(const mst_model *self, void *scratch, unsigned n, void (*fn)(void *arg, unsigned i),
                     void *arg)
{
    const mst_executor *executor = ((const mst_replica *)scratch)->executor;
    (void)self;
    if (executor->each != NULL) {
        executor->each(scratch, n, fn, arg);
        return;
    }
    for (unsigned i = 0; i < n; i++)
        fn(arg, i);
}

static bool net_assist(const mst_model *self, void *scratch)
{
    mst_replica *replica = scratch;
    (void)self;
    return replica->executor->assist != NULL && replica->executor->assist(replica);
}

static mst_status net_forward(const mst_model *self, void *scratch, const mst_batch *batch,
                              const mst_weights *w, float *scores)
{
    mst_replica *replica = scratch;
    for (uint32_t from = 0; from < batch->n_rows; from += replica->max_rows) {
        mst_batch part = mst_batch_range(batch, from, replica->max_rows);
        TRY(replica->executor->forward(replica, &part, w, scores + (size_t)from * self->n_scores));
    }
    return MST_OK;
}

static mst_status net_gpu_use(mst_model *self)
{
    net_model *net = (net_model *)self;
    bool keys = net->chain->table.n_keys != 0; /* evaluations stay on the CPU */
    TRY(mst_chain_gpu_can(net->chain));
    if (keys)
        TRY(mst_model_gpu_trains_alone(self));
    if (self->gpu.ops != NULL && self->gpu.ops->net == NULL)
        return mst_fail(MST_EUNSUPPORTED, "this GPU plug-in does not train nets; use --device cpu");
    net_set_executor(net, self->gpu.ops != NULL && !keys ? &mst_executor_cuda : net->on_cpu);
    return MST_OK;
}

const mst_chain *mst_model_chain(const mst_model *self)
{
    return mst_model_has(self->ops, MST_MODEL_NET) ? ((const net_model *)self)->chain : NULL;
}

/* The bias of a layer of one number, or of a layer that it adds up; NULL: none. */
static const mst_view *net_bias(const mst_chain *chain, uint32_t i, const mst_params *params)
{
    const mst_layer *layer = chain->layers[i];
    const mst_view *bias = NULL;
    for (uint32_t j = 0; layer->ops == &mst_layer_linear && j < layer->n_params; j++)
        if (strcmp(layer->params[j].name, "bias") == 0)
            return &params->views[layer->views[j]];
    for (uint32_t j = 0; bias == NULL && layer->ops == &mst_layer_add && j < layer->n_inputs; j++)
        if (layer->inputs[j] != MST_INPUT_ROWS)
            bias = net_bias(chain, layer->inputs[j], params);
    return bias;
}

bool mst_model_bias(const mst_model *self, const mst_params *params, uint64_t *at)
{
    const mst_chain *chain = mst_model_chain(self);
    const mst_view *bias = NULL;
    if (self->n_scores != 1)
        return false;
    if (chain != NULL)
        bias = net_bias(chain, chain->n_layers - 1, params);
    for (uint32_t i = 0; chain == NULL && i < params->n_views; i++)
        if (strcmp(params->views[i].name, "bias") == 0)
            bias = &params->views[i];
    if (bias != NULL)
        *at = bias->offset;
    return bias != NULL;
}

bool mst_model_normalises_rows(const mst_model *self)
{
    const mst_chain *chain = mst_model_chain(self);
    for (uint32_t i = 0; chain != NULL && i < chain->n_layers; i++)
        if (chain->layers[i]->ops == &mst_layer_batchnorm && chain->layers[i]->in.h == 1 &&
            chain->layers[i]->in.w == 1)
            return true;
    return false;
}

#define NET(id, title, bits, text)                                                                           \
    const mst_model_ops mst_model_##id = {                                                                   \
        .name = title,                                                                                       \
        .help = text,                                                                                        \
        .size = sizeof(net_model),                                                                           \
        .capabilities = MST_MODEL_NET | (bits),                                                              \
        .init = net_init,                                                                                    \
        .fini = net_fini,                                                                                    \
        .declare = net_declare,                                                                              \
        .start = net_start,                                                                                  \
        .start_keys = net_start_keys,                                                                        \
        .layout = net_layout,                                                                                \
        .open = net_open,                                                                                    \
        .close = net_close,                                                                                  \
        .compute = net_compute,                                                                              \
        .each = net_each,                                                                                    \
        .assist = net_assist,                                                                                \
        .forward = net_forward,                                                                              \
        .gpu_use = net_gpu_use,                                                                              \
    }

NET(net, "net", MST_MODEL_NET_FILE, "the net of a file: --net FILE");
NET(lenet, "lenet", 0, "LeNet-5 for 28x28 images: two convolutions with average pooling, 120, 84");
NET(lenet_small, "lenet-small", 0, "LeNet with kernels of 3x3 and no padding");
NET(alexnet, "alexnet", 0, "AlexNet in one tower, 61 million parameters, for 3x224x224 images");
NET(alexnet_paper, "alexnet-paper", 0, "AlexNet with normalisation and groups, as in the paper");
NET(mlp, "mlp", 0, "hidden layers of 300 and 100, or of --hidden");
NET(wide_deep, "wide-deep", MST_MODEL_BINARY, "Wide & Deep: linear weights plus an MLP over embeddings");
NET(deepfm, "deepfm", MST_MODEL_BINARY,
    "DeepFM: a factorisation machine plus an MLP over the same embeddings");
NET(dcn, "dcn", MST_MODEL_BINARY, "DCN v2: cross layers beside an MLP over embeddings");
NET(dlrm, "dlrm", MST_MODEL_BINARY, "DLRM: dot products of embeddings and numbers, then an MLP");
