/* logreg, softmax, fm, ffm and fwfm against PyTorch: loss and gradient at a given start, and the losses and
 * weights of a short SGD run (models.h, written by make_models.py in double precision).
 *
 * Tolerance: float32 sums of some tens of terms of size 1, so 5e-6 of max(1, |value|) for one evaluation and
 * 2e-5 along the trajectory. */
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

#include "golden/models.h"

#define ONCE_TOLERANCE       5e-6
#define TRAJECTORY_TOLERANCE 2e-5
#define MANY                 5000 /* features: softmax then keeps rows sparse */

typedef struct golden {
    mst_row rows[GOLDEN_ROWS];
    float dense[GOLDEN_ROWS][GOLDEN_DENSE], values[GOLDEN_ROWS][GOLDEN_KEYS];
    uint32_t keys[GOLDEN_ROWS][GOLDEN_KEYS];
    mst_model *model;
    mst_params params;
    mst_weights weights;
    mst_grad grad;
    void *scratch;
} golden;

static void make_rows(golden *g, uint32_t classes)
{
    for (uint32_t i = 0; i < GOLDEN_ROWS; i++) {
        for (uint32_t j = 0; j < GOLDEN_DENSE; j++)
            g->dense[i][j] = (float)((int)((7 * i + 13 * j + i * j) % 17) - 8) / 8;
        for (uint32_t t = 0; t < GOLDEN_KEYS; t++) {
            g->keys[i][t] = GOLDEN_DENSE + GOLDEN_SPREAD * t + (i * i + 3 * t) % GOLDEN_SPREAD;
            g->values[i][t] = (float)((int)((5 * i + 11 * t) % 13) - 6) / 4;
        }
        g->rows[i] = (mst_row){.dense = g->dense[i],
                               .n_dense = GOLDEN_DENSE,
                               .keys = g->keys[i],
                               .values = g->values[i],
                               .n_keys = GOLDEN_KEYS,
                               .label = (float)((i * i + i / 3) % classes),
                               .weight = (float)(1 + i % 3) / 2};
    }
}

static float start_of(uint32_t i)
{
    return (float)((int)(11 * i % 23) - 11) / 32;
}

/* Where weight (class c, feature f) lies in the store: muster keeps features in front where rows stay sparse.
 */
static float *weight_at(const golden *g, float *base, uint32_t c, uint32_t f)
{
    const mst_view *view = mst_params_find(&g->params, "weight");
    bool transposed = view->width > 1;
    return base + view->offset +
           (transposed ? (uint64_t)f * view->width + c : c * g->model->shape.n_features + f);
}

static float *bias_at(const golden *g, float *base, uint32_t c)
{
    return base + mst_params_find(&g->params, "bias")->offset + c;
}

/* Weights of a feature: one per class, or the linear weight and the factors. */
static uint32_t n_columns(const golden *g)
{
    const mst_view *view = mst_params_find(&g->params, "weight");
    return view->width != 0 ? view->width : g->model->n_scores;
}

static golden *make(int model, uint64_t n_features, const mst_kernels *kernels)
{
    golden *g = calloc(1, sizeof *g);
    uint32_t classes = strcmp(mst_models[model]->name, "softmax") == 0 ? GOLDEN_CLASSES : 2;
    mst_model_options options = {.model = model,
                                 .bias = true,
                                 .pos_weight = GOLDEN_POS_WEIGHT,
                                 .factors = GOLDEN_FACTORS,
                                 .row_norm = strcmp(mst_models[model]->name, "ffm") == 0};
    mst_shape shape = {
        .n_features = n_features, .n_dense = GOLDEN_DENSE, .n_classes = classes, .n_fields = GOLDEN_FIELDS};
    make_rows(g, classes);
    assert_int_equal(mst_model_new(&options, &shape, kernels, &g->model), MST_OK);
    assert_int_equal(g->model->ops->declare(g->model, &g->params), MST_OK);
    assert_int_equal(mst_params_reserve(&g->params, 0, 0), MST_OK);
    mst_model_weights(g->model, &g->params, &g->weights);
    mst_grad layout = {0};
    g->model->ops->layout(g->model, &g->params, &layout);
    assert_int_equal(
        mst_grad_init(&g->grad, layout.ranges, layout.n_ranges, layout.sparse_offset, layout.width, 1),
        MST_OK);
    assert_int_equal(mst_model_scratch_new(g->model, GOLDEN_ROWS, 1, true, &g->scratch), MST_OK);
    for (uint32_t c = 0; c < n_columns(g); c++)
        for (uint32_t f = 0; f < GOLDEN_FEATURES; f++)
            *weight_at(g, g->params.w, c, f) = start_of(c * GOLDEN_FEATURES + f);
    for (uint32_t c = 0; c < g->model->n_scores; c++)
        *bias_at(g, g->params.w, c) = start_of(c);
    const mst_view *pairs = mst_params_find(&g->params, "field_pairs");
    for (uint32_t i = 0; pairs != NULL && i < pairs->size; i++)
        g->params.w[pairs->offset + i] = start_of(i);
    return g;
}

static void unmake(golden *g)
{
    mst_model_scratch_free(g->model, g->scratch);
    mst_model_destroy(g->model);
    mst_params_fini(&g->params);
    mst_grad_fini(&g->grad);
    free(g);
}

static void assert_close(const golden *g, const char *what, uint32_t i, double got, double want,
                         double tolerance)
{
    if (!(fabs(got - want) <= tolerance * fmax(1.0, fabs(want))))
        fail_msg("%s (%s), %s %u: %.9g instead of %.9g", g->model->ops->name,
                 mst_isa_name(g->model->kernels->isa), what, i, got, want);
}

