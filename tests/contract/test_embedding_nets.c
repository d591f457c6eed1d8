/* The contract of nets over embeddings, over the built-in ones and others, on rows of every kind. The
 * gradient is the derivative of the loss (finite differences). All executors that compute a net give the
 * scores, losses and gradients of the plain one, for any division of a batch. Initial values are functions of
 * seed and key. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
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
#include "optim/optim.h"

#define N_KEYS  60
#define N_DENSE 3
#define FIELDS  5 /* of keys */
#define ROWS    300

typedef enum field_rows {
    BY_POSITION, /* one key per field */
    EXPLICIT,    /* some fields have several keys with values, some none */
    NO_NUMBERS,  /* one key per field, no dense prefix */
    SHORT,       /* a short dense prefix; the rest of it are keys */
    NO_FIELDS,   /* keys of one field */
    FIELD_ROWS,
} field_rows;

typedef struct net_case {
    const char *name, *text; /* text NULL: the built-in net */
    mst_model_options options;
} net_case;

static const net_case cases[] = {
    {.name = "deepfm", .options = {.embedding = 4, .hidden = "13,11"}},
    {.name = "wide-deep", .options = {.embedding = 3, .hidden = "9", .dropout = 0.3}},
    {.name = "dcn", .options = {.embedding = 4, .hidden = "10,7", .cross_layers = 3}},
    {.name = "dlrm", .options = {.embedding = 4, .hidden = "12,6", .activation = 1}},
    {.name = "late readers",
     .text = "embedding 4\nnumbers\nx: concat from=embedding\na: linear 9\nb: relu\npairs: fm from=embedding "
             "sum=false\n"
             "d: dot from=embedding,pairs\nc: linear 9 from=x\ns: add from=b,c\nt: tanh\n"
             "concat from=b,t,d,pairs,numbers,x\nlinear 1\n"},
    {.name = "two classes", .text = "embedding 4\nmlp 8,8 activation=sigmoid\nlinear classes\n"},
    {.name = "only wide", .text = "wide\n"},
    {.name = "shared once",
     .text = "embedding 2\nx: concat from=embedding\nlinear 5\nrelu\ncross 2\nadd from=cross1,relu1\n"
             "linear 1\nfirst: add from=linear2\n"},
};
#define N_CASES (sizeof cases / sizeof *cases)

typedef struct bench {
    const net_case *net;
    mst_model *model;
    mst_params params;
    mst_weights weights;
    mst_grad layout;
    mst_row rows[ROWS];
} bench;

/* ---- rows ---- */

static void *copy_of(const void *from, size_t size)
{
    void *to = malloc(size + 1);
    assert_non_null(to);
    memcpy(to, from, size);
    return to;
}

/* Field f has keys [N_DENSE + 11 f, N_DENSE + 11 f + 11). */
static mst_row row_make(field_rows kind, mst_rng *rng)
{
    uint32_t keys[16], n = 0, dense = kind == NO_NUMBERS ? 0 : kind == SHORT ? 1 : N_DENSE;
    uint16_t fields[16];
    float values[16], numbers[N_DENSE];
    for (uint32_t i = 0; i < dense; i++)
        numbers[i] = (float)mst_rng_normal(rng);
    for (uint32_t i = dense; kind == SHORT && i < N_DENSE; i++) {
        fields[n] = (uint16_t)i;
        keys[n++] = i;
    }
    for (uint32_t f = 0; f < FIELDS; f++) {
        uint32_t times = kind == EXPLICIT || kind == SHORT ? mst_rng_below(rng, 3) : 1;
        for (uint32_t t = 0; t < times; t++) {
            fields[n] = (uint16_t)(N_DENSE + f);
            keys[n++] = N_DENSE + 11 * f + mst_rng_below(rng, 11);
        }
    }
    for (uint32_t i = 0; i < n; i++)
        values[i] = (float)(0.5 + mst_rng_uniform(rng));
    bool all = kind == EXPLICIT || kind == SHORT;
    return (mst_row){.n_dense = dense,
                     .dense = copy_of(numbers, dense * sizeof *numbers),
                     .n_keys = n,
                     .keys = copy_of(keys, n * sizeof *keys),
                     .fields = all ? copy_of(fields, n * sizeof *fields) : NULL,
                     .values = all ? copy_of(values, n * sizeof *values) : NULL,
                     .label = (float)mst_rng_below(rng, 2),
                     .weight = (float)(0.5 + mst_rng_uniform(rng))};
}

