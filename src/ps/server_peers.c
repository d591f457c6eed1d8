/* A server's connections; contract in server_peers.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "ps/server_impl.h"

#define DRAIN_NS (1 * MST_S) /* for the last messages of a worker that is lost elsewhere to arrive */

static void peers_release(mst_server *s, mst_server_peer *p)
{
    mst_body_release(&s->bodies, p->incoming);
    mst_body_release(&s->bodies, p->staged.body);
}

void mst_server_peer_forget(mst_server *s, uint32_t peer)
{
    mst_server_peer *p = mst_peer_table_find(&s->peers, peer);
    if (p == NULL)
        return;
    mst_records_count(s, p);
    peers_release(s, p);
    mst_body_returned(&s->bodies, peer, NULL);
    mst_peer_table_remove(&s->peers, peer);
}

uint32_t mst_server_peer_index(const mst_server *s, uint32_t peer, mst_peer_kind kind)
{
    const mst_server_peer *p = mst_peer_table_find(&s->peers, peer);
    return p != NULL && p->kind == kind ? p->index : UINT32_MAX;
}

/* The coordinator has lost another server. */
static void peers_lose_server(mst_server *s, uint32_t server, const mst_net_loss *why)
{
    s->servers[server] = MST_PEER_NONE;
    if (s->replica.on && server == s->replica.partner)
        mst_replica_down(s);
    mst_members_server_lost(s, server, why);
}

/* A server connects whose predecessor is not reported as lost yet. */
static void peers_replace_server(mst_server *s, uint32_t server)
{
    char name[128];
    mst_net_loss why = {.reason = MST_NET_DIED, .error.code = MST_EPEER};
    uint32_t before = s->servers[server];
    if (before == MST_PEER_NONE)
        return;
    mst_net_name_of(s->net, before, name, sizeof name);
    snprintf(why.error.text, sizeof why.error.text, "%s has connected again", name);
    mst_net_drop(s->net, before, "this server has connected again");
    mst_server_peer_forget(s, before);
    peers_lose_server(s, server, &why);
}

/* The partner of a server that is not 0, whichever of them has connected. */
static mst_status peers_accept_partner(mst_server *s, uint32_t peer, uint32_t partner)
{
    uint32_t before = s->servers[partner];
    if (before != MST_PEER_NONE && before != peer) {
        mst_net_drop(s->net, before, "this server was started again");
        mst_server_peer_forget(s, before);
        mst_replica_down(s);
    }
    TRY(mst_peer_table_add(&s->peers, peer, MST_PEER_SERVER, partner));
    s->servers[partner] = peer;
    mst_replica_up(s);
    return MST_OK;
}

static mst_status peers_accept(mst_server *s, uint32_t peer, const mst_identity *who)
{
    bool worker = who->role == MST_ROLE_WORKER;
    uint32_t n = worker ? s->options.n_workers : s->options.n_servers;
    if (who->role != MST_ROLE_WORKER && who->role != MST_ROLE_SERVER)
        return mst_fail(MST_EPEER, "unexpected role %s", mst_role_name(who->role));
    if (who->index >= n)
        return mst_fail(MST_EUSAGE,
                        "%s %" PRIu32 " is not in the cluster of this server, which has %" PRIu32
                        " %ss (0 to %" PRIu32 ")",
                        mst_role_name(who->role), who->index, n, mst_role_name(who->role), n - 1);
    if (!worker && s->index != 0 && s->replica.on && who->index == s->replica.partner && who->index != 0)
        return peers_accept_partner(s, peer, who->index);
    if (!worker && (s->index != 0 || who->index == 0)) {
        if (who->index == 0 && peer == s->servers[0]) { /* the coordinator, which this server connected to */
            s->setup.up = true;
            if (s->options.observe != NULL)
                (void)mst_ps_clock_ask(&s->records.clock, s->net, peer);
            return mst_peer_table_add(&s->peers, peer, MST_PEER_SERVER, 0);
        }
        return mst_fail(MST_EUSAGE,
                        "server %" PRIu32 " is connected already, or connected to the wrong server",
                        who->index);
    }
    uint32_t *place = worker ? &s->workers[who->index].peer : &s->servers[who->index];
    if (!worker && mst_heals(s))
        peers_replace_server(s, who->index);
    if (worker && s->co != NULL)
        mst_members_end_guest(s, who->index);
    if (worker && *place != MST_PEER_NONE && s->workers[who->index].drain_ns != 0)
        mst_server_expel(s, who->index, "its successor has connected");
    if (*place != MST_PEER_NONE) {
        char name[128];
        mst_net_name_of(s->net, *place, name, sizeof name);
        return mst_fail(MST_EEXIST, "index %" PRIu32 " is taken by %s", who->index, name);
    }
    TRY(mst_peer_table_add(&s->peers, peer, worker ? MST_PEER_WORKER : MST_PEER_SERVER, who->index));
    *place = peer;
    if (worker) {
        s->workers[who->index].incarnation = who->incarnation;
        s->workers[who->index].up_ns = mst_now_ns();
    }
    mst_status st = s->index == 0 ? mst_members_up(s, peer) : MST_OK;
    if (st != MST_OK)
        *place = MST_PEER_NONE;
    else if (!worker && s->replica.on && who->index == s->replica.partner)
        mst_replica_up(s);
    return st;
}

