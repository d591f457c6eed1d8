/* Finding checkpoints; contract in checkpoint.h. */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "run/checkpoint_impl.h"
#include "run/run_dir.h"

mst_status mst_checkpoint_newest(const char *folder, uint64_t below, char **path, uint64_t *step)
{
    mst_checkpoint_entry *entries = NULL;
    size_t n = 0;
    mst_status st = mst_checkpoint_list(folder, &entries, &n);
    while (n > 0 && (!entries[n - 1].complete || entries[n - 1].step >= below))
        n--;
    if (n > 0) {
        *step = entries[n - 1].step;
        *path = mst_sprintf("%s/" CHECKPOINT_STEP_NAME, folder, (unsigned long long)*step);
        if (*path == NULL)
            st = mst_fail_memory();
    }
    mst_free(entries);
    return st;
}

/* The error for a run without a checkpoint; one may follow while it trains. */
static mst_status checkpoint_none_in_run(const char *path)
{
    char by[320];
    if (mst_run_held(path, by, sizeof by))
        return mst_fail(MST_EINPUT, "%s is being trained by %s and has saved no checkpoint yet", path, by);
    return mst_fail(MST_EINPUT, "%s: the run has saved no checkpoint; train it again", path);
}

mst_status mst_checkpoint_find(const char *path, char **out)
{
    mst_status st = MST_OK;
    uint64_t step;
    char *found = NULL;
    char *nested = mst_sprintf("%s/checkpoints", path), *manifest = mst_sprintf("%s/manifest.json", path),
         *metrics = mst_sprintf("%s/metrics.csv", path);
    if (nested == NULL || manifest == NULL || metrics == NULL)
        TRY_OUT(st, mst_fail_memory());
    if (!mst_path_is_folder(path))
        TRY_OUT(st, mst_fail(MST_EINPUT, "%s: %s", path,
                             mst_path_exists(path) ? "not a checkpoint: a checkpoint is a folder"
                                                   : "no such run or checkpoint"));
    if (mst_path_is_folder(nested))
        TRY_OUT(st, mst_checkpoint_newest(nested, UINT64_MAX, &found, &step));
    else if (!mst_path_exists(manifest))
        TRY_OUT(st, mst_checkpoint_newest(path, UINT64_MAX, &found, &step));
    else if (mst_path_exists(metrics)) /* a run */
        TRY_OUT(st, checkpoint_none_in_run(path));
    else if ((found = mst_strdup(path)) == NULL)
        TRY_OUT(st, mst_fail_memory());
    if (found == NULL)
        TRY_OUT(st, mst_path_exists(metrics) ? checkpoint_none_in_run(path)
                                             : mst_fail(MST_EINPUT, "%s: no complete checkpoint here", path));
    *out = found;
out:
    mst_free(nested);
    mst_free(manifest);
    mst_free(metrics);
    return st;
}

/* Whether a run was trained with --patience, according to its manifest. */
static mst_status checkpoint_run_has_patience(const char *run, bool *out)
{
    json_t *manifest;
    TRY(mst_run_load_manifest(run, &manifest));
    const json_t *training = json_object_get(json_object_get(manifest, "options"), "training");
    *out = json_integer_value(json_object_get(training, "patience")) > 0;
    json_decref(manifest);
    return MST_OK;
}

mst_status mst_checkpoint_find_model(const char *path, bool last, char **out, bool *best)
{
    uint64_t step;
    char *found = NULL, *folder = mst_sprintf("%s/best", path);
    if (folder == NULL)
        return mst_fail_memory();
    bool patience = false;
    mst_status st =
        !last && mst_path_is_folder(folder) ? checkpoint_run_has_patience(path, &patience) : MST_OK;
    if (st == MST_OK && patience)
        st = mst_checkpoint_newest(folder, UINT64_MAX, &found, &step);
    mst_free(folder);
    TRY(st);
    *best = found != NULL;
    if (found == NULL)
        return mst_checkpoint_find(path, out);
    *out = found;
    return MST_OK;
}
