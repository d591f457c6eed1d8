/* Hot weights; contract in hot_weights.h.
 *
 * Asynchronous threads. Each thread has arrays of the same layout: `mine`, which it trains on; `seen`, the
 * value of mine after the last exchange; and `sent`, the sum of its changes since begin, which only it writes
 * and all others read. An exchange of thread t: sent_t += gain * (mine - seen), then mine = seen = start +
 * the sum of all threads' sent. No thread waits for another. A lock around one shared copy would let the
 * threads pass one after the other: its cache line moves from core to core in about 100 ns, so 16 threads
 * could exchange once in 1.6 us at most. State that is no sum (moving averages) would not survive the
 * addition: each thread keeps its own, and end takes the mean.
 *
 * The gain of a weight is between 1/threads (the mean of the changes) and 1 (their sum). All threads start
 * from the same value and see rows of one kind, so their changes have a common part. Where a weight reaches
 * its optimum within an interval, each thread makes the whole way, and the sum overshoots threads-fold; where
 * it needs many intervals, the mean would make training threads times slower. An overshoot shows as movement
 * against one of the last two movements (threads that exchange at the same time swing with a period of two
 * intervals, others with one of four): then the gain falls, otherwise it rises. Dense ranges (every row,
 * large numbers) start with the mean and adapt fast, keys start with the sum and adapt slowly.
 *
 * Synchronous threads share one copy, which is there only to have the popular keys side by side, and their
 * places as numbers from 0 on; the dense ranges stay in the store.
 *
 * The unit is a key: popular ids are not neighbours in data with hashed ids. Side by side, the copies also
 * take fewer cache lines than the keys do in the store.
 *
 * Layout of an array, in floats: [dense ranges, then zeros up to a line][their state, slot by slot][popular
 * keys, by rows with their state]. `mine` is in two pieces: keys must be where a translated key finds them.
 */
#include "strategy/hot_weights.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/isa.h"
#include "base/racy.h"

#define SPARE   (MST_HOT_DENSE + MST_HOT_KEYS) /* floats of a thread, or keys */
#define POPULAR 400                            /* a key is popular if at least 1 of 400 rows has it */
#define TRIES   16                             /* hash factors tried for a map that drops few keys */
#define ROW_MAX 4                              /* floats of a key */

/* Rows of a thread between two exchanges of the dense ranges, and of the parts of the keys: twice as many for
 * keys that are half as popular. Steps are long at the start: until then there is an exchange for every
 * WARM_SHARE-th of the rows of all threads so far. */
#define DENSE_ROWS 64
#define KEYS_ROWS  256
#define WARM_SHARE 256
/* Part p has the keys [FIRST * (2^p - 1), FIRST * (2^(p + 1) - 1)), the most popular first. */
#define FIRST 16
#define PARTS 8

/* Factors of the gain where a movement has the direction of the last two, or not. Noise agrees in a quarter
 * of the cases, where the gain still rises a little. */
typedef struct hot_factors {
    float agree, differ;
} hot_factors;
static const hot_factors dense_factors = {1.1f, 0.97f}, key_factors = {1.03f, 0.994f};

typedef struct popular {
    uint32_t key, count;
} popular;

typedef struct hot_thread {
    _Alignas(64) mst_key_map map;
    mst_weights weights;
    float *sent, *seen, *moved, *before, *gain;
    uint32_t since[PARTS]; /* rows since the last exchange */
} hot_thread;

