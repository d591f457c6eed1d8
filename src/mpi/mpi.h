/* mpi: the part of MPI that muster uses, through a plug-in per implementation.
 *
 * No part of muster is linked against MPI. src/mpi/plugin.c is compiled once per implementation found at
 * build time (muster_mpi_openmpi.so, muster_mpi_mpich.so) and fills in one table of functions with plain
 * types, mst_mpi_ops; mst_mpi_start loads the plug-in that belongs to the launcher which started this
 * process, by the launcher's variables, and checks that MPI has as many ranks as the launcher
 * started (an implementation under a foreign launcher starts each process as a job of its own).
 *
 * Thread: MPI is used by one thread of a process, the one that called mst_mpi_start; every function of the
 * table is called by it. Any thread may read rank, size and names.
 * Waiting: of the table only the collectives and `start` wait, for all ranks of the communicator: a caller
 * that must not hang uses the rank monitor (ranks/rank_monitor.h). mst_mpi_wait and mst_mpi_detach have a
 * deadline. Errors: the functions of the table return MST_OK or fail with a message that names the MPI
 * function and MPI's error. */
#ifndef MST_MPI_MPI_H
#define MST_MPI_MPI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define MST_MPI_ABI    3                /* of the table; a plug-in of another one is refused */
#define MST_MPI_SYMBOL "mst_mpi_plugin" /* of type mst_mpi_ops, in every plug-in */
#define MST_MPI_ANY    (-1)

typedef int mst_mpi_comm; /* a number of the plug-in's; 0: all ranks */
typedef struct mst_mpi_request {
    uint64_t opaque; /* MST_MPI_NONE: nothing is under way */
} mst_mpi_request;
#define MST_MPI_NONE ((mst_mpi_request){0})

typedef struct mst_mpi_ops {
    uint32_t abi;
    const char *name; /* "openmpi", "mpich" */
    /* Thread level funneled. size: as MPI sees it. */
    mst_status (*start)(int *rank, int *size);
    mst_status (*finalize)(void);            /* waits for all ranks */
    bool (*hangs)(void);                     /* finalize may wait for ever */
    void (*library)(char *out, size_t size); /* what is loaded: "Open MPI v4.1.4" */

    mst_status (*dup)(mst_mpi_comm comm, mst_mpi_comm *out);

    /* Messages of up to INT_MAX bytes. Requests are the caller's; test sets them to MST_MPI_NONE when done.
     */
    mst_status (*isend)(mst_mpi_comm comm, const void *data, size_t bytes, int to, int tag,
                        mst_mpi_request *out);
    mst_status (*irecv)(mst_mpi_comm comm, void *data, size_t bytes, int from, int tag, mst_mpi_request *out);
    /* done[i] is set for those that were done now; *n_done of them. */
    mst_status (*test_some)(uint32_t n, mst_mpi_request *requests, bool *done, uint32_t *n_done);
    mst_status (*cancel)(mst_mpi_request *request); /* of a receive; it is done then */

    /* Collectives, in place but for allgather, which takes up to INT_MAX bytes of a rank. */
    mst_status (*barrier)(mst_mpi_comm comm);
    mst_status (*broadcast)(mst_mpi_comm comm, void *data, size_t bytes, int root);
    mst_status (*allreduce_f32)(mst_mpi_comm comm, float *data, size_t n); /* sums */
    mst_status (*allreduce_f64)(mst_mpi_comm comm, double *data, size_t n);
    mst_status (*allgather)(mst_mpi_comm comm, const void *mine, size_t bytes, void *all);
} mst_mpi_ops;

/* ---- what is there ---- */

/* Choices of --mpi-plugin. */
#define MST_MPI_KINDS "auto|openmpi|mpich"

/* The launcher of this process, from the environment alone. */
typedef struct mst_mpi_launch {
    bool launched;        /* under mpirun, mpiexec or srun --mpi=...; the rest is set then */
    const char *launcher; /* "mpirun (Open MPI)", "mpiexec (MPICH)", "srun" */
    const char *plugin;   /* that belongs to it; NULL: any that is installed */
    int rank, size;
    int local_rank, local_size; /* on this host; -1: unknown */
} mst_mpi_launch;
void mst_mpi_launched(mst_mpi_launch *out);

/* A plug-in that was built, whether it can be loaded or not. */
typedef struct mst_mpi_info {
    const char *name;
    char path[512];
    char library[256]; /* what it is, when it can be loaded; else why it cannot */
    bool loads;
} mst_mpi_info;
/* Looks beside the binary, then where it was installed; MUSTER_PLUGINS names another folder. Loads each
 * plug-in, without starting MPI. Returns how many there are, at most n. */
uint32_t mst_mpi_plugins(mst_mpi_info *out, uint32_t n);

/* ---- one per process ---- */

typedef struct mst_mpi {
    const mst_mpi_ops *ops;
    int rank, size;
    mst_mpi_launch launch;
    char host[64]; /* of this process */
} mst_mpi;

/* Loads and starts MPI; the caller's thread is the one that uses it from here on. plugin NULL: the one that
 * belongs to the launcher. MST_EUSAGE when the pairing is wrong, or no launcher started this process;
 * MST_EUNSUPPORTED when there is no such plug-in. Once per process: a second call gives the same. */
mst_status mst_mpi_start(const char *plugin, mst_mpi **out);
/* Whether mst_mpi_start is in progress: MPI waits there without a deadline for ranks that have not started.
 * Any thread. */
bool mst_mpi_starting(void);
/* Disconnects: returns when all ranks have called it. They have finished then, and none of them uses MPI
 * again except for further calls of this function and the end. MST_ETIMEOUT by the deadline: keep the rank
 * monitor until it returns.
 */
mst_status mst_mpi_detach(mst_mpi *self, uint64_t deadline_ns);
/* The end, after mst_mpi_detach; a process that fails does not call it. MPICH's MPI_Finalize often hangs over
 * UCX's TCP: there it is skipped, and only the launcher is informed of the orderly end. Elsewhere it should
 * not hang, but the caller should bound it (mst_mpi_end_ms, mst_mpi_over). */
mst_status mst_mpi_end(mst_mpi *self);
/* Returns the time that the end may take. Rank 0, which has more output, ends first, because some launchers
 * kill the others as soon as one has ended. */
uint32_t mst_mpi_end_ms(const mst_mpi *self);
/* Whether there is nothing of MPI in this process: it was never started, or has ended. Else the process
 * leaves by _exit, because the exit handlers of MPI may wait without a deadline. Any thread. */
bool mst_mpi_over(void);
/* MPI, if all ranks have detached and the calling thread is the one that uses it; else NULL. */
mst_mpi *mst_mpi_detached(void);

/* Polls until the requests are all done, backing off from yielding to sleeping 50 and 500 us, so that more
 * ranks than cores work well. what: named when the deadline passes (MST_ETIMEOUT). */
mst_status mst_mpi_wait(mst_mpi *self, uint32_t n, mst_mpi_request *requests, uint64_t deadline_ns,
                        const char *what);

/* The backing off by itself: idle once for every poll that found nothing, busy when one found something. */
typedef struct mst_mpi_backoff {
    uint32_t idle;
} mst_mpi_backoff;
void mst_mpi_idle(mst_mpi_backoff *self);
static inline void mst_mpi_busy(mst_mpi_backoff *self)
{
    self->idle = 0;
}

#endif
