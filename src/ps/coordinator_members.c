/* The processes of a job; contract in coordinator_members.h. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/figure.h"
#include "base/log.h"
#include "ps/coordinator_impl.h"

#define FELLOWS_NS MST_S /* for which a job that could begin waits for the rest of its workers */

mst_status mst_members_init(mst_server *s)
{
    mst_join_state *joins = &s->co->joins;
    s->co->members = mst_calloc(s->options.n_workers, sizeof *s->co->members);
    joins->servers = mst_calloc(s->options.n_servers, sizeof *joins->servers);
    joins->began_ns = joins->notice_ns = mst_now_ns();
    return s->co->members == NULL || joins->servers == NULL ? mst_fail_memory() : MST_OK;
}

void mst_members_fini(mst_server *s)
{
    mst_coordinator *co = s->co;
    for (uint32_t w = 0; co->members != NULL && w < s->options.n_workers; w++) {
        json_decref(co->members[w].report);
        json_decref(co->members[w].earlier);
    }
    for (uint32_t i = 0; co->joins.servers != NULL && i < s->options.n_servers; i++)
        mst_free(co->joins.servers[i].owned.extents);
    mst_free(co->members);
    mst_free(co->joins.servers);
    json_decref(co->joins.first);
    json_decref(co->joins.sample);
}

mst_status mst_members_up(mst_server *s, uint32_t peer)
{
    if (s->over)
        return s->co->outcome.sent ? mst_coordinator_send_end(s, peer) : MST_OK; /* END follows */
    return mst_ps_send_json(s->net, peer, &(mst_message){.type = MST_PS_JOB}, mst_takeover_job(s));
}

/* ---- the partition table ---- */

static mst_status members_make_table(mst_server *s)
{
    mst_grad layout = {0};
    const json_t *key;
    size_t i, n = json_array_size(s->co->joins.sample);
    uint32_t *sample = mst_calloc(n + 1, sizeof *sample);
    if (sample == NULL)
        return mst_fail_memory();
    json_array_foreach(s->co->joins.sample, i, key) sample[i] = (uint32_t)json_integer_value(key);
    s->model.model->ops->layout(s->model.model, s->model.params, &layout);
    mst_status st = mst_placement_make(&s->table, s->model.params, &layout, s->options.n_servers, sample, n,
                                       s->options.dense_model);
    mst_free(sample);
    return st;
}

static mst_status members_set_up_server(mst_server *s, uint32_t server)
{
    bool keep = s->co->joins.servers[server].keeps ||
                (s->co->takeover.recalled && s->co->phase == MST_JOB_START),
         restore = !keep && s->co->start.restore && !mst_roster_lacks(s, server);
    if (mst_recover_under_way(s) && !keep)
        TRY(mst_recover_open(s, server, &restore));
    TRY(mst_unless_gone(mst_ps_send_json(
        s->net, s->servers[server], &(mst_message){.type = MST_PS_SETUP},
        json_pack("{s:O, s:o, s:I, s:I, s:I, s:b, s:s}", "model",
                  json_object_get(s->co->joins.first, "model"), "table", mst_placement_json(&s->table),
                  "steps", (json_int_t)s->steps.applied, "roster", (json_int_t)s->replica.roster, "restore",
                  (json_int_t)restore, "keep", (int)keep, "pass_key", s->pass_key))));
    if (!restore)
        return MST_OK;
    TRY(mst_placement_owned(&s->table, server, &s->co->joins.servers[server].owned));
    return mst_recover_send(s, server);
}

/* Enough workers have joined: divides the vector among the servers. */
static mst_status members_place(mst_server *s)
{
    mst_coordinator *co = s->co;
    co->joins.placed = true;
    TRY(co->takeover.recalled ? mst_takeover_place(s) : members_make_table(s));
    TRY(mst_server_make_store(s));
    if (co->start.restore)
        TRY(mst_recover_own(s));
    s->setup.ready = true;
    TRY(mst_takeover_placed(s));
    TRY(mst_replica_begin(s));
    co->joins.servers[0].joined = co->joins.servers[0].ready = true;
    for (uint32_t i = 1; i < s->options.n_servers; i++)
        if (co->joins.servers[i].joined)
            TRY(members_set_up_server(s, i));
    return mst_rows_begin(s);
}

