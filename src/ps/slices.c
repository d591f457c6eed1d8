/* Slices; contract in slices.h. */
#include "ps/slices.h"

static uint64_t slices_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

bool mst_slices_next(mst_slices *self, mst_slice *out)
{
    if (self->position >= self->epoch_rows) {
        self->epoch++;
        self->position = 0;
    }
    if (self->step >= self->steps || self->done_rows >= self->rows || self->epoch >= self->epochs)
        return false;
    uint64_t most = slices_least(self->batch, self->rows - self->done_rows), from = self->position;
    *out = (mst_slice){++self->step, self->epoch, from, slices_least(from + most, self->epoch_rows)};
    self->done_rows += out->to - from;
    self->position = out->to;
    return true;
}
