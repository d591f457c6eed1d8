/* The coordinator while training runs: counting, cuts, evaluations, checkpoints, the end (server.h).
 *
 * Every push that counts is counted here before it is answered; then the book (hooks) says what is due.
 * Evaluations and checkpoints are taken at a cut. One cut is under way at a time: what becomes due meanwhile
 * waits for its end.
 *
 * The end: workers stop when their rows are used up or when told; each reports; the last evaluation and
 * checkpoint are taken of the weights as they then are; everybody is told the end and leaves. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "observe/spans.h"
#include "ps/coordinator_impl.h"

#define CRAWL_NS (5 * MST_S) /* without a push, while others have nothing left to do */

/* ---- the beginning ---- */

mst_status mst_coordinator_welcome(mst_server *s, uint32_t worker)
{
    static const char *const names[] = {"slices", "leases", "static", "local"};
    mst_coordinator *co = s->co;
    mst_member *m = &co->members[worker];
    m->welcomed = true;
    m->heard_ns = mst_now_ns();
    m->epoch = m->epoch > co->progress.epoch ? m->epoch : co->progress.epoch;
    mst_coordinator_catch_up(s, worker);
    mst_info("%s takes part", m->name);
    s->hooks->event(s->hooks->arg,
                    &(mst_server_event){
                        .kind = MST_SERVER_JOIN, .role = MST_ROLE_WORKER, .index = worker, .text = m->name});
    TRY(mst_ps_send_json(s->net, s->workers[worker].peer, &(mst_message){.type = MST_PS_WELCOME},
                         json_pack("{s:o, s:I, s:I, s:s, s:s?, s:I}", "table", mst_placement_json(&s->table),
                                   "step", (json_int_t)s->applied, "epoch", (json_int_t)m->epoch, "sharding",
                                   names[co->sharding], "run", co->start.run, "workers",
                                   (json_int_t)s->options.n_workers)));
    return mst_work_first(s, worker);
}

mst_status mst_coordinator_start(mst_server *s)
{
    mst_coordinator *co = s->co;
    s->hooks->event(s->hooks->arg, &(mst_server_event){.kind = MST_SERVER_BEGIN, .placement = &s->table});
    co->phase = MST_JOB_RUN;
    co->run_ns = co->closed_ns = mst_now_ns();
    co->eval_due = co->start.evaluates && co->start.owes_evaluation;
    for (uint32_t w = 0; w < s->options.n_workers; w++) { /* before any is given work: they share it */
        co->members[w].welcomed = co->members[w].joined;
        if (co->chief == UINT32_MAX && co->members[w].joined)
            co->chief = w;
    }
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        if (co->members[w].joined)
            TRY(mst_unless_gone(mst_coordinator_welcome(s, w)));
    return mst_unless_gone(
        mst_ps_send(s->net, s->workers[co->chief].peer, &(mst_message){.type = MST_PS_CHIEF}));
}

/* Workers that came late; not while a cut is under way, of which they know nothing. */
static mst_status welcome_late(mst_server *s)
{
    mst_coordinator *co = s->co;
    if (co->phase != MST_JOB_RUN || co->evaluating || co->saving)
        return MST_OK;
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        if (!co->members[w].joined || co->members[w].welcomed)
            continue;
        TRY(mst_unless_gone(mst_coordinator_welcome(s, w)));
        if (co->chief == UINT32_MAX) {
            co->chief = w;
            TRY(mst_unless_gone(
                mst_ps_send(s->net, s->workers[w].peer, &(mst_message){.type = MST_PS_CHIEF})));
        }
    }
    return MST_OK;
}

/* ---- counting ---- */

static void count_push(mst_server *s, const mst_store_request *r)
{
    mst_coordinator *co = s->co;
    mst_member *m = &co->members[r->worker];
    m->steps++;
    m->rows += r->head.rows;
    co->progress.rows += r->head.rows;
    co->progress.loss.loss += r->head.loss;
    co->progress.loss.weight += r->head.weight;
    co->progress.loss.rows += r->head.rows;
}

void mst_coordinator_arrived(mst_server *s, uint32_t worker, bool last)
{
    mst_coordinator *co = s->co;
    uint64_t now = mst_now_ns();
    if (last && co->arrived_ns > co->closed_ns)
        co->members[worker].held_ns += now - co->arrived_ns;
    co->arrived_ns = now;
}

