/* Picks the kernels of an instruction set; contract in mm_kernels.h. */
#include "matmul/mm_kernels.h"

extern const mst_mm_kernels mst_mm_kernels_portable;
#ifdef __x86_64__
extern const mst_mm_kernels mst_mm_kernels_avx2, mst_mm_kernels_avx512;
#endif

const mst_mm_kernels *mst_mm_kernels_get(mst_isa isa)
{
    switch (isa) {
#ifdef __x86_64__
    case MST_ISA_AVX2:
        return &mst_mm_kernels_avx2;
    case MST_ISA_AVX512:
        return &mst_mm_kernels_avx512;
#endif
    default:
        return &mst_mm_kernels_portable;
    }
}
