/* Tile kernels in every instruction set: tanh and sigmoid against libm, their derivatives, rows to lanes and
 * back, gradients of weights for few rows, sums of lanes. contract/test_executors covers whole nets. */
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
#include "base/rng.h"
#include "model/tile_kernels.h"

/* Runs the body with `k` for every instruction set of this machine. */
#define EACH_SET(k)                                                                                          \
    for (mst_isa isa_ = 0; isa_ < MST_ISA_COUNT; isa_++)                                                     \
        for (const mst_tile_kernels *k = mst_isa_supported(isa_) ? mst_tile_kernels_get(isa_) : NULL;        \
             k != NULL; k = NULL)

static float *numbers(size_t n, uint64_t seed)
{
    float *x = mst_alloc_lines(n * sizeof *x);
    mst_rng rng;
    assert_non_null(x);
    mst_rng_init(&rng, seed, MST_RNG_TEST, 0);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)mst_rng_normal(&rng);
    return x;
}

static void close_to(float got, double expected, double tolerance, float x)
{
    if (!(fabs((double)got - expected) <= tolerance * fabs(expected)))
        fail_msg("f(%.9g) is %.9g and should be %.9g", (double)x, (double)got, expected);
}

/* 2^-20 .. 2^7 on both sides of zero, in small steps. */
static void activations_are_exact(void **state)
{
    enum { N = 1 << 14 };
    float *x = numbers(N, 1), *y = numbers(N, 2);
    (void)state;
    for (int i = 0; i < N; i++)
        x[i] = (i % 2 ? -1.0f : 1.0f) * exp2f(-20.0f + 26.4f * (float)i / N); /* up to 84: normal results */
    EACH_SET(k)
    {
        k->act_forward(MST_TILE_TANH, N / k->lanes, x, y);
        for (int i = 0; i < N; i++)
            close_to(y[i], tanh((double)x[i]), 1e-6, x[i]);
        k->act_forward(MST_TILE_SIGMOID, N / k->lanes, x, y);
        for (int i = 0; i < N; i++)
            close_to(y[i], 1.0 / (1.0 + exp(-(double)x[i])), 1e-6, x[i]);
        k->act_forward(MST_TILE_RELU, N / k->lanes, x, y);
        for (int i = 0; i < N; i++)
            assert_true(y[i] == (x[i] > 0.0f ? x[i] : 0.0f));
    }
    mst_free(x);
    mst_free(y);
}

static void activations_bear_anything(void **state)
{
    static const float odd[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e30f, -1e30f, 1e-40f};
    static const double tanhs[] = {0, 0, 1, -1, NAN, 1, -1, 1e-40};
    static const double sigmoids[] = {0.5, 0.5, 1, 0, NAN, 1, 0, 0.5};
    float *x = numbers(16, 1), *y = numbers(16, 2);
    (void)state;
    for (int i = 0; i < 16; i++)
        x[i] = odd[i % 8];
    EACH_SET(k)
    for (mst_tile_act act = MST_TILE_RELU; act <= MST_TILE_SIGMOID; act++) {
        k->act_forward(act, 16 / k->lanes, x, y);
        for (int i = 0; i < 16; i++) {
            double expected = act == MST_TILE_TANH      ? tanhs[i % 8]
                              : act == MST_TILE_SIGMOID ? sigmoids[i % 8]
                                                        : (x[i] < 0.0f ? 0.0 : (double)x[i]);
            if (isnan(expected))
                assert_true(isnan(y[i]));
            else
                assert_true((double)y[i] == expected || fabs((double)y[i] - expected) < 1e-37);
        }
    }
    mst_free(x);
    mst_free(y);
}

static void slopes_are_those_of_the_output(void **state)
{
    enum { N = 64 };
    float *y = numbers(N, 3), *dy = numbers(N, 4), *factors = numbers(N, 5), *x = numbers(N, 3);
    (void)state;
    EACH_SET(k)
    for (mst_tile_act act = MST_TILE_SAME; act <= MST_TILE_SIGMOID; act++)
        for (int with = 0; with < 2; with++) {
            memcpy(x, y, N * sizeof *x);
            k->act_backward(act, N / k->lanes, dy, with ? factors : NULL, x);
            for (int i = 0; i < N; i++) {
                double v = (double)y[i], d = (double)dy[i] * (with ? (double)factors[i] : 1.0);
                double slope = act == MST_TILE_RELU      ? v > 0.0
                               : act == MST_TILE_TANH    ? 1.0 - v * v
                               : act == MST_TILE_SIGMOID ? v * (1.0 - v)
                                                         : 1.0;
                assert_float_equal(x[i], d * slope, 1e-5);
            }
        }
    mst_free(x);
    mst_free(y);
    mst_free(dy);
    mst_free(factors);
}

