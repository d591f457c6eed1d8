/* Code that `eval` and `predict` share: the model of a checkpoint and the data to apply it to. */
#ifndef MST_CLI_CMD_APPLY_H
#define MST_CLI_CMD_APPLY_H

#include "cli/cli.h"
#include "data/augment.h"
#include "train/assembly.h"

typedef struct mst_apply_options {
    int64_t threads, batch, rows;
    char *isa;
    mst_scoring_device device;
    bool last, strict_features, force;
} mst_apply_options;
extern const mst_option mst_apply_table[];

/* The groups of a command whose options, of this type, hold an mst_apply as `apply`. */
#define MST_APPLY_GROUPS(type)                                                                               \
    {"reading", mst_apply_table, offsetof(type, apply.options)},                                             \
        {"data", mst_data_option_table, offsetof(type, apply.data)},                                         \
    {                                                                                                        \
        "augmentation", mst_augment_option_table, offsetof(type, apply.augment_options)                      \
    }

typedef struct mst_apply {
    mst_apply_options options;
    mst_data_options data;
    mst_augment_options augment_options;
    unsigned n_threads;
    mst_assembly assembly;
    mst_dataset *dataset;
    mst_augment augment;        /* of the rows; any false: none */
    const mst_text_list *words; /* the checkpoint or run, then the files */
    char *checkpoint;           /* its folder */
} mst_apply;

/* Loads the checkpoint that the first word of the call names, and opens the files that the others name. The
 * groups of the call hold options, data and augment_options of `self`. Close in any case. */
mst_status mst_apply_open(mst_apply *self, mst_call *call);
void mst_apply_close(mst_apply *self);

#endif
