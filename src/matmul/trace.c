/* trace(A x B) without the product: the sum of A[i][j] * B[j][i], over pairs of a block of A and the block of
 * B at the mirrored place. Pairs are numbered along A's rows.
 *
 * together: a rank has the pairs of one range of numbers, both blocks, so only each rank's sum is sent.
 * Pairs are kept in memory if they fit, and then only the sums are timed; otherwise they are made or read a
 * batch at a time.
 *
 * round-robin: blocks of A and of B are assigned independently; blocks of B are sent to the rank with the
 * matching block of A.
 *
 * product: a rank has some block rows of A and the same block columns of B, and
 * multiplies them into diagonal blocks of C.
 *
 * Each pair's sum is formed by one thread in a fixed order and pairs are added in the order of their numbers,
 * so the trace is a function of the matrices, the block and the number of ranks alone (given the
 * instruction set). */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "matmul/matmul_impl.h"
#include "tensor/dnnl_ops.h"

#define BLOCK         256
#define BLOCK_PRODUCT 512
#define DEPTH         4 /* blocks of k at a time in the product method */
#define IN_FLIGHT     4 /* blocks that a rank sends, with round-robin */
#define BATCH_BYTES   ((uint64_t)64 << 20)
#define TAG           7

typedef struct trace_pair {
    mst_index_range rows, cols; /* of A's block; B's is cols x rows */
} trace_pair;

static trace_pair pair_of(const mst_layout *l, uint64_t number)
{
    uint64_t i = number / l->n_panels, p = number % l->n_panels;
    return (trace_pair){.rows = mst_layout_row(l, (uint32_t)i), .cols = mst_layout_panel(l, (uint32_t)p)};
}

static mst_index_range my_pairs(const mst_matmul *self)
{
    const mst_layout *l = &self->plan.layout;
    return mst_index_range_divide((mst_index_range){0, (uint64_t)l->n_rows * l->n_panels},
                                  (uint64_t)self->rank, (uint64_t)self->size);
}

static uint64_t b_owner(const mst_layout *l, uint64_t number)
{
    return (number % l->n_panels * l->n_rows + number / l->n_panels) % l->size;
}

void mst_mm_trace_plan(mst_matmul *self, uint64_t block)
{
    mst_matmul_plan *plan = &self->plan;
    mst_layout *l = &plan->layout;
    bool product = self->o.what == MST_MATMUL_TRACE_BY_PRODUCT;
    uint64_t m = self->a.rows, k = self->a.cols;
    block = block > 0 ? block : product ? BLOCK_PRODUCT : BLOCK;
    while (mst_ceil_div(m, block) > 1u << 30 || mst_ceil_div(k, block) > 1u << 30)
        block *= 2;
    /* the blocks of round-robin, whichever the placement: rows and panels of block x block */
    mst_layout_init(l, MST_PLACEMENT_ROUND_ROBIN, m, m, k, block, (uint32_t)self->size, self->o.grid);
    l->placement = MST_PLACEMENT_ROUND_ROBIN;
    uint64_t pairs = (uint64_t)l->n_rows * l->n_panels, share = mst_ceil_div(pairs, l->size);
    uint64_t rows = block < m ? block : m, depth = block < k ? block : k;
    for (uint64_t t = 0; t < pairs; t++) {
        trace_pair p = pair_of(l, t);
        if (b_owner(l, t) != t % l->size)
            plan->moved_round_robin += TILE_BYTES(p.rows.n, p.cols.n);
    }
    plan->moved = self->o.placement == MST_PLACEMENT_ROUND_ROBIN ? plan->moved_round_robin : 0;
    plan->flops = 2.0 * (double)m * (double)k * (product ? (double)rows : 1);
    plan->row_passes = plan->col_passes = 1;
    if (product) {
        uint64_t deep = DEPTH * block < k ? DEPTH * block : k;
        plan->buffers = 2 * TILE_BYTES(rows, deep);
        plan->c = TILE_BYTES(rows, rows);
    } else {
        plan->a = plan->b = share * TILE_BYTES(rows, depth);
        plan->keeps_a = plan->keeps_b = self->o.placement == MST_PLACEMENT_TOGETHER &&
                                        plan->a + plan->b + share * sizeof(double) <= plan->limit.bytes;
        self->batch = share;
        if (!plan->keeps_a) {
            uint64_t two = 2 * TILE_BYTES(rows, depth) + sizeof(double), most = plan->limit.bytes / two;
            self->batch = most > BATCH_BYTES / two ? BATCH_BYTES / two : most;
            self->batch = self->batch < 1 ? 1 : self->batch > share ? share : self->batch;
            plan->a = plan->b = 0;
            plan->buffers = self->o.placement == MST_PLACEMENT_ROUND_ROBIN
                                ? (2 + IN_FLIGHT) * TILE_BYTES(rows, depth)
                                : 2 * self->batch * TILE_BYTES(rows, depth);
        }
        plan->vectors = self->batch * sizeof(double);
    }
    plan->total = plan->a + plan->b + plan->c + plan->buffers + plan->vectors;
}

