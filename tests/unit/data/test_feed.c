/* The feed: every row once per epoch, an order that depends on the seed alone, epochs entered in the middle,
 * held-out rows, failures after the rows before them, and leaving at any time. */
#include <dirent.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "data/cache.h"
#include "data/write.h"
#include "unit/data/feed_helpers.h"

/* ---- order ---- */

static void every_row_once(void **state)
{
    (void)state;
    static const uint64_t rows[] = {0, 1, 2, 16, 17, 100, 999}, windows[] = {0, 1, 10, 64, 1000, 1 << 20};
    static sequence s;
    for (int kind = 0; kind < FAKE_KINDS; kind++)
        for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
            for (size_t w = 0; w < sizeof windows / sizeof *windows; w++) {
                fake_dataset *d = fake_new((fake_kind)kind, rows[r], 16, NULL, NULL);
                mst_feed_options o = options_of(r * 7 + w, windows[w]);
                o.n_lanes = 1 + (unsigned)(w % 3);
                o.max_take = w % 2 ? 5 : 300;
                o.prefetch_threads = 1 + (unsigned)(r % 3);
                mst_feed *feed = feed_new(d, &o);
                for (uint64_t epoch = 0; epoch < 3; epoch++) {
                    assert_int_equal(mst_feed_start(feed, epoch, 0), MST_OK);
                    assert_int_equal(take_all(feed, &o, 0, 0, &s), MST_OK);
                    assert_once(&s, rows[r]);
                    assert_int_equal(mst_feed_epoch_rows(feed), rows[r]);
                    if (windows[w] == 0)
                        for (uint32_t i = 0; i < s.n; i++)
                            assert_int_equal(s.rows[i], i);
                }
                assert_true(mst_feed_wait_seconds(feed) >= 0.0);
                mst_feed_destroy(feed);
                mst_dataset_destroy(&d->base);
            }
}

static void order_is_the_seeds_alone(void **state)
{
    (void)state;
    static sequence first, other, random;
    for (int kind = 0; kind < FAKE_KINDS; kind++) {
        fake_dataset *d = fake_new((fake_kind)kind, 700, 16, NULL, NULL);
        mst_feed_options o = options_of(5, 100);
        epoch_of(d, &o, 3, 0, &first);
        if (kind == FAKE_CHEAP)
            random = first;
        if (kind == FAKE_COSTLY)
            assert_same(&first, &random); /* how chunks are loaded does not matter either */
        for (unsigned lanes = 1; lanes <= 4; lanes++)
            for (unsigned threads = 1; threads <= 3; threads++) {
                o.n_lanes = lanes;
                o.prefetch_threads = threads;
                o.max_take = 1 + lanes * threads * 13;
                epoch_of(d, &o, 3, 0, &other);
                assert_same(&first, &other);
            }
        o = options_of(5, 100);
        epoch_of(d, &o, 4, 0, &other);
        assert_false(same(&first, &other));
        o = options_of(6, 100);
        epoch_of(d, &o, 3, 0, &other);
        assert_false(same(&first, &other));
        mst_dataset_destroy(&d->base);
    }
}

/* An epoch in the middle of which another was started is not changed by that. */
static void restart_changes_nothing(void **state)
{
    (void)state;
    static sequence want, got;
    for (int kind = 0; kind < FAKE_KINDS; kind++) {
        fake_dataset *d = fake_new((fake_kind)kind, 900, 16, NULL, NULL);
        mst_feed_options o = options_of(1, 50);
        o.prefetch_threads = 2;
        epoch_of(d, &o, 7, 0, &want);
        mst_feed *feed = feed_new(d, &o);
        fake_rewind(&d->base);
        for (uint32_t taken = 0; taken < 400; taken += 90) {
            mst_batch batch;
            uint64_t position;
            assert_int_equal(mst_feed_start(feed, taken, 0), MST_OK);
            for (uint32_t i = 0; i < taken; i += 30)
                assert_int_equal(mst_feed_take(feed, 0, 30, &batch, &position), MST_OK);
        }
        assert_int_equal(mst_feed_start(feed, 7, 0), MST_OK);
        assert_int_equal(take_all(feed, &o, 0, 0, &got), MST_OK);
        assert_same(&want, &got);
        mst_feed_destroy(feed);
        mst_dataset_destroy(&d->base);
    }
}

