/* A loop with signals; contract in signal_loop.h. */
#include "launch/signal_loop.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/signals.h"

static const int numbers[4] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};

static void on_any(uv_signal_t *handle, int number)
{
    const mst_signal_loop *self = (const mst_signal_loop *)handle->loop; /* its first member */
    if (number != SIGUSR1)
        mst_signals_note(number);
    self->on_signal(handle, number);
}

/* As a process under nohup has it. */
static bool is_ignored(int number)
{
    struct sigaction now;
    return number == SIGHUP && sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

mst_status mst_signal_loop_init(mst_signal_loop *self, uv_signal_cb on_signal, bool checkpoints, void *arg)
{
    size_t n = on_signal == NULL ? 0 : checkpoints ? 4 : 3;
    if (uv_loop_init(&self->uv) != 0)
        return mst_fail(MST_EIO, "no event loop");
    self->is_open = true;
    self->on_signal = on_signal;
    for (size_t i = 0; i < n; i++) {
        uv_signal_init(&self->uv, &self->signals[i]);
        self->signals[i].data = arg;
        if (!is_ignored(numbers[i]) && uv_signal_start(&self->signals[i], on_any, numbers[i]) != 0)
            return mst_fail(MST_EIO, "signals cannot be caught");
    }
    return MST_OK;
}

static void close_one(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

void mst_signal_loop_fini(mst_signal_loop *self)
{
    if (!self->is_open)
        return;
    uv_walk(&self->uv, close_one, NULL);
    uv_run(&self->uv, UV_RUN_DEFAULT);
    uv_loop_close(&self->uv);
    self->is_open = false;
}

void mst_signal_loop_timer(mst_signal_loop *self, uv_timer_t *timer, void *arg)
{
    uv_timer_init(&self->uv, timer);
    timer->data = arg;
}
