/* Selects the kernels of an instruction set; contract in mm_kernels.h. */
#include "matmul/mm_kernels.h"

MST_ISA_TABLES(mst_mm_kernels)
