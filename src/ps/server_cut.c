/* Cuts on a server; contract in server_cut.h. */
#include <string.h>

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
    if (s->co != NULL)
        TRY(mst_cuts_taken(s));
    if (cut->flags & MST_CUT_EVAL)
        TRY(cut_send_values(s));
    if (cut->flags & MST_CUT_SAVE)
        TRY(mst_checkpoint_stream_begin(s, cut->number));
    return mst_steps_release_held(s);
}

mst_status mst_cut_try(mst_server *s)
{
    const mst_server_cut *cut = &s->cut;
    if (cut->number == cut->taken || (mst_is_sync(s) && s->steps.applied != cut->step))
        return MST_OK;
    for (uint32_t i = 0; !mst_is_sync(s) && i < s->options.n_workers; i++) {
        const mst_server_worker *w = &s->workers[i];
        if (mst_bit(cut->markers, i) && w->marker < cut->number && w->peer != MST_PEER_NONE && !w->gone)
            return MST_OK;
    }
    return cut_take(s);
}

mst_status mst_cut_announced(mst_server *s, const mst_message *m, const uint64_t *markers)
{
    if (m->count > s->cut.number) {
        s->cut.number = m->count;
        s->cut.flags = m->flags;
        s->cut.step = m->step;
    }
    if (m->count == s->cut.number && markers != NULL)
        memcpy(s->cut.markers, markers, sizeof s->cut.markers);
    return mst_cut_try(s);
}

mst_status mst_cut_marked(mst_server *s, uint32_t worker, const mst_message *m)
{
    if (m->count > s->workers[worker].marker)
        s->workers[worker].marker = m->count;
    if (mst_is_sync(s))
        return mst_cut_announced(s, m, NULL);
    return mst_cut_try(s);
}

mst_status mst_cut_eval_list(mst_server *s, uint32_t worker, const mst_message *m, const void *body)
{
    if (mst_store_eval_list(s->store, m, body) != MST_OK)
        return mst_fail(MST_EPEER, "%s", mst_error_text());
    s->cut.chief = worker;
    if (s->co != NULL)
        return mst_cuts_listed(s, worker);
    return mst_unless_gone(
        mst_ps_send(s->net, s->servers[0],
                    &(mst_message){.type = MST_PS_READY, .flags = MST_READY_EVAL_LIST, .count = worker}));
}
