/* Picks the tile kernels of an instruction set; contract in tile_kernels.h. */
#include "model/tile_kernels.h"

extern const mst_tile_kernels mst_tile_kernels_portable;
#ifdef __x86_64__
extern const mst_tile_kernels mst_tile_kernels_avx2, mst_tile_kernels_avx512;
#endif

const mst_tile_kernels *mst_tile_kernels_get(mst_isa isa)
{
    switch (isa) {
#ifdef __x86_64__
    case MST_ISA_AVX2:
        return &mst_tile_kernels_avx2;
    case MST_ISA_AVX512:
        return &mst_tile_kernels_avx512;
#endif
    default:
        return &mst_tile_kernels_portable;
    }
}
