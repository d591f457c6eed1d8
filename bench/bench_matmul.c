/* The limits of this machine for a multiplication, for bench/matmul.sh: bench_matmul THREADS [peak] [copy]
 *
 *   sgemm_gflops N       oneDNN's sgemm, 8192 x 8192 x 8192, by THREADS threads: the best of three
 *   copy_gb_per_s N      memcpy of 1.6 GB, a part per thread, bytes read and bytes written: the best of five
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "matmul/mm_kernels.h"
#include "tensor/dnnl_ops.h"

#define SIDE ((size_t)8192)
#define COPY ((size_t)1600000000)

static void fail(const char *what)
{
    fprintf(stderr, "bench_matmul: %s\n", what);
    exit(1);
}

static float *take(size_t bytes)
{
    float *data = mst_pages_reserve(bytes, true);
    if (data == NULL)
        fail("no memory");
    return data;
}

static void peak(void)
{
    size_t bytes = SIDE * SIDE * sizeof(float);
    float *a = take(bytes), *b = take(bytes), *c = take(bytes);
    double best = 0;
    mst_mm_kernels_get(mst_isa_best())->generate(1, 0, 0, SIDE * SIDE, a);
    mst_mm_kernels_get(mst_isa_best())->generate(1, 1, 0, SIDE * SIDE, b);
    memset(c, 0, bytes);
    for (int i = 0; i < 3; i++) {
        uint64_t start = mst_now_ns();
        if (mst_dnnl_gemm(false, SIDE, SIDE, SIDE, a, b, 0, c) != MST_OK)
            fail(mst_error_text());
        double rate = 2e-9 * (double)SIDE * (double)SIDE * (double)SIDE / mst_seconds_since(start);
        best = rate > best ? rate : best;
    }
    printf("sgemm_gflops %.2f GFLOP/s\n", best);
    mst_pages_release(a, bytes);
    mst_pages_release(b, bytes);
    mst_pages_release(c, bytes);
}

typedef struct copying {
    char *from, *to;
    unsigned n_threads;
} copying;

static void copy_part(void *arg, unsigned part)
{
    copying *c = arg;
    size_t first = COPY / c->n_threads * part, n = COPY / c->n_threads;
    memcpy(c->to + first, c->from + first, n);
}

static void copy(unsigned n_threads)
{
    copying c = {.from = (char *)take(COPY), .to = (char *)take(COPY), .n_threads = n_threads};
    double best = 0;
    memset(c.from, 1, COPY);
    memset(c.to, 2, COPY);
    for (int i = 0; i < 5; i++) {
        uint64_t start = mst_now_ns();
        mst_dnnl_each(n_threads, copy_part, &c);
        double rate = 2e-9 * (double)COPY / mst_seconds_since(start);
        best = rate > best ? rate : best;
    }
    printf("copy_gb_per_s %.2f GB/s\n", best);
    mst_pages_release(c.from, COPY);
    mst_pages_release(c.to, COPY);
}

int main(int argc, char **argv)
{
    int n_threads = argc > 1 ? atoi(argv[1]) : 0;
    if (n_threads < 1 || argc < 3)
        fail("usage: bench_matmul THREADS [peak] [copy]");
    mst_dnnl_enter((unsigned)n_threads);
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "peak") == 0)
            peak();
        else if (strcmp(argv[i], "copy") == 0)
            copy((unsigned)n_threads);
        else
            fail("the tests are peak and copy");
    }
    return 0;
}
