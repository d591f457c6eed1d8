/* The contract of layers, over the registry: shapes, gradients equal to the derivatives of the output (finite
 * differences), gradients of parameters that are added, and state that is set. The functions of a layer are
 * called as executor plain calls them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "model/layer.h"

#define STEP   0.01 /* of a finite difference */
#define IMAGES 3

typedef struct layer_case {
    const char *text;
    mst_dims in, out;
    uint64_t n_params; /* trainable and state */
} layer_case;

static const layer_case cases[] = {
    {"conv 4 kernel=3", {2, 5, 7}, {4, 3, 5}, 4 * 2 * 9 + 4},
    {"conv 6 kernel=3 stride=2 pad=1 groups=2 bias=false", {4, 5, 8}, {6, 3, 4}, 6 * 2 * 9},
    {"conv 3 kernel-h=2 kernel-w=5 pad=2 stride=3", {1, 6, 7}, {3, 3, 3}, 3 * 10 + 3},
    {"conv 5 kernel=1 groups=5", {5, 3, 2}, {5, 3, 2}, 10},
    {"conv 2 kernel=7 kernel-h=1 stride=4 pad=5", {3, 2, 3}, {2, 3, 2}, 2 * 3 * 7 + 2},
    {"linear 7", {3, 2, 3}, {7, 1, 1}, 7 * 18 + 7},
    {"linear 4 bias=false", {5, 1, 1}, {4, 1, 1}, 20},
    {"maxpool", {2, 5, 7}, {2, 2, 3}, 0},
    {"maxpool kernel=3 stride=2 pad=1", {3, 6, 5}, {3, 3, 3}, 0},
    {"maxpool 3 stride=1", {1, 4, 5}, {1, 2, 3}, 0},
    {"avgpool 2", {2, 4, 6}, {2, 2, 3}, 0},
    {"avgpool kernel=3 stride=2 pad=1", {2, 6, 7}, {2, 3, 4}, 0},
    {"avgpool kernel=2 stride=3", {1, 7, 5}, {1, 2, 2}, 0},
    {"relu", {3, 2, 5}, {3, 2, 5}, 0},
    {"tanh", {3, 2, 5}, {3, 2, 5}, 0},
    {"sigmoid", {7, 1, 1}, {7, 1, 1}, 0},
    {"lrn", {7, 2, 3}, {7, 2, 3}, 0},
    {"lrn size=3 alpha=0.9 beta=0.6 k=2", {5, 3, 2}, {5, 3, 2}, 0},
    {"lrn size=4 alpha=0.7", {3, 1, 2}, {3, 1, 2}, 0},
    {"dropout 0.4", {4, 3, 3}, {4, 3, 3}, 0},
    {"dropout rate=0", {6, 1, 1}, {6, 1, 1}, 0},
    {"batchnorm", {3, 4, 2}, {3, 4, 2}, 12},
    {"batchnorm momentum=0.3 eps=0.01", {5, 1, 1}, {5, 1, 1}, 20},
    {"concat", {3, 1, 4}, {12, 1, 1}, 0},
    {"concat from=rows,rows,rows", {2, 1, 3}, {18, 1, 1}, 0},
    {"add", {3, 1, 2}, {3, 1, 2}, 0},
    {"add from=rows,rows,rows", {3, 1, 2}, {3, 1, 2}, 0},
    {"cross", {5, 1, 1}, {5, 1, 1}, 30},
    {"cross from=rows,rows bias=false", {2, 1, 3}, {6, 1, 1}, 36},
    {"fm", {4, 1, 3}, {1, 1, 1}, 0},
    {"fm sum=false", {5, 1, 2}, {2, 1, 1}, 0},
    {"dot", {4, 1, 3}, {6, 1, 1}, 0},
    {"dot from=rows,rows", {2, 1, 3}, {6, 1, 1}, 0},
};
#define N_CASES (sizeof cases / sizeof *cases)

static const mst_pass training = {.training = true, .seed = 11, .step = 3, .first_row = 5};

/* A layer with numbers around it. */
typedef struct bench {
    mst_chain *chain;
    const mst_layer *layer;
    size_t in, out; /* numbers of all images */
    float *x, *y, *dy, *dx, *w[MST_LAYER_PARAMS], *g[MST_LAYER_PARAMS];
    uint64_t sizes[MST_LAYER_PARAMS];
    void *state;
} bench;

static float *room(uint64_t n)
{
    float *x = calloc(n + 1, sizeof *x);
    assert_non_null(x);
    return x;
}

/* Numbers in random order, none closer to another or to zero than two steps: no maximum and no sign changes
 * by a step. */
static void fill_apart(float *x, size_t n, mst_rng *rng)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(((double)i - (double)n / 2 + 0.25) * 4 * STEP);
    for (size_t i = n; i > 1; i--) {
        size_t j = mst_rng_below(rng, (uint32_t)i);
        float swap = x[i - 1];
        x[i - 1] = x[j];
        x[j] = swap;
    }
}

