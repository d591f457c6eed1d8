/* Every kernel of every instruction set this machine has, against plain double-precision references. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "random_rows.h"
#include "tensor/kernels.h"

#define MAX_DENSE 70
#define FEATURES  120

/* Runs the body with `k` set to the kernels of each instruction set. */
#define EACH_ISA(k)                                                                                          \
    for (int isa_ = 0; isa_ < MST_ISA_COUNT; isa_++)                                                         \
        for (const mst_kernels *k = mst_isa_supported((mst_isa)isa_) ? mst_kernels_get((mst_isa)isa_)        \
                                                                     : NULL;                                 \
             k != NULL; k = NULL)

/* Fails unless |got - want| <= relative * scale; scale is what was summed, so that cancellation is allowed
 * for. */
#define assert_near(got, want, relative, scale)                                                              \
    do {                                                                                                     \
        double got_ = (got), want_ = (want), room_ = (relative) * (scale) + 1e-37;                           \
        if (!(fabs(got_ - want_) <= room_))                                                                  \
            fail_msg("%.9g instead of %.9g (off by %.3g, allowed %.3g)", got_, want_, fabs(got_ - want_),    \
                     room_);                                                                                 \
    } while (0)

typedef struct weights {
    float dense[MAX_DENSE + 1], sparse[FEATURES], bias;
} weights;

static void random_floats(float *out, size_t n, double scale, uint64_t seed)
{
    mst_rng rng;
    mst_rng_init(&rng, seed, MST_RNG_TEST, 77);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(mst_rng_normal(&rng) * scale);
}

static void random_weights(weights *w, uint64_t seed)
{
    random_floats(w->dense, MAX_DENSE + 1, 0.5, seed);
    random_floats(w->sparse, FEATURES, 0.5, seed + 1);
    random_floats(&w->bias, 1, 0.5, seed + 2);
}

static mst_linear linear_of(weights *w, bool bias)
{
    return (mst_linear){.dense = w->dense, .sparse = w->sparse, .bias = bias ? &w->bias : NULL};
}

static rows_spec spec_of(row_kind kind, uint32_t n_rows, uint32_t n_dense, uint64_t seed)
{
    return (rows_spec){.kind = kind,
                       .n_rows = n_rows,
                       .n_dense = n_dense,
                       .n_features = FEATURES,
                       .n_keys = n_dense % 11,
                       .n_classes = 2,
                       .weighted = true,
                       .seed = seed};
}

/* ---- references ---- */

static double margin_ref(const mst_row *row, const mst_linear *w, double *scale)
{
    double m = w->bias ? (double)*w->bias : 0.0, s = fabs(m) + 1e-3;
    for (uint32_t i = 0; i < row->n_dense; i++) {
        m += row_dense(row, i) * (double)w->dense[i];
        s += fabs(row_dense(row, i) * (double)w->dense[i]);
    }
    for (uint32_t i = 0; i < row->n_keys; i++) {
        m += row_sparse(row, i) * (double)w->sparse[row->keys[i]];
        s += fabs(row_sparse(row, i) * (double)w->sparse[row->keys[i]]);
    }
    *scale = s;
    return m;
}

static double sigmoid(double x)
{
    return x >= 0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x));
}

static double loss_ref(double m, bool positive)
{
    double z = positive ? m : -m;
    return z > 0 ? log1p(exp(-z)) : -z + log1p(exp(z));
}

static double coef_ref(double m, bool positive)
{
    return positive ? -sigmoid(-m) : sigmoid(m);
}

static double weight_of(const mst_row *row, double pos_weight)
{
    return row->label > 0 ? (double)row->weight * pos_weight : (double)row->weight;
}

/* w += a * x, in double precision on arrays laid out like struct weights. */
typedef struct weights_ref {
    double dense[MAX_DENSE + 1], sparse[FEATURES], bias;
} weights_ref;

static void to_ref(const weights *w, weights_ref *r)
{
    for (int i = 0; i <= MAX_DENSE; i++)
        r->dense[i] = (double)w->dense[i];
    for (int i = 0; i < FEATURES; i++)
        r->sparse[i] = (double)w->sparse[i];
    r->bias = (double)w->bias;
}

