/* Generators: equal for any threads and slices, with the documented statistics. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc.h"
#include "base/file.h"
#include "data/gen.h"
#include "temp_folder.h"

/* A checksum of the rows' contents, however they are cut into chunks. */
typedef struct sum {
    uint32_t crc;
    uint64_t next_row, n_rows;
} sum;

static mst_status add_up(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    sum *s = arg;
    assert_int_equal(first_row, s->next_row);
    for (uint32_t i = 0; i < chunk->n_rows; i++) {
        mst_row row;
        mst_chunk_row(chunk, i, &row);
        s->crc = mst_crc32c(s->crc, &row.label, sizeof row.label);
        if (row.dense != NULL)
            s->crc = mst_crc32c(s->crc, row.dense, row.n_dense * sizeof *row.dense);
        if (row.bytes != NULL)
            s->crc = mst_crc32c(s->crc, row.bytes, row.n_dense);
        s->crc = mst_crc32c(s->crc, row.keys, row.n_keys * sizeof *row.keys);
    }
    s->next_row += chunk->n_rows;
    s->n_rows += chunk->n_rows;
    return MST_OK;
}

static void rows_do_not_depend_on_threads_or_slices(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        uint32_t whole = 0;
        for (int way = 0; way < 3; way++) { /* one thread; three threads; two slices */
            sum s = {0};
            for (int part = 0; part < (way == 2 ? 2 : 1); part++) {
                uint64_t rows = way < 2 ? 10000 : part == 0 ? 3333 : 6667, first = part == 0 ? 0 : 3333;
                unsigned n_threads = way == 1 ? 3 : 1;
                mst_gen_criteo_options c = {
                    .rows = rows, .first_row = first, .features = 100000, .seed = 7, .n_threads = n_threads};
                mst_gen_digits_options d = {rows / 10, first, 7, n_threads};
                mst_gen_blobs_options b = {rows, first, 5, 3, 2.0, 7, n_threads};
                if (kind == 1 && part == 1)
                    d.rows = 667, d.first_row = s.next_row;
                mst_status st = kind == 0   ? mst_gen_criteo(&c, add_up, &s)
                                : kind == 1 ? mst_gen_digits_rows(&d, add_up, &s)
                                            : mst_gen_blobs(&b, add_up, &s);
                assert_int_equal(st, MST_OK);
            }
            assert_int_equal(s.n_rows, kind == 1 ? 1000 : 10000);
            if (way == 0)
                whole = s.crc;
            assert_int_equal(s.crc, whole);
        }
    }
    sum other = {0};
    mst_gen_criteo_options c = {.rows = 10000, .features = 100000, .seed = 8, .n_threads = 1};
    assert_int_equal(mst_gen_criteo(&c, add_up, &other), MST_OK);
    sum same = {0};
    c.seed = 7;
    assert_int_equal(mst_gen_criteo(&c, add_up, &same), MST_OK);
    assert_int_not_equal(other.crc, same.crc);
}

/* ---- criteo ---- */

typedef struct look {
    const mst_gen_criteo_model *model;
    uint64_t rows, negative, planted_right;
    uint32_t *counts; /* per key */
    uint32_t *stamp;  /* per key: last batch that had it, plus one */
    uint64_t batches[2], distinct[2];
} look;