static bench bench_make(const layer_case *c)
{
    bench b = {0};
    mst_rng rng;
    mst_rng_init(&rng, 7, MST_RNG_TEST, (uint64_t)(c - cases));
    if (mst_chain_parse(c->text, "case", &c->in, 0, &b.chain) != MST_OK)
        fail_msg("%s: %s", c->text, mst_error_text());
    b.layer = b.chain->layers[0];
    b.in = IMAGES * mst_dims_size(&b.layer->in);
    b.out = IMAGES * mst_dims_size(&b.layer->out);
    b.x = room(b.in);
    b.y = room(b.out);
    b.dy = room(b.out);
    b.dx = room(b.in);
    fill_apart(b.x, b.in, &rng);
    for (size_t i = 0; i < b.out; i++)
        b.dy[i] = (float)mst_rng_normal(&rng);
    for (uint32_t p = 0; p < b.layer->n_params; p++) {
        b.sizes[p] = 1;
        for (uint32_t d = 0; d < b.layer->params[p].n_dims; d++)
            b.sizes[p] *= b.layer->params[p].dims[d];
        b.w[p] = room(b.sizes[p]);
        b.g[p] = room(b.sizes[p]);
        for (uint64_t i = 0; i < b.sizes[p]; i++)
            b.w[p][i] = (float)(0.5 + mst_rng_uniform(&rng));
    }
    if (b.layer->ops->state_size != NULL)
        b.state = calloc(1, b.layer->ops->state_size(b.layer, IMAGES) + 1);
    return b;
}

static void bench_free(bench *b)
{
    for (uint32_t p = 0; p < b->layer->n_params; p++) {
        free(b->w[p]);
        free(b->g[p]);
    }
    free(b->x);
    free(b->y);
    free(b->dy);
    free(b->dx);
    free(b->state);
    mst_chain_destroy(b->chain);
}

/* Runs the body with a bench for every case. */
#define EACH_CASE(c, b)                                                                                      \
    for (const layer_case *c = cases; c < cases + N_CASES; c++)                                              \
        for (bench b = bench_make(c); b.chain != NULL; bench_free(&b), b.chain = NULL)

static void forward(bench *b)
{
    b->layer->ops->forward(b->layer, b->state, &training, IMAGES, b->x, b->w, b->y);
}

/* sum of dy * y: its derivatives are what backward gives. */
static double weighted_output(bench *b)
{
    double sum = 0.0;
    forward(b);
    for (size_t i = 0; i < b->out; i++)
        sum += (double)b->dy[i] * (double)b->y[i];
    return sum;
}

static double difference(bench *b, float *at)
{
    float was = *at;
    *at = was + (float)STEP;
    double up = weighted_output(b), high = (double)*at;
    *at = was - (float)STEP;
    double down = weighted_output(b), low = (double)*at;
    *at = was;
    return (up - down) / (high - low);
}

static void expect_derivative(bench *b, const layer_case *c, const char *what, size_t i, float *at,
                              double got)
{
    double expected = difference(b, at), tolerance = 2e-3 * (1.0 + fabs(expected));
    if (!(fabs(got - expected) <= tolerance))
        fail_msg("%s: d/d(%s[%zu]) is %.9g; the difference says %.9g", c->text, what, i, got, expected);
}

/* ---- tests ---- */

static void every_kind_has_a_case(void **state)
{
    (void)state;
    for (size_t k = 0; mst_layers[k] != NULL; k++) {
        size_t length = strlen(mst_layers[k]->name);
        bool found = false;
        for (size_t i = 0; i < N_CASES; i++)
            found |= strncmp(cases[i].text, mst_layers[k]->name, length) == 0;
        if (!found)
            fail_msg("no case for %s", mst_layers[k]->name);
        assert_non_null(mst_layers[k]->help);
        assert_non_null(mst_layers[k]->shape);
        assert_non_null(mst_layers[k]->flops);
        assert_true(mst_layers[k]->size >= sizeof(mst_layer));
    }
}

static void shapes_are_right(void **state)
{
    (void)state;
    EACH_CASE(c, b)
    {
        uint64_t n = 0;
        for (uint32_t p = 0; p < b.layer->n_params; p++)
            n += b.sizes[p];
        if (memcmp(&b.layer->out, &c->out, sizeof c->out) != 0 || n != c->n_params)
            fail_msg("%s: out %ux%ux%u, %llu parameters", c->text, b.layer->out.c, b.layer->out.h,
                     b.layer->out.w, (unsigned long long)n);
        assert_true(b.layer->ops->flops(b.layer) > 0);
    }
}

