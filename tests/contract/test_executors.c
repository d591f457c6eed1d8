/* The contract of executors, over the registry, every instruction set and nets of every kind of layer with
 * odd sizes. Scores, losses and gradients equal those of the plain executor for any number of rows. Gradients
 * are added to the given ones. Every range is requested once before and reported once after, the last layers
 * first. Dropout drops the same units for any division of a batch. Inference skips dropout. */
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "model/executor.h"
#include "random_rows.h"

#define MAX_ROWS 37

typedef struct sample {
    const char *name;
    mst_dims in;
    uint32_t n_classes;
    const char *text;
} sample;

static const sample samples[] = {
    {"lenet", {1, 28, 28}, 10, NULL}, /* texts from mst_known_nets */
    {"lenet-small", {1, 28, 28}, 10, NULL},
    {"mlp", {1, 28, 28}, 10, NULL},
    {"tanh",
     {1, 13, 11},
     7,
     "conv 5 kernel=3 pad=1\ntanh\nmaxpool kernel=2\nconv 9 kernel-h=3 kernel-w=2 bias=false\ntanh\n"
     "linear 19\nsigmoid\nlinear classes\n"},
    {"strides",
     {3, 17, 19},
     5,
     "conv 7 kernel=5 stride=2 pad=3\nrelu\nmaxpool kernel=3 stride=2 pad=1\nconv 17 kernel=3 pad=1\nrelu\n"
     "avgpool kernel=3 stride=2 pad=1\nlinear classes bias=false\n"},
    {"groups",
     {6, 9, 9},
     3,
     "conv 12 kernel=3 groups=3 pad=1\nrelu\nconv 18 kernel=2 stride=3 groups=6\ntanh\nlinear 33\nrelu\n"
     "linear classes\n"},
    {"far padding",
     {2, 5, 6},
     4,
     "conv 3 kernel=2 pad=4 stride=3\nsigmoid\nconv 2 kernel=7 pad=3\nlinear classes\n"},
    {"wide kernels",
     {2, 16, 18},
     4,
     "conv 6 kernel=11 stride=2 pad=5\nrelu\nconv 4 kernel=7 pad=2\nrelu\nlinear classes\n"},
    {"overlap",
     {3, 15, 15},
     4,
     "conv 4 kernel=1\ntanh\nmaxpool kernel=3 stride=1\navgpool kernel=2 stride=3\nrelu\ntanh\nlinear "
     "classes\n"},
    {"gaps",
     {2, 11, 11},
     4,
     "conv 4 kernel=3\nmaxpool kernel=2 stride=4\nsigmoid\nconv 3 kernel=1\navgpool kernel=1 stride=2\n"
     "linear classes\n"},
    {"normalised",
     {3, 12, 12},
     6,
     "conv 8 kernel=3\nrelu\nlrn size=5 alpha=1e-1 beta=0.75 k=2\nmaxpool kernel=2\nlrn size=2\nlinear "
     "classes\n"},
    {"dropout",
     {2, 8, 8},
     5,
     "dropout 0.2\nconv 6 kernel=3\nrelu\ndropout 0.3\nlinear 21\ntanh\ndropout 0.5\nlinear classes\n"},
    {"first things", {2, 10, 10}, 4, "sigmoid\navgpool kernel=2\nlinear 8\nlinear classes\nrelu\n"},
    {"many channels", /* enough for Winograd's algorithm in oneDNN */
     {2, 5, 6},
     4,
     "conv 64 kernel=1\ntanh\nconv 64 kernel=3 pad=1\ntanh\nlinear classes\n"},
    {"wide", {1100, 1, 1}, 3, "linear 520\ntanh\nlinear classes\n"}, /* products in parts */
    {"plain numbers", {53, 1, 1}, 3, "linear 65\nrelu\nlinear 1\nsigmoid\nlinear classes\n"},
};
#define N_SAMPLES (sizeof samples / sizeof *samples)

