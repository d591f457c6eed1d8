/* Tile kernels for AVX-512: 16 images; see tile_kernels_impl.h. */
#ifdef __AVX512F__
#define LANES    16
#define TILE_ISA MST_ISA_AVX512
#define TILE_SET mst_tile_kernels_avx512
#include "model/tile_kernels_impl.h"
#endif
