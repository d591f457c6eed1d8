/* Counters of an evaluation; contract in eval_counters.h. */
#include "train/eval_counters.h"

#include <math.h>
#include <string.h>

#define PART       4294967296.0 /* 2^32 */
#define PORTION    1024         /* rows whose probabilities are computed at a time */
#define BATCH_MOST 1e15         /* of the loss of one batch; 18,000 such batches fit */

void mst_eval_counters_init(mst_eval_counters *counters, const mst_model *model, int64_t auc_by)
{
    memset(counters, 0, sizeof *counters);
    counters->binary = model->n_scores == 1;
    counters->many = model->n_scores > 5;
    mst_auc_init(&counters->auc, auc_by);
}

void mst_eval_counters_fini(mst_eval_counters *counters)
{
    mst_auc_fini(&counters->auc);
}

void mst_eval_counters_clear(mst_eval_counters *counters)
{
    counters->loss.whole = counters->loss.part = 0;
    counters->weight.whole = counters->weight.part = 0;
    counters->predicted.whole = counters->predicted.part = 0;
    counters->observed.whole = counters->observed.part = 0;
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

/* The logistic loss of the rows, added to the sums of predicted probabilities and positive labels. A
 * coefficient is weight * (probability - label). */
static double counters_add_binary(mst_eval_counters *counters, const mst_kernels *kernels,
                                  const mst_batch *batch, const float *scores)
{
    double loss = 0.0, excess = 0.0, observed = 0.0;
    for (uint32_t from = 0; from < batch->n_rows; from += PORTION) {
        mst_batch part = mst_batch_range(batch, from, PORTION);
        float coefs[PORTION];
        /* test rows count once, also where training weights positives */
        loss += kernels->logistic(part.rows, part.n_rows, scores + from, 1.0f, coefs);
        for (uint32_t i = 0; i < part.n_rows; i++) {
            excess += (double)coefs[i];
            observed += mst_label_positive(part.rows[i].label) ? (double)part.rows[i].weight : 0.0;
        }
    }
    if (!fixed_add(&counters->predicted, fmax(excess + observed, 0.0)) ||
        !fixed_add(&counters->observed, observed))
        atomic_store_explicit(&counters->beyond, true, memory_order_relaxed);
    return loss;
}

uint64_t mst_eval_counters_add(mst_eval_counters *counters, const mst_model *model, const mst_batch *batch,
                               const mst_batch *keyed, const float *scores)
{
    double loss = 0.0, weight = 0.0;
    uint64_t correct = mst_count_correct(batch, scores, model->n_scores);
    if (model->n_scores == 1) {
        loss = counters_add_binary(counters, model->kernels, batch, scores);
        mst_auc_add(&counters->auc, batch, keyed != NULL ? keyed : batch, scores);
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

/* The figures of weighted rows with these means. */
static void counters_rate(mst_result *out, double predicted, double p)
{
    double entropy = -p * log(p) - (1.0 - p) * log1p(-p); /* NAN for one class */
    if (p > 0.0)
        out->calibration = predicted / p;
    if (entropy > 0.0)
        out->normalised_entropy = out->loss / entropy;
}

static void counters_binary_result(mst_eval_counters *counters, double weight, mst_result *out)
{
    mst_auc_result scores;
    mst_auc_result_of(&counters->auc, &scores);
    out->auc = scores.auc;
    out->grouped_auc = scores.grouped;
    out->groups = scores.groups;
    out->groups_left_out = scores.groups_left_out;
    out->rows_left_out = scores.rows_left_out;
    if (counters->beyond || !(weight > 0.0))
        return;
    out->n_tenths = scores.n_tenths;
    memcpy(out->tenths, scores.tenths, sizeof out->tenths);
    counters_rate(out, fixed_value(&counters->predicted) / weight, fixed_value(&counters->observed) / weight);
}

void mst_eval_counters_result(mst_eval_counters *counters, mst_result *out)
{
    double rows = (double)counters->rows, weight = fixed_value(&counters->weight);
    *out = (mst_result){.rows = counters->rows,
                        .auc = (double)NAN,
                        .grouped_auc = (double)NAN,
                        .calibration = (double)NAN,
                        .normalised_entropy = (double)NAN};
    out->loss = weight > 0.0 ? fixed_value(&counters->loss) / weight : (double)NAN;
    if (counters->beyond)
        out->loss = INFINITY;
    out->accuracy = rows > 0 ? (double)counters->correct / rows : (double)NAN;
    out->top5 = counters->many && rows > 0 ? (double)counters->among5 / rows : (double)NAN;
    if (counters->binary)
        counters_binary_result(counters, weight, out);
}

#define FIELD(name) offsetof(mst_result, name)
const mst_result_figure mst_result_figures[] = {
    {"loss", FIELD(loss)},
    {"accuracy", FIELD(accuracy)},
    {"top5", FIELD(top5)},
    {"auc", FIELD(auc)},
    {"grouped_auc", FIELD(grouped_auc)},
    {"calibration", FIELD(calibration)},
    {"normalised_entropy", FIELD(normalised_entropy)},
    {NULL, 0},
};

/* ---- results as JSON ---- */

static void result_put(json_t *json, const char *name, double value)
{
    if (!isnan(value))
        json_object_set_new(json, name, isinf(value) ? json_string("inf") : json_real(value));
}

static double result_figure(const json_t *json, const char *name)
{
    const json_t *value = json_object_get(json, name);
    if (json_is_number(value))
        return json_number_value(value);
    return json_is_string(value) ? (double)INFINITY : (double)NAN;
}

static const struct {
    const char *name;
    size_t offset;
} result_counts[] = {
    {"unseen", FIELD(unseen)},
    {"skipped", FIELD(skipped)},
    {"groups", FIELD(groups)},
    {"groups_left_out", FIELD(groups_left_out)},
    {"rows_left_out", FIELD(rows_left_out)},
};
#define N_RESULT_COUNTS (sizeof result_counts / sizeof *result_counts)

static json_t *result_tenths_json(const mst_result *result)
{
    json_t *list = json_array();
    for (uint32_t t = 0; t < result->n_tenths; t++) {
        const mst_auc_tenth *tenth = &result->tenths[t];
        json_array_append_new(list, tenth->rows > 0 ? json_pack("[I, f, f]", (json_int_t)tenth->rows,
                                                                tenth->predicted, tenth->observed)
                                                    : json_pack("[i, n, n]", 0));
    }
    return list;
}

static void result_read_tenths(const json_t *list, mst_result *out)
{
    for (size_t t = 0; t < json_array_size(list) && t < MST_AUC_TENTHS; t++) {
        const json_t *tenth = json_array_get(list, t);
        const json_t *rows = json_array_get(tenth, 0), *predicted = json_array_get(tenth, 1),
                     *observed = json_array_get(tenth, 2);
        out->tenths[out->n_tenths++] = (mst_auc_tenth){
            .rows = json_integer_value(rows) > 0 ? (uint64_t)json_integer_value(rows) : 0,
            .predicted = json_is_number(predicted) ? json_number_value(predicted) : (double)NAN,
            .observed = json_is_number(observed) ? json_number_value(observed) : (double)NAN,
        };
    }
}

json_t *mst_result_json(const mst_result *result)
{
    json_t *json = json_pack("{s:I}", "rows", (json_int_t)result->rows);
    for (const mst_result_figure *f = mst_result_figures; f->name != NULL; f++)
        result_put(json, f->name, mst_result_value(result, f));
    result_put(json, "seconds", result->seconds);
    for (size_t i = 0; i < N_RESULT_COUNTS; i++) {
        uint64_t count = *(const uint64_t *)((const char *)result + result_counts[i].offset);
        if (count > 0)
            json_object_set_new(json, result_counts[i].name, json_integer((json_int_t)count));
    }
    if (result->n_tenths > 0)
        json_object_set_new(json, "calibration_tenths", result_tenths_json(result));
    return json;
}

bool mst_result_from_json(const json_t *json, mst_result *out)
{
    *out = (mst_result){0};
    json_int_t rows = json_integer_value(json_object_get(json, "rows"));
    if (rows <= 0)
        return false;
    out->rows = (uint64_t)rows;
    for (size_t i = 0; i < N_RESULT_COUNTS; i++) {
        json_int_t count = json_integer_value(json_object_get(json, result_counts[i].name));
        if (count > 0 && count <= rows)
            *(uint64_t *)((char *)out + result_counts[i].offset) = (uint64_t)count;
    }
    for (const mst_result_figure *f = mst_result_figures; f->name != NULL; f++)
        *(double *)((char *)out + f->offset) = result_figure(json, f->name);
    out->seconds = result_figure(json, "seconds");
    result_read_tenths(json_object_get(json, "calibration_tenths"), out);
    return true;
}
