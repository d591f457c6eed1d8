/* A walk over the floats that a server owns, in pieces: the weights first, then every optimizer slot. */
#ifndef MST_PS_FLOAT_CURSOR_H
#define MST_PS_FLOAT_CURSOR_H

#include "ps/placement.h"

/* The next piece: floats [extents[extent].first + at, ...) of slot 0 (the weights) or optimizer slot - 1. */
typedef struct mst_float_cursor {
    uint32_t slot, extent;
    uint64_t at;
    uint64_t done; /* floats before it, over all slots */
} mst_float_cursor;

/* n_slots: of the optimizer. */
static inline bool mst_float_cursor_at_end(const mst_float_cursor *self, const mst_owned *owned,
                                           uint32_t n_slots)
{
    return self->slot > n_slots || owned->n == 0;
}

/* The first float of the next piece, and its length, at most `most`. */
static inline uint64_t mst_float_cursor_piece(const mst_float_cursor *self, const mst_owned *owned,
                                              uint64_t most, uint64_t *count)
{
    const mst_extent *extent = &owned->extents[self->extent];
    uint64_t left = extent->count - self->at;
    *count = left < most ? left : most;
    return extent->first + self->at;
}

static inline void mst_float_cursor_advance(mst_float_cursor *self, const mst_owned *owned, uint64_t count)
{
    self->at += count;
    self->done += count;
    if (self->at == owned->extents[self->extent].count) {
        self->at = 0;
        self->extent++;
    }
    if (self->extent == owned->n) {
        self->extent = 0;
        self->slot++;
    }
}

#endif
