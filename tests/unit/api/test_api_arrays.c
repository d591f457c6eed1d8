/* The public interface on arrays of the program: training in place, in memory and further; predictions. */
#include <pthread.h>
#include <stdbool.h>

#include "unit/api/api_trial.h"

#define N        3000
#define FEATURES 1000
#define KEYS     4

/* The same rows in every form. */
typedef struct forms {
    float dense[N * DENSE], dense_labels[N], labels[N], values[N * KEYS], weights[N];
    double dense64[N * DENSE], labels64[N], values64[N * KEYS], weights64[N];
    unsigned char bytes[N * DENSE];
    int32_t starts[N + 1], columns[N * KEYS], labels32[N];
    int64_t starts64[N + 1], columns64[N * KEYS], labels_long[N];
    uint32_t columns_u32[N * KEYS];
    uint16_t fields[N * KEYS];
    int32_t mixed[N * KEYS]; /* columns in descending order */
    float mixed_values[N * KEYS];
} forms;

static forms f;

static int make_forms(void **state)
{
    uint32_t at = 0;
    for (uint64_t i = 0; i < N; i++) {
        muster_row row = {.dense = f.dense + i * DENSE};
        int end = 0;
        dense_row(NULL, i, &row, &end);
        f.dense_labels[i] = row.label;
        for (uint32_t k = 0; k < DENSE; k++) {
            f.dense64[i * DENSE + k] = (double)row.dense[k];
            f.bytes[i * DENSE + k] = (unsigned char)(row.dense[k] * 100.0f);
        }
        f.labels[i] = (float)(i % 2);
        f.labels64[i] = (double)(i % 2);
        f.labels32[i] = (int32_t)(i % 2);
        f.labels_long[i] = (int64_t)(i % 2);
        f.weights[i] = (float)(1 + i % 3);
        f.weights64[i] = (double)(1 + i % 3);
        f.starts[i] = (int32_t)at;
        for (uint32_t k = 0; k < KEYS; k++, at++) {
            uint32_t key =
                k * 250 + (uint32_t)(noise(i * KEYS + k) * 100) + (k == 1 ? (uint32_t)(i % 2) * 100 : 0);
            f.columns[at] = (int32_t)key;
            f.columns64[at] = key;
            f.columns_u32[at] = key;
            f.fields[at] = (uint16_t)k;
            f.values[at] = (float)(0.5 + noise(i + 7 * k));
            f.values64[at] = (double)f.values[at];
        }
        for (uint32_t k = 0; k < KEYS; k++) {
            f.mixed[at - 1 - k] = f.columns[at - KEYS + k];
            f.mixed_values[at - 1 - k] = f.values[at - KEYS + k];
        }
    }
    f.starts[N] = (int32_t)at;
    for (uint32_t i = 0; i <= N; i++)
        f.starts64[i] = f.starts[i];
    return make_root(state);
}

static muster_arrays dense_arrays(void)
{
    return (muster_arrays){.size = sizeof(muster_arrays),
                           .n_rows = N,
                           .n_features = DENSE,
                           .n_dense = DENSE,
                           .dense = {f.dense, MUSTER_FLOAT32},
                           .labels = {f.dense_labels, MUSTER_FLOAT32},
                           .n_classes = CLASSES};
}

static muster_arrays csr_arrays(void)
{
    return (muster_arrays){.size = sizeof(muster_arrays),
                           .n_rows = N,
                           .n_features = FEATURES,
                           .starts = {f.starts, MUSTER_INT32},
                           .columns = {f.columns, MUSTER_INT32},
                           .values = {f.values, MUSTER_FLOAT32},
                           .n_entries = N * KEYS,
                           .labels = {f.labels, MUSTER_FLOAT32}};
}

static muster_data *data_of(muster_arrays a)
{
    muster_data *data = NULL;
    ok(muster_data_new(&a, 2, &data));
    assert_int_equal(muster_data_rows(data), a.n_rows);
    return data;
}

