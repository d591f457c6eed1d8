/* Registry of executors and shared functions; contract in executor.h. */
#include "model/executor.h"

#include <stdio.h>
#include <string.h>

extern const mst_executor mst_executor_tile, mst_executor_gemm, mst_executor_dnnl, mst_executor_plain;

/* In order of preference: "auto" takes the first executor that supports and suits the chain. */
const mst_executor *const mst_executors[] = {&mst_executor_tile, &mst_executor_gemm, &mst_executor_dnnl,
                                             &mst_executor_plain, NULL};

static mst_status executor_unknown(const char *name)
{
    char names[128] = "auto";
    for (size_t i = 0, used = 4; mst_executors[i] != NULL && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, ", %s", mst_executors[i]->name);
    return mst_fail(MST_EUSAGE, "--executor %s: not one of %s", name, names);
}

mst_status mst_executor_choose(const mst_chain *chain, const char *name, const mst_executor **out)
{
    bool any = name == NULL || strcmp(name, "auto") == 0;
    mst_status st = MST_OK;
    for (size_t i = 0; mst_executors[i] != NULL; i++) {
        if (any ? mst_executors[i]->suits != NULL && !mst_executors[i]->suits(chain)
                : strcmp(name, mst_executors[i]->name) != 0)
            continue;
        st = mst_executors[i]->can(chain);
        if (st == MST_OK) {
            *out = mst_executors[i];
            return MST_OK;
        }
        if (!any)
            return st;
    }
    return any ? st : executor_unknown(name);
}

bool mst_chain_has_state(const mst_chain *chain)
{
    for (uint32_t i = 0; i < chain->n_layers; i++)
        for (uint32_t j = 0; j < chain->layers[i]->n_params; j++)
            if (chain->layers[i]->params[j].kind == MST_VIEW_STATE)
                return true;
    return false;
}

mst_status mst_executor_chain_only(const mst_executor *self, const mst_chain *chain)
{
    if (!chain->graph)
        return MST_OK;
    return mst_fail(
        MST_EUNSUPPORTED,
        "--executor %s computes plain chains of layers, and this net has from= or an embedding: choose "
        "another",
        self->name);
}

mst_trace_output mst_dims_output(const mst_dims *dims, uint32_t n)
{
    bool image = dims->h * dims->w > 1;
    return (mst_trace_output){.bytes = mst_dims_size(dims) * n * sizeof(float),
                              .dims = {n, dims->c, image ? dims->h : 0, image ? dims->w : 0}};
}

void mst_replica_load(const mst_replica *self, const mst_row *rows, uint32_t n, float *x)
{
    uint64_t start = mst_trace_now();
    mst_rows_expand(self->kernels, rows, n, mst_dims_size(&self->chain->in), x);
    mst_trace_op("expand", start, mst_dims_output(&self->chain->in, n));
}

void mst_replica_loss(const mst_replica *self, const mst_batch *batch, const float *scores, float scale,
                      float *d, mst_loss_sum *sum)
{
    const mst_layer *last = self->chain->layers[self->chain->n_layers - 1];
    uint32_t classes = (uint32_t)mst_dims_size(&last->out);
    uint64_t start = mst_trace_now();
    if (classes == 1) {
        float pos_weight = self->pos_weight > 0.0f ? self->pos_weight : 1.0f;
        mst_count_binary(batch, scores, (double)pos_weight, sum);
        sum->loss += self->kernels->logistic(batch->rows, batch->n_rows, scores, pos_weight, d);
        for (uint32_t r = 0; r < batch->n_rows; r++)
            d[r] *= scale;
    } else {
        sum->correct += mst_count_correct(batch, scores, classes);
        sum->loss += self->kernels->softmax(batch->rows, batch->n_rows, classes, scores, scale, d);
        sum->rows += batch->n_rows;
        for (uint32_t r = 0; r < batch->n_rows; r++)
            sum->weight += (double)batch->rows[r].weight;
    }
    mst_trace_op("loss", start, mst_trace_floats(batch->n_rows, classes));
}
