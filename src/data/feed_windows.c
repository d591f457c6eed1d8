/* The feed's plan of an epoch over a dataset with random access: the order of the chunks, and where the
 * windows made of them begin. Counts of rows are enough for that, so a start at any position looks its window
 * up and loads nothing else.
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

static bool held_out(const mst_feed_options *o, uint64_t row)
{
    double u = (double)(mst_rng_at(o->valid_seed, MST_RNG_HOLD_OUT, row) >> 11) * 0x1p-53;
    return u < o->held_out;
}

bool mst_feed_keeps(const mst_feed_options *o, uint64_t row)
{
    return o->keep == MST_KEEP_ALL || held_out(o, row) == (o->keep == MST_KEEP_HELD_OUT);
}

static uint32_t rows_of_chunk(const mst_dataset *d, uint32_t c)
{
    uint64_t left = d->info.n_rows - (uint64_t)c * d->chunk_rows;
    return left < d->chunk_rows ? (uint32_t)left : d->chunk_rows;
}

static void count_kept(mst_feed *f)
{
    const mst_dataset *d = f->dataset;
    for (uint32_t c = 0; c < d->n_chunks; c++) {
        uint64_t first = (uint64_t)c * d->chunk_rows, end = first + rows_of_chunk(d, c);
        for (uint64_t row = first; row < end; row++)
            f->plan.kept[c] += mst_feed_keeps(&f->options, row);
    }
}

mst_status mst_feed_plan_init(mst_feed *f)
{
    mst_feed_plan *p = &f->plan;
    size_t n = f->dataset->n_chunks;
    p->order = mst_calloc(n + 1, sizeof *p->order);
    p->windows = mst_calloc(n + 1, sizeof *p->windows);
    if (f->options.keep != MST_KEEP_ALL)
        p->kept = mst_calloc(n + 1, sizeof *p->kept);
    if (p->order == NULL || p->windows == NULL || (p->kept == NULL && f->options.keep != MST_KEEP_ALL))
        return mst_fail_memory();
    if (p->kept != NULL)
        count_kept(f);
    mst_feed_plan_epoch(f, 0);
    return MST_OK;
}

void mst_feed_plan_fini(mst_feed_plan *p)
{
    mst_free(p->kept);
    mst_free(p->order);
    mst_free(p->windows);
}

static void order_chunks(mst_feed *f)
{
    mst_feed_plan *p = &f->plan;
    const mst_feed_options *o = &f->options;
    uint32_t n = f->dataset->n_chunks;
    for (uint32_t i = 0; i < n; i++)
        p->order[i] = i;
    if (o->shuffle_rows != 0) {
        mst_rng rng;
        mst_rng_init(&rng, o->seed, MST_RNG_CHUNK_ORDER, p->epoch);
        for (uint32_t i = n; i > 1; i--) {
            uint32_t j = mst_rng_below(&rng, i), swap = p->order[i - 1];
            p->order[i - 1] = p->order[j];
            p->order[j] = swap;
        }
    }
    p->n_order = 0;
    for (uint64_t i = o->shard; i < n; i += o->n_shards)
        p->order[p->n_order++] = p->order[i];
}

void mst_feed_plan_epoch(mst_feed *f, uint64_t epoch)
{
    mst_feed_plan *p = &f->plan;
    const mst_feed_options *o = &f->options;
    uint64_t limit = o->first_rows ? o->first_rows : UINT64_MAX, position = 0;
    uint32_t i = 0;
    p->epoch = epoch;
    order_chunks(f);
    p->n_windows = 0;
    while (i < p->n_order && position < limit) {
        p->windows[p->n_windows++] = (mst_feed_range){.start = position, .first = i};
        uint64_t rows = 0;
        do {
            uint32_t c = p->order[i++];
            rows += p->kept != NULL ? p->kept[c] : rows_of_chunk(f->dataset, c);
        } while (i < p->n_order && rows < o->shuffle_rows);
        position += rows;
    }
    p->windows[p->n_windows] = (mst_feed_range){.start = position, .first = i};
    p->n_rows = position < limit ? position : limit;
}

uint32_t mst_feed_plan_find(const mst_feed_plan *p, uint64_t position)
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

uint64_t mst_feed_plan_chunks(const mst_feed_plan *p, uint64_t to)
{
    if (to == 0)
        return 0;
    uint32_t k = mst_feed_plan_find(p, to - 1);
    return p->windows[k < p->n_windows ? k + 1 : k].first;
}
