/* `muster model show` and `muster model export`: the contents of a checkpoint, and the sizes of a net. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "base/file.h"
#include "cli/cli.h"
#include "cli/export_onnx.h"
#include "cli/table.h"
#include "data/feature_names.h"
#include "model/executor.h"
#include "train/assembly.h"

/* ---- show ---- */

typedef struct show_options {
    bool last;
    char *input, *executor;
    int64_t classes, features, fields, numbers;
    mst_model_options model; /* hidden, activation, embedding, dropout, batch_norm and cross_layers */
    bool json;
} show_options;

static const mst_option show_table[] = {
    {.name = "last",
     .type = MST_OPTION_FLAG,
     .offset = offsetof(show_options, last),
     .help = "Runs: use the newest checkpoint, even if the run has a best one."},
    {.name = "input",
     .type = MST_OPTION_TEXT,
     .offset = offsetof(show_options, input),
     .metavar = "CxHxW",
     .help = "Nets: shape of an image, channels x height x width, if the file does not have it."},
    {.name = "classes",
     .type = MST_OPTION_INT,
     .offset = offsetof(show_options, classes),
     .fallback = "0",
     .min = 0,
     .max = 1 << 24,
     .metavar = "N",
     .help = "Nets: number of classes; 0: the number that a built-in net was designed for."},
    {.name = "features",
     .type = MST_OPTION_INT,
     .offset = offsetof(show_options, features),
     .fallback = "2^20",
     .min = 1,
     .max = UINT32_MAX,
     .metavar = "N",
     .help = "Nets over embeddings: number of features, each of which has a row of the table."},
    {.name = "fields",
     .type = MST_OPTION_INT,
     .offset = offsetof(show_options, fields),
     .fallback = "39",
     .min = 1,
     .max = 65535,
     .metavar = "N",
     .help = "Nets over embeddings: fields with keys."},
    {.name = "numbers",
     .type = MST_OPTION_INT,
     .offset = offsetof(show_options, numbers),
     .fallback = "0",
     .min = 0,
     .max = 1 << 24,
     .metavar = "N",
     .help = "Nets over embeddings: dense numbers of a row."},
    {.name = "hidden",
     .type = MST_OPTION_TEXT,
     .offset = offsetof(show_options, model.hidden),
     .metavar = "N,N,...",
     .help = "mlp and nets over embeddings: sizes of the hidden layers."},
    {.name = "activation",
     .type = MST_OPTION_CHOICE,
     .offset = offsetof(show_options, model.activation),
     .fallback = "relu",
     .choices = "relu|tanh|sigmoid",
     .help = "Built-in nets: activation between the layers."},
    {.name = "embedding",
     .type = MST_OPTION_INT,
     .offset = offsetof(show_options, model.embedding),
     .fallback = "0",
     .min = 0,
     .max = 4096,
     .metavar = "K",
     .help = "Built-in nets over embeddings: numbers per key; 0: as the net defines."},
    {.name = "dropout",
     .type = MST_OPTION_REAL,
     .offset = offsetof(show_options, model.dropout),
     .fallback = "0",
     .min = 0,
     .max = 0.999,
     .metavar = "P",
     .help = "Built-in nets over embeddings: fraction of the units to drop after each hidden layer."},
    {.name = "batch-norm",
     .type = MST_OPTION_FLAG,
     .offset = offsetof(show_options, model.batch_norm),
     .help = "Built-in nets over embeddings: normalise each hidden layer over the batch."},
    {.name = "cross-layers",
     .type = MST_OPTION_INT,
     .offset = offsetof(show_options, model.cross_layers),
     .fallback = "0",
     .min = 0,
     .max = 32,
     .metavar = "N",
     .help = "dcn: cross layers; 0: as the net defines."},
    {.name = "executor",
     .type = MST_OPTION_TEXT,
     .offset = offsetof(show_options, executor),
     .fallback = "auto",
     .metavar = "NAME",
     .help = "Nets: implementation of the layers (see `muster list executors`)."},
    {.name = NULL},
};
static const mst_command_group show_groups[] = {
    {"nets", show_table, 0}, {"output", mst_cli_json_table, offsetof(show_options, json)}, {.table = NULL}};

