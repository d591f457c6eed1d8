/* The keys of a step divided among blocks: every key is found once, in its place, updates by blocks and by
 * popular keys are those of whole rows, and records give the same as rows. The keys that each owner picks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "random_rows.h"
#include "tensor/kernels.h"
#include "tensor/key_rows.h"

#define FEATURES 3000
#define POPULAR  FEATURES /* the first place of a popular key */
#define PLACES   512
#define BITS     11
#define PREFIX   13

#define EACH_ISA(k)                                                                                          \
    for (int isa_ = 0; isa_ < MST_ISA_COUNT; isa_++)                                                         \
        for (const mst_kernels *k = mst_isa_supported((mst_isa)isa_) ? mst_kernels_get((mst_isa)isa_)        \
                                                                     : NULL;                                 \
             k != NULL; k = NULL)

static uint32_t buckets[1 << BITS], place_of[FEATURES]; /* 0: not popular */
static mst_key_map map = {.factor = 0x9E3779B1u, .shift = 32 - BITS, .base = POPULAR, .buckets = buckets};

/* Every fifth key is popular, those of the prefix are not. */
static int make_map(void **state)
{
    (void)state;
    memset(buckets, 0xff, sizeof buckets); /* MST_MAP_UNUSED */
    for (uint32_t key = PREFIX; key < FEATURES && map.n < PLACES; key++) {
        uint32_t hash = key * map.factor, *bucket = &buckets[hash >> map.shift];
        if (key % 5 != 0 || *bucket != MST_MAP_UNUSED)
            continue;
        place_of[key] = POPULAR + map.n;
        *bucket = mst_map_bucket(map.n++, hash, map.shift);
    }
    return map.n < PLACES / 2;
}

typedef struct division {
    random_rows r;
    bool valued;
    size_t n_keys;
    mst_row *out;
    uint32_t *keys;
    mst_picks picks;
} division;

static void divide_begin(row_kind kind, uint32_t n_rows, uint32_t n_keys, uint32_t n_blocks, division *d)
{
    *d = (division){.r = random_rows_make(&(rows_spec){.kind = kind,
                                                       .n_rows = n_rows,
                                                       .n_dense = PREFIX,
                                                       .n_features = FEATURES,
                                                       .n_keys = n_keys,
                                                       .n_classes = 2,
                                                       .n_fields = PREFIX + n_keys / 2,
                                                       .weighted = n_blocks % 2 != 0,
                                                       .seed = n_rows + n_keys})};
    for (uint32_t i = 0; i < n_rows; i++) {
        d->n_keys += d->r.rows[i].n_keys;
        d->valued |= d->r.rows[i].values != NULL;
    }
    d->out = row_block(n_rows, sizeof *d->out);
    d->keys = row_block(d->n_keys, sizeof *d->keys);
    assert_int_equal(mst_picks_init(&d->picks, n_blocks), MST_OK);
}

static void divide(const mst_kernels *k, const mst_key_map *with, const mst_records *records, division *d)
{
    mst_division rule = {.n_prefix = PREFIX, .map = with, .records = records};
    assert_int_equal(mst_picks_begin(&d->picks, d->n_keys / 2, d->valued), MST_OK);
    assert_int_equal(mst_picks_begin(&d->picks, d->n_keys, d->valued), MST_OK);
    k->divide_keys(records == NULL ? d->r.rows : NULL, d->r.n_rows, &rule, d->out, d->keys, &d->picks);
}

static void divide_end(division *d)
{
    mst_picks_fini(&d->picks);
    free(d->out);
    free(d->keys);
    random_rows_free(&d->r);
}

static float value_at(const mst_row *row, uint32_t i)
{
    return row->values != NULL ? row->values[i] : 1.0f;
}

static bool is_popular(uint32_t key)
{
    return key >= POPULAR;
}

