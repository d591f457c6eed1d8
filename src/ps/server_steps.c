/* Pushes and pulls on a server; contract in server_impl.h.
 *
 * A STEP without a push is answered at once. A push is applied when it arrives (async, ssp) or waits for its
 * step (sync). The answer leaves after the coordinator has counted the push, so that whatever it has to say
 * about it (a cut, the next work) travels before or with the answer.
 *
 * Invariants
 * 1. Steps close in order: applied counts them, and only pushes labelled applied + 1 count for the next.
 * 2. A worker has at most one push waiting.
 * 3. A step's pushes are added in worker order. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "observe/observe.h"
#include "observe/trace_file.h"
#include "ps/server_impl.h"

#define SMALL_REPLY 65536 /* bytes: leaves at once, or is copied by the net */

/* ---- answers ---- */

/* Sends what is in the buffer; one that is not s->reply comes back by itself. */
static mst_status send_values(mst_server *s, uint32_t worker, const mst_store_request *r, uint32_t flags,
                              mst_buffer *buffer, size_t size)
{
    mst_message m = {.type = MST_PS_VALUES, .flags = flags, .request = r->request, .step = s->applied};
    mst_piece piece = {buffer->data, size};
    uint32_t peer = s->workers[worker].peer;
    mst_status st = buffer == s->reply ? mst_net_send(s->net, peer, &m, &piece, size > 0, NULL)
                                       : mst_server_lend(s, peer, &m, buffer, size);
    mst_server_trace_queue(s);
    if (st == MST_ETIMEOUT)
        s->workers[worker].stuck = true;
    return mst_unless_gone(st);
}

/* Whether the answer travels in parts. */
static bool in_parts(const mst_store_request *r)
{
    return r->pulled != NULL && r->head.part_floats != 0 &&
           mst_key_list_range_floats(r->pulled) > r->head.part_floats;
}

/* A part of an answer. Where all workers are needed, nothing changes before this one has pushed again, and
 * for that it must have the answer: the weights are then sent from where they lie. */
static mst_status send_part(mst_server *s, uint32_t worker, const mst_store_request *r, uint64_t first,
                            uint32_t count)
{
    mst_message m = {.type = MST_PS_WEIGHTS, .request = r->request, .count = (uint32_t)first};
    mst_piece pieces[MST_PIECE_MAX];
    uint32_t peer = s->workers[worker].peer, n = 0;
    mst_status st;
    m.step = s->applied;
    if (mst_is_sync(s) && !mst_has_backups(s))
        n = mst_store_reply_pieces(s->store, r, first, count, pieces, MST_PIECE_MAX);
    if (n > 0) {
        st = mst_net_send(s->net, peer, &m, pieces, n, &s->model);
    } else {
        size_t size = count * mst_wire_size(r->wire);
        mst_buffer *buffer = mst_server_buffer(s, size);
        if (buffer == NULL)
            return mst_fail_memory();
        mst_store_reply_part(s->store, r, first, count, buffer->data);
        st = mst_server_lend(s, peer, &m, buffer, size);
    }
    mst_server_trace_queue(s);
    if (st == MST_ETIMEOUT)
        s->workers[worker].stuck = true;
    return mst_unless_gone(st);
}

/* Sends the parts of an answer that lie below `at` of the flat vector, all but the last of all. */
static mst_status send_parts(mst_server *s, uint32_t worker, const mst_store_request *r, uint64_t at)
{
    mst_server_worker *w = &s->workers[worker];
    if (!in_parts(r) || w->peer == MST_PEER_NONE || w->stuck)
        return MST_OK;
    uint32_t part = r->head.part_floats;
    uint64_t there = mst_key_list_below(r->pulled, at), all = mst_key_list_range_floats(r->pulled);
    mst_phase before = mst_span_enter(MST_PHASE_SERVE);
    while (w->answered + part <= there && w->answered + part < all && !w->stuck) {
        TRY(send_part(s, worker, r, w->answered, part));
        w->answered += part;
    }
    mst_span_enter(before);
    return MST_OK;
}

/* Applies pushes; where answers travel in parts, each leaves as soon as its weights are what they are to be.
 */
