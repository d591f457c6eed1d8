/* Shared by the files of jobs (job*.c); no other file includes this. */
#ifndef MST_JOB_JOB_IMPL_H
#define MST_JOB_JOB_IMPL_H

#include "job/job.h"
#include "mpi/mpi.h"

/* Identity, secret and timeouts of this process. */
mst_net_options mst_job_net(const mst_job_config *config, mst_role role, const mst_strategy_options *o);

/* How often and since when this process has tried to take part in its job again; zeroed at first. */
typedef struct mst_job_retry {
    uint64_t since_ns; /* 0: it takes part, or has never done so */
    bool coordinates;  /* this process is server 0 */
    bool index_taken;  /* another process, which may be lost, had the index of this one at the last try */
} mst_job_retry;

/* The number of a worker or rank among those on its host: mst_train_config.device_turn. */
uint32_t mst_job_device_turn(const mst_job_config *config, uint32_t index);

/* Logs the GPU of a worker or rank, if it has one. */
void mst_job_log_device(const mst_model *model, const char *role, uint32_t index);

/* Whether to take part again: st is MST_EAGAIN, and a stop was not requested, and less than --start-timeout
 * has passed since the job was left. took_part: the attempt that ended reached the training. Waits a moment.
 * False: *st is the status to return, with its message: MST_EPEER if no successor of a lost process has
 * joined.
 */
bool mst_job_again(mst_job_retry *self, const mst_job_config *config, bool took_part, mst_status *st);

/* A text that only processes of one job with the same command line have: "identity" of "cluster" in the
 * manifest. New reference or NULL. */
json_t *mst_job_identity(const mst_job_config *config);
/* MST_EUSAGE if --replicas needs what the engine does not have. */
mst_status mst_job_check_replicas(const mst_job_config *config);
/* Before the data is read: MST_EEXIST if the run of the options exists and is not this job's to continue. */
mst_status mst_job_check_run(const mst_job_config *config);
/* Whether the run of the options is on this host, done, and of this cluster: no server 0 starts with them
 * then. */
bool mst_job_is_over(const mst_job_config *config);
/* The run that this coordinator continues without --resume, because it is a successor: the run that a worker
 * took part in before, named in its JOIN, {"continues": {"run", "step"}}; or the run of the options. It must
 * have the identity of this job and not be done. With --overwrite, and if the options name no run, only a job
 * with a name, which `launch` makes unique, is recognised without a worker. The caller frees; NULL: none. */
char *mst_job_unfinished_run(const mst_job_config *config, const char *model, const json_t *join);

mst_net_tls mst_job_tls(const mst_strategy_options *o);

/* {"role", "index", "same", "cluster"}, for the coordinator to compare. New reference or NULL. */
json_t *mst_job_join(const mst_job_config *config, const char *role);

/* Sets of files that the processes of a job must share, and their names in messages. */
typedef enum mst_job_set { MST_JOB_TRAIN, MST_JOB_TEST, MST_JOB_VALID, MST_JOB_N_SETS } mst_job_set;
extern const char *const mst_job_sets[MST_JOB_N_SETS];

/* The files of a set of this process (data_identity.h). Null if there are none, they are not on this host, or
 * they belong to this process alone (--shard local). New reference in *out. */
mst_status mst_job_data(const mst_job_config *config, mst_job_set set, json_t **out);
/* Fails if both are known and differ; names both. who: "worker 1" or "rank 1"; whose: "server 0". shardable:
 * the process could have rows of its own (--shard local). */
mst_status mst_job_same_data(mst_job_set set, const json_t *theirs, const char *who, const json_t *ours,
                             const char *whose, bool shardable);

/* What the coordinator has found out about the processes that join; zeroed at first. */
typedef struct mst_job_admission {
    struct {
        json_t *files; /* of this process, or of the first worker that has them; NULL: not known yet */
        char of[24];   /* the process that has them */
    } data[MST_JOB_N_SETS];
    json_t *processes; /* {"worker-0": mst_job_config.process} of the last JOINs */
} mst_job_admission;
/* Checks the JOIN of a process: MST_EUSAGE or MST_EINPUT names the first difference in the cluster, the
 * options or the files. */
mst_status mst_job_admit(mst_job_admission *self, const mst_job_config *config, const json_t *join);
void mst_job_admission_fini(mst_job_admission *self);

/* The job as the coordinator or rank 0 sends it to the other processes: {"resume", "files"} and, for a
 * resumed run, its options, model and sizes. New reference or NULL. */
json_t *mst_job_json(const mst_train_config *train);

/* Whether `muster launch` started this process: it holds the other end of its standard input
 * (launch/parent_pipe.h). */
bool mst_job_is_launched(void);
/* Within which the processes of a job end after a stop request: --grace of muster launch, or 30 s. */
uint32_t mst_job_stop_grace_ms(void);
/* The entry of the manifest of an MPI job: {"mpi": {"launcher", "ranks"}}. New reference in *out. */
mst_status mst_job_mpi_entry(const mst_mpi *mpi, json_t **out);

#endif
