/* Strategy local: N threads of this process on one store; sync in local_sync.c, async in local_async.c.
 *
 * One thread, and asynchronous threads of linear models or with batch 1, update in place if the model can.
 * The result equals that of the general way through a gradient up to rounding. */
#include <string.h>

#include "base/alloc.h"
#include "observe/cpu_quota.h"
#include "strategy/local_impl.h"
#include "tensor/past_caches.h"

#define CLAIM_ROWS       1024  /* rows claimed at a time if batches are smaller */
#define SYNC_CLAIM_ROWS  8192  /* the same of synchronous threads, which wait for the one that claims ... */
#define MANY_CLAIM_ROWS  32768 /* ... and of many of them, which wait for each other at every claim */
#define CLAIM_STEPS      1024 /* at most, of synchronous threads: loaded cores take 10 to 300 us for a step */
#define TIMED_ROWS       64   /* rows of a step from which its phases are timed, or ... */
#define FUSED_THREADS    6    /* as fast as one of a model that fuses; 2 have 0.5 of its rate */
#define OWN_ROWS         4096 /* of a batch, at most, in which few threads pick the keys that they own, ... */
#define OWN_FLOATS       65536 /* ... of weights, at least: fewer have lines that cores exchange fast */
#define SHOWN_LEAST      4096  /* dense parameters from which gradients are shown to the owners */
#define PARTS_PER_THREAD (MST_PARTS_ANY + 2) /* at most */
#define PARTS_MOST       (1u << 24)          /* floats of their gradients */

/* Whether the model can apply the rule itself, on a store whose first `head` keys are no rows. */
static bool local_by_rule(const mst_strategy_env *env, bool by_rows, uint32_t head)
{
    return env->model->ops->descend_rule != NULL && env->optimizer->sparse == NULL && by_rows &&
           head <= MST_HEAD_MAX && env->optimizer->options.clip_norm == 0;
}

unsigned mst_strategy_least_threads(const mst_strategy_options *options, const mst_strategy_env *env)
{
    const mst_model_ops *model = env->model->ops;
    mst_key_rows rows = mst_params_planned_rows(env->params);
    if (options->strategy != MST_STRATEGY_LOCAL || options->mode != MST_MODE_SYNC ||
        env->model->gpu.ops != NULL || model->fuses == NULL || rows.stride == 0)
        return 1;
    uint32_t head = (uint32_t)(rows.n_keys - (rows.end - rows.first) / rows.width);
    return local_by_rule(env, true, head) && model->fuses(env->model, head) ? FUSED_THREADS : 1;
}

static mst_local_way local_choose_way(const mst_local *self, const mst_model_ops *model)
{
    bool async = self->base.options.mode == MST_MODE_ASYNC;
    if (local_by_rule(&self->base.env, self->weights.by_rows, self->weights.head) &&
        (self->n == 1 || (async && (self->batch == 1 || model->coefficients != NULL))))
        return MST_LOCAL_RULE;
    if (!async && self->n > 1 && model->coefficients != NULL && (self->additive || self->weights.by_rows) &&
        self->base.env.optimizer->options.clip_norm == 0)
        return self->n <= MST_FEW_BLOCKS && self->batch <= OWN_ROWS &&
                       self->base.env.params->size >= OWN_FLOATS
                   ? MST_LOCAL_OWN
                   : MST_LOCAL_PICK;
    if (!self->additive)
        return MST_LOCAL_GENERAL;
    if (model->descend != NULL && (async || self->n == 1))
        return MST_LOCAL_DESCEND;
    return MST_LOCAL_GENERAL;
}

/* Rows of the largest batch that the model computes at once. */
static uint32_t local_rows_at_once(const mst_local *self)
{
    if (mst_local_in_place(self))
        return self->base.max_take;
    if (self->base.options.mode == MST_MODE_ASYNC)
        return self->batch;
    uint32_t share = (self->batch + self->n - 1) / self->n;
    return share > self->part_rows ? share : self->part_rows;
}

static mst_status local_init_picks(const mst_local *self, mst_local_thread *w)
{
    uint32_t share = (self->batch + self->n - 1) / self->n;
    if (self->way == MST_LOCAL_OWN) {
        w->margins = mst_alloc_lines(self->batch * sizeof *w->margins);
        w->rows = mst_calloc(share + 1, sizeof *w->rows);
        if (w->margins == NULL || w->rows == NULL)
            return mst_fail_memory();
        TRY(mst_picks_init(&w->next, 1));
        return mst_picks_init(&w->picks, 1);
    }
    w->coefs = mst_alloc_lines((share + 1) * sizeof *w->coefs);
    w->rows = mst_calloc(share + 1, sizeof *w->rows);
    w->hot_sums = mst_alloc_lines((MST_HOT_KEYS + MST_PLACES_BEHIND) * sizeof *w->hot_sums);
    if (w->coefs == NULL || w->rows == NULL || w->hot_sums == NULL)
        return mst_fail_memory();
    return mst_picks_init(&w->picks, self->n);
}

