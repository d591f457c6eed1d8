/* The run log: the run directory and its files; contract in run_log.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/version.h"
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
    self->eval_due.every = options->schedule.eval;
    self->save_due.every = options->schedule.checkpoint;
    self->evals.best_valid_loss = INFINITY;
    self->save.saved_step = self->evals.step = UINT64_MAX;
    self->evals.train_loss = self->evals.train_accuracy = NAN;
    self->status.progressive_loss = NAN;
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

/* Closes the directory when training into it is over. */
static void run_log_close(mst_run_log *self)
{
    mst_checkpointer_destroy(self->save.checkpointer);
    mst_checkpointer_destroy(self->save.best);
    self->save.checkpointer = self->save.best = self->save.open = NULL;
    self->save.settling = false;
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
    run_log_close(self);
    json_decref(self->manifest);
    json_decref(self->save.plan);
    mst_free(self->save.best_weights);
    mst_free(self->save.candidate);
    json_decref(self->options.model);
    json_decref(self->options.data);
    json_decref(self->options.source);
    json_decref(self->source_before);
    json_decref(self->workers);
    json_decref(self->workers_before);
    mst_free(self->folder);
    mst_free(self);
}

/* ---- the run directory ---- */

mst_status mst_run_log_write_manifest(mst_run_log *self, const char *state)
{
    const mst_train_status *s = &self->status;
    json_t *m = self->manifest;
    json_object_set_new(m, "state", json_string(state));
    json_object_set_new(m, "progress",
                        json_pack("{s:I, s:I, s:I, s:f, s:f, s:f}", "step", (json_int_t)s->step, "rows",
                                  (json_int_t)s->rows, "epoch", (json_int_t)s->epoch, "train_seconds",
                                  s->train_seconds, "eval_seconds", s->eval_seconds, "save_seconds",
                                  s->save_seconds));
    if (self->options.schedule.auto_checkpoint)
        json_object_set_new(
            m, "saving",
            json_pack("{s:f, s:f}", "every_s", self->save_due.every.n, "cost_s", self->save.cost));
    if (self->evals.test.rows > 0)
        json_object_set_new(m, "test", mst_result_json(&self->evals.test));
    if (self->evals.valid.rows > 0)
        json_object_set_new(m, "valid", mst_result_json(&self->evals.valid));
    return mst_run_manifest(self->run, m);
}

static mst_status run_log_open_directory(mst_run_log *self)
{
    const mst_train_options *o = self->options.train;
    mst_run_open how = o->resume ? MST_RUN_RESUME : o->overwrite ? MST_RUN_OVERWRITE : MST_RUN_NEW;
    /* An incomplete evaluation is repeated: its lines may have been written after the checkpoint. */
    uint64_t step = self->progress.steps, keep_before = step + !self->evals.incomplete;
    if (self->options.in_memory)
        return mst_run_new("", MST_RUN_MEMORY, step, keep_before, &self->run);
    if (o->run != NULL)
        return mst_run_new(o->run, how, step, keep_before, &self->run);
    mst_status st = MST_EEXIST;
    while (st == MST_EEXIST) { /* again if another process takes the name first */
        char *name = mst_run_free_name("runs", self->options.model_name);
        if (name == NULL)
            return mst_fail_memory();
        st = mst_run_new(name, how, step, keep_before, &self->run);
        mst_free(name);
    }
    return st;
}

static mst_status run_log_open_checkpointers(mst_run_log *self)
{
    mst_status st = MST_OK;
    const mst_train_options *o = self->options.train;
    char *folder = mst_sprintf("%s/checkpoints", mst_run_path(self->run)),
         *best = mst_sprintf("%s/best", mst_run_path(self->run));
    if (folder == NULL || best == NULL)
        TRY_OUT(st, mst_fail_memory());
    if (o->save)
        TRY_OUT(st, mst_checkpointer_new(folder, (uint32_t)o->keep, &self->save.checkpointer));
    if (o->save && o->patience > 0)
        TRY_OUT(st, mst_checkpointer_new(best, 1, &self->save.best));
out:
    mst_free(folder);
    mst_free(best);
    return st;
}

