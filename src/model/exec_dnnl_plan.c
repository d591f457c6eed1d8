/* Executor dnnl, set-up: a chain of layers becomes stages, tensors between them, and one block of memory.
 *
 * Layouts: convolutions choose theirs, all other layers accept any, and reorders are inserted where the two
 * differ: before layers that need plain numbers (inner products, layers that are not built in, the scores)
 * and before convolutions. Inner products use their weights in place, whatever their size; weights of
 * convolutions are reordered before use, in one shared buffer.
 *
 * Memory for training (inference keeps no tensors and has two at a time):
 *
 *   tensors      all outputs of layers that do not compute in place; relu and dropout do, and relu is fused
 *                with the convolution or inner product before it
 *   gradients    of two neighbouring tensors at a time: even ones at one end of a region, odd ones at the
 *                other, so that it is as large as the largest pair
 *
 * One-tower AlexNet at 128 images, in MB: input 77, conv1 99, pool1 24 (and 6 for where its maxima were),
 * conv2 72, pool2 17 + 4, conv3 33, conv4 22, conv5 22, pool5 5 + 5 as plain numbers, inner products 5,
 * dropout's factors 7: 398. Gradients: conv1 and pool1, 123. Rooms for weights 11. Together 532, beside 244
 * of weights and 244 of gradient: 1.02 GB. */
#include <string.h>

#include "base/alloc.h"
#include "model/exec_dnnl_impl.h"
#include "model/layer_impl.h"

#define LINE      64
#define UP(bytes) (((size_t)(bytes) + LINE - 1) / LINE * LINE)

/* ---- stages ---- */

static mst_status plain_layout(mst_dnnl_plan *plan, const mst_dims *d, const mst_dnnl_layout **out)
{
    return mst_dnnl_plain(plan->dnnl, 4, (int64_t[]){plan->n, d->c, d->h, d->w}, out);
}

static uint32_t last_tensor(const mst_dnnl_plan *plan)
{
    return plan->n_tensors - 1;
}

static const mst_dnnl_layout *last_layout(const mst_dnnl_plan *plan)
{
    return plan->tensors[last_tensor(plan)].layout;
}

static uint32_t add_tensor(mst_dnnl_plan *plan, const mst_dnnl_layout *layout)
{
    plan->tensors[plan->n_tensors] =
        (mst_dnnl_tensor){.layout = layout, .size = UP(mst_dnnl_layout_size(layout))};
    return plan->n_tensors++;
}

/* A stage that reads the last tensor; y NULL: in place. */
static mst_dnnl_stage *add_stage(mst_dnnl_plan *plan, mst_dnnl_stage_kind kind, const mst_layer *layer,
                                 const mst_dnnl_layout *y)
{
    mst_dnnl_stage *s = &plan->stages[plan->n_stages++];
    *s = (mst_dnnl_stage){.kind = kind, .layer = layer, .x = last_tensor(plan)};
    s->y = y != NULL ? add_tensor(plan, y) : s->x;
    return s;
}

/* Makes sure that the last tensor has the layout. */
static mst_status reorder_to(mst_dnnl_plan *plan, const mst_dnnl_layout *want)
{
    const mst_dnnl_layout *have = last_layout(plan);
    if (mst_dnnl_layout_same(have, want))
        return MST_OK;
    mst_dnnl_op *forward, *back = NULL;
    TRY(mst_dnnl_reorder(plan->dnnl, have, want, &forward));
    if (plan->wants_dx)
        TRY(mst_dnnl_reorder(plan->dnnl, want, have, &back));
    mst_dnnl_stage *s = add_stage(plan, MST_DNNL_STAGE_SIMPLE, NULL, want);
    s->forward = forward;
    s->dx = back;
    return MST_OK;
}

static mst_status reorder_to_plain(mst_dnnl_plan *plan, const mst_dims *d)
{
    const mst_dnnl_layout *want;
    TRY(plain_layout(plan, d, &want));
    return reorder_to(plan, want);
}

static void at_least(size_t *size, size_t bytes)
{
    if (UP(bytes) > *size)
        *size = UP(bytes);
}

