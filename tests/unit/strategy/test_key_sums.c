/* Sums by key: distinct keys in order of first appearance, sums in order of addition, over many batches. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "strategy/key_sums.h"

#define MAX_ENTRIES 5000

/* The expected sums, by linear search. */
typedef struct reference {
    uint32_t keys[MAX_ENTRIES];
    float sums[MAX_ENTRIES * 4];
    uint32_t n;
} reference;

static void reference_add(reference *r, const mst_contributions *list, uint32_t width)
{
    for (size_t i = 0; i < list->n; i++) {
        uint32_t at = 0;
        while (at < r->n && r->keys[at] != list->keys[i])
            at++;
        for (uint32_t c = 0; c < width; c++) {
            float *sum = &r->sums[at * width + c], value = list->values[i * width + c];
            *sum = at == r->n ? value : *sum + value;
        }
        if (at == r->n)
            r->keys[r->n++] = list->keys[i];
    }
}

static void random_list(mst_contributions *list, size_t n, uint32_t n_keys, uint32_t width, mst_rng *rng)
{
    list->n = n;
    for (size_t i = 0; i < n; i++) {
        /* far apart, so that hashing matters; the largest key possible among them */
        uint32_t key = mst_rng_below(rng, n_keys);
        list->keys[i] = key == 0 ? UINT32_MAX : key * 4096u;
        for (uint32_t c = 0; c < width; c++)
            list->values[i * width + c] = (float)mst_rng_normal(rng);
    }
}

static void check_batch(mst_key_sums *l, size_t n, uint32_t n_keys, uint32_t width, uint32_t n_lists,
                        uint64_t seed)
{
    static uint32_t keys[MAX_ENTRIES];
    static float values[MAX_ENTRIES * 4];
    static reference want;
    mst_contributions list = {.keys = keys, .values = values};
    mst_rng rng;
    mst_rng_init(&rng, seed, MST_RNG_TEST, n);
    want.n = 0;
    assert_int_equal(mst_key_sums_begin(l, n * n_lists, width), MST_OK);
    assert_int_equal(l->n, 0);
    for (uint32_t i = 0; i < n_lists; i++) {
        random_list(&list, n, n_keys, width, &rng);
        reference_add(&want, &list, width);
        mst_key_sums_add(l, &list, width);
    }
    assert_int_equal(l->n, want.n);
    assert_memory_equal(l->keys, want.keys, want.n * sizeof *want.keys);
    assert_memory_equal(l->sums, want.sums, (size_t)want.n * width * sizeof *want.sums);
}

static void sums_by_key(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 2, 10, 100, 1000, 3, 0, 1500, 7};
    mst_key_sums l = {0};
    for (uint32_t width = 1; width <= 4; width += 3)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (uint32_t n_lists = 1; n_lists <= 3; n_lists++) {
                check_batch(&l, sizes[i], 1, width, n_lists, i);
                check_batch(&l, sizes[i], 50, width, n_lists, i);
                check_batch(&l, sizes[i], 1u << 20, width, n_lists, i);
            }
    mst_key_sums_fini(&l);
}

/* The stamp that empties the table comes round once in 2^32 batches. */
static void stamp_wraps(void **state)
{
    (void)state;
    mst_key_sums l = {0};
    check_batch(&l, 100, 40, 1, 1, 1);
    check_batch(&l, 100, 40, 1, 1, 2);
    l.stamp = UINT32_MAX - 1;
    for (uint64_t i = 0; i < 4; i++)
        check_batch(&l, 100, 40, 1, 1, i);
    assert_int_equal(l.stamp, 3);
    mst_key_sums_fini(&l);
}

static void allocates_nothing_once_grown(void **state)
{
    (void)state;
    mst_key_sums l = {0};
    mst_alloc_stats before, after;
    check_batch(&l, 1000, 500, 2, 1, 1);
    mst_alloc_stats_get(&before);
    for (uint64_t i = 0; i < 20; i++)
        check_batch(&l, 50 * (size_t)i, 500, 2, 1, i);
    mst_alloc_stats_get(&after);
    assert_int_equal(after.calls, before.calls);
    mst_key_sums_fini(&l);
    mst_key_sums_fini(&l);
}

static void short_memory_is_reported(void **state)
{
    (void)state;
    mst_key_sums l = {0};
    mst_alloc_stats before, after;
    mst_alloc_stats_get(&before);
    for (uint64_t k = 1; k <= 3; k++) {
        mst_alloc_fail_at(k);
        assert_int_equal(mst_key_sums_begin(&l, 3000 * (size_t)k, 1), MST_ENOMEM);
        mst_alloc_fail_at(0);
        assert_non_null(strstr(mst_error_text(), "out of memory: cannot allocate "));
    }
    check_batch(&l, 1000, 100, 1, 1, 1); /* and it still works */
    mst_key_sums_fini(&l);
    mst_alloc_stats_get(&after);
    assert_int_equal(after.blocks, before.blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_by_key),
        cmocka_unit_test(stamp_wraps),
        cmocka_unit_test(allocates_nothing_once_grown),
        cmocka_unit_test(short_memory_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
