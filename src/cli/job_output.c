/* The output of a launched job; contract in job_output.h. */
#include "cli/job_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/cli.h"

enum { LOG_NONE = -1, LOG_GIVEN_UP = -2 };

struct mst_job_output {
    char *folder; /* NULL: no logs */
    bool gone[2]; /* streams without a reader */
    bool no_logs; /* no more of them can be made */
    bool plain;   /* standard output is that of process 0 alone */
    int *logs;    /* of process i; LOG_NONE, LOG_GIVEN_UP, or open */
    size_t n_logs, capacity;
};

mst_status mst_job_output_new(const char *folder, bool plain, mst_job_output **out)
{
    mst_job_output *o = mst_zalloc(sizeof *o);
    if (o == NULL)
        return mst_fail_memory();
    o->plain = plain;
    if (folder != NULL && (o->folder = mst_strdup(folder)) == NULL) {
        mst_job_output_destroy(o);
        return mst_fail_memory();
    }
    *out = o;
    return MST_OK;
}

void mst_job_output_destroy(mst_job_output *o)
{
    if (o == NULL)
        return;
    for (size_t i = 0; i < o->n_logs; i++)
        if (o->logs[i] >= 0)
            close(o->logs[i]);
    mst_free(o->logs);
    mst_free(o->folder);
    mst_free(o);
}

/* All of it, or false with errno. A line is one writev unless the system takes it in parts. */
static bool output_write(int fd, struct iovec *parts, int n)
{
    while (n > 0) {
        ssize_t done = writev(fd, parts, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return false;
        for (; n > 0 && (size_t)done >= parts->iov_len; parts++, n--)
            done -= (ssize_t)parts->iov_len;
        if (n > 0) {
            parts->iov_base = (char *)parts->iov_base + done;
            parts->iov_len -= (size_t)done;
        }
    }
    return true;
}

static struct iovec output_part(const char *text, size_t n)
{
    return (struct iovec){.iov_base = (void *)text, .iov_len = n};
}

/* The log of a process; LOG_GIVEN_UP when there is none. */
static int output_open_log(mst_job_output *o, const char *name)
{
    if (o->no_logs)
        return LOG_GIVEN_UP;
    if (mst_make_folders(o->folder) != MST_OK) {
        mst_warn("launch writes no logs: %s", mst_error_text());
        o->no_logs = true;
        return LOG_GIVEN_UP;
    }
    char *path = mst_sprintf("%s/%s.log", o->folder, name);
    int fd = LOG_GIVEN_UP;
    if (path != NULL) {
        for (char *p = path + strlen(o->folder); *p != '\0'; p++)
            *p = *p == ' ' ? '-' : *p;
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (fd < 0)
            mst_warn("launch writes no logs: %s cannot be opened: %s", path, strerror(errno));
        o->no_logs = fd < 0;
    }
    mst_free(path);
    return fd >= 0 ? fd : LOG_GIVEN_UP;
}

/* NULL: there is no memory for another one. */
static int *output_log(mst_job_output *o, uint32_t i)
{
    if (!mst_grow(&o->logs, &o->capacity, (size_t)i + 1, sizeof *o->logs))
        return NULL;
    while (o->n_logs <= i)
        o->logs[o->n_logs++] = LOG_NONE;
    return &o->logs[i];
}

static void output_line(void *arg, uint32_t i, const char *name, bool is_error, const char *text, size_t n)
{
    mst_job_output *o = arg;
    bool bare = o->plain && i == 0 && !is_error, to_error = is_error || (o->plain && !bare);
    if (!o->gone[to_error]) {
        struct iovec line[] = {output_part(name, strlen(name)), output_part(" | ", 3), output_part(text, n),
                               output_part("\n", 1)};
        o->gone[to_error] =
            !output_write(to_error ? STDERR_FILENO : STDOUT_FILENO, bare ? line + 2 : line, bare ? 2 : 4);
    }
    int *log = o->folder != NULL ? output_log(o, i) : NULL;
    if (log == NULL)
        return;
    if (*log == LOG_NONE)
        *log = output_open_log(o, name);
    struct iovec line[] = {output_part(text, n), output_part("\n", 1)};
    if (*log >= 0 && !output_write(*log, line, 2)) {
        mst_warn("launch cannot write the log of %s in %s, which ends here: %s", name, o->folder,
                 strerror(errno));
        close(*log);
        *log = LOG_GIVEN_UP;
    }
}

static void output_note(void *arg, const char *text)
{
    (void)arg;
    mst_cli_note("%s", text);
}

mst_launch_sink mst_job_output_sink(mst_job_output *o)
{
    return (mst_launch_sink){.arg = o, .line = output_line, .note = output_note};
}
