/* Values of some floats of the flat vector, weights and optimizer state: those that a step changes, as a
 * server sends them to its partner (DELTA), and as they were before, so that the step can be undone. Values
 * are absolute: copying them twice has no further effect.
 *
 * Thread: one. */
#ifndef MST_PS_DELTA_H
#define MST_PS_DELTA_H

#include "ps/placement.h"
#include "ps/proto.h"

/* The floats: ranges and keys, ascending and distinct. */
typedef struct mst_delta_list {
    mst_extent *ranges;
    uint32_t *keys, *merged; /* merged: scratch */
    size_t n_ranges, n_keys, range_capacity, key_capacity, merged_capacity;
} mst_delta_list;

typedef struct mst_delta {
    mst_delta_list list;
    float *values; /* of all floats of the list: the weights, then every optimizer slot */
    size_t capacity;
} mst_delta;

void mst_delta_fini(mst_delta *self);

/* An empty list, and the union with another. */
static inline void mst_delta_clear(mst_delta *self)
{
    self->list.n_ranges = self->list.n_keys = 0;
}
mst_status mst_delta_add(mst_delta *self, const mst_key_list *list);
/* Of the weights and all slots. Ranges have all slots of the store, keys those of their view. */
uint64_t mst_delta_floats(const mst_delta *self, const mst_params *params, const mst_placement *table);

/* Keeps the present values of the list's floats, and puts them back. */
mst_status mst_delta_keep(mst_delta *self, const mst_params *params, const mst_placement *table);
void mst_delta_restore(const mst_delta *self, mst_params *params, const mst_placement *table);

/* The list with the present values of its floats, as the body of a DELTA: the most bytes, and those written.
 */
size_t mst_delta_bound(const mst_delta *self, const mst_params *params, const mst_placement *table);
size_t mst_delta_encode(const mst_delta *self, const mst_params *params, const mst_placement *table,
                        uint8_t *out);
/* Reads the list of a DELTA, whose floats must all be `server`'s: *values points to the values inside the
 * body. MST_EPEER describes the fault. */
mst_status mst_delta_decode(mst_delta *self, const uint8_t *in, uint64_t size, const mst_params *params,
                            const mst_placement *table, uint32_t server, const uint8_t **values);
/* Copies values of the list's floats into the vector. */
void mst_delta_copy(const mst_delta *self, const uint8_t *values, mst_params *params,
                    const mst_placement *table);

#endif
