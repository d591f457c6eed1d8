/* The plug-in muster_cuda.so: its table (cuda.h), and the functions about devices. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

#include "cuda/cuda_net.h"
#include "cuda/cuda_sparse.h"
#include "cuda/device.cuh"

#define HUGE_PAGE ((size_t)2 << 20)

extern "C" {
__attribute__((visibility("default"))) const mst_cuda_host *mst_cuda_plugin_host;
}

static mst_status plugin_devices(uint32_t *n)
{
    int count = 0;
    cudaError_t code = cudaGetDeviceCount(&count);
    if (code == cudaErrorInsufficientDriver || code == cudaErrorNoDevice ||
        (code == cudaSuccess && count == 0)) {
        cudaGetLastError();
        return mst_cuda_plugin_host->fail(MST_EUNSUPPORTED, "there is no GPU: %s; use --device cpu",
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

mst_status mst_cuda_host_alloc(size_t bytes, void **out)
{
    size_t page = bytes < HUGE_PAGE ? 4096 : HUGE_PAGE, whole = (bytes + page - 1) / page * page;
    void *at = aligned_alloc(page, whole);
    if (at == NULL)
        return mst_cuda_plugin_host->fail(MST_ENOMEM, "no memory is left for %.1f MB that the GPU reads",
                                          (double)bytes * 1e-6);
    madvise(at, whole, MADV_HUGEPAGE);
    memset(at, 0, whole);
    cudaError_t code = cudaHostRegister(at, whole, cudaHostRegisterPortable);
    if (code != cudaSuccess) {
        free(at);
        return mst_cuda_failed(code, "cudaHostRegister");
    }
    *out = at;
    return MST_OK;
}

void mst_cuda_host_free(void *at)
{
    if (at == NULL)
        return;
    if (cudaHostUnregister(at) != cudaSuccess)
        cudaGetLastError();
    free(at);
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
    MST_CUDA_ABI,       plugin_devices, plugin_device, plugin_version, mst_cuda_host_alloc,
    mst_cuda_host_free, plugin_pin,     plugin_unpin,  &mst_cuda_nets, &mst_cuda_sparse_table,
};
}
