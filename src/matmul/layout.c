/* Owners and needs; contract in layout.h. */
#include "matmul/layout.h"

#include "matmul/grid.h"

mst_index_range mst_index_range_divide(mst_index_range whole, uint64_t part, uint64_t n_parts)
{
    uint64_t first = (uint64_t)((__uint128_t)whole.n * part / n_parts);
    uint64_t last = (uint64_t)((__uint128_t)whole.n * (part + 1) / n_parts);
    return (mst_index_range){whole.first + first, last - first};
}

void mst_layout_init(mst_layout *self, mst_matmul_placement placement, uint64_t m, uint64_t n, uint64_t k,
                     uint64_t block, uint32_t size, const uint32_t grid[2])
{
    *self = (mst_layout){.placement = placement, .m = m, .n = n, .k = k, .block = block, .size = size};
    self->n_panels = (uint32_t)mst_ceil_div(k, block);
    if (placement == MST_PLACEMENT_ROUND_ROBIN) {
        self->n_rows = (uint32_t)mst_ceil_div(m, block);
        self->n_cols = (uint32_t)mst_ceil_div(n, block);
        return;
    }
    self->grid[0] = grid[0];
    self->grid[1] = grid[1];
    if (grid[0] == 0)
        mst_grid_choose(m, n, size, self->grid);
    self->n_rows = self->grid[0];
    self->n_cols = self->grid[1];
}

static mst_index_range block_of(uint64_t total, uint64_t block, uint32_t i)
{
    uint64_t first = i * block;
    return (mst_index_range){first, first + block <= total ? block : total - first};
}

mst_index_range mst_layout_row(const mst_layout *self, uint32_t i)
{
    if (self->placement == MST_PLACEMENT_ROUND_ROBIN)
        return block_of(self->m, self->block, i);
    return mst_index_range_divide((mst_index_range){0, self->m}, i, self->n_rows);
}

mst_index_range mst_layout_col(const mst_layout *self, uint32_t j)
{
    if (self->placement == MST_PLACEMENT_ROUND_ROBIN)
        return block_of(self->n, self->block, j);
    return mst_index_range_divide((mst_index_range){0, self->n}, j, self->n_cols);
}

mst_index_range mst_layout_panel(const mst_layout *self, uint32_t p)
{
    return block_of(self->k, self->block, p);
}

uint32_t mst_layout_owner_a(const mst_layout *self, uint32_t i, uint32_t p)
{
    if (self->placement == MST_PLACEMENT_ROUND_ROBIN)
        return (uint32_t)(((uint64_t)i * self->n_panels + p) % self->size);
    return i * self->grid[1] + p % self->grid[1];
}

uint32_t mst_layout_owner_b(const mst_layout *self, uint32_t p, uint32_t j)
{
    if (self->placement == MST_PLACEMENT_ROUND_ROBIN)
        return (uint32_t)(((uint64_t)p * self->n_cols + j) % self->size);
    return p % self->grid[0] * self->grid[1] + j;
}

uint32_t mst_layout_owner_c(const mst_layout *self, uint32_t i, uint32_t j)
{
    if (self->placement == MST_PLACEMENT_ROUND_ROBIN)
        return (uint32_t)(((uint64_t)i * self->n_cols + j) % self->size);
    return i * self->grid[1] + j;
}

bool mst_layout_needs_a(const mst_layout *self, uint32_t rank, uint32_t i)
{
    if (self->placement == MST_PLACEMENT_TOGETHER)
        return rank / self->grid[1] == i;
    uint64_t first = (uint64_t)i * self->n_cols % self->size;
    return (rank + self->size - first) % self->size < self->n_cols;
}

bool mst_layout_needs_b(const mst_layout *self, uint32_t rank, uint32_t j)
{
    if (self->placement == MST_PLACEMENT_TOGETHER)
        return rank % self->grid[1] == j;
    for (uint32_t i = 0; i < self->n_rows && i < self->size; i++)
        if (mst_layout_owner_c(self, i, j) == rank)
            return true;
    return false;
}

uint64_t mst_layout_moved(const mst_layout *self, uint64_t times_a, uint64_t times_b)
{
    uint64_t a = 0, b = 0;
    for (uint32_t i = 0; i < self->n_rows; i++) {
        uint64_t rows = mst_layout_row(self, i).n, needing = 0;
        for (uint32_t r = 0; r < self->size; r++)
            needing += mst_layout_needs_a(self, r, i);
        for (uint32_t p = 0; p < self->n_panels; p++)
            a += rows * mst_layout_panel(self, p).n *
                 (needing - mst_layout_needs_a(self, mst_layout_owner_a(self, i, p), i));
    }
    for (uint32_t j = 0; j < self->n_cols; j++) {
        uint64_t cols = mst_layout_col(self, j).n, needing = 0;
        for (uint32_t r = 0; r < self->size; r++)
            needing += mst_layout_needs_b(self, r, j);
        for (uint32_t p = 0; p < self->n_panels; p++)
            b += cols * mst_layout_panel(self, p).n *
                 (needing - mst_layout_needs_b(self, mst_layout_owner_b(self, p, j), j));
    }
    return (a * times_a + b * times_b) * sizeof(float);
}
