/* The public interface: options, readers, trainers and models. */
#include <pthread.h>

#include "unit/api/api_trial.h"

static void options_are_set_by_name(void **state)
{
    muster_options *o = NULL;
    char *argv[] = {"a.libsvm", "--lr=0.5", "--test", "x,y", "--no-save", "b.libsvm"};
    (void)state;
    ok(muster_options_new(&o));
    assert_string_equal(muster_options_get(o, "epochs"), "1");
    ok(muster_options_set(o, "lr", "0.1"));
    assert_string_equal(muster_options_get(o, "lr"), "0.1");
    ok(muster_options_parse(o, 6, argv));
    assert_string_equal(muster_options_get(o, "lr"), "0.5");
    assert_string_equal(muster_options_get(o, "test"), "x,y");
    assert_string_equal(muster_options_get(o, "save"), "false");
    assert_string_equal(muster_options_get(o, "valid"), "");
    assert_null(muster_options_get(o, "learning-rate"));
    assert_non_null(strstr(muster_options_help(o), "--lr"));
    refused(muster_options_set(o, "epoch", "1"), MUSTER_EUSAGE, "--epochs");
    refused(muster_options_set(o, "epochs", "many"), MUSTER_EUSAGE, "--epochs");
    refused(muster_options_load(o, path_of("none.yaml")), MUSTER_EINPUT, "none.yaml");
    muster_options_free(o);
    muster_options_free(NULL);
    assert_string_equal(muster_status_text(MUSTER_ENOMEM), "out of memory");
    assert_true(strlen(muster_version()) > 2);
}

static void usage_is_checked(void **state)
{
    muster_options *o = NULL;
    muster_trainer *t = NULL;
    muster_reader r = dense_reader(10);
    (void)state;
    ok(muster_options_new(&o));
    refused(muster_trainer_new(o, &t), MUSTER_EUSAGE, "no training data");
    ok(muster_options_add_file(o, path_of("none")));
    refused(muster_trainer_new(o, &t), MUSTER_EINPUT, "none");
    ok(muster_options_add_reader(o, "rows", &r));
    refused(muster_options_add_reader(o, "rows", &r), MUSTER_EUSAGE, "already");
    ok(muster_options_add_file(o, "rows"));
    refused(muster_trainer_new(o, &t), MUSTER_EUSAGE, "together");
    muster_options_free(o);
    o = prepare(&r, "usage", "cache", "true", NULL);
    refused(muster_trainer_new(o, &t), MUSTER_EUSAGE, "--cache");
    muster_options_free(o);
    assert_null(t);
    ok(muster_options_new(&o));
    r.n_classes = 1;
    refused(muster_options_add_reader(o, "a", &r), MUSTER_EUSAGE, "n_classes");
    r = dense_reader(10);
    r.channels = 2;
    refused(muster_options_add_reader(o, "a", &r), MUSTER_EUSAGE, "image");
    r = dense_reader(10);
    r.max_keys = 3;
    refused(muster_options_add_reader(o, "a", &r), MUSTER_EUSAGE, "n_features");
    r.read = NULL;
    refused(muster_options_add_reader(o, "a", &r), MUSTER_EUSAGE, "no read function");
    muster_options_free(o);
}

static void callbacks_come_every_so_many_steps(void **state)
{
    muster_reader r = dense_reader(1000);
    heard h = {0};
    muster_summary s;
    (void)state;
    muster_options *o =
        prepare(&r, "every", "epochs", "2", "test", "rows", "checkpoint-every", "50 steps", NULL);
    muster_model_free(train(o, 7, &h, &s));
    assert_int_equal(s.step, 200);
    assert_int_equal(s.rows, 2000);
    assert_false(s.stopped);
    assert_int_equal(h.n, 200 / 7);
    for (size_t i = 0; i < h.n; i++)
        assert_int_equal(h.steps[i], (i + 1) * 7);
    assert_int_equal(h.n_evaluated, 2);
    assert_int_equal(h.n_saved, 4);
    assert_int_equal(h.last.rows, 1000);
    assert_true(h.last.accuracy > 0.95);
    assert_true(s.test.accuracy == h.last.accuracy);
    assert_int_equal(s.valid.rows, 0);
}