/* The gradient of a batch as a vector like the store's; the caller frees. */
static float *gradient(golden *g, const mst_batch *batch, float scale, mst_loss_sum *sum)
{
    float *flat = calloc(g->params.size, sizeof *flat);
    mst_grad_clear(&g->grad);
    assert_int_equal(
        g->model->ops->compute(g->model, g->scratch, batch, &g->weights, scale, &g->grad, NULL, sum), MST_OK);
    for (uint32_t r = 0; r < g->grad.n_ranges; r++)
        for (uint64_t i = 0; i < g->grad.ranges[r].size; i++)
            flat[g->grad.ranges[r].offset + i] += g->grad.ranges[r].g[i];
    uint32_t width = g->grad.width;
    for (size_t i = 0; width != 0 && i < g->grad.owners[0].n; i++)
        for (uint32_t c = 0; c < width; c++)
            flat[g->grad.sparse_offset + (uint64_t)g->grad.owners[0].keys[i] * width + c] +=
                g->grad.owners[0].values[i * width + c];
    return flat;
}

static void check_vector(golden *g, float *flat, const char *what, const double *weights,
                         const double *biases, const double *pairs, double tolerance)
{
    const mst_view *view = mst_params_find(&g->params, "field_pairs");
    for (uint32_t c = 0; c < n_columns(g); c++)
        for (uint32_t f = 0; f < GOLDEN_FEATURES; f++)
            assert_close(g, what, c * GOLDEN_FEATURES + f, (double)*weight_at(g, flat, c, f),
                         weights[c * GOLDEN_FEATURES + f], tolerance);
    for (uint32_t c = 0; c < g->model->n_scores; c++)
        assert_close(g, what, c, (double)*bias_at(g, flat, c), biases[c], tolerance);
    assert_int_equal(view != NULL, pairs != NULL);
    for (uint32_t i = 0; pairs != NULL && i < view->size; i++)
        assert_close(g, what, i, (double)flat[view->offset + i], pairs[i], tolerance);
}

typedef struct expected {
    double loss;
    const double *weight_gradient, *bias_gradient, *weight_after, *bias_after, *losses;
    const double *pairs_gradient, *pairs_after; /* NULL: the model has no weights of pairs of fields */
} expected;

static void check(int model, uint64_t n_features, const expected *want)
{
    for (int isa = 0; isa < MST_ISA_COUNT; isa++) {
        if (!mst_isa_supported((mst_isa)isa))
            continue;
        golden *g = make(model, n_features, mst_kernels_get((mst_isa)isa));
        mst_batch all = {.rows = g->rows, .n_rows = GOLDEN_ROWS};
        mst_loss_sum sum = {0};
        float *flat = gradient(g, &all, 1.0f, &sum);
        assert_close(g, "loss", 0, sum.loss, want->loss, ONCE_TOLERANCE);
        check_vector(g, flat, "gradient", want->weight_gradient, want->bias_gradient, want->pairs_gradient,
                     ONCE_TOLERANCE);
        free(flat);
        for (uint32_t step = 0; step < GOLDEN_STEPS; step++) {
            mst_batch part = mst_batch_range(&all, step * GOLDEN_BATCH % GOLDEN_ROWS, GOLDEN_BATCH);
            sum = (mst_loss_sum){0};
            flat = gradient(g, &part, 1.0f / GOLDEN_BATCH, &sum);
            assert_close(g, "loss of step", step, sum.loss, want->losses[step], TRAJECTORY_TOLERANCE);
            for (uint64_t i = 0; i < g->params.size; i++)
                g->params.w[i] -= (float)GOLDEN_LR * flat[i];
            free(flat);
        }
        check_vector(g, g->params.w, "weight after SGD", want->weight_after, want->bias_after,
                     want->pairs_after, TRAJECTORY_TOLERANCE);
        unmake(g);
    }
}

#define EXPECTED(name, ...)                                                                                  \
    {                                                                                                        \
        golden_##name##_loss, golden_##name##_weight_gradient, golden_##name##_bias_gradient,                \
            golden_##name##_weight_after, golden_##name##_bias_after, golden_##name##_losses, __VA_ARGS__    \
    }

static void logreg_is_torchs(void **state)
{
    (void)state;
    const expected want = EXPECTED(logreg, NULL, NULL);
    check(0, GOLDEN_FEATURES, &want);
    check(0, MANY, &want);
}

static void softmax_is_torchs(void **state)
{
    (void)state;
    const expected want = EXPECTED(softmax, NULL, NULL);
    check(1, GOLDEN_FEATURES, &want);
    check(1, MANY, &want);
}

static void factor_models_are_torchs(void **state)
{
    (void)state;
    const expected wants[] = {EXPECTED(fm, NULL, NULL), EXPECTED(ffm, NULL, NULL),
                              EXPECTED(fwfm, golden_fwfm_pairs_gradient, golden_fwfm_pairs_after)};
    static const char *const names[] = {"fm", "ffm", "fwfm"};
    for (int i = 0, model = 0; i < 3; i++) {
        while (strcmp(mst_models[model]->name, names[i]) != 0)
            model++;
        check(model, GOLDEN_FEATURES, &wants[i]);
        check(model, MANY, &wants[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logreg_is_torchs),
        cmocka_unit_test(softmax_is_torchs),
        cmocka_unit_test(factor_models_are_torchs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
