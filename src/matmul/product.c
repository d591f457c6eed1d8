/* The full product: SUMMA. One step per panel of k: its pieces of A and B arrive while the step
 * before is multiplied into C; the messages of the next step are handled meanwhile. With passes
 * (memory_plan.c) the whole is done once per part of C. */
#include "base/clock.h"
#include "matmul/matmul_impl.h"

mst_status mst_mm_fill(mst_matmul *self)
{
    const mst_layout *l = &self->plan.layout;
    uint64_t start = mst_now_ns();
    for (uint32_t p = 0; p < l->n_panels; p++) {
        mst_index_range panel = mst_layout_panel(l, p);
        TRY(mst_mm_stopped(self));
        for (uint32_t i = 0; i < l->n_rows && self->plan.keeps_a; i++) {
            mst_index_range rows = mst_layout_row(l, i);
            if (mst_layout_owner_a(l, i, p) == (uint32_t)self->rank)
                TRY(mst_matrix_fetch(&self->a, self->kernels, self->o.n_threads, rows.first, panel.first,
                                     rows.n, panel.n, mst_mm_kept_a(self, i, p)));
        }
        for (uint32_t j = 0; j < l->n_cols && self->plan.keeps_b; j++) {
            mst_index_range cols = mst_layout_col(l, j);
            if (mst_layout_owner_b(l, p, j) == (uint32_t)self->rank)
                TRY(mst_matrix_fetch(&self->b, self->kernels, self->o.n_threads, panel.first, cols.first,
                                     panel.n, cols.n, mst_mm_kept_b(self, p, j)));
        }
    }
    mst_mm_touch(self->o.n_threads, self->tile.data, self->tile.size);
    self->mine.fill_seconds += mst_seconds_since(start);
    return MST_OK;
}

/* C's block (i, j) of this pass; *at is its place, and advances to the next one of this rank. */
typedef struct c_block {
    mst_index_range rows, cols;
    float *data;
} c_block;

static bool product_next_block(const mst_matmul *self, uint32_t row_pass, uint32_t col_pass, uint64_t *number,
                               c_block *out, uint32_t *i, uint32_t *j)
{
    const mst_layout *l = &self->plan.layout;
    for (; *number < (uint64_t)l->n_rows * l->n_cols; ++*number) {
        *i = (uint32_t)(*number / l->n_cols);
        *j = (uint32_t)(*number % l->n_cols);
        if (mst_layout_owner_c(l, *i, *j) != (uint32_t)self->rank)
            continue;
        out->rows = mst_index_range_divide(mst_layout_row(l, *i), row_pass, self->plan.row_passes);
        out->cols = mst_index_range_divide(mst_layout_col(l, *j), col_pass, self->plan.col_passes);
        out->data = self->tile.data;
        if (l->placement == MST_PLACEMENT_ROUND_ROBIN)
            out->data += *number / l->size * l->block * l->block;
        ++*number;
        return true;
    }
    return false;
}

/* A call of sgemm under way. */
typedef struct product_call {
    mst_matmul *self;
    mst_mm_pieces *next; /* of the next step, or NULL */
    double flops, share; /* all, and the part that is reported */
    mst_status status;
} product_call;

static bool product_pump(void *arg, double share)
{
    product_call *call = arg;
    bool arrived, done;
    mst_mm_progress(call->self, call->flops * (share - call->share));
    call->share = share;
    call->status = mst_mm_stopped(call->self);
    if (call->status == MST_OK && call->next != NULL)
        call->status = mst_mm_poll(call->self, call->next, &arrived, &done);
    return call->status == MST_OK;
}

/* block += (or =, in the first panel) a x b, handling the messages of `next` meanwhile. */
static mst_status product_multiply(mst_matmul *self, const c_block *block, const mst_mm_piece *a,
                                   const mst_mm_piece *b, bool first, mst_mm_pieces *next)
{
    const uint64_t rows = block->rows.n, cols = block->cols.n, depth = a->cols, start = mst_now_ns();
    product_call call = {.self = self, .next = next};
    call.flops = 2.0 * (double)rows * (double)cols * (double)depth;
    mst_sgemm_multiply(self->sgemm, rows, cols, depth, a->data, b->data, !first, block->data, product_pump,
                       &call);
    TRY(call.status);
    self->mine.seconds += mst_seconds_since(start);
    self->mine.flops += call.flops;
    product_pump(&call, 1.0);
    return call.status;
}

static mst_status multiply_step(mst_matmul *self, uint32_t row_pass, uint32_t col_pass, bool first,
                                mst_mm_pieces *pieces, mst_mm_pieces *next)
{
    uint64_t number = 0;
    c_block block;
    uint32_t i, j;
    while (product_next_block(self, row_pass, col_pass, &number, &block, &i, &j))
        if (block.rows.n > 0 && block.cols.n > 0)
            TRY(product_multiply(self, &block, &pieces->a[i], &pieces->b[j], first, next));
    return MST_OK;
}

/* C's part of this pass is complete. */
static mst_status product_deliver(mst_matmul *self, uint32_t row_pass, uint32_t col_pass)
{
    uint64_t number = 0, start = mst_now_ns();
    c_block block;
    uint32_t i, j;
    while (product_next_block(self, row_pass, col_pass, &number, &block, &i, &j)) {
        uint64_t wrong = self->o.spoil - 1, row = wrong / self->plan.layout.n,
                 col = wrong % self->plan.layout.n;
        if (block.rows.n == 0 || block.cols.n == 0)
            continue;
        if (row - block.rows.first < block.rows.n && col - block.cols.first < block.cols.n)
            block.data[(row - block.rows.first) * block.cols.n + col - block.cols.first] += 1000;
        self->mine.blocks++;
        mst_mm_check_c(self, block.data, block.rows.first, block.cols.first, block.rows.n, block.cols.n);
        if (self->o.out != NULL)
            TRY(mst_npy_write(&self->out, block.rows.first, block.cols.first, block.rows.n, block.cols.n,
                              block.data));
    }
    self->deliver_seconds += mst_seconds_since(start);
    return MST_OK;
}

mst_status mst_mm_product(mst_matmul *self)
{
    const mst_matmul_plan *plan = &self->plan;
    uint64_t n_panels = plan->layout.n_panels;
    uint64_t passes = (uint64_t)plan->row_passes * plan->col_passes, steps = passes * n_panels;
    for (uint64_t s = 0; s < steps + 1; s++) { /* starts step s, multiplies step s - 1 */
        mst_mm_pieces *now = &self->pieces[(s + 1) % 2], *next = &self->pieces[s % 2];
        if (s < steps) {
            uint64_t pass = s / n_panels;
            TRY(mst_mm_finish(self, next));
            TRY(mst_mm_start_step(self, next, (uint32_t)(s % (1u << 30)), (uint32_t)(pass / plan->col_passes),
                                  (uint32_t)(pass % plan->col_passes), (uint32_t)(s % n_panels)));
        }
        if (s == 0)
            continue;
        uint64_t pass = (s - 1) / n_panels;
        uint32_t row_pass = (uint32_t)(pass / plan->col_passes),
                 col_pass = (uint32_t)(pass % plan->col_passes);
        TRY(mst_mm_arrive(self, now));
        TRY(multiply_step(self, row_pass, col_pass, (s - 1) % n_panels == 0, now, s < steps ? next : NULL));
        if (s % n_panels == 0)
            TRY(product_deliver(self, row_pass, col_pass));
    }
    TRY(mst_mm_finish(self, &self->pieces[0]));
    return mst_mm_finish(self, &self->pieces[1]);
}
