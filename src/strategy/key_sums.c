/* Sums by key in a hash table; contract in key_sums.h. */
#include "strategy/key_sums.h"

#include <string.h>

#include "base/alloc.h"

void mst_key_sums_fini(mst_key_sums *l)
{
    mst_free(l->table);
    mst_free(l->keys);
    mst_free(l->sums);
    *l = (mst_key_sums){0};
}

mst_status mst_key_sums_begin(mst_key_sums *l, size_t n, uint32_t width)
{
    size_t want = 1024;
    while (want - want / 4 < n) /* at most three quarters full, even if no key repeats */
        want *= 2;
    if (want > l->table_size) {
        mst_free(l->table);
        l->table_size = 0;
        l->table = mst_calloc(want, sizeof *l->table);
        if (l->table == NULL)
            return mst_fail_memory();
        l->table_size = want;
        l->stamp = 0;
    }
    if (!mst_grow(&l->keys, &l->key_capacity, n, sizeof *l->keys) ||
        !mst_grow(&l->sums, &l->sum_capacity, n * width, sizeof *l->sums))
        return mst_fail_memory();
    if (++l->stamp == 0) {
        memset(l->table, 0, l->table_size * sizeof *l->table);
        l->stamp = 1;
    }
    l->n = 0;
    return MST_OK;
}

/* The bucket of a key; an unused one has another stamp. */
static inline struct mst_local_bucket *key_sums_bucket(const mst_key_sums *l, uint32_t key)
{
    size_t mask = l->table_size - 1;
    size_t i = (size_t)((uint64_t)key * 0x9E3779B97F4A7C15ull >> 32) & mask;
    while (l->table[i].stamp == l->stamp && l->table[i].key != key)
        i = (i + 1) & mask;
    return &l->table[i];
}

static inline void key_sums_claim(mst_key_sums *l, struct mst_local_bucket *bucket, uint32_t key)
{
    *bucket = (struct mst_local_bucket){.key = key, .stamp = l->stamp, .index = l->n};
    l->keys[l->n++] = key;
}

static void key_sums_add_single(mst_key_sums *l, const mst_contributions *list)
{
    for (size_t i = 0; i < list->n; i++) {
        struct mst_local_bucket *bucket = key_sums_bucket(l, list->keys[i]);
        if (bucket->stamp == l->stamp) {
            l->sums[bucket->index] += list->values[i];
        } else {
            l->sums[l->n] = list->values[i];
            key_sums_claim(l, bucket, list->keys[i]);
        }
    }
}

void mst_key_sums_add(mst_key_sums *l, const mst_contributions *list, uint32_t width)
{
    if (width == 1) {
        key_sums_add_single(l, list);
        return;
    }
    for (size_t i = 0; i < list->n; i++) {
        struct mst_local_bucket *bucket = key_sums_bucket(l, list->keys[i]);
        const float *value = list->values + i * width;
        if (bucket->stamp != l->stamp) {
            memcpy(l->sums + (size_t)l->n * width, value, width * sizeof *value);
            key_sums_claim(l, bucket, list->keys[i]);
            continue;
        }
        float *sum = l->sums + (size_t)bucket->index * width;
        for (uint32_t c = 0; c < width; c++)
            sum[c] += value[c];
    }
}
