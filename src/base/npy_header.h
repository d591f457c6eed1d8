/* The header of NumPy's .npy format, versions 1 to 3: the type of the elements, their order and the shape. */
#ifndef MST_BASE_NPY_HEADER_H
#define MST_BASE_NPY_HEADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define MST_NPY_MAGIC      "\x93NUMPY"
#define MST_NPY_MAGIC_SIZE 6
#define MST_NPY_DIMS       4 /* of arrays that are described; n_dims may be larger */

typedef struct mst_npy_shape {
    char type[8];   /* "f4", "u1", "i8", ...: without the byte order; little-endian, or of one byte */
    char descr[40]; /* as in the file, for messages */
    bool little;    /* false: big-endian */
    uint32_t item;  /* bytes of an element; 0: not a number of a known size */
    bool fortran;   /* the first index varies fastest */
    uint32_t n_dims;
    uint64_t dims[MST_NPY_DIMS];
    uint64_t at; /* offset of the first element */
} mst_npy_shape;

/* The header at the beginning of the n bytes of data. most: bytes that the caller reads to find a header; a
 * longer one is refused. MST_EINPUT naming path and the problem. */
mst_status mst_npy_shape_parse(const char *path, const uint8_t *data, size_t n, size_t most,
                               mst_npy_shape *out);

#endif
