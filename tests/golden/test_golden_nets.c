/* Nets in training against PyTorch's figures (nets.h), by every executor: the loss before each step, the
 * squared norm of every parameter's first gradient, running mean and variance, and the scores after the last
 * step. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "golden/nets.h"
#include "model/executor.h"

#define MAX_PARAMS 16

typedef struct golden {
    const char *name, *text;
    mst_dims in;
    uint32_t n_classes;
    const double *losses, *squares, *scores; /* squares: of trainable parameters, in the order of the net */
    const double *mean, *var;                /* of norm; or NULL */
} golden;

#define LENET(act)                                                                                           \
    "conv1: conv 6 kernel=5 pad=2\n" act "\navgpool kernel=2\nconv2: conv 16 kernel=5\n" act                 \
    "\navgpool kernel=2\nfc1: linear 120\n" act "\nfc2: linear 84\n" act "\nfc3: linear classes\n"

static const golden nets[] = {
    {"lenet",
     LENET("relu"),
     {1, 28, 28},
     10,
     golden_lenet_losses,
     golden_lenet_squares,
     golden_lenet_scores,
     NULL,
     NULL},
    {"lenet with tanh",
     LENET("tanh"),
     {1, 28, 28},
     10,
     golden_tanh_losses,
     golden_tanh_squares,
     golden_tanh_scores,
     NULL,
     NULL},
    {"mixed",
     "conv1: conv 6 kernel=3 stride=2 pad=1 groups=2\nnorm: batchnorm momentum=0.2\nrelu\n"
     "maxpool kernel=3 stride=2 pad=1\nlrn size=3 alpha=0.5 beta=0.75 k=2\n"
     "conv2: conv 8 kernel-h=2 kernel-w=3 bias=false\nsigmoid\navgpool kernel=2 stride=1 pad=1\n"
     "linear 12\ntanh\nlinear classes\n",
     {4, 9, 11},
     5,
     golden_mixed_losses,
     golden_mixed_squares,
     golden_mixed_scores,
     golden_mixed_running_mean,
     golden_mixed_running_var},
};

/* make_nets.py: hashed */
static double hashed(uint32_t i, uint32_t salt)
{
    return (double)(((i + 1) * 2654435761u + salt * 40503u * 65537u) >> 8) / 0x1p24;
}

/* A net with its weights and rows. */
typedef struct bench {
    const golden *of;
    mst_model *model;
    mst_params params;
    mst_weights w;
    mst_grad grad;
    uint8_t *bytes;
    mst_row rows[GOLDEN_ROWS];
    mst_batch batch;
} bench;

static void fill_weights(const bench *b)
{
    uint32_t salt = 0;
    for (uint32_t v = 0; v < b->params.n_views; v++) {
        const mst_view *view = &b->params.views[v];
        float *w = b->params.w + view->offset;
        bool is_norm = strcmp(view->name, "norm.weight") == 0;
        double scale = view->n_dims > 1 ? sqrt(3.0 / ((double)view->size / (double)view->dims[0])) : 0.1;
        if (view->kind == MST_VIEW_STATE)
            continue;
        for (uint64_t i = 0; i < view->size; i++)
            w[i] = (float)((hashed((uint32_t)i, salt) * 2 - 1) * scale + (is_norm ? 1.0 : 0.0));
        salt++;
    }
}

static bool bench_make(const golden *of, const mst_executor *executor, mst_isa isa, bench *b)
{
    uint32_t size = (uint32_t)mst_dims_size(&of->in);
    mst_shape shape = {.n_features = size,
                       .n_dense = size,
                       .n_classes = of->n_classes,
                       .c = of->in.c,
                       .h = of->in.h,
                       .w = of->in.w};
    mst_model_options options = {.executor = (char *)executor->name, .net_text = of->text};
    mst_grad layout = {0};
    *b = (bench){.of = of};
    while (strcmp(mst_models[options.model]->name, "net") != 0)
        options.model++;
    mst_status st = mst_model_new(&options, &shape, mst_kernels_get(isa), &b->model);
    if (st == MST_EUNSUPPORTED)
        return false;
    if (st != MST_OK)
        fail_msg("%s: %s", executor->name, mst_error_text());
    assert_int_equal(b->model->ops->declare(b->model, &b->params), MST_OK);
    assert_int_equal(mst_params_reserve(&b->params, 0, 0), MST_OK);
    b->model->ops->start(b->model, &b->params, 1); /* state; the weights follow */
    fill_weights(b);
    mst_model_weights(b->model, &b->params, &b->w);
    b->model->ops->layout(b->model, &b->params, &layout);
    assert_int_equal(mst_grad_init(&b->grad, layout.ranges, layout.n_ranges, 0, 0, 1), MST_OK);
    b->bytes = malloc((size_t)GOLDEN_ROWS * size);
    assert_non_null(b->bytes);
    for (uint32_t r = 0; r < GOLDEN_ROWS; r++) {
        for (uint32_t i = 0; i < size; i++)
            b->bytes[r * size + i] = (uint8_t)(hashed(i, 100 + r) * 256);
        b->rows[r] = (mst_row){.bytes = b->bytes + r * size,
                               .n_dense = size,
                               .label = (float)((3 * r + 1) % of->n_classes),
                               .weight = 1.0f};
    }
    b->batch = (mst_batch){.rows = b->rows, .n_rows = GOLDEN_ROWS};
    return true;
}

