/* Specifics of the executor dnnl, compared with the plain one: layouts (channels that do not fill vectors,
 * groups, windows that do not divide), computing in place, batches smaller than its primitives, plain layers
 * among fast ones, the order of need and ready, threads inside and replicas side by side. The contract test
 * compares all executors on all layers. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "model/executor.h"
#include "model/layer_impl.h"
#include "random_rows.h"

extern const mst_executor mst_executor_plain, mst_executor_dnnl;

#define CLASSES 5

/* A net with weights, two gradients and rows. */
typedef struct trial {
    mst_chain *chain;
    mst_params params;
    mst_weights weights;
    mst_grad want, got;
    random_rows rows;
} trial;

static void trial_open(trial *t, const char *text, mst_dims in, uint32_t n_rows, row_kind kind)
{
    mst_range ranges[MST_RANGE_MAX];
    *t = (trial){0};
    if (mst_chain_parse(text, "test", &in, CLASSES, &t->chain) != MST_OK)
        fail_msg("%s", mst_error_text());
    assert_int_equal(mst_chain_declare(t->chain, &t->params), MST_OK);
    assert_int_equal(mst_params_reserve(&t->params, 0, 0), MST_OK);
    mst_chain_start(t->chain, &t->params, 3);
    for (uint32_t i = 0; i < t->chain->n_layers; i++) {
        const mst_layer *layer = t->chain->layers[i];
        for (uint32_t j = 0; j < layer->n_params; j++) {
            const mst_view *v = &t->params.views[layer->views[j]];
            ranges[layer->first_range + j] = (mst_range){.offset = v->offset, .size = v->size};
            t->weights.ranges[layer->first_range + j] = t->params.w + v->offset;
        }
    }
    assert_int_equal(mst_grad_init(&t->want, ranges, t->chain->n_ranges, 0, 0, 1), MST_OK);
    assert_int_equal(mst_grad_init(&t->got, ranges, t->chain->n_ranges, 0, 0, 1), MST_OK);
    t->rows = random_rows_make(&(rows_spec){.kind = kind,
                                            .n_rows = n_rows,
                                            .n_dense = (uint32_t)mst_dims_size(&in),
                                            .n_features = (uint32_t)mst_dims_size(&in),
                                            .n_classes = CLASSES,
                                            .weighted = true,
                                            .seed = 9});
}

static void trial_close(trial *t)
{
    random_rows_free(&t->rows);
    mst_grad_fini(&t->want);
    mst_grad_fini(&t->got);
    mst_params_fini(&t->params);
    mst_chain_destroy(t->chain);
}

static mst_replica *open_replica(const mst_executor *e, const trial *t, uint32_t max_rows, unsigned threads,
                                 bool training)
{
    mst_replica *replica = NULL;
    if (e->open(t->chain, mst_kernels_get(mst_isa_best()), max_rows, threads, training, &replica) != MST_OK)
        fail_msg("%s", mst_error_text());
    return replica;
}

/* Gradients start at the same values, to which both add. */
static void prime(mst_grad *grad)
{
    for (uint32_t r = 0; r < grad->n_ranges; r++)
        for (uint64_t i = 0; i < grad->ranges[r].size; i++)
            grad->ranges[r].g[i] = 0.01f * (float)(i % 5);
}

static void close_to(const char *what, const float *got, const float *want, uint64_t n)
{
    double scale = 0.05; /* sums of larger numbers may cancel out */
    for (uint64_t i = 0; i < n; i++)
        scale = fabs((double)want[i]) > scale ? fabs((double)want[i]) : scale;
    for (uint64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - (double)want[i]) <= 2e-5 * scale))
            fail_msg("%s: number %llu is %g, not %g (largest %g)", what, (unsigned long long)i,
                     (double)got[i], (double)want[i], scale);
}

