/* Output that appears whole or not at all; contract in file.h.
 *
 * Bytes go through one buffer, then (names ending in .gz or .zst) through a compressor, to a temporary file
 * beside the target; commit makes it durable and renames it. A target that is there and no plain file (a
 * device, a pipe) is written directly, as standard output is.
 *
 * Invariants
 * 1. Until rename succeeds the target is untouched; close unlinks a temporary file that was not renamed.
 * 2. After the first failed write every later call fails with the same reason, so a file with a hole is never
 *    committed.
 * 3. flushed + used = given for plain output. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/zlib_alloc.h"

#define BUFFER_SIZE (256u << 10)
#define GZIP_LEVEL  6
#define ZSTD_LEVEL  3

struct mst_out {
    char *path;      /* as given, for errors */
    char *target;    /* links resolved; NULL when written directly */
    char *temporary; /* NULL when there is none (any more) */
    int fd;
    int failed;    /* errno of the first failure; 0: none */
    bool standard; /* fd is standard output: not ours to close */
    bool committed;
    bool zlib_made;
    uint64_t given, flushed;
    uint8_t *buffer;
    size_t used;
    uint8_t *packed; /* compressor's output, BUFFER_SIZE */
    z_stream zlib;
    ZSTD_CStream *zstd;
};

static struct {
    atomic_uint_fast64_t writes, fail_at; /* write number that fails; 0: none */
    atomic_uint serial;                   /* of temporary names */
    atomic_bool unread;                   /* mst_out_unread */
} g_out;

bool mst_out_unread(void)
{
    return atomic_load(&g_out.unread);
}

void mst_out_fail_at(uint64_t k)
{
    atomic_store(&g_out.fail_at, k == 0 ? 0 : atomic_load(&g_out.writes) + k);
}

static bool out_injected_failure(void)
{
    uint64_t write_number = atomic_fetch_add(&g_out.writes, 1) + 1;
    return write_number == atomic_load(&g_out.fail_at);
}

static mst_status out_failed(mst_out *out, int reason)
{
    out->failed = reason;
    if (out->standard && reason == EPIPE)
        atomic_store(&g_out.unread, true);
    return mst_fail(MST_EIO, "%s: cannot be written: %s", out->path, strerror(reason));
}

/* ---- writing ---- */

static mst_status out_write_raw(mst_out *out, const uint8_t *data, size_t n)
{
    while (n > 0) {
        if (out_injected_failure())
            return out_failed(out, ENOSPC);
        ssize_t wrote = write(out->fd, data, n);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return out_failed(out, errno);
        data += wrote;
        n -= (size_t)wrote;
    }
    return MST_OK;
}

static mst_status out_write_gzip(mst_out *out, const uint8_t *data, size_t n, bool last)
{
    int rc;
    out->zlib.next_in = (uint8_t *)data;
    out->zlib.avail_in = (uInt)n;
    do {
        out->zlib.next_out = out->packed;
        out->zlib.avail_out = BUFFER_SIZE;
        rc = deflate(&out->zlib, last ? Z_FINISH : Z_NO_FLUSH);
        TRY(out_write_raw(out, out->packed, BUFFER_SIZE - out->zlib.avail_out));
    } while (last ? rc != Z_STREAM_END : out->zlib.avail_out == 0);
    return MST_OK;
}

static mst_status out_write_zstd(mst_out *out, const uint8_t *data, size_t n, bool last)
{
    ZSTD_inBuffer in = {data, n, 0};
    size_t rest;
    do {
        ZSTD_outBuffer packed = {out->packed, BUFFER_SIZE, 0};
        rest = ZSTD_compressStream2(out->zstd, &packed, &in, last ? ZSTD_e_end : ZSTD_e_continue);
        if (ZSTD_isError(rest)) {
            out->failed = ENOMEM;
            return mst_fail_memory();
        }
        TRY(out_write_raw(out, out->packed, packed.pos));
    } while (last ? rest != 0 : in.pos < in.size);
    return MST_OK;
}

