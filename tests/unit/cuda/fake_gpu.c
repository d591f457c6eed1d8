/* A GPU plug-in without GPU code, for tests of the loader: FAKE_ABI is the version of its table, FAKE_GPUS
 * the number of its devices (0: no driver). It trains nothing. */
#include <stdio.h>

#include "cuda/cuda.h"

extern const mst_cuda_host *mst_cuda_plugin_host;
extern const mst_cuda_ops mst_cuda_plugin;
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

__attribute__((visibility("default"))) const mst_cuda_ops mst_cuda_plugin = {
    .abi = FAKE_ABI,
    .devices = fake_devices,
    .device = fake_device,
    .version = fake_version,
};
