/* The common part of second-order models; contract in factor_model.h.
 *
 * Rows are computed one after the other, forward and backward, so that the parameters of a row are in the
 * first-level cache for both; those of the next rows are prefetched. */
#include "model/factor_model.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/racy.h"
#include "base/rng.h"
#include "observe/trace_file.h"

#define TILE_ROWS   64  /* rows for which room for contributions is made at once */
#define AHEAD_LINES 512 /* cache lines of parameters that are prefetched before they are used, about */

enum { RANGE_PREFIX, RANGE_BIAS };

mst_status mst_factor_init(mst_model *self, const mst_model_options *options, const mst_shape *shape)
{
    const char *name = self->ops->name;
    if (options->init != MST_START_DEFAULT && options->init != MST_START_UNIFORM &&
        options->init != MST_START_NORMAL && options->init != MST_START_POSITIVE)
        return mst_fail(MST_EUSAGE, "--init of %s is uniform, normal or positive", name);
    if (shape->n_classes > 2)
        return mst_fail(MST_EINPUT, "%s takes labels 0/1 or -1/+1, but the data has labels up to %u", name,
                        shape->n_classes - 1);
    if (shape->n_features == 0)
        return mst_fail(MST_EINPUT, "the data has no features: nothing to train");
    if (mst_model_has(self->ops, MST_MODEL_FIELDS) && shape->n_fields == 0)
        return mst_fail(
            MST_EINPUT,
            "%s needs fields, and the data has none; use --model fm, or data with fields (criteo, csv, "
            "libffm, vw with several namespaces)",
            name);
    self->n_scores = 1;
    return MST_OK;
}

mst_status mst_factor_declare(mst_model *self, mst_params *params)
{
    mst_factor_model *m = (mst_factor_model *)self;
    TRY(mst_params_add(params, "weight", MST_VIEW_TRAINABLE, m->width, 2,
                       (uint64_t[]){self->shape.n_features, m->width}, &m->weight));
    params->views[m->weight].head = self->shape.n_dense;
    if (self->options.bias)
        TRY(mst_params_add(params, "bias", MST_VIEW_TRAINABLE, 0, 1, (uint64_t[]){1}, &m->bias));
    return MST_OK;
}

void mst_factor_layout(const mst_model *self, const mst_params *params, mst_grad *layout)
{
    const mst_factor_model *m = (const mst_factor_model *)self;
    uint64_t offset = params->views[m->weight].offset;
    layout->ranges[RANGE_PREFIX] =
        (mst_range){.offset = offset, .size = (uint64_t)self->shape.n_dense * m->width};
    if (self->options.bias)
        layout->ranges[RANGE_BIAS] = (mst_range){.offset = params->views[m->bias].offset, .size = 1};
    layout->n_ranges = mst_factor_ranges(self);
    layout->sparse_offset = offset;
    layout->width = m->width;
}

/* Uniform in [-scale, scale) or in [0, scale), or normal with that deviation; linear weights are zero. */
void mst_factor_start_keys(const mst_model *self, mst_params *params, uint64_t seed, uint64_t first,
                           uint64_t n)
{
    const mst_factor_model *m = (const mst_factor_model *)self;
    mst_key_rows rows = mst_params_keys(params, params->views[m->weight].offset, m->width, NULL);
    float scale = (float)self->options.init_scale;
    bool normal = self->options.init == MST_START_NORMAL, positive = self->options.init == MST_START_POSITIVE;
    float unit = positive ? 0x1p-24f : 0x1p-23f, least = positive ? 0.0f : 1.0f;
    for (uint64_t key = first; key < first + n; key++) {
        float *v = key < self->shape.n_dense
                       ? params->w + params->views[m->weight].offset + key * m->width + 1
                       : mst_key_rest(&rows, key);
        mst_rng rng;
        mst_rng_init(&rng, seed, MST_RNG_FACTORS, key);
        for (uint32_t i = 0; i + 1 < m->width; i++)
            v[i] = normal ? scale * (float)mst_rng_normal(&rng)
                          : scale * ((float)(mst_rng_u32(&rng) >> 8) * unit - least);
    }
}

