/* What the parts of a report share. */
#ifndef MST_REPORT_REPORT_IMPL_H
#define MST_REPORT_REPORT_IMPL_H

#include "report/figures.h"
#include "report/history_read.h"
#include "report/plot.h"
#include "report/report.h"
#include "report/sheet.h"

struct mst_report {
    mst_run_data *const *runs;
    size_t n;
    const json_t *defaults;
    char **labels; /* unique names of the runs */
    mst_run_figures *figures;
    mst_verdict *verdicts;
    mst_history *histories;
    char **commands; /* how to reproduce each run: a line for each segment of its history */
};

/* ---- tables (report_tables.c); the caller ends with mst_sheet_fini ---- */

/* X(name): in the order of Markdown, CSV and JSON. */
#define MST_REPORT_SHEETS(X)                                                                                 \
    X(overview)                                                                                              \
    X(history)                                                                                               \
    X(accuracy)                                                                                              \
    X(verdict)                                                                                               \
    X(advice)                                                                                                \
    X(evidence)                                                                                              \
    X(cost)                                                                                                  \
    X(phases)                                                                                                \
    X(workers)                                                                                               \
    X(hosts)                                                                                                 \
    X(processes)                                                                                             \
    X(options)
#define X(name) mst_status mst_report_sheet_##name(const mst_report *self, mst_sheet *out);
MST_REPORT_SHEETS(X)
#undef X

/* ---- plots (report_plots.c) ---- */

/* Called for each plot of the report in turn; the plot and its data live as long as the call. group:
 * "curves", "hosts", "processes"; of: the host or process, or ""; axis: of curves, else -1. */
typedef mst_status mst_plot_fn(void *arg, const char *group, const char *of, int axis, const mst_plot *plot);
mst_status mst_report_plots(const mst_report *self, const char *group, mst_plot_fn *fn, void *arg);

/* ---- texts (report.c) ---- */

/* The training and how it ended, in sentences; the summary adds the verdict's. */
void mst_report_course(const mst_report *self, size_t run, mst_string *out);
/* One paragraph: the training, how it ended, the best figures, the bottleneck. */
void mst_report_summary(const mst_report *self, size_t run, mst_string *out);
/* Of several runs: the fastest, the most accurate, the bottlenecks; nothing of one run (comparison.c). */
void mst_report_comparison(const mst_report *self, mst_string *out);
void mst_report_title(const mst_report *self, mst_string *out);

#endif
