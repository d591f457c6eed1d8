/* Rows of files of the public interface: a description, and predictions; contract in muster/muster.h.
 *
 * Files are read as training read its own: the options of the checkpoint choose the format's details, and
 * rows of another origin are refused, as in `muster predict`. Threads take batches, score them, and store the
 * results at the positions of their rows, in blocks: the number of rows of a text is known at its end. */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "api/api_model_impl.h"
#include "base/alloc.h"
#include "base/float_mode.h"
#include "base/log.h"
#include "base/team.h"
#include "data/feed.h"
#include "data/origin.h"
#include "tensor/dnnl_ops.h"

#define BATCH_ROWS 1024
#define BLOCK_ROWS 65536

struct muster_predictions {
    uint64_t n_rows;
    void *values;
    float *labels; /* or NULL */
};

void muster_predictions_free(muster_predictions *self)
{
    if (self == NULL)
        return;
    mst_free(self->values);
    mst_free(self->labels);
    mst_free(self);
}

uint64_t muster_predictions_rows(const muster_predictions *self)
{
    return self->n_rows;
}

const void *muster_predictions_values(const muster_predictions *self)
{
    return self->values;
}

const float *muster_predictions_labels(const muster_predictions *self)
{
    return self->labels;
}

/* ---- description ---- */

json_t *mst_api_field_names(const json_t *origin)
{
    uint32_t n = origin != NULL ? mst_origin_named_fields(origin) : 0;
    json_t *names = n > 0 ? json_array() : NULL;
    char name[256];
    for (uint32_t f = 0; f < n; f++) {
        mst_origin_field_name(origin, f, name, sizeof name);
        json_array_append_new(names, json_string(name));
    }
    return names;
}

static json_t *files_describe(const mst_dataset *d)
{
    const mst_data_info *i = &d->info;
    float low = i->scanned ? i->min_label : i->first_min_label,
          high = i->scanned ? i->max_label : i->first_max_label;
    uint32_t n_classes = d->n_class_names > 0             ? d->n_class_names
                         : high >= 1.0f && high < 0x1p24f ? (uint32_t)high + 1
                                                          : 2;
    json_t *names = json_array(), *out;
    for (uint32_t c = 0; c < d->n_class_names; c++)
        json_array_append_new(names, json_string(d->class_names[c]));
    out = json_pack("{s:s, s:I, s:I, s:o}", "format", d->kind->name, "rows", (json_int_t)i->n_rows, "classes",
                    (json_int_t)n_classes, "labels",
                    mst_origin_labels(names, n_classes, d->labels_from, low < 0.0f));
    json_decref(names);
    json_t *fields = mst_api_field_names(d->origin);
    if (fields != NULL)
        json_object_set_new(out, "field_names", fields);
    return out;
}

muster_status muster_options_describe(muster_options *options, const char **text)
{
    mst_settings *s = &options->settings;
    mst_data_options data = s->data;
    mst_dataset *dataset = NULL;
    data.set = MST_SET_TRAINING;
    data.min_count = 0; /* a training counts categories; classes and columns do not depend on them */
    mst_status st = s->files.n > 0 ? mst_dataset_open(&s->files, &data, &dataset)
                                   : mst_fail(MST_EUSAGE, "the options name no files");
    if (st != MST_OK)
        return (muster_status)st;
    json_t *json = files_describe(dataset);
    mst_dataset_destroy(dataset);
    char *made = json != NULL ? json_dumps(json, 0) : NULL;
    json_decref(json);
    mst_free(options->text);
    options->text = made != NULL ? mst_strdup(made) : NULL;
    free(made); /* jansson's allocation */
    if (options->text == NULL)
        return (muster_status)mst_fail_memory();
    *text = options->text;
    return MUSTER_OK;
}

/* ---- predictions ---- */

typedef struct files_lane {
    void *scratch;
    float *scores;
} files_lane;

/* Results of BLOCK_ROWS rows. */
typedef struct files_block {
    char *values;
    float *labels;
} files_block;

typedef struct files_task {
    const muster_model *model;
    muster_output what;
    bool with_labels;
    size_t width; /* bytes of a row's results */
    mst_feed *feed;
    files_lane *lanes;
    unsigned n_lanes;
    mst_team *team;
    pthread_mutex_t claiming; /* one claim at a time: the rows of a claim then follow each other */
    pthread_mutex_t mutex;    /* guards the rest */
    files_block *blocks;
    size_t n_blocks, capacity;
    uint64_t n_rows;
    mst_error error; /* the first */
    bool failed;
} files_task;

