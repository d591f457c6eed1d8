/* Evaluation counts; contract in tally.h. */
#include "train/tally.h"

#include <math.h>
#include <string.h>

#define PART       4294967296.0 /* 2^32 */
#define BATCH_MOST 1e15         /* of one batch's loss; 18,000 such batches fit */

void mst_tally_init(mst_tally *tally, const mst_model *model)
{
    memset(tally, 0, sizeof *tally);
    tally->binary = model->n_scores == 1;
    tally->many = model->n_scores > 5;
    mst_auc_init(&tally->auc);
}

void mst_tally_fini(mst_tally *tally)
{
    mst_auc_fini(&tally->auc);
}

void mst_tally_clear(mst_tally *tally)
{
    tally->loss.whole = tally->loss.part = 0;
    tally->weight.whole = tally->weight.part = 0;
    tally->beyond = false;
    tally->rows = 0;
    tally->correct = 0;
    tally->among5 = 0;
    mst_auc_clear(&tally->auc);
}

/* False, with nothing added, when the value is none or too large. */
static bool fixed_add(mst_fixed_sum *sum, double value)
{
    if (!(value >= 0.0 && value <= BATCH_MOST))
        return false;
    double whole = floor(value);
    atomic_fetch_add_explicit(&sum->whole, (uint64_t)whole, memory_order_relaxed);
    atomic_fetch_add_explicit(&sum->part, (uint64_t)((value - whole) * PART), memory_order_relaxed);
    return true;
}

static double fixed_value(const mst_fixed_sum *sum)
{
    return (double)sum->whole + (double)sum->part / PART;
}

static uint64_t count_binary(const mst_batch *batch, const float *scores)
{
    uint64_t correct = 0;
    for (uint32_t i = 0; i < batch->n_rows; i++)
        correct += (scores[i] > 0.0f) == mst_label_positive(batch->rows[i].label);
    return correct;
}

static uint64_t count_classes(const mst_batch *batch, const float *scores, uint32_t classes)
{
    uint64_t correct = 0;
    for (uint32_t i = 0; i < batch->n_rows; i++, scores += classes) {
        uint32_t best = 0;
        for (uint32_t c = 1; c < classes; c++)
            best = scores[c] > scores[best] ? c : best;
        correct += best == mst_label_class(batch->rows[i].label);
    }
    return correct;
}

/* Rows for whose class fewer than 5 others stand before it: those with a higher score, and of equal ones the
 * lower numbers, as when the best one is chosen. */
static uint64_t count_among5(const mst_batch *batch, const float *scores, uint32_t classes)
{
    uint64_t hits = 0;
    for (uint32_t i = 0; i < batch->n_rows; i++, scores += classes) {
        uint32_t label = mst_label_class(batch->rows[i].label), before = 0;
        if (label >= classes)
            continue;
        for (uint32_t c = 0; c < label; c++)
            before += !(scores[c] < scores[label]); /* counts where either is NAN */
        for (uint32_t c = label + 1; c < classes; c++)
            before += !(scores[c] <= scores[label]);
        hits += before < 5;
    }
    return hits;
}

uint64_t mst_tally_add(mst_tally *tally, const mst_model *model, const mst_batch *batch, const float *scores)
{
    double loss = 0.0, weight = 0.0;
    uint64_t correct;
    if (model->n_scores == 1) {
        /* test rows count once, whatever weight training gives to positives */
        loss = model->kernels->logistic_loss(batch->rows, batch->n_rows, scores, 1.0f);
        correct = count_binary(batch, scores);
        mst_auc_add(&tally->auc, batch, scores);
    } else {
        loss = model->kernels->softmax_loss(batch->rows, batch->n_rows, model->n_scores, scores);
        correct = count_classes(batch, scores, model->n_scores);
    }
    if (tally->many)
        atomic_fetch_add_explicit(&tally->among5, count_among5(batch, scores, model->n_scores),
                                  memory_order_relaxed);
    for (uint32_t i = 0; i < batch->n_rows; i++)
        weight += (double)batch->rows[i].weight;
    for (size_t i = 0; i < (size_t)batch->n_rows * model->n_scores; i++)
        loss += scores[i] * 0.0f; /* NAN unless finite, whatever the loss of such a score is */
    if (!fixed_add(&tally->loss, loss) || !fixed_add(&tally->weight, weight))
        atomic_store_explicit(&tally->beyond, true, memory_order_relaxed);
    atomic_fetch_add_explicit(&tally->rows, batch->n_rows, memory_order_relaxed);
    atomic_fetch_add_explicit(&tally->correct, correct, memory_order_relaxed);
    return correct;
}

void mst_tally_result(mst_tally *tally, mst_result *out)
{
    double rows = (double)tally->rows, weight = fixed_value(&tally->weight);
    out->rows = tally->rows;
    out->loss = weight > 0.0 ? fixed_value(&tally->loss) / weight : (double)NAN;
    if (tally->beyond)
        out->loss = INFINITY;
    out->accuracy = rows > 0 ? (double)tally->correct / rows : (double)NAN;
    out->top5 = tally->many && rows > 0 ? (double)tally->among5 / rows : (double)NAN;
    out->auc = tally->binary ? mst_auc_value(&tally->auc) : (double)NAN;
}
