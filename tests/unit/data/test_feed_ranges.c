/* The feed in ranges, as for leases. Any cover of an epoch by ranges gives the rows of the epoch, a jump
 * loads one window, and a range that continues or starts in loaded rows loads nothing. */
#include <sched.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "unit/data/feed_helpers.h"

#define CHUNK 16

/* Rows of the range started last, appended; batches of `size`. */
static mst_status take_range(mst_feed *feed, uint32_t size, uint64_t from, sequence *out)
{
    for (uint64_t next = from;;) {
        mst_batch batch;
        uint64_t position;
        TRY(mst_feed_take(feed, 0, size, &batch, &position));
        if (batch.n_rows == 0)
            return MST_OK;
        assert_int_equal(position, next);
        next += batch.n_rows;
        for (uint32_t i = 0; i < batch.n_rows; i++)
            out->rows[out->n++] = number_of(&batch.rows[i]);
    }
}

static void assert_part(const sequence *whole, uint64_t from, const sequence *part)
{
    assert_true(from + part->n <= whole->n);
    assert_memory_equal(part->rows, whole->rows + from, part->n * sizeof *part->rows);
}

/* The order is what runs are resumed by: it may not change from version to version. */
static void order_is_pinned(void **state)
{
    (void)state;
    static const struct {
        fake_kind kind;
        mst_feed_keep keep;
        uint64_t shuffle_rows, first_rows;
        uint32_t n;
        uint64_t hash;
    } pins[] = {
        {FAKE_COSTLY, MST_KEEP_ALL, 0, 0, 1003, 0x2280b0433392e640},
        {FAKE_COSTLY, MST_KEEP_ALL, 40, 0, 1003, 0xaef6cf6343053bfc},
        {FAKE_CHEAP, MST_KEEP_ALL, 64, 0, 1003, 0x3983f4c559b23180},
        {FAKE_CHEAP, MST_KEEP_ALL, 64, 150, 150, 0x8a9e57abf0adba9},
        {FAKE_CHEAP, MST_KEEP_TRAINING, 40, 0, 722, 0xab976f618cea5157},
        {FAKE_COSTLY, MST_KEEP_TRAINING, 64, 150, 150, 0xd7d08157276102cd},
        {FAKE_CHEAP, MST_KEEP_HELD_OUT, 0, 0, 281, 0x209cb86e35a4ee96},
        {FAKE_COSTLY, MST_KEEP_HELD_OUT, 64, 0, 281, 0xb352d91d47ba8118},
        {FAKE_STREAM, MST_KEEP_ALL, 40, 0, 1003, 0x63dd8486b4b2a2fa},
        {FAKE_STREAM, MST_KEEP_TRAINING, 64, 150, 150, 0x18b4a1c38fdb8faa},
    };
    static sequence s;
    for (size_t p = 0; p < sizeof pins / sizeof *pins; p++) {
        fake_dataset *d = fake_new(pins[p].kind, 1003, CHUNK, NULL, NULL);
        mst_feed_options o = options_of(21, pins[p].shuffle_rows);
        o.held_out = 0.3;
        o.keep = pins[p].keep;
        o.first_rows = pins[p].first_rows;
        epoch_of(d, &o, 3, 0, &s);
        uint64_t hash = 14695981039346656037u; /* FNV-1a over keys */
        for (uint32_t i = 0; i < s.n; i++)
            hash = (hash ^ (s.rows[i] + FAKE_KEY)) * 1099511628211u;
        assert_int_equal(s.n, pins[p].n);
        assert_true(hash == pins[p].hash);
        mst_dataset_destroy(&d->base);
    }
}

/* Cuts [0, n) into ranges of 1 to `most` rows and takes them in a random order, some of them extended from
 * the one before. */