/* Trains n rows on both executors and compares everything. */
static void compare(trial *t, mst_replica *plain, mst_replica *dnnl, uint32_t n, uint64_t step)
{
    mst_batch batch = {.rows = t->rows.rows, .n_rows = n};
    mst_pass pass = {.training = true, .seed = 7, .step = step, .first_row = 3};
    mst_loss_sum want = {0}, got = {0};
    prime(&t->want);
    prime(&t->got);
    assert_int_equal(mst_executor_plain.train(plain, &batch, &t->weights, &pass, 0.1f, &t->want, NULL, &want),
                     MST_OK);
    if (mst_executor_dnnl.train(dnnl, &batch, &t->weights, &pass, 0.1f, &t->got, NULL, &got) != MST_OK)
        fail_msg("%s", mst_error_text());
    assert_int_equal(want.rows, got.rows);
    assert_true(fabs(want.loss - got.loss) <= 1e-5 * fabs(want.loss));
    for (uint32_t i = 0; i < t->chain->n_layers; i++)
        for (uint32_t j = 0; j < t->chain->layers[i]->n_params; j++) {
            uint32_t r = t->chain->layers[i]->first_range + j;
            close_to(t->chain->layers[i]->name, t->got.ranges[r].g, t->want.ranges[r].g,
                     t->want.ranges[r].size);
        }
    float a[64 * CLASSES], b[64 * CLASSES];
    assert_int_equal(mst_executor_plain.forward(plain, &batch, &t->weights, a), MST_OK);
    assert_int_equal(mst_executor_dnnl.forward(dnnl, &batch, &t->weights, b), MST_OK);
    close_to("scores", b, a, n * CLASSES);
}

/* max_rows, then fewer, then max_rows again, with 1 and 2 threads; then a replica for inference. */
static void compare_all(const char *text, mst_dims in, uint32_t max_rows)
{
    trial t;
    trial_open(&t, text, in, max_rows, ROWS_DENSE);
    mst_replica *plain = open_replica(&mst_executor_plain, &t, max_rows, 1, true);
    for (unsigned threads = 1; threads <= 2; threads++) {
        mst_replica *dnnl = open_replica(&mst_executor_dnnl, &t, max_rows, threads, true);
        const uint32_t sizes[] = {max_rows, 1, max_rows / 2, max_rows};
        for (uint64_t i = 0; i < 4; i++)
            compare(&t, plain, dnnl, sizes[i], i);
        mst_executor_dnnl.close(dnnl);
    }
    mst_replica *infer = open_replica(&mst_executor_dnnl, &t, max_rows, 1, false);
    for (uint32_t n = max_rows; n > 0; n /= 3) {
        float a[64 * CLASSES], b[64 * CLASSES];
        mst_batch batch = {.rows = t.rows.rows, .n_rows = n};
        assert_int_equal(mst_executor_plain.forward(plain, &batch, &t.weights, a), MST_OK);
        assert_int_equal(mst_executor_dnnl.forward(infer, &batch, &t.weights, b), MST_OK);
        close_to("scores of inference", b, a, n * CLASSES);
    }
    mst_executor_dnnl.close(infer);
    mst_executor_plain.close(plain);
    trial_close(&t);
}

/* ---- tests ---- */

static void test_lenet(void **state)
{
    (void)state;
    compare_all("conv 6 kernel=5 pad=2\nrelu\navgpool kernel=2\nconv 16 kernel=5\ntanh\navgpool kernel=2\n"
                "linear 20\nrelu\nlinear classes\n",
                (mst_dims){1, 14, 14}, 6);
}

/* Channels in groups and full vectors, windows that leave a rest, lrn, dropout, no biases. */
static void test_alexnet_like(void **state)
{
    (void)state;
    compare_all("conv 32 kernel=5 stride=2 pad=2\nrelu\nlrn size=5 alpha=0.5 k=2\nmaxpool kernel=3 stride=2\n"
                "conv 64 kernel=3 pad=1 groups=2\nrelu\nlrn size=3 alpha=0.1\nmaxpool kernel=3 stride=2\n"
                "dropout 0.5\nlinear 48\nrelu\ndropout 0.3\nlinear 24 bias=false\nlinear classes\n",
                (mst_dims){3, 25, 23}, 5);
}

static void test_odd_channels(void **state)
{
    (void)state;
    compare_all("conv 7 kernel-h=3 kernel-w=2 bias=false\nsigmoid\nmaxpool kernel=2 pad=1\n"
                "conv 9 kernel=1\ntanh\nlrn size=3\nconv 5 kernel=2\nrelu\nmaxpool kernel=2 stride=1\n"
                "linear classes\n",
                (mst_dims){2, 9, 11}, 4);
}

/* Batch norm first, in the middle and after an inner product; the running values are checked as ranges. */
static void test_batchnorm(void **state)
{
    (void)state;
    compare_all("batchnorm\nconv 8 kernel=3 bias=false\nbatchnorm momentum=0.3\nrelu\nmaxpool\nlinear 12\n"
                "batchnorm eps=1e-3\ntanh\nlinear classes\n",
                (mst_dims){2, 8, 8}, 8);
}

/* Every way of computing in place, or not: functions after functions, dropout after and before them; lrn of
 * an even size is a plain layer among fast ones. */
