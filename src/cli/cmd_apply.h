/* Code that `eval` and `predict` share: the model of a checkpoint and the data to apply it to. */
#ifndef MST_CLI_CMD_APPLY_H
#define MST_CLI_CMD_APPLY_H

#include "cli/cli.h"
#include "data/augment.h"
#include "train/assembly.h"

typedef struct mst_apply_options {
    int64_t threads, batch, rows;
    char *isa;
    bool last, strict_features, force;
} mst_apply_options;
extern const mst_option mst_apply_table[];

typedef struct mst_apply {
    mst_apply_options options;
    mst_data_options data;
    mst_augment_options augment_options;
    unsigned n_threads;
    bool helped;
    mst_assembly assembly;
    mst_dataset *dataset;
    mst_augment augment; /* of the rows; any false: none */
    mst_text_list words; /* the checkpoint or run, then the files */
    char *checkpoint;    /* its folder */
} mst_apply;

/* Parses argv into the groups (which hold options, data and augment_options of `self`), loads the checkpoint
 * named first and opens the files named after it. Close in any case; the groups stay the caller's. */
mst_status mst_apply_open(mst_apply *self, const mst_command *command, mst_option_group *groups, size_t n,
                          int argc, char **argv);
void mst_apply_close(mst_apply *self);

#endif
