/* Plots of a study: figures of rows against a column, curves of runs, and loads of the processes of a run.
 *
 * A plot is one of plots: of the file. A curve has the rows, runs or processes with the same label. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "study/study_report_impl.h"

typedef struct drawing {
    const mst_study *study;
    const json_t *spec; /* of the plot */
    mst_series *series;
    size_t n, capacity;
} drawing;

static void drawing_fini(drawing *d)
{
    for (size_t i = 0; i < d->n; i++) {
        mst_free((char *)d->series[i].label);
        mst_series_fini(&d->series[i]);
    }
    mst_free(d->series);
}

/* A new curve; takes the points. */
static mst_status drawing_add(drawing *d, const char *label, bool dots, mst_points *points)
{
    char *copy = mst_strdup(label);
    if (copy == NULL || !mst_grow(&d->series, &d->capacity, d->n + 1, sizeof *d->series)) {
        mst_free(copy);
        mst_points_fini(points);
        return mst_fail_memory();
    }
    d->series[d->n] = (mst_series){.label = copy,
                                   .points = *points,
                                   .run = (unsigned)d->n,
                                   .colour = (unsigned)(d->n % MST_PLOT_COLOURS),
                                   .dashed = d->n >= MST_PLOT_COLOURS,
                                   .dots = dots};
    d->n++;
    return mst_series_reduce(&d->series[d->n - 1]);
}

/* "sync, batch 10": the values of by:, a list of columns split at commas; without by:, the configuration. */
static void drawing_label(const drawing *d, const json_t *row, mst_string *out)
{
    const char *by = mst_study_text(d->spec, "by");
    by = by != NULL ? by : "configuration";
    while (*by != '\0') {
        char column[64], number[MST_FIGURE_SIZE];
        by += strspn(by, " ,");
        size_t n = strcspn(by, " ,");
        snprintf(column, sizeof column, "%.*s", (int)n, by);
        by += n;
        const json_t *cell = json_object_get(row, column);
        if (cell == NULL)
            continue;
        mst_string_add(out, out->size > 0 ? ", " : "");
        if (json_is_string(cell))
            mst_string_add(out, json_string_value(cell));
        else
            mst_string_format(out, "%s %s", column, mst_figure_short(json_number_value(cell), number));
    }
    if (out->size == 0)
        mst_string_add(out, "all");
}

/* ---- figures against a column ---- */

typedef struct point {
    double x, y;
} point;

static int point_compare(const void *a, const void *b)
{
    const point *p = a, *q = b;
    return p->x < q->x ? -1 : p->x > q->x;
}

/* The points of the rows with that label, by x. */
static mst_status drawing_add_rows(drawing *d, const json_t *rows, const char *label)
{
    size_t i, n = 0;
    json_t *row;
    mst_points points;
    mst_expr_scope scope = {.rows = d->study->rows,
                            .steps = json_object_get(d->study->spec, "steps"),
                            .values = json_object_get(d->study->spec, "values")};
    point *list = mst_calloc(json_array_size(rows) + 1, sizeof *list);
    if (list == NULL)
        return mst_fail_memory();
    json_array_foreach(rows, i, row)
    {
        mst_string own = {0};
        drawing_label(d, row, &own);
        bool same = own.text != NULL && strcmp(own.text, label) == 0;
        mst_string_fini(&own);
        scope.row = row;
        if (same && mst_study_row_matches(row, mst_study_text(d->spec, "where")) &&
            mst_expr_number(&scope, mst_study_text(d->spec, "x"), &list[n].x) == MST_OK &&
            mst_expr_number(&scope, mst_study_text(d->spec, "y"), &list[n].y) == MST_OK)
            n++;
    }
    qsort(list, n, sizeof *list, point_compare);
    mst_status st = mst_points_new(n, &points);
    for (i = 0; st == MST_OK && i < n; i++) {
        points.x[i] = list[i].x;
        points.y[i] = list[i].y;
        points.n = i + 1;
    }
    mst_free(list);
    return st == MST_OK ? drawing_add(d, label, true, &points) : st;
}

static mst_status drawing_rows(drawing *d)
{
    const json_t *rows = json_object_get(d->study->rows, mst_study_text(d->spec, "step"));
    size_t i;
    json_t *row;
    mst_status st = MST_OK;
    json_array_foreach(rows, i, row)
    {
        mst_string label = {0};
        if (!mst_study_row_matches(row, mst_study_text(d->spec, "where")))
            continue;
        drawing_label(d, row, &label);
        bool known = false;
        for (size_t k = 0; k < d->n; k++)
            known = known || strcmp(d->series[k].label, label.text) == 0;
        if (!known)
            st = label.failed ? mst_fail_memory() : drawing_add_rows(d, rows, label.text);
        mst_string_fini(&label);
        TRY(st);
    }
    return MST_OK;
}

/* ---- curves of runs ---- */

