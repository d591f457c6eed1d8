/* Key lists: which floats of the flat vector a request reads or updates.
 *
 * A key list has ranges (the dense floats of the model) and keys of the sparse view. Where the floats of a
 * list are stored one after the other (pulled weights, pushed gradients), the ranges come first, in order,
 * and then the keys, `width` floats each. */
#ifndef MST_TENSOR_KEY_LIST_H
#define MST_TENSOR_KEY_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define MST_EXTENT_MAX 320

/* Floats [first, first + count) of the flat vector. */
typedef struct mst_extent {
    uint64_t first, count;
} mst_extent;

typedef struct mst_key_list {
    uint32_t n_ranges, n_keys;
    mst_extent ranges[MST_EXTENT_MAX]; /* ascending, disjoint, not empty */
    uint32_t *keys;                    /* ascending, distinct */
    size_t key_capacity;               /* of keys; 0: the list does not own them */
} mst_key_list;

void mst_key_list_fini(mst_key_list *list); /* frees keys that the list owns */
mst_status mst_key_list_room(mst_key_list *list, size_t n_keys);

/* Number of keys below a key, among n ascending ones. */
size_t mst_keys_below(const uint32_t *keys, size_t n, uint64_t key);

static inline uint64_t mst_key_list_range_floats(const mst_key_list *list)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < list->n_ranges; i++)
        n += list->ranges[i].count;
    return n;
}

/* Floats of the list's ranges that lie below `at`. */
static inline uint64_t mst_key_list_below(const mst_key_list *list, uint64_t at)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < list->n_ranges && list->ranges[i].first < at; i++) {
        uint64_t below = at - list->ranges[i].first;
        n += below < list->ranges[i].count ? below : list->ranges[i].count;
    }
    return n;
}

static inline uint64_t mst_key_list_floats(const mst_key_list *list, uint32_t width)
{
    return mst_key_list_range_floats(list) + (uint64_t)list->n_keys * width;
}

#endif
