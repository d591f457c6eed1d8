/* The supervisor; contract in supervisor.h. */
#include "launch/supervisor.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/signals.h"
#include "launch/launch_remote.h"
#include "launch/parent_pipe.h"

#define DESTROY_NS (2 * MST_S)

struct mst_supervisor {
    uv_loop_t loop;
    bool loop_open, quit;
    uv_signal_t signals[4];
    uv_timer_t destroying;
    const mst_supervisor_events *events; /* NULL: destroy has begun */
    void *arg;
    int stopped_by;
    uint32_t n, n_running, n_waiting;
    mst_child children[];
};

/* ---- lines ---- */

static bool line_begins(const char *text, size_t n, const char *with)
{
    return n >= strlen(with) && memcmp(text, with, strlen(with)) == 0;
}

const char *mst_error_line(const char *text, size_t n, size_t *length)
{
    static const char lead[] = "muster: ";
    if (!line_begins(text, n, lead) || line_begins(text, n, "muster: warning: "))
        return NULL;
    *length = n - strlen(lead);
    return text + strlen(lead);
}

static void child_forget_secret(mst_child *c)
{
    if (c->secret != NULL)
        explicit_bzero(c->secret, strlen(c->secret));
    mst_free(c->secret);
    c->secret = NULL;
}

static void child_remote_started(mst_child *c)
{
    c->remote_started = true;
    if (c->secret != NULL)
        (void)mst_process_write_line(c->process, c->secret); /* a process that has ended is reported */
    child_forget_secret(c);
}

static void child_began(const mst_child *c, const char *text, size_t n)
{
    const mst_supervisor_events *events = c->supervisor->events;
    char run[MST_CHILD_LINE];
    snprintf(run, sizeof run, "%.*s", (int)n, text);
    if (events != NULL && events->on_began != NULL)
        events->on_began(c->supervisor->arg, run);
}

/* Lines for the supervisor; false: it is a line of the program. */
static bool child_take_line(mst_child *c, const char *text, size_t n)
{
    size_t origin = strlen(MST_PARENT_ORIGIN);
    if (n == strlen(MST_REMOTE_STARTED) && line_begins(text, n, MST_REMOTE_STARTED))
        child_remote_started(c);
    else if (line_begins(text, n, MST_PARENT_ORIGIN))
        snprintf(c->origin, sizeof c->origin, "%.*s", (int)(n - origin), text + origin);
    else if (n == strlen(MST_PARENT_FINAL) && line_begins(text, n, MST_PARENT_FINAL))
        c->final = true;
    else if (line_begins(text, n, MST_PARENT_BEGAN))
        child_began(c, text + strlen(MST_PARENT_BEGAN), n - strlen(MST_PARENT_BEGAN));
    else
        return false;
    return true;
}

static void child_line(void *arg, bool is_error, const char *text, size_t n)
{
    mst_child *c = arg;
    size_t length;
    if (is_error && child_take_line(c, text, n))
        return;
    const char *error = is_error ? mst_error_line(text, n, &length) : NULL;
    if (error != NULL)
        snprintf(c->error, sizeof c->error, "%.*s", (int)length, error);
    if (is_error && n > 0)
        snprintf(c->last_line, sizeof c->last_line, "%.*s", (int)n, text);
    if (c->supervisor->events != NULL)
        c->supervisor->events->on_line(c->supervisor->arg, c, is_error, text, n);
}

/* ---- children ---- */

static void child_ended(void *arg, int code, int number)
{
    mst_child *c = arg;
    mst_supervisor *s = c->supervisor;
    uv_timer_stop(&c->timer);
    mst_process_release(c->process);
    c->process = NULL;
    child_forget_secret(c);
    c->running = false;
    c->code = code;
    c->signal = number;
    s->n_running--;
    if (s->events != NULL)
        s->events->on_ended(s->arg, c);
}

