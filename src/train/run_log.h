/* The run log of a training: where it stands, what is due, when it ends, and everything that it leaves
 * behind: the run directory, the lines of metrics.csv, the checkpoints. Whoever trains (the local loop, or
 * the coordinator of a cluster) keeps one and tells it what happened; the run log decides, and trains nothing
 * itself.
 *
 *   mst_run_log_new       options parsed and checked; nothing is written
 *   mst_run_log_resume    or not: goes on where a checkpoint was taken
 *   mst_run_log_open      the run directory is there and locked
 *   mst_run_log_progress, mst_run_log_due, ...
 *   mst_run_log_finish    or mst_run_log_give_up
 *
 * An evaluation has two ends, because its figures may come later than the moment that it speaks of: between
 * mst_run_log_evaluation_begins and mst_run_log_evaluated training may go on. One is under way at a time.
 *
 * Thread: one owner. Waiting: for the disk only; for what the background thread has under way in save,
 * save_begin (unless mst_run_log_can_save), finish and give_up. */
#ifndef MST_TRAIN_RUN_LOG_H
#define MST_TRAIN_RUN_LOG_H

#include "observe/observe.h"
#include "options/train_options.h"
#include "run/checkpoint.h"
#include "strategy/strategy.h"
#include "train/run_schedule.h"
#include "train/run_status.h"

/* ---- the run log ---- */

typedef struct mst_run_log_options {
    const mst_train_options *train; /* must outlive the run log */
    mst_run_schedule schedule;
    bool epochs_given;
    uint64_t global_batch;
    const mst_optimizer *optimizer; /* learning rate, names of the state; must outlive the run log */
    const char *model_name; /* a run without a name is called runs/MODEL-N; must outlive the run log */
    json_t *model;          /* mst_model_json, for checkpoints; the run log takes a reference */
    json_t *data;           /* how rows are read, for checkpoints; the run log takes a reference; or NULL */
    json_t *source;         /* what is trained on (source.h); the run log takes a reference; or NULL */
    bool reading_unknown;   /* a cache that does not say how its rows were read */
    const atomic_bool *stop;
    bool (*save_wanted)(void); /* true once for every wish to save and go on; or NULL */
} mst_run_log_options;

typedef struct mst_run_log mst_run_log;

mst_status mst_run_log_new(const mst_run_log_options *options, mst_run_log **out);
/* NULL-safe. An open run directory stays as it is, and its lock is given back. */
void mst_run_log_destroy(mst_run_log *self);

/* Takes over where the run of a checkpoint stood: progress, seconds, best loss, sums, what is still due. With
 * other data than it was trained on last (--resume-data), the rows to come are those of a new epoch, and
 * limits count from here. */
void mst_run_log_resume(mst_run_log *self, const mst_checkpoint_meta *meta);
bool mst_run_log_has_new_data(const mst_run_log *self); /* that was so */

/* Opens the run directory and writes its manifest: version, time and host, then entries (borrowed; or NULL).
 * MST_EEXIST as mst_run_new. Schedules what is due from here on. */
mst_status mst_run_log_open(mst_run_log *self, json_t *entries);

/* After mst_run_log_open: what `observe` (or NULL) hears of is filed in the run directory from here on, and
 * it gets the run's curves; with --observe, marks.csv is kept. It is ended before the directory is closed,
 * and must outlive that. */
void mst_run_log_observe(mst_run_log *self, mst_observe *observe);
/* A line of marks.csv: docs/RUNS.md. process "": of the run as a whole. Nothing without --observe, or before
 * mst_run_log_open. */
void mst_run_log_mark(mst_run_log *self, const char *process, const char *kind, const char *text);

/* Sets an entry of the manifest ("workers", "cluster", ...), value being stolen; the file has it at
 * the end. After mst_run_log_open only. */
mst_status mst_run_log_note(mst_run_log *self, const char *key, json_t *value);

/* How far training has come. p->loss covers the rows since the last call: the run log adds it up; p's epoch
 * and position are those of the next row, so at the end of an epoch p->epoch is already the next one. A loss
 * that is not finite is MST_EINPUT. */
mst_status mst_run_log_progress(mst_run_log *self, const mst_progress *p);
const mst_progress *mst_run_log_at(const mst_run_log *self); /* as last told, or resumed; its loss is empty */
const mst_train_status *mst_run_log_status(const mst_run_log *self);
/* Folder of the run directory: while it is open, and once it is closed; else NULL. */
const char *mst_run_log_path(const mst_run_log *self);
const char *mst_run_log_folder(const mst_run_log *self);

