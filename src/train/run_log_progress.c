/* Progress of the run log: losses, what is due and when the run ends; contract in run_log.h. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/figure.h"
#include "train/run_log_impl.h"

#define TICK_NS (200 * MST_MS)

const char *mst_end_text(mst_end end)
{
    static const char *const texts[] = {
        "all epochs done",           "step limit reached",        "row limit reached", "time limit reached",
        "--until condition reached", "no better loss on --valid", "stop requested",    "no worker was left",
    };
    return texts[end];
}

/* ---- intervals ---- */

static double due_count(const mst_run_log *self, mst_unit unit)
{
    switch (unit) {
    case MST_UNIT_STEPS:
        return (double)self->progress.steps;
    case MST_UNIT_ROWS:
        return (double)self->progress.rows;
    case MST_UNIT_SECONDS:
        return self->status.train_seconds;
    case MST_UNIT_EPOCHS:
        return (double)self->progress.epoch;
    case MST_UNIT_NEVER:
        break;
    }
    return 0.0;
}

void mst_run_log_schedule(const mst_run_log *self, mst_due *due)
{
    if (due->every.unit == MST_UNIT_NEVER)
        due->next = INFINITY;
    else
        due->next = (floor(due_count(self, due->every.unit) / due->every.n) + 1.0) * due->every.n;
}

static bool due_now(const mst_run_log *self, const mst_due *due)
{
    return due_count(self, due->every.unit) >= due->next;
}

/* ---- what is due ---- */

static void limit_u64(uint64_t *limit, double left)
{
    uint64_t n = left <= 0.0 ? 0 : left >= 1e18 ? UINT64_MAX : (uint64_t)ceil(left);
    *limit = n < *limit ? n : *limit;
}

static void limit_budget(const mst_run_log *self, mst_budget *b, mst_unit unit, double next)
{
    double left = next - due_count(self, unit);
    if (unit == MST_UNIT_STEPS)
        limit_u64(&b->steps, left);
    else if (unit == MST_UNIT_ROWS)
        limit_u64(&b->rows, left);
    else if (unit == MST_UNIT_SECONDS && left < 1e9) {
        uint64_t at = mst_now_ns() + (uint64_t)(left > 0.0 ? left * 1e9 : 0.0);
        b->deadline_ns = at < b->deadline_ns ? at : b->deadline_ns;
    }
}

/* Limits the budget to the next due event, in whole steps, so that the result does not depend on how often
 * the loop stops. */
static void limit_due(const mst_run_log *self, mst_budget *b, const mst_due *due)
{
    double batch = (double)self->options.global_batch, rows = (double)self->progress.rows;
    if (due->every.unit == MST_UNIT_ROWS)
        limit_u64(&b->rows, ceil((due->next - rows) / batch) * batch);
    else
        limit_budget(self, b, due->every.unit, due->next);
}

/* Epochs to train for. --epochs is 1 by default; any other limit lifts that default. */
static uint64_t epochs_wanted(const mst_run_log *self)
{
    const mst_train_options *o = self->options.train;
    bool other = o->steps > 0 || o->rows > 0 || o->seconds > 0.0 || self->options.schedule.has_until ||
                 o->patience > 0;
    if (o->epochs == 0 || (other && o->epochs == 1 && !self->options.epochs_given))
        return UINT64_MAX;
    return (uint64_t)o->epochs;
}

/* The first epoch beyond the limit, if epochs are passes over the data. */
static uint64_t epoch_limit(const mst_run_log *self)
{
    uint64_t epochs = epochs_wanted(self);
    return self->options.train->steps_per_epoch > 0 || epochs == UINT64_MAX ? UINT64_MAX
                                                                            : self->start.epoch + epochs;
}

