/* The restart policy of one process: how often it is started again after it has died, and with which pause.
 *
 * 1. At most max_restarts restarts within an hour.
 * 2. A process that fails REPEATS times in a row in the same way (the same exit code, or the same signal of a
 * crash), each time within its first seconds, is not started again. Ends that other processes cause do not
 * count: a signal from outside, the failure of a peer.
 * 3. The pause before a restart is short, and doubles with every end in a row within the first seconds.
 *
 * The caller passes all times, so that nothing here reads a clock. */
#ifndef MST_LAUNCH_RESTARTS_H
#define MST_LAUNCH_RESTARTS_H

#include <stdbool.h>
#include <stdint.h>

#define MST_RESTARTS_PER_HOUR "10"

/* Zeroes: a process that has not been started. */
typedef struct mst_restarts {
    uint64_t hour_began_ns; /* of the first restart that n_in_hour counts */
    uint32_t n_in_hour;
    uint32_t n_quick; /* ends in a row within the first seconds */
    uint32_t n_same;  /* failures in a row that rule 2 counts */
    int code, signal; /* of the last end */
    bool from_start;  /* the failures of n_same include the first start */
} mst_restarts;

typedef struct mst_restart_end {
    int code, signal; /* signal: 0 unless one ended it */
    uint64_t began_ns, ended_ns;
    bool by_others; /* caused by another process: a lost peer, a lost connection */
    bool first_start;
} mst_restart_end;

typedef enum mst_restart_verdict {
    MST_RESTART_AGAIN,    /* after *pause_ms */
    MST_RESTART_REPEATED, /* rule 2 */
    MST_RESTART_SPENT,    /* rule 1 */
} mst_restart_verdict;

/* Whether a process that has died is started again. *pause_ms is set with MST_RESTART_AGAIN. */
mst_restart_verdict mst_restarts_decide(mst_restarts *self, const mst_restart_end *end, uint32_t max_restarts,
                                        uint64_t *pause_ms);

#endif
