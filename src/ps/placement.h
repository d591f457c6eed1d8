/* The partition table: which server has which floats of the flat vector. The coordinator makes it and sends
 * it to all processes.
 *
 * Invariants
 * 1. Partitions are ascending and cover [0, size) without gaps or overlaps.
 * 2. The sparse view is divided into one range of keys per server, in server order, at multiples of 16
 * floats; the keys of a list that one server has are therefore one run of it. The bounds are quantiles of the
 * keys that sampled batches touch, which balances bytes and applies; equal ranges would not.
 * 3. Dense ranges are divided into partitions of at most MST_PARTITION_FLOATS and assigned to the least
 * loaded server. */
#ifndef MST_PS_PLACEMENT_H
#define MST_PS_PLACEMENT_H

#include <jansson.h>
#include <stdbool.h>

#include "tensor/grad.h"
#include "tensor/key_list.h"
#include "tensor/params.h"

#define MST_PARTITION_FLOATS (1u << 20) /* 4 MB */
#define MST_SERVER_MAX       1024

typedef struct mst_partition {
    uint64_t first, count;
    uint32_t server;
} mst_partition;

typedef struct mst_placement {
    uint32_t version, n_servers, n_partitions;
    uint64_t size; /* floats */
    mst_partition *partitions;
    /* The sparse view; width 0: none. Server s has keys [key_starts[s], key_starts[s + 1]). */
    uint64_t sparse_offset;
    uint32_t width;
    uint32_t *key_starts;
} mst_placement;

/* layout: the model's gradient layout (ranges and sparse part). sample: keys as batches touch them (each key
 * once per batch, batches one after the other; any order), n of them; with none, keys are divided equally.
 * dense_model: the sparse view is treated as dense ranges (the whole vector travels). */
mst_status mst_placement_make(mst_placement *table, const mst_params *params, const mst_grad *layout,
                              uint32_t n_servers, const uint32_t *sample, size_t n, bool dense_model);
void mst_placement_fini(mst_placement *table);

/* New reference or NULL; and back, checked (MST_EINPUT with a message). */
json_t *mst_placement_json(const mst_placement *table);
mst_status mst_placement_from_json(mst_placement *table, const json_t *json);

/* The share of a list that a server has. The list has at most MST_RANGE_MAX ranges. ranges: clipped copies;
 * keys: points into list->keys (key_capacity 0). *first_key is the number of its first key in the list. */
void mst_placement_share(const mst_placement *table, const mst_key_list *list, uint32_t server,
                         mst_key_list *share, uint32_t *first_key);

/* Floats of the flat vector that a server owns: its partitions, in order. */
typedef struct mst_owned {
    mst_extent *extents; /* the caller frees them */
    uint32_t n;
    uint64_t floats; /* their sum */
} mst_owned;
mst_status mst_placement_owned(const mst_placement *table, uint32_t server, mst_owned *out);
/* Whether the server owns any floats. */
bool mst_placement_has(const mst_placement *table, uint32_t server);
/* Whether floats [first, first + count) lie in the vector and all belong to the server. */
bool mst_placement_owns(const mst_placement *table, uint32_t server, uint64_t first, uint64_t count);
/* The same of floats of optimizer slot - 1, or of the weights (slot 0). */
bool mst_placement_owns_state(const mst_placement *table, uint32_t server, const mst_params *params,
                              uint32_t slot, uint64_t first, uint64_t count);

mst_status mst_placement_copy(const mst_placement *from, mst_placement *out);
/* The floats of `from` go to `to`, a server next to it. */
void mst_placement_move(mst_placement *table, uint32_t from, uint32_t to);

#endif