/* The built-in net of that name, unless a file or folder has the name. */
static const mst_known_net *model_find_known(const char *name)
{
    for (const mst_known_net *known = mst_known_nets; known->name != NULL; known++)
        if (strcmp(known->name, name) == 0 && !mst_path_exists(name))
            return known;
    return NULL;
}

/* *out is the caller's to destroy. */
static mst_status model_read_net(const char *word, const show_options *options, mst_chain **out)
{
    const mst_known_net *known = model_find_known(word);
    mst_net_data data = {
        .in = known != NULL ? known->in : (mst_dims){0},
        .n_classes = options->classes != 0 ? (uint32_t)options->classes
                     : known != NULL       ? known->n_classes
                                           : 0,
        .n_keys = (uint64_t)options->features,
        .n_dense = (uint32_t)options->numbers,
        .n_fields = (uint32_t)(options->numbers + options->fields),
    };
    char *text = NULL;
    size_t size;
    if (options->input != NULL && !mst_dims_parse(options->input, &data.in))
        return mst_fail(MST_EUSAGE, "--input %s: must be channels x height x width, such as 3x224x224",
                        options->input);
    if (known != NULL) {
        TRY(mst_net_text(known->name, &options->model, &text));
        mst_status st = mst_chain_parse_with(text, known->name, &data, out);
        mst_free(text);
        return st;
    }
    if (options->model.hidden != NULL || options->model.activation != 0)
        return mst_fail(MST_EUSAGE, "--%s is for built-in nets; change %s instead",
                        options->model.hidden != NULL ? "hidden" : "activation", word);
    TRY(mst_file_read_all(word, 1 << 20, &text, &size));
    mst_status st = strlen(text) != size
                        ? mst_fail(MST_EINPUT, "%s: neither a checkpoint nor a net file", word)
                        : mst_chain_parse_with(text, word, &data, out);
    mst_free(text);
    return st;
}

static const char *model_dims_text(const mst_dims *d, char *out, size_t size)
{
    if (d->h == 1 && d->w == 1)
        snprintf(out, size, "%u", d->c);
    else
        snprintf(out, size, "%u x %u x %u", d->c, d->h, d->w);
    return out;
}

/* Bytes of the outputs of all layers for one image in training. */
static mst_status model_layers_table(const mst_chain *chain, const mst_params *params, mst_table **out)
{
    static const mst_column columns[] = {{"layer", false},     {"kind", false}, {"output", true},
                                         {"parameters", true}, {"flops", true}, {"memory", true},
                                         {"from", false}};
    char text[64];
    TRY(mst_table_new(columns, chain->graph ? 7 : 6, out));
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        const mst_layer *layer = chain->layers[i];
        uint64_t n = 0;
        for (uint32_t p = 0; p < layer->n_params; p++)
            n += params->views[layer->views[p]].size;
        if (chain->table.width != 0 &&
            i == (chain->table.factors != 0 ? chain->table.embedding : chain->table.wide))
            n += params->views[chain->table.view].size;
        mst_table_text(*out, layer->name);
        mst_table_text(*out, layer->ops->name);
        mst_table_text(*out, model_dims_text(&layer->out, text, sizeof text));
        mst_table_count(*out, n);
        mst_table_count(*out, layer->ops->flops(layer));
        mst_table_bytes(*out, mst_dims_size(&layer->out) * sizeof(float));
        if (!chain->graph)
            continue;
        char from[MST_LAYER_INPUTS * sizeof layer->name] = "";
        for (uint32_t j = 0; j < layer->n_inputs; j++)
            snprintf(from + strlen(from), sizeof from - strlen(from), "%s%s", j > 0 ? "," : "",
                     layer->inputs[j] == MST_INPUT_ROWS ? "rows" : chain->layers[layer->inputs[j]]->name);
        mst_table_text(*out, layer->n_inputs > 0 ? from : "rows");
    }
    return MST_OK;
}

