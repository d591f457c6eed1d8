/* Part of kernels_impl.h: linear models on rows with a dense prefix and a sparse tail.
 *
 * Sparse loops are scalar on purpose: gathers and scatters are no faster than scalar loads and stores on the
 * machines of interest, and a scalar loop is right when a key repeats within a row. Latency dominates: the
 * weights take 135 MB of memory, so the lines of a row are prefetched some rows ahead.
 *
 * Keys of the sparse part are not compared with anything: they may be in a mapped file that another process
 * overwrites, and any 32-bit number addresses the weights or the guard behind them (tensor/params.h). A
 * comparison per key costs 13% of the rate at batch 1. */

/* Distances in rows at which weights, and the records themselves, are prefetched. */
#define WEIGHTS_AHEAD 4 /* below MST_DESCEND_SCRATCH */
#define RECORDS_AHEAD 8

/* The cache lines of [first, last), at most 512 bytes: the hardware follows on its own from there. */
INLINE void prefetch_lines(const void *first, const void *last)
{
    const char *p = first, *end = (const char *)last - p > 512 ? p + 512 : last;
    for (; p < end; p += 64)
        __builtin_prefetch(p);
    if (end > (const char *)first)
        __builtin_prefetch(end - 1);
}

/* A row's numbers, keys and values are in one record, or in arrays of their own: those of the program, or of
 * a batch that was localised. */
INLINE void prefetch_record(const mst_row *row)
{
    const char *dense = (const char *)row->dense, *keys = (const char *)row->keys;
    const void *end = row->keys + row->n_keys;
    if (dense != NULL && (size_t)(keys - dense) > 512) {
        /* a load of the last part waits for the whole vector */
        prefetch_lines(dense, row->dense + (row->n_dense + LANES - 1) / LANES * LANES);
        dense = NULL;
    }
    if (row->values != NULL && (const void *)row->values == end)
        end = row->values + row->n_keys;
    else if (row->values != NULL)
        prefetch_lines(row->values, row->values + row->n_keys);
    prefetch_lines(dense != NULL ? dense : keys, end);
}

/* A key that is compared and then used: its memory may change in between, when it is a mapped file. */
INLINE uint32_t read_key(const uint32_t *key)
{
    return __atomic_load_n(key, __ATOMIC_RELAXED);
}

/* write: the weights will be written. A line that other cores have is taken away from them then, so that the
 * store does not wait for it; a thread that only reads must not do that. */
INLINE void prefetch_weights(const mst_row *row, const float *w, bool write)
{
    const uint32_t *keys = row->keys;
    uint32_t n = row->n_keys;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < n; i++)
        write ? __builtin_prefetch(&w[keys[i]], 1) : __builtin_prefetch(&w[keys[i]], 0);
}

