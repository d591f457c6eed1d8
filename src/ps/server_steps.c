/* Pushes and the steps that they make; contract in server_steps.h. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/figure.h"
#include "base/log.h"
#include "observe/observe.h"
#include "observe/trace_file.h"
#include "ps/server_impl.h"

/* ---- applying ---- */

/* Applies pushes; a part of an answer leaves as soon as its weights are updated. */
static mst_status steps_apply_and_send(mst_server *s, const mst_store_request *const *requests, uint32_t n,
                                       const mst_update *u)
{
    const mst_store_request *first = NULL;
    for (uint32_t i = 0; i < n; i++) {
        s->workers[requests[i]->worker].answered = 0;
        first = first == NULL && mst_answer_in_parts(requests[i]) ? requests[i] : first;
    }
    uint64_t end = s->options.sparse_async ? MST_STORE_END : UINT64_MAX;
    if (first == NULL || s->replica.on) /* answers leave after the copy */
        return mst_store_apply_piece(s->store, requests, n, u, 0, end);
    for (uint64_t from = 0, done = first->head.part_floats; from != UINT64_MAX;
         done += first->head.part_floats) {
        uint64_t to = mst_store_reply_place(first, done);
        TRY(mst_store_apply_piece(s->store, requests, n, u, from, to < end ? to : end));
        for (uint32_t i = 0; i < n; i++)
            TRY(mst_answer_parts(s, requests[i]->worker, requests[i], to));
        from = to;
    }
    return MST_OK;
}

static mst_update steps_update_of(const mst_server *s)
{
    return mst_optimizer_update(s->model.optimizer, s->steps.applied);
}

/* Records the number of applied steps. The coordinator's curves follow the run log. */
static void steps_advance_to(mst_server *s, uint64_t steps)
{
    s->steps.applied = steps;
    if (s->co == NULL)
        mst_observe_set_step(s->options.observe, steps);
}

/* The worker's push for the step is applied. */
static void steps_trace_push(const mst_server *s, uint32_t worker, uint64_t step)
{
    mst_trace_flow(MST_TRACE_FLOW_IN, &(mst_trace_push){.step = step,
                                                        .incarnation = s->workers[worker].incarnation,
                                                        .worker = worker,
                                                        .server = s->index});
}

/* ---- asynchronous ---- */

/* Applies a large push and reads its answer in one walk over the weights. */
static mst_status steps_push_large(mst_server *s, uint32_t worker, const mst_store_request *r, size_t size)
{
    mst_update u = steps_update_of(s);
    mst_body *body = mst_body_take(&s->bodies, size);
    if (body == NULL)
        return mst_fail_memory();
    mst_status st = mst_store_step(s->store, r, &u, body->data);
    if (st == MST_OK && s->co != NULL)
        st = mst_pace_applied(s, s->steps.applied, &r, 1);
    if (st != MST_OK || s->workers[worker].peer == MST_PEER_NONE) {
        mst_body_release(&s->bodies, body);
        return st;
    }
    return mst_answer_body(s, worker, r, 0, body, size);
}

static mst_status steps_push_in_parts(mst_server *s, uint32_t worker, const mst_store_request *r)
{
    mst_update u = steps_update_of(s);
    TRY(steps_apply_and_send(s, &r, 1, &u));
    if (s->co != NULL)
        TRY(mst_pace_applied(s, s->steps.applied, &r, 1));
    return mst_answer_rest(s, worker, r, 0);
}

/* With copies: the answer leaves when the partner has copied the push. */
static mst_status steps_push_copied(mst_server *s, uint32_t worker, const mst_store_request *r)
{
    mst_server_worker *w = &s->workers[worker];
    mst_update u = steps_update_of(s);
    if (w->n_deferred == MST_LISTS)
        return mst_fail(MST_EPEER, "more than %d requests in flight", MST_LISTS);
    TRY(mst_replica_before(s, &r, 1));
    TRY(mst_store_apply(s->store, &r, 1, &u));
    w->deltas[w->n_deferred] = s->replica.n_sent + 1;
    w->deferred[w->n_deferred++] = *r;
    if (s->co != NULL)
        TRY(mst_pace_applied(s, s->steps.applied, &r, 1));
    TRY(mst_replica_after(s));
    return mst_steps_release_deferred(s);
}

