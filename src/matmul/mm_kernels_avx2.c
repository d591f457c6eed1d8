/* Kernels of matmul for AVX2; see mm_kernels_impl.h. */
#ifdef __AVX2__
#define LANES  8
#define MM_ISA MST_ISA_AVX2
#define MM_SET mst_mm_kernels_avx2
#include "matmul/mm_kernels_impl.h"
#endif
