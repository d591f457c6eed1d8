/* `muster launch --mpi`: a job whose processes are started by an MPI implementation's own launcher, and which
 * is restarted from its checkpoint when a rank has died.
 *
 * The launcher's standard input is forwarded to rank 0 only, on any host, so the parent pipe
 * (parent_pipe.h) ends at rank 0: closing it, which also happens when this process is killed, makes rank 0
 * save and end, and with it the job. */
#ifndef MST_LAUNCH_LAUNCH_MPI_H
#define MST_LAUNCH_LAUNCH_MPI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/option.h"
#include "base/status.h"
#include "launch/job_entry.h"
#include "launch/launch_plan.h"
#include "launch/launch_sink.h"

/* As MST_MPI_KINDS has them. */
typedef enum mst_mpi_kind { MST_MPI_KIND_AUTO, MST_MPI_KIND_OPENMPI, MST_MPI_KIND_MPICH } mst_mpi_kind;

/* Everything stays the caller's. */
typedef struct mst_mpi_job {
    const char *name;           /* MUSTER_JOB */
    const char *program;        /* this binary, at the same path on every host */
    const mst_text_list *words; /* "train" and what follows */
    const char *run;            /* the run directory among them; NULL: none, rank 0 names it */
    const char *hosts_file;     /* NULL: on this host, or on those of the Slurm job */
    const char *ssh;            /* words that reach a host */
    const char *args;           /* more words for the launcher; NULL: none */
    const mst_launch_sink *sink;
    mst_job_entry *entry; /* NULL: none */
    mst_mpi_kind kind;
    uint32_t n_ranks;      /* 0: as many as the hosts have slots */
    uint32_t max_restarts; /* within an hour */
    uint32_t grace_s;      /* for ranks to end after a signal */
} mst_mpi_job;

/* Returns when the launcher has ended and will not be started again: at most a grace and 5 s after a signal.
 * A job that ended because a rank died (exit code 3, or a signal) is started again with --resume, or from the
 * beginning while it has no checkpoint, on the hosts that can be reached. The message of a failure has the
 * first error of a rank; the status is that of the job, MST_EPEER if it can be resumed. A job that ended well
 * is reported in a note. Signals of this process are caught meanwhile. */
mst_status mst_mpi_job_run(const mst_mpi_job *job);

/* ---- the command line (launch_mpi_argv.c) ---- */

typedef struct mst_mpi_launcher {
    mst_mpi_kind kind;  /* never AUTO */
    char program[4096]; /* its mpirun or mpiexec */
} mst_mpi_launcher;

/* Of that kind; AUTO: the first whose plug-in loads and whose launcher is on the PATH. MST_EUSAGE names what
 * is missing. */
mst_status mst_mpi_launcher_find(mst_mpi_kind kind, mst_mpi_launcher *out);

/* Argv, NULL at the end, and the launcher's environment, for the ranks of the plan (its workers). words: the
 * arguments of muster. lost: the value of MST_PARENT_LOST_ENV; NULL: the job starts for the first time. The
 * caller frees both lists, also on failure. */
mst_status mst_mpi_launcher_words(const mst_mpi_job *job, const mst_mpi_launcher *launcher,
                                  const mst_plan *plan, const mst_text_list *words, const char *lost,
                                  mst_text_list *argv, mst_text_list *env);

/* The tag before every line of rank R, with either launcher: "[1,R]<stdout>:". A line that arrives in
 * parts has the tag before each part: see launch_mpi.c. */
#define MST_MPI_TAG_MPICH "[1,%r]<stdout>:"

#endif
