/* Factorization machine (Rendle 2010): interactions = sum_{i<j} (v_i . v_j) x_i x_j, with --factors numbers
 * v_i per feature. Computed as sum_j (v_1 x_1 + ... + v_(j-1) x_(j-1)) . v_j x_j. */
#include <string.h>

#include "base/alloc.h"
#include "model/factor_model.h"
#include "observe/trace_file.h"

static float fm_margin(const mst_factor_model *m, mst_factor_scratch *s, const mst_terms *t)
{
    return m->base.kernels->fm_margin(t, m->width - 1, s->floats);
}

static void fm_gradient(const mst_factor_model *m, mst_factor_scratch *s, const mst_terms *t,
                        const mst_term_rates *rates)
{
    m->base.kernels->fm_gradient(t, m->width - 1, rates, s->floats);
}

enum { RANGE_BIAS = 1 }; /* of the gradient: factor_model.h */

/* ---- in place, without terms ---- */

#define TILE_ROWS 32 /* rows whose sums are kept between margins and gradients */

/* A thread's memory for steps in place. */
typedef struct fm_room {
    uint32_t max_rows;
    mst_fm_sums sums;
    size_t key_capacity, g_capacity, scalar_capacity, number_capacity;
    float margins[]; /* max_rows */
} fm_room;

static void fm_close(const mst_model *self, void *scratch)
{
    mst_factor_scratch *s = scratch;
    fm_room *room = s != NULL ? s->own : NULL;
    if (room != NULL) {
        mst_free(room->sums.keys);
        mst_free(room->sums.g);
        mst_free(room->sums.scalars);
        mst_free(room->sums.numbers);
        mst_free(room->sums.rows);
        mst_free(room);
    }
    mst_factor_close(self, s);
}

static mst_status fm_open(const mst_model *self, uint32_t max_rows, unsigned n_threads, bool training,
                          void **out)
{
    void *scratch = NULL;
    TRY(mst_factor_open(self, max_rows, n_threads, training, &scratch));
    mst_factor_scratch *s = scratch;
    fm_room *room = training ? mst_zalloc(sizeof *room + max_rows * sizeof *room->margins) : NULL;
    s->own = room;
    if (room != NULL) {
        room->max_rows = max_rows;
        room->sums.stride =
            ((uint32_t)self->options.factors + MST_LANES_MAX - 1) / MST_LANES_MAX * MST_LANES_MAX;
        room->sums.rows = mst_alloc_lines(TILE_ROWS * room->sums.stride * sizeof(float));
    }
    if (training && (room == NULL || room->sums.rows == NULL)) {
        fm_close(self, s);
        return mst_fail_memory();
    }
    *out = s;
    return MST_OK;
}

static mst_fm_weights fm_parameters(const mst_model *self, const mst_weights *w)
{
    return (mst_fm_weights){.keys = w->sparse,
                            .stride = w->stride,
                            .k = (uint32_t)self->options.factors,
                            .bias = self->options.bias ? w->ranges[RANGE_BIAS] : NULL,
                            .state = w->state,
                            .l2 = (float)self->options.l2_factors,
                            .pos_weight = (float)self->options.pos_weight,
                            .norm = self->options.row_norm};
}

/* Rows of one step each. */
static mst_status fm_descend_rows(const mst_model *self, mst_factor_scratch *s, const mst_batch *rows,
                                  const mst_weights *w, const mst_rule *rules, mst_touched *touched,
                                  mst_loss_sum *sum)
{
    const mst_kernels *k = self->kernels;
    fm_room *room = s->own;
    mst_fm_weights fm = fm_parameters(self, w);
    for (uint32_t from = 0; from < rows->n_rows;) {
        uint64_t at = mst_trace_now();
        mst_batch part = mst_batch_range(rows, from, room->max_rows);
        part.n_rows = k->fm_train_rows(part.rows, part.n_rows, &fm, rules + from, room->margins);
        mst_count_binary(&part, room->margins, self->options.pos_weight, sum);
        sum->loss += k->logistic_loss(part.rows, part.n_rows, room->margins, fm.pos_weight);
        mst_trace_op("gather+dot+apply", at, mst_trace_floats(part.n_rows, 0));
        from += part.n_rows;
        if (from < rows->n_rows && part.n_rows < room->max_rows) {
            mst_batch other = mst_batch_range(rows, from, 1);
            TRY(mst_factor_descend_rule(self, s, &other, 1, w, rules + from, touched, sum));
            from++;
        }
    }
    return MST_OK;
}