/* ---- admission ---- */

/* Informs the servers of a process that takes part from now on. */
static mst_status members_announce(mst_server *s, uint32_t worker)
{
    mst_job_member *m = &s->co->members[worker];
    mst_message note = {.type = MST_PS_MEMBER, .count = worker, .step = s->workers[worker].incarnation};
    m->announced = true;
    m->n_answers = m->n_reports = 0;
    m->fewest_pushes = UINT64_MAX;
    m->most_pushes = m->most_applied = 0;
    memset(m->reported, 0, sizeof m->reported);
    mst_server_admit(s, worker);
    return mst_roster_send(s, &note, NULL);
}

void mst_members_noted(mst_server *s, uint32_t worker)
{
    if (worker < s->options.n_workers)
        s->co->members[worker].n_answers++;
}

/* The member is as new; its counts continue. */
static void members_reset(mst_server *s, uint32_t worker)
{
    mst_job_member *m = &s->co->members[worker];
    m->welcomed = true;
    m->n_joins++;
    m->done = m->left = m->idle = m->stop_sent = m->no_rows_in_epoch = false;
    m->granted = 0;
    m->rows_before = m->rows;
    m->pushed_ns = s->co->pace.closed_ns = mst_now_ns();
    if (m->first_step == 0)
        m->first_step = s->steps.applied + 1;
    m->epoch = m->epoch > s->co->progress.epoch ? m->epoch : s->co->progress.epoch;
}

static mst_status members_welcome(mst_server *s, uint32_t worker)
{
    mst_coordinator *co = s->co;
    mst_job_member *m = &co->members[worker];
    mst_pace_catch_up(s, worker);
    m->returns = false;
    mst_info("%s takes part%s", m->name, m->n_joins > 1 ? " again" : "");
    s->hooks->event(s->hooks->arg,
                    &(mst_server_event){
                        .kind = MST_SERVER_JOIN, .role = MST_ROLE_WORKER, .index = worker, .text = m->name});
    TRY(mst_ps_send_json(s->net, s->workers[worker].peer, &(mst_message){.type = MST_PS_WELCOME},
                         json_pack("{s:o, s:I, s:I, s:I, s:s, s:s?, s:I}", "table",
                                   mst_placement_json(&s->table), "step", (json_int_t)s->steps.applied,
                                   "epoch", (json_int_t)m->epoch, "stream_from", (json_int_t)m->stream_from,
                                   "sharding", mst_sharding_names[co->rows.sharding], "run", co->start.run,
                                   "workers", (json_int_t)s->options.n_workers)));
    TRY(mst_cuts_inform(s, worker));
    return mst_rows_first(s, worker);
}

static mst_status members_start(mst_server *s)
{
    mst_coordinator *co = s->co;
    s->hooks->event(s->hooks->arg, &(mst_server_event){.kind = MST_SERVER_BEGIN, .placement = &s->table});
    for (uint32_t i = 1; i < s->options.n_servers; i++)
        s->hooks->event(s->hooks->arg,
                        &(mst_server_event){.kind = MST_SERVER_JOIN, .role = MST_ROLE_SERVER, .index = i});
    co->phase = MST_JOB_RUN;
    co->run_ns = co->pace.closed_ns = mst_now_ns();
    co->cuts.eval_due = co->start.evaluates && co->start.evaluation_pending;
    return mst_members_welcome_joined(s);
}

/* Announces the workers that joined. *all: the servers have answered for all of them. */
static mst_status members_announce_joined(mst_server *s, bool *all)
{
    *all = true;
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        mst_job_member *m = &s->co->members[w];
        if (!m->joined || m->welcomed || m->leaving)
            continue;
        if (!m->announced)
            TRY(members_announce(s, w));
        *all = *all && m->n_answers == mst_roster_count(s) - 1;
    }
    return MST_OK;
}

