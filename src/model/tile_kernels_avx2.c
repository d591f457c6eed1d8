/* Tile kernels for AVX2 with FMA: 8 images; see tile_kernels_impl.h. */
#ifdef __AVX2__
#define LANES    8
#define TILE_ISA MST_ISA_AVX2
#define TILE_SET mst_tile_kernels_avx2
#include "model/tile_kernels_impl.h"
#endif