mst_status mst_coordinator_applied(mst_server *s, uint64_t step, const mst_store_request *const *requests,
                                   uint32_t n)
{
    mst_coordinator *co = s->co;
    co->progress.steps = step;
    co->closed_ns = mst_now_ns();
    for (uint32_t i = 0; i < n; i++) {
        count_push(s, requests[i]);
        TRY(mst_work_pushed(s, requests[i]->worker, requests[i]->head.rows));
    }
    mst_work_closed(s, step);
    co->at_step = true;
    mst_status st = mst_coordinator_look(s);
    co->at_step = false;
    return st;
}

void mst_coordinator_dropped(mst_server *s, uint32_t worker, const mst_store_request *request)
{
    mst_member *m = &s->co->members[worker];
    m->dropped_steps++;
    m->dropped_rows += request->head.rows;
    mst_work_pushed(s, worker, request->head.rows); /* its rows are used up all the same */
}

/* ssp: the fewest pushes of those that push, but for one. UINT64_MAX: there are none. */
static uint64_t slowest_but(const mst_server *s, uint32_t worker)
{
    const mst_coordinator *co = s->co;
    uint64_t slowest = UINT64_MAX;
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        if (w != worker && mst_alive(co, w) && !co->members[w].waits && !co->members[w].done &&
            s->workers[w].pushes < slowest)
            slowest = s->workers[w].pushes;
    return slowest;
}

void mst_coordinator_catch_up(mst_server *s, uint32_t worker)
{
    uint64_t slowest = slowest_but(s, worker);
    if (slowest != UINT64_MAX && s->workers[worker].pushes < slowest)
        s->workers[worker].pushes = slowest;
}

bool mst_coordinator_expects(const mst_server *s, uint32_t worker)
{
    const mst_member *m = &s->co->members[worker];
    return mst_alive(s->co, worker) && !m->done && !m->waits;
}

bool mst_coordinator_ahead(const mst_server *s, uint32_t worker)
{
    if (s->options.mode != MST_MODE_SSP)
        return false;
    uint64_t slowest = slowest_but(s, worker);
    return slowest != UINT64_MAX && s->workers[worker].pushes > slowest + s->options.staleness;
}

/* ---- cuts ---- */

/* Bodies for everybody: which workers mark. */
static mst_status announce_cut(mst_server *s, uint32_t flags)
{
    mst_coordinator *co = s->co;
    uint64_t markers[16] = {0};
    mst_message m = {.type = MST_PS_CUT, .flags = flags, .count = s->cut.number + 1, .step = s->applied};
    if (s->options.n_servers > 1 && co->phase == MST_JOB_RUN)
        for (uint32_t w = 0; w < s->options.n_workers; w++)
            if (mst_alive(co, w) && !co->members[w].done) {
                mst_bit_set(markers, w);
                TRY(mst_unless_gone(mst_ps_send(s->net, s->workers[w].peer, &m)));
            }
    mst_piece piece = {markers, sizeof markers};
    for (uint32_t i = 1; i < s->options.n_servers; i++)
        TRY(mst_unless_gone(mst_net_send(s->net, s->servers[i], &m, &piece, 1, NULL)));
    return mst_server_hear_cut(s, &m, markers);
}

static bool can_evaluate(const mst_server *s)
{
    return s->co->chief != UINT32_MAX && s->co->n_watching == s->options.n_servers;
}

static void begin_save(mst_server *s, bool best)
{
    mst_coordinator *co = s->co;
    co->saving = true;
    co->saving_best = best;
    co->best_here = co->best_known = false;
    co->save_cut = s->cut.number + 1;
    co->n_saved = 0;
    if (!best)
        co->save_due = false;
}

/* What came before the coordinator's own part. */
static mst_status hear_early(mst_server *s)
{
    mst_coordinator *co = s->co;
    mst_early_part *early = co->early;
    mst_status st = MST_OK;
    co->early = NULL;
    co->early_tail = &co->early;
    while (early != NULL) {
        mst_early_part *next = early->next;
        if (st == MST_OK)
            st = mst_coordinator_hear_part(s, &early->m, early->body != NULL ? early->body->data : NULL);
        mst_server_release(s, early->body);
        mst_free(early);
        early = next;
    }
    return st;
}

