/* Hot weights; contract in hot.h.
 *
 * Per thread two arrays of equal layout: `mine`, which it trains on, and `base`, the shared value it last
 * saw. To publish: shared += mine - base; mine = base = shared, under a lock that is held for some tens of
 * nanoseconds. No update is lost here, unlike in the unlocked part.
 *
 * Layout of each array, in floats: [dense ranges, each on its own lines][popular keys]. */
#include "strategy/hot.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define TABLE_BITS 12
#define TABLE_SIZE (1u << TABLE_BITS)
#define NO_KEY     UINT32_MAX
#define STRIDE     (MST_HOT_DENSE + MST_HOT_KEYS) /* floats of one array */
#define POPULAR    64 /* a key is popular when at least one row in so many has it */

typedef struct popular {
    uint32_t key, count;
} popular;

struct mst_hot {
    const mst_model *model;
    mst_params *params;
    unsigned n_threads;
    mst_grad layout;
    uint32_t range_at[MST_RANGE_MAX]; /* place of each dense range in the arrays */
    uint32_t n_dense;                 /* floats taken by the dense ranges */
    uint32_t prefix, prefix_at;       /* keys below `prefix` lie in a dense range, from prefix_at on */
    uint32_t n_keys;
    uint32_t keys[MST_HOT_KEYS];
    uint32_t table_key[TABLE_SIZE]; /* direct-mapped: the key here, or NO_KEY */
    uint16_t table_slot[TABLE_SIZE];
    float *shared; /* STRIDE */
    float *base;   /* n_threads * STRIDE */
    mst_weights *weights;
    popular *counts; /* scratch of begin */
    size_t count_capacity;
    _Alignas(64) atomic_flag busy[2]; /* dense, keys */
};

static uint32_t table_index(uint32_t key)
{
    return key * 0x9E3779B1u >> (32 - TABLE_BITS);
}

/* Thread t's array; it begins at a multiple of 16 floats in the spare part. */
static float *mine_of(const mst_hot *hot, unsigned t)
{
    return hot->params->w + hot->params->size + (uint64_t)t * STRIDE;
}

uint64_t mst_hot_spare(unsigned n_threads)
{
    return (uint64_t)n_threads * STRIDE;
}

