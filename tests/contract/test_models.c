/* The contract of models, over the registry, on rows of every kind and with every instruction set: the
 * gradient is the derivative of the loss (finite differences), the loss is that of the scores, contributions
 * reach their owners and add up for any number of owners, descend equals compute with an additive update, and
 * descend_rule equals compute with the update of every optimizer. */
#include <math.h>
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
#include "model/model.h"
#include "optim/optim.h"
#include "random_rows.h"

#define N_DENSE  5
#define N_KEYS   12   /* features that rows use */
#define MANY     5000 /* features of a model that keeps rows sparse */
#define MAX_ROWS 160
#define FIELDS   8

enum { LOGREG, SOFTMAX, FM, FFM, FWFM };

/* A model with its store, its gradient and rows to train on. */
typedef struct bench {
    mst_model *model;
    mst_params params;
    mst_weights weights;
    mst_grad layout;
    void *scratch;
    random_rows rows;
    double pos_weight;
} bench;

typedef struct variant {
    int model;
    uint64_t n_features;
    bool bias, weighted;
    double pos_weight;
    uint32_t n_rows;
    int factors;
    bool row_norm;
} variant;

static const variant variants[] = {
    {.model = LOGREG, .n_features = N_KEYS, .bias = true, .pos_weight = 1, .n_rows = 7},
    {.model = LOGREG, .n_features = N_KEYS, .bias = false, .pos_weight = 1, .n_rows = 6},
    {.model = LOGREG, .n_features = MANY, .bias = true, .weighted = true, .pos_weight = 2.5, .n_rows = 9},
    {.model = SOFTMAX, .n_features = N_KEYS, .bias = true, .pos_weight = 1, .n_rows = 7},
    {.model = SOFTMAX, .n_features = N_KEYS, .bias = false, .weighted = true, .pos_weight = 1, .n_rows = 8},
    {.model = SOFTMAX, .n_features = MANY, .bias = true, .pos_weight = 1, .n_rows = 7},
    {.model = SOFTMAX, .n_features = MANY, .bias = false, .weighted = true, .pos_weight = 1, .n_rows = 5},
    {.model = FM, .n_features = N_KEYS, .bias = true, .pos_weight = 1, .n_rows = 7, .factors = 16},
    {.model = FM,
     .n_features = MANY,
     .weighted = true,
     .pos_weight = 2,
     .n_rows = 6,
     .factors = 3,
     .row_norm = true},
    {.model = FM, .n_features = N_KEYS, .bias = true, .pos_weight = 1, .n_rows = 5, .factors = 21},
    {.model = FM, .n_features = N_KEYS, .bias = true, .pos_weight = 1, .n_rows = 40, .factors = 8},
    {.model = FM, .n_features = N_KEYS, .bias = true, .pos_weight = 1, .n_rows = 5, .factors = 70},
    {.model = FFM, .n_features = N_KEYS, .bias = true, .pos_weight = 1, .n_rows = 7, .factors = 4},
    {.model = FFM,
     .n_features = N_KEYS,
     .bias = true,
     .pos_weight = 1,
     .n_rows = 5,
     .factors = 8,
     .row_norm = true},
    {.model = FFM,
     .n_features = MANY,
     .weighted = true,
     .pos_weight = 0.5,
     .n_rows = 6,
     .factors = 3,
     .row_norm = true},
    {.model = FWFM, .n_features = N_KEYS, .bias = true, .pos_weight = 1, .n_rows = 7, .factors = 16},
    {.model = FWFM,
     .n_features = MANY,
     .weighted = true,
     .pos_weight = 2,
     .n_rows = 6,
     .factors = 5,
     .row_norm = true},
};
#define N_VARIANTS (sizeof variants / sizeof *variants)

