/* Contract in run_log.h: the run directory, evaluations, saving, the end. What is due is in run_log_due.c. */
#include "base/json_text.h"
#include "base/version.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "observe/mark_file.h"
#include "options/option_tables.h"
#include "run/history.h"
#include "train/run_log_impl.h"

#define LINE_NS MST_S /* between training lines of metrics.csv */

mst_status mst_run_log_new(const mst_run_log_options *options, mst_run_log **out)
{
    mst_run_log *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->options = *options;
    self->eval.every = options->schedule.eval;
    self->checkpoint.every = options->schedule.checkpoint;
    self->best_valid_loss = INFINITY;
    self->saved_step = self->evaluated_step = UINT64_MAX;
    self->last_train_loss = NAN;
    self->options.model = json_incref(options->model);
    self->options.data = options->data != NULL ? json_incref(options->data) : json_object();
    self->options.source = json_incref(options->source);
    if (self->options.model == NULL || self->options.data == NULL) {
        mst_run_log_destroy(self);
        return mst_fail_memory();
    }
    *out = self;
    return MST_OK;
}

/* Nobody trains into the directory any more. */
static void close_run(mst_run_log *self)
{
    mst_checkpointer_destroy(self->checkpointer);
    mst_checkpointer_destroy(self->best_checkpointer);
    self->checkpointer = self->best_checkpointer = self->open = NULL;
    self->settling = false;
    if (mst_run_log_path(self) != NULL) {
        mst_free(self->folder);
        self->folder = mst_strdup(mst_run_log_path(self));
    }
    mst_run_destroy(self->run);
    self->run = NULL;
}

void mst_run_log_destroy(mst_run_log *self)
{
    if (self == NULL)
        return;
    close_run(self);
    json_decref(self->manifest);
    json_decref(self->plan);
    json_decref(self->options.model);
    json_decref(self->options.data);
    json_decref(self->options.source);
    json_decref(self->source_before);
    mst_free(self->folder);
    mst_free(self);
}

/* ---- the run directory ---- */

static json_t *result_json(const mst_result *r)
{
    json_t *json = json_pack("{s:I}", "rows", (json_int_t)r->rows);
    const struct {
        const char *name;
        double value;
    } figures[] = {{"loss", r->loss},
                   {"accuracy", r->accuracy},
                   {"top5", r->top5},
                   {"auc", r->auc},
                   {"seconds", r->seconds}};
    if (json != NULL && r->unseen > 0)
        json_object_set_new(json, "unseen", json_integer((json_int_t)r->unseen));
    for (size_t i = 0; json != NULL && i < sizeof figures / sizeof *figures; i++)
        if (isfinite(figures[i].value))
            json_object_set_new(json, figures[i].name, json_real(figures[i].value));
    return json;
}

static mst_status write_manifest(mst_run_log *self, const char *state)
{
    const mst_train_status *s = &self->status;
    json_t *m = self->manifest;
    json_object_set_new(m, "state", json_string(state));
    json_object_set_new(m, "progress",
                        json_pack("{s:I, s:I, s:I, s:f, s:f, s:f}", "step", (json_int_t)s->step, "rows",
                                  (json_int_t)s->rows, "epoch", (json_int_t)s->epoch, "train_seconds",
                                  s->train_seconds, "eval_seconds", s->eval_seconds, "save_seconds",
                                  s->save_seconds));
    if (self->test.rows > 0)
        json_object_set_new(m, "test", result_json(&self->test));
    if (self->valid.rows > 0)
        json_object_set_new(m, "valid", result_json(&self->valid));
    return mst_run_manifest(self->run, m);
}

