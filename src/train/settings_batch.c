/* Keeping the global batch of a resumed run; contract in settings_batch.h.
 *
 * A synchronous step is one global batch, whoever computes it: with other numbers of workers each takes
 * another share, and the weights follow the same path. In the other modes a step is one worker's batch, which
 * does not change with the number of workers. */
#include "train/settings_batch.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

mst_batch_before mst_batch_before_of(const mst_settings *s, const json_t *manifest)
{
    const json_t *strategy = json_object_get(json_object_get(manifest, "options"), "strategy");
    const char *mode = json_string_value(json_object_get(strategy, "mode")),
               *name = json_string_value(json_object_get(strategy, "strategy"));
    json_int_t workers = json_integer_value(json_object_get(strategy, "workers"));
    return (mst_batch_before){
        .workers = name != NULL && strcmp(name, "local") == 0 ? 1 : workers,
        .batch = json_integer_value(json_object_get(manifest, "batch")),
        .global_batch = json_integer_value(json_object_get(manifest, "global_batch")),
        .sync = mode != NULL && strcmp(mode, "sync") == 0,
        .given = mst_options_is_set(s->groups, s->n_groups, "batch") ||
                 mst_options_is_set(s->groups, s->n_groups, "global-batch"),
        .lr_given = mst_options_is_set(s->groups, s->n_groups, "lr") ||
                    mst_options_is_set(s->groups, s->n_groups, "lr-scale"),
    };
}

static mst_status set_number(mst_settings *s, const char *name, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", value);
    return mst_options_set(s->groups, s->n_groups, name, text);
}

mst_status mst_batch_keep(const mst_batch_before *before, mst_settings *s)
{
    long long workers = s->strategy.strategy == MST_STRATEGY_LOCAL ? 1 : s->strategy.workers;
    if (before->workers <= 0 || before->global_batch <= 0 || workers == before->workers)
        return MST_OK;
    bool sync = before->sync && s->strategy.mode == MST_MODE_SYNC, keep = sync && !before->given;
    if (keep)
        TRY(set_number(s, "global-batch", (double)before->global_batch));
    if (keep && s->strategy.lr_scale != 0 && !before->lr_given)
        TRY(set_number(s, "lr", s->optim.lr * (double)before->workers / (double)workers));
    mst_strategy_options now = s->strategy;
    TRY(mst_strategy_resolve(&now));
    if (keep)
        mst_info(
            "resuming with %lld worker%s instead of %lld: the global batch stays %lld rows, so each takes "
            "%s%lld instead of %lld",
            workers, workers == 1 ? "" : "s", (long long)before->workers, (long long)now.global_batch,
            now.global_batch % workers != 0 ? "at most " : "", (long long)now.batch,
            (long long)before->batch);
    else if (sync)
        mst_info(
            "resuming with %lld worker%s instead of %lld: the global batch changes from %lld to %lld rows, "
            "as --%s asks",
            workers, workers == 1 ? "" : "s", (long long)before->workers, (long long)before->global_batch,
            (long long)now.global_batch,
            mst_options_is_set(s->groups, s->n_groups, "global-batch") ? "global-batch" : "batch");
    else
        mst_info("resuming with %lld worker%s instead of %lld: each takes batches of %lld rows as before",
                 workers, workers == 1 ? "" : "s", (long long)before->workers, (long long)now.batch);
    return MST_OK;
}
