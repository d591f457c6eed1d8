/* The page of a report: its document, section by section (page.h renders it). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "report/page.h"
#include "report/report_impl.h"

#define NAMES_MAX 8 /* runs that are named below the title; the table names all of them */
#define OPEN_MAX  4 /* runs whose sentences are not folded */

static const char *const axis_names[] = {
    [MST_AXIS_TIME] = "time", [MST_AXIS_STEPS] = "steps", [MST_AXIS_ROWS] = "rows"};

/* ---- the beginning ---- */

static void page_add_subtitle(const mst_report *self, mst_page *page)
{
    const mst_run_data *run = self->runs[0];
    const char *started = mst_run_data_text(run, "started", NULL);
    const char *host = mst_run_data_text(run, "host", NULL);
    const char *version = mst_run_data_text(run, "muster", NULL);
    mst_string text = {0};
    if (self->n == 1) {
        mst_string_add(&text, run->path);
        if (started != NULL)
            mst_string_format(&text, " \xc2\xb7 started %s", started);
        if (host != NULL)
            mst_string_format(&text, " on %s", host);
        if (version != NULL)
            mst_string_format(&text, " \xc2\xb7 muster %s", version);
    }
    for (size_t i = 0; self->n > 1 && i < self->n && self->n <= NAMES_MAX; i++)
        mst_string_format(&text, "%s%s", i > 0 ? ", " : "", self->labels[i]);
    page->failed = page->failed || text.failed;
    if (text.text != NULL)
        mst_page_text(page, "sub", NULL, text.text);
    mst_string_fini(&text);
}

static const char *page_verdict_style(const mst_verdict *v)
{
    bool fine = v->kind == MST_BOTTLENECK_NONE || v->kind == MST_BOTTLENECK_COMPUTE;
    return fine ? "verdict fine" : "verdict";
}

static void page_add_summary(const mst_report *self, mst_page *page)
{
    bool folded = self->n > OPEN_MAX, several = self->n > 1;
    if (folded)
        mst_page_fold(page, "Each run in words");
    for (size_t i = 0; i < self->n; i++) {
        mst_string text = {0};
        mst_report_course(self, i, &text);
        page->failed = page->failed || text.failed;
        mst_page_text(page, "", several ? self->labels[i] : NULL, text.text);
        if (several)
            mst_page_text(page, page_verdict_style(&self->verdicts[i]), NULL, self->verdicts[i].sentence);
        mst_string_fini(&text);
    }
    if (folded)
        mst_page_fold_end(page);
}

static void page_add_warnings(const mst_report *self, mst_page *page)
{
    for (size_t i = 0; i < self->n; i++)
        for (size_t k = 0; k < self->runs[i]->warnings.n; k++)
            mst_page_text(page, "warn", NULL, self->runs[i]->warnings.items[k]);
}

static void page_add_tiles(const mst_report *self, mst_page *page)
{
    const mst_run_figures *f = &self->figures[0];
    bool test = strcmp(f->set, "test") == 0;
    char a[MST_FIGURE_SIZE], text[MST_FIGURE_SIZE + 2];
    if (!isnan(f->rows_per_s))
        mst_page_tile(page, mst_figure_short(f->rows_per_s, a), "rows per second");
    if (!isnan(f->train_s))
        mst_page_tile(page, mst_figure_seconds(f->train_s, a), "of training");
    if (!isnan(f->test_accuracy)) {
        snprintf(text, sizeof text, "%s%%", mst_figure_real((1 - f->best_accuracy) * 100, a));
        mst_page_tile(page, text, test ? "best test error" : "best validation error");
    }
    if (!isnan(f->best_loss))
        mst_page_tile(page, mst_figure_real(f->best_loss, a),
                      test ? "best test loss" : "best validation loss");
    if (!isnan(f->rows))
        mst_page_tile(page, mst_figure_short(f->rows, a), "rows");
    if (!isnan(f->steps))
        mst_page_tile(page, mst_figure_short(f->steps, a), "steps");
    if (!isnan(f->peak_memory))
        mst_page_tile(page, mst_figure_bytes(f->peak_memory, a), "peak memory of a process");
}

/* ---- plots ---- */

static void page_add_verdict(const mst_report *self, mst_page *page)
{
    mst_page_section(page, "verdict", "Bottleneck");
    if (self->n == 1) {
        mst_page_block(page, json_pack("{s:s, s:o, s:o}", "kind", "verdict", "verdict",
                                       mst_verdict_json(&self->verdicts[0]), "causes", mst_causes_json()));
        return;
    }
    mst_page_sheet(page, &self->sheets[MST_SHEET_VERDICT], true);
    mst_page_sheet(page, &self->sheets[MST_SHEET_ADVICE], true);
    mst_page_fold(page, "Evidence");
    mst_page_sheet(page, &self->sheets[MST_SHEET_EVIDENCE], false);
    mst_page_fold_end(page);
}

