/* `muster sweep --auto`: runs the rounds of a search by successive halving (sweep/halving.h). */
#ifndef MST_CLI_SWEEP_AUTO_H
#define MST_CLI_SWEEP_AUTO_H

#include "launch/sweep_runs.h"

/* Runs rounds until the target is reached, no candidate is left, or a round would be longer than timeout_s.
 * sweep->search records the tries; it is saved after every run, and a search continues from it. MST_OK also
 * when nothing was found, or a signal stopped it. The sweep must have a target (mst_sweep_until). */
mst_status mst_sweep_auto(mst_sweep *sweep, mst_runner *runner, double first_s, double timeout_s);

/* Batch sizes that are tried when the grid names none; NULL-terminated. */
extern const char *const mst_auto_batches[];

#endif
