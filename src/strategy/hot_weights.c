/* Hot weights; contract in hot_weights.h.
 *
 * Asynchronous threads. A unit is a weight of the dense ranges or a popular key. Each thread has `mine`, the
 * units that it trains on, and `seen`, their values after its last exchange. All threads share `blocks`, the
 * sums of the changes so far. An exchange of thread t: block += gain * (mine - seen), mine = seen = block. It
 * moves the few cache lines of a block from the core that exchanged last, whatever the number of threads. A
 * block has a lock of its own, held for some ten instructions; a thread that finds it taken for long (its
 * holder waits for a core) goes on training, and exchanges later. State that is no sum (moving averages)
 * would not survive the addition: each thread keeps its own, and end takes the mean.
 *
 * The gain of a weight. Let a step of a thread take the weight the share a of the way to its optimum: a =
 * rate * c, c being the second derivative of the loss. n steps of a thread take it about x = n * a of the
 * way, if that is little. The T threads make their steps side by side, from the same start. Where T * x is
 * small, their changes add up as if they were made one after the other: the gain is 1. Where x is large, each
 * thread makes the whole way, and the mean remains: the gain is 1/T; the sum would overshoot T-fold.
 * (1 + x) / (1 + T * x) is right at both ends, and differs from the quotient of the ways of T * n and of T
 * times n steps by less than a fifth in between.
 *
 * The weights of a row move its margin together, so the steps of all count. With gains g, the changes of an
 * interval take the margins of rows like the sample's L of the way, L being the sum of g_i * T * x_i * s_i
 * over all weights and s_i the share of rows that have weight i; they are stable in every direction, not only
 * along the axes, if L is about 1 at most. So x is multiplied by N, the number of weights of a row that are
 * stiff (moved the whole way by the threads together): N = sum of s_i * N * T * x_i / (1 + N * T * x_i), at
 * least 1, makes L at most 1. Each thread finds N by iteration: an exchange replaces the part of its block.
 * Where no weight is stiff, which is soon so with falling rates, N is 1 and all gains are near 1.
 *
 * c is the mean of x_i^2 * v in the sample, v being the weight of a row, times a bound of p * (1 - p): this
 * is at most 1/4, and at most 1/4 / log 2 of the entropy of p, which is the loss of a calibrated model. The
 * rate is that of the update rule with the weight's state. So nothing is tuned to data.
 *
 * Intervals. Rows of a thread between two exchanges of a block: TOUCHES occurrences of its first key, at
 * least DENSE_ROWS. At the start, where weights move far, an interval of all threads is at most the share
 * 1/WARM of the rows so far.
 *
 * Synchronous threads share one copy, which is there only to have the popular keys side by side, and their
 * places as numbers from 0 on; the dense ranges stay in the store.
 *
 * The unit is a key: popular ids are not neighbours in data with hashed ids. Side by side, the copies also
 * take fewer cache lines than the keys do in the store.
 *
 * Layout of a copy: `mine` is in two pieces, dense ranges with their state slot by slot, and keys by rows
 * with their state, which must be where a translated key finds them. Blocks and `seen` hold the exchanged
 * floats of a unit side by side. */
#include "strategy/hot_weights.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/isa.h"
#include "strategy/hot_keys.h"

#define POPULAR     400 /* one copy: a key is popular if at least 1 of 400 rows has it, ... */
#define LEAST_COUNT 3   /* ... copies of threads: if it occurs as often in the sample */
#define ROW_MAX     4   /* floats of a key */

#define DENSE_ROWS 64
#define TOUCHES    8
#define WARM       64
#define PARTS      12  /* part p of the key blocks: [2^p - 1, 2^(p + 1) - 1) */
#define TRIES      256 /* for a lock */
#define X_MOST     1e6f
#define LN2        0.6931472f

#define BLOCK 63 /* floats */
typedef struct hot_block {
    _Alignas(64) atomic_uint taken; /* by a thread that exchanges */
    float at[BLOCK];                /* guarded by taken */
} hot_block;

