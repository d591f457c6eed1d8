/* The parameter store: layout of views, lazy zeroed memory, limits and failed allocations. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "tensor/params.h"

static mst_status add(mst_params *params, const char *name, uint32_t width, uint64_t size)
{
    return mst_params_add(params, name, MST_VIEW_TRAINABLE, width, 1, &size, NULL);
}

static void test_layout(void **state)
{
    mst_params params = {0};
    uint32_t index = 99;
    const uint64_t dims[] = {10, 7};
    (void)state;
    assert_int_equal(mst_params_add(&params, "weight", MST_VIEW_TRAINABLE, 10, 2, dims, &index), MST_OK);
    assert_int_equal(index, 0);
    assert_int_equal(add(&params, "bias", 0, 1), MST_OK);
    const uint64_t ten = 10;
    assert_int_equal(mst_params_add(&params, "mean", MST_VIEW_STATE, 0, 1, &ten, &index), MST_OK);
    assert_int_equal(index, 2);
    assert_int_equal(params.n_views, 3);

    const mst_view *weight = mst_params_find(&params, "weight"), *mean = mst_params_find(&params, "mean");
    assert_true(weight->offset == 0 && weight->size == 70 && weight->width == 10);
    assert_true(weight->n_dims == 2 && weight->dims[0] == 10 && weight->dims[1] == 7);
    assert_true(mst_params_find(&params, "bias")->offset == 80);
    assert_true(mean->offset == 96 && mean->kind == MST_VIEW_STATE);
    assert_null(mst_params_find(&params, "wei"));
    assert_true(mst_params_count(&params) == 70 + 1 + 10); /* without the gaps */

    assert_int_equal(mst_params_reserve(&params, 2, 5), MST_OK);
    assert_true(params.size == 112 && params.spare == 5 && params.n_slots == 2);
    for (uint32_t i = 0; i < params.n_views; i++)
        assert_int_equal((uintptr_t)(params.w + params.views[i].offset) % 64, 0);
    assert_int_equal((uintptr_t)(params.w + params.size) % 64, 0);
    for (uint64_t i = 0; i < params.size + params.spare; i++)
        assert_true(params.w[i] == 0);
    for (uint64_t i = 0; i < params.size; i++)
        assert_true(params.slots[0][i] == 0 && params.slots[1][i] == 0);
    params.w[116] = params.slots[1][111] = 1;
    assert_null(params.slots[2]);
    assert_int_equal(add(&params, "late", 0, 1), MST_EUSAGE);
    assert_string_equal(mst_error_text(), "view late: declared after the store was reserved");
    mst_params_fini(&params);
    assert_null(params.w);
    mst_params_fini(&params); /* once more is fine */
}

/* By rows, every float of the flat vector is where reading and writing find it; the first weight of a key has
 * its state and scratch in the same line, 16 others begin a line and are followed by their state, and dense
 * views and the head of the keys are contiguous. */