static void gradients_are_derivatives(void **state)
{
    (void)state;
    EACH_CASE(c, b)
    {
        forward(&b);
        b.layer->ops->backward(b.layer, b.state, &training, IMAGES, b.x, b.y, b.dy, b.w, b.dx, b.g);
        for (size_t i = 0; i < b.in; i++)
            expect_derivative(&b, c, "x", i, &b.x[i], (double)b.dx[i]);
        for (uint32_t p = 0; p < b.layer->n_params; p++)
            for (uint64_t i = 0; b.layer->params[p].kind == MST_VIEW_TRAINABLE && i < b.sizes[p]; i++)
                expect_derivative(&b, c, b.layer->params[p].name, i, &b.w[p][i], (double)b.g[p][i]);
    }
}

/* Gradients of parameters are added, state is set, and leaving dx out changes neither. */
static void parameters_accumulate(void **state)
{
    (void)state;
    EACH_CASE(c, b)
    {
        float *once[MST_LAYER_PARAMS];
        forward(&b);
        b.layer->ops->backward(b.layer, b.state, &training, IMAGES, b.x, b.y, b.dy, b.w, b.dx, b.g);
        for (uint32_t p = 0; p < b.layer->n_params; p++) {
            once[p] = room(b.sizes[p]);
            memcpy(once[p], b.g[p], b.sizes[p] * sizeof **once);
            for (uint64_t i = 0; i < b.sizes[p]; i++)
                b.g[p][i] = 2.0f;
        }
        b.layer->ops->backward(b.layer, b.state, &training, IMAGES, b.x, b.y, b.dy, b.w, NULL, b.g);
        for (uint32_t p = 0; p < b.layer->n_params; p++) {
            bool is_state = b.layer->params[p].kind == MST_VIEW_STATE;
            for (uint64_t i = 0; i < b.sizes[p]; i++) {
                double expected = (double)once[p][i] + (is_state ? 0.0 : 2.0);
                if (fabs((double)b.g[p][i] - expected) > 1e-4 * (1.0 + fabs(expected)))
                    fail_msg("%s: %s[%llu] is %g instead of %g", c->text, b.layer->params[p].name,
                             (unsigned long long)i, (double)b.g[p][i], expected);
            }
            free(once[p]);
        }
    }
}

/* Inference has no state; with nothing random and nothing of the batch in it, it gives what training gives.
 */
static void inference_needs_no_state(void **state)
{
    const mst_pass inference = {0};
    (void)state;
    EACH_CASE(c, b)
    {
        float *y = room(b.out);
        forward(&b);
        b.layer->ops->forward(b.layer, NULL, &inference, IMAGES, b.x, b.w, y);
        bool differs = memcmp(y, b.y, b.out * sizeof *y) != 0;
        bool may = strncmp(c->text, "dropout 0.4", 11) == 0 || strncmp(c->text, "batchnorm", 9) == 0;
        if (differs != may)
            fail_msg("%s: inference %s training", c->text, differs ? "differs from" : "equals");
        free(y);
    }
}

static void dropout_is_keyed_by_the_row(void **state)
{
    mst_dims in = {1000, 1, 1};
    mst_chain *chain;
    (void)state;
    assert_int_equal(mst_chain_parse("a: dropout 0.25\nb: dropout 0.25\n", "case", &in, 0, &chain), MST_OK);
    float *x = room(4000), *y = room(4000), *part = room(4000), *kept = room(4000), *none[1] = {NULL};
    for (size_t i = 0; i < 4000; i++)
        x[i] = 1.0f;
    const mst_layer *a = chain->layers[0], *b = chain->layers[1];
    mst_pass pass = {.training = true, .seed = 1, .step = 9};
    a->ops->forward(a, kept, &pass, 4, x, none, y);

    mst_pass second = pass; /* rows 2 and 3 as the share of another worker */
    second.first_row = 2;
    a->ops->forward(a, kept, &second, 2, x, none, part);
    assert_memory_equal(part, y + 2000, 2000 * sizeof *y);

    size_t dropped = 0;
    for (size_t i = 0; i < 4000; i++) {
        assert_true(y[i] == 0.0f || y[i] == 4.0f / 3.0f);
        dropped += y[i] == 0.0f;
    }
    assert_in_range(dropped, 850, 1150);
    assert_memory_not_equal(y, y + 1000, 1000 * sizeof *y);
    b->ops->forward(b, kept, &pass, 4, x, none, part);
    assert_memory_not_equal(part, y, 4000 * sizeof *y);
    pass.step++;
    a->ops->forward(a, kept, &pass, 4, x, none, part);
    assert_memory_not_equal(part, y, 4000 * sizeof *y);
    pass.step--;
    pass.seed++;
    a->ops->forward(a, kept, &pass, 4, x, none, part);
    assert_memory_not_equal(part, y, 4000 * sizeof *y);
    free(x);
    free(y);
    free(part);
    free(kept);
    mst_chain_destroy(chain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_has_a_case),     cmocka_unit_test(shapes_are_right),
        cmocka_unit_test(gradients_are_derivatives), cmocka_unit_test(parameters_accumulate),
        cmocka_unit_test(inference_needs_no_state),  cmocka_unit_test(dropout_is_keyed_by_the_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
