/* Graphs of the linear models and factorization machines (contract: onnx.h).
 *
 * Models over keys take rows as lists of (index, value), padded with value 0: Gather takes the row of each
 * key out of the table, and sums over the keys follow. The sums over pairs of keys are those of fm.c, ffm.c
 * and fwfm.c, with the sums per field s_f, P_fg as products with a matrix of zeros and ones. Equal keys that
 * follow each other count as one feature (factor_model.h), so its own product is that of their sums:
 *
 *   fm    1/2 (|sum_i t_i|^2 - sum_i |t_i|^2), t_i = v_i x_i
 *   fwfm  1/2 (sum_fg r_fg s_f . s_g - sum_i r_f(i)f(i) |t_i|^2)
 *   ffm   1/2 (sum_fg P_fg . P_gf - sum_i |t_i,f(i)|^2), P_fg = sum of t_i,g over the keys i of field f */
#include "model/onnx.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "model/factor_model.h"
#include "model/layer.h"

static const char sparse_text[] = "indices [N, K] and values [N, K]: the features of each row, padded with "
                                  "value 0";
static const char fields_text[] =
    "; fields [N, K]: the field of each feature, numbered from 0, dense features included";

static const mst_view *onnx_view(const mst_params *params, const char *name)
{
    for (uint32_t i = 0; i < params->n_views; i++)
        if (strcmp(params->views[i].name, name) == 0)
            return &params->views[i];
    return NULL;
}

/* A view as a tensor with other dimensions. */
static mst_onnx_name onnx_reshaped(mst_onnx_graph *g, const mst_params *params, const mst_view *view,
                                   uint32_t n_dims, const uint64_t *dims)
{
    return mst_onnx_weights(g, view->name, n_dims, dims, params->w + view->offset);
}

static mst_onnx_name onnx_sum(mst_onnx_graph *g, const mst_onnx_name *x, int64_t axis, bool keep)
{
    mst_onnx_name axes = mst_onnx_integers(g, 1, &axis);
    return mst_onnx_call(g, "ReduceSum", keep ? "keepdims=i1" : "keepdims=i0", "%s,%s", x->text, axes.text);
}

mst_onnx_name mst_onnx_terms(mst_onnx_graph *self, const char *table, const char *values)
{
    mst_onnx_name last = mst_onnx_integers(self, 1, (int64_t[]){-1});
    mst_onnx_name rows = mst_onnx_call(self, "Gather", "axis=i0", "%s,indices", table);
    mst_onnx_name x = mst_onnx_call(self, "Unsqueeze", "", "%s,%s", values, last.text);
    return mst_onnx_call(self, "Mul", "", "%s,%s", rows.text, x.text);
}

mst_onnx_name mst_onnx_by_field(mst_onnx_graph *self, uint32_t n_fields, uint32_t first)
{
    mst_onnx_name none = {.text = ""}, last = mst_onnx_integers(self, 1, (int64_t[]){-1});
    int64_t *numbers = mst_alloc(n_fields * sizeof *numbers + 1);
    if (numbers == NULL) {
        self->failed = true;
        return none;
    }
    for (uint32_t f = 0; f < n_fields; f++)
        numbers[f] = (int64_t)first + f;
    mst_onnx_name all = mst_onnx_integers(self, n_fields, numbers);
    mst_free(numbers);
    mst_onnx_name column = mst_onnx_call(self, "Unsqueeze", "", "fields,%s", last.text);
    mst_onnx_name equal = mst_onnx_call(self, "Equal", "", "%s,%s", column.text, all.text); /* [N, K, F] */
    mst_onnx_name ones = mst_onnx_call(self, "Cast", "to=i1", "%s", equal.text);
    return mst_onnx_call(self, "Transpose", "perm=I0,2,1", "%s", ones.text);
}

/* Columns [from, to) of the last axis of a tensor of three. */
static mst_onnx_name onnx_columns(mst_onnx_graph *g, const mst_onnx_name *x, int64_t from, int64_t to)
{
    mst_onnx_name a = mst_onnx_integers(g, 1, &from), b = mst_onnx_integers(g, 1, &to);
    mst_onnx_name axis = mst_onnx_integers(g, 1, (int64_t[]){2});
    return mst_onnx_call(g, "Slice", "", "%s,%s,%s,%s", x->text, a.text, b.text, axis.text);
}

