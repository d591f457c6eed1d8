/* The plots of a report: curves of all runs, and resources of hosts and processes; the same host or process
 * of several runs shares a plot.
 *
 * With several runs the colour is the run, and the second of a pair (in and out, read and written) is dashed.
 * With one run the colour distinguishes the pair. Marks of one run lie across its plots; with several, each
 * run has a lane for its marks. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "report/report_impl.h"

typedef struct canvas {
    const mst_report *report;
    mst_series *series;
    size_t n_series, series_capacity;
    mst_mark *marks;
    size_t n_marks, marks_capacity;
    size_t n_lanes; /* before the run that is being added */
    char **texts;   /* labels and marks' texts */
    size_t n_texts, texts_capacity;
    mst_plot_fn *fn;
    void *arg;
    const char *group;
} canvas;

static void canvas_clear(canvas *c)
{
    for (size_t i = 0; i < c->n_series; i++)
        mst_series_fini(&c->series[i]);
    for (size_t i = 0; i < c->n_texts; i++)
        mst_free(c->texts[i]);
    c->n_series = c->n_marks = c->n_lanes = c->n_texts = 0;
}

static void canvas_fini(canvas *c)
{
    canvas_clear(c);
    mst_free(c->series);
    mst_free(c->marks);
    mst_free(c->texts);
}

/* Takes the text and keeps it as long as the plot; NULL when memory is short. */
static const char *canvas_keep(canvas *c, char *text)
{
    if (text == NULL || !mst_grow(&c->texts, &c->texts_capacity, c->n_texts + 1, sizeof *c->texts)) {
        mst_free(text);
        return NULL;
    }
    return c->texts[c->n_texts++] = text;
}

/* Takes the points. what: added to the run's label; NULL: nothing. */
static mst_status canvas_add_series(canvas *c, size_t run, const char *what, unsigned part, bool dots,
                                    mst_points *points)
{
    bool alone = c->report->n == 1;
    const char *label = what == NULL ? c->report->labels[run]
                        : alone      ? canvas_keep(c, mst_strdup(what))
                                     : canvas_keep(c, mst_sprintf("%s, %s", c->report->labels[run], what));
    if (label == NULL || !mst_grow(&c->series, &c->series_capacity, c->n_series + 1, sizeof *c->series)) {
        mst_points_fini(points);
        return mst_fail_memory();
    }
    c->series[c->n_series++] = (mst_series){
        .label = label,
        .points = *points,
        .run = (unsigned)run,
        .colour = (unsigned)(alone ? part : run) % MST_PLOT_COLOURS,
        .dashed = alone ? false : part > 0 || run >= MST_PLOT_COLOURS,
        .dots = dots,
    };
    *points = (mst_points){0};
    return mst_series_reduce(&c->series[c->n_series - 1]);
}

/* A plot of zeros is left out. */
static bool canvas_is_worth_it(const canvas *c)
{
    for (size_t s = 0; s < c->n_series; s++)
        for (size_t i = 0; i < c->series[s].points.n; i++)
            if (c->series[s].points.y[i] > 0)
                return true;
    return false;
}

/* ---- marks ---- */

static mst_status canvas_add_mark(canvas *c, mst_mark_kind kind, double from, double to, size_t run,
                                  const char *what)
{
    const char *text = canvas_keep(
        c, c->report->n == 1 ? mst_strdup(what) : mst_sprintf("%s: %s", c->report->labels[run], what));
    if (text == NULL || !mst_grow(&c->marks, &c->marks_capacity, c->n_marks + 1, sizeof *c->marks))
        return mst_fail_memory();
    c->marks[c->n_marks++] = (mst_mark){.kind = kind,
                                        .from = from,
                                        .to = to,
                                        .text = text,
                                        .lane = (unsigned)c->n_lanes,
                                        .colour = (unsigned)(run % MST_PLOT_COLOURS)};
    return MST_OK;
}

/* ---- curves ---- */

static bool canvas_is_constant(const canvas *c)
{
    for (size_t s = 0; s < c->n_series; s++)
        for (size_t i = 1; i < c->series[s].points.n; i++)
            if (c->series[s].points.y[i] != c->series[s].points.y[0])
                return false;
    return true;
}