static mst_status apply_and_send(mst_server *s, const mst_store_request *const *requests, uint32_t n,
                                 const mst_update *u)
{
    const mst_store_request *first = NULL;
    for (uint32_t i = 0; i < n; i++) {
        s->workers[requests[i]->worker].answered = 0;
        first = first == NULL && in_parts(requests[i]) ? requests[i] : first;
    }
    if (first == NULL)
        return mst_store_apply(s->store, requests, n, u);
    for (uint64_t from = 0, done = first->head.part_floats; from != UINT64_MAX;
         done += first->head.part_floats) {
        uint64_t to = mst_store_reply_place(first, done);
        TRY(mst_store_apply_piece(s->store, requests, n, u, from, to));
        for (uint32_t i = 0; i < n; i++)
            TRY(send_parts(s, requests[i]->worker, requests[i], to));
        from = to;
    }
    return MST_OK;
}

static mst_status gather_rest(mst_server *s, uint32_t worker, const mst_store_request *r, uint32_t flags)
{
    mst_work work;
    uint64_t left = s->workers[worker].answered;
    size_t size = r->pulled != NULL ? mst_store_reply_size(s->store, r) - left * mst_wire_size(r->wire) : 0;
    size_t whole = size;
    if (s->workers[worker].peer == MST_PEER_NONE)
        return MST_OK;
    if (s->co != NULL && mst_is_sync(s) && r->values != NULL && mst_coordinator_trailer(s, worker, &work)) {
        flags |= MST_VALUES_WORK;
        whole += MST_WORK_SIZE;
    }
    bool small = whole <= SMALL_REPLY;
    if (small && s->reply == NULL)
        s->reply = mst_server_buffer(s, SMALL_REPLY);
    mst_buffer *buffer = small ? s->reply : mst_server_buffer(s, whole);
    if (buffer == NULL)
        return mst_fail_memory();
    if (size > 0)
        mst_store_reply_rest(s->store, r, left, buffer->data);
    if (flags & MST_VALUES_WORK)
        mst_work_encode(&work, buffer->data + size);
    return send_values(s, worker, r, flags, buffer, whole);
}

/* The whole answer, or what is left of one whose first parts have left. */
static mst_status answer_rest(mst_server *s, uint32_t worker, const mst_store_request *r, uint32_t flags)
{
    mst_phase before = mst_span_enter(MST_PHASE_SERVE);
    mst_status st = gather_rest(s, worker, r, flags);
    mst_span_enter(before);
    return st;
}

static mst_status answer(mst_server *s, uint32_t worker, const mst_store_request *r, uint32_t flags)
{
    s->workers[worker].answered = 0;
    TRY(send_parts(s, worker, r, UINT64_MAX));
    return answer_rest(s, worker, r, flags);
}

static mst_update update_of(const mst_server *s)
{
    return (mst_update){.lr = mst_learning_rate(&s->model.optimizer->options, s->applied),
                        .step = s->applied};
}

/* So many steps are applied with this one. The coordinator's curves follow the book of the run. */
static void advance_to(mst_server *s, uint64_t steps)
{
    s->applied = steps;
    if (s->co == NULL)
        mst_observe_set_step(s->options.observe, steps);
}

/* The worker's push for its step, or that of everybody, is applied now. */
static void trace_push(const mst_server *s, uint32_t worker, uint64_t step)
{
    mst_trace_flow(MST_TRACE_FLOW_IN, &(mst_trace_push){.step = step,
                                                        .incarnation = s->workers[worker].incarnation,
                                                        .worker = worker,
                                                        .server = s->index});
}

/* ---- asynchronous ---- */

/* A large push is applied and its answer read in one walk over the weights. */
static mst_status push_large(mst_server *s, uint32_t worker, const mst_store_request *r, size_t size)
{
    mst_update u = update_of(s);
    mst_buffer *buffer = mst_server_buffer(s, size);
    if (buffer == NULL)
        return mst_fail_memory();
    mst_status st = mst_store_step(s->store, r, &u, buffer->data);
    if (st == MST_OK && s->co != NULL)
        st = mst_coordinator_applied(s, s->applied, &r, 1);
    if (st != MST_OK || s->workers[worker].peer == MST_PEER_NONE) {
        mst_server_release(s, buffer);
        return st;
    }
    return send_values(s, worker, r, 0, buffer, size);
}

static mst_status push_in_parts(mst_server *s, uint32_t worker, const mst_store_request *r)
{
    mst_update u = update_of(s);
    TRY(apply_and_send(s, &r, 1, &u));
    if (s->co != NULL)
        TRY(mst_coordinator_applied(s, s->applied, &r, 1));
    return answer_rest(s, worker, r, 0);
}

