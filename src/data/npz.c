/* Zip archives of .npy files; contract in npz.h. Every offset and length is checked before it is used. */
#include "data/npz.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "base/alloc.h"

#define END_SIZE     22
#define END_COMMENT  65535
#define MEMBER_SIZE  46
#define LOCAL_SIZE   30
#define INFLATE_MOST 1032 /* bytes that deflate makes of one, at most */

enum { STORED = 0, DEFLATED = 8 };

typedef struct npz_entry {
    unsigned method;
    uint32_t crc;
    uint64_t packed, size, local;
} npz_entry;

static uint32_t npz_u16(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8;
}

static uint32_t npz_u32(const uint8_t *p)
{
    return npz_u16(p) | npz_u16(p + 2) << 16;
}

static uint64_t npz_u64(const uint8_t *p)
{
    return npz_u32(p) | (uint64_t)npz_u32(p + 4) << 32;
}

static mst_status npz_damaged(const char *path, const char *problem)
{
    return mst_fail(MST_EINPUT, "%s: the .npz file is damaged: %s; write it again with numpy.savez", path,
                    problem);
}

/* The start and the entries of the central directory. */
static mst_status npz_directory(const char *path, const uint8_t *data, size_t n, uint64_t *at,
                                uint64_t *entries)
{
    if (n < END_SIZE)
        return npz_damaged(path, "it is cut off");
    size_t end = n - END_SIZE, least = end > END_COMMENT ? end - END_COMMENT : 0;
    for (; memcmp(data + end, "PK\5\6", 4) != 0; end--)
        if (end == least)
            return npz_damaged(path, "it has no list of members");
    *entries = npz_u16(data + end + 10);
    *at = npz_u32(data + end + 16);
    if (*entries != UINT16_MAX && *at != UINT32_MAX)
        return MST_OK;
    uint64_t large = end >= 20 && memcmp(data + end - 20, "PK\6\7", 4) == 0 ? npz_u64(data + end - 12) : n;
    if (large > n || n - large < 56 || memcmp(data + large, "PK\6\6", 4) != 0)
        return npz_damaged(path, "its zip64 list of members is missing");
    *entries = npz_u64(data + large + 32);
    *at = npz_u64(data + large + 48);
    return MST_OK;
}

/* Replaces sizes that are in the zip64 field of an entry. */
static bool npz_large_sizes(const uint8_t *extra, size_t n, npz_entry *e)
{
    uint64_t *fields[] = {&e->size, &e->packed, &e->local};
    while (n >= 4) {
        size_t size = npz_u16(extra + 2);
        const uint8_t *p = extra + 4;
        if (size > n - 4)
            return false;
        for (int i = 0; npz_u16(extra) == 1 && i < 3; i++) {
            if (*fields[i] != UINT32_MAX)
                continue;
            if (extra + 4 + size - p < 8)
                return false;
            *fields[i] = npz_u64(p);
            p += 8;
        }
        extra += 4 + size;
        n -= 4 + size;
    }
    return true;
}

static mst_status npz_inflate(const char *path, const npz_entry *e, const uint8_t *packed, uint8_t **out)
{
    z_stream z = {0};
    if (e->size / INFLATE_MOST > e->packed + 1)
        return npz_damaged(path, "a member is larger than its bytes can be");
    uint8_t *bytes = mst_alloc(e->size + 1);
    if (bytes == NULL || inflateInit2(&z, -15) != Z_OK) {
        mst_free(bytes);
        return mst_fail_memory();
    }
    uint64_t in = e->packed, room = e->size;
    int result = Z_OK;
    z.next_in = (Bytef *)packed;
    z.next_out = bytes;
    while (result == Z_OK) { /* zlib counts in 32 bits */
        z.avail_in = in > 1u << 30 ? 1u << 30 : (uInt)in;
        z.avail_out = room > 1u << 30 ? 1u << 30 : (uInt)room;
        uInt had_in = z.avail_in, had_out = z.avail_out;
        result = inflate(&z, Z_NO_FLUSH);
        in -= had_in - z.avail_in;
        room -= had_out - z.avail_out;
        if (had_in == z.avail_in && had_out == z.avail_out)
            break;
    }
    inflateEnd(&z);
    if (result != Z_STREAM_END || room > 0) {
        mst_free(bytes);
        return npz_damaged(path, "a member cannot be decompressed");
    }
    *out = bytes;
    return MST_OK;
}

static mst_status npz_read(const char *path, const uint8_t *data, size_t n, const npz_entry *e,
                           mst_npz_member *out)
{
    if (e->local > n || n - e->local < LOCAL_SIZE || memcmp(data + e->local, "PK\3\4", 4) != 0)
        return npz_damaged(path, "a member does not begin at its offset");
    uint64_t at = e->local + LOCAL_SIZE + npz_u16(data + e->local + 26) + npz_u16(data + e->local + 28);
    if (at > n || e->packed > n - at || (e->method == STORED && e->packed != e->size))
        return npz_damaged(path, "a member is cut off");
    if (e->method != STORED && e->method != DEFLATED)
        return mst_fail(MST_EINPUT, "%s: a member is compressed by method %u; only numpy's own is supported",
                        path, e->method);
    mst_npz_member found = {.data = data + at, .size = (size_t)e->size};
    if (e->method == DEFLATED) {
        TRY(npz_inflate(path, e, data + at, &found.owned));
        found.data = found.owned;
    }
    if (crc32_z(0, found.data, found.size) != e->crc) {
        mst_free(found.owned);
        return npz_damaged(path, "the checksum of a member is wrong");
    }
    *out = found;
    return MST_OK;
}

mst_status mst_npz_find(const char *path, const uint8_t *data, size_t n, const char *name,
                        mst_npz_member *out)
{
    uint64_t at = 0, entries = 0;
    char wanted[80];
    int size = snprintf(wanted, sizeof wanted, "%s.npy", name);
    *out = (mst_npz_member){0};
    TRY(npz_directory(path, data, n, &at, &entries));
    for (; entries > 0; entries--) {
        if (at > n || n - at < MEMBER_SIZE || memcmp(data + at, "PK\1\2", 4) != 0)
            return npz_damaged(path, "its list of members is cut off");
        const uint8_t *m = data + at;
        size_t n_name = npz_u16(m + 28), n_extra = npz_u16(m + 30),
               length = MEMBER_SIZE + n_name + n_extra + npz_u16(m + 32);
        if (length > n - at)
            return npz_damaged(path, "its list of members is cut off");
        npz_entry e = {.method = npz_u16(m + 10),
                       .crc = npz_u32(m + 16),
                       .packed = npz_u32(m + 20),
                       .size = npz_u32(m + 24),
                       .local = npz_u32(m + 42)};
        if (!npz_large_sizes(m + MEMBER_SIZE + n_name, n_extra, &e))
            return npz_damaged(path, "the sizes of a member are cut off");
        if (n_name == (size_t)size && memcmp(m + MEMBER_SIZE, wanted, n_name) == 0)
            return npz_read(path, data, n, &e, out);
        at += length;
    }
    return MST_OK;
}