/* The rows that were made from the given ones: popular keys are translated where they are. */
static void check_rows(const division *d, bool mapped)
{
    for (uint32_t r = 0; r < d->r.n_rows; r++) {
        const mst_row *row = &d->r.rows[r], *out = &d->out[r];
        assert_true(out->label == row->label && out->weight == row->weight);
        assert_int_equal(out->n_keys, row->n_keys);
        assert_int_equal(out->n_dense, row->n_dense);
        assert_int_equal(out->any_order, row->any_order);
        for (uint32_t i = 0; i < row->n_dense; i++)
            assert_true(row_dense(out, i) == row_dense(row, i));
        for (uint32_t i = 0; i < row->n_keys; i++) {
            uint32_t place = mapped ? place_of[row->keys[i]] : 0;
            assert_int_equal(out->keys[i], place != 0 ? place : row->keys[i]);
            assert_true(value_at(out, i) == value_at(row, i));
            assert_true(row->fields == NULL || out->fields[i] == row->fields[i]);
        }
    }
}

/* The picks of each block: the keys of the rows that belong to it, in the order of the rows. */
static void check_picks(const division *d)
{
    size_t total = 0;
    for (uint32_t b = 0; b < d->picks.n_blocks; b++) {
        size_t at = b * d->picks.room;
        for (uint32_t r = 0; r < d->r.n_rows; r++) {
            const mst_row *row = &d->out[r];
            for (uint32_t i = 0; i < row->n_keys; i++) {
                if (row->keys[i] < PREFIX || is_popular(row->keys[i]) ||
                    mst_grad_owner(row->keys[i], d->picks.n_blocks) != b)
                    continue;
                assert_true(at < d->picks.ends[b]);
                assert_int_equal(d->picks.at[at].key, row->keys[i]);
                assert_int_equal(d->picks.at[at].row, r);
                if (d->valued)
                    assert_true(d->picks.values[at] == value_at(row, i));
                at++;
                total++;
            }
        }
        assert_int_equal(at, d->picks.ends[b]);
    }
    assert_true(total <= d->n_keys);
}

static void random_coefs(float *coefs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        coefs[i] = (float)sin(1.0 + i);
}

/* What rows add to the weight of each key and place: the sum of coef * value. */
static void reference(const division *d, const float *coefs, double *sums)
{
    memset(sums, 0, (POPULAR + PLACES) * sizeof *sums);
    for (uint32_t r = 0; r < d->r.n_rows; r++)
        for (uint32_t i = 0; i < d->out[r].n_keys; i++)
            if (d->out[r].keys[i] >= PREFIX)
                sums[d->out[r].keys[i]] += (double)coefs[r] * (double)value_at(&d->out[r], i);
}

static void check_updates(const mst_kernels *k, const division *d)
{
    static double want[POPULAR + PLACES];
    static float w[POPULAR + PLACES], rows[(POPULAR + PLACES) * MST_ROW_FIRST];
    float *coefs = row_block(d->r.n_rows, sizeof *coefs), sums[PLACES + MST_PLACES_BEHIND] = {0};
    uint32_t *touched = row_block(d->n_keys + 1, sizeof *touched);
    random_coefs(coefs, d->r.n_rows);
    reference(d, coefs, want);
    k->add_places(d->out, d->r.n_rows, POPULAR, map.n, coefs, sums);
    for (uint32_t i = 0; i < map.n; i++)
        assert_true(fabs((double)sums[i] - want[POPULAR + i]) < 1e-3);
    memset(w, 0, sizeof w);
    memset(rows, 0, sizeof rows);
    size_t n_touched = 0, n_want = 0;
    mst_linear vector = {.sparse = w}, store = {.sparse = rows, .stride = MST_ROW_FIRST};
    for (uint32_t b = 0; b < d->picks.n_blocks; b++) {
        k->approach_picks(&d->picks, b, &vector);
        k->subtract_picks(&d->picks, b, coefs, 0.5f, w, b % 2 != 0 ? &d->picks : NULL);
        k->approach_picks(&d->picks, b, &store);
        n_touched += k->collect_picks(&d->picks, b, coefs, 0.5f, &store, touched + n_touched,
                                      b % 2 != 0 ? &d->picks : NULL);
    }
    for (uint32_t key = 0; key < POPULAR; key++) {
        float sum = rows[key * MST_ROW_FIRST + MST_ROW_SCRATCH];
        bool seen = false;
        assert_true(fabs((double)w[key] + 0.5 * want[key]) < 1e-3);
        assert_true(fabs((double)sum - 0.5 * want[key]) < 1e-3);
        for (size_t i = 0; i < n_touched; i++) {
            assert_false(seen && touched[i] == key);
            seen |= touched[i] == key;
        }
        assert_true(seen == (memcmp(&sum, &(float){0}, sizeof sum) != 0));
        n_want += seen;
    }
    assert_int_equal(n_touched, n_want);
    free(coefs);
    free(touched);
}

