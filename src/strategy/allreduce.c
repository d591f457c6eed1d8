/* Strategy allreduce: creation, orders and their execution; contract in allreduce.h, a step is in
 * allreduce_step.c.
 *
 * Rank 0's run gives orders of as many steps as it expects to fit before its deadline, so that time is rank
 * 0's clock alone. At the end of an order all ranks send their losses, and the stop and save requests from
 * signals, to rank 0. Rows are claimed on every rank: all see the epoch end at the same place.
 *
 * With a sparse model or a small gradient there is nothing to overlap, and a hand-off between threads costs
 * as much as the reduction: steps then run on the communication thread itself, which polls MPI while it
 * waits. */
#include "strategy/allreduce.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "observe/spans.h"
#include "ranks/rank_monitor.h"
#include "strategy/allreduce_impl.h"
#include "strategy/comm_broadcast.h"

#define RECORDS_MS   10000      /* for the last records of the other ranks */
#define ALONE_FLOATS (1u << 18) /* of a dense gradient that is not worth a hand-off: 1 MB */

/* ---- life ---- */

static mst_status allreduce_init_worker(mst_allreduce *self, unsigned t, const mst_grad *layout)
{
    const mst_strategy_env *env = &self->base.env;
    mst_allreduce_thread *w = &self->threads[t];
    uint32_t rows = (self->batch + self->n - 1) / self->n, owners = self->n_ranks * self->n;
    TRY(mst_model_scratch_new(env->model, rows, self->inner, true, &w->scratch));
    if (t > 0)
        return mst_grad_init(&w->grad, layout->ranges, layout->n_ranges, layout->sparse_offset, layout->width,
                             owners);
    TRY(mst_grad_init(&w->grad, NULL, 0, layout->sparse_offset, layout->width, owners));
    w->grad.n_ranges = layout->n_ranges;
    for (uint32_t r = 0; r < layout->n_ranges; r++) {
        w->grad.ranges[r] = layout->ranges[r];
        w->grad.ranges[r].g = self->slices.flat + self->slices.flat_at[r];
    }
    return MST_OK;
}

static mst_status allreduce_init_sparse(mst_allreduce *self)
{
    const mst_strategy_env *env = &self->base.env;
    mst_sparse_options options = {.comm = self->comm,
                                  .team = self->team,
                                  .n_threads = self->n,
                                  .wire = (mst_float_format)self->base.options.wire,
                                  .n_features = env->model->shape.n_features,
                                  .reduces = mst_allreduce_reduces(self),
                                  .needs_square = env->optimizer->options.clip_norm > 0.0};
    const mst_grad **grads = mst_calloc(self->n, sizeof *grads);
    if (grads == NULL)
        return mst_fail_memory();
    for (unsigned t = 0; t < self->n; t++)
        grads[t] = &self->threads[t].grad;
    mst_status st = mst_sparse_init(&self->sparse, &options, grads);
    mst_free(grads);
    return st;
}

static mst_status allreduce_init(mst_strategy *base, const mst_strategy_options *options,
                                 const mst_strategy_env *env)
{
    mst_allreduce *self = (mst_allreduce *)base;
    mst_grad layout = {0};
    if (env->comm == NULL)
        return mst_fail(MST_EUSAGE, "strategy allreduce needs the ranks of an MPI job");
    self->comm = env->comm;
    self->rank = (uint32_t)mst_comm_mpi(self->comm)->rank;
    self->n_ranks = (uint32_t)mst_comm_mpi(self->comm)->size;
    self->n = mst_model_threads(env->model) ? 1 : (unsigned)options->threads;
    self->inner = (unsigned)options->threads / self->n;
    self->global_batch = (uint32_t)options->global_batch;
    self->batch = (self->global_batch + self->n_ranks - 1) / self->n_ranks;
    self->reduction = (mst_reduction_choice)options->reduction;
    self->stopped_by = -1;
    self->overwritten = env->model->overwrites && self->n == 1;
    base->n_lanes = 1;
    base->n_threads = (unsigned)options->threads;
    base->max_take = self->global_batch;
    base->stops_with_others = true;
    mst_model_weights(env->model, env->params, &self->weights);
    env->model->ops->layout(env->model, env->params, &layout);
    TRY(mst_grad_slices_init(&self->slices, self->comm, &layout, (mst_float_format)options->wire,
                             mst_allreduce_reduces(self)));
    self->on_comm = layout.width != 0 || self->slices.n_flat <= ALONE_FLOATS;
    TRY(mst_team_new(self->n, &self->team));
    self->threads = mst_alloc_lines(self->n * sizeof *self->threads);
    self->all = mst_calloc(self->n_ranks, sizeof *self->all);
    if (self->threads == NULL || self->all == NULL)
        return mst_fail_memory();
    memset(self->threads, 0, self->n * sizeof *self->threads);
    for (unsigned t = 0; t < self->n; t++)
        TRY(allreduce_init_worker(self, t, &layout));
    mst_model_pin(env->model, env->params->w, env->params->size * sizeof(float));
    mst_model_pin(env->model, self->slices.flat, self->slices.n_flat * sizeof(float));
    return layout.width != 0 ? allreduce_init_sparse(self) : MST_OK;
}

