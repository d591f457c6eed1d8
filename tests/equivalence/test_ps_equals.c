/* The parameter server, in threads of one process, equals local training: sync with N workers of batch B
 * equals local with batch N*B to rounding, for any number of servers, and repeats bit for bit; async and ssp
 * with one worker equal local; a dense model gives the same weights; half floats on the wire cost little. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "job_trial.h"
#include "random_rows.h"

#define N_ROWS   330
#define FEATURES 3000
#define CLASSES  4

static void write_rows(const char *name, row_kind kind, uint32_t n_classes)
{
    rows_spec spec = {.kind = kind,
                      .n_rows = N_ROWS,
                      .n_dense = 20,
                      .n_features = kind == ROWS_DENSE ? 20 : FEATURES,
                      .n_keys = 12,
                      .n_classes = n_classes,
                      .seed = 7};
    random_rows r = random_rows_make(&spec);
    mst_chunk_builder b;
    mst_chunk *chunk = NULL;
    mst_row_writer *writer = NULL;
    const mst_row_writer_ops *ops = NULL;
    mst_data_info info = {.n_features = spec.n_features};
    char *path = trial_path(name);
    assert_int_equal(mst_row_writer_find(NULL, path, &ops), MST_OK);
    assert_int_equal(mst_row_writer_new(ops, path, NULL, &writer), MST_OK);
    mst_chunk_builder_init(&b);
    for (uint32_t i = 0; i < r.n_rows; i++) {
        const mst_row *row = &r.rows[i];
        assert_int_equal(mst_chunk_builder_room(&b, row->n_dense + row->n_keys), MST_OK);
        for (uint32_t k = 0; k < row->n_dense; k++)
            mst_chunk_builder_add(&b, k, row->dense[k]);
        for (uint32_t k = 0; k < row->n_keys; k++)
            mst_chunk_builder_add(&b, row->keys[k], row->values != NULL ? row->values[k] : 1.0f);
        assert_int_equal(mst_chunk_builder_end_row(&b, row->label, row->weight), MST_OK);
    }
    for (size_t from = 0; from < b.n_rows; from += 64) { /* several chunks, so that their order matters */
        size_t to = from + 64 < b.n_rows ? from + 64 : b.n_rows;
        assert_int_equal(mst_chunk_builder_pack(&b, from, to, &chunk), MST_OK);
        assert_int_equal(mst_row_writer_add(writer, chunk), MST_OK);
        mst_chunk_release(chunk);
    }
    assert_int_equal(mst_row_writer_commit(writer, &info), MST_OK);
    mst_row_writer_destroy(writer);
    mst_chunk_builder_fini(&b);
    random_rows_free(&r);
}

static int make_data(void **state)
{
    if (trial_make_root(state) != 0)
        return -1;
    trial_clicks("clicks.cache", N_ROWS, 0, FEATURES);
    write_rows("ones.cache", ROWS_ONES, 2);
    write_rows("values.cache", ROWS_VALUES, 2);
    write_rows("dense.cache", ROWS_DENSE, CLASSES);
    write_rows("classes.cache", ROWS_VALUES, CLASSES);
    return 0;
}

/* What is trained. */
typedef struct kind {
    const char *file, *model, *optimizer, *lr, *l1, *l2, *adagrad_start;
} kind;

