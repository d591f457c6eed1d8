/* cuBLASLt and cuDNN at run time; contract in libraries.cuh. The dynamic linker finds them (LD_LIBRARY_PATH,
 * ldconfig, or a program that has loaded them); then the folders of a CUDA toolkit are tried. */
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "cuda/libraries.cuh"

static std::mutex lock; /* guards what follows */
static mst_cublas cublas;
static mst_cudnn cudnn;
static bool cublas_there, cudnn_there;

static void *library_open(const char *const *names)
{
    static const char *const folders[] = {"", "/usr/local/cuda/lib64/", "/usr/local/cuda/lib/",
                                          "/usr/lib/x86_64-linux-gnu/"};
    const char *own = getenv("MUSTER_CUDA_LIBRARIES"); /* folders separated by colons */
    char path[1024];
    for (; own != NULL && *own != '\0'; own += *own == ':') {
        int length = 0;
        while (own[length] != '\0' && own[length] != ':')
            length++;
        for (size_t i = 0; names[i] != NULL; i++) {
            snprintf(path, sizeof path, "%.*s/%s", length, own, names[i]);
            void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
            if (handle != NULL)
                return handle;
        }
        own += length;
    }
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++)
        for (size_t i = 0; names[i] != NULL; i++) {
            snprintf(path, sizeof path, "%s%s", folders[f], names[i]);
            void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
            if (handle != NULL)
                return handle;
        }
    return NULL;
}

/* Finds a function of the library; false: it is missing. */
#define FIND(field, name) ((field) = (decltype(field))dlsym(handle, name)) != NULL

static bool cublas_find(void *handle, mst_cublas *c)
{
    return FIND(c->create, "cublasLtCreate") && FIND(c->destroy, "cublasLtDestroy") &&
           FIND(c->desc_create, "cublasLtMatmulDescCreate") &&
           FIND(c->desc_destroy, "cublasLtMatmulDescDestroy") &&
           FIND(c->desc_set, "cublasLtMatmulDescSetAttribute") &&
           FIND(c->layout_create, "cublasLtMatrixLayoutCreate") &&
           FIND(c->layout_destroy, "cublasLtMatrixLayoutDestroy") &&
           FIND(c->preference_create, "cublasLtMatmulPreferenceCreate") &&
           FIND(c->preference_destroy, "cublasLtMatmulPreferenceDestroy") &&
           FIND(c->preference_set, "cublasLtMatmulPreferenceSetAttribute") &&
           FIND(c->heuristic, "cublasLtMatmulAlgoGetHeuristic") && FIND(c->matmul, "cublasLtMatmul");
}

static bool cudnn_find(void *handle, mst_cudnn *c)
{
    return FIND(c->create, "cudnnCreate") && FIND(c->destroy, "cudnnDestroy") &&
           FIND(c->set_stream, "cudnnSetStream") && FIND(c->error, "cudnnGetErrorString") &&
           FIND(c->make, "cudnnBackendCreateDescriptor") && FIND(c->drop, "cudnnBackendDestroyDescriptor") &&
           FIND(c->set, "cudnnBackendSetAttribute") && FIND(c->get, "cudnnBackendGetAttribute") &&
           FIND(c->finalize, "cudnnBackendFinalize") && FIND(c->execute, "cudnnBackendExecute");
}

static mst_status library_missing(const char *name)
{
    return mst_cuda_plugin_host->fail(MST_EUNSUPPORTED,
                                      "--device cuda needs %s, which cannot be loaded; name its folder in "
                                      "MUSTER_CUDA_LIBRARIES or LD_LIBRARY_PATH, or use --device cpu",
                                      name);
}

mst_status mst_cublas_load(const mst_cublas **out)
{
    static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", NULL};
    std::lock_guard<std::mutex> guard(lock);
    if (!cublas_there) {
        void *handle = library_open(names);
        if (handle == NULL || !cublas_find(handle, &cublas))
            return library_missing("cuBLASLt (libcublasLt.so)");
        cublas_there = true;
    }
    *out = &cublas;
    return MST_OK;
}

mst_status mst_cudnn_load(const mst_cudnn **out)
{
    static const char *const names[] = {"libcudnn.so.9", "libcudnn.so", NULL};
    static const char *const parts[] = {"libcudnn_graph.so.9", "libcudnn_graph.so", NULL};
    std::lock_guard<std::mutex> guard(lock);
    if (!cudnn_there) {
        void *handle = library_open(names);
        if (handle != NULL && !cudnn_find(handle, &cudnn)) /* the loader stub alone */
            handle = library_open(parts);
        if (handle == NULL || !cudnn_find(handle, &cudnn))
            return library_missing("cuDNN 9 (libcudnn.so.9)");
        cudnn_there = true;
    }
    *out = &cudnn;
    return MST_OK;
}
