/* A walk over the floats that a server owns, in pieces: the weights first, then every optimizer slot. */
#ifndef MST_PS_FLOAT_CURSOR_H
#define MST_PS_FLOAT_CURSOR_H

#include "ps/placement.h"

/* The place of the next piece. */
typedef struct mst_float_cursor {
    uint32_t slot, extent;
    uint64_t at; /* weights of the extent whose floats in the slot are done or in [first, first + count) */
    uint64_t first, count; /* the rest of a piece that was longer than the caller takes at once */
    uint64_t done;         /* floats before it, over all slots */
    bool ended;
} mst_float_cursor;

/* Floats [first, first + count) of slot 0 (the weights) or optimizer slot - 1. */
typedef struct mst_float_piece {
    uint32_t slot;
    uint64_t first, count;
    uint64_t before; /* floats of the pieces before it */
} mst_float_piece;

/* The next piece, of at most `most` floats. False: there are no more. */
static inline bool mst_float_cursor_next(mst_float_cursor *self, const mst_owned *owned,
                                         const mst_params *params, uint64_t most, mst_float_piece *out)
{
    while (self->count == 0 && !self->ended) {
        if (self->extent == owned->n) {
            self->extent = 0;
            self->ended = self->slot++ == params->n_slots || owned->n == 0;
            continue;
        }
        const mst_extent *extent = &owned->extents[self->extent];
        uint64_t at = extent->first + self->at, end = extent->first + extent->count;
        if (mst_params_next_piece(params, self->slot, &at, end, &self->first, &self->count)) {
            self->at = at - extent->first;
        } else {
            self->at = 0;
            self->extent++;
        }
    }
    if (self->ended)
        return false;
    *out = (mst_float_piece){.slot = self->slot,
                             .first = self->first,
                             .count = self->count < most ? self->count : most,
                             .before = self->done};
    self->first += out->count;
    self->count -= out->count;
    self->done += out->count;
    return true;
}

/* Floats of all pieces. */
static inline uint64_t mst_float_cursor_total(const mst_owned *owned, const mst_params *params)
{
    mst_float_cursor cursor = {0};
    mst_float_piece piece;
    while (mst_float_cursor_next(&cursor, owned, params, UINT64_MAX, &piece))
        continue;
    return cursor.done;
}

#endif