static const kind kinds[] = {
    {"clicks.cache", "logreg", "sgd", "0.1", "0.0001", "0.001", NULL},
    {"clicks.cache", "logreg", "ftrl", "0.05", "0.001", "0.01", NULL},
    {"clicks.cache", "logreg", "adam", "0.002", "0", "0", NULL},
    {"ones.cache", "logreg", "adagrad", "0.05", "0", "0.001", "0.1"},
    {"values.cache", "logreg", "momentum", "0.02", "0", "0", NULL},
    {"dense.cache", "softmax", "sgd", "0.05", "0", "0.001", NULL},
    {"dense.cache", "softmax", "momentum", "0.02", "0", "0", NULL},
    {"classes.cache", "softmax", "adagrad", "0.05", "0.0001", "0", NULL},
    {"clicks.cache", "softmax", "sgd", "0.1", "0", "0", NULL}, /* a dense prefix of width C */
    {"clicks.cache", "fm", "adagrad", "0.05", "0", "0.001", "0.1"},
    {"values.cache", "fm", "sgd", "0.05", "0", "0", NULL},
    {"clicks.cache", "ffm", "adagrad", "0.05", "0", "0.001", NULL},
    {"clicks.cache", "fwfm", "adagrad", "0.02", "0", "0", NULL},
    {"clicks.cache", "fm", "rowwise", "0.05", "0", "0.001", "0.1"},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static void set_kind(trial *t, const kind *k, int batch)
{
    trial_set(t, "model", k->model);
    trial_int(t, "features", strcmp(k->file, "dense.cache") == 0 ? 20 : FEATURES);
    if (strcmp(k->model, "softmax") == 0)
        trial_int(t, "classes", strcmp(k->file, "clicks.cache") == 0 ? 2 : CLASSES);
    trial_set(t, "optimizer", k->optimizer);
    trial_set(t, "lr", k->lr);
    trial_set(t, "l1", k->l1);
    trial_set(t, "l2", k->l2);
    if (k->adagrad_start != NULL)
        trial_set(t, "adagrad-start", k->adagrad_start);
    trial_set(t, "eps", "0.001"); /* or a gradient of 1e-10, all of it rounding, would make a whole step */
    trial_int(t, "batch", batch);
    trial_set(t, "epochs", "2");
    trial_set(t, "shuffle-rows", "100");
}

static void train_local(trial *t, const kind *k, int batch)
{
    trial_init(t, k->file, "local");
    trial_set(t, "overwrite", "true");
    trial_set(t, "save", "false");
    set_kind(t, k, batch);
    trial_must_run(t);
    assert_int_equal(t->summary.status.rows, 2 * N_ROWS);
}

typedef struct setting {
    int servers, workers, batch;
    const char *mode, *staleness, *dense_model, *quorum;
} setting;

static void train_job(trial *t, trained *r, const kind *k, const setting *s)
{
    job_init(t, k->file, NULL, s->servers, s->workers);
    set_kind(t, k, s->batch);
    trial_set(t, "mode", s->mode != NULL ? s->mode : "sync");
    if (s->staleness != NULL)
        trial_set(t, "staleness", s->staleness);
    if (s->dense_model != NULL)
        trial_set(t, "dense-model", s->dense_model);
    job_train(t, r);
    assert_int_equal(t->summary.status.rows, 2 * N_ROWS);
    assert_int_equal(r->meta.rows, 2 * N_ROWS);
}

static void assert_close(const trial *local, const trial *t, const trained *r, const kind *k,
                         const setting *s)
{
    double distance = params_distance(trial_params(local), &r->assembly.params), most = 0.0;
    for (uint64_t i = 0; i < r->assembly.params.size; i++)
        most = fmax(most, fabs((double)r->assembly.params.w[i]));
    assert_true(most > 0.005); /* far from where it started */
    if (!(distance < 1e-4))
        print_error("%s %s %s, %d servers, %d workers: %g\n", k->file, k->model, k->optimizer, s->servers,
                    s->workers, distance);
    assert_true(distance < 1e-4);
    assert_int_equal(local->summary.status.step, t->summary.status.step);
}

/* 330 rows: the last batch of an epoch is a partial one for all of these; with 4 workers of 41 rows it has 2
 * rows, so that some shares of it are empty. */
static void sync_equals_local(void **state)
{
    static const int batches[] = {100, 50, 33, 41};
    (void)state;
    for (int k = 0; k < N_KINDS; k++)
        for (int workers = 1; workers <= 4; workers++) {
            trial local, first, t;
            trained one, more;
            setting s = {.servers = 1, .workers = workers, .batch = batches[workers - 1]};
            train_local(&local, &kinds[k], workers * s.batch);
            train_job(&first, &one, &kinds[k], &s);
            assert_close(&local, &first, &one, &kinds[k], &s);
            for (s.servers = 2; s.servers <= 3; s.servers++) {
                train_job(&t, &more, &kinds[k], &s);
                assert_close(&local, &t, &more, &kinds[k], &s);
                assert_true(params_same_bits(&one.assembly.params, &more.assembly.params));
                trained_fini(&more);
                trial_fini(&t);
            }
            trained_fini(&one);
            trial_fini(&first);
            trial_fini(&local);
        }
}

static void sync_repeats(void **state)
{
    (void)state;
    for (int k = 0; k < N_KINDS; k++) {
        trial t;
        trained first, again;
        setting s = {.servers = 1 + k % 3, .workers = 2 + k % 3, .batch = 17};
        train_job(&t, &first, &kinds[k], &s);
        trial_fini(&t);
        train_job(&t, &again, &kinds[k], &s);
        assert_true(params_same_bits(&first.assembly.params, &again.assembly.params));
        trial_fini(&t);
        trained_fini(&first);
        trained_fini(&again);
    }
}

/* More workers than a step has rows. */
static void empty_shares(void **state)
{
    (void)state;
    for (int k = 0; k < N_KINDS; k += 4) {
        trial local, t;
        trained r;
        job_init(&t, kinds[k].file, NULL, 2, 4);
        set_kind(&t, &kinds[k], 1);
        trial_set(&t, "global-batch", "3");
        job_train(&t, &r);
        train_local(&local, &kinds[k], 3);
        assert_close(&local, &t, &r, &kinds[k], &(setting){.servers = 2, .workers = 4});
        trained_fini(&r);
        trial_fini(&t);
        trial_fini(&local);
    }
}

static void one_alone_equals_local(void **state)
{
    (void)state;
    for (int k = 0; k < N_KINDS; k++) {
        trial local, t;
        trained r;
        int batch = k % 2 ? 40 : 1;
        train_local(&local, &kinds[k], batch);
        for (int i = 0; i < 6; i++) {
            setting s = {.servers = 1 + i % 3,
                         .workers = 1,
                         .batch = batch,
                         .mode = i < 3 ? "async" : "ssp",
                         .staleness = "0"};
            train_job(&t, &r, &kinds[k], &s);
            assert_close(&local, &t, &r, &kinds[k], &s);
            trained_fini(&r);
            trial_fini(&t);
        }
        trial_fini(&local);
    }
}

static void whole_model_travels(void **state)
{
    (void)state;
    for (int k = 0; k < N_KINDS; k++)
        for (int servers = 1; servers <= 3; servers += 2) {
            trial t;
            trained sparse, dense;
            setting s = {.servers = servers, .workers = 2, .batch = 30};
            kind what = kinds[k];
            /* A step without a gradient changes nothing here; with momentum, adam, L1 or L2 it does, and a
             * model that travels whole has such steps where sparse traffic has none. */
            if (strcmp(what.optimizer, "adam") == 0 || strcmp(what.optimizer, "momentum") == 0)
                continue;
            if (strcmp(what.optimizer, "rowwise") == 0) { /* refused: servers would divide keys */
                job_init(&t, what.file, NULL, servers, 2);
                set_kind(&t, &what, 30);
                trial_set(&t, "dense-model", "true");
                assert_int_equal(job_run(&t, NULL), MST_EUSAGE);
                assert_non_null(strstr(mst_error_text(), "rowwise has one state"));
                trial_fini(&t);
                continue;
            }
            if (strcmp(what.optimizer, "ftrl") != 0)
                what.l1 = what.l2 = "0";
            train_job(&t, &sparse, &what, &s);
            trial_fini(&t);
            s.dense_model = "true";
            train_job(&t, &dense, &what, &s);
            double distance = params_distance(&sparse.assembly.params, &dense.assembly.params);
            if (!(distance < 1e-5))
                print_error("%s %s %s, %d servers: %g\n", what.file, what.model, what.optimizer, servers,
                            distance);
            assert_true(distance < 1e-5);
            trial_fini(&t);
            trained_fini(&sparse);
            trained_fini(&dense);
        }
}

/* Thousands of rows, so that what rounding costs is seen in the loss. */
static void half_floats_lose_little(void **state)
{
    static const char *const wires[] = {"fp32", "bf16", "fp16"};
    (void)state;
    trial_clicks("many.cache", 6000, 0, 100000);
    trial_clicks("test.cache", 2000, 1000000, 100000);
    for (int mode = 0; mode < 2; mode++) {
        double full = 0.0;
        for (int w = 0; w < 3; w++) {
            trial t;
            job_init(&t, "many.cache", NULL, 2, mode ? 1 : 3);
            trial_set(&t, "features", "100000");
            trial_set(&t, "mode", mode ? "async" : "sync");
            trial_set(&t, "optimizer", "adagrad");
            trial_set(&t, "lr", "0.05");
            trial_set(&t, "batch", "50");
            trial_set(&t, "wire", wires[w]);
            trial_set(&t, "test", trial_path("test.cache"));
            trial_set(&t, "save", "false");
            job_must_run(&t, NULL);
            double loss = t.summary.test.loss;
            full = w == 0 ? loss : full;
            if (!(loss < 0.56 && fabs(loss - full) < 0.002))
                print_error("%s %s: test loss %g, %g with fp32\n", mode ? "async" : "sync", wires[w], loss,
                            full);
            assert_true(loss < 0.56 && fabs(loss - full) < 0.002);
            trial_fini(&t);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sync_equals_local),   cmocka_unit_test(sync_repeats),
        cmocka_unit_test(empty_shares),        cmocka_unit_test(one_alone_equals_local),
        cmocka_unit_test(whole_model_travels), cmocka_unit_test(half_floats_lose_little),
    };
    return cmocka_run_group_tests(tests, make_data, trial_remove_root);
}
