/* The feed; contract in feed.h.
 *
 * Threads: parse threads (streams, and random access that costs work) fill a ring of chunks in order; the
 * window thread collects chunks into windows, shuffles them and queues them; lanes claim slices of the
 * current window. All of them share one mutex, taken once per chunk, window or claim, never per row.
 *
 * Invariants
 * 1. Chunks enter the ring at slot sequence % RING and leave it in sequence, whoever parsed them.
 * 2. At most QUEUE finished windows wait; so memory is bounded by the ring, the window being built, those
 * queued, and those that lanes hold.
 * 3. A window's rows and order never change after it is queued; it returns to the pool with its last
 * reference.
 * 4. The first failure in the order of the epoch is kept and ends production; lanes see it after the rows
 * that came before it, whichever thread met it. */
#include "data/feed.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "data/feed_impl.h"

#define LANE_HOLD 4 /* windows a lane's rows may lie in without growing */

/* ---- helpers under the mutex ---- */

void mst_feed_wake(mst_feed *f)
{
    pthread_cond_broadcast(&f->changed);
}

/* Waits for a change, at most a second: callers look at their condition again, and at deadlines. */
void mst_feed_wait_change(mst_feed *f)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += 1;
    pthread_cond_timedwait(&f->changed, &f->mutex, &t);
}

static void window_reset(mst_feed_window *w)
{
    for (uint32_t i = 0; i < w->n_chunks; i++)
        mst_chunk_release(w->chunks[i]);
    w->n_chunks = 0;
    w->n_rows = 0;
}

void mst_feed_unref(mst_feed *f, mst_feed_window *w)
{
    if (--w->references != 0)
        return;
    window_reset(w);
    w->next = f->pool;
    f->pool = w;
}

void mst_feed_window_free(mst_feed_window *w)
{
    if (w == NULL)
        return;
    window_reset(w);
    mst_free(w->order);
    mst_free(w->chunks);
    mst_free(w);
}

/* ---- life ---- */

static mst_status start_threads(mst_feed *f)
{
    if (!f->dataset->load_is_cheap) {
        unsigned n = f->options.prefetch_threads ? f->options.prefetch_threads : 1;
        f->parse_threads = mst_calloc(n, sizeof *f->parse_threads);
        if (f->parse_threads == NULL)
            return mst_fail(MST_ENOMEM, "%s: no memory for reading", f->dataset->name);
        for (; f->n_parse_threads < n; f->n_parse_threads++)
            if (pthread_create(&f->parse_threads[f->n_parse_threads], NULL, mst_feed_parse_main, f) != 0)
                return mst_fail(MST_EIO, "%s: cannot start a reading thread", f->dataset->name);
    }
    if (pthread_create(&f->window_thread, NULL, mst_feed_window_main, f) != 0)
        return mst_fail(MST_EIO, "%s: cannot start a reading thread", f->dataset->name);
    f->window_started = true;
    return MST_OK;
}

mst_status mst_feed_new(mst_dataset *dataset, const mst_feed_options *options, mst_feed **out)
{
    mst_status st;
    mst_feed *f = mst_zalloc(sizeof *f);
    if (f == NULL)
        return mst_fail(MST_ENOMEM, "%s: no memory for reading", dataset->name);
    f->dataset = dataset;
    f->options = *options;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&f->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&f->mutex, NULL);
    pthread_mutex_init(&f->read_mutex, NULL);
    st = mst_fail(MST_ENOMEM, "%s: no memory for %u rows at a time", dataset->name, options->max_take);
    f->lanes = mst_alloc_lines(options->n_lanes * sizeof *f->lanes);
    if (f->lanes == NULL)
        goto out;
    memset(f->lanes, 0, options->n_lanes * sizeof *f->lanes);
    for (unsigned i = 0; i < options->n_lanes; i++) {
        f->lanes[i].rows = mst_calloc(options->max_take, sizeof(mst_row));
        if (f->lanes[i].rows == NULL ||
            !mst_grow(&f->lanes[i].pieces, &f->lanes[i].piece_capacity, LANE_HOLD, sizeof(mst_feed_piece)))
            goto out;
    }
    if (dataset->random) {
        f->chunk_order = mst_calloc(dataset->n_chunks, sizeof *f->chunk_order);
        if (f->chunk_order == NULL)
            goto out;
        if (options->keep == MST_KEEP_ALL)
            f->epoch_rows = dataset->info.n_rows;
        else
            for (uint64_t row = 0; row < dataset->info.n_rows; row++)
                f->epoch_rows += mst_feed_held_out(options, row) == (options->keep == MST_KEEP_HELD_OUT);
        if (options->first_rows != 0 && f->epoch_rows > options->first_rows)
            f->epoch_rows = options->first_rows;
    }
    TRY_OUT(st, start_threads(f));
    *out = f;
    f = NULL;