static void cover(mst_feed *feed, uint64_t epoch, const sequence *whole, uint32_t most, uint64_t seed)
{
    static uint32_t cuts[MAX_ROWS + 1], order[MAX_ROWS];
    static sequence part;
    uint32_t n = 0;
    mst_rng rng;
    mst_rng_init(&rng, seed, MST_RNG_ROW_ORDER, 0);
    cuts[0] = 0;
    while (cuts[n] < whole->n) {
        uint32_t next = cuts[n] + 1 + mst_rng_below(&rng, most);
        order[n] = n;
        cuts[++n] = next < whole->n ? next : whole->n;
    }
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = mst_rng_below(&rng, i), swap = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swap;
    }
    static uint8_t done[MAX_ROWS];
    memset(done, 0, sizeof done);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t r = order[i];
        if (done[r])
            continue;
        uint64_t from = cuts[r];
        part.n = 0;
        assert_int_equal(mst_feed_start_range(feed, epoch, from, cuts[r + 1]), MST_OK);
        for (bool go_on = true; go_on;) {
            uint32_t before = part.n;
            assert_int_equal(take_range(feed, 1 + mst_rng_below(&rng, 30), from + part.n, &part), MST_OK);
            assert_int_equal(part.n - before, cuts[r + 1] - cuts[r]);
            done[r++] = 1;
            go_on = r < n && !done[r] && mst_rng_below(&rng, 2) == 0;
            if (go_on)
                assert_int_equal(mst_feed_extend(feed, cuts[r + 1]), MST_OK);
        }
        assert_part(whole, from, &part);
    }
}

static void ranges_cover_an_epoch(void **state)
{
    (void)state;
    static const uint64_t windows[] = {0, 40, 64, 1 << 20}, limits[] = {0, 150};
    static sequence whole;
    uint64_t seed = 0;
    for (int kind = 0; kind < FAKE_KINDS; kind++)
        for (int keep = 0; keep < 3; keep++)
            for (size_t w = 0; w < sizeof windows / sizeof *windows; w++)
                for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
                    fake_dataset *d = fake_new((fake_kind)kind, 605, CHUNK, NULL, NULL);
                    mst_feed_options o = options_of(++seed, windows[w]);
                    o.held_out = 0.3;
                    o.keep = (mst_feed_keep)keep;
                    o.first_rows = limits[l];
                    o.prefetch_threads = 1 + (unsigned)(seed % 3);
                    mst_feed *feed = feed_new(d, &o);
                    for (uint64_t epoch = 0; epoch < 2; epoch++) {
                        assert_int_equal(mst_feed_start(feed, epoch, 0), MST_OK);
                        assert_int_equal(take_all(feed, &o, 0, 0, &whole), MST_OK);
                        assert_int_equal(mst_feed_epoch_rows(feed), whole.n);
                        cover(feed, epoch, &whole, kind == FAKE_STREAM ? 90 : 25, seed);
                        cover(feed, epoch, &whole, 200, seed);
                    }
                    mst_feed_destroy(feed);
                    mst_dataset_destroy(&d->base);
                }
}

/* Held-out fractions that leave whole chunks, windows or epochs without a row. */
static void windows_without_rows(void **state)
{
    (void)state;
    static const double fractions[] = {0.0, 0.02, 0.98, 1.0};
    static sequence whole, tail;
    for (int kind = 0; kind < FAKE_KINDS; kind++)
        for (size_t i = 0; i < 4; i++)
            for (uint64_t window = 0; window < 50; window += 24) {
                fake_dataset *d = fake_new((fake_kind)kind, 500, CHUNK, NULL, NULL);
                mst_feed_options o = options_of(3, window);
                o.held_out = fractions[i];
                o.keep = MST_KEEP_HELD_OUT;
                epoch_of(d, &o, 1, 0, &whole);
                mst_feed *feed = feed_new(d, &o);
                fake_rewind(&d->base);
                for (uint32_t from = 0; from <= whole.n; from += 1 + whole.n / 40) {
                    tail.n = 0;
                    assert_int_equal(mst_feed_start_range(feed, 1, from, from + 7), MST_OK);
                    assert_int_equal(take_range(feed, 100, from, &tail), MST_OK);
                    assert_int_equal(tail.n, whole.n - from < 7 ? whole.n - from : 7);
                    assert_part(&whole, from, &tail);
                }
                mst_feed_destroy(feed);
                mst_dataset_destroy(&d->base);
            }
}