void mst_server_refuse(mst_server *s, uint32_t peer, mst_status status)
{
    mst_error why;
    mst_error_save(&why, status);
    if (s->co != NULL) /* its END carries the code */
        (void)mst_ps_send_error(s->net, peer, MST_PS_END, &why);
    mst_net_drop(s->net, peer, why.text);
    mst_server_peer_forget(s, peer);
}

void mst_server_peer_up(void *arg, uint32_t peer, const mst_identity *who)
{
    mst_server *s = arg;
    mst_status st = peers_accept(s, peer, who);
    if (st != MST_OK)
        mst_server_refuse(s, peer, st);
}

mst_status mst_server_check_member(const mst_server *s, uint32_t peer, uint16_t type)
{
    static const bool needs[] = {
        [MST_PS_STEP - MST_NET_TYPES] = true,      [MST_PS_GRADIENT - MST_NET_TYPES] = true,
        [MST_PS_WANT - MST_NET_TYPES] = true,      [MST_PS_MARKER - MST_NET_TYPES] = true,
        [MST_PS_EVAL_LIST - MST_NET_TYPES] = true, [MST_PS_EVAL_RESULT - MST_NET_TYPES] = true,
    };
    uint32_t worker = mst_server_peer_index(s, peer, MST_PEER_WORKER);
    size_t at = (size_t)type - MST_NET_TYPES;
    if (worker == UINT32_MAX || at >= sizeof needs || !needs[at] || s->workers[worker].member)
        return MST_OK;
    return mst_fail(MST_EPEER, "%s, but it has not joined", mst_ps_type_name(type));
}

void mst_server_admit(mst_server *s, uint32_t worker)
{
    mst_server_worker *w = &s->workers[worker];
    w->member = true;
    w->gone = false;
    w->marker = s->cut.number; /* of the cuts so far it marks none */
}

/* A failed send is reported as the loss of the coordinator. */
void mst_server_report_gone(mst_server *s, uint32_t worker, uint32_t flags, const char *why)
{
    mst_piece piece = {why, strlen(why)};
    mst_message m = {.type = MST_PS_GONE, .flags = flags, .count = worker, .step = s->steps.applied};
    mst_server_worker *w = &s->workers[worker];
    if (!w->member)
        return;
    w->member = false;
    w->undecided = mst_has_slots(s);
    if (mst_steps_waits_for(w, s->steps.applied + 1))
        m.flags |= MST_GONE_PUSHED;
    (void)mst_net_send(s->net, s->servers[0], &m, &piece, piece.size > 0, NULL);
}

/* Whether --on-nan drop is why a worker is dropped. */
static bool peers_drop_nan(const mst_server *s, uint32_t worker)
{
    return s->options.on_nan == MST_ON_NAN_DROP && s->workers[worker].n_nan > 0;
}

