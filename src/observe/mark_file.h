/* marks.csv: the events of a run, one line each (docs/RUNS.md). */
#ifndef MST_OBSERVE_MARK_FILE_H
#define MST_OBSERVE_MARK_FILE_H

#include "base/status.h"

/* Appends a line with the current time. process is "" for events of the whole run. text may be NULL. Does not
 * fail: the first line that cannot be written causes a warning. Thread: any. */
void mst_mark_write(const char *run, const char *process, const char *kind, const char *text);

#endif