static bench bench_make(const variant *v, row_kind kind, const mst_kernels *kernels, uint64_t seed)
{
    bench b = {.pos_weight = v->pos_weight};
    uint32_t n_classes = v->model == SOFTMAX ? 4 : 2, n_fields = v->factors != 0 ? FIELDS : 0;
    mst_model_options options = {.model = v->model,
                                 .bias = v->bias,
                                 .pos_weight = v->pos_weight,
                                 .factors = v->factors,
                                 .row_norm = v->row_norm};
    mst_shape shape = {
        .n_features = v->n_features, .n_dense = N_DENSE, .n_classes = n_classes, .n_fields = n_fields};
    rows_spec spec = {.kind = kind,
                      .n_rows = v->n_rows,
                      .n_dense = N_DENSE,
                      .n_features = N_KEYS,
                      .n_keys = 6,
                      .n_classes = n_classes,
                      .n_fields = n_fields,
                      .weighted = v->weighted,
                      .seed = seed};
    if (kind == ROWS_ONES || kind == ROWS_VALUES) /* data without a dense prefix */
        shape.n_dense = 0;
    b.rows = random_rows_make(&spec);
    assert_int_equal(mst_model_new(&options, &shape, kernels, &b.model), MST_OK);
    assert_int_equal(b.model->ops->declare(b.model, &b.params), MST_OK);
    assert_int_equal(mst_params_reserve(&b.params, 0, 0), MST_OK);
    mst_model_weights(b.model, &b.params, &b.weights);
    b.model->ops->layout(b.model, &b.params, &b.layout);
    assert_int_equal(mst_model_scratch_new(b.model, v->n_rows, 1, true, &b.scratch), MST_OK);
    mst_rng rng;
    mst_rng_init(&rng, seed, MST_RNG_TEST, 5);
    for (uint32_t i = 0; i < b.params.n_views; i++)
        for (uint64_t j = 0; j < b.params.views[i].size; j++)
            b.params.w[b.params.views[i].offset + j] = (float)(mst_rng_normal(&rng) * 0.3);
    return b;
}

static void bench_free(bench *b)
{
    mst_model_scratch_free(b->model, b->scratch);
    mst_model_destroy(b->model);
    mst_params_fini(&b->params);
    random_rows_free(&b->rows);
}

static mst_batch batch_of(const bench *b)
{
    return (mst_batch){.rows = b->rows.rows, .n_rows = b->rows.n_rows};
}

/* The rows whose class has the highest score, the first of equal ones. */
static double correct_of(const bench *b)
{
    float scores[MAX_ROWS * 4];
    mst_batch batch = batch_of(b);
    uint32_t c = b->model->n_scores;
    double correct = 0;
    b->model->ops->forward(b->model, b->scratch, &batch, &b->weights, scores);
    for (uint32_t i = 0; i < batch.n_rows; i++) {
        const float *own = scores + (size_t)i * c;
        uint32_t label = batch.rows[i].label > 0 ? (uint32_t)batch.rows[i].label : 0;
        bool right = c > 1 || (own[0] > 0) == (label > 0);
        for (uint32_t q = 0; c > 1 && q < c; q++)
            right = right && (q < label ? own[q] < own[label] : own[q] <= own[label]);
        correct += right;
    }
    return correct;
}

/* The loss of the model's scores, in double precision; *weight is the sum of the rows' weights. */
static double loss_of(const bench *b, double *weight)
{
    float scores[MAX_ROWS * 4];
    mst_batch batch = batch_of(b);
    uint32_t c = b->model->n_scores;
    double loss = 0.0, total = 0.0;
    b->model->ops->forward(b->model, b->scratch, &batch, &b->weights, scores);
    for (uint32_t i = 0; i < batch.n_rows; i++) {
        const mst_row *row = &batch.rows[i];
        double v = (double)row->weight;
        if (c == 1) {
            bool positive = row->label > 0;
            double z = (positive ? 1.0 : -1.0) * (double)scores[i];
            v *= positive ? b->pos_weight : 1.0;
            loss += v * (z > 0 ? log1p(exp(-z)) : -z + log1p(exp(z)));
        } else {
            double sum = 0.0;
            for (uint32_t q = 0; q < c; q++)
                sum += exp((double)scores[i * c + q]);
            loss += v * (log(sum) - (double)scores[i * c + (uint32_t)row->label]);
        }
        total += v;
    }
    if (weight != NULL)
        *weight = total;
    return loss;
}

