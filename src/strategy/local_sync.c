/* Strategy local, synchronous: all threads share every batch.
 *
 * Phase A: thread t computes on its fixed share of the rows; small nets also on parts of the batch that no
 * thread has taken yet, each with a gradient of its own; then it assists threads that still compute. Phase B:
 * owner t adds the results of all threads, in thread order, or of all parts, in their order, and updates the
 * weights that it owns. No thread writes a weight of another, and every sum has a fixed order: the result
 * repeats bit for bit for the same number of threads.
 *
 * Every key has an owner, by its hash: threads emit (key, value) contributions to lists by owner, who adds
 * them up by key in a hash table; with plain SGD it subtracts them one by one.
 *
 * Linear models, few threads, batches that are not large: thread t owns keys in phase A, too. It picks them
 * from all rows and sums weight times value of each row over them. After a barrier it adds up the sums of all
 * threads for its share of the rows and finds their coefficients; after another one it updates its keys in
 * all rows. So a weight never leaves the caches of its owner: two floats per row and thread, and the dense
 * gradients, are all that passes between cores, where a line takes 90 to 500 ns there and back, by where the
 * cores are. Picking and summing both wait for memory. So a thread picks the keys of the next step before it
 * waits at the first barrier, and fetches their weights while it updates those of this step.
 *
 * Linear models, more threads or rows: the keys are in as many blocks as there are threads, and threads take
 * turns at the blocks.
 * In phase A a thread computes a coefficient for each of its rows. In phase B it updates the keys of its own
 * rows, those of block t first, then those of block t + 1, which thread t + 1 has passed on, and so on: a
 * block has one thread at a time, and its threads have a fixed order. So nothing but a counter per turn
 * passes between cores, and the weights of rare keys stay where phase A has brought them; lists for owners
 * would move twice per step, and so would the weights. The gradient of popular keys, which all threads have
 * in every step, is summed by thread, and then by slices of the keys; of few threads, it costs less to update
 * them like the others. A thread that has finished phase B divides the keys of its next rows among the blocks
 * before it waits for the others; rows of a fixed size in file order are made from their records in the same
 * pass. It prefetches these records after its last coefficient, while it would wait for the slowest thread.
 *
 * With a model that has threads of its own inside a batch (mst_model_threads), the team is one thread, and
 * the update is divided among the threads of the model.
 *
 * Thread 0 claims the next rows while the others are in phase B: rows are not read after phase A.
 *
 * A thread that fails sets stop_at, the first step that must not be applied, before the barrier of that step;
 * all threads compare it after the barrier, and so stop at the same step. */
#include <string.h>

#include "base/alloc.h"
#include "strategy/local_impl.h"

#define IDLE_STAY     64    /* looks of a thread without a part at the same other, ... */
#define IDLE_MOST     4096  /* ... and at all, without finding work */
#define APPROACH_MOST 16384 /* bytes of records that a second-level cache keeps while a step ends */

/* The share of thread t. */
static mst_batch local_share(const mst_local *self, const mst_batch *batch, unsigned t)
{
    uint32_t from = (uint32_t)((uint64_t)batch->n_rows * t / self->n);
    uint32_t to = (uint32_t)((uint64_t)batch->n_rows * (t + 1) / self->n);
    return (mst_batch){.rows = batch->rows + from, .n_rows = to - from};
}

/* Makes rows readable that are trained from a step on; `share` becomes empty after a failure. */
static void local_fill_share(mst_local *self, unsigned t, mst_batch *share, uint64_t step)
{
    uint32_t from = (uint32_t)(share->rows - self->claim.rows);
    mst_status st = mst_feed_fill(self->feed, 0, from, from + share->n_rows);
    if (st != MST_OK) {
        mst_local_stop(self, &self->threads[t], st, step);
        share->n_rows = 0;
    }
}

/* ---- a step ---- */

mst_local_parts mst_local_divide(const mst_local *self, uint32_t n_rows)
{
    if (self->part_rows == 0)
        return (mst_local_parts){.n_fixed = self->n, .n = self->n};
    uint32_t n = (n_rows + self->part_rows - 1) / self->part_rows, each = n / self->n;
    uint32_t fixed = each <= 2 * MST_PARTS_ANY ? each / 2 : each - MST_PARTS_ANY;
    mst_local_parts parts = {.fixed_rows = fixed * self->part_rows, .n_fixed = fixed > 0 ? self->n : 0};
    parts.n = n - fixed * self->n + parts.n_fixed;
    return parts;
}

