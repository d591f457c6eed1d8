/* The report of a study: one page and one Markdown file with the question, the conclusion, tables and plots.
 */
#ifndef MST_STUDY_STUDY_REPORT_H
#define MST_STUDY_STUDY_REPORT_H

#include "study/study.h"

/* Writes FOLDER/report.html, report.md and plots/. The rows have been read. */
mst_status mst_study_report_write(const mst_study *self);

/* The first rule of conclusion: whose condition holds, as a sentence; or why there is none. *found: whether
 * there is one. */
mst_status mst_study_conclusion(const mst_study *self, mst_string *out, bool *found);

/* A sentence for each published row that belongs to no row of its table, and one if no step has a row. */
mst_status mst_study_unused(const mst_study *self, mst_text_list *out);

/* Adds Markdown with the title, the command, the conclusion and the first table, and the machine once. */
mst_status mst_study_summary(const mst_study *self, unsigned number, mst_string *out);

#endif