mst_status mst_members_welcome_joined(mst_server *s)
{
    mst_coordinator *co = s->co;
    uint64_t fresh[MST_WORKER_WORDS] = {0};
    uint32_t chief = UINT32_MAX;
    bool all;
    bool waits = co->cuts.held && co->cuts.chief != UINT32_MAX; /* only an evaluation goes on */
    if (co->phase != MST_JOB_RUN || mst_cuts_under_way(&co->cuts) || waits || mst_recover_under_way(s) ||
        mst_takeover_under_way(s))
        return MST_OK;
    TRY(members_announce_joined(s, &all));
    for (uint32_t w = s->options.n_workers;
         all && w-- > 0;) { /* before any receives work, which they share */
        if (!co->members[w].announced || co->members[w].welcomed || co->members[w].leaving)
            continue;
        members_reset(s, w);
        mst_bit_set(fresh, w);
        chief = w;
    }
    if (chief == UINT32_MAX)
        return MST_OK;
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        if (mst_bit(fresh, w))
            TRY(mst_unless_gone(members_welcome(s, w)));
    return mst_cuts_name_chief(s, chief);
}

/* ---- joins ---- */

static mst_status members_first_worker(mst_server *s, const json_t *join)
{
    mst_coordinator *co = s->co;
    mst_server_start *start = &co->start;
    TRY(mst_rows_choose(s, join));
    start->limit_steps = start->limit_rows = start->limit_epochs = UINT64_MAX;
    TRY(mst_takeover_open(s, join, start));
    s->model = start->model;
    co->joins.first = json_incref((json_t *)join);
    co->joins.first_ns = mst_now_ns();
    co->progress = (mst_progress){.steps = start->at.steps,
                                  .rows = start->at.rows,
                                  .epoch = start->at.epoch,
                                  .position = start->at.position,
                                  .epoch_rows = co->progress.epoch_rows};
    s->steps.applied = start->at.steps;
    return MST_OK;
}

static mst_status members_same_json(const mst_server *s, uint32_t worker, const json_t *join, const char *key,
                                    const char *what)
{
    const json_t *mine = json_object_get(s->co->joins.first, key), *theirs = json_object_get(join, key);
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
        mst_status st =
            mst_fail(MST_EINPUT, "worker %" PRIu32 " has %s with %s %s, but the other workers have %s",
                     worker, what, name, a ? a : "?", b ? b : "?");
        free(a); /* jansson's allocation */
        free(b);
        return st;
    }
    return mst_fail(MST_EINPUT, "worker %" PRIu32 " has a different %s from the other workers", worker, what);
}

static mst_status members_admit(mst_server *s, uint32_t worker, const json_t *join)
{
    mst_coordinator *co = s->co;
    TRY(s->hooks->admit(s->hooks->arg, join));
    if (co->joins.first == NULL) {
        mst_status st = members_first_worker(s, join);
        if (st != MST_OK)
            mst_server_fail(s, st); /* it would fail with any worker */
        return st;
    }
    TRY(members_same_json(s, worker, join, "model", "a model"));
    if (co->rows.sharding !=
        MST_SHARDING_LOCAL) /* slices, leases and shares are positions in the same data */
        TRY(members_same_json(s, worker, join, "data", "data"));
    return MST_OK;
}

uint32_t mst_members_to_start(const mst_server *s)
{
    bool shards = s->co->rows.sharding == MST_SHARDING_STATIC || s->co->rows.sharding == MST_SHARDING_LOCAL;
    if (s->options.all_begin)
        return s->options.n_workers;
    return mst_is_sync(s) ? s->options.quorum : shards ? s->options.n_workers : 1;
}

/* Whether a job that could begin waits for the rest of its workers, which start at about the same time: a
 * short job would be over before they take part. */
