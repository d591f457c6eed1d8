/* fm, ffm and fwfm against sums over all pairs of features in double precision, rows of large values and of
 * one feature, the initial factors by key, and the L2 regularisation of factors. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "model/model.h"
#include "optim/optim.h"
#include "random_rows.h"

#define DENSE    3
#define FEATURES 40
#define FIELDS   7
#define ROWS     12

typedef struct bench {
    mst_model *model;
    mst_params params;
    mst_weights weights;
    void *scratch;
} bench;

static const char *const names[] = {"fm", "ffm", "fwfm"};

static bench bench_make(const char *name, int factors, uint32_t n_dense, bool row_norm, double l2, int isa)
{
    bench b = {0};
    mst_model_options options = {.bias = true,
                                 .pos_weight = 1,
                                 .factors = factors,
                                 .row_norm = row_norm,
                                 .l2_factors = l2,
                                 .init_scale = 0.5};
    mst_shape shape = {.n_features = FEATURES, .n_dense = n_dense, .n_classes = 2, .n_fields = FIELDS};
    while (strcmp(mst_models[options.model]->name, name) != 0)
        options.model++;
    assert_int_equal(mst_model_new(&options, &shape, mst_kernels_get((mst_isa)isa), &b.model), MST_OK);
    assert_int_equal(b.model->ops->declare(b.model, &b.params), MST_OK);
    assert_int_equal(mst_params_reserve(&b.params, 0, 0), MST_OK);
    assert_int_equal(mst_model_scratch_new(b.model, ROWS, 1, true, &b.scratch), MST_OK);
    mst_model_weights(b.model, &b.params, &b.weights);
    if (b.model->ops->start != NULL)
        b.model->ops->start(b.model, &b.params, 1);
    b.model->ops->start_keys(b.model, &b.params, 1, 0, FEATURES);
    return b;
}

static void bench_free(bench *b)
{
    mst_model_scratch_free(b->model, b->scratch);
    mst_model_destroy(b->model);
    mst_params_fini(&b->params);
}

/* The row's features; repeated keys are joined, of one field where the model has fields. */
typedef struct feature {
    uint32_t key, field;
    double x;
} feature;

static uint32_t features_of(const mst_row *row, bool fields, feature *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < row->n_dense; i++)
        out[n++] = (feature){i, i, row_dense(row, i)};
    for (uint32_t i = 0; i < row->n_keys; i++) {
        feature f = {row->keys[i], fields ? mst_row_field(row, i) : 0, row_sparse(row, i)};
        if (n > row->n_dense && out[n - 1].key == f.key && out[n - 1].field == f.field)
            out[n - 1].x += f.x;
        else
            out[n++] = f;
    }
    return n;
}

/* r of two fields: the upper triangle, row after row. */
static double pair_weight(const bench *b, uint32_t f, uint32_t g)
{
    const mst_view *pairs = mst_params_find(&b->params, "field_pairs");
    uint32_t low = f < g ? f : g, high = f < g ? g : f;
    return (double)b->params.w[pairs->offset + low * FIELDS - low * (low + 1) / 2 + low + (high - low)];
}

/* The margin; *size: the sum of the absolute values of its terms. */
static double naive(const bench *b, const mst_row *row, int factors, double *size)
{
    feature f[64];
    const char *name = b->model->ops->name;
    uint32_t n = features_of(row, strcmp(name, "fm") != 0, f), width = b->params.views[0].width,
             k = (uint32_t)factors;
    double sum = 0.0, square = 0.0, linear = 0.0, all = 0.0, bias = (double)b->weights.ranges[1][0];
    for (uint32_t i = 0; i < n; i++) {
        linear += (double)b->params.w[(size_t)f[i].key * width] * f[i].x;
        all += fabs((double)b->params.w[(size_t)f[i].key * width] * f[i].x);
        square += f[i].x * f[i].x;
        for (uint32_t j = i + 1; j < n; j++) {
            const float *v = b->params.w + (size_t)f[i].key * width + 1,
                        *u = b->params.w + (size_t)f[j].key * width + 1;
            double dot = 0.0;
            if (strcmp(name, "ffm") == 0) {
                v += f[j].field * k;
                u += f[i].field * k;
            }
            for (uint32_t c = 0; c < k; c++) {
                dot += (double)v[c] * (double)u[c];
                all += fabs((double)v[c] * (double)u[c] * f[i].x * f[j].x);
            }
            sum += dot * f[i].x * f[j].x *
                   (strcmp(name, "fwfm") == 0 ? pair_weight(b, f[i].field, f[j].field) : 1.0);
        }
    }
    if (!b->model->options.row_norm || square == 0.0)
        square = 1.0;
    *size = all;
    return bias + linear / sqrt(square) + sum / square;
}

