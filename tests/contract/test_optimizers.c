/* The contract of optimizers, over the registry: keys equal ranges bit for bit if all are present (of rules
 * with one state per key: keys of one weight), parts equal the whole bit for bit, absent keys and zero
 * gradients change nothing, L1 gives exact zeros, and the loss of a convex function decreases. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "optim/optim.h"

#define N     997 /* prime: every split leaves odd ends to vector loops */
#define STEPS 7

typedef struct vectors {
    float w[N], a[N], b[N];
} vectors;

/* Without regularisation, and with each kind and both. */
static const struct {
    double l1, l2;
} strengths[] = {{0, 0}, {0.01, 0}, {0, 0.02}, {0.003, 0.004}};
#define N_STRENGTHS (sizeof strengths / sizeof *strengths)

static mst_optimizer make(int which, double lr, double l1, double l2)
{
    mst_optimizer optimizer;
    mst_optim_options options = {.optimizer = which,
                                 .lr = lr,
                                 .l1 = l1,
                                 .l2 = l2,
                                 .momentum = 0.9,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = 1e-8,
                                 .ftrl_beta = 1.0};
    assert_int_equal(mst_optimizer_init(&optimizer, &options), MST_OK);
    return optimizer;
}

static void fill(vectors *v, uint64_t seed)
{
    mst_rng rng;
    mst_rng_init(&rng, seed, MST_RNG_TEST, 0);
    memset(v, 0, sizeof *v);
    for (size_t i = 0; i < N; i++)
        v->w[i] = i % 5 == 0 ? 0 : (float)(mst_rng_uniform(&rng) - 0.5);
}

/* Sizes from 1e-4 to 10, some exactly zero. */
static void gradient(float *g, size_t n, uint64_t step)
{
    mst_rng rng;
    mst_rng_init(&rng, 7, MST_RNG_TEST, step);
    for (size_t i = 0; i < n; i++) {
        double sign = mst_rng_uniform(&rng) - 0.5, size = pow(10, 5 * mst_rng_uniform(&rng) - 4);
        g[i] = mst_rng_below(&rng, 8) == 0 ? 0 : (float)(sign * size);
    }
}

static void apply_range(const mst_optimizer *o, uint64_t step, vectors *v, const float *g, size_t from,
                        size_t to)
{
    mst_update u = {.lr = 0.1f / (float)step, .step = step};
    float *slots[] = {v->a + from, v->b + from};
    o->ops->apply_range(o, &u, v->w + from, slots, g + from, to - from);
}

static void apply_keys(const mst_optimizer *o, uint64_t step, vectors *v, const uint32_t *keys,
                       const float *g, size_t n, uint32_t width)
{
    mst_update u = {.lr = 0.1f / (float)step, .step = step};
    float *slots[] = {v->a, v->b};
    uint32_t state = o->ops->row_name != NULL ? 1 : width;
    mst_key_rows rows = {
        .at = v->w, .width = width, .stride = width, .state_width = state, .state_stride = state};
    o->ops->apply_keys(o, &u, &rows, slots, keys, g, n);
}

#define FOR_EACH(o)                                                                                          \
    for (int which_ = 0; mst_optimizers[which_] != NULL; which_++)                                           \
        for (size_t s_ = 0; s_ < N_STRENGTHS; s_++)                                                          \
            for (mst_optimizer o = make(which_, 0.1, strengths[s_].l1, strengths[s_].l2); o.ops; o.ops = NULL)

static void test_sparse_equals_dense(void **state)
{
    static const uint32_t widths[] = {1, 2, 3, 10, 16, 37};
    static vectors dense, sparse;
    float g[N];
    uint32_t keys[N];
    (void)state;
    for (uint32_t k = 0; k < N; k++)
        keys[k] = k;
    FOR_EACH(o)
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        uint32_t width = widths[i];
        size_t n_keys = N / width, n = n_keys * width;
        if (o.ops->row_name != NULL && width > 1)
            continue;
        fill(&dense, i);
        fill(&sparse, i);
        for (uint64_t step = 1; step <= STEPS; step++) {
            gradient(g, N, step);
            apply_range(&o, step, &dense, g, 0, n);
            apply_keys(&o, step, &sparse, keys, g, n_keys, width);
            if (memcmp(&dense, &sparse, sizeof dense) != 0)
                fail_msg("%s: l1 %g l2 %g width %u differs at step %d", o.ops->name, o.options.l1,
                         o.options.l2, width, (int)step);
        }
    }
}

