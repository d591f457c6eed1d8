/* A worker's work items, and the batches of rows that they become.
 *
 * Items are used in the order in which they arrive. A slice is one batch. A lease is a range of the feed,
 * taken batch by batch; the next lease extends it if it continues it. A grant allows rows of the worker's own
 * stream: one batch with the step's number in synchronous training, otherwise a number of rows.
 *
 * When the worker's own stream reaches the end of its epoch, the coordinator is informed once: with a batch
 * without rows whose push is marked exhausted (sync), or with a WANT after all pushes are answered (async).
 * Grants of that epoch that are still waiting are void.
 *
 * Thread: the owner of the net. Waiting: for the feed only. */
#ifndef MST_PS_WORKER_ROWS_H
#define MST_PS_WORKER_ROWS_H

#include "ps/worker_link.h"

#define MST_WORKER_ITEMS 256 /* work items that may be waiting */

typedef struct mst_worker_rows {
    const mst_worker_job *job;
    mst_worker_link *link;
    uint32_t index;    /* of the worker */
    uint32_t max_rows; /* of a batch */
    mst_work items[MST_WORKER_ITEMS];
    uint32_t first_item, n_items;
    bool begun;             /* the feed is at `at` of `epoch` */
    uint64_t stream_from;   /* position of the own stream at which the first epoch begins */
    uint64_t epoch, at, to; /* leases and slices: position of the feed; leases: the end of the range */
    uint64_t granted;       /* rows of the own stream that may be taken */
    uint64_t last_lease;    /* rows of the last lease or grant */
    bool late;              /* the own stream's next rows have not arrived */
    bool epoch_over;        /* the own stream has no more rows in this epoch, */
    bool epoch_over_sent;   /* and the coordinator has been informed (async) */
    bool on_request;        /* work comes on request: leases, or grants of asynchronous training */
    bool requested;
    bool requested_idle; /* with nothing in flight */
    bool stopped;        /* no new batch is begun */
    bool leaving;        /* no more work is requested: the worker leaves when it has none */
    bool abandoned;      /* the feed was stopped, or no answer follows: requests in flight are given up */
} mst_worker_rows;

/* A batch to train on. */
typedef struct mst_worker_batch {
    mst_batch batch;
    uint64_t step;      /* given by the coordinator; 0: not */
    uint64_t first_row; /* position of the batch in the step's global batch */
    bool exhausted;     /* no rows: the own stream has reached the end of its epoch */
} mst_worker_batch;

mst_status mst_worker_rows_add(mst_worker_rows *self, const mst_work *work);
/* Takes the next batch with a lane of the feed; *taken false: there is no work. */
mst_status mst_worker_rows_take(mst_worker_rows *self, uint32_t lane, mst_worker_batch *out, bool *taken);
/* Nothing is in flight and there is no work: requests more, once. The coordinator concludes that all rows it
 * gave are done (and that the own stream's epoch is over), and sends work when there is some. */
mst_status mst_worker_rows_request_idle(mst_worker_rows *self);
/* Forgets the items and rows that no batch has been made of. */
void mst_worker_rows_drop(mst_worker_rows *self);

#endif