static void start_in_the_middle(void **state)
{
    (void)state;
    static sequence whole, tail;
    for (int kind = 0; kind < FAKE_KINDS; kind++)
        for (int held = 0; held < 2; held++) {
            fake_dataset *d = fake_new((fake_kind)kind, 500, 16, NULL, NULL);
            mst_feed_options o = options_of(9, 64);
            o.held_out = 0.3;
            o.keep = held ? MST_KEEP_TRAINING : MST_KEEP_ALL;
            epoch_of(d, &o, 2, 0, &whole);
            for (uint32_t position = 0; position <= whole.n; position += position < 70 ? 1 : 53) {
                epoch_of(d, &o, 2, position, &tail);
                assert_int_equal(tail.n, whole.n - position);
                assert_memory_equal(tail.rows, whole.rows + position, tail.n * sizeof *tail.rows);
            }
            epoch_of(d, &o, 2, whole.n + 10, &tail);
            assert_int_equal(tail.n, 0);
            mst_dataset_destroy(&d->base);
        }
}

/* ---- which rows ---- */

static void held_out_rows(void **state)
{
    (void)state;
    static sequence training, held, again;
    for (int kind = 0; kind < FAKE_KINDS; kind++) {
        uint8_t seen[MAX_ROWS] = {0};
        fake_dataset *d = fake_new((fake_kind)kind, 2000, 64, NULL, NULL);
        mst_feed_options o = options_of(11, 300);
        o.held_out = 0.2;
        o.keep = MST_KEEP_TRAINING;
        epoch_of(d, &o, 0, 0, &training);
        o.keep = MST_KEEP_HELD_OUT;
        o.shuffle_rows = 0;
        epoch_of(d, &o, 0, 0, &held);
        count(&training, seen);
        count(&held, seen);
        for (uint32_t i = 0; i < 2000; i++)
            assert_int_equal(seen[i], 1);
        assert_true(held.n > 320 && held.n < 480);
        epoch_of(d, &o, 5, 0, &again); /* the same rows in every epoch */
        assert_same(&held, &again);
        mst_feed *feed = feed_new(d, &o);
        assert_int_equal(mst_feed_epoch_rows(feed), kind == FAKE_STREAM ? 0 : held.n);
        mst_feed_destroy(feed);
        mst_dataset_destroy(&d->base);
    }
}

static void first_rows_only(void **state)
{
    (void)state;
    static sequence whole, some;
    for (int kind = 0; kind < FAKE_KINDS; kind++) {
        fake_dataset *d = fake_new((fake_kind)kind, 800, 16, NULL, NULL);
        mst_feed_options o = options_of(2, 90);
        o.prefetch_threads = 2;
        epoch_of(d, &o, 1, 0, &whole);
        static const uint64_t limits[] = {1, 15, 16, 17, 90, 200, 799, 800, 5000};
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
            o.first_rows = limits[i];
            mst_feed *feed = feed_new(d, &o);
            fake_rewind(&d->base);
            for (int round = 0; round < 3; round++) {
                assert_int_equal(mst_feed_start(feed, 1, 0), MST_OK);
                assert_int_equal(take_all(feed, &o, 0, 0, &some), MST_OK);
                assert_int_equal(some.n, limits[i] < 800 ? limits[i] : 800);
                assert_memory_equal(some.rows, whole.rows, some.n * sizeof *some.rows);
                assert_int_equal(mst_feed_epoch_rows(feed), some.n);
            }
            mst_feed_destroy(feed);
        }
        mst_dataset_destroy(&d->base);
    }
}

/* ---- lanes as threads ---- */

typedef struct crew {
    mst_feed *feed;
    atomic_uchar seen[MAX_ROWS];
    atomic_uint next_lane;
} crew;

static void *crew_main(void *arg)
{
    crew *c = arg;
    unsigned lane = atomic_fetch_add(&c->next_lane, 1);
    for (uint32_t turn = 0;; turn++) {
        mst_batch batch;
        uint64_t position;
        if (mst_feed_take(c->feed, lane, 1 + (turn * 5 + lane) % 40, &batch, &position) != MST_OK ||
            batch.n_rows == 0)
            return NULL;
        for (uint32_t i = 0; i < batch.n_rows; i++)
            atomic_fetch_add(&c->seen[batch.rows[i].keys[0] - FAKE_KEY], 1);
    }
}