static void rows_become_lanes_and_back(void **state)
{
    (void)state;
    EACH_SET(k)
    for (uint32_t size = 1; size <= 40; size += 3)
        for (uint32_t n = 1; n <= k->lanes; n++) {
            uint32_t lanes = k->lanes, ld = size + 3;
            /* as long as they must be: the address sanitizer sees anything beyond */
            float *rows = malloc(((n - 1) * ld + size) * sizeof *rows);
            float *back = malloc(((n - 1) * ld + size) * sizeof *back);
            float *x = mst_alloc_lines((size_t)size * lanes * sizeof *x);
            for (uint32_t i = 0; i < (n - 1) * ld + size; i++) {
                rows[i] = (float)i;
                back[i] = -1.0f;
            }
            k->to_lanes(rows, ld, n, size, x);
            for (uint32_t i = 0; i < size * lanes; i++)
                assert_true(x[i] == (i % lanes < n ? rows[i % lanes * ld + i / lanes] : 0.0f));
            k->to_rows(x, size, n, back, ld);
            for (uint32_t i = 0; i < (n - 1) * ld + size; i++)
                assert_true(back[i] == (i % ld < size ? rows[i] : -1.0f));
            free(rows);
            free(back);
            mst_free(x);
        }
}

static void lanes_add_up(void **state)
{
    (void)state;
    EACH_SET(k)
    for (uint32_t n = 1; n <= 50; n += 7) {
        float *sums = numbers((size_t)n * k->lanes, n), *g = numbers(n, 9), *before = numbers(n, 9);
        bool fresh = n / 7 % 2 == 1;
        k->add_lanes(sums, n, fresh, g);
        for (uint32_t i = 0; i < n; i++) {
            double expected = fresh ? 0.0 : (double)before[i];
            for (uint32_t lane = 0; lane < k->lanes; lane++)
                expected += (double)sums[i * k->lanes + lane];
            assert_float_equal(g[i], expected, 1e-5);
        }
        mst_free(sums);
        mst_free(g);
        mst_free(before);
    }
}

/* Forward, backward and weights of a fully connected layer, of every size around the blocks of kernels. */
static void check_linear(const mst_tile_kernels *k, uint32_t n_in, uint32_t n_out, uint32_t n, bool fresh)
{
    uint32_t lanes = k->lanes, ld = (n_in + lanes - 1) / lanes * lanes;
    size_t n_weights = (size_t)n_in * n_out;
    float *w = numbers(n_weights, 1), *b = numbers(n_out, 2), *x = numbers((size_t)n_in * lanes, 3);
    float *rows = numbers((size_t)ld * n, 4), *y = numbers((size_t)n_out * lanes, 5);
    float *packed = numbers(n_weights, 6), *gw = numbers(n_weights, 7), *gb = numbers(n_out, 8);
    float *gw0 = numbers(n_weights, 7), *gb0 = numbers(n_out, 8);
    k->to_lanes(rows, ld, n, n_in, x);
    k->pack(w, n_out, n_in, packed);
    k->linear_forward(n_in, n_out, x, packed, b, true, y);
    for (uint32_t o = 0; o < n_out; o++)
        for (uint32_t t = 0; t < n; t++) {
            double sum = (double)b[o];
            for (uint32_t i = 0; i < n_in; i++)
                sum += (double)w[o * n_in + i] * (double)rows[t * ld + i];
            assert_float_equal(y[o * lanes + t], sum > 0.0 ? sum : 0.0, 1e-3);
        }
    for (uint32_t o = 0; o < n_out; o++)
        for (uint32_t t = n; t < lanes; t++)
            y[o * lanes + t] = 0.0f; /* no image, no gradient */
    k->linear_weights(n_in, n_out, n, rows, ld, y, fresh, gw, gb);
    for (uint32_t o = 0; o < n_out; o++) {
        double bias = fresh ? 0.0 : (double)gb0[o];
        for (uint32_t t = 0; t < n; t++)
            bias += (double)y[o * lanes + t];
        assert_float_equal(gb[o], bias, 1e-3);
        for (uint32_t i = 0; i < n_in; i++) {
            double sum = fresh ? 0.0 : (double)gw0[o * n_in + i];
            for (uint32_t t = 0; t < n; t++)
                sum += (double)y[o * lanes + t] * (double)rows[t * ld + i];
            assert_float_equal(gw[o * n_in + i], sum, 1e-2);
        }
    }
    k->linear_backward(n_in, n_out, (mst_tile_part){0, n_in}, y, w, MST_TILE_SAME, x);
    for (uint32_t i = 0; i < n_in; i++)
        for (uint32_t t = 0; t < n; t++) {
            double sum = 0.0;
            for (uint32_t o = 0; o < n_out; o++)
                sum += (double)w[o * n_in + i] * (double)y[o * lanes + t];
            assert_float_equal(x[i * lanes + t], sum, 1e-2);
        }
    float *all[] = {w, b, x, rows, y, packed, gw, gb, gw0, gb0};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mst_free(all[i]);
}

static void linear_of_every_size(void **state)
{
    (void)state;
    EACH_SET(k)
    for (uint32_t n_out = 1; n_out <= 35; n_out++)
        for (int fresh = 0; fresh < 2; fresh++)
            check_linear(k, 1 + n_out * 7 % 71, n_out, 1 + n_out % k->lanes, fresh != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_are_exact),
        cmocka_unit_test(activations_bear_anything),
        cmocka_unit_test(slopes_are_those_of_the_output),
        cmocka_unit_test(rows_become_lanes_and_back),
        cmocka_unit_test(lanes_add_up),
        cmocka_unit_test(linear_of_every_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