/* The block of a row, made if it is the first there; valid until the end. */
static mst_status files_block_of(files_task *t, uint64_t row, files_block *out)
{
    size_t b = (size_t)(row / BLOCK_ROWS);
    mst_status st = MST_OK;
    pthread_mutex_lock(&t->mutex);
    if (!mst_grow(&t->blocks, &t->capacity, b + 1, sizeof *t->blocks))
        st = mst_fail_memory();
    for (; st == MST_OK && t->n_blocks <= b; t->n_blocks++)
        t->blocks[t->n_blocks] = (files_block){0};
    if (st == MST_OK && t->blocks[b].values == NULL) {
        files_block *block = &t->blocks[b];
        block->values = mst_alloc(BLOCK_ROWS * t->width);
        block->labels = t->with_labels ? mst_alloc(BLOCK_ROWS * sizeof(float)) : NULL;
        if (block->values == NULL || (t->with_labels && block->labels == NULL))
            st = mst_fail_memory();
    }
    if (st == MST_OK)
        *out = t->blocks[b];
    pthread_mutex_unlock(&t->mutex);
    return st;
}

static mst_status files_batch(files_task *t, files_lane *l, const mst_batch *batch, uint64_t position)
{
    const mst_model *model = t->model->start.assembly.model;
    TRY(mst_model_score(model, l->scratch, batch, &t->model->scorers.weights, l->scores));
    for (uint32_t from = 0, n; from < batch->n_rows; from += n) {
        uint64_t row = position + from, at = row % BLOCK_ROWS;
        files_block block;
        n = batch->n_rows - from;
        n = n < BLOCK_ROWS - at ? n : (uint32_t)(BLOCK_ROWS - at);
        TRY(files_block_of(t, row, &block));
        TRY(mst_api_store(t->model, l->scores + (size_t)from * model->n_scores, t->what, n, row + 1,
                          block.values + at * t->width));
        for (uint32_t i = 0; block.labels != NULL && i < n; i++)
            block.labels[at + i] = batch->rows[from + i].label;
    }
    return MST_OK;
}

static void files_thread(void *arg, unsigned lane)
{
    files_task *t = arg;
    mst_batch batch = {.n_rows = 1};
    uint64_t position;
    mst_status st = MST_OK;
    bool failed = false;
    while (st == MST_OK && batch.n_rows > 0 && !failed) {
        pthread_mutex_lock(&t->claiming);
        st = mst_feed_claim(t->feed, lane, BATCH_ROWS, &batch, &position);
        pthread_mutex_unlock(&t->claiming);
        if (st == MST_OK)
            st = mst_feed_fill(t->feed, lane, 0, batch.n_rows);
        if (st == MST_OK && batch.n_rows > 0)
            st = files_batch(t, &t->lanes[lane], &batch, position);
        pthread_mutex_lock(&t->mutex);
        if (st == MST_OK && position + batch.n_rows > t->n_rows)
            t->n_rows = position + batch.n_rows;
        if (st != MST_OK && !t->failed) {
            t->failed = true;
            mst_error_save(&t->error, st);
        }
        failed = t->failed;
        pthread_mutex_unlock(&t->mutex);
    }
}

/* Opens the files as the model's training data was read. `data` is the group's. */
static mst_status files_open(const muster_model *self, const mst_text_list *files, bool with_labels,
                             mst_option_group *group, mst_data_options *data, mst_dataset **out)
{
    const mst_assembly *a = &self->start.assembly;
    const json_t *reading = json_object_get(json_object_get(self->start.state, "extra"), "data");
    TRY(mst_options_init(group, 1));
    TRY(mst_options_adopt_known(group, reading));
    data->features = self->augment.any ? 0 : (int64_t)a->model->shape.n_features;
    data->set = MST_SET_TEST;
    data->any_key = true; /* the feed drops others */
    data->unlabelled = !with_labels;
    TRY(mst_dataset_open(files, data, out));
    TRY(mst_origin_check(mst_origin_in(reading), "the model", (*out)->origin, (*out)->name));
    return mst_assembly_check_rows(a, &self->augment, *out);
}

static mst_status files_prepare(files_task *t, mst_dataset *dataset, unsigned n_threads)
{
    const muster_model *self = t->model;
    const mst_model *model = self->start.assembly.model;
    t->n_lanes = mst_model_threads(model) ? 1 : n_threads;
    mst_feed_options feed = {
        .prefetch_threads = n_threads,
        .n_lanes = t->n_lanes,
        .max_take = BATCH_ROWS,
        .features = model->shape.n_features,
        .fields = model->shape.n_fields,
        .drop_unseen = true,
        .any_keys = mst_model_any_keys(model, &self->start.assembly.params),
        .classes = t->with_labels ? model->shape.n_classes : 0,
        .augment = self->augment.any ? &self->augment : NULL,
    };
    t->lanes = mst_calloc(t->n_lanes, sizeof *t->lanes);
    for (unsigned i = 0; i < t->n_lanes; i++) {
        if (t->lanes == NULL)
            return mst_fail_memory();
        t->lanes[i].scores = mst_calloc((size_t)BATCH_ROWS * model->n_scores, sizeof(float));
        if (t->lanes[i].scores == NULL)
            return mst_fail_memory();
        TRY(mst_model_scratch_new(model, BATCH_ROWS, n_threads / t->n_lanes, false, &t->lanes[i].scratch));
    }
    TRY(mst_team_new(t->n_lanes, &t->team));
    TRY(mst_feed_new(dataset, &feed, &t->feed));
    return mst_feed_start(t->feed, 0, 0);
}

