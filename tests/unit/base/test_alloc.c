/* Counted, failable allocation: the counts, growth, lazy pages, and the failure that tests inject. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"

/* Sanitizers end the program on a size that overflows unless they are configured to return NULL like the C
 * library. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1";
}

const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "allocator_may_return_null=1";
}

static mst_alloc_stats stats(void)
{
    mst_alloc_stats now;
    mst_alloc_stats_get(&now);
    return now;
}

static void test_counts(void **state)
{
    (void)state;
    mst_alloc_stats before = stats();
    void *a = mst_alloc(1000), *b = mst_zalloc(500), *c = mst_alloc_lines(100);
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal((uintptr_t)c % 64, 0);
    for (int i = 0; i < 500; i++)
        assert_int_equal(((char *)b)[i], 0);
    mst_alloc_stats during = stats();
    assert_int_equal(during.blocks, before.blocks + 3);
    assert_true(during.bytes >= before.bytes + 1600);
    assert_true(during.peak_bytes >= during.bytes);
    a = mst_realloc(a, 100000);
    assert_int_equal(stats().blocks, during.blocks);
    assert_true(stats().bytes >= during.bytes + 99000);
    mst_free(a);
    mst_free(b);
    mst_free(c);
    mst_free(NULL);
    assert_int_equal(stats().blocks, before.blocks);
    assert_int_equal(stats().bytes, before.bytes);
    assert_true(stats().peak_bytes >= before.bytes + 100000);
}

static void test_text(void **state)
{
    (void)state;
    char *a = mst_strdup("word"), *b = mst_strndup("word", 2), *c = mst_strndup("word", 99);
    char *d = mst_sprintf("%s-%d", "x", 7);
    assert_string_equal(a, "word");
    assert_string_equal(b, "wo");
    assert_string_equal(c, "word");
    assert_string_equal(d, "x-7");
    mst_free(a);
    mst_free(b);
    mst_free(c);
    mst_free(d);
}

static void test_sizes(void **state)
{
    (void)state;
    void *zero = mst_alloc(0);
    assert_non_null(zero);
    mst_free(zero);
    volatile size_t half = SIZE_MAX / 2; /* beyond the compiler's sight: the overflow is the point */
    assert_null(mst_calloc(half, 3));
}

static void test_grow(void **state)
{
    (void)state;
    uint32_t *array = NULL;
    size_t capacity = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        assert_true(mst_grow(&array, &capacity, i + 1, sizeof *array));
        assert_true(capacity > i);
        array[i] = i;
    }
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(array[i], i);
    size_t calls = stats().calls;
    assert_true(mst_grow(&array, &capacity, 1, sizeof *array));
    assert_int_equal(stats().calls, calls);
    uint32_t *same = array;
    size_t kept = capacity;
    assert_false(mst_grow(&array, &capacity, SIZE_MAX / 2, sizeof *array));
    mst_alloc_fail_at(1);
    assert_false(mst_grow(&array, &capacity, capacity + 1, sizeof *array));
    assert_ptr_equal(array, same);
    assert_int_equal(capacity, kept);
    mst_free(array);
}

static void test_injected_failure(void **state)
{
    (void)state;
    mst_alloc_fail_at(2);
    void *a = mst_alloc(1), *b = mst_alloc(1), *c = mst_alloc(1);
    assert_non_null(a);
    assert_null(b);
    assert_non_null(c); /* once */
    mst_alloc_fail_at(1);
    assert_null(mst_realloc(a, 1000)); /* the old block stays */
    *(char *)a = 1;
    mst_alloc_fail_at(1);
    assert_null(mst_pages_reserve(4096, false));
    mst_alloc_fail_at(1);
    assert_null(mst_strdup("x"));
    mst_alloc_fail_at(1);
    mst_alloc_fail_at(0);
    b = mst_zalloc(1);
    assert_non_null(b);
    mst_free(a);
    mst_free(b);
    mst_free(c);
}

/* Resident pages of this process. */
static long resident(void)
{
    long total = 0, pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &total, &pages), 2);
    fclose(f);
    return pages;
}

static void test_pages(void **state)
{
    (void)state;
    const size_t size = (size_t)1 << 30;
    long before = resident();
    uint8_t *pages = mst_pages_reserve(size, false);
    assert_non_null(pages);
    assert_int_equal(pages[0], 0);
    assert_int_equal(pages[size - 1], 0);
    pages[size / 2] = 1;
    assert_true((resident() - before) * sysconf(_SC_PAGESIZE) <
                16 << 20); /* what is not touched costs nothing */
    mst_pages_release(pages, size);
    mst_pages_release(NULL, size);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_grow),
        cmocka_unit_test(test_injected_failure),
        cmocka_unit_test(test_pages),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