/* The last step of --epochs with --steps-per-epoch; both options are at most 1e9. */
static uint64_t epoch_steps(const mst_run_log *self)
{
    uint64_t epochs = epochs_wanted(self), each = (uint64_t)self->options.train->steps_per_epoch;
    return each > 0 && epochs != UINT64_MAX ? self->start.steps + epochs * each : UINT64_MAX;
}

static uint64_t step_limit(const mst_run_log *self)
{
    uint64_t epochs = epoch_steps(self), steps = (uint64_t)self->options.train->steps;
    return steps > 0 && self->start.steps + steps < epochs ? self->start.steps + steps : epochs;
}

static uint64_t row_limit(const mst_run_log *self)
{
    int64_t rows = self->options.train->rows;
    return rows > 0 ? self->start.rows + (uint64_t)rows : UINT64_MAX;
}

static double seconds_limit(const mst_run_log *self)
{
    double seconds = self->options.train->seconds;
    return seconds > 0.0 ? self->start.seconds + seconds : (double)INFINITY;
}

void mst_run_log_budget(const mst_run_log *self, mst_budget *out)
{
    mst_budget b = {.steps = UINT64_MAX,
                    .rows = UINT64_MAX,
                    .deadline_ns = mst_now_ns() + TICK_NS,
                    .stop = self->options.stop};
    limit_due(self, &b, &self->eval_due);
    limit_due(self, &b, &self->save_due);
    if (step_limit(self) != UINT64_MAX)
        limit_budget(self, &b, MST_UNIT_STEPS, (double)step_limit(self));
    if (row_limit(self) != UINT64_MAX)
        limit_budget(self, &b, MST_UNIT_ROWS, (double)row_limit(self));
    limit_budget(self, &b, MST_UNIT_SECONDS, seconds_limit(self));
    *out = b;
}

/* The limit, or where the run is if that is beyond it. */
static uint64_t limit_from(uint64_t limit, uint64_t done)
{
    return limit > done ? limit : done;
}

void mst_run_log_limits(const mst_run_log *self, uint64_t *steps, uint64_t *rows, uint64_t *epochs)
{
    *steps = limit_from(step_limit(self), self->progress.steps);
    *rows = limit_from(row_limit(self), self->progress.rows);
    *epochs = limit_from(epoch_limit(self), self->progress.epoch);
}

static bool limit_reached(const mst_run_log *self, mst_end *end)
{
    const mst_train_options *o = self->options.train;
    if (self->progress.epoch >= epoch_limit(self) || self->progress.steps >= epoch_steps(self))
        *end = MST_END_EPOCHS;
    else if (self->progress.steps >= step_limit(self))
        *end = MST_END_STEPS;
    else if (self->progress.rows >= row_limit(self))
        *end = MST_END_ROWS;
    else if (self->status.train_seconds >= seconds_limit(self))
        *end = MST_END_SECONDS;
    else if (o->patience > 0 && self->evals.since_best >= (uint64_t)o->patience) /* in a resumed run */
        *end = MST_END_PATIENCE;
    else if (self->options.stop != NULL && atomic_load(self->options.stop))
        *end = MST_END_STOPPED;
    else
        return false;
    return true;
}

bool mst_run_log_unsaved(const mst_run_log *self)
{
    if (self->save.checkpointer == NULL || self->save.saved_step == self->progress.steps)
        return false;
    return self->save.open != self->save.checkpointer || self->save.open_status.step != self->progress.steps;
}

void mst_run_log_save_begins(mst_run_log *self)
{
    self->save.requested = false;
    mst_run_log_schedule(self, &self->save_due);
}

unsigned mst_run_log_due(mst_run_log *self, mst_end *end)
{
    if (self->options.take_requests != NULL && self->options.take_requests(self->options.requests_arg))
        self->save.requested = true;
    bool over = limit_reached(self, end), ends = over && *end != MST_END_STOPPED;
    unsigned due = over ? MST_DUE_END : 0;
    if ((due_now(self, &self->eval_due) || ends) && !self->evals.under_way &&
        self->evals.step != self->progress.steps)
        due |= MST_DUE_EVAL;
    if (due_now(self, &self->save_due) || self->save.requested) {
        if (mst_run_log_unsaved(self))
            due |= MST_DUE_SAVE;
        else
            mst_run_log_save_begins(self);
    }
    return due;
}

