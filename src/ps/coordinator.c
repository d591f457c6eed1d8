/* The coordinator's start-up and membership (server.h): who joins, who fits, who is lost.
 *
 * The first worker to join brings the model's shape: from it the store is made and the run is opened. Once
 * all workers that are needed have joined, the keys that the one with the lowest index sampled make the
 * partition table, so that the table does not depend on the order of joins, and the other servers are set up.
 * Training begins when all servers are ready; an asynchronous job takes further workers whenever they come.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "ps/coordinator_impl.h"

#define PART_FLOATS    (1u << 18) /* 1 MB: a piece of a restored store */
#define RESTORE_WINDOW 4          /* pieces on their way to one server */

mst_status mst_coordinator_new(mst_server *s, mst_coordinator **out)
{
    mst_coordinator *co = mst_zalloc(sizeof *co);
    if (co == NULL)
        return mst_fail_memory();
    co->members = mst_calloc(s->options.n_workers, sizeof *co->members);
    co->server_joined = mst_calloc(s->options.n_servers, sizeof *co->server_joined);
    co->server_ready = mst_calloc(s->options.n_servers, sizeof *co->server_ready);
    co->restores = mst_calloc(s->options.n_servers, sizeof *co->restores);
    co->n_workers = s->options.n_workers;
    co->n_servers = s->options.n_servers;
    if (co->members == NULL || co->server_joined == NULL || co->server_ready == NULL ||
        co->restores == NULL) {
        mst_coordinator_destroy(co);
        return mst_fail_memory();
    }
    co->began_ns = co->said_ns = mst_now_ns();
    co->chief = UINT32_MAX;
    co->evaluated_step = co->saved_step = UINT64_MAX;
    co->early_tail = &co->early;
    *out = co;
    return MST_OK;
}

void mst_coordinator_destroy(mst_coordinator *co)
{
    if (co == NULL)
        return;
    mst_work_fini(co);
    for (uint32_t w = 0; co->members != NULL && w < co->n_workers; w++)
        json_decref(co->members[w].report);
    for (uint32_t i = 0; co->restores != NULL && i < co->n_servers; i++)
        mst_free(co->restores[i].owned);
    mst_free(co->restores);
    while (co->early != NULL) {
        mst_early_part *early = co->early;
        co->early = early->next;
        mst_free(early->body);
        mst_free(early);
    }
    json_decref(co->first_join);
    json_decref(co->sample);
    json_decref(co->start.plan);
    mst_free(co->members);
    mst_free(co->server_joined);
    mst_free(co->server_ready);
    mst_free(co);
}

mst_status mst_coordinator_up(mst_server *s, uint32_t peer)
{
    if (s->co->phase >= MST_JOB_STOP)
        return mst_fail(MST_EPEER, "the job is ending: too late to join");
    return mst_ps_send_json(s->net, peer, &(mst_message){.type = MST_PS_JOB}, json_incref(s->options.job));
}

/* ---- the first worker ---- */

static mst_status read_sample(const json_t *sample, uint32_t **out, size_t *n)
{
    const json_t *key;
    size_t i, count = json_array_size(sample);
    uint32_t *keys = mst_calloc(count + 1, sizeof *keys);
    if (keys == NULL)
        return mst_fail_memory();
    json_array_foreach((json_t *)sample, i, key) keys[i] = (uint32_t)json_integer_value(key);
    *out = keys;
    *n = count;
    return MST_OK;
}

static mst_status make_table(mst_server *s)
{
    mst_grad layout = {0};
    uint32_t *sample = NULL;
    size_t n = 0;
    TRY(read_sample(s->co->sample, &sample, &n));
    s->model.model->ops->layout(s->model.model, s->model.params, &layout);
    mst_status st = mst_placement_make(&s->table, s->model.params, &layout, s->options.n_servers, sample, n,
                                       s->options.dense_model);
    mst_free(sample);
    return st;
}

