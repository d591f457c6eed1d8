/* Plots of a sweep's report: figures against every numeric option in which configurations differ, batch size
 * and workers first.
 *
 * A curve has the configurations that differ in that option only. Where there would be more curves than
 * colours, the plots are made once for each value of the first other axis. Bars are the least and greatest of
 * the repeats. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "sweep/sweep_report_impl.h"

#define LABEL_MAX  200
#define SERIES_MAX 64
#define AXES_MAX   20

static const mst_sweep_figure drawn[] = {
    MST_SWEEP_TARGET, MST_SWEEP_TIME, MST_SWEEP_ACCURACY, MST_SWEEP_LOSS,         MST_SWEEP_ITERATIONS,
    MST_SWEEP_SPEED,  MST_SWEEP_CPU,  MST_SWEEP_MEMORY,   MST_SWEEP_TRAFFIC_RATE, MST_SWEEP_WAIT,
};

typedef struct group {
    const mst_sweep_report *report;
    const char *option; /* the x axis */
    const char *facet;  /* an axis with one value in these plots; NULL: none */
    const char *value;
    char labels[SERIES_MAX][LABEL_MAX];
    size_t n_labels;
} group;

/* Whether the axis's values set that option. */
static bool sets(const mst_sweep_report *r, const char *axis, const char *option)
{
    const json_t *values = json_object_get(json_object_get(r->sweep->spec, "grid"), axis);
    return json_object_get(json_object_get(json_array_get(values, 0), "set"), option) != NULL;
}

static bool is_series_axis(const group *g, size_t axis)
{
    const char *name = g->report->axes[axis];
    return !sets(g->report, name, g->option) && (g->facet == NULL || strcmp(g->facet, name) != 0);
}

/* "async, workers 2": the values on the other axes. */
static void label_of(const group *g, const mst_sweep_config *c, char *out)
{
    size_t n = 0;
    out[0] = '\0';
    for (size_t a = 0; a < g->report->n_axes; a++) {
        const char *axis = g->report->axes[a], *label = mst_sweep_label(g->report, c, axis);
        char *end;
        if (!is_series_axis(g, a) || *label == '\0')
            continue;
        bool plain = strtod(label, &end) == 0 && end == label; /* words speak for themselves */
        n += (size_t)snprintf(out + n, LABEL_MAX - n, "%s%s%s%s", n > 0 ? ", " : "", plain ? "" : axis,
                              plain ? "" : " ", label);
        if (n >= LABEL_MAX)
            break;
    }
    if (out[0] == '\0')
        snprintf(out, LABEL_MAX, "all");
}

static bool belongs(const group *g, const mst_sweep_config *c)
{
    return c->n_known > 0 && !isnan(mst_sweep_option(g->report, c, g->option)) &&
           (g->facet == NULL || strcmp(mst_sweep_label(g->report, c, g->facet), g->value) == 0);
}

static void find_labels(group *g)
{
    char label[LABEL_MAX];
    g->n_labels = 0;
    for (size_t i = 0; i < g->report->n_configs; i++) {
        const mst_sweep_config *c = &g->report->configs[i];
        size_t k = 0;
        if (!belongs(g, c))
            continue;
        label_of(g, c, label);
        while (k < g->n_labels && strcmp(g->labels[k], label) != 0)
            k++;
        if (k == g->n_labels && k < SERIES_MAX)
            memcpy(g->labels[g->n_labels++], label, sizeof label);
    }
}

/* Whether the group has two values of the option or more. */
static bool has_width(const group *g)
{
    double first = NAN;
    for (size_t i = 0; i < g->report->n_configs; i++) {
        const mst_sweep_config *c = &g->report->configs[i];
        double x = belongs(g, c) ? mst_sweep_option(g->report, c, g->option) : NAN;
        if (!isnan(x) && !isnan(first) && x != first)
            return true;
        first = isnan(first) ? x : first;
    }
    return false;
}

/* ---- one plot ---- */

