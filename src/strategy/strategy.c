/* Registry, options and life of strategies; contract in strategy.h. */
#include "strategy/strategy.h"

#include <sched.h>

#include "base/alloc.h"
#include "strategy/hot.h"

extern const mst_strategy_ops mst_strategy_local;

const mst_strategy_ops *const mst_strategies[] = {&mst_strategy_local, NULL};

#define FIELD(name) offsetof(mst_strategy_options, name)
const mst_option mst_strategy_option_table[] = {
    {"strategy", MST_OPTION_CHOICE, FIELD(strategy), "local", 0, 0, "local", NULL,
     "Where gradients meet: local is in this process."},
    {"mode", MST_OPTION_CHOICE, FIELD(mode), "sync", 0, 0, "sync|async", NULL,
     "sync: threads share every batch and the result repeats bit for bit; async: each thread takes batches "
     "of its own "
     "and updates the shared weights without locks."},
    {"threads", MST_OPTION_INT, FIELD(threads), "1", 0, 1024, NULL, "N",
     "Training threads; 0: one per core."},
    {"batch", MST_OPTION_INT, FIELD(batch), "100", 1, 1e8, NULL, "N", "Rows per step of one worker."},
    {"global-batch", MST_OPTION_INT, FIELD(global_batch), "0", 0, 1e8, NULL, "N",
     "Rows per step over all workers, divided among them; 0: --batch times the number of workers."},
    {"lr-scale", MST_OPTION_CHOICE, FIELD(lr_scale), "none", 0, 0, "none|linear", NULL,
     "linear: the learning rate is multiplied by the number of workers."},
    {0},
};

mst_status mst_strategy_resolve(mst_strategy_options *options)
{
    if (options->threads == 0) {
        cpu_set_t cpus;
        options->threads = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    }
    /* local is one worker: both batches are the same */
    if (options->global_batch != 0)
        options->batch = options->global_batch;
    else
        options->global_batch = options->batch;
    return MST_OK;
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
    mst_strategy *self = mst_zalloc(ops->size);
    if (self == NULL)
        return mst_fail(MST_ENOMEM, "no memory for strategy %s", ops->name);
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
