/* The memory plan of a product.
 *
 * Tried in this order, the first that fits the smallest limit of all ranks is taken: A's and B's shares and
 * C's in memory; only one factor's share; none, so that pieces are made or read when their panel's turn
 * comes; then C in parts, each a pass over A and B, split where its block is longer; then narrower panels.
 * Every pass over rows sends B again and every pass over columns A, which the foreseen bytes include. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/figure.h"
#include "matmul/matmul_impl.h"

#define PANEL                  768 /* columns of A and rows of B in a panel */
#define PANEL_MIN              16
#define PASSES_MAX             (1u << 20)
#define MESSAGE_MAX            ((uint64_t)1 << 30)
#define ROUND_ROBIN_BLOCKS_MAX 2048 /* per side: tags of messages */

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Fills in the bytes of the fullest rank. */
static void count_bytes(mst_matmul_plan *plan, bool check)
{
    const mst_layout *l = &plan->layout;
    uint64_t width = min_u64(l->block, l->k), vectors = 8 * MST_MM_LANES;
    if (l->placement == MST_PLACEMENT_TOGETHER) {
        uint64_t rows = mst_ceil_div(l->m, l->grid[0]), cols = mst_ceil_div(l->n, l->grid[1]);
        uint64_t sub_rows = mst_ceil_div(rows, plan->row_passes),
                 sub_cols = mst_ceil_div(cols, plan->col_passes);
        plan->a = plan->keeps_a
                      ? TILE_BYTES(rows, min_u64(mst_ceil_div(l->n_panels, l->grid[1]) * width, l->k))
                      : 0;
        plan->b = plan->keeps_b
                      ? TILE_BYTES(min_u64(mst_ceil_div(l->n_panels, l->grid[0]) * width, l->k), cols)
                      : 0;
        plan->c = TILE_BYTES(sub_rows, sub_cols);
        bool buffer_a = !plan->keeps_a || l->grid[1] > 1, buffer_b = !plan->keeps_b || l->grid[0] > 1;
        plan->buffers = 2 * (buffer_a ? TILE_BYTES(sub_rows, width) : 0) +
                        2 * (buffer_b ? TILE_BYTES(width, sub_cols) : 0);
    } else {
        uint64_t b2 = TILE_BYTES(l->block, l->block);
        plan->a = plan->keeps_a ? mst_ceil_div((uint64_t)l->n_rows * l->n_panels, l->size) * b2 : 0;
        plan->b = plan->keeps_b ? mst_ceil_div((uint64_t)l->n_panels * l->n_cols, l->size) * b2 : 0;
        plan->c = mst_ceil_div((uint64_t)l->n_rows * l->n_cols, l->size) * b2;
        plan->buffers = 2 * (TILE_BYTES(l->m, width) + TILE_BYTES(width, l->n));
    }
    plan->vectors = check ? vectors * (l->n + l->k + l->m) + 8 * (l->m + 1) : 0;
    plan->total = plan->a + plan->b + plan->c + plan->buffers + plan->vectors;
}

/* The least of --memory, the limits of this process, and what the host has for each of its ranks. */
static mst_memory_limit rank_limit(const mst_matmul_options *o)
{
    mst_memory_limit limit = {.bytes = UINT64_MAX, .name = "nothing"};
    int local = o->mpi != NULL ? o->mpi->launch.local_size : 1;
    if (o->memory > 0)
        mst_memory_limit_lower(&limit, o->memory, 0, "--memory");
    mst_memory_limit_by_process(&limit);
    mst_memory_limit_by_host(&limit, local > 0        ? (uint64_t)local
                                     : o->mpi != NULL ? (uint64_t)o->mpi->size
                                                      : 1);
    return limit;
}

mst_status mst_mm_plan_limit(mst_matmul *self)
{
    mst_memory_limit mine = rank_limit(&self->o), *all;
    self->plan.limit = mine;
    if (self->size == 1)
        return MST_OK;
    all = mst_calloc((size_t)self->size, sizeof *all);
    if (all == NULL)
        return mst_fail_memory();
    mst_status st = self->o.mpi->ops->allgather(0, &mine, sizeof mine, all);
    for (int r = 0; r < self->size && st == MST_OK; r++) {
        if (all[r].bytes >= self->plan.limit.bytes)
            continue;
        self->plan.limit = all[r];
        self->plan.limit.name[sizeof all[r].name - 1] = '\0';
    }
    mst_free(all);
    return st;
}

static bool plan_fits(mst_matmul_plan *plan, bool check)
{
    count_bytes(plan, check);
    return plan->total <= plan->limit.bytes;
}