static mst_status push_now(mst_server *s, uint32_t worker, const mst_store_request *r)
{
    mst_server_worker *w = &s->workers[worker];
    size_t size = r->pulled != NULL ? mst_store_reply_size(s->store, r) : 0;
    w->pushes++;
    advance_to(s, s->applied + 1);
    mst_span_steps(1, r->head.rows);
    if (in_parts(r) && s->options.mode == MST_MODE_ASYNC)
        return push_in_parts(s, worker, r);
    if (size > SMALL_REPLY && s->options.mode == MST_MODE_ASYNC)
        return push_large(s, worker, r, size);
    mst_update u = update_of(s);
    TRY(mst_store_apply(s->store, &r, 1, &u));
    if (s->co != NULL)
        TRY(mst_coordinator_applied(s, s->applied, &r, 1));
    if (s->co != NULL && mst_coordinator_ahead(s, worker)) {
        if (w->n_deferred == MST_LISTS)
            return mst_fail(MST_EPEER, "more than %d requests in flight", MST_LISTS);
        w->deferred[w->n_deferred++] = *r;
        return MST_OK;
    }
    TRY(answer(s, worker, r, 0));
    return s->co != NULL ? mst_server_release_deferred(s) : MST_OK;
}

mst_status mst_server_release_deferred(mst_server *s)
{
    if (s->options.mode != MST_MODE_SSP)
        return MST_OK;
    for (uint32_t i = 0; i < s->options.n_workers; i++) {
        mst_server_worker *w = &s->workers[i];
        if (w->n_deferred == 0 || mst_coordinator_ahead(s, i))
            continue;
        for (uint32_t k = 0; k < w->n_deferred; k++)
            TRY(answer(s, i, &w->deferred[k], 0));
        w->n_deferred = 0;
    }
    return MST_OK;
}

/* ---- synchronous ---- */

static void settle(mst_server *s, uint32_t worker)
{
    mst_server_worker *w = &s->workers[worker];
    w->pending = false;
    mst_server_release(s, w->body);
    mst_server_release(s, w->values);
    w->body = w->values = NULL;
}

static bool waits_for(const mst_server_worker *w, uint64_t step)
{
    return w->pending && w->label == step && !w->exhausted;
}

/* Its push for the step will not come: the coordinator does not count it, or the connection it would come by
 * is gone. */
static bool given_up(const mst_server_worker *w, uint64_t step)
{
    return w->gone && (w->gone_from <= step || w->peer == MST_PEER_NONE);
}

/* All workers are needed: none is still to come. */
static bool all_here(const mst_server *s, uint64_t step)
{
    for (uint32_t i = 0; i < s->options.n_workers; i++) {
        const mst_server_worker *w = &s->workers[i];
        if (!waits_for(w, step) && !w->exhausted && !given_up(w, step))
            return false;
    }
    return true;
}

/* The coordinator with backup workers: enough pushes are here. Everybody is told. */
static mst_status decide_close(mst_server *s, uint64_t step)
{
    mst_step_close close = {.step = step};
    uint32_t here = 0, active = 0;
    for (uint32_t i = 0; i < s->options.n_workers; i++) {
        const mst_server_worker *w = &s->workers[i];
        active += !w->exhausted && mst_coordinator_expects(s, i);
        if (waits_for(w, step)) {
            mst_bit_set(close.slots, i);
            here++;
        }
    }
    if (here == 0 || here < (active < s->options.quorum ? active : s->options.quorum))
        return MST_OK;
    mst_message m = {.type = MST_PS_CLOSE, .step = step};
    mst_piece piece = {close.slots, sizeof close.slots};
    for (uint32_t i = 1; i < s->options.n_servers; i++)
        TRY(mst_unless_gone(mst_net_send(s->net, s->servers[i], &m, &piece, 1, NULL)));
    if (!mst_grow(&s->closes, &s->close_capacity, s->n_closes + 1, sizeof *s->closes))
        return mst_fail_memory();
    s->closes[s->n_closes++] = close;
    return MST_OK;
}

/* Pushes that the coordinator left out of a step are dropped as soon as that is known. */
static mst_status drop_late(mst_server *s, uint64_t step, const uint64_t *slots)
{
    for (uint32_t i = 0; i < s->options.n_workers; i++) {
        mst_server_worker *w = &s->workers[i];
        if (!w->pending || w->exhausted || w->label > step || (slots != NULL && mst_bit(slots, i)))
            continue;
        if (s->co != NULL)
            mst_coordinator_dropped(s, i, &w->request);
        TRY(answer(s, i, &w->request, MST_VALUES_DROPPED));
        settle(s, i);
    }
    return MST_OK;
}

