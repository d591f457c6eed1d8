/* Lanes of the feed: a claim reserves the next rows for a lane, a fill makes the claimed rows. A claim with a
 * deadline hands out rows of a live dataset as they arrive. Ownership and invariants are at the head of
 * feed.c. */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/isa.h"
#include "data/feed_impl.h"
#include "observe/trace_file.h"

/* ---- claims ---- */

void mst_feed_drop_pieces(mst_feed *f, mst_feed_lane *l)
{
    for (size_t p = 0; p < l->n_pieces; p++)
        mst_feed_unref(f, l->pieces[p].w);
    l->n_pieces = 0;
}

static bool feed_stopped(const mst_feed *f)
{
    return f->options.stop != NULL && atomic_load(f->options.stop);
}

/* Under the mutex: waits for a change as a lane that has no rows, until the time and at most a second.
 * MST_ESTOPPED when a stop is requested. */
static mst_status feed_wait_rows(mst_feed *f, uint64_t until_ns)
{
    if (feed_stopped(f))
        return mst_fail_lead(MST_ESTOPPED, "stopped", " while waiting for rows of %s", f->dataset->name);
    uint64_t now = mst_now_ns();
    mst_phase before = mst_span_enter(MST_PHASE_READ);
    mst_feed_wait_change_until(f, until_ns);
    mst_span_enter(before);
    f->wait_ns += mst_now_ns() - now;
    return MST_OK;
}

/* Under the mutex, which is released meanwhile: a lane without rows parses a chunk. False when none is to be
 * parsed now, or when reading may take long: a lane must return soon after a stop request. */
static bool feed_help(mst_feed *f, mst_feed_lane *l)
{
    if (!f->dataset->read_is_cheap || feed_stopped(f))
        return false;
    pthread_mutex_unlock(&f->mutex);
    uint64_t from = mst_now_ns();
    mst_phase before = mst_span_enter(MST_PHASE_READ);
    bool helped = mst_chunk_ring_help(f->ring, &l->builder);
    mst_span_enter(before);
    pthread_mutex_lock(&f->mutex);
    f->wait_ns += helped ? mst_now_ns() - from : 0;
    return helped;
}

/* Makes current a window with the row at `position`; *more is false at the end of the epoch or range. Under
 * the mutex. A current window stays at the end of a range: the next range may begin in it. */
static mst_status feed_advance(mst_feed *f, mst_feed_lane *l, bool *more)
{
    uint64_t begun = 0;
    bool idle = false; /* there was nothing to help with, and the mutex has been held since the last look */
    for (;;) {
        *more = f->position < f->to;
        if (!*more || (f->current != NULL && f->position < f->current->start + f->current->n_rows))
            return MST_OK;
        if (f->current != NULL)
            mst_feed_unref(f, f->current);
        f->current = f->queue;
        if (f->current != NULL) {
            mst_feed_pop_window(f);
            if (!f->by_lanes) /* else no thread waits for room in the queue */
                mst_feed_wake(f);
            continue;
        }
        if (f->error.code != MST_OK)
            return mst_error_restore(&f->error);
        if (f->ended) {
            *more = false;
            return MST_OK;
        }
        if (f->by_lanes) {
            mst_feed_make_window(f);
            continue;
        }
        if (mst_feed_prepare(f)) {
            idle = false;
            continue;
        }
        uint64_t now = mst_now_ns();
        if (begun == 0)
            begun = now;
        if (!f->dataset->live && now - begun > MST_FEED_PATIENCE_S * MST_S)
            return mst_fail(MST_ETIMEOUT, "%s: no rows arrived for %d s", f->dataset->name,
                            MST_FEED_PATIENCE_S);
        if (idle)
            TRY(feed_wait_rows(f, UINT64_MAX));
        idle = !idle && !feed_help(f, l);
    }
}

/* Under the mutex: the lane takes the next n rows, waiting for them; fewer at the end of the epoch or range,
 * and whole units of `unit` rows before rows that have failed. */
