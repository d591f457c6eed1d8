/* A server's life: messages, the loop, the end; contract in server.h.
 *
 * Start-up. Server 0 listens and waits for JOINs. The other servers connect to it, receive JOB, send JOIN and
 * wait for SETUP, which brings the model and the table; restored floats follow as FLOATS; READY answers.
 * Workers connect to every server at once and send nothing until the coordinator welcomes them. */
#include "ps/server.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "observe/observe.h"
#include "ps/server_impl.h"
#include "run/run_dir.h"

#define TICK_NS  (200 * MST_MS)
#define FLUSH_NS (2 * MST_S)

void mst_server_fail(mst_server *s, mst_status status)
{
    if (s->over)
        return;
    s->over = true;
    mst_error_save(&s->end, status);
}

/* ---- messages of the coordinator ---- */

static mst_status server_take_end(mst_server *s, const json_t *json)
{
    s->over = true;
    mst_ps_read_error(json, &s->end);
    return MST_OK;
}

/* GONE: a worker is lost. A connection with its index that is no member is that of its successor. A server
 * that has joined again has no members before its set-up. */
static mst_status server_take_gone(mst_server *s, const mst_message *m)
{
    if (m->count >= s->options.n_workers)
        return mst_fail(MST_EPEER, "server 0 sent an invalid GONE for worker %" PRIu32, m->count);
    if (s->store == NULL)
        return MST_OK;
    mst_server_worker *w = &s->workers[m->count];
    w->gone = true;
    if (m->flags & MST_GONE_DECIDED)
        return mst_steps_decide(s, m->count, m->step);
    w->gone_from = m->step;
    if (!w->member)
        mst_steps_forget(s, m->count);
    else if (mst_is_sync(s))
        mst_server_drain(s, m->count);
    else
        mst_server_expel(s, m->count, "the coordinator has dropped this worker");
    TRY(mst_cut_try(s));
    return mst_is_sync(s) ? mst_steps_try_close(s) : MST_OK;
}

/* MEMBER: the coordinator has admitted a process. */
static mst_status server_take_member(mst_server *s, const mst_message *m)
{
    if (m->count >= s->options.n_workers || s->store == NULL)
        return mst_fail(MST_EPEER, "server 0 sent an invalid MEMBER for worker %" PRIu32, m->count);
    const mst_server_worker *w = &s->workers[m->count];
    mst_server_admit(s, m->count);
    TRY(mst_unless_gone(
        mst_ps_send(s->net, s->servers[0], &(mst_message){.type = MST_PS_MEMBER, .count = m->count})));
    if (w->peer == MST_PEER_NONE || w->incarnation != m->step)
        mst_server_report_gone(s, m->count, 0, "");
    return MST_OK;
}

static mst_status server_take_from_coordinator(mst_server *s, const mst_message *m, const void *body)
{
    json_t *json = NULL;
    mst_status st = MST_OK;
    uint64_t workers[MST_WORKER_WORDS] = {0};
    switch (m->type) {
    case MST_PS_JOB:
    case MST_PS_SETUP:
    case MST_PS_ROSTER:
    case MST_PS_END:
        TRY(mst_ps_json(m, body, &json));
        st = m->type == MST_PS_JOB      ? mst_server_setup_job(s, json)
             : m->type == MST_PS_SETUP  ? mst_server_setup_model(s, json)
             : m->type == MST_PS_ROSTER ? mst_replica_take_roster(s, json)
                                        : server_take_end(s, json);
        json_decref(json);
        return st;
    case MST_PS_FLOATS:
        return mst_server_setup_restored(s, m, body);
    case MST_PS_CLOSE:
    case MST_PS_CUT:
        if (m->size > sizeof workers)
            return mst_fail(MST_EPEER, "server 0 sent %s with a body of %" PRIu64 " bytes",
                            mst_ps_type_name(m->type), m->size);
        if (m->size > 0)
            memcpy(workers, body, m->size);
        if (m->type == MST_PS_CLOSE)
            return mst_steps_close(s, m, workers);
        TRY(mst_cut_announced(s, m, workers));
        return mst_is_sync(s) ? mst_steps_try_close(s) : MST_OK; /* a marker may have come before its cut */
    case MST_PS_HOLD:
        return mst_cut_resume(s);
    case MST_PS_GONE:
        return server_take_gone(s, m);
    case MST_PS_MEMBER:
        return server_take_member(s, m);
    default:
        return mst_fail(MST_EPEER, "server 0 sent an unexpected %s", mst_ps_type_name(m->type));
    }
}