/* ---- one pair ---- */

/* A tile of a pair, and the rest of the pair. */
typedef struct tile_walk {
    const float *a, *b; /* rows x cols; cols x rows */
    uint64_t rows, cols, row, col;
} tile_walk;

static bool tile_walk_next(tile_walk *w, mst_mm_tile *tile, size_t *rows, size_t *cols)
{
    if (w->row >= w->rows)
        return false;
    *rows = (size_t)(w->rows - w->row < MST_MM_TILE ? w->rows - w->row : MST_MM_TILE);
    *cols = (size_t)(w->cols - w->col < MST_MM_TILE ? w->cols - w->col : MST_MM_TILE);
    *tile = (mst_mm_tile){.a = w->a + w->row * w->cols + w->col,
                          .b = w->b + w->col * w->rows + w->row,
                          .lda = w->cols,
                          .ldb = w->rows};
    w->col += MST_MM_TILE;
    if (w->col >= w->cols) {
        w->col = 0;
        w->row += MST_MM_TILE;
    }
    return true;
}

/* The sum of a pair; after: the next pair, NULL when there is none. */
static double sum_pair(const mst_mm_kernels *kernels, const float *a, const float *b, trace_pair p,
                       const mst_mm_tile *after)
{
    tile_walk w = {.a = a, .b = b, .rows = p.rows.n, .cols = p.cols.n};
    mst_mm_tile tile = {0}, next = {0};
    size_t rows = 0, cols = 0, next_rows = 0, next_cols = 0;
    double sum = 0;
    bool more = tile_walk_next(&w, &tile, &rows, &cols);
    while (more) {
        more = tile_walk_next(&w, &next, &next_rows, &next_cols);
        sum += kernels->trace(&tile, rows, cols, more ? &next : after);
        tile = next;
        rows = next_rows;
        cols = next_cols;
    }
    return sum;
}

/* By one thread: the data is small, or one of several threads fetches. */
static mst_status trace_fetch(mst_matmul *self, const mst_matrix *matrix, mst_index_range rows,
                              mst_index_range cols, float *out)
{
    return mst_matrix_fetch(matrix, self->kernels, 1, rows.first, cols.first, rows.n, cols.n, out);
}

/* ---- both blocks of a pair here ---- */

/* Pairs worked on at a time: all that are kept, or as many as a batch holds. */
typedef struct batch {
    mst_matmul *self;
    mst_index_range pairs;
    uint64_t stride; /* floats of a block */
    double *sums;    /* of each pair */
    unsigned n_parts;
    mst_error *errors; /* one per part */
} batch;

static void fill_part(void *arg, unsigned part)
{
    batch *w = arg;
    mst_matmul *self = w->self;
    mst_index_range mine = mst_index_range_divide((mst_index_range){0, w->pairs.n}, part, w->n_parts);
    mst_status st = MST_OK;
    for (uint64_t i = mine.first; i < mine.first + mine.n && st == MST_OK; i++) {
        trace_pair p = pair_of(&self->plan.layout, w->pairs.first + i);
        float *a = self->share_a.data + i * w->stride, *b = self->share_b.data + i * w->stride;
        st = mst_mm_stopped(self);
        if (st == MST_OK)
            st = trace_fetch(self, &self->a, p.rows, p.cols, a);
        if (st == MST_OK)
            st = trace_fetch(self, &self->b, p.cols, p.rows, b);
    }
    w->errors[part].code = MST_OK;
    if (st != MST_OK)
        mst_error_save(&w->errors[part], st);
}