static mst_status run_log_add_history(mst_run_log *self, const json_t *before)
{
    mst_history_point at = {.step = self->progress.steps,
                            .rows = self->progress.rows,
                            .train_seconds = self->status.train_seconds};
    return mst_history_add(before, at, self->loss.continues, self->manifest);
}

/* The manifest of this process. before: that of the run so far, or NULL; recorded: its progress. */
static mst_status run_log_make_manifest(mst_run_log *self, json_t *entries, const json_t *before,
                                        const mst_reached *recorded)
{
    char host[256] = "", now[24];
    gethostname(host, sizeof host - 1);
    mst_wall_time(now);
    self->manifest = json_pack("{s:s, s:s, s:s}", "muster", mst_version(), "started", now, "host", host);
    if (self->manifest == NULL || (entries != NULL && json_object_update(self->manifest, entries) != 0))
        return mst_fail_memory();
    if (self->options.source != NULL && json_object_set(self->manifest, "source", self->options.source) != 0)
        return mst_fail_memory();
    json_t *missing = json_object_get(before, "missing");
    TRY(run_log_add_history(self, before));
    if (missing != NULL && self->progress.steps > 0) /* otherwise all its files are written again */
        json_object_set(self->manifest, "missing", missing);
    TRY(mst_run_log_record_loss(self, before, recorded));
    return mst_run_log_write_manifest(self, "running");
}

mst_status mst_run_log_open(mst_run_log *self, json_t *entries)
{
    const mst_train_options *o = self->options.train;
    /* A lost run without a checkpoint is overwritten and keeps its losses. */
    bool again = self->loss.continues && !o->resume && o->run != NULL;
    mst_reached recorded = o->resume || again ? mst_run_reached(o->run) : (mst_reached){0};
    json_t *before = again ? mst_run_read_manifest(o->run) : NULL;
    mst_status st = run_log_open_directory(self);
    if (st == MST_OK && o->resume)
        before = mst_run_last_manifest(self->run);
    if (st == MST_OK)
        st = run_log_open_checkpointers(self);
    if (st == MST_OK)
        st = run_log_make_manifest(self, entries, before, &recorded);
    json_decref(before);
    TRY(st);
    mst_run_log_report_new_data(self);
    self->opened_steps = self->progress.steps;
    mst_run_log_schedule(self, &self->eval_due);
    mst_run_log_schedule(self, &self->save_due);
    if (self->options.schedule.auto_checkpoint)
        mst_info("saving every %.0f s (--checkpoint-every)", self->save_due.every.n);
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
    if (mst_run_log_path(self) == NULL || !self->options.train->observe)
        return;
    (void)mst_run_log_keep_folder(self); /* a mark creates no folder without a manifest */
    if (mst_run_log_path(self) != NULL)
        mst_mark_write(mst_run_path(self->run), process, kind, text);
}

void mst_run_log_mark_step(mst_run_log *self, const char *kind, uint64_t step)
{
    char text[32];
    snprintf(text, sizeof text, "step %llu", (unsigned long long)step);
    mst_run_log_mark(self, "", kind, text);
}

void mst_run_log_observe(mst_run_log *self, mst_observe *observe)
{
    json_t *options = json_object_get(self->manifest, "options");
    const char *group = json_string_value(json_object_get(json_object_get(options, "training"), "group"));
    self->observe = observe;
    self->curve_step = self->progress.steps;
    mst_observe_set_first_step(observe, self->progress.steps);
    json_t *compared = mst_train_compared(options, group != NULL);
    mst_observe_config(observe, group, options, compared);
    json_decref(compared);
    mst_observe_file_in(observe, mst_run_path(self->run));
    mst_run_log_observe_losses(self);
}

/* The figures of an evaluation as curves. */
static void run_log_report_result(mst_run_log *self, uint64_t step, const char *prefix, const mst_result *r)
{
    char tags[16][40];
    mst_scalar scalars[16];
    size_t n = 0;
    for (const mst_result_figure *f = mst_result_figures; f->name != NULL; f++, n++) {
        snprintf(tags[n], sizeof *tags, "%s%s", prefix, f->name);
        scalars[n] = (mst_scalar){tags[n], mst_result_value(r, f)};
    }
    mst_observe_scalars(self->observe, MST_RECORD_EVALUATIONS, step, scalars, n);
}

