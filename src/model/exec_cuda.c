/* Executor cuda: forward and backward on a GPU (--device cuda), with weights and gradients in host memory.
 * Ranks, workers, evaluations, eval and predict use it; a local training keeps its weights on the GPU instead
 * (strategy/gpu_net.c).
 *
 * Weights are copied to the GPU range by range, as the step has them, unless their version is there.
 * Gradients are copied back range by range, the last layers first, so that a strategy sends one while the
 * next is copied. */
#include "model/exec_cuda.h"
#include "base/alloc.h"
#include "model/chain_gpu.h"
#include "model/executor.h"

typedef struct exec_cuda {
    mst_replica base;
    const mst_cuda_net_ops *ops;
    mst_cuda_net *net;
    float *grad;      /* training: of one range, to be added */
    uint64_t version; /* of the weights on the GPU; 0: unknown */
    uint64_t dropout[MST_NET_LAYERS];
} exec_cuda;

static mst_status exec_cuda_can(const mst_chain *chain)
{
    return mst_chain_gpu_can(chain);
}

static void exec_cuda_close(mst_replica *base)
{
    exec_cuda *self = (exec_cuda *)base;
    self->ops->close(self->net);
    mst_free(self->grad);
    mst_free(self);
}

static uint64_t largest_range(const mst_chain *chain)
{
    uint64_t most = 1;
    for (uint32_t i = 0; i < chain->n_layers; i++)
        for (uint32_t j = 0; j < chain->layers[i]->n_params; j++) {
            uint64_t size = mst_layer_param_size(&chain->layers[i]->params[j]);
            most = size > most ? size : most;
        }
    return most;
}

mst_status mst_exec_cuda_open(const mst_cuda *gpu, const mst_chain *chain, const mst_kernels *kernels,
                              uint32_t max_rows, float pos_weight, bool training, mst_replica **out)
{
    mst_status st;
    mst_chain_gpu_options options = {.max_rows = max_rows, .pos_weight = pos_weight, .training = training};
    exec_cuda *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->base = (mst_replica){.executor = &mst_executor_cuda,
                               .chain = chain,
                               .kernels = kernels,
                               .max_rows = max_rows,
                               .n_threads = 1};
    self->ops = gpu->ops->net;
    if (training && (self->grad = mst_alloc_lines(largest_range(chain) * sizeof *self->grad)) == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    TRY_OUT(st, mst_chain_gpu_open(gpu, chain, &options, &self->net));
    *out = &self->base;
    self = NULL;
out:
    if (self != NULL)
        exec_cuda_close(&self->base);
    return st;
}

static mst_status exec_cuda_send_weights(exec_cuda *self, const mst_weights *w, mst_step *step)
{
    bool there = w->version != 0 && w->version == self->version;
    self->version = 0;
    for (uint32_t r = 0; r < self->base.chain->n_ranges; r++) {
        TRY(mst_step_need(step, r));
        if (!there)
            TRY(self->ops->write(self->net, 0, r, w->ranges[r]));
    }
    self->version = w->version;
    return MST_OK;
}

static mst_status exec_cuda_stage(exec_cuda *self, const mst_batch *batch, bool *floats)
{
    uint64_t size = mst_dims_size(&self->base.chain->in);
    mst_cuda_rows places;
    TRY(self->ops->stage(self->net, &places));
    *floats = mst_rows_need_floats(batch, size);
    mst_rows_stage(self->base.kernels, batch, 0, batch->n_rows, size, *floats, &places);
    return MST_OK;
}

static bool exec_cuda_is_state(const mst_chain *chain, uint32_t range)
{
    for (uint32_t i = 0; i < chain->n_layers; i++) {
        const mst_layer *layer = chain->layers[i];
        if (range >= layer->first_range && range - layer->first_range < layer->n_params)
            return layer->params[range - layer->first_range].kind == MST_VIEW_STATE;
    }
    return false;
}

static mst_status exec_cuda_train(mst_replica *base, const mst_batch *batch, const mst_weights *w,
                                  const mst_pass *pass, float scale, mst_grad *grad, mst_step *step,
                                  mst_loss_sum *sum)
{
    exec_cuda *self = (exec_cuda *)base;
    const mst_chain *chain = base->chain;
    mst_cuda_step numbers = {
        .n_rows = batch->n_rows, .scale = scale, .dropout = self->dropout, .first_row = pass->first_row};
    mst_cuda_loss loss;
    TRY(exec_cuda_stage(self, batch, &numbers.floats));
    TRY(exec_cuda_send_weights(self, w, step));
    mst_chain_gpu_dropout(chain, pass, self->dropout);
    TRY(self->ops->gradient(self->net, &numbers));
    for (uint32_t r = chain->n_ranges; r-- > 0;) {
        const mst_range *to = &grad->ranges[r];
        bool set = grad->fresh || exec_cuda_is_state(chain, r);
        TRY(self->ops->read(self->net, MST_CUDA_GRADIENT, r, set ? to->g : self->grad));
        for (uint64_t i = 0; !set && i < to->size; i++)
            to->g[i] += self->grad[i];
        TRY(mst_step_ready(step, r));
    }
    grad->fresh = false;
    TRY(self->ops->losses(self->net, &loss));
    mst_add_loss(
        sum, &(mst_loss_sum){
                 .loss = loss.loss, .weight = loss.weight, .rows = batch->n_rows, .correct = loss.correct});
    return MST_OK;
}

static mst_status exec_cuda_forward(mst_replica *base, const mst_batch *batch, const mst_weights *w,
                                    float *scores)
{
    exec_cuda *self = (exec_cuda *)base;
    bool floats;
    TRY(exec_cuda_stage(self, batch, &floats));
    TRY(exec_cuda_send_weights(self, w, NULL));
    return self->ops->forward(self->net, batch->n_rows, floats, scores);
}

const mst_executor mst_executor_cuda = {
    .name = "cuda",
    .help = "a GPU: --device cuda selects it",
    .threads = true,
    .overwrites = true,
    .can = exec_cuda_can,
    .close = exec_cuda_close,
    .train = exec_cuda_train,
    .forward = exec_cuda_forward,
};
