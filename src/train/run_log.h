/* The run log of a training: records its progress, decides what is due and when the run ends, and writes the
 * run directory: manifest, metrics.csv, checkpoints. The training loop or the coordinator of a job owns one
 * and reports events to it; the run log trains nothing itself.
 *
 *   mst_run_log_new       options are parsed and checked; nothing is written
 *   mst_run_log_resume    optional: continues from a checkpoint
 *   mst_run_log_open      the run directory exists and is locked
 *   mst_run_log_progress, mst_run_log_due, ...
 *   mst_run_log_finish    or mst_run_log_give_up
 *
 * An evaluation has a begin and an end, because its figures may arrive later: training may continue between
 * mst_run_log_evaluation_begins and mst_run_log_evaluated. One evaluation is under way at a time.
 *
 * Thread: one owner. Waiting: for the disk; save, save_begin (unless mst_run_log_can_save), finish and
 * give_up wait for the background thread that writes checkpoints. */
#ifndef MST_TRAIN_RUN_LOG_H
#define MST_TRAIN_RUN_LOG_H

#include "observe/observe.h"
#include "options/train_options.h"
#include "run/checkpoint.h"
#include "run/run_dir.h"
#include "strategy/strategy.h"
#include "train/run_schedule.h"
#include "train/run_status.h"

/* An entry of checkpoints: true if -1 is a label of the training data. */
#define MST_LABEL_MINUS_ONE "label_minus_one"

typedef struct mst_run_log_options {
    const mst_train_options *train; /* must outlive the run log */
    mst_run_schedule schedule;
    bool epochs_given;
    uint64_t global_batch;
    const mst_optimizer *optimizer; /* learning rate, names of the state; must outlive the run log */
    const char *model_name; /* a run without a name is called runs/MODEL-N; must outlive the run log */
    json_t *model;          /* mst_model_json, for checkpoints; the run log takes a reference */
    json_t *data;           /* how rows are read, for checkpoints; the run log takes a reference; or NULL */
    json_t *source;         /* the training data (data_identity.h); the run log takes a reference; or NULL */
    bool reading_unknown;   /* a cache that does not record how its rows were read */
    bool label_minus_one;   /* MST_LABEL_MINUS_ONE */
    bool in_memory;         /* the run has no folder; train->save and train->observe are false */
    const atomic_bool *stop;
    /* Takes requests that have arrived: true once for every request to save and continue. It may set the stop
     * flag. Or NULL. */
    bool (*take_requests)(void *requests_arg);
    void *requests_arg;
} mst_run_log_options;

typedef struct mst_run_log mst_run_log;

mst_status mst_run_log_new(const mst_run_log_options *options, mst_run_log **out);
/* NULL-safe. An open run directory stays as it is and is unlocked. */
void mst_run_log_destroy(mst_run_log *self);

/* Takes over the state of a checkpoint's run: progress, seconds, best loss, sums, an incomplete evaluation.
 * With data other than that of the checkpoint (--resume-data), a new epoch begins, and limits count from
 * here. */
void mst_run_log_resume(mst_run_log *self, const mst_checkpoint_meta *meta);
/* The present state as JSON, as a checkpoint would have it; new reference or NULL. And the same as
 * mst_run_log_resume, from such a state and the progress of the weights, which are not saved. MST_EPEER: it
 * is no state. */
json_t *mst_run_log_state(const mst_run_log *self);
mst_status mst_run_log_resume_state(mst_run_log *self, const json_t *state, const mst_progress *at);
bool mst_run_log_has_new_data(const mst_run_log *self); /* resumed with other data */

/* Before mst_run_log_open: the run continues because the job lost its state, `why`, when it had reached that
 * progress; rows 0: rows and seconds are not known. since_ns: the time of the loss; 0: not known, that is,
 * the last line of metrics.csv. The recovery lasts from then to the first step. The run continues its piece
 * of the history. */
void mst_run_log_lost(mst_run_log *self, const mst_reached *reached, uint64_t since_ns, const char *why);

/* During training: a server was lost at that time, and another one has taken over without a loss: the
 * recovery lasts to the first step. */
void mst_run_log_taken_over(mst_run_log *self, uint64_t since_ns);