static mst_status model_show_net(const char *word, const show_options *options)
{
    mst_chain *chain = NULL;
    mst_params params = {0};
    mst_table *table = NULL;
    const mst_executor *executor;
    uint64_t memory = 0;
    char input[64];
    mst_status st;
    TRY(model_read_net(word, options, &chain));
    TRY_OUT(st, mst_chain_declare(chain, &params));
    TRY_OUT(st, mst_executor_choose(chain, options->executor, &executor));
    uint64_t n_params = mst_params_count(&params);
    for (uint32_t i = 0; i < chain->n_layers; i++)
        memory += mst_dims_size(&chain->layers[i]->out) * sizeof(float);
    TRY_OUT(st, model_layers_table(chain, &params, &table));
    if (chain->table.n_keys == 0)
        model_dims_text(&chain->in, input, sizeof input);
    else
        snprintf(input, sizeof input, "%u fields, %u numbers", chain->table.n_fields, chain->table.n_dense);
    if (options->json) {
        st = mst_cli_print_json(json_pack("{s:s, s:I, s:I, s:I, s:I, s:s, s:o}", "input", input, "parameters",
                                          (json_int_t)n_params, "weights_bytes",
                                          (json_int_t)(n_params * sizeof(float)), "flops",
                                          (json_int_t)mst_chain_flops(chain), "memory", (json_int_t)memory,
                                          "executor", executor->name, "layers", mst_table_json(table)));
    } else {
        char count[32], weights[32], flops[32], bytes[32];
        printf("input %s\n", input);
        st = mst_table_print(table, NULL, true);
        printf("%s parameters (%s); per %s %s FLOPs forward and %s between layers; executor %s\n",
               mst_figure_grouped(n_params, count), mst_figure_size(n_params * sizeof(float), weights),
               chain->table.n_keys == 0 ? "image" : "row", mst_figure_grouped(mst_chain_flops(chain), flops),
               mst_figure_size(memory, bytes), executor->name);
    }
out:
    mst_table_destroy(table);
    mst_params_fini(&params);
    mst_chain_destroy(chain);
    return st;
}

/* Loads the one checkpoint or run named on the command line; *checkpoint is the folder, the caller's to free.
 */
static mst_status model_load_one(const mst_call *call, bool last, mst_assembly *assembly,
                                 mst_checkpoint_meta *meta, char **checkpoint)
{
    bool best;
    if (call->words.n != 1)
        return mst_fail(MST_EUSAGE, "give one checkpoint: muster %s", call->command->usage);
    TRY(mst_checkpoint_find_model(call->words.items[0], last, checkpoint, &best));
    return mst_assembly_from_checkpoint(assembly, *checkpoint, mst_kernels_get(mst_isa_best()), NULL, NULL, 0,
                                        meta);
}

static uint64_t model_count_nonzero(const mst_params *params, const mst_view *view)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < view->size; i++)
        n += params->w[view->offset + i] != 0.0f;
    return n;
}

static mst_status model_views_table(const mst_params *params, mst_table **out)
{
    static const mst_column columns[] = {
        {"view", false}, {"shape", true}, {"parameters", true}, {"nonzero", true}};
    TRY(mst_table_new(columns, 4, out));
    for (uint32_t i = 0; i < params->n_views; i++) {
        const mst_view *view = &params->views[i];
        char shape[96] = "";
        for (uint32_t d = 0; d < view->n_dims; d++)
            snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%llu", d > 0 ? " x " : "",
                     (unsigned long long)view->dims[d]);
        mst_table_text(*out, view->name);
        mst_table_text(*out, shape);
        mst_table_count(*out, view->size);
        mst_table_count(*out, model_count_nonzero(params, view));
    }
    return MST_OK;
}

