/* Part of kernels_impl.h: factorization machines on rows of keys without values, in place on a store by rows.
 * Other rows take the way of terms (kernels_factors.h).
 *
 * A key of 16 factors with Adagrad has three cache lines: one of its linear weight and state, which it shares
 * with neighbours, one of factors and one of their state. A row of 39 keys touches up to 117 lines; they are
 * prefetched some rows ahead, and vectors never cross a line. Of a batch, the gradient of the factors v of a
 * key is
 *
 *   sum over rows of c x (s - x v) = (sum of c x s) - v (sum of c x^2)
 *
 * with the coefficient c and the sum s of a row, so that a row adds its s to one vector of the batch's sums
 * for each of its keys, and reads v only once.
 *
 * The pairs of a row are the sum of (v_1 + ... + v_(j-1)) v_j, without the difference of two squares, which
 * is not 0 for a row of one feature and overflows early. The gradient of factors of such a row is exactly 0,
 * since Adagrad turns any other number into a whole step. */

#define FM_CHUNKS (MST_FM_FACTORS / LANES)
#define FM_AHEAD  2 /* rows */

INLINE float *fm_first(const mst_fm_weights *fm, uint32_t key)
{
    return fm->keys + mst_row_first(key, fm->stride);
}

INLINE float *fm_rest(const mst_fm_weights *fm, uint32_t key)
{
    return fm->keys + mst_row_rest(key, fm->stride);
}

INLINE vec fm_load(const float *v, uint32_t k, uint32_t chunk)
{
    uint32_t left = k - chunk * LANES;
    return left >= LANES ? load(v + chunk * LANES) : load_part(v + chunk * LANES, left);
}

INLINE void fm_store(float *v, uint32_t k, uint32_t chunk, vec value)
{
    uint32_t left = k - chunk * LANES;
    if (left >= LANES)
        store(v + chunk * LANES, value);
    else
        store_part(v + chunk * LANES, left, value);
}

INLINE uint32_t fm_chunks(uint32_t k)
{
    return (k + LANES - 1) / LANES;
}

/* A key before it is used: its factors and their state are `bytes` at `rest`. */
INLINE void fm_prefetch_key(const float *first, const float *rest, size_t bytes)
{
    const char *at = (const char *)rest;
    __builtin_prefetch(first, 1);
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(at + i, 1);
    if (bytes % 64 != 0)
        __builtin_prefetch(at + bytes - 1, 1);
}

/* A row of keys from number j on. */
INLINE void fm_prefetch(const mst_fm_weights *fm, uint32_t k, uint32_t n_state, const uint32_t *keys,
                        uint32_t j, uint32_t n)
{
    for (; j < n; j++)
        fm_prefetch_key(fm_first(fm, keys[j]), fm_rest(fm, keys[j]),
                        (size_t)k * (1 + n_state) * sizeof(float));
}

/* The value of all keys of a row without values. */
INLINE float fm_value(const mst_fm_weights *fm, const mst_row *row)
{
    return fm->norm && row->n_keys > 0 ? 1.0f / sqrtf((float)row->n_keys) : 1.0f;
}

/* ---- batch 1 ---- */

INLINE bool fm_takes(const mst_row *row)
{
    return row->n_dense == 0 && row->n_keys <= MST_FM_KEYS && keys_distinct(row->keys, row->n_keys);
}

/* Where the parameters of a row's keys are: found once, when the row is prefetched. */
typedef struct fm_places {
    float *first[MST_FM_KEYS], *rest[MST_FM_KEYS]; /* linear weights; factors */
    uint32_t n;                                    /* 0 if the row has more keys */
} fm_places;

/* Parameters of a row, side by side: linear weights, their state and values in vectors. */
typedef struct fm_block {
    _Alignas(64) float w[MST_FM_KEYS + LANES], a[MST_FM_KEYS + LANES], x[MST_FM_KEYS + LANES];
} fm_block;

INLINE void fm_find_places(const mst_fm_weights *fm, const mst_row *row, fm_places *restrict places)
{
    uint32_t n = row->n_keys <= MST_FM_KEYS ? row->n_keys : 0, stride = fm->stride;
    const uint32_t *keys = row->keys;
    float *at = fm->keys;
    for (uint32_t j = 0; j < n; j++) {
        places->first[j] = at + mst_row_first(keys[j], stride);
        places->rest[j] = at + mst_row_rest(keys[j], stride);
    }
    places->n = n;
}

