/* A server of the parameter server: it holds partitions of the weights, applies pushes and answers pulls.
 * Server 0 is also the coordinator: it admits processes, assigns rows to workers, closes steps, and decides
 * when to evaluate, save and end; the program keeps the run directory through its hooks.
 *
 * Synchronous steps: a server holds pushes until the step closes, adds them in worker order, applies, and
 * answers. Without a quorum a step closes on each server when all pushes have arrived; with a quorum the
 * coordinator decides which pushes count.
 *
 * A cut is one consistent version over all servers, taken for an evaluation or a checkpoint. Synchronous:
 * after a given step. Asynchronous: every worker sends a marker to every server; a server holds the pushes
 * that arrive after a worker's marker until all markers have arrived.
 *
 * Thread: one, the caller of mst_server_run; large requests use the apply threads. Waiting: in net only, with
 * deadlines: start_timeout for processes that must join, stall_timeout for a worker that does not push. */
#ifndef MST_PS_SERVER_H
#define MST_PS_SERVER_H

#include <jansson.h>
#include <stdatomic.h>

#include "model/model.h"
#include "net/net.h"
#include "observe/record.h"
#include "optim/optim.h"
#include "ps/pass.h"
#include "ps/placement.h"
#include "strategy/progress.h"

/* --on-nan: a worker computes a gradient with NaN or infinite values. Its push never counts. */
typedef enum mst_on_nan {
    MST_ON_NAN_STOP, /* MST_NAN_MAX of one worker in a row end the job */
    MST_ON_NAN_DROP, /* the worker is dropped */
} mst_on_nan;
#define MST_NAN_MAX    3
#define MST_NAN_ADVICE "lower --lr, set --clip-norm or check its rows"

/* The model and the memory for it. */
typedef struct mst_server_model {
    const mst_model *model;
    const mst_optimizer *optimizer;
    mst_params *params; /* reserved */
    uint64_t seed;      /* of initial values by key (mst_model_ops.start_keys) */
    bool fresh;         /* they are still to be set */
} mst_server_model;

/* The state from which a run starts. */
typedef struct mst_server_start {
    mst_server_model model;
    /* ---- filled in on the coordinator only ---- */
    mst_progress at;
    uint64_t limit_steps, limit_rows, limit_epochs; /* UINT64_MAX: none */
    bool restore;            /* weights and optimizer state are read with mst_server_checkpoint.read */
    bool evaluates, saves;   /* there are sets to evaluate on; checkpoints are written */
    bool keeps_best;         /* weights that evaluate best are saved too */
    bool evaluation_pending; /* the resumed run was stopped during an evaluation */
    bool exact;              /* training waits while its weights are evaluated */
    const char *run;         /* its directory, for messages; or NULL; outlives the server */
    json_t *plan;            /* as given to mst_server_checkpoint.begin; a new reference, or NULL */
    bool recalled;           /* the run continues from job["recalled"] (mst_server_hooks.open) */
} mst_server_start;

/* An event that the program records; it does not affect the job. */
typedef enum mst_server_event_kind {
    MST_SERVER_BEGIN,    /* every server has its weights and training begins; placement. No read follows. */
    MST_SERVER_EVALUATE, /* the weights as they are now will be evaluated */
    MST_SERVER_JOIN,     /* a process takes part: role, index, text */
    MST_SERVER_LEAVE,    /* it has left after finishing its work, or without fault: role, index, text */
    MST_SERVER_DEATH,    /* it is lost: role, index, text */
    MST_SERVER_TAKEOVER, /* another server continues in the place of the server that is lost */
    MST_SERVER_SLOW,     /* it is slower than half the median for long: role, index, text */
    MST_SERVER_STOP,     /* that process received a stop signal, which ends the job: role, index */
    MST_SERVER_RECORD,   /* a record of another process: record */
    MST_SERVER_RESTORED, /* all successors of lost servers have their floats. No read follows. */
} mst_server_event_kind;

/* Pointers are valid during the call only. */
typedef struct mst_server_event {
    mst_server_event_kind kind;
    mst_role role;
    uint32_t index;
    const char *text;
    bool returns; /* LEAVE: the process is to join again */
    const mst_record *record;
    const mst_placement *placement;
} mst_server_event;

/* Outcome of an evaluation. */
typedef struct mst_server_outcome {
    bool over; /* the run is to end */
    bool best; /* no earlier weights were better */
} mst_server_outcome;

/* Checkpoints, as a stream of floats in any order. slot 0 is the weights, slot s + 1 the optimizer's slot s.
 */
typedef struct mst_server_checkpoint {
    /* Whether begin would start a checkpoint without waiting. best: of weights under evaluation. */
    bool (*can_begin)(void *arg, bool best);
    /* Starts a checkpoint of the weights as they are now. plan (stolen): open of a resumed run returns it. */
    mst_status (*begin)(void *arg, const mst_placement *table, json_t *plan, bool best);
    mst_status (*write)(void *arg, uint32_t slot, uint64_t first, uint64_t count, const float *data);
    /* keep: false discards it, because earlier weights evaluated better, or floats are missing. */
    mst_status (*end)(void *arg, bool keep);
    /* During training, a server that was lost is started again, `why`: opens the last checkpoint for read.
     * *restore false: there is none. */
    mst_status (*reopen)(void *arg, uint32_t server, const char *why, bool *restore);
    /* Reads floats [first, first + count) of the checkpoint that the run starts from. */
    mst_status (*read)(void *arg, uint32_t slot, uint64_t first, uint64_t count, float *out);
} mst_server_checkpoint;

