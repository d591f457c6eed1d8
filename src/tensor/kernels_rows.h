/* Part of kernels_impl.h: linear models on a store by rows (mst_key_rows), with every update rule.
 *
 * A key's weight, state and scratch float are 16 bytes of one cache line. A row of 26 keys touches 26 lines;
 * at a latency of L and M misses in flight it takes 26 * L / M, however few instructions it needs, so lines
 * are prefetched some rows ahead. The rows of LANES keys are loaded as they are and transposed, so that rules
 * (square roots, divisions) are applied in vectors.
 *
 * A batch sums its gradient by place: the scratch float of a key holds the place of its sum. So the store is
 * read twice, for margins and for the update.
 *
 * Keys below `head` belong to the dense range: keys ascend, so a row has them in front. */
#include "tensor/rule_one.h"

#define ROW        MST_ROW_FIRST
#define SCRATCH    MST_ROW_SCRATCH /* place or sum of a step's gradient; +0.0: none yet */
#define BLOCK_KEYS 64
#define GROUP_ROWS 4 /* at most half of MST_DESCEND_SCRATCH */

INLINE float *row_at(const mst_linear *w, uint32_t key)
{
    return w->sparse + (size_t)key * ROW;
}

INLINE void prefetch_rows(const mst_row *row, const mst_linear *w, bool write) /* see prefetch_weights */
{
    const uint32_t *keys = row->keys;
    uint32_t n = row->n_keys;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < n; i++)
        write ? __builtin_prefetch(row_at(w, keys[i]), 1) : __builtin_prefetch(row_at(w, keys[i]), 0);
}

/* Keys are prefetched for a group of rows at a time, the next one. A prefetch in a page that no TLB has waits
 * for its address, and what follows waits for it; only those that are close together wait at the same time.
 */
INLINE void prefetch_ahead_rows(const mst_row *rows, uint32_t i, uint32_t n, const mst_linear *w, bool write)
{
    if (i + RECORDS_AHEAD < n)
        prefetch_record(&rows[i + RECORDS_AHEAD]);
    for (uint32_t j = i + GROUP_ROWS; i % GROUP_ROWS == 0 && j < i + 2 * GROUP_ROWS && j < n; j++)
        prefetch_rows(&rows[j], w, write);
}

/* Keys of the row's tail that belong to the dense range. */
INLINE uint32_t head_keys(const mst_row *row, uint32_t head)
{
    uint32_t n = 0;
    while (n < row->n_keys && read_key(&row->keys[n]) < head)
        n++;
    return n;
}

INLINE float value_of(const mst_row *row, uint32_t i)
{
    return row->values != NULL ? row->values[i] : 1.0f;
}

/* bias + dense prefix + keys below head, of which there are *n_head. */
INLINE float dense_margin(const mst_row *row, const mst_linear *w, uint32_t *n_head)
{
    float m = prefix_margin(row, w);
    *n_head = row->n_dense < w->head ? head_keys(row, w->head) : 0;
    for (uint32_t i = 0; i < *n_head; i++) {
        uint32_t key = read_key(&row->keys[i]);
        m += key < w->head ? value_of(row, i) * w->dense[key] : 0.0f;
    }
    return m;
}

/* The weight of key i of a row; heads: it may belong to the dense range. */
INLINE float weight_of(const mst_row *row, uint32_t i, const mst_linear *w, bool heads)
{
    uint32_t key = read_key(&row->keys[i]);
    return heads && key < w->head ? w->dense[key] : *row_at(w, key);
}

