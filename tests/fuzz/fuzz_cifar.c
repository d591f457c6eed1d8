/* Fuzzes the readers of CIFAR's files and of files of generated images, by content as in mst_dataset_open and
 * by name, and reads every row. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "data/cifar.h"
#include "data/gen.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { CHUNKS = 4 }; /* looked at: generated data may have any number */

static void look(mst_dataset *d)
{
    volatile float sum = 0;
    for (uint32_t c = 0; c < d->n_chunks && c < CHUNKS; c++) {
        mst_chunk *chunk;
        if (d->ops->load(d, c, &chunk) != MST_OK)
            abort();
        for (uint32_t i = 0; i < chunk->n_rows; i++) {
            mst_row row;
            mst_chunk_row(chunk, i, &row);
            if (row.label < d->info.min_label || row.label > d->info.max_label ||
                row.n_dense != d->info.n_dense)
                abort();
            for (uint32_t j = 0; j < row.n_dense; j++)
                sum = sum + (float)row.bytes[j];
        }
        mst_chunk_release(chunk);
    }
    if ((uint64_t)d->info.channels * d->info.height * d->info.width != d->info.n_dense)
        abort();
    mst_dataset_destroy(d);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    if (size < 1 || size > 1 << 16)
        return 0;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data + 1, size - 1) != (ssize_t)(size - 1))
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    char *items[] = {path};
    mst_text_list paths = {.items = items, .n = 1};
    mst_data_options options = {.cifar_label = data[0] & 1};
    mst_dataset *d;
    bool hundred = (data[0] & 2) != 0;
    if ((data[0] & 4) != 0) {
        if (mst_gen_images_open(&paths, &d) == MST_OK) {
            if (d->info.n_dense < 1 << 16)
                look(d);
            else
                mst_dataset_destroy(d);
        }
    } else if (mst_cifar_open(&paths, hundred ? MST_CIFAR_100 : MST_CIFAR_10, &options, &d) == MST_OK) {
        look(d);
    }
    mst_data_cifar10.sniff(data, size, data[0] & 8 ? size : 0);
    mst_data_cifar100.sniff(data, size, data[0] & 8 ? size : 0);
    close(fd);
    return 0;
}
