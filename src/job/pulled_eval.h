/* Evaluation on pulled weights, by the worker that is chief (ps/worker.h).
 *
 * Opening passes over the test and valid rows once and lists the model's dense ranges and the distinct keys
 * of all rows. Each evaluation scores the rows on the values of that list, with the same code, batches and
 * figures as mst_evaluator on a store with those weights.
 *
 * Thread: the caller of open and run, one at a time; stop from any thread. */
#ifndef MST_JOB_PULLED_EVAL_H
#define MST_JOB_PULLED_EVAL_H

#include <jansson.h>

#include "ps/worker.h"
#include "train/evaluate.h"

typedef struct mst_pulled_eval_options {
    const mst_model *model;
    const mst_params *params;    /* views only */
    bool dense_model;            /* the list is the whole vector */
    struct mst_observe *observe; /* histograms of weights go there; or NULL */
    /* Opens the sets, once, on the thread that evaluates: evaluators made with params NULL and this stop
     * flag; NULL for a set that does not exist. The callee owns them; they outlive the object. */
    void *arg;
    mst_status (*open)(void *arg, const atomic_bool *stop, mst_evaluator **test, mst_evaluator **valid);
} mst_pulled_eval_options;

typedef struct mst_pulled_eval mst_pulled_eval;

/* *out is the caller's to destroy; set only on MST_OK. */
mst_status mst_pulled_eval_new(const mst_pulled_eval_options *options, mst_pulled_eval **out);
void mst_pulled_eval_destroy(mst_pulled_eval *self); /* NULL-safe */

/* For a worker. A set without rows is MST_EINPUT with a message that names it. */
mst_worker_evaluation mst_pulled_eval_for_worker(mst_pulled_eval *self);

#endif