static mst_status look_at(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    static const uint32_t sizes[2] = {100, 1000};
    static uint32_t batch_number;
    look *l = arg;
    (void)first_row;
    assert_int_equal(chunk->n_dense, MST_GEN_CRITEO_NUMERIC);
    assert_int_equal(chunk->stride, 40);
    assert_false(chunk->has_values || chunk->has_weights);
    for (uint32_t i = 0; i < chunk->n_rows; i++) {
        mst_row row;
        mst_chunk_row(chunk, i, &row);
        bool positive = row.label == 1;
        assert_true(positive || row.label == 0);
        l->rows++;
        l->negative += !positive;
        l->planted_right += (mst_gen_criteo_planted_margin(l->model, &row) > 0) == positive;
        for (unsigned j = 0; j < MST_GEN_CRITEO_NUMERIC; j++) {
            float hundredfold = row.dense[j] * 100;
            assert_true(row.dense[j] >= 0 && row.dense[j] <= 5 &&
                        fabsf(hundredfold - roundf(hundredfold)) < 1e-3f);
        }
        for (unsigned j = 0; j < MST_GEN_CRITEO_FIELDS; j++) {
            uint32_t first, size;
            mst_gen_criteo_field(l->model, j, &first, &size);
            assert_in_range(row.keys[j], first, first + size - 1);
            l->counts[row.keys[j]]++;
        }
    }
    for (int s = 0; s < 2; s++)
        for (uint32_t at = 0; at + sizes[s] <= chunk->n_rows; at += sizes[s]) {
            batch_number++;
            l->batches[s]++;
            l->distinct[s] += MST_GEN_CRITEO_NUMERIC;
            for (uint32_t i = at; i < at + sizes[s]; i++) {
                mst_row row;
                mst_chunk_row(chunk, i, &row);
                for (uint32_t j = 0; j < row.n_keys; j++) {
                    l->distinct[s] += l->stamp[row.keys[j]] != batch_number;
                    l->stamp[row.keys[j]] = batch_number;
                }
            }
        }
    return MST_OK;
}

static void look_through(look *l, uint64_t features, uint64_t seed, uint64_t rows)
{
    mst_gen_criteo_model *model = NULL;
    *l = (look){.counts = mst_calloc(features, 4), .stamp = mst_calloc(features, 4)};
    assert_non_null(l->counts);
    assert_non_null(l->stamp);
    assert_int_equal(
        mst_gen_criteo_model_new(&(mst_gen_criteo_options){.features = features, .seed = seed}, &model),
        MST_OK);
    l->model = model;
    mst_gen_criteo_options o = {.rows = rows, .features = features, .seed = seed, .n_threads = 2};
    assert_int_equal(mst_gen_criteo(&o, look_at, l), MST_OK);
    double constant = (double)l->negative / (double)l->rows,
           planted = (double)l->planted_right / (double)l->rows;
    assert_true(constant > 0.73 && constant < 0.75);
    assert_true(planted > 0.78 && planted < 0.80);
}

static void look_fini(look *l)
{
    mst_gen_criteo_model_destroy((mst_gen_criteo_model *)l->model);
    mst_free(l->counts);
    mst_free(l->stamp);
}

static void criteo_has_the_promised_statistics(void **state)
{
    (void)state;
    look l;
    look_through(&l, MST_GEN_CRITEO_FEATURES, 1, 40000);
    assert_in_range(l.distinct[0] / l.batches[0], 1200, 1400);
    assert_in_range(l.distinct[1] / l.batches[1], 7300, 8100);

    /* Vocabularies fill the key space, and the most popular key of each is the first. */
    uint32_t next = MST_GEN_CRITEO_NUMERIC, popular_first = 0;
    for (unsigned j = 0; j < MST_GEN_CRITEO_FIELDS; j++) {
        uint32_t first, size, top = 0;
        mst_gen_criteo_field(l.model, j, &first, &size);
        assert_int_equal(first, next);
        next += size;
        for (uint32_t k = 0; k < size; k++)
            top = l.counts[first + k] > l.counts[first + top] ? k : top;
        popular_first += top == 0;
        if (size > 1000000) { /* Zipf with exponent 1.1: the most popular key has 1/H of the rows */
            double h = 10 * (pow(1000.5, -0.1) - pow(size + 0.5, -0.1)); /* ranks above 1000 */
            for (double k = 1000; k >= 1; k--)
                h += pow(k, -1.1);
            double share = (double)l.counts[first + top] / (double)l.rows;
            assert_true(share > 0.93 / h && share < 1.07 / h);
        }
    }
    assert_int_equal(next, MST_GEN_CRITEO_FEATURES);
    assert_int_equal(popular_first, MST_GEN_CRITEO_FIELDS);
    look_fini(&l);
}

