/* The choice of the grid of ranks; contract in grid.h. */
#include "matmul/grid.h"

void mst_grid_choose(uint64_t m, uint64_t n, uint32_t size, uint32_t grid[2])
{
    double least = -1;
    for (uint32_t p = 1; p <= size; p++) {
        uint32_t q = size / p; /* A moves to q - 1 ranks of a row, B to p - 1 of a column */
        double moved = (double)m * (double)(q - 1) + (double)n * (double)(p - 1);
        if (p * q != size || (least >= 0 && moved >= least))
            continue;
        least = moved;
        grid[0] = p;
        grid[1] = q;
    }
}