/* A worker's connection is gone. fault: its invalid message, or NULL. */
static void peers_lose_worker(mst_server *s, uint32_t worker, const mst_net_loss *why, const char *fault)
{
    bool nan = peers_drop_nan(s, worker);
    s->workers[worker].peer = MST_PEER_NONE;
    s->workers[worker].drain_ns = 0;
    s->workers[worker].marker = 0;
    s->workers[worker].fault = NULL;
    s->workers[worker].n_nan = 0;
    s->workers[worker].largest = 0;
    mst_cut_forget(s, worker);
    if (s->co != NULL) {
        s->workers[worker].member = false;
        mst_members_lost(s, worker, why, nan);
        return;
    }
    mst_steps_forget(s, worker);
    uint32_t flags = (why->reason == MST_NET_SILENT ? MST_GONE_SILENT : 0) | (nan ? MST_GONE_NAN : 0);
    mst_server_report_gone(s, worker, flags | (fault != NULL ? MST_GONE_FAULT : 0),
                           fault != NULL ? fault : "");
    mst_status st = s->setup.ready ? mst_cut_try(s) : MST_OK;
    if (st == MST_OK && s->setup.ready && mst_is_sync(s))
        st = mst_steps_try_close(s);
    if (st != MST_OK)
        mst_server_fail(s, st);
}

/* Ends the process of a worker that has sent an invalid message: an END is final. */
void mst_server_end_faulty(mst_server *s, uint32_t peer, const char *why)
{
    mst_error end = {.code = MST_EPEER};
    if (s->co == NULL)
        return; /* the coordinator is informed with GONE */
    snprintf(end.text, sizeof end.text, "server 0 refused this worker: %.900s", why);
    (void)mst_ps_send_error(s->net, peer, MST_PS_END, &end);
}

/* The same for --on-nan drop. Another start would compute the same gradient, so the END names server 0 as the
 * origin, and a launcher does not start the process again. */
static void peers_end_nan(mst_server *s, uint32_t worker, const char *why)
{
    static const char lead[] = "server 0";
    mst_error end = {.code = MST_EPEER, .lead = sizeof lead - 1};
    if (s->co == NULL)
        return;
    snprintf(end.text, sizeof end.text, "%s dropped this worker: %.800s; " MST_NAN_ADVICE, lead, why);
    (void)mst_ps_send_error(s->net, s->workers[worker].peer, MST_PS_END, &end);
}

static void peers_expel(mst_server *s, uint32_t worker, const char *why, bool fault)
{
    char name[128];
    mst_net_loss why_lost = {.reason = MST_NET_REFUSED, .error.code = MST_EPEER};
    if (s->workers[worker].peer == MST_PEER_NONE)
        return;
    mst_net_name_of(s->net, s->workers[worker].peer, name, sizeof name);
    snprintf(why_lost.error.text, sizeof why_lost.error.text, "%s was %s: %.800s", name,
             fault && !s->workers[worker].member ? "refused" : "dropped", why);
    if (fault && peers_drop_nan(s, worker))
        peers_end_nan(s, worker, why);
    else if (fault)
        mst_server_end_faulty(s, s->workers[worker].peer, why);
    mst_net_drop(s->net, s->workers[worker].peer, why);
    mst_server_peer_forget(s, s->workers[worker].peer);
    if (fault && s->co == NULL && (s->peers.logged_ns == 0 || mst_now_ns() - s->peers.logged_ns >= MST_S)) {
        s->peers.logged_ns = mst_now_ns();
        mst_warn("%s", why_lost.error.text);
    }
    peers_lose_worker(s, worker, &why_lost, fault ? why : NULL);
}

void mst_server_expel(mst_server *s, uint32_t worker, const char *why)
{
    peers_expel(s, worker, why, false);
}

void mst_server_refuse_worker(mst_server *s, uint32_t worker, const char *why)
{
    peers_expel(s, worker, why, true);
}

void mst_server_expel_server(mst_server *s, uint32_t server, const char *why)
{
    char name[128];
    mst_net_loss why_lost = {.reason = MST_NET_REFUSED, .error.code = MST_EPEER};
    uint32_t peer = s->servers[server];
    if (peer == MST_PEER_NONE)
        return;
    mst_net_name_of(s->net, peer, name, sizeof name);
    snprintf(why_lost.error.text, sizeof why_lost.error.text, "%s was refused: %.800s", name, why);
    mst_net_drop(s->net, peer, why);
    mst_server_peer_forget(s, peer);
    peers_lose_server(s, server, &why_lost);
}