typedef struct hot_thread {
    _Alignas(64) mst_key_map map;
    mst_weights weights;
    float (*seen)[BLOCK + 1]; /* by block */
    float *stiff, all_stiff;  /* by block, and their sum: stiff units of a row */
    mst_rule rule;            /* of the last exchange */
    float second;             /* bound of p * (1 - p) */
    uint64_t steps;           /* so far */
    uint64_t *exchanged;      /* by block: steps at the last exchange */
    uint32_t since[PARTS];    /* rows since the last exchange */
} hot_thread;

struct mst_hot_weights {
    const mst_model *model;
    mst_params *params;
    unsigned n_threads;
    bool by_rows, sums;
    mst_grad layout;
    uint32_t range_at[MST_RANGE_MAX]; /* place of each dense range in the copies */
    uint32_t n_dense;                 /* floats taken by the dense ranges */
    uint32_t sections;                /* 1, and by rows 1 for each slot: of the dense part */
    uint32_t unit;                    /* floats of a key: 1, or those of a row */
    uint32_t sent;                    /* floats of a unit that are exchanged: the weight, and sums */
    uint32_t prefix, prefix_at;       /* keys below `prefix` are in a dense range, from prefix_at on */
    mst_hot_keys popular;
    hot_thread *threads;
    float *dense; /* by rows: `mine` of the dense part, n_threads times */
    uint32_t per_block, n_dense_blocks, n_blocks;
    hot_block *blocks;
    float *curve, *share; /* by unit, dense and then keys: mean of v * x^2; share of the rows that have it */
    uint32_t rows_of_part[PARTS];
};

static uint32_t hot_most(unsigned n_threads)
{
    return n_threads == 1 ? MST_HOT_KEYS : MST_HOT_PRIVATE;
}

uint64_t mst_hot_weights_spare(unsigned n_threads)
{
    return (uint64_t)n_threads * (MST_HOT_DENSE + hot_most(n_threads));
}

/* The dense part and the keys of thread t; of vectors they are in the spare floats, one after the other. */
static float *hot_mine_dense(const mst_hot_weights *hot, unsigned t)
{
    return hot->by_rows ? hot->dense + (size_t)t * hot->n_dense * hot->sections
                        : hot->params->w + hot->params->size +
                              t * mst_hot_weights_spare(hot->n_threads) / hot->n_threads;
}

static float *hot_mine_keys(const mst_hot_weights *hot, unsigned t)
{
    const mst_key_rows *rows = &hot->params->rows;
    return hot->by_rows ? rows->at + (rows->n_keys + (uint64_t)t * hot->popular.most) * rows->stride
                        : hot_mine_dense(hot, t) + hot->n_dense;
}

/* Key k of the store. */
static float *hot_key(const mst_hot_weights *hot, uint32_t key)
{
    return hot->by_rows ? hot->params->rows.at + (uint64_t)key * hot->unit
                        : hot->params->w + hot->layout.sparse_offset + key;
}

/* Divides the copies among the dense ranges; false if they are too large. */
static bool hot_lay_out(mst_hot_weights *hot)
{
    mst_grad *layout = &hot->layout;
    for (uint32_t i = 0; i < layout->n_ranges; i++)
        if (layout->ranges[i].offset == layout->sparse_offset) {
            hot->prefix = (uint32_t)layout->ranges[i].size;
            hot->prefix_at = hot->n_dense;
        }
    if (hot->n_threads == 1)
        layout->n_ranges = 0;
    for (uint32_t i = 0; i < layout->n_ranges; i++) {
        if (layout->ranges[i].size > MST_HOT_DENSE - hot->n_dense)
            return false;
        hot->range_at[i] = hot->n_dense;
        hot->n_dense += (uint32_t)layout->ranges[i].size;
    }
    hot->n_dense = (hot->n_dense + 15) / 16 * 16;
    hot->per_block = BLOCK / hot->sent;
    hot->n_dense_blocks = (hot->n_dense + hot->per_block - 1) / hot->per_block;
    return true;
}

