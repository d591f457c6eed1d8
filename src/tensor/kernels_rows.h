/* Part of kernels_impl.h: linear models on a store by rows (mst_key_rows), with every update rule.
 *
 * A key's weight, state and scratch float are 16 bytes of one cache line. A row of 26 keys touches 26 lines;
 * at a latency of L and M misses in flight it takes 26 * L / M, however few instructions it needs, so lines
 * are prefetched some rows ahead, and the arithmetic of a row (square roots, divisions) is done in vectors on
 * copies in the first-level cache.
 *
 * Keys below `head` belong to the dense range: keys ascend, so a row has them in front. */
#include "tensor/rule_one.h"

#define ROW        MST_ROW_FIRST
#define SCRATCH    MST_ROW_SCRATCH /* sum of a step's gradient; +0.0: none yet */
#define BLOCK_KEYS 64

INLINE float *row_at(const mst_linear *w, uint32_t key)
{
    return w->sparse + (size_t)key * ROW;
}

INLINE void prefetch_rows(const mst_row *row, const mst_linear *w, bool write) /* see prefetch_weights */
{
    const uint32_t *keys = row->keys;
    uint32_t n = row->n_keys - row->n_near;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < n; i++)
        write ? __builtin_prefetch(row_at(w, keys[i]), 1) : __builtin_prefetch(row_at(w, keys[i]), 0);
}