/* Messages of a worker that are not STEPs. */
static mst_status server_take_from_worker(mst_server *s, uint32_t worker, const mst_message *m,
                                          const void *body)
{
    if (s->store == NULL)
        return mst_fail(MST_EPEER, "%s before this server is set up", mst_ps_type_name(m->type));
    return m->type == MST_PS_MARKER ? mst_cut_marked(s, worker, m) : mst_cut_eval_list(s, worker, m, body);
}

static bool server_is_from_worker(uint16_t type)
{
    return type == MST_PS_MARKER || type == MST_PS_EVAL_LIST;
}

/* ---- messages ---- */

/* The largest body of a message of a process of that kind. */
static uint64_t server_most_bytes(const mst_server *s, bool worker, uint16_t type)
{
    switch (type) {
    case MST_PS_LOG:
        return MST_RECORD_HEAD + MST_RECORD_MAX;
    case MST_PS_CLOCK:
        return MST_CLOCK_ANSWER;
    case MST_PS_STEP:
    case MST_PS_EVAL_LIST:
        return worker && s->store != NULL ? s->max_step_body : 0;
    case MST_PS_PROBE:
        return worker ? MST_PROBE_MAX : 0;
    case MST_PS_STATE:
        return worker ? 0 : MST_PS_JSON_MAX;
    case MST_PS_PIECE:
    case MST_PS_DELTA:
        return worker ? 0 : mst_replica_most_bytes(s, type);
    case MST_PS_JOIN:
        return MST_PS_JOIN_MAX;
    case MST_PS_REPORT:
    case MST_PS_FAIL:
    case MST_PS_EVAL_RESULT:
        return MST_PS_REPORT_MAX;
    default:
        return worker ? 0 : MST_PS_JSON_MAX;
    }
}

static mst_status server_body(mst_server *s, uint32_t peer, const mst_message *m, void **out)
{
    mst_server_peer *p = mst_peer_table_find(&s->peers, peer);
    if (p == NULL)
        return mst_fail(MST_EPEER, "%s of a process that takes no part", mst_ps_type_name(m->type));
    bool worker = p->kind == MST_PEER_WORKER;
    uint64_t most = server_most_bytes(s, worker, m->type);
    mst_span_keep(mst_server_phase_of(m->type));
    TRY(mst_server_check_member(s, peer, m->type));
    if (m->type == MST_PS_GRADIENT && worker && s->store != NULL)
        return mst_steps_part_body(s, peer, m, out);
    if (m->size > most)
        return mst_fail(MST_EPEER, "%s with a body of %" PRIu64 " bytes; at most %" PRIu64 " are valid",
                        mst_ps_type_name(m->type), m->size, most);
    mst_body *body = mst_body_take(&s->bodies, (size_t)m->size);
    if (body == NULL)
        return mst_fail_memory();
    p->incoming = body;
    *out = body->data;
    return MST_OK;
}

static mst_status server_on_body(void *arg, uint32_t peer, const mst_message *m, void **out)
{
    mst_server *s = arg;
    mst_status st = server_body(s, peer, m, out);
    if (st == MST_EPEER && mst_server_peer_index(s, peer, MST_PEER_WORKER) != UINT32_MAX) {
        mst_error error;
        mst_error_save(&error, st);
        mst_peer_table_find(&s->peers, peer)->faulty = true;
        mst_server_end_faulty(s, peer, error.text);
        st = mst_error_restore(&error);
    }
    return st;
}

/* MST_EPEER is a fault of the sender, which is dropped: a worker, or another server on the coordinator. Other
 * failures end this server. */
