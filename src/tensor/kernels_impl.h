/* The kernels' source, compiled once per instruction set: kernels_<isa>.c defines LANES (floats per vector),
 * KERNELS_ISA and KERNELS_NAME and includes this file. Written with GNU vector types, so that one text serves
 * all.
 *
 * Sparse loops are scalar on purpose: gathers and scatters are no faster than scalar loads and stores on the
 * machines of interest, and a scalar loop is right when a key repeats within a row. What counts there is
 * latency: weights lie in 135 MB of memory, so the lines of a row are prefetched some rows ahead. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/racy.h"
#include "tensor/kernels.h"

#define INLINE static inline __attribute__((always_inline)) MST_RACY

/* How many rows ahead weights are prefetched, and how many more ahead the records themselves. */
#define WEIGHTS_AHEAD 4 /* below MST_DESCEND_SCRATCH */
#define RECORDS_AHEAD 8

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t ivec __attribute__((vector_size(LANES * 4)));
typedef float vec_u __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

INLINE vec load(const float *p)
{
    return *(const vec_u *)p;
}

INLINE void store(float *p, vec v)
{
    *(vec_u *)p = v;
}

INLINE vec splat(float x)
{
    return x - (vec){};
}

INLINE vec select_vec(ivec mask, vec yes, vec no)
{
    return (vec)(((ivec)yes & mask) | ((ivec)no & ~mask));
}

/* The first n (< LANES) floats, the rest zero; reads nothing beyond them. */
INLINE vec load_part(const float *p, uint32_t n)
{
    vec v = {};
    for (uint32_t i = 0; i < n; i++)
        v[i] = p[i];
    return v;
}

INLINE void store_part(float *p, uint32_t n, vec v)
{
    for (uint32_t i = 0; i < n; i++)
        p[i] = v[i];
}

#ifdef __AVX512F__
#include <immintrin.h>
#define load_part(p, n)     ((vec)_mm512_maskz_loadu_ps((__mmask16)((1u << (n)) - 1), p))
#define store_part(p, n, v) _mm512_mask_storeu_ps(p, (__mmask16)((1u << (n)) - 1), (__m512)(v))
#endif

INLINE float sum_lanes(vec v)
{
#if LANES == 16
    typedef float half __attribute__((vector_size(32)));
    half h = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
             __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
#define HALF_LANES 8
#else
    vec h = v;
#define HALF_LANES LANES
#endif
    typedef float quarter __attribute__((vector_size(16)));
#if HALF_LANES == 8
    quarter q = __builtin_shufflevector(h, h, 0, 1, 2, 3) + __builtin_shufflevector(h, h, 4, 5, 6, 7);
#else
    quarter q = h;
#endif
    q += __builtin_shufflevector(q, q, 2, 3, 0, 1);
    return q[0] + q[1];
}

/* e^x for x <= 0, relative error below 2e-7; exactly 0 only below the smallest normal number. */
INLINE vec exp_nonpositive(vec x)
{
    x = select_vec(x > splat(-87.0f), x, splat(-87.0f));
    /* x = n ln2 + r, |r| <= ln2/2; e^r by its Taylor polynomial of degree 6 */
    vec t = x * splat(1.44269504f) - splat(0.5f);
    ivec n = __builtin_convertvector(t, ivec); /* truncates toward zero: rounds x/ln2, as it is negative */
    vec f = __builtin_convertvector(n, vec);
    vec r = x - f * splat(0.693359375f) - f * splat(-2.12194440e-4f);
    vec p = splat(1.0f / 720);
    p = p * r + splat(1.0f / 120);
    p = p * r + splat(1.0f / 24);
    p = p * r + splat(1.0f / 6);
    p = p * r + splat(0.5f);
    p = p * r + splat(1.0f);
    p = p * r + splat(1.0f);
    return p * (vec)((n + 127) << 23);
}

