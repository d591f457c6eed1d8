/* Training through the trainer's interface, for tests: options by name, a callback that records its events
 * and can stop, data files in a temporary folder. */
#ifndef MST_TESTS_TRIAL_H
#define MST_TESTS_TRIAL_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "data/gen.h"
#include "data/write.h"
#include "train/training.h"

#define TRIAL_EVALS 256

typedef struct trial_eval {
    uint64_t step, rows;
    char set[8];
    mst_result result;
} trial_eval;

typedef struct trial {
    mst_train_options train;
    mst_model_options model;
    mst_optim_options optim;
    mst_strategy_options strategy, resolved;
    mst_status resolve_status;
    mst_data_options data;
    mst_option_group groups[5];
    mst_text_list files;
    json_t *options;
    mst_training *training;
    mst_train_summary summary;
    atomic_bool stop;
    uint64_t stop_at; /* asks to stop when the run has got to this step; 0: never */
    trial_eval evals[TRIAL_EVALS];
    size_t n_evals, n_saved, n_progress;
} trial;

static char trial_root[64];

/* A path in the temporary folder; good for eight calls. */
static inline char *trial_path(const char *name)
{
    static char paths[8][256];
    static unsigned turn;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", trial_root, name);
    return path;
}

static inline int trial_make_root(void **state)
{
    (void)state;
    strcpy(trial_root, "/tmp/muster-test-XXXXXX");
    return mkdtemp(trial_root) != NULL ? 0 : -1;
}

static inline int trial_remove_root(void **state)
{
    (void)state;
    return mst_remove_tree(trial_root) == MST_OK ? 0 : -1;
}

/* An mst_chunk_fn: rows to a mst_row_writer. */
static inline mst_status trial_add(void *writer, uint64_t first_row, mst_chunk *chunk)
{
    (void)first_row;
    return mst_row_writer_add(writer, chunk);
}

/* Click-like rows to a file whose suffix names the format. */
static inline void trial_clicks(const char *name, uint64_t rows, uint64_t first_row, uint64_t features)
{
    const mst_row_writer_ops *ops = NULL;
    mst_row_writer *writer = NULL;
    mst_gen_criteo_options gen = {
        .rows = rows, .first_row = first_row, .features = features, .seed = 3, .n_threads = 1};
    mst_data_info info = {.n_features = features};
    char *path = trial_path(name);
    assert_int_equal(mst_row_writer_find(NULL, path, &ops), MST_OK);
    assert_int_equal(mst_row_writer_new(ops, path, NULL, &writer), MST_OK);
    assert_int_equal(mst_gen_criteo(&gen, trial_add, writer), MST_OK);
    assert_int_equal(mst_row_writer_commit(writer, &info), MST_OK);
    mst_row_writer_destroy(writer);
}