mst_status mst_hot_new(const mst_model *model, mst_params *params, unsigned n_threads, mst_hot **out)
{
    mst_grad layout = {0};
    uint32_t n_dense = 0, range_at[MST_RANGE_MAX];
    *out = NULL;
    model->ops->layout(model, params, &layout);
    if (layout.width != 1 || params->size + params->spare > UINT32_MAX ||
        params->spare < mst_hot_spare(n_threads))
        return MST_OK;
    for (uint32_t i = 0; i < layout.n_ranges; i++) {
        if (layout.ranges[i].size > MST_HOT_DENSE - n_dense)
            return MST_OK;
        range_at[i] = n_dense;
        n_dense += (uint32_t)(layout.ranges[i].size + 15) / 16 * 16;
        if (n_dense > MST_HOT_DENSE)
            return MST_OK;
    }
    mst_hot *hot = mst_alloc_lines(sizeof *hot);
    if (hot == NULL)
        return mst_fail(MST_ENOMEM, "no memory for hot weights");
    *hot = (mst_hot){
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
    if (hot->shared == NULL || hot->base == NULL || hot->weights == NULL) {
        mst_hot_destroy(hot);
        return mst_fail(MST_ENOMEM, "no memory for hot weights");
    }
    for (unsigned t = 0; t < n_threads; t++) {
        for (uint32_t i = 0; i < layout.n_ranges; i++)
            hot->weights[t].ranges[i] = mine_of(hot, t) + range_at[i];
        hot->weights[t].sparse = params->w + layout.sparse_offset;
    }
    atomic_flag_clear(&hot->busy[0]);
    atomic_flag_clear(&hot->busy[1]);
    *out = hot;
    return MST_OK;
}

void mst_hot_destroy(mst_hot *hot)
{
    if (hot == NULL)
        return;
    mst_free(hot->shared);
    mst_free(hot->base);
    mst_free(hot->weights);
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

/* Fills keys and table with the sample's popular keys. Short of memory: none, which is slower but right. */
static void choose_keys(mst_hot *hot, const mst_batch *sample)
{
    size_t n = 0, distinct = 0;
    memset(hot->table_key, 0xff, sizeof hot->table_key);
    hot->n_keys = 0;
    for (uint32_t i = 0; i < sample->n_rows; i++)
        n += sample->rows[i].n_keys;
    if (n == 0 || !mst_grow(&hot->counts, &hot->count_capacity, n, sizeof *hot->counts))
        return;
    n = 0;
    for (uint32_t i = 0; i < sample->n_rows; i++)
        for (uint32_t j = 0; j < sample->rows[i].n_keys; j++)
            hot->counts[n++] = (popular){sample->rows[i].keys[j], 1};
    qsort(hot->counts, n, sizeof *hot->counts, by_key);
    for (size_t i = 0; i < n; i++) {
        if (distinct > 0 && hot->counts[distinct - 1].key == hot->counts[i].key)
            hot->counts[distinct - 1].count++;
        else
            hot->counts[distinct++] = hot->counts[i];
    }
    qsort(hot->counts, distinct, sizeof *hot->counts, by_count);
    for (size_t i = 0; i < distinct && hot->n_keys < MST_HOT_KEYS; i++) {
        if ((uint64_t)hot->counts[i].count * POPULAR < sample->n_rows || hot->counts[i].count < 2)
            break;
        if (hot->counts[i].key < hot->prefix)
            continue; /* copied with its dense range */
        uint32_t at = table_index(hot->counts[i].key);
        if (hot->table_key[at] != NO_KEY)
            continue; /* the place is taken by a more popular one */
        hot->table_key[at] = hot->counts[i].key;
        hot->table_slot[at] = (uint16_t)hot->n_keys;
        hot->keys[hot->n_keys++] = hot->counts[i].key;
    }
}

void mst_hot_begin(mst_hot *hot, const mst_batch *sample)
{
    const float *w = hot->params->w;
    choose_keys(hot, sample);
    memset(hot->shared, 0, STRIDE * sizeof(float));
    for (uint32_t i = 0; i < hot->layout.n_ranges; i++)
        memcpy(hot->shared + hot->range_at[i], w + hot->layout.ranges[i].offset,
               hot->layout.ranges[i].size * sizeof(float));
    for (uint32_t i = 0; i < hot->n_keys; i++)
        hot->shared[hot->n_dense + i] = w[hot->layout.sparse_offset + hot->keys[i]];
    for (unsigned t = 0; t < hot->n_threads; t++) {
        memcpy(mine_of(hot, t), hot->shared, STRIDE * sizeof(float));
        memcpy(hot->base + (size_t)t * STRIDE, hot->shared, STRIDE * sizeof(float));
    }
}

void mst_hot_end(mst_hot *hot)
{
    float *w = hot->params->w;
    for (uint32_t i = 0; i < hot->layout.n_ranges; i++)
        memcpy(w + hot->layout.ranges[i].offset, hot->shared + hot->range_at[i],
               hot->layout.ranges[i].size * sizeof(float));
    for (uint32_t i = 0; i < hot->n_keys; i++)
        w[hot->layout.sparse_offset + hot->keys[i]] = hot->shared[hot->n_dense + i];
}

const mst_weights *mst_hot_weights(const mst_hot *hot, unsigned t)
{
    return &hot->weights[t];
}

void mst_hot_translate(const mst_hot *hot, unsigned t, const mst_batch *batch, mst_row *rows, uint32_t *keys)
{
    uint32_t mine = (uint32_t)(mine_of(hot, t) - hot->params->w - (ptrdiff_t)hot->layout.sparse_offset);
    uint32_t dense = mine + hot->prefix_at, first = mine + hot->n_dense;
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        rows[i] = batch->rows[i];
        uint32_t j = 0;
        for (; j < rows[i].n_keys && rows[i].keys[j] < hot->prefix;
             j++) /* rows with a shorter dense prefix */
            keys[j] = dense + rows[i].keys[j];
        for (; j < rows[i].n_keys; j++) {
            uint32_t key = rows[i].keys[j], at = table_index(key);
            uint32_t hit =
                -(uint32_t)(hot->table_key[at] == key); /* all ones or none: a branch would be guessed */
            keys[j] = key + (hit & (first + hot->table_slot[at] - key));
        }
        rows[i].keys = keys;
        keys += rows[i].n_keys;
    }
}

static void lock(atomic_flag *flag)
{
    for (unsigned spins = 0; atomic_flag_test_and_set_explicit(flag, memory_order_acquire); spins++)
        if (spins > 200)
            sched_yield(); /* its holder may have lost its core */
}

static void publish(mst_hot *hot, unsigned t, uint32_t from, uint32_t n, atomic_flag *busy)
{
    float *restrict mine = mine_of(hot, t) + from;
    float *restrict base = hot->base + (size_t)t * STRIDE + from;
    float *restrict shared = hot->shared + from;
    lock(busy);
    for (uint32_t i = 0; i < n; i++) {
        float now = shared[i] + (mine[i] - base[i]);
        shared[i] = now;
        mine[i] = now;
        base[i] = now;
    }
    atomic_flag_clear_explicit(busy, memory_order_release);
}

void mst_hot_publish_dense(mst_hot *hot, unsigned t)
{
    publish(hot, t, 0, hot->n_dense, &hot->busy[0]);
}

void mst_hot_publish_keys(mst_hot *hot, unsigned t)
{
    publish(hot, t, hot->n_dense, hot->n_keys, &hot->busy[1]);
}