/* In the order of sparse_dot, so that a checkpoint has the same loss in either layout of the store. */
INLINE float dot_by_rows(const mst_row *row, const mst_linear *w, bool heads)
{
    uint32_t n = row->n_keys, i = 0;
    float a = 0, b = 0, c = 0, d = 0;
    for (; i + 4 <= n; i += 4) {
        a += value_of(row, i) * weight_of(row, i, w, heads);
        b += value_of(row, i + 1) * weight_of(row, i + 1, w, heads);
        c += value_of(row, i + 2) * weight_of(row, i + 2, w, heads);
        d += value_of(row, i + 3) * weight_of(row, i + 3, w, heads);
    }
    for (; i < n; i++)
        a += value_of(row, i) * weight_of(row, i, w, heads);
    return (a + b) + (c + d);
}

MST_RACY static void margins_by_rows(const mst_row *rows, uint32_t n, const mst_linear *w, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        const mst_row *row = &rows[i];
        prefetch_ahead_rows(rows, i, n, w, w->shared != 0); /* an asynchronous step updates them next */
        mst_row prefix = *row; /* a row to evaluate may have a longer one than the model */
        prefix.n_dense = row->n_dense < w->head ? row->n_dense : w->head;
        float m = prefix_margin(&prefix, w);
        for (uint32_t k = w->head; k < row->n_dense; k++)
            m += mst_row_dense(row, k) * *row_at(w, k);
        out[i] = m + (row->n_dense < w->head ? dot_by_rows(row, w, true) : dot_by_rows(row, w, false));
    }
}

/* ---- rules on vectors ---- */

/* One vector of weights and state that lie one after the other. */
INLINE void rule_lanes(mst_rule_one *one, const mst_rule *c, float *restrict w, float *restrict a,
                       float *restrict b, const float *restrict g)
{
#pragma GCC ivdep
    for (uint32_t j = 0; j < LANES; j++)
        one(c, w, a, b, j, g[j]);
}

/* n weights from w on, with state at w + step and w + 2 * step. */
INLINE void rule_dense(mst_rule_one *one, uint32_t n_slots, const mst_rule *c, float *w, uint64_t step,
                       const float *g, uint64_t n)
{
    for (uint64_t i = 0; i < n; i += LANES) {
        float wl[LANES], al[LANES], bl[LANES], gl[LANES];
        uint32_t part = n - i < LANES ? (uint32_t)(n - i) : LANES;
        bool whole = part == LANES;
        store(wl, whole ? load(w + i) : load_part(w + i, part));
        store(gl, whole ? load(g + i) : load_part(g + i, part));
        if (n_slots > 0)
            store(al, whole ? load(w + step + i) : load_part(w + step + i, part));
        if (n_slots > 1)
            store(bl, whole ? load(w + 2 * step + i) : load_part(w + 2 * step + i, part));
        rule_lanes(one, c, wl, al, bl, gl);
        for (uint32_t s = 0; s <= n_slots; s++) {
            const float *from = s == 0 ? wl : s == 1 ? al : bl;
            if (whole)
                store(w + s * step + i, load(from));
            else
                store_part(w + s * step + i, part, load(from));
        }
    }
}

/* ---- rows as vectors ---- */

typedef float quad __attribute__((vector_size(16)));
typedef float quad_u __attribute__((vector_size(16), aligned(4), may_alias));

/* The rows of up to LANES keys: their weights, state and scratch floats, each in a vector. */
typedef struct row_lanes {
    vec at[ROW];
} row_lanes;

#if LANES == 16
#define EACH_QUAD(a, b, c, d)                                                                                \
    (a), (b), (c), (d), (a) + 4, (b) + 4, (c) + 4, (d) + 4, (a) + 8, (b) + 8, (c) + 8, (d) + 8, (a) + 12,    \
        (b) + 12, (c) + 12, (d) + 12
#elif LANES == 8
#define EACH_QUAD(a, b, c, d) (a), (b), (c), (d), (a) + 4, (b) + 4, (c) + 4, (d) + 4
#else
#define EACH_QUAD(a, b, c, d) (a), (b), (c), (d)
#endif

