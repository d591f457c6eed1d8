/* The history of a run in its manifest: a segment for each time that it was started or resumed.
 *
 *   "history": [{"step", "rows", "train_seconds": where it began, "started", "host", "muster",
 *                "by": who started its processes: "train" (one process), "launch", "roles" (each by itself),
 *                or the launcher of ranks,
 *                "state", "end": how the segment before a later one ended,
 *                "source": what it was trained on (source.h), "changed": {group: {option: [before, now]}},
 *                "files": [[before], [now]]}]
 *
 * A segment has what differs from the one before it, so that the options of any follow from those of the
 * last, the manifest's "options", by undoing changes. Segments none of whose steps are part of the run,
 * because it was resumed from an earlier checkpoint, are dropped. "unrecorded": true in the first segment
 * where a version that kept no history had resumed the run before. Report reads it (report/history_read.h).
 */
#ifndef MST_RUN_HISTORY_H
#define MST_RUN_HISTORY_H

#include <jansson.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mst_history_point {
    uint64_t step, rows;
    double train_seconds;
} mst_history_point;

/* Sets "history" of the manifest `now`, which has the other entries of its beginning already. before: the
 * manifest of the run that is resumed at `at`; NULL: none, or it cannot be read. */
mst_status mst_history_add(const json_t *before, mst_history_point at, json_t *now);

#endif
