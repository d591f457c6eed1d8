/* A server's life: listening, start-up, events, the loop; contract in server.h.
 *
 * Start-up. Server 0 listens and waits for JOINs; the others connect to it, hear JOB, say JOIN and wait for
 * SETUP, which brings the model and the table; restored floats follow as PARTs; READY answers. Workers
 * connect to every server at once; until a server is set up it has nothing to say to them, and they are
 * silent until the coordinator welcomes them. */
#include "ps/server.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "observe/observe.h"
#include "ps/server_impl.h"
#include "run/run_dir.h"

#define TICK_NS     (200 * MST_MS)
#define FAREWELL_NS (2 * MST_S)

/* ---- buffers ---- */

mst_buffer *mst_server_buffer(mst_server *s, size_t size)
{
    for (mst_buffer **at = &s->pool; *at != NULL; at = &(*at)->next)
        if ((*at)->capacity >= size && (*at)->capacity / 4 <= size + 65536) {
            mst_buffer *found = *at;
            *at = found->next;
            return found;
        }
    size_t capacity = (size + size / 4 + 4095) / 4096 * 4096;
    mst_buffer *fresh = mst_alloc_lines(sizeof *fresh + capacity);
    if (fresh != NULL)
        *fresh = (mst_buffer){.capacity = capacity, .lent_to = MST_PEER_NONE};
    return fresh;
}

void mst_server_release(mst_server *s, mst_buffer *buffer)
{
    if (buffer == NULL)
        return;
    buffer->next = s->pool;
    s->pool = buffer;
}

mst_status mst_server_lend(mst_server *s, uint32_t peer, const mst_message *m, mst_buffer *buffer,
                           size_t size)
{
    mst_piece piece = {buffer->data, size};
    mst_status st = mst_net_send(s->net, peer, m, &piece, size > 0, size > 0 ? buffer : NULL);
    if (st != MST_OK || size == 0) {
        mst_server_release(s, buffer);
        return st;
    }
    buffer->lent_to = peer;
    buffer->next = s->lent;
    s->lent = buffer;
    return MST_OK;
}

/* What was lent to a peer that has it, or is gone, is free again. NULL: everything lent to it. */
static void take_back(mst_server *s, uint32_t peer, const mst_buffer *only)
{
    for (mst_buffer **at = &s->lent; *at != NULL;) {
        mst_buffer *buffer = *at;
        if (buffer->lent_to != peer || (only != NULL && buffer != only)) {
            at = &buffer->next;
            continue;
        }
        *at = buffer->next;
        buffer->lent_to = MST_PEER_NONE;
        buffer->restores = 0;
        mst_server_release(s, buffer);
    }
}

/* Of a peer that is down or was dropped. */
static void forget_peer(mst_server *s, uint32_t peer)
{
    if (peer >= s->peer_capacity)
        return;
    mst_server_release(s, s->peers[peer].incoming);
    s->peers[peer].incoming = NULL;
    mst_server_release(s, s->peers[peer].staged.buffer);
    s->peers[peer].staged = (mst_staged){0};
    take_back(s, peer, NULL);
}

void mst_server_fail(mst_server *s, mst_status status)
{
    if (s->over)
        return;
    s->over = true;
    mst_error_save(&s->end, status);
}

/* ---- the store ---- */

mst_status mst_server_make_store(mst_server *s)
{
    s->owned = mst_calloc(s->table.n_partitions, sizeof *s->owned);
    if (s->owned == NULL)
        return mst_fail_memory();
    mst_placement_owned(&s->table, s->index, s->owned, &s->n_owned);
    for (uint32_t i = 0; i < s->n_owned; i++) {
        s->owned_floats += s->owned[i].count;
        mst_params_populate_part(s->model.params, s->owned[i].first, s->owned[i].count);
    }
    uint64_t keys =
        s->table.width == 0 ? 0 : s->table.key_starts[s->index + 1] - s->table.key_starts[s->index];
    s->max_step_body =
        MST_STEP_HEAD + MST_EXTENT_MAX * sizeof(mst_extent) + 4 * s->owned_floats + 5 * keys + 4096;
    mst_store_options options = {
        .optimizer = s->model.optimizer,
        .params = s->model.params,
        .table = &s->table,
        .server = s->index,
        .n_workers = s->options.n_workers,
        .n_threads = s->options.n_threads,
        .clip = mst_is_sync(s),
    };
    return mst_store_new(&options, &s->store);
}