static mst_status restore_own(mst_server *s)
{
    mst_params *params = s->model.params;
    for (uint32_t slot = 0; slot <= params->n_slots; slot++)
        for (uint32_t i = 0; i < s->n_owned; i++) {
            float *to = (slot == 0 ? params->w : params->slots[slot - 1]) + s->owned[i].first;
            TRY(s->hooks->checkpoint->read(s->hooks->arg, slot, s->owned[i].first, s->owned[i].count, to));
        }
    return MST_OK;
}

/* Streams another server's floats to it, a few pieces at a time. */
static mst_status pump(mst_server *s, uint32_t server)
{
    mst_restore *r = &s->co->restores[server];
    while (r->in_flight < RESTORE_WINDOW && r->slot <= s->model.params->n_slots && r->n > 0) {
        const mst_extent *extent = &r->owned[r->extent];
        uint64_t left = extent->count - r->at, count = left < PART_FLOATS ? left : PART_FLOATS;
        mst_buffer *piece = mst_server_buffer(s, PART_FLOATS * sizeof(float));
        if (piece == NULL)
            return mst_fail_memory();
        mst_message m = {.type = MST_PS_PART, .count = r->slot, .step = extent->first + r->at};
        mst_status st =
            s->hooks->checkpoint->read(s->hooks->arg, r->slot, m.step, count, (float *)piece->data);
        if (st != MST_OK) {
            mst_server_release(s, piece);
            return st;
        }
        piece->restores = server + 1;
        TRY(mst_unless_gone(mst_server_lend(s, s->servers[server], &m, piece, count * sizeof(float))));
        r->in_flight++;
        r->at += count;
        if (r->at == extent->count) {
            r->at = 0;
            r->extent++;
        }
        if (r->extent == r->n) {
            r->extent = 0;
            r->slot++;
        }
    }
    return MST_OK;
}

void mst_coordinator_piece_sent(mst_server *s, uint32_t server)
{
    s->co->restores[server].in_flight--;
    mst_status st = pump(s, server);
    if (st != MST_OK)
        mst_server_fail(s, st);
}

static mst_status restore_server(mst_server *s, uint32_t server)
{
    mst_restore *r = &s->co->restores[server];
    r->owned = mst_calloc(s->table.n_partitions, sizeof *r->owned);
    if (r->owned == NULL)
        return mst_fail_memory();
    mst_placement_owned(&s->table, server, r->owned, &r->n);
    return pump(s, server);
}

static mst_status set_server_up(mst_server *s, uint32_t server)
{
    const mst_server_start *start = &s->co->start;
    TRY(mst_ps_send_json(s->net, s->servers[server], &(mst_message){.type = MST_PS_SETUP},
                         json_pack("{s:O, s:o, s:I, s:I}", "model",
                                   json_object_get(s->co->first_join, "model"), "table",
                                   mst_placement_json(&s->table), "steps", (json_int_t)start->at.steps,
                                   "restore", (json_int_t)start->restore)));
    return start->restore ? restore_server(s, server) : MST_OK;
}

static mst_status choose_sharding(mst_server *s, const json_t *join)
{
    mst_coordinator *co = s->co;
    const json_t *data = json_object_get(join, "data");
    bool random = json_is_true(json_object_get(data, "random"));
    json_int_t rows = json_integer_value(json_object_get(data, "rows"));
    co->sharding = !mst_is_sync(s) || mst_has_backups(s) ? MST_SHARDING_LEASES : MST_SHARDING_SLICES;
    if (s->options.shard == MST_SHARD_LOCAL)
        co->sharding = MST_SHARDING_LOCAL;
    else if (s->options.shard == MST_SHARD_STATIC || !random)
        co->sharding = MST_SHARDING_STATIC;
    bool known = co->sharding == MST_SHARDING_SLICES || co->sharding == MST_SHARDING_LEASES;
    if (known && rows <= 0)
        return mst_fail(MST_EINPUT, "the training data have no rows");
    co->progress.epoch_rows = known ? (uint64_t)rows : 0;
    return MST_OK;
}

