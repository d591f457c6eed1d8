/* fm, ffm and fwfm against sums over all pairs of features in double precision, the initial factors by key,
 * and the L2 regularisation of factors. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "model/model.h"
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

static bench bench_make(const char *name, int factors, bool row_norm, double l2, int isa)
{
    bench b = {0};
    mst_model_options options = {.bias = true,
                                 .pos_weight = 1,
                                 .factors = factors,
                                 .row_norm = row_norm,
                                 .l2_factors = l2,
                                 .init_scale = 0.5};
    mst_shape shape = {.n_features = FEATURES, .n_dense = DENSE, .n_classes = 2, .n_fields = FIELDS};
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

static double naive(const bench *b, const mst_row *row, int factors)
{
    feature f[64];
    const char *name = b->model->ops->name;
    uint32_t n = features_of(row, strcmp(name, "fm") != 0, f), width = b->params.views[0].width,
             k = (uint32_t)factors;
    double sum = 0.0, square = 0.0, linear = 0.0, bias = (double)b->weights.ranges[1][0];
    for (uint32_t i = 0; i < n; i++) {
        linear += (double)b->params.w[(size_t)f[i].key * width] * f[i].x;
        square += f[i].x * f[i].x;
        for (uint32_t j = i + 1; j < n; j++) {
            const float *v = b->params.w + (size_t)f[i].key * width + 1,
                        *u = b->params.w + (size_t)f[j].key * width + 1;
            double dot = 0.0;
            if (strcmp(name, "ffm") == 0) {
                v += f[j].field * k;
                u += f[i].field * k;
            }
            for (uint32_t c = 0; c < k; c++)
                dot += (double)v[c] * (double)u[c];
            sum += dot * f[i].x * f[j].x *
                   (strcmp(name, "fwfm") == 0 ? pair_weight(b, f[i].field, f[j].field) : 1.0);
        }
    }
    if (!b->model->options.row_norm || square == 0.0)
        square = 1.0;
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
                    bench b = bench_make(names[m], factors[k], k % 2 == 0, 0, isa);
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
                        double want = naive(&b, &rows.rows[i], factors[k]);
                        if (!(fabs((double)scores[i] - want) <= 2e-5 * (1 + fabs(want))))
                            fail_msg("%s, %d factors, %s rows: margin %g instead of %g", names[m], factors[k],
                                     row_kind_names[kind], (double)scores[i], want);
                    }
                    random_rows_free(&rows);
                    bench_free(&b);
                }
}

/* Any order and any cut of the keys gives the same bits; other seeds give others. */
static void factors_start_by_key(void **state)
{
    (void)state;
    bench a = bench_make("fm", 6, false, 0, MST_ISA_PORTABLE),
          b = bench_make("fm", 6, false, 0, MST_ISA_PORTABLE);
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
            bench b = bench_make(names[m], 4, true, with ? 0.25 : 0.0, MST_ISA_PORTABLE);
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
        cmocka_unit_test(margins_are_sums_over_pairs),
        cmocka_unit_test(factors_start_by_key),
        cmocka_unit_test(l2_adds_the_factors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
