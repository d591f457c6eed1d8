/* The table of processes; contract in launch_procs.h.
 *
 * Standard streams are plain pipes (libuv's own would be sockets, which a script cannot open as /dev/stderr).
 * A process has ended when it has exited and both its outputs are closed; outputs that something else still
 * holds are let go half a second after the exit.
 *
 * Invariant: a proc's memory lives until the table's end, and the table ends only when all handles are
 * closed. */
#include "launch/launch_procs.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "launch/parent_pipe.h"

#define LINE_MAX_BYTES ((size_t)64 << 10)
#define HELD_OPEN_MS   500
#define DESTROY_NS     (2 * MST_S)

typedef struct proc proc;

typedef struct stream {
    uv_pipe_t pipe;
    proc *owner;
    bool is_error, open;
    char *text; /* of the line that is not complete */
    size_t n, capacity;
} stream;

struct proc {
    mst_procs *table;
    uint32_t id, tag;
    uv_process_t process;
    uv_timer_t held_open;
    uv_pipe_t in;
    stream out[2];
    int pid;
    bool by_channel, in_open, spawned, exited, ended;
    int code, signal;
};

struct mst_procs {
    uv_loop_t *loop;
    mst_proc_events events;
    void *arg;
    bool silent; /* being destroyed */
    proc **all;
    size_t capacity;
    uint32_t n, running, open_handles;
    char buffer[64 << 10]; /* what is being read; only one stream reads at a time */
};

typedef struct write_request {
    uv_write_t request;
    char data[];
} write_request;

mst_status mst_procs_new(uv_loop_t *loop, const mst_proc_events *events, void *arg, mst_procs **out)
{
    mst_procs *p = mst_zalloc(sizeof *p);
    if (p == NULL)
        return mst_fail_memory();
    p->loop = loop;
    p->events = *events;
    p->arg = arg;
    *out = p;
    return MST_OK;
}

static void on_closed(uv_handle_t *handle)
{
    proc *p = handle->data;
    p->table->open_handles--;
}

static void close_handle(proc *p, void *handle)
{
    uv_handle_t *h = handle;
    h->data = p; /* streams read with another meaning until here */
    uv_close(h, on_closed);
}

/* ---- lines ---- */

static void emit(stream *s, const char *text, size_t n)
{
    mst_procs *t = s->owner->table;
    if (n > 0 && text[n - 1] == '\r')
        n--;
    if (!t->silent)
        t->events.line(t->arg, s->owner->tag, s->is_error, text, n);
}

static bool fits(stream *s, size_t n)
{
    return s->n + n <= LINE_MAX_BYTES && mst_grow(&s->text, &s->capacity, s->n + n, 1);
}

/* Keeps the beginning of a line; one that is too long, or for which there is no memory, comes in parts. */
static void keep(stream *s, const char *text, size_t n)
{
    if (n == 0)
        return;
    if (!fits(s, n) && s->n > 0) {
        emit(s, s->text, s->n);
        s->n = 0;
    }
    if (!fits(s, n)) {
        emit(s, text, n);
        return;
    }
    memcpy(s->text + s->n, text, n);
    s->n += n;
}

static void take(stream *s, const char *text, size_t n)
{
    const char *end;
    while (n > 0 && (end = memchr(text, '\n', n)) != NULL) {
        size_t length = (size_t)(end - text);
        if (s->n > 0) {
            keep(s, text, length);
            emit(s, s->text, s->n);
            s->n = 0;
        } else {
            emit(s, text, length);
        }
        n -= length + 1;
        text = end + 1;
    }
    keep(s, text, n);
}

/* ---- ends ---- */

static void check_end(proc *p)
{
    if (p->ended || !p->exited || p->out[0].open || p->out[1].open)
        return;
    p->ended = true;
    p->table->running--;
    uv_timer_stop(&p->held_open);
    if (!p->table->silent)
        p->table->events.ended(p->table->arg, p->tag, p->code, p->signal);
}

static void close_stream(stream *s)
{
    if (!s->open)
        return;
    s->open = false;
    if (s->n > 0)
        emit(s, s->text, s->n);
    s->n = 0;
    close_handle(s->owner, &s->pipe);
}

static void close_input(proc *p)
{
    if (p->in_open)
        close_handle(p, &p->in);
    p->in_open = false;
}

static void on_alloc(uv_handle_t *handle, size_t wish, uv_buf_t *out)
{
    stream *s = handle->data;
    (void)wish;
    *out = uv_buf_init(s->owner->table->buffer, sizeof s->owner->table->buffer);
}