struct mst_hot_weights {
    const mst_model *model;
    mst_params *params;
    unsigned n_threads;
    bool by_rows, sums, crowded;
    mst_grad layout;
    uint32_t range_at[MST_RANGE_MAX]; /* place of each dense range in the arrays */
    uint32_t n_dense;                 /* floats taken by the dense ranges */
    uint32_t sections;                /* 1, and by rows 1 for each slot: of the dense part */
    uint32_t unit;                    /* floats of a key: 1, or those of a row */
    uint32_t prefix, prefix_at;       /* keys below `prefix` are in a dense range, from prefix_at on */
    uint32_t n_keys;
    uint32_t keys[MST_HOT_KEYS]; /* the most popular first */
    size_t stride;               /* floats of one array */
    hot_thread *threads;
    float *dense;    /* by rows: `mine` of the dense part, n_threads times */
    float *start;    /* the values at begin */
    popular *counts; /* scratch of begin */
    size_t count_capacity;
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

/* Divides the arrays among the dense ranges; false if they are too large. */
static bool hot_lay_out(mst_hot_weights *hot)
{
    mst_grad *layout = &hot->layout;
    for (uint32_t i = 0; i < layout->n_ranges; i++)
        if (layout->ranges[i].offset == layout->sparse_offset) {
            hot->prefix = (uint32_t)layout->ranges[i].size;
            hot->prefix_at = hot->n_dense;
        }
    if (hot->n_threads == 1)
        layout->n_ranges = 0;
    for (uint32_t i = 0; i < layout->n_ranges; i++) {
        if (layout->ranges[i].size > MST_HOT_DENSE - hot->n_dense)
            return false;
        hot->range_at[i] = hot->n_dense;
        hot->n_dense += (uint32_t)layout->ranges[i].size;
    }
    hot->n_dense = (hot->n_dense + 15) / 16 * 16;
    hot->stride = hot_dense_floats(hot) + (size_t)MST_HOT_KEYS * hot->unit;
    return true;
}

static mst_status hot_init_threads(mst_hot_weights *hot)
{
    hot->start = mst_alloc_lines(hot->stride * sizeof(float));
    hot->dense = mst_alloc_lines((hot->n_threads * hot_dense_floats(hot) + 16) * sizeof(float));
    hot->threads = mst_alloc_lines(hot->n_threads * sizeof *hot->threads);
    if (hot->threads != NULL)
        memset(hot->threads, 0, hot->n_threads * sizeof *hot->threads);
    if (hot->start == NULL || hot->dense == NULL || hot->threads == NULL)
        return mst_fail_memory();
    for (unsigned t = 0; t < hot->n_threads; t++) {
        hot_thread *thread = &hot->threads[t];
        mst_model_weights(hot->model, hot->params, &thread->weights);
        for (uint32_t i = 0; i < hot->layout.n_ranges; i++)
            thread->weights.ranges[i] = hot_mine_dense(hot, t) + hot->range_at[i];
        if (hot->n_threads == 1)
            continue;
        thread->weights.shared = hot->by_rows ? (uint32_t)hot->params->rows.n_keys : 0;
        thread->weights.state = hot->n_dense;
        thread->sent = mst_alloc_lines(hot->stride * sizeof(float));
        thread->seen = mst_alloc_lines(hot->stride * sizeof(float));
        thread->moved = mst_alloc_lines(hot->stride * sizeof(float));
        thread->before = mst_alloc_lines(hot->stride * sizeof(float));
        thread->gain = mst_alloc_lines(hot->stride * sizeof(float));
        if (thread->sent == NULL || thread->seen == NULL || thread->moved == NULL || thread->before == NULL ||
            thread->gain == NULL)
            return mst_fail_memory();
        for (size_t i = 0; i < hot_dense_floats(hot); i++)
            thread->gain[i] =
                i < hot->n_dense ? 1.0f / (float)hot->n_threads : 1.0f; /* weights, their state */
    }
    return MST_OK;
}

mst_status mst_hot_weights_new(const mst_model *model, mst_params *params, unsigned n_threads, bool sums,
                               bool crowded, mst_hot_weights **out)
{
    bool by_rows = params->rows.stride != 0;
    mst_hot_weights *hot = mst_alloc_lines(sizeof *hot);
    *out = NULL;
    if (hot == NULL)
        return mst_fail_memory();
    *hot = (mst_hot_weights){.model = model,
                             .params = params,
                             .n_threads = n_threads,
                             .by_rows = by_rows,
                             .sums = sums,
                             .crowded = crowded,
                             .sections = by_rows ? 1 + params->n_slots : 1,
                             .unit = by_rows ? params->rows.stride : 1};
    model->ops->layout(model, params, &hot->layout);
    if (hot->layout.width != 1 ||
        (by_rows ? params->rows.n_keys : params->size) + params->spare > UINT32_MAX ||
        params->spare < mst_hot_weights_spare(n_threads) || hot->unit > ROW_MAX || !hot_lay_out(hot)) {
        mst_hot_weights_destroy(hot);
        return MST_OK;
    }
    mst_status st = hot_init_threads(hot);
    if (st != MST_OK) {
        mst_hot_weights_destroy(hot);
        return st;
    }
    *out = hot;
    return MST_OK;
}

void mst_hot_weights_destroy(mst_hot_weights *hot)
{
    if (hot == NULL)
        return;
    for (unsigned t = 0; hot->threads != NULL && t < hot->n_threads; t++) {
        mst_free(hot->threads[t].sent);
        mst_free(hot->threads[t].seen);
        mst_free(hot->threads[t].moved);
        mst_free(hot->threads[t].before);
        mst_free(hot->threads[t].gain);
    }
    mst_free(hot->threads);
    mst_free(hot->start);
    mst_free(hot->dense);
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
    uint32_t n_rows = sample->n_rows < MST_HOT_SAMPLE ? sample->n_rows : MST_HOT_SAMPLE;
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
        uint64_t missed = hot_place_keys(hot, n, factor, &hot->threads[0].map);
        if (missed < least) {
            least = missed;
            best = factor;
        }
    }
    hot_place_keys(hot, n, best, &hot->threads[0].map);
}

