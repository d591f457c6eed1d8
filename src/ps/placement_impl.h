/* Shared by placement.c and placement_json.c: the positions of the sparse view and of its servers' ranges. */
#ifndef MST_PS_PLACEMENT_IMPL_H
#define MST_PS_PLACEMENT_IMPL_H

#include "ps/placement.h"

#define MST_TABLE_LINE 16 /* floats: no partition shares a cache line of weights with another */

/* Ranges that a server's partitions may form, with neighbours counted as one: with a model's ranges clipped
 * to them, a list still fits (MST_EXTENT_MAX). */
#define MST_TABLE_RUNS (MST_EXTENT_MAX - MST_RANGE_MAX)

static inline uint64_t mst_placement_n_keys(const mst_placement *table)
{
    return table->key_starts[table->n_servers];
}

/* The end of the sparse view, padding included. */
static inline uint64_t mst_placement_sparse_end(const mst_placement *table)
{
    uint64_t end = table->sparse_offset + mst_placement_n_keys(table) * table->width;
    return (end + MST_TABLE_LINE - 1) / MST_TABLE_LINE * MST_TABLE_LINE;
}

/* Floats of a server's keys, [*from, *to); the padding after the last key goes with it. */
static inline void mst_placement_key_floats(const mst_placement *table, uint32_t server, uint64_t *from,
                                            uint64_t *to)
{
    uint64_t first = table->key_starts[server], end = table->key_starts[server + 1];
    *from = table->sparse_offset + first * table->width;
    *to = table->sparse_offset + end * table->width;
    if (first < end && end == mst_placement_n_keys(table))
        *to = mst_placement_sparse_end(table);
}

#endif