static mst_status hot_init_threads(mst_hot_weights *hot)
{
    uint32_t most = hot_most(hot->n_threads), unit_most = hot->n_dense + most;
    uint32_t blocks = hot->n_dense_blocks + (most + hot->per_block - 1) / hot->per_block;
    TRY(mst_hot_keys_init(&hot->popular, most));
    hot->dense =
        mst_alloc_lines(((size_t)hot->n_threads * hot->n_dense * hot->sections + 16) * sizeof(float));
    hot->threads = mst_alloc_lines(hot->n_threads * sizeof *hot->threads);
    if (hot->threads != NULL)
        memset(hot->threads, 0, hot->n_threads * sizeof *hot->threads);
    hot->blocks = mst_alloc_lines(blocks * sizeof *hot->blocks);
    hot->curve = mst_alloc_lines(unit_most * sizeof *hot->curve);
    hot->share = mst_alloc_lines(unit_most * sizeof *hot->share);
    if (hot->dense == NULL || hot->threads == NULL || hot->blocks == NULL || hot->curve == NULL ||
        hot->share == NULL)
        return mst_fail_memory();
    memset(hot->blocks, 0, blocks * sizeof *hot->blocks);
    for (unsigned t = 0; t < hot->n_threads; t++) {
        hot_thread *thread = &hot->threads[t];
        mst_model_weights(hot->model, hot->params, &thread->weights);
        for (uint32_t i = 0; i < hot->layout.n_ranges; i++)
            thread->weights.ranges[i] = hot_mine_dense(hot, t) + hot->range_at[i];
        if (hot->n_threads == 1)
            continue;
        thread->weights.shared = hot->by_rows ? (uint32_t)hot->params->rows.n_keys : 0;
        thread->weights.state = hot->n_dense;
        thread->seen = mst_alloc_lines(blocks * sizeof *thread->seen);
        thread->stiff = mst_calloc(blocks, sizeof *thread->stiff);
        thread->exchanged = mst_calloc(blocks, sizeof *thread->exchanged);
        if (thread->seen == NULL || thread->stiff == NULL || thread->exchanged == NULL)
            return mst_fail_memory();
    }
    return MST_OK;
}

mst_status mst_hot_weights_new(const mst_model *model, mst_params *params, unsigned n_threads, bool sums,
                               mst_hot_weights **out)
{
    bool by_rows = params->rows.stride != 0;
    mst_hot_weights *hot = mst_alloc_lines(sizeof *hot);
    *out = NULL;
    if (hot == NULL)
        return mst_fail_memory();
    uint32_t n_slots = by_rows ? params->n_slots : 0;
    *hot = (mst_hot_weights){.model = model,
                             .params = params,
                             .n_threads = n_threads,
                             .by_rows = by_rows,
                             .sums = sums,
                             .sections = 1 + n_slots,
                             .unit = by_rows ? params->rows.stride : 1,
                             .sent = sums ? 1 + n_slots : 1};
    model->ops->layout(model, params, &hot->layout);
    if (hot->layout.width != 1 ||
        (by_rows ? params->rows.n_keys : params->size) + params->spare > UINT32_MAX ||
        params->spare < mst_hot_weights_spare(n_threads) || hot->unit > ROW_MAX || !hot_lay_out(hot)) {
        mst_hot_weights_destroy(hot);
        return MST_OK;
    }
    mst_status st = hot_init_threads(hot);
    if (st != MST_OK) {
        mst_hot_weights_destroy(hot);
        return st;
    }
    *out = hot;
    return MST_OK;
}

void mst_hot_weights_destroy(mst_hot_weights *hot)
{
    if (hot == NULL)
        return;
    for (unsigned t = 0; hot->threads != NULL && t < hot->n_threads; t++) {
        mst_free(hot->threads[t].seen);
        mst_free(hot->threads[t].stiff);
        mst_free(hot->threads[t].exchanged);
    }
    mst_hot_keys_fini(&hot->popular);
    mst_free(hot->threads);
    mst_free(hot->dense);
    mst_free(hot->blocks);
    mst_free(hot->curve);
    mst_free(hot->share);
    mst_free(hot);
}

/* ---- begin ---- */

/* Adds a row with number x at a unit to its sums. */
static inline void hot_add_number(const mst_hot_weights *hot, size_t unit, float x, float v)
{
    hot->curve[unit] += v * x * x;
    hot->share[unit] += x != 0.0f ? 1.0f : 0.0f;
}