static mst_status open_directory(mst_run_log *self)
{
    const mst_train_options *o = self->options.train;
    mst_run_open how = o->resume ? MST_RUN_RESUME : o->overwrite ? MST_RUN_OVERWRITE : MST_RUN_NEW;
    if (o->run != NULL)
        return mst_run_new(o->run, how, self->progress.steps, &self->run);
    mst_status st = MST_EEXIST;
    while (st == MST_EEXIST) { /* again when another process took the name first */
        char *name = mst_run_free_name("runs", self->options.model_name);
        if (name == NULL)
            return mst_fail_memory();
        st = mst_run_new(name, how, self->progress.steps, &self->run);
        mst_free(name);
    }
    return st;
}

static mst_status open_checkpointers(mst_run_log *self)
{
    mst_status st = MST_OK;
    const mst_train_options *o = self->options.train;
    const char *const *slots = self->options.optimizer->ops->slot_names;
    char *folder = mst_sprintf("%s/checkpoints", mst_run_path(self->run)),
         *best = mst_sprintf("%s/best", mst_run_path(self->run));
    if (folder == NULL || best == NULL)
        TRY_OUT(st, mst_fail_memory());
    if (o->save)
        TRY_OUT(st, mst_checkpointer_new(folder, (uint32_t)o->keep, slots, &self->checkpointer));
    if (o->save && o->patience > 0)
        TRY_OUT(st, mst_checkpointer_new(best, 1, slots, &self->best_checkpointer));
out:
    mst_free(folder);
    mst_free(best);
    return st;
}

static mst_status add_history(mst_run_log *self)
{
    json_t *before = self->options.train->resume ? mst_run_last_manifest(self->run) : NULL;
    mst_history_point at = {.step = self->progress.steps,
                            .rows = self->progress.rows,
                            .train_seconds = self->status.train_seconds};
    mst_status st = mst_history_add(before, at, self->manifest);
    json_decref(before);
    return st;
}

mst_status mst_run_log_open(mst_run_log *self, json_t *entries)
{
    char host[256] = "", now[24];
    TRY(open_directory(self));
    TRY(open_checkpointers(self));
    gethostname(host, sizeof host - 1);
    mst_wall_time(now);
    self->manifest = json_pack("{s:s, s:s, s:s}", "muster", mst_version(), "started", now, "host", host);
    if (self->manifest == NULL || (entries != NULL && json_object_update(self->manifest, entries) != 0))
        return mst_fail_memory();
    if (self->options.source != NULL && json_object_set(self->manifest, "source", self->options.source) != 0)
        return mst_fail_memory();
    TRY(add_history(self));
    TRY(write_manifest(self, "running"));
    mst_run_log_tell_new_data(self);
    self->opened_steps = self->progress.steps;
    mst_run_log_schedule(self, &self->eval);
    mst_run_log_schedule(self, &self->checkpoint);
    self->line_ns = mst_now_ns();
    mst_run_log_mark(self, "", self->options.train->resume ? "resume" : "start", NULL);
    return MST_OK;
}

mst_status mst_run_log_note(mst_run_log *self, const char *key, json_t *value)
{
    if (json_object_set_new(self->manifest, key, value) != 0)
        return mst_fail_memory();
    return MST_OK;
}

const char *mst_run_log_path(const mst_run_log *self)
{
    return self->run != NULL && !mst_run_is_lost(self->run) ? mst_run_path(self->run) : NULL;
}

const char *mst_run_log_folder(const mst_run_log *self)
{
    return self->folder;
}

/* ---- the observer ---- */

void mst_run_log_mark(mst_run_log *self, const char *process, const char *kind, const char *text)
{
    if (mst_run_log_path(self) != NULL && self->options.train->observe)
        mst_mark(mst_run_path(self->run), process, kind, text);
}

void mst_run_log_observe(mst_run_log *self, mst_observe *observe)
{
    json_t *options = json_object_get(self->manifest, "options");
    const char *group = json_string_value(json_object_get(json_object_get(options, "training"), "group"));
    self->observe = observe;
    self->told_step = self->progress.steps;
    mst_observe_set_first_step(observe, self->progress.steps);
    json_t *compared = mst_train_compared(options, group != NULL);
    mst_observe_config(observe, group, options, compared);
    json_decref(compared);
    mst_observe_file_in(observe, mst_run_path(self->run));
}

