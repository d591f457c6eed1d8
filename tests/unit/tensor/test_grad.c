/* A gradient's memory: dense ranges, lists per owner, room, clearing, and failed allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "base/alloc.h"
#include "tensor/grad.h"

static const mst_range ranges[] = {{.offset = 0, .size = 13}, {.offset = 1024, .size = 1}};

static uint64_t live_blocks(void)
{
    mst_alloc_stats stats;
    mst_alloc_stats_get(&stats);
    return stats.blocks;
}

static void test_dense(void **state)
{
    mst_grad grad;
    uint64_t blocks = live_blocks();
    (void)state;
    assert_int_equal(mst_grad_init(&grad, ranges, 2, 0, 0, 0), MST_OK);
    assert_int_equal(grad.n_ranges, 2);
    assert_true(grad.ranges[0].offset == 0 && grad.ranges[0].size == 13);
    assert_true(grad.ranges[1].offset == 1024 && grad.ranges[1].size == 1);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal((uintptr_t)grad.ranges[r].g % 64, 0);
        for (uint64_t i = 0; i < grad.ranges[r].size; i++) {
            assert_true(grad.ranges[r].g[i] == 0);
            grad.ranges[r].g[i] = 3;
        }
    }
    assert_int_equal(mst_grad_room(&grad, 100), MST_OK); /* no sparse part: nothing to do */
    mst_grad_clear(&grad);
    for (uint32_t r = 0; r < 2; r++)
        for (uint64_t i = 0; i < grad.ranges[r].size; i++)
            assert_true(grad.ranges[r].g[i] == 0);
    mst_grad_fini(&grad);
    mst_grad_fini(&grad);
    assert_int_equal(live_blocks(), blocks);
}

static void append(mst_grad *grad, uint32_t key, float value)
{
    mst_contributions *list = &grad->owners[mst_grad_owner(key, grad->n_owners)];
    assert_true(list->n < list->capacity);
    list->keys[list->n] = key;
    for (uint32_t i = 0; i < grad->width; i++)
        list->values[list->n * grad->width + i] = value + (float)i;
    list->n++;
}

static void test_sparse(void **state)
{
    mst_grad grad;
    uint64_t blocks = live_blocks();
    (void)state;
    assert_int_equal(mst_grad_init(&grad, NULL, 0, 64, 3, 4), MST_OK);
    assert_true(grad.sparse_offset == 64 && grad.width == 3 && grad.n_owners == 4);
    for (uint32_t batch = 0; batch < 5; batch++) { /* room keeps what is there */
        assert_int_equal(mst_grad_room(&grad, 100), MST_OK);
        for (uint32_t i = 0; i < 100; i++)
            append(&grad, (batch * 100 + i) * 16, (float)(batch * 100 + i));
    }
    size_t total = 0;
    for (uint32_t o = 0; o < 4; o++) {
        const mst_contributions *list = &grad.owners[o];
        total += list->n;
        for (size_t i = 0; i < list->n; i++)
            for (uint32_t j = 0; j < 3; j++)
                assert_true(list->values[i * 3 + j] == (float)(list->keys[i] / 16 + j));
    }
    assert_int_equal(total, 500);
    size_t capacity = grad.owners[0].capacity;
    mst_grad_clear(&grad);
    for (uint32_t o = 0; o < 4; o++)
        assert_int_equal(grad.owners[o].n, 0);
    mst_alloc_stats before, after; /* a step within the room made before allocates nothing */
    mst_alloc_stats_get(&before);
    assert_int_equal(mst_grad_room(&grad, 100), MST_OK);
    mst_alloc_stats_get(&after);
    assert_int_equal(before.calls, after.calls);
    assert_int_equal(grad.owners[0].capacity, capacity);
    mst_grad_fini(&grad);
    assert_int_equal(live_blocks(), blocks);
}

static void test_owner(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 7; n++) {
        uint32_t count[7] = {0};
        for (uint32_t key = 0; key < 160000; key++) {
            uint32_t owner = mst_grad_owner(key, n);
            assert_true(owner < n);
            assert_int_equal(owner, mst_grad_owner(key & ~15u, n)); /* one line of weights, one owner */
            count[owner]++;
        }
        for (uint32_t o = 0; o < n; o++)
            assert_true(count[o] > 150000 / n && count[o] < 170000 / n);
        assert_true(mst_grad_owner(UINT32_MAX, n) < n);
    }
}

static void test_refused(void **state)
{
    mst_grad grad;
    (void)state;
    assert_int_equal(mst_grad_init(&grad, ranges, MST_RANGE_MAX + 1, 0, 0, 0), MST_EUSAGE);
    assert_string_equal(mst_error_text(), "a gradient of 129 dense ranges; at most 128 are possible");
    mst_grad_fini(&grad);
    assert_int_equal(mst_grad_init(&grad, ranges, 2, 0, 1, 0), MST_EUSAGE);
    assert_string_equal(mst_error_text(), "a sparse gradient without owners");
    mst_grad_fini(&grad);
}