/* During training: the weights of a server return to those of that progress, `why`. */
mst_status mst_run_log_lost_share(mst_run_log *self, uint32_t server, const mst_reached *at,
                                  uint64_t since_ns, const char *why);
/* Whether no step was done since the last loss. */
bool mst_run_log_is_recovering(const mst_run_log *self);

/* Counts a lost process in "lost_processes" of the manifest, and writes it. */
mst_status mst_run_log_process_lost(mst_run_log *self, const char *process);
/* A process takes part in training: `identity` differs between it and a successor. If another one has taken
 * part under that name and has neither left nor been counted as lost, it is counted: it was lost together
 * with the coordinator, or while the job started again. "members" of the manifest has the identities. */
mst_status mst_run_log_process_joined(mst_run_log *self, const char *process, const char *identity);
/* It has finished its work, and a successor does not mean that it was lost. */
void mst_run_log_process_left(mst_run_log *self, const char *process);

/* Opens the run directory and writes its manifest: version, time and host, then entries (borrowed; or NULL).
 * MST_EEXIST as mst_run_new. Intervals of evaluations and checkpoints count from here. Steps that a resumed
 * or continued run had done after its checkpoint are lost: the log, "losses" of the manifest and marks.csv
 * state them. */
mst_status mst_run_log_open(mst_run_log *self, json_t *entries);

/* After mst_run_log_open: the records of `observe` (or NULL) go to the run directory, and it receives the
 * curves of the run; with --observe, marks.csv is written. The run log ends the observer before it closes the
 * directory; the observer must live until then. */
void mst_run_log_observe(mst_run_log *self, mst_observe *observe);
/* Writes a line of marks.csv (docs/RUNS.md). process "": of the run as a whole. Without --observe, and before
 * mst_run_log_open, nothing is written. */
void mst_run_log_mark(mst_run_log *self, const char *process, const char *kind, const char *text);

/* Sets an entry of the manifest ("workers", "cluster", ...), which is written at the end. value is stolen.
 * After mst_run_log_open only. */
mst_status mst_run_log_note(mst_run_log *self, const char *key, json_t *value);

/* Sets the counters of the workers, [{"worker", "steps", ...}], since the run was started, resumed or
 * continued after a loss; stolen. Those of the checkpoint it started from are added. Checkpoints and the
 * manifest have them. */
mst_status mst_run_log_count_workers(mst_run_log *self, json_t *here);
/* The counters with those before; borrowed; NULL: none were set. */
json_t *mst_run_log_workers(const mst_run_log *self);

/* Reports the progress of the training. p->loss covers the rows since the last call: the run log adds it up;
 * p's epoch and position are those of the next row, so at the end of an epoch p->epoch is already the next
 * one. A loss that is not finite is MST_EINPUT. */
mst_status mst_run_log_progress(mst_run_log *self, const mst_progress *p);
const mst_progress *mst_run_log_at(
    const mst_run_log *self); /* as last reported or resumed; its loss is empty */
const mst_train_status *mst_run_log_status(const mst_run_log *self);
/* Folder of the run directory: while it is open, and once it is closed; else NULL. */
const char *mst_run_log_path(const mst_run_log *self);
const char *mst_run_log_folder(const mst_run_log *self);

/* ---- what is due ---- */

/* The MST_DUE_* bits that are due; *end with MST_DUE_END. MST_DUE_EVAL is never set while an evaluation is
 * under way, MST_DUE_SAVE never without --save, nor for a step that is saved already. A bit stays set until
 * the work begins. With both MST_DUE_END and MST_DUE_EVAL, the evaluation comes first, and the end that it
 * decides takes precedence. With MST_DUE_END while an evaluation is under way, call again when that is done:
 * the last weights may need one too (never with MST_END_STOPPED). */
unsigned mst_run_log_due(mst_run_log *self, mst_end *end);

/* The steps, rows and time until the next call: at most until something is due, in whole steps, or until the
 * next update of the progress line. */
void mst_run_log_budget(const mst_run_log *self, mst_budget *out);

