/* Part of tile_kernels_impl.h: fully connected layers.
 *
 * Forward and backward are like a convolution of one pixel. The gradient of the weights is a product over
 * images, which lie across the lanes: its sums run over a tile's images, with vectors along the inputs, so x
 * comes as rows. */

typedef void linear_block(uint32_t n, const float *v, const float *w, size_t w_step, vec *sums);

/* sums (N) += w (n, N; rows w_step apart) transposed, times v (n) */
#define LINEAR(N)                                                                                            \
    MST_RACY static void linear_##N(uint32_t n, const float *v, const float *w, size_t w_step, vec *out)     \
    {                                                                                                        \
        vec sums[N];                                                                                         \
        UNROLL for (uint32_t c = 0; c < N; c++) sums[c] = out[c];                                            \
        ADD_TAPS(N, sums, n, v, LANES, w, w_step)                                                            \
        UNROLL for (uint32_t c = 0; c < N; c++) out[c] = sums[c];                                            \
    }
EACH_BLOCK(LINEAR)
#define LINEAR_OF(N) [N] = linear_##N,
static linear_block *const linear_of[BLOCK + 1] = {EACH_BLOCK(LINEAR_OF)};

MST_RACY static void tile_linear_forward(uint32_t n_in, uint32_t n_out, const float *x, const float *packed,
                                         const float *bias, bool relu, float *y)
{
    for (uint32_t from = 0; from < n_out; from += BLOCK) {
        uint32_t block = least(BLOCK, n_out - from);
        vec sums[BLOCK];
        for (uint32_t c = 0; c < block; c++)
            sums[c] = splat(bias != NULL ? bias[from + c] : 0.0f);
        linear_of[block](n_in, x, packed, block, sums);
        for (uint32_t c = 0; c < block; c++)
            store(at(y, from + c), relu ? relu_vec(sums[c]) : sums[c]);
        packed += (size_t)block * n_in;
    }
}

static void tile_linear_backward(uint32_t n_in, uint32_t n_out, mst_tile_part part, const float *dy,
                                 const float *w, mst_tile_act act, float *x)
{
    for (uint32_t from = part.from; from < part.to; from += BLOCK) {
        uint32_t block = least(BLOCK, part.to - from);
        vec sums[BLOCK];
        for (uint32_t c = 0; c < block; c++)
            sums[c] = splat(0.0f);
        linear_of[block](n_out, dy, w + from, n_in, sums);
        for (uint32_t c = 0; c < block; c++)
            store(at(x, from + c), act_slope(act, load(at(x, from + c)), sums[c]));
    }
}

/* gw (N rows, columns [0, part) of V vectors) += dy (N, n lanes) * x (n, columns); fresh: gw = that */
#define LINEAR_WEIGHTS(N, V)                                                                                 \
    static void linear_weights_##N##_##V(size_t n_in, uint32_t n, const float *x, size_t ld,                 \
                                         const float *dy, uint32_t part, bool fresh, float *gw)              \
    {                                                                                                        \
        vec sums[N][V];                                                                                      \
        UNROLL for (uint32_t o = 0; o < N; o++) UNROLL for (uint32_t v = 0; v < V; v++) sums[o][v] =         \
            part == V * LANES && !fresh ? load(gw + o * n_in + v * LANES) : splat(0.0f);                     \
        for (uint32_t t = 0; t < n; t++) {                                                                   \
            vec xs[V];                                                                                       \
            UNROLL for (uint32_t v = 0; v < V; v++) xs[v] = load(x + t * ld + v * LANES);                    \
            UNROLL for (uint32_t o = 0; o < N; o++)                                                          \
            {                                                                                                \
                vec d = splat(dy[o * LANES + t]);                                                            \
                UNROLL for (uint32_t v = 0; v < V; v++) sums[o][v] += d * xs[v];                             \
            }                                                                                                \
        }                                                                                                    \
        if (part == V * LANES) {                                                                             \
            UNROLL for (uint32_t o = 0; o < N; o++) UNROLL for (uint32_t v = 0; v < V; v++)                  \
                store(gw + o * n_in + v * LANES, sums[o][v]);                                                \
        } else {                                                                                             \
            for (uint32_t o = 0; o < N; o++)                                                                 \
                for (uint32_t k = 0; k < part; k++)                                                          \
                    gw[o * n_in + k] = (fresh ? 0.0f : gw[o * n_in + k]) + sums[o][0][k];                    \
        }                                                                                                    \
    }
#define LINEAR_WEIGHTS_OF(N) [N] = {NULL, linear_weights_##N##_1, linear_weights_##N##_2},
typedef void linear_weights_block(size_t n_in, uint32_t n, const float *x, size_t ld, const float *dy,
                                  uint32_t part, bool fresh, float *gw);
LINEAR_WEIGHTS(1, 1)
LINEAR_WEIGHTS(1, 2)
LINEAR_WEIGHTS(2, 1)
LINEAR_WEIGHTS(2, 2)
LINEAR_WEIGHTS(4, 1)
LINEAR_WEIGHTS(4, 2)
#if LANES == 16
#define GRAD_OUT 8 /* times 2 vectors of sums in 32 registers */
LINEAR_WEIGHTS(8, 1)
LINEAR_WEIGHTS(8, 2)
#else
#define GRAD_OUT 4 /* in 16 registers */
#endif
static linear_weights_block *const linear_weights_of[GRAD_OUT + 1][3] = {
    LINEAR_WEIGHTS_OF(1) LINEAR_WEIGHTS_OF(2) LINEAR_WEIGHTS_OF(4)
#if GRAD_OUT == 8
        LINEAR_WEIGHTS_OF(8)
#endif
};

static void linear_weights(uint32_t n_in, uint32_t n_out, uint32_t n, const float *x_rows, size_t ld,
                           const float *dy, bool fresh, float *gw, float *gb)
{
    for (uint32_t from = 0, rows = GRAD_OUT; from < n_out; from += rows) {
        while (rows > n_out - from)
            rows /= 2;
        linear_weights_block *const *block = linear_weights_of[rows];
        const float *d = at(dy, from);
        float *g = gw + (size_t)from * n_in;
        uint32_t i = 0;
        for (; i + 2 * LANES <= n_in; i += 2 * LANES)
            block[2](n_in, n, x_rows + i, ld, d, 2 * LANES, fresh, g + i);
        for (; i < n_in; i += LANES)
            block[1](n_in, n, x_rows + i, ld, d, least(LANES, n_in - i), fresh, g + i);
    }
    for (uint32_t o = 0; gb != NULL && o < n_out; o++)
        gb[o] = (fresh ? 0.0f : gb[o]) + sum_lanes(load(at(dy, o)));
}
