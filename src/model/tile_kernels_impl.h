/* The tile kernels' source, compiled once per instruction set: tile_kernels_<isa>.c defines LANES (floats per
 * vector, images per tile), TILE_ISA and TILE_SET and includes this file. Written with GNU vector types, so
 * that one source serves all; the headers are split by topic and included here only.
 *
 * Why they are fast: an output vector (16 images) is one register, and a block of up to BLOCK outputs that
 * read the same input is computed together: one load of the input, then per output one multiply-add with its
 * weight broadcast from memory. Weights are packed so that those of a block lie side by side. With BLOCK
 * independent sums the latency of the multiply-add is hidden, and the only limit left is its throughput. */
#include <math.h>
#include <string.h>

#include "base/racy.h"
#include "model/tile_kernels.h"

#include "tensor/kernels_vec.h"

#if LANES == 16
#define BLOCK 16
#else
#define BLOCK 8
#endif

#define UNROLL _Pragma("GCC unroll 16")

INLINE uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

INLINE float *at(const float *array, size_t index)
{
    return (float *)array + index * LANES;
}

/* Lane mask: x is not NaN. */
INLINE ivec number(vec x)
{
    return (ivec)abs_vec(x) <= 0x7f800000;
}

/* ---- activations ---- */

/* e = e^-2|x|: tanh|x| = (1 - e) / (1 + e), and for |x| < 1/2, where 1 - e cancels, the continued fraction
 * x / (1 + x^2 / (3 + x^2 / (5 + x^2 / (7 + x^2 / 9)))). One division for both. */
INLINE vec tanh_vec(vec x)
{
    vec a = abs_vec(x), q = x * x;
    vec e = exp_nonpositive(splat(-2.0f) * a);
    vec small_top = a * (splat(945.0f) + q * (splat(105.0f) + q));
    vec small_bottom = splat(945.0f) + q * (splat(420.0f) + q * splat(15.0f));
    ivec small = a < splat(0.5f);
    vec t = select_vec(small, small_top, splat(1.0f) - e) / select_vec(small, small_bottom, splat(1.0f) + e);
    t = (vec)((ivec)t | ((ivec)x & (int32_t)0x80000000));
    return select_vec(number(x), t, x);
}

INLINE vec sigmoid_vec(vec x)
{
    vec e = exp_nonpositive(-abs_vec(x));
    vec s = select_vec(x < splat(0.0f), e, splat(1.0f)) / (splat(1.0f) + e);
    return select_vec(number(x), s, x);
}

INLINE vec relu_vec(vec x)
{
    return select_vec(x < splat(0.0f), splat(0.0f), x); /* not a number stays that */
}

/* d * act'(.), where y is the activation's output. */
INLINE vec act_slope(mst_tile_act act, vec y, vec d)
{
    switch (act) {
    case MST_TILE_RELU:
        return (vec)((ivec)d & (y > splat(0.0f)));
    case MST_TILE_TANH:
        return d * (splat(1.0f) - y * y);
    case MST_TILE_SIGMOID:
        return d * y * (splat(1.0f) - y);
    default:
        return d;
    }
}

static void act_forward(mst_tile_act act, size_t size, const float *x, float *y)
{
    switch (act) {
    case MST_TILE_RELU:
        for (size_t i = 0; i < size; i++)
            store(at(y, i), relu_vec(load(at(x, i))));
        break;
    case MST_TILE_TANH:
        for (size_t i = 0; i < size; i++)
            store(at(y, i), tanh_vec(load(at(x, i))));
        break;
    case MST_TILE_SIGMOID:
        for (size_t i = 0; i < size; i++)
            store(at(y, i), sigmoid_vec(load(at(x, i))));
        break;
    default:
        if (x != y)
            memcpy(y, x, size * LANES * sizeof *y);
    }
}

static void act_backward(mst_tile_act act, size_t size, const float *dy, const float *factors, float *x)
{
    for (size_t i = 0; i < size; i++) {
        vec d = load(at(dy, i));
        if (factors != NULL)
            d *= load(at(factors, i));
        store(at(x, i), act_slope(act, load(at(x, i)), d));
    }
}

/* ---- between rows and lanes ---- */

/* v as a matrix of LANES rows, transposed in place: log2(LANES) times, the two halves of the rows are
 * interleaved. */
INLINE void transpose(vec *v)
{
#if LANES == 16
#define LOW(a, b)  __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#elif LANES == 8
#define LOW(a, b)  __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#else
#define LOW(a, b)  __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif
    UNROLL for (uint32_t round = 1; round < LANES; round *= 2)
    {
        vec next[LANES];
        UNROLL for (uint32_t i = 0; i < LANES / 2; i++)
        {
            next[2 * i] = LOW(v[i], v[i + LANES / 2]);
            next[2 * i + 1] = HIGH(v[i], v[i + LANES / 2]);
        }
        UNROLL for (uint32_t i = 0; i < LANES; i++) v[i] = next[i];
    }
}