static void add_ref(const mst_row *row, double a, bool bias, weights_ref *r)
{
    r->bias += bias ? a : 0.0;
    for (uint32_t i = 0; i < row->n_dense; i++)
        r->dense[i] += a * row_dense(row, i);
    for (uint32_t i = 0; i < row->n_keys; i++)
        r->sparse[row->keys[i]] += a * row_sparse(row, i);
}

static void assert_weights(const weights *w, const weights_ref *r, double tolerance)
{
    for (int i = 0; i <= MAX_DENSE; i++)
        assert_near((double)w->dense[i], r->dense[i], tolerance, 1.0 + fabs(r->dense[i]));
    for (int i = 0; i < FEATURES; i++)
        assert_near((double)w->sparse[i], r->sparse[i], tolerance, 1.0 + fabs(r->sparse[i]));
    assert_near((double)w->bias, r->bias, tolerance, 1.0 + fabs(r->bias));
}

/* ---- linear models ---- */

static void isa_of_the_table(void **state)
{
    (void)state;
    assert_true(mst_isa_supported(MST_ISA_PORTABLE));
    EACH_ISA(k) assert_int_equal(k->isa, isa_);
}

static void margins_match(void **state)
{
    (void)state;
    EACH_ISA(k)
    {
        for (uint32_t n = 0; n <= MAX_DENSE; n++)
            for (int kind = 0; kind < ROWS_KINDS; kind++) {
                rows_spec spec = spec_of((row_kind)kind, n % 23, n, n);
                random_rows r = random_rows_make(&spec);
                weights w;
                random_weights(&w, n);
                mst_linear linear = linear_of(&w, n % 2 == 0);
                float margins[24];
                margins[r.n_rows] = 42.0f;
                k->margins(r.rows, r.n_rows, &linear, margins);
                for (uint32_t i = 0; i < r.n_rows; i++) {
                    double scale, want = margin_ref(&r.rows[i], &linear, &scale);
                    assert_near((double)margins[i], want, 2e-6, scale);
                }
                assert_true(margins[r.n_rows] == 42.0f);
                random_rows_free(&r);
            }
    }
}

static void scatter_matches(void **state)
{
    (void)state;
    EACH_ISA(k)
    {
        for (uint32_t n = 0; n <= MAX_DENSE; n++)
            for (int kind = 0; kind < ROWS_KINDS; kind++) {
                rows_spec spec = spec_of((row_kind)kind, n % 19, n, n + 1000);
                random_rows r = random_rows_make(&spec);
                weights w;
                weights_ref ref;
                float coefs[24];
                bool bias = n % 3 != 0;
                random_weights(&w, n);
                random_floats(coefs, 24, 1.0, n);
                to_ref(&w, &ref);
                mst_linear linear = linear_of(&w, bias);
                k->scatter(r.rows, r.n_rows, coefs, -0.25f, &linear);
                for (uint32_t i = 0; i < r.n_rows; i++)
                    add_ref(&r.rows[i], (double)coefs[i] * -0.25, bias, &ref);
                assert_weights(&w, &ref, 5e-6);
                random_rows_free(&r);
            }
    }
}

/* A key three times in one row counts three times, in the margin and in the update. */
static void repeated_keys_add_up(void **state)
{
    (void)state;
    EACH_ISA(k)
    {
        uint32_t keys[] = {3, 3, 3, 5, 5, 9};
        float values[] = {1, 2, 4, 8, 16, 32}, margin, one = 1.0f;
        mst_row row = {.keys = keys, .n_keys = 6, .label = 1, .weight = 1};
        weights w = {.sparse = {[3] = 1, [5] = 10, [9] = 100}};
        mst_linear linear = linear_of(&w, false);
        k->margins(&row, 1, &linear, &margin);
        assert_true(margin == 3 + 20 + 100);
        k->scatter(&row, 1, &one, 1.0f, &linear);
        assert_true(w.sparse[3] == 4 && w.sparse[5] == 12 && w.sparse[9] == 101);
        row.values = values;
        k->margins(&row, 1, &linear, &margin);
        assert_true(margin == 4 * 7 + 12 * 24 + 101 * 32);
        k->scatter(&row, 1, &one, 1.0f, &linear);
        assert_true(w.sparse[3] == 11 && w.sparse[5] == 36 && w.sparse[9] == 133);
    }
}