/* A start anywhere loads the chunks of the windows that the range touches, and no others. */
static void jump_loads_one_window(void **state)
{
    (void)state;
    static sequence whole, part;
    for (int kind = 0; kind <= FAKE_COSTLY; kind++)
        for (int held = 0; held < 2; held++) {
            fake_dataset *d = fake_new((fake_kind)kind, 2990, CHUNK, NULL, NULL);
            mst_feed_options o = options_of(5, 64);
            o.held_out = 0.2;
            o.keep = held ? MST_KEEP_TRAINING : MST_KEEP_ALL;
            o.prefetch_threads = 2;
            epoch_of(d, &o, 4, 0, &whole);
            for (uint32_t from = 0; from < whole.n; from += 97) {
                mst_feed *feed = feed_new(d, &o);
                atomic_store(&d->loads, 0);
                part.n = 0;
                assert_int_equal(mst_feed_start_range(feed, 4, from, from + 1), MST_OK);
                assert_int_equal(take_range(feed, 10, from, &part), MST_OK);
                assert_int_equal(part.n, 1);
                assert_part(&whole, from, &part);
                mst_feed_destroy(feed); /* so that everything is loaded that ever will be */
                assert_in_range(atomic_load(&d->loads), 1, held ? 7 : 5);
            }
            mst_dataset_destroy(&d->base);
        }
}

/* Ranges one after another, and jumps to and fro, in the window at hand: its chunks are loaded once. */
static void ranges_in_a_window_load_it_once(void **state)
{
    (void)state;
    static sequence whole, part;
    for (int kind = 0; kind < FAKE_KINDS; kind++) {
        fake_dataset *d = fake_new((fake_kind)kind, 1600, CHUNK, NULL, NULL);
        mst_feed_options o = options_of(7, 320);
        epoch_of(d, &o, 2, 0, &whole);
        mst_feed *feed = feed_new(d, &o);
        fake_rewind(&d->base);
        atomic_store(&d->loads, 0);
        assert_int_equal(mst_feed_start_range(feed, 2, 10, 20), MST_OK);
        part.n = 0;
        for (uint64_t to = 20; to <= 320; to += 10) {
            assert_int_equal(mst_feed_extend(feed, to), MST_OK);
            assert_int_equal(take_range(feed, 6, 10 + part.n, &part), MST_OK);
            assert_int_equal(part.n, to - 10);
        }
        assert_part(&whole, 10, &part);
        for (uint64_t i = 0; i < 60; i++) {
            uint64_t from = i * 137 % 300;
            part.n = 0;
            assert_int_equal(mst_feed_start_range(feed, 2, from, from + 20), MST_OK);
            assert_int_equal(take_range(feed, 9, from, &part), MST_OK);
            assert_int_equal(part.n, 20);
            assert_part(&whole, from, &part);
        }
        if (kind != FAKE_STREAM)
            assert_int_equal(atomic_load(&d->loads), 20);
        /* into the next window, and on: that one once, too */
        part.n = 0;
        assert_int_equal(mst_feed_start_range(feed, 2, 310, 330), MST_OK);
        assert_int_equal(take_range(feed, 9, 310, &part), MST_OK);
        assert_int_equal(mst_feed_start_range(feed, 2, 330, 350), MST_OK);
        assert_int_equal(take_range(feed, 9, 330, &part), MST_OK);
        assert_int_equal(part.n, 40);
        assert_part(&whole, 310, &part);
        if (kind != FAKE_STREAM)
            assert_int_equal(atomic_load(&d->loads), 40);
        mst_feed_destroy(feed);
        if (kind != FAKE_STREAM)
            assert_int_equal(atomic_load(&d->loads), 40);
        mst_dataset_destroy(&d->base);
    }
}

