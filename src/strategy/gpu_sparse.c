/* Strategy local for sparse models on a GPU (--device cuda): weights and optimizer state stay there, and
 * blocks of rows are copied to it ahead of their steps (gpu_rows.h).
 *
 * The training thread hands steps to the GPU and never waits for one; it waits for blocks. With --mode async,
 * plain SGD of logreg adds to the weights atomically, and rows do not wait for each other; other models and
 * rules take the steps of --mode sync.
 *
 * Invariants
 * 1. The parameters are copied to the GPU before the first step, and back by settle. Between these the store
 * is out of date, and no other code reads it.
 * 2. Run returns with no step under way: its losses are complete. The thread that packs rows is paused then.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/team.h"
#include "observe/spans.h"
#include "strategy/gpu_rows.h"
#include "strategy/strategy.h"

extern const mst_strategy_ops mst_strategy_gpu_sparse;

#define BLOCK_ROWS  131072            /* of a block if batches are smaller */
#define BATCH_MAX   (1u << 24)        /* rows */
#define COPY_FLOATS ((size_t)1 << 22) /* of parameters that are copied at a time */
#define PACKERS_MAX 32
#define COPIERS_MAX 8 /* threads that copy parameters */

typedef struct gpu_sparse {
    mst_strategy base;
    const mst_cuda_ops *cuda;
    const mst_cuda_sparse_ops *ops;
    mst_cuda_sparse *gpu;
    mst_gpu_rows *rows;
    uint32_t batch, block_steps;
    uint32_t done;                /* steps of the first ready block that were handed to the GPU */
    mst_cuda_sparse_rules *rules; /* block_steps */
    float *copy;                  /* pinned, COPY_FLOATS */
    bool there;                   /* the parameters are on the GPU */
    bool changed;                 /* since the last settle */
} gpu_sparse;

/* ---- the model ---- */

static mst_cuda_sparse_spec gpu_sparse_spec(const gpu_sparse *self, const mst_strategy_env *env)
{
    const mst_model *model = env->model;
    const mst_model_options *o = &model->options;
    mst_grad layout = {0};
    model->ops->layout(model, env->params, &layout);
    const mst_view *weight = mst_params_find(env->params, "weight");
    bool keyed = layout.width != 0;
    bool additive =
        mst_optimizer_of_keys(env->optimizer)->ops->additive(mst_optimizer_of_keys(env->optimizer)) &&
        env->optimizer->ops->additive(env->optimizer);
    uint32_t bias = o->bias ? 1 : 0;
    return (mst_cuda_sparse_spec){
        .device = model->gpu.device,
        .kind = model->ops->gpu_kind,
        .n_features = model->shape.n_features,
        .size = env->params->size,
        .n_slots = env->params->n_slots,
        .weight_at = weight->offset,
        .width = keyed ? layout.width : model->shape.n_classes,
        .key_step = keyed ? layout.width : 1,
        .weight_step = keyed ? 1 : model->shape.n_features,
        .head = keyed ? model->shape.n_dense : (uint32_t)model->shape.n_features,
        .state_per_key = weight->state.per_key,
        .bias_at = bias ? layout.ranges[1].offset : 0,
        .n_bias = bias ? (uint32_t)layout.ranges[1].size : 0,
        .pairs_at = layout.ranges[layout.n_ranges - 1].offset,
        .factors = (uint32_t)o->factors,
        .fields = model->shape.n_fields,
        .pos_weight = o->pos_weight > 0.0 ? (float)o->pos_weight : 1.0f,
        .l2_factors = (float)o->l2_factors,
        .clip_norm = (float)env->optimizer->options.clip_norm,
        .atomic =
            self->base.options.mode == MST_MODE_ASYNC && additive && model->ops->gpu_kind == MST_CUDA_LOGREG,
        .batch = self->batch,
    };
}

