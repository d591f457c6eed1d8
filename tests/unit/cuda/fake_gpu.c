/* A GPU plug-in without GPU code, for tests of the loader: FAKE_ABI is the version of its table, FAKE_GPUS
 * the number of its devices (0: no driver). With FAKE_SPARSE it trains sparse models (fake_sparse.c), with
 * FAKE_NETS nets (fake_net.c), otherwise nothing. */
#include <stdatomic.h>
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

/* Counts what is pinned; the process must not end with any. */
static atomic_int n_pinned;

static void fake_pin(uint32_t device, void *at, size_t bytes)
{
    (void)device;
    (void)at;
    (void)bytes;
    atomic_fetch_add(&n_pinned, 1);
}

static void fake_unpin(void *at)
{
    (void)at;
    atomic_fetch_sub(&n_pinned, 1);
}

static __attribute__((destructor)) void fake_end(void)
{
    if (atomic_load(&n_pinned) != 0)
        fprintf(stderr, "fake GPU: %d areas of memory are still pinned\n", atomic_load(&n_pinned));
}

__attribute__((visibility("default"))) const mst_cuda_ops mst_cuda_plugin = {
    .abi = FAKE_ABI,
    .devices = fake_devices,
    .device = fake_device,
    .version = fake_version,
    .host_alloc = fake_host_alloc,
    .host_free = free,
    .pin = fake_pin,
    .unpin = fake_unpin,
#ifdef FAKE_NETS
    .net = &mst_cuda_fake_nets,
#endif
#ifdef FAKE_SPARSE
    .sparse = &mst_cuda_sparse_table,
#endif
};
