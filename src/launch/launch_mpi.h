/* `muster launch --mpi`: a job whose processes are started by an MPI implementation's own launcher, and which
 * is started again from its checkpoint when a rank has died.
 *
 * The launcher's standard input reaches rank 0 alone, wherever that is; so the pipe that stands for this
 * process (parent_pipe.h) ends at rank 0: closing it, which also happens when this process is killed, asks
 * rank 0 to save and end, and with it the job. */
#ifndef MST_LAUNCH_LAUNCH_MPI_H
#define MST_LAUNCH_LAUNCH_MPI_H

#include <stdbool.h>
#include <stdint.h>

#include "base/option.h"
#include "base/status.h"
#include "launch/launch_plan.h"
#include "launch/launch_sink.h"

/* As MST_MPI_KINDS has them. */
typedef enum mst_mpi_kind { MST_MPI_KIND_AUTO, MST_MPI_KIND_OPENMPI, MST_MPI_KIND_MPICH } mst_mpi_kind;

/* Everything stays the caller's. */
typedef struct mst_mpi_job {
    const char *name;           /* MUSTER_JOB */
    const char *program;        /* this binary, on every host at the same place */
    const mst_text_list *words; /* "train" and what follows */
    const char *run;            /* the run's folder among them; NULL: none, and nothing is restarted */
    const char *hosts_file;     /* NULL: everything here, or where Slurm says */
    const char *ssh;            /* words that reach a host */
    const char *args;           /* more words for the launcher; NULL: none */
    const mst_launch_sink *sink;
    mst_mpi_kind kind;
    uint32_t n_ranks; /* 0: as many as the hosts have slots */
    uint32_t max_restarts;
    uint32_t grace_s; /* for ranks to end in, once they are asked to */
} mst_mpi_job;

/* Returns when the launcher has ended and will not be started again: at most a grace and 5 s after a signal.
 * A job that ended because a rank died (exit code 3, or a signal) is started again with --resume, or from the
 * beginning while it has no checkpoint, up to max_restarts times. The sentence of a failure has the first
 * that a rank said; status and exit code are those of the job, MST_EPEER when it can be resumed. A job that
 * ended well is told in a line on standard error. Signals of this process are caught meanwhile. */
mst_status mst_mpi_job_run(const mst_mpi_job *job);

/* ---- the command line (launch_mpi_argv.c) ---- */

typedef struct mst_mpi_launcher {
    mst_mpi_kind kind;  /* never AUTO */
    char program[4096]; /* its mpirun or mpiexec */
} mst_mpi_launcher;

/* Of the kind asked for; AUTO: the first whose plug-in loads and whose launcher is on the PATH. MST_EUSAGE
 * says what is missing. */
mst_status mst_mpi_launcher_find(mst_mpi_kind kind, mst_mpi_launcher *out);

/* Argv, NULL at the end, and the launcher's environment, for the ranks as the plan has them (as workers).
 * words: of muster, behind its name. The caller ends both lists, also on failure. */
mst_status mst_mpi_launcher_words(const mst_mpi_job *job, const mst_mpi_launcher *launcher,
                                  const mst_plan *plan, const mst_text_list *words, mst_text_list *argv,
                                  mst_text_list *env);

/* What every line of rank R has in front, by either launcher: "[1,R]<stdout>:". Both cut a line that comes in
 * parts, and put the tag before each part: see launch_mpi.c. */
#define MST_MPI_TAG_MPICH "[1,%r]<stdout>:"

#endif