/* Options of a training in memory; more are name, value, ..., NULL. */
static muster_options *options_on(muster_data *data, const char *model, ...)
{
    muster_options *o = NULL;
    const char *name;
    va_list more;
    ok(muster_options_new(&o));
    ok(muster_options_add_data(o, "rows", data));
    ok(muster_options_add_file(o, "rows"));
    ok(muster_options_set(o, "model", model));
    ok(muster_options_set(o, "threads", "1"));
    ok(muster_options_set(o, "batch", "10"));
    va_start(more, model);
    while ((name = va_arg(more, const char *)) != NULL)
        ok(muster_options_set(o, name, va_arg(more, const char *)));
    va_end(more);
    return o;
}

/* Trains in memory and frees the options. */
static muster_model *train_in_memory(muster_options *o, muster_summary *summary)
{
    muster_trainer *trainer = NULL;
    muster_model *model = NULL;
    ok(muster_options_set_memory(o));
    ok(muster_trainer_new(o, &trainer));
    muster_options_free(o);
    refused(muster_trainer_model(trainer, &model), MUSTER_EUSAGE, "has no model");
    ok(muster_trainer_run(trainer, 0, NULL, NULL, summary));
    if (summary != NULL)
        assert_string_equal(summary->run, ""); /* valid as long as the trainer */
    ok(muster_trainer_model(trainer, &model));
    refused(muster_trainer_model(trainer, &model), MUSTER_EUSAGE, "has no model");
    muster_trainer_free(trainer);
    return model;
}

static muster_model *fit(muster_arrays a, const char *model, const char *optimizer)
{
    muster_data *data = data_of(a);
    muster_options *o = options_on(data, model, "optimizer", optimizer, "epochs", "2", NULL);
    muster_data_free(data); /* the options keep it */
    return train_in_memory(o, NULL);
}

static float *predict(const muster_model *model, muster_arrays a, muster_output what)
{
    muster_data *data = data_of(a);
    float *out = calloc(a.n_rows, 8 * sizeof *out);
    ok(muster_model_predict_data(model, data, what, 2, out));
    muster_data_free(data);
    /* checked some at a time */
    for (uint32_t n_threads = 1; n_threads <= 3; n_threads++) {
        float *again = calloc(a.n_rows, 8 * sizeof *out);
        ok(muster_model_predict_arrays(model, &a, what, n_threads, again));
        assert_memory_equal(out, again, a.n_rows * 8 * sizeof *out);
        free(again);
    }
    return out;
}

/* All tensors of both models, also optimizer state, are equal to within `within`. */
static void assert_same_models(const muster_model *a, const muster_model *b, double within)
{
    assert_int_equal(muster_model_n_tensors(a), muster_model_n_tensors(b));
    for (uint32_t t = 0; t < muster_model_n_tensors(a); t++) {
        muster_tensor x, y;
        ok(muster_model_tensor(a, t, &x));
        ok(muster_model_tensor(b, t, &y));
        assert_string_equal(x.name, y.name);
        assert_int_equal(x.size, y.size);
        float *p = calloc(x.size, sizeof *p), *q = calloc(y.size, sizeof *q);
        ok(muster_model_read(a, t, p));
        ok(muster_model_read(b, t, q));
        for (uint64_t i = 0; i < x.size; i++)
            if (!(fabs((double)p[i] - (double)q[i]) <= within))
                fail_msg("%s[%llu]: %g and %g", x.name, (unsigned long long)i, (double)p[i], (double)q[i]);
        free(p);
        free(q);
    }
}

