/* The processes of a job from start to end: `muster launch`, once the plan is made. */
#ifndef MST_LAUNCH_LAUNCH_JOB_H
#define MST_LAUNCH_LAUNCH_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/option.h"
#include "base/status.h"
#include "launch/job_entry.h"
#include "launch/launch_plan.h"
#include "launch/launch_sink.h"

/* Everything stays the caller's. */
typedef struct mst_launch_job {
    const mst_plan *plan;
    const char *name, *secret;  /* MUSTER_JOB; MST_PARENT_SECRET_ENV */
    const char *cluster_text;   /* MUSTER_CLUSTER */
    const char *program;        /* this binary */
    const char *command;        /* what was typed up to --, for hints */
    const mst_text_list *words; /* "train" and what follows */
    const char *ssh;            /* words that reach a host */
    const char *copy_folder;    /* folder of the hosts' copies of the program, with the host's number added;
                                   NULL: no copies */
    const mst_launch_sink *sink;
    mst_job_entry *entry;  /* NULL: none */
    bool pin;              /* a core for each process on this host */
    bool elastic;          /* workers may be added by requests to the entry */
    uint32_t max_restarts; /* of a process within an hour */
    uint32_t grace_s;      /* for processes to end in */
    uint32_t start_s;      /* for other hosts to start, and to receive a copy */
} mst_launch_job;

/* Restarts processes that die. Returns when no process is left, at most two graces after the first failure,
 * the first signal or the end of server 0. The message of a failure names the process that failed first and
 * its error, and the status has that process's exit code. A job that ended well is reported in a note.
 * Signals of this process are caught meanwhile. */
mst_status mst_launch_job_run(const mst_launch_job *job);

#endif
