/* Reads and writes large, mostly zero memory: runs of zeros become holes in the file, and holes leave lazily
 * reserved memory untouched. Used by checkpoints.
 *
 * `lazy`: the memory comes from mst_pages_reserve (private anonymous pages). Then pages that were never
 * touched are recognised without touching them (/proc/self/pagemap; if that cannot be read, they are read
 * like any other). This also preserves huge pages: one that is first read and then written comes back as
 * small pages.
 *
 * Every failure names the path. Offsets and sizes are in bytes. */
#ifndef MST_RUN_SPARSE_FILE_H
#define MST_RUN_SPARSE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Writes n bytes at offset except blocks of zeros: the file must be zero there (new, ftruncated). */
mst_status mst_sparse_write(int fd, const char *path, uint64_t offset, const void *data, size_t n, bool lazy);

/* Fills data with n bytes from offset. Zeros are stored only where memory is not zero. A file that ends too
 * early is MST_EINPUT. */
mst_status mst_sparse_read(int fd, const char *path, uint64_t offset, void *data, size_t n, bool lazy);

/* Whether none of the n bytes of lazily reserved memory was ever touched; false if that is not known. */
bool mst_sparse_untouched(const void *data, size_t n);

/* CRC-32C of the first `size` bytes, holes included. */
mst_status mst_sparse_crc32c(int fd, const char *path, uint64_t size, uint32_t *out);

/* Test hook: the k-th write to the operating system from now fails with ENOSPC; 0 turns it off. */
void mst_sparse_fail_at(uint64_t k);

#endif
