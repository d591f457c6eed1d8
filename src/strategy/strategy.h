/* Strategies: where gradients are combined and applied.
 *
 * The training loop gives a strategy the model, the optimizer, the parameters and a feed, and lets it run
 * some steps; it never depends on which strategy it has. The strategy decides how many threads take rows, how
 * a batch is divided, and which data travels between processes. Between two calls of run, after
 * mst_strategy_settle, the parameters are complete and current, and no thread writes them: the loop evaluates
 * and saves then.
 *
 * With --strategy ps no process runs this loop: the coordinator of the servers takes its place (job/job.h).
 *
 * Thread: the training loop's thread makes every call. Waiting: run returns by its budget's deadline (to
 * within one range of rows), when the feed fails, or when it is to stop. */
#ifndef MST_STRATEGY_STRATEGY_H
#define MST_STRATEGY_STRATEGY_H

#include <stdatomic.h>

#include "base/option.h"
#include "data/feed.h"
#include "model/model.h"
#include "optim/optim.h"
#include "strategy/progress.h"

#define MST_WORKER_MAX   1024 /* workers of a job with servers */
#define MST_ELASTIC_MORE 64   /* workers that may join an elastic job beyond those of its cluster */

typedef enum mst_strategy_kind {
    MST_STRATEGY_LOCAL,
    MST_STRATEGY_PS,
    MST_STRATEGY_ALLREDUCE,
} mst_strategy_kind;

#define MST_BATCH_MAX    1e8 /* rows of --batch and --global-batch */
#define MST_PIPELINE_MAX 8

typedef struct mst_strategy_options {
    int strategy;         /* --strategy local|ps|allreduce: mst_strategy_kind */
    int mode;             /* --mode sync|async|ssp: mst_mode */
    int64_t threads;      /* --threads N; 0: one per core */
    int64_t batch;        /* --batch N: rows per step and worker */
    int64_t global_batch; /* --global-batch N: rows per step over all workers; 0: batch times workers */
    int lr_scale;         /* --lr-scale none|linear: times the number of workers */
    /* ps: */
    int64_t servers, workers; /* --servers, --workers; those of the cluster, if there is one */
    int64_t quorum;           /* --quorum R: sync: pushes that close a step; 0: all workers' */
    int sparse_mode;          /* --sparse-mode same|async: sync: 1: keys are updated when a push arrives */
    int64_t staleness;        /* --staleness S: ssp: steps that a worker may be ahead of the slowest */
    int64_t pipeline;         /* --pipeline K: async, ssp: requests in flight beyond the first */
    int wire;                 /* --wire fp32|bf16|fp16: mst_float_format */
    bool dense_model;         /* --dense-model: every step transfers the whole vector */
    int64_t part;             /* --part N: floats of a part of a dense push or pull; 0: no parts */
    int shard;                /* --shard auto|static|local */
    int recover;              /* --recover auto|all|share */
    int64_t replicas;         /* --replicas N: copies of a server's weights on another server */
    int on_nan;               /* --on-nan stop|drop */
    bool tls, tls_given;      /* --tls, --no-tls, or neither */
    bool elastic;             /* --elastic: workers join that the cluster does not name, and leave */
    double peer_timeout, start_timeout, stall_timeout; /* seconds */
    int64_t busy_poll;                                 /* --busy-poll US */
    /* allreduce: workers are the ranks of the MPI job; besides --wire and the timeouts: */
    int reduction; /* --reduction auto|gather|direct|mpi|off|only */
    /* No options: */
    bool threads_chosen;  /* the number of threads follows from --threads 0 */
    int64_t threads_most; /* more synchronous threads are slower, as a batch has few rows; 0: not known */
} mst_strategy_options;
extern const mst_option mst_strategy_option_table[];

typedef struct mst_strategy_env {
    const mst_model *model;
    const mst_optimizer *optimizer;
    mst_params *params;
    uint64_t seed;           /* of the training */
    struct mst_comm *comm;   /* allreduce: to the other ranks (comm_thread.h); must outlive the strategy */
    struct mst_spans *spans; /* observe/spans.h: spans of the training threads; NULL: none */
} mst_strategy_env;

