/* Part of tile_kernels_impl.h: convolutions.
 *
 * Forward and backward compute one or a few pixels of a block of channels at a time; taps that fall outside
 * of the image are left out by the bounds of the loops, so padding costs nothing and is never stored. The
 * gradient of the weights keeps a few weights' sums (as vectors over images) in registers while it walks over
 * a plane; lanes are added up once per batch. */

/* Taps [from, to) of a window that begins at first (maybe outside) and lie inside of [0, size). */
typedef struct taps {
    uint32_t from, to;
} taps;

INLINE taps taps_inside(int32_t first, uint32_t kernel, uint32_t size)
{
    int32_t from = first < 0 ? -first : 0, to = (int32_t)size - first;
    to = to < (int32_t)kernel ? to : (int32_t)kernel;
    return (taps){(uint32_t)from, to > from ? (uint32_t)to : (uint32_t)from};
}

INLINE int32_t window_first(uint32_t out, uint32_t stride, uint32_t pad)
{
    return (int32_t)(out * stride) - (int32_t)pad;
}

/* sums[c] += w[k * w_step + c] * x[k * x_step], over n taps */
#define ADD_TAPS(N, sums, n, x, x_step, w, w_step)                                                           \
    for (uint32_t k_ = 0; k_ < (n); k_++) {                                                                  \
        vec x_ = load((x) + (ptrdiff_t)k_ * (x_step));                                                       \
        UNROLL for (uint32_t c_ = 0; c_ < (N); c_++) sums[c_] +=                                             \
            splat((w)[(size_t)k_ * (w_step) + c_]) * x_;                                                     \
    }

/* Filters of a block at most, and pixels that a block of N channels computes together: as many sums as
 * registers allow, so that a weight is broadcast once for several pixels, and the latency of a multiply-add
 * is hidden. */
#if LANES == 16
#define FILTERS   8
#define PIXELS(N) ((N) <= 4 ? 5 : (N) <= 6 ? 4 : (N) <= 8 ? 3 : (N) <= 13 ? 2 : 1)
#else
#define FILTERS   BLOCK
#define PIXELS(N) ((N) <= 2 ? 4 : (N) <= 6 ? 2 : 1)
#endif

/* The same for P pixels, whose inputs are `apart` vectors apart */
#define ADD_TAPS_PIXELS(N, P, sums, n, x, x_step, apart, w, w_step)                                          \
    for (uint32_t k_ = 0; k_ < (n); k_++) {                                                                  \
        vec x_[P];                                                                                           \
        UNROLL for (uint32_t p_ = 0; p_ < (P); p_++) x_[p_] =                                                \
            load((x) + (ptrdiff_t)k_ * (x_step) + (size_t)p_ * (apart)*LANES);                               \
        UNROLL for (uint32_t c_ = 0; c_ < (N); c_++)                                                         \
        {                                                                                                    \
            vec w_ = splat((w)[(size_t)k_ * (w_step) + c_]);                                                 \
            UNROLL for (uint32_t p_ = 0; p_ < (P); p_++) sums[p_][c_] += w_ * x_[p_];                        \
        }                                                                                                    \
    }

/* One block of N filters of a group: x is the group's first plane, y the block's. */
typedef void conv_block(const mst_tile_window *g, mst_tile_part rows, const float *x, const float *w,
                        const float *bias, bool relu, float *y);

/* P pixels of a row from ox on, with the taps xs. */
#define FORWARD_PIXELS(N, P)                                                                                 \
    {                                                                                                        \
        vec sums[P][N];                                                                                      \
        UNROLL for (uint32_t p = 0; p < P; p++) UNROLL for (uint32_t c = 0; c < N; c++) sums[p][c] =         \
            splat(bias != NULL ? bias[c] : 0.0f);                                                            \
        for (uint32_t ci = 0; ci < n_in; ci++)                                                               \
            for (uint32_t ky = ys.from; ky < ys.to; ky++) {                                                  \
                const float *in = at(x, ci * plane + (uint32_t)(y0 + (int32_t)ky) * g->w_in +                \
                                            (uint32_t)(x0 + (int32_t)xs.from));                              \
                const float *wk = w + (((size_t)ci * g->kernel_h + ky) * kw + xs.from) * N;                  \
                ADD_TAPS_PIXELS(N, P, sums, xs.to - xs.from, in, LANES, g->stride_w, wk, N)                  \
            }                                                                                                \
        UNROLL for (uint32_t p = 0; p < P; p++) UNROLL for (uint32_t c = 0; c < N; c++)                      \
            store(at(y, c *out + oy * g->w_out + ox + p), relu ? relu_vec(sums[p][c]) : sums[p][c]);         \
        ox += P;                                                                                             \
    }