mst_status mst_factor_open(const mst_model *self, uint32_t max_rows, unsigned n_threads, bool training,
                           void **out)
{
    const mst_factor_model *m = (const mst_factor_model *)self;
    (void)max_rows, (void)n_threads, (void)training;
    mst_factor_scratch *s = mst_zalloc(sizeof *s);
    if (s != NULL)
        s->floats = mst_alloc_lines((m->n_floats != 0 ? m->n_floats : 1) * sizeof *s->floats);
    if (s == NULL || s->floats == NULL) {
        mst_factor_close(self, s);
        return mst_fail_memory();
    }
    *out = s;
    return MST_OK;
}

void mst_factor_close(const mst_model *self, void *scratch)
{
    mst_factor_scratch *s = scratch;
    (void)self;
    if (s == NULL)
        return;
    mst_free(s->terms);
    mst_free(s->floats);
    mst_free(s->dense);
    mst_free(s->g);
    mst_free(s);
}

/* ---- terms ---- */

/* The parameters of row `i`, if there is one. */
static mst_terms_ahead factor_ahead(const mst_batch *batch, uint32_t i, const mst_weights *w)
{
    if (i >= batch->n_rows)
        return (mst_terms_ahead){0};
    return (mst_terms_ahead){batch->rows[i].keys, batch->rows[i].n_keys, w->by_rows, w->sparse, w->stride};
}

static inline __attribute__((always_inline)) void factor_prefetch(const mst_batch *batch, uint32_t i,
                                                                  const mst_weights *w)
{
    mst_terms_ahead ahead = factor_ahead(batch, i, w);
    mst_terms_prefetch(&ahead, 0, ahead.n);
}

/* Rows between the prefetch of parameters and their use. */
static uint32_t factor_rows_ahead(const mst_batch *batch, const mst_weights *w)
{
    size_t lines = batch->n_rows > 0 ? (size_t)batch->rows[0].n_keys * (w->stride / 16 + 2) : 0;
    return lines * 4 < AHEAD_LINES ? 4 : lines * 2 < AHEAD_LINES ? 2 : 1;
}

/* In place: the number of the key among those that the step touches. Its row in the store has the number if
 * this step has set it; other numbers are left over by another thread. *known: the key has a gradient. */
MST_RACY static uint32_t factor_touch(mst_factor_scratch *s, float *first, uint32_t key, bool *known)
{
    uint32_t number, *keys = s->touched->keys;
    memcpy(&number, first + MST_ROW_SCRATCH, sizeof number);
    *known = number < s->n_touched && keys[number] == key;
    if (*known)
        return number;
    number = s->n_touched++;
    keys[number] = key;
    memcpy(first + MST_ROW_SCRATCH, &number, sizeof number);
    return number;
}

/* The place of a key's gradient: in the dense prefix, directly, as a contribution to the list of its owner,
 * or in place (lists are NULL). */
static void factor_place_gradient(const mst_factor_model *m, mst_factor_scratch *s, mst_grad *grad,
                                  uint32_t key, mst_term *term)
{
    if (key < m->base.shape.n_dense) {
        term->g = grad->ranges[RANGE_PREFIX].g + (size_t)key * m->width;
        term->add = true;
    } else if (s->direct != NULL) {
        term->g = s->direct + (size_t)key * m->width;
        term->add = true;
    } else if (grad->owners == NULL) {
        term->g = s->g + (size_t)factor_touch(s, (float *)term->w, key, &term->add) * m->width;
    } else {
        mst_contributions *list = &grad->owners[mst_grad_owner(key, grad->n_owners)];
        list->keys[list->n] = key;
        term->g = list->values + list->n++ * m->width;
        term->add = false;
    }
}

static uint16_t factor_field(const mst_factor_model *m, uint32_t field)
{
    return field < m->base.shape.n_fields ? (uint16_t)field : 0; /* a mapped file may have changed */
}

/* --row-norm */
static void factor_scale(mst_term *terms, uint32_t n)
{
    float sum = 0.0f;
    for (uint32_t i = 0; i < n; i++)
        sum += terms[i].x * terms[i].x;
    float by = sum > 0.0f ? 1.0f / sqrtf(sum) : 1.0f;
    for (uint32_t i = 0; i < n; i++)
        terms[i].x *= by;
}

