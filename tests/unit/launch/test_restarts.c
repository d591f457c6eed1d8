/* The restart policy: the limit per hour, failures that repeat, the growing pause. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "launch/restarts.h"

static uint64_t now_ns, pause_ms;

/* A process that lived for some seconds and ended with the code or the signal. */
static mst_restart_verdict ends(mst_restarts *r, double lived_s, int code, int number, bool by_others,
                                uint32_t max)
{
    uint64_t began = now_ns += MST_S;
    now_ns += (uint64_t)(lived_s * 1e9);
    mst_restart_end end = {.code = code,
                           .signal = number,
                           .began_ns = began,
                           .ended_ns = now_ns,
                           .by_others = by_others,
                           .first_start = r->n_quick == 0 && r->n_in_hour == 0};
    return mst_restarts_decide(r, &end, max, &pause_ms);
}

static void limit_per_hour(void **state)
{
    mst_restarts r = {0};
    (void)state;
    for (int hour = 0; hour < 3; hour++) {
        for (int i = 0; i < 10; i++)
            assert_int_equal(ends(&r, 60, 0, SIGKILL, false, 10), MST_RESTART_AGAIN);
        assert_int_equal(ends(&r, 60, 0, SIGKILL, false, 10), MST_RESTART_SPENT);
        now_ns += 3600 * MST_S;
    }
    r = (mst_restarts){0};
    assert_int_equal(ends(&r, 60, 0, SIGKILL, false, 0), MST_RESTART_SPENT);
}

static void same_failure(void **state)
{
    mst_restarts r = {0};
    (void)state;
    assert_int_equal(ends(&r, 1, 1, 0, false, 10), MST_RESTART_AGAIN);
    assert_int_equal(ends(&r, 1, 1, 0, false, 10), MST_RESTART_AGAIN);
    assert_int_equal(ends(&r, 1, 1, 0, false, 10), MST_RESTART_REPEATED);
    assert_true(r.from_start);
    /* A crash counts, a signal from outside and a lost peer do not. */
    r = (mst_restarts){0};
    for (int i = 0; i < 2; i++)
        assert_int_equal(ends(&r, 1, 0, SIGSEGV, false, 100), MST_RESTART_AGAIN);
    assert_int_equal(ends(&r, 1, 0, SIGSEGV, false, 100), MST_RESTART_REPEATED);
    r = (mst_restarts){0};
    for (int i = 0; i < 20; i++) {
        assert_int_equal(ends(&r, 1, 0, SIGKILL, false, 100), MST_RESTART_AGAIN);
        assert_int_equal(ends(&r, 1, 3, 0, true, 100), MST_RESTART_AGAIN);
    }
    /* Another failure, or one after the first seconds, begins again. */
    r = (mst_restarts){0};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(ends(&r, 1, 1, 0, false, 100), MST_RESTART_AGAIN);
        assert_int_equal(ends(&r, 1, 1, 0, false, 100), MST_RESTART_AGAIN);
        assert_int_equal(ends(&r, 1, i % 2 == 0 ? 5 : 1, 0, i % 2 == 1, 100), MST_RESTART_AGAIN);
        assert_int_equal(ends(&r, 11, 1, 0, false, 100), MST_RESTART_AGAIN);
    }
    assert_false(r.from_start);
}

static void growing_pause(void **state)
{
    static const uint64_t expected[] = {100, 200, 400, 800, 1600, 3200, 5000, 5000};
    mst_restarts r = {0};
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_int_equal(ends(&r, 1, 0, SIGKILL, false, 100), MST_RESTART_AGAIN);
        assert_int_equal(pause_ms, expected[i]);
    }
    assert_int_equal(ends(&r, 60, 0, SIGKILL, false, 100), MST_RESTART_AGAIN);
    assert_int_equal(pause_ms, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limit_per_hour),
        cmocka_unit_test(same_failure),
        cmocka_unit_test(growing_pause),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
