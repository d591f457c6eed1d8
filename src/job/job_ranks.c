/* The parameter server as an MPI job: which rank is what, and the watch over them; contract in job.h. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "ranks/rank_watch.h"
#include "job/job_impl.h"

#define PART_NS  (3600 * MST_S) /* for the other ranks to finish: the watch knows that they live */
#define NAMED_MS 2000           /* for the watch to hear of the death that MPI failed by */

/* Where nobody else wants to know: the next look at the net fails with the sentence. */
static void lost_by_itself(void *arg, bool death, const char *sentence)
{
    (void)death;
    (void)arg;
    mst_net_mpi_lost(sentence);
}

static mst_status take_part(const mst_job_config *config, bool serves, const mst_observer *observer,
                            mst_job_summary *summary)
{
    mst_worker_counts counts = {0};
    return serves ? mst_job_server(config, observer, summary)
                  : mst_job_worker(config, observer, &counts, summary);
}

mst_status mst_job_ranks(const mst_job_config *config, const mst_job_lost *lost, const mst_observer *observer,
                         mst_job_summary *summary)
{
    const mst_strategy_options *o = config->train->strategy;
    mst_job_config own = *config;
    mst_train_config train = *config->train;
    mst_mpi *mpi;
    mst_watch *watch = NULL;
    *summary = (mst_job_summary){0};
    TRY(mst_mpi_start(NULL, &mpi));
    mst_watch_options options = {
        .mpi = mpi,
        .start_timeout_ms = (uint32_t)(o->start_timeout * 1000),
        .peer_timeout_ms = (uint32_t)(o->peer_timeout * 1000),
        .lost = lost->call != NULL ? lost->call : lost_by_itself,
        .arg = lost->arg,
        .purpose = "--strategy ps",
    };
    TRY(mst_watch_new(&options, &watch));
    (void)mst_job_mpi_entry(mpi, &train.manifest); /* without memory for it more will fail */
    own.train = &train;
    bool serves = (uint32_t)mpi->rank < config->cluster->n_servers;
    own.engine = &mst_net_mpi;
    own.index = (uint32_t)mpi->rank - (serves ? 0 : config->cluster->n_servers);
    own.all_begin = true; /* the launcher started all of them */
    mst_status st = take_part(&own, serves, observer, summary);
    if (st == MST_OK)
        st = mst_mpi_part(mpi, mst_now_ns() + PART_NS);
    json_decref(train.manifest);
    mst_error error;
    mst_error_save(&error, st);
    if (st != MST_OK && !(st == MST_EPEER && mst_watch_await_lost(watch, NAMED_MS)))
        mst_watch_fail(watch, error.text);
    mst_watch_destroy(watch);
    return st == MST_OK ? MST_OK : mst_error_restore(&error);
}
