/* Sequential input: plain, gzip, zlib or zstd, recognised by the first bytes; contract in file.h.
 *
 * One raw buffer is filled from the operating system; a decoder takes from it and writes straight to the
 * caller's memory. Plain reads larger than the buffer bypass it.
 *
 * Invariants
 * 1. raw[raw_at, raw_n) are bytes read and not yet consumed; file_read counts every byte read, so the
 * position in the file is file_read - (raw_n - raw_at). That is the offset errors name.
 * 2. `frame_open` is true exactly while a gzip member, zlib stream or zstd frame has begun and not ended: the
 * end of the file is then a truncation. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/zlib_alloc.h"

#define RAW_SIZE   (256u << 10)
#define PIPE_SIZE  (1 << 20)
#define ZLIB_FIRST 0x78 /* of a zlib stream with a window of 32 KiB */
#define ZLIB_LOOK  64   /* bytes that distinguish such a stream from a file that happens to begin like one */
#define LOOK_MS    100  /* how often a wait for a pipe looks whether it is to stop */

typedef enum codec {
    CODEC_PLAIN,
    CODEC_GZIP,
    CODEC_ZLIB,
    CODEC_ZSTD,
} codec;

struct mst_in {
    char *path;
    int fd;
    bool standard; /* fd is standard input: not ours to close */
    codec codec;
    bool waits;              /* not a plain file: a read may take for ever */
    bool some;               /* the current read returns the bytes available */
    int wait_ms;             /* how long it waits for that; < 0: for ever */
    const atomic_bool *stop; /* of this input; or NULL */
    bool whole;              /* is read to its end at once, and not stopped */
    bool at_end;             /* the operating system has no more */
    bool frame_open;
    bool zstd_holds; /* the decoder may have output left that did not fit */
    bool zlib_made;
    uint64_t size, file_read, offset;
    uint8_t *raw;
    size_t raw_at, raw_n;
    z_stream zlib;
    ZSTD_DStream *zstd;
};

static uint64_t in_position(const mst_in *in)
{
    return in->file_read - (in->raw_n - in->raw_at);
}

static const atomic_bool *g_stop; /* set before there are threads */

void mst_in_stop_on(const atomic_bool *stop)
{
    g_stop = stop;
}

void mst_in_stop_when(mst_in *in, const atomic_bool *stop)
{
    in->stop = stop;
}

static bool in_stop_is_set(const atomic_bool *stop)
{
    return stop != NULL && atomic_load_explicit(stop, memory_order_relaxed);
}

/* Returns when a read would not block (*ready), when the current read has waited long enough, or on a request
 * to stop. A FIFO without a writer yet is not at its end: poll waits for one, where read would return 0. */
static mst_status in_await(const mst_in *in, bool *ready)
{
    struct pollfd poll_fd = {.fd = in->fd, .events = POLLIN};
    uint64_t begun = mst_now_ns();
    *ready = true;
    while (!in->whole) {
        if (in_stop_is_set(g_stop) || in_stop_is_set(in->stop))
            return mst_fail_lead(MST_ESTOPPED, "stopped", " while reading %s at byte %llu", in->path,
                                 (unsigned long long)in->file_read);
        int left = LOOK_MS;
        if (in->some && in->wait_ms >= 0) {
            uint64_t waited = (mst_now_ns() - begun) / MST_MS;
            left = waited >= (uint64_t)in->wait_ms ? 0 : in->wait_ms - (int)waited;
        }
        if (!in->waits || poll(&poll_fd, 1, left < LOOK_MS ? left : LOOK_MS) > 0)
            break;
        *ready = left > 0;
        if (!*ready)
            break;
    }
    return MST_OK;
}

