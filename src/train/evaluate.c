/* Evaluation; contract in evaluate.h. Rows go through a feed in file order. Each thread scores batches of its
 * own and adds to shared counters, whose sums do not depend on the order. Threads claim batches one at a
 * time, so that the batches have the same rows for any number of threads: a loss is rounded per batch. */
#include "train/evaluate.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/option.h"
#include "base/strings.h"
#include "base/team.h"
#include "base/turn.h"
#include "data/origin.h"
#include "train/assembly.h"

typedef struct scorer {
    void *scratch;
    float *scores;
    mst_row *rows; /* translated; allocated when first needed */
    uint32_t *keys;
    size_t key_capacity;
    uint64_t from; /* of its last batch */
    mst_status status;
    mst_error error;
} scorer;

/* A batch that is scored but not reported yet: rows before it are still being scored. */
typedef struct scored {
    uint64_t from, rows, correct;
} scored;

struct mst_evaluator {
    const mst_model *model;
    const mst_params *params; /* or NULL */
    const mst_dataset *dataset;
    mst_evaluator_options options;
    mst_feed *feed;
    mst_team *team;
    scorer *scorers;
    mst_eval_counters counters;
    mst_weights weights; /* of the store */
    mst_turn claiming;
    pthread_mutex_t reporting; /* reporting: visit, progress, and their counts */
    atomic_bool failed;

    /* The run under way: scores with these weights, or passes the rows to visit. */
    mst_weights on;
    mst_row_translation *translate;
    const void *translate_arg;
    mst_batch_visit *visit;
    void *visit_arg;
    mst_evaluation_progress *progress;
    void *progress_arg;
    uint64_t n_claimed;             /* rows; of the thread whose turn it is to claim */
    uint64_t n_reported, n_correct; /* rows, and those classified correctly */
    scored *waiting;                /* in any order */
    size_t n_waiting, waiting_capacity;
};

#define NAMES_SHOWN 60 /* bytes */

/* The fields of the data as a sentence for a FIELD that none of them is called. */
static mst_status evaluator_no_field(const char *text, const json_t *origin, uint32_t n_named)
{
    char name[256];
    mst_string names = {0};
    if (n_named == 0)
        return mst_fail(MST_EUSAGE, "--auc-by %s: the fields of the data have no names; give a number from 0",
                        text);
    for (uint32_t i = 0; i < n_named && names.size < NAMES_SHOWN; i++) {
        mst_origin_field_name(origin, i, name, sizeof name);
        mst_string_format(&names, "%s%s", i > 0 ? ", " : "", name);
        if (names.size >= NAMES_SHOWN && i + 1 < n_named)
            mst_string_add(&names, ", ...");
    }
    mst_status st = mst_fail(MST_EUSAGE, "--auc-by %s: the data has no such field; its fields are %s", text,
                             names.text != NULL ? names.text : "");
    mst_string_fini(&names);
    return st;
}

/* The field of --auc-by: a number, or else the first field with that name. */
static mst_status evaluator_find_field(const char *text, const mst_dataset *dataset, int64_t *out)
{
    uint32_t n_fields = dataset->info.n_fields, n_named = mst_origin_named_fields(dataset->origin);
    char name[256];
    *out = -1;
    if (text == NULL || strcmp(text, "-1") == 0)
        return MST_OK;
    if (mst_parse_int(text, out)) {
        if (*out < 0 || *out >= MST_FIELDS_MAX)
            return mst_fail(MST_EUSAGE, "--auc-by %s: the number of a field is at least 0 and below %u", text,
                            MST_FIELDS_MAX);
        if (n_fields > 0 && *out >= n_fields)
            return mst_fail(MST_EUSAGE, "--auc-by %s: the data has %u fields, numbered from 0", text,
                            n_fields);
        return MST_OK;
    }
    for (uint32_t i = 0; i < n_named; i++) {
        mst_origin_field_name(dataset->origin, i, name, sizeof name);
        if (strcmp(name, text) == 0) {
            *out = i;
            return MST_OK;
        }
    }
    return evaluator_no_field(text, dataset->origin, n_named);
}

