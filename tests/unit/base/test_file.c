/* Files: input by content (plain, gzip, zlib, zstd; whole, concatenated, truncated, corrupt), output that
 * appears whole or not at all, mappings, paths and globs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/rng.h"

static char g_folder[64];

static const char *in_folder(const char *name)
{
    static char paths[4][160]; /* a few at a time */
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", g_folder, name);
    return path;
}

static int setup(void **state)
{
    (void)state;
    strcpy(g_folder, "/tmp/muster-test-file.XXXXXX");
    return mkdtemp(g_folder) ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    mst_out_fail_at(0);
    return mst_remove_tree(g_folder) == MST_OK && !mst_path_exists(g_folder) ? 0 : -1;
}

static void put(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* Files in the folder, whatever their names. */
static size_t count_files(void)
{
    char command[128];
    size_t n = 0;
    snprintf(command, sizeof command, "ls -A %s", g_folder);
    FILE *ls = popen(command, "r");
    assert_non_null(ls);
    for (int c; (c = fgetc(ls)) != EOF;)
        n += c == '\n';
    pclose(ls);
    return n;
}

/* Compressible but not trivial: words drawn from a few. */
static char *sample(size_t n)
{
    mst_rng rng;
    mst_rng_init(&rng, 7, MST_RNG_TEST, n);
    char *data = mst_alloc(n + 1);
    assert_non_null(data);
    for (size_t i = 0; i < n; i++)
        data[i] = "0123456789abcdef :\n"[mst_rng_below(&rng, 19)];
    data[n] = '\0';
    return data;
}

/* Deflates into `packed`; returns the size. window: 15 for zlib, 15 + 16 for gzip. */
static size_t deflated(int level, int window, const char *data, size_t n, uint8_t *packed, size_t room)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, level, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)data;
    z.avail_in = (uInt)n;
    z.next_out = packed;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t size = room - z.avail_out;
    deflateEnd(&z);
    return size;
}

/* One gzip member. */
static size_t gzip_member(const char *data, size_t n, uint8_t *packed, size_t room)
{
    return deflated(6, 15 + 16, data, n, packed, room);
}

/* Reads path in pieces of `piece` and compares. */
static void check_content(const char *path, const char *data, size_t n, size_t piece)
{
    mst_in *in = NULL;
    assert_int_equal(mst_in_open(path, &in), MST_OK);
    char *buf = mst_alloc(piece);
    size_t at = 0, got;
    do {
        if (mst_in_read(in, buf, piece, &got) != MST_OK)
            fail_msg("%s", mst_error_text());
        assert_true(at + got <= n);
        assert_memory_equal(buf, data + at, got);
        at += got;
        assert_int_equal(mst_in_offset(in), at);
    } while (got == piece);
    assert_int_equal(at, n);
    assert_int_equal(mst_in_read(in, buf, piece, &got), MST_OK);
    assert_int_equal(got, 0);
    assert_string_equal(mst_in_path(in), path);
    mst_free(buf);
    mst_in_close(in);
}

static void test_plain(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 1, 3, 4, 1000, 262143, 262144, 262145, 1000000};
    const size_t pieces[] = {1, 999, 262144, 300000, 2000000};
    const char *path = in_folder("plain");
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        char *data = sample(sizes[s]);
        put(path, data, sizes[s]);
        for (size_t p = sizes[s] > 1000; p < sizeof pieces / sizeof *pieces; p++)
            check_content(path, data, sizes[s], pieces[p]);
        mst_free(data);
    }
}

static void test_gzip_members(void **state)
{
    (void)state;
    const size_t n = 700000, cut = 300001;
    char *data = sample(n);
    uint8_t *packed = mst_alloc(n + 4096);
    size_t size = gzip_member(data, cut, packed, n);
    size += gzip_member("", 0, packed + size, 4096);
    size += gzip_member(data + cut, n - cut, packed + size, n - size);
    const char *path = in_folder("members.gz");
    put(path, packed, size);
    check_content(path, data, n, 777);
    check_content(path, data, n, 1000000);
    memset(packed + size, 0, 512); /* tape padding */
    put(path, packed, size + 512);
    check_content(path, data, n, 262144);
    mst_in *in;
    assert_int_equal(mst_in_open(path, &in), MST_OK);
    assert_true(mst_in_compressed(in));
    mst_in_close(in);
    mst_free(packed);
    mst_free(data);
}

