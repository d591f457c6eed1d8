/* How the values of a weight or gradient are spread, in buckets that are a quarter of an octave wide: what
 * TensorBoard draws.
 *
 * Long vectors are sampled: in `cap` places spread evenly, so that looking at 30 million weights costs no
 * more than at 65536. Counts are then those of the sample scaled up. */
#ifndef MST_OBSERVE_HISTOGRAM_H
#define MST_OBSERVE_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define MST_HISTOGRAM_CAP     ((uint64_t)1 << 16)
#define MST_HISTOGRAM_SHARE   100  /* histograms cost at most one part in so many of the time */
#define MST_HISTOGRAM_BUCKETS 2048 /* sign, exponent and two bits of the mantissa */

typedef struct mst_histogram {
    double min, max, count, sum, sum_squares; /* of finite values; count: scaled up */
    uint64_t not_finite;                      /* of those looked at */
    uint32_t buckets[MST_HISTOGRAM_BUCKETS];  /* of those looked at, by the top bits of the float */
    double scale;
} mst_histogram;

/* Some of the values, where they lie. */
typedef struct mst_stretch {
    const float *values;
    uint64_t n;
} mst_stretch;

/* Of the values of all stretches together. Of more than MST_HISTOGRAM_CAP values, those in memory that was
 * never touched count as 0 and stay so. Values may be written by other threads meanwhile (asynchronous
 * training): each is one word. */
void mst_histogram_gather(mst_histogram *self, const mst_stretch *stretches, size_t n_stretches);
/* Of one. */
void mst_histogram_fill(mst_histogram *self, const float *values, uint64_t n);

/* Calls add for each bucket from the lowest up, with its upper edge and count; edges ascend, and an empty
 * bucket comes before one that does not touch the last. Returns how many. add may be NULL. */
size_t mst_histogram_each(const mst_histogram *self, void (*add)(void *arg, double limit, double count),
                          void *arg);

#endif
