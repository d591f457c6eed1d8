/* Nets over embeddings in training against PyTorch's figures (embedding_nets.h), by every executor that
 * computes them: the loss before each step, the squared norm of every parameter's first gradient, and the
 * scores and the running means and variances after the last step. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "golden/embedding_nets.h"
#include "model/executor.h"

typedef struct golden {
    const char *name;
    const double *losses, *squares, *scores;
    const double *state; /* running mean and variance of each batch norm; NULL: the net has none */
    const char *text;    /* of the net; NULL: the model `name` */
} golden;

#define FIGURES(net)                                                                                         \
    .losses = golden_##net##_losses, .squares = golden_##net##_squares, .scores = golden_##net##_scores

static const golden nets[] = {
    {.name = "deepfm", FIGURES(deepfm)},
    {.name = "dcn", FIGURES(dcn)},
    {.name = "dlrm", FIGURES(dlrm)},
    {.name = "wide-deep", FIGURES(wide_deep)},
    {.name = "batch norm",
     FIGURES(normalised),
     .state = golden_normalised_state,
     .text = "embedding 3\nnumbers\nwide\nconcat from=embedding,numbers\nmlp 6,5 batchnorm=true\n"
             "deep: linear 1\nadd from=wide,deep\n"},
    {.name = "fm sum=false",
     FIGURES(elements),
     .text = "embedding 3\nnumbers\npairs: fm from=embedding sum=false\nconcat from=pairs,numbers\n"
             "mlp 6,5\nlinear 1\n"},
};

/* make_embedding_nets.py: hashed */
static double hashed(uint32_t i, uint32_t salt)
{
    return (double)(((i + 1) * 2654435761u + salt * 40503u * 65537u) >> 8) / 0x1p24;
}

typedef struct bench {
    mst_model *model;
    mst_params params;
    mst_weights w;
    mst_grad grad;
    mst_row rows[GOLDEN_ROWS];
    uint32_t keys[GOLDEN_ROWS][GOLDEN_FIELDS];
    float numbers[GOLDEN_ROWS][GOLDEN_NUMBERS];
} bench;

static void bench_make(bench *b, const golden *of, const char *executor)
{
    mst_model_options options = {
        .embedding = GOLDEN_K, .hidden = "6,5", .cross_layers = 0, .executor = (char *)executor};
    mst_shape shape = {.n_features = GOLDEN_KEYS,
                       .n_dense = GOLDEN_NUMBERS,
                       .n_classes = 2,
                       .n_fields = GOLDEN_NUMBERS + GOLDEN_FIELDS};
    mst_grad layout = {0};
    uint32_t salt = 0;
    memset(b, 0, sizeof *b);
    if (of->text != NULL)
        options = (mst_model_options){.net_text = of->text, .executor = (char *)executor};
    while (strcmp(mst_models[options.model]->name, of->text != NULL ? "net" : of->name) != 0)
        options.model++;
    assert_int_equal(mst_model_new(&options, &shape, mst_kernels_get(mst_isa_best()), &b->model), MST_OK);
    assert_int_equal(b->model->ops->declare(b->model, &b->params), MST_OK);
    assert_int_equal(mst_params_reserve(&b->params, 0, 0), MST_OK);
    mst_model_weights(b->model, &b->params, &b->w);
    b->model->ops->layout(b->model, &b->params, &layout);
    assert_int_equal(
        mst_grad_init(&b->grad, layout.ranges, layout.n_ranges, layout.sparse_offset, layout.width, 1),
        MST_OK);
    b->model->ops->start(b->model, &b->params, 1); /* state; the weights follow */
    for (uint32_t v = 0; v < b->params.n_views; v++) {
        const mst_view *view = &b->params.views[v];
        float one = strstr(view->name, "norm.weight") != NULL;
        for (uint64_t i = 0; view->kind != MST_VIEW_STATE && i < view->size; i++)
            b->params.w[view->offset + i] = (float)((hashed((uint32_t)i, salt) * 2 - 1) * 0.5) + one;
        salt += view->kind != MST_VIEW_STATE;
    }
    for (uint32_t r = 0; r < GOLDEN_ROWS; r++) {
        for (uint32_t f = 0; f < GOLDEN_FIELDS; f++)
            b->keys[r][f] = GOLDEN_NUMBERS + 8 * f + (uint32_t)(hashed(r, 200 + f) * 8);
        for (uint32_t i = 0; i < GOLDEN_NUMBERS; i++)
            b->numbers[r][i] = (float)(hashed(r, 300 + i) * 2 - 1);
        b->rows[r] = (mst_row){.dense = b->numbers[r],
                               .n_dense = GOLDEN_NUMBERS,
                               .keys = b->keys[r],
                               .n_keys = GOLDEN_FIELDS,
                               .label = r % 3 == 0,
                               .weight = 1.0f};
    }
}