mst_status mst_child_start(mst_child *c, const mst_process_start *start)
{
    static const mst_process_events events = {.line = child_line, .ended = child_ended};
    if (start->secret != NULL && start->by_channel && (c->secret = mst_strdup(start->secret)) == NULL)
        return mst_fail_memory();
    mst_status st = mst_process_new(&c->supervisor->loop, start, &events, c, &c->process);
    if (st != MST_OK) {
        child_forget_secret(c);
        return st;
    }
    c->n_starts++;
    c->began_ns = mst_now_ns();
    c->running = true;
    c->remote_started = c->stopping = c->killed = c->final = false;
    c->error[0] = c->last_line[0] = c->origin[0] = '\0';
    c->terminate_ms = start->terminate_ms;
    c->supervisor->n_running++;
    return MST_OK;
}

static void child_grace_over(uv_timer_t *timer)
{
    mst_child *c = timer->data;
    if (c->terminate_ms > 0 && !c->killed) {
        c->killed = true;
        mst_process_terminate(c->process);
        uv_timer_start(timer, child_grace_over, c->terminate_ms, 0);
    } else {
        mst_child_kill(c);
    }
}

uint32_t mst_child_restarts(const mst_child *child)
{
    return child->n_starts > 0 ? child->n_starts - 1 : 0;
}

static void child_pause_over(uv_timer_t *timer)
{
    mst_child *c = timer->data;
    mst_supervisor *s = c->supervisor;
    if (mst_child_cancel(c) && s->events != NULL)
        s->events->on_restart(s->arg, c);
}

mst_restart_verdict mst_child_restart(mst_child *c, uint32_t max_restarts, int number, bool by_others)
{
    uint64_t pause_ms = 0;
    mst_restart_end end = {.code = c->code,
                           .signal = number,
                           .began_ns = c->began_ns,
                           .ended_ns = mst_now_ns(),
                           .by_others = by_others,
                           .first_start = c->n_starts == 1};
    if (c->supervisor->stopped_by != 0)
        return MST_RESTART_SPENT;
    mst_restart_verdict verdict = mst_restarts_decide(&c->restarts, &end, max_restarts, &pause_ms);
    if (verdict == MST_RESTART_AGAIN) {
        c->waiting = true;
        c->supervisor->n_waiting++;
        uv_timer_start(&c->timer, child_pause_over, pause_ms, 0);
    }
    return verdict;
}

bool mst_child_cancel(mst_child *c)
{
    if (!c->waiting)
        return false;
    c->waiting = false;
    c->supervisor->n_waiting--;
    uv_timer_stop(&c->timer);
    return true;
}

void mst_child_stop(mst_child *c, int number, uint64_t grace_ms)
{
    if (!c->running)
        return;
    c->stopping = true;
    mst_process_stop(c->process, number);
    uv_timer_start(&c->timer, child_grace_over, grace_ms, 0);
}

void mst_child_kill(mst_child *c)
{
    if (!c->running)
        return;
    c->killed = true;
    mst_process_kill(c->process);
}

void mst_child_checkpoint(mst_child *c)
{
    if (c->running)
        mst_process_checkpoint(c->process);
}

mst_status mst_child_write(mst_child *c, const char *text, size_t n)
{
    return c->running ? mst_process_write(c->process, text, n) : mst_fail(MST_EPEER, "the process has ended");
}

/* ---- signals ---- */

static void supervisor_kill_all(mst_supervisor *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        mst_child_kill(&s->children[i]);
}

static void supervisor_signal(uv_signal_t *handle, int number)
{
    mst_supervisor *s = handle->data;
    if (number == SIGUSR1) {
        s->events->on_checkpoint(s->arg);
        return;
    }
    mst_signals_note(number);
    if (s->stopped_by != 0) {
        supervisor_kill_all(s);
        return;
    }
    s->stopped_by = number;
    s->events->on_stop(s->arg, number);
}

/* As in a process under nohup. */
static bool supervisor_ignores(int number)
{
    struct sigaction now;
    return number == SIGHUP && sigaction(number, NULL, &now) == 0 && now.sa_handler == SIG_IGN;
}

