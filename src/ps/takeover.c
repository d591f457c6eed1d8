/* The coordinator's part of copies; contract in takeover.h. */
#include "ps/takeover.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "ps/coordinator_impl.h"

#define PATIENCE 6 /* a part of --start-timeout, for the other servers to join the successor of server 0 */

static mst_takeover_server *takeover_server(const mst_server *s, uint32_t server)
{
    return &s->co->takeover.servers[server];
}

mst_status mst_takeover_init(mst_server *s)
{
    s->co->takeover.servers = mst_calloc(s->options.n_servers, sizeof *s->co->takeover.servers);
    return s->co->takeover.servers == NULL ? mst_fail_memory() : MST_OK;
}

void mst_takeover_fini(mst_server *s)
{
    for (uint32_t i = 0; s->co->takeover.servers != NULL && i < s->options.n_servers; i++)
        json_decref(takeover_server(s, i)->kept);
    mst_free(s->co->takeover.servers);
    mst_placement_fini(&s->co->takeover.base);
}

mst_status mst_takeover_placed(mst_server *s)
{
    for (uint32_t i = 0; i < s->options.n_servers; i++)
        takeover_server(s, i)->applied = s->steps.applied;
    return s->co->takeover.recalled ? MST_OK : mst_placement_copy(&s->table, &s->co->takeover.base);
}

const mst_placement *mst_takeover_base(const mst_server *s)
{
    return &s->co->takeover.base;
}

/* ---- the roster ---- */

bool mst_roster_lacks(const mst_server *s, uint32_t server)
{
    return takeover_server(s, server)->absent;
}

mst_status mst_roster_send(mst_server *s, const mst_message *m, const mst_piece *body)
{
    for (uint32_t i = 1; i < s->options.n_servers; i++)
        if (!mst_roster_lacks(s, i) && s->servers[i] != MST_PEER_NONE)
            TRY(mst_unless_gone(mst_net_send(s->net, s->servers[i], m, body, body != NULL, NULL)));
    return MST_OK;
}

uint32_t mst_roster_count(const mst_server *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->options.n_servers; i++)
        n += !mst_roster_lacks(s, i);
    return n;
}

bool mst_takeover_under_way(const mst_server *s)
{
    return s->co->takeover.under_way;
}

json_t *mst_takeover_job(const mst_server *s)
{
    json_t *job = json_copy(s->options.job), *absent = json_array();
    for (uint32_t i = 0; i < s->options.n_servers; i++)
        if (mst_roster_lacks(s, i))
            json_array_append_new(absent, json_integer(i));
    if (job == NULL || json_object_set_new(job, "absent", absent) != 0) {
        json_decref(job);
        return NULL;
    }
    return job;
}

bool mst_takeover_ignores(const mst_server *s, uint32_t server, uint16_t type)
{
    bool of_roster = type == MST_PS_GONE || type == MST_PS_MEMBER || type == MST_PS_FLOATS ||
                     type == MST_PS_SAVED || type == MST_PS_APPLIED;
    return of_roster && s->co->takeover.under_way && !takeover_server(s, server)->current;
}

/* The pair has whole copies of each other's floats, which can return to the coordinator's step. */
static bool takeover_pair_is_whole(const mst_server *s, uint32_t server)
{
    for (uint32_t i = server & ~1u; i <= (server | 1u); i++) {
        const mst_takeover_server *t = takeover_server(s, i);
        if (t->absent || !t->copied || (mst_is_sync(s) && t->copy_step > s->steps.applied))
            return false;
    }
    return true;
}

static mst_status takeover_send_roster(mst_server *s, uint32_t server, uint32_t roster,
                                       const mst_placement *table, bool whole)
{
    return mst_unless_gone(
        mst_ps_send_json(s->net, s->servers[server], &(mst_message){.type = MST_PS_ROSTER},
                         json_pack("{s:I, s:o, s:I, s:I, s:b}", "roster", (json_int_t)roster, "table",
                                   mst_placement_json(table), "steps", (json_int_t)s->steps.applied, "cut",
                                   (json_int_t)s->cut.number, "copied", (int)whole)));
}

static void takeover_check_rosters(mst_server *s)
{
    for (uint32_t i = 1; i < s->options.n_servers; i++)
        if (!mst_roster_lacks(s, i) && !takeover_server(s, i)->current)
            return;
    s->co->takeover.under_way = false;
}

