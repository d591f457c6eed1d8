/* Counters of an evaluation; contract in eval_counters.h. */
#include "train/eval_counters.h"

#include <math.h>
#include <string.h>

#define PART       4294967296.0 /* 2^32 */
#define BATCH_MOST 1e15         /* of the loss of one batch; 18,000 such batches fit */

void mst_eval_counters_init(mst_eval_counters *counters, const mst_model *model)
{
    memset(counters, 0, sizeof *counters);
    counters->binary = model->n_scores == 1;
    counters->many = model->n_scores > 5;
    mst_auc_init(&counters->auc);
}

void mst_eval_counters_fini(mst_eval_counters *counters)
{
    mst_auc_fini(&counters->auc);
}

void mst_eval_counters_clear(mst_eval_counters *counters)
{
    counters->loss.whole = counters->loss.part = 0;
    counters->weight.whole = counters->weight.part = 0;
    counters->beyond = false;
    counters->rows = 0;
    counters->correct = 0;
    counters->among5 = 0;
    mst_auc_clear(&counters->auc);
}

/* False, with nothing added, if the value is NAN or too large. */
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

/* Counts rows for whose class fewer than 5 others rank higher: those with a higher score, and of equal scores
 * those with lower numbers, as in the choice of the best one. */
static uint64_t count_among5(const mst_batch *batch, const float *scores, uint32_t classes)
{
    uint64_t hits = 0;
    for (uint32_t i = 0; i < batch->n_rows; i++, scores += classes) {
        uint32_t label = mst_label_class(batch->rows[i].label), before = 0;
        if (label >= classes)
            continue;
        for (uint32_t c = 0; c < label; c++)
            before += !(scores[c] < scores[label]); /* also if either is NAN */
        for (uint32_t c = label + 1; c < classes; c++)
            before += !(scores[c] <= scores[label]);
        hits += before < 5;
    }
    return hits;
}

uint64_t mst_eval_counters_add(mst_eval_counters *counters, const mst_model *model, const mst_batch *batch,
                               const float *scores)
{
    double loss = 0.0, weight = 0.0;
    uint64_t correct = mst_count_correct(batch, scores, model->n_scores);
    if (model->n_scores == 1) {
        /* test rows count once, also where training weights positives */
        loss = model->kernels->logistic_loss(batch->rows, batch->n_rows, scores, 1.0f);
        mst_auc_add(&counters->auc, batch, scores);
    } else {
        loss = model->kernels->softmax_loss(batch->rows, batch->n_rows, model->n_scores, scores);
    }
    if (counters->many)
        atomic_fetch_add_explicit(&counters->among5, count_among5(batch, scores, model->n_scores),
                                  memory_order_relaxed);
    for (uint32_t i = 0; i < batch->n_rows; i++)
        weight += (double)batch->rows[i].weight;
    for (size_t i = 0; i < (size_t)batch->n_rows * model->n_scores; i++)
        loss += scores[i] * 0.0f; /* NAN unless the score is finite */
    if (!fixed_add(&counters->loss, loss) || !fixed_add(&counters->weight, weight))
        atomic_store_explicit(&counters->beyond, true, memory_order_relaxed);
    atomic_fetch_add_explicit(&counters->rows, batch->n_rows, memory_order_relaxed);
    atomic_fetch_add_explicit(&counters->correct, correct, memory_order_relaxed);
    return correct;
}

void mst_eval_counters_result(mst_eval_counters *counters, mst_result *out)
{
    double rows = (double)counters->rows, weight = fixed_value(&counters->weight);
    out->rows = counters->rows;
    out->loss = weight > 0.0 ? fixed_value(&counters->loss) / weight : (double)NAN;
    if (counters->beyond)
        out->loss = INFINITY;
    out->accuracy = rows > 0 ? (double)counters->correct / rows : (double)NAN;
    out->top5 = counters->many && rows > 0 ? (double)counters->among5 / rows : (double)NAN;
    out->auc = counters->binary ? mst_auc_value(&counters->auc) : (double)NAN;
}

/* ---- results as JSON ---- */

static json_t *result_figure_json(double value)
{
    if (isnan(value))
        return json_null();
    return isinf(value) ? json_string("inf") : json_real(value);
}

static double result_figure(const json_t *json)
{
    if (json_is_number(json))
        return json_number_value(json);
    return json_is_string(json) ? (double)INFINITY : (double)NAN;
}

json_t *mst_result_json(const mst_result *result)
{
    return json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "rows", (json_int_t)result->rows, "unseen",
                     (json_int_t)result->unseen, "loss", result_figure_json(result->loss), "accuracy",
                     result_figure_json(result->accuracy), "auc", result_figure_json(result->auc), "top5",
                     result_figure_json(result->top5), "seconds", result_figure_json(result->seconds));
}

bool mst_result_from_json(const json_t *json, mst_result *out)
{
    *out = (mst_result){0};
    json_int_t rows = json_integer_value(json_object_get(json, "rows"));
    if (rows <= 0)
        return false;
    json_int_t unseen = json_integer_value(json_object_get(json, "unseen"));
    out->rows = (uint64_t)rows;
    out->unseen = unseen > 0 && unseen <= rows ? (uint64_t)unseen : 0;
    out->loss = result_figure(json_object_get(json, "loss"));
    out->accuracy = result_figure(json_object_get(json, "accuracy"));
    out->auc = result_figure(json_object_get(json, "auc"));
    out->top5 = result_figure(json_object_get(json, "top5"));
    out->seconds = result_figure(json_object_get(json, "seconds"));
    return true;
}
