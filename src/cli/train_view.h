/* The progress of a training on standard error: a line that is redrawn on a terminal, a plain line every few
 * seconds otherwise, and a line per evaluation.
 *
 * A separate thread reports trainings that make no progress: the training thread may wait for other processes
 * or for rows, and the line shows for how long no step was done.
 *
 * Thread: the callbacks are called by one thread at a time. */
#ifndef MST_CLI_TRAIN_VIEW_H
#define MST_CLI_TRAIN_VIEW_H

#include <pthread.h>

#include "cli/progress_line.h"
#include "train/run_status.h"

typedef struct mst_train_view {
    bool quiet;
    const char *others; /* the processes that steps wait for, if the status does not name them; or NULL */
    mst_bar bar;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the fields below and the bar */
    pthread_cond_t changed;
    bool thread_made, ending;
    mst_train_status status; /* the last one; its waiting points at the next, or is NULL */
    char waiting[96];
    uint64_t step_ns; /* when its step was first seen; 0: no step yet */
} mst_train_view;

/* quiet: show nothing. self must not move; the caller ends it. */
void mst_train_view_begin(mst_train_view *self, bool quiet, const char *others);
void mst_train_view_end(mst_train_view *self); /* also removes the line from the terminal */

/* The callbacks for mst_training_run or a job. */
mst_train_callbacks mst_train_view_callbacks(mst_train_view *self);

#endif
