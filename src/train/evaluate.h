/* Evaluation: the model's loss and other figures over a data set, by several threads: on the weights of a
 * store, or on pulled weights, with keys translated to their positions (pulled_eval.h). */
#ifndef MST_TRAIN_EVALUATE_H
#define MST_TRAIN_EVALUATE_H

#include "data/feed.h"
#include "train/eval_counters.h"

typedef struct mst_evaluator mst_evaluator;

/* Called after every batch of an evaluation, one call at a time, on a scoring thread, in the order of rows:
 * the rows of the set scored so far, and the number of them that the model classified correctly. */
typedef void mst_evaluation_progress(void *arg, uint64_t rows, uint64_t correct);

typedef struct mst_evaluator_options {
    unsigned n_threads;
    uint32_t batch;       /* rows computed at a time */
    uint64_t split_every; /* batches end at multiples of so many rows, for progress; 0: anywhere */
    uint64_t first_rows;  /* 0: all */
    uint64_t valid_seed;  /* of the hold-out, with keep and held_out */
    double held_out;
    mst_feed_keep keep;
    const char *auc_by;      /* field of the grouped AUC (auc.h), a number or a name; NULL or "-1": none */
    bool strict_features;    /* a feature that the model lacks is MST_EINPUT; else it counts as 0 */
    bool finite_scores;      /* a score that is not finite is MST_EINPUT; else the loss is infinite */
    const atomic_bool *stop; /* or NULL */
    const mst_augment
        *augment; /* augmentation of the rows, as in prediction; must outlive the evaluator; or NULL */
} mst_evaluator_options;

/* Model, params and dataset must outlive the evaluator, which uses the dataset alone. params NULL: weights
 * are given to mst_evaluator_run_on. */
mst_status mst_evaluator_new(const mst_model *model, const mst_params *params, mst_dataset *dataset,
                             const mst_evaluator_options *options, mst_evaluator **out);
void mst_evaluator_destroy(mst_evaluator *self); /* NULL-safe */

/* From the next evaluation on; NULL: no callback. */
void mst_evaluator_on_progress(mst_evaluator *self, mst_evaluation_progress *progress, void *arg);

/* Evaluates the parameters as they are; no thread may write them meanwhile. */
mst_status mst_evaluator_run(mst_evaluator *self, mst_result *out);

/* Translates the keys of a batch: writes to rows (as many as the batch has) and keys (as many as all its rows
 * have). Any number of threads at once. */
typedef void mst_row_translation(const void *arg, const mst_batch *batch, mst_row *rows, uint32_t *keys);

/* Evaluates given weights, on rows translated for them (NULL: unchanged). */
mst_status mst_evaluator_run_on(mst_evaluator *self, const mst_weights *weights,
                                mst_row_translation *translate, const void *arg, mst_result *out);

/* Passes every batch of the set to `visit`, one at a time, in no particular order. *n_rows: their rows. */
typedef void mst_batch_visit(void *arg, const mst_batch *batch);
mst_status mst_evaluator_visit(mst_evaluator *self, mst_batch_visit *visit, void *arg, uint64_t *n_rows);

/* The longest dense prefix of a row of the set, within the features of the model. */
uint32_t mst_evaluator_dense(const mst_evaluator *self);

/* The name of the data set, for messages. */
const char *mst_evaluator_name(const mst_evaluator *self);

#endif
