/* A process that somebody else holds by its standard input: when that is closed, because the holder wants it
 * so, has been killed, or the connection to it is gone, the process ends. `muster launch` holds its processes
 * like this, here and behind ssh alike. */
#ifndef MST_CLI_STDIN_WATCH_H
#define MST_CLI_STDIN_WATCH_H

#include <stdatomic.h>

#include "base/status.h"

/* What the holder may write: asks for a checkpoint, as SIGUSR1 does. Other bytes mean nothing. */
#define MST_STDIN_CHECKPOINT "c"
/* ... that the end of its input stands for SIGINT or SIGHUP instead of SIGTERM. */
#define MST_STDIN_INT "i"
#define MST_STDIN_HUP "h"
/* ... that server 0 has ended well: a worker that has not joined the job need not wait for it. */
#define MST_STDIN_ENDED "e"

/* With MUSTER_WATCH_STDIN=SECONDS in the environment, starts a thread that reads standard input. At its end
 * the process gets SIGTERM (or as said above), and SECONDS later SIGKILL; if it is stopped (SIGSTOP) when its
 * parent dies, it is continued, so that it can end. Without the variable, and in ranks of an MPI job other
 * than 0: nothing. MST_EUSAGE when it is no number. */
mst_status mst_stdin_watch(void);

/* Set once the holder has written MST_STDIN_ENDED. */
const atomic_bool *mst_stdin_job_ended(void);

#endif