/* Ends: an empty range, one beyond the epoch, extending to less, to more than there is, and too early. */
static void ends_of_ranges(void **state)
{
    (void)state;
    static sequence whole, part;
    for (int kind = 0; kind < FAKE_KINDS; kind++) {
        fake_dataset *d = fake_new((fake_kind)kind, 500, CHUNK, NULL, NULL);
        mst_feed_options o = options_of(7, 64);
        epoch_of(d, &o, 0, 0, &whole);
        mst_feed *feed = feed_new(d, &o);
        fake_rewind(&d->base);
        assert_int_equal(mst_feed_extend(feed, 10), MST_EUSAGE);
        assert_string_equal(mst_error_text(), "fake.data: no epoch has been started");
        part.n = 0;
        assert_int_equal(mst_feed_start_range(feed, 0, 100, 100), MST_OK);
        assert_int_equal(take_range(feed, 9, 100, &part), MST_OK);
        assert_int_equal(part.n, 0);
        assert_int_equal(mst_feed_extend(feed, 130), MST_OK);
        assert_int_equal(mst_feed_extend(feed, 90), MST_OK);
        assert_int_equal(take_range(feed, 9, 100, &part), MST_OK);
        assert_int_equal(part.n, 30);
        assert_int_equal(mst_feed_extend(feed, 10000), MST_OK);
        assert_int_equal(take_range(feed, 9, 130, &part), MST_OK);
        assert_int_equal(part.n, 400);
        assert_part(&whole, 100, &part);
        part.n = 0;
        assert_int_equal(mst_feed_start_range(feed, 0, 600, 700), MST_OK);
        assert_int_equal(take_range(feed, 9, 600, &part), MST_OK);
        assert_int_equal(part.n, 0);
        assert_int_equal(mst_feed_start_range(feed, 0, 300, 200), MST_OK);
        assert_int_equal(take_range(feed, 9, 300, &part), MST_OK);
        assert_int_equal(part.n, 0);
        mst_feed_destroy(feed);
        mst_dataset_destroy(&d->base);
    }
}

/* What a lane holds outlives the ranges that others, or it, start meanwhile. */
static void rows_outlive_a_start(void **state)
{
    (void)state;
    static sequence whole;
    for (int kind = 0; kind < FAKE_KINDS; kind++) {
        fake_dataset *d = fake_new((fake_kind)kind, 900, CHUNK, NULL, NULL);
        mst_feed_options o = options_of(7, 64);
        epoch_of(d, &o, 0, 0, &whole);
        o.n_lanes = 2;
        mst_feed *feed = feed_new(d, &o);
        fake_rewind(&d->base);
        mst_batch held, batch;
        uint64_t position;
        assert_int_equal(mst_feed_start_range(feed, 0, 100, 150), MST_OK);
        assert_int_equal(mst_feed_take(feed, 1, 50, &held, &position), MST_OK);
        for (uint64_t from = 0; from < 800; from += 90) {
            assert_int_equal(mst_feed_start_range(feed, from % 4, from, from + 50), MST_OK);
            assert_int_equal(mst_feed_take(feed, 0, 50, &batch, &position), MST_OK);
        }
        assert_int_equal(held.n_rows, 50);
        for (uint32_t i = 0; i < 50; i++)
            assert_int_equal(number_of(&held.rows[i]), whole.rows[100 + i]);
        mst_feed_destroy(feed);
        mst_dataset_destroy(&d->base);
    }
}