/* All workers join again, and continue after the coordinator's step. */
static mst_status takeover_regroup(mst_server *s)
{
    mst_coordinator *co = s->co;
    uint64_t now = mst_now_ns();
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        mst_job_member *m = &co->members[w];
        TRY(mst_rows_return(s, w));
        m->joined = m->announced = m->leaving = m->welcomed = m->done = m->stop_sent = false;
        m->lost_ns = now;
        if (m->n_joins > 0)
            m->first_step = s->steps.applied + 1;
    }
    co->pace.closed_ns = co->outcome.alone_ns = now;
    return MST_OK;
}

/* Changes the roster to the servers that are not absent. Their ROSTER leaves before the workers are informed,
 * so that a worker that joins again finds the new roster. */
static mst_status takeover_change(mst_server *s, const char *why)
{
    mst_takeover *t = &s->co->takeover;
    mst_placement table;
    uint32_t roster = s->replica.roster + 1;
    TRY(mst_placement_copy(&t->base, &table));
    for (uint32_t i = 0; i < s->options.n_servers; i++)
        if (t->servers[i].absent || t->servers[i].moved)
            mst_placement_move(&table, i, i ^ 1u);
    t->under_way = true;
    t->realign[0] = '\0';
    mst_status st = MST_OK;
    bool own = false;
    for (uint32_t i = 0; i < s->options.n_servers && st == MST_OK; i++) {
        bool whole = takeover_pair_is_whole(s, i);
        t->servers[i].current = i == 0;
        t->servers[i].applied = s->steps.applied;
        own = i == 0 ? whole : own;
        if (i > 0 && !t->servers[i].absent)
            st = takeover_send_roster(s, i, roster, &table, whole);
    }
    for (uint32_t i = 0; i < s->options.n_servers; i += 2) {
        bool whole = takeover_pair_is_whole(s, i);
        for (uint32_t k = i; k <= i + 1; k++) {
            t->servers[k].copied = whole;
            t->servers[k].copy_step = s->steps.applied;
        }
    }
    if (st == MST_OK)
        st = mst_cuts_interrupt(s);
    if (st == MST_OK)
        st = takeover_regroup(s);
    if (st == MST_OK)
        st = mst_replica_set_roster(s, roster, &table, s->steps.applied, s->cut.number, own, why);
    mst_placement_fini(&table);
    takeover_check_rosters(s);
    return st;
}

mst_status mst_takeover_took_roster(mst_server *s, uint32_t server, uint32_t roster)
{
    if (roster != s->replica.roster || mst_roster_lacks(s, server))
        return MST_OK;
    takeover_server(s, server)->current = true;
    takeover_check_rosters(s);
    return mst_coordinator_advance(s);
}

/* ---- losses ---- */

bool mst_takeover_can(const mst_server *s, uint32_t server)
{
    const mst_takeover_server *t = s->replica.on ? takeover_server(s, server) : NULL;
    uint32_t partner = server ^ 1u;
    if (t == NULL || s->co->phase != MST_JOB_RUN || !t->copied || mst_roster_lacks(s, partner) ||
        (mst_is_sync(s) && t->copy_step > s->steps.applied))
        return false;
    return partner == 0 || s->servers[partner] != MST_PEER_NONE;
}

mst_status mst_takeover_begin(mst_server *s, uint32_t server, const char *why)
{
    mst_join_server *joins = &s->co->joins.servers[server];
    mst_free(joins->owned.extents);
    *joins = (mst_join_server){0};
    takeover_server(s, server)->absent = true;
    takeover_server(s, server ^ 1u)->moved = false; /* its copy has its own floats too */
    mst_warn("%s; server %" PRIu32 " has a copy of its weights and continues in its place%s; until server "
             "%" PRIu32 " is started again, the weights of server %" PRIu32 " have no copy",
             why, server ^ 1u, mst_is_sync(s) ? ", and nothing is lost" : "; updates on their way are lost",
             server, server ^ 1u);
    s->hooks->event(s->hooks->arg, &(mst_server_event){.kind = MST_SERVER_TAKEOVER});
    return takeover_change(s, why);
}

void mst_takeover_lost(mst_server *s, uint32_t server, const char *why)
{
    mst_join_server *joins = &s->co->joins.servers[server];
    mst_free(joins->owned.extents);
    *joins = (mst_join_server){0};
    takeover_server(s, server ^ 1u)->copied = false;
    mst_warn("%s; the job continues, and the weights of server %" PRIu32 " have no copy", why, server ^ 1u);
}

bool mst_takeover_realign(mst_server *s, const char *why)
{
    if (!s->replica.on || !mst_is_sync(s) || s->co->phase != MST_JOB_RUN)
        return false;
    snprintf(s->co->takeover.realign, sizeof s->co->takeover.realign, "%s", why);
    return true;
}

/* ---- successors ---- */