static mst_dnnl_window dnnl_plan_window_of(const mst_dnnl_plan *plan, const mst_layer *layer,
                                           const mst_window *w)
{
    return (mst_dnnl_window){
        .n = plan->n,
        .in = {layer->in.c, layer->in.h, layer->in.w},
        .out = {layer->out.c, layer->out.h, layer->out.w},
        .kernel = {w->kh, w->kw},
        .stride = {w->stride, w->stride},
        .pad = {w->pad, w->pad},
        .pad_end = {w->pad, w->pad},
        .groups = 1,
    };
}

/* The reorder between plain weights and an operation's; *out NULL: they are plain. */
static mst_status weight_reorder(mst_dnnl_plan *plan, const mst_dnnl_layout *from, const mst_dnnl_layout *to,
                                 mst_dnnl_op **out)
{
    *out = NULL;
    return mst_dnnl_layout_same(from, to) ? MST_OK : mst_dnnl_reorder(plan->dnnl, from, to, out);
}

static mst_status add_conv(mst_dnnl_plan *plan, const mst_layer *layer, bool relu)
{
    const mst_conv *conv = (const mst_conv *)layer;
    mst_dnnl_window w = dnnl_plan_window_of(plan, layer, &conv->window);
    mst_dnnl_conv_ops ops;
    const mst_dnnl_layout *plain;
    w.groups = conv->groups;
    w.bias = layer->n_params > 1;
    w.relu = relu;
    TRY(mst_dnnl_conv(plan->dnnl, &w, plan->training, plan->wants_dx, &ops));
    TRY(reorder_to(plan, mst_dnnl_op_layout(ops.forward, MST_DNNL_X)));
    mst_dnnl_stage *s =
        add_stage(plan, MST_DNNL_STAGE_CONV, layer, mst_dnnl_op_layout(ops.forward, MST_DNNL_Y));
    s->forward = ops.forward;
    s->dx = ops.dx;
    s->dw = ops.dw;

    int64_t dims[] = {w.groups, w.out[0] / w.groups, w.in[0] / w.groups, w.kernel[0], w.kernel[1]};
    const mst_dnnl_layout *weight = mst_dnnl_op_layout(ops.forward, MST_DNNL_W);
    TRY(mst_dnnl_plain(plan->dnnl, w.groups > 1 ? 5 : 4, w.groups > 1 ? dims : dims + 1, &plain));
    TRY(weight_reorder(plan, plain, weight, &s->weight_forward));
    at_least(&plan->weight_size, mst_dnnl_layout_size(weight));
    if (ops.dx != NULL) {
        weight = mst_dnnl_op_layout(ops.dx, MST_DNNL_W);
        TRY(weight_reorder(plan, plain, weight, &s->weight_dx));
        at_least(&plan->weight_size, mst_dnnl_layout_size(weight));
    }
    if (ops.dw != NULL) {
        weight = mst_dnnl_op_layout(ops.dw, MST_DNNL_DW);
        TRY(weight_reorder(plan, weight, plain, &s->gradient_out));
        at_least(&plan->gradient_size, mst_dnnl_layout_size(weight));
        at_least(&plan->plain_size, UP(mst_dnnl_layout_size(plain)) + layer->out.c * sizeof(float));
    }
    return MST_OK;
}

static mst_status add_linear(mst_dnnl_plan *plan, const mst_layer *layer, bool relu)
{
    int64_t n = plan->n, in = (int64_t)mst_dims_size(&layer->in), out = layer->out.c;
    const mst_dnnl_layout *y;
    TRY(reorder_to_plain(plan, &layer->in));
    TRY(plain_layout(plan, &layer->out, &y));
    mst_dnnl_stage *s = add_stage(plan, MST_DNNL_STAGE_LINEAR, layer, y);
    mst_dnnl_product product = {.m = n, .n = out, .k = in, .bias = layer->n_params > 1, .relu = relu};
    return mst_dnnl_inner(plan->dnnl, &product, &s->forward);
}

static mst_status add_pool(mst_dnnl_plan *plan, const mst_layer *layer, mst_dnnl_pooling how)
{
    const mst_pool *pool = (const mst_pool *)layer;
    mst_dnnl_window w = dnnl_plan_window_of(plan, layer, &pool->window);
    mst_dnnl_op *forward;
    TRY(mst_dnnl_pool(plan->dnnl, &w, how, plan->training, last_layout(plan), &forward));
    mst_dnnl_stage *s =
        add_stage(plan, MST_DNNL_STAGE_SIMPLE, layer, mst_dnnl_op_layout(forward, MST_DNNL_Y));
    s->forward = forward;
    return plan->wants_dx ? mst_dnnl_pool_dx(plan->dnnl, &w, how, forward, &s->dx) : MST_OK;
}

static mst_status add_lrn(mst_dnnl_plan *plan, const mst_layer *layer)
{
    const mst_lrn *lrn = (const mst_lrn *)layer;
    mst_dnnl_lrn_options o = {.size = lrn->options.size,
                              .alpha = (float)lrn->options.alpha,
                              .beta = (float)lrn->options.beta,
                              .k = (float)lrn->options.k};
    mst_dnnl_op *forward;
    TRY(mst_dnnl_lrn(plan->dnnl, &o, plan->training, last_layout(plan), &forward));
    mst_dnnl_stage *s =
        add_stage(plan, MST_DNNL_STAGE_SIMPLE, layer, mst_dnnl_op_layout(forward, MST_DNNL_Y));
    s->forward = forward;
    return plan->wants_dx ? mst_dnnl_lrn_dx(plan->dnnl, &o, forward, &s->dx) : MST_OK;
}

static mst_status add_norm(mst_dnnl_plan *plan, const mst_layer *layer)
{
    float epsilon = (float)((const mst_batchnorm *)layer)->options.eps;
    const mst_dnnl_layout *x = last_layout(plan);
    mst_dnnl_stage *s = add_stage(plan, MST_DNNL_STAGE_NORM, layer, x);
    TRY(mst_dnnl_norm(plan->dnnl, epsilon, false, x, &s->infer));
    if (!plan->training)
        return MST_OK;
    TRY(mst_dnnl_norm(plan->dnnl, epsilon, true, x, &s->forward));
    TRY(mst_dnnl_norm_dx(plan->dnnl, epsilon, s->forward, &s->dx));
    s->kept_size = 2 * UP(layer->in.c * sizeof(float));
    at_least(&plan->plain_size, 2 * UP(layer->in.c * sizeof(float)));
    return MST_OK;
}

/* fused: the stage before has done it. */
static mst_status add_map(mst_dnnl_plan *plan, const mst_layer *layer, mst_dnnl_function function, bool fused)
{
    mst_dnnl_tensor *x = &plan->tensors[last_tensor(plan)];
    bool here = x->guard == MST_DNNL_FREE || (x->guard == MST_DNNL_SIGN && function == MST_DNNL_RELU);
    mst_dnnl_op *forward;
    TRY(mst_dnnl_map(plan->dnnl, function, plan->training, x->layout, &forward));
    mst_dnnl_stage *s = add_stage(plan, MST_DNNL_STAGE_SIMPLE, layer, here ? NULL : x->layout);
    s->forward = fused ? NULL : forward;
    plan->tensors[s->y].guard = function == MST_DNNL_RELU ? MST_DNNL_SIGN : MST_DNNL_EXACT;
    return plan->wants_dx ? mst_dnnl_map_dx(plan->dnnl, function, forward, &s->dx) : MST_OK;
}

static mst_status add_plain(mst_dnnl_plan *plan, const mst_layer *layer)
{
    TRY(reorder_to_plain(plan, &layer->in));
    const mst_dnnl_layout *y;
    bool here = layer->ops == &mst_layer_dropout && plan->tensors[last_tensor(plan)].guard != MST_DNNL_EXACT;
    TRY(plain_layout(plan, &layer->out, &y));
    mst_dnnl_stage *s = add_stage(plan, MST_DNNL_STAGE_PLAIN, layer, here ? NULL : y);
    if (layer->ops != &mst_layer_dropout) /* whose backward pass uses neither x nor y */
        plan->tensors[s->y].guard = MST_DNNL_EXACT;
    if (plan->training && layer->ops->state_size != NULL)
        s->kept_size = layer->ops->state_size(layer, plan->n);
    return MST_OK;
}

