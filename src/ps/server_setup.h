/* Set-up of a server: the job, the model and table, restored floats. Only make_store is for the coordinator
 * too, which sets itself up (coordinator_members.h). */
#ifndef MST_PS_SERVER_SETUP_H
#define MST_PS_SERVER_SETUP_H

#include <jansson.h>

#include "ps/server_peers.h"

typedef struct mst_server_setup {
    bool ready;                  /* the store has its floats */
    uint64_t restored, expected; /* restored floats that have arrived, and that are expected */
    bool up;                     /* the coordinator is connected */
    bool leaving;                /* it was informed of the stop flag, */
    uint64_t leaving_ns;         /* at that time */
} mst_server_setup;

/* Makes the store from the model and the table. */
mst_status mst_server_make_store(mst_server *s);
/* JOB: joins. SETUP: makes model and store. FLOATS: restored floats. */
mst_status mst_server_setup_job(mst_server *s, const json_t *json);
mst_status mst_server_setup_model(mst_server *s, const json_t *json);
mst_status mst_server_setup_restored(mst_server *s, const mst_message *m, const void *body);
/* Checks the time limit of the set-up and the stop flag. */
void mst_server_setup_tick(mst_server *s, uint64_t began_ns);

#endif