/* Whether the pushes that count for the next step, by the coordinator's word, are all here. */
static bool decided_here(const mst_server *s, uint64_t step, mst_step_close *close)
{
    if (s->n_closes == 0 || s->closes[0].step != step)
        return false;
    for (uint32_t i = 0; i < s->options.n_workers; i++) {
        const mst_server_worker *w = &s->workers[i];
        if (mst_bit(s->closes[0].slots, i) && !waits_for(w, step) && !given_up(w, step))
            return false;
    }
    *close = s->closes[0];
    return true;
}

static mst_status close_step(mst_server *s, uint64_t step, const uint64_t *slots)
{
    const mst_store_request *requests[1024];
    uint32_t who[1024], n = 0;
    mst_span_step(step);
    for (uint32_t i = 0; i < s->options.n_workers; i++) {
        mst_server_worker *w = &s->workers[i];
        bool counts = slots == NULL ? w->gone_from > step || !w->gone : mst_bit(slots, i);
        if (counts && w->gone && !waits_for(w, step))
            mst_warn("step %" PRIu64 ": worker %" PRIu32
                     " was lost before its gradient reached server %" PRIu32 ", which goes on without it",
                     step, i, s->index);
        if (!counts || !waits_for(w, step))
            continue;
        requests[n] = &w->request;
        who[n++] = i;
        trace_push(s, i, step);
        mst_span_steps(0, w->request.head.rows);
        s->set_hash = (s->set_hash ^ step * 1031 ^ i) * 0x9e3779b97f4a7c15ull;
    }
    advance_to(s, step);
    mst_span_steps(1, 0);
    mst_update u = update_of(s);
    TRY(apply_and_send(s, requests, n, &u));
    if (s->co != NULL)
        TRY(mst_coordinator_applied(s, step, requests, n));
    TRY(mst_server_try_cut(s));
    for (uint32_t i = n; i-- > 0;) { /* worker 0 last: it is beside server 0, and needs the least time */
        TRY(answer_rest(s, who[i], &s->workers[who[i]].request, 0));
        settle(s, who[i]);
    }
    return drop_late(s, step, NULL);
}

/* sync on streams: nobody has rows left, so the next epoch begins. */
static mst_status end_epoch(mst_server *s)
{
    uint32_t exhausted = 0;
    for (uint32_t i = 0; i < s->options.n_workers; i++) {
        const mst_server_worker *w = &s->workers[i];
        if (!w->exhausted && !w->gone && !(mst_has_backups(s) && w->peer == MST_PEER_NONE))
            return MST_OK;
        exhausted += w->exhausted && !w->gone;
    }
    if (exhausted == 0)
        return MST_OK;
    if (s->co != NULL)
        TRY(mst_coordinator_epoch_over(s));
    for (uint32_t i = 0; i < s->options.n_workers; i++) {
        mst_server_worker *w = &s->workers[i];
        if (!w->exhausted)
            continue;
        w->exhausted = false;
        TRY(answer(s, i, &w->request, 0));
        settle(s, i);
    }
    return MST_OK;
}

mst_status mst_server_try_close(mst_server *s)
{
    for (;;) {
        uint64_t step = s->applied + 1;
        mst_step_close close;
        bool any = false;
        for (uint32_t i = 0; i < s->options.n_workers; i++)
            any |= waits_for(&s->workers[i], step);
        if (!mst_has_backups(s)) {
            if (!any || !all_here(s, step))
                break;
            TRY(close_step(s, step, NULL));
            continue;
        }
        if (s->co != NULL && s->n_closes == 0)
            TRY(decide_close(s, step));
        if (s->n_closes > 0)
            TRY(drop_late(s, s->closes[0].step, s->closes[0].slots));
        if (!decided_here(s, step, &close))
            break;
        s->n_closes--;
        memmove(s->closes, s->closes + 1, s->n_closes * sizeof *s->closes);
        TRY(close_step(s, step, close.slots));
    }
    return end_epoch(s);
}