static const struct {
    const char *title, *column;
    mst_figure_unit unit;
    bool evaluated;
} curves[] = {
    {"error", "error", MST_FIGURE_SHARE, true},
    {"loss", "loss", MST_FIGURE_PLAIN, true},
    {"area under the ROC curve", "auc", MST_FIGURE_PLAIN, true},
    {"grouped AUC", "grouped_auc", MST_FIGURE_PLAIN, true},
    {"normalised entropy", "normalised_entropy", MST_FIGURE_PLAIN, true},
    {"calibration", "calibration", MST_FIGURE_PLAIN, true},
    {"top-5 error", "top5", MST_FIGURE_SHARE, true},
    {"training loss", "train_loss", MST_FIGURE_PLAIN, false},
    {"progressive loss", "progressive_loss", MST_FIGURE_PLAIN, false},
    {"training accuracy", "train_accuracy", MST_FIGURE_SHARE, false},
    {"learning rate", "lr", MST_FIGURE_PLAIN, false},
};

static mst_status canvas_add_curve(canvas *c, size_t run, size_t k, const char *set, unsigned part,
                                   mst_axis axis)
{
    mst_points points = {0};
    TRY(mst_curve(c->report->runs[run], curves[k].column, set, axis, &points));
    if (strcmp(curves[k].column, "top5") == 0)
        for (size_t i = 0; i < points.n; i++)
            points.y[i] = 1 - points.y[i];
    if (points.n == 0) {
        mst_points_fini(&points);
        return MST_OK;
    }
    bool named = c->report->n == 1 || part > 0;
    return canvas_add_series(c, run, named && *set != '\0' ? set : NULL, part, curves[k].evaluated, &points);
}

/* Marks the points at which a run was resumed, with the changes. */
static mst_status canvas_add_resumes(canvas *c, size_t run, mst_axis axis)
{
    const mst_history *h = &c->report->histories[run];
    for (size_t i = 1; i < h->n; i++) {
        const mst_segment *s = &h->segments[i];
        double at = axis == MST_AXIS_TIME ? s->train_s : axis == MST_AXIS_STEPS ? s->step : s->rows;
        mst_string text = {0};
        char number[40];
        mst_segment_changes(s, &text);
        char *words = mst_sprintf("resumed at step %s%s%.200s", mst_figure_count(s->step, number),
                                  text.text != NULL ? ": " : "", text.text != NULL ? text.text : "");
        mst_status st = words != NULL && !text.failed ? canvas_add_mark(c, MST_MARK_JOIN, at, at, run, words)
                                                      : mst_fail_memory();
        mst_free(words);
        mst_string_fini(&text);
        TRY(st);
    }
    return MST_OK;
}

static mst_status canvas_draw_curve(canvas *c, size_t k, mst_axis axis)
{
    static const char *const labels[] = {"training time", "steps", "rows"};
    char title[64];
    bool test = false, valid = false;
    for (size_t i = 0; i < c->report->n; i++) {
        bool has_test = mst_run_has_set(c->report->runs[i], "test");
        bool has_valid = mst_run_has_set(c->report->runs[i], "valid");
        test = test || has_test;
        valid = valid || has_valid;
        if (!curves[k].evaluated)
            TRY(canvas_add_curve(c, i, k, "", 0, axis));
        if (curves[k].evaluated && has_test)
            TRY(canvas_add_curve(c, i, k, "test", 0, axis));
        if (curves[k].evaluated && has_valid)
            TRY(canvas_add_curve(c, i, k, "valid", has_test ? 1 : 0, axis));
        TRY(canvas_add_resumes(c, i, axis));
    }
    snprintf(title, sizeof title, "%s%s",
             !curves[k].evaluated ? ""
             : test && valid      ? "test and valid "
             : test               ? "test "
                                  : "valid ",
             curves[k].title);
    title[0] = (char)(title[0] - 'a' + 'A');
    mst_plot plot = {.title = title,
                     .x_label = labels[axis],
                     .y_label = curves[k].title,
                     .x_unit = axis == MST_AXIS_TIME ? MST_FIGURE_SECONDS : MST_FIGURE_COUNT,
                     .y_unit = curves[k].unit,
                     .series = c->series,
                     .n_series = c->n_series,
                     .marks = c->marks,
                     .n_marks = c->n_marks};
    bool dull = strcmp(curves[k].column, "lr") == 0 && canvas_is_constant(c);
    return canvas_is_worth_it(c) && !dull ? c->fn(c->arg, c->group, "", (int)axis, &plot) : MST_OK;
}

