/* The parts of settings.c: the cluster and the ranks (settings_cluster.c), options that were given
 * (settings_given.c), the options that a resumed run keeps (settings_resume.c), and its global batch, which
 * is kept when the number of workers changes (settings_batch.c). No other file includes this. */
#ifndef MST_TRAIN_SETTINGS_IMPL_H
#define MST_TRAIN_SETTINGS_IMPL_H

#include "train/settings.h"

/* Finds the cluster of this process, if any (source NULL: none), and its role and index in it. */
mst_status mst_settings_find_cluster(mst_settings *settings);
/* Sets the number of workers and servers from the cluster or the ranks; it may differ from that of a resumed
 * run. */
void mst_settings_count_processes(mst_settings *settings);
/* Whether this process opens the run directory. */
bool mst_settings_keeps_run(const mst_settings *settings);
/* A rank of allreduce other than 0: rank 0 sends the options of a resumed run. */
bool mst_settings_follows_rank_0(const mst_settings *settings);
/* Independent MPI ranks would all train the same model. */
mst_status mst_settings_check_ranks(const mst_settings *settings);

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

/* The batch sizes of a resumed run; zeroed: no run is resumed. */
typedef struct mst_batch_before {
    json_int_t workers, batch, global_batch;
    bool sync;
    bool given, lr_given; /* the command gives --batch or --global-batch, --lr or --lr-scale */
} mst_batch_before;

/* Call it before the options of the manifest are adopted. */
mst_batch_before mst_batch_before_of(const mst_settings *settings, const json_t *manifest);

/* After the workers are counted: sets --global-batch, and --lr where --lr-scale would change the rate, so
 * that synchronous steps stay the same. */
mst_status mst_batch_keep(const mst_batch_before *before, mst_settings *settings);
/* When the strategy is resolved: logs changes of workers and batches. */
void mst_batch_report(const mst_batch_before *before, const mst_settings *settings);

/* A resumed run keeps its options and files unless the command gives others. source: of the manifest, for
 * sentences. */
mst_status mst_resume_manifest(mst_settings *settings, const json_t *manifest, const char *source);
/* The same from the manifest in --run. */
mst_status mst_resume_run(mst_settings *settings, mst_batch_before *before);

#endif
