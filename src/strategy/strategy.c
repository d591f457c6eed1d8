/* Registry, options and life of strategies; contract in strategy.h. */
#include "strategy/strategy.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "observe/cpu_quota.h"

extern const mst_strategy_ops mst_strategy_local, mst_strategy_allreduce, mst_strategy_gpu_net,
    mst_strategy_gpu_sparse;

const mst_strategy_choice mst_strategy_choices[] = {
    [MST_STRATEGY_LOCAL] = {.name = "local",
                            .help = "threads of one process on one set of weights",
                            .ops = &mst_strategy_local},
    [MST_STRATEGY_PS] = {.name = "ps",
                         .help =
                             "parameter server: workers push gradients to servers, which update the weights "
                             "and answer pulls"},
    [MST_STRATEGY_ALLREDUCE] = {.name = "allreduce",
                                .help = "ranks of an MPI job, or workers without servers, which sum their "
                                        "gradients and all apply the same update",
                                .ops = &mst_strategy_allreduce},
    {.name = NULL},
};

#define FIELD(name) offsetof(mst_strategy_options, name)
#define PS_ONLY     .option = "strategy", .values = "ps"
#define JOBS_ONLY   .option = "strategy", .values = "ps|allreduce"
const mst_option mst_strategy_option_table[] = {
    {.name = "strategy",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(strategy),
     .fallback = "local",
     .choices = "local|ps|allreduce",
     .help = "Where gradients are combined. local: in this process; ps: on parameter servers, which are "
             "separate processes (muster launch, --role) or threads of this process; allreduce: in every "
             "rank of an MPI job (mpirun -n N muster train ...).",
     .facts = MST_OPTION_MAY_DIFFER | MST_OPTION_OF_JOB | MST_OPTION_SELF_NAMED},
    {.name = "mode",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(mode),
     .fallback = "sync",
     .choices = "sync|async|ssp",
     .help = "sync: threads or workers share every batch, and results repeat bit for bit; async: each takes "
             "its own batches and updates the shared weights when it is done; ssp: like async, but no worker "
             "runs more than --staleness steps ahead.",
     .facts = MST_OPTION_SELF_NAMED},
    {.name = "threads",
     .type = MST_OPTION_INT,
     .offset = FIELD(threads),
     .fallback = "1",
     .min = 0,
     .max = 1024,
     .metavar = "N",
     .help =
         "Training threads per process; 0: one per core, or fewer if threads would share a small batch of a "
         "linear model; its synchronous threads leave one of more than four cores to reading. If there is "
         "one asynchronous thread of logreg per core, a quarter of them only parse text. Synchronous threads "
         "of a small net are at most as many as vectors of rows in a batch, or four times as many "
         "(docs/NETS.md).",
     .needs = {{.option = "strategy", .values = "local|allreduce", .check = MST_NEED_SWEEP}},
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "batch",
     .type = MST_OPTION_INT,
     .offset = FIELD(batch),
     .fallback = "100",
     .min = 1,
     .max = MST_BATCH_MAX,
     .metavar = "N",
     .help = "Rows per step of one worker or rank."},
    {.name = "global-batch",
     .type = MST_OPTION_INT,
     .offset = FIELD(global_batch),
     .fallback = "0",
     .min = 0,
     .max = MST_BATCH_MAX,
     .metavar = "N",
     .help = "Rows per step over all workers or ranks, divided among them; 0: --batch times their number."},
    {.name = "lr-scale",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(lr_scale),
     .fallback = "none",
     .choices = "none|linear",
     .help = "linear: multiply the learning rate by the number of workers or ranks.",
     .needs = {{.option = "strategy", .values = "ps|allreduce", .check = MST_NEED_LENIENT}}},
    {.name = "servers",
     .type = MST_OPTION_INT,
     .offset = FIELD(servers),
     .fallback = "1",
     .min = 0,
     .max = 1024,
     .metavar = "M",
     .help = "Number of servers, in one process or under mpirun; 0, in one process: as many as workers. With "
             "muster launch or a cluster spec, the number follows from those.",
     .needs = {{PS_ONLY}},
     .facts = MST_OPTION_MAY_DIFFER | MST_OPTION_OF_JOB},
    {.name = "workers",
     .type = MST_OPTION_INT,
     .offset = FIELD(workers),
     .fallback = "1",
     .min = 1,
     .max = MST_WORKER_MAX,
     .metavar = "N",
     .help = "Number of workers in one process. With muster launch, mpirun or a cluster spec, the number "
             "follows from those.",
     .needs = {{JOBS_ONLY}},
     .facts = MST_OPTION_MAY_DIFFER | MST_OPTION_OF_JOB},
    {.name = "quorum",
     .type = MST_OPTION_INT,
     .offset = FIELD(quorum),
     .fallback = "0",
     .min = 0,
     .max = MST_WORKER_MAX,
     .metavar = "R",
     .help = "Close a step after R workers have pushed; later pushes for the step are dropped and counted. "
             "0: wait for all workers.",
     .needs = {{PS_ONLY}, {.option = "mode", .values = "sync", .check = MST_NEED_LENIENT}}},
    {.name = "sparse-mode",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(sparse_mode),
     .fallback = "same",
     .choices = "same|async",
     .help = "async: servers update embeddings, factors and sparse linear weights when a push arrives, with "
             "the gradient of each worker, and only the other weights when all workers have pushed. same: "
             "both at that time, with the mean gradient.",
     .needs = {{PS_ONLY}, {.option = "mode", .values = "sync"}}},
    {.name = "staleness",
     .type = MST_OPTION_INT,
     .offset = FIELD(staleness),
     .fallback = "4",
     .min = 0,
     .max = 1e9,
     .metavar = "S",
     .help = "Number of steps by which a worker may be ahead of the slowest.",
     .needs = {{PS_ONLY}, {.option = "mode", .values = "ssp"}}},
    {.name = "pipeline",
     .type = MST_OPTION_INT,
     .offset = FIELD(pipeline),
     .fallback = "0",
     .min = 0,
     .max = MST_PIPELINE_MAX,
     .metavar = "K",
     .help = "Additional requests in flight. Hides the round trip; weights are up to K steps old.",
     .needs = {{PS_ONLY}, {.option = "mode", .values = "async|ssp", .check = MST_NEED_LENIENT}}},
    {.name = "wire",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(wire),
     .fallback = "fp32",
     .choices = "fp32|bf16|fp16",
     .help = "Number format on the network. ps: of weights and gradients; servers compute in fp32. "
             "allreduce: of gradients; sums are computed in fp32.",
     .needs = {{JOBS_ONLY}},
     .facts = MST_OPTION_SELF_NAMED},
    {.name = "dense-model",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(dense_model),
     .help = "Send the whole model in every step instead of the weights that the batch touches; for "
             "measuring the difference.",
     .needs = {{PS_ONLY}}},
    {.name = "part",
     .type = MST_OPTION_INT,
     .offset = FIELD(part),
     .fallback = "1048576",
     .min = 0,
     .max = 1e9,
     .metavar = "N",
     .help = "Size in floats of the parts in which a dense model is sent while workers compute; 0: one "
             "message per server.",
     .needs = {{PS_ONLY}}},
    {.name = "shard",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(shard),
     .fallback = "auto",
     .choices = "auto|static|local",
     .help = "How rows are divided among workers. auto: by position if the data has random access (cache, "
             "index, IDX), otherwise static; static: each worker takes every N-th block of the files; local: "
             "each worker takes all rows of its own files.",
     .needs = {{PS_ONLY}}},
    {.name = "recover",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(recover),
     .fallback = "auto",
     .choices = "auto|all|share",
     .help = "The weights that return to the last checkpoint when a server is lost. all: those of the whole "
             "job; share: those of that server (async, ssp). auto: all in sync, otherwise share.",
     .needs = {{PS_ONLY}}},
    {.name = "replicas",
     .type = MST_OPTION_INT,
     .offset = FIELD(replicas),
     .fallback = "0",
     .min = 0,
     .max = 1,
     .metavar = "N",
     .help =
         "Copies of every server's weights on another server. 1: servers 0 and 1, 2 and 3, ... hold copies "
         "of each other's weights; if one of them is lost, the other continues in its place.",
     .needs = {{PS_ONLY}}},
    {.name = "on-nan",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(on_nan),
     .fallback = "stop",
     .choices = "stop|drop",
     .help = "When a worker computes a gradient with NaN or infinite values, its push does not count. stop: "
             "end the job after three in a row of one worker; drop: continue without the worker.",
     .needs = {{PS_ONLY}}},
    {.name = "tls",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(tls),
     .help =
         "Encrypt every connection of the job with TLS 1.3. Without --tls and --no-tls, the connections that "
         "leave the host are encrypted. --no-tls is for trusted networks: messages between hosts are "
         "authenticated, but readable. Does not apply to MPI's own messages.",
     .needs = {{JOBS_ONLY}},
     .facts = MST_OPTION_MAY_DIFFER | MST_OPTION_NOT_RESUMED | MST_OPTION_IF_GIVEN},
    {.name = "elastic",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(elastic),
     .help =
         "Admit up to 64 workers with an --index beyond those of the cluster. A worker that receives SIGTERM "
         "finishes its rows and leaves; the job continues.",
     .needs = {{PS_ONLY}, {.option = "mode", .values = "async|ssp"}}},
    {.name = "peer-timeout",
     .type = MST_OPTION_REAL,
     .offset = FIELD(peer_timeout),
     .fallback = "10",
     .min = 0.5,
     .max = 86400,
     .metavar = "S",
     .help = "Consider a process lost after S seconds without a message.",
     .needs = {{JOBS_ONLY}},
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "start-timeout",
     .type = MST_OPTION_REAL,
     .offset = FIELD(start_timeout),
     .fallback = "60",
     .min = 0.1,
     .max = 86400,
     .metavar = "S",
     .help = "How long processes wait for each other at the start.",
     .needs = {{JOBS_ONLY}},
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "stall-timeout",
     .type = MST_OPTION_REAL,
     .offset = FIELD(stall_timeout),
     .fallback = "600",
     .min = 1,
     .max = 86400,
     .metavar = "S",
     .help = "ps: exclude a worker that is connected but has pushed nothing for S seconds. allreduce: "
             "fail if a reduction takes longer than S seconds.",
     .needs = {{JOBS_ONLY}},
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "busy-poll",
     .type = MST_OPTION_INT,
     .offset = FIELD(busy_poll),
     .fallback = "0",
     .min = 0,
     .max = 10000,
     .metavar = "US",
     .help =
         "Servers and workers poll for messages for US microseconds before they sleep. For jobs that have "
         "a core of the host for each process: waits of less than that no longer cost a wake-up.",
     .needs = {{PS_ONLY}},
     .facts = MST_OPTION_MAY_DIFFER},
    {.name = "reduction",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(reduction),
     .fallback = "auto",
     .choices = "auto|gather|direct|mpi|off|only",
     .help =
         "How gradients are summed. gather: every rank sends all to all; direct: every rank sums a share; "
         "auto: the faster of the two for each size, measured at the start, with bit-identical results; mpi: "
         "MPI_Allreduce. For measurements: off: do not sum; only: sum without computing gradients.",
     .needs = {{.option = "strategy", .values = "allreduce"}}},
    {.name = NULL},
};

