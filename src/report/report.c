/* The report: what all its forms share, and Markdown, CSV, JSON and SVG files (report.h). */
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "base/file.h"
#include "base/version.h"
#include "report/report_impl.h"

/* ---- life and labels ---- */

static size_t report_count_name(mst_run_data *const *runs, size_t n, const char *name)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++)
        found += strcmp(runs[i]->name, name) == 0;
    return found;
}

mst_status mst_report_new(mst_run_data *const *runs, size_t n, const json_t *defaults, mst_report **out)
{
    mst_status st = MST_OK;
    mst_report *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->runs = runs;
    self->n = n;
    self->defaults = defaults;
    self->labels = mst_calloc(n, sizeof *self->labels);
    self->commands = mst_calloc(n, sizeof *self->commands);
    self->figures = mst_calloc(n, sizeof *self->figures);
    self->verdicts = mst_calloc(n, sizeof *self->verdicts);
    self->histories = mst_calloc(n, sizeof *self->histories);
    if (self->histories == NULL || self->labels == NULL || self->figures == NULL || self->verdicts == NULL ||
        self->commands == NULL)
        TRY_OUT(st, mst_fail_memory());
    for (size_t i = 0; i < n; i++) {
        bool unique = report_count_name(runs, n, runs[i]->name) == 1;
        TRY_OUT(st, mst_run_figures_of(runs[i], &self->figures[i]));
        TRY_OUT(st, mst_verdict_of(runs[i], &self->verdicts[i]));
        self->labels[i] = mst_strdup(unique ? runs[i]->name : runs[i]->path);
        const mst_run_figures *f = &self->figures[i];
        TRY_OUT(st, mst_history_of(runs[i], f->steps, f->rows, f->train_s, &self->histories[i]));
        self->commands[i] = mst_report_command(runs[i], &self->histories[i], defaults);
        if (self->labels[i] == NULL || self->commands[i] == NULL)
            TRY_OUT(st, mst_fail_memory());
    }
    TRY_OUT(st, mst_report_make_sheets(self));
    *out = self;
    self = NULL;
out:
    mst_report_destroy(self);
    return st;
}

void mst_report_destroy(mst_report *self)
{
    if (self == NULL)
        return;
    for (size_t i = 0; i < self->n; i++) {
        if (self->labels != NULL)
            mst_free(self->labels[i]);
        if (self->commands != NULL)
            mst_free(self->commands[i]);
        if (self->histories != NULL)
            mst_history_fini(&self->histories[i]);
    }
    for (int i = 0; i < MST_REPORT_SHEETS; i++)
        mst_sheet_fini(&self->sheets[i]);
    mst_free(self->histories);
    mst_free(self->labels);
    mst_free(self->commands);
    mst_free(self->figures);
    mst_free(self->verdicts);
    mst_free(self);
}

/* ---- sentences ---- */

void mst_report_title(const mst_report *self, mst_string *out)
{
    if (self->n == 1)
        mst_string_add(out, self->labels[0]);
    else
        mst_string_format(out, "%zu runs compared", self->n);
}

static void report_add_how(const mst_run_figures *f, mst_string *out)
{
    if (f->n_workers >= 1)
        mst_string_format(out, " by %.0f %s%s", f->n_workers,
                          strcmp(f->strategy, "allreduce") == 0 ? "rank" : "worker",
                          f->n_workers == 1 ? "" : "s");
    if (f->n_servers >= 1)
        mst_string_format(out, " and %.0f server%s", f->n_servers, f->n_servers == 1 ? "" : "s");
    if (!(f->n_workers >= 1) && f->n_threads >= 1)
        mst_string_format(out, " by %.0f thread%s", f->n_threads, f->n_threads == 1 ? "" : "s");
    if (f->mode[0] != '\0')
        mst_string_format(out, " (%s)", f->mode);
}

/* Processes that were lost while the others continued. */
static void report_add_lost(const mst_run_data *run, mst_string *out)
{
    char after[40];
    for (size_t i = 0; i < run->n_processes; i++) {
        double lost = mst_process_lost(run, run->processes[i]->name);
        if (!isnan(lost))
            mst_string_format(out, " %s was lost after %s.", run->processes[i]->name,
                              mst_figure_seconds(fmax(0, lost), after));
    }
}

/* Workers that were slow for long, with the likely reason. */
static void report_add_slow(const mst_run_data *run, mst_string *out)
{
    for (size_t i = 0; i < run->marks.n_rows; i++) {
        mst_mark_line m = mst_run_data_mark(run, i);
        if (strcmp(m.kind, "slow") == 0)
            mst_string_format(out, " %s was slow: %s.", m.process, m.text);
    }
}

