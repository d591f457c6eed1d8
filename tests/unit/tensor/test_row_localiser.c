/* Localised rows compared with a plain reference: distinct keys in order, and keys of rows that translate
 * back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "random_rows.h"
#include "tensor/row_localiser_impl.h"

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* The distinct keys that are not below n_prefix, ascending. */
static uint32_t distinct(const mst_batch *batch, uint32_t n_prefix, uint32_t **out)
{
    size_t n = 0, kept = 0;
    for (uint32_t r = 0; r < batch->n_rows; r++)
        n += batch->rows[r].n_keys;
    uint32_t *keys = malloc(n * sizeof *keys + 1);
    n = 0;
    for (uint32_t r = 0; r < batch->n_rows; r++)
        for (uint32_t i = 0; i < batch->rows[r].n_keys; i++)
            if (batch->rows[r].keys[i] >= n_prefix)
                keys[n++] = batch->rows[r].keys[i];
    qsort(keys, n, sizeof *keys, compare);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || keys[kept - 1] != keys[i])
            keys[kept++] = keys[i];
    *out = keys;
    return (uint32_t)kept;
}

static void check_rows(const mst_batch *batch, const mst_row *rows, const mst_key_list *list,
                       uint32_t n_prefix, uint32_t key_start)
{
    for (uint32_t r = 0; r < batch->n_rows; r++) {
        const mst_row *was = &batch->rows[r], *is = &rows[r];
        assert_int_equal(is->n_keys, was->n_keys);
        assert_int_equal(is->n_dense, was->n_dense);
        assert_ptr_equal(is->dense, was->dense);
        assert_ptr_equal(is->bytes, was->bytes);
        assert_ptr_equal(is->values, was->values);
        assert_true(is->label == was->label && is->weight == was->weight);
        for (uint32_t i = 0; i < was->n_keys; i++) {
            if (was->keys[i] < n_prefix) {
                assert_int_equal(is->keys[i], was->keys[i]);
            } else {
                assert_in_range(is->keys[i], key_start, key_start + list->n_keys - 1);
                assert_int_equal(list->keys[is->keys[i] - key_start], was->keys[i]);
            }
        }
    }
}

static void localise(mst_row_localiser *self, unsigned bank, const mst_batch *batch, uint32_t n_prefix,
                     uint32_t key_start, mst_key_list *list, mst_row *rows)
{
    uint32_t *want, n = distinct(batch, n_prefix, &want);
    assert_int_equal(mst_row_localise(self, bank, batch, n_prefix, key_start, list, rows), MST_OK);
    assert_int_equal(list->n_keys, n);
    if (n != 0)
        assert_memory_equal(list->keys, want, n * sizeof *want);
    check_rows(batch, rows, list, n_prefix, key_start);
    free(want);
}

static void random_batches(void **state)
{
    (void)state;
    static mst_key_list list;
    static const uint32_t features[] = {40, 600, 70000, 33762578, UINT32_MAX - 1};
    list.n_ranges = 7;
    for (size_t c = 0; c < (size_t)MST_ISA_COUNT * (sizeof features / sizeof *features); c++) {
        size_t f = c / MST_ISA_COUNT;
        mst_isa isa = (mst_isa)(c % MST_ISA_COUNT);
        mst_row_localiser *self;
        if (!mst_isa_supported(isa))
            continue;
        assert_int_equal(mst_row_localiser_new(mst_kernels_get(isa), features[f], 2, &self), MST_OK);
        for (int kind = 0; kind < ROWS_KINDS; kind++)
            for (uint32_t n_rows = 0; n_rows <= 400; n_rows = n_rows * 3 + 1) {
                rows_spec spec = {.kind = (row_kind)kind,
                                  .n_rows = n_rows,
                                  .n_dense = 13,
                                  .n_features = features[f],
                                  .n_keys = n_rows % 2 ? 26 : 3,
                                  .n_classes = 2,
                                  .weighted = true,
                                  .seed = n_rows};
                random_rows r = random_rows_make(&spec);
                mst_batch batch = {.rows = r.rows, .n_rows = n_rows};
                mst_row *rows = calloc(n_rows + 1, sizeof *rows);
                localise(self, n_rows % 2, &batch, 13, 16, &list, rows);
                localise(self, n_rows % 2, &batch, 0, 0, &list, rows);
                if (kind != ROWS_ANY_ORDER) /* keys below the prefix, above the row's, come first */
                    localise(self, 1, &batch, 25, 1000, &list, rows);
                free(rows);
                random_rows_free(&r);
            }
        mst_row_localiser_destroy(self);
    }
    assert_int_equal(list.n_ranges, 7); /* the caller's */
    mst_key_list_fini(&list);
}