/* log(1 + e) for e in [0, 1]: 2 atanh(s), s = e / (2 + e) <= 1/3, by its series up to s^15. */
INLINE vec log1p_unit(vec e)
{
    vec s = e / (e + splat(2.0f)), q = s * s;
    vec p = splat(1.0f / 15);
    p = p * q + splat(1.0f / 13);
    p = p * q + splat(1.0f / 11);
    p = p * q + splat(1.0f / 9);
    p = p * q + splat(1.0f / 7);
    p = p * q + splat(1.0f / 5);
    p = p * q + splat(1.0f / 3);
    p = p * q + splat(1.0f);
    return p * s * splat(2.0f);
}

INLINE vec abs_vec(vec x)
{
    return (vec)((ivec)x & 0x7fffffff);
}

/* The scalar twin of exp_nonpositive, for batch 1, where one row's result is the next row's input. */
INLINE float exp_nonpositive_1(float x)
{
    x = x > -87.0f ? x : -87.0f;
    int32_t n = (int32_t)(x * 1.44269504f - 0.5f);
    float f = (float)n;
    float r = x - f * 0.693359375f - f * -2.12194440e-4f;
    float q = r * r; /* Estrin's scheme: shorter chain */
    float p01 = 1.0f + r, p23 = 0.5f + r * (1.0f / 6), p45 = 1.0f / 24 + r * (1.0f / 120);
    float p = p01 + q * (p23 + q * (p45 + q * (1.0f / 720)));
    union {
        int32_t bits;
        float value;
    } scale = {.bits = (n + 127) << 23};
    return p * scale.value;
}

/* ---- linear models ---- */

INLINE void prefetch_record(const mst_row *row)
{
    const char *first = (const char *)(row->dense ? (const void *)row->dense : (const void *)row->keys);
    const char *last = (const char *)(row->values ? (const void *)(row->values + row->n_keys)
                                                  : (const void *)(row->keys + row->n_keys));
    if (last - first > 512)
        last = first + 512; /* the hardware follows on its own from there */
    for (const char *p = first; p < last; p += 64)
        __builtin_prefetch(p);
}

INLINE void prefetch_weights(const mst_row *row, const float *w)
{
    const uint32_t *keys = row->keys;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < row->n_keys; i++)
        __builtin_prefetch(&w[keys[i]], 1);
}

INLINE void prefetch_ahead(const mst_row *rows, uint32_t i, uint32_t n, const float *w)
{
    if (i + RECORDS_AHEAD < n)
        prefetch_record(&rows[i + RECORDS_AHEAD]);
    if (i + WEIGHTS_AHEAD < n)
        prefetch_weights(&rows[i + WEIGHTS_AHEAD], w);
}

INLINE float dense_dot(const float *x, const float *w, uint32_t n)
{
    vec sum = {};
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        sum += load(x + i) * load(w + i);
    if (i < n)
        sum += load_part(x + i, n - i) * load_part(w + i, n - i);
    return sum_lanes(sum);
}

INLINE float byte_dot(const uint8_t *x, const float *w, uint32_t n)
{
    float sum = 0.0f;
    for (uint32_t i = 0; i < n; i++)
        sum += (float)x[i] * w[i];
    return sum * (1.0f / 255);
}

/* y += a * x */
INLINE void dense_add(const float *x, float a, float *y, uint32_t n)
{
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        store(y + i, load(y + i) + splat(a) * load(x + i));
    if (i < n)
        store_part(y + i, n - i, load_part(y + i, n - i) + splat(a) * load_part(x + i, n - i));
}

INLINE float sparse_dot(const mst_row *row, const float *w)
{
    const uint32_t *keys = row->keys;
    uint32_t n = row->n_keys, i = 0;
    float a = 0, b = 0, c = 0, d = 0; /* four chains: one addition would wait for the other */
    if (row->values == NULL) {
        for (; i + 4 <= n; i += 4) {
            a += w[keys[i]];
            b += w[keys[i + 1]];
            c += w[keys[i + 2]];
            d += w[keys[i + 3]];
        }
        for (; i < n; i++)
            a += w[keys[i]];
    } else {
        const float *x = row->values;
        for (; i + 4 <= n; i += 4) {
            a += x[i] * w[keys[i]];
            b += x[i + 1] * w[keys[i + 1]];
            c += x[i + 2] * w[keys[i + 2]];
            d += x[i + 3] * w[keys[i + 3]];
        }
        for (; i < n; i++)
            a += x[i] * w[keys[i]];
    }
    return (a + b) + (c + d);
}