/* Hands bytes, at most BUFFER_SIZE for compressed output, to the compressor or the file. */
static mst_status out_pass_on(mst_out *out, const uint8_t *data, size_t n, bool last)
{
    out->flushed += n;
    if (out->zlib_made)
        return out_write_gzip(out, data, n, last);
    if (out->zstd != NULL)
        return out_write_zstd(out, data, n, last);
    return out_write_raw(out, data, n);
}

static mst_status out_flush(mst_out *out, bool last)
{
    size_t used = out->used;
    out->used = 0;
    return used > 0 || last ? out_pass_on(out, out->buffer, used, last) : MST_OK;
}

mst_status mst_out_write(mst_out *out, const void *data, size_t n)
{
    const uint8_t *bytes = data;
    if (out->failed)
        return out_failed(out, out->failed);
    out->given += n;
    while (n > 0) {
        if (out->used == 0 && n >= BUFFER_SIZE) {
            size_t whole = out->packed != NULL ? BUFFER_SIZE : n;
            TRY(out_pass_on(out, bytes, whole, false));
            bytes += whole;
            n -= whole;
            continue;
        }
        size_t take = BUFFER_SIZE - out->used < n ? BUFFER_SIZE - out->used : n;
        memcpy(out->buffer + out->used, bytes, take);
        out->used += take;
        bytes += take;
        n -= take;
        if (out->used == BUFFER_SIZE)
            TRY(out_flush(out, false));
    }
    return MST_OK;
}

mst_status mst_out_flush(mst_out *out)
{
    if (out->failed)
        return out_failed(out, out->failed);
    return out->packed != NULL ? MST_OK : out_flush(out, false);
}

mst_status mst_out_printf(mst_out *out, const char *format, ...)
{
    char line[1024], *text = line;
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(line, sizeof line, format, args);
    if (length >= (int)sizeof line) {
        text = mst_alloc((size_t)length + 1);
        if (text != NULL)
            vsnprintf(text, (size_t)length + 1, format, again);
    }
    va_end(again);
    va_end(args);
    if (length < 0)
        return out_failed(out, EINVAL);
    if (text == NULL) {
        out->failed = ENOMEM;
        return mst_fail_memory();
    }
    mst_status st = mst_out_write(out, text, (size_t)length);
    if (text != line)
        mst_free(text);
    return st;
}

mst_status mst_out_patch(mst_out *out, uint64_t offset, const void *data, size_t n)
{
    const uint8_t *bytes = data;
    if (out->failed)
        return out_failed(out, out->failed);
    if (out->packed != NULL || out->standard)
        return mst_fail(MST_EUSAGE, "%s: only a plain, uncompressed file can be changed after it is written",
                        out->path);
    if (n > out->given || offset > out->given - n)
        return mst_fail(MST_EUSAGE, "%s: bytes %llu to %llu are not written yet", out->path,
                        (unsigned long long)offset, (unsigned long long)(offset + n));
    TRY(out_flush(out, false));
    while (n > 0) {
        if (out_injected_failure())
            return out_failed(out, ENOSPC);
        ssize_t wrote = pwrite(out->fd, bytes, n, (off_t)offset);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return out_failed(out, errno);
        bytes += wrote;
        offset += (uint64_t)wrote;
        n -= (size_t)wrote;
    }
    return MST_OK;
}

uint64_t mst_out_offset(const mst_out *out)
{
    return out->given;
}

/* ---- opening and closing ---- */

static mst_status out_open_temporary(mst_out *out)
{
    char real[PATH_MAX];
    out->target = mst_strdup(realpath(out->path, real) ? real : out->path);
    if (out->target == NULL)
        return mst_fail_memory();
    int reason;
    do {
        char *name =
            mst_sprintf("%s.tmp.%ld.%u", out->target, (long)getpid(), atomic_fetch_add(&g_out.serial, 1));
        if (name == NULL)
            return mst_fail_memory();
        out->fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        reason = errno;
        if (out->fd >= 0) {
            out->temporary = name;
            return MST_OK;
        }
        mst_free(name);
    } while (reason == EEXIST); /* left by a dead process of the same id */
    return mst_fail(MST_EIO, "%s: cannot be created: %s", out->path, strerror(reason));
}