/* Up to n bytes from the operating system; 0 at the end, or when nothing came in time. */
static mst_status in_read_some(mst_in *in, void *buf, size_t n, size_t *got)
{
    *got = 0;
    while (!in->at_end) {
        bool ready;
        TRY(in_await(in, &ready));
        if (!ready)
            return MST_OK;
        ssize_t r = read(in->fd, buf, n);
        if (r < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (r < 0)
            return mst_fail(MST_EIO, "%s: cannot read at byte %llu: %s", in->path,
                            (unsigned long long)in->file_read, strerror(errno));
        in->at_end = r == 0;
        in->file_read += (uint64_t)r;
        *got = (size_t)r;
        return MST_OK;
    }
    return MST_OK;
}

/* Refills an empty raw buffer; it stays empty at the end of the file. */
static mst_status in_refill(mst_in *in)
{
    size_t got;
    TRY(in_read_some(in, in->raw, RAW_SIZE, &got));
    in->raw_at = 0;
    in->raw_n = got;
    return MST_OK;
}

/* ---- decoders: fill buf, *got < n only at the end; with `some`, when the next byte is not there yet ---- */

/* Whether a read that has `done` bytes already returns rather than ask the operating system for more. */
static bool in_enough(const mst_in *in, size_t done)
{
    return in->some && done > 0;
}

/* Whether nothing came in time. */
static bool in_nothing_yet(const mst_in *in)
{
    return in->raw_at == in->raw_n && !in->at_end;
}

static mst_status in_read_plain(mst_in *in, uint8_t *buf, size_t n, size_t *got)
{
    size_t done = 0;
    while (done < n) {
        size_t held = in->raw_n - in->raw_at;
        if (held > 0) {
            size_t take = held < n - done ? held : n - done;
            memcpy(buf + done, in->raw + in->raw_at, take);
            in->raw_at += take;
            done += take;
            continue;
        }
        if (in_enough(in, done))
            break;
        if (n - done >= RAW_SIZE) {
            size_t some;
            TRY(in_read_some(in, buf + done, n - done, &some));
            done += some;
            if (in->at_end || some == 0)
                break;
        } else {
            TRY(in_refill(in));
            if (in->raw_n == 0)
                break;
        }
    }
    *got = done;
    return MST_OK;
}

static const char *in_codec_name(const mst_in *in)
{
    static const char *const names[] = {"plain", "gzip", "zlib", "zstd"};
    return names[in->codec];
}

static mst_status in_ends_early(const mst_in *in)
{
    return mst_fail(MST_EINPUT, "%s: %s stream ends early at byte %llu", in->path, in_codec_name(in),
                    (unsigned long long)in_position(in));
}

/* Between gzip members or zlib streams: goes to the next one, over zero bytes that padding may have left. */
static mst_status in_next_member(mst_in *in, bool *more)
{
    *more = false;
    for (;;) {
        while (in->raw_at < in->raw_n && in->raw[in->raw_at] == 0)
            in->raw_at++;
        if (in->raw_at < in->raw_n)
            break;
        TRY(in_refill(in));
        if (in->raw_n == 0)
            return MST_OK;
    }
    if (in->raw[in->raw_at] != (in->codec == CODEC_GZIP ? 0x1f : ZLIB_FIRST))
        return mst_fail(MST_EINPUT, "%s: bytes that are not %s follow the %s stream at byte %llu", in->path,
                        in_codec_name(in), in_codec_name(in), (unsigned long long)in_position(in));
    inflateReset(&in->zlib);
    in->frame_open = true;
    *more = true;
    return MST_OK;
}

static mst_status in_read_inflated(mst_in *in, uint8_t *buf, size_t n, size_t *got)
{
    size_t done = 0;
    while (done < n) {
        if (in->raw_at == in->raw_n && in_enough(in, done))
            break;
        if (!in->frame_open) {
            bool more;
            TRY(in_next_member(in, &more));
            if (!more)
                break;
        }
        if (in->raw_at == in->raw_n) {
            TRY(in_refill(in));
            if (in_nothing_yet(in))
                break;
        }
        size_t room = n - done < (1u << 30) ? n - done : 1u << 30; /* zlib counts in 32 bits */
        in->zlib.next_in = in->raw + in->raw_at;
        in->zlib.avail_in = (uInt)(in->raw_n - in->raw_at);
        in->zlib.next_out = buf + done;
        in->zlib.avail_out = (uInt)room;
        int rc = inflate(&in->zlib, Z_NO_FLUSH);
        in->raw_at = in->raw_n - in->zlib.avail_in;
        done += room - in->zlib.avail_out;
        if (rc == Z_STREAM_END) {
            in->frame_open = false;
        } else if (rc == Z_BUF_ERROR) { /* no progress: more input is needed */
            if (in->at_end)
                return in_ends_early(in);
        } else if (rc == Z_MEM_ERROR) {
            return mst_fail_memory();
        } else if (rc != Z_OK) {
            return mst_fail(MST_EINPUT, "%s: %s stream is corrupt at byte %llu (%s)", in->path,
                            in_codec_name(in), (unsigned long long)in_position(in),
                            in->zlib.msg ? in->zlib.msg : "bad data");
        }
    }
    *got = done;
    return MST_OK;
}

static mst_status in_read_zstd(mst_in *in, uint8_t *buf, size_t n, size_t *got)
{
    ZSTD_outBuffer out = {buf, n, 0};
    while (out.pos < out.size) {
        if (in->raw_at == in->raw_n && !in->zstd_holds) {
            if (in_enough(in, out.pos))
                break;
            TRY(in_refill(in));
            if (in->at_end && in->frame_open)
                return in_ends_early(in);
            if (in->raw_n == 0)
                break;
        }
        ZSTD_inBuffer raw = {in->raw, in->raw_n, in->raw_at};
        size_t rc = ZSTD_decompressStream(in->zstd, &out, &raw);
        in->raw_at = raw.pos;
        if (ZSTD_isError(rc))
            return mst_fail(MST_EINPUT, "%s: zstd stream is corrupt at byte %llu (%s)", in->path,
                            (unsigned long long)in_position(in), ZSTD_getErrorName(rc));
        in->frame_open = rc != 0;
        in->zstd_holds = in->frame_open && out.pos == out.size;
    }
    *got = out.pos;
    return MST_OK;
}

static mst_status in_decode(mst_in *in, void *buf, size_t n, size_t *got)
{
    size_t done = 0;
    switch (in->codec) {
    case CODEC_PLAIN:
        TRY(in_read_plain(in, buf, n, &done));
        break;
    case CODEC_GZIP:
    case CODEC_ZLIB:
        TRY(in_read_inflated(in, buf, n, &done));
        break;
    case CODEC_ZSTD:
        TRY(in_read_zstd(in, buf, n, &done));
        break;
    }
    in->offset += done;
    *got = done;
    return MST_OK;
}

mst_status mst_in_read(mst_in *in, void *buf, size_t n, size_t *got)
{
    in->some = false;
    return in_decode(in, buf, n, got);
}

mst_status mst_in_read_some(mst_in *in, void *buf, size_t n, int wait_ms, size_t *got)
{
    in->some = true;
    in->wait_ms = wait_ms;
    return in_decode(in, buf, n, got);
}

/* ---- opening ---- */

/* Reads on until there are n raw bytes or the file has ended; a pipe may deliver them one by one. */
static mst_status in_look_ahead(mst_in *in, size_t n)
{
    while (in->raw_n < n && !in->at_end) {
        size_t got;
        TRY(in_read_some(in, in->raw + in->raw_n, RAW_SIZE - in->raw_n, &got));
        in->raw_n += got;
    }
    return MST_OK;
}

/* Makes the decoder of gzip (window 15 + 16) or zlib (15). */
static mst_status in_make_inflater(mst_in *in, int window)
{
    in->zlib.zalloc = mst_zlib_alloc;
    in->zlib.zfree = mst_zlib_free;
    in->zlib_made = inflateInit2(&in->zlib, window) == Z_OK;
    if (!in->zlib_made)
        return mst_fail_memory();
    in->frame_open = true;
    return MST_OK;
}

/* A zlib stream has a header of two bytes only, which other files may begin with (the length of a record in a
 * TFRecord file, text): the first bytes must inflate too. */
static mst_status in_detect_zlib(mst_in *in)
{
    const uint8_t *b = in->raw;
    uint8_t scrap[256];
    if (in->raw_n < 2 || b[0] != ZLIB_FIRST || ((unsigned)b[0] << 8 | b[1]) % 31 != 0 || (b[1] & 0x20) != 0)
        return MST_OK;
    TRY(in_look_ahead(in, ZLIB_LOOK));
    TRY(in_make_inflater(in, 15));
    in->zlib.next_in = in->raw;
    in->zlib.avail_in = (uInt)in->raw_n;
    in->zlib.next_out = scrap;
    in->zlib.avail_out = sizeof scrap;
    int rc = inflate(&in->zlib, Z_NO_FLUSH);
    if (rc == Z_OK || rc == Z_STREAM_END) {
        in->codec = CODEC_ZLIB;
        inflateReset(&in->zlib);
        return MST_OK;
    }
    inflateEnd(&in->zlib);
    in->zlib_made = in->frame_open = false;
    return rc != Z_MEM_ERROR ? MST_OK : mst_fail_memory();
}

/* Whether the n first bytes may be the beginning of a compressed file's magic number. */
static bool in_undecided(const uint8_t *b, size_t n)
{
    static const uint8_t zstd[4] = {0x28, 0xb5, 0x2f, 0xfd}, skippable[3] = {0x2a, 0x4d, 0x18};
    return n == 0 || (n < 2 && (b[0] == 0x1f || b[0] == ZLIB_FIRST)) || (n < 4 && memcmp(b, zstd, n) == 0) ||
           (n < 4 && (b[0] & 0xf0) == 0x50 && memcmp(b + 1, skippable, n - 1) == 0);
}

/* Finds the codec from as few of the first bytes as possible. */
static mst_status in_detect(mst_in *in)
{
    while (in_undecided(in->raw, in->raw_n) && !in->at_end)
        TRY(in_look_ahead(in, in->raw_n + 1));
    const uint8_t *b = in->raw;
    if (in->raw_n >= 2 && b[0] == 0x1f && b[1] == 0x8b)
        in->codec = CODEC_GZIP;
    else if (in->raw_n >= 4 && b[0] == 0x28 && b[1] == 0xb5 && b[2] == 0x2f && b[3] == 0xfd)
        in->codec = CODEC_ZSTD;
    else if (in->raw_n >= 4 && (b[0] & 0xf0) == 0x50 && b[1] == 0x2a && b[2] == 0x4d && b[3] == 0x18)
        in->codec = CODEC_ZSTD; /* a skippable frame in front */
    else
        return in_detect_zlib(in);
    if (in->codec == CODEC_GZIP)
        return in_make_inflater(in, 15 + 16);
    in->zstd = ZSTD_createDStream();
    return in->zstd != NULL ? MST_OK : mst_fail_memory();
}

mst_status mst_in_open(const char *path, mst_in **out)
{
    mst_status st;
    mst_in *in = mst_zalloc(sizeof *in);
    if (in == NULL)
        return mst_fail_memory();
    in->fd = -1;
    in->standard = strcmp(path, "-") == 0;
    in->path = mst_strdup(in->standard ? "standard input" : path);
    in->raw = mst_alloc(RAW_SIZE);
    if (in->path == NULL || in->raw == NULL)
        TRY_OUT(st, mst_fail_memory());
    struct stat info;
    /* A FIFO is opened without waiting for its writer: await does that, and can be stopped. */
    int nonblock = stat(path, &info) == 0 && S_ISFIFO(info.st_mode) ? O_NONBLOCK : 0;
    in->fd = in->standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | nonblock);
    if (in->fd < 0)
        TRY_OUT(st, mst_fail(MST_EINPUT, "%s: cannot be opened: %s", path, strerror(errno)));
    if (fstat(in->fd, &info) != 0)
        TRY_OUT(st, mst_fail(MST_EIO, "%s: cannot be examined: %s", in->path, strerror(errno)));
    if (S_ISDIR(info.st_mode))
        TRY_OUT(st, mst_fail(MST_EINPUT, "%s: is a folder, not a file", in->path));
    in->waits = !S_ISREG(info.st_mode);
    if (S_ISFIFO(info.st_mode))
        fcntl(in->fd, F_SETPIPE_SZ, PIPE_SIZE); /* a hint, like the one below */
    in->whole = !in->waits;                     /* for a plain file's first bytes */
    if (S_ISREG(info.st_mode)) {
        in->size = (uint64_t)info.st_size;
        posix_fadvise(in->fd, 0, 0, POSIX_FADV_SEQUENTIAL); /* a hint: failure changes nothing */
    }
    TRY_OUT(st, in_detect(in));
    in->whole = false;
    *out = in;
    in = NULL;
out:
    mst_in_close(in);
    return st;
}