/* ---- progress ---- */

static double eta_of(const mst_run_log *self)
{
    const mst_train_status *s = &self->status;
    double left = INFINITY, rate = s->rows_per_s;
    uint64_t epochs = epoch_limit(self);
    if (rate <= 0.0)
        return NAN;
    if (epochs != UINT64_MAX && s->epoch_rows > 0)
        left = ((double)epochs * (double)s->epoch_rows - (double)s->epoch * (double)s->epoch_rows -
                (double)s->epoch_position) /
               rate;
    if (step_limit(self) != UINT64_MAX)
        left = fmin(left,
                    ((double)step_limit(self) - (double)s->step) * (double)self->options.global_batch / rate);
    if (row_limit(self) != UINT64_MAX)
        left = fmin(left, ((double)row_limit(self) - (double)s->rows) / rate);
    left = fmin(left, seconds_limit(self) - s->train_seconds);
    return isfinite(left) && left > 0.0 ? left : (double)NAN;
}

/* Adds rows of the first pass to its loss. Asynchronous servers may report rows of two passes at once, which
 * are left out. */
static void progress_first_pass(mst_run_log *self, const mst_progress *p)
{
    uint64_t first = self->start.epoch;
    bool began = self->progress.epoch == first, stays = p->epoch == first || p->position == 0;
    if (began && stays)
        mst_add_loss(&self->first_pass, &p->loss);
    self->status.progressive_loss = began && stays ? mst_mean_loss(&self->first_pass) : (double)NAN;
}

mst_status mst_run_log_progress(mst_run_log *self, const mst_progress *p)
{
    mst_train_status *s = &self->status;
    if (p->steps > self->progress.steps)
        mst_run_log_warn_unsaved(self);
    s->step = p->steps;
    s->rows = p->rows;
    s->epoch = p->epoch;
    s->epoch_position = p->position;
    s->epoch_rows = p->epoch_rows;
    s->waiting = p->waiting;
    s->train_seconds += p->seconds - self->progress.seconds;
    s->rows_per_s = mst_rate_at(&self->rate, s->train_seconds, p->rows);
    s->mean_rows_per_s = s->train_seconds > 0.0 ? (double)p->rows / s->train_seconds : 0.0;
    s->lr = (double)mst_learning_rate(&self->options.optimizer->options, p->steps ? p->steps : 1);
    if (p->loss.rows > 0) {
        s->train_loss = mst_mean_loss(&p->loss);
        s->train_accuracy = mst_mean_accuracy(&p->loss);
    }
    self->worth_keeping |= p->steps > self->progress.steps;
    if (self->loss.recovering && p->steps > self->progress.steps)
        mst_run_log_end_recovery(self, p->steps);
    if (p->steps > self->progress.steps)
        mst_run_log_write_members(self);
    progress_first_pass(self, p);
    self->progress = *p;
    self->progress.loss = (mst_loss_sum){0};
    mst_observe_set_step(self->observe, p->steps);
    s->eta_seconds = eta_of(self);
    mst_add_loss(&self->line_loss, &p->loss);
    if (p->loss.rows > 0 && !isfinite(p->loss.loss)) {
        char step[32];
        return mst_fail(MST_EINPUT,
                        "the training loss is no longer finite by step %s: lower --lr, or use --clip-norm",
                        mst_figure_grouped(p->steps, step));
    }
    return mst_run_log_settle(self, false);
}

const mst_progress *mst_run_log_at(const mst_run_log *self)
{
    return &self->progress;
}

const mst_train_status *mst_run_log_status(const mst_run_log *self)
{
    return &self->status;
}
