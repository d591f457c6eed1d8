/* NumPy's .npy files: the header, rectangles of a matrix read out of one, and a matrix written by several
 * processes into one.
 *
 * It reads versions 1 to 3 of the format, little-endian float32 and float64, two dimensions, C or Fortran
 * order. Elements come out as float32 in C order; a float64 is rounded, and one too large for a float32 is an
 * error. It writes version 1, float32, C order.
 *
 * Thread: an open file may be read by several threads at once (pread); the rest belongs to one thread.
 * Errors: MST_EINPUT naming the file and the problem, MST_EIO, MST_ENOMEM. */
#ifndef MST_MATMUL_NPY_H
#define MST_MATMUL_NPY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define MST_NPY_HEADER_MAX 65536 /* bytes read to find the header; NumPy's own are 128 */

typedef struct mst_npy_header {
    uint64_t rows, cols;
    uint32_t item; /* bytes of an element: 4 or 8 */
    bool fortran;  /* columns are contiguous, not rows */
    uint64_t at;   /* offset of the first element */
} mst_npy_header;

/* The header at the beginning of a file of file_size bytes, of which the first n are data. path is for
 * messages. Everything in *out is checked against file_size. */
mst_status mst_npy_parse(const char *path, const uint8_t *data, size_t n, uint64_t file_size,
                         mst_npy_header *out);

/* ---- reading ---- */

typedef struct mst_npy_in {
    mst_npy_header header;
    char *path;
    int fd; /* -1: not open */
} mst_npy_in;

mst_status mst_npy_open(const char *path, mst_npy_in *out);
void mst_npy_close(mst_npy_in *self); /* safe on one that is zeroed with fd -1, or closed */

/* out[(r - row) * cols + (c - col)] = element (r, c), for the rectangle of rows x cols at (row, col), which
 * lies inside the matrix. */
mst_status mst_npy_read(const mst_npy_in *self, uint64_t row, uint64_t col, uint64_t rows, uint64_t cols,
                        float *out);

/* ---- writing ---- */

/* A matrix that appears whole or not at all: one process creates it (a temporary file beside the target),
 * any process that sees the same file system opens that and writes rectangles, and the one that created it
 * commits when all have finished. */
typedef struct mst_npy_out {
    char *path, *temporary; /* NULL: not open */
    uint64_t rows, cols, at;
    int fd;
    bool owner;
} mst_npy_out;

mst_status mst_npy_create(const char *path, uint64_t rows, uint64_t cols, mst_npy_out *out);
/* The file that another process created under the name `temporary`. */
mst_status mst_npy_join(const char *path, const char *temporary, uint64_t rows, uint64_t cols,
                        mst_npy_out *out);
/* A rectangle in C order. */
mst_status mst_npy_write(mst_npy_out *self, uint64_t row, uint64_t col, uint64_t rows, uint64_t cols,
                         const float *data);
mst_status mst_npy_sync(mst_npy_out *self);   /* the written data is on disk */
mst_status mst_npy_commit(mst_npy_out *self); /* by the owner, after all processes' sync: the target exists */
/* Without commit the owner removes the temporary file. Safe on one that was never opened (zeroed, fd -1). */
void mst_npy_end(mst_npy_out *self);

/* Test hook: the k-th write from now on fails as on a full disk; 0: none. */
void mst_npy_fail_at(uint64_t k);

#endif
