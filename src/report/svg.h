/* Plots as SVG, drawn by muster itself: curves over a common axis, a log axis, marks and bands, legends.
 *
 * Colours come from CSS classes (mst_svg_style), so that one drawing is right in light and dark and in print;
 * a drawing that stands alone carries the style with it. Labels are text of unknown origin and are escaped.
 */
#ifndef MST_REPORT_SVG_H
#define MST_REPORT_SVG_H

#include "base/figure.h"
#include "base/strings.h"
#include "report/figures.h"

#define MST_SVG_COLOURS 8 /* of the palette; series beyond are dashed */
#define MST_SVG_LANES   8 /* of marks above a plot; those of lanes beyond are not drawn */

typedef struct mst_series {
    const char *label;
    mst_points points;        /* x in ascending order */
    const double *low, *high; /* of each point: its spread, drawn as a bar; NULL: none */
    unsigned run;             /* class rN: what shows and hides it */
    unsigned colour;          /* class cN, N below MST_SVG_COLOURS */
    bool dashed, dots;        /* dots: each point is a measurement worth seeing */
} mst_series;

typedef enum mst_mark_kind {
    MST_MARK_EVALUATION, /* a band */
    MST_MARK_CHECKPOINT, /* a band */
    MST_MARK_JOIN,
    MST_MARK_DEATH, /* also: left */
    MST_MARKS
} mst_mark_kind;

typedef struct mst_mark {
    mst_mark_kind kind;
    double from, to; /* equal: a line */
    const char *text;
    unsigned run;
    unsigned lane, colour; /* where the plot has lanes: which it is in, and the colour of whose it is */
} mst_mark;

typedef struct mst_plot {
    const char *title, *x_label, *y_label;
    mst_figure_unit x_unit, y_unit;
    bool log_y, zero; /* zero: a linear axis starts at 0 */
    bool log_x;
    bool zero_x; /* a linear x axis starts at 0 */
    const mst_series *series;
    size_t n_series;
    const mst_mark *marks;
    size_t n_marks;
    size_t n_lanes; /* marks are in this many strips above the curves; 0: across the plot, behind them */
    bool alone;     /* a file of its own: with style, title and legend */
} mst_plot;

/* Whether there is anything to draw: a point, for a log axis one above 0. */
bool mst_plot_has_points(const mst_plot *plot);
void mst_plot_draw(const mst_plot *plot, const char *classes, mst_string *out);

/* A horizontal bar divided by shares of one, in the colours parts[i] (classes pN; NULL: in order); titles are
 * shown when pointed at. */
void mst_bar_draw(const double *shares, const char *const *titles, const unsigned *parts, size_t n,
                  mst_string *out);

/* The CSS variables of colours, light and dark, and the classes of drawings. */
extern const char mst_svg_style[];

/* Ticks of a linear axis over [low, high], at most n + 1 of them; returns the distance. */
double mst_nice_step(double low, double high, int n);

#endif
