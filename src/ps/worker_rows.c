/* Work items to batches; contract in worker_rows.h. */
#include "ps/worker_rows.h"

#include <inttypes.h>

/* ---- items ---- */

mst_status mst_worker_rows_add(mst_worker_rows *self, const mst_work *work)
{
    if (self->n_items == MST_WORKER_ITEMS)
        return mst_fail(MST_EINPUT, "more than %d work items at once", MST_WORKER_ITEMS);
    self->items[(self->first_item + self->n_items++) % MST_WORKER_ITEMS] = *work;
    if (work->kind == MST_WORK_LEASE || work->kind == MST_WORK_GRANT) {
        self->requested = self->requested_idle = false;
        self->last_lease = work->to - work->from;
    } else if (work->kind == MST_WORK_WAIT) {
        self->requested = true; /* the coordinator sends more without a request */
    }
    return MST_OK;
}

static const mst_work *rows_next_item(const mst_worker_rows *self)
{
    return self->n_items > 0 ? &self->items[self->first_item] : NULL;
}

static void rows_pop_item(mst_worker_rows *self)
{
    self->first_item = (self->first_item + 1) % MST_WORKER_ITEMS;
    self->n_items--;
}

void mst_worker_rows_drop(mst_worker_rows *self)
{
    self->n_items = 0;
    self->at = self->to = 0;
    self->granted = 0;
    self->begun = false;
}

/* Rows that may be taken without a request. */
static uint64_t rows_held(const mst_worker_rows *self)
{
    uint64_t n = self->granted + (self->to > self->at ? self->to - self->at : 0);
    for (uint32_t i = 0; i < self->n_items; i++) {
        const mst_work *w = &self->items[(self->first_item + i) % MST_WORKER_ITEMS];
        if (w->kind == MST_WORK_LEASE || w->kind == MST_WORK_GRANT)
            n += w->to - w->from;
    }
    return n;
}

/* Requests more work early: the answer takes a round trip. */
static mst_status rows_request(mst_worker_rows *self)
{
    uint64_t held = rows_held(self), least = (uint64_t)(self->job->pipeline + 2) * self->job->batch;
    if (least < self->last_lease / 2)
        least = self->last_lease / 2;
    if (!self->on_request || self->requested || self->stopped || self->leaving || held >= least)
        return MST_OK;
    self->requested = true;
    mst_message m = {.type = MST_PS_WANT, .count = (uint32_t)(held < UINT32_MAX ? held : UINT32_MAX)};
    return mst_ps_send(self->link->net, self->link->peers[0], &m);
}

mst_status mst_worker_rows_request_idle(mst_worker_rows *self)
{
    bool ended = self->epoch_over && !self->epoch_over_sent;
    if (!self->on_request || (self->requested_idle && !ended))
        return MST_OK;
    self->requested = self->requested_idle = true;
    self->epoch_over_sent = self->epoch_over;
    mst_message m = {.type = MST_PS_WANT, .flags = ended ? MST_WANT_EPOCH_ENDED : 0, .step = self->epoch};
    return mst_ps_send(self->link->net, self->link->peers[0], &m);
}

/* ---- batches ---- */

/* Position of a batch of the worker's own rows in a global batch of all workers. */
static uint64_t rows_own_first(const mst_worker_rows *self)
{
    return self->job->mode == MST_MODE_SYNC ? (uint64_t)self->index * self->job->batch : 0;
}

static mst_status rows_too_few(const mst_worker_rows *self, uint64_t from, uint64_t to)
{
    return mst_fail(MST_EINPUT,
                    "%s ends before rows %" PRIu64 " to %" PRIu64
                    " that the coordinator assigned to this worker; give all workers the same data, or use "
                    "--shard local",
                    self->job->dataset->name, from, to);
}

/* Moves the feed to a position, unless it is there. */
static mst_status rows_seek(mst_worker_rows *self, uint64_t epoch, uint64_t from, uint64_t to)
{
    if (self->begun && self->epoch == epoch && self->at == from)
        return mst_feed_extend(self->job->feed, to);
    TRY(mst_feed_start_range(self->job->feed, epoch, from, to));
    self->begun = true;
    self->epoch = epoch;
    self->at = from;
    return MST_OK;
}

/* The worker's share of a synchronous step. Claims the whole slice, so that the next slice continues it. */
static mst_status rows_take_slice(mst_worker_rows *self, uint32_t lane, const mst_work *work,
                                  mst_worker_batch *out)
{
    uint64_t from, to, n = work->to - work->from, position;
    mst_batch slice;
    mst_work_share(work, &from, &to);
    if (n == 0 || n > self->max_rows)
        return mst_fail(MST_EINPUT,
                        "step %" PRIu64 " was given as %" PRIu64 " rows, but a global batch has %" PRIu32
                        ": start all processes with the same options",
                        work->step, n, self->max_rows);
    TRY(rows_seek(self, work->epoch, work->from, UINT64_MAX));
    TRY(mst_feed_claim(self->job->feed, lane, (uint32_t)n, &slice, &position));
    if (slice.n_rows != n)
        return rows_too_few(self, work->from, work->to);
    self->at = self->to = work->to;
    uint32_t first = (uint32_t)(from - work->from);
    *out = (mst_worker_batch){.batch = {.rows = slice.rows + first, .n_rows = (uint32_t)(to - from)},
                              .step = work->step,
                              .first_row = first};
    if (out->batch.n_rows > 0)
        TRY(mst_feed_fill(self->job->feed, lane, first, first + out->batch.n_rows));
    return MST_OK;
}

