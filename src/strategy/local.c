/* Strategy local: N threads of this process on one store.
 *
 * sync: all threads share every batch. Phase A: thread t computes on its fixed share of the rows and sorts
 * its contributions by owner. Phase B: owner t adds the contributions of threads 0, 1, ... in that order and
 * updates the weights it owns. Nobody writes a weight of another, and every sum has a fixed order: the result
 * repeats bit for bit for the same number of threads.
 *
 * async: every thread takes batches of its own and updates the shared weights without locks (Hogwild),
 * working on private copies of the hottest weights (hot.h).
 *
 * Where the optimizer is plain SGD and the model can descend in place, sync on one thread and async do that;
 * it is the same update to rounding. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/racy.h"
#include "base/team.h"
#include "strategy/hot.h"
#include "strategy/localise.h"
#include "strategy/strategy.h"

#define SPAN_ROWS     1024 /* rows taken at a time when batches are smaller */
#define PUBLISH_DENSE 32   /* rows between exchanges of the dense ranges and the bias */
#define PUBLISH_KEYS  128  /* rows between exchanges of the popular keys */

/* What one thread works with. */
typedef struct worker {
    _Alignas(64) void *scratch;
    float *lrs; /* learning rates of a span's steps */
    mst_grad grad;
    mst_localiser localiser;
    mst_row *rows; /* async with hot weights: rows with translated keys */
    uint32_t *keys;
    size_t key_capacity;
    mst_batch first; /* async with hot weights: the first span of a run */
    double square;   /* sync: this owner's part of the gradient's squared norm */
    mst_loss_sum loss;
    mst_status status;
    mst_error error;
} worker;

typedef struct local {
    mst_strategy base;
    unsigned n;
    uint32_t batch, span_steps;
    bool descend; /* update in place */
    mst_team *team;
    worker *workers;
    mst_hot *hot; /* async, n > 1; or NULL */
    mst_weights weights;

    /* The run under way. */
    mst_feed *feed;
    const mst_budget *budget;
    mst_progress *progress;
    mst_batch span;                                   /* sync */
    bool over;                                        /* sync: set by thread 0, read by all after a barrier */
    atomic_uint_fast64_t steps_claimed, rows_claimed; /* async: of the budget */
    atomic_uint_fast64_t steps_done, rows_done, furthest;
    atomic_bool ended, failed;
} local;

static mst_status local_init(mst_strategy *base, const mst_strategy_options *options,
                             const mst_strategy_env *env)
{
    local *self = (local *)base;
    const mst_model_ops *model = env->model->ops;
    self->n = (unsigned)options->threads;
    self->batch = (uint32_t)options->batch;
    self->span_steps = self->batch < SPAN_ROWS ? SPAN_ROWS / self->batch : 1;
    base->max_take = self->batch * self->span_steps;
    base->n_lanes = options->mode == MST_MODE_ASYNC ? self->n : 1;
    self->descend = model->descend != NULL && env->optimizer->ops->additive(env->optimizer) &&
                    (options->mode == MST_MODE_ASYNC || self->n == 1);
    mst_model_weights(env->model, env->params, &self->weights);
    TRY(mst_team_new(self->n, &self->team));
    if (options->mode == MST_MODE_ASYNC && self->n > 1 && self->descend)
        TRY(mst_hot_new(env->model, env->params, self->n, &self->hot));

    self->workers = mst_alloc_lines(self->n * sizeof *self->workers);
    if (self->workers == NULL)
        return mst_fail(MST_ENOMEM, "no memory for %u training threads", self->n);
    memset(self->workers, 0, self->n * sizeof *self->workers);
    mst_grad layout = {0};
    model->layout(env->model, env->params, &layout);
    unsigned n_owners = options->mode == MST_MODE_ASYNC ? 1 : self->n;
    for (unsigned t = 0; t < self->n; t++) {
        worker *w = &self->workers[t];
        w->scratch = mst_alloc_lines(model->scratch_size(env->model, base->max_take));
        w->lrs = mst_calloc(self->span_steps, sizeof *w->lrs);
        if (self->hot != NULL)
            w->rows = mst_calloc(base->max_take, sizeof *w->rows);
        if (w->scratch == NULL || w->lrs == NULL || (self->hot != NULL && w->rows == NULL))
            return mst_fail(MST_ENOMEM, "no memory for batches of %u rows", self->batch);
        if (!self->descend)
            TRY(mst_grad_init(&w->grad, layout.ranges, layout.n_ranges, layout.sparse_offset, layout.width,
                              n_owners));
    }
    return MST_OK;
}