static mst_status first_worker(mst_server *s, const json_t *join)
{
    mst_coordinator *co = s->co;
    mst_server_start *start = &co->start;
    TRY(choose_sharding(s, join));
    start->limit_steps = start->limit_rows = start->limit_epochs = UINT64_MAX;
    TRY(s->hooks->open(s->hooks->arg, join, start));
    s->model = start->model;
    co->first_join = json_incref((json_t *)join);
    co->progress = (mst_progress){.steps = start->at.steps,
                                  .rows = start->at.rows,
                                  .epoch = start->at.epoch,
                                  .position = start->at.position,
                                  .epoch_rows = co->progress.epoch_rows};
    s->applied = start->at.steps;
    return MST_OK;
}

/* Enough workers have joined: cuts the store among the servers. */
static mst_status place(mst_server *s)
{
    mst_coordinator *co = s->co;
    co->placed = true;
    TRY(make_table(s));
    TRY(mst_server_make_store(s));
    if (co->start.restore)
        TRY(restore_own(s));
    s->ready = true;
    co->server_joined[0] = co->server_ready[0] = true;
    for (uint32_t i = 1; i < s->options.n_servers; i++)
        if (co->server_joined[i])
            TRY(set_server_up(s, i));
    return mst_work_begin(s);
}

/* ---- joins ---- */

static mst_status same_json(const mst_server *s, uint32_t worker, const json_t *join, const char *key,
                            const char *what)
{
    const json_t *mine = json_object_get(s->co->first_join, key), *theirs = json_object_get(join, key);
    if (json_equal(mine, theirs))
        return MST_OK;
    const char *name;
    json_t *value, *other = NULL;
    json_object_foreach((json_t *)mine, name, value)
    {
        other = json_object_get(theirs, name);
        if (json_equal(value, other))
            continue;
        char *a = json_dumps(other, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)),
             *b = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        mst_status st = mst_fail(MST_EINPUT, "worker %" PRIu32 " has %s with %s %s, the others have %s",
                                 worker, what, name, a ? a : "?", b ? b : "?");
        free(a); /* jansson's allocation */
        free(b);
        return st;
    }
    return mst_fail(MST_EINPUT, "worker %" PRIu32 " has another %s than the others", worker, what);
}

/* The same rows in the same order are what slices and leases speak of. */
static mst_status same_data(const mst_server *s, uint32_t worker, const json_t *join)
{
    const mst_coordinator *co = s->co;
    if (co->sharding == MST_SHARDING_LOCAL)
        return MST_OK;
    return same_json(s, worker, join, "data", "data");
}

static mst_status admit(mst_server *s, uint32_t worker, const json_t *join)
{
    mst_coordinator *co = s->co;
    TRY(s->hooks->admit(s->hooks->arg, join));
    if (co->first_join == NULL) {
        mst_status st = first_worker(s, join);
        if (st != MST_OK)
            mst_server_fail(s, st); /* what does not work with the first does not work with any */
        return st;
    }
    TRY(same_json(s, worker, join, "model", "a model"));
    TRY(same_data(s, worker, join));
    if (co->phase >= MST_JOB_STOP)
        return mst_fail(MST_EPEER, "the job is ending: too late to join");
    if (co->phase == MST_JOB_RUN && co->sharding == MST_SHARDING_SLICES)
        return mst_fail(MST_EPEER,
                        "the synchronous job has begun without worker %" PRIu32 ": too late to join", worker);
    return MST_OK;
}

/* Workers without whom training does not begin: those that a step needs, or whose rows nobody else has. */
static uint32_t needed_to_start(const mst_server *s)
{
    bool shards = s->co->sharding == MST_SHARDING_STATIC || s->co->sharding == MST_SHARDING_LOCAL;
    if (s->options.all_begin)
        return s->options.n_workers;
    return mst_is_sync(s) ? s->options.quorum : shards ? s->options.n_workers : 1;
}

static mst_status maybe_start(mst_server *s)
{
    mst_coordinator *co = s->co;
    uint32_t joined = 0, need = needed_to_start(s);
    if (co->phase != MST_JOB_START || co->first_join == NULL)
        return MST_OK;
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        joined += co->members[w].joined;
    if (joined < need)
        return MST_OK;
    if (!co->placed) {
        mst_status st = place(s);
        if (st != MST_OK) {
            mst_server_fail(s, st); /* no other worker would change it */
            return MST_OK;
        }
    }
    for (uint32_t i = 0; i < s->options.n_servers; i++)
        if (!co->server_ready[i])
            return MST_OK;
    return mst_coordinator_start(s);
}

