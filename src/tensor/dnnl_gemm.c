/* Products of matrices by oneDNN's sgemm; contract in dnnl_ops.h.
 *
 * Threads take parts of the result in turn. Inside of a thread of OpenMP, sgemm runs on that thread; with
 * threads of its own it gives each a fixed share, and all wait for the slowest. */
#include <stdatomic.h>

#include "tensor/dnnl_ops_impl.h"

#define GEMM_ROWS 512 /* of a part */
#define GEMM_COLS 256

/* A product under way. */
typedef struct gemm_run {
    bool turned;
    int64_t m, n, k, rows, cols; /* of y, the sum, and a part */
    const float *x, *w;
    float beta, *y;
    atomic_int_fast64_t next;
    atomic_int status;
} gemm_run;

static dnnl_status_t gemm_part(const gemm_run *r, int64_t row, int64_t col)
{
    const int64_t m = r->m - row < r->rows ? r->m - row : r->rows,
                  n = r->n - col < r->cols ? r->n - col : r->cols;
    return dnnl_sgemm(r->turned ? 'T' : 'N', 'N', m, n, r->k, 1.0f, r->x + (r->turned ? row : row * r->k),
                      r->turned ? r->m : r->k, r->w + col, r->n, r->beta, r->y + row * r->n + col, r->n);
}

static void gemm_take(void *arg, unsigned i)
{
    gemm_run *r = arg;
    const int64_t n_rows = (r->m + r->rows - 1) / r->rows, n_cols = (r->n + r->cols - 1) / r->cols;
    (void)i;
    for (int64_t p; (p = atomic_fetch_add_explicit(&r->next, 1, memory_order_relaxed)) < n_rows * n_cols;) {
        dnnl_status_t st = gemm_part(r, p % n_rows * r->rows, p / n_rows * r->cols);
        if (st != dnnl_success)
            atomic_store(&r->status, (int)st);
    }
}

mst_status mst_dnnl_gemm(bool turned, int64_t m, int64_t n, int64_t k, const float *x, const float *w,
                         float beta, float *y)
{
    unsigned threads = (unsigned)omp_get_max_threads();
    gemm_run r = {
        .turned = turned, .m = m, .n = n, .k = k, .rows = m, .cols = n, .x = x, .w = w, .beta = beta, .y = y};
    atomic_init(&r.status, (int)dnnl_success);
    if (threads < DNNL_PARTS_THREADS || n < GEMM_COLS * (int64_t)threads)
        return mst_dnnl_check(gemm_part(&r, 0, 0), "a matrix product");
    r.rows = GEMM_ROWS;
    r.cols = GEMM_COLS;
    mst_dnnl_each(threads, gemm_take, &r);
    return mst_dnnl_check((dnnl_status_t)atomic_load(&r.status), "a matrix product");
}

mst_status mst_dnnl_gemm_turned(int64_t m, int64_t n, int64_t k, const float *x, const float *w, float beta,
                                float *y)
{
    return mst_dnnl_check(dnnl_sgemm('N', 'T', m, n, k, 1.0f, x, k, w, k, beta, y, n), "a matrix product");
}
