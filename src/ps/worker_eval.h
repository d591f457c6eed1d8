/* Evaluation by the chief, on a thread of its own.
 *
 * The thread opens the evaluation sets and returns the key list of the weights that they touch; the owner of
 * the net sends every server its share of the list. At each cut the servers send the values of their shares,
 * which are collected in a buffer of the cut; the whole buffer goes to the thread, which returns the figures.
 * The owner never waits for any of this, and the thread never uses the net except to wake it.
 *
 * Ownership: a cut belongs to the owner of the net until it is pushed to `todo`, and again once it is popped
 * from `done`; the list belongs to the thread until the sets are opened. */
#ifndef MST_PS_WORKER_EVAL_H
#define MST_PS_WORKER_EVAL_H

#include <pthread.h>

#include "base/queue.h"
#include "ps/placement.h"
#include "ps/worker_report.h"

#define MST_WORKER_CUTS 8 /* evaluations that may be under way */

/* One evaluation. */
typedef struct mst_eval_cut {
    bool opening; /* opens the sets: no values */
    uint32_t cut;
    uint64_t step;      /* the version of its values, as server 0 counts */
    uint32_t n_missing; /* servers whose values have not arrived */
    bool *here;         /* by server */
    float *values;
    json_t *result;
    mst_status status;
    mst_error error;
    double seconds;
} mst_eval_cut;

typedef struct mst_worker_eval {
    const mst_worker_job *job;
    mst_worker_link *link;
    mst_worker_report *report;
    const mst_placement *table;
    bool chief, started, opened, failed, empty;
    uint64_t pass; /* of the chief, for EVAL_LIST */
    pthread_t thread;
    mst_queue *todo, *done; /* mst_eval_cut */
    mst_key_list list;
    mst_key_list *shares; /* by server, as the next two; keys point into list */
    uint32_t *first_keys; /* number of its first key in the list */
    uint8_t **staging;    /* values of its share as they arrive */
    uint32_t key_start;
    uint64_t floats;
    mst_eval_cut *cuts[MST_WORKER_CUTS];
    uint32_t announced,
        answered; /* the last cuts to evaluate that were announced and answered, for an empty list */
} mst_worker_eval;

/* Inside events: room for values; values have arrived, *whole is set if all of the cut have; a cut is to be
 * evaluated. */
mst_status mst_worker_eval_body(mst_worker_eval *self, uint32_t server, const mst_message *m, void **out);
mst_status mst_worker_eval_values(mst_worker_eval *self, uint32_t server, const mst_message *m, bool *whole);
void mst_worker_eval_announce(mst_worker_eval *self, uint32_t cut);
/* Between polls: starts the thread, sends the list, sends results. */
mst_status mst_worker_eval_attend(mst_worker_eval *self);
/* Ends the thread, also during an evaluation. */
void mst_worker_eval_fini(mst_worker_eval *self);

#endif
