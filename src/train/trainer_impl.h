/* What trainer.c, trainer_setup.c and trainer_plan.c share; nobody else includes this. */
#ifndef MST_TRAIN_TRAINER_IMPL_H
#define MST_TRAIN_TRAINER_IMPL_H

#include "observe/observe.h"
#include "train/assembly.h"
#include "train/evaluate.h"
#include "train/run_log.h"
#include "train/trainer.h"

typedef struct mst_eval_set {
    mst_dataset *dataset;
    mst_evaluator *evaluator;
} mst_eval_set;

struct mst_trainer {
    mst_train_config config;
    mst_train_options options; /* a copy; texts are borrowed from the configuration */
    mst_data_options data;     /* likewise, with what opening the training data settled */
    mst_option_group cached;   /* how the rows of a cache were read: its base is cached_data */
    mst_data_options cached_data;
    bool reading_unknown; /* a cache that does not say how its rows were read */
    json_t *data_json;
    char *columns;                         /* TFRecord: those that were found in the training data; or NULL */
    mst_augment augment;                   /* what is done to rows of every set */
    mst_strategy_options strategy_options; /* resolved */
    unsigned n_threads;
    const mst_kernels *kernels;
    mst_dataset *dataset;
    mst_assembly assembly;
    mst_optimizer optimizer;
    mst_strategy *strategy;
    mst_feed *feed;
    double held_out;     /* fraction; 0: none */
    uint64_t valid_seed; /* of the held-out rows */
    mst_eval_set test, valid;

    mst_run_schedule schedule;
    mst_run_log *log;
    uint64_t look_every;             /* steps; 0: no exact ones */
    mst_observe *observe;            /* NULL: nothing is written about the run's course */
    uint64_t histogram_ns, begun_ns; /* what histograms have cost; when the run began */
    mst_progress progress;
    json_t *workers; /* what each of several processes did; NULL: there is one, or the run is not over */
};

/* Everything up to the feed. The trainer has its copies of the options; destroy is safe after a failure. */
mst_status mst_trainer_set_up(mst_trainer *self);

/* What a worker of a cluster needs: data, the model without its weights, a feed. No run_log, no
 * strategy, no evaluation sets. */
mst_status mst_trainer_set_up_worker(mst_trainer *self, uint32_t index);

/* What a rank of allreduce other than 0 needs: data, model and weights as they start, strategy, a feed. No
 * run_log, no evaluation sets. */
mst_status mst_trainer_set_up_rank(mst_trainer *self);

/* Opens the test and valid sets. params NULL: weights will be given to the evaluators. */
mst_status mst_trainer_open_sets(mst_trainer *self, const mst_params *params, const atomic_bool *stop);

/* What the manifest says of the data. New reference or NULL. */
json_t *mst_trainer_data_json(const mst_trainer *self);

#endif