/* "once" or "3 times". */
static const char *report_times(double n, char out[40])
{
    char count[40];
    snprintf(out, 40, n == 1 ? "once" : "%s times", mst_figure_count(n, count));
    return out;
}

/* Processes that were lost, and steps that were done and lost, because the job, or one of its servers,
 * continued from a checkpoint or from the beginning. */
static void report_add_losses(const mst_loss_figures *l, mst_string *out)
{
    char a[40], b[40], times[40], start[64] = "";
    if (l->processes > 0)
        mst_string_format(out, " Processes were lost %s.", report_times(l->processes, times));
    if (l->from_start > 0 && l->from_start < l->n)
        snprintf(start, sizeof start, " (%s from the beginning)", report_times(l->from_start, times));
    if (l->n > 0)
        mst_string_format(out,
                          " It continued from %s%s %s after a loss: %s steps (%s rows) were lost and "
                          "trained again.",
                          l->from_start == l->n ? "the beginning" : "a checkpoint", start,
                          report_times(l->n, times), mst_figure_count(l->steps, a),
                          mst_figure_count(l->rows, b));
    if (l->shares > 0)
        mst_string_format(out,
                          " A server continued from a checkpoint %s: %s steps (%s rows) were lost in its "
                          "weights.",
                          report_times(l->shares, times), mst_figure_count(l->share_steps, a),
                          mst_figure_count(l->share_rows, b));
    if (l->recovery_s > 0)
        mst_string_format(out, " Recovery took %s", mst_figure_seconds(l->recovery_s, a));
    if (l->recovery_s > 0 && l->share > 0)
        mst_string_format(out, "; with the repeated training, losses took %s of the wall time",
                          mst_figure_percent(l->share, a));
    mst_string_add(out, l->recovery_s > 0 ? "." : "");
}

void mst_report_summary(const mst_report *self, size_t run, mst_string *out)
{
    mst_report_course(self, run, out);
    mst_string_add(out, " ");
    mst_string_add(out, self->verdicts[run].sentence);
}

void mst_report_course(const mst_report *self, size_t run, mst_string *out)
{
    const mst_run_figures *f = &self->figures[run];
    const mst_run_data *data = self->runs[run];
    const char *source = mst_run_data_text(data, "data", "source", NULL);
    char a[40], b[40], c[40];
    mst_string_format(out, "%s was trained", f->model[0] != '\0' ? f->model : "A model");
    if (source != NULL)
        mst_string_format(out, " on %s", source);
    mst_string_add(out, mst_history_same_crew(&self->histories[run])->before != NULL ? ", last" : "");
    report_add_how(f, out);
    if (f->rows > 0)
        mst_string_format(out, ": %s rows in %s steps and %s of training", mst_figure_count(f->rows, a),
                          mst_figure_count(f->steps, b), mst_figure_seconds(f->train_s, c));
    if (f->rows > 0 && !isnan(f->rows_per_s))
        mst_string_format(out, " (%s rows/s)", mst_figure_short(f->rows_per_s, a));
    mst_string_add(out, self->histories[run].n > 1 ? ". " : ".");
    mst_history_sentence(&self->histories[run], out);
    const char *error = mst_run_data_text(data, "error", NULL);
    if (strcmp(f->state, "running") == 0)
        mst_string_add(out, " It is running, or was interrupted.");
    else if (strcmp(f->state, "failed") == 0)
        mst_string_format(out, " It failed: %s.", error != NULL ? error : "no reason is recorded");
    else if (f->end[0] != '\0')
        mst_string_format(out, " It ended: %s.", f->end);
    report_add_lost(data, out);
    report_add_slow(data, out);
    mst_loss_figures losses = mst_losses_of(data, f);
    report_add_losses(&losses, out);
    if (!isnan(f->test_accuracy))
        mst_string_format(out, " The %s error is %s%%", f->set,
                          mst_figure_real((1 - f->test_accuracy) * 100, a));
    if (!isnan(f->test_accuracy) && f->best_accuracy > f->test_accuracy)
        mst_string_format(out, " (best %s%% after %s)", mst_figure_real((1 - f->best_accuracy) * 100, a),
                          mst_figure_seconds(f->best_accuracy_s, b));
    if (isfinite(f->test_loss))
        mst_string_format(out, "%s loss %s", isnan(f->test_accuracy) ? " It reached" : ", the",
                          mst_figure_real(f->test_loss, a));
    else if (isinf(f->test_loss) || f->loss_is_nan)
        mst_string_format(out, "%s loss is %s (not finite)",
                          isnan(f->test_accuracy) ? " The last evaluation's" : ", the",
                          isnan(f->test_loss) ? "nan" : "inf");
    mst_string_add(out, !isnan(f->test_accuracy) || !isnan(f->test_loss) || f->loss_is_nan ? "." : "");
}

/* ---- Markdown, CSV, JSON ---- */

