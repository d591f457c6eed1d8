/* The exact area under the ROC curve: the share of (positive, negative) pairs of rows in which the positive
 * one scores higher; ties count half. Scores are kept and sorted at the end; the result does not depend on
 * the order in which threads add theirs. Every row counts once, whatever its weight.
 *
 * The same scores give two more figures:
 *   Grouped AUC: the mean of the AUCs of groups of rows that share a key, weighted by their rows. Groups of
 *     one class have no AUC and are left out, as are rows without a key of the field.
 *   Calibration by tenths: the rows in the order of their scores, in ten parts of equal size; mean predicted
 *     probability and share of positives of each. Rows of equal scores that lie in two parts divide their
 *     positives in proportion. */
#ifndef MST_TRAIN_AUC_H
#define MST_TRAIN_AUC_H

#include <pthread.h>
#include <stdbool.h>

#include "tensor/batch.h"

#define MST_AUC_ROWS     (1u << 25) /* larger sets have none of these figures: 4 bytes a row, with groups 8 */
#define MST_AUC_TENTHS   10
#define MST_AUC_NO_GROUP UINT32_MAX /* of a row without a key of the field; never a key */

typedef struct mst_auc_side {
    uint32_t *keys;  /* scores as integers in the same order; without groups */
    uint64_t *pairs; /* (group, score); with groups */
    size_t n, capacity;
} mst_auc_side;

typedef struct mst_auc {
    pthread_mutex_t mutex; /* guards the rest while rows are added */
    int64_t group_field;   /* -1: no groups */
    mst_auc_side sides[2]; /* negatives, positives */
    bool beyond;           /* too many rows, or out of memory */
} mst_auc;

typedef struct mst_auc_tenth {
    uint64_t rows;
    double predicted, observed; /* means; NAN: no rows */
} mst_auc_tenth;

typedef struct mst_auc_result {
    double auc;     /* NAN if all rows are of one class, or there are too many */
    double grouped; /* NAN without groups that have an AUC */
    uint64_t groups, groups_left_out,
        rows_left_out; /* groups with an AUC; of one class; rows without a key */
    uint32_t n_tenths; /* 0: there are too many rows */
    mst_auc_tenth tenths[MST_AUC_TENTHS];
} mst_auc_result;

/* group_field: the field of the key that rows of a group share (mst_row_field); -1: no groups. */
void mst_auc_init(mst_auc *auc, int64_t group_field);
void mst_auc_fini(mst_auc *auc);
void mst_auc_clear(mst_auc *auc);

/* Adds rows with their scores; labels above 0 are positive. `keyed` are the same rows with the keys of the
 * data, for groups. Any number of threads at once. */
void mst_auc_add(mst_auc *auc, const mst_batch *batch, const mst_batch *keyed, const float *scores);

/* Sorts in place: no thread may add meanwhile. Without memory: as for too many rows. */
void mst_auc_result_of(mst_auc *auc, mst_auc_result *out);

#endif
