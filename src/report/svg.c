/* Plots (svg.h).
 *
 * Design: a drawing is 480 units wide, so that on a phone it stands at about its own size and a desktop page
 * shows two side by side. Curves of many points are reduced to the least and greatest of each half unit, so
 * that peaks stay; where every half unit has several, to a band between those and a line of means, which a
 * noisy curve of hours would else be a block of. Coordinates have one decimal.
 *
 * Invariants
 * 1. Every number written is finite and within the drawing.
 * 2. No text from outside is written but through mst_string_html. */
#include "report/svg.h"
#include "base/figure.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define WIDTH     480.0
#define HEIGHT    270.0
#define LEFT      64.0 /* at least */
#define LABEL     19.0 /* of it the y axis's label takes, */
#define DIGIT     8.6  /* a digit of its ticks at the size of a phone (html_parts.c), */
#define TICK_GAP  6.0  /* and the space behind those */
#define RIGHT     12.0
#define TOP       12.0
#define BOTTOM    42.0
#define TITLE     26.0 /* more at the top of a drawing that stands alone */
#define LEGEND    18.0 /* a line of its legend */
#define LANE      6.0  /* a strip of marks above the curves, and the gap below it */
#define LANES_GAP 6.0  /* between them and the curves: half the height of a tick's text */
#define DOTS_MAX  60
#define TICKS_MAX 64
#define MARKS_MAX 400
#define NARROW    4    /* greatest over least of a log axis that has no decade to speak of */
#define DENSE     2000 /* points of a curve that is a band */
#define COLUMN    1.5  /* of a band, its width */
#define COLUMNS   300

const char mst_svg_style[] =
    ":root,svg.alone{--bg:#fff;--fg:#1b1f24;--dim:#5b6570;--grid:#e3e7eb;--axis:#8a949e;"
    "--c0:#0072b2;--c1:#d55e00;--c2:#00875f;--c3:#b5478c;--c4:#b07d00;--c5:#3a9bdc;--c6:#6a4fbf;--c7:#4d4d4d;"
    "--c9:#7b3f00;--eval:#e69f00;--save:#56b4e9;--join:#009e73;--death:#c2003a;--band:.28}"
    "@media "
    "(prefers-color-scheme:dark){:root,svg.alone{--bg:#14171b;--fg:#e6e9ec;--dim:#9aa5b1;--grid:#2a3038;"
    "--axis:#6b7683;--c0:#56b4e9;--c1:#ff8c42;--c2:#2ecf9c;--c3:#e58ac3;--c4:#f0c446;--c5:#9ad1ff;--c6:#"
    "b3a1ff;"
    "--c7:#c8cdd2;--c9:#c9a27e;--eval:#e69f00;--save:#56b4e9;--join:#2ecf9c;--death:#ff5c7c;--band:.45}}"
    "@media print{:root{--bg:#fff;--fg:#000;--dim:#444;--grid:#ddd;--axis:#777;--c0:#0072b2;--c1:#d55e00;"
    "--c2:#00875f;--c3:#b5478c;--c4:#b07d00;--c5:#3a9bdc;--c6:#6a4fbf;--c7:#4d4d4d;--c9:#7b3f00;"
    "--join:#009e73;--death:#c2003a;--band:.28}}"
    "svg text{font:12px system-ui,-apple-system,'Segoe UI',Roboto,sans-serif;fill:var(--dim)}"
    "svg .title{font-size:14px;font-weight:600;fill:var(--fg)}"
    "svg .grid{stroke:var(--grid);stroke-width:1}svg .axis{stroke:var(--axis);stroke-width:1}"
    "svg .line{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}"
    "svg .dash{stroke-dasharray:5 4}"
    "svg .c0{stroke:var(--c0);fill:var(--c0)}svg .c1{stroke:var(--c1);fill:var(--c1)}"
    "svg .c2{stroke:var(--c2);fill:var(--c2)}svg .c3{stroke:var(--c3);fill:var(--c3)}"
    "svg .c4{stroke:var(--c4);fill:var(--c4)}svg .c5{stroke:var(--c5);fill:var(--c5)}"
    "svg .c6{stroke:var(--c6);fill:var(--c6)}svg .c7{stroke:var(--c7);fill:var(--c7)}"
    "svg .line{fill:none}svg .dot{stroke:var(--bg);stroke-width:.8}"
    "svg .span{stroke:none;opacity:.22}"
    "svg .m0{fill:var(--eval);opacity:var(--band)}svg .m1{fill:var(--save);opacity:var(--band)}"
    "svg .lane{opacity:1;stroke-dasharray:none}"
    "svg .m2{stroke:var(--join);stroke-width:1.4;stroke-dasharray:2 2}"
    "svg .m3{stroke:var(--death);stroke-width:1.6}"
    "svg .p0{fill:var(--c0)}svg .p1{fill:var(--c1)}svg .p2{fill:var(--c2)}svg .p3{fill:var(--c3)}"
    "svg .p4{fill:var(--c4)}svg .p5{fill:var(--c5)}svg .p6{fill:var(--c6)}svg .p7{fill:var(--c7)}"
    "svg .p8{fill:var(--death)}svg .p9{fill:var(--c9)}svg .p10{fill:var(--axis)}svg .p11{fill:var(--grid)}"
    "svg .paper{fill:var(--bg)}";