static inline void trial_write(const char *name, const char *text)
{
    FILE *file = fopen(trial_path(name), "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static inline void trial_set(trial *t, const char *name, const char *value)
{
    assert_int_equal(mst_options_set(t->groups, 5, name, value), MST_OK);
}

static inline void trial_int(trial *t, const char *name, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    trial_set(t, name, text);
}

/* Names of files are in the temporary folder. run NULL: one of its own, removed before the run. */
static inline void trial_init(trial *t, const char *file, const char *run)
{
    memset(t, 0, sizeof *t);
    t->groups[0] =
        (mst_option_group){.title = "training", .table = mst_train_option_table, .base = &t->train};
    t->groups[1] = (mst_option_group){.title = "model", .table = mst_model_option_table, .base = &t->model};
    t->groups[2] =
        (mst_option_group){.title = "optimizer", .table = mst_optim_option_table, .base = &t->optim};
    t->groups[3] =
        (mst_option_group){.title = "strategy", .table = mst_strategy_option_table, .base = &t->strategy};
    t->groups[4] = (mst_option_group){.title = "data", .table = mst_data_option_table, .base = &t->data};
    assert_int_equal(mst_options_init(t->groups, 5), MST_OK);
    assert_int_equal(mst_text_list_add(&t->files, trial_path(file)), MST_OK);
    trial_set(t, "run", trial_path(run != NULL ? run : "run"));
    if (run == NULL)
        assert_int_equal(mst_remove_tree(t->train.run), MST_OK);
}

static inline void trial_fini(trial *t)
{
    mst_training_destroy(t->training);
    json_decref(t->options);
    mst_text_list_fini(&t->files);
    mst_options_fini(t->groups, 5);
}

static inline void trial_on_progress(void *arg, const mst_train_status *status)
{
    trial *t = arg;
    t->n_progress++;
    if (t->stop_at != 0 && status->step >= t->stop_at)
        atomic_store(&t->stop, true);
}

static inline void trial_on_evaluated(void *arg, const mst_train_status *status, const char *set,
                                      const mst_result *result)
{
    trial *t = arg;
    assert_true(t->n_evals < TRIAL_EVALS);
    trial_eval *e = &t->evals[t->n_evals++];
    *e = (trial_eval){.step = status->step, .rows = status->rows, .result = *result};
    snprintf(e->set, sizeof e->set, "%s", set);
}

static inline void trial_on_saved(void *arg, const mst_train_status *status, const char *path)
{
    trial *t = arg;
    (void)status;
    assert_string_equal(path, t->train.run);
    t->n_saved++;
}

static inline mst_train_config trial_config(trial *t)
{
    t->resolved = t->strategy;
    t->resolve_status = mst_strategy_resolve(&t->resolved);
    return (mst_train_config){
        .files = &t->files,
        .train = &t->train,
        .data = &t->data,
        .model = &t->model,
        .optim = &t->optim,
        .strategy = &t->resolved,
        .options = t->options,
        .data_options = json_object_get(t->options, "data"),
        .epochs_given = mst_options_is_set(t->groups, 5, "epochs"),
        .stop = &t->stop,
    };
}

static inline mst_status trial_open(trial *t)
{
    t->options = mst_options_json(t->groups, 5);
    assert_non_null(t->options);
    mst_train_config config = trial_config(t);
    return t->resolve_status == MST_OK ? mst_training_new(&config, &t->training) : t->resolve_status;
}

static inline mst_status trial_run(trial *t)
{
    mst_train_callbacks observer = {
        .arg = t, .progress = trial_on_progress, .evaluated = trial_on_evaluated, .saved = trial_on_saved};
    mst_status st = trial_open(t);
    return st == MST_OK ? mst_training_run(t->training, &observer, &t->summary) : st;
}

/* Runs; says why when that fails. */
static inline void trial_must_run(trial *t)
{
    mst_status st = trial_run(t);
    if (st != MST_OK)
        print_error("%s\n", mst_error_text());
    assert_int_equal(st, MST_OK);
}

static inline void trial_refused(trial *t, mst_status code, const char *sentence)
{
    assert_int_equal(trial_run(t), code);
    if (strstr(mst_error_text(), sentence) == NULL)
        print_error("\"%s\" lacks \"%s\"\n", mst_error_text(), sentence);
    assert_non_null(strstr(mst_error_text(), sentence));
}

static inline const mst_params *trial_params(const trial *t)
{
    return &t->training->assembly.params;
}

/* The largest difference between the weights of two stores; NAN if one of them is NAN. */
static inline double params_distance(const mst_params *x, const mst_params *y)
{
    double most = 0.0;
    assert_int_equal(x->size, y->size);
    for (uint64_t i = 0; i < x->size; i++) {
        float v, w;
        mst_params_read(x, 0, i, 1, &v);
        mst_params_read(y, 0, i, 1, &w);
        double d = fabs((double)v - (double)w);
        most = d > most || isnan(d) ? d : most;
    }
    return most;
}

/* Weights and optimizer state are the same bits. */
static inline bool params_same_bits(const mst_params *x, const mst_params *y)
{
    bool same = x->size == y->size && x->n_slots == y->n_slots;
    float *v = malloc(x->size * sizeof *v), *w = malloc(x->size * sizeof *w);
    for (uint32_t s = 0; same && s <= x->n_slots; s++) {
        mst_params_read(x, s, 0, x->size, v);
        mst_params_read(y, s, 0, y->size, w);
        same = memcmp(v, w, x->size * sizeof(float)) == 0;
    }
    free(v);
    free(w);
    return same;
}

static inline double trial_distance(const trial *a, const trial *b)
{
    return params_distance(trial_params(a), trial_params(b));
}

static inline void trial_same_bits(const trial *a, const trial *b)
{
    assert_true(params_same_bits(trial_params(a), trial_params(b)));
}

#endif
