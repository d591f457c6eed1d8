/* The production of windows: the chunk ring's functions, and the window thread that collects chunks into
 * windows. Ownership and invariants are at the head of feed.c. */
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "data/feed_impl.h"
#include "observe/trace_file.h"

#define WINDOW_NICE 10
#define CHECK_AHEAD 64 /* chunks */

static bool feed_stale(const mst_feed *f, uint64_t generation)
{
    return f->leaving || f->generation != generation || f->error.code != MST_OK;
}

/* ---- chunks ---- */

/* Claims the next block of the stream that is the shard's. */
static mst_status feed_claim_block(void *arg, uint64_t number, mst_raw_block **block, bool *more)
{
    mst_feed *f = arg;
    mst_dataset *d = f->dataset;
    (void)number;
    for (;;) {
        TRY(d->ops->read(d, block));
        *more = *block != NULL;
        if (!*more || f->blocks_read++ % f->options.n_shards == f->options.shard)
            return MST_OK;
        d->ops->skip(d, *block);
    }
}

/* Whether a lane that waits for rows makes the chunk, not a thread of the ring. */
static bool feed_lane_helps(const mst_feed *f, const mst_chunk_builder *builder)
{
    for (unsigned i = 0; i < f->options.n_lanes; i++)
        if (builder == &f->lanes[i].builder)
            return true;
    return false;
}

/* The lane of the spans for the thread with that builder. Under the mutex. */
static unsigned feed_parser_lane(mst_feed *f, const mst_chunk_builder *builder)
{
    unsigned i = 0;
    while (i < f->n_parsers && f->parsers[i] != builder)
        i++;
    if (i == f->n_parsers && i < MST_FEED_PARSERS)
        f->parsers[f->n_parsers++] = builder;
    return f->first_lane + i;
}

static void feed_trace_chunk(mst_feed *f, const mst_chunk_builder *builder, uint64_t from_ns,
                             const mst_chunk *chunk)
{
    mst_trace_output out = {.bytes = chunk->n_words * sizeof *chunk->words, .dims = {chunk->n_rows}};
    if (feed_lane_helps(f, builder)) {
        mst_trace_op("parse", from_ns, out);
        return;
    }
    pthread_mutex_lock(&f->mutex);
    if (f->spans != NULL)
        mst_trace_beside(f->spans, feed_parser_lane(f, builder), "parse", from_ns, out);
    pthread_mutex_unlock(&f->mutex);
}

void mst_feed_trace(mst_feed *f, mst_spans *spans, unsigned first_lane)
{
    if (f == NULL)
        return;
    pthread_mutex_lock(&f->mutex);
    f->spans = spans;
    f->first_lane = first_lane;
    atomic_store(&f->traced, spans != NULL);
    pthread_mutex_unlock(&f->mutex);
}

static mst_status feed_make_chunk(void *arg, uint64_t number, mst_raw_block *block,
                                  mst_chunk_builder *builder, mst_chunk **out)
{
    mst_feed *f = arg;
    mst_dataset *d = f->dataset;
    if (d->load_is_cheap && d->ops->peek != NULL)
        return d->ops->peek(d, f->order.chunks[number], out);
    bool traced = atomic_load_explicit(&f->traced, memory_order_relaxed) && !d->load_is_cheap;
    uint64_t from = traced ? mst_now_ns() : 0;
    mst_status st =
        d->random ? d->ops->load(d, f->order.chunks[number], out) : d->ops->parse(d, block, builder, out);
    if (traced && st == MST_OK)
        feed_trace_chunk(f, builder, from, *out);
    return st;
}

/* A thread of the ring has made a chunk. */
static void feed_chunk_made(void *arg)
{
    mst_feed *f = arg;
    pthread_mutex_lock(&f->mutex);
    while (mst_feed_prepare(f))
        ;
    pthread_mutex_unlock(&f->mutex);
}

unsigned mst_feed_parsers(const mst_feed *f)
{
    if (f == NULL || f->dataset->load_is_cheap ||
        (f->options.lanes_prepare && f->options.prefetch_threads == 0))
        return 0;
    return f->options.prefetch_threads != 0 ? f->options.prefetch_threads : 1;
}

mst_status mst_feed_ring_init(mst_feed *f)
{
    mst_chunk_maker maker = {.claim = f->dataset->random ? NULL : feed_claim_block,
                             .make = feed_make_chunk,
                             .made = f->options.lanes_prepare ? feed_chunk_made : NULL,
                             .arg = f};
    unsigned parsers = mst_feed_parsers(f);
    uint32_t waiting =
        f->dataset->read_is_cheap && f->dataset->window_rows == 0 ? MST_FEED_DIVIDED : MST_FEED_RING;
    return mst_chunk_ring_new(&maker, f->dataset->name, parsers, waiting + parsers, &f->ring);
}

