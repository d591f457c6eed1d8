/* Shards of the feed: the shards of an epoch are disjoint and together are the epoch, over random access and
 * over streams, and blocks of streams are small enough for every shard. */
#include <unistd.h>

#include "unit/data/feed_helpers.h"
#include "unit/data/text_helpers.h"

/* One epoch of a shard. */
static void shard_of(fake_dataset *d, mst_feed_options o, uint32_t shard, uint32_t n_shards, uint64_t epoch,
                     sequence *out)
{
    o.shard = shard;
    o.n_shards = n_shards;
    if (!d->base.random)
        fake_rewind(&d->base);
    mst_feed *feed = feed_new(d, &o);
    if (d->base.random && epoch == 0)
        assert_true(mst_feed_epoch_rows(feed) <= d->n_rows);
    assert_int_equal(mst_feed_start(feed, epoch, 0), MST_OK);
    uint64_t known = mst_feed_epoch_rows(feed);
    assert_int_equal(take_all(feed, &o, 0, 0, out), MST_OK);
    assert_int_equal(mst_feed_epoch_rows(feed), out->n);
    if (d->base.random)
        assert_int_equal(known, out->n);
    mst_feed_destroy(feed);
}

static void shards_make_an_epoch(void **state)
{
    (void)state;
    static const uint64_t windows[] = {0, 40, 1 << 20}, rows[] = {0, 1, 16, 605};
    static sequence whole, part;
    for (int kind = 0; kind < FAKE_KINDS; kind++)
        for (int keep = 0; keep < (kind == FAKE_STREAM ? 1 : 3); keep++)
            for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
                for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
                    for (uint32_t n_shards = 0; n_shards <= 5; n_shards++) {
                        fake_dataset *d = fake_new((fake_kind)kind, rows[r], 16, NULL, NULL);
                        mst_feed_options o = options_of(n_shards, windows[w]);
                        o.held_out = 0.3;
                        o.keep = (mst_feed_keep)keep;
                        for (uint64_t epoch = 0; epoch < 2; epoch++) {
                            uint8_t want[MAX_ROWS] = {0}, seen[MAX_ROWS] = {0};
                            epoch_of(d, &o, epoch, 0, &whole);
                            count(&whole, want);
                            for (uint32_t s = 0; s < (n_shards ? n_shards : 1); s++) {
                                shard_of(d, o, s, n_shards, epoch, &part);
                                count(&part, seen);
                                if (n_shards <= 1)
                                    assert_same(&part, &whole);
                            }
                            assert_memory_equal(seen, want, MAX_ROWS);
                        }
                        mst_dataset_destroy(&d->base);
                    }
}

/* Chunk i of the permuted order is shard i % n's: with windows of one chunk the shards' epochs, dealt
 * together chunk by chunk, have the chunks of the whole. */
static void chunks_are_dealt_in_order(void **state)
{
    (void)state;
    static sequence whole, part[3];
    fake_dataset *d = fake_new(FAKE_CHEAP, 320, 16, NULL, NULL);
    mst_feed_options o = options_of(4, 1);
    epoch_of(d, &o, 6, 0, &whole);
    for (uint32_t s = 0; s < 3; s++)
        shard_of(d, o, s, 3, 6, &part[s]);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(part[i % 3].rows[i / 3 * 16] / 16, whole.rows[i * 16] / 16);
    mst_dataset_destroy(&d->base);
}

/* A position of a shard is a fixed row, too, reached from the start or by a jump. */
static void shards_have_ranges(void **state)
{
    (void)state;
    static sequence whole, part;
    for (int kind = 0; kind < FAKE_KINDS; kind++) {
        fake_dataset *d = fake_new((fake_kind)kind, 1003, 16, NULL, NULL);
        mst_feed_options o = options_of(4, 50);
        o.first_rows = 280;
        shard_of(d, o, 2, 3, 1, &whole);
        assert_int_equal(whole.n, 280);
        o.shard = 2;
        o.n_shards = 3;
        fake_rewind(&d->base);
        mst_feed *feed = feed_new(d, &o);
        for (uint32_t i = 0; i < 40; i++) {
            uint32_t from = i * 77 % 280;
            assert_int_equal(mst_feed_start_range(feed, 1, from, from + 60), MST_OK);
            assert_int_equal(take_all(feed, &o, 0, from, &part), MST_OK);
            assert_int_equal(part.n, 280 - from < 60 ? 280 - from : 60);
            assert_memory_equal(part.rows, whole.rows + from, part.n * sizeof *part.rows);
        }
        mst_feed_destroy(feed);
        mst_dataset_destroy(&d->base);
    }
}