static mst_status gpu_sparse_init(mst_strategy *base, const mst_strategy_options *options,
                                  const mst_strategy_env *env)
{
    gpu_sparse *self = (gpu_sparse *)base;
    self->cuda = env->model->gpu.ops;
    self->ops = self->cuda->sparse;
    if (options->batch > BATCH_MAX)
        return mst_fail(MST_EUSAGE, "--batch %lld: --device cuda takes up to %u rows per step",
                        (long long)options->batch, BATCH_MAX);
    self->batch = (uint32_t)options->batch;
    mst_cuda_sparse_spec spec = gpu_sparse_spec(self, env);
    TRY(self->ops->open(&spec, &self->gpu));
    uint32_t most = self->ops->block_steps(self->gpu), steps = BLOCK_ROWS / self->batch;
    self->block_steps = steps < 1 ? 1 : steps < most ? steps : most;
    self->rules = mst_calloc(self->block_steps, sizeof *self->rules);
    if (self->rules == NULL)
        return mst_fail_memory();
    TRY(self->cuda->host_alloc(COPY_FLOATS * sizeof(float), (void **)&self->copy));
    base->max_take = self->batch * self->block_steps;
    for (uint32_t at = 0; at < MST_CUDA_SPARSE_SLOTS && base->max_take <= BLOCK_ROWS; at++) {
        mst_cuda_sparse_rows *rows; /* pinned memory takes long to allocate: not in the first epoch */
        TRY(self->ops->reserve_held(self->gpu, at, base->max_take, &rows));
    }
    base->n_lanes = 1;
    base->any_keys = env->model->n_scores == 1; /* the GPU checks keys, and takes any label of two classes */
    mst_gpu_rows_options rows = {
        .ops = self->ops,
        .gpu = self->gpu,
        .model = env->model,
        .head = spec.head,
        .splits = spec.clip_norm > 0.0f,
        .n_threads = (unsigned)(options->threads < PACKERS_MAX ? options->threads : PACKERS_MAX),
        .batch = self->batch,
        .block_steps = self->block_steps};
    return mst_gpu_rows_new(&rows, &self->rows);
}

static void gpu_sparse_fini(mst_strategy *base)
{
    gpu_sparse *self = (gpu_sparse *)base;
    mst_gpu_rows_destroy(self->rows);
    if (self->ops != NULL)
        self->ops->close(self->gpu);
    if (self->copy != NULL)
        self->cuda->host_free(self->copy);
    mst_free(self->rules);
}

/* ---- parameters ---- */

/* The copy of parameters by a team: each thread has a part of the pinned memory. */
typedef struct gpu_sparse_copying {
    gpu_sparse *self;
    bool back;
    unsigned n_threads;
    mst_error errors[COPIERS_MAX];
} gpu_sparse_copying;

/* Copies floats [first, first + count) of a slot. */
static mst_status gpu_sparse_copy_part(gpu_sparse *self, bool back, uint32_t slot, uint64_t first,
                                       uint64_t count, float *pinned)
{
    mst_params *params = self->base.env.params;
    if (back) {
        TRY(self->ops->read(self->gpu, slot, first, count, pinned));
        mst_params_write(params, slot, first, count, pinned);
        return MST_OK;
    }
    mst_params_read(params, slot, first, count, pinned);
    return self->ops->write(self->gpu, slot, first, count, pinned);
}

/* Thread t: every n-th part. */
static void gpu_sparse_copy_parts(void *arg, unsigned t)
{
    gpu_sparse_copying *c = arg;
    mst_params *params = c->self->base.env.params;
    uint64_t most = COPY_FLOATS / c->n_threads, number = 0;
    mst_status st = MST_OK;
    for (uint32_t slot = 0; slot <= params->n_slots && st == MST_OK; slot++)
        for (uint64_t at = 0, first, count;
             st == MST_OK && mst_params_next_piece(params, slot, &at, params->size, &first, &count);)
            for (uint64_t n; count > 0 && st == MST_OK; first += n, count -= n) {
                n = count < most ? count : most;
                if (number++ % c->n_threads == t)
                    st = gpu_sparse_copy_part(c->self, c->back, slot, first, n, c->self->copy + t * most);
            }
    mst_error_save(&c->errors[t], st);
}

static mst_status gpu_sparse_copy(gpu_sparse *self, bool back)
{
    unsigned threads = (unsigned)self->base.options.threads;
    gpu_sparse_copying c = {
        .self = self, .back = back, .n_threads = threads < COPIERS_MAX ? threads : COPIERS_MAX};
    mst_team *team = NULL;
    TRY(mst_team_new(c.n_threads, &team));
    mst_team_run(team, gpu_sparse_copy_parts, &c);
    mst_team_destroy(team);
    for (unsigned t = 0; t < c.n_threads; t++)
        if (c.errors[t].code != MST_OK)
            return mst_error_restore(&c.errors[t]);
    return MST_OK;
}

static mst_status gpu_sparse_settle(mst_strategy *base)
{
    gpu_sparse *self = (gpu_sparse *)base;
    if (!self->changed)
        return MST_OK;
    TRY(gpu_sparse_copy(self, true));
    self->changed = false;
    return MST_OK;
}

/* ---- steps ---- */

/* Rules of n steps from number `first` on. */
static void gpu_sparse_find_rules(gpu_sparse *self, uint64_t first, uint32_t n)
{
    const mst_optimizer *optimizer = self->base.env.optimizer, *of_keys = mst_optimizer_of_keys(optimizer);
    for (uint32_t i = 0; i < n; i++) {
        mst_update u = mst_optimizer_update(optimizer, first + i), keys = mst_update_of_keys(optimizer, &u);
        self->rules[i].rest = optimizer->ops->rule(optimizer, &u);
        self->rules[i].keys = of_keys->ops->rule(of_keys, &keys);
    }
}

