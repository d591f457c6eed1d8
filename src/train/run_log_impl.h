/* What run_log.c and run_log_due.c share; nobody else includes this, but tests.
 *
 * Invariants
 * 1. `line_loss` sums what was trained on since the last evaluation began; what belongs to one that is under
 * way is in `marked_loss`; what was before, as far as it is still told, in `window`. A checkpoint holds the
 * sum of the first two, the window, and that an evaluation is due, so that a resumed run writes the line that
 * this one would have written.
 * 2. Nothing here depends on the clock but how many training lines there are, and what the options ask for in
 * seconds.
 * 3. `saved_step` is the step of the newest checkpoint handed to the checkpointer whole; a step is saved at
 * most once. */
#ifndef MST_TRAIN_RUN_LOG_IMPL_H
#define MST_TRAIN_RUN_LOG_IMPL_H

#include <math.h>

#include "run/run_dir.h"
#include "train/loss_window.h"
#include "train/rate.h"
#include "train/run_log.h"

/* Something that happens every so often. */
typedef struct mst_due {
    mst_interval every;
    double next; /* in the unit's count, or epochs done */
} mst_due;

/* Where the run stood when it began with the data it is trained on now; limits count from there. */
typedef struct mst_data_start {
    uint64_t epoch, steps, rows;
    double seconds;
} mst_data_start;

struct mst_run_log {
    mst_run_log_options options;
    mst_data_start start;
    json_t *source_before;  /* of a resumed run that has new data now; or NULL */
    uint64_t position_then; /* its row in an epoch that is not completed; 0: none */
    uint64_t opened_steps;  /* steps of the run when it was opened */
    mst_due eval, checkpoint;
    bool save_asked; /* somebody wants a checkpoint now */

    mst_run *run;
    char *folder; /* of the run, once it is closed; or NULL */
    json_t *manifest;
    json_t *plan; /* the rows left to train on, as mst_run_log_plan was given it; or NULL */
    mst_checkpointer *checkpointer, *best_checkpointer;
    uint64_t saved_step;          /* of the newest checkpoint; UINT64_MAX: none */
    mst_checkpointer *open;       /* floats arrive for it; or NULL */
    mst_train_status open_status; /* as of when that save began */
    bool settling;                /* what this run replaces goes once the background thread has saved */
    bool worth_keeping;           /* a step was done, or something measured or saved */

    mst_progress progress;
    mst_train_status status;
    mst_rate rate;
    mst_loss_sum line_loss, marked_loss;
    mst_loss_window window; /* of intervals before */
    double last_train_loss; /* as told with the last evaluation; NAN: none yet */
    uint64_t line_ns;
    mst_observe *observe; /* or NULL */
    uint64_t told_step;   /* of its newest figures of training */

    bool evaluating;         /* under way */
    bool evaluation_due;     /* and on sets that there are, so that a resumed run owes it */
    mst_train_status marked; /* when it began */
    uint64_t evaluated_step; /* UINT64_MAX: none */
    mst_result test, valid;  /* the last ones; rows 0: none */
    double best_valid_loss;
    uint64_t best_step, since_best, n_evaluations;
};

/* Schedules something for the first multiple of its interval beyond where the run stands. */
void mst_run_log_schedule(const mst_run_log *self, mst_due *due);

/* Tells which data a resumed run has now, where that is new. The run directory is open. */
void mst_run_log_tell_new_data(const mst_run_log *self);

/* The checkpoint that was due is being written. */
void mst_run_log_save_begins(mst_run_log *self);

/* Removes what this run replaces, if that is to be and the checkpoint is there; wait: for it. */
mst_status mst_run_log_settle(mst_run_log *self, bool wait);

#endif