static void threads_share_an_epoch(void **state)
{
    (void)state;
    for (int turn = 0; turn < FAKE_KINDS + 2; turn++) { /* the last two: lanes parse a stream */
        fake_kind kind = turn < FAKE_KINDS ? (fake_kind)turn : FAKE_STREAM;
        fake_dataset *d = fake_new(kind, MAX_ROWS, turn < FAKE_KINDS ? 64 : 8, NULL, NULL);
        mst_feed_options o = options_of(3, 200);
        o.n_lanes = 4;
        o.prefetch_threads = turn > FAKE_KINDS && lanes_prepare ? 0 : 2;
        d->base.read_is_cheap = turn >= FAKE_KINDS;
        mst_feed *feed = feed_new(d, &o);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            pthread_t threads[4];
            crew c = {.feed = feed};
            assert_int_equal(mst_feed_start(feed, epoch, 0), MST_OK);
            for (int t = 0; t < 4; t++)
                assert_int_equal(pthread_create(&threads[t], NULL, crew_main, &c), 0);
            for (int t = 0; t < 4; t++)
                pthread_join(threads[t], NULL);
            for (uint32_t i = 0; i < MAX_ROWS; i++)
                assert_int_equal(atomic_load(&c.seen[i]), 1);
        }
        mst_feed_destroy(feed);
        mst_dataset_destroy(&d->base);
    }
}

/* A lane that parses needs no other thread, and the rows, failures included, are those that threads would
 * make. */
static void a_lane_parses_alone(void **state)
{
    (void)state;
    for (uint64_t shuffle = 0; shuffle <= 200; shuffle += 200) {
        for (uint32_t broken = 5; broken <= 100; broken += 95) { /* there is no chunk 100 */
            sequence made[2];
            mst_status ends[2];
            for (int alone = 0; alone < 2; alone++) {
                fake_dataset *d = fake_new(FAKE_STREAM, 1000, 16, NULL, NULL);
                mst_feed_options o = options_of(5, shuffle);
                d->base.read_is_cheap = alone;
                d->fail_chunk = broken;
                o.lanes_prepare = alone;
                o.prefetch_threads = !alone;
                mst_feed *feed = feed_new(d, &o);
                assert_int_equal(mst_feed_start(feed, 1, 0), MST_OK);
                ends[alone] = take_all(feed, &o, 0, 0, &made[alone]);
                mst_feed_destroy(feed);
                mst_dataset_destroy(&d->base);
            }
            assert_int_equal(ends[0], broken == 5 ? MST_EINPUT : MST_OK);
            assert_int_equal(ends[1], ends[0]);
            assert_int_equal(made[1].n, made[0].n);
            assert_memory_equal(made[1].rows, made[0].rows, made[0].n * sizeof made[0].rows[0]);
        }
    }
}

/* Rows stay as they are until the lane's next take, whatever the others do. */
static void rows_stay_valid(void **state)
{
    (void)state;
    static sequence s;
    fake_dataset *d = fake_new(FAKE_STREAM, 600, 16, NULL, NULL);
    mst_feed_options o = options_of(3, 32);
    o.n_lanes = 2;
    mst_feed *feed = feed_new(d, &o);
    mst_batch held;
    uint64_t position;
    uint32_t numbers[50];
    assert_int_equal(mst_feed_start(feed, 0, 0), MST_OK);
    assert_int_equal(mst_feed_take(feed, 1, 50, &held, &position), MST_OK);
    assert_int_equal(held.n_rows, 50);
    for (uint32_t i = 0; i < 50; i++)
        numbers[i] = number_of(&held.rows[i]);
    o.n_lanes = 1;
    assert_int_equal(take_all(feed, &o, 0, 50, &s), MST_OK);
    assert_int_equal(s.n, 550);
    for (uint32_t i = 0; i < 50; i++)
        assert_int_equal(number_of(&held.rows[i]), numbers[i]);
    mst_feed_destroy(feed);
    mst_dataset_destroy(&d->base);
}

