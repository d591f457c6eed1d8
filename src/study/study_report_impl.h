/* Shared by the files of a study's report. */
#ifndef MST_STUDY_STUDY_REPORT_IMPL_H
#define MST_STUDY_STUDY_REPORT_IMPL_H

#include "report/plot.h"
#include "study/study_expr.h"
#include "study/study_report.h"

/* The form of a column by its name: train_s is in seconds, accuracy in percent. */
mst_expr_form mst_study_form(const char *column, const char *unit);

/* Checks curve:, over: and load: of a plot; path: for errors. MST_EUSAGE. */
mst_status mst_study_plot_check(const char *path, const json_t *plot);

/* Called for each plot that has points; the plot lives as long as the call. */
typedef mst_status mst_study_plot_fn(void *arg, const mst_plot *plot);
mst_status mst_study_plots(const mst_study *self, mst_study_plot_fn *fn, void *arg);

#endif