static void test_zlib_streams(void **state)
{
    (void)state;
    const size_t n = 700000, cut = 300001;
    char *data = sample(n);
    uint8_t *packed = mst_alloc(2 * n);
    const char *path = in_folder("stream.zlib");
    for (int level = 0; level <= 9; level++) {
        size_t size = deflated(level, 15, data, n, packed, 2 * n);
        put(path, packed, size);
        check_content(path, data, n, level % 2 ? 777 : 1000000);
    }
    size_t size = deflated(6, 15, data, cut, packed, n);
    size += deflated(6, 15, data + cut, n - cut, packed + size, n);
    put(path, packed, size);
    check_content(path, data, n, 262144);
    put(path, packed, deflated(6, 15, "", 0, packed, 100));
    check_content(path, "", 0, 10);
    mst_free(packed);
    mst_free(data);
}

/* Files that begin with the two bytes of a zlib stream and are none: a TFRecord file whose first record has
 * such a length, and text. */
static void test_not_zlib(void **state)
{
    (void)state;
    const char *path = in_folder("plain");
    for (unsigned length = 0x9c78; length < 64u << 20; length += 0x10000) {
        uint8_t file[100] = {(uint8_t)length, (uint8_t)(length >> 8), (uint8_t)(length >> 16),
                             (uint8_t)(length >> 24)};
        for (size_t i = 8; i < sizeof file; i++)
            file[i] = (uint8_t)(i * 37 + length / 255);
        put(path, file, sizeof file);
        check_content(path, (const char *)file, sizeof file, 1000);
    }
    static const char text[] =
        "x^2 |f this is text, of more than sixty-four bytes, which begins like a stream\n";
    put(path, text, sizeof text - 1);
    check_content(path, text, sizeof text - 1, 10);
}

static void test_zstd_frames(void **state)
{
    (void)state;
    const size_t n = 700000, cut = 300001;
    char *data = sample(n);
    uint8_t *packed = mst_alloc(2 * n);
    const uint8_t skippable[] = {0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'a', 'b', 'c'};
    size_t size = sizeof skippable;
    memcpy(packed, skippable, size);
    size += ZSTD_compress(packed + size, 2 * n - size, data, cut, 3);
    memcpy(packed + size, skippable, sizeof skippable);
    size += sizeof skippable;
    size += ZSTD_compress(packed + size, 2 * n - size, data + cut, n - cut, 1);
    const char *path = in_folder("frames.zst");
    put(path, packed, size);
    check_content(path, data, n, 777);
    check_content(path, data, n, 131072);
    check_content(path, data, n, 1000000);
    mst_free(packed);
    mst_free(data);
}

/* Reads to the end or the first failure. */
static mst_status drain(const char *path)
{
    char *data;
    size_t size;
    mst_status st = mst_file_read_all(path, 1u << 24, &data, &size);
    if (st == MST_OK)
        mst_free(data);
    return st;
}

static void test_truncated(void **state)
{
    (void)state;
    const size_t n = 100000;
    char *data = sample(n), expected[256];
    uint8_t *packed = mst_alloc(2 * n);
    static const char *const kinds[] = {"gzip", "zlib", "zstd"};
    for (int k = 0; k < 3; k++) {
        bool zstd = k == 2;
        size_t size = zstd ? ZSTD_compress(packed, 2 * n, data, n, 3)
                           : deflated(6, k == 0 ? 15 + 16 : 15, data, n, packed, 2 * n);
        const char *path = in_folder("cut"), *kind = kinds[k];
        const size_t cuts[] = {4, 5, 10, 17, 100, size / 2, size - 9, size - 1};
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
            put(path, packed, cuts[i]);
            assert_int_equal(drain(path), MST_EINPUT);
            snprintf(expected, sizeof expected, "%s: %s stream ends early at byte %zu", path, kind, cuts[i]);
            assert_string_equal(mst_error_text(), expected);
        }
        packed[size / 2] ^= 0x55;
        packed[size / 2 + 1] ^= 0x55;
        put(path, packed, size);
        mst_status st = drain(path);
        if (zstd && st == MST_OK)
            continue; /* ZSTD_compress adds no checksum: a changed literal passes */
        assert_int_equal(st, MST_EINPUT);
        assert_non_null(strstr(mst_error_text(), "stream is corrupt at byte "));
        assert_non_null(strstr(mst_error_text(), path));
    }
    mst_free(packed);
    mst_free(data);
}