/* The share of a server other than the coordinator that is still in its memory after mst_server_run returned
 * MST_EAGAIN. A coordinator that lost only the connection, and the job of `key`, lets the server keep it. */
typedef struct mst_server_kept {
    char key[MST_PASS_KEY];           /* of the coordinator; "": nothing is kept */
    uint64_t steps;                   /* applied */
    struct mst_replica_kept *replica; /* of its copies (replica.h); NULL: none */
} mst_server_kept;
void mst_server_kept_fini(mst_server_kept *self);

typedef struct mst_server_options mst_server_options;

/* The program around a server. The server's thread makes every call. */
typedef struct mst_server_hooks {
    void *arg;
    /* Makes the store for the model that the first worker found: job["model"]; job["keep"] true: returns the
     * one that there is, unchanged. On the coordinator job is the JOIN of that worker, and this opens the
     * run; job["recalled"], {"log", "plan", "at": [steps, rows, epoch, position]}: from the state of another
     * server instead of a checkpoint, unless there is a newer one. */
    mst_status (*open)(void *arg, const json_t *job, mst_server_start *out);
    /* Servers other than the coordinator: job is mst_server_options.job of the coordinator. A resumed run's
     * options may change those given. */
    mst_status (*adopt)(void *arg, const json_t *job, mst_server_options *options);

    /* ---- the coordinator only ---- */

    /* Checks that a process with this JOIN fits the job; otherwise the message names the difference. */
    mst_status (*admit)(void *arg, const json_t *join);
    /* Called after every step and a few times per second. progress->loss covers the rows since the last call.
     * *due: mst_due_bits. */
    mst_status (*progress)(void *arg, const mst_progress *progress, unsigned *due);
    /* result: {"test", "valid"} as pulled_eval.h makes them; NULL: there are no sets to evaluate on. */
    mst_status (*evaluated)(void *arg, const json_t *result, mst_server_outcome *out);
    void (*event)(void *arg, const mst_server_event *event);
    /* The counters of the workers so far, [{"worker", "steps", ...}, ...]; stolen. Before a checkpoint begins
     * and before state. */
    mst_status (*count)(void *arg, json_t *workers);
    /* The state of the run, which open of a successor gets. New reference or NULL. */
    json_t *(*state)(void *arg);
    /* Training is over and every worker has reported: as in count. no_workers: because no worker is left. */
    mst_status (*finish)(void *arg, json_t *workers, bool no_workers);
    const mst_server_checkpoint *checkpoint; /* called with the same arg */
} mst_server_hooks;

struct mst_server_options {
    const mst_net_engine *engine;
    mst_net_options net;        /* identity, secret, timeouts */
    const char *const *servers; /* addresses; own included */
    uint32_t n_servers, n_workers;
    uint32_t start_timeout_ms, stall_timeout_ms;
    uint32_t stop_grace_ms; /* within which the job ends after a stop request */
    unsigned n_threads;     /* apply threads */
    mst_mode mode;
    bool recover_share; /* async, ssp: the loss of a server costs only its share */
    bool replicas;      /* servers 2k and 2k + 1 hold copies of each other's weights */
    uint32_t quorum;    /* sync: pushes that close a step; n_workers: all */
    bool sparse_async;  /* sync without quorum and replicas: keys are updated when a push arrives */
    bool all_begin;     /* training begins when all workers have joined, whatever the quorum */
    bool elastic;       /* workers may leave while the job continues; n_workers: at most */
    uint32_t staleness; /* ssp */
    uint32_t batch, global_batch;
    uint64_t shuffle_rows;
    bool dense_model;
    mst_shard_kind shard;
    mst_on_nan on_nan;
    uint32_t n_requests; /* that a worker may have in flight */
    json_t *join;        /* sent to the coordinator, which compares it with its own; borrowed */
    json_t *job; /* coordinator: sent to joining processes, {"resume": bool, "options", "files"}; borrowed */
    mst_server_kept *kept;         /* zeroed at first; read and updated by mst_server_run */
    const atomic_bool *stop;       /* set: the job ends, with a checkpoint; or NULL */
    const atomic_bool *no_workers; /* set: a job without workers does not wait for one; or NULL */
    /* Its records go to the coordinator; the coordinator's own stay in its process. Or NULL. */
    struct mst_observe *observe;
};

/* Serves until the coordinator ends the job. MST_OK: the job succeeded. MST_EAGAIN, only with an engine that
 * survives deaths: a server is lost and the job starts again from its last checkpoint; call this again, with
 * the same options and hooks. `open` then returns the start of the continued run. */
mst_status mst_server_run(const mst_server_options *options, const mst_server_hooks *hooks);

#endif
