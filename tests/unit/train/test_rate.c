/* Rows per second over the last few seconds, on a clock that the test moves. */
#include "train/rate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Uneven updates: bursts of calls right after each other, as by a server to which all workers
 * push at once, and long ones in between. */
static void test_bursts(void **state)
{
    (void)state;
    mst_rate rate = {0};
    double at = 0.0, shown = 0.0, most = 0.0;
    uint64_t rows = 0;
    assert_true(mst_rate_at(&rate, at, rows) == 0.0);
    for (int second = 0; second < 20; second++) {
        at += 0.997;
        for (int i = 0; i < 30; i++) {
            rows += 100;
            at += 0.0001;
            shown = mst_rate_at(&rate, at, rows);
            most = second > 5 && shown > most ? shown : most;
        }
    }
    assert_true(most > 2900.0 && most < 3700.0); /* of 3,000: a window begins before a burst or after it */
    assert_true(shown > 2900.0 && shown < 3700.0);
}

/* A change is there after a few seconds, and nothing of what was before. */
static void test_change(void **state)
{
    (void)state;
    mst_rate rate = {0};
    uint64_t rows = 0;
    double shown = 0.0;
    for (int i = 0; i <= 200; i++)
        shown = mst_rate_at(&rate, i * 0.1, rows += 1000);
    assert_true(shown > 9999.0 && shown < 10001.0);
    for (int i = 201; i <= 260; i++)
        shown = mst_rate_at(&rate, i * 0.1, rows += 10);
    assert_true(shown > 99.0 && shown < 101.0);
}

/* A standstill lets it fall to 0, and it is right again soon after. */
static void test_standstill(void **state)
{
    (void)state;
    mst_rate rate = {0};
    double shown = 0.0, before = 0.0;
    for (int i = 0; i <= 100; i++)
        before = mst_rate_at(&rate, i * 0.1, (uint64_t)i * 100);
    assert_true(before > 999.0 && before < 1001.0);
    for (int i = 101; i <= 130; i++) {
        shown = mst_rate_at(&rate, i * 0.1, 10000);
        assert_true(shown < before);
        before = shown;
    }
    for (int i = 131; i <= 170; i++)
        shown = mst_rate_at(&rate, i * 0.1, 10000);
    assert_true(shown == 0.0);
    for (int i = 171; i <= 230; i++)
        shown = mst_rate_at(&rate, i * 0.1, 10000 + (uint64_t)(i - 170) * 100);
    assert_true(shown > 999.0 && shown < 1001.0);
}

/* The first seconds count from the first point; fewer rows than before are another run. */
static void test_begin(void **state)
{
    (void)state;
    mst_rate rate = {0};
    assert_true(mst_rate_at(&rate, 50.0, 7000) == 0.0);
    assert_true(mst_rate_at(&rate, 50.5, 7500) == 1000.0);
    assert_true(mst_rate_at(&rate, 51.0, 7500) == 500.0);
    assert_true(mst_rate_at(&rate, 51.0, 0) == 0.0);
    assert_true(mst_rate_at(&rate, 52.0, 10) == 10.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bursts),
        cmocka_unit_test(test_change),
        cmocka_unit_test(test_standstill),
        cmocka_unit_test(test_begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
