/* The feed; contract in feed.h.
 *
 * Threads: a chunk ring (chunk_ring.h) makes the chunks in order, with threads of its own for streams and for
 * random access that costs work; the window thread collects chunks into windows, shuffles them and queues
 * them; lanes claim slices of the current window. The window thread and the lanes share one mutex, taken once
 * per window or claim, never per row. The ring's mutex is taken after it, never before it.
 *
 * Invariants
 * 1. Chunks leave the ring in order, whichever thread made them.
 * 2. At most QUEUE finished windows wait, of a live dataset as many as make up max_take rows; so memory is
 * bounded by the ring, the window being built, those queued, and those that lanes hold.
 * 3. A window's rows and order never change after it is queued; it returns to the pool with its last
 * reference.
 * 4. The first failure in the order of the epoch is kept and ends production; lanes get it after all windows
 * before it, and no rows of its own window.
 * 5. current, the queue and the next window to be produced are consecutive. A range that begins inside these
 * *ready* rows only moves `position` and drops the rows before it.
 * 6. Keys and labels that lanes get were checked in memory that no other process can change, unless any_keys
 * is set. Dense numbers and values stay in the file: they can become wrong, but they address nothing.
 * 7. No row at or beyond `to` is handed out, and no window that begins there is begun; `to` is at most
 * first_rows, and for random access at most the rows of the epoch. */
#include "data/feed.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/isa.h"
#include "data/feed_impl.h"
#include "observe/spans.h"

#define LOOK_NS   (20 * MST_MS) /* between looks at the files */
#define LANE_HOLD 4             /* windows that a lane's rows may come from without growing */

/* ---- helpers under the mutex ---- */

void mst_feed_wake(mst_feed *f)
{
    pthread_cond_broadcast(&f->changed);
}

/* Waits for a change until the time, at most a second. */
static void wait_change_until(mst_feed *f, uint64_t until_ns)
{
    uint64_t most = mst_now_ns() + MST_S, at = until_ns < most ? until_ns : most;
    struct timespec t = {.tv_sec = (time_t)(at / MST_S), .tv_nsec = (long)(at % MST_S)};
    pthread_cond_timedwait(&f->changed, &f->mutex, &t);
}

void mst_feed_wait_change(mst_feed *f)
{
    wait_change_until(f, UINT64_MAX);
}

static void window_reset(mst_feed_window *w)
{
    for (uint32_t i = 0; i < w->n_chunks; i++)
        mst_chunk_release(w->chunks[i]);
    w->n_chunks = 0;
    w->n_rows = 0;
    w->unseen = false;
    w->mapped = false;
    w->n_keys = 0;
}

void mst_feed_unref(mst_feed *f, mst_feed_window *w)
{
    if (--w->references != 0)
        return;
    window_reset(w);
    w->next = f->pool;
    f->pool = w;
}

static void window_free(mst_feed_window *w)
{
    if (w == NULL)
        return;
    window_reset(w);
    mst_free(w->order);
    mst_free(w->chunks);
    mst_free(w->first_rows);
    mst_free(w);
}

/* ---- life ---- */

static mst_status deal_stream(mst_feed *f)
{
    mst_dataset *d = f->dataset;
    if (f->options.keep != MST_KEEP_ALL)
        return mst_fail(MST_EUSAGE,
                        "%s is a stream dealt to %u workers block by block, so rows cannot be held out of it "
                        "by number; use --cache, or --valid FILE for the rows to validate on",
                        d->name, f->options.n_shards);
    return d->ops->deal != NULL ? d->ops->deal(d, f->options.n_shards) : MST_OK;
}

/* Memory of the lanes for augmented rows: address space until it is touched. */
static mst_status prepare_augment(mst_feed *f)
{
    const mst_augment *a = f->options.augment;
    const mst_data_info *info = &f->dataset->info;
    if (a == NULL || !a->any)
        return MST_OK;
    if (info->channels != a->channels || info->height != a->in_height || info->width != a->in_width)
        return mst_fail(MST_EINPUT,
                        "%s: its images have %u x %u x %u numbers, and those trained on %u x %u x %u",
                        f->dataset->name, info->channels, info->height, info->width, a->channels,
                        a->in_height, a->in_width);
    f->augmented_stride = (mst_augment_out(a) * sizeof(float) + 63) & ~(size_t)63;
    for (unsigned i = 0; i < f->options.n_lanes; i++) {
        f->lanes[i].augmented = mst_pages_reserve(f->options.max_take * f->augmented_stride, false);
        if (f->lanes[i].augmented == NULL)
            return mst_fail_memory();
    }
    return MST_OK;
}

