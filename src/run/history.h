/* The history of a run in its manifest: a segment for each start or resume.
 *
 *   "history": [{"step", "rows", "train_seconds": where it began, "started", "host", "muster",
 *                "by": the program that started its processes: "train" (one process), "launch",
 *                      "roles" (each by itself), or the launcher of ranks,
 *                "state", "end": the end of the previous segment, "source": its training data
 * (data_identity.h), "changed": {group: {option: [before, now]}}, "files": [[before], [now]]}]
 *
 * A segment has its differences from the previous one, so that undoing changes from the last options,
 * "options" of the manifest, gives those of any segment. Segments without steps that are part of the run are
 * dropped: it was resumed from an earlier checkpoint. "unrecorded": true in the first segment if a version
 * without history had resumed the run before. Report reads it (report/history_read.h). */
#ifndef MST_RUN_HISTORY_H
#define MST_RUN_HISTORY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mst_history_point {
    uint64_t step, rows;
    double train_seconds;
} mst_history_point;

/* Sets "history" of the manifest `now`, which has its other first entries already. before: the manifest of
 * the run that is resumed at `at`; NULL: none, or it cannot be read. continues: the job lost its state, and
 * the last segment that counts continues. */
mst_status mst_history_add(const json_t *before, mst_history_point at, bool continues, json_t *now);

#endif
