/* Kernels for any machine: 16-byte vectors, which are SSE2 on x86-64 and NEON on arm64; see kernels_impl.h.
 */
#define LANES        4
#define KERNELS_ISA  MST_ISA_PORTABLE
#define KERNELS_NAME mst_kernels_portable
#include "tensor/kernels_impl.h"
