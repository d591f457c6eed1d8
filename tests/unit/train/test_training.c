/* The training loop through its interface: limits hold exactly, evaluations come when they are due and change
 * nothing, the best weights are kept, and failures leave what they should. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "train/run_log_impl.h"
#include "trial.h"

#define N_ROWS   650
#define N_TEST   200
#define FEATURES 3000
#define BATCH    32
#define EPOCH    21 /* steps: 20 of 32 rows and one of 10 */

static const char *const inputs[] = {"train.cache", "train.libsvm"};

/* The test rows with their labels turned round: what training makes worse. */
static void write_flipped(void)
{
    char *text;
    size_t size;
    assert_int_equal(mst_file_read_all(trial_path("test.libsvm"), 64 << 20, &text, &size), MST_OK);
    for (size_t i = 0; i < size; i++)
        if (i == 0 || text[i - 1] == '\n')
            text[i] = text[i] == '1' ? '0' : '1';
    trial_write("flipped.libsvm", text);
    mst_free(text);
}

static int make_data(void **state)
{
    if (trial_make_root(state) != 0)
        return -1;
    trial_clicks("train.cache", N_ROWS, 0, FEATURES);
    trial_clicks("train.libsvm", N_ROWS, 0, FEATURES);
    trial_clicks("test.libsvm", N_TEST, 100000, FEATURES);
    write_flipped();
    return 0;
}

static void begin(trial *t, const char *file, const char *run)
{
    trial_init(t, file, run);
    trial_int(t, "features", FEATURES);
    trial_int(t, "batch", BATCH);
    trial_set(t, "shuffle-rows", "100");
}

/* ---- limits ---- */

typedef struct limit_case {
    const char *name, *value;
    mst_end end;
    uint64_t steps, rows, epoch;
} limit_case;

