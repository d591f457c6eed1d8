/* Rows per second over the last few seconds: what a progress line shows and an estimate of the time left
 * rests on. However often it is told, a short burst does not become a rate, and a standstill lets it fall to
 * 0.
 *
 * Thread: one owner. Plain memory: zeros are a rate that has seen nothing. The clock is the caller's. */
#ifndef MST_TRAIN_RATE_H
#define MST_TRAIN_RATE_H

#include <stdint.h>

#define MST_RATE_SECONDS 5.0 /* that it looks back */
#define MST_RATE_POINTS  24

typedef struct mst_rate {
    struct {
        double seconds;
        uint64_t rows;
    } points[MST_RATE_POINTS]; /* oldest first */
    uint32_t n;
} mst_rate;

/* At `seconds`, which never fall, so many rows were done; fewer than before begin anew. Returns rows per
 * second over the last MST_RATE_SECONDS, or since the first point while that is shorter ago; 0: not known
 * yet. */
double mst_rate_at(mst_rate *self, double seconds, uint64_t rows);

#endif
