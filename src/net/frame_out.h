/* An outgoing frame (docs/WIRE.md, "Frames"): sealed and written in parts, so that the bytes of a large body
 * are sealed just before the system copies them. No sockets. Thread: one at a time. */
#ifndef MST_NET_FRAME_OUT_H
#define MST_NET_FRAME_OUT_H

#include <sys/uio.h>

#include "net/wire.h"

typedef struct mst_frame_out {
    uint64_t size, done; /* bytes of the frame; written */
    uint64_t sealed;     /* bytes before this one can be written; size: all */
    uint64_t number;     /* of the frame, once sealed > 0 */
    uint32_t n_pieces;
    mst_piece pieces[MST_PIECE_MAX];
    uint8_t header[MST_WIRE_HEADER], seal[MST_SEAL_BODY];
} mst_frame_out;

/* The pieces stay the caller's, and stay as they are until the frame is written. */
void mst_frame_out_init(mst_frame_out *self, const mst_message *m, const mst_piece *pieces,
                        uint32_t n_pieces);

/* Seals the bytes before `end`, at least the header. The frames of one seal follow each other: the next
 * begins when this one is sealed to its end. False: the seal has failed. */
bool mst_frame_out_seal(mst_frame_out *self, mst_seal *seal, uint64_t end);

/* The parts that are sealed and not written yet, at most room of them; returns their number. */
size_t mst_frame_out_gather(const mst_frame_out *self, struct iovec *iov, size_t room);

#endif