static void on_read(uv_stream_t *handle, ssize_t n, const uv_buf_t *buffer)
{
    stream *s = handle->data;
    if (n > 0) {
        take(s, buffer->base, (size_t)n);
    } else if (n < 0) {
        proc *p = s->owner;
        close_stream(s);
        check_end(p);
    }
}

static void on_held_open(uv_timer_t *timer)
{
    proc *p = timer->data;
    close_stream(&p->out[0]);
    close_stream(&p->out[1]);
    check_end(p);
}

static void on_exit(uv_process_t *process, int64_t code, int signal)
{
    proc *p = process->data;
    p->exited = true;
    p->code = (int)code;
    p->signal = signal;
    kill(-p->pid, SIGKILL); /* what it left in its group */
    close_input(p);
    uv_timer_start(&p->held_open, on_held_open, HELD_OPEN_MS, 0);
    check_end(p);
}

/* ---- starting ---- */

static void on_written(uv_write_t *request, int status)
{
    (void)status; /* who does not read ends, and that is what is reported */
    mst_free(request->data);
}

mst_status mst_procs_write(mst_procs *procs, uint32_t id, const char *text, size_t n)
{
    proc *p = procs->all[id];
    if (!p->in_open)
        return mst_fail(MST_EPEER, "the process does not listen any more");
    write_request *w = mst_alloc(sizeof *w + n);
    if (w == NULL)
        return mst_fail_memory();
    memcpy(w->data, text, n);
    w->request.data = w;
    uv_buf_t piece = uv_buf_init(w->data, (unsigned)n);
    if (uv_write(&w->request, (uv_stream_t *)&p->in, &piece, 1, on_written) != 0) {
        mst_free(w);
        return mst_fail(MST_EPEER, "the process does not listen any more");
    }
    return MST_OK;
}

/* Handles that can be closed from here on, whatever follows. */
static mst_status init_handles(mst_procs *t, proc *p)
{
    if (uv_pipe_init(t->loop, &p->in, 0) != 0 || uv_pipe_init(t->loop, &p->out[0].pipe, 0) != 0 ||
        uv_pipe_init(t->loop, &p->out[1].pipe, 0) != 0 || uv_timer_init(t->loop, &p->held_open) != 0)
        return mst_fail(MST_EIO, "no event handles for another process");
    t->open_handles += 4;
    p->in_open = p->out[0].open = p->out[1].open = true;
    p->held_open.data = p;
    for (int i = 0; i < 2; i++) {
        p->out[i].owner = p;
        p->out[i].is_error = i == 1;
        p->out[i].pipe.data = &p->out[i];
    }
    return MST_OK;
}

/* Makes the three pipes; theirs receives the ends for the process. */
static mst_status open_pipes(proc *p, uv_file theirs[3])
{
    uv_pipe_t *ours[3] = {&p->in, &p->out[0].pipe, &p->out[1].pipe};
    for (int i = 0; i < 3; i++) {
        uv_file ends[2]; /* reading, writing */
        bool in = i == 0;
        int rc = uv_pipe(ends, in ? 0 : UV_NONBLOCK_PIPE, in ? UV_NONBLOCK_PIPE : 0);
        if (rc != 0)
            return mst_fail(MST_EIO, "no pipe for another process: %s", uv_strerror(rc));
        theirs[i] = ends[in ? 0 : 1];
        rc = uv_pipe_open(ours[i], ends[in ? 1 : 0]);
        if (rc != 0) {
            close(ends[in ? 1 : 0]);
            return mst_fail(MST_EIO, "no pipe for another process: %s", uv_strerror(rc));
        }
    }
    return MST_OK;
}

static mst_status spawn(mst_procs *t, proc *p, const mst_proc_start *start, const uv_file theirs[3])
{
    uv_stdio_container_t stdio[3];
    for (int i = 0; i < 3; i++)
        stdio[i] = (uv_stdio_container_t){.flags = UV_INHERIT_FD, .data.fd = theirs[i]};
    uv_process_options_t options = {
        .exit_cb = on_exit,
        .file = start->argv[0],
        .args = (char **)start->argv,
        .env = (char **)start->env,
        .flags = UV_PROCESS_DETACHED, /* a session of its own: the terminal's Ctrl-C comes here only */
        .stdio_count = 3,
        .stdio = stdio,
    };
    int rc = uv_spawn(t->loop, &p->process, &options);
    t->open_handles++;
    p->process.data = p;
    p->spawned = true; /* also on failure: the handle wants closing */
    if (rc != 0)
        return mst_fail(MST_EIO, "%s cannot be started: %s", start->argv[0], uv_strerror(rc));
    p->pid = uv_process_get_pid(&p->process);
    return MST_OK;
}

