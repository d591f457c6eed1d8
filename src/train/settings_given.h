/* The options that the user gave, and the check that each of them has an effect. */
#ifndef MST_TRAIN_SETTINGS_GIVEN_H
#define MST_TRAIN_SETTINGS_GIVEN_H

#include "train/settings.h"

/* The state of the options before a run, a cluster or MPI add theirs. */
typedef struct mst_given {
    mst_option_group groups[MST_SETTINGS_GROUPS]; /* for mst_options_is_set only */
    size_t n_groups;
    mst_strategy_options strategy;
} mst_given;

mst_given mst_given_of(const mst_settings *settings);

/* MST_EUSAGE, naming the option, when one was given and has no effect in `settings`, which are otherwise
 * settled. strategy_only: check needs of --strategy only, as a process does that does not have the other
 * options of the run it resumes. */
mst_status mst_given_check(const mst_given *given, const mst_settings *settings, bool strategy_only);

#endif