/* Key after key, so that a repeated key adds up. */
INLINE void sparse_add(const mst_row *row, float a, float *w)
{
    const uint32_t *keys = row->keys;
    uint32_t n = row->n_keys;
    if (row->values == NULL) {
#pragma GCC unroll 8
        for (uint32_t i = 0; i < n; i++)
            w[keys[i]] += a;
    } else {
        for (uint32_t i = 0; i < n; i++)
            w[keys[i]] += a * row->values[i];
    }
}

INLINE float margin_of(const mst_row *row, const mst_linear *w)
{
    float m = w->bias ? *w->bias : 0.0f;
    if (row->n_dense != 0)
        m += row->bytes ? byte_dot(row->bytes, w->dense, row->n_dense)
                        : dense_dot(row->dense, w->dense, row->n_dense);
    return m + sparse_dot(row, w->sparse);
}

INLINE void add_dense(const mst_row *row, float a, const mst_linear *w)
{
    if (w->bias)
        *w->bias += a;
    if (row->bytes) {
        float b = a * (1.0f / 255);
        for (uint32_t i = 0; i < row->n_dense; i++)
            w->dense[i] += b * (float)row->bytes[i];
    } else if (row->n_dense != 0) {
        dense_add(row->dense, a, w->dense, row->n_dense);
    }
}

INLINE void add_row(const mst_row *row, float a, const mst_linear *w)
{
    add_dense(row, a, w);
    sparse_add(row, a, w->sparse);
}

/* How many of n keys are below `limit`. */
INLINE uint32_t count_below(const uint32_t *keys, uint32_t n, uint32_t limit)
{
    uint32_t count = 0;
#ifdef __AVX512F__
    __m512i limits = _mm512_set1_epi32((int)limit);
    for (uint32_t i = 0; i < n; i += 16) {
        __mmask16 part = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : (__mmask16)0xffff;
        __m512i some = _mm512_maskz_loadu_epi32(part, keys + i);
        count += (uint32_t)__builtin_popcount(_mm512_mask_cmplt_epu32_mask(part, some, limits));
    }
#else
    for (uint32_t i = 0; i < n; i++)
        count += keys[i] < limit;
#endif
    return count;
}

/* How many of the row's keys, which ascend, are below `limit`. */
INLINE uint32_t keys_below(const mst_row *row, uint32_t limit)
{
    uint32_t n = row->n_keys, low = 0;
    if (n == 0 || row->keys[0] >= limit)
        return 0;
    if (n <= 64) /* counting all beats guessing where */
        return count_below(row->keys, n, limit);
    while (low < n) {
        uint32_t middle = low + (n - low) / 2;
        if (row->keys[middle] < limit)
            low = middle + 1;
        else
            n = middle;
    }
    return low;
}

/* The row's keys in [from_key, to_key) alone. */
INLINE mst_row key_range(const mst_row *row, uint32_t from_key, uint32_t to_key)
{
    uint32_t from = from_key > 0 ? keys_below(row, from_key) : 0;
    uint32_t to = to_key < UINT32_MAX ? keys_below(row, to_key) : row->n_keys;
    return (mst_row){
        .keys = row->keys + from, .values = row->values ? row->values + from : NULL, .n_keys = to - from};
}

MST_RACY static void margins(const mst_row *rows, uint32_t n, const mst_linear *w, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        prefetch_ahead(rows, i, n, w->sparse);
        out[i] = margin_of(&rows[i], w);
    }
}

MST_RACY static void scatter(const mst_row *rows, uint32_t n, const float *coefs, float scale,
                             const mst_linear *w)
{
    for (uint32_t i = 0; i < n; i++) {
        prefetch_ahead(rows, i, n, w->sparse);
        add_row(&rows[i], coefs[i] * scale, w);
    }
}