INLINE void prefetch_ahead_rows(const mst_row *rows, uint32_t i, uint32_t n, const mst_linear *w, bool write)
{
    if (i + RECORDS_AHEAD < n)
        prefetch_record(&rows[i + RECORDS_AHEAD]);
    if (i + ROWS_AHEAD < n)
        prefetch_rows(&rows[i + ROWS_AHEAD], w, write);
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

/* The rows of up to BLOCK_KEYS keys, side by side in arrays. */
typedef struct row_block {
    _Alignas(64) float w[BLOCK_KEYS], a[BLOCK_KEYS], b[BLOCK_KEYS];
} row_block;

INLINE void block_load(row_block *block, uint32_t n_slots, uint32_t j, const float *at)
{
    block->w[j] = at[0];
    if (n_slots > 0)
        block->a[j] = at[1];
    if (n_slots > 1)
        block->b[j] = at[2];
}

INLINE void block_store(const row_block *block, uint32_t n_slots, uint32_t j, float *at)
{
    at[0] = block->w[j];
    if (n_slots > 0)
        at[1] = block->a[j];
    if (n_slots > 1)
        at[2] = block->b[j];
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

/* One row: margin, then the update; returns the margin. */
INLINE float train_row(mst_rule_one *one, uint32_t n_slots, const mst_row *row, float pos_weight,
                       const mst_linear *w, const mst_rule *rule, row_block *block)
{
    const uint32_t *keys = row->keys;
    uint32_t n_keys = row->n_keys, n_head, repeats = 0;
    float m = dense_margin(row, w, &n_head), sums[4] = {0};
    if (n_head == 0 && row->values == NULL && n_keys <= BLOCK_KEYS) {
        uint32_t before = UINT32_MAX;
#pragma GCC unroll 4
        for (uint32_t j = 0; j < n_keys; j++) {
            uint32_t key = keys[j];
            const float *at = row_at(w, key);
            repeats |= key == before;
            before = key;
            block_load(block, n_slots, j, at);
            sums[j % 4] += at[0];
        }
        repeats |= row->any_order && has_repeats(row, w);
    } else {
        repeats = 1;
        for (uint32_t j = n_head; j < n_keys; j++)
            sums[0] += value_of(row, j) * *row_at(w, keys[j]);
    }
    m += (sums[0] + sums[1]) + (sums[2] + sums[3]);
    float coef = logistic_coef(row, pos_weight, m);
    if (repeats) {
        train_keys(one, rule, row, n_head, coef, w);
    } else {
        float g[LANES];
        store(g, splat(coef));
        for (uint32_t j = 0; j < n_keys; j += LANES)
            rule_lanes(one, rule, block->w + j, block->a + j, block->b + j, g);
#pragma GCC unroll 4
        for (uint32_t j = 0; j < n_keys; j++)
            block_store(block, n_slots, j, row_at(w, keys[j]));
    }
    train_dense(one, n_slots, rule, row, n_head, coef, w);
    return m;
}

INLINE void train_each(mst_rule_one *one, uint32_t n_slots, const mst_row *rows, uint32_t n, float pos_weight,
                       const mst_linear *w, const mst_rule *rules, float *out, const mst_key_map *map,
                       uint32_t *scratch)
{
    enum { RING = MST_DESCEND_SCRATCH }; /* rows on their way: translated, with their weights prefetched */
    row_block block = {0};
    mst_row ring[RING];
    uint32_t longest = 0;
    for (uint32_t i = 0; map == NULL && i < n; i++) {
        prefetch_ahead_rows(rows, i, n, w, true);
        out[i] = train_row(one, n_slots, &rows[i], pos_weight, w, &rules[i], &block);
    }
    for (uint32_t i = 0; map != NULL && i < n; i++)
        longest = rows[i].n_keys > longest ? rows[i].n_keys : longest;
    for (uint32_t i = 0; map != NULL && i < n + ROWS_AHEAD; i++) {
        if (i < n) {
            uint32_t *keys = scratch + (size_t)(i % RING) * longest;
            if (i + RECORDS_AHEAD < n + w->after)
                prefetch_record(&rows[i + RECORDS_AHEAD]);
            translate_keys(&rows[i], map, keys, w->sparse, ROW);
            ring[i % RING] = rows[i];
            ring[i % RING].keys = keys;
        }
        if (i >= ROWS_AHEAD) {
            uint32_t at = i - ROWS_AHEAD;
            out[at] = train_row(one, n_slots, &ring[at % RING], pos_weight, w, &rules[at], &block);
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

MST_RACY static size_t collect_keys(const mst_row *rows, uint32_t n, const float *coefs, float scale,
                                    const mst_linear *w, uint32_t *touched)
{
    size_t n_touched = 0;
    const uint32_t shared = w->shared;
    for (uint32_t i = 0; i < n; i++) {
        const mst_row *row = &rows[i];
        float coef = coefs[i] * scale;
        prefetch_ahead_rows(rows, i, n, w, true);
        for (uint32_t j = head_keys(row, w->head); j < row->n_keys; j++) {
            uint32_t key = read_key(&row->keys[j]);
            float *sum = row_at(w, key) + SCRATCH, was = *sum;
            touched[n_touched] = key;
            n_touched += is_unmarked(was) | (key < shared);
            *sum = marked(was + coef * value_of(row, j));
        }
    }
    return n_touched;
}

/* shared: a key may be listed twice, and another thread may have taken its sum: those without one are left.
 */
INLINE void touched_each(mst_rule_one *one, uint32_t n_slots, const mst_rule *c, const mst_linear *w,
                         const uint32_t *touched, size_t n, bool shared)
{
    enum { AHEAD = 48 };
    row_block block = {0};
    float g[LANES] = {0}, *rows[LANES];
    for (size_t i = 0; i < n;) {
        uint32_t part = 0, most = n - i < LANES ? (uint32_t)(n - i) : LANES;
#pragma GCC unroll 4
        for (uint32_t j = 0; j < most; j++) {
            float *at = row_at(w, touched[i + j]);
            __builtin_prefetch(row_at(w, touched[i + j + AHEAD < n ? i + j + AHEAD : n - 1]), 1);
            uint32_t to = shared ? part : j;
            block_load(&block, n_slots, to, at);
            g[to] = at[SCRATCH];
            if (shared) {
                rows[to] = at;
                at[SCRATCH] = 0.0f;
                part += !is_unmarked(g[to]);
            }
        }
        rule_lanes(one, c, block.w, block.a, block.b, g);
        uint32_t updated = shared ? part : most;
#pragma GCC unroll 4
        for (uint32_t j = 0; j < updated; j++) {
            float *at = shared ? rows[j] : row_at(w, touched[i + j]);
            block_store(&block, n_slots, j, at);
            if (!shared)
                at[SCRATCH] = 0.0f;
        }
        i += most;
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
                                   size_t n)
{
#define CALL(one, n_slots) touched_each(one, n_slots, rule, w, touched, n, true)
    if (w->shared != 0) {
        BY_RULE(rule->kind, CALL)
        return;
    }
#undef CALL
#define CALL(one, n_slots) touched_each(one, n_slots, rule, w, touched, n, false)
    BY_RULE(rule->kind, CALL)
#undef CALL
}

MST_RACY static void apply_dense(const mst_rule *rule, float *w, uint64_t state, const float *g, uint64_t n)
{
#define CALL(one, n_slots) rule_dense(one, n_slots, rule, w, state, g, n)
    BY_RULE(rule->kind, CALL)
#undef CALL
}