static void evaluation_begins(mst_server *s)
{
    s->hooks->event(s->hooks->arg, &(mst_server_event){.kind = MST_SERVER_EVALUATE});
}

mst_status mst_coordinator_cut_taken(mst_server *s)
{
    mst_coordinator *co = s->co;
    if (s->cut.flags & MST_CUT_EVAL) {
        co->evaluated_step = co->progress.steps;
        evaluation_begins(s);
    }
    if (!(s->cut.flags & MST_CUT_SAVE))
        return MST_OK;
    if (!co->saving_best)
        co->saved_step = co->progress.steps;
    json_t *plan = mst_work_json(s);
    if (plan == NULL)
        return mst_fail_memory();
    TRY(s->hooks->checkpoint->begin(s->hooks->arg, &s->table, plan, co->saving_best));
    return hear_early(s);
}

static mst_status begin_cut(mst_server *s)
{
    mst_coordinator *co = s->co;
    uint32_t flags = co->phase == MST_JOB_FINAL ? MST_CUT_LAST : 0;
    if (co->evaluating || co->saving || co->phase == MST_JOB_STOP || s->cut.number != s->cut.taken)
        return MST_OK;
    if (co->phase == MST_JOB_RUN && mst_is_sync(s) && s->options.n_servers > 1 && !co->at_step)
        return MST_OK; /* other servers may be a step ahead */
    bool evaluates = co->eval_due && can_evaluate(s), best = evaluates && co->start.keeps_best;
    bool waits =
        co->phase == MST_JOB_FINAL && co->eval_due && !evaluates; /* the chief is still opening its sets */
    bool saves = best || (co->save_due && !waits);
    if (saves && !s->hooks->checkpoint->can_begin(s->hooks->arg, best))
        saves = best = evaluates = false; /* soon */
    if (!evaluates && !saves)
        return MST_OK;
    if (evaluates) {
        flags |= MST_CUT_EVAL;
        co->eval_due = false;
        co->evaluating = true;
        co->eval_cut = s->cut.number + 1;
    }
    mst_phase before = mst_span_enter(saves ? MST_PHASE_CHECKPOINT : MST_PHASE_IDLE);
    if (saves) {
        flags |= MST_CUT_SAVE;
        begin_save(s, best);
    }
    mst_status st = announce_cut(s, flags);
    mst_span_enter(before);
    return st;
}

mst_status mst_coordinator_watches(mst_server *s, uint32_t worker)
{
    if (worker == s->co->chief)
        s->co->n_watching++;
    return mst_coordinator_look(s);
}

static mst_status keep_early(mst_server *s, const mst_message *m, const void *body)
{
    mst_coordinator *co = s->co;
    mst_early_part *early = mst_zalloc(sizeof *early);
    if (early == NULL)
        return mst_fail_memory();
    early->m = *m;
    *co->early_tail = early;
    co->early_tail = &early->next;
    if (m->size == 0 || body == NULL)
        return MST_OK;
    early->body = mst_server_buffer(s, (size_t)m->size);
    if (early->body == NULL)
        return mst_fail_memory();
    memcpy(early->body->data, body, (size_t)m->size);
    return MST_OK;
}

mst_status mst_coordinator_hear_part(mst_server *s, const mst_message *m, const void *body)
{
    static const float zeros[1u << 14];
    uint64_t count = m->flags & MST_PART_ZERO ? m->request : m->size / sizeof(float), at = 0;
    if (s->co->saving && s->cut.taken < s->co->save_cut)
        return keep_early(s, m, body);
    if (m->type == MST_PS_SAVED)
        return mst_coordinator_saved(s, m->count);
    if (!s->co->saving || m->count > s->model.params->n_slots || m->size % sizeof(float) != 0 ||
        m->step > s->table.size || count > s->table.size - m->step)
        return mst_fail(MST_EPEER, "a server sent floats that nobody asked for");
    if (!(m->flags & MST_PART_ZERO))
        return s->hooks->checkpoint->write(s->hooks->arg, m->count, m->step, count, body);
    while (at < count) {
        uint64_t n = count - at < (1u << 14) ? count - at : 1u << 14;
        TRY(s->hooks->checkpoint->write(s->hooks->arg, m->count, m->step + at, n, zeros));
        at += n;
    }
    return MST_OK;
}

