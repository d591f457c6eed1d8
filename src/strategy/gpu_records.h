/* The records of a dataset on a GPU: threads copy its chunks there, in the order of the epoch and a bounded
 * number ahead of the rows in use, each chunk once, and number the rows of the epoch ahead. A block of rows
 * is then made from the numbers of its rows alone.
 *
 * A chunk is copied to pinned memory as it is, and the copy is compared with its checksum. The GPU unpacks
 * rows and checks their numbers and keys.
 *
 * Thread: one thread makes every call but new and destroy, and these while it makes none. Between pause and
 * begin, numbers or wait no thread uses the feed. */
#ifndef MST_STRATEGY_GPU_RECORDS_H
#define MST_STRATEGY_GPU_RECORDS_H

#include "cuda/cuda_sparse.h"
#include "data/feed.h"
#include "model/model.h"

typedef struct mst_gpu_records_options {
    const mst_cuda_sparse_ops *ops;
    mst_cuda_sparse *gpu; /* must outlive the records */
    const mst_model *model;
    uint32_t head; /* keys below it are in every row, or count as 0 there */
    bool apart;    /* rows that have the whole head may have it as an array */
    unsigned n_threads;
} mst_gpu_records_options;

typedef struct mst_gpu_records mst_gpu_records;

/* The dataset of the feed must outlive the records. *out is NULL where the GPU cannot take them: datasets
 * without random access or with chunks of different parts, more than its memory holds. Otherwise it is the
 * caller's to destroy. */
mst_status mst_gpu_records_new(const mst_gpu_records_options *options, mst_feed *feed, mst_gpu_records **out);
void mst_gpu_records_destroy(mst_gpu_records *self); /* NULL-safe */

/* An epoch of the feed, or its rest from the position on, begins. */
void mst_gpu_records_begin(mst_gpu_records *self, uint64_t position);
/* Returns when no thread uses the feed; the threads go on at the next begin, wait or numbers. NULL-safe. */
void mst_gpu_records_pause(mst_gpu_records *self);

/* Waits until the chunks of the positions below `to` are on their way to the GPU; MST_ETIMEOUT after 600 s
 * without a chunk. *usable is false if a chunk has rows that the GPU cannot take; the records are of no use
 * then. */
mst_status mst_gpu_records_wait(mst_gpu_records *self, uint64_t to, bool *usable);
/* The numbers of the rows at n positions: from that of begin on, one call after the other. Only if
 * mst_gpu_records_ordered. */
mst_status mst_gpu_records_numbers(mst_gpu_records *self, uint64_t position, uint32_t n, uint32_t *out);
/* Whether the order of the chunks gives the numbers of rows (mst_feed_window_at); otherwise claims do. */
bool mst_gpu_records_ordered(const mst_gpu_records *self);
/* After the GPU found a bad row: MST_EINPUT with a sentence that names it, or MST_OK if all rows are good. */
mst_status mst_gpu_records_explain(mst_gpu_records *self);

/* Whether all rows have the same number of entries. */
bool mst_gpu_records_uniform(const mst_gpu_records *self);
/* The number of entries of a row. */
uint32_t mst_gpu_records_entries(const mst_gpu_records *self, uint32_t number);
/* Describes a block of these rows; n_entries is the caller's to set where rows differ. */
void mst_gpu_records_describe(mst_gpu_records *self, uint32_t n_rows, mst_cuda_sparse_rows *rows);

#endif