static void limits(void **state)
{
    (void)state;
    static const limit_case cases[] = {
        {"steps", "7", MST_END_STEPS, 7, 7 * BATCH, 0},
        {"steps", "1", MST_END_STEPS, 1, BATCH, 0},
        {"steps", "50", MST_END_STEPS, 50, 2 * N_ROWS + 8 * BATCH, 2}, /* lifts the one epoch */
        {"rows", "100", MST_END_ROWS, 4, 100, 0},
        {"rows", "1000", MST_END_ROWS, EPOCH + 11, 1000, 1},
        {"epochs", "1", MST_END_EPOCHS, EPOCH, N_ROWS, 1},
        {"epochs", "3", MST_END_EPOCHS, 3 * EPOCH, 3 * N_ROWS, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int input = 0; input < 2; input++)
            for (int threads = 1; threads <= 3; threads += 2)
                for (int mode = 0; mode < 2; mode++) {
                    const limit_case *c = &cases[i];
                    trial t;
                    begin(&t, inputs[input], NULL);
                    trial_set(&t, c->name, c->value);
                    trial_int(&t, "threads", threads);
                    trial_set(&t, "mode", mode ? "async" : "sync");
                    trial_set(&t, "save", "false");
                    trial_must_run(&t);
                    const mst_train_status *s = &t.summary.status;
                    assert_int_equal(t.summary.end, c->end);
                    assert_int_equal(s->rows, c->rows);
                    assert_int_equal(s->epoch, c->epoch);
                    if (mode == 0 || threads == 1 || c->end == MST_END_STEPS)
                        assert_int_equal(s->step, c->steps);
                    assert_string_equal(t.summary.checkpoint, "");
                    trial_fini(&t);
                }
}

/* --epochs that was given holds beside other limits; the first limit reached ends the run. */
static void limits_together(void **state)
{
    (void)state;
    trial t;
    begin(&t, inputs[0], NULL);
    trial_set(&t, "epochs", "1");
    trial_set(&t, "steps", "100");
    trial_must_run(&t);
    assert_int_equal(t.summary.end, MST_END_EPOCHS);
    trial_fini(&t);

    begin(&t, inputs[0], NULL);
    trial_set(&t, "steps", "30");
    trial_set(&t, "rows", "200");
    trial_must_run(&t);
    assert_int_equal(t.summary.end, MST_END_ROWS);
    assert_int_equal(t.summary.status.rows, 200);
    trial_fini(&t);
}

static void limit_of_time(void **state)
{
    (void)state;
    trial t;
    begin(&t, inputs[0], NULL);
    trial_set(&t, "seconds", "0.05");
    trial_must_run(&t);
    assert_int_equal(t.summary.end, MST_END_SECONDS);
    assert_true(t.summary.status.train_seconds >= 0.05);
    assert_true(t.summary.status.epoch > 1);
    trial_fini(&t);
}

static void until(void **state)
{
    (void)state;
    trial all, t;
    begin(&all, inputs[0], NULL);
    trial_set(&all, "test", trial_path("test.libsvm"));
    trial_set(&all, "eval-every", "5 steps");
    trial_must_run(&all);
    assert_int_equal(all.n_evals, 5); /* 5, 10, 15, 20 and the end */
    double aim = all.evals[2].result.loss;
    size_t first = 0;
    while (all.evals[first].result.loss > aim)
        first++;
    char condition[64];
    snprintf(condition, sizeof condition, "test_loss <= %.17g", aim);

    begin(&t, inputs[0], NULL);
    trial_set(&t, "test", trial_path("test.libsvm"));
    trial_set(&t, "eval-every", "5 steps");
    trial_set(&t, "until", condition);
    trial_must_run(&t);
    assert_int_equal(t.summary.end, MST_END_UNTIL);
    assert_int_equal(t.summary.status.step, all.evals[first].step);
    assert_true(t.summary.test.loss <= aim);
    trial_fini(&t);
    trial_fini(&all);

    begin(&t, inputs[0], NULL); /* on the training loss, which needs no other data */
    trial_set(&t, "eval-every", "5 steps");
    trial_set(&t, "until", "train_loss<1");
    trial_must_run(&t);
    assert_int_equal(t.summary.end, MST_END_UNTIL);
    assert_int_equal(t.summary.status.step, 5);
    trial_fini(&t);
}

/* ---- threads ---- */

/* A quarter of as many threads as cores, or more, only parse text for asynchronous logreg. */
static void text_is_parsed_by_a_quarter(void **state)
{
    (void)state;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned threads = cores > 8 ? (unsigned)cores : 8;
    char number[16];
    snprintf(number, sizeof number, "%u", threads);
    for (int input = 0; input < 2; input++) {
        for (int async = 0; async < 2; async++) {
            trial t;
            begin(&t, inputs[input], NULL);
            trial_set(&t, "steps", "100");
            trial_set(&t, "mode", async ? "async" : "sync");
            trial_set(&t, "threads", number);
            assert_int_equal(trial_open(&t), MST_OK);
            bool divided = input == 1 && async;
            assert_int_equal(t.training->strategy->n_threads, divided ? threads - threads / 4 : threads);
            if (divided)
                assert_int_equal(mst_feed_parsers(t.training->data.feed), threads / 4);
            assert_int_equal(mst_training_run(t.training, &(mst_train_callbacks){0}, &t.summary), MST_OK);
            assert_int_equal(t.summary.status.step, 100);
            trial_fini(&t);
        }
    }
}

/* ---- the training loss ---- */

/* As if a second had passed: a line of metrics.csv is due. */
static void second_passes(void *arg, const mst_train_status *status)
{
    trial *t = arg;
    (void)status;
    t->training->log->line_ns = 0;
}

/* Lines that the clock asks for between evaluations change neither the loss of evaluations nor the summary's.
 */
static void training_loss(void **state)
{
    (void)state;
    double losses[2][2];
    for (int clock = 0; clock < 2; clock++) {
        trial t;
        begin(&t, inputs[0], NULL);
        trial_set(&t, "steps", "20");
        trial_set(&t, "eval-every", "10 steps");
        trial_set(&t, "checkpoint-every", "3 steps"); /* the loop looks about */
        mst_train_callbacks observer = {.arg = &t, .progress = clock ? second_passes : NULL};
        assert_int_equal(trial_open(&t), MST_OK);
        assert_int_equal(mst_training_run(t.training, &observer, &t.summary), MST_OK);
        char path[512], line[512];
        snprintf(path, sizeof path, "%s/metrics.csv", t.train.run);
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        int n = 0;
        while (fgets(line, sizeof line, file) != NULL) {
            unsigned long long step;
            double loss;
            n++;
            if (sscanf(line, "%llu,%*[^,],%*[^,],%*[^,],%*[^,],%*[^,],%lf", &step, &loss) == 2 &&
                step % 10 == 0)
                losses[clock][step / 10 - 1] = loss;
        }
        fclose(file);
        assert_int_equal(n > 3, clock); /* the header and two evaluations */
        assert_true(fabs(t.summary.status.train_loss - losses[clock][1]) < 1e-8);
        trial_fini(&t);
    }
    assert_true(fabs(losses[0][0] - losses[1][0]) < 1e-8);
    assert_true(fabs(losses[0][1] - losses[1][1]) < 1e-8);
    assert_true(losses[0][0] != losses[0][1]);
}

/* ---- patience ---- */

static void patience(void **state)
{
    (void)state;
    trial t, best;
    begin(&t, inputs[0], NULL);
    trial_set(&t, "valid", trial_path("flipped.libsvm"));
    trial_set(&t, "eval-every", "2 steps");
    trial_set(&t, "patience", "3");
    trial_must_run(&t);
    assert_int_equal(t.summary.end, MST_END_PATIENCE);
    size_t low = 0;
    for (size_t i = 1; i < t.n_evals; i++)
        low = t.evals[i].result.loss < t.evals[low].result.loss ? i : low;
    assert_int_equal(t.n_evals, low + 4); /* three after the best */
    assert_int_equal(t.summary.best_step, t.evals[low].step);
    assert_true(t.summary.best_valid_loss == t.evals[low].result.loss);
    assert_int_equal(t.summary.status.step, t.evals[low + 3].step);

    /* RUN/best holds the weights of that evaluation */
    begin(&best, inputs[0], "best-run");
    trial_set(&best, "init-from", trial_path("run/best"));
    trial_set(&best, "valid", trial_path("flipped.libsvm"));
    trial_set(&best, "lr", "1e-30");
    trial_set(&best, "steps", "1");
    trial_must_run(&best);
    assert_int_equal(best.n_evals, 1);
    assert_true(best.evals[0].result.loss == t.summary.best_valid_loss);
    trial_fini(&best);
    trial_fini(&t);
}

/* ---- evaluation ---- */

/* However often one looks, and at whatever rows, the same is learnt. */
static void evaluations_when_due(void **state)
{
    (void)state;
    static const struct {
        const char *every;
        uint64_t steps[16]; /* zero ends them */
    } cases[] = {
        {"never", {2 * EPOCH}},
        {"10 steps", {10, 20, 30, 40, 42}},
        {"1 epoch", {21, 42}},
        {"2 epochs", {42}},
        /* 200, 400, ... are first passed at rows 224, 416, 608; 810 (650 + 5 batches), 1002, 1226 */
        {"200 rows", {7, 13, 19, 26, 32, 39, 42}},
    };
    trial plain;
    begin(&plain, inputs[0], "plain");
    trial_set(&plain, "epochs", "2");
    trial_set(&plain, "overwrite", "true");
    trial_must_run(&plain);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int input = 0; input < 2; input++) {
            trial t;
            begin(&t, inputs[0], NULL);
            trial_set(&t, "epochs", "2");
            trial_set(&t, "test", trial_path(input ? "test.libsvm" : "flipped.libsvm"));
            trial_set(&t, "eval-every", cases[i].every);
            trial_set(&t, "checkpoint-every", input ? "never" : "70 rows");
            trial_must_run(&t);
            size_t n = 0;
            for (; n < 16 && cases[i].steps[n] != 0; n++)
                assert_int_equal(t.evals[n].step, cases[i].steps[n]);
            assert_int_equal(t.n_evals, n);
            assert_int_equal(t.summary.n_evaluations, n);
            assert_int_equal(t.summary.test.rows, N_TEST);
            trial_same_bits(&t, &plain);
            trial_fini(&t);
        }
    trial_fini(&plain);
}