void mst_takeover_ready(mst_server *s, uint32_t server)
{
    if (mst_roster_lacks(s, server))
        mst_info("server %" PRIu32 " was started again and receives a copy of the weights of server %" PRIu32,
                 server, server ^ 1u);
}

mst_status mst_takeover_copied(mst_server *s, uint32_t server, uint32_t roster, uint64_t step)
{
    mst_takeover_server *t = takeover_server(s, server);
    if (roster != s->replica.roster)
        return MST_OK;
    t->copied = true;
    t->copy_step = step;
    if (!mst_roster_lacks(s, server ^ 1u) && takeover_server(s, server ^ 1u)->copied)
        mst_info("server %" PRIu32 " and server %" PRIu32 " have copies of each other's weights",
                 server & ~1u, server | 1u);
    return MST_OK;
}

/* A server that takes no part, is connected, and has a copy of its partner's floats, its own included;
 * UINT32_MAX: there is none. */
static uint32_t takeover_returning(const mst_server *s)
{
    for (uint32_t i = 0; i < s->options.n_servers; i++) {
        const mst_takeover_server *other = takeover_server(s, i ^ 1u);
        bool waits =
            mst_roster_lacks(s, i) && s->servers[i] != MST_PEER_NONE && s->co->joins.servers[i].ready;
        if ((waits || takeover_server(s, i)->moved) && other->copied &&
            (!mst_is_sync(s) || other->copy_step <= s->steps.applied))
            return i;
    }
    return UINT32_MAX;
}

mst_status mst_takeover_tick(mst_server *s)
{
    mst_coordinator *co = s->co;
    if (!s->replica.on || co->phase != MST_JOB_RUN || co->takeover.under_way)
        return MST_OK;
    if (co->takeover.realign[0] != '\0') {
        char why[sizeof co->takeover.realign];
        snprintf(why, sizeof why, "%s", co->takeover.realign);
        mst_warn("%s; all servers return to step %" PRIu64 ", and nothing is lost", why, s->steps.applied);
        return takeover_change(s, why);
    }
    uint32_t server = takeover_returning(s);
    if (server == UINT32_MAX || mst_cuts_under_way(&co->cuts))
        return MST_OK;
    char why[96];
    snprintf(why, sizeof why, "server %" PRIu32 " %s", server,
             server == 0 ? "has its weights again" : "takes part again");
    takeover_server(s, server)->absent = takeover_server(s, server)->moved = false;
    takeover_server(s, server)->copied = true; /* by the server that owned its floats meanwhile */
    takeover_server(s, server)->copy_step = s->steps.applied;
    if (server > 0)
        s->hooks->event(
            s->hooks->arg,
            &(mst_server_event){.kind = MST_SERVER_JOIN, .role = MST_ROLE_SERVER, .index = server});
    TRY(takeover_change(s, why));
    TRY(mst_replica_send_run(s));
    mst_info("%s; servers %" PRIu32 " and %" PRIu32 " have copies of each other's weights", why, server & ~1u,
             server | 1u);
    return MST_OK;
}

/* ---- synchronous steps ---- */

mst_status mst_takeover_applied(mst_server *s, uint32_t server, uint32_t roster, uint64_t step)
{
    mst_takeover_server *t = takeover_server(s, server);
    if (!mst_is_sync(s) || roster != s->replica.roster || mst_roster_lacks(s, server))
        return MST_OK;
    if (step != t->applied + 1)
        return mst_fail(MST_EPEER, "step %" PRIu64 " is applied after step %" PRIu64, step, t->applied);
    t->applied = step;
    return mst_steps_try_close(s);
}

bool mst_takeover_may_apply(const mst_server *s, uint64_t step)
{
    for (uint32_t i = 1; s->replica.on && i < s->options.n_servers; i++)
        if (!mst_roster_lacks(s, i) && takeover_server(s, i)->applied < step)
            return false;
    return true;
}

/* ---- the successor of server 0 ---- */

void mst_takeover_progress(const mst_server *s, uint64_t *at)
{
    const mst_progress *p = &s->co->progress;
    at[0] = p->rows;
    at[1] = p->epoch;
    at[2] = p->position;
}

json_t *mst_takeover_state(const mst_server *s)
{
    json_t *plan = mst_rows_json(s);
    if (mst_is_sync(s) &&
        json_object_size(plan) > 0) { /* rows in several places: it changes with every step */
        json_decref(plan);
        return NULL;
    }
    if (s->hooks->count(s->hooks->arg, mst_coordinator_workers(s)) != MST_OK) {
        json_decref(plan);
        return NULL;
    }
    return json_pack("{s:o, s:o}", "log", s->hooks->state(s->hooks->arg), "plan", plan);
}