/* The same as a line of metrics.csv, for TensorBoard: what is trained and what is evaluated are curves of two
 * folders, which it draws into one picture. The steps of a curve must grow: figures of an evaluation may come
 * later than a line about training after it. */
static void tell_curves(mst_run_log *self, const mst_train_status *s, const mst_metrics *line)
{
    const mst_scalar train[] = {{"loss", line->train_loss}, {"lr", line->lr}, {"epoch", (double)line->epoch}};
    const mst_scalar test[] = {
        {"loss", line->loss}, {"accuracy", line->accuracy}, {"auc", line->auc}, {"top5", line->top5}};
    const mst_scalar valid[] = {{"valid/loss", line->loss},
                                {"valid/accuracy", line->accuracy},
                                {"valid/auc", line->auc},
                                {"valid/top5", line->top5}};
    mst_observe_set_step(self->observe, self->status.step);
    if (s->step > self->told_step) {
        mst_observe_scalars(self->observe, MST_RECORD_EVENTS, s->step, train, sizeof train / sizeof *train);
        self->told_step = s->step;
    }
    if (line->set[0] != 0)
        mst_observe_scalars(self->observe, MST_RECORD_EVALUATIONS, s->step,
                            line->set[0] == 'v' ? valid : test, sizeof test / sizeof *test);
}

/* What the end writes; the directory is closed after it. */
static void end_watch(mst_run_log *self, bool over, bool failed, const char *text)
{
    json_t *phases = mst_observe_phases(self->observe);
    if (phases != NULL)
        json_object_set_new(self->manifest, "phases", phases);
    if (mst_run_log_path(self) == NULL)
        mst_observe_disown(self->observe);
    if (over)
        mst_observe_run_ends(self->observe, failed);
    mst_observe_end(self->observe);
    mst_run_log_mark(self, "", "end", text);
    self->observe = NULL;
}

/* A line of metrics.csv. Its training loss is the mean since the last evaluation, and of more where that was
 * just now (loss_window.h), so that it does not depend on the clock, which decides only how many lines there
 * are in between. */
static mst_status write_line(mst_run_log *self, const mst_train_status *s, const mst_loss_sum *train,
                             const char *set, const mst_result *r)
{
    mst_metrics line = {
        .step = s->step,
        .rows = s->rows,
        .epoch = s->epoch,
        .train_seconds = s->train_seconds,
        .eval_seconds = s->eval_seconds,
        .lr = s->lr,
        .train_loss = mst_loss_window_mean(&self->window, train),
        .set = set,
        .loss = r ? r->loss : (double)NAN,
        .accuracy = r ? r->accuracy : (double)NAN,
        .auc = r ? r->auc : (double)NAN,
        .top5 = r ? r->top5 : (double)NAN,
    };
    self->line_ns = mst_now_ns();
    self->worth_keeping = true;
    tell_curves(self, s, &line);
    return mst_run_metrics(self->run, &line);
}

mst_status mst_run_log_line(mst_run_log *self)
{
    if (mst_now_ns() - self->line_ns < LINE_NS || self->line_loss.rows == 0)
        return MST_OK;
    return write_line(self, &self->status, &self->line_loss, "", NULL);
}

/* ---- evaluations ---- */

static void mark_step(mst_run_log *self, const char *kind, uint64_t step)
{
    char text[32];
    snprintf(text, sizeof text, "step %llu", (unsigned long long)step);
    mst_run_log_mark(self, "", kind, text);
}

void mst_run_log_evaluation_begins(mst_run_log *self)
{
    const mst_train_options *o = self->options.train;
    self->evaluating = true;
    self->evaluation_due = o->test.n > 0 || o->valid != NULL;
    self->marked = self->status;
    self->evaluated_step = self->progress.steps;
    mst_add_loss(&self->marked_loss, &self->line_loss);
    self->line_loss = (mst_loss_sum){0};
    mst_run_log_schedule(self, &self->eval);
    if (self->evaluation_due)
        mark_step(self, "evaluate_begin", self->status.step);
}

