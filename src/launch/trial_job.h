/* A short job of one server and one worker on this host: `muster plan` measures the costs of a step with it.
 */
#ifndef MST_LAUNCH_TRIAL_JOB_H
#define MST_LAUNCH_TRIAL_JOB_H

#include <stdint.h>

#include "base/status.h"
#include "base/text_list.h"

#define MST_TRIAL_LIMIT_S 120 /* after which a trial that has not ended is stopped */

/* Runs `muster launch` for that many seconds of synchronous training with that batch, without evaluation and
 * without saving, and leaves the run directory. words: train and the words after it. Messages have the
 * protection of those between hosts. MST_EIO with the error of the job; MST_ESTOPPED after a signal. Waits
 * for the end of the job. */
mst_status mst_trial_job(const mst_text_list *words, int64_t batch, double seconds, const char *run);

#endif