static mst_status report_finish(const mst_string *out)
{
    return out->failed ? mst_fail_memory() : MST_OK;
}

mst_status mst_report_markdown(const mst_report *self, mst_string *out)
{
    mst_string text = {0};
    mst_string_add(out, "# ");
    mst_report_title(self, &text);
    mst_string_markdown(out, text.text);
    mst_string_fini(&text);
    mst_string_add(out, "\n\n");
    mst_report_comparison(self, &text);
    if (text.text != NULL) {
        mst_string_markdown(out, text.text);
        mst_string_add(out, "\n\n");
    }
    out->failed = out->failed || text.failed;
    mst_string_fini(&text);
    for (size_t i = 0; i < self->n; i++) {
        if (self->n > 1) {
            mst_string_add(out, "**");
            mst_string_markdown(out, self->labels[i]);
            mst_string_add(out, "**: ");
        }
        mst_report_summary(self, i, &text);
        out->failed = out->failed || text.failed;
        mst_string_markdown(out, text.text);
        mst_string_fini(&text);
        mst_string_add(out, "\n\n");
    }
    for (int i = 0; i < MST_REPORT_SHEETS; i++)
        mst_sheet_markdown(&self->sheets[i], out);
    bool begun = false;
    for (size_t i = 0; i < self->n; i++) {
        if (self->commands[i][0] == '\0') /* without a manifest */
            continue;
        mst_string_add(out, begun ? "" : "## How to reproduce\n\n```\n");
        mst_string_add(out, self->commands[i]);
        mst_string_add(out, "\n");
        begun = true;
    }
    mst_string_add(out, begun ? "```\n" : "");
    return report_finish(out);
}

mst_status mst_report_csv(const mst_report *self, mst_string *out)
{
    mst_string_add(out, "table,row,column,value\n");
    for (int i = 0; i < MST_REPORT_SHEETS; i++)
        mst_sheet_csv(&self->sheets[i], out);
    return report_finish(out);
}

json_t *mst_report_json(const mst_report *self)
{
    json_t *root = json_object(), *runs = json_array();
    bool fine = root != NULL && runs != NULL;
    for (int i = 0; fine && i < MST_REPORT_SHEETS; i++)
        fine = mst_sheet_json(&self->sheets[i], root);
    for (size_t i = 0; fine && i < self->n; i++) {
        mst_string text = {0};
        mst_report_summary(self, i, &text);
        json_t *verdict = mst_verdict_json(&self->verdicts[i]);
        json_t *summary = text.text != NULL ? json_string(text.text) : NULL;
        json_t *path = json_string(self->runs[i]->path), *command = json_string(self->commands[i]);
        fine = verdict != NULL && !text.failed &&
               json_array_append_new(
                   runs, json_pack("{s:o, s:o, s:o, s:O}", "path", path != NULL ? path : json_string("?"),
                                   "summary", summary != NULL ? summary : json_string("?"), "command",
                                   command != NULL ? command : json_string("?"), "verdict", verdict)) == 0;
        json_decref(verdict);
        mst_string_fini(&text);
    }
    fine = fine && json_object_set(root, "runs", runs) == 0;
    json_decref(runs);
    if (!fine) {
        json_decref(root);
        mst_fail_memory();
        return NULL;
    }
    return root;
}

/* ---- SVG files ---- */

typedef struct svg_job {
    const char *folder;
    size_t n;
} svg_job;

static mst_status report_save_plot(void *arg, const char *group, const char *of, int axis,
                                   const mst_plot *plot)
{
    static const char *const axes[] = {"-time", "-steps", "-rows"};
    svg_job *job = arg;
    mst_string out = {0};
    if (!mst_plot_has_points(plot))
        return MST_OK;
    char *path = mst_sprintf("%s/%s%s%s-%s%s.svg", job->folder, group, *of != '\0' ? "-" : "", of,
                             plot->title, axis >= 0 ? axes[axis] : "");
    if (path == NULL)
        return mst_fail_memory();
    for (char *p = path + strlen(job->folder) + 1; *p != '\0'; p++)
        if (strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_", *p) == NULL)
            *p = '-';
    mst_plot_svg(plot, &out);
    mst_status st = mst_string_save(&out, path);
    job->n += st == MST_OK;
    mst_string_fini(&out);
    mst_free(path);
    return st;
}

mst_status mst_report_svg(const mst_report *self, const char *folder, size_t *n)
{
    svg_job job = {.folder = folder};
    TRY(mst_make_folders(folder));
    TRY(mst_report_plots(self, "curves", report_save_plot, &job));
    TRY(mst_report_plots(self, "hosts", report_save_plot, &job));
    TRY(mst_report_plots(self, "processes", report_save_plot, &job));
    *n = job.n;
    return MST_OK;
}
