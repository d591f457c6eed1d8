/* Strategy local, asynchronous: every thread takes batches of its own and updates the shared weights without
 * locks (Hogwild). If the model updates in place, threads work on private copies of hot weights
 * (hot_weights.h). */
#include "base/alloc.h"
#include "strategy/local_impl.h"

#define SAMPLE_EVERY 16384

/* Claims up to claim_steps steps of the budget; 0 rows if it is used up. */
static uint32_t local_claim_steps(mst_local *self, uint64_t *first_step)
{
    const mst_budget *b = self->budget;
    if (mst_budget_over(b) || atomic_load(&self->ended) || atomic_load(&self->failed))
        return 0;
    uint64_t at = atomic_load(&self->steps_claimed), most;
    do {
        most = mst_span_most_steps(self->progress->steps + at + 1);
        most = most < self->claim_steps ? most : self->claim_steps;
    } while (!atomic_compare_exchange_weak(&self->steps_claimed, &at, at + most));
    if (at >= b->steps)
        return 0;
    uint64_t steps = b->steps - at < most ? b->steps - at : most;
    uint64_t rows = steps * self->batch, row = atomic_fetch_add(&self->rows_claimed, rows);
    if (row >= b->rows)
        return 0;
    *first_step = self->progress->steps + at + 1;
    return (uint32_t)(rows < b->rows - row ? rows : b->rows - row);
}

/* Translates the hot keys of the rows; for batch 1 of models with one weight per key, which translate during
 * the step, provides the memory. */
static mst_status local_map_claim(mst_local *self, unsigned t, mst_batch *claim, mst_weights *weights)
{
    mst_local_thread *w = &self->threads[t];
    const mst_key_map *map = mst_hot_weights_map(self->hot, t);
    size_t n_keys = 0, longest = 0;
    for (uint32_t i = 0; i < claim->n_rows; i++) {
        n_keys += claim->rows[i].n_keys;
        longest = claim->rows[i].n_keys > longest ? claim->rows[i].n_keys : longest;
    }
    bool during = self->batch == 1 && self->base.env.model->ops->coefficients != NULL;
    size_t need = during ? longest * MST_DESCEND_SCRATCH : n_keys;
    if (!mst_grow(&w->keys, &w->key_capacity, need, sizeof *w->keys))
        return mst_fail_memory();
    *weights = *mst_hot_weights_of(self->hot, t);
    if (during) {
        weights->map = map;
        weights->map_scratch = w->keys;
        return MST_OK;
    }
    self->base.env.model->kernels->translate(claim->rows, claim->n_rows, map, w->rows, w->keys);
    claim->rows = w->rows;
    return MST_OK;
}

/* Steps of a claim from number `step` on, by the model. */
static mst_status local_descend_block(mst_local *self, mst_local_thread *w, const mst_batch *rows,
                                      uint64_t step, const mst_weights *weights)
{
    const mst_model *model = self->base.env.model;
    if (self->way == MST_LOCAL_RULE)
        return model->ops->descend_rule(model, w->scratch, rows, self->batch, weights, w->rules + step,
                                        &w->touched, &w->loss);
    model->ops->descend(model, w->scratch, rows, self->batch, weights, w->lrs + step, &w->loss);
    return MST_OK;
}

static mst_status local_async_descend(mst_local *self, unsigned t, const mst_batch *rows, uint64_t first_step)
{
    mst_local_thread *w = &self->threads[t];
    mst_batch claim = *rows;
    mst_weights weights;
    uint64_t n_steps = mst_local_steps(self, claim.n_rows);
    if (self->way == MST_LOCAL_RULE)
        mst_local_rules(self, w, first_step, n_steps);
    for (uint64_t i = 0; i < n_steps && self->way == MST_LOCAL_DESCEND; i++)
        w->lrs[i] = mst_local_lr(self, first_step + i);
    if (self->hot == NULL)
        return local_descend_block(self, w, &claim, 0, &self->weights);
    uint64_t start = mst_trace_now();
    TRY(local_map_claim(self, t, &claim, &weights));
    mst_trace_op("translate", start, mst_trace_array(sizeof *claim.rows, claim.n_rows, 0));
    uint64_t so_far = self->progress->rows + atomic_load(&self->rows_done);
    for (uint64_t step = 0, steps; step < n_steps; step += steps) {
        uint64_t now = so_far + self->n * step * self->batch; /* the others are about as far */
        uint32_t interval = mst_hot_weights_interval(self->hot, now);
        steps = self->batch < interval ? interval / self->batch : 1;
        steps = steps < n_steps - step ? steps : n_steps - step;
        mst_batch block =
            mst_batch_range(&claim, (uint32_t)(step * self->batch), (uint32_t)(steps * self->batch));
        mst_rule rule = {.kind = MST_RULE_SGD, .lr = w->lrs[step]};
        weights.after = claim.n_rows - (uint32_t)(step * self->batch) - block.n_rows;
        TRY(local_descend_block(self, w, &block, step, &weights));
        start = mst_trace_now();
        mst_hot_weights_exchange(self->hot, t, block.n_rows, steps,
                                 self->way == MST_LOCAL_RULE ? &w->rules[step] : &rule,
                                 (float)(w->loss.loss / w->loss.weight), now);
        mst_trace_op("publish", start, (mst_trace_output){0});
    }
    return MST_OK;
}

