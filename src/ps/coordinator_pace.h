/* Counts of pushes, the quorum, and workers that are ahead or stalled. */
#ifndef MST_PS_COORDINATOR_PACE_H
#define MST_PS_COORDINATOR_PACE_H

#include "ps/server_peers.h"

typedef struct mst_job_pace {
    uint64_t closed_ns;  /* when the last step closed or push arrived */
    uint64_t arrived_ns; /* sync: when the last push arrived */
    char waiting[96];    /* text of progress.waiting */
} mst_job_pace;

/* ssp: a worker that joins, or continues after it was idle, holds no other worker up. */
void mst_pace_catch_up(mst_server *s, uint32_t worker);
/* The workers that have not pushed for a second, "worker 0, worker 2", or their number if they are all or
 * more than three; NULL: none. */
const char *mst_pace_waiting(mst_server *s);
/* Drops workers that have not pushed for stall_timeout; takes rows back from slow ones. */
mst_status mst_pace_check_stalls(mst_server *s);

#endif