bool mst_run_log_evaluation_owed(const mst_run_log *self)
{
    return self->evaluation_due && !self->evaluating;
}

static mst_status record(mst_run_log *self, const mst_train_callbacks *callbacks, const char *name,
                         const mst_result *result, mst_result *last)
{
    if (result == NULL || result->rows == 0)
        return MST_OK;
    *last = *result;
    self->status.eval_seconds += result->seconds;
    self->marked.eval_seconds = self->status.eval_seconds;
    self->n_evaluations++;
    TRY(write_line(self, &self->marked, &self->marked_loss, name, result));
    if (callbacks->evaluated != NULL)
        callbacks->evaluated(callbacks->arg, &self->marked, name, result);
    return MST_OK;
}

static double metric_value(const mst_run_log *self, mst_metric metric)
{
    switch (metric) {
    case MST_METRIC_TRAIN_LOSS:
        return self->last_train_loss;
    case MST_METRIC_TEST_LOSS:
        return self->test.loss;
    case MST_METRIC_TEST_ACCURACY:
        return self->test.accuracy;
    case MST_METRIC_TEST_AUC:
        return self->test.auc;
    case MST_METRIC_TEST_TOP5:
        return self->test.top5;
    case MST_METRIC_VALID_LOSS:
        return self->valid.loss;
    case MST_METRIC_VALID_ACCURACY:
        return self->valid.accuracy;
    case MST_METRIC_VALID_AUC:
        return self->valid.auc;
    case MST_METRIC_VALID_TOP5:
        return self->valid.top5;
    case MST_METRIC_COUNT:
        break;
    }
    return NAN;
}

/* Looks at the loss on --valid: better than all before? True when patience is used up. */
static bool watch_patience(mst_run_log *self, bool *best)
{
    if (self->options.train->patience == 0)
        return false;
    *best = self->valid.loss < self->best_valid_loss;
    if (!*best)
        return ++self->since_best >= (uint64_t)self->options.train->patience;
    self->best_valid_loss = self->valid.loss;
    self->best_step = self->marked.step;
    self->since_best = 0;
    return false;
}

mst_status mst_run_log_evaluated(mst_run_log *self, const mst_train_callbacks *callbacks,
                                 const mst_result *valid, const mst_result *test, mst_judgement *out)
{
    const mst_run_schedule *schedule = &self->options.schedule;
    mst_judgement verdict = {0};
    TRY(record(self, callbacks, "valid", valid, &self->valid));
    TRY(record(self, callbacks, "test", test, &self->test));
    if (self->evaluation_due)
        mark_step(self, "evaluate_end", self->marked.step);
    else
        TRY(write_line(self, &self->marked, &self->marked_loss, "", NULL));
    self->evaluating = self->evaluation_due = false;
    if (self->marked_loss.rows > 0)
        self->last_train_loss = mst_loss_window_mean(&self->window, &self->marked_loss);
    mst_loss_window_close(&self->window, &self->marked_loss);
    self->marked_loss = (mst_loss_sum){0};
    bool enough = watch_patience(self, &verdict.best);
    bool met = schedule->has_until &&
               mst_condition_holds(&schedule->until, metric_value(self, schedule->until.metric));
    verdict.over = met || enough;
    verdict.end = met ? MST_END_UNTIL : MST_END_PATIENCE;
    *out = verdict;
    return MST_OK;
}

/* ---- saving ---- */