/* The curves of the workers or ranks of all runs, if a run has several. */
static mst_status canvas_draw_learning(canvas *c, const char *title, const char *column, mst_figure_unit unit,
                                       mst_axis axis)
{
    static const char *const labels[] = {"time since start", "own steps", "own rows"};
    for (size_t i = 0; i < c->report->n; i++) {
        const mst_run_data *run = c->report->runs[i];
        unsigned part = 0;
        for (size_t p = 0; p < run->n_processes; p++) {
            mst_points points = {0};
            TRY(mst_learning_points(run, run->processes[p], column, axis, &points));
            if (points.n > 0)
                TRY(canvas_add_series(c, i, run->processes[p]->name, part++, false, &points));
            mst_points_fini(&points);
        }
    }
    mst_plot plot = {.title = title,
                     .x_label = labels[axis],
                     .y_label = column,
                     .x_unit = axis == MST_AXIS_TIME ? MST_FIGURE_SECONDS : MST_FIGURE_COUNT,
                     .y_unit = unit,
                     .series = c->series,
                     .n_series = c->n_series};
    return c->n_series > 1 ? c->fn(c->arg, c->group, "", (int)axis, &plot) : MST_OK;
}

/* process: "" for a host, which has the marks of all processes. */
static mst_status canvas_add_marks(canvas *c, size_t run, const char *process)
{
    const mst_run_data *data = c->report->runs[run];
    double begin = mst_run_data_begin(data), evaluates = NAN, saves = NAN;
    for (size_t i = 0; i < data->marks.n_rows; i++) {
        mst_mark_line m = mst_run_data_mark(data, i);
        const char *of = m.process, *what = m.kind;
        double t = m.time - begin;
        if (isnan(t) || (*of != '\0' && *process != '\0' && strcmp(of, process) != 0))
            continue;
        if (strcmp(what, "evaluate_begin") == 0) {
            evaluates = t;
        } else if (strcmp(what, "checkpoint_begin") == 0) {
            saves = t;
        } else if (strcmp(what, "evaluate_end") == 0 && evaluates <= t) {
            TRY(canvas_add_mark(c, MST_MARK_EVALUATION, evaluates, t, run, "evaluation"));
            evaluates = NAN;
        } else if (strcmp(what, "checkpoint_end") == 0 && saves <= t) {
            TRY(canvas_add_mark(c, MST_MARK_CHECKPOINT, saves, t, run, "checkpoint"));
            saves = NAN;
        } else if (strcmp(what, "join") == 0 || strcmp(what, "death") == 0 || strcmp(what, "leave") == 0 ||
                   strcmp(what, "resume") == 0) {
            char words[400];
            bool good = strcmp(what, "join") == 0 || strcmp(what, "resume") == 0;
            snprintf(words, sizeof words, "%s %.150s %.150s", what, of, m.text);
            TRY(canvas_add_mark(c, good ? MST_MARK_JOIN : MST_MARK_DEATH, t, t, run, words));
        }
    }
    return MST_OK;
}

/* ---- resources ---- */

static const struct {
    const char *title, *first, *second; /* the pair's names */
    mst_figure_unit unit;
    int kind, pair; /* of the host; those of a process are 6 further; pair -1: none */
} uses[] = {
    {"CPU", "cores busy", NULL, MST_FIGURE_PLAIN, MST_LOAD_HOST_CPU, -1},
    {"memory", "in use", NULL, MST_FIGURE_BYTES, MST_LOAD_HOST_MEMORY, -1},
    {"network", "in", "out", MST_FIGURE_RATE, MST_LOAD_HOST_NET_IN, MST_LOAD_HOST_NET_OUT},
    {"disk", "read", "written", MST_FIGURE_RATE, MST_LOAD_HOST_DISK_READ, MST_LOAD_HOST_DISK_WRITE},
};
#define PROCESS_KINDS (MST_LOAD_CPU - MST_LOAD_HOST_CPU)