mst_status mst_evaluator_new(const mst_model *model, const mst_params *params, mst_dataset *dataset,
                             const mst_evaluator_options *options, mst_evaluator **out)
{
    mst_status st;
    int64_t auc_by;
    TRY(evaluator_find_field(options->auc_by, dataset, &auc_by));
    if (auc_by >= 0 && model->n_scores != 1)
        return mst_fail(MST_EUSAGE, "--auc-by needs a model with one score per row, such as --model logreg");
    unsigned n = mst_model_threads(model) ? 1 : options->n_threads, inner = options->n_threads / n;
    mst_evaluator *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->model = model;
    self->params = params;
    self->dataset = dataset;
    self->options = *options;
    self->options.n_threads = n;
    mst_turn_init(&self->claiming);
    pthread_mutex_init(&self->reporting, NULL);
    if (params != NULL)
        mst_model_weights(model, params, &self->weights);
    mst_feed_options feed = {
        .held_out = options->held_out,
        .valid_seed = options->valid_seed,
        .keep = options->keep,
        .first_rows = options->first_rows,
        .prefetch_threads = options->n_threads,
        .n_lanes = n,
        .max_take = options->batch,
        .features = model->shape.n_features,
        .fields = model->shape.n_fields,
        .drop_unseen = !options->strict_features,
        .any_keys = params != NULL && mst_model_any_keys(model, params),
        .classes = model->shape.n_classes,
        .stop = options->stop,
        .augment = options->augment,
    };
    mst_eval_counters_init(&self->counters, model, auc_by);
    TRY_OUT(st, mst_team_new(n, &self->team));
    st = mst_fail_memory();
    self->scorers = mst_calloc(n, sizeof *self->scorers);
    if (self->scorers == NULL)
        goto out;
    for (unsigned t = 0; t < n; t++) {
        scorer *s = &self->scorers[t];
        s->scores = mst_calloc((size_t)options->batch * model->n_scores, sizeof *s->scores);
        if (s->scores == NULL)
            goto out;
    }
    for (unsigned t = 0; t < n; t++)
        TRY_OUT(st, mst_model_scratch_new(model, options->batch, inner, false, &self->scorers[t].scratch));
    TRY_OUT(st, mst_feed_new(dataset, &feed, &self->feed));
    *out = self;
    self = NULL;
out:
    mst_evaluator_destroy(self);
    return st;
}

void mst_evaluator_destroy(mst_evaluator *self)
{
    if (self == NULL)
        return;
    mst_feed_destroy(self->feed);
    mst_team_destroy(self->team);
    for (unsigned t = 0; self->scorers != NULL && t < self->options.n_threads; t++) {
        mst_model_scratch_free(self->model, self->scorers[t].scratch);
        mst_free(self->scorers[t].scores);
        mst_free(self->scorers[t].rows);
        mst_free(self->scorers[t].keys);
    }
    mst_free(self->scorers);
    mst_free(self->waiting);
    mst_eval_counters_fini(&self->counters);
    mst_turn_fini(&self->claiming);
    pthread_mutex_destroy(&self->reporting);
    mst_free(self);
}

/* The batch with translated keys, in rows of the thread. */
static mst_status evaluator_translate(mst_evaluator *self, scorer *s, mst_batch *batch)
{
    size_t n_keys = 0;
    for (uint32_t i = 0; i < batch->n_rows; i++)
        n_keys += batch->rows[i].n_keys;
    if (s->rows == NULL)
        s->rows = mst_calloc(self->options.batch, sizeof *s->rows);
    if (s->rows == NULL || !mst_grow(&s->keys, &s->key_capacity, n_keys, sizeof *s->keys))
        return mst_fail_memory();
    self->translate(self->translate_arg, batch, s->rows, s->keys);
    batch->rows = s->rows;
    return MST_OK;
}

/* Reports all rows up to the first one that is not scored. */
static mst_status evaluator_report(mst_evaluator *self, uint64_t from, uint64_t rows, uint64_t correct)
{
    if (!mst_grow(&self->waiting, &self->waiting_capacity, self->n_waiting + 1, sizeof *self->waiting))
        return mst_fail_memory();
    self->waiting[self->n_waiting++] = (scored){from, rows, correct};
    for (size_t i = 0; i < self->n_waiting;) {
        scored next = self->waiting[i];
        if (next.from != self->n_reported) {
            i++;
            continue;
        }
        self->waiting[i] = self->waiting[--self->n_waiting];
        self->n_reported += next.rows;
        self->n_correct += next.correct;
        self->progress(self->progress_arg, self->n_reported, self->n_correct);
        i = 0;
    }
    return MST_OK;
}

