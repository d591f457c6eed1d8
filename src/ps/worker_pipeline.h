/* A worker's requests in flight: pull, compute, push.
 *
 * A request is FREE, PREPARED, PULLED and FREE again: its push travels with the pull of the next request. If
 * there is no next batch, the push travels alone, and the request is PUSHED until its reply arrives.
 *
 * Invariants
 * 1. At most pipeline + 1 requests are in flight; replies are awaited in the order of the requests.
 * 2. One request is free or prepared at any time, so that the next batch is localised while replies are under
 * way.
 * 3. The gradient of a request is sent with the pull of the next request, whose reply is awaited before this
 * request is computed again: one gradient buffer per request is enough. Without a pipeline the next request
 * is also the next to be computed, and one buffer is enough for all, except with several servers of which one
 * may answer before another has received the whole push.
 * 4. When communication overlaps, a batch is computed while its weights are arriving; its reply is complete
 * before it is used otherwise.
 * 5. A pull travels alone only when fewer than pipeline + 1 requests are in flight; without a pipeline it
 * therefore returns weights that include the worker's own last update.
 *
 * Thread: the training thread. */
#ifndef MST_PS_WORKER_PIPELINE_H
#define MST_PS_WORKER_PIPELINE_H

#include "ps/worker_histograms.h"
#include "tensor/row_localiser.h"

typedef enum mst_worker_request_state {
    MST_WORKER_FREE,
    MST_WORKER_PREPARED, /* rows are taken and localised */
    MST_WORKER_PULLED,   /* the pull is sent */
    MST_WORKER_PUSHED,   /* the push is sent without a pull */
} mst_worker_request_state;

/* Request i uses lane i of the feed and bank i of the localiser. */
typedef struct mst_worker_request {
    mst_worker_request_state state;
    mst_worker_batch batch; /* with localised rows */
    mst_row *rows;          /* room for a batch's localised rows */
    /* The push whose reply this request waits for: */
    bool carries_push;
    uint32_t push_rows;
    mst_loss_sum push_loss;
    uint64_t push_version; /* of the weights that its gradient was computed on */
} mst_worker_request;

typedef struct mst_worker_pipeline {
    const mst_worker_job *job;
    mst_identity self;
    uint32_t stall_timeout_ms;
    mst_worker_link *link;
    mst_worker_rows *rows;
    mst_worker_gradient *gradient;
    mst_worker_histograms *histograms;
    mst_worker_counts *counts;
    mst_client *client;
    mst_row_localiser *localiser; /* NULL: no sparse weights, or --dense-model */
    mst_worker_request *requests;
    uint32_t n_requests;
    uint32_t flight[MST_LISTS]; /* requests that wait for a reply, oldest first */
    uint32_t n_flight;
    uint32_t prepared; /* a request, or MST_NO_REQUEST */
    uint64_t own_steps;
    uint64_t version; /* of the newest reply */
} mst_worker_pipeline;

/* max_rows: of a batch. With the gradient's layout known. */
mst_status mst_worker_pipeline_init(mst_worker_pipeline *self, uint32_t max_rows);
void mst_worker_pipeline_fini(mst_worker_pipeline *self);

/* Keys that the first batches touch, for the partition table: a new reference, or NULL in *out for a model
 * without sparse weights. */
mst_status mst_worker_pipeline_sample(mst_worker_pipeline *self, json_t **out);

/* Trains until there is no more work, or the coordinator ends the job. */
mst_status mst_worker_pipeline_run(mst_worker_pipeline *self);

#endif
