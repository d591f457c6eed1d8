/* Histograms of the chief's gradients, for TensorBoard.
 *
 * Every evaluation calls for one histogram of each view, of the gradient that was computed last. Its buffer
 * stays unchanged until the next one is begun; a push under way only reads it. If no gradient is complete, or
 * the last one has been written already, they follow with the next gradient, so that the steps of a curve
 * grow. Histograms take at most a hundredth of the time.
 *
 * Thread: the owner of the net. While communication overlaps, the gradient is not complete. */
#ifndef MST_PS_WORKER_HISTOGRAMS_H
#define MST_PS_WORKER_HISTOGRAMS_H

#include "ps/worker_gradient.h"

typedef struct mst_worker_histograms {
    const mst_worker_gradient *gradient;
    bool due;         /* an evaluation is under way that has none */
    uint64_t written; /* the last step whose histograms were written */
    uint64_t begun_ns, spent_ns;
} mst_worker_histograms;

/* Writes the histograms that are due. */
void mst_worker_histograms_write(mst_worker_histograms *self);

#endif
