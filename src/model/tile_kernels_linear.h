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

MST_RACY static void linear_forward(uint32_t n_in, uint32_t n_out, const float *x, const float *packed,
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

static void linear_backward(uint32_t n_in, uint32_t n_out, const float *dy, const float *w, mst_tile_act act,
                            float *x)
{
    for (uint32_t from = 0; from < n_in; from += BLOCK) {
        uint32_t block = least(BLOCK, n_in - from);
        vec sums[BLOCK];
        for (uint32_t c = 0; c < block; c++)
            sums[c] = splat(0.0f);
        linear_of[block](n_out, dy, w + from, n_in, sums);
        for (uint32_t c = 0; c < block; c++)
            store(at(x, from + c), act_slope(act, load(at(x, from + c)), sums[c]));
    }
}

#if LANES == 16
#define GRAD_OUT 8
#else
#define GRAD_OUT 4
#endif

/* gw (N rows, columns [i, i + V vectors)) += dy (N, n lanes) * x (n, columns) */
#define LINEAR_WEIGHTS(N, V)                                                                                 \
    INLINE void linear_weights_##N##_##V(size_t n_in, uint32_t n, const float *x, const float *dy,           \
                                         float *gw)                                                          \
    {                                                                                                        \
        vec sums[N][V];                                                                                      \
        UNROLL for (uint32_t o = 0; o < N; o++) UNROLL for (uint32_t v = 0; v < V; v++) sums[o][v] =         \
            load(gw + o * n_in + v * LANES);                                                                 \
        for (uint32_t t = 0; t < n; t++) {                                                                   \
            vec xs[V];                                                                                       \
            UNROLL for (uint32_t v = 0; v < V; v++) xs[v] = load(x + t * n_in + v * LANES);                  \
            UNROLL for (uint32_t o = 0; o < N; o++)                                                          \
            {                                                                                                \
                vec d = splat(dy[o * LANES + t]);                                                            \
                UNROLL for (uint32_t v = 0; v < V; v++) sums[o][v] += d * xs[v];                             \
            }                                                                                                \
        }                                                                                                    \
        UNROLL for (uint32_t o = 0; o < N; o++) UNROLL for (uint32_t v = 0; v < V; v++)                      \
            store(gw + o * n_in + v * LANES, sums[o][v]);                                                    \
    }
#if GRAD_OUT == 8
LINEAR_WEIGHTS(8, 2)
LINEAR_WEIGHTS(8, 1)
#define LINEAR_GRAD(V) linear_weights_8_##V
#else
LINEAR_WEIGHTS(4, 2)
LINEAR_WEIGHTS(4, 1)
#define LINEAR_GRAD(V) linear_weights_4_##V
#endif
LINEAR_WEIGHTS(1, 2)
LINEAR_WEIGHTS(1, 1)

static void linear_weights(uint32_t n_in, uint32_t n_out, uint32_t n, const float *x_rows, const float *dy,
                           float *gw, float *gb)
{
    uint32_t o = 0;
    for (uint32_t from = 0; from < n_out; from = o) {
        uint32_t rows = n_out - from >= GRAD_OUT ? GRAD_OUT : 1, i = 0;
        const float *d = at(dy, from);
        float *g = gw + (size_t)from * n_in;
        if (rows == GRAD_OUT) {
            for (; i + 2 * LANES <= n_in; i += 2 * LANES)
                LINEAR_GRAD(2)(n_in, n, x_rows + i, d, g + i);
            for (; i + LANES <= n_in; i += LANES)
                LINEAR_GRAD(1)(n_in, n, x_rows + i, d, g + i);
        } else {
            for (; i + 2 * LANES <= n_in; i += 2 * LANES)
                linear_weights_1_2(n_in, n, x_rows + i, d, g + i);
            for (; i + LANES <= n_in; i += LANES)
                linear_weights_1_1(n_in, n, x_rows + i, d, g + i);
        }
        for (o = from; o < from + rows; o++)
            for (uint32_t t = 0; i < n_in && t < n; t++)
                for (uint32_t k = i; k < n_in; k++)
                    gw[(size_t)o * n_in + k] += at(dy, o)[t] * x_rows[(size_t)t * n_in + k];
    }
    for (o = 0; gb != NULL && o < n_out; o++)
        gb[o] += sum_lanes(load(at(dy, o)));
}