static void allreduce_fini(mst_strategy *base)
{
    mst_allreduce *self = (mst_allreduce *)base;
    mst_model_unpin(base->env.model, base->env.params->w);
    mst_model_unpin(base->env.model, self->slices.flat);
    mst_team_destroy(self->team);
    mst_sparse_fini(&self->sparse);
    for (unsigned t = 0; self->threads != NULL && t < self->n; t++) {
        mst_allreduce_thread *w = &self->threads[t];
        mst_model_scratch_free(base->env.model, w->scratch);
        if (t == 0)
            w->grad.n_ranges = 0; /* they lie in the slices */
        mst_grad_fini(&w->grad);
    }
    mst_free(self->threads);
    mst_free(self->all);
    mst_grad_slices_fini(&self->slices);
}

/* ---- joining ---- */

static mst_status allreduce_join(mst_comm *comm, void *arg)
{
    static const mst_reduce_way ways[] = {[MST_REDUCTION_AUTO] = MST_REDUCE_WAYS,
                                          [MST_REDUCTION_ONLY] = MST_REDUCE_WAYS,
                                          [MST_REDUCTION_GATHER] = MST_REDUCE_GATHER,
                                          [MST_REDUCTION_DIRECT] = MST_REDUCE_DIRECT,
                                          [MST_REDUCTION_MPI] = MST_REDUCE_MPI};
    mst_allreduce *self = arg;
    mst_params *params = self->base.env.params;
    if (self->n_ranks > 1) {
        TRY(mst_comm_broadcast_vector(comm, params->w, params->size));
        for (uint32_t v = 0; v < params->n_views; v++)
            for (uint32_t s = 0; s < params->views[v].state.n_slots; s++)
                TRY(mst_comm_broadcast_vector(comm, params->slots[s] + params->views[v].offset,
                                              mst_view_floats(&params->views[v], s + 1)));
    }
    if (mst_allreduce_reduces(self))
        TRY(mst_grad_slices_choose(&self->slices, ways[self->reduction]));
    mst_comm_counts_get(comm, &self->before);
    self->spanned = self->before;
    return MST_OK;
}

mst_status mst_allreduce_join(mst_strategy *base, const mst_allreduce_signals *signals)
{
    mst_allreduce *self = (mst_allreduce *)base;
    self->signals = *signals;
    return mst_comm_call(self->comm, allreduce_join, self);
}

/* ---- orders ---- */

typedef struct order {
    uint64_t end; /* 1: of the training */
    uint64_t epoch, position, step;
    uint64_t n_steps, n_rows;
} order;

/* The report of a rank at the end of an order. */
typedef struct tail {
    uint64_t steps, claimed; /* rows of global batches */
    mst_loss_sum loss;
    uint32_t stop, save;
    mst_allreduce_counts counts; /* up to here */
} tail;

typedef struct execution {
    mst_allreduce *self;
    order order;
    tail tail;
    bool epoch_ended;
    mst_reduce_counts counts; /* up to its end */
} execution;

/* Rank 0 sends the order; the others wait for one. */
static mst_status order_pass(mst_comm *comm, void *arg)
{
    execution *e = arg;
    const mst_allreduce *self = e->self;
    mst_comm_message *m = mst_calloc(self->n_ranks, sizeof *m);
    uint32_t n = 0;
    mst_status st;
    if (m == NULL)
        return mst_fail_memory();
    if (self->rank == 0) {
        for (uint32_t p = 1; p < self->n_ranks; p++)
            m[n++] = (mst_comm_message){&e->order, sizeof e->order, (int)p, MST_COMM_TAG_ORDER};
        st = mst_comm_exchange(comm, m, n, NULL, 0, true, "the other ranks to receive an order");
    } else {
        m[0] = (mst_comm_message){&e->order, sizeof e->order, 0, MST_COMM_TAG_ORDER};
        st = mst_comm_exchange(comm, NULL, 0, m, 1, true, "an order of rank 0");
    }
    mst_free(m);
    return st;
}