/* The colour of each run; boxes: with a box that shows and hides it. */
static void page_add_legend(const mst_report *self, bool boxes, mst_page *page)
{
    json_t *runs = json_array();
    for (size_t i = 0; self->n > 1 && i < self->n; i++)
        json_array_append_new(runs, json_pack("{s:o, s:i, s:b}", "label", mst_page_string(self->labels[i]),
                                              "colour", (int)(i % MST_PLOT_COLOURS), "dash",
                                              (int)(i >= MST_PLOT_COLOURS)));
    if (self->n > 1)
        mst_page_block(page,
                       json_pack("{s:s, s:o, s:b}", "kind", "legend", "runs", runs, "boxes", (int)boxes));
    else
        json_decref(runs);
}

/* Plots of one host or process after the other: a block for each. */
typedef struct plot_job {
    mst_page *page;
    json_t *plots; /* of the block under way; borrowed */
    char of[256];
} plot_job;

static mst_status page_add_plot(void *arg, const char *group, const char *of, int axis, const mst_plot *plot)
{
    plot_job *job = arg;
    if (job->plots == NULL || strncmp(job->of, of, sizeof job->of - 1) != 0) {
        bool curves = strcmp(group, "curves") == 0;
        const char *title = *of != '\0' ? of : group;
        json_t *block = json_pack("{s:s, s:[]}", "kind", "plots", "plots");
        job->plots = json_object_get(block, "plots");
        if (block != NULL && !curves)
            json_object_set_new(block, "title", mst_page_string(title));
        mst_page_block(job->page, block);
        snprintf(job->of, sizeof job->of, "%s", of);
    }
    json_t *json = mst_plot_json(plot, axis >= 0 ? axis_names[axis] : NULL);
    if (json_array_append_new(job->plots, json) != 0)
        return mst_fail_memory();
    return MST_OK;
}

/* *any, if not NULL: whether there are plots. */
static mst_status page_add_plots(const mst_report *self, const char *group, mst_page *page, bool *any)
{
    plot_job job = {.page = page};
    TRY(mst_report_plots(self, group, page_add_plot, &job));
    if (any != NULL)
        *any = job.plots != NULL;
    return MST_OK;
}

/* ---- notes on curves ---- */

/* Names the runs that have no curve of a test set. */
static void page_add_unevaluated(const mst_report *self, mst_page *page)
{
    size_t n = 0;
    char text[200], where[64] = "";
    for (size_t i = 0; i < self->n; i++)
        n += self->figures[i].set[0] == '\0';
    if (n == 0)
        return;
    if (self->n > 1)
        snprintf(where, sizeof where, " in %zu of %zu runs", n, self->n);
    snprintf(text, sizeof text,
             "Nothing was evaluated%s: no test set was given (--test), or its first evaluation has not run "
             "yet.",
             where);
    mst_page_text(page, "note", NULL, text);
}

/* Lines of metrics.csv whose loss is no finite number: of training if nothing was evaluated, else of the
 * evaluation. */
static size_t page_count_diverged(const mst_csv *metrics)
{
    size_t set = mst_csv_column(metrics, "set"), n = 0;
    size_t of_training = mst_csv_column(metrics, "train_loss"), loss = mst_csv_column(metrics, "loss");
    if (of_training == MST_CSV_NONE || loss == MST_CSV_NONE)
        return 0;
    for (size_t i = 0; i < metrics->n_rows; i++)
        n += isnan(mst_csv_value(metrics, i, mst_csv_text(metrics, i, set)[0] == '\0' ? of_training : loss));
    return n;
}

static void page_add_diverged(const mst_report *self, mst_page *page)
{
    for (size_t i = 0; i < self->n; i++) {
        size_t n = page_count_diverged(&self->runs[i]->metrics);
        char text[200];
        if (n == 0)
            continue;
        snprintf(text, sizeof text,
                 "In %zu of %zu lines of metrics.csv the loss is not a finite number: training diverged, and "
                 "the curves leave these points out.",
                 n, self->runs[i]->metrics.n_rows);
        mst_page_text(page, "warn", self->n > 1 ? self->labels[i] : NULL, text);
    }
}

/* ---- sections ---- */

static void page_add_head(const mst_report *self, mst_page *page)
{
    page_add_subtitle(self, page);
    if (self->n > 1) {
        mst_string text = {0};
        mst_report_comparison(self, &text);
        page->failed = page->failed || text.failed;
        if (text.text != NULL)
            mst_page_text(page, "verdict fine", NULL, text.text);
        mst_string_fini(&text);
        mst_page_sheet(page, &self->sheets[MST_SHEET_OVERVIEW], false);
    }
    page_add_summary(self, page);
    page_add_warnings(self, page);
    if (self->n == 1)
        page_add_tiles(self, page);
    mst_page_block(page, json_pack("{s:s}", "kind", "nav"));
}

