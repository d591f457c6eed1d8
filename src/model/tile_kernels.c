/* Selects the kernels of an instruction set; contract in tile_kernels.h. */
#include "model/tile_kernels.h"

MST_ISA_TABLES(mst_tile_kernels)
