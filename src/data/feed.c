/* The feed; contract in feed.h.
 *
 * Threads: a chunk ring (chunk_ring.h) makes the chunks in order, with threads of its own for streams and for
 * random access that costs work, and with lanes that wait for rows; the window thread collects chunks into
 * windows, shuffles them and queues them; lanes claim slices of the current window. The window thread and the
 * lanes share one mutex, taken once per window or claim, never per row. The ring's mutex is taken after it,
 * never before it.
 *
 * There is no window thread if lanes_prepare is set. A window that was begun is in `making`; a lane that
 * claims rows while the queue has room, and a thread that has made a chunk, add the chunks that are ready to
 * it, one thread at a time (`busy`), and the one that adds the last chunk shuffles and queues it. The others
 * go on with rows, or parse. Random access in file order where chunks are only pointers: a lane that needs a
 * window makes it, which is quicker than to wait for a thread, and the window thread only checks chunks
 * ahead; there is none if no core is left for it.
 *
 * Invariants
 * 1. Chunks leave the ring in order, whichever thread made them.
 * 2. At most QUEUE finished windows wait (for a live dataset: enough to hold max_take rows); so memory is
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
#include "base/cond.h"
#include "base/fault.h"
#include "base/isa.h"
#include "data/feed_impl.h"
#include "observe/spans.h"

#define LANE_HOLD 4 /* windows that a lane's rows may come from without growing */

/* ---- helpers under the mutex ---- */

void mst_feed_wake(mst_feed *f)
{
    pthread_cond_broadcast(&f->changed);
}

void mst_feed_wait_change_until(mst_feed *f, uint64_t until_ns)
{
    mst_cond_wait(&f->changed, &f->mutex, until_ns);
}

void mst_feed_wait_change(mst_feed *f)
{
    mst_feed_wait_change_until(f, UINT64_MAX);
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
    mst_free(w->places);
    mst_free(w->chunks);
    mst_free(w->first_rows);
    mst_free(w);
}

/* ---- life ---- */

static mst_status feed_deal_stream(mst_feed *f)
{
    mst_dataset *d = f->dataset;
    if (!mst_feed_keeps_all(&f->options))
        return mst_fail(MST_EUSAGE,
                        "%s is a stream dealt to %u workers block by block, so rows cannot be left out of it "
                        "by number (%s); use --cache%s",
                        d->name, f->options.n_shards,
                        f->options.keep != MST_KEEP_ALL ? "--valid FRACTION" : "--keep-negatives",
                        f->options.keep != MST_KEEP_ALL ? ", or --valid FILE for the rows to validate on"
                                                        : "");
    return d->ops->deal != NULL ? d->ops->deal(d, f->options.n_shards) : MST_OK;
}

/* Memory of the lanes for augmented rows: address space until it is touched. */
static mst_status feed_prepare_augment(mst_feed *f)
{
    const mst_augment *a = f->options.augment;
    const mst_data_info *info = &f->dataset->info;
    if (a == NULL || !a->any)
        return MST_OK;
    if (info->channels != a->channels || info->height != a->in_height || info->width != a->in_width)
        return mst_fail(MST_EINPUT,
                        "%s: its images are %u x %u x %u, but the model is trained on images of %u x %u x %u",
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

/* Decides whether lanes make windows. */
static mst_status feed_init_lanes(mst_feed *f)
{
    const mst_dataset *d = f->dataset;
    f->by_lanes = d->random && d->load_is_cheap && d->ops->peek != NULL && f->options.shuffle_rows == 0;
    if (!f->by_lanes)
        return MST_OK;
    f->file_order = mst_calloc(d->chunk_rows + 1, sizeof *f->file_order);
    if (f->file_order == NULL)
        return mst_fail_memory();
    for (uint32_t i = 0; i < d->chunk_rows; i++)
        f->file_order[i].row = i;
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
    f->options.lanes_prepare &= !dataset->live;
    if (dataset->window_rows != 0 && f->options.shuffle_rows > dataset->window_rows)
        f->options.shuffle_rows = dataset->window_rows;
    mst_cond_init(&f->changed);
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
        mst_chunk_builder_init(&f->lanes[i].builder);
        f->lanes[i].rows = mst_calloc(options->max_take, sizeof(mst_row));
        if (f->lanes[i].rows == NULL ||
            !mst_grow(&f->lanes[i].pieces, &f->lanes[i].piece_capacity, LANE_HOLD, sizeof(mst_feed_piece)))
            goto out;
    }
    TRY_OUT(st, feed_prepare_augment(f));
    if (dataset->random) {
        TRY_OUT(st, mst_feed_order_init(f));
        f->epoch_rows = f->order.n_rows;
    } else if (f->options.n_shards > 1) {
        TRY_OUT(st, feed_deal_stream(f));
    }
    TRY_OUT(st, mst_feed_ring_init(f));
    TRY_OUT(st, feed_init_lanes(f));
    f->window_started = f->by_lanes ? !f->options.no_core_left : !f->options.lanes_prepare;
    if (f->window_started && pthread_create(&f->window_thread, NULL, mst_feed_window_main, f) != 0) {
        f->window_started = false;
        st = mst_fail(MST_EIO, "%s: cannot start a reading thread", dataset->name);
        goto out;
    }
    *out = f;
    f = NULL;
out:
    mst_feed_destroy(f);
    return st;
}

/* Drops all windows that lanes have not taken; under the mutex, with no thread at work. */
static void feed_drop_windows(mst_feed *f)
{
    if (f->current != NULL)
        mst_feed_unref(f, f->current);
    f->current = NULL;
    if (f->making != NULL)
        mst_feed_unref(f, f->making);
    f->making = NULL;
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
        mst_feed_drop_pieces(f, &f->lanes[i]);
    feed_drop_windows(f);
    while (f->pool != NULL) {
        mst_feed_window *w = f->pool;
        f->pool = w->next;
        window_free(w);
    }
    for (unsigned i = 0; f->lanes != NULL && i < f->options.n_lanes; i++) {
        mst_chunk_builder_fini(&f->lanes[i].builder);
        mst_free(f->lanes[i].rows);
        mst_free(f->lanes[i].pieces);
        mst_pages_release(f->lanes[i].keys, f->lanes[i].key_capacity * sizeof(uint32_t));
        if (f->lanes[i].augmented != NULL)
            mst_pages_release(f->lanes[i].augmented, f->options.max_take * f->augmented_stride);
    }
    mst_free(f->lanes);
    mst_feed_order_fini(&f->order);
    mst_free(f->file_order);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->mutex);
    mst_free(f);
}

