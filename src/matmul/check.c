/* The randomised check of a product (Freivalds, 1977): C x = A (B x) for random vectors x, in O(n^2).
 *
 * LANES vectors at once, elements uniform in [-1, 1]. Each rank multiplies what it owns of A, B and C; the
 * sums over ranks are B x and C x - A (B x).
 *
 * Rounding: an element of C is a float32 sum of k products, off by about u sqrt(k) |a_i| |b_j| at the worst
 * (u = 2^-24; partial sums are at most |a_i| |b_j|, errors are independent), so row i of C x - A B x is
 * within t_i = 2 u sqrt(k) |a_i| |B|     (Frobenius norm of B) which the check allows. If some element of C
 * is wrong by e > t_i beyond that, the other terms of its row leave x_j a window of width 2 t_i / e out of 2:
 * each vector misses it with a probability of at most t_i / e. All of them miss e = 8 t with at most
 * 8^-LANES. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "matmul/matmul_impl.h"
#include "tensor/dnnl_ops.h"

#define ROUNDING    (2 * 0x1p-24)
#define CAUGHT      8.0                 /* times t: the size of the errors that the result bounds */
#define STREAM      ((uint64_t)1 << 63) /* of random numbers: beyond all rows */
#define STREAM_ROWS 1024

typedef struct timing {
    mst_matmul *self;
    const float *t;
    uint64_t rows, cols;
    const double *x;
    double *y;
    double *squares; /* of each row; NULL: not wanted */
    unsigned n_parts;
} timing;

static void times_part(void *arg, unsigned part)
{
    timing *w = arg;
    mst_index_range rows = mst_index_range_divide((mst_index_range){0, w->rows}, part, w->n_parts);
    if (w->x != NULL)
        w->self->kernels->times(w->t + rows.first * w->cols, rows.n, w->cols, w->x,
                                w->y + rows.first * MST_MM_LANES);
    for (uint64_t r = rows.first; r < rows.first + rows.n && w->squares != NULL; r++)
        w->squares[r] += w->self->kernels->squares(w->t + r * w->cols, w->cols);
}

static void check_times(mst_matmul *self, const float *t, uint64_t rows, uint64_t cols, const double *x,
                        double *y, double *squares)
{
    timing w = {.self = self, .t = t, .rows = rows, .cols = cols, .x = x, .y = y, .squares = squares};
    w.n_parts = self->o.n_threads;
    mst_dnnl_each(w.n_parts, times_part, &w);
}

mst_status mst_mm_check_begin(mst_matmul *self)
{
    const mst_layout *l = &self->plan.layout;
    float part[MST_MM_LANES * STREAM_ROWS];
    self->x = mst_calloc(l->n, MST_MM_LANES * sizeof *self->x);
    self->z = mst_calloc(l->k, MST_MM_LANES * sizeof *self->z);
    self->d = mst_calloc(l->m, MST_MM_LANES * sizeof *self->d);
    self->norms = mst_calloc(l->m + 1, sizeof *self->norms);
    if (self->x == NULL || self->z == NULL || self->d == NULL || self->norms == NULL)
        return mst_fail(MST_ENOMEM, "no memory for the vectors of the check; --no-check skips it");
    for (uint64_t j = 0; j < l->n; j += STREAM_ROWS) {
        size_t n = (size_t)(l->n - j < STREAM_ROWS ? l->n - j : STREAM_ROWS) * MST_MM_LANES;
        self->kernels->generate(self->o.seed, STREAM + j / STREAM_ROWS, 0, n, part);
        for (size_t i = 0; i < n; i++)
            self->x[j * MST_MM_LANES + i] = part[i];
    }
    return MST_OK;
}

void mst_mm_check_c(mst_matmul *self, const float *c, uint64_t row, uint64_t col, uint64_t rows,
                    uint64_t cols)
{
    for (uint64_t r = 0; r < rows; r++)
        self->norm2 += self->kernels->squares(c + r * cols, cols);
    if (self->x != NULL)
        check_times(self, c, rows, cols, self->x + col * MST_MM_LANES, self->d + row * MST_MM_LANES, NULL);
}

/* Calls take for a rectangle of a matrix: at once where it is kept, else in parts that fit in a buffer. */
typedef void take_fn(mst_matmul *self, const float *data, mst_index_range rows, mst_index_range cols);

static mst_status check_walk(mst_matmul *self, const mst_matrix *matrix, const float *kept,
                             mst_index_range rows, mst_index_range cols, take_fn *take)
{
    if (kept != NULL) {
        take(self, kept, rows, cols);
        return MST_OK;
    }
    mst_mm_pages *buffer = &self->pieces[0].buffer;
    uint64_t room = buffer->size / sizeof(float);
    uint64_t width = cols.n < room ? cols.n : room, height = room / width;
    for (uint64_t r = 0; r < rows.n; r += height) {
        for (uint64_t c = 0; c < cols.n; c += width) {
            mst_index_range some_rows = {rows.first + r, rows.n - r < height ? rows.n - r : height};
            mst_index_range some_cols = {cols.first + c, cols.n - c < width ? cols.n - c : width};
            TRY(mst_mm_stopped(self));
            TRY(mst_matrix_fetch(matrix, self->kernels, self->o.n_threads, some_rows.first, some_cols.first,
                                 some_rows.n, some_cols.n, buffer->data));
            take(self, buffer->data, some_rows, some_cols);
        }
    }
    return MST_OK;
}