static mst_status feed_claim_rows(mst_feed *f, mst_feed_lane *l, uint32_t n, uint32_t unit, uint32_t *got,
                                  uint64_t *position)
{
    *got = 0;
    mst_feed_drop_pieces(f, l);
    while (*got < n) {
        bool more = false;
        mst_status st = feed_advance(f, l, &more);
        if (st != MST_OK && f->error.code != MST_OK && *got >= unit) { /* the next claim gets the failure */
            f->position -= *got % unit;
            *got -= *got % unit;
            return MST_OK;
        }
        TRY(st);
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

/* Room for the keys of all rows that were claimed. */
static mst_status feed_reserve_keys(mst_feed_lane *l)
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

/* *more: false when fewer rows were left. */
static mst_status feed_claim(mst_feed *f, unsigned lane_index, uint32_t n, uint32_t unit, mst_batch *batch,
                             uint64_t *position, bool *more)
{
    mst_feed_lane *l = &f->lanes[lane_index];
    uint32_t got;
    uint64_t start = mst_trace_now();
    *position = 0;
    n = n < f->options.max_take ? n : f->options.max_take;
    TRY(mst_feed_check_files(f, l, false));
    pthread_mutex_lock(&f->mutex);
    mst_feed_prepare(f);
    mst_status st = feed_claim_rows(f, l, n, unit, &got, position);
    *more = got == n || f->error.code != MST_OK;
    pthread_mutex_unlock(&f->mutex);
    if (st == MST_OK && got < n)
        st = mst_feed_check_files(f, l, true);
    if (st == MST_OK)
        st = feed_reserve_keys(l);
    if (st == MST_OK)
        *batch = (mst_batch){.rows = l->rows, .n_rows = got};
    mst_trace_op("claim", start, (mst_trace_output){0});
    return st;
}

mst_status mst_feed_claim(mst_feed *f, unsigned lane_index, uint32_t n, mst_batch *batch, uint64_t *position)
{
    bool more;
    return feed_claim(f, lane_index, n, UINT32_MAX, batch, position, &more);
}

/* ---- claims with a deadline ---- */

/* Under the mutex: rows that can be handed out without waiting. */
static uint64_t feed_rows_at_hand(const mst_feed *f)
{
    uint64_t n = f->queued_rows;
    if (f->current != NULL && f->position < f->current->start + f->current->n_rows)
        n += f->current->start + f->current->n_rows - f->position;
    uint64_t left = f->position < f->to ? f->to - f->position : 0;
    return n < left ? n : left;
}

/* Under the mutex: when ready rows are handed out although they do not fill a unit. */
static uint64_t feed_pause_over_ns(const mst_feed *f)
{
    return feed_rows_at_hand(f) > 0 ? f->arrived_ns + MST_FEED_PAUSE_S * MST_S : UINT64_MAX;
}

/* Under the mutex: how many of n rows to claim now; 0: none yet. */
static uint32_t feed_rows_due(const mst_feed *f, uint32_t n, uint32_t unit)
{
    uint64_t have = feed_rows_at_hand(f);
    bool last = f->ended || f->error.code != MST_OK || f->position + have >= f->to;
    if (have >= n || last)
        return have > 0 && have < n ? (uint32_t)have : n;
    return (uint32_t)(have >= unit ? have - have % unit : mst_now_ns() >= feed_pause_over_ns(f) ? have : 0);
}

/* Under the mutex: waits until some of the n rows may be handed out; *take is 0 when it is too late. */
static mst_status feed_wait_some(mst_feed *f, uint32_t n, uint32_t unit, uint64_t deadline_ns, uint32_t *take)
{
    while ((*take = feed_rows_due(f, n, unit)) == 0 && mst_now_ns() < deadline_ns) {
        uint64_t pause_ns = feed_pause_over_ns(f);
        TRY(feed_wait_rows(f, pause_ns < deadline_ns ? pause_ns : deadline_ns));
    }
    return MST_OK;
}

bool mst_feed_ready(mst_feed *f, uint32_t n)
{
    if (!f->dataset->live || feed_stopped(f))
        return true;
    pthread_mutex_lock(&f->mutex);
    bool ready = feed_rows_due(f, n, n) > 0;
    pthread_mutex_unlock(&f->mutex);
    return ready;
}

mst_status mst_feed_claim_by(mst_feed *f, unsigned lane_index, uint32_t n, uint32_t unit,
                             uint64_t deadline_ns, mst_batch *batch, uint64_t *position, bool *more)
{
    if (!f->dataset->live)
        return feed_claim(f, lane_index, n, unit, batch, position, more);
    mst_feed_lane *l = &f->lanes[lane_index];
    uint32_t take = 0, got = 0;
    *position = 0;
    pthread_mutex_lock(&f->mutex);
    mst_status st =
        feed_wait_some(f, n < f->options.max_take ? n : f->options.max_take, unit, deadline_ns, &take);
    if (st == MST_OK)
        st = feed_claim_rows(f, l, take, unit, &got, position);
    *more = f->position < f->to && !(f->ended && feed_rows_at_hand(f) == 0);
    pthread_mutex_unlock(&f->mutex);
    if (st == MST_OK)
        *batch = (mst_batch){.rows = l->rows, .n_rows = got};
    return st;
}

/* ---- filling claimed rows ---- */

/* Fetches what feed_prefetch_row needs to find the numbers of a row in arrays, and its label. */
static inline void feed_prefetch_place(const mst_chunk *c, uint32_t row)
{
    const mst_row_arrays *a = c->arrays;
    uint64_t at = c->array_row + row;
    if (a == NULL)
        return;
    __builtin_prefetch(a->labels + at); /* of no row where there are none: that has no effect */
    if (a->starts != NULL)
        __builtin_prefetch((const char *)a->starts + at * (a->wide_starts ? 8 : 4));
}

/* Fetches the first cache lines of a row. */
static inline void feed_prefetch_row(const mst_chunk *c, uint32_t row)
{
    if (c->arrays == NULL) {
        const uint32_t *record = c->words + (c->stride ? (size_t)row * c->stride : (size_t)c->offsets[row]);
        __builtin_prefetch(record);
        __builtin_prefetch(record + 16);
        __builtin_prefetch(record + 32);
        return;
    }
    const mst_row_arrays *a = c->arrays;
    uint64_t at = c->array_row + row;
    if (a->starts == NULL) {
        const void *numbers = a->bytes != NULL ? (const void *)(a->bytes + at * a->stride)
                                               : (const void *)(a->dense + at * a->stride);
        __builtin_prefetch(numbers);
        return;
    }
    uint64_t from = mst_array_start(a, at);
    if (a->prefix != 0) {
        __builtin_prefetch(a->prefixed + from);
        __builtin_prefetch(a->prefixed + from + ((a->prefix - 1) | 15)); /* read in vectors */
    }
    from += a->prefix;
    uint64_t to = mst_array_start(a, at + 1);
    __builtin_prefetch(a->keys + from);
    __builtin_prefetch(a->keys + from + 16);
    __builtin_prefetch(a->keys + (to < from + 48 ? to : from + 48) - 1);
    if (a->values != NULL)
        __builtin_prefetch(a->values + from);
}

/* rows[i] = row `from + i` of the window's order, for n rows. */
static void feed_fill_rows(mst_row *rows, const mst_feed_window *w, uint32_t from, uint32_t n)
{
    enum { AHEAD = 16 };
    const mst_feed_place *order = w->order + from;
    mst_chunk *const *chunks = w->chunks;
    for (uint32_t i = 0; i < n; i++) {
        if (i + 2 * AHEAD < n)
            feed_prefetch_place(chunks[order[i + 2 * AHEAD].chunk], order[i + 2 * AHEAD].row);
        if (i + AHEAD < n)
            feed_prefetch_row(chunks[order[i + AHEAD].chunk], order[i + AHEAD].row);
        mst_chunk_row(chunks[order[i].chunk], order[i].row, &rows[i]);
    }
}

/* Of the same rows, those that have lost entries with their chunk. */
static uint64_t feed_count_dropped(const mst_feed_window *w, uint32_t from, uint32_t n)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < n; i++) {
        const mst_feed_place *at = &w->order[from + i];
        count += w->chunks[at->chunk]->dropped != NULL && w->chunks[at->chunk]->dropped[at->row];
    }
    return count;
}

