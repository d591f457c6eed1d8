/* A matrix that any rank can have any rectangle of: random numbers by seed, or a .npy file.
 *
 * Element (r, c) of a generated matrix is word c of the random stream (seed, MST_RNG_MATRIX, 2 r + which), so
 * it does not depend on blocks, ranks or threads. Fetching is divided among the calling thread's OpenMP
 * threads (tensor/dnnl_ops.h). */
#ifndef MST_MATMUL_MATRIX_H
#define MST_MATMUL_MATRIX_H

#include "matmul/mm_kernels.h"
#include "matmul/npy.h"

typedef struct mst_matrix {
    uint64_t rows, cols;
    uint64_t seed;
    unsigned which; /* 0: A, 1: B */
    bool generated;
    mst_npy_in file; /* unless generated */
} mst_matrix;

void mst_matrix_generated(mst_matrix *out, uint64_t rows, uint64_t cols, uint64_t seed, unsigned which);
mst_status mst_matrix_open(mst_matrix *out, const char *path);
void mst_matrix_close(mst_matrix *self);

/* The rectangle in C order into out (rows x cols). */
mst_status mst_matrix_fetch(const mst_matrix *self, const mst_mm_kernels *kernels, unsigned n_threads,
                            uint64_t row, uint64_t col, uint64_t rows, uint64_t cols, float *out);

#endif