typedef struct kept_rows {
    const mst_gen_criteo_model *model;
    uint32_t (*keys)[MST_GEN_CRITEO_FIELDS];
    float *labels;
    double loss; /* of the planted model */
} kept_rows;

static mst_status keep_rows(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    kept_rows *k = arg;
    assert_true(chunk->fielded && !chunk->has_fields);
    for (uint32_t i = 0; i < chunk->n_rows; i++) {
        mst_row row;
        mst_chunk_row(chunk, i, &row);
        assert_int_equal(row.n_keys, MST_GEN_CRITEO_FIELDS);
        memcpy(k->keys[first_row + i], row.keys, sizeof *k->keys);
        k->labels[first_row + i] = row.label;
        double margin = mst_gen_criteo_planted_margin(k->model, &row);
        k->loss += log1p(exp(row.label > 0 ? -margin : margin));
    }
    return MST_OK;
}

enum { KEPT = 20000 };

static kept_rows generate(bool scatter, double interactions, double *planted)
{
    kept_rows k = {.keys = mst_calloc(KEPT, sizeof *k.keys), .labels = mst_calloc(KEPT, sizeof(float))};
    mst_gen_criteo_options o = {.rows = KEPT,
                                .features = MST_GEN_CRITEO_FEATURES,
                                .seed = 5,
                                .scatter = scatter,
                                .interactions = interactions,
                                .n_threads = 2,
                                .planted_loss = planted};
    mst_gen_criteo_model *model = NULL;
    assert_true(k.keys != NULL && k.labels != NULL);
    assert_int_equal(mst_gen_criteo_model_new(&o, &model), MST_OK);
    k.model = model;
    assert_int_equal(mst_gen_criteo(&o, keep_rows, &k), MST_OK);
    return k;
}

static void kept_fini(kept_rows *k)
{
    mst_gen_criteo_model_destroy((mst_gen_criteo_model *)k->model);
    mst_free(k->keys);
    mst_free(k->labels);
}

/* Scattered rows are the same rows: within a field, keys are renumbered one to one. */
static void scatter_renumbers_the_keys_of_a_field(void **state)
{
    (void)state;
    for (int pass = 0; pass < 2; pass++) {
        double loss[2], interactions = pass == 0 ? 0 : 1e-3;
        kept_rows plain = generate(false, interactions, &loss[0]),
                  other = generate(true, interactions, &loss[1]);
        uint32_t *to = mst_calloc(MST_GEN_CRITEO_FEATURES, sizeof *to),
                 *from = mst_calloc(MST_GEN_CRITEO_FEATURES, sizeof *from);
        uint64_t near = 0, popular = 0;
        assert_true(to != NULL && from != NULL);
        for (uint32_t i = 0; i < KEPT; i++) {
            assert_true(plain.labels[i] == other.labels[i]);
            for (uint32_t j = 0; j < MST_GEN_CRITEO_FIELDS; j++) {
                uint32_t a = plain.keys[i][j], b = other.keys[i][j], first, size;
                mst_gen_criteo_field(plain.model, j, &first, &size);
                assert_in_range(b, first, first + size - 1);
                assert_true(to[a] == 0 || to[a] == b);
                assert_true(from[b] == 0 || from[b] == a);
                to[a] = b;
                from[b] = a;
                if (size > 100000 && a > first && a < first + 100) { /* one of the most popular */
                    uint32_t before = to[a - 1];
                    popular += before != 0;
                    near += before != 0 && (before > b ? before - b : b - before) < 1000;
                }
            }
        }
        assert_true(popular > 10000);
        assert_int_equal(near, 0);
        assert_true(fabs(loss[0] - loss[1]) < 1e-9);
        assert_true(fabs(plain.loss / KEPT - loss[0]) < 1e-4);
        assert_true(fabs(other.loss / KEPT - loss[1]) < 1e-4);
        mst_free(to);
        mst_free(from);
        kept_fini(&plain);
        kept_fini(&other);
    }
}

