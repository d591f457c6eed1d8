/* The entry of a launching process; contract in job_entry.h. */
#include "launch/job_entry.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/log.h"
#include "base/option.h"
#include "base/signals.h"
#include "launch/job_state.h"

#define CLIENTS   8
#define LINE_SIZE 1200
#define ANSWER_MS 10000

/* A connection to the socket; it closes after its answer. */
typedef struct entry_client {
    uv_pipe_t pipe;
    uv_write_t write;
    mst_job_entry *entry;
    uint64_t number; /* of connections; 0: unused */
    size_t n;
    char line[LINE_SIZE]; /* the request, then the answer */
} entry_client;

struct mst_job_entry {
    char job[64];
    bool detached;
    int lock, ready;
    json_t *facts;
    uv_pipe_t control;
    mst_job_add_fn *add;
    void *arg;
    uint64_t n_connections;
    bool waiting; /* a connection, for a client to close */
    entry_client clients[CLIENTS];
};

/* ---- the folder ---- */

/* The folder of the user, without access for others, and in it that of the job. */
static mst_status entry_make_folder(const char *job)
{
    char path[MST_JOB_STATE_PATH], all[MST_JOB_STATE_PATH];
    struct stat is;
    TRY(mst_job_state_path(NULL, NULL, all));
    char *muster = strrchr(all, '/');
    *muster = '\0';
    TRY(mst_make_folders(all));
    chmod(all, 0700);
    if (stat(all, &is) != 0 || is.st_uid != geteuid() || (is.st_mode & 077) != 0)
        return mst_fail(MST_EIO, "%s: the folder for the state of jobs must belong to this user alone", all);
    *muster = '/';
    TRY(mst_job_state_path(job, NULL, path));
    if ((mkdir(all, 0700) != 0 && errno != EEXIST) || (mkdir(path, 0700) != 0 && errno != EEXIST))
        return mst_fail(MST_EIO, "the folder %s cannot be created: %s", path, strerror(errno));
    return MST_OK;
}

/* Takes the lock. The file may be removed by the job that held it, in which case another one is made. */
static mst_status entry_lock(mst_job_entry *e)
{
    char path[MST_JOB_STATE_PATH];
    TRY(mst_job_state_path(e->job, "lock", path));
    for (int tries = 0; tries < 10; tries++) {
        struct flock lock = {.l_type = F_WRLCK,
                             .l_whence = SEEK_SET}; /* of the descriptor: a fork keeps it */
        struct stat here, there;
        TRY(entry_make_folder(e->job));
        e->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (e->lock < 0 && errno == ENOENT)
            continue;
        if (e->lock < 0)
            return mst_fail(MST_EIO, "%s: cannot be opened: %s", path, strerror(errno));
        if (fcntl(e->lock, F_OFD_SETLK, &lock) != 0)
            return mst_fail(MST_EEXIST, "the job %s is running already; choose another --job", e->job);
        if (fstat(e->lock, &here) == 0 && stat(path, &there) == 0 && here.st_ino == there.st_ino)
            return MST_OK;
        close(e->lock);
        e->lock = -1;
    }
    return mst_fail(MST_EIO, "%s: cannot be locked", path);
}

static mst_status entry_save(mst_job_entry *e)
{
    char path[MST_JOB_STATE_PATH];
    json_object_set_new(e->facts, "process", json_integer(getpid()));
    TRY(mst_job_state_path(e->job, "job.json", path));
    TRY(mst_json_save(e->facts, JSON_INDENT(1), path));
    chmod(path, 0600);
    return MST_OK;
}

static void entry_free(mst_job_entry *e)
{
    if (e->lock >= 0)
        close(e->lock);
    if (e->ready >= 0)
        close(e->ready);
    json_decref(e->facts);
    mst_free(e);
}

