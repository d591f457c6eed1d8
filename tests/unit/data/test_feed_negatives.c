/* Negative down-sampling in the feed: all positive rows and the same negatives, whatever the kind of dataset,
 * the order, the threads and the shards; positions and epochs count kept rows. */
#include "feed_helpers.h"

#define ROWS 2000

static int compare_rows(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void sorted_epoch(fake_kind kind, mst_feed_options o, uint64_t epoch, sequence *out)
{
    fake_dataset *d = fake_new(kind, ROWS, 64, NULL, NULL);
    epoch_of(d, &o, epoch, 0, out);
    qsort(out->rows, out->n, sizeof *out->rows, compare_rows);
    mst_dataset_destroy(&d->base);
}

static mst_feed_options sampled(uint64_t seed, uint64_t shuffle_rows, double share)
{
    mst_feed_options o = options_of(seed, shuffle_rows);
    o.keep_negatives = share;
    return o;
}

static void same_rows_everywhere(void **state)
{
    (void)state;
    sequence first, s;
    sorted_epoch(FAKE_CHEAP, sampled(7, 0, 0.25), 0, &first);
    uint32_t positives = 0;
    for (uint32_t i = 0; i < first.n; i++)
        positives += first.rows[i] % 2;
    assert_int_equal(positives, ROWS / 2);
    assert_true(first.n - positives > 200 && first.n - positives < 300); /* of 1000: 250, deviation 14 */
    for (int kind = 0; kind < FAKE_KINDS; kind++)
        for (uint64_t epoch = 0; epoch < 2; epoch++)
            for (unsigned threads = 1; threads <= 4; threads += 3) {
                mst_feed_options o = sampled(7, 300, 0.25);
                o.prefetch_threads = threads;
                o.n_lanes = threads;
                sorted_epoch((fake_kind)kind, o, epoch, &s);
                assert_int_equal(s.n, first.n);
                assert_memory_equal(s.rows, first.rows, s.n * sizeof *s.rows);
            }
    sorted_epoch(FAKE_CHEAP, sampled(8, 0, 0.25), 0, &s); /* another seed, other rows */
    assert_true(s.n != first.n || memcmp(s.rows, first.rows, s.n * sizeof *s.rows) != 0);
    for (int all = 0; all < 2; all++) {
        sorted_epoch(FAKE_STREAM, sampled(7, 0, all), 0, &s);
        assert_int_equal(s.n, ROWS);
    }
}

static void shards_share_the_kept_rows(void **state)
{
    (void)state;
    sequence whole, part;
    sequence *all = calloc(1, sizeof *all);
    sorted_epoch(FAKE_COSTLY, sampled(3, 100, 0.5), 1, &whole);
    for (uint32_t shard = 0; shard < 3; shard++) {
        mst_feed_options o = sampled(3, 100, 0.5);
        o.n_shards = 3;
        o.shard = shard;
        sorted_epoch(FAKE_COSTLY, o, 1, &part);
        memcpy(all->rows + all->n, part.rows, part.n * sizeof *part.rows);
        all->n += part.n;
    }
    qsort(all->rows, all->n, sizeof *all->rows, compare_rows);
    assert_int_equal(all->n, whole.n);
    assert_memory_equal(all->rows, whole.rows, whole.n * sizeof *whole.rows);
    free(all);
}

/* A start in the middle continues the epoch; held-out rows are not sampled. */
static void positions_count_kept_rows(void **state)
{
    (void)state;
    sequence *whole = calloc(1, sizeof *whole), *rest = calloc(1, sizeof *rest);
    for (int kind = 0; kind < FAKE_KINDS; kind++) {
        mst_feed_options o = sampled(5, 150, 0.4);
        fake_dataset *d = fake_new((fake_kind)kind, ROWS, 64, NULL, NULL);
        o.keep = MST_KEEP_TRAINING;
        o.held_out = 0.2;
        epoch_of(d, &o, 1, 0, whole);
        epoch_of(d, &o, 1, 700, rest);
        assert_int_equal(rest->n, whole->n - 700);
        assert_memory_equal(rest->rows, whole->rows + 700, rest->n * sizeof *rest->rows);
        mst_feed *feed = feed_new(d, &o);
        if (d->base.random)
            assert_int_equal(mst_feed_epoch_rows(feed), whole->n);
        mst_feed_destroy(feed);
        o.keep = MST_KEEP_HELD_OUT;
        o.keep_negatives = 0.0;
        epoch_of(d, &o, 1, 0, rest);
        assert_true(rest->n > 320 && rest->n < 480);
        mst_dataset_destroy(&d->base);
    }
    free(whole);
    free(rest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_rows_everywhere),
        cmocka_unit_test(shards_share_the_kept_rows),
        cmocka_unit_test(positions_count_kept_rows),
    };
    int failed = cmocka_run_group_tests_name("window thread", tests, NULL, NULL);
    return failed + cmocka_run_group_tests_name("lanes prepare", tests, with_lanes_that_prepare, NULL);
}
