/* Sends the records of the other ranks' observers (observe/observe.h) to rank 0, which has the run directory,
 * as rank records (ranks/rank_monitor.h), one record (observe/record.h) each.
 *
 * Thread: the training thread makes these calls; the thread of the rank monitor sends. None of them fails,
 * and only finish waits. Without a rank monitor nothing is sent. */
#ifndef MST_JOB_RANK_LOG_H
#define MST_JOB_RANK_LOG_H

#include "observe/observe.h"
#include "strategy/comm_thread.h"

/* Ranks other than 0: sends the records of `observe` (or NULL) to rank 0, and sets its clock to that of rank
 * 0. */
void mst_rank_log_send(mst_comm *comm, mst_observe *observe);
/* Ranks other than 0: ends `observe` (or NULL) and sends its last records and the end of them. */
void mst_rank_log_finish(mst_comm *comm, mst_observe *observe);

/* Rank 0: gives the records of other ranks to `observe` (NULL: drops them). comm: an mst_comm. */
void mst_rank_log_take(void *comm, mst_observe *observe);

/* All ranks: `observe` is not used after this returns. */
void mst_rank_log_stop(mst_comm *comm);

#endif
