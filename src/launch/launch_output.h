/* The lines of launched processes: each whole and with its process's name in front on this process's own
 * streams, and as it is in a log file per process.
 *
 * A line is written with one call, so that lines never mix. A stream that nobody reads any more is given up;
 * logs that cannot be made, or written, are given up with one warning. Thread: one. */
#ifndef MST_LAUNCH_LAUNCH_OUTPUT_H
#define MST_LAUNCH_LAUNCH_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mst_output mst_output;

/* n processes, whose names are set before their first line. folder: for the logs, made with the first line;
 * NULL: no logs. *out is the caller's to destroy; set only on MST_OK. */
mst_status mst_output_new(const char *folder, uint32_t n, mst_output **out);
void mst_output_destroy(mst_output *output); /* NULL-safe */

/* name: "server 0", whose log is FOLDER/server-0.log. Must outlive the output. */
void mst_output_name(mst_output *output, uint32_t i, const char *name);

/* From here on standard output is process i's alone, without its name; the lines of the others go to standard
 * error. */
void mst_output_plain(mst_output *output, uint32_t i);

void mst_output_line(mst_output *output, uint32_t i, bool is_error, const char *text, size_t n);

#endif
