/* Servers for tests of a worker: real shards on real nets (inproc), with a coordinator that follows a script.
 * One thread serves all of them; what it records is the test's once the thread is joined. */
#ifndef MST_TESTS_SCRIPTED_SERVERS_H
#define MST_TESTS_SCRIPTED_SERVERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "net/net.h"
#include "ps/store.h"
#include "ps/worker.h"
#include "train/assembly.h"

#define SCRIPT_SERVERS 2
#define SCRIPT_PUSHES  4096

typedef struct script script;

typedef struct script_push {
    uint64_t step;
    uint32_t rows, flags;
    double loss;
    bool alone; /* without a pull */
} script_push;

struct script {
    /* ---- the script ---- */
    uint32_t n_servers;
    const mst_work *first; /* work sent with the welcome */
    uint32_t n_first;
    bool dense_model, silent_welcome, chief;
    const char *refusal; /* of the JOIN */
    /* Coordinator: a push is here. May drop it, add a work item to the reply (kind 0: none), or hold the
     * reply back. */
    void (*pushed)(script *s, const script_push *push, bool *drop, mst_work *trailer);
    void (*wanted)(script *s, const mst_message *m);
    void (*evaluated)(script *s, uint32_t cut, const json_t *result);
    void (*tick)(script *s); /* again and again */
    uint64_t die_after;      /* pushes after which server 1 goes away */
    bool mute_after_death;   /* the coordinator has no word about it */
    mst_status end_code;
    const char *end_text;
    bool mute; /* answers no STEP */

    /* ---- what the servers have ---- */
    mst_assembly assembly;
    mst_optimizer optimizer;
    mst_placement table;
    mst_store *shards[SCRIPT_SERVERS];
    mst_net *nets[SCRIPT_SERVERS];
    uint32_t peers[SCRIPT_SERVERS];
    char names[SCRIPT_SERVERS][64];
    const char *addresses[SCRIPT_SERVERS];
    uint8_t *bodies[SCRIPT_SERVERS], *reply;
    uint64_t applied[SCRIPT_SERVERS];
    bool pending_drop; /* the coordinator's decision for the push, as the other server applies it */

    /* ---- what happened ---- */
    script_push pushes[SCRIPT_PUSHES];
    uint32_t n_pushes, n_wants, n_ended_wants, n_last_reports, n_marks[SCRIPT_SERVERS], n_lists;
    uint32_t mark_count;
    uint64_t mark_step;
    json_t *join, *report, *fail, *result;
    uint64_t watched_bytes;
    pthread_t thread;
    atomic_bool quit;
};

typedef struct script_end {
    script *s;
    uint32_t server;
} script_end;

static script_end script_ends[SCRIPT_SERVERS];

static inline void script_must(mst_status st, const char *what)
{
    if (st != MST_OK && st != MST_EPEER) { /* a worker may leave at any time */
        fprintf(stderr, "script: %s: %s\n", what, mst_error_text());
        abort();
    }
}
#define SCRIPT_MUST(call) script_must(call, #call)

static inline void script_work(script *s, const mst_work *items, uint32_t n)
{
    uint8_t body[MST_WORK_SIZE * 64];
    for (uint32_t i = 0; i < n; i++)
        mst_work_encode(&items[i], body + (size_t)i * MST_WORK_SIZE);
    mst_message m = {.type = MST_PS_WORK};
    SCRIPT_MUST(
        mst_net_send(s->nets[0], s->peers[0], &m, &(mst_piece){body, (size_t)n * MST_WORK_SIZE}, 1, NULL));
}

static inline void script_plain(script *s, uint16_t type, uint32_t count, uint32_t flags, uint64_t step)
{
    mst_message m = {.type = type, .count = count, .flags = flags, .step = step};
    SCRIPT_MUST(mst_ps_send(s->nets[0], s->peers[0], &m));
}

static inline void script_end_job(script *s, mst_status code, const char *text)
{
    mst_message m = {.type = MST_PS_END};
    SCRIPT_MUST(mst_ps_send_json(s->nets[0], s->peers[0], &m,
                                 json_pack("{s:i, s:s}", "code", (int)code, "text", text ? text : "")));
}

static void script_up(void *arg, uint32_t peer, const mst_identity *who)
{
    script_end *e = arg;
    (void)who;
    e->s->peers[e->server] = peer;
    if (e->server == 0) {
        mst_message m = {.type = MST_PS_JOB};
        SCRIPT_MUST(mst_ps_send_json(e->s->nets[0], peer, &m, json_pack("{s:s}", "job", "scripted")));
    }
}

static void script_down(void *arg, uint32_t peer, const mst_net_loss *why)
{
    script_end *e = arg;
    (void)why;
    if (e->s->peers[e->server] == peer)
        e->s->peers[e->server] = MST_PEER_NONE;
}