/* Keeps the sample of the worker with the lowest index. */
static void keep_sample(mst_coordinator *co, uint32_t worker, const json_t *join)
{
    if (co->placed || (co->sample != NULL && co->sampler <= worker))
        return;
    json_decref(co->sample);
    co->sample = json_incref(json_object_get(join, "sample"));
    co->sampler = worker;
}

static mst_status hear_worker_join(mst_server *s, uint32_t worker, const json_t *join)
{
    mst_coordinator *co = s->co;
    mst_member *m = &co->members[worker];
    mst_status st = m->joined ? mst_fail(MST_EPEER, "it joined twice") : admit(s, worker, join);
    if (s->over)
        return MST_OK;
    if (st != MST_OK) {
        if (s->options.all_begin) { /* nobody can come in its place */
            mst_server_fail(s, st);
            return MST_OK;
        }
        mst_warn("worker %" PRIu32 " was refused: %s", worker, mst_error_text());
        mst_server_refuse(s, s->workers[worker].peer, st);
        s->workers[worker].peer = MST_PEER_NONE;
        return MST_OK;
    }
    m->joined = true;
    m->lost = false;
    keep_sample(co, worker, join);
    mst_net_name_of(s->net, s->workers[worker].peer, m->name, sizeof m->name);
    if (co->phase == MST_JOB_RUN)
        return MST_OK; /* welcomed by the next look */
    return maybe_start(s);
}

static mst_status hear_server_join(mst_server *s, uint32_t server, const json_t *join)
{
    mst_status st = s->hooks->admit(s->hooks->arg, join);
    if (st != MST_OK) {
        mst_warn("server %" PRIu32 " was refused: %s", server, mst_error_text());
        mst_server_refuse(s, s->servers[server], st);
        s->servers[server] = MST_PEER_NONE;
        return MST_OK;
    }
    s->co->server_joined[server] = true;
    return s->co->placed ? set_server_up(s, server) : MST_OK;
}

/* ---- losses ---- */

/* Another worker evaluates from now on. */
static void replace_chief(mst_server *s)
{
    mst_coordinator *co = s->co;
    co->chief = UINT32_MAX;
    co->n_watching = 0;
    if (co->evaluating) {
        co->evaluating = false;
        co->eval_due = true;
        co->best = false;
        co->best_known = true;
    }
    for (uint32_t w = 0; w < s->options.n_workers && co->chief == UINT32_MAX; w++)
        if (mst_alive(co, w))
            co->chief = w;
    if (co->chief == UINT32_MAX)
        return;
    mst_info("worker %" PRIu32 " evaluates from now on", co->chief);
    mst_ps_send(s->net, s->workers[co->chief].peer, &(mst_message){.type = MST_PS_CHIEF});
}

/* Its push that waits counts for the next step where all are needed: other servers may have closed that step
 * with it already. With backup workers nobody has, as nothing closes before the coordinator says so. */
static mst_status lose(mst_server *s, uint32_t worker)
{
    mst_coordinator *co = s->co;
    mst_server_worker *w = &s->workers[worker];
    bool counts = w->pending && !w->exhausted && w->label == s->applied + 1 && !mst_has_backups(s);
    w->gone = true;
    w->gone_from = s->applied + 1 + counts;
    for (uint32_t i = 1; i < s->options.n_servers; i++)
        if (s->servers[i] != MST_PEER_NONE)
            TRY(mst_unless_gone(
                mst_ps_send(s->net, s->servers[i],
                            &(mst_message){.type = MST_PS_GONE, .count = worker, .step = w->gone_from})));
    mst_server_forget(s, worker);
    TRY(mst_work_lost(s, worker, w->gone_from));
    if (co->chief == worker)
        replace_chief(s);
    TRY(mst_server_try_cut(s));
    if (mst_is_sync(s))
        TRY(mst_server_try_close(s));
    return mst_coordinator_look(s);
}

const char *mst_coordinator_run_path(const mst_server *s)
{
    return s->co->start.run != NULL ? s->co->start.run : "RUN";
}