static void local_fini(mst_strategy *base)
{
    local *self = (local *)base;
    mst_team_destroy(self->team);
    for (unsigned t = 0; self->workers != NULL && t < self->n; t++) {
        worker *w = &self->workers[t];
        mst_free(w->scratch);
        mst_free(w->lrs);
        mst_free(w->rows);
        mst_free(w->keys);
        mst_grad_fini(&w->grad);
        mst_localiser_fini(&w->localiser);
    }
    mst_free(self->workers);
    mst_hot_destroy(self->hot);
}

static float learning_rate(const local *self, uint64_t step)
{
    return mst_learning_rate(&self->base.env.optimizer->options, step);
}

static uint64_t steps_of(const local *self, uint64_t rows)
{
    return (rows + self->batch - 1) / self->batch;
}

static void fail(local *self, worker *w, mst_status st)
{
    w->status = st;
    mst_error_save(&w->error, st);
    atomic_store(&self->failed, true);
}

static bool out_of_time(const mst_budget *budget)
{
    return (budget->stop != NULL && atomic_load_explicit(budget->stop, memory_order_relaxed)) ||
           (budget->deadline_ns != UINT64_MAX && mst_now_ns() >= budget->deadline_ns);
}

/* ---- the update ---- */

/* Owner t's sparse part: contributions of all threads, in thread order. Where the update is not additive they
 * are summed per key first. */
static mst_status sum_sparse(local *self, unsigned t, unsigned n_sources, worker *sources)
{
    worker *w = &self->workers[t];
    size_t n = 0;
    uint32_t width = w->grad.width;
    unsigned owner = n_sources == 1 ? 0 : t;
    if (width == 0)
        return MST_OK;
    for (unsigned s = 0; s < n_sources; s++)
        n += sources[s].grad.owners[owner].n;
    TRY(mst_localiser_begin(&w->localiser, n, width));
    for (unsigned s = 0; s < n_sources; s++)
        mst_localiser_add(&w->localiser, &sources[s].grad.owners[owner], width);
    return MST_OK;
}

MST_RACY static void add_in_place(float *w, float lr, const mst_contributions *list, uint32_t width)
{
    enum { AHEAD = 32 };
    for (size_t i = 0; i < list->n; i++) {
        if (i + AHEAD < list->n)
            __builtin_prefetch(&w[(size_t)list->keys[i + AHEAD] * width], 1);
        float *at = w + (size_t)list->keys[i] * width;
        for (uint32_t c = 0; c < width; c++)
            at[c] -= lr * list->values[i * width + c];
    }
}

static double square_of(const float *g, size_t n)
{
    double sum = 0.0;
    for (size_t i = 0; i < n; i++)
        sum += (double)g[i] * g[i];
    return sum;
}

/* Owner t's slice of a dense range, cut at multiples of 16 floats so that no two owners share a line. */
static void slice_of(uint64_t size, unsigned t, unsigned n, uint64_t *from, uint64_t *to)
{
    uint64_t lines = (size + 15) / 16;
    *from = lines * t / n * 16;
    *to = lines * (t + 1) / n * 16;
    *from = *from < size ? *from : size;
    *to = *to < size ? *to : size;
}

/* Adds the other threads' dense gradients to thread 0's, in order; owner t's slices only. */
static void sum_dense(local *self, unsigned t)
{
    mst_grad *first = &self->workers[0].grad;
    for (uint32_t r = 0; r < first->n_ranges; r++) {
        uint64_t from, to;
        slice_of(first->ranges[r].size, t, self->n, &from, &to);
        float *restrict sum = first->ranges[r].g;
        for (unsigned s = 1; s < self->n; s++) {
            const float *restrict add = self->workers[s].grad.ranges[r].g;
            for (uint64_t i = from; i < to; i++)
                sum[i] += add[i];
        }
    }
}

static void scale_floats(float *g, size_t n, float by)
{
    for (size_t i = 0; i < n; i++)
        g[i] *= by;
}

