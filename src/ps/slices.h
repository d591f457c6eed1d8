/* Slices: the rows of a synchronous step, when rows are fixed to steps. The global batch of step t is the
 * next slice of the epoch's order of rows; the workers share it.
 *
 * Steps are planned ahead of training. Thread: one. */
#ifndef MST_PS_SLICES_H
#define MST_PS_SLICES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mst_slice {
    uint64_t step, epoch, from, to;
} mst_slice;

typedef struct mst_slices {
    uint64_t epoch_rows, batch;   /* batch: the global one */
    uint64_t epochs, steps, rows; /* limits, counted from the beginning of training */
    uint64_t step, done_rows;     /* planned so far */
    uint64_t epoch, position;     /* start of the next slice */
} mst_slices;

/* Plans the next step; false: there is none within the limits. */
bool mst_slices_next(mst_slices *self, mst_slice *out);

#endif
