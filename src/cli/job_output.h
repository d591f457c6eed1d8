/* The output of `muster launch`: the lines of the processes of a job, each whole and with the name of its
 * process in front, on this process's own streams, and without the name in a log file per process.
 *
 * A line is written with one call, so that lines never mix. A stream without a reader is given up; logs that
 * cannot be made or written are given up with one warning. Thread: one. */
#ifndef MST_CLI_JOB_OUTPUT_H
#define MST_CLI_JOB_OUTPUT_H

#include <stdbool.h>

#include "base/status.h"
#include "launch/launch_sink.h"

typedef struct mst_job_output mst_job_output;

/* folder: for the logs, made with the first line ("server 0": FOLDER/server-0.log); NULL: no logs. plain:
 * standard output is that of process 0 alone, without its name, and the lines of the others go to standard
 * error. *out is the caller's to destroy; set only on MST_OK. */
mst_status mst_job_output_new(const char *folder, bool plain, mst_job_output **out);
void mst_job_output_destroy(mst_job_output *output); /* NULL-safe */

mst_launch_sink mst_job_output_sink(mst_job_output *output);

#endif