static mst_status steps_push_now(mst_server *s, uint32_t worker, const mst_store_request *r)
{
    mst_server_worker *w = &s->workers[worker];
    size_t size = r->pulled != NULL ? mst_store_reply_size(s->store, r) : 0;
    w->pushes++;
    steps_advance_to(s, s->steps.applied + 1);
    mst_span_steps(1, r->head.rows);
    if (s->replica.on)
        return steps_push_copied(s, worker, r);
    if (mst_answer_in_parts(r) && s->options.mode == MST_MODE_ASYNC)
        return steps_push_in_parts(s, worker, r);
    if (size > MST_ANSWER_SMALL && s->options.mode == MST_MODE_ASYNC)
        return steps_push_large(s, worker, r, size);
    mst_update u = steps_update_of(s);
    TRY(mst_store_apply(s->store, &r, 1, &u));
    if (s->co != NULL)
        TRY(mst_pace_applied(s, s->steps.applied, &r, 1));
    if (s->co != NULL && mst_pace_ahead(s, worker)) {
        if (w->n_deferred == MST_LISTS)
            return mst_fail(MST_EPEER, "more than %d requests in flight", MST_LISTS);
        w->deltas[w->n_deferred] = 0;
        w->deferred[w->n_deferred++] = *r;
        return MST_OK;
    }
    TRY(mst_answer(s, worker, r, 0));
    return s->co != NULL ? mst_steps_release_deferred(s) : MST_OK;
}

mst_status mst_steps_release_deferred(mst_server *s)
{
    if (s->options.mode != MST_MODE_SSP && !s->replica.on)
        return MST_OK;
    for (uint32_t i = 0; i < s->options.n_workers; i++) {
        mst_server_worker *w = &s->workers[i];
        uint32_t n = 0;
        if (w->n_deferred == 0 || (s->co != NULL && mst_pace_ahead(s, i)))
            continue;
        while (n < w->n_deferred && !mst_replica_waits_for(&s->replica, w->deltas[n]))
            TRY(mst_answer(s, i, &w->deferred[n++], 0));
        w->n_deferred -= n;
        memmove(w->deferred, w->deferred + n, w->n_deferred * sizeof *w->deferred);
        memmove(w->deltas, w->deltas + n, w->n_deferred * sizeof *w->deltas);
    }
    return MST_OK;
}

/* ---- synchronous ---- */

static void steps_settle(mst_server *s, uint32_t worker)
{
    mst_server_worker *w = &s->workers[worker];
    w->pending = w->orphan = w->applied = false;
    mst_body_release(&s->bodies, w->body);
    mst_body_release(&s->bodies, w->values);
    w->body = w->values = NULL;
}

/* Without a quorum: whether all pushes have arrived. */
static bool steps_all_here(const mst_server *s, uint64_t step)
{
    for (uint32_t i = 0; i < s->options.n_workers; i++) {
        const mst_server_worker *w = &s->workers[i];
        if (w->undecided || (!mst_steps_waits_for(w, step) && !w->exhausted))
            return false;
    }
    return true;
}

static mst_status steps_add_close(mst_server *s, const mst_step_close *close)
{
    mst_server_steps *steps = &s->steps;
    if (!mst_grow(&steps->closes, &steps->close_capacity, steps->n_closes + 1, sizeof *steps->closes))
        return mst_fail_memory();
    steps->closes[steps->n_closes++] = *close;
    return MST_OK;
}

mst_status mst_steps_close(mst_server *s, const mst_message *m, const uint64_t *workers)
{
    mst_step_close close = {.step = m->step};
    memcpy(close.workers, workers, sizeof close.workers);
    TRY(steps_add_close(s, &close));
    return mst_steps_try_close(s);
}

/* The coordinator with a quorum: closes the step for all servers once enough pushes have arrived. At the end
 * of the run it counts none, so that all servers drop the pushes that are on their way. */
static mst_status steps_close_with_quorum(mst_server *s, uint64_t step)
{
    mst_step_close close = {.step = step};
    if (!mst_rows_at_limit(s) && !mst_pace_quorum_reached(s, step, &close))
        return MST_OK;
    mst_message m = {.type = MST_PS_CLOSE, .step = step};
    mst_piece piece = {close.workers, sizeof close.workers};
    TRY(mst_roster_send(s, &m, &piece));
    return steps_add_close(s, &close);
}

