/* Scores of rows by many threads on one model: the memory of a prediction, kept for the next one. Shared by
 * the public interface and `muster serve`.
 *
 * A thread takes a scorer, fills its rows, runs it, reads the scores and gives it back. The model and its
 * weights do not change meanwhile. Any thread; waits for the mutex of the list alone. */
#ifndef MST_TRAIN_SCORER_H
#define MST_TRAIN_SCORER_H

#include <pthread.h>

#include "train/assembly.h"

#define MST_SCORER_ROWS 128 /* at a time */

typedef struct mst_scorer {
    struct mst_scorer *next;
    unsigned n_threads; /* of the scratch */
    void *scratch;
    float *scores; /* MST_SCORER_ROWS x n_scores */
    mst_row rows[MST_SCORER_ROWS];
    float *images;  /* as many, augmented; or NULL */
    uint32_t *ramp; /* 0, 1, 2, ...: keys of dense numbers beyond the model's prefix; or NULL */
    float *numbers; /* bytes as numbers, of all rows; or NULL */
    size_t ramp_size, number_capacity;
} mst_scorer;

typedef struct mst_scorers {
    const mst_model *model;
    mst_weights weights;
    const mst_augment *augment; /* of images, without its random part; any false: none */
    pthread_mutex_t mutex;
    mst_scorer *free; /* those not in use; guarded by mutex */
} mst_scorers;

/* Model, weights and augmentation must outlive it. */
void mst_scorers_init(mst_scorers *self, const mst_assembly *assembly, const mst_augment *augment);
void mst_scorers_fini(mst_scorers *self); /* zeroes are fine; all scorers are given back */

/* A scorer whose scratch has n_threads (1, unless mst_model_threads). */
mst_status mst_scorers_take(mst_scorers *self, unsigned n_threads, mst_scorer **out);
void mst_scorers_give_back(mst_scorers *self, mst_scorer *scorer); /* NULL-safe */

/* Scores the first n rows, which the caller has checked. If a linear model has a shorter dense prefix than a
 * row without keys, the numbers beyond it are read as keys. */
mst_status mst_scorers_run(const mst_scorers *self, mst_scorer *scorer, uint32_t n);

#endif