static void types_make_no_difference(void **state)
{
    muster_arrays base = csr_arrays(), other;
    (void)state;
    base.weights = (muster_array){f.weights, MUSTER_FLOAT32};
    muster_model *model = fit(base, "logreg", "adagrad");
    for (int form = 0; form < 6; form++) {
        other = base;
        if (form == 0)
            other.starts = (muster_array){f.starts64, MUSTER_INT64};
        if (form == 1)
            other.columns = (muster_array){f.columns64, MUSTER_INT64};
        if (form == 2)
            other.columns = (muster_array){f.columns_u32, MUSTER_UINT32};
        if (form == 3) {
            other.values = (muster_array){f.values64, MUSTER_FLOAT64};
            other.weights = (muster_array){f.weights64, MUSTER_FLOAT64};
        }
        if (form == 4)
            other.labels = (muster_array){f.labels_long, MUSTER_INT64};
        if (form == 5) { /* sorted when it is checked */
            other.columns = (muster_array){f.mixed, MUSTER_INT32};
            other.values = (muster_array){f.mixed_values, MUSTER_FLOAT32};
        }
        muster_model *same = fit(other, "logreg", "adagrad");
        assert_same_models(model, same, 0.0);
        muster_model_free(same);
    }
    muster_model_free(model);
    base = dense_arrays();
    model = fit(base, "softmax", "adam");
    other = base;
    other.dense = (muster_array){f.dense64, MUSTER_FLOAT64};
    muster_model *same = fit(other, "softmax", "adam");
    assert_same_models(model, same, 0.0);
    muster_model_free(same);
    static float wide[N * (DENSE + 2)];
    for (uint32_t i = 0; i < N; i++)
        memcpy(wide + i * (DENSE + 2), f.dense + i * DENSE, DENSE * sizeof *wide);
    other = base;
    other.dense = (muster_array){wide, MUSTER_FLOAT32};
    other.row_stride = DENSE + 2;
    same = fit(other, "softmax", "adam");
    assert_same_models(model, same, 0.0);
    muster_model_free(same);
    muster_model_free(model);
}

/* Rows of a reader, a file of the same order, and arrays train the same model. */
static void arrays_equal_a_reader(void **state)
{
    muster_reader r = dense_reader(N);
    (void)state;
    muster_model *a = train(prepare(&r, "reader", "epochs", "2", NULL), 0, NULL, NULL);
    muster_model *b = fit(dense_arrays(), "softmax", "sgd");
    assert_same_weights(a, b, "weight", 0.0);
    muster_model_free(a);
    muster_model_free(b);
}

static void every_model_trains(void **state)
{
    static const char *const models[] = {"logreg", "fm", "ffm", "fwfm", "deepfm", "dcn", "wide-deep"};
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        for (int by_position = 0; by_position < 2; by_position++) {
            muster_arrays a = csr_arrays();
            a.values = (muster_array){0};
            a.fields = by_position ? NULL : f.fields;
            a.n_fields = KEYS;
            muster_model *model = fit(a, models[m], "adam");
            int32_t *classes = (int32_t *)predict(model, a, MUSTER_CLASSES);
            unsigned right = 0;
            for (uint32_t i = 0; i < N; i++)
                right += classes[i] == (int32_t)f.labels[i];
            if (right < N * 9 / 10)
                fail_msg("%s: %u of %d are right", models[m], right, N);
            free(classes);
            muster_model_free(model);
        }
    }
    muster_arrays a = dense_arrays();
    a.dense = (muster_array){f.bytes, MUSTER_UINT8};
    muster_model *model = fit(a, "mlp", "adam");
    int32_t *classes = (int32_t *)predict(model, a, MUSTER_CLASSES);
    unsigned right = 0;
    for (uint32_t i = 0; i < N; i++)
        right += classes[i] == (int32_t)f.dense_labels[i];
    assert_true(right > N * 9 / 10);
    free(classes);
    muster_model_free(model);
}

static void a_job_in_the_process_equals_local(void **state)
{
    muster_data *data = data_of(csr_arrays());
    (void)state;
    muster_model *local = train_in_memory(options_on(data, "logreg", NULL), NULL), *served = NULL;
    muster_options *o = options_on(data, "logreg", "strategy", "ps", "workers", "2", "batch", "5", "mode",
                                   "sync", "run", path_of("ps"), NULL);
    muster_trainer *t = NULL;
    ok(muster_trainer_new(o, &t));
    ok(muster_trainer_run(t, 0, NULL, NULL, NULL));
    ok(muster_trainer_model(t, &served));
    muster_trainer_free(t);
    assert_same_models(local, served, 1e-5);
    muster_options_free(o);
    muster_data_free(data);
    muster_model_free(local);
    muster_model_free(served);
}

/* A job in threads of the process, in memory. */
static muster_options *job_on(muster_data *data, const char *model, const char *optimizer, const char *epochs)
{
    return options_on(data, model, "optimizer", optimizer, "epochs", epochs, "strategy", "ps", "servers", "3",
                      "workers", "2", "batch", "50", "mode", "sync", NULL);
}

