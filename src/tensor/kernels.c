/* Selects the kernels of an instruction set; contract in kernels.h. */
#include "tensor/kernels.h"

MST_ISA_TABLES(mst_kernels)
