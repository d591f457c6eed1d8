/* Registry, options and life of strategies; contract in strategy.h. */
#include "strategy/strategy.h"

#include <sched.h>

#include "base/alloc.h"
#include "strategy/hot.h"

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
    {"strategy", MST_OPTION_CHOICE, FIELD(strategy), "local", 0, 0, "local|ps|allreduce", NULL,
     "Where gradients meet: local: in this process; ps: on servers, in processes of their own (muster "
     "launch, --role) or, "
     "without those, in threads of this one; allreduce: in every rank of an MPI job (mpirun -n N muster "
     "train ...)."},
    {"mode", MST_OPTION_CHOICE, FIELD(mode), "sync", 0, 0, "sync|async|ssp", NULL,
     "sync: threads or workers share every batch and the result repeats bit for bit; async: each takes "
     "batches of its own "
     "and updates the shared weights when it is done; ssp: async, but nobody runs more than --staleness "
     "steps ahead."},
    {"threads", MST_OPTION_INT, FIELD(threads), "1", 0, 1024, NULL, "N",
     "Training threads; 0: one per core."},
    {"batch", MST_OPTION_INT, FIELD(batch), "100", 1, 1e8, NULL, "N", "Rows per step of one worker."},
    {"global-batch", MST_OPTION_INT, FIELD(global_batch), "0", 0, 1e8, NULL, "N",
     "Rows per step over all workers, divided among them; 0: --batch times the number of workers."},
    {"lr-scale", MST_OPTION_CHOICE, FIELD(lr_scale), "none", 0, 0, "none|linear", NULL,
     "linear: the learning rate is multiplied by the number of workers."},
    {"servers", MST_OPTION_INT, FIELD(servers), "1", 0, 1024, NULL, "M",
     "ps in one process, or under mpirun: servers. In one process, 0: as many as workers. muster launch and "
     "cluster files say it otherwise."},
    {"workers", MST_OPTION_INT, FIELD(workers), "1", 1, 1024, NULL, "N", "ps in one process: workers."},
    {"quorum", MST_OPTION_INT, FIELD(quorum), "0", 0, 1024, NULL, "R",
     "ps sync: a step closes when R workers have pushed for it; what the others push late is dropped and "
     "counted. 0: all."},
    {"staleness", MST_OPTION_INT, FIELD(staleness), "4", 0, 1e9, NULL, "S",
     "ps ssp: steps that a worker may be ahead of the slowest."},
    {"pipeline", MST_OPTION_INT, FIELD(pipeline), "0", 0, 8, NULL, "K",
     "ps async and ssp: requests in flight beyond the first; hides the round trip, at the price of weights K "
     "steps old."},
    {"wire", MST_OPTION_CHOICE, FIELD(wire), "fp32", 0, 0, "fp32|bf16|fp16", NULL,
     "ps: how weights and gradients travel; servers keep fp32. allreduce: how gradients travel; sums are "
     "kept in fp32."},
    {"dense-model", MST_OPTION_FLAG, FIELD(dense_model), "false", 0, 0, NULL, NULL,
     "ps: the whole model travels with every step instead of what the batch touches: to see what that "
     "saves."},
    {"part", MST_OPTION_INT, FIELD(part), "1048576", 0, 1e9, NULL, "N",
     "ps: what a server has of a dense model travels in parts of N floats while workers compute, where it is "
     "more; 0: in one message."},
    {"shard", MST_OPTION_CHOICE, FIELD(shard), "auto", 0, 0, "auto|static|local", NULL,
     "ps: how rows are divided. auto: by position where the data can be read at random (a cache, an index, "
     "IDX), else "
     "static: each worker takes every N-th block of the files; local: each worker takes all of the files "
     "that it finds."},
    {"peer-timeout", MST_OPTION_REAL, FIELD(peer_timeout), "10", 0.5, 86400, NULL, "S",
     "ps, allreduce: a process that is silent for S seconds is taken for dead."},
    {"start-timeout", MST_OPTION_REAL, FIELD(start_timeout), "60", 0.1, 86400, NULL, "S",
     "ps, allreduce: how long processes wait for each other at the start."},
    {"stall-timeout", MST_OPTION_REAL, FIELD(stall_timeout), "600", 1, 86400, NULL, "S",
     "ps: a worker that lives but pushes nothing for S seconds is sent away. allreduce: how long a sum may "
     "take."},
    {"reduction", MST_OPTION_CHOICE, FIELD(reduction), "auto", 0, 0, "auto|gather|direct|mpi|off|only", NULL,
     "allreduce: how gradients are added up. gather: everybody sends all to all; direct: everybody adds up a "
     "part; auto: the faster of these for each size, measured at the start, with the same bits; mpi: "
     "MPI_Allreduce. For measuring: off: not at all; only: nothing is computed."},
    {0},
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
    return options->mode == MST_MODE_ASYNC && options->threads > 1 ? mst_hot_spare((unsigned)options->threads)
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
