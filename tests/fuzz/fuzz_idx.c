/* Fuzzes the IDX reader: the input is split into a file of items and a file of labels (both in memory), which
 * may be compressed; every row is read. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int memory_file(const uint8_t *data, size_t n, char path[64])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        abort();
    snprintf(path, 64, "/proc/self/fd/%d", fd);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char images[64], labels[64];
    if (size < 1 || size > 1 << 16)
        return 0;
    size_t n_labels = data[0] < size - 1 ? data[0] : size - 1;
    int labels_fd = memory_file(data + 1, n_labels, labels);
    int images_fd = memory_file(data + 1 + n_labels, size - 1 - n_labels, images);
    char *items[] = {images};
    mst_text_list paths = {.items = items, .n = 1};
    mst_data_options options = {.labels = labels};
    mst_dataset *d;
    if (mst_idx_open(&paths, &options, &d) == MST_OK) {
        volatile float sum = 0;
        uint64_t rows = 0;
        for (uint32_t c = 0; c < d->n_chunks; c++) {
            mst_chunk *chunk;
            if (d->ops->load(d, c, &chunk) != MST_OK)
                abort();
            for (uint32_t i = 0; i < chunk->n_rows; i++, rows++) {
                mst_row row;
                mst_chunk_row(chunk, i, &row);
                sum = sum + row.label;
                for (uint32_t j = 0; j < row.n_dense; j++)
                    sum = sum + (row.bytes != NULL ? (float)row.bytes[j] : row.dense[j]);
            }
            mst_chunk_release(chunk);
        }
        if (rows != d->info.n_rows)
            abort();
        d->ops->destroy(d);
    }
    close(images_fd);
    close(labels_fd);
    return 0;
}