/* Hands steps of the first ready block to the GPU, at most `most`. */
static mst_status gpu_sparse_train(gpu_sparse *self, const mst_gpu_block *block, uint64_t most,
                                   mst_progress *p)
{
    uint32_t n_steps = (block->n_rows + self->batch - 1) / self->batch, n = n_steps - self->done;
    uint64_t alone = mst_span_most_steps(p->steps + 1);
    n = n < most ? n : (uint32_t)most;
    n = n < alone ? n : (uint32_t)alone;
    uint64_t end = (uint64_t)(self->done + n) * self->batch, from = (uint64_t)self->done * self->batch;
    end = end < block->n_rows ? end : block->n_rows;
    mst_span_together(p->steps + 1, n);
    gpu_sparse_find_rules(self, p->steps + 1, n);
    self->changed = true;
    TRY(self->ops->train(self->gpu, block->at, self->done, n, self->rules));
    p->steps += n;
    p->rows += end - from;
    p->position = block->position + end;
    mst_span_steps(n, end - from);
    self->done += n;
    if (self->done < n_steps)
        return MST_OK;
    self->done = 0;
    mst_gpu_rows_release(self->rows);
    return MST_OK;
}

static mst_status gpu_sparse_steps(gpu_sparse *self, const mst_budget *budget, mst_progress *p)
{
    uint64_t first = p->steps, first_row = p->rows;
    while (p->steps - first < budget->steps && p->rows - first_row < budget->rows &&
           !mst_budget_over(budget)) {
        const mst_gpu_block *block;
        bool ended;
        mst_span_enter(MST_PHASE_PREPARE);
        TRY(mst_gpu_rows_next(self->rows, budget->deadline_ns, &block, &ended));
        mst_span_enter(MST_PHASE_COMPUTE);
        p->epoch_ended = ended;
        if (block == NULL)
            return MST_OK;
        TRY(gpu_sparse_train(self, block, budget->steps - (p->steps - first), p));
    }
    return MST_OK;
}

/* The parameters are on the GPU. */
static mst_status gpu_sparse_bring(gpu_sparse *self)
{
    if (self->there)
        return MST_OK;
    TRY(gpu_sparse_copy(self, false));
    self->there = true;
    return MST_OK;
}

static mst_status gpu_sparse_ready(mst_strategy *base, mst_feed *feed)
{
    gpu_sparse *self = (gpu_sparse *)base;
    gpu_sparse_find_rules(self, 1, self->block_steps);
    TRY(mst_gpu_rows_ready(self->rows, feed, self->rules));
    return gpu_sparse_bring(self);
}

static mst_status gpu_sparse_run(mst_strategy *base, mst_feed *feed, const mst_budget *budget,
                                 mst_progress *progress)
{
    gpu_sparse *self = (gpu_sparse *)base;
    uint64_t first_row = progress->rows, half = (uint64_t)self->done * self->batch;
    mst_cuda_sparse_sums sums;
    mst_error error;
    mst_spans_attach(base->env.spans, 0, MST_PHASE_PREPARE);
    mst_gpu_rows_resume(self->rows, feed, budget->rows < UINT64_MAX - half ? budget->rows + half : UINT64_MAX,
                        progress->position);
    mst_status st = gpu_sparse_bring(self);
    if (st == MST_OK)
        st = gpu_sparse_steps(self, budget, progress);
    mst_error_save(&error, st);
    mst_gpu_rows_pause(self->rows);
    mst_status ended = self->ops->finish(self->gpu, &sums); /* also after a failure: no step is under way */
    mst_span_enter(MST_PHASE_IDLE);
    if (st != MST_OK)
        return mst_error_restore(&error);
    if (ended == MST_EINPUT) {
        mst_error_save(&error, ended);
        TRY(mst_gpu_rows_explain(self->rows));
        return mst_error_restore(&error);
    }
    TRY(ended);
    mst_add_loss(&progress->loss, &(mst_loss_sum){.loss = sums.loss,
                                                  .weight = sums.weight,
                                                  .rows = progress->rows - first_row,
                                                  .correct = sums.correct});
    return MST_OK;
}

const mst_strategy_ops mst_strategy_gpu_sparse = {
    .size = sizeof(gpu_sparse),
    .init = gpu_sparse_init,
    .ready = gpu_sparse_ready,
    .run = gpu_sparse_run,
    .fini = gpu_sparse_fini,
    .settle = gpu_sparse_settle,
};
