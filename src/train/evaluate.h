/* Evaluation: the model's loss, accuracy and AUC over a data set, by several threads. */
#ifndef MST_TRAIN_EVALUATE_H
#define MST_TRAIN_EVALUATE_H

#include "data/feed.h"
#include "train/tally.h"

typedef struct mst_evaluator mst_evaluator;

typedef struct mst_evaluator_options {
    unsigned n_threads;
    uint32_t batch;      /* rows computed at a time */
    uint64_t first_rows; /* 0: all */
    uint64_t seed;       /* of the hold-out, with keep and held_out */
    double held_out;
    mst_feed_keep keep;
    const atomic_bool *stop; /* or NULL */
} mst_evaluator_options;

/* Model and params must outlive it, and so must the dataset, which serves nobody else. */
mst_status mst_evaluator_new(const mst_model *model, const mst_params *params, mst_dataset *dataset,
                             const mst_evaluator_options *options, mst_evaluator **out);
void mst_evaluator_destroy(mst_evaluator *self); /* NULL-safe */

/* Evaluates the parameters as they are; nobody may write them meanwhile. */
mst_status mst_evaluator_run(mst_evaluator *self, mst_result *out);

#endif