mst_status mst_feed_new(mst_dataset *dataset, const mst_feed_options *options, mst_feed **out)
{
    mst_status st;
    mst_feed *f = mst_zalloc(sizeof *f);
    if (f == NULL)
        return mst_fail_memory();
    f->dataset = dataset;
    f->options = *options;
    if (f->options.n_shards == 0)
        f->options.n_shards = 1;
    if (dataset->window_rows != 0 && f->options.shuffle_rows > dataset->window_rows)
        f->options.shuffle_rows = dataset->window_rows;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&f->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&f->mutex, NULL);
    if (f->options.shard >= f->options.n_shards) {
        st = mst_fail(MST_EUSAGE, "%s: there is no shard %u of %u; they are numbered from 0", dataset->name,
                      f->options.shard, f->options.n_shards);
        goto out;
    }
    st = mst_fail_memory();
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
    TRY_OUT(st, prepare_augment(f));
    if (dataset->random) {
        TRY_OUT(st, mst_feed_plan_init(f));
        f->epoch_rows = f->plan.n_rows;
    } else if (f->options.n_shards > 1) {
        TRY_OUT(st, deal_stream(f));
    }
    TRY_OUT(st, mst_feed_ring_init(f));
    if (pthread_create(&f->window_thread, NULL, mst_feed_window_main, f) != 0) {
        st = mst_fail(MST_EIO, "%s: cannot start a reading thread", dataset->name);
        goto out;
    }
    f->window_started = true;
    *out = f;
    f = NULL;
out:
    mst_feed_destroy(f);
    return st;
}

/* Drops the references of a lane; under the mutex. */
static void drop_pieces(mst_feed *f, mst_feed_lane *l)
{
    for (size_t p = 0; p < l->n_pieces; p++)
        mst_feed_unref(f, l->pieces[p].w);
    l->n_pieces = 0;
}

/* Drops all windows that lanes have not taken; under the mutex, with no thread at work. */
static void drop_windows(mst_feed *f)
{
    if (f->current != NULL)
        mst_feed_unref(f, f->current);
    f->current = NULL;
    while (f->queue != NULL) {
        mst_feed_window *w = f->queue;
        f->queue = w->next;
        mst_feed_unref(f, w);
    }
    f->queued = 0;
    f->queued_rows = 0;
}

void mst_feed_destroy(mst_feed *f)
{
    if (f == NULL)
        return;
    pthread_mutex_lock(&f->mutex);
    f->leaving = true;
    mst_feed_wake(f);
    pthread_mutex_unlock(&f->mutex);
    if (f->dataset->live && f->dataset->ops->interrupt != NULL)
        f->dataset->ops->interrupt(f->dataset);
    if (f->ring != NULL)
        mst_chunk_ring_stop(f->ring);
    if (f->window_started)
        pthread_join(f->window_thread, NULL);
    mst_chunk_ring_destroy(f->ring);
    for (unsigned i = 0; f->lanes != NULL && i < f->options.n_lanes; i++)
        drop_pieces(f, &f->lanes[i]);
    drop_windows(f);
    while (f->pool != NULL) {
        mst_feed_window *w = f->pool;
        f->pool = w->next;
        window_free(w);
    }
    for (unsigned i = 0; f->lanes != NULL && i < f->options.n_lanes; i++) {
        mst_free(f->lanes[i].rows);
        mst_free(f->lanes[i].pieces);
        mst_pages_release(f->lanes[i].keys, f->lanes[i].key_capacity * sizeof(uint32_t));
        if (f->lanes[i].augmented != NULL)
            mst_pages_release(f->lanes[i].augmented, f->options.max_take * f->augmented_stride);
    }
    mst_free(f->lanes);
    mst_feed_plan_fini(&f->plan);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->mutex);
    mst_free(f);
}

/* ---- ranges ---- */

/* Where handing out up to `to` ends, as far as that is known. */
static uint64_t feed_end_of(const mst_feed *f, uint64_t to)
{
    uint64_t most = f->dataset->random      ? f->plan.n_rows
                    : f->options.first_rows ? f->options.first_rows
                                            : UINT64_MAX;
    return to < most ? to : most;
}

/* Under the mutex: handing out ends at `to`. Production may continue up to it; it never shrinks. */
static void set_end(mst_feed *f, uint64_t to)
{
    f->to = feed_end_of(f, to);
    if (f->dataset->random)
        mst_chunk_ring_extend(f->ring, mst_feed_plan_chunks(&f->plan, f->to));
    if (mst_feed_window_wanted(f))
        mst_feed_wake(f);
}