static mst_status resolve_ps(mst_strategy_options *o)
{
    if (o->servers == 0)
        o->servers = o->workers; /* each worker hosts a share of the model */
    if (o->quorum > o->workers)
        return mst_fail(MST_EUSAGE, "--quorum %lld: there are only %lld workers", (long long)o->quorum,
                        (long long)o->workers);
    if (o->quorum > 0 && o->mode != MST_MODE_SYNC)
        return mst_fail(MST_EUSAGE, "--quorum is for --mode sync: other modes do not wait for workers");
    if (o->replicas > 0 && o->servers % 2 != 0)
        return mst_fail(MST_EUSAGE,
                        "--replicas 1 needs an even number of servers, which hold copies in pairs; there %s "
                        "%lld",
                        o->servers == 1 ? "is" : "are", (long long)o->servers);
    if (o->replicas > 0 && o->quorum > 0 && o->quorum < o->workers)
        return mst_fail(MST_EUSAGE, "--replicas 1 needs the pushes of all workers; leave out --quorum");
    if (o->replicas > 0 && o->mode == MST_MODE_SYNC && o->shard != MST_SHARD_AUTO)
        return mst_fail(MST_EUSAGE, "--replicas 1 in --mode sync needs rows that all workers can read; leave "
                                    "out --shard");
    if (o->sparse_mode != 0 && (o->quorum > 0 || o->replicas > 0 || o->dense_model))
        return mst_fail(
            MST_EUSAGE,
            "--sparse-mode async waits for the pushes of all workers and keeps no copies; leave out %s",
            o->quorum > 0     ? "--quorum"
            : o->replicas > 0 ? "--replicas"
                              : "--dense-model");
    if (o->recover == MST_RECOVER_SHARE && o->mode == MST_MODE_SYNC)
        return mst_fail(MST_EUSAGE, "--recover share is for --mode async and ssp: in sync all servers return "
                                    "to the same step");
    if (o->pipeline > 0 && o->mode == MST_MODE_SYNC)
        return mst_fail(MST_EUSAGE,
                        "--pipeline is for --mode async and ssp: a synchronous step needs the one before it");
    return MST_OK;
}

