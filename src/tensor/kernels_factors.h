/* Part of kernels_impl.h: second-order models on the terms of a row (tensor/terms.h).
 *
 * The margins here have no bias. The parameters of a term may be in a store by rows, or side by side and not
 * aligned. */

/* ---- rows of parameters ---- */

/* 1 / (sqrt(s) + eps) for s >= 0, relative error about 2e-7 (6e-5 below 1e-34): estimates and one step of
 * Newton's method each. Square roots and divisions of vectors take most of the time of an update otherwise.
 * s counts as 1e-36 below that, and if it is not a number. */
INLINE vec inverse_root(vec s, float eps)
{
#if LANES == 16
    s = (vec)_mm512_max_ps((__m512)s, (__m512)splat(1e-36f));
    vec y = (vec)_mm512_rsqrt14_ps((__m512)s), root = s * y;
    root += splat(0.5f) * y * (s - root * root) + splat(eps);
    vec z = (vec)_mm512_rcp14_ps((__m512)root);
    return z * (splat(2.0f) - root * z);
#elif LANES == 8
    s = __builtin_ia32_maxps256(s, splat(1e-36f));
    vec y = __builtin_ia32_rsqrtps256(s), root = s * y;
    root += splat(0.5f) * y * (s - root * root) + splat(eps);
    vec z = __builtin_ia32_rcpps256(root);
    return z * (splat(2.0f) - root * z);
#else
    for (uint32_t i = 0; i < LANES; i++)
        s[i] = 1.0f / (sqrtf(s[i] > 1e-36f ? s[i] : 1e-36f) + eps);
    return s;
#endif
}

/* Adagrad without L1 on n (at most LANES) weights. */
INLINE void adagrad_lanes(const mst_rule *c, float *w, float *a, const float *g, uint32_t n)
{
    vec wv = n == LANES ? load(w) : load_part(w, n), s = n == LANES ? load(a) : load_part(a, n);
    vec d = (n == LANES ? load(g) : load_part(g, n)) + splat(c->l2) * wv;
    s += d * d;
    wv -= splat(c->lr) * inverse_root(s, c->eps) * d;
    if (n == LANES) {
        store(a, s);
        store(w, wv);
    } else {
        store_part(a, n, s);
        store_part(w, n, wv);
    }
}

/* The same on n weights that are followed by their state. */
INLINE void adagrad_row(const mst_rule *c, float *w, uint32_t n, const float *g)
{
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        adagrad_lanes(c, w + i, w + n + i, g + i, LANES);
    if (i < n)
        adagrad_lanes(c, w + i, w + n + i, g + i, n - i);
}

#define UPDATE_AHEAD 8 /* keys */

/* One key. */
INLINE void update_row(const mst_rule *rule, float *first, float *rest, uint32_t n_rest, const float *g)
{
    if (rule->by_row) {
        mst_rule_adagrad_row(rule, first, rest, first + 1, g, n_rest);
    } else if (rule->kind == MST_RULE_ADAGRAD && rule->l1 == 0.0f) {
        mst_rule_adagrad(rule, first, first + 1, NULL, 0, g[0]);
        adagrad_row(rule, rest, n_rest, g + 1);
    } else {
#define CALL(one, n_slots)                                                                                   \
    one(rule, first, first + 1, first + 2, 0, g[0]);                                                         \
    rule_dense(one, n_slots, rule, rest, n_rest, g + 1, n_rest)
        BY_RULE(rule->kind, CALL)
#undef CALL
    }
    first[MST_ROW_SCRATCH] = 0.0f;
}

MST_RACY static void update_rows(const mst_rule *rule, float *w, uint32_t stride, uint32_t width,
                                 const uint32_t *keys, const float *g, size_t n)
{
    mst_terms_ahead ahead = {.keys = keys, .n = (uint32_t)n, .by_rows = true, .at = w, .stride = stride};
    for (size_t i = 0; i < n; i++, g += width) {
        if (n > 64) /* those of a row are in the cache */
            mst_terms_prefetch(&ahead, (uint32_t)i + UPDATE_AHEAD, (uint32_t)i + UPDATE_AHEAD + 1);
        update_row(rule, w + mst_row_first(keys[i], stride), w + mst_row_rest(keys[i], stride), width - 1, g);
    }
}

/* ---- terms ---- */

