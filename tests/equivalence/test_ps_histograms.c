/* Histograms of weights and gradients of a job of several processes, read back by protobuf-c's code for
 * event.proto: those of weights match the checkpoint of the same step. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "event_reader.h"
#include "job_trial.h"

#define N_ROWS   900
#define FEATURES 4000
#define N_IMAGES 96
#define SIDE     28

/* The thread sanitizer does not see how the threads of GNU's OpenMP wait for each other. */
#ifdef __SANITIZE_THREAD__
#define EXECUTOR "plain"
#else
#define EXECUTOR "auto"
#endif

static void write_idx(const char *name, const uint8_t *head, size_t n_head, const uint8_t *data, size_t n)
{
    FILE *file = fopen(trial_path(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(head, 1, n_head, file), n_head);
    assert_int_equal(fwrite(data, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static int make_data(void **state)
{
    static uint8_t images[N_IMAGES * SIDE * SIDE], labels[N_IMAGES];
    static const uint8_t images_head[] = {0, 0, 8, 3, 0, 0, 0, N_IMAGES, 0, 0, 0, SIDE, 0, 0, 0, SIDE},
                         labels_head[] = {0, 0, 8, 1, 0, 0, 0, N_IMAGES};
    mst_rng rng;
    if (trial_make_root(state) != 0)
        return -1;
    mst_rng_init(&rng, 3, MST_RNG_TEST, 0);
    for (size_t i = 0; i < sizeof images; i++)
        images[i] = (uint8_t)mst_rng_below(&rng, 256);
    for (int i = 0; i < N_IMAGES; i++)
        labels[i] = (uint8_t)(i % 10);
    write_idx("train-images-idx3-ubyte", images_head, sizeof images_head, images, sizeof images);
    write_idx("train-labels-idx1-ubyte", labels_head, sizeof labels_head, labels, sizeof labels);
    trial_write("norm.net", "conv 5 kernel=3\nnorm: batchnorm\nrelu\navgpool 2\nlinear 20\nlinear classes\n");
    trial_clicks("train.cache", N_ROWS, 0, FEATURES);
    return 0;
}

/* What the event file of a process says; false: it has none. */
static bool read_events(const trial *t, const char *role, unsigned index, mst_bytes *out)
{
    char folder[640], path[1024];
    char *text = NULL;
    struct dirent *found;
    snprintf(folder, sizeof folder, "%s/processes/%s-%u", t->train.run, role, index);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    while ((found = readdir(dir)) != NULL && text == NULL)
        if (strstr(found->d_name, "tfevents") != NULL) {
            snprintf(path, sizeof path, "%s/%s", folder, found->d_name);
            assert_int_equal(mst_file_read_all(path, 1 << 24, &text, &out->n), MST_OK);
        }
    closedir(dir);
    out->data = (uint8_t *)text;
    return text != NULL;
}

static double sum_of(const double *values, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++)
        sum += values[i];
    return sum;
}

typedef struct seen {
    unsigned weights, compared, gradients;
} seen;

static const mst_view *view_named(const mst_params *params, const char *name)
{
    for (uint32_t v = 0; v < params->n_views; v++)
        if (strcmp(params->views[v].name, name) == 0)
            return &params->views[v];
    fail_msg("there is no view %s", name);
    return NULL;
}

/* A histogram of a view's weights, against the checkpoint's. part: of those that the evaluated rows touch. */
static void check_weights(const MusterTest__HistogramProto *h, const mst_params *params, const mst_view *view,
                          bool part)
{
    double min = INFINITY, max = -INFINITY, sum = 0.0, squares = 0.0;
    for (uint64_t i = 0; i < view->size; i++) {
        double w = (double)params->w[view->offset + i];
        min = w < min ? w : min;
        max = w > max ? w : max;
        sum += w;
        squares += w * w;
    }
    if (part) {
        assert_true(h->num > 100.0 && h->num < (double)view->size);
        assert_true(h->min >= min && h->max <= max && h->min < h->max);
        assert_true(h->sum_squares > 0.0 && h->sum_squares <= squares * (1.0 + 1e-9));
        return;
    }
    assert_true(h->num == (double)view->size);
    assert_true(h->min == min && h->max == max);
    assert_true(fabs(h->sum - sum) <= 1e-9 * (1.0 + fabs(sum)));
    assert_true(fabs(h->sum_squares - squares) <= 1e-9 * (1.0 + squares));
}

/* Everything in the workers' event files. sparse: the view that is not pulled whole, or NULL. */
static seen check_events(const trial *t, int workers, const char *sparse)
{
    seen all = {0};
    for (int w = 0; w < workers; w++) {
        mst_bytes bytes = {0};
        size_t at = 0;
        event_message *e;
        if (!read_events(t, "worker", (unsigned)w, &bytes))
            continue;
        for (; (e = next_event(&bytes, &at)) != NULL; muster_test__event__free_unpacked(e, NULL)) {
            const value_message *value = e->summary != NULL ? e->summary->value[0] : NULL;
            char path[700];
            trained r;
            if (value == NULL || value->histo == NULL)
                continue;
            const MusterTest__HistogramProto *h = value->histo;
            assert_true(e->step > 0);
            assert_true(h->n_bucket == h->n_bucket_limit && h->n_bucket > 0);
            assert_true(fabs(sum_of(h->bucket, h->n_bucket) - h->num) < 1e-6 * h->num);
            snprintf(path, sizeof path, "%s/checkpoints/step-%012llu", t->train.run,
                     (unsigned long long)e->step);
            bool saved = mst_path_exists(path), weights = strncmp(value->tag, "weights/", 8) == 0;
            trained_load(&r, t, saved ? path : t->train.run);
            const mst_view *view =
                view_named(&r.assembly.params, value->tag + strlen(weights ? "weights/" : "gradients/"));
            bool part = sparse != NULL && strcmp(view->name, sparse) == 0;
            if (weights && saved)
                check_weights(h, &r.assembly.params, view, part);
            if (!weights) {
                assert_memory_equal(value->tag, "gradients/", 10);
                assert_false(part);
                assert_true(h->num == (double)view->size && isfinite(h->sum_squares));
            }
            all.weights += weights;
            all.compared += weights && saved;
            all.gradients += !weights;
            trained_fini(&r);
        }
        mst_free(bytes.data);
    }
    return all;
}

static void begin(trial *t, const char *mode, int servers, int workers, const char *file)
{
    job_init(t, file, NULL, servers, workers);
    trial_set(t, "mode", mode);
    trial_set(t, "epochs", "1");
    trial_set(t, "valid", "0.2");
    trial_set(t, "checkpoint-every", "1 epochs");
    trial_set(t, "keep", "0");
    trial_set(t, "stall-timeout", "20");
}

static void histograms_of_linear_models(void **state)
{
    static const struct {
        const char *mode, *model, *dense_model, *sparse;
        int servers, workers;
        unsigned gradients; /* views */
    } cases[] = {{"sync", "logreg", "false", "weight", 2, 2, 1},
                 {"sync", "logreg", "true", NULL, 2, 2, 2},
                 {"async", "logreg", "false", "weight", 1, 1, 1},
                 {"ssp", "logreg", "false", "weight", 2, 1, 1},
                 {"async", "softmax", "true", NULL, 2, 1, 2}};
    (void)state; /* without lockstep, a second worker might be given all rows before the chief has one */
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        trial t;
        begin(&t, cases[c].mode, cases[c].servers, cases[c].workers, "train.cache");
        trial_int(&t, "features", FEATURES);
        trial_set(&t, "model", cases[c].model);
        trial_set(&t, "classes", "2");
        trial_set(&t, "dense-model", cases[c].dense_model);
        trial_set(&t, "batch", "10");
        trial_set(&t, "lr", "0.02");
        job_must_run(&t, NULL);
        seen all = check_events(&t, cases[c].workers, cases[c].sparse);
        if (all.compared < 2 || all.gradients < cases[c].gradients)
            print_error("%s %s: %u of %u compared, %u gradients\n", cases[c].mode, cases[c].model,
                        all.compared, all.weights, all.gradients);
        assert_true(all.compared >= 2); /* weight and bias, of the last step at least */
        assert_true(all.gradients >= cases[c].gradients);
        trial_fini(&t);
    }
}

static void histograms_of_nets(void **state)
{
    static const struct {
        const char *mode, *part;
        int servers, workers;
    } cases[] = {{"sync", "0", 1, 2}, {"sync", "512", 2, 2}, {"async", "512", 2, 1}, {"ssp", "0", 1, 1}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        trial t;
        trained r;
        unsigned n = 0, trainable = 0;
        begin(&t, cases[c].mode, cases[c].servers, cases[c].workers, "train-images-idx3-ubyte");
        trial_set(&t, "model", "net");
        trial_set(&t, "net", trial_path("norm.net"));
        trial_set(&t, "executor", EXECUTOR);
        trial_set(&t, "batch", "9");
        trial_set(&t, "part", cases[c].part);
        job_must_run(&t, NULL);
        seen all = check_events(&t, cases[c].workers, NULL);
        trained_load(&r, &t, t.train.run);
        n = r.assembly.params.n_views;
        for (uint32_t v = 0; v < n; v++)
            trainable += r.assembly.params.views[v].kind == MST_VIEW_TRAINABLE;
        if (all.compared < n || all.gradients < trainable)
            print_error("%s, part %s: %u of %u compared of %u views, %u gradients of %u\n", cases[c].mode,
                        cases[c].part, all.compared, all.weights, n, all.gradients, trainable);
        assert_true(all.compared >= n);
        assert_true(trainable < n && all.gradients >= trainable);
        assert_int_equal(all.gradients % trainable, 0); /* state is no gradient */
        trained_fini(&r);
        trial_fini(&t);
    }
}

/* The last step of a tag; 0: it is not there. Steps of a tag grow. */
static uint64_t last_step(const trial *t, const char *role, unsigned index, const char *tag)
{
    mst_bytes bytes = {0};
    size_t at = 0;
    uint64_t last = 0;
    event_message *e;
    if (!read_events(t, role, index, &bytes))
        return 0;
    for (; (e = next_event(&bytes, &at)) != NULL; muster_test__event__free_unpacked(e, NULL))
        for (size_t i = 0; e->summary != NULL && i < e->summary->n_value; i++) {
            if (strcmp(e->summary->value[i]->tag, tag) != 0)
                continue;
            if ((uint64_t)e->step <= last)
                fail_msg("%s-%u: %s: step %lld follows step %llu", role, index, tag, (long long)e->step,
                         (unsigned long long)last);
            last = (uint64_t)e->step;
        }
    mst_free(bytes.data);
    return last;
}

/* Points are where training is when they are made, on every server; and no step comes twice, though the chief
 * has nothing to do now and then. */
static void points_have_their_step(void **state)
{
    static const char *const modes[] = {"sync", "async", "ssp"};
    (void)state;
    for (size_t c = 0; c < sizeof modes / sizeof *modes; c++) {
        trial t;
        begin(&t, modes[c], 2, 3, "train.cache");
        trial_int(&t, "features", FEATURES);
        trial_set(&t, "model", "logreg");
        trial_set(&t, "batch", "5");
        trial_set(&t, "eval-every", "3 steps");
        job_must_run(&t, NULL);
        assert_int_equal(last_step(&t, "server", 1, "time/apply"), t.summary.status.step);
        assert_true(last_step(&t, "server", 0, "time/apply") > 0);
        for (unsigned w = 0; w < 3; w++) {
            (void)last_step(&t, "worker", w, "gradients/bias");
            (void)last_step(&t, "worker", w, "weights/bias");
            (void)last_step(&t, "worker", w, "time/compute");
        }
        trial_fini(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(points_have_their_step),
        cmocka_unit_test(histograms_of_linear_models),
        cmocka_unit_test(histograms_of_nets),
    };
    return cmocka_run_group_tests(tests, make_data, trial_remove_root);
}