static mst_status push_later(mst_server *s, uint32_t worker, const mst_message *m, const mst_store_request *r,
                             mst_buffer **body, mst_buffer **values)
{
    mst_server_worker *w = &s->workers[worker];
    if (w->pending)
        return mst_fail(MST_EPEER, "a push for step %" PRIu64 " while that for step %" PRIu64 " is waiting",
                        m->step, w->label);
    if (m->step <= s->applied && !(r->flags & MST_STEP_EXHAUSTED)) {
        if (!mst_has_backups(s))
            return mst_fail(MST_EPEER, "a push for step %" PRIu64 ", but %" PRIu64 " steps are done", m->step,
                            s->applied);
        if (s->co != NULL)
            mst_coordinator_dropped(s, worker, r);
        return answer(s, worker, r, MST_VALUES_DROPPED);
    }
    w->pending = true;
    w->exhausted = (r->flags & MST_STEP_EXHAUSTED) != 0;
    w->label = m->step;
    w->request = *r;
    w->body = *body;
    w->values = *values;
    *body = *values = NULL;
    if (s->co != NULL)
        mst_coordinator_arrived(s, worker, all_here(s, m->step));
    return mst_server_try_close(s);
}

/* ---- STEP ---- */

static mst_status take_step(mst_server *s, uint32_t worker, const mst_message *m, mst_buffer **body,
                            mst_staged *staged)
{
    mst_store_request r;
    const mst_store_parts *parts = staged->buffer != NULL ? &staged->parts : NULL;
    if (mst_store_read_last(s->store, worker, m, (*body)->data, parts,
                            parts != NULL ? staged->buffer->data : NULL, &r) != MST_OK)
        return mst_fail(MST_EPEER, "%s", mst_error_text());
    if (!(m->flags & MST_STEP_PUSH))
        return answer(s, worker, &r, 0);
    if (mst_is_sync(s))
        return push_later(s, worker, m, &r, body, &staged->buffer);
    mst_span_step(m->step);
    trace_push(s, worker, m->step);
    return push_now(s, worker, &r);
}

static mst_status hold_step(mst_server *s, uint32_t worker, const mst_message *m, mst_buffer *body,
                            mst_staged staged)
{
    mst_held_step *held = mst_zalloc(sizeof *held);
    if (held == NULL)
        return mst_fail_memory();
    *held = (mst_held_step){.worker = worker, .m = *m, .body = body, .staged = staged};
    *s->held_tail = held;
    s->held_tail = &held->next;
    return MST_OK;
}

mst_status mst_server_step(mst_server *s, uint32_t worker, const mst_message *m, mst_buffer *body,
                           mst_staged staged)
{
    mst_status st;
    bool hold = !mst_is_sync(s) && s->workers[worker].mark > s->cut.taken;
    if (body == NULL)
        st = mst_fail(MST_EPEER, "STEP without a body");
    else
        st = hold ? hold_step(s, worker, m, body, staged) : take_step(s, worker, m, &body, &staged);
    if (st == MST_OK && hold)
        return MST_OK;
    mst_server_release(s, body);
    mst_server_release(s, staged.buffer);
    return st;
}

mst_status mst_server_part_body(mst_server *s, uint32_t peer, const mst_message *m, void **out)
{
    mst_peer *p = &s->peers[peer];
    TRY(mst_store_part(s->store, p->index, m, &p->staged.parts, &p->next));
    size_t size = mst_wire_size(p->next.wire);
    if (p->staged.buffer == NULL)
        p->staged.buffer = mst_server_buffer(s, (size_t)p->next.floats * size);
    if (p->staged.buffer == NULL)
        return mst_fail_memory();
    *out = p->staged.buffer->data + p->next.from * size;
    return MST_OK;
}

void mst_server_forget(mst_server *s, uint32_t worker)
{
    mst_server_worker *w = &s->workers[worker];
    w->n_deferred = 0;
    if (w->pending && (w->exhausted || !mst_is_sync(s) || (w->gone && w->label >= w->gone_from)))
        settle(s, worker);
    w->exhausted = false;
    for (mst_held_step **at = &s->held; *at != NULL;) {
        mst_held_step *held = *at;
        if (held->worker != worker) {
            at = &held->next;
            continue;
        }
        *at = held->next;
        mst_server_release(s, held->body);
        mst_server_release(s, held->staged.buffer);
        mst_free(held);
    }
    s->held_tail = &s->held;
    while (*s->held_tail != NULL)
        s->held_tail = &(*s->held_tail)->next;
    if (!w->pending && s->store != NULL)
        mst_store_forget(s->store, worker);
}
