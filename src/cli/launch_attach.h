/* `muster launch --attach JOB`: the output of a detached job. */
#ifndef MST_CLI_LAUNCH_ATTACH_H
#define MST_CLI_LAUNCH_ATTACH_H

#include "base/status.h"

/* Shows the output of a detached job from its beginning, until the job has ended. The exit code is that of
 * the job. A signal ends this process only. */
mst_status mst_launch_attach(const char *job);

#endif
