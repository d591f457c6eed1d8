/* The supervisor that started this process (launch/parent_pipe.h), as the environment describes it.
 *
 * Thread: any, as long as none changes the environment. */
#ifndef MST_BASE_PARENT_H
#define MST_BASE_PARENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* SECONDS: a supervisor holds the other end of standard input, and this process has SECONDS to end after a
 * stop request. */
#define MST_PARENT_ENV "MUSTER_WATCH_STDIN"

/* The seconds; -1: no supervisor started this process. MST_EUSAGE, with -1, if the value is not a number. */
mst_status mst_parent_grace(int64_t *seconds);

/* SECONDS WHY: the supervisor starts the job again, which it lost at that time (wall clock, since 1970). */
#define MST_PARENT_LOST_ENV "MUSTER_LOST"

/* Whether the supervisor starts the job again. *since_ns: the loss on the monotonic clock; 0: in the future
 * or more than a day ago, so the clocks of two hosts differ. *why points into the environment. */
bool mst_parent_lost(uint64_t *since_ns, const char **why);

#endif