#define CONV_FORWARD(N)                                                                                      \
    MST_RACY static void conv_forward_##N(const mst_tile_window *g, mst_tile_part rows, const float *x,      \
                                          const float *w, const float *bias, bool relu, float *y)            \
    {                                                                                                        \
        const uint32_t n_in = g->c_in / g->groups, kw = g->kernel_w;                                         \
        const size_t plane = (size_t)g->h_in * g->w_in, out = (size_t)g->h_out * g->w_out;                   \
        for (uint32_t oy = rows.from; oy < rows.to; oy++) {                                                  \
            int32_t y0 = window_first(oy, g->stride_h, g->pad_h);                                            \
            taps ys = taps_inside(y0, g->kernel_h, g->h_in);                                                 \
            for (uint32_t ox = 0; ox < g->w_out;) {                                                          \
                int32_t x0 = window_first(ox, g->stride_w, g->pad_w);                                        \
                taps xs = taps_inside(x0, kw, g->w_in);                                                      \
                uint32_t last = ox + PIXELS(N) - 1;                                                          \
                if (PIXELS(N) > 1 && x0 >= 0 && last < g->w_out &&                                           \
                    last * g->stride_w + kw <= g->w_in + g->pad_w)                                           \
                    FORWARD_PIXELS(N, PIXELS(N))                                                             \
                else                                                                                         \
                    FORWARD_PIXELS(N, 1)                                                                     \
            }                                                                                                \
        }                                                                                                    \
    }
EACH_BLOCK(CONV_FORWARD)
#define CONV_FORWARD_OF(N) [N] = conv_forward_##N,
static conv_block *const conv_forward_of[BLOCK + 1] = {EACH_BLOCK(CONV_FORWARD_OF)};

static void tile_conv_forward(const mst_tile_window *g, mst_tile_part rows, const float *x,
                              const float *packed, const float *bias, bool relu, float *y)
{
    const uint32_t n_in = g->c_in / g->groups, n_out = g->c_out / g->groups;
    const size_t taps_all = (size_t)n_in * g->kernel_h * g->kernel_w;
    for (uint32_t group = 0; group < g->groups; group++)
        for (uint32_t from = 0; from < n_out; from += FILTERS) {
            uint32_t block = least(FILTERS, n_out - from), c = group * n_out + from;
            conv_forward_of[block](g, rows, at(x, (size_t)group * n_in * g->h_in * g->w_in), packed,
                                   bias != NULL ? bias + c : NULL, relu,
                                   at(y, (size_t)c * g->h_out * g->w_out));
            packed += block * taps_all;
        }
}

/* Outputs whose window covers input i: o = (i + pad - k) / stride for k = from, from + stride, ... < to. */
INLINE taps taps_back(uint32_t i, uint32_t stride, uint32_t pad, uint32_t kernel, uint32_t n_out)
{
    uint32_t end = i + pad, last = (n_out - 1) * stride;
    uint32_t from = end > last ? end - last : 0;
    from += (end - from) % stride; /* end - k must divide */
    return (taps){from, least(kernel, end + 1)};
}

/* end / stride, without a division where it is 1. */
INLINE uint32_t row_of(uint32_t end, uint32_t stride)
{
    return stride == 1 ? end : end / stride;
}

typedef void conv_back_block(const mst_tile_window *g, mst_tile_part rows, const float *dy, const float *w,
                             mst_tile_act act, float *x);

