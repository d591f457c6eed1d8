/* Localising by hashing; contract in localise.h. */
#include "strategy/localise.h"

#include <string.h>

#include "base/alloc.h"

void mst_localiser_fini(mst_localiser *l)
{
    mst_free(l->table);
    mst_free(l->keys);
    mst_free(l->sums);
    *l = (mst_localiser){0};
}

mst_status mst_localiser_begin(mst_localiser *l, size_t n, uint32_t width)
{
    size_t want = 1024;
    while (want < 2 * n)
        want *= 2;
    if (want > l->table_size) {
        mst_free(l->table);
        l->table_size = 0;
        l->table = mst_calloc(want, sizeof *l->table);
        if (l->table == NULL)
            return mst_fail(MST_ENOMEM, "no memory to localise a batch of %zu entries", n);
        l->table_size = want;
        l->stamp = 0;
    }
    if (!mst_grow(&l->keys, &l->key_capacity, n, sizeof *l->keys) ||
        !mst_grow(&l->sums, &l->sum_capacity, n * width, sizeof *l->sums))
        return mst_fail(MST_ENOMEM, "no memory to localise a batch of %zu entries", n);
    if (++l->stamp == 0) {
        memset(l->table, 0, l->table_size * sizeof *l->table);
        l->stamp = 1;
    }
    l->n = 0;
    return MST_OK;
}

/* The key's number; *fresh when it is new. */
static inline uint32_t number_of(mst_localiser *l, uint32_t key, bool *fresh)
{
    size_t mask = l->table_size - 1;
    size_t i = (size_t)((uint64_t)key * 0x9E3779B97F4A7C15ull >> 32) & mask;
    for (;; i = (i + 1) & mask) {
        if (l->table[i].stamp != l->stamp) {
            l->table[i].stamp = l->stamp;
            l->table[i].index = l->n;
            l->keys[l->n] = key;
            *fresh = true;
            return l->n++;
        }
        if (l->keys[l->table[i].index] == key) {
            *fresh = false;
            return l->table[i].index;
        }
    }
}

void mst_localiser_add(mst_localiser *l, const mst_contributions *list, uint32_t width)
{
    for (size_t i = 0; i < list->n; i++) {
        bool fresh;
        float *sum = l->sums + (size_t)number_of(l, list->keys[i], &fresh) * width;
        const float *value = list->values + i * width;
        for (uint32_t c = 0; c < width; c++)
            sum[c] = fresh ? value[c] : sum[c] + value[c];
    }
}