static void a_job_in_memory_equals_one_on_disk(void **state)
{
    static const struct {
        const char *model, *optimizer;
    } cases[] = {{"logreg", "sgd"}, {"logreg", "adam"}, {"fm", "ftrl"}, {"deepfm", "rowwise"}};
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        muster_arrays a = csr_arrays();
        a.values = (muster_array){0};
        a.n_fields = KEYS;
        muster_data *data = data_of(a);
        const char *model = cases[i].model, *optimizer = cases[i].optimizer;
        muster_summary s;
        muster_model *served = train_in_memory(job_on(data, model, optimizer, "3"), &s), *disk = NULL;
        assert_int_equal(s.step, 3 * N / 100);
        muster_options *o = job_on(data, model, optimizer, "3");
        muster_trainer *t = NULL;
        char run[16];
        snprintf(run, sizeof run, "job-%zu", i);
        ok(muster_options_set(o, "run", path_of(run)));
        ok(muster_trainer_new(o, &t));
        ok(muster_trainer_run(t, 0, NULL, NULL, NULL));
        ok(muster_trainer_model(t, &disk));
        muster_trainer_free(t);
        muster_options_free(o);
        assert_same_models(served, disk, 0.0);
        /* in two pieces, and back in the threads of local training */
        muster_model *first = train_in_memory(job_on(data, model, optimizer, "1"), NULL);
        o = job_on(data, model, optimizer, "2");
        ok(muster_options_set_model(o, first));
        muster_model *second = train_in_memory(o, &s);
        assert_int_equal(s.step, 3 * N / 100);
        assert_same_models(served, second, 0.0);
        o = options_on(data, model, "optimizer", optimizer, "epochs", "2", "batch", "100", NULL);
        ok(muster_options_set_model(o, first));
        muster_model *third = train_in_memory(o, &s);
        assert_int_equal(s.step, 3 * N / 100);
        assert_same_models(served, third, i < 3 ? 1e-4 : 1e-2); /* sums of a net differ in the last digits */
        muster_model_free(served);
        muster_model_free(disk);
        muster_model_free(first);
        muster_model_free(second);
        muster_model_free(third);
        muster_data_free(data);
    }
    muster_data *csr = data_of(csr_arrays()), *dense = data_of(dense_arrays());
    muster_model *model = train_in_memory(job_on(csr, "logreg", "sgd", "1"), NULL), *other = NULL;
    muster_options *o = job_on(dense, "softmax", "sgd", "1");
    muster_trainer *t = NULL;
    ok(muster_options_set_memory(o));
    ok(muster_options_set_model(o, model));
    ok(muster_trainer_new(o, &t));
    refused(muster_trainer_run(t, 0, NULL, NULL, NULL), MUSTER_EINPUT, "the model");
    refused(muster_trainer_model(t, &other), MUSTER_EUSAGE, "has no model");
    muster_trainer_free(t);
    t = NULL;
    FILE *cluster = fopen(path_of("cluster.yaml"), "w");
    assert_non_null(cluster);
    fputs("servers: [localhost:1]\nworkers: [localhost]\n", cluster);
    fclose(cluster);
    ok(muster_options_set(o, "servers", "1"));
    ok(muster_options_set(o, "workers", "1"));
    ok(muster_options_set(o, "cluster", path_of("cluster.yaml")));
    ok(muster_options_set(o, "role", "server"));
    refused(muster_trainer_new(o, &t), MUSTER_EUSAGE, "needs a single process");
    muster_options_free(o);
    muster_model_free(model);
    muster_data_free(csr);
    muster_data_free(dense);
}

