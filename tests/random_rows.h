/* Random rows of every kind, for tests. Every array of a row is a separate allocation of exactly its length,
 * so the address sanitizer detects a read beyond it. */
#ifndef MST_TESTS_RANDOM_ROWS_H
#define MST_TESTS_RANDOM_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/rng.h"
#include "tensor/batch.h"

typedef enum row_kind {
    ROWS_DENSE,        /* floats only */
    ROWS_BYTES,        /* bytes only */
    ROWS_ONES,         /* keys without values */
    ROWS_VALUES,       /* keys with values */
    ROWS_MIXED,        /* dense floats, then keys with values */
    ROWS_MIXED_BYTES,  /* bytes, then keys without values */
    ROWS_ANY_ORDER,    /* dense floats, then keys with values in any order */
    ROWS_SHORT_PREFIX, /* a dense prefix shorter than n_dense, then keys that begin inside the rest of it */
    ROWS_KINDS,
} row_kind;

static const char *const row_kind_names[ROWS_KINDS] = {"dense", "bytes",       "ones",      "values",
                                                       "mixed", "mixed bytes", "any order", "short prefix"};

typedef struct random_rows {
    mst_row *rows;
    uint32_t n_rows;
} random_rows;

typedef struct rows_spec {
    row_kind kind;
    uint32_t n_rows;
    uint32_t n_dense;    /* of the kinds that have a dense prefix */
    uint32_t n_features; /* above n_dense where there are keys */
    uint32_t n_keys;     /* keys per row; rows differ a little around it */
    uint32_t n_classes;  /* 2: labels -1, 0, 1; more: a class number */
    uint32_t n_fields;   /* above n_dense: keys get fields at random, or consecutive ones; 0: none */
    bool weighted;       /* weights other than one, zero among them */
    uint64_t seed;
} rows_spec;

static inline void *row_block(size_t n, size_t size)
{
    void *block = malloc(n * size + (n == 0));
    if (block == NULL)
        abort();
    return block;
}

static inline float row_value(mst_rng *rng)
{
    return (float)(mst_rng_uniform(rng) * 4.0 - 2.0);
}

/* Ascending keys in [low, high), some of them repeated. */
static inline void row_keys(mst_rng *rng, uint32_t *keys, uint32_t n, uint32_t low, uint32_t high)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t key = low + mst_rng_below(rng, high - low), at = i;
        for (; at > 0 && keys[at - 1] > key; at--)
            keys[at] = keys[at - 1];
        keys[at] = key;
    }
    for (uint32_t i = 1; i < n; i++)
        if (mst_rng_below(rng, 6) == 0)
            keys[i] = keys[i - 1];
}

static inline void random_row(const rows_spec *s, mst_rng *rng, mst_row *row)
{
    bool sparse = s->kind != ROWS_DENSE && s->kind != ROWS_BYTES;
    bool bytes = s->kind == ROWS_BYTES || s->kind == ROWS_MIXED_BYTES;
    bool prefix = s->kind != ROWS_ONES && s->kind != ROWS_VALUES;
    *row = (mst_row){.n_dense = prefix ? s->n_dense : 0, .weight = 1.0f};
    if (s->kind == ROWS_SHORT_PREFIX)
        row->n_dense /= 2;
    if (row->n_dense != 0 && bytes) {
        uint8_t *b = row_block(row->n_dense, 1);
        for (uint32_t i = 0; i < row->n_dense; i++)
            b[i] = (uint8_t)mst_rng_below(rng, 256);
        row->bytes = b;
    } else if (row->n_dense != 0) {
        float *x = row_block(row->n_dense, sizeof *x);
        for (uint32_t i = 0; i < row->n_dense; i++)
            x[i] = row_value(rng);
        row->dense = x;
    }
    if (sparse) {
        row->n_keys = s->n_keys == 0 ? 0 : s->n_keys - mst_rng_below(rng, s->n_keys < 4 ? s->n_keys : 4);
        uint32_t *keys = row_block(row->n_keys, sizeof *keys);
        row_keys(rng, keys, row->n_keys,
                 s->kind == ROWS_SHORT_PREFIX ? row->n_dense
                 : prefix                     ? s->n_dense
                                              : 0,
                 s->n_features);
        row->any_order = s->kind == ROWS_ANY_ORDER;
        for (uint32_t i = row->n_keys; row->any_order && i > 1; i--) {
            uint32_t other = mst_rng_below(rng, i), key = keys[i - 1];
            keys[i - 1] = keys[other];
            keys[other] = key;
        }
        row->keys = keys;
        if (s->kind == ROWS_VALUES || s->kind == ROWS_MIXED || s->kind == ROWS_ANY_ORDER ||
            s->kind == ROWS_SHORT_PREFIX) {
            float *values = row_block(row->n_keys, sizeof *values);
            for (uint32_t i = 0; i < row->n_keys; i++)
                values[i] = row_value(rng);
            row->values = values;
        }
        if (s->n_fields != 0) {
            uint16_t *fields = row_block(row->n_keys, sizeof *fields);
            bool follow = row->n_keys <= s->n_fields && mst_rng_below(rng, 2) == 0;
            for (uint32_t i = 0; i < row->n_keys; i++)
                fields[i] =
                    (uint16_t)(follow ? s->n_fields - row->n_keys + i : mst_rng_below(rng, s->n_fields));
            row->fields = fields;
        }
    }
    row->label =
        s->n_classes > 2 ? (float)mst_rng_below(rng, s->n_classes) : (float)mst_rng_below(rng, 3) - 1.0f;
    if (s->weighted)
        row->weight = mst_rng_below(rng, 5) == 0 ? 0.0f : (float)(mst_rng_uniform(rng) * 3.0);
}

static inline random_rows random_rows_make(const rows_spec *spec)
{
    random_rows r = {.rows = row_block(spec->n_rows, sizeof *r.rows), .n_rows = spec->n_rows};
    mst_rng rng;
    mst_rng_init(&rng, spec->seed, MST_RNG_TEST, (uint64_t)spec->kind);
    for (uint32_t i = 0; i < r.n_rows; i++)
        random_row(spec, &rng, &r.rows[i]);
    return r;
}

static inline void random_rows_free(random_rows *r)
{
    for (uint32_t i = 0; i < r->n_rows; i++) {
        free((void *)r->rows[i].dense);
        free((void *)r->rows[i].bytes);
        free((void *)r->rows[i].keys);
        free((void *)r->rows[i].values);
        free((void *)r->rows[i].fields);
    }
    free(r->rows);
    *r = (random_rows){0};
}

/* A row's dense feature i, in double precision. */
static inline double row_dense(const mst_row *row, uint32_t i)
{
    return row->bytes ? (double)row->bytes[i] / 255.0 : (double)row->dense[i];
}

/* A row's sparse entry i, in double precision. */
static inline double row_sparse(const mst_row *row, uint32_t i)
{
    return row->values ? (double)row->values[i] : 1.0;
}

#endif