static mst_status resolve_allreduce(const mst_strategy_options *o)
{
    if (o->mode != MST_MODE_SYNC)
        return mst_fail(MST_EUSAGE,
                        "--mode %s needs --strategy ps: ranks of allreduce take every step together",
                        o->mode == MST_MODE_ASYNC ? "async" : "ssp");
    if (o->shard != MST_SHARD_AUTO)
        return mst_fail(MST_EUSAGE,
                        "--shard is for --strategy ps: ranks of allreduce share every global batch");
    if (o->global_batch < o->workers)
        return mst_fail(MST_EUSAGE, "--global-batch %lld: there are %lld ranks", (long long)o->global_batch,
                        (long long)o->workers);
    return MST_OK;
}

mst_status mst_strategy_resolve(mst_strategy_options *options)
{
    bool local = options->strategy == MST_STRATEGY_LOCAL;
    if (options->threads == 0)
        options->threads = mst_cpu_cores();
    if (local && options->mode == MST_MODE_SSP)
        return mst_fail(MST_EUSAGE, "--mode ssp needs --strategy ps");
    if (local)
        options->workers = 1; /* both batches are the same */
    if (options->global_batch != 0)
        options->batch = (options->global_batch + options->workers - 1) / options->workers;
    else
        options->global_batch = options->batch * options->workers;
    if (options->strategy == MST_STRATEGY_ALLREDUCE)
        return resolve_allreduce(options);
    return local ? MST_OK : resolve_ps(options);
}

