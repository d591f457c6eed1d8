/* Contract in frame_out.h. */
#include "net/frame_out.h"

#include <string.h>

void mst_frame_out_init(mst_frame_out *self, const mst_message *m, const mst_piece *pieces, uint32_t n_pieces)
{
    self->size = mst_frame_size(m->size);
    self->done = self->sealed = self->number = 0;
    self->n_pieces = n_pieces;
    mst_header_encode(m, self->header);
    if (n_pieces > 0)
        memcpy(self->pieces, pieces, n_pieces * sizeof *pieces);
}

/* Adds bytes [at, to) of the body to the seal. */
static void frame_add_body(const mst_frame_out *self, mst_seal *seal, uint64_t at, uint64_t to)
{
    uint64_t from = 0; /* of the piece */
    for (uint32_t i = 0; i < self->n_pieces && at < to; i++) {
        uint64_t end = from + self->pieces[i].size;
        if (at < end) {
            uint64_t part = (to < end ? to : end) - at;
            mst_seal_add(seal, (const uint8_t *)self->pieces[i].data + (at - from), (size_t)part);
            at += part;
        }
        from = end;
    }
}

bool mst_frame_out_seal(mst_frame_out *self, mst_seal *seal, uint64_t end)
{
    uint64_t body_end = self->size > MST_WIRE_HEADER ? self->size - MST_SEAL_BODY : MST_WIRE_HEADER;
    if (self->sealed == self->size)
        return true;
    if (self->sealed == 0) {
        self->number = seal->frame;
        mst_header_seal(self->header, seal);
        if (body_end > MST_WIRE_HEADER)
            mst_seal_begin(seal);
        self->sealed = MST_WIRE_HEADER;
    }
    end = end < body_end ? end : body_end;
    if (end > self->sealed) {
        frame_add_body(self, seal, self->sealed - MST_WIRE_HEADER, end - MST_WIRE_HEADER);
        self->sealed = end;
    }
    if (self->sealed == body_end) {
        if (body_end > MST_WIRE_HEADER)
            mst_seal_end(seal, self->seal);
        mst_seal_next(seal);
        self->sealed = self->size;
    }
    return !seal->failed;
}

size_t mst_frame_out_gather(const mst_frame_out *self, struct iovec *iov, size_t room)
{
    size_t n = 0;
    uint64_t at = 0; /* of the part */
    for (uint32_t i = 0; i <= self->n_pieces + 1 && n < room && at < self->sealed; i++) {
        mst_piece part = {.data = self->seal, .size = MST_SEAL_BODY};
        if (i == 0)
            part = (mst_piece){.data = self->header, .size = MST_WIRE_HEADER};
        else if (i <= self->n_pieces)
            part = self->pieces[i - 1];
        uint64_t from = self->done > at ? self->done - at : 0, ready = self->sealed - at;
        uint64_t to = part.size < ready ? part.size : ready;
        if (from < to)
            iov[n++] =
                (struct iovec){.iov_base = (uint8_t *)part.data + from, .iov_len = (size_t)(to - from)};
        at += part.size;
    }
    return n;
}