void mst_server_reset_workers(mst_server *s, const char *why)
{
    mst_error again = {.code = MST_EAGAIN};
    snprintf(again.text, sizeof again.text, "%s", why);
    mst_steps_reset(s);
    for (uint32_t i = 0; i < s->options.n_workers; i++) {
        mst_server_worker *w = &s->workers[i];
        uint32_t peer = w->peer;
        uint64_t pushes = w->pushes;
        *w = (mst_server_worker){.peer = MST_PEER_NONE, .pushes = pushes};
        if (peer == MST_PEER_NONE)
            continue;
        if (s->co != NULL)
            (void)mst_ps_send_error(s->net, peer, MST_PS_END, &again);
        mst_net_drop(s->net, peer, why);
        mst_server_peer_forget(s, peer);
    }
}

void mst_server_drain(mst_server *s, uint32_t worker)
{
    mst_server_worker *w = &s->workers[worker];
    w->undecided = mst_has_slots(s);
    if (w->drain_ns == 0)
        w->drain_ns = mst_now_ns() + DRAIN_NS;
}

void mst_server_end_drains(mst_server *s)
{
    uint64_t now = mst_now_ns();
    for (uint32_t w = 0; w < s->options.n_workers && !s->over; w++)
        if (s->workers[w].drain_ns != 0 && now >= s->workers[w].drain_ns)
            mst_server_expel(s, w, "another server has lost its connection to this worker");
}

void mst_server_expel_faulty(mst_server *s)
{
    for (uint32_t w = 0; w < s->options.n_workers && !s->over; w++)
        if (s->workers[w].fault != NULL)
            mst_server_refuse_worker(s, w, s->workers[w].fault);
}

void mst_server_peer_down(void *arg, uint32_t peer, const mst_net_loss *loss)
{
    mst_server *s = arg;
    const mst_error *why = &loss->error;
    uint32_t worker = mst_server_peer_index(s, peer, MST_PEER_WORKER),
             server = mst_server_peer_index(s, peer, MST_PEER_SERVER);
    const mst_server_peer *p = mst_peer_table_find(&s->peers, peer);
    const char *fault = p != NULL && p->faulty ? why->text : NULL;
    mst_server_peer_forget(s, peer);
    if (s->over && server != UINT32_MAX && s->servers[server] == peer)
        s->servers[server] = MST_PEER_NONE;
    if (s->over)
        return;
    if (worker != UINT32_MAX && s->workers[worker].peer == peer) {
        peers_lose_worker(s, worker, loss, fault);
    } else if (s->index != 0 && (server == 0 || peer == s->servers[0])) {
        s->setup.up = false;
        if (mst_heals(s) && why->code == MST_EPEER && loss->reason != MST_NET_REFUSED) {
            mst_server_fail(s, mst_fail(MST_EAGAIN, "%s", why->text));
            return;
        }
        mst_server_fail(
            s, s->setup.ready && why->code == MST_EPEER
                   ? mst_fail(MST_EPEER,
                              "%s; the job cannot continue without %s; resume the run with --resume "
                              "if it has saved a checkpoint",
                              why->text,
                              loss->reason == MST_NET_STOPPED ? "this server's weights" : "its coordinator")
                   : mst_error_restore(why));
    } else if (s->co == NULL && s->replica.on && s->servers[s->replica.partner] == peer) {
        s->servers[s->replica.partner] = MST_PEER_NONE;
        mst_replica_down(s);
        mst_status st = mst_replica_connect(s);
        if (st != MST_OK)
            mst_server_fail(s, st);
    } else if (server != UINT32_MAX && s->servers[server] == peer) {
        peers_lose_server(s, server, loss);
    }
}

void mst_server_peers_fini(mst_server *s)
{
    for (size_t i = 0; i < s->peers.capacity; i++)
        if (s->peers.items[i].kind != MST_PEER_UNKNOWN)
            peers_release(s, &s->peers.items[i]);
    mst_peer_table_fini(&s->peers);
}