static void test_rows(void **state)
{
    (void)state;
    for (uint32_t width = 1; width <= 17; width += 8)
        for (uint32_t n_slots = 1; n_slots <= 2; n_slots++) {
            mst_params params = {.by_rows = true};
            const uint64_t dims[] = {50, width};
            float all[4][2000], part[64];
            uint32_t index;
            assert_int_equal(add(&params, "first", 0, 20), MST_OK);
            assert_int_equal(mst_params_add(&params, "keys", MST_VIEW_TRAINABLE, width, 2, dims, &index),
                             MST_OK);
            params.views[index].head = 3;
            assert_int_equal(add(&params, "last", 0, 5), MST_OK);
            assert_int_equal(mst_params_reserve(&params, n_slots, 0), MST_OK);
            const mst_key_rows *rows = &params.rows;
            assert_true(rows->width == width && rows->stride > width * (n_slots + 1) && rows->n_keys == 50);
            assert_true(rows->grouped == (width > 1) && rows->stride % 4 == 0);
            assert_true(rows->first == 32 + 3 * width && rows->end == 32 + 50 * width);
            for (uint32_t s = 0; s <= n_slots; s++) {
                for (uint64_t i = 0; i < params.size; i++)
                    all[s][i] = (float)(10000 * s + i + 1);
                mst_params_write(&params, s, 0, params.size, all[s]);
            }
            for (uint32_t s = 0; s <= n_slots; s++) {
                const float *vector = s == 0 ? params.w : params.slots[s - 1];
                for (uint64_t from = 0; from + 60 <= params.size; from += 7) {
                    mst_params_read(&params, s, from, 60, part);
                    assert_memory_equal(part, all[s] + from, 60 * sizeof *part);
                }
                assert_memory_equal(vector, all[s], rows->first * sizeof(float));
                assert_memory_equal(vector + rows->end, all[s] + rows->end,
                                    (params.size - rows->end) * sizeof(float));
                for (uint64_t key = 3; key < 50; key++) {
                    const float *first = mst_key_first(rows, key), *want = all[s] + 32 + key * width;
                    const float *rest = mst_key_rest(rows, key);
                    assert_true(first[s] == want[0] && first[3] == 0); /* scratch */
                    assert_memory_equal(rest + s * (width - 1), want + 1, (width - 1) * sizeof(float));
                    assert_true((uintptr_t)first % 16 == 0);
                    if (width == 17)
                        assert_true((uintptr_t)rest % 64 == 0);
                }
            }
            mst_params_write(&params, 0, 30, 60, part);
            mst_params_read(&params, 0, 30, 60, all[3]);
            assert_memory_equal(part, all[3], 60 * sizeof *part);
            mst_params_fill(&params, 1, 40, 30 * width, 2.5f);
            mst_params_read(&params, 1, 0, params.size, all[3]);
            for (uint64_t i = 0; i < params.size; i++)
                assert_true(all[3][i] == (i >= 40 && i < 40 + 30 * width ? 2.5f : all[1][i]));
            mst_params_populate(&params);
            mst_params_fini(&params);
        }
}

/* Keys from the head on have one float of state; another view has two slots. Pieces of the slots cover what
 * the views have, in vectors and by rows, and lead back to their weights. */
static void test_state_per_key(void **state)
{
    enum { WIDTH = 5, KEYS = 50, HEAD = 3 };
    (void)state;
    for (int by_rows = 0; by_rows < 2; by_rows++) {
        mst_params params = {.by_rows = by_rows == 1};
        const uint64_t dims[] = {KEYS, WIDTH};
        float all[400], back[400];
        assert_int_equal(add(&params, "first", 0, 20), MST_OK);
        assert_int_equal(mst_params_add(&params, "keys", MST_VIEW_TRAINABLE, WIDTH, 2, dims, NULL), MST_OK);
        assert_int_equal(add(&params, "last", 0, 5), MST_OK);
        params.views[1].head = HEAD;
        params.views[0].state.n_slots = params.views[2].state.n_slots = 2;
        params.views[1].state = (mst_view_state){.n_slots = 1, .per_key = true};
        assert_int_equal(mst_params_reserve(&params, 2, 0), MST_OK);
        assert_true((params.rows.stride != 0) == (by_rows == 1));
        const mst_view *keys = &params.views[1];
        uint64_t n = HEAD * WIDTH + KEYS - HEAD;
        assert_true(mst_view_floats(keys, 0) == KEYS * WIDTH && mst_view_floats(keys, 1) == n &&
                    mst_view_floats(keys, 2) == 0);
        assert_true(mst_params_bytes(&params) ==
                    4 * (by_rows ? params.size - (KEYS - HEAD) * WIDTH + 2 * (32 + 16) + HEAD * WIDTH + 6 +
                                       (KEYS - HEAD + 3) / 4 * 4 * (uint64_t)params.rows.stride
                                 : params.size + 2 * (32 + 16) + (n + 15) / 16 * 16));
        for (uint64_t i = 0; i < n; i++)
            all[i] = (float)i + 1;
        mst_params_write(&params, 1, keys->offset, n, all);
        mst_params_read(&params, 1, keys->offset, n, back);
        assert_memory_equal(all, back, n * sizeof *all);
        float *slots[MST_SLOT_MAX];
        mst_key_rows rows = mst_params_keys(&params, keys->offset, WIDTH, slots);
        for (uint32_t k = HEAD; k < KEYS; k++)
            assert_true((by_rows ? mst_key_first(&rows, k)[1] : slots[0][(uint64_t)k * rows.state_stride]) ==
                        all[HEAD * WIDTH + k - HEAD]);
        for (uint32_t slot = 0; slot <= 2; slot++)
            for (uint64_t cut = 0; cut < params.size; cut += 16) { /* two servers */
                uint64_t total = 0, first, count, ends[] = {cut, params.size};
                for (int part = 0; part < 2; part++)
                    for (uint64_t at = part ? cut : 0, from = at;
                         mst_params_next_piece(&params, slot, &at, ends[part], &first, &count); from = at) {
                        uint64_t weights = first, n_weights = count;
                        total += count;
                        assert_true(mst_params_weights_of(&params, slot, &weights, &n_weights));
                        assert_true(weights >= from && weights + n_weights <= at + WIDTH);
                    }
                assert_true(total == (slot == 0 ? params.size : slot == 1 ? 20 + n + 5 : 25));
            }
        uint64_t first = keys->offset, count = n + 1;
        assert_false(mst_params_weights_of(&params, 1, &first, &count));
        count = 1;
        assert_false(mst_params_weights_of(&params, 2, &first, &count));
        mst_params_fini(&params);
    }
}

