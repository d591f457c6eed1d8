/* Row writers of text: libsvm, Vowpal Wabbit, Criteo's tab-separated columns; contract in write.h.
 *
 * A chunk is formatted into one buffer and handed to the file in one piece. Numbers are formatted
 * without printf, which would dominate the run time: a row has some eighty of them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "data/write.h"

#define KEY_TEXT        12 /* separator and ten digits */
#define CRITEO_INTEGERS 13
#define CRITEO_KEYS     26
#define FLUSH_BYTES     (1u << 20)

/* ---- numbers ---- */

static const char pairs[] =
    "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243"
    "4445464748495051525354555657585960616263646566676869707172737475767778798081828384858687"
    "888990919293949596979899";

static inline unsigned count_digits(uint32_t v)
{
    static const uint32_t powers[] = {0,      10,      100,      1000,      10000,
                                      100000, 1000000, 10000000, 100000000, 1000000000};
    unsigned t = (32 - (unsigned)__builtin_clz(v | 1)) * 1233 >> 12; /* bits * log10(2), rounded down */
    return t + (v >= powers[t]);
}

static inline char *put_u32(char *p, uint32_t v)
{
    char *end = p + count_digits(v), *d = end;
    while (v >= 100) {
        memcpy(d -= 2, pairs + v % 100 * 2, 2);
        v /= 100;
    }
    if (v >= 10)
        memcpy(d - 2, pairs + v * 2, 2);
    else
        d[-1] = (char)('0' + v);
    return end;
}

/* v as exactly n digits. */
static inline char *put_digits(char *p, uint32_t v, unsigned n)
{
    for (unsigned i = n; i-- > 0; v /= 10)
        p[i] = (char)('0' + v % 10);
    return p + n;
}

static inline char *put_four(char *p, uint32_t v)
{
    memcpy(p, pairs + v / 100 * 2, 2);
    memcpy(p + 2, pairs + v % 100 * 2, 2);
    return p + 4;
}

/* v, below 10^9, as 9 digits: divisions that do not wait for each other. */
static inline char *put_nine(char *p, uint32_t v)
{
    uint32_t high = v / 10000;
    *p = (char)('0' + high / 10000);
    return put_four(put_four(p + 1, high % 10000), v % 10000);
}

/* Half the distance from a normal float to its nearer neighbour. */
static double half_gap(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    uint32_t exponent = bits & 0x7f800000u;
    float power;
    memcpy(&power, &exponent, sizeof power);
    return (double)power * (bits & 0x7fffffu ? 0x1p-24 : 0x1p-25);
}

size_t mst_float_text(float value, char *out)
{
    static const struct {
        unsigned digits;
        double scale;
        uint64_t whole;
    } steps[] = {{2, 1e2, 100}, {3, 1e3, 1000}, {6, 1e6, 1000000}, {8, 1e8, 100000000}};
    char *p = out;
    double v = value;
    if (signbit(value)) {
        *p++ = '-';
        v = -v;
    }
    if (v < 1e9 && v == (double)(uint32_t)v)
        return (size_t)(put_u32(p, (uint32_t)v) - out);
    if (v >= 1e-4 && v < 1e6) {
        double room = half_gap((float)v) * 0.999;
        for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
            uint64_t scaled = (uint64_t)(v * steps[i].scale + 0.5);
            if (fabs((double)scaled / steps[i].scale - v) < room) {
                p = put_u32(p, (uint32_t)(scaled / steps[i].whole));
                *p++ = '.';
                p = put_digits(p, (uint32_t)(scaled % steps[i].whole), steps[i].digits);
                while (p[-1] == '0')
                    p--;
                return (size_t)(p - out);
            }
        }
    }
    for (int precision = 6; precision <= 9; precision++) {
        int n = snprintf(out, MST_FLOAT_TEXT, "%.*g", precision, (double)value);
        if (precision == 9 || strtof(out, NULL) == value)
            return (size_t)n;
    }
    return 0; /* not reached */
}

/* A mantissa of 9 digits from one multiplication, whose error is below 1.2e-7 of its last digit; printf
 * decides where that could change the rounding. */
size_t mst_number_text9(double value, char *out)
{
    static const double powers[] = {1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9},
                        scales[] = {1e12, 1e11, 1e10, 1e9, 1e8, 1e7, 1e6, 1e5, 1e4, 1e3, 1e2, 1e1, 1e0};
    char *p = out;
    double v = fabs(value);
    if (v >= 1e-4 && v < 1e9) {
        int i = 0; /* of the first power above v: i - 3 digits are before the point */
        while (v >= powers[i])
            i++;
        double scaled = v * scales[i];
        uint32_t digits = (uint32_t)scaled;
        double rest = scaled - digits;
        digits += rest > 0.5;
        if (fabs(rest - 0.5) > 1e-6 && digits < 1000000000) {
            if (value < 0.0)
                *p++ = '-';
            if (i <= 3) {
                memcpy(p, "0.000", 5);
                p = put_nine(p + 5 - i, digits);
            } else {
                char *point = p + i - 3;
                p = put_nine(p, digits) + 1;
                memmove(point + 1, point, (size_t)(p - point - 1));
                *point = '.';
            }
            while (p[-1] == '0')
                p--;
            return (size_t)(p - (p[-1] == '.') - out);
        }
    }
    return (size_t)snprintf(out, MST_FLOAT_TEXT, "%.9g", value);
}