static void a_callback_stops_and_resuming_goes_on(void **state)
{
    muster_reader r = dense_reader(1000);
    heard h = {.stop_at = 30};
    muster_summary s;
    (void)state;
    muster_model *whole =
        train(prepare(&r, "whole", "epochs", "2", "optimizer", "adam", NULL), 0, NULL, NULL);
    muster_model_free(train(prepare(&r, "part", "epochs", "2", "optimizer", "adam", NULL), 10, &h, &s));
    assert_true(s.stopped);
    assert_int_equal(s.step, 30);
    assert_int_equal(h.n, 3);
    muster_model *resumed = train(prepare(&r, "part", "resume", "true", NULL), 0, NULL, &s);
    assert_int_equal(s.step, 200);
    assert_same_weights(whole, resumed, "weight", 0.0);
    assert_same_weights(whole, resumed, "bias", 0.0);
    muster_model_free(whole);
    muster_model_free(resumed);
    muster_options *again = prepare(&r, "part", NULL);
    muster_trainer *t = NULL;
    refused(muster_trainer_new(again, &t), MUSTER_EEXIST, "part");
    muster_options_free(again);
}

static void stopping_before_the_first_step(void **state)
{
    muster_reader r = dense_reader(1000);
    muster_options *o = prepare(&r, "early", NULL);
    muster_trainer *t = NULL;
    muster_summary s;
    (void)state;
    ok(muster_trainer_new(o, &t));
    muster_options_free(o);
    muster_trainer_stop(t);
    ok(muster_trainer_run(t, 0, NULL, NULL, &s));
    assert_true(s.stopped);
    assert_int_equal(s.step, 0);
    muster_trainer_free(t);
}

typedef struct openings {
    uint64_t n_rows;
    atomic_int opened, closed;
} openings;

static muster_status open_stream(void *arg, void **cursor)
{
    openings *o = arg;
    atomic_fetch_add(&o->opened, 1);
    *cursor = &o->n_rows;
    return MUSTER_OK;
}

static void close_stream(void *cursor)
{
    openings *o = (openings *)((char *)cursor - offsetof(openings, n_rows));
    atomic_fetch_add(&o->closed, 1);
}

static void streams_have_the_same_rows(void **state)
{
    openings counts = {.n_rows = 2500}; /* more than a chunk */
    muster_reader random = dense_reader(2500), stream = dense_reader(0);
    (void)state;
    stream.arg = &counts;
    stream.open = open_stream;
    stream.close = close_stream;
    muster_model *a =
        train(prepare(&random, "random", "shuffle-rows", "0", "epochs", "2", NULL), 0, NULL, NULL);
    muster_model *b =
        train(prepare(&stream, "stream", "shuffle-rows", "0", "epochs", "2", NULL), 0, NULL, NULL);
    assert_same_weights(a, b, "weight", 0.0);
    assert_true(counts.opened >= 2);
    assert_int_equal(counts.opened, counts.closed);
    muster_model_free(a);
    muster_model_free(b);
}

static void rows_of_bytes(void **state)
{
    muster_reader r = dense_reader(1000);
    unsigned char bytes[DENSE] = {10, 120, 20, 30, 110, 5};
    float dense[DENSE], p[2][CLASSES];
    muster_row rows[2] = {{.bytes = bytes, .n_dense = DENSE}, {.dense = dense, .n_dense = DENSE}};
    (void)state;
    r.bytes = 1;
    r.read = byte_row;
    muster_model *m = train(prepare(&r, "bytes", "epochs", "5", "lr", "1", NULL), 0, NULL, NULL);
    assert_int_equal(muster_model_features(m), DENSE);
    assert_int_equal(muster_model_classes(m), CLASSES);
    for (int i = 0; i < DENSE; i++)
        dense[i] = (float)bytes[i] / 255.0f;
    ok(muster_model_predict(m, rows, 2, p[0]));
    assert_true(p[0][1] > 0.8f);
    for (int c = 0; c < CLASSES; c++)
        assert_float_equal(p[0][c], p[1][c], 1e-5);
    muster_model_free(m);
}

