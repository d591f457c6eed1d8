/* Any bytes as a cache file: opening and reading it must end in rows that obey chunk.h or in an error.
 *
 * Mutated bytes hardly ever match a checksum, so every second input gets correct checksums first to reach the
 * code behind them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/crc.h"
#include "data/cache.h"
#include "data/cache_file.h"
#include "data/origin.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void seal(uint8_t *data, size_t size)
{
    cache_header h;
    if (size < sizeof h)
        return;
    memcpy(&h, data, sizeof h);
    memcpy(h.magic, CACHE_MAGIC, sizeof h.magic);
    h.version = CACHE_VERSION;
    h.header_size = sizeof h;
    h.file_size = size;
    if (h.key_size > size - sizeof h)
        h.key_size = 0;
    h.n_chunks %= 16;
    uint64_t table = (uint64_t)h.n_chunks * sizeof(cache_entry);
    if (table <= size - sizeof h && (size - table) % CACHE_ALIGN == 0) {
        h.table_offset = size - table;
        for (uint32_t i = 0; i < h.n_chunks; i++) {
            cache_entry e;
            uint8_t *at = data + h.table_offset + i * sizeof e;
            memcpy(&e, at, sizeof e);
            if (e.n_words <= size && e.offset <= size && cache_body_bytes(&e) <= size - e.offset)
                e.crc = mst_crc32c(0, data + e.offset, cache_body_bytes(&e));
            memcpy(at, &e, sizeof e);
        }
        h.table_crc = mst_crc32c(0, data + h.table_offset, table);
    }
    h.header_crc = 0;
    h.header_crc = mst_crc32c(mst_crc32c(0, &h, sizeof h), data + sizeof h, h.key_size);
    memcpy(data, &h, sizeof h);
}

static void check_chunk(const mst_dataset *d, const mst_chunk *c)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->n_rows; i++) {
        mst_row row;
        mst_chunk_row(c, i, &row);
        if (!(row.label >= d->info.min_label && row.label <= d->info.max_label))
            abort();
        for (uint32_t j = 0; j < row.n_dense; j++)
            sum += row.bytes != NULL ? row.bytes[j] : row.dense[j] != 0;
        for (uint32_t j = 0; j < row.n_keys; j++) {
            if (row.keys[j] < c->n_dense || row.keys[j] >= d->info.n_features || row.keys[j] > c->max_key)
                abort();
            if (c->fielded && (mst_row_field(&row, j) > c->max_field || c->max_field >= d->info.n_fields))
                abort();
            sum += row.values != NULL && row.values[j] != 0;
        }
    }
    volatile uint64_t sink = sum; /* keeps the reads */
    (void)sink;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    if (size == 0)
        return 0;
    int fd = memfd_create("fuzz_cache", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    uint8_t *copy = mst_alloc(size);
    if (fd < 0 || copy == NULL)
        abort();
    memcpy(copy, data, size);
    if (data[size - 1] & 1)
        seal(copy, size);
    if (write(fd, copy, size) != (ssize_t)size)
        abort();
    mst_dataset *d = NULL;
    char *items[1] = {path};
    if (mst_cache_open(&(mst_text_list){.items = items, .n = 1}, &d) == MST_OK) {
        json_t *numbers =
            json_pack("{s:s, s:i, s:[s]}", "keys", "numbers", "hash-seed", 1, "columns", "I1 float");
        for (uint32_t c = 0; c < d->n_chunks; c++) {
            mst_chunk *chunk;
            if (d->ops->load(d, c, &chunk) == MST_OK) {
                check_chunk(d, chunk);
                mst_chunk_release(chunk);
            } else if (mst_error_text()[0] == '\0')
                abort();
        }
        json_decref(mst_cache_options(d));
        for (uint32_t field = 0; field < 60; field++) {
            char name[16];
            uint32_t key;
            mst_origin_field_name(d->origin, field, name, sizeof name);
            (void)mst_origin_missing_key(d->origin, field, &key);
        }
        mst_origin_check(d->origin, "model", numbers, path);
        mst_origin_check(numbers, "model", d->origin, path);
        json_decref(numbers);
        mst_dataset_destroy(d);
    } else if (mst_error_text()[0] == '\0')
        abort();
    mst_free(copy);
    close(fd);
    return 0;
}
