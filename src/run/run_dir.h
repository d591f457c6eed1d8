/* The run directory: runs/NAME/ with manifest.json, metrics.csv and checkpoints/.
 *
 * Reports and live views read only these files. An existing directory is refused unless the run resumes or
 * overwrites it. Only directories of muster (with its manifest.json) are ever removed. The folder of an open
 * run is locked: another process that wants to train into it is refused with the name of the holder. */
#ifndef MST_RUN_RUN_DIR_H
#define MST_RUN_RUN_DIR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef enum mst_run_open {
    MST_RUN_NEW,       /* refuses an existing one: MST_EEXIST */
    MST_RUN_OVERWRITE, /* moves an existing one to RUN.old-PID until mst_run_settle removes it */
    MST_RUN_RESUME,    /* truncates metrics.csv to the resumed step and appends to it */
    MST_RUN_MEMORY,    /* has no folder: its path is "", and nothing is written */
} mst_run_open;

/* One line of metrics.csv. NAN: the column is empty. */
typedef struct mst_metrics {
    uint64_t step, rows, epoch;
    double train_seconds, eval_seconds; /* so far, counted separately */
    double lr, train_loss;              /* train_loss: since the last evaluation, or over more rows */
    const char *set;                    /* the evaluated set, "test" or "valid"; "": none */
    double loss, accuracy, auc, top5;
    double train_accuracy;   /* of the rows of train_loss */
    double progressive_loss; /* of the rows of the first pass so far, each before its update */
    double grouped_auc, calibration, normalised_entropy; /* of the set (eval_counters.h) */
} mst_metrics;

typedef struct mst_run mst_run;

/* A resumed run keeps the lines of metrics.csv before keep_before. MST_EEXIST also if another process has the
 * run open, or has saved a step after resume_step in the meantime. */
mst_status mst_run_new(const char *path, mst_run_open how, uint64_t resume_step, uint64_t keep_before,
                       mst_run **out);
void mst_run_destroy(mst_run *self); /* NULL-safe; settles and unlocks */

bool mst_run_replaces(const mst_run *self); /* an overwritten run still exists */
/* The same, and it has a result (mst_run_has_result). */
bool mst_run_replaces_result(const mst_run *self);
void mst_run_settle(mst_run *self);  /* keeps the new run and removes the overwritten one */
void mst_run_abandon(mst_run *self); /* removes the new run and restores the overwritten one */

/* Returns the manifest.json of a run. New reference; NULL if it is missing or not valid JSON. */
json_t *mst_run_read_manifest(const char *run);
/* The same, for values that training depends on: *out is NULL if it is missing; MST_EINPUT if it is not valid
 * JSON or does not have its checksum. */
mst_status mst_run_load_manifest(const char *run, json_t **out);

/* Returns the current manifest.json, in a resumed run that of its last piece. New reference; NULL if it is
 * missing or not a run's. */
json_t *mst_run_last_manifest(const mst_run *self);

/* Replaces manifest.json atomically. */
mst_status mst_run_manifest(mst_run *self, const json_t *manifest);

/* Appends a line and flushes it, so a killed run keeps its metrics. Restores a deleted folder like
 * mst_run_keep; if this or the write fails, the line is lost and the first loss causes a warning. */
mst_status mst_run_metrics(mst_run *self, const mst_metrics *metrics);

/* Checks that the folder is still the one that was opened. A folder that was deleted or moved is created
 * again, with a new metrics.csv and one warning, and *lost (unless NULL) is set. MST_EEXIST: another run is
 * in its place; nothing more is written there. */
mst_status mst_run_keep(mst_run *self, bool *lost);

bool mst_run_is_lost(const mst_run *self); /* mst_run_keep found another run in its place */

/* Returns in out the files that a deleted folder has lost, "metrics.csv up to step 1200", or "". */
const char *mst_run_missing(const mst_run *self, char *out, size_t size);

const char *mst_run_path(const mst_run *self);

/* The last complete line of a run's metrics.csv; zeros: there is none. seconds_ago: since the file was
 * written; 0: not known. */
typedef struct mst_reached {
    uint64_t step, rows;
    double train_seconds, seconds_ago;
} mst_reached;
mst_reached mst_run_reached(const char *run);

/* Returns whether a process trains into the folder; by is its name, "process 12 on host". */
bool mst_run_held(const char *folder, char *by, size_t size);

/* Records that the run exists: MST_EEXIST. */
mst_status mst_run_refuse_existing(const char *run);
/* Returns whether the folder is empty except for the lock of a run and temporary files of its first manifest,
 * which a killed process leaves. */
bool mst_run_is_empty(const char *folder);
/* Removes such files; the caller has the lock. */
void mst_run_remove_temporary(const char *folder);
/* Removes an overwritten run, its lock last: a process that is killed here leaves a folder that is known by
 * it. */
mst_status mst_run_remove_aside(const char *folder);
/* Whether that process of this host has put the folder aside and was killed. */
bool mst_run_is_left(const char *folder, long process);
/* Removes the folders RUN.old-PID that killed processes have left. */
void mst_run_remove_left(const char *run);
/* Returns whether the folder has an entry that does not belong to a run; name is the first one. */
bool mst_run_find_stray(const char *folder, char *name, size_t size);

/* Returns whether the run in the folder succeeded or may have saved a checkpoint. */
bool mst_run_has_result(const char *folder);

/* Writes the advice of an error about another failed process: "resume the run with: ..." if there is a
 * checkpoint; "no checkpoint was saved; start again ..." if there certainly is none, that is, if the manifest
 * is of an unsuccessful run on this host. The run directory is on the coordinator's host: elsewhere, and
 * while the first checkpoint is incomplete, the advice is conditional. Thread: any. */
void mst_run_resume_hint(const char *run, char *out, size_t size);

/* Writes what a job that ended without a last checkpoint has saved, and how to resume it: "nothing newer than
 * RUN/checkpoints/step-000000001200 was saved; resume the run with: ...", or "no checkpoint was saved".
 * Thread: any. */
void mst_run_saved_hint(const char *run, char *out, size_t size);

/* Sets the state of a run whose process was killed: the manifest of a run on this host that is "running" and
 * that no process holds gets that state, the progress that its files show, and why under the key ("end" or
 * "error"). Removes the lock file. */
void mst_run_end_killed(const char *run, const char *state, const char *key, const char *why);

/* Set by `muster launch` for its processes: its command line up to and including "--". */
#define MST_RUN_LAUNCH_ENV "MUSTER_LAUNCH"

/* Writes the command that resumes a run, "muster train --run RUN --resume", or the `muster launch` command if
 * that started this process. */
void mst_run_resume_command(const char *run, char *out, size_t size);

/* Writes "continue with: " and that command; by_hand: of a job whose processes were started one by one, how
 * to start them again. */
void mst_run_continue_advice(const char *run, bool by_hand, char *out, size_t size);

/* Returns in out "--run RUN" in shell syntax; "--run=-x" for a name that looks like an option. */
const char *mst_run_flag(const char *run, char *out, size_t size);

/* Returns a free directory name: runs/NAME-1, runs/NAME-2, ... The caller frees it. */
char *mst_run_free_name(const char *folder, const char *stem);

#endif
