/* A server of the parameter server: has partitions of the weights, applies what workers push, answers what
 * they pull. Server 0 is the coordinator too: it decides who takes part, which rows are trained on by whom,
 * which pushes count, when to evaluate, save and end; it keeps the run directory through its hooks.
 *
 * Synchronous steps: a server holds pushes until the step closes, adds them in worker order, applies, and
 * answers. With all workers needed, a step closes on each server when all pushes are there; with backup
 * workers the coordinator says which pushes count.
 *
 * A cut is one consistent version over all servers, taken for an evaluation or a checkpoint. Synchronous:
 * after a given step. Asynchronous: every worker marks its streams of messages; a server holds what comes
 * after a worker's mark until all workers have marked.
 *
 * Thread: one, the caller of mst_server_run; large requests are shared with apply threads. Waiting: in net
 * only, with deadlines: start_timeout for who must join, stall_timeout for a worker that owes a push. */
#ifndef MST_PS_SERVER_H
#define MST_PS_SERVER_H

#include <jansson.h>
#include <stdatomic.h>

#include "model/model.h"
#include "observe/record.h"
#include "optim/optim.h"
#include "ps/placement.h"
#include "ps/worker.h"

/* Where training stands. */
typedef struct mst_ps_progress {
    uint64_t steps, rows;
    uint64_t epoch,
        position;        /* asynchronous: of the first epoch that is not done, and how many of its rows are */
    uint64_t epoch_rows; /* 0: not known */
    mst_loss_sum loss;   /* of the rows trained on since the last call of advanced */
    double seconds;      /* of training since the beginning of this process's run */
    const char *waiting; /* no step for a second: workers that owe a push, "worker 2"; else NULL */
} mst_ps_progress;

/* The model and the memory for it. */
typedef struct mst_server_store {
    const mst_model *model;
    const mst_optimizer *optimizer;
    mst_params *params; /* reserved */
} mst_server_store;

/* Where a run begins. */
typedef struct mst_server_start {
    uint64_t steps, rows, epoch, position;
    uint64_t limit_steps, limit_rows, limit_epochs; /* UINT64_MAX: none */
    bool restore;                                   /* the hook `restore` has the weights and state */
    bool evaluates, saves; /* there are sets to evaluate on; checkpoints are written */
    bool keeps_best;       /* weights that evaluate best are saved too */
    bool owes_evaluation;  /* the run that is resumed was stopped in one */
    const char *run;       /* its directory, for sentences; or NULL; outlives the server */
    json_t *plan;          /* of the checkpoint (save_begin); a new reference, or NULL */
} mst_server_start;

#define MST_PS_DUE_EVAL 1u
#define MST_PS_DUE_SAVE 2u
#define MST_PS_DUE_END  4u

typedef struct mst_server_options mst_server_options;

/* What a server asks of the program around it. All on the server's thread. */
typedef struct mst_server_hooks {
    void *arg;
    /* The store for the model a worker found ("model" of its JOIN: name, features, dense, classes, ...). */
    mst_status (*build)(void *arg, const json_t *model, mst_server_store *out);
    /* Not on the coordinator: what that tells first; a resumed run's options may change those given. */
    mst_status (*adopt)(void *arg, const json_t *job, mst_server_options *options);

    /* ---- the coordinator only ---- */

    /* What joins are told first: {"resume": bool, "options", "files"}. New reference or NULL. */
    json_t *(*job)(void *arg);
    /* Whether a worker's or server's JOIN fits this job; a sentence that names the difference otherwise. */
    mst_status (*fits)(void *arg, const json_t *join);
    /* After build: opens the run. join is that of the first worker. */
    mst_status (*begin)(void *arg, const json_t *join, mst_server_start *out);
    /* Which server has which floats. Or NULL. */
    void (*placed)(void *arg, const mst_placement *table);
    /* Floats [first, first + count) of the weights (slot 0) or of optimizer slot - 1. */
    mst_status (*restore)(void *arg, uint32_t slot, uint64_t first, uint64_t count, float *out);
    /* Every server has its floats: restore is not called again. Only after restore. */
    void (*restored)(void *arg);
    /* Training has advanced; which MST_PS_DUE_* are due now. Also called a few times a second. */
    mst_status (*advanced)(void *arg, const mst_ps_progress *progress, unsigned *due);
    /* The weights as they are now will be evaluated; then the results, {"test", "valid"} as pulled_eval.h
     * makes them. *over: the run is to end. *best: no weights were better. */
    void (*eval_begin)(void *arg);
    mst_status (*evaluated)(void *arg, const json_t *result, bool *over, bool *best);
    /* A checkpoint of the weights as they are now: begin, all floats in any order, end. plan (stolen): to be
     * given back by begin of a resumed run. can_save: begin would not wait. best: of weights under
     * evaluation; complete is false when there were better ones. */
    bool (*can_save)(void *arg, bool best);
    mst_status (*save_begin)(void *arg, const mst_placement *table, json_t *plan, bool best);
    mst_status (*save_write)(void *arg, uint32_t slot, uint64_t first, uint64_t count, const float *data);
    mst_status (*save_end)(void *arg, bool complete);
    /* Another process was asked to stop, which ends the job. Or NULL. */
    void (*stopped)(void *arg, mst_role role, uint32_t index);
    /* A record of another process has come (observe/record.h); its data are valid inside. Or NULL. */
    void (*record)(void *arg, const mst_record *record);
    /* What became of a process: "join", "leave" (it had done its work), "death", with a sentence. Or NULL. */
    void (*member)(void *arg, mst_role role, uint32_t index, const char *kind, const char *text);
    /* Training is over and everybody has reported: [{"worker", "steps", ...}, ...]; stolen. deserted:
     * because no worker was left. */
    mst_status (*finish)(void *arg, json_t *workers, bool deserted);
} mst_server_hooks;

struct mst_server_options {
    const mst_net_engine *engine;
    mst_net_options net;        /* identity, secret, timeouts */
    const char *const *servers; /* addresses; own included */
    uint32_t n_servers, n_workers;
    uint32_t start_timeout_ms, stall_timeout_ms;
    unsigned n_threads; /* apply threads */
    mst_ps_mode mode;
    uint32_t needed;    /* sync: pushes that close a step; n_workers: all */
    bool all_begin;     /* training begins when all workers have joined, whatever the mode needs */
    uint32_t staleness; /* ssp */
    uint32_t batch, global_batch;
    uint64_t shuffle_rows;
    bool dense_model;
    const char *shard;       /* "auto", "static", "local": how rows are divided */
    json_t *join;            /* what the coordinator compares; borrowed */
    const atomic_bool *stop; /* the job is to end, with a checkpoint; or NULL */
    /* What this server writes about itself, which goes to the coordinator; that files its own. Or NULL. */
    struct mst_observe *observe;
};

/* Serves until the coordinator ends the job. MST_OK: it ended well. */
mst_status mst_server_run(const mst_server_options *options, const mst_server_hooks *hooks);

#endif