static mst_status supervisor_catch(mst_supervisor *s)
{
    static const int numbers[4] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    size_t n = s->events->on_stop == NULL ? 0 : s->events->on_checkpoint != NULL ? 4 : 3;
    for (size_t i = 0; i < n; i++) {
        uv_signal_init(&s->loop, &s->signals[i]);
        s->signals[i].data = s;
        if (!supervisor_ignores(numbers[i]) &&
            uv_signal_start(&s->signals[i], supervisor_signal, numbers[i]) != 0)
            return mst_fail(MST_EIO, "signals cannot be caught");
    }
    return MST_OK;
}

/* ---- life ---- */

mst_status mst_supervisor_new(uint32_t n, const mst_supervisor_events *events, void *arg,
                              mst_supervisor **out)
{
    mst_supervisor *s = mst_zalloc(sizeof *s + n * sizeof *s->children);
    if (s == NULL)
        return mst_fail_memory();
    s->events = events;
    s->arg = arg;
    mst_status st = uv_loop_init(&s->loop) == 0 ? MST_OK : mst_fail(MST_EIO, "no event loop");
    if (st == MST_OK) {
        s->loop_open = true;
        s->n = n;
        mst_supervisor_timer(s, &s->destroying, s);
        for (uint32_t i = 0; i < n; i++) {
            s->children[i].supervisor = s;
            s->children[i].index = i;
            mst_supervisor_timer(s, &s->children[i].timer, &s->children[i]);
        }
        st = supervisor_catch(s);
    }
    if (st != MST_OK) {
        mst_supervisor_destroy(s);
        return st;
    }
    *out = s;
    return MST_OK;
}

static void supervisor_wake(uv_timer_t *timer)
{
    (void)timer; /* so that uv_run returns */
}

static void supervisor_close(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

void mst_supervisor_destroy(mst_supervisor *s)
{
    if (s == NULL)
        return;
    if (s->loop_open) {
        uint64_t deadline = mst_now_ns() + DESTROY_NS;
        for (size_t i = 0; i < sizeof s->signals / sizeof *s->signals; i++)
            if (s->signals[i].data != NULL)
                uv_signal_stop(&s->signals[i]);
        s->events = NULL;
        supervisor_kill_all(s);
        uv_timer_start(&s->destroying, supervisor_wake, DESTROY_NS / MST_MS, 0);
        while (s->n_running > 0 && mst_now_ns() < deadline)
            uv_run(&s->loop, UV_RUN_ONCE);
        for (uint32_t i = 0; i < s->n; i++) {
            mst_process_release(s->children[i].process);
            child_forget_secret(&s->children[i]);
        }
        uv_run(&s->loop, UV_RUN_NOWAIT);
        uv_walk(&s->loop, supervisor_close, NULL);
        uv_run(&s->loop, UV_RUN_DEFAULT);
        uv_loop_close(&s->loop);
    }
    mst_free(s);
}

mst_child *mst_supervisor_child(mst_supervisor *s, uint32_t index)
{
    return &s->children[index];
}

int mst_supervisor_stopped_by(const mst_supervisor *s)
{
    return s->stopped_by;
}

void mst_supervisor_run(mst_supervisor *s)
{
    s->quit = false;
    while (s->n_running + s->n_waiting > 0 && !s->quit)
        uv_run(&s->loop, UV_RUN_ONCE);
}

void mst_supervisor_quit(mst_supervisor *s)
{
    s->quit = true;
}

void mst_supervisor_turn(mst_supervisor *s)
{
    uv_run(&s->loop, UV_RUN_ONCE);
}

uv_loop_t *mst_supervisor_loop(mst_supervisor *s)
{
    return &s->loop;
}

void mst_supervisor_timer(mst_supervisor *s, uv_timer_t *timer, void *arg)
{
    uv_timer_init(&s->loop, timer);
    timer->data = arg;
}
