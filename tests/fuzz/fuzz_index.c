/* Fuzzes the reader of indexed files: a small libsvm or TFRecord file with a changed index. The input is a
 * list of (position, byte) pairs written over a valid index; unless the first byte is odd, the checksum is
 * then corrected to reach the checks behind it. Bit 6 of that byte chooses the file. Every chunk is loaded.
 */
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

typedef struct indexed_sample {
    char path[64], index[80];
    const char *format;
    uint8_t *good; /* bytes of the valid index */
    size_t size;
} indexed_sample;

static char g_folder[] = "/tmp/muster-fuzz-index-XXXXXX";
static indexed_sample g_samples[] = {{.format = "libsvm"}, {.format = "tfrecord"}};

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

/* A TFRecord with a label and one index. */
static void write_record(FILE *f, int i)
{
    uint8_t example[] = {0x0a, 35,  0x0a, 17,  0x0a, 5, 'l',  'a',  'b',  'e', 'l',  0x12, 8,
                         0x12, 6,   0x0a, 4,   0,    0, 0x80, 0x3f, 0x0a, 14,  0x0a, 5,    'i',
                         'n',  'd', 'e',  'x', 0x12, 5, 0x1a, 3,    0x0a, 1,   0};
    uint64_t n = sizeof example;
    example[sizeof example - 1] = (uint8_t)(i % 100);
    uint32_t head = mst_crc_mask(mst_crc32c(0, &n, sizeof n));
    uint32_t tail = mst_crc_mask(mst_crc32c(0, example, sizeof example));
    fwrite(&n, sizeof n, 1, f);
    fwrite(&head, sizeof head, 1, f);
    fwrite(example, sizeof example, 1, f);
    fwrite(&tail, sizeof tail, 1, f);
}

static void set_up(indexed_sample *sample)
{
    char *good;
    uint64_t n_rows;
    snprintf(sample->path, sizeof sample->path, "%s/%s", g_folder, sample->format);
    snprintf(sample->index, sizeof sample->index, "%s.mstidx", sample->path);
    FILE *f = fopen(sample->path, "wb");
    for (int i = 0; f != NULL && i < ROWS; i++)
        if (sample == g_samples)
            fprintf(f, "%d %d:1 %d:0.5\n", i % 2, 1 + i % 7, 10 + i % 100);
        else
            write_record(f, i);
    if (f == NULL || fclose(f) != 0 ||
        mst_index_build(sample->path, mst_data_kind_format(mst_data_kind_find(sample->format)), NULL,
                        &n_rows) != MST_OK ||
        n_rows != ROWS || mst_file_read_all(sample->index, 1 << 20, &good, &sample->size) != MST_OK)
        abort();
    sample->good = (uint8_t *)good;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t index[4096];
    if (g_samples->good == NULL) {
        if (mkdtemp(g_folder) == NULL)
            abort();
        atexit(clean_up);
        set_up(&g_samples[0]);
        set_up(&g_samples[1]);
    }
    indexed_sample *sample = &g_samples[size > 0 && (data[0] & 64) != 0];
    size_t n = sample->size;
    if (size < 1 || n > sizeof index)
        return 0;
    memcpy(index, sample->good, n);
    for (size_t i = 1; i + 1 < size; i += 2)
        index[data[i] % n] = data[i + 1];
    if (data[0] % 2 == 0) {
        uint32_t crc = mst_crc32c(0, index, n - sizeof crc);
        memcpy(index + n - sizeof crc, &crc, sizeof crc);
    }
    write_file(sample->index, index, data[0] % 16 == 15 ? size % n : n);
    char *items[] = {sample->path};
    mst_text_list paths = {.items = items, .n = 1};
    mst_data_options options = {.format = (char *)sample->format};
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