static bool keys_distinct(const uint32_t *keys, uint32_t n)
{
    enum { MOST = 64 };
    uint32_t falls = 0;
    for (uint32_t i = 1; i < n; i++)
        falls |= keys[i] <= keys[i - 1];
    if (!falls || n > MOST)
        return !falls;
#if LANES == 16
    /* Vectors of keys, the last one filled up with numbers that differ. A vector is compared with its
     * rotations by 1 to 8 lanes and with each key of the vectors before it; a lane of `least` becomes 0 if
     * two are equal. */
    __m512i none = _mm512_set1_epi32(-1), least[2] = {none, none}, v;
    for (uint32_t from = 0; from < n; from += LANES) {
        uint32_t left = n - from;
        v = _mm512_mask_loadu_epi32(
            _mm512_set_epi32(-1, -2, -3, -4, -5, -6, -7, -8, -9, -10, -11, -12, -13, -14, -15, -16),
            (__mmask16)(left < LANES ? (1u << left) - 1 : 0xffff), keys + from);
#define COMPARE(l, other) least[l] = _mm512_min_epu32(least[l], _mm512_xor_si512(v, other))
#define ROTATED(r)        _mm512_alignr_epi32(v, v, r)
        COMPARE(0, ROTATED(1));
        COMPARE(1, ROTATED(2));
        COMPARE(0, ROTATED(3));
        COMPARE(1, ROTATED(4));
        COMPARE(0, ROTATED(5));
        COMPARE(1, ROTATED(6));
        COMPARE(0, ROTATED(7));
        COMPARE(1, ROTATED(8));
        for (uint32_t j = 0; j < from; j += 2) {
            COMPARE(0, _mm512_set1_epi32((int32_t)keys[j]));
            COMPARE(1, _mm512_set1_epi32((int32_t)keys[j + 1]));
        }
#undef ROTATED
#undef COMPARE
    }
    least[0] = _mm512_min_epu32(least[0], least[1]);
    return _mm512_test_epi32_mask(least[0], least[0]) == 0xffff;
#else
    int32_t copy[MOST + LANES];
    memcpy(copy, keys, n * sizeof *keys);
    memset(copy + n, 0xff, LANES * sizeof *copy);
    ivec equal = {};
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t j = i + 1; j < n; j += LANES)
            equal |= *(const ivec_u *)(copy + j) == copy[i] - (ivec){};
    int32_t any = 0;
    for (uint32_t i = 0; i < LANES; i++)
        any |= equal[i];
    return any == 0;
#endif
}

/* Adagrad without L1 on the linear weights of the terms, LANES of them side by side. */
INLINE void terms_linear_descend(const mst_terms *t, float coef, const mst_rule *rule)
{
    float w[LANES] = {0}, a[LANES] = {0}, g[LANES] = {0};
    for (uint32_t from = 0; from < t->n; from += LANES) {
        const mst_term *terms = t->terms + from;
        uint32_t n = t->n - from < LANES ? t->n - from : LANES;
        for (uint32_t i = 0; i < n; i++) {
            w[i] = terms[i].w[0];
            a[i] = terms[i].w[1];
            g[i] = coef * terms[i].x;
        }
        adagrad_lanes(rule, w, a, g, LANES);
        for (uint32_t i = 0; i < n; i++) {
            float *row = (float *)terms[i].w;
            row[0] = w[i];
            row[1] = a[i];
        }
    }
}

INLINE float terms_linear(const mst_terms *t)
{
    float a = 0.0f, b = 0.0f;
    uint32_t i = 0;
    for (; i + 2 <= t->n; i += 2) {
        a += t->terms[i].w[0] * t->terms[i].x;
        b += t->terms[i + 1].w[0] * t->terms[i + 1].x;
    }
    if (i < t->n)
        a += t->terms[i].w[0] * t->terms[i].x;
    return a + b;
}

/* The gradient of the linear weights. */
INLINE void terms_linear_gradient(const mst_terms *t, float coef)
{
    for (uint32_t i = 0; i < t->n; i++)
        t->terms[i].g[0] = coef * t->terms[i].x + (t->terms[i].add ? t->terms[i].g[0] : 0.0f);
}

/* ---- fm ---- */

/* Up to LANES factors of all terms: their sum, and the sum of the products of pairs. */
INLINE vec fm_chunk(const mst_terms *t, uint32_t at, uint32_t n, vec *pairs)
{
    vec sum = {}, products = {};
    for (uint32_t i = 0; i < t->n; i++) {
        const float *v = t->terms[i].v + at;
        vec xv = splat(t->terms[i].x) * (n == LANES ? load(v) : load_part(v, n));
        products += sum * xv;
        sum += xv;
    }
    *pairs = products;
    return sum;
}

/* sum_f sum_j (v_1f x_1 + ... + v_(j-1)f x_(j-1)) v_jf x_j, in O(n k): unlike 1/2 sum_f ((sum_j v_jf x_j)^2 -
 * sum_j v_jf^2 x_j^2), exactly 0 with one feature, whatever its value. */
