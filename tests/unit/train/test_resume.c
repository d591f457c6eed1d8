/* Resuming through the trainer's interface: a run that is stopped and resumed, any number of times at any
 * step, equals the undisturbed one bit for bit in weights, optimizer state and metrics; mismatches are
 * refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trial.h"

#define N_ROWS   650
#define N_TEST   200
#define FEATURES 3000
#define BATCH    32
#define EPOCH    21 /* steps: 20 of 32 rows and one of 10 */

static const char *const inputs[] = {"train.cache", "train.libsvm"};

static int make_data(void **state)
{
    if (trial_make_root(state) != 0)
        return -1;
    trial_clicks("train.cache", N_ROWS, 0, FEATURES);
    trial_clicks("train.libsvm", N_ROWS, 0, FEATURES);
    trial_clicks("test.libsvm", N_TEST, 100000, FEATURES);
    return 0;
}

static void begin(trial *t, const char *file, const char *run)
{
    trial_init(t, file, run);
    trial_int(t, "features", FEATURES);
    trial_int(t, "batch", BATCH);
    trial_set(t, "shuffle-rows", "100");
}

/* Lines of metrics.csv without their times; training and progressive loss, whose sums are rounded where a run
 * is cut, are added into losses. */
static size_t read_lines(const char *run, char lines[][256], double *losses)
{
    char path[512], line[512];
    snprintf(path, sizeof path, "%s/metrics.csv", run);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        char *columns[20], *rest = line;
        int c = 0;
        while (c < 20 && (columns[c] = strsep(&rest, ",")) != NULL)
            c++;
        assert_int_equal(c, 17);
        assert_true(n < 64);
        losses[n] = atof(columns[6]) + atof(columns[13]);
        snprintf(lines[n++], 256, "%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s", columns[0], columns[1], columns[2],
                 columns[5], columns[7], columns[8], columns[9], columns[10], columns[12], columns[14],
                 columns[15], columns[16]);
    }
    fclose(file);
    return n;
}

static void same_lines(const char *run_a, const char *run_b)
{
    static char a[64][256], b[64][256];
    double loss_a[64], loss_b[64];
    size_t n = read_lines(run_a, a, loss_a);
    assert_int_equal(read_lines(run_b, b, loss_b), n);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(a[i], b[i]);
        assert_true(fabs(loss_a[i] - loss_b[i]) < 1e-6);
    }
}

typedef struct resume_case {
    const char *input, *optimizer;
    int threads;
    uint64_t stops[3]; /* zero: no more */
    const char *model;
} resume_case;

static void set_case(trial *t, const resume_case *c)
{
    trial_set(t, "optimizer", c->optimizer);
    trial_int(t, "threads", c->threads);
    trial_set(t, "epochs", "2");
    trial_set(t, "l2", "0.001");
    trial_set(t, "warmup", "15");
    trial_set(t, "test", trial_path("test.libsvm"));
    trial_set(t, "valid", "0.1");
    trial_set(t, "patience", "100");
    trial_set(t, "eval-every", "7 steps");
    trial_set(t, "model", c->model);
    if (strcmp(c->model, "softmax") == 0)
        trial_set(t, "classes", "2");
    if (strcmp(c->optimizer, "ftrl") == 0)
        trial_set(t, "keep-negatives", "0.7");
}

static void resume_equals(const resume_case *c)
{
    trial whole, t;
    size_t n_evals = 0;
    begin(&whole, c->input, "whole");
    trial_set(&whole, "overwrite", "true");
    set_case(&whole, c);
    trial_must_run(&whole);
    assert_int_equal(mst_remove_tree(trial_path("parts")), MST_OK);
    for (size_t part = 0;; part++) {
        uint64_t stop = part < 3 ? c->stops[part] : 0;
        begin(&t, c->input, "parts");
        set_case(&t, c);
        if (part > 0)
            trial_set(&t, "resume", "true");
        if (stop != 0) {
            trial_int(&t, "checkpoint-every", (int64_t)stop);
            t.stop_at = stop;
        }
        trial_must_run(&t);
        for (size_t i = 0; i < t.n_evals; i++) {
            const trial_eval *a = &t.evals[i], *b = &whole.evals[n_evals + i];
            assert_true(n_evals + i < whole.n_evals);
            assert_int_equal(a->step, b->step);
            assert_int_equal(a->rows, b->rows);
            assert_string_equal(a->set, b->set);
            assert_true(a->result.loss == b->result.loss && a->result.accuracy == b->result.accuracy);
            assert_true(a->result.auc == b->result.auc || (isnan(a->result.auc) && isnan(b->result.auc)));
        }
        n_evals += t.n_evals;
        if (stop == 0)
            break;
        assert_int_equal(t.summary.end, MST_END_STOPPED);
        assert_int_equal(t.summary.status.step, stop);
        trial_fini(&t);
    }
    assert_int_equal(t.summary.end, MST_END_EPOCHS);
    assert_int_equal(n_evals, whole.n_evals);
    assert_int_equal(t.summary.status.rows, whole.summary.status.rows);
    assert_true(t.summary.best_valid_loss == whole.summary.best_valid_loss);
    assert_int_equal(t.summary.best_step, whole.summary.best_step);
    trial_same_bits(&t, &whole);
    same_lines(t.train.run, whole.train.run);
    trial_fini(&t);
    trial_fini(&whole);
}

