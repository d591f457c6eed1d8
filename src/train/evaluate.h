/* Evaluation: the model's loss, accuracy and AUC over a data set, by several threads. On the weights of a
 * store, or on weights that were pulled from somewhere, with keys translated to where they stand
 * (pulled_eval.h). */
#ifndef MST_TRAIN_EVALUATE_H
#define MST_TRAIN_EVALUATE_H

#include "data/feed.h"
#include "train/eval_counters.h"

typedef struct mst_evaluator mst_evaluator;

/* Told after every batch that an evaluation scores, one call at a time, on a scoring thread, in the order of
 * rows: the first rows of the set, and those of them that the model got right. */
typedef void mst_evaluation_progress(void *arg, uint64_t rows, uint64_t correct);

typedef struct mst_evaluator_options {
    unsigned n_threads;
    uint32_t batch;      /* rows computed at a time */
    uint64_t cut_every;  /* batches end at multiples of so many rows, whose progress is told; 0: anywhere */
    uint64_t first_rows; /* 0: all */
    uint64_t valid_seed; /* of the hold-out, with keep and held_out */
    double held_out;
    mst_feed_keep keep;
    bool strict_features;    /* a feature that the model does not have is MST_EINPUT; else it counts as 0 */
    const atomic_bool *stop; /* or NULL */
    const mst_augment *augment; /* what is done to rows, as in prediction; must outlive it; or NULL */
} mst_evaluator_options;

/* Model and params must outlive it, and so must the dataset, which serves nobody else. params NULL: weights
 * are given to mst_evaluator_run_on. */
mst_status mst_evaluator_new(const mst_model *model, const mst_params *params, mst_dataset *dataset,
                             const mst_evaluator_options *options, mst_evaluator **out);
void mst_evaluator_destroy(mst_evaluator *self); /* NULL-safe */

/* From the next evaluation on; NULL: nobody is told. */
void mst_evaluator_watch(mst_evaluator *self, mst_evaluation_progress *progress, void *arg);

/* Evaluates the parameters as they are; nobody may write them meanwhile. */
mst_status mst_evaluator_run(mst_evaluator *self, mst_result *out);

/* Rows of a batch with other keys: rows (as many as the batch has) and keys (as many as all its rows have)
 * receive them. Any number of threads at once. */
typedef void mst_row_translation(const void *arg, const mst_batch *batch, mst_row *rows, uint32_t *keys);

/* Evaluates given weights, on rows translated for them (NULL: as they are). */
mst_status mst_evaluator_run_on(mst_evaluator *self, const mst_weights *weights,
                                mst_row_translation *translate, const void *arg, mst_result *out);

/* Shows every batch that an evaluation scores to `visit`, one at a time, in no particular order. *n_rows: how
 * many rows that were. */
typedef void mst_batch_visit(void *arg, const mst_batch *batch);
mst_status mst_evaluator_visit(mst_evaluator *self, mst_batch_visit *visit, void *arg, uint64_t *n_rows);

/* The most dense features that a row of the set has, of those that the model has. */
uint32_t mst_evaluator_dense(const mst_evaluator *self);

/* The data set's name, for sentences. */
const char *mst_evaluator_name(const mst_evaluator *self);

#endif