bool mst_budget_over(const mst_budget *budget)
{
    return (budget->stop != NULL && atomic_load_explicit(budget->stop, memory_order_relaxed)) ||
           (budget->deadline_ns != UINT64_MAX && mst_now_ns() >= budget->deadline_ns);
}

uint64_t mst_strategy_spare(const mst_strategy_options *options)
{
    const mst_strategy_ops *ops = mst_strategy_choices[options->strategy].ops;
    return ops != NULL && ops->spare != NULL ? ops->spare(options) : 0;
}

bool mst_strategy_random_rows(const mst_strategy_options *options)
{
    const mst_strategy_ops *ops = mst_strategy_choices[options->strategy].ops;
    return ops != NULL && ops->random_rows;
}

/* Local training on a GPU has functions of its own. */
static const mst_strategy_ops *strategy_ops(const mst_strategy_options *options, const mst_model *model)
{
    if (options->strategy == MST_STRATEGY_LOCAL && model->gpu.ops != NULL)
        return mst_model_chain(model) != NULL ? &mst_strategy_gpu_net : &mst_strategy_gpu_sparse;
    return mst_strategy_choices[options->strategy].ops;
}

mst_status mst_strategy_new(const mst_strategy_options *options, const mst_strategy_env *env,
                            mst_strategy **out)
{
    const mst_strategy_ops *ops = strategy_ops(options, env->model);
    if (ops == NULL)
        return mst_fail(MST_EUSAGE, "--strategy %s has no training loop; start servers and workers",
                        mst_strategy_choices[options->strategy].name);
    mst_strategy *self = mst_zalloc(ops->size);
    if (self == NULL)
        return mst_fail_memory();
    self->ops = ops;
    self->options = *options;
    self->env = *env;
    mst_status st = ops->init(self, options, env);
    if (st != MST_OK) {
        mst_strategy_destroy(self);
        return st;
    }
    *out = self;
    return MST_OK;
}

void mst_strategy_destroy(mst_strategy *self)
{
    if (self == NULL)
        return;
    self->ops->fini(self);
    mst_free(self);
}

mst_status mst_strategy_settle(mst_strategy *self)
{
    return self->ops->settle != NULL ? self->ops->settle(self) : MST_OK;
}
