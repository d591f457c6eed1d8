/* The coordinator: messages, the course of the job, its end; contract in coordinator.h. */
#include "ps/coordinator.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/figure.h"
#include "base/log.h"
#include "base/strings.h"
#include "ps/coordinator_impl.h"
#include "run/run_dir.h"

mst_status mst_coordinator_init(mst_server *s)
{
    s->co = mst_zalloc(sizeof *s->co);
    if (s->co == NULL)
        return mst_fail_memory();
    mst_cuts_init(&s->co->cuts);
    TRY(mst_random_hex((MST_PASS_KEY - 1) / 2, s->pass_key));
    TRY(mst_takeover_init(s));
    return mst_members_init(s);
}

void mst_coordinator_fini(mst_server *s)
{
    mst_coordinator *co = s->co;
    if (co == NULL)
        return;
    mst_rows_fini(&co->rows);
    mst_cuts_fini(&co->cuts);
    mst_takeover_fini(s);
    mst_members_fini(s);
    json_decref(co->start.plan);
    mst_free(co);
}

/* ---- messages ---- */

/* Adds the numbers of a report to a sum. */
static void coordinator_add_report(json_t *sum, const json_t *report)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)report, key, value)
    {
        const json_t *old = json_object_get(sum, key);
        if (strcmp(key, "last_accuracy") == 0)
            json_object_set(sum, key, value);
        else if (json_is_integer(value))
            json_object_set_new(sum, key,
                                json_integer((json_int_t)((uint64_t)json_integer_value(old) +
                                                          (uint64_t)json_integer_value(value))));
        else if (json_is_real(value))
            json_object_set_new(sum, key, json_real(json_number_value(old) + json_real_value(value)));
    }
}

static mst_status coordinator_take_report(mst_server *s, uint32_t worker, const mst_message *m, json_t *json)
{
    mst_job_member *member = &s->co->members[worker];
    if (!mst_alive(s, worker))
        return MST_OK;
    if (member->report_joins != member->n_joins && member->report != NULL) {
        if (member->earlier == NULL)
            member->earlier = json_object();
        coordinator_add_report(member->earlier, member->report);
    }
    member->report_joins = member->n_joins;
    json_decref(member->report);
    member->report = json_incref(json);
    if (!(m->flags & MST_REPORT_LAST))
        return MST_OK;
    member->done = true;
    if (m->flags & MST_REPORT_LEAVES) {
        if (!s->options.elastic)
            return mst_fail(MST_EPEER, "a worker leaves a job without --elastic");
        member->left = true;
        return mst_unless_gone(
            mst_ps_send_error(s->net, s->workers[worker].peer, MST_PS_END, &(mst_error){.code = MST_OK}));
    }
    if (mst_has_quorum(s)) /* its pushes do not count towards the quorum any more */
        TRY(mst_steps_try_close(s));
    return mst_coordinator_advance(s);
}

static mst_status coordinator_take_failure(mst_server *s, bool worker, uint32_t index, const json_t *json)
{
    const char *role = worker ? "worker" : "server";
    mst_error error;
    mst_ps_read_error(json, &error);
    /* The coordinator detects a lost server, or a process that has not joined, itself. */
    if (worker &&
        (error.code == MST_EPEER || (error.code == MST_ETIMEOUT && s->co->phase == MST_JOB_START))) {
        mst_server_expel(s, index, error.text);
        return MST_OK;
    }
    if (worker && error.code != MST_ESTOPPED && mst_members_fails_early(s, index)) {
        mst_members_refuse(s, index, mst_error_restore(&error));
        return MST_OK;
    }
    if (error.code == MST_ESTOPPED && s->co->phase == MST_JOB_START)
        return mst_fail(MST_ESTOPPED, "%s %" PRIu32 " received a stop request", role, index);
    if (error.code == MST_ESTOPPED) {
        s->co->outcome.stopped = true;
        s->hooks->event(s->hooks->arg, &(mst_server_event){.kind = MST_SERVER_STOP,
                                                           .role = worker ? MST_ROLE_WORKER : MST_ROLE_SERVER,
                                                           .index = index});
        return mst_coordinator_stop(s);
    }
    char who[24];
    snprintf(who, sizeof who, "%s %" PRIu32, role, index);
    mst_status st = mst_fail_lead(error.code != MST_OK ? error.code : MST_EPEER, who, ": %s", error.text);
    if (worker)
        mst_coordinator_end_with(s, st);
    else
        mst_server_fail(s, st);
    return MST_OK;
}

