/* The inner loops of matmul: compiled once per instruction set from
 * mm_kernels_impl.h, chosen at run time. All are functions of their arguments alone; any thread.
 *
 * The order of additions in `trace`, `times` and `squares` is a function of the shape and the instruction
 * set, so sums repeat on machines of one kind. */
#ifndef MST_MATMUL_MM_KERNELS_H
#define MST_MATMUL_MM_KERNELS_H

#include <stdbool.h>
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
    uint32_t panel_rows, panel_cols; /* of packed A and B */
    /* out[i] = element first + i of the stream (seed, MST_RNG_MATRIX, stream): word w of it as a signed
     * number divided by 2^31, so in [-1, 1]. */
    void (*generate)(uint64_t seed, uint64_t stream, uint64_t first, size_t n, float *out);
    /* The sum of a[r][c] * b[c][r], in double. next: a tile of the same size that will be needed next and
     * is fetched from memory meanwhile; NULL: none. */
    double (*trace)(const mst_mm_tile *tile, size_t rows, size_t cols, const mst_mm_tile *next);
    /* y (rows x LANES) += t (rows x cols) * x (cols x LANES), in double. */
    void (*times)(const float *t, size_t rows, size_t cols, const double *x, double *y);
    double (*squares)(const float *x, size_t n); /* their sum */

    /* Panels for multiply_panels: up to panel_rows rows of A, step by step of the depth, panel_rows numbers
     * each; up to panel_cols columns of B likewise. Absent rows and columns are zeros. */
    void (*pack_rows)(const float *a, size_t lda, size_t rows, size_t depth, float *out);
    void (*pack_cols)(const float *b, size_t ldb, size_t cols, size_t depth, float *out);
    /* c (rows x cols, ldc apart) = a * b, or += with add. Of a and b it fetches a little beyond the end. */
    void (*multiply_panels)(size_t depth, const float *a, const float *b, bool add, size_t rows, size_t cols,
                            float *c, size_t ldc);
} mst_mm_kernels;

const mst_mm_kernels *mst_mm_kernels_get(mst_isa isa);

#endif