static void bench_free(bench *b)
{
    mst_grad_fini(&b->grad);
    mst_params_fini(&b->params);
    mst_model_destroy(b->model);
    free(b->bytes);
}

static void expect(const bench *b, const char *executor, const char *what, int i, double got, double expected,
                   double tolerance)
{
    if (!(fabs(got - expected) <= tolerance * (fabs(expected) + 1e-3)))
        fail_msg("%s by %s: %s %d is %.9g instead of %.9g", b->of->name, executor, what, i, got, expected);
}

static void expect_squares(const bench *b, const char *executor)
{
    int n = 0;
    for (uint32_t r = 0; r < b->grad.n_ranges; r++) {
        const mst_range *range = &b->grad.ranges[r];
        double square = 0.0;
        for (uint64_t i = 0; i < range->size; i++)
            square += (double)range->g[i] * (double)range->g[i];
        if (range->state)
            continue;
        expect(b, executor, "squared gradient of range", (int)r, square, b->of->squares[n], 1e-3);
        n++;
    }
}

static void apply(bench *b)
{
    for (uint32_t r = 0; r < b->grad.n_ranges; r++) {
        const mst_range *range = &b->grad.ranges[r];
        for (uint64_t i = 0; i < range->size; i++)
            if (range->state)
                b->w.ranges[r][i] = range->g[i];
            else
                b->w.ranges[r][i] -= (float)GOLDEN_LR * range->g[i];
    }
}

static void expect_view(const bench *b, const char *executor, const char *name, const double *expected)
{
    const mst_view *view = mst_params_find(&b->params, name);
    assert_non_null(view);
    for (uint64_t i = 0; i < view->size; i++)
        expect(b, executor, name, (int)i, (double)b->params.w[view->offset + i], expected[i], 1e-3);
}

static void train_and_compare(const golden *of, const mst_executor *executor, mst_isa isa)
{
    bench b;
    void *scratch;
    float scores[GOLDEN_ROWS * 10];
    if (!bench_make(of, executor, isa, &b))
        return;
    assert_int_equal(mst_model_scratch_new(b.model, GOLDEN_ROWS, 1, true, &scratch), MST_OK);
    for (int s = 0; s < GOLDEN_STEPS; s++) {
        mst_loss_sum sum = {0};
        mst_grad_clear(&b.grad);
        assert_int_equal(
            b.model->ops->compute(b.model, scratch, &b.batch, &b.w, 1.0f / GOLDEN_ROWS, &b.grad, NULL, &sum),
            MST_OK);
        assert_int_equal(sum.rows, GOLDEN_ROWS);
        expect(&b, executor->name, "loss before step", s + 1, sum.loss / sum.weight, of->losses[s], 1e-5);
        if (s == 0)
            expect_squares(&b, executor->name);
        apply(&b);
    }
    mst_model_scratch_free(b.model, scratch);
    if (of->mean != NULL) {
        expect_view(&b, executor->name, "norm.running_mean", of->mean);
        expect_view(&b, executor->name, "norm.running_var", of->var);
    }
    assert_int_equal(mst_model_scratch_new(b.model, GOLDEN_ROWS, 1, false, &scratch), MST_OK);
    assert_int_equal(b.model->ops->forward(b.model, scratch, &b.batch, &b.w, scores), MST_OK);
    for (uint32_t i = 0; i < 2 * of->n_classes; i++)
        expect(&b, executor->name, "score", (int)i, (double)scores[i], of->scores[i], 1e-3);
    mst_model_scratch_free(b.model, scratch);
    bench_free(&b);
}

static void nets_train_as_in_torch(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++)
        for (size_t e = 0; mst_executors[e] != NULL; e++)
            for (int isa = 0; isa < MST_ISA_COUNT; isa++)
                if (mst_isa_supported((mst_isa)isa))
                    train_and_compare(&nets[i], mst_executors[e], (mst_isa)isa);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nets_train_as_in_torch)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