/* Margins at which naive formulas overflow, cancel or go denormal. */
static const float hard_margins[] = {
    0.0f,  -0.0f,  1e-45f, -1e-45f, 1e-38f, -1e-38f, 1e-7f, -1e-7f, 0.3f,  -0.3f,  0.35f, -0.35f,
    1.0f,  -1.0f,  10.0f,  -10.0f,  17.0f,  -17.0f,  50.0f, -50.0f, 86.9f, -86.9f, 87.1f, -87.1f,
    88.8f, -88.8f, 104.0f, -104.f,  1e3f,   -1e3f,   1e10f, -1e10f, 1e30f, -1e30f, 1e38f, -1e38f};
#define N_HARD (sizeof hard_margins / sizeof *hard_margins)

static void logistic_row(const mst_kernels *k, float margin, float label, float weight, float pos_weight)
{
    mst_row row = {.label = label, .weight = weight};
    float coef = NAN;
    double loss = k->logistic(&row, 1, &margin, pos_weight, &coef);
    double v = weight_of(&row, (double)pos_weight);
    assert_true(isfinite(loss) && isfinite(coef));
    assert_near(loss, v * loss_ref((double)margin, label > 0), 1e-6,
                v * loss_ref((double)margin, label > 0) + 4e-38);
    /* e^-|m| stops at e^-87 = 1.6e-38: below that only the size counts */
    assert_near((double)coef, v * coef_ref((double)margin, label > 0), 1e-6,
                fabs(v * coef_ref((double)margin, label > 0)) + 4e-32);
    assert_true(k->logistic_loss(&row, 1, &margin, pos_weight) == loss);
}

static void logistic_is_exact_and_finite(void **state)
{
    (void)state;
    EACH_ISA(k)
    {
        static const float labels[] = {-1, 0, 1};
        for (size_t i = 0; i < N_HARD; i++)
            for (int label = 0; label < 3; label++) {
                logistic_row(k, hard_margins[i], labels[label], 1.0f, 1.0f);
                logistic_row(k, hard_margins[i], labels[label], 0.0f, 1.0f);
                logistic_row(k, hard_margins[i], labels[label], 1.5f, 1.25f);
            }
        for (int i = -3000; i <= 3000; i++)
            logistic_row(k, (float)i * 0.03f, i % 2 ? 1.0f : -1.0f, 1.0f, 1.0f);
    }
}

/* Any number of rows, in place or not, gives what the rows give one by one. */
static void logistic_tails(void **state)
{
    (void)state;
    EACH_ISA(k)
    {
        for (uint32_t n = 0; n <= 70; n++) {
            rows_spec spec = spec_of(ROWS_DENSE, n, 0, n);
            random_rows r = random_rows_make(&spec);
            float margins[72], coefs[72];
            random_floats(margins, 72, 3.0, n);
            coefs[n] = 42.0f;
            double total = k->logistic(r.rows, n, margins, 2.0f, coefs), want = 0.0;
            assert_true(coefs[n] == 42.0f);
            for (uint32_t i = 0; i < n; i++) {
                float one;
                want += k->logistic(&r.rows[i], 1, &margins[i], 2.0f, &one);
                assert_true(one == coefs[i]);
            }
            assert_near(total, want, 1e-6, want + 1e-6);
            assert_true(k->logistic_loss(r.rows, n, margins, 2.0f) == total);
            assert_true(k->logistic(r.rows, n, margins, 2.0f, margins) == total);
            assert_memory_equal(margins, coefs, n * sizeof(float));
            random_rows_free(&r);
        }
    }
}