static void grad_for(const bench *b, mst_grad *grad, uint32_t n_owners)
{
    assert_int_equal(mst_grad_init(grad, b->layout.ranges, b->layout.n_ranges, b->layout.sparse_offset,
                                   b->layout.width, n_owners),
                     MST_OK);
}

/* The whole gradient as a vector over the store; checks that every contribution lies with its owner. */
static double *flatten(const bench *b, const mst_grad *grad)
{
    double *g = calloc(b->params.size, sizeof *g);
    for (uint32_t r = 0; r < grad->n_ranges; r++)
        for (uint64_t i = 0; i < grad->ranges[r].size; i++)
            g[grad->ranges[r].offset + i] += (double)grad->ranges[r].g[i];
    for (uint32_t o = 0; o < grad->n_owners && grad->width != 0; o++)
        for (size_t i = 0; i < grad->owners[o].n; i++) {
            uint32_t key = grad->owners[o].keys[i];
            assert_int_equal(mst_grad_owner(key, grad->n_owners), o);
            /* a weight of a dense range is updated there and nowhere else */
            assert_true(key >= b->model->shape.n_dense);
            for (uint32_t c = 0; c < grad->width; c++)
                g[grad->sparse_offset + (uint64_t)key * grad->width + c] +=
                    (double)grad->owners[o].values[i * grad->width + c];
        }
    return g;
}

static double *gradient_of(const bench *b, const mst_batch *batch, float scale, uint32_t n_owners,
                           mst_loss_sum *sum)
{
    mst_grad grad;
    grad_for(b, &grad, n_owners);
    assert_int_equal(
        b->model->ops->compute(b->model, b->scratch, batch, &b->weights, scale, &grad, NULL, sum), MST_OK);
    double *g = flatten(b, &grad);
    mst_grad_fini(&grad);
    return g;
}

/* Weights that no row reaches must have no gradient; these are the others and some more. */
static bool reachable(const bench *b, uint64_t i)
{
    const mst_view *weight = &b->params.views[0];
    if (i < weight->offset || i >= weight->offset + weight->size || weight->size <= N_KEYS * 4)
        return true;
    return i - weight->offset < (uint64_t)N_KEYS * (weight->width ? weight->width : 1);
}

/* Richardson's rule: exact up to h^4. */
static double difference(bench *b, uint64_t i)
{
    const float h = 0x1p-5f;
    float w = b->params.w[i];
    double f[4];
    static const float steps[4] = {-2, -1, 1, 2};
    for (int s = 0; s < 4; s++) {
        b->params.w[i] = w + steps[s] * h;
        f[s] = loss_of(b, NULL);
    }
    b->params.w[i] = w;
    return (8 * (f[2] - f[1]) - (f[3] - f[0])) / (12.0 * (double)h);
}

#define EACH_CASE(b, v, kind, k)                                                                             \
    for (int isa_ = 0; isa_ < MST_ISA_COUNT; isa_++)                                                         \
        for (const mst_kernels *k = mst_isa_supported((mst_isa)isa_) ? mst_kernels_get((mst_isa)isa_)        \
                                                                     : NULL;                                 \
             k != NULL; k = NULL)                                                                            \
            for (size_t v = 0; v < N_VARIANTS; v++)                                                          \
                for (int kind = 0; kind < ROWS_KINDS; kind++)                                                \
                    for (bench b = bench_make(&variants[v], (row_kind)kind, k, v * 10 + (size_t)kind);       \
                         b.model != NULL; bench_free(&b), b.model = NULL)

static void every_model_has_a_case(void **state)
{
    (void)state;
    for (int m = 0; mst_models[m] != NULL; m++) {
        bool found = mst_model_has(mst_models[m], MST_MODEL_NET); /* test_layers.c */
        for (size_t v = 0; v < N_VARIANTS; v++)
            found |= variants[v].model == m;
        assert_true(found);
        assert_non_null(mst_models[m]->name);
        assert_non_null(mst_models[m]->help);
    }
}

