/* The kernels of every instruction set that this machine has: random numbers are those of base/rng.h, sums
 * are those of plain loops in double, at sizes that fill no vector. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "matmul/mm_kernels.h"

static void test_generate(void **state)
{
    (void)state;
    for (int isa = 0; isa < MST_ISA_COUNT; isa++) {
        if (!mst_isa_supported((mst_isa)isa))
            continue;
        const mst_mm_kernels *k = mst_mm_kernels_get((mst_isa)isa);
        for (uint64_t first = 0; first < 70; first += 7) {
            float got[333];
            uint64_t stream = 0x123456789abcull + first;
            size_t n = 1 + (size_t)first * 4;
            mst_rng rng;
            k->generate(0xfedcba9876543210ull, stream, first, n, got);
            mst_rng_init(&rng, 0xfedcba9876543210ull, MST_RNG_MATRIX, stream);
            for (uint64_t i = 0; i < first; i++)
                mst_rng_u32(&rng);
            for (size_t i = 0; i < n; i++)
                assert_true(got[i] == (float)(int32_t)mst_rng_u32(&rng) * 0x1p-31f);
        }
    }
}

static void test_sums(void **state)
{
    (void)state;
    static const size_t sides[] = {1, 3, 15, 16, 17, 33, 64, 129, MST_MM_TILE};
    size_t n_sides = sizeof sides / sizeof *sides, ld = MST_MM_TILE + 3;
    float *a = malloc(ld * ld * sizeof *a), *b = malloc(ld * ld * sizeof *b);
    double *x = calloc(ld * MST_MM_LANES, sizeof *x), *y = calloc(ld * MST_MM_LANES, sizeof *y);
    for (int isa = 0; isa < MST_ISA_COUNT; isa++) {
        if (!mst_isa_supported((mst_isa)isa))
            continue;
        const mst_mm_kernels *k = mst_mm_kernels_get((mst_isa)isa);
        k->generate(1, 2, 0, ld * ld, a);
        k->generate(1, 3, 0, ld * ld, b);
        for (size_t i = 0; i < ld * MST_MM_LANES; i++)
            x[i] = (double)a[i];
        for (size_t s = 0; s < n_sides * n_sides; s++) {
            size_t rows = sides[s / n_sides], cols = sides[s % n_sides];
            mst_mm_tile tile = {.a = a, .b = b, .lda = ld, .ldb = ld};
            double expected = 0, squares = 0;
            for (size_t r = 0; r < rows; r++)
                for (size_t c = 0; c < cols; c++)
                    expected += (double)a[r * ld + c] * (double)b[c * ld + r];
            assert_true(fabs(k->trace(&tile, rows, cols, NULL) - expected) < 1e-10);
            assert_true(k->trace(&tile, rows, cols, &tile) == k->trace(&tile, rows, cols, NULL));
            for (size_t i = 0; i < rows * cols; i++)
                squares += (double)a[i] * (double)a[i];
            assert_true(fabs(k->squares(a, rows * cols) - squares) < 1e-9);
            for (size_t i = 0; i < rows * MST_MM_LANES; i++)
                y[i] = 1;
            k->times(a, rows, cols, x, y);
            for (size_t i = 0; i < rows * MST_MM_LANES; i++) {
                double sum = 1;
                for (size_t c = 0; c < cols; c++)
                    sum += (double)a[i / MST_MM_LANES * cols + c] * x[c * MST_MM_LANES + i % MST_MM_LANES];
                assert_true(fabs(y[i] - sum) < 1e-10);
            }
        }
    }
    free(a);
    free(b);
    free(x);
    free(y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_generate), cmocka_unit_test(test_sums)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