/* Claimed rows filled in parts, in any order, are the rows that take gives. */
static void claim_and_fill_is_take(void **state)
{
    (void)state;
    static sequence want, got;
    for (int kind = 0; kind < FAKE_KINDS; kind++) {
        fake_dataset *d = fake_new((fake_kind)kind, 700, 16, NULL, NULL);
        mst_feed_options o = options_of(6, 40);
        epoch_of(d, &o, 0, 0, &want);
        mst_feed *feed = feed_new(d, &o);
        fake_rewind(&d->base);
        assert_int_equal(mst_feed_start(feed, 0, 0), MST_OK);
        got.n = 0;
        for (uint32_t turn = 0;; turn++) {
            mst_batch batch;
            uint64_t position;
            assert_int_equal(mst_feed_claim(feed, 0, 1 + turn * 29 % 100, &batch, &position), MST_OK);
            if (batch.n_rows == 0)
                break;
            assert_int_equal(position, got.n);
            uint32_t a = batch.n_rows / 3, b = batch.n_rows * 2 / 3;
            mst_feed_fill(feed, 0, b, batch.n_rows);
            mst_feed_fill(feed, 0, 0, a);
            mst_feed_fill(feed, 0, a, b);
            mst_feed_fill(feed, 0, a, a);
            for (uint32_t i = 0; i < batch.n_rows; i++)
                got.rows[got.n++] = number_of(&batch.rows[i]);
        }
        assert_same(&want, &got);
        mst_feed_destroy(feed);
        mst_dataset_destroy(&d->base);
    }
}

/* ---- failures ---- */

/* A claim of several steps ends with the last whole step before the failure, which the next claim gets. */
static void units_before_a_failure(void **state)
{
    (void)state;
    for (int kind = FAKE_CHEAP; kind <= FAKE_STREAM; kind++)
        for (uint32_t unit = 10; unit <= 100; unit += 90) {
            fake_dataset *d = fake_new((fake_kind)kind, 1000, 16, NULL, NULL);
            d->fail_chunk = 3;
            mst_feed_options o = options_of(3, 0);
            mst_feed *feed = feed_new(d, &o);
            mst_batch batch = {0};
            uint64_t position;
            bool more = false;
            assert_int_equal(mst_feed_start(feed, 0, 0), MST_OK);
            mst_status st = mst_feed_claim_by(feed, 0, 100, unit, UINT64_MAX, &batch, &position, &more);
            if (unit == 10) { /* of 48 good rows, 41 of the stream */
                assert_int_equal(st, MST_OK);
                assert_int_equal(batch.n_rows, 40);
                assert_int_equal(mst_feed_fill(feed, 0, 0, 40), MST_OK);
                assert_true(more && position == 0 && number_of(&batch.rows[39]) == 39);
                st = mst_feed_claim_by(feed, 0, 100, unit, UINT64_MAX, &batch, &position, &more);
            }
            assert_int_equal(st, MST_EINPUT);
            mst_feed_destroy(feed);
            mst_dataset_destroy(&d->base);
        }
}

/* The rows before a broken chunk all come, then its sentence, again and again until the next start. */
static void failures_come_after_good_rows(void **state)
{
    (void)state;
    static sequence s;
    for (int round = 0; round < 40; round++)
        for (int kind = 0; kind < FAKE_KINDS; kind++)
            for (int in_read = 0; in_read < 2; in_read++) {
                fake_dataset *d = fake_new((fake_kind)kind, 400, 16, NULL, NULL);
                mst_feed_options o = options_of(4, round % 2 ? 0 : 50);
                o.prefetch_threads = 1 + (unsigned)(round % 3);
                d->fail_chunk = 10;
                d->fail_in_read = in_read != 0;
                mst_feed *feed = feed_new(d, &o);
                assert_int_equal(mst_feed_start(feed, 0, 0), MST_OK);
                mst_status st = take_all(feed, &o, 1, 0, &s);
                bool reading = kind == FAKE_STREAM && in_read;
                assert_int_equal(st, reading ? MST_EIO : MST_EINPUT);
                const char *want =
                    reading ? "fake.data: cannot read block 10" : "fake.data: chunk 10 is broken";
                assert_string_equal(mst_error_text(), want);
                if (kind == FAKE_STREAM) {
                    assert_int_equal(s.n, 107); /* blocks 0 to 9: 16 9 16 0 9 16 16 9 0 16 */
                } else if (o.shuffle_rows == 0) {
                    assert_int_equal(s.n, 160);
                    for (uint32_t i = 0; i < s.n; i++)
                        assert_int_equal(s.rows[i], i);
                } else {
                    assert_int_equal(s.n % 16, 0); /* whole chunks in an order of the seed's */
                }
                mst_batch batch;
                uint64_t position;
                assert_int_equal(mst_feed_take(feed, 0, 1, &batch, &position), st);
                assert_string_equal(mst_error_text(), want);
                d->fail_chunk = UINT32_MAX;
                assert_int_equal(mst_feed_start(feed, 1, 0), MST_OK);
                assert_int_equal(take_all(feed, &o, 0, 0, &s), MST_OK);
                assert_once(&s, 400);
                mst_feed_destroy(feed);
                mst_dataset_destroy(&d->base);
            }
}

