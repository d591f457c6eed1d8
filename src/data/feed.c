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

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"

#define RING      8
#define QUEUE     1
#define LANE_HOLD 4 /* windows a lane's rows may lie in without growing */

typedef struct place {
    uint32_t chunk, row;
} place;

typedef struct window {
    struct window *next; /* in the queue or the pool */
    uint64_t start;      /* position of its first row */
    uint32_t n_rows, n_chunks;
    unsigned references; /* guarded by the mutex */
    place *order;        /* n_rows */
    size_t order_capacity;
    mst_chunk **chunks;
    size_t chunk_capacity;
} window;

typedef struct piece {
    window *w;
    uint32_t from, n;
} piece;

typedef struct lane {
    _Alignas(64) mst_row *rows; /* max_take */
    piece *pieces;
    size_t n_pieces, piece_capacity;
} lane;

struct mst_feed {
    mst_dataset *dataset;
    mst_feed_options options;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* anything below changed */
    pthread_t window_thread, *parse_threads;
    unsigned n_parse_threads;
    bool window_started, leaving;

    /* Production of the current epoch. epoch_number grows with every start; a thread that sees it change
     * drops what it is doing. */
    uint64_t generation, epoch, skip;
    bool producing;        /* an epoch was started and not yet produced to its end */
    unsigned busy;         /* threads at work for a generation */
    uint32_t *chunk_order; /* random access: n_chunks */

    mst_chunk *ring[RING];
    bool ring_full[RING];
    uint64_t ring_next_in,
        ring_next_out;          /* sequence numbers: claimed by parsers, taken by the window thread */
    uint64_t ring_end;          /* sequence number one past the last chunk; UINT64_MAX: not known yet */
    mst_error ring_error;       /* why the chunk at ring_end failed; code MST_OK: it did not */
    pthread_mutex_t read_mutex; /* one reader of the stream at a time */

    window *queue, *current, *pool;
    unsigned queued;
    uint32_t claimed; /* rows of current handed out */
    bool ended;       /* the last window of the epoch is queued or taken */
    mst_error error;  /* code MST_OK: none */
    uint64_t epoch_rows;
    uint64_t wait_ns;

    lane *lanes;
};

/* ---- helpers under the mutex ---- */

static void wake(mst_feed *f)
{
    pthread_cond_broadcast(&f->changed);
}

/* Waits for a change, at most a second: callers look at their condition again, and at deadlines. */
static void wait_change(mst_feed *f)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += 1;
    pthread_cond_timedwait(&f->changed, &f->mutex, &t);
}

static bool stale(const mst_feed *f, uint64_t generation)
{
    return f->leaving || f->generation != generation || f->error.code != MST_OK;
}

static void window_reset(window *w)
{
    for (uint32_t i = 0; i < w->n_chunks; i++)
        mst_chunk_release(w->chunks[i]);
    w->n_chunks = 0;
    w->n_rows = 0;
}

static void window_unref(mst_feed *f, window *w)
{
    if (--w->references != 0)
        return;
    window_reset(w);
    w->next = f->pool;
    f->pool = w;
}

static void window_free(window *w)
{
    if (w == NULL)
        return;
    window_reset(w);
    mst_free(w->order);
    mst_free(w->chunks);
    mst_free(w);
}

/* ---- parse threads: blocks and chunk numbers in, chunks into the ring ---- */

/* Puts a chunk into its slot, waiting for room; releases it when the epoch is over. */
static void ring_put(mst_feed *f, uint64_t generation, uint64_t sequence, mst_chunk *chunk)
{
    pthread_mutex_lock(&f->mutex);
    while (!stale(f, generation) && sequence >= f->ring_next_out + RING)
        wait_change(f);
    if (stale(f, generation)) {
        mst_chunk_release(chunk);
    } else {
        f->ring[sequence % RING] = chunk;
        f->ring_full[sequence % RING] = true;
        wake(f);
    }
    pthread_mutex_unlock(&f->mutex);
}