/* Gives the observer the line of metrics.csv as TensorBoard curves. Training and evaluation are curves of two
 * folders, which TensorBoard draws into one chart. The steps of a curve must increase, but the figures of an
 * evaluation may arrive after a later line about training. */
static void run_log_report_curves(mst_run_log *self, const mst_train_status *s, const mst_metrics *line,
                                  const mst_result *r)
{
    const mst_optimizer *sparse = self->options.optimizer->sparse;
    const mst_scalar train[] = {
        {"loss", line->train_loss},
        {"accuracy", line->train_accuracy},
        {"progressive_loss", line->progressive_loss},
        {"lr", line->lr},
        {"epoch", (double)line->epoch},
        {"lr_sparse",
         sparse != NULL ? (double)mst_learning_rate(&sparse->options, s->step > 0 ? s->step : 1) : 0.0}};
    size_t n = sizeof train / sizeof *train - (sparse == NULL);
    mst_observe_set_step(self->observe, self->status.step);
    if (s->step > self->curve_step) {
        mst_observe_scalars(self->observe, MST_RECORD_EVENTS, s->step, train, n);
        self->curve_step = s->step;
    }
    if (line->set[0] != 0)
        run_log_report_result(self, s->step, line->set[0] == 'v' ? "valid/" : "", r);
}

/* Ends the observer; the directory is closed afterwards. */
static void run_log_end_observer(mst_run_log *self, bool over, bool failed, const char *text)
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

/* The training loss of a line is the mean since the last evaluation, or over a longer time right after one
 * (loss_window.h). So it does not depend on the clock, which decides only the number of lines between. */
mst_status mst_run_log_write_line(mst_run_log *self, const mst_train_status *s, const mst_loss_sum *train,
                                  const char *set, const mst_result *r)
{
    mst_loss_sum recent = mst_loss_window_sum(&self->evals.window, train);
    mst_metrics line = {
        .step = s->step,
        .rows = s->rows,
        .epoch = s->epoch,
        .train_seconds = s->train_seconds,
        .eval_seconds = s->eval_seconds,
        .lr = s->lr,
        .train_loss = mst_mean_loss(&recent),
        .train_accuracy = mst_mean_accuracy(&recent),
        .set = set,
        .loss = r ? r->loss : (double)NAN,
        .accuracy = r ? r->accuracy : (double)NAN,
        .auc = r ? r->auc : (double)NAN,
        .top5 = r ? r->top5 : (double)NAN,
        .progressive_loss = s->progressive_loss,
        .grouped_auc = r ? r->grouped_auc : (double)NAN,
        .calibration = r ? r->calibration : (double)NAN,
        .normalised_entropy = r ? r->normalised_entropy : (double)NAN,
    };
    self->line_ns = mst_now_ns();
    self->worth_keeping = true;
    run_log_report_curves(self, s, &line, r);
    (void)mst_run_log_keep_folder(self); /* mst_run_metrics reports a failure */
    return mst_run_metrics(self->run, &line);
}

mst_status mst_run_log_line(mst_run_log *self)
{
    if (mst_now_ns() - self->line_ns < LINE_NS || self->line_loss.rows == 0)
        return MST_OK;
    return mst_run_log_write_line(self, &self->status, &self->line_loss, "", NULL);
}

/* Sets "missing" of the manifest if files of the run were deleted; false: none were. */
static bool run_log_note_missing(const mst_run_log *self)
{
    char text[sizeof((mst_train_summary *)NULL)->missing];
    size_t n = strlen(mst_run_missing(self->run, text, sizeof text));
    if (n > 0)
        snprintf(text + n, sizeof text - n, "%s",
                 self->options.train->observe
                     ? ", earlier lines of marks.csv, processes/ (resources, phases, TensorBoard curves)"
                     : "");
    return n > 0 && json_object_set_new(self->manifest, "missing", json_string(text)) == 0;
}

mst_status mst_run_log_keep_folder(mst_run_log *self)
{
    bool lost = false;
    mst_status st = mst_run_keep(self->run, &lost);
    if (!lost)
        return st;
    self->save.saved_step = UINT64_MAX;
    if (st == MST_OK && run_log_note_missing(self) && mst_run_log_write_manifest(self, "running") != MST_OK)
        mst_warn("the manifest of the run is not up to date: %s", mst_error_text());
    return st;
}

