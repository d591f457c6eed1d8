/* The sink of a launched job: launch/ hands all output to it and prints nothing itself. cli/job_output.c is
 * the one of `muster launch`. */
#ifndef MST_LAUNCH_LAUNCH_SINK_H
#define MST_LAUNCH_LAUNCH_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct mst_launch_sink {
    void *arg;
    /* A line of process i, whose name is "server 0" (valid until the job has ended), without its newline. */
    void (*line)(void *arg, uint32_t i, const char *name, bool is_error, const char *text, size_t n);
    /* A line of the supervisor's own. */
    void (*note)(void *arg, const char *text);
} mst_launch_sink;

/* Formats a line for note. */
void mst_launch_note(const mst_launch_sink *sink, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
