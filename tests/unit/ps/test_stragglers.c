/* The likely reason of a slow worker is the part of a row's time that exceeds the median most. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ps/coordinator_stragglers.h"

static mst_slow_reason reason(double excess, double compute, double input)
{
    mst_row_times worker = {.excess = excess, .compute = compute, .input = input},
                  median = {.compute = 1, .input = 0.5};
    return mst_slow_reason_of(&worker, &median);
}

static void reasons(void **state)
{
    (void)state;
    assert_int_equal(reason(3, 4, 0.5), MST_SLOW_CPU);
    assert_int_equal(reason(3, 1, 3.5), MST_SLOW_INPUT);
    assert_int_equal(reason(3, 1, 0.5), MST_SLOW_NETWORK);
    assert_int_equal(reason(3, 1.5, 1), MST_SLOW_NETWORK);
    assert_int_equal(reason(3, 0.1, 0.1), MST_SLOW_NETWORK); /* faster elsewhere */
    assert_int_equal(reason(3, 3, 1.5), MST_SLOW_CPU);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reasons)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