/* Takes the next batch and scores it or passes it to visit; *more is false at the end of the rows. */
static mst_status evaluator_next_batch(mst_evaluator *self, unsigned t, bool *more)
{
    scorer *s = &self->scorers[t];
    mst_batch batch;
    uint64_t position, every = self->options.split_every;
    mst_turn_begin(&self->claiming);
    uint64_t from = s->from = self->n_claimed, left = every > 0 ? every - from % every : self->options.batch;
    uint32_t want = left < self->options.batch ? (uint32_t)left : self->options.batch;
    mst_status st = mst_feed_claim(self->feed, t, want, &batch, &position);
    self->n_claimed += st == MST_OK ? batch.n_rows : 0;
    mst_turn_end(&self->claiming);
    TRY(st);
    *more = batch.n_rows > 0;
    if (!*more)
        return MST_OK;
    TRY(mst_feed_fill(self->feed, t, 0, batch.n_rows));
    if (self->visit != NULL) {
        pthread_mutex_lock(&self->reporting);
        self->visit(self->visit_arg, &batch);
        self->n_reported += batch.n_rows;
        pthread_mutex_unlock(&self->reporting);
        return MST_OK;
    }
    mst_batch keyed = batch;
    if (self->translate != NULL)
        TRY(evaluator_translate(self, s, &batch));
    TRY(mst_model_score(self->model, s->scratch, &batch, &self->on, s->scores));
    if (self->options.finite_scores)
        TRY(mst_scores_check(s->scores, self->model->n_scores, batch.n_rows, from + 1));
    uint64_t correct = mst_eval_counters_add(&self->counters, self->model, &batch, &keyed, s->scores);
    if (self->progress != NULL) {
        pthread_mutex_lock(&self->reporting);
        st = evaluator_report(self, from, batch.n_rows, correct);
        pthread_mutex_unlock(&self->reporting);
    }
    return st;
}

static void evaluator_thread(void *arg, unsigned t)
{
    mst_evaluator *self = arg;
    scorer *s = &self->scorers[t];
    bool more = true;
    s->status = MST_OK;
    while (more && s->status == MST_OK && !atomic_load(&self->failed))
        s->status = evaluator_next_batch(self, t, &more);
    if (s->status != MST_OK) {
        mst_error_save(&s->error, s->status);
        atomic_store(&self->failed, true);
    }
}

/* One evaluator_pass over all rows. */
static mst_status evaluator_pass(mst_evaluator *self)
{
    atomic_store(&self->failed, false);
    self->n_claimed = self->n_waiting = 0;
    TRY(mst_feed_start(self->feed, 0, 0));
    mst_team_run(self->team, evaluator_thread, self);
    const scorer *first = NULL; /* the error of the first rows, whatever the number of threads */
    for (const scorer *s = self->scorers; s < self->scorers + self->options.n_threads; s++)
        if (s->status != MST_OK && (first == NULL || s->from < first->from))
            first = s;
    if (first != NULL)
        return mst_error_restore(&first->error);
    return self->params != NULL ? mst_params_kept(self->params, self->dataset) : MST_OK;
}

mst_status mst_evaluator_run_on(mst_evaluator *self, const mst_weights *weights,
                                mst_row_translation *translate, const void *arg, mst_result *out)
{
    uint64_t start = mst_now_ns(), unseen = mst_feed_unseen(self->feed);
    self->on = *weights;
    self->on.version = mst_weights_version(); /* they do not change in a run */
    self->translate = translate;
    self->translate_arg = arg;
    self->visit = NULL;
    self->n_reported = self->n_correct = 0;
    mst_eval_counters_clear(&self->counters);
    TRY(evaluator_pass(self));
    mst_eval_counters_result(&self->counters, out);
    out->unseen = mst_feed_unseen(self->feed) - unseen;
    out->skipped = mst_dataset_skipped(self->dataset);
    out->seconds = mst_seconds_since(start);
    return MST_OK;
}

void mst_evaluator_on_progress(mst_evaluator *self, mst_evaluation_progress *progress, void *arg)
{
    self->progress = progress;
    self->progress_arg = arg;
}

mst_status mst_evaluator_run(mst_evaluator *self, mst_result *out)
{
    return mst_evaluator_run_on(self, &self->weights, NULL, NULL, out);
}

mst_status mst_evaluator_visit(mst_evaluator *self, mst_batch_visit *visit, void *arg, uint64_t *n_rows)
{
    self->visit = visit;
    self->visit_arg = arg;
    self->n_reported = 0;
    TRY(evaluator_pass(self));
    *n_rows = self->n_reported;
    return MST_OK;
}

uint32_t mst_evaluator_dense(const mst_evaluator *self)
{
    uint64_t features = self->model->shape.n_features;
    uint32_t dense = self->dataset->info.n_dense;
    return dense < features ? dense : (uint32_t)features;
}

const char *mst_evaluator_name(const mst_evaluator *self)
{
    return self->dataset->name;
}