static void evaluations_by_time(void **state)
{
    (void)state;
    trial t;
    begin(&t, inputs[0], NULL);
    trial_set(&t, "seconds", "0.05");
    trial_set(&t, "eval-every", "0.02s");
    trial_set(&t, "test", trial_path("test.libsvm"));
    trial_must_run(&t);
    assert_true(t.n_evals >= 1 && t.n_evals <= 3);
    assert_true(t.summary.status.eval_seconds > 0.0);
    trial_fini(&t);
}

static void first_rows_of_a_set(void **state)
{
    (void)state;
    trial t;
    begin(&t, inputs[0], NULL);
    trial_set(&t, "test", trial_path("test.libsvm"));
    trial_set(&t, "eval-rows", "77");
    trial_set(&t, "eval-batch", "10");
    trial_must_run(&t);
    assert_int_equal(t.summary.test.rows, 77);
    trial_fini(&t);
}

/* The rows held out are not trained on; both inputs, any threads, the same rows. */
static void held_out(void **state)
{
    (void)state;
    uint64_t held = 0;
    for (int input = 0; input < 2; input++)
        for (int threads = 1; threads <= 2; threads++) {
            trial t;
            begin(&t, inputs[input], NULL);
            trial_set(&t, "valid", "0.2");
            trial_set(&t, "epochs", "2");
            trial_int(&t, "threads", threads);
            trial_must_run(&t);
            assert_int_equal(t.n_evals, 2);
            assert_string_equal(t.evals[0].set, "valid");
            uint64_t rows = t.summary.valid.rows;
            assert_true(rows > 90 && rows < 170);
            assert_int_equal(t.summary.status.rows, 2 * (N_ROWS - rows));
            assert_true(held == 0 || rows == held);
            held = rows;
            trial_fini(&t);
        }
}