/* Drops the pushes that the coordinator has left out of a step. */
static mst_status steps_drop_late(mst_server *s, uint64_t step, const uint64_t *workers)
{
    for (uint32_t i = 0; i < s->options.n_workers; i++) {
        mst_server_worker *w = &s->workers[i];
        if (!w->pending || w->exhausted || w->label > step || (workers != NULL && mst_bit(workers, i)))
            continue;
        if (s->co != NULL)
            mst_pace_dropped(s, i, &w->request);
        if (!w->orphan)
            TRY(mst_answer(s, i, &w->request, MST_VALUES_DROPPED));
        steps_settle(s, i);
    }
    return MST_OK;
}

/* A push that the coordinator counts does not arrive, because its worker is lost: the job rolls back. */
static void steps_report_lack(mst_server *s, uint32_t worker)
{
    if (!s->steps.lacks)
        (void)mst_ps_send(s->net, s->servers[0],
                          &(mst_message){.type = MST_PS_GONE, .flags = MST_GONE_LACKS, .count = worker});
    s->steps.lacks = true;
}

/* Whether all pushes that the coordinator counts for the next step have arrived; false if it counts none. A
 * worker that has skipped the step here is dropped. */
static bool steps_decided_here(mst_server *s, uint64_t step, mst_step_close *close)
{
    bool any = false;
    if (s->steps.n_closes == 0 || s->steps.closes[0].step != step)
        return false;
    for (uint32_t i = 0; i < s->options.n_workers; i++) {
        mst_server_worker *w = &s->workers[i];
        any |= mst_bit(s->steps.closes[0].workers, i);
        if (!mst_bit(s->steps.closes[0].workers, i) || mst_steps_waits_for(w, step))
            continue;
        if (!w->member && w->drain_ns == 0)
            steps_report_lack(s, i);
        if (w->pending && w->label > step)
            w->fault = "it has not pushed for a step that the coordinator counts its push for";
        return false;
    }
    *close = s->steps.closes[0];
    return any;
}

/* Answers the pushes of the last step. */
static mst_status steps_answer(mst_server *s)
{
    uint64_t step = s->steps.applied;
    s->steps.unanswered = false;
    TRY(mst_replica_report(s, step));
    for (uint32_t i = s->options.n_workers;
         i-- > 0;) { /* worker 0 last: it is often on the host of server 0 */
        if (!s->workers[i].applied)
            continue;
        s->workers[i].applied = false;
        if (!s->workers[i].orphan)
            TRY(mst_answer_rest(s, i, &s->workers[i].request, 0));
        steps_settle(s, i);
    }
    TRY(mst_steps_release_held(s));
    return steps_drop_late(s, step, NULL);
}

mst_status mst_steps_copied(mst_server *s)
{
    if (!mst_is_sync(s))
        return mst_steps_release_deferred(s);
    if (!s->steps.unanswered || mst_replica_waits(&s->replica))
        return MST_OK;
    TRY(steps_answer(s));
    return mst_steps_try_close(s);
}

static mst_status steps_close_step(mst_server *s, uint64_t step, const uint64_t *workers)
{
    const mst_store_request *requests[MST_WORKER_MAX];
    uint32_t n = 0;
    uint64_t rows = 0;
    mst_span_step(step);
    for (uint32_t i = 0; i < s->options.n_workers; i++) {
        mst_server_worker *w = &s->workers[i];
        if ((workers != NULL && !mst_bit(workers, i)) || !mst_steps_waits_for(w, step))
            continue;
        requests[n++] = &w->request;
        w->applied = true;
        steps_trace_push(s, i, step);
        rows += w->request.head.rows;
        s->steps.set_hash = (s->steps.set_hash ^ step * 1031 ^ i) * 0x9e3779b97f4a7c15ull;
    }
    TRY(mst_replica_before(s, requests, n));
    steps_advance_to(s, step);
    mst_span_steps(1, rows);
    mst_update u = steps_update_of(s);
    TRY(steps_apply_and_send(s, requests, n, &u));
    s->steps.unanswered = true;
    if (s->co != NULL)
        TRY(mst_pace_applied(s, step, requests, n));
    TRY(mst_replica_after(s));
    TRY(mst_cut_try(s));
    return mst_replica_waits(&s->replica) ? MST_OK : steps_answer(s);
}