static void margins_are_sums_over_pairs(void **state)
{
    static const int factors[] = {1, 3, 4, 8, 16, 40};
    (void)state;
    for (int isa = 0; isa < MST_ISA_COUNT; isa++)
        for (size_t m = 0; m < 3 && mst_isa_supported((mst_isa)isa); m++)
            for (size_t k = 0; k < sizeof factors / sizeof *factors; k++)
                for (int kind = 0; kind < ROWS_KINDS; kind++) {
                    bench b = bench_make(names[m], factors[k], DENSE, k % 2 == 0, 0, isa);
                    rows_spec spec = {.kind = (row_kind)kind,
                                      .n_rows = ROWS,
                                      .n_dense = DENSE,
                                      .n_features = FEATURES,
                                      .n_keys = 8,
                                      .n_classes = 2,
                                      .n_fields = FIELDS,
                                      .seed = k};
                    random_rows rows = random_rows_make(&spec);
                    float scores[ROWS];
                    for (uint64_t i = 0; i < b.params.size; i += 3)
                        b.params.w[i] += 0.25f; /* linear weights, bias and pairs of fields among them */
                    mst_batch batch = {rows.rows, ROWS};
                    assert_int_equal(b.model->ops->forward(b.model, b.scratch, &batch, &b.weights, scores),
                                     MST_OK);
                    for (uint32_t i = 0; i < ROWS; i++) {
                        double size, want = naive(&b, &rows.rows[i], factors[k], &size);
                        if (!(fabs((double)scores[i] - want) <= 2e-5 * (1 + fabs(want))))
                            fail_msg("%s, %d factors, %s rows: margin %g instead of %g", names[m], factors[k],
                                     row_kind_names[kind], (double)scores[i], want);
                    }
                    random_rows_free(&rows);
                    bench_free(&b);
                }
}

/* Rows whose values differ by many orders of magnitude: small errors relative to the largest product of two
 * features, not to the largest square. */
static void large_values(void **state)
{
    static const uint32_t keys[] = {4, 9, 20, 31};
    static const uint16_t fields[] = {3, 4, 5, 5};
    static const float values[][4] = {{1000, 0.5f, -2, 1},    {1e5f, 1e-3f, 2e-3f, 1e-3f},
                                      {1, 2, 3, 1e6f},        {1e30f, 1e-30f, 1e-25f, -1e-28f},
                                      {1e15f, 1e15f, 1, -1},  {1e-3f, 1e30f, 0, 0},
                                      {-1e20f, 0, 3e-18f, 0}, {1e5f, 0, 0, 0}};
    (void)state;
    for (int isa = 0; isa < MST_ISA_COUNT; isa++)
        for (size_t m = 0; m < 3 && mst_isa_supported((mst_isa)isa); m++)
            for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
                bench b = bench_make(names[m], i % 2 == 0 ? 16 : 5, DENSE, false, 0, isa);
                mst_row row = {.keys = keys, .values = values[i], .fields = fields, .n_keys = 4, .weight = 1};
                mst_batch batch = {&row, 1};
                float score;
                assert_int_equal(b.model->ops->forward(b.model, b.scratch, &batch, &b.weights, &score),
                                 MST_OK);
                double size, want = naive(&b, &row, b.model->options.factors, &size);
                if (!(fabs((double)score - want) <= 1e-6 * size))
                    fail_msg("%s, values %zu, %s: margin %g instead of %g", names[m], i,
                             mst_isa_name((mst_isa)isa), (double)score, want);
                bench_free(&b);
            }
}

