/* `muster predict`: one line per row, in input order: probabilities, classes or raw scores. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/signals.h"
#include "cli/cmd_apply.h"
#include "data/feed.h"
#include "data/images.h"

enum { WHAT_PROBABILITY, WHAT_CLASS, WHAT_SCORE, WHAT_NAME };

typedef struct predict_options {
    char *out;
    int what;
    bool overwrite, names;
    mst_apply apply;
} predict_options;

#define FIELD(name) offsetof(predict_options, name)
static const mst_option predict_table[] = {
    {.name = "out",
     .type = MST_OPTION_TEXT,
     .offset = FIELD(out),
     .fallback = "-",
     .metavar = "FILE",
     .help = "Output file; \"-\": standard output. Files with the suffix .gz or .zst are compressed."},
    {.name = "overwrite",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(overwrite),
     .help = "Replace --out if it exists."},
    {.name = "what",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(what),
     .fallback = "probability",
     .choices = "probability|class|score|name",
     .help = "probability: of the positive class, or of all classes, separated by spaces; class: 0 or 1, or "
             "the number of the class as in the labels of the training data; score: margin or logits; name: "
             "name of the folder with the training images of the class."},
    {.name = "names",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(names),
     .help = "Images: start each line with the file name and a tab."},
    {.name = NULL},
};

static const mst_command_group predict_groups[] = {
    {"prediction", predict_table, 0}, MST_APPLY_GROUPS(predict_options), {.table = NULL}};

static uint32_t predict_best_of(const float *y, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t c = 1; c < n; c++)
        best = y[c] > y[best] ? c : best;
    return best;
}

/* data: the names of classes, and the number of the first. */
static mst_status predict_write_row(mst_out *out, int what, const mst_data_options *data, float *y,
                                    uint32_t n)
{
    uint32_t class = n == 1 ? y[0] > 0.0f : predict_best_of(y, n);
    if (what == WHAT_NAME)
        return mst_out_printf(out, "%s\n", data->image_classes.items[class]);
    if (what == WHAT_CLASS)
        return mst_out_printf(out, "%lld\n", (long long)(class + data->labels_from));
    if (n == 1)
        return mst_out_printf(out, "%.9g\n",
                              what == WHAT_SCORE ? (double)y[0] : mst_probability((double)y[0]));
    if (what == WHAT_PROBABILITY)
        mst_probabilities(y, n, y);
    for (uint32_t c = 0; c < n; c++)
        TRY(mst_out_printf(out, c + 1 < n ? "%.9g " : "%.9g\n", (double)y[c]));
    return MST_OK;
}

/* Scores rows in file order in one lane; other threads parse ahead. *unseen: number of rows with features
 * that the model does not have. */