/* The best weights stay, others go, once all is known. */
static mst_status settle_best(mst_server *s)
{
    mst_coordinator *co = s->co;
    if (!co->best_here || !co->best_known)
        return MST_OK;
    co->saving = co->saving_best = false;
    mst_phase before = mst_span_enter(MST_PHASE_CHECKPOINT);
    mst_status st = s->hooks->checkpoint->end(s->hooks->arg, co->best);
    mst_span_enter(before);
    return st;
}

mst_status mst_coordinator_saved(mst_server *s, uint32_t number)
{
    mst_coordinator *co = s->co;
    if (!co->saving || number != co->save_cut || ++co->n_saved < s->options.n_servers)
        return MST_OK;
    if (co->saving_best) {
        co->best_here = true;
        TRY(settle_best(s));
    } else {
        co->saving = false;
        TRY(s->hooks->checkpoint->end(s->hooks->arg, true));
    }
    return mst_coordinator_look(s);
}

mst_status mst_coordinator_hear_result(mst_server *s, const mst_message *m, const json_t *json)
{
    mst_coordinator *co = s->co;
    const json_t *error = json_object_get(json, "error");
    mst_server_verdict verdict = {0};
    if (json_is_string(error)) {
        json_int_t code = json_integer_value(json_object_get(json, "code"));
        mst_server_fail(s, mst_fail(code > 0 && code <= MST_EUNSUPPORTED ? (mst_status)code : MST_EPEER,
                                    "worker %" PRIu32 ": %s", co->chief, json_string_value(error)));
        return MST_OK;
    }
    if (!co->evaluating || m->count != co->eval_cut)
        return MST_OK;
    co->evaluating = false;
    TRY(s->hooks->evaluated(s->hooks->arg, json, &verdict));
    co->best = verdict.best;
    co->best_known = true;
    if (co->saving_best)
        TRY(settle_best(s));
    if (verdict.over)
        TRY(mst_coordinator_stop(s));
    return mst_coordinator_look(s);
}

/* ---- the end ---- */

static bool stop_asked(const mst_server *s)
{
    return s->options.stop != NULL && atomic_load(s->options.stop);
}

mst_status mst_coordinator_stop(mst_server *s)
{
    mst_coordinator *co = s->co;
    if (co->phase != MST_JOB_RUN)
        return MST_OK;
    co->stopped |= stop_asked(s);
    co->phase = MST_JOB_STOP;
    /* synchronous steps end at a step that all workers know: the work items say so */
    bool steps = mst_is_sync(s) && !mst_has_backups(s);
    for (uint32_t w = 0; !steps && w < s->options.n_workers; w++)
        if (mst_alive(co, w))
            TRY(mst_unless_gone(
                mst_ps_send(s->net, s->workers[w].peer, &(mst_message){.type = MST_PS_STOP})));
    return MST_OK;
}

/* sync on streams: those that wait for an epoch's end, which does not come any more. */
static mst_status stop_exhausted(mst_server *s)
{
    mst_coordinator *co = s->co;
    if (co->phase != MST_JOB_STOP || !mst_is_sync(s))
        return MST_OK;
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        if (!mst_alive(co, w) || !s->workers[w].exhausted || co->members[w].told_stop)
            continue;
        co->members[w].told_stop = true;
        TRY(mst_unless_gone(mst_ps_send(s->net, s->workers[w].peer, &(mst_message){.type = MST_PS_STOP})));
    }
    return MST_OK;
}

/* All steps that were planned have closed: workers, who wait, are told that there is no more. */
static mst_status end_slices(mst_server *s)
{
    mst_coordinator *co = s->co;
    co->phase = MST_JOB_STOP;
    co->sharding = MST_SHARDING_LEASES; /* of which there are none: nothing is planned any more */
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        if (mst_alive(co, w))
            TRY(mst_unless_gone(
                mst_ps_send(s->net, s->workers[w].peer, &(mst_message){.type = MST_PS_STOP})));
    return MST_OK;
}

static bool all_done(const mst_server *s)
{
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        if (mst_alive(s->co, w) && !s->co->members[w].done)
            return false;
    return true;
}