/* Batch 1: margins before each row's update, weights after all of them. */
static void descend_rows_matches(void **state)
{
    (void)state;
    EACH_ISA(k)
    {
        for (uint32_t n = 0; n <= MAX_DENSE; n += 3)
            for (int kind = 0; kind < ROWS_KINDS; kind++) {
                rows_spec spec = spec_of((row_kind)kind, n % 31, n, n + 2000);
                random_rows r = random_rows_make(&spec);
                weights w, one_by_one;
                weights_ref ref;
                float lrs[32], margins[32], alone[32];
                bool bias = n % 2 == 0;
                random_weights(&w, n);
                one_by_one = w;
                to_ref(&w, &ref);
                for (int i = 0; i < 32; i++)
                    lrs[i] = 0.05f / (float)(1 + i);
                mst_linear linear = linear_of(&w, bias), linear_1 = linear_of(&one_by_one, bias);
                k->descend_rows(r.rows, r.n_rows, 1.5f, &linear, lrs, margins, NULL, NULL);
                for (uint32_t i = 0; i < r.n_rows; i++) {
                    const mst_row *row = &r.rows[i];
                    double m = bias ? ref.bias : 0.0, scale = fabs(m) + 1.0;
                    for (uint32_t j = 0; j < row->n_dense; j++) {
                        m += row_dense(row, j) * ref.dense[j];
                        scale += fabs(row_dense(row, j) * ref.dense[j]);
                    }
                    for (uint32_t j = 0; j < row->n_keys; j++) {
                        m += row_sparse(row, j) * ref.sparse[row->keys[j]];
                        scale += fabs(row_sparse(row, j) * ref.sparse[row->keys[j]]);
                    }
                    assert_near((double)margins[i], m, 2e-5, scale);
                    add_ref(row, -(double)lrs[i] * weight_of(row, 1.5) * coef_ref(m, row->label > 0), bias,
                            &ref);
                    k->descend_rows(row, 1, 1.5f, &linear_1, &lrs[i], &alone[i], NULL, NULL);
                }
                assert_weights(&w, &ref, 2e-5);
                assert_memory_equal(&w, &one_by_one, sizeof w);
                assert_memory_equal(margins, alone, r.n_rows * sizeof(float));
                random_rows_free(&r);
            }
    }
}

/* With a map that moves some keys elsewhere, the same happens there, bit for bit. */
static void descend_rows_follows_a_map(void **state)
{
    (void)state;
    enum { FAR = 4096, BITS = 12 }; /* where moved keys begin */
    static uint32_t buckets[1 << BITS], numbers[FEATURES];
    mst_key_map map = {.factor = 0x9E3779B1u, .shift = 32 - BITS, .base = FAR, .buckets = buckets};
    EACH_ISA(k)
    {
        for (uint32_t n = 0; n <= MAX_DENSE; n += 5)
            for (int kind = 0; kind < ROWS_KINDS; kind++) {
                rows_spec spec = spec_of((row_kind)kind, n % 31, n, n + 3000);
                random_rows r = random_rows_make(&spec);
                weights w;
                random_weights(&w, n);
                mst_linear linear = linear_of(&w, true);
                size_t n_sparse = sizeof w.sparse / sizeof *w.sparse, longest = 1;
                float *moved = calloc(2 * FAR, sizeof *moved), lrs[32], margins[32], mapped[32];
                assert_true(n_sparse <= FAR);
                memcpy(moved, w.sparse, sizeof w.sparse);
                memset(buckets, 0xff, sizeof buckets); /* MST_MAP_UNUSED */
                map.n = 0;
                for (uint32_t key = 0; key < n_sparse; key++) {
                    uint32_t hash = key * map.factor, *bucket = &buckets[hash >> map.shift];
                    numbers[key] = key;
                    if (key % 3 != 0 || *bucket != MST_MAP_UNUSED)
                        continue;
                    moved[FAR + map.n] = moved[key];
                    numbers[key] = FAR + map.n;
                    *bucket = mst_map_bucket(map.n++, hash, map.shift);
                }
                assert_in_range(map.n, n_sparse / 4, n_sparse / 3);
                for (uint32_t i = 0; i < r.n_rows; i++)
                    longest = r.rows[i].n_keys > longest ? r.rows[i].n_keys : longest;
                uint32_t *scratch = calloc(MST_DESCEND_SCRATCH * longest, sizeof *scratch);
                for (int i = 0; i < 32; i++)
                    lrs[i] = 0.05f / (float)(1 + i);
                float dense[sizeof w.dense / sizeof *w.dense], bias = *linear.bias;
                memcpy(dense, w.dense, sizeof dense);
                mst_linear there = {.dense = dense, .sparse = moved, .bias = &bias};
                k->descend_rows(r.rows, r.n_rows, 1.5f, &linear, lrs, margins, NULL, NULL);
                k->descend_rows(r.rows, r.n_rows, 1.5f, &there, lrs, mapped, &map, scratch);
                assert_memory_equal(margins, mapped, r.n_rows * sizeof(float));
                assert_memory_equal(dense, w.dense, sizeof dense);
                assert_true(bias == *linear.bias);
                for (uint32_t i = 0; i < n_sparse; i++)
                    assert_true(moved[numbers[i]] == w.sparse[i]);
                free(moved);
                free(scratch);
                random_rows_free(&r);
            }
    }
}