static mst_status dnnl_plan_add_layer(mst_dnnl_plan *plan, uint32_t i)
{
    const mst_chain *chain = plan->chain;
    const mst_layer *layer = chain->layers[i];
    const mst_layer_ops *ops = layer->ops, *next = i + 1 < chain->n_layers ? chain->layers[i + 1]->ops : NULL,
                        *before = i > 0 ? chain->layers[i - 1]->ops : NULL;
    if (ops == &mst_layer_conv)
        return add_conv(plan, layer, next == &mst_layer_relu);
    if (ops == &mst_layer_linear)
        return add_linear(plan, layer, next == &mst_layer_relu);
    if (ops == &mst_layer_maxpool)
        return add_pool(plan, layer, MST_DNNL_MAX);
    if (ops == &mst_layer_avgpool)
        return add_pool(plan, layer, MST_DNNL_AVERAGE_PADDED);
    if (ops == &mst_layer_relu)
        return add_map(plan, layer, MST_DNNL_RELU, before == &mst_layer_conv || before == &mst_layer_linear);
    if (ops == &mst_layer_tanh)
        return add_map(plan, layer, MST_DNNL_TANH, false);
    if (ops == &mst_layer_sigmoid)
        return add_map(plan, layer, MST_DNNL_SIGMOID, false);
    if (ops == &mst_layer_lrn && ((const mst_lrn *)layer)->options.size % 2 == 1)
        return add_lrn(plan, layer);
    if (ops == &mst_layer_batchnorm)
        return add_norm(plan, layer);
    return add_plain(plan, layer);
}

/* ---- memory ---- */

/* Hands out parts of the plan's memory; before there is any, it only counts. */
typedef struct room {
    char *base;
    size_t used;
} room;

static void *dnnl_plan_take(room *r, size_t size)
{
    void *at = r->base != NULL ? r->base + r->used : NULL;
    r->used += UP(size);
    return at;
}

/* Size of a region in which tensors [from, n) have two neighbours at a time. */
static size_t pair_size(const mst_dnnl_plan *plan, uint32_t from)
{
    size_t most = from < plan->n_tensors ? plan->tensors[from].size : 0;
    for (uint32_t i = from; i + 1 < plan->n_tensors; i++)
        if (plan->tensors[i].size + plan->tensors[i + 1].size > most)
            most = plan->tensors[i].size + plan->tensors[i + 1].size;
    return most;
}

static void *pair_at(const mst_dnnl_plan *plan, char *region, size_t size, uint32_t i)
{
    return i % 2 == 0 || region == NULL ? region : region + size - plan->tensors[i].size;
}

/* The first tensor whose gradient is computed: batch norm's gradients come all at once. */
static uint32_t first_diff(const mst_dnnl_plan *plan)
{
    const mst_dnnl_stage *s = &plan->stages[plan->first_back];
    return s->kind == MST_DNNL_STAGE_NORM ? s->x : s->y;
}

static void dnnl_plan_place(mst_dnnl_plan *plan, room *r)
{
    if (plan->training) {
        for (uint32_t i = 0; i < plan->n_tensors; i++)
            plan->tensors[i].data = dnnl_plan_take(r, plan->tensors[i].size);
        uint32_t from = first_diff(plan);
        size_t size = pair_size(plan, from);
        char *region = dnnl_plan_take(r, size);
        for (uint32_t i = from; i < plan->n_tensors; i++)
            plan->tensors[i].diff = pair_at(plan, region, size, i);
    } else {
        size_t size = pair_size(plan, 0);
        char *region = dnnl_plan_take(r, size);
        for (uint32_t i = 0; i < plan->n_tensors; i++)
            plan->tensors[i].data = pair_at(plan, region, size, i);
    }
    for (uint32_t i = 0; i < plan->n_stages; i++)
        if (plan->stages[i].kept_size > 0)
            plan->stages[i].kept = dnnl_plan_take(r, plan->stages[i].kept_size);
    plan->weight_room = dnnl_plan_take(r, plan->weight_size);
    plan->gradient_room = dnnl_plan_take(r, plan->gradient_size);
    plan->plain_room = dnnl_plan_take(r, plan->plain_size);
}

