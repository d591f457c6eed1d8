/* Work items to batches; contract in worker_impl.h.
 *
 * Items wait in the order they came. A slice is one batch; a lease becomes a range of the feed, which is
 * taken batch by batch and grows when the next lease continues it; a grant lets rows of the worker's own
 * stream be taken: one batch with the step's number in synchronous training, a number of rows otherwise.
 *
 * An own stream that has come to the end of its epoch says so, once: with a turn without rows whose push is
 * marked exhausted (sync), or with a WANT once all its pushes are answered (async). Grants of that epoch
 * which are still waiting are void. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "data/stream.h"
#include "ps/worker_impl.h"

#define SAMPLE_KEYS    4096 /* told to the coordinator, at most */
#define SAMPLE_BATCHES 64
#define SAMPLE_SHARE   1024 /* of one batch */
#define WANT_ENDED     1u   /* flag of WANT: the epoch of the own stream has ended */

/* ---- items ---- */

mst_status mst_worker_add_item(mst_worker *self, const mst_work *work)
{
    if (self->n_items == MST_WORKER_ITEMS)
        return mst_fail(MST_EINPUT, "more than %d work items at once", MST_WORKER_ITEMS);
    self->items[(self->first_item + self->n_items++) % MST_WORKER_ITEMS] = *work;
    if (work->kind == MST_WORK_LEASE || work->kind == MST_WORK_GRANT) {
        self->want_sent = self->asked_idle = false;
        self->last_lease = work->to - work->from;
    } else if (work->kind == MST_WORK_WAIT) {
        self->want_sent = true; /* more comes by itself */
    }
    return MST_OK;
}

static const mst_work *next_item(const mst_worker *self)
{
    return self->n_items > 0 ? &self->items[self->first_item] : NULL;
}

static void pop_item(mst_worker *self)
{
    self->first_item = (self->first_item + 1) % MST_WORKER_ITEMS;
    self->n_items--;
}

void mst_worker_drop_work(mst_worker *self)
{
    self->n_items = 0;
    self->at = self->to = 0;
    self->granted = 0;
    self->begun = false;
}

/* Rows that may be taken without asking. */
static uint64_t rows_held(const mst_worker *self)
{
    uint64_t n = self->granted + (self->to > self->at ? self->to - self->at : 0);
    for (uint32_t i = 0; i < self->n_items; i++) {
        const mst_work *w = &self->items[(self->first_item + i) % MST_WORKER_ITEMS];
        if (w->kind == MST_WORK_LEASE || w->kind == MST_WORK_GRANT)
            n += w->to - w->from;
    }
    return n;
}

/* Asks for more in time: the answer takes a round trip. */
static mst_status want(mst_worker *self)
{
    uint64_t held = rows_held(self), least = (uint64_t)(self->job->pipeline + 2) * self->job->batch;
    if (least < self->last_lease / 2)
        least = self->last_lease / 2;
    if (!self->wants || self->want_sent || self->stopped || held >= least)
        return MST_OK;
    self->want_sent = true;
    mst_message m = {.type = MST_PS_WANT, .count = (uint32_t)(held < UINT32_MAX ? held : UINT32_MAX)};
    return mst_ps_send(self->net, self->peers[0], &m);
}

mst_status mst_worker_want_idle(mst_worker *self)
{
    bool ended = self->epoch_over && !self->end_told;
    if (!self->wants || (self->asked_idle && !ended))
        return MST_OK;
    self->want_sent = self->asked_idle = true;
    self->end_told = self->epoch_over;
    mst_message m = {.type = MST_PS_WANT, .flags = ended ? WANT_ENDED : 0, .step = self->epoch};
    return mst_ps_send(self->net, self->peers[0], &m);
}

/* ---- rows ---- */

static uint32_t free_slot(const mst_worker *self)
{
    for (uint32_t slot = 0; slot < self->n_slots; slot++)
        if (self->turns[slot].state == MST_TURN_FREE)
            return slot;
    return MST_NO_REQUEST;
}

/* Where a batch of the worker's own rows stands in a global batch of all workers'. */
static uint64_t own_first_row(const mst_worker *self)
{
    return self->job->mode == MST_MODE_SYNC ? (uint64_t)self->options.net.self.index * self->job->batch : 0;
}

/* The batch becomes a turn: its list is ready to be pulled. */
static mst_status begin_turn(mst_worker *self, uint32_t slot, const mst_batch *batch, uint64_t step,
                             uint64_t first_row)
{
    mst_turn *turn = &self->turns[slot];
    mst_key_list *list = mst_client_list(self->client, slot);
    turn->step = step;
    turn->first_row = first_row;
    turn->exhausted = false;
    turn->batch = *batch;
    list->n_keys = 0;
    if (self->localiser != NULL && batch->n_rows > 0) {
        TRY(mst_row_localise(self->localiser, slot, batch, self->n_prefix,
                             mst_client_key_start(self->client, slot), list, turn->rows));
        turn->batch.rows = turn->rows;
    }
    turn->state = MST_TURN_PREPARED;
    return MST_OK;
}

