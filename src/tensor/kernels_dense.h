/* Part of kernels_impl.h: dense layers and softmax. Sums live in registers over tiles of rows and classes. */

static void unpack_bytes(const uint8_t *bytes, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = (float)bytes[i] * (1.0f / 255);
}

/* ROWS x CLASSES dot products over k: with both unrolled, the sums live in registers. */
#define FORWARD_TILE(ROWS, CLASSES)                                                                          \
    do {                                                                                                     \
        vec acc[ROWS][CLASSES] = {};                                                                         \
        uint32_t j = 0;                                                                                      \
        for (; j + LANES <= k; j += LANES) {                                                                 \
            vec xv[ROWS];                                                                                    \
            for (int r = 0; r < ROWS; r++)                                                                   \
                xv[r] = load(x + r * ldx + j);                                                               \
            for (int q = 0; q < CLASSES; q++) {                                                              \
                vec wv = load(w + (size_t)q * k + j);                                                        \
                for (int r = 0; r < ROWS; r++)                                                               \
                    acc[r][q] += xv[r] * wv;                                                                 \
            }                                                                                                \
        }                                                                                                    \
        if (j < k)                                                                                           \
            for (int q = 0; q < CLASSES; q++)                                                                \
                for (int r = 0; r < ROWS; r++)                                                               \
                    acc[r][q] +=                                                                             \
                        load_part(x + r * ldx + j, k - j) * load_part(w + (size_t)q * k + j, k - j);         \
        for (int r = 0; r < ROWS; r++)                                                                       \
            for (int q = 0; q < CLASSES; q++)                                                                \
                y[r * c + q] = sum_lanes(acc[r][q]) + (b ? b[q] : 0.0f);                                     \
    } while (0)

#define TILE_CLASSES 5
#define TILE_ROWS    (LANES == 4 ? 2 : LANES == 8 ? 2 : 4)

MST_RACY static void forward_rows_tile(const float *x, size_t ldx, uint32_t k, const float *w, const float *b,
                                       uint32_t c, uint32_t classes, float *y)
{
    if (classes == TILE_CLASSES) {
        FORWARD_TILE(TILE_ROWS, TILE_CLASSES);
        return;
    }
    for (uint32_t done = 0; done < classes; done++, w += k, y++, b = b ? b + 1 : NULL)
        FORWARD_TILE(TILE_ROWS, 1);
}

MST_RACY static void forward_row(const float *x, size_t ldx, uint32_t k, const float *w, const float *b,
                                 uint32_t c, uint32_t classes, float *y)
{
    for (uint32_t done = 0; done < classes; done++, w += k, y++, b = b ? b + 1 : NULL)
        FORWARD_TILE(1, 1);
}

MST_RACY static void dense_forward(const float *x, size_t ldx, uint32_t n, uint32_t k, const float *w,
                                   const float *b, uint32_t c, float *y)
{
    uint32_t i = 0;
    for (; i + TILE_ROWS <= n; i += TILE_ROWS)
        for (uint32_t q = 0; q < c; q += TILE_CLASSES) {
            uint32_t classes = c - q < TILE_CLASSES ? c - q : TILE_CLASSES;
            forward_rows_tile(x + i * ldx, ldx, k, w + (size_t)q * k, b ? b + q : NULL, c, classes,
                              y + (size_t)i * c + q);
        }
    for (; i < n; i++)
        forward_row(x + i * ldx, ldx, k, w, b, c, c, y + (size_t)i * c);
}

/* Classes at a time: the rows come from the second-level cache, once per group of classes, and 32 registers
 * hold two vectors for ten. */
#define BACK_CLASSES (LANES == 16 ? 10 : 5)

/* gw[q][j..j+2*LANES) += sum over rows of d[r][q] * x[r][j..]: sums live in registers over all rows. */
INLINE void backward_tile(const float *x, size_t ldx, uint32_t n, uint32_t k, const float *d, uint32_t c,
                          uint32_t classes, uint32_t j, float *gw)
{
    vec acc[BACK_CLASSES][2];
    for (uint32_t q = 0; q < classes; q++) {
        acc[q][0] = load(gw + (size_t)q * k + j);
        acc[q][1] = load(gw + (size_t)q * k + j + LANES);
    }
    for (uint32_t r = 0; r < n; r++) {
        vec x0 = load(x + r * ldx + j), x1 = load(x + r * ldx + j + LANES);
        for (uint32_t q = 0; q < classes; q++) {
            vec dv = splat(d[(size_t)r * c + q]);
            acc[q][0] += dv * x0;
            acc[q][1] += dv * x1;
        }
    }
    for (uint32_t q = 0; q < classes; q++) {
        store(gw + (size_t)q * k + j, acc[q][0]);
        store(gw + (size_t)q * k + j + LANES, acc[q][1]);
    }
}

