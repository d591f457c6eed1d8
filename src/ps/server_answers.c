/* A server's answers to pulls; contract in server_answers.h. */
#include "observe/trace_file.h"
#include "ps/server_impl.h"

#define OTHERS (1u << 20) /* bytes of other messages that may wait for a worker */
#define UNREAD "it requests weights and does not read them"

bool mst_answer_has_room(mst_server *s, uint32_t worker, size_t size)
{
    mst_server_worker *w = &s->workers[worker];
    mst_net_stats stats;
    uint64_t most = s->options.n_requests * w->largest + OTHERS;
    if (s->store != NULL && s->cut.chief == worker)
        most += mst_store_eval_size(s->store);
    mst_net_stats_get(s->net, w->peer, &stats);
    if (stats.queued + size <= most)
        return true;
    w->fault = UNREAD;
    return false;
}

mst_status mst_answer_body(mst_server *s, uint32_t worker, const mst_store_request *r, uint32_t flags,
                           mst_body *body, size_t size)
{
    mst_message m = {.type = MST_PS_VALUES, .flags = flags, .request = r->request, .step = s->steps.applied};
    mst_piece piece = {body->data, size};
    uint32_t peer = s->workers[worker].peer;
    if (!mst_answer_has_room(s, worker, size)) {
        if (body != s->reply)
            mst_body_release(&s->bodies, body);
        return MST_OK;
    }
    uint64_t start = mst_trace_now();
    mst_status st = body == s->reply ? mst_net_send(s->net, peer, &m, &piece, size > 0, NULL)
                                     : mst_body_lend(&s->bodies, peer, &m, body, size);
    mst_trace_op("send", start, (mst_trace_output){.bytes = size});
    mst_records_trace_queue(s);
    if (st == MST_ETIMEOUT)
        s->workers[worker].fault = UNREAD;
    return mst_unless_gone(st);
}

bool mst_answer_in_parts(const mst_store_request *r)
{
    return r->pulled != NULL && r->head.part_floats != 0 &&
           mst_key_list_range_floats(r->pulled) > r->head.part_floats;
}

/* Sends a part of an answer. Without a quorum the weights do not change before this worker pushes again, and
 * for that it must have the answer: they are then sent from the store itself. */
static mst_status answers_send_part(mst_server *s, uint32_t worker, const mst_store_request *r,
                                    uint64_t first, uint32_t count)
{
    mst_message m = {.type = MST_PS_WEIGHTS, .request = r->request, .count = (uint32_t)first};
    mst_piece pieces[MST_PIECE_MAX];
    uint32_t peer = s->workers[worker].peer, n = 0;
    mst_status st;
    m.step = s->steps.applied;
    if (!mst_answer_has_room(s, worker, count * mst_float_size(r->wire)))
        return MST_OK;
    if (mst_is_sync(s) && !mst_has_quorum(s))
        n = mst_store_reply_pieces(s->store, r, first, count, pieces, MST_PIECE_MAX);
    uint64_t start = mst_trace_now();
    if (n > 0) {
        st = mst_net_send(s->net, peer, &m, pieces, n, &s->model);
    } else {
        size_t size = count * mst_float_size(r->wire);
        mst_body *body = mst_body_take(&s->bodies, size);
        if (body == NULL)
            return mst_fail_memory();
        mst_store_reply_part(s->store, r, first, count, body->data);
        start = mst_trace_now();
        st = mst_body_lend(&s->bodies, peer, &m, body, size);
    }
    mst_trace_op("send", start, (mst_trace_output){.bytes = count * mst_float_size(r->wire)});
    mst_records_trace_queue(s);
    if (st == MST_ETIMEOUT)
        s->workers[worker].fault = UNREAD;
    return mst_unless_gone(st);
}

mst_status mst_answer_parts(mst_server *s, uint32_t worker, const mst_store_request *r, uint64_t at)
{
    mst_server_worker *w = &s->workers[worker];
    if (!mst_answer_in_parts(r) || w->peer == MST_PEER_NONE || w->fault != NULL)
        return MST_OK;
    uint32_t part = r->head.part_floats;
    uint64_t there = mst_key_list_below(r->pulled, at), all = mst_key_list_range_floats(r->pulled);
    mst_phase before = mst_span_enter(MST_PHASE_SERVE);
    while (w->answered + part <= there && w->answered + part < all && w->fault == NULL) {
        TRY(answers_send_part(s, worker, r, w->answered, part));
        w->answered += part;
    }
    mst_span_enter(before);
    return MST_OK;
}

static mst_status answers_gather_rest(mst_server *s, uint32_t worker, const mst_store_request *r,
                                      uint32_t flags)
{
    mst_work work;
    uint64_t left = s->workers[worker].answered;
    size_t size = r->pulled != NULL ? mst_store_reply_size(s->store, r) - left * mst_float_size(r->wire) : 0;
    size_t whole = size;
    if (s->workers[worker].peer == MST_PEER_NONE)
        return MST_OK;
    if (s->co != NULL && mst_is_sync(s) && r->values != NULL && mst_rows_trailer(s, worker, &work)) {
        flags |= MST_VALUES_WORK;
        whole += MST_WORK_SIZE;
    }
    bool small = whole <= MST_ANSWER_SMALL;
    if (small && s->reply == NULL)
        s->reply = mst_body_take(&s->bodies, MST_ANSWER_SMALL);
    mst_body *body = small ? s->reply : mst_body_take(&s->bodies, whole);
    if (body == NULL)
        return mst_fail_memory();
    if (size > 0)
        mst_store_reply_rest(s->store, r, left, body->data);
    if (flags & MST_VALUES_WORK)
        mst_work_encode(&work, body->data + size);
    return mst_answer_body(s, worker, r, flags, body, whole);
}

mst_status mst_answer_rest(mst_server *s, uint32_t worker, const mst_store_request *r, uint32_t flags)
{
    mst_phase before = mst_span_enter(MST_PHASE_SERVE);
    mst_status st = answers_gather_rest(s, worker, r, flags);
    mst_span_enter(before);
    return st;
}

mst_status mst_answer(mst_server *s, uint32_t worker, const mst_store_request *r, uint32_t flags)
{
    s->workers[worker].answered = 0;
    TRY(mst_answer_parts(s, worker, r, UINT64_MAX));
    return mst_answer_rest(s, worker, r, flags);
}