/* Applies slices of the dense ranges of `grad` as owner t of n. */
static void apply_dense(local *self, mst_grad *grad, unsigned t, unsigned n, float clip, const mst_update *u)
{
    const mst_optimizer *optimizer = self->base.env.optimizer;
    mst_params *params = self->base.env.params;
    for (uint32_t r = 0; r < grad->n_ranges; r++) {
        uint64_t from, to;
        slice_of(grad->ranges[r].size, t, n, &from, &to);
        if (from == to)
            continue;
        float *g = grad->ranges[r].g + from, *slots[MST_SLOT_MAX];
        uint64_t at = grad->ranges[r].offset + from;
        for (uint32_t s = 0; s < params->n_slots; s++)
            slots[s] = params->slots[s] + at;
        if (clip != 1.0f)
            scale_floats(g, to - from, clip);
        optimizer->ops->apply_range(optimizer, u, params->w + at, slots, g, to - from);
    }
}

static void apply_sparse(local *self, mst_localiser *l, uint64_t offset, uint32_t width, float clip,
                         const mst_update *u)
{
    const mst_optimizer *optimizer = self->base.env.optimizer;
    mst_params *params = self->base.env.params;
    float *slots[MST_SLOT_MAX];
    if (width == 0)
        return;
    for (uint32_t s = 0; s < params->n_slots; s++)
        slots[s] = params->slots[s] + offset;
    if (clip != 1.0f)
        scale_floats(l->sums, (size_t)l->n * width, clip);
    optimizer->ops->apply_keys(optimizer, u, params->w + offset, slots, l->keys, l->sums, l->n, width);
}

static float clip_factor(const local *self, double square)
{
    double limit = self->base.env.optimizer->options.clip_norm, norm = sqrt(square);
    return norm > limit ? (float)(limit / norm) : 1.0f;
}

/* ---- sync ---- */

/* One step: every thread calls it with the same batch. */
static mst_status sync_step(local *self, unsigned t, const mst_batch *batch, uint64_t step)
{
    const mst_model *model = self->base.env.model;
    const mst_optimizer *optimizer = self->base.env.optimizer;
    worker *w = &self->workers[t];
    uint32_t from = (uint32_t)((uint64_t)batch->n_rows * t / self->n);
    uint32_t to = (uint32_t)((uint64_t)batch->n_rows * (t + 1) / self->n);
    mst_batch share = {.rows = batch->rows + from, .n_rows = to - from};
    mst_update u = {.lr = learning_rate(self, step), .step = step};
    bool additive = optimizer->ops->additive(optimizer);
    mst_status st;

    mst_grad_clear(&w->grad);
    st = model->ops->compute(model, w->scratch, &share, &self->weights, 1.0f / (float)batch->n_rows, &w->grad,
                             NULL, &w->loss);
    mst_team_barrier(self->team);

    float clip = 1.0f;
    uint32_t width = w->grad.width;
    sum_dense(self, t);
    if (st == MST_OK && !additive)
        st = sum_sparse(self, t, self->n, self->workers);
    if (optimizer->options.clip_norm > 0.0) {
        w->square = square_of(w->localiser.sums, (size_t)w->localiser.n * width);
        for (uint32_t r = 0; r < w->grad.n_ranges; r++) {
            uint64_t a, b;
            slice_of(w->grad.ranges[r].size, t, self->n, &a, &b);
            w->square += square_of(self->workers[0].grad.ranges[r].g + a, b - a);
        }
        mst_team_barrier(self->team);
        double square = 0.0;
        for (unsigned s = 0; s < self->n; s++)
            square += self->workers[s].square;
        clip = clip_factor(self, square);
    }
    apply_dense(self, &self->workers[0].grad, t, self->n, clip, &u);
    if (additive)
        for (unsigned s = 0; s < self->n && width != 0; s++)
            add_in_place(self->weights.sparse, u.lr, &self->workers[s].grad.owners[t], width);
    else if (st == MST_OK)
        apply_sparse(self, &w->localiser, w->grad.sparse_offset, width, clip, &u);
    mst_team_barrier(self->team);
    return st;
}

/* Thread 0: the next span of rows within the budget, into self->span. */
static mst_status take_span(local *self)
{
    const mst_budget *b = self->budget;
    mst_progress *p = self->progress;
    uint64_t steps = b->steps - atomic_load(&self->steps_done),
             rows = b->rows - atomic_load(&self->rows_done);
    uint64_t want = (uint64_t)self->batch * (steps < self->span_steps ? steps : self->span_steps), position;
    want = want < rows ? want : rows;
    self->over = want == 0 || out_of_time(b);
    if (self->over)
        return MST_OK;
    TRY(mst_feed_take(self->feed, 0, (uint32_t)want, &self->span, &position));
    p->epoch_ended = self->span.n_rows < want;
    if (self->span.n_rows != 0)
        p->position = position + self->span.n_rows;
    self->over = self->span.n_rows == 0;
    return MST_OK;
}

