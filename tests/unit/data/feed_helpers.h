/* Shared by the tests of the feed: takes and compares the rows of an epoch by number. */
#ifndef TESTS_FEED_HELPERS_H
#define TESTS_FEED_HELPERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "data/feed.h"
#include "fake_dataset.h"

#define MAX_ROWS 3000

/* An epoch's rows in order, by number. */
typedef struct sequence {
    uint32_t rows[MAX_ROWS];
    uint32_t n;
} sequence;

static inline uint32_t number_of(const mst_row *row)
{
    assert_int_equal(row->n_keys, 1);
    assert_true(row->keys[0] >= FAKE_KEY);
    return row->keys[0] - FAKE_KEY;
}

/* Takes until the end or a failure, lanes in turn, sizes 1..max_take in turn (0 < fixed: always that many).
 */
static inline mst_status take_all(mst_feed *feed, const mst_feed_options *o, uint32_t fixed, uint64_t start,
                                  sequence *out)
{
    out->n = 0;
    for (uint32_t turn = 0;; turn++) {
        mst_batch batch;
        uint64_t position;
        uint32_t want = fixed ? fixed : 1 + turn * 7 % o->max_take;
        TRY(mst_feed_take(feed, turn % o->n_lanes, want, &batch, &position));
        if (batch.n_rows == 0)
            return MST_OK;
        assert_int_equal(position, start + out->n);
        assert_true(batch.n_rows <= want);
        for (uint32_t i = 0; i < batch.n_rows; i++) {
            assert_true(out->n < MAX_ROWS);
            uint32_t row = number_of(&batch.rows[i]);
            assert_true(batch.rows[i].label == (float)(row % 2) && batch.rows[i].weight == 1.0f);
            out->rows[out->n++] = row;
        }
    }
}

/* Lanes make the windows, not a thread of the feed. */
static bool lanes_prepare;

static inline int with_lanes_that_prepare(void **state)
{
    (void)state;
    lanes_prepare = true;
    return 0;
}

static inline mst_feed_options options_of(uint64_t seed, uint64_t shuffle_rows)
{
    return (mst_feed_options){.seed = seed,
                              .valid_seed = seed,
                              .shuffle_rows = shuffle_rows,
                              .prefetch_threads = 1,
                              .lanes_prepare = lanes_prepare,
                              .n_lanes = 1,
                              .max_take = 100};
}

static inline mst_feed *feed_new(fake_dataset *d, const mst_feed_options *o)
{
    mst_feed *feed = NULL;
    assert_int_equal(mst_feed_new(&d->base, o, &feed), MST_OK);
    return feed;
}

/* One epoch of a fresh feed. */
static inline void epoch_of(fake_dataset *d, const mst_feed_options *o, uint64_t epoch, uint64_t position,
                            sequence *out)
{
    mst_feed *feed = feed_new(d, o);
    if (!d->base.random)
        fake_rewind(&d->base);
    assert_int_equal(mst_feed_start(feed, epoch, position), MST_OK);
    assert_int_equal(take_all(feed, o, 0, position, out), MST_OK);
    mst_feed_destroy(feed);
}

static inline void assert_same(const sequence *a, const sequence *b)
{
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->rows, b->rows, a->n * sizeof *a->rows);
}

static inline bool same(const sequence *a, const sequence *b)
{
    return a->n == b->n && memcmp(a->rows, b->rows, a->n * sizeof *a->rows) == 0;
}

/* seen[row] += 1 for every row. */
static inline void count(const sequence *s, uint8_t *seen)
{
    for (uint32_t i = 0; i < s->n; i++)
        seen[s->rows[i]]++;
}

static inline void assert_once(const sequence *s, uint64_t n_rows)
{
    uint8_t seen[MAX_ROWS] = {0};
    assert_int_equal(s->n, n_rows);
    count(s, seen);
    for (uint64_t i = 0; i < n_rows; i++)
        assert_int_equal(seen[i], 1);
}

#endif