/* P inputs of a row from ix on, nx taps of each. */
#define BACKWARD_PIXELS(N, P)                                                                                \
    {                                                                                                        \
        vec sums[P][N];                                                                                      \
        UNROLL for (uint32_t p = 0; p < P; p++) UNROLL for (uint32_t c = 0; c < N; c++) sums[p][c] =         \
            splat(0.0f);                                                                                     \
        for (uint32_t co = 0; nx > 0 && co < n_out; co++)                                                    \
            for (uint32_t ky = ys.from; ky < ys.to; ky += sh) {                                              \
                const float *d = at(dy, co * out + row_of(iy + g->pad_h - ky, sh) * g->w_out + ox);          \
                const float *wk = w + (((size_t)co * g->kernel_h + ky) * kw + xs.from) * N;                  \
                ADD_TAPS_PIXELS(N, P, sums, nx, d, -LANES, 1, wk, (size_t)sw *N)                             \
            }                                                                                                \
        UNROLL for (uint32_t p = 0; p < P; p++) UNROLL for (uint32_t c = 0; c < N; c++)                      \
        {                                                                                                    \
            float *to = at(x, c * plane + iy * g->w_in + ix + p);                                            \
            store(to, act_slope(act, load(to), sums[p][c]));                                                 \
        }                                                                                                    \
        ix += P;                                                                                             \
    }

#define CONV_BACKWARD(N)                                                                                     \
    MST_RACY static void conv_backward_##N(const mst_tile_window *g, mst_tile_part rows, const float *dy,    \
                                           const float *w, mst_tile_act act, float *x)                       \
    {                                                                                                        \
        const uint32_t n_out = g->c_out / g->groups, kw = g->kernel_w;                                       \
        const uint32_t sh = g->stride_h, sw = g->stride_w;                                                   \
        const size_t plane = (size_t)g->h_in * g->w_in, out = (size_t)g->h_out * g->w_out;                   \
        for (uint32_t iy = rows.from; iy < rows.to; iy++) {                                                  \
            taps ys = taps_back(iy, sh, g->pad_h, g->kernel_h, g->h_out);                                    \
            for (uint32_t ix = 0; ix < g->w_in;) {                                                           \
                taps xs = taps_back(ix, sw, g->pad_w, kw, g->w_out);                                         \
                uint32_t nx = xs.from < xs.to ? (xs.to - xs.from + sw - 1) / sw : 0;                         \
                uint32_t ox = nx > 0 ? (ix + g->pad_w - xs.from) / sw : 0;                                   \
                uint32_t last = ix + PIXELS(N) - 1;                                                          \
                if (PIXELS(N) > 1 && sw == 1 && nx == kw && last < g->w_in && last + g->pad_w < g->w_out)    \
                    BACKWARD_PIXELS(N, PIXELS(N))                                                            \
                else                                                                                         \
                    BACKWARD_PIXELS(N, 1)                                                                    \
            }                                                                                                \
        }                                                                                                    \
    }
EACH_BLOCK(CONV_BACKWARD)
#define CONV_BACKWARD_OF(N) [N] = conv_backward_##N,
static conv_back_block *const conv_backward_of[BLOCK + 1] = {EACH_BLOCK(CONV_BACKWARD_OF)};

static void tile_conv_backward(const mst_tile_window *g, mst_tile_part rows, const float *dy,
                               const float *packed_back, mst_tile_act act, float *x)
{
    const uint32_t n_in = g->c_in / g->groups, n_out = g->c_out / g->groups;
    for (uint32_t group = 0; group < g->groups; group++)
        for (uint32_t from = 0; from < n_in; from += BLOCK) {
            uint32_t block = least(BLOCK, n_in - from);
            conv_backward_of[block](g, rows, at(dy, (size_t)group * n_out * g->h_out * g->w_out), packed_back,
                                    act, at(x, ((size_t)group * n_in + from) * g->h_in * g->w_in));
            packed_back += (size_t)block * n_out * g->kernel_h * g->kernel_w;
        }
}

/* ---- gradients of the weights ---- */

