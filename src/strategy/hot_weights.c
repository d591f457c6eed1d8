/* Hot weights; contract in hot_weights.h.
 *
 * Each thread has two arrays of the same layout: `mine`, which it trains on, and `base`, the shared value
 * that it saw last. To publish: shared += mine - base; mine = base = shared, under a lock that is held for
 * less than a microsecond. No update is lost here, unlike in the unlocked part.
 *
 * The unit is a line of 16 keys, because threads compete for cache lines: adjacent keys can make a line
 * popular although none of them is popular alone.
 *
 * Layout of each array, in floats: [dense ranges, each on its own lines][popular lines]. */
#include "strategy/hot_weights.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define LINE        16                                     /* keys */
#define STRIDE      (MST_HOT_DENSE + MST_HOT_LINES * LINE) /* floats of one array */
#define POPULAR     64  /* a line is popular if at least 1 of 64 rows touches it */
#define TRIES       16  /* hash factors tried for a map that drops few lines */
#define SAMPLE_ROWS 512 /* rows of the sample */

typedef struct popular {
    uint32_t line, count;
} popular;

struct mst_hot_weights {
    const mst_model *model;
    mst_params *params;
    unsigned n_threads;
    mst_grad layout;
    uint32_t range_at[MST_RANGE_MAX]; /* place of each dense range in the arrays */
    uint32_t n_dense;                 /* floats taken by the dense ranges */
    uint32_t prefix, prefix_at;       /* keys below `prefix` are in a dense range, from prefix_at on */
    uint32_t n_lines;
    uint32_t lines[MST_HOT_LINES];
    mst_key_map *maps; /* n_threads */
    float *shared;     /* STRIDE */
    float *base;       /* n_threads * STRIDE */
    mst_weights *weights;
    popular *counts; /* scratch of begin */
    size_t count_capacity;
    _Alignas(64) atomic_flag busy[2]; /* dense, lines */
};

/* The array of thread t; it begins at a multiple of 16 floats in the spare part. */
static float *hot_mine(const mst_hot_weights *hot, unsigned t)
{
    return hot->params->w + hot->params->size + (uint64_t)t * STRIDE;
}

uint64_t mst_hot_weights_spare(unsigned n_threads)
{
    return (uint64_t)n_threads * STRIDE;
}

mst_status mst_hot_weights_new(const mst_model *model, mst_params *params, unsigned n_threads,
                               mst_hot_weights **out)
{
    mst_grad layout = {0};
    uint32_t n_dense = 0, range_at[MST_RANGE_MAX];
    *out = NULL;
    model->ops->layout(model, params, &layout);
    if (layout.width != 1 || params->size + params->spare > UINT32_MAX ||
        params->spare < mst_hot_weights_spare(n_threads))
        return MST_OK;
    for (uint32_t i = 0; i < layout.n_ranges; i++) {
        if (layout.ranges[i].size > MST_HOT_DENSE - n_dense)
            return MST_OK;
        range_at[i] = n_dense;
        n_dense += (uint32_t)(layout.ranges[i].size + 15) / 16 * 16;
        if (n_dense > MST_HOT_DENSE)
            return MST_OK;
    }
    mst_hot_weights *hot = mst_alloc_lines(sizeof *hot);
    if (hot == NULL)
        return mst_fail_memory();
    *hot = (mst_hot_weights){
        .model = model, .params = params, .n_threads = n_threads, .layout = layout, .n_dense = n_dense};
    for (uint32_t i = 0; i < layout.n_ranges; i++) {
        hot->range_at[i] = range_at[i];
        if (layout.ranges[i].offset == layout.sparse_offset) {
            hot->prefix = (uint32_t)layout.ranges[i].size;
            hot->prefix_at = range_at[i];
        }
    }
    hot->shared = mst_alloc_lines(STRIDE * sizeof(float));
    hot->base = mst_alloc_lines((size_t)n_threads * STRIDE * sizeof(float));
    hot->weights = mst_calloc(n_threads, sizeof *hot->weights);
    hot->maps = mst_calloc(n_threads, sizeof *hot->maps);
    if (hot->shared == NULL || hot->base == NULL || hot->weights == NULL || hot->maps == NULL) {
        mst_hot_weights_destroy(hot);
        return mst_fail_memory();
    }
    for (unsigned t = 0; t < n_threads; t++) {
        for (uint32_t i = 0; i < layout.n_ranges; i++)
            hot->weights[t].ranges[i] = hot_mine(hot, t) + range_at[i];
        hot->weights[t].sparse = params->w + layout.sparse_offset;
        hot->weights[t].stride = 1;
    }
    atomic_flag_clear(&hot->busy[0]);
    atomic_flag_clear(&hot->busy[1]);
    *out = hot;
    return MST_OK;
}