/* ---- window thread: chunks in order, windows out ---- */

bool mst_feed_window_wanted(const mst_feed *f)
{
    return !f->ended && f->next_position < f->to;
}

/* Waits until a window is wanted; false when the feed is leaving. The window thread is busy on true. */
static bool feed_wait_wanted(mst_feed *f, uint64_t *generation)
{
    pthread_mutex_lock(&f->mutex);
    while (!f->leaving && !(f->producing && f->error.code == MST_OK && mst_feed_window_wanted(f)))
        mst_feed_wait_change(f);
    bool go = !f->leaving;
    *generation = f->generation;
    f->busy = go;
    pthread_mutex_unlock(&f->mutex);
    return go;
}

static void feed_leave_epoch(mst_feed *f)
{
    pthread_mutex_lock(&f->mutex);
    f->busy = false;
    mst_feed_wake(f);
    pthread_mutex_unlock(&f->mutex);
}

static mst_status window_add(mst_feed *f, mst_feed_window *w, mst_chunk *chunk, uint64_t first_row)
{
    const mst_feed_options *o = &f->options;
    size_t need = (size_t)w->n_rows + chunk->n_rows;
    bool all = mst_feed_keeps_all(o), in_order = f->by_lanes && all;
    if (!mst_grow(&w->chunks, &w->chunk_capacity, w->n_chunks + 1u, sizeof(mst_chunk *)) ||
        !mst_grow(&w->first_rows, &w->first_capacity, w->n_chunks + 1u, sizeof *w->first_rows) ||
        (!in_order && !mst_grow(&w->places, &w->place_capacity, need, sizeof *w->places))) {
        mst_chunk_release(chunk);
        return mst_fail_memory();
    }
    uint32_t c = w->n_chunks++;
    w->chunks[c] = chunk;
    w->first_rows[c] = first_row;
    TRY(mst_feed_check_chunk(f, chunk, first_row));
    if (o->drop_unseen && chunk->fielded &&
        (mst_feed_has_unseen(o, chunk) || mst_feed_has_other_fields(o, chunk))) {
        uint64_t features = o->features != 0 ? o->features : UINT64_MAX;
        TRY(mst_chunk_check_wait(chunk));
        TRY(mst_chunk_drop_unseen(chunk, features, o->fields, &w->chunks[c]));
        mst_chunk_release(chunk);
        chunk = w->chunks[c];
    }
    if (chunk->check != NULL && !o->any_keys) {
        size_t tail = chunk->n_words - (size_t)chunk->n_rows * mst_chunk_head_words(chunk);
        w->mapped = true; /* of keys, values and fields, values are not copied */
        w->n_keys += chunk->has_values && !chunk->has_fields ? tail / 2 : tail;
    }
    w->unseen |= f->augmented_stride == 0 && (mst_feed_has_unseen(o, chunk) || chunk->dropped != NULL);
    w->order = in_order ? f->file_order : w->places;
    w->n_rows += in_order ? chunk->n_rows : 0;
    for (uint32_t i = 0; i < chunk->n_rows && !in_order; i++) {
        if (all || mst_feed_keeps(o, first_row + i, chunk, i))
            w->places[w->n_rows++] = (mst_feed_place){c, i};
    }
    return MST_OK;
}

/* Checks a queued window ahead of the lanes, while a core is idle and the window is still needed; lanes find
 * the same failures. */
static void feed_check_ahead(mst_feed *f, uint64_t generation, mst_feed_window *w)
{
    bool go_on = true;
    for (uint32_t i = 0; i < w->n_chunks && go_on; i++) {
        bool good = mst_chunk_check(w->chunks[i]) == MST_OK;
        pthread_mutex_lock(&f->mutex);
        go_on = good && !feed_stale(f, generation);
        pthread_mutex_unlock(&f->mutex);
    }
    pthread_mutex_lock(&f->mutex);
    mst_feed_unref(f, w);
    pthread_mutex_unlock(&f->mutex);
}

/* Under the mutex: a stream that has no more rows, or none that may be handed out, has ended. */
static void feed_end_stream(mst_feed *f, bool more)
{
    uint64_t limit = f->options.first_rows ? f->options.first_rows : UINT64_MAX;
    if (more && f->next_position < limit)
        return;
    f->ended = true;
    f->epoch_rows = f->next_position < limit ? f->next_position : limit;
    mst_chunk_ring_finish(f->ring); /* nothing more is read, also when first_rows ended the epoch early */
    mst_feed_wake(f);
}

/* Rows to have in the queue although it has its windows: a claim of rows that come late; and where windows
 * are small and chunks are only pointers, several, because lanes wait longer for this thread to wake up than
 * it works. */