static mst_axis drawing_axis(const drawing *d)
{
    const char *over = mst_study_text(d->spec, "over");
    return over != NULL && strcmp(over, "steps") == 0  ? MST_AXIS_STEPS
           : over != NULL && strcmp(over, "rows") == 0 ? MST_AXIS_ROWS
                                                       : MST_AXIS_TIME;
}

static mst_status drawing_add_curve(drawing *d, const char *path, const char *label)
{
    mst_run_data *run = NULL;
    mst_points points;
    const char *column = mst_study_text(d->spec, "curve");
    if (mst_run_data_new(path, &run) != MST_OK)
        return MST_OK; /* the run is missing; the table of steps has the reason */
    bool evaluated = strncmp(column, "train_", 6) != 0 && strcmp(column, "lr") != 0;
    const char *set = !evaluated ? "" : mst_run_has_set(run, "test") ? "test" : "valid";
    mst_status st = mst_curve(run, column, set, drawing_axis(d), &points);
    if (st == MST_OK)
        st = drawing_add(d, label, evaluated, &points);
    mst_run_data_destroy(run);
    return st;
}

/* The file of the sweep of the plot's step; "" if the step is none. */
static const char *drawing_sweep(const drawing *d)
{
    size_t i;
    json_t *step;
    json_array_foreach(json_object_get(d->study->spec, "steps"), i, step)
    {
        const char *sweep = mst_study_text(step, "sweep");
        if (sweep != NULL && strcmp(mst_study_text(step, "name"), mst_study_text(d->spec, "step")) == 0)
            return sweep;
    }
    return "";
}

/* The runs of a sweep, by its runs.csv; of another step, the run directories that run: names, split at
 * commas. */
static mst_status drawing_curves(drawing *d)
{
    const char *step = mst_study_text(d->spec, "step"), *names = mst_study_text(d->spec, "run");
    char *file = mst_sprintf("%s/%s/runs.csv", d->study->folder, step), *text = NULL;
    json_t *rows = NULL, *row;
    size_t size, i;
    mst_status st = file != NULL ? MST_OK : mst_fail_memory();
    if (st == MST_OK && names != NULL) {
        while (st == MST_OK && *names != '\0') {
            names += strspn(names, " ,");
            size_t n = strcspn(names, " ,");
            char *path = mst_sprintf("%s/%.*s", d->study->folder, (int)n, names),
                 *slash = path != NULL ? strrchr(path, '/') : NULL;
            st = slash == NULL ? mst_fail_memory() : drawing_add_curve(d, path, slash + 1);
            mst_free(path);
            names += n;
        }
    } else if (st == MST_OK && mst_path_exists(file)) {
        st = mst_file_read_all(file, 64u << 20, &text, &size);
        if (st == MST_OK)
            st = mst_study_rows_parse(file, text, size, NULL, NULL, &rows);
        if (st == MST_OK)
            mst_study_rows_share(drawing_sweep(d), rows);
    }
    json_array_foreach(rows, i, row)
    {
        mst_string label = {0};
        char *path = mst_sprintf("%s/%s/runs/%s", d->study->folder, step, mst_study_text(row, "run"));
        drawing_label(d, row, &label);
        if (st == MST_OK && mst_study_row_matches(row, mst_study_text(d->spec, "where")))
            st = path == NULL || label.failed ? mst_fail_memory() : drawing_add_curve(d, path, label.text);
        mst_string_fini(&label);
        mst_free(path);
    }
    json_decref(rows);
    mst_free(text);
    mst_free(file);
    return st;
}

/* ---- loads of processes ---- */

static const struct {
    const char *name, *title;
    mst_load_kind kind;
    mst_figure_unit unit;
} loads[] = {
    {"cpu", "CPU", MST_LOAD_CPU, MST_FIGURE_CORES},
    {"memory", "memory", MST_LOAD_MEMORY, MST_FIGURE_BYTES},
    {"sent", "sent", MST_LOAD_MESSAGES_OUT, MST_FIGURE_RATE},
    {"received", "received", MST_LOAD_MESSAGES_IN, MST_FIGURE_RATE},
    {"host-cpu", "CPU of the host", MST_LOAD_HOST_CPU, MST_FIGURE_CORES},
    {"host-idle", "idle CPU of the host", MST_LOAD_HOST_IDLE, MST_FIGURE_CORES},
    {"host-sent", "sent by the host", MST_LOAD_HOST_NET_OUT, MST_FIGURE_RATE},
    {"host-received", "received by the host", MST_LOAD_HOST_NET_IN, MST_FIGURE_RATE},
    {"disk-written", "written to disk", MST_LOAD_DISK_WRITE, MST_FIGURE_RATE},
};
#define N_LOADS (sizeof loads / sizeof *loads)

