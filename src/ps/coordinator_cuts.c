/* Evaluations and checkpoints; contract in coordinator_cuts.h. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "observe/spans.h"
#include "ps/coordinator_impl.h"

void mst_cuts_init(mst_cut_plan *self)
{
    self->chief = UINT32_MAX;
    self->evaluated_step = self->saved_step = UINT64_MAX;
    self->early_tail = &self->early;
}

void mst_cuts_fini(mst_cut_plan *self)
{
    while (self->early != NULL) {
        mst_early_piece *early = self->early;
        self->early = early->next;
        mst_free(early->body);
        mst_free(early);
    }
    self->early_tail = &self->early;
}

/* ---- beginning a cut ---- */

/* Announces a cut to the workers that mark it and to all servers. If training waits already, the markers of
 * that cut count. */
static mst_status cuts_announce(mst_server *s, uint32_t flags)
{
    mst_coordinator *co = s->co;
    mst_cut_plan *cuts = &co->cuts;
    uint64_t markers[MST_WORKER_WORDS] = {0};
    mst_message m = {.type = MST_PS_CUT,
                     .flags = flags,
                     .request = cuts->held ? cuts->held_cut : 0,
                     .count = s->cut.number + 1,
                     .step = s->steps.applied};
    if (cuts->held)
        memcpy(markers, cuts->held_workers, sizeof markers);
    else if (s->options.n_servers > 1 && co->phase == MST_JOB_RUN)
        for (uint32_t w = 0; w < s->options.n_workers; w++)
            if (mst_alive(s, w) && !co->members[w].done) {
                mst_bit_set(markers, w);
                TRY(mst_unless_gone(mst_ps_send(s->net, s->workers[w].peer, &m)));
            }
    if (!cuts->held && flags & MST_CUT_HOLD) {
        cuts->held = true;
        cuts->held_cut = m.count;
        cuts->held_since_ns = mst_now_ns();
        memcpy(cuts->held_workers, markers, sizeof markers);
        for (uint32_t w = 0; w < s->options.n_workers; w++)
            TRY(mst_cuts_inform(s, w));
    }
    mst_piece piece = {markers, sizeof markers};
    TRY(mst_roster_send(s, &m, &piece));
    return mst_cut_announced(s, &m, markers);
}

/* ---- training waits ---- */

static mst_status cuts_send_hold(mst_server *s, uint32_t worker, uint32_t flags)
{
    if (!mst_alive(s, worker))
        return MST_OK;
    mst_message m = {.type = MST_PS_HOLD, .flags = flags};
    return mst_unless_gone(mst_ps_send(s->net, s->workers[worker].peer, &m));
}

mst_status mst_cuts_inform(mst_server *s, uint32_t worker)
{
    return s->co->cuts.held ? cuts_send_hold(s, worker, MST_HOLD_BEGIN) : MST_OK;
}

uint64_t mst_cuts_held_ns(const mst_cut_plan *self)
{
    return self->held_ns + (self->held ? mst_now_ns() - self->held_since_ns : 0);
}

static void cuts_end_hold(mst_cut_plan *cuts)
{
    cuts->held_ns = mst_cuts_held_ns(cuts);
    cuts->held = false;
}

mst_status mst_cuts_resume(mst_server *s)
{
    mst_coordinator *co = s->co;
    if (!co->cuts.held)
        return MST_OK;
    cuts_end_hold(&co->cuts);
    TRY(mst_roster_send(s, &(mst_message){.type = MST_PS_HOLD}, NULL));
    co->pace.closed_ns = mst_now_ns();
    for (uint32_t w = 0; w < s->options.n_workers; w++) {
        co->members[w].pushed_ns = co->pace.closed_ns;
        TRY(cuts_send_hold(s, w, 0));
    }
    return mst_cut_resume(s);
}

static bool cuts_can_begin(const mst_server *s)
{
    const mst_coordinator *co = s->co;
    if (co->phase == MST_JOB_STOP || s->cut.number != s->cut.taken || mst_recover_under_way(s) ||
        mst_takeover_under_way(s))
        return false;
    bool ahead =
        co->phase == MST_JOB_RUN && mst_is_sync(s) && (s->options.n_servers > 1 || s->options.sparse_async);
    /* otherwise other servers may be a step ahead, or keys of the next step are updated */
    return !ahead || co->cuts.at_step || co->cuts.held;
}

/* An exact evaluation is due and cannot begin: stops all servers at one version. With several asynchronous
 * servers a checkpoint that is under way may not have reached all of them. */
static mst_status cuts_hold(mst_server *s)
{
    const mst_coordinator *co = s->co;
    if (!co->start.exact || co->phase != MST_JOB_RUN || co->cuts.held || !cuts_can_begin(s) ||
        (co->cuts.saving && !mst_is_sync(s) && s->options.n_servers > 1))
        return MST_OK;
    return cuts_announce(s, MST_CUT_HOLD);
}

