/* Executors: how a chain of layers is computed, forward and backward. One const table each, in mst_executors;
 * all give the same numbers to rounding (tests/contract/test_executors.c).
 *
 *   plain   the layers' own plain functions; slow, for tests
 *   tile    small nets: some images at a time, side by side in vector lanes
 *   gemm    nets over embeddings and other graphs: some rows at a time, matrix products of oneDNN
 *   dnnl    oneDNN: large nets, threads inside the primitives
 *
 * A replica is one thread's: everything is made at open, and a pass allocates nothing. */
#ifndef MST_MODEL_EXECUTOR_H
#define MST_MODEL_EXECUTOR_H

#include "model/layer.h"
#include "model/model.h"
#include "model/net_table.h"
#include "observe/trace_file.h"

typedef struct mst_replica {
    const struct mst_executor *executor;
    const mst_chain *chain;
    const mst_kernels *kernels;
    uint32_t max_rows;
    unsigned n_threads;
    float pos_weight; /* of the logistic loss of one score; 0: 1 */
} mst_replica;

typedef struct mst_executor {
    const char *name, *help;
    bool threads;      /* n_threads of open is used */
    bool norm_threads; /* it is used for nets with batch norm, which need the whole batch at once */
    unsigned crew;     /* threads that have work in a call of train, with assist; 0: one */
    bool overwrites;   /* train takes gradients that are `fresh` */
    /* Rows that it computes at a time, side by side; NULL: a whole batch. */
    uint32_t (*part_rows)(const mst_kernels *kernels);
    /* Whether it can compute the chain; a message otherwise. */
    mst_status (*can)(const mst_chain *chain);
    /* Whether "auto" may take it for a chain that it can compute; NULL: always. */
    bool (*suits)(const mst_chain *chain);
    /* max_rows: of one call. training false: forward only. */
    mst_status (*open)(const mst_chain *chain, const mst_kernels *kernels, uint32_t max_rows,
                       unsigned n_threads, bool training, mst_replica **out);
    void (*close)(mst_replica *self);
    /* Runs fn(arg, 0..n-1) on the replica's threads; NULL: it has none. */
    void (*each)(mst_replica *self, unsigned n, void (*fn)(void *arg, unsigned i), void *arg);
    /* Forward and backward: adds scale * gradient, summed over rows, to grad's ranges (overwrites those of a
     * fresh one, which is not fresh any more then), and the loss to sum.
     * Calls mst_step_need(step, r) before the weights of range r are read, and mst_step_ready(step, r) as
     * soon as its gradient is final: ranges of the last layers first. sum gets loss, weight and rows
     * (mst_replica_loss does that). There is at least one row, and at most max_rows. */
    mst_status (*train)(mst_replica *self, const mst_batch *batch, const mst_weights *w, const mst_pass *pass,
                        float scale, mst_grad *grad, mst_step *step, mst_loss_sum *sum);
    /* Another thread than that of the replica computes a part of the call of train that is under way, to the
     * same bits; false: there is none that has no thread. Needs n_threads > 1 at open. NULL: never. */
    bool (*assist)(mst_replica *self);
    /* Inference: scores (n_rows x classes). */
    mst_status (*forward)(mst_replica *self, const mst_batch *batch, const mst_weights *w, float *scores);
} mst_executor;

/* Rows as plain numbers, (n, c, h, w): bytes as byte/255, keys at their index, absent features as zero. */
void mst_replica_load(const mst_replica *self, const mst_row *rows, uint32_t n, float *x);

/* A layer has state (batch norm): it must see the whole batch at once. */
bool mst_chain_has_state(const mst_chain *chain);

/* For `can` of executors that compute plain chains: MST_EUNSUPPORTED for other nets. */
mst_status mst_executor_chain_only(const mst_executor *self, const mst_chain *chain);

/* Softmax cross-entropy of the scores (n_rows x classes), or the logistic loss of one score: adds to sum, and
 * sets d to scale * d(loss)/d(score), which may be the scores' place. */
void mst_replica_loss(const mst_replica *self, const mst_batch *batch, const float *scores, float scale,
                      float *d, mst_loss_sum *sum);

/* The size of n rows of these dimensions, for a trace. */
mst_trace_output mst_dims_output(const mst_dims *dims, uint32_t n);

extern const mst_executor *const mst_executors[]; /* NULL-terminated */

/* The executor for a chain: by name, or the one that should be fastest ("auto"). */
mst_status mst_executor_choose(const mst_chain *chain, const char *name, const mst_executor **out);

#endif
