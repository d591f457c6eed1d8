/* Checkpoints of the run log; contract in run_log.h. */
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "train/run_log_impl.h"

#define MST_AUTO_SAVE_CHANGE 0.1 /* of the interval: smaller changes are not made */

/* --checkpoint-every auto: the interval at which a checkpoint that takes this long takes its share of the
 * time at most. */
static void run_log_adjust_interval(mst_run_log *self, double cost)
{
    double *every = &self->save_due.every.n, wanted = ceil(cost / MST_AUTO_SAVE_SHARE);
    wanted = wanted > MST_AUTO_SAVE_S ? wanted : MST_AUTO_SAVE_S;
    self->save.cost = cost;
    if (!self->options.schedule.auto_checkpoint || fabs(wanted - *every) < MST_AUTO_SAVE_CHANGE * *every)
        return;
    *every = wanted;
    mst_run_log_schedule(self, &self->save_due);
    mst_info("a checkpoint took %.2f s: saving every %.0f s, so that it takes at most %.0f%% of the time",
             cost, wanted, 100 * MST_AUTO_SAVE_SHARE);
}

/* Composes the contents of a checkpoint besides the floats; the caller calls mst_checkpoint_meta_fini in any
 * case. */
static mst_status run_log_compose_meta(const mst_run_log *self, mst_checkpoint_meta *out)
{
    mst_loss_sum sum = self->evals.loss;
    mst_add_loss(&sum, &self->line_loss);
    *out = (mst_checkpoint_meta){
        .step = self->progress.steps,
        .rows = self->progress.rows,
        .epoch = self->progress.epoch,
        .position = self->progress.position,
        .train_seconds = self->status.train_seconds,
        .eval_seconds = self->status.eval_seconds,
        .model = json_incref(self->options.model),
        .optimizer = json_pack("{s:s}", "name", self->options.optimizer->ops->name),
        .extra =
            json_pack("{s:O, s:I, s:I, s:b, s:o}", "data", self->options.data, "best_step",
                      (json_int_t)self->evals.best_step, "since_best", (json_int_t)self->evals.since_best,
                      "evaluation_due", (int)self->evals.incomplete, "line_loss", mst_loss_sum_json(&sum)),
    };
    if (out->optimizer == NULL || out->extra == NULL)
        return mst_fail_memory();
    if (self->options.optimizer->sparse != NULL)
        json_object_set_new(out->optimizer, "sparse",
                            json_string(self->options.optimizer->sparse->ops->name));
    if (self->save.plan != NULL)
        json_object_set(out->extra, "plan", self->save.plan);
    mst_run_log_workers_save(self, out->extra);
    if (self->options.source != NULL)
        json_object_set(out->extra, "source", self->options.source);
    json_object_set_new(out->extra, "data_start",
                        json_pack("[I, I, I, f]", (json_int_t)self->start.epoch,
                                  (json_int_t)self->start.steps, (json_int_t)self->start.rows,
                                  self->start.seconds));
    if (self->options.reading_unknown)
        json_object_set_new(out->extra, "reading_unknown", json_true());
    if (self->options.label_minus_one)
        json_object_set_new(out->extra, MST_LABEL_MINUS_ONE, json_true());
    if (isfinite(self->evals.best_valid_loss))
        json_object_set_new(out->extra, "best_valid_loss", json_real(self->evals.best_valid_loss));
    if (isfinite(self->evals.train_loss))
        json_object_set_new(out->extra, "train_loss", json_real(self->evals.train_loss));
    if (isfinite(self->evals.train_accuracy))
        json_object_set_new(out->extra, "train_accuracy", json_real(self->evals.train_accuracy));
    if (self->first_pass.rows > 0)
        json_object_set_new(out->extra, "first_pass", mst_loss_sum_json(&self->first_pass));
    if (self->evals.window.n > 0)
        json_object_set_new(out->extra, "loss_window", mst_loss_window_json(&self->evals.window));
    return MST_OK;
}

json_t *mst_run_log_state(const mst_run_log *self)
{
    mst_checkpoint_meta meta = {0};
    json_t *state = NULL;
    if (run_log_compose_meta(self, &meta) == MST_OK)
        state = json_pack("{s:I, s:I, s:I, s:I, s:f, s:f, s:O}", "step", (json_int_t)meta.step, "rows",
                          (json_int_t)meta.rows, "epoch", (json_int_t)meta.epoch, "position",
                          (json_int_t)meta.position, "train_seconds", meta.train_seconds, "eval_seconds",
                          meta.eval_seconds, "extra", meta.extra);
    mst_checkpoint_meta_fini(&meta);
    return state;
}

static void run_log_warn_save(const mst_run_log *self, const mst_error *failure, const char *what)
{
    char *earlier = NULL;
    bool any = mst_checkpoint_find(mst_run_path(self->run), &earlier) == MST_OK;
    mst_free(earlier);
    mst_warn("%s is not saved: %s%s", what, failure->text, any ? "; the earlier checkpoints remain" : "");
}