/* Turns the numbers of keys in a map into what is added to a key to reach its copy of thread t. */
static void hot_aim_map(const mst_hot_weights *hot, unsigned t, mst_key_map *map)
{
    const float *origin = hot_key(hot, 0);
    uint32_t mine = (uint32_t)((hot_mine_keys(hot, t) - origin) / hot->unit);
    if (!hot->by_rows && hot->n_threads > 1) {
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
    if (sample != NULL)
        hot_choose_keys(hot, sample);
    n_keys = (size_t)hot->n_keys * hot->unit;
    memset(hot->start, 0, hot->stride * sizeof(float));
    for (uint32_t i = 0; i < hot->layout.n_ranges; i++)
        for (uint32_t s = 0; s < hot->sections; s++)
            mst_params_read(hot->params, s, hot->layout.ranges[i].offset, hot->layout.ranges[i].size,
                            hot->start + (size_t)s * hot->n_dense + hot->range_at[i]);
    for (uint32_t i = 0; i < hot->n_keys; i++)
        memcpy(hot->start + n_dense + (size_t)i * hot->unit, hot_key(hot, hot->keys[i]),
               hot->unit * sizeof(float));
    for (unsigned t = hot->n_threads; t-- > 0;) { /* map 0 last: the others are copies of it */
        hot_thread *thread = &hot->threads[t];
        if (t > 0 && sample != NULL)
            thread->map = hot->threads[0].map;
        if (sample != NULL)
            hot_aim_map(hot, t, &thread->map);
        memcpy(hot_mine_dense(hot, t), hot->start, n_dense * sizeof(float));
        memcpy(hot_mine_keys(hot, t), hot->start + n_dense, n_keys * sizeof(float));
        memset(thread->since, 0, sizeof thread->since);
        if (hot->n_threads > 1) {
            memcpy(thread->seen, hot->start, hot->stride * sizeof(float));
            memset(thread->sent, 0, hot->stride * sizeof(float));
            memset(thread->moved, 0, hot->stride * sizeof(float));
            memset(thread->before, 0, hot->stride * sizeof(float));
            for (size_t i = n_dense; i < hot->stride; i++)
                thread->gain[i] = 1.0f;
        }
    }
}

const mst_key_map *mst_hot_weights_map(const mst_hot_weights *hot, unsigned t)
{
    return &hot->threads[t].map;
}

const mst_weights *mst_hot_weights_of(const mst_hot_weights *hot, unsigned t)
{
    return &hot->threads[t].weights;
}

uint32_t mst_hot_weights_places(const mst_hot_weights *hot, uint32_t *first)
{
    *first = (uint32_t)((hot_mine_keys(hot, 0) - hot_key(hot, 0)) / hot->unit);
    return hot->n_keys;
}

/* ---- exchanges ---- */

/* now = start + the changes of all threads, of a line of floats from `at` on. */
MST_RACY static inline void hot_add_up(const mst_hot_weights *hot, size_t at, float now[16])
{
    memcpy(now, hot->start + at, 16 * sizeof *now);
    for (unsigned s = 0; s < hot->n_threads; s++) {
        const float *sent = hot->threads[s].sent + at;
        for (unsigned i = 0; i < 16; i++)
            now[i] += sent[i];
    }
}

/* Exchanges n floats from `at` of the layout on, which are at `mine`: the first of every `period`, which are
 * sums. */
MST_RACY static inline __attribute__((always_inline)) void hot_exchange_every(mst_hot_weights *hot,
                                                                              unsigned t,
                                                                              float *restrict mine, size_t at,
                                                                              size_t n, uint32_t period,
                                                                              hot_factors factors)
{
    const hot_thread *self = &hot->threads[t];
    float *restrict sent = self->sent + at, *restrict seen = self->seen + at;
    float *restrict moved = self->moved + at, *restrict before = self->before + at;
    float *restrict gain = self->gain + at;
    float now[16], least = 1.0f / (float)hot->n_threads;
    for (unsigned s = 0; s < hot->n_threads; s++)
        for (size_t i = 0; i < n; i += 16)
            __builtin_prefetch(hot->threads[s].sent + at + i);
    for (size_t i = 0; i < n; i += period)
        sent[i] += gain[i] * (mine[i] - seen[i]);
    for (size_t i = 0; i < n; i += 16) {
        size_t part = n - i < 16 ? n - i : 16;
        hot_add_up(hot, at + i, now);
        for (size_t j = 0; j < part; j += period) {
            float step = now[j] - seen[i + j], one = step * moved[i + j], two = step * before[i + j];
            float agree = one < two ? one : two;
            float up = gain[i + j] * factors.agree, down = gain[i + j] * factors.differ;
            up = up < 1.0f ? up : 1.0f;
            down = down > least ? down : least;
            gain[i + j] = agree > 0.0f ? up : agree < 0.0f ? down : gain[i + j];
            before[i + j] = moved[i + j];
            moved[i + j] = step;
            mine[i + j] = seen[i + j] = now[j];
        }
    }
}

MST_RACY MST_WIDE static void hot_exchange(mst_hot_weights *hot, unsigned t, float *mine, size_t at, size_t n,
                                           uint32_t period, hot_factors factors)
{
    if (period == 1) /* as a constant, for loops with vectors */
        hot_exchange_every(hot, t, mine, at, n, 1, factors);
    else
        hot_exchange_every(hot, t, mine, at, n, period, factors);
}

static void hot_exchange_dense(mst_hot_weights *hot, unsigned t)
{
    size_t n = hot->sums ? hot_dense_floats(hot) : hot->n_dense; /* floats that are sums */
    hot_exchange(hot, t, hot_mine_dense(hot, t), 0, n, 1, dense_factors);
}

/* Exchanges the keys [first, to). */
static void hot_exchange_keys(mst_hot_weights *hot, unsigned t, uint32_t first, uint32_t to)
{
    size_t at = (size_t)first * hot->unit;
    hot_exchange(hot, t, hot_mine_keys(hot, t) + at, hot_dense_floats(hot) + at,
                 (size_t)(to - first) * hot->unit, hot->sums ? 1 : hot->unit, key_factors);
}

/* Rows of one thread between exchanges: `rows`, but less at the start. A thread that has waited for a core
 * continues with old copies, so where threads outnumber cores they exchange after each row. */
static uint32_t hot_interval(const mst_hot_weights *hot, uint32_t rows, uint64_t rows_so_far)
{
    uint64_t most = rows_so_far / WARM_SHARE / hot->n_threads;
    uint64_t mine = rows < most ? rows : most;
    return mine > 1 && !hot->crowded ? (uint32_t)mine : 1;
}

uint32_t mst_hot_weights_interval(const mst_hot_weights *hot, uint64_t rows_so_far)
{
    return hot_interval(hot, DENSE_ROWS, rows_so_far);
}

void mst_hot_weights_exchange(mst_hot_weights *hot, unsigned t, uint32_t n_rows, uint64_t rows_so_far)
{
    uint32_t *since = hot->threads[t].since;
    hot_exchange_dense(hot, t);
    for (uint32_t p = 0, first = 0; p < PARTS && first < hot->n_keys; p++) {
        uint32_t to = first + (FIRST << p);
        since[p] += n_rows;
        if (since[p] >= hot_interval(hot, KEYS_ROWS << p, rows_so_far)) {
            hot_exchange_keys(hot, t, first, to < hot->n_keys ? to : hot->n_keys);
            since[p] = 0;
        }
        first = to;
    }
}

/* ---- end ---- */

/* Gives the last thread the mean of all threads' state, where that is no sum. */
static void hot_mean_state(mst_hot_weights *hot)
{
    size_t dense = hot_dense_floats(hot), n = (size_t)hot->n_keys * hot->unit;
    unsigned last = hot->n_threads - 1;
    float *to_dense = hot_mine_dense(hot, last), *to_keys = hot_mine_keys(hot, last);
    for (unsigned t = 0; t < last; t++) {
        const float *from = hot_mine_dense(hot, t);
        for (size_t i = hot->n_dense; i < dense; i++)
            to_dense[i] += from[i];
        from = hot_mine_keys(hot, t);
        for (size_t i = 0; i < n; i++)
            to_keys[i] += i % hot->unit != 0 ? from[i] : 0.0f;
    }
    for (size_t i = hot->n_dense; i < dense; i++)
        to_dense[i] /= (float)hot->n_threads;
    for (size_t i = 0; i < n; i++)
        to_keys[i] /= i % hot->unit != 0 ? (float)hot->n_threads : 1.0f;
}

void mst_hot_weights_end(mst_hot_weights *hot)
{
    unsigned last = hot->n_threads - 1; /* has seen the changes of all */
    for (unsigned t = 0; last > 0 && t <= last; t++) {
        hot_exchange_dense(hot, t);
        hot_exchange_keys(hot, t, 0, hot->n_keys);
    }
    if (!hot->sums && last > 0)
        hot_mean_state(hot);
    for (uint32_t i = 0; i < hot->n_keys; i++)
        memcpy(hot_key(hot, hot->keys[i]), hot_mine_keys(hot, last) + (size_t)i * hot->unit,
               hot->unit * sizeof(float));
    for (uint32_t i = 0; i < hot->layout.n_ranges; i++)
        for (uint32_t s = 0; s < hot->sections; s++)
            mst_params_write(hot->params, s, hot->layout.ranges[i].offset, hot->layout.ranges[i].size,
                             hot_mine_dense(hot, last) + (size_t)s * hot->n_dense + hot->range_at[i]);
}