/* Composes what goes with the weights; mst_checkpoint_meta_fini in any case. */
static mst_status compose_meta(const mst_run_log *self, mst_checkpoint_meta *out)
{
    mst_loss_sum sum = self->marked_loss;
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
        .extra = json_pack("{s:O, s:I, s:I, s:b, s:[f, f, I]}", "data", self->options.data, "best_step",
                           (json_int_t)self->best_step, "since_best", (json_int_t)self->since_best,
                           "evaluation_due", (int)self->evaluation_due, "line_loss", sum.loss, sum.weight,
                           (json_int_t)sum.rows),
    };
    if (out->optimizer == NULL || out->extra == NULL)
        return mst_fail_memory();
    if (self->plan != NULL)
        json_object_set(out->extra, "plan", self->plan);
    if (self->options.source != NULL)
        json_object_set(out->extra, "source", self->options.source);
    json_object_set_new(out->extra, "data_start",
                        json_pack("[I, I, I, f]", (json_int_t)self->start.epoch,
                                  (json_int_t)self->start.steps, (json_int_t)self->start.rows,
                                  self->start.seconds));
    if (self->options.reading_unknown)
        json_object_set_new(out->extra, "reading_unknown", json_true());
    if (isfinite(self->best_valid_loss))
        json_object_set_new(out->extra, "best_valid_loss", json_real(self->best_valid_loss));
    if (isfinite(self->last_train_loss))
        json_object_set_new(out->extra, "train_loss", json_real(self->last_train_loss));
    if (self->window.n > 0)
        json_object_set_new(out->extra, "loss_window", mst_loss_window_json(&self->window));
    return MST_OK;
}

mst_status mst_run_log_settle(mst_run_log *self, bool wait)
{
    if (!self->settling || (!wait && !mst_checkpointer_idle(self->checkpointer)))
        return MST_OK;
    self->settling = false;
    TRY(mst_checkpointer_wait(self->checkpointer, NULL));
    mst_run_settle(self->run);
    return MST_OK;
}

void mst_run_log_plan(mst_run_log *self, json_t *plan)
{
    json_decref(self->plan);
    self->plan = plan;
}

static mst_status save(mst_run_log *self, mst_checkpointer *checkpointer, const mst_params *params)
{
    uint64_t start = mst_now_ns();
    mst_checkpoint_meta meta;
    mst_status st = compose_meta(self, &meta);
    if (st == MST_OK)
        st = mst_checkpointer_begin(checkpointer, params, &meta);
    mst_checkpoint_meta_fini(&meta);
    self->status.save_seconds += mst_seconds_since(start);
    return st;
}

/* Before something is written to the run's folder: what was saved in one that is deleted is not saved. */
static mst_status keep_folder(mst_run_log *self)
{
    bool lost = false;
    mst_status st = mst_run_keep(self->run, &lost);
    if (lost)
        self->saved_step = UINT64_MAX;
    return st;
}

mst_status mst_run_log_save(mst_run_log *self, const mst_train_callbacks *callbacks, const mst_params *params)
{
    TRY(keep_folder(self));
    mst_run_log_save_begins(self);
    if (!mst_run_log_unsaved(self))
        return MST_OK;
    mark_step(self, "checkpoint_begin", self->progress.steps);
    TRY(save(self, self->checkpointer, params));
    mark_step(self, "checkpoint_end", self->progress.steps);
    self->saved_step = self->progress.steps;
    self->worth_keeping = true;
    self->settling = mst_run_replaces(self->run);
    TRY(mst_run_log_settle(self, true));
    if (callbacks->saved != NULL)
        callbacks->saved(callbacks->arg, &self->status, mst_run_path(self->run));
    return MST_OK;
}

mst_status mst_run_log_save_best(mst_run_log *self, const mst_params *params)
{
    return self->best_checkpointer != NULL ? save(self, self->best_checkpointer, params) : MST_OK;
}

bool mst_run_log_can_save(mst_run_log *self, bool best)
{
    mst_checkpointer *checkpointer = best ? self->best_checkpointer : self->checkpointer;
    return checkpointer != NULL && self->open == NULL && mst_checkpointer_idle(checkpointer);
}