static mst_status script_body(void *arg, uint32_t peer, const mst_message *m, void **out)
{
    script_end *e = arg;
    (void)peer;
    free(e->s->bodies[e->server]);
    *out = e->s->bodies[e->server] = malloc(m->size);
    return MST_OK;
}

static inline void script_keep(json_t **at, const mst_message *m, const void *body)
{
    json_decref(*at);
    *at = NULL;
    SCRIPT_MUST(mst_ps_json(m, body, at));
}

static inline void script_welcome(script *s)
{
    if (s->refusal != NULL) {
        mst_net_drop(s->nets[0], s->peers[0], s->refusal);
        s->peers[0] = MST_PEER_NONE;
        return;
    }
    if (s->silent_welcome)
        return;
    mst_message m = {.type = MST_PS_WELCOME};
    SCRIPT_MUST(mst_ps_send_json(
        s->nets[0], s->peers[0], &m,
        json_pack("{s:o, s:i, s:s}", "table", mst_placement_json(&s->table), "step", 0, "run", "scripted")));
    if (s->n_first > 0)
        script_work(s, s->first, s->n_first);
    if (s->chief)
        script_plain(s, MST_PS_CHIEF, 0, 0, 0);
}

static inline void script_step(script *s, uint32_t server, const mst_message *m, const void *body)
{
    mst_store_request r;
    mst_work trailer = {0};
    bool drop = false;
    SCRIPT_MUST(mst_store_read(s->shards[server], 0, m, body, NULL, NULL, &r));
    if (s->mute)
        return;
    if (server == 0 && (m->flags & MST_STEP_PUSH)) {
        script_push *p = &s->pushes[s->n_pushes++];
        if (s->n_pushes == SCRIPT_PUSHES)
            abort();
        *p = (script_push){m->step, r.head.rows, m->flags, r.head.loss, !(m->flags & MST_STEP_PULL)};
        if (s->pushed != NULL)
            s->pushed(s, p, &drop, &trailer);
    }
    if ((m->flags & MST_STEP_PUSH) && !drop) {
        const mst_store_request *one = &r;
        mst_update u = {.lr = (float)s->optimizer.options.lr, .step = ++s->applied[server]};
        SCRIPT_MUST(mst_store_apply(s->shards[server], &one, 1, &u));
    }
    if (s->peers[server] == MST_PEER_NONE || s->mute) /* the script has let the worker go */
        return;
    size_t size = r.pulled != NULL ? mst_store_reply_size(s->shards[server], &r) : 0;
    s->reply = realloc(s->reply, size + MST_WORK_SIZE);
    if (size > 0)
        mst_store_reply(s->shards[server], &r, s->reply);
    mst_message v = {.type = MST_PS_VALUES,
                     .flags = (drop ? MST_VALUES_DROPPED : 0) | (trailer.kind != 0 ? MST_VALUES_WORK : 0),
                     .request = m->request,
                     .step = s->applied[server]};
    if (trailer.kind != 0) {
        mst_work_encode(&trailer, s->reply + size);
        size += MST_WORK_SIZE;
    }
    SCRIPT_MUST(
        mst_net_send(s->nets[server], s->peers[server], &v, &(mst_piece){s->reply, size}, size > 0, NULL));
}

/* The worker has marked: the watched values leave. */
static inline void script_values(script *s, uint32_t server, uint32_t cut)
{
    size_t size = mst_store_eval_size(s->shards[server]);
    s->reply = realloc(s->reply, size + 1);
    if (size > 0)
        mst_store_eval_values(s->shards[server], s->reply);
    s->watched_bytes += size;
    mst_message m = {.type = MST_PS_EVAL_VALUES, .count = cut};
    SCRIPT_MUST(
        mst_net_send(s->nets[server], s->peers[server], &m, &(mst_piece){s->reply, size}, size > 0, NULL));
}

static mst_status script_message(void *arg, uint32_t peer, const mst_message *m, void *body)
{
    script_end *e = arg;
    script *s = e->s;
    (void)peer;
    switch (m->type) {
    case MST_PS_JOIN:
        script_keep(&s->join, m, body);
        script_welcome(s);
        break;
    case MST_PS_STEP:
        script_step(s, e->server, m, body);
        break;
    case MST_PS_WANT:
        s->n_wants++;
        s->n_ended_wants += (m->flags & 1) != 0;
        if (s->wanted != NULL)
            s->wanted(s, m);
        break;
    case MST_PS_MARKER:
        s->n_marks[e->server]++;
        s->mark_count = m->count;
        s->mark_step = m->step;
        if (s->chief)
            script_values(s, e->server, m->count);
        break;
    case MST_PS_EVAL_LIST:
        s->n_lists++;
        SCRIPT_MUST(mst_store_eval_list(s->shards[e->server], m, body));
        if (s->n_lists == s->n_servers) /* all servers know: time for a cut */
            script_plain(s, MST_PS_CUT, 1, MST_CUT_EVAL, 0);
        break;
    case MST_PS_EVAL_RESULT:
        script_keep(&s->result, m, body);
        if (s->evaluated != NULL)
            s->evaluated(s, m->count, s->result);
        break;
    case MST_PS_REPORT:
        script_keep(&s->report, m, body);
        if (m->flags & MST_REPORT_LAST) {
            s->n_last_reports++;
            script_end_job(s, s->end_code, s->end_text);
        }
        break;
    case MST_PS_FAIL:
        script_keep(&s->fail, m, body);
        if (json_integer_value(json_object_get(s->fail, "code")) == MST_ESTOPPED)
            script_plain(s, MST_PS_STOP, 0, 0, 0);
        break;
    default:
        return mst_fail(MST_EINPUT, "the script has no %s", mst_ps_type_name(m->type));
    }
    return MST_OK;
}

