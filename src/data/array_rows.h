/* Rows in arrays of the program: a dense matrix, a CSR matrix, or both side by side (a dense prefix and a
 * sparse tail). They are checked once; then any number of datasets read them in place.
 *
 * Arrays of these types are used where they are: dense numbers of float32 and uint8, starts of int32 and
 * int64, keys of int32 and uint32, values, labels and weights of float32. Other types are converted once, to
 * 4 bytes per number, when the rows are made. Rows without fields whose keys do not ascend are copied and
 * sorted then, too. */
#ifndef MST_DATA_ARRAY_ROWS_H
#define MST_DATA_ARRAY_ROWS_H

#include "data/dataset.h"

typedef enum mst_array_type {
    MST_ARRAY_NONE,
    MST_ARRAY_FLOAT32,
    MST_ARRAY_FLOAT64,
    MST_ARRAY_UINT8,
    MST_ARRAY_INT32,
    MST_ARRAY_UINT32,
    MST_ARRAY_INT64,
} mst_array_type;

typedef struct mst_array {
    const void *data;
    mst_array_type type; /* NONE: there is no such array */
} mst_array;

typedef struct mst_array_spec {
    const char *name; /* for messages */
    uint64_t number;  /* of the first row in messages */
    uint64_t n_rows, n_features;
    mst_array dense;  /* n_rows x n_dense; features [0, n_dense) */
    uint32_t n_dense; /* 0: no dense numbers */
    uint64_t stride;  /* numbers from a dense row to the next; 0: n_dense */
    mst_array starts; /* n_rows + 1; NONE: no keys */
    mst_array keys;   /* n_entries, each in [n_dense, n_features), in any order */
    mst_array values; /* n_entries; NONE: all are 1 */
    uint64_t n_entries;
    const uint16_t *fields;           /* n_entries, or NULL: key i of a row is of field n_dense + i */
    uint32_t n_fields;                /* with the dense numbers; 0: rows have no fields */
    mst_array labels;                 /* n_rows: 0, 1, ..., n_classes - 1; NONE: all are 0 */
    mst_array weights;                /* n_rows; NONE: all are 1 */
    uint32_t n_classes;               /* at least 2 */
    uint32_t channels, height, width; /* of images: the product is n_dense; 0: no images */
} mst_array_spec;

typedef struct mst_array_rows mst_array_rows;

/* Checks every row and converts arrays, with n_threads. The arrays must stay as they are as long as the rows
 * exist. *out has one reference. MST_EUSAGE or MST_EINPUT with a sentence that names the row. */
mst_status mst_array_rows_new(const mst_array_spec *spec, unsigned n_threads, mst_array_rows **out);

/* To use rows once, some at a time, while they are in the cache of the processor: checks the types, the sizes
 * and the starts of rows alone. */
mst_status mst_array_spec_check(const mst_array_spec *spec);
/* Rows [first, first + n) of a spec that was checked so, for mst_array_rows_new. starts: memory for n + 1
 * numbers, which must live as long as the rows. */
void mst_array_spec_slice(const mst_array_spec *spec, uint64_t first, uint32_t n, int64_t *starts,
                          mst_array_spec *out);
mst_array_rows *mst_array_rows_hold(mst_array_rows *self);
void mst_array_rows_release(mst_array_rows *self); /* NULL-safe; any thread */

/* A dataset of the rows, which holds a reference to them; *out is the caller's to destroy. */
mst_status mst_array_rows_open(mst_array_rows *self, const char *name, mst_dataset **out);

/* For readers without a feed: the facts, the columns of the dense matrix, and row `number`. Of a CSR matrix
 * whose rows all begin with the same columns 0, 1, ..., these are a dense prefix, unless it is longer than
 * max_dense. */
const mst_data_info *mst_array_rows_info(const mst_array_rows *self);
const char *mst_array_rows_name(const mst_array_rows *self);
uint32_t mst_array_rows_dense(const mst_array_rows *self);
void mst_array_rows_get(const mst_array_rows *self, uint64_t number, uint32_t max_dense, mst_row *row);

#endif