mst_status mst_run_log_save_begin(mst_run_log *self, bool best, const mst_params *params,
                                  const mst_part_spec *parts, uint32_t n)
{
    uint64_t start = mst_now_ns();
    mst_checkpointer *checkpointer = best ? self->best_checkpointer : self->checkpointer;
    mst_checkpoint_meta meta;
    if (checkpointer == NULL || self->open != NULL)
        return mst_fail(MST_EUSAGE, "%s: %s", mst_run_path(self->run),
                        self->open != NULL ? "another checkpoint is being written"
                                           : "no such checkpoint is to be written");
    TRY(keep_folder(self));
    if (!best)
        mst_run_log_save_begins(self);
    mst_status st = compose_meta(self, &meta);
    if (st == MST_OK)
        st = mst_checkpointer_begin_parts(checkpointer, params, &meta, parts, n);
    mst_checkpoint_meta_fini(&meta);
    if (st == MST_OK) {
        self->open = checkpointer;
        self->open_status = self->status;
        mark_step(self, "checkpoint_begin", self->status.step);
    }
    self->status.save_seconds += mst_seconds_since(start);
    return st;
}

static mst_status none_open(const mst_run_log *self)
{
    return mst_fail(MST_EUSAGE, "%s: no checkpoint is being written", mst_run_path(self->run));
}

mst_status mst_run_log_save_write(mst_run_log *self, uint32_t slot, uint64_t first, uint64_t count,
                                  const float *data, bool lazy)
{
    uint64_t start = mst_now_ns();
    if (self->open == NULL)
        return none_open(self);
    mst_status st = mst_checkpointer_write(self->open, slot, first, count, data, lazy);
    if (st != MST_OK)
        self->open = NULL;
    self->status.save_seconds += mst_seconds_since(start);
    return st;
}

mst_status mst_run_log_save_complete(mst_run_log *self, const mst_train_callbacks *callbacks)
{
    mst_checkpointer *checkpointer = self->open;
    if (checkpointer == NULL)
        return none_open(self);
    self->open = NULL;
    TRY(mst_checkpointer_complete(checkpointer));
    mark_step(self, "checkpoint_end", self->open_status.step);
    self->worth_keeping = true;
    if (checkpointer != self->checkpointer)
        return MST_OK;
    self->saved_step = self->open_status.step;
    self->settling = mst_run_replaces(self->run);
    if (callbacks->saved != NULL)
        callbacks->saved(callbacks->arg, &self->open_status, mst_run_path(self->run));
    return MST_OK;
}

void mst_run_log_save_abandon(mst_run_log *self)
{
    if (self->open != NULL)
        mst_checkpointer_abandon(self->open);
    self->open = NULL;
}

/* ---- the end ---- */

/* The checkpoint that eval and predict use, where it is not the newest. */
static void name_best(const mst_run_log *self, mst_train_summary *summary)
{
    char *path = NULL;
    bool best;
    if (self->best_checkpointer != NULL &&
        mst_checkpoint_find_model(mst_run_path(self->run), false, &path, &best) == MST_OK && best)
        snprintf(summary->best_checkpoint, sizeof summary->best_checkpoint, "%s", path);
    mst_free(path);
}

/* What readers of the run's folder will not find there. */
static void name_missing(const mst_run_log *self, mst_train_summary *summary)
{
    char *out = summary->missing;
    size_t size = sizeof summary->missing, n = strlen(mst_run_missing(self->run, out, size));
    if (n > 0 && self->options.train->observe)
        n += (size_t)snprintf(
            out + n, size - n,
            ", earlier lines of marks.csv, processes/ (resources, phases, TensorBoard curves)");
    if (n > 0 && summary->checkpoint[0] != '\0' && !mst_path_exists(summary->checkpoint)) {
        snprintf(out + n, size - n, ", the checkpoint");
        summary->checkpoint[0] = '\0';
    }
    if (n > 0)
        json_object_set_new(self->manifest, "missing", json_string(out));
}

