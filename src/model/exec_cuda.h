/* The executor of --device cuda. It is not in mst_executors: a device opens it, not a name. */
#ifndef MST_MODEL_EXEC_CUDA_H
#define MST_MODEL_EXEC_CUDA_H

#include "cuda/cuda.h"
#include "model/executor.h"

extern const mst_executor mst_executor_cuda; /* without `open` */

/* As mst_executor.open. */
mst_status mst_exec_cuda_open(const mst_cuda *gpu, const mst_chain *chain, const mst_kernels *kernels,
                              uint32_t max_rows, float pos_weight, bool training, mst_replica **out);

#endif