static void expect_same_factors(const bench *b, const float *before, const float *after, const char *what,
                                float value)
{
    uint32_t width = b->params.views[0].width;
    for (uint64_t i = 0; i < b->params.views[0].size; i++)
        if (i % width != 0 && before[i] != after[i])
            fail_msg("%s, %s, value %g, %s: factor %llu is %.9g instead of %.9g", b->model->ops->name,
                     mst_isa_name(b->model->kernels->isa), (double)value, what, (unsigned long long)i,
                     (double)after[i], (double)before[i]);
}

/* The gradient by factors is exactly 0 in batches of such rows: Adagrad would turn any other number into a
 * step of the learning rate. */
static void one_feature_moves_no_factors(void **state)
{
    static const uint32_t keys[] = {7, 17};
    static const uint16_t fields[] = {3, 4};
    static const float values[] = {1, 3.7f, 1000.1f, 1e5f, 0.1f};
    mst_optim_options adagrad = {.optimizer = 2, .lr = 0.1, .eps = 1e-8};
    mst_optimizer o;
    (void)state;
    assert_int_equal(mst_optimizer_init(&o, &adagrad), MST_OK);
    for (int isa = 0; isa < MST_ISA_COUNT; isa++)
        for (size_t m = 0; m < 3 && mst_isa_supported((mst_isa)isa); m++)
            for (size_t i = 0; i < 5 * 4; i++) {
                bench b = bench_make(names[m], i % 2 == 0 ? 16 : 8, i % 4 == 3 ? DENSE : 0, false, 0, isa);
                uint64_t size = b.params.size;
                float x[2] = {values[i / 4], 0}, dense[DENSE] = {0, values[i / 4], 0};
                float *start = malloc(size * sizeof *start), *after = malloc(size * sizeof *after);
                mst_row row = {.keys = keys, .values = x, .fields = fields, .n_keys = 2, .weight = 1};
                mst_row rows[3];
                mst_grad layout = {0}, grad;
                mst_loss_sum sum = {0};
                if (i % 4 == 1)
                    row.n_keys = 1;
                if (i % 4 == 2) {
                    row.values = NULL;
                    row.n_keys = 1;
                }
                if (i % 4 == 3)
                    row = (mst_row){.dense = dense, .n_dense = DENSE, .weight = 1};
                for (int r = 0; r < 3; r++)
                    rows[r] = row;
                rows[1].label = 1;
                memcpy(start, b.params.w, size * sizeof *start);
                for (uint32_t n = 1; n <= 3; n += 2) {
                    mst_batch batch = {rows, n};
                    b.model->ops->layout(b.model, &b.params, &layout);
                    assert_int_equal(mst_grad_init(&grad, layout.ranges, layout.n_ranges,
                                                   layout.sparse_offset, layout.width, 1),
                                     MST_OK);
                    assert_int_equal(b.model->ops->compute(b.model, b.scratch, &batch, &b.weights,
                                                           1.0f / (float)n, &grad, NULL, &sum),
                                     MST_OK);
                    for (size_t at = 0; at < grad.owners[0].n * layout.width; at++)
                        assert_true(at % layout.width == 0 || grad.owners[0].values[at] == 0.0f);
                    for (uint64_t at = 0; at < grad.ranges[0].size; at++)
                        assert_true(at % layout.width == 0 || grad.ranges[0].g[at] == 0.0f);
                    mst_grad_fini(&grad);
                }
                for (uint32_t n = 1; n <= 3 && b.model->ops->descend_rule != NULL; n += 2) {
                    mst_batch batch = {rows, 3};
                    mst_rule rules[3];
                    mst_touched touched = {0};
                    mst_params_fini(&b.params);
                    assert_int_equal(b.model->ops->declare(b.model, &b.params), MST_OK);
                    b.params.by_rows = true;
                    assert_int_equal(mst_params_reserve(&b.params, o.ops->n_slots, 0), MST_OK);
                    mst_model_weights(b.model, &b.params, &b.weights);
                    mst_params_write(&b.params, 0, 0, size, start);
                    mst_optimizer_start(&o, &b.params, 0, b.params.size);
                    for (uint32_t r = 0; r < 3; r++)
                        rules[r] = o.ops->rule(&o, &(mst_update){.lr = 0.1f, .step = r + 1});
                    assert_int_equal(b.model->ops->descend_rule(b.model, b.scratch, &batch, n, &b.weights,
                                                                rules, &touched, &sum),
                                     MST_OK);
                    mst_params_read(&b.params, 0, 0, size, after);
                    expect_same_factors(&b, start, after, n == 1 ? "batch 1" : "batch 3", values[i / 4]);
                    mst_free(touched.keys);
                }
                free(start);
                free(after);
                bench_free(&b);
            }
}