/* The same for the last `part` (at most LANES) columns of one class. */
INLINE void backward_tail(const float *x, size_t ldx, uint32_t n, const float *d, uint32_t c, uint32_t j,
                          uint32_t part, float *gw)
{
    vec even = part == LANES ? load(gw + j) : load_part(gw + j, part), odd = {};
    for (uint32_t r = 0; r < n; r++) {
        const float *at = x + r * ldx + j;
        vec add = splat(d[(size_t)r * c]) * (part == LANES ? load(at) : load_part(at, part));
        if (r % 2 == 0) /* two chains */
            even += add;
        else
            odd += add;
    }
    if (part == LANES)
        store(gw + j, even + odd);
    else
        store_part(gw + j, part, even + odd);
}

static void dense_backward(const float *x, size_t ldx, uint32_t n, uint32_t k, const float *d, uint32_t c,
                           float *gw, float *gb)
{
    for (uint32_t q = 0; q < c; q += BACK_CLASSES) {
        uint32_t classes = c - q < BACK_CLASSES ? c - q : BACK_CLASSES, j = 0;
        const float *dq = d + q;
        float *gq = gw + (size_t)q * k;
        for (; j + 2 * LANES <= k; j += 2 * LANES) {
            if (classes == BACK_CLASSES)
                backward_tile(x, ldx, n, k, dq, c, BACK_CLASSES, j, gq);
            else
                for (uint32_t one = 0; one < classes; one++)
                    backward_tile(x, ldx, n, k, dq + one, c, 1, j, gq + (size_t)one * k);
        }
        for (; j < k; j += LANES)
            for (uint32_t one = 0; one < classes; one++)
                backward_tail(x, ldx, n, dq + one, c, j, k - j < LANES ? k - j : LANES, gq + (size_t)one * k);
    }
    if (gb != NULL)
        for (uint32_t r = 0; r < n; r++)
            for (uint32_t q = 0; q < c; q++)
                gb[q] += d[(size_t)r * c + q];
}

/* The largest of n floats. */
INLINE float top_of(const float *y, uint32_t n)
{
    float top = y[0];
    for (uint32_t q = 1; q < n; q++)
        top = y[q] > top ? y[q] : top;
    return top;
}

/* LANES (or the `part` that is left) of exp(y - top); lanes beyond are e^-87, which adds nothing. */
INLINE vec softmax_lanes(const float *y, uint32_t part, float top)
{
    if (part == LANES)
        return exp_nonpositive(load(y) - splat(top));
    float rest[LANES];
    for (uint32_t j = 0; j < LANES; j++)
        rest[j] = j < part ? y[j] - top : -INFINITY;
    return exp_nonpositive(load(rest));
}

static double softmax_loss(const mst_row *rows, uint32_t n, uint32_t c, const float *y)
{
    double total = 0.0;
    for (uint32_t r = 0; r < n; r++, y += c) {
        float top = top_of(y, c), own = y[mst_label_class(rows[r].label)];
        vec sum = {};
        for (uint32_t q = 0; q < c; q += LANES)
            sum += softmax_lanes(y + q, c - q < LANES ? c - q : LANES, top);
        total += (double)rows[r].weight * (log((double)sum_lanes(sum)) + (double)top - (double)own);
    }
    return total;
}

static double softmax(const mst_row *rows, uint32_t n, uint32_t c, const float *y, float scale, float *d)
{
    double total = softmax_loss(rows, n, c, y);
    for (uint32_t r = 0; r < n; r++, y += c, d += c) {
        float top = top_of(y, c), v = scale * rows[r].weight;
        vec sum = {};
        for (uint32_t q = 0; q < c; q += LANES) {
            uint32_t part = c - q < LANES ? c - q : LANES;
            vec e = softmax_lanes(y + q, part, top);
            sum += e;
            if (part == LANES)
                store(d + q, e);
            else
                store_part(d + q, part, e);
        }
        float by = v / sum_lanes(sum);
        for (uint32_t q = 0; q < c; q++)
            d[q] *= by;
        d[mst_label_class(rows[r].label)] -= v;
    }
    return total;
}