/* The first process of the run with samples that is on the host or has the name; NULL: none. */
static const mst_process_data *canvas_find_process(const mst_run_data *run, const char *of, bool host)
{
    for (size_t i = 0; i < run->n_processes; i++) {
        const mst_process_data *p = run->processes[i];
        if (p->resources.n_rows + (host ? 0 : p->spans.n_rows) > 0 &&
            strcmp(host ? p->host : p->name, of) == 0)
            return p;
    }
    return NULL;
}

static mst_status canvas_draw_use(canvas *c, size_t k, const char *of, bool host)
{
    for (size_t i = 0; i < c->report->n; i++) {
        const mst_run_data *run = c->report->runs[i];
        const mst_process_data *p = canvas_find_process(run, of, host);
        int kinds[] = {uses[k].kind, uses[k].pair};
        if (p == NULL)
            continue;
        for (unsigned part = 0; part < 2 && kinds[part] >= 0; part++) {
            mst_points points = {0};
            mst_load_kind kind = (mst_load_kind)(kinds[part] + (host ? 0 : PROCESS_KINDS));
            TRY(mst_load_points(run, p, kind, &points));
            TRY(canvas_add_series(c, i,
                                  uses[k].pair < 0 ? NULL
                                  : part == 0      ? uses[k].first
                                                   : uses[k].second,
                                  part, false, &points));
        }
        TRY(canvas_add_marks(c, i, host ? "" : p->name));
        c->n_lanes += c->report->n > 1;
    }
    const char *label = uses[k].pair < 0 ? uses[k].first : uses[k].title;
    mst_plot plot = {.title = !host && uses[k].kind == MST_LOAD_HOST_NET_IN ? "messages" : uses[k].title,
                     .x_label = "time since start",
                     .y_label = label,
                     .x_unit = MST_FIGURE_SECONDS,
                     .y_unit = uses[k].unit,
                     .zero = true,
                     .series = c->series,
                     .n_series = c->n_series,
                     .marks = c->marks,
                     .n_marks = c->n_marks,
                     .n_lanes = c->n_lanes};
    return canvas_is_worth_it(c) ? c->fn(c->arg, c->group, of, -1, &plot) : MST_OK;
}

/* Whether a process before (run, p) has the same host or name. */
static bool canvas_has_seen(const mst_report *report, size_t run, size_t p, const char *of, bool host)
{
    for (size_t i = 0; i <= run; i++)
        for (size_t k = 0; k < (i < run ? report->runs[i]->n_processes : p); k++) {
            const mst_process_data *other = report->runs[i]->processes[k];
            if (strcmp(host ? other->host : other->name, of) == 0)
                return true;
        }
    return false;
}

static mst_status canvas_draw_uses(canvas *c, bool host)
{
    const mst_report *report = c->report;
    for (size_t i = 0; i < report->n; i++)
        for (size_t p = 0; p < report->runs[i]->n_processes; p++) {
            const mst_process_data *process = report->runs[i]->processes[p];
            const char *of = host ? process->host : process->name;
            if (canvas_has_seen(report, i, p, of, host))
                continue;
            for (size_t k = 0; k < sizeof uses / sizeof *uses; k++) {
                TRY(canvas_draw_use(c, k, of, host));
                canvas_clear(c);
            }
        }
    return MST_OK;
}

mst_status mst_report_plots(const mst_report *self, const char *group, mst_plot_fn *fn, void *arg)
{
    canvas c = {.report = self, .fn = fn, .arg = arg, .group = group};
    mst_status st = MST_OK;
    if (strcmp(group, "curves") == 0) {
        for (size_t k = 0; st == MST_OK && k < sizeof curves / sizeof *curves; k++)
            for (int axis = 0; st == MST_OK && axis < MST_AXES; axis++) {
                st = canvas_draw_curve(&c, k, (mst_axis)axis);
                canvas_clear(&c);
            }
        for (int k = 0; k < 2; k++)
            for (int axis = 0; st == MST_OK && axis < MST_AXES; axis++) {
                st = canvas_draw_learning(
                    &c, k == 0 ? "Training loss of each worker" : "Training accuracy of each worker",
                    k == 0 ? "loss" : "accuracy", k == 0 ? MST_FIGURE_PLAIN : MST_FIGURE_SHARE,
                    (mst_axis)axis);
                canvas_clear(&c);
            }
    } else {
        st = canvas_draw_uses(&c, strcmp(group, "hosts") == 0);
    }
    canvas_fini(&c);
    return st;
}
