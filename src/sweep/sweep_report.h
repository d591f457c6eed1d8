/* The report of a sweep: figures of every run, their mean and spread over repeats, tables, plots, and the
 * best configuration, as HTML, Markdown, CSV and JSON.
 *
 * Reads run directories only; runs that are not done are listed with their state. One thread. */
#ifndef MST_SWEEP_SWEEP_REPORT_H
#define MST_SWEEP_SWEEP_REPORT_H

#include "base/strings.h"
#include "sweep/sweep.h"

typedef struct mst_sweep_report mst_sweep_report;

/* Reads the runs that are done. The sweep must outlive the report, unchanged. *out is the caller's to
 * destroy; set only on MST_OK. */
mst_status mst_sweep_report_new(const mst_sweep *sweep, mst_sweep_report **out);
void mst_sweep_report_destroy(mst_sweep_report *self); /* NULL-safe */

mst_status mst_sweep_report_html(const mst_sweep_report *self, mst_string *out);
mst_status mst_sweep_report_markdown(const mst_sweep_report *self, mst_string *out);
/* A line for each run, and one for each configuration with mean, standard deviation, least and greatest. */
mst_status mst_sweep_report_runs_csv(const mst_sweep_report *self, mst_string *out);
mst_status mst_sweep_report_csv(const mst_sweep_report *self, mst_string *out);
/* Adds ",NAME" for each column of the latter beside configuration and the axes. */
void mst_sweep_report_columns(mst_string *out);
/* New reference; NULL with MST_ENOMEM recorded. */
json_t *mst_sweep_report_json(const mst_sweep_report *self);

/* Sentences: the best configurations, each with its command; "" if no run is done. */
void mst_sweep_report_best(const mst_sweep_report *self, mst_string *out);

/* SWEEP/report.html, report.md, runs.csv, report.csv; each appears whole. */
mst_status mst_sweep_report_write(const mst_sweep_report *self);

#endif