INLINE void fm_prefetch_place(const fm_places *places, uint32_t k, uint32_t j)
{
    fm_prefetch_key(places->first[j], places->rest[j], (size_t)k * 2 * sizeof(float));
}

/* Values of a row, scaled if rows are, with zeros up to a whole vector. */
INLINE void fm_values(const mst_fm_weights *fm, const mst_row *row, float *x)
{
    uint32_t n = row->n_keys;
    vec squares = {};
    store(x + n / LANES * LANES, (vec){});
    memcpy(x, row->values, n * sizeof *x);
    for (uint32_t j = 0; fm->norm && j < n; j += LANES)
        squares += load(x + j) * load(x + j);
    float sum = sum_lanes(squares), by = sum > 0.0f ? 1.0f / sqrtf(sum) : 1.0f;
    for (uint32_t j = 0; j < n; j += LANES)
        store(x + j, splat(by) * load(x + j));
}

/* Margin, then Adagrad; prefetches a later row. Returns the margin. Without values, x is the value of all
 * keys. */
INLINE float fm_train_row(const mst_row *row, const mst_fm_weights *fm, uint32_t k, bool valued,
                          const mst_rule *rule, const fm_places *places, const fm_places *ahead)
{
    uint32_t n = row->n_keys, chunks = fm_chunks(k), n_ahead = ahead->n;
    float x = valued ? 1.0f : fm_value(fm, row);
    fm_block b;
    vec sums[FM_CHUNKS], pairs[FM_CHUNKS], total = {};
    for (uint32_t c = 0; c < chunks; c++)
        sums[c] = pairs[c] = (vec){};
    store(b.w + n / LANES * LANES, (vec){});
    store(b.a + n / LANES * LANES, (vec){});
    if (valued)
        fm_values(fm, row, b.x);
    for (uint32_t j = 0; j < n; j++) {
        b.w[j] = places->first[j][0];
        b.a[j] = places->first[j][1];
        for (uint32_t c = 0; c < chunks; c++) {
            vec v = fm_load(places->rest[j], k, c);
            if (valued)
                v *= splat(b.x[j]);
            pairs[c] += sums[c] * v;
            sums[c] += v;
        }
    }
    for (uint32_t c = 0; c < chunks; c++)
        total += pairs[c];
    total *= splat(x * x);
    for (uint32_t j = 0; j < n; j += LANES)
        total += (valued ? load(b.x + j) : splat(x)) * load(b.w + j);
    float m = (fm->bias != NULL ? *fm->bias : 0.0f) + sum_lanes(total);
    float coef = logistic_coef(row, fm->pos_weight, m), l2 = fm->l2 * row->weight + rule->l2;
    if (fm->bias != NULL)
        mst_rule_adagrad(rule, fm->bias, fm->bias + fm->state, NULL, 0, coef);
    for (uint32_t j = 0; j < n; j += LANES) {
        float g[LANES];
        store(g, splat(coef) * (valued ? load(b.x + j) : splat(x)));
        adagrad_lanes(rule, b.w + j, b.a + j, g, LANES);
    }
    vec by = splat(coef * x * x), lr = splat(rule->lr);
    float eps = rule->eps;
    for (uint32_t j = 0; j < n; j++) {
        float *first = places->first[j], *rest = places->rest[j], *state = rest + k;
        if (j < n_ahead)
            fm_prefetch_place(ahead, k, j);
        first[0] = b.w[j];
        first[1] = b.a[j];
        if (valued)
            by = splat(coef * b.x[j]);
        for (uint32_t c = 0; c < chunks; c++) {
            vec v = fm_load(rest, k, c), own = valued ? rounded(splat(b.x[j]) * v) : v;
            vec d = by * (sums[c] - own) + splat(l2) * v;
            vec s = fm_load(state, k, c) + d * d;
            fm_store(state, k, c, s);
            fm_store(rest, k, c, v - lr * inverse_root(s, eps) * d);
        }
    }
    for (uint32_t j = n; j < n_ahead; j++)
        fm_prefetch_place(ahead, k, j);
    return m;
}