/* Vector i has the rows of keys i, i + 4, ...: transposes each four rows; its own inverse. */
INLINE void transpose_rows(row_lanes *x)
{
    vec a = __builtin_shufflevector(x->at[0], x->at[1], EACH_QUAD(0, LANES, 1, LANES + 1));
    vec b = __builtin_shufflevector(x->at[0], x->at[1], EACH_QUAD(2, LANES + 2, 3, LANES + 3));
    vec c = __builtin_shufflevector(x->at[2], x->at[3], EACH_QUAD(0, LANES, 1, LANES + 1));
    vec d = __builtin_shufflevector(x->at[2], x->at[3], EACH_QUAD(2, LANES + 2, 3, LANES + 3));
    x->at[0] = __builtin_shufflevector(a, c, EACH_QUAD(0, 1, LANES, LANES + 1));
    x->at[1] = __builtin_shufflevector(a, c, EACH_QUAD(2, 3, LANES + 2, LANES + 3));
    x->at[2] = __builtin_shufflevector(b, d, EACH_QUAD(0, 1, LANES, LANES + 1));
    x->at[3] = __builtin_shufflevector(b, d, EACH_QUAD(2, 3, LANES + 2, LANES + 3));
}

/* n: 1 to LANES. Lanes beyond the keys have the row of the last one. */
INLINE void load_rows(row_lanes *x, const mst_linear *w, const uint32_t *keys, uint32_t n)
{
#define QUAD(i) (*(const quad_u *)row_at(w, keys[(i) < n ? (i) : n - 1]))
#pragma GCC unroll 4
    for (uint32_t i = 0; i < ROW; i++) {
#if LANES == 16
        typedef float half __attribute__((vector_size(32)));
        half lower = __builtin_shufflevector(QUAD(i), QUAD(i + 4), 0, 1, 2, 3, 4, 5, 6, 7);
        half upper = __builtin_shufflevector(QUAD(i + 8), QUAD(i + 12), 0, 1, 2, 3, 4, 5, 6, 7);
        x->at[i] =
            __builtin_shufflevector(lower, upper, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#elif LANES == 8
        x->at[i] = __builtin_shufflevector(QUAD(i), QUAD(i + 4), 0, 1, 2, 3, 4, 5, 6, 7);
#else
        x->at[i] = QUAD(i);
#endif
    }
#undef QUAD
    transpose_rows(x);
}

/* Scratch floats become zero. */
INLINE void store_rows(row_lanes *x, const mst_linear *w, const uint32_t *keys, uint32_t n)
{
    x->at[SCRATCH] = (vec){};
    transpose_rows(x);
#define PART(i, q)                                                                                           \
    if ((i) + 4 * (q) < n)                                                                                   \
    *(quad_u *)row_at(w, keys[(i) + 4 * (q)]) =                                                              \
        __builtin_shufflevector(x->at[i], x->at[i], 4 * (q), 4 * (q) + 1, 4 * (q) + 2, 4 * (q) + 3)
#pragma GCC unroll 4
    for (uint32_t i = 0; i < ROW; i++) {
        PART(i, 0);
#if LANES >= 8
        PART(i, 1);
#endif
#if LANES == 16
        PART(i, 2);
        PART(i, 3);
#endif
    }
#undef PART
}

INLINE void update_lanes(mst_rule_one *one, const mst_rule *c, row_lanes *x, vec g)
{
    float w[LANES], a[LANES], b[LANES], gl[LANES];
    store(w, x->at[0]);
    store(a, x->at[1]);
    store(b, x->at[2]);
    store(gl, g);
    rule_lanes(one, c, w, a, b, gl);
    x->at[0] = load(w);
    x->at[1] = load(a);
    x->at[2] = load(b);
}

/* The first n lanes (at most LANES), the others zero. */
INLINE vec first_lanes(vec v, uint32_t n)
{
    ivec number = {};
    for (int32_t i = 0; i < LANES; i++)
        number[i] = i;
    return select_vec(number < (ivec){} + (int32_t)n, v, (vec){});
}

/* ---- batch 1 ---- */

/* Whether a key occurs twice in a row whose keys are in any order: marks the rows of the store on the way. */
INLINE bool has_repeats(const mst_row *row, const mst_linear *w)
{
    bool found = false;
    for (uint32_t j = 0; j < row->n_keys; j++) {
        float *mark = row_at(w, row->keys[j]) + SCRATCH;
        found |= *mark != 0.0f;
        *mark = 1.0f;
    }
    for (uint32_t j = 0; j < row->n_keys; j++)
        row_at(w, row->keys[j])[SCRATCH] = 0.0f;
    return found;
}

/* The update of a row that has values, repeated keys, keys below head or many keys. The gradients
 * of a repeated key are summed first; they are adjacent where keys ascend. */
INLINE void train_keys(mst_rule_one *one, const mst_rule *c, const mst_row *row, uint32_t from, float coef,
                       const mst_linear *w)
{
    for (uint32_t j = from; row->any_order && j < row->n_keys; j++) {
        uint32_t key = read_key(&row->keys[j]), i = from;
        float g = coef * value_of(row, j), *at = row_at(w, key);
        while (i < j && read_key(&row->keys[i]) != key)
            i++;
        if (i < j)
            continue; /* done with the first of them */
        for (i = j + 1; i < row->n_keys; i++)
            g += read_key(&row->keys[i]) == key ? coef * value_of(row, i) : 0.0f;
        one(c, at, at + 1, at + 2, 0, g);
    }
    for (uint32_t j = from; !row->any_order && j < row->n_keys;) {
        uint32_t key = read_key(&row->keys[j]);
        float g = coef * value_of(row, j), *at = row_at(w, key);
        for (j++; j < row->n_keys && read_key(&row->keys[j]) == key; j++)
            g += coef * value_of(row, j);
        one(c, at, at + 1, at + 2, 0, g);
    }
}

/* The dense range and the bias. */
INLINE void train_dense(mst_rule_one *one, uint32_t n_slots, const mst_rule *c, const mst_row *row,
                        uint32_t n_head, float coef, const mst_linear *w)
{
    float g[MST_HEAD_MAX + LANES];
    if (w->bias)
        one(c, w->bias, w->bias + w->state, w->bias + 2 * w->state, 0, coef);
    if (w->head == 0)
        return;
    uint32_t i = 0;
    if (row->bytes == NULL && row->n_dense != 0) {
        for (; i + LANES <= row->n_dense; i += LANES)
            store(g + i, splat(coef) * load(row->dense + i));
        if (i < row->n_dense)
            store(g + i, splat(coef) * load_part(row->dense + i, row->n_dense - i));
    }
    for (i = 0; row->bytes != NULL && i < row->n_dense; i++)
        g[i] = coef * (1.0f / 255) * (float)row->bytes[i];
    for (i = row->n_dense; i < w->head; i++)
        g[i] = 0.0f;
    for (i = 0; i < n_head; i++) {
        uint32_t key = read_key(&row->keys[i]);
        if (key < w->head)
            g[key] += coef * value_of(row, i);
    }
    rule_dense(one, n_slots, c, w->dense, w->state, g, w->head);
}

/* d(loss)/d(margin) */
INLINE float logistic_coef(const mst_row *row, float pos_weight, float m)
{
    bool positive = mst_label_positive(row->label);
    float e = exp_nonpositive_1(-fabsf(m));
    float p = ((m >= 0.0f) == positive ? e : 1.0f) / (1.0f + e); /* 1 - probability of the label */
    return positive ? -pos_weight * row->weight * p : row->weight * p;
}

/* Whether neighbours among n ascending keys are equal. */
INLINE bool adjacent_repeats(const uint32_t *keys, uint32_t n)
{
    ivec found = {};
    uint32_t i = 0;
    for (; i + LANES < n; i += LANES)
        found |= *(const ivec_u *)(keys + i) == *(const ivec_u *)(keys + i + 1);
    bool repeats = any_lane(found);
    for (; i + 1 < n; i++)
        repeats |= keys[i] == keys[i + 1];
    return repeats;
}

INLINE vec values_of(const mst_row *row, uint32_t from, uint32_t n)
{
    if (row->values == NULL)
        return splat(1.0f);
    return n == LANES ? load(row->values + from) : load_part(row->values + from, n);
}

/* One row: margin, then the update; returns the margin. */
INLINE float train_row(mst_rule_one *one, uint32_t n_slots, const mst_row *row, float pos_weight,
                       const mst_linear *linear, const mst_rule *rule)
{
    const mst_linear copy = *linear, *w = &copy; /* which no store changes */
    const uint32_t *keys = row->keys;
    uint32_t n_keys = row->n_keys, n_head;
    float m = dense_margin(row, w, &n_head);
    row_lanes lanes[BLOCK_KEYS / LANES];
    bool scalar = n_head != 0 || n_keys > BLOCK_KEYS ||
                  (row->any_order ? has_repeats(row, w) : adjacent_repeats(keys, n_keys));
    if (scalar) {
        float sum = 0.0f;
        for (uint32_t j = n_head; j < n_keys; j++)
            sum += value_of(row, j) * *row_at(w, keys[j]);
        m += sum;
    } else {
        vec sum = {};
        for (uint32_t j = 0; j < n_keys; j += LANES) {
            uint32_t part = n_keys - j < LANES ? n_keys - j : LANES;
            row_lanes *x = &lanes[j / LANES];
            if (part == LANES) {
                load_rows(x, w, keys + j, LANES);
                sum += values_of(row, j, LANES) * x->at[0];
            } else {
                load_rows(x, w, keys + j, part);
                sum += first_lanes(values_of(row, j, part) * x->at[0], part);
            }
        }
        m += sum_lanes(sum);
    }
    float coef = logistic_coef(row, pos_weight, m);
    if (scalar)
        train_keys(one, rule, row, n_head, coef, w);
    for (uint32_t j = 0; !scalar && j < n_keys; j += LANES) {
        uint32_t part = n_keys - j < LANES ? n_keys - j : LANES;
        row_lanes *x = &lanes[j / LANES];
        update_lanes(one, rule, x, splat(coef) * values_of(row, j, part));
        if (part == LANES)
            store_rows(x, w, keys + j, LANES);
        else
            store_rows(x, w, keys + j, part);
    }
    train_dense(one, n_slots, rule, row, n_head, coef, w);
    return m;
}

INLINE void train_each(mst_rule_one *one, uint32_t n_slots, const mst_row *rows, uint32_t n, float pos_weight,
                       const mst_linear *w, const mst_rule *rules, float *out, const mst_key_map *map,
                       uint32_t *scratch)
{
    if (map == NULL) {
        for (uint32_t i = 0; i < n; i++) {
            prefetch_ahead_rows(rows, i, n, w, true);
            out[i] = train_row(one, n_slots, &rows[i], pos_weight, w, &rules[i]);
        }
        return;
    }
    row_ring ring = {.longest = longest_row(rows, n), .keys = scratch};
    for (uint32_t i = 0; i < n + GROUP_ROWS; i++) {
        for (uint32_t j = i; i % GROUP_ROWS == 0 && j < i + GROUP_ROWS && j < n; j++)
            ring_add(&ring, rows, j, n, map, w);
        for (uint32_t j = i; i % GROUP_ROWS == 0 && j < i + GROUP_ROWS && j < n; j++)
            prefetch_rows(&ring.rows[j % RING], w, true);
        if (i >= GROUP_ROWS) {
            uint32_t at = i - GROUP_ROWS;
            out[at] = train_row(one, n_slots, &ring.rows[at % RING], pos_weight, w, &rules[at]);
        }
    }
}

/* ---- batches ---- */

/* +0.0 marks a key without gradient, so a sum of zero is stored as -0.0. */
INLINE float marked(float sum)
{
    union {
        float f;
        uint32_t u;
    } x = {sum};
    x.u |= (uint32_t)(x.u == 0) << 31;
    return x.f;
}

INLINE bool is_unmarked(float sum)
{
    union {
        float f;
        uint32_t u;
    } x = {sum};
    return x.u == 0;
}

/* Finds the place of a key in the sums of a step, of which *n are taken, and returns the weight. The row of
 * the key has the place in its scratch float if the step has set it. shared: another thread may have written
 * its own there, or zero. heads: the key may be below head. */
INLINE float place_key(uint32_t key, const mst_linear *w, uint32_t *keys, uint32_t *n, uint32_t *out,
                       bool heads, bool shared)
{
    if (heads && key < w->head) {
        *out = 0;
        return w->dense[key];
    }
    float *row = row_at(w, key), weight = *row;
    uint32_t *scratch = (uint32_t *)(void *)(row + SCRATCH), place = *scratch, is_new = place == 0;
    if (shared)
        is_new |= (place >= *n) | (keys[place < *n ? place : 0] != key);
    place = is_new ? *n : place;
    keys[*n] = key;
    *scratch = *out = place;
    *n += is_new;
    return weight;
}

/* The margin of a row without its prefix, in the order of dot_by_rows, and the places of its keys. */
INLINE float place_row(const mst_row *row, const mst_linear *w, mst_row_sums *sums, uint32_t *places,
                       bool valued, bool heads, bool shared)
{
    const uint32_t *keys = row->keys;
    const float *values = row->values;
    uint32_t n_keys = row->n_keys, i = 0, n = sums->n;
    float a = 0, b = 0, c = 0, d = 0;
#define TERM(at)                                                                                             \
    ((valued ? values[at] : 1.0f) *                                                                          \
     place_key(read_key(&keys[at]), w, sums->keys, &n, &places[at], heads, shared))
    for (; i + 4 <= n_keys; i += 4) {
        a += TERM(i);
        b += TERM(i + 1);
        c += TERM(i + 2);
        d += TERM(i + 3);
    }
    for (; i < n_keys; i++)
        a += TERM(i);
#undef TERM
    sums->n = n;
    return (a + b) + (c + d);
}

INLINE void place_each(const mst_row *rows, uint32_t n, const mst_linear *linear, mst_row_sums *sums,
                       float *out, bool shared)
{
    const mst_linear w = *linear; /* copies, which no store changes */
    mst_row_sums s = *sums;
    uint32_t *places = s.places;
    for (uint32_t i = 0; i < n; i++) {
        const mst_row *row = &rows[i];
        prefetch_ahead_rows(rows, i, n + w.after, &w, true);
        float m = prefix_margin(row, &w);
        if (row->n_dense < w.head)
            m += place_row(row, &w, &s, places, row->values != NULL, true, shared);
        else if (row->values != NULL)
            m += place_row(row, &w, &s, places, true, false, shared);
        else
            m += place_row(row, &w, &s, places, false, false, shared);
        out[i] = m;
        places += row->n_keys;
    }
    memset(s.sums + sums->n, 0, (s.n - sums->n) * sizeof *s.sums);
    sums->n = s.n;
}

MST_RACY static void place_rows(const mst_row *rows, uint32_t n, const mst_linear *w, mst_row_sums *sums,
                                float *out)
{
    if (w->shared != 0)
        place_each(rows, n, w, sums, out, true);
    else
        place_each(rows, n, w, sums, out, false);
}

static void sum_rows(const mst_row *rows, uint32_t n, const float *coefs, float scale, mst_row_sums *out)
{
    const uint32_t *places = out->places;
    float *sums = out->sums;
    for (uint32_t i = 0; i < n; i++) {
        const float *values = rows[i].values;
        uint32_t n_keys = rows[i].n_keys;
        float coef = coefs[i] * scale;
        if (values == NULL) {
#pragma GCC unroll 4
            for (uint32_t j = 0; j < n_keys; j++)
                sums[places[j]] += coef;
        } else {
            for (uint32_t j = 0; j < n_keys; j++)
                sums[places[j]] += coef * values[j];
        }
        places += n_keys;
    }
}

/* sums: of the keys, or NULL: in their scratch floats. */
INLINE void touched_each(mst_rule_one *one, const mst_rule *c, const mst_linear *linear,
                         const uint32_t *touched, const float *sums, size_t n)
{
    enum { AHEAD = 48 };
    const mst_linear w = *linear; /* a copy, which no store changes */
    row_lanes x;
    for (size_t i = 0; i < n; i += LANES) {
        if (i + AHEAD + LANES <= n)
#pragma GCC unroll 16
            for (uint32_t j = 0; j < LANES; j++)
                __builtin_prefetch(row_at(&w, touched[i + AHEAD + j]), 1);
        uint32_t part = n - i < LANES ? (uint32_t)(n - i) : LANES;
        if (part == LANES) {
            load_rows(&x, &w, touched + i, LANES);
            update_lanes(one, c, &x, sums != NULL ? load(sums + i) : x.at[SCRATCH]);
            store_rows(&x, &w, touched + i, LANES);
        } else {
            load_rows(&x, &w, touched + i, part);
            update_lanes(one, c, &x, sums != NULL ? load_part(sums + i, part) : x.at[SCRATCH]);
            store_rows(&x, &w, touched + i, part);
        }
    }
}

/* ---- one variant per rule ---- */

#define BY_RULE(kind, call)                                                                                  \
    switch (kind) {                                                                                          \
    case MST_RULE_SGD:                                                                                       \
        call(mst_rule_sgd, 0);                                                                               \
        break;                                                                                               \
    case MST_RULE_MOMENTUM:                                                                                  \
        call(mst_rule_momentum, 1);                                                                          \
        break;                                                                                               \
    case MST_RULE_ADAGRAD:                                                                                   \
        call(mst_rule_adagrad, 1);                                                                           \
        break;                                                                                               \
    case MST_RULE_ADAM:                                                                                      \
        call(mst_rule_adam, 2);                                                                              \
        break;                                                                                               \
    case MST_RULE_FTRL:                                                                                      \
        call(mst_rule_ftrl, 2);                                                                              \
        break;                                                                                               \
    }

MST_RACY static void train_rows(const mst_row *rows, uint32_t n, float pos_weight, const mst_linear *w,
                                const mst_rule *rules, float *out, const mst_key_map *map, uint32_t *scratch)
{
#define CALL(one, n_slots) train_each(one, n_slots, rows, n, pos_weight, w, rules, out, map, scratch)
    if (n > 0)
        BY_RULE(rules->kind, CALL)
#undef CALL
}

MST_RACY static void apply_touched(const mst_rule *rule, const mst_linear *w, const uint32_t *touched,
                                   size_t n){
#define CALL(one, n_slots) touched_each(one, rule, w, touched, NULL, n)
    BY_RULE(rule->kind, CALL)
#undef CALL
}

MST_RACY static void apply_sums(const mst_rule *rule, const mst_linear *w, const mst_row_sums *sums){
#define CALL(one, n_slots) touched_each(one, rule, w, sums->keys + 1, sums->sums + 1, sums->n - 1)
    BY_RULE(rule->kind, CALL)
#undef CALL
}

MST_RACY static void apply_dense(const mst_rule *rule, float *w, uint64_t state, const float *g, uint64_t n)
{
#define CALL(one, n_slots) rule_dense(one, n_slots, rule, w, state, g, n)
    BY_RULE(rule->kind, CALL)
#undef CALL
}