typedef struct odd_row {
    uint64_t row;
    uint32_t key;
    float label;
} odd_row;

/* Plain rows but for one. */
static mst_status make_odd(void *arg, uint64_t row, mst_chunk_builder *builder)
{
    const odd_row *odd = arg;
    if (row != odd->row)
        return fake_plain_row(NULL, row, builder);
    TRY(mst_chunk_builder_room(builder, 1));
    mst_chunk_builder_add(builder, odd->key, 1.0f);
    return mst_chunk_builder_end_row(builder, odd->label, 1.0f);
}

/* Row i has the features 0 to 4, and 5 to i % 3 + 4 as well. */
static mst_status make_widening(void *arg, uint64_t row, mst_chunk_builder *builder)
{
    (void)arg;
    TRY(mst_chunk_builder_room(builder, 8));
    for (uint32_t k = 0; k < 5 + row % 3; k++)
        mst_chunk_builder_add(builder, k, (float)(k + 1));
    return mst_chunk_builder_end_row(builder, 0.0f, 1.0f);
}

static void unseen_features_are_left_out(void **state)
{
    (void)state;
    for (int kind = 0; kind < FAKE_KINDS; kind++)
        for (uint64_t features = 1; features < 9; features++) { /* beyond the dense prefix, and within */
            fake_dataset *d = fake_new((fake_kind)kind, 90, 10, make_widening, NULL);
            mst_feed_options o = options_of(1, 0);
            o.features = features;
            o.drop_unseen = true;
            mst_feed *feed = feed_new(d, &o);
            mst_batch batch;
            uint64_t position, unseen = 0;
            assert_int_equal(mst_feed_start(feed, 0, 0), MST_OK);
            do {
                assert_int_equal(mst_feed_take(feed, 0, 7, &batch, &position), MST_OK);
                for (uint32_t i = 0; i < batch.n_rows; i++) {
                    const mst_row *row = &batch.rows[i];
                    uint64_t has = 5 + (position + i) % 3, kept = has < features ? has : features;
                    assert_int_equal(row->n_dense + row->n_keys, kept);
                    for (uint32_t k = 0; k < row->n_keys; k++)
                        assert_true(row->keys[k] == row->n_dense + k &&
                                    row->values[k] == (float)(row->keys[k] + 1));
                    unseen += has > features;
                }
                assert_int_equal(mst_feed_unseen(feed), unseen);
            } while (batch.n_rows > 0);
            mst_feed_destroy(feed);
            mst_dataset_destroy(&d->base);
        }
}

static void check_odd(const odd_row *odd, uint64_t features, uint32_t classes, const char *sentence)
{
    static sequence s;
    for (int kind = 0; kind < FAKE_KINDS; kind++) {
        odd_row copy = *odd;
        fake_dataset *d = fake_new((fake_kind)kind, 100, 10, make_odd, &copy);
        mst_feed_options o = options_of(1, 0);
        o.features = features;
        o.classes = classes;
        mst_feed *feed = feed_new(d, &o);
        assert_int_equal(mst_feed_start(feed, 0, 0), MST_OK);
        mst_batch batch = {.n_rows = 1};
        uint64_t position;
        mst_status st = MST_OK;
        for (s.n = 0; st == MST_OK && batch.n_rows != 0; s.n++)
            st = mst_feed_take(feed, 0, 1, &batch, &position);
        if (sentence == NULL) {
            assert_int_equal(st, MST_OK);
        } else {
            assert_int_equal(st, MST_EINPUT);
            assert_string_equal(mst_error_text(), sentence);
        }
        mst_feed_destroy(feed);
        mst_dataset_destroy(&d->base);
    }
}

