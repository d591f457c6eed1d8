/* Sums by key: the distinct keys of a list of contributions, numbered 0..k-1 in the order of first
 * appearance, and the sum of the contributions of each key. One object per thread, reused; it grows to the
 * largest batch and then allocates nothing. */
#ifndef MST_STRATEGY_KEY_SUMS_H
#define MST_STRATEGY_KEY_SUMS_H

#include <stdbool.h>

#include "tensor/grad.h"

typedef struct mst_key_sums {
    struct mst_local_bucket {
        uint32_t key, stamp, index;
    } * table; /* open addressing; a bucket is in use if it has the current stamp */
    size_t table_size;
    uint32_t stamp;
    uint32_t *keys; /* n distinct keys */
    size_t key_capacity;
    float *sums; /* n * width */
    size_t sum_capacity;
    uint32_t n;
} mst_key_sums;

void mst_key_sums_fini(mst_key_sums *l);

/* Starts a batch of at most n contributions of `width` floats. */
mst_status mst_key_sums_begin(mst_key_sums *l, size_t n, uint32_t width);

/* Adds a list of contributions. */
void mst_key_sums_add(mst_key_sums *l, const mst_contributions *list, uint32_t width);

#endif
