/* Requests that arrive together are scored together: a net computes a batch of rows faster than the same rows
 * one by one. While a batch is computed, requests collect for the next one; nothing waits for a batch to
 * fill.
 *
 * Linear models and factorization machines gain nothing from it, and are scored by the thread that has read
 * the request (docs/SERVING.md has the figures). */
#ifndef MST_SERVE_BATCHER_H
#define MST_SERVE_BATCHER_H

#include "serve/predict_job.h"

typedef struct mst_batcher mst_batcher;

/* The job has scores, or st is the reason why not, with its message in the error of this thread: that of the
 * batcher. The job may be used from here on. */
typedef void mst_batch_done(void *arg, mst_job *job, mst_status st);

typedef struct mst_batcher_options {
    unsigned n_threads;  /* for one batch, where mst_model_threads; otherwise batches at a time */
    uint64_t queue_rows; /* that may wait */
    mst_batch_done *done;
    void *arg;
} mst_batcher_options;

/* Whether the model is scored faster in batches. */
bool mst_batcher_helps(const mst_model *model);

/* Starts the threads; model: the first that it will be used for. */
mst_status mst_batcher_new(const mst_batcher_options *options, const mst_model *model, mst_batcher **out);
/* Waits for the jobs in the queue; from here on it takes no more. */
void mst_batcher_stop(mst_batcher *self); /* NULL-safe */
/* Stops it first. NULL-safe. */
void mst_batcher_destroy(mst_batcher *self);

/* Any thread. False: the queue is full, and the job is still the caller's. due_ns: after that time the job is
 * not computed, but done with MST_ETIMEOUT. */
bool mst_batcher_submit(mst_batcher *self, mst_job *job, uint64_t due_ns);

/* Batches computed so far, and their rows. */
void mst_batcher_count(mst_batcher *self, uint64_t *batches, uint64_t *rows);

#endif
