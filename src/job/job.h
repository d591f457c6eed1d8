/* A job of several processes, built from the same options as a local training: servers and workers of the
 * parameter server, or ranks of MPI. Or all of them in threads of one process.
 *
 *   mst_job_run        runs this process's role from the settings; one of:
 *   mst_job_server     a server; server 0 is the coordinator and keeps the run directory
 *   mst_job_worker     a worker; if the cluster names no servers, it hosts one too
 *   mst_job_embedded   everything in threads of this process
 *   mst_job_ranks      a rank of an MPI job: the first ranks are servers, the others workers
 *   mst_job_allreduce  a rank of an MPI job with strategy allreduce
 *
 * Thread: one caller each. Waiting: as in ps/server.h and ps/worker.h. */
#ifndef MST_JOB_JOB_H
#define MST_JOB_JOB_H

#include "net/cluster.h"
#include "net/net.h"
#include "ranks/rank_monitor.h"
#include "train/run_status.h"
#include "train/training.h"

typedef struct mst_job_config {
    const mst_train_config *train; /* strategy.servers and workers are those of the cluster */
    const mst_cluster *cluster;
    uint32_t index;
    char process[17]; /* random: differs between a process and its successor. "": not used */
    const mst_net_engine *engine;
    bool all_begin; /* no worker joins late: training begins when all have joined */
    bool guest;     /* worker: it has the slot of a lost worker and runs in the process of another one */
    json_t *same;   /* options that all processes must share: {"lr": 0.1, ...}; borrowed */
    /* Worker: receives the job from the coordinator, {"resume", "options", "files"}, before any data is
     * opened, and takes over the options of a resumed run. Or NULL. */
    mst_status (*adopt)(void *arg, const json_t *job);
    void *adopt_arg;
} mst_job_config;

/* The end of a job on the coordinator. */
typedef struct mst_job_summary {
    bool coordinated; /* this process is the coordinator: the rest is filled in */
    mst_train_summary train;
    char stopped_by[24]; /* the process that received a signal to stop, "worker 1"; "": this one, or none */
    json_t *workers;     /* [{"worker", "name", "state", "steps", ...}]; the caller drops the reference */
    mst_start end;       /* of a training in memory that succeeded; the caller's to fini */
} mst_job_summary;

/* callbacks: for the coordinator. */
mst_status mst_job_server(const mst_job_config *config, const mst_train_callbacks *callbacks,
                          mst_job_summary *summary);

mst_status mst_job_worker(const mst_job_config *config, const mst_train_callbacks *callbacks,
                          mst_job_summary *summary);

/* strategy.servers servers and strategy.workers workers; config->cluster, index, engine and all_begin are not
 * used. */
mst_status mst_job_embedded(const mst_job_config *config, const mst_train_callbacks *callbacks,
                            mst_job_summary *summary);

/* Called at once, on a thread of its own, when another rank is lost: the thread that trains may compute for
 * long, and a launcher gives little time. call NULL: the next poll fails with MST_EPEER. */
typedef struct mst_job_lost {
    void (*call)(void *arg, mst_rank_loss reason, const char *message); /* as mst_rank_monitor_options.lost */
    void *arg;
} mst_job_lost;

/* config->cluster is that of mst_cluster_of_ranks; index, engine and all_begin are not used. Only the calling
 * thread uses MPI. On return MPI is still running, and all ranks are done (mst_mpi_detach). */
mst_status mst_job_ranks(const mst_job_config *config, const mst_job_lost *lost,
                         const mst_train_callbacks *callbacks, mst_job_summary *summary);

/* Strategy allreduce: this process is a rank of an MPI job. Rank 0 keeps the run directory and fills the
 * summary. config->cluster, index, engine and all_begin are not used. Errors: MST_EPEER with the rank that is
 * lost or failed. */
mst_status mst_job_allreduce(const mst_job_config *config, const mst_job_lost *lost,
                             const mst_train_callbacks *callbacks, mst_job_summary *summary);

/* The part of this process in the job of these settings, or the whole job in threads where no cluster is
 * named. config is that of mst_settings_config. */
struct mst_settings;
mst_status mst_job_run(struct mst_settings *settings, const mst_train_config *config,
                       const mst_job_lost *lost, const mst_train_callbacks *callbacks,
                       mst_job_summary *summary);

#endif
