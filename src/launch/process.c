/* One started process; contract in process.h.
 *
 * Standard streams are plain pipes (libuv's own would be sockets, which a script cannot open as /dev/stderr).
 * A process has ended when it has exited and both its outputs are closed. Outputs that another process still
 * holds are closed half a second after the exit.
 *
 * Invariant: the memory stays until the loop has closed the last handle. */
#include "launch/process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "launch/parent_pipe.h"

#define LINE_MAX_BYTES ((size_t)64 << 10)
#define READ_BYTES     ((size_t)16 << 10)
#define HELD_OPEN_MS   500
#define DESCENDANT_MAX 4096

typedef struct process_stream {
    uv_pipe_t pipe;
    mst_process *owner;
    bool is_error, open;
    char *text; /* of the line that is not complete */
    size_t n, capacity;
} process_stream;

struct mst_process {
    mst_process_events events;
    void *arg;
    uv_process_t process;
    uv_timer_t held_open;
    uv_pipe_t in;
    process_stream out[2];
    int pid, code, signal;
    bool by_channel, launcher, in_open, spawned, exited, ended, released;
    uint32_t open_handles;
    char buffer[READ_BYTES]; /* what is being read */
};

typedef struct write_request {
    uv_write_t request;
    size_t n;
    char data[];
} write_request;

static void process_closed(uv_handle_t *handle)
{
    mst_process *p = handle->data;
    if (--p->open_handles > 0 || !p->released)
        return;
    mst_free(p->out[0].text);
    mst_free(p->out[1].text);
    mst_free(p);
}

static void process_close(mst_process *p, void *handle)
{
    uv_handle_t *h = handle;
    h->data = p; /* the data of streams has another meaning until here */
    uv_close(h, process_closed);
}

/* ---- lines ---- */

static void stream_emit(process_stream *s, const char *text, size_t n)
{
    if (n > 0 && text[n - 1] == '\r')
        n--;
    if (!s->owner->released)
        s->owner->events.line(s->owner->arg, s->is_error, text, n);
}

static bool stream_fits(process_stream *s, size_t n)
{
    return s->n + n <= LINE_MAX_BYTES && mst_grow(&s->text, &s->capacity, s->n + n, 1);
}

/* Keeps the beginning of a line; one that is too long, or for which there is no memory, comes in parts. */
static void stream_keep(process_stream *s, const char *text, size_t n)
{
    if (n == 0)
        return;
    if (!stream_fits(s, n) && s->n > 0) {
        stream_emit(s, s->text, s->n);
        s->n = 0;
    }
    if (!stream_fits(s, n)) {
        stream_emit(s, text, n);
        return;
    }
    memcpy(s->text + s->n, text, n);
    s->n += n;
}

static void stream_take(process_stream *s, const char *text, size_t n)
{
    const char *end;
    while (n > 0 && (end = memchr(text, '\n', n)) != NULL) {
        size_t length = (size_t)(end - text);
        if (s->n > 0) {
            stream_keep(s, text, length);
            stream_emit(s, s->text, s->n);
            s->n = 0;
        } else {
            stream_emit(s, text, length);
        }
        n -= length + 1;
        text = end + 1;
    }
    stream_keep(s, text, n);
}

/* ---- ends ---- */

static void process_check_end(mst_process *p)
{
    if (p->ended || !p->exited || p->out[0].open || p->out[1].open)
        return;
    p->ended = true;
    uv_timer_stop(&p->held_open);
    if (!p->released)
        p->events.ended(p->arg, p->code, p->signal);
}

static void stream_close(process_stream *s)
{
    if (!s->open)
        return;
    s->open = false;
    if (s->n > 0)
        stream_emit(s, s->text, s->n);
    s->n = 0;
    process_close(s->owner, &s->pipe);
}

static void process_close_input(mst_process *p)
{
    if (p->in_open)
        process_close(p, &p->in);
    p->in_open = false;
}

static void stream_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    process_stream *s = handle->data;
    (void)suggested;
    *out = uv_buf_init(s->owner->buffer, sizeof s->owner->buffer);
}

static void stream_read(uv_stream_t *handle, ssize_t n, const uv_buf_t *buffer)
{
    process_stream *s = handle->data;
    if (n > 0) {
        stream_take(s, buffer->base, (size_t)n);
    } else if (n < 0) {
        mst_process *p = s->owner;
        stream_close(s);
        process_check_end(p);
    }
}

static void process_held_open(uv_timer_t *timer)
{
    mst_process *p = timer->data;
    stream_close(&p->out[0]);
    stream_close(&p->out[1]);
    process_check_end(p);
}

static void process_exit(uv_process_t *process, int64_t code, int signal)
{
    mst_process *p = process->data;
    p->exited = true;
    p->code = (int)code;
    p->signal = signal;
    kill(-p->pid, SIGKILL); /* what it left in its group */
    process_close_input(p);
    uv_timer_start(&p->held_open, process_held_open, HELD_OPEN_MS, 0);
    process_check_end(p);
}

/* ---- starting ---- */

static void process_written(uv_write_t *request, int status)
{
    write_request *w = request->data;
    (void)status;                  /* a process that does not read ends, and its end is reported */
    explicit_bzero(w->data, w->n); /* it may be a secret */
    mst_free(w);
}

mst_status mst_process_write(mst_process *p, const char *text, size_t n)
{
    if (!p->in_open)
        return mst_fail(MST_EPEER, "the process has closed its standard input");
    write_request *w = mst_alloc(sizeof *w + n);
    if (w == NULL)
        return mst_fail_memory();
    memcpy(w->data, text, n);
    w->n = n;
    w->request.data = w;
    uv_buf_t piece = uv_buf_init(w->data, (unsigned)n);
    if (uv_write(&w->request, (uv_stream_t *)&p->in, &piece, 1, process_written) != 0) {
        mst_free(w);
        return mst_fail(MST_EPEER, "the process has closed its standard input");
    }
    return MST_OK;
}

