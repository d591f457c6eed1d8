/* Executor plain: the layers' own functions, one after the other, on plain rows. Other executors are compared
 * with it, and it computes kinds of layers that no other executor supports.
 *
 * Training keeps every layer's output for the backward pass, whose gradients alternate between two buffers;
 * inference alternates outputs between the same two. */
#include <string.h>

#include "base/alloc.h"
#include "model/executor.h"

extern const mst_executor mst_executor_plain;

typedef struct plain {
    mst_replica base;
    bool training;
    float *input;
    float *outputs[MST_NET_LAYERS]; /* training */
    void *states[MST_NET_LAYERS];
    float *turns[2];
} plain;

static mst_status plain_can(const mst_chain *chain)
{
    (void)chain;
    return MST_OK;
}

static void plain_close(mst_replica *base)
{
    plain *self = (plain *)base;
    if (self == NULL)
        return;
    for (uint32_t i = 0; i < base->chain->n_layers; i++) {
        mst_free(self->outputs[i]);
        mst_free(self->states[i]);
    }
    mst_free(self->input);
    mst_free(self->turns[0]);
    mst_free(self->turns[1]);
    mst_free(self);
}

/* Room for n numbers per row. */
static mst_status plain_make_room(const plain *self, uint64_t n, float **out)
{
    *out = mst_alloc_lines((size_t)n * self->base.max_rows * sizeof **out);
    if (*out == NULL)
        return mst_fail_memory();
    return MST_OK;
}

static mst_status make_buffers(plain *self)
{
    const mst_chain *chain = self->base.chain;
    uint64_t most = mst_dims_size(&chain->in);
    TRY(plain_make_room(self, most, &self->input));
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        const mst_layer *layer = chain->layers[i];
        uint64_t size = mst_dims_size(&layer->out);
        most = size > most ? size : most;
        if (!self->training)
            continue;
        TRY(plain_make_room(self, size, &self->outputs[i]));
        size_t state =
            layer->ops->state_size != NULL ? layer->ops->state_size(layer, self->base.max_rows) : 0;
        if (state > 0 && (self->states[i] = mst_alloc_lines(state)) == NULL)
            return mst_fail_memory();
    }
    TRY(plain_make_room(self, most, &self->turns[0]));
    return plain_make_room(self, most, &self->turns[1]);
}

static mst_status plain_open(const mst_chain *chain, const mst_kernels *kernels, uint32_t max_rows,
                             unsigned n_threads, bool training, mst_replica **out)
{
    plain *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->base = (mst_replica){.executor = &mst_executor_plain,
                               .chain = chain,
                               .kernels = kernels,
                               .max_rows = max_rows,
                               .n_threads = n_threads};
    self->training = training;
    mst_status st = make_buffers(self);
    if (st != MST_OK) {
        plain_close(&self->base);
        return st;
    }
    *out = &self->base;
    return MST_OK;
}

static void gradients_of(const mst_layer *layer, const mst_grad *grad, float **g)
{
    for (uint32_t i = 0; i < layer->n_params; i++)
        g[i] = grad->ranges[layer->first_range + i].g;
}

static mst_status backward(plain *self, uint32_t n, const mst_weights *w, const mst_pass *pass,
                           mst_grad *grad, mst_step *step, float *dy)
{
    const mst_chain *chain = self->base.chain;
    for (uint32_t i = chain->n_layers; i-- > 0;) {
        const mst_layer *layer = chain->layers[i];
        float *g[MST_LAYER_PARAMS], *dx = i > 0 ? self->turns[dy == self->turns[0]] : NULL;
        uint64_t start = mst_trace_now();
        gradients_of(layer, grad, g);
        layer->ops->backward(layer, self->states[i], pass, n, i > 0 ? self->outputs[i - 1] : self->input,
                             self->outputs[i], dy, w->ranges + layer->first_range, dx, g);
        mst_trace_layer(layer->name, "backward", start, mst_dims_output(&layer->in, n));
        for (uint32_t j = layer->n_params; j-- > 0;)
            TRY(mst_step_ready(step, layer->first_range + j));
        dy = dx;
    }
    return MST_OK;
}

static mst_status plain_train(mst_replica *base, const mst_batch *batch, const mst_weights *w,
                              const mst_pass *pass, float scale, mst_grad *grad, mst_step *step,
                              mst_loss_sum *sum)
{
    plain *self = (plain *)base;
    const mst_chain *chain = base->chain;
    const float *x = self->input;
    mst_replica_load(base, batch->rows, batch->n_rows, self->input);
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        const mst_layer *layer = chain->layers[i];
        for (uint32_t j = 0; j < layer->n_params; j++)
            TRY(mst_step_need(step, layer->first_range + j));
        uint64_t start = mst_trace_now();
        layer->ops->forward(layer, self->states[i], pass, batch->n_rows, x, w->ranges + layer->first_range,
                            self->outputs[i]);
        mst_trace_layer(layer->name, "forward", start, mst_dims_output(&layer->out, batch->n_rows));
        x = self->outputs[i];
    }
    mst_replica_loss(base, batch, x, scale, self->turns[0], sum);
    return backward(self, batch->n_rows, w, pass, grad, step, self->turns[0]);
}

static mst_status plain_forward(mst_replica *base, const mst_batch *batch, const mst_weights *w,
                                float *scores)
{
    plain *self = (plain *)base;
    const mst_chain *chain = base->chain;
    const mst_pass pass = {0};
    const float *x = self->input;
    mst_replica_load(base, batch->rows, batch->n_rows, self->input);
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        const mst_layer *layer = chain->layers[i];
        float *y = i + 1 == chain->n_layers ? scores : self->turns[i % 2];
        layer->ops->forward(layer, NULL, &pass, batch->n_rows, x, w->ranges + layer->first_range, y);
        x = y;
    }
    return MST_OK;
}

const mst_executor mst_executor_plain = {
    .name = "plain",
    .help = "the layers' plain functions: slow, for comparison",
    .can = plain_can,
    .open = plain_open,
    .close = plain_close,
    .train = plain_train,
    .forward = plain_forward,
};