/* Keys one by one, in any division among servers, equal all of them at once, whatever their width. */
static void test_keys_are_independent(void **state)
{
    static const uint32_t widths[] = {2, 3, 10, 17};
    static vectors whole, parts;
    float g[N];
    uint32_t keys[N];
    (void)state;
    for (uint32_t k = 0; k < N; k++)
        keys[k] = k;
    FOR_EACH(o)
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++) {
        uint32_t width = widths[i];
        size_t n_keys = N / width;
        fill(&whole, i);
        fill(&parts, i);
        for (uint64_t step = 1; step <= STEPS; step++) {
            gradient(g, N, step);
            apply_keys(&o, step, &whole, keys, g, n_keys, width);
            for (size_t from = n_keys; from > 0; from -= from < 7 ? from : 7) {
                size_t first = from < 7 ? 0 : from - 7;
                apply_keys(&o, step, &parts, keys + first, g + first * width, from - first, width);
            }
        }
        assert_memory_equal(&whole, &parts, sizeof whole);
    }
}

/* One state for all weights of a key: a key whose weights have equal gradients moves as under adagrad, and a
 * large gradient of one weight slows the others down. */
static void test_state_of_a_key(void **state)
{
    (void)state;
    for (int which = 0; mst_optimizers[which] != NULL; which++) {
        mst_optimizer o = make(which, 0.1, 0, 0);
        float w[8] = {0}, s[2] = {0}, each[4] = {0}, a[4] = {0};
        const float g[8] = {0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 4.0f, 0.5f, 0.5f};
        float *slots[] = {s, NULL}, *own[] = {a, NULL};
        mst_update u = {.lr = 0.1f, .step = 1};
        if (o.ops->row_name == NULL)
            continue;
        o.ops->apply_keys(
            &o, &u, &(mst_key_rows){.at = w, .width = 4, .stride = 4, .state_width = 1, .state_stride = 1},
            slots, (uint32_t[]){0, 1}, g, 2);
        o.ops->apply_range(&o, &u, each, own, g, 4);
        assert_memory_equal(w, each, sizeof each);
        assert_true(s[0] == 0.25f && s[1] == (3 * 0.25f + 16) / 4);
        assert_true(fabsf(w[4]) < 0.3f * fabsf(w[0]) && w[4] == w[6] && fabsf(w[5] - 8 * w[4]) < 1e-6f);
    }
}

static void test_order_of_keys_is_free(void **state)
{
    static vectors up, down;
    float g[N], g_down[N];
    uint32_t keys[N], keys_down[N];
    (void)state;
    FOR_EACH(o)
    {
        fill(&up, 1);
        fill(&down, 1);
        for (uint64_t step = 1; step <= STEPS; step++) {
            gradient(g, N, step);
            for (uint32_t k = 0; k < N; k++) {
                keys[k] = k;
                keys_down[k] = N - 1 - k;
                g_down[k] = g[N - 1 - k];
            }
            apply_keys(&o, step, &up, keys, g, N, 1);
            apply_keys(&o, step, &down, keys_down, g_down, N, 1);
        }
        assert_memory_equal(&up, &down, sizeof up);
    }
}