static void to_lanes(const float *rows, size_t ld, uint32_t n, size_t size, float *x)
{
    for (size_t i = 0; i < size; i += LANES) {
        vec v[LANES];
        uint32_t part = size - i < LANES ? (uint32_t)(size - i) : LANES;
        UNROLL for (uint32_t r = 0; r < LANES; r++)
        {
            v[r] = splat(0.0f);
            if (r < n)
                v[r] = part == LANES ? load(rows + r * ld + i) : load_part(rows + r * ld + i, part);
        }
        transpose(v);
        if (part == LANES) {
            UNROLL for (uint32_t k = 0; k < LANES; k++) store(at(x, i + k), v[k]);
        } else {
            for (uint32_t k = 0; k < part; k++)
                store(at(x, i + k), v[k]);
        }
    }
}

static void to_rows(const float *x, size_t size, uint32_t n, float *rows, size_t ld)
{
    for (size_t i = 0; i < size; i += LANES) {
        vec v[LANES];
        uint32_t part = size - i < LANES ? (uint32_t)(size - i) : LANES;
        UNROLL for (uint32_t k = 0; k < LANES; k++) v[k] = k < part ? load(at(x, i + k)) : splat(0.0f);
        transpose(v);
        for (uint32_t r = 0; r < n; r++) {
            if (part == LANES)
                store(rows + r * ld + i, v[r]);
            else
                store_part(rows + r * ld + i, part, v[r]);
        }
    }
}

static void add_lanes(const float *sums, size_t n, bool fresh, float *g)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vec v[LANES], sum = fresh ? splat(0.0f) : load(g + i);
        UNROLL for (uint32_t k = 0; k < LANES; k++) v[k] = load(at(sums, i + k));
        transpose(v);
        UNROLL for (uint32_t step = LANES / 2; step > 0; step /= 2) for (uint32_t k = 0; k < step; k++)
            v[k] += v[k + step];
        store(g + i, sum + v[0]);
    }
    for (; i < n; i++)
        g[i] = (fresh ? 0.0f : g[i]) + sum_lanes(load(at(sums, i)));
}

/* ---- the order of weights ---- */

/* A function for every size of block: NAME_1 .. NAME_BLOCK, and their table NAME_of[size]. */
#if BLOCK == 16
#define EACH_BLOCK(M) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15) M(16)
#else
#define EACH_BLOCK(M) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8)
#endif

/* Blocks of BLOCK rows, the last one smaller: (block, n_cols, rows of the block). */
MST_RACY static void pack(const float *w, uint32_t n_rows, size_t n_cols, float *packed)
{
    for (uint32_t from = 0; from < n_rows; from += BLOCK) {
        uint32_t block = least(BLOCK, n_rows - from);
        const float *rows = w + from * n_cols;
        size_t col = 0;
#if LANES == BLOCK
        for (; block == BLOCK && col + LANES <= n_cols; col += LANES) {
            vec v[LANES];
            UNROLL for (uint32_t r = 0; r < LANES; r++) v[r] = load(rows + r * n_cols + col);
            transpose(v);
            UNROLL for (uint32_t r = 0; r < LANES; r++) store(packed + (col + r) * BLOCK, v[r]);
        }
#endif
        for (; col < n_cols; col++)
            for (uint32_t r = 0; r < block; r++)
                packed[col * block + r] = rows[r * n_cols + col];
        packed += block * n_cols;
    }
}

/* Blocks of inputs: (block, n_out, taps, inputs of the block). */
MST_RACY static void pack_back(const float *w, uint32_t n_out, uint32_t n_in, uint32_t taps, float *packed)
{
    for (uint32_t from = 0; from < n_in; from += BLOCK) {
        uint32_t block = least(BLOCK, n_in - from);
        for (uint32_t o = 0; o < n_out; o++)
            for (uint32_t tap = 0; tap < taps; tap++)
                for (uint32_t i = 0; i < block; i++)
                    *packed++ = w[((size_t)o * n_in + from + i) * taps + tap];
    }
}

#include "model/tile_kernels_conv.h"

/* As pack does, in blocks of FILTERS. */
MST_RACY static void pack_filters(const float *w, uint32_t n_rows, size_t n_cols, float *packed)
{
    for (uint32_t from = 0; from < n_rows; from += FILTERS) {
        uint32_t block = least(FILTERS, n_rows - from);
        for (size_t col = 0; col < n_cols; col++)
            for (uint32_t r = 0; r < block; r++)
                *packed++ = w[(from + r) * n_cols + col];
    }
}

#include "model/tile_kernels_linear.h"

#include "model/tile_kernels_pool.h"

const mst_tile_kernels TILE_SET = {
    .isa = TILE_ISA,
    .lanes = LANES,
    .to_lanes = to_lanes,
    .to_rows = to_rows,
    .pack = pack,
    .pack_filters = pack_filters,
    .pack_back = pack_back,
    .conv_forward = tile_conv_forward,
    .conv_backward = tile_conv_backward,
    .conv_weights_units = conv_weights_units,
    .conv_weights = conv_weights,
    .add_lanes = add_lanes,
    .linear_forward = tile_linear_forward,
    .linear_backward = tile_linear_backward,
    .linear_weights = linear_weights,
    .max_forward = max_forward,
    .average_forward = average_forward,
    .max_backward = max_backward,
    .average_backward = average_backward,
    .act_forward = act_forward,
    .act_backward = act_backward,
};
