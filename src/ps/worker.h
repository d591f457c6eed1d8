/* A worker of the parameter server: takes rows, pulls the weights they touch, computes, pushes the gradient.
 *
 *   mst_worker_new   connects to the servers and hears from the coordinator what the job is
 *   mst_worker_run   joins with what its data look like, trains until the coordinator ends the job
 *
 * Work comes from the coordinator as items (proto.h): slices of synchronous steps, leases of rows, or grants
 * of rows of the worker's own stream. Batch t + 1 is localised while the reply to batch t is under way; with
 * a pipeline of K, K + 1 requests are in flight.
 *
 * Thread: the caller's thread does everything but evaluation, which runs on a thread of its own so that
 * nobody waits for it, and what overlaps with computing a large model. Waiting: at most stall_timeout for
 * anything the servers owe, with a sentence that names them; a server that goes down is MST_EPEER. */
#ifndef MST_PS_WORKER_H
#define MST_PS_WORKER_H

#include <jansson.h>
#include <stdatomic.h>

#include "data/feed.h"
#include "model/model.h"
#include "net/net.h"
#include "optim/optim.h"
#include "strategy/progress.h"
#include "tensor/half.h"
#include "tensor/key_list.h"

typedef struct mst_worker_options {
    const mst_net_engine *engine;
    mst_net_options net;        /* identity, secret, timeouts */
    const char *const *servers; /* addresses; copied */
    uint32_t n_servers;
    uint32_t start_timeout_ms, stall_timeout_ms;
    const atomic_bool *stop; /* set: the coordinator is asked to end the job, with a checkpoint; or NULL */
    const atomic_bool *job_ended; /* set: server 0 has ended, so that it is looked for no longer; or NULL */
} mst_worker_options;

/* Evaluation, for the worker that is chief. open and run are called on the evaluation thread. */
typedef struct mst_worker_evaluation {
    void *arg;
    /* Fills list with what the evaluation sets touch (empty: there is nothing to evaluate); keys become the
     * list's own. The layout of values is that of client.h. Called once, on the evaluation thread. */
    mst_status (*open)(void *arg, mst_key_list *list);
    /* values: laid out like weights of a slot with that list. *out: {"test": {...}, "valid": {...}}. */
    mst_status (*run)(void *arg, const float *values, json_t **out);
    /* After that, what is to be shown of the values, which are of that step. Or NULL. */
    void (*watch)(void *arg, uint64_t step, const float *values);
    /* Makes open or run, under way or to come, return soon with MST_ESTOPPED. Any thread. NULL: they are
     * quick.
     */
    void (*stop)(void *arg);
} mst_worker_evaluation;

/* How the job is trained; the same for all its workers. */
typedef struct mst_worker_job {
    mst_mode mode;
    uint32_t batch, global_batch;
    uint32_t pipeline; /* requests in flight beyond the first; sync: 0 */
    mst_wire wire;
    uint64_t seed;        /* of what is random in a step (dropout) */
    unsigned n_threads;   /* within a batch, for models that use them */
    bool dense_model;     /* the whole vector travels */
    uint32_t part_floats; /* what a server has of a model without sparse weights travels in parts of so many
                             floats, while others compute, where it is more; 0: always in one message */
    bool clip; /* --clip-norm is applied here (async, ssp), to every gradient before it is pushed */
    const mst_model *model;
    const mst_optimizer *optimizer;
    const mst_params *params; /* views only: nothing is reserved */
    /* pipeline + 2 lanes, as rows of so many batches are alive; max_take: the global batch, or batch if that
     * is more; no stop flag: a worker that is asked to stop goes on until the coordinator says so. */
    mst_feed *feed;
    mst_dataset *dataset;
    json_t *join; /* what the coordinator compares: options, model, data; borrowed */
    mst_worker_evaluation evaluation;
    struct mst_observe
        *observe; /* what this worker writes about itself, which goes to the coordinator; or NULL
                   */
} mst_worker_job;

typedef struct mst_worker_counts {
    uint64_t steps, rows; /* that had an effect: pushes with rows, not dropped */
    uint64_t dropped_steps, dropped_rows;
    double compute_seconds, wait_seconds, input_seconds; /* input: taking and localising rows */
    uint64_t bytes_out, bytes_in;                        /* of steps */
    uint64_t eval_bytes_in;
    double eval_seconds;
    uint64_t n_evaluations;
} mst_worker_counts;

typedef struct mst_worker mst_worker;

/* Connects; returns when all servers are up and the coordinator has said what the job is. *job_json: that; a
 * new reference. MST_ETIMEOUT names the servers that did not answer; a refusal is passed on as it came. *out
 * is the caller's to destroy; set only on MST_OK. */
mst_status mst_worker_new(const mst_worker_options *options, mst_worker **out, json_t **job_json);
void mst_worker_destroy(mst_worker *self); /* NULL-safe */

/* MST_OK when the coordinator ended the job well. The coordinator hears of failures here before they are
 * returned. */
mst_status mst_worker_run(mst_worker *self, const mst_worker_job *job, mst_worker_counts *counts);

/* Tells the coordinator that this worker cannot go on, before it leaves: for failures between new and run. */
void mst_worker_fail(mst_worker *self, mst_status status);

#endif