static void test_shards_equal_whole(void **state)
{
    static const size_t cuts[] = {1, 2, 3, 5, 16, 64, 333, N};
    static vectors whole, parts;
    float g[N];
    (void)state;
    FOR_EACH(o)
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        fill(&whole, i);
        fill(&parts, i);
        for (uint64_t step = 1; step <= STEPS; step++) {
            gradient(g, N, step);
            apply_range(&o, step, &whole, g, 0, N);
            for (size_t from = 0; from < N; from += cuts[i])
                apply_range(&o, step, &parts, g, from, from + cuts[i] < N ? from + cuts[i] : N);
        }
        assert_memory_equal(&whole, &parts, sizeof whole);
    }
}

static void test_other_keys_are_untouched(void **state)
{
    static vectors before, after;
    float g[N];
    uint32_t keys[N];
    (void)state;
    FOR_EACH(o)
    for (uint32_t width = 1; width <= 4; width++) {
        size_t n = 0;
        fill(&before, width);
        gradient(before.a, N, 100);
        for (size_t i = 0; i < N; i++)
            before.b[i] = fabsf(before.a[i]);
        after = before;
        for (uint32_t k = 1; k < N / width; k += 3)
            keys[n++] = k;
        gradient(g, N, 1);
        apply_keys(&o, 2, &after, keys, g, n, width);
        uint32_t per_key = o.ops->row_name != NULL ? 1 : width;
        for (uint32_t i = 0; i < N; i++) {
            if (i / width % 3 != 1 || i / width >= N / width)
                assert_true(after.w[i] == before.w[i]);
            if (i / per_key % 3 != 1 || i / per_key >= N / width)
                assert_true(after.a[i] == before.a[i] && after.b[i] == before.b[i]);
        }
        assert_memory_not_equal(after.w, before.w, sizeof after.w);
        apply_keys(&o, 2, &after, keys, g, 0, width); /* no keys at all */
    }
}

/* Weights that no gradient has reached yet stay as they are, to the bit, under a dense update. */
static void test_zero_gradient_changes_nothing(void **state)
{
    static vectors before, after;
    float g[N] = {0};
    (void)state;
    for (int which = 0; mst_optimizers[which] != NULL; which++) {
        mst_optimizer o = make(which, 0.1, 0, 0);
        fill(&before, 3);
        after = before;
        for (uint64_t step = 1; step <= STEPS; step++)
            apply_range(&o, step, &after, g, 0, N);
        assert_memory_equal(&before, &after, sizeof before);
    }
}

/* With L1 per step, weights converge to the minimum of loss + l1*|w|, exact zeros included. ftrl's L1 is
 * weighed against the sum of gradients instead and vanishes beside it in the long run: the next test is for
 * that. */
static void test_l1_minimum(void **state)
{
    (void)state;
    for (int which = 0; mst_optimizers[which] != NULL; which++) {
        if (strcmp(mst_optimizers[which]->name, "ftrl") == 0)
            continue;
        mst_optimizer o = make(which, 0.1, 0.5, 0);
        /* loss = (w - c)^2/2 + 0.5*|w|: the minimum is at 0 for |c| <= 0.5 and at c -+ 0.5 beyond */
        static const float centres[] = {0.2f, -0.3f, 0.05f, -0.45f, 2.0f, -1.5f};
        enum { M = sizeof centres / sizeof *centres };
        float w[M] = {0.01f, -0.02f, 0.4f, 0.3f, 0.0f, 1.0f}, a[M] = {0}, b[M] = {0}, g[M];
        float *slots[] = {a, b};
        for (uint64_t step = 1; step <= 4000; step++) {
            mst_update u = {.lr = 0.1f, .step = step};
            for (int i = 0; i < M; i++)
                g[i] = w[i] - centres[i];
            o.ops->apply_range(&o, &u, w, slots, g, M);
        }
        for (int i = 0; i < M; i++) {
            float expected = fabsf(centres[i]) <= 0.5f ? 0 : centres[i] - copysignf(0.5f, centres[i]);
            float slack = expected == 0 ? 0 : 0.02f;
            if (!(fabsf(w[i] - expected) <= slack))
                fail_msg("%s: weight %d is %g, expected %g", o.ops->name, i, (double)w[i], (double)expected);
        }
    }
}