/* ---- axes ---- */

double mst_nice_step(double low, double high, int n)
{
    double rough = (high - low) / n;
    if (!(rough > 0) || !isfinite(rough))
        return 1;
    double power = pow(10, floor(log10(rough))), f = rough / power;
    return power * (f <= 1.0000001 ? 1 : f <= 2.0000001 ? 2 : f <= 2.5000001 ? 2.5 : f <= 5.0000001 ? 5 : 10);
}

typedef struct axis {
    double low, high; /* in shown units: values / scale */
    double scale;
    double step; /* between ticks of a linear axis; 0: to be chosen */
    bool log;
    const char *suffix; /* of the unit, for the label */
    double from, to;    /* where low and high are drawn */
} axis;

static double place(const axis *a, double value)
{
    double v = value / a->scale, low = a->low, high = a->high;
    if (a->log) {
        v = log10(fmax(v, 1e-300));
        low = log10(low);
        high = log10(high);
    }
    double share = (v - low) / (high - low);
    return a->from + fmin(1, fmax(0, share)) * (a->to - a->from);
}

static void choose_scale(axis *a, mst_figure_unit unit, double greatest)
{
    static const char *const bytes[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    static const char *const rates[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"};
    a->scale = 1;
    a->suffix = "";
    if (unit == MST_FIGURE_SECONDS) {
        a->scale = greatest >= 3 * 3600 ? 3600 : greatest >= 300 ? 60 : 1;
        a->suffix = greatest >= 3 * 3600 ? "h" : greatest >= 300 ? "min" : "s";
    } else if (unit == MST_FIGURE_BYTES || unit == MST_FIGURE_RATE) {
        int k = 0;
        for (; k < 5 && greatest / a->scale >= 1000; k++)
            a->scale *= 1000;
        a->suffix = unit == MST_FIGURE_BYTES ? bytes[k] : rates[k];
    } else if (unit == MST_FIGURE_SHARE) {
        a->scale = 0.01;
        a->suffix = "%";
    }
}

/* Widens the range to whole ticks. */
static void round_range(axis *a, int n)
{
    if (a->log && a->high > a->low && a->high < NARROW * a->low) { /* ticks as on a linear axis */
        a->step = mst_nice_step(a->low, a->high, n);
        a->low = fmax(floor(a->low / a->step + 1e-9) * a->step, a->step);
        a->high = ceil(a->high / a->step - 1e-9) * a->step;
        return;
    }
    if (a->log) {
        a->low = pow(10, floor(log10(a->low) * 3 + 1e-9) / 3);
        a->high = pow(10, ceil(log10(a->high) * 3 - 1e-9) / 3);
        if (a->high / a->low < 1.5) {
            a->low /= 1.5;
            a->high *= 1.5;
        }
        return;
    }
    if (!(a->high > a->low)) { /* one value: half way up */
        double value = a->high;
        a->low = value < 0 ? 2 * value : 0;
        a->high = value < 0 ? 0 : value > 0 ? 2 * value : 1;
    }
    double step = mst_nice_step(a->low, a->high, n);
    a->step = step;
    a->low = floor(a->low / step + 1e-9) * step;
    a->high = ceil(a->high / step - 1e-9) * step;
}

typedef struct range {
    double x_low, x_high, y_low, y_high;
    bool any;
} range;

static bool drawn(const mst_plot *plot, double x, double y)
{
    return isfinite(x) && isfinite(y) && fabs(x) < 1e100 && fabs(y) < 1e100 && (!plot->log_y || y > 1e-100) &&
           (!plot->log_x || x > 1e-100);
}

/* Whether point i has a spread, and its ends. */
static bool spread(const mst_plot *plot, const mst_series *s, size_t i, double *low, double *high)
{
    double x = s->points.x[i];
    if (s->low == NULL || s->high == NULL || !(s->high[i] > s->low[i]))
        return false;
    *low = s->low[i];
    *high = s->high[i];
    return drawn(plot, x, *low) && drawn(plot, x, *high);
}

static range find_range(const mst_plot *plot)
{
    range r = {.x_low = INFINITY, .x_high = -INFINITY, .y_low = INFINITY, .y_high = -INFINITY};
    for (size_t s = 0; s < plot->n_series; s++) {
        const mst_points *p = &plot->series[s].points;
        for (size_t i = 0; i < p->n; i++) {
            if (!drawn(plot, p->x[i], p->y[i]))
                continue;
            r.any = true;
            r.x_low = fmin(r.x_low, p->x[i]);
            r.x_high = fmax(r.x_high, p->x[i]);
            r.y_low = fmin(r.y_low, p->y[i]);
            r.y_high = fmax(r.y_high, p->y[i]);
            double low, high;
            if (spread(plot, &plot->series[s], i, &low, &high)) {
                r.y_low = fmin(r.y_low, low);
                r.y_high = fmax(r.y_high, high);
            }
        }
    }
    return r;
}

/* Whether points have bars, for which there has to be room beside the y axis. */
static bool is_spread(const mst_plot *plot)
{
    return plot->n_series > 0 && plot->series[0].low != NULL;
}

bool mst_plot_has_points(const mst_plot *plot)
{
    return find_range(plot).any;
}

static const char *tick_text(const axis *a, mst_figure_unit unit, double v, double step, char *out)
{
    if (unit == MST_FIGURE_COUNT || fabs(v) >= 1e5 || (v != 0 && fabs(v) < 1e-3))
        return mst_figure_short(v, out);
    bool decades = a->log && step == 0;
    int digits = decades && v < 1 ? (int)ceil(-log10(v) - 1e-9) : 0;
    for (double s = step; !decades && digits < 6 && fabs(s - round(s)) > 1e-6 * fabs(s); s *= 10)
        digits++;
    if (decades && fabs(v * pow(10, digits) - round(v * pow(10, digits))) > 1e-6)
        digits++;
    snprintf(out, 40, "%.*f", digits, fabs(v) < 1e-12 ? 0.0 : v);
    return out;
}

static void draw_tick(const axis *a, bool horizontal, mst_figure_unit unit, double v, double step,
                      const axis *other, mst_string *out)
{
    char text[40];
    double at = place(a, v * a->scale);
    tick_text(a, unit, v, step, text);
    if (horizontal)
        mst_string_format(out,
                          "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                          "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>",
                          at, at, other->to, other->from, at, other->from + 16, text);
    else
        mst_string_format(out,
                          "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
                          "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">%s</text>",
                          other->from, other->to, at, at, other->from - TICK_GAP, at + 4, text);
}

typedef struct tick {
    double value, step; /* step: to the next; 0: of a log axis */
} tick;

/* The ticks of an axis, about n of them. */
static size_t find_ticks(const axis *a, int n, tick out[TICKS_MAX])
{
    size_t found = 0;
    if (!a->log || a->step > 0) {
        double step = a->step > 0 ? a->step : mst_nice_step(a->low, a->high, n);
        for (int i = 0; i <= 2 * n + 2 && found < TICKS_MAX && a->low + i * step <= a->high + step * 1e-6;
             i++)
            out[found++] = (tick){a->low + i * step, step};
        return found;
    }
    double decades = log10(a->high / a->low);
    int first = (int)floor(log10(a->low) + 1e-9), last = (int)ceil(log10(a->high) - 1e-9);
    int every = (int)fmax(1, ceil(decades / 8));
    static const double parts[] = {1, 2, 3, 5, 7};
    for (int e = first; e <= last; e += every)
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            double v = parts[k] * pow(10, e);
            bool wanted = k == 0 || (k == 1 && decades < 4) || (k == 3 && decades < 4) || decades < 1.1;
            if (wanted && found < TICKS_MAX && v >= a->low * 0.9999 && v <= a->high * 1.0001)
                out[found++] = (tick){v, 0};
        }
    return found;
}

static void draw_ticks(const axis *a, bool horizontal, mst_figure_unit unit, int n, const axis *other,
                       mst_string *out)
{
    tick ticks[TICKS_MAX];
    size_t found = find_ticks(a, n, ticks);
    for (size_t i = 0; i < found; i++)
        draw_tick(a, horizontal, unit, ticks[i].value, ticks[i].step, other, out);
}

/* Where the plot begins, so that the axis's label and the longest text of its ticks stand side by side. */
static double left_of(const axis *y, mst_figure_unit unit, int n)
{
    tick ticks[TICKS_MAX];
    char text[40];
    size_t found = find_ticks(y, n, ticks), longest = 0;
    for (size_t i = 0; i < found; i++) {
        size_t length = strlen(tick_text(y, unit, ticks[i].value, ticks[i].step, text));
        longest = length > longest ? length : longest;
    }
    return fmax(LEFT, LABEL + DIGIT * (double)longest + TICK_GAP);
}

/* ---- curves ---- */

typedef struct pen {
    const mst_plot *plot;
    const axis *x, *y;
    mst_string *out;
    bool down;
    double aside; /* series with spreads stand a little beside each other */
} pen;

static void draw_to(pen *p, double x, double y)
{
    mst_string_format(p->out, "%s%.1f %.1f", p->down ? "L" : "M", place(p->x, x) + p->aside, place(p->y, y));
    p->down = true;
}

/* Points of each half unit of width as their least and greatest, in order. */
static void draw_reduced(pen *p, const mst_points *points)
{
    for (size_t i = 0; i < points->n;) {
        if (!drawn(p->plot, points->x[i], points->y[i])) {
            p->down = false;
            i++;
            continue;
        }
        double column = floor(place(p->x, points->x[i]) * 2);
        size_t least = i, greatest = i, end = i;
        for (; end < points->n && drawn(p->plot, points->x[end], points->y[end]) &&
               floor(place(p->x, points->x[end]) * 2) == column;
             end++) {
            least = points->y[end] < points->y[least] ? end : least;
            greatest = points->y[end] > points->y[greatest] ? end : greatest;
        }
        size_t first = least < greatest ? least : greatest, second = least < greatest ? greatest : least;
        draw_to(p, points->x[first], points->y[first]);
        if (second != first)
            draw_to(p, points->x[second], points->y[second]);
        i = end;
    }
}

/* alone: the one point of its curve. */
static void draw_dots(const pen *p, const mst_series *s, bool alone)
{
    for (size_t i = 0; i < s->points.n; i++) {
        char x[40], y[40];
        double px = s->points.x[i], py = s->points.y[i];
        if (!drawn(p->plot, px, py))
            continue;
        mst_string_format(p->out, "<circle class=\"dot c%u\" cx=\"%.1f\" cy=\"%.1f\" r=\"%s\"><title>",
                          s->colour, place(p->x, px) + p->aside, place(p->y, py), alone ? "3.6" : "2.8");
        mst_string_html(p->out, s->label);
        mst_string_format(p->out, ": %s %s, %s</title></circle>", mst_figure_short(px / p->x->scale, x),
                          p->x->suffix[0] != '\0' ? p->x->suffix : p->plot->x_label,
                          mst_figure_real(py / p->y->scale, y));
    }
}

typedef struct column {
    double x, low, high, mean; /* drawn */
} column;

static void draw_band_part(const pen *p, const mst_series *s, const column *columns, size_t n)
{
    mst_string_format(p->out, "<path class=\"c%u span\" d=\"", s->colour);
    for (size_t i = 0; i < n; i++)
        mst_string_format(p->out, "%s%.1f %.1f", i == 0 ? "M" : "L", columns[i].x, columns[i].high);
    for (size_t i = n; i > 0; i--)
        mst_string_format(p->out, "L%.1f %.1f", columns[i - 1].x, columns[i - 1].low);
    mst_string_format(p->out, "z\"/><path class=\"c%u line%s\" d=\"", s->colour, s->dashed ? " dash" : "");
    for (size_t i = 0; i < n; i++)
        mst_string_format(p->out, "%s%.1f %.1f", i == 0 ? "M" : "L", columns[i].x, columns[i].mean);
    mst_string_add(p->out, "\"/>");
}

/* A line of means in a band from the least to the greatest, broken where points are missing. */
static void draw_band(const pen *p, const mst_series *s)
{
    const mst_points *points = &s->points;
    column columns[COLUMNS];
    size_t n = 0;
    for (size_t i = 0; i < points->n;) {
        if (!drawn(p->plot, points->x[i], points->y[i])) {
            if (n > 0)
                draw_band_part(p, s, columns, n);
            n = 0;
            i++;
            continue;
        }
        double at = floor(place(p->x, points->x[i]) / COLUMN), sum = 0;
        double low = INFINITY, high = -INFINITY;
        size_t first = i;
        for (; i < points->n && drawn(p->plot, points->x[i], points->y[i]) &&
               floor(place(p->x, points->x[i]) / COLUMN) == at;
             i++) {
            low = fmin(low, points->y[i]);
            high = fmax(high, points->y[i]);
            sum += points->y[i];
        }
        columns[n++] = (column){place(p->x, points->x[first]), place(p->y, low), place(p->y, high),
                                place(p->y, sum / (double)(i - first))};
        if (n == COLUMNS) {
            draw_band_part(p, s, columns, n);
            columns[0] = columns[n - 1];
            n = 1;
        }
    }
    if (n > 0)
        draw_band_part(p, s, columns, n);
}

static void draw_spreads(const pen *p, const mst_series *s)
{
    double low, high;
    mst_string_format(p->out, "<path class=\"c%u line\" d=\"", s->colour);
    for (size_t i = 0; i < s->points.n; i++)
        if (drawn(p->plot, s->points.x[i], s->points.y[i]) && spread(p->plot, s, i, &low, &high)) {
            double x = place(p->x, s->points.x[i]) + p->aside, from = place(p->y, low),
                   to = place(p->y, high);
            mst_string_format(p->out, "M%.1f %.1fh6m-3 0V%.1fm-3 0h6", x - 3, from, to);
        }
    mst_string_add(p->out, "\"/>");
}

static void draw_series(const mst_plot *plot, const mst_series *s, const axis *x, const axis *y,
                        mst_string *out)
{
    pen p = {.plot = plot, .x = x, .y = y, .out = out};
    size_t n = 0;
    if (s->low != NULL)
        p.aside = ((double)(s - plot->series) - ((double)plot->n_series - 1) / 2) *
                  fmin(3, 12 / (double)plot->n_series);
    for (size_t i = 0; i < s->points.n; i++)
        n += drawn(plot, s->points.x[i], s->points.y[i]);
    if (n == 0)
        return;
    mst_string_format(out, "<g class=\"r%u\">", s->run);
    if (n > DENSE) {
        draw_band(&p, s);
    } else {
        mst_string_format(out, "<path class=\"c%u line%s\" d=\"", s->colour, s->dashed ? " dash" : "");
        draw_reduced(&p, &s->points);
        mst_string_add(out, "\"/>");
    }
    if (s->low != NULL)
        draw_spreads(&p, s);
    if ((s->dots && n <= DOTS_MAX) || n == 1)
        draw_dots(&p, s, n == 1);
    mst_string_add(out, "</g>\n");
}

static void draw_mark(const mst_plot *plot, const mst_mark *m, const axis *x, double top, double bottom,
                      mst_string *out)
{
    bool band = m->kind == MST_MARK_EVALUATION || m->kind == MST_MARK_CHECKPOINT;
    const char *lane = plot->n_lanes > 0 ? " lane" : "";
    double from = place(x, m->from), to = place(x, isfinite(m->to) ? m->to : x->high * x->scale);
    mst_string_format(out, "<g class=\"r%u\">", m->run);
    if (band)
        mst_string_format(
            out, "<rect class=\"m%d%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>",
            (int)m->kind, lane, from, top, fmax(1.5, to - from), bottom - top);
    else
        mst_string_format(out,
                          "<line class=\"m%d%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"><title>",
                          (int)m->kind, lane, from, from, top, bottom);
    mst_string_html(out, m->text);
    mst_string_add(out, band ? "</title></rect></g>\n" : "</title></line></g>\n");
}

/* Across the plot, or in lanes above it that begin with the colour of whose they are. */
static void draw_marks(const mst_plot *plot, const axis *x, const axis *y, mst_string *out)
{
    double low = x->low * x->scale, high = x->high * x->scale;
    bool begun[MST_SVG_LANES] = {false};
    size_t drawn_marks = 0, n_lanes = plot->n_lanes < MST_SVG_LANES ? plot->n_lanes : MST_SVG_LANES;
    for (size_t i = 0; i < plot->n_marks && drawn_marks < MARKS_MAX; i++) {
        const mst_mark *m = &plot->marks[i];
        double top = y->to, bottom = y->from;
        if (!isfinite(m->from) || m->from > high || m->to < low)
            continue;
        if (n_lanes > 0) {
            if (m->lane >= n_lanes)
                continue;
            top -= LANE * (double)(n_lanes - m->lane) + LANES_GAP;
            bottom = top + LANE - 1;
            if (!begun[m->lane])
                mst_string_format(out,
                                  "<g class=\"r%u\"><rect class=\"p%u\" x=\"%.1f\" y=\"%.1f\" width=\"7\" "
                                  "height=\"%.1f\"/></g>\n",
                                  m->run, m->colour, x->from - 10, top, LANE - 1);
            begun[m->lane] = true;
        }
        draw_mark(plot, m, x, top, bottom, out);
        drawn_marks++;
    }
}

/* Label and unit: "memory, MB". */
static void add_label(const char *label, const axis *a, mst_string *out)
{
    mst_string_html(out, label);
    if (a->suffix[0] != '\0')
        mst_string_format(out, "%s%s", label[0] != '\0' ? ", " : "", a->suffix);
}

static void draw_legend(const mst_plot *plot, double top, mst_string *out)
{
    for (size_t s = 0; s < plot->n_series; s++) {
        double y = top + LEGEND * (double)s;
        mst_string_format(out, "<path class=\"c%u line%s\" d=\"M%.1f %.1fh22\"/><text x=\"%.1f\" y=\"%.1f\">",
                          plot->series[s].colour, plot->series[s].dashed ? " dash" : "", LEFT, y, LEFT + 28,
                          y + 4);
        mst_string_html(out, plot->series[s].label);
        mst_string_add(out, "</text>\n");
    }
}

void mst_plot_draw(const mst_plot *plot, const char *classes, mst_string *out)
{
    range r = find_range(plot);
    double more = plot->alone ? TITLE : 0;
    double legend = plot->alone ? LEGEND * (double)plot->n_series + 8 : 0;
    double lanes = LANE * (double)(plot->n_lanes < MST_SVG_LANES ? plot->n_lanes : MST_SVG_LANES);
    lanes += lanes > 0 ? LANES_GAP : 0;
    axis x = {.from = LEFT, .to = WIDTH - RIGHT};
    axis y = {.from = HEIGHT - BOTTOM + more, .to = TOP + more + lanes};
    if (!r.any)
        r = (range){.x_low = plot->log_x ? 0.1 : 0, .x_high = 1, .y_low = plot->log_y ? 0.1 : 0, .y_high = 1};
    y.log = plot->log_y;
    x.log = plot->log_x;
    if (!plot->log_y && (plot->zero || (r.y_low > 0 && r.y_low < 0.25 * r.y_high)))
        r.y_low = fmin(0, r.y_low);
    if (!plot->log_x && r.x_low > 0 && (plot->zero_x || r.x_low < 0.3 * r.x_high) && !is_spread(plot))
        r.x_low = 0;
    if (plot->log_x) { /* so that no point lies on the y axis */
        r.x_low /= 1.1;
        r.x_high *= 1.1;
    } else if (is_spread(plot)) {
        double room = 0.04 * (r.x_high - r.x_low);
        r.x_low -= room;
        r.x_high += room;
    }
    choose_scale(&x, plot->x_unit, fmax(fabs(r.x_high), fabs(r.x_low)));
    choose_scale(&y, plot->y_unit, fmax(fabs(r.y_high), fabs(r.y_low)));
    x.low = r.x_low / x.scale;
    x.high = r.x_high / x.scale;
    y.low = r.y_low / y.scale;
    y.high = r.y_high / y.scale;
    if (!(x.high > x.low))
        round_range(&x, 6);
    round_range(&y, 5);
    x.from = left_of(&y, plot->y_unit, 5);
    mst_string_format(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" class=\"%s%s\" role=\"img\" "
        "aria-label=\"",
        WIDTH, HEIGHT + more + legend, classes, plot->alone ? " alone" : "");
    mst_string_html(out, plot->title);
    mst_string_add(out, "\">");
    if (plot->alone)
        mst_string_format(out,
                          "<style>%s</style><rect class=\"paper\" width=\"%.0f\" height=\"%.0f\"/>"
                          "<text class=\"title\" x=\"%.0f\" y=\"22\">",
                          mst_svg_style, WIDTH, HEIGHT + more + legend, LEFT);
    if (plot->alone)
        mst_string_html(out, plot->title);
    mst_string_add(out, plot->alone ? "</text>\n" : "\n");
    /* a linear x axis is not widened: ticks within what was measured */
    axis ticks = x;
    double step = mst_nice_step(x.low, x.high, 6);
    step = plot->x_unit == MST_FIGURE_COUNT ? fmax(1, step) : step;
    double first = ceil(x.low / step - 1e-9) * step;
    if (x.log)
        draw_ticks(&x, true, plot->x_unit, 6, &y, out);
    for (int i = 0; !x.log && i < 16 && first + i * step <= x.high + step * 1e-6; i++)
        draw_tick(&ticks, true, plot->x_unit, first + i * step, step, &y, out);
    draw_ticks(&y, false, plot->y_unit, 5, &x, out);
    draw_marks(plot, &x, &y, out);
    mst_string_format(out, "<path class=\"axis line\" d=\"M%.1f %.1fV%.1fH%.1f\"/>\n", x.from, y.to, y.from,
                      x.to);
    for (size_t s = 0; s < plot->n_series; s++)
        draw_series(plot, &plot->series[s], &x, &y, out);
    mst_string_format(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">", (x.from + x.to) / 2,
                      y.from + 34);
    add_label(plot->x_label, &x, out);
    mst_string_format(out,
                      "</text><text transform=\"translate(11 %.1f) rotate(-90)\" text-anchor=\"middle\">",
                      (y.from + y.to) / 2);
    add_label(plot->y_label, &y, out);
    mst_string_add(out, "</text>");
    if (plot->alone)
        draw_legend(plot, HEIGHT + more + 4, out);
    mst_string_add(out, "</svg>\n");
}

void mst_bar_draw(const double *shares, const char *const *titles, const unsigned *parts, size_t n,
                  mst_string *out)
{
    double at = 0;
    mst_string_add(
        out, "<svg class=\"bar\" viewBox=\"0 0 1000 24\" preserveAspectRatio=\"none\" aria-hidden=\"true\">"
             "<rect class=\"p11\" width=\"1000\" height=\"24\"/>");
    for (size_t i = 0; i < n; i++) {
        double width = shares[i] > 0 ? fmin(shares[i], 1 - at) * 1000 : 0;
        char share[40];
        if (width < 0.5)
            continue;
        mst_string_format(out, "<rect class=\"p%u\" x=\"%.1f\" width=\"%.1f\" height=\"24\"><title>",
                          (parts != NULL ? parts[i] : (unsigned)i) % 11, at * 1000, width);
        mst_string_html(out, titles[i]);
        mst_string_format(out, ": %s</title></rect>", mst_figure_percent(shares[i], share));
        at += width / 1000;
    }
    mst_string_add(out, "</svg>");
}
