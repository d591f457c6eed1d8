/* Kernels of matmul for any machine; see mm_kernels_impl.h. */
#define LANES  4
#define MM_ISA MST_ISA_PORTABLE
#define MM_SET mst_mm_kernels_portable
#include "matmul/mm_kernels_impl.h"