/* Collects the terms of a row, and prefetches `ahead` meanwhile; grad: also the places of their gradients. */
static mst_status factor_gather(const mst_factor_model *m, mst_factor_scratch *s, const mst_row *row,
                                const mst_weights *w, mst_grad *grad, const mst_terms_ahead *ahead,
                                mst_terms *out)
{
    uint32_t n = 0, last = UINT32_MAX;
    if (!mst_grow(&s->terms, &s->capacity, (size_t)row->n_dense + row->n_keys, sizeof *s->terms))
        return mst_fail_memory();
    for (; n < row->n_dense; n++) {
        const float *first = w->ranges[RANGE_PREFIX] + (size_t)n * m->width, *rest = first + 1;
        if (w->by_rows && n >= w->head) /* a row to evaluate with a longer prefix than the model */
            mst_weights_of_key(w, n, &first, &rest);
        s->terms[n] = (mst_term){
            .w = first,
            .v = rest,
            .g = grad != NULL ? grad->ranges[RANGE_PREFIX].g + (size_t)n * m->width : NULL,
            .x = mst_row_dense(row, n),
            .field = factor_field(m, n),
            .add = true,
        };
    }
    for (uint32_t i = 0; i < row->n_keys; i++) {
        uint32_t key = row->keys[i];
        mst_terms_prefetch(ahead, i, i + 1);
        uint16_t field = m->fields ? factor_field(m, mst_row_field(row, i)) : 0;
        float x = row->values != NULL ? row->values[i] : 1.0f;
        if (key == last && s->terms[n - 1].field == field) {
            s->terms[n - 1].x += x;
            continue;
        }
        last = key;
        mst_term *term = &s->terms[n++];
        const float *first = w->ranges[RANGE_PREFIX] + (size_t)key * m->width, *rest = first + 1;
        if (key >= w->head)
            mst_weights_of_key(w, key, &first, &rest);
        *term = (mst_term){.w = first, .v = rest, .x = x, .field = field};
        if (grad != NULL)
            factor_place_gradient(m, s, grad, key, term);
    }
    mst_terms_prefetch(ahead, row->n_keys, ahead->n);
    if (m->base.options.row_norm)
        factor_scale(s->terms, n);
    out->terms = s->terms;
    out->n = n;
    return MST_OK;
}

/* ---- passes ---- */

/* The margin and the loss of a row; also adds the gradient of the bias. */
static mst_term_rates factor_row_rates(const mst_factor_model *m, mst_factor_scratch *s, const mst_row *row,
                                       const mst_terms *terms, const mst_weights *w, float scale,
                                       mst_grad *grad, mst_loss_sum *sum)
{
    const mst_model *self = &m->base;
    float coef;
    float margin = (self->options.bias ? w->ranges[RANGE_BIAS][0] : 0.0f) + m->margin(m, s, terms);
    mst_count_binary(&(mst_batch){row, 1}, &margin, self->options.pos_weight, sum);
    sum->loss += self->kernels->logistic(row, 1, &margin, (float)self->options.pos_weight, &coef);
    if (self->options.bias) /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): it has a range */
        grad->ranges[RANGE_BIAS].g[0] += coef * scale;
    return (mst_term_rates){.coef = coef * scale,
                            .l2 = (float)self->options.l2_factors * scale * row->weight};
}

static mst_status factor_compute_row(const mst_factor_model *m, mst_factor_scratch *s, const mst_row *row,
                                     const mst_weights *w, float scale, mst_grad *grad,
                                     const mst_terms_ahead *ahead, mst_loss_sum *sum)
{
    mst_terms terms;
    TRY(factor_gather(m, s, row, w, grad, ahead, &terms));
    mst_term_rates rates = factor_row_rates(m, s, row, &terms, w, scale, grad, sum);
    m->gradient(m, s, &terms, &rates);
    return MST_OK;
}

/* Whether the row has no dense prefix, and the fields of its keys are consecutive. */
static bool factor_fields_follow(const mst_factor_model *m, const mst_row *row)
{
    uint32_t n_fields = m->base.shape.n_fields, bad = row->n_dense != 0 || row->n_keys > n_fields;
    for (uint32_t i = 0; row->fields != NULL && i < row->n_keys; i++)
        bad |= row->fields[i] != row->fields[0] + i || row->fields[i] >= n_fields;
    return !bad;
}

/* Whether a step of this row alone can update its keys while it computes their gradients. */
static bool factor_fuses(const mst_factor_model *m, const mst_row *row, const mst_weights *w,
                         const mst_rule *rule)
{
    if (m->descend == NULL || rule->kind != MST_RULE_ADAGRAD || rule->by_row || rule->l1 != 0.0f ||
        !m->base.kernels->keys_distinct(row->keys, row->n_keys))
        return false;
    if (m->fields && (rule->l2 != 0.0f || !factor_fields_follow(m, row))) /* fields without keys decay, too */
        return false;
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < row->n_keys; i++)
        least = row->keys[i] < least ? row->keys[i] : least;
    return least >= w->head;
}