/* The steps of an order, on the training or communication thread. */
static mst_status order_take_steps(execution *e)
{
    mst_allreduce *self = e->self;
    for (uint64_t i = 0; i < e->order.n_steps && !e->epoch_ended; i++) {
        uint64_t want = e->order.n_rows - e->tail.claimed, position, start = mst_now_ns();
        want = want < self->global_batch ? want : self->global_batch;
        if (want == 0)
            break;
        TRY(mst_feed_claim(self->now.feed, 0, (uint32_t)want, &self->now.global, &position));
        self->counts.input_seconds += mst_seconds_since(start);
        uint64_t n = self->now.global.n_rows;
        e->epoch_ended = n < want;
        if (n == 0)
            break;
        self->now.from = (uint32_t)(n * self->rank / self->n_ranks);
        self->now.to = (uint32_t)(n * (self->rank + 1) / self->n_ranks);
        self->now.step = e->order.step + i + 1;
        mst_span_step(self->now.step);
        TRY(mst_allreduce_step(self));
        e->tail.steps++;
        e->tail.claimed += n;
        self->counts.steps++;
        self->counts.rows += self->now.to - self->now.from;
        mst_span_steps(1, self->now.to - self->now.from);
    }
    return mst_allreduce_drain(self);
}

/* The lane of the training thread is this one's while it waits. */
static mst_status order_execute_on_comm(mst_comm *comm, void *arg)
{
    execution *e = arg;
    (void)comm;
    mst_spans_attach(e->self->base.env.spans, 0, MST_PHASE_PREPARE);
    mst_status st = order_take_steps(e);
    mst_spans_detach();
    return st;
}

static mst_status order_execute(execution *e)
{
    if (e->self->on_comm)
        return mst_comm_call(e->self->comm, order_execute_on_comm, e);
    mst_spans_attach(e->self->base.env.spans, 0, MST_PHASE_PREPARE);
    mst_status st = order_take_steps(e);
    mst_span_enter(MST_PHASE_IDLE);
    return st;
}

static mst_status order_gather_tails(mst_comm *comm, void *arg)
{
    execution *e = arg;
    mst_allreduce *self = e->self;
    tail *all = mst_calloc(self->n_ranks, sizeof *all);
    mst_comm_counts_get(comm, &e->counts);
    if (all == NULL)
        return mst_fail_memory();
    mst_status st =
        mst_comm_gather(comm, &e->tail, sizeof e->tail, all, true, MST_COMM_TAG_TAIL, "the end of an order");
    for (uint32_t r = 1; st == MST_OK && self->rank == 0 && r < self->n_ranks; r++) {
        if (all[r].steps != e->tail.steps || all[r].claimed != e->tail.claimed)
            st = mst_fail(MST_EPEER,
                          "rank %u took %llu rows in %llu steps, rank 0 took %llu in %llu; do both read the "
                          "same data?",
                          r, (unsigned long long)all[r].claimed, (unsigned long long)all[r].steps,
                          (unsigned long long)e->tail.claimed, (unsigned long long)e->tail.steps);
        mst_add_loss(&e->tail.loss, &all[r].loss);
        if (all[r].stop != 0 && self->stopped_by < 0)
            self->stopped_by = (int)r;
        self->save_requested = self->save_requested || all[r].save != 0;
    }
    for (uint32_t r = 0; st == MST_OK && self->rank == 0 && r < self->n_ranks; r++)
        self->all[r] = all[r].counts;
    mst_free(all);
    return st;
}

/* Updates the counters of this rank. */
static void report_count(mst_allreduce *self)
{
    mst_allreduce_counts *c = &self->counts;
    mst_reduce_counts now;
    mst_comm_counts_get(self->comm, &now);
    c->bytes_out = now.bytes_out - self->before.bytes_out;
    c->bytes_in = now.bytes_in - self->before.bytes_in;
    c->reduce_seconds = (double)(now.busy_ns - self->before.busy_ns) * 1e-9;
    for (int i = 0; i < MST_REDUCE_WAYS; i++)
        c->reductions[i] = now.reductions[i] - self->before.reductions[i];
    c->sparse_gathered = self->sparse.n_gathered;
    c->sparse_scattered = self->sparse.n_scattered;
    memcpy(c->name, mst_comm_mpi(self->comm)->host, sizeof c->name);
    c->name[sizeof c->name - 1] = '\0';
}

/* Everything from an order's arrival on. */
static mst_status order_carry_out(mst_allreduce *self, mst_feed *feed, execution *e)
{
    self->now.feed = feed;
    for (unsigned t = 0; t < self->n; t++) {
        self->threads[t].loss = (mst_loss_sum){0};
        self->threads[t].status = MST_OK;
    }
    TRY(order_execute(e));
    for (unsigned t = 0; t < self->n; t++)
        mst_add_loss(&e->tail.loss, &self->threads[t].loss);
    if (e->tail.loss.rows > 0 && isfinite(e->tail.loss.loss)) {
        self->counts.accuracy = e->tail.loss.correct / (double)e->tail.loss.rows;
        mst_spans_attach(self->base.env.spans, 0, MST_PHASE_IDLE);
        mst_span_loss(e->tail.loss.loss, e->tail.loss.weight, e->tail.loss.rows,
                      (uint64_t)e->tail.loss.correct);
    }
    if (self->reduction == MST_REDUCTION_ONLY) /* nothing was computed: rows are counted nevertheless */
        e->tail.loss.rows = self->rank == 0 ? e->tail.claimed : 0;
    if (self->rank != 0) {
        e->tail.stop = self->signals.stop != NULL && atomic_load(self->signals.stop);
        e->tail.save = self->signals.save_wanted != NULL && self->signals.save_wanted(self->signals.save_arg);
    }
    report_count(self);
    e->tail.counts = self->counts;
    TRY(mst_comm_call(self->comm, order_gather_tails, e));
    mst_span_bytes(e->counts.bytes_in - self->spanned.bytes_in,
                   e->counts.bytes_out - self->spanned.bytes_out);
    self->spanned = e->counts;
    return MST_OK;
}

/* Steps that fit before the deadline, of those that the budget has. */
static uint64_t order_steps(const mst_allreduce *self, const mst_budget *budget)
{
    uint64_t now = mst_now_ns(), most = budget->steps;
    if (budget->deadline_ns != UINT64_MAX) {
        double left = now < budget->deadline_ns ? (double)(budget->deadline_ns - now) * 1e-9 : 0.0;
        double fit = self->step_seconds > 0.0 ? left / self->step_seconds : 1.0;
        uint64_t n = fit < 1.0 ? 1 : fit > 1e9 ? 1000000000 : (uint64_t)fit;
        most = n < most ? n : most;
    }
    return most < 1 ? 1 : most;
}

static mst_status allreduce_run(mst_strategy *base, mst_feed *feed, const mst_budget *budget,
                                mst_progress *progress)
{
    mst_allreduce *self = (mst_allreduce *)base;
    if (budget->steps == 0 || budget->rows == 0 || mst_budget_over(budget))
        return mst_comm_lost(self->comm);
    execution e = {.self = self,
                   .order = {.epoch = progress->epoch,
                             .position = progress->position,
                             .step = progress->steps,
                             .n_steps = order_steps(self, budget),
                             .n_rows = budget->rows}};
    uint64_t start = mst_now_ns();
    TRY(mst_comm_call(self->comm, order_pass, &e));
    TRY(order_carry_out(self, feed, &e));
    if (e.tail.steps > 0)
        self->step_seconds = mst_seconds_since(start) / (double)e.tail.steps;
    progress->epoch_ended = e.epoch_ended;
    progress->position += e.tail.claimed;
    progress->steps += e.tail.steps;
    progress->rows += e.tail.claimed;
    mst_add_loss(&progress->loss, &e.tail.loss);
    return MST_OK;
}

void mst_allreduce_requested(mst_strategy *base, int *stopped_by, bool *save)
{
    mst_allreduce *self = (mst_allreduce *)base;
    *stopped_by = self->stopped_by;
    *save = self->save_requested;
    self->save_requested = false;
}

/* ---- the end ---- */

typedef struct reporting {
    mst_allreduce *self;
    mst_allreduce_counts *all;
} reporting;

static mst_status report_gather(mst_comm *comm, void *arg)
{
    reporting *r = arg;
    return mst_comm_gather(comm, &r->self->counts, sizeof r->self->counts, r->all, true, MST_COMM_TAG_REPORT,
                           "what ranks have done");
}

