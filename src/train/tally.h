/* What evaluation counts: loss, hits, and a histogram of scores for the AUC. Sums only, so that threads (and
 * later workers) can count apart and be added in any order with the same result bit for bit: losses are added
 * as fixed-point numbers per batch of rows. */
#ifndef MST_TRAIN_TALLY_H
#define MST_TRAIN_TALLY_H

#include <stdatomic.h>

#include "model/model.h"

/* Scores are put into bins by sign, exponent and the top 11 bits of the mantissa: rows whose margins differ
 * by less than one part in 2048 count as ties. */
#define MST_AUC_BINS (1u << 20)

/* A sum of doubles in fixed point: its value is whole + part / 2^32. */
typedef struct mst_fixed_sum {
    atomic_uint_fast64_t whole, part;
} mst_fixed_sum;

typedef struct mst_tally {
    /* Written by several threads. */
    mst_fixed_sum loss, weight;
    atomic_bool beyond; /* a batch's loss was infinite, NAN or beyond what the sum can take */
    atomic_uint_fast64_t rows, correct;
    _Atomic(uint32_t)
        *bins; /* binary models: MST_AUC_BINS negatives, then as many positives; NULL otherwise */
} mst_tally;

/* NAN where a figure does not apply (AUC of a multi-class model or of one class only); the loss of weights
 * that have grown beyond all bounds is INFINITY. */
typedef struct mst_result {
    uint64_t rows;
    double loss, accuracy, auc;
    double seconds; /* the evaluation took */
} mst_result;

mst_status mst_tally_init(mst_tally *tally, const mst_model *model);
void mst_tally_fini(mst_tally *tally);
void mst_tally_clear(mst_tally *tally);

/* Counts a batch with the model's scores (n_rows x n_scores). Any number of threads at once. */
void mst_tally_add(mst_tally *tally, const mst_model *model, const mst_batch *batch, const float *scores);

void mst_tally_result(const mst_tally *tally, mst_result *out);

#endif