/* Weights so large that margins reach 1e30: updates stay finite. */
static void descend_rows_stays_finite(void **state)
{
    (void)state;
    EACH_ISA(k)
    {
        static const float starts[] = {1e30f, -1e30f, 1e-42f, -1e-42f, 0.0f};
        for (size_t s = 0; s < sizeof starts / sizeof *starts; s++) {
            float x[] = {1.0f, 2.0f}, lr = 1.0f, margin;
            weights w = {.dense = {starts[s], starts[s]}, .bias = starts[s]};
            for (int label = -1; label <= 1; label++) {
                mst_row row = {.dense = x, .n_dense = 2, .label = (float)label, .weight = 1.0f};
                mst_linear linear = linear_of(&w, true);
                k->descend_rows(&row, 1, 1.0f, &linear, &lr, &margin, NULL, NULL);
                assert_true(isfinite(margin) && isfinite(w.dense[0]) && isfinite(w.dense[1]) &&
                            isfinite(w.bias));
            }
        }
    }
}

/* ---- dense layers ---- */

static void unpack_bytes_matches(void **state)
{
    (void)state;
    EACH_ISA(k)
    {
        for (uint32_t n = 0; n <= 300; n = n < 70 ? n + 1 : n + 37) {
            uint8_t *bytes = row_block(n, 1);
            float *out = row_block(n, sizeof *out);
            for (uint32_t i = 0; i < n; i++)
                bytes[i] = (uint8_t)(i * 7 + n);
            k->unpack_bytes(bytes, n, out);
            for (uint32_t i = 0; i < n; i++)
                assert_near((double)out[i], (double)bytes[i] / 255.0, 1.2e-7, 1.0);
            free(bytes);
            free(out);
        }
    }
}

typedef struct dense_case {
    uint32_t n, k, c, ldx;
    float *x, *w, *b, *y, *d, *gw, *gb;
} dense_case;

static dense_case dense_make(uint32_t n, uint32_t k, uint32_t c)
{
    dense_case t = {.n = n, .k = k, .c = c, .ldx = k + n % 3};
    size_t x_size = n ? (size_t)(n - 1) * t.ldx + k : 0; /* nothing beyond the last row */
    t.x = row_block(x_size, sizeof(float));
    t.w = row_block((size_t)c * k, sizeof(float));
    t.b = row_block(c, sizeof(float));
    t.y = row_block((size_t)n * c, sizeof(float));
    t.d = row_block((size_t)n * c, sizeof(float));
    t.gw = row_block((size_t)c * k, sizeof(float));
    t.gb = row_block(c, sizeof(float));
    random_floats(t.x, x_size, 1.0, n);
    random_floats(t.w, (size_t)c * k, 1.0, k);
    random_floats(t.b, c, 1.0, c);
    random_floats(t.d, (size_t)n * c, 1.0, n + c);
    random_floats(t.gw, (size_t)c * k, 1.0, k + c);
    random_floats(t.gb, c, 1.0, c + 1);
    return t;
}