/* Chunk `sequence` failed: the ring ends there, and the window thread fails when it comes to it. */
static void fail_chunk(mst_feed *f, uint64_t sequence, mst_status st)
{
    if (sequence >= f->ring_end)
        return;
    f->ring_end = sequence;
    mst_error_save(&f->ring_error, st);
    wake(f);
}

/* Claims the next piece of work: a block of the stream, or a chunk number. False at the end or on failure. */
static bool claim_work(mst_feed *f, uint64_t generation, uint64_t *sequence, mst_raw_block **block)
{
    bool claimed = false;
    mst_status st = MST_OK;
    pthread_mutex_lock(&f->read_mutex);
    pthread_mutex_lock(&f->mutex);
    while (!stale(f, generation) && f->ring_next_in >= f->ring_next_out + RING && f->ring_end == UINT64_MAX)
        wait_change(f);
    bool more = !stale(f, generation) && f->ring_next_in < f->ring_end;
    pthread_mutex_unlock(&f->mutex);
    *block = NULL;
    if (more && !f->dataset->random) {
        st = f->dataset->ops->read(f->dataset, block);
        more = st == MST_OK && *block != NULL;
    }
    pthread_mutex_lock(&f->mutex);
    if (st != MST_OK) {
        fail_chunk(f, f->ring_next_in, st);
    } else if (more) {
        *sequence = f->ring_next_in++;
        claimed = true;
    } else if (f->ring_end == UINT64_MAX) {
        f->ring_end = f->ring_next_in;
        wake(f);
    }
    pthread_mutex_unlock(&f->mutex);
    pthread_mutex_unlock(&f->read_mutex);
    return claimed;
}

static void parse_epoch(mst_feed *f, uint64_t generation, mst_chunk_builder *builder)
{
    uint64_t sequence;
    mst_raw_block *block;
    while (claim_work(f, generation, &sequence, &block)) {
        mst_chunk *chunk = NULL;
        mst_status st = f->dataset->random
                            ? f->dataset->ops->load(f->dataset, f->chunk_order[sequence], &chunk)
                            : f->dataset->ops->parse(f->dataset, block, builder, &chunk);
        if (st != MST_OK) {
            pthread_mutex_lock(&f->mutex);
            fail_chunk(f, sequence, st);
            pthread_mutex_unlock(&f->mutex);
            return;
        }
        ring_put(f, generation, sequence, chunk);
    }
}

/* Waits for an epoch newer than *seen; false when the feed is leaving. The caller is counted busy on true. */
static bool wait_epoch(mst_feed *f, uint64_t *seen)
{
    pthread_mutex_lock(&f->mutex);
    while (!f->leaving && (f->generation == *seen || !f->producing))
        wait_change(f);
    bool go = !f->leaving;
    *seen = f->generation;
    f->busy += go;
    pthread_mutex_unlock(&f->mutex);
    return go;
}

static void leave_epoch(mst_feed *f)
{
    pthread_mutex_lock(&f->mutex);
    f->busy--;
    wake(f);
    pthread_mutex_unlock(&f->mutex);
}

static void *parse_main(void *arg)
{
    mst_feed *f = arg;
    mst_chunk_builder builder;
    mst_chunk_builder_init(&builder);
    uint64_t seen = 0;
    while (wait_epoch(f, &seen)) {
        parse_epoch(f, seen, &builder);
        leave_epoch(f);
    }
    mst_chunk_builder_fini(&builder);
    return NULL;
}

/* ---- window thread: chunks in order, windows out ---- */