/* The second-order model: its loss is where it is set, and pairs carry a part that weights alone do not. */
static void interactions_have_the_promised_loss(void **state)
{
    (void)state;
    double loss;
    kept_rows k = generate(true, 1e-3, &loss);
    assert_true(loss > 0.43 && loss < 0.47);
    double positive = 0;
    for (uint32_t i = 0; i < KEPT; i++)
        positive += (double)k.labels[i];
    assert_true(positive / KEPT > 0.25 && positive / KEPT < 0.27);
    /* A second difference of margins is 0 for a linear model. Rows are numbers and the first key of fields.
     */
    uint32_t keys[MST_GEN_CRITEO_FIELDS];
    float numbers[MST_GEN_CRITEO_NUMERIC] = {0};
    double corner[2][2], second = 0;
    for (int a = 0; a < 2; a++)
        for (int b = 0; b < 2; b++) {
            for (uint32_t j = 0; j < MST_GEN_CRITEO_FIELDS; j++)
                keys[j] = k.keys[j < 2 ? (j == 0 ? a : b) : 7][j];
            mst_row row = {.dense = numbers,
                           .n_dense = MST_GEN_CRITEO_NUMERIC,
                           .keys = keys,
                           .n_keys = MST_GEN_CRITEO_FIELDS};
            corner[a][b] = mst_gen_criteo_planted_margin(k.model, &row);
        }
    second = corner[1][1] - corner[1][0] - corner[0][1] + corner[0][0];
    assert_true(fabs(second) > 1e-3);
    kept_fini(&k);
}

static double margin_of(const mst_gen_criteo_model *model, uint32_t field, uint32_t rank)
{
    uint32_t keys[MST_GEN_CRITEO_FIELDS], first, size;
    float numbers[MST_GEN_CRITEO_NUMERIC] = {0};
    for (uint32_t j = 0; j < MST_GEN_CRITEO_FIELDS; j++) {
        mst_gen_criteo_field(model, j, &first, &size);
        keys[j] = first + (j == field ? rank : 0);
    }
    mst_row row = {
        .dense = numbers, .n_dense = MST_GEN_CRITEO_NUMERIC, .keys = keys, .n_keys = MST_GEN_CRITEO_FIELDS};
    return mst_gen_criteo_planted_margin(model, &row);
}

/* Field 2 has 10,131,227 values, and value k is in a share of k^-1.1 / 8.6 of the rows: 1e-3 of them have one
 * of the first 75, 1e-5 one of the first 4,950. Rarer values are alike. */
static void the_share_decides_which_categories_interact(void **state)
{
    (void)state;
    const struct {
        double share;
        uint32_t last;
    } cases[] = {{1e-3, 75}, {1e-5, 4950}};
    for (size_t i = 0; i < 2; i++) {
        mst_gen_criteo_model *model = NULL;
        mst_gen_criteo_options o = {
            .features = MST_GEN_CRITEO_FEATURES, .seed = 5, .interactions = cases[i].share};
        assert_int_equal(mst_gen_criteo_model_new(&o, &model), MST_OK);
        double none = margin_of(model, 2, 1000000);
        assert_true(margin_of(model, 2, cases[i].last * 21 / 20) == none);
        assert_true(margin_of(model, 2, cases[i].last * 19 / 20) != none);
        mst_gen_criteo_model_destroy(model);
    }
}

static void criteo_scales_to_few_and_many_features(void **state)
{
    (void)state;
    look l;
    look_through(&l, 300, 3, 20000);
    look_fini(&l);
    look_through(&l, 1 << 20, 4, 20000);
    look_fini(&l);
    mst_gen_criteo_model *model = NULL;
    assert_int_equal(
        mst_gen_criteo_model_new(&(mst_gen_criteo_options){.features = UINT32_MAX, .seed = 1}, &model),
        MST_OK);
    uint32_t first, size;
    mst_gen_criteo_field(model, MST_GEN_CRITEO_FIELDS - 1, &first, &size);
    assert_int_equal((uint64_t)first + size, UINT32_MAX);
    mst_gen_criteo_model_destroy(model);
    model = NULL;
    assert_int_equal(mst_gen_criteo_model_new(&(mst_gen_criteo_options){.features = 100, .seed = 1}, &model),
                     MST_EUSAGE);
    assert_non_null(strstr(mst_error_text(), "not 100"));
    assert_null(model);
}