static void others_blocks_are_not_parsed(void **state)
{
    (void)state;
    static sequence part;
    fake_dataset *d = fake_new(FAKE_STREAM, 1000, 16, NULL, NULL);
    mst_feed_options o = options_of(4, 50);
    o.prefetch_threads = 2;
    shard_of(d, o, 1, 4, 0, &part);
    unsigned loads = atomic_load(&d->loads), skips = atomic_load(&d->skips);
    assert_int_equal(loads + skips, d->next);
    assert_int_equal(loads, (d->next - 1 + 3) / 4);
    mst_dataset_destroy(&d->base);
}

static void refused(void **state)
{
    (void)state;
    mst_feed *feed = NULL;
    fake_dataset *d = fake_new(FAKE_STREAM, 100, 16, NULL, NULL);
    mst_feed_options o = options_of(4, 50);
    o.n_shards = 3;
    o.shard = 1;
    o.held_out = 0.1;
    o.keep = MST_KEEP_TRAINING;
    assert_int_equal(mst_feed_new(&d->base, &o, &feed), MST_EUSAGE);
    assert_string_equal(
        mst_error_text(),
        "fake.data is a stream dealt to 3 workers block by block, so rows cannot be left out of "
        "it by number (--valid FRACTION); use --cache, or --valid FILE for the rows to validate on");
    o.keep = MST_KEEP_ALL;
    o.keep_negatives = 0.5;
    assert_int_equal(mst_feed_new(&d->base, &o, &feed), MST_EUSAGE);
    assert_string_equal(mst_error_text(),
                        "fake.data is a stream dealt to 3 workers block by block, so rows "
                        "cannot be left out of it by number (--keep-negatives); use --cache");
    o.keep_negatives = 0.0;
    o.keep = MST_KEEP_ALL;
    o.shard = 3;
    assert_int_equal(mst_feed_new(&d->base, &o, &feed), MST_EUSAGE);
    assert_string_equal(mst_error_text(), "fake.data: there is no shard 3 of 3; they are numbered from 0");
    assert_null(feed);
    mst_dataset_destroy(&d->base);
}

static mst_status bad_label(void *arg, uint64_t row, mst_chunk_builder *builder)
{
    (void)arg;
    TRY(mst_chunk_builder_room(builder, 1));
    mst_chunk_builder_add(builder, FAKE_KEY, 1.0f);
    return mst_chunk_builder_end_row(builder, row == 40 ? 7.0f : 1.0f, 1.0f);
}

/* Blocks of 10, 6, 10, 0, 6, 10 ... rows: row 40 is row 8 of block 5, after 6 rows of blocks 1 and 3. */
static void rows_are_numbered_in_the_share(void **state)
{
    (void)state;
    fake_dataset *d = fake_new(FAKE_STREAM, 100, 10, bad_label, NULL);
    mst_feed_options o = options_of(4, 0);
    o.n_shards = 2;
    o.shard = 1;
    o.classes = 2;
    mst_feed *feed = feed_new(d, &o);
    mst_batch batch = {.n_rows = 1};
    uint64_t position;
    mst_status st = mst_feed_start(feed, 0, 0);
    while (st == MST_OK && batch.n_rows != 0)
        st = mst_feed_take(feed, 0, 10, &batch, &position);
    assert_int_equal(st, MST_EINPUT);
    assert_string_equal(mst_error_text(),
                        "fake.data: row 15 of this worker's share has label 7, which is not -1, 0 or 1; more "
                        "classes need --classes 8 or more, and --model softmax or a net");
    mst_feed_destroy(feed);
    mst_dataset_destroy(&d->base);
}

/* ---- files ---- */

#define FILE_ROWS 32561

static mst_data_options data_options;

static mst_dataset *open_file(const char *path)
{
    mst_text_list list = {0};
    mst_dataset *d = NULL;
    assert_int_equal(mst_text_list_add(&list, path), MST_OK);
    assert_int_equal(mst_dataset_open(&list, &data_options, &d), MST_OK);
    mst_text_list_fini(&list);
    return d;
}

/* Row i has the key i + 1 and about 60 bytes; every long_every-th is of `long_keys` keys. */
static const char *write_rows(const char *name, uint32_t n, uint32_t long_every, uint32_t long_keys)
{
    mst_out *out;
    assert_int_equal(mst_out_open(in_folder(name), &out), MST_OK);
    for (uint32_t row = 0; row < n; row++) {
        uint32_t more = long_every && row % long_every == long_every - 1 ? long_keys : 5;
        assert_int_equal(mst_out_printf(out, "%d %u:1", row % 2 ? 1 : -1, row + 1), MST_OK);
        for (uint32_t k = 0; k < more; k++)
            assert_int_equal(mst_out_printf(out, " %u:%u", FILE_ROWS + 1 + k * 2, k % 10), MST_OK);
        assert_int_equal(mst_out_printf(out, "\n"), MST_OK);
    }
    assert_int_equal(mst_out_commit(out), MST_OK);
    mst_out_close(out);
    return in_folder(name);
}