static void test_garbage_behind_gzip(void **state)
{
    (void)state;
    uint8_t packed[256];
    size_t size = gzip_member("hello", 5, packed, sizeof packed);
    memcpy(packed + size, "junk", 4);
    const char *path = in_folder("junk.gz");
    put(path, packed, size + 4);
    assert_int_equal(drain(path), MST_EINPUT);
    char expected[256];
    snprintf(expected, sizeof expected, "%s: bytes that are not gzip follow the gzip stream at byte %zu",
             path, size);
    assert_string_equal(mst_error_text(), expected);
}

static void test_open_errors(void **state)
{
    (void)state;
    mst_in *in = NULL;
    char expected[256];
    const char *path = in_folder("nowhere");
    assert_int_equal(mst_in_open(path, &in), MST_EINPUT);
    snprintf(expected, sizeof expected, "%s: cannot be opened: No such file or directory", path);
    assert_string_equal(mst_error_text(), expected);
    assert_int_equal(mst_in_open(g_folder, &in), MST_EINPUT);
    snprintf(expected, sizeof expected, "%s: is a folder, not a file", g_folder);
    assert_string_equal(mst_error_text(), expected);
    assert_null(in);
}

static void test_pipe(void **state)
{
    (void)state;
    int ends[2], saved = dup(STDIN_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "through a pipe", 14), 14);
    close(ends[1]);
    dup2(ends[0], STDIN_FILENO);
    close(ends[0]);
    mst_in *in;
    char buf[64];
    size_t got;
    assert_int_equal(mst_in_open("-", &in), MST_OK);
    assert_string_equal(mst_in_path(in), "standard input");
    assert_int_equal(mst_in_file_size(in), 0);
    assert_false(mst_in_compressed(in));
    assert_int_equal(mst_in_read(in, buf, sizeof buf, &got), MST_OK);
    assert_int_equal(got, 14);
    assert_memory_equal(buf, "through a pipe", 14);
    mst_in_close(in);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), 0); /* close leaves it open */
    dup2(saved, STDIN_FILENO);
    close(saved);
}

/* What a pipe holds is read at once, plain and compressed; what is not there yet is waited for as long as
 * asked. */
static void test_read_some(void **state)
{
    (void)state;
    static const char *const suffixes[] = {"", ".gz", ".zst"};
    for (size_t i = 0; i < 3; i++) {
        mst_in *in;
        mst_out *out;
        char path[PATH_MAX], buf[64], *data;
        size_t got, size;
        atomic_bool stop = false;
        snprintf(path, sizeof path, "%s%s", in_folder("some"), suffixes[i]);
        assert_int_equal(mst_out_open(path, &out), MST_OK);
        assert_int_equal(mst_out_printf(out, "first line\n"), MST_OK);
        assert_int_equal(mst_out_commit(out), MST_OK);
        mst_out_close(out);
        FILE *file = fopen(path, "rb");
        data = mst_alloc(1000);
        size = fread(data, 1, 1000, file);
        fclose(file);
        unlink(in_folder("fifo"));
        assert_int_equal(mkfifo(in_folder("fifo"), 0600), 0);
        int writer = open(in_folder("fifo"), O_RDWR);
        assert_int_equal(write(writer, data, size), (ssize_t)size);
        assert_int_equal(mst_in_open(in_folder("fifo"), &in), MST_OK);
        assert_int_equal(mst_in_read_some(in, buf, sizeof buf, -1, &got), MST_OK);
        assert_int_equal(got, 11);
        assert_memory_equal(buf, "first line\n", 11);
        for (int wait_ms = 0; wait_ms < 3; wait_ms++) {
            assert_int_equal(mst_in_read_some(in, buf, sizeof buf, wait_ms, &got), MST_OK);
            assert_int_equal(got, 0);
        }
        assert_int_equal(write(writer, data, size), (ssize_t)size);
        assert_int_equal(mst_in_read_some(in, buf, 5, 0, &got), MST_OK);
        assert_int_equal(got, 5);
        assert_int_equal(mst_in_read_some(in, buf, sizeof buf, 0, &got), MST_OK);
        assert_int_equal(got, 6);
        mst_in_stop_when(in, &stop);
        atomic_store(&stop, true);
        assert_int_equal(mst_in_read_some(in, buf, sizeof buf, -1, &got), MST_ESTOPPED);
        atomic_store(&stop, false);
        assert_int_equal(write(writer, data, size), (ssize_t)size);
        close(writer);
        assert_int_equal(mst_in_read_some(in, buf, sizeof buf, -1, &got), MST_OK);
        assert_int_equal(got, 11);
        assert_int_equal(mst_in_read_some(in, buf, sizeof buf, -1, &got), MST_OK);
        assert_int_equal(got, 0);
        mst_in_close(in);
        mst_free(data);
    }
}

