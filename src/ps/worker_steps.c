/* The worker's loop; contract in worker_impl.h.
 *
 * A slot goes FREE -> PREPARED -> PULLED -> FREE: its push travels with the pull of the next slot. When there
 * is no next batch, the push goes alone, and the slot is PUSHED until its reply is there.
 *
 * Invariants
 * 1. At most pipeline + 1 requests are in flight; replies are waited for in the order of the requests.
 * 2. One slot is free or prepared at any time, so that the next batch is localised while replies are under
 * way.
 * 3. A slot's gradient is sent with the pull of slot p, and p is waited for before the slot is computed
 * again: gradients need no buffers beyond one per slot. Without a pipeline p is the next slot to be computed:
 * one buffer is enough, but for several servers of which one may answer before another has the whole push.
 * 4. Where communication overlaps, a slot is computed on while its weights still come; its reply is complete
 * before anything follows from it.
 * 5. A pull travels alone only when fewer than pipeline + 1 requests are in flight; without a pipeline it
 * therefore sees the worker's own last update. */
#include <inttypes.h>

#include "base/clock.h"
#include "base/log.h"
#include "observe/observe.h"
#include "observe/trace_file.h"
#include "ps/worker_impl.h"

#define INPUT_LOOK_NS (10 * MST_MS) /* between looks at a live stream that has no rows */
#define WORD_NS       (60 * MST_S)  /* between lines of a worker that has nothing to do */

void mst_worker_trace_flight(mst_worker *self)
{
    if (mst_tracing())
        mst_trace_counter(MST_TRACE_FLIGHT, mst_client_in_flight(self->client));
}

static void enter_flight(mst_worker *self, uint32_t slot, mst_turn_state state, const mst_push *push,
                         uint64_t version)
{
    mst_turn *turn = &self->turns[slot];
    turn->state = state;
    turn->carries_push = push != NULL;
    turn->push_rows = push != NULL ? push->rows : 0;
    turn->push_version = version;
    self->flight[self->n_flight++] = slot;
    mst_worker_trace_flight(self);
}

/* Waits for the reply to the oldest request. An exhausted worker's comes when the others have ended the
 * epoch, however long that takes; while servers are alive, they remember it. When there is to be no other
 * epoch it need not come. */
static mst_status await_reply(mst_worker *self, uint32_t slot, bool (*there)(const mst_client *, uint32_t))
{
    uint64_t start = mst_now_ns(), patience = self->options.stall_timeout_ms * MST_MS, word = start + WORD_NS;
    bool unbounded = self->turns[slot].state == MST_TURN_PUSHED && self->turns[slot].exhausted;
    mst_status st = MST_OK;
    mst_phase before =
        mst_span_enter(self->job->mode == MST_MODE_SYNC ? MST_PHASE_BARRIER_WAIT : MST_PHASE_PULL_WAIT);
    while (!there(self->client, slot) && !self->ended && !(unbounded && self->stopped)) {
        uint64_t now = mst_now_ns();
        if (!unbounded && now >= start + patience) {
            st = mst_client_wait(self->client, slot, now);
            break;
        }
        if (unbounded && now >= word) {
            mst_info("waiting for the other workers to end epoch %" PRIu64, self->epoch);
            word = now + WORD_NS;
        }
        st = mst_worker_turn(self, unbounded ? word : start + patience);
        if (st != MST_OK)
            break;
    }
    mst_span_enter(before);
    self->counts.wait_seconds += mst_seconds_since(start);
    return st;
}

/* The oldest request's reply is here: what became of the push that went with it, and the work it brings. */
static mst_status settle(mst_worker *self, uint32_t slot)
{
    mst_turn *turn = &self->turns[slot];
    const mst_reply *reply = mst_client_reply(self->client, slot);
    self->n_flight--;
    for (uint32_t i = 0; i < self->n_flight; i++)
        self->flight[i] = self->flight[i + 1];
    if (turn->carries_push && turn->push_rows > 0) {
        self->counts.steps += !reply->dropped;
        self->counts.rows += reply->dropped ? 0 : turn->push_rows;
        self->counts.dropped_steps += reply->dropped;
        self->counts.dropped_rows += reply->dropped ? turn->push_rows : 0;
        mst_span_steps(!reply->dropped, reply->dropped ? 0 : turn->push_rows);
        mst_span_dropped(reply->dropped ? turn->push_rows : 0);
        if (self->job->mode != MST_MODE_SYNC && reply->version > turn->push_version)
            mst_span_stale(reply->version - turn->push_version - 1); /* pushes of others in between */
        mst_observe_set_step(self->job->observe, reply->version);
    }
    return reply->has_work && !self->stopped ? mst_worker_add_item(self, &reply->work) : MST_OK;
}

/* The number that the slot's push has: the coordinator's for the step (sync), the one after the version it
 * was computed on (sync with backup workers), or the worker's own. The reply has begun to arrive. */
static uint64_t step_of(const mst_worker *self, uint32_t slot)
{
    const mst_turn *turn = &self->turns[slot];
    if (self->job->mode != MST_MODE_SYNC)
        return self->own_steps + 1;
    return turn->step != 0 ? turn->step : mst_client_reply(self->client, slot)->version + 1;
}

static mst_status prepare_next(mst_worker *self)
{
    if (self->stopped && self->prepared != MST_NO_REQUEST) {
        self->turns[self->prepared].state = MST_TURN_FREE;
        self->prepared = MST_NO_REQUEST;
    }
    if (self->stopped) {
        mst_worker_drop_work(self);
        return MST_OK;
    }
    return self->prepared == MST_NO_REQUEST ? mst_worker_prepare(self, &self->prepared) : MST_OK;
}

