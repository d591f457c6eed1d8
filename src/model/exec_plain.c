/* Executor plain: the layers' own functions, one after the other, on plain rows. Other executors are compared
 * with it, and it computes kinds of layers that no other executor supports.
 *
 * Every layer has its output, and in training the gradient of it, to which the layers that read it add in
 * turn. Several inputs of a layer are copied into one row before, and their gradients out of it after. */
#include <string.h>

#include "base/alloc.h"
#include "model/executor.h"

extern const mst_executor mst_executor_plain;

typedef struct plain {
    mst_replica base;
    bool training;
    float *input;
    float *outputs[MST_NET_LAYERS];
    float *diffs[MST_NET_LAYERS]; /* training */
    void *states[MST_NET_LAYERS];
    float *x, *dx; /* the inputs of a layer as one row, and their gradients */
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
        mst_free(self->diffs[i]);
        mst_free(self->states[i]);
    }
    mst_free(self->input);
    mst_free(self->x);
    mst_free(self->dx);
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
    uint64_t most = 1;
    bool rows = false;
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        const mst_layer *layer = chain->layers[i];
        uint64_t size = mst_dims_size(&layer->out), in = mst_dims_size(&layer->in);
        most = in > most ? in : most;
        for (uint32_t j = 0; j < layer->n_inputs; j++)
            rows |= layer->inputs[j] == MST_INPUT_ROWS;
        TRY(plain_make_room(self, size, &self->outputs[i]));
        if (!self->training)
            continue;
        TRY(plain_make_room(self, size, &self->diffs[i]));
        size_t state =
            layer->ops->state_size != NULL ? layer->ops->state_size(layer, self->base.max_rows) : 0;
        if (state > 0 && (self->states[i] = mst_alloc_lines(state)) == NULL)
            return mst_fail_memory();
    }
    if (rows)
        TRY(plain_make_room(self, mst_dims_size(&chain->in), &self->input));
    TRY(plain_make_room(self, most, &self->x));
    return self->training ? plain_make_room(self, most, &self->dx) : MST_OK;
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

/* ---- inputs ---- */

static const float *input_of(const plain *self, const mst_layer *layer, uint32_t i)
{
    return layer->inputs[i] == MST_INPUT_ROWS ? self->input : self->outputs[layer->inputs[i]];
}

/* The inputs of a layer as rows. */
static const float *gather_inputs(const plain *self, const mst_layer *layer, uint32_t n)
{
    size_t row = mst_dims_size(&layer->in), at = 0;
    if (layer->n_inputs == 1)
        return input_of(self, layer, 0);
    for (uint32_t i = 0; i < layer->n_inputs; i++) {
        size_t size = mst_dims_size(&layer->parts[i]);
        const float *from = input_of(self, layer, i);
        for (uint32_t r = 0; r < n; r++)
            memcpy(self->x + r * row + at, from + r * size, size * sizeof *from);
        at += size;
    }
    return self->x;
}

/* Adds the gradients of a layer's inputs to those of the layers that they come from. */
static void spread_gradients(const plain *self, const mst_layer *layer, uint32_t n)
{
    size_t row = mst_dims_size(&layer->in), at = 0;
    for (uint32_t i = 0; i < layer->n_inputs; i++) {
        size_t size = mst_dims_size(&layer->parts[i]);
        float *to = layer->inputs[i] != MST_INPUT_ROWS ? self->diffs[layer->inputs[i]] : NULL;
        for (uint32_t r = 0; to != NULL && r < n; r++)
            for (size_t j = 0; j < size; j++)
                to[r * size + j] += self->dx[r * row + at + j];
        at += size;
    }
}

/* A layer that computes: not an input of the net, and not without numbers. */
static bool computes(const mst_layer *layer)
{
    return layer->n_inputs > 0 && mst_dims_size(&layer->out) > 0;
}

static mst_net_inputs table_arrays(const plain *self, float *const *arrays)
{
    const mst_net_table *table = &self->base.chain->table;
    return (mst_net_inputs){
        .embedding = table->embedding != MST_INPUT_ROWS ? arrays[table->embedding] : NULL,
        .numbers = table->numbers != MST_INPUT_ROWS ? arrays[table->numbers] : NULL,
        .wide = table->wide != MST_INPUT_ROWS ? arrays[table->wide] : NULL,
    };
}