static mst_status server_take_message(mst_server *s, uint32_t peer, const mst_message *m, void *data)
{
    mst_server_peer *p = mst_peer_table_find(&s->peers, peer);
    if (p == NULL)
        return mst_fail(MST_EPEER, "%s of a process that takes no part", mst_ps_type_name(m->type));
    uint32_t worker = p->kind == MST_PEER_WORKER ? p->index : UINT32_MAX,
             server = p->kind == MST_PEER_SERVER ? p->index : UINT32_MAX;
    if (m->type == MST_PS_GRADIENT && worker != UINT32_MAX && s->store != NULL && data != NULL) {
        p->staged.parts = p->next;
        return MST_OK;
    }
    mst_body *body = mst_body_of(data);
    mst_status st = mst_server_check_member(s, peer, m->type);
    p->incoming = NULL;
    if (st != MST_OK) {
        mst_body_release(&s->bodies, body);
        if (!s->over)
            mst_server_refuse_worker(s, worker, mst_error_text());
        return MST_OK;
    }
    if (m->type == MST_PS_PROBE && worker != UINT32_MAX) {
        if (mst_records_probe(s, peer, m, body) != MST_OK && !s->over)
            mst_server_refuse_worker(s, worker, mst_error_text());
        return MST_OK;
    }
    if (m->type == MST_PS_LOG || m->type == MST_PS_CLOCK) {
        st = m->type == MST_PS_LOG ? mst_records_take(s, peer, m, data) : mst_records_clock(s, peer, m, data);
        mst_body_release(&s->bodies, body);
        if (st != MST_OK && !s->over && worker != UINT32_MAX)
            mst_server_refuse_worker(s, worker, mst_error_text());
        return MST_OK;
    }
    if (s->over) {
        mst_body_release(&s->bodies, body);
        return MST_OK;
    }
    if (worker != UINT32_MAX && m->type == MST_PS_STEP && s->store != NULL) {
        bool pushes = (m->flags & MST_STEP_PUSH) != 0;
        mst_staged staged = pushes ? p->staged : (mst_staged){0};
        if (pushes)
            p->staged = (mst_staged){0};
        st = mst_steps_take(s, worker, m, body, staged);
    } else {
        if (mst_replica_takes(s, server, m->type))
            st = mst_replica_message(s, m, data);
        else if (s->index != 0 && server == 0)
            st = server_take_from_coordinator(s, m, data);
        else if (worker != UINT32_MAX && server_is_from_worker(m->type))
            st = server_take_from_worker(s, worker, m, data);
        else if (s->co != NULL)
            st = mst_coordinator_message(s, peer, m, data);
        else
            st = mst_fail(MST_EPEER, "%s, which only the coordinator receives", mst_ps_type_name(m->type));
        mst_body_release(&s->bodies, body);
    }
    if (st == MST_EPEER && worker != UINT32_MAX)
        mst_server_refuse_worker(s, worker, mst_error_text());
    else if (st == MST_EPEER && s->co != NULL && server != UINT32_MAX)
        mst_server_expel_server(s, server, mst_error_text());
    else if (st != MST_OK)
        mst_server_fail(s, st);
    return MST_OK;
}

static mst_status server_on_message(void *arg, uint32_t peer, const mst_message *m, void *body)
{
    mst_server *s = arg;
    mst_phase before = mst_span_keep(mst_server_phase_of(m->type));
    mst_trace_next(&s->net_op, NULL, (mst_trace_output){.bytes = m->size});
    mst_status st = server_take_message(s, peer, m, body);
    mst_span_keep(before);
    return st;
}

/* Receiving counts as the phase of the message; before its type is known, as applying a push. */
static void server_on_doing(void *arg, mst_net_doing what)
{
    mst_server *s = arg;
    mst_trace_next(&s->net_op, NULL, (mst_trace_output){0});
    mst_span_keep(what == MST_NET_WAITS   ? MST_PHASE_IDLE
                  : what == MST_NET_READS ? MST_PHASE_APPLY
                                          : MST_PHASE_SERVE);
    mst_trace_next(&s->net_op,
                   what == MST_NET_READS    ? "receive"
                   : what == MST_NET_WRITES ? "write"
                                            : NULL,
                   (mst_trace_output){0});
}

static void server_on_sent(void *arg, uint32_t peer, void *token)
{
    mst_server *s = arg;
    if (token == &s->checkpoint) {
        mst_checkpoint_stream_sent(s);
        return;
    }
    if (token == &s->model) /* weights that were sent from the store */
        return;
    mst_body *body = token;
    uint32_t restores = body->restores;
    mst_body_returned(&s->bodies, peer, body);
    if (restores == MST_BODY_COPY)
        mst_replica_sent(s);
    else if (restores > 0 && s->co != NULL)
        mst_restore_sent(s, restores - 1);
}

static const mst_net_events server_events = {
    .up = mst_server_peer_up,
    .down = mst_server_peer_down,
    .body = server_on_body,
    .message = server_on_message,
    .sent = server_on_sent,
    .doing = server_on_doing,
};

/* ---- life ---- */

static void server_fini(mst_server *s)
{
    mst_net_destroy(s->net);
    mst_coordinator_fini(s);
    mst_checkpoint_stream_fini(s);
    mst_server_peers_fini(s);
    mst_steps_fini(s);
    mst_replica_fini(s);
    mst_store_destroy(s->store);
    mst_placement_fini(&s->table);
    mst_free(s->owned.extents);
    mst_free(s->workers);
    mst_free(s->servers);
    mst_free(s->reply);
    mst_body_pool_fini(&s->bodies);
}