typedef struct point {
    double x, y, low, high;
} point;

static int by_x(const void *a, const void *b)
{
    double x = ((const point *)a)->x, y = ((const point *)b)->x;
    return (x > y) - (x < y);
}

/* The points of a curve; spread receives low and high, n each. */
static mst_status fill(const group *g, size_t label, mst_sweep_figure figure, point *points, mst_series *out,
                       double *spread)
{
    size_t n = 0;
    char text[LABEL_MAX];
    for (size_t i = 0; i < g->report->n_configs; i++) {
        const mst_sweep_config *c = &g->report->configs[i];
        const mst_stat *s = &c->stats[figure];
        if (!belongs(g, c) || isnan(s->mean))
            continue;
        label_of(g, c, text);
        if (strcmp(text, g->labels[label]) == 0)
            points[n++] = (point){mst_sweep_option(g->report, c, g->option), s->mean, s->low, s->high};
    }
    TRY(mst_points_new(n, &out->points));
    if (n > 1)
        qsort(points, n, sizeof *points, by_x);
    for (size_t i = 0; i < n; i++) {
        out->points.x[i] = points[i].x;
        out->points.y[i] = points[i].y;
        spread[i] = points[i].low;
        spread[g->report->n_configs + i] = points[i].high;
    }
    out->points.n = n;
    out->low = spread;
    out->high = spread + g->report->n_configs;
    return MST_OK;
}

static bool wants_log(const mst_series *series, size_t n)
{
    double low = INFINITY, high = 0;
    for (size_t s = 0; s < n; s++)
        for (size_t i = 0; i < series[s].points.n; i++) {
            low = fmin(low, series[s].points.x[i]);
            high = fmax(high, series[s].points.x[i]);
        }
    return low > 0 && high >= 20 * low;
}

static void draw(const group *g, mst_sweep_figure figure, const mst_series *series, mst_string *out)
{
    mst_plot plot = {.title = mst_sweep_figure_title(figure),
                     .x_label = strcmp(g->option, "batch") == 0 ? "batch size" : g->option,
                     .y_label = mst_sweep_figure_title(figure),
                     .y_unit = mst_sweep_figure_unit(figure),
                     .zero = figure != MST_SWEEP_ACCURACY && figure != MST_SWEEP_LOSS,
                     .series = series,
                     .n_series = g->n_labels};
    plot.log_x = wants_log(series, g->n_labels);
    bool whole = true;
    for (size_t s = 0; s < g->n_labels; s++)
        for (size_t i = 0; i < series[s].points.n; i++)
            whole = whole && series[s].points.x[i] == floor(series[s].points.x[i]);
    plot.x_unit = whole ? MST_FIGURE_COUNT : MST_FIGURE_PLAIN;
    if (!mst_plot_has_points(&plot))
        return;
    char title[64];
    snprintf(title, sizeof title, "%s", plot.title);
    title[0] = (char)toupper((unsigned char)title[0]);
    mst_string_add(out, "<figure><figcaption>");
    mst_string_html(out, title);
    mst_string_add(out, "</figcaption>\n");
    mst_plot log = plot;
    log.log_y = true;
    bool has_log = mst_plot_has_points(&log) && plot.zero;
    mst_plot_draw(&plot, has_log ? "lin" : "", out);
    if (has_log)
        mst_plot_draw(&log, "log", out);
    mst_string_add(out, "</figure>\n");
}