static const struct {
    uint32_t n_rows, n_keys, n_blocks;
} sizes[] = {{0, 5, 3}, {1, 1, 1}, {9, 16, 2}, {60, 26, 4}, {30, 26, 7}, {70, 40, 15}, {4, 300, 64}};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

static void keys_are_divided(void **state)
{
    (void)state;
    EACH_ISA(k)
    {
        for (int kind = 0; kind < ROWS_KINDS; kind++)
            for (size_t s = 0; s < N_SIZES; s++)
                for (int mapped = 0; mapped < 2; mapped++) {
                    division d;
                    divide_begin((row_kind)kind, sizes[s].n_rows, sizes[s].n_keys, sizes[s].n_blocks, &d);
                    divide(k, mapped ? &map : NULL, NULL, &d);
                    check_rows(&d, mapped);
                    check_picks(&d);
                    check_updates(k, &d);
                    divide_end(&d);
                }
    }
}

/* Gives all rows as many keys, and makes records of them, in a block of exactly their size. */
static mst_records make_records(division *d, bool weighted, uint32_t **block)
{
    mst_row *rows = d->r.rows;
    uint32_t n_rows = d->r.n_rows, n_keys = UINT32_MAX, n_dense = rows[0].n_dense;
    for (uint32_t r = 0; r < n_rows; r++)
        n_keys = rows[r].n_keys < n_keys ? rows[r].n_keys : n_keys;
    uint32_t head = 1 + weighted, keys = head + (rows[0].bytes != NULL ? (n_dense + 3) / 4 : n_dense),
             values = keys + n_keys, fields = values + (rows[0].values != NULL ? n_keys : 0),
             stride = fields + (rows[0].fields != NULL ? (n_keys + 1) / 2 : 0);
    uint32_t *words = row_block((size_t)n_rows * stride, sizeof *words);
    memset(words, 0, (size_t)n_rows * stride * sizeof *words);
    for (uint32_t r = 0; r < n_rows; r++) {
        uint32_t *record = words + (size_t)r * stride;
        rows[r].n_keys = n_keys;
        rows[r].weight = weighted ? rows[r].weight : 1.0f;
        memcpy(record, &rows[r].label, sizeof(float));
        if (weighted)
            memcpy(record + 1, &rows[r].weight, sizeof(float));
        if (n_dense != 0)
            memcpy(record + head, rows[r].bytes != NULL ? (const void *)rows[r].bytes : rows[r].dense,
                   n_dense * (rows[r].bytes != NULL ? 1 : sizeof(float)));
        if (n_keys != 0)
            memcpy(record + keys, rows[r].keys, n_keys * sizeof *rows[r].keys);
        if (rows[r].values != NULL)
            memcpy(record + values, rows[r].values, n_keys * sizeof *rows[r].values);
        if (rows[r].fields != NULL)
            memcpy(record + fields, rows[r].fields, n_keys * sizeof *rows[r].fields);
    }
    d->n_keys = (size_t)n_rows * n_keys;
    mst_records records = {.words = words, .stride = stride, .weighted = weighted, .first = rows[0]};
    records.first.dense = rows[0].dense != NULL ? (const float *)(words + head) : NULL;
    records.first.bytes = rows[0].bytes != NULL ? (const uint8_t *)(words + head) : NULL;
    records.first.keys = words + keys;
    records.first.values = rows[0].values != NULL ? (const float *)(words + values) : NULL;
    records.first.fields = rows[0].fields != NULL ? (const uint16_t *)(words + fields) : NULL;
    *block = words;
    return records;
}

