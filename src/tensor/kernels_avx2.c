/* Kernels for AVX2 + FMA; see kernels_impl.h. */
#ifdef __AVX2__
#define LANES        8
#define KERNELS_ISA  MST_ISA_AVX2
#define KERNELS_NAME mst_kernels_avx2
#include "tensor/kernels_impl.h"
#endif