/* A net with weights and rows. */
typedef struct bench {
    const char *name;
    mst_chain *chain;
    mst_params params;
    mst_weights weights;
    random_rows rows;
} bench;

static const char *text_of(const sample *s)
{
    if (s->text != NULL)
        return s->text;
    for (const mst_known_net *known = mst_known_nets; known->name != NULL; known++)
        if (strcmp(known->name, s->name) == 0)
            return known->text;
    fail_msg("no net is called %s", s->name);
    return NULL;
}

static bench bench_make(const sample *s, row_kind kind, bool weighted)
{
    bench b = {.name = s->name};
    uint32_t size = (uint32_t)mst_dims_size(&s->in);
    bool keys = kind != ROWS_DENSE && kind != ROWS_BYTES;
    rows_spec spec = {.kind = kind,
                      .n_rows = MAX_ROWS,
                      .n_dense = keys ? size / 2 : size,
                      .n_features = size,
                      .n_keys = size / 3,
                      .n_classes = s->n_classes,
                      .weighted = weighted,
                      .seed = 11};
    assert_int_equal(mst_chain_parse(text_of(s), s->name, &s->in, s->n_classes, &b.chain), MST_OK);
    assert_int_equal(mst_chain_declare(b.chain, &b.params), MST_OK);
    assert_int_equal(mst_params_reserve(&b.params, 0, 0), MST_OK);
    mst_chain_start(b.chain, &b.params, 5);
    mst_rng rng;
    mst_rng_init(&rng, 5, MST_RNG_TEST, 1);
    for (uint32_t i = 0; i < b.params.n_views; i++) {
        const mst_view *view = &b.params.views[i];
        b.weights.ranges[i] = b.params.w + view->offset;
        for (uint64_t j = 0; view->n_dims == 1 && j < view->size; j++) /* biases are not zero */
            b.weights.ranges[i][j] += 0.1f * (float)mst_rng_normal(&rng);
    }
    assert_int_equal(b.params.n_views, b.chain->n_ranges);
    b.rows = random_rows_make(&spec);
    return b;
}

static void bench_free(bench *b)
{
    random_rows_free(&b->rows);
    mst_params_fini(&b->params);
    mst_chain_destroy(b->chain);
}

static mst_grad grad_make(const bench *b, float start)
{
    mst_grad grad;
    mst_range ranges[MST_RANGE_MAX] = {0};
    for (uint32_t i = 0; i < b->params.n_views; i++)
        ranges[i] = (mst_range){.offset = b->params.views[i].offset, .size = b->params.views[i].size};
    assert_int_equal(mst_grad_init(&grad, ranges, b->params.n_views, 0, 0, 1), MST_OK);
    for (uint32_t i = 0; i < grad.n_ranges; i++)
        for (uint64_t j = 0; j < grad.ranges[i].size; j++)
            grad.ranges[i].g[j] = start;
    return grad;
}

/* Counts what an executor asks for and reports. */
typedef struct watch {
    mst_step base;
    uint32_t needs[MST_RANGE_MAX], readies[MST_RANGE_MAX];
    uint32_t last_ready;
    bool in_order;
} watch;

static mst_status watch_need(mst_step *step, uint32_t range)
{
    watch *self = (watch *)step;
    self->needs[range]++;
    return MST_OK;
}

static mst_status watch_ready(mst_step *step, uint32_t range)
{
    watch *self = (watch *)step;
    self->in_order = self->in_order && self->needs[range] == 1 && range < self->last_ready;
    self->last_ready = range;
    self->readies[range]++;
    return MST_OK;
}

static const mst_pass training = {.training = true, .seed = 3, .step = 7, .first_row = 1000};