static int model_index(const char *name)
{
    for (int i = 0; mst_models[i] != NULL; i++)
        if (strcmp(mst_models[i]->name, name) == 0)
            return i;
    fail_msg("no model %s", name);
    return -1;
}

/* NULL: this net does not take such rows. */
static bench *bench_make(const net_case *net, field_rows kind, const char *executor)
{
    bench *b = calloc(1, sizeof *b);
    mst_model_options options = net->options;
    mst_rng rng;
    assert_non_null(b);
    b->net = net;
    options.model = model_index(net->text == NULL ? net->name : "net");
    options.net_text = net->text;
    options.executor = (char *)executor;
    uint32_t dense = kind == NO_NUMBERS ? 0 : N_DENSE;
    mst_shape shape = {.n_features = N_KEYS,
                       .n_dense = dense,
                       .n_classes = 2,
                       .n_fields = kind == NO_FIELDS ? 0 : N_DENSE + FIELDS};
    if (kind == NO_NUMBERS) /* keys of numbers are a field too */
        shape.n_fields = FIELDS;
    mst_status st = mst_model_new(&options, &shape, mst_kernels_get(mst_isa_best()), &b->model);
    if (st != MST_OK) {
        if (kind != NO_FIELDS)
            fail_msg("%s: %s", net->name, mst_error_text());
        assert_non_null(
            strstr(mst_error_text(), net->text == NULL ? "at least two fields" : "it reads one vector"));
        free(b);
        return NULL;
    }
    assert_int_equal(b->model->ops->declare(b->model, &b->params), MST_OK);
    assert_int_equal(mst_params_reserve(&b->params, 0, 0), MST_OK);
    b->model->ops->start(b->model, &b->params, 7);
    b->model->ops->start_keys(b->model, &b->params, 7, 0, b->model->shape.n_features);
    mst_model_weights(b->model, &b->params, &b->weights);
    b->model->ops->layout(b->model, &b->params, &b->layout);
    mst_rng_init(&rng, 3, MST_RNG_TEST, (uint64_t)kind);
    for (uint32_t i = 0; i < b->params.n_views; i++) /* nothing is zero, and nothing small */
        for (uint64_t j = 0; j < b->params.views[i].size; j++)
            b->params.w[b->params.views[i].offset + j] += (float)(0.2 * mst_rng_normal(&rng));
    for (uint32_t r = 0; r < ROWS; r++)
        b->rows[r] = row_make(kind, &rng);
    return b;
}

static void bench_free(bench *b)
{
    for (uint32_t r = 0; r < ROWS; r++) {
        free((void *)b->rows[r].dense);
        free((void *)b->rows[r].keys);
        free((void *)b->rows[r].fields);
        free((void *)b->rows[r].values);
    }
    mst_params_fini(&b->params);
    mst_model_destroy(b->model);
    free(b);
}

/* ---- training ---- */

/* The whole gradient as one vector like the parameters, and the loss. */
typedef struct result {
    float *g;
    mst_loss_sum sum;
} result;

typedef struct watch {
    mst_step base;
    uint32_t needs[MST_RANGE_MAX], readies[MST_RANGE_MAX];
} watch;

static mst_status watch_need(mst_step *step, uint32_t range)
{
    ((watch *)step)->needs[range]++;
    return MST_OK;
}

static mst_status watch_ready(mst_step *step, uint32_t range)
{
    watch *self = (watch *)step;
    assert_int_equal(self->needs[range], 1);
    self->readies[range]++;
    return MST_OK;
}

/* Trains on n rows, divided into parts of so many. fresh: on a gradient that holds nothing, where possible.
 */
