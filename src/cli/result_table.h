/* The result of an evaluation in the output of commands. */
#ifndef MST_CLI_RESULT_TABLE_H
#define MST_CLI_RESULT_TABLE_H

#include "cli/table.h"
#include "train/eval_counters.h"

/* Adds rows and figures to a table of facts; nothing for a result without rows. set, a word in front of the
 * names, may be "". */
void mst_facts_add_result(mst_table *table, const char *set, const mst_result *result, int digits);

/* Calibration by tenths: {tenth, rows, predicted, observed, ratio} in each row. *out is the caller's to
 * destroy; NULL, with MST_OK, if the result has none. */
mst_status mst_tenths_table(const mst_result *result, mst_table **out);

#endif