static void rows_with_keys(void **state)
{
    muster_reader r = {
        .n_rows = 3000, .n_dense = 2, .n_features = 1000, .max_keys = 4, .n_classes = 2, .read = keyed_row};
    uint32_t zero[] = {3, 700}, one[] = {13, 700}, bad[] = {13, 3};
    float dense[3] = {0.5f, 1.0f, 0.0f}, ones[] = {1.0f, 1.0f}, p[3][2];
    /* the last with a longer dense part than the model was trained with */
    muster_row rows[] = {{.dense = dense, .n_dense = 2, .keys = zero, .n_keys = 2},
                         {.dense = dense, .n_dense = 2, .keys = one, .values = ones, .n_keys = 2},
                         {.dense = dense, .n_dense = 3, .keys = one, .n_keys = 2}};
    (void)state;
    muster_options *o = prepare(&r, "keys", "model", "logreg", "epochs", "5", "lr", "0.5", NULL);
    muster_model *m = train(o, 0, NULL, NULL);
    assert_int_equal(muster_model_features(m), 1000);
    assert_int_equal(muster_model_classes(m), 2);
    ok(muster_model_predict(m, rows, 3, p[0]));
    assert_true(p[0][1] < 0.1f && p[1][1] > 0.9f);
    assert_float_equal(p[2][1], p[1][1], 1e-6);
    for (int i = 0; i < 3; i++)
        assert_float_equal(p[i][0] + p[i][1], 1.0, 1e-6);
    rows[0].keys = bad;
    refused(muster_model_predict(m, rows, 1, p[0]), MUSTER_EINPUT, "ascend");
    rows[0].keys = zero;
    dense[1] = NAN;
    refused(muster_model_predict(m, rows, 1, p[0]), MUSTER_EINPUT, "row 0 has nan as number 1");
    dense[1] = 1.0f;
    ones[1] = INFINITY;
    refused(muster_model_predict(m, rows, 2, p[0]), MUSTER_EINPUT, "row 1 has inf at key 700");
    rows[0].n_keys = 0;
    rows[0].n_dense = 1001;
    refused(muster_model_predict(m, rows, 1, p[0]), MUSTER_EINPUT, "1000 features");
    rows[0].n_dense = 1;
    rows[0].dense = NULL;
    refused(muster_model_predict(m, rows, 1, p[0]), MUSTER_EINPUT, "neither");
    muster_model_free(m);
    refused(muster_model_load(path_of("no-such-run"), NULL, &m), MUSTER_EINPUT, "no-such-run");
}

/* ---- what goes wrong in a program's own functions ---- */

static muster_status failing_row(void *arg, uint64_t number, muster_row *row, int *end)
{
    if (number == 137)
        return muster_fail(MUSTER_EIO, "%s broke at %d", (const char *)arg, (int)number);
    return dense_row(NULL, number, row, end);
}

static muster_status silent_row(void *arg, uint64_t number, muster_row *row, int *end)
{
    return number == 137 ? MUSTER_EIO : dense_row(arg, number, row, end);
}

static muster_status ending_row(void *arg, uint64_t number, muster_row *row, int *end)
{
    *end = number == 137;
    return dense_row(arg, number, row, end);
}

static muster_status wrong_label(void *arg, uint64_t number, muster_row *row, int *end)
{
    muster_status st = dense_row(arg, number, row, end);
    row->label = number == 137 ? CLASSES : row->label;
    return st;
}

static muster_status half_label(void *arg, uint64_t number, muster_row *row, int *end)
{
    muster_status st = dense_row(arg, number, row, end);
    row->label = number == 137 ? 0.5f : row->label;
    return st;
}

static muster_status no_number(void *arg, uint64_t number, muster_row *row, int *end)
{
    muster_status st = dense_row(arg, number, row, end);
    row->dense[1] = number == 137 ? NAN : row->dense[1];
    return st;
}

static muster_status no_value(void *arg, uint64_t number, muster_row *row, int *end)
{
    muster_status st = keyed_row(arg, number, row, end);
    row->values[1] = number == 137 ? INFINITY : row->values[1];
    return st;
}

static muster_status wrong_key(void *arg, uint64_t number, muster_row *row, int *end)
{
    muster_status st = keyed_row(arg, number, row, end);
    row->keys[1] = number == 137 ? 1 : row->keys[1];
    return st;
}