static bool members_await_more(const mst_server *s, uint32_t joined)
{
    const mst_join_state *joins = &s->co->joins;
    return joined < s->options.n_workers && !s->options.elastic && !joins->again &&
           mst_now_ns() - joins->first_ns < FELLOWS_NS;
}

mst_status mst_members_maybe_start(mst_server *s)
{
    mst_coordinator *co = s->co;
    uint32_t joined = 0, need = mst_members_to_start(s);
    if (co->phase != MST_JOB_START || co->joins.first == NULL)
        return MST_OK;
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        joined += co->members[w].joined;
    if (joined < need || members_await_more(s, joined))
        return MST_OK;
    if (!co->joins.placed) {
        mst_status st = members_place(s);
        if (st != MST_OK) {
            mst_server_fail(s, st); /* it would fail with any other worker */
            return MST_OK;
        }
    }
    for (uint32_t i = 0; i < s->options.n_servers; i++)
        if (!co->joins.servers[i].ready)
            return MST_OK;
    return members_start(s);
}

/* Keeps the sample of the worker with the lowest index. */
static void members_keep_sample(mst_coordinator *co, uint32_t worker, const json_t *join)
{
    if (co->joins.placed || (co->joins.sample != NULL && co->joins.sampler <= worker))
        return;
    json_decref(co->joins.sample);
    co->joins.sample = json_incref(json_object_get(join, "sample"));
    co->joins.sampler = worker;
}

bool mst_members_fails_early(const mst_server *s, uint32_t worker)
{
    const mst_coordinator *co = s->co;
    return !s->options.all_begin && !co->members[worker].joined &&
           (co->phase != MST_JOB_START || co->joins.again);
}

void mst_members_refuse(mst_server *s, uint32_t worker, mst_status status)
{
    mst_warn("worker %" PRIu32 " was refused: %s", worker, mst_error_text());
    mst_server_refuse(s, s->workers[worker].peer, status);
    s->workers[worker].peer = MST_PEER_NONE;
}

static mst_status members_worker_joins(mst_server *s, uint32_t worker, const json_t *join)
{
    mst_coordinator *co = s->co;
    mst_job_member *m = &co->members[worker];
    if (m->joined)
        return mst_fail(MST_EPEER, "a second JOIN on one connection");
    if (mst_takeover_awaits(s, worker, join))
        return MST_OK;
    mst_status st = members_admit(s, worker, join);
    if (s->over)
        return MST_OK;
    if (st != MST_OK) {
        if (s->options.all_begin) { /* no other worker can take its place */
            mst_server_fail(s, st);
            return MST_OK;
        }
        mst_members_refuse(s, worker, st);
        return MST_OK;
    }
    m->joined = true;
    m->guest = json_is_true(json_object_get(join, "guest"));
    co->joins.again = co->joins.again || json_object_get(join, "continues") != NULL;
    members_keep_sample(co, worker, join);
    mst_net_name_of(s->net, s->workers[worker].peer, m->name, sizeof m->name);
    return mst_members_maybe_start(
        s); /* during training the next tick welcomes it; at the end it waits for END */
}

static mst_status members_server_joins(mst_server *s, uint32_t server, const json_t *join)
{
    if (s->co->joins.servers[server].joined)
        return mst_fail(MST_EPEER, "a second JOIN on one connection");
    mst_status st = s->hooks->admit(s->hooks->arg, join);
    if (st != MST_OK) {
        mst_warn("server %" PRIu32 " was refused: %s", server, mst_error_text());
        mst_server_refuse(s, s->servers[server], st);
        s->servers[server] = MST_PEER_NONE;
        return MST_OK;
    }
    s->co->joins.servers[server].joined = true;
    mst_takeover_joined(s, server, join);
    if (mst_recover_under_way(s))
        mst_recover_joined(s, server, json_object_get(join, "kept"));
    return s->co->joins.placed ? members_set_up_server(s, server) : MST_OK;
}

