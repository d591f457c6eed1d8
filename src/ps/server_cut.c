/* Cuts on a server; contract in server_cut.h. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "ps/server_impl.h"

static mst_status cut_send_values(mst_server *s)
{
    uint32_t peer = s->cut.chief == UINT32_MAX ? MST_PEER_NONE : s->workers[s->cut.chief].peer;
    if (peer == MST_PEER_NONE)
        return MST_OK; /* the chief is lost; the coordinator names another */
    size_t size = mst_store_eval_size(s->store);
    mst_body *body = mst_body_take(&s->bodies, size > 0 ? size : 1);
    if (body == NULL)
        return mst_fail_memory();
    mst_store_eval_values(s->store, body->data);
    mst_message m = {.type = MST_PS_EVAL_VALUES, .count = s->cut.number, .step = s->steps.applied};
    return mst_unless_gone(mst_body_lend(&s->bodies, peer, &m, body, size));
}

static mst_status cut_take(mst_server *s)
{
    mst_server_cut *cut = &s->cut;
    cut->taken = cut->number;
    cut->holds |= (cut->flags & MST_CUT_HOLD) != 0;
    if (s->co != NULL)
        TRY(mst_cuts_taken(s));
    if (cut->flags & MST_CUT_EVAL)
        TRY(cut_send_values(s));
    if (cut->flags & MST_CUT_SAVE)
        TRY(mst_checkpoint_stream_begin(s, cut->number));
    return cut->holds ? MST_OK : mst_steps_release_held(s);
}

mst_status mst_cut_resume(mst_server *s)
{
    s->cut.holds = false;
    TRY(mst_steps_release_held(s));
    return mst_is_sync(s) ? mst_steps_try_close(s) : MST_OK;
}

mst_status mst_cut_try(mst_server *s)
{
    const mst_server_cut *cut = &s->cut;
    if (cut->number == cut->taken || (mst_is_sync(s) && s->steps.applied != cut->step))
        return MST_OK;
    for (uint32_t i = 0; !mst_is_sync(s) && i < s->options.n_workers; i++) {
        const mst_server_worker *w = &s->workers[i];
        if (mst_bit(cut->markers, i) && w->marker < cut->marked && w->member)
            return MST_OK;
    }
    return cut_take(s);
}

mst_status mst_cut_announced(mst_server *s, const mst_message *m, const uint64_t *markers)
{
    if (m->count <= s->cut.number)
        return mst_fail(MST_EPEER, "cut %" PRIu32 " after cut %" PRIu32, m->count, s->cut.number);
    s->cut.number = m->count;
    s->cut.flags = m->flags;
    s->cut.step = m->step;
    s->cut.marked = m->request != 0 && m->request < m->count ? m->request : m->count;
    memcpy(s->cut.markers, markers, sizeof s->cut.markers);
    return mst_cut_try(s);
}

static mst_status cut_not_announced(uint32_t number)
{
    return mst_fail(MST_EPEER, "MARKER of cut %" PRIu32 ", which was not announced", number);
}

mst_status mst_cut_marked(mst_server *s, uint32_t worker, const mst_message *m)
{
    mst_server_worker *w = &s->workers[worker];
    if (m->count <= w->marker)
        return mst_fail(MST_EPEER, "MARKER of cut %" PRIu32 " after that of cut %" PRIu32, m->count,
                        w->marker);
    if (m->count > s->cut.number && s->co != NULL)
        return cut_not_announced(m->count);
    w->marker = m->count;
    w->marker_step = m->step;
    w->marker_ns = mst_now_ns();
    return mst_cut_try(s);
}

/* Whether the worker has marked a cut that the coordinator has not announced to this server. */
static bool cut_is_early(const mst_server *s, const mst_server_worker *w)
{
    return w->peer != MST_PEER_NONE && w->marker > s->cut.number;
}

bool mst_cut_awaited(const mst_server *s)
{
    for (uint32_t i = 0; s->co == NULL && i < s->options.n_workers; i++)
        if (cut_is_early(s, &s->workers[i]) && s->workers[i].marker_step == s->steps.applied)
            return true;
    return false;
}

void mst_cut_check_markers(mst_server *s)
{
    uint64_t now = mst_now_ns();
    for (uint32_t i = 0; s->co == NULL && !s->over && i < s->options.n_workers; i++) {
        const mst_server_worker *w = &s->workers[i];
        if (!cut_is_early(s, w) || now - w->marker_ns <= s->options.net.peer_timeout_ms * MST_MS)
            continue;
        (void)cut_not_announced(w->marker);
        mst_server_refuse_worker(s, i, mst_error_text());
    }
}

void mst_cut_forget(mst_server *s, uint32_t worker)
{
    if (s->cut.chief == worker)
        s->cut.chief = UINT32_MAX;
}

mst_status mst_cut_eval_list(mst_server *s, uint32_t worker, const mst_message *m, const void *body)
{
    uint64_t pass = mst_pass_of(s->pass_key, worker, s->workers[worker].incarnation);
    if (pass == 0 || m->step != pass)
        return mst_fail(MST_EPEER, "EVAL_LIST, but another worker evaluates");
    if (s->cut.chief == worker)
        return mst_fail(MST_EPEER, "a second EVAL_LIST");
    if (body == NULL)
        return mst_fail(MST_EPEER, "EVAL_LIST without a body");
    if (mst_store_eval_list(s->store, m, body) != MST_OK)
        return mst_fail(MST_EPEER, "%s", mst_error_text());
    s->cut.chief = worker;
    if (s->co != NULL)
        return mst_cuts_listed(s, worker);
    return mst_unless_gone(
        mst_ps_send(s->net, s->servers[0],
                    &(mst_message){.type = MST_PS_READY, .flags = MST_READY_EVAL_LIST, .count = worker}));
}