static void test_in_place(void **state)
{
    (void)state;
    compare_all("relu\nconv 16 kernel=3\nrelu\nrelu\ndropout 0.4\nrelu\ntanh\ndropout 0.2\nsigmoid\ntanh\n"
                "lrn size=4 alpha=0.3\nrelu\nconv 4 kernel=2\ntanh\nrelu\nlinear classes\n",
                (mst_dims){1, 6, 6}, 4);
}

static void test_no_spatial(void **state)
{
    (void)state;
    compare_all("linear 33\nsigmoid\ndropout 0.5\nlinear classes\ntanh\n", (mst_dims){17, 1, 1}, 7);
}

static void test_rows_of_bytes(void **state)
{
    trial t;
    (void)state;
    trial_open(&t, "conv 16 kernel=3\nrelu\nlinear classes\n", (mst_dims){3, 7, 7}, 5, ROWS_BYTES);
    mst_replica *plain = open_replica(&mst_executor_plain, &t, 5, 1, true);
    mst_replica *dnnl = open_replica(&mst_executor_dnnl, &t, 5, 2, true);
    compare(&t, plain, dnnl, 5, 0);
    mst_executor_dnnl.close(dnnl);
    mst_executor_plain.close(plain);
    trial_close(&t);
}

/* A step that writes down who was needed and ready; the ranges' gradients may not change after ready. */
typedef struct watch {
    mst_step base;
    uint32_t needed[16], ready[16], n_needed, n_ready, stop_at;
} watch;

static mst_status watch_need(mst_step *self, uint32_t range)
{
    watch *w = (watch *)self;
    w->needed[w->n_needed++] = range;
    return MST_OK;
}

static mst_status watch_ready(mst_step *self, uint32_t range)
{
    watch *w = (watch *)self;
    w->ready[w->n_ready++] = range;
    return w->n_ready == w->stop_at ? mst_fail(MST_EPEER, "the test stops here") : MST_OK;
}

static void test_need_and_ready(void **state)
{
    trial t;
    (void)state;
    trial_open(&t,
               "conv 4 kernel=3\nrelu\nmaxpool\nconv 8 kernel=2 bias=false\nrelu\nlinear 6\nlinear classes\n",
               (mst_dims){1, 8, 8}, 3, ROWS_DENSE);
    mst_replica *dnnl = open_replica(&mst_executor_dnnl, &t, 3, 1, true);
    mst_batch batch = {.rows = t.rows.rows, .n_rows = 3};
    mst_pass pass = {.training = true};
    mst_loss_sum sum = {0};
    watch w = {.base = {.need = watch_need, .ready = watch_ready}};
    assert_int_equal(mst_executor_dnnl.train(dnnl, &batch, &t.weights, &pass, 1.0f, &t.got, &w.base, &sum),
                     MST_OK);
    assert_int_equal(w.n_needed, 7);
    assert_int_equal(w.n_ready, 7);
    for (uint32_t i = 0; i < 7; i++) {
        assert_int_equal(w.needed[i], i);
        assert_int_equal(w.ready[i], 6 - i);
    }
    w.n_ready = 0;
    w.n_needed = 0;
    w.stop_at = 2;
    assert_int_equal(mst_executor_dnnl.train(dnnl, &batch, &t.weights, &pass, 1.0f, &t.got, &w.base, &sum),
                     MST_EPEER);
    assert_int_equal(w.n_ready, 2);
    mst_executor_dnnl.close(dnnl);
    trial_close(&t);
}

/* Passes of one replica repeat bit for bit. */
static void test_repeats(void **state)
{
    trial t;
    (void)state;
    trial_open(&t, "conv 16 kernel=3\nrelu\nmaxpool\ndropout 0.5\nlinear 30\nrelu\nlinear classes\n",
               (mst_dims){3, 12, 12}, 8, ROWS_DENSE);
    mst_replica *a = open_replica(&mst_executor_dnnl, &t, 8, 2, true),
                *b = open_replica(&mst_executor_dnnl, &t, 8, 2, true);
    mst_batch batch = {.rows = t.rows.rows, .n_rows = 8};
    mst_pass pass = {.training = true, .seed = 1};
    mst_loss_sum first = {0}, second = {0};
    prime(&t.want);
    prime(&t.got);
    assert_int_equal(mst_executor_dnnl.train(a, &batch, &t.weights, &pass, 1.0f, &t.want, NULL, &first),
                     MST_OK);
    assert_int_equal(mst_executor_dnnl.train(b, &batch, &t.weights, &pass, 1.0f, &t.got, NULL, &second),
                     MST_OK);
    assert_true(first.loss == second.loss);
    for (uint32_t r = 0; r < t.want.n_ranges; r++)
        assert_memory_equal(t.want.ranges[r].g, t.got.ranges[r].g, t.want.ranges[r].size * sizeof(float));
    mst_executor_dnnl.close(a);
    mst_executor_dnnl.close(b);
    trial_close(&t);
}

