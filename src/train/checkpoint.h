/* Checkpoints: everything a run needs to go on, in a folder that counts only once its manifest is there.
 *
 *   checkpoints/step-000000001000/part-00000.safetensors   tensors: views of the weights, optimizer state
 *   checkpoints/step-000000001000/manifest.json            written last: meta, and per part its size and
 * CRC-32C
 *
 * Tensors are named as their view ("weight", "bias"); optimizer state "optimizer.<slot>.<view>". A part may
 * hold a slice of a view: the manifest says which elements ("first", "count"), so that several writers
 * (servers) can each save their partitions and any number of readers can load them.
 *
 * Saving has two halves. `begin` copies the weights into files, i.e. into the page cache: training pauses
 * only for that copy, and no anonymous memory is needed. A background thread then syncs, checksums what must
 * be, writes the manifest, and removes old checkpoints. Runs of zeros become holes in the file. */
#ifndef MST_TRAIN_CHECKPOINT_H
#define MST_TRAIN_CHECKPOINT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"
#include "tensor/params.h"

/* What goes with the weights. */
typedef struct mst_checkpoint_meta {
    uint64_t step, rows;      /* done so far, over all epochs */
    uint64_t epoch, position; /* where the next row is: epoch number (0-based) and rows into it */
    double train_seconds, eval_seconds;
    json_t *model;     /* {"name", "features", "dense", "classes", "bias", ...}: must fit to load */
    json_t *optimizer; /* {"name", ...} */
    json_t *extra;     /* anything the loop wants back (best metric, patience, ...) */
} mst_checkpoint_meta;
void mst_checkpoint_meta_fini(mst_checkpoint_meta *meta); /* drops the references */

typedef struct mst_checkpointer mst_checkpointer;

/* keep: how many checkpoints stay (0: all). slot_names: names of params->slots, which must outlive self.
 * Starts the background thread. */
mst_status mst_checkpointer_new(const char *folder, uint32_t keep, const char *const *slot_names,
                                mst_checkpointer **out);
/* Copies params and meta; waits first for an earlier save still under way, and returns its failure, beginning
 * nothing, when nobody has heard of that. A failed save leaves what was there before it. May be called while
 * nobody writes w. */
mst_status mst_checkpointer_begin(mst_checkpointer *self, const mst_params *params,
                                  const mst_checkpoint_meta *meta);
/* Waits for the save under way and returns its outcome; *path (caller frees; the pointer may be NULL) is the
 * newest folder that self has finished, NULL when there is none. */
mst_status mst_checkpointer_wait(mst_checkpointer *self, char **path);
void mst_checkpointer_destroy(
    mst_checkpointer *self); /* NULL-safe; waits; an unfinished save leaves no manifest */

/* Finds what a user means: a checkpoint folder, a checkpoints/ folder or a run folder (the newest complete
 * one). *out is the caller's to free. MST_EINPUT when there is none. */
mst_status mst_checkpoint_find(const char *path, char **out);

/* Reads the meta only. */
mst_status mst_checkpoint_read_meta(const char *checkpoint, mst_checkpoint_meta *meta);

/* Fills params (views declared and reserved by the caller). Every view must be there with the same size;
 * optimizer state only when want_slots (names must fit). Torn, truncated or foreign files are MST_EINPUT with
 * one sentence and leave params in an undefined state. Zero blocks are not written, so lazily reserved memory
 * stays untouched. */
mst_status mst_checkpoint_load(const char *checkpoint, mst_params *params, const char *const *slot_names,
                               bool want_slots);

#endif