/* sync on streams: if no worker has rows left, the next epoch begins. */
static mst_status steps_end_epoch(mst_server *s)
{
    uint32_t exhausted = 0;
    for (uint32_t i = 0; i < s->options.n_workers; i++) {
        const mst_server_worker *w = &s->workers[i];
        if (!w->exhausted && !w->gone && !(mst_has_quorum(s) && w->peer == MST_PEER_NONE))
            return MST_OK;
        exhausted += w->exhausted && !w->gone;
    }
    if (exhausted == 0)
        return MST_OK;
    if (s->co != NULL)
        TRY(mst_rows_epoch_over(s));
    for (uint32_t i = 0; i < s->options.n_workers; i++) {
        mst_server_worker *w = &s->workers[i];
        if (!w->exhausted)
            continue;
        w->exhausted = false;
        TRY(mst_answer(s, i, &w->request, 0));
        steps_settle(s, i);
    }
    return MST_OK;
}

/* sparse_async: updates the keys of the pushes that wait for the step, one push after the other. */
static mst_status steps_update_keys(mst_server *s, uint64_t step)
{
    mst_update u = mst_optimizer_update(s->model.optimizer, step);
    for (uint32_t i = 0; i < s->options.n_workers; i++) {
        mst_server_worker *w = &s->workers[i];
        const mst_store_request *r = &w->request;
        if (!mst_steps_waits_for(w, step) || w->keys_step == step)
            continue;
        TRY(mst_store_apply_piece(s->store, &r, 1, &u, MST_STORE_END, UINT64_MAX));
        w->keys_step = step;
    }
    return MST_OK;
}

mst_status mst_steps_try_close(mst_server *s)
{
    for (;;) {
        uint64_t step = s->steps.applied + 1;
        mst_step_close close;
        bool any = false;
        if (mst_cut_awaited(s) || s->cut.holds || s->steps.unanswered)
            return MST_OK;
        for (uint32_t i = 0; i < s->options.n_workers; i++)
            any |= mst_steps_waits_for(&s->workers[i], step);
        if (any && s->options.sparse_async)
            TRY(steps_update_keys(s, step));
        if (!mst_has_quorum(s)) {
            if (!any || !steps_all_here(s, step) || (s->co != NULL && !mst_takeover_may_apply(s, step)))
                break;
            TRY(steps_close_step(s, step, NULL));
            continue;
        }
        if (s->co != NULL && s->steps.n_closes == 0)
            TRY(steps_close_with_quorum(s, step));
        if (s->steps.n_closes > 0)
            TRY(steps_drop_late(s, s->steps.closes[0].step, s->steps.closes[0].workers));
        if (!steps_decided_here(s, step, &close))
            break;
        s->steps.n_closes--;
        memmove(s->steps.closes, s->steps.closes + 1, s->steps.n_closes * sizeof *s->steps.closes);
        TRY(steps_close_step(s, step, close.workers));
    }
    return steps_end_epoch(s);
}

static mst_status steps_push_later(mst_server *s, uint32_t worker, const mst_message *m,
                                   const mst_store_request *r, mst_body **body, mst_body **values)
{
    mst_server_worker *w = &s->workers[worker];
    if (w->pending)
        return mst_fail(MST_EPEER, "a push for step %" PRIu64 " while that for step %" PRIu64 " is waiting",
                        m->step, w->label);
    /* with a quorum a worker may be late, and with several servers it may know of steps before this one */
    bool exhausted = (r->flags & MST_STEP_EXHAUSTED) != 0, late = !exhausted && m->step <= s->steps.applied,
         early = !exhausted && m->step > s->steps.applied + 1;
    if (mst_has_quorum(s) ? early && s->co != NULL : late || early)
        return mst_fail(MST_EPEER, "a push for step %" PRIu64 ", but %" PRIu64 " steps are done", m->step,
                        s->steps.applied);
    if (late) {
        if (s->co != NULL)
            mst_pace_dropped(s, worker, r);
        return mst_answer(s, worker, r, MST_VALUES_DROPPED);
    }
    w->pending = true;
    w->exhausted = exhausted;
    w->label = m->step;
    w->request = *r;
    w->body = *body;
    w->values = *values;
    *body = *values = NULL;
    if (s->co != NULL)
        mst_pace_arrived(s, worker, steps_all_here(s, m->step));
    return mst_steps_try_close(s);
}

/* ---- messages ---- */

