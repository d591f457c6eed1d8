/* The evaluator: figures against direct sums, the same bits for any number of threads and when run again,
 * first rows and held-out rows, and failures of the data. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fake_dataset.h"
#include "train/assembly.h"
#include "train/evaluate.h"

#define N_ROWS 1000

typedef struct bench {
    fake_dataset *data;
    mst_assembly assembly;
} bench;

/* Row i has key FAKE_KEY + i and label i % 2; its weight is -2 .. 2 by number. */
static float weight_of(uint64_t row)
{
    return (float)(row * 7919 % 401) / 100.0f - 2.0f;
}

static void bench_init(bench *b, fake_kind kind)
{
    mst_model_options options = {.bias = true, .pos_weight = 1.0};
    mst_shape shape = {.n_features = FAKE_KEY + N_ROWS, .n_classes = 2};
    b->data = fake_new(kind, N_ROWS, 64, NULL, NULL);
    assert_int_equal(mst_assembly_init(&b->assembly, &options, &shape, mst_kernels_get(mst_isa_best()),
                                       &(mst_store_spec){0}, 1),
                     MST_OK);
    float *w = b->assembly.params.w + mst_params_find(&b->assembly.params, "weight")->offset;
    for (uint64_t i = 0; i < N_ROWS; i++)
        w[FAKE_KEY + i] = weight_of(i);
    b->assembly.params.w[mst_params_find(&b->assembly.params, "bias")->offset] = 0.125f;
}

static void bench_fini(bench *b)
{
    mst_dataset_destroy(&b->data->base);
    mst_assembly_fini(&b->assembly);
}

static mst_status evaluate(bench *b, const mst_evaluator_options *options, mst_result *out)
{
    mst_evaluator *e = NULL;
    if (!b->data->base.random) /* an evaluator begins with a stream as it stands */
        assert_int_equal(fake_rewind(&b->data->base), MST_OK);
    assert_int_equal(mst_evaluator_new(b->assembly.model, &b->assembly.params, &b->data->base, options, &e),
                     MST_OK);
    mst_result first = {0};
    mst_status st = mst_evaluator_run(e, &first);
    if (st == MST_OK) { /* again: nothing is left of the first time */
        assert_int_equal(mst_evaluator_run(e, out), MST_OK);
        assert_int_equal(out->rows, first.rows);
        assert_true(out->rows == 0 || (out->loss == first.loss && out->accuracy == first.accuracy));
        assert_true(out->seconds >= 0.0);
    }
    mst_evaluator_destroy(e);
    return st;
}

static void figures(void **state)
{
    (void)state;
    double loss = 0.0, correct = 0.0, wins = 0.0;
    for (uint64_t i = 0; i < N_ROWS; i++) {
        double m = 0.125 + (double)weight_of(i);
        loss += log1p(exp(i % 2 ? -m : m));
        correct += (m > 0.0) == (i % 2 == 1);
        for (uint64_t j = 0; i % 2 && j < N_ROWS; j += 2)
            wins += weight_of(i) > weight_of(j) ? 1.0 : weight_of(i) == weight_of(j) ? 0.5 : 0.0;
    }
    for (fake_kind kind = 0; kind < FAKE_KINDS; kind++) {
        bench b;
        mst_result first = {0}, r;
        bench_init(&b, kind);
        for (unsigned threads = 1; threads <= 4; threads++)
            for (uint32_t batch = 1; batch <= 2048; batch = batch * 9 + 1) {
                mst_evaluator_options options = {.n_threads = threads, .batch = batch};
                assert_int_equal(evaluate(&b, &options, &r), MST_OK);
                assert_int_equal(r.rows, N_ROWS);
                assert_true(fabs(r.loss - loss / N_ROWS) < 1e-6);
                assert_true(r.accuracy == correct / N_ROWS);
                assert_true(fabs(r.auc - wins / (N_ROWS * N_ROWS / 4.0)) < 1e-3);
                if (batch == 10 && threads == 1)
                    first = r;
                if (batch == 10)
                    assert_true(r.loss == first.loss && r.auc == first.auc);
            }
        bench_fini(&b);
    }
}

typedef struct heard {
    uint64_t n, rows, correct;
} heard;

static void hear(void *arg, uint64_t rows, uint64_t correct)
{
    heard *h = arg;
    assert_true(rows > h->rows && rows - h->rows <= 64);
    assert_true(correct >= h->correct && correct - h->correct <= rows - h->rows);
    *h = (heard){.n = h->n + 1, .rows = rows, .correct = correct};
}

