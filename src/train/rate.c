/* Contract in rate.h.
 *
 * Invariants
 * 1. Points lie at least SPACING apart, so that all but the oldest are younger than MST_RATE_SECONDS.
 * 2. The oldest point is the newest of those at least MST_RATE_SECONDS old, if there is one. */
#include "train/rate.h"

#include <string.h>

#define SPACING (MST_RATE_SECONDS / (MST_RATE_POINTS - 2))

double mst_rate_at(mst_rate *self, double seconds, uint64_t rows)
{
    if (self->n > 0 && (rows < self->points[self->n - 1].rows || seconds < self->points[0].seconds))
        self->n = 0;
    while (self->n > 1 && seconds - self->points[1].seconds >= MST_RATE_SECONDS) {
        self->n--;
        memmove(self->points, self->points + 1, self->n * sizeof *self->points);
    }
    double since = self->n > 0 ? seconds - self->points[0].seconds : 0.0;
    double rate = since > 0.0 ? (double)(rows - self->points[0].rows) / since : 0.0;
    if (self->n == 0 ||
        (self->n < MST_RATE_POINTS && seconds - self->points[self->n - 1].seconds >= SPACING)) {
        self->points[self->n].seconds = seconds;
        self->points[self->n].rows = rows;
        self->n++;
    }
    return rate;
}