/* A worker's share of a global batch: rows that are not filled are not touched. */
static void share_of_a_global_batch(void **state)
{
    (void)state;
    static sequence whole;
    for (int kind = 0; kind < FAKE_KINDS; kind++) {
        fake_dataset *d = fake_new((fake_kind)kind, 900, CHUNK, NULL, NULL);
        mst_feed_options o = options_of(2, 64);
        epoch_of(d, &o, 0, 0, &whole);
        mst_feed *feed = feed_new(d, &o);
        fake_rewind(&d->base);
        mst_batch batch;
        uint64_t position;
        assert_int_equal(mst_feed_start(feed, 0, 0), MST_OK);
        for (uint32_t at = 0; at < 900; at += 100) {
            assert_int_equal(mst_feed_claim(feed, 0, 100, &batch, &position), MST_OK);
            assert_int_equal(batch.n_rows, 100);
            memset((void *)batch.rows, 0, 100 * sizeof *batch.rows);
            assert_int_equal(mst_feed_fill(feed, 0, 25, 50), MST_OK);
            for (uint32_t i = 0; i < 100; i++)
                if (i >= 25 && i < 50)
                    assert_int_equal(number_of(&batch.rows[i]), whole.rows[at + i]);
                else
                    assert_null(batch.rows[i].keys);
        }
        mst_feed_destroy(feed);
        mst_dataset_destroy(&d->base);
    }
}

/* ---- threads ---- */

typedef struct crew {
    mst_feed *feed;
    atomic_uchar seen[MAX_ROWS];
    atomic_uint next_lane, n_seen;
} crew;

static void *crew_main(void *arg)
{
    crew *c = arg;
    unsigned lane = atomic_fetch_add(&c->next_lane, 1);
    while (atomic_load(&c->n_seen) < MAX_ROWS) {
        mst_batch batch;
        uint64_t position;
        if (mst_feed_take(c->feed, lane, 1 + lane * 7, &batch, &position) != MST_OK)
            return NULL;
        for (uint32_t i = 0; i < batch.n_rows; i++)
            atomic_fetch_add(&c->seen[batch.rows[i].keys[0] - FAKE_KEY], 1);
        atomic_fetch_add(&c->n_seen, batch.n_rows);
        if (batch.n_rows == 0)
            sched_yield();
    }
    return NULL;
}

/* One thread extends while others take: every row comes once. */
static void extended_while_taken(void **state)
{
    (void)state;
    for (int kind = 0; kind < FAKE_KINDS; kind++) {
        fake_dataset *d = fake_new((fake_kind)kind, MAX_ROWS, 64, NULL, NULL);
        mst_feed_options o = options_of(3, 200);
        o.n_lanes = 3;
        o.prefetch_threads = 2;
        mst_feed *feed = feed_new(d, &o);
        pthread_t threads[3];
        crew c = {.feed = feed};
        assert_int_equal(mst_feed_start_range(feed, 1, 0, 0), MST_OK);
        for (int t = 0; t < 3; t++)
            assert_int_equal(pthread_create(&threads[t], NULL, crew_main, &c), 0);
        for (uint64_t to = 0; to < MAX_ROWS; to += 17) {
            assert_int_equal(mst_feed_extend(feed, to + 17), MST_OK);
            sched_yield();
        }
        for (int t = 0; t < 3; t++)
            pthread_join(threads[t], NULL);
        for (uint32_t i = 0; i < MAX_ROWS; i++)
            assert_int_equal(atomic_load(&c.seen[i]), 1);
        mst_feed_destroy(feed);
        mst_dataset_destroy(&d->base);
    }
}