static mst_status predict_rows(const predict_options *options, mst_out *out, uint64_t *n_rows,
                               uint64_t *unseen)
{
    const mst_apply *apply = &options->apply;
    const mst_model *model = apply->assembly.model;
    uint32_t batch_rows = (uint32_t)apply->options.batch;
    const mst_text_list *files = options->names ? mst_images_files(apply->dataset) : NULL;
    mst_feed *feed = NULL;
    mst_weights weights;
    mst_feed_options feed_options = {
        .first_rows = (uint64_t)apply->options.rows,
        .prefetch_threads = apply->n_threads,
        .n_lanes = 1,
        .max_take = batch_rows,
        .features = model->shape.n_features,
        .fields = model->shape.n_fields,
        .drop_unseen = !apply->options.strict_features,
        .stop = mst_signals_stop(),
        .augment = apply->augment.any ? &apply->augment : NULL,
    };
    const char *answered =
        strcmp(options->out, "-") == 0 ? "the predictions so far are printed" : "nothing was written";
    mst_status st = MST_OK;
    void *scratch = NULL;
    float *scores = mst_calloc((size_t)batch_rows * model->n_scores, sizeof *scores);
    if (scores == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    TRY_OUT(st, mst_model_scratch_new(model, batch_rows, apply->n_threads, false, &scratch));
    mst_model_weights(model, &apply->assembly.params, &weights);
    TRY_OUT(st, mst_feed_new(apply->dataset, &feed_options, &feed));
    TRY_OUT(st, mst_feed_start(feed, 0, 0));
    for (;;) {
        mst_batch batch;
        uint64_t position;
        bool more;
        TRY_OUT(st, mst_signals_check(answered));
        TRY_OUT(st, mst_feed_claim_by(feed, 0, batch_rows, 1, UINT64_MAX, &batch, &position, &more));
        TRY_OUT(st, mst_feed_fill(feed, 0, 0, batch.n_rows));
        if (batch.n_rows == 0)
            break;
        TRY_OUT(st, mst_model_score(model, scratch, &batch, &weights, scores));
        for (uint32_t i = 0; i < batch.n_rows; i++) {
            if (files != NULL)
                TRY_OUT(st, mst_out_printf(out, "%s\t", files->items[*n_rows + i]));
            TRY_OUT(st, predict_write_row(out, options->what, &apply->data,
                                          scores + (size_t)i * model->n_scores, model->n_scores));
        }
        *n_rows += batch.n_rows;
        if (apply->dataset->live)
            TRY_OUT(st, mst_out_flush(out));
    }
    *unseen = mst_feed_unseen(feed);
out:
    mst_feed_destroy(feed);
    mst_model_scratch_free(model, scratch);
    mst_free(scores);
    return st;
}

static mst_status predict_run(mst_call *call)
{
    predict_options *options = call->options;
    mst_apply *apply = &options->apply;
    mst_out *out = NULL;
    uint64_t n_rows = 0, unseen = 0;
    mst_status st;
    apply->data.unlabelled = true;
    TRY_OUT(st, mst_apply_open(apply, call));
    const uint32_t n_classes = apply->assembly.model->shape.n_classes;
    const size_t n_named = apply->data.image_classes.n;
    TRY_OUT(st, mst_cli_check_free(options->out, options->overwrite));
    if (options->names && mst_images_files(apply->dataset) == NULL)
        TRY_OUT(st,
                mst_fail(MST_EUSAGE, "--names: the rows of %s are not image files", apply->dataset->name));
    if (options->what == WHAT_NAME && n_named > 0 && n_named != n_classes)
        TRY_OUT(st, mst_fail(MST_EUSAGE, "--what name: --image-classes names %zu classes, but %s has %u",
                             n_named, apply->words->items[0], n_classes));
    if (options->what == WHAT_NAME && n_named < n_classes)
        TRY_OUT(st,
                mst_fail(MST_EUSAGE,
                         "--what name: the classes of %s have no names, as it was not trained on a folder of "
                         "images: give them with --image-classes, or --what class prints numbers",
                         apply->words->items[0]));
    TRY_OUT(st, mst_out_open(options->out, &out));
    TRY_OUT(st, predict_rows(options, out, &n_rows, &unseen));
    TRY_OUT(st, mst_out_commit(out));
    mst_cli_unseen("", unseen, n_rows);
out:
    mst_out_close(out);
    mst_apply_close(apply);
    return st;
}

const mst_command mst_cmd_predict = {
    .name = "predict",
    .summary = "apply a trained model to each row of a data set",
    .run = predict_run,
    .usage = "predict CHECKPOINT FILE... [options]",
    .details =
        "CHECKPOINT is a checkpoint or a run. Of a run, the newest checkpoint is used, or with --patience "
        "the one with the best valid loss (--last: the newest). The output has one line per row, in the "
        "order of the input. Labels are ignored and may be absent (Criteo rows of 39 columns, VW and libsvm "
        "lines that start with features, TFRecords without the label, IDX images without labels).\n"
        "FILE may also be an image or a folder of images, with or without folders of classes.\n"
        "Rows from a pipe or standard input (\"-\") are answered as they arrive.\n",
    .groups = predict_groups,
    .options_size = sizeof(predict_options),
    .examples = "muster predict runs/clicks new.tsv --out predictions.txt\n"
                "muster predict runs/photos holiday.jpg --what name --names\n",
};