/* A step of one row, its keys updated at once; the gradient of the dense ranges stays in grad. */
static mst_status factor_descend_row(const mst_factor_model *m, mst_factor_scratch *s, const mst_row *row,
                                     const mst_weights *w, const mst_rule *rule, mst_grad *grad,
                                     const mst_terms_ahead *ahead, mst_loss_sum *sum)
{
    mst_terms terms;
    TRY(factor_gather(m, s, row, w, NULL, &(mst_terms_ahead){0}, &terms));
    mst_term_rates rates = factor_row_rates(m, s, row, &terms, w, 1.0f, grad, sum);
    mst_terms dense = {terms.terms, row->n_dense},
              keys = {terms.terms + row->n_dense, terms.n - row->n_dense};
    for (uint32_t i = 0; i < dense.n; i++)
        dense.terms[i].g = grad->ranges[RANGE_PREFIX].g + (size_t)i * m->width;
    if (dense.n > 0)
        m->gradient(m, s, &dense, &rates);
    m->descend(m, s, &keys, &rates, rule, ahead);
    return MST_OK;
}

mst_status mst_factor_compute(const mst_model *self, void *scratch, const mst_batch *batch,
                              const mst_weights *w, float scale, mst_grad *grad, mst_step *step,
                              mst_loss_sum *sum)
{
    const mst_factor_model *m = (const mst_factor_model *)self;
    mst_factor_scratch *s = scratch;
    uint32_t ahead = factor_rows_ahead(batch, w);
    uint64_t at = mst_trace_now(), n_all = 0;
    /* cppcheck-suppress ctuuninitvar ; mst_factor_gradient leaves only the rest of a gradient unset */
    for (uint32_t range = 0; range < grad->n_ranges; range++)
        TRY(mst_step_need(step, range));
    if (m->begin != NULL)
        m->begin(m, s, w);
    for (uint32_t i = 0; i < ahead; i++)
        factor_prefetch(batch, i, w);
    for (uint32_t from = 0; from < batch->n_rows; from += TILE_ROWS) {
        mst_batch tile = mst_batch_range(batch, from, TILE_ROWS);
        size_t n_keys = 0;
        for (uint32_t i = 0; i < tile.n_rows; i++)
            n_keys += tile.rows[i].n_keys;
        TRY(mst_grad_room(grad, n_keys));
        for (uint32_t i = 0; i < tile.n_rows; i++) {
            mst_terms_ahead next = factor_ahead(batch, from + i + ahead, w);
            TRY(factor_compute_row(m, s, &tile.rows[i], w, scale, grad, &next, sum));
        }
        n_all += n_keys;
    }
    if (m->end != NULL)
        m->end(m, s, grad);
    mst_trace_op("gather+dot+scatter", at, mst_trace_floats(n_all, m->width));
    for (uint32_t range = 0; range < grad->n_ranges; range++)
        TRY(mst_step_ready(step, range));
    return MST_OK;
}

mst_status mst_factor_gradient(const mst_model *self, void *scratch, const mst_batch *batch,
                               const mst_weights *w, float scale, float *coefs, const mst_weights *g,
                               mst_loss_sum *sum)
{
    const mst_factor_model *m = (const mst_factor_model *)self;
    mst_factor_scratch *s = scratch;
    mst_grad grad;
    (void)coefs;
    grad.owners = NULL;
    grad.n_owners = 0;
    grad.n_ranges = mst_factor_ranges(self) + (m->n_own != 0);
    for (uint32_t r = 0; r < grad.n_ranges; r++)
        grad.ranges[r].g = g->ranges[r];
    s->direct = g->sparse;
    mst_status st = mst_factor_compute(self, s, batch, w, scale, &grad, NULL, sum);
    s->direct = NULL;
    return st;
}