/* Part p of a batch. */
static mst_batch local_part(const mst_local *self, const mst_local_parts *parts, const mst_batch *batch,
                            unsigned p)
{
    uint32_t from = p < parts->n_fixed
                        ? p * parts->fixed_rows
                        : parts->n_fixed * parts->fixed_rows + (p - parts->n_fixed) * self->part_rows;
    return mst_batch_range(batch, from, p < parts->n_fixed ? parts->fixed_rows : self->part_rows);
}

/* The gradient of `rows`, part number `part` of the batch, and its loss. */
static mst_status local_compute(mst_local *self, unsigned t, unsigned part, const mst_batch *batch,
                                mst_batch rows, uint64_t step, bool again, mst_loss_sum *loss)
{
    const mst_model *model = self->base.env.model;
    mst_local_thread *w = &self->threads[t];
    mst_step at = mst_local_step(self, step, (uint64_t)(rows.rows - batch->rows));
    at.again = again;
    mst_local_phase(self, MST_PHASE_PREPARE);
    local_fill_share(self, t, &rows, step);
    mst_local_phase(self, MST_PHASE_COMPUTE);
    mst_grad *grad = mst_local_begin_grad(self, t, part);
    TRY(model->ops->compute(model, w->scratch, &rows, &self->weights, 1.0f / (float)batch->n_rows, grad, &at,
                            loss));
    mst_local_show_grad(self, w, part);
    return MST_OK;
}

/* A thread for which no part is left assists the others, first that of part `first`, until all parts are
 * computed or none has had work for it for long: the barrier sleeps. */
static void local_assist(mst_local *self, unsigned first, unsigned n)
{
    const mst_model *model = self->base.env.model;
    mst_local_phase(self, MST_PHASE_COMPUTE);
    for (unsigned idle = 0, p = first % n;
         idle < IDLE_MOST && atomic_load_explicit(&self->parts_done, memory_order_relaxed) < n; idle++) {
        unsigned thread = atomic_load_explicit(&self->parts[p].thread, memory_order_acquire);
        if (thread != 0 && model->ops->assist(model, self->threads[thread - 1].scratch))
            idle = 0;
        else if (thread == 0 || idle % IDLE_STAY == IDLE_STAY - 1)
            p = (p + 1) % n;
#ifdef __x86_64__
        else
            __builtin_ia32_pause();
#endif
    }
}

/* Thread t's part of the batch, then parts that no thread has computed. Losses are added up later, in the
 * order of parts. */
static mst_status local_compute_parts(mst_local *self, unsigned t, const mst_batch *batch,
                                      const mst_local_parts *parts, uint64_t step)
{
    unsigned p = t;
    for (bool again = false;; again = true) {
        if (p >= parts->n_fixed || again)
            p = parts->n_fixed + atomic_fetch_add_explicit(&self->next_part, 1, memory_order_relaxed);
        if (p >= parts->n)
            break;
        mst_local_part *part = &self->parts[p];
        part->loss = (mst_loss_sum){0};
        atomic_store_explicit(&part->thread, t + 1, memory_order_release);
        mst_status st =
            local_compute(self, t, p, batch, local_part(self, parts, batch, p), step, again, &part->loss);
        atomic_store_explicit(&part->thread, 0, memory_order_relaxed);
        atomic_fetch_add_explicit(&self->parts_done, 1, memory_order_relaxed);
        TRY(st);
    }
    if (self->assists)
        local_assist(self, p - parts->n, parts->n);
    return MST_OK;
}

/* All parts are computed. */
static void local_end_parts(mst_local *self, const mst_local_parts *parts)
{
    atomic_store_explicit(&self->next_part, 0, memory_order_relaxed);
    atomic_store_explicit(&self->parts_done, 0, memory_order_relaxed);
    for (unsigned p = 0; p < parts->n; p++)
        mst_add_loss(&self->threads[0].loss, &self->parts[p].loss);
}

