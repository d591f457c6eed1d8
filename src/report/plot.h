/* Plots: curves over a common axis, with marks. The page draws them from JSON; muster report --svg writes
 * files.
 *
 * Labels are text of unknown origin; both forms escape them. */
#ifndef MST_REPORT_PLOT_H
#define MST_REPORT_PLOT_H

#include <jansson.h>

#include "base/figure.h"
#include "base/strings.h"
#include "report/figures.h"

#define MST_PLOT_COLOURS 8 /* of the palette; curves beyond are dashed */
#define MST_PLOT_LANES   8 /* of marks above a plot; those of lanes beyond are not drawn */
#define MST_PLOT_DENSE   2000
#define MST_PLOT_BUCKETS 600

typedef struct mst_series {
    const char *label;
    mst_points points;  /* x in ascending order */
    double *low, *high; /* bounds of the band around a dense curve, one for each point; NULL: no band */
    unsigned run, colour;
    bool dashed, dots; /* dots: each point is a measurement of its own */
} mst_series;

typedef enum mst_mark_kind {
    MST_MARK_EVALUATION, /* a band */
    MST_MARK_CHECKPOINT, /* a band */
    MST_MARK_JOIN,       /* also: resumed */
    MST_MARK_DEATH,      /* also: left */
    MST_MARKS
} mst_mark_kind;

typedef struct mst_mark {
    mst_mark_kind kind;
    double from, to; /* equal: a line */
    const char *text;
    unsigned lane, colour; /* if the plot has lanes: the mark's, and the colour of its run */
} mst_mark;

typedef struct mst_plot {
    const char *title, *x_label, *y_label;
    mst_figure_unit x_unit, y_unit;
    bool zero;  /* the y axis starts at 0; so does the x axis, unless it is logarithmic */
    bool log_x; /* all x are positive */
    const mst_series *series;
    size_t n_series;
    const mst_mark *marks;
    size_t n_marks;
    size_t n_lanes; /* marks are in this many lanes above the curves; 0: across the plot, behind them */
} mst_plot;

void mst_series_fini(mst_series *self);
/* Replaces more than MST_PLOT_DENSE points by the means of MST_PLOT_BUCKETS buckets and sets low and high to
 * their bounds; a bucket with a gap is a gap. A shorter curve stays as it is. */
mst_status mst_series_reduce(mst_series *self);

bool mst_plot_has_points(const mst_plot *plot);
/* A block of the page; axis: the x axis it belongs to ("time", "steps", "rows"), or NULL. New reference; NULL
 * when memory is short. */
json_t *mst_plot_json(const mst_plot *plot, const char *axis);
/* A file of its own with style, title and legend. */
void mst_plot_svg(const mst_plot *plot, mst_string *out);

/* The distance between ticks of an axis over [low, high] that has at most n + 1 of them. */
double mst_nice_step(double low, double high, int n);

#endif
