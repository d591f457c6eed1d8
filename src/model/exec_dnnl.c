/* Executor dnnl: large nets on oneDNN, with threads inside its primitives (contract in executor.h).
 *
 * Flow of a pass: rows as plain numbers into tensor 0, stage after stage to the scores, loss, stages
 * backwards. The flat vector stays authoritative: weights are read, and gradients added, in the strategies'
 * memory.
 *
 * Invariants
 * 1. Primitives are made for max_rows images. A smaller batch is filled up with images of zeros, whose
 *    d(loss)/d(score) is zero, so that they add nothing to any gradient; layers that compute with their own
 *    plain functions see the real rows only, and rows beyond are zeroed behind them.
 * 2. Batch norm would count those zeros: a chain that has one is trained by a plan made for the number of
 *    rows at hand. Two plans are kept, for max_rows and for the last other number, because all epochs end
 * with the same number.
 * 3. Weights of a convolution are reordered into the layouts of its operations right before use, in every
 * pass: there is no notice of their changes, and it costs a thousandth of the pass. */
#include <string.h>

#include "base/alloc.h"
#include "model/exec_dnnl_impl.h"
#include "model/layer_impl.h"

typedef struct dnnl_replica {
    mst_replica base;
    bool norm;            /* the chain has a batch norm */
    mst_dnnl_plan *whole; /* for max_rows */
    mst_dnnl_plan *other; /* for another number of rows; or NULL */
} dnnl_replica;

/* The arguments of the stages of a pass. */
typedef struct dnnl_pass {
    mst_dnnl_plan *plan;
    uint32_t n; /* rows */
    unsigned n_threads;
    const mst_weights *w;
    const mst_pass *pass;
    mst_grad *grad;
    bool fresh; /* the gradient is overwritten */
    mst_step *step;
} dnnl_pass;

static float *dnnl_weight_of(const dnnl_pass *r, const mst_layer *layer, uint32_t i)
{
    return r->w->ranges[layer->first_range + i];
}

static float *gradient_of(const dnnl_pass *r, const mst_layer *layer, uint32_t i)
{
    return r->grad->ranges[layer->first_range + i].g;
}