/* A process that never was: its handles go, and nobody hears of it. */
static void abandon(proc *p)
{
    p->ended = p->exited = true;
    p->out[0].n = p->out[1].n = 0;
    close_stream(&p->out[0]);
    close_stream(&p->out[1]);
    close_input(p);
}

mst_status mst_procs_start(mst_procs *procs, const mst_proc_start *start, uint32_t *id)
{
    mst_status st;
    uv_file theirs[3] = {-1, -1, -1};
    if (!mst_grow(&procs->all, &procs->capacity, procs->n + 1, sizeof(proc *)))
        return mst_fail_memory();
    proc *p = mst_zalloc(sizeof *p);
    if (p == NULL)
        return mst_fail_memory();
    *p = (proc){.table = procs, .id = procs->n, .tag = start->tag, .by_channel = start->by_channel};
    st = init_handles(procs, p);
    if (st != MST_OK) {
        mst_free(p);
        return st;
    }
    procs->all[procs->n++] = p;
    TRY_OUT(st, open_pipes(p, theirs));
    if (start->n_input > 0) /* waits in the pipe, so that nothing can fail once the process runs */
        TRY_OUT(st, mst_procs_write(procs, p->id, start->input, start->n_input));
    TRY_OUT(st, spawn(procs, p, start, theirs));
    procs->running++;
    *id = p->id;
    uv_read_start((uv_stream_t *)&p->out[0].pipe, on_alloc, on_read);
    uv_read_start((uv_stream_t *)&p->out[1].pipe, on_alloc, on_read);
out:
    for (int i = 0; i < 3; i++)
        if (theirs[i] >= 0)
            close(theirs[i]);
    if (p->pid == 0)
        abandon(p);
    return st;
}

/* ---- signals ---- */

void mst_procs_stop_by(mst_procs *procs, uint32_t id, int number)
{
    proc *p = procs->all[id];
    if (p->exited)
        return;
    if (p->by_channel) {
        if (number == SIGINT || number == SIGHUP)
            (void)mst_procs_write(procs, id, number == SIGINT ? MST_PARENT_INT : MST_PARENT_HUP, 1);
        close_input(p);
    } else if (kill(-p->pid, number) == 0) {
        kill(-p->pid, SIGCONT); /* a stopped one would not hear it */
    }
}

void mst_procs_stop(mst_procs *procs, uint32_t id)
{
    mst_procs_stop_by(procs, id, SIGTERM);
}

void mst_procs_kill(mst_procs *procs, uint32_t id)
{
    proc *p = procs->all[id];
    if (!p->exited)
        kill(-p->pid, SIGKILL);
}

void mst_procs_checkpoint(mst_procs *procs, uint32_t id)
{
    proc *p = procs->all[id];
    if (p->exited)
        return;
    if (p->by_channel)
        (void)mst_procs_write(procs, id, MST_PARENT_CHECKPOINT, 1); /* nobody there: nothing to save */
    else
        kill(p->pid, SIGUSR1);
}

int mst_procs_pid(const mst_procs *procs, uint32_t id)
{
    return procs->all[id]->pid;
}

uint32_t mst_procs_running(const mst_procs *procs)
{
    return procs->running;
}

static void on_nothing(uv_timer_t *timer)
{
    (void)timer;
}

void mst_procs_destroy(mst_procs *procs)
{
    if (procs == NULL)
        return;
    procs->silent = true;
    uint64_t deadline = mst_now_ns() + DESTROY_NS;
    for (uint32_t i = 0; i < procs->n; i++) {
        mst_procs_kill(procs, i);
        if (!procs->all[i]->exited) /* so that uv_run returns */
            uv_timer_start(&procs->all[i]->held_open, on_nothing, DESTROY_NS / MST_MS, 0);
    }
    while (procs->running > 0 && mst_now_ns() < deadline)
        uv_run(procs->loop, UV_RUN_ONCE);
    for (uint32_t i = 0; i < procs->n; i++) {
        proc *p = procs->all[i];
        close_stream(&p->out[0]);
        close_stream(&p->out[1]);
        close_input(p);
        close_handle(p, &p->held_open);
        if (p->spawned)
            close_handle(p, &p->process);
    }
    while (procs->open_handles > 0)
        uv_run(procs->loop, UV_RUN_ONCE);
    for (uint32_t i = 0; i < procs->n; i++) {
        mst_free(procs->all[i]->out[0].text);
        mst_free(procs->all[i]->out[1].text);
        mst_free(procs->all[i]);
    }
    mst_free(procs->all);
    mst_free(procs);
}