/* Augments the same rows; the first is the lane's row `first`. */
static void feed_augment_rows(const mst_feed *f, const mst_feed_lane *l, const mst_feed_window *w,
                              uint32_t from, uint32_t n, uint32_t first)
{
    for (uint32_t i = 0; i < n; i++) {
        const mst_feed_place *at = &w->order[from + i];
        mst_augment_row(f->options.augment, f->options.training, w->epoch, w->first_rows[at->chunk] + at->row,
                        l->augmented + (size_t)(first + i) * f->augmented_stride, &l->rows[first + i]);
    }
}

/* Copies the keys of n mapped rows to `keys`, each followed by its fields if stored, one row after the other.
 * Nonzero when keys, fields or labels have changed since the check of their chunk. */
MST_WIDE static uint32_t feed_copy_keys(mst_row *rows, const mst_feed_window *w, uint32_t from, uint32_t n,
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
        bad |= mst_chunk_bad_keys(c, keys, count);
        bad |= c->fielded && rows[i].fields == NULL && (uint64_t)c->n_dense + count - 1 > c->max_field;
        rows[i].keys = keys;
        keys += count;
        if (rows[i].fields != NULL) {
            uint16_t *fields = (uint16_t *)keys;
            memcpy(fields, rows[i].fields, count * sizeof *fields);
            bad |= mst_chunk_bad_fields(c, fields, count);
            rows[i].fields = fields;
            keys += (count + 1) / 2;
        }
    }
    return bad;
}

