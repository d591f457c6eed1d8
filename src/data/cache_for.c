/* The cache that `train --cache` makes and reuses: finds its path, decides whether it is valid, makes it
 * once.
 *
 * The path is a function of the source files' absolute names. The source key inside the cache lists names,
 * sizes, times and the options that shape rows; a cache with another key is replaced. Processes take turns by
 * a lock file next to the cache: the holder of its flock checks again and makes the cache only when it is
 * still missing. The kernel drops the lock of a process that dies.
 *
 * Waiting for the lock: flock has no deadline, so it is called without blocking. Between two calls the
 * process sleeps until inotify reports that a process closed the lock file, or for at most RETRY_MS, because
 * the event may come before the lock is free and some file systems report none. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/strings.h"
#include "data/cache.h"
#include "data/cache_file.h"
#include "data/images.h"
#include "data/origin.h"
#include "data/stream.h"
#include "data/vocabulary.h"
#include "data/write.h"

#define RETRY_MS    250
#define DEADLINE_MS (600u * 1000)

/* ---- the lock ---- */

/* Whether the lock file is still the one at path: its former holder removes it. */
static bool still_there(int fd, const char *path)
{
    struct stat mine, now;
    return fstat(fd, &mine) == 0 && stat(path, &now) == 0 && mine.st_dev == now.st_dev &&
           mine.st_ino == now.st_ino;
}

static void wait_for_close(int notify, uint64_t left_ms)
{
    struct pollfd ready = {.fd = notify, .events = POLLIN};
    int timeout = left_ms < RETRY_MS ? (int)left_ms : RETRY_MS;
    if (poll(&ready, notify >= 0 ? 1 : 0, timeout) > 0) {
        char events[4096];
        ssize_t got = read(notify, events, sizeof events);
        (void)got; /* which event it was does not matter */
    }
}

static long cache_holder(int fd)
{
    char text[32] = {0};
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    return n > 0 ? strtol(text, NULL, 10) : 0;
}

static mst_status lock_failed(const char *path)
{
    return mst_fail(MST_EIO, "%s: cannot lock: %s", path, strerror(errno));
}

/* One attempt on a fresh descriptor. *fd is -1 on MST_OK when the holder removed the file meanwhile: try
 * again. */
static mst_status lock_once(const char *path, uint64_t deadline_ns, uint64_t deadline_ms, int *fd)
{
    mst_status st = MST_OK;
    int notify = -1, lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    *fd = -1;
    if (lock < 0)
        return mst_fail(MST_EIO, "%s: cannot create the lock file of the cache: %s", path, strerror(errno));
    bool reported = false;
    while (flock(lock, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR)
            continue;
        if (errno != EWOULDBLOCK) {
            st = lock_failed(path);
            goto out;
        }
        uint64_t now = mst_now_ns();
        if (now >= deadline_ns) {
            st = mst_fail(
                MST_EIO,
                "%s: waited %.1f s for process %ld, which is making this cache: wait for it to finish, or "
                "end it and start again",
                path, (double)deadline_ms / 1e3, cache_holder(lock));
            goto out;
        }
        if (!reported) {
            mst_info("waiting for process %ld, which is making the cache (%s)", cache_holder(lock), path);
            reported = true;
            notify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
            if (notify >= 0)
                inotify_add_watch(notify, path, IN_CLOSE_WRITE | IN_DELETE_SELF);
        }
        wait_for_close(notify, (deadline_ns - now) / MST_MS + 1);
    }
    if (still_there(lock, path)) {
        char text[32];
        int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
        if (ftruncate(lock, 0) != 0 || pwrite(lock, text, (size_t)n, 0) != n) {
            st = mst_fail(MST_EIO, "%s: cannot write: %s", path, strerror(errno));
            unlink(path); /* ours: the lock is held */
        } else {
            *fd = lock;
            lock = -1;
        }
    }
out:
    if (notify >= 0)
        close(notify);
    if (lock >= 0)
        close(lock);
    return st;
}