/* Gradients that are noise leave exact zeros; those that agree do not. */
static void test_l1_zeroes_noise(void **state)
{
    (void)state;
    for (int which = 0; mst_optimizers[which] != NULL; which++)
        for (int regularised = 0; regularised < 2; regularised++) {
            mst_optimizer o = make(which, 0.1, regularised ? 0.5 : 0, 0);
            enum { M = 9 }; /* the last has a steady gradient */
            float w[M] = {0}, a[M] = {0}, b[M] = {0}, g[M];
            float *slots[] = {a, b};
            for (uint64_t step = 1; step <= 101; step++) {
                mst_update u = {.lr = 0.1f, .step = step};
                for (int i = 0; i < M; i++)
                    g[i] = i == M - 1 ? -1 : (step % 2 ? 0.05f : -0.05f) * (float)(i + 1);
                o.ops->apply_range(&o, &u, w, slots, g, M);
            }
            for (int i = 0; i < M - 1; i++)
                assert_int_equal(w[i] == 0, regularised);
            assert_true(w[M - 1] > 0.1f);
        }
}

/* loss = sum of h_i * (w_i - c_i)^2 / 2, curvatures h from 0.1 to 2 */
static double quadratic(const float *w, float *g, size_t n)
{
    double loss = 0;
    for (size_t i = 0; i < n; i++) {
        double h = 0.1 + 1.9 * (double)i / (double)n, off = w[i] - (i % 7 / 7.0 - 0.4);
        g[i] = (float)(h * off);
        loss += 0.5 * h * off * off;
    }
    return loss;
}

static void test_loss_falls(void **state)
{
    static vectors v;
    float g[N];
    (void)state;
    for (int which = 0; mst_optimizers[which] != NULL; which++) {
        mst_optimizer o = make(which, 0.1, 0, 0);
        fill(&v, 11);
        float *slots[] = {v.a, v.b};
        double first = quadratic(v.w, g, N), loss = first;
        for (uint64_t step = 1; step <= 300; step++) {
            mst_update u = {.lr = 0.1f, .step = step};
            o.ops->apply_range(&o, &u, v.w, slots, g, N);
            loss = quadratic(v.w, g, N);
            assert_true(isfinite(loss));
            if (step == 30)
                assert_true(loss < 0.7 * first);
        }
        if (!(loss < 0.02 * first))
            fail_msg("%s: loss fell from %g only to %g", o.ops->name, first, loss);
    }
}

/* The promise behind updates in place: contributions one by one give w - lr*sum to rounding. */
static void test_additive_means_additive(void **state)
{
    (void)state;
    FOR_EACH(o)
    {
        if (!o.ops->additive(&o))
            continue;
        mst_update u = {.lr = 0.1f, .step = 1};
        const uint32_t key = 0;
        const float parts[] = {0.5f, -0.25f, 1.5f};
        float w = 1, whole = 1;
        float *slots[] = {NULL, NULL};
        for (int i = 0; i < 3; i++)
            o.ops->apply_keys(&o, &u, &(mst_key_rows){.at = &w, .width = 1, .stride = 1}, slots, &key,
                              &parts[i], 1);
        const float sum = 1.75f;
        o.ops->apply_range(&o, &u, &whole, slots, &sum, 1);
        assert_true(fabsf(w - whole) < 1e-6f && fabsf(w - 0.825f) < 1e-6f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sparse_equals_dense),
        cmocka_unit_test(test_keys_are_independent),
        cmocka_unit_test(test_state_of_a_key),
        cmocka_unit_test(test_order_of_keys_is_free),
        cmocka_unit_test(test_shards_equal_whole),
        cmocka_unit_test(test_other_keys_are_untouched),
        cmocka_unit_test(test_zero_gradient_changes_nothing),
        cmocka_unit_test(test_l1_minimum),
        cmocka_unit_test(test_l1_zeroes_noise),
        cmocka_unit_test(test_loss_falls),
        cmocka_unit_test(test_additive_means_additive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
