/* The capacity of the paths to servers on other hosts, measured before a worker joins: messages that the
 * server returns, of growing size, until the net has a figure (net.h, stats). The messages of a step may be
 * too small for one. A server measures one path at a time, so that workers that start together do not share
 * its link. A worker that was part of the job before does not measure again.
 *
 * Thread: the owner of the net. Waiting: run gives up after a second, or at an answer that takes longer. */
#ifndef MST_PS_WORKER_PROBE_H
#define MST_PS_WORKER_PROBE_H

#include "ps/worker_link.h"

typedef struct mst_worker_probe {
    uint8_t *data; /* sent and returned; NULL: no probe is under way */
    uint32_t answer;
} mst_worker_probe;

/* A failure is one of the connections. */
mst_status mst_worker_probe_run(mst_worker_probe *self, mst_worker_link *link, uint32_t index);

/* Events: the memory for a returned message, and a PROBE from a server. */
mst_status mst_worker_probe_body(mst_worker_probe *self, const mst_message *m, void **out);
void mst_worker_probe_take(mst_worker_probe *self, const mst_message *m);

#endif
