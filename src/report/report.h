/* The report about one run or several: HTML, Markdown, CSV, JSON, and its plots as SVG files.
 *
 * Output is text in memory, or files that appear whole. Runs are only read. */
#ifndef MST_REPORT_REPORT_H
#define MST_REPORT_REPORT_H

#include "base/strings.h"
#include "report/run_read.h"
#include "report/verdict.h"

typedef struct mst_report mst_report;

/* defaults: mst_options_json of the default options of a training, so that the command that reproduces a run
 * has only options that differ; NULL: all of them. Runs and defaults must outlive the report, unchanged. *out
 * is the caller's to destroy; set only on MST_OK. */
mst_status mst_report_new(mst_run_data *const *runs, size_t n, const json_t *defaults, mst_report **out);
void mst_report_destroy(mst_report *self); /* NULL-safe */

/* One self-contained page (page.h). */
mst_status mst_report_html(const mst_report *self, mst_string *out);
mst_status mst_report_markdown(const mst_report *self, mst_string *out);
/* table,row,column,value. */
mst_status mst_report_csv(const mst_report *self, mst_string *out);
/* New reference; NULL with MST_ENOMEM recorded. */
json_t *mst_report_json(const mst_report *self);
/* Writes a file for each plot that has points into the folder, which is created. *n: their number. */
mst_status mst_report_svg(const mst_report *self, const char *folder, size_t *n);

#endif