/* Fails if a push has more rows than any work item has. */
static mst_status steps_check_rows(const mst_server *s, const mst_store_request *r)
{
    uint32_t most = s->options.batch > s->options.global_batch ? s->options.batch : s->options.global_batch;
    if (r->head.rows > most)
        return mst_fail(MST_EPEER, "a push of %" PRIu32 " rows; the limit is %" PRIu32, r->head.rows, most);
    if (s->co != NULL && r->flags & MST_STEP_EXHAUSTED && !mst_rows_are_streams(s))
        return mst_fail(MST_EPEER, "a push that ends an epoch; only the coordinator ends epochs");
    return MST_OK;
}

/* A push whose worker declares it not finite: its rows are used up and it has no effect. */
static mst_status steps_take_nan(mst_server *s, uint32_t worker, const mst_message *m, mst_store_request *r)
{
    mst_server_worker *w = &s->workers[worker];
    uint64_t now = mst_now_ns();
    char step[MST_FIGURE_SIZE];
    mst_figure_grouped(mst_is_sync(s) ? m->step : s->steps.applied + 1, step);
    w->n_nan++;
    if (s->options.on_nan == MST_ON_NAN_DROP)
        return mst_fail(MST_EPEER, "a gradient with NaN or infinite values for step %s", step);
    if (w->n_nan >= MST_NAN_MAX && s->co != NULL) {
        mst_server_fail(s, mst_fail(MST_EINPUT,
                                    "worker %" PRIu32 " computed %d gradients with NaN or infinite values in "
                                    "a row, the last for step %s; " MST_NAN_ADVICE,
                                    worker, MST_NAN_MAX, step));
        return MST_OK;
    }
    if (s->co != NULL) {
        if (s->steps.nan_ns == 0 || now - s->steps.nan_ns >= MST_S)
            mst_warn("worker %" PRIu32
                     " computed a gradient with NaN or infinite values for step %s; its push does not count",
                     worker, step);
        s->steps.nan_ns = now;
        mst_pace_dropped(s, worker, r);
    }
    r->head.rows = r->head.correct = 0;
    r->head.loss = r->head.weight = 0;
    return MST_OK;
}

static mst_status steps_take_step(mst_server *s, uint32_t worker, const mst_message *m, mst_body **body,
                                  mst_staged *staged)
{
    mst_store_request r;
    const mst_store_parts *parts = staged->body != NULL ? &staged->parts : NULL;
    uint64_t start = mst_trace_now();
    if (!mst_is_sync(s) && m->flags & MST_STEP_PUSH)
        mst_span_step(m->step);
    if (mst_store_read(s->store, worker, m, (*body)->data, parts, parts != NULL ? staged->body->data : NULL,
                       &r) != MST_OK)
        return mst_fail(MST_EPEER, "%s", mst_error_text());
    mst_trace_op("decode", start, (mst_trace_output){.bytes = m->size});
    uint64_t size = r.pulled != NULL ? mst_store_reply_size(s->store, &r) : 0;
    if (size > s->workers[worker].largest)
        s->workers[worker].largest = size;
    if (!(m->flags & MST_STEP_PUSH))
        return mst_answer(s, worker, &r, 0);
    TRY(steps_check_rows(s, &r));
    if (r.nan)
        TRY(steps_take_nan(s, worker, m, &r));
    else
        s->workers[worker].n_nan = 0;
    if (s->over)
        return MST_OK;
    if (r.nan && (!mst_is_sync(s) || mst_has_quorum(s)))
        return mst_answer(s, worker, &r, MST_VALUES_DROPPED);
    if (mst_is_sync(s))
        return steps_push_later(s, worker, m, &r, body, &staged->body);
    steps_trace_push(s, worker, m->step);
    return steps_push_now(s, worker, &r);
}

static mst_status steps_hold_step(mst_server *s, uint32_t worker, const mst_message *m, mst_body *body,
                                  mst_staged staged)
{
    if (s->workers[worker].n_held == s->options.n_requests)
        return mst_fail(MST_EPEER, "more than %" PRIu32 " requests in flight", s->options.n_requests);
    mst_held_step *held = mst_zalloc(sizeof *held);
    if (held == NULL)
        return mst_fail_memory();
    s->workers[worker].n_held++;
    *held = (mst_held_step){.worker = worker, .m = *m, .body = body, .staged = staged};
    *s->steps.held_tail = held;
    s->steps.held_tail = &held->next;
    return MST_OK;
}