static mst_status local_init_thread(mst_local *self, mst_local_thread *w, const mst_grad *layout)
{
    const mst_model *model = self->base.env.model;
    uint32_t max_take = self->base.max_take;
    TRY(mst_model_scratch_new(model, local_rows_at_once(self), self->assists ? model->crew : self->inner,
                              true, &w->scratch));
    w->lrs = mst_calloc(self->claim_steps, sizeof *w->lrs);
    if (mst_local_by_picks(self))
        TRY(local_init_picks(self, w));
    else if (self->hot != NULL)
        w->rows = mst_calloc(max_take, sizeof *w->rows);
    if (self->way == MST_LOCAL_RULE)
        w->rules = mst_calloc(self->claim_steps, sizeof *w->rules);
    if (w->lrs == NULL || (self->hot != NULL && w->rows == NULL) ||
        (self->way == MST_LOCAL_RULE && w->rules == NULL))
        return mst_fail_memory();
    if (mst_local_in_place(self))
        return MST_OK;
    return mst_grad_init(&w->grad, layout->ranges, layout->n_ranges, layout->sparse_offset, layout->width,
                         self->base.options.mode == MST_MODE_ASYNC ? 1 : self->n);
}

static uint64_t local_floats(const mst_grad *layout)
{
    uint64_t n = 0;
    for (uint32_t r = 0; r < layout->n_ranges; r++)
        n += layout->ranges[r].state ? 0 : layout->ranges[r].size;
    return n;
}

static bool local_has_state(const mst_grad *layout)
{
    for (uint32_t r = 0; r < layout->n_ranges; r++)
        if (layout->ranges[r].state)
            return true;
    return false;
}

/* Parts of a batch, at most, in parts of so many rows. */
static uint64_t local_most_parts(const mst_local *self, uint32_t part_rows)
{
    uint64_t all = (self->batch + part_rows - 1) / part_rows + self->n,
             most = (uint64_t)PARTS_PER_THREAD * self->n;
    return all < most ? all : most;
}

/* Rows of a part that any thread may compute; 0: each thread computes a share of the batch. */
static uint32_t local_part_rows(const mst_local *self, const mst_grad *layout)
{
    const mst_model *model = self->base.env.model;
    uint64_t floats = local_floats(layout);
    if (self->base.options.mode != MST_MODE_SYNC || model->part_rows == 0 || layout->width != 0 ||
        local_has_state(layout) || floats < SHOWN_LEAST ||
        local_most_parts(self, model->part_rows) * floats > PARTS_MOST)
        return 0;
    return model->part_rows;
}

static mst_status local_init_parts(mst_local *self, const mst_grad *layout)
{
    self->streams = mst_stream_gains();
    self->shows = self->base.options.mode == MST_MODE_SYNC && self->n > 1 &&
                  local_floats(layout) >= SHOWN_LEAST && (self->streams || layout->width == 0);
    self->streams = self->streams && self->shows;
    if (!self->shows)
        return MST_OK;
    self->n_parts = self->part_rows != 0 ? (unsigned)local_most_parts(self, self->part_rows) : self->n;
    self->parts = mst_alloc_lines(self->n_parts * sizeof *self->parts);
    if (self->parts == NULL)
        return mst_fail_memory();
    memset(self->parts, 0, self->n_parts * sizeof *self->parts);
    for (unsigned p = 0; p < self->n_parts; p++)
        TRY(mst_grad_init(&self->parts[p].shown, layout->ranges, layout->n_ranges, 0, 0, 0));
    return MST_OK;
}

/* Threads beyond the parts of a batch would only wait: they assist others where the model can divide a part
 * and each has a core. The result is the same to the bit. The norm of a gradient is a sum over the threads,
 * so with --clip-norm their number does not depend on the cores. */