static void add_to(float *restrict y, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

/* A part of the gradient that was computed elsewhere. */
static void dnnl_put(const dnnl_pass *r, float *restrict y, const float *restrict x, size_t n)
{
    if (r->fresh)
        memcpy(y, x, n * sizeof *y);
    else
        add_to(y, x, n);
}

/* Rows of plain numbers beyond the batch. */
static void clear_rest(const dnnl_pass *r, const mst_dims *d, float *x)
{
    uint64_t row = mst_dims_size(d);
    if (r->n < r->plan->n)
        memset(x + r->n * row, 0, (r->plan->n - r->n) * row * sizeof *x);
}

/* ---- forward ---- */

/* Brings the weights into the operation's layout and binds them. */
static mst_status use_weight(const dnnl_pass *r, mst_dnnl_op *op, mst_dnnl_op *reorder, const float *w)
{
    if (reorder == NULL) {
        mst_dnnl_bind(op, MST_DNNL_W, w);
        return MST_OK;
    }
    mst_dnnl_bind(reorder, MST_DNNL_X, w);
    mst_dnnl_bind(reorder, MST_DNNL_Y, r->plan->weight_room);
    mst_dnnl_bind(op, MST_DNNL_W, r->plan->weight_room);
    return mst_dnnl_run(reorder);
}

static mst_status norm_forward(const dnnl_pass *r, const mst_dnnl_stage *s)
{
    mst_dnnl_op *op = r->pass->training ? s->forward : s->infer;
    mst_dnnl_bind(op, MST_DNNL_SCALE, dnnl_weight_of(r, s->layer, 0));
    mst_dnnl_bind(op, MST_DNNL_SHIFT, dnnl_weight_of(r, s->layer, 1));
    if (!r->pass->training) {
        mst_dnnl_bind(op, MST_DNNL_MEAN, dnnl_weight_of(r, s->layer, 2));
        mst_dnnl_bind(op, MST_DNNL_VARIANCE, dnnl_weight_of(r, s->layer, 3));
    }
    return mst_dnnl_run(op);
}

/* A dropout, divided among the threads: it treats each row by itself, and keeps a number per unit. */
typedef struct dnnl_rows {
    const dnnl_pass *r;
    const mst_dnnl_stage *s;
    bool back;
} dnnl_rows;

static void dnnl_rows_part(void *arg, unsigned i)
{
    const dnnl_rows *p = arg;
    const dnnl_pass *r = p->r;
    const mst_layer *layer = p->s->layer;
    const mst_dnnl_tensor *x = &r->plan->tensors[p->s->x], *y = &r->plan->tensors[p->s->y];
    uint32_t from = (uint32_t)((uint64_t)r->n * i / r->n_threads);
    uint32_t n = (uint32_t)((uint64_t)r->n * (i + 1) / r->n_threads) - from;
    size_t at = from * mst_dims_size(&layer->in);
    float *kept = p->s->kept != NULL ? (float *)p->s->kept + at : NULL;
    mst_pass pass = *r->pass;
    pass.first_row += from;
    if (p->back)
        layer->ops->backward(layer, kept, &pass, n, x->data + at, y->data + at, y->diff + at, NULL,
                             x->diff + at, NULL);
    else
        layer->ops->forward(layer, kept, &pass, n, x->data + at, NULL, y->data + at);
}

static void dnnl_plain_forward(const dnnl_pass *r, const mst_dnnl_stage *s)
{
    const mst_dnnl_tensor *x = &r->plan->tensors[s->x], *y = &r->plan->tensors[s->y];
    if (s->layer->ops == &mst_layer_dropout)
        mst_dnnl_each(r->n_threads, dnnl_rows_part, &(dnnl_rows){.r = r, .s = s});
    else
        s->layer->ops->forward(s->layer, s->kept, r->pass, r->n, x->data,
                               &r->w->ranges[s->layer->first_range], y->data);
    clear_rest(r, &s->layer->out, y->data);
}

static mst_status stage_forward(const dnnl_pass *r, const mst_dnnl_stage *s)
{
    const mst_layer *layer = s->layer;
    if (layer == NULL)
        return mst_dnnl_run(s->forward);
    for (uint32_t i = 0; i < layer->n_params; i++)
        TRY(mst_step_need(r->step, layer->first_range + i));
    switch (s->kind) {
    case MST_DNNL_STAGE_CONV:
    case MST_DNNL_STAGE_LINEAR:
        TRY(use_weight(r, s->forward, s->weight_forward, dnnl_weight_of(r, layer, 0)));
        if (layer->n_params > 1)
            mst_dnnl_bind(s->forward, MST_DNNL_B, dnnl_weight_of(r, layer, 1));
        return mst_dnnl_run(s->forward);
    case MST_DNNL_STAGE_NORM:
        return norm_forward(r, s);
    case MST_DNNL_STAGE_SIMPLE:
        return s->forward != NULL ? mst_dnnl_run(s->forward) : MST_OK;
    case MST_DNNL_STAGE_PLAIN:
        dnnl_plain_forward(r, s);
        return MST_OK;
    }
    return MST_OK;
}

/* ---- backward ---- */

/* dw writes a gradient of its own layout, unless that is plain. It is reordered into the flat one, or added
 * to it through plain_room. */
static mst_status conv_gradient(const dnnl_pass *r, const mst_dnnl_stage *s)
{
    const mst_layer *layer = s->layer;
    mst_dnnl_plan *plan = r->plan;
    uint64_t size = mst_layer_param_size(&layer->params[0]);
    float *flat = gradient_of(r, layer, 0), *bias = plan->plain_room + size;
    float *plain = r->fresh ? flat : plan->plain_room,
          *out = s->gradient_out != NULL ? plan->gradient_room : plain;
    mst_dnnl_bind(s->dw, MST_DNNL_DW, out);
    mst_dnnl_bind(s->dw, MST_DNNL_DB, bias);
    TRY(mst_dnnl_run(s->dw));
    if (s->gradient_out != NULL) {
        mst_dnnl_bind(s->gradient_out, MST_DNNL_X, out);
        mst_dnnl_bind(s->gradient_out, MST_DNNL_Y, plain);
        TRY(mst_dnnl_run(s->gradient_out));
    }
    if (!r->fresh)
        add_to(flat, plain, size);
    if (layer->n_params > 1)
        dnnl_put(r, gradient_of(r, layer, 1), bias, layer->out.c);
    return MST_OK;
}

/* The gradient of a bias: a part of its columns. */
static void dnnl_bias_part(void *arg, unsigned i)
{
    const dnnl_rows *p = arg;
    const dnnl_pass *r = p->r;
    const mst_layer *layer = p->s->layer;
    uint64_t from, to;
    mst_grad_slice(layer->out.c, i, r->n_threads, &from, &to);
    const float *dy = r->plan->tensors[p->s->y].diff + from;
    float *g = gradient_of(r, layer, 1) + from;
    dnnl_put(r, g, dy, to - from);
    for (uint32_t row = 1; row < r->n; row++)
        add_to(g, dy + (size_t)row * layer->out.c, to - from);
}

/* Straight into the flat gradient. */
static mst_status linear_gradient(const dnnl_pass *r, const mst_dnnl_stage *s)
{
    const mst_dnnl_tensor *x = &r->plan->tensors[s->x], *y = &r->plan->tensors[s->y];
    size_t in = mst_dims_size(&s->layer->in), out = s->layer->out.c;
    if (s->layer->n_params > 1)
        mst_dnnl_each(r->n_threads, dnnl_bias_part, &(dnnl_rows){.r = r, .s = s, .back = true});
    return mst_dnnl_gemm(true, (int64_t)out, (int64_t)in, r->n, y->diff, x->data, r->fresh ? 0.0f : 1.0f,
                         gradient_of(r, s->layer, 0));
}

static mst_status linear_dx(const dnnl_pass *r, const mst_dnnl_stage *s)
{
    const mst_dnnl_tensor *x = &r->plan->tensors[s->x], *y = &r->plan->tensors[s->y];
    TRY(mst_dnnl_gemm(false, r->n, (int64_t)mst_dims_size(&s->layer->in), s->layer->out.c, y->diff,
                      dnnl_weight_of(r, s->layer, 0), 0.0f, x->diff));
    clear_rest(r, &s->layer->in, x->diff);
    return MST_OK;
}

/* The running mean and variance move towards the batch's (layer_batchnorm.c). */
static mst_status norm_backward(const dnnl_pass *r, const mst_dnnl_stage *s)
{
    const mst_layer *layer = s->layer;
    size_t c = layer->in.c, half = s->kept_size / 2 / sizeof(float);
    float *scale = r->plan->plain_room, *shift = scale + half;
    const float *mean = s->kept, *variance = mean + half;
    double m = (double)r->n * layer->in.h * layer->in.w,
           momentum = ((const mst_batchnorm *)layer)->options.momentum;
    mst_dnnl_bind(s->dx, MST_DNNL_SCALE, dnnl_weight_of(r, layer, 0));
    mst_dnnl_bind(s->dx, MST_DNNL_SHIFT, dnnl_weight_of(r, layer, 1));
    mst_dnnl_bind(s->dx, MST_DNNL_DSCALE, scale);
    mst_dnnl_bind(s->dx, MST_DNNL_DSHIFT, shift);
    TRY(mst_dnnl_run(s->dx));
    dnnl_put(r, gradient_of(r, layer, 0), scale, c);
    dnnl_put(r, gradient_of(r, layer, 1), shift, c);
    for (size_t i = 0; i < c; i++) {
        double unbiased = (double)variance[i] * (m > 1.0 ? m / (m - 1.0) : 1.0);
        gradient_of(r, layer, 2)[i] =
            (float)((1.0 - momentum) * (double)dnnl_weight_of(r, layer, 2)[i] + momentum * (double)mean[i]);
        gradient_of(r, layer, 3)[i] =
            (float)((1.0 - momentum) * (double)dnnl_weight_of(r, layer, 3)[i] + momentum * unbiased);
    }
    return MST_OK;
}

static void plain_backward(const dnnl_pass *r, const mst_dnnl_stage *s, bool wants_dx)
{
    const mst_dnnl_tensor *x = &r->plan->tensors[s->x], *y = &r->plan->tensors[s->y];
    const mst_layer *layer = s->layer;
    float *g[MST_LAYER_PARAMS] = {0};
    for (uint32_t i = 0; i < layer->n_params; i++) {
        mst_range *range = &r->grad->ranges[layer->first_range + i];
        g[i] = range->g;
        if (r->fresh)
            memset(range->g, 0, range->size * sizeof *range->g);
    }
    if (layer->ops == &mst_layer_dropout && wants_dx)
        mst_dnnl_each(r->n_threads, dnnl_rows_part, &(dnnl_rows){.r = r, .s = s, .back = true});
    else
        layer->ops->backward(layer, s->kept, r->pass, r->n, x->data, y->data, y->diff,
                             &r->w->ranges[layer->first_range], wants_dx ? x->diff : NULL, g);
    if (wants_dx)
        clear_rest(r, &layer->in, x->diff);
}

/* The weights' gradient first: strategies send it while dx is computed. */
static mst_status stage_backward(const dnnl_pass *r, const mst_dnnl_stage *s, bool wants_dx)
{
    const mst_layer *layer = s->layer;
    if (layer == NULL)
        return wants_dx ? mst_dnnl_run(s->dx) : MST_OK;
    switch (s->kind) {
    case MST_DNNL_STAGE_CONV:
        TRY(conv_gradient(r, s));
        break;
    case MST_DNNL_STAGE_LINEAR:
        TRY(linear_gradient(r, s));
        break;
    case MST_DNNL_STAGE_NORM:
        TRY(norm_backward(r, s));
        break;
    case MST_DNNL_STAGE_SIMPLE:
        break;
    case MST_DNNL_STAGE_PLAIN:
        plain_backward(r, s, wants_dx);
        break;
    }
    for (uint32_t i = layer->n_params; i-- > 0;)
        TRY(mst_step_ready(r->step, layer->first_range + i));
    if (!wants_dx || s->kind == MST_DNNL_STAGE_NORM || s->kind == MST_DNNL_STAGE_PLAIN)
        return MST_OK;
    if (s->kind == MST_DNNL_STAGE_LINEAR)
        return linear_dx(r, s);
    if (s->kind == MST_DNNL_STAGE_CONV)
        TRY(use_weight(r, s->dx, s->weight_dx, dnnl_weight_of(r, layer, 0)));
    return mst_dnnl_run(s->dx);
}

/* ---- passes ---- */

/* Loading rows, in as many parts as there are threads. */
typedef struct loading {
    const mst_replica *replica;
    const mst_batch *batch;
    float *x;
    unsigned n_parts;
} loading;

static void load_part(void *arg, unsigned i)
{
    const loading *l = arg;
    uint32_t from = (uint32_t)((uint64_t)l->batch->n_rows * i / l->n_parts);
    uint32_t to = (uint32_t)((uint64_t)l->batch->n_rows * (i + 1) / l->n_parts);
    size_t size = mst_dims_size(&l->replica->chain->in);
    mst_rows_expand(l->replica->kernels, l->batch->rows + from, to - from, size, l->x + from * size);
}

static void trace_stage(const dnnl_pass *r, const mst_dnnl_stage *s, bool forward, uint64_t start)
{
    const mst_layer *layer = s->layer;
    if (!mst_tracing())
        return;
    mst_trace_layer(layer != NULL ? layer->name : "reorder", forward ? "forward" : "backward", start,
                    layer != NULL ? mst_dims_output(forward ? &layer->out : &layer->in, r->n)
                                  : (mst_trace_output){0});
}

static mst_status forward_pass(const mst_replica *self, const dnnl_pass *r, const mst_batch *batch)
{
    mst_dnnl_plan *plan = r->plan;
    loading l = {.replica = self, .batch = batch, .x = plan->tensors[0].data, .n_parts = self->n_threads};
    uint64_t start = mst_trace_now();
    mst_dnnl_each(l.n_parts, load_part, &l);
    clear_rest(r, &plan->chain->in, plan->tensors[0].data);
    mst_trace_op("expand", start, mst_dims_output(&plan->chain->in, r->n));
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        start = mst_trace_now();
        TRY(stage_forward(r, &plan->stages[i]));
        trace_stage(r, &plan->stages[i], true, start);
    }
    return MST_OK;
}

