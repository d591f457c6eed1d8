/* The HTML report: one page that needs nothing else (report.h).
 *
 * Design: every plot is drawn by svg.c, once for each axis that can be chosen, and the page's script only
 * chooses. The page's policy allows the one script and the one style that it carries, by their hashes, and
 * nothing from anywhere.
 *
 * Invariant: text that comes out of a run goes through mst_string_html. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/figure.h"
#include "base/sha256.h"
#include "base/version.h"
#include "report/report_impl.h"

#define NAMES_MAX 8  /* runs that are named below the title; the table names all of them */
#define OPEN_MAX  4  /* runs whose sentences are not folded */
#define MANY      40 /* runs whose table scrolls on its own, on a screen */

/* ---- the head ---- */

/* 'sha256-...' of two texts in a row, for the policy. */
static void add_hash(const char *text, const char *more, mst_string *out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t hash[33] = {0};
    mst_sha256 sum;
    mst_sha256_init(&sum);
    mst_sha256_add(&sum, text, strlen(text));
    mst_sha256_add(&sum, more, strlen(more));
    mst_sha256_final(&sum, hash);
    mst_string_add(out, "'sha256-");
    for (int i = 0; i < 32; i += 3) { /* 32 bytes are 43 digits and one = */
        uint32_t v = (uint32_t)hash[i] << 16 | (uint32_t)hash[i + 1] << 8 | hash[i + 2];
        for (int k = 0; k < (i == 30 ? 3 : 4); k++)
            mst_string_addn(out, &digits[v >> (18 - 6 * k) & 63], 1);
    }
    mst_string_add(out, "='");
}

void mst_page_begin(const char *title, mst_string *out)
{
    mst_string_add(out,
                   "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
                   "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src ");
    add_hash(mst_report_script, "", out);
    mst_string_add(out, "; style-src ");
    add_hash(mst_svg_style, mst_report_style, out);
    mst_string_add(out, "; base-uri 'none'; form-action 'none'\">\n"
                        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                        "<meta name=\"color-scheme\" content=\"light dark\">\n<title>");
    mst_string_html(out, title);
    mst_string_add(out, " \xe2\x80\x93 muster report</title>\n<style>");
    mst_string_add(out, mst_svg_style);
    mst_string_add(out, mst_report_style);
    mst_string_add(out, "</style></head>\n<body><main>\n<h1>");
    mst_string_html(out, title);
    mst_string_add(out, "</h1>\n");
}

void mst_page_end(mst_string *out)
{
    mst_string_format(out, "</main><script>%s</script></body></html>\n", mst_report_script);
}

void mst_page_command(const char *command, mst_string *out)
{
    mst_string_add(out, "<pre><code>");
    while (*command != '\0') { /* each option on one line, where lines are long enough for it */
        const char *next = strstr(command, " --");
        size_t n = next != NULL ? (size_t)(next - command) : strlen(command);
        char *part = mst_strndup(command, n);
        out->failed = out->failed || part == NULL;
        mst_string_add(out, "<span>");
        mst_string_html(out, part != NULL ? part : "");
        mst_string_add(out, next != NULL ? "</span> " : "</span>");
        mst_free(part);
        command += n + (next != NULL);
    }
    mst_string_add(out, "</code></pre>\n");
}

static void add_head(const mst_report *self, mst_string *out)
{
    mst_string title = {0};
    mst_report_title(self, &title);
    out->failed = out->failed || title.failed;
    mst_page_begin(title.text != NULL ? title.text : "", out);
    mst_string_fini(&title);
}

/* ---- the beginning ---- */

static void add_tile(mst_string *out, const char *figure, const char *what)
{
    mst_string_add(out, "<div class=\"tile\"><b>");
    mst_string_html(out, figure);
    mst_string_add(out, "</b><span>");
    mst_string_html(out, what);
    mst_string_add(out, "</span></div>\n");
}