static void local_choose_threads(mst_local *self, const mst_strategy_options *options, const mst_grad *layout)
{
    const mst_model *model = self->base.env.model;
    unsigned threads = (unsigned)options->threads;
    self->n = mst_model_threads(model) ? 1 : threads;
    self->inner = threads / self->n;
    self->part_rows = self->n > 1 ? local_part_rows(self, layout) : 0;
    uint32_t parts = self->part_rows != 0 ? (self->batch + self->part_rows - 1) / self->part_rows : self->n;
    bool divides = self->part_rows != 0 && parts > 1 && model->crew > 1 && model->ops->assist != NULL;
    bool clips = self->base.env.optimizer->options.clip_norm > 0;
    self->assists = divides && threads <= mst_cpu_cores();
    uint64_t most = (uint64_t)parts * (self->assists || (divides && clips) ? model->crew : 1);
    self->n = most < self->n ? (unsigned)most : self->n;
    self->part_rows = self->n > 1 ? self->part_rows : 0;
    self->base.n_threads = self->n * self->inner;
}

static mst_status local_init(mst_strategy *base, const mst_strategy_options *options,
                             const mst_strategy_env *env)
{
    mst_local *self = (mst_local *)base;
    const mst_model_ops *model = env->model->ops;
    mst_grad layout = {0};
    model->layout(env->model, env->params, &layout);
    self->batch = (uint32_t)options->batch;
    local_choose_threads(self, options, &layout);
    self->additive = mst_optimizer_additive(env->optimizer);
    mst_model_weights(env->model, env->params, &self->weights);
    self->way = local_choose_way(self, model);
    if (options->mode == MST_MODE_ASYNC && self->n > 1)
        self->weights.shared = UINT32_MAX;
    bool by_picks = mst_local_by_picks(self);
    bool together = options->mode == MST_MODE_SYNC && self->n > 1;
    uint32_t claim_rows = by_picks ? MANY_CLAIM_ROWS : together ? SYNC_CLAIM_ROWS : CLAIM_ROWS;
    self->claim_steps = self->batch < claim_rows ? claim_rows / self->batch : 1;
    if (together && self->claim_steps > CLAIM_STEPS)
        self->claim_steps = CLAIM_STEPS;
    /* ... of nets, or of threads that wait for each other, which takes longer than the clock */
    self->timed = self->batch >= TIMED_ROWS || mst_model_chain(env->model) != NULL || together;
    base->max_take = self->batch * self->claim_steps;
    base->any_keys = env->params->guard != NULL && (self->way != MST_LOCAL_GENERAL || self->additive);
    base->n_lanes = options->mode == MST_MODE_ASYNC ? self->n : 1;
    TRY(mst_team_new(self->n, &self->team));
    if (self->way == MST_LOCAL_OWN &&
        (self->coefs = mst_alloc_lines(self->batch * sizeof *self->coefs)) == NULL)
        return mst_fail_memory();
    if ((mst_local_in_place(self) && self->n > 1) ||
        (self->way == MST_LOCAL_PICK && self->n > MST_FEW_BLOCKS))
        TRY(mst_hot_weights_new(env->model, env->params, by_picks ? 1 : self->n, env->optimizer->ops->sums,
                                &self->hot));
    self->threads = mst_alloc_lines(self->n * sizeof *self->threads);
    if (self->threads == NULL)
        return mst_fail_memory();
    memset(self->threads, 0, self->n * sizeof *self->threads);
    self->samples = mst_calloc(self->n, sizeof *self->samples);
    if (self->samples == NULL)
        return mst_fail_memory();
    TRY(local_init_parts(self, &layout));
    for (unsigned t = 0; t < self->n; t++)
        TRY(local_init_thread(self, &self->threads[t], &layout));
    return MST_OK;
}

static void local_fini(mst_strategy *base)
{
    mst_local *self = (mst_local *)base;
    mst_team_destroy(self->team);
    for (unsigned t = 0; self->threads != NULL && t < self->n; t++) {
        mst_local_thread *w = &self->threads[t];
        mst_model_scratch_free(base->env.model, w->scratch);
        mst_free(w->lrs);
        mst_free(w->rules);
        mst_free(w->touched.keys);
        mst_picks_fini(&w->picks);
        mst_free(w->coefs);
        mst_free(w->hot_sums);
        mst_free(w->margins);
        mst_picks_fini(&w->next);
        mst_free(w->rows);
        mst_free(w->keys);
        mst_grad_fini(&w->grad);
        mst_key_sums_fini(&w->key_sums);
    }
    for (unsigned p = 0; self->parts != NULL && p < self->n_parts; p++)
        mst_grad_fini(&self->parts[p].shown);
    mst_free(self->parts);
    mst_free(self->threads);
    mst_free(self->samples);
    mst_free(self->coefs);
    mst_hot_weights_destroy(self->hot);
}