static void bind_all(const mst_dnnl_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        const mst_dnnl_stage *s = &plan->stages[i];
        const mst_dnnl_tensor *x = &plan->tensors[s->x], *y = &plan->tensors[s->y];
        mst_dnnl_op *ops[] = {s->forward, s->infer, s->dx, s->dw};
        bool reorder = s->layer == NULL; /* its backward pass is another reorder, of gradients */
        for (int j = 0; j < 4; j++) {
            if (ops[j] == NULL)
                continue;
            bool back = reorder && j >= 2;
            mst_dnnl_bind(ops[j], MST_DNNL_X, back ? y->diff : x->data);
            mst_dnnl_bind(ops[j], MST_DNNL_Y, back ? x->diff : y->data);
            mst_dnnl_bind(ops[j], MST_DNNL_DX, x->diff);
            mst_dnnl_bind(ops[j], MST_DNNL_DY, y->diff);
            mst_dnnl_bind(ops[j], MST_DNNL_KEPT, s->kept);
        }
        for (int j = 0; s->kind == MST_DNNL_STAGE_NORM && s->kept != NULL && j < 3; j += 2) {
            mst_dnnl_bind(ops[j], MST_DNNL_MEAN, s->kept);
            mst_dnnl_bind(ops[j], MST_DNNL_VARIANCE, (char *)s->kept + s->kept_size / 2);
        }
    }
}

/* ---- life ---- */

static uint32_t first_with_params(const mst_dnnl_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_stages; i++)
        if (plan->stages[i].layer != NULL && plan->stages[i].layer->n_params > 0)
            return i;
    return plan->n_stages - 1;
}

mst_status mst_dnnl_plan_new(const mst_chain *chain, uint32_t n, bool training, mst_dnnl_plan **out)
{
    mst_status st;
    room r = {0};
    const mst_dnnl_layout *first;
    mst_dnnl_plan *plan = mst_zalloc(sizeof *plan);
    if (plan == NULL)
        return mst_fail_memory();
    plan->chain = chain;
    plan->n = n;
    plan->training = training;
    TRY_OUT(st, mst_dnnl_open(&plan->dnnl));
    TRY_OUT(st, plain_layout(plan, &chain->in, &first));
    add_tensor(plan, first);
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        TRY_OUT(st, dnnl_plan_add_layer(plan, i));
        plan->wants_dx = plan->wants_dx || (training && chain->layers[i]->n_params > 0);
    }
    TRY_OUT(st, reorder_to_plain(plan, &chain->layers[chain->n_layers - 1]->out));
    TRY_OUT(st, mst_dnnl_scratch(plan->dnnl, NULL));

    plan->first_back = first_with_params(plan);
    for (uint32_t i = 0; i < plan->n_stages; i++) {
        mst_dnnl_stage *s = &plan->stages[i];
        const mst_dnnl_layout *kept =
            s->forward != NULL ? mst_dnnl_op_layout(s->forward, MST_DNNL_KEPT) : NULL;
        if (kept != NULL)
            s->kept_size = mst_dnnl_layout_size(kept);
    }
    dnnl_plan_place(plan, &r);
    plan->memory_size = r.used;
    plan->memory = mst_pages_reserve(r.used, true);
    if (plan->memory == NULL) {
        st = mst_fail(MST_ENOMEM, "out of memory: cannot allocate %zu MB for the activations of %u images",
                      r.used >> 20, n);
        goto out;
    }
    r = (room){.base = plan->memory};
    dnnl_plan_place(plan, &r);
    bind_all(plan);
    *out = plan;
    plan = NULL;
out:
    mst_dnnl_plan_destroy(plan);
    return st;
}

void mst_dnnl_plan_destroy(mst_dnnl_plan *plan)
{
    if (plan == NULL)
        return;
    mst_dnnl_close(plan->dnnl);
    if (plan->memory != NULL)
        mst_pages_release(plan->memory, plan->memory_size);
    mst_free(plan);
}