/* Rows of one epoch of a shard, each read by a dataset of its own, as workers do; for the second epoch the
 * file is read again. */
static uint32_t count_shard(const char *path, uint32_t shard, uint32_t n_shards, uint8_t *seen)
{
    mst_dataset *d = open_file(path);
    mst_feed *feed = NULL;
    mst_feed_options o = options_of(1, 5000);
    uint32_t n[2] = {0, 0};
    o.shard = shard;
    o.n_shards = n_shards;
    o.prefetch_threads = 1 + shard % 3; /* nor does this change where blocks are cut */
    assert_false(d->random);
    assert_int_equal(mst_feed_new(d, &o, &feed), MST_OK);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        mst_batch batch;
        uint64_t position;
        assert_int_equal(mst_feed_start(feed, epoch, 0), MST_OK);
        do {
            assert_int_equal(mst_feed_take(feed, 0, 100, &batch, &position), MST_OK);
            for (uint32_t i = 0; i < batch.n_rows; i++)
                seen[batch.rows[i].keys[0]]++;
            n[epoch] += batch.n_rows;
        } while (batch.n_rows != 0);
        assert_int_equal(mst_feed_epoch_rows(feed), n[epoch]);
    }
    assert_int_equal(n[0], n[1]);
    mst_feed_destroy(feed);
    mst_dataset_destroy(d);
    return n[0];
}

static void check_file(const char *path, uint32_t rows, uint32_t n_shards, bool even)
{
    static uint8_t seen[FILE_ROWS + 1];
    uint32_t least = UINT32_MAX, most = 0;
    memset(seen, 0, sizeof seen);
    for (uint32_t s = 0; s < n_shards; s++) {
        uint32_t n = count_shard(path, s, n_shards, seen);
        least = n < least ? n : least;
        most = n > most ? n : most;
    }
    for (uint32_t i = 0; i < rows; i++)
        assert_int_equal(seen[i], 2);
    if (even)
        assert_true(most <= least + least / 4);
}

static void small_files_are_shared_evenly(void **state)
{
    (void)state;
    write_rows("a.txt", FILE_ROWS, 0, 0);
    write_rows("a.txt.gz", FILE_ROWS, 0, 0);
    write_rows("some.txt", 2000, 0, 0);
    write_rows("three.txt", 3, 0, 0);
    for (uint32_t n_shards = 2; n_shards <= 5; n_shards++) {
        check_file(in_folder("a.txt"), FILE_ROWS, n_shards, true);
        check_file(in_folder("some.txt"), 2000, n_shards, true);
        check_file(in_folder("three.txt"), 3, n_shards, false);
    }
    check_file(in_folder("a.txt.gz"), FILE_ROWS, 4, true);
}

/* Records longer than a block, and buffers that grew for them and are used again, move no cut. */
static void long_records_are_shared(void **state)
{
    (void)state;
    write_rows("long.txt", 6000, 500, 20000);
    for (uint32_t n_shards = 2; n_shards <= 4; n_shards++)
        check_file(in_folder("long.txt"), 6000, n_shards, false);
}

/* The file as one block is the file in small blocks. */
static void dealing_loses_nothing(void **state)
{
    (void)state;
    static uint8_t seen[FILE_ROWS + 1];
    const char *path = write_rows("whole.txt", 3000, 0, 0);
    assert_int_equal(count_shard(path, 0, 1, seen), 3000);
    check_file(path, 3000, 3, true);
}

static void what_is_read_once_is_not_dealt(void **state)
{
    (void)state;
    mst_feed *feed = NULL;
    mst_feed_options o = options_of(1, 0);
    data_options.format = "libsvm";
    mst_dataset *d = open_file("/dev/null");
    data_options.format = NULL;
    o.n_shards = 2;
    assert_int_equal(mst_feed_new(d, &o, &feed), MST_EUSAGE);
    assert_string_equal(
        mst_error_text(),
        "/dev/null can be read only once, so it cannot be dealt to 2 workers; give a file, or use --cache");
    mst_dataset_destroy(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_make_an_epoch),
        cmocka_unit_test(chunks_are_dealt_in_order),
        cmocka_unit_test(shards_have_ranges),
        cmocka_unit_test(others_blocks_are_not_parsed),
        cmocka_unit_test(refused),
        cmocka_unit_test(rows_are_numbered_in_the_share),
        cmocka_unit_test(small_files_are_shared_evenly),
        cmocka_unit_test(long_records_are_shared),
        cmocka_unit_test(dealing_loses_nothing),
        cmocka_unit_test(what_is_read_once_is_not_dealt),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
