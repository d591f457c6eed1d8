/* `muster launch --attach JOB` and `--add N --job JOB`: commands to a job that runs. */
#ifndef MST_CLI_LAUNCH_ATTACH_H
#define MST_CLI_LAUNCH_ATTACH_H

#include <stdint.h>

#include "base/status.h"

/* Shows the output of a detached job from its beginning, until the job has ended. The exit code is that of
 * the job. A signal ends this process only. */
mst_status mst_launch_attach(const char *job);

/* Has the job start n more workers. */
mst_status mst_launch_add(const char *job, uint32_t n);

#endif
