/* Pieces of panels on their way to the ranks that need them.
 *
 * A piece goes down a binomial tree whose root is its owner: rank v of those that need it (the owner is 0)
 * gets it from v with its lowest bit cleared, and passes it on to v + 1, v + 2, v + 4 ... below that bit. All
 * transfers are isend and irecv, driven by calls of mst_mm_poll between two parts of a multiplication, so the
 * next step's pieces travel while this one's are multiplied.
 *
 * Invariants
 * 1. The pieces of a step are used again only after finish: nothing reads or writes them then.
 * 2. Messages of one pair of ranks with one tag are posted in the order of steps on both sides: steps that
 *    share a tag use the same pieces. */
#include <string.h>

#include "base/clock.h"
#include "matmul/matmul_impl.h"

#define TAG_STEPS  4 /* distinct steps; even, so that those with one tag use the same pieces */
#define TAG_PIECES 4096

const char mst_matmul_unfinished[] = "the multiplication was not finished; no result is kept";

mst_status mst_mm_stopped(const mst_matmul *self)
{
    if (!atomic_load_explicit(self->o.stop, memory_order_relaxed))
        return MST_OK;
    return mst_fail(MST_ESTOPPED, "%s", mst_matmul_unfinished);
}

/* ---- places of blocks ---- */

float *mst_mm_kept_a(const mst_matmul *self, uint32_t i, uint32_t panel)
{
    const mst_layout *l = &self->plan.layout;
    if (l->placement == MST_PLACEMENT_TOGETHER)
        return self->share_a.data + panel / l->grid[1] * l->block * mst_layout_row(l, i).n;
    return self->share_a.data + ((uint64_t)i * l->n_panels + panel) / l->size * l->block * l->block;
}

float *mst_mm_kept_b(const mst_matmul *self, uint32_t panel, uint32_t j)
{
    const mst_layout *l = &self->plan.layout;
    if (l->placement == MST_PLACEMENT_TOGETHER)
        return self->share_b.data + panel / l->grid[0] * l->block * mst_layout_col(l, j).n;
    return self->share_b.data + ((uint64_t)panel * l->n_cols + j) / l->size * l->block * l->block;
}

/* ---- one piece ---- */

static mst_status send_on(mst_matmul *self, mst_mm_piece *piece, int tag)
{
    size_t bytes = TILE_BYTES(piece->rows, piece->cols);
    piece->here = true;
    for (uint32_t i = 0; i < piece->n_children; i++) {
        TRY(self->o.mpi->ops->isend(0, piece->data, bytes, piece->children[i], tag, &piece->requests[i + 1]));
        self->mine.sent += bytes;
    }
    return MST_OK;
}

/* Finds this rank's place in the tree and begins: the owner sends, the others wait for theirs. order[0..n)
 * are the ranks that take part. */
static mst_status move_begin(mst_matmul *self, mst_mm_piece *piece, uint32_t n, int tag)
{
    uint32_t v = 0;
    while (self->order[v] != (uint32_t)self->rank)
        v++;
    piece->n_children = 0;
    memset(piece->requests, 0, sizeof piece->requests);
    for (uint32_t bit = 1; bit < n && (v & bit) == 0; bit <<= 1)
        if (v + bit < n)
            piece->children[piece->n_children++] = (int)self->order[v + bit];
    for (uint32_t i = 0; i < piece->n_children / 2; i++) { /* the largest subtree first */
        int child = piece->children[i];
        piece->children[i] = piece->children[piece->n_children - 1 - i];
        piece->children[piece->n_children - 1 - i] = child;
    }
    if (v == 0)
        return send_on(self, piece, tag);
    size_t bytes = TILE_BYTES(piece->rows, piece->cols);
    piece->here = false;
    self->mine.received += bytes;
    return self->o.mpi->ops->irecv(0, piece->data, bytes, (int)self->order[v & (v - 1)], tag,
                                   &piece->requests[0]);
}

static bool move_needs(const mst_layout *l, bool of_a, uint32_t rank, uint32_t index)
{
    return of_a ? mst_layout_needs_a(l, rank, index) : mst_layout_needs_b(l, rank, index);
}

/* Owner first, then those that need it, in the order of ranks from there on; returns how many. */
static uint32_t move_take_part(mst_matmul *self, bool of_a, uint32_t index, uint32_t owner)
{
    const mst_layout *l = &self->plan.layout;
    uint32_t n = 0;
    self->order[n++] = owner;
    for (uint32_t step = 1; step < l->size; step++) {
        uint32_t r = (owner + step) % l->size;
        if (move_needs(l, of_a, r, index))
            self->order[n++] = r;
    }
    return n;
}

static mst_status fetch_timed(mst_matmul *self, const mst_matrix *matrix, mst_index_range rows,
                              mst_index_range cols, float *out)
{
    uint64_t start = mst_now_ns();
    mst_status st = mst_matrix_fetch(matrix, self->kernels, self->o.n_threads, rows.first, cols.first, rows.n,
                                     cols.n, out);
    self->mine.fill_seconds += mst_seconds_since(start);
    return st;
}

/* Starts the piece of a panel of A in block row `index`, of which side is the rows of this pass; or of B in
 * a block column and its columns. */