static uint64_t feed_rows_ahead(const mst_feed *f)
{
    uint64_t take = f->options.max_take, lanes = f->options.n_lanes;
    return f->dataset->live ? take : f->dataset->load_is_cheap ? 4 * take * lanes : 0;
}

/* Under the mutex: whether the next window has to wait. */
static bool feed_queue_full(const mst_feed *f)
{
    return f->queued >= MST_FEED_QUEUE && f->queued_rows >= feed_rows_ahead(f);
}

/* Under the mutex: makes w the last window of the queue, unless none of its rows is wanted. */
static bool window_queue(mst_feed *f, mst_feed_window *w)
{
    atomic_store(&w->checked, false);
    w->start = f->next_position;
    w->epoch = f->epoch;
    f->next_position += w->n_rows;
    f->next_window++;
    if (w->n_rows == 0 || f->next_position <= f->position)
        return false;
    mst_feed_window **tail = &f->queue;
    while (*tail != NULL)
        tail = &(*tail)->next;
    w->next = NULL;
    *tail = w;
    f->queued++;
    f->queued_rows += w->n_rows;
    f->arrived_ns = mst_now_ns();
    return true;
}

/* Queues the window, which the queue then owns a reference to, unless none of its rows is wanted; `more` of
 * the stream may follow. Waits for room. False when the epoch is over. */
static bool window_put(mst_feed *f, uint64_t generation, mst_feed_window *w, bool more)
{
    pthread_mutex_lock(&f->mutex);
    while (!feed_stale(f, generation) && feed_queue_full(f))
        mst_feed_wait_change(f);
    w->references = 1;
    bool wanted = !feed_stale(f, generation), queued = wanted && window_queue(f, w);
    if (wanted && !f->dataset->random)
        feed_end_stream(f, more);
    if (queued) {
        w->references++; /* feed_check_ahead's */
        mst_feed_wake(f);
    } else {
        mst_feed_unref(f, w);
    }
    pthread_mutex_unlock(&f->mutex);
    if (queued)
        feed_check_ahead(f, generation, w);
    return wanted;
}

/* Under the mutex; NULL without memory. */
static mst_feed_window *window_get(mst_feed *f)
{
    mst_feed_window *w = f->pool;
    if (w != NULL)
        f->pool = w->next;
    return w != NULL ? w : mst_zalloc(sizeof *w);
}

/* Adds the next window's chunks; *more is false when a stream has ended or the epoch is over. *whole: NULL,
 * or false when a chunk is not ready yet. */
static mst_status feed_collect(mst_feed *f, mst_feed_window *w, bool *more, bool *whole)
{
    const mst_feed_order *p = &f->order;
    bool random = f->dataset->random;
    do {
        mst_chunk *chunk;
        if (whole != NULL && !f->dataset->load_is_cheap && !mst_chunk_ring_ready(f->ring)) {
            *whole = false;
            return MST_OK;
        }
        TRY(mst_chunk_ring_take(f->ring, &chunk));
        *more = chunk != NULL;
        if (!*more)
            return MST_OK;
        uint64_t c = f->next_chunk++,
                 first_row = random ? (uint64_t)p->chunks[c] * f->dataset->chunk_rows : f->next_row;
        f->next_row += chunk->n_rows;
        TRY(window_add(f, w, chunk, first_row));
    } while (random ? f->next_chunk < p->windows[f->next_window + 1].first
                    : w->n_rows < f->options.shuffle_rows);
    if (random && w->n_rows != p->windows[f->next_window + 1].start - f->next_position)
        return mst_fail(MST_EINPUT, "%s: rows %llu to %llu of the epoch are %u rows: the dataset has changed",
                        f->dataset->name, (unsigned long long)f->next_position,
                        (unsigned long long)p->windows[f->next_window + 1].start - 1, w->n_rows);
    return MST_OK;
}

/* Adds chunks to the window as feed_collect does, and shuffles its rows once it has all of them. A window
 * that fails has no rows: in a part of it other rows would be at its positions. */
static mst_status window_fill(mst_feed *f, mst_feed_window *w, bool *more, bool *whole)
{
    const mst_feed_options *o = &f->options;
    mst_status st = feed_collect(f, w, more, whole);
    if (st != MST_OK)
        w->n_rows = 0;
    if (o->shuffle_rows != 0 && (whole == NULL || *whole))
        mst_feed_shuffle(w->places, w->n_rows, o->seed, f->epoch, f->next_position);
    return st;
}

static bool window_wanted(mst_feed *f, uint64_t generation)
{
    pthread_mutex_lock(&f->mutex);
    bool wanted = !feed_stale(f, generation) && mst_feed_window_wanted(f);
    pthread_mutex_unlock(&f->mutex);
    return wanted;
}

