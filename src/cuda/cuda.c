/* The loader of the GPU plug-in; contract in cuda.h.
 *
 * Invariant: a process loads the plug-in at most once, under `lock`, and never unloads it: CUDA's own threads
 * and exit handlers may run its code until the end. */
#include "cuda/cuda.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/plugin_path.h"

#define CUDA_PLUGIN "muster_cuda.so"

static const mst_cuda_host host = {.fail = mst_fail};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static const mst_cuda_ops *loaded;

static mst_status cuda_load(const mst_cuda_ops **out)
{
    char path[1100];
    if (!mst_plugin_find(CUDA_PLUGIN, path, sizeof path))
        return mst_fail(MST_EUNSUPPORTED, "there is no GPU plug-in (" CUDA_PLUGIN
                                          "): build it with `make cuda`, name its folder "
                                          "in MUSTER_PLUGINS, or use --device cpu");
    static const mst_plugin_kind kind = {.symbol = MST_CUDA_SYMBOL,
                                         .host_symbol = MST_CUDA_HOST_SYMBOL,
                                         .host = &host,
                                         .abi = MST_CUDA_ABI,
                                         .renewal = "build it again with `make cuda`"};
    void *handle; /* never closed */
    const void *table;
    TRY(mst_plugin_load(&kind, path, RTLD_NOW | RTLD_LOCAL, &handle, &table));
    *out = table;
    return MST_OK;
}

mst_status mst_cuda_load(const mst_cuda_ops **out)
{
    mst_status st = MST_OK;
    pthread_mutex_lock(&lock);
    if (loaded == NULL)
        st = cuda_load(&loaded);
    if (st == MST_OK)
        *out = loaded;
    pthread_mutex_unlock(&lock);
    return st;
}

/* The number behind "cuda:"; false: it is none. */
static bool cuda_number(const char *text, uint32_t *out)
{
    char *end;
    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    unsigned long value = strtoul(text, &end, 10);
    *out = (uint32_t)value;
    return errno == 0 && *end == '\0' && value < 1024;
}

/* The GPU of that number, or, if `any`, of the number's remainder. */
static mst_status cuda_open(uint32_t number, bool any, mst_cuda *out)
{
    const mst_cuda_ops *ops;
    uint32_t n = 0;
    TRY(mst_cuda_load(&ops));
    TRY(ops->devices(&n));
    number = any && n > 0 ? number % n : number;
    if (number >= n)
        return mst_fail(MST_EUSAGE, "--device cuda:%u: this host has %u GPU%s, numbered from 0", number, n,
                        n == 1 ? "" : "s");
    out->ops = ops;
    out->device = number;
    return MST_OK;
}

mst_status mst_cuda_choose(const char *device, uint32_t turn, mst_cuda *out)
{
    uint32_t number = 0;
    *out = (mst_cuda){0};
    if (device == NULL || strcmp(device, "cpu") == 0)
        return MST_OK;
    if (strcmp(device, "auto") == 0) {
        if (cuda_open(turn, true, out) != MST_OK)
            *out = (mst_cuda){0};
        return MST_OK;
    }
    if (strcmp(device, "cuda") == 0)
        return cuda_open(turn, true, out);
    if (strncmp(device, "cuda:", 5) != 0 || !cuda_number(device + 5, &number))
        return mst_fail(MST_EUSAGE, "--device %s: must be auto, cpu, cuda or cuda:N", device);
    return cuda_open(number, false, out);
}

void mst_cuda_describe(char *out, size_t size)
{
    const mst_cuda_ops *ops;
    char version[256];
    uint32_t n = 0;
    if (mst_cuda_load(&ops) != MST_OK) {
        snprintf(out, size, "%s", mst_error_text());
        return;
    }
    ops->version(version, sizeof version);
    if (ops->devices(&n) != MST_OK)
        snprintf(out, size, "%s; %s", version, mst_error_text());
    else
        snprintf(out, size, "%s", version);
}

void mst_cuda_device_text(const mst_cuda_device *device, char *out, size_t size)
{
    snprintf(out, size, "%s, compute capability %u.%u, %u multiprocessors, %.1f GiB", device->name,
             device->major, device->minor, device->n_processors, (double)device->memory_bytes / 0x1p30);
}