/* False: all threads stop. */
static bool local_general_step(mst_local *self, unsigned t, const mst_batch *batch, uint64_t step)
{
    const mst_optimizer *optimizer = self->base.env.optimizer;
    mst_local_thread *w = &self->threads[t];
    mst_update u = mst_optimizer_update(optimizer, step);
    mst_local_parts parts = mst_local_divide(self, batch->n_rows);
    mst_status st;

    if (self->timed)
        mst_span_step(step);
    if (self->part_rows != 0) {
        st = local_compute_parts(self, t, batch, &parts, step);
    } else {
        st = local_compute(self, t, t, batch, local_share(self, batch, t), step, false, &w->loss);
    }
    if (st != MST_OK)
        mst_local_stop(self, w, st, step);
    mst_local_barrier(self, t, MST_PHASE_APPLY);
    if (atomic_load(&self->stop_at) <= step)
        return false;

    float clip = 1.0f;
    uint64_t start = mst_trace_now();
    if (t == 0 && self->part_rows != 0)
        local_end_parts(self, &parts);
    mst_local_sum_dense(self, t, parts.n);
    if (!self->additive)
        st = mst_local_sum_sparse(self, t, self->n, self->threads);
    start = mst_trace_op("sum", start, mst_trace_floats(w->key_sums.n, w->grad.width));
    if (optimizer->options.clip_norm > 0.0) {
        w->square = mst_local_square(&w->grad, &w->key_sums, t, self->n);
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
        mst_local_apply_dense(self, &w->grad, mst_local_state(self), t, self->n, clip, &u);
    if (!self->additive && st == MST_OK)
        mst_local_apply_sparse(self, t, clip, &u);
    for (unsigned s = 0; self->additive && w->grad.width != 0 && s < self->n; s++)
        mst_local_apply_list(self, u.lr, &self->threads[s].grad.owners[t], w->grad.width);
    mst_local_trace_apply(w, start);
    if (st != MST_OK)
        mst_local_stop(self, w, st, step + 1);
    return true;
}

/* ---- steps by picks ---- */

/* Step i of a claim. */
static mst_batch local_batch(const mst_local *self, const mst_batch *claim, uint64_t i)
{
    return mst_batch_range(claim, (uint32_t)(i * self->batch), self->batch);
}

/* Thread t: prefetches the records of its share of a batch. */
static void local_approach_share(mst_local *self, unsigned t, const mst_batch *batch)
{
    mst_records records;
    mst_batch share = local_share(self, batch, t);
    uint32_t from = (uint32_t)(share.rows - self->claim.rows);
    if (mst_feed_records(self->feed, 0, from, from + share.n_rows, &records) != MST_OK ||
        records.words == NULL)
        return; /* the failure is found again */
    const char *at = (const char *)records.words;
    const char *end = at + (size_t)records.n * records.stride * sizeof *records.words;
    for (end = end - at > APPROACH_MOST ? at + APPROACH_MOST : end; at < end; at += 64)
        __builtin_prefetch(at, 0, 2);
}

/* Thread t: divides the keys of its share of a batch among the blocks, and makes the rows of the share: from
 * their records at the same time where the feed has these, else before. */
static mst_status local_divide_share(mst_local *self, unsigned t, const mst_batch *batch, uint64_t step)
{
    const mst_model *model = self->base.env.model;
    mst_local_thread *w = &self->threads[t];
    mst_batch share = local_share(self, batch, t);
    uint32_t from = (uint32_t)(share.rows - self->claim.rows);
    mst_records records;
    size_t n_keys = 0;
    bool valued = false;
    w->share.n_rows = 0; /* after a failure */
    TRY(mst_feed_records(self->feed, 0, from, from + share.n_rows, &records));
    if (records.n < share.n_rows)
        records.words = NULL;
    if (records.words != NULL) {
        n_keys = (size_t)share.n_rows * records.first.n_keys;
        valued = records.first.values != NULL;
    } else {
        local_fill_share(self, t, &share, step);
        for (uint32_t i = 0; i < share.n_rows; i++) {
            n_keys += share.rows[i].n_keys;
            valued |= share.rows[i].values != NULL;
        }
    }
    uint64_t start = mst_trace_now();
    TRY(mst_picks_begin(&w->picks, n_keys, valued));
    if (!mst_grow(&w->keys, &w->key_capacity, n_keys, sizeof *w->keys) ||
        (self->weights.by_rows && !mst_grow(&w->touched.keys, &w->touched.capacity,
                                            n_keys + self->n_popular + 1, sizeof *w->touched.keys)))
        return mst_fail_memory();
    mst_division division = {.n_prefix = model->shape.n_dense,
                             .map = self->n_popular > 0 ? mst_hot_weights_map(self->hot, 0) : NULL,
                             .records = records.words != NULL ? &records : NULL};
    model->kernels->divide_keys(share.rows, share.n_rows, &division, w->rows, w->keys, &w->picks);
    w->share = (mst_batch){.rows = w->rows, .n_rows = share.n_rows};
    mst_trace_op("divide", start, mst_trace_array(2 * sizeof(uint32_t), n_keys, 0));
    return MST_OK;
}

/* Prepares thread t's share of step i of a claim, whose first step is number `first`. */
static void local_prepare_share(mst_local *self, unsigned t, const mst_batch *claim, uint64_t i,
                                uint64_t first)
{
    mst_batch batch = local_batch(self, claim, i);
    mst_status st = local_divide_share(self, t, &batch, first + i);
    if (st != MST_OK)
        mst_local_stop(self, &self->threads[t], st, first + i);
}

/* Step i of a claim, for which the shares are prepared; prepares those of the next one. False: all threads
 * stop. */
static bool local_pick_step(mst_local *self, unsigned t, const mst_batch *claim, uint64_t i, uint64_t first)
{
    const mst_model *model = self->base.env.model;
    mst_local_thread *w = &self->threads[t];
    uint32_t n_rows = local_batch(self, claim, i).n_rows;
    uint64_t step = first + i;
    mst_update u = mst_optimizer_update(self->base.env.optimizer, step);
    if (self->timed)
        mst_span_step(step);
    mst_local_phase(self, MST_PHASE_COMPUTE);
    mst_grad *grad = mst_local_begin_grad(self, t, t);
    mst_local_begin_popular(self, t);
    model->ops->coefficients(model, &w->share, &self->weights, 1.0f / (float)n_rows, false, w->coefs, grad,
                             &w->loss);
    mst_local_show_grad(self, w, t);
    unsigned arrival = mst_team_arrive(self->team, t);
    if (i + 1 < mst_local_steps(self, claim->n_rows)) {
        mst_batch next = local_batch(self, claim, i + 1);
        local_approach_share(self, t, &next);
    }
    uint64_t start = mst_trace_now();
    if (self->n_popular > 0)
        model->kernels->add_places(w->share.rows, w->share.n_rows, self->popular, self->n_popular, w->coefs,
                                   w->hot_sums);
    mst_trace_op("sum popular", start, mst_trace_floats(self->n_popular, 0));
    mst_local_await(self, t, arrival, MST_PHASE_APPLY);
    if (atomic_load(&self->stop_at) <= step)
        return false;
    mst_local_apply_picks(self, t, n_rows, &u);
    start = mst_trace_now();
    mst_local_sum_dense(self, t, self->n);
    mst_local_apply_dense(self, &w->grad, mst_local_state(self), t, self->n, 1.0f, &u);
    if (self->n_popular > 0)
        mst_local_apply_popular(self, t, n_rows, &u);
    mst_local_trace_apply(w, start);
    if (i + 1 == mst_local_steps(self, claim->n_rows))
        return true;
    arrival = mst_team_arrive(self->team, t);
    mst_local_phase(self, MST_PHASE_PREPARE);
    local_prepare_share(self, t, claim, i + 1, first);
    mst_local_await(self, t, arrival, MST_PHASE_PREPARE);
    return true;
}

/* ---- steps by owned keys ---- */

/* Finds the records of a batch; none if they are in too many pieces. */
static mst_status local_find_records(mst_local *self, unsigned t, const mst_batch *batch)
{
    mst_local_thread *w = &self->threads[t];
    uint32_t at = (uint32_t)(batch->rows - self->claim.rows), end = at + batch->n_rows;
    for (w->n_records = 0; at < end && w->n_records < MST_OWN_PIECES; w->n_records++) {
        mst_records *records = &w->records[w->n_records];
        TRY(mst_feed_records(self->feed, 0, at, end, records));
        if (records->words == NULL)
            break;
        at += records->n;
    }
    if (at < end)
        w->n_records = 0;
    return MST_OK;
}

/* Makes thread t's share of step i of a claim readable, whose first step is number `first`: finds the records
 * of the batch, or fills the rows of the share. */
static void local_ready_share(mst_local *self, unsigned t, const mst_batch *claim, uint64_t i, uint64_t first)
{
    mst_batch batch = local_batch(self, claim, i), share = local_share(self, &batch, t);
    mst_status st = local_find_records(self, t, &batch);
    if (st != MST_OK)
        mst_local_stop(self, &self->threads[t], st, first + i);
    else if (self->threads[t].n_records == 0)
        local_fill_share(self, t, &share, first + i);
}

static mst_status local_pick_batch(mst_local *self, unsigned t, const mst_batch *batch)
{
    const mst_model *model = self->base.env.model;
    mst_local_thread *w = &self->threads[t];
    size_t n_keys = 0;
    bool valued = false;
    uint64_t start = mst_trace_now();
    for (unsigned p = 0; p < w->n_records; p++) {
        n_keys += (size_t)w->records[p].n * w->records[p].first.n_keys;
        valued |= w->records[p].first.values != NULL;
    }
    for (uint32_t i = 0; w->n_records == 0 && i < batch->n_rows; i++) {
        n_keys += batch->rows[i].n_keys;
        valued |= batch->rows[i].values != NULL;
    }
    TRY(mst_picks_begin(&w->next, n_keys, valued));
    if (self->weights.by_rows &&
        !mst_grow(&w->touched.keys, &w->touched.capacity, n_keys + 1, sizeof *w->touched.keys))
        return mst_fail_memory();
    uint32_t n_prefix = (uint32_t)model->shape.n_dense, first = 0;
    for (unsigned p = 0; p < w->n_records; first += w->records[p++].n)
        model->kernels->pick_own(NULL, &w->records[p], first, w->records[p].n, n_prefix, t, self->n,
                                 &w->next);
    if (w->n_records == 0)
        model->kernels->pick_own(batch->rows, NULL, 0, batch->n_rows, n_prefix, t, self->n, &w->next);
    mst_trace_op("pick", start, mst_trace_array(sizeof(mst_pick), w->next.ends[0], 0));
    return MST_OK;
}

/* Picks the keys of step i of a claim that thread t owns, from all rows, unless some could not be filled. */
static void local_pick_next(mst_local *self, unsigned t, const mst_batch *claim, uint64_t i, uint64_t first)
{
    mst_batch batch = local_batch(self, claim, i);
    mst_status st = atomic_load(&self->stop_at) <= first + i ? MST_OK : local_pick_batch(self, t, &batch);
    if (st != MST_OK)
        mst_local_stop(self, &self->threads[t], st, first + i);
}

/* The next picks of thread t are those of a step that begins. Makes the rows of its share, which begins at
 * row `from` of the batch, from their records if the feed has these. */
static void local_begin_own(mst_local *self, unsigned t, uint32_t from, mst_batch *share)
{
    mst_local_thread *w = &self->threads[t];
    uint32_t to = from + share->n_rows;
    mst_picks picks = w->picks;
    w->picks = w->next;
    w->next = picks;
    if (w->n_records != 0)
        share->rows = w->rows;
    uint32_t first = 0;
    for (unsigned p = 0; p < w->n_records; first += w->records[p++].n) {
        uint32_t start = from > first ? from - first : 0, end = to > first ? to - first : 0;
        end = end < w->records[p].n ? end : w->records[p].n;
        if (start < end)
            self->base.env.model->kernels->make_rows(&w->records[p], start, end,
                                                     w->rows + (first + start - from));
    }
}

/* Adds up the sums of all threads for a share of the rows, in the order of threads. */
static void local_add_margins(const mst_local *self, uint32_t from, uint32_t n)
{
    float *restrict coefs = self->coefs + from;
    for (unsigned s = 0; s < self->n; s++)
        for (uint32_t i = 0; i < n; i += 16)
            __builtin_prefetch(self->threads[s].margins + from + i);
    memcpy(coefs, self->threads[0].margins + from, n * sizeof *coefs);
    for (unsigned s = 1; s < self->n; s++) {
        const float *restrict add = self->threads[s].margins + from;
        for (uint32_t i = 0; i < n; i++)
            coefs[i] += add[i];
    }
}

/* Step i of a claim, for which the keys are picked; picks those of the next one. False: all threads stop. */
static bool local_own_step(mst_local *self, unsigned t, const mst_batch *claim, uint64_t i, uint64_t first)
{
    const mst_model *model = self->base.env.model;
    mst_local_thread *w = &self->threads[t];
    mst_batch batch = local_batch(self, claim, i), share = local_share(self, &batch, t);
    uint32_t from = (uint32_t)(share.rows - batch.rows);
    uint64_t step = first + i;
    mst_update u = mst_optimizer_update(self->base.env.optimizer, step);
    mst_linear weights = {.sparse = self->weights.sparse, .stride = self->weights.stride};
    bool last = i + 1 == mst_local_steps(self, claim->n_rows);
    if (atomic_load(&self->stop_at) <= step)
        return false;
    if (self->timed)
        mst_span_step(step);
    mst_local_phase(self, MST_PHASE_COMPUTE);
    local_begin_own(self, t, from, &share);
    uint64_t start = mst_trace_now();
    memset(w->margins, 0, batch.n_rows * sizeof *w->margins);
    model->kernels->sum_picks(&w->picks, &weights, w->margins);
    mst_trace_op("gather+sum", start, mst_trace_floats(batch.n_rows, 0));
    mst_local_phase(self, MST_PHASE_PREPARE);
    if (!last)
        local_ready_share(self, t, claim, i + 1, first);
    unsigned arrival = mst_team_arrive(self->team, t);
    if (!last && w->n_records != 0)
        local_pick_next(self, t, claim, i + 1, first);
    mst_local_await(self, t, arrival, MST_PHASE_COMPUTE);
    mst_grad *grad = mst_local_begin_grad(self, t, t);
    local_add_margins(self, from, share.n_rows);
    model->ops->coefficients(model, &share, &self->weights, 1.0f / (float)batch.n_rows, true,
                             self->coefs + from, grad, &w->loss);
    mst_local_show_grad(self, w, t);
    mst_local_phase(self, MST_PHASE_PREPARE);
    if (!last && w->n_records == 0)
        local_pick_next(self, t, claim, i + 1, first); /* all rows are filled */
    mst_local_barrier(self, t, MST_PHASE_APPLY);
    mst_local_apply_own(self, t, batch.n_rows, last, &u);
    start = mst_trace_now();
    mst_local_sum_dense(self, t, self->n);
    mst_local_apply_dense(self, &w->grad, mst_local_state(self), t, self->n, 1.0f, &u);
    mst_local_trace_apply(w, start);
    return true;
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

/* Steps of a claim of which `first` is the number of the first; returns how many were trained: fewer than
 * n_steps, and the same for all threads, after a failure. */
static uint64_t local_steps(mst_local *self, unsigned t, const mst_batch *claim, uint64_t n_steps,
                            uint64_t first)
{
    uint64_t i = 0;
    if (self->way == MST_LOCAL_PICK)
        local_prepare_share(self, t, claim, 0, first);
    if (self->way == MST_LOCAL_OWN) {
        local_ready_share(self, t, claim, 0, first);
        mst_local_barrier(self, t, MST_PHASE_PREPARE);
        local_pick_next(self, t, claim, 0, first);
        mst_local_barrier(self, t, MST_PHASE_COMPUTE);
    }
    for (bool go_on = true; i < n_steps; i++) {
        if (self->way == MST_LOCAL_PICK) {
            go_on = local_pick_step(self, t, claim, i, first);
        } else if (self->way == MST_LOCAL_OWN) {
            go_on = local_own_step(self, t, claim, i, first);
        } else {
            mst_batch batch = local_batch(self, claim, i);
            if (i > 0)
                mst_local_barrier(self, t, MST_PHASE_PREPARE); /* all owners have updated their weights */
            go_on = local_general_step(self, t, &batch, first + i);
        }
        if (!go_on)
            break;
    }
    return i;
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
        if (self->over)
            break;
        mst_batch claim = self->claim;
        uint64_t n_steps = mst_local_steps(self, claim.n_rows), i = 0;
        mst_span_together(step + 1, n_steps);
        if (mst_local_in_place(self)) {
            local_descend(self, &claim, step);
            i = atomic_load(&self->failed) ? 0 : n_steps;
        } else {
            i = local_steps(self, t, &claim, n_steps, step + 1);
        }
        step += i;
        if (t == 0) {
            uint64_t n_rows = i < n_steps ? i * self->batch : claim.n_rows;
            atomic_fetch_add(&self->steps_done, i);
            atomic_fetch_add(&self->rows_done, n_rows);
            mst_span_steps(i, n_rows);
            mst_span_enter(MST_PHASE_PREPARE);
            if (i == n_steps)
                local_claim_or_fail(self);
        }
        if (i < n_steps)
            break;
    }
    mst_local_end(t);
}