static void bench_free(bench *b)
{
    mst_grad_fini(&b->grad);
    mst_params_fini(&b->params);
    mst_model_destroy(b->model);
}

static void expect(const golden *of, const char *executor, const char *what, double got, double expected)
{
    if (!(fabs(got - expected) <= 2e-5 * (1.0 + fabs(expected))))
        fail_msg("%s by %s: %s is %.9g instead of %.9g", of->name, executor, what, got, expected);
}

/* The gradient as a vector like the parameters. */
static void flatten(const bench *b, float *g)
{
    const mst_contributions *list = &b->grad.owners[0];
    memset(g, 0, b->params.size * sizeof *g);
    for (uint32_t r = 0; r < b->grad.n_ranges; r++)
        memcpy(g + b->grad.ranges[r].offset, b->grad.ranges[r].g, b->grad.ranges[r].size * sizeof *g);
    for (size_t i = 0; i < list->n; i++)
        for (uint32_t k = 0; k < b->grad.width; k++)
            g[b->grad.sparse_offset + (uint64_t)list->keys[i] * b->grad.width + k] +=
                list->values[i * b->grad.width + k];
}

static void train(const golden *of, const char *executor)
{
    bench b;
    void *scratch;
    float scores[GOLDEN_ROWS];
    bench_make(&b, of, executor);
    mst_batch batch = {.rows = b.rows, .n_rows = GOLDEN_ROWS};
    float *g = malloc(b.params.size * sizeof *g);
    assert_non_null(g);
    assert_int_equal(mst_model_scratch_new(b.model, GOLDEN_ROWS, 1, true, &scratch), MST_OK);
    for (int step = 0; step < GOLDEN_STEPS; step++) {
        mst_loss_sum sum = {0};
        mst_grad_clear(&b.grad);
        assert_int_equal(
            b.model->ops->compute(b.model, scratch, &batch, &b.w, 1.0f / GOLDEN_ROWS, &b.grad, NULL, &sum),
            MST_OK);
        expect(of, executor, "a loss", sum.loss / sum.weight, of->losses[step]);
        flatten(&b, g);
        for (uint32_t v = 0, n = 0; v < b.params.n_views; v++) {
            const mst_view *view = &b.params.views[v];
            bool is_state = view->kind == MST_VIEW_STATE;
            float *w = b.params.w + view->offset, *of_view = g + view->offset;
            double square = 0.0;
            for (uint64_t i = 0; i < view->size; i++) {
                square += (double)of_view[i] * (double)of_view[i];
                w[i] = is_state ? of_view[i] : w[i] - (float)GOLDEN_LR * of_view[i];
            }
            if (step == 0 && !is_state)
                expect(of, executor, view->name, square, of->squares[n++]);
        }
    }
    uint32_t n_state = 0;
    for (uint32_t v = 0; v < b.params.n_views; v++)
        for (uint64_t i = 0; b.params.views[v].kind == MST_VIEW_STATE && i < b.params.views[v].size; i++)
            expect(of, executor, b.params.views[v].name, (double)b.params.w[b.params.views[v].offset + i],
                   of->state[n_state++]);
    assert_int_equal(n_state, of->state != NULL ? sizeof golden_normalised_state / sizeof(double) : 0);
    mst_model_scratch_free(b.model, scratch);
    assert_int_equal(mst_model_scratch_new(b.model, GOLDEN_ROWS, 1, false, &scratch), MST_OK);
    assert_int_equal(b.model->ops->forward(b.model, scratch, &batch, &b.w, scores), MST_OK);
    for (int r = 0; r < GOLDEN_ROWS; r++)
        expect(of, executor, "a score", (double)scores[r], of->scores[r]);
    mst_model_scratch_free(b.model, scratch);
    free(g);
    bench_free(&b);
}

static void nets_train_as_in_pytorch(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof nets / sizeof *nets; n++) {
        train(&nets[n], "plain");
        train(&nets[n], "gemm");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nets_train_as_in_pytorch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
