/* Ranks in a fixed list: the list has the distinct keys of all batches, and rows translate to positions in
 * it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "random_rows.h"
#include "tensor/key_index.h"

#define BATCHES 4

static void check_rows(const mst_key_index *rank, const mst_batch *batch, const mst_key_list *list,
                       uint32_t n_prefix, uint32_t key_start)
{
    size_t n = 0;
    for (uint32_t r = 0; r < batch->n_rows; r++)
        n += batch->rows[r].n_keys;
    mst_row *rows = calloc(batch->n_rows + 1, sizeof *rows);
    uint32_t *keys = malloc(n * sizeof *keys + 1);
    mst_key_index_rows(rank, batch, n_prefix, key_start, rows, keys);
    for (uint32_t r = 0; r < batch->n_rows; r++) {
        const mst_row *was = &batch->rows[r], *is = &rows[r];
        assert_int_equal(is->n_keys, was->n_keys);
        assert_ptr_equal(is->dense, was->dense);
        assert_ptr_equal(is->values, was->values);
        for (uint32_t i = 0; i < was->n_keys; i++) {
            uint32_t key = was->keys[i], place = is->keys[i];
            if (key < n_prefix) {
                assert_int_equal(place, key);
            } else {
                assert_in_range(place, key_start, key_start + list->n_keys - 1);
                assert_int_equal(list->keys[place - key_start], key);
            }
        }
    }
    free(keys);
    free(rows);
}

static void ranks(void **state)
{
    (void)state;
    static mst_key_list list;
    static const uint32_t features[] = {14, 40, 600, 100000, 33762578};
    for (size_t f = 0; f < sizeof features / sizeof *features; f++)
        for (int kind = 0; kind < ROWS_KINDS; kind++) {
            mst_key_index *rank;
            random_rows r[BATCHES];
            uint32_t n_prefix = kind % 2 ? 13 : 0;
            assert_int_equal(mst_key_index_new(features[f], &rank), MST_OK);
            for (unsigned b = 0; b < BATCHES; b++) {
                r[b] = random_rows_make(&(rows_spec){.kind = (row_kind)kind,
                                                     .n_rows = b * 40,
                                                     .n_dense = 13,
                                                     .n_features = features[f],
                                                     .n_keys = 26,
                                                     .seed = b});
                mst_key_index_add(rank, &(mst_batch){.rows = r[b].rows, .n_rows = r[b].n_rows}, n_prefix);
            }
            assert_int_equal(mst_key_index_list(rank, &list), MST_OK);
            for (uint32_t i = 0; i < list.n_keys; i++) {
                assert_true(list.keys[i] >= n_prefix && list.keys[i] < features[f]);
                assert_true(i == 0 || list.keys[i] > list.keys[i - 1]);
            }
            uint8_t *used = calloc(list.n_keys + 1, 1); /* every key of the list is some row's */
            for (unsigned b = 0; b < BATCHES; b++) {
                mst_batch batch = {.rows = r[b].rows, .n_rows = r[b].n_rows};
                check_rows(rank, &batch, &list, n_prefix, 32);
                uint32_t keys[30];
                for (uint32_t i = 0; i < batch.n_rows; i++) {
                    mst_row row;
                    mst_key_index_rows(rank, &(mst_batch){.rows = &batch.rows[i], .n_rows = 1}, n_prefix,
                                       n_prefix, &row, keys);
                    for (uint32_t k = 0; k < row.n_keys; k++)
                        if (keys[k] >= n_prefix)
                            used[keys[k] - n_prefix] = 1;
                }
                random_rows_free(&r[b]);
            }
            for (uint32_t i = 0; i < list.n_keys; i++)
                assert_true(used[i]);
            free(used);
            mst_key_index_destroy(rank);
        }
    mst_key_list_fini(&list);
}

static void no_memory(void **state)
{
    (void)state;
    static mst_key_list list;
    mst_key_index *rank = NULL;
    uint32_t key = 5;
    mst_row row = {.keys = &key, .n_keys = 1};
    for (uint64_t k = 1; k <= 2; k++) {
        mst_alloc_fail_at(k);
        assert_int_equal(mst_key_index_new(100, &rank), MST_ENOMEM);
        assert_non_null(strstr(mst_error_text(), "out of memory: cannot allocate "));
    }
    mst_alloc_fail_at(0);
    assert_int_equal(mst_key_index_new(100, &rank), MST_OK);
    mst_key_index_add(rank, &(mst_batch){.rows = &row, .n_rows = 1}, 0);
    mst_alloc_fail_at(1);
    assert_int_equal(mst_key_index_list(rank, &list), MST_ENOMEM);
    mst_alloc_fail_at(0);
    assert_int_equal(mst_key_index_list(rank, &list), MST_OK);
    assert_int_equal(list.n_keys, 1);
    assert_int_equal(list.keys[0], 5);
    mst_key_list_fini(&list);
    mst_key_index_destroy(rank);
    mst_key_index_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks), cmocka_unit_test(no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