/* Batches of other banks stay as they were. */
static void banks(void **state)
{
    (void)state;
    static mst_key_list lists[3];
    mst_row rows[3][50];
    random_rows r[3];
    mst_row_localiser *self;
    assert_int_equal(mst_row_localiser_new(mst_kernels_get(mst_isa_best()), 100000, 3, &self), MST_OK);
    for (int round = 0; round < 3; round++) {
        for (unsigned b = 0; b < 3; b++) {
            r[b] = random_rows_make(&(rows_spec){.kind = ROWS_MIXED,
                                                 .n_rows = 50,
                                                 .n_dense = 3,
                                                 .n_features = 100000,
                                                 .n_keys = 20,
                                                 .seed = b + 10u * (unsigned)round});
            localise(self, b, &(mst_batch){.rows = r[b].rows, .n_rows = 50}, 3, 16, &lists[b], rows[b]);
        }
        for (unsigned b = 0; b < 3; b++) {
            check_rows(&(mst_batch){.rows = r[b].rows, .n_rows = 50}, rows[b], &lists[b], 3, 16);
            random_rows_free(&r[b]);
        }
    }
    for (unsigned b = 0; b < 3; b++)
        mst_key_list_fini(&lists[b]);
    mst_row_localiser_destroy(self);
}

/* Once grown, batches of that size allocate nothing. */
static void allocates_nothing(void **state)
{
    (void)state;
    static mst_key_list list;
    mst_row rows[100];
    mst_row_localiser *self;
    mst_alloc_stats before, after;
    random_rows r = random_rows_make(
        &(rows_spec){.kind = ROWS_ONES, .n_rows = 100, .n_features = 1000000, .n_keys = 26, .seed = 1});
    mst_batch batch = {.rows = r.rows, .n_rows = 100};
    assert_int_equal(mst_row_localiser_new(mst_kernels_get(mst_isa_best()), 1000000, 1, &self), MST_OK);
    localise(self, 0, &batch, 0, 0, &list, rows);
    mst_alloc_stats_get(&before);
    for (int i = 0; i < 10; i++)
        assert_int_equal(mst_row_localise(self, 0, &batch, 0, 0, &list, rows), MST_OK);
    mst_alloc_stats_get(&after);
    assert_int_equal(after.calls, before.calls);
    random_rows_free(&r);
    mst_key_list_fini(&list);
    mst_row_localiser_destroy(self);
}

/* Keys that share a bucket are searched in the buckets after it, also beyond the last one; all are different.
 */
