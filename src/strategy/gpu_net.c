/* Strategy local for nets on a GPU (--device cuda): weights, gradients and optimizer state stay there, and
 * per step only rows and a few numbers are copied to it.
 *
 * The training thread claims rows, copies them to pinned memory and enqueues the step; it never waits for a
 * step, only for one of the staging buffers, so that it works ahead of the GPU by their number. Large batches
 * are filled and copied by all threads of the team.
 *
 * Invariants
 * 1. The parameters are copied to the GPU before the first step, and back by settle. Between these the store
 * is out of date, and no other code reads it.
 * 2. Run returns with no step under way: its losses are complete. */
#include "base/alloc.h"
#include "base/team.h"
#include "model/chain_gpu.h"
#include "observe/spans.h"
#include "strategy/strategy.h"

extern const mst_strategy_ops mst_strategy_gpu_net;

#define CLAIM_ROWS  8192              /* rows claimed at a time if batches are smaller ... */
#define CLAIM_SIZE  ((size_t)1 << 24) /* ... but no more numbers than this: a feed may copy them */
#define ALONE_BYTES ((size_t)1 << 20) /* of a batch that one thread fills and copies */
#define COPIERS_MAX 16

typedef struct gpu_net {
    mst_strategy base;
    const mst_cuda_net_ops *ops;
    mst_cuda_net *net;
    const mst_chain *chain;
    uint32_t batch, claim_steps;
    uint64_t row_size; /* numbers */
    mst_team *team;    /* NULL: one thread */
    mst_grad layout;
    uint64_t dropout[MST_NET_LAYERS];
    bool there;   /* the parameters are on the GPU */
    bool changed; /* since the last settle */

    /* The batch that the team copies: */
    mst_feed *feed;
    mst_batch rows;
    uint32_t first; /* of the claim */
    mst_cuda_rows places;
    bool floats, fill;
    bool odd[COPIERS_MAX]; /* by thread: rows are not whole images of bytes */
    mst_status status[COPIERS_MAX];
    mst_error errors[COPIERS_MAX];
} gpu_net;

static mst_status gpu_net_init(mst_strategy *base, const mst_strategy_options *options,
                               const mst_strategy_env *env)
{
    gpu_net *self = (gpu_net *)base;
    const mst_optimizer *optimizer = env->optimizer;
    if (options->mode != MST_MODE_SYNC)
        return mst_fail(MST_EUSAGE, "--mode async is for the CPU: a GPU trains nets with --mode sync");
    self->ops = env->model->gpu.ops->net;
    self->chain = mst_model_chain(env->model);
    self->batch = (uint32_t)options->batch;
    self->row_size = mst_dims_size(&self->chain->in);
    uint64_t rows = CLAIM_SIZE / self->row_size < CLAIM_ROWS ? CLAIM_SIZE / self->row_size : CLAIM_ROWS;
    self->claim_steps = self->batch < rows ? (uint32_t)rows / self->batch : 1;
    env->model->ops->layout(env->model, env->params, &self->layout);
    base->max_take = self->batch * self->claim_steps;
    base->n_lanes = 1;
    int64_t n = options->threads < COPIERS_MAX ? options->threads : COPIERS_MAX;
    if (n > 1 && self->batch * self->row_size > ALONE_BYTES)
        TRY(mst_team_new((unsigned)n, &self->team));
    mst_rule rule = optimizer->ops->rule(optimizer, &(mst_update){.lr = 1.0f, .step = 1});
    mst_chain_gpu_options spec = {.max_rows = self->batch,
                                  .pos_weight = (float)env->model->options.pos_weight,
                                  .training = true,
                                  .updates = true,
                                  .rule = rule.kind};
    return mst_chain_gpu_open(&env->model->gpu, self->chain, &spec, &self->net);
}

static void gpu_net_fini(mst_strategy *base)
{
    gpu_net *self = (gpu_net *)base;
    mst_team_destroy(self->team);
    if (self->ops != NULL)
        self->ops->close(self->net);
}

/* ---- parameters ---- */

static mst_status gpu_net_copy(gpu_net *self, bool back)
{
    const mst_params *params = self->base.env.params;
    for (uint32_t r = 0; r < self->layout.n_ranges; r++) {
        const mst_range *range = &self->layout.ranges[r];
        uint32_t n_slots = range->state ? 0 : params->n_slots;
        for (uint32_t s = 0; s <= n_slots; s++) {
            float *at = (s == 0 ? params->w : params->slots[s - 1]) + range->offset;
            TRY(back ? self->ops->read(self->net, s, r, at) : self->ops->write(self->net, s, r, at));
        }
    }
    return MST_OK;
}

static mst_status gpu_net_settle(mst_strategy *base)
{
    gpu_net *self = (gpu_net *)base;
    if (!self->changed)
        return MST_OK;
    TRY(gpu_net_copy(self, true));
    self->changed = false;
    return MST_OK;
}

/* ---- rows ---- */

/* Thread t: fills its share of the rows of a step and copies them to their places, as bytes or numbers like
 * the rows of the step before. Rows that do not fit that are copied again. */
static void gpu_net_share(void *arg, unsigned t)
{
    gpu_net *self = arg;
    unsigned n = self->team != NULL ? mst_team_size(self->team) : 1;
    uint32_t from = (uint32_t)((uint64_t)self->rows.n_rows * t / n);
    uint32_t to = (uint32_t)((uint64_t)self->rows.n_rows * (t + 1) / n);
    mst_batch share = {.rows = self->rows.rows + from, .n_rows = to - from};
    if (from == to)
        return;
    if (self->fill) {
        self->status[t] = mst_feed_fill(self->feed, 0, self->first + from, self->first + to);
        if (self->status[t] != MST_OK) {
            mst_error_save(&self->errors[t], self->status[t]);
            return;
        }
        self->odd[t] = mst_rows_need_floats(&share, self->row_size) && !self->floats;
    }
    if (!self->odd[t])
        mst_rows_stage(self->base.env.model->kernels, &self->rows, from, to, self->row_size, self->floats,
                       &self->places);
}