/* Half of a - b, summed over the axes from 1 on. */
static mst_onnx_name onnx_half(mst_onnx_graph *g, const mst_onnx_name *a, const mst_onnx_name *b)
{
    mst_onnx_name difference = mst_onnx_call(g, "Sub", "", "%s,%s", a->text, b->text);
    mst_onnx_name half = mst_onnx_number(g, 0.5);
    return mst_onnx_call(g, "Mul", "", "%s,%s", difference.text, half.text);
}

/* [N, K, K] of 0 and 1: whether two entries of a row are in one run of equal keys, which counts as one
 * feature with the sum of the values. A run is a number: how often the key, or the field, changes before it.
 */
static mst_onnx_name onnx_same(mst_onnx_graph *g, bool fields)
{
    static const char *const names[] = {"indices", "fields"};
    mst_onnx_name zero = mst_onnx_integers(g, 1, (int64_t[]){0}),
                  one = mst_onnx_integers(g, 1, (int64_t[]){1}),
                  last = mst_onnx_integers(g, 1, (int64_t[]){-1}), equal = {.text = ""};
    for (int i = 0; i < 1 + fields; i++) {
        mst_onnx_name first =
            mst_onnx_call(g, "Slice", "", "%s,%s,%s,%s", names[i], zero.text, one.text, one.text);
        mst_onnx_name rest =
            mst_onnx_call(g, "Slice", "", "%s,%s,%s,%s", names[i], zero.text, last.text, one.text);
        mst_onnx_name before = mst_onnx_call(g, "Concat", "axis=i1", "%s,%s", first.text, rest.text);
        mst_onnx_name now = mst_onnx_call(g, "Equal", "", "%s,%s", names[i], before.text);
        equal = i == 0 ? now : mst_onnx_call(g, "And", "", "%s,%s", equal.text, now.text);
    }
    mst_onnx_name changes = mst_onnx_call(g, "Not", "", "%s", equal.text);
    mst_onnx_name steps = mst_onnx_call(g, "Cast", "to=i7", "%s", changes.text);
    mst_onnx_name run = mst_onnx_call(g, "CumSum", "", "%s,%s", steps.text, one.text);
    mst_onnx_name column = mst_onnx_call(g, "Unsqueeze", "", "%s,%s", run.text, last.text);
    mst_onnx_name row = mst_onnx_call(g, "Unsqueeze", "", "%s,%s", run.text, one.text);
    mst_onnx_name same = mst_onnx_call(g, "Equal", "", "%s,%s", column.text, row.text);
    return mst_onnx_call(g, "Cast", "to=i1", "%s", same.text);
}

/* The products of each entry's vector [N, K, k] with the vector of its feature: [N, K]. */
static mst_onnx_name onnx_own(mst_onnx_graph *g, const mst_onnx_name *same, const mst_onnx_name *t)
{
    mst_onnx_name features = mst_onnx_call(g, "MatMul", "", "%s,%s", same->text, t->text);
    mst_onnx_name products = mst_onnx_call(g, "Mul", "", "%s,%s", t->text, features.text);
    return onnx_sum(g, &products, 2, false);
}

static mst_onnx_name onnx_fm(mst_onnx_graph *g, const mst_onnx_name *same, const mst_onnx_name *factors)
{
    mst_onnx_name sums = onnx_sum(g, factors, 1, false); /* [N, k] */
    mst_onnx_name all = mst_onnx_call(g, "ReduceSumSquare", "axes=I1 keepdims=i0", "%s", sums.text);
    mst_onnx_name own = onnx_own(g, same, factors), each = onnx_sum(g, &own, 1, false);
    return onnx_half(g, &all, &each);
}