static void sum_part(void *arg, unsigned part)
{
    batch *w = arg;
    mst_matmul *self = w->self;
    mst_index_range mine = mst_index_range_divide((mst_index_range){0, w->pairs.n}, part, w->n_parts);
    for (uint64_t i = mine.first; i < mine.first + mine.n; i++) {
        const float *a = self->share_a.data + i * w->stride, *b = self->share_b.data + i * w->stride;
        trace_pair p = pair_of(&self->plan.layout, w->pairs.first + i), q;
        mst_mm_tile after;
        bool more = i + 1 < mine.first + mine.n;
        if (more) {
            q = pair_of(&self->plan.layout, w->pairs.first + i + 1);
            after = (mst_mm_tile){a + w->stride, b + w->stride, q.cols.n, q.rows.n};
        }
        w->sums[i] = sum_pair(self->kernels, a, b, p, more ? &after : NULL);
    }
}

static mst_status sum_batch(batch *w)
{
    mst_matmul *self = w->self;
    double flops = 0;
    uint64_t start = mst_now_ns();
    mst_status st = MST_OK;
    mst_dnnl_each(w->n_parts, fill_part, w);
    for (unsigned i = 0; i < w->n_parts && st == MST_OK; i++)
        if (w->errors[i].code != MST_OK)
            st = mst_error_restore(&w->errors[i]);
    self->mine.fill_seconds += mst_seconds_since(start);
    if (self->plan.keeps_a) /* one batch on every rank: their clocks start together */
        st = mst_mm_agree(self, st);
    TRY(st);
    start = mst_now_ns();
    mst_dnnl_each(w->n_parts, sum_part, w);
    self->mine.seconds += mst_seconds_since(start);
    for (uint64_t i = 0; i < w->pairs.n; i++) {
        trace_pair p = pair_of(&self->plan.layout, w->pairs.first + i);
        self->trace += w->sums[i];
        flops += 2.0 * (double)p.rows.n * (double)p.cols.n;
    }
    self->mine.flops += flops;
    self->mine.blocks += w->pairs.n;
    mst_mm_progress(self, flops);
    return MST_OK;
}

static mst_status sum_together(mst_matmul *self)
{
    const mst_layout *l = &self->plan.layout;
    mst_index_range pairs = my_pairs(self);
    uint64_t rows = l->block < l->m ? l->block : l->m, cols = l->block < l->k ? l->block : l->k;
    batch w = {.self = self, .stride = rows * cols, .n_parts = self->o.n_threads};
    mst_status st = MST_OK;
    w.sums = mst_calloc(self->batch, sizeof *w.sums);
    w.errors = mst_calloc(w.n_parts, sizeof *w.errors);
    if (w.sums == NULL || w.errors == NULL)
        TRY_OUT(st, mst_fail_memory());
    TRY_OUT(st, mst_mm_pages_take(&self->share_a, self->batch * TILE_BYTES(rows, cols), "A"));
    TRY_OUT(st, mst_mm_pages_take(&self->share_b, self->batch * TILE_BYTES(rows, cols), "B"));
    uint64_t at = 0;
    do { /* once also without pairs: all ranks take part in the agreement */
        w.pairs =
            (mst_index_range){pairs.first + at, pairs.n - at < self->batch ? pairs.n - at : self->batch};
        TRY_OUT(st, sum_batch(&w));
        at += w.pairs.n;
    } while (at < pairs.n);
out:
    mst_free(w.errors);
    mst_free(w.sums);
    return st;
}

/* ---- B's block may be elsewhere ---- */

