/* The exact area under the ROC curve: the share of (positive, negative) pairs of rows in which the positive
 * one scores higher; ties count half. Scores are kept, 4 bytes per row, and sorted at the end; the result
 * does not depend on the order in which threads add theirs. */
#ifndef MST_TRAIN_AUC_H
#define MST_TRAIN_AUC_H

#include <pthread.h>
#include <stdbool.h>

#include "tensor/batch.h"

#define MST_AUC_ROWS (1u << 25) /* larger sets have no AUC: 128 MB of scores are enough */

typedef struct mst_auc {
    pthread_mutex_t mutex; /* guards the rest while rows are added */
    uint32_t *keys[2];     /* scores of negatives and positives, as integers in the same order */
    size_t n[2], capacity[2];
    bool beyond; /* too many rows, or out of memory */
} mst_auc;

void mst_auc_init(mst_auc *auc);
void mst_auc_fini(mst_auc *auc);
void mst_auc_clear(mst_auc *auc);

/* Adds rows with their scores; labels above 0 are positive. Any number of threads at once. */
void mst_auc_add(mst_auc *auc, const mst_batch *batch, const float *scores);

/* NAN if all rows are of one class, or there are too many. Sorts in place: no thread may add meanwhile. */
double mst_auc_value(mst_auc *auc);

#endif
