/* Evaluation with the parameter server: the figures of the chief, on pulled weights, equal those of the
 * checkpoint of the same step; --until ends a run across workers; --patience keeps the best weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "job_trial.h"
#include "train/evaluate.h"

#define N_ROWS   900
#define N_TEST   300
#define FEATURES 4000

static int make_data(void **state)
{
    if (trial_make_root(state) != 0)
        return -1;
    trial_clicks("train.cache", N_ROWS, 0, FEATURES);
    trial_clicks("test.libsvm", N_TEST, 100000, FEATURES);
    return 0;
}

static void begin(trial *t, const char *mode, int servers, int workers)
{
    job_init(t, "train.cache", NULL, servers, workers);
    trial_int(t, "features", FEATURES);
    trial_set(t, "mode", mode);
    trial_set(t, "batch", "10");
    trial_set(t, "lr", "0.02");
    trial_set(t, "epochs", "2");
    trial_set(t, "shuffle-rows", "200");
    trial_set(t, "test", trial_path("test.libsvm"));
    trial_set(t, "stall-timeout", "20");
}

/* What a checkpoint scores on the test file, or on the rows held out of the training data. */
static mst_result score(const trial *t, const trained *r, bool valid)
{
    mst_text_list files = {0};
    mst_data_options options = t->data;
    mst_dataset *dataset = NULL;
    mst_evaluator *evaluator = NULL;
    mst_result result;
    mst_evaluator_options eval = {.n_threads = 1,
                                  .auc_by = t->train.auc_by,
                                  .batch = 1024,
                                  .valid_seed = (uint64_t)t->train.seed,
                                  .held_out = valid ? atof(t->train.valid) : 0.0,
                                  .keep = valid ? MST_KEEP_HELD_OUT : MST_KEEP_ALL};
    options.features = FEATURES;
    assert_int_equal(mst_text_list_add(&files, trial_path(valid ? "train.cache" : "test.libsvm")), MST_OK);
    assert_int_equal(mst_dataset_open(&files, &options, &dataset), MST_OK);
    assert_int_equal(mst_evaluator_new(r->assembly.model, &r->assembly.params, dataset, &eval, &evaluator),
                     MST_OK);
    assert_int_equal(mst_evaluator_run(evaluator, &result), MST_OK);
    mst_evaluator_destroy(evaluator);
    mst_dataset_destroy(dataset);
    mst_text_list_fini(&files);
    return result;
}

static void same_result(const mst_result *a, const mst_result *b)
{
    assert_int_equal(a->rows, b->rows);
    if (!(fabs(a->loss - b->loss) < 1e-12))
        print_error("loss %.17g, %.17g of the checkpoint\n", a->loss, b->loss);
    assert_true(fabs(a->loss - b->loss) < 1e-12);
    assert_true(a->accuracy == b->accuracy);
    for (const mst_result_figure *f = mst_result_figures; f->name != NULL; f++) {
        double x = mst_result_value(a, f), y = mst_result_value(b, f);
        assert_true((isnan(x) && isnan(y)) || fabs(x - y) < 1e-12);
    }
    assert_true(a->groups == b->groups && a->groups_left_out == b->groups_left_out);
}

static char *checkpoint_of(const trial *t, uint64_t step)
{
    static char path[640];
    snprintf(path, sizeof path, "%s/checkpoints/step-%012llu", t->train.run, (unsigned long long)step);
    return path;
}