static result train(const bench *b, uint32_t n, uint32_t part, bool fresh, unsigned n_owners)
{
    result out = {.g = calloc(b->params.size, sizeof(float))};
    mst_grad grad;
    void *scratch;
    const mst_model *m = b->model;
    assert_int_equal(mst_grad_init(&grad, b->layout.ranges, b->layout.n_ranges, b->layout.sparse_offset,
                                   b->layout.width, n_owners),
                     MST_OK);
    if (fresh && m->overwrites) {
        for (uint32_t r = 0; r < grad.n_ranges; r++)
            for (uint64_t i = 0; i < grad.ranges[r].size; i++)
                grad.ranges[r].g[i] = NAN;
        mst_grad_renew(&grad);
    }
    assert_int_equal(mst_model_scratch_new(m, part, 1, true, &scratch), MST_OK);
    for (uint32_t from = 0; from < n; from += part) {
        watch step = {
            .base = {.need = watch_need, .ready = watch_ready, .seed = 5, .number = 2, .first_row = from}};
        mst_batch batch = {.rows = b->rows + from, .n_rows = n - from < part ? n - from : part};
        assert_int_equal(
            m->ops->compute(m, scratch, &batch, &b->weights, 0.125f, &grad, &step.base, &out.sum), MST_OK);
        for (uint32_t r = 0; r < grad.n_ranges; r++)
            assert_true(step.needs[r] == 1 && step.readies[r] == 1);
    }
    for (uint32_t r = 0; r < grad.n_ranges; r++)
        memcpy(out.g + grad.ranges[r].offset, grad.ranges[r].g, grad.ranges[r].size * sizeof(float));
    for (uint32_t o = 0; grad.owners != NULL && o < n_owners; o++)
        for (size_t i = 0; i < grad.owners[o].n; i++) {
            uint32_t key = grad.owners[o].keys[i];
            assert_int_equal(mst_grad_owner(key, n_owners), o);
            assert_true(key >= m->shape.n_dense && key < N_KEYS);
            for (uint32_t k = 0; k < grad.width; k++)
                out.g[grad.sparse_offset + (uint64_t)key * grad.width + k] +=
                    grad.owners[o].values[i * grad.width + k];
        }
    mst_model_scratch_free(m, scratch);
    mst_grad_fini(&grad);
    return out;
}

static void near(const bench *b, const char *what, const float *a, const float *expected, uint64_t n)
{
    double off = 0.0, norm = 0.0;
    for (uint64_t i = 0; i < n; i++) {
        off += ((double)a[i] - (double)expected[i]) * ((double)a[i] - (double)expected[i]);
        norm += (double)expected[i] * (double)expected[i];
    }
    if (!(sqrt(off) <= 2e-5 * sqrt(norm) + 1e-6))
        fail_msg("%s: %s off by %g of %g", b->net->name, what, sqrt(off), sqrt(norm));
}

static void near_results(const bench *b, const char *what, const result *a, const result *expected)
{
    assert_int_equal(a->sum.rows, expected->sum.rows);
    assert_true(a->sum.correct == expected->sum.correct);
    assert_true(fabs(a->sum.loss - expected->sum.loss) <= 1e-5 * expected->sum.loss);
    assert_true(fabs(a->sum.weight - expected->sum.weight) <= 1e-9);
    for (uint32_t v = 0; v < b->params.n_views; v++) {
        const mst_view *view = &b->params.views[v];
        char text[128];
        snprintf(text, sizeof text, "%s, %s", what, view->name);
        near(b, text, a->g + view->offset, expected->g + view->offset, view->size);
    }
}

/* ---- tests ---- */

/* Derivatives of the loss by each parameter, with float weights: second differences limit the step. */
static void gradients_are_derivatives(void **state)
{
    enum { N = 6 };
    (void)state;
    for (size_t c = 0; c < N_CASES; c++)
        for (field_rows kind = 0; kind < FIELD_ROWS; kind++) {
            bench *b = bench_make(&cases[c], kind, "plain");
            if (b == NULL)
                continue;
            result r = train(b, N, N, false, 1);
            size_t wrong = 0, checked = 0;
            for (uint32_t v = 0; v < b->params.n_views; v++)
                for (uint64_t i = 0; i < b->params.views[v].size; i++) {
                    float *w = b->params.w + b->params.views[v].offset + i, was = *w;
                    double loss[2];
                    for (int up = 0; up < 2; up++) {
                        *w = was + (up ? 1e-3f : -1e-3f);
                        result at = train(b, N, N, false, 1);
                        loss[up] = at.sum.loss;
                        free(at.g);
                    }
                    *w = was;
                    /* a step across the kink of a relu leaves the derivative of the other side */
                    const double slopes[] = {(loss[1] - loss[0]) / 2e-3, (loss[1] - r.sum.loss) / 1e-3,
                                             (r.sum.loss - loss[0]) / 1e-3};
                    double got = (double)r.g[b->params.views[v].offset + i];
                    bool right = false;
                    for (int s = 0; s < 3; s++)
                        right = right || fabs(got - 0.125 * slopes[s]) <= 1e-3 + 2e-2 * fabs(got);
                    checked++;
                    wrong += !right;
                }
            if (wrong * 200 > checked) /* both steps may cross kinks */
                fail_msg("%s, rows %d: %zu of %zu derivatives differ", cases[c].name, (int)kind, wrong,
                         checked);
            free(r.g);
            bench_free(b);
        }
}

