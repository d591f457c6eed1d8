/* The end of a rank of an MPI job, for all commands that run under MPI.
 *
 * When a rank is lost, MPI hangs and the launcher kills the others: each of them prints the lost rank and
 * ends with exit code 3 at once, on the rank monitor's thread. Otherwise main prints the error and then ends
 * MPI, which may hang, too. Only the first of the two threads to get here prints. */
#ifndef MST_CLI_RANK_EXIT_H
#define MST_CLI_RANK_EXIT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "ranks/rank_monitor.h"

/* Before MPI is started: a start that takes longer than that (and 10 s), because some rank did not start,
 * ends the process with an error and exit code 3. If MPI itself aborts the process later, as it does after
 * the loss of a rank, the rank monitor gets the time to name the lost rank. Does nothing in a process that no
 * MPI launcher started. */
void mst_rank_exit_prepare(uint32_t start_timeout_ms);

/* For a command that keeps nothing when it is stopped: if a signal requests to stop and the command has not
 * ended a moment later, because it computes, prints "stopped by SIGNAL: WHAT" and ends the process. A
 * launcher that forwards a signal kills the ranks about a second later. After prepare; what must outlive the
 * process. */
void mst_rank_exit_on_stop(const char *what);

/* For mst_rank_monitor_options.lost and mst_job_lost. arg: the run directory (const char *), or NULL. Any
 * thread; does not return. Waits a moment before it ends the process, so that the others can print the loss,
 * too, before their launcher kills them. */
void mst_rank_exit_lost(void *arg, mst_rank_loss reason, const char *message);

/* A failure of this rank alone: prints it, reports it to the others through the rank monitor, and ends the
 * process with its exit code. In that order: a launcher kills the other ranks as soon as one has ended. */
_Noreturn void mst_rank_exit_failed(mst_rank_monitor *monitor, const mst_error *error);

/* For main, before it prints the error of the command: does not return if mst_rank_exit_lost has begun. */
void mst_rank_exit_claim(void);

/* For main at its end: ends MPI, if it was started, within a deadline. Returns if MPI has ended; otherwise
 * the process ends here with that exit code. */
void mst_rank_exit_end(int code);

#endif
