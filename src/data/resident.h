/* A resident dataset: fixed-size dense rows, all in memory as finished records, so that loading a chunk is a
 * matter of a reference count. For formats of images with a known number of rows (idx.c, cifar.c): they make
 * one, fill its records and finish it. */
#ifndef MST_DATA_RESIDENT_H
#define MST_DATA_RESIDENT_H

#include "data/dataset.h"

#define MST_RESIDENT_ROWS 1024 /* rows per chunk */

/* Rows of n_dense numbers, as bytes or floats. The region is reserved lazily, so that a wrong header costs
 * address space only, and starts as zeros, padding included. name is copied, and is for messages. *out is the
 * caller's to destroy; set only on MST_OK. MST_ENOMEM when the rows do not fit. */
mst_status mst_resident_new(const mst_data_kind *kind, const char *name, uint64_t n_rows, uint32_t n_dense,
                            bool bytes, mst_dataset **out);

/* The start of row `row`: a label (float), then n_dense bytes or floats. Only before finish. */
uint32_t *mst_resident_record(mst_dataset *self, uint64_t row);

/* Splits the finished records into chunks and fills info, except for bytes and the sides of images; subtracts
 * labels_from from the labels, none of which may be below it. Chunks may outlive the dataset. */
mst_status mst_resident_finish(mst_dataset *self, int64_t labels_from);

#endif
