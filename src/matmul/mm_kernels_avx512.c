/* Kernels of matmul for AVX-512; see mm_kernels_impl.h. */
#ifdef __AVX512F__
#define LANES  16
#define MM_ISA MST_ISA_AVX512
#define MM_SET mst_mm_kernels_avx512
#include "matmul/mm_kernels_impl.h"
#endif