/* Trains on rows [from, from + n) of the bench. */
static void train(const bench *b, mst_replica *replica, uint32_t from, uint32_t n, mst_grad *grad,
                  mst_loss_sum *sum)
{
    watch step = {
        .base = {.need = watch_need, .ready = watch_ready}, .last_ready = UINT32_MAX, .in_order = true};
    mst_batch batch = {.rows = b->rows.rows + from, .n_rows = n};
    mst_pass pass = training;
    pass.first_row += from;
    assert_int_equal(
        replica->executor->train(replica, &batch, &b->weights, &pass, 0.25f, grad, &step.base, sum), MST_OK);
    assert_true(step.in_order);
    for (uint32_t i = 0; i < grad->n_ranges; i++) {
        assert_int_equal(step.needs[i], 1);
        assert_int_equal(step.readies[i], 1);
    }
}

/* ||a - b|| <= tolerance ||b||, with something for numbers that are zero. */
static void near(const char *what, const char *net, const mst_replica *replica, uint32_t n_rows,
                 const float *a, const float *b, uint64_t n, double tolerance)
{
    double difference = 0.0, norm = 0.0;
    for (uint64_t i = 0; i < n; i++) {
        difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        norm += (double)b[i] * (double)b[i];
    }
    if (!(sqrt(difference) <= tolerance * sqrt(norm) + 1e-7))
        fail_msg("%s, %u rows, %s by %s (%s): off by %g of %g", net, n_rows, what, replica->executor->name,
                 mst_isa_name(replica->kernels->isa), sqrt(difference), sqrt(norm));
}

static mst_replica *open_replica(const bench *b, const mst_executor *executor, mst_isa isa,
                                 unsigned n_threads, bool is_training)
{
    mst_replica *replica;
    assert_int_equal(
        executor->open(b->chain, mst_kernels_get(isa), MAX_ROWS, n_threads, is_training, &replica), MST_OK);
    return replica;
}

static const mst_executor *plain_executor(void)
{
    for (size_t i = 0; mst_executors[i] != NULL; i++)
        if (strcmp(mst_executors[i]->name, "plain") == 0)
            return mst_executors[i];
    fail_msg("there is no executor plain");
    return NULL;
}

static void compare_training(const bench *b, mst_replica *replica, mst_replica *plain, uint32_t n)
{
    mst_grad grad = grad_make(b, 0.5f), expected = grad_make(b, 0.0f);
    mst_loss_sum sum = {.loss = 1.0, .weight = 2.0, .rows = 3}, plain_sum = sum;
    train(b, replica, 0, n, &grad, &sum);
    train(b, plain, 0, n, &expected, &plain_sum);
    assert_int_equal(sum.rows, plain_sum.rows);
    assert_float_equal(sum.weight, plain_sum.weight, 1e-9);
    assert_float_equal(sum.loss, plain_sum.loss, 1e-4 * (1.0 + plain_sum.loss));
    for (uint32_t i = 0; i < grad.n_ranges; i++) {
        for (uint64_t j = 0; j < grad.ranges[i].size; j++)
            grad.ranges[i].g[j] -= 0.5f; /* what was there */
        double rounding = 3e-7 * sqrt((double)grad.ranges[i].size), norm = 0.0;
        for (uint64_t j = 0; j < grad.ranges[i].size; j++)
            norm += (double)expected.ranges[i].g[j] * (double)expected.ranges[i].g[j];
        near(b->params.views[i].name, b->name, replica, n, grad.ranges[i].g, expected.ranges[i].g,
             grad.ranges[i].size, 1e-4 + rounding / (sqrt(norm) + 1e-30));
    }
    mst_grad_fini(&grad);
    mst_grad_fini(&expected);
}

static void compare_scores(const bench *b, mst_replica *replica, mst_replica *plain, uint32_t n)
{
    static float scores[MAX_ROWS * 16], expected[MAX_ROWS * 16];
    const mst_layer *last = b->chain->layers[b->chain->n_layers - 1];
    mst_batch batch = {.rows = b->rows.rows, .n_rows = n};
    memset(scores, 0x7f, sizeof scores);
    assert_int_equal(replica->executor->forward(replica, &batch, &b->weights, scores), MST_OK);
    assert_int_equal(plain->executor->forward(plain, &batch, &b->weights, expected), MST_OK);
    near("scores", b->name, replica, n, scores, expected, n * mst_dims_size(&last->out), 1e-5);
}