bool mst_coordinator_server_left(mst_server *s, uint32_t server, const char *why)
{
    mst_coordinator *co = s->co;
    if (co->placed)
        return false;
    co->server_joined[server] = false;
    mst_warn("%s; waiting for server %" PRIu32 " again", why, server);
    return true;
}

void mst_coordinator_lost(mst_server *s, uint32_t worker, const mst_net_loss *loss)
{
    mst_coordinator *co = s->co;
    mst_member *m = &co->members[worker];
    const char *why = loss->error.text;
    bool mattered = mst_alive(co, worker);
    m->joined = false;
    if (loss->reason == MST_NET_STOPPED)
        co->silent_s = loss->silent_s;
    if (!mattered) {
        if (co->phase == MST_JOB_START)
            mst_warn("%s; waiting for worker %" PRIu32 " again", why, worker);
        return;
    }
    m->lost = true;
    bool done = m->done && co->phase >= MST_JOB_STOP;
    s->hooks->event(s->hooks->arg,
                    &(mst_server_event){.kind = done || loss->reason == MST_NET_STOPPED ? MST_SERVER_LEAVE
                                                                                        : MST_SERVER_DEATH,
                                        .role = MST_ROLE_WORKER,
                                        .index = worker,
                                        .text = why});
    if (done)
        mst_warn("%s, after it had done its work", why);
    else
        mst_warn("%s; %s%s", why, mst_deserted(s) ? "no worker is left" : "the job continues without ",
                 mst_deserted(s)                   ? ""
                 : loss->reason == MST_NET_STOPPED ? "that worker"
                                                   : "it");
    mst_status st = lose(s, worker);
    if (st != MST_OK)
        mst_server_fail(s, st);
}

/* ---- messages ---- */

static mst_status hear_report(mst_server *s, uint32_t worker, const mst_message *m, json_t *json)
{
    mst_member *member = &s->co->members[worker];
    json_decref(member->report);
    member->report = json_incref(json);
    if (!(m->flags & MST_REPORT_LAST))
        return MST_OK;
    member->done = true;
    if (mst_has_backups(s)) /* its pushes are not waited for */
        TRY(mst_server_try_close(s));
    return mst_coordinator_look(s);
}

static mst_status hear_failure(mst_server *s, bool worker, uint32_t index, const json_t *json)
{
    const char *text = "it did not say why", *role = worker ? "worker" : "server";
    json_int_t code = MST_EPEER;
    json_unpack((json_t *)json, "{s:I, s:s}", "code", &code, "text", &text);
    if (worker && code == MST_EPEER) { /* a server that is gone is known here by itself: its link is broken */
        mst_server_expel(s, index, text);
        return MST_OK;
    }
    if (worker && code == MST_ETIMEOUT && s->co->phase == MST_JOB_START) { /* for whom is known here */
        mst_server_expel(s, index, text);
        return MST_OK;
    }
    if (code == MST_ESTOPPED && s->co->phase == MST_JOB_START)
        return mst_fail(MST_ESTOPPED, "%s %" PRIu32 " was asked to stop", role, index);
    if (code == MST_ESTOPPED) {
        s->co->stopped = true;
        s->hooks->event(s->hooks->arg, &(mst_server_event){.kind = MST_SERVER_STOP,
                                                           .role = worker ? MST_ROLE_WORKER : MST_ROLE_SERVER,
                                                           .index = index});
        return mst_coordinator_stop(s);
    }
    char who[24];
    snprintf(who, sizeof who, "%s %" PRIu32, role, index);
    mst_server_fail(s, mst_fail_lead(code > 0 && code <= MST_EUNSUPPORTED ? (mst_status)code : MST_EPEER, who,
                                     ": %s", text));
    return MST_OK;
}

static mst_status hear_json(mst_server *s, bool worker, uint32_t index, const mst_message *m, json_t *json)
{
    switch (m->type) {
    case MST_PS_JOIN:
        return worker ? hear_worker_join(s, index, json) : hear_server_join(s, index, json);
    case MST_PS_FAIL:
        return hear_failure(s, worker, index, json);
    case MST_PS_REPORT:
        return worker ? hear_report(s, index, m, json) : MST_OK;
    default:
        return worker && index == s->co->chief ? mst_coordinator_hear_result(s, m, json) : MST_OK;
    }
}