mst_status mst_job_entry_new(const mst_job_entry_info *info, mst_job_entry **out)
{
    mst_status st;
    char folder[4096], when[32];
    mst_job_entry *e = mst_zalloc(sizeof *e);
    if (e == NULL)
        return mst_fail_memory();
    e->lock = e->ready = -1;
    snprintf(e->job, sizeof e->job, "%s", info->job);
    if (getcwd(folder, sizeof folder) == NULL)
        folder[0] = '\0';
    mst_wall_time(when);
    TRY_OUT(st, entry_lock(e));
    e->facts = json_pack("{s:s, s:o, s:o, s:o, s:s, s:I, s:I}", "job", info->job, "command",
                         mst_json_text(info->command), "folder", mst_json_text(folder), "logs",
                         info->logs != NULL ? mst_json_text(info->logs) : json_null(), "began", when,
                         "began_s", (json_int_t)time(NULL), "grace", (json_int_t)info->grace_s);
    st = e->facts != NULL ? entry_save(e) : mst_fail_memory();
out:
    if (st != MST_OK)
        entry_free(e);
    else
        *out = e;
    return st;
}

/* ---- detaching ---- */

/* The new process: no terminal, output to the file. */
static mst_status entry_leave_terminal(mst_job_entry *e, int output)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    setsid();
    signal(SIGHUP, SIG_IGN);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
        dup2(output, STDERR_FILENO) < 0)
        return mst_fail(MST_EIO, "the output of the job cannot be redirected: %s", strerror(errno));
    if (null > STDERR_FILENO)
        close(null);
    e->detached = true;
    json_object_set_new(e->facts, "detached", json_true());
    return entry_save(e);
}

/* Whether the new process has written its byte, or has ended: the pipe ends. */
static bool entry_answers(int ready, uint32_t wait_s)
{
    uint64_t deadline = mst_now_ns() + wait_s * MST_S;
    for (;;) {
        struct pollfd p = {.fd = ready, .events = POLLIN};
        uint64_t now = mst_now_ns();
        if (now >= deadline)
            return false;
        if (poll(&p, 1, (int)((deadline - now) / MST_MS) + 1) > 0)
            return true;
    }
}

/* The first process: waits until the job has begun or ended. */
static mst_status entry_await(const char *job, pid_t child, int ready, uint32_t wait_s, mst_job_detached *out)
{
    char byte;
    ssize_t n;
    int status = 0;
    json_t *facts = NULL;
    *out = MST_JOB_STARTING;
    if (!entry_answers(ready, wait_s))
        return MST_OK;
    while ((n = read(ready, &byte, 1)) < 0 && errno == EINTR) {
    }
    *out = n == 1 ? MST_JOB_BEGAN : MST_JOB_DONE;
    if (n == 1)
        return MST_OK;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return MST_OK;
    TRY(mst_job_state_read(job, &facts));
    const char *message = json_string_value(json_object_get(facts, "message"));
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    mst_status st = message != NULL
                        ? mst_fail(mst_job_state_status(code), "%s", message)
                        : mst_fail(MST_EIO, "the process of the job %s was killed before the job began", job);
    json_decref(facts);
    return st;
}

mst_status mst_job_entry_detach(mst_job_entry *e, uint32_t wait_s, mst_job_detached *out)
{
    mst_status st;
    char path[MST_JOB_STATE_PATH], job[64];
    int ready[2] = {-1, -1}, output = -1;
    *out = MST_JOB_STARTING;
    snprintf(job, sizeof job, "%s", e->job);
    TRY_OUT(st, mst_job_state_path(e->job, "output", path));
    output = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (output < 0)
        TRY_OUT(st, mst_fail(MST_EIO, "%s: cannot be written: %s", path, strerror(errno)));
    if (pipe2(ready, O_CLOEXEC) != 0)
        TRY_OUT(st, mst_fail(MST_EIO, "no pipe for the process of the job: %s", strerror(errno)));
    fflush(stdout);
    pid_t child = fork();
    if (child < 0)
        TRY_OUT(st, mst_fail(MST_EIO, "no process for the job: %s", strerror(errno)));
    if (child == 0) {
        *out = MST_JOB_CHILD;
        e->ready = ready[1];
        close(ready[0]);
        st = entry_leave_terminal(e, output);
        close(output);
        return st;
    }
    close(ready[1]);
    ready[1] = -1;
    entry_free(e);
    e = NULL;
    st = entry_await(job, child, ready[0], wait_s, out);
out:
    if (e != NULL)
        mst_job_entry_end(e, st);
    for (int i = 0; i < 2; i++)
        if (ready[i] >= 0)
            close(ready[i]);
    if (output >= 0)
        close(output);
    return st;
}