static mst_status coordinator_take_json(mst_server *s, bool worker, uint32_t index, const mst_message *m,
                                        json_t *json)
{
    switch (m->type) {
    case MST_PS_JOIN:
        return mst_members_join(s, worker, index, json);
    case MST_PS_FAIL:
        return coordinator_take_failure(s, worker, index, json);
    case MST_PS_REPORT:
        return worker ? coordinator_take_report(s, index, m, json) : MST_OK;
    default:
        return worker && index == s->co->cuts.chief ? mst_cuts_result(s, m, json) : MST_OK;
    }
}

mst_status mst_coordinator_message(mst_server *s, uint32_t peer, const mst_message *m, const void *body)
{
    const mst_server_peer *p = mst_peer_table_find(&s->peers, peer);
    bool worker = p->kind == MST_PEER_WORKER;
    uint32_t index = p->index;
    json_t *json = NULL;
    mst_status st;
    if (!worker && mst_takeover_ignores(s, index, m->type))
        return MST_OK;
    switch (m->type) {
    case MST_PS_JOIN:
    case MST_PS_FAIL:
    case MST_PS_REPORT:
    case MST_PS_EVAL_RESULT:
        TRY(mst_ps_json(m, body, &json));
        st = coordinator_take_json(s, worker, index, m, json);
        json_decref(json);
        return st;
    case MST_PS_WANT:
        return worker ? mst_rows_wanted(s, index, m) : MST_OK;
    case MST_PS_READY:
        if (!worker && m->flags & MST_READY_EVAL_LIST)
            return mst_takeover_under_way(s) ? MST_OK : mst_cuts_listed(s, m->count);
        if (worker)
            return mst_fail(MST_EPEER, "READY, which a worker never sends");
        if (m->flags & MST_READY_ROSTER)
            return mst_takeover_took_roster(s, index, m->count);
        return mst_members_ready(s, index);
    case MST_PS_FLOATS:
    case MST_PS_SAVED:
        return worker ? mst_fail(MST_EPEER, "%s, which a worker never sends", mst_ps_type_name(m->type))
                      : mst_cuts_piece(s, m, body);
    case MST_PS_GONE:
        if (!worker)
            mst_members_reported(s, index, m, body);
        return MST_OK;
    case MST_PS_MEMBER:
        if (worker)
            return mst_fail(MST_EPEER, "MEMBER, which a worker never sends");
        mst_members_noted(s, m->count);
        return mst_coordinator_advance(s);
    case MST_PS_APPLIED:
    case MST_PS_COPY:
        if (worker || !s->replica.on || !s->co->joins.placed)
            return mst_fail(MST_EPEER, "unexpected %s", mst_ps_type_name(m->type));
        return m->type == MST_PS_COPY ? mst_takeover_copied(s, index ^ 1u, m->count, m->step)
                                      : mst_takeover_applied(s, index, m->count, m->step);
    default:
        return mst_fail(MST_EPEER, "unexpected %s", mst_ps_type_name(m->type));
    }
}

/* ---- the end ---- */

static bool coordinator_stop_requested(const mst_server *s)
{
    return s->options.stop != NULL && atomic_load(s->options.stop);
}

mst_status mst_coordinator_stop(mst_server *s)
{
    mst_coordinator *co = s->co;
    if (co->phase != MST_JOB_RUN)
        return MST_OK;
    co->outcome.stopped |= coordinator_stop_requested(s);
    co->phase = MST_JOB_STOP;
    if (co->cuts.held) /* the weights stay as they are */
        return mst_coordinator_send_stop(s, MST_STOP_NOW);
    /* without a quorum, synchronous steps end with the last work item that all workers have received */
    return mst_has_slots(s) ? MST_OK : mst_coordinator_send_stop(s, 0);
}

mst_status mst_coordinator_send_stop(mst_server *s, uint32_t flags)
{
    mst_message stop = {.type = MST_PS_STOP, .flags = flags};
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        if (mst_alive(s, w))
            TRY(mst_unless_gone(mst_ps_send(s->net, s->workers[w].peer, &stop)));
    return MST_OK;
}

/* sync on streams: stops the workers that wait for the end of an epoch that will never come. */
static mst_status coordinator_stop_exhausted(mst_server *s)
{
    mst_coordinator *co = s->co;
    if (co->phase != MST_JOB_STOP || !mst_is_sync(s))
        return MST_OK;
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        if (!mst_alive(s, w) || !s->workers[w].exhausted || co->members[w].stop_sent)
            continue;
        co->members[w].stop_sent = true;
        TRY(mst_unless_gone(mst_ps_send(s->net, s->workers[w].peer, &(mst_message){.type = MST_PS_STOP})));
    }
    return MST_OK;
}

