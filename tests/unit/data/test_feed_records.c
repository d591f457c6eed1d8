/* The records of claimed rows: those of rows in file order, which are the filled rows to the bit, and none
 * where rows must be filled. */
#include "unit/data/feed_helpers.h"

#define N_ROWS     300
#define CHUNK_ROWS 64
#define N_DENSE    3
#define N_KEYS     5

typedef struct shape {
    bool valued, weighted, uneven; /* uneven: rows differ in their number of keys */
} shape;

static mst_status make_row(void *arg, uint64_t i, mst_chunk_builder *b)
{
    const shape *s = arg;
    uint32_t n = N_KEYS + (s->uneven ? (uint32_t)i % 3 : 0);
    TRY(mst_chunk_builder_room(b, N_DENSE + n));
    for (uint32_t j = 0; j < N_DENSE; j++)
        mst_chunk_builder_add(b, j, (float)i + 0.25f * (float)j);
    for (uint32_t j = 0; j < n; j++)
        mst_chunk_builder_add(b, FAKE_KEY * (j + 1) + (uint32_t)i, s->valued ? 0.5f * (float)(i + j) : 1.0f);
    return mst_chunk_builder_end_row(b, (float)(i % 2), s->weighted ? 1.0f + (float)(i % 4) : 1.0f);
}

static fake_dataset *data_new(shape *s)
{
    fake_dataset *d = fake_new(FAKE_CHEAP, N_ROWS, CHUNK_ROWS, make_row, s);
    fake_peeks(d);
    return d;
}

/* Records [from, to) of a claim of 200 rows from row 10 on; how many of the first there are. */
static uint32_t has_records(fake_dataset *d, const mst_feed_options *o, uint32_t from, uint32_t to)
{
    mst_feed *feed = feed_new(d, o);
    mst_batch batch;
    uint64_t position;
    mst_records records;
    assert_int_equal(mst_feed_start(feed, 0, 10), MST_OK);
    assert_int_equal(mst_feed_claim(feed, 0, 200, &batch, &position), MST_OK);
    assert_int_equal(batch.n_rows, 200);
    assert_int_equal(mst_feed_records(feed, 0, from, to, &records), MST_OK);
    mst_feed_destroy(feed);
    assert_true((records.words != NULL) == (records.n != 0));
    return records.n;
}

static mst_feed_options in_file_order(void)
{
    mst_feed_options o = options_of(3, 0);
    o.max_take = 200;
    return o;
}

static void check_record(const mst_records *records, uint32_t r, const mst_row *row)
{
    const mst_row *first = &records->first;
    size_t words = (size_t)r * records->stride;
    const float *numbers = (const float *)records->words + words;
    assert_true(numbers[0] == row->label);
    assert_true((records->weighted ? numbers[1] : 1.0f) == row->weight);
    assert_int_equal(first->n_dense, row->n_dense);
    assert_int_equal(first->n_keys, row->n_keys);
    assert_ptr_equal(first->dense + words, row->dense);
    assert_ptr_equal(first->keys + words, row->keys);
    assert_ptr_equal(first->values != NULL ? first->values + words : NULL, row->values);
}

/* Rows [from, to) of a claim are in chunks of 64 rows, of which the first has 54 left. */
static void records_are_the_rows(void **state)
{
    (void)state;
    static const uint32_t parts[][2] = {{0, 54}, {3, 4}, {53, 54}, {54, 118}, {60, 100}, {182, 200}};
    for (int kind = 0; kind < 4; kind++) {
        shape s = {.valued = kind % 2 != 0, .weighted = kind / 2 != 0};
        fake_dataset *d = data_new(&s);
        mst_feed_options o = in_file_order();
        mst_feed *feed = feed_new(d, &o);
        mst_batch batch;
        uint64_t position;
        assert_int_equal(mst_feed_start(feed, 0, 10), MST_OK);
        assert_int_equal(mst_feed_take(feed, 0, 200, &batch, &position), MST_OK);
        for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
            mst_records records;
            assert_int_equal(mst_feed_records(feed, 0, parts[p][0], parts[p][1], &records), MST_OK);
            assert_non_null(records.words);
            assert_int_equal(records.n, parts[p][1] - parts[p][0]);
            assert_int_equal(records.weighted, s.weighted);
            for (uint32_t i = parts[p][0]; i < parts[p][1]; i++)
                check_record(&records, i - parts[p][0], &batch.rows[i]);
        }
        mst_feed_destroy(feed);
        mst_dataset_destroy(&d->base);
    }
}

