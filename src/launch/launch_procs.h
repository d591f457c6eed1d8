/* The table of processes that `launch` and `doctor --cluster` start: spawning, their lines, their ends.
 *
 * It knows how a process is started, stopped and heard, and nothing of what it is for: whether an end is a
 * failure, and what follows from it, is decided by whoever listens (cmd_launch.c). A process that is started
 * again is a new one with a new id.
 *
 * Nothing is left behind: every process leads a process group of its own, which is killed when it ends; and
 * every process holds the reading end of a pipe whose writing end only this process has. A muster that is
 * told so (parent_pipe.h) ends when that pipe is closed, which also happens when this process is killed; for
 * processes behind ssh the pipe is the channel's standard input.
 *
 * Thread: the loop's. Events come from within uv_run. Nothing waits but mst_procs_destroy, for 2 s at most.
 */
#ifndef MST_LAUNCH_LAUNCH_PROCS_H
#define MST_LAUNCH_LAUNCH_PROCS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/status.h"

typedef struct mst_procs mst_procs;

typedef struct mst_proc_events {
    /* A line without its newline; the last one also when it has none. Lines beyond 64 KB come in parts. */
    void (*line)(void *arg, uint32_t tag, bool is_error, const char *text, size_t n);
    /* Once per process, after its last line. signal is 0 unless one ended it. */
    void (*ended)(void *arg, uint32_t tag, int code, int signal);
} mst_proc_events;

typedef struct mst_proc_start {
    uint32_t tag;            /* the caller's number, which events repeat */
    const char *const *argv; /* argv[0] is looked for along PATH */
    const char *const *env;  /* NULL: this process's */
    const char *input;       /* written to its standard input, which stays open; copied. NULL: nothing */
    size_t n_input;
    bool by_channel; /* it is reached through its standard input only (behind ssh): signals go that way */
} mst_proc_start;

/* *out is the caller's to destroy; set only on MST_OK. The loop outlives it. */
mst_status mst_procs_new(uv_loop_t *loop, const mst_proc_events *events, void *arg, mst_procs **out);
/* Kills what still runs and lets go of everything; no event is called any more. NULL-safe. */
void mst_procs_destroy(mst_procs *procs);

/* MST_EIO, naming the program, when it cannot be started; no event follows then. */
mst_status mst_procs_start(mst_procs *procs, const mst_proc_start *start, uint32_t *id);

/* Asks it to end: SIGTERM to its group, which is continued if it is stopped, or the end of its standard
 * input. No effect on one that has ended. */
void mst_procs_stop(mst_procs *procs, uint32_t id);
/* The same with SIGINT, SIGTERM or SIGHUP, so that the process can name the signal that came. */
void mst_procs_stop_by(mst_procs *procs, uint32_t id, int number);
/* SIGKILL to its group; behind ssh that closes the channel, which kills the process there after its own
 * grace. */
void mst_procs_kill(mst_procs *procs, uint32_t id);
/* SIGUSR1, or the letter for it on its standard input. */
void mst_procs_checkpoint(mst_procs *procs, uint32_t id);
/* Writes to its standard input; MST_EPEER when that is closed. */
mst_status mst_procs_write(mst_procs *procs, uint32_t id, const char *text, size_t n);

/* Of one that has been started. */
int mst_procs_pid(const mst_procs *procs, uint32_t id);

uint32_t mst_procs_running(const mst_procs *procs);

#endif