INLINE uint32_t fm_train_each(const mst_row *rows, uint32_t n, const mst_fm_weights *fm, uint32_t k,
                              const mst_rule *rules, float *margins)
{
    fm_places places[FM_AHEAD + 1];
    for (uint32_t i = 0; i < n && i < FM_AHEAD; i++) {
        fm_find_places(fm, &rows[i], &places[i]);
        for (uint32_t j = 0; j < places[i].n; j++)
            fm_prefetch_place(&places[i], k, j);
    }
    for (uint32_t i = 0; i < n; i++) {
        fm_places *own = &places[i % (FM_AHEAD + 1)], *ahead = &places[(i + FM_AHEAD) % (FM_AHEAD + 1)];
        if (!fm_takes(&rows[i]))
            return i;
        if (i + RECORDS_AHEAD < n)
            prefetch_record(&rows[i + RECORDS_AHEAD]);
        ahead->n = 0;
        if (i + FM_AHEAD < n)
            fm_find_places(fm, &rows[i + FM_AHEAD], ahead);
        margins[i] = rows[i].values != NULL ? fm_train_row(&rows[i], fm, k, true, &rules[i], own, ahead)
                                            : fm_train_row(&rows[i], fm, k, false, &rules[i], own, ahead);
    }
    return n;
}

/* The usual numbers of factors are constants. */
#define FM_BY_FACTORS(k, call)                                                                               \
    switch (k) {                                                                                             \
    case 8:                                                                                                  \
        call(8);                                                                                             \
        break;                                                                                               \
    case 16:                                                                                                 \
        call(16);                                                                                            \
        break;                                                                                               \
    default:                                                                                                 \
        call(k);                                                                                             \
    }

MST_RACY static uint32_t fm_train_rows(const mst_row *rows, uint32_t n, const mst_fm_weights *fm,
                                       const mst_rule *rules, float *margins)
{
    uint32_t done = 0;
#define CALL(k) done = fm_train_each(rows, n, fm, k, rules, margins)
    FM_BY_FACTORS(fm->k, CALL)
#undef CALL
    return done;
}

/* ---- batches ---- */

static bool fm_batch_takes(const mst_row *rows, uint32_t n)
{
    uint32_t bad = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t *keys = rows[i].keys;
        bad |= rows[i].n_dense != 0 || rows[i].values != NULL;
        for (uint32_t j = 1; j < rows[i].n_keys; j++) /* they count as one */
            bad |= keys[j] == keys[j - 1];
    }
    return !bad;
}

/* The number of a key among those of the step. Its scratch float has the number if this step has set it;
 * other numbers are left over. A branch, not a select: the next key must not wait for the line of this one.
 */
INLINE uint32_t fm_touch(mst_fm_sums *sums, float *scratch, uint32_t key)
{
    uint32_t number, *keys = sums->keys;
    memcpy(&number, scratch, sizeof number);
    if (number < sums->n && keys[number] == key)
        return number;
    number = sums->n++;
    keys[number] = key;
    memcpy(scratch, &number, sizeof number);
    return number;
}

INLINE void fm_forward_each(const mst_row *rows, uint32_t n, uint32_t n_after, const mst_fm_weights *fm,
                            uint32_t k, mst_fm_sums *sums, float *margins)
{
    uint32_t chunks = fm_chunks(k);
    uint32_t *numbers = sums->numbers;
    float *row_sums = sums->rows;
    for (uint32_t i = 0; i < n; i++, row_sums += sums->stride) {
        const mst_row *row = &rows[i];
        const mst_row *ahead = i + FM_AHEAD < n + n_after ? &rows[i + FM_AHEAD] : NULL;
        uint32_t n_ahead = ahead != NULL ? ahead->n_keys : 0;
        float x = fm_value(fm, row), linear[2] = {0};
        vec sum[FM_CHUNKS], pairs[FM_CHUNKS], total = {};
        for (uint32_t c = 0; c < chunks; c++)
            sum[c] = pairs[c] = (vec){};
        for (uint32_t j = 0; j < row->n_keys; j++) {
            float *first = fm_first(fm, row->keys[j]);
            const float *v = fm_rest(fm, row->keys[j]);
            fm_prefetch(fm, k, 0, ahead != NULL ? ahead->keys : NULL, j, j < n_ahead ? j + 1 : 0);
            *numbers++ = fm_touch(sums, first + MST_ROW_SCRATCH, row->keys[j]);
            linear[j % 2] += first[0];
            for (uint32_t c = 0; c < chunks; c++) {
                vec u = fm_load(v, k, c);
                pairs[c] += sum[c] * u;
                sum[c] += u;
            }
        }
        fm_prefetch(fm, k, 0, ahead != NULL ? ahead->keys : NULL, row->n_keys, n_ahead);
        for (uint32_t c = 0; c < chunks; c++) {
            total += pairs[c];
            store(row_sums + c * LANES, splat(x) * sum[c]);
        }
        margins[i] =
            (fm->bias != NULL ? *fm->bias : 0.0f) + x * (linear[0] + linear[1]) + x * x * sum_lanes(total);
    }
}

