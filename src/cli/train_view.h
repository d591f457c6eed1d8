/* The progress of a training on standard error: a line that is drawn again and again on a terminal, a plain
 * one every few seconds elsewhere, and a line per evaluation.
 *
 * A thread of its own looks after trainings that do not advance: the thread that trains may wait for other
 * processes or for rows for as long as it likes, and the line says for how long no step was done.
 *
 * Thread: the observer's functions are called by one thread at a time. */
#ifndef MST_CLI_TRAIN_VIEW_H
#define MST_CLI_TRAIN_VIEW_H

#include <pthread.h>

#include "cli/progress_line.h"
#include "train/run_status.h"

typedef struct mst_train_view {
    bool quiet;
    const char *others; /* whom steps wait for, where the status does not say; or NULL */
    mst_bar bar;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows, and the bar */
    pthread_cond_t changed;
    bool thread_made, ending;
    mst_train_status status; /* the last one; its waiting points at the next, or is NULL */
    char waiting[96];
    uint64_t step_ns; /* when its step was first seen; 0: none was */
} mst_train_view;

/* quiet: nothing is shown. self must not move, and is the caller's to end. */
void mst_train_view_begin(mst_train_view *self, bool quiet, const char *others);
void mst_train_view_end(mst_train_view *self); /* also removes the line from the terminal */

/* Its functions, for mst_training_run or a job. */
mst_train_callbacks mst_train_view_callbacks(mst_train_view *self);

#endif