static mst_status model_show_run(mst_call *call)
{
    const show_options *options = call->options;
    const mst_text_list *words = &call->words;
    mst_assembly assembly = {0};
    mst_checkpoint_meta meta = {0};
    mst_table *table = NULL;
    char *checkpoint = NULL;
    mst_status st;
    if (words->n == 1 && (model_find_known(words->items[0]) != NULL ||
                          (mst_path_exists(words->items[0]) && !mst_path_is_folder(words->items[0]))))
        return model_show_net(words->items[0], options);
    if (words->n == 1 && !mst_path_exists(words->items[0]))
        return mst_fail(
            MST_EINPUT,
            "%s: there is no such checkpoint or net file, and no net of that name (muster list nets)",
            words->items[0]);
    TRY_OUT(st, model_load_one(call, options->last, &assembly, &meta, &checkpoint));
    TRY_OUT(st, model_views_table(&assembly.params, &table));
    if (options->json) {
        st = mst_cli_print_json(json_pack("{s:s, s:O, s:O, s:I, s:I, s:I, s:o}", "checkpoint", checkpoint,
                                          "model", meta.model, "optimizer", meta.optimizer, "step",
                                          (json_int_t)meta.step, "rows", (json_int_t)meta.rows, "epoch",
                                          (json_int_t)meta.epoch, "views", mst_table_json(table)));
    } else {
        char step[32], rows[32];
        printf("%s: %s, trained by %s for %s steps on %s rows (%llu epoch%s)\n", checkpoint,
               assembly.model->ops->name, json_string_value(json_object_get(meta.optimizer, "name")),
               mst_figure_grouped(meta.step, step), mst_figure_grouped(meta.rows, rows),
               (unsigned long long)meta.epoch, meta.epoch == 1 ? "" : "s");
        st = mst_table_print(table, NULL, true);
    }
out:
    mst_table_destroy(table);
    mst_checkpoint_meta_fini(&meta);
    mst_free(checkpoint);
    mst_assembly_fini(&assembly);
    return st;
}

static const mst_command cmd_show = {
    .name = "show",
    .summary = "describe a checkpoint or a net: layers, shapes, parameters, FLOPs and memory",
    .run = model_show_run,
    .usage = "model show CHECKPOINT|FILE.net|NET [options]",
    .details = "NET is one of `muster list nets`. FLOPs and memory are those of the forward pass of one "
               "image; training takes about three times as many FLOPs.\n",
    .groups = show_groups,
    .options_size = sizeof(show_options),
    .examples = "muster model show lenet\n"
                "muster model show runs/clicks\n",
};

/* ---- export ---- */

typedef struct export_options {
    char *out, *vocabulary, *feature_names, *onnx;
    int64_t top;
    bool overwrite, text, last, names, external, link;
} export_options;

static const mst_option export_table[] = {
    {.name = "out",
     .type = MST_OPTION_TEXT,
     .offset = offsetof(export_options, out),
     .fallback = "-",
     .metavar = "FILE",
     .help = "Output file; \"-\": standard output. Files with the suffix .gz or .zst are compressed."},
    {.name = "overwrite",
     .type = MST_OPTION_FLAG,
     .offset = offsetof(export_options, overwrite),
     .help = "Replace --out if it exists."},
    {.name = "text",
     .type = MST_OPTION_FLAG,
     .offset = offsetof(export_options, text),
     .fallback = "true",
     .help = "One line per non-zero weight: view, indices, value."},
    {.name = "top",
     .type = MST_OPTION_INT,
     .offset = offsetof(export_options, top),
     .fallback = "0",
     .min = 0,
     .max = 1e9,
     .metavar = "N",
     .help = "The N weights of the largest size, largest first; 0: all that are not zero, in their order."},
    {.name = "onnx",
     .type = MST_OPTION_TEXT,
     .offset = offsetof(export_options, onnx),
     .metavar = "FILE",
     .help =
         "Write the model as ONNX, opset 13, instead of text: from rows to the probabilities of predict."},
    {.name = "external-data",
     .type = MST_OPTION_FLAG,
     .offset = offsetof(export_options, external),
     .help = "--onnx: write the weights to FILE.data, as is always done above 2 GB."},
    {.name = "link-checkpoint",
     .type = MST_OPTION_FLAG,
     .offset = offsetof(export_options, link),
     .help =
         "--onnx: point at the weights in the files of the checkpoint instead of copying them. FILE must be "
         "in the folder of the run or above it."},
    {.name = "last",
     .type = MST_OPTION_FLAG,
     .offset = offsetof(export_options, last),
     .help = "Runs: use the newest checkpoint, even if the run has a best one."},
    {.name = "names",
     .type = MST_OPTION_FLAG,
     .offset = offsetof(export_options, names),
     .help = "Add the field and the name of each feature: columns of numbers, names of --feature-names, and "
             "categories of the vocabulary of --min-count that the model was trained with."},
    {.name = "vocabulary",
     .type = MST_OPTION_TEXT,
     .offset = offsetof(export_options, vocabulary),
     .metavar = "FILE",
     .help =
         "The vocabulary for --names, which it implies. Default: the file that the model was trained with."},
    {.name = "feature-names",
     .type = MST_OPTION_TEXT,
     .offset = offsetof(export_options, feature_names),
     .metavar = "FILE",
     .help =
         "Names for --names, which it implies: one per line, of features 0, 1, ... Default: the file that "
         "the model was trained with."},
    {.name = NULL},
};
static const mst_command_group export_groups[] = {{"export", export_table, 0}, {.table = NULL}};

