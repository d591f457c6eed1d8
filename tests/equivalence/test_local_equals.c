/* The local strategy through the whole trainer: sync with T threads equals one thread to rounding and repeats
 * bit for bit, async with one thread equals sync with one, and every row is trained on once per epoch for any
 * number of threads and every mode. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trial.h"

#define N_ROWS   1500
#define FEATURES 4000
#define LARGE    70000 /* few synchronous threads of logreg own a part of so many features each */
#define SINGLES  960

enum { CACHE, LIBSVM, TSV };
static const char *const inputs[] = {"train.cache", "train.libsvm", "train.tsv"}; /* keys of the last are
                                                                                    hashed: in any order */

/* Row i has feature i alone: what a weight got says how often its row was used. */
static int make_data(void **state)
{
    static char text[32 * SINGLES];
    size_t n = 0;
    if (trial_make_root(state) != 0)
        return -1;
    trial_clicks("train.cache", N_ROWS, 0, FEATURES);
    trial_clicks("train.libsvm", N_ROWS, 0, FEATURES);
    trial_clicks("train.tsv", N_ROWS, 0, FEATURES);
    for (int i = 0; i < SINGLES; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%d %d:1\n", i % 3 == 0, i);
    trial_write("single.libsvm", text);
    return 0;
}

typedef struct setting {
    const char *model, *optimizer, *mode;
    int threads, batch, input;
    const char *sparse; /* --optimizer-sparse; or NULL */
} setting;

static void train(trial *t, const setting *s)
{
    trial_init(t, inputs[s->input], NULL);
    trial_int(t, "features", s->input == LIBSVM ? LARGE : FEATURES);
    trial_set(t, "classes", "2");
    trial_set(t, "shuffle-rows", "300");
    trial_set(t, "model", s->model);
    trial_set(t, "optimizer", s->optimizer);
    if (s->sparse != NULL) {
        trial_set(t, "optimizer-sparse", s->sparse);
        trial_set(t, "lr-sparse", "0.02");
    }
    trial_set(t, "mode", s->mode);
    trial_int(t, "threads", s->threads);
    trial_int(t, "batch", s->batch);
    if (strcmp(s->model, "fm") == 0)
        trial_set(t, "row-norm", "true"); /* converges at the rate of the others */
    trial_set(t, "lr", "0.05");
    trial_set(t, "epochs", "2");
    trial_set(t, "save", "false");
    trial_must_run(t);
    assert_int_equal(t->summary.status.rows, 2 * N_ROWS);
}

static const struct {
    const char *model, *optimizer, *sparse;
} kinds[] = {{"logreg", "sgd", NULL},       {"logreg", "adagrad", NULL},    {"logreg", "ftrl", NULL},
             {"logreg", "momentum", NULL},  {"logreg", "adam", NULL},       {"logreg", "sgd", "adagrad"},
             {"logreg", "adagrad", "same"}, {"logreg", "momentum", "ftrl"}, {"softmax", "sgd", NULL},
             {"softmax", "adagrad", NULL},  {"fm", "adagrad", NULL},        {"fm", "sgd", NULL},
             {"fm", "sgd", "adagrad"},      {"fm", "rowwise", NULL}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static void sync_threads_equal_one(void **state)
{
    (void)state;
    for (int k = 0; k < N_KINDS; k++)
        for (int input = 0; input < 3; input++) {
            trial one, many;
            setting s = {kinds[k].model, kinds[k].optimizer, "sync", 1, 64, input, kinds[k].sparse};
            train(&one, &s);
            for (s.threads = 2; s.threads <= 7; s.threads += s.threads == 4 ? 3 : 1) {
                train(&many, &s);
                assert_int_equal(many.summary.status.step, one.summary.status.step);
                double distance = trial_distance(&one, &many);
                if (!(distance < 2e-4))
                    print_error("%s %s, %d threads: %g\n", s.model, s.optimizer, s.threads, distance);
                assert_true(distance < 2e-4);
                trial_fini(&many);
            }
            trial_fini(&one);
        }
}

static void sync_repeats(void **state)
{
    (void)state;
    for (int k = 0; k < N_KINDS; k++)
        for (int threads = 1; threads <= 7; threads += threads == 3 ? 4 : 1) {
            trial first, again;
            setting s = {kinds[k].model, kinds[k].optimizer, "sync", threads, 50, k % 2, kinds[k].sparse};
            train(&first, &s);
            train(&again, &s);
            trial_same_bits(&first, &again);
            trial_fini(&first);
            trial_fini(&again);
        }
}

/* The same rows in the same order, wherever they come from and however many threads parse. */
static void inputs_are_equal(void **state)
{
    (void)state;
    for (int prefetch = 1; prefetch <= 3; prefetch++) {
        trial a, b;
        for (int i = 0; i < 2; i++) {
            trial *t = i ? &b : &a;
            trial_init(t, inputs[i], NULL);
            trial_int(t, "features", FEATURES);
            trial_set(t, "shuffle-rows", "0"); /* chunks are permuted only where there is random access */
            trial_int(t, "prefetch", i ? prefetch : 1);
            trial_set(t, "save", "false");
            trial_must_run(t);
        }
        trial_same_bits(&a, &b);
        trial_fini(&a);
        trial_fini(&b);
    }
}

static void async_of_one_equals_sync(void **state)
{
    (void)state;
    for (int k = 0; k < N_KINDS; k++)
        for (int batch = 1; batch <= 100; batch += 33) {
            trial sync, async;
            setting s = {kinds[k].model, kinds[k].optimizer, "sync", 1, batch, k % 2, kinds[k].sparse};
            train(&sync, &s);
            s.mode = "async";
            train(&async, &s);
            assert_int_equal(sync.summary.status.step, async.summary.status.step);
            assert_true(trial_distance(&sync, &async) < 1e-6);
            trial_fini(&sync);
            trial_fini(&async);
        }
}

/* At a tiny learning rate every row's gradient is that at weight 0: half its value, by the share of its
 * batch. */
static void every_row_once(void **state)
{
    (void)state;
    static const int batches[] = {1, 8, 96};
    for (int mode = 0; mode < 2; mode++)
        for (int threads = 1; threads <= 4; threads++)
            for (size_t b = 0; b < 3; b++)
                for (int epochs = 1; epochs <= 3; epochs += 2) {
                    trial t;
                    trial_init(&t, "single.libsvm", NULL);
                    trial_int(&t, "features", SINGLES);
                    trial_set(&t, "index-base", "0");
                    trial_set(&t, "bias", "false");
                    trial_set(&t, "mode", mode ? "async" : "sync");
                    trial_int(&t, "threads", threads);
                    trial_int(&t, "batch", batches[b]);
                    trial_int(&t, "epochs", epochs);
                    trial_set(&t, "shuffle-rows", "200");
                    trial_set(&t, "lr", "1e-3");
                    trial_set(&t, "save", "false");
                    trial_must_run(&t);
                    assert_int_equal(t.summary.status.rows, epochs * SINGLES);
                    const float *w = trial_params(&t)->w;
                    double unit = 1e-3 * 0.5 / batches[b];
                    for (int i = 0; i < SINGLES; i++) {
                        double times = (double)w[i] / (i % 3 == 0 ? unit : -unit);
                        assert_true(fabs(times - epochs) < 0.01);
                    }
                    trial_fini(&t);
                }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sync_threads_equal_one), cmocka_unit_test(sync_repeats),
        cmocka_unit_test(inputs_are_equal),       cmocka_unit_test(async_of_one_equals_sync),
        cmocka_unit_test(every_row_once),
    };
    return cmocka_run_group_tests(tests, make_data, trial_remove_root);
}