/* Divides the longer side of C's part, then the panels. False: it cannot be divided further. */
static bool plan_divide(mst_matmul_plan *plan, bool free_block, const mst_matmul_options *o)
{
    mst_layout *l = &plan->layout;
    uint64_t rows = mst_ceil_div(mst_ceil_div(l->m, l->grid[0]), plan->row_passes);
    uint64_t cols = mst_ceil_div(mst_ceil_div(l->n, l->grid[1]), plan->col_passes);
    uint64_t width = min_u64(l->block, l->k);
    if (free_block && width > PANEL_MIN && rows < 2 * width && cols < 2 * width) {
        mst_layout_init(l, l->placement, l->m, l->n, l->k, mst_ceil_div(width, 2), l->size, o->grid);
        return true;
    }
    if (rows >= cols && rows > 1 && plan->row_passes < PASSES_MAX)
        plan->row_passes++;
    else if (cols > 1 && plan->col_passes < PASSES_MAX)
        plan->col_passes++;
    else
        return false;
    return true;
}

static mst_status plan_refuse(const mst_matmul *self, const mst_matmul_plan *least)
{
    char need[MST_FIGURE_SIZE], c[MST_FIGURE_SIZE], buffers[MST_FIGURE_SIZE], vectors[MST_FIGURE_SIZE],
        limit[MST_FIGURE_SIZE];
    return mst_fail(
        MST_ENOMEM,
        "%" PRIu64 " x %" PRIu64 " x %" PRIu64
        " on %d rank%s needs at least %s per rank (C %s, buffers %s, vectors of the check %s), but "
        "%s leaves %s; use more ranks%s%s",
        least->layout.m, least->layout.k, least->layout.n, self->size, self->size == 1 ? "" : "s",
        mst_figure_size(least->total, need), mst_figure_size(least->c, c),
        mst_figure_size(least->buffers, buffers), mst_figure_size(least->vectors, vectors), least->limit.name,
        mst_figure_size(least->limit.bytes, limit),
        strcmp(least->limit.name, "--memory") == 0 ? ", or more --memory" : "",
        least->layout.placement == MST_PLACEMENT_ROUND_ROBIN ? ", or --placement together"
        : self->o.block > 0                                  ? ", or a smaller --block"
        : self->o.check                                      ? ", or --no-check"
                                                             : "");
}

/* The widest panel whose pieces are messages MPI can send. */
static uint64_t panel_width(const mst_matmul *self, const mst_layout *l)
{
    uint64_t side = mst_ceil_div(l->m, l->grid[0]) > mst_ceil_div(l->n, l->grid[1])
                        ? mst_ceil_div(l->m, l->grid[0])
                        : mst_ceil_div(l->n, l->grid[1]);
    uint64_t width = self->o.block > 0 ? self->o.block : PANEL;
    uint64_t most = MESSAGE_MAX / sizeof(float) / side;
    return width <= most || most == 0 ? width : most;
}

mst_status mst_mm_plan(mst_matmul *self)
{
    static const bool keeps[][2] = {{true, true}, {false, true}, {true, false}, {false, false}};
    mst_matmul_plan *plan = &self->plan;
    const mst_matmul_options *o = &self->o;
    uint64_t m = self->a.rows, n = self->b.cols, k = self->a.cols;
    mst_layout *l = &plan->layout, other;
    uint64_t block = o->block > 0 ? o->block : PANEL;
    bool verify = o->what == MST_MATMUL_VERIFY, check = o->check || verify, found = false;
    mst_layout_init(l, o->placement, m, n, k, block, (uint32_t)self->size, o->grid);
    if (o->placement == MST_PLACEMENT_TOGETHER)
        mst_layout_init(l, o->placement, m, n, k, panel_width(self, l), (uint32_t)self->size, o->grid);
    else if (l->n_rows > ROUND_ROBIN_BLOCKS_MAX || l->n_cols > ROUND_ROBIN_BLOCKS_MAX)
        return mst_fail(MST_EUSAGE,
                        "--placement round-robin with %u x %u blocks: at most %d per side; use a larger "
                        "--block",
                        l->n_rows, l->n_cols, ROUND_ROBIN_BLOCKS_MAX);
    TRY(mst_mm_plan_limit(self));
    plan->row_passes = plan->col_passes = 1;
    plan->flops = 2.0 * (double)m * (double)n * (double)k;
    for (unsigned i = verify ? 3 : 0; i < 4 && !found; i++) {
        plan->keeps_a = keeps[i][0];
        plan->keeps_b = keeps[i][1];
        found = plan_fits(plan, check);
    }
    while (!found && o->placement == MST_PLACEMENT_TOGETHER && plan_divide(plan, o->block == 0, o))
        found = plan_fits(plan, check);
    if (!found)
        return plan_refuse(self, plan);
    plan->moved = verify ? 0 : mst_layout_moved(l, plan->col_passes, plan->row_passes);
    uint64_t dealt = l->block;
    while (mst_ceil_div(m, dealt) > ROUND_ROBIN_BLOCKS_MAX || mst_ceil_div(n, dealt) > ROUND_ROBIN_BLOCKS_MAX)
        dealt *= 2;
    mst_layout_init(&other, MST_PLACEMENT_ROUND_ROBIN, m, n, k, dealt, (uint32_t)self->size, o->grid);
    plan->moved_round_robin = verify ? 0 : mst_layout_moved(&other, 1, 1);
    return MST_OK;
}