MST_RACY static float fm_margin(const mst_terms *t, uint32_t k, float *sums)
{
    vec total = {};
    for (uint32_t at = 0; at < k; at += LANES) {
        vec pairs, sum;
        if (k - at >= LANES)
            sum = fm_chunk(t, at, LANES, &pairs);
        else
            sum = fm_chunk(t, at, k - at, &pairs);
        store(sums + at, sum);
        total += pairs;
    }
    return terms_linear(t) + sum_lanes(total);
}

/* n floats of a term's gradient: added to those that are there, or stored. */
INLINE void put_gradient(float *g, uint32_t n, vec v, bool add)
{
    if (n == LANES)
        store(g, add ? load(g) + v : v);
    else
        store_part(g, n, add ? load_part(g, n) + v : v);
}

INLINE void fm_chunk_gradient(const mst_terms *t, uint32_t at, uint32_t n, const mst_term_rates *r, vec sum)
{
    for (uint32_t i = 0; i < t->n; i++) {
        const float *at_v = t->terms[i].v + at;
        float x = t->terms[i].x;
        vec v = n == LANES ? load(at_v) : load_part(at_v, n);
        vec g = splat(r->coef * x) * (sum - rounded(splat(x) * v)) + splat(r->l2) * v;
        put_gradient(t->terms[i].g + 1 + at, n, g, t->terms[i].add);
    }
}

MST_RACY static void fm_gradient(const mst_terms *t, uint32_t k, const mst_term_rates *r, const float *sums)
{
    terms_linear_gradient(t, r->coef);
    for (uint32_t at = 0; at < k; at += LANES) {
        if (k - at >= LANES)
            fm_chunk_gradient(t, at, LANES, r, load(sums + at));
        else
            fm_chunk_gradient(t, at, k - at, r, load(sums + at));
    }
}

/* ---- ffm ---- */

typedef float quad __attribute__((vector_size(16)));
typedef float quad_u __attribute__((vector_size(16), aligned(4), may_alias));

/* a . b over k factors */
INLINE float ffm_dot(const float *a, const float *b, uint32_t k)
{
    float sum = 0.0f;
    uint32_t c = 0;
    if (k >= 4) {
        quad q = {};
        for (; c + 4 <= k; c += 4)
            q += *(const quad_u *)(a + c) * *(const quad_u *)(b + c);
        q += __builtin_shufflevector(q, q, 2, 3, 0, 1);
        sum = q[0] + q[1];
    }
    for (; c < k; c++)
        sum += a[c] * b[c];
    return sum;
}

/* Four factors of every pair of term i, summed. */
INLINE quad ffm_term_quads(const mst_terms *t, uint32_t i, uint32_t k)
{
    const mst_term *a = &t->terms[i];
    quad sum = {};
    for (uint32_t j = i + 1; j < t->n; j++) {
        const mst_term *b = &t->terms[j];
        const float *v = a->v + (size_t)b->field * k, *u = b->v + (size_t)a->field * k;
        float x = b->x;
        quad q = *(const quad_u *)v * *(const quad_u *)u;
        for (uint32_t c = 4; c < k; c += 4)
            q += *(const quad_u *)(v + c) * *(const quad_u *)(u + c);
        sum += (x - (quad){}) * q;
    }
    return sum * (a->x - (quad){});
}

/* sum_{i<j} (v_i,f(j) . v_j,f(i)) x_i x_j */
MST_RACY static float ffm_margin(const mst_terms *t, uint32_t k)
{
    float sum = 0.0f;
    if (k % 4 == 0) {
        quad q = {};
        for (uint32_t i = 0; i < t->n; i++)
            q += k == 4 ? ffm_term_quads(t, i, 4) : ffm_term_quads(t, i, k);
        q += __builtin_shufflevector(q, q, 2, 3, 0, 1);
        sum = q[0] + q[1];
    } else {
        for (uint32_t i = 0; i < t->n; i++)
            for (uint32_t j = i + 1; j < t->n; j++) {
                const mst_term *a = &t->terms[i], *b = &t->terms[j];
                sum += a->x * b->x * ffm_dot(a->v + (size_t)b->field * k, b->v + (size_t)a->field * k, k);
            }
    }
    return terms_linear(t) + sum;
}

