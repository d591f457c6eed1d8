/* The jobs of this user on this host, as folders: $XDG_STATE_HOME/muster/HOST/JOB, or the same below
 * ~/.local/state. The folder outlives the session, which a runtime folder does not.
 *
 *   lock      a file lock that the launching process holds while it runs
 *   job.json  name, process, command, folder, start, grace; after the end of a detached job its outcome
 *   output    the lines of a detached job
 *   control   the socket for requests to the launching process
 *
 * Folders have mode 0700, files 0600. No file contains a secret. The entry of a job that is not detached is
 * removed at its end, that of a detached one, and of a job whose launching process was killed, a week later.
 */
#ifndef MST_LAUNCH_JOB_STATE_H
#define MST_LAUNCH_JOB_STATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define MST_JOB_STATE_PATH 512

/* Letters, digits, dots, dashes and underscores, at most 24, the first no dot. */
bool mst_job_name_valid(const char *name);

/* The path of a file of the job (file NULL: of its folder). MST_EUSAGE without a home folder. */
mst_status mst_job_state_path(const char *job, const char *file, char out[MST_JOB_STATE_PATH]);

/* Whether the launching process of the job runs: it holds the lock. */
bool mst_job_state_runs(const char *job);

/* job.json with "state": running, done, failed, stopped, or lost if its process was killed. MST_EUSAGE, with
 * the names of the jobs that run, if there is no such job. */
mst_status mst_job_state_read(const char *job, json_t **out);

/* The status that a process with this exit code has returned; notes the signal that stopped it. */
mst_status mst_job_state_status(int exit_code);

/* All jobs as an array of such objects, by name. Removes entries that are out of date. */
mst_status mst_job_state_list(json_t **out);

/* Removes the files of the job and its folder. */
void mst_job_state_remove(const char *job);

#endif