static const char *takeover_key_of(const mst_server *s, uint32_t server)
{
    const char *key = json_string_value(json_object_get(takeover_server(s, server)->kept, "key"));
    return key != NULL && strlen(key) < MST_PASS_KEY ? key : "";
}

void mst_takeover_joined(mst_server *s, uint32_t server, const json_t *join)
{
    mst_takeover_server *t = takeover_server(s, server);
    if (!s->replica.on || s->co->phase != MST_JOB_START)
        return;
    json_decref(t->kept);
    t->kept = json_incref(json_object_get(join, "kept"));
    if (s->co->takeover.recalled && strcmp(takeover_key_of(s, server), s->pass_key) != 0)
        mst_coordinator_roll_back(s, "a server was lost while the job started again");
}

static bool takeover_lacks_servers(const mst_server *s, const json_t *join)
{
    const mst_coordinator *co = s->co;
    if (!s->replica.on || co->phase != MST_JOB_START || co->joins.first != NULL ||
        json_object_get(join, "continues") == NULL ||
        mst_now_ns() - co->joins.began_ns > s->options.start_timeout_ms * MST_MS / PATIENCE)
        return false;
    for (uint32_t i = 1; i < s->options.n_servers; i++)
        if (!co->joins.servers[i].joined)
            return true;
    return false;
}

bool mst_takeover_awaits(mst_server *s, uint32_t worker, const json_t *join)
{
    if (!takeover_lacks_servers(s, join))
        return false;
    mst_server_refuse(s, s->workers[worker].peer, mst_fail(MST_EAGAIN, "waiting for all servers to join"));
    s->workers[worker].peer = MST_PEER_NONE;
    return true;
}

/* Whether the server can continue from the step. */
static bool takeover_can_return(const mst_server *s, uint32_t server, json_int_t step)
{
    const json_t *kept = takeover_server(s, server)->kept;
    json_int_t steps = json_integer_value(json_object_get(kept, "steps"));
    if (takeover_key_of(s, server)[0] == '\0' ||
        strcmp(takeover_key_of(s, server), takeover_key_of(s, 1)) != 0 ||
        !json_is_true(json_object_get(kept, "owns"))) /* a successor that waited for its copy */
        return false;
    return !mst_is_sync(s) || steps == step ||
           (steps == step + 1 && json_is_true(json_object_get(kept, "undo")));
}

/* The state of the copy of server 0, if all servers can continue from it; NULL: the run continues from a
 * checkpoint. Borrowed. */
static json_t *takeover_recall(mst_server *s)
{
    mst_takeover *t = &s->co->takeover;
    json_t *copy = s->replica.on ? json_object_get(takeover_server(s, 1)->kept, "copy") : NULL;
    const json_t *step = json_object_get(copy, "step");
    if (step == NULL)
        return NULL;
    for (uint32_t i = 1; i < s->options.n_servers; i++)
        if (!takeover_can_return(s, i, json_integer_value(step)))
            return NULL;
    if (mst_placement_from_json(&t->base, json_object_get(copy, "table")) != MST_OK)
        return NULL;
    for (uint32_t i = 0; i < s->options.n_servers; i++) /* none was absent */
        if (t->base.n_servers != s->options.n_servers || !mst_placement_has(&t->base, i)) {
            mst_placement_fini(&t->base);
            return NULL;
        }
    memcpy(s->pass_key, takeover_key_of(s, 1), strlen(takeover_key_of(s, 1)) + 1);
    t->recalled = t->servers[0].moved = true;
    return copy;
}

mst_status mst_takeover_open(mst_server *s, const json_t *join, mst_server_start *start)
{
    json_t *recalled = takeover_recall(s), *with = recalled != NULL ? json_copy((json_t *)join) : NULL;
    if (recalled == NULL)
        return s->hooks->open(s->hooks->arg, join, start);
    mst_status st = with != NULL && json_object_set(with, "recalled", recalled) == 0
                        ? s->hooks->open(s->hooks->arg, with, start)
                        : mst_fail_memory();
    json_decref(with);
    if (st == MST_OK && !start->recalled) { /* the copy is older than the last checkpoint */
        s->co->takeover.recalled = takeover_server(s, 0)->moved = false;
        mst_placement_fini(&s->co->takeover.base);
    }
    return st;
}

mst_status mst_takeover_place(mst_server *s)
{
    TRY(mst_placement_copy(&s->co->takeover.base, &s->table));
    mst_placement_move(&s->table, 0, 1);
    if (s->table.size != s->model.params->size)
        return mst_fail(MST_EPEER, "server 1 has a model of another size");
    return MST_OK;
}