static void take_b(mst_matmul *self, const float *data, mst_index_range rows, mst_index_range cols)
{
    check_times(self, data, rows.n, cols.n, self->x + cols.first * MST_MM_LANES,
                self->z + rows.first * MST_MM_LANES, NULL);
    self->norms[self->plan.layout.m] += self->kernels->squares(data, rows.n * cols.n);
}

/* Takes A's part away from C's. */
static void take_a(mst_matmul *self, const float *data, mst_index_range rows, mst_index_range cols)
{
    check_times(self, data, rows.n, cols.n, self->z + cols.first * MST_MM_LANES,
                self->d + rows.first * MST_MM_LANES, self->norms + rows.first);
}

static void take_c(mst_matmul *self, const float *data, mst_index_range rows, mst_index_range cols)
{
    mst_mm_check_c(self, data, rows.first, cols.first, rows.n, cols.n);
}

static mst_status check_add_up(mst_matmul *self, double *data, uint64_t n)
{
    return self->size == 1 ? MST_OK : self->o.mpi->ops->allreduce_f64(0, data, n);
}

/* All that this rank owns, from A's factor to C's when that comes from a file. */
static mst_status walk_b(mst_matmul *self)
{
    const mst_layout *l = &self->plan.layout;
    for (uint32_t p = 0; p < l->n_panels; p++)
        for (uint32_t j = 0; j < l->n_cols; j++)
            if (mst_layout_owner_b(l, p, j) == (uint32_t)self->rank)
                TRY(check_walk(self, &self->b, self->plan.keeps_b ? mst_mm_kept_b(self, p, j) : NULL,
                               mst_layout_panel(l, p), mst_layout_col(l, j), take_b));
    return MST_OK;
}

static mst_status walk_a(mst_matmul *self)
{
    const mst_layout *l = &self->plan.layout;
    for (uint64_t i = 0; i < l->k * MST_MM_LANES; i++)
        self->z[i] = -self->z[i];
    for (uint32_t i = 0; i < l->n_rows; i++)
        for (uint32_t p = 0; p < l->n_panels; p++)
            if (mst_layout_owner_a(l, i, p) == (uint32_t)self->rank)
                TRY(check_walk(self, &self->a, self->plan.keeps_a ? mst_mm_kept_a(self, i, p) : NULL,
                               mst_layout_row(l, i), mst_layout_panel(l, p), take_a));
    if (self->o.what != MST_MATMUL_VERIFY)
        return MST_OK;
    for (uint32_t i = 0; i < l->n_rows; i++)
        for (uint32_t j = 0; j < l->n_cols; j++)
            if (mst_layout_owner_c(l, i, j) == (uint32_t)self->rank)
                TRY(check_walk(self, &self->c, NULL, mst_layout_row(l, i), mst_layout_col(l, j), take_c));
    return MST_OK;
}

/* Whether no row is off by more than rounding may cause. */
static mst_status check_judge(mst_matmul *self, mst_matmul_result *out)
{
    const mst_layout *l = &self->plan.layout;
    double factor = ROUNDING * sqrt((double)l->k) * sqrt(self->norms[l->m]), largest = 0, widest = 0;
    uint64_t worst = 0;
    for (uint64_t i = 0; i < l->m; i++) {
        double allowed = factor * sqrt(self->norms[i]), off = 0;
        for (uint64_t lane = 0; lane < MST_MM_LANES; lane++) {
            double d = fabs(self->d[i * MST_MM_LANES + lane]);
            off = d > off || isnan(d) ? d : off;
            if (isnan(off))
                break;
        }
        double share = off == 0 ? 0 : off / allowed;
        widest = allowed > widest ? allowed : widest;
        if (share > largest || isnan(share)) {
            largest = isnan(share) ? INFINITY : share;
            worst = i;
        }
    }
    out->checked = true;
    out->check_share = largest;
    out->check_error = CAUGHT * widest;
    out->check_escapes = pow(CAUGHT, -MST_MM_LANES);
    if (largest <= 1)
        return MST_OK;
    self->agreed = true; /* all ranks have the same sums */
    if (!isfinite(factor) || !isfinite(largest))
        return mst_fail(MST_EINPUT,
                        "row %" PRIu64
                        " of the product cannot be checked: it, or a factor, has elements that "
                        "are not finite or overflow a float32; --no-check skips the check",
                        worst);
    return mst_fail(MST_EINPUT,
                    "%s is not the product of A and B: the randomised check finds row %" PRIu64
                    " off by %.3g times the largest rounding error%s",
                    self->o.what == MST_MATMUL_VERIFY ? self->o.c : "the result", worst, largest,
                    self->o.what == MST_MATMUL_VERIFY ? "" : "; this is a fault of the machine or of muster");
}

mst_status mst_mm_check_end(mst_matmul *self, mst_matmul_result *out)
{
    const mst_layout *l = &self->plan.layout;
    uint64_t start = mst_now_ns();
    TRY(mst_mm_agree(self, walk_b(self)));
    TRY(check_add_up(self, self->z, l->k * MST_MM_LANES));
    TRY(mst_mm_agree(self, walk_a(self)));
    TRY(check_add_up(self, self->d, l->m * MST_MM_LANES));
    TRY(check_add_up(self, self->norms, l->m + 1));
    out->check_seconds = mst_seconds_since(start);
    return check_judge(self, out);
}