static void add_tiles(const mst_report *self, mst_string *out)
{
    const mst_run_figures *f = &self->figures[0];
    char a[40], text[80];
    mst_string_add(out, "<div class=\"tiles\">\n");
    if (!isnan(f->rows_per_s))
        add_tile(out, mst_figure_short(f->rows_per_s, a), "rows a second");
    if (!isnan(f->train_s))
        add_tile(out, mst_figure_seconds(f->train_s, a), "of training");
    if (!isnan(f->test_accuracy)) {
        snprintf(text, sizeof text, "%s%%", mst_figure_real((1 - f->best_accuracy) * 100, a));
        add_tile(out, text, strcmp(f->set, "test") == 0 ? "best test error" : "best validation error");
    }
    if (!isnan(f->best_loss))
        add_tile(out, mst_figure_real(f->best_loss, a),
                 strcmp(f->set, "test") == 0 ? "best test loss" : "best validation loss");
    if (!isnan(f->rows))
        add_tile(out, mst_figure_short(f->rows, a), "rows");
    if (!isnan(f->steps))
        add_tile(out, mst_figure_short(f->steps, a), "steps");
    if (!isnan(f->peak_memory))
        add_tile(out, mst_figure_bytes(f->peak_memory, a), "most memory of a process");
    mst_string_add(out, "</div>\n");
}

static void add_subtitle(const mst_report *self, mst_string *out)
{
    const mst_run_data *run = self->runs[0];
    const char *started = mst_run_data_text(run, "started", NULL),
               *host = mst_run_data_text(run, "host", NULL);
    const char *version = mst_run_data_text(run, "muster", NULL);
    mst_string_add(out, "<p class=\"sub\">");
    mst_string_html(out, self->n == 1 ? run->path : "");
    for (size_t i = 0; self->n > 1 && i < self->n && self->n <= NAMES_MAX; i++) {
        mst_string_add(out, i > 0 ? ", " : "");
        mst_string_html(out, self->labels[i]);
    }
    if (self->n == 1 && started != NULL) {
        mst_string_add(out, " \xc2\xb7 started ");
        mst_string_html(out, started);
    }
    if (self->n == 1 && host != NULL) {
        mst_string_add(out, " on ");
        mst_string_html(out, host);
    }
    if (self->n == 1 && version != NULL) {
        mst_string_add(out, " \xc2\xb7 muster ");
        mst_string_html(out, version);
    }
    mst_string_add(out, "</p>\n");
}

static void add_comparison(const mst_report *self, mst_string *out)
{
    mst_string text = {0};
    mst_report_comparison(self, &text);
    if (text.text != NULL) {
        mst_string_add(out, "<p class=\"verdict fine\">");
        mst_string_html(out, text.text);
        mst_string_add(out, "</p>\n");
    }
    out->failed = out->failed || text.failed;
    mst_string_fini(&text);
}

static void add_summary(const mst_report *self, mst_string *out)
{
    bool folded = self->n > OPEN_MAX;
    mst_string_add(out, folded ? "<details><summary>Each run in words</summary>\n" : "");
    for (size_t i = 0; i < self->n; i++) {
        mst_string text = {0};
        const mst_verdict *v = &self->verdicts[i];
        mst_report_course(self, i, &text);
        mst_string_add(out, "<p>");
        if (self->n > 1) {
            mst_string_add(out, "<b>");
            mst_string_html(out, self->labels[i]);
            mst_string_add(out, "</b>: ");
        }
        out->failed = out->failed || text.failed;
        mst_string_html(out, text.text);
        mst_string_format(out, "</p>\n<p class=\"verdict%s\">",
                          v->kind == MST_BOTTLENECK_NONE || v->kind == MST_BOTTLENECK_COMPUTE ? " fine" : "");
        mst_string_html(out, v->sentence);
        mst_string_add(out, "</p>\n");
        mst_string_fini(&text);
    }
    mst_string_add(out, folded ? "</details>\n" : "");
}

static void add_warnings(const mst_report *self, mst_string *out)
{
    size_t n = 0;
    for (size_t i = 0; i < self->n; i++)
        n += self->runs[i]->warnings.n;
    if (n == 0)
        return;
    mst_string_add(out, "<div class=\"warn\">");
    for (size_t i = 0; i < self->n; i++)
        for (size_t k = 0; k < self->runs[i]->warnings.n; k++) {
            mst_string_add(out, "<p>");
            mst_string_html(out, self->runs[i]->warnings.items[k]);
            mst_string_add(out, ".</p>");
        }
    mst_string_add(out, "</div>\n");
}

/* ---- tables ---- */

typedef mst_status sheet_fn(const mst_report *self, mst_sheet *out);

/* Under its title as a heading of level h, or in <details> when folded. Nothing when it has no rows. */
static mst_status add_sheet(const mst_report *self, sheet_fn *make, int h, bool folded, mst_string *out)
{
    mst_sheet sheet = {0};
    mst_status st = make(self, &sheet);
    if (st == MST_OK && mst_sheet_rows(&sheet) > 0) {
        if (folded)
            mst_string_format(out, "<details><summary>%s</summary>\n", sheet.title);
        mst_sheet_section(&sheet, folded ? 0 : h, out);
        mst_string_add(out, folded ? "</details>\n" : "");
    }
    mst_sheet_fini(&sheet);
    return st;
}