static void gradient_is_the_derivative(void **state)
{
    (void)state;
    EACH_CASE(b, v, kind, k)
    {
        mst_loss_sum sum = {.loss = 1, .weight = 2, .rows = 3, .correct = 4};
        mst_batch batch = batch_of(&b);
        double weight, loss = loss_of(&b, &weight);
        double *g = gradient_of(&b, &batch, 1.0f, 1, &sum);
        assert_true(fabs(sum.loss - 1 - loss) <= 1e-5 * (1 + loss));
        assert_true(fabs(sum.weight - 2 - weight) <= 1e-6 * (1 + weight));
        assert_int_equal(sum.rows, 3 + batch.n_rows);
        assert_true(sum.correct == 4 + correct_of(&b));
        for (uint64_t i = 0; i < b.params.size; i++) {
            double want = reachable(&b, i) ? difference(&b, i) : 0.0;
            if (!(fabs(g[i] - want) <= 3e-4 * (1 + fabs(want))))
                fail_msg("%s on %s rows, %s, weight %llu: gradient %g, difference %g", b.model->ops->name,
                         row_kind_names[kind], mst_isa_name(k->isa), (unsigned long long)i, g[i], want);
        }
        free(g);
    }
}

/* compute scales, and adds to what is there. */
static void gradient_scales_and_accumulates(void **state)
{
    (void)state;
    EACH_CASE(b, v, kind, k)
    {
        mst_batch batch = batch_of(&b);
        mst_loss_sum sum = {0}, twice = {0};
        double *g = gradient_of(&b, &batch, 1.0f, 1, &sum);
        mst_grad grad;
        grad_for(&b, &grad, 1);
        for (int i = 0; i < 2; i++)
            assert_int_equal(
                b.model->ops->compute(b.model, b.scratch, &batch, &b.weights, 0.25f, &grad, NULL, &twice),
                MST_OK);
        double *half = flatten(&b, &grad);
        for (uint64_t i = 0; i < b.params.size; i++)
            assert_true(fabs(half[i] - 0.5 * g[i]) <= 2e-6 * (1 + fabs(g[i])));
        assert_true(fabs(twice.loss - 2 * sum.loss) <= 1e-9 * (1 + sum.loss));
        free(half);
        free(g);
        mst_grad_fini(&grad);
    }
}

static void owners_do_not_matter(void **state)
{
    (void)state;
    EACH_CASE(b, v, kind, k)
    {
        mst_batch batch = batch_of(&b);
        mst_loss_sum sum = {0}, other = {0};
        double *g = gradient_of(&b, &batch, 0.5f, 1, &sum);
        for (uint32_t n = 2; n <= 4; n++) {
            other = (mst_loss_sum){0};
            double *parts = gradient_of(&b, &batch, 0.5f, n, &other);
            assert_memory_equal(parts, g, b.params.size * sizeof *g);
            assert_true(other.loss == sum.loss && other.weight == sum.weight && other.rows == sum.rows);
            free(parts);
        }
        free(g);
    }
}