/* A server that is not the coordinator hears what the job is, and joins. */
static mst_status hear_job(mst_server *s, const json_t *json)
{
    TRY(s->hooks->adopt(s->hooks->arg, json, &s->options));
    return mst_unless_gone(mst_ps_send_json(s->net, s->servers[0], &(mst_message){.type = MST_PS_JOIN},
                                            json_incref(s->options.join)));
}

/* And what it is to hold. */
static mst_status hear_setup(mst_server *s, const json_t *json)
{
    json_int_t steps = 0, restore = 0;
    json_t *model, *table;
    mst_server_start start = {0};
    if (s->store != NULL || json_unpack((json_t *)json, "{s:o, s:o, s:I, s:I}", "model", &model, "table",
                                        &table, "steps", &steps, "restore", &restore) != 0)
        return mst_fail(MST_EPEER, "server 0 sent a set-up that makes no sense");
    TRY(s->hooks->open(s->hooks->arg, json, &start));
    s->model = start.model;
    TRY(mst_placement_from_json(&s->table, table));
    if (s->table.size != s->model.params->size)
        return mst_fail(MST_EPEER, "server 0 has a model of %" PRIu64 " parameters, here it has %" PRIu64,
                        s->table.size, s->model.params->size);
    TRY(mst_server_make_store(s));
    s->applied = (uint64_t)steps;
    mst_observe_set_first_step(s->options.observe, s->applied);
    s->restore = restore ? s->owned_floats * (1 + s->model.params->n_slots) : 0;
    s->ready = s->restore == 0;
    return s->ready ? mst_ps_send(s->net, s->servers[0], &(mst_message){.type = MST_PS_READY}) : MST_OK;
}

/* Whether [first, first + count) is owned. */
static bool owns(const mst_server *s, uint64_t first, uint64_t count)
{
    for (uint32_t i = 0; i < s->n_owned; i++)
        if (first >= s->owned[i].first && first - s->owned[i].first <= s->owned[i].count &&
            count <= s->owned[i].count - (first - s->owned[i].first))
            return true;
    return false;
}

static mst_status hear_restored(mst_server *s, const mst_message *m, const void *body)
{
    uint64_t count = m->size / sizeof(float);
    if (s->store == NULL || s->ready || m->size % sizeof(float) != 0 || m->count > s->model.params->n_slots ||
        !owns(s, m->step, count) || s->restored + count > s->restore)
        return mst_fail(MST_EPEER, "server 0 sent floats that are not this server's");
    float *to = (m->count == 0 ? s->model.params->w : s->model.params->slots[m->count - 1]) + m->step;
    memcpy(to, body, m->size);
    s->restored += count;
    s->ready = s->restored == s->restore;
    return s->ready ? mst_ps_send(s->net, s->servers[0], &(mst_message){.type = MST_PS_READY}) : MST_OK;
}

/* ---- messages ---- */

static mst_status hear_end(mst_server *s, const json_t *json)
{
    const char *text = "";
    json_int_t code = MST_EPEER;
    json_unpack((json_t *)json, "{s:I, s:s}", "code", &code, "text", &text);
    s->over = true;
    s->end.code = (mst_status)code;
    snprintf(s->end.text, sizeof s->end.text, "%s", text);
    return MST_OK;
}