static void sync_thread(void *arg, unsigned t)
{
    local *self = arg;
    worker *w = &self->workers[t];
    uint64_t step = self->progress->steps;
    for (;;) {
        if (t == 0) {
            mst_status st = take_span(self);
            if (st != MST_OK) {
                fail(self, w, st);
                self->over = true;
            }
        }
        mst_team_barrier(self->team);
        if (self->over || atomic_load(&self->failed))
            return;
        mst_batch span = self->span;
        uint64_t n_steps = steps_of(self, span.n_rows);
        if (self->descend) {
            for (uint64_t i = 0; i < n_steps; i++)
                w->lrs[i] = learning_rate(self, step + 1 + i);
            self->base.env.model->ops->descend(self->base.env.model, w->scratch, &span, self->batch,
                                               &self->weights, w->lrs, &w->loss);
        } else {
            for (uint64_t i = 0; i < n_steps; i++) {
                mst_batch batch = mst_batch_part(&span, (uint32_t)(i * self->batch), self->batch);
                mst_status st = sync_step(self, t, &batch, step + 1 + i);
                if (st != MST_OK)
                    fail(self, w, st);
            }
        }
        step += n_steps;
        if (t == 0) {
            atomic_fetch_add(&self->steps_done, n_steps);
            atomic_fetch_add(&self->rows_done, span.n_rows);
        }
        mst_team_barrier(self->team); /* nobody takes the next span while rows of this one are in use */
    }
}

/* ---- async ---- */

/* Claims up to span_steps steps of the budget; 0 rows when it is used up. */
static uint32_t claim_rows(local *self, uint64_t *first_step)
{
    const mst_budget *b = self->budget;
    if (out_of_time(b) || atomic_load(&self->ended) || atomic_load(&self->failed))
        return 0;
    uint64_t at = atomic_fetch_add(&self->steps_claimed, self->span_steps);
    if (at >= b->steps)
        return 0;
    uint64_t steps = b->steps - at < self->span_steps ? b->steps - at : self->span_steps;
    uint64_t rows = steps * self->batch, row = atomic_fetch_add(&self->rows_claimed, rows);
    if (row >= b->rows)
        return 0;
    *first_step = self->progress->steps + at + 1;
    return (uint32_t)(rows < b->rows - row ? rows : b->rows - row);
}

static mst_status async_descend(local *self, unsigned t, const mst_batch *span, uint64_t first_step)
{
    const mst_model *model = self->base.env.model;
    worker *w = &self->workers[t];
    uint64_t n_steps = steps_of(self, span->n_rows);
    for (uint64_t i = 0; i < n_steps; i++)
        w->lrs[i] = learning_rate(self, first_step + i);
    if (self->hot == NULL) {
        model->ops->descend(model, w->scratch, span, self->batch, &self->weights, w->lrs, &w->loss);
        return MST_OK;
    }
    size_t n_keys = 0;
    for (uint32_t i = 0; i < span->n_rows; i++)
        n_keys += span->rows[i].n_keys;
    if (!mst_grow(&w->keys, &w->key_capacity, n_keys, sizeof *w->keys))
        return mst_fail(MST_ENOMEM, "no memory for a span of %zu entries", n_keys);
    mst_hot_translate(self->hot, t, span, w->rows, w->keys);
    mst_batch translated = {.rows = w->rows, .n_rows = span->n_rows};
    uint32_t block_steps = self->batch < PUBLISH_DENSE ? PUBLISH_DENSE / self->batch : 1, since_keys = 0;
    for (uint64_t step = 0; step < n_steps; step += block_steps) {
        mst_batch block = mst_batch_part(&translated, (uint32_t)(step * self->batch),
                                         (uint32_t)(block_steps * self->batch));
        model->ops->descend(model, w->scratch, &block, self->batch, mst_hot_weights(self->hot, t),
                            w->lrs + step, &w->loss);
        mst_hot_publish_dense(self->hot, t);
        since_keys += block.n_rows;
        if (since_keys >= PUBLISH_KEYS) {
            mst_hot_publish_keys(self->hot, t);
            since_keys = 0;
        }
    }
    mst_hot_publish_keys(self->hot, t);
    return MST_OK;
}

