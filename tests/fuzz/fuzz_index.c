/* Fuzzes the reader of indexed text: a small libsvm file with a changed index. The input is a list of
 * (position, byte) pairs written over a valid index; unless the first byte is odd, the checksum is then
 * corrected to reach the checks behind it. Every chunk is loaded. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc.h"
#include "base/file.h"
#include "data/dataset.h"
#include "data/indexed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ROWS 4100 /* two chunks */

static char g_folder[] = "/tmp/muster-fuzz-index-XXXXXX", g_text[64], g_index[80];
static uint8_t *g_good;
static size_t g_size;

static void clean_up(void)
{
    mst_remove_tree(g_folder);
}

static void write_file(const char *path, const void *data, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(data, 1, n, f) != n || fclose(f) != 0)
        abort();
}

static void set_up(void)
{
    char *good;
    uint64_t n_rows;
    if (mkdtemp(g_folder) == NULL)
        abort();
    atexit(clean_up);
    snprintf(g_text, sizeof g_text, "%s/rows", g_folder);
    snprintf(g_index, sizeof g_index, "%s.mstidx", g_text);
    FILE *f = fopen(g_text, "w");
    for (int i = 0; f != NULL && i < ROWS; i++)
        fprintf(f, "%d %d:1 %d:0.5\n", i % 2, 1 + i % 7, 10 + i % 100);
    if (f == NULL || fclose(f) != 0 ||
        mst_index_build(g_text, mst_data_kind_format(mst_data_kind_find("libsvm")), &n_rows) != MST_OK ||
        n_rows != ROWS || mst_file_read_all(g_index, 1 << 20, &good, &g_size) != MST_OK)
        abort();
    g_good = (uint8_t *)good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t index[4096];
    if (g_good == NULL)
        set_up();
    if (size < 1 || g_size > sizeof index)
        return 0;
    memcpy(index, g_good, g_size);
    for (size_t i = 1; i + 1 < size; i += 2)
        index[data[i] % g_size] = data[i + 1];
    if (data[0] % 2 == 0) {
        uint32_t crc = mst_crc32c(0, index, g_size - sizeof crc);
        memcpy(index + g_size - sizeof crc, &crc, sizeof crc);
    }
    write_file(g_index, index, data[0] % 16 == 15 ? size % g_size : g_size);
    char *items[] = {g_text};
    mst_text_list paths = {.items = items, .n = 1};
    mst_data_options options = {.format = "libsvm"};
    mst_dataset *d;
    if (mst_dataset_open(&paths, &options, &d) != MST_OK)
        return 0;
    for (uint32_t c = 0; d->random && c < d->n_chunks && c < 64; c++) {
        mst_chunk *chunk;
        if (d->ops->load(d, c, &chunk) == MST_OK)
            mst_chunk_release(chunk);
    }
    mst_dataset_destroy(d);
    return 0;
}