/* One step in place: gradients of distinct keys are summed in s->g. */
static mst_status factor_step(const mst_factor_model *m, mst_factor_scratch *s, const mst_batch *rows,
                              uint32_t from, uint32_t n, const mst_weights *w, const mst_rule *rule,
                              mst_grad *grad, uint32_t ahead, mst_loss_sum *sum)
{
    const mst_kernels *k = m->base.kernels;
    float scale = 1.0f / (float)n;
    s->n_touched = 0;
    for (uint32_t r = 0; r < grad->n_ranges; r++)
        memset(grad->ranges[r].g, 0, grad->ranges[r].size * sizeof(float));
    if (m->begin != NULL)
        m->begin(m, s, w);
    for (uint32_t i = from; i < from + n; i++) {
        const mst_row *row = &rows->rows[i];
        size_t most = (size_t)s->n_touched + row->n_keys;
        mst_terms_ahead next = factor_ahead(rows, i + ahead, w);
        if (n == 1 && factor_fuses(m, row, w, rule)) {
            TRY(factor_descend_row(m, s, row, w, rule, grad, &next, sum));
            continue;
        }
        if (!mst_grow(&s->touched->keys, &s->touched->capacity, most, sizeof *s->touched->keys) ||
            !mst_grow(&s->g, &s->g_capacity, most * m->width, sizeof *s->g))
            return mst_fail_memory();
        TRY(factor_compute_row(m, s, row, w, scale, grad, &next, sum));
    }
    if (m->end != NULL)
        m->end(m, s, grad);
    for (uint32_t r = 0; r < grad->n_ranges; r++)
        k->apply_dense(rule, w->ranges[r], w->state, grad->ranges[r].g, grad->ranges[r].size);
    k->update_rows(rule, w->sparse, w->stride, m->width, s->touched->keys, s->g, s->n_touched);
    return MST_OK;
}

/* The gradient of the dense ranges, in the memory of the scratch. */
static mst_status factor_dense_gradient(const mst_factor_model *m, mst_factor_scratch *s, mst_grad *grad)
{
    const mst_model *self = &m->base;
    uint64_t prefix = (uint64_t)self->shape.n_dense * m->width, size = 0;
    grad->ranges[grad->n_ranges++].size = prefix;
    if (self->options.bias)
        grad->ranges[grad->n_ranges++].size = 1;
    if (m->n_own != 0)
        grad->ranges[grad->n_ranges++].size = m->n_own;
    if (s->dense == NULL)
        s->dense = mst_alloc_lines((prefix + 1 + m->n_own) * sizeof *s->dense);
    if (s->dense == NULL)
        return mst_fail_memory();
    for (uint32_t r = 0; r < grad->n_ranges; r++) {
        grad->ranges[r].g = s->dense + size;
        size += grad->ranges[r].size;
    }
    return MST_OK;
}

mst_status mst_factor_descend_rule(const mst_model *self, void *scratch, const mst_batch *rows,
                                   uint32_t batch_rows, const mst_weights *w, const mst_rule *rules,
                                   mst_touched *touched, mst_loss_sum *sum)
{
    const mst_factor_model *m = (const mst_factor_model *)self;
    mst_factor_scratch *s = scratch;
    uint32_t ahead = factor_rows_ahead(rows, w);
    uint64_t at = mst_trace_now();
    mst_grad grad;
    grad.n_ranges = 0;
    grad.owners = NULL;
    TRY(factor_dense_gradient(m, s, &grad));
    for (uint32_t i = 0; i < ahead; i++)
        factor_prefetch(rows, i, w);
    s->touched = touched;
    for (uint32_t from = 0, step = 0; from < rows->n_rows; from += batch_rows, step++) {
        uint32_t n = mst_batch_range(rows, from, batch_rows).n_rows;
        TRY(factor_step(m, s, rows, from, n, w, &rules[step], &grad, ahead, sum));
    }
    mst_trace_op("gather+dot+apply", at, mst_trace_floats(rows->n_rows, 0));
    return MST_OK;
}

mst_status mst_factor_forward(const mst_model *self, void *scratch, const mst_batch *batch,
                              const mst_weights *w, float *scores)
{
    const mst_factor_model *m = (const mst_factor_model *)self;
    mst_factor_scratch *s = scratch;
    uint32_t ahead = factor_rows_ahead(batch, w);
    uint64_t at = mst_trace_now();
    if (m->begin != NULL)
        m->begin(m, s, w);
    for (uint32_t i = 0; i < batch->n_rows; i++) {
        mst_terms terms;
        mst_terms_ahead next = factor_ahead(batch, i + ahead, w);
        TRY(factor_gather(m, s, &batch->rows[i], w, NULL, &next, &terms));
        scores[i] = (self->options.bias ? w->ranges[RANGE_BIAS][0] : 0.0f) + m->margin(m, s, &terms);
    }
    mst_trace_op("gather+dot", at, mst_trace_floats(batch->n_rows, 0));
    return MST_OK;
}