/* Makes windows as long as some are wanted. next_position and next_window change in window_put alone, and so
 * may be read here without the mutex. */
static mst_status feed_produce(mst_feed *f, uint64_t generation)
{
    bool more = true;
    while (more && window_wanted(f, generation)) {
        pthread_mutex_lock(&f->mutex);
        mst_feed_window *w = window_get(f);
        pthread_mutex_unlock(&f->mutex);
        if (w == NULL)
            return mst_fail_memory();
        mst_status st = window_fill(f, w, &more, NULL);
        more = window_put(f, generation, w, more) && more;
        if (st != MST_OK)
            return st;
    }
    return MST_OK;
}

void mst_feed_make_window(mst_feed *f)
{
    bool more = true;
    mst_feed_window *w = window_get(f);
    mst_status st = w == NULL ? mst_fail_memory() : window_fill(f, w, &more, NULL);
    if (st != MST_OK)
        mst_error_save(&f->error, st);
    if (w == NULL)
        return;
    w->references = 1;
    if (st != MST_OK || !window_queue(f, w))
        mst_feed_unref(f, w);
    if (!f->all_checked)
        mst_feed_wake(f);
}

/* Under the mutex: queues a window that lanes have made, or ends with the failure of its rows. */
static void feed_finish_window(mst_feed *f, mst_feed_window *w, bool more, mst_status st)
{
    if (!window_queue(f, w))
        mst_feed_unref(f, w);
    if (!f->dataset->random)
        feed_end_stream(f, more);
    if (st != MST_OK) {
        mst_error_save(&f->error, st);
        mst_chunk_ring_finish(f->ring);
    }
    mst_feed_wake(f);
}

bool mst_feed_prepare(mst_feed *f)
{
    if (!f->options.lanes_prepare || f->by_lanes || f->busy || f->leaving || !f->producing ||
        f->error.code != MST_OK || !mst_feed_window_wanted(f) || feed_queue_full(f))
        return false;
    uint64_t generation = f->generation, before = f->next_chunk;
    mst_feed_window *w = f->making != NULL ? f->making : window_get(f);
    bool more = true, whole = true;
    f->making = NULL;
    if (w == NULL) {
        mst_error_save(&f->error, mst_fail_memory());
        mst_feed_wake(f);
        return true;
    }
    w->references = 1;
    f->busy = true;
    pthread_mutex_unlock(&f->mutex);
    mst_status st = window_fill(f, w, &more, &whole);
    pthread_mutex_lock(&f->mutex);
    f->busy = false;
    if (feed_stale(f, generation)) {
        mst_feed_unref(f, w);
        mst_feed_wake(f);
        return false;
    }
    if (whole || st != MST_OK) {
        feed_finish_window(f, w, more, st);
        return true;
    }
    f->making = w; /* a chunk that came meanwhile was left to this thread */
    return f->next_chunk != before || mst_chunk_ring_ready(f->ring);
}

/* By lanes: checks chunks, at most CHECK_AHEAD ahead of the lanes. */
static void feed_check_main(mst_feed *f)
{
    pthread_mutex_lock(&f->mutex);
    while (!f->leaving) {
        uint_fast32_t next = atomic_load(&f->next_check);
        bool through = f->producing && next >= f->order.n_chunks;
        f->all_checked |= through && f->check_from == 0;
        if (!f->producing || through || f->error.code != MST_OK || next > f->next_chunk + CHECK_AHEAD) {
            mst_feed_wait_change(f);
            continue;
        }
        f->busy = true;
        pthread_mutex_unlock(&f->mutex);
        mst_feed_check_next(f);
        pthread_mutex_lock(&f->mutex);
        f->busy = false;
        if (!f->producing)
            mst_feed_wake(f);
    }
    pthread_mutex_unlock(&f->mutex);
}

void *mst_feed_window_main(void *arg)
{
    mst_feed *f = arg;
    if (f->dataset->load_is_cheap) /* lanes do the checking themselves when cores are scarce: better than to
                                      take one */
        setpriority(PRIO_PROCESS, (id_t)gettid(), WINDOW_NICE);
    uint64_t generation;
    if (f->by_lanes)
        feed_check_main(f);
    while (feed_wait_wanted(f, &generation)) {
        mst_status st = feed_produce(f, generation);
        if (st != MST_OK) {
            pthread_mutex_lock(&f->mutex);
            mst_error_save(&f->error, st);
            mst_chunk_ring_finish(f->ring);
            mst_feed_wake(f);
            pthread_mutex_unlock(&f->mutex);
        }
        feed_leave_epoch(f);
    }
    return NULL;
}
