/* The dense gradient of a rank as one flat vector, split into slices that are reduced over all ranks.
 *
 * The ranges of the gradient lie in the vector in reverse order: the order in which the backward pass
 * finishes them. A slice is about 4 MB; it is posted to the communication thread when the last of its ranges
 * is ready, and its sum replaces it.
 *
 * Invariants
 * 1. A slice belongs to the communication thread from post to wait.
 * 2. Slices are posted in order, whatever order ranges become ready in.
 *
 * Thread: the training thread makes all calls but mst_grad_slices_choose. */
#ifndef MST_STRATEGY_GRAD_SLICES_H
#define MST_STRATEGY_GRAD_SLICES_H

#include "strategy/comm_thread.h"
#include "tensor/grad.h"

typedef struct mst_grad_slices {
    mst_comm *comm;
    bool reduces; /* else slices are never posted */
    float *flat;
    uint64_t n_flat;
    uint32_t n_ranges;
    uint64_t flat_at[MST_RANGE_MAX]; /* where a range begins */
    mst_reduce_op *ops;
    uint32_t n_ops, next_op;                                 /* next to be posted */
    uint32_t first_op[MST_RANGE_MAX], end_op[MST_RANGE_MAX]; /* that hold a range */
    uint32_t *last_range;                                    /* of an op: the one that is ready last */
    bool ready[MST_RANGE_MAX];                               /* the gradient of a range is final */
} mst_grad_slices;

/* Cuts a gradient with these ranges, and gives the communication thread the longest slice. The caller ends
 * with fini, also on failure. */
mst_status mst_grad_slices_init(mst_grad_slices *self, mst_comm *comm, const mst_grad *layout,
                                mst_float_format wire, bool reduces);
void mst_grad_slices_fini(mst_grad_slices *self); /* safe on zeroes */

/* Sets the way of every slice: the given one, or (MST_REDUCE_WAYS) the one that measures fastest for slices
 * of about its size. Leaves zeros. On the communication thread of all ranks. */
mst_status mst_grad_slices_choose(mst_grad_slices *self, mst_reduce_way way);

/* A step: begin, then ready for each range whose gradient is final, or ready_all. */
void mst_grad_slices_begin(mst_grad_slices *self);
mst_status mst_grad_slices_ready(mst_grad_slices *self, uint32_t range);
mst_status mst_grad_slices_ready_all(mst_grad_slices *self);
/* Waits until slice i is reduced; adds the time to *seconds. */
mst_status mst_grad_slices_wait(mst_grad_slices *self, uint32_t i, double *seconds);
/* The floats [*from, *to) of the vector that slice i holds. */
void mst_grad_slices_extent(const mst_grad_slices *self, uint32_t i, uint64_t *from, uint64_t *to);

#endif
