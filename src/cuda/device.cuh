/* Shared by the files of the plug-in: failures, the current device, sizes of launches. */
#ifndef MST_CUDA_DEVICE_CUH
#define MST_CUDA_DEVICE_CUH

#include <cuda_runtime.h>

#include "cuda/cuda.h"

extern "C" const mst_cuda_host *mst_cuda_plugin_host;

/* Records the failure of a call of CUDA. */
static inline mst_status mst_cuda_failed(cudaError_t code, const char *call)
{
    cudaGetLastError(); /* a failed launch or allocation is not reported again by the next call */
    return mst_cuda_plugin_host->fail(code == cudaErrorMemoryAllocation ? MST_ENOMEM : MST_EUNSUPPORTED,
                                      "the GPU failed in %s: %s", call, cudaGetErrorString(code));
}

/* Leaves the function with a status if the call of CUDA fails. */
#define CUDA_TRY(call)                                                                                       \
    do {                                                                                                     \
        cudaError_t cuda_code_ = (call);                                                                     \
        if (cuda_code_ != cudaSuccess)                                                                       \
            return mst_cuda_failed(cuda_code_, #call);                                                       \
    } while (0)

/* The same after a kernel was launched. */
#define CUDA_LAUNCHED(name)                                                                                  \
    do {                                                                                                     \
        cudaError_t cuda_code_ = cudaGetLastError();                                                         \
        if (cuda_code_ != cudaSuccess)                                                                       \
            return mst_cuda_failed(cuda_code_, "the launch of " name);                                       \
    } while (0)

/* Pinned memory, the same for all GPUs, in huge pages where the system gives them: cudaHostAlloc pins page by
 * page (2 instead of 5 GB/s). */
mst_status mst_cuda_host_alloc(size_t bytes, void **out);
void mst_cuda_host_free(void *at); /* NULL-safe */

/* Blocks of `threads` threads for n items, at most `most`: kernels loop over the rest. */
static inline unsigned mst_cuda_blocks(uint64_t n, unsigned threads, unsigned most)
{
    uint64_t blocks = (n + threads - 1) / threads;
    return blocks < 1 ? 1 : blocks < most ? (unsigned)blocks : most;
}

#endif
