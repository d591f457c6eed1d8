/* The supervisor that started this process (launch/parent_pipe.h), as the environment describes it.
 *
 * Thread: any, as long as none changes the environment. */
#ifndef MST_BASE_PARENT_H
#define MST_BASE_PARENT_H

#include <stdint.h>

#include "base/status.h"

/* SECONDS: a supervisor holds the other end of standard input, and this process has SECONDS to end after a
 * stop request. */
#define MST_PARENT_ENV "MUSTER_WATCH_STDIN"

/* The seconds; -1: no supervisor started this process. MST_EUSAGE, with -1, if the value is not a number. */
mst_status mst_parent_grace(int64_t *seconds);

#endif