static mst_status backward_pass(const dnnl_pass *r)
{
    for (uint32_t i = r->plan->n_stages; i-- > r->plan->first_back;) {
        uint64_t start = mst_trace_now();
        TRY(stage_backward(r, &r->plan->stages[i], i > r->plan->first_back));
        trace_stage(r, &r->plan->stages[i], false, start);
    }
    return MST_OK;
}

/* The plan to train n rows with. */
static mst_status plan_for(dnnl_replica *self, uint32_t n, mst_dnnl_plan **out)
{
    uint32_t rows = self->norm ? n : self->base.max_rows;
    mst_dnnl_plan **slot = rows == self->base.max_rows ? &self->whole : &self->other;
    if (*slot != NULL && (*slot)->n != rows) {
        mst_dnnl_plan_destroy(*slot);
        *slot = NULL;
    }
    if (*slot == NULL)
        TRY(mst_dnnl_plan_new(self->base.chain, rows, true, slot));
    *out = *slot;
    return MST_OK;
}

static mst_status train_inside(dnnl_replica *self, dnnl_pass *r, const mst_batch *batch, float scale,
                               mst_loss_sum *sum)
{
    TRY(plan_for(self, batch->n_rows, &r->plan));
    const mst_dnnl_tensor *scores = &r->plan->tensors[r->plan->n_tensors - 1];
    const mst_chain *chain = self->base.chain;
    TRY(forward_pass(&self->base, r, batch));
    mst_replica_loss(&self->base, batch, scores->data, scale, scores->diff, sum);
    clear_rest(r, &chain->layers[chain->n_layers - 1]->out, scores->diff);
    return backward_pass(r);
}