static inline char *put_float(char *p, float v)
{
    if (v == 1.0f) {
        *p = '1';
        return p + 1;
    }
    return p + mst_float_text(v, p);
}

/* ---- shared by the formats ---- */

typedef struct text_rows {
    mst_row_writer base;
    mst_out *out;
    char *text;
    size_t n, capacity;
    mst_chunk_builder sorted; /* libsvm: a row whose keys do not ascend, sorted */
} text_rows;

static mst_status text_open(mst_row_writer *self)
{
    return mst_out_open(self->path, &((text_rows *)self)->out);
}

static void text_close(mst_row_writer *self)
{
    text_rows *w = (text_rows *)self;
    mst_out_close(w->out);
    mst_free(w->text);
    mst_chunk_builder_fini(&w->sorted);
}

static mst_status text_flush(text_rows *w)
{
    size_t n = w->n;
    w->n = 0;
    return mst_out_write(w->out, w->text, n);
}

static mst_status text_commit(mst_row_writer *self, const mst_data_info *info)
{
    text_rows *w = (text_rows *)self;
    (void)info;
    TRY(text_flush(w));
    return mst_out_commit(w->out);
}

/* Replaces the keys and values of a row by sorted ones, which live until the next call. */
static mst_status text_sort_row(text_rows *w, mst_row *row)
{
    mst_chunk_builder *b = &w->sorted;
    mst_chunk_builder_clear(b);
    TRY(mst_chunk_builder_room(b, row->n_keys));
    for (uint32_t j = 0; j < row->n_keys; j++)
        mst_chunk_builder_add(b, row->keys[j], row->values != NULL ? row->values[j] : 1.0f);
    TRY(mst_chunk_builder_end_row(b, row->label, row->weight));
    row->keys = b->keys;
    row->values = b->values;
    return MST_OK;
}

/* Adds a line for every row; `put` writes one, without its end, and returns where it ends. */
static mst_status text_add(mst_row_writer *self, const mst_chunk *chunk,
                           char *(*put)(char *p, const mst_row *row))
{
    text_rows *w = (text_rows *)self;
    for (uint32_t i = 0; i < chunk->n_rows; i++) {
        mst_row row;
        mst_chunk_row(chunk, i, &row);
        if (row.any_order && self->ops == &mst_row_writer_libsvm) /* its readers expect ascending indices */
            TRY(text_sort_row(w, &row));
        size_t n_features = (size_t)row.n_dense + row.n_keys;
        size_t need = 64 + 2 * MST_FLOAT_TEXT + n_features * (2 * KEY_TEXT + MST_FLOAT_TEXT);
        if (w->n >= FLUSH_BYTES)
            TRY(text_flush(w));
        if (!mst_grow(&w->text, &w->capacity, w->n + need, 1))
            return mst_fail_memory();
        char *end = put(w->text + w->n, &row);
        *end++ = '\n';
        w->n = (size_t)(end - w->text);
    }
    return MST_OK;
}

/* Adds up the values of `key` from entry *j on and steps over them: libsvm readers expect each index once. An
 * entry that would make the sum infinite stays. */
static float text_add_repeats(const mst_row *row, uint32_t key, uint32_t *j, float sum)
{
    for (; *j < row->n_keys && row->keys[*j] == key; ++*j) {
        float more = sum + (row->values != NULL ? row->values[*j] : 1.0f);
        if (!isfinite(more))
            break;
        sum = more;
    }
    return sum;
}

static char *put_pair(char *p, uint32_t key, float value)
{
    *p++ = ' ';
    p = put_u32(p, key);
    *p++ = ':';
    return put_float(p, value);
}

/* " key:value" for every feature; zero bytes of images are left out, other zeros are kept, and so is their
 * column. `once`: repeated keys are merged; otherwise they stay, and values of one are left out. */
static char *put_features(char *p, const mst_row *row, uint32_t base, bool once)
{
    for (uint32_t j = 0; j < row->n_dense; j++) {
        if (row->bytes == NULL || row->bytes[j] != 0)
            p = put_pair(p, j + base, mst_row_dense(row, j));
    }
    for (uint32_t j = 0; j < row->n_keys;) {
        uint32_t key = row->keys[j];
        float value = row->values != NULL ? row->values[j] : 1.0f;
        j++;
        if (once)
            value = text_add_repeats(row, key, &j, value);
        if (once || value != 1.0f) {
            p = put_pair(p, key + base, value);
        } else {
            *p++ = ' ';
            p = put_u32(p, key + base);
        }
    }
    return p;
}

static mst_status no_weights(const char *path, const char *format)
{
    return mst_fail(MST_EINPUT, "%s: %s cannot hold row weights: write vw, tfrecord or cache", path, format);
}

