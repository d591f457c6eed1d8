/* Counters of an evaluation: loss, correct rows, AUC and calibration of binary models, top-5 accuracy of many
 * classes. Threads may add in any order with the same result bit for bit: losses are added as fixed-point
 * numbers per batch. */
#ifndef MST_TRAIN_EVAL_COUNTERS_H
#define MST_TRAIN_EVAL_COUNTERS_H

#include <jansson.h>
#include <stdatomic.h>

#include "model/model.h"
#include "train/auc.h"

/* A sum of doubles in fixed point: its value is whole + part / 2^32. */
typedef struct mst_fixed_sum {
    atomic_uint_fast64_t whole, part;
} mst_fixed_sum;

typedef struct mst_eval_counters {
    /* Written by several threads: */
    mst_fixed_sum loss, weight;
    mst_fixed_sum predicted, observed; /* binary: probabilities and positive labels of weighted rows */
    atomic_bool beyond;                /* the loss of a batch was infinite, NAN or too large for the sum */
    atomic_uint_fast64_t rows, correct, among5;
    bool binary; /* there is an AUC */
    bool many;   /* more than 5 classes: there is a top-5 accuracy */
    mst_auc auc;
} mst_eval_counters;

/* NAN if a figure does not apply (AUC of a multi-class model, of one class only, or of too many rows). The
 * loss of weights that have diverged is INFINITY. */
typedef struct mst_result {
    uint64_t rows;
    double loss, accuracy, auc;
    double grouped_auc; /* mean of the AUCs of groups, weighted by rows (auc.h) */
    double calibration; /* mean predicted probability / share of positive rows, of weighted rows */
    /* Loss / entropy of the base rate, -p ln p - (1 - p) ln (1 - p) with the share p of positive rows: 1 for
     * a model that always predicts p. Relative information is 1 minus it. */
    double normalised_entropy;
    double top5;     /* share of rows whose class has one of the 5 highest scores; with more than 5 classes */
    double seconds;  /* duration of the evaluation */
    uint64_t unseen; /* rows with features that the model lacks, which counted as 0 */
    uint64_t skipped; /* malformed rows that were left out (mst_dataset_skipped) */
    uint64_t groups, groups_left_out, rows_left_out; /* of grouped_auc (auc.h) */
    uint32_t n_tenths;
    mst_auc_tenth tenths[MST_AUC_TENTHS]; /* calibration by tenths of the rows, lowest scores first */
} mst_result;

/* The figures of a result with their names in files and JSON, in the order of tables; name NULL: the end. */
typedef struct mst_result_figure {
    const char *name;
    size_t offset;
} mst_result_figure;
extern const mst_result_figure mst_result_figures[];
static inline double mst_result_value(const mst_result *result, const mst_result_figure *figure)
{
    return *(const double *)((const char *)result + figure->offset);
}

/* auc_by: the field of grouped_auc; -1: none. */
void mst_eval_counters_init(mst_eval_counters *counters, const mst_model *model, int64_t auc_by);
void mst_eval_counters_fini(mst_eval_counters *counters);
void mst_eval_counters_clear(mst_eval_counters *counters);

/* Adds a batch with the model's scores (n_rows x n_scores); returns the number of correct rows. If the
 * keys of the batch are translated, `keyed` has the same rows with the keys of the data; else NULL. Any
 * number of threads at once. */
uint64_t mst_eval_counters_add(mst_eval_counters *counters, const mst_model *model, const mst_batch *batch,
                               const mst_batch *keyed, const float *scores);

/* No thread may add meanwhile. */
void mst_eval_counters_result(mst_eval_counters *counters, mst_result *out);

/* A result in messages and manifests: "rows", "seconds", the figures, "unseen", "skipped",
 * "calibration_tenths"
 * ([rows, predicted, observed] each), "groups", "groups_left_out" and "rows_left_out", of these what applies.
 * An infinite loss is "inf". New reference or NULL. The reverse: false, with 0 rows, for anything else (a set
 * that does not exist). */
json_t *mst_result_json(const mst_result *result);
bool mst_result_from_json(const json_t *json, mst_result *out);

#endif