/* The names of features. */
typedef struct export_names {
    mst_feature_names *names;
    uint64_t features; /* 0: no names are wanted */
    mst_string text;   /* of one feature */
} export_names;

static mst_status export_names_init(export_names *self, const export_options *o, const mst_model *model,
                                    const mst_checkpoint_meta *meta, const char *checkpoint)
{
    TRY(mst_feature_names_new(json_object_get(meta->extra, "data"), checkpoint, model->shape.n_dense,
                              o->vocabulary, o->feature_names, &self->names));
    if (self->names == NULL)
        return mst_fail(MST_EUSAGE,
                        "--names: %s was trained neither with --feature-names or --min-count nor on columns "
                        "of numbers, and has no names",
                        checkpoint);
    self->features = model->shape.n_features;
    return MST_OK;
}

/* Ends a line with the field and the name of a feature. */
static mst_status export_names_end(export_names *self, uint64_t key, mst_out *out)
{
    uint32_t field;
    bool known;
    self->text.size = 0;
    TRY(mst_feature_names_get(self->names, key, &field, &self->text, &known));
    return !known ? mst_out_printf(out, "\n")
                  : mst_out_printf(out, " %u %s\n", field, self->text.size > 0 ? self->text.text : "");
}

/* "weight 12 0.25", or "weight 3 12 0.25" in two dimensions; indices count from 0. */
static mst_status model_export_weight(const mst_params *params, const mst_view *view, uint64_t i,
                                      export_names *names, mst_out *out)
{
    uint64_t columns = view->n_dims == 2 ? view->dims[1] : 1;
    bool first =
             names->features != 0 && view->dims[0] == names->features, /* of its indices, is the feature */
        second = names->features != 0 && !first && view->n_dims == 2 && view->dims[1] == names->features;
    double value = (double)params->w[view->offset + i];
    if (view->n_dims == 2)
        TRY(mst_out_printf(out, "%s %llu %llu %.9g", view->name, (unsigned long long)(i / columns),
                           (unsigned long long)(i % columns), value));
    else
        TRY(mst_out_printf(out, "%s %llu %.9g", view->name, (unsigned long long)i, value));
    return first || second ? export_names_end(names, second ? i % columns : i / columns, out)
                           : mst_out_printf(out, "\n");
}

/* A weight of --top. */
typedef struct top_weight {
    uint32_t view;
    uint64_t i;
    float size;
} top_weight;

/* Whether a comes before b: larger, or first in the model. */
static bool top_before(const top_weight *a, const top_weight *b)
{
    if (a->size != b->size)
        return a->size > b->size;
    return a->view != b->view ? a->view < b->view : a->i < b->i;
}

static int top_compare(const void *a, const void *b)
{
    return top_before(a, b) ? -1 : 1; /* no two are equal */
}

/* The heap has its last weight at the root. */
static void top_sink(top_weight *heap, size_t at, size_t n)
{
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && top_before(&heap[child], &heap[child + 1]))
            child++;
        if (!top_before(&heap[at], &heap[child]))
            return;
        top_weight swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
    }
}