out:
    mst_feed_destroy(f);
    return st;
}

/* Drops what lanes and queue hold; under the mutex, with no lane in take. */
static void drop_windows(mst_feed *f)
{
    for (unsigned i = 0; f->lanes != NULL && i < f->options.n_lanes; i++) {
        for (size_t p = 0; p < f->lanes[i].n_pieces; p++)
            mst_feed_unref(f, f->lanes[i].pieces[p].w);
        f->lanes[i].n_pieces = 0;
    }
    if (f->current != NULL)
        mst_feed_unref(f, f->current);
    f->current = NULL;
    while (f->queue != NULL) {
        mst_feed_window *w = f->queue;
        f->queue = w->next;
        mst_feed_unref(f, w);
    }
    f->queued = 0;
    for (unsigned i = 0; i < MST_FEED_RING; i++) {
        if (f->ring_full[i])
            mst_chunk_release(f->ring[i]);
        f->ring_full[i] = false;
    }
}

void mst_feed_destroy(mst_feed *f)
{
    if (f == NULL)
        return;
    pthread_mutex_lock(&f->mutex);
    f->leaving = true;
    mst_feed_wake(f);
    pthread_mutex_unlock(&f->mutex);
    if (f->window_started)
        pthread_join(f->window_thread, NULL);
    for (unsigned i = 0; i < f->n_parse_threads; i++)
        pthread_join(f->parse_threads[i], NULL);
    drop_windows(f);
    while (f->pool != NULL) {
        mst_feed_window *w = f->pool;
        f->pool = w->next;
        mst_feed_window_free(w);
    }
    for (unsigned i = 0; f->lanes != NULL && i < f->options.n_lanes; i++) {
        mst_free(f->lanes[i].rows);
        mst_free(f->lanes[i].pieces);
    }
    mst_free(f->lanes);
    mst_free(f->parse_threads);
    mst_free(f->chunk_order);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->mutex);
    pthread_mutex_destroy(&f->read_mutex);
    mst_free(f);
}

static void order_chunks(mst_feed *f)
{
    uint32_t n = f->dataset->n_chunks;
    for (uint32_t i = 0; i < n; i++)
        f->chunk_order[i] = i;
    if (f->options.shuffle_rows == 0)
        return;
    mst_rng rng;
    mst_rng_init(&rng, f->options.seed, MST_RNG_CHUNK_ORDER, f->epoch);
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = mst_rng_below(&rng, i), swap = f->chunk_order[i - 1];
        f->chunk_order[i - 1] = f->chunk_order[j];
        f->chunk_order[j] = swap;
    }
}

mst_status mst_feed_start(mst_feed *f, uint64_t epoch, uint64_t position)
{
    mst_status st = MST_OK;
    pthread_mutex_lock(&f->mutex);
    bool begun = f->generation != 0;
    f->generation++;
    f->producing = false;
    mst_feed_wake(f);
    while (f->busy != 0)
        mst_feed_wait_change(f);
    drop_windows(f);
    f->epoch = epoch;
    f->skip = position;
    f->claimed = 0;
    f->ended = false;
    f->error.code = MST_OK;
    f->ring_error.code = MST_OK;
    f->ring_next_in = f->ring_next_out = 0;
    f->ring_end = f->dataset->random ? f->dataset->n_chunks : UINT64_MAX;
    if (f->dataset->random)
        order_chunks(f);
    else if (begun)
        st = f->dataset->ops->rewind(f->dataset);
    f->generation++;
    f->producing = st == MST_OK;
    mst_feed_wake(f);
    pthread_mutex_unlock(&f->mutex);
    return st;
}

/* ---- lanes ---- */

/* Makes current a window with rows left; false at the end of the epoch. Under the mutex. */
static mst_status advance(mst_feed *f, bool *more)
{
    uint64_t begun = 0;
    for (;;) {
        if (f->current != NULL && f->claimed < f->current->n_rows) {
            *more = true;
            return MST_OK;
        }
        if (f->current != NULL)
            mst_feed_unref(f, f->current);
        f->current = f->queue;
        if (f->current != NULL) {
            f->queue = f->current->next;
            f->queued--;
            f->claimed = f->skip > f->current->start ? (uint32_t)(f->skip - f->current->start) : 0;
            mst_feed_wake(f);
            continue;
        }
        if (f->error.code != MST_OK)
            return mst_error_restore(&f->error);
        if (f->ended) {
            *more = false;
            return MST_OK;
        }
        if (f->options.stop != NULL && atomic_load(f->options.stop))
            return mst_fail(MST_ESTOPPED, "%s: asked to stop while waiting for rows", f->dataset->name);
        uint64_t now = mst_now_ns();
        if (begun == 0)
            begun = now;
        if (now - begun > MST_FEED_PATIENCE_S * MST_S)
            return mst_fail(MST_ETIMEOUT, "%s: no rows came for %d s", f->dataset->name, MST_FEED_PATIENCE_S);
        mst_feed_wait_change(f);
        f->wait_ns += mst_now_ns() - now;
    }
}

