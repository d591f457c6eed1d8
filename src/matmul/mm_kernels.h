/* The inner loops of matmul that are not a matrix product: compiled once per instruction set from
 * mm_kernels_impl.h, chosen at run time. All are functions of their arguments alone; any thread.
 *
 * The order of additions in `trace`, `times` and `squares` is a function of the shape and the instruction
 * set, so sums repeat on machines of one kind. */
#ifndef MST_MATMUL_MM_KERNELS_H
#define MST_MATMUL_MM_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "base/isa.h"

#define MST_MM_LANES 8   /* vectors that `times` multiplies at once */
#define MST_MM_TILE  256 /* the largest sides for `trace` */

typedef struct mst_mm_tile {
    const float *a, *b; /* a: rows x cols; b: cols x rows; both with the distance of rows below */
    size_t lda, ldb;
} mst_mm_tile;

typedef struct mst_mm_kernels {
    mst_isa isa;
    /* out[i] = element first + i of the stream (seed, MST_RNG_MATRIX, stream): word w of it as a signed
     * number divided by 2^31, so in [-1, 1]. */
    void (*generate)(uint64_t seed, uint64_t stream, uint64_t first, size_t n, float *out);
    /* The sum of a[r][c] * b[c][r], in double. next: a tile of the same size that will be needed next and
     * is fetched from memory meanwhile; NULL: none. */
    double (*trace)(const mst_mm_tile *tile, size_t rows, size_t cols, const mst_mm_tile *next);
    /* y (rows x LANES) += t (rows x cols) * x (cols x LANES), in double. */
    void (*times)(const float *t, size_t rows, size_t cols, const double *x, double *y);
    double (*squares)(const float *x, size_t n); /* their sum */
} mst_mm_kernels;

const mst_mm_kernels *mst_mm_kernels_get(mst_isa isa);

#endif