mst_status mst_members_join(mst_server *s, bool worker, uint32_t index, const json_t *join)
{
    return worker ? members_worker_joins(s, index, join) : members_server_joins(s, index, join);
}

mst_status mst_members_ready(mst_server *s, uint32_t server)
{
    s->co->joins.servers[server].ready = true;
    mst_takeover_ready(s, server);
    return s->co->phase == MST_JOB_START ? mst_members_maybe_start(s) : mst_recover_ready(s, server);
}

/* ---- losses ---- */

/* Slots: whether the last push of a lost worker counts. It does if all servers have it. If some lack it and
 * none has applied it, it is discarded, and the successor computes it again; if one has, the job rolls back.
 * The servers close no step with that push until they receive the decision. */
static mst_status members_decide(mst_server *s, uint32_t worker)
{
    mst_job_member *m = &s->co->members[worker];
    uint64_t applied = s->steps.applied,
             pushes = applied + mst_steps_waits_for(&s->workers[worker], applied + 1);
    uint64_t fewest = pushes < m->fewest_pushes ? pushes : m->fewest_pushes,
             most = pushes > m->most_pushes ? pushes : m->most_pushes;
    if (fewest < most && (applied >= most || m->most_applied >= most)) {
        char why[160], step[32];
        snprintf(why, sizeof why,
                 "worker %" PRIu32 " was lost while it sent its gradient for step %s, which some servers "
                 "have applied and others lack",
                 worker, mst_figure_grouped(most, step));
        if (!mst_takeover_realign(s, why))
            mst_coordinator_roll_back(s, why);
        return MST_OK;
    }
    m->first_step = fewest + 1;
    mst_message gone = {.type = MST_PS_GONE, .flags = MST_GONE_DECIDED, .count = worker, .step = fewest};
    TRY(mst_roster_send(s, &gone, NULL));
    return mst_steps_decide(s, worker, fewest);
}

/* All other servers have reported the loss: a successor may be announced. */
static void members_settle(mst_server *s, uint32_t worker)
{
    mst_job_member *m = &s->co->members[worker];
    if (!m->leaving || m->n_reports < mst_roster_count(s) - 1)
        return;
    m->leaving = m->announced = false;
    mst_status st = mst_has_slots(s) ? members_decide(s, worker) : MST_OK;
    if (st != MST_OK)
        mst_server_fail(s, st);
}

/* A server has reported that a worker is gone, which still is a member here. */
static void members_lose_reported(mst_server *s, uint32_t server, const mst_message *m, const char *why)
{
    char text[640];
    if (m->flags & MST_GONE_FAULT) {
        s->workers[m->count].n_nan += (m->flags & MST_GONE_NAN) != 0;
        snprintf(text, sizeof text, "%.*s (server %" PRIu32 ")", (int)(m->size < 512 ? m->size : 512),
                 m->size > 0 ? why : "", server);
        mst_server_refuse_worker(s, m->count, text);
        return;
    }
    snprintf(text, sizeof text, "server %" PRIu32 " %s worker %" PRIu32, server,
             m->flags & MST_GONE_SILENT ? "has received nothing for too long from"
                                        : "has lost its connection to",
             m->count);
    if (mst_is_sync(s) && !(m->flags & MST_GONE_SILENT))
        mst_server_drain(s, m->count);
    else
        mst_server_expel(s, m->count, text);
}

static void members_note_report(mst_job_member *m, uint32_t server)
{
    m->n_reports += !mst_bit(m->reported, server);
    mst_bit_set(m->reported, server);
}

void mst_members_count_report(mst_server *s, uint32_t server, uint32_t worker)
{
    if (s->co->members[worker].announced)
        members_note_report(&s->co->members[worker], server);
    members_settle(s, worker);
}