static void training_goes_on_with_its_state(void **state)
{
    static const char *const optimizers[] = {"sgd", "adam", "ftrl"};
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        muster_data *data = data_of(csr_arrays());
        muster_summary s;
        muster_model *whole = train_in_memory(
            options_on(data, "logreg", "optimizer", optimizers[i], "epochs", "3", NULL), NULL);
        muster_model *first =
            train_in_memory(options_on(data, "logreg", "optimizer", optimizers[i], NULL), NULL);
        muster_options *o = options_on(data, "logreg", "optimizer", optimizers[i], "epochs", "2", NULL);
        ok(muster_options_set_model(o, first));
        muster_model *second = train_in_memory(o, &s);
        assert_int_equal(s.step, 3 * N / 10);
        assert_same_models(whole, second, 0.0);
        /* through a checkpoint */
        ok(muster_model_save(first, path_of("first")));
        muster_model *loaded = NULL;
        ok(muster_model_load_state(path_of("first"), NULL, &loaded));
        assert_same_models(first, loaded, 0.0);
        o = options_on(data, "logreg", "optimizer", optimizers[i], "epochs", "2", NULL);
        ok(muster_options_set_model(o, loaded));
        muster_model *third = train_in_memory(o, NULL);
        assert_same_models(whole, third, 0.0);
        assert_non_null(strstr(muster_model_text(third), "\"logreg\""));
        muster_model_free(whole);
        muster_model_free(first);
        muster_model_free(second);
        muster_model_free(third);
        muster_model_free(loaded);
        muster_data_free(data);
    }
    muster_data *dense = data_of(dense_arrays()), *csr = data_of(csr_arrays());
    muster_model *model = train_in_memory(options_on(csr, "logreg", NULL), NULL);
    muster_options *o = options_on(dense, "softmax", NULL);
    muster_trainer *t = NULL;
    ok(muster_options_set_model(o, model));
    refused(muster_trainer_new(o, &t), MUSTER_EINPUT, "the model");
    muster_options_free(o);
    muster_model_free(model);
    muster_data_free(dense);
    muster_data_free(csr);
}

/* With --patience the model in memory is the best one, as that of a run is. */
static void the_best_model_is_kept(void **state)
{
    muster_data *data = data_of(csr_arrays());
    muster_trainer *t = NULL;
    muster_model *disk = NULL;
    (void)state;
    const char *const more[] = {"epochs", "8", "patience", "2", "lr", "4", "valid", "0.3"};
    muster_options *o = options_on(data, "logreg", NULL),
                   *p = options_on(data, "logreg", "run", path_of("best"), NULL);
    for (size_t i = 0; i < 8; i += 2) {
        ok(muster_options_set(o, more[i], more[i + 1]));
        ok(muster_options_set(p, more[i], more[i + 1]));
    }
    muster_model *memory = train_in_memory(o, NULL);
    ok(muster_trainer_new(p, &t));
    ok(muster_trainer_run(t, 0, NULL, NULL, NULL));
    ok(muster_trainer_model(t, &disk));
    assert_same_models(memory, disk, 0.0);
    muster_options_free(p);
    muster_trainer_free(t);
    o = job_on(data, "logreg", "sgd", "8");
    ok(muster_options_set(o, "batch", "5"));
    for (size_t i = 2; i < 8; i += 2)
        ok(muster_options_set(o, more[i], more[i + 1]));
    muster_model *served = train_in_memory(o, NULL);
    assert_same_models(served, disk, 1e-4);
    muster_model_free(memory);
    muster_model_free(disk);
    muster_model_free(served);
    muster_data_free(data);
}

static void predictions_agree(void **state)
{
    muster_arrays a = dense_arrays();
    muster_model *model = fit(a, "softmax", "adagrad");
    static muster_row rows[N];
    static float by_rows[N * CLASSES];
    (void)state;
    for (uint32_t i = 0; i < N; i++)
        rows[i] = (muster_row){.dense = f.dense + i * DENSE, .n_dense = DENSE};
    ok(muster_model_predict(model, rows, N, by_rows));
    float *p = predict(model, a, MUSTER_PROBABILITIES), *m = predict(model, a, MUSTER_MARGINS);
    int32_t *c = (int32_t *)predict(model, a, MUSTER_CLASSES);
    for (uint32_t i = 0; i < N; i++) {
        uint32_t best = 0;
        for (uint32_t k = 0; k < CLASSES; k++) {
            assert_true(p[i * CLASSES + k] == by_rows[i * CLASSES + k]);
            best = m[i * CLASSES + k] > m[i * CLASSES + best] ? k : best;
        }
        assert_int_equal(best, c[i]);
    }
    free(p);
    free(m);
    free(c);
    muster_model_free(model);
    /* a model of a CSR matrix, on the same rows as a dense matrix */
    muster_arrays csr = csr_arrays(),
                  dense = {.size = sizeof dense, .n_rows = 100, .n_features = FEATURES, .n_dense = FEATURES};
    static float full[100 * FEATURES];
    for (uint32_t i = 0; i < 100 * KEYS; i++)
        full[(i / KEYS) * FEATURES + (uint32_t)f.columns[i]] = f.values[i];
    dense.dense = (muster_array){full, MUSTER_FLOAT32};
    model = fit(csr, "logreg", "adagrad");
    float *x = predict(model, csr, MUSTER_MARGINS), *y = predict(model, dense, MUSTER_MARGINS);
    for (uint32_t i = 0; i < 100; i++)
        assert_true(fabsf(x[i] - y[i]) < 1e-5f);
    free(x);
    free(y);
    muster_model_free(model);
}

