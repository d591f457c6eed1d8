/* Shared by the files of the training object (training*.c); no other file includes this. */
#ifndef MST_TRAIN_TRAINING_IMPL_H
#define MST_TRAIN_TRAINING_IMPL_H

#include "train/training.h"

/* The use of the checkpoint that a run starts from. */
typedef enum mst_start_use {
    MST_START_CHECK, /* only whether it fits */
    MST_START_LOAD,  /* into the parameters */
    MST_START_OPEN,  /* for mst_training_read_start */
} mst_start_use;

/* Makes the run log of this process; nothing is written. */
mst_status mst_training_make_log(mst_training *self);

/* Uses the checkpoint of --resume or --init-from, if there is one. plan as in mst_training_start_log. */
mst_status mst_training_start(mst_training *self, mst_start_use use, json_t **plan);

/* The optimizer of keys; "": that of all parameters. */
const char *mst_training_sparse_name(const mst_training *self);

#endif