/* Limits of one call of run. */
typedef struct mst_budget {
    uint64_t steps, rows;    /* at most this many more */
    uint64_t deadline_ns;    /* on the monotonic clock; UINT64_MAX: none */
    const atomic_bool *stop; /* set by another thread; or NULL */
} mst_budget;

/* The stop flag is set, or the deadline has passed. */
bool mst_budget_over(const mst_budget *budget);

typedef struct mst_strategy mst_strategy;

typedef struct mst_strategy_ops {
    size_t size;      /* of the derived struct */
    bool random_rows; /* the data must be readable in any order */
    /* Floats beyond the parameters to reserve (mst_params.spare). NULL: none. */
    uint64_t (*spare)(const mst_strategy_options *options);
    mst_status (*init)(mst_strategy *self, const mst_strategy_options *options, const mst_strategy_env *env);
    /* Once, before the first run: what takes long and is no training, such as memory and the copy of the
     * parameters to a GPU. The epoch of the feed is started. NULL: nothing does. */
    mst_status (*ready)(mst_strategy *self, mst_feed *feed);
    /* Trains on rows of the feed, whose epoch the loop has started, and adds to steps, rows, position,
     * epoch_ended and loss of *progress. MST_ESTOPPED only from the feed. */
    mst_status (*run)(mst_strategy *self, mst_feed *feed, const mst_budget *budget, mst_progress *progress);
    void (*fini)(mst_strategy *self);
    /* After the last run: ends the other processes and collects the report of each, as in
     * mst_job_summary.workers; a new reference. NULL: there is one process. */
    mst_status (*report)(mst_strategy *self, json_t **out);
    /* Between runs: what report returns, as of the last run; a new reference, or NULL without memory. NULL:
     * there is one process. */
    json_t *(*counts)(const mst_strategy *self);
    /* Between runs: brings the parameters up to date. The loop calls it before it evaluates or saves. NULL:
     * they are current after every run. */
    mst_status (*settle)(mst_strategy *self);
    /* Between runs: the dense ranges of the last step's gradient, or NULL. The function may be NULL. */
    const mst_grad *(*gradient)(const mst_strategy *self);
} mst_strategy_ops;

struct mst_strategy {
    const mst_strategy_ops *ops;
    mst_strategy_options options; /* resolved: threads and batches are set */
    mst_strategy_env env;
    /* Set by init, for the feed: */
    unsigned n_lanes;       /* threads that take rows */
    unsigned n_threads;     /* that train: those of the options, or fewer if more would be slower */
    uint32_t max_take;      /* most rows of one take */
    bool any_keys;          /* rows may have any keys (mst_feed_options) */
    bool stops_with_others; /* steps need rows until the loop ends them for all processes */
};

/* A choice of --strategy. */
typedef struct mst_strategy_choice {
    const char *name, *help;
    const mst_strategy_ops *ops; /* run by the training loop; NULL: by servers and workers */
} mst_strategy_choice;
extern const mst_strategy_choice mst_strategy_choices[]; /* by mst_strategy_kind; the last name is NULL */

/* Fills in what depends on the machine (threads) and checks the options against each other. Once, on the way
 * from options to a training: train/settings.h. */
mst_status mst_strategy_resolve(mst_strategy_options *options);

/* As in the functions of the chosen strategy. */
uint64_t mst_strategy_spare(const mst_strategy_options *options);
bool mst_strategy_random_rows(const mst_strategy_options *options);

/* env->params must be reserved. *out is the caller's to destroy; set only on MST_OK. */
/* Fewer threads than this, but more than one, are slower than one. */
unsigned mst_strategy_least_threads(const mst_strategy_options *options, const mst_strategy_env *env);

mst_status mst_strategy_new(const mst_strategy_options *options, const mst_strategy_env *env,
                            mst_strategy **out);
void mst_strategy_destroy(mst_strategy *self); /* NULL-safe */

/* As in the functions of the strategy. */
mst_status mst_strategy_settle(mst_strategy *self);

#endif