/* Rows of the test set begin with more dense features than the model, whose weights are next to their state.
 */
static void longer_prefixes_are_evaluated(void **state)
{
    static const char *const models[] = {"logreg", "softmax", "fm"};
    static float full[100 * FEATURES];
    muster_arrays csr = csr_arrays(), dense = {.size = sizeof dense,
                                               .n_rows = 100,
                                               .n_features = FEATURES,
                                               .n_dense = FEATURES,
                                               .dense = {full, MUSTER_FLOAT32},
                                               .labels = {f.labels, MUSTER_FLOAT32}};
    (void)state;
    for (uint32_t i = 0; i < 100 * KEYS; i++)
        full[(i / KEYS) * FEATURES + (uint32_t)f.columns[i]] = f.values[i];
    for (size_t m = 0; m < 3; m++) {
        muster_data *rows = data_of(csr), *test = data_of(dense);
        muster_options *o = options_on(rows, models[m], "optimizer", "adagrad", NULL);
        muster_summary s;
        double loss = 0.0;
        ok(muster_options_add_data(o, "test", test));
        ok(muster_options_set(o, "test", "test"));
        muster_model *model = train_in_memory(o, &s);
        float *p = predict(model, dense, MUSTER_PROBABILITIES);
        for (uint32_t i = 0; i < 100; i++)
            loss -= log((double)p[2 * i + (uint32_t)f.labels[i]]) / 100;
        assert_true(fabs(loss - s.test.loss) < 1e-4);
        assert_true(loss < 0.6);
        free(p);
        muster_model_free(model);
        muster_data_free(rows);
        muster_data_free(test);
    }
}

static void *predict_again(void *arg)
{
    muster_arrays a = csr_arrays();
    for (int i = 0; i < 20; i++)
        free(predict(arg, a, MUSTER_PROBABILITIES));
    return NULL;
}

static void many_threads_predict(void **state)
{
    static const char *const models[] = {"logreg", "fm"};
    (void)state;
    for (size_t m = 0; m < 2; m++) {
        muster_model *model = fit(csr_arrays(), models[m], "adagrad");
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, predict_again, model), 0);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        muster_model_free(model);
    }
}

static void tensors_are_views(void **state)
{
    (void)state;
    muster_model *model = fit(csr_arrays(), "logreg", "adam");
    bool state_seen = false;
    for (uint32_t t = 0; t < muster_model_n_tensors(model); t++) {
        muster_tensor x;
        ok(muster_model_tensor(model, t, &x));
        float *copy = calloc(x.size, sizeof *copy);
        ok(muster_model_read(model, t, copy));
        assert_non_null(x.data);
        uint64_t inner = x.size / x.dims[0];
        for (uint64_t i = 0; i < x.size; i++)
            assert_true(copy[i] == x.data[i / inner * x.stride + i % inner]);
        state_seen |= strncmp(x.name, "optimizer.", 10) == 0;
        free(copy);
    }
    assert_true(state_seen);
    muster_tensor none;
    refused(muster_model_tensor(model, 99, &none), MUSTER_EUSAGE, "no tensor 99");
    assert_null(muster_model_weight(model, "weight", NULL)); /* it is next to its state */
    muster_model_free(model);
}