static mst_status out_open_compressor(mst_out *out)
{
    bool gzip = mst_ends_with(out->path, ".gz");
    if (!gzip && !mst_ends_with(out->path, ".zst"))
        return MST_OK;
    out->packed = mst_alloc(BUFFER_SIZE);
    if (out->packed == NULL)
        return mst_fail_memory();
    if (gzip) {
        out->zlib.zalloc = mst_zlib_alloc;
        out->zlib.zfree = mst_zlib_free;
        out->zlib_made =
            deflateInit2(&out->zlib, GZIP_LEVEL, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK;
        return out->zlib_made ? MST_OK : mst_fail_memory();
    }
    out->zstd = ZSTD_createCStream();
    if (out->zstd == NULL ||
        ZSTD_isError(ZSTD_CCtx_setParameter(out->zstd, ZSTD_c_compressionLevel, ZSTD_LEVEL)) ||
        ZSTD_isError(ZSTD_CCtx_setParameter(out->zstd, ZSTD_c_checksumFlag, 1)))
        return mst_fail_memory();
    return MST_OK;
}

mst_status mst_out_open(const char *path, mst_out **result)
{
    mst_status st;
    struct stat info;
    mst_out *out = mst_zalloc(sizeof *out);
    if (out == NULL)
        return mst_fail_memory();
    out->fd = -1;
    out->standard = strcmp(path, "-") == 0;
    out->path = mst_strdup(out->standard ? "standard output" : path);
    out->buffer = mst_alloc(BUFFER_SIZE);
    if (out->path == NULL || out->buffer == NULL)
        TRY_OUT(st, mst_fail_memory());
    if (out->standard) {
        out->fd = STDOUT_FILENO;
    } else if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        TRY_OUT(st, mst_fail(MST_EIO, "%s: cannot be created: there is a folder of that name", path));
    } else if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        out->fd = open(path, O_WRONLY | O_CLOEXEC);
        if (out->fd < 0)
            TRY_OUT(st, mst_fail(MST_EIO, "%s: cannot be opened for writing: %s", path, strerror(errno)));
    } else {
        TRY_OUT(st, out_open_temporary(out));
    }
    TRY_OUT(st, out_open_compressor(out));
    *result = out;
    out = NULL;
out:
    mst_out_close(out);
    return st;
}

/* The folder of target, opened so that the rename in it can be synced; -1 with errno on failure. */
static int out_open_folder(const char *target)
{
    const char *slash = strrchr(target, '/');
    if (slash == NULL)
        return open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    char *folder = mst_strndup(target, slash == target ? 1 : (size_t)(slash - target));
    if (folder == NULL) {
        errno = ENOMEM;
        return -1;
    }
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    mst_free(folder);
    return fd;
}

mst_status mst_out_commit(mst_out *out)
{
    if (out->failed)
        return out_failed(out, out->failed);
    if (out->committed)
        return MST_OK;
    TRY(out_flush(out, true));
    if (out->temporary == NULL) {
        out->committed = true;
        return MST_OK;
    }
    if (fsync(out->fd) != 0)
        return out_failed(out, errno);
    int folder = out_open_folder(out->target);
    if (folder < 0)
        return out_failed(out, errno);
    if (rename(out->temporary, out->target) != 0) {
        int reason = errno;
        close(folder);
        return out_failed(out, reason);
    }
    mst_free(out->temporary);
    out->temporary = NULL;
    out->committed = true;
    int synced = fsync(folder), reason = errno;
    close(folder);
    if (synced != 0 && reason != EINVAL) /* EINVAL: a file system that does not sync folders */
        return mst_fail(MST_EIO, "%s: is in place, but its folder cannot be synced: %s", out->path,
                        strerror(reason));
    return MST_OK;
}

void mst_out_close(mst_out *out)
{
    if (out == NULL)
        return;
    if (out->zlib_made)
        deflateEnd(&out->zlib);
    ZSTD_freeCStream(out->zstd);
    if (out->fd >= 0 && !out->standard)
        close(out->fd);
    if (out->temporary != NULL)
        unlink(out->temporary);
    mst_free(out->temporary);
    mst_free(out->target);
    mst_free(out->packed);
    mst_free(out->buffer);
    mst_free(out->path);
    mst_free(out);
}
