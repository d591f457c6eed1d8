/* A plot as a file of its own, for muster report --svg (plot.h): axes, curves, marks and a legend.
 *
 * Design: a drawing is 480 units wide. Colours are CSS variables, so that one drawing fits light and dark.
 *
 * Invariants
 * 1. Every number written is finite and within the drawing.
 * 2. Text from outside is written by mst_string_html only. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/plot.h"

#define WIDTH     480.0
#define HEIGHT    296.0
#define LEFT      64.0 /* at least: */
#define LABEL     19.0 /* for the label of the y axis, */
#define DIGIT     7.5  /* a digit of its ticks, */
#define TICK_GAP  6.0  /* and the space after those */
#define RIGHT     12.0
#define TOP       38.0
#define BOTTOM    42.0
#define LEGEND    18.0 /* a line of the legend */
#define DOTS_MAX  60
#define TICKS_MAX 32
#define MARKS_MAX 400

static const char style[] =
    "svg{--bg:#fff;--fg:#1b1f24;--dim:#5b6570;--grid:#e3e7eb;--axis:#8a949e;"
    "--c0:#0072b2;--c1:#d55e00;--c2:#00875f;--c3:#b5478c;--c4:#b07d00;--c5:#3a9bdc;--c6:#6a4fbf;--c7:#4d4d4d;"
    "--m0:#e69f00;--m1:#56b4e9;--m2:#009e73;--m3:#c2003a}"
    "@media (prefers-color-scheme:dark){svg{--bg:#14171b;--fg:#e6e9ec;--dim:#9aa5b1;--grid:#2a3038;"
    "--axis:#6b7683;--c0:#56b4e9;--c1:#ff8c42;--c2:#2ecf9c;--c3:#e58ac3;--c4:#f0c446;--c5:#9ad1ff;"
    "--c6:#b3a1ff;--c7:#c8cdd2;--m2:#2ecf9c;--m3:#ff5c7c}}"
    "text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:var(--dim)}"
    ".title{font-size:14px;font-weight:600;fill:var(--fg)}.paper{fill:var(--bg)}"
    ".grid{stroke:var(--grid)}.axis{stroke:var(--axis);fill:none}"
    ".line{fill:none;stroke-width:1.8;stroke-linejoin:round}.dash{stroke-dasharray:5 4}.band{opacity:.22}";

/* ---- axes ---- */

double mst_nice_step(double low, double high, int n)
{
    double rough = (high - low) / n;
    if (!(rough > 0) || !isfinite(rough))
        return 1;
    double power = pow(10, floor(log10(rough))), f = rough / power;
    return power * (f <= 1.0000001 ? 1 : f <= 2.0000001 ? 2 : f <= 2.5000001 ? 2.5 : f <= 5.0000001 ? 5 : 10);
}

typedef struct svg_axis {
    double low, high, step; /* in shown units: values / scale */
    double scale;
    const char *unit; /* for the label; "" if there is none */
    double from, to;  /* where low and high are drawn */
    bool log;         /* low, high and step are of the decimal logarithm */
} svg_axis;

static double axis_place(const svg_axis *a, double value)
{
    double at = a->log ? log10(fmax(value, 1e-300)) : value / a->scale;
    double share = (at - a->low) / (a->high - a->low);
    return a->from + fmin(1, fmax(0, share)) * (a->to - a->from);
}

/* Ticks are at whole steps; the range of y is widened to them. */
static void axis_init(svg_axis *a, mst_figure_unit unit, double low, double high, int n, bool widen)
{
    double greatest = fmax(fabs(low), fabs(high));
    a->scale = 1;
    a->unit = "";
    if (unit == MST_FIGURE_SECONDS) {
        a->scale = greatest >= 3 * 3600 ? 3600 : greatest >= 300 ? 60 : 1;
        a->unit = greatest >= 3 * 3600 ? "h" : greatest >= 300 ? "min" : "s";
    } else if (unit != MST_FIGURE_COUNT) {
        a->scale = mst_figure_unit_scale(unit, greatest, &a->unit);
    }
    a->low = low / a->scale;
    a->high = high / a->scale;
    if (!(a->high > a->low)) { /* one value: half way up */
        double value = a->high;
        a->low = value < 0 ? 2 * value : 0;
        a->high = value < 0 ? 0 : value > 0 ? 2 * value : 1;
    }
    a->step = mst_nice_step(a->low, a->high, n);
    if (unit == MST_FIGURE_COUNT)
        a->step = fmax(1, a->step);
    if (widen) {
        a->low = floor(a->low / a->step + 1e-9) * a->step;
        a->high = ceil(a->high / a->step - 1e-9) * a->step;
    }
}

/* A logarithmic axis with a tick at each power of ten. */
static void axis_init_log(svg_axis *a, double low, double high)
{
    *a = (svg_axis){.low = floor(log10(low) + 1e-9),
                    .high = ceil(log10(high) - 1e-9),
                    .step = 1,
                    .scale = 1,
                    .unit = "",
                    .from = a->from,
                    .to = a->to,
                    .log = true};
    if (!(a->high > a->low))
        a->high = a->low + 1;
    a->step = ceil((a->high - a->low) / 8);
}