static void script_sent(void *arg, uint32_t peer, void *token)
{
    (void)arg;
    (void)peer;
    (void)token;
}

static void *script_main(void *arg)
{
    script *s = arg;
    while (!atomic_load(&s->quit)) {
        if (s->tick != NULL)
            s->tick(s);
        for (uint32_t i = 0; i < s->n_servers; i++) {
            if (s->nets[i] != NULL)
                SCRIPT_MUST(mst_net_poll(s->nets[i], mst_now_ns() + MST_MS / 2));
            if (i == 1 && s->die_after > 0 && s->n_pushes >= s->die_after && s->nets[1] != NULL) {
                mst_net_destroy(s->nets[1]);
                s->nets[1] = NULL;
                if (!s->mute_after_death)
                    script_end_job(s, MST_EPEER, "server 1 died; resume with --resume --run scripted");
            }
        }
    }
    return NULL;
}

static inline mst_net_options script_net_options(mst_role role, uint32_t index)
{
    return (mst_net_options){
        .self = {.role = role, .index = index, .incarnation = index + 1, .job = "script"},
        .max_body = 1u << 28,
        .max_queue = 1u << 28,
        .peer_timeout_ms = 10000,
        .hello_timeout_ms = 2000};
}

/* Starts the servers; the model's parameters are the servers' store. */
static inline void script_start(script *s, const mst_model_options *model, const mst_shape *shape)
{
    static const mst_net_events events = {script_up,      script_down, script_body,
                                          script_message, script_sent, NULL};
    static unsigned number;
    mst_grad layout = {0};
    if (s->n_servers == 0)
        s->n_servers = SCRIPT_SERVERS;
    s->optimizer.ops = mst_optimizers[0];
    if (s->optimizer.options.lr == 0.0)
        s->optimizer.options.lr = 0.5;
    SCRIPT_MUST(mst_assembly_init(&s->assembly, model, shape, mst_kernels_get(mst_isa_best()),
                                  &(mst_store_spec){0}, 1));
    s->assembly.model->ops->layout(s->assembly.model, &s->assembly.params, &layout);
    SCRIPT_MUST(
        mst_placement_make(&s->table, &s->assembly.params, &layout, s->n_servers, NULL, 0, s->dense_model));
    for (uint32_t i = 0; i < s->n_servers; i++) {
        char bound[64];
        mst_net_options net = script_net_options(MST_ROLE_SERVER, i);
        mst_store_options store = {.optimizer = &s->optimizer,
                                   .params = &s->assembly.params,
                                   .table = &s->table,
                                   .server = i,
                                   .n_workers = 1,
                                   .n_threads = 1};
        script_ends[i] = (script_end){s, i};
        s->peers[i] = MST_PEER_NONE;
        snprintf(s->names[i], sizeof s->names[i], "script-%d-%u-%u", (int)getpid(), number, i);
        s->addresses[i] = s->names[i];
        SCRIPT_MUST(mst_store_new(&store, &s->shards[i]));
        SCRIPT_MUST(mst_net_new(&mst_net_inproc, &net, &events, &script_ends[i], &s->nets[i]));
        SCRIPT_MUST(mst_net_listen(s->nets[i], s->names[i], bound, sizeof bound));
    }
    number++;
    if (pthread_create(&s->thread, NULL, script_main, s) != 0)
        abort();
}

/* Joins the thread: what it recorded may be read. */
static inline void script_join(script *s)
{
    atomic_store(&s->quit, true);
    pthread_join(s->thread, NULL);
}

static inline void script_fini(script *s)
{
    for (uint32_t i = 0; i < s->n_servers; i++) {
        mst_net_destroy(s->nets[i]);
        mst_store_destroy(s->shards[i]);
        free(s->bodies[i]);
    }
    free(s->reply);
    mst_placement_fini(&s->table);
    mst_assembly_fini(&s->assembly);
    json_decref(s->join);
    json_decref(s->report);
    json_decref(s->fail);
    json_decref(s->result);
}

#endif
