/* The safetensors format: 8 bytes header length (little-endian), a JSON header, the bytes of the tensors.
 *
 *   {"__metadata__": {text: text}, NAME: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]},
 * ...}
 *
 * Files are checked as the format requires: every byte after the header belongs to exactly one tensor. All
 * data types are known; only F32 can be read into memory. Objects belong to one thread at a time. */
#ifndef MST_RUN_SAFETENSORS_H
#define MST_RUN_SAFETENSORS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define MST_TENSOR_NDIM 8

typedef struct mst_tensor {
    const char *name;
    const char *dtype; /* "F32" */
    uint32_t n_dims;   /* 0: one element */
    uint64_t dims[MST_TENSOR_NDIM];
    uint64_t n_elements;
    uint64_t begin, end; /* bytes, from the end of the header */
} mst_tensor;

/* ---- reading ---- */

typedef struct mst_safetensors mst_safetensors;

/* Reads and checks the header. MST_EIO if the file cannot be read, MST_EINPUT if it is not such a file. *out
 * is the caller's to close; set only on MST_OK. */
mst_status mst_safetensors_open(const char *path, mst_safetensors **out);
void mst_safetensors_close(mst_safetensors *self); /* NULL-safe; the file stays */

/* In the order of the data. Tensors and their names live as long as self. */
size_t mst_safetensors_count(const mst_safetensors *self);
const mst_tensor *mst_safetensors_at(const mst_safetensors *self, size_t i);
const mst_tensor *mst_safetensors_find(const mst_safetensors *self, const char *name); /* NULL when absent */

uint64_t mst_safetensors_data_at(const mst_safetensors *self); /* byte of the file at which the data begins */

/* Fills out with all elements of an F32 tensor; zeros are stored only where memory is not zero. lazy: see
 * sparse_file.h. Another data type is MST_EINPUT. */
mst_status mst_safetensors_read(mst_safetensors *self, const mst_tensor *tensor, float *out, bool lazy);
/* Likewise elements [first, first + n), which must lie in the tensor. */
mst_status mst_safetensors_read_at(mst_safetensors *self, const mst_tensor *tensor, uint64_t first,
                                   uint64_t n, float *out, bool lazy);

/* CRC-32C of the whole file. */
mst_status mst_safetensors_crc32c(mst_safetensors *self, uint32_t *out);

/* ---- writing ---- */

/* Creates a file that must not exist, of n F32 tensors in that order (name, n_dims and dims are given, the
 * rest is computed), all zero until written. The reading functions do not apply to it. The data starts on a
 * 64-byte boundary. metadata: an object of texts, or NULL. On failure no file is left. */
mst_status mst_safetensors_create(const char *path, const mst_tensor *tensors, size_t n,
                                  const json_t *metadata, mst_safetensors **out);
/* Writes elements [first, first + n), which must lie in tensor i; blocks of zeros become holes. Once per
 * element, in any order. */
mst_status mst_safetensors_write_at(mst_safetensors *self, size_t i, uint64_t first, uint64_t n,
                                    const float *data, bool lazy);
/* Makes the file durable and returns its size and its CRC-32C, read back from the page cache. */
mst_status mst_safetensors_sync(mst_safetensors *self, uint64_t *bytes, uint32_t *crc32c);

#endif
