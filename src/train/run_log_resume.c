/* The run log of a resumed run; contract in run_log.h. */
#include "base/figure.h"
#include "base/file.h"
#include "base/log.h"
#include "train/data_identity.h"
#include "train/run_log_impl.h"

/* Finds out whether the run continues on other data than before, and where it began with the present data. */
static void run_log_resume_data(mst_run_log *self, const json_t *extra)
{
    json_t *source = json_object_get(extra, "source");
    json_int_t epoch, steps, rows;
    int how = self->options.train->resume_data;
    mst_progress *p = &self->progress;
    double seconds;
    if (json_unpack(json_object_get(extra, "data_start"), "[I, I, I, F]", &epoch, &steps, &rows, &seconds) ==
            0 &&
        (uint64_t)epoch <= p->epoch && (uint64_t)steps <= p->steps && (uint64_t)rows <= p->rows)
        self->start = (mst_data_start){(uint64_t)epoch, (uint64_t)steps, (uint64_t)rows, seconds};
    if (how == MST_RESUME_SAME ||
        (how == MST_RESUME_AUTO && mst_data_identity_same(source, self->options.source)))
        return;
    json_decref(self->source_before);
    self->source_before = source != NULL ? json_incref(source) : json_object();
    self->position_then = p->position;
    p->epoch += p->position > 0;
    p->position = 0;
    self->evals.since_best = 0;
    self->first_pass = (mst_loss_sum){0};
    self->start = (mst_data_start){p->epoch, p->steps, p->rows, self->status.train_seconds};
}

void mst_run_log_resume(mst_run_log *self, const mst_checkpoint_meta *meta)
{
    const json_t *extra = meta->extra;
    json_t *best = json_object_get(extra, "best_valid_loss"),
           *train_loss = json_object_get(extra, "train_loss"),
           *accuracy = json_object_get(extra, "train_accuracy");
    self->progress = (mst_progress){
        .steps = meta->step, .rows = meta->rows, .epoch = meta->epoch, .position = meta->position};
    self->status.train_seconds = meta->train_seconds;
    self->status.eval_seconds = meta->eval_seconds;
    self->status.rows = meta->rows;
    if (json_is_number(best))
        self->evals.best_valid_loss = json_number_value(best);
    self->evals.best_step = (uint64_t)json_integer_value(json_object_get(extra, "best_step"));
    self->evals.since_best = (uint64_t)json_integer_value(json_object_get(extra, "since_best"));
    self->save.saved_step = meta->step;
    if (json_is_number(train_loss))
        self->evals.train_loss = json_number_value(train_loss);
    if (json_is_number(accuracy))
        self->evals.train_accuracy = json_number_value(accuracy);
    if (!mst_loss_sum_restore(&self->line_loss, json_object_get(extra, "line_loss")))
        self->line_loss = (mst_loss_sum){0};
    if (!mst_loss_sum_restore(&self->first_pass, json_object_get(extra, "first_pass")))
        self->first_pass = (mst_loss_sum){0};
    mst_loss_window_restore(&self->evals.window, json_object_get(extra, "loss_window"));
    self->evals.incomplete = json_is_true(json_object_get(extra, "evaluation_due"));
    mst_run_log_workers_resume(self, extra, meta->step);
    run_log_resume_data(self, extra);
}

mst_status mst_run_log_resume_state(mst_run_log *self, const json_t *state, const mst_progress *at)
{
    mst_checkpoint_meta meta = {
        .step = at->steps, .rows = at->rows, .epoch = at->epoch, .position = at->position};
    if (json_unpack((json_t *)state, "{s:F, s:F, s:o}", "train_seconds", &meta.train_seconds, "eval_seconds",
                    &meta.eval_seconds, "extra", &meta.extra) != 0 ||
        !json_is_object(meta.extra))
        return mst_fail(MST_EPEER, "the state of a run that is not one");
    mst_run_log_resume(self, &meta);
    self->save.saved_step = UINT64_MAX;
    return MST_OK;
}

bool mst_run_log_has_new_data(const mst_run_log *self)
{
    return self->source_before != NULL;
}

void mst_run_log_report_new_data(const mst_run_log *self)
{
    char before[256], now[256], rows[32], step[32];
    const char *run = mst_run_path(self->run);
    if (!mst_run_log_has_new_data(self) || self->options.in_memory)
        return;
    mst_info("%s continues on new data, %s, from step %s; limits such as --epochs count from there", run,
             mst_data_identity_name(self->options.source, now, sizeof now),
             mst_figure_grouped(self->progress.steps, step));
    /* the rest of a pipe cannot be read again, and a pipe cannot be the rest of a file */
    if (self->position_then > 0 && !mst_data_identity_reads_once(self->source_before) &&
        !mst_data_identity_reads_once(self->options.source))
        mst_warn("%s: the last pass over %s stopped after %s rows and will not be finished; --resume-data "
                 "same continues it",
                 run, mst_data_identity_name(self->source_before, before, sizeof before),
                 mst_figure_grouped(self->position_then, rows));
}