static mst_onnx_name onnx_fwfm(mst_onnx_graph *g, const mst_params *params, uint32_t n_fields,
                               const mst_onnx_name *same, const mst_onnx_name *factors)
{
    mst_onnx_name none = {.text = ""};
    const mst_view *pairs = onnx_view(params, "field_pairs");
    float *r = mst_zalloc(((size_t)n_fields * n_fields + n_fields) * sizeof *r + 1);
    if (r == NULL || pairs == NULL) {
        mst_free(r);
        g->failed = true;
        return none;
    }
    const float *w = params->w + pairs->offset;
    float *own = r + (size_t)n_fields * n_fields;
    for (uint32_t i = 0; i < n_fields; i++)
        for (uint32_t j = i; j < n_fields; j++, w++)
            r[(size_t)i * n_fields + j] = r[(size_t)j * n_fields + i] = *w;
    for (uint32_t i = 0; i < n_fields; i++)
        own[i] = r[(size_t)i * n_fields + i];
    mst_onnx_name matrix = mst_onnx_floats(g, 2, (uint64_t[]){n_fields, n_fields}, r);
    mst_onnx_name diagonal = mst_onnx_floats(g, 1, (uint64_t[]){n_fields}, own);
    mst_free(r);
    mst_onnx_name by_field = mst_onnx_by_field(g, n_fields, 0);
    mst_onnx_name sums =
        mst_onnx_call(g, "MatMul", "", "%s,%s", by_field.text, factors->text); /* [N, F, k] */
    mst_onnx_name weighted = mst_onnx_call(g, "MatMul", "", "%s,%s", matrix.text, sums.text);
    mst_onnx_name products = mst_onnx_call(g, "Mul", "", "%s,%s", sums.text, weighted.text);
    mst_onnx_name axes = mst_onnx_integers(g, 2, (int64_t[]){1, 2});
    mst_onnx_name all = mst_onnx_call(g, "ReduceSum", "keepdims=i0", "%s,%s", products.text, axes.text);
    mst_onnx_name squares = onnx_own(g, same, factors); /* [N, K] */
    mst_onnx_name rates = mst_onnx_call(g, "Gather", "axis=i0", "%s,fields", diagonal.text);
    mst_onnx_name own_products = mst_onnx_call(g, "Mul", "", "%s,%s", squares.text, rates.text);
    mst_onnx_name each = onnx_sum(g, &own_products, 1, false);
    return onnx_half(g, &all, &each);
}

static mst_onnx_name onnx_ffm(mst_onnx_graph *g, uint32_t n_fields, uint32_t factors,
                              const mst_onnx_name *same, const mst_onnx_name *terms)
{
    mst_onnx_name by_field = mst_onnx_by_field(g, n_fields, 0);
    mst_onnx_name sums =
        mst_onnx_call(g, "MatMul", "", "%s,%s", by_field.text, terms->text); /* [N, F, F k] */
    mst_onnx_name shape = mst_onnx_integers(g, 4, (int64_t[]){-1, n_fields, n_fields, factors});
    mst_onnx_name p = mst_onnx_call(g, "Reshape", "", "%s,%s", sums.text, shape.text);
    mst_onnx_name turned = mst_onnx_call(g, "Transpose", "perm=I0,2,1,3", "%s", p.text);
    mst_onnx_name products = mst_onnx_call(g, "Mul", "", "%s,%s", p.text, turned.text);
    mst_onnx_name axes = mst_onnx_integers(g, 3, (int64_t[]){1, 2, 3});
    mst_onnx_name all = mst_onnx_call(g, "ReduceSum", "keepdims=i0", "%s,%s", products.text, axes.text);
    /* t_i,f(i): the part of each key for its own field */
    mst_onnx_name split = mst_onnx_integers(g, 4, (int64_t[]){0, 0, n_fields, factors});
    mst_onnx_name parts =
        mst_onnx_call(g, "Reshape", "", "%s,%s", terms->text, split.text); /* [N, K, F, k] */
    mst_onnx_name back = mst_onnx_call(g, "Transpose", "perm=I0,2,1", "%s", by_field.text);
    mst_onnx_name last = mst_onnx_integers(g, 1, (int64_t[]){-1});
    mst_onnx_name mask = mst_onnx_call(g, "Unsqueeze", "", "%s,%s", back.text, last.text);
    mst_onnx_name masked = mst_onnx_call(g, "Mul", "", "%s,%s", parts.text, mask.text);
    mst_onnx_name part = onnx_sum(g, &masked, 2, false);
    mst_onnx_name own = onnx_own(g, same, &part), each = onnx_sum(g, &own, 1, false);
    return onnx_half(g, &all, &each);
}

/* Adds the bias, if the model has one. */
static mst_onnx_name onnx_bias(mst_onnx_graph *g, const mst_params *params, const mst_onnx_name *x)
{
    const mst_view *bias = onnx_view(params, "bias");
    if (bias == NULL)
        return *x;
    mst_onnx_name b = onnx_reshaped(g, params, bias, 1, bias->dims);
    return mst_onnx_call(g, "Add", "", "%s,%s", x->text, b.text);
}