static void full_buckets(void **state)
{
    (void)state;
    static mst_key_list list;
    enum { ROWS = 60, KEYS = 100, FEATURES = 1 << 24 };
    mst_row rows[ROWS], out[ROWS];
    uint32_t *keys = malloc(ROWS * KEYS * sizeof *keys);
    for (int c = 0; c < MST_ISA_COUNT; c++) {
        mst_row_localiser *self;
        if (!mst_isa_supported((mst_isa)c))
            continue;
        assert_int_equal(mst_row_localiser_new(mst_kernels_get((mst_isa)c), FEATURES, 1, &self), MST_OK);
        for (uint32_t n = 10; n <= ROWS * KEYS; n += 585) {
            mst_batch batch = {.rows = rows, .n_rows = (n + KEYS - 1) / KEYS};
            for (uint32_t r = 0; r < batch.n_rows; r++)
                rows[r] = (mst_row){.keys = keys + (size_t)r * KEYS,
                                    .n_keys = n - r * KEYS < KEYS ? n - r * KEYS : KEYS};
            for (uint32_t i = 0; i < n; i++)
                keys[i] = i;
            localise(self, 0, &batch, 0, 7, &list, out);
            unsigned bits = self->table_bits; /* as many entries have as many buckets */
            uint32_t n_last = 0;
            for (uint32_t key = 0; n_last < n && key < FEATURES; key++)
                if (mst_key_bucket(key, bits) + 3 >= 1u << bits || key >= FEATURES - n)
                    keys[n_last++] = key; /* of the last three buckets, as far as there are enough */
            assert_int_equal(n_last, n);
            localise(self, 0, &batch, 0, 7, &list, out);
            assert_int_equal(self->table_bits, bits);
        }
        mst_row_localiser_destroy(self);
    }
    free(keys);
    mst_key_list_fini(&list);
}

/* Keys of a file that changes while it is read may be any number. */
static void keys_out_of_range(void **state)
{
    (void)state;
    static mst_key_list list;
    static const uint32_t keys[][3] = {{1000, 3, 4}, {2, 1u << 31, 4}, {2, 3, UINT32_MAX}};
    mst_row row = {.n_keys = 3}, out;
    mst_row_localiser *self;
    for (int c = 0; c < MST_ISA_COUNT; c++) {
        if (!mst_isa_supported((mst_isa)c))
            continue;
        assert_int_equal(mst_row_localiser_new(mst_kernels_get((mst_isa)c), 1000, 1, &self), MST_OK);
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            row.keys = keys[i];
            assert_int_equal(mst_row_localise(self, 0, &(mst_batch){&row, 1}, 0, 0, &list, &out), MST_EINPUT);
            row.keys = (const uint32_t[]){999, 0, 1}; /* usable after a failure */
            localise(self, 0, &(mst_batch){&row, 1}, 0, 0, &list, &out);
        }
        mst_row_localiser_destroy(self);
    }
    mst_key_list_fini(&list);
}

static void no_memory(void **state)
{
    (void)state;
    static mst_key_list list;
    mst_row rows[10];
    mst_alloc_stats before, after;
    random_rows r = random_rows_make(
        &(rows_spec){.kind = ROWS_ONES, .n_rows = 10, .n_features = 1000, .n_keys = 10, .seed = 3});
    mst_batch batch = {.rows = r.rows, .n_rows = 10};
    mst_alloc_stats_get(&before);
    for (uint64_t k = 1;; k++) {
        mst_row_localiser *self = NULL;
        mst_alloc_fail_at(k);
        mst_status st = mst_row_localiser_new(mst_kernels_get(mst_isa_best()), 1000, 1, &self);
        if (st == MST_OK)
            st = mst_row_localise(self, 0, &batch, 0, 0, &list, rows);
        mst_alloc_fail_at(0);
        if (st != MST_OK)
            assert_int_equal(st, MST_ENOMEM);
        if (self != NULL) /* usable after a failure */
            localise(self, 0, &batch, 0, 0, &list, rows);
        mst_row_localiser_destroy(self);
        mst_key_list_fini(&list);
        if (st == MST_OK) {
            assert_true(k > 6);
            break;
        }
    }
    mst_alloc_stats_get(&after);
    assert_int_equal(after.blocks, before.blocks);
    random_rows_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_batches),    cmocka_unit_test(banks),
        cmocka_unit_test(allocates_nothing), cmocka_unit_test(full_buckets),
        cmocka_unit_test(keys_out_of_range), cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
