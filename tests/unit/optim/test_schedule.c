/* Learning rates by step: warm-up, and each schedule counted from its end. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "optim/optim.h"

enum {
    CONSTANT,
    STEP,
    INVERSE,
    COSINE,
};

static void assert_rate(const mst_optim_options *options, uint64_t step, double expected)
{
    float rate = mst_learning_rate(options, step);
    if (!(fabs(rate - expected) <= 1e-6 * expected))
        fail_msg("step %llu: rate %.9g, expected %.9g", (unsigned long long)step, (double)rate, expected);
}

static void test_constant(void **state)
{
    mst_optim_options o = {.lr = 0.1, .schedule = CONSTANT};
    (void)state;
    assert_true(mst_learning_rate(&o, 1) == 0.1f);
    assert_true(mst_learning_rate(&o, 1u << 31) == 0.1f);
}

static void test_step(void **state)
{
    mst_optim_options o = {.lr = 1, .schedule = STEP, .decay_steps = 3, .decay = 0.5};
    (void)state;
    static const double expected[] = {1, 1, 1, 0.5, 0.5, 0.5, 0.25};
    for (uint64_t t = 0; t < 7; t++)
        assert_rate(&o, t + 1, expected[t]);
    assert_rate(&o, 1000000, 0); /* underflows quietly */
}

static void test_inverse(void **state)
{
    mst_optim_options o = {.lr = 0.5, .schedule = INVERSE, .decay_steps = 10};
    (void)state;
    assert_rate(&o, 1, 0.5);
    assert_rate(&o, 11, 0.25);
    assert_rate(&o, 31, 0.125);
}

static void test_cosine(void **state)
{
    mst_optim_options o = {.lr = 2, .schedule = COSINE, .decay_steps = 8};
    (void)state;
    assert_rate(&o, 1, 2);
    assert_rate(&o, 5, 1);
    assert_true(mst_learning_rate(&o, 8) > 0); /* a run of decay-steps steps wastes none */
    assert_rate(&o, 9, 0);
    assert_rate(&o, 100, 0);
}

static void test_falling(void **state)
{
    (void)state;
    for (int schedule = STEP; schedule <= COSINE; schedule++) {
        mst_optim_options o = {.lr = 0.3, .schedule = schedule, .decay_steps = 7, .decay = 0.9};
        for (uint64_t step = 1; step < 40; step++)
            assert_true(mst_learning_rate(&o, step + 1) <= mst_learning_rate(&o, step));
    }
}

static void test_warmup(void **state)
{
    (void)state;
    for (int schedule = CONSTANT; schedule <= COSINE; schedule++) {
        mst_optim_options plain = {.lr = 0.4, .schedule = schedule, .decay_steps = 6, .decay = 0.1};
        mst_optim_options warm = plain;
        warm.warmup = 4;
        assert_rate(&warm, 1, 0.1);
        assert_rate(&warm, 2, 0.2);
        assert_rate(&warm, 3, 0.3);
        assert_rate(&warm, 4, 0.4);
        for (uint64_t step = 1; step < 20; step++)
            assert_true(mst_learning_rate(&warm, 4 + step) == mst_learning_rate(&plain, step));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_constant), cmocka_unit_test(test_step),    cmocka_unit_test(test_inverse),
        cmocka_unit_test(test_cosine),   cmocka_unit_test(test_falling), cmocka_unit_test(test_warmup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
