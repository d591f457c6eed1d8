/* Lists: which floats of the flat vector a request reads or updates.
 *
 * A list is some ranges (dense parts of the model) and some keys of the sparse view. Wherever the floats of a
 * list stand in a row (weights pulled, gradients pushed), the ranges come first, in order, and then the keys,
 * `width` floats each. */
#ifndef MST_PS_LIST_H
#define MST_PS_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define MST_EXTENT_MAX 320

/* Floats [first, first + count) of the flat vector. */
typedef struct mst_extent {
    uint64_t first, count;
} mst_extent;

typedef struct mst_list {
    uint32_t n_ranges, n_keys;
    mst_extent ranges[MST_EXTENT_MAX]; /* ascending, disjoint, not empty */
    uint32_t *keys;                    /* ascending, distinct */
    size_t key_capacity;               /* of keys; 0: not the list's own */
} mst_list;

void mst_list_fini(mst_list *list); /* frees keys that are its own */
mst_status mst_list_room(mst_list *list, size_t n_keys);

static inline uint64_t mst_list_range_floats(const mst_list *list)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < list->n_ranges; i++)
        n += list->ranges[i].count;
    return n;
}

/* Floats of the list's ranges that lie below `at`. */
static inline uint64_t mst_list_below(const mst_list *list, uint64_t at)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < list->n_ranges && list->ranges[i].first < at; i++) {
        uint64_t below = at - list->ranges[i].first;
        n += below < list->ranges[i].count ? below : list->ranges[i].count;
    }
    return n;
}

static inline uint64_t mst_list_floats(const mst_list *list, uint32_t width)
{
    return mst_list_range_floats(list) + (uint64_t)list->n_keys * width;
}

#endif