static json_t *report_json(uint32_t rank, const mst_allreduce_counts *c)
{
    char name[96];
    snprintf(name, sizeof name, "rank %u, %.*s", rank, (int)sizeof c->name - 1, c->name);
    return json_pack(
        "{s:i, s:s, s:s, s:I, s:I, s:f, s:I, s:f, s:f, s:f, s:f, s:I, s:I, s:{s:I, s:I, s:I, s:I, s:I}}",
        "worker", (int)rank, "name", name, "state", "done", "steps", (json_int_t)c->steps, "rows",
        (json_int_t)c->rows, "last_accuracy", c->accuracy, "dropped_steps", (json_int_t)0, "compute_seconds",
        c->compute_seconds, "wait_seconds", c->wait_seconds, "input_seconds", c->input_seconds,
        "reduce_seconds", c->reduce_seconds, "bytes_out", (json_int_t)c->bytes_out, "bytes_in",
        (json_int_t)c->bytes_in, "reductions", "gather", (json_int_t)c->reductions[MST_REDUCE_GATHER],
        "direct", (json_int_t)c->reductions[MST_REDUCE_DIRECT], "mpi",
        (json_int_t)c->reductions[MST_REDUCE_MPI], "sparse_gathered", (json_int_t)c->sparse_gathered,
        "sparse_scattered", (json_int_t)c->sparse_scattered);
}

/* New reference or NULL. */
static json_t *report_list(const mst_allreduce *self, const mst_allreduce_counts *all)
{
    json_t *json = json_array();
    for (uint32_t i = 0; json != NULL && i < self->n_ranks; i++)
        if (json_array_append_new(json, report_json(i, &all[i])) != 0) {
            json_decref(json);
            json = NULL;
        }
    return json;
}

static json_t *allreduce_counts(const mst_strategy *base)
{
    const mst_allreduce *self = (const mst_allreduce *)base;
    return report_list(self, self->all);
}

/* Ends the training on all ranks. */
static mst_status allreduce_report(mst_strategy *base, json_t **out)
{
    mst_allreduce *self = (mst_allreduce *)base;
    execution e = {.self = self, .order = {.end = 1}};
    TRY(mst_comm_call(self->comm, order_pass, &e));
    reporting r = {self, mst_calloc(self->n_ranks, sizeof *r.all)};
    mst_status st = r.all == NULL ? mst_fail_memory() : MST_OK;
    report_count(self);
    if (st == MST_OK)
        st = mst_comm_call(self->comm, report_gather, &r);
    if (st == MST_OK)
        mst_rank_records_await(mst_comm_monitor(self->comm), RECORDS_MS);
    json_t *json = st == MST_OK ? report_list(self, r.all) : NULL;
    mst_free(r.all);
    if (st == MST_OK && json == NULL)
        st = mst_fail_memory();
    if (st == MST_OK)
        *out = json;
    return st;
}

mst_status mst_allreduce_follow(mst_strategy *base, mst_feed *feed)
{
    mst_allreduce *self = (mst_allreduce *)base;
    for (;;) {
        execution e = {.self = self};
        TRY(mst_comm_call(self->comm, order_pass, &e));
        const order *o = &e.order;
        if (o->end != 0)
            break;
        if (!self->followed.started || o->epoch != self->followed.epoch ||
            o->position != self->followed.position)
            TRY(mst_feed_start(feed, o->epoch, o->position));
        TRY(order_carry_out(self, feed, &e));
        self->followed.started = !e.epoch_ended;
        self->followed.epoch = o->epoch;
        self->followed.position = o->position + e.tail.claimed;
        if (self->signals.at != NULL)
            self->signals.at(self->signals.at_arg, o->step + e.tail.steps);
    }
    reporting r = {self, NULL};
    report_count(self);
    return mst_comm_call(self->comm, report_gather, &r);
}

static const mst_grad *allreduce_gradient(const mst_strategy *base)
{
    const mst_allreduce *self = (const mst_allreduce *)base;
    return self->pending.applied ? &self->threads[0].grad : NULL;
}

const mst_strategy_ops mst_strategy_allreduce = {
    .size = sizeof(mst_allreduce),
    .random_rows = true,
    .init = allreduce_init,
    .run = allreduce_run,
    .fini = allreduce_fini,
    .report = allreduce_report,
    .counts = allreduce_counts,
    .gradient = allreduce_gradient,
};
