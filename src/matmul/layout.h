/* The layout of A, B and C over ranks: owners of blocks, ranks that need them, and the bytes that move.
 *
 * C (m x n) is split into n_rows x n_cols blocks, the k dimension into n_panels panels. In step p the panel
 * of A (one piece per block row) and the panel of B (one piece per block column) go to the ranks that own a
 * block of C in that row or column, which multiply them.
 *
 * together: the ranks are a grid of p x q, C has one block per rank, and a piece lies on one of the ranks
 * that need it: A's piece of panel p in block row i on rank (i, p mod q), B's in block column j on
 * (p mod p_rows, j). round-robin: blocks of block x block, each assigned to the next rank in order of their
 * numbers, for A, B and C independently: a layout that ignores which factors meet.
 *
 * All functions are pure. */
#ifndef MST_MATMUL_LAYOUT_H
#define MST_MATMUL_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

typedef enum mst_matmul_placement { MST_PLACEMENT_TOGETHER, MST_PLACEMENT_ROUND_ROBIN } mst_matmul_placement;

typedef struct mst_layout {
    mst_matmul_placement placement;
    uint64_t m, n, k;
    uint64_t block;   /* width of a panel; sides of blocks with round-robin */
    uint32_t size;    /* ranks */
    uint32_t grid[2]; /* together: rows and columns of ranks */
    uint32_t n_rows, n_cols, n_panels;
} mst_layout;

typedef struct mst_index_range {
    uint64_t first, n;
} mst_index_range;

static inline uint64_t mst_ceil_div(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

/* grid {0, 0}: the one that moves the fewest bytes. */
void mst_layout_init(mst_layout *self, mst_matmul_placement placement, uint64_t m, uint64_t n, uint64_t k,
                     uint64_t block, uint32_t size, const uint32_t grid[2]);

mst_index_range mst_layout_row(const mst_layout *self, uint32_t i);
mst_index_range mst_layout_col(const mst_layout *self, uint32_t j);
mst_index_range mst_layout_panel(const mst_layout *self, uint32_t p);

uint32_t mst_layout_owner_a(const mst_layout *self, uint32_t i, uint32_t p);
uint32_t mst_layout_owner_b(const mst_layout *self, uint32_t p, uint32_t j);
uint32_t mst_layout_owner_c(const mst_layout *self, uint32_t i, uint32_t j);
/* Whether the rank owns a block of C in block row i, or column j. */
bool mst_layout_needs_a(const mst_layout *self, uint32_t rank, uint32_t i);
bool mst_layout_needs_b(const mst_layout *self, uint32_t rank, uint32_t j);

/* Bytes that move between ranks when A is sent times_a times and B times_b times. */
uint64_t mst_layout_moved(const mst_layout *self, uint64_t times_a, uint64_t times_b);

/* Part `part` of n_parts of a range. */
mst_index_range mst_index_range_divide(mst_index_range whole, uint64_t part, uint64_t n_parts);

#endif
