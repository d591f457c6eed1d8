/* Shared by the files of this folder; no other file includes this. */
#ifndef MST_RUN_CHECKPOINT_IMPL_H
#define MST_RUN_CHECKPOINT_IMPL_H

#include "run/checkpoint.h"
#include "run/safetensors.h"

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

/* The step-* folders of a folder in ascending order of steps; none if the folder does not exist. *out is the
 * caller's to mst_free. */
mst_status mst_checkpoint_list(const char *folder, mst_checkpoint_entry **out, size_t *n);
/* The newest complete checkpoint of a folder before step `below`. *path is the caller's to free; it and *step
 * stay as they are if there is none. */
mst_status mst_checkpoint_newest(const char *folder, uint64_t below, char **path, uint64_t *step);

/* Tensor name of a view in slot - 1, or of its weights (slot 0). False if it does not fit. */
bool mst_checkpoint_tensor_name(char *out, uint32_t slot, const mst_view *view);
/* MST_EUSAGE if a view has state without names. */
mst_status mst_checkpoint_check_names(const char *path, const mst_params *params);

/* ---- the files of a save (checkpoint_parts.c) ---- */

/* One part file: the tensors of a server. */
typedef struct mst_save_file {
    uint32_t server;
    char *path;
    const char *name; /* in the folder: the end of path */
    mst_safetensors *writer;
    size_t n_tensors;
} mst_save_file;

/* Floats [first, first + count) of the weights or a slot, as a tensor of a file. */
typedef struct mst_save_slice {
    uint32_t slot, view; /* slot 0: the weights */
    uint64_t first, count;
    uint64_t given; /* floats that have arrived */
    size_t file, tensor;
} mst_save_slice;

typedef struct mst_save {
    uint64_t step;
    bool fresh;    /* the folder holds no complete checkpoint yet */
    char *path;    /* the step's folder */
    uint64_t size; /* of the flat vector */
    uint32_t n_slots, n_parts;
    mst_part_spec *parts; /* ascending */
    mst_save_file *files; /* ascending by server */
    size_t n_files;
    mst_save_slice *slices; /* by slot, view and position */
    size_t n_slices;
    json_t *manifest; /* complete except for sizes and checksums of the files */
} mst_save;

/* Creates the folder of the step and its files, under names that no manifest mentions. After a failure call
 * undo. */
mst_status mst_save_open(mst_save *save, const char *folder, const mst_params *params,
                         const mst_checkpoint_meta *meta, const mst_part_spec *parts, uint32_t n);
mst_status mst_save_write(mst_save *save, uint32_t slot, uint64_t first, uint64_t count, const float *data,
                          bool lazy);
mst_status mst_save_check(const mst_save *save); /* fails if floats are missing */
/* Makes everything durable: files, folder, and last the manifest. folder: that of the steps. */
mst_status mst_save_finish(mst_save *save, const char *folder);
/* Restores the earlier state, keeps the calling thread's error, and returns code. */
mst_status mst_save_undo(mst_save *save, mst_status code);
void mst_save_fini(mst_save *save); /* the files stay */

#endif