mst_status mst_process_write_line(mst_process *p, const char *text)
{
    TRY(mst_process_write(p, text, strlen(text)));
    return mst_process_write(p, "\n", 1);
}

/* Handles that can be closed from here on, whatever follows. */
static mst_status process_init_handles(mst_process *p, uv_loop_t *loop)
{
    if (uv_pipe_init(loop, &p->in, 0) != 0 || uv_pipe_init(loop, &p->out[0].pipe, 0) != 0 ||
        uv_pipe_init(loop, &p->out[1].pipe, 0) != 0 || uv_timer_init(loop, &p->held_open) != 0)
        return mst_fail(MST_EIO, "no event handles for another process");
    p->open_handles = 4;
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
static mst_status process_open_pipes(mst_process *p, uv_file theirs[3])
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

static mst_status process_spawn(mst_process *p, uv_loop_t *loop, const mst_process_start *start,
                                const uv_file theirs[3])
{
    uv_stdio_container_t stdio[3];
    for (int i = 0; i < 3; i++)
        stdio[i] = (uv_stdio_container_t){.flags = UV_INHERIT_FD, .data.fd = theirs[i]};
    uv_process_options_t options = {
        .exit_cb = process_exit,
        .file = start->argv[0],
        .args = (char **)start->argv,
        .env = (char **)start->env,
        .flags = UV_PROCESS_DETACHED, /* a session of its own: the terminal's Ctrl-C comes here only */
        .stdio_count = 3,
        .stdio = stdio,
    };
    int rc = uv_spawn(loop, &p->process, &options);
    p->open_handles++;
    p->process.data = p;
    p->spawned = true; /* also on failure: the handle has to be closed */
    if (rc != 0)
        return mst_fail(MST_EIO, "%s cannot be started: %s", start->argv[0], uv_strerror(rc));
    p->pid = uv_process_get_pid(&p->process);
    return MST_OK;
}

void mst_process_release(mst_process *p)
{
    if (p == NULL || p->released)
        return;
    p->released = true;
    p->out[0].n = p->out[1].n = 0;
    stream_close(&p->out[0]);
    stream_close(&p->out[1]);
    process_close_input(p);
    process_close(p, &p->held_open);
    if (p->spawned)
        process_close(p, &p->process);
}

mst_status mst_process_new(uv_loop_t *loop, const mst_process_start *start, const mst_process_events *events,
                           void *arg, mst_process **out)
{
    mst_status st;
    uv_file theirs[3] = {-1, -1, -1};
    mst_process *p = mst_zalloc(sizeof *p);
    if (p == NULL)
        return mst_fail_memory();
    p->events = *events;
    p->arg = arg;
    p->by_channel = start->by_channel;
    p->launcher = start->terminate_ms > 0;
    st = process_init_handles(p, loop);
    if (st != MST_OK) {
        mst_free(p);
        return st;
    }
    TRY_OUT(st, process_open_pipes(p, theirs));
    if (start->n_input > 0) /* waits in the pipe, so that nothing can fail once the process runs */
        TRY_OUT(st, mst_process_write(p, start->input, start->n_input));
    if (start->secret != NULL && !start->by_channel)
        TRY_OUT(st, mst_process_write_line(p, start->secret));
    TRY_OUT(st, process_spawn(p, loop, start, theirs));
    uv_read_start((uv_stream_t *)&p->out[0].pipe, stream_alloc, stream_read);
    uv_read_start((uv_stream_t *)&p->out[1].pipe, stream_alloc, stream_read);
    *out = p;
    p = NULL;
out:
    for (int i = 0; i < 3; i++)
        if (theirs[i] >= 0)
            close(theirs[i]);
    mst_process_release(p);
    return st;
}

/* ---- signals ---- */

void mst_process_stop(mst_process *p, int number)
{
    if (p->exited)
        return;
    if (p->by_channel) {
        if (number == SIGINT || number == SIGHUP)
            (void)mst_process_write(p, number == SIGINT ? MST_PARENT_INT : MST_PARENT_HUP, 1);
        process_close_input(p);
    } else if (kill(-p->pid, number) == 0) {
        kill(-p->pid, SIGCONT); /* a stopped process would not handle the signal */
    }
}

void mst_process_terminate(mst_process *p)
{
    if (!p->exited)
        kill(p->pid, SIGTERM);
}

static void process_kill_descendants(int pid)
{
    int list[DESCENDANT_MAX] = {pid};
    size_t n = 1;
    for (size_t i = 0; i < n; i++) {
        char path[64];
        int child;
        snprintf(path, sizeof path, "/proc/%d/task/%d/children", list[i], list[i]);
        FILE *file = fopen(path, "re");
        while (file != NULL && n < DESCENDANT_MAX && fscanf(file, "%d", &child) == 1)
            list[n++] = child;
        if (file != NULL)
            fclose(file);
    }
    while (n > 1)
        kill(list[--n], SIGKILL);
}

void mst_process_kill(mst_process *p)
{
    if (p->exited)
        return;
    if (p->launcher)
        process_kill_descendants(p->pid);
    kill(-p->pid, SIGKILL);
}

void mst_process_checkpoint(mst_process *p)
{
    if (p->exited)
        return;
    if (p->by_channel)
        (void)mst_process_write(p, MST_PARENT_CHECKPOINT, 1); /* one that is gone has nothing to save */
    else
        kill(p->pid, SIGUSR1);
}