static mst_status hear_coordinator(mst_server *s, const mst_message *m, const void *body)
{
    json_t *json = NULL;
    mst_status st = MST_OK;
    switch (m->type) {
    case MST_PS_JOB:
    case MST_PS_SETUP:
    case MST_PS_END:
        TRY(mst_ps_json(m, body, &json));
        st = m->type == MST_PS_JOB     ? hear_job(s, json)
             : m->type == MST_PS_SETUP ? hear_setup(s, json)
                                       : hear_end(s, json);
        json_decref(json);
        return st;
    case MST_PS_PART:
        return hear_restored(s, m, body);
    case MST_PS_CLOSE:
    case MST_PS_CUT: {
        uint64_t slots[16] = {0};
        if (m->size > sizeof slots)
            return mst_fail(MST_EPEER, "server 0 sent %s with a body of %" PRIu64 " bytes",
                            mst_ps_type_name(m->type), m->size);
        if (m->size > 0)
            memcpy(slots, body, m->size);
        if (m->type == MST_PS_CUT)
            return mst_server_hear_cut(s, m, slots);
        if (!mst_grow(&s->closes, &s->close_capacity, s->n_closes + 1, sizeof *s->closes))
            return mst_fail_memory();
        mst_step_close *close = &s->closes[s->n_closes++];
        close->step = m->step;
        memcpy(close->slots, slots, sizeof slots);
        return mst_server_try_close(s);
    }
    case MST_PS_GONE: {
        if (m->count >= s->options.n_workers)
            return mst_fail(MST_EPEER, "server 0 sent a worker that is not there: %" PRIu32, m->count);
        mst_server_worker *w = &s->workers[m->count];
        w->gone = true;
        w->gone_from = m->step;
        mst_server_forget(s, m->count);
        /* Unless a push is still to come that the coordinator counts, there is nothing to hear from it. */
        if (w->peer != MST_PEER_NONE && (!mst_is_sync(s) || w->pending || w->gone_from <= s->applied + 1)) {
            mst_net_drop(s->net, w->peer, "the coordinator has given this worker up");
            forget_peer(s, w->peer);
            w->peer = MST_PEER_NONE;
        }
        TRY(mst_server_try_cut(s));
        return mst_is_sync(s) ? mst_server_try_close(s) : MST_OK;
    }
    default:
        return mst_fail(MST_EPEER, "server 0 sent %s, which it never should", mst_ps_type_name(m->type));
    }
}

static mst_status hear_worker(mst_server *s, uint32_t worker, const mst_message *m, const void *body)
{
    if (s->store == NULL)
        return mst_fail(MST_EPEER, "%s before this server is set up", mst_ps_type_name(m->type));
    if (m->type == MST_PS_MARK)
        return mst_server_hear_mark(s, worker, m);
    if (m->type == MST_PS_EVAL_LIST) {
        if (mst_store_watch(s->store, m, body) != MST_OK)
            return mst_fail(MST_EPEER, "%s", mst_error_text());
        s->chief = worker;
        if (s->co != NULL)
            return mst_coordinator_watches(s, worker);
        return mst_unless_gone(
            mst_ps_send(s->net, s->servers[0],
                        &(mst_message){.type = MST_PS_READY, .flags = MST_READY_WATCHES, .count = worker}));
    }
    return mst_fail(MST_EPEER, "%s, which a worker never sends", mst_ps_type_name(m->type));
}

/* ---- events ---- */

static uint32_t peer_of(const mst_server *s, uint32_t peer, mst_peer_kind kind)
{
    return peer < s->peer_capacity && s->peers[peer].kind == kind ? s->peers[peer].index : UINT32_MAX;
}

static mst_status remember_peer(mst_server *s, uint32_t peer, mst_peer_kind kind, uint32_t index)
{
    size_t had = s->peer_capacity;
    if (!mst_grow(&s->peers, &s->peer_capacity, (size_t)peer + 1, sizeof *s->peers))
        return mst_fail_memory();
    if (s->peer_capacity > had)
        memset(s->peers + had, 0, (s->peer_capacity - had) * sizeof *s->peers);
    s->peers[peer] = (mst_peer){.kind = kind, .index = index};
    return MST_OK;
}

