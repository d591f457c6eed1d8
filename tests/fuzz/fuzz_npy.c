/* Fuzzes the .npy reader: the input is a file in memory, read as a whole and as a rectangle. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "matmul/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    mst_npy_header header;
    if (size > 1 << 16)
        return 0;
    if (mst_npy_parse("fuzz", data, size, size, &header) != MST_OK)
        return 0;
    if (header.rows > size || header.cols > size || header.at > size)
        abort();
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    mst_npy_in in = {.fd = -1};
    if (mst_npy_open(path, &in) != MST_OK)
        abort();
    uint64_t rows = header.rows, cols = header.cols;
    float *out = malloc(rows * cols * sizeof *out);
    if (out == NULL)
        abort();
    (void)mst_npy_read(&in, 0, 0, rows, cols, out);
    (void)mst_npy_read(&in, rows / 2, cols / 2, rows - rows / 2, cols - cols / 2, out);
    free(out);
    mst_npy_close(&in);
    close(fd);
    return 0;
}