static void test_standard_output(void **state)
{
    (void)state;
    int ends[2], saved = dup(STDOUT_FILENO);
    char buf[64];
    mst_out *out;
    fflush(stdout);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
    mst_status opened = mst_out_open("-", &out);
    mst_status wrote = opened == MST_OK ? mst_out_printf(out, "to %s", "stdout") : opened;
    mst_status patched = opened == MST_OK ? mst_out_patch(out, 0, "T", 1) : opened;
    mst_status committed = opened == MST_OK ? mst_out_commit(out) : opened;
    if (opened == MST_OK)
        mst_out_close(out);
    int still_open = fcntl(STDOUT_FILENO, F_GETFD);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    assert_int_equal(wrote, MST_OK);
    assert_int_equal(patched, MST_EUSAGE);
    assert_int_equal(committed, MST_OK);
    assert_int_equal(still_open, 0);
    assert_int_equal(read(ends[0], buf, sizeof buf), 9);
    assert_memory_equal(buf, "to stdout", 9);
    close(ends[0]);
}

static void test_read_all(void **state)
{
    (void)state;
    char *data;
    size_t size;
    const char *path = in_folder("all");
    put(path, "0123456789", 10);
    assert_int_equal(mst_file_read_all(path, 10, &data, &size), MST_OK);
    assert_int_equal(size, 10);
    assert_string_equal(data, "0123456789");
    mst_free(data);
    assert_int_equal(mst_file_read_all(path, 9, &data, &size), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "/all: larger than 9 bytes"));
    put(path, "", 0);
    assert_int_equal(mst_file_read_all(path, 0, &data, &size), MST_OK);
    assert_int_equal(size, 0);
    assert_string_equal(data, "");
    mst_free(data);
    assert_int_equal(mst_file_read_all(path, SIZE_MAX, &data, &size), MST_OK);
    mst_free(data);
}

static void test_out_round_trip(void **state)
{
    (void)state;
    const char *names[] = {"out", "out.gz", "out.zst"};
    const size_t n = 900000;
    char *data = sample(n);
    for (size_t i = 0; i < 3; i++) {
        const char *path = in_folder(names[i]);
        mst_out *out;
        assert_int_equal(mst_out_open(path, &out), MST_OK);
        size_t at = 0;
        for (size_t piece = 1; at < n; piece = piece * 3 + 1) {
            size_t take = piece < n - at ? piece : n - at;
            assert_int_equal(mst_out_write(out, data + at, take), MST_OK);
            at += take;
            assert_int_equal(mst_out_offset(out), at);
        }
        assert_false(mst_path_exists(path));
        assert_int_equal(mst_out_commit(out), MST_OK);
        assert_true(mst_path_exists(path));
        mst_out_close(out);
        check_content(path, data, n, 100000);
        mst_in *in;
        assert_int_equal(mst_in_open(path, &in), MST_OK);
        assert_int_equal(mst_in_compressed(in), i > 0);
        assert_true(i == 0 || mst_in_file_size(in) < n * 3 / 4);
        mst_in_close(in);
        assert_int_equal(count_files(), i + 1);
    }
    mst_free(data);
}