/* The general path: this thread's gradient, applied to the shared weights without locks. */
static mst_status async_steps(local *self, unsigned t, const mst_batch *span, uint64_t first_step)
{
    const mst_model *model = self->base.env.model;
    worker *w = &self->workers[t];
    for (uint32_t from = 0; from < span->n_rows; from += self->batch, first_step++) {
        mst_batch batch = mst_batch_part(span, from, self->batch);
        mst_update u = {.lr = learning_rate(self, first_step), .step = first_step};
        mst_grad_clear(&w->grad);
        TRY(model->ops->compute(model, w->scratch, &batch, &self->weights, 1.0f / (float)batch.n_rows,
                                &w->grad, NULL, &w->loss));
        if (self->base.env.optimizer->ops->additive(self->base.env.optimizer)) {
            apply_dense(self, &w->grad, 0, 1, 1.0f, &u);
            if (w->grad.width != 0)
                add_in_place(self->weights.sparse, u.lr, &w->grad.owners[0], w->grad.width);
            continue;
        }
        TRY(sum_sparse(self, t, 1, w));
        float clip = 1.0f;
        if (self->base.env.optimizer->options.clip_norm > 0.0) {
            double square = square_of(w->localiser.sums, (size_t)w->localiser.n * w->grad.width);
            for (uint32_t r = 0; r < w->grad.n_ranges; r++)
                square += square_of(w->grad.ranges[r].g, w->grad.ranges[r].size);
            clip = clip_factor(self, square);
        }
        apply_dense(self, &w->grad, 0, 1, clip, &u);
        apply_sparse(self, &w->localiser, w->grad.sparse_offset, w->grad.width, clip, &u);
    }
    return MST_OK;
}

/* The longest of the threads' first spans: near the end of an epoch some find no rows left. */
static const mst_batch *longest_first(const local *self)
{
    const mst_batch *longest = &self->workers[0].first;
    for (unsigned t = 1; t < self->n; t++)
        if (self->workers[t].first.n_rows > longest->n_rows)
            longest = &self->workers[t].first;
    return longest;
}

static void async_thread(void *arg, unsigned t)
{
    local *self = arg;
    worker *w = &self->workers[t];
    mst_batch span = {0};
    uint64_t first_step = 0;
    bool begun = self->hot == NULL; /* with hot weights, a first span is the sample they are chosen from */
    for (;;) {
        uint32_t want = claim_rows(self, &first_step);
        mst_status st = MST_OK;
        uint64_t position = 0;
        span.n_rows = 0;
        if (want != 0)
            st = mst_feed_take(self->feed, t, want, &span, &position);
        if (!begun) {
            w->first = span;
            mst_team_barrier(self->team);
            if (t == 0)
                mst_hot_begin(self->hot, longest_first(self));
            mst_team_barrier(self->team);
            begun = true;
        }
        if (st == MST_OK && span.n_rows < want)
            atomic_store(&self->ended, true);
        if (st == MST_OK && span.n_rows != 0)
            st = self->descend ? async_descend(self, t, &span, first_step)
                               : async_steps(self, t, &span, first_step);
        if (st != MST_OK) {
            fail(self, w, st);
            return;
        }
        if (span.n_rows == 0)
            return;
        atomic_fetch_add(&self->steps_done, steps_of(self, span.n_rows));
        atomic_fetch_add(&self->rows_done, span.n_rows);
    }
}

static mst_status local_run(mst_strategy *base, mst_feed *feed, const mst_budget *budget,
                            mst_progress *progress)
{
    local *self = (local *)base;
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
    for (unsigned t = 0; t < self->n; t++) {
        self->workers[t].status = MST_OK;
        self->workers[t].loss = (mst_loss_sum){0};
    }
    mst_team_run(self->team, async ? async_thread : sync_thread, self);
    if (async) {
        if (self->hot != NULL)
            mst_hot_end(self->hot);
        progress->epoch_ended = atomic_load(&self->ended);
        progress->position += atomic_load(&self->rows_done);
    }
    progress->steps += atomic_load(&self->steps_done);
    progress->rows += atomic_load(&self->rows_done);
    for (unsigned t = 0; t < self->n; t++) {
        progress->loss.loss += self->workers[t].loss.loss;
        progress->loss.weight += self->workers[t].loss.weight;
        progress->loss.rows += self->workers[t].loss.rows;
    }
    for (unsigned t = 0; t < self->n; t++)
        if (self->workers[t].status != MST_OK)
            return mst_error_restore(&self->workers[t].error);
    return MST_OK;
}

const mst_strategy_ops mst_strategy_local = {
    .name = "local",
    .help = "threads of one process on one set of weights",
    .size = sizeof(local),
    .init = local_init,
    .run = local_run,
    .fini = local_fini,
};