static mst_status welcome_peer(mst_server *s, uint32_t peer, const mst_identity *who)
{
    bool worker = who->role == MST_ROLE_WORKER;
    uint32_t n = worker ? s->options.n_workers : s->options.n_servers;
    if (who->role != MST_ROLE_WORKER && who->role != MST_ROLE_SERVER)
        return mst_fail(MST_EPEER, "a %s has no business here", mst_role_name(who->role));
    if (who->index >= n)
        return mst_fail(MST_EUSAGE,
                        "%s %" PRIu32 " is not in the cluster here, which has %" PRIu32 " %ss (0 to %" PRIu32
                        ")",
                        mst_role_name(who->role), who->index, n, mst_role_name(who->role), n - 1);
    if (!worker && (s->index != 0 || who->index == 0)) {
        if (who->index == 0 && peer == s->servers[0]) { /* the coordinator, which this server connected to */
            s->up = true;
            if (s->options.observe != NULL)
                (void)mst_ps_clock_ask(&s->clock, s->net, peer);
            return remember_peer(s, peer, MST_PEER_SERVER, 0);
        }
        return mst_fail(MST_EUSAGE, "server %" PRIu32 " is there already, or spoke to the wrong server",
                        who->index);
    }
    uint32_t *slot = worker ? &s->workers[who->index].peer : &s->servers[who->index];
    if (*slot != MST_PEER_NONE) {
        char name[128];
        mst_net_name_of(s->net, *slot, name, sizeof name);
        return mst_fail(MST_EEXIST, "index %" PRIu32 " is taken by %s", who->index, name);
    }
    if (worker && s->workers[who->index].gone)
        return mst_fail(MST_EEXIST, "worker %" PRIu32 " was lost, and its place was given up", who->index);
    TRY(remember_peer(s, peer, worker ? MST_PEER_WORKER : MST_PEER_SERVER, who->index));
    *slot = peer;
    if (worker)
        s->workers[who->index].incarnation = who->incarnation;
    mst_status st = s->index == 0 ? mst_coordinator_up(s, peer) : MST_OK;
    if (st != MST_OK)
        *slot = MST_PEER_NONE;
    return st;
}

void mst_server_refuse(mst_server *s, uint32_t peer, mst_status status)
{
    mst_error why;
    mst_error_save(&why, status);
    if (s->co != NULL) /* whose word brings the code along */
        (void)mst_ps_send_json(s->net, peer, &(mst_message){.type = MST_PS_END},
                               json_pack("{s:i, s:s}", "code", (int)why.code, "text", why.text));
    mst_net_drop(s->net, peer, why.text);
    forget_peer(s, peer);
}

static void on_up(void *arg, uint32_t peer, const mst_identity *who)
{
    mst_server *s = arg;
    mst_status st = welcome_peer(s, peer, who);
    if (st != MST_OK)
        mst_server_refuse(s, peer, st);
}

/* The connection is gone. */
static void lose_worker(mst_server *s, uint32_t worker, const mst_net_loss *why)
{
    s->workers[worker].peer = MST_PEER_NONE;
    s->workers[worker].stuck = false;
    if (s->co != NULL) {
        mst_coordinator_lost(s, worker, why);
        return;
    }
    mst_server_forget(s, worker);
    if (s->ready) /* that it cannot be told is reported by itself */
        (void)mst_ps_send(s->net, s->servers[0],
                          &(mst_message){.type = MST_PS_GONE,
                                         .flags = why->reason == MST_NET_SILENT ? MST_GONE_SILENT : 0,
                                         .count = worker});
    mst_status st = s->ready ? mst_server_try_cut(s) : MST_OK;
    if (st == MST_OK && s->ready && mst_is_sync(s))
        st = mst_server_try_close(s);
    if (st != MST_OK)
        mst_server_fail(s, st);
}

void mst_server_expel(mst_server *s, uint32_t worker, const char *why)
{
    char name[128];
    mst_net_loss why_lost = {.reason = MST_NET_REFUSED, .error.code = MST_EPEER};
    if (s->workers[worker].peer == MST_PEER_NONE)
        return;
    mst_net_name_of(s->net, s->workers[worker].peer, name, sizeof name);
    snprintf(why_lost.error.text, sizeof why_lost.error.text, "%s was sent away: %.800s", name, why);
    mst_net_drop(s->net, s->workers[worker].peer, why);
    forget_peer(s, s->workers[worker].peer);
    lose_worker(s, worker, &why_lost);
}