static void test_out_printf_and_patch(void **state)
{
    (void)state;
    const char *path = in_folder("patched");
    char *longer = sample(5000);
    mst_out *out;
    assert_int_equal(mst_out_open(path, &out), MST_OK);
    assert_int_equal(mst_out_printf(out, "%08d|", 0), MST_OK);
    assert_int_equal(mst_out_printf(out, "%s|", longer), MST_OK);
    assert_int_equal(mst_out_patch(out, 4, "1234", 4), MST_OK);
    assert_int_equal(mst_out_printf(out, "end"), MST_OK);
    assert_int_equal(mst_out_patch(out, 5010, "E", 1), MST_OK);
    assert_int_equal(mst_out_patch(out, 5012, "xy", 2), MST_EUSAGE);
    assert_non_null(strstr(mst_error_text(), "bytes 5012 to 5014 are not written yet"));
    assert_int_equal(mst_out_commit(out), MST_OK);
    mst_out_close(out);
    char *data;
    size_t size;
    assert_int_equal(mst_file_read_all(path, 10000, &data, &size), MST_OK);
    assert_int_equal(size, 9 + 5001 + 3);
    assert_memory_equal(data, "00001234|", 9);
    assert_memory_equal(data + 9, longer, 5000);
    assert_string_equal(data + 9 + 5000, "|End");
    mst_free(data);
    mst_free(longer);
    assert_int_equal(mst_out_open(in_folder("patched.gz"), &out), MST_OK);
    assert_int_equal(mst_out_printf(out, "abc"), MST_OK);
    assert_int_equal(mst_out_patch(out, 0, "x", 1), MST_EUSAGE);
    mst_out_close(out);
    assert_int_equal(count_files(), 1);
}

static void test_out_abandoned(void **state)
{
    (void)state;
    const char *path = in_folder("kept");
    put(path, "old", 3);
    mst_out *out;
    assert_int_equal(mst_out_open(path, &out), MST_OK);
    assert_int_equal(mst_out_printf(out, "new"), MST_OK);
    assert_int_equal(count_files(), 2);
    mst_out_close(out);
    assert_int_equal(count_files(), 1);
    check_content(path, "old", 3, 10);
    assert_int_equal(mst_out_open(path, &out), MST_OK);
    assert_int_equal(mst_out_printf(out, "newer"), MST_OK);
    assert_int_equal(mst_out_commit(out), MST_OK);
    assert_int_equal(mst_out_commit(out), MST_OK);
    mst_out_close(out);
    check_content(path, "newer", 5, 10);
    assert_int_equal(count_files(), 1);
}

/* Each write in turn fails: the sentence names the path, the target keeps its old content, nothing is left.
 */
static void test_out_disk_full(void **state)
{
    (void)state;
    const char *names[] = {"full", "full.gz", "full.zst"};
    const size_t n = 900000;
    char *data = sample(n), expected[256];
    for (size_t i = 0; i < 3; i++) {
        const char *path = in_folder(names[i]);
        put(path, "old", 3);
        snprintf(expected, sizeof expected, "%s: cannot be written: No space left on device", path);
        unsigned k = 0;
        mst_status st;
        do {
            mst_out *out;
            assert_int_equal(mst_out_open(path, &out), MST_OK);
            mst_out_fail_at(++k);
            st = MST_OK;
            for (size_t at = 0; at < n && st == MST_OK; at += 90000)
                st = mst_out_write(out, data + at, 90000);
            mst_status committed = mst_out_commit(out);
            if (st != MST_OK)
                assert_int_equal(committed, MST_EIO); /* a failed write cannot be committed over */
            st = committed;
            if (st != MST_OK) {
                assert_int_equal(st, MST_EIO);
                assert_string_equal(mst_error_text(), expected);
            }
            mst_out_close(out);
            assert_int_equal(count_files(), i + 1);
            if (st != MST_OK)
                check_content(path, "old", 3, 10);
        } while (st != MST_OK);
        assert_true(k > 2);
        mst_out_fail_at(0);
        check_content(path, data, n, 100000);
    }
    mst_free(data);
}