/* Adds the gradient of term i: of its factors for the fields of the other terms. */
INLINE void ffm_term_gradient(const mst_terms *t, uint32_t i, uint32_t k, const mst_term_rates *r)
{
    const mst_term *a = &t->terms[i];
    float scale = r->coef * a->x;
    for (uint32_t j = 0; j < t->n; j++) {
        const mst_term *b = &t->terms[j];
        const float *v = a->v + (size_t)b->field * k, *u = b->v + (size_t)a->field * k;
        float *g = a->g + 1 + (size_t)b->field * k;
        if (j == i)
            continue;
        float c = scale * b->x;
        uint32_t f = 0;
        for (; f + 4 <= k; f += 4)
            *(quad_u *)(g + f) +=
                (c - (quad){}) * *(const quad_u *)(u + f) + (r->l2 - (quad){}) * *(const quad_u *)(v + f);
        for (; f < k; f++)
            g[f] += c * u[f] + r->l2 * v[f];
    }
}

MST_RACY static void ffm_gradient(const mst_terms *t, uint32_t k, uint32_t n_fields, const mst_term_rates *r)
{
    terms_linear_gradient(t, r->coef);
    for (uint32_t i = 0; i < t->n; i++)
        if (!t->terms[i].add)
            memset(t->terms[i].g + 1, 0, (size_t)n_fields * k * sizeof(float));
    for (uint32_t i = 0; i < t->n; i++) {
        if (k == 4)
            ffm_term_gradient(t, i, 4, r);
        else
            ffm_term_gradient(t, i, k, r);
    }
}

/* Copies the factors u_j of the terms after i for its field to `room`, their state to room + step, and,
 * unless `same`, the products of rate and values to room + 2 * step. */
INLINE void ffm_collect(const mst_terms *t, uint32_t i, uint32_t k, uint32_t width, float coef, bool same,
                        float *room, size_t step)
{
    const mst_term *terms = t->terms;
    uint32_t n = t->n;
    size_t field = (size_t)terms[i].field * k;
    for (uint32_t j = i + 1; j < n; j++) {
        const float *u = terms[j].v + field;
        float c = coef * terms[i].x * terms[j].x;
        for (uint32_t f = 0; f < k; f += 4, room += 4) {
            *(quad_u *)room = *(const quad_u *)(u + f);
            *(quad_u *)(room + step) = *(const quad_u *)(u + width + f);
            if (!same)
                *(quad_u *)(room + 2 * step) = c - (quad){};
        }
    }
    for (size_t f = 0; f < (same ? 2u : 3u); f++) /* the last vector is computed whole */
        memset(room + f * step, 0, LANES * sizeof *room);
}

INLINE void ffm_put_back(const mst_terms *t, uint32_t i, uint32_t k, uint32_t width, const float *room,
                         size_t step)
{
    const mst_term *terms = t->terms;
    uint32_t n = t->n;
    size_t field = (size_t)terms[i].field * k;
    for (uint32_t j = i + 1; j < n; j++) {
        float *u = (float *)terms[j].v + field;
        for (uint32_t f = 0; f < k; f += 4, room += 4) {
            *(quad_u *)(u + f) = *(const quad_u *)room;
            *(quad_u *)(u + width + f) = *(const quad_u *)(room + step);
        }
    }
}

/* Gradients and Adagrad of n factors from v on, of one term for consecutive fields, and of their partners in
 * `room`. */
INLINE void ffm_descend_pairs(float *v, uint32_t width, uint32_t n, float coef, bool same, float l2,
                              const mst_rule *rule, float *room, size_t step)
{
    for (uint32_t l = 0; l < n; l += LANES) {
        bool part = n - l < LANES;
        float *s = v + width + l, *u = room + l;
        vec x = part ? load_part(v + l, n - l) : load(v + l), y = load(u);
        vec c = same ? splat(coef) : load(u + 2 * step);
        vec gx = c * y + splat(l2) * x, gy = c * x + splat(l2) * y;
        vec sx = (part ? load_part(s, n - l) : load(s)) + gx * gx, sy = load(u + step) + gy * gy;
        x -= splat(rule->lr) * inverse_root(sx, rule->eps) * gx;
        y -= splat(rule->lr) * inverse_root(sy, rule->eps) * gy;
        store(u, y);
        store(u + step, sy);
        if (part) {
            store_part(v + l, n - l, x);
            store_part(s, n - l, sx);
        } else {
            store(v + l, x);
            store(s, sx);
        }
    }
}