static void hot_add_row(const mst_hot_weights *hot, const mst_row *row)
{
    const mst_grad *layout = &hot->layout;
    float v = row->weight * (mst_label_positive(row->label) ? (float)hot->model->options.pos_weight : 1.0f);
    uint32_t n_prefix = row->n_dense < hot->prefix ? row->n_dense : hot->prefix, number;
    for (uint32_t i = 0; i < layout->n_ranges; i++) /* ranges without numbers of the row, like a bias */
        for (uint64_t j = 0; j < layout->ranges[i].size; j++)
            if (layout->ranges[i].offset != layout->sparse_offset)
                hot_add_number(hot, hot->range_at[i] + j, 1.0f, v);
    for (uint32_t i = 0; i < n_prefix; i++)
        hot_add_number(hot, hot->prefix_at + i, mst_row_dense(row, i), v);
    for (uint32_t i = 0; i < row->n_keys; i++) {
        float x = row->values != NULL ? row->values[i] : 1.0f;
        if (row->keys[i] < hot->prefix)
            hot_add_number(hot, hot->prefix_at + row->keys[i], x, v);
        else if (mst_hot_keys_find(&hot->popular, row->keys[i], &number))
            hot_add_number(hot, hot->n_dense + number, x, v);
    }
}

static void hot_choose(mst_hot_weights *hot, const mst_batch *const *samples, unsigned n_samples)
{
    const mst_params *params = hot->params;
    mst_hot_keys *popular = &hot->popular;
    uint64_t n_keys = hot->by_rows ? params->rows.n_keys : params->size - hot->layout.sparse_offset;
    uint32_t n_rows = 0, n_units;
    for (unsigned s = 0; s < n_samples; s++)
        n_rows += samples[s]->n_rows < MST_HOT_SAMPLE ? samples[s]->n_rows : MST_HOT_SAMPLE;
    uint32_t least = LEAST_COUNT;
    if (hot->n_threads == 1)
        least = n_rows > POPULAR ? (n_rows + POPULAR - 1) / POPULAR : 2;
    mst_hot_keys_choose(popular, samples, n_samples, MST_HOT_SAMPLE, hot->prefix, n_keys, least);
    if (hot->n_threads == 1)
        return;
    n_units = hot->n_dense + popular->n;
    memset(hot->curve, 0, n_units * sizeof *hot->curve);
    memset(hot->share, 0, n_units * sizeof *hot->share);
    for (unsigned s = 0; s < n_samples; s++)
        for (uint32_t i = 0; i < samples[s]->n_rows && i < MST_HOT_SAMPLE; i++)
            hot_add_row(hot, &samples[s]->rows[i]);
    for (uint32_t i = 0; i < n_units && n_rows != 0; i++) {
        hot->curve[i] /= (float)n_rows;
        hot->share[i] /= (float)n_rows;
    }
    hot->n_blocks = hot->n_dense_blocks + (popular->n + hot->per_block - 1) / hot->per_block;
    for (uint32_t p = 0; p < PARTS; p++) {
        uint32_t first = ((1u << p) - 1) * hot->per_block;
        uint32_t rows = first < popular->n ? TOUCHES * n_rows / popular->counts[first] : 0;
        hot->rows_of_part[p] = rows > DENSE_ROWS ? rows : DENSE_ROWS;
    }
}

/* Float j of unit i of block b, in the copy of thread t, is at base + i * step + j * jump. */
typedef struct hot_place {
    float *base;
    const float *curve, *share;
    size_t step, jump;
    uint32_t n; /* units */
} hot_place;

static inline hot_place hot_find(const mst_hot_weights *hot, unsigned t, uint32_t b)
{
    bool dense = b < hot->n_dense_blocks;
    uint32_t first = (dense ? b : b - hot->n_dense_blocks) * hot->per_block;
    uint32_t left = (dense ? hot->n_dense : hot->popular.n) - first;
    size_t step = dense ? 1 : hot->unit;
    return (hot_place){.base = (dense ? hot_mine_dense(hot, t) : hot_mine_keys(hot, t)) + first * step,
                       .curve = hot->curve + (dense ? first : hot->n_dense + first),
                       .share = hot->share + (dense ? first : hot->n_dense + first),
                       .step = step,
                       .jump = dense ? hot->n_dense : 1,
                       .n = left < hot->per_block ? left : hot->per_block};
}