void mst_members_reported(mst_server *s, uint32_t server, const mst_message *m, const char *why)
{
    if (m->count >= s->options.n_workers)
        return;
    mst_job_member *member = &s->co->members[m->count];
    if (m->flags & MST_GONE_LACKS) {
        char text[128];
        snprintf(text, sizeof text,
                 "worker %" PRIu32 " was lost before its gradient for a closed step reached server %" PRIu32,
                 m->count, server);
        mst_coordinator_roll_back(s, text);
        return;
    }
    if (!member->announced)
        return;
    uint64_t pushes = m->step + ((m->flags & MST_GONE_PUSHED) != 0);
    members_note_report(member, server);
    member->fewest_pushes = pushes < member->fewest_pushes ? pushes : member->fewest_pushes;
    member->most_pushes = pushes > member->most_pushes ? pushes : member->most_pushes;
    member->most_applied = m->step > member->most_applied ? m->step : member->most_applied;
    if (!member->leaving)
        members_lose_reported(s, server, m, why);
    members_settle(s, m->count);
}

/* The servers forget the worker. */
static mst_status members_retract(mst_server *s, uint32_t worker)
{
    mst_job_member *m = &s->co->members[worker];
    mst_message gone = {.type = MST_PS_GONE, .count = worker, .step = s->workers[worker].gone_from};
    if (!m->announced)
        return MST_OK;
    m->leaving = true;
    TRY(mst_roster_send(s, &gone, NULL));
    members_settle(s, worker);
    return MST_OK;
}

static mst_status members_lose(mst_server *s, uint32_t worker, const char *why)
{
    mst_coordinator *co = s->co;
    mst_server_worker *w = &s->workers[worker];
    if (mst_has_slots(s) && mst_rows_are_streams(s) && co->phase <= MST_JOB_STOP &&
        !co->members[worker].done && co->outcome.failure.code == MST_OK) {
        mst_coordinator_roll_back(s, why); /* the position of its stream is that of the checkpoint */
        return MST_OK;
    }
    w->gone_from = s->steps.applied + 1;
    mst_steps_forget(s, worker);
    TRY(members_retract(s, worker));
    if (s->over)
        return MST_OK;
    TRY(mst_rows_lost(s, worker));
    if (co->cuts.chief == worker)
        mst_cuts_replace_chief(s);
    TRY(mst_cut_try(s));
    if (mst_is_sync(s))
        TRY(mst_steps_try_close(s));
    return mst_coordinator_advance(s);
}

/* The death of a server, or that this one was stopped, which all other servers report. */
static void members_record_server(mst_server *s, uint32_t server, const mst_net_loss *loss)
{
    uint64_t now = mst_now_ns();
    bool stopped = loss->reason == MST_NET_STOPPED;
    mst_server_event death = {.kind = MST_SERVER_DEATH,
                              .role = MST_ROLE_SERVER,
                              .index = stopped ? 0 : server,
                              .text = loss->error.text};
    if (stopped && s->co->outcome.stop_seen_ns + (uint64_t)(loss->silent_s * 1e9) >= now)
        return; /* the same stop */
    if (stopped)
        s->co->outcome.stop_seen_ns = now;
    s->hooks->event(s->hooks->arg, &death);
}

void mst_members_server_lost(mst_server *s, uint32_t server, const mst_net_loss *loss)
{
    mst_coordinator *co = s->co;
    const char *why = loss->error.text;
    if (!co->joins.placed) {
        co->joins.servers[server].joined = false;
        mst_info("%s; it has not joined again yet", why);
        return;
    }
    if (mst_roster_lacks(s, server)) {
        mst_takeover_lost(s, server, why);
        return;
    }
    members_record_server(s, server, loss);
    if (mst_takeover_can(s, server)) {
        mst_status st = mst_takeover_begin(s, server, why);
        if (st != MST_OK)
            mst_server_fail(s, st);
    } else if (mst_recover_can(s))
        mst_recover_begin(s, server, loss);
    else
        mst_coordinator_roll_back(s, why);
}

