/* Strategy local, synchronous: all threads share every batch.
 *
 * Phase A: thread t computes on its fixed share of the rows. Phase B: owner t adds the results of all
 * threads, in thread order, and updates the weights that it owns. No thread writes a weight of another, and
 * every sum has a fixed order: the result repeats bit for bit for the same number of threads.
 *
 * Every key has an owner, by its hash. Linear models: each thread picks the keys that it owns from all rows
 * of a claim before the first step; in phase A the threads compute a coefficient per row, and in phase B the
 * owners use the coefficients of all rows. Other models: threads emit (key, value) contributions to lists by
 * owner, who adds them up by key in a hash table; with plain SGD it subtracts them one by one.
 *
 * With a model that has threads of its own inside a batch (mst_model_threads), the team is one thread, and
 * the update is divided among the threads of the model.
 *
 * Thread 0 claims the next rows while the others are in phase B: rows are not read after phase A. */
#include "strategy/local_impl.h"

/* The share of thread t. */
static mst_batch local_share(const mst_local *self, const mst_batch *batch, unsigned t)
{
    uint32_t from = (uint32_t)((uint64_t)batch->n_rows * t / self->n);
    uint32_t to = (uint32_t)((uint64_t)batch->n_rows * (t + 1) / self->n);
    return (mst_batch){.rows = batch->rows + from, .n_rows = to - from};
}

/* Makes thread t's share of the claimed rows readable. After a failure all threads stop at the next barrier.
 */
static void local_fill_share(mst_local *self, unsigned t, mst_batch *share)
{
    uint32_t from = (uint32_t)(share->rows - self->claim.rows);
    mst_status st = mst_feed_fill(self->feed, 0, from, from + share->n_rows);
    if (st != MST_OK) {
        mst_local_fail(self, &self->threads[t], st);
        atomic_store(&self->unfilled, true);
        share->n_rows = 0;
    }
}

/* ---- a step ---- */

static mst_status local_general_step(mst_local *self, unsigned t, const mst_batch *batch, uint64_t step)
{
    const mst_model *model = self->base.env.model;
    const mst_optimizer *optimizer = self->base.env.optimizer;
    mst_local_thread *w = &self->threads[t];
    mst_batch share = local_share(self, batch, t);
    mst_update u = mst_optimizer_update(optimizer, step);
    mst_step at = mst_local_step(self, step, (uint64_t)(share.rows - batch->rows));

    if (self->timed)
        mst_span_step(step);
    mst_local_phase(self, MST_PHASE_PREPARE);
    local_fill_share(self, t, &share);
    mst_local_phase(self, MST_PHASE_COMPUTE);
    mst_local_begin_grad(self, w);
    mst_status st = model->ops->compute(model, w->scratch, &share, &self->weights,
                                        1.0f / (float)batch->n_rows, &w->grad, &at, &w->loss);
    mst_local_barrier(self, t, MST_PHASE_APPLY);
    if (atomic_load(&self->unfilled))
        return st;

    float clip = 1.0f;
    uint64_t start = mst_trace_now();
    mst_local_sum_dense(self, t);
    if (st == MST_OK && !self->additive)
        st = mst_local_sum_sparse(self, t, self->n, self->threads);
    start = mst_trace_op("sum", start, mst_trace_floats(w->key_sums.n, w->grad.width));
    if (optimizer->options.clip_norm > 0.0) {
        w->square = mst_local_square(&self->threads[0].grad, &w->key_sums, t, self->n);
        mst_local_barrier(self, t, MST_PHASE_APPLY);
        double square = 0.0;
        for (unsigned s = 0; s < self->n; s++)
            square += self->threads[s].square;
        clip = mst_local_clip(self, square);
        start = mst_trace_op("clip", start, (mst_trace_output){0});
    }
    if (self->n == 1)
        mst_local_apply_alone(self, w, clip, &u);
    else
        mst_local_apply_dense(self, &self->threads[0].grad, t, self->n, clip, &u);
    if (!self->additive && st == MST_OK)
        mst_local_apply_sparse(self, t, clip, &u);
    for (unsigned s = 0; self->additive && w->grad.width != 0 && s < self->n; s++)
        mst_local_apply_list(self, u.lr, &self->threads[s].grad.owners[t], w->grad.width);
    mst_local_trace_apply(w, start);
    return st;
}