static void resume_with_every_optimizer(void **state)
{
    (void)state;
    for (int o = 0; mst_optimizers[o] != NULL; o++)
        for (int input = 0; input < 2; input++)
            for (int threads = 1; threads <= 2; threads++)
                resume_equals(
                    &(resume_case){inputs[input], mst_optimizers[o]->name, threads, {10}, "logreg"});
}

/* At evaluations, at the end of an epoch, at the last step, several times. */
static void resume_anywhere(void **state)
{
    (void)state;
    static const uint64_t stops[][3] = {{7}, {19}, {1}, {3, 14, 27}, {36}, {38}, {1, 19, 37}};
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++)
        for (int input = 0; input < 2; input++) {
            resume_case c = {.input = inputs[input], .optimizer = "adam", .threads = 1, .model = "softmax"};
            memcpy(c.stops, stops[i], sizeof c.stops);
            resume_equals(&c);
        }
}

static void resume_refused(void **state)
{
    (void)state;
    trial t;
    begin(&t, inputs[0], NULL);
    trial_set(&t, "resume", "true");
    trial_refused(&t, MST_EINPUT, trial_path("run"));
    assert_false(mst_path_exists(trial_path("run")));
    trial_fini(&t);

    begin(&t, inputs[0], NULL);
    trial_must_run(&t);
    trial_fini(&t);

    begin(&t, inputs[0], "run"); /* there already */
    trial_refused(&t, MST_EEXIST, "already exists");
    assert_true(mst_path_exists(trial_path("run/metrics.csv")));
    trial_fini(&t);

    begin(&t, inputs[0], "run"); /* another model */
    trial_set(&t, "resume", "true");
    trial_int(&t, "features", FEATURES + 1);
    trial_refused(&t, MST_EINPUT, "was trained with 3000 features: --features 3001 does not fit");
    trial_fini(&t);

    begin(&t, inputs[0], "run"); /* another optimizer's state */
    trial_set(&t, "resume", "true");
    trial_set(&t, "optimizer", "adam");
    trial_refused(&t, MST_EINPUT, trial_path("run/checkpoints"));
    trial_fini(&t);

    begin(&t, inputs[0], "run");
    trial_set(&t, "resume", "true");
    trial_set(&t, "overwrite", "true");
    trial_refused(&t, MST_EUSAGE, "exclude each other");
    trial_fini(&t);
}

/* A finished run continues with a later limit, and ends at once without one. */
static void resume_of_a_finished_run(void **state)
{
    (void)state;
    trial whole, t;
    begin(&whole, inputs[0], "whole");
    trial_set(&whole, "overwrite", "true");
    trial_set(&whole, "epochs", "2");
    trial_must_run(&whole);
    begin(&t, inputs[0], NULL);
    trial_must_run(&t);
    assert_int_equal(t.summary.status.step, EPOCH);
    trial_fini(&t);
    begin(&t, inputs[0], "run");
    trial_set(&t, "resume", "true");
    trial_must_run(&t);
    assert_int_equal(t.summary.end, MST_END_EPOCHS);
    assert_int_equal(t.summary.status.step, EPOCH);
    trial_fini(&t);
    begin(&t, inputs[0], "run");
    trial_set(&t, "resume", "true");
    trial_set(&t, "epochs", "2");
    trial_must_run(&t);
    assert_int_equal(t.summary.status.step, 2 * EPOCH);
    trial_same_bits(&t, &whole);
    trial_fini(&t);
    trial_fini(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resume_with_every_optimizer),
        cmocka_unit_test(resume_anywhere),
        cmocka_unit_test(resume_refused),
        cmocka_unit_test(resume_of_a_finished_run),
    };
    return cmocka_run_group_tests(tests, make_data, trial_remove_root);
}
