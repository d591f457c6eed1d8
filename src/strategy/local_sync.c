/* Strategy local, synchronous: all threads share every batch.
 *
 * Phase A: thread t computes on its fixed share of the rows. Phase B: owner t adds the results of all
 * threads, in thread order, and updates the weights that it owns. No thread writes a weight of another, and
 * every sum has a fixed order: the result repeats bit for bit for the same number of threads.
 *
 * Threads emit (key, value) contributions to lists by owner, a hash of the key, so that an owner reads only
 * what concerns it. The owner adds them up by key: in the rows of a store by rows, otherwise in a hash table;
 * with plain SGD it subtracts them one by one.
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
    mst_local_barrier(self, MST_PHASE_APPLY);
    if (atomic_load(&self->unfilled))
        return st;

    float clip = 1.0f;
    uint64_t start = mst_trace_now();
    mst_local_sum_dense(self, t);
    if (st == MST_OK && self->row_sums)
        st = mst_local_sum_rows(self, t, self->n, self->threads);
    else if (st == MST_OK && !self->additive)
        st = mst_local_sum_sparse(self, t, self->n, self->threads);
    start = mst_trace_op("sum", start, mst_trace_floats(w->key_sums.n, w->grad.width));
    if (optimizer->options.clip_norm > 0.0) {
        w->square = mst_local_square(&self->threads[0].grad, &w->key_sums, t, self->n);
        mst_local_barrier(self, MST_PHASE_APPLY);
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
    if (self->row_sums && st == MST_OK)
        mst_local_apply_rows(self, t, &u);
    else if (!self->additive && st == MST_OK)
        mst_local_apply_sparse(self, t, clip, &u);
    for (unsigned s = 0; self->additive && w->grad.width != 0 && s < self->n; s++)
        mst_local_apply_list(self, u.lr, &self->threads[s].grad.owners[t], w->grad.width);
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
        mst_team_barrier(self->team); /* the claim is visible, and no thread uses rows of the previous one */
        mst_span_enter(mst_local_in_place(self) || self->timed ? MST_PHASE_PREPARE : MST_PHASE_COMPUTE);
        if (self->over || atomic_load(&self->failed))
            break;
        mst_batch claim = self->claim;
        uint64_t n_steps = mst_local_steps(self, claim.n_rows);
        mst_span_together(step + 1, n_steps);
        if (mst_local_in_place(self))
            local_descend(self, &claim, step);
        for (uint64_t i = 0; i < n_steps && !mst_local_in_place(self); i++) {
            mst_batch batch = mst_batch_range(&claim, (uint32_t)(i * self->batch), self->batch);
            if (i > 0)
                mst_local_barrier(self, MST_PHASE_PREPARE); /* all owners have updated their weights */
            mst_status st = local_general_step(self, t, &batch, step + 1 + i);
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