/* Copies the weights for thread t. */
static void hot_copy(mst_hot_weights *hot, unsigned t)
{
    hot_thread *thread = &hot->threads[t];
    float *dense = hot_mine_dense(hot, t), *keys = hot_mine_keys(hot, t);
    const float *origin = hot_key(hot, 0);
    thread->map = (mst_key_map){.factor = hot->popular.factor,
                                .shift = hot->popular.shift,
                                .base = (uint32_t)((keys - origin) / hot->unit),
                                .n = hot->popular.n,
                                .buckets = hot->popular.buckets};
    if (!hot->by_rows && hot->n_threads > 1) {
        thread->map.prefix = hot->prefix;
        thread->map.prefix_delta = (uint32_t)(dense - origin) + hot->prefix_at;
    }
    memset(dense, 0, (size_t)hot->n_dense * hot->sections * sizeof *dense);
    for (uint32_t i = 0; i < hot->layout.n_ranges; i++)
        for (uint32_t s = 0; s < hot->sections; s++)
            mst_params_read(hot->params, s, hot->layout.ranges[i].offset, hot->layout.ranges[i].size,
                            dense + (size_t)s * hot->n_dense + hot->range_at[i]);
    for (uint32_t i = 0; i < hot->popular.n; i++)
        memcpy(keys + (size_t)i * hot->unit, hot_key(hot, hot->popular.keys[i]), hot->unit * sizeof(float));
    thread->steps = 0;
    thread->all_stiff = 0.0f;
    thread->second = 0.25f;
    thread->rule = (mst_rule){0};
    memset(thread->since, 0, sizeof thread->since);
    for (uint32_t b = 0; b < hot->n_blocks; b++) {
        hot_place at = hot_find(hot, t, b);
        thread->exchanged[b] = 0;
        thread->stiff[b] = 0.0f;
        for (uint32_t i = 0; i < at.n; i++)
            thread->stiff[b] += at.share[i];
        thread->all_stiff += thread->stiff[b];
        for (uint32_t i = 0; i < at.n; i++)
            for (uint32_t j = 0; j < hot->sent; j++)
                thread->seen[b][i * hot->sent + j] = at.base[i * at.step + j * at.jump];
    }
}

void mst_hot_weights_begin(mst_hot_weights *hot, const mst_batch *const *samples, unsigned n_samples)
{
    if (n_samples != 0)
        hot_choose(hot, samples, n_samples);
    hot_copy(hot, 0);
    for (uint32_t b = 0; b < hot->n_blocks; b++)
        memcpy(hot->blocks[b].at, hot->threads[0].seen[b], sizeof hot->blocks[b].at);
}

void mst_hot_weights_join(mst_hot_weights *hot, unsigned t)
{
    if (t != 0)
        hot_copy(hot, t);
}

const mst_key_map *mst_hot_weights_map(const mst_hot_weights *hot, unsigned t)
{
    return &hot->threads[t].map;
}

const mst_weights *mst_hot_weights_of(const mst_hot_weights *hot, unsigned t)
{
    return &hot->threads[t].weights;
}

uint32_t mst_hot_weights_places(const mst_hot_weights *hot, uint32_t *first)
{
    *first = (uint32_t)((hot_mine_keys(hot, 0) - hot_key(hot, 0)) / hot->unit);
    return hot->popular.n;
}

/* ---- exchanges ---- */

static inline bool hot_take(hot_block *block)
{
    for (int i = 0; i < TRIES; i++)
        if (atomic_load_explicit(&block->taken, memory_order_relaxed) == 0 &&
            atomic_exchange_explicit(&block->taken, 1, memory_order_acquire) == 0)
            return true;
    return false;
}

