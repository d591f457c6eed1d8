/* The distribution of the values of a weight or gradient, in buckets of a quarter of an octave, for
 * TensorBoard.
 *
 * Long vectors are sampled at MST_HISTOGRAM_CAP evenly spaced positions, so 30 million weights cost no more
 * than 65536. Counts are then those of the sample, scaled up. */
#ifndef MST_OBSERVE_HISTOGRAM_H
#define MST_OBSERVE_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define MST_HISTOGRAM_CAP     ((uint64_t)1 << 16)
#define MST_HISTOGRAM_SHARE   100  /* histograms take at most 1/MST_HISTOGRAM_SHARE of the time */
#define MST_HISTOGRAM_BUCKETS 2048 /* sign, exponent and two bits of the mantissa */

typedef struct mst_histogram {
    double min, max, count, sum, sum_squares; /* of finite values; count is scaled up */
    uint64_t not_finite;                      /* of the sampled values */
    uint32_t buckets[MST_HISTOGRAM_BUCKETS];  /* of the sampled values, by the top bits of the float */
    double scale;
} mst_histogram;

/* Values in memory: consecutive, or `width` of every `stride`. */
typedef struct mst_stretch {
    const float *values;
    uint64_t n;
    uint32_t width, stride; /* stride 0: consecutive */
} mst_stretch;

/* Computes the histogram of all stretches together. With more than MST_HISTOGRAM_CAP values, values in
 * untouched memory count as 0, and the memory stays untouched. Other threads may write values at the same
 * time (asynchronous training): each is one word. */
void mst_histogram_gather(mst_histogram *self, const mst_stretch *stretches, size_t n_stretches);

/* Calls add (unless NULL) for each bucket from the lowest up, with its upper edge and count. Edges ascend. A
 * gap is one empty bucket. Returns the number of buckets. */
size_t mst_histogram_each(const mst_histogram *self, void (*add)(void *arg, double limit, double count),
                          void *arg);

#endif