static void dense_free(dense_case *t)
{
    free(t->x);
    free(t->w);
    free(t->b);
    free(t->y);
    free(t->d);
    free(t->gw);
    free(t->gb);
}

static void check_forward(const mst_kernels *k, dense_case *t, bool bias)
{
    k->dense_forward(t->x, t->ldx, t->n, t->k, t->w, bias ? t->b : NULL, t->c, t->y);
    for (uint32_t i = 0; i < t->n; i++)
        for (uint32_t q = 0; q < t->c; q++) {
            double sum = bias ? (double)t->b[q] : 0.0, scale = fabs(sum) + 1e-3;
            for (uint32_t j = 0; j < t->k; j++) {
                double p = (double)t->x[(size_t)i * t->ldx + j] * (double)t->w[(size_t)q * t->k + j];
                sum += p;
                scale += fabs(p);
            }
            assert_near((double)t->y[(size_t)i * t->c + q], sum, 2e-6, scale);
        }
}

static void check_backward(const mst_kernels *k, dense_case *t, bool bias)
{
    size_t size = (size_t)t->c * t->k;
    float *gw = row_block(size, sizeof *gw), *gb = row_block(t->c, sizeof *gb);
    memcpy(gw, t->gw, size * sizeof *gw);
    memcpy(gb, t->gb, t->c * sizeof *gb);
    k->dense_backward(t->x, t->ldx, t->n, t->k, t->d, t->c, gw, bias ? gb : NULL);
    for (uint32_t q = 0; q < t->c; q++) {
        double sum = (double)t->gb[q], scale = fabs(sum) + 1e-3;
        for (uint32_t i = 0; i < t->n && bias; i++) {
            sum += (double)t->d[(size_t)i * t->c + q];
            scale += fabs((double)t->d[(size_t)i * t->c + q]);
        }
        assert_near((double)gb[q], sum, 2e-6, scale);
        for (uint32_t j = 0; j < t->k; j++) {
            sum = (double)t->gw[(size_t)q * t->k + j];
            scale = fabs(sum) + 1e-3;
            for (uint32_t i = 0; i < t->n; i++) {
                double p = (double)t->d[(size_t)i * t->c + q] * (double)t->x[(size_t)i * t->ldx + j];
                sum += p;
                scale += fabs(p);
            }
            assert_near((double)gw[(size_t)q * t->k + j], sum, 2e-6, scale);
        }
    }
    free(gw);
    free(gb);
}

static void dense_layers_match(void **state)
{
    (void)state;
    static const uint32_t ns[] = {0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 33},
                          cs[] = {1, 2, 3, 4, 5, 6, 9, 10, 11, 15, 17};
    static const uint32_t ks[] = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 63, 64, 65, 70, 100};
    EACH_ISA(k)
    {
        for (size_t a = 0; a < sizeof ns / sizeof *ns; a++)
            for (size_t b = 0; b < sizeof ks / sizeof *ks; b++)
                for (size_t c = 0; c < sizeof cs / sizeof *cs; c++) {
                    dense_case t = dense_make(ns[a], ks[b], cs[c]);
                    check_forward(k, &t, (a + b + c) % 2 == 0);
                    check_backward(k, &t, (a + b + c) % 2 == 0);
                    dense_free(&t);
                }
        dense_case mnist = dense_make(100, 784, 10);
        check_forward(k, &mnist, true);
        check_backward(k, &mnist, true);
        dense_free(&mnist);
    }
}

