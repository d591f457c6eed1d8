/* How a rank of an MPI job ends: one place for all commands that run under MPI.
 *
 * When another rank is dead, MPI hangs and the launcher kills what is left: the rank says whom it lost and
 * ends with exit code 3, at once, from the watch's thread. Otherwise main has the last word, and then MPI
 * ends, which may hang, too. Whoever speaks first, of the watch's thread and main, speaks alone. */
#ifndef MST_CLI_RANK_EXIT_H
#define MST_CLI_RANK_EXIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "ranks/rank_monitor.h"

/* Before MPI is started: a start that takes longer than that (and 10 s), since some rank never began, ends
 * the process with a sentence and exit code 3; and where MPI itself aborts the process later, as it does
 * after deaths, the watch has the time to say who is dead. Does nothing in a process that no MPI launcher
 * started. */
void mst_rank_exit_prepare(uint32_t start_timeout_ms);

/* For mst_rank_monitor_options.lost and mst_job_lost. arg: the run's folder, to resume it from, when it has
 * one (const char *); or NULL. Any thread; does not return. Waits a moment before it ends the process: the
 * others have to say it, too, before their launcher kills them. */
void mst_rank_exit_lost(void *arg, mst_rank_loss reason, const char *sentence);

/* A failure that only this rank knows of: says it, tells the others through the watch, and ends the process
 * with the failure's exit code. In that order: a launcher kills what is left as soon as one of them has
 * ended. */
_Noreturn void mst_rank_exit_failed(mst_rank_monitor *monitor, const mst_error *error);

/* main, before it says how the command ended: does not return where mst_rank_exit_lost has begun. */
void mst_rank_exit_claim(void);

/* main, at the very end, and whoever leaves in its place: ends MPI, if that was started, within a deadline.
 * Returns when there is nothing of MPI any more; else the process ends here, with that exit code. */
void mst_rank_exit_end(int code);

#endif