static void records_give_the_same(void **state)
{
    (void)state;
    EACH_ISA(k)
    {
        for (int kind = 0; kind < ROWS_KINDS; kind++)
            for (size_t s = 1; s < N_SIZES; s++)
                for (int mapped = 0; mapped < 2; mapped++) {
                    division d;
                    uint32_t *block;
                    divide_begin((row_kind)kind, sizes[s].n_rows, sizes[s].n_keys, sizes[s].n_blocks, &d);
                    mst_records records = make_records(&d, sizes[s].n_blocks % 2 != 0, &block);
                    divide(k, mapped ? &map : NULL, &records, &d);
                    check_rows(&d, mapped);
                    check_picks(&d);
                    divide_end(&d);
                    free(block);
                }
    }
}

/* ---- the keys of an owner ---- */

/* Picks of rows or records, which may come in two pieces. */
static void pick(const mst_kernels *k, const division *d, const mst_records *records, uint32_t owner,
                 uint32_t n_owners, mst_picks *picks)
{
    uint32_t n = d->r.n_rows, half = n / 2;
    assert_int_equal(mst_picks_begin(picks, d->n_keys, d->valued), MST_OK);
    if (records == NULL) {
        k->pick_own(d->r.rows, NULL, 0, n, PREFIX, owner, n_owners, picks);
        return;
    }
    mst_records second = *records;
    size_t words = (size_t)half * records->stride;
    second.words += words;
    second.first.keys += words;
    second.first.values += second.first.values != NULL ? words : 0;
    k->pick_own(NULL, records, 0, half, PREFIX, owner, n_owners, picks);
    k->pick_own(NULL, &second, half, n - half, PREFIX, owner, n_owners, picks);
}

/* The picks of all owners are the keys beyond the prefix, each with its owner, in the order of the rows; the
 * sums over them and the prefixes are the margins. */
static void check_own(const mst_kernels *k, const division *d, const mst_records *records, uint32_t n_owners)
{
    static float w[FEATURES], rows[FEATURES * MST_ROW_FIRST];
    uint32_t n = d->r.n_rows;
    float bias = 0.25f, *sums = row_block(n, sizeof *sums), *by_rows = row_block(n, sizeof *by_rows),
          *want = row_block(n, sizeof *want), *one = row_block(n, sizeof *one);
    for (uint32_t key = 0; key < FEATURES; key++)
        w[key] = rows[(size_t)key * MST_ROW_FIRST] = (float)cos(1.0 + key);
    mst_linear vector = {.sparse = w, .dense = w, .bias = &bias},
               store = {.sparse = rows, .dense = w, .bias = &bias, .stride = MST_ROW_FIRST};
    mst_picks picks;
    assert_int_equal(mst_picks_init(&picks, 1), MST_OK);
    memset(sums, 0, n * sizeof *sums);
    memset(by_rows, 0, n * sizeof *by_rows);
    for (uint32_t owner = 0; owner < n_owners; owner++) {
        size_t at = 0;
        pick(k, d, records, owner, n_owners, &picks);
        for (uint32_t r = 0; r < n; r++)
            for (uint32_t i = 0; i < d->r.rows[r].n_keys; i++) {
                uint32_t key = d->r.rows[r].keys[i];
                if (key < PREFIX || mst_grad_owner(key, n_owners) != owner)
                    continue;
                assert_true(at < picks.ends[0]);
                assert_int_equal(picks.at[at].key, key);
                assert_int_equal(picks.at[at].row, r);
                assert_true(!d->valued || picks.values[at] == value_at(&d->r.rows[r], i));
                at++;
            }
        assert_int_equal(at, picks.ends[0]);
        memset(one, 0, n * sizeof *one);
        k->sum_picks(&picks, &vector, one);
        for (uint32_t r = 0; r < n; r++)
            sums[r] += one[r];
        memset(one, 0, n * sizeof *one);
        k->sum_picks(&picks, &store, one);
        for (uint32_t r = 0; r < n; r++)
            by_rows[r] += one[r];
    }
    k->margins(d->r.rows, n, &vector, want);
    k->add_prefix(d->r.rows, n, PREFIX, &vector, sums);
    k->add_prefix(d->r.rows, n, PREFIX, &store, by_rows);
    for (uint32_t r = 0; r < n; r++) {
        assert_true(fabs((double)sums[r] - (double)want[r]) < 1e-3);
        assert_true(sums[r] == by_rows[r]);
    }
    mst_picks_fini(&picks);
    free(sums);
    free(by_rows);
    free(want);
    free(one);
}

