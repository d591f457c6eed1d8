/* The place of this process in a job: its cluster or MPI ranks, its role and index, the number of processes,
 * and the options that all processes share. */
#include <stdlib.h>
#include <string.h>

#include "mpi/mpi.h"
#include "options/option_tables.h"
#include "train/settings_impl.h"

/* The cluster has the number of processes, which may differ from that of the resumed run. */
static void settings_count_cluster(mst_settings *s)
{
    if (s->cluster.source == NULL)
        return;
    s->strategy.strategy = MST_STRATEGY_PS;
    s->strategy.servers = s->cluster.n_servers;
    s->strategy.workers = s->cluster.n_workers;
}

/* allreduce: the number of ranks, which may differ from that of the resumed run. */
static void settings_count_ranks(mst_settings *s)
{
    mst_mpi_launch launch;
    if (s->strategy.strategy != MST_STRATEGY_ALLREDUCE)
        return;
    mst_mpi_launched(&launch);
    s->strategy.workers = launch.launched ? launch.size : 1;
    s->strategy.servers = 1;
}

void mst_settings_count_processes(mst_settings *s)
{
    settings_count_cluster(s);
    settings_count_ranks(s);
}

/* Under mpirun or srun, without any cluster spec: the ranks are the cluster. */
static mst_status settings_find_ranks(mst_settings *s)
{
    mst_mpi_launch launch;
    mst_mpi_launched(&launch);
    if (s->strategy.strategy != MST_STRATEGY_PS || !launch.launched)
        return MST_OK;
    if (s->strategy.servers == 0)
        return mst_fail(MST_EUSAGE,
                        "--servers 0: a parameter server is needed; for ranks of MPI that all train, "
                        "give --strategy allreduce");
    if (s->strategy.servers >= launch.size)
        return mst_fail(
            MST_EUSAGE,
            "%s started %d rank%s, and --servers %lld leaves none for workers; start at least %lld",
            launch.launcher, launch.size, launch.size == 1 ? "" : "s", (long long)s->strategy.servers,
            (long long)s->strategy.servers + 1);
    TRY(mst_cluster_of_ranks((uint32_t)launch.size, (uint32_t)s->strategy.servers, &s->cluster));
    bool serves = launch.rank < s->strategy.servers;
    s->process.role = serves ? 1 : 2;
    s->process.index = launch.rank - (serves ? 0 : s->strategy.servers);
    settings_count_cluster(s);
    return MST_OK;
}

/* --strategy allreduce with a cluster instead of MPI: every worker holds a share of the model, sums its
 * gradients and returns the weights, which gives the same steps. */
static mst_status settings_map_allreduce(mst_settings *s)
{
    mst_strategy_options as_ranks = s->strategy;
    if (!s->cluster.colocated)
        return mst_fail(MST_EUSAGE,
                        "--strategy allreduce: %s names servers, which allreduce does not have; name workers "
                        "only, or give --strategy ps",
                        s->cluster.source);
    if (mst_options_is_set(s->groups, s->n_groups, "reduction"))
        return mst_fail(MST_EUSAGE,
                        "--reduction: it is for ranks of MPI, and the workers of %s run without MPI",
                        s->cluster.source);
    static const char *const of_servers[] = {"quorum", "replicas", "elastic"};
    for (size_t i = 0; i < sizeof of_servers / sizeof *of_servers; i++)
        if (mst_options_is_set(s->groups, s->n_groups, of_servers[i]))
            return mst_fail(MST_EUSAGE, "--%s needs --strategy ps; leave it out with --strategy allreduce",
                            of_servers[i]);
    as_ranks.workers = s->cluster.n_workers;
    TRY(mst_strategy_resolve(&as_ranks));
    s->cluster.allreduce = true;
    return MST_OK;
}

