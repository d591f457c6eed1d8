/* Rows for sparse models on a GPU: a thread takes rows from the feed and packs them into blocks in pinned
 * memory, ahead of the training thread by a few blocks; `next` lets the GPU prepare a block. A team of
 * threads shares the packing. Records of datasets with random access are copied to the GPU as they are where
 * they fit (gpu_records.h), and stay there; blocks then need the numbers of rows only.
 *
 * Thread: one thread makes every call. Between pause and resume no thread uses the feed. */
#ifndef MST_STRATEGY_GPU_ROWS_H
#define MST_STRATEGY_GPU_ROWS_H

#include "cuda/cuda_sparse.h"
#include "data/feed.h"
#include "model/model.h"

typedef struct mst_gpu_rows_options {
    const mst_cuda_sparse_ops *ops;
    mst_cuda_sparse *gpu; /* must outlive the rows */
    const mst_model *model;
    uint32_t head; /* keys below it are in every row, or count as 0 there */
    bool splits;   /* --clip-norm: the GPU takes entries only */
    unsigned n_threads;
    uint32_t batch, block_steps;
} mst_gpu_rows_options;

/* A block that the GPU prepares or has prepared. */
typedef struct mst_gpu_block {
    uint32_t at; /* its number, for train */
    uint32_t n_rows;
    uint64_t position; /* of its first row */
} mst_gpu_block;

typedef struct mst_gpu_rows mst_gpu_rows;

/* *out is the caller's to destroy; set only on MST_OK. */
mst_status mst_gpu_rows_new(const mst_gpu_rows_options *options, mst_gpu_rows **out);
void mst_gpu_rows_destroy(mst_gpu_rows *self); /* NULL-safe; paused */

/* Before the first resume: makes room on the GPU for the records of the feed, which is started, and lets it
 * rehearse every block with rules for block_steps steps. The weights on the GPU change. */
mst_status mst_gpu_rows_ready(mst_gpu_rows *self, mst_feed *feed, const mst_cuda_sparse_rules *rules);

/* Packs rows of the feed, at most `rows` beyond those of blocks that are ready; after the end of an epoch, of
 * the one that was started meanwhile. position: of the first row, if no block is ready. */
void mst_gpu_rows_resume(mst_gpu_rows *self, mst_feed *feed, uint64_t rows, uint64_t position);
/* Returns when the thread has stopped packing; ready blocks stay. */
void mst_gpu_rows_pause(mst_gpu_rows *self);

/* The first ready block, which the GPU prepares; it stays the first until release; *out is NULL at the
 * deadline, at the end of the epoch (*ended), or when the rows of resume are packed. Waits while the thread
 * packs. */
mst_status mst_gpu_rows_next(mst_gpu_rows *self, uint64_t deadline_ns, const mst_gpu_block **out,
                             bool *ended);
/* Paused, after the GPU found a bad row: MST_EINPUT with a sentence that names it, or MST_OK if that is not
 * known. */
mst_status mst_gpu_rows_explain(mst_gpu_rows *self);
/* The first block is no longer needed once its steps are done. */
void mst_gpu_rows_release(mst_gpu_rows *self);

#endif
