/* A job's processes from start to end, with all that can happen in between: what `muster launch` does once it
 * knows what is wanted. */
#ifndef MST_LAUNCH_LAUNCH_JOB_H
#define MST_LAUNCH_LAUNCH_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/option.h"
#include "base/status.h"
#include "launch/launch_plan.h"
#include "launch/launch_sink.h"

/* Everything stays the caller's. */
typedef struct mst_launch_job {
    const mst_plan *plan;
    const char *name, *secret;  /* MUSTER_JOB, MUSTER_SECRET */
    const char *cluster_text;   /* MUSTER_CLUSTER */
    const char *program;        /* this binary */
    const char *command;        /* what was typed up to --, for hints */
    const mst_text_list *words; /* "train" and what follows */
    const char *ssh;            /* words that reach a host */
    const char
        *copy_folder; /* where the hosts get the program, with the host's number behind; NULL: it is there */
    const mst_launch_sink *sink;
    uint32_t grace_s; /* for processes to end in */
    uint32_t start_s; /* for other hosts to begin, and to take a copy */
} mst_launch_job;

/* Returns when no process is left, at most two graces after the first failure, the first signal or the end
 * of server 0. A
 * failure's sentence says which process failed first and why, and its status has that process's exit code; a
 * job that ended well is told in a line on standard error. Signals of this process are caught meanwhile. */
mst_status mst_launch_job_run(const mst_launch_job *job);

#endif