static size_t axis_ticks(const svg_axis *a, double out[TICKS_MAX])
{
    size_t n = 0;
    double first = ceil(a->low / a->step - 1e-9) * a->step;
    while (n < TICKS_MAX && first + (double)n * a->step <= a->high + a->step * 1e-6) {
        out[n] = first + (double)n * a->step;
        n++;
    }
    return n;
}

static const char *axis_text(const svg_axis *a, mst_figure_unit unit, double v, char *out)
{
    int digits = 0;
    if (a->log)
        return mst_figure_short(pow(10, v), out);
    if (unit == MST_FIGURE_COUNT || fabs(v) >= 1e5 || (v != 0 && fabs(v) < 1e-3))
        return mst_figure_short(v, out);
    for (double s = a->step; digits < 6 && fabs(s - round(s)) > 1e-6 * fabs(s); s *= 10)
        digits++;
    snprintf(out, MST_FIGURE_SIZE, "%.*f", digits, fabs(v) < 1e-12 ? 0.0 : v);
    return out;
}

static void svg_ticks(const mst_plot *plot, const svg_axis *x, const svg_axis *y, mst_string *out)
{
    double ticks[TICKS_MAX];
    char text[MST_FIGURE_SIZE];
    size_t n = axis_ticks(x, ticks);
    for (size_t i = 0; i < n; i++) {
        double at = axis_place(x, x->log ? pow(10, ticks[i]) : ticks[i] * x->scale);
        mst_string_format(out,
                          "<path class=\"grid\" d=\"M%.1f %.1fV%.1f\"/><text x=\"%.1f\" y=\"%.1f\" "
                          "text-anchor=\"middle\">%s</text>\n",
                          at, y->to, y->from, at, y->from + 16, axis_text(x, plot->x_unit, ticks[i], text));
    }
    n = axis_ticks(y, ticks);
    for (size_t i = 0; i < n; i++) {
        double at = axis_place(y, ticks[i] * y->scale);
        mst_string_format(out,
                          "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/><text x=\"%.1f\" y=\"%.1f\" "
                          "text-anchor=\"end\">%s</text>\n",
                          x->from, at, x->to, x->from - TICK_GAP, at + 4,
                          axis_text(y, plot->y_unit, ticks[i], text));
    }
}

/* The left edge of the plot, so that the label of the axis and the longest text of its ticks fit. */
static double svg_left(const mst_plot *plot, const svg_axis *y)
{
    double ticks[TICKS_MAX];
    char text[MST_FIGURE_SIZE];
    size_t n = axis_ticks(y, ticks), longest = 0;
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(axis_text(y, plot->y_unit, ticks[i], text));
        longest = length > longest ? length : longest;
    }
    return fmax(LEFT, LABEL + DIGIT * (double)longest + TICK_GAP);
}

/* Label and unit: "memory, MB". */
static void svg_label(const char *label, const svg_axis *a, mst_string *out)
{
    mst_string_html(out, label);
    if (a->unit[0] != '\0')
        mst_string_format(out, "%s%s", label[0] != '\0' ? ", " : "", a->unit);
    mst_string_add(out, "</text>\n");
}

/* ---- curves ---- */

static bool svg_is_drawn(double x, double y)
{
    return isfinite(x) && isfinite(y) && fabs(x) < 1e100 && fabs(y) < 1e100;
}

typedef struct svg_range {
    double x_low, x_high, y_low, y_high;
} svg_range;

static svg_range svg_find_range(const mst_plot *plot)
{
    svg_range r = {INFINITY, -INFINITY, INFINITY, -INFINITY};
    for (size_t s = 0; s < plot->n_series; s++) {
        const mst_series *of = &plot->series[s];
        for (size_t i = 0; i < of->points.n; i++) {
            if (!svg_is_drawn(of->points.x[i], of->points.y[i]))
                continue;
            r.x_low = fmin(r.x_low, of->points.x[i]);
            r.x_high = fmax(r.x_high, of->points.x[i]);
            r.y_low = fmin(r.y_low, of->low != NULL ? of->low[i] : of->points.y[i]);
            r.y_high = fmax(r.y_high, of->low != NULL ? of->high[i] : of->points.y[i]);
        }
    }
    if (!(r.x_high >= r.x_low))
        return (svg_range){0, 1, 0, 1};
    r.x_low = plot->log_x ? r.x_low : fmin(0, r.x_low);
    if (plot->zero || (r.y_low > 0 && r.y_low < 0.25 * r.y_high))
        r.y_low = fmin(0, r.y_low);
    return r;
}

/* Lines to the values, broken at gaps; backwards: from the last to the first, as the lower side of a band. */
static void svg_path(const mst_series *s, const double *values, const svg_axis *x, const svg_axis *y,
                     bool backwards, bool down, mst_string *out)
{
    for (size_t k = 0; k < s->points.n; k++) {
        size_t i = backwards ? s->points.n - 1 - k : k;
        bool known = svg_is_drawn(s->points.x[i], values[i]);
        if (known)
            mst_string_format(out, "%s%.1f %.1f", down ? "L" : "M", axis_place(x, s->points.x[i]),
                              axis_place(y, values[i]));
        down = known || (down && backwards);
    }
}