/* Every checkpoint that was taken when there was an evaluation too scores what the chief said. */
static void figures_are_those_of_the_checkpoint(void **state)
{
    static const struct {
        const char *mode, *model, *dense_model;
        int servers, workers;
    } cases[] = {{"sync", "logreg", "false", 1, 1},   {"sync", "logreg", "false", 3, 2},
                 {"sync", "softmax", "false", 2, 3},  {"async", "logreg", "false", 1, 2},
                 {"async", "logreg", "false", 2, 3},  {"ssp", "logreg", "false", 3, 3},
                 {"async", "softmax", "false", 2, 2}, {"sync", "logreg", "true", 2, 2}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        trial t;
        unsigned compared = 0;
        begin(&t, cases[c].mode, cases[c].servers, cases[c].workers);
        trial_set(&t, "model", cases[c].model);
        trial_set(&t, "classes", "2");
        trial_set(&t, "dense-model", cases[c].dense_model);
        trial_set(&t, "valid", "0.1");
        trial_set(&t, "lr", "0.005"); /* late gradients of asynchronous workers do no harm */
        if (strcmp(cases[c].model, "logreg") == 0)
            trial_set(&t, "auc-by", "15");
        if (strcmp(cases[c].model, "logreg") == 0 && c % 2 == 1)
            trial_set(&t, "keep-negatives", "0.6"); /* the checkpoint records it */
        trial_set(&t, "eval-every", "10 steps");
        trial_set(&t, "checkpoint-every", "10 steps");
        trial_set(&t, "keep", "0");
        job_must_run(&t, NULL);
        for (size_t i = 0; i < t.n_evals; i++) {
            trained r;
            if (!mst_path_exists(checkpoint_of(&t, t.evals[i].step)))
                continue; /* what becomes due while something is under way is taken later */
            trained_load(&r, &t, checkpoint_of(&t, t.evals[i].step));
            mst_result expected = score(&t, &r, strcmp(t.evals[i].set, "valid") == 0);
            same_result(&t.evals[i].result, &expected);
            assert_int_equal(r.meta.rows, t.evals[i].rows);
            compared++;
            trained_fini(&r);
        }
        assert_true(compared >= 2); /* the last ones at least */
        assert_int_equal(t.evals[t.n_evals - 1].step, t.summary.status.step);
        assert_int_equal(t.summary.test.rows, N_TEST);
        if (!(t.summary.test.loss < 0.65))
            print_error("%s %s: test loss %g\n", cases[c].mode, cases[c].model, t.summary.test.loss);
        assert_true(t.summary.test.loss < 0.65);
        trial_fini(&t);
    }
}

/* The same evaluations with the same figures as local has, at the same steps; with exact evaluations at all
 * of them. */
static void curves_are_those_of_local(void **state)
{
    trial local, t;
    (void)state;
    for (int i = 0; i < 6; i++) {
        bool exact = i >= 3;
        begin(&t, "sync", i % 3 + 1, 3);
        trial_set(&t, "eval-every", "20 steps");
        trial_set(&t, "eval-mode", exact ? "exact" : "overlap");
        job_must_run(&t, NULL);
        trial_init(&local, "train.cache", "local");
        trial_set(&local, "overwrite", "true");
        trial_int(&local, "features", FEATURES);
        trial_set(&local, "batch", "30");
        trial_set(&local, "lr", "0.02");
        trial_set(&local, "epochs", "2");
        trial_set(&local, "shuffle-rows", "200");
        trial_set(&local, "test", trial_path("test.libsvm"));
        trial_set(&local, "eval-every", "20 steps");
        trial_set(&local, "save", "false");
        trial_must_run(&local);
        assert_int_equal(local.evals[local.n_evals - 1].step, 60);
        assert_int_equal(t.evals[t.n_evals - 1].step, 60);
        size_t same = 0;
        for (size_t e = 0; e < t.n_evals; e++)
            for (size_t k = 0; k < local.n_evals; k++)
                if (t.evals[e].step == local.evals[k].step) {
                    assert_true(fabs(t.evals[e].result.loss - local.evals[k].result.loss) < 1e-4);
                    same++;
                }
        assert_true(same >= (exact ? local.n_evals : 1));
        assert_true(!exact || t.n_evals == local.n_evals);
        trial_fini(&t);
        trial_fini(&local);
    }
}

