/* The history of a run as its manifest has it (run/history.h): the segments between its start and each time
 * that it was resumed, and what it was started with. Of a manifest without history: one segment. */
#ifndef MST_REPORT_HISTORY_READ_H
#define MST_REPORT_HISTORY_READ_H

#include "base/strings.h"
#include "report/run_read.h"

typedef enum mst_crew_strategy {
    MST_CREW_UNKNOWN,
    MST_CREW_LOCAL,
    MST_CREW_PS,
    MST_CREW_ALLREDUCE
} mst_crew_strategy;

/* The processes of a segment, from whichever options set them. NAN: not known. */
typedef struct mst_crew {
    mst_crew_strategy strategy;
    bool sync;
    const char *by;          /* as in run/history.h; lives with the manifest */
    double workers, servers; /* of local: 1 and 0, of allreduce: ranks and 0 */
    bool hosted;             /* every worker hosts a share of the model: servers are not processes */
    bool given_allreduce;    /* such workers were started with --strategy allreduce */
    double batch, global_batch;
} mst_crew;

typedef struct mst_segment {
    double step, to_step; /* it trained the steps after `step` up to to_step; NAN: not known */
    double rows, to_rows, train_s, to_train_s;
    const char *started, *host, *end; /* "": not known; live with the manifest */
    const json_t *record;             /* of the manifest; NULL: it has no history */
    mst_crew crew;
    const struct mst_segment *before; /* NULL: the first */
} mst_segment;

/* The last segment is left out as long as it has no steps. */
typedef struct mst_history {
    mst_segment *segments;
    size_t n;            /* at least 1 */
    json_t *options;     /* of the first segment, {group: {name: value}}; NULL: not known */
    const json_t *files; /* of the first segment; NULL: not known */
    bool unrecorded;     /* the run was resumed before its history was kept */
} mst_history;

/* to_*: where the run is now. */
mst_status mst_history_of(const mst_run_data *run, double to_step, double to_rows, double to_train_s,
                          mst_history *out);
void mst_history_fini(mst_history *self);
/* The first of the last segments that ran with the same processes. */
const mst_segment *mst_history_same_crew(const mst_history *self);

/* "batch 100 -> 1000, files a -> b": the changes of a segment; nothing if there are none. Workers,
 * servers and batches are those it ran with. */
void mst_segment_changes(const mst_segment *segment, mst_string *out);
/* "It was resumed 2 times, last after step 300 (batch 100 -> 1000)."; nothing of a run that was not. */
void mst_history_sentence(const mst_history *self, mst_string *out);
/* The options and files it changed to; NULL: none. */
json_t *mst_segment_changed(const mst_segment *segment); /* {group: {name: [before, now]}} */
const json_t *mst_segment_files(const mst_segment *segment);

#endif
