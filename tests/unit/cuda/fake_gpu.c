/* A GPU plug-in without GPU code, for tests of the loader: FAKE_ABI is the version of its table, FAKE_GPUS
 * the number of its devices (0: no driver). With FAKE_SPARSE it trains sparse models (fake_sparse.c), with
 * FAKE_NETS nets (fake_net.c), otherwise nothing. */
#include <stdio.h>
#include <stdlib.h>

#include "cuda/cuda.h"
#include "cuda/cuda_net.h"
#include "cuda/cuda_sparse.h"

extern const mst_cuda_host *mst_cuda_plugin_host;
extern const mst_cuda_ops mst_cuda_plugin;
extern const mst_cuda_net_ops mst_cuda_fake_nets; /* fake_net.c */
__attribute__((visibility("default"))) const mst_cuda_host *mst_cuda_plugin_host;

static mst_status fake_devices(uint32_t *n)
{
    if (FAKE_GPUS == 0)
        return mst_cuda_plugin_host->fail(MST_EUNSUPPORTED, "there is no GPU: this is a fake");
    *n = FAKE_GPUS;
    return MST_OK;
}

static mst_status fake_device(uint32_t i, mst_cuda_device *out)
{
    *out = (mst_cuda_device){
        .name = "Fake", .major = 9, .minor = i, .n_processors = 4, .memory_bytes = 1u << 30};
    return MST_OK;
}

static void fake_version(char *out, size_t size)
{
    snprintf(out, size, "fake CUDA 1.0");
}

static mst_status fake_host_alloc(size_t bytes, void **out)
{
    *out = malloc(bytes);
    return *out != NULL ? MST_OK : mst_cuda_plugin_host->fail(MST_ENOMEM, "no memory is left");
}

__attribute__((visibility("default"))) const mst_cuda_ops mst_cuda_plugin = {
    .abi = FAKE_ABI,
    .devices = fake_devices,
    .device = fake_device,
    .version = fake_version,
    .host_alloc = fake_host_alloc,
    .host_free = free,
#ifdef FAKE_NETS
    .net = &mst_cuda_fake_nets,
#endif
#ifdef FAKE_SPARSE
    .sparse = &mst_cuda_sparse_table,
#endif
};