static void compare(const bench *b, const mst_executor *executor, mst_isa isa, unsigned n_threads)
{
    static const uint32_t counts[] = {1, 4, 16, MAX_ROWS, 15};
    if (executor->can(b->chain) != MST_OK)
        return;
    mst_replica *replica = open_replica(b, executor, isa, n_threads, true);
    mst_replica *inference = open_replica(b, executor, isa, n_threads, false);
    mst_replica *plain = open_replica(b, plain_executor(), isa, 1, true);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        compare_training(b, replica, plain, counts[i]);
        compare_scores(b, inference, plain, counts[i]);
        compare_scores(b, replica, plain, counts[i]);
    }
    executor->close(replica);
    executor->close(inference);
    plain->executor->close(plain);
}

static void equals_plain(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_SAMPLES; s++) {
        bench b = bench_make(&samples[s], s % 2 == 0 ? ROWS_BYTES : ROWS_DENSE, s % 3 == 0);
        for (size_t i = 0; mst_executors[i] != NULL; i++) {
            for (mst_isa isa = 0; isa < MST_ISA_COUNT; isa++)
                if (mst_isa_supported(isa))
                    compare(&b, mst_executors[i], isa, 1);
            for (unsigned n = 2; mst_executors[i]->threads && n <= 4; n += 2) /* 4: in parts */
                compare(&b, mst_executors[i], mst_isa_best(), n);
        }
        bench_free(&b);
    }
}

static void takes_rows_of_every_kind(void **state)
{
    (void)state;
    for (row_kind kind = 0; kind < ROWS_KINDS; kind++) {
        bench b = bench_make(&samples[3], kind, true);
        for (size_t i = 0; mst_executors[i] != NULL; i++)
            compare(&b, mst_executors[i], mst_isa_best(), 1);
        bench_free(&b);
    }
}

/* Batch norm too: every executor either does it or says why not. */
static void says_what_it_cannot(void **state)
{
    (void)state;
    sample s = {"batch norm", {2, 9, 9}, 4, "conv 6 kernel=3\nbatchnorm\nrelu\nlinear classes\n"};
    bench b = bench_make(&s, ROWS_DENSE, false);
    for (size_t i = 0; mst_executors[i] != NULL; i++)
        if (mst_executors[i]->can(b.chain) != MST_OK) {
            assert_non_null(strstr(mst_error_text(), mst_executors[i]->name));
            assert_non_null(strstr(mst_error_text(), "batchnorm"));
        }
    bench_free(&b);
}

/* Two shares of a batch give the result of the whole: rows are identified by their position in the batch. */
static void parts_add_up(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_SAMPLES; s++) {
        bench b = bench_make(&samples[s], ROWS_DENSE, false);
        for (size_t i = 0; mst_executors[i] != NULL; i++) {
            if (mst_executors[i]->can(b.chain) != MST_OK)
                continue;
            mst_replica *replica = open_replica(&b, mst_executors[i], mst_isa_best(), 1, true);
            mst_grad whole = grad_make(&b, 0.0f), parts = grad_make(&b, 0.0f);
            mst_loss_sum whole_sum = {0}, parts_sum = {0};
            train(&b, replica, 0, MAX_ROWS, &whole, &whole_sum);
            train(&b, replica, 0, 18, &parts, &parts_sum);
            train(&b, replica, 18, MAX_ROWS - 18, &parts, &parts_sum);
            assert_float_equal(whole_sum.loss, parts_sum.loss, 1e-5 * whole_sum.loss);
            for (uint32_t r = 0; r < whole.n_ranges; r++)
                near(b.params.views[r].name, b.name, replica, MAX_ROWS, parts.ranges[r].g, whole.ranges[r].g,
                     whole.ranges[r].size, 1e-5);
            mst_grad_fini(&whole);
            mst_grad_fini(&parts);
            mst_executors[i]->close(replica);
        }
        bench_free(&b);
    }
}

