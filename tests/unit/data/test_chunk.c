/* The chunk builder: sorting, the dense prefix, values that are all one, strides and offsets, failures of
 * memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "data/chunk.h"

#define COUNT(a) (sizeof(a) / sizeof *(a))

static void add_row(mst_chunk_builder *b, float label, float weight, size_t n, const uint32_t *keys,
                    const float *values)
{
    assert_int_equal(mst_chunk_builder_room(b, n), MST_OK);
    for (size_t j = 0; j < n; j++)
        mst_chunk_builder_add(b, keys[j], values != NULL ? values[j] : 1.0f);
    assert_int_equal(mst_chunk_builder_end_row(b, label, weight), MST_OK);
}

static mst_chunk *pack(const mst_chunk_builder *b, size_t from, size_t to)
{
    mst_chunk *c = NULL;
    assert_int_equal(mst_chunk_builder_pack(b, from, to, &c), MST_OK);
    assert_int_equal((uintptr_t)c->words % 64, 0);
    return c;
}

/* The value of a feature in a row, repeated keys added up. */
static float feature(const mst_row *row, uint32_t key)
{
    float sum = key < row->n_dense ? row->dense[key] : 0;
    for (uint32_t j = 0; j < row->n_keys; j++)
        if (row->keys[j] == key)
            sum += row->values != NULL ? row->values[j] : 1.0f;
    return sum;
}

static void criteo_like_rows_get_a_stride(void **state)
{
    (void)state;
    mst_chunk_builder b;
    mst_chunk_builder_init(&b);
    for (uint32_t i = 0; i < 100; i++) {
        uint32_t keys[] = {0, 1, 2, 10 + i, 200 + i};
        float values[] = {0.5f, (float)i, -2, 1, 1};
        add_row(&b, (float)(i % 2), 1, 5, keys, values);
    }
    mst_chunk *c = pack(&b, 10, 60);
    assert_int_equal(c->n_rows, 50);
    assert_int_equal(c->n_dense, 3);
    assert_int_equal(c->stride, 6);
    assert_null(c->offsets);
    assert_false(c->has_values);
    assert_false(c->has_weights);
    assert_int_equal(c->n_words, 300);
    assert_int_equal(c->max_key, 259);
    assert_int_equal(c->n_entries, 250);
    assert_true(c->min_label == 0 && c->max_label == 1);
    mst_row row;
    mst_chunk_row(c, 7, &row);
    assert_int_equal(row.n_keys, 2);
    assert_true(row.dense[1] == 17 && row.label == 1 && row.weight == 1);
    assert_int_equal(row.keys[1], 217);
    assert_null(row.values);
    mst_chunk_release(c);
    mst_chunk_builder_fini(&b);
}

static void layout_follows_the_rows(void **state)
{
    (void)state;
    mst_chunk_builder b;
    mst_row row;
    mst_chunk_builder_init(&b);
    add_row(&b, -1, 1, 3, (uint32_t[]){5, 0, 3}, (float[]){50, 1, 30}); /* out of order */
    add_row(&b, 1, 2, 2, (uint32_t[]){0, 7}, NULL);
    add_row(&b, 1, 1, 0, NULL, NULL);
    mst_chunk *c = pack(&b, 0, 2);
    assert_int_equal(c->n_dense, 1);
    assert_true(c->has_values && c->has_weights);
    assert_int_equal(c->stride, 0);
    mst_chunk_row(c, 0, &row);
    assert_int_equal(row.n_keys, 2);
    assert_int_equal(row.keys[0], 3);
    assert_true(row.values[0] == 30 && row.values[1] == 50);
    mst_chunk_row(c, 1, &row);
    assert_true(row.weight == 2 && row.values[0] == 1);
    mst_chunk_release(c);

    c = pack(&b, 1, 3); /* a row without features: no prefix; all ones: no values */
    assert_int_equal(c->n_dense, 0);
    assert_false(c->has_values);
    assert_int_equal(c->offsets[2], c->n_words);
    mst_chunk_row(c, 1, &row);
    assert_int_equal(row.n_keys, 0);
    mst_chunk_release(c);

    c = pack(&b, 3, 3);
    assert_int_equal(c->n_rows, 0);
    assert_int_equal(c->n_words, 0);
    mst_chunk_release(c);

    /* The same builder again, and a row given up half-way. */
    mst_chunk_builder_clear(&b);
    assert_int_equal(mst_chunk_builder_room(&b, 4), MST_OK);
    mst_chunk_builder_add(&b, 9, 9);
    mst_chunk_builder_drop_row(&b);
    add_row(&b, 0, 1, 2, (uint32_t[]){0, 1}, (float[]){3, 4});
    c = pack(&b, 0, 1);
    assert_int_equal(c->n_dense, 2);
    assert_int_equal(c->max_key, 1);
    assert_false(c->has_weights);
    mst_chunk_release(c);
    mst_chunk_builder_fini(&b);
}

