/* Rows per second over the last few seconds, for the progress line and the estimate of the time left. It does
 * not depend on how often it is updated: a short burst does not become a rate, and without progress it falls
 * to 0.
 *
 * Thread: one owner. Plain memory: zeros are an empty rate. The caller supplies the clock. */
#ifndef MST_TRAIN_RATE_H
#define MST_TRAIN_RATE_H

#include <stdint.h>

#define MST_RATE_SECONDS 5.0 /* length of the window */
#define MST_RATE_POINTS  24

typedef struct mst_rate {
    struct {
        double seconds;
        uint64_t rows;
    } points[MST_RATE_POINTS]; /* oldest first */
    uint32_t n;
} mst_rate;

/* Records that `rows` were done at `seconds`, which never decrease; fewer rows than before restart the rate.
 * Returns rows per second over the last MST_RATE_SECONDS, or since the first point if that is more recent; 0:
 * not known yet. */
double mst_rate_at(mst_rate *self, double seconds, uint64_t rows);

#endif
