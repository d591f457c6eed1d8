/* What the ranks of an MPI job write about themselves (observe/observe.h), on its way to rank 0, which has
 * the run's directory: rank records (ranks/rank_monitor.h), one record (observe/record.h) each.
 *
 * Thread: the training thread makes these calls; the records travel on the watch's thread. None of them
 * fails, and only finish waits. Where no watch is kept nothing travels. */
#ifndef MST_JOB_RANK_LOG_H
#define MST_JOB_RANK_LOG_H

#include "observe/observe.h"
#include "strategy/comm_thread.h"

/* Ranks other than 0: what `observe` (or NULL) has goes to rank 0 from here on, whose clock it is told. */
void mst_rank_log_send(mst_comm *comm, mst_observe *observe);
/* Ranks other than 0: ends `observe` and sends the last of it. Rank 0 hears that it was the last, with a NULL
 * object too. */
void mst_rank_log_finish(mst_comm *comm, mst_observe *observe);

/* Rank 0: what other ranks send is filed by `observe` (or nowhere, if NULL). comm: an mst_comm. */
void mst_rank_log_take(void *comm, mst_observe *observe);

/* All: `observe` is not used any more when this returns. */
void mst_rank_log_stop(mst_comm *comm);

#endif