static void on_down(void *arg, uint32_t peer, const mst_net_loss *loss)
{
    mst_server *s = arg;
    const mst_error *why = &loss->error;
    uint32_t worker = peer_of(s, peer, MST_PEER_WORKER), server = peer_of(s, peer, MST_PEER_SERVER);
    forget_peer(s, peer);
    if (s->over && server != UINT32_MAX && s->servers[server] == peer)
        s->servers[server] = MST_PEER_NONE;
    if (s->over)
        return;
    if (worker != UINT32_MAX && s->workers[worker].peer == peer) {
        lose_worker(s, worker, loss);
    } else if (s->index != 0 && (server == 0 || peer == s->servers[0])) {
        s->up = false;
        mst_server_fail(
            s, s->ready && why->code == MST_EPEER
                   ? mst_fail(MST_EPEER,
                              "%s; the job cannot continue without %s; resume the run with --resume "
                              "if it has saved a checkpoint",
                              why->text,
                              loss->reason == MST_NET_STOPPED ? "this server's weights" : "its coordinator")
                   : mst_error_restore(why));
    } else if (server != UINT32_MAX && s->servers[server] == peer) {
        s->servers[server] = MST_PEER_NONE;
        if (mst_coordinator_server_left(s, server, why->text))
            return;
        char way_on[MST_ERROR_MAX / 2];
        mst_run_way_on(mst_coordinator_run_path(s), way_on, sizeof way_on);
        mst_server_fail(s, mst_fail(MST_EPEER, "%s; its share of the weights is lost%s %s", why->text,
                                    strncmp(way_on, "no ", 3) == 0 ? ", and" : ";", way_on));
    }
}

static mst_status on_body(void *arg, uint32_t peer, const mst_message *m, void **out)
{
    mst_server *s = arg;
    bool worker = peer_of(s, peer, MST_PEER_WORKER) != UINT32_MAX;
    uint64_t most = m->type == MST_PS_LOG     ? MST_RECORD_HEAD + MST_RECORD_MAX
                    : m->type == MST_PS_CLOCK ? MST_CLOCK_ANSWER
                                              : MST_PS_JSON_MAX;
    mst_span_keep(mst_server_phase_of(m->type));
    if (m->type == MST_PS_GRADIENT && worker && s->store != NULL)
        return mst_server_part_body(s, peer, m, out);
    if (m->type == MST_PS_STEP || m->type == MST_PS_EVAL_LIST)
        most = worker && s->store != NULL ? s->max_step_body : 0;
    if (m->size > most)
        return mst_fail(MST_EPEER,
                        "%s with a body of %" PRIu64 " bytes, where at most %" PRIu64 " make sense",
                        mst_ps_type_name(m->type), m->size, most);
    mst_buffer *buffer = mst_server_buffer(s, (size_t)m->size);
    if (buffer == NULL)
        return mst_fail_memory();
    s->peers[peer].incoming = buffer;
    *out = buffer->data;
    return MST_OK;
}

static mst_buffer *buffer_of(void *body)
{
    return body == NULL ? NULL : (mst_buffer *)((uint8_t *)body - offsetof(mst_buffer, data));
}

/* MST_EPEER is the sender's fault, who is sent away; anything else is this server's, and ends it. */
static mst_status take_message(mst_server *s, uint32_t peer, const mst_message *m, void *body)
{
    uint32_t worker = peer_of(s, peer, MST_PEER_WORKER), server = peer_of(s, peer, MST_PEER_SERVER);
    if (m->type == MST_PS_GRADIENT && worker != UINT32_MAX && s->store != NULL && body != NULL) {
        s->peers[peer].staged.parts = s->peers[peer].next;
        return MST_OK;
    }
    mst_buffer *buffer = buffer_of(body);
    mst_status st;
    if (peer < s->peer_capacity)
        s->peers[peer].incoming = NULL;
    if (m->type == MST_PS_LOG || m->type == MST_PS_CLOCK) {
        st = m->type == MST_PS_LOG ? mst_server_hear_log(s, peer, m, body)
                                   : mst_server_hear_clock(s, peer, m, body);
        mst_server_release(s, buffer);
        if (st != MST_OK && !s->over && worker != UINT32_MAX)
            mst_server_expel(s, worker, mst_error_text());
        return MST_OK;
    }
    if (s->over) {
        mst_server_release(s, buffer);
        return MST_OK;
    }
    if (worker != UINT32_MAX && m->type == MST_PS_STEP && s->store != NULL) {
        bool pushes = (m->flags & MST_STEP_PUSH) != 0;
        mst_staged staged = pushes ? s->peers[peer].staged : (mst_staged){0};
        if (pushes)
            s->peers[peer].staged = (mst_staged){0};
        st = mst_server_step(s, worker, m, buffer, staged);
    } else {
        if (s->index != 0 && server == 0)
            st = hear_coordinator(s, m, body);
        else if (worker != UINT32_MAX && (m->type == MST_PS_MARK || m->type == MST_PS_EVAL_LIST))
            st = hear_worker(s, worker, m, body);
        else if (s->co != NULL)
            st = mst_coordinator_message(s, peer, m, body);
        else
            st = mst_fail(MST_EPEER, "%s, which is for the coordinator", mst_ps_type_name(m->type));
        mst_server_release(s, buffer);
    }
    if (st == MST_EPEER && worker != UINT32_MAX)
        mst_server_expel(s, worker, mst_error_text());
    else if (st != MST_OK)
        mst_server_fail(s, st);
    return MST_OK;
}