/* Outputs [from, to) whose tap k lies inside. */
INLINE taps outputs_inside(uint32_t k, uint32_t stride, uint32_t pad, uint32_t n_in, uint32_t n_out)
{
    uint32_t from = pad > k ? (pad - k + stride - 1) / stride : 0;
    uint32_t to = n_in + pad > k ? (n_in + pad - k - 1) / stride + 1 : 0;
    to = least(to, n_out);
    return (taps){least(from, to), to};
}

/* Taps (ky, k0 .. k0 + K - 1) of N filters: gw is the first filter's first tap, and the next filter's lies
 * `next` vectors on. Outputs [from, to) have all K taps inside; at the edges, taps outside are zeros. */
typedef void weights_block(const mst_tile_window *g, mst_tile_part rows, const float *x, const float *dy,
                           uint32_t ky, uint32_t k0, float *gw, size_t next);

static const vec no_pixel = {};

#define WEIGHTS_PIXEL(N, K, TAP)                                                                             \
    {                                                                                                        \
        vec v[K];                                                                                            \
        UNROLL for (uint32_t k = 0; k < K; k++) v[k] = load(TAP);                                            \
        UNROLL for (uint32_t c = 0; c < N; c++)                                                              \
        {                                                                                                    \
            vec dc = load(at(d, c * out + ox));                                                              \
            UNROLL for (uint32_t k = 0; k < K; k++) sums[c][k] += dc * v[k];                                 \
        }                                                                                                    \
    }

#define CONV_WEIGHTS(N, K)                                                                                   \
    static void conv_weights_##N##_##K(const mst_tile_window *g, mst_tile_part rows, const float *x,         \
                                       const float *dy, uint32_t ky, uint32_t k0, float *gw, size_t next)    \
    {                                                                                                        \
        const uint32_t sw = g->stride_w, w_in = g->w_in, shift = k0 - g->pad_w; /* modulo 2^32 */            \
        const size_t out = (size_t)g->h_out * g->w_out;                                                      \
        taps ys = outputs_inside(ky, g->stride_h, g->pad_h, g->h_in, g->h_out);                              \
        uint32_t to = outputs_inside(k0 + K - 1, sw, g->pad_w, w_in, g->w_out).to;                           \
        uint32_t from = least(outputs_inside(k0, sw, g->pad_w, w_in, g->w_out).from, to);                    \
        vec sums[N][K];                                                                                      \
        UNROLL for (uint32_t c = 0; c < N; c++) UNROLL for (uint32_t k = 0; k < K; k++) sums[c][k] =         \
            splat(0.0f);                                                                                     \
        uint32_t first = ys.from > rows.from ? ys.from : rows.from, end = least(ys.to, rows.to);             \
        for (uint32_t oy = first; oy < end; oy++) {                                                          \
            const float *in = at(x, (size_t)(oy * g->stride_h + ky - g->pad_h) * w_in);                      \
            const float *d = at(dy, (size_t)oy * g->w_out);                                                  \
            for (uint32_t ox = from; ox < to; ox++)                                                          \
                WEIGHTS_PIXEL(N, K, at(in, ox *sw + shift + k))                                              \
            for (uint32_t ox = from > 0 ? 0 : to; ox < g->w_out; ox = ox + 1 == from ? to : ox + 1)          \
                WEIGHTS_PIXEL(N, K,                                                                          \
                              ox *sw + shift + k < w_in ? at(in, ox * sw + shift + k)                        \
                                                        : (const float *)&no_pixel)                          \
        }                                                                                                    \
        UNROLL for (uint32_t c = 0; c < N; c++) UNROLL for (uint32_t k = 0; k < K; k++)                      \
            store(at(gw, c *next + k), load(at(gw, c *next + k)) + sums[c][k]);                              \
    }