/* The limits that are known in advance, counted like the progress; UINT64_MAX: no such limit. */
void mst_run_log_limits(const mst_run_log *self, uint64_t *steps, uint64_t *rows, uint64_t *epochs);

/* Writes a training line of metrics.csv, at most one per second. */
mst_status mst_run_log_line(mst_run_log *self);

/* ---- evaluations ---- */

typedef struct mst_eval_outcome {
    bool over; /* --until or --patience ends the run, as `end` */
    mst_end end;
    bool best; /* --patience: the loss on --valid is the best so far; save these weights:
                  mst_run_log_save_best */
} mst_eval_outcome;

/* The weights as they are now will be evaluated, even if there are no sets; the figures are recorded for this
 * step. A second call before the figures arrive replaces the first. An evaluation that is incomplete at the
 * end of the run is repeated first when the run is resumed. */
void mst_run_log_evaluation_begins(mst_run_log *self);
/* The evaluation that the resumed run did not complete is still to be done. */
bool mst_run_log_evaluation_pending(const mst_run_log *self);
/* The figures; NULL or without rows: no such set. */
mst_status mst_run_log_evaluated(mst_run_log *self, const mst_train_callbacks *callbacks,
                                 const mst_result *valid, const mst_result *test, mst_eval_outcome *out);

/* ---- saving ---- */

/* A save that fails because of the disk (MST_EIO) is skipped with a warning: the earlier checkpoints stay,
 * and training continues. If the last save of a run fails so, mst_run_log_finish returns
 * MST_EUNSAVED, which a new start of the process would repeat. */

/* Saves the parameters in one call, unless this step is saved already or with --no-save. */
mst_status mst_run_log_save(mst_run_log *self, const mst_train_callbacks *callbacks,
                            const mst_params *params);
/* Nothing without --save; in memory the weights are copied. */
mst_status mst_run_log_save_best(mst_run_log *self, const mst_params *params);
/* In memory: puts the best weights back, if there are any. Their optimizer state stays that of the last step.
 */
void mst_run_log_restore_best(const mst_run_log *self, mst_params *params);

/* Sets the rows left to train on for later checkpoints, beyond epoch and position: "plan" of the meta's
 * extra. plan is stolen; NULL: none. */
void mst_run_log_plan(mst_run_log *self, json_t *plan);

/* Whether no checkpoint of the present step is saved or being written. */
bool mst_run_log_unsaved(const mst_run_log *self);

/* A save whose floats arrive in pieces, one at a time; see mst_checkpointer_begin_parts. The other contents
 * are those at `begin`, and training may continue meanwhile. best: the checkpoint of the best weights. A
 * failure abandons the save; the floats of a skipped save are dropped. The next begin, or finish, reports a
 * later failure in the background. In memory the pieces go to `params`, those of the best weights to where
 * mst_run_log_restore_best finds them. */
bool mst_run_log_can_save(mst_run_log *self, bool best); /* false without --save, and if begin would wait */
mst_status mst_run_log_save_begin(mst_run_log *self, bool best, mst_params *params,
                                  const mst_part_spec *parts, uint32_t n);
mst_status mst_run_log_save_write(mst_run_log *self, uint32_t slot, uint64_t first, uint64_t count,
                                  const float *data, bool lazy);
mst_status mst_run_log_save_complete(mst_run_log *self, const mst_train_callbacks *callbacks);
void mst_run_log_save_abandon(mst_run_log *self); /* nothing if none is open */

/* ---- the end ---- */

/* Waits for the last checkpoint, completes the manifest, fills the summary except feed_wait_seconds, and
 * closes the directory. */
mst_status mst_run_log_finish(mst_run_log *self, mst_end end, mst_train_summary *summary);

/* Whether the run has done a step, and the directory of a run that fails now stays (mst_run_log_give_up): it
 * replaces no result of another. */
bool mst_run_log_keeps_failure(const mst_run_log *self);

/* The run failed with st, which is returned with its message. The manifest records the error. A new run
 * without a step, a measurement or a checkpoint leaves no directory. A run that was to replace another with a
 * result (mst_run_has_result) leaves that one, unless it has saved a checkpoint. Closes the directory. */
mst_status mst_run_log_give_up(mst_run_log *self, mst_status st);

#endif
