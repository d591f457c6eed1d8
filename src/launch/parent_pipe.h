/* The child's end of the supervisor: the pipe on standard input, and lines for the supervisor on standard
 * error.
 *
 * The supervisor holds the writing end of the pipe. At the end of the pipe (the supervisor closed it or was
 * killed, or the connection to this host is lost) the process ends. This works in the same way on this host
 * and through ssh. */
#ifndef MST_LAUNCH_PARENT_PIPE_H
#define MST_LAUNCH_PARENT_PIPE_H

#include <stdatomic.h>

#include "base/status.h"

/* Bytes that the supervisor may write; all others have no effect. */
#define MST_PARENT_CHECKPOINT "c" /* save a checkpoint, as at SIGUSR1 */
#define MST_PARENT_INT        "i" /* the end of the pipe means SIGINT instead of SIGTERM */
#define MST_PARENT_HUP        "h" /* ... SIGHUP */
#define MST_PARENT_ENDED                                                                                     \
    "e" /* server 0 has ended well: a worker that has not joined does not wait for it                        \
         */

#define MST_PARENT_NO_WORKERS "w" /* no worker is left, and none will be started: server 0 does not wait */

/* With this variable set to "stdin", the first line of standard input is the job's secret. */
#define MST_PARENT_SECRET_ENV "MUSTER_SECRET_FROM"

/* Reads the secret into MUSTER_SECRET, for this process alone: the environment that other processes see in
 * /proc stays without it. Waits for it at most 60 s. MST_EPEER if it does not come. Does nothing without
 * MST_PARENT_SECRET_ENV. */
mst_status mst_parent_pipe_secret(void);

/* With MST_PARENT_ENV=SECONDS in the environment (base/parent.h), starts a thread that reads standard input.
 * At its end the process gets SIGTERM (or the signal above), and SECONDS later SIGKILL. If the process is
 * stopped (SIGSTOP) when its parent dies, it is continued, so that it can end. Does nothing without the
 * variable and in ranks of an MPI job other than 0. MST_EUSAGE if the value is no number. */
mst_status mst_parent_pipe_open(void);

/* Set once the supervisor has written MST_PARENT_ENDED, or MST_PARENT_NO_WORKERS. */
const atomic_bool *mst_parent_pipe_job_ended(void);
const atomic_bool *mst_parent_pipe_no_workers(void);

/* A line on standard error before the message of a failure that began in another process, whose name
 * follows: "muster-origin: worker 1". The supervisor removes the line from the output. */
#define MST_PARENT_ORIGIN "muster-origin: "
/* A line on standard error of server 0, worker 0 of a job without servers, and rank 0: training has begun,
 * and its run directory follows. */
#define MST_PARENT_BEGAN "muster-began: "
/* The same before the message of a failure that a restart of the process would repeat: bad input, a deadline
 * that passed. */
#define MST_PARENT_FINAL "muster-final"

#endif