/* The next chunk of the epoch; *out NULL at its end. */
static mst_status next_chunk(mst_feed *f, uint64_t generation, uint64_t *sequence, mst_chunk **out)
{
    *out = NULL;
    if (f->n_parse_threads == 0) {
        if (*sequence == f->dataset->n_chunks)
            return MST_OK;
        return f->dataset->ops->load(f->dataset, f->chunk_order[(*sequence)++], out);
    }
    mst_status st = MST_OK;
    pthread_mutex_lock(&f->mutex);
    uint64_t slot = *sequence % RING;
    while (!stale(f, generation) && !f->ring_full[slot] && *sequence < f->ring_end)
        wait_change(f);
    if (!stale(f, generation) && f->ring_full[slot]) {
        *out = f->ring[slot];
        f->ring_full[slot] = false;
        f->ring_next_out = ++*sequence;
        wake(f);
    } else if (!stale(f, generation) && f->ring_error.code != MST_OK) {
        st = mst_error_restore(&f->ring_error);
    }
    pthread_mutex_unlock(&f->mutex);
    return st;
}

static bool held_out(const mst_feed_options *o, uint64_t row)
{
    double u = (double)(mst_rng_at(o->seed, MST_RNG_HOLD_OUT, row) >> 11) * 0x1p-53;
    return u < o->held_out;
}

static mst_status check_chunk(const mst_feed *f, const mst_chunk *c, uint64_t first_row)
{
    const mst_feed_options *o = &f->options;
    const char *name = f->dataset->name;
    if (o->features != 0 && c->n_entries != 0 && c->max_key >= o->features)
        return mst_fail(MST_EINPUT,
                        "%s: rows from %llu on have feature %u, but the model has %llu features (0 to %llu)",
                        name, (unsigned long long)first_row, c->max_key, (unsigned long long)o->features,
                        (unsigned long long)o->features - 1);
    if (o->classes == 0 || c->n_rows == 0)
        return MST_OK;
    float lowest = o->classes == 2 ? -1.0f : 0.0f, highest = o->classes == 2 ? 1.0f : (float)(o->classes - 1);
    if (f->dataset->info.scanned && f->dataset->info.labels_integral && c->min_label >= lowest &&
        c->max_label <= highest)
        return MST_OK;
    for (uint32_t i = 0; i < c->n_rows; i++) {
        mst_row row;
        mst_chunk_row(c, i, &row);
        if (!(row.label >= lowest && row.label <= highest) || row.label != rintf(row.label))
            return mst_fail(MST_EINPUT, "%s: row %llu has label %g, which is not %s%u", name,
                            (unsigned long long)(first_row + i), (double)row.label,
                            o->classes == 2 ? "-1, 0 or " : "a class from 0 to ", o->classes - 1);
    }
    return MST_OK;
}

static mst_status window_add(mst_feed *f, window *w, mst_chunk *chunk, uint64_t first_row)
{
    const mst_feed_options *o = &f->options;
    size_t need = (size_t)w->n_rows + chunk->n_rows;
    if (!mst_grow(&w->chunks, &w->chunk_capacity, w->n_chunks + 1u, sizeof *w->chunks) ||
        !mst_grow(&w->order, &w->order_capacity, need, sizeof *w->order)) {
        mst_chunk_release(chunk);
        return mst_fail(MST_ENOMEM, "%s: no memory for a window of %zu rows", f->dataset->name, need);
    }
    uint32_t slot = w->n_chunks++;
    w->chunks[slot] = chunk;
    TRY(check_chunk(f, chunk, first_row));
    for (uint32_t i = 0; i < chunk->n_rows; i++) {
        if (o->keep != MST_KEEP_ALL && held_out(o, first_row + i) != (o->keep == MST_KEEP_HELD_OUT))
            continue;
        w->order[w->n_rows++] = (place){slot, i};
    }
    return MST_OK;
}

static void shuffle(place *order, uint32_t n, uint64_t seed, uint64_t epoch, uint64_t start)
{
    mst_rng rng;
    mst_rng_init(&rng, seed ^ epoch * 0x9E3779B97F4A7C15ull, MST_RNG_ROW_ORDER, start);
    for (uint32_t i = n; i > 1; i--) {
        uint32_t j = mst_rng_below(&rng, i);
        place swap = order[i - 1];
        order[i - 1] = order[j];
        order[j] = swap;
    }
}

/* Queues a window that has rows; the queue owns one reference. Waits for room. False when the epoch is over.
 */