static mst_status on_message(void *arg, uint32_t peer, const mst_message *m, void *body)
{
    mst_phase before = mst_span_keep(mst_server_phase_of(m->type));
    mst_status st = take_message(arg, peer, m, body);
    mst_span_keep(before);
    return st;
}

/* Receiving is part of what is done with a message: before its type is known, of applying a push. */
static void on_doing(void *arg, mst_net_doing what)
{
    (void)arg;
    mst_span_keep(what == MST_NET_WAITS   ? MST_PHASE_IDLE
                  : what == MST_NET_READS ? MST_PHASE_APPLY
                                          : MST_PHASE_SERVE);
}

static void on_sent(void *arg, uint32_t peer, void *token)
{
    mst_server *s = arg;
    if (token == &s->parts) {
        mst_server_part_sent(s);
        return;
    }
    if (token == &s->model) /* weights that were sent from where they lie */
        return;
    mst_buffer *buffer = token;
    uint32_t restores = buffer->restores;
    take_back(s, peer, buffer);
    if (restores > 0 && s->co != NULL)
        mst_coordinator_piece_sent(s, restores - 1);
}

static const mst_net_events events = {
    .up = on_up,
    .down = on_down,
    .body = on_body,
    .message = on_message,
    .sent = on_sent,
    .doing = on_doing,
};

/* ---- life ---- */

static void free_buffers(mst_buffer *list)
{
    while (list != NULL) {
        mst_buffer *next = list->next;
        mst_free(list);
        list = next;
    }
}

static void server_fini(mst_server *s)
{
    mst_net_destroy(s->net);
    mst_coordinator_destroy(s->co);
    mst_server_cut_fini(s);
    for (size_t i = 0; i < s->peer_capacity; i++) {
        mst_server_release(s, s->peers[i].incoming);
        mst_server_release(s, s->peers[i].staged.buffer);
    }
    for (uint32_t w = 0; s->workers != NULL && w < s->options.n_workers; w++) {
        mst_server_release(s, s->workers[w].body);
        mst_server_release(s, s->workers[w].values);
    }
    while (s->held != NULL) {
        mst_held_step *held = s->held;
        s->held = held->next;
        mst_server_release(s, held->body);
        mst_server_release(s, held->staged.buffer);
        mst_free(held);
    }
    mst_store_destroy(s->store);
    mst_placement_fini(&s->table);
    mst_free(s->owned);
    mst_free(s->closes);
    mst_free(s->peers);
    mst_free(s->workers);
    mst_free(s->servers);
    mst_free(s->reply);
    free_buffers(s->lent);
    free_buffers(s->pool);
}

/* Another job is the usual reason that an address is taken. */
static mst_status server_listen(mst_server *s)
{
    char bound[256];
    const char *at = s->options.servers[s->index];
    const char *how = strncmp(at, "unix:", 5) == 0
                          ? "name is taken by another process; choose another with --job"
                          : "port is taken by another process; choose another with --port";
    mst_status st = mst_net_listen(s->net, at, bound, sizeof bound);
    if (st == MST_OK)
        mst_info("server %" PRIu32 " listens on %s", s->index, bound);
    return st != MST_EEXIST ? st
                            : mst_fail(st,
                                       "server %" PRIu32 " cannot listen on %s: the %s of launch, or in the "
                                       "cluster spec",
                                       s->index, at, how);
}