mst_status mst_steps_take(mst_server *s, uint32_t worker, const mst_message *m, mst_body *body,
                          mst_staged staged)
{
    mst_status st;
    bool early = mst_is_sync(s) && !(m->flags & MST_STEP_PUSH) && m->step > s->steps.applied;
    bool hold = early || (!mst_is_sync(s) && (s->cut.holds || s->workers[worker].marker > s->cut.taken));
    if (body == NULL)
        st = mst_fail(MST_EPEER, "STEP without a body");
    else
        st = hold ? steps_hold_step(s, worker, m, body, staged)
                  : steps_take_step(s, worker, m, &body, &staged);
    if (st == MST_OK && hold)
        return MST_OK;
    mst_body_release(&s->bodies, body);
    mst_body_release(&s->bodies, staged.body);
    return st;
}

static void steps_drop_held(mst_server *s, mst_held_step *held)
{
    s->workers[held->worker].n_held--;
    mst_body_release(&s->bodies, held->body);
    mst_body_release(&s->bodies, held->staged.body);
    mst_free(held);
}

mst_status mst_steps_release_held(mst_server *s)
{
    mst_held_step *held = s->steps.held;
    mst_status st = MST_OK;
    s->steps.held = NULL;
    s->steps.held_tail = &s->steps.held;
    while (held != NULL) {
        mst_held_step *next = held->next;
        mst_status one = MST_OK;
        if (st == MST_OK && s->workers[held->worker].peer != MST_PEER_NONE) {
            one = mst_steps_take(s, held->worker, &held->m, held->body, held->staged);
            held->body = held->staged.body = NULL; /* consumed */
        }
        if (one == MST_EPEER)
            mst_server_refuse_worker(s, held->worker, mst_error_text());
        else if (one != MST_OK)
            st = one;
        steps_drop_held(s, held);
        held = next;
    }
    return st;
}

mst_status mst_steps_part_body(mst_server *s, uint32_t peer, const mst_message *m, void **out)
{
    mst_server_peer *p = mst_peer_table_find(&s->peers, peer);
    TRY(mst_store_part(s->store, p->index, m, &p->staged.parts, &p->next));
    size_t size = mst_float_size(p->next.wire);
    if (p->staged.body == NULL)
        p->staged.body = mst_body_take(&s->bodies, (size_t)p->next.floats * size);
    if (p->staged.body == NULL)
        return mst_fail_memory();
    *out = p->staged.body->data + p->next.from * size;
    return MST_OK;
}

void mst_steps_forget(mst_server *s, uint32_t worker)
{
    mst_server_worker *w = &s->workers[worker];
    w->n_deferred = 0;
    if (w->pending && (w->exhausted || (mst_has_quorum(s) && w->gone && w->label >= w->gone_from)))
        steps_settle(s, worker);
    w->orphan = w->pending;
    w->request.pulled = NULL;
    w->exhausted = false;
    for (mst_held_step **at = &s->steps.held; *at != NULL;) {
        mst_held_step *held = *at;
        if (held->worker != worker) {
            at = &held->next;
            continue;
        }
        *at = held->next;
        steps_drop_held(s, held);
    }
    s->steps.held_tail = &s->steps.held;
    while (*s->steps.held_tail != NULL)
        s->steps.held_tail = &(*s->steps.held_tail)->next;
    if (!w->pending && s->store != NULL)
        mst_store_forget(s->store, worker);
}

mst_status mst_steps_decide(mst_server *s, uint32_t worker, uint64_t step)
{
    mst_server_worker *w = &s->workers[worker];
    w->undecided = false;
    if (w->pending && w->label > step)
        steps_settle(s, worker);
    if (!w->pending)
        mst_store_forget(s->store, worker);
    return mst_steps_try_close(s);
}

void mst_steps_reset(mst_server *s)
{
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        steps_settle(s, w);
    while (s->steps.held != NULL) {
        mst_held_step *held = s->steps.held;
        s->steps.held = held->next;
        steps_drop_held(s, held);
    }
    s->steps.held_tail = &s->steps.held;
    s->steps.unanswered = false;
}

void mst_steps_fini(mst_server *s)
{
    if (s->workers == NULL) /* nothing has arrived */
        return;
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        mst_body_release(&s->bodies, s->workers[w].body);
        mst_body_release(&s->bodies, s->workers[w].values);
    }
    while (s->steps.held != NULL) {
        mst_held_step *held = s->steps.held;
        s->steps.held = held->next;
        steps_drop_held(s, held);
    }
    mst_free(s->steps.closes);
}