static bool coordinator_all_done(const mst_server *s)
{
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        if (mst_alive(s, w) && !s->co->members[w].done)
            return false;
    return true;
}

json_t *mst_coordinator_workers(const mst_server *s)
{
    const mst_coordinator *co = s->co;
    json_t *list = json_array();
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        const mst_job_member *m = &co->members[w];
        if (m->n_joins == 0)
            continue;
        json_t *one = json_pack("{s:i, s:s, s:i, s:s, s:I, s:I, s:I, s:I}", "worker", (int)w, "name", m->name,
                                "joins", (int)m->n_joins, "state",
                                m->left              ? "left"
                                : s->workers[w].gone ? "lost"
                                                     : "done",
                                "steps", (json_int_t)m->steps, "rows", (json_int_t)m->rows, "dropped_steps",
                                (json_int_t)m->dropped_steps, "dropped_rows", (json_int_t)m->dropped_rows);
        json_object_set_new(one, "held_seconds", json_real(1e-9 * (double)m->held_ns));
        json_t *sum = m->earlier != NULL ? json_copy(m->earlier) : json_object();
        coordinator_add_report(sum, m->report);
        json_object_update_missing(one, sum);
        json_decref(sum);
        json_array_append_new(list, one);
    }
    return list;
}

void mst_coordinator_end_with(mst_server *s, mst_status status)
{
    mst_coordinator *co = s->co;
    bool worth_saving = co->start.saves && co->progress.steps > co->start.at.steps;
    if (s->over || co->outcome.failure.code != MST_OK)
        return; /* the first failure counts */
    if (co->phase == MST_JOB_START || !worth_saving) {
        mst_server_fail(s, status);
        return;
    }
    mst_error_save(&co->outcome.failure, status);
    mst_info("a process has failed; saving the weights before the job ends");
    status = mst_coordinator_stop(s);
    if (status != MST_OK)
        mst_server_fail(s, status);
}

static mst_status coordinator_end_well(mst_server *s)
{
    if (s->co->outcome.failure.code != MST_OK) {
        mst_server_fail(s, mst_error_restore(&s->co->outcome.failure));
        return MST_OK;
    }
    char rows[MST_FIGURE_SIZE];
    mst_records_count_all(s); /* the program ends the observer */
    TRY(s->hooks->finish(s->hooks->arg, mst_coordinator_workers(s), s->co->outcome.no_workers));
    if (s->co->rows.repeats > 0)
        mst_info(
            "%s rows were trained on twice: their worker was slow and other workers received them too, or "
            "their gradients had not reached all servers when one was lost",
            mst_figure_grouped(s->co->rows.repeats, rows));
    s->over = true;
    s->end.code = MST_OK;
    if (s->co->outcome.no_workers) {
        char why[512] = "no worker is left";
        bool nan = s->co->outcome.nan[0] != '\0';
        if (nan)
            snprintf(why, sizeof why, "no worker is left: %s; " MST_NAN_ADVICE, s->co->outcome.nan);
        else if (s->co->outcome.absent != UINT32_MAX)
            snprintf(why, sizeof why,
                     "worker %" PRIu32 " was lost and no process took its place within %" PRIu32 " s",
                     s->co->outcome.absent, s->options.start_timeout_ms / 1000);
        else if (s->co->outcome.silent_s > 0)
            snprintf(why, sizeof why, "this server was silent for %.1f s and all workers left",
                     s->co->outcome.silent_s);
        mst_error_save(&s->end, mst_fail(nan ? MST_EINPUT : MST_EPEER, "%s; %s", why,
                                         s->co->start.saves ? "the weights are saved; continue with --resume"
                                                            : "nothing was saved (--no-save)"));
    }
    return MST_OK;
}

/* The last evaluation and checkpoint, then the end. */
static mst_status coordinator_finish(mst_server *s)
{
    mst_coordinator *co = s->co;
    if (co->phase == MST_JOB_STOP && coordinator_all_done(s) && !mst_cuts_under_way(&co->cuts)) {
        co->phase = MST_JOB_FINAL;
        mst_cuts_last(s);
    }
    if (co->phase != MST_JOB_FINAL)
        return MST_OK;
    TRY(mst_cuts_begin_last(s));
    return mst_cuts_idle(s) && !s->over ? coordinator_end_well(s) : MST_OK;
}

