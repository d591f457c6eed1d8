/* Code that `eval`, `predict` and `serve` share: the options for the model of a checkpoint; and, for the
 * first two, the model and the data to apply it to. */
#ifndef MST_CLI_CMD_APPLY_H
#define MST_CLI_CMD_APPLY_H

#include "cli/cli.h"
#include "data/augment.h"
#include "train/assembly.h"

typedef struct mst_use_options {
    int64_t threads;
    char *isa;
    bool last, strict_features;
} mst_use_options;
extern const mst_option mst_use_table[];

typedef struct mst_apply_options {
    int64_t batch, rows;
    mst_scoring_device device;
    bool force;
} mst_apply_options;
extern const mst_option mst_apply_table[];

/* The groups of a command whose options, of this type, hold an mst_apply as `apply`. */
#define MST_APPLY_GROUPS(type)                                                                               \
    {"model", mst_use_table, offsetof(type, apply.use)},                                                     \
        {"reading", mst_apply_table, offsetof(type, apply.options)},                                         \
        {"data", mst_data_option_table, offsetof(type, apply.data)},                                         \
    {                                                                                                        \
        "augmentation", mst_augment_option_table, offsetof(type, apply.augment_options)                      \
    }

typedef struct mst_apply {
    mst_use_options use;
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
 * groups of the call hold use, options, data and augment_options of `self`. Close in any case. */
mst_status mst_apply_open(mst_apply *self, mst_call *call);
void mst_apply_close(mst_apply *self);

#endif