static bool cuts_can_evaluate(const mst_server *s)
{
    return s->co->cuts.chief != UINT32_MAX && s->co->cuts.n_listed == mst_roster_count(s);
}

static void cuts_begin_save(mst_server *s, bool best)
{
    mst_coordinator *co = s->co;
    co->cuts.saving = true;
    co->cuts.saving_best = best;
    co->cuts.best_here = co->cuts.best_known = false;
    co->cuts.save_cut = s->cut.number + 1;
    co->cuts.n_saved = 0;
    co->cuts.save_failed = false;
    if (!best)
        co->cuts.save_due = false;
}

mst_status mst_cuts_begin(mst_server *s)
{
    mst_coordinator *co = s->co;
    uint32_t flags = co->phase == MST_JOB_FINAL ? MST_CUT_LAST : 0;
    if (!cuts_can_begin(s))
        return MST_OK;
    if (mst_cuts_under_way(&co->cuts))
        return co->cuts.eval_due ? cuts_hold(s) : MST_OK;
    bool evaluates = co->cuts.eval_due && cuts_can_evaluate(s), best = evaluates && co->start.keeps_best;
    bool waits = co->phase == MST_JOB_FINAL && co->cuts.eval_due; /* the last checkpoint has its result */
    bool saves = best || (co->cuts.save_due && !waits);
    if (saves && !s->hooks->checkpoint->can_begin(s->hooks->arg, best))
        saves = best = evaluates = false; /* when the last save is written */
    if (!evaluates && !saves)
        return co->cuts.eval_due ? cuts_hold(s) : MST_OK;
    if (co->cuts.eval_due && co->start.exact && co->phase == MST_JOB_RUN)
        flags |= MST_CUT_HOLD;
    if (evaluates) {
        flags |= MST_CUT_EVAL;
        co->cuts.eval_due = false;
        co->cuts.evaluating = true;
        mst_deadlines_chief_begins(s);
        co->cuts.eval_cut = s->cut.number + 1;
    }
    mst_phase before = mst_span_enter(saves ? MST_PHASE_CHECKPOINT : MST_PHASE_IDLE);
    if (saves) {
        flags |= MST_CUT_SAVE;
        cuts_begin_save(s, best);
    }
    mst_status st = cuts_announce(s, flags);
    mst_span_enter(before);
    return st;
}

/* ---- saving ---- */

static mst_status cuts_keep_early(mst_server *s, const mst_message *m, const void *body)
{
    mst_coordinator *co = s->co;
    mst_early_piece *early = mst_zalloc(sizeof *early);
    if (early == NULL)
        return mst_fail_memory();
    early->m = *m;
    *co->cuts.early_tail = early;
    co->cuts.early_tail = &early->next;
    if (m->size == 0 || body == NULL)
        return MST_OK;
    early->body = mst_body_take(&s->bodies, (size_t)m->size);
    if (early->body == NULL)
        return mst_fail_memory();
    memcpy(early->body->data, body, (size_t)m->size);
    return MST_OK;
}

/* Takes the pieces that arrived before the coordinator's own share was taken. */
static mst_status cuts_take_early(mst_server *s)
{
    mst_coordinator *co = s->co;
    mst_early_piece *early = co->cuts.early;
    mst_status st = MST_OK;
    co->cuts.early = NULL;
    co->cuts.early_tail = &co->cuts.early;
    while (early != NULL) {
        mst_early_piece *next = early->next;
        if (st == MST_OK)
            st = mst_cuts_piece(s, &early->m, early->body != NULL ? early->body->data : NULL);
        mst_body_release(&s->bodies, early->body);
        mst_free(early);
        early = next;
    }
    return st;
}

static void cuts_evaluation_begins(mst_server *s)
{
    s->hooks->event(s->hooks->arg, &(mst_server_event){.kind = MST_SERVER_EVALUATE});
}

mst_status mst_cuts_taken(mst_server *s)
{
    mst_coordinator *co = s->co;
    if (s->cut.flags & MST_CUT_EVAL) {
        co->cuts.evaluated_step = co->progress.steps;
        cuts_evaluation_begins(s);
    }
    if (!(s->cut.flags & MST_CUT_SAVE))
        return MST_OK;
    if (!co->cuts.saving_best) /* a checkpoint from before the result of an evaluation is not the last one */
        co->cuts.saved_step = co->cuts.evaluating ? UINT64_MAX : co->progress.steps;
    json_t *plan = mst_rows_json(s);
    if (plan == NULL)
        return mst_fail_memory();
    TRY(s->hooks->count(s->hooks->arg, mst_coordinator_workers(s)));
    TRY(s->hooks->checkpoint->begin(s->hooks->arg, mst_takeover_base(s), plan, co->cuts.saving_best));
    return cuts_take_early(s);
}

