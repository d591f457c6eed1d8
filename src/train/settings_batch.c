/* Keeping the global batch of a resumed run; contract in settings_impl.h.
 *
 * A synchronous step is one global batch: with another number of workers each takes another share, and the
 * weights follow the same path. In the other modes a step is one worker's batch, which does not change with
 * the number of workers. */
#include "train/settings_impl.h"

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

static mst_status batch_set_number(mst_settings *s, const char *name, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", value);
    return mst_options_set(s->groups, s->n_groups, name, text);
}

void mst_batch_report(const mst_batch_before *before, const mst_settings *s)
{
    if (before->workers <= 0 || before->global_batch <= 0)
        return;
    const mst_strategy_options *now = &s->resolved;
    long long workers = (long long)now->workers;
    bool sync = before->sync && now->mode == MST_MODE_SYNC;
    char resuming[80] = "resuming";
    long long was = (long long)before->global_batch, is = (long long)now->global_batch;
    const char *asked =
        s->strategy.global_batch > 0 && mst_options_is_set(s->groups, s->n_groups, "global-batch")
            ? "global-batch"
            : "batch";
    bool other = workers != before->workers;
    if (other)
        snprintf(resuming, sizeof resuming, "resuming with %lld %s%s instead of %lld", workers,
                 s->strategy.strategy == MST_STRATEGY_ALLREDUCE ? "rank" : "worker", workers == 1 ? "" : "s",
                 (long long)before->workers);
    if (sync && was != is)
        mst_info("%s: the %sbatch changes from %lld to %lld rows, as set by --%s", resuming,
                 workers > 1 || other ? "global " : "", was, is, asked);
    else if (sync && other)
        mst_info("%s: the global batch stays %lld rows, so %s takes %s%lld rows a step instead of %lld",
                 resuming, is, workers == 1 ? "it" : "each", is % workers != 0 ? "at most " : "",
                 (long long)now->batch, (long long)before->batch);
    else if (now->batch != before->batch)
        mst_info("%s: each batch has %lld rows instead of %lld", resuming, (long long)now->batch,
                 (long long)before->batch);
    else if (other)
        mst_info("%s: %s takes batches of %lld row%s as before", resuming, workers == 1 ? "it" : "each",
                 (long long)now->batch, now->batch == 1 ? "" : "s");
}

mst_status mst_batch_keep(const mst_batch_before *before, mst_settings *s)
{
    long long workers = s->strategy.strategy == MST_STRATEGY_LOCAL ? 1 : s->strategy.workers;
    bool sync = before->sync && s->strategy.mode == MST_MODE_SYNC,
         keep = sync && !before->given && workers != before->workers;
    if (before->workers <= 0 || before->global_batch <= 0)
        return MST_OK;
    if (keep)
        TRY(batch_set_number(s, "global-batch", (double)before->global_batch));
    if (keep && s->strategy.lr_scale != 0 && !before->lr_given)
        TRY(batch_set_number(s, "lr", s->optim.lr * (double)before->workers / (double)workers));
    return MST_OK;
}