/* ---- what is due ---- */

/* The MST_DUE_* bits that are due; *end with MST_DUE_END. MST_DUE_EVAL is never set while an evaluation is
 * under way, MST_DUE_SAVE never without --save, nor for a step that is saved already. A bit stays set until
 * the work begins. With MST_DUE_END and
 * MST_DUE_EVAL both, the evaluation comes first, and its verdict's end counts if it has one; with MST_DUE_END
 * while an evaluation is under way, ask again when that is done: the last weights may want one too, which is
 * never so for MST_END_STOPPED. */
unsigned mst_run_log_due(mst_run_log *self, mst_end *end);

/* How far training may go before it looks again: at most until something is due, in whole steps, or until the
 * progress line wants to be drawn again. */
void mst_run_log_budget(const mst_run_log *self, mst_budget *out);

/* What is left of the limits that are known in advance; UINT64_MAX: no such limit. */
void mst_run_log_limits(const mst_run_log *self, uint64_t *steps, uint64_t *rows, uint64_t *epochs);

/* Writes a training line of metrics.csv, if one has not been written for a second. */
mst_status mst_run_log_line(mst_run_log *self);

/* ---- evaluations ---- */

typedef struct mst_judgement {
    bool over; /* --until or --patience ends the run: as `end` says */
    mst_end end;
    bool
        best; /* --patience: no loss on --valid was as good. Save what was evaluated: mst_run_log_save_best */
} mst_judgement;

/* The weights as they stand are to be evaluated (with or without sets to do it on). The figures will be filed
 * under this moment. Called again before they came, the earlier moment is forgotten. An evaluation that is
 * not done when the run ends is done first by the run that resumes it. */
void mst_run_log_evaluation_begins(mst_run_log *self);
/* A resumed run owes the evaluation that the one before it was stopped in. */
bool mst_run_log_evaluation_owed(const mst_run_log *self);
/* The figures; NULL or without rows: no such set. */
mst_status mst_run_log_evaluated(mst_run_log *self, const mst_train_callbacks *callbacks,
                                 const mst_result *valid, const mst_result *test, mst_judgement *out);

/* ---- saving ---- */

/* Saves the store whole, unless this step is saved already or --no-save. */
mst_status mst_run_log_save(mst_run_log *self, const mst_train_callbacks *callbacks,
                            const mst_params *params);
mst_status mst_run_log_save_best(mst_run_log *self, const mst_params *params); /* nothing without --save */

/* What checkpoints from here on say of the rows still to be trained on, beyond epoch and position: "plan" of
 * the meta's extra. plan is stolen; NULL: nothing. */
void mst_run_log_plan(mst_run_log *self, json_t *plan);

/* Whether a checkpoint is still to be begun for where the run stands now. */
bool mst_run_log_unsaved(const mst_run_log *self);

/* A save whose floats come in pieces, one at a time; see mst_checkpointer_begin_parts. What goes with the
 * weights is as of `begin`, and training may go on meanwhile. best: the checkpoint of the best weights. A
 * failure abandons the save. A later failure, in the background, is told by the next begin, or by finish. */
bool mst_run_log_can_save(mst_run_log *self,
                          bool best); /* false without --save, and while begin would wait */
mst_status mst_run_log_save_begin(mst_run_log *self, bool best, const mst_params *params,
                                  const mst_part_spec *parts, uint32_t n);
mst_status mst_run_log_save_write(mst_run_log *self, uint32_t slot, uint64_t first, uint64_t count,
                                  const float *data, bool lazy);
mst_status mst_run_log_save_complete(mst_run_log *self, const mst_train_callbacks *callbacks);
void mst_run_log_save_abandon(mst_run_log *self); /* nothing when none is open */

/* ---- the end ---- */

/* Waits for what is being saved, completes the manifest, fills the summary but for feed_wait_seconds, and
 * closes the directory. */
mst_status mst_run_log_finish(mst_run_log *self, mst_end end, mst_train_summary *summary);

/* The run failed with st, whose sentence is kept and st returned: the manifest says what happened. A new run
 * that had done no step, and neither measured nor saved anything, leaves no directory; one that was to
 * replace another with a result (mst_run_has_result) leaves that, unless it has saved a checkpoint. Closes
 * the directory. */
mst_status mst_run_log_give_up(mst_run_log *self, mst_status st);

#endif