/* ---- ranges ---- */

/* The last position, exclusive, of a range up to `to`, as far as it is known. */
static uint64_t feed_end_of(const mst_feed *f, uint64_t to)
{
    uint64_t most = f->dataset->random      ? f->order.n_rows
                    : f->options.first_rows ? f->options.first_rows
                                            : UINT64_MAX;
    return to < most ? to : most;
}

/* Under the mutex: handing out ends at `to`. Production may continue up to it; it never shrinks. */
static void feed_set_end(mst_feed *f, uint64_t to)
{
    f->to = feed_end_of(f, to);
    if (f->dataset->random)
        mst_chunk_ring_extend(f->ring, mst_feed_order_chunks(&f->order, f->to));
    if (mst_feed_window_wanted(f))
        mst_feed_wake(f);
}

void mst_feed_pop_window(mst_feed *f)
{
    f->queued--;
    f->queued_rows -= f->queue->n_rows;
    f->queue = f->queue->next;
}

/* Under the mutex: makes `from` the next position if it is among the ready rows (a stream: or ahead of them),
 * and returns whether it did. */
static bool feed_move_to(mst_feed *f, uint64_t from)
{
    uint64_t begin = f->next_position, end = UINT64_MAX;
    if (f->current != NULL)
        begin = f->current->start;
    else if (f->queue != NULL)
        begin = f->queue->start;
    if (f->dataset->random)
        end = f->order.windows[f->next_window + (f->next_window < f->order.n_windows)].start;
    if (from < begin || from >= end)
        return false;
    if (f->current != NULL && from >= f->current->start + f->current->n_rows) {
        mst_feed_unref(f, f->current);
        f->current = NULL;
    }
    while (f->current == NULL && f->queue != NULL && from >= f->queue->start + f->queue->n_rows) {
        mst_feed_window *w = f->queue;
        mst_feed_pop_window(f);
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
    feed_drop_windows(f);
    f->epoch = epoch;
    f->position = from;
    f->ended = false;
    f->error.code = MST_OK;
    f->next_window = 0;
    f->next_position = f->next_chunk = f->next_row = 0;
    f->blocks_read = 0;
    if (f->dataset->random) {
        if (f->order.epoch != epoch)
            mst_feed_order_epoch(f, epoch);
        f->epoch_rows = f->order.n_rows;
        f->next_window = mst_feed_order_find(&f->order, from);
        f->next_position = f->order.windows[f->next_window].start;
        f->next_chunk = ring_end = f->order.windows[f->next_window].first;
        f->check_from = f->order.windows[f->next_window].first;
        atomic_store(&f->next_check, f->all_checked ? f->order.n_chunks : f->check_from);
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
    if (reload || !same || !feed_move_to(f, from))
        st = feed_restart(f, epoch, from);
    feed_set_end(f, to);
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
        feed_set_end(f, to);
    pthread_mutex_unlock(&f->mutex);
    return st;
}

/* ---- counts ---- */

uint64_t mst_feed_epoch(const mst_feed *f)
{
    return f->epoch;
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