/* A fresh gradient becomes what a cleared one does, whatever it held, and is added to after that. */
static void overwrites_what_is_fresh(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_SAMPLES; s++) {
        bench b = bench_make(&samples[s], ROWS_DENSE, false);
        for (size_t i = 0; mst_executors[i] != NULL; i++) {
            if (!mst_executors[i]->overwrites || mst_executors[i]->can(b.chain) != MST_OK)
                continue;
            mst_replica *replica = open_replica(&b, mst_executors[i], mst_isa_best(), 2, true);
            mst_grad cleared = grad_make(&b, 0.0f), fresh = grad_make(&b, NAN);
            mst_loss_sum sum = {0};
            mst_grad_renew(&fresh);
            train(&b, replica, 0, 18, &cleared, &sum);
            train(&b, replica, 18, MAX_ROWS - 18, &cleared, &sum);
            train(&b, replica, 0, 18, &fresh, &sum);
            assert_false(fresh.fresh);
            train(&b, replica, 18, MAX_ROWS - 18, &fresh, &sum);
            for (uint32_t r = 0; r < fresh.n_ranges; r++)
                for (uint64_t j = 0; j < fresh.ranges[r].size; j++)
                    assert_true(fresh.ranges[r].g[j] == cleared.ranges[r].g[j]);
            mst_grad_fini(&cleared);
            mst_grad_fini(&fresh);
            mst_executors[i]->close(replica);
        }
        bench_free(&b);
    }
}

static void count_part(void *arg, unsigned i)
{
    atomic_fetch_add((atomic_uint *)arg + i, 1);
}

/* Every part is done once. */
static void runs_every_part(void **state)
{
    (void)state;
    bench b = bench_make(&samples[0], ROWS_DENSE, false);
    for (size_t i = 0; mst_executors[i] != NULL; i++) {
        atomic_uint done[5] = {0};
        if (mst_executors[i]->each == NULL || mst_executors[i]->can(b.chain) != MST_OK)
            continue;
        mst_replica *replica = open_replica(&b, mst_executors[i], mst_isa_best(), 2, true);
        mst_executors[i]->each(replica, 5, count_part, done);
        for (unsigned k = 0; k < 5; k++)
            assert_int_equal(done[k], 1);
        mst_executors[i]->close(replica);
    }
    bench_free(&b);
}

/* Threads that assist a replica. */
typedef struct helpers {
    mst_replica *replica;
    atomic_uint parts;
    atomic_bool over;
    pthread_t threads[2];
} helpers;

static void *helper_main(void *arg)
{
    helpers *self = arg;
    while (!atomic_load(&self->over))
        if (self->replica->executor->assist(self->replica))
            atomic_fetch_add(&self->parts, 1);
        else
            sched_yield();
    return NULL;
}

static void helpers_start(helpers *self, mst_replica *replica)
{
    *self = (helpers){.replica = replica};
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&self->threads[i], NULL, helper_main, self), 0);
}

static unsigned helpers_end(helpers *self)
{
    atomic_store(&self->over, true);
    for (size_t i = 0; i < 2; i++)
        pthread_join(self->threads[i], NULL);
    return atomic_load(&self->parts);
}