static mst_status refuse_third(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    (void)chunk;
    *(uint64_t *)arg = first_row;
    return first_row >= 8192 ? mst_fail(MST_EIO, "the disk is full at row %d", 8192) : MST_OK;
}

static void a_failure_of_the_consumer_ends_the_run(void **state)
{
    (void)state;
    uint64_t last = 0;
    mst_gen_criteo_options o = {.rows = 100000, .features = 1000, .n_threads = 3};
    assert_int_equal(mst_gen_criteo(&o, refuse_third, &last), MST_EIO);
    assert_string_equal(mst_error_text(), "the disk is full at row 8192");
    assert_int_equal(last, 8192);
}

/* ---- digits and blobs ---- */

/* Softmax regression by plain SGD on the features; accuracy on the rows from n_train on. */
static double softmax_accuracy(const float *x, const unsigned *y, size_t n_train, size_t n, size_t d,
                               unsigned classes, float rate, int epochs)
{
    float *w = mst_calloc((d + 1) * classes, sizeof *w), z[16];
    size_t right = 0;
    assert_non_null(w);
    for (size_t step = 0; step < (size_t)epochs * n_train + (n - n_train); step++) {
        bool training = step < (size_t)epochs * n_train;
        size_t i = training ? step % n_train : n_train + step - (size_t)epochs * n_train;
        unsigned best = 0;
        float total = 0;
        for (unsigned c = 0; c < classes; c++) {
            z[c] = w[c * (d + 1) + d];
            for (size_t j = 0; j < d; j++)
                z[c] += w[c * (d + 1) + j] * x[i * d + j];
            best = z[c] > z[best] ? c : best;
        }
        right += !training && best == y[i];
        float top = z[best];
        for (unsigned c = 0; c < classes; c++)
            total += z[c] = expf(z[c] - top);
        for (unsigned c = 0; training && c < classes; c++) {
            float g = rate * (z[c] / total - (float)(c == y[i]));
            for (size_t j = 0; j < d; j++)
                w[c * (d + 1) + j] -= g * x[i * d + j];
            w[c * (d + 1) + d] -= g;
        }
    }
    mst_free(w);
    return (double)right / (double)(n - n_train);
}

static void digits_are_neither_trivial_nor_hopeless(void **state)
{
    (void)state;
    enum { TRAIN = 5000, ALL = 6000, D = MST_GEN_DIGIT_PIXELS };
    float *x = mst_calloc((size_t)ALL * D, sizeof *x);
    unsigned y[ALL], classes[10] = {0};
    assert_non_null(x);
    for (size_t i = 0; i < ALL; i++) {
        uint8_t pixels[D];
        y[i] = mst_gen_digit(3, i, pixels);
        classes[y[i]]++;
        for (size_t j = 0; j < D; j++)
            x[i * D + j] = (float)pixels[j] / 255.0f;
    }
    for (unsigned c = 0; c < 10; c++)
        assert_in_range(classes[c], ALL / 10 - 120, ALL / 10 + 120);
    double accuracy = softmax_accuracy(x, y, TRAIN, ALL, D, 10, 0.01f, 2);
    assert_true(accuracy > 0.83 && accuracy < 0.97);
    mst_free(x);
}