INLINE void prefetch_ahead(const mst_row *rows, uint32_t i, uint32_t n, const mst_linear *w, bool write)
{
    if (i + RECORDS_AHEAD < n)
        prefetch_record(&rows[i + RECORDS_AHEAD]);
    if (i + WEIGHTS_AHEAD < n && !w->near)
        prefetch_weights(&rows[i + WEIGHTS_AHEAD], w->sparse, write);
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

/* bias + dense prefix */
INLINE float prefix_margin(const mst_row *row, const mst_linear *w)
{
    float m = w->bias ? *w->bias : 0.0f;
    if (row->n_dense != 0)
        m += row->bytes ? byte_dot(row->bytes, w->dense, row->n_dense)
                        : dense_dot(row->dense, w->dense, row->n_dense);
    return m;
}

INLINE float margin_of(const mst_row *row, const mst_linear *w)
{
    return prefix_margin(row, w) + sparse_dot(row, w->sparse);
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

static void margins_by_rows(const mst_row *rows, uint32_t n, const mst_linear *w, float *out);

MST_RACY static void margins(const mst_row *rows, uint32_t n, const mst_linear *w, float *out)
{
    if (w->stride > 1) {
        margins_by_rows(rows, n, w, out);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        prefetch_ahead(rows, i, n, w, false);
        out[i] = margin_of(&rows[i], w);
    }
}

MST_RACY static void scatter(const mst_row *rows, uint32_t n, const float *coefs, float scale,
                             const mst_linear *w)
{
    for (uint32_t i = 0; i < n; i++) {
        prefetch_ahead(rows, i, n, w, true);
        add_row(&rows[i], coefs[i] * scale, w);
    }
}

/* The first rows, as far as they have all floats of a prefix that fits in a vector; returns their number. The
 * sums stay in registers: a load waits until a masked store has reached the cache. */
INLINE uint32_t scatter_prefix(const mst_row *rows, uint32_t n, const float *coefs, float scale,
                               uint32_t n_prefix, const mst_linear *w)
{
    uint32_t i = 0;
    vec sum = load_part(w->dense, n_prefix);
    float bias = w->bias ? *w->bias : 0.0f;
    for (; i < n && rows[i].n_dense == n_prefix && rows[i].bytes == NULL; i++) {
        float a = coefs[i] * scale;
        if (i + WEIGHTS_AHEAD < n)
            prefetch_record(&rows[i + WEIGHTS_AHEAD]);
        sum += splat(a) * load_part(rows[i].dense, n_prefix);
        bias += a;
    }
    store_part(w->dense, n_prefix, sum);
    if (w->bias)
        *w->bias = bias;
    return i;
}

static void scatter_dense(const mst_row *rows, uint32_t n, const float *coefs, float scale, uint32_t n_prefix,
                          const mst_linear *w)
{
    uint32_t i = n_prefix < LANES ? scatter_prefix(rows, n, coefs, scale, n_prefix, w) : 0;
    for (; i < n; i++) {
        if (i + WEIGHTS_AHEAD < n)
            prefetch_record(&rows[i + WEIGHTS_AHEAD]);
        add_dense(&rows[i], coefs[i] * scale, w);
        for (uint32_t j = 0; j < rows[i].n_keys; j++) {
            uint32_t key = read_key(&rows[i].keys[j]);
            if (key >= n_prefix)
                break;
            w->dense[key] += coefs[i] * scale * (rows[i].values ? rows[i].values[j] : 1.0f);
        }
    }
}

/* ---- contributions by owner ---- */

INLINE void emit_row(const mst_row *row, uint32_t i, float coef, mst_contributions *owners, uint32_t n_owners)
{
    for (; i < row->n_keys; i++) {
        uint32_t key = read_key(&row->keys[i]);
        mst_contributions *list = &owners[mst_grad_owner(key, n_owners)];
        list->keys[list->n] = key;
        list->values[list->n++] = row->values ? coef * row->values[i] : coef;
    }
}

static void emit_keys(const mst_row *rows, uint32_t n, const float *coefs, float scale, uint32_t n_prefix,
                      mst_contributions *owners, uint32_t n_owners)
{
    for (uint32_t r = 0; r < n; r++) {
        uint32_t i = 0;
        if (r + RECORDS_AHEAD < n)
            prefetch_record(&rows[r + RECORDS_AHEAD]);
        while (i < rows[r].n_keys && read_key(&rows[r].keys[i]) < n_prefix)
            i++;
        emit_row(&rows[r], i, coefs[r] * scale, owners, n_owners);
    }
}

/* Writes the row's translated keys; without a branch per key, which would be guessed wrong too often. */
INLINE void translate_keys(const mst_row *row, const mst_key_map *map, uint32_t *restrict out)
{
    const uint32_t *keys = row->keys, *buckets = map->buckets;
    const uint32_t factor = map->factor, shift = map->shift, base = map->base, n_mapped = map->n;
    uint32_t i = 0, n = row->n_keys;
    for (; i < n && keys[i] < map->prefix; i++) /* rows with a shorter dense prefix */
        out[i] = keys[i] + map->prefix_delta;
#pragma GCC unroll 8
    for (; i < n; i++) {
        uint32_t key = keys[i], hash = key * factor,
                 number = mst_map_number(buckets[hash >> shift], hash, shift);
        out[i] = key + (-(uint32_t)(number < n_mapped) & (base + number - key));
    }
}

static void translate(const mst_row *rows, uint32_t n, const mst_key_map *map, mst_row *out, uint32_t *keys)
{
    for (uint32_t i = 0; i < n; i++) {
        if (i + RECORDS_AHEAD < n)
            prefetch_record(&rows[i + RECORDS_AHEAD]);
        translate_keys(&rows[i], map, keys);
        out[i] = rows[i];
        out[i].keys = keys;
        keys += rows[i].n_keys;
    }
}

/* Translated rows on their way. */
enum { RING = MST_DESCEND_SCRATCH };
typedef struct row_ring {
    mst_row rows[RING];
    uint32_t longest, *keys; /* of the longest row; room for those of all */
} row_ring;

INLINE uint32_t longest_row(const mst_row *rows, uint32_t n)
{
    uint32_t longest = 0;
    for (uint32_t i = 0; i < n; i++)
        longest = rows[i].n_keys > longest ? rows[i].n_keys : longest;
    return longest;
}

/* Translates row i of n. */
INLINE void ring_add(row_ring *ring, const mst_row *rows, uint32_t i, uint32_t n, const mst_key_map *map,
                     const mst_linear *w)
{
    uint32_t *keys = ring->keys + (size_t)(i % RING) * ring->longest;
    if (i + RECORDS_AHEAD < n + w->after)
        prefetch_record(&rows[i + RECORDS_AHEAD]);
    translate_keys(&rows[i], map, keys);
    ring->rows[i % RING] = rows[i];
    ring->rows[i % RING].keys = keys;
}

/* One row of batch 1: margin, then update. */
INLINE float descend_row(const mst_row *row, float pos_weight, const mst_linear *w, float lr)
{
    float m = margin_of(row, w);
    /* d(loss)/dm = sigmoid(m) - y, from e = exp(-|m|) so that nothing overflows */
    bool positive = mst_label_positive(row->label);
    float e = exp_nonpositive_1(-fabsf(m));
    float p = ((m >= 0.0f) == positive ? e : 1.0f) / (1.0f + e); /* 1 - probability of the label */
    float v = positive ? pos_weight * row->weight : -row->weight;
    add_row(row, lr * v * p, w);
    return m;
}

MST_RACY static void descend_mapped(const mst_row *rows, uint32_t n, float pos_weight, const mst_linear *w,
                                    const float *lrs, float *out, const mst_key_map *map, uint32_t *scratch)
{
    row_ring ring = {.longest = longest_row(rows, n), .keys = scratch};
    for (uint32_t i = 0; i < n + WEIGHTS_AHEAD; i++) {
        if (i < n) {
            ring_add(&ring, rows, i, n, map, w);
            prefetch_weights(&ring.rows[i % RING], w->sparse, true);
        }
        if (i >= WEIGHTS_AHEAD) {
            uint32_t at = i - WEIGHTS_AHEAD;
            out[at] = descend_row(&ring.rows[at % RING], pos_weight, w, lrs[at]);
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
        prefetch_ahead(rows, i, n, w, true);
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
    return select_vec(number, loss, m); /* a NaN margin shows in the loss */
}

static double logistic(const mst_row *rows, uint32_t n, const float *m, float pos_weight, float *coefs)
{
    double total = 0.0;
    for (uint32_t i = 0; i < n; i += LANES) {
        uint32_t part = n - i < LANES ? n - i : LANES;
        vec y = splat(1.0f), v = {}, mv = {}, coef;
        for (uint32_t j = 0; j < part; j++) {
            bool positive = mst_label_positive(rows[i + j].label);
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
