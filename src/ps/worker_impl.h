/* The whole worker, which worker.c sets up and worker_events.c dispatches messages to; no other file includes
 * this.
 *
 *   worker_link        connections to the servers, failures, the end of the job
 *   worker_rows        work items, batches of rows
 *   worker_pipeline    requests in flight: pull, compute, push
 *   worker_gradient    batches and pulled weights to gradients
 *   worker_overlap     communication while a large model computes
 *   worker_eval        evaluation by the chief
 *   worker_probe       capacity of the paths to the servers
 *   worker_report      counts, reports, records of the observer
 *   worker_histograms  histograms of gradients */
#ifndef MST_PS_WORKER_IMPL_H
#define MST_PS_WORKER_IMPL_H

#include "ps/worker_eval.h"
#include "ps/worker_overlap.h"
#include "ps/worker_pipeline.h"
#include "ps/worker_probe.h"

struct mst_worker {
    mst_worker_options options;
    const mst_worker_job *job; /* NULL: not running */
    json_t *job_json, *welcome;
    bool leaving; /* the coordinator was informed of the stop flag; the worker continues until it ends the job
                   */
    uint64_t leaving_ns; /* since when */
    mst_placement table;
    mst_client *client; /* NULL: not training */
    mst_worker_link link;
    mst_worker_rows rows;
    mst_worker_pipeline pipeline;
    mst_worker_gradient gradient;
    mst_worker_overlap overlap;
    mst_worker_eval eval;
    mst_worker_probe probe;
    mst_worker_report report;
    mst_worker_histograms histograms;
};

/* ---- worker_events.c ---- */

extern const mst_net_events mst_worker_events;

/* Between polls: evaluation, reports, the stop flag, failures. arg: the worker. */
mst_status mst_worker_attend(void *arg);

#endif