MST_RACY static void fm_forward_rows(const mst_row *rows, uint32_t n, uint32_t n_after,
                                     const mst_fm_weights *fm, mst_fm_sums *sums, float *margins){
#define CALL(k) fm_forward_each(rows, n, n_after, fm, k, sums, margins)
    FM_BY_FACTORS(fm->k, CALL)
#undef CALL
}

INLINE void fm_add_each(const mst_row *rows, uint32_t n, const mst_fm_weights *fm, uint32_t k,
                        const float *coefs, float scale, mst_fm_sums *sums)
{
    uint32_t chunks = fm_chunks(k);
    const uint32_t *numbers = sums->numbers;
    const float *row_sums = sums->rows;
    for (uint32_t i = 0; i < n; i++, row_sums += sums->stride) {
        float x = fm_value(fm, &rows[i]), c = coefs[i] * scale * x, pairs = rows[i].n_keys > 1 ? c : 0.0f;
        float own = pairs * x - fm->l2 * scale * rows[i].weight;
        vec add[FM_CHUNKS];
        for (uint32_t l = 0; l < chunks; l++)
            add[l] = splat(pairs) * load(row_sums + l * LANES);
        for (uint32_t j = 0; j < rows[i].n_keys; j++) {
            uint32_t number = *numbers++;
            float *g = sums->g + (size_t)number * sums->stride, *scalars = sums->scalars + 2 * (size_t)number;
            scalars[0] += c;
            scalars[1] += own;
            for (uint32_t l = 0; l < chunks; l++)
                store(g + l * LANES, load(g + l * LANES) + add[l]);
        }
    }
}

static void fm_add_rows(const mst_row *rows, uint32_t n, const mst_fm_weights *fm, const float *coefs,
                        float scale, mst_fm_sums *sums){
#define CALL(k) fm_add_each(rows, n, fm, k, coefs, scale, sums)
    FM_BY_FACTORS(fm->k, CALL)
#undef CALL
}

INLINE void fm_apply_each(const mst_rule *rule, const mst_fm_weights *fm, uint32_t k, mst_fm_sums *sums)
{
    enum { AHEAD = 32 }; /* keys */
    uint32_t chunks = fm_chunks(k), n_state = rule->by_row ? 0 : mst_rule_slots(rule->kind);
    bool fast = rule->kind == MST_RULE_ADAGRAD && rule->l1 == 0.0f && !rule->by_row;
    for (uint32_t i = 0; i < sums->n; i++) {
        uint32_t key = sums->keys[i];
        float *first = fm_first(fm, key), *rest = fm_rest(fm, key);
        float g[1 + MST_FM_FACTORS + LANES];
        float *sum = sums->g + (size_t)i * sums->stride, *scalars = sums->scalars + 2 * (size_t)i;
        vec own = splat(scalars[1]);
        if (i + AHEAD < sums->n)
            fm_prefetch(fm, k, n_state, sums->keys, i + AHEAD, i + AHEAD + 1);
        for (uint32_t c = 0; c < chunks; c++) {
            vec v = fm_load(rest, k, c), d = load(sum + c * LANES) - own * v;
            store(sum + c * LANES, (vec){});
            if (fast) {
                float *state = rest + k;
                d += splat(rule->l2) * v;
                vec s = fm_load(state, k, c) + d * d;
                fm_store(state, k, c, s);
                fm_store(rest, k, c, v - splat(rule->lr) * inverse_root(s, rule->eps) * d);
            } else {
                store(g + 1 + c * LANES, d);
            }
        }
        if (fast) {
            mst_rule_adagrad(rule, first, first + 1, NULL, 0, scalars[0]);
            first[MST_ROW_SCRATCH] = 0.0f;
        } else {
            g[0] = scalars[0];
            update_row(rule, first, rest, k, g);
        }
        scalars[0] = scalars[1] = 0.0f;
    }
    sums->n = 0;
}

