/* Checkpoints: everything that a run needs to continue, in a folder that is valid only once it has its
 * manifest.
 *
 *   checkpoints/step-000000001000/part-00000.safetensors   tensors: views of the weights, optimizer state
 *   checkpoints/step-000000001000/manifest.json            written last: meta; size and CRC-32C of each part;
 *                                                          its own CRC-32C (absent in old checkpoints)
 *
 * Tensors have the names of their views ("weight", "bias"); optimizer state "optimizer.<slot>.<view>", of the
 * slots that the manifest lists for the view (checkpoints of earlier versions: for all views). A part
 * file may hold slices of a view: the manifest lists their elements ("first", "count"). So a store that is
 * divided among servers is saved as one part file per server and loaded by any number of readers. If a part
 * file holds several slices of a tensor, they are named "weight[FIRST:END]" there, which the manifest records
 * ("tensor").
 *
 * Saving has two halves. The first copies the floats into files, that is, into the page cache: from a whole
 * store at once (`begin`: training pauses only for that copy, which needs no anonymous memory), or piece by
 * piece as they arrive from servers (`begin_parts`, `write`, `complete`). Then a background thread syncs,
 * computes checksums, writes the manifest and removes old checkpoints. Runs of zeros become holes in the
 * files. */
#ifndef MST_RUN_CHECKPOINT_H
#define MST_RUN_CHECKPOINT_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"
#include "tensor/params.h"

/* The contents besides the floats. */
typedef struct mst_checkpoint_meta {
    uint64_t step, rows;      /* over all epochs so far */
    uint64_t epoch, position; /* of the next row: epoch number (0-based) and rows into it */
    double train_seconds, eval_seconds;
    json_t *model;     /* {"name", "features", "dense", "classes", "bias", ...}; compared when loading */
    json_t *optimizer; /* {"name", ...} */
    json_t *extra;     /* state of the run log (best metric, patience, ...) */
} mst_checkpoint_meta;
void mst_checkpoint_meta_fini(mst_checkpoint_meta *meta); /* drops the references */

/* ---- saving ---- */

typedef struct mst_checkpointer mst_checkpointer;

/* keep: the number of checkpoints to keep (0: all). Starts the background thread. */
mst_status mst_checkpointer_new(const char *folder, uint32_t keep, mst_checkpointer **out);
/* Copies params and meta. Waits first for an earlier save under way; if that has failed without being
 * reported, returns its failure and begins nothing. A failed save leaves the earlier checkpoints. No thread
 * may write w meanwhile. */
mst_status mst_checkpointer_begin(mst_checkpointer *self, const mst_params *params,
                                  const mst_checkpoint_meta *meta);

/* A range of the flat vector and the server that holds it: the ranges of one server share a file,
 * part-<server>.safetensors. */
typedef struct mst_part_spec {
    uint64_t first, count;
    uint32_t server; /* below MST_PART_SERVERS */
} mst_part_spec;
#define MST_PART_SERVERS 100000

/* Begins a save whose floats arrive in pieces. Of params only the views and n_slots are used. The ranges, in
 * any order, must cover [0, params->size) exactly (MST_EUSAGE otherwise). Waits and fails as `begin` does.
 * One of complete, abandon and destroy ends it; no other save begins meanwhile. */
mst_status mst_checkpointer_begin_parts(mst_checkpointer *self, const mst_params *params,
                                        const mst_checkpoint_meta *meta, const mst_part_spec *parts,
                                        uint32_t n);
/* Writes floats [first, first + count) of the weights (slot 0) or of optimizer slot - 1, in pieces of any
 * order and size, also across ranges; a slot has the positions of mst_view_state_at. Floats that belong to no
 * view are dropped. lazy: see sparse_file.h;
 * false is always correct. A range outside of the store, or more floats than a range has, are MST_EINPUT. A
 * failure abandons the save. */
mst_status mst_checkpointer_write(mst_checkpointer *self, uint32_t slot, uint64_t first, uint64_t count,
                                  const float *data, bool lazy);
/* Hands the save to the background thread. If a range lacks floats of a slot, MST_EINPUT names the first one
 * and the save is abandoned. */
mst_status mst_checkpointer_complete(mst_checkpointer *self);
/* Leaves the earlier checkpoints; does nothing if no save is open. */
void mst_checkpointer_abandon(mst_checkpointer *self);

/* No save is open or under way: the next one begins without waiting. */
bool mst_checkpointer_idle(mst_checkpointer *self);
/* Waits for the save under way and returns its outcome; *path (caller frees; the pointer may be NULL) is the
 * newest folder that self has completed, NULL if there is none. */
mst_status mst_checkpointer_wait(mst_checkpointer *self, char **path);
/* NULL-safe; waits; an incomplete save leaves no manifest, and an open one is abandoned. */
void mst_checkpointer_destroy(mst_checkpointer *self);

/* ---- loading ---- */

/* Finds the checkpoint of a path: a checkpoint folder, or the newest complete one of a checkpoints/ folder or
 * a run. *out is the caller's to free. MST_EINPUT if there is none. */
mst_status mst_checkpoint_find(const char *path, char **out);

/* Finds the checkpoint with the model of a run: after --patience the one with the best valid loss (*best),
 * else, or with `last`, the newest. Other paths as mst_checkpoint_find. */
mst_status mst_checkpoint_find_model(const char *path, bool last, char **out, bool *best);

/* Reads the meta only. */
mst_status mst_checkpoint_read_meta(const char *checkpoint, mst_checkpoint_meta *meta);

/* Compares the model of a checkpoint's meta with a model (mst_model_json): MST_EINPUT with the difference.
 * features_given: by the user, not found in the data. */
mst_status mst_checkpoint_fits(const char *checkpoint, const json_t *theirs, const json_t *mine,
                               bool features_given);

/* Fills params (views declared and reserved by the caller). Every view must be there with the same size;
 * optimizer state only if want_slots (names must match). Truncated, damaged or foreign files are MST_EINPUT
 * with one message and leave params in an undefined state. Blocks of zeros are not written, so lazily
 * reserved memory stays untouched. */
mst_status mst_checkpoint_load(const char *checkpoint, mst_params *params, bool want_slots);

/* A checkpoint that is read in pieces. */
typedef struct mst_checkpoint mst_checkpoint;

/* Makes the same checks as mst_checkpoint_load, with the same messages, and verifies every checksum. Of
 * params only the views and n_slots are used; params must outlive *out. Keeps one open file per part file. */
mst_status mst_checkpoint_open(const char *checkpoint, const mst_params *params, bool want_slots,
                               mst_checkpoint **out);
/* Reads floats [first, first + count) of the weights (slot 0) or, with want_slots, of optimizer slot - 1;
 * zero where there is no view. MST_EUSAGE for a range or slot that does not exist. Needs little memory
 * besides out. */
mst_status mst_checkpoint_read(mst_checkpoint *self, uint32_t slot, uint64_t first, uint64_t count,
                               float *out);
void mst_checkpoint_close(mst_checkpoint *self); /* NULL-safe */

#endif