/* A batch larger than any tile equals its rows one by one; an empty batch adds nothing. */
static void batches_are_sums_of_rows(void **state)
{
    (void)state;
    for (size_t v = 0; v < N_VARIANTS; v++)
        for (int kind = 0; kind < ROWS_KINDS; kind++) {
            variant large = variants[v];
            large.n_rows = 150;
            bench b = bench_make(&large, (row_kind)kind, mst_kernels_get(mst_isa_best()), 99);
            mst_batch batch = batch_of(&b), empty = mst_batch_range(&batch, 0, 0);
            mst_loss_sum sum = {0}, rows = {0};
            double *g = gradient_of(&b, &batch, 1.0f, 2, &sum);
            mst_grad grad;
            grad_for(&b, &grad, 2);
            for (uint32_t i = 0; i < batch.n_rows; i++) {
                mst_batch one = mst_batch_range(&batch, i, 1);
                assert_int_equal(
                    b.model->ops->compute(b.model, b.scratch, &one, &b.weights, 1.0f, &grad, NULL, &rows),
                    MST_OK);
            }
            assert_int_equal(
                b.model->ops->compute(b.model, b.scratch, &empty, &b.weights, 1.0f, &grad, NULL, &rows),
                MST_OK);
            double *sums = flatten(&b, &grad);
            for (uint64_t i = 0; i < b.params.size; i++)
                assert_true(fabs(sums[i] - g[i]) <= 2e-5 * (1 + fabs(g[i])));
            assert_true(fabs(rows.loss - sum.loss) <= 1e-5 * sum.loss);
            assert_true(fabs(rows.weight - sum.weight) <= 1e-9 * sum.weight);
            assert_int_equal(rows.rows, 150);
            free(g);
            free(sums);
            mst_grad_fini(&grad);
            bench_free(&b);
        }
}

static void descend_equals_compute_and_update(void **state)
{
    (void)state;
    EACH_CASE(b, v, kind, k)
    {
        static const uint32_t batches[] = {1, 2, 3, 5, 100};
        static const float lrs[16] = {0.1f, 0.2f, 0.05f, 0.1f, 0.3f, 0.01f, 0.1f, 0.1f, 0.2f};
        size_t bytes = b.params.size * sizeof(float);
        float *start = malloc(bytes), *general = malloc(bytes);
        if (b.model->ops->descend == NULL)
            goto skip;
        memcpy(start, b.params.w, bytes);
        for (size_t s = 0; s < sizeof batches / sizeof *batches; s++) {
            mst_batch rows = batch_of(&b);
            mst_loss_sum want = {0}, got = {0};
            memcpy(b.params.w, start, bytes);
            for (uint32_t from = 0, step = 0; from < rows.n_rows; from += batches[s], step++) {
                mst_batch part = mst_batch_range(&rows, from, batches[s]);
                double *g = gradient_of(&b, &part, 1.0f / (float)part.n_rows, 1, &want);
                for (uint64_t i = 0; i < b.params.size; i++)
                    b.params.w[i] -= lrs[step] * (float)g[i];
                free(g);
            }
            memcpy(general, b.params.w, bytes);
            memcpy(b.params.w, start, bytes);
            b.model->ops->descend(b.model, b.scratch, &rows, batches[s], &b.weights, lrs, &got);
            for (uint64_t i = 0; i < b.params.size; i++)
                assert_true(fabs((double)b.params.w[i] - (double)general[i]) <=
                            2e-6 * (1 + fabs((double)general[i])));
            assert_true(fabs(got.loss - want.loss) <= 1e-5 * (1 + want.loss));
            assert_true(fabs(got.weight - want.weight) <= 1e-9 * (1 + want.weight));
            assert_int_equal(got.rows, want.rows);
        }
    skip:
        free(start);
        free(general);
    }
}

