/* The functions of cuBLASLt and cuDNN that the plug-in calls, loaded at run time: a host without them still
 * loads the plug-in. */
#ifndef MST_CUDA_LIBRARIES_CUH
#define MST_CUDA_LIBRARIES_CUH

#include <cublasLt.h>
#include <cudnn.h>

#include "cuda/device.cuh"

typedef struct mst_cublas {
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtDestroy) destroy;
    decltype(&cublasLtMatmulDescCreate) desc_create;
    decltype(&cublasLtMatmulDescDestroy) desc_destroy;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set;
    decltype(&cublasLtMatrixLayoutCreate) layout_create;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
    decltype(&cublasLtMatmulPreferenceCreate) preference_create;
    decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
    decltype(&cublasLtMatmul) matmul;
} mst_cublas;

typedef struct mst_cudnn {
    decltype(&cudnnCreate) create;
    decltype(&cudnnDestroy) destroy;
    decltype(&cudnnSetStream) set_stream;
    decltype(&cudnnGetErrorString) error;
    decltype(&cudnnBackendCreateDescriptor) make;
    decltype(&cudnnBackendDestroyDescriptor) drop;
    decltype(&cudnnBackendSetAttribute) set;
    decltype(&cudnnBackendGetAttribute) get;
    decltype(&cudnnBackendFinalize) finalize;
    decltype(&cudnnBackendExecute) execute;
} mst_cudnn;

/* Load the library at the first call; MST_EUNSUPPORTED, naming it, if it is missing. Any thread. */
mst_status mst_cublas_load(const mst_cublas **out);
mst_status mst_cudnn_load(const mst_cudnn **out);

#endif
