/* Tile kernels for any machine: 4 images, 16-byte vectors; see tile_kernels_impl.h. */
#define LANES    4
#define TILE_ISA MST_ISA_PORTABLE
#define TILE_SET mst_tile_kernels_portable
#include "model/tile_kernels_impl.h"