/* ---- steps by picks ---- */

/* Thread t: makes its share of the claimed rows readable, then picks its keys from all of them. */
static mst_status local_pick_claim(mst_local *self, unsigned t)
{
    const mst_model *model = self->base.env.model;
    mst_local_thread *w = &self->threads[t];
    mst_batch share = local_share(self, &self->claim, t);
    size_t n_keys = MST_EMIT_SLACK;
    uint64_t n_steps = mst_local_steps(self, self->claim.n_rows);
    local_fill_share(self, t, &share);
    w->n_keys = 0;
    for (uint32_t i = 0; i < share.n_rows; i++)
        w->n_keys += share.rows[i].n_keys;
    mst_local_barrier(self, t, MST_PHASE_PREPARE);
    if (atomic_load(&self->unfilled))
        return MST_OK;
    for (unsigned s = 0; s < self->n; s++)
        n_keys += self->threads[s].n_keys;
    uint64_t start = mst_trace_now();
    w->picks.n = 0;
    w->picks.valued = false;
    TRY(mst_picks_room(&w->picks, n_keys));
    for (uint64_t i = 0; i < n_steps; i++) {
        mst_batch batch = mst_batch_range(&self->claim, (uint32_t)(i * self->batch), self->batch);
        model->kernels->pick_keys(batch.rows, batch.n_rows, model->shape.n_dense, t, self->n, &w->picks);
        w->pick_ends[i] = w->picks.n;
    }
    mst_trace_op("pick", start, mst_trace_array(2 * sizeof(uint32_t), w->picks.n, 0));
    return MST_OK;
}

/* Step i of the claim. */
static mst_status local_pick_step(mst_local *self, unsigned t, const mst_batch *batch, uint64_t i,
                                  uint64_t step)
{
    const mst_model *model = self->base.env.model;
    mst_local_thread *w = &self->threads[t];
    mst_batch share = local_share(self, batch, t);
    mst_update u = {.lr = mst_local_lr(self, step), .step = step};
    if (self->timed)
        mst_span_step(step);
    mst_local_phase(self, MST_PHASE_COMPUTE);
    mst_local_begin_grad(self, w);
    model->ops->coefficients(model, &share, &self->weights, 1.0f / (float)batch->n_rows,
                             self->coefs + (share.rows - batch->rows), &w->grad, &w->loss);
    mst_local_barrier(self, t, MST_PHASE_APPLY);
    uint64_t start = mst_trace_now();
    mst_local_sum_dense(self, t);
    mst_local_apply_dense(self, &self->threads[0].grad, t, self->n, 1.0f, &u);
    mst_status st = mst_local_apply_picks(self, t, i, batch->n_rows, &u);
    mst_local_trace_apply(w, start);
    return st;
}

/* ---- claims ---- */

/* Thread 0: claims the next rows within the budget. */
static mst_status local_claim(mst_local *self)
{
    const mst_budget *b = self->budget;
    mst_progress *p = self->progress;
    uint64_t done = atomic_load(&self->steps_done), steps = b->steps - done,
             rows = b->rows - atomic_load(&self->rows_done), most = mst_span_most_steps(p->steps + done + 1);
    most = most < self->claim_steps ? most : self->claim_steps;
    uint64_t want = (uint64_t)self->batch * (steps < most ? steps : most), position;
    want = want < rows ? want : rows;
    self->over = true;
    if (want == 0 || mst_budget_over(b))
        return MST_OK;
    bool more;
    TRY(mst_feed_claim_by(self->feed, 0, (uint32_t)want, self->batch, b->deadline_ns, &self->claim, &position,
                          &more));
    p->epoch_ended = !more;
    if (self->claim.n_rows != 0)
        p->position = position + self->claim.n_rows;
    self->over = self->claim.n_rows == 0;
    return MST_OK;
}

