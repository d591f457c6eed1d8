/* Stragglers: workers that are slower than half the median for long. They are named with their likely reason,
 * and get shorter leases, so that fewer rows wait for them.
 *
 * Every window compares the workers. Asynchronous: by seconds per row. Synchronous steps, where all have the
 * same rate: by the time for which steps were held open for one worker alone. */
#ifndef MST_PS_COORDINATOR_STRAGGLERS_H
#define MST_PS_COORDINATOR_STRAGGLERS_H

#include "ps/server_peers.h"

typedef enum mst_slow_reason { MST_SLOW_CPU, MST_SLOW_INPUT, MST_SLOW_NETWORK } mst_slow_reason;

/* Seconds per row. */
typedef struct mst_row_times {
    double excess; /* of the worker over the median, in all */
    double compute, input;
} mst_row_times;

/* The part of a row's time that explains most of the worker's excess. */
mst_slow_reason mst_slow_reason_of(const mst_row_times *worker, const mst_row_times *median);

/* A worker's counts at the beginning of a window. */
typedef struct mst_straggler {
    uint64_t rows, held_ns;
    double compute, input;
    unsigned windows; /* in which it was slow, in a row */
    bool named;
} mst_straggler;

typedef struct mst_job_stragglers {
    uint64_t window_ns; /* beginning of the window */
} mst_job_stragglers;

/* Compares the workers if a window is over. */
void mst_stragglers_check(mst_server *s);

#endif
