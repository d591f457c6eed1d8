/* Signals as flags. SIGINT, SIGTERM and SIGHUP request to stop; a second SIGINT ends the process at once with
 * exit code 130. SIGUSR1 requests a checkpoint. A process that was started with SIGHUP ignored (nohup) keeps
 * ignoring it. */
#ifndef MST_BASE_SIGNALS_H
#define MST_BASE_SIGNALS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* From here on signals set flags. For commands that check the flags often enough; without it SIGINT and
 * SIGTERM end the process as usual. Calls are not interrupted (SA_RESTART). */
void mst_signals_install(void);

/* Set by SIGINT, SIGTERM and SIGHUP; for feeds, budgets and loops. Never NULL. */
const atomic_bool *mst_signals_stop(void);

/* MST_ESTOPPED with "stopped; WHAT" once a signal has arrived; main adds the signal. */
mst_status mst_signals_check(const char *what);

/* "SIGINT", "SIGTERM" or "SIGHUP": the signal that arrived; NULL if none did. */
const char *mst_signals_name(void);

/* For commands whose event loop catches signals: name and exit code are those of the first signal noted. */
void mst_signals_note(int number);

/* Exit code for a status: 128 + the signal for MST_ESTOPPED (SIGTERM if another process of the job got the
 * signal), else mst_status_exit_code. Also from a signal handler. */
int mst_signals_exit_code(mst_status status);

/* The signal that stopped a muster with this exit code in good order; 0: none. */
int mst_signals_of_exit_code(int code);

/* True once per SIGUSR1 (several that arrive together count as one). */
bool mst_signals_take_checkpoint(void);

/* The name of any signal, "SIGTERM"; out is returned. */
const char *mst_signal_name(int number, char *out, size_t size);

#endif