static mst_status too_few_rows(const mst_worker *self, uint64_t from, uint64_t to)
{
    return mst_fail(
        MST_EINPUT,
        "%s ends before rows %" PRIu64 " to %" PRIu64
        " that the coordinator gave this worker: all workers must see the same data (or use --shard local)",
        self->job->dataset->name, from, to);
}

/* Puts the feed to a position, unless it is there. */
static mst_status seek(mst_worker *self, uint64_t epoch, uint64_t from, uint64_t to)
{
    if (self->begun && self->epoch == epoch && self->at == from)
        return mst_feed_extend(self->job->feed, to);
    TRY(mst_feed_start_range(self->job->feed, epoch, from, to));
    self->begun = true;
    self->epoch = epoch;
    self->at = from;
    return MST_OK;
}

/* The worker's share of a synchronous step. Claims the whole slice, so that the next one follows on it. */
static mst_status take_slice(mst_worker *self, uint32_t slot, const mst_work *work)
{
    uint64_t from, to, n = work->to - work->from, position;
    mst_batch slice;
    mst_work_share(work, &from, &to);
    if (n == 0 || n > self->max_rows)
        return mst_fail(MST_EINPUT,
                        "step %" PRIu64 " was given as %" PRIu64 " rows, but a global batch has %" PRIu32
                        ": start all processes with the same options",
                        work->step, n, self->max_rows);
    TRY(seek(self, work->epoch, work->from, UINT64_MAX));
    TRY(mst_feed_claim(self->job->feed, slot, (uint32_t)n, &slice, &position));
    if (slice.n_rows != n)
        return too_few_rows(self, work->from, work->to);
    self->at = self->to = work->to;
    uint32_t first = (uint32_t)(from - work->from);
    mst_batch share = {.rows = slice.rows + first, .n_rows = (uint32_t)(to - from)};
    if (share.n_rows > 0)
        TRY(mst_feed_fill(self->job->feed, slot, first, first + share.n_rows));
    return begin_turn(self, slot, &share, work->step, first);
}

/* The next batch of the leases at hand. */
static mst_status take_leased(mst_worker *self, uint32_t slot)
{
    uint64_t left = self->to - self->at, position;
    uint32_t n = left < self->job->batch ? (uint32_t)left : self->job->batch;
    mst_batch batch;
    TRY(mst_feed_take(self->job->feed, slot, n, &batch, &position));
    if (batch.n_rows != n)
        return too_few_rows(self, self->at, self->to);
    self->at += n;
    return begin_turn(self, slot, &batch, 0, own_first_row(self));
}

/* The next batch of the own stream; its end leaves *slot_used false (async), or is a turn of its own (sync).
 */
static mst_status take_granted(mst_worker *self, uint32_t slot, uint64_t step, bool *slot_used)
{
    bool sync = self->job->mode == MST_MODE_SYNC;
    uint32_t n = self->granted < self->job->batch ? (uint32_t)self->granted : self->job->batch;
    uint64_t position;
    mst_batch batch;
    bool more;
    TRY(mst_feed_claim_by(self->job->feed, slot, n, n, UINT64_MAX, &batch, &position, &more));
    TRY(mst_feed_fill(self->job->feed, slot, 0, batch.n_rows));
    self->granted -= sync ? self->granted : batch.n_rows;
    *slot_used = batch.n_rows > 0 || sync;
    if (*slot_used)
        TRY(begin_turn(self, slot, &batch, step, own_first_row(self)));
    if (batch.n_rows == n || (batch.n_rows > 0 && more))
        return MST_OK;
    if (!sync) { /* what was granted beyond the end is void */
        self->granted = 0;
        self->want_sent = self->epoch_over = true;
    } else if (batch.n_rows == 0) {
        self->turns[slot].exhausted = self->epoch_over = true;
    }
    return MST_OK;
}

/* A grant: begins its epoch where that is another. False: it is void. */
static mst_status enter_grant(mst_worker *self, const mst_work *work, bool *valid)
{
    *valid = !self->begun || work->epoch != self->epoch || !self->epoch_over;
    if (*valid && (!self->begun || work->epoch != self->epoch)) {
        TRY(mst_feed_start(self->job->feed, work->epoch, 0));
        self->begun = true;
        self->epoch = work->epoch;
        self->epoch_over = self->end_told = false;
    }
    return MST_OK;
}

