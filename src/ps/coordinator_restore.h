/* Floats of the checkpoint that a run starts from, for every server. */
#ifndef MST_PS_COORDINATOR_RESTORE_H
#define MST_PS_COORDINATOR_RESTORE_H

#include "ps/float_cursor.h"
#include "ps/server_peers.h"

/* A stream of restored floats to a server. */
typedef struct mst_restore {
    mst_owned owned;
    mst_float_cursor next;
    unsigned in_flight;
} mst_restore;

/* Reads the coordinator's own floats; starts the stream to another server. */
mst_status mst_restore_own(mst_server *s);
mst_status mst_restore_begin(mst_server *s, uint32_t server);

#endif
