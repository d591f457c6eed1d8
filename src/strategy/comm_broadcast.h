/* Broadcast and gather: texts and vectors between rank 0 and all ranks, over the communication thread. */
#ifndef MST_STRATEGY_COMM_BROADCAST_H
#define MST_STRATEGY_COMM_BROADCAST_H

#include "strategy/comm_thread.h"

/* Rank 0's text to all ranks; *out is the caller's to free (mst_free), on rank 0 too. Waits for rank 0 while
 * no rank is lost. */
mst_status mst_comm_broadcast_text(mst_comm *comm, const char *text, char **out);
/* Every rank's text to rank 0, where *out has as many texts as there are ranks, the caller's to free, them
 * and the array; NULL elsewhere. Waits for all ranks while none is lost. */
mst_status mst_comm_gather_texts(mst_comm *comm, const char *text, char ***out);

/* The n floats of every rank become rank 0's. On the communication thread (mst_comm_call). */
mst_status mst_comm_broadcast_vector(mst_comm *comm, float *data, uint64_t n);

#endif