void mst_hot_weights_destroy(mst_hot_weights *hot)
{
    if (hot == NULL)
        return;
    mst_free(hot->shared);
    mst_free(hot->base);
    mst_free(hot->weights);
    mst_free(hot->maps);
    mst_free(hot->counts);
    mst_free(hot);
}

static int by_count(const void *a, const void *b)
{
    const popular *x = a, *y = b;
    if (x->count != y->count)
        return x->count < y->count ? 1 : -1;
    return x->line < y->line ? -1 : x->line > y->line;
}

static int by_line(const void *a, const void *b)
{
    const popular *x = a, *y = b;
    return x->line < y->line ? -1 : x->line > y->line;
}

/* Counts the occurrences of each line in the sample; returns the number of popular lines, sorted to the front
 * of counts. Without memory there are none, which is slower but correct. */
static uint32_t hot_count_lines(mst_hot_weights *hot, const mst_batch *sample)
{
    size_t n = 0, distinct = 0;
    uint32_t n_rows = sample->n_rows < SAMPLE_ROWS ? sample->n_rows : SAMPLE_ROWS;
    for (uint32_t i = 0; i < n_rows; i++)
        n += sample->rows[i].n_keys;
    if (n == 0 || !mst_grow(&hot->counts, &hot->count_capacity, n, sizeof *hot->counts))
        return 0;
    n = 0;
    for (uint32_t i = 0; i < n_rows; i++)
        for (uint32_t j = 0; j < sample->rows[i].n_keys; j++)
            hot->counts[n++] = (popular){sample->rows[i].keys[j] / LINE, 1};
    qsort(hot->counts, n, sizeof *hot->counts, by_line);
    for (size_t i = 0; i < n; i++) {
        if (distinct > 0 && hot->counts[distinct - 1].line == hot->counts[i].line)
            hot->counts[distinct - 1].count++;
        else
            hot->counts[distinct++] = hot->counts[i];
    }
    qsort(hot->counts, distinct, sizeof *hot->counts, by_count);
    n = 0;
    while (n < distinct && n < MST_HOT_LINES && hot->counts[n].count >= 2 &&
           (uint64_t)hot->counts[n].count * POPULAR >= n_rows)
        n++;
    return (uint32_t)n;
}

/* Puts the lines into the map, the popular ones first; returns the rows of lines that do not fit. */
static uint64_t hot_place_lines(mst_hot_weights *hot, uint32_t n, uint32_t factor, mst_key_map *map)
{
    uint64_t missed = 0;
    hot->n_lines = 0;
    map->factor = factor;
    memset(map->lines, 0xff, sizeof map->lines);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t line = hot->counts[i].line, slot = mst_map_slot(line, factor);
        if (map->lines[slot] != MST_MAP_NONE) {
            missed += hot->counts[i].count;
            continue;
        }
        map->lines[slot] = line;
        map->deltas[slot] =
            hot->n_lines * LINE - line * LINE; /* thread 0's array begins at 0; see hot_aim_map */
        hot->lines[hot->n_lines++] = line;
    }
    return missed;
}

/* Chooses the lines and fills the first map, with the hash factor that leaves out the fewest rows. */
static void hot_choose_lines(mst_hot_weights *hot, const mst_batch *sample)
{
    uint32_t n = hot_count_lines(hot, sample), best = 0x9E3779B1u;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0, factor = best; i < TRIES && least > 0; i++, factor = factor * 0x85EBCA6Bu) {
        uint64_t missed = hot_place_lines(hot, n, factor, &hot->maps[0]);
        if (missed < least) {
            least = missed;
            best = factor;
        }
    }
    hot_place_lines(hot, n, best, &hot->maps[0]);
}

