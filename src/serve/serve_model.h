/* A model that `muster serve` answers with: weights, how its rows are read, and the memory of predictions.
 *
 * A model does not change once it is loaded, so any number of requests use it at once; each holds a
 * reference. A slot is the model in use and the folder that newer ones come from: replacing it lets requests
 * finish with the model they began with. */
#ifndef MST_SERVE_SERVE_MODEL_H
#define MST_SERVE_SERVE_MODEL_H

#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/option.h"
#include "data/row_text.h"
#include "train/scorer.h"

/* How rows are read: options of the checkpoint, and those that the user has set. */
typedef struct mst_serve_reading {
    mst_data_options data;
    mst_augment_options augment;
} mst_serve_reading;

typedef struct mst_serve_model {
    atomic_uint references;
    char *checkpoint;           /* its folder */
    uint64_t inode, changed_ns; /* of its manifest: another training may write a folder of this name */
    uint64_t step, rows;
    mst_assembly assembly;
    mst_augment augment; /* of images; any false: none */
    mst_scorers scorers;
    mst_serve_reading reading;
    mst_option_group groups[2]; /* of reading */
    mst_row_parser *parser;
    char *description; /* JSON: the model, its input and output */
} mst_serve_model;

/* set: {"option": value, ...} that replace those of the checkpoint; or NULL. One reference for the caller. */
mst_status mst_serve_model_load(const char *checkpoint, mst_isa isa, const json_t *set,
                                mst_serve_model **out);
void mst_serve_model_hold(mst_serve_model *self);
void mst_serve_model_release(mst_serve_model *self); /* NULL-safe */

/* Features that a row of a request has. */
uint64_t mst_serve_model_features(const mst_serve_model *self);

/* ---- the model in use ---- */

typedef struct mst_model_slot {
    const char *path;  /* a run, its checkpoints/ or a checkpoint; borrowed */
    bool last;         /* the newest, even if the run has a best one */
    const json_t *set; /* borrowed */
    mst_isa isa;
    pthread_mutex_t mutex;
    mst_serve_model *model; /* guarded by mutex */
    char *refused;          /* a checkpoint that could not be loaded, and the run still has; or NULL */
    atomic_uint_fast64_t reloads, failures;
} mst_model_slot;

/* Loads the model of the path. Fini in any case. */
mst_status mst_model_slot_init(mst_model_slot *self, const char *path, bool last, mst_isa isa,
                               const json_t *set);
void mst_model_slot_fini(mst_model_slot *self);

/* The model in use, with a reference for the caller. Any thread. */
mst_serve_model *mst_model_slot_take(mst_model_slot *self);

/* Looks for another checkpoint, and replaces the model by it. A checkpoint that cannot be loaded is logged
 * and counted once, and the model stays. One thread. True: the model was replaced. */
bool mst_model_slot_refresh(mst_model_slot *self);

#endif
