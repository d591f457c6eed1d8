/* Options that say nothing: which options have an effect only where another has certain values. */
#ifndef MST_TRAIN_SETTINGS_IDLE_H
#define MST_TRAIN_SETTINGS_IDLE_H

#include "train/settings.h"

/* `option` has an effect where `decider` has one of `values`. */
typedef struct mst_option_meaning {
    const char *option, *decider, *values; /* values: words, one blank between them */
} mst_option_meaning;

/* What takes option `name` its effect, where `options` is mst_options_json of a training's groups; NULL: it
 * has one. strategy_only: no other decider is known yet. */
const mst_option_meaning *mst_option_idle(const json_t *options, const char *name, bool strategy_only);

/* What the user said, kept before other sources of options are asked. */
typedef struct mst_given {
    mst_option_group groups[MST_SETTINGS_GROUPS]; /* for mst_options_is_set only */
    size_t n_groups;
    mst_strategy_options strategy;
} mst_given;

mst_given mst_given_of(const mst_settings *settings);

/* MST_EUSAGE, naming it, for an option that was given and has no effect in `settings`, which are otherwise
 * settled. strategy_only: what a resumed run was started with is not known to this process. */
mst_status mst_given_check(const mst_given *given, const mst_settings *settings, bool strategy_only);

#endif