static void failures_of_readers_come_out(void **state)
{
    struct {
        muster_status (*read)(void *, uint64_t, muster_row *, int *);
        const char *model, *part;
        muster_status st;
        int keyed;
    } cases[] = {
        {failing_row, "softmax", "the tape broke at 137", MUSTER_EIO, 0},
        {silent_row, "softmax", "reader rows: row 137", MUSTER_EIO, 0},
        {ending_row, "softmax", "ends at row 137 of 1000", MUSTER_EINPUT, 0},
        {wrong_label, "softmax", "label", MUSTER_EINPUT, 0},
        {half_label, "softmax", "reader rows: row 137 has label 0.5; labels are 0, 1, 2", MUSTER_EINPUT, 0},
        {no_number, "softmax", "reader rows: row 137 has nan as number 1", MUSTER_EINPUT, 0},
        {no_value, "logreg", "reader rows: row 137 has inf at key", MUSTER_EINPUT, 1},
        {wrong_key, "logreg", "row 137 has key 1", MUSTER_EINPUT, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        muster_trainer *t = NULL;
        muster_reader r = dense_reader(1000);
        if (cases[i].keyed)
            r = (muster_reader){
                .n_rows = 1000, .n_dense = 2, .n_features = 1000, .max_keys = 2, .n_classes = 2};
        r.read = cases[i].read;
        if (r.read == failing_row)
            r.arg = "the tape";
        muster_options *o = prepare(&r, "failing", "model", cases[i].model, NULL);
        ok(muster_trainer_new(o, &t));
        refused(muster_trainer_run(t, 0, NULL, NULL, NULL), cases[i].st, cases[i].part);
        muster_trainer_free(t);
        muster_options_free(o);
    }
}

/* ---- several trainers, several workers ---- */

static void *train_one(void *arg)
{
    unsigned i = *(const unsigned *)arg;
    muster_reader r = dense_reader(1000);
    char run[16], seed[8];
    heard h = {0};
    snprintf(run, sizeof run, "many-%u", i);
    snprintf(seed, sizeof seed, "%u", i % 2 + 1);
    return train(prepare(&r, run, "seed", seed, "epochs", "3", "test", "rows", NULL), 10, &h, NULL);
}

static void several_trainers_in_one_process(void **state)
{
    pthread_t threads[4];
    unsigned numbers[4];
    void *models[4];
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, train_one, &numbers[i]), 0);
    }
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_join(threads[i], &models[i]), 0);
    assert_same_weights(models[0], models[2], "weight", 0.0);
    assert_same_weights(models[1], models[3], "weight", 0.0);
    assert_true(muster_model_weight(models[0], "weight", NULL)[0] !=
                muster_model_weight(models[1], "weight", NULL)[0]);
    for (unsigned i = 0; i < 4; i++)
        muster_model_free(models[i]);
}

static void parameter_servers_train_on_readers(void **state)
{
    muster_reader r = dense_reader(1000);
    heard h = {0};
    muster_summary s;
    (void)state;
    muster_model *a = train(prepare(&r, "local", "batch", "20", "epochs", "2", NULL), 0, NULL, NULL);
    muster_model *b = train(
        prepare(&r, "ps", "strategy", "ps", "workers", "2", "epochs", "2", "test", "rows", NULL), 1, &h, &s);
    assert_int_equal(s.step, 100);
    assert_same_weights(a, b, "weight", 1e-5);
    assert_true(h.n_evaluated >= 1);
    assert_true(h.last.accuracy > 0.9);
    muster_model_free(a);
    muster_model_free(b);
    /* streams are dealt block by block */
    openings counts = {.n_rows = 3000};
    r = dense_reader(0);
    r.arg = &counts;
    r.open = open_stream;
    r.close = close_stream;
    muster_model_free(train(prepare(&r, "ps-stream", "strategy", "ps", "workers", "2", "mode", "async", NULL),
                            0, NULL, &s));
    assert_int_equal(s.rows, 3000);
    assert_int_equal(counts.opened, counts.closed);
}

static void a_callback_stops_a_parameter_server(void **state)
{
    muster_reader r = dense_reader(1000);
    heard h = {.stop_at = 20};
    muster_summary s;
    (void)state;
    muster_model_free(train(
        prepare(&r, "ps-stop", "strategy", "ps", "workers", "2", "epochs", "100000", NULL), 10, &h, &s));
    assert_true(s.stopped);
    assert_true(s.step >= 20 && s.rows < 100000000);
    assert_true(h.n >= 1 && h.n_saved >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_are_set_by_name),
        cmocka_unit_test(usage_is_checked),
        cmocka_unit_test(callbacks_come_every_so_many_steps),
        cmocka_unit_test(a_callback_stops_and_resuming_goes_on),
        cmocka_unit_test(stopping_before_the_first_step),
        cmocka_unit_test(streams_have_the_same_rows),
        cmocka_unit_test(rows_of_bytes),
        cmocka_unit_test(rows_with_keys),
        cmocka_unit_test(failures_of_readers_come_out),
        cmocka_unit_test(several_trainers_in_one_process),
        cmocka_unit_test(parameter_servers_train_on_readers),
        cmocka_unit_test(a_callback_stops_a_parameter_server),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
