/* Weights from a safetensors file of another program, such as PyTorch: a tensor per view, with its name and
 * shape; other tensors are ignored. */
#ifndef MST_RUN_TENSORS_LOAD_H
#define MST_RUN_TENSORS_LOAD_H

#include <stdbool.h>

#include "base/status.h"
#include "tensor/params.h"

/* Whether a path names such a file rather than a checkpoint. */
bool mst_tensors_is_file(const char *path);

/* MST_EINPUT for a missing tensor, another shape or another type than F32; weights read so far remain. */
mst_status mst_tensors_load(const char *path, mst_params *params);

#endif