/* Returns the parts that other threads have computed. */
static unsigned same_bits(const bench *b, const mst_executor *executor, bool assisted)
{
    unsigned parts = 0;
    helpers team;
    mst_replica *one = open_replica(b, executor, mst_isa_best(), 1, true);
    mst_replica *other = open_replica(b, executor, mst_isa_best(), assisted ? 2 : 1, true);
    if (assisted)
        helpers_start(&team, other);
    mst_grad first = grad_make(b, 0.0f), second = grad_make(b, 0.0f), between = grad_make(b, 0.0f);
    mst_loss_sum first_sum = {0}, second_sum = {0}, between_sum = {0};
    train(b, one, 0, MAX_ROWS, &first, &first_sum);
    train(b, other, 3, 20, &between, &between_sum);
    train(b, other, 0, MAX_ROWS, &second, &second_sum);
    if (assisted)
        parts = helpers_end(&team);
    assert_true(first_sum.loss == second_sum.loss);
    for (uint32_t r = 0; r < first.n_ranges; r++)
        assert_memory_equal(first.ranges[r].g, second.ranges[r].g, first.ranges[r].size * sizeof(float));
    mst_grad_fini(&first);
    mst_grad_fini(&second);
    mst_grad_fini(&between);
    executor->close(one);
    executor->close(other);
    return parts;
}

/* The same batch gives the same bits, also if other threads assist. */
static void repeats(void **state)
{
    unsigned parts = 0;
    (void)state;
    for (size_t s = 0; s < N_SAMPLES; s++) {
        bench b = bench_make(&samples[s], ROWS_BYTES, false);
        for (size_t i = 0; mst_executors[i] != NULL; i++) {
            if (mst_executors[i]->can(b.chain) != MST_OK)
                continue;
            same_bits(&b, mst_executors[i], false);
            assert_true(mst_executors[i]->crew < 2 || mst_executors[i]->assist != NULL);
            if (mst_executors[i]->assist != NULL)
                parts += same_bits(&b, mst_executors[i], true);
        }
        bench_free(&b);
    }
    assert_true(parts > 0);
}

/* Whatever allocation fails, open says so and leaves nothing behind; a pass allocates nothing. */
static void bears_failed_allocations(void **state)
{
    (void)state;
    for (size_t s = 0; s < N_SAMPLES; s++) {
        bench b = bench_make(&samples[s], ROWS_DENSE, false);
        mst_grad grad = grad_make(&b, 0.0f);
        for (size_t i = 0; mst_executors[i] != NULL; i++) {
            mst_alloc_stats before, after;
            mst_replica *replica = NULL;
            mst_status st = mst_executors[i]->can(b.chain);
            if (st != MST_OK)
                continue;
            mst_alloc_stats_get(&before);
            for (uint64_t k = 1; replica == NULL; k++) {
                mst_alloc_fail_at(k);
                st = mst_executors[i]->open(b.chain, mst_kernels_get(mst_isa_best()), MAX_ROWS, 1, true,
                                            &replica);
                mst_alloc_fail_at(0);
                assert_int_equal(st, replica != NULL ? MST_OK : MST_ENOMEM);
                mst_alloc_stats_get(&after);
                assert_true(replica != NULL || after.blocks == before.blocks);
            }
            mst_loss_sum sum = {0};
            mst_alloc_stats_get(&before);
            train(&b, replica, 0, MAX_ROWS, &grad, &sum);
            mst_alloc_stats_get(&after);
            assert_int_equal(after.calls, before.calls);
            mst_executors[i]->close(replica);
        }
        mst_grad_fini(&grad);
        bench_free(&b);
    }
}

/* Threads that wait for each other inside of primitives must not hold the cores of a busy machine; OpenMP
 * reads that before main. */
static void wait_passively(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") != NULL)
        return;
    setenv("OMP_WAIT_POLICY", "passive", 1);
    execv("/proc/self/exe", argv);
}

int main(int argc, char **argv)
{
    (void)argc;
    wait_passively(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_plain),
        cmocka_unit_test(takes_rows_of_every_kind),
        cmocka_unit_test(parts_add_up),
        cmocka_unit_test(repeats),
        cmocka_unit_test(overwrites_what_is_fresh),
        cmocka_unit_test(runs_every_part),
        cmocka_unit_test(says_what_it_cannot),
        cmocka_unit_test(bears_failed_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
