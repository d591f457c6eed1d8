/* Products by blocks, with every instruction set of this machine: sizes that fill no panel, no job and no
 * block; sums onto C; the same bits with any number of threads; a product that stops. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "matmul/sgemm.h"
#include "tensor/dnnl_ops.h"

static float *numbers(const mst_mm_kernels *k, size_t n, uint64_t stream)
{
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    k->generate(5, stream, 0, n, x);
    return x;
}

/* C += A B, or C = A B, by n_threads. */
static void multiply(const mst_mm_kernels *k, unsigned n_threads, const uint64_t *shape, const float *a,
                     const float *b, bool add, float *c)
{
    mst_sgemm *sgemm;
    int before = mst_dnnl_enter(n_threads);
    assert_int_equal(mst_sgemm_new(k, n_threads, shape[0], shape[1], shape[2], &sgemm), MST_OK);
    mst_sgemm_multiply(sgemm, shape[0], shape[1], shape[2], a, b, add, c, NULL, NULL);
    mst_sgemm_destroy(sgemm);
    mst_dnnl_leave(before);
}

/* step: every how many elements of C are compared with a sum in double. */
static void check_product(const mst_mm_kernels *k, const uint64_t *shape, size_t step)
{
    uint64_t m = shape[0], n = shape[1], depth = shape[2];
    float *a = numbers(k, m * depth, 1), *b = numbers(k, depth * n, 2), *c = numbers(k, m * n, 3);
    float *before = numbers(k, m * n, 3), *set = numbers(k, m * n, 4);
    multiply(k, 1, shape, a, b, true, c);
    multiply(k, 2, shape, a, b, false, set);
    for (uint64_t i = 0; i < m * n; i += step) {
        double sum = 0;
        for (uint64_t j = 0; j < depth; j++)
            sum += (double)a[i / n * depth + j] * (double)b[j * n + i % n];
        double allowed = 1e-6 * sqrt((double)depth) + 1e-6;
        assert_true(fabs((double)set[i] - sum) < allowed);
        assert_true(fabs((double)c[i] - (double)before[i] - sum) < allowed);
    }
    multiply(k, 1, shape, a, b, false, c);
    assert_memory_equal(c, set, m * n * sizeof *c);
    float *all[] = {a, b, c, before, set};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static void test_small(void **state)
{
    static const uint64_t sides[] = {1, 6, 15, 33};
    const size_t n = sizeof sides / sizeof *sides;
    (void)state;
    for (int isa = 0; isa < MST_ISA_COUNT; isa++)
        for (size_t i = 0; i < n * n * n && mst_isa_supported((mst_isa)isa); i++)
            check_product(mst_mm_kernels_get((mst_isa)isa),
                          (uint64_t[]){sides[i % n], sides[i / n % n], sides[i / n / n]}, 1);
}

/* Beyond one job, one block of rows, of columns, and of the depth; several of them at once. */
static void test_large(void **state)
{
    static const uint64_t shapes[][3] = {{400, 1100, 769}, {8500, 40, 20},   {20, 8300, 10},
                                         {8450, 8200, 2},  {8410, 40, 2400}, {150, 8300, 1600}};
    (void)state;
    for (int isa = 0; isa < MST_ISA_COUNT; isa++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes && mst_isa_supported((mst_isa)isa); i++)
            check_product(mst_mm_kernels_get((mst_isa)isa), shapes[i], 997);
}

typedef struct pumped {
    unsigned calls, most;
    double share;
} pumped;

static bool pump(void *arg, double share)
{
    pumped *p = arg;
    assert_true(share >= p->share && share <= 1.0);
    p->share = share;
    return ++p->calls < p->most;
}

/* The calling thread is called with the share that is computed, and may stop the product; the next one is
 * not affected. */
static void test_stop(void **state)
{
    enum { M = 700, N = 900, K = 1700 };
    const mst_mm_kernels *k = mst_mm_kernels_get(mst_isa_best());
    float *a = numbers(k, M * K, 1), *b = numbers(k, K * N, 2), *c = numbers(k, M * N, 3),
          *whole = numbers(k, M * N, 3);
    mst_sgemm *sgemm;
    pumped stopping = {.most = 2}, all = {.most = UINT32_MAX};
    (void)state;
    multiply(k, 1, (uint64_t[]){M, N, K}, a, b, false, whole);
    int before = mst_dnnl_enter(3);
    assert_int_equal(mst_sgemm_new(k, 3, M, N, K, &sgemm), MST_OK);
    mst_sgemm_multiply(sgemm, M, N, K, a, b, false, c, pump, &stopping);
    assert_true(stopping.calls <= stopping.most);
    mst_sgemm_multiply(sgemm, M, N, K, a, b, false, c, pump, &all);
    assert_memory_equal(c, whole, M * N * sizeof *c);
    mst_sgemm_destroy(sgemm);
    mst_dnnl_leave(before);
    float *floats[] = {a, b, c, whole};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        free(floats[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_small), cmocka_unit_test(test_large),
                                       cmocka_unit_test(test_stop)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
