/* A worker of the parameter server: it takes rows, pulls the weights that they touch, computes, and pushes
 * the gradient.
 *
 *   mst_worker_new   connects to the servers and receives the job from the coordinator
 *   mst_worker_run   joins with a description of its data, trains until the coordinator ends the job
 *
 * The coordinator sends work items (proto.h): slices of synchronous steps, leases of rows, or grants of rows
 * of the worker's own stream. Batch t + 1 is localised while the reply to batch t is under way; with a
 * pipeline of K, K + 1 requests are in flight.
 *
 * Thread: the caller's thread, except for evaluation, which has a thread of its own and delays no step, and
 * for communication while a large model computes. Waiting: at most stall_timeout for an answer of the
 * servers, with a message that names them; a lost server is MST_EPEER. */
#ifndef MST_PS_WORKER_H
#define MST_PS_WORKER_H

#include <jansson.h>
#include <stdatomic.h>

#include "data/feed.h"
#include "model/model.h"
#include "net/net.h"
#include "optim/optim.h"
#include "strategy/progress.h"
#include "tensor/float_format.h"
#include "tensor/key_list.h"

typedef struct mst_worker_options {
    const mst_net_engine *engine;
    mst_net_options net;        /* identity, secret, timeouts */
    const char *const *servers; /* addresses; copied */
    uint32_t n_servers;
    uint32_t start_timeout_ms, stall_timeout_ms;
    uint32_t stop_grace_ms;  /* within which the worker ends after a stop request */
    const atomic_bool *stop; /* set: the worker requests the end of the job, with a checkpoint; or NULL */
    const atomic_bool *job_ended; /* set: server 0 has ended, so that connecting is useless; or NULL */
    /* Whether the job has ended, as far as this host shows; called about once per second until server 0 has
     * answered. NULL: unknown. */
    bool (*is_over)(void *arg);
    /* Makes this process run the lost worker with that index too, in another thread; returns at once. Called
     * while the worker polls. NULL: it does not. */
    void (*take_slot)(void *arg, uint32_t index);
    void *arg; /* of both */
} mst_worker_options;

/* Evaluation, for the worker that is chief. open and run are called on the evaluation thread. */
typedef struct mst_worker_evaluation {
    void *arg;
    /* Fills list with the weights that the evaluation sets touch (empty: there are no sets); the list owns
     * its keys. Values have the layout of client.h. Called once, on the evaluation thread. */
    mst_status (*open)(void *arg, mst_key_list *list);
    /* values: laid out like the weights of a request with that list. *out: {"test": {...}, "valid": {...}}.
     */
    mst_status (*run)(void *arg, const float *values, json_t **out);
    /* After run: writes histograms of the values, which are of that step. Or NULL. */
    void (*histograms)(void *arg, uint64_t step, const float *values);
    /* Makes open or run, now or later, return soon with MST_ESTOPPED. Any thread. NULL: they are quick. */
    void (*stop)(void *arg);
} mst_worker_evaluation;

/* The training, as one worker takes part in it. */
typedef struct mst_worker_job {
    mst_mode mode;
    uint32_t batch, global_batch;
    uint32_t pipeline; /* requests in flight beyond the first; sync: 0 */
    mst_float_format wire;
    uint64_t seed;        /* of random numbers in a step (dropout) */
    unsigned n_threads;   /* within a batch, for models that use them */
    bool dense_model;     /* the whole vector travels */
    uint32_t part_floats; /* a server's share of a model without sparse weights that is larger travels in
                             parts of so many floats, while others compute; 0: always in one message */
    bool elastic;         /* the stop flag: the worker leaves when its rows are done, and the job continues */
    bool clip; /* --clip-norm is applied here (async, ssp), to every gradient before it is pushed */
    const mst_model *model;
    const mst_optimizer *optimizer;
    const mst_params *params; /* views only, without memory */
    /* pipeline + 2 lanes, because that many batches are in use at once; max_take: the larger of batch and
     * global batch; no stop flag: a worker continues until the coordinator ends the job. */
    mst_feed *feed;
    mst_dataset *dataset;
    json_t *join; /* compared by the coordinator: options, model, data; borrowed */
    mst_worker_evaluation evaluation;
    struct mst_observe *observe; /* its records go to the coordinator; or NULL */
} mst_worker_job;

typedef struct mst_worker_counts {
    uint64_t steps, rows; /* of pushes with rows that were not dropped */
    uint64_t dropped_steps, dropped_rows;
    double compute_seconds, wait_seconds, input_seconds; /* input: taking and localising rows */
    uint64_t bytes_out, bytes_in;                        /* of steps */
    uint64_t eval_bytes_in;
    double eval_seconds;
    uint64_t n_evaluations;
    double seconds;      /* since training began */
    mst_loss_sum recent; /* of pushes that `accuracy` does not cover yet */
    double accuracy;     /* of recent pushes, in the last report; NAN: none */
} mst_worker_counts;

typedef struct mst_worker mst_worker;

/* Connects; returns when all servers are up and the coordinator has sent the job. *job_json: the job; a new
 * reference. MST_ETIMEOUT names the servers that did not answer; a refusal keeps its code and message;
 * MST_EAGAIN as mst_worker_run; MST_EEXIST: another process is this worker, or it was and its loss is not
 * noticed yet. *out is the caller's to destroy; set only on MST_OK. */
mst_status mst_worker_new(const mst_worker_options *options, mst_worker **out, json_t **job_json);
void mst_worker_destroy(mst_worker *self); /* NULL-safe */

/* MST_OK if the coordinator ended the job with success. The coordinator is informed of a failure here before
 * it is returned. MST_EAGAIN, only with an engine that survives deaths: a connection is lost, or the job
 * starts again; take part again with a new worker. */
mst_status mst_worker_run(mst_worker *self, const mst_worker_job *job, mst_worker_counts *counts);

/* After mst_worker_run: the job that the worker took part in, {"run": its directory or null, "step": of the
 * last weights}. New reference; NULL: it did not take part. */
json_t *mst_worker_took_part(const mst_worker *self);

/* Informs the coordinator that this worker cannot continue: for failures between new and run. */
void mst_worker_fail(mst_worker *self, mst_status status);

#endif