mst_status mst_settings_find_cluster(mst_settings *s)
{
    mst_cluster *out = &s->cluster;
    mst_mpi_launch launch;
    bool named = s->process.role != 0 || s->process.cluster != NULL;
    bool given = mst_options_is_set(s->groups, s->n_groups, "strategy");
    bool allreduce = given && s->strategy.strategy == MST_STRATEGY_ALLREDUCE;
    mst_mpi_launched(&launch);
    if (!named && given && s->strategy.strategy != MST_STRATEGY_PS && (!allreduce || launch.launched))
        return MST_OK; /* --strategy local needs no cluster, and ranks connect through MPI */
    mst_cluster_env env = mst_cluster_env_read();
    TRY(mst_cluster_find(s->process.cluster, &env, out));
    if (out->source == NULL)
        return s->process.role == 0
                   ? settings_find_ranks(s)
                   : mst_fail(MST_EUSAGE, "--role needs --cluster FILE, or MUSTER_CLUSTER or TF_CONFIG");
    if (s->process.role == 0 && !out->has_task)
        return mst_fail(MST_EUSAGE, "%s names a cluster; give --role and --index of this process",
                        out->source);
    if (s->process.role == 0) {
        s->process.role = out->role == MST_ROLE_SERVER ? 1 : 2;
        s->process.index = out->index;
    }
    if (allreduce)
        TRY(settings_map_allreduce(s));
    settings_count_cluster(s);
    bool more = s->strategy.elastic && s->process.role == 2;
    if (more && s->process.index < (int64_t)out->n_workers + MST_ELASTIC_MORE &&
        s->process.index < MST_WORKER_MAX)
        return MST_OK;
    return mst_cluster_check_index(out, s->process.role == 1 ? MST_ROLE_SERVER : MST_ROLE_WORKER,
                                   (uint32_t)s->process.index);
}

bool mst_settings_follows_rank_0(const mst_settings *s)
{
    mst_mpi_launch launch;
    mst_mpi_launched(&launch);
    return s->strategy.strategy == MST_STRATEGY_ALLREDUCE && launch.launched && launch.rank > 0;
}

bool mst_settings_keeps_run(const mst_settings *s)
{
    return (s->process.role == 0 && !mst_settings_follows_rank_0(s)) ||
           (s->process.index == 0 && (s->process.role == 1 || s->cluster.colocated));
}

mst_status mst_settings_check_ranks(const mst_settings *s)
{
    mst_mpi_launch launch;
    mst_mpi_launched(&launch);
    if (s->strategy.strategy != MST_STRATEGY_LOCAL || !launch.launched || launch.size == 1)
        return MST_OK;
    return mst_fail(MST_EUSAGE,
                    "%s started %d ranks, and with --strategy local each would train the same model; give "
                    "--strategy allreduce, or --strategy ps --servers 1",
                    launch.launcher, launch.size);
}

/* The options that all processes of a job must agree on: how rows are ordered and changed, the model, the
 * optimizer, the strategy. */
json_t *mst_settings_shared(const json_t *options)
{
    const char *title, *name;
    json_t *same = json_object(), *group, *value;
    json_object_foreach((json_t *)options, title, group)
    {
        json_object_foreach(group, name, value)
        {
            if (!mst_train_option_is(name, MST_OPTION_MAY_DIFFER))
                json_object_set(same, name, value);
        }
    }
    if (same == NULL)
        return NULL;
    const json_t *training = json_object_get(options, "training"),
                 *valid = json_object_get(training, "valid");
    const char *mode = json_string_value(json_object_get(json_object_get(options, "strategy"), "mode"));
    /* paths may differ, but the evaluating process must have the sets that the coordinator expects; content
     * is compared when a worker joins */
    const char *text = json_string_value(valid);
    char *end = NULL;
    double fraction = text != NULL ? strtod(text, &end) : 0.0;
    json_object_set_new(same, "test", json_boolean(json_array_size(json_object_get(training, "test")) > 0));
    json_object_set_new(same, "valid",
                        end != text && *end == '\0' ? json_real(fraction) : json_boolean(text != NULL));
    mst_isa isa;
    if (mode != NULL && strcmp(mode, "sync") == 0 && /* bit for bit the same, for one instruction set */
        mst_isa_parse(json_string_value(json_object_get(training, "isa")), &isa) == MST_OK)
        json_object_set_new(same, "isa", json_string(mst_isa_name(mst_kernels_get(isa)->isa)));
    return same;
}