static void onnx_keys(mst_onnx_graph *g, bool fields)
{
    mst_onnx_input(g, "indices", true, "N,K");
    mst_onnx_input(g, "values", false, "N,K");
    if (fields)
        mst_onnx_input(g, "fields", true, "N,K");
}

/* The values of a row, scaled to length 1 with --row-norm. */
static mst_onnx_name onnx_values(mst_onnx_graph *g, const mst_onnx_name *same, bool norm)
{
    mst_onnx_name values = {.text = "values"};
    if (!norm)
        return values;
    mst_onnx_name least = mst_onnx_number(g, 1e-30), last = mst_onnx_integers(g, 1, (int64_t[]){-1});
    mst_onnx_name column = mst_onnx_call(g, "Unsqueeze", "", "values,%s", last.text);
    mst_onnx_name own = onnx_own(g, same, &column), square = onnx_sum(g, &own, 1, true);
    mst_onnx_name above = mst_onnx_call(g, "Max", "", "%s,%s", square.text, least.text);
    mst_onnx_name length = mst_onnx_call(g, "Sqrt", "", "%s", above.text);
    return mst_onnx_call(g, "Div", "", "values,%s", length.text);
}

/* The scores of a factorization machine: [N]. */
static mst_onnx_name onnx_factor_scores(mst_onnx_graph *g, const mst_model *model, const mst_params *params)
{
    const mst_view *weight = onnx_view(params, "weight");
    bool fields = mst_model_has(model->ops, MST_MODEL_FIELDS), by_pair = strcmp(model->ops->name, "ffm") == 0;
    int64_t width = (int64_t)weight->dims[1];
    onnx_keys(g, fields);
    mst_onnx_name same = onnx_same(g, fields), values = onnx_values(g, &same, model->options.row_norm);
    mst_onnx_name table = onnx_reshaped(g, params, weight, 2, weight->dims);
    mst_onnx_name terms = mst_onnx_terms(g, table.text, values.text); /* [N, K, width] */
    mst_onnx_name first = onnx_columns(g, &terms, 0, 1), factors = onnx_columns(g, &terms, 1, width);
    mst_onnx_name axes = mst_onnx_integers(g, 2, (int64_t[]){1, 2});
    mst_onnx_name linear = mst_onnx_call(g, "ReduceSum", "keepdims=i0", "%s,%s", first.text, axes.text);
    mst_onnx_name pairs =
        by_pair  ? onnx_ffm(g, model->shape.n_fields, (uint32_t)model->options.factors, &same, &factors)
        : fields ? onnx_fwfm(g, params, model->shape.n_fields, &same, &factors)
                 : onnx_fm(g, &same, &factors);
    mst_onnx_name sum = mst_onnx_call(g, "Add", "", "%s,%s", linear.text, pairs.text);
    return onnx_bias(g, params, &sum);
}

mst_onnx_name mst_onnx_rows(mst_onnx_graph *self, const mst_onnx_options *options, uint64_t size)
{
    mst_onnx_name x = {.text = "x"};
    char dims[48];
    snprintf(dims, sizeof dims, "N,%llu", (unsigned long long)size);
    mst_onnx_input(self, "x", false, dims);
    if (options->mean == NULL || size % options->n_channels != 0)
        return x;
    uint64_t plane = size / options->n_channels;
    float *numbers = mst_alloc(2 * size * sizeof *numbers);
    if (numbers == NULL) {
        self->failed = true;
        return x;
    }
    for (uint64_t i = 0; i < size; i++) {
        numbers[i] = options->mean[i / plane];
        numbers[size + i] = options->scale[i / plane];
    }
    mst_onnx_name mean = mst_onnx_floats(self, 1, &size, numbers),
                  scale = mst_onnx_floats(self, 1, &size, numbers + size);
    mst_free(numbers);
    mst_onnx_name moved = mst_onnx_call(self, "Sub", "", "x,%s", mean.text);
    return mst_onnx_call(self, "Mul", "", "%s,%s", moved.text, scale.text);
}