void mst_run_log_warn_unsaved(mst_run_log *self)
{
    if (self->save.unreported)
        run_log_warn_save(self, &self->save.failure, "a checkpoint");
    if (self->save.best_unreported)
        run_log_warn_save(self, &self->save.best_failure, "the checkpoint of the best weights");
    self->save.unreported = self->save.best_unreported = false;
}

/* Takes the failure of a save. A disk that is full or fails costs that save only, and a warning follows if
 * training continues; other failures are returned. */
static mst_status run_log_skip_save(mst_run_log *self, const mst_checkpointer *checkpointer, mst_status st)
{
    bool best = checkpointer == self->save.best;
    if (st != MST_EIO)
        return st;
    mst_error_save(best ? &self->save.best_failure : &self->save.failure, st);
    *(best ? &self->save.best_unreported : &self->save.unreported) = true;
    if (!best)
        self->save.saved_step = UINT64_MAX;
    return MST_OK;
}

/* Waits for the save under way, if there is one. */
static mst_status run_log_await_save(mst_run_log *self, mst_checkpointer *checkpointer)
{
    return run_log_skip_save(self, checkpointer, mst_checkpointer_wait(checkpointer, NULL));
}

/* The checkpointer has received a save whole. */
static void run_log_save_handed_over(mst_run_log *self, const mst_checkpointer *checkpointer)
{
    mst_error *failure = checkpointer == self->save.best ? &self->save.best_failure : &self->save.failure;
    failure->code = MST_OK;
    self->worth_keeping = true;
}

mst_status mst_run_log_settle(mst_run_log *self, bool wait)
{
    if (!self->save.settling || (!wait && !mst_checkpointer_idle(self->save.checkpointer)))
        return MST_OK;
    self->save.settling = false;
    TRY(run_log_await_save(self, self->save.checkpointer));
    if (self->save.failure.code == MST_OK)
        mst_run_settle(self->run);
    return MST_OK;
}

void mst_run_log_plan(mst_run_log *self, json_t *plan)
{
    json_decref(self->save.plan);
    self->save.plan = plan;
}

/* *saved: false if the save was skipped. */
static mst_status run_log_save_whole(mst_run_log *self, mst_checkpointer *checkpointer,
                                     const mst_params *params, bool *saved)
{
    uint64_t start = mst_now_ns();
    mst_checkpoint_meta meta = {0};
    mst_status st = run_log_await_save(self, checkpointer);
    if (st == MST_OK)
        st = run_log_compose_meta(self, &meta);
    if (st == MST_OK)
        st = mst_checkpointer_begin(checkpointer, params, &meta);
    mst_checkpoint_meta_fini(&meta);
    *saved = st == MST_OK;
    if (*saved)
        run_log_save_handed_over(self, checkpointer);
    st = run_log_skip_save(self, checkpointer, st);
    self->status.save_seconds += mst_seconds_since(start);
    return st;
}

mst_status mst_run_log_save(mst_run_log *self, const mst_train_callbacks *callbacks, const mst_params *params)
{
    bool saved;
    TRY(mst_run_log_keep_folder(self));
    mst_run_log_save_begins(self);
    if (self->save.checkpointer != NULL)
        TRY(run_log_await_save(self, self->save.checkpointer)); /* a failed save is repeated */
    if (!mst_run_log_unsaved(self))
        return MST_OK;
    mst_run_log_mark_step(self, "checkpoint_begin", self->progress.steps);
    TRY(run_log_save_whole(self, self->save.checkpointer, params, &saved));
    mst_run_log_mark_step(self, "checkpoint_end", self->progress.steps);
    if (!saved)
        return MST_OK;
    self->save.saved_step = self->progress.steps;
    self->save.settling = mst_run_replaces(self->run);
    TRY(mst_run_log_settle(self, true));
    if (callbacks->saved != NULL)
        callbacks->saved(callbacks->arg, &self->status, mst_run_path(self->run));
    return MST_OK;
}

mst_status mst_run_log_save_best(mst_run_log *self, const mst_params *params)
{
    bool saved;
    if (!self->options.in_memory)
        return self->save.best != NULL ? run_log_save_whole(self, self->save.best, params, &saved) : MST_OK;
    if (self->save.best_weights == NULL)
        self->save.best_weights = mst_calloc(params->size, sizeof *self->save.best_weights);
    if (self->save.best_weights == NULL)
        return mst_fail_memory();
    mst_params_read(params, 0, 0, params->size, self->save.best_weights);
    return MST_OK;
}

void mst_run_log_restore_best(const mst_run_log *self, mst_params *params)
{
    if (self->save.best_weights != NULL)
        mst_params_write(params, 0, 0, params->size, self->save.best_weights);
}

/* ---- pieces, in memory ---- */

static mst_status run_log_gather_begin(mst_run_log *self, bool best, mst_params *params)
{
    if (best && self->save.candidate == NULL)
        self->save.candidate = mst_calloc(params->size, sizeof *self->save.candidate);
    if (best && self->save.candidate == NULL)
        return mst_fail_memory();
    self->save.gathered = params;
    self->save.gathers_best = best;
    return MST_OK;
}