/* The general way: the gradient of this thread, applied to the shared weights without locks. */
static mst_status local_async_steps(mst_local *self, unsigned t, const mst_batch *claim, uint64_t first_step)
{
    const mst_model *model = self->base.env.model;
    mst_local_thread *w = &self->threads[t];
    for (uint32_t from = 0; from < claim->n_rows; from += self->batch, first_step++) {
        mst_batch batch = mst_batch_range(claim, from, self->batch);
        mst_update u = mst_optimizer_update(self->base.env.optimizer, first_step);
        mst_step at = mst_local_step(self, first_step, 0);
        if (self->timed)
            mst_span_step(first_step);
        mst_local_phase(self, MST_PHASE_COMPUTE);
        mst_local_begin_grad(self, t, 0);
        TRY(model->ops->compute(model, w->scratch, &batch, &self->weights, 1.0f / (float)batch.n_rows,
                                &w->grad, &at, &w->loss));
        float clip = 1.0f;
        mst_local_phase(self, MST_PHASE_APPLY);
        uint64_t start = mst_trace_now();
        if (!self->additive)
            TRY(mst_local_sum_sparse(self, t, 1, w));
        start = mst_trace_op("sum", start, mst_trace_floats(w->key_sums.n, w->grad.width));
        if (self->base.env.optimizer->options.clip_norm > 0.0)
            clip = mst_local_clip(self, mst_local_square(&w->grad, &w->key_sums, 0, 1));
        mst_local_apply_alone(self, w, clip, &u);
        if (!self->additive)
            mst_local_apply_sparse(self, t, clip, &u);
        else if (w->grad.width != 0)
            mst_local_apply_list(self, u.lr, &w->grad.owners[0], w->grad.width);
        mst_local_trace_apply(w, start);
    }
    return MST_OK;
}

/* Chooses the popular keys from the first claims of all threads. Counting keys takes longer than training on
 * the same rows, and all threads wait for it, so the next time is after SAMPLE_EVERY times as many rows. */
static void local_begin_hot(mst_local *self)
{
    uint64_t n_rows = 0;
    for (unsigned t = 0; t < self->n; t++) {
        self->samples[t] = &self->threads[t].first;
        n_rows += self->threads[t].first.n_rows;
    }
    bool due = self->progress->rows >= self->next_sample;
    mst_hot_weights_begin(self->hot, self->samples, due ? self->n : 0);
    if (due)
        self->next_sample = self->progress->rows + SAMPLE_EVERY * n_rows;
}

void mst_local_async_thread(void *arg, unsigned t)
{
    mst_local *self = arg;
    mst_local_thread *w = &self->threads[t];
    mst_batch claim = {0};
    uint64_t first_step = 0;
    bool begun = self->hot == NULL; /* with hot weights, a first claim is the sample for choosing them */
    mst_local_begin(self, t);
    for (;;) {
        mst_span_enter(MST_PHASE_PREPARE);
        uint32_t want = local_claim_steps(self, &first_step);
        mst_status st = MST_OK;
        uint64_t position = 0;
        bool more = true;
        claim.n_rows = 0;
        if (want != 0)
            st = mst_feed_claim_by(self->feed, t, want, self->batch, self->budget->deadline_ns, &claim,
                                   &position, &more);
        if (st == MST_OK)
            st = mst_feed_fill(self->feed, t, 0, claim.n_rows);
        if (!begun) {
            w->first = claim;
            mst_span_enter(MST_PHASE_BARRIER_WAIT);
            mst_team_barrier(self->team, t);
            if (t == 0)
                local_begin_hot(self);
            mst_team_barrier(self->team, t);
            mst_hot_weights_join(self->hot, t);
            begun = true;
        }
        if (st == MST_OK && !more)
            atomic_store(&self->ended, true);
        mst_span_together(first_step, mst_local_steps(self, claim.n_rows));
        mst_span_enter(MST_PHASE_COMPUTE);
        if (st == MST_OK && claim.n_rows != 0)
            st = mst_local_in_place(self) ? local_async_descend(self, t, &claim, first_step)
                                          : local_async_steps(self, t, &claim, first_step);
        if (st != MST_OK) {
            mst_local_fail(self, w, st);
            break;
        }
        if (claim.n_rows == 0)
            break;
        atomic_fetch_add(&self->steps_done, mst_local_steps(self, claim.n_rows));
        atomic_fetch_add(&self->rows_done, claim.n_rows);
        mst_span_steps(mst_local_steps(self, claim.n_rows), claim.n_rows);
    }
    mst_local_end(t);
}
