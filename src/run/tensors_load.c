/* Weights from a safetensors file of another program; contract in tensors_load.h. */
#include "run/tensors_load.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "run/safetensors.h"

#define BLOCK (1u << 18) /* floats read at a time */

bool mst_tensors_is_file(const char *path)
{
    return mst_ends_with(path, ".safetensors") && !mst_path_is_folder(path);
}

static mst_status tensors_check_shape(const char *path, const mst_tensor *tensor, const mst_view *view)
{
    char has[120] = "", wants[120] = "";
    bool same = tensor->n_dims == view->n_dims;
    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        size_t n = strlen(has);
        snprintf(has + n, sizeof has - n, "%s%llu", i > 0 ? "x" : "", (unsigned long long)tensor->dims[i]);
        same = same && tensor->dims[i] == view->dims[i];
    }
    for (uint32_t i = 0; i < view->n_dims; i++) {
        size_t n = strlen(wants);
        snprintf(wants + n, sizeof wants - n, "%s%llu", i > 0 ? "x" : "", (unsigned long long)view->dims[i]);
    }
    return same ? MST_OK
                : mst_fail(MST_EINPUT, "%s: its tensor %s is %s, but the model's is %s", path, view->name,
                           has, wants);
}

mst_status mst_tensors_load(const char *path, mst_params *params)
{
    mst_safetensors *file = NULL;
    mst_status st;
    float *block = mst_alloc(BLOCK * sizeof *block);
    if (block == NULL)
        return mst_fail_memory();
    TRY_OUT(st, mst_safetensors_open(path, &file));
    for (uint32_t i = 0; i < params->n_views; i++) {
        const mst_view *view = &params->views[i];
        const mst_tensor *tensor = mst_safetensors_find(file, view->name);
        if (tensor == NULL) {
            st = mst_fail(
                MST_EINPUT,
                "%s has no tensor %s, which the model needs; rename the tensors as muster model show "
                "names the model's (docs/NETS.md)",
                path, view->name);
            goto out;
        }
        TRY_OUT(st, tensors_check_shape(path, tensor, view));
        for (uint64_t at = 0; at < view->size; at += BLOCK) {
            uint64_t n = view->size - at < BLOCK ? view->size - at : BLOCK;
            TRY_OUT(st, mst_safetensors_read_at(file, tensor, at, n, block, false));
            mst_params_write(params, 0, view->offset + at, n, block);
        }
    }
    st = MST_OK;
out:
    mst_safetensors_close(file);
    mst_free(block);
    return st;
}