/* Under the mutex: takes the first window off the queue. */
static void pop_window(mst_feed *f)
{
    f->queued--;
    f->queued_rows -= f->queue->n_rows;
    f->queue = f->queue->next;
}

/* Under the mutex: makes `from` the next position if it is among the ready rows (a stream: or ahead of them),
 * and returns whether it did. */
static bool move_to(mst_feed *f, uint64_t from)
{
    uint64_t begin = f->next_position, end = UINT64_MAX;
    if (f->current != NULL)
        begin = f->current->start;
    else if (f->queue != NULL)
        begin = f->queue->start;
    if (f->dataset->random)
        end = f->plan.windows[f->next_window + (f->next_window < f->plan.n_windows)].start;
    if (from < begin || from >= end)
        return false;
    if (f->current != NULL && from >= f->current->start + f->current->n_rows) {
        mst_feed_unref(f, f->current);
        f->current = NULL;
    }
    while (f->current == NULL && f->queue != NULL && from >= f->queue->start + f->queue->n_rows) {
        mst_feed_window *w = f->queue;
        pop_window(f);
        mst_feed_unref(f, w);
        mst_feed_wake(f);
    }
    f->position = from;
    return true;
}

/* Under the mutex: drops everything and starts the epoch again, at the window that holds `from`. */
static mst_status feed_restart(mst_feed *f, uint64_t epoch, uint64_t from)
{
    mst_status st = MST_OK;
    bool begun = f->generation != 0;
    uint64_t ring_end = UINT64_MAX;
    f->generation++;
    f->producing = false;
    mst_feed_wake(f);
    pthread_mutex_unlock(&f->mutex);
    mst_chunk_ring_stop(f->ring);
    pthread_mutex_lock(&f->mutex);
    while (f->busy)
        mst_feed_wait_change(f);
    drop_windows(f);
    f->epoch = epoch;
    f->position = from;
    f->ended = false;
    f->error.code = MST_OK;
    f->next_window = 0;
    f->next_position = f->next_chunk = f->next_row = 0;
    f->blocks_read = 0;
    if (f->dataset->random) {
        if (f->plan.epoch != epoch)
            mst_feed_plan_epoch(f, epoch);
        f->epoch_rows = f->plan.n_rows;
        f->next_window = mst_feed_plan_find(&f->plan, from);
        f->next_position = f->plan.windows[f->next_window].start;
        f->next_chunk = ring_end = f->plan.windows[f->next_window].first;
    } else if (begun) {
        st = f->dataset->ops->rewind(f->dataset);
        if (st != MST_OK)
            mst_error_save(&f->error, st);
    }
    if (st == MST_OK)
        mst_chunk_ring_start(f->ring, f->next_chunk, ring_end);
    f->generation++;
    f->producing = true;
    return st;
}

static mst_status feed_start(mst_feed *f, uint64_t epoch, uint64_t from, uint64_t to, bool reload)
{
    mst_status st = MST_OK;
    pthread_mutex_lock(&f->mutex);
    bool same = f->producing && f->error.code == MST_OK && f->epoch == epoch;
    if (reload || !same || !move_to(f, from))
        st = feed_restart(f, epoch, from);
    set_end(f, to);
    pthread_mutex_unlock(&f->mutex);
    return st;
}

mst_status mst_feed_start(mst_feed *f, uint64_t epoch, uint64_t position)
{
    return feed_start(f, epoch, position, UINT64_MAX, true);
}

mst_status mst_feed_start_range(mst_feed *f, uint64_t epoch, uint64_t from, uint64_t to)
{
    return feed_start(f, epoch, from, to, false);
}

mst_status mst_feed_extend(mst_feed *f, uint64_t to)
{
    mst_status st = MST_OK;
    pthread_mutex_lock(&f->mutex);
    if (f->generation == 0)
        st = mst_fail(MST_EUSAGE, "%s: no epoch has been started", f->dataset->name);
    else if (feed_end_of(f, to) > f->to) /* else no thread is woken: workers extend with every step */
        set_end(f, to);
    pthread_mutex_unlock(&f->mutex);
    return st;
}

/* ---- lanes ---- */

mst_status mst_feed_wait_rows(mst_feed *f, uint64_t until_ns)
{
    if (f->options.stop != NULL && atomic_load(f->options.stop))
        return mst_fail_lead(MST_ESTOPPED, "stopped", " while waiting for rows of %s", f->dataset->name);
    uint64_t now = mst_now_ns();
    mst_phase before = mst_span_enter(MST_PHASE_READ);
    wait_change_until(f, until_ns);
    mst_span_enter(before);
    f->wait_ns += mst_now_ns() - now;
    return MST_OK;
}