void mst_job_entry_started(mst_job_entry *e)
{
    if (e == NULL || e->ready < 0)
        return;
    while (write(e->ready, "", 1) < 0 && errno == EINTR) {
    }
    close(e->ready);
    e->ready = -1;
}

void mst_job_entry_end(mst_job_entry *e, mst_status st)
{
    char when[32];
    if (e == NULL)
        return;
    if (e->detached) {
        mst_error error;
        mst_error_save(&error, st);
        /* processes that are killed after a signal, by a second one or the grace period, were stopped, too */
        bool stopped = st == MST_ESTOPPED || (st == MST_ETIMEOUT && mst_signals_name() != NULL);
        mst_wall_time(when);
        json_object_set_new(e->facts, "state",
                            json_string(st == MST_OK ? "done"
                                        : stopped    ? "stopped"
                                                     : "failed"));
        json_object_set_new(e->facts, "exit_code", json_integer(mst_signals_exit_code(st)));
        json_object_set_new(e->facts, "ended", json_string(when));
        json_object_set_new(e->facts, "ended_s", json_integer((json_int_t)time(NULL)));
        json_object_set_new(e->facts, "message", st != MST_OK ? mst_json_text(error.text) : json_null());
        if (entry_save(e) != MST_OK)
            mst_warn("the outcome of the job is not in its state: %s", mst_error_text());
        if (st != MST_OK)
            (void)mst_error_restore(&error);
    } else {
        mst_job_state_remove(e->job);
    }
    entry_free(e);
}

/* ---- requests ---- */

static void entry_accept(mst_job_entry *e);

static void client_closed(uv_handle_t *handle)
{
    entry_client *c = handle->data;
    c->number = 0;
    if (c->entry->waiting)
        entry_accept(c->entry);
}

static void client_written(uv_write_t *request, int status)
{
    entry_client *c = request->data;
    (void)status;
    if (!uv_is_closing((uv_handle_t *)&c->pipe))
        uv_close((uv_handle_t *)&c->pipe, client_closed);
}

static void client_answer(entry_client *c)
{
    mst_job_entry *e = c->entry;
    int64_t n;
    c->line[c->n - 1] = '\0';
    mst_status st = MST_OK;
    if (strncmp(c->line, "add ", 4) != 0 || !mst_parse_int(c->line + 4, &n) || n < 1 || n > UINT32_MAX)
        st = mst_fail(MST_EUSAGE, "the request is not 'add N'");
    else
        st = e->add(e->arg, (uint32_t)n);
    int size = snprintf(c->line, sizeof c->line, "%s%s\n", st == MST_OK ? "ok" : "error ",
                        st == MST_OK ? "" : mst_error_text());
    uv_buf_t answer = uv_buf_init(c->line, (unsigned)size);
    c->write.data = c;
    uv_read_stop((uv_stream_t *)&c->pipe);
    if (uv_write(&c->write, (uv_stream_t *)&c->pipe, &answer, 1, client_written) != 0)
        uv_close((uv_handle_t *)&c->pipe, client_closed);
}

static void client_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out)
{
    entry_client *c = handle->data;
    (void)suggested;
    *out = uv_buf_init(c->line + c->n, (unsigned)(64 - c->n)); /* a request is short */
}

static void client_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    entry_client *c = stream->data;
    (void)buffer;
    if (n > 0)
        c->n += (size_t)n;
    if (n > 0 && c->line[c->n - 1] == '\n')
        client_answer(c);
    else if (n < 0)
        uv_close((uv_handle_t *)stream, client_closed);
}