static mst_status dnnl_train(mst_replica *self, const mst_batch *batch, const mst_weights *w,
                             const mst_pass *pass, float scale, mst_grad *grad, mst_step *step,
                             mst_loss_sum *sum)
{
    dnnl_pass r = {.n = batch->n_rows,
                   .n_threads = self->n_threads,
                   .w = w,
                   .pass = pass,
                   .grad = grad,
                   .fresh = grad->fresh,
                   .step = step};
    int before = mst_dnnl_enter(self->n_threads);
    mst_status st = train_inside((dnnl_replica *)self, &r, batch, scale, sum);
    mst_dnnl_leave(before);
    grad->fresh = false;
    return st;
}

static mst_status dnnl_forward(mst_replica *self, const mst_batch *batch, const mst_weights *w, float *scores)
{
    mst_dnnl_plan *plan = ((dnnl_replica *)self)->whole;
    mst_pass pass = {.training = false};
    dnnl_pass r = {.plan = plan, .n = batch->n_rows, .n_threads = self->n_threads, .w = w, .pass = &pass};
    int before = mst_dnnl_enter(self->n_threads);
    mst_status st = forward_pass(self, &r, batch);
    mst_dnnl_leave(before);
    if (st == MST_OK)
        memcpy(scores, plan->tensors[plan->n_tensors - 1].data,
               batch->n_rows * mst_dims_size(&self->chain->layers[self->chain->n_layers - 1]->out) *
                   sizeof *scores);
    return st;
}