mst_status mst_coordinator_message(mst_server *s, uint32_t peer, const mst_message *m, const void *body)
{
    mst_coordinator *co = s->co;
    bool worker = s->peers[peer].kind == MST_PEER_WORKER;
    uint32_t index = s->peers[peer].index;
    json_t *json = NULL;
    mst_status st;
    switch (m->type) {
    case MST_PS_JOIN:
    case MST_PS_FAIL:
    case MST_PS_REPORT:
    case MST_PS_EVAL_RESULT:
        TRY(mst_ps_json(m, body, &json));
        st = hear_json(s, worker, index, m, json);
        json_decref(json);
        return st;
    case MST_PS_WANT:
        return worker ? mst_work_wanted(s, index, m) : MST_OK;
    case MST_PS_READY:
        if (!worker && m->flags & MST_READY_WATCHES)
            return mst_coordinator_watches(s, m->count);
        if (worker)
            return mst_fail(MST_EPEER, "READY, which a worker never sends");
        co->server_ready[index] = true;
        return maybe_start(s);
    case MST_PS_PART:
    case MST_PS_SAVED:
        return worker ? mst_fail(MST_EPEER, "%s, which a worker never sends", mst_ps_type_name(m->type))
                      : mst_coordinator_hear_part(s, m, body);
    case MST_PS_GONE:
        if (!worker && m->count < s->options.n_workers && mst_alive(co, m->count)) {
            char why[128];
            snprintf(why, sizeof why, "server %" PRIu32 " %s worker %" PRIu32, index,
                     m->flags & MST_GONE_SILENT ? "has received nothing for too long from"
                                                : "has lost its connection to",
                     m->count);
            mst_server_expel(s, m->count, why);
        }
        return MST_OK;
    default:
        return mst_fail(MST_EPEER, "%s, which the coordinator never hears", mst_ps_type_name(m->type));
    }
}

/* ---- waiting for who must join ---- */

static void name_missing(const mst_server *s, char *out, size_t size)
{
    const mst_coordinator *co = s->co;
    size_t n = 0;
    unsigned named = 0, more = 0;
    uint32_t need = mst_is_sync(s) ? s->options.n_workers : needed_to_start(s);
    out[0] = 0;
    for (uint32_t i = 1; i < s->options.n_servers; i++)
        if (!co->server_joined[i] && (named++ < 8 || !++more))
            n += (size_t)snprintf(out + n, size - n, "%sserver %" PRIu32 " at %.80s", n ? ", " : "", i,
                                  s->options.servers[i]);
    for (uint32_t w = 0; w < s->options.n_workers && (need > 1 || co->first_join == NULL); w++)
        if (!co->members[w].joined && named++ < 8)
            n += (size_t)snprintf(out + n, size - n, "%sworker %" PRIu32, n ? ", " : "", w);
    if (named > 8)
        snprintf(out + n, size - n, " and %u more", named - 8);
    if (named == 0)
        snprintf(out, size, "servers to be ready");
}

void mst_coordinator_watch(mst_server *s)
{
    mst_coordinator *co = s->co;
    char missing[MST_ERROR_MAX - 128];
    uint64_t now = mst_now_ns(), waited = now - co->began_ns;
    if (s->options.stop != NULL && atomic_load(s->options.stop)) {
        mst_server_fail(s, mst_fail_lead(MST_ESTOPPED, "stopped", " before training began"));
        return;
    }
    name_missing(s, missing, sizeof missing);
    if (waited > s->options.start_timeout_ms * MST_MS)
        mst_server_fail(s, mst_fail(MST_ETIMEOUT, "waited %" PRIu32 " s for %s",
                                    s->options.start_timeout_ms / 1000, missing));
    else if (waited > MST_S && now - co->said_ns > (co->said_ns == co->began_ns ? MST_S : 5 * MST_S)) {
        mst_info("waiting for %s", missing);
        co->said_ns = now;
    }
}
