/* Runs of a sweep as processes: each a `muster train` or `muster launch` of its own, several at a time.
 *
 * Signals of this process are caught from new to destroy: the first SIGINT, SIGTERM or SIGHUP makes the
 * runs save and end, a second one kills them. No process is left behind, also if this process is
 * killed (supervisor.h). Thread: one. */
#ifndef MST_LAUNCH_SWEEP_RUNS_H
#define MST_LAUNCH_SWEEP_RUNS_H

#include "sweep/sweep.h"

typedef struct mst_runner mst_runner;

typedef enum mst_runner_how {
    MST_RUNNER_NEW,       /* the folder does not exist */
    MST_RUNNER_RESUME,    /* from its checkpoint */
    MST_RUNNER_OVERWRITE, /* replaces the existing run */
} mst_runner_how;

/* Gets a line of progress several times a second; NULL: a run has ended. */
typedef struct mst_runner_progress {
    void *arg;
    void (*show)(void *arg, const char *text);
} mst_runner_progress;

/* timeout_s: of one run; it then receives SIGTERM, and is killed MST_RUNNER_GRACE_S later. jobs: runs at a
 * time. *out is the caller's to destroy; set only on MST_OK. */
#define MST_RUNNER_GRACE_S 25
mst_status mst_runner_new(const mst_sweep *sweep, double timeout_s, unsigned jobs,
                          const mst_runner_progress *progress, mst_runner **out);
void mst_runner_destroy(mst_runner *self); /* NULL-safe */

/* Starts the cell's command, with one more word (NULL: none), where fewer than `jobs` are running. what:
 * shown before its name, "[3/24] "; left_s: an estimate for all runs left, or NAN. Its
 * output goes to SWEEP/logs/NAME.log. */
mst_status mst_runner_start(mst_runner *self, mst_sweep_cell *cell, mst_runner_how how, const char *word,
                            const char *what, double left_s);
/* Waits until one of the runs has ended, and marks its cell done, failed with its sentence, or stopped. A run
 * that fails is MST_OK here; other statuses are failures of the sweep itself. Adds to the cell's seconds when
 * resuming. At least one must be running. */
mst_status mst_runner_wait(mst_runner *self, mst_sweep_cell **ended);
/* Start and wait, where nothing else is running. */
mst_status mst_runner_run(mst_runner *self, mst_sweep_cell *cell, mst_runner_how how, const char *word,
                          const char *what, double left_s);
unsigned mst_runner_running(const mst_runner *self);
/* Makes all runs save and end, as a signal does. */
void mst_runner_stop(mst_runner *self);

/* Whether a signal has stopped the runs. */
bool mst_runner_stopped(const mst_runner *self);

/* The way to start a cell whose folder may exist. */
mst_runner_how mst_runner_how_to(const mst_sweep *sweep, const mst_sweep_cell *cell);

#endif
