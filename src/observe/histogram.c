/* Contract in histogram.h. A bucket's number is the top 11 bits of the float: sorted by magnitude within each
 * sign. */
#include "observe/histogram.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/racy.h"

#define SHIFT    21
#define NEGATIVE 1024 /* first bucket of negative values */
#define INFINITE 1020 /* first bucket beyond the finite ones, of either sign */

static float histogram_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#define WINDOW 256 /* pages per query */

/* The resident pages of a long array. Untouched weights are not resident, and reading them would allocate
 * memory. */
typedef struct presence {
    uintptr_t page_size, from, to; /* the addresses that `pages` covers */
    unsigned char pages[WINDOW];
} presence;

/* Addresses must ascend. A page with unknown state counts as resident. */
static bool histogram_is_resident(presence *p, const float *at)
{
    uintptr_t address = (uintptr_t)at;
    if (address >= p->to) {
        p->from = address & ~(p->page_size - 1);
        p->to = p->from + WINDOW * p->page_size;
        if (mincore((void *)p->from, WINDOW * p->page_size, p->pages) != 0)
            memset(p->pages, 1, sizeof p->pages);
    }
    return p->pages[(address - p->from) / p->page_size] & 1;
}

MST_RACY void mst_histogram_gather(mst_histogram *self, const mst_stretch *stretches, size_t n_stretches)
{
    memset(self, 0, sizeof *self);
    uint64_t n = 0, before = 0, counted = 0; /* before: values of the stretches before this one */
    const mst_stretch *s = stretches;
    for (size_t i = 0; i < n_stretches; i++)
        n += stretches[i].n;
    uint64_t looks = n < MST_HISTOGRAM_CAP ? n : MST_HISTOGRAM_CAP;
    double sum = 0.0, squares = 0.0;
    float min = INFINITY, max = -INFINITY;
    long page = sysconf(_SC_PAGESIZE);
    presence there = {.page_size = page > 0 ? (uintptr_t)page : 4096};
    for (uint64_t i = 0; i < looks; i++) {
        uint64_t place = looks == n ? i : (uint64_t)((double)i * (double)n / (double)looks);
        for (; place - before >= s->n && s + 1 < stretches + n_stretches; there.to = 0)
            before += s++->n;
        uint64_t k = place - before;
        const float *at = s->values + (s->stride == 0 ? k : k / s->width * s->stride + k % s->width);
        float value = looks == n || histogram_is_resident(&there, at) ? *at : 0.0f;
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

/* Returns the index and the edges of the k-th bucket from the lowest up. */
static unsigned histogram_bucket_at(unsigned k, double *low, double *high)
{
    if (k < INFINITE) { /* negative: the larger the magnitude, the lower */
        unsigned b = INFINITE - 1 - k;
        *low = -(double)histogram_float((b + 1) << SHIFT);
        *high = -(double)histogram_float(b << SHIFT);
        if (b == INFINITE - 1)
            *low = -(double)3.402823466e38f;
        return NEGATIVE + b;
    }
    unsigned b = k - INFINITE;
    *low = (double)histogram_float(b << SHIFT);
    *high = b == INFINITE - 1 ? (double)3.402823466e38f : (double)histogram_float((b + 1) << SHIFT);
    return b;
}

size_t mst_histogram_each(const mst_histogram *self, void (*add)(void *arg, double limit, double count),
                          void *arg)
{
    size_t n = 0;
    double last = -INFINITY, low, high;
    for (unsigned k = 0; k < 2 * INFINITE; k++) {
        unsigned b = histogram_bucket_at(k, &low, &high);
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