/* The n largest weights, the largest first. */
static mst_status model_export_top(const mst_params *params, size_t most, export_names *names, mst_out *out)
{
    top_weight *heap = NULL;
    size_t n = 0, capacity = 0;
    mst_status st = MST_OK;
    for (uint32_t v = 0; v < params->n_views; v++)
        for (uint64_t i = 0; i < params->views[v].size; i++) {
            top_weight w = {.view = v, .i = i, .size = fabsf(params->w[params->views[v].offset + i])};
            if (!(w.size > 0.0f) || (n == most && !top_before(&w, &heap[0])))
                continue;
            if (n < most) {
                if (!mst_grow(&heap, &capacity, n + 1, sizeof *heap)) {
                    st = mst_fail_memory();
                    goto out;
                }
                heap[n++] = w;
                for (size_t k = n / 2; n == most && k-- > 0;)
                    top_sink(heap, k, n);
                continue;
            }
            heap[0] = w;
            top_sink(heap, 0, n);
        }
    if (n > 0)
        qsort(heap, n, sizeof *heap, top_compare);
    for (size_t k = 0; k < n && st == MST_OK; k++)
        st = model_export_weight(params, &params->views[heap[k].view], heap[k].i, names, out);
out:
    mst_free(heap);
    return st;
}

static mst_status model_export_text(const mst_params *params, const export_options *o, export_names *names,
                                    mst_out *out)
{
    if (o->top > 0)
        return model_export_top(params, (size_t)o->top, names, out);
    for (uint32_t v = 0; v < params->n_views; v++)
        for (uint64_t i = 0; i < params->views[v].size; i++)
            if (params->w[params->views[v].offset + i] != 0.0f)
                TRY(model_export_weight(params, &params->views[v], i, names, out));
    return MST_OK;
}

static mst_status model_export_run(mst_call *call)
{
    const export_options *options = call->options;
    mst_assembly assembly = {0};
    mst_checkpoint_meta meta = {0};
    export_names names = {0};
    mst_out *out = NULL;
    char *checkpoint = NULL;
    mst_status st;
    if (!options->text)
        return mst_fail(MST_EUSAGE,
                        "--no-text: text is the only export format; the checkpoint itself is safetensors");
    if (options->onnx == NULL && options->external)
        return mst_fail(MST_EUSAGE, "--external-data is for --onnx FILE");
    if (options->onnx == NULL && options->link)
        return mst_fail(MST_EUSAGE, "--link-checkpoint is for --onnx FILE");
    if (options->onnx != NULL && (options->top > 0 || options->names))
        return mst_fail(MST_EUSAGE, "--%s is for text, without --onnx", options->top > 0 ? "top" : "names");
    if (options->onnx == NULL && mst_ends_with(options->out, ".onnx"))
        return mst_fail(MST_EUSAGE, "--out %s is for text; use --onnx %s", options->out, options->out);
    TRY_OUT(st, mst_cli_check_free(options->onnx != NULL ? options->onnx : options->out, options->overwrite));
    TRY_OUT(st, model_load_one(call, options->last, &assembly, &meta, &checkpoint));
    if (options->onnx != NULL) {
        st = mst_export_onnx(options->onnx, options->external, options->link, &assembly, &meta, checkpoint);
        goto out;
    }
    if (options->names || options->vocabulary != NULL || options->feature_names != NULL)
        TRY_OUT(st, export_names_init(&names, options, assembly.model, &meta, checkpoint));
    TRY_OUT(st, mst_out_open(options->out, &out));
    TRY_OUT(st, model_export_text(&assembly.params, options, &names, out));
    st = mst_out_commit(out);
out:
    mst_out_close(out);
    mst_feature_names_destroy(names.names);
    mst_string_fini(&names.text);
    mst_checkpoint_meta_fini(&meta);
    mst_free(checkpoint);
    mst_assembly_fini(&assembly);
    return st;
}

static const mst_command cmd_export = {
    .name = "export",
    .summary = "write a model as ONNX, or its non-zero weights as text",
    .run = model_export_run,
    .usage = "model export CHECKPOINT [options]",
    .details =
        "One line per non-zero weight, e.g. \"weight 12 0.25\", indices from 0. With --names, \"weight 12 "
        "0.25 3 colour=red\": feature 12 is category red of field 3, the column colour.\n",
    .groups = export_groups,
    .options_size = sizeof(export_options),
    .examples = "muster model export runs/clicks --out weights.txt\n"
                "muster model export runs/clicks --onnx clicks.onnx\n",
};

static const mst_command *const commands[] = {&cmd_show, &cmd_export, NULL};

const mst_command mst_cmd_model = {
    .name = "model",
    .summary = "describe and export trained models and nets",
    .usage = "model COMMAND ...",
    .commands = commands,
};
