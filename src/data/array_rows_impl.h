/* Shared by array_rows.c, which makes rows and datasets of arrays, and array_check.c, which checks and
 * converts them; no other file includes this. */
#ifndef MST_DATA_ARRAY_ROWS_IMPL_H
#define MST_DATA_ARRAY_ROWS_IMPL_H

#include "data/array_rows.h"

#define ARRAY_CHUNK_ROWS 1024

/* Facts about the rows of a chunk. */
typedef struct mst_array_facts {
    uint32_t max_key, max_field;
    uint64_t n_entries, n_positive;
    float min_label, max_label;
    bool any_order;
    bool valued, tail_valued; /* a value, one of a key behind the prefix, is not 1 */
    bool short_prefix;        /* a row does not have the prefix */
} mst_array_facts;

struct mst_array_rows {
    atomic_uint references;
    char *name;
    mst_array_spec spec; /* name and arrays are not used after the check */
    mst_row_arrays arrays;
    void *owned[7]; /* converted and sorted arrays */
    unsigned n_owned;
    mst_chunk *chunks; /* templates, with the facts: their references are not counted */
    uint32_t n_chunks;
    mst_data_info info;
};

typedef struct mst_array_check {
    mst_array_rows *rows;
    mst_array_facts *facts;
    atomic_uint next;
    float *labels, *weights, *dense, *values; /* converted; or NULL */
    uint32_t *keys;
    uint32_t prefix;            /* that every row may have (mst_row_arrays.prefix) */
    _Atomic uint64_t first_bad; /* chunk; UINT64_MAX: none */
} mst_array_check;

/* Rows follow each other and end at n_entries; from here on a row's entries may be read. */
mst_status mst_array_check_starts(const mst_array_rows *self);

/* The prefix that a sample of rows has (mst_row_arrays.prefix). Rows with fields keep their keys, and so do
 * rows without values. */
uint32_t mst_array_sample_prefix(const mst_array_rows *self);

/* Checks and converts all rows and fills in the facts. */
mst_status mst_array_check_run(mst_array_rows *self, mst_array_check *check, unsigned n_threads);

#endif