static bool window_put(mst_feed *f, uint64_t generation, window *w)
{
    pthread_mutex_lock(&f->mutex);
    while (!stale(f, generation) && f->queued >= QUEUE)
        wait_change(f);
    w->references = 1;
    bool wanted = !stale(f, generation);
    if (!wanted || w->n_rows == 0) {
        window_unref(f, w);
    } else {
        window **tail = &f->queue;
        while (*tail != NULL)
            tail = &(*tail)->next;
        w->next = NULL;
        *tail = w;
        f->queued++;
        wake(f);
    }
    pthread_mutex_unlock(&f->mutex);
    return wanted;
}

static window *window_get(mst_feed *f)
{
    pthread_mutex_lock(&f->mutex);
    window *w = f->pool;
    if (w != NULL)
        f->pool = w->next;
    pthread_mutex_unlock(&f->mutex);
    return w != NULL ? w : mst_zalloc(sizeof *w);
}

/* Rows of the epoch before the window thread reaches `skip` are dropped; a window that straddles it starts
 * late. */
static mst_status produce_epoch(mst_feed *f, uint64_t generation)
{
    const mst_feed_options *o = &f->options;
    uint64_t sequence = 0, stream_row = 0, position = 0, limit = o->first_rows ? o->first_rows : UINT64_MAX;
    bool more = true;
    while (more && position < limit) {
        window *w = window_get(f);
        if (w == NULL)
            return mst_fail(MST_ENOMEM, "%s: no memory for a window", f->dataset->name);
        mst_status st = MST_OK;
        do {
            mst_chunk *chunk;
            uint64_t c = sequence;
            st = next_chunk(f, generation, &sequence, &chunk);
            more = st == MST_OK && chunk != NULL;
            if (!more)
                break;
            uint64_t first_row =
                f->dataset->random ? (uint64_t)f->chunk_order[c] * f->dataset->chunk_rows : stream_row;
            stream_row += chunk->n_rows;
            st = window_add(f, w, chunk, first_row);
        } while (st == MST_OK && w->n_rows < o->shuffle_rows);
        if (st == MST_ESTOPPED)
            w->n_rows = 0; /* a part of a window is not what a resumed run would order */
        if (o->shuffle_rows != 0)
            shuffle(w->order, w->n_rows, o->seed, f->epoch, position);
        if (w->n_rows > limit - position)
            w->n_rows = (uint32_t)(limit - position);
        w->start = position;
        position += w->n_rows;
        if (position <= f->skip)
            w->n_rows = 0; /* window_put drops it */
        more = window_put(f, generation, w) && more;
        if (st != MST_OK)
            return st;
    }
    pthread_mutex_lock(&f->mutex);
    if (!stale(f, generation)) {
        f->ended = true;
        f->producing = false;
        f->epoch_rows = position;
        f->ring_end = 0; /* parse threads stop, also when first_rows ended the epoch early */
        wake(f);
    }
    pthread_mutex_unlock(&f->mutex);
    return MST_OK;
}