/* Any order and any cut of the keys gives the same bits; other seeds give others. */
static void factors_start_by_key(void **state)
{
    (void)state;
    bench a = bench_make("fm", 6, DENSE, false, 0, MST_ISA_PORTABLE),
          b = bench_make("fm", 6, DENSE, false, 0, MST_ISA_PORTABLE);
    size_t bytes = b.params.views[0].size * sizeof(float);
    double sum = 0.0, square = 0.0;
    memset(b.params.w, 0, bytes);
    b.model->ops->start_keys(b.model, &b.params, 1, 30, FEATURES - 30);
    b.model->ops->start_keys(b.model, &b.params, 1, 0, 7);
    for (uint64_t key = 29; key >= 7; key--)
        b.model->ops->start_keys(b.model, &b.params, 1, key, 1);
    assert_memory_equal(a.params.w, b.params.w, bytes);
    b.model->ops->start_keys(b.model, &b.params, 2, 0, FEATURES);
    assert_memory_not_equal(a.params.w, b.params.w, bytes);
    for (uint32_t key = 0; key < FEATURES; key++) {
        assert_true(a.params.w[key * 7] == 0.0f);
        for (uint32_t i = 1; i < 7; i++) {
            double v = (double)a.params.w[key * 7 + i];
            assert_true(v >= -0.5 && v < 0.5);
            sum += v;
            square += v * v;
        }
    }
    assert_true(fabs(sum / (FEATURES * 6)) < 0.1);
    assert_true(fabs(square / (FEATURES * 6) - 1.0 / 12) < 0.03);
    bench_free(&a);
    bench_free(&b);
}

/* The gradient of one factor of a key of one row, with and without --l2-factors. */
static void l2_adds_the_factors(void **state)
{
    static const uint32_t keys[] = {5, 9};
    static const uint16_t fields[] = {1, 2};
    mst_row row = {.keys = keys, .fields = fields, .n_keys = 2, .label = 1, .weight = 2};
    mst_batch batch = {&row, 1};
    (void)state;
    for (size_t m = 0; m < 3; m++) {
        float got[2], linear[2], factor = 0.0f;
        for (int with = 0; with < 2; with++) {
            bench b = bench_make(names[m], 4, DENSE, true, with ? 0.25 : 0.0, MST_ISA_PORTABLE);
            mst_grad layout = {0}, grad;
            mst_loss_sum sum = {0};
            uint32_t width = b.params.views[0].width, at = strcmp(names[m], "ffm") == 0 ? 1 + 2 * 4 + 3 : 4;
            b.model->ops->layout(b.model, &b.params, &layout);
            assert_int_equal(
                mst_grad_init(&grad, layout.ranges, layout.n_ranges, layout.sparse_offset, layout.width, 1),
                MST_OK);
            assert_int_equal(
                b.model->ops->compute(b.model, b.scratch, &batch, &b.weights, 0.5f, &grad, NULL, &sum),
                MST_OK);
            assert_int_equal(grad.owners[0].n, 2);
            got[with] = grad.owners[0].values[at];
            linear[with] = grad.owners[0].values[0];
            factor = b.params.w[5 * (size_t)width + at];
            mst_grad_fini(&grad);
            bench_free(&b);
        }
        assert_true(linear[0] == linear[1]);
        assert_true(factor != 0.0f);
        assert_true(fabsf(got[1] - got[0] - 0.25f * 0.5f * 2.0f * factor) < 1e-6f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(margins_are_sums_over_pairs),  cmocka_unit_test(large_values),
        cmocka_unit_test(one_feature_moves_no_factors), cmocka_unit_test(factors_start_by_key),
        cmocka_unit_test(l2_adds_the_factors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