/* Words of a row's keys and stored fields. */
static size_t feed_key_words(const mst_row *row)
{
    return row->n_keys + (row->fields != NULL ? ((size_t)row->n_keys + 1) / 2 : 0);
}

/* Makes n rows, from the lane's row `first` on, independent of changes to their file. */
static mst_status feed_settle_rows(mst_feed *f, mst_feed_lane *l, const mst_feed_window *w, uint32_t from,
                                   uint32_t n, uint32_t first)
{
    size_t n_keys = 0;
    for (uint32_t i = 0; i < n; i++)
        n_keys += feed_key_words(&l->rows[first + i]);
    size_t at = atomic_fetch_add(&l->n_keys, n_keys);
    if (at + n_keys > l->key_capacity)
        return mst_fail(MST_EUSAGE, "%s: rows were filled twice", f->dataset->name);
    if (feed_copy_keys(l->rows + first, w, from, n, l->keys + at) == 0)
        return MST_OK;
    TRY(mst_dataset_intact(f->dataset));
    return mst_fail(MST_EINPUT, "%s was changed while it was in use: a row has a key or a label out of range",
                    f->dataset->name);
}

/* The output are the rows with their numbers. */
static void feed_trace_fill(const mst_row *rows, uint32_t n, uint64_t began)
{
    mst_trace_output out = mst_trace_array(sizeof *rows, n, 0);
    for (uint32_t i = 0; i < n; i++)
        out.bytes += rows[i].n_keys * (rows[i].values != NULL ? 2 : 1) * sizeof(uint32_t) +
                     rows[i].n_dense * (rows[i].bytes != NULL ? 1 : sizeof(float));
    mst_trace_op("fill", began, out);
}

static mst_status feed_fill(mst_feed *f, unsigned lane_index, uint32_t from, uint32_t to, bool augments)
{
    const mst_feed_options *o = &f->options;
    mst_feed_lane *l = &f->lanes[lane_index];
    uint64_t began = mst_trace_now();
    uint32_t start = 0; /* of the piece, in the lane's rows */
    for (size_t p = 0; p < l->n_pieces && start < to; p++) {
        const mst_feed_piece *at = &l->pieces[p];
        uint32_t first = from > start ? from : start, last = to < start + at->n ? to : start + at->n;
        if (first < last) {
            TRY(mst_feed_check_window(f, at->w));
            feed_fill_rows(l->rows + first, at->w, at->from + (first - start), last - first);
            if (at->w->mapped)
                TRY(feed_settle_rows(f, l, at->w, at->from + (first - start), last - first, first));
            if (at->w->unseen)
                atomic_fetch_add(&f->unseen,
                                 feed_count_dropped(at->w, at->from + (first - start), last - first) +
                                     mst_feed_drop_unseen(l->rows + first, last - first, o->features));
            if (augments)
                feed_augment_rows(f, l, at->w, at->from + (first - start), last - first, first);
        }
        start += at->n;
    }
    if (mst_tracing() && to > from)
        feed_trace_fill(l->rows + from, to - from, began);
    return MST_OK;
}

