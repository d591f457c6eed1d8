/* marks.csv: what happened when in a run, one line each (docs/RUNS.md). */
#ifndef MST_OBSERVE_MARK_FILE_H
#define MST_OBSERVE_MARK_FILE_H

#include "base/status.h"

/* Appends a line now. process "": what concerns the run as a whole. Text may be anything; NULL: none. Does
 * not fail: a line that cannot be written is a warning, the first time. Any thread. */
void mst_mark(const char *run, const char *process, const char *kind, const char *text);

#endif
