/* A run's directory: runs/NAME/ with manifest.json, metrics.csv and checkpoints/.
 *
 * Whatever shows something to people reads only these files. An existing directory is refused unless the run
 * resumes it or is told to overwrite it; only what muster made (a folder with its manifest.json) is ever
 * removed. While a run is open its folder is locked: another process that wants to train into it is refused,
 * and hears who has it. */
#ifndef MST_RUN_RUN_DIR_H
#define MST_RUN_RUN_DIR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum mst_run_open {
    MST_RUN_NEW,       /* refuse an existing one: MST_EEXIST */
    MST_RUN_OVERWRITE, /* put an existing one aside (RUN.old-PID), to be removed when the run is settled */
    MST_RUN_RESUME,    /* continue: metrics.csv is cut back to the resumed step and appended to */
} mst_run_open;

/* One line of metrics.csv. NAN: the column is empty. */
typedef struct mst_metrics {
    uint64_t step, rows, epoch;
    double train_seconds, eval_seconds; /* so far, apart from each other */
    double lr, train_loss;              /* loss: since the last evaluation, or of more rows */
    const char *set;                    /* "", or which set was evaluated: "test", "valid" */
    double loss, accuracy, auc, top5;
} mst_metrics;

typedef struct mst_run mst_run;

/* MST_EEXIST also when another process has the run open, or has saved a step beyond resume_step meanwhile. */
mst_status mst_run_new(const char *path, mst_run_open how, uint64_t resume_step, mst_run **out);
void mst_run_destroy(mst_run *self); /* NULL-safe; settles, and gives the lock back */

bool mst_run_replaces(const mst_run *self); /* an overwritten run is still aside */
/* And it has something to lose: mst_run_has_result. */
bool mst_run_replaces_result(const mst_run *self);
void mst_run_settle(mst_run *self);  /* the new run is good: removes what it replaces */
void mst_run_abandon(mst_run *self); /* removes the new run and puts back what it was to replace */

/* manifest.json as it is now, which of a run just resumed is that of its last piece. New reference; NULL: not
 * there, or not a run's. */
json_t *mst_run_last_manifest(const mst_run *self);

/* Replaces manifest.json atomically. */
mst_status mst_run_manifest(mst_run *self, const json_t *manifest);

/* Appends a line and flushes it, so that a killed run keeps what it measured. Where the folder was deleted,
 * as mst_run_keep; where it cannot be made again, the line is lost, and one warning says so. */
mst_status mst_run_metrics(mst_run *self, const mst_metrics *metrics);

/* Whether the folder is still the one that was opened. One that was deleted or moved is made again, with a
 * metrics.csv that begins anew, and one warning; *lost (or NULL) is set then. MST_EEXIST: another run is in
 * its place; nothing is written there from now on. */
mst_status mst_run_keep(mst_run *self, bool *lost);

bool mst_run_is_lost(const mst_run *self); /* mst_run_keep has found another run in its place */

/* What the folder lacks since it was deleted while the run was open: "metrics.csv before step 1200"; "":
 * nothing. out is returned. */
const char *mst_run_missing(const mst_run *self, char *out, size_t size);

const char *mst_run_path(const mst_run *self);

/* Whether a process trains into the folder; by: which, "process 12 on host". */
bool mst_run_held(const char *folder, char *by, size_t size);

/* Whether the folder has nothing in it but, perhaps, a run's lock. */
bool mst_run_is_empty(const char *folder);
/* Whether something lies in the folder that no run leaves there; name: the first such entry. */
bool mst_run_find_stray(const char *folder, char *name, size_t size);

/* Whether the run in the folder ended well or may have saved a checkpoint. */
bool mst_run_has_result(const char *folder);

/* For the sentence of a process whose job ended since another process failed: how to go on. "resume the
 * run with: ..." where a checkpoint is found; "no checkpoint was saved; start again ..." where it is known
 * that there is none: the manifest is of a run on this host that has not ended well. The run's directory is
 * on the coordinator's host: elsewhere, and while the first checkpoint is half written, it promises nothing.
 * Any thread. */
void mst_run_way_on(const char *run, char *out, size_t size);

/* Set by `muster launch` for its processes: the words that it was given, up to and with "--". */
#define MST_RUN_LAUNCH_ENV "MUSTER_LAUNCH"

/* The command that resumes a run, "muster train --run RUN --resume"; with `muster launch` in front where that
 * started this process. */
void mst_run_resume_command(const char *run, char *out, size_t size);

/* "--run RUN" as words of a shell; "--run=-x" for a name that looks like an option. out is returned. */
const char *mst_run_flag(const char *run, char *out, size_t size);

/* A free directory name: runs/NAME-1, runs/NAME-2, ... The caller frees. */
char *mst_run_free_name(const char *folder, const char *stem);

#endif