MST_RACY static void fm_apply_sums(const mst_rule *rule, const mst_fm_weights *fm, mst_fm_sums *sums){
#define CALL(k) fm_apply_each(rule, fm, k, sums)
    FM_BY_FACTORS(fm->k, CALL)
#undef CALL
}

/* ---- vectors ---- */

INLINE void fm_margins_each(const mst_row *rows, uint32_t n, const mst_fm_weights *fm, uint32_t k,
                            float *sums, uint32_t stride, float *margins)
{
    uint32_t chunks = fm_chunks(k);
    for (uint32_t i = 0; i < n; i++, sums += stride) {
        float x = fm_value(fm, &rows[i]), linear[2] = {0};
        vec sum[FM_CHUNKS], pairs[FM_CHUNKS], total = {};
        for (uint32_t c = 0; c < chunks; c++)
            sum[c] = pairs[c] = (vec){};
        for (uint32_t j = 0; j < rows[i].n_keys; j++) {
            const float *w = fm->keys + (size_t)rows[i].keys[j] * (1 + k);
            linear[j % 2] += w[0];
            for (uint32_t c = 0; c < chunks; c++) {
                vec v = fm_load(w + 1, k, c);
                pairs[c] += sum[c] * v;
                sum[c] += v;
            }
        }
        for (uint32_t c = 0; c < chunks; c++) {
            total += pairs[c];
            store(sums + c * LANES, splat(x) * sum[c]);
        }
        margins[i] =
            (fm->bias != NULL ? *fm->bias : 0.0f) + x * (linear[0] + linear[1]) + x * x * sum_lanes(total);
    }
}

static void fm_margins(const mst_row *rows, uint32_t n, const mst_fm_weights *fm, float *sums,
                       uint32_t stride, float *margins){
#define CALL(k) fm_margins_each(rows, n, fm, k, sums, stride, margins)
    FM_BY_FACTORS(fm->k, CALL)
#undef CALL
}

INLINE
    void fm_add_gradient_each(const mst_row *rows, uint32_t n, const mst_fm_weights *fm, uint32_t k,
                              const float *coefs, float scale, const float *sums, uint32_t stride, float *g)
{
    uint32_t chunks = fm_chunks(k);
    for (uint32_t i = 0; i < n; i++, sums += stride) {
        float x = fm_value(fm, &rows[i]), cx = coefs[i] * scale * x, pairs = rows[i].n_keys > 1 ? cx : 0.0f;
        vec own = splat(pairs * x - fm->l2 * scale * rows[i].weight), add[FM_CHUNKS];
        for (uint32_t c = 0; c < chunks; c++)
            add[c] = splat(pairs) * load(sums + c * LANES);
        for (uint32_t j = 0; j < rows[i].n_keys; j++) {
            size_t at = (size_t)rows[i].keys[j] * (1 + k);
            const float *v = fm->keys + at + 1;
            float *to = g + at;
            to[0] += cx;
            for (uint32_t c = 0; c < chunks; c++)
                fm_store(to + 1, k, c, fm_load(to + 1, k, c) + (add[c] - own * fm_load(v, k, c)));
        }
    }
}

static void fm_add_gradient(const mst_row *rows, uint32_t n, const mst_fm_weights *fm, const float *coefs,
                            float scale, const float *sums, uint32_t stride, float *g)
{
#define CALL(k) fm_add_gradient_each(rows, n, fm, k, coefs, scale, sums, stride, g)
    FM_BY_FACTORS(fm->k, CALL)
#undef CALL
}