/* The scores of logreg and softmax: [N] or [N, classes]. */
static mst_onnx_name onnx_linear_scores(mst_onnx_graph *g, const mst_model *model, const mst_params *params,
                                        const mst_onnx_options *options, bool *dense)
{
    const mst_view *weight = onnx_view(params, "weight");
    const mst_shape *shape = &model->shape;
    bool one = model->n_scores == 1;
    mst_onnx_name scores;
    /* softmax has a row per class in its dense form, a row per feature otherwise */
    bool by_class = !one && weight->dims[0] == shape->n_classes && weight->width == 0;
    *dense = by_class || shape->n_dense == shape->n_features;
    if (*dense) {
        mst_onnx_name x = mst_onnx_rows(g, options, shape->n_features);
        mst_onnx_name w = onnx_reshaped(
            g, params, weight, 2, by_class ? weight->dims : (uint64_t[]){shape->n_features, model->n_scores});
        scores = mst_onnx_call(g, "Gemm", by_class ? "transB=i1" : "", "%s,%s", x.text, w.text);
        if (one) {
            mst_onnx_name flat = mst_onnx_integers(g, 1, (int64_t[]){-1});
            scores = mst_onnx_call(g, "Reshape", "", "%s,%s", scores.text, flat.text);
        }
        return onnx_bias(g, params, &scores);
    }
    onnx_keys(g, false);
    if (one) {
        mst_onnx_name w = onnx_reshaped(g, params, weight, 1, weight->dims);
        mst_onnx_name taken = mst_onnx_call(g, "Gather", "axis=i0", "%s,indices", w.text);
        scores = mst_onnx_call(g, "Mul", "", "%s,values", taken.text);
    } else {
        mst_onnx_name table = onnx_reshaped(g, params, weight, 2, weight->dims);
        scores = mst_onnx_terms(g, table.text, "values");
    }
    scores = onnx_sum(g, &scores, 1, false);
    return onnx_bias(g, params, &scores);
}

/* Scores to probabilities. */
static void onnx_finish(mst_onnx_graph *g, const mst_model *model, const mst_onnx_name *scores)
{
    double kept = model->options.keep_negatives;
    char dims[32];
    if (model->n_scores > 1) {
        mst_onnx_name p = mst_onnx_call(g, "Softmax", "axis=i-1", "%s", scores->text);
        snprintf(dims, sizeof dims, "N,%u", model->n_scores);
        mst_onnx_output(g, &p, "probabilities", dims);
        return;
    }
    mst_onnx_name margin = *scores;
    if (kept > 0.0 && kept < 1.0) {
        mst_onnx_name odds = mst_onnx_number(g, log(kept));
        margin = mst_onnx_call(g, "Add", "", "%s,%s", margin.text, odds.text);
    }
    mst_onnx_name p = mst_onnx_call(g, "Sigmoid", "", "%s", margin.text);
    mst_onnx_output(g, &p, "probability", "N");
}

mst_status mst_onnx_export(const mst_model *model, const mst_params *params, const mst_onnx_options *options,
                           const char *path)
{
    const mst_chain *chain = mst_model_chain(model);
    mst_onnx_graph g = {0};
    mst_onnx_name scores = {.text = ""};
    mst_status st = MST_OK;
    char text[400];
    bool dense = true, factors = mst_model_has(model->ops, MST_MODEL_FACTORS), fields = false,
         numbers = false;
    if (chain != NULL) {
        numbers = chain->table.numbers != MST_INPUT_ROWS && chain->table.n_dense > 0;
        fields = chain->table.by_field;
        dense = chain->table.width == 0 && chain->table.numbers == MST_INPUT_ROWS;
        st = mst_onnx_net(&g, chain, params, options, &scores);
    } else if (factors) {
        dense = false;
        fields = mst_model_has(model->ops, MST_MODEL_FIELDS);
        scores = onnx_factor_scores(&g, model, params);
    } else {
        scores = onnx_linear_scores(&g, model, params, options, &dense);
    }
    if (st == MST_OK) {
        snprintf(text, sizeof text, "%s trained by muster. Inputs: %s%s%s", model->ops->name,
                 dense ? "x: the numbers of each row; pixels are between 0 and 1" : sparse_text,
                 fields ? fields_text : "", numbers ? "; numbers: the dense features" : "");
        onnx_finish(&g, model, &scores);
        st = mst_onnx_write(&g, text, options, path);
    }
    mst_onnx_graph_fini(&g);
    return st;
}
