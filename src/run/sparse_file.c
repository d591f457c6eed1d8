/* Design: both directions go by blocks of 64 KiB. Writing joins adjacent non-zero blocks into pieces of up to
 * 8 MiB, one pwrite each. Reading finds the holes of the file (SEEK_DATA, SEEK_HOLE), and copies data through
 * a small buffer that stays in the cache, because stored zeros must not touch the destination either.
 *
 * Invariants
 * 1. A block is left out of a file only if all its bits are zero (so -0.0 is kept).
 * 2. A page counts as untouched only if it is neither present nor swapped out. */
#include "run/sparse_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc.h"

#define BLOCK      ((size_t)64 << 10)
#define PIECE      ((size_t)8 << 20)
#define BUFFER     ((size_t)256 << 10)
#define WINDOW     512                 /* pages looked up at once */
#define PAGE_THERE ((uint64_t)3 << 62) /* present, or in swap */

static _Atomic uint64_t fail_at; /* writes until one fails; 0: off */

void mst_sparse_fail_at(uint64_t k)
{
    atomic_store(&fail_at, k);
}

static bool sparse_write_fails(void)
{
    uint64_t k = atomic_load(&fail_at);
    while (k != 0)
        if (atomic_compare_exchange_weak(&fail_at, &k, k - 1))
            return k == 1;
    return false;
}

/* ---- memory that was never touched ---- */

typedef struct page_map {
    int fd;                       /* -1: unknown, so everything counts as touched */
    uint64_t page_size, first, n; /* window: pages [first, first + n) */
    uint64_t entries[WINDOW];
} page_map;

static void page_map_init(page_map *map, bool lazy, size_t n)
{
    map->fd = lazy && n >= BLOCK ? open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC) : -1;
    map->page_size = (uint64_t)sysconf(_SC_PAGESIZE);
    map->first = map->n = 0;
}

static void page_map_fini(page_map *map)
{
    if (map->fd >= 0)
        close(map->fd);
}

/* A window may be older than later stores of this file: such a store is to another block, and the rest of its
 * page is still zero. */
static bool page_map_untouched(page_map *map, const void *data, size_t n)
{
    if (map->fd < 0)
        return false;
    uint64_t page = (uintptr_t)data / map->page_size;
    uint64_t end = ((uintptr_t)data + n + map->page_size - 1) / map->page_size;
    for (; page < end; page++) {
        if (page < map->first || page >= map->first + map->n) {
            ssize_t got = pread(map->fd, map->entries, sizeof map->entries, (off_t)(page * 8));
            map->first = page;
            map->n = got < 8 ? 0 : (uint64_t)got / 8;
            if (map->n == 0)
                return false;
        }
        if (map->entries[page - map->first] & PAGE_THERE)
            return false;
    }
    return true;
}

bool mst_sparse_untouched(const void *data, size_t n)
{
    page_map map;
    page_map_init(&map, true, n);
    bool untouched = page_map_untouched(&map, data, n);
    page_map_fini(&map);
    return untouched;
}

/* ---- writing ---- */

static mst_status sparse_write_all(int fd, const char *path, uint64_t offset, const uint8_t *data, size_t n)
{
    while (n > 0) {
        ssize_t done = -1;
        if (sparse_write_fails())
            errno = ENOSPC;
        else
            done = pwrite(fd, data, n < PIECE ? n : PIECE, (off_t)offset);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return mst_fail(MST_EIO, "%s: cannot be written: %s", path, strerror(done < 0 ? errno : EIO));
        data += done;
        offset += (uint64_t)done;
        n -= (size_t)done;
    }
    return MST_OK;
}

mst_status mst_sparse_write(int fd, const char *path, uint64_t offset, const void *data, size_t n, bool lazy)
{
    mst_status st = MST_OK;
    const uint8_t *p = data;
    size_t run = 0; /* [run, at) waits to be written */
    page_map map;
    page_map_init(&map, lazy, n);
    for (size_t at = 0; at < n;) {
        /* blocks end at file blocks, so that whole file blocks become holes */
        size_t size = BLOCK - (offset + at) % BLOCK;
        size = size < n - at ? size : n - at;
        bool zero = page_map_untouched(&map, p + at, size) || mst_is_zero(p + at, size);
        if (zero || at - run >= PIECE) {
            TRY_OUT(st, sparse_write_all(fd, path, offset + run, p + run, at - run));
            run = zero ? at + size : at;
        }
        at += size;
    }
    if (run < n)
        TRY_OUT(st, sparse_write_all(fd, path, offset + run, p + run, n - run));
out:
    page_map_fini(&map);
    return st;
}