#define bad_csr(change, code, part)                                                                          \
    do {                                                                                                     \
        muster_arrays a = csr_arrays();                                                                      \
        muster_data *none = NULL;                                                                            \
        change;                                                                                              \
        refused(muster_data_new(&a, 1, &none), code, part);                                                  \
        assert_null(none);                                                                                   \
    } while (0)
#define bad_dense(change, code, part)                                                                        \
    do {                                                                                                     \
        muster_arrays a = dense_arrays();                                                                    \
        muster_data *none = NULL;                                                                            \
        change;                                                                                              \
        refused(muster_data_new(&a, 1, &none), code, part);                                                  \
        assert_null(none);                                                                                   \
    } while (0)
/* With a number changed, and put back. */
#define with(place, value, test)                                                                             \
    do {                                                                                                     \
        __typeof__(place) kept_ = (place);                                                                   \
        (place) = (value);                                                                                   \
        test;                                                                                                \
        (place) = kept_;                                                                                     \
    } while (0)

static void bad_rows_to_predict_are_refused(void **state)
{
    muster_model *csr = fit(csr_arrays(), "logreg", "sgd"), *dense = fit(dense_arrays(), "softmax", "sgd");
    muster_arrays a = csr_arrays(), d = dense_arrays();
    float *out = calloc(N, 8 * sizeof *out);
    uint32_t feature;
    (void)state;
    refused(muster_model_feature(csr, "", 0, "5", 1, &feature), MUSTER_EINPUT,
            "such as arrays: feature N is column N, from 0");
    for (uint32_t n_threads = 1; n_threads <= 3; n_threads++) {
        int32_t before = f.columns[4 * 2100], later = f.columns[4 * 2900];
        f.columns[4 * 2100] = -1; /* the first bad row is named, whatever the threads */
        f.columns[4 * 2900] = 1000;
        refused(muster_model_predict_arrays(csr, &a, MUSTER_MARGINS, n_threads, out), MUSTER_EINPUT,
                "X: row 2100 has column -1; columns are from 0 to 999");
        f.columns[4 * 2100] = before;
        refused(muster_model_predict_arrays(csr, &a, MUSTER_MARGINS, n_threads, out), MUSTER_EINPUT,
                "X: row 2900 has column 1000");
        f.columns[4 * 2900] = later;
        with(f.starts[1500], 100,
             refused(muster_model_predict_arrays(csr, &a, MUSTER_MARGINS, n_threads, out), MUSTER_EINPUT,
                     "row 1499 begins at entry"));
        with(f.dense[2500 * DENSE + 3], INFINITY,
             refused(muster_model_predict_arrays(dense, &d, MUSTER_CLASSES, n_threads, out), MUSTER_EINPUT,
                     "row 2500 has inf in column 3"));
        refused(muster_model_predict_arrays(dense, &a, MUSTER_CLASSES, n_threads, out), MUSTER_EINPUT,
                "features, but the model has");
    }
    a.size = 4096;
    refused(muster_model_predict_arrays(csr, &a, MUSTER_CLASSES, 1, out), MUSTER_EUSAGE, "size 4096");
    a = csr_arrays();
    a.n_rows = a.n_entries = 0;
    ok(muster_model_predict_arrays(csr, &a, MUSTER_CLASSES, 1, out));
    free(out);
    muster_model_free(csr);
    muster_model_free(dense);
}