/* The progress callback receives every batch, and at the end the figures of the result. */
static void progress_is_told(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 3; threads++) {
        bench b;
        mst_evaluator *e = NULL;
        mst_evaluator_options options = {.n_threads = threads, .batch = 64};
        heard h = {0};
        mst_result r;
        bench_init(&b, 0);
        assert_int_equal(mst_evaluator_new(b.assembly.model, &b.assembly.params, &b.data->base, &options, &e),
                         MST_OK);
        mst_evaluator_on_progress(e, hear, &h);
        for (int again = 0; again < 2; again++) {
            h = (heard){0};
            assert_int_equal(mst_evaluator_run(e, &r), MST_OK);
            assert_int_equal(h.n, (N_ROWS + 63) / 64);
            assert_int_equal(h.rows, N_ROWS);
            assert_true((double)h.correct / N_ROWS == r.accuracy);
        }
        mst_evaluator_on_progress(e, NULL, NULL);
        assert_int_equal(mst_evaluator_run(e, &r), MST_OK);
        assert_int_equal(h.n, (N_ROWS + 63) / 64);
        mst_evaluator_destroy(e);
        bench_fini(&b);
    }
}

static void first_rows(void **state)
{
    (void)state;
    bench b;
    mst_result r;
    bench_init(&b, FAKE_STREAM);
    for (unsigned threads = 1; threads <= 3; threads++) {
        mst_evaluator_options options = {.n_threads = threads, .batch = 50, .first_rows = 333};
        double loss = 0.0;
        for (uint64_t i = 0; i < 333; i++) {
            double m = 0.125 + (double)weight_of(i);
            loss += log1p(exp(i % 2 ? -m : m));
        }
        assert_int_equal(evaluate(&b, &options, &r), MST_OK);
        assert_int_equal(r.rows, 333);
        assert_true(fabs(r.loss - loss / 333) < 1e-6);
    }
    bench_fini(&b);
}

/* Both sides of a hold-out are all rows; which rows is the seed's choice alone. */
static void held_out(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, FAKE_COSTLY);
    mst_result out, in, again, other;
    mst_evaluator_options options = {.n_threads = 2, .batch = 64, .valid_seed = 5, .held_out = 0.3};
    options.keep = MST_KEEP_HELD_OUT;
    assert_int_equal(evaluate(&b, &options, &out), MST_OK);
    assert_int_equal(evaluate(&b, &options, &again), MST_OK);
    options.keep = MST_KEEP_TRAINING;
    assert_int_equal(evaluate(&b, &options, &in), MST_OK);
    assert_true(out.rows > 200 && out.rows < 400);
    assert_int_equal(out.rows + in.rows, N_ROWS);
    assert_true(out.loss == again.loss);
    options.keep = MST_KEEP_HELD_OUT;
    options.valid_seed = 6;
    assert_int_equal(evaluate(&b, &options, &other), MST_OK);
    assert_true(other.loss != out.loss);
    bench_fini(&b);
}

static void failures(void **state)
{
    (void)state;
    mst_result r;
    for (unsigned threads = 1; threads <= 3; threads++) {
        mst_evaluator_options options = {.n_threads = threads, .batch = 16};
        for (fake_kind kind = 0; kind < FAKE_KINDS; kind++) {
            bench b;
            bench_init(&b, kind);
            b.data->fail_chunk = 7;
            assert_int_equal(evaluate(&b, &options, &r), MST_EINPUT);
            assert_string_equal(mst_error_text(), "fake.data: chunk 7 is broken");
            bench_fini(&b);
        }
    }
}

/* On a stop request, the evaluation of a stream without further rows ends. */
static void stop(void **state)
{
    (void)state;
    bench b;
    mst_result r;
    atomic_bool asked = true;
    mst_evaluator *e = NULL;
    mst_evaluator_options options = {.n_threads = 2, .batch = 16, .stop = &asked};
    bench_init(&b, FAKE_STREAM);
    b.data->block_chunk = 3;
    assert_int_equal(mst_evaluator_new(b.assembly.model, &b.assembly.params, &b.data->base, &options, &e),
                     MST_OK);
    assert_int_equal(mst_evaluator_run(e, &r), MST_ESTOPPED);
    fake_open(b.data);
    mst_evaluator_destroy(e);
    bench_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(figures),  cmocka_unit_test(progress_is_told), cmocka_unit_test(first_rows),
        cmocka_unit_test(held_out), cmocka_unit_test(failures),         cmocka_unit_test(stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
