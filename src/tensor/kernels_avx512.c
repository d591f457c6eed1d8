/* Kernels for AVX-512; see kernels_impl.h. */
#ifdef __AVX512F__
#define LANES        16
#define KERNELS_ISA  MST_ISA_AVX512
#define KERNELS_NAME mst_kernels_avx512
#include "tensor/kernels_impl.h"
#endif
