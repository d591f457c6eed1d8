/* Contract in histogram.h. A bucket's number is the top 11 bits of the float: sorted by magnitude within each
 * sign. */
#include "observe/histogram.h"

#include <math.h>
#include <string.h>

#include "base/racy.h"

#define SHIFT    21
#define NEGATIVE 1024 /* first bucket of negative values */
#define INFINITE 1020 /* first bucket beyond the finite ones, of either sign */

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

MST_RACY void mst_histogram_fill(mst_histogram *self, const float *values, uint64_t n)
{
    memset(self, 0, sizeof *self);
    uint64_t looks = n < MST_HISTOGRAM_CAP ? n : MST_HISTOGRAM_CAP, counted = 0;
    double sum = 0.0, squares = 0.0;
    float min = INFINITY, max = -INFINITY;
    for (uint64_t i = 0; i < looks; i++) {
        float value = values[looks == n ? i : (uint64_t)((double)i * (double)n / (double)looks)];
        uint32_t bits;
        memcpy(&bits, &value, sizeof bits);
        uint32_t bucket = bits >> SHIFT;
        if ((bucket & (NEGATIVE - 1)) >= INFINITE) {
            self->not_finite++;
            continue;
        }
        self->buckets[bucket]++;
        counted++;
        sum += (double)value;
        squares += (double)value * (double)value;
        min = value < min ? value : min;
        max = value > max ? value : max;
    }
    self->scale = looks > 0 ? (double)n / (double)looks : 1.0;
    self->count = (double)counted * self->scale;
    self->sum = sum * self->scale;
    self->sum_squares = squares * self->scale;
    self->min = counted > 0 ? (double)min : 0.0;
    self->max = counted > 0 ? (double)max : 0.0;
}

/* Edges of the k-th bucket from the lowest up, and which that is. */
static unsigned bucket_at(unsigned k, double *low, double *high)
{
    if (k < INFINITE) { /* negative: the larger the magnitude, the lower */
        unsigned b = INFINITE - 1 - k;
        *low = -(double)float_of((b + 1) << SHIFT);
        *high = -(double)float_of(b << SHIFT);
        if (b == INFINITE - 1)
            *low = -(double)3.402823466e38f;
        return NEGATIVE + b;
    }
    unsigned b = k - INFINITE;
    *low = (double)float_of(b << SHIFT);
    *high = b == INFINITE - 1 ? (double)3.402823466e38f : (double)float_of((b + 1) << SHIFT);
    return b;
}

size_t mst_histogram_each(const mst_histogram *self, void (*add)(void *arg, double limit, double count),
                          void *arg)
{
    size_t n = 0;
    double last = -INFINITY, low, high;
    for (unsigned k = 0; k < 2 * INFINITE; k++) {
        unsigned b = bucket_at(k, &low, &high);
        if (self->buckets[b] == 0)
            continue;
        if (low > last) {
            n++;
            if (add != NULL)
                add(arg, low, 0.0);
        }
        n++;
        if (add != NULL)
            add(arg, high, (double)self->buckets[b] * self->scale);
        last = high;
    }
    return n;
}
