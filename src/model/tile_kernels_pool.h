/* Part of tile_kernels_impl.h: maximum and average over windows. */

/* Padding counts: the average is over the whole window. */
INLINE vec window_share(const mst_tile_window *g)
{
    return splat(1.0f / ((float)g->kernel_h * (float)g->kernel_w));
}

/* Runs BODY for every window of some rows of a plane: ys and xs are its taps inside, `in` the index of the
 * first of them in the plane of x, `out` its index in the plane of y. */
#define EACH_WINDOW(g, rows, BODY)                                                                           \
    for (uint32_t oy = rows.from; oy < rows.to; oy++) {                                                      \
        int32_t y0 = window_first(oy, g->stride_h, g->pad_h);                                                \
        taps ys = taps_inside(y0, g->kernel_h, g->h_in);                                                     \
        for (uint32_t ox = 0; ox < g->w_out; ox++) {                                                         \
            int32_t x0 = window_first(ox, g->stride_w, g->pad_w);                                            \
            taps xs = taps_inside(x0, g->kernel_w, g->w_in);                                                 \
            size_t in =                                                                                      \
                (uint32_t)(y0 + (int32_t)ys.from) * (size_t)g->w_in + (uint32_t)(x0 + (int32_t)xs.from);     \
            size_t out = (size_t)oy * g->w_out + ox;                                                         \
            BODY                                                                                             \
        }                                                                                                    \
    }

/* Runs BODY for every number of a window; p is its index in the plane of x. */
#define EACH_TAP(g, BODY)                                                                                    \
    for (uint32_t row = 0; row < ys.to - ys.from; row++)                                                     \
        for (uint32_t col = 0; col < xs.to - xs.from; col++) {                                               \
            size_t p = in + (size_t)row * g->w_in + col;                                                     \
            BODY                                                                                             \
        }

INLINE vec window_max(const mst_tile_window *g, const float *x, size_t in, taps ys, taps xs)
{
    vec top = load(at(x, in));
    EACH_TAP(g, {
        vec v = load(at(x, p));
        top = select_vec(v > top, v, top);
    })
    return top;
}

static void max_forward(const mst_tile_window *g, mst_tile_part rows, const float *x, float *y)
{
    const size_t plane = (size_t)g->h_in * g->w_in, out_plane = (size_t)g->h_out * g->w_out;
    for (uint32_t c = 0; c < g->c_in; c++, x = at(x, plane), y = at(y, out_plane))
        EACH_WINDOW(g, rows, store(at(y, out), window_max(g, x, in, ys, xs));)
}

static void average_forward(const mst_tile_window *g, mst_tile_part rows, const float *x, float *y)
{
    const size_t plane = (size_t)g->h_in * g->w_in, out_plane = (size_t)g->h_out * g->w_out;
    const vec share = window_share(g);
    for (uint32_t c = 0; c < g->c_in; c++, x = at(x, plane), y = at(y, out_plane))
        EACH_WINDOW(g, rows, {
            vec sum = splat(0.0f);
            EACH_TAP(g, sum += load(at(x, p));)
            store(at(y, out), sum * share);
        })
}

/* Backwards, windows that are exact write x in place; others add up in sums, and act_backward writes x. The
 * bodies are inlined with `exact` and `act` known. */
INLINE void max_back_plane(const mst_tile_window *g, mst_tile_part rows, const float *dy, bool exact,
                           mst_tile_act act, float *x, float *sums)
{
    const ivec all = (ivec){} - 1;
    EACH_WINDOW(g, rows, {
        vec d = load(at(dy, out));
        vec top = window_max(g, x, in, ys, xs);
        ivec open = all;
        EACH_TAP(g, {
            vec v = load(at(x, p));
            ivec hit = (v == top) & open;
            open &= ~hit;
            vec part = (vec)((ivec)d & hit);
            if (exact)
                store(at(x, p), act_slope(act, v, part));
            else
                store(at(sums, p), load(at(sums, p)) + part);
        })
    })
}

INLINE void average_back_plane(const mst_tile_window *g, mst_tile_part rows, const float *dy, bool exact,
                               mst_tile_act act, float *x, float *sums)
{
    const vec share = window_share(g);
    EACH_WINDOW(g, rows, {
        vec d = load(at(dy, out)) * share;
        EACH_TAP(g, {
            if (exact)
                store(at(x, p), act_slope(act, load(at(x, p)), d));
            else
                store(at(sums, p), load(at(sums, p)) + d);
        })
    })
}

#define POOL_BACK(NAME)                                                                                      \
    static void NAME##_backward(const mst_tile_window *g, mst_tile_part rows, const float *dy,               \
                                mst_tile_act act, float *x, float *scratch)                                  \
    {                                                                                                        \
        const size_t plane = (size_t)g->h_in * g->w_in, out = (size_t)g->h_out * g->w_out;                   \
        const bool exact = mst_tile_window_exact(g);                                                         \
        if (!exact)                                                                                          \
            memset(scratch, 0, g->c_in *plane *LANES * sizeof *scratch);                                     \
        for (uint32_t c = 0; c < g->c_in; c++) {                                                             \
            const float *d = at(dy, c * out);                                                                \
            float *xc = at(x, c * plane);                                                                    \
            if (!exact)                                                                                      \
                NAME##_back_plane(g, rows, d, false, MST_TILE_SAME, xc, at(scratch, c *plane));              \
            else if (act == MST_TILE_RELU)                                                                   \
                NAME##_back_plane(g, rows, d, true, MST_TILE_RELU, xc, NULL);                                \
            else if (act == MST_TILE_TANH)                                                                   \
                NAME##_back_plane(g, rows, d, true, MST_TILE_TANH, xc, NULL);                                \
            else if (act == MST_TILE_SIGMOID)                                                                \
                NAME##_back_plane(g, rows, d, true, MST_TILE_SIGMOID, xc, NULL);                             \
            else                                                                                             \
                NAME##_back_plane(g, rows, d, true, MST_TILE_SAME, xc, NULL);                                \
        }                                                                                                    \
        if (!exact)                                                                                          \
            act_backward(act, g->c_in *plane, scratch, NULL, x);                                             \
    }
POOL_BACK(max)
POOL_BACK(average)