static void rows_are_checked(void **state)
{
    (void)state;
    check_odd(&(odd_row){57, 5000, 1}, 5001, 2, NULL);
    check_odd(&(odd_row){57, 5000, 1}, 0, 2, NULL);
    check_odd(&(odd_row){57, 5000, 1}, 5000, 2,
              "fake.data: row 58 has feature 5000, but the model has features 0 to 4999; start a new "
              "training with a larger --features");
    check_odd(&(odd_row){57, FAKE_KEY, 7}, 0, 0, NULL);
    check_odd(&(odd_row){57, FAKE_KEY, -1}, 0, 2, NULL);
    check_odd(&(odd_row){57, FAKE_KEY, 2}, 0, 2,
              "fake.data: row 58 has label 2, which is not -1, 0 or 1; more classes need --classes 3 or "
              "more, and --model softmax or a net");
    check_odd(&(odd_row){57, FAKE_KEY, 0.5f}, 0, 2,
              "fake.data: row 58 has label 0.5, which is not -1, 0 or 1; classes are whole numbers");
    check_odd(&(odd_row){99, FAKE_KEY, NAN}, 0, 2,
              "fake.data: row 100 has label nan, which is not -1, 0 or 1; classes are whole numbers");
    check_odd(&(odd_row){0, FAKE_KEY, 9}, 0, 10, NULL);
    check_odd(
        &(odd_row){0, FAKE_KEY, 10}, 0, 10,
        "fake.data: row 1 has label 10, which is not a class from 0 to 9; more classes need --classes 11 or "
        "more");
    check_odd(&(odd_row){0, FAKE_KEY, -1}, 0, 10,
              "fake.data: row 1 has label -1, which is not a class from 0 to 9");
    check_odd(&(odd_row){0, FAKE_KEY, 1.5f}, 0, 10,
              "fake.data: row 1 has label 1.5, which is not a class from 0 to 9; classes are whole numbers");
}

/* A set stop flag ends a take that would wait, and only that. */
static void stop_ends_waiting(void **state)
{
    (void)state;
    atomic_bool stop = false;
    fake_dataset *d = fake_new(FAKE_STREAM, 100, 10, NULL, NULL);
    mst_feed_options o = options_of(1, 0);
    o.stop = &stop;
    d->block_chunk = 2;
    mst_feed *feed = feed_new(d, &o);
    mst_batch batch;
    uint64_t position, begun = mst_now_ns();
    assert_int_equal(mst_feed_start(feed, 0, 0), MST_OK);
    atomic_store(&stop, true);
    /* blocks 0 and 1 hold 16 rows; they may have come before the flag was looked at, or not */
    mst_status st;
    uint32_t n = 0;
    while ((st = mst_feed_take(feed, 0, 1, &batch, &position)) == MST_OK && batch.n_rows == 1)
        n++;
    assert_int_equal(st, MST_ESTOPPED);
    assert_true(n <= 16);
    assert_string_equal(mst_error_text(), "stopped while waiting for rows of fake.data");
    assert_true(mst_seconds_since(begun) < 30.0);
    fake_open(d);
    mst_feed_destroy(feed);
    mst_dataset_destroy(&d->base);
}

/* ---- leaving ---- */

static unsigned count_threads(void)
{
    unsigned n = 0;
    DIR *folder = opendir("/proc/self/task");
    if (folder == NULL)
        return 0;
    for (struct dirent *e; (e = readdir(folder)) != NULL;)
        n += e->d_name[0] != '.';
    closedir(folder);
    return n;
}

static void leaving_leaves_nothing(void **state)
{
    (void)state;
    mst_alloc_stats before, after;
    unsigned threads = count_threads();
    mst_alloc_stats_get(&before);
    for (int kind = 0; kind < FAKE_KINDS; kind++)
        for (uint32_t taken = 0; taken < 300; taken += 37) {
            fake_dataset *d = fake_new((fake_kind)kind, 2000, 16, NULL, NULL);
            mst_feed_options o = options_of(1, taken % 2 ? 0 : 100);
            o.prefetch_threads = 3;
            o.n_lanes = 2;
            mst_feed *feed = feed_new(d, &o);
            mst_batch batch;
            uint64_t position;
            if (taken != 0)
                assert_int_equal(mst_feed_start(feed, 0, 0), MST_OK);
            for (uint32_t i = 0; i < taken; i += 10)
                assert_int_equal(mst_feed_take(feed, i / 10 % 2, 10, &batch, &position), MST_OK);
            mst_feed_destroy(feed);
            mst_dataset_destroy(&d->base);
        }
    mst_feed_destroy(NULL);
    mst_alloc_stats_get(&after);
    assert_int_equal(after.blocks, before.blocks);
    assert_int_equal(after.bytes, before.bytes);
    uint64_t begun = mst_now_ns(); /* a joined thread may still show for a moment */
    while (count_threads() != threads && mst_seconds_since(begun) < 5.0)
        sched_yield();
    assert_int_equal(count_threads(), threads);
}