static mst_status server_init(mst_server *s, const mst_server_options *o, const mst_server_hooks *hooks)
{
    s->options = *o;
    s->hooks = hooks;
    s->index = o->net.self.index;
    s->chief = UINT32_MAX;
    s->held_tail = &s->held;
    s->servers = mst_calloc(o->n_servers, sizeof *s->servers);
    s->workers = mst_calloc(o->n_workers, sizeof *s->workers);
    if (s->servers == NULL || s->workers == NULL)
        return mst_fail_memory();
    for (uint32_t i = 0; i < o->n_servers; i++)
        s->servers[i] = MST_PEER_NONE;
    for (uint32_t w = 0; w < o->n_workers; w++)
        s->workers[w].peer = MST_PEER_NONE;
    if (s->index == 0)
        TRY(mst_coordinator_new(s, &s->co));
    TRY(mst_net_new(o->engine, &o->net, &events, s, &s->net));
    TRY(server_listen(s));
    if (s->index != 0)
        TRY(mst_net_connect(s->net, o->servers[0], mst_now_ns() + o->start_timeout_ms * MST_MS,
                            &s->servers[0]));
    return MST_OK;
}

/* What every server that is not the coordinator looks at now and then. */
static void watch_start(mst_server *s, uint64_t began)
{
    if (!s->ready && mst_now_ns() - began > 2ull * s->options.start_timeout_ms * MST_MS)
        mst_server_fail(s, mst_fail(MST_ETIMEOUT,
                                    "server %" PRIu32
                                    ": server 0 at %s has not set the job up within %" PRIu32 " s",
                                    s->index, s->options.servers[0], 2 * s->options.start_timeout_ms / 1000));
    if (s->leaving || s->options.stop == NULL || !atomic_load(s->options.stop))
        return;
    s->leaving = true;
    if (!s->up)
        mst_server_fail(s, mst_fail(MST_ESTOPPED, "asked to stop"));
    else /* which ends the job, with a checkpoint */
        (void)mst_ps_send_json(s->net, s->servers[0], &(mst_message){.type = MST_PS_FAIL},
                               json_pack("{s:i, s:s}", "code", (int)MST_ESTOPPED, "text", "asked to stop"));
}

/* Workers that do not read what they ask for. */
static void expel_stuck(mst_server *s)
{
    for (uint32_t w = 0; w < s->options.n_workers && !s->over; w++)
        if (s->workers[w].stuck)
            mst_server_expel(s, w, "it asks for weights and does not read them");
}

mst_status mst_server_run(const mst_server_options *options, const mst_server_hooks *hooks)
{
    mst_server *s = mst_zalloc(sizeof *s);
    if (s == NULL)
        return mst_fail_memory();
    mst_status st = server_init(s, options, hooks);
    if (st != MST_OK)
        mst_server_fail(s, st);
    uint64_t began = mst_now_ns();
    mst_spans_attach(mst_observe_spans(options->observe), 0, MST_PHASE_IDLE);
    while (!s->over) {
        st = mst_net_poll(s->net, mst_now_ns() + TICK_NS);
        mst_span_keep(MST_PHASE_IDLE);
        mst_server_trace_queue(s);
        mst_server_write_about(s);
        expel_stuck(s);
        if (st == MST_OK && !s->over && s->co != NULL)
            st = mst_coordinator_tick(s);
        else if (st == MST_OK && !s->over)
            watch_start(s, began);
        if (st != MST_OK)
            mst_server_fail(s, st);
    }
    if (s->co != NULL && s->net != NULL)
        mst_coordinator_broadcast_end(s);
    if (s->co == NULL && s->end.code != MST_OK && s->up)
        (void)mst_ps_send_json(s->net, s->servers[0], &(mst_message){.type = MST_PS_FAIL},
                               json_pack("{s:i, s:s}", "code", (int)s->end.code, "text", s->end.text));
    if (s->store != NULL && mst_is_sync(s))
        mst_log(MST_LOG_DEBUG, "server %" PRIu32 " averaged %" PRIu64 " steps; sets %016" PRIx64, s->index,
                s->applied, s->set_hash);
    mst_spans_detach();
    mst_server_farewell(s);
    if (s->net != NULL)
        mst_net_flush(s->net, mst_now_ns() + FAREWELL_NS);
    mst_server_last_words(s);
    mst_error end = s->end;
    server_fini(s);
    mst_free(s);
    return end.code == MST_OK ? MST_OK : mst_error_restore(&end);
}