/* ---- libsvm ---- */

static char *libsvm_put(char *p, const mst_row *row)
{
    p = put_float(p, row->label);
    return put_features(p, row, 1, true);
}

static mst_status libsvm_add(mst_row_writer *self, const mst_chunk *chunk)
{
    if (chunk->has_weights)
        return no_weights(self->path, "libsvm text");
    return text_add(self, chunk, libsvm_put);
}

const mst_row_writer_ops mst_row_writer_libsvm = {
    .name = "libsvm",
    .help = "text: label index:value ..., indices from 1",
    .suffixes = ".svm .libsvm .txt",
    .size = sizeof(text_rows),
    .open = text_open,
    .add = libsvm_add,
    .commit = text_commit,
    .close = text_close,
};

/* ---- libffm ---- */

static char *libffm_put(char *p, const mst_row *row)
{
    p = put_float(p, row->label);
    for (uint32_t j = 0; j < row->n_dense + row->n_keys; j++) {
        bool dense = j < row->n_dense;
        uint32_t k = j - row->n_dense;
        float value = dense ? mst_row_dense(row, j) : row->values != NULL ? row->values[k] : 1.0f;
        *p++ = ' ';
        p = put_u32(p, dense ? j : mst_row_field(row, k));
        *p++ = ':';
        p = put_u32(p, dense ? j : row->keys[k]);
        *p++ = ':';
        p = put_float(p, value);
    }
    return p;
}

static mst_status libffm_add(mst_row_writer *self, const mst_chunk *chunk)
{
    if (chunk->has_weights)
        return no_weights(self->path, "libffm text");
    if (!chunk->fielded)
        return mst_fail(MST_EINPUT, "%s: the rows have no fields: write libsvm, tfrecord or cache",
                        self->path);
    return text_add(self, chunk, libffm_put);
}

const mst_row_writer_ops mst_row_writer_libffm = {
    .name = "libffm",
    .help = "text: label field:index:value ..., numbered from 0",
    .suffixes = ".ffm .libffm",
    .size = sizeof(text_rows),
    .open = text_open,
    .add = libffm_add,
    .commit = text_commit,
    .close = text_close,
};

/* ---- Vowpal Wabbit ---- */

static char *vw_put(char *p, const mst_row *row)
{
    p = put_float(p, row->label);
    if (row->weight != 1.0f) {
        *p++ = ' ';
        p = put_float(p, row->weight);
    }
    *p++ = ' ';
    *p++ = '|';
    return put_features(p, row, 0, false);
}

static mst_status vw_add(mst_row_writer *self, const mst_chunk *chunk)
{
    return text_add(self, chunk, vw_put);
}

const mst_row_writer_ops mst_row_writer_vw = {
    .name = "vw",
    .help = "Vowpal Wabbit text: label [weight] | index[:value] ..., indices from 0 as names",
    .suffixes = ".vw",
    .size = sizeof(text_rows),
    .open = text_open,
    .add = vw_add,
    .commit = text_commit,
    .close = text_close,
};

/* ---- Criteo ---- */

static char *put_hex(char *p, uint32_t v)
{
    for (int shift = 28; shift >= 0; shift -= 4)
        *p++ = "0123456789abcdef"[v >> shift & 15];
    return p;
}

/* The logarithm of the generator is undone: integers are exp(value) - 1. */
static char *criteo_put(char *p, const mst_row *row)
{
    *p++ = row->label > 0 ? '1' : '0';
    for (uint32_t j = 0; j < CRITEO_INTEGERS; j++) {
        float x = expm1f(row->dense[j] < 0 ? 0 : row->dense[j] > 20 ? 20 : row->dense[j]);
        *p++ = '\t';
        p = put_u32(p, (uint32_t)(x + 0.5f));
    }
    for (uint32_t j = 0; j < CRITEO_KEYS; j++) {
        *p++ = '\t';
        p = put_hex(p, row->keys[j]);
    }
    return p;
}

static mst_status criteo_add(mst_row_writer *self, const mst_chunk *chunk)
{
    if (chunk->has_weights)
        return no_weights(self->path, "Criteo text");
    for (uint32_t i = 0; i < chunk->n_rows; i++) {
        mst_row row;
        mst_chunk_row(chunk, i, &row);
        if (row.n_dense != CRITEO_INTEGERS || row.dense == NULL || row.n_keys != CRITEO_KEYS ||
            row.values != NULL)
            return mst_fail(MST_EINPUT,
                            "%s: row %llu does not fit Criteo's columns, 13 numbers and 26 categories: write "
                            "libsvm, tfrecord or cache",
                            self->path, (unsigned long long)self->n_rows + i + 1);
    }
    return text_add(self, chunk, criteo_put);
}

const mst_row_writer_ops mst_row_writer_criteo = {
    .name = "criteo",
    .help = "Criteo's tab-separated text: label, 13 integers (exp(value) - 1), 26 categories in hex",
    .suffixes = ".tsv",
    .size = sizeof(text_rows),
    .open = text_open,
    .add = criteo_add,
    .commit = text_commit,
    .close = text_close,
};