/* An address is usually taken by another job. */
static mst_status server_listen(mst_server *s)
{
    char bound[256];
    const char *at = s->options.servers[s->index];
    bool unix_socket = strncmp(at, "unix:", 5) == 0;
    const char *what = unix_socket ? "name" : "port", *how = unix_socket ? "launch --job" : "launch --port";
    bool launched = getenv(MST_RUN_LAUNCH_ENV) != NULL;
    const char *secret = s->options.net.secret;
    bool open = s->options.engine == &mst_net_tcp && !unix_socket && (secret == NULL || secret[0] == '\0');
    mst_status st = mst_net_listen(s->net, at, bound, sizeof bound);
    if (st == MST_OK)
        mst_info("server %" PRIu32 " listens on %s", s->index, bound);
    if (st == MST_OK && open)
        mst_warn("any user of this host can join the job and read its weights, because it has no secret; "
                 "give it one (docs/SECURITY.md), or use a Unix socket");
    return st != MST_EEXIST ? st
                            : mst_fail(st,
                                       "server %" PRIu32 " cannot listen on %s: the %s is in use by another "
                                       "process; choose another%s%s%s in the cluster spec",
                                       s->index, at, what, launched ? " with " : "", launched ? how : "",
                                       launched ? ", or" : "");
}

static mst_status server_init(mst_server *s, const mst_server_options *o, const mst_server_hooks *hooks)
{
    s->options = *o;
    s->hooks = hooks;
    s->index = o->net.self.index;
    s->cut.chief = UINT32_MAX;
    s->steps.held_tail = &s->steps.held;
    s->servers = mst_calloc(o->n_servers, sizeof *s->servers);
    s->workers = mst_calloc(o->n_workers, sizeof *s->workers);
    if (s->servers == NULL || s->workers == NULL)
        return mst_fail_memory();
    for (uint32_t i = 0; i < o->n_servers; i++)
        s->servers[i] = MST_PEER_NONE;
    for (uint32_t w = 0; w < o->n_workers; w++)
        s->workers[w].peer = MST_PEER_NONE;
    mst_replica_init(s);
    if (s->index == 0)
        TRY(mst_coordinator_init(s));
    TRY(mst_net_new(o->engine, &o->net, &server_events, s, &s->net));
    s->bodies.net = s->net;
    TRY(server_listen(s));
    if (s->index != 0)
        TRY(mst_net_connect(s->net, o->servers[0], mst_now_ns() + o->start_timeout_ms * MST_MS,
                            &s->servers[0]));
    return MST_OK;
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
        server_on_doing(s, MST_NET_WAITS);
        mst_records_trace_queue(s);
        mst_records_tick(s);
        mst_server_expel_faulty(s);
        mst_body_pool_trim(&s->bodies, mst_now_ns());
        mst_server_end_drains(s);
        mst_cut_check_markers(s);
        mst_replica_tick(s);
        if (st == MST_OK && !s->over && s->co != NULL)
            st = mst_coordinator_tick(s);
        else if (st == MST_OK && !s->over)
            mst_server_setup_tick(s, began);
        if (st != MST_OK)
            mst_server_fail(s, st);
    }
    if (s->co != NULL && s->net != NULL)
        mst_coordinator_broadcast_end(s);
    bool again = s->end.code == MST_EAGAIN;
    if (s->co == NULL && s->end.code != MST_OK && !again && s->setup.up)
        (void)mst_ps_send_error(s->net, s->servers[0], MST_PS_FAIL, &s->end);
    if (s->store != NULL && mst_is_sync(s))
        mst_log(MST_LOG_DEBUG, "server %" PRIu32 " averaged %" PRIu64 " steps; sets %016" PRIx64, s->index,
                s->steps.applied, s->steps.set_hash);
    mst_spans_detach();
    if (again && s->co == NULL && s->setup.ready) {
        mst_server_kept_fini(s->options.kept);
        if (mst_replica_keep(s, &s->options.kept->replica) == MST_OK) {
            memcpy(s->options.kept->key, s->pass_key, sizeof s->pass_key);
            s->options.kept->steps = s->steps.applied;
        }
    }
    if (!again)
        mst_records_send_last(s);
    if (s->net != NULL)
        mst_net_flush(s->net, mst_now_ns() + FLUSH_NS);
    if (!again)
        mst_records_await_last(s);
    mst_error end = s->end;
    server_fini(s);
    mst_free(s);
    return end.code == MST_OK ? MST_OK : mst_error_restore(&end);
}