static const mst_optim_options optims[] = {
    {.optimizer = 1, .lr = 0.1, .momentum = 0.9},
    {.optimizer = 2, .lr = 0.1, .eps = 1e-8},
    {.optimizer = 2, .lr = 0.1, .eps = 1e-8, .l1 = 1e-3, .l2 = 1e-2, .adagrad_start = 0.1},
    {.optimizer = 3, .lr = 0.01, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    {.optimizer = 4, .lr = 0.1, .ftrl_beta = 1},
    {.optimizer = 4, .lr = 0.1, .ftrl_beta = 1, .l1 = 1e-2, .l2 = 1e-2},
};

/* A step of the general way on vectors: gradient, dense ranges, distinct keys. */
static void general_step(bench *b, const mst_optimizer *o, const mst_batch *part, uint64_t step,
                         mst_loss_sum *sum)
{
    static float g[1 << 18];
    uint32_t keys[1024], width = b->layout.width;
    size_t n = 0;
    mst_update u = {.lr = (float)o->options.lr / (float)step, .step = step};
    float *slots[MST_SLOT_MAX];
    double *whole = gradient_of(b, part, 1.0f / (float)part->n_rows, 1, sum);
    for (uint32_t r = 0; r < b->layout.n_ranges; r++) {
        uint64_t at = b->layout.ranges[r].offset, size = b->layout.ranges[r].size;
        for (uint64_t i = 0; i < size; i++)
            g[i] = (float)whole[at + i];
        mst_params_slots(&b->params, at, slots);
        o->ops->apply_range(o, &u, b->params.w + at, slots, g, size);
    }
    for (uint32_t i = 0; i < part->n_rows; i++)
        for (uint32_t j = 0; j < part->rows[i].n_keys; j++) {
            uint32_t key = part->rows[i].keys[j];
            bool known = key < b->model->shape.n_dense;
            for (size_t k = 0; k < n && !known; k++)
                known = keys[k] == key;
            if (known)
                continue;
            for (uint32_t c = 0; c < width; c++)
                g[n * width + c] = (float)whole[b->layout.sparse_offset + (uint64_t)key * width + c];
            keys[n++] = key;
        }
    mst_key_rows rows = mst_params_keys(&b->params, b->layout.sparse_offset, width, slots);
    o->ops->apply_keys(o, &u, &rows, slots, keys, g, n);
    free(whole);
}

/* Exchanges the bench's store for one with state, and starts both from the same weights. */
static void bench_with_state(bench *b, const mst_optimizer *o, bool by_rows, const float *start)
{
    mst_params_fini(&b->params);
    assert_int_equal(b->model->ops->declare(b->model, &b->params), MST_OK);
    b->params.by_rows = by_rows;
    assert_int_equal(mst_params_reserve(&b->params, o->ops->n_slots, 0), MST_OK);
    mst_model_weights(b->model, &b->params, &b->weights);
    mst_params_write(&b->params, 0, 0, b->params.size, start);
    mst_optimizer_start(o, &b->params, 0, b->params.size);
}

static void descend_rule_equals_the_optimizer(void **state)
{
    (void)state;
    EACH_CASE(b, v, kind, k)
    {
        static const uint32_t batches[] = {1, 3, 100};
        uint64_t size = b.params.size;
        float *start = malloc(size * sizeof(float)), *got = malloc(size * sizeof(float));
        float *want[3] = {malloc(size * sizeof(float)), malloc(size * sizeof(float)),
                          malloc(size * sizeof(float))};
        memcpy(start, b.params.w, size * sizeof(float));
        b.model->options.l2_factors = v % 2 == 0 ? 0.02 : 0.0;
        for (size_t c = 0; b.model->ops->descend_rule != NULL && c < 3 * sizeof optims / sizeof *optims;
             c++) {
            uint32_t batch_rows = batches[c % 3];
            mst_batch rows = batch_of(&b);
            mst_loss_sum expected = {0}, sum = {0};
            mst_rule rules[MAX_ROWS];
            mst_touched touched = {0};
            mst_optimizer o;
            assert_int_equal(mst_optimizer_init(&o, &optims[c / 3]), MST_OK);
            bench_with_state(&b, &o, false, start);
            for (uint32_t from = 0, step = 1; from < rows.n_rows; from += batch_rows, step++) {
                mst_batch part = mst_batch_range(&rows, from, batch_rows);
                general_step(&b, &o, &part, step, &expected);
            }
            for (uint32_t s = 0; s <= o.ops->n_slots; s++)
                mst_params_read(&b.params, s, 0, size, want[s]);
            bench_with_state(&b, &o, true, start);
            assert_true(b.weights.by_rows == (b.params.rows.stride != 0));
            if (b.weights.by_rows) {
                for (uint32_t i = 0; i < rows.n_rows; i++)
                    rules[i] = o.ops->rule(
                        &o, &(mst_update){.lr = (float)o.options.lr / (float)(i + 1), .step = i + 1});
                assert_int_equal(b.model->ops->descend_rule(b.model, b.scratch, &rows, batch_rows, &b.weights,
                                                            rules, &touched, &sum),
                                 MST_OK);
                for (uint32_t s = 0; s <= o.ops->n_slots; s++) {
                    mst_params_read(&b.params, s, 0, size, got);
                    for (uint64_t i = 0; i < size; i++)
                        if (!(fabs((double)got[i] - (double)want[s][i]) <=
                              5e-5 * (0.1 + fabs((double)want[s][i]))))
                            fail_msg(
                                "%s on %s rows, %s, %s, batch %u, slot %u, weight %llu: %g instead of %g",
                                b.model->ops->name, row_kind_names[kind], mst_isa_name(k->isa), o.ops->name,
                                batch_rows, s, (unsigned long long)i, (double)got[i], (double)want[s][i]);
                }
                assert_true(fabs(sum.loss - expected.loss) <= 2e-5 * (1 + expected.loss));
                assert_int_equal(sum.rows, expected.rows);
            }
            mst_free(touched.keys);
        }
        free(start);
        free(got);
        for (int s = 0; s < 3; s++)
            free(want[s]);
    }
}

/* Gradients that are added where they belong, of batches of 7 rows after each other. */
static void gradients_equal_compute(void **state)
{
    (void)state;
    EACH_CASE(b, v, kind, k)
    {
        float *sums = calloc(b.params.size, sizeof *sums), coefs[7];
        if (b.model->ops->gradient != NULL) {
            mst_batch rows = batch_of(&b);
            mst_loss_sum want = {0}, got = {0};
            mst_params copy = b.params; /* the same views over other memory */
            mst_weights out;
            float scale = 1.0f / (float)rows.n_rows;
            double *g = gradient_of(&b, &rows, scale, 1, &want);
            copy.w = sums;
            mst_model_weights(b.model, &copy, &out);
            for (uint32_t from = 0; from < rows.n_rows; from += 7) {
                mst_batch share = mst_batch_range(&rows, from, 7);
                b.weights.near = out.near = from % 2 == 0;
                assert_int_equal(
                    b.model->ops->gradient(b.model, b.scratch, &share, &b.weights, scale, coefs, &out, &got),
                    MST_OK);
            }
            b.weights.near = false;
            for (uint64_t i = 0; i < b.params.size; i++)
                assert_true(fabs((double)sums[i] - g[i]) <= 2e-6 * (1 + fabs(g[i])));
            assert_true(fabs(got.loss - want.loss) <= 1e-5 * (1 + want.loss));
            assert_int_equal(got.rows, want.rows);
            free(g);
        }
        free(sums);
    }
}

/* ---- the step's slots ---- */

typedef struct counting_step {
    mst_step base;
    unsigned needed[MST_RANGE_MAX], ready[MST_RANGE_MAX];
    bool fail_need, fail_ready;
} counting_step;

static mst_status count_need(mst_step *base, uint32_t range)
{
    counting_step *s = (counting_step *)base;
    assert_int_equal(s->ready[range], 0);
    s->needed[range]++;
    return s->fail_need ? mst_fail(MST_EPEER, "server 1 is gone") : MST_OK;
}

static mst_status count_ready(mst_step *base, uint32_t range)
{
    counting_step *s = (counting_step *)base;
    assert_true(s->needed[range] > 0);
    s->ready[range]++;
    return s->fail_ready ? mst_fail(MST_EPEER, "server 2 is gone") : MST_OK;
}

static void step_hears_of_every_range(void **state)
{
    (void)state;
    for (size_t v = 0; v < N_VARIANTS; v++) {
        bench b = bench_make(&variants[v], ROWS_MIXED, mst_kernels_get(MST_ISA_PORTABLE), 4);
        mst_batch batch = batch_of(&b);
        for (int fails = 0; fails < 3; fails++) {
            counting_step step = {
                .base = {count_need, count_ready}, .fail_need = fails == 1, .fail_ready = fails == 2};
            mst_grad grad;
            mst_loss_sum sum = {0};
            grad_for(&b, &grad, 1);
            mst_status st =
                b.model->ops->compute(b.model, b.scratch, &batch, &b.weights, 1.0f, &grad, &step.base, &sum);
            assert_int_equal(st, fails ? MST_EPEER : MST_OK);
            if (fails)
                assert_string_equal(mst_error_text(), fails == 1 ? "server 1 is gone" : "server 2 is gone");
            for (uint32_t r = 0; r < grad.n_ranges && !fails; r++) {
                assert_true(step.needed[r] >= 1);
                assert_int_equal(step.ready[r], 1);
            }
            mst_grad_fini(&grad);
        }
        bench_free(&b);
    }
}

/* ---- shapes and memory ---- */

static void expect_refusal(int which, mst_shape shape, const char *sentence)
{
    mst_model *model = NULL;
    mst_model_options options = {.model = which, .bias = true, .pos_weight = 1};
    assert_int_equal(mst_model_new(&options, &shape, mst_kernels_get(MST_ISA_PORTABLE), &model), MST_EINPUT);
    assert_null(model);
    assert_string_equal(mst_error_text(), sentence);
}

static void shapes_that_do_not_fit(void **state)
{
    (void)state;
    for (int m = 0; mst_models[m] != NULL; m++)
        expect_refusal(m, (mst_shape){.n_features = 0, .n_classes = 2},
                       "the data has no features: nothing to train");
    expect_refusal(0, (mst_shape){.n_features = 10, .n_classes = 3},
                   "logreg takes labels 0/1 or -1/+1, but the data has labels up to 2; use --model softmax");
    expect_refusal(FFM, (mst_shape){.n_features = 10, .n_classes = 3},
                   "ffm takes labels 0/1 or -1/+1, but the data has labels up to 2");
    for (int m = FFM; m <= FWFM; m++) {
        char sentence[160];
        snprintf(sentence, sizeof sentence,
                 "%s needs fields, and the data has none; use --model fm, or data with fields (criteo, csv, "
                 "libffm, "
                 "vw with several namespaces)",
                 mst_models[m]->name);
        expect_refusal(m, (mst_shape){.n_features = 10, .n_classes = 2}, sentence);
    }
    expect_refusal(1, (mst_shape){.n_features = 10, .n_classes = 1},
                   "softmax needs at least two classes; the data has 1");
}

static void short_memory_is_reported(void **state)
{
    (void)state;
    mst_model *model = NULL;
    mst_model_options options = {.pos_weight = 1};
    mst_shape shape = {.n_features = 10, .n_classes = 2};
    mst_alloc_fail_at(1);
    assert_int_equal(mst_model_new(&options, &shape, mst_kernels_get(MST_ISA_PORTABLE), &model), MST_ENOMEM);
    assert_null(model);
    for (size_t v = 0; v < N_VARIANTS; v++) {
        bench b = bench_make(&variants[v], ROWS_MIXED, mst_kernels_get(MST_ISA_PORTABLE), 4);
        mst_batch batch = batch_of(&b);
        mst_loss_sum sum = {0};
        mst_grad grad;
        grad_for(&b, &grad, 3);
        for (uint64_t k = 1;; k++) {
            mst_alloc_fail_at(k);
            mst_status st =
                b.model->ops->compute(b.model, b.scratch, &batch, &b.weights, 1.0f, &grad, NULL, &sum);
            mst_alloc_fail_at(0);
            if (st == MST_OK)
                break;
            assert_int_equal(st, MST_ENOMEM);
        }
        mst_grad_fini(&grad);
        bench_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_model_has_a_case),
        cmocka_unit_test(gradient_is_the_derivative),
        cmocka_unit_test(gradient_scales_and_accumulates),
        cmocka_unit_test(owners_do_not_matter),
        cmocka_unit_test(batches_are_sums_of_rows),
        cmocka_unit_test(descend_equals_compute_and_update),
        cmocka_unit_test(descend_rule_equals_the_optimizer),
        cmocka_unit_test(gradients_equal_compute),
        cmocka_unit_test(step_hears_of_every_range),
        cmocka_unit_test(shapes_that_do_not_fit),
        cmocka_unit_test(short_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
