/* Shared by the files of the run log and by its tests; no other file includes this.
 *
 *   run_log.c            the run directory: manifest, metrics.csv, the observer, the end
 *   run_log_progress.c   progress, a loss that is not finite, and which evaluation, checkpoint or end is due
 *   run_log_evaluate.c   evaluations
 *   run_log_save.c       checkpoints
 *   run_log_resume.c     the state of a resumed run
 *   run_log_loss.c       steps and rows that a resumed or continued run has lost
 *
 * Invariants
 * 1. `line_loss` is the loss since the last evaluation began; `evals.loss` belongs to an evaluation under
 * way; `evals.window` holds earlier intervals as far as they still count. A checkpoint holds the sum of the
 * first two, the window, and whether an evaluation is incomplete, so that a resumed run writes the same line.
 * 2. The clock decides only the number of training lines, and options in seconds.
 * 3. `save.saved_step` is the step of the newest checkpoint that the checkpointer has received whole; a step
 * is saved at most once. */
#ifndef MST_TRAIN_RUN_LOG_IMPL_H
#define MST_TRAIN_RUN_LOG_IMPL_H

#include <math.h>

#include "run/run_dir.h"
#include "train/loss_window.h"
#include "train/rate.h"
#include "train/run_log.h"

/* A repeated event. */
typedef struct mst_due {
    mst_interval every;
    double next; /* in the interval's unit */
} mst_due;

/* The state of the run when it began with its present data; limits count from there. */
typedef struct mst_data_start {
    uint64_t epoch, steps, rows;
    double seconds;
} mst_data_start;

/* Checkpoints. */
typedef struct mst_run_saves {
    mst_checkpointer *checkpointer, *best; /* of all steps, of the best weights; NULL without --save */
    uint64_t saved_step;                   /* of the newest checkpoint; UINT64_MAX: none */
    mst_checkpointer *open;                /* the one that receives floats; or NULL */
    mst_train_status open_status;          /* when that save began */
    bool skipping;                         /* the open save has failed: its floats are dropped */
    mst_error failure, best_failure;       /* of the newest save of each kind; MST_OK: none */
    bool unreported, best_unreported;      /* no warning has stated it yet */
    double open_seconds;                   /* save_seconds when it began */
    double cost;                           /* seconds of training that the last one took */
    bool requested;                        /* a checkpoint is due at once */
    bool settling; /* the run that this one replaces is removed once the first checkpoint is complete */
    json_t *plan;  /* the rows left to train on (mst_run_log_plan); or NULL */
    /* In memory: */
    float *best_weights; /* the flat vector; NULL: none yet */
    float *candidate;    /* likewise, of weights under evaluation that arrive in pieces */
    mst_params
        *gathered; /* where the pieces of the open save go, unless it is a candidate; NULL: none is open */
    bool gathers_best;
} mst_run_saves;

/* Evaluations. */
typedef struct mst_run_evals {
    bool under_way;
    bool incomplete;     /* there are sets, and their figures are not there: a resumed run begins with it */
    bool warned;         /* of a loss that is infinite */
    mst_train_status at; /* when the evaluation under way began */
    mst_loss_sum loss;   /* of the rows before it */
    mst_loss_window window;            /* of earlier intervals */
    double train_loss, train_accuracy; /* reported with the last evaluation; NAN: none yet */
    uint64_t step;                     /* of the last evaluation; UINT64_MAX: none */
    mst_result test, valid;            /* of the last ones; rows 0: none */
    double best_valid_loss;
    uint64_t best_step, since_best, count;
} mst_run_evals;

/* Work that the run has lost. */
typedef struct mst_run_loss {
    bool continues; /* the job lost its state, for this reason: */
    char why[MST_ERROR_MAX];
    mst_reached reached;  /* progress before; rows 0: not known */
    uint64_t since_ns;    /* when it was lost; 0: not known */
    bool recovering;      /* no step was done since */
    bool members_changed; /* "members" of the manifest is not written yet */
    bool taken_over;      /* another server has taken over, and nothing is listed in "losses" */
} mst_run_loss;

struct mst_run_log {
    mst_run_log_options options;
    mst_run_loss loss;
    mst_data_start start;
    json_t *source_before;  /* of a resumed run that has new data; or NULL */
    uint64_t position_then; /* its row in an epoch that is not completed; 0: none */
    uint64_t opened_steps;  /* steps of the run when it was opened */
    mst_due eval_due, save_due;

    mst_run *run;
    char *folder; /* of the run, once it is closed; or NULL */
    json_t *manifest;
    bool worth_keeping; /* a step was done, or something measured or saved */

    mst_progress progress;
    mst_train_status status;
    mst_rate rate;
    mst_loss_sum line_loss;
    mst_loss_sum first_pass; /* over the present data */
    uint64_t line_ns;        /* when the last line of metrics.csv was written */
    mst_observe *observe;    /* or NULL */
    uint64_t curve_step;     /* of the newest training figures in the observer's curves */

    mst_run_saves save;
    mst_run_evals evals;
    json_t *workers;        /* counters of the workers so far; NULL: they are not counted */
    json_t *workers_before; /* when the run was resumed or continued; or NULL */
    uint64_t workers_since; /* the step from which they count; 0: all steps */
};

/* The counters in `extra` of a checkpoint; the step is that of the checkpoint. */
void mst_run_log_workers_save(const mst_run_log *self, json_t *extra);
void mst_run_log_workers_resume(mst_run_log *self, const json_t *extra, uint64_t step);

/* Schedules an event for the first multiple of its interval after the progress of the run. */
void mst_run_log_schedule(const mst_run_log *self, mst_due *due);

/* Logs that a resumed run has new data, if it has. The run directory is open. */
void mst_run_log_report_new_data(const mst_run_log *self);

/* Records the steps after the present one that the run had done: `recorded` is the end of metrics.csv.
 * before: the last manifest, or NULL. */
/* Warns of saves that have failed, unless it was done: training continues without them. */
void mst_run_log_warn_unsaved(mst_run_log *self);
mst_status mst_run_log_record_loss(mst_run_log *self, const json_t *before, const mst_reached *recorded);
/* The first step after a loss. */
void mst_run_log_end_recovery(mst_run_log *self, uint64_t step);
/* Writes the manifest if "members" has changed. */
void mst_run_log_write_members(mst_run_log *self);
/* All losses of the run so far. */
void mst_run_log_sum_losses(const mst_run_log *self, mst_run_losses *out);
/* Losses as text for TensorBoard. */
void mst_run_log_observe_losses(mst_run_log *self);

/* Writes manifest.json with the progress of the run. */
mst_status mst_run_log_write_manifest(mst_run_log *self, const char *state);

/* A mark "step N" of the run as a whole. */
void mst_run_log_mark_step(mst_run_log *self, const char *kind, uint64_t step);

/* Writes a line of metrics.csv. set "": of training only, with r NULL. */
mst_status mst_run_log_write_line(mst_run_log *self, const mst_train_status *s, const mst_loss_sum *train,
                                  const char *set, const mst_result *r);

/* Before a write to the run's folder: creates it again if it was deleted, which loses its checkpoints. */
mst_status mst_run_log_keep_folder(mst_run_log *self);

/* The due checkpoint is being written. */
void mst_run_log_save_begins(mst_run_log *self);

/* Removes the run that this one replaces, once a checkpoint is complete; wait: waits for that. */
mst_status mst_run_log_settle(mst_run_log *self, bool wait);

#endif