static void bad_arrays_are_refused(void **state)
{
    (void)state;
    bad_csr(a.size = 4096, MUSTER_EUSAGE, "size 4096");
    bad_csr(a.starts.type = MUSTER_FLOAT32, MUSTER_EUSAGE, "starts of rows are int32");
    bad_csr(a.columns.type = (muster_type)77, MUSTER_EUSAGE, "77 is not a type");
    bad_csr(a.columns.data = NULL, MUSTER_EUSAGE, "no data");
    bad_csr(a.values.data = (const char *)f.values + 1, MUSTER_EUSAGE, "aligned");
    bad_csr(a.n_features = 0, MUSTER_EUSAGE, "0 features");
    bad_csr(a.n_features = 100, MUSTER_EINPUT, "X: row 0 has column 2");
    bad_csr(a.n_entries--, MUSTER_EINPUT, "row 2999");
    bad_csr(a.n_classes = 1, MUSTER_EUSAGE, "2 classes");
    bad_csr(a.starts.type = MUSTER_NONE, MUSTER_EUSAGE, "rows need");
    bad_csr(a.n_fields = 3, MUSTER_EINPUT, "4 entries, but there are 3 fields");
    bad_csr(a.fields = f.fields, MUSTER_EUSAGE, "0 fields");
    bad_csr((a.fields = f.fields, a.n_fields = 3), MUSTER_EINPUT, "has field 3; there are 3");
    with(f.columns[17], -1, bad_csr(, MUSTER_EINPUT, "X: row 4 has column -1; columns are from 0 to 999"));
    with(f.columns64[17], 1ll << 40,
         bad_csr(a.columns = ((muster_array){f.columns64, MUSTER_INT64}), MUSTER_EINPUT, "1099511627776"));
    with(f.starts[5], 100, bad_csr(, MUSTER_EINPUT, "row 5 begins at entry 100 and ends at 24"));
    with(f.starts[0], 1, bad_csr(, MUSTER_EINPUT, "not at 0"));
    with(f.starts[5], -8, bad_csr(, MUSTER_EINPUT, "row 4 begins at entry 16 and ends at -8"));
    with(f.values[2999], NAN, bad_csr(, MUSTER_EINPUT, "row 749 has nan in column"));
    with(f.values64[2999], 1e300,
         bad_csr(a.values = ((muster_array){f.values64, MUSTER_FLOAT64}), MUSTER_EINPUT, "1e+300"));
    with(f.labels[1700], 2.0f, bad_csr(, MUSTER_EINPUT, "row 1700 has label 2; labels are whole"));
    with(f.labels[1700], NAN, bad_csr(, MUSTER_EINPUT, "row 1700 has label nan"));
    with(f.weights[3], -1.0f,
         bad_csr(a.weights = ((muster_array){f.weights, MUSTER_FLOAT32}), MUSTER_EINPUT,
                 "row 3 has weight -1"));
    with(f.dense[2500 * DENSE + 3], INFINITY,
         bad_dense(a.name = "train", MUSTER_EINPUT, "train: row 2500 has inf in column 3"));
    bad_dense(a.row_stride = 2, MUSTER_EUSAGE, "6 numbers cannot be 2");
    bad_dense(a.channels = 5, MUSTER_EUSAGE, "image");
    bad_dense(a.n_dense = 0, MUSTER_EUSAGE, "rows need dense numbers");
    muster_arrays none = csr_arrays();
    none.n_rows = none.n_entries = 0;
    muster_data *empty = data_of(none);
    muster_options *o = options_on(empty, "logreg", NULL);
    muster_trainer *t = NULL;
    refused(muster_trainer_new(o, &t), MUSTER_EINPUT, "no rows");
    muster_options_free(o);
    muster_data_free(empty);
    muster_model *model = fit(csr_arrays(), "logreg", "sgd");
    muster_data *other = data_of(dense_arrays());
    refused(muster_model_predict_data(model, other, MUSTER_CLASSES, 1, f.mixed_values), MUSTER_EINPUT,
            "X has 6 features, but the model has 1000");
    muster_data_free(other);
    muster_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_make_no_difference),
        cmocka_unit_test(arrays_equal_a_reader),
        cmocka_unit_test(every_model_trains),
        cmocka_unit_test(a_job_in_the_process_equals_local),
        cmocka_unit_test(a_job_in_memory_equals_one_on_disk),
        cmocka_unit_test(training_goes_on_with_its_state),
        cmocka_unit_test(the_best_model_is_kept),
        cmocka_unit_test(predictions_agree),
        cmocka_unit_test(longer_prefixes_are_evaluated),
        cmocka_unit_test(many_threads_predict),
        cmocka_unit_test(tensors_are_views),
        cmocka_unit_test(bad_arrays_are_refused),
        cmocka_unit_test(bad_rows_to_predict_are_refused),
    };
    return cmocka_run_group_tests(tests, make_forms, remove_root);
}
