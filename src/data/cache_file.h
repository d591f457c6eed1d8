/* The format of cache files, shared by their reader (cache.c) and writer (cache_writer.c). docs/CACHE.md
 * describes every field. Private to the cache.
 *
 * Order in the file: header, source key, chunk bodies, table. All numbers are little-endian; bodies and table
 * start on 64-byte boundaries. A body is the chunk's records and, when they differ in length, n_rows + 1 word
 * positions. */
#ifndef MST_DATA_CACHE_FILE_H
#define MST_DATA_CACHE_FILE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "cache files are mapped as they are and hold little-endian numbers"
#endif

#define CACHE_MAGIC   "MSTCACHE"
#define CACHE_VERSION 2u /* 1: without fields and any_order; the writer uses it where that suffices */
#define CACHE_ALIGN   64u
#define CACHE_KEY_MAX (1u << 26) /* bytes of a source key; about 700,000 source files */

enum {
    CACHE_LABELS_INTEGRAL = 1, /* cache_header.flags */
};

enum {
    CACHE_DENSE_BYTES = 1, /* cache_entry.flags */
    CACHE_WEIGHTS = 2,
    CACHE_VALUES = 4,
    CACHE_FIELDS = 8,
    CACHE_ANY_ORDER = 16,
};

typedef struct cache_header {
    char magic[8];
    uint32_t version;
    uint32_t header_size; /* sizeof(cache_header) */
    uint64_t file_size;
    uint64_t n_rows, n_features, n_entries, n_positive;
    uint64_t source_bytes; /* mst_data_info.bytes of the source */
    uint32_t n_dense, index_base;
    float min_label, max_label;
    uint32_t flags;
    uint32_t n_chunks, chunk_rows;
    uint32_t key_size; /* bytes of the source key, which follows the header */
    uint64_t table_offset;
    uint32_t table_crc;
    uint32_t header_crc;              /* of header (with this field 0) and source key */
    uint32_t channels, height, width; /* of images: n_dense is their product; all 0: not known */
    uint32_t n_fields;                /* 0: rows have no fields */
} cache_header;
static_assert(sizeof(cache_header) == 128, "cache header layout");

typedef struct cache_entry {
    uint64_t offset;  /* of the body in the file */
    uint64_t n_words; /* of the records */
    uint64_t n_entries;
    uint32_t n_rows, n_dense, flags;
    uint32_t stride; /* words per record; 0: positions follow the records */
    uint32_t max_key;
    float min_label, max_label;
    uint32_t crc;       /* of the body */
    uint32_t max_field; /* where the file has fields */
    uint8_t reserved[4];
} cache_entry;
static_assert(sizeof(cache_entry) == 64, "cache table layout");

static inline uint64_t cache_round(uint64_t n)
{
    return (n + CACHE_ALIGN - 1) & ~(uint64_t)(CACHE_ALIGN - 1);
}

static inline uint64_t cache_body_bytes(const cache_entry *e)
{
    return 4 * (e->n_words + (e->stride ? 0 : (uint64_t)e->n_rows + 1));
}

/* Whether a complete cache with this source key is at path. *fits is set on MST_OK; a file that is absent,
 * torn, of another version or no cache does not fit. */
mst_status mst_cache_fits(const char *path, const char *source_key, bool *fits);

/* Takes the lock file of a cache (created when absent), waiting at most deadline_ms for the process that
 * holds it; after that MST_EIO with its process number. *fd is for mst_cache_unlock, which also removes the
 * file. */
mst_status mst_cache_lock(const char *path, uint64_t deadline_ms, int *fd);
void mst_cache_unlock(const char *path, int fd);

#endif
