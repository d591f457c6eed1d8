/* Training: the one place that sees the whole flow. Opens the data, builds or restores the model, and lets a
 * strategy run between the moments when something else is due: an evaluation, a checkpoint, a look at the
 * clock, the end.
 *
 *   mst_trainer_new   opens and checks everything; nothing is written yet (--dry-run ends here)
 *   mst_trainer_run   trains, writes the run directory, ends with a checkpoint
 *
 * The library does not print: an observer hears what happens. Thread: one caller; `stop` may be set from a
 * signal handler. */
#ifndef MST_TRAIN_TRAINER_H
#define MST_TRAIN_TRAINER_H

#include <jansson.h>
#include <stdatomic.h>

#include "data/augment.h"
#include "data/dataset.h"
#include "model/model.h"
#include "optim/optim.h"
#include "options/train_options.h"
#include "strategy/strategy.h"
#include "train/eval_counters.h"
#include "train/run_schedule.h"

struct mst_observe;

/* What a resumed run's model has where the files at hand may have less; 0: not known. */
typedef struct mst_resumed {
    uint64_t features;
    uint32_t classes;
} mst_resumed;

typedef struct mst_train_config {
    const mst_text_list *files; /* training data */
    mst_train_options *train;
    mst_data_options *data;
    mst_augment_options *augment; /* or NULL: rows are trained on as they are */
    mst_model_options *model;
    mst_optim_options *optim;
    mst_strategy_options *strategy;
    json_t *options; /* for the manifest: mst_options_json of all groups; borrowed */
    json_t
        *data_options; /* for checkpoints: how rows were read, so that predict reads them alike; borrowed */
    json_t *augment_options; /* likewise, of the augmentation; or NULL */
    bool plan;               /* only mst_trainer_plan will be called: nothing of the model's size is made */
    bool epochs_given;       /* --epochs was set by the user: other limits do not lift it */
    bool shuffle_given;      /* --shuffle-rows was set by the user: it holds for pipes too */
    const mst_resumed *resumed; /* of the run that is resumed; or NULL */
    const char *image_option;   /* option given that some encoded images in the data must justify; or NULL */
    const atomic_bool *stop;    /* set: save and end */
    const atomic_bool *job_ended; /* as mst_worker_options.job_ended */
    bool (*save_wanted)(void);    /* true once for every wish to save and go on; or NULL */
    /* Opens data that is no file: *out stays NULL where `files` names none of it. Any thread; or NULL. */
    mst_status (*open_own)(void *arg, const mst_text_list *files, mst_dataset **out);
    void *open_arg;
    struct mst_comm *comm; /* strategy allreduce: to the other ranks; or NULL */
    const char *role;      /* of this process, the first of its kind; NULL: "local" */
    json_t *manifest;      /* more that the manifest is to say; borrowed, or NULL */
    /* The run writes about itself now, by this (NULL: not at all), which lives as long as the trainer. Or
     * NULL. */
    void (*watched)(void *watched_arg, struct mst_observe *observe);
    void *watched_arg;
} mst_train_config;

static inline mst_resumed mst_resumed_of(const mst_train_config *config)
{
    return config->resumed != NULL ? *config->resumed : (mst_resumed){0};
}

/* Where a run stands. */
typedef struct mst_train_status {
    uint64_t step, rows, epoch; /* epoch: 0-based, of the row to come */
    uint64_t epoch_rows;        /* 0: not known yet */
    uint64_t epoch_position;
    double train_seconds, eval_seconds, save_seconds;
    double rows_per_s;      /* over the last few seconds of training */
    double mean_rows_per_s; /* since the run began */
    double eta_seconds;     /* NAN: unknown, as while nothing advances */
    double lr, train_loss;  /* loss: lately; in the summary: as told with the last evaluation */
    const char *waiting;    /* whom a step waits for, "worker 2"; NULL: not known */
} mst_train_status;

typedef enum mst_end {
    MST_END_EPOCHS,
    MST_END_STEPS,
    MST_END_ROWS,
    MST_END_SECONDS,
    MST_END_UNTIL,
    MST_END_PATIENCE,
    MST_END_STOPPED,
    MST_END_DESERTED, /* the run failed, though its weights are saved */
} mst_end;
const char *mst_end_text(mst_end end);

typedef struct mst_train_summary {
    mst_train_status status;
    mst_end end;
    mst_result test, valid; /* the last ones; rows 0: none */
    double best_valid_loss; /* with --patience; NAN otherwise */
    uint64_t best_step;
    uint64_t steps_here; /* done since the run was started or resumed */
    uint64_t n_evaluations;
    double feed_wait_seconds;
    char run[512], checkpoint[640]; /* "": none */
    char best_checkpoint[640];      /* with --patience: that of best_step; "": none */
    char missing[192];              /* from the run's folder, which was deleted meanwhile; "": nothing */
} mst_train_summary;

/* Any slot may be NULL. Called on the trainer's thread, between runs of the strategy; evaluating on a thread
 * that scores, one call at a time, after every batch, by strategy local: rows of the set scored so far, and
 * those of them that the model got right. */
typedef struct mst_observer {
    void *arg;
    void (*progress)(void *arg, const mst_train_status *status); /* a few times a second */
    void (*evaluating)(void *arg, const char *set, uint64_t rows, uint64_t correct);
    void (*evaluated)(void *arg, const mst_train_status *status, const char *set, const mst_result *result);
    void (*saved)(void *arg, const mst_train_status *status, const char *path);
} mst_observer;

typedef struct mst_trainer mst_trainer;

/* The configuration is borrowed and must outlive the trainer. */
mst_status mst_trainer_new(const mst_train_config *config, mst_trainer **out);
void mst_trainer_destroy(mst_trainer *self); /* NULL-safe */

/* What the run would cost: {"model", "features", "parameters", "weights_bytes", "optimizer_bytes",
 * "row_bytes", "batch_keys", "batch_bytes", ...}. Reads one batch. New reference in *out. */
mst_status mst_trainer_plan(mst_trainer *self, json_t **out);

/* From here on the observer hears of progress whenever a multiple of n steps is done, besides a few times a
 * second. NULL-safe. */
void mst_trainer_look_every(mst_trainer *self, uint64_t n);

mst_status mst_trainer_run(mst_trainer *self, const mst_observer *observer, mst_train_summary *summary);

#endif
