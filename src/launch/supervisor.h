/* The supervisor: the processes that one command starts (`launch`, `launch --mpi`, `sweep`, `doctor
 * --cluster`), the event loop, and the signals of this process.
 *
 * The supervisor starts, stops and kills processes, collects their lines and their ends, and records what all
 * commands need of them (mst_child). The policy is the command's: on_ended decides whether an end is a
 * failure and what follows. It may request a restart of the same child (mst_child_restart), which keeps its
 * index and its name.
 *
 * Stopping a child: it receives SIGTERM (mst_supervisor_stop), and is killed when the grace period is over.
 * Signals: on_stop gets the first SIGINT, SIGTERM or SIGHUP; a second one kills all children.
 * No process is left behind, also if this process is killed (process.h).
 *
 * Thread: the one that made it. Events come from within run and turn. Nothing else waits but destroy, for 2 s
 * at most. */
#ifndef MST_LAUNCH_SUPERVISOR_H
#define MST_LAUNCH_SUPERVISOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "base/status.h"
#include "launch/process.h"
#include "launch/restarts.h"

#define MST_CHILD_LINE 900

typedef struct mst_supervisor mst_supervisor;

/* A process of the supervisor, from its first start on. The supervisor writes all fields but name. */
typedef struct mst_child {
    mst_supervisor *supervisor;
    uint32_t index;
    char name[24]; /* "server 0"; the owner's */
    uint32_t n_starts;
    uint64_t began_ns;              /* of the last start */
    bool running;                   /* started, and has not ended since */
    bool remote_started;            /* the program has begun on the other host (MST_REMOTE_STARTED) */
    bool waiting;                   /* for its restart */
    bool stopping, killed;          /* since its last start: SIGTERM was sent; killed by the supervisor */
    bool final;                     /* a restart does not help against its failure (MST_PARENT_FINAL) */
    int code, signal;               /* of its last end; signal is 0 unless one ended it */
    char error[MST_CHILD_LINE];     /* the last error it printed ("muster: ..."), since its last start */
    char last_line[MST_CHILD_LINE]; /* its last line on standard error that is not empty, since its last start
                                     */
    char origin[24]; /* the process that its failure began in (MST_PARENT_ORIGIN); "": this one */
    /* The supervisor's own. */
    mst_process *process;
    uv_timer_t timer; /* running: its grace; waiting: the pause before its restart */
    uint32_t terminate_ms;
    char *secret; /* to write once the program has started on the other host; NULL: none, or written */
    mst_restarts restarts;
} mst_child;

typedef struct mst_supervisor_events {
    /* A line of a child without its newline. Lines that are meant for the supervisor do not come here. */
    void (*on_line)(void *arg, mst_child *child, bool is_error, const char *text, size_t n);
    /* Training has begun in this run (MST_PARENT_BEGAN). NULL: no child trains. */
    void (*on_began)(void *arg, const char *run);
    /* Once per start, after the last line. May call mst_child_restart. */
    void (*on_ended)(void *arg, mst_child *child);
    /* The pause that mst_child_restart began is over: starts the child. NULL: no child is restarted. */
    void (*on_restart)(void *arg, mst_child *child);
    /* The first SIGINT, SIGTERM or SIGHUP. NULL: signals are left alone, these and SIGUSR1. */
    void (*on_stop)(void *arg, int number);
    /* SIGUSR1. NULL: it is left alone. */
    void (*on_checkpoint)(void *arg);
} mst_supervisor_events;

/* n children, none of which is started. Signals are caught until destroy; SIGHUP stays ignored if it is
 * (nohup). events and arg outlive the supervisor. *out is the caller's to destroy; set only on MST_OK. */
mst_status mst_supervisor_new(uint32_t n, const mst_supervisor_events *events, void *arg,
                              mst_supervisor **out);
/* Kills the children that run and frees everything; no event is called any more. NULL-safe. */
void mst_supervisor_destroy(mst_supervisor *self);

mst_child *mst_supervisor_child(mst_supervisor *self, uint32_t index);
/* The first signal that requested to stop; 0: none did. */
int mst_supervisor_stopped_by(const mst_supervisor *self);

/* Starts a child that does not run. MST_EIO, naming the program, if it cannot be started. */
mst_status mst_child_start(mst_child *child, const mst_process_start *start);
/* Decides by the restart policy (restarts.h) whether a child that has died is started again, and begins the
 * pause before it (waiting). MST_RESTART_SPENT also after a signal that requested to stop. number: the
 * signal that ended it, which a shell in between may hide. by_others: another process caused its end. */
mst_restart_verdict mst_child_restart(mst_child *child, uint32_t max_restarts, int number, bool by_others);
/* Ends the wait for a restart. False: the child does not wait. */
bool mst_child_cancel(mst_child *child);
uint32_t mst_child_restarts(const mst_child *child);
/* Requests its end by SIGINT, SIGTERM or SIGHUP, and kills it if it runs grace_ms later. A second call
 * restarts the grace time. This and the calls below have no effect on a child that does not run. */
void mst_child_stop(mst_child *child, int number, uint64_t grace_ms);
void mst_child_kill(mst_child *child);
void mst_child_checkpoint(mst_child *child);
/* Writes to its standard input; MST_EPEER if that is closed. */
mst_status mst_child_write(mst_child *child, const char *text, size_t n);

/* Handles events until no child runs or waits for its restart, or mst_supervisor_quit is called within one.
 */
void mst_supervisor_run(mst_supervisor *self);
void mst_supervisor_quit(mst_supervisor *self);
/* Waits for the next events and handles them. */
void mst_supervisor_turn(mst_supervisor *self);

/* For further handles of the command; destroy closes them. */
uv_loop_t *mst_supervisor_loop(mst_supervisor *self);
/* A timer of the loop with arg as its data, not started; destroy closes it. */
void mst_supervisor_timer(mst_supervisor *self, uv_timer_t *timer, void *arg);

/* The message of an error that a muster printed, "muster: MESSAGE"; NULL for any other line. */
const char *mst_error_line(const char *text, size_t n, size_t *length);

#endif