static void run_log_gather_write(mst_run_log *self, uint32_t slot, uint64_t first, uint64_t count,
                                 const float *data)
{
    if (!self->save.gathers_best)
        mst_params_write(self->save.gathered, slot, first, count, data);
    else if (slot == 0)
        memcpy(self->save.candidate + first, data, count * sizeof *data);
}

static void run_log_gather_complete(mst_run_log *self)
{
    if (self->save.gathers_best) {
        float *before = self->save.best_weights;
        self->save.best_weights = self->save.candidate;
        self->save.candidate = before;
    }
    self->save.gathered = NULL;
}

/* ---- pieces ---- */

bool mst_run_log_can_save(mst_run_log *self, bool best)
{
    mst_checkpointer *checkpointer = best ? self->save.best : self->save.checkpointer;
    if (self->options.in_memory)
        return self->save.gathered == NULL;
    return checkpointer != NULL && self->save.open == NULL && !self->save.skipping &&
           mst_checkpointer_idle(checkpointer);
}

mst_status mst_run_log_save_begin(mst_run_log *self, bool best, mst_params *params,
                                  const mst_part_spec *parts, uint32_t n)
{
    if (self->options.in_memory)
        return run_log_gather_begin(self, best, params);
    uint64_t start = mst_now_ns();
    mst_checkpointer *checkpointer = best ? self->save.best : self->save.checkpointer;
    mst_checkpoint_meta meta = {0};
    if (checkpointer == NULL || self->save.open != NULL)
        return mst_fail(MST_EUSAGE, "%s: %s", mst_run_path(self->run),
                        self->save.open != NULL ? "another checkpoint is being written"
                                                : "no such checkpoint is to be written");
    TRY(mst_run_log_keep_folder(self));
    if (!best)
        mst_run_log_save_begins(self);
    mst_status st = run_log_await_save(self, checkpointer);
    if (st == MST_OK)
        st = run_log_compose_meta(self, &meta);
    if (st == MST_OK)
        st = mst_checkpointer_begin_parts(checkpointer, params, &meta, parts, n);
    mst_checkpoint_meta_fini(&meta);
    self->save.skipping = st == MST_EIO;
    if (st == MST_OK) {
        self->save.open = checkpointer;
        self->save.open_status = self->status;
        self->save.open_seconds = self->status.save_seconds;
        mst_run_log_mark_step(self, "checkpoint_begin", self->status.step);
    }
    st = run_log_skip_save(self, checkpointer, st);
    self->status.save_seconds += mst_seconds_since(start);
    return st;
}

static mst_status run_log_none_open(const mst_run_log *self)
{
    return mst_fail(MST_EUSAGE, "%s: no checkpoint is being written", mst_run_path(self->run));
}

mst_status mst_run_log_save_write(mst_run_log *self, uint32_t slot, uint64_t first, uint64_t count,
                                  const float *data, bool lazy)
{
    uint64_t start = mst_now_ns();
    mst_checkpointer *checkpointer = self->save.open;
    if (self->save.gathered != NULL)
        run_log_gather_write(self, slot, first, count, data);
    if (self->save.skipping || self->save.gathered != NULL)
        return MST_OK;
    if (checkpointer == NULL)
        return run_log_none_open(self);
    mst_status st = mst_checkpointer_write(checkpointer, slot, first, count, data, lazy);
    self->save.skipping = st == MST_EIO;
    if (st != MST_OK)
        self->save.open = NULL;
    st = run_log_skip_save(self, checkpointer, st);
    self->status.save_seconds += mst_seconds_since(start);
    return st;
}

mst_status mst_run_log_save_complete(mst_run_log *self, const mst_train_callbacks *callbacks)
{
    mst_checkpointer *checkpointer = self->save.open;
    bool skipped = self->save.skipping;
    self->save.skipping = false;
    if (self->save.gathered != NULL) {
        run_log_gather_complete(self);
        return MST_OK;
    }
    if (skipped)
        return MST_OK;
    if (checkpointer == NULL)
        return run_log_none_open(self);
    self->save.open = NULL;
    TRY(mst_checkpointer_complete(checkpointer));
    mst_run_log_mark_step(self, "checkpoint_end", self->save.open_status.step);
    run_log_save_handed_over(self, checkpointer);
    if (checkpointer != self->save.checkpointer)
        return MST_OK;
    self->save.saved_step = self->save.open_status.step;
    run_log_adjust_interval(self, self->status.save_seconds - self->save.open_seconds);
    self->save.settling = mst_run_replaces(self->run);
    if (callbacks->saved != NULL)
        callbacks->saved(callbacks->arg, &self->save.open_status, mst_run_path(self->run));
    return MST_OK;
}

void mst_run_log_save_abandon(mst_run_log *self)
{
    if (self->save.open != NULL)
        mst_checkpointer_abandon(self->save.open);
    self->save.open = NULL;
    self->save.gathered = NULL;
    self->save.skipping = false;
}
