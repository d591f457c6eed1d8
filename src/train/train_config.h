/* The configuration from which a training is built (training.h). */
#ifndef MST_TRAIN_TRAIN_CONFIG_H
#define MST_TRAIN_TRAIN_CONFIG_H

#include <jansson.h>
#include <stdatomic.h>

#include "data/augment.h"
#include "data/dataset.h"
#include "model/model.h"
#include "optim/optim.h"
#include "options/train_options.h"
#include "strategy/strategy.h"

struct mst_observe;

typedef enum mst_training_role {
    MST_TRAINING_LOCAL,
    MST_TRAINING_RANK,
    MST_TRAINING_WORKER,
    MST_TRAINING_SERVER,
} mst_training_role;

/* The rows that --valid FRACTION holds out; fraction 0: none. */
typedef struct mst_held_out {
    double fraction;
    uint64_t seed;
} mst_held_out;

/* A resumed run: the sizes of its model, for files that have fewer of them (0: unknown), and the
 * rows that it did not train on. */
typedef struct mst_resumed {
    bool known; /* this process has the run's manifest */
    uint64_t features;
    uint32_t classes, fields;
    mst_held_out held_out;
} mst_resumed;

/* All pointers are borrowed and outlive the training. */
typedef struct mst_train_config {
    mst_training_role role;
    uint32_t index;       /* of this process among those of its role */
    bool guest;           /* another training in the same process observes the host */
    uint32_t device_turn; /* as in mst_model_options */

    const mst_train_options *train;
    const mst_model_options *model;
    const mst_optim_options *optim;
    const mst_strategy_options *strategy; /* resolved (mst_strategy_resolve) */
    json_t *options;                      /* for the manifest: mst_options_json of all groups */
    json_t *manifest;                     /* additional entries of the manifest; or NULL */
    bool epochs_given;                    /* --epochs was set by the user: other limits do not lift it */
    const char *lost; /* why the supervisor has started the job again; or NULL: it has not */
    uint64_t lost_ns; /* as since_ns of mst_run_log_lost */
    bool plan;        /* only mst_training_plan will be called: nothing as large as the model is allocated */

    /* The data: */
    const mst_text_list *files; /* to train on */
    const mst_data_options *data;
    const mst_augment_options *augment; /* or NULL: rows are trained on as they are */
    json_t *data_options;       /* for checkpoints: how rows are read, so that predict reads them alike */
    json_t *augment_options;    /* likewise, of the augmentation; or NULL */
    bool shuffle_given;         /* --shuffle-rows was set by the user: it applies to pipes too */
    const mst_resumed *resumed; /* of the run that is resumed; or NULL */
    /* Opens data of a custom reader; *out stays NULL if `files` names no reader. Any thread; or NULL. */
    mst_status (*open_own)(void *arg, const mst_text_list *files, mst_dataset **out);
    void *open_arg;

    /* Local, and jobs in one process: */
    bool in_memory;               /* no run directory is written: the caller takes the model */
    const struct mst_start *from; /* a model in memory that training continues; or NULL */

    /* Signals and other processes: */
    const atomic_bool *stop;       /* set: save and end */
    const atomic_bool *job_ended;  /* as mst_worker_options.job_ended */
    const atomic_bool *no_workers; /* as mst_server_options.no_workers */
    /* Takes requests that have arrived: true once for every request to save and continue. It may set the stop
     * flag. Or NULL. */
    bool (*take_requests)(void *requests_arg);
    void *requests_arg;
    struct mst_comm *comm; /* strategy allreduce: to the other ranks; or NULL */
    /* Called when the observer (NULL: there is none) starts; it lives as long as the training. Or NULL. */
    void (*observed)(void *arg, struct mst_observe *observe);
    void *observed_arg;
} mst_train_config;

static inline mst_resumed mst_resumed_of(const mst_train_config *config)
{
    return config->resumed != NULL ? *config->resumed : (mst_resumed){0};
}

#endif
