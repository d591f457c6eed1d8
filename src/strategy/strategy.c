/* Registry, options and life of strategies; contract in strategy.h. */
#include "strategy/strategy.h"

#include <sched.h>

#include "base/alloc.h"
#include "strategy/hot_weights.h"

extern const mst_strategy_ops mst_strategy_local, mst_strategy_allreduce;

static const mst_strategy_ops strategy_ps = {
    .name = "ps",
    .help = "parameter server: workers push gradients to servers, which update the weights and answer what "
            "is pulled",
};

const mst_strategy_ops *const mst_strategies[] = {&mst_strategy_local, &strategy_ps, &mst_strategy_allreduce,
                                                  NULL};

#define FIELD(name) offsetof(mst_strategy_options, name)
const mst_option mst_strategy_option_table[] = {
    {.name = "strategy",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(strategy),
     .fallback = "local",
     .choices = "local|ps|allreduce",
     .help = "Where gradients meet: local: in this process; ps: on servers, in processes of their own "
             "(muster launch, --role) or, without those, in threads of this one; allreduce: in every rank of "
             "an MPI job (mpirun -n N muster train ...)."},
    {.name = "mode",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(mode),
     .fallback = "sync",
     .choices = "sync|async|ssp",
     .help = "sync: threads or workers share every batch and the result repeats bit for bit; async: each "
             "takes batches of its own and updates the shared weights when it is done; ssp: async, but "
             "nobody runs more than --staleness steps ahead."},
    {.name = "threads",
     .type = MST_OPTION_INT,
     .offset = FIELD(threads),
     .fallback = "1",
     .min = 0,
     .max = 1024,
     .metavar = "N",
     .help = "Training threads; 0: one per core."},
    {.name = "batch",
     .type = MST_OPTION_INT,
     .offset = FIELD(batch),
     .fallback = "100",
     .min = 1,
     .max = 1e8,
     .metavar = "N",
     .help = "Rows per step of one worker."},
    {.name = "global-batch",
     .type = MST_OPTION_INT,
     .offset = FIELD(global_batch),
     .fallback = "0",
     .min = 0,
     .max = 1e8,
     .metavar = "N",
     .help = "Rows per step over all workers, divided among them; 0: --batch times the number of workers."},
    {.name = "lr-scale",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(lr_scale),
     .fallback = "none",
     .choices = "none|linear",
     .help = "linear: the learning rate is multiplied by the number of workers."},
    {.name = "servers",
     .type = MST_OPTION_INT,
     .offset = FIELD(servers),
     .fallback = "1",
     .min = 0,
     .max = 1024,
     .metavar = "M",
     .help = "ps in one process, or under mpirun: servers. In one process, 0: as many as workers. muster "
             "launch and cluster files say it otherwise."},
    {.name = "workers",
     .type = MST_OPTION_INT,
     .offset = FIELD(workers),
     .fallback = "1",
     .min = 1,
     .max = 1024,
     .metavar = "N",
     .help = "ps in one process: workers."},
    {.name = "quorum",
     .type = MST_OPTION_INT,
     .offset = FIELD(quorum),
     .fallback = "0",
     .min = 0,
     .max = 1024,
     .metavar = "R",
     .help = "ps sync: a step closes when R workers have pushed for it; what the others push late is dropped "
             "and counted. 0: all."},
    {.name = "staleness",
     .type = MST_OPTION_INT,
     .offset = FIELD(staleness),
     .fallback = "4",
     .min = 0,
     .max = 1e9,
     .metavar = "S",
     .help = "ps ssp: steps that a worker may be ahead of the slowest."},
    {.name = "pipeline",
     .type = MST_OPTION_INT,
     .offset = FIELD(pipeline),
     .fallback = "0",
     .min = 0,
     .max = 8,
     .metavar = "K",
     .help = "ps async and ssp: requests in flight beyond the first; hides the round trip, at the price of "
             "weights K steps old."},
    {.name = "wire",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(wire),
     .fallback = "fp32",
     .choices = "fp32|bf16|fp16",
     .help = "ps: how weights and gradients travel; servers keep fp32. allreduce: how gradients travel; sums "
             "are kept in fp32."},
    {.name = "dense-model",
     .type = MST_OPTION_FLAG,
     .offset = FIELD(dense_model),
     .help = "ps: the whole model travels with every step instead of what the batch touches: to see what "
             "that saves."},
    {.name = "part",
     .type = MST_OPTION_INT,
     .offset = FIELD(part),
     .fallback = "1048576",
     .min = 0,
     .max = 1e9,
     .metavar = "N",
     .help = "ps: what a server has of a dense model travels in parts of N floats while workers compute, "
             "where it is more; 0: in one message."},
    {.name = "shard",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(shard),
     .fallback = "auto",
     .choices = "auto|static|local",
     .help = "ps: how rows are divided. auto: by position where the data can be read at random (a cache, an "
             "index, IDX), else static: each worker takes every N-th block of the files; local: each worker "
             "takes all of the files that it finds."},
    {.name = "peer-timeout",
     .type = MST_OPTION_REAL,
     .offset = FIELD(peer_timeout),
     .fallback = "10",
     .min = 0.5,
     .max = 86400,
     .metavar = "S",
     .help = "ps, allreduce: a process that is silent for S seconds is taken for dead."},
    {.name = "start-timeout",
     .type = MST_OPTION_REAL,
     .offset = FIELD(start_timeout),
     .fallback = "60",
     .min = 0.1,
     .max = 86400,
     .metavar = "S",
     .help = "ps, allreduce: how long processes wait for each other at the start."},
    {.name = "stall-timeout",
     .type = MST_OPTION_REAL,
     .offset = FIELD(stall_timeout),
     .fallback = "600",
     .min = 1,
     .max = 86400,
     .metavar = "S",
     .help = "ps: a worker that lives but pushes nothing for S seconds is sent away. allreduce: how long a "
             "sum may take."},
    {.name = "reduction",
     .type = MST_OPTION_CHOICE,
     .offset = FIELD(reduction),
     .fallback = "auto",
     .choices = "auto|gather|direct|mpi|off|only",
     .help = "allreduce: how gradients are added up. gather: everybody sends all to all; direct: everybody "
             "adds up a part; auto: the faster of these for each size, measured at the start, with the same "
             "bits; mpi: MPI_Allreduce. For measuring: off: not at all; only: nothing is computed."},
    {.name = NULL},
};

static mst_status resolve_ps(mst_strategy_options *o)
{
    if (o->servers == 0)
        o->servers = o->workers; /* each hosts a share of the model */
    if (o->quorum > o->workers)
        return mst_fail(MST_EUSAGE, "--quorum %lld: there are only %lld workers", (long long)o->quorum,
                        (long long)o->workers);
    if (o->quorum > 0 && o->mode != MST_MODE_SYNC)
        return mst_fail(MST_EUSAGE, "--quorum is for --mode sync: other modes wait for nobody");
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
    if (options->threads == 0) {
        cpu_set_t cpus;
        options->threads = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    }
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

uint64_t mst_strategy_spare(const mst_strategy_options *options)
{
    return options->mode == MST_MODE_ASYNC && options->threads > 1
               ? mst_hot_weights_spare((unsigned)options->threads)
               : 0;
}

mst_status mst_strategy_new(const mst_strategy_options *options, const mst_strategy_env *env,
                            mst_strategy **out)
{
    const mst_strategy_ops *ops = mst_strategies[options->strategy];
    if (ops->size == 0)
        return mst_fail(MST_EUSAGE, "strategy %s is not run by the training loop", ops->name);
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