mst_status mst_cache_lock(const char *path, uint64_t deadline_ms, int *fd)
{
    uint64_t deadline_ns = mst_now_ns() + deadline_ms * MST_MS;
    do
        TRY(lock_once(path, deadline_ns, deadline_ms, fd));
    while (*fd < 0);
    return MST_OK;
}

void mst_cache_unlock(const char *path, int fd)
{
    unlink(path);
    close(fd);
}

/* ---- path and key ---- */

char *mst_cache_key_text(const mst_data_options *options, const json_t *origin)
{
    mst_option_group group = {.title = "data", .table = mst_data_option_table, .base = (void *)options};
    json_t *json = options != NULL ? mst_options_json(&group, 1) : json_object();
    if (origin != NULL && json_object_set(json, MST_ORIGIN, (json_t *)origin) != 0) {
        json_decref(json);
        json = NULL;
    }
    char *dump = json != NULL ? json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    char *text = dump != NULL ? mst_sprintf("%s\n", dump) : NULL;
    free(dump);
    json_decref(json);
    return text;
}

/* The key: the files with size and time, then the options. *names_hash is of the file names alone. */
static mst_status cache_source_key(const mst_text_list *files, const mst_data_options *o,
                                   const json_t *origin, char **key, uint64_t *names_hash)
{
    mst_status st = MST_OK;
    mst_string text = {0};
    char *options = NULL;
    uint64_t hash = 0;
    for (size_t i = 0; i < files->n; i++) {
        struct stat s;
        if (strcmp(files->items[i], "-") == 0) {
            st = mst_fail(MST_EUSAGE, "standard input cannot be cached: save it to a file first");
            goto out;
        }
        if (mst_path_reads_once(files->items[i])) {
            st = mst_fail(MST_EUSAGE, "%s is not a plain file and cannot be cached: save it to a file first",
                          files->items[i]);
            goto out;
        }
        char *full = realpath(files->items[i], NULL);
        if (full == NULL || stat(full, &s) != 0) {
            st = mst_fail(MST_EINPUT, "%s: %s", files->items[i], strerror(errno));
            free(full);
            goto out;
        }
        hash = XXH64(full, strlen(full) + 1, hash);
        mst_string_format(&text, "%s %llu %lld.%09ld\n", full, (unsigned long long)s.st_size,
                          (long long)s.st_mtim.tv_sec, s.st_mtim.tv_nsec);
        free(full);
    }
    options = mst_cache_key_text(o, origin);
    mst_string_add(&text, options != NULL ? options : "");
    if (options == NULL || text.failed) {
        st = mst_fail_memory();
        goto out;
    }
    *key = text.text;
    *names_hash = hash;
    text = (mst_string){0};
out:
    mst_free(options);
    mst_string_fini(&text);
    return st;
}

/* Beside the sources the name starts with a dot, so that a folder of sources can be named as a whole. */
static char *cache_path(const char *folder, const char *first, uint64_t hash)
{
    const char *name = mst_path_name(first);
    unsigned long long digits = hash;
    if (folder != NULL)
        return mst_sprintf("%s/%s.%016llx.cache", folder, name, digits);
    return mst_sprintf("%.*s.%s.%016llx.cache", (int)(name - first), first, name, digits);
}

/* ---- making ---- */

static mst_status add_chunk(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    (void)first_row;
    return mst_row_writer_add(arg, chunk);
}

static mst_status cache_make(mst_dataset *source, const char *path, const char *key, unsigned n_threads)
{
    mst_status st;
    mst_row_writer *writer = NULL;
    TRY(mst_row_writer_new(&mst_row_writer_cache, path, key, &writer));
    TRY_OUT(st, mst_dataset_each(source, n_threads, add_chunk, writer));
    st = mst_row_writer_commit(writer, &source->info);
out:
    mst_row_writer_destroy(writer);
    return st;
}

static mst_status open_one(const char *path, mst_dataset **out)
{
    char *items[1] = {(char *)path};
    return mst_cache_open(&(mst_text_list){.items = items, .n = 1}, out);
}

