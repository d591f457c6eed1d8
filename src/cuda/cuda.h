/* GPUs behind a table of functions, which the plug-in muster_cuda.so exports; muster itself is built without
 * CUDA, and loads the plug-in when --device asks for a GPU.
 *
 * What crosses the table: plain numbers, pointers to host memory, and opaque handles. No type of CUDA does.
 * The table has a section for nets (cuda_net.h) and one for sparse models (cuda_sparse.h). In both, weights,
 * gradients and optimizer state live on the GPU from open to close; per step only rows and a few numbers of
 * the step go there. The host reads weights and state back for evaluations, checkpoints and the end, in the
 * layout of the parameter store, so that files do not depend on the device.
 *
 * A handle belongs to one device, which its open names. Calls on one handle come from one thread at a time;
 * different handles may be used by different threads. Functions that enqueue work say so; the others return
 * when their work is done. Failures are recorded with `fail` of the host table, like every failure of muster.
 *
 * The plug-in is searched in the folder of this program, then where plug-ins are installed; MUSTER_PLUGINS
 * names another folder (as for MPI). */
#ifndef MST_CUDA_CUDA_H
#define MST_CUDA_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MST_CUDA_ABI         6 /* of the table below and its sections; a plug-in with another one is refused */
#define MST_CUDA_SYMBOL      "mst_cuda_plugin"      /* of type mst_cuda_ops */
#define MST_CUDA_HOST_SYMBOL "mst_cuda_plugin_host" /* of type const mst_cuda_host *, set by the loader */

typedef struct mst_cuda_device {
    char name[64];
    uint32_t major, minor; /* compute capability */
    uint32_t n_processors; /* multiprocessors */
    uint64_t memory_bytes;
} mst_cuda_device;

/* --precision: of products in nets; sums, weights and state are always fp32. */
typedef enum mst_cuda_precision {
    MST_CUDA_FP32,
    MST_CUDA_TF32,
    MST_CUDA_BF16,
} mst_cuda_precision;

typedef struct mst_cuda_ops {
    uint32_t abi;
    /* GPUs of this host that this build can use. MST_EUNSUPPORTED: no driver, or no GPU. */
    mst_status (*devices)(uint32_t *n);
    mst_status (*device)(uint32_t i, mst_cuda_device *out);
    /* "CUDA 13.0, driver 13.0", and the libraries that it finds. */
    void (*version)(char *out, size_t size);
    /* Host memory that the GPU copies from at full speed. */
    mst_status (*host_alloc)(size_t bytes, void **out);
    void (*host_free)(void *at); /* NULL-safe */
    /* The same for memory that exists, until unpin, which comes before it is freed. Where it cannot be
     * pinned, copies are slower, and that is all. */
    void (*pin)(uint32_t device, void *at, size_t bytes);
    void (*unpin)(void *at);
    const struct mst_cuda_net_ops *net;
    const struct mst_cuda_sparse_ops *sparse; /* NULL: not in this build */
} mst_cuda_ops;

/* The functions of muster that the plug-in calls. */
typedef struct mst_cuda_host {
    mst_status (*fail)(mst_status code, const char *format, ...) __attribute__((format(printf, 2, 3)));
} mst_cuda_host;

/* A chosen GPU; ops NULL: the CPU. */
typedef struct mst_cuda {
    const mst_cuda_ops *ops;
    uint32_t device;
    mst_cuda_precision precision;
} mst_cuda;

/* The meaning of --device: "cpu", "cuda", "cuda:N", or "auto": as "cuda", or the CPU where there is no
 * plug-in or no GPU. NULL is cpu. Of n GPUs "cuda" is GPU (turn mod n); turn: of this process among those of
 * the job on this host. MST_EUSAGE: another text, or no GPU N. MST_EUNSUPPORTED: no plug-in, no driver or no
 * GPU. The plug-in stays loaded until the process ends. Any thread. */
mst_status mst_cuda_choose(const char *device, uint32_t turn, mst_cuda *out);

/* Loads the plug-in, if it is not loaded. MST_EUNSUPPORTED: there is none, or it belongs to another version.
 */
mst_status mst_cuda_load(const mst_cuda_ops **out);

/* For `list` and `doctor`: the plug-in's version, or the reason why there is none; "NVIDIA H200, 132
 * multiprocessors, ..." */
void mst_cuda_describe(char *out, size_t size);
void mst_cuda_device_text(const mst_cuda_device *device, char *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif
