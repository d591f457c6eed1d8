/* Hot weights; contract in hot_weights.h.
 *
 * Each thread has two arrays of the same layout: `mine`, which it trains on, and `base`, the shared value
 * that it saw last. To publish: shared += mine - base; mine = base = shared, under a lock that is held for
 * a microsecond; threads begin with different parts of the keys, so that they do not queue. No update is lost
 * here, unlike in the unlocked part. State that is no sum (moving averages) would not survive this addition:
 * the value of the thread that publishes replaces the shared one.
 *
 * The unit is a key: popular ids are not neighbours in data with hashed ids. Side by side, the copies also
 * take fewer cache lines than the keys do in the store.
 *
 * Layout of an array, in floats: [dense ranges, each on its own lines][their state, slot by slot][popular
 * keys, by rows with their state]. `mine` is in two pieces: keys must be where a translated key finds them.
 */
#include "strategy/hot_weights.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define SPARE       (MST_HOT_DENSE + MST_HOT_KEYS) /* floats of a thread, or keys */
#define TOP         128                            /* keys that are exchanged more often: part 0 */
#define PARTS       (MST_HOT_KEYS / TOP)           /* of the keys, each with a lock */
#define POPULAR     400                            /* a key is popular if at least 1 of 400 rows has it */
#define TRIES       16                             /* hash factors tried for a map that drops few keys */
#define SAMPLE_ROWS 2048                           /* rows of the sample */
#define ROW_MAX     4                              /* floats of a key */

typedef struct popular {
    uint32_t key, count;
} popular;

struct mst_hot_weights {
    const mst_model *model;
    mst_params *params;
    unsigned n_threads;
    bool by_rows, sums;
    mst_grad layout;
    uint32_t range_at[MST_RANGE_MAX]; /* place of each dense range in the arrays */
    uint32_t n_dense;                 /* floats taken by the dense ranges */
    uint32_t sections;                /* 1, and by rows 1 for each slot: of the dense part */
    uint32_t unit;                    /* floats of a key: 1, or those of a row */
    uint32_t prefix, prefix_at;       /* keys below `prefix` are in a dense range, from prefix_at on */
    uint32_t n_keys;
    uint32_t keys[MST_HOT_KEYS]; /* the most popular first */
    size_t stride;               /* floats of one array */
    mst_key_map *maps;           /* n_threads */
    float *dense;                /* by rows: `mine` of the dense part, n_threads times */
    float *shared;               /* stride */
    float *base;                 /* n_threads * stride */
    mst_weights *weights;
    popular *counts; /* scratch of begin */
    size_t count_capacity;
    struct hot_lock {
        _Alignas(64) atomic_flag busy;
    } locks[1 + PARTS]; /* dense, parts of the keys */
};

static size_t hot_dense_floats(const mst_hot_weights *hot)
{
    return (size_t)hot->n_dense * hot->sections;
}

/* The dense part and the keys of thread t; of vectors they are in the spare floats, one after the other. */
static float *hot_mine_dense(const mst_hot_weights *hot, unsigned t)
{
    return hot->by_rows ? hot->dense + t * hot_dense_floats(hot)
                        : hot->params->w + hot->params->size + (uint64_t)t * SPARE;
}

static float *hot_mine_keys(const mst_hot_weights *hot, unsigned t)
{
    const mst_key_rows *rows = &hot->params->rows;
    return hot->by_rows ? rows->at + (rows->n_keys + (uint64_t)t * MST_HOT_KEYS) * rows->stride
                        : hot_mine_dense(hot, t) + hot->n_dense;
}

/* Key k of the store. */
static float *hot_key(const mst_hot_weights *hot, uint32_t key)
{
    return hot->by_rows ? hot->params->rows.at + (uint64_t)key * hot->unit
                        : hot->params->w + hot->layout.sparse_offset + key;
}

uint64_t mst_hot_weights_spare(unsigned n_threads)
{
    return (uint64_t)n_threads * SPARE;
}

mst_status mst_hot_weights_new(const mst_model *model, mst_params *params, unsigned n_threads, bool sums,
                               mst_hot_weights **out)
{
    mst_grad layout = {0};
    uint32_t n_dense = 0, range_at[MST_RANGE_MAX];
    bool by_rows = params->rows.stride != 0;
    *out = NULL;
    model->ops->layout(model, params, &layout);
    if (layout.width != 1 || (by_rows ? params->rows.n_keys : params->size) + params->spare > UINT32_MAX ||
        params->spare < mst_hot_weights_spare(n_threads) || (by_rows && params->rows.stride > ROW_MAX))
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
    *hot = (mst_hot_weights){.model = model,
                             .params = params,
                             .n_threads = n_threads,
                             .by_rows = by_rows,
                             .sums = sums,
                             .layout = layout,
                             .n_dense = n_dense,
                             .sections = by_rows ? 1 + params->n_slots : 1,
                             .unit = by_rows ? params->rows.stride : 1};
    hot->stride = hot_dense_floats(hot) + (size_t)MST_HOT_KEYS * hot->unit;
    for (uint32_t i = 0; i < layout.n_ranges; i++) {
        hot->range_at[i] = range_at[i];
        if (layout.ranges[i].offset == layout.sparse_offset) {
            hot->prefix = (uint32_t)layout.ranges[i].size;
            hot->prefix_at = range_at[i];
        }
    }
    hot->shared = mst_alloc_lines(hot->stride * sizeof(float));
    hot->base = mst_alloc_lines(n_threads * hot->stride * sizeof(float));
    hot->dense = mst_alloc_lines((n_threads * hot_dense_floats(hot) + 16) * sizeof(float));
    hot->weights = mst_calloc(n_threads, sizeof *hot->weights);
    hot->maps = mst_calloc(n_threads, sizeof *hot->maps);
    if (hot->shared == NULL || hot->base == NULL || hot->dense == NULL || hot->weights == NULL ||
        hot->maps == NULL) {
        mst_hot_weights_destroy(hot);
        return mst_fail_memory();
    }
    for (unsigned t = 0; t < n_threads; t++) {
        mst_model_weights(model, params, &hot->weights[t]);
        for (uint32_t i = 0; i < layout.n_ranges; i++)
            hot->weights[t].ranges[i] = hot_mine_dense(hot, t) + range_at[i];
        hot->weights[t].state = n_dense;
    }
    for (uint32_t i = 0; i <= PARTS; i++)
        atomic_flag_clear(&hot->locks[i].busy);
    *out = hot;
    return MST_OK;
}

void mst_hot_weights_destroy(mst_hot_weights *hot)
{
    if (hot == NULL)
        return;
    mst_free(hot->shared);
    mst_free(hot->base);
    mst_free(hot->dense);
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
    return x->key < y->key ? -1 : x->key > y->key;
}

static int by_key(const void *a, const void *b)
{
    const popular *x = a, *y = b;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* Counts the occurrences of each key in the sample; returns the number of popular keys, sorted to the front
 * of counts. Without memory there are none, which is slower but correct. */
static uint32_t hot_count_keys(mst_hot_weights *hot, const mst_batch *sample)
{
    size_t n = 0, distinct = 0;
    uint32_t n_rows = sample->n_rows < SAMPLE_ROWS ? sample->n_rows : SAMPLE_ROWS;
    const mst_params *params = hot->params;
    uint64_t n_keys = hot->by_rows ? params->rows.n_keys : params->size - hot->layout.sparse_offset;
    for (uint32_t i = 0; i < n_rows; i++)
        n += sample->rows[i].n_keys;
    if (n == 0 || !mst_grow(&hot->counts, &hot->count_capacity, n, sizeof *hot->counts))
        return 0;
    n = 0;
    for (uint32_t i = 0; i < n_rows; i++)
        for (uint32_t j = 0; j < sample->rows[i].n_keys; j++) {
            uint32_t key = sample->rows[i].keys[j];
            if (key >= hot->prefix && key < n_keys) /* keys of a mapped file may be any */
                hot->counts[n++] = (popular){key, 1};
        }
    qsort(hot->counts, n, sizeof *hot->counts, by_key);
    for (size_t i = 0; i < n; i++) {
        if (distinct > 0 && hot->counts[distinct - 1].key == hot->counts[i].key)
            hot->counts[distinct - 1].count++;
        else
            hot->counts[distinct++] = hot->counts[i];
    }
    qsort(hot->counts, distinct, sizeof *hot->counts, by_count);
    n = 0;
    while (n < distinct && n < MST_HOT_KEYS && hot->counts[n].count >= 2 &&
           (uint64_t)hot->counts[n].count * POPULAR >= n_rows)
        n++;
    return (uint32_t)n;
}

/* Puts the keys into the map, the popular ones first; returns the rows of keys that do not fit. A delta,
 * until hot_aim_map, is the number of the key in the array, plus 1. */
static uint64_t hot_place_keys(mst_hot_weights *hot, uint32_t n, uint32_t factor, mst_key_map *map)
{
    uint64_t missed = 0;
    hot->n_keys = 0;
    map->factor = factor;
    memset(map->buckets, 0, sizeof map->buckets);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t key = hot->counts[i].key;
        struct mst_map_bucket *slot = &map->buckets[mst_map_slot(key, factor)];
        if (slot->delta != 0) {
            missed += hot->counts[i].count;
            continue;
        }
        hot->keys[hot->n_keys++] = key;
        *slot = (struct mst_map_bucket){.key = key, .delta = hot->n_keys};
    }
    return missed;
}

/* Chooses the keys and fills the first map, with the hash factor that leaves out the fewest rows. */
static void hot_choose_keys(mst_hot_weights *hot, const mst_batch *sample)
{
    uint32_t n = hot_count_keys(hot, sample), best = 0x9E3779B1u;
    uint64_t least = UINT64_MAX;
    for (uint32_t i = 0, factor = best; i < TRIES && least > 0; i++, factor = factor * 0x85EBCA6Bu) {
        uint64_t missed = hot_place_keys(hot, n, factor, &hot->maps[0]);
        if (missed < least) {
            least = missed;
            best = factor;
        }
    }
    hot_place_keys(hot, n, best, &hot->maps[0]);
}

/* Turns the numbers of keys in a map into what is added to a key to reach its copy of thread t. */
static void hot_aim_map(const mst_hot_weights *hot, unsigned t, mst_key_map *map)
{
    const float *origin = hot_key(hot, 0);
    uint32_t mine = (uint32_t)((hot_mine_keys(hot, t) - origin) / hot->unit);
    if (!hot->by_rows) {
        map->prefix = hot->prefix;
        map->prefix_delta = (uint32_t)(hot_mine_dense(hot, t) - origin) + hot->prefix_at;
    }
    for (uint32_t i = 0; i < 1u << MST_MAP_BITS; i++)
        if (map->buckets[i].delta != 0)
            map->buckets[i].delta = mine + map->buckets[i].delta - 1 - map->buckets[i].key;
}

void mst_hot_weights_begin(mst_hot_weights *hot, const mst_batch *sample)
{
    size_t n_dense = hot_dense_floats(hot), n_keys;
    hot_choose_keys(hot, sample);
    n_keys = (size_t)hot->n_keys * hot->unit;
    memset(hot->shared, 0, hot->stride * sizeof(float));
    for (uint32_t i = 0; i < hot->layout.n_ranges; i++)
        for (uint32_t s = 0; s < hot->sections; s++)
            mst_params_read(hot->params, s, hot->layout.ranges[i].offset, hot->layout.ranges[i].size,
                            hot->shared + (size_t)s * hot->n_dense + hot->range_at[i]);
    for (uint32_t i = 0; i < hot->n_keys; i++)
        memcpy(hot->shared + n_dense + (size_t)i * hot->unit, hot_key(hot, hot->keys[i]),
               hot->unit * sizeof(float));
    for (unsigned t = hot->n_threads; t-- > 0;) { /* map 0 last: the others are copies of it */
        if (t > 0)
            hot->maps[t] = hot->maps[0];
        hot_aim_map(hot, t, &hot->maps[t]);
        memcpy(hot_mine_dense(hot, t), hot->shared, n_dense * sizeof(float));
        memcpy(hot_mine_keys(hot, t), hot->shared + n_dense, n_keys * sizeof(float));
        memcpy(hot->base + t * hot->stride, hot->shared, hot->stride * sizeof(float));
    }
}

void mst_hot_weights_end(mst_hot_weights *hot)
{
    for (uint32_t i = 0; i < hot->n_keys; i++)
        memcpy(hot_key(hot, hot->keys[i]), hot->shared + hot_dense_floats(hot) + (size_t)i * hot->unit,
               hot->unit * sizeof(float));
    for (uint32_t i = 0; i < hot->layout.n_ranges; i++)
        for (uint32_t s = 0; s < hot->sections; s++)
            mst_params_write(hot->params, s, hot->layout.ranges[i].offset, hot->layout.ranges[i].size,
                             hot->shared + (size_t)s * hot->n_dense + hot->range_at[i]);
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

/* Exchanges n floats. period 0: all are sums; otherwise the first of every `period` is. */
static void hot_exchange(float *restrict mine, float *restrict base, float *restrict shared, size_t n,
                         uint32_t period)
{
    for (size_t i = 0; i < n; i++) {
        float sum = shared[i] + (mine[i] - base[i]);
        float now = period == 0 || i % period == 0 ? sum : mine[i];
        shared[i] = now;
        mine[i] = now;
        base[i] = now;
    }
}

void mst_hot_weights_publish_dense(mst_hot_weights *hot, unsigned t)
{
    float *mine = hot_mine_dense(hot, t), *base = hot->base + t * hot->stride;
    size_t n = hot->sums ? hot_dense_floats(hot) : hot->n_dense; /* floats that are sums */
    hot_lock(&hot->locks[0].busy);
    hot_exchange(mine, base, hot->shared, n, 0);
    memcpy(hot->shared + n, mine + n, (hot_dense_floats(hot) - n) * sizeof *mine);
    atomic_flag_clear_explicit(&hot->locks[0].busy, memory_order_release);
}

/* Exchanges the keys of a part. */
static void hot_publish_part(mst_hot_weights *hot, unsigned t, uint32_t part)
{
    uint32_t first = part * TOP, n_keys = hot->n_keys - first < TOP ? hot->n_keys - first : TOP;
    size_t at = (size_t)first * hot->unit, n = (size_t)n_keys * hot->unit, dense = hot_dense_floats(hot);
    float *mine = hot_mine_keys(hot, t) + at, *base = hot->base + t * hot->stride + dense + at;
    float *shared = hot->shared + dense + at;
    hot_lock(&hot->locks[1 + part].busy);
    if (hot->sums)
        hot_exchange(mine, base, shared, n, 0);
    else
        hot_exchange(mine, base, shared, n, ROW_MAX);
    atomic_flag_clear_explicit(&hot->locks[1 + part].busy, memory_order_release);
}

void mst_hot_weights_publish_top(mst_hot_weights *hot, unsigned t)
{
    if (hot->n_keys > 0)
        hot_publish_part(hot, t, 0);
}

void mst_hot_weights_publish_keys(mst_hot_weights *hot, unsigned t)
{
    uint32_t n = (hot->n_keys + TOP - 1) / TOP;
    for (uint32_t i = 0; i < n; i++)
        hot_publish_part(hot, t, (t + i) % n);
}