/* The run ends with the weights that met the condition: its last checkpoint has their figures. */
static void until_ends_at_its_weights(void **state)
{
    static const struct {
        const char *mode, *quorum;
        int servers;
    } cases[] = {{"sync", "0", 1},  {"sync", "0", 2},  {"sync", "2", 1}, {"sync", "2", 2},
                 {"async", "0", 1}, {"async", "0", 2}, {"ssp", "0", 1},  {"ssp", "0", 3}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        trial t;
        trained r;
        begin(&t, cases[c].mode, cases[c].servers, 3);
        trial_set(&t, "quorum", cases[c].quorum);
        trial_set(&t, "epochs", "1000");
        trial_set(&t, "eval-every", "15 steps");
        trial_set(&t, "checkpoint-every", "7 steps"); /* which are under way when evaluations are due */
        trial_set(&t, "until", "test_loss<=0.60");
        job_must_run(&t, NULL);
        assert_int_equal(t.summary.end, MST_END_UNTIL);
        assert_true(t.summary.test.loss <= 0.60);
        assert_int_equal(t.summary.status.step, t.evals[t.n_evals - 1].step);
        for (size_t i = 0; i + 1 < t.n_evals; i++)
            assert_true(t.evals[i].result.loss > 0.60);
        for (size_t i = 0; strcmp(cases[c].mode, "sync") == 0 && i < t.n_evals; i++)
            assert_int_equal(t.evals[i].step, 15 * (i + 1));
        trained_load(&r, &t, checkpoint_of(&t, t.summary.status.step));
        mst_result expected = score(&t, &r, false);
        same_result(&t.summary.test, &expected);
        assert_int_equal(r.meta.rows, t.summary.status.rows);
        trained_fini(&r);
        trial_fini(&t);
    }
}

static void until_overlaps_on_request(void **state)
{
    static const char *const modes[] = {"sync", "async", "ssp"};
    (void)state;
    for (int mode = 0; mode < 3; mode++) {
        trial t;
        begin(&t, modes[mode], 2, 3);
        trial_set(&t, "eval-mode", "overlap");
        trial_set(&t, "epochs", "1000");
        trial_set(&t, "eval-every", "15 steps");
        trial_set(&t, "until", "test_loss<=0.60");
        job_must_run(&t, NULL);
        assert_int_equal(t.summary.end, MST_END_UNTIL);
        assert_true(t.summary.status.rows < 1000ull * N_ROWS);
        bool reached = false;
        for (size_t i = 0; i < t.n_evals; i++)
            reached |= t.evals[i].result.loss <= 0.60;
        assert_true(reached);
        trial_fini(&t);
    }
}

/* A learning rate far too large: the valid loss soon rises. */
static void patience_keeps_the_best(void **state)
{
    (void)state;
    for (int servers = 1; servers <= 3; servers++)
        for (int mode = 0; mode < 2; mode++) {
            trial t;
            trained best, then;
            char path[640];
            begin(&t, mode ? "async" : "sync", servers, 2);
            trial_set(&t, "epochs", "1000");
            trial_set(&t, "lr", "0.5");
            trial_set(&t, "optimizer", "adagrad");
            trial_set(&t, "valid", "0.2");
            trial_set(&t, "patience", "4");
            trial_set(&t, "eval-every", "12 steps");
            trial_set(&t, "checkpoint-every", "12 steps");
            trial_set(&t, "keep", "0");
            job_must_run(&t, NULL);
            assert_int_equal(t.summary.end, MST_END_PATIENCE);
            double least = INFINITY;
            uint64_t at = 0;
            for (size_t i = 0; i < t.n_evals; i++)
                if (strcmp(t.evals[i].set, "valid") == 0 && t.evals[i].result.loss < least) {
                    least = t.evals[i].result.loss;
                    at = t.evals[i].step;
                }
            assert_int_equal(t.summary.best_step, at);
            assert_true(t.summary.best_valid_loss == least);
            snprintf(path, sizeof path, "%s/best", t.train.run);
            trained_load(&best, &t, path);
            assert_int_equal(best.meta.step, at);
            mst_result expected = score(&t, &best, true);
            assert_true(fabs(expected.loss - least) < 1e-12);
            if (mst_path_exists(checkpoint_of(&t, at))) {
                trained_load(&then, &t, checkpoint_of(&t, at));
                assert_int_equal(memcmp(best.assembly.params.w, then.assembly.params.w,
                                        best.assembly.params.size * sizeof(float)),
                                 0);
                trained_fini(&then);
            }
            trained_fini(&best);
            trial_fini(&t);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures_are_those_of_the_checkpoint),
        cmocka_unit_test(curves_are_those_of_local),
        cmocka_unit_test(until_ends_at_its_weights),
        cmocka_unit_test(until_overlaps_on_request),
        cmocka_unit_test(patience_keeps_the_best),
    };
    return cmocka_run_group_tests(tests, make_data, trial_remove_root);
}