/* Grows an array of whole lines, whose new floats are zero. */
static mst_status fm_grow(float **floats, size_t *capacity, size_t need)
{
    if (need <= *capacity)
        return MST_OK;
    size_t n = need + need / 2;
    float *more = mst_alloc_lines(n * sizeof *more);
    if (more == NULL)
        return mst_fail_memory();
    if (*capacity > 0)
        memcpy(more, *floats, *capacity * sizeof *more);
    memset(more + *capacity, 0, (n - *capacity) * sizeof *more);
    mst_free(*floats);
    *floats = more;
    *capacity = n;
    return MST_OK;
}

/* Makes room for n more keys. */
static mst_status fm_make_room(fm_room *room, size_t n)
{
    mst_fm_sums *sums = &room->sums;
    size_t most = sums->n + n + 1;
    if (!mst_grow(&sums->keys, &room->key_capacity, most, sizeof *sums->keys) ||
        !mst_grow(&sums->numbers, &room->number_capacity, n, sizeof *sums->numbers))
        return mst_fail_memory();
    TRY(fm_grow(&sums->g, &room->g_capacity, most * sums->stride));
    return fm_grow(&sums->scalars, &room->scalar_capacity, 2 * most);
}

static mst_status fm_descend_batch(const mst_model *self, mst_factor_scratch *s, const mst_batch *batch,
                                   const mst_weights *w, const mst_rule *rule, mst_loss_sum *sum)
{
    const mst_kernels *k = self->kernels;
    fm_room *room = s->own;
    mst_fm_weights fm = fm_parameters(self, w);
    float scale = 1.0f / (float)batch->n_rows, bias = 0.0f, coefs[TILE_ROWS];
    uint64_t at = mst_trace_now();
    for (uint32_t from = 0; from < batch->n_rows; from += TILE_ROWS) {
        mst_batch tile = mst_batch_range(batch, from, TILE_ROWS);
        size_t n_keys = 0;
        for (uint32_t i = 0; i < tile.n_rows; i++)
            n_keys += tile.rows[i].n_keys;
        TRY(fm_make_room(room, n_keys));
        k->fm_forward_rows(tile.rows, tile.n_rows, batch->n_rows - from - tile.n_rows, &fm, &room->sums,
                           coefs);
        mst_count_binary(&tile, coefs, self->options.pos_weight, sum);
        sum->loss += k->logistic(tile.rows, tile.n_rows, coefs, fm.pos_weight, coefs);
        for (uint32_t i = 0; i < tile.n_rows; i++)
            bias += coefs[i] * scale;
        k->fm_add_rows(tile.rows, tile.n_rows, &fm, coefs, scale, &room->sums);
    }
    at = mst_trace_op("gather+dot+sum", at, mst_trace_floats(room->sums.n, fm.k));
    if (fm.bias != NULL)
        k->apply_dense(rule, fm.bias, fm.state, &bias, 1);
    uint32_t n = room->sums.n;
    k->fm_apply_sums(rule, &fm, &room->sums);
    mst_trace_op("apply", at, mst_trace_floats(n, fm.k));
    return MST_OK;
}

static bool fm_fuses(const mst_model *self, uint32_t head)
{
    return head == 0 && self->options.factors <= MST_FM_FACTORS;
}

