/* Lines to streams and logs; contract in launch_output.h. */
#include "launch/launch_output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"

typedef struct log_file {
    const char *name;
    int fd; /* -1: not opened yet; -2: given up */
} log_file;

struct mst_output {
    char *folder; /* NULL: no logs */
    uint32_t n;
    bool gone[2]; /* streams nobody reads */
    bool no_logs; /* no more of them can be made */
    bool plain;   /* standard output is only_of's alone */
    uint32_t only_of;
    log_file files[];
};

mst_status mst_output_new(const char *folder, uint32_t n, mst_output **out)
{
    mst_output *o = mst_zalloc(sizeof *o + n * sizeof *o->files);
    if (o == NULL)
        return mst_fail_memory();
    o->n = n;
    for (uint32_t i = 0; i < n; i++)
        o->files[i].fd = -1;
    if (folder != NULL && (o->folder = mst_strdup(folder)) == NULL) {
        mst_output_destroy(o);
        return mst_fail_memory();
    }
    *out = o;
    return MST_OK;
}

void mst_output_destroy(mst_output *o)
{
    if (o == NULL)
        return;
    for (uint32_t i = 0; i < o->n; i++)
        if (o->files[i].fd >= 0)
            close(o->files[i].fd);
    mst_free(o->folder);
    mst_free(o);
}

void mst_output_name(mst_output *o, uint32_t i, const char *name)
{
    o->files[i].name = name;
}

void mst_output_plain(mst_output *o, uint32_t i)
{
    o->plain = true;
    o->only_of = i;
}

/* All of it, or false with errno. A line is one writev unless the system takes it in parts. */
static bool write_all(int fd, struct iovec *parts, int n)
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

static struct iovec part(const char *text, size_t n)
{
    return (struct iovec){.iov_base = (void *)text, .iov_len = n};
}

static int open_log(mst_output *o, log_file *file)
{
    if (o->no_logs)
        return -2;
    if (mst_make_folders(o->folder) != MST_OK) {
        mst_warn("no logs: %s", mst_error_text());
        o->no_logs = true;
        return -2;
    }
    char *path = mst_sprintf("%s/%s.log", o->folder, file->name);
    int fd = -2;
    if (path != NULL) {
        for (char *p = path + strlen(o->folder); *p != '\0'; p++)
            *p = *p == ' ' ? '-' : *p;
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (fd < 0)
            mst_warn("no logs: %s: cannot be written: %s", path, strerror(errno));
        o->no_logs = fd < 0;
    }
    mst_free(path);
    return fd >= 0 ? fd : -2;
}

void mst_output_line(mst_output *o, uint32_t i, bool is_error, const char *text, size_t n)
{
    log_file *file = &o->files[i];
    bool bare = o->plain && i == o->only_of && !is_error, to_error = is_error || (o->plain && !bare);
    if (!o->gone[to_error]) {
        struct iovec line[] = {part(file->name, strlen(file->name)), part(" | ", 3), part(text, n),
                               part("\n", 1)};
        o->gone[to_error] =
            !write_all(to_error ? STDERR_FILENO : STDOUT_FILENO, bare ? line + 2 : line, bare ? 2 : 4);
    }
    if (o->folder != NULL && file->fd == -1)
        file->fd = open_log(o, file);
    if (file->fd >= 0) {
        struct iovec line[] = {part(text, n), part("\n", 1)};
        if (!write_all(file->fd, line, 2)) {
            mst_warn("%s/%s: the log cannot be written, and is given up: %s", o->folder, file->name,
                     strerror(errno));
            close(file->fd);
            file->fd = -2;
        }
    }
}