static void test_empty(void **state)
{
    mst_params params = {0};
    (void)state;
    assert_int_equal(add(&params, "nothing", 0, 0), MST_OK);
    assert_int_equal(mst_params_reserve(&params, 1, 0), MST_OK);
    assert_non_null(params.w);
    assert_true(params.size == 0);
    mst_params_fini(&params);
}

/* 16 GB of weights and as much state, of which three floats are touched. */
static void test_lazy(void **state)
{
    mst_params params = {0};
    (void)state;
    assert_int_equal(add(&params, "weight", 1, UINT32_MAX), MST_OK);
    mst_status st = mst_params_reserve(&params, 1, 0);
    if (st == MST_ENOMEM)
        skip(); /* a machine set never to overcommit */
    assert_int_equal(st, MST_OK);
    params.w[0] = params.w[UINT32_MAX - 1] = 1;
    params.slots[0][UINT32_MAX / 2] = 1;
    assert_true(params.w[12345678] == 0);
    mst_params_fini(&params);
}

static void test_refused(void **state)
{
    mst_params params = {0};
    const uint64_t dims[] = {1u << 20, 1u << 20, 1u << 20, 1u << 20};
    char name[64];
    (void)state;

    assert_int_equal(mst_params_add(&params, "big", MST_VIEW_TRAINABLE, 0, 4, dims, NULL), MST_EINPUT);
    assert_string_equal(mst_error_text(), "view big: more than 4398046511104 parameters");
    assert_int_equal(add(&params, "big", 0, MST_PARAMS_MAX + 1), MST_EINPUT);
    assert_int_equal(add(&params, "keys", 1, 1ull << 32), MST_EINPUT);
    assert_string_equal(mst_error_text(), "view keys: 4294967296 keys; at most 4294967295 are possible");
    assert_int_equal(mst_params_add(&params, "flat", MST_VIEW_TRAINABLE, 0, 0, dims, NULL), MST_EUSAGE);
    assert_string_equal(mst_error_text(), "view flat: 0 dimensions; there must be 1 to 4");
    assert_int_equal(mst_params_add(&params, "deep", MST_VIEW_TRAINABLE, 0, 5, dims, NULL), MST_EUSAGE);
    assert_int_equal(add(&params, "odd", 3, 10), MST_EUSAGE);
    assert_string_equal(mst_error_text(), "view odd: 10 parameters are not a multiple of 3 per key");
    assert_int_equal(add(&params, "", 0, 1), MST_EUSAGE);
    memset(name, 'n', 48);
    name[48] = '\0';
    assert_int_equal(add(&params, name, 0, 1), MST_EUSAGE);
    name[47] = '\0';
    assert_int_equal(add(&params, name, 0, 1), MST_OK);
    assert_int_equal(add(&params, name, 0, 1), MST_EUSAGE);
    assert_non_null(strstr(mst_error_text(), "declared twice"));
    assert_int_equal(params.n_views, 1);

    while (params.n_views < MST_VIEW_MAX) {
        snprintf(name, sizeof name, "view%u", params.n_views);
        assert_int_equal(add(&params, name, 0, 1), MST_OK);
    }
    assert_int_equal(add(&params, "more", 0, 1), MST_EUSAGE);
    assert_string_equal(mst_error_text(), "view more: a store has at most 128 views");
    assert_int_equal(mst_params_reserve(&params, MST_SLOT_MAX + 1, 0), MST_EUSAGE);
    mst_params_fini(&params);

    assert_int_equal(add(&params, "weight", 4096, MST_PARAMS_MAX), MST_OK);
    assert_int_equal(add(&params, "bias", 0, 1), MST_OK);
    assert_int_equal(mst_params_reserve(&params, 0, 0), MST_EINPUT);
    assert_string_equal(mst_error_text(),
                        "the model has 4398046511105 parameters; at most 4398046511104 are possible");
    assert_null(params.w);
    mst_params_fini(&params);
}

