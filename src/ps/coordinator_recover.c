/* Restored floats, and a lost server of an asynchronous job (--recover share): only its share of the weights
 * returns to the last checkpoint, or none if the process of the server still has it; contract in
 * coordinator_recover.h.
 *
 * The workers lose the server too, and join again: their leases return, and no worker is welcomed before the
 * successor has its floats. No cut begins meanwhile. An evaluation that is under way is repeated. A
 * checkpoint that is under way needs the lost server, so that the whole job rolls back instead. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "ps/coordinator_impl.h"
#include "run/run_dir.h"

#define PIECE_FLOATS (1u << 18) /* restored floats: 1 MB */
#define WINDOW       4          /* pieces in flight to one server */

/* ---- restored floats ---- */

mst_status mst_recover_own(mst_server *s)
{
    mst_params *params = s->model.params;
    mst_float_cursor cursor = {0};
    mst_float_piece p;
    while (mst_float_cursor_next(&cursor, &s->owned, params, UINT64_MAX, &p))
        TRY(s->hooks->checkpoint->read(s->hooks->arg, p.slot, p.first, p.count,
                                       (p.slot == 0 ? params->w : params->slots[p.slot - 1]) + p.first));
    return MST_OK;
}

mst_status mst_recover_send(mst_server *s, uint32_t server)
{
    mst_join_server *r = &s->co->joins.servers[server];
    mst_float_piece p;
    while (r->in_flight < WINDOW &&
           mst_float_cursor_next(&r->next, &r->owned, s->model.params, PIECE_FLOATS, &p)) {
        mst_body *piece = mst_body_take(&s->bodies, PIECE_FLOATS * sizeof(float));
        if (piece == NULL)
            return mst_fail_memory();
        mst_message m = {.type = MST_PS_FLOATS, .count = p.slot, .step = p.first};
        mst_status st =
            s->hooks->checkpoint->read(s->hooks->arg, p.slot, p.first, p.count, (float *)piece->data);
        if (st != MST_OK) {
            mst_body_release(&s->bodies, piece);
            return st;
        }
        piece->restores = server + 1;
        TRY(mst_unless_gone(
            mst_body_lend(&s->bodies, s->servers[server], &m, piece, p.count * sizeof(float))));
        r->in_flight++;
    }
    return MST_OK;
}

void mst_restore_sent(mst_server *s, uint32_t server)
{
    s->co->joins.servers[server].in_flight--;
    mst_status st = mst_recover_send(s, server);
    if (st != MST_OK)
        mst_server_fail(s, st);
}

/* ---- a lost server ---- */

bool mst_recover_can(const mst_server *s)
{
    const mst_coordinator *co = s->co;
    return mst_heals(s) && s->options.recover_share && !s->replica.on && !mst_is_sync(s) &&
           co->phase == MST_JOB_RUN && !co->cuts.saving && s->cut.number == s->cut.taken;
}

bool mst_recover_under_way(const mst_server *s)
{
    return s->co->recover.since_ns != 0;
}

bool mst_recover_awaits_workers(const mst_server *s)
{
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        if (s->co->members[w].returns)
            return true;
    return false;
}

/* The lost server reports no worker any more: it counts as having reported all of them. */
static void recover_settle_workers(mst_server *s, uint32_t server)
{
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        mst_members_count_report(s, server, w);
}

void mst_recover_begin(mst_server *s, uint32_t server, const mst_net_loss *loss)
{
    mst_coordinator *co = s->co;
    mst_join_server *r = &co->joins.servers[server];
    mst_free(r->owned.extents);
    co->recover.since_ns = mst_now_ns();
    *r = (mst_join_server){
        .lost_ns = co->recover.since_ns, .lost_by = loss->reason, .silent_s = loss->silent_s};
    mst_warn("%s; waiting up to %" PRIu32 " s for server %" PRIu32
             " or its successor; the other servers keep their weights",
             loss->error.text, s->options.start_timeout_ms / 1000, server);
    if (co->cuts.evaluating) {
        mst_cuts_abandon_evaluation(s);
        co->cuts.eval_due = true;
    }
    mst_status st = mst_cuts_resume(s); /* the successor of the server does not wait */
    if (st != MST_OK) {
        mst_server_fail(s, st);
        return;
    }
    recover_settle_workers(s, server);
    /* they lose the server too: they join again without waiting for the reason */
    mst_error again = {.code = MST_EAGAIN};
    snprintf(again.text, sizeof again.text, "%s", loss->error.text);
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        if (s->workers[w].peer != MST_PEER_NONE) {
            co->members[w].returns = true;
            (void)mst_ps_send_error(s->net, s->workers[w].peer, MST_PS_END, &again);
        }
}

void mst_recover_joined(mst_server *s, uint32_t server, const json_t *kept)
{
    mst_join_server *r = &s->co->joins.servers[server];
    const char *key = json_string_value(json_object_get(kept, "key"));
    double away_s = mst_seconds_since(r->lost_ns);
    r->keeps = key != NULL && strcmp(key, s->pass_key) == 0;
    if (!r->keeps)
        return;
    if (r->lost_by == MST_NET_STOPPED)
        mst_warn("server 0 was silent for %.1f s; server %" PRIu32 " is back and keeps its weights",
                 r->silent_s, server);
    else if (r->silent_s > 0)
        mst_warn("server %" PRIu32 " was silent for %.1f s and is back; it keeps its weights", server,
                 r->silent_s + away_s);
    else
        mst_warn("server %" PRIu32 " was disconnected for %.1f s and is back; it keeps its weights", server,
                 away_s);
}

mst_status mst_recover_open(mst_server *s, uint32_t server, bool *restore)
{
    char why[48];
    snprintf(why, sizeof why, "server %" PRIu32 " was started again", server);
    return s->hooks->checkpoint->reopen(s->hooks->arg, server, why, restore);
}

mst_status mst_recover_ready(mst_server *s, uint32_t server)
{
    mst_coordinator *co = s->co;
    if (!mst_recover_under_way(s))
        return MST_OK;
    s->hooks->event(s->hooks->arg,
                    &(mst_server_event){.kind = MST_SERVER_JOIN, .role = MST_ROLE_SERVER, .index = server});
    for (uint32_t i = 0; i < s->options.n_servers; i++)
        if (!co->joins.servers[i].ready)
            return MST_OK;
    co->recover.since_ns = 0;
    s->hooks->event(s->hooks->arg, &(mst_server_event){.kind = MST_SERVER_RESTORED});
    return mst_coordinator_advance(s);
}

void mst_recover_check(mst_server *s)
{
    const mst_coordinator *co = s->co;
    char resume_hint[MST_ERROR_MAX / 2];
    if (!mst_recover_under_way(s) ||
        mst_now_ns() - co->recover.since_ns <= s->options.start_timeout_ms * MST_MS)
        return;
    uint32_t server = 0;
    while (server + 1 < s->options.n_servers && co->joins.servers[server].ready)
        server++;
    mst_run_resume_hint(co->start.run != NULL ? co->start.run : "RUN", resume_hint, sizeof resume_hint);
    mst_server_fail(s, mst_fail(MST_EPEER, "waited %" PRIu32 " s for a successor of server %" PRIu32 "; %s",
                                s->options.start_timeout_ms / 1000, server, resume_hint));
}