static mst_status page_add_curves(const mst_report *self, mst_page *page)
{
    bool any = false;
    mst_page_section(page, "curves", "Curves");
    mst_page_block(page, json_pack("{s:s, s:b}", "kind", "tools", "x", 1));
    page_add_legend(self, true, page);
    TRY(page_add_plots(self, "curves", page, &any));
    if (!any)
        mst_page_text(page, "note", NULL, "metrics.csv has no curves yet.");
    page_add_diverged(self, page);
    page_add_unevaluated(self, page);
    mst_page_sheet(page, &self->sheets[MST_SHEET_ACCURACY], true);
    mst_page_sheet(page, &self->sheets[MST_SHEET_CALIBRATION], true);
    return MST_OK;
}

static bool csv_has_lines(const mst_csv *csv)
{
    return csv->n_rows > 0 && mst_csv_column(csv, "time") != MST_CSV_NONE;
}

static bool report_has_resources(const mst_report *self)
{
    for (size_t i = 0; i < self->n; i++)
        for (size_t p = 0; p < self->runs[i]->n_processes; p++)
            if (csv_has_lines(&self->runs[i]->processes[p]->resources) ||
                csv_has_lines(&self->runs[i]->processes[p]->spans))
                return true;
    return false;
}

static mst_status page_add_resources(const mst_report *self, mst_page *page)
{
    const char *several =
        "in a lane above each plot for each run, which begins with the run's colour; dashed "
        "curves: out, written";
    mst_page_section(page, "resources", "Resources");
    if (!report_has_resources(self)) {
        mst_page_text(page, "note", NULL,
                      "No process has a resources.csv with samples: sampling was off, or has not begun.");
        return MST_OK;
    }
    mst_page_sheet(page, &self->sheets[MST_SHEET_HOSTS], true);
    mst_page_sheet(page, &self->sheets[MST_SHEET_TRAFFIC], true);
    mst_page_sheet(page, &self->sheets[MST_SHEET_PROCESSES], true);
    mst_page_section(page, "hosts", "Hosts over time");
    page_add_legend(self, false, page);
    mst_page_block(page, json_pack("{s:s, s:s}", "kind", "marks", "text", self->n > 1 ? several : ""));
    TRY(page_add_plots(self, "hosts", page, NULL));
    mst_page_section(page, "processes", "Processes over time");
    page_add_legend(self, false, page);
    return page_add_plots(self, "processes", page, NULL);
}

static void page_add_configuration(const mst_report *self, mst_page *page)
{
    mst_page_section(page, "configuration", "Configuration, and how to reproduce it");
    for (size_t i = 0; i < self->n; i++) {
        char *lines = mst_strdup(self->commands[i]), *rest = NULL;
        page->failed = page->failed || lines == NULL;
        if (self->n > 1)
            mst_page_text(page, "", self->labels[i], "");
        for (char *line = lines != NULL ? strtok_r(lines, "\n", &rest) : NULL; line != NULL;
             line = strtok_r(NULL, "\n", &rest))
            mst_page_command(page, line);
        mst_free(lines);
        if (self->commands[i][0] == '\0')
            mst_page_text(page, "note", NULL, "The run has no manifest that records how it was started.");
    }
    mst_page_sheet(page, &self->sheets[MST_SHEET_HISTORY], true);
    mst_page_sheet(page, &self->sheets[MST_SHEET_OPTIONS], true);
    for (size_t i = 0; i < self->n; i++) {
        char *title = mst_sprintf("manifest.json of %s", self->labels[i]);
        page->failed = page->failed || title == NULL;
        mst_page_raw(page, title, self->runs[i]->manifest);
        mst_free(title);
    }
}

mst_status mst_report_html(const mst_report *self, mst_string *out)
{
    mst_status st;
    mst_page page;
    mst_string title = {0};
    mst_report_title(self, &title);
    mst_page_init(&page, title.text != NULL ? title.text : "");
    page_add_head(self, &page);
    page_add_verdict(self, &page);
    TRY_OUT(st, page_add_curves(self, &page));
    mst_page_section(&page, "time", "Time");
    mst_page_sheet(&page, &self->sheets[MST_SHEET_COST], false);
    mst_page_sheet(&page, &self->sheets[MST_SHEET_LOSSES], true);
    mst_page_sheet(&page, &self->sheets[MST_SHEET_PHASES], true);
    mst_page_sheet(&page, &self->sheets[MST_SHEET_WORKERS], true);
    TRY_OUT(st, page_add_resources(self, &page));
    page_add_configuration(self, &page);
    st = mst_page_html(&page, out);
out:
    mst_page_fini(&page);
    mst_string_fini(&title);
    return st;
}