static void owners_pick_their_keys(void **state)
{
    (void)state;
    EACH_ISA(k)
    {
        for (int kind = 0; kind < ROWS_KINDS; kind++)
            for (size_t s = 1; s < N_SIZES; s++)
                for (uint32_t n_owners = 1; n_owners <= 4; n_owners++) {
                    division d;
                    uint32_t *block;
                    divide_begin((row_kind)kind, sizes[s].n_rows, sizes[s].n_keys, 1, &d);
                    check_own(k, &d, NULL, n_owners);
                    mst_records records = make_records(&d, n_owners % 2 != 0, &block);
                    check_own(k, &d, &records, n_owners);
                    k->make_rows(&records, d.r.n_rows / 3, d.r.n_rows, d.out + d.r.n_rows / 3);
                    k->make_rows(&records, 0, d.r.n_rows / 3, d.out);
                    check_rows(&d, false);
                    divide_end(&d);
                    free(block);
                }
    }
}

/* A sum that is no number stays in its row. */
static void rows_do_not_mix(void **state)
{
    (void)state;
    static mst_pick at[8] = {{0, 0}, {1, 0}, {2, 1}, {3, 2}, {2, 2}, {3, 5}};
    float w[4] = {1.0f, INFINITY, -INFINITY, 3.0f}, values[8] = {1, 1, 1, 1, 0, 1};
    size_t ends = 6;
    mst_picks picks = {.n_blocks = 1, .room = 8, .ends = &ends, .at = at, .values = values};
    mst_linear linear = {.sparse = w};
    EACH_ISA(k)
    {
        for (int valued = 0; valued < 2; valued++) {
            float sums[6] = {0};
            picks.valued = valued;
            k->sum_picks(&picks, &linear, sums);
            assert_true(sums[0] == INFINITY && sums[1] == -INFINITY);
            assert_true(valued ? isnan(sums[2]) : sums[2] == -INFINITY);
            assert_true(sums[3] == 0.0f && sums[4] == 0.0f && sums[5] == 3.0f);
        }
    }
}

static void no_memory(void **state)
{
    (void)state;
    mst_alloc_stats before, after;
    mst_alloc_stats_get(&before);
    for (uint64_t fails = 1; fails <= 3; fails++) {
        mst_picks picks;
        mst_alloc_fail_at(fails);
        mst_status st = mst_picks_init(&picks, 3);
        if (st == MST_OK)
            st = mst_picks_begin(&picks, 100, true);
        assert_int_equal(st, MST_ENOMEM);
        mst_alloc_fail_at(0);
        mst_picks_fini(&picks);
    }
    mst_alloc_stats_get(&after);
    assert_int_equal(before.blocks, after.blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_divided),
        cmocka_unit_test(records_give_the_same),
        cmocka_unit_test(owners_pick_their_keys),
        cmocka_unit_test(rows_do_not_mix),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, make_map, NULL);
}