/* A replica in a thread of its own, trained some steps. */
typedef struct lane {
    trial *t;
    mst_grad grad;
    mst_loss_sum sum;
    pthread_t thread;
} lane;

static void *lane_run(void *arg)
{
    lane *l = arg;
    mst_batch batch = {.rows = l->t->rows.rows, .n_rows = 4};
    mst_replica *replica = NULL;
    if (mst_executor_dnnl.open(l->t->chain, mst_kernels_get(mst_isa_best()), 4, 1, true, &replica) != MST_OK)
        return "open";
    for (uint64_t step = 0; step < 5; step++) {
        mst_pass pass = {.training = true, .step = step};
        mst_grad_clear(&l->grad);
        l->sum = (mst_loss_sum){0};
        if (mst_executor_dnnl.train(replica, &batch, &l->t->weights, &pass, 1.0f, &l->grad, NULL, &l->sum) !=
            MST_OK)
            return "train";
    }
    mst_executor_dnnl.close(replica);
    return NULL;
}

static void test_side_by_side(void **state)
{
    enum { LANES = 3 };
    trial t;
    lane lanes[LANES] = {0};
    (void)state;
    trial_open(&t, "conv 16 kernel=3\nrelu\nmaxpool\nconv 16 kernel=3\ndropout 0.5\nlinear classes\n",
               (mst_dims){3, 12, 12}, 4, ROWS_DENSE);
    for (int i = 0; i < LANES; i++) {
        lanes[i].t = &t;
        assert_int_equal(mst_grad_init(&lanes[i].grad, t.want.ranges, t.want.n_ranges, 0, 0, 1), MST_OK);
        assert_int_equal(pthread_create(&lanes[i].thread, NULL, lane_run, &lanes[i]), 0);
    }
    for (int i = 0; i < LANES; i++) {
        void *failed;
        pthread_join(lanes[i].thread, &failed);
        assert_null(failed);
    }
    for (int i = 1; i < LANES; i++) {
        assert_true(lanes[i].sum.loss == lanes[0].sum.loss);
        for (uint32_t r = 0; r < t.want.n_ranges; r++)
            assert_memory_equal(lanes[i].grad.ranges[r].g, lanes[0].grad.ranges[r].g,
                                t.want.ranges[r].size * sizeof(float));
    }
    for (int i = 0; i < LANES; i++)
        mst_grad_fini(&lanes[i].grad);
    trial_close(&t);
}

/* Every allocation of open, failing in turn, ends in MST_ENOMEM and leaves nothing. */
static void test_no_memory(void **state)
{
    trial t;
    (void)state;
    trial_open(&t, "conv 8 kernel=3\nrelu\nmaxpool\nbatchnorm\nlinear classes\n", (mst_dims){1, 8, 8}, 2,
               ROWS_DENSE);
    mst_alloc_stats before, after;
    mst_alloc_stats_get(&before);
    for (uint64_t k = 1;; k++) {
        mst_replica *replica = NULL;
        mst_alloc_fail_at(k);
        mst_status st =
            mst_executor_dnnl.open(t.chain, mst_kernels_get(mst_isa_best()), 2, 1, true, &replica);
        mst_alloc_fail_at(0);
        if (st == MST_OK) {
            mst_executor_dnnl.close(replica);
            assert_true(k > 5);
            break;
        }
        assert_int_equal(st, MST_ENOMEM);
        assert_null(replica);
    }
    mst_alloc_stats_get(&after);
    assert_int_equal(before.blocks, after.blocks);
    trial_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lenet),         cmocka_unit_test(test_alexnet_like),
        cmocka_unit_test(test_odd_channels),  cmocka_unit_test(test_batchnorm),
        cmocka_unit_test(test_in_place),      cmocka_unit_test(test_no_spatial),
        cmocka_unit_test(test_rows_of_bytes), cmocka_unit_test(test_need_and_ready),
        cmocka_unit_test(test_repeats),       cmocka_unit_test(test_side_by_side),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("exec_dnnl", tests, NULL, NULL);
}
