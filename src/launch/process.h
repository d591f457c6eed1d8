/* One process that the supervisor has started: its pipes, its lines, its end. Only supervisor.c uses this.
 *
 * The process leads a process group of its own, which is killed when the process has exited. Its standard
 * input is a pipe whose writing end only this process has: a muster that is started with MST_PARENT_ENV
 * (parent_pipe.h) ends when that pipe is closed, which also happens when this process is killed. Behind ssh
 * the pipe is the standard input of the channel.
 *
 * Thread: the loop's. Events come from within uv_run. Nothing waits. */
#ifndef MST_LAUNCH_PROCESS_H
#define MST_LAUNCH_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/status.h"

typedef struct mst_process mst_process;

typedef struct mst_process_events {
    /* A line without its newline; the last one also if it has none. A line of more than 64 KB comes in
     * parts. */
    void (*line)(void *arg, bool is_error, const char *text, size_t n);
    /* Once, after the last line. signal is 0 unless one ended the process. */
    void (*ended)(void *arg, int code, int signal);
} mst_process_events;

typedef struct mst_process_start {
    const char *const *argv; /* argv[0] is searched for along PATH */
    const char *const *env;  /* NULL: this process's */
    const char *input;       /* written to its standard input, which stays open; copied. NULL: nothing */
    size_t n_input;
    const char
        *secret;     /* a line for its standard input: after input, or behind ssh once the program has
                        started there (MST_REMOTE_STARTED), so that no shell reads it; copied. NULL: none */
    bool by_channel; /* it is reached only through its standard input (behind ssh): signals go that way */
    uint32_t terminate_ms; /* >0: it is a launcher (of MPI), whose own children lead groups of their own. Once
                              the grace of a stop is over it gets SIGTERM and this long to end them; a kill
                              includes its descendants */
} mst_process_start;

/* *out is the caller's to release; set only on MST_OK. MST_EIO, naming the program, if it cannot be started;
 * no event follows then. The loop outlives the process. */
mst_status mst_process_new(uv_loop_t *loop, const mst_process_start *start, const mst_process_events *events,
                           void *arg, mst_process **out);
/* Closes the handles; the loop frees the memory when it has closed them. No event is called any more.
 * NULL-safe. */
void mst_process_release(mst_process *self);

/* Requests the end: the signal to its group, which is continued if it is stopped; or, through the channel,
 * the end of its standard input. No effect on a process that has exited; so it is with the calls below. */
void mst_process_stop(mst_process *self, int number);
/* SIGTERM to the process alone. */
void mst_process_terminate(mst_process *self);
/* SIGKILL to its group, and to the descendants of a launcher. Behind ssh this closes the channel, which kills
 * the process there after its own grace. */
void mst_process_kill(mst_process *self);
/* SIGUSR1, or the byte for it on its standard input. */
void mst_process_checkpoint(mst_process *self);
/* Writes to its standard input; MST_EPEER if that is closed. */
mst_status mst_process_write(mst_process *self, const char *text, size_t n);
mst_status mst_process_write_line(mst_process *self, const char *text);

#endif