static void gpu_net_share_out(gpu_net *self)
{
    if (self->team != NULL)
        mst_team_run(self->team, gpu_net_share, self);
    else
        gpu_net_share(self, 0);
}

/* Fills and copies the rows of a step, which begin at row `first` of the claim. */
static mst_status gpu_net_stage(gpu_net *self, const mst_batch *rows, uint32_t first)
{
    unsigned n = self->team != NULL ? mst_team_size(self->team) : 1;
    bool odd = false;
    TRY(self->ops->stage(self->net, &self->places));
    self->rows = *rows;
    self->first = first;
    self->fill = true;
    for (unsigned t = 0; t < n; t++) {
        self->status[t] = MST_OK;
        self->odd[t] = false;
    }
    gpu_net_share_out(self);
    for (unsigned t = 0; t < n; t++) {
        if (self->status[t] != MST_OK)
            return mst_error_restore(&self->errors[t]);
        odd |= self->odd[t];
        self->odd[t] = false;
    }
    if (!odd)
        return MST_OK;
    self->fill = false;
    self->floats = true; /* from now on: bytes may be numbers, but not the reverse */
    gpu_net_share_out(self);
    return MST_OK;
}

/* ---- steps ---- */

static mst_status gpu_net_step(gpu_net *self, const mst_batch *rows, uint32_t first, uint64_t step)
{
    const mst_optimizer *optimizer = self->base.env.optimizer;
    mst_update u = mst_optimizer_update(optimizer, step);
    mst_pass pass = {.training = true, .seed = self->base.env.seed, .step = step};
    mst_span_enter(MST_PHASE_PREPARE);
    TRY(gpu_net_stage(self, rows, first));
    mst_span_enter(MST_PHASE_COMPUTE);
    mst_chain_gpu_dropout(self->chain, &pass, self->dropout);
    mst_cuda_step numbers = {.n_rows = rows->n_rows,
                             .floats = self->floats,
                             .scale = 1.0f / (float)rows->n_rows,
                             .dropout = self->dropout,
                             .rule = optimizer->ops->rule(optimizer, &u),
                             .clip_norm = optimizer->options.clip_norm};
    self->changed = true;
    return self->ops->step(self->net, &numbers);
}

/* Claims rows for some steps and enqueues these; *over when there are none within the budget. */
static mst_status gpu_net_claim(gpu_net *self, const mst_budget *budget, uint64_t first_step,
                                uint64_t first_row, mst_progress *p, bool *over)
{
    uint64_t steps = budget->steps - (p->steps - first_step), rows = budget->rows - (p->rows - first_row),
             most = mst_span_most_steps(p->steps + 1), position;
    most = most < self->claim_steps ? most : self->claim_steps;
    uint64_t want = (uint64_t)self->batch * (steps < most ? steps : most);
    mst_batch claim;
    bool more;
    want = want < rows ? want : rows;
    *over = true;
    if (want == 0 || mst_budget_over(budget))
        return MST_OK;
    mst_span_enter(MST_PHASE_PREPARE);
    TRY(mst_feed_claim_by(self->feed, 0, (uint32_t)want, self->batch, budget->deadline_ns, &claim, &position,
                          &more));
    p->epoch_ended = !more;
    if (claim.n_rows == 0)
        return MST_OK;
    mst_span_together(p->steps + 1, (claim.n_rows + self->batch - 1) / self->batch);
    for (uint32_t at = 0; at < claim.n_rows; at += self->batch) {
        mst_batch batch = mst_batch_range(&claim, at, self->batch);
        TRY(gpu_net_step(self, &batch, at, p->steps + 1));
        p->steps++;
        p->rows += batch.n_rows;
        p->position = position + at + batch.n_rows;
        mst_span_steps(1, batch.n_rows);
    }
    *over = !more;
    return MST_OK;
}

static mst_status gpu_net_run(mst_strategy *base, mst_feed *feed, const mst_budget *budget,
                              mst_progress *progress)
{
    gpu_net *self = (gpu_net *)base;
    uint64_t first_step = progress->steps, first_row = progress->rows;
    mst_cuda_loss loss;
    bool over = false;
    mst_status st = MST_OK;
    mst_spans_attach(base->env.spans, 0, MST_PHASE_PREPARE);
    self->feed = feed;
    if (!self->there)
        st = gpu_net_copy(self, false);
    self->there = st == MST_OK;
    while (st == MST_OK && !over)
        st = gpu_net_claim(self, budget, first_step, first_row, progress, &over);
    mst_span_enter(MST_PHASE_COMPUTE);
    mst_error error;
    mst_error_save(&error, st);
    mst_status ended = self->ops->losses(self->net, &loss); /* also after a failure: no step is under way */
    mst_span_enter(MST_PHASE_IDLE);
    if (st != MST_OK)
        return mst_error_restore(&error);
    TRY(ended);
    mst_add_loss(&progress->loss, &(mst_loss_sum){.loss = loss.loss,
                                                  .weight = loss.weight,
                                                  .rows = progress->rows - first_row,
                                                  .correct = loss.correct});
    return MST_OK;
}

const mst_strategy_ops mst_strategy_gpu_net = {
    .size = sizeof(gpu_net),
    .init = gpu_net_init,
    .run = gpu_net_run,
    .fini = gpu_net_fini,
    .settle = gpu_net_settle,
};
