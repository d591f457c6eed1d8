/* Clipping of gradients by their L2 norm (--clip-norm). */
#ifndef MST_TENSOR_CLIP_H
#define MST_TENSOR_CLIP_H

#include <math.h>
#include <stddef.h>

/* The sum of squares. */
static inline double mst_clip_squares(const float *g, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++)
        sum += (double)g[i] * g[i];
    return sum;
}

/* The factor that brings a gradient with that sum of squares down to the norm `limit`; 1 when it is below. */
static inline float mst_clip_factor(double squares, double limit)
{
    double norm = sqrt(squares);
    return norm > limit ? (float)(limit / norm) : 1.0f;
}

static inline void mst_clip_scale(float *g, size_t n, float factor)
{
    for (size_t i = 0; factor != 1.0f && i < n; i++)
        g[i] *= factor;
}

#endif