static void load_inputs(const plain *self, const mst_batch *batch, const mst_weights *w)
{
    const mst_chain *chain = self->base.chain;
    if (self->input != NULL)
        mst_replica_load(&self->base, batch->rows, batch->n_rows, self->input);
    mst_net_inputs inputs = table_arrays(self, self->outputs);
    if (chain->table.n_keys != 0)
        mst_net_table_load(&chain->table, batch, w->sparse, w->stride, &inputs);
}

/* ---- passes ---- */

static mst_status plain_pass(plain *self, const mst_batch *batch, const mst_weights *w, const mst_pass *pass,
                             mst_step *step)
{
    const mst_chain *chain = self->base.chain;
    if (chain->table.width != 0)
        TRY(mst_step_need(step, 0));
    load_inputs(self, batch, w);
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        const mst_layer *layer = chain->layers[i];
        if (!computes(layer))
            continue;
        for (uint32_t j = 0; j < layer->n_params; j++)
            TRY(mst_step_need(step, layer->first_range + j));
        uint64_t start = mst_trace_now();
        layer->ops->forward(layer, self->states[i], pass, batch->n_rows,
                            gather_inputs(self, layer, batch->n_rows), w->ranges + layer->first_range,
                            self->outputs[i]);
        mst_trace_layer(layer->name, "forward", start, mst_dims_output(&layer->out, batch->n_rows));
    }
    return MST_OK;
}

static mst_status backward(plain *self, const mst_batch *batch, const mst_weights *w, const mst_pass *pass,
                           mst_grad *grad, mst_step *step)
{
    const mst_chain *chain = self->base.chain;
    uint32_t n = batch->n_rows;
    for (uint32_t i = chain->n_layers; i-- > 0;) {
        const mst_layer *layer = chain->layers[i];
        float *g[MST_LAYER_PARAMS];
        bool rows_only = layer->n_inputs == 1 && layer->inputs[0] == MST_INPUT_ROWS;
        if (!computes(layer))
            continue;
        uint64_t start = mst_trace_now();
        gradients_of(layer, grad, g);
        layer->ops->backward(layer, self->states[i], pass, n, gather_inputs(self, layer, n), self->outputs[i],
                             self->diffs[i], w->ranges + layer->first_range, rows_only ? NULL : self->dx, g);
        if (!rows_only)
            spread_gradients(self, layer, n);
        mst_trace_layer(layer->name, "backward", start, mst_dims_output(&layer->in, n));
        for (uint32_t j = layer->n_params; j-- > 0;)
            TRY(mst_step_ready(step, layer->first_range + j));
    }
    if (chain->table.width == 0)
        return MST_OK;
    mst_net_inputs d = table_arrays(self, self->diffs);
    TRY(mst_net_table_scatter(&chain->table, batch, &d, grad));
    return mst_step_ready(step, 0);
}

static mst_status plain_train(mst_replica *base, const mst_batch *batch, const mst_weights *w,
                              const mst_pass *pass, float scale, mst_grad *grad, mst_step *step,
                              mst_loss_sum *sum)
{
    plain *self = (plain *)base;
    uint32_t last = base->chain->n_layers - 1;
    TRY(plain_pass(self, batch, w, pass, step));
    for (uint32_t i = 0; i < last; i++)
        memset(self->diffs[i], 0,
               batch->n_rows * mst_dims_size(&base->chain->layers[i]->out) * sizeof(float));
    mst_replica_loss(base, batch, self->outputs[last], scale, self->diffs[last], sum);
    return backward(self, batch, w, pass, grad, step);
}

static mst_status plain_forward(mst_replica *base, const mst_batch *batch, const mst_weights *w,
                                float *scores)
{
    plain *self = (plain *)base;
    const mst_pass pass = {0};
    uint32_t last = base->chain->n_layers - 1;
    TRY(plain_pass(self, batch, w, &pass, NULL));
    memcpy(scores, self->outputs[last],
           batch->n_rows * mst_dims_size(&base->chain->layers[last]->out) * sizeof *scores);
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
