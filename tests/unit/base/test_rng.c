/* Random streams: Philox4x32-10 against the known answers that its authors publish with Random123
 * (kat_vectors), streams that are functions of their name alone, and the moments of what is drawn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/rng.h"

static void test_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], answer[4];
    } kat[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof kat / sizeof *kat; i++) {
        mst_rng rng = {.used = 4};
        memcpy(rng.counter, kat[i].counter, sizeof rng.counter);
        memcpy(rng.key, kat[i].key, sizeof rng.key);
        for (int w = 0; w < 4; w++)
            assert_int_equal(mst_rng_u32(&rng), kat[i].answer[w]);
    }
}

/* A stream is a function of (seed, purpose, index); any other name gives another stream. */
static void test_streams(void **state)
{
    (void)state;
    const struct {
        uint64_t seed;
        mst_rng_purpose purpose;
        uint64_t index;
    } names[] = {
        {1, MST_RNG_TEST, 0},
        {2, MST_RNG_TEST, 0},
        {1, MST_RNG_INIT, 0},
        {1, MST_RNG_TEST, 1},
        {1ull << 32, MST_RNG_TEST, 0},
        {1, MST_RNG_TEST, 1ull << 32},
        {1ull << 32 | 1, MST_RNG_TEST, 0},
    };
    enum { N = sizeof names / sizeof *names, DRAWS = 4096 };
    static uint64_t drawn[N][DRAWS];
    for (int s = 0; s < N; s++) {
        mst_rng rng, again;
        mst_rng_init(&rng, names[s].seed, names[s].purpose, names[s].index);
        mst_rng_init(&again, names[s].seed, names[s].purpose, names[s].index);
        for (int i = 0; i < DRAWS; i++) {
            drawn[s][i] = mst_rng_u64(&rng);
            assert_true(drawn[s][i] == mst_rng_u64(&again));
        }
        assert_true(drawn[s][0] == mst_rng_at(names[s].seed, names[s].purpose, names[s].index));
    }
    for (int a = 0; a < N; a++) {
        for (int b = a + 1; b < N; b++) {
            int64_t agreeing = 0;
            for (int i = 0; i < DRAWS; i++) {
                assert_true(drawn[a][i] != drawn[b][i]);
                agreeing += 64 - __builtin_popcountll(drawn[a][i] ^ drawn[b][i]);
            }
            double expected = 32.0 * DRAWS, sigma = sqrt(16.0 * DRAWS);
            assert_true(fabs((double)agreeing - expected) < 5 * sigma);
        }
    }
}

static void test_uniform(void **state)
{
    (void)state;
    enum { N = 1000000 };
    mst_rng rng;
    double sum = 0, squares = 0, lag = 0, before = 0;
    int bins[16] = {0};
    mst_rng_init(&rng, 3, MST_RNG_TEST, 0);
    for (int i = 0; i < N; i++) {
        double u = mst_rng_uniform(&rng);
        assert_true(u >= 0 && u < 1);
        bins[(int)(u * 16)]++;
        sum += u;
        squares += u * u;
        lag += (u - 0.5) * (before - 0.5);
        before = u;
    }
    double mean = sum / N;
    assert_true(fabs(mean - 0.5) < 5 * sqrt(1.0 / 12 / N));
    assert_true(fabs(squares / N - mean * mean - 1.0 / 12) < 5 * sqrt(1.0 / 180 / N));
    assert_true(fabs(lag / N) < 5.0 / 12 / sqrt(N));
    double chi = 0;
    for (int i = 0; i < 16; i++)
        chi += (bins[i] - N / 16.0) * (bins[i] - N / 16.0) / (N / 16.0);
    assert_true(chi < 44.3); /* 15 degrees of freedom: p = 1e-4 */
}

static void test_normal(void **state)
{
    (void)state;
    enum { N = 1000000 };
    mst_rng rng;
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
    mst_rng_init(&rng, 4, MST_RNG_TEST, 0);
    for (int i = 0; i < N; i++) {
        double x = mst_rng_normal(&rng);
        assert_true(isfinite(x));
        m1 += x;
        m2 += x * x;
        m3 += x * x * x;
        m4 += x * x * x * x;
    }
    assert_true(fabs(m1 / N) < 5 / sqrt(N));
    assert_true(fabs(m2 / N - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(m3 / N) < 5 * sqrt(15.0 / N));
    assert_true(fabs(m4 / N - 3) < 5 * sqrt(96.0 / N));
}

static void test_below(void **state)
{
    (void)state;
    enum { N = 700000 };
    mst_rng rng;
    int bins[7] = {0};
    mst_rng_init(&rng, 5, MST_RNG_TEST, 0);
    for (int i = 0; i < N; i++) {
        uint32_t x = mst_rng_below(&rng, 7);
        assert_true(x < 7);
        bins[x]++;
        assert_int_equal(mst_rng_below(&rng, 1), 0);
    }
    double chi = 0;
    for (int i = 0; i < 7; i++)
        chi += (bins[i] - N / 7.0) * (bins[i] - N / 7.0) / (N / 7.0);
    assert_true(chi < 27.9); /* 6 degrees of freedom: p = 1e-4 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers), cmocka_unit_test(test_streams), cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_normal),        cmocka_unit_test(test_below),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
