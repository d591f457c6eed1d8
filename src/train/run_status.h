/* Facts about a run for the program around it: its state, its end, its summary, and the callbacks that report
 * them. */
#ifndef MST_TRAIN_RUN_STATUS_H
#define MST_TRAIN_RUN_STATUS_H

#include "train/eval_counters.h"

/* The state of a run. */
typedef struct mst_train_status {
    uint64_t step, rows, epoch; /* epoch: 0-based, of the next row */
    uint64_t epoch_rows;        /* 0: not known yet */
    uint64_t epoch_position;
    double train_seconds, eval_seconds, save_seconds;
    double rows_per_s;      /* over the last few seconds of training */
    double mean_rows_per_s; /* since the run began */
    double eta_seconds;     /* NAN: unknown, also while there is no progress */
    double lr;
    double train_loss, train_accuracy; /* recent; in the summary: with the last evaluation */
    /* Mean loss of the rows of the first pass over the data so far, each scored before its update; NAN: none,
     * or the pass is over. In the summary: of the pass. */
    double progressive_loss;
    const char *waiting; /* the workers that a step waits for, "worker 2"; or NULL */
} mst_train_status;

typedef enum mst_end {
    MST_END_EPOCHS,
    MST_END_STEPS,
    MST_END_ROWS,
    MST_END_SECONDS,
    MST_END_UNTIL,
    MST_END_PATIENCE,
    MST_END_STOPPED,
    MST_END_NO_WORKERS, /* the run failed, though its weights are saved */
} mst_end;
const char *mst_end_text(mst_end end);

/* Work that a run has lost, over all its starts. */
typedef struct mst_run_losses {
    uint64_t n;                       /* times that the run, or a server of it, continued from a checkpoint */
    uint64_t processes;               /* lost processes, with those that joined again */
    uint64_t steps, rows;             /* trained again */
    double train_seconds;             /* that these had taken */
    uint64_t share_steps, share_rows; /* lost in the weights of single servers */
    double recovery_seconds;          /* from a loss to the first step after it */
} mst_run_losses;

typedef struct mst_train_summary {
    mst_train_status status;
    mst_end end;
    mst_result test, valid; /* of the last evaluations; rows 0: none */
    double best_valid_loss; /* with --patience; NAN otherwise */
    uint64_t best_step;
    uint64_t steps_here;    /* done since the run was started or resumed */
    uint64_t workers_since; /* the step from which the counters of workers count; 0: all steps */
    uint64_t n_evaluations;
    double feed_wait_seconds;
    uint64_t skipped; /* malformed rows of the training data that were left out */
    mst_run_losses losses;
    char run[512], checkpoint[640]; /* "": none */
    char best_checkpoint[640];      /* with --patience: of best_step; "": none */
    char missing[192]; /* files lost because the run's folder was deleted during the run; "": none */
} mst_train_summary;

/* Any function may be NULL. The training thread calls them between runs of the strategy. A scoring thread
 * calls evaluating after every batch, one call at a time, in local training: rows of the set scored so far,
 * and the number of them that the model classified correctly. */
typedef struct mst_train_callbacks {
    void *arg;
    void (*began)(void *arg, const char *run); /* training begins, or begins again after a loss */
    void (*progress)(void *arg, const mst_train_status *status); /* a few times a second */
    void (*evaluating)(void *arg, const char *set, uint64_t rows, uint64_t correct);
    void (*evaluated)(void *arg, const mst_train_status *status, const char *set, const mst_result *result);
    void (*saved)(void *arg, const mst_train_status *status, const char *path);
} mst_train_callbacks;

#endif