void mst_coordinator_roll_back(mst_server *s, const char *why)
{
    const char *run = s->co->start.run;
    char resume_hint[MST_ERROR_MAX / 2];
    if (s->co->outcome.failure.code != MST_OK) {
        mst_server_fail(s, mst_error_restore(&s->co->outcome.failure));
        return;
    }
    if (mst_heals(s)) {
        mst_server_fail(s, mst_fail(MST_EAGAIN, "%s", why));
        return;
    }
    mst_run_resume_hint(run != NULL ? run : "RUN", resume_hint, sizeof resume_hint);
    mst_server_fail(s, mst_fail(MST_EPEER, "%s; its share of the weights is lost; %s", why, resume_hint));
}

/* The other processes end because this one did: their message and their exit code state it. */
mst_status mst_coordinator_send_end(mst_server *s, uint32_t peer)
{
    static const char lead[] = "server 0";
    mst_error end = s->end;
    if (end.code != MST_OK && end.code != MST_ESTOPPED && end.code != MST_EAGAIN) {
        end.code = MST_EPEER;
        end.lead = sizeof lead - 1;
        snprintf(end.text, sizeof end.text, "%s ended the job: %.950s", lead, s->end.text);
    }
    return mst_unless_gone(mst_ps_send_error(s->net, peer, MST_PS_END, &end));
}

void mst_coordinator_broadcast_end(mst_server *s)
{
    for (uint32_t i = 1; i < s->options.n_servers; i++)
        if (s->servers[i] != MST_PEER_NONE)
            (void)mst_coordinator_send_end(s, s->servers[i]);
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        if (s->workers[w].peer != MST_PEER_NONE)
            (void)mst_coordinator_send_end(s, s->workers[w].peer);
    s->co->outcome.sent = true;
}

/* ---- the course of the job ---- */

mst_status mst_coordinator_advance(mst_server *s)
{
    mst_coordinator *co = s->co;
    unsigned due = 0;
    if (s->over || co->phase == MST_JOB_START)
        return MST_OK;
    TRY(mst_cuts_settle_best(s));
    if (co->phase == MST_JOB_RUN && mst_deadlines_abandoned(s)) {
        co->outcome.no_workers = true;
        co->phase = MST_JOB_STOP;
    }
    TRY(mst_members_welcome_joined(s));
    if (co->phase == MST_JOB_RUN || co->progress.loss.rows > 0) {
        co->progress.seconds = mst_seconds_since(co->run_ns) - 1e-9 * (double)mst_cuts_held_ns(&co->cuts);
        co->progress.waiting = mst_pace_waiting(s);
        TRY(s->hooks->progress(s->hooks->arg, &co->progress, &due));
        co->progress.loss = (mst_loss_sum){0};
    }
    TRY(mst_cuts_due(s, &due));
    if (due & MST_DUE_END)
        TRY(mst_coordinator_stop(s));
    TRY(mst_rows_offer(s));
    TRY(mst_steps_release_deferred(s));
    TRY(coordinator_stop_exhausted(s));
    bool slices = co->rows.sharding == MST_SHARDING_SLICES;
    if (slices && co->phase <= MST_JOB_STOP && mst_rows_finished(s))
        TRY(mst_rows_end_slices(s, 0));
    else if ((slices || (mst_has_slots(s) && mst_rows_are_streams(s))) && co->phase == MST_JOB_STOP &&
             mst_members_slots_end(s))
        TRY(mst_rows_end_slices(s, MST_STOP_NOW));
    else if (!slices && co->phase == MST_JOB_RUN && mst_rows_finished(s))
        TRY(mst_coordinator_stop(s));
    return coordinator_finish(s);
}

mst_status mst_coordinator_advance_at_step(mst_server *s)
{
    s->co->cuts.at_step = true;
    mst_status st = mst_coordinator_advance(s);
    s->co->cuts.at_step = false;
    return st;
}

mst_status mst_coordinator_tick(mst_server *s)
{
    mst_coordinator *co = s->co;
    if (co->phase == MST_JOB_START) {
        mst_deadlines_await(s);
        return s->over ? MST_OK : mst_members_maybe_start(s);
    }
    if (coordinator_stop_requested(s))
        TRY(mst_coordinator_stop(s));
    TRY(mst_pace_check_stalls(s));
    mst_stragglers_check(s);
    mst_deadlines_check(s);
    mst_recover_check(s);
    TRY(mst_takeover_tick(s));
    TRY(mst_replica_send_run(s));
    return mst_coordinator_advance(s);
}
