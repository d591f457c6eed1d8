/* A server's floats for a checkpoint. The coordinator writes its own into its files at the cut. Another
 * server copies them into an unlinked file in TMPDIR and streams the copy to the coordinator, piece by piece,
 * while training continues. Neither needs anonymous memory of the size of the model. If there is no space for
 * the copy, the server reports so, and the checkpoint is discarded. The last cut of a job needs no copy,
 * because the floats do not change after it. */
#ifndef MST_PS_SERVER_CHECKPOINT_H
#define MST_PS_SERVER_CHECKPOINT_H

#include "ps/float_cursor.h"
#include "ps/server_peers.h"

typedef struct mst_checkpoint_stream {
    uint32_t cut;
    mst_float_cursor next;
    unsigned in_flight;
    const float *copy; /* the owned floats of weights and slots, one after the other; NULL: not copied */
    size_t copy_bytes;
} mst_checkpoint_stream;

/* The cut is taken: starts the server's share of its checkpoint. */
mst_status mst_checkpoint_stream_begin(mst_server *s, uint32_t cut);
/* A piece has left. */
void mst_checkpoint_stream_sent(mst_server *s);
/* No further piece leaves. */
void mst_checkpoint_stream_abandon(mst_server *s);
void mst_checkpoint_stream_fini(mst_server *s);

#endif