static void scatter_dense(const mst_row *rows, uint32_t n, const float *coefs, float scale, uint32_t n_prefix,
                          const mst_linear *w)
{
    for (uint32_t i = 0; i < n; i++) {
        if (i + WEIGHTS_AHEAD < n)
            prefetch_record(&rows[i + WEIGHTS_AHEAD]);
        add_dense(&rows[i], coefs[i] * scale, w);
        for (uint32_t j = 0; j < rows[i].n_keys && rows[i].keys[j] < n_prefix; j++)
            w->dense[rows[i].keys[j]] += coefs[i] * scale * (rows[i].values ? rows[i].values[j] : 1.0f);
    }
}

static void scatter_keys(const mst_row *rows, uint32_t n, const float *coefs, float scale, uint32_t from_key,
                         uint32_t to_key, float *sparse)
{
    mst_row ahead[WEIGHTS_AHEAD]; /* a ring of rows whose weights are on their way */
    if (from_key >= to_key)
        return;
    for (uint32_t i = 0; i < n + WEIGHTS_AHEAD; i++) {
        mst_row *slot = &ahead[i % WEIGHTS_AHEAD];
        if (i >= WEIGHTS_AHEAD)
            sparse_add(slot, coefs[i - WEIGHTS_AHEAD] * scale, sparse);
        if (i >= n)
            continue;
        if (i + RECORDS_AHEAD < n)
            prefetch_record(&rows[i + RECORDS_AHEAD]);
        *slot = key_range(&rows[i], from_key, to_key);
        prefetch_weights(slot, sparse);
    }
}

/* Writes the row's translated keys, and brings their weights closer unless w is NULL; without a branch per
 * key, which would be guessed wrong too often. */
INLINE void translate_keys(const mst_row *row, const mst_key_map *map, uint32_t *restrict out, const float *w)
{
    const uint32_t *keys = row->keys, factor = map->factor;
    uint32_t i = 0, n = row->n_keys;
    for (; i < n && keys[i] < map->prefix; i++) /* rows with a shorter dense prefix */
        out[i] = keys[i] + map->prefix_delta;
#pragma GCC unroll 8
    for (; i < n; i++) {
        uint32_t line = keys[i] >> 4, slot = mst_map_slot(line, factor);
        uint32_t hit = -(uint32_t)(map->lines[slot] == line);
        uint32_t key = keys[i] + (hit & map->deltas[slot]);
        out[i] = key;
        if (w != NULL)
            __builtin_prefetch(&w[key], 1);
    }
}

static void translate(const mst_row *rows, uint32_t n, const mst_key_map *map, mst_row *out, uint32_t *keys)
{
    for (uint32_t i = 0; i < n; i++) {
        if (i + RECORDS_AHEAD < n)
            prefetch_record(&rows[i + RECORDS_AHEAD]);
        translate_keys(&rows[i], map, keys, NULL);
        out[i] = rows[i];
        out[i].keys = keys;
        keys += rows[i].n_keys;
    }
}

/* One row of batch 1: margin, then update. */
INLINE float descend_row(const mst_row *row, float pos_weight, const mst_linear *w, float lr)
{
    float m = margin_of(row, w);
    /* d(loss)/dm = sigmoid(m) - y, from e = exp(-|m|) so that nothing overflows */
    bool positive = row->label > 0.0f;
    float e = exp_nonpositive_1(-fabsf(m));
    float p = ((m >= 0.0f) == positive ? e : 1.0f) / (1.0f + e); /* 1 - probability of the label */
    float v = positive ? pos_weight * row->weight : -row->weight;
    add_row(row, lr * v * p, w);
    return m;
}

MST_RACY static void descend_mapped(const mst_row *rows, uint32_t n, float pos_weight, const mst_linear *w,
                                    const float *lrs, float *out, const mst_key_map *map, uint32_t *scratch)
{
    /* A ring of rows on their way: translated, with their weights prefetched. */
    enum { RING = MST_DESCEND_SCRATCH };
    mst_row ring[RING];
    uint32_t longest = 0;
    for (uint32_t i = 0; i < n; i++)
        longest = rows[i].n_keys > longest ? rows[i].n_keys : longest;
    for (uint32_t i = 0; i < n + WEIGHTS_AHEAD; i++) {
        if (i < n) {
            mst_row *in = &ring[i % RING];
            uint32_t *keys = scratch + (size_t)(i % RING) * longest;
            if (i + RECORDS_AHEAD < n)
                prefetch_record(&rows[i + RECORDS_AHEAD]);
            translate_keys(&rows[i], map, keys, w->sparse);
            *in = rows[i];
            in->keys = keys;
        }
        if (i >= WEIGHTS_AHEAD) {
            uint32_t at = i - WEIGHTS_AHEAD;
            out[at] = descend_row(&ring[at % RING], pos_weight, w, lrs[at]);
        }
    }
}