static void test_memory_short(void **state)
{
    mst_grad grad;
    uint64_t blocks = live_blocks();
    (void)state;
    for (uint64_t k = 1; k <= 3; k++) { /* two ranges, the owners */
        mst_alloc_fail_at(k);
        assert_int_equal(mst_grad_init(&grad, ranges, 2, 0, 1, 2), MST_ENOMEM);
        mst_alloc_fail_at(0);
        assert_int_equal(live_blocks(), blocks);
        mst_grad_fini(&grad);
    }
    assert_int_equal(mst_grad_init(&grad, ranges, 2, 0, 1, 2), MST_OK);
    for (uint64_t k = 1; k <= 4; k++) { /* keys and values of two owners; every failure leaves it usable */
        size_t room = 10 * (size_t)k;
        while (grad.owners[0].capacity >= room || grad.owners[1].capacity >= room)
            room *= 2;
        mst_alloc_fail_at(k);
        assert_int_equal(mst_grad_room(&grad, room), MST_ENOMEM);
        mst_alloc_fail_at(0);
        assert_int_equal(mst_grad_room(&grad, room), MST_OK);
        mst_grad_clear(&grad);
        for (uint32_t i = 0; i < room; i++)
            append(&grad, i * 16, 1);
        mst_grad_clear(&grad);
    }
    assert_int_equal(mst_grad_room(&grad, SIZE_MAX / 2), MST_ENOMEM);
    mst_grad_fini(&grad);
    assert_int_equal(live_blocks(), blocks);
}

/* Every owner sums its slices in the order of the threads, into its own gradient or into the first; state
 * stays. */
static void check_sums(unsigned n, bool into_first)
{
    const mst_range some[] = {{.offset = 0, .size = 1000},
                              {.offset = 1024, .size = 7, .state = true},
                              {.offset = 2048, .size = 3},
                              {.offset = 3072, .size = 129}};
    const size_t offsets[] = {0, 1000, 1007, 1010}, total = 1139;
    struct holder {
        int before;
        mst_grad grad;
    } *all = calloc(n, sizeof *all);
    float *expected = calloc(total, sizeof *expected);
    assert_non_null(all);
    assert_non_null(expected);
    for (unsigned t = 0; t < n; t++) {
        assert_int_equal(mst_grad_init(&all[t].grad, some, 4, 0, 0, 0), MST_OK);
        for (uint32_t r = 0; r < 4; r++)
            for (uint64_t i = 0; i < some[r].size; i++) {
                float g = 1.0f / (float)(1 + (i * 31 + t * 17 + r) % 997);
                all[t].grad.ranges[r].g[i] = g;
                expected[offsets[r] + i] = t == 0 || some[r].state ? g : expected[offsets[r] + i] + g;
            }
    }
    for (unsigned t = 0; t < n; t++)
        mst_grad_sum_slices(&all[0].grad, sizeof *all, n, t, n, into_first ? &all[0].grad : &all[t].grad);
    for (unsigned t = 0; t < n; t++)
        for (uint32_t r = 0; r < 4; r++) {
            uint64_t from, to;
            mst_grad_slice(some[r].size, t, n, &from, &to);
            const float *g = all[into_first ? 0 : t].grad.ranges[r].g;
            for (uint64_t i = from; i < to && !some[r].state; i++)
                assert_true(g[i] == expected[offsets[r] + i]);
        }
    for (uint64_t i = 0; i < some[1].size; i++)
        assert_true(all[n - 1].grad.ranges[1].g[i] == expected[offsets[1] + i]);
    for (unsigned t = 0; t < n; t++)
        mst_grad_fini(&all[t].grad);
    free(expected);
    free(all);
}

static void test_show(void **state)
{
    const mst_range some[] = {{.offset = 0, .size = 1000},
                              {.offset = 1024, .size = 7, .state = true},
                              {.offset = 2048, .size = 33}};
    mst_grad grad, copy;
    (void)state;
    assert_int_equal(mst_grad_init(&grad, some, 3, 0, 0, 0), MST_OK);
    assert_int_equal(mst_grad_init(&copy, some, 3, 0, 0, 0), MST_OK);
    for (uint32_t r = 0; r < 3; r++)
        for (uint64_t i = 0; i < some[r].size; i++)
            grad.ranges[r].g[i] = (float)(i + 1);
    mst_grad_show(&grad, &copy);
    for (uint32_t r = 0; r < 3; r++)
        for (uint64_t i = 0; i < some[r].size; i++)
            assert_true(copy.ranges[r].g[i] == (some[r].state ? 0.0f : (float)(i + 1)));
    mst_grad_fini(&grad);
    mst_grad_fini(&copy);
}

static void test_sums(void **state)
{
    static const unsigned counts[] = {1, 2, 3, 7, 16, 70};
    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        check_sums(counts[i], false);
        check_sums(counts[i], true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),        cmocka_unit_test(test_sums),  cmocka_unit_test(test_show),
        cmocka_unit_test(test_sparse),       cmocka_unit_test(test_owner), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_memory_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
