/* `muster predict`: one line per row, in input order: probabilities, classes or raw scores. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/signals.h"
#include "base/team.h"
#include "base/turn.h"
#include "cli/cmd_apply.h"
#include "data/feed.h"
#include "data/images.h"
#include "data/write.h"

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

/* ---- lines ---- */

/* The lines of a batch. */
typedef struct lines {
    char *text;
    size_t n, capacity;
} lines;

#define NUMBER_TEXT (MST_FLOAT_TEXT + 1) /* with the character behind it */

static mst_status lines_room(lines *self, size_t n)
{
    return mst_grow(&self->text, &self->capacity, self->n + n, 1) ? MST_OK : mst_fail_memory();
}

static mst_status lines_add(lines *self, const char *text, char behind)
{
    size_t n = strlen(text);
    TRY(lines_room(self, n + 1));
    memcpy(self->text + self->n, text, n);
    self->n += n + 1;
    self->text[self->n - 1] = behind;
    return MST_OK;
}

/* Room for NUMBER_TEXT bytes is there. */
static void lines_add_number(lines *self, double value, char behind)
{
    self->n += mst_number_text9(value, self->text + self->n);
    self->text[self->n++] = behind;
}

/* data: the names of classes, and the number of the first. */
static mst_status predict_add_row(lines *out, int what, const mst_data_options *data, float *y, uint32_t n)
{
    uint32_t class = mst_scores_class(y, n);
    if (what == WHAT_NAME)
        return lines_add(out, data->image_classes.items[class], '\n');
    TRY(lines_room(out, (size_t)n * NUMBER_TEXT));
    if (what == WHAT_CLASS) {
        out->n += (size_t)snprintf(out->text + out->n, NUMBER_TEXT, "%lld\n",
                                   (long long)(class + data->labels_from));
        return MST_OK;
    }
    if (what == WHAT_PROBABILITY && n > 1)
        mst_probabilities(y, n, y);
    for (uint32_t c = 0; c < n; c++)
        lines_add_number(out,
                         what == WHAT_PROBABILITY && n == 1 ? mst_probability((double)y[c]) : (double)y[c],
                         c + 1 < n ? ' ' : '\n');
    return MST_OK;
}

/* ---- threads ---- */

typedef struct lane {
    void *scratch;
    float *scores;
    lines lines;
} lane;

/* Threads claim batches in file order, score and format them side by side, and write them in the order of
 * their tickets. A batch that fails ends the output before it. */
typedef struct predictor {
    const predict_options *options;
    const mst_text_list *files; /* --names; or NULL */
    mst_out *out;
    mst_feed *feed;
    mst_team *team;
    mst_weights weights;
    unsigned n_lanes;
    lane *lanes;
    mst_turn claiming;
    pthread_mutex_t writing;
    pthread_cond_t written;     /* guards: writing */
    uint64_t n_tickets, n_rows; /* given out; of the thread whose turn it is to claim */
    uint64_t turn;              /* ticket to write; guarded by writing */
    bool ended;                 /* the batch whose turn it was failed; guarded by writing */
    mst_status status;
    mst_error error;
} predictor;

/* Takes the next rows, and the ticket of their lines. */
static mst_status predictor_claim(predictor *self, unsigned t, mst_batch *batch, uint64_t *first,
                                  uint64_t *ticket)
{
    const char *answered =
        strcmp(self->options->out, "-") == 0 ? "the predictions so far are printed" : "nothing was written";
    uint64_t position;
    bool more;
    batch->n_rows = 0;
    mst_turn_begin(&self->claiming);
    *ticket = self->n_tickets++;
    *first = self->n_rows;
    mst_status st = mst_signals_check(answered);
    if (st == MST_OK)
        st = mst_feed_claim_by(self->feed, t, (uint32_t)self->options->apply.options.batch, 1, UINT64_MAX,
                               batch, &position, &more);
    self->n_rows += st == MST_OK ? batch->n_rows : 0;
    mst_turn_end(&self->claiming);
    return st;
}

/* Fills the lane's lines. */
static mst_status predictor_format(predictor *self, unsigned t, const mst_batch *batch, uint64_t first)
{
    const mst_apply *apply = &self->options->apply;
    const mst_model *model = apply->assembly.model;
    lane *l = &self->lanes[t];
    l->lines.n = 0;
    TRY(mst_feed_fill(self->feed, t, 0, batch->n_rows));
    TRY(mst_model_score(model, l->scratch, batch, &self->weights, l->scores));
    TRY(mst_scores_check(l->scores, model->n_scores, batch->n_rows, first + 1));
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        if (self->files != NULL)
            TRY(lines_add(&l->lines, self->files->items[first + i], '\t'));
        TRY(predict_add_row(&l->lines, self->options->what, &apply->data,
                            l->scores + (size_t)i * model->n_scores, model->n_scores));
    }
    return MST_OK;
}