static mst_status fm_descend_rule(const mst_model *self, void *scratch, const mst_batch *rows,
                                  uint32_t batch_rows, const mst_weights *w, const mst_rule *rules,
                                  mst_touched *touched, mst_loss_sum *sum)
{
    bool adagrad = rules->kind == MST_RULE_ADAGRAD && !rules->by_row && rules->l1 == 0.0f;
    if (!fm_fuses(self, w->head) || (batch_rows == 1 && !adagrad))
        return mst_factor_descend_rule(self, scratch, rows, batch_rows, w, rules, touched, sum);
    if (batch_rows == 1)
        return fm_descend_rows(self, scratch, rows, w, rules, touched, sum);
    for (uint32_t from = 0, step = 0; from < rows->n_rows; from += batch_rows, step++) {
        mst_batch batch = mst_batch_range(rows, from, batch_rows);
        if (self->kernels->fm_batch_takes(batch.rows, batch.n_rows))
            TRY(fm_descend_batch(self, scratch, &batch, w, &rules[step], sum));
        else
            TRY(mst_factor_descend_rule(self, scratch, &batch, batch_rows, w, &rules[step], touched, sum));
    }
    return MST_OK;
}

/* ---- side by side, without terms ---- */

/* Weights and gradients of a worker, whose keys are numbers of weights that it has pulled. */
static mst_status fm_add_gradient(const mst_model *self, void *scratch, const mst_batch *batch,
                                  const mst_weights *w, float scale, float *coefs, const mst_weights *g,
                                  mst_loss_sum *sum)
{
    const mst_kernels *k = self->kernels;
    mst_factor_scratch *s = scratch;
    fm_room *room = s->own;
    if (self->shape.n_dense != 0 || self->options.factors > MST_FM_FACTORS ||
        !k->fm_batch_takes(batch->rows, batch->n_rows))
        return mst_factor_gradient(self, scratch, batch, w, scale, coefs, g, sum);
    mst_fm_weights fm = fm_parameters(self, w);
    uint64_t at = mst_trace_now();
    for (uint32_t from = 0; from < batch->n_rows; from += TILE_ROWS) {
        mst_batch tile = mst_batch_range(batch, from, TILE_ROWS);
        k->fm_margins(tile.rows, tile.n_rows, &fm, room->sums.rows, room->sums.stride, coefs);
        mst_count_binary(&tile, coefs, self->options.pos_weight, sum);
        sum->loss += k->logistic(tile.rows, tile.n_rows, coefs, fm.pos_weight, coefs);
        for (uint32_t i = 0; fm.bias != NULL && i < tile.n_rows; i++)
            g->ranges[RANGE_BIAS][0] += coefs[i] * scale;
        k->fm_add_gradient(tile.rows, tile.n_rows, &fm, coefs, scale, room->sums.rows, room->sums.stride,
                           g->sparse);
    }
    mst_trace_op("gather+dot+scatter", at, mst_trace_floats(batch->n_rows, 0));
    return MST_OK;
}

static mst_status fm_init(mst_model *self, const mst_model_options *options, const mst_shape *shape)
{
    mst_factor_model *m = (mst_factor_model *)self;
    TRY(mst_factor_init(self, options, shape));
    m->width = 1 + (uint32_t)options->factors;
    m->n_floats = m->width - 1 + MST_LANES_MAX; /* the sums over the terms */
    self->shape.n_fields = 0;                   /* not used */
    m->margin = fm_margin;
    m->gradient = fm_gradient;
    return MST_OK;
}

const mst_model_ops mst_model_fm = {
    .name = "fm",
    .help = "factorization machine: logreg and products of --factors numbers per feature",
    .size = sizeof(mst_factor_model),
    .capabilities = MST_MODEL_LINEAR | MST_MODEL_BINARY | MST_MODEL_FACTORS,
    .init = fm_init,
    .declare = mst_factor_declare,
    .start_keys = mst_factor_start_keys,
    .layout = mst_factor_layout,
    .open = fm_open,
    .close = fm_close,
    .compute = mst_factor_compute,
    .gradient = fm_add_gradient,
    .forward = mst_factor_forward,
    .gpu_use = mst_model_gpu_use_sparse,
    .gpu_kind = MST_CUDA_FM,
    .descend_rule = fm_descend_rule,
    .fuses = fm_fuses,
};