static mst_status add_verdict(const mst_report *self, mst_string *out)
{
    mst_string_add(out, "<h2 id=\"bottleneck\">The bottleneck</h2>\n");
    TRY(add_sheet(self, mst_report_sheet_verdict, 3, false, out));
    TRY(add_sheet(self, mst_report_sheet_advice, 3, false, out));
    return add_sheet(self, mst_report_sheet_evidence, 0, true, out);
}

/* ---- plots ---- */

static void add_swatch(unsigned colour, bool dashed, mst_string *out)
{
    mst_string_format(
        out,
        "<svg viewBox=\"0 0 22 10\" aria-hidden=\"true\"><path class=\"c%u line%s\" d=\"M1 5h20\"/></svg>",
        colour, dashed ? " dash" : "");
}

/* Which colour is which run; with boxes that show and hide them. */
static void add_legend(const mst_report *self, bool boxes, mst_string *out)
{
    if (self->n < 2)
        return;
    mst_string_add(out, "<div class=\"legend\">");
    for (size_t i = 0; i < self->n; i++) {
        mst_string_add(out, "<label>");
        if (boxes)
            mst_string_format(out, "<input type=\"checkbox\" checked data-run=\"%zu\">", i);
        add_swatch((unsigned)(i % MST_SVG_COLOURS), i >= MST_SVG_COLOURS, out);
        mst_string_html(out, self->labels[i]);
        mst_string_add(out, "</label>");
    }
    mst_string_add(out, boxes ? "" : "<span class=\"note\">dashed: out, written</span>");
    mst_string_add(out, "</div>\n");
}

static void add_toolbar(const mst_report *self, mst_string *out)
{
    mst_string_add(
        out,
        "<div class=\"tools\"><span class=\"set\">x axis <button data-x=\"time\" aria-pressed=\"true\">time"
        "</button><button data-x=\"steps\" aria-pressed=\"false\">steps</button><button data-x=\"rows\" "
        "aria-pressed=\"false\">rows</button></span><span class=\"set\">y axis <button data-y=\"lin\" "
        "aria-pressed=\"true\">linear</button><button data-y=\"log\" aria-pressed=\"false\">log</button>"
        "</span></div>\n");
    add_legend(self, true, out);
}

typedef struct plot_job {
    const mst_report *report;
    mst_string *out;
    char of[256]; /* whose plots are being drawn */
    size_t n;
} plot_job;

/* A drawing with a linear axis and one with a log axis, which the page shows one of. */
static void add_figure(plot_job *job, const char *classes, const mst_plot *plot)
{
    mst_plot log = *plot;
    mst_string *out = job->out;
    mst_string_format(out, "<figure class=\"%s\"><figcaption>", classes);
    mst_string_html(out, plot->title);
    for (size_t i = 0; job->report->n == 1 && plot->n_series > 1 && i < plot->n_series; i++) {
        mst_string_add(out, "<span class=\"key\">");
        add_swatch(plot->series[i].colour, plot->series[i].dashed, out);
        mst_string_html(out, plot->series[i].label);
        mst_string_add(out, "</span>");
    }
    mst_string_add(out, "</figcaption>\n");
    log.log_y = true;
    bool has_log = mst_plot_has_points(&log);
    mst_plot_draw(plot, has_log ? "lin" : "", out);
    if (has_log)
        mst_plot_draw(&log, "log", out);
    mst_string_add(out, "</figure>\n");
    job->n++;
}

static mst_status add_curve(void *arg, const char *group, const char *of, int axis, const mst_plot *plot)
{
    static const char *const classes[] = {"xt", "xs", "xr"};
    (void)group;
    (void)of;
    add_figure(arg, classes[axis], plot);
    return MST_OK;
}

static mst_status add_use(void *arg, const char *group, const char *of, int axis, const mst_plot *plot)
{
    plot_job *job = arg;
    mst_plot titled = *plot;
    char title[64];
    (void)axis;
    if (job->n == 0 || strncmp(job->of, of, sizeof job->of - 1) != 0) {
        mst_string_add(job->out, job->n > 0 ? "</div>\n<h3>" : "<h3>");
        mst_string_html(job->out, *of != '\0' ? of : group);
        mst_string_add(job->out, "</h3>\n<div class=\"grid2\">\n");
        snprintf(job->of, sizeof job->of, "%s", of);
    }
    snprintf(title, sizeof title, "%s", plot->title);
    if (title[0] >= 'a' && title[0] <= 'z')
        title[0] = (char)(title[0] - 'a' + 'A');
    titled.title = title;
    add_figure(job, "use", &titled);
    return MST_OK;
}