void mst_local_fail(mst_local *self, mst_local_thread *w, mst_status st)
{
    w->status = st;
    mst_error_save(&w->error, st);
    atomic_store(&self->failed, true);
}

void mst_local_stop(mst_local *self, mst_local_thread *w, mst_status st, uint64_t step)
{
    uint64_t before = atomic_load(&self->stop_at);
    mst_local_fail(self, w, st);
    while (step < before && !atomic_compare_exchange_weak(&self->stop_at, &before, step))
        ;
}

static uint64_t local_spare(const mst_strategy_options *options)
{
    if (options->mode == MST_MODE_ASYNC)
        return options->threads > 1 ? mst_hot_weights_spare((unsigned)options->threads) : 0;
    return options->threads > MST_FEW_BLOCKS ? mst_hot_weights_spare(1) : 0;
}

/* Synchronous threads: the copies of popular keys, which are chosen in the first run. The sample is the same
 * wherever a run begins, so that a resumed training repeats bit for bit. */
static mst_status local_begin_popular(mst_local *self)
{
    mst_row *rows = NULL;
    mst_chunk *chunk = NULL;
    mst_batch sample = {0};
    mst_status st = MST_OK;
    if (!self->sampled) {
        sample.rows = rows = mst_calloc(MST_HOT_SAMPLE, sizeof *rows);
        st = rows == NULL ? mst_fail_memory()
                          : mst_feed_first_rows(self->feed, MST_HOT_SAMPLE, rows, &sample.n_rows, &chunk);
    }
    if (st == MST_OK) {
        mst_hot_weights_begin(self->hot, (const mst_batch *[]){&sample}, self->sampled ? 0 : 1);
        self->n_popular = mst_hot_weights_places(self->hot, &self->popular);
        self->sampled = true;
    }
    mst_chunk_release(chunk);
    mst_free(rows);
    return st;
}

static mst_status local_run(mst_strategy *base, mst_feed *feed, const mst_budget *budget,
                            mst_progress *progress)
{
    mst_local *self = (mst_local *)base;
    bool async = base->options.mode == MST_MODE_ASYNC;
    self->feed = feed;
    self->budget = budget;
    self->progress = progress;
    atomic_store(&self->steps_claimed, 0);
    atomic_store(&self->rows_claimed, 0);
    atomic_store(&self->steps_done, 0);
    atomic_store(&self->rows_done, 0);
    atomic_store(&self->ended, false);
    atomic_store(&self->failed, false);
    atomic_store(&self->stop_at, UINT64_MAX);
    atomic_store(&self->next_part, 0);
    atomic_store(&self->parts_done, 0);
    for (unsigned t = 0; t < self->n; t++) {
        self->threads[t].status = MST_OK;
        self->threads[t].loss = (mst_loss_sum){0};
    }
    if (self->way == MST_LOCAL_PICK && self->hot != NULL)
        TRY(local_begin_popular(self));
    mst_team_run(self->team, async ? mst_local_async_thread : mst_local_sync_thread, self);
    if (self->hot != NULL)
        mst_hot_weights_end(self->hot);
    if (async) {
        progress->epoch_ended = atomic_load(&self->ended);
        progress->position += atomic_load(&self->rows_done);
    }
    progress->steps += atomic_load(&self->steps_done);
    progress->rows += atomic_load(&self->rows_done);
    for (unsigned t = 0; t < self->n; t++)
        mst_add_loss(&progress->loss, &self->threads[t].loss);
    for (unsigned t = 0; t < self->n; t++)
        if (self->threads[t].status != MST_OK)
            return mst_error_restore(&self->threads[t].error);
    return MST_OK;
}

static const mst_grad *local_gradient(const mst_strategy *base)
{
    const mst_local *self = (const mst_local *)base;
    if (mst_local_in_place(self))
        return NULL;
    mst_grad *grad = &self->threads[0].grad;
    for (uint32_t r = 0; r < grad->n_ranges && base->options.mode == MST_MODE_SYNC; r++)
        for (unsigned t = 1; t < self->n && !grad->ranges[r].state; t++) { /* owners have their sums */
            uint64_t from, to;
            mst_grad_slice(grad->ranges[r].size, t, self->n, &from, &to);
            memcpy(grad->ranges[r].g + from, self->threads[t].grad.ranges[r].g + from,
                   (to - from) * sizeof(float));
        }
    return grad;
}

const mst_strategy_ops mst_strategy_local = {
    .size = sizeof(mst_local),
    .spare = local_spare,
    .init = local_init,
    .run = local_run,
    .fini = local_fini,
    .gradient = local_gradient,
};
