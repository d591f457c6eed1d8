/* Products by blocks; contract in sgemm.h.
 *
 * A block of A (ROWS x DEPTH) and one of B (DEPTH x COLS) are packed into panels, in the order in which the
 * kernel reads them. Then the threads take jobs: JOB_ROWS x JOB_COLS elements of C. One panel of A after the
 * other (43 kB with AVX-512) is multiplied with the panels of B of the job (983 kB), which stay in the
 * second-level cache for the next panel of A. Threads that take neighbouring jobs read the same part of B. A
 * thread that is slowed down takes fewer jobs. */
#include "matmul/sgemm.h"

#include <stdatomic.h>

#include "base/alloc.h"
#include "tensor/dnnl_ops.h"

#define ROWS     8400 /* at most, and of columns: two packed blocks take 51 MB */
#define COLS     8192
#define DEPTH    768
#define JOB_ROWS 112 /* rounded up to panels */
#define JOB_COLS 320
#define PAGE     4096

struct mst_sgemm {
    const mst_mm_kernels *kernels;
    unsigned n_threads;
    float *a, *b; /* packed blocks */
    uint64_t a_size, b_size;
};

/* The block under way. */
typedef struct sgemm_block {
    const mst_sgemm *self;
    uint64_t m, n, depth, lda, ldb; /* of C that is n */
    const float *a, *b;
    float *c;
    bool add;
    uint64_t job_rows, job_cols, n_jobs; /* rows and columns in panels */
    uint64_t number, n_blocks;           /* of the product */
    mst_sgemm_pump *pump;
    void *arg;
    atomic_uint_fast64_t next_panel, next;
    atomic_bool stopped;
} sgemm_block;