json_t *mst_coordinator_workers(const mst_server *s)
{
    const mst_coordinator *co = s->co;
    json_t *list = json_array();
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        const mst_member *m = &co->members[w];
        if (!m->welcomed)
            continue;
        json_t *one = json_pack("{s:i, s:s, s:s, s:I, s:I, s:I, s:I}", "worker", (int)w, "name", m->name,
                                "state", m->lost ? "lost" : "done", "steps", (json_int_t)m->steps, "rows",
                                (json_int_t)m->rows, "dropped_steps", (json_int_t)m->dropped_steps,
                                "dropped_rows", (json_int_t)m->dropped_rows);
        json_object_set_new(one, "held_seconds", json_real(1e-9 * (double)m->held_ns));
        json_object_update_missing(one, m->report);
        json_array_append_new(list, one);
    }
    return list;
}

static mst_status end_well(mst_server *s)
{
    TRY(s->hooks->finish(s->hooks->arg, mst_coordinator_workers(s), s->co->deserted));
    if (s->co->repeats > 0)
        mst_info("%" PRIu64 " rows were trained on twice: their worker was slow, and others had them too",
                 s->co->repeats);
    s->over = true;
    s->end.code = MST_OK;
    if (s->co->deserted) {
        char why[96] = "no worker is left";
        if (s->co->silent_s > 0)
            snprintf(why, sizeof why, "this server was silent for %.1f s and all workers left",
                     s->co->silent_s);
        mst_error_save(&s->end, mst_fail(MST_EPEER, "%s; %s", why,
                                         s->co->start.saves ? "the weights are saved; continue with --resume"
                                                            : "nothing was saved (--no-save)"));
    }
    return MST_OK;
}

bool mst_deserted(const mst_server *s)
{
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        if (mst_alive(s->co, w) || s->co->members[w].joined)
            return false;
    return true;
}

/* The last evaluation and checkpoint, then the end. */
static mst_status finish(mst_server *s)
{
    mst_coordinator *co = s->co;
    if (co->phase == MST_JOB_STOP && all_done(s) && !co->evaluating && !co->saving) {
        co->phase = MST_JOB_FINAL;
        co->eval_due =
            co->start.evaluates && !co->stopped && !co->deserted && co->evaluated_step != co->progress.steps;
        co->save_due = co->start.saves && co->saved_step != co->progress.steps;
    }
    if (co->phase != MST_JOB_FINAL)
        return MST_OK;
    if (co->eval_due && co->chief == UINT32_MAX)
        co->eval_due = false; /* nobody is left who could */
    TRY(begin_cut(s));
    if (co->evaluating || co->saving || co->eval_due || co->save_due || s->over)
        return MST_OK;
    return end_well(s);
}

/* ---- looking around ---- */

/* Whether the job waits for what this worker computes. */
static bool owes_push(const mst_server *s, uint32_t w)
{
    const mst_server_worker *worker = &s->workers[w];
    const mst_member *m = &s->co->members[w];
    return mst_alive(s->co, w) && !m->done && !m->waits && !worker->pending && worker->n_deferred == 0;
}

/* "worker 0, worker 2", or how many where those are all or more than three; NULL: nobody. */
static const char *name_waiting(mst_server *s)
{
    mst_coordinator *co = s->co;
    uint32_t owing = 0, alive = 0;
    size_t n = 0;
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        alive += mst_alive(co, w) && !co->members[w].done;
        if (!owes_push(s, w))
            continue;
        if (owing++ < 3)
            n += (size_t)snprintf(co->waiting + n, sizeof co->waiting - n, "%sworker %" PRIu32,
                                  n > 0 ? ", " : "", w);
    }
    if (owing == alive && owing > 1)
        snprintf(co->waiting, sizeof co->waiting, "all %" PRIu32 " workers", owing);
    else if (owing > 3)
        snprintf(co->waiting, sizeof co->waiting, "%" PRIu32 " of %" PRIu32 " workers", owing, alive);
    return owing > 0 ? co->waiting : NULL;
}

