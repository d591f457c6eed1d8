/* The settings of a training: all its options, and everything that follows from them before files are opened:
 * the role of this process in a cluster, the options of a resumed run, the checks of options against each
 * other. `muster train` and programs that use the library share them.
 *
 *   mst_settings_begin    makes the groups, for mst_options_init, _parse, _set ...
 *   mst_settings_settle   after the options are read
 *   mst_settings_config   for mst_training_new, or for mst_job_run (job/job.h)
 *
 * Thread: one owner. */
#ifndef MST_TRAIN_SETTINGS_H
#define MST_TRAIN_SETTINGS_H

#include "net/cluster.h"
#include "options/process_options.h"
#include "train/train_config.h"

#define MST_SETTINGS_GROUPS 8

typedef struct mst_settings {
    mst_train_options train;
    mst_model_options model;
    mst_optim_options optim;
    mst_strategy_options strategy;
    mst_data_options data;
    mst_augment_options augment;
    mst_process_options process;
    mst_option_group groups[MST_SETTINGS_GROUPS];
    size_t n_groups;
    mst_text_list files; /* training data */
    char *net;           /* of a resumed run: the text that model.net_text points at; or NULL */
    mst_resumed resumed;
    /* Once settled: */
    mst_cluster cluster;           /* source NULL: none */
    mst_strategy_options resolved; /* strategy, as it will run */
    json_t *options;               /* mst_options_json of all groups */
} mst_settings;

/* Joins the groups: those of a training, and one of the caller's own, or NULL. `self` must not move from here
 * on. */
void mst_settings_begin(mst_settings *self, const mst_option_group *own);
void mst_settings_fini(mst_settings *self); /* safe after begin, even if a later call failed */

/* Sets options that follow from others: --net implies --model net. */
mst_status mst_settings_imply(mst_settings *self);

/* Finds the cluster, takes the options of a resumed run over, and checks the options against each other.
 * dry_run: the run directory may be there already. MST_EUSAGE and MST_EEXIST with a message. */
mst_status mst_settings_settle(mst_settings *self, bool dry_run);

/* MST_EUSAGE: --clip-norm in synchronous steps of several servers, each of which has a part of the gradient.
 */
mst_status mst_fail_split_norm(void);

/* MST_EUSAGE when the text is not a valid --group: empty, longer than MST_GROUP_MAX bytes, not UTF-8, or with
 * control characters. */
#define MST_GROUP_MAX 200
mst_status mst_group_check(const char *group);

/* Whether the training loop of this process trains (mst_training_new), or a job (mst_job_run). */
static inline bool mst_settings_local(const mst_settings *self)
{
    return self->strategy.strategy == MST_STRATEGY_LOCAL;
}

/* The configuration of a training, which points into `self`; the caller adds what is its own (stop, ...). */
mst_train_config mst_settings_config(mst_settings *self);

/* The options that all processes of a job must share, from mst_options_json: {"lr": 0.1, ...}. Paths may
 * differ, but the worker that evaluates must have the sets that the coordinator waits for. New reference or
 * NULL. */
json_t *mst_settings_shared(const json_t *options);

/* The first message of the coordinator or of rank 0, {"resume", "options", "files", ...}: takes over the
 * options of a resumed run, and updates `shared`. */
mst_status mst_settings_adopt(mst_settings *self, const json_t *job, json_t *shared);

#endif