mst_status mst_cuts_piece(mst_server *s, const mst_message *m, const void *body)
{
    static const float zeros[1u << 14];
    uint64_t count = m->flags & MST_FLOATS_ZERO ? m->request : m->size / sizeof(float), at = 0;
    if (s->co->cuts.saving && s->cut.taken < s->co->cuts.save_cut)
        return cuts_keep_early(s, m, body);
    if (m->type == MST_PS_SAVED)
        return mst_cuts_saved(s, m->count, m->flags & MST_SAVED_FAILED);
    if (!s->co->cuts.saving || m->count > s->model.params->n_slots || m->size % sizeof(float) != 0 ||
        m->step > s->table.size || count > s->table.size - m->step)
        return mst_fail(MST_EPEER, "a server sent floats that were not requested");
    if (!(m->flags & MST_FLOATS_ZERO))
        return s->hooks->checkpoint->write(s->hooks->arg, m->count, m->step, count, body);
    while (at < count) {
        uint64_t n = count - at < (1u << 14) ? count - at : 1u << 14;
        TRY(s->hooks->checkpoint->write(s->hooks->arg, m->count, m->step + at, n, zeros));
        at += n;
    }
    return MST_OK;
}

mst_status mst_cuts_settle_best(mst_server *s)
{
    mst_coordinator *co = s->co;
    if (!co->cuts.saving_best || !co->cuts.best_here || !co->cuts.best_known)
        return MST_OK;
    co->cuts.saving = co->cuts.saving_best = false;
    mst_phase before = mst_span_enter(MST_PHASE_CHECKPOINT);
    mst_status st = s->hooks->checkpoint->end(s->hooks->arg, co->cuts.best && !co->cuts.save_failed);
    mst_span_enter(before);
    return st;
}

mst_status mst_cuts_saved(mst_server *s, uint32_t number, bool failed)
{
    mst_coordinator *co = s->co;
    if (!co->cuts.saving || number != co->cuts.save_cut)
        return MST_OK;
    co->cuts.save_failed |= failed;
    if (++co->cuts.n_saved < mst_roster_count(s))
        return MST_OK;
    if (co->cuts.save_failed) {
        mst_warn("a checkpoint is not saved: a server has no space for a copy of its floats; training "
                 "continues with the earlier checkpoints");
        co->cuts.saved_step = UINT64_MAX;
    }
    if (co->cuts.saving_best) {
        co->cuts.best_here = true;
        TRY(mst_cuts_settle_best(s));
    } else {
        co->cuts.saving = false;
        TRY(s->hooks->checkpoint->end(s->hooks->arg, !co->cuts.save_failed));
    }
    return mst_coordinator_advance(s);
}

/* ---- evaluating ---- */

static mst_status cuts_send_chief(mst_server *s)
{
    const mst_server_worker *chief = &s->workers[s->co->cuts.chief];
    mst_deadlines_chief_begins(s);
    uint64_t pass = mst_pass_of(s->pass_key, s->co->cuts.chief, chief->incarnation);
    return mst_unless_gone(
        mst_ps_send(s->net, chief->peer, &(mst_message){.type = MST_PS_CHIEF, .step = pass}));
}

mst_status mst_cuts_name_chief(mst_server *s, uint32_t worker)
{
    if (s->co->cuts.chief != UINT32_MAX)
        return MST_OK;
    s->co->cuts.chief = worker;
    return cuts_send_chief(s);
}

void mst_cuts_abandon_evaluation(mst_server *s)
{
    mst_cut_plan *cuts = &s->co->cuts;
    if (cuts->evaluating) {
        cuts->best = false;
        cuts->best_known = true;
        cuts->evaluated_step = UINT64_MAX;
    }
    cuts->eval_due = cuts->evaluating = false;
}

void mst_cuts_replace_chief(mst_server *s)
{
    mst_coordinator *co = s->co;
    bool evaluating = co->cuts.evaluating;
    co->cuts.chief = UINT32_MAX;
    co->cuts.n_listed = 0;
    if (evaluating) {
        mst_cuts_abandon_evaluation(s);
        co->cuts.eval_due = true;
    }
    for (uint32_t w = 0; w < s->options.n_workers && co->cuts.chief == UINT32_MAX; w++)
        if (mst_alive(s, w))
            co->cuts.chief = w;
    if (co->cuts.chief == UINT32_MAX)
        return;
    mst_info("worker %" PRIu32 " evaluates from now on", co->cuts.chief);
    (void)cuts_send_chief(s);
}