static void check_softmax(const mst_kernels *k, const mst_row *rows, uint32_t n, uint32_t c, const float *y)
{
    float *d = row_block((size_t)n * c, sizeof *d), *in_place = row_block((size_t)n * c, sizeof *d);
    double total = k->softmax(rows, n, c, y, 0.5f, d), want = 0.0;
    for (uint32_t r = 0; r < n; r++) {
        const float *yr = y + (size_t)r * c;
        uint32_t label = rows[r].label > 0 ? (uint32_t)rows[r].label : 0;
        double top = (double)yr[0], sum = 0.0, v = (double)rows[r].weight;
        for (uint32_t q = 1; q < c; q++)
            top = fmax(top, (double)yr[q]);
        for (uint32_t q = 0; q < c; q++)
            sum += exp((double)yr[q] - top);
        want += v * (log(sum) + top - (double)yr[label]);
        for (uint32_t q = 0; q < c; q++) {
            double p = exp((double)yr[q] - top) / sum;
            assert_near((double)d[(size_t)r * c + q], 0.5 * v * (p - (q == label)), 1e-6, 0.5 * v);
        }
    }
    assert_true(isfinite(total));
    assert_near(total, want, 1e-6, fabs(want) + n);
    assert_true(k->softmax_loss(rows, n, c, y) == total);
    memcpy(in_place, y, (size_t)n * c * sizeof *y);
    assert_true(k->softmax(rows, n, c, in_place, 0.5f, in_place) == total);
    assert_memory_equal(in_place, d, (size_t)n * c * sizeof *d);
    free(d);
    free(in_place);
}

static void softmax_matches(void **state)
{
    (void)state;
    EACH_ISA(k)
    {
        for (uint32_t c = 2; c <= 70; c++)
            for (uint32_t n = 0; n < 6; n++) {
                rows_spec spec = spec_of(ROWS_DENSE, n, 0, n * 100 + c);
                spec.n_classes = c; /* two classes: labels -1 and 0 are class 0 */
                random_rows r = random_rows_make(&spec);
                float *y = row_block((size_t)n * c, sizeof *y);
                random_floats(y, (size_t)n * c, c % 2 ? 3.0 : 40.0, c);
                check_softmax(k, r.rows, n, c, y);
                free(y);
                random_rows_free(&r);
            }
    }
}

static void softmax_is_finite(void **state)
{
    (void)state;
    EACH_ISA(k)
    {
        float logits[][5] = {
            {0, 0, 0, 0, 0},
            {1e30f, -1e30f, 0, 1e-42f, -1e-42f},
            {-1e30f, -1e30f, -1e30f, -1e30f, -1e30f},
            {FLT_MAX, -FLT_MAX, FLT_MAX, 0, 1},
            {1e-45f, -1e-45f, 1e-40f, -1e-40f, 0},
            {-87, -88, -89, -104, 0},
            {1000, 999, 998, -1000, 0},
        };
        for (size_t i = 0; i < sizeof logits / sizeof *logits; i++)
            for (int label = 0; label < 5; label++) {
                mst_row row = {.label = (float)label, .weight = 1.0f};
                check_softmax(k, &row, 1, 5, logits[i]);
            }
    }
}

/* Distinct keys of every number, and the same with each pair of them equal. */
static void keys_distinct_finds_each_pair(void **state)
{
    (void)state;
    mst_rng rng;
    uint32_t keys[64];
    mst_rng_init(&rng, 5, MST_RNG_TEST, 0);
    EACH_ISA(k)
    for (uint32_t n = 0; n <= 64; n++) {
        for (uint32_t i = 0; i < n; i++) /* near 0, the largest, and others in any order */
            keys[i] = i % 3 == 0   ? i
                      : i % 3 == 1 ? UINT32_MAX - 32 - i
                                   : (mst_rng_u32(&rng) | 1u << 31) / 2 + i;
        assert_true(k->keys_distinct(keys, n));
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t j = i + 1; j < n; j++) {
                uint32_t own = keys[j];
                keys[j] = keys[i];
                assert_false(k->keys_distinct(keys, n));
                keys[j] = own;
            }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(isa_of_the_table),
        cmocka_unit_test(margins_match),
        cmocka_unit_test(scatter_matches),
        cmocka_unit_test(repeated_keys_add_up),
        cmocka_unit_test(logistic_is_exact_and_finite),
        cmocka_unit_test(logistic_tails),
        cmocka_unit_test(descend_rows_matches),
        cmocka_unit_test(descend_rows_follows_a_map),
        cmocka_unit_test(descend_rows_stays_finite),
        cmocka_unit_test(unpack_bytes_matches),
        cmocka_unit_test(dense_layers_match),
        cmocka_unit_test(softmax_matches),
        cmocka_unit_test(softmax_is_finite),
        cmocka_unit_test(keys_distinct_finds_each_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
