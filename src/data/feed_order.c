/* The order of rows: which rows are left out, the order of the chunks, the windows made of them, and the
 * shuffle of the rows of a window. For a dataset with random access the order of an epoch needs counts of
 * kept rows only, so a start at any position looks its window up and loads nothing else.
 *
 * Invariants
 * 1. windows[k].start is the number of kept rows in the chunks before windows[k].first; windows[n_windows]
 * closes the last window.
 * 2. A window ends with the chunk that brings it to shuffle_rows; it has at least one chunk, and may have no
 * row at all (all of them held out).
 * 3. No window begins at or after first_rows. */
#include "base/alloc.h"
#include "base/rng.h"
#include "data/feed_impl.h"

/* True with this probability, as a function of the other arguments alone. */
static bool feed_draw(double probability, uint64_t seed, mst_rng_purpose purpose, uint64_t row)
{
    return (double)(mst_rng_at(seed, purpose, row) >> 11) * 0x1p-53 < probability;
}

static bool feed_in_set(const mst_feed_options *o, uint64_t row)
{
    return o->keep == MST_KEEP_ALL ||
           feed_draw(o->held_out, o->valid_seed, MST_RNG_HOLD_OUT, row) == (o->keep == MST_KEEP_HELD_OUT);
}

static bool feed_samples_negatives(const mst_feed_options *o)
{
    return o->keep_negatives > 0.0 && o->keep_negatives < 1.0;
}

bool mst_feed_keeps(const mst_feed_options *o, uint64_t row, const mst_chunk *chunk, uint32_t i)
{
    if (!feed_in_set(o, row))
        return false;
    return !feed_samples_negatives(o) || mst_label_positive(mst_chunk_label(chunk, i)) ||
           feed_draw(o->keep_negatives, o->seed, MST_RNG_KEEP_NEGATIVES, row);
}

bool mst_feed_keeps_all(const mst_feed_options *o)
{
    return o->keep == MST_KEEP_ALL && !feed_samples_negatives(o);
}

static uint32_t order_chunk_rows(const mst_dataset *d, uint32_t c)
{
    uint64_t left = d->info.n_rows - (uint64_t)c * d->chunk_rows;
    return left < d->chunk_rows ? (uint32_t)left : d->chunk_rows;
}

static mst_status order_count_chunk(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    mst_feed *f = arg;
    uint32_t c = (uint32_t)(first_row / f->dataset->chunk_rows);
    for (uint32_t i = 0; i < chunk->n_rows; i++)
        f->order.kept[c] += mst_feed_keeps(&f->options, first_row + i, chunk, i);
    return MST_OK;
}

static mst_status order_count_kept(mst_feed *f)
{
    mst_dataset *d = f->dataset;
    if (feed_samples_negatives(&f->options))
        return mst_dataset_each(d, f->options.prefetch_threads, order_count_chunk, f);
    for (uint32_t c = 0; c < d->n_chunks; c++) {
        uint64_t first = (uint64_t)c * d->chunk_rows, end = first + order_chunk_rows(d, c);
        for (uint64_t row = first; row < end; row++)
            f->order.kept[c] += feed_in_set(&f->options, row);
    }
    return MST_OK;
}

mst_status mst_feed_order_init(mst_feed *f)
{
    mst_feed_order *p = &f->order;
    size_t n = f->dataset->n_chunks;
    p->chunks = mst_calloc(n + 1, sizeof *p->chunks);
    p->windows = mst_calloc(n + 1, sizeof *p->windows);
    bool all = mst_feed_keeps_all(&f->options);
    if (!all)
        p->kept = mst_calloc(n + 1, sizeof *p->kept);
    if (p->chunks == NULL || p->windows == NULL || (p->kept == NULL && !all))
        return mst_fail_memory();
    if (p->kept != NULL)
        TRY(order_count_kept(f));
    mst_feed_order_epoch(f, 0);
    return MST_OK;
}

void mst_feed_order_fini(mst_feed_order *p)
{
    mst_free(p->kept);
    mst_free(p->chunks);
    mst_free(p->windows);
}

static void order_shuffle_chunks(mst_feed *f)
{
    mst_feed_order *p = &f->order;
    const mst_feed_options *o = &f->options;
    uint32_t n = f->dataset->n_chunks;
    for (uint32_t i = 0; i < n; i++)
        p->chunks[i] = i;
    if (o->shuffle_rows != 0) {
        mst_rng rng;
        mst_rng_init(&rng, o->seed, MST_RNG_CHUNK_ORDER, p->epoch);
        for (uint32_t i = n; i > 1; i--) {
            uint32_t j = mst_rng_below(&rng, i), swap = p->chunks[i - 1];
            p->chunks[i - 1] = p->chunks[j];
            p->chunks[j] = swap;
        }
    }
    p->n_chunks = 0;
    for (uint64_t i = o->shard; i < n; i += o->n_shards)
        p->chunks[p->n_chunks++] = p->chunks[i];
}