static void other_rows_have_none(void **state)
{
    (void)state;
    shape s = {.valued = true}, uneven = {.uneven = true};
    fake_dataset *d = data_new(&s), *rows = data_new(&uneven);
    mst_feed_options o = in_file_order();
    assert_int_equal(has_records(d, &o, 54, 118), 64);
    assert_int_equal(has_records(d, &o, 50, 60), 4); /* in two chunks */
    assert_int_equal(has_records(d, &o, 50, 200), 4);
    assert_false(has_records(d, &o, 7, 7));
    assert_false(has_records(rows, &o, 54, 118));
    o.shuffle_rows = 1;
    assert_false(has_records(d, &o, 54, 118));
    o = in_file_order();
    o.held_out = 0.1;
    o.keep = MST_KEEP_TRAINING;
    assert_false(has_records(d, &o, 60, 61));
    o = in_file_order();
    o.features = FAKE_KEY * N_KEYS + 20;
    o.drop_unseen = true;
    assert_false(has_records(d, &o, 54, 118));
    mst_dataset_destroy(&d->base);
    mst_dataset_destroy(&rows->base);
}

static mst_status image_row(void *arg, uint64_t i, mst_chunk_builder *b)
{
    (void)arg;
    TRY(mst_chunk_builder_room(b, 4));
    for (uint32_t j = 0; j < 4; j++)
        mst_chunk_builder_add(b, j, (float)(i + j));
    return mst_chunk_builder_end_row(b, (float)(i % 2), 1.0f);
}

static void augmented_rows_have_none(void **state)
{
    (void)state;
    fake_dataset *d = fake_new(FAKE_CHEAP, N_ROWS, CHUNK_ROWS, image_row, NULL);
    mst_augment a;
    mst_feed_options o = in_file_order();
    fake_peeks(d);
    d->base.info.channels = 1;
    d->base.info.height = d->base.info.width = 2;
    assert_true(has_records(d, &o, 54, 118));
    assert_int_equal(mst_augment_init(&a, &(mst_augment_options){.mirror = true}, &d->base, 1), MST_OK);
    o.augment = &a;
    assert_false(has_records(d, &o, 54, 118));
    mst_dataset_destroy(&d->base);
}

static mst_status fail_check(mst_chunk *chunk)
{
    return mst_fail(MST_EINPUT, "a chunk of %u rows is damaged", chunk->n_rows);
}

static mst_status pass_check(mst_chunk *chunk)
{
    (void)chunk;
    return MST_OK;
}

/* Mapped chunks: their keys are copied unless lanes accept any, and damage is found in place of records. */
static void chunks_are_checked(void **state)
{
    (void)state;
    shape s = {.weighted = true};
    fake_dataset *d = data_new(&s);
    mst_feed_options o = in_file_order();
    for (uint32_t c = 0; c < d->base.n_chunks; c++)
        d->chunks[c]->check = c == 2 ? fail_check : pass_check;
    assert_false(has_records(d, &o, 54, 118));
    o.any_keys = true;
    assert_true(has_records(d, &o, 54, 118));
    mst_feed *feed = feed_new(d, &o);
    mst_batch batch;
    uint64_t position;
    mst_records records;
    assert_int_equal(mst_feed_start(feed, 0, 0), MST_OK);
    assert_int_equal(mst_feed_claim(feed, 0, 200, &batch, &position), MST_OK);
    assert_int_equal(mst_feed_records(feed, 0, 64, 128, &records), MST_OK);
    assert_int_equal(mst_feed_records(feed, 0, 128, 130, &records), MST_EINPUT);
    assert_null(records.words);
    assert_int_equal(mst_feed_fill(feed, 0, 128, 130), MST_EINPUT);
    mst_feed_destroy(feed);
    mst_dataset_destroy(&d->base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_are_the_rows),
        cmocka_unit_test(other_rows_have_none),
        cmocka_unit_test(augmented_rows_have_none),
        cmocka_unit_test(chunks_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