static void svg_series(const mst_series *s, const svg_axis *x, const svg_axis *y, mst_string *out)
{
    size_t n = 0;
    for (size_t i = 0; i < s->points.n; i++)
        n += svg_is_drawn(s->points.x[i], s->points.y[i]);
    if (s->low != NULL) {
        mst_string_format(out, "<path class=\"band\" fill=\"var(--c%u)\" d=\"", s->colour);
        svg_path(s, s->high, x, y, false, false, out);
        svg_path(s, s->low, x, y, true, true, out);
        mst_string_add(out, "z\"/>\n");
    }
    mst_string_format(out, "<path class=\"line%s\" stroke=\"var(--c%u)\" d=\"", s->dashed ? " dash" : "",
                      s->colour);
    svg_path(s, s->points.y, x, y, false, false, out);
    mst_string_add(out, "\"/>\n");
    for (size_t i = 0; ((s->dots && n <= DOTS_MAX) || n == 1) && i < s->points.n; i++)
        if (svg_is_drawn(s->points.x[i], s->points.y[i]))
            mst_string_format(out, "<circle fill=\"var(--c%u)\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.8\"/>\n",
                              s->colour, axis_place(x, s->points.x[i]), axis_place(y, s->points.y[i]));
}

static void svg_marks(const mst_plot *plot, const svg_axis *x, const svg_axis *y, mst_string *out)
{
    double low = x->low * x->scale, high = x->high * x->scale; /* plots with marks have linear axes */
    for (size_t i = 0; i < plot->n_marks && i < MARKS_MAX; i++) {
        const mst_mark *m = &plot->marks[i];
        bool band = m->kind == MST_MARK_EVALUATION || m->kind == MST_MARK_CHECKPOINT;
        if (plot->n_lanes > 0 || !isfinite(m->from) || m->from > high || m->to < low)
            continue; /* marks of several runs cannot be distinguished here */
        double from = axis_place(x, m->from), to = axis_place(x, isfinite(m->to) ? m->to : high);
        mst_string_format(out,
                          "<rect fill=\"var(--m%d)\" opacity=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                          "height=\"%.1f\"><title>",
                          (int)m->kind, band ? ".25" : "1", from, y->to, fmax(1.5, to - from),
                          y->from - y->to);
        mst_string_html(out, m->text);
        mst_string_add(out, "</title></rect>\n");
    }
}

static void svg_legend(const mst_plot *plot, mst_string *out)
{
    for (size_t s = 0; s < plot->n_series; s++) {
        double y = HEIGHT + 4 + LEGEND * (double)s;
        mst_string_format(out,
                          "<path class=\"line%s\" stroke=\"var(--c%u)\" d=\"M%.1f %.1fh22\"/><text "
                          "x=\"%.1f\" y=\"%.1f\">",
                          plot->series[s].dashed ? " dash" : "", plot->series[s].colour, LEFT, y, LEFT + 28,
                          y + 4);
        mst_string_html(out, plot->series[s].label);
        mst_string_add(out, "</text>\n");
    }
}

void mst_plot_svg(const mst_plot *plot, mst_string *out)
{
    svg_range r = svg_find_range(plot);
    double height = HEIGHT + LEGEND * (double)plot->n_series + 8;
    svg_axis x = {.to = WIDTH - RIGHT}, y = {.from = HEIGHT - BOTTOM, .to = TOP};
    if (plot->log_x && r.x_low > 0)
        axis_init_log(&x, r.x_low, r.x_high);
    else
        axis_init(&x, plot->x_unit, r.x_low, r.x_high, 6, false);
    axis_init(&y, plot->y_unit, r.y_low, r.y_high, 5, true);
    x.from = svg_left(plot, &y);
    mst_string_format(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" role=\"img\"><style>%s</style>"
        "<rect class=\"paper\" width=\"%.0f\" height=\"%.0f\"/><text class=\"title\" x=\"%.0f\" y=\"22\">",
        WIDTH, height, style, WIDTH, height, LEFT);
    mst_string_html(out, plot->title);
    mst_string_add(out, "</text>\n");
    svg_ticks(plot, &x, &y, out);
    svg_marks(plot, &x, &y, out);
    mst_string_format(out, "<path class=\"axis\" d=\"M%.1f %.1fV%.1fH%.1f\"/>\n", x.from, y.to, y.from, x.to);
    for (size_t s = 0; s < plot->n_series; s++)
        svg_series(&plot->series[s], &x, &y, out);
    mst_string_format(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", (x.from + x.to) / 2,
                      y.from + 34);
    svg_label(plot->x_label, &x, out);
    mst_string_format(out, "<text transform=\"translate(11 %.1f) rotate(-90)\" text-anchor=\"middle\">",
                      (y.from + y.to) / 2);
    svg_label(plot->y_label, &y, out);
    svg_legend(plot, out);
    mst_string_add(out, "</svg>\n");
}