static void *window_main(void *arg)
{
    mst_feed *f = arg;
    uint64_t seen = 0;
    while (wait_epoch(f, &seen)) {
        mst_status st = produce_epoch(f, seen);
        if (st != MST_OK) {
            pthread_mutex_lock(&f->mutex);
            mst_error_save(&f->error, st);
            wake(f);
            pthread_mutex_unlock(&f->mutex);
        }
        leave_epoch(f);
    }
    return NULL;
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
            if (pthread_create(&f->parse_threads[f->n_parse_threads], NULL, parse_main, f) != 0)
                return mst_fail(MST_EIO, "%s: cannot start a reading thread", f->dataset->name);
    }
    if (pthread_create(&f->window_thread, NULL, window_main, f) != 0)
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
            !mst_grow(&f->lanes[i].pieces, &f->lanes[i].piece_capacity, LANE_HOLD, sizeof(piece)))
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
                f->epoch_rows += held_out(options, row) == (options->keep == MST_KEEP_HELD_OUT);
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
            window_unref(f, f->lanes[i].pieces[p].w);
        f->lanes[i].n_pieces = 0;
    }
    if (f->current != NULL)
        window_unref(f, f->current);
    f->current = NULL;
    while (f->queue != NULL) {
        window *w = f->queue;
        f->queue = w->next;
        window_unref(f, w);
    }
    f->queued = 0;
    for (unsigned i = 0; i < RING; i++) {
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
    wake(f);
    pthread_mutex_unlock(&f->mutex);
    if (f->window_started)
        pthread_join(f->window_thread, NULL);
    for (unsigned i = 0; i < f->n_parse_threads; i++)
        pthread_join(f->parse_threads[i], NULL);
    drop_windows(f);
    while (f->pool != NULL) {
        window *w = f->pool;
        f->pool = w->next;
        window_free(w);
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
    wake(f);
    while (f->busy != 0)
        wait_change(f);
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
    wake(f);
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
            window_unref(f, f->current);
        f->current = f->queue;
        if (f->current != NULL) {
            f->queue = f->current->next;
            f->queued--;
            f->claimed = f->skip > f->current->start ? (uint32_t)(f->skip - f->current->start) : 0;
            wake(f);
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
        wait_change(f);
        f->wait_ns += mst_now_ns() - now;
    }
}

static mst_status claim(mst_feed *f, lane *l, uint32_t n, uint32_t *got, uint64_t *position)
{
    *got = 0;
    for (size_t p = 0; p < l->n_pieces; p++)
        window_unref(f, l->pieces[p].w);
    l->n_pieces = 0;
    while (*got < n) {
        bool more;
        TRY(advance(f, &more));
        if (!more)
            break;
        if (!mst_grow(&l->pieces, &l->piece_capacity, l->n_pieces + 1, sizeof *l->pieces))
            return mst_fail(MST_ENOMEM, "%s: no memory for a batch over many windows", f->dataset->name);
        window *w = f->current;
        uint32_t left = w->n_rows - f->claimed, take = n - *got < left ? n - *got : left;
        if (*got == 0)
            *position = w->start + f->claimed;
        l->pieces[l->n_pieces++] = (piece){w, f->claimed, take};
        w->references++;
        f->claimed += take;
        *got += take;
    }
    return MST_OK;
}

/* rows[i] = row `from + i` of the window's order, for n rows. */
static void fill_rows(mst_row *rows, const window *w, uint32_t from, uint32_t n)
{
    enum { AHEAD = 16 };
    const place *order = w->order + from;
    mst_chunk *const *chunks = w->chunks;
    for (uint32_t i = 0; i < n; i++) {
        if (i + AHEAD < n) {
            const place *next = &order[i + AHEAD];
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
    lane *l = &f->lanes[lane_index];
    uint32_t got;
    *position = 0;
    pthread_mutex_lock(&f->mutex);
    mst_status st = claim(f, l, n < f->options.max_take ? n : f->options.max_take, &got, position);
    pthread_mutex_unlock(&f->mutex);
    if (st == MST_OK)
        *batch = (mst_batch){.rows = l->rows, .n_rows = got};
    return st;
}

void mst_feed_fill(mst_feed *f, unsigned lane_index, uint32_t from, uint32_t to)
{
    const lane *l = &f->lanes[lane_index];
    uint32_t start = 0; /* of the piece, in the lane's rows */
    for (size_t p = 0; p < l->n_pieces && start < to; p++) {
        const piece *at = &l->pieces[p];
        uint32_t first = from > start ? from : start, last = to < start + at->n ? to : start + at->n;
        if (first < last)
            fill_rows(l->rows + first, at->w, at->from + (first - start), last - first);
        start += at->n;
    }
}

mst_status mst_feed_take(mst_feed *f, unsigned lane_index, uint32_t n, mst_batch *batch, uint64_t *position)
{
    TRY(mst_feed_claim(f, lane_index, n, batch, position));
    mst_feed_fill(f, lane_index, 0, batch->n_rows);
    return MST_OK;
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
