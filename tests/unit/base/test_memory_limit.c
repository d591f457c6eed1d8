/* Memory limits: the least one is named; what a process has already does not count; a table that no host can
 * hold is refused. */
#include "base/memory_limit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

static void test_least(void **state)
{
    (void)state;
    mst_memory_limit limit = {.bytes = UINT64_MAX, .name = "nothing"};
    mst_memory_limit_lower(&limit, 1000, 300, "a");
    assert_int_equal(limit.bytes, 700);
    assert_string_equal(limit.name, "a");
    mst_memory_limit_lower(&limit, 700, 0, "not less");
    assert_string_equal(limit.name, "a");
    mst_memory_limit_lower(&limit, 10, 11, "used up");
    assert_int_equal(limit.bytes, 0);
    assert_string_equal(limit.name, "used up");
}

static void test_host(void **state)
{
    (void)state;
    mst_memory_limit one = {.bytes = UINT64_MAX}, two = {.bytes = UINT64_MAX};
    mst_memory_limit_by_host(&one, 1);
    mst_memory_limit_by_host(&two, 1000);
    assert_true(one.bytes > 0 && one.bytes < (uint64_t)1 << 50);
    assert_true(two.bytes < one.bytes / 100);
    assert_null(strstr(one.name, "ranks"));
    assert_non_null(strstr(two.name, "ranks"));
}

static void test_process(void **state)
{
    (void)state;
    struct rlimit before, less;
    mst_memory_limit limit = {.bytes = UINT64_MAX, .name = "nothing"};
    assert_int_equal(getrlimit(RLIMIT_DATA, &before), 0);
    less = before;
    less.rlim_cur = (rlim_t)1 << 46; /* more than sanitizers reserve */
    if (before.rlim_cur != RLIM_INFINITY || setrlimit(RLIMIT_DATA, &less) != 0)
        skip();
    mst_memory_limit_by_process(&limit);
    assert_int_equal(setrlimit(RLIMIT_DATA, &before), 0);
    assert_true(limit.bytes < less.rlim_cur);
}

static void test_check(void **state)
{
    (void)state;
    assert_int_equal(mst_memory_limit_check(4096, "four kilobytes"), MST_OK);
    assert_int_equal(mst_memory_limit_check((uint64_t)4 << 60, "the model's parameters"), MST_ENOMEM);
    assert_non_null(strstr(mst_error_text(), "the model's parameters need 4"));
    assert_non_null(strstr(mst_error_text(), " of memory, but the "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_least),
        cmocka_unit_test(test_host),
        cmocka_unit_test(test_process),
        cmocka_unit_test(test_check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
