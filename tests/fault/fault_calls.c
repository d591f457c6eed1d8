/* A library for LD_PRELOAD that makes one call of the operating system fail.
 *
 *   FAULT_CALL   send, receive, connect, accept, write, sync, rename, remove, mkdir, create or
 *                truncate; or file: any of those that change files
 *   FAULT_AT     k: the k-th such call of the process fails; "k+": all from the k-th on
 *   FAULT_KILL   set: the call kills the process instead; a write has then written half of its bytes
 *   FAULT_FIRED  a file that is created when the call fails
 *   FAULT_LOG    a file that gets a line for each call that changes files: its name and path, or both paths
 *
 * "send" and "receive" are calls on sockets, "write" those on plain files other than the standard streams,
 * and "create" is open with O_CREAT. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(type, name, ...)                                                                                \
    static type (*real)(__VA_ARGS__);                                                                        \
    if (real == NULL)                                                                                        \
    *(void **)&real = dlsym(RTLD_NEXT, #name)

static atomic_ulong calls;

/* Counts a call; true if it is the one. */
static bool is_due(const char *wanted, const char *call)
{
    const char *at = getenv("FAULT_AT"), *fired = getenv("FAULT_FIRED"), *name = getenv("FAULT_CALL");
    char *end;
    if (name == NULL || at == NULL || *at == 0 || (strcmp(name, call) != 0 && strcmp(name, wanted) != 0))
        return false;
    unsigned long k = strtoul(at, &end, 10), now = atomic_fetch_add(&calls, 1) + 1;
    if (now != k && !(*end == '+' && now > k))
        return false;
    FILE *marker = now == k && fired != NULL ? fopen(fired, "w") : NULL;
    if (marker != NULL)
        fclose(marker);
    return true;
}

/* True, with errno, if the call is to fail. */
static bool fails(const char *call, int reason)
{
    if (!is_due("", call))
        return false;
    errno = reason;
    return true;
}

static void log_call(const char *call, const char *path, const char *other)
{
    const char *name = getenv("FAULT_LOG");
    FILE *log = name != NULL && *name != 0 ? fopen(name, "a") : NULL;
    if (log == NULL)
        return;
    fprintf(log, "%s %s%s%s\n", call, path, other != NULL ? " " : "", other != NULL ? other : "");
    fclose(log);
}

static const char *path_of(int fd, char *out, size_t size)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    return out;
}

/* The same for a call that changes files, other than a write. */
static bool file_fails(const char *call, int reason, const char *path, const char *other)
{
    log_call(call, path, other);
    if (!is_due("file", call))
        return false;
    if (getenv("FAULT_KILL") != NULL)
        kill(getpid(), SIGKILL);
    errno = reason;
    return true;
}

static bool is_kind(int fd, mode_t kind)
{
    struct stat info;
    int before = errno;
    bool is = fstat(fd, &info) == 0 && (info.st_mode & S_IFMT) == kind;
    errno = before;
    return is;
}

static bool send_fails(int fd)
{
    return is_kind(fd, S_IFSOCK) && fails("send", ECONNRESET);
}

static bool receive_fails(int fd)
{
    return is_kind(fd, S_IFSOCK) && fails("receive", ECONNRESET);
}

/* The same for a write to a plain file; data NULL: nothing is written before the process is killed. */
static bool write_fails(int fd, const void *data, size_t n)
{
    char path[4096];
    if (fd <= STDERR_FILENO || !is_kind(fd, S_IFREG))
        return false;
    log_call("write", path_of(fd, path, sizeof path), NULL);
    if (!is_due("file", "write"))
        return false;
    if (getenv("FAULT_KILL") != NULL) {
        if (data != NULL)
            (void)!syscall(SYS_write, fd, data, n / 2);
        kill(getpid(), SIGKILL);
    }
    errno = ENOSPC;
    return true;
}

/* ---- sockets ---- */

ssize_t send(int fd, const void *data, size_t n, int flags)
{
    REAL(ssize_t, send, int, const void *, size_t, int);
    return send_fails(fd) ? -1 : real(fd, data, n, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    REAL(ssize_t, sendmsg, int, const struct msghdr *, int);
    return send_fails(fd) ? -1 : real(fd, message, flags);
}

ssize_t recv(int fd, void *data, size_t n, int flags)
{
    REAL(ssize_t, recv, int, void *, size_t, int);
    return receive_fails(fd) ? -1 : real(fd, data, n, flags);
}

ssize_t readv(int fd, const struct iovec *pieces, int n)
{
    REAL(ssize_t, readv, int, const struct iovec *, int);
    return receive_fails(fd) ? -1 : real(fd, pieces, n);
}

ssize_t read(int fd, void *data, size_t n)
{
    REAL(ssize_t, read, int, void *, size_t);
    return receive_fails(fd) ? -1 : real(fd, data, n);
}

int connect(int fd, const struct sockaddr *to, socklen_t n)
{
    REAL(int, connect, int, const struct sockaddr *, socklen_t);
    return fails("connect", ETIMEDOUT) ? -1 : real(fd, to, n);
}

int accept4(int fd, struct sockaddr *from, socklen_t *n, int flags)
{
    REAL(int, accept4, int, struct sockaddr *, socklen_t *, int);
    return fails("accept", EMFILE) ? -1 : real(fd, from, n, flags);
}

/* ---- files ---- */

ssize_t write(int fd, const void *data, size_t n)
{
    REAL(ssize_t, write, int, const void *, size_t);
    return write_fails(fd, data, n) || send_fails(fd) ? -1 : real(fd, data, n);
}

ssize_t writev(int fd, const struct iovec *pieces, int n)
{
    REAL(ssize_t, writev, int, const struct iovec *, int);
    return write_fails(fd, NULL, 0) || send_fails(fd) ? -1 : real(fd, pieces, n);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
    return write_fails(fd, NULL, n) ? -1 : real(fd, data, n, at);
}

int fsync(int fd)
{
    REAL(int, fsync, int);
    char path[4096];
    return file_fails("sync", EIO, path_of(fd, path, sizeof path), NULL) ? -1 : real(fd);
}

int ftruncate(int fd, off_t size)
{
    REAL(int, ftruncate, int, off_t);
    char path[4096];
    return file_fails("truncate", ENOSPC, path_of(fd, path, sizeof path), NULL) ? -1 : real(fd, size);
}

int rename(const char *from, const char *to)
{
    REAL(int, rename, const char *, const char *);
    return file_fails("rename", EIO, from, to) ? -1 : real(from, to);
}

int unlink(const char *path)
{
    REAL(int, unlink, const char *);
    return file_fails("remove", EIO, path, NULL) ? -1 : real(path);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(int, mkdir, const char *, mode_t);
    int made = file_fails("mkdir", ENOSPC, path, NULL) ? -1 : real(path, mode);
    if (made == 0)
        log_call("made", path, NULL);
    return made;
}

int open(const char *path, int flags, ...)
{
    REAL(int, open, const char *, int, ...);
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    return flags & O_CREAT && file_fails("create", ENOSPC, path, NULL) ? -1 : real(path, flags, mode);
}
