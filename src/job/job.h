/* A job of several processes: servers and workers of the parameter server, put together from the same options
 * as a local training. Or of one process, whose threads play all parts.
 *
 *   mst_job_server     serves; server 0 is the coordinator and keeps the run directory
 *   mst_job_worker     trains; where no servers are named, hosts a server too
 *   mst_job_embedded   everything in threads of this process
 *   mst_job_ranks      this process is a rank of an MPI job: the first ranks serve, the others train
 *
 * Thread: one caller each. Waiting: as ps/server.h and ps/worker.h say. */
#ifndef MST_JOB_JOB_H
#define MST_JOB_JOB_H

#include "net/cluster.h"
#include "ps/worker.h"
#include "ranks/rank_monitor.h"
#include "train/run_status.h"
#include "train/train_config.h"

typedef struct mst_job_config {
    const mst_train_config *train; /* strategy.servers and workers as the cluster says */
    const mst_cluster *cluster;
    uint32_t index;
    const mst_net_engine *engine;
    bool all_begin; /* no worker comes late: training begins when all have joined */
    json_t *same;   /* options that all processes must share: {"lr": 0.1, ...}; borrowed */
    /* Worker: the coordinator has said what the job is, {"resume", "options", "files"}, before any data is
     * opened; takes over what a resumed run was started with. Or NULL. */
    mst_status (*adopt)(void *arg, const json_t *job);
    void *adopt_arg;
} mst_job_config;

/* What the coordinator knows at the end. */
typedef struct mst_job_summary {
    bool coordinated; /* this process was the coordinator: the rest is filled in */
    mst_train_summary train;
    char stopped_by[24]; /* the process that was asked to stop, "worker 1"; "": this one, or none */
    json_t *workers;     /* [{"worker", "name", "state", "steps", ...}]; the caller drops the reference */
} mst_job_summary;

/* callbacks: for the coordinator. */
mst_status mst_job_server(const mst_job_config *config, const mst_train_callbacks *callbacks,
                          mst_job_summary *summary);

mst_status mst_job_worker(const mst_job_config *config, const mst_train_callbacks *callbacks,
                          mst_worker_counts *counts, mst_job_summary *summary);

/* strategy.servers servers and strategy.workers workers; config->cluster, index, engine and all_begin are not
 * used. */
mst_status mst_job_embedded(const mst_job_config *config, const mst_train_callbacks *callbacks,
                            mst_job_summary *summary);

/* Who is told that another rank is dead, on a thread of its own, at once: the thread that trains may compute
 * for long, and a launcher gives little time. call NULL: the job fails with MST_EPEER at its next look. */
typedef struct mst_job_lost {
    void (*call)(void *arg, mst_rank_loss reason,
                 const char *sentence); /* as mst_rank_monitor_options.lost */
    void *arg;
} mst_job_lost;

/* config->cluster is that of mst_cluster_of_ranks; index, engine and all_begin are not used. The calling
 * thread is the one that uses MPI, which has not ended on return: all ranks have parted (mpi.h) then. */
mst_status mst_job_ranks(const mst_job_config *config, const mst_job_lost *lost,
                         const mst_train_callbacks *callbacks, mst_job_summary *summary);

/* Strategy allreduce: this process is a rank of an MPI job; rank 0 keeps the run directory, and summary is
 * filled in there. config->cluster, index, engine and all_begin are not used. Errors: MST_EPEER naming the
 * rank that died or failed. */
mst_status mst_job_allreduce(const mst_job_config *config, const mst_job_lost *lost,
                             const mst_train_callbacks *callbacks, mst_job_summary *summary);

/* The part of this process in the job of these settings, or the whole job in threads where no cluster is
 * named. config is that of mst_settings_config. */
struct mst_settings;
mst_status mst_job_run(struct mst_settings *settings, const mst_train_config *config,
                       const mst_job_lost *lost, const mst_train_callbacks *callbacks,
                       mst_job_summary *summary);

#endif