/* Starts follow one another without a take, whatever the background threads are at; then one is taken. */
static void starts_in_quick_succession(void **state)
{
    (void)state;
    static sequence whole[2], part;
    for (int kind = 0; kind < FAKE_KINDS; kind++) {
        fake_dataset *d = fake_new((fake_kind)kind, 1001, CHUNK, NULL, NULL);
        mst_feed_options o = options_of(8, 50);
        o.prefetch_threads = 2;
        for (uint64_t e = 0; e < 2; e++)
            epoch_of(d, &o, e, 0, &whole[e]);
        mst_feed *feed = feed_new(d, &o);
        fake_rewind(&d->base);
        mst_rng rng;
        mst_rng_init(&rng, 1, MST_RNG_ROW_ORDER, 0);
        for (int i = 0; i < 600; i++) {
            uint64_t from = mst_rng_below(&rng, 1001), epoch = mst_rng_below(&rng, 8) == 0;
            assert_int_equal(mst_feed_start_range(feed, epoch, from, from + 1 + i % 60), MST_OK);
            for (uint64_t near = from; near < 1000 && mst_rng_below(&rng, 3) != 0;
                 near += mst_rng_below(&rng, 40))
                assert_int_equal(mst_feed_start_range(feed, epoch, from = near, near + 20), MST_OK);
            if (i % 3 == 0)
                continue;
            part.n = 0;
            assert_int_equal(take_range(feed, 30, from, &part), MST_OK);
            assert_part(&whole[epoch], from, &part);
        }
        mst_feed_destroy(feed);
        mst_dataset_destroy(&d->base);
    }
}

/* ---- failures ---- */

/* A broken chunk is met by the ranges whose windows hold it, and by no others. */
static void failure_stays_in_its_window(void **state)
{
    (void)state;
    static sequence whole, part;
    for (int kind = 0; kind <= FAKE_COSTLY; kind++) {
        fake_dataset *d = fake_new((fake_kind)kind, 800, CHUNK, NULL, NULL);
        mst_feed_options o = options_of(8, 64);
        epoch_of(d, &o, 0, 0, &whole);
        uint32_t at = 0;
        while (whole.rows[at] / CHUNK != 30)
            at++;
        uint64_t first = at / 64 * 64;
        d->fail_chunk = 30;
        mst_feed *feed = feed_new(d, &o);
        for (uint64_t from = 0; from < 800; from += 32) {
            bool bad = from >= first && from < first + 64;
            part.n = 0;
            assert_int_equal(mst_feed_start_range(feed, 0, from, from + 32), MST_OK);
            mst_status st = take_range(feed, 1, from, &part);
            assert_int_equal(st, bad ? MST_EINPUT : MST_OK);
            assert_int_equal(part.n, bad ? 0 : 32);
            assert_part(&whole, from, &part);
            if (bad)
                assert_string_equal(mst_error_text(), "fake.data: chunk 30 is broken");
        }
        /* reached by extending: the rows before its window, then its sentence, until the next start */
        assert_true(first >= 64);
        part.n = 0;
        assert_int_equal(mst_feed_start_range(feed, 0, first - 64, first), MST_OK);
        assert_int_equal(take_range(feed, 7, first - 64, &part), MST_OK);
        assert_int_equal(part.n, 64);
        assert_part(&whole, first - 64, &part);
        for (uint64_t to = first + 1; to < 800; to += 300) {
            assert_int_equal(mst_feed_extend(feed, to), MST_OK);
            assert_int_equal(take_range(feed, 7, first, &part), MST_EINPUT);
            assert_string_equal(mst_error_text(), "fake.data: chunk 30 is broken");
        }
        d->fail_chunk = UINT32_MAX;
        part.n = 0;
        assert_int_equal(mst_feed_start_range(feed, 0, first, first + 64), MST_OK);
        assert_int_equal(take_range(feed, 7, first, &part), MST_OK);
        assert_int_equal(part.n, 64);
        assert_part(&whole, first, &part);
        mst_feed_destroy(feed);
        mst_dataset_destroy(&d->base);
    }
}

/* Positions follow from counts of rows, so a chunk that has another number is refused. */
static void changed_dataset_is_refused(void **state)
{
    (void)state;
    static sequence s;
    for (int kind = 0; kind <= FAKE_COSTLY; kind++) {
        fake_dataset *d = fake_new((fake_kind)kind, 98, 10, NULL, NULL);
        d->base.info.n_rows = 99;
        mst_feed_options o = options_of(1, 0);
        mst_feed *feed = feed_new(d, &o);
        assert_int_equal(mst_feed_start(feed, 0, 0), MST_OK);
        assert_int_equal(take_all(feed, &o, 1, 0, &s), MST_EINPUT);
        assert_string_equal(mst_error_text(),
                            "fake.data: rows 90 to 98 of the epoch are 8 rows: the dataset has changed");
        mst_feed_destroy(feed);
        mst_dataset_destroy(&d->base);
    }
}