/* Row i has feature i alone, so that weights say which rows were trained on. */
static void held_out_rows_stay_out(void **state)
{
    (void)state;
    static char text[64 * 400];
    size_t n = 0;
    for (int i = 0; i < 400; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%d %d:1\n", i % 2, i);
    trial_write("single.libsvm", text);
    trial t;
    begin(&t, "single.libsvm", NULL);
    trial_set(&t, "index-base", "0");
    trial_set(&t, "valid", "0.25");
    trial_set(&t, "bias", "false");
    trial_must_run(&t);
    const mst_params *p = trial_params(&t);
    uint64_t touched = 0;
    for (uint64_t i = 0; i < p->size; i++)
        touched += p->w[i] != 0.0f;
    assert_int_equal(touched, t.summary.status.rows);
    assert_int_equal(touched + t.summary.valid.rows, 400);
    /* nothing is known of the held-out rows: a loss of log 2 to the last bit of a float */
    assert_true(fabs(t.summary.valid.loss - log(2.0)) < 1e-7);
    trial_fini(&t);
}

/* --valid-seed chooses the held-out rows whatever --seed is; without it --seed does. */
static void hold_out_of_its_own_seed(void **state)
{
    (void)state;
    static const char *const seeds[][2] = {{"1", NULL}, {"2", "1"}, {"2", NULL}};
    static float first[4000];
    for (int k = 0; k < 3; k++) {
        trial t;
        begin(&t, "single.libsvm", NULL);
        trial_set(&t, "index-base", "0");
        trial_set(&t, "valid", "0.25");
        trial_set(&t, "bias", "false");
        trial_set(&t, "seed", seeds[k][0]);
        if (seeds[k][1] != NULL)
            trial_set(&t, "valid-seed", seeds[k][1]);
        trial_must_run(&t);
        const mst_params *p = trial_params(&t);
        uint64_t differ = 0;
        assert_true(p->size <= sizeof first / sizeof *first);
        for (uint64_t i = 0; i < p->size; i++)
            differ += (p->w[i] != 0.0f) != (first[i] != 0.0f);
        if (k == 0)
            memcpy(first, p->w, p->size * sizeof *first);
        else
            assert_int_equal(differ > 0, seeds[k][1] == NULL);
        trial_fini(&t);
    }
}

/* ---- checkpoints ---- */

static size_t count_entries(const char *path)
{
    size_t n = 0;
    DIR *dir = opendir(path);
    struct dirent *entry;
    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

static void checkpoints_kept(void **state)
{
    (void)state;
    static const struct {
        const char *every, *keep;
        size_t left, saved;
    } cases[] = {{"5 steps", "2", 2, 5}, {"5 steps", "0", 5, 5},  {"never", "2", 1, 1},
                 {"21", "1", 1, 1},      {"300 rows", "3", 3, 3}, {"1 epoch", "0", 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        trial t;
        begin(&t, inputs[0], NULL);
        trial_set(&t, "checkpoint-every", cases[i].every);
        trial_set(&t, "keep", cases[i].keep);
        trial_must_run(&t);
        assert_int_equal(t.n_saved, cases[i].saved);
        assert_int_equal(count_entries(trial_path("run/checkpoints")), cases[i].left);
        assert_string_equal(t.summary.checkpoint, trial_path("run/checkpoints/step-000000000021"));
        trial_fini(&t);
    }
}

static void init_from(void **state)
{
    (void)state;
    trial a, b;
    begin(&a, inputs[0], NULL);
    trial_set(&a, "optimizer", "adagrad");
    trial_must_run(&a);
    begin(&b, inputs[1], "second");
    trial_set(&b, "overwrite", "true");
    trial_set(&b, "init-from", trial_path("run"));
    trial_set(&b, "steps", "1");
    trial_set(&b, "lr", "1e-30");
    trial_must_run(&b);
    assert_true(trial_distance(&a, &b) < 1e-25);
    assert_int_equal(b.summary.status.step, 1);
    trial_fini(&b);

    begin(&b, inputs[1], "second"); /* the optimizer starts afresh */
    trial_set(&b, "overwrite", "true");
    trial_set(&b, "init-from", trial_path("run"));
    trial_set(&b, "optimizer", "adagrad");
    trial_set(&b, "steps", "1");
    trial_must_run(&b);
    assert_true(trial_distance(&a, &b) > 0.0);
    for (uint64_t i = 0; i < trial_params(&b)->size; i++) {
        float before, after;
        mst_params_read(trial_params(&a), 1, i, 1, &before);
        mst_params_read(trial_params(&b), 1, i, 1, &after);
        assert_true(after <= before + 1.0f);
    }
    trial_fini(&b);

    begin(&b, inputs[1], "second");
    trial_set(&b, "overwrite", "true");
    trial_set(&b, "init-from", trial_path("run"));
    trial_set(&b, "bias", "false");
    trial_refused(&b, MST_EINPUT, "holds another model");
    trial_fini(&b);

    begin(&b, inputs[1], "second");
    trial_set(&b, "init-from", trial_path("nowhere"));
    trial_refused(&b, MST_EINPUT, "nowhere");
    trial_fini(&b);
    trial_fini(&a);
}

/* ---- failures ---- */

static void usage(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *sentence;
    } cases[] = {
        {"until", "test_loss<=0.3", "needs a --test set"},
        {"until", "valid_auc>0.7", "needs --valid"},
        {"until", "loss<1", "is invalid; example"},
        {"patience", "3", "--patience needs --valid"},
        {"eval-every", "soon", "--eval-every soon"},
        {"checkpoint-every", "0 steps", "--checkpoint-every 0 steps"},
        {"epochs", "0", "nothing ends this run"},
        {"valid", "1.5", "between 0 and 1"},
        {"isa", "sse9", "sse9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        trial t;
        begin(&t, inputs[0], NULL);
        trial_set(&t, cases[i].name, cases[i].value);
        trial_refused(&t, MST_EUSAGE, cases[i].sentence);
        assert_false(mst_path_exists(trial_path("run")));
        trial_fini(&t);
    }
}

/* Nothing was measured or saved, but steps were done: the run stays, and says how it ended. */
static void loss_no_longer_finite(void **state)
{
    (void)state;
    trial t;
    begin(&t, inputs[0], NULL);
    trial_set(&t, "lr", "1e9");
    trial_set(&t, "l2", "1e9");
    trial_set(&t, "epochs", "100");
    trial_set(&t, "eval-every", "never");
    trial_refused(&t, MST_EINPUT, "the training loss is no longer finite by step ");
    char *text;
    size_t size;
    assert_int_equal(mst_file_read_all(trial_path("run/manifest.json"), 1 << 20, &text, &size), MST_OK);
    assert_non_null(strstr(text, "\"state\": \"failed\""));
    assert_non_null(strstr(text, "\"error\": \"the training loss is no longer finite"));
    mst_free(text);
    trial_fini(&t);
}

/* Bad rows that are found before a step is done: a sentence with file and line, no run left. */
static void bad_rows(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"1 1:1\n0 2:1\n1 x:1\n", "bad.libsvm:3"},
        {"1 1:1\n0 2:nan\n", "bad.libsvm:2"},
        {"1 1:1\n0 2:1\n1 9999:1\n", "bad.libsvm"},
        {"1 1:1\n7 2:1\n", "bad.libsvm"},
        {"", "bad.libsvm"},
        {"# nothing\n\n", "bad.libsvm"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int threads = 1; threads <= 2; threads++) {
            trial t;
            trial_write("bad.libsvm", cases[i].text);
            begin(&t, "bad.libsvm", NULL);
            trial_set(&t, "format", "libsvm");
            trial_int(&t, "threads", threads);
            trial_refused(&t, MST_EINPUT, cases[i].sentence);
            assert_false(mst_path_exists(trial_path("run")));
            trial_fini(&t);
        }
    trial t;
    begin(&t, inputs[0], NULL); /* an empty test set */
    trial_write("bad.libsvm", "# nothing\n");
    trial_set(&t, "test", trial_path("bad.libsvm"));
    trial_refused(&t, MST_EINPUT, "bad.libsvm");
    trial_fini(&t);
    begin(&t, inputs[0], NULL); /* and one whose rows do not fit the model */
    trial_write("bad.libsvm", "1 1:1\n0 3001:1\n");
    trial_set(&t, "test", trial_path("bad.libsvm"));
    trial_set(&t, "strict-features", "true");
    trial_refused(&t, MST_EINPUT, "bad.libsvm");
    trial_fini(&t);
}

/* ---- plan ---- */

static void plan(void **state)
{
    (void)state;
    trial t;
    json_t *json = NULL;
    trial_write("tiny.libsvm", "1 5:1 7:2 9:1\n0 5:1\n1 9:1 2000:1\n0 7:1\n");
    begin(&t, "tiny.libsvm", NULL);
    trial_set(&t, "batch", "3");
    trial_set(&t, "optimizer", "adam");
    trial_set(&t, "shuffle-rows", "0");
    assert_int_equal(trial_open(&t), MST_OK);
    assert_int_equal(mst_training_plan(t.training, &json), MST_OK);
    static const struct {
        const char *name;
        json_int_t value;
    } figures[] = {{"parameters", 3000 + 1},
                   {"weights_bytes", 4 * (3008 + 16)},
                   {"optimizer_bytes", 4 * (3000 * 4 + 24 * 3) - 4 * (3008 + 16)}, /* rows of 4 floats */
                   {"batch_rows", 3},
                   {"batch_entries", 6},
                   {"batch_keys", 4},
                   {"batch_weight_bytes", 16}};
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        assert_int_equal(json_integer_value(json_object_get(json, figures[i].name)), figures[i].value);
    assert_string_equal(json_string_value(json_object_get(json_object_get(json, "model"), "name")), "logreg");
    json_decref(json);
    assert_false(mst_path_exists(trial_path("run"))); /* nothing is written */
    trial_fini(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits),
        cmocka_unit_test(limits_together),
        cmocka_unit_test(limit_of_time),
        cmocka_unit_test(until),
        cmocka_unit_test(text_is_parsed_by_a_quarter),
        cmocka_unit_test(training_loss),
        cmocka_unit_test(patience),
        cmocka_unit_test(evaluations_when_due),
        cmocka_unit_test(evaluations_by_time),
        cmocka_unit_test(first_rows_of_a_set),
        cmocka_unit_test(held_out),
        cmocka_unit_test(held_out_rows_stay_out),
        cmocka_unit_test(hold_out_of_its_own_seed),
        cmocka_unit_test(checkpoints_kept),
        cmocka_unit_test(init_from),
        cmocka_unit_test(usage),
        cmocka_unit_test(loss_no_longer_finite),
        cmocka_unit_test(bad_rows),
        cmocka_unit_test(plan),
    };
    return cmocka_run_group_tests(tests, make_data, trial_remove_root);
}