/* Writes the lane's lines when it is their turn; st: whether they are right. False: the output has ended. */
static bool predictor_write(predictor *self, const lane *l, uint64_t ticket, mst_status st)
{
    pthread_mutex_lock(&self->writing);
    while (self->turn != ticket && !self->ended)
        pthread_cond_wait(&self->written, &self->writing);
    if (!self->ended) {
        if (st == MST_OK)
            st = mst_out_write(self->out, l->lines.text, l->lines.n);
        if (st == MST_OK && self->options->apply.dataset->live)
            st = mst_out_flush(self->out);
        self->turn++;
        self->ended = st != MST_OK;
        self->status = st;
        if (st != MST_OK)
            mst_error_save(&self->error, st);
        pthread_cond_broadcast(&self->written);
    }
    bool ended = self->ended;
    pthread_mutex_unlock(&self->writing);
    return !ended;
}

static void predictor_thread(void *arg, unsigned t)
{
    predictor *self = arg;
    mst_batch batch;
    uint64_t first, ticket;
    mst_status st;
    do {
        st = predictor_claim(self, t, &batch, &first, &ticket);
        self->lanes[t].lines.n = 0;
        if (st == MST_OK && batch.n_rows > 0)
            st = predictor_format(self, t, &batch, first);
    } while (predictor_write(self, &self->lanes[t], ticket, st) && batch.n_rows > 0);
}

static mst_status predictor_open(predictor *self)
{
    const mst_apply *apply = &self->options->apply;
    const mst_model *model = apply->assembly.model;
    uint32_t batch_rows = (uint32_t)apply->options.batch;
    mst_feed_options feed = {
        .first_rows = (uint64_t)apply->options.rows,
        .prefetch_threads = apply->n_threads,
        .n_lanes = self->n_lanes,
        .max_take = batch_rows,
        .features = model->shape.n_features,
        .fields = model->shape.n_fields,
        .drop_unseen = !apply->use.strict_features,
        .any_keys = mst_model_any_keys(model, &apply->assembly.params),
        .stop = mst_signals_stop(),
        .augment = apply->augment.any ? &apply->augment : NULL,
    };
    self->lanes = mst_calloc(self->n_lanes, sizeof *self->lanes);
    for (unsigned t = 0; t < self->n_lanes; t++) {
        if (self->lanes == NULL)
            return mst_fail_memory();
        self->lanes[t].scores = mst_calloc((size_t)batch_rows * model->n_scores, sizeof(float));
        if (self->lanes[t].scores == NULL)
            return mst_fail_memory();
        TRY(mst_model_scratch_new(model, batch_rows, apply->n_threads / self->n_lanes, false,
                                  &self->lanes[t].scratch));
    }
    mst_model_weights(model, &apply->assembly.params, &self->weights);
    self->weights.version = mst_weights_version();
    TRY(mst_team_new(self->n_lanes, &self->team));
    TRY(mst_feed_new(apply->dataset, &feed, &self->feed));
    return mst_feed_start(self->feed, 0, 0);
}

/* *unseen: number of rows with features that the model does not have. */
static mst_status predict_rows(const predict_options *options, mst_out *out, uint64_t *n_rows,
                               uint64_t *unseen)
{
    const mst_model *model = options->apply.assembly.model;
    predictor self = {.options = options,
                      .out = out,
                      .files = options->names ? mst_images_files(options->apply.dataset) : NULL,
                      .n_lanes = mst_model_threads(model) ? 1 : options->apply.n_threads};
    mst_turn_init(&self.claiming);
    pthread_mutex_init(&self.writing, NULL);
    pthread_cond_init(&self.written, NULL);
    mst_status st = predictor_open(&self);
    if (st == MST_OK) {
        mst_team_run(self.team, predictor_thread, &self);
        st = self.status != MST_OK ? mst_error_restore(&self.error)
                                   : mst_params_kept(&options->apply.assembly.params, options->apply.dataset);
        *n_rows = self.n_rows;
        *unseen = mst_feed_unseen(self.feed);
    }
    mst_feed_destroy(self.feed);
    mst_team_destroy(self.team);
    for (unsigned t = 0; self.lanes != NULL && t < self.n_lanes; t++) {
        mst_model_scratch_free(model, self.lanes[t].scratch);
        mst_free(self.lanes[t].scores);
        mst_free(self.lanes[t].lines.text);
    }
    mst_free(self.lanes);
    pthread_cond_destroy(&self.written);
    pthread_mutex_destroy(&self.writing);
    mst_turn_fini(&self.claiming);
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
    if (apply->data.skip_bad_rows)
        TRY_OUT(st, mst_fail(MST_EUSAGE, "--skip-bad-rows: predict answers every row"));
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
    .hidden = MST_DATA_OPTION_SKIPS,
    .examples = "muster predict runs/clicks new.tsv --out predictions.txt\n"
                "muster predict runs/photos holiday.jpg --what name --names\n",
};