/* A stream that cannot go back says so at the start, and again at a take. */
static mst_status no_rewind(mst_dataset *self)
{
    return mst_fail(MST_EINPUT, "%s can be read only once", self->name);
}

static void stream_that_is_read_once(void **state)
{
    (void)state;
    static sequence s;
    fake_dataset *d = fake_new(FAKE_STREAM, 500, CHUNK, NULL, NULL);
    mst_dataset_ops ops = fake_stream_ops;
    ops.rewind = no_rewind;
    d->base.ops = &ops;
    mst_feed_options o = options_of(1, 64);
    mst_feed *feed = feed_new(d, &o);
    mst_batch batch;
    uint64_t position;
    for (uint64_t from = 0; from < 500; from += 50) { /* forwards is no second reading */
        s.n = 0;
        assert_int_equal(mst_feed_start_range(feed, 0, from, from + 40), MST_OK);
        assert_int_equal(take_range(feed, 9, from, &s), MST_OK);
        assert_int_equal(s.n, 40);
    }
    assert_int_equal(mst_feed_start(feed, 1, 0), MST_EINPUT);
    assert_int_equal(mst_feed_take(feed, 0, 1, &batch, &position), MST_EINPUT);
    assert_string_equal(mst_error_text(), "fake.data can be read only once");
    mst_feed_destroy(feed);
    mst_dataset_destroy(&d->base);
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
            fake_dataset *d = fake_new((fake_kind)kind, 200, CHUNK, NULL, NULL);
            mst_feed_options o = options_of(1, 40);
            mst_feed *feed = NULL;
            o.held_out = 0.1;
            o.keep = MST_KEEP_TRAINING;
            mst_alloc_fail_at(k);
            st = mst_feed_new(&d->base, &o, &feed);
            s.n = 0;
            if (st == MST_OK)
                st = mst_feed_start_range(feed, 0, 60, 70);
            if (st == MST_OK)
                st = take_range(feed, 20, 60, &s);
            if (st == MST_OK)
                st = mst_feed_extend(feed, 150);
            if (st == MST_OK)
                st = take_range(feed, 20, 70, &s);
            mst_alloc_fail_at(0);
            assert_int_equal(st == MST_OK ? MST_ENOMEM : st, MST_ENOMEM);
            if (st == MST_OK)
                assert_int_equal(s.n, 90);
            mst_feed_destroy(feed);
            mst_dataset_destroy(&d->base);
        }
        mst_alloc_stats_get(&after);
        assert_int_equal(after.blocks, before.blocks);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_is_pinned),
        cmocka_unit_test(ranges_cover_an_epoch),
        cmocka_unit_test(windows_without_rows),
        cmocka_unit_test(jump_loads_one_window),
        cmocka_unit_test(ranges_in_a_window_load_it_once),
        cmocka_unit_test(ends_of_ranges),
        cmocka_unit_test(rows_outlive_a_start),
        cmocka_unit_test(share_of_a_global_batch),
        cmocka_unit_test(extended_while_taken),
        cmocka_unit_test(starts_in_quick_succession),
        cmocka_unit_test(failure_stays_in_its_window),
        cmocka_unit_test(changed_dataset_is_refused),
        cmocka_unit_test(stream_that_is_read_once),
        cmocka_unit_test(short_memory_is_reported),
    };
    int failed = cmocka_run_group_tests_name("window thread", tests, NULL, NULL);
    return failed + cmocka_run_group_tests_name("lanes prepare", tests, with_lanes_that_prepare, NULL);
}