#define EACH_WEIGHTS(M) M(1) M(2) M(3) M(4) M(5)
#define WEIGHTS_TAPS    5
#if LANES == 16
#define WEIGHTS_FILTERS 4 /* 20 sums and 5 inputs in 32 registers */
#else
#define WEIGHTS_FILTERS 2 /* 10 and 5 in 16 */
#endif
#define CONV_WEIGHTS_1(K) CONV_WEIGHTS(1, K)
#define CONV_WEIGHTS_2(K) CONV_WEIGHTS(2, K)
#define CONV_WEIGHTS_4(K) CONV_WEIGHTS(4, K)
EACH_WEIGHTS(CONV_WEIGHTS_1)
EACH_WEIGHTS(CONV_WEIGHTS_2)
#define WEIGHTS_1_OF(K) [K] = conv_weights_1_##K,
#define WEIGHTS_2_OF(K) [K] = conv_weights_2_##K,
#define WEIGHTS_4_OF(K) [K] = conv_weights_4_##K,
#if WEIGHTS_FILTERS == 4
EACH_WEIGHTS(CONV_WEIGHTS_4)
#endif
static weights_block *const conv_weights_of[WEIGHTS_FILTERS + 1][WEIGHTS_TAPS + 1] = {
    [1] = {EACH_WEIGHTS(WEIGHTS_1_OF)},
    [2] = {EACH_WEIGHTS(WEIGHTS_2_OF)},
#if WEIGHTS_FILTERS == 4
    [4] = {EACH_WEIGHTS(WEIGHTS_4_OF)},
#endif
};

/* gb[c] += sum of numbers [from, to) of a plane, in four chains */
static void add_planes(const float *dy, uint32_t channels, size_t plane, size_t from, size_t to, float *gb)
{
    for (uint32_t c = 0; c < channels; c++, dy = at(dy, plane)) {
        vec sums[4] = {load(at(gb, c)), splat(0.0f), splat(0.0f), splat(0.0f)};
        size_t i = from;
        for (; i + 4 <= to; i += 4)
            UNROLL for (uint32_t k = 0; k < 4; k++) sums[k] += load(at(dy, i + k));
        for (; i < to; i++)
            sums[0] += load(at(dy, i));
        store(at(gb, c), (sums[0] + sums[1]) + (sums[2] + sums[3]));
    }
}

/* Filters that are computed together from filter c on. */
INLINE uint32_t weights_filters(const mst_tile_window *g, uint32_t c)
{
    uint32_t n_out = g->c_out / g->groups, left = n_out - c % n_out;
    return left >= WEIGHTS_FILTERS ? WEIGHTS_FILTERS : left >= 2 ? 2 : 1;
}

static uint32_t conv_weights_units(const mst_tile_window *g)
{
    uint32_t n = 0;
    for (uint32_t c = 0; c < g->c_out; c += weights_filters(g, c))
        n++;
    return n;
}

/* A unit is the filters that are computed together. */
static void conv_weights(const mst_tile_window *g, mst_tile_part units, mst_tile_part rows, const float *x,
                         const float *dy, float *gw, float *gb)
{
    const uint32_t n_in = g->c_in / g->groups, n_out = g->c_out / g->groups, kw = g->kernel_w;
    const size_t plane = (size_t)g->h_in * g->w_in, out = (size_t)g->h_out * g->w_out;
    const size_t filter = (size_t)n_in * g->kernel_h * kw;
    for (uint32_t c = 0, unit = 0, n; c < g->c_out && unit < units.to; c += n, unit++) {
        n = weights_filters(g, c);
        if (unit < units.from)
            continue;
        for (uint32_t ci = 0; ci < n_in; ci++)
            for (uint32_t ky = 0; ky < g->kernel_h; ky++)
                for (uint32_t k0 = 0; k0 < kw; k0 += WEIGHTS_TAPS)
                    conv_weights_of[n][least(WEIGHTS_TAPS, kw - k0)](
                        g, rows, at(x, (c / n_out * n_in + ci) * plane), at(dy, c * out), ky, k0,
                        at(gw, c * filter + ((size_t)ci * g->kernel_h + ky) * kw + k0), filter);
        if (gb != NULL)
            add_planes(at(dy, c * out), n, out, (size_t)rows.from * g->w_out, (size_t)rows.to * g->w_out,
                       at(gb, c));
    }
}