/* The step of a weight per unit of its gradient. */
static inline float hot_rate(const mst_rule *rule, const float *w, size_t jump)
{
    switch (rule->kind) {
    case MST_RULE_SGD:
        break;
    case MST_RULE_MOMENTUM:
        return rule->lr / (1.0f - rule->keep1);
    case MST_RULE_ADAGRAD:
        return rule->lr / (sqrtf(w[jump]) + rule->eps);
    case MST_RULE_ADAM:
        return rule->rate / (sqrtf(w[2 * jump]) * rule->unbias + rule->eps);
    case MST_RULE_FTRL:
        return 1.0f / ((rule->eps + sqrtf(w[2 * jump])) * rule->rate + rule->l2);
    }
    return rule->lr;
}

/* x of the units of a block; steps is times the bound of p * (1 - p). Returns the stiff units of a row among
 * them; threads is times N. */
MST_WIDE static float hot_ways(const hot_place *at, const mst_rule *rule, float steps, float threads,
                               float *restrict x)
{
    float stiff = 0.0f;
    if (rule->kind == MST_RULE_SGD)
        for (uint32_t i = 0; i < at->n; i++)
            x[i] = rule->lr * steps * at->curve[i];
    else
        for (uint32_t i = 0; i < at->n; i++)
            x[i] = hot_rate(rule, at->base + i * at->step, at->jump) * steps * at->curve[i];
    for (uint32_t i = 0; i < at->n; i++) {
        x[i] =
            x[i] < X_MOST ? x[i] : X_MOST; /* also if there is no number: without squares a rate is endless */
        stiff += at->share[i] * (threads * x[i] / (1.0f + threads * x[i]));
    }
    return stiff;
}

/* The changes of the units of a block, times their gains. stiff: N. x becomes the gain. */
MST_WIDE static void hot_damp(const hot_place *at, const float *restrict seen, uint32_t sent, bool ftrl,
                              float stiff, float threads, float *restrict x, float *restrict out)
{
    for (uint32_t i = 0; i < at->n; i++)
        x[i] = (1.0f + stiff * x[i]) / (1.0f + threads * stiff * x[i]);
    if (sent == 1 && at->step == 1) {
        for (uint32_t i = 0; i < at->n; i++)
            out[i] = x[i] * (at->base[i] - seen[i]);
        return;
    }
    for (uint32_t i = 0; i < at->n; i++)
        for (uint32_t j = 0; j < sent; j++) {
            float change = at->base[i * at->step + j * at->jump] - seen[i * sent + j];
            /* ftrl's z is a part of the weight; all other sums are of squares */
            out[i * sent + j] = j == 0 || (j == 1 && ftrl) ? x[i] * change : change;
        }
}

static void hot_exchange(mst_hot_weights *hot, unsigned t, uint32_t b, const mst_rule *rule)
{
    hot_thread *self = &hot->threads[t];
    hot_block *block = &hot->blocks[b];
    hot_place at = hot_find(hot, t, b);
    float *seen = self->seen[b], x[BLOCK + 1], changes[BLOCK + 1], threads = (float)hot->n_threads;
    float stiff = hot_ways(&at, rule, self->second * (float)(self->steps - self->exchanged[b]),
                           threads * fmaxf(self->all_stiff, 1.0f), x);
    uint32_t n = at.n * hot->sent;
    self->all_stiff += stiff - self->stiff[b];
    self->stiff[b] = stiff;
    stiff = self->all_stiff > 1.0f ? self->all_stiff : 1.0f;
    hot_damp(&at, seen, hot->sent, rule->kind == MST_RULE_FTRL, stiff, threads, x, changes);
    if (!hot_take(block))
        return;
    for (uint32_t i = 0; i < n; i++)
        seen[i] = block->at[i] = block->at[i] + changes[i];
    atomic_store_explicit(&block->taken, 0, memory_order_release);
    self->exchanged[b] = self->steps;
    if (hot->sent == 1 && at.step == 1) {
        memcpy(at.base, seen, n * sizeof *seen);
        return;
    }
    for (uint32_t i = 0; i < at.n; i++)
        for (uint32_t j = 0; j < hot->sent; j++)
            at.base[i * at.step + j * at.jump] = seen[i * hot->sent + j];
}