/* Leaving in mid-epoch does not walk the rest of the dataset. */
static void leaving_is_quick(void **state)
{
    (void)state;
    for (int kind = 0; kind < FAKE_KINDS; kind++) {
        fake_dataset *d = fake_new((fake_kind)kind, 2000, 1, NULL, NULL);
        mst_feed_options o = options_of(1, 10);
        o.max_take = 10; /* limits the rows that are loaded ahead */
        mst_feed *feed = feed_new(d, &o);
        mst_batch batch;
        uint64_t position;
        assert_int_equal(mst_feed_start(feed, 0, 0), MST_OK);
        assert_int_equal(mst_feed_take(feed, 0, 10, &batch, &position), MST_OK);
        mst_feed_destroy(feed);
        assert_true(atomic_load(&d->loads) < 200);
        mst_dataset_destroy(&d->base);
    }
}

static void short_memory_is_reported(void **state)
{
    (void)state;
    static sequence s;
    for (int kind = 0; kind < FAKE_KINDS; kind++) {
        mst_alloc_stats before, after;
        mst_status st = MST_ENOMEM;
        mst_alloc_stats_get(&before);
        for (uint64_t k = 1; st != MST_OK; k++) {
            fake_dataset *d = fake_new((fake_kind)kind, 100, 16, NULL, NULL);
            mst_feed_options o = options_of(1, 40);
            mst_feed *feed = NULL;
            mst_alloc_fail_at(k);
            st = mst_feed_new(&d->base, &o, &feed);
            if (st == MST_OK)
                st = mst_feed_start(feed, 0, 0);
            if (st == MST_OK)
                st = take_all(feed, &o, 0, 0, &s);
            mst_alloc_fail_at(0);
            if (st == MST_OK)
                assert_once(&s, 100);
            else
                assert_int_equal(st, MST_ENOMEM);
            mst_feed_destroy(feed);
            mst_dataset_destroy(&d->base);
        }
        mst_alloc_stats_get(&after);
        assert_int_equal(after.blocks, before.blocks);
    }
}

/* ---- a real cache ---- */

static void cache_is_fed(void **state)
{
    (void)state;
    static sequence first, again;
    char folder[] = "/tmp/mst-feed-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/rows.cache", folder);
    fake_dataset *d = fake_new(FAKE_CHEAP, 2500, 500, NULL, NULL);
    mst_row_writer *writer = NULL;
    assert_int_equal(mst_row_writer_new(&mst_row_writer_cache, path, "", &writer), MST_OK);
    for (uint32_t c = 0; c < d->base.n_chunks; c++)
        assert_int_equal(mst_row_writer_add(writer, d->chunks[c]), MST_OK);
    assert_int_equal(mst_row_writer_commit(writer, NULL), MST_OK);
    mst_row_writer_destroy(writer);
    mst_dataset_destroy(&d->base);

    mst_text_list paths = {0};
    mst_dataset *cache = NULL;
    assert_int_equal(mst_text_list_add(&paths, path), MST_OK);
    assert_int_equal(mst_cache_open(&paths, &cache), MST_OK);
    mst_feed_options o = options_of(8, 1000);
    o.features = FAKE_KEY + 2500;
    o.classes = 2;
    mst_feed *feed = NULL;
    assert_int_equal(mst_feed_new(cache, &o, &feed), MST_OK);
    assert_int_equal(mst_feed_epoch_rows(feed), 2500);
    assert_int_equal(mst_feed_start(feed, 0, 0), MST_OK);
    assert_int_equal(take_all(feed, &o, 0, 0, &first), MST_OK);
    assert_once(&first, 2500);
    assert_int_equal(mst_feed_start(feed, 0, 1234), MST_OK);
    assert_int_equal(take_all(feed, &o, 0, 1234, &again), MST_OK);
    assert_memory_equal(again.rows, first.rows + 1234, again.n * sizeof *again.rows);
    mst_feed_destroy(feed);
    mst_dataset_destroy(cache);
    mst_text_list_fini(&paths);
    assert_int_equal(mst_remove_tree(folder), MST_OK);
}

