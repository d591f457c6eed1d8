/* Signals as flags. SIGINT, SIGTERM and SIGHUP ask to stop, a second SIGINT ends the process at once with
 * exit code 130; SIGUSR1 asks for a checkpoint. A process that was started with SIGHUP ignored (nohup) keeps
 * ignoring it. */
#ifndef MST_BASE_SIGNALS_H
#define MST_BASE_SIGNALS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* From here on signals set flags. For commands that look at the flags often enough; without it SIGINT and
 * SIGTERM end the process as usual. Calls are not interrupted (SA_RESTART). */
void mst_signals_install(void);

/* Set by SIGINT, SIGTERM and SIGHUP; what feeds, budgets and walks are given. Never NULL. */
const atomic_bool *mst_signals_stop(void);

/* MST_ESTOPPED with "stopped; WHAT" once a signal has arrived; main adds the signal. */
mst_status mst_signals_check(const char *what);

/* "SIGINT", "SIGTERM" or "SIGHUP": which one asked to stop; NULL when none did. */
const char *mst_signals_name(void);

/* For commands with an event loop of their own, which catches signals: the first one noted is the one that
 * name and exit code speak of. */
void mst_signals_note(int number);

/* Exit code for a status: 128 + the signal for MST_ESTOPPED (SIGTERM's where another process of the job got
 * it), else mst_status_exit_code. Also from a signal handler. */
int mst_signals_exit_code(mst_status status);

/* The signal that a muster with this exit code was stopped by, in good order; 0: none. */
int mst_signals_of_exit_code(int code);

/* True once per SIGUSR1 (several that came together count as one). */
bool mst_signals_take_checkpoint(void);

/* The name of any signal, "SIGTERM"; out is returned. */
const char *mst_signal_name(int number, char *out, size_t size);

#endif