static void executors_agree(void **state)
{
    static const uint32_t counts[] = {1, 7, 128, 129, ROWS};
    (void)state;
    for (size_t c = 0; c < N_CASES; c++)
        for (field_rows kind = 0; kind < FIELD_ROWS; kind++) {
            bench *plain = bench_make(&cases[c], kind, "plain");
            if (plain == NULL)
                continue;
            for (size_t e = 0; mst_executors[e] != NULL; e++) {
                if (mst_executors[e]->can(mst_model_chain(plain->model)) != MST_OK) {
                    assert_non_null(strstr(mst_error_text(), mst_executors[e]->name));
                    continue;
                }
                bench *b = bench_make(&cases[c], kind, mst_executors[e]->name);
                for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
                    result expected = train(plain, counts[i], counts[i], false, 1);
                    result got = train(b, counts[i], counts[i], true, 3);
                    result parts = train(b, counts[i], 50, false, 2);
                    near_results(b, mst_executors[e]->name, &got, &expected);
                    near_results(b, "in parts", &parts, &expected);
                    free(expected.g);
                    free(got.g);
                    free(parts.g);
                }
                bench_free(b);
            }
            bench_free(plain);
        }
}

static void forward(const bench *b, float *scores)
{
    mst_batch batch = {.rows = b->rows, .n_rows = ROWS};
    void *scratch;
    assert_int_equal(mst_model_scratch_new(b->model, ROWS, 1, false, &scratch), MST_OK);
    assert_int_equal(b->model->ops->forward(b->model, scratch, &batch, &b->weights, scores), MST_OK);
    mst_model_scratch_free(b->model, scratch);
}

static void scores_agree(void **state)
{
    static float expected[2 * ROWS], scores[2 * ROWS];
    (void)state;
    for (size_t c = 0; c < N_CASES; c++)
        for (field_rows kind = 0; kind < FIELD_ROWS; kind++) {
            bench *plain = bench_make(&cases[c], kind, "plain"), *b = bench_make(&cases[c], kind, "gemm");
            if (plain == NULL)
                continue;
            forward(plain, expected);
            forward(b, scores);
            near(b, "scores", scores, expected, (uint64_t)ROWS * b->model->n_scores);
            bench_free(plain);
            bench_free(b);
        }
}

/* The whole batch is normalised at once, by the executor with threads too. */
static void batch_norm_sees_the_batch(void **state)
{
    static const net_case net = {.name = "deepfm",
                                 .options = {.embedding = 4, .hidden = "9,8", .batch_norm = true}};
    (void)state;
    bench *plain = bench_make(&net, BY_POSITION, "plain"), *b = bench_make(&net, BY_POSITION, "gemm");
    assert_false(mst_model_threads(plain->model));
    assert_true(mst_model_threads(b->model));
    result expected = train(plain, ROWS, ROWS, false, 1), got = train(b, ROWS, ROWS, false, 1);
    near_results(b, "gemm", &got, &expected);
    free(expected.g);
    free(got.g);
    bench_free(plain);
    bench_free(b);
}

/* --pos-weight is a factor of the weights of positive rows. */
static void positives_have_a_weight(void **state)
{
    (void)state;
    static const char *const executors[] = {"plain", "gemm"};
    for (size_t e = 0; e < sizeof executors / sizeof *executors; e++) {
        net_case weighted = cases[0];
        weighted.options.pos_weight = 4.0; /* exact in float */
        bench *a = bench_make(&weighted, EXPLICIT, executors[e]),
              *b = bench_make(&cases[0], EXPLICIT, executors[e]);
        uint32_t positive = 0;
        for (uint32_t r = 0; r < ROWS; r++)
            if (b->rows[r].label > 0.0f) {
                b->rows[r].weight *= 4.0f;
                positive++;
            }
        assert_true(positive > 0 && positive < ROWS);
        result got = train(a, ROWS, ROWS, false, 1), expected = train(b, ROWS, ROWS, false, 1);
        near_results(b, "--pos-weight", &got, &expected);
        free(got.g);
        free(expected.g);
        bench_free(a);
        bench_free(b);
    }
}