/* Makes current a window with the row at `position`; *more is false at the end of the epoch or range. Under
 * the mutex. A current window stays at the end of a range: the next range may begin in it. */
static mst_status feed_advance(mst_feed *f, bool *more)
{
    uint64_t begun = 0;
    for (;;) {
        *more = f->position < f->to;
        if (!*more || (f->current != NULL && f->position < f->current->start + f->current->n_rows))
            return MST_OK;
        if (f->current != NULL)
            mst_feed_unref(f, f->current);
        f->current = f->queue;
        if (f->current != NULL) {
            pop_window(f);
            mst_feed_wake(f);
            continue;
        }
        if (f->error.code != MST_OK)
            return mst_error_restore(&f->error);
        if (f->ended) {
            *more = false;
            return MST_OK;
        }
        uint64_t now = mst_now_ns();
        if (begun == 0)
            begun = now;
        if (!f->dataset->live && now - begun > MST_FEED_PATIENCE_S * MST_S)
            return mst_fail(MST_ETIMEOUT, "%s: no rows arrived for %d s", f->dataset->name,
                            MST_FEED_PATIENCE_S);
        TRY(mst_feed_wait_rows(f, UINT64_MAX));
    }
}

mst_status mst_feed_claim_rows(mst_feed *f, mst_feed_lane *l, uint32_t n, uint32_t *got, uint64_t *position)
{
    *got = 0;
    drop_pieces(f, l);
    while (*got < n) {
        bool more = false;
        TRY(feed_advance(f, &more));
        if (!more)
            break;
        if (!mst_grow(&l->pieces, &l->piece_capacity, l->n_pieces + 1, sizeof *l->pieces))
            return mst_fail_memory();
        mst_feed_window *w = f->current;
        uint32_t from = (uint32_t)(f->position - w->start), take = n - *got;
        if (take > w->n_rows - from)
            take = w->n_rows - from;
        if (take > f->to - f->position)
            take = (uint32_t)(f->to - f->position);
        if (*got == 0)
            *position = f->position;
        l->pieces[l->n_pieces++] = (mst_feed_piece){w, from, take};
        w->references++;
        f->position += take;
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

/* Augments the same rows; the first is the lane's row `first`. */
static void augment_rows(const mst_feed *f, const mst_feed_lane *l, const mst_feed_window *w, uint32_t from,
                         uint32_t n, uint32_t first)
{
    for (uint32_t i = 0; i < n; i++) {
        const mst_feed_place *at = &w->order[from + i];
        mst_augment_row(f->options.augment, f->options.training, w->epoch, w->first_rows[at->chunk] + at->row,
                        l->augmented + (size_t)(first + i) * f->augmented_stride, &l->rows[first + i]);
    }
}

/* Copies the keys of n mapped rows to `keys`, one row after the other. Nonzero when keys or labels have
 * changed since the check of their chunk. */
MST_WIDE static uint32_t copy_keys(mst_row *rows, const mst_feed_window *w, uint32_t from, uint32_t n,
                                   uint32_t *keys)
{
    uint32_t bad = 0;
    for (uint32_t i = 0; i < n; i++) {
        const mst_chunk *c = w->chunks[w->order[from + i].chunk];
        uint32_t count = rows[i].n_keys;
        bad |= !(rows[i].label >= c->min_label && rows[i].label <= c->max_label);
        if (count == 0)
            continue;
        memcpy(keys, rows[i].keys, count * sizeof *keys);
        for (uint32_t j = 1; j < count; j++)
            bad |= keys[j] < keys[j - 1];
        bad |= keys[0] < c->n_dense || keys[count - 1] > c->max_key;
        rows[i].keys = keys;
        keys += count;
    }
    return bad;
}

/* Makes n rows, from the lane's row `first` on, independent of changes to their file. */
static mst_status feed_settle_rows(mst_feed *f, mst_feed_lane *l, const mst_feed_window *w, uint32_t from,
                                   uint32_t n, uint32_t first)
{
    size_t n_keys = 0;
    for (uint32_t i = 0; i < n; i++)
        n_keys += l->rows[first + i].n_keys;
    size_t at = atomic_fetch_add(&l->n_keys, n_keys);
    if (at + n_keys > l->key_capacity)
        return mst_fail(MST_EUSAGE, "%s: rows were filled twice", f->dataset->name);
    if (copy_keys(l->rows + first, w, from, n, l->keys + at) == 0)
        return MST_OK;
    TRY(mst_dataset_intact(f->dataset));
    return mst_fail(MST_EINPUT, "%s was changed while it was in use: a row has a key or a label out of range",
                    f->dataset->name);
}

/* Room for the keys of all rows that were claimed. */
static mst_status reserve_keys(mst_feed_lane *l)
{
    size_t need = 0;
    for (size_t p = 0; p < l->n_pieces; p++)
        need += l->pieces[p].w->n_keys;
    atomic_store(&l->n_keys, 0);
    if (need <= l->key_capacity)
        return MST_OK;
    mst_pages_release(l->keys, l->key_capacity * sizeof *l->keys);
    l->key_capacity = 0;
    l->keys = mst_pages_reserve(need * sizeof *l->keys, false);
    if (l->keys == NULL)
        return mst_fail_memory();
    l->key_capacity = need;
    return MST_OK;
}

/* Fails when a file that rows came from has changed meanwhile. Looks now and then, or where it is due. */
static mst_status look_at_files(mst_feed *f, mst_feed_lane *l, bool due)
{
    uint64_t faults = mst_fault_count(), now = f->dataset->ops->intact != NULL ? mst_now_ns() : 0;
    if (now == 0 || (!due && faults == l->faults && now < l->look_ns))
        return MST_OK;
    TRY(mst_dataset_intact(f->dataset));
    uint64_t end = mst_now_ns();
    l->faults = faults;
    l->look_ns = end + LOOK_NS + 100 * (end - now); /* at most 1% of the time */
    return MST_OK;
}

/* Leaves the features at or beyond `features` out of n rows; returns how many rows had some. */
static uint64_t drop_unseen(mst_row *rows, uint32_t n, uint64_t features)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        mst_row *row = &rows[i];
        uint32_t before = row->n_dense + row->n_keys;
        if (row->n_dense > features)
            row->n_dense = (uint32_t)features;
        while (row->n_keys > 0 && row->keys[row->n_keys - 1] >= features) /* they ascend */
            row->n_keys--;
        count += row->n_dense + row->n_keys < before;
    }
    return count;
}

