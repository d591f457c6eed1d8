/* What checkpoint_save.c and checkpoint_load.c share; nobody else includes this. */
#ifndef MST_TRAIN_CHECKPOINT_IMPL_H
#define MST_TRAIN_CHECKPOINT_IMPL_H

#include "train/checkpoint.h"

#define CHECKPOINT_FORMAT       "muster-checkpoint"
#define CHECKPOINT_VERSION      1
#define CHECKPOINT_STEP_NAME    "step-%012llu"
#define CHECKPOINT_MANIFEST_MAX ((size_t)256 << 20)
#define CHECKPOINT_NAME_MAX     160 /* of a tensor, with its terminator: "optimizer.<slot>.<view>" */

/* A step-* folder. */
typedef struct mst_checkpoint_entry {
    uint64_t step;
    bool complete; /* has a manifest.json */
} mst_checkpoint_entry;

/* The step-* folders of a folder in ascending order of steps; none when the folder is not there. *out is the
 * caller's to mst_free. */
mst_status mst_checkpoint_list(const char *folder, mst_checkpoint_entry **out, size_t *n);

/* Tensor name of a view: slot NULL is the weights. False when it does not fit. */
bool mst_checkpoint_tensor_name(char *out, const char *slot, const char *view);

#endif