static void a_repeated_key_stays_out_of_the_prefix(void **state)
{
    (void)state;
    mst_chunk_builder b;
    mst_chunk_builder_init(&b);
    add_row(&b, 0, 1, 4, (uint32_t[]){0, 1, 2, 3}, NULL);
    add_row(&b, 0, 1, 4, (uint32_t[]){0, 1, 1, 2}, (float[]){1, 2, 3, 4});
    mst_chunk *c = pack(&b, 0, 2);
    assert_int_equal(c->n_dense, 1);
    mst_row row;
    mst_chunk_row(c, 1, &row);
    assert_true(feature(&row, 0) == 1 && feature(&row, 1) == 5 && feature(&row, 2) == 4);
    assert_true(row.values[0] == 2 && row.values[1] == 3); /* in the order given */
    mst_chunk_release(c);
    mst_chunk_builder_fini(&b);
}

static void long_rows_sort_stably(void **state)
{
    (void)state;
    enum { N = 1000 };
    uint32_t keys[N];
    float values[N];
    mst_rng rng;
    mst_rng_init(&rng, 1, MST_RNG_TEST, 0);
    for (size_t j = 0; j < N; j++) {
        keys[j] = mst_rng_below(&rng, 300);
        values[j] = (float)j;
    }
    mst_chunk_builder b;
    mst_chunk_builder_init(&b);
    add_row(&b, 0, 1, N, keys, values);
    add_row(&b, 0, 1, 40, keys, values);
    for (size_t i = 0; i < 2; i++)
        for (size_t j = b.row_start[i] + 1; j < b.row_start[i + 1]; j++)
            assert_true(b.keys[j - 1] < b.keys[j] ||
                        (b.keys[j - 1] == b.keys[j] && b.values[j - 1] < b.values[j]));
    mst_chunk_builder_fini(&b);
}

/* Random rows against the plain reading of the contract. */
static void random_rows_come_back(void **state)
{
    (void)state;
    mst_rng rng;
    mst_rng_init(&rng, 2, MST_RNG_TEST, 0);
    mst_chunk_builder b;
    mst_chunk_builder_init(&b);
    for (int round = 0; round < 200; round++) {
        mst_chunk_builder_clear(&b);
        float expected[20][12] = {{0}};
        uint32_t n_rows = 1 + mst_rng_below(&rng, 20), prefix = mst_rng_below(&rng, 4);
        bool ones = mst_rng_below(&rng, 2);
        for (uint32_t i = 0; i < n_rows; i++) {
            uint32_t keys[24];
            float values[24];
            size_t n = 0;
            for (; n < prefix; n++)
                keys[n] = (uint32_t)n;
            for (uint32_t extra = mst_rng_below(&rng, 8); extra > 0; extra--)
                keys[n++] = mst_rng_below(&rng, 12);
            for (size_t j = 0; j < n; j++) {
                values[j] = ones ? 1.0f : (float)mst_rng_below(&rng, 8);
                expected[i][keys[j]] += values[j];
            }
            add_row(&b, (float)i, 1, n, keys, values);
        }
        mst_chunk *c = pack(&b, 0, n_rows);
        for (uint32_t i = 0; i < n_rows; i++) {
            mst_row row;
            mst_chunk_row(c, i, &row);
            assert_true(row.label == (float)i);
            for (uint32_t j = 0; j < row.n_keys; j++)
                assert_true(row.keys[j] >= c->n_dense && (j == 0 || row.keys[j] >= row.keys[j - 1]));
            for (uint32_t key = 0; key < 12; key++)
                assert_true(feature(&row, key) == expected[i][key]);
        }
        if (ones)
            assert_false(c->has_values);
        mst_chunk_release(c);
    }
    mst_chunk_builder_fini(&b);
}

static void every_failed_allocation_is_reported(void **state)
{
    (void)state;
    mst_alloc_stats before, after;
    mst_alloc_stats_get(&before);
    uint32_t keys[100];
    for (uint32_t j = 0; j < 100; j++)
        keys[j] = 100 - j;
    bool done = false;
    for (uint64_t k = 1; !done; k++) {
        mst_chunk_builder b;
        mst_chunk *c = NULL;
        mst_status st = MST_OK;
        mst_chunk_builder_init(&b);
        mst_alloc_fail_at(k);
        for (int i = 0; i < 3 && st == MST_OK; i++) {
            st = mst_chunk_builder_room(&b, COUNT(keys));
            for (size_t j = 0; j < COUNT(keys) && st == MST_OK; j++)
                mst_chunk_builder_add(&b, keys[j], (float)j);
            if (st == MST_OK)
                st = mst_chunk_builder_end_row(&b, 0, 1);
        }
        if (st == MST_OK)
            st = mst_chunk_builder_pack(&b, 0, 3, &c);
        mst_alloc_fail_at(0);
        done = st == MST_OK;
        if (!done) {
            assert_int_equal(st, MST_ENOMEM);
            assert_null(c);
            assert_non_null(mst_error_text());
        }
        mst_chunk_release(c);
        mst_chunk_builder_fini(&b);
        assert_true(k < 100);
    }
    mst_alloc_stats_get(&after);
    assert_int_equal(before.blocks, after.blocks);
}

/* Rows in the order of fields: those that follow from positions are not stored. */
static void fields_are_stored_where_positions_do_not_tell(void **state)
{
    (void)state;
    mst_chunk_builder b;
    mst_row row;
    mst_chunk_builder_init(&b);
    for (int odd = 0; odd < 3; odd++) { /* 0: one key per field; 1: a field is missing; 2: and values */
        mst_chunk_builder_clear(&b);
        b.order = MST_ORDER_FIELDS;
        for (uint32_t i = 0; i < 100; i++) {
            assert_int_equal(mst_chunk_builder_room(&b, 6), MST_OK);
            mst_chunk_builder_add_field(&b, 3, 40 + i, odd == 2 ? 2.5f : 1.0f);
            if (odd == 0 || i != 50)
                mst_chunk_builder_add_field(&b, 2, 900 - i, 1.0f);
            mst_chunk_builder_add_field(&b, 0, 0, (float)i);
            mst_chunk_builder_add_field(&b, 1, 1, 0.5f);
            assert_int_equal(mst_chunk_builder_end_row(&b, 1, 1), MST_OK);
        }
        mst_chunk *c = pack(&b, 0, 100);
        assert_true(c->fielded && c->any_order);
        assert_int_equal(c->has_fields, odd > 0);
        assert_int_equal(c->has_values, odd == 2);
        assert_int_equal(c->n_dense, 2);
        assert_int_equal(c->max_key, 900);
        assert_int_equal(c->max_field, 3);
        for (uint32_t i = 0; i < 100; i++) {
            mst_chunk_row(c, i, &row);
            bool lacks = odd > 0 && i == 50;
            assert_int_equal(row.n_keys, lacks ? 1 : 2);
            assert_true(row.any_order && row.dense[0] == (float)i);
            assert_int_equal(row.keys[row.n_keys - 1], 40 + i);
            assert_int_equal(mst_row_field(&row, row.n_keys - 1), 3);
            assert_true(lacks || (row.keys[0] == 900 - i && mst_row_field(&row, 0) == 2));
            assert_true(odd < 2 || row.values[row.n_keys - 1] == 2.5f);
        }
        mst_chunk_release(c);
    }
    /* A number that is not a field of its own stays a key, and so does one whose key comes again. */
    mst_chunk_builder_clear(&b);
    b.order = MST_ORDER_FIELDS;
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(mst_chunk_builder_room(&b, 4), MST_OK);
        mst_chunk_builder_add_field(&b, 0, 0, 1.0f);
        mst_chunk_builder_add_field(&b, 1, 1, 1.0f);
        mst_chunk_builder_add_field(&b, 1, 2, 1.0f);
        mst_chunk_builder_add_field(&b, 2, i == 3 ? 1 : 7, 1.0f);
        assert_int_equal(mst_chunk_builder_end_row(&b, 0, 1), MST_OK);
    }
    mst_chunk *c = pack(&b, 0, 10);
    assert_int_equal(c->n_dense, 1);
    mst_chunk_row(c, 3, &row);
    assert_int_equal(row.keys[2], 1);
    assert_int_equal(mst_row_field(&row, 2), 2);
    mst_chunk_release(c);
    mst_chunk_builder_fini(&b);
}

static void long_rows_sort_by_field(void **state)
{
    (void)state;
    enum { N = 1000 };
    mst_chunk_builder b;
    mst_chunk_builder_init(&b);
    b.order = MST_ORDER_FIELDS;
    assert_int_equal(mst_chunk_builder_room(&b, N), MST_OK);
    for (uint32_t j = 0; j < N; j++)
        mst_chunk_builder_add_field(&b, (uint16_t)(N - 1 - j), j, (float)j);
    assert_int_equal(mst_chunk_builder_end_row(&b, 0, 1), MST_OK);
    for (uint32_t j = 0; j < N; j++)
        assert_true(b.fields[j] == j && b.keys[j] == N - 1 - j && b.values[j] == (float)(N - 1 - j));
    mst_chunk_builder_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(criteo_like_rows_get_a_stride),
        cmocka_unit_test(layout_follows_the_rows),
        cmocka_unit_test(a_repeated_key_stays_out_of_the_prefix),
        cmocka_unit_test(long_rows_sort_stably),
        cmocka_unit_test(random_rows_come_back),
        cmocka_unit_test(fields_are_stored_where_positions_do_not_tell),
        cmocka_unit_test(long_rows_sort_by_field),
        cmocka_unit_test(every_failed_allocation_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