/* Joins the blocks, which are freed one by one. */
static mst_status files_join(files_task *t, muster_predictions *out)
{
    out->n_rows = t->n_rows;
    out->values = mst_alloc(t->n_rows * t->width + 1);
    out->labels = t->with_labels ? mst_alloc(t->n_rows * sizeof(float) + 1) : NULL;
    if (out->values == NULL || (t->with_labels && out->labels == NULL))
        return mst_fail_memory();
    for (uint64_t b = 0, first = 0; first < t->n_rows; b++, first += BLOCK_ROWS) {
        uint64_t left = t->n_rows - first, n = left < BLOCK_ROWS ? left : BLOCK_ROWS;
        files_block *block = &t->blocks[b];
        memcpy((char *)out->values + first * t->width, block->values, n * t->width);
        if (t->with_labels)
            memcpy(out->labels + first, block->labels, n * sizeof(float));
        mst_free(block->values);
        mst_free(block->labels);
        *block = (files_block){0};
    }
    return MST_OK;
}

static void files_task_fini(files_task *t)
{
    mst_feed_destroy(t->feed);
    mst_team_destroy(t->team);
    for (unsigned i = 0; t->lanes != NULL && i < t->n_lanes; i++) {
        mst_model_scratch_free(t->model->start.assembly.model, t->lanes[i].scratch);
        mst_free(t->lanes[i].scores);
    }
    mst_free(t->lanes);
    for (size_t b = 0; b < t->n_blocks; b++) {
        mst_free(t->blocks[b].values);
        mst_free(t->blocks[b].labels);
    }
    mst_free(t->blocks);
    pthread_mutex_destroy(&t->mutex);
    pthread_mutex_destroy(&t->claiming);
}

static mst_status files_predict(const muster_model *self, const mst_text_list *files, muster_output what,
                                bool with_labels, unsigned n_threads, muster_predictions *out)
{
    mst_data_options data = {0};
    mst_option_group group = {.title = "data", .table = mst_data_option_table, .base = &data};
    mst_dataset *dataset = NULL;
    files_task t = {.model = self, .what = what, .with_labels = with_labels};
    mst_status st;
    pthread_mutex_init(&t.claiming, NULL);
    pthread_mutex_init(&t.mutex, NULL);
    t.width = mst_api_row_bytes(self, what);
    TRY_OUT(st, files_open(self, files, with_labels, &group, &data, &dataset));
    TRY_OUT(st, files_prepare(&t, dataset, n_threads));
    mst_team_run(t.team, files_thread, &t);
    if (t.failed)
        TRY_OUT(st, mst_error_restore(&t.error));
    TRY_OUT(st, mst_params_kept(&self->start.assembly.params, dataset));
    uint64_t unseen = mst_feed_unseen(t.feed);
    if (unseen > 0)
        mst_warn("%s: %" PRIu64 " of %" PRIu64
                 " rows have features that the model does not have; they count as 0",
                 dataset->name, unseen, t.n_rows);
    st = files_join(&t, out);
out:
    files_task_fini(&t);
    mst_dataset_destroy(dataset);
    mst_options_fini(&group, 1);
    return st;
}

muster_status muster_model_predict_files(const muster_model *self, const char *const *files, size_t n_files,
                                         muster_output what, int with_labels, uint32_t n_threads,
                                         muster_predictions **out)
{
    if ((unsigned)what > MUSTER_MARGINS)
        return muster_fail(MUSTER_EUSAGE, "%d is not a kind of prediction", (int)what);
    if (n_files == 0)
        return muster_fail(MUSTER_EUSAGE, "there are no files to predict");
    muster_predictions *made = mst_zalloc(sizeof *made);
    if (made == NULL)
        return (muster_status)mst_fail_memory();
    mst_text_list list = {.items = (char **)files, .n = n_files}; /* not changed */
    mst_float_mode mode = mst_float_flush();                      /* for the threads that are made here */
    mst_status st = files_predict(self, &list, what, with_labels != 0, mst_api_threads(n_threads), made);
    mst_float_mode_set(mode);
    mst_dnnl_restore_mode();
    if (st != MST_OK) {
        muster_predictions_free(made);
        return (muster_status)st;
    }
    *out = made;
    return MUSTER_OK;
}