/* A live stream of chunks of 16, 9, and then, not there yet, 16 and 7 rows: rows come as they are there, and
 * no thread waits beyond the deadline. */
static void live_rows_come_as_they_are_there(void **state)
{
    (void)state;
    fake_dataset *d = fake_new(FAKE_STREAM, 48, 16, NULL, NULL);
    d->base.live = true;
    d->block_chunk = 2;
    mst_feed_options o = options_of(1, 0);
    o.n_lanes = 1;
    o.max_take = 100;
    mst_feed *feed = feed_new(d, &o);
    mst_batch batch;
    uint64_t position;
    bool more;
    assert_int_equal(mst_feed_start(feed, 0, 0), MST_OK);
    /* a unit is waited for, over as many chunks as it takes */
    assert_int_equal(mst_feed_claim_by(feed, 0, 20, 20, UINT64_MAX, &batch, &position, &more), MST_OK);
    assert_int_equal(batch.n_rows, 20);
    assert_true(more);
    assert_int_equal(mst_feed_fill(feed, 0, 0, 20), MST_OK);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(number_of(&batch.rows[i]), i);
    /* of what is there, whole units */
    assert_int_equal(mst_feed_claim_by(feed, 0, 100, 2, UINT64_MAX, &batch, &position, &more), MST_OK);
    assert_int_equal(batch.n_rows, 4);
    assert_int_equal(position, 20);
    /* one row is less than a unit: none by the deadline, and it after a pause */
    assert_int_equal(mst_feed_claim_by(feed, 0, 100, 100, mst_now_ns(), &batch, &position, &more), MST_OK);
    assert_true(batch.n_rows <= 1); /* 1: a second has passed since it came */
    assert_true(more);
    if (batch.n_rows == 0) {
        assert_int_equal(mst_feed_claim_by(feed, 0, 100, 100, UINT64_MAX, &batch, &position, &more), MST_OK);
        assert_int_equal(batch.n_rows, 1);
    }
    assert_false(mst_feed_ready(feed, 1));
    assert_int_equal(mst_feed_claim_by(feed, 0, 1, 1, mst_now_ns(), &batch, &position, &more), MST_OK);
    assert_int_equal(batch.n_rows, 0);
    assert_true(more);
    fake_open(d);
    assert_int_equal(mst_feed_claim_by(feed, 0, 16, 16, UINT64_MAX, &batch, &position, &more), MST_OK);
    assert_int_equal(batch.n_rows, 16);
    assert_int_equal(position, 25);
    assert_int_equal(mst_feed_claim_by(feed, 0, 16, 16, UINT64_MAX, &batch, &position, &more), MST_OK);
    assert_int_equal(batch.n_rows, 7);
    assert_int_equal(mst_feed_claim_by(feed, 0, 16, 16, UINT64_MAX, &batch, &position, &more), MST_OK);
    assert_int_equal(batch.n_rows, 0);
    assert_false(more);
    assert_true(mst_feed_ready(feed, 16));
    mst_feed_destroy(feed);
    mst_dataset_destroy(&d->base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(live_rows_come_as_they_are_there),
        cmocka_unit_test(every_row_once),
        cmocka_unit_test(order_is_the_seeds_alone),
        cmocka_unit_test(restart_changes_nothing),
        cmocka_unit_test(start_in_the_middle),
        cmocka_unit_test(held_out_rows),
        cmocka_unit_test(first_rows_only),
        cmocka_unit_test(threads_share_an_epoch),
        cmocka_unit_test(a_lane_parses_alone),
        cmocka_unit_test(rows_stay_valid),
        cmocka_unit_test(claim_and_fill_is_take),
        cmocka_unit_test(units_before_a_failure),
        cmocka_unit_test(failures_come_after_good_rows),
        cmocka_unit_test(rows_are_checked),
        cmocka_unit_test(unseen_features_are_left_out),
        cmocka_unit_test(stop_ends_waiting),
        cmocka_unit_test(leaving_leaves_nothing),
        cmocka_unit_test(leaving_is_quick),
        cmocka_unit_test(short_memory_is_reported),
        cmocka_unit_test(cache_is_fed),
    };
    int failed = cmocka_run_group_tests_name("window thread", tests, NULL, NULL);
    return failed + cmocka_run_group_tests_name("lanes prepare", tests, with_lanes_that_prepare, NULL);
}
