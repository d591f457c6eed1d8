/* The event loop of a command that starts processes (launch_procs.h): the loop, and this process's signals in
 * it.
 *
 * Thread: the one that runs it. */
#ifndef MST_LAUNCH_SIGNAL_LOOP_H
#define MST_LAUNCH_SIGNAL_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "base/status.h"

typedef struct mst_signal_loop {
    uv_loop_t uv; /* first */
    uv_signal_t signals[4];
    uv_signal_cb on_signal;
    bool is_open;
} mst_signal_loop;

/* Calls on_signal, with arg as the handle's data, at SIGINT, SIGTERM and SIGHUP, and at SIGUSR1 where that is
 * for checkpoints; until fini they do nothing else. The first that is not SIGUSR1 is noted (signals.h);
 * SIGHUP stays ignored where it was (nohup). on_signal NULL: signals are left alone. self, which is zeroes,
 * is the caller's to fini, also on failure. */
mst_status mst_signal_loop_init(mst_signal_loop *self, uv_signal_cb on_signal, bool checkpoints, void *arg);

/* Lets go of every handle in the loop, and of the loop. Processes in it are destroyed before. Safe on zeroes.
 */
void mst_signal_loop_fini(mst_signal_loop *self);

/* A timer of the loop with arg as its data, not started; fini lets go of it. */
void mst_signal_loop_timer(mst_signal_loop *self, uv_timer_t *timer, void *arg);

#endif