static mst_status add_plot(const group *g, mst_sweep_figure figure, mst_string *out)
{
    mst_status st = MST_OK;
    size_t n = g->report->n_configs;
    mst_series *series = mst_calloc(g->n_labels + 1, sizeof *series);
    double *spreads = mst_calloc((g->n_labels + 1) * 2 * n, sizeof *spreads);
    point *points = mst_calloc(n, sizeof *points);
    if (series == NULL || spreads == NULL || points == NULL)
        st = mst_fail_memory();
    for (size_t s = 0; st == MST_OK && s < g->n_labels; s++) {
        series[s] = (mst_series){.label = g->labels[s],
                                 .run = (unsigned)s,
                                 .colour = (unsigned)(s % MST_SVG_COLOURS),
                                 .dashed = s >= MST_SVG_COLOURS,
                                 .dots = true};
        st = fill(g, s, figure, points, &series[s], spreads + s * 2 * n);
    }
    if (st == MST_OK)
        draw(g, figure, series, out);
    for (size_t s = 0; series != NULL && s < g->n_labels; s++)
        mst_points_fini(&series[s].points);
    mst_free(series);
    mst_free(spreads);
    mst_free(points);
    return st;
}

/* ---- sections ---- */

static mst_status add_group(group *g, mst_string *out)
{
    find_labels(g);
    if (!has_width(g))
        return MST_OK;
    if (g->facet != NULL) {
        mst_string_add(out, "<h3>");
        mst_string_html(out, g->value);
        mst_string_add(out, "</h3>\n");
    }
    if (g->n_labels > 1) {
        mst_string_add(out, "<div class=\"legend\">");
        for (size_t s = 0; s < g->n_labels; s++) {
            mst_string_format(
                out,
                "<label><svg viewBox=\"0 0 22 10\" aria-hidden=\"true\"><path class=\"c%u line%s\" "
                "d=\"M1 5h20\"/></svg>",
                (unsigned)(s % MST_SVG_COLOURS), s >= MST_SVG_COLOURS ? " dash" : "");
            mst_string_html(out, g->labels[s]);
            mst_string_add(out, "</label>");
        }
        mst_string_add(out, "</div>\n");
    }
    mst_string_add(out, "<div class=\"grid2\">\n");
    for (size_t k = 0; k < sizeof drawn / sizeof *drawn; k++)
        TRY(add_plot(g, drawn[k], out));
    mst_string_add(out, "</div>\n");
    return MST_OK;
}

static mst_status add_section(const mst_sweep_report *self, const char *option, mst_string *out)
{
    mst_status st = MST_OK;
    group *g = mst_zalloc(sizeof *g);
    if (g == NULL)
        return mst_fail_memory();
    g->report = self;
    g->option = option;
    if (!has_width(g)) {
        mst_free(g);
        return MST_OK;
    }
    mst_string_add(out, "<h2>Against ");
    mst_string_html(out, strcmp(option, "batch") == 0     ? "batch size"
                         : strcmp(option, "workers") == 0 ? "the number of workers"
                                                          : option);
    mst_string_add(out, "</h2>\n");
    find_labels(g);
    if (g->n_labels > MST_SVG_COLOURS)
        for (size_t a = 0; a < self->n_axes && g->facet == NULL; a++)
            if (is_series_axis(g, a))
                g->facet = self->axes[a];
    if (g->facet == NULL)
        st = add_group(g, out);
    json_t *values =
               json_object_get(json_object_get(self->sweep->spec, "grid"), g->facet != NULL ? g->facet : ""),
           *value;
    size_t i;
    json_array_foreach(values, i, value)
    {
        g->value = json_string_value(json_object_get(value, "label"));
        if (st == MST_OK)
            st = add_group(g, out);
    }
    mst_free(g);
    return st;
}

mst_status mst_sweep_plots_html(const mst_sweep_report *self, mst_string *out)
{
    const char *options[AXES_MAX] = {"batch", "global-batch", "workers"};
    size_t n = 3;
    for (size_t a = 0; a < self->n_axes && n < AXES_MAX; a++) {
        bool known = strcmp(self->axes[a], "batch") == 0 || strcmp(self->axes[a], "global-batch") == 0 ||
                     strcmp(self->axes[a], "workers") == 0;
        if (!known)
            options[n++] = self->axes[a];
    }
    for (size_t i = 0; i < n; i++)
        TRY(add_section(self, options[i], out));
    return MST_OK;
}
