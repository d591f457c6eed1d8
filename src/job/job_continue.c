/* Which run a restarted coordinator continues; contract in job_impl.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc.h"
#include "base/file.h"
#include "base/json_text.h"
#include "job/job_impl.h"
#include "run/run_dir.h"

#define RUNS_SEARCHED 16 /* of runs without a name, from the newest on */

/* Two sums with different starts make 64 bits. */
static void job_digest(const char *text, uint32_t sums[2])
{
    for (int i = 0; i < 2; i++)
        sums[i] = mst_crc32c(sums[i], text, strlen(text) + 1);
}

json_t *mst_job_identity(const mst_job_config *config)
{
    uint32_t sums[2] = {0, 0x9E3779B9u};
    char text[17];
    char *cluster = mst_cluster_text(config->cluster),
         *options = json_dumps(config->train->options, JSON_COMPACT | JSON_SORT_KEYS);
    json_t *identity = NULL;
    if (cluster != NULL && options != NULL) {
        job_digest(config->cluster->job, sums);
        job_digest(cluster, sums);
        job_digest(options, sums);
        for (size_t i = 0; i < config->train->files->n; i++)
            job_digest(config->train->files->items[i], sums);
        snprintf(text, sizeof text, "%08x%08x", sums[0], sums[1]);
        identity = json_string(text);
    }
    mst_free(cluster);
    free(options); /* jansson's allocation */
    return identity;
}

/* Whether the folder has a run of this job that is not complete. */
static bool job_is_unfinished(const mst_job_config *config, const char *run)
{
    json_t *manifest = mst_run_read_manifest(run), *identity = mst_job_identity(config);
    const char *state = json_string_value(json_object_get(manifest, "state"));
    bool same = identity != NULL &&
                json_equal(json_object_get(json_object_get(manifest, "cluster"), "identity"), identity);
    if (manifest != NULL && json_object_get(manifest, "options") == NULL)
        same = true; /* cut off while the directory was created */
    bool unfinished = same && (state == NULL || strcmp(state, "done") != 0);
    json_decref(manifest);
    json_decref(identity);
    return unfinished;
}

bool mst_job_is_over(const mst_job_config *config)
{
    const mst_train_options *o = config->train->train;
    const mst_cluster *cluster = config->cluster;
    if (o->run == NULL || o->resume || o->overwrite)
        return false;
    json_t *manifest = mst_run_read_manifest(o->run), *there = json_object_get(manifest, "cluster");
    json_t *servers = mst_json_texts(cluster->servers, cluster->n_servers),
           *workers = mst_json_texts(cluster->workers, cluster->n_workers);
    const char *state = json_string_value(json_object_get(manifest, "state"));
    bool over = state != NULL && strcmp(state, "done") == 0 &&
                json_equal(json_object_get(there, "servers"), servers) &&
                json_equal(json_object_get(there, "workers"), workers);
    json_decref(manifest);
    json_decref(servers);
    json_decref(workers);
    return over;
}

/* The newest of the runs without a name, runs/MODEL-N, that is this job's. The caller frees; NULL: none. */
static char *job_find_unnamed(const mst_job_config *config, const char *model)
{
    char *next = mst_run_free_name("runs", model), *found = NULL;
    const char *dash = next != NULL ? strrchr(next, '-') : NULL;
    long number = dash != NULL ? strtol(dash + 1, NULL, 10) : 0;
    for (long i = number - 1; i > 0 && i >= number - RUNS_SEARCHED && found == NULL; i--) {
        char *run = mst_sprintf("runs/%s-%ld", model, i);
        if (run != NULL && job_is_unfinished(config, run))
            found = run;
        else
            mst_free(run);
    }
    mst_free(next);
    return found;
}

mst_status mst_job_check_run(const mst_job_config *config)
{
    const mst_train_options *o = config->train->train;
    bool exists = o->run != NULL && !mst_run_is_empty(o->run) && mst_path_exists(o->run);
    if (config->index != 0 || !exists || o->resume || o->overwrite || job_is_unfinished(config, o->run))
        return MST_OK;
    return mst_run_refuse_existing(o->run);
}

char *mst_job_unfinished_run(const mst_job_config *config, const char *model, const json_t *join)
{
    const mst_train_options *o = config->train->train;
    const char *theirs = json_string_value(json_object_get(json_object_get(join, "continues"), "run"));
    if (o->resume || !config->engine->survives_death)
        return NULL;
    if (theirs != NULL && job_is_unfinished(config, theirs))
        return mst_strdup(theirs);
    bool named = config->cluster->job[0] != '\0';
    if (o->run == NULL)
        return named ? job_find_unnamed(config, model) : NULL;
    return (named || !o->overwrite) && job_is_unfinished(config, o->run) ? mst_strdup(o->run) : NULL;
}
