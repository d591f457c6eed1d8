/* Checkpoints: everything a run needs to go on, in a folder that counts only once its manifest is there.
 *
 *   checkpoints/step-000000001000/part-00000.safetensors   tensors: views of the weights, optimizer state
 *   checkpoints/step-000000001000/manifest.json            written last: meta, and per part its size and
 * CRC-32C
 *
 * Tensors are named as their view ("weight", "bias"); optimizer state "optimizer.<slot>.<view>". A part may
 * hold slices of a view: the manifest says which elements ("first", "count"), so that a store that is divided
 * among servers is saved in as many parts and loaded by any number of readers. Where a part holds several
 * slices of a tensor, they are called "weight[FIRST:END]" in its file, and the manifest says so ("tensor").
 *
 * Saving has two halves. The first brings the floats into files, i.e. into the page cache: from a whole store
 * at once (`begin`: training pauses only for that copy, and no anonymous memory is needed) or piece by piece
 * as they arrive from servers (`begin_parts`, `write`, `complete`). A background thread then syncs,
 * checksums, writes the manifest, and removes old checkpoints. Runs of zeros become holes in the files. */
#ifndef MST_RUN_CHECKPOINT_H
#define MST_RUN_CHECKPOINT_H

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

/* ---- saving ---- */

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

/* A stretch of the flat vector and the server that has it: stretches of one server share a file,
 * part-<server>.safetensors. */
typedef struct mst_part_spec {
    uint64_t first, count;
    uint32_t server; /* below MST_PART_SERVERS */
} mst_part_spec;
#define MST_PART_SERVERS 100000

/* Begins a save whose floats come in pieces. Of params only the views and n_slots are looked at. The
 * stretches, in any order, must cover [0, params->size) exactly (MST_EUSAGE otherwise). Waits and fails as
 * `begin` does. One of complete, abandon and destroy ends it; meanwhile no other save begins. */
mst_status mst_checkpointer_begin_parts(mst_checkpointer *self, const mst_params *params,
                                        const mst_checkpoint_meta *meta, const mst_part_spec *parts,
                                        uint32_t n);
/* Floats [first, first + count) of the weights (slot 0) or of state vector slot - 1, in any order and size of
 * pieces, across stretches too; those that no view has are dropped. lazy: see sparse_file.h; false is always
 * right. A range outside of the store, or more floats than a stretch has, are MST_EINPUT. A failure abandons
 * the save. */
mst_status mst_checkpointer_write(mst_checkpointer *self, uint32_t slot, uint64_t first, uint64_t count,
                                  const float *data, bool lazy);
/* Hands over to the background thread, once every stretch has got all its floats in every slot: MST_EINPUT
 * naming the first that has not, the save being abandoned. */
mst_status mst_checkpointer_complete(mst_checkpointer *self);
/* Leaves what was there before the save began; nothing when none is open. */
void mst_checkpointer_abandon(mst_checkpointer *self);

/* No save is open or under way: the next one begins without waiting. */
bool mst_checkpointer_idle(mst_checkpointer *self);
/* Waits for the save under way and returns its outcome; *path (caller frees; the pointer may be NULL) is the
 * newest folder that self has finished, NULL when there is none. */
mst_status mst_checkpointer_wait(mst_checkpointer *self, char **path);
/* NULL-safe; waits; an unfinished save leaves no manifest, and one that is open is abandoned. */
void mst_checkpointer_destroy(mst_checkpointer *self);

/* ---- loading ---- */

/* Finds what a user means: a checkpoint folder, a checkpoints/ folder or a run folder (the newest complete
 * one). *out is the caller's to free. MST_EINPUT when there is none. */
mst_status mst_checkpoint_find(const char *path, char **out);

/* Finds the checkpoint that is the model of a run: after --patience the one with the best valid loss (*best),
 * else, or with `last`, the newest. Other paths as mst_checkpoint_find. */
mst_status mst_checkpoint_find_model(const char *path, bool last, char **out, bool *best);

/* Reads the meta only. */
mst_status mst_checkpoint_read_meta(const char *checkpoint, mst_checkpoint_meta *meta);

/* Compares the model of a checkpoint's meta with the one here (mst_model_json): MST_EINPUT with the
 * difference. features_given: by the user, not found in the data. */
mst_status mst_checkpoint_fits(const char *checkpoint, const json_t *theirs, const json_t *mine,
                               bool features_given);

/* Fills params (views declared and reserved by the caller). Every view must be there with the same size;
 * optimizer state only when want_slots (names must fit). Torn, truncated or foreign files are MST_EINPUT with
 * one sentence and leave params in an undefined state. Zero blocks are not written, so lazily reserved memory
 * stays untouched. */
mst_status mst_checkpoint_load(const char *checkpoint, mst_params *params, const char *const *slot_names,
                               bool want_slots);

/* A checkpoint opened to be read in pieces. */
typedef struct mst_checkpoint mst_checkpoint;

/* Checks everything that mst_checkpoint_load checks, with the same sentences, and every checksum. Of params
 * only the views and n_slots are looked at; params and slot_names must outlive *out. Keeps one file per part
 * open. */
mst_status mst_checkpoint_open(const char *checkpoint, const mst_params *params,
                               const char *const *slot_names, bool want_slots, mst_checkpoint **out);
/* Floats [first, first + count) of the flat vector of the weights (slot 0) or, with want_slots, of state
 * vector slot - 1; zero where no view has them. MST_EUSAGE for a range or slot that there is not. Needs
 * little memory besides out. */
mst_status mst_checkpoint_read(mst_checkpoint *self, uint32_t slot, uint64_t first, uint64_t count,
                               float *out);
void mst_checkpoint_close(mst_checkpoint *self); /* NULL-safe */

#endif