MST_RACY static void descend_rows(const mst_row *rows, uint32_t n, float pos_weight, const mst_linear *w,
                                  const float *lrs, float *out, const mst_key_map *map, uint32_t *scratch)
{
    if (map != NULL) {
        descend_mapped(rows, n, pos_weight, w, lrs, out, map, scratch);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        prefetch_ahead(rows, i, n, w->sparse);
        out[i] = descend_row(&rows[i], pos_weight, w, lrs[i]);
    }
}

/* Loss and coefficient of LANES rows; row weights already hold pos_weight. */
INLINE vec logistic_lanes(vec m, vec y, vec v, vec *coef)
{
    vec z = m * y; /* y is -1 or +1 */
    vec e = exp_nonpositive(-abs_vec(z));
    vec wrong = select_vec(z >= splat(0.0f), e, splat(1.0f)) / (splat(1.0f) + e); /* sigmoid(-z) */
    *coef = -(y * v * wrong);
    vec hinge = select_vec(z < splat(0.0f), -z, splat(0.0f));
    vec loss = v * (hinge + log1p_unit(e));
    ivec number = (ivec)abs_vec(m) <= 0x7f800000;
    return select_vec(number, loss, m); /* a margin that is no number shows in the loss */
}

static double logistic(const mst_row *rows, uint32_t n, const float *m, float pos_weight, float *coefs)
{
    double total = 0.0;
    for (uint32_t i = 0; i < n; i += LANES) {
        uint32_t part = n - i < LANES ? n - i : LANES;
        vec y = splat(1.0f), v = {}, mv = {}, coef;
        for (uint32_t j = 0; j < part; j++) {
            bool positive = rows[i + j].label > 0.0f;
            mv[j] = m[i + j];
            y[j] = positive ? 1.0f : -1.0f;
            v[j] = positive ? pos_weight * rows[i + j].weight : rows[i + j].weight;
        }
        vec loss = logistic_lanes(mv, y, v, &coef);
        if (coefs != NULL) {
            if (part == LANES)
                store(coefs + i, coef);
            else
                store_part(coefs + i, part, coef);
        }
        total += (double)sum_lanes(loss);
    }
    return total;
}

static double logistic_loss(const mst_row *rows, uint32_t n, const float *m, float pos_weight)
{
    return logistic(rows, n, m, pos_weight, NULL);
}

/* ---- dense layers ---- */

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

/* A row's class; of two classes the label -1 is class 0, as it is for linear models. */
INLINE uint32_t class_of(const mst_row *row)
{
    return row->label > 0.0f ? (uint32_t)row->label : 0;
}

static double softmax_loss(const mst_row *rows, uint32_t n, uint32_t c, const float *y)
{
    double total = 0.0;
    for (uint32_t r = 0; r < n; r++, y += c) {
        float top = top_of(y, c), own = y[class_of(&rows[r])];
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
        d[class_of(&rows[r])] -= v;
    }
    return total;
}

const mst_kernels KERNELS_NAME = {
    .isa = KERNELS_ISA,
    .margins = margins,
    .logistic = logistic,
    .scatter = scatter,
    .scatter_dense = scatter_dense,
    .scatter_keys = scatter_keys,
    .descend_rows = descend_rows,
    .translate = translate,
    .logistic_loss = logistic_loss,
    .unpack_bytes = unpack_bytes,
    .dense_forward = dense_forward,
    .dense_backward = dense_backward,
    .softmax = softmax,
    .softmax_loss = softmax_loss,
};
