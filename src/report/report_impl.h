/* Declarations shared by the report files. */
#ifndef MST_REPORT_REPORT_IMPL_H
#define MST_REPORT_REPORT_IMPL_H

#include "report/figures.h"
#include "report/history_read.h"
#include "report/plot.h"
#include "report/report.h"
#include "report/sheet.h"

/* The tables, in the order of Markdown, CSV and JSON. */
typedef enum mst_report_sheet {
    MST_SHEET_OVERVIEW,
    MST_SHEET_HISTORY,
    MST_SHEET_LOSSES,
    MST_SHEET_ACCURACY,
    MST_SHEET_CALIBRATION,
    MST_SHEET_VERDICT,
    MST_SHEET_ADVICE,
    MST_SHEET_EVIDENCE,
    MST_SHEET_COST,
    MST_SHEET_PHASES,
    MST_SHEET_WORKERS,
    MST_SHEET_HOSTS,
    MST_SHEET_TRAFFIC,
    MST_SHEET_PROCESSES,
    MST_SHEET_OPTIONS,
    MST_REPORT_SHEETS
} mst_report_sheet;

struct mst_report {
    mst_run_data *const *runs;
    size_t n;
    const json_t *defaults;
    char **labels; /* unique names of the runs */
    mst_run_figures *figures;
    mst_verdict *verdicts;
    mst_history *histories;
    char **commands; /* how to reproduce each run: a line for each segment of its history */
    mst_sheet sheets[MST_REPORT_SHEETS];
};

/* ---- tables (report_tables.c) ---- */

/* Makes the sheets of a report whose other fields are set. */
mst_status mst_report_make_sheets(mst_report *self);

/* The first cell of a row: "run" or "run · process", without the run if there is only one. */
void mst_sheet_name_row(const mst_report *self, mst_sheet *out, size_t run, const char *process);

/* ---- tables of evaluations (report_accuracy.c) ---- */

void mst_sheet_accuracy(const mst_report *self, mst_sheet *out);
/* Predicted and observed shares of positive rows by tenths of the set, of the last evaluation. */
void mst_sheet_calibration(const mst_report *self, mst_sheet *out);

/* ---- commands (report_command.c) ---- */

/* The command lines that repeat the training, one per segment of its history; "" if its options are not
 * recorded. The caller frees; NULL: no memory. defaults: of all options, or NULL. */
char *mst_report_command(const mst_run_data *run, const mst_history *history, const json_t *defaults);

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