/* The table of a net with n_keys keys, of which [first, first + n) are started; the caller frees. */
static float *table_started(uint64_t n_keys, uint64_t seed, uint64_t first, uint64_t n)
{
    mst_model_options options = {.model = model_index("net"),
                                 .net_text =
                                     "embedding 3 init-scale=0.5\nwide\ndeep: linear 1 from=embedding\n"
                                     "add from=wide,deep\n",
                                 .executor = "auto"};
    mst_shape shape = {.n_features = n_keys, .n_dense = 2, .n_classes = 2, .n_fields = 4};
    mst_params params = {0};
    mst_model *model;
    float *out = malloc(n_keys * 4 * sizeof *out);
    assert_non_null(out);
    if (mst_model_new(&options, &shape, mst_kernels_get(mst_isa_best()), &model) != MST_OK)
        fail_msg("%s", mst_error_text());
    assert_int_equal(model->ops->declare(model, &params), MST_OK);
    assert_int_equal(params.views[0].size, n_keys * 4);
    assert_int_equal(mst_params_reserve(&params, 0, 0), MST_OK);
    model->ops->start_keys(model, &params, seed, first, n);
    mst_params_read(&params, 0, params.views[0].offset, n_keys * 4, out);
    mst_params_fini(&params);
    mst_model_destroy(model);
    return out;
}

/* Values of a key do not depend on the number of keys; numbers have none, linear weights begin at zero. */
static void initial_values_belong_to_keys(void **state)
{
    (void)state;
    float *a = table_started(10, 1, 0, 10), *b = table_started(20, 1, 0, 20),
          *other = table_started(10, 2, 0, 10), *some = table_started(20, 1, 5, 5);
    assert_memory_equal(a, b, 40 * sizeof *a);
    assert_memory_not_equal(a, other, 40 * sizeof *a);
    for (size_t i = 0; i < 40; i++) {
        bool zero = i < 8 || i % 4 == 3;
        assert_true(zero ? a[i] == 0.0f : a[i] != 0.0f && fabsf(a[i]) <= 0.5f);
    }
    for (size_t i = 0; i < 80; i++)
        assert_true(some[i] == (i >= 20 && i < 40 ? a[i] : 0.0f));
    free(a);
    free(b);
    free(other);
    free(some);
}

/* Threads update ranges and keys at the same time: no float of state belongs to both. */
static void state_of_keys_is_in_no_range(void **state)
{
    (void)state;
    mst_optimizer optimizer, sparse;
    mst_optim_options rules = {.lr = 0.1, .eps = 1e-8};
    mst_model_options options = {.embedding = 3, .hidden = "2"};
    mst_shape shape = {.n_features = 20, .n_dense = 2, .n_classes = 2, .n_fields = 4};
    while (strcmp(mst_models[options.model]->name, "deepfm") != 0)
        options.model++;
    while (strcmp(mst_optimizers[rules.optimizer_sparse]->name, "rowwise") != 0)
        rules.optimizer_sparse++;
    rules.optimizer_sparse++; /* 0: the same as of other weights */
    for (int i = 0; i < 2; i++) {
        mst_params params = {0};
        mst_grad layout = {0};
        mst_model *model;
        shape.n_dense = i == 0 ? 2 : 0;
        assert_int_equal(mst_optimizer_init_parts(&optimizer, &sparse, &rules), MST_OK);
        if (mst_model_new(&options, &shape, mst_kernels_get(mst_isa_best()), &model) != MST_OK)
            fail_msg("%s", mst_error_text());
        assert_int_equal(model->ops->declare(model, &params), MST_OK);
        assert_int_equal(mst_params_reserve(&params, mst_optimizer_declare(&optimizer, &params), 0), MST_OK);
        model->ops->layout(model, &params, &layout);
        assert_int_equal(params.keyed.state_width, 1);
        const mst_range *numbers = &layout.ranges[0];
        assert_int_equal(numbers->offset, layout.sparse_offset);
        assert_int_equal(numbers->size, shape.n_dense * layout.width);
        assert_true(params.keyed.state + shape.n_dense >= numbers->offset + numbers->size);
        mst_params_fini(&params);
        mst_model_destroy(model);
    }
}

/* OpenMP reads this before main: threads of a busy machine must not spin. */
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
        cmocka_unit_test(gradients_are_derivatives),
        cmocka_unit_test(executors_agree),
        cmocka_unit_test(scores_agree),
        cmocka_unit_test(batch_norm_sees_the_batch),
        cmocka_unit_test(positives_have_a_weight),
        cmocka_unit_test(initial_values_belong_to_keys),
        cmocka_unit_test(state_of_keys_is_in_no_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
