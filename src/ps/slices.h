/* Slices: the rows of a synchronous step, when rows are fixed to steps. The global batch of step t is the
 * next slice of the epoch's order of rows; the workers share it. Further steps before the end of the epoch
 * take the shares of a lost worker, so that every row is trained on once per epoch.
 *
 * Steps are planned ahead of training. Thread: one. */
#ifndef MST_PS_SLICES_H
#define MST_PS_SLICES_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mst_slice {
    uint64_t step, epoch, from, to;
} mst_slice;

typedef struct mst_slices {
    uint64_t epoch_rows, batch;   /* batch: the global one */
    uint64_t epochs, steps, rows; /* limits, counted from the beginning of training */
    uint64_t step, done_rows;     /* planned so far */
    uint64_t epoch, position;     /* start of the next regular slice */
    mst_slice *missed;            /* of this epoch; step unused */
    size_t n_missed, capacity;
} mst_slices;

void mst_slices_fini(mst_slices *self);

/* Plans the next step; false: there is none within the limits. */
bool mst_slices_next(mst_slices *self, mst_slice *out);

/* Rows of a planned slice that no worker trains on there. They count as not planned. */
mst_status mst_slices_miss(mst_slices *self, uint64_t epoch, uint64_t from, uint64_t to);

#endif