static mst_status claim(mst_feed *f, mst_feed_lane *l, uint32_t n, uint32_t *got, uint64_t *position)
{
    *got = 0;
    for (size_t p = 0; p < l->n_pieces; p++)
        mst_feed_unref(f, l->pieces[p].w);
    l->n_pieces = 0;
    while (*got < n) {
        bool more = false;
        TRY(advance(f, &more));
        if (!more)
            break;
        if (!mst_grow(&l->pieces, &l->piece_capacity, l->n_pieces + 1, sizeof *l->pieces))
            return mst_fail(MST_ENOMEM, "%s: no memory for a batch over many windows", f->dataset->name);
        mst_feed_window *w = f->current;
        uint32_t left = w->n_rows - f->claimed, take = n - *got < left ? n - *got : left;
        if (*got == 0)
            *position = w->start + f->claimed;
        l->pieces[l->n_pieces++] = (mst_feed_piece){w, f->claimed, take};
        w->references++;
        f->claimed += take;
        *got += take;
    }
    return MST_OK;
}

/* rows[i] = row `from + i` of the window's order, for n rows. */
static void fill_rows(mst_row *rows, const mst_feed_window *w, uint32_t from, uint32_t n)
{
    enum { AHEAD = 16 };
    const mst_feed_place *order = w->order + from;
    mst_chunk *const *chunks = w->chunks;
    for (uint32_t i = 0; i < n; i++) {
        if (i + AHEAD < n) {
            const mst_feed_place *next = &order[i + AHEAD];
            const mst_chunk *c = chunks[next->chunk];
            const uint32_t *record =
                c->words + (c->stride ? (size_t)next->row * c->stride : (size_t)c->offsets[next->row]);
            __builtin_prefetch(record);
            __builtin_prefetch(record + 16);
            __builtin_prefetch(record + 32);
        }
        mst_chunk_row(chunks[order[i].chunk], order[i].row, &rows[i]);
    }
}

mst_status mst_feed_claim(mst_feed *f, unsigned lane_index, uint32_t n, mst_batch *batch, uint64_t *position)
{
    mst_feed_lane *l = &f->lanes[lane_index];
    uint32_t got;
    *position = 0;
    pthread_mutex_lock(&f->mutex);
    mst_status st = claim(f, l, n < f->options.max_take ? n : f->options.max_take, &got, position);
    pthread_mutex_unlock(&f->mutex);
    if (st == MST_OK)
        *batch = (mst_batch){.rows = l->rows, .n_rows = got};
    return st;
}

mst_status mst_feed_fill(mst_feed *f, unsigned lane_index, uint32_t from, uint32_t to)
{
    const mst_feed_lane *l = &f->lanes[lane_index];
    uint32_t start = 0; /* of the piece, in the lane's rows */
    for (size_t p = 0; p < l->n_pieces && start < to; p++) {
        const mst_feed_piece *at = &l->pieces[p];
        uint32_t first = from > start ? from : start, last = to < start + at->n ? to : start + at->n;
        if (first < last) {
            TRY(mst_feed_check_window(at->w, true));
            fill_rows(l->rows + first, at->w, at->from + (first - start), last - first);
        }
        start += at->n;
    }
    return MST_OK;
}

mst_status mst_feed_take(mst_feed *f, unsigned lane_index, uint32_t n, mst_batch *batch, uint64_t *position)
{
    TRY(mst_feed_claim(f, lane_index, n, batch, position));
    return mst_feed_fill(f, lane_index, 0, batch->n_rows);
}

uint64_t mst_feed_epoch_rows(const mst_feed *f)
{
    pthread_mutex_lock((pthread_mutex_t *)&f->mutex);
    uint64_t rows = f->epoch_rows;
    pthread_mutex_unlock((pthread_mutex_t *)&f->mutex);
    return rows;
}

double mst_feed_wait_seconds(const mst_feed *f)
{
    pthread_mutex_lock((pthread_mutex_t *)&f->mutex);
    uint64_t wait_ns = f->wait_ns;
    pthread_mutex_unlock((pthread_mutex_t *)&f->mutex);
    return (double)wait_ns * 1e-9;
}
