/* The choice of the grid of ranks. */
#ifndef MST_MATMUL_GRID_H
#define MST_MATMUL_GRID_H

#include <stdint.h>

/* The rows and columns of `size` ranks that move the fewest bytes for an m x n product. */
void mst_grid_choose(uint64_t m, uint64_t n, uint32_t size, uint32_t grid[2]);

#endif
