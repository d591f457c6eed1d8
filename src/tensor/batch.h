/* A batch: rows as a model sees them, wherever their numbers are stored.
 *
 * A row is a dense prefix plus a sparse tail: features [0, n_dense) are all present, as floats or as bytes
 * that stand for byte/255; features from n_dense on are (key, value) pairs in ascending key order, or in the
 * order of their fields (any_order), where a key may repeat (its values add up) and values that are all one
 * are not stored. Either part may be empty, so this is both the dense and the CSR batch, and "13 numeric
 * columns + 26 categories" is neither padded nor unpacked. */
#ifndef MST_TENSOR_BATCH_H
#define MST_TENSOR_BATCH_H

#include <stdbool.h>
#include <stdint.h>

typedef struct mst_row {
    const float *dense;     /* n_dense floats; NULL when bytes are given or n_dense is 0 */
    const uint8_t *bytes;   /* n_dense bytes, each standing for byte/255; or NULL */
    const uint32_t *keys;   /* n_keys */
    const float *values;    /* n_keys, or NULL: all one */
    const uint16_t *fields; /* n_keys: the field of each key; NULL: see mst_row_field */
    uint32_t n_dense, n_keys;
    float label;    /* as found in the data: -1/0/+1, or a class number */
    float weight;   /* importance; 1 unless the data sets it */
    bool any_order; /* in the order of their fields: keys need not ascend, but all are beyond the
                       model's dense prefix */
} mst_row;

/* Rows as records of words, one after the other (data/chunk.h), all with the same parts and as many keys. */
typedef struct mst_records {
    const uint32_t *words; /* of the first record; NULL: there are none */
    uint32_t n;            /* records */
    uint32_t stride;       /* words of each */
    bool weighted;         /* the second word is the weight */
    mst_row first;         /* the row of the first record */
} mst_records;

/* Dense feature i as a number. */
static inline float mst_row_dense(const mst_row *row, uint32_t i)
{
    return row->bytes != NULL ? (float)row->bytes[i] / 255.0f : row->dense[i];
}

/* The field of key i, in data that has fields (mst_shape.n_fields). Numbers of the dense prefix are fields of
 * their own, [0, n_dense); where every row has one key per field, keys are in the order of the fields and
 * nothing is stored. */
static inline uint32_t mst_row_field(const mst_row *row, uint32_t i)
{
    return row->fields != NULL ? row->fields[i] : row->n_dense + i;
}

typedef struct mst_batch {
    const mst_row *rows;
    uint32_t n_rows;
} mst_batch;

/* Rows [from, from + n), limited to the end of the batch. */
static inline mst_batch mst_batch_range(const mst_batch *batch, uint32_t from, uint32_t n)
{
    uint32_t left = batch->n_rows - from;
    return (mst_batch){.rows = batch->rows + from, .n_rows = left < n ? left : n};
}

/* True for a positive label of a binary model: +1 as against 0 or -1. */
static inline bool mst_label_positive(float label)
{
    return label > 0.0f;
}

/* The class a label stands for: 0 also for the -1 of binary data. */
static inline uint32_t mst_label_class(float label)
{
    return label > 0.0f ? (uint32_t)label : 0;
}

#endif
