/* Hot weights; contract in hot_weights.h. Here: the choice of popular keys, copies, begin and end;
 * hot_exchange.c exchanges the changes of asynchronous threads.
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
#include "strategy/hot_weights_impl.h"

#include <stdlib.h>

#include "base/alloc.h"

#define POPULAR     400         /* one copy: a key is popular if at least 1 of 400 rows has it, ... */
#define LEAST_COUNT 3           /* ... copies of threads: if it occurs as often in the sample */
#define ROW_MAX     4           /* floats of a key with one weight */
#define COPY_MAX    (512 << 10) /* bytes of the keys of a copy with several weights: a cache holds them */
#define TOUCHES     8           /* occurrences of a key between two exchanges, ... */
#define ROW_TOUCHES 32          /* ... of a key of several weights */

static uint32_t hot_most(unsigned n_threads)
{
    return n_threads == 1 ? MST_HOT_KEYS : MST_HOT_PRIVATE;
}

/* Popular keys at most. */
static uint32_t hot_most_keys(const mst_hot_weights *hot)
{
    uint32_t most = hot_most(hot->n_threads);
    while (hot->width > 1 && (size_t)most * hot->unit * sizeof(float) > COPY_MAX)
        most /= 2;
    return most;
}

uint64_t mst_hot_weights_spare(unsigned n_threads)
{
    return (uint64_t)n_threads * (MST_HOT_DENSE + hot_most(n_threads));
}

/* Whether popular keys of several weights can be copied: with Adagrad, without dense ranges but a bias, and
 * if a block has room for one. */
static bool hot_takes_rows(const mst_hot_weights *hot)
{
    const mst_key_rows *rows = &hot->params->rows;
    for (uint32_t i = 0; i < hot->layout.n_ranges; i++)
        if (hot->layout.ranges[i].size > 1)
            return false;
    return hot->n_threads > 1 && rows->grouped && hot->sums && hot->params->n_slots == 1 &&
           rows->state_width == rows->width && hot->sent <= HOT_BLOCK;
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
    hot->per_block = HOT_BLOCK / (hot->sent / hot->width); /* of dense ranges */
    hot->n_dense_blocks = (hot->n_dense + hot->per_block - 1) / hot->per_block;
    hot->keys_per_block = hot->width > 1 ? 1 : hot->per_block;
    return true;
}

static mst_status hot_init_threads(mst_hot_weights *hot)
{
    uint32_t most = hot_most_keys(hot), unit_most = hot->n_dense + most;
    uint32_t blocks = hot->n_dense_blocks + (most + hot->keys_per_block - 1) / hot->keys_per_block;
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
        thread->last = mst_calloc(blocks, sizeof *thread->last);
        if (thread->seen == NULL || thread->stiff == NULL || thread->last == NULL)
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
                             .unit = by_rows ? params->rows.stride : 1};
    model->ops->layout(model, params, &hot->layout);
    hot->width = hot->layout.width;
    hot->sent = hot->width * (sums ? 1 + n_slots : 1);
    if (hot->width == 0 || (by_rows ? params->rows.n_keys : params->size) + params->spare > UINT32_MAX ||
        params->spare < mst_hot_weights_spare(n_threads) ||
        (hot->width == 1 ? hot->unit > ROW_MAX : !hot_takes_rows(hot)) || !hot_lay_out(hot)) {
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
        mst_free(hot->threads[t].last);
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
    hot->n_blocks = hot->n_dense_blocks + (popular->n + hot->keys_per_block - 1) / hot->keys_per_block;
    for (uint32_t p = 0; p < HOT_PARTS; p++) {
        uint32_t first = ((1u << p) - 1) * hot->keys_per_block,
                 touches = hot->width > 1 ? ROW_TOUCHES : TOUCHES;
        uint32_t rows = first < popular->n ? touches * n_rows / popular->counts[first] : 0;
        hot->rows_of_part[p] = rows > HOT_DENSE_ROWS ? rows : HOT_DENSE_ROWS;
    }
}

/* Copies a popular key to thread t, or back to the store. */
static void hot_copy_key(mst_hot_weights *hot, unsigned t, uint32_t number, bool back)
{
    uint64_t key = hot->popular.keys[number];
    if (hot->width > 1) {
        float all[HOT_BLOCK];
        uint64_t copy = hot_first_copy(hot, t) + number;
        hot_gather(hot, back ? copy : key, all);
        hot_scatter(hot, back ? key : copy, all);
    } else {
        float *store = hot_key(hot, (uint32_t)key),
              *copy = hot_mine_keys(hot, t) + (size_t)number * hot->unit;
        memcpy(back ? store : copy, back ? copy : store, hot->unit * sizeof *copy);
    }
}

/* Copies the weights for thread t. */
static void hot_copy(mst_hot_weights *hot, unsigned t)
{
    hot_thread *thread = &hot->threads[t];
    float *dense = hot_mine_dense(hot, t), *keys = hot_mine_keys(hot, t);
    const float *origin = hot_key(hot, 0);
    thread->map =
        (mst_key_map){.factor = hot->popular.factor,
                      .shift = hot->popular.shift,
                      .base = hot->by_rows ? (uint32_t)hot_first_copy(hot, t) : (uint32_t)(keys - origin),
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
        hot_copy_key(hot, t, i, false);
    thread->steps = 0;
    thread->all_stiff = 0.0f;
    thread->second = 0.25f;
    thread->rule = (mst_rule){0};
    memset(thread->since, 0, sizeof thread->since);
    for (uint32_t b = 0; b < hot->n_blocks; b++) {
        hot_place at = hot_find(hot, t, b);
        thread->last[b] = (hot_last){0}; /* not as many as now: others may have exchanged since begin */
        thread->stiff[b] = 0.0f;
        for (uint32_t i = 0; i < at.n && at.key == 0; i++)
            thread->stiff[b] += at.share[i];
        thread->all_stiff += thread->stiff[b];
        if (at.key != 0)
            hot_gather(hot, at.key, thread->seen[b]);
        for (uint32_t i = 0; i < at.n && at.key == 0; i++)
            for (uint32_t j = 0; j < at.sent; j++)
                thread->seen[b][i * at.sent + j] = at.base[i * at.step + j * at.jump];
    }
}

void mst_hot_weights_begin(mst_hot_weights *hot, const mst_batch *const *samples, unsigned n_samples)
{
    if (n_samples != 0)
        hot_choose(hot, samples, n_samples);
    hot_copy(hot, 0);
    for (uint32_t b = 0; b < hot->n_blocks; b++) {
        atomic_store(&hot->blocks[b].exchanges, 0);
        memcpy(hot->blocks[b].at, hot->threads[0].seen[b], sizeof hot->blocks[b].at);
    }
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
    for (unsigned t = 0; last > 0 && t <= last; t++) {
        mst_hot_exchange_blocks(hot, t, 0, hot->n_dense_blocks, &hot->threads[t].rule, true);
        mst_hot_exchange_blocks(hot, t, hot->n_dense_blocks, hot->n_blocks, &hot->threads[t].rule, true);
    }
    if (!hot->sums && last > 0)
        hot_mean_state(hot);
    for (uint32_t i = 0; i < hot->popular.n; i++)
        hot_copy_key(hot, last, i, true);
    for (uint32_t i = 0; i < hot->layout.n_ranges; i++)
        for (uint32_t s = 0; s < hot->sections; s++)
            mst_params_write(hot->params, s, hot->layout.ranges[i].offset, hot->layout.ranges[i].size,
                             hot_mine_dense(hot, last) + (size_t)s * hot->n_dense + hot->range_at[i]);
}
