/* Slices; contract in slices.h. */
#include "ps/slices.h"

#include "base/alloc.h"

void mst_slices_fini(mst_slices *self)
{
    mst_free(self->missed);
    *self = (mst_slices){0};
}

static uint64_t slices_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void slices_advance_epoch(mst_slices *self)
{
    if (self->position < self->epoch_rows || self->n_missed > 0)
        return;
    self->epoch++;
    self->position = 0;
}

bool mst_slices_next(mst_slices *self, mst_slice *out)
{
    slices_advance_epoch(self);
    if (self->step >= self->steps || self->done_rows >= self->rows)
        return false;
    uint64_t most = slices_least(self->batch, self->rows - self->done_rows);
    mst_slice *missed = self->n_missed > 0 ? &self->missed[self->n_missed - 1] : NULL;
    bool again = missed != NULL && (self->position == self->epoch_rows || missed->epoch < self->epoch);
    if (!again && self->epoch >= self->epochs)
        return false;
    uint64_t from = again ? missed->from : self->position;
    uint64_t to = slices_least(from + most, again ? missed->to : self->epoch_rows);
    *out = (mst_slice){++self->step, again ? missed->epoch : self->epoch, from, to};
    self->done_rows += to - from;
    if (!again)
        self->position = to;
    else if (to < missed->to)
        missed->from = to;
    else
        self->n_missed--;
    return true;
}

mst_status mst_slices_miss(mst_slices *self, uint64_t epoch, uint64_t from, uint64_t to)
{
    if (from >= to)
        return MST_OK;
    if (!mst_grow(&self->missed, &self->capacity, self->n_missed + 1, sizeof *self->missed))
        return mst_fail_memory();
    self->missed[self->n_missed++] = (mst_slice){.epoch = epoch, .from = from, .to = to};
    self->done_rows -= to - from;
    return MST_OK;
}