void mst_feed_order_epoch(mst_feed *f, uint64_t epoch)
{
    mst_feed_order *p = &f->order;
    const mst_feed_options *o = &f->options;
    uint64_t limit = o->first_rows ? o->first_rows : UINT64_MAX, position = 0;
    uint32_t i = 0;
    p->epoch = epoch;
    order_shuffle_chunks(f);
    p->n_windows = 0;
    while (i < p->n_chunks && position < limit) {
        p->windows[p->n_windows++] = (mst_feed_range){.start = position, .first = i};
        uint64_t rows = 0;
        do {
            uint32_t c = p->chunks[i++];
            rows += p->kept != NULL ? p->kept[c] : order_chunk_rows(f->dataset, c);
        } while (i < p->n_chunks && rows < o->shuffle_rows);
        position += rows;
    }
    p->windows[p->n_windows] = (mst_feed_range){.start = position, .first = i};
    p->n_rows = position < limit ? position : limit;
}

uint32_t mst_feed_order_find(const mst_feed_order *p, uint64_t position)
{
    if (position >= p->windows[p->n_windows].start)
        return p->n_windows;
    uint32_t low = 0, high = p->n_windows; /* windows[low].start <= position < windows[high].start */
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (p->windows[middle].start <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

uint64_t mst_feed_order_chunks(const mst_feed_order *p, uint64_t to)
{
    if (to == 0)
        return 0;
    uint32_t k = mst_feed_order_find(p, to - 1);
    return p->windows[k < p->n_windows ? k + 1 : k].first;
}

/* Shuffles n items of a type, in the order of the window that starts at the position. */
#define SHUFFLE(type, items, n, seed, epoch, start)                                                          \
    do {                                                                                                     \
        mst_rng rng;                                                                                         \
        mst_rng_init(&rng, (seed) ^ (epoch)*0x9E3779B97F4A7C15ull, MST_RNG_ROW_ORDER, start);                \
        for (uint32_t i = n; i > 1; i--) {                                                                   \
            uint32_t j = mst_rng_below(&rng, i);                                                             \
            type swap = (items)[i - 1];                                                                      \
            (items)[i - 1] = (items)[j];                                                                     \
            (items)[j] = swap;                                                                               \
        }                                                                                                    \
    } while (0)

void mst_feed_shuffle(mst_feed_place *order, uint32_t n, uint64_t seed, uint64_t epoch, uint64_t start)
{
    SHUFFLE(mst_feed_place, order, n, seed, epoch, start);
}

bool mst_feed_window_at(const mst_feed *f, uint64_t position, uint64_t *first, uint64_t *end)
{
    const mst_feed_order *p = &f->order;
    if (!mst_feed_has_numbers(f) || !mst_feed_keeps_all(&f->options) || position >= p->n_rows)
        return false;
    uint32_t k = mst_feed_order_find(p, position);
    *first = p->windows[k].start;
    *end = p->windows[k + 1].start;
    return true;
}

void mst_feed_window_numbers(const mst_feed *f, uint64_t first, uint32_t *out)
{
    const mst_feed_order *p = &f->order;
    uint32_t k = mst_feed_order_find(p, first), n = 0;
    for (uint32_t c = p->windows[k].first; c < p->windows[k + 1].first; c++) {
        uint32_t rows = order_chunk_rows(f->dataset, p->chunks[c]);
        uint32_t begin = p->chunks[c] * f->dataset->chunk_rows;
        for (uint32_t i = 0; i < rows; i++)
            out[n++] = begin + i;
    }
    if (f->options.shuffle_rows != 0)
        SHUFFLE(uint32_t, out, n, f->options.seed, p->epoch, first);
}

mst_dataset *mst_feed_chunks(const mst_feed *f)
{
    const mst_feed_options *o = &f->options;
    bool lossy = o->drop_unseen && o->features != 0 && f->dataset->info.n_features > o->features;
    return mst_feed_has_numbers(f) && f->augmented_stride == 0 && o->n_shards == 1 && !lossy ? f->dataset
                                                                                             : NULL;
}

static uint32_t order_first(const mst_feed_order *p, uint64_t position)
{
    return p->windows[mst_feed_order_find(p, position)].first;
}

uint32_t mst_feed_chunk_order(const mst_feed *f, uint64_t position, const uint32_t **chunks)
{
    uint32_t first = order_first(&f->order, position);
    *chunks = f->order.chunks + first;
    return f->order.n_chunks - first;
}

uint32_t mst_feed_chunks_until(const mst_feed *f, uint64_t position, uint64_t to)
{
    return (uint32_t)mst_feed_order_chunks(&f->order, to) - order_first(&f->order, position);
}