/* A worker that has no work is gone. Logs at most one of these per second. */
static void members_lost_early(mst_server *s, const char *why)
{
    uint64_t now = mst_now_ns();
    if (s->co->joins.lost_ns != 0 && now - s->co->joins.lost_ns < MST_S)
        return;
    s->co->joins.lost_ns = now;
    mst_warn("%s%s", why, s->co->phase == MST_JOB_START ? "; it has not joined again yet" : "");
}

/* done: it has no work left. */
static void members_log_lost(const mst_server *s, uint32_t worker, const mst_net_loss *loss, bool done)
{
    const mst_job_member *m = &s->co->members[worker];
    const char *why = loss->error.text;
    if (m->left)
        mst_info("%s has left after it had finished its rows", m->name);
    else if (done)
        mst_warn("%s, after it had done its work", why);
    else if (s->co->outcome.failure.code != MST_OK)
        mst_info("%s", why);
    else if (mst_has_slots(s) && !mst_rows_are_streams(s))
        mst_warn("%s; the next step waits for worker %" PRIu32 " to join again", why, worker);
    else if (mst_members_none_left(s)) /* reported when the wait for another one begins */
        mst_warn("%s%s", why, s->options.all_begin ? "; no worker is left" : "");
    else
        mst_warn("%s; the job continues without it", why);
}

void mst_members_lost(mst_server *s, uint32_t worker, const mst_net_loss *loss, bool nan)
{
    mst_coordinator *co = s->co;
    mst_job_member *m = &co->members[worker];
    const char *why = loss->error.text;
    bool mattered = mst_alive(s, worker);
    m->joined = m->welcomed = m->guest = false;
    s->workers[worker].undecided = m->announced && mst_has_slots(s);
    if (loss->reason == MST_NET_STOPPED)
        co->outcome.silent_s = loss->silent_s;
    snprintf(co->outcome.nan, sizeof co->outcome.nan, "%.255s", nan ? why : "");
    if (!mattered) {
        mst_status st = members_retract(s, worker);
        if (st != MST_OK)
            mst_server_fail(s, st);
        members_lost_early(s, why);
        return;
    }
    s->workers[worker].gone = true;
    m->lost_ns = mst_now_ns();
    bool done = m->left || (m->done && co->phase >= MST_JOB_STOP);
    bool again = loss->reason == MST_NET_CLOSED && m->returns;
    bool fine = done || again || loss->reason == MST_NET_STOPPED;
    s->hooks->event(s->hooks->arg, &(mst_server_event){.kind = fine ? MST_SERVER_LEAVE : MST_SERVER_DEATH,
                                                       .role = MST_ROLE_WORKER,
                                                       .index = worker,
                                                       .text = why,
                                                       .returns = !done});
    if (!again)
        members_log_lost(s, worker, loss, done);
    mst_status st = members_lose(s, worker, why);
    if (st != MST_OK)
        mst_server_fail(s, st);
}

bool mst_members_none_left(const mst_server *s)
{
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        if (mst_alive(s, w) || s->co->members[w].joined)
            return false;
    return true;
}

void mst_members_end_guest(mst_server *s, uint32_t worker)
{
    uint32_t peer = s->workers[worker].peer;
    if (!s->co->members[worker].guest || peer == MST_PEER_NONE)
        return;
    (void)mst_ps_send_error(s->net, peer, MST_PS_END, &(mst_error){.code = MST_OK});
    mst_server_expel(s, worker, "its successor has connected");
}

bool mst_members_slot_empty(const mst_server *s, uint32_t worker)
{
    const mst_job_member *m = &s->co->members[worker];
    return mst_has_slots(s) && m->n_joins > 0 && !m->welcomed && !m->done;
}

bool mst_members_slots_end(const mst_server *s)
{
    uint64_t last = UINT64_MAX;
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        const mst_job_member *m = &s->co->members[w];
        if (!mst_members_slot_empty(s, w))
            continue;
        if (m->leaving)
            return false;
        last = m->first_step - 1 < last ? m->first_step - 1 : last;
    }
    return s->steps.applied == last;
}