MST_RACY static void ffm_descend(const mst_terms *t, uint32_t k, uint32_t n_fields, const mst_term_rates *r,
                                 const mst_rule *rule, float *room, const mst_terms_ahead *ahead)
{
    uint32_t width = n_fields * k; /* of the factors */
    size_t step = (size_t)k * n_fields + MST_LANES_MAX;
    bool same = true; /* values */
    for (uint32_t i = 1; i < t->n; i++)
        same &= t->terms[i].x == t->terms[0].x;
    terms_linear_descend(t, r->coef, rule);
    uint32_t fetched = 0;
    for (uint32_t i = 0; i + 1 < t->n; i++) {
        uint64_t left = t->n - 1 - i, pairs = left * (left - 1), all = (uint64_t)t->n * (t->n - 1);
        uint32_t to = ahead->n - (uint32_t)(ahead->n * pairs / all); /* in step with the pairs done */
        mst_terms_prefetch(ahead, fetched, to);
        fetched = to;
        float *v = (float *)t->terms[i].v + (size_t)t->terms[i + 1].field * k;
        float c = r->coef * t->terms[i].x * t->terms[i].x;
        uint32_t n = (t->n - 1 - i) * k;
        if (same && k == 4) {
            ffm_collect(t, i, 4, width, r->coef, true, room, step);
            ffm_descend_pairs(v, width, n, c, true, r->l2, rule, room, step);
            ffm_put_back(t, i, 4, width, room, step);
        } else {
            ffm_collect(t, i, k, width, r->coef, false, room, step);
            ffm_descend_pairs(v, width, n, c, false, r->l2, rule, room, step);
            ffm_put_back(t, i, k, width, room, step);
        }
    }
    mst_terms_prefetch(ahead, fetched, ahead->n);
}

/* ---- fwfm ---- */

/* y (n, a multiple of LANES) += a * x */
INLINE void add_scaled_row(float *y, float a, const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += LANES)
        store(y + i, load(y + i) + splat(a) * load(x + i));
}

/* sums: (k x stride) the sum of v_i x_i of each field, transposed; weighted: (k x stride) R sums, without the
 * diagonal of R; within: (stride) the sum of the products of pairs of each field. */
MST_RACY static float fwfm_margin(const mst_terms *t, uint32_t k, const float *pairs, const float *diagonal,
                                  uint32_t stride, float *sums, float *weighted, float *within)
{
    uint32_t n_fields = 0;
    vec total = {};
    memset(sums, 0, (size_t)k * stride * sizeof *sums);
    memset(weighted, 0, (size_t)k * stride * sizeof *weighted);
    memset(within, 0, stride * sizeof *within);
    for (uint32_t i = 0; i < t->n; i++) {
        const mst_term *a = &t->terms[i];
        float products = 0.0f;
        n_fields = a->field >= n_fields ? a->field + 1u : n_fields;
        for (uint32_t c = 0; c < k; c++) {
            float v = a->v[c] * a->x, *sum = sums + (size_t)c * stride + a->field;
            products += *sum * v;
            *sum += v;
        }
        within[a->field] += products;
    }
    for (uint32_t f = 0; f < n_fields; f++)
        for (uint32_t c = 0; c < k; c++)
            add_scaled_row(weighted + (size_t)c * stride, sums[(size_t)c * stride + f],
                           pairs + (size_t)f * stride, stride);
    for (size_t i = 0; i < (size_t)k * stride; i += LANES)
        total += load(sums + i) * load(weighted + i);
    float same = 0.0f;
    for (uint32_t f = 0; f < n_fields; f++)
        same += diagonal[f] * within[f];
    return terms_linear(t) + 0.5f * sum_lanes(total) + same;
}

/* pair_gradient (stride x stride): the upper triangle and the diagonal count; others get numbers too. */
MST_RACY static void fwfm_gradient(const mst_terms *t, uint32_t k, const float *diagonal, uint32_t stride,
                                   const mst_term_rates *r, const float *sums, const float *weighted,
                                   const float *within, float *pair_gradient)
{
    float scale = r->coef;
    uint32_t n_fields = 0;
    terms_linear_gradient(t, r->coef);
    for (uint32_t i = 0; i < t->n; i++) {
        const mst_term *a = &t->terms[i];
        float x = a->x, c = scale * x, same = diagonal[a->field];
        n_fields = a->field >= n_fields ? a->field + 1u : n_fields;
        for (uint32_t f = 0; f < k; f++) {
            size_t at = (size_t)f * stride + a->field;
            float others = sums[at] - rounded(a->v[f] * x); /* of the field */
            float g = c * (weighted[at] + same * others) + r->l2 * a->v[f];
            a->g[1 + f] = a->add ? a->g[1 + f] + g : g;
        }
    }
    for (uint32_t f = 0; f < n_fields; f++) {
        float *row = pair_gradient + (size_t)f * stride, own = row[f];
        for (uint32_t c = 0; c < k; c++)
            add_scaled_row(row, scale * sums[(size_t)c * stride + f], sums + (size_t)c * stride, stride);
        row[f] = own + scale * within[f];
    }
}