static mst_status sum_dealt(mst_matmul *self)
{
    const mst_layout *l = &self->plan.layout;
    uint64_t rows = l->block < l->m ? l->block : l->m, cols = l->block < l->k ? l->block : l->k;
    uint64_t stride = rows * cols, start, n_sent = 0, rank = (uint64_t)self->rank;
    mst_mpi_request sends[IN_FLIGHT] = {{0}}, receive = MST_MPI_NONE;
    TRY(mst_mm_pages_take(&self->pieces[0].buffer, self->plan.buffers, "a pair of blocks"));
    float *a = self->pieces[0].buffer.data, *b = a + stride, *outgoing = b + stride;
    for (uint64_t t = 0; t < (uint64_t)l->n_rows * l->n_panels; t++) {
        trace_pair p = pair_of(l, t);
        uint64_t bytes = TILE_BYTES(p.rows.n, p.cols.n), at = t % l->size, from = b_owner(l, t);
        TRY(mst_mm_stopped(self));
        if (from == rank && at != rank) {
            uint64_t which = n_sent++ % IN_FLIGHT;
            TRY(mst_mm_wait(self, 1, &sends[which], "a block of B to leave"));
            start = mst_now_ns();
            TRY(trace_fetch(self, &self->b, p.cols, p.rows, outgoing + which * stride));
            self->mine.fill_seconds += mst_seconds_since(start);
            TRY(self->o.mpi->ops->isend(0, outgoing + which * stride, bytes, (int)at, TAG, &sends[which]));
            self->mine.sent += bytes;
        }
        if (at != rank)
            continue;
        start = mst_now_ns();
        TRY(trace_fetch(self, &self->a, p.rows, p.cols, a));
        if (from == rank)
            TRY(trace_fetch(self, &self->b, p.cols, p.rows, b));
        self->mine.fill_seconds += mst_seconds_since(start);
        if (from != rank) {
            TRY(self->o.mpi->ops->irecv(0, b, bytes, (int)from, TAG, &receive));
            TRY(mst_mm_wait(self, 1, &receive, "a block of B"));
            self->mine.received += bytes;
        }
        start = mst_now_ns();
        self->trace += sum_pair(self->kernels, a, b, p, NULL);
        self->mine.seconds += mst_seconds_since(start);
        self->mine.flops += 2.0 * (double)p.rows.n * (double)p.cols.n;
        self->mine.blocks++;
        mst_mm_progress(self, 2.0 * (double)p.rows.n * (double)p.cols.n);
    }
    return mst_mm_wait(self, IN_FLIGHT, sends, "the last blocks of B to leave");
}

/* ---- the product's way ---- */

static mst_status sum_by_product(mst_matmul *self)
{
    const mst_layout *l = &self->plan.layout;
    mst_index_range mine =
        mst_index_range_divide((mst_index_range){0, l->n_rows}, (uint64_t)self->rank, (uint64_t)self->size);
    uint64_t rows = l->block < l->m ? l->block : l->m,
             deep = DEPTH * l->block < l->k ? DEPTH * l->block : l->k;
    TRY(mst_mm_pages_take(&self->pieces[0].buffer, 2 * TILE_BYTES(rows, deep), "the factors"));
    TRY(mst_mm_pages_take(&self->tile, TILE_BYTES(rows, rows), "a block of C"));
    TRY(mst_sgemm_new(self->kernels, self->o.n_threads, rows, rows, deep, &self->sgemm));
    float *a = self->pieces[0].buffer.data, *b = a + rows * deep, *c = self->tile.data;
    for (uint64_t i = mine.first; i < mine.first + mine.n; i++) {
        mst_index_range side = mst_layout_row(l, (uint32_t)i);
        for (uint64_t at = 0; at < l->k; at += deep) {
            mst_index_range part = {at, l->k - at < deep ? l->k - at : deep};
            uint64_t start = mst_now_ns();
            TRY(mst_mm_stopped(self));
            TRY(mst_matrix_fetch(&self->a, self->kernels, self->o.n_threads, side.first, part.first, side.n,
                                 part.n, a));
            TRY(mst_matrix_fetch(&self->b, self->kernels, self->o.n_threads, part.first, side.first, part.n,
                                 side.n, b));
            self->mine.fill_seconds += mst_seconds_since(start);
            start = mst_now_ns();
            mst_sgemm_multiply(self->sgemm, side.n, side.n, part.n, a, b, at > 0, c, NULL, NULL);
            double flops = 2.0 * (double)side.n * (double)side.n * (double)part.n;
            self->mine.seconds += mst_seconds_since(start);
            self->mine.flops += flops;
            mst_mm_progress(self, flops);
        }
        for (uint64_t r = 0; r < side.n; r++)
            self->trace += c[r * side.n + r];
        self->mine.blocks++;
    }
    return MST_OK;
}

mst_status mst_mm_trace(mst_matmul *self, mst_matmul_result *out)
{
    mst_status st = self->o.what == MST_MATMUL_TRACE_BY_PRODUCT      ? sum_by_product(self)
                    : self->o.placement == MST_PLACEMENT_ROUND_ROBIN ? sum_dealt(self)
                                                                     : sum_together(self);
    TRY(mst_mm_agree(self, st));
    double *all = mst_calloc((size_t)self->size, sizeof *all);
    if (all == NULL)
        return mst_fail_memory();
    all[0] = self->trace;
    if (self->size > 1)
        st = self->o.mpi->ops->allgather(0, &self->trace, sizeof self->trace, all);
    out->trace = 0;
    for (int r = 0; r < self->size; r++)
        out->trace += all[r];
    mst_free(all);
    return st;
}
