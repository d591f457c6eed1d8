/* libFuzzer: any bytes as a safetensors file. An accepted file must satisfy the invariants of safetensors.c,
 * and its F32 tensors must be readable. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "run/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(mst_safetensors *file, size_t size)
{
    uint64_t at = 0;
    for (size_t i = 0; i < mst_safetensors_count(file); i++) {
        const mst_tensor *t = mst_safetensors_at(file, i);
        if (t->begin != at || t->end < t->begin || t->end > size ||
            mst_safetensors_find(file, t->name) == NULL)
            abort();
        at = t->end;
        if (strcmp(t->dtype, "F32") != 0)
            continue;
        float *out = malloc(t->n_elements * sizeof *out + 1); /* exact, so that one float too many is seen */
        if (out == NULL || mst_safetensors_read(file, t, out, false) != MST_OK)
            abort();
        free(out);
    }
    uint32_t crc;
    if (mst_safetensors_crc32c(file, &crc) != MST_OK)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int fd = -1;
    char path[64];
    if (fd < 0 && (fd = memfd_create("fuzz", 0)) < 0)
        abort();
    if (ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    mst_safetensors *file = NULL;
    if (mst_safetensors_open(path, &file) == MST_OK)
        check(file, size);
    else if (file != NULL || mst_error_text()[0] == 0)
        abort();
    mst_safetensors_close(file);
    return 0;
}