/* Accepts the next connection. If all clients are in use, the oldest makes room. */
static void entry_accept(mst_job_entry *e)
{
    entry_client *c = &e->clients[0];
    if (uv_is_closing((uv_handle_t *)&e->control))
        return;
    for (size_t i = 1; i < CLIENTS; i++)
        if (e->clients[i].number < c->number)
            c = &e->clients[i];
    e->waiting = c->number != 0;
    if (e->waiting) {
        if (!uv_is_closing((uv_handle_t *)&c->pipe))
            uv_close((uv_handle_t *)&c->pipe, client_closed);
        return;
    }
    if (uv_pipe_init(e->control.loop, &c->pipe, 0) != 0)
        return;
    c->pipe.data = c;
    c->entry = e;
    c->number = ++e->n_connections;
    c->n = 0;
    if (uv_accept((uv_stream_t *)&e->control, (uv_stream_t *)&c->pipe) != 0 ||
        uv_read_start((uv_stream_t *)&c->pipe, client_alloc, client_read) != 0)
        uv_close((uv_handle_t *)&c->pipe, client_closed);
}

static void entry_connected(uv_stream_t *control, int status)
{
    if (status == 0)
        entry_accept(control->data);
}

void mst_job_entry_serve(mst_job_entry *e, uv_loop_t *loop, mst_job_add_fn *add, void *arg)
{
    char path[MST_JOB_STATE_PATH];
    if (e == NULL || mst_job_state_path(e->job, "control", path) != MST_OK ||
        strlen(path) >= sizeof((struct sockaddr_un *)NULL)->sun_path)
        return;
    e->add = add;
    e->arg = arg;
    unlink(path); /* of a process that was killed; the lock is held */
    if (uv_pipe_init(loop, &e->control, 0) != 0)
        return;
    e->control.data = e;
    if (uv_pipe_bind(&e->control, path) != 0 ||
        uv_listen((uv_stream_t *)&e->control, CLIENTS, entry_connected) != 0)
        uv_close((uv_handle_t *)&e->control, NULL);
}

/* ---- the other side ---- */

static mst_status request_connect(const char *job, int *out)
{
    char path[MST_JOB_STATE_PATH];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    TRY(mst_job_state_path(job, "control", path));
    if (strlen(path) >= sizeof address.sun_path)
        return mst_fail(MST_EUSAGE,
                        "%s: the path is too long for a socket; set XDG_STATE_HOME to a shorter one", path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return mst_fail(MST_EIO, "no socket: %s", strerror(errno));
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        mst_status st = mst_fail(MST_EUSAGE, "the job %s takes no requests: %s", job, strerror(errno));
        close(fd);
        return st;
    }
    *out = fd;
    return MST_OK;
}

/* Reads a line of at most size - 1 bytes, until the deadline. */
static mst_status request_read(int fd, const char *job, char *line, size_t size)
{
    uint64_t deadline = mst_now_ns() + ANSWER_MS * MST_MS;
    size_t n = 0;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        uint64_t now = mst_now_ns();
        if (now >= deadline)
            return mst_fail(MST_ETIMEOUT, "the job %s has not answered within %d s", job, ANSWER_MS / 1000);
        if (poll(&p, 1, (int)((deadline - now) / MST_MS) + 1) <= 0)
            continue;
        ssize_t got = read(fd, line + n, size - 1 - n);
        if (got < 0 && errno == EINTR)
            continue;
        n += got > 0 ? (size_t)got : 0;
        line[n] = '\0';
        if (n > 0 && line[n - 1] == '\n') {
            line[n - 1] = '\0';
            return MST_OK;
        }
        if (got <= 0 || n == size - 1)
            return mst_fail(MST_EPEER, "the job %s has ended without an answer", job);
    }
}

mst_status mst_job_request_add(const char *job, uint32_t n)
{
    static const char refused[] = "error ";
    char line[LINE_SIZE];
    int fd = -1;
    TRY(request_connect(job, &fd));
    int size = snprintf(line, sizeof line, "add %u\n", n);
    mst_status st = write(fd, line, (size_t)size) == size
                        ? request_read(fd, job, line, sizeof line)
                        : mst_fail(MST_EPEER, "the job %s takes no requests", job);
    close(fd);
    if (st == MST_OK && strncmp(line, refused, strlen(refused)) == 0)
        st = mst_fail(MST_EUSAGE, "%s", line + strlen(refused));
    return st;
}