static void local_claim_or_fail(mst_local *self)
{
    mst_status st = local_claim(self);
    if (st != MST_OK)
        mst_local_fail(self, &self->threads[0], st);
}

/* One thread, which shares with no other. */
static void local_descend(mst_local *self, const mst_batch *claim, uint64_t step)
{
    const mst_model *model = self->base.env.model;
    mst_local_thread *w = &self->threads[0];
    uint64_t n_steps = mst_local_steps(self, claim->n_rows);
    mst_status st = mst_feed_fill(self->feed, 0, 0, claim->n_rows);
    if (st != MST_OK) {
        mst_local_fail(self, w, st);
        return;
    }
    mst_span_enter(MST_PHASE_COMPUTE);
    if (self->way == MST_LOCAL_RULE) {
        mst_local_rules(self, w, step + 1, n_steps);
        st = model->ops->descend_rule(model, w->scratch, claim, self->batch, &self->weights, w->rules,
                                      &w->touched, &w->loss);
        if (st != MST_OK)
            mst_local_fail(self, w, st);
        return;
    }
    for (uint64_t i = 0; i < n_steps; i++)
        w->lrs[i] = mst_local_lr(self, step + 1 + i);
    model->ops->descend(model, w->scratch, claim, self->batch, &self->weights, w->lrs, &w->loss);
}

void mst_local_sync_thread(void *arg, unsigned t)
{
    mst_local *self = arg;
    uint64_t step = self->progress->steps;
    mst_local_begin(self, t);
    if (t == 0)
        local_claim_or_fail(self);
    for (;;) {
        mst_span_enter(MST_PHASE_BARRIER_WAIT);
        mst_team_barrier(self->team,
                         t); /* the claim is visible, and no thread uses rows of the previous one */
        mst_span_enter(mst_local_in_place(self) || self->timed ? MST_PHASE_PREPARE : MST_PHASE_COMPUTE);
        if (self->over || atomic_load(&self->failed))
            break;
        mst_batch claim = self->claim;
        uint64_t n_steps = mst_local_steps(self, claim.n_rows);
        mst_span_together(step + 1, n_steps);
        if (mst_local_in_place(self))
            local_descend(self, &claim, step);
        mst_status picked = self->way == MST_LOCAL_PICK ? local_pick_claim(self, t) : MST_OK;
        if (picked != MST_OK)
            mst_local_fail(self, &self->threads[t], picked);
        for (uint64_t i = 0; i < n_steps && !mst_local_in_place(self); i++) {
            mst_batch batch = mst_batch_range(&claim, (uint32_t)(i * self->batch), self->batch);
            if (i > 0 || self->way == MST_LOCAL_PICK)
                mst_local_barrier(self, t, MST_PHASE_PREPARE); /* all owners have updated their weights */
            if (self->way == MST_LOCAL_PICK && atomic_load(&self->failed))
                break;
            mst_status st = self->way == MST_LOCAL_PICK ? local_pick_step(self, t, &batch, i, step + 1 + i)
                                                        : local_general_step(self, t, &batch, step + 1 + i);
            if (st != MST_OK)
                mst_local_fail(self, &self->threads[t], st);
        }
        step += n_steps;
        if (t == 0) {
            atomic_fetch_add(&self->steps_done, n_steps);
            atomic_fetch_add(&self->rows_done, claim.n_rows);
            mst_span_steps(n_steps, claim.n_rows);
            mst_span_enter(MST_PHASE_PREPARE);
            local_claim_or_fail(self);
        }
    }
    mst_local_end(t);
}