/* ---- the end ---- */

/* Names the checkpoint that eval and predict use, if it is not the newest. */
static void run_log_name_best(const mst_run_log *self, mst_train_summary *summary)
{
    char *path = NULL;
    bool best;
    if (self->save.best != NULL &&
        mst_checkpoint_find_model(mst_run_path(self->run), false, &path, &best) == MST_OK && best)
        snprintf(summary->best_checkpoint, sizeof summary->best_checkpoint, "%s", path);
    mst_free(path);
}

/* Names the files that are missing from the run's folder. */
static void run_log_name_missing(const mst_run_log *self, mst_train_summary *summary)
{
    char *out = summary->missing;
    size_t size = sizeof summary->missing;
    (void)run_log_note_missing(self);
    const char *noted = json_string_value(json_object_get(self->manifest, "missing"));
    size_t n = (size_t)snprintf(out, size, "%s", noted != NULL ? noted : "");
    n = n < size ? n : size - 1;
    if (n > 0 && summary->checkpoint[0] != '\0' && !mst_path_exists(summary->checkpoint)) {
        snprintf(out + n, size - n, ", the checkpoint");
        summary->checkpoint[0] = '\0';
    }
    if (n > 0)
        json_object_set_new(self->manifest, "missing", json_string(out));
}

/* Waits for the last saves. *path: the last checkpoint, or NULL; the caller's to free. */
static mst_status run_log_end_saves(mst_run_log *self, char **path)
{
    mst_run_log_save_abandon(self);
    TRY(mst_run_log_settle(self, true));
    if (self->save.best != NULL)
        TRY(mst_checkpointer_wait(self->save.best, NULL));
    if (self->save.failure.code != MST_OK)
        return mst_error_restore(&self->save.failure);
    if (self->save.best_failure.code != MST_OK)
        return mst_error_restore(&self->save.best_failure);
    return self->save.checkpointer != NULL ? mst_checkpointer_wait(self->save.checkpointer, path) : MST_OK;
}

mst_status mst_run_log_finish(mst_run_log *self, mst_end end, mst_train_summary *summary)
{
    uint64_t start = mst_now_ns();
    char *path = NULL;
    mst_status st = run_log_end_saves(self, &path);
    if (st == MST_EIO) {
        mst_error error;
        mst_error_save(&error, MST_EUNSAVED);
        *(self->save.failure.code != MST_OK ? &self->save.unreported : &self->save.best_unreported) =
            false; /* the error states it */
        mst_run_log_warn_unsaved(self);
        return mst_error_restore(&error);
    }
    TRY(st);
    self->status.save_seconds += mst_seconds_since(start);
    if (path == NULL && self->options.train->resume && self->save.saved_step == self->progress.steps)
        (void)mst_checkpoint_find(mst_run_path(self->run),
                                  &path); /* the one that the run was resumed from, if it is still there */
    snprintf(summary->run, sizeof summary->run, "%s", mst_run_path(self->run));
    snprintf(summary->checkpoint, sizeof summary->checkpoint, "%s", path ? path : "");
    mst_free(path);
    run_log_name_best(self, summary);
    (void)mst_run_log_keep_folder(self); /* if it fails, writing the manifest reports why */
    run_log_name_missing(self, summary);
    mst_loss_sum sum = self->evals.loss;
    mst_add_loss(&sum, &self->line_loss);
    summary->end = end;
    summary->status = self->status;
    summary->status.waiting = NULL;
    summary->status.progressive_loss = mst_mean_loss(&self->first_pass);
    summary->status.train_loss =
        isfinite(self->evals.train_loss) ? self->evals.train_loss : mst_mean_loss(&sum);
    summary->status.train_accuracy =
        isfinite(self->evals.train_loss) ? self->evals.train_accuracy : mst_mean_accuracy(&sum);
    summary->test = self->evals.test;
    summary->valid = self->evals.valid;
    summary->best_valid_loss =
        isfinite(self->evals.best_valid_loss) ? self->evals.best_valid_loss : (double)NAN;
    summary->best_step = self->evals.best_step;
    summary->steps_here = self->progress.steps - self->opened_steps;
    summary->n_evaluations = self->evals.count;
    mst_run_log_sum_losses(self, &summary->losses);
    summary->workers_since = self->workers_since;
    if (self->workers != NULL) {
        json_object_set(self->manifest, "workers", self->workers);
        json_object_set_new(self->manifest, "workers_since", json_integer((json_int_t)self->workers_since));
    }
    bool failed = end == MST_END_NO_WORKERS;
    json_object_del(self->manifest, "members"); /* only a run that continues needs them */
    json_object_set_new(self->manifest, "end", json_string(mst_end_text(end)));
    if (failed)
        json_object_set_new(self->manifest, "error", json_string(mst_end_text(end)));
    run_log_end_observer(self, end != MST_END_STOPPED, failed, mst_end_text(end));
    TRY(mst_run_log_write_manifest(self, failed ? "failed" : end == MST_END_STOPPED ? "stopped" : "done"));
    run_log_close(self);
    return MST_OK;
}