static uint64_t sgemm_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t sgemm_up(uint64_t n, uint64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* The size of equal parts, of at most `most` each. */
static uint64_t sgemm_part(uint64_t whole, uint64_t most)
{
    uint64_t n = (whole + most - 1) / most;
    return (whole + n - 1) / n;
}

typedef struct sgemm_pages {
    float *data;
    uint64_t n; /* pages */
    unsigned n_threads;
} sgemm_pages;

static void sgemm_touch_part(void *arg, unsigned i)
{
    const sgemm_pages *p = arg;
    for (uint64_t page = p->n * i / p->n_threads; page < p->n * (i + 1) / p->n_threads; page++)
        ((volatile float *)p->data)[page * (PAGE / sizeof *p->data)] = 0.0f;
}

void mst_mm_touch(unsigned n_threads, float *data, uint64_t bytes)
{
    sgemm_pages p = {.data = data, .n = (bytes + PAGE - 1) / PAGE, .n_threads = n_threads};
    mst_dnnl_each(n_threads, sgemm_touch_part, &p);
}

void mst_sgemm_destroy(mst_sgemm *self)
{
    if (self == NULL)
        return;
    if (self->a != NULL)
        mst_pages_release(self->a, self->a_size);
    if (self->b != NULL)
        mst_pages_release(self->b, self->b_size);
    mst_free(self);
}

mst_status mst_sgemm_new(const mst_mm_kernels *kernels, unsigned n_threads, uint64_t m, uint64_t n,
                         uint64_t k, mst_sgemm **out)
{
    mst_sgemm *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->kernels = kernels;
    self->n_threads = n_threads;
    uint64_t depth = sgemm_least(k, DEPTH);
    self->a_size = sgemm_up(sgemm_least(m, ROWS), kernels->panel_rows) * depth * sizeof(float);
    self->b_size = sgemm_up(sgemm_least(n, COLS), kernels->panel_cols) * depth * sizeof(float);
    self->a = mst_pages_reserve(self->a_size, true);
    self->b = mst_pages_reserve(self->b_size, true);
    if (self->a == NULL || self->b == NULL) {
        mst_sgemm_destroy(self);
        return mst_fail(MST_ENOMEM, "no memory for the packed blocks of a product: %.1f MB",
                        (double)(self->a_size + self->b_size) * 1e-6);
    }
    mst_mm_touch(n_threads, self->a, self->a_size);
    mst_mm_touch(n_threads, self->b, self->b_size);
    *out = self;
    return MST_OK;
}

/* Panels that no thread has packed: those of A, then those of B. */
static void sgemm_pack(void *arg, unsigned i)
{
    sgemm_block *p = arg;
    const mst_sgemm *self = p->self;
    uint64_t rows = self->kernels->panel_rows, cols = self->kernels->panel_cols, job;
    uint64_t n_a = p->a != NULL ? (p->m + rows - 1) / rows : 0,
             n_b = p->b != NULL ? (p->n + cols - 1) / cols : 0;
    (void)i;
    while ((job = atomic_fetch_add_explicit(&p->next_panel, 1, memory_order_relaxed)) < n_a + n_b)
        if (job < n_a)
            self->kernels->pack_rows(p->a + job * rows * p->lda, p->lda, sgemm_least(rows, p->m - job * rows),
                                     p->depth, self->a + job * rows * p->depth);
        else
            self->kernels->pack_cols(p->b + (job - n_a) * cols, p->ldb,
                                     sgemm_least(cols, p->n - (job - n_a) * cols), p->depth,
                                     self->b + (job - n_a) * cols * p->depth);
}

static void sgemm_job(const sgemm_block *p, uint64_t row_panel, uint64_t col_panel)
{
    const mst_sgemm *self = p->self;
    uint64_t rows = self->kernels->panel_rows, cols = self->kernels->panel_cols;
    uint64_t to_row = sgemm_least(p->m, (row_panel + p->job_rows) * rows);
    uint64_t to_col = sgemm_least(p->n, (col_panel + p->job_cols) * cols);
    for (uint64_t r = row_panel * rows; r < to_row; r += rows)
        for (uint64_t c = col_panel * cols; c < to_col; c += cols)
            self->kernels->multiply_panels(p->depth, self->a + r * p->depth, self->b + c * p->depth, p->add,
                                           sgemm_least(rows, p->m - r), sgemm_least(cols, p->n - c),
                                           p->c + r * p->ldb + c, p->ldb);
}

static void sgemm_jobs(void *arg, unsigned i)
{
    sgemm_block *p = arg;
    uint64_t rows = p->self->kernels->panel_rows;
    uint64_t n_rows = ((p->m + rows - 1) / rows + p->job_rows - 1) / p->job_rows, job;
    while ((job = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < p->n_jobs &&
           !atomic_load_explicit(&p->stopped, memory_order_relaxed)) {
        sgemm_job(p, job % n_rows * p->job_rows, job / n_rows * p->job_cols);
        double share = ((double)p->number + (double)job / (double)p->n_jobs) / (double)p->n_blocks;
        if (i == 0 && p->pump != NULL && !p->pump(p->arg, share))
            atomic_store_explicit(&p->stopped, true, memory_order_relaxed);
    }
}

void mst_sgemm_multiply(mst_sgemm *self, uint64_t m, uint64_t n, uint64_t k, const float *a, const float *b,
                        bool add, float *c, mst_sgemm_pump *pump, void *arg)
{
    uint64_t rows = self->kernels->panel_rows, cols = self->kernels->panel_cols,
             deepest = sgemm_part(k, DEPTH);
    uint64_t most_rows = sgemm_least(ROWS, sgemm_up(sgemm_part(m, ROWS), rows));
    sgemm_block p = {.self = self, .lda = k, .ldb = n, .pump = pump, .arg = arg};
    p.n_blocks = (k + deepest - 1) / deepest * ((n + COLS - 1) / COLS) * ((m + most_rows - 1) / most_rows);
    p.job_rows = (JOB_ROWS + rows - 1) / rows;
    p.job_cols = JOB_COLS / cols;
    for (uint64_t at = 0; at < k; at += deepest) {
        p.depth = sgemm_least(deepest, k - at);
        p.add = add || at > 0;
        for (uint64_t col = 0; col < n; col += COLS) {
            p.n = sgemm_least(COLS, n - col);
            for (uint64_t row = 0; row < m && !atomic_load(&p.stopped); row += most_rows, p.number++) {
                p.m = sgemm_least(most_rows, m - row);
                p.a = col == 0 || m > most_rows ? a + row * k + at : NULL; /* NULL: it is packed already */
                p.b = row == 0 ? b + at * n + col : NULL;
                p.c = c + row * n + col;
                p.n_jobs = ((p.m + rows - 1) / rows + p.job_rows - 1) / p.job_rows *
                           (((p.n + cols - 1) / cols + p.job_cols - 1) / p.job_cols);
                atomic_init(&p.next_panel, 0);
                atomic_init(&p.next, 0);
                mst_dnnl_each(self->n_threads, sgemm_pack, &p);
                mst_dnnl_each(self->n_threads, sgemm_jobs, &p);
            }
        }
    }
}