/* Exchanges the blocks [first, to). */
static void hot_exchange_blocks(mst_hot_weights *hot, unsigned t, uint32_t first, uint32_t to,
                                const mst_rule *rule)
{
    enum { AHEAD = 4 };
    for (uint32_t b = first; b < to; b++) {
        for (uint32_t ahead = b == first ? b : b + AHEAD; ahead <= b + AHEAD && ahead < to; ahead++)
            for (size_t i = 0; i < sizeof *hot->blocks; i += 64)
                __builtin_prefetch((const char *)&hot->blocks[ahead] + i, 1);
        hot_exchange(hot, t, b, rule);
    }
}

/* Rows of one thread between exchanges: `rows`, but less at the start. */
static uint32_t hot_interval(const mst_hot_weights *hot, uint32_t rows, uint64_t rows_so_far)
{
    uint64_t most = rows_so_far / WARM / hot->n_threads;
    uint64_t mine = rows < most ? rows : most;
    return mine > 1 ? (uint32_t)mine : 1;
}

uint32_t mst_hot_weights_interval(const mst_hot_weights *hot, uint64_t rows_so_far)
{
    return hot_interval(hot, DENSE_ROWS, rows_so_far);
}

void mst_hot_weights_exchange(mst_hot_weights *hot, unsigned t, uint32_t n_rows, uint64_t n_steps,
                              const mst_rule *rule, float loss, uint64_t rows_so_far)
{
    hot_thread *self = &hot->threads[t];
    self->steps += n_steps;
    self->rule = *rule;
    self->second = loss < LN2 ? 0.25f / LN2 * loss : 0.25f;
    hot_exchange_blocks(hot, t, 0, hot->n_dense_blocks, rule);
    for (uint32_t p = 0, first = hot->n_dense_blocks; p < PARTS && first < hot->n_blocks; p++) {
        uint32_t to = first + (1u << p);
        self->since[p] += n_rows;
        if (self->since[p] >= hot_interval(hot, hot->rows_of_part[p], rows_so_far)) {
            hot_exchange_blocks(hot, t, first, to < hot->n_blocks ? to : hot->n_blocks, rule);
            self->since[p] = 0;
        }
        first = to;
    }
}

/* ---- end ---- */

/* Gives the last thread the mean of all threads' state, where that is no sum. */
static void hot_mean_state(mst_hot_weights *hot)
{
    size_t dense = (size_t)hot->n_dense * hot->sections, n = (size_t)hot->popular.n * hot->unit;
    unsigned last = hot->n_threads - 1;
    float *to_dense = hot_mine_dense(hot, last), *to_keys = hot_mine_keys(hot, last);
    for (unsigned t = 0; t < last; t++) {
        const float *from = hot_mine_dense(hot, t);
        for (size_t i = hot->n_dense; i < dense; i++)
            to_dense[i] += from[i];
        from = hot_mine_keys(hot, t);
        for (size_t i = 0; i < n; i++)
            to_keys[i] += i % hot->unit != 0 ? from[i] : 0.0f;
    }
    for (size_t i = hot->n_dense; i < dense; i++)
        to_dense[i] /= (float)hot->n_threads;
    for (size_t i = 0; i < n; i++)
        to_keys[i] /= i % hot->unit != 0 ? (float)hot->n_threads : 1.0f;
}

void mst_hot_weights_end(mst_hot_weights *hot)
{
    unsigned last = hot->n_threads - 1; /* has seen the changes of all */
    for (unsigned t = 0; last > 0 && t <= last; t++)
        hot_exchange_blocks(hot, t, 0, hot->n_blocks, &hot->threads[t].rule);
    if (!hot->sums && last > 0)
        hot_mean_state(hot);
    for (uint32_t i = 0; i < hot->popular.n; i++)
        memcpy(hot_key(hot, hot->popular.keys[i]), hot_mine_keys(hot, last) + (size_t)i * hot->unit,
               hot->unit * sizeof(float));
    for (uint32_t i = 0; i < hot->layout.n_ranges; i++)
        for (uint32_t s = 0; s < hot->sections; s++)
            mst_params_write(hot->params, s, hot->layout.ranges[i].offset, hot->layout.ranges[i].size,
                             hot_mine_dense(hot, last) + (size_t)s * hot->n_dense + hot->range_at[i]);
}