mst_status mst_feed_claim(mst_feed *f, unsigned lane_index, uint32_t n, mst_batch *batch, uint64_t *position)
{
    mst_feed_lane *l = &f->lanes[lane_index];
    uint32_t got;
    *position = 0;
    n = n < f->options.max_take ? n : f->options.max_take;
    TRY(look_at_files(f, l, false));
    pthread_mutex_lock(&f->mutex);
    mst_status st = mst_feed_claim_rows(f, l, n, &got, position);
    pthread_mutex_unlock(&f->mutex);
    if (st == MST_OK && got < n)
        st = look_at_files(f, l, true);
    if (st == MST_OK)
        st = reserve_keys(l);
    if (st == MST_OK)
        *batch = (mst_batch){.rows = l->rows, .n_rows = got};
    return st;
}

mst_status mst_feed_fill(mst_feed *f, unsigned lane_index, uint32_t from, uint32_t to)
{
    const mst_feed_options *o = &f->options;
    mst_feed_lane *l = &f->lanes[lane_index];
    uint32_t start = 0; /* of the piece, in the lane's rows */
    for (size_t p = 0; p < l->n_pieces && start < to; p++) {
        const mst_feed_piece *at = &l->pieces[p];
        uint32_t first = from > start ? from : start, last = to < start + at->n ? to : start + at->n;
        if (first < last) {
            TRY(mst_feed_check_window(at->w));
            fill_rows(l->rows + first, at->w, at->from + (first - start), last - first);
            if (at->w->mapped)
                TRY(feed_settle_rows(f, l, at->w, at->from + (first - start), last - first, first));
            if (at->w->unseen)
                atomic_fetch_add(&f->unseen, drop_unseen(l->rows + first, last - first, o->features));
            if (f->augmented_stride != 0)
                augment_rows(f, l, at->w, at->from + (first - start), last - first, first);
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

uint64_t mst_feed_unseen(const mst_feed *f)
{
    return atomic_load(&((mst_feed *)f)->unseen);
}

double mst_feed_wait_seconds(const mst_feed *f)
{
    pthread_mutex_lock((pthread_mutex_t *)&f->mutex);
    uint64_t wait_ns = f->wait_ns;
    pthread_mutex_unlock((pthread_mutex_t *)&f->mutex);
    return (double)wait_ns * 1e-9;
}