mst_status mst_feed_fill(mst_feed *f, unsigned lane, uint32_t from, uint32_t to)
{
    return feed_fill(f, lane, from, to, f->augmented_stride != 0);
}

mst_status mst_feed_fill_plain(mst_feed *f, unsigned lane, uint32_t from, uint32_t to)
{
    return feed_fill(f, lane, from, to, false);
}

mst_status mst_feed_records(mst_feed *f, unsigned lane_index, uint32_t from, uint32_t to,
                            mst_records *records)
{
    const mst_feed_lane *l = &f->lanes[lane_index];
    const mst_feed_piece *at = l->pieces;
    uint32_t start = 0; /* of the piece, in the lane's rows */
    *records = (mst_records){0};
    if (!f->by_lanes || from >= to || f->augmented_stride != 0)
        return MST_OK;
    for (; start + at->n <= from; at++)
        start += at->n;
    const mst_feed_window *w = at->w;
    const mst_chunk *c = w->chunks[0];
    if (w->order != f->file_order || w->n_chunks != 1 || w->mapped || w->unseen || c->arrays != NULL ||
        c->stride == 0)
        return MST_OK;
    TRY(mst_feed_check_window(f, at->w));
    *records = (mst_records){.n = (to < start + at->n ? to : start + at->n) - from,
                             .stride = c->stride,
                             .weighted = c->has_weights};
    mst_chunk_row(c, at->from + (from - start), &records->first);
    uint32_t length;
    records->words = mst_chunk_record(c, at->from + (from - start), &length);
    return MST_OK;
}

const mst_augment *mst_feed_augment(const mst_feed *f)
{
    return f->augmented_stride != 0 ? f->options.augment : NULL;
}

void mst_feed_crops(const mst_feed *f, unsigned lane_index, uint32_t from, uint32_t to, mst_crop *out)
{
    const mst_feed_lane *l = &f->lanes[lane_index];
    uint32_t start = 0; /* of the piece, in the lane's rows */
    for (size_t p = 0; p < l->n_pieces && start < to; p++) {
        const mst_feed_piece *at = &l->pieces[p];
        uint32_t first = from > start ? from : start, last = to < start + at->n ? to : start + at->n;
        const mst_feed_place *order = at->w->order + at->from;
        for (uint32_t i = first; i < last; i++)
            *out++ = mst_augment_choose(f->options.augment, f->options.training, at->w->epoch,
                                        at->w->first_rows[order[i - start].chunk] + order[i - start].row);
        start += at->n;
    }
}

uint64_t mst_feed_numbers(const mst_feed *f, unsigned lane_index, uint32_t from, uint32_t to, uint32_t *out)
{
    const mst_feed_lane *l = &f->lanes[lane_index];
    uint64_t n_rows = f->dataset->info.n_rows;
    uint32_t start = 0; /* of the piece, in the lane's rows */
    if (!mst_feed_has_numbers(f))
        return 0;
    for (size_t p = 0; p < l->n_pieces && start < to; p++) {
        const mst_feed_piece *at = &l->pieces[p];
        uint32_t first = from > start ? from : start, last = to < start + at->n ? to : start + at->n;
        const mst_feed_place *order = at->w->order + at->from;
        for (uint32_t i = first; i < last; i++)
            *out++ = (uint32_t)(at->w->first_rows[order[i - start].chunk] + order[i - start].row);
        start += at->n;
    }
    return n_rows;
}

mst_status mst_feed_take(mst_feed *f, unsigned lane_index, uint32_t n, mst_batch *batch, uint64_t *position)
{
    TRY(mst_feed_claim(f, lane_index, n, batch, position));
    return mst_feed_fill(f, lane_index, 0, batch->n_rows);
}

mst_status mst_feed_first_rows(const mst_feed *f, uint32_t n, mst_row *rows, uint32_t *n_rows,
                               mst_chunk **chunk)
{
    *n_rows = 0;
    *chunk = NULL;
    if (!f->dataset->random || f->dataset->n_chunks == 0)
        return MST_OK;
    TRY(f->dataset->ops->load(f->dataset, 0, chunk));
    for (; *n_rows < n && *n_rows < (*chunk)->n_rows; (*n_rows)++)
        mst_chunk_row(*chunk, *n_rows, &rows[*n_rows]);
    return MST_OK;
}