static mst_status add_uses(const mst_report *self, const char *group, mst_string *out)
{
    plot_job job = {.report = self, .out = out};
    TRY(mst_report_plots(self, group, add_use, &job));
    mst_string_add(out, job.n > 0 ? "</div>\n" : "");
    return MST_OK;
}

static void add_marks_key(const mst_report *self, mst_string *out)
{
    mst_string_add(
        out, "<div class=\"marks\">"
             "<span><svg viewBox=\"0 0 22 10\"><rect class=\"m0\" width=\"22\" "
             "height=\"10\"/></svg>evaluation</span>"
             "<span><svg viewBox=\"0 0 22 10\"><rect class=\"m1\" width=\"22\" "
             "height=\"10\"/></svg>checkpoint</span>"
             "<span><svg viewBox=\"0 0 22 10\"><path class=\"m2\" d=\"M11 0v10\"/></svg>join or resume</span>"
             "<span><svg viewBox=\"0 0 22 10\"><path class=\"m3\" d=\"M11 0v10\"/></svg>death or "
             "leave</span>");
    mst_string_add(out, self->n > 1 ? "<span class=\"note\">above each plot, a line for each run that begins "
                                      "with the run's colour</span>"
                                    : "");
    mst_string_add(out, "</div>\n");
}

/* ---- the end ---- */

static void add_reproduction(const mst_report *self, mst_string *out)
{
    mst_string_add(out, "<h2 id=\"configuration\">Configuration, and how to reproduce it</h2>\n");
    for (size_t i = 0; i < self->n; i++) {
        if (self->n > 1) {
            mst_string_add(out, "<h3>");
            mst_string_html(out, self->labels[i]);
            mst_string_add(out, "</h3>\n");
        }
        char *lines = mst_strdup(self->commands[i]), *rest = NULL;
        out->failed = out->failed || lines == NULL;
        for (char *line = lines != NULL ? strtok_r(lines, "\n", &rest) : NULL; line != NULL;
             line = strtok_r(NULL, "\n", &rest))
            mst_page_command(line, out);
        mst_free(lines);
        if (self->commands[i][0] == '\0')
            mst_string_add(out, "<p class=\"note\">The run has no manifest that says how it was "
                                "started.</p>\n");
    }
}

static void add_manifests(const mst_report *self, mst_string *out)
{
    for (size_t i = 0; i < self->n; i++) {
        char *text =
            self->runs[i]->manifest != NULL ? json_dumps(self->runs[i]->manifest, JSON_INDENT(1)) : NULL;
        if (text == NULL)
            continue;
        mst_string_add(out, "<details class=\"raw\"><summary>manifest.json of ");
        mst_string_html(out, self->labels[i]);
        mst_string_add(out, "</summary><pre><code>");
        mst_string_html(out, text);
        mst_string_add(out, "</code></pre></details>\n");
        free(text);
    }
}

/* Says of which runs there is no curve of a test set, and why. */
static void add_unevaluated(const mst_report *self, mst_string *out)
{
    size_t n = 0;
    for (size_t i = 0; i < self->n; i++)
        n += self->figures[i].set[0] == '\0';
    if (n == 0)
        return;
    mst_string_add(out, "<p class=\"note\">");
    if (self->n == 1)
        mst_string_add(out, "Nothing was evaluated");
    else
        mst_string_format(out, "In %zu of %zu runs nothing was evaluated", n, self->n);
    mst_string_add(out, ": no test set was given (<code>--test</code>), or its first evaluation is to come."
                        "</p>\n");
}

/* Lines of metrics.csv whose loss is no finite number: of training where nothing was evaluated, else of the
 * evaluation. */
static size_t count_diverged(const mst_csv *metrics)
{
    size_t set = mst_csv_column(metrics, "set"), n = 0;
    size_t of_training = mst_csv_column(metrics, "train_loss"), loss = mst_csv_column(metrics, "loss");
    if (of_training == MST_CSV_NONE || loss == MST_CSV_NONE)
        return 0;
    for (size_t i = 0; i < metrics->n_rows; i++)
        n += isnan(mst_csv_value(metrics, i, mst_csv_text(metrics, i, set)[0] == '\0' ? of_training : loss));
    return n;
}

