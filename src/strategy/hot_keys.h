/* The popular keys of some rows, and a map from keys to their numbers. */
#ifndef MST_STRATEGY_HOT_KEYS_H
#define MST_STRATEGY_HOT_KEYS_H

#include "tensor/kernels.h"

typedef struct mst_hot_keys {
    uint32_t n, most;
    uint32_t *keys, *counts; /* the most popular first, and how often each occurs in the sample */
    uint32_t n_rows;         /* of the sample */
    uint32_t *buckets;       /* of a map (mst_key_map); a key that collides is left out */
    uint32_t factor, shift;
    /* scratch of choose */
    uint8_t *hashes;
    uint32_t *sample;
    struct mst_hot_count *table;
    size_t sample_capacity, table_capacity;
} mst_hot_keys;

/* For at most `most` keys, a power of 2: MST_ENOMEM. fini is safe after a failure. */
mst_status mst_hot_keys_init(mst_hot_keys *hot, uint32_t most);
void mst_hot_keys_fini(mst_hot_keys *hot);

/* Chooses the keys in [prefix, n_keys) that occur at least `least` times in the first max_rows rows of each
 * sample. Without memory there are none. */
void mst_hot_keys_choose(mst_hot_keys *hot, const mst_batch *const *samples, unsigned n_samples,
                         uint32_t max_rows, uint32_t prefix, uint64_t n_keys, uint32_t least);

/* The number of a key; false: it is not popular. */
static inline bool mst_hot_keys_find(const mst_hot_keys *hot, uint32_t key, uint32_t *number)
{
    uint32_t hash = key * hot->factor;
    *number = mst_map_number(hot->buckets[hash >> hot->shift], hash, hot->shift);
    return *number < hot->n;
}

#endif