/* Points a map, whose lines begin at the start of an array, at the array of thread t. */
static void hot_aim_map(const mst_hot_weights *hot, unsigned t, mst_key_map *map)
{
    uint32_t mine = (uint32_t)(hot_mine(hot, t) - hot->params->w - (ptrdiff_t)hot->layout.sparse_offset);
    map->prefix = hot->prefix;
    map->prefix_delta = mine + hot->prefix_at;
    for (uint32_t slot = 0; slot < 1u << MST_MAP_BITS; slot++)
        if (map->lines[slot] != MST_MAP_NONE)
            map->deltas[slot] += mine + hot->n_dense;
}

void mst_hot_weights_begin(mst_hot_weights *hot, const mst_batch *sample)
{
    const float *w = hot->params->w;
    hot_choose_lines(hot, sample);
    memset(hot->shared, 0, STRIDE * sizeof(float));
    for (uint32_t i = 0; i < hot->layout.n_ranges; i++)
        memcpy(hot->shared + hot->range_at[i], w + hot->layout.ranges[i].offset,
               hot->layout.ranges[i].size * sizeof(float));
    for (uint32_t i = 0; i < hot->n_lines; i++)
        memcpy(hot->shared + hot->n_dense + i * LINE,
               w + hot->layout.sparse_offset + (uint64_t)hot->lines[i] * LINE, LINE * sizeof(float));
    for (unsigned t = hot->n_threads; t-- > 0;) { /* map 0 last: the others are copies of it */
        if (t > 0)
            hot->maps[t] = hot->maps[0];
        hot_aim_map(hot, t, &hot->maps[t]);
        memcpy(hot_mine(hot, t), hot->shared, STRIDE * sizeof(float));
        memcpy(hot->base + (size_t)t * STRIDE, hot->shared, STRIDE * sizeof(float));
    }
}

void mst_hot_weights_end(mst_hot_weights *hot)
{
    float *w = hot->params->w;
    /* lines first: a line may reach into the dense prefix, whose own copy is the valid one */
    for (uint32_t i = 0; i < hot->n_lines; i++)
        memcpy(w + hot->layout.sparse_offset + (uint64_t)hot->lines[i] * LINE,
               hot->shared + hot->n_dense + i * LINE, LINE * sizeof(float));
    for (uint32_t i = 0; i < hot->layout.n_ranges; i++)
        memcpy(w + hot->layout.ranges[i].offset, hot->shared + hot->range_at[i],
               hot->layout.ranges[i].size * sizeof(float));
}

const mst_key_map *mst_hot_weights_map(const mst_hot_weights *hot, unsigned t)
{
    return &hot->maps[t];
}

const mst_weights *mst_hot_weights_of(const mst_hot_weights *hot, unsigned t)
{
    return &hot->weights[t];
}

static void hot_lock(atomic_flag *flag)
{
    for (unsigned spins = 0; atomic_flag_test_and_set_explicit(flag, memory_order_acquire); spins++)
        if (spins > 200)
            sched_yield(); /* the thread that holds it may be descheduled */
}

static void hot_publish(mst_hot_weights *hot, unsigned t, uint32_t from, uint32_t n, atomic_flag *busy)
{
    float *restrict mine = hot_mine(hot, t) + from;
    float *restrict base = hot->base + (size_t)t * STRIDE + from;
    float *restrict shared = hot->shared + from;
    hot_lock(busy);
    for (uint32_t i = 0; i < n; i++) {
        float now = shared[i] + (mine[i] - base[i]);
        shared[i] = now;
        mine[i] = now;
        base[i] = now;
    }
    atomic_flag_clear_explicit(busy, memory_order_release);
}

void mst_hot_weights_publish_dense(mst_hot_weights *hot, unsigned t)
{
    hot_publish(hot, t, 0, hot->n_dense, &hot->busy[0]);
}

void mst_hot_weights_publish_lines(mst_hot_weights *hot, unsigned t)
{
    hot_publish(hot, t, hot->n_dense, hot->n_lines * LINE, &hot->busy[1]);
}