void mst_in_close(mst_in *in)
{
    if (in == NULL)
        return;
    if (in->zlib_made)
        inflateEnd(&in->zlib);
    ZSTD_freeDStream(in->zstd);
    if (in->fd >= 0 && !in->standard)
        close(in->fd);
    mst_free(in->raw);
    mst_free(in->path);
    mst_free(in);
}

const char *mst_in_path(const mst_in *in)
{
    return in->path;
}

uint64_t mst_in_offset(const mst_in *in)
{
    return in->offset;
}

uint64_t mst_in_file_size(const mst_in *in)
{
    return in->size;
}

bool mst_in_compressed(const mst_in *in)
{
    return in->codec != CODEC_PLAIN;
}

bool mst_in_is_plain(const mst_in *in)
{
    return in->codec == CODEC_PLAIN && !in->waits;
}

mst_status mst_in_read_at(const mst_in *in, uint64_t offset, void *buf, size_t n)
{
    for (size_t got = 0; got < n;) {
        if (in_stop_is_set(g_stop) || in_stop_is_set(in->stop))
            return mst_fail_lead(MST_ESTOPPED, "stopped", " while reading %s at byte %llu", in->path,
                                 (unsigned long long)(offset + got));
        ssize_t r = pread(in->fd, (uint8_t *)buf + got, n - got, (off_t)(offset + got));
        if (r < 0 && errno != EINTR)
            return mst_fail(MST_EIO, "%s: cannot read at byte %llu: %s", in->path,
                            (unsigned long long)(offset + got), strerror(errno));
        struct stat info;
        if (r == 0)
            return mst_fail(MST_EINPUT, "%s was cut from %llu to %llu bytes while it was in use", in->path,
                            (unsigned long long)in->size,
                            (unsigned long long)(fstat(in->fd, &info) == 0 ? (uint64_t)info.st_size : 0));
        got += r > 0 ? (size_t)r : 0;
    }
    return MST_OK;
}

mst_status mst_file_read_all(const char *path, size_t limit, char **data, size_t *size)
{
    mst_status st;
    mst_in *in = NULL;
    char *text = NULL;
    size_t n = 0, capacity = 0, got;
    TRY_OUT(st, mst_in_open(path, &in));
    in->whole = !in->waits;
    /* Reads one byte beyond the limit, to detect a longer file. */
    size_t most = limit < SIZE_MAX - 2 ? limit + 1 : SIZE_MAX - 1;
    size_t guess = in->size < most ? (size_t)in->size + 1 : most;
    do {
        size_t want = n == 0 && guess > 1 ? guess : 64u << 10;
        want = want < most - n ? want : most - n;
        if (!mst_grow(&text, &capacity, n + want + 1, 1))
            TRY_OUT(st, mst_fail_memory());
        TRY_OUT(st, mst_in_read(in, text + n, want, &got));
        n += got;
        if (n > limit)
            TRY_OUT(st, mst_fail(MST_EINPUT, "%s: larger than %zu bytes", mst_in_path(in), limit));
        if (got < want)
            break;
    } while (n < most);
    text[n] = '\0';
    *data = text;
    *size = n;
    text = NULL;
out:
    mst_free(text);
    mst_in_close(in);
    return st;
}