static mst_status take_next(mst_worker *self, uint32_t slot, bool *taken)
{
    bool sync = self->job->mode == MST_MODE_SYNC;
    for (;;) {
        const mst_work *next = next_item(self);
        mst_work work;
        /* Leases that continue the one at hand make one range with it. */
        while (next != NULL && next->kind == MST_WORK_LEASE && self->begun && self->to > self->at &&
               next->epoch == self->epoch && next->from == self->to) {
            self->to = next->to;
            TRY(mst_feed_extend(self->job->feed, self->to));
            pop_item(self);
            next = next_item(self);
        }
        if (self->to > self->at) {
            *taken = true;
            return take_leased(self, slot);
        }
        if (self->granted > 0) {
            TRY(take_granted(self, slot, 0, taken));
            if (*taken)
                return MST_OK;
            continue;
        }
        if (next == NULL)
            return MST_OK;
        work = *next;
        pop_item(self);
        switch (work.kind) {
        case MST_WORK_SLICE:
            *taken = true;
            return take_slice(self, slot, &work);
        case MST_WORK_LEASE:
            self->wants = true;
            TRY(seek(self, work.epoch, work.from, work.to));
            self->to = work.to;
            break;
        case MST_WORK_GRANT: {
            bool valid;
            self->wants = !sync;
            TRY(enter_grant(self, &work, &valid));
            if (!valid)
                break;
            self->granted = work.to;
            if (sync) {
                *taken = true;
                return take_granted(self, slot, work.step, taken);
            }
            break;
        }
        case MST_WORK_WAIT:
            break;
        case MST_WORK_STOP:
            self->stopped = true;
            self->n_items = 0;
            return MST_OK;
        }
    }
}

/* Whether the rows of the next batch are still to come, from a live stream of the worker's own. */
static bool awaits_rows(mst_worker *self)
{
    const mst_work *next = next_item(self);
    bool granted = self->granted > 0 || (next != NULL && next->kind == MST_WORK_GRANT);
    return granted && self->begun && !self->epoch_over && !mst_feed_ready(self->job->feed, self->job->batch);
}

mst_status mst_worker_prepare(mst_worker *self, uint32_t *slot)
{
    uint64_t start = mst_now_ns();
    bool taken = false;
    uint32_t at = free_slot(self);
    *slot = MST_NO_REQUEST;
    if (at == MST_NO_REQUEST || (self->n_items == 0 && self->to <= self->at && self->granted == 0))
        return MST_OK;
    self->input_late = awaits_rows(self);
    if (self->input_late)
        return MST_OK;
    mst_status st = take_next(self, at, &taken);
    if (st == MST_ESTOPPED) { /* the feed stops by itself: there are no more rows to be had */
        self->stopped = self->abandoned = true;
        return MST_OK;
    }
    TRY(st);
    if (taken)
        *slot = at;
    st = want(self);
    self->counts.input_seconds += mst_seconds_since(start);
    return st;
}

/* ---- the sample ---- */

/* Adds an even choice of the batch's distinct keys. */
static mst_status add_sample(json_t *sample, const mst_key_list *list)
{
    uint32_t n = list->n_keys < SAMPLE_SHARE ? list->n_keys : SAMPLE_SHARE;
    for (uint32_t i = 0; i < n && json_array_size(sample) < SAMPLE_KEYS; i++) {
        uint32_t key = list->keys[(uint64_t)i * list->n_keys / n];
        if (json_array_append_new(sample, json_integer((json_int_t)key)) != 0)
            return mst_fail_memory();
    }
    return MST_OK;
}

static mst_status fill_sample(mst_worker *self, json_t *sample)
{
    mst_key_list *list = mst_zalloc(sizeof *list);
    mst_status st = MST_OK;
    if (list == NULL)
        return mst_fail_memory();
    TRY_OUT(st, mst_feed_start(self->job->feed, 0, 0));
    for (unsigned i = 0; i < SAMPLE_BATCHES && json_array_size(sample) < SAMPLE_KEYS; i++) {
        mst_batch batch;
        uint64_t position;
        TRY_OUT(st, mst_feed_take(self->job->feed, 0, self->job->batch, &batch, &position));
        if (batch.n_rows == 0)
            break;
        TRY_OUT(st, mst_row_localise(self->localiser, 0, &batch, self->n_prefix, self->n_prefix, list,
                                     self->turns[0].rows));
        TRY_OUT(st, add_sample(sample, list));
    }
out:
    mst_key_list_fini(list);
    mst_free(list);
    return st;
}

mst_status mst_worker_sample(mst_worker *self, json_t **out)
{
    *out = NULL;
    if (self->localiser == NULL)
        return MST_OK;
    json_t *sample = json_array();
    if (sample == NULL)
        return mst_fail_memory();
    /* What can be read only once is left for training. */
    if (self->job->dataset->random || mst_stream_reads_once(self->job->dataset) == NULL) {
        mst_status st = fill_sample(self, sample);
        if (st != MST_OK) {
            json_decref(sample);
            return st;
        }
    }
    *out = sample;
    return MST_OK;
}
