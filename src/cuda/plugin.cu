/* The plug-in muster_cuda.so: its table (cuda.h), and the functions about devices. */
#include <cstdio>
#include <cstring>

#include "cuda/cuda_net.h"
#include "cuda/cuda_sparse.h"
#include "cuda/device.cuh"

extern "C" {
__attribute__((visibility("default"))) const mst_cuda_host *mst_cuda_plugin_host;
}

static mst_status plugin_devices(uint32_t *n)
{
    int count = 0;
    cudaError_t code = cudaGetDeviceCount(&count);
    if (code == cudaErrorInsufficientDriver || code == cudaErrorNoDevice || (code == cudaSuccess && count == 0)) {
        cudaGetLastError();
        return mst_cuda_plugin_host->fail(MST_EUNSUPPORTED,
                                          "there is no GPU: %s; use --device cpu",
                                          code == cudaErrorInsufficientDriver
                                              ? "the NVIDIA driver is missing, or older than this plug-in"
                                              : "the NVIDIA driver finds none");
    }
    if (code != cudaSuccess)
        return mst_cuda_failed(code, "cudaGetDeviceCount");
    *n = (uint32_t)count;
    return MST_OK;
}

static mst_status plugin_device(uint32_t i, mst_cuda_device *out)
{
    cudaDeviceProp p;
    CUDA_TRY(cudaGetDeviceProperties(&p, (int)i));
    memset(out, 0, sizeof *out);
    snprintf(out->name, sizeof out->name, "%.63s", p.name);
    out->major = (uint32_t)p.major;
    out->minor = (uint32_t)p.minor;
    out->n_processors = (uint32_t)p.multiProcessorCount;
    out->memory_bytes = p.totalGlobalMem;
    return MST_OK;
}

static void plugin_version(char *out, size_t size)
{
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess)
        driver = 0;
    cudaGetLastError();
    if (driver == 0)
        snprintf(out, size, "CUDA %d.%d, no driver", CUDART_VERSION / 1000, CUDART_VERSION / 10 % 100);
    else
        snprintf(out, size, "CUDA %d.%d, driver for CUDA %d.%d", CUDART_VERSION / 1000,
                 CUDART_VERSION / 10 % 100, driver / 1000, driver / 10 % 100);
}

static mst_status plugin_host_alloc(size_t bytes, void **out)
{
    CUDA_TRY(cudaHostAlloc(out, bytes, cudaHostAllocPortable));
    return MST_OK;
}

static void plugin_host_free(void *at)
{
    if (at != NULL)
        cudaFreeHost(at);
}

static void plugin_pin(uint32_t device, void *at, size_t bytes)
{
    if (cudaSetDevice((int)device) != cudaSuccess ||
        cudaHostRegister(at, bytes, cudaHostRegisterPortable) != cudaSuccess)
        cudaGetLastError();
}

static void plugin_unpin(void *at)
{
    if (cudaHostUnregister(at) != cudaSuccess) /* it was not pinned */
        cudaGetLastError();
}

extern "C" {
extern const mst_cuda_net_ops mst_cuda_nets; /* net.cu */
__attribute__((visibility("default"))) extern const mst_cuda_ops mst_cuda_plugin;
const mst_cuda_ops mst_cuda_plugin = {
    MST_CUDA_ABI, plugin_devices, plugin_device,   plugin_version, plugin_host_alloc, plugin_host_free,
    plugin_pin,   plugin_unpin,   &mst_cuda_nets,
    &mst_cuda_sparse_table,
};
}