mst_status mst_cuts_interrupt(mst_server *s)
{
    mst_cut_plan *cuts = &s->co->cuts;
    bool evaluates = cuts->evaluating || cuts->eval_due, saves = cuts->saving && !cuts->saving_best,
         begun = cuts->saving && s->cut.taken >= cuts->save_cut;
    mst_cuts_abandon_evaluation(s);
    for (mst_early_piece *early = cuts->early; early != NULL; early = early->next) {
        mst_body_release(&s->bodies, early->body);
        early->body = NULL;
    }
    mst_cuts_fini(cuts);
    cuts->eval_due |= evaluates;
    cuts->save_due |= saves;
    cuts->saving = cuts->saving_best = false;
    cuts->chief = UINT32_MAX;
    cuts->n_listed = 0;
    cuts_end_hold(cuts);
    if (saves)
        cuts->saved_step = UINT64_MAX;
    return begun ? s->hooks->checkpoint->end(s->hooks->arg, false) : MST_OK;
}

mst_status mst_cuts_listed(mst_server *s, uint32_t worker)
{
    if (worker == s->co->cuts.chief)
        s->co->cuts.n_listed++;
    return mst_coordinator_advance(s);
}

mst_status mst_cuts_result(mst_server *s, const mst_message *m, const json_t *json)
{
    mst_coordinator *co = s->co;
    const json_t *error = json_object_get(json, "error");
    mst_server_outcome outcome = {0};
    if (json_is_string(error)) {
        json_int_t code = json_integer_value(json_object_get(json, "code"));
        mst_cuts_abandon_evaluation(s);
        mst_coordinator_end_with(
            s, mst_fail(code > 0 && code <= MST_EUNSUPPORTED ? (mst_status)code : MST_EPEER,
                        "worker %" PRIu32 ": %s", co->cuts.chief, json_string_value(error)));
        return MST_OK;
    }
    if (!co->cuts.evaluating || m->count != co->cuts.eval_cut)
        return MST_OK;
    co->cuts.evaluating = false;
    mst_deadlines_chief_evaluated(s);
    TRY(s->hooks->evaluated(s->hooks->arg, json, &outcome));
    co->cuts.best = outcome.best;
    co->cuts.best_known = true;
    TRY(mst_cuts_settle_best(s));
    if (outcome.over)
        TRY(mst_coordinator_stop(s));
    else if (co->phase == MST_JOB_RUN)
        TRY(mst_cuts_resume(s));
    return mst_coordinator_advance(s);
}

/* ---- due evaluations and checkpoints ---- */

mst_status mst_cuts_due(mst_server *s, unsigned *due)
{
    mst_coordinator *co = s->co;
    mst_cut_plan *cuts = &co->cuts;
    if (s->cut.number != s->cut.taken) { /* the purpose of a cut is due until the cut is taken */
        unsigned begun =
            (cuts->evaluating ? MST_DUE_EVAL : 0u) | (cuts->saving && !cuts->saving_best ? MST_DUE_SAVE : 0u);
        *due &= ~begun;
    }
    if (*due & MST_DUE_EVAL && !co->start.evaluates) {
        mst_server_outcome outcome = {0};
        cuts_evaluation_begins(s);
        TRY(s->hooks->evaluated(s->hooks->arg, NULL, &outcome));
        *due |= outcome.over ? MST_DUE_END : 0;
        if (outcome.over)
            TRY(cuts_hold(s));
    } else if (*due & MST_DUE_EVAL && !(*due & MST_DUE_END && co->start.exact)) { /* the last one follows */
        cuts->eval_due = true;
    }
    if (*due & MST_DUE_SAVE && !(*due & MST_DUE_END) && co->start.saves)
        cuts->save_due = true;
    return mst_cuts_begin(s);
}

void mst_cuts_last(mst_server *s)
{
    mst_coordinator *co = s->co;
    mst_cut_plan *cuts = &co->cuts;
    cuts->eval_due = co->start.evaluates && !co->outcome.stopped && !co->outcome.no_workers &&
                     co->outcome.failure.code == MST_OK && cuts->evaluated_step != co->progress.steps;
    cuts->save_due = co->start.saves && (cuts->eval_due || cuts->saved_step != co->progress.steps);
}

mst_status mst_cuts_begin_last(mst_server *s)
{
    if (s->co->cuts.chief == UINT32_MAX)
        s->co->cuts.eval_due = false; /* no worker is left that could evaluate */
    return mst_cuts_begin(s);
}

bool mst_cuts_idle(const mst_server *s)
{
    const mst_cut_plan *cuts = &s->co->cuts;
    return !mst_cuts_under_way(cuts) && !cuts->eval_due && !cuts->save_due;
}