static void digits_are_written_as_idx(void **state)
{
    (void)state;
    char path[128], *data;
    size_t n;
    uint8_t pixels[MST_GEN_DIGIT_PIXELS];
    snprintf(path, sizeof path, "%s/digits", folder);
    assert_int_equal(mst_gen_digits(path, 1500, 200, 5, NULL, NULL), MST_OK);
    snprintf(path, sizeof path, "%s/digits/t10k-images-idx3-ubyte", folder);
    assert_int_equal(mst_file_read_all(path, 1 << 24, &data, &n), MST_OK);
    assert_int_equal(n, 16 + 200 * 784);
    assert_memory_equal(data, "\0\0\x08\x03\0\0\0\xc8\0\0\0\x1c\0\0\0\x1c", 16);
    unsigned label = mst_gen_digit(5, 1500 + 199, pixels);
    assert_memory_equal(data + 16 + 199 * 784, pixels, 784);
    mst_free(data);
    snprintf(path, sizeof path, "%s/digits/t10k-labels-idx1-ubyte", folder);
    assert_int_equal(mst_file_read_all(path, 1 << 24, &data, &n), MST_OK);
    assert_int_equal(n, 8 + 200);
    assert_int_equal(data[8 + 199], label);
    mst_free(data);
    snprintf(path, sizeof path, "%s/digits/train-labels-idx1-ubyte", folder);
    assert_int_equal(mst_file_read_all(path, 1 << 24, &data, &n), MST_OK);
    assert_int_equal(n, 8 + 1500);
    mst_free(data);
}

typedef struct blob_rows {
    float x[4000 * 8];
    unsigned y[4000];
    size_t n;
} blob_rows;

static mst_status collect(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    blob_rows *r = arg;
    (void)first_row;
    assert_int_equal(chunk->n_dense, 8);
    for (uint32_t i = 0; i < chunk->n_rows; i++, r->n++) {
        mst_row row;
        mst_chunk_row(chunk, i, &row);
        memcpy(r->x + r->n * 8, row.dense, 8 * sizeof(float));
        r->y[r->n] = (unsigned)row.label;
    }
    return MST_OK;
}

static void blobs_part_with_their_spread(void **state)
{
    (void)state;
    static const double spreads[2] = {0.3, 3};
    double accuracy[2];
    for (int i = 0; i < 2; i++) {
        blob_rows *r = mst_zalloc(sizeof *r);
        assert_non_null(r);
        mst_gen_blobs_options o = {.rows = 4000, .dims = 8, .classes = 4, .spread = spreads[i], .seed = 2};
        assert_int_equal(mst_gen_blobs(&o, collect, r), MST_OK);
        assert_int_equal(r->n, 4000);
        accuracy[i] = softmax_accuracy(r->x, r->y, 3000, 4000, 8, 4, 0.02f, 3);
        mst_free(r);
    }
    assert_true(accuracy[0] > 0.27 && accuracy[0] < 0.7);
    assert_true(accuracy[1] > 0.95);
    mst_gen_blobs_options bad = {.rows = 1, .dims = 8, .classes = 1, .spread = 1};
    assert_int_equal(mst_gen_blobs(&bad, collect, NULL), MST_EUSAGE);
    assert_non_null(strstr(mst_error_text(), "2 to 65536 classes"));
}

static void failed_allocations_are_reported(void **state)
{
    (void)state;
    mst_alloc_stats before, after;
    mst_alloc_stats_get(&before);
    mst_status st = MST_ENOMEM;
    for (uint64_t k = 1; st != MST_OK && k < 100; k++) {
        sum s = {0};
        mst_gen_criteo_options o = {.rows = 5000, .features = 1000, .n_threads = 2};
        mst_alloc_fail_at(k);
        st = mst_gen_criteo(&o, add_up, &s);
        mst_alloc_fail_at(0);
        if (st != MST_OK)
            assert_int_equal(st, MST_ENOMEM);
    }
    assert_int_equal(st, MST_OK);
    mst_alloc_stats_get(&after);
    assert_int_equal(before.blocks, after.blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_do_not_depend_on_threads_or_slices),
        cmocka_unit_test(criteo_has_the_promised_statistics),
        cmocka_unit_test(criteo_scales_to_few_and_many_features),
        cmocka_unit_test(scatter_renumbers_the_keys_of_a_field),
        cmocka_unit_test(interactions_have_the_promised_loss),
        cmocka_unit_test(the_share_decides_which_categories_interact),
        cmocka_unit_test(a_failure_of_the_consumer_ends_the_run),
        cmocka_unit_test(digits_are_neither_trivial_nor_hopeless),
        cmocka_unit_test(digits_are_written_as_idx),
        cmocka_unit_test(blobs_part_with_their_spread),
        cmocka_unit_test(failed_allocations_are_reported),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