static void add_diverged(const mst_report *self, mst_string *out)
{
    for (size_t i = 0; i < self->n; i++) {
        size_t n = count_diverged(&self->runs[i]->metrics);
        if (n == 0)
            continue;
        mst_string_add(out, "<p class=\"warn\">");
        if (self->n > 1) {
            mst_string_html(out, self->labels[i]);
            mst_string_add(out, ": ");
        }
        mst_string_format(out,
                          "In %zu of %zu lines of metrics.csv the loss is not a finite number: training "
                          "diverged, and curves have gaps there.</p>\n",
                          n, self->runs[i]->metrics.n_rows);
    }
}

/* Lines, and when they are of. */
static bool has_lines(const mst_csv *csv)
{
    return csv->n_rows > 0 && mst_csv_column(csv, "time") != MST_CSV_NONE;
}

static bool has_resources(const mst_report *self)
{
    for (size_t i = 0; i < self->n; i++)
        for (size_t p = 0; p < self->runs[i]->n_processes; p++)
            if (has_lines(&self->runs[i]->processes[p]->resources) ||
                has_lines(&self->runs[i]->processes[p]->spans))
                return true;
    return false;
}

mst_status mst_report_html(const mst_report *self, mst_string *out)
{
    char now[21];
    bool resources = has_resources(self);
    plot_job job = {.report = self, .out = out};
    add_head(self, out);
    add_subtitle(self, out);
    add_comparison(self, out);
    if (self->n > 1) {
        mst_string_add(out, self->n > MANY ? "<div class=\"many\">\n" : "");
        TRY(add_sheet(self, mst_report_sheet_overview, 0, false, out));
        mst_string_add(out, self->n > MANY ? "</div>\n" : "");
    }
    add_summary(self, out);
    add_warnings(self, out);
    if (self->n == 1)
        add_tiles(self, out);
    mst_string_add(out, "<nav><a href=\"#bottleneck\">Bottleneck</a><a href=\"#curves\">Curves</a>"
                        "<a href=\"#time\">Time</a><a href=\"#resources\">Resources</a>"
                        "<a href=\"#configuration\">Configuration</a></nav>\n");
    TRY(add_verdict(self, out));
    mst_string_add(out, "<h2 id=\"curves\">Curves</h2>\n");
    add_toolbar(self, out);
    mst_string_add(out, "<div class=\"grid2\">\n");
    TRY(mst_report_plots(self, "curves", add_curve, &job));
    mst_string_add(out,
                   job.n > 0 ? "</div>\n" : "</div><p class=\"note\">metrics.csv has no curves yet.</p>\n");
    add_diverged(self, out);
    add_unevaluated(self, out);
    TRY(add_sheet(self, mst_report_sheet_accuracy, 3, false, out));
    mst_string_add(out, "<h2 id=\"time\">Time</h2>\n");
    TRY(add_sheet(self, mst_report_sheet_cost, 0, false, out));
    TRY(add_sheet(self, mst_report_sheet_phases, 3, false, out));
    TRY(add_sheet(self, mst_report_sheet_workers, 3, false, out));
    if (resources) {
        mst_string_add(out, "<h2 id=\"resources\">Resources</h2>\n");
        TRY(add_sheet(self, mst_report_sheet_hosts, 3, false, out));
        TRY(add_sheet(self, mst_report_sheet_processes, 3, false, out));
        mst_string_add(out, "<h2>Hosts over time</h2>\n");
        add_legend(self, false, out);
        add_marks_key(self, out);
        TRY(add_uses(self, "hosts", out));
        mst_string_add(out, "<h2>Processes over time</h2>\n");
        add_legend(self, false, out);
        TRY(add_uses(self, "processes", out));
    } else {
        mst_string_add(out,
                       "<h2 id=\"resources\">Resources</h2>\n<p class=\"note\">No process has written down "
                       "what it used (resources.csv): sampling was off, or has not begun.</p>\n");
    }
    add_reproduction(self, out);
    TRY(add_sheet(self, mst_report_sheet_history, 3, false, out));
    TRY(add_sheet(self, mst_report_sheet_options, 3, false, out));
    add_manifests(self, out);
    mst_wall_time(now);
    mst_string_format(
        out,
        "<footer>Written by muster %s at %s from %zu run folder%s; the page needs no network.</footer>\n",
        mst_version(), now, self->n, self->n == 1 ? "" : "s");
    mst_page_end(out);
    return out->failed ? mst_fail_memory() : MST_OK;
}