mst_status mst_run_log_finish(mst_run_log *self, mst_end end, mst_train_summary *summary)
{
    uint64_t start = mst_now_ns();
    char *path = NULL;
    mst_run_log_save_abandon(self);
    TRY(mst_run_log_settle(self, true));
    if (self->best_checkpointer != NULL)
        TRY(mst_checkpointer_wait(self->best_checkpointer, NULL));
    if (self->checkpointer != NULL)
        TRY(mst_checkpointer_wait(self->checkpointer, &path));
    self->status.save_seconds += mst_seconds_since(start);
    if (path == NULL && self->options.train->resume && self->saved_step == self->progress.steps)
        (void)mst_checkpoint_find(mst_run_path(self->run),
                                  &path); /* what the run was resumed from, if still there */
    snprintf(summary->run, sizeof summary->run, "%s", mst_run_path(self->run));
    snprintf(summary->checkpoint, sizeof summary->checkpoint, "%s", path ? path : "");
    mst_free(path);
    name_best(self, summary);
    (void)keep_folder(self); /* else write_manifest says why */
    name_missing(self, summary);
    mst_loss_sum sum = self->marked_loss;
    mst_add_loss(&sum, &self->line_loss);
    summary->end = end;
    summary->status = self->status;
    summary->status.waiting = NULL;
    summary->status.train_loss =
        isfinite(self->last_train_loss) ? self->last_train_loss : mst_mean_loss(&sum);
    summary->test = self->test;
    summary->valid = self->valid;
    summary->best_valid_loss = isfinite(self->best_valid_loss) ? self->best_valid_loss : (double)NAN;
    summary->best_step = self->best_step;
    summary->steps_here = self->progress.steps - self->opened_steps;
    summary->n_evaluations = self->n_evaluations;
    bool failed = end == MST_END_DESERTED;
    json_object_set_new(self->manifest, "end", json_string(mst_end_text(end)));
    if (failed)
        json_object_set_new(self->manifest, "error", json_string(mst_end_text(end)));
    end_watch(self, end != MST_END_STOPPED, failed, mst_end_text(end));
    TRY(write_manifest(self, failed ? "failed" : end == MST_END_STOPPED ? "stopped" : "done"));
    close_run(self);
    return MST_OK;
}

/* Where the disk failed and a checkpoint stands: how to go on. */
static void add_way_on(const mst_run_log *self, mst_error *error)
{
    char *checkpoint = NULL;
    size_t n = strlen(error->text);
    if (error->code != MST_EIO || mst_checkpoint_find(mst_run_path(self->run), &checkpoint) != MST_OK)
        return;
    char command[MST_ERROR_MAX / 2];
    mst_run_resume_command(mst_run_path(self->run), command, sizeof command);
    snprintf(error->text + n, sizeof error->text - n, "; %s is whole: once that is fixed, continue with: %s",
             checkpoint, command);
    mst_free(checkpoint);
}

mst_status mst_run_log_give_up(mst_run_log *self, mst_status st)
{
    mst_error error;
    mst_error_save(&error, st);
    mst_run_log_save_abandon(self);
    mst_run_log_settle(self, true); /* a checkpoint that is whole counts */
    if (self->run != NULL)
        end_watch(self, true, true, error.text);
    if (self->run != NULL && (self->worth_keeping || self->options.train->resume) &&
        !mst_run_replaces_result(self->run)) {
        mst_run_settle(self->run);
        json_object_set_new(self->manifest, "error", mst_json_text(error.text));
        write_manifest(self, "failed");
        add_way_on(self, &error);
    } else if (self->run != NULL) {
        mst_checkpointer_destroy(self->checkpointer);
        mst_checkpointer_destroy(self->best_checkpointer);
        self->checkpointer = self->best_checkpointer = NULL;
        mst_run_abandon(self->run);
    }
    close_run(self);
    return mst_error_restore(&error);
}