/* Adds how to continue, if the disk, the data or the memory failed and there is a checkpoint. */
static void run_log_add_resume_hint(const mst_run_log *self, mst_error *error)
{
    char *checkpoint = NULL;
    size_t n = strlen(error->text);
    bool fixable = error->code == MST_EIO || error->code == MST_EUNSAVED || error->code == MST_EINPUT ||
                   error->code == MST_ENOMEM;
    if (!fixable || mst_checkpoint_find(mst_run_path(self->run), &checkpoint) != MST_OK)
        return;
    char advice[MST_ERROR_MAX / 2];
    const char *by = json_string_value(json_object_get(json_object_get(self->manifest, "cluster"), "by"));
    mst_run_continue_advice(mst_run_path(self->run), by != NULL && strcmp(by, "roles") == 0, advice,
                            sizeof advice);
    snprintf(error->text + n, sizeof error->text - n, "; %s is complete; remove the cause, then %s",
             checkpoint, advice);
    mst_free(checkpoint);
}

/* Adds that the steps are lost because the run that they were to replace has a result. */
static void run_log_add_restored(const mst_run_log *self, mst_error *error)
{
    size_t n = strlen(error->text);
    snprintf(error->text + n, sizeof error->text - n,
             "; %s, which was to be overwritten, is restored, and the %" PRIu64
             " steps of this run are not saved",
             mst_run_path(self->run), self->progress.steps - self->opened_steps);
}

bool mst_run_log_keeps_failure(const mst_run_log *self)
{
    return self->progress.steps > self->opened_steps && !mst_run_replaces_result(self->run);
}

mst_status mst_run_log_give_up(mst_run_log *self, mst_status st)
{
    mst_error error;
    mst_error_save(&error, st);
    mst_run_log_save_abandon(self);
    mst_run_log_settle(self, true); /* a complete checkpoint counts */
    if (self->run != NULL)
        mst_run_log_warn_unsaved(self);
    if (self->save.checkpointer != NULL)
        (void)mst_checkpointer_wait(self->save.checkpointer, NULL); /* else the earlier ones count */
    bool stopped = st == MST_ESTOPPED;
    if (self->run != NULL && self->status.step > self->curve_step && isfinite(self->line_loss.loss) &&
        self->line_loss.rows > 0) /* a run that continues counts the steps that it trains again */
        (void)mst_run_log_write_line(self, &self->status, &self->line_loss, "", NULL);
    if (self->run != NULL)
        run_log_end_observer(self, !stopped, !stopped, error.text);
    if (self->run != NULL && (self->worth_keeping || self->options.train->resume) &&
        !mst_run_replaces_result(self->run)) {
        mst_run_settle(self->run);
        json_object_set_new(self->manifest, stopped ? "end" : "error", mst_json_text(error.text));
        mst_run_log_write_manifest(self, stopped ? "stopped" : "failed");
        run_log_add_resume_hint(self, &error);
    } else if (self->run != NULL) {
        mst_checkpointer_destroy(self->save.checkpointer);
        mst_checkpointer_destroy(self->save.best);
        self->save.checkpointer = self->save.best = NULL;
        if (!stopped && self->progress.steps > self->opened_steps && mst_run_replaces_result(self->run))
            run_log_add_restored(self, &error);
        mst_run_abandon(self->run);
    }
    run_log_close(self);
    return mst_error_restore(&error);
}