static mst_status move_start(mst_matmul *self, mst_mm_pieces *pieces, bool of_a, uint32_t index,
                             mst_index_range side, uint32_t panel, float **free_at)
{
    const mst_layout *l = &self->plan.layout;
    mst_mm_piece *piece = of_a ? &pieces->a[index] : &pieces->b[index];
    uint32_t rank = (uint32_t)self->rank,
             owner = of_a ? mst_layout_owner_a(l, index, panel) : mst_layout_owner_b(l, panel, index);
    mst_index_range across = mst_layout_panel(l, panel), rows = of_a ? side : across,
                    cols = of_a ? across : side;
    piece->mine = side.n > 0 && (owner == rank || move_needs(l, of_a, rank, index));
    if (!piece->mine)
        return MST_OK;
    piece->rows = rows.n;
    piece->cols = cols.n;
    if (owner == rank && of_a && self->plan.keeps_a) {
        piece->data =
            mst_mm_kept_a(self, index, panel) + (rows.first - mst_layout_row(l, index).first) * cols.n;
    } else if (owner == rank && !of_a && self->plan.keeps_b) {
        piece->data = mst_mm_kept_b(self, panel, index); /* all columns: B is kept only without passes */
    } else {
        piece->data = *free_at;
        *free_at += rows.n * cols.n;
        if (owner == rank)
            TRY(fetch_timed(self, of_a ? &self->a : &self->b, rows, cols, piece->data));
    }
    return move_begin(self, piece, move_take_part(self, of_a, index, owner),
                      pieces->tag + (of_a ? 0 : TAG_PIECES / 2) + (int)index);
}

/* ---- one step ---- */

mst_status mst_mm_start_step(mst_matmul *self, mst_mm_pieces *pieces, uint32_t step, uint32_t row_pass,
                             uint32_t col_pass, uint32_t panel)
{
    const mst_layout *l = &self->plan.layout;
    float *free_at = pieces->buffer.data;
    pieces->tag = (int)(step % TAG_STEPS) * TAG_PIECES;
    for (uint32_t i = 0; i < l->n_rows; i++)
        TRY(move_start(self, pieces, true, i,
                       mst_index_range_divide(mst_layout_row(l, i), row_pass, self->plan.row_passes), panel,
                       &free_at));
    for (uint32_t j = 0; j < l->n_cols; j++)
        TRY(move_start(self, pieces, false, j,
                       mst_index_range_divide(mst_layout_col(l, j), col_pass, self->plan.col_passes), panel,
                       &free_at));
    return MST_OK;
}

static mst_status poll_piece(mst_matmul *self, mst_mm_piece *piece, int tag, bool *arrived, bool *done)
{
    bool now[CHILDREN_MAX + 1];
    uint32_t n_done;
    if (!piece->mine || self->size == 1)
        return MST_OK;
    uint32_t n = piece->here ? piece->n_children + 1 : 1;
    bool under_way = false;
    for (uint32_t i = 0; i < n; i++)
        under_way = under_way || piece->requests[i].opaque != 0;
    if (under_way)
        TRY(self->o.mpi->ops->test_some(n, piece->requests, now, &n_done));
    if (!piece->here && piece->requests[0].opaque == 0)
        TRY(send_on(self, piece, tag));
    *arrived = *arrived && piece->here;
    for (uint32_t i = 0; i <= piece->n_children; i++)
        *done = *done && piece->requests[i].opaque == 0;
    return MST_OK;
}

mst_status mst_mm_poll(mst_matmul *self, mst_mm_pieces *pieces, bool *arrived, bool *done)
{
    const mst_layout *l = &self->plan.layout;
    *arrived = *done = true;
    for (uint32_t i = 0; i < l->n_rows; i++)
        TRY(poll_piece(self, &pieces->a[i], pieces->tag + (int)i, arrived, done));
    for (uint32_t j = 0; j < l->n_cols; j++)
        TRY(poll_piece(self, &pieces->b[j], pieces->tag + TAG_PIECES / 2 + (int)j, arrived, done));
    return MST_OK;
}

static mst_status wait_pieces(mst_matmul *self, mst_mm_pieces *pieces, bool wholly)
{
    mst_mpi_backoff backoff = {0};
    uint64_t start = mst_now_ns();
    for (;;) {
        bool arrived, done;
        mst_mm_pieces *other = pieces == &self->pieces[0] ? &self->pieces[1] : &self->pieces[0];
        TRY(mst_mm_poll(self, pieces, &arrived, &done));
        if (arrived && (done || !wholly))
            break;
        bool a, b; /* others may wait for pieces that pass through here */
        TRY(mst_mm_poll(self, other, &a, &b));
        TRY(mst_mm_stopped(self));
        if (mst_now_ns() - start > WAIT_S * MST_S)
            return mst_fail(MST_ETIMEOUT, "waited %d s for a panel of another rank", WAIT_S);
        mst_mpi_idle(&backoff);
    }
    self->mine.wait_seconds += mst_seconds_since(start);
    return MST_OK;
}

mst_status mst_mm_arrive(mst_matmul *self, mst_mm_pieces *pieces)
{
    return wait_pieces(self, pieces, false);
}

mst_status mst_mm_finish(mst_matmul *self, mst_mm_pieces *pieces)
{
    return wait_pieces(self, pieces, true);
}

mst_status mst_mm_wait(mst_matmul *self, uint32_t n, mst_mpi_request *requests, const char *what)
{
    mst_mpi_backoff backoff = {0};
    uint64_t start = mst_now_ns();
    for (;;) {
        bool now[CHILDREN_MAX], under_way = false;
        uint32_t n_done;
        for (uint32_t i = 0; i < n; i++)
            under_way = under_way || requests[i].opaque != 0;
        if (!under_way)
            break;
        TRY(self->o.mpi->ops->test_some(n, requests, now, &n_done));
        TRY(mst_mm_stopped(self));
        if (mst_now_ns() - start > WAIT_S * MST_S)
            return mst_fail(MST_ETIMEOUT, "waited %d s for %s", WAIT_S, what);
        if (n_done == 0)
            mst_mpi_idle(&backoff);
    }
    self->mine.wait_seconds += mst_seconds_since(start);
    return MST_OK;
}