static void dnnl_each(mst_replica *self, unsigned n, void (*fn)(void *arg, unsigned i), void *arg)
{
    int before = mst_dnnl_enter(self->n_threads);
    mst_dnnl_each(n, fn, arg);
    mst_dnnl_leave(before);
}

/* ---- life ---- */

static void dnnl_close(mst_replica *self)
{
    dnnl_replica *replica = (dnnl_replica *)self;
    if (replica == NULL)
        return;
    mst_dnnl_plan_destroy(replica->whole);
    mst_dnnl_plan_destroy(replica->other);
    mst_free(replica);
}

extern const mst_executor mst_executor_dnnl;

static mst_status dnnl_open(const mst_chain *chain, const mst_kernels *kernels, uint32_t max_rows,
                            unsigned n_threads, bool training, mst_replica **out)
{
    dnnl_replica *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->base = (mst_replica){.executor = &mst_executor_dnnl,
                               .chain = chain,
                               .kernels = kernels,
                               .max_rows = max_rows,
                               .n_threads = n_threads > 0 ? n_threads : 1};
    for (uint32_t i = 0; i < chain->n_layers; i++)
        self->norm = self->norm || chain->layers[i]->ops == &mst_layer_batchnorm;
    int before = mst_dnnl_enter(self->base.n_threads);
    mst_status st = mst_dnnl_plan_new(chain, max_rows, training, &self->whole);
    mst_dnnl_leave(before);
    if (st != MST_OK) {
        dnnl_close(&self->base);
        return st;
    }
    *out = &self->base;
    return MST_OK;
}

/* Unsupported layers are computed with their own functions. */
static mst_status dnnl_can(const mst_chain *chain)
{
    return mst_executor_chain_only(&mst_executor_dnnl, chain);
}

const mst_executor mst_executor_dnnl = {
    .name = "dnnl",
    .help = "oneDNN: large nets, threads inside its primitives",
    .threads = true,
    .overwrites = true,
    .each = dnnl_each,
    .can = dnnl_can,
    .open = dnnl_open,
    .close = dnnl_close,
    .train = dnnl_train,
    .forward = dnnl_forward,
};
