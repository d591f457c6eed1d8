/* The parameter server as an MPI job: roles of ranks, and the rank monitor; contract in job.h. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/parent.h"
#include "job/job_impl.h"
#include "ranks/rank_monitor.h"

#define DETACH_NS (3600 * MST_S) /* for the other ranks to finish; the rank monitor detects lost ones */
#define NAMED_MS  2000           /* for the rank monitor to report the loss that made MPI fail */

/* Used if the caller gives no function: the next poll of the net fails with the message. */
static void ranks_lost(void *arg, mst_rank_loss reason, const char *message)
{
    (void)reason;
    (void)arg;
    mst_net_mpi_lost(message);
}

mst_status mst_job_ranks(const mst_job_config *config, const mst_job_lost *lost,
                         const mst_train_callbacks *callbacks, mst_job_summary *summary)
{
    const mst_strategy_options *o = config->train->strategy;
    mst_job_config own = *config;
    mst_train_config train = *config->train;
    mst_mpi *mpi;
    mst_rank_monitor *monitor = NULL;
    *summary = (mst_job_summary){0};
    TRY(mst_mpi_start(NULL, &mpi));
    mst_rank_monitor_options options = {
        .mpi = mpi,
        .start_timeout_ms = (uint32_t)(o->start_timeout * 1000),
        .tls = mst_job_tls(o),
        .peer_timeout_ms = (uint32_t)(o->peer_timeout * 1000),
        .lost = lost->call != NULL ? lost->call : ranks_lost,
        .arg = lost->arg,
        .purpose = "--strategy ps",
    };
    TRY(mst_rank_monitor_new(&options, &monitor));
    (void)mst_job_mpi_entry(mpi, &train.manifest); /* an error would show in later allocations too */
    (void)mst_parent_lost(&train.lost_ns, &train.lost);
    own.train = &train;
    bool serves = (uint32_t)mpi->rank < config->cluster->n_servers;
    own.engine = &mst_net_mpi;
    own.index = (uint32_t)mpi->rank - (serves ? 0 : config->cluster->n_servers);
    own.all_begin = true; /* the launcher started all of them */
    mst_status st =
        serves ? mst_job_server(&own, callbacks, summary) : mst_job_worker(&own, callbacks, summary);
    if (st == MST_OK)
        st = mst_mpi_detach(mpi, mst_now_ns() + DETACH_NS);
    json_decref(train.manifest);
    mst_error error;
    mst_error_save(&error, st);
    if (st != MST_OK && !(st == MST_EPEER && mst_rank_monitor_await_lost(monitor, NAMED_MS)))
        mst_rank_monitor_fail(monitor, error.text);
    mst_rank_monitor_destroy(monitor);
    return st == MST_OK ? MST_OK : mst_error_restore(&error);
}