mst_status mst_coordinator_look(mst_server *s)
{
    mst_coordinator *co = s->co;
    unsigned due = 0;
    if (s->over || co->phase == MST_JOB_START)
        return MST_OK;
    if (co->saving_best)
        TRY(settle_best(s));
    if (co->phase == MST_JOB_RUN && mst_deserted(s)) {
        co->deserted = true;
        co->phase = MST_JOB_STOP;
    }
    TRY(welcome_late(s));
    if (co->phase == MST_JOB_RUN || co->progress.loss.rows > 0) {
        uint64_t now = mst_now_ns();
        co->progress.seconds = (double)(now - co->run_ns) * 1e-9;
        co->progress.waiting = now - co->closed_ns > MST_S ? name_waiting(s) : NULL;
        TRY(s->hooks->progress(s->hooks->arg, &co->progress, &due));
        co->progress.loss = (mst_loss_sum){0};
    }
    if (s->cut.number != s->cut.taken) { /* what a cut under way is for is due until it is taken */
        unsigned begun =
            (co->evaluating ? MST_DUE_EVAL : 0u) | (co->saving && !co->saving_best ? MST_DUE_SAVE : 0u);
        due &= ~begun;
    }
    if (due & MST_DUE_EVAL && !co->start.evaluates) {
        mst_server_verdict verdict = {0};
        evaluation_begins(s);
        TRY(s->hooks->evaluated(s->hooks->arg, NULL, &verdict));
        due |= verdict.over ? MST_DUE_END : 0;
    } else if (due & MST_DUE_EVAL) {
        co->eval_due = true;
    }
    if (due & MST_DUE_SAVE && co->start.saves)
        co->save_due = true;
    TRY(begin_cut(s));
    if (due & MST_DUE_END)
        TRY(mst_coordinator_stop(s));
    TRY(mst_work_offer(s));
    TRY(mst_server_release_deferred(s));
    TRY(stop_exhausted(s));
    bool slices = co->sharding == MST_SHARDING_SLICES;
    if (slices && co->phase <= MST_JOB_STOP && mst_work_finished(s))
        TRY(end_slices(s));
    else if (!slices && co->phase == MST_JOB_RUN && mst_work_finished(s))
        TRY(mst_coordinator_stop(s));
    return finish(s);
}

/* Workers that owe something for too long. */
static mst_status watch_workers(mst_server *s)
{
    mst_coordinator *co = s->co;
    uint64_t now = mst_now_ns(), patience = s->options.stall_timeout_ms * MST_MS;
    bool idle = false;
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        idle |= mst_alive(co, w) && co->members[w].waits;
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        if (!owes_push(s, w))
            continue;
        uint64_t since = mst_is_sync(s) ? co->closed_ns : co->members[w].heard_ns;
        if (now - since > patience) {
            char why[128];
            snprintf(why, sizeof why, "it has pushed nothing for %" PRIu32 " s",
                     s->options.stall_timeout_ms / 1000);
            mst_server_expel(s, w, why);
        } else if (idle && co->leases != NULL && mst_leases_dry(co->leases) && now - since > CRAWL_NS &&
                   mst_leases_held(co->leases, w) > 0) {
            TRY(mst_work_take_back(s, w));
        }
    }
    return MST_OK;
}

mst_status mst_coordinator_tick(mst_server *s)
{
    mst_coordinator *co = s->co;
    if (co->phase == MST_JOB_START) {
        mst_coordinator_watch(s);
        return MST_OK;
    }
    if (stop_asked(s))
        TRY(mst_coordinator_stop(s));
    TRY(watch_workers(s));
    return mst_coordinator_look(s);
}

/* Others end because this one did: their sentence says so, and so does their exit code. */
static json_t *end_json(const mst_server *s)
{
    bool own = s->end.code != MST_OK && s->end.code != MST_ESTOPPED && s->end.code != MST_EPEER;
    char text[MST_ERROR_MAX + 64];
    snprintf(text, sizeof text, "%s%s", own ? "server 0 ended the job: " : "", s->end.text);
    return json_pack("{s:i, s:s}", "code", (int)(own ? MST_EPEER : s->end.code), "text", text);
}

void mst_coordinator_broadcast_end(mst_server *s)
{
    mst_message m = {.type = MST_PS_END};
    for (uint32_t i = 1; i < s->options.n_servers; i++)
        if (s->servers[i] != MST_PEER_NONE)
            mst_ps_send_json(s->net, s->servers[i], &m, end_json(s));
    for (uint32_t w = 0; w < s->options.n_workers; w++)
        if (s->workers[w].peer != MST_PEER_NONE)
            mst_ps_send_json(s->net, s->workers[w].peer, &m, end_json(s));
}