/* key: of the plot is one of the names, which are split at commas. */
static mst_status drawing_check_name(const char *path, const json_t *plot, const char *key, const char *names)
{
    const char *text = mst_study_text(plot, key), *at = names;
    size_t n = text != NULL ? strlen(text) : 0;
    while (text != NULL && at != NULL && (strncmp(at, text, n) != 0 || (at[n] != ',' && at[n] != '\0')))
        at = (at = strchr(at, ' ')) != NULL ? at + 1 : NULL;
    return at != NULL ? MST_OK
                      : mst_fail(MST_EUSAGE, "%s:%d: %s: %s: not one of %s", path,
                                 mst_study_line_of(plot, key), key, text, names);
}

mst_status mst_study_plot_check(const char *path, const json_t *plot)
{
    mst_string names = {0};
    TRY(drawing_check_name(path, plot, "curve",
                           "accuracy, auc, error, loss, lr, top5, train_accuracy, train_loss"));
    TRY(drawing_check_name(path, plot, "over", "time, steps, rows"));
    for (size_t k = 0; k < N_LOADS; k++)
        mst_string_format(&names, "%s%s", k > 0 ? ", " : "", loads[k].name);
    mst_status st = names.failed ? mst_fail_memory() : drawing_check_name(path, plot, "load", names.text);
    mst_string_fini(&names);
    return st;
}

static size_t drawing_load(const json_t *spec)
{
    size_t k = 0;
    while (k < N_LOADS && strcmp(loads[k].name, mst_study_text(spec, "load")) != 0)
        k++;
    return k;
}

static mst_status drawing_loads(drawing *d)
{
    size_t k = drawing_load(d->spec);
    const char *run_name = mst_study_text(d->spec, "run");
    char *path = mst_sprintf("%s/%s", d->study->folder, run_name != NULL ? run_name : "");
    mst_run_data *run = NULL;
    mst_status st = MST_OK;
    if (path == NULL)
        return mst_fail_memory();
    if (k < N_LOADS && mst_run_data_new(path, &run) == MST_OK)
        for (size_t i = 0; i < run->n_processes && st == MST_OK; i++) {
            mst_points points;
            st = mst_load_points(run, run->processes[i], loads[k].kind, &points);
            if (st == MST_OK)
                st = drawing_add(d, run->processes[i]->name, false, &points);
        }
    mst_run_data_destroy(run);
    mst_free(path);
    return st;
}

/* ---- all ---- */

static bool drawing_is_wide(const drawing *d)
{
    double low = INFINITY, high = -INFINITY;
    for (size_t s = 0; s < d->n; s++)
        for (size_t i = 0; i < d->series[s].points.n; i++) {
            low = fmin(low, d->series[s].points.x[i]);
            high = fmax(high, d->series[s].points.x[i]);
        }
    return low > 0 && high >= 20 * low;
}

static mst_status plots_one(const mst_study *self, const json_t *spec, mst_study_plot_fn *fn, void *arg)
{
    static const char *const over[] = {"training time", "steps", "rows"};
    static const mst_figure_unit over_unit[] = {MST_FIGURE_SECONDS, MST_FIGURE_COUNT, MST_FIGURE_COUNT};
    drawing d = {.study = self, .spec = spec};
    const char *y = mst_study_text(spec, "y"), *curve = mst_study_text(spec, "curve");
    mst_plot plot = {.title = mst_study_text(spec, "title"), .zero = true};
    mst_status st = y != NULL ? drawing_rows(&d) : curve != NULL ? drawing_curves(&d) : drawing_loads(&d);
    if (y != NULL) {
        plot.x_label = mst_study_text(spec, "x");
        plot.y_label = y;
        plot.x_unit = mst_study_form(plot.x_label, NULL).unit;
        plot.y_unit = mst_study_form(y, mst_study_text(spec, "unit")).unit;
        plot.log_x = drawing_is_wide(&d);
    } else if (curve != NULL) {
        plot.x_label = over[drawing_axis(&d)];
        plot.x_unit = over_unit[drawing_axis(&d)];
        plot.y_label = curve;
        plot.y_unit = mst_study_form(curve, mst_study_text(spec, "unit")).unit;
        plot.zero = false;
    } else {
        size_t k = drawing_load(spec);
        plot.x_label = "time";
        plot.x_unit = MST_FIGURE_SECONDS;
        plot.y_label = k < N_LOADS ? loads[k].title : "";
        plot.y_unit = k < N_LOADS ? loads[k].unit : MST_FIGURE_PLAIN;
    }
    if (mst_study_text(spec, "x-title") != NULL)
        plot.x_label = mst_study_text(spec, "x-title");
    if (mst_study_text(spec, "y-title") != NULL)
        plot.y_label = mst_study_text(spec, "y-title");
    plot.series = d.series;
    plot.n_series = d.n;
    if (st == MST_OK && mst_plot_has_points(&plot))
        st = fn(arg, &plot);
    drawing_fini(&d);
    return st;
}

mst_status mst_study_plots(const mst_study *self, mst_study_plot_fn *fn, void *arg)
{
    size_t i;
    json_t *spec;
    json_array_foreach(json_object_get(self->spec, "plots"), i, spec)
    {
        TRY(plots_one(self, spec, fn, arg));
    }
    return MST_OK;
}
