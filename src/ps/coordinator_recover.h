/* Restored floats of the servers. A lost server of an asynchronous job: its successor gets its share of the
 * last checkpoint, and the rest of the job keeps its state. A server whose process lost only its connection
 * keeps its share. */
#ifndef MST_PS_COORDINATOR_RECOVER_H
#define MST_PS_COORDINATOR_RECOVER_H

#include <jansson.h>

#include "ps/server_peers.h"

typedef struct mst_job_recover {
    uint64_t since_ns; /* when the newest of the missing servers was lost; 0: none is missing */
} mst_job_recover;

/* Reads the coordinator's own floats of the checkpoint. */
mst_status mst_recover_own(mst_server *s);
/* Sends the next pieces of another server's floats. */
mst_status mst_recover_send(mst_server *s, uint32_t server);

/* Whether the loss of a server costs only its share. */
bool mst_recover_can(const mst_server *s);
void mst_recover_begin(mst_server *s, uint32_t server, const mst_net_loss *loss);
/* The server has joined again. kept: the share that its process has in memory, {"key", "steps"}; or NULL. */
void mst_recover_joined(mst_server *s, uint32_t server, const json_t *kept);
bool mst_recover_under_way(const mst_server *s);
/* Whether a worker that was sent away because of a lost server has not joined again. */
bool mst_recover_awaits_workers(const mst_server *s);
/* Before the set-up of the successor: opens the checkpoint. *restore false: there is none, and the successor
 * begins with the weights that training began with. */
mst_status mst_recover_open(mst_server *s, uint32_t server, bool *restore);
/* The successor has its floats. */
mst_status mst_recover_ready(mst_server *s, uint32_t server);
/* Ends the job if no successor has come in time. */
void mst_recover_check(mst_server *s);

#endif