static void test_memory_short(void **state)
{
    (void)state;
    for (uint64_t k = 1; k <= 3; k++) {
        mst_params params = {0};
        assert_int_equal(add(&params, "weight", 0, 1000), MST_OK);
        mst_alloc_fail_at(k);
        assert_int_equal(mst_params_reserve(&params, 2, 0), MST_ENOMEM);
        mst_alloc_fail_at(0);
        assert_string_equal(mst_error_text(),
                            "no memory for 1000 parameters and their optimizer state: 12.1 kB");
        assert_null(params.w);
        mst_params_fini(&params);
    }
}

/* Any 32-bit key leads into the weights or the guard, which takes what is written and remembers it. */
static void test_guard(void **state)
{
    static const uint32_t strays[] = {UINT32_MAX, 5000, 1u << 31, 123456789};
    (void)state;
    mst_params params = {0};
    assert_int_equal(add(&params, "bias", 0, 1), MST_OK);
    assert_int_equal(add(&params, "weight", 1, 1000), MST_OK);
    assert_int_equal(mst_params_reserve(&params, 1, 32), MST_OK);
    if (params.guard == NULL) {
        mst_params_fini(&params);
        skip(); /* not enough address space */
    }
    volatile float *w = params.w + params.views[1].offset;
    for (uint32_t key = 0; key < 1000; key++)
        w[key] = 1.0f;
    assert_false(mst_params_strayed(&params));
    for (size_t i = 0; i < sizeof strays / sizeof *strays; i++) {
        w[strays[i]] += 2.0f;
        assert_true(mst_params_strayed(&params));
    }
    for (uint32_t key = 0; key < 1000; key++)
        assert_true(w[key] == 1.0f);
    mst_params_fini(&params);
}

/* Without address space for the guard there is none. */
static void test_no_guard(void **state)
{
    (void)state;
    mst_params params = {0};
    assert_int_equal(add(&params, "weight", 1, 1000), MST_OK);
    mst_alloc_fail_at(1);
    assert_int_equal(mst_params_reserve(&params, 1, 0), MST_OK);
    mst_alloc_fail_at(0);
    assert_null(params.guard);
    params.w[999] = 1.0f;
    mst_params_fini(&params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_state_per_key), cmocka_unit_test(test_empty),
        cmocka_unit_test(test_lazy),          cmocka_unit_test(test_refused),
        cmocka_unit_test(test_memory_short),  cmocka_unit_test(test_guard),
        cmocka_unit_test(test_no_guard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