/* ---- reading ---- */

static mst_status sparse_read_all(int fd, const char *path, uint64_t offset, uint8_t *data, size_t n)
{
    while (n > 0) {
        ssize_t got = pread(fd, data, n, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return mst_fail(MST_EIO, "%s: cannot be read at byte %llu: %s", path, (unsigned long long)offset,
                            strerror(errno));
        if (got == 0)
            return mst_fail(MST_EINPUT, "%s: ends at byte %llu, too early", path, (unsigned long long)offset);
        data += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return MST_OK;
}

/* The next range of [at, end): a hole up to *data, data up to *hole. A file system without holes has data
 * only. */
static void sparse_next_range(int fd, uint64_t at, uint64_t end, uint64_t *data, uint64_t *hole)
{
    off_t start = lseek(fd, (off_t)at, SEEK_DATA);
    if (start < 0) {
        *data = errno == ENXIO && lseek(fd, 0, SEEK_END) >= (off_t)end ? end : at;
        *hole = end;
        return;
    }
    *data = (uint64_t)start < end ? (uint64_t)start : end;
    start = lseek(fd, (off_t)*data, SEEK_HOLE);
    *hole = start < 0 || (uint64_t)start > end || (uint64_t)start <= *data ? end : (uint64_t)start;
}

static void sparse_clear(page_map *map, uint8_t *data, uint64_t n)
{
    while (n > 0) {
        size_t size = n < BLOCK ? (size_t)n : BLOCK;
        if (!page_map_untouched(map, data, size) && !mst_is_zero(data, size))
            memset(data, 0, size);
        data += size;
        n -= size;
    }
}

mst_status mst_sparse_read(int fd, const char *path, uint64_t offset, void *data, size_t n, bool lazy)
{
    mst_status st = MST_OK;
    uint8_t *dest = data;
    uint64_t at = offset, end = offset + n, start, hole;
    page_map map;
    page_map_init(&map, lazy, n);
    uint8_t *buffer = mst_alloc_lines(BUFFER);
    if (buffer == NULL)
        TRY_OUT(st, mst_fail_memory());
    while (at < end) {
        sparse_next_range(fd, at, end, &start, &hole);
        sparse_clear(&map, dest, start - at);
        dest += start - at;
        for (at = start; at < hole;) {
            size_t size = hole - at < BUFFER ? (size_t)(hole - at) : BUFFER;
            TRY_OUT(st, sparse_read_all(fd, path, at, buffer, size));
            for (size_t i = 0; i < size; i += BLOCK) {
                size_t block = size - i < BLOCK ? size - i : BLOCK;
                if (mst_is_zero(buffer + i, block))
                    sparse_clear(&map, dest + i, block);
                else
                    memcpy(dest + i, buffer + i, block);
            }
            at += size;
            dest += size;
        }
    }
out:
    mst_free(buffer);
    page_map_fini(&map);
    return st;
}

mst_status mst_sparse_crc32c(int fd, const char *path, uint64_t size, uint32_t *out)
{
    mst_status st = MST_OK;
    uint32_t crc = 0;
    uint64_t at = 0, start, hole;
    uint8_t *zeros = mst_zalloc(BLOCK), *buffer = mst_alloc_lines(BUFFER);
    if (buffer == NULL || zeros == NULL)
        TRY_OUT(st, mst_fail_memory());
    while (at < size) {
        sparse_next_range(fd, at, size, &start, &hole);
        for (; at < start; at += start - at < BLOCK ? start - at : BLOCK)
            crc = mst_crc32c(crc, zeros, start - at < BLOCK ? (size_t)(start - at) : BLOCK);
        while (at < hole) {
            size_t piece = hole - at < BUFFER ? (size_t)(hole - at) : BUFFER;
            TRY_OUT(st, sparse_read_all(fd, path, at, buffer, piece));
            crc = mst_crc32c(crc, buffer, piece);
            at += piece;
        }
    }
    *out = crc;
out:
    mst_free(zeros);
    mst_free(buffer);
    return st;
}