static mst_status copy_list(const mst_text_list *from, mst_text_list *to)
{
    for (size_t i = 0; i < from->n; i++)
        TRY(mst_text_list_add(to, from->items[i]));
    return MST_OK;
}

mst_status mst_cache_vocabulary_for(const mst_text_list *patterns, const mst_data_options *options,
                                    const char *folder, unsigned n_threads, char **path)
{
    mst_status st = MST_OK;
    mst_text_list files = {0};
    char *key = NULL, *cache = NULL, *made = NULL, *lock_path = NULL, *full;
    char digest[20];
    uint64_t hash = 0;
    int lock = -1;
    TRY_OUT(st, mst_glob(patterns, &files));
    TRY_OUT(st, cache_source_key(&files, options, NULL, &key, &hash));
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)XXH64(key, strlen(key), 0));
    if (folder != NULL)
        TRY_OUT(st, mst_make_folders(folder));
    cache = cache_path(folder, files.items[0], hash);
    made = cache != NULL ? mst_sprintf("%s" MST_VOCABULARY_SUFFIX, cache) : NULL;
    lock_path = made != NULL ? mst_sprintf("%s.lock", made) : NULL;
    if (lock_path == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    if (!mst_vocabulary_fits(made, digest)) {
        TRY_OUT(st, mst_cache_lock(lock_path, DEADLINE_MS, &lock));
        if (!mst_vocabulary_fits(made, digest))
            TRY_OUT(st, mst_vocabulary_make(patterns, options, n_threads, digest, made));
    }
    full = realpath(made, NULL);
    *path = full != NULL ? mst_strdup(full) : NULL;
    free(full);
    st = *path != NULL ? MST_OK : mst_fail_memory();
out:
    if (lock >= 0)
        mst_cache_unlock(lock_path, lock);
    mst_text_list_fini(&files);
    mst_free(key);
    mst_free(cache);
    mst_free(made);
    mst_free(lock_path);
    return st;
}

mst_status mst_cache_for(mst_dataset *source, const mst_text_list *patterns, const mst_data_options *options,
                         const char *folder, unsigned n_threads, mst_dataset **out)
{
    mst_status st = MST_OK;
    mst_text_list files = {0};
    char *key = NULL, *path = NULL, *lock_path = NULL;
    uint64_t hash = 0;
    int lock = -1;
    bool fits;
    const mst_text_list *images = mst_images_files(source);
    TRY_OUT(st, images != NULL ? copy_list(images, &files) : mst_glob(patterns, &files));
    if (mst_dataset_has(source, MST_DATA_CACHED)) {
        st = mst_cache_open(&files, out); /* is one already */
        goto out;
    }
    TRY_OUT(st, cache_source_key(&files, options, source->origin, &key, &hash));
    if (folder != NULL)
        TRY_OUT(st, mst_make_folders(folder));
    path = cache_path(folder, files.items[0], hash);
    lock_path = path != NULL ? mst_sprintf("%s.lock", path) : NULL;
    if (lock_path == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    TRY_OUT(st, mst_cache_fits(path, key, &fits));
    if (!fits) {
        TRY_OUT(st, mst_cache_lock(lock_path, DEADLINE_MS, &lock));
        TRY_OUT(st, mst_cache_fits(path, key, &fits));
        if (!fits)
            TRY_OUT(st, cache_make(source, path, key, n_threads));
    }
    TRY_OUT(st, open_one(path, out));
    /* the cache holds rows only: names move over */
    (*out)->class_names = source->class_names;
    (*out)->n_class_names = source->n_class_names;
    (*out)->left_out = source->left_out;
    (*out)->doubts = source->doubts;
    source->class_names = NULL;
    source->n_class_names = 0;
    source->left_out = source->doubts = (mst_text_list){0};
    (*out)->bad.most = mst_dataset_skipped(source);
    (*out)->bad.stated = true;
    mst_dataset_warn_skipped(source); /* with the name of the file, not that of the cache */
out:
    if (lock >= 0)
        mst_cache_unlock(lock_path, lock);
    mst_text_list_fini(&files);
    mst_free(key);
    mst_free(path);
    mst_free(lock_path);
    return st;
}
