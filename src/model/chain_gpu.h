/* Chains of layers on a GPU: what the executor cuda (exec_cuda.c) and the local strategy on a GPU share. */
#ifndef MST_MODEL_CHAIN_GPU_H
#define MST_MODEL_CHAIN_GPU_H

#include "cuda/cuda_net.h"
#include "model/layer.h"
#include "model/model.h"

/* MST_EUNSUPPORTED, naming the layer, for chains that no GPU computes: those with kinds of layers that are
 * not built in. */
mst_status mst_chain_gpu_can(const mst_chain *chain);

typedef struct mst_chain_gpu_options {
    uint32_t max_rows;
    float pos_weight;
    bool training;
    bool updates; /* the GPU applies `rule` */
    mst_rule_kind rule, rule_keys;
    uint32_t head; /* of the view of a table, and whether keys have one float of state: tensor/params.h */
    bool state_per_key;
} mst_chain_gpu_options;

/* *out is the caller's to close with gpu->ops->net->close. */
mst_status mst_chain_gpu_open(const mst_cuda *gpu, const mst_chain *chain,
                              const mst_chain_gpu_options *options, mst_cuda_net **out);

/* The seeds of the dropout layers in this pass; out has room for MST_NET_LAYERS. */
void mst_chain_gpu_dropout(const mst_chain *chain, const mst_pass *pass, uint64_t *out);

/* Keys of rows [from, to). */
uint64_t mst_rows_count_keys(const mst_batch *batch, uint32_t from, uint32_t to);
/* Copies rows [from, to) of a net over embeddings: its numbers, and its keys from entry `first` on. Disjoint
 * ranges may be copied at the same time. */
void mst_rows_stage_keys(const mst_net_table *table, const mst_batch *batch, uint32_t from, uint32_t to,
                         uint64_t first, const mst_cuda_rows *places, const mst_cuda_entries *entries);

/* Whether rows go to the GPU as numbers: some are not whole images of bytes. */
bool mst_rows_need_floats(const mst_batch *batch, uint64_t size);
/* Copies rows [from, to) of the batch to their places; size: of a row. Disjoint ranges may be copied at the
 * same time. */
void mst_rows_stage(const mst_kernels *kernels, const mst_batch *batch, uint32_t from, uint32_t to,
                    uint64_t size, bool floats, const mst_cuda_rows *places);

#endif