/* The next batch of the current lease. */
static mst_status rows_take_leased(mst_worker_rows *self, uint32_t lane, mst_worker_batch *out)
{
    uint64_t left = self->to - self->at, position;
    uint32_t n = left < self->job->batch ? (uint32_t)left : self->job->batch;
    *out = (mst_worker_batch){.first_row = rows_own_first(self)};
    TRY(mst_feed_take(self->job->feed, lane, n, &out->batch, &position));
    if (out->batch.n_rows != n)
        return rows_too_few(self, self->at, self->to);
    self->at += n;
    return MST_OK;
}

/* The next batch of the own stream. Its end leaves *taken false (async), or is a batch without rows (sync).
 */
static mst_status rows_take_granted(mst_worker_rows *self, uint32_t lane, uint64_t step,
                                    mst_worker_batch *out, bool *taken)
{
    bool sync = self->job->mode == MST_MODE_SYNC, more;
    uint32_t n = self->granted < self->job->batch ? (uint32_t)self->granted : self->job->batch;
    uint64_t position;
    *out = (mst_worker_batch){.step = step, .first_row = rows_own_first(self)};
    TRY(mst_feed_claim_by(self->job->feed, lane, n, n, UINT64_MAX, &out->batch, &position, &more));
    uint32_t got = out->batch.n_rows;
    TRY(mst_feed_fill(self->job->feed, lane, 0, got));
    self->granted -= sync ? self->granted : got;
    *taken = got > 0 || sync;
    if (got == n || (got > 0 && more))
        return MST_OK;
    if (!sync) { /* the grant beyond the end is void */
        self->granted = 0;
        self->requested = self->epoch_over = true;
    } else if (got == 0) {
        out->exhausted = self->epoch_over = true;
    }
    return MST_OK;
}

/* Begins the grant's epoch if it is another one. *valid false: the grant is void. */
static mst_status rows_enter_grant(mst_worker_rows *self, const mst_work *work, bool *valid)
{
    *valid = !self->begun || work->epoch != self->epoch || !self->epoch_over;
    if (*valid && (!self->begun || work->epoch != self->epoch)) {
        TRY(mst_feed_start(self->job->feed, work->epoch, self->begun ? 0 : self->stream_from));
        self->begun = true;
        self->epoch = work->epoch;
        self->epoch_over = self->epoch_over_sent = false;
    }
    return MST_OK;
}

/* Leases that continue the current one extend it. */
static mst_status rows_extend_lease(mst_worker_rows *self)
{
    const mst_work *next = rows_next_item(self);
    while (next != NULL && next->kind == MST_WORK_LEASE && self->begun && self->to > self->at &&
           next->epoch == self->epoch && next->from == self->to) {
        self->to = next->to;
        TRY(mst_feed_extend(self->job->feed, self->to));
        rows_pop_item(self);
        next = rows_next_item(self);
    }
    return MST_OK;
}

/* Uses an item: *taken if it is a batch by itself. */
static mst_status rows_use(mst_worker_rows *self, uint32_t lane, const mst_work *work, mst_worker_batch *out,
                           bool *taken)
{
    bool sync = self->job->mode == MST_MODE_SYNC, valid;
    switch (work->kind) {
    case MST_WORK_SLICE:
        *taken = true;
        return rows_take_slice(self, lane, work, out);
    case MST_WORK_LEASE:
        self->on_request = true;
        TRY(rows_seek(self, work->epoch, work->from, work->to));
        self->to = work->to;
        return MST_OK;
    case MST_WORK_GRANT:
        self->on_request = !sync;
        TRY(rows_enter_grant(self, work, &valid));
        if (!valid)
            return MST_OK;
        self->granted = work->to;
        return sync ? rows_take_granted(self, lane, work->step, out, taken) : MST_OK;
    case MST_WORK_WAIT:
        return MST_OK;
    case MST_WORK_STOP:
        self->stopped = true;
        self->n_items = 0;
        return MST_OK;
    }
    return MST_OK;
}

static mst_status rows_next(mst_worker_rows *self, uint32_t lane, mst_worker_batch *out, bool *taken)
{
    for (;;) {
        TRY(rows_extend_lease(self));
        if (self->to > self->at) {
            *taken = true;
            return rows_take_leased(self, lane, out);
        }
        if (self->granted > 0) {
            TRY(rows_take_granted(self, lane, 0, out, taken));
            if (*taken)
                return MST_OK;
            continue;
        }
        const mst_work *next = rows_next_item(self);
        if (next == NULL)
            return MST_OK;
        mst_work work = *next;
        rows_pop_item(self);
        TRY(rows_use(self, lane, &work, out, taken));
        if (*taken)
            return MST_OK;
    }
}

/* Whether the rows of the next batch have not arrived, from a live stream of the worker's own. */
static bool rows_are_late(mst_worker_rows *self)
{
    const mst_work *next = rows_next_item(self);
    bool granted = self->granted > 0 || (next != NULL && next->kind == MST_WORK_GRANT);
    return granted && self->begun && !self->epoch_over && !mst_feed_ready(self->job->feed, self->job->batch);
}

mst_status mst_worker_rows_take(mst_worker_rows *self, uint32_t lane, mst_worker_batch *out, bool *taken)
{
    *taken = false;
    if (self->n_items == 0 && self->to <= self->at && self->granted == 0)
        return MST_OK;
    self->late = rows_are_late(self);
    if (self->late)
        return MST_OK;
    mst_status st = rows_next(self, lane, out, taken);
    if (st == MST_ESTOPPED) { /* the feed was stopped: there are no more rows */
        self->stopped = self->abandoned = true;
        *taken = false;
        return MST_OK;
    }
    TRY(st);
    return rows_request(self);
}