/* Pushes the oldest request's gradient, and pulls the next batch's weights with it. */
static mst_status push(mst_worker *self, uint32_t slot, const mst_loss_sum *sum)
{
    mst_turn *turn = &self->turns[slot];
    TRY(prepare_next(self));
    mst_push mine = {
        .request = slot,
        .g = mst_worker_gradient_of(self, slot)->g,
        .step = step_of(self, slot),
        .rows = turn->batch.n_rows,
        .loss = sum->loss,
        .weight = sum->weight,
        .flags = turn->exhausted ? MST_STEP_EXHAUSTED : 0,
    };
    uint32_t next = turn->exhausted ? MST_NO_REQUEST : self->prepared;
    uint64_t version = mst_client_reply(self->client, slot)->version;
    const mst_identity *me = &self->options.net.self;
    self->own_steps++;
    mst_phase before = mst_span_enter(MST_PHASE_PUSH);
    for (uint32_t s = 0; mst_tracing() && s < self->options.n_servers; s++)
        mst_trace_flow(MST_TRACE_FLOW_OUT, &(mst_trace_push){.step = mine.step,
                                                             .incarnation = me->incarnation,
                                                             .worker = me->index,
                                                             .server = s});
    mst_status st = mst_client_send(self->client, &mine, next);
    mst_span_enter(before);
    TRY(st);
    if (next == MST_NO_REQUEST) {
        enter_flight(self, slot, MST_TURN_PUSHED, &mine, version);
        return MST_OK;
    }
    turn->state = MST_TURN_FREE;
    enter_flight(self, next, MST_TURN_PULLED, &mine, version);
    self->prepared = MST_NO_REQUEST;
    return MST_OK;
}

static mst_status compute(mst_worker *self, uint32_t slot, mst_loss_sum *sum)
{
    mst_phase before = mst_span_enter(MST_PHASE_COMPUTE);
    mst_span_step(step_of(self, slot));
    mst_status st = mst_worker_compute(self, slot, sum);
    mst_span_enter(before);
    return st;
}

/* The oldest request, from its reply on. Where communication overlaps, computing begins with the reply. */
static mst_status advance(mst_worker *self, uint32_t slot, bool *over)
{
    bool early = self->overlap.on && self->turns[slot].state == MST_TURN_PULLED;
    mst_loss_sum sum = {0};
    *over = true;
    if (early) {
        TRY(await_reply(self, slot, mst_client_begun));
        if (self->ended)
            return MST_OK;
        mst_status st = compute(self, slot, &sum);
        if (self->ended)
            return MST_OK;
        TRY(st);
    }
    TRY(await_reply(self, slot, mst_client_ready));
    if (self->ended || !mst_client_ready(self->client, slot))
        return MST_OK;
    *over = false;
    TRY(settle(self, slot));
    if (self->turns[slot].state != MST_TURN_PULLED) {
        self->turns[slot].state = MST_TURN_FREE;
        return MST_OK;
    }
    if (!early)
        TRY(compute(self, slot, &sum));
    return push(self, slot, &sum);
}

/* Nothing to do: waits for work. While the servers are alive and the coordinator has not ended the job, there
 * may be more. */
static mst_status wait_work(mst_worker *self)
{
    uint64_t start = mst_now_ns(), word = start + WORD_NS;
    mst_phase before = mst_span_enter(MST_PHASE_IDLE);
    mst_status st = self->n_items == 0 && !self->stopped ? mst_worker_want_idle(self) : MST_OK;
    while (st == MST_OK && self->n_items == 0 && !self->stopped && !self->ended) {
        st = mst_worker_turn(self, word);
        if (mst_now_ns() >= word) {
            mst_info("waiting for server 0 to give this worker rows");
            word += WORD_NS;
        }
    }
    mst_span_enter(before);
    self->counts.wait_seconds += mst_seconds_since(start);
    return st;
}

/* Rows of a live stream are still to come: sees to messages for a moment. */
static mst_status wait_input(mst_worker *self)
{
    uint64_t start = mst_now_ns();
    mst_phase before = mst_span_enter(MST_PHASE_READ);
    mst_status st = mst_worker_turn(self, start + INPUT_LOOK_NS);
    mst_span_enter(before);
    self->counts.input_seconds += mst_seconds_since(start);
    return st;
}

static mst_status step(mst_worker *self, bool *over)
{
    TRY(mst_worker_attend(self));
    TRY(prepare_next(self));
    if (self->prepared != MST_NO_REQUEST && self->n_flight <= self->job->pipeline) {
        mst_span_enter(MST_PHASE_PUSH);
        TRY(mst_client_send(self->client, NULL, self->prepared));
        mst_span_enter(MST_PHASE_PREPARE);
        enter_flight(self, self->prepared, MST_TURN_PULLED, NULL, 0);
        self->prepared = MST_NO_REQUEST;
        return MST_OK;
    }
    if (self->n_flight == 0) {
        *over = self->stopped;
        if (self->stopped)
            return MST_OK;
        return self->input_late ? wait_input(self) : wait_work(self);
    }
    return advance(self, self->flight[0], over);
}

mst_status mst_worker_steps(mst_worker *self)
{
    bool over = false;
    mst_spans_attach(mst_observe_spans(self->job->observe), 0, MST_PHASE_PREPARE);
    while (!over && !self->ended && !self->abandoned)
        TRY(step(self, &over));
    return MST_OK;
}
