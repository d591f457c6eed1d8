/* Signals as flags. SIGINT and SIGTERM ask to stop, a second SIGINT ends the process at once with exit code
 * 130; SIGUSR1 asks for a checkpoint. */
#ifndef MST_CLI_SIGNALS_H
#define MST_CLI_SIGNALS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/status.h"

/* From here on signals set flags. For commands that look at the flags often enough; without it SIGINT and
 * SIGTERM end the process as usual. Calls are not interrupted (SA_RESTART). */
void mst_signals_install(void);

/* Set by SIGINT and SIGTERM; what feeds, budgets and walks are given. Never NULL. */
const atomic_bool *mst_signals_stop(void);

/* MST_ESTOPPED with "stopped by SIGINT; WHAT" once a signal has asked to stop. */
mst_status mst_signals_check(const char *what);

/* "SIGINT" or "SIGTERM": who asked to stop; NULL when nobody did. */
const char *mst_signals_name(void);

/* True once per SIGUSR1 (several that came together count as one). */
bool mst_signals_take_checkpoint(void);

#endif