static void test_out_places(void **state)
{
    (void)state;
    mst_out *out;
    char expected[256];
    const char *path = in_folder("no/such/file");
    assert_int_equal(mst_out_open(path, &out), MST_EIO);
    snprintf(expected, sizeof expected, "%s: cannot be created: No such file or directory", path);
    assert_string_equal(mst_error_text(), expected);
    assert_int_equal(mst_out_open(g_folder, &out), MST_EIO);
    assert_non_null(strstr(mst_error_text(), "there is a folder of that name"));
    assert_int_equal(mst_out_open("/dev/null", &out), MST_OK); /* written directly, never replaced */
    assert_int_equal(mst_out_printf(out, "x"), MST_OK);
    assert_int_equal(mst_out_commit(out), MST_OK);
    mst_out_close(out);
    struct stat info;
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    /* through a link: the link stays, its target changes */
    put(in_folder("target"), "old", 3);
    assert_int_equal(symlink("target", in_folder("link")), 0);
    assert_int_equal(mst_out_open(in_folder("link"), &out), MST_OK);
    assert_int_equal(mst_out_printf(out, "new"), MST_OK);
    assert_int_equal(mst_out_commit(out), MST_OK);
    mst_out_close(out);
    assert_int_equal(lstat(in_folder("link"), &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    check_content(in_folder("target"), "new", 3, 10);
}

static void test_map(void **state)
{
    (void)state;
    mst_map map;
    const char *path = in_folder("map");
    put(path, "mapped", 6);
    assert_int_equal(mst_map_open(path, &map), MST_OK);
    assert_int_equal(map.size, 6);
    assert_memory_equal(map.data, "mapped", 6);
    mst_map_close(&map);
    mst_map_close(&map);
    put(path, "", 0);
    assert_int_equal(mst_map_open(path, &map), MST_OK);
    assert_null(map.data);
    assert_int_equal(map.size, 0);
    mst_map_close(&map);
    assert_int_equal(mst_map_open(g_folder, &map), MST_EINPUT);
    assert_non_null(strstr(mst_error_text(), "is not a plain file"));
    assert_int_equal(mst_map_open(in_folder("nowhere"), &map), MST_EINPUT);
}

static void test_folders(void **state)
{
    (void)state;
    assert_int_equal(mst_make_folders(in_folder("a/b//c/")), MST_OK);
    assert_true(mst_path_is_folder(in_folder("a/b/c")));
    assert_int_equal(mst_make_folders(in_folder("a/b/c")), MST_OK);
    put(in_folder("a/file"), "x", 1);
    put(in_folder("outside"), "x", 1);
    assert_int_equal(mst_make_folders(in_folder("a/file/d")), MST_EIO);
    assert_non_null(strstr(mst_error_text(), "Not a directory"));
    assert_int_equal(symlink("../outside", in_folder("a/link")), 0);
    assert_int_equal(symlink("..", in_folder("a/up")), 0);
    assert_int_equal(mst_remove_tree(in_folder("a")), MST_OK);
    assert_false(mst_path_exists(in_folder("a")));
    assert_true(mst_path_exists(in_folder("outside")));
    assert_int_equal(mst_remove_tree(in_folder("a")), MST_OK);
    assert_true(mst_path_is_temporary("x/data.tmp.123.4"));
    assert_false(mst_path_is_temporary("x/data.tmp.123"));
    assert_false(mst_path_is_temporary("x/data.tmp.123."));
    assert_false(mst_path_is_temporary("x/data.123.4"));
    assert_false(mst_path_is_temporary("4"));
    assert_false(mst_path_is_temporary(""));
}

static void check_glob(const char *pattern, const char *const *names, size_t n)
{
    char *items[] = {(char *)pattern};
    mst_text_list patterns = {items, 1}, found;
    if (mst_glob(&patterns, &found) != MST_OK)
        fail_msg("%s", mst_error_text());
    assert_int_equal(found.n, n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(found.items[i], strcmp(pattern, "-") == 0 ? "-" : in_folder(names[i]));
    mst_text_list_fini(&found);
}

static void test_glob(void **state)
{
    (void)state;
    const char *files[] = {"b.txt", "a.txt", "c[1].txt", "a.txt.tmp.77.0", ".hidden"};
    for (size_t i = 0; i < 5; i++)
        put(in_folder(files[i]), "x", 1);
    assert_int_equal(mst_make_folders(in_folder("d.txt")), MST_OK);
    const char *all[] = {"a.txt", "b.txt", "c[1].txt"};
    check_glob(in_folder("*"), all, 3);
    check_glob(g_folder, all, 3);
    check_glob(in_folder("[ab].txt"), all, 2);
    check_glob(in_folder("a.txt"), all, 1);
    check_glob(in_folder("c[1].txt"), all + 2, 1); /* a file of that very name wins over the pattern */
    check_glob("-", all, 1);
    struct {
        const char *name, *sentence;
    } bad[] = {
        {"*.csv", ": matches no file"},
        {"e.txt", ": there is no such file"},
        {"d.txt", ": the folder has no files"},
        {"a.txt.tmp.77.0", ": is a temporary file that a write left behind, not data"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char expected[256];
        char *items[] = {(char *)in_folder("a.txt"), (char *)in_folder(bad[i].name)};
        mst_text_list patterns = {items, 2}, found = {0};
        assert_int_equal(mst_glob(&patterns, &found), MST_EINPUT);
        snprintf(expected, sizeof expected, "%s%s", items[1], bad[i].sentence);
        assert_string_equal(mst_error_text(), expected);
        assert_null(found.items);
    }
}

/* Every allocation in turn fails: MST_ENOMEM and nothing leaked, or success. */
static void test_no_memory(void **state)
{
    (void)state;
    const char *names[] = {"plain", "p.gz"};
    for (size_t i = 0; i < 2; i++) {
        const char *path = in_folder(names[i]);
        mst_alloc_stats before, after;
        mst_status st;
        mst_alloc_stats_get(&before);
        uint64_t k = 0;
        do {
            mst_out *out = NULL;
            mst_alloc_fail_at(++k);
            st = mst_out_open(path, &out);
            if (st == MST_OK)
                st = mst_out_printf(out, "hello");
            if (st == MST_OK)
                st = mst_out_commit(out);
            mst_out_close(out);
            if (st == MST_OK)
                st = drain(path);
            assert_true(st == MST_OK || st == MST_ENOMEM || st == MST_EIO);
            mst_alloc_stats_get(&after);
            assert_int_equal(before.blocks, after.blocks);
        } while (st != MST_OK && k < 100);
        mst_alloc_fail_at(0);
        assert_int_equal(st, MST_OK);
        assert_true(k > 5);
    }
}

/* After a stop request the reader stops reading a silent pipe or a long file; a file that is read whole is
 * still read. */
static void test_stop(void **state)
{
    (void)state;
    atomic_bool stop = false;
    mst_in *in = NULL;
    char buffer[100], *text;
    size_t got, size = 1 << 20;
    char *data = sample(size);
    put(in_folder("long"), data, size);
    mst_free(data);
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    int writer = open(in_folder("pipe"), O_RDWR);
    assert_true(writer >= 0);
    mst_in_stop_on(&stop);
    assert_int_equal(write(writer, "0123456789", 10), 10);
    assert_int_equal(mst_in_open(in_folder("pipe"), &in), MST_OK);
    assert_int_equal(mst_in_read(in, buffer, 4, &got), MST_OK);
    stop = true;
    assert_int_equal(mst_in_read(in, buffer, sizeof buffer, &got), MST_ESTOPPED);
    assert_non_null(strstr(mst_error_text(), "pipe at byte 10"));
    mst_in_close(in);
    close(writer);
    assert_int_equal(mst_file_read_all(in_folder("long"), size, &text, &got), MST_OK);
    assert_int_equal(got, size);
    mst_free(text);
    assert_int_equal(mst_in_open(in_folder("long"), &in), MST_OK);
    mst_status st = MST_OK;
    for (size_t n = 0; st == MST_OK && n < size; n += got)
        st = mst_in_read(in, buffer, sizeof buffer, &got);
    assert_int_equal(st, MST_ESTOPPED);
    mst_in_close(in);
    mst_in_stop_on(NULL);
}

int main(void)
{
#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_plain),
        T(test_gzip_members),
        T(test_zlib_streams),
        T(test_not_zlib),
        T(test_zstd_frames),
        T(test_truncated),
        T(test_open_errors),
        T(test_garbage_behind_gzip),
        T(test_pipe),
        T(test_read_some),
        T(test_read_all),
        T(test_out_places),
        T(test_out_round_trip),
        T(test_out_printf_and_patch),
        T(test_out_abandoned),
        T(test_map),
        T(test_out_disk_full),
        T(test_folders),
        T(test_glob),
        T(test_no_memory),
        T(test_standard_output),
        T(test_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
