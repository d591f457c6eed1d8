/* Inside the executor dnnl: a plan is a chain of layers as stages for a fixed number of images, with all
 * their memory. exec_dnnl_plan.c makes plans, exec_dnnl.c runs them. */
#ifndef MST_MODEL_EXEC_DNNL_IMPL_H
#define MST_MODEL_EXEC_DNNL_IMPL_H

#include "model/executor.h"
#include "tensor/dnnl_ops.h"

/* Between two stages. */
typedef struct mst_dnnl_tensor {
    const mst_dnnl_layout *layout;
    size_t size; /* bytes */
    float *data, *diff;
    /* Whether backward passes still need it, for stages that compute in place. */
    enum { MST_DNNL_FREE, MST_DNNL_SIGN, MST_DNNL_EXACT } guard;
} mst_dnnl_tensor;

typedef enum mst_dnnl_stage_kind {
    MST_DNNL_STAGE_CONV,
    MST_DNNL_STAGE_LINEAR,
    MST_DNNL_STAGE_NORM,
    MST_DNNL_STAGE_SIMPLE, /* one operation each way, without parameters: pooling, relu, lrn, reorder */
    MST_DNNL_STAGE_PLAIN,  /* the layer's own functions */
} mst_dnnl_stage_kind;

typedef struct mst_dnnl_stage {
    mst_dnnl_stage_kind kind;
    const mst_layer *layer; /* NULL: a reorder */
    uint32_t x, y;          /* tensors; the same one: in place */
    mst_dnnl_op *forward;   /* NULL: fused into the stage before */
    mst_dnnl_op *infer;     /* norm in inference; NULL: forward does */
    mst_dnnl_op *dx, *dw;   /* NULL: not wanted */
    /* Convolution: the plain weights into the layouts of forward and dx, the gradient into plain. NULL: it is
     * plain already. */
    mst_dnnl_op *weight_forward, *weight_dx, *gradient_out;
    size_t kept_size; /* bytes from forward to backward: an operation's, a layer's state, mean and variance */
    void *kept;
} mst_dnnl_stage;

#define MST_DNNL_STAGES (3 * MST_NET_LAYERS + 1)

typedef struct mst_dnnl_plan {
    const mst_chain *chain;
    uint32_t n; /* images */
    bool training;
    bool wants_dx; /* while stages are added: some layer so far has parameters to train */
    mst_dnnl *dnnl;
    uint32_t n_tensors, n_stages;
    mst_dnnl_tensor tensors[MST_DNNL_STAGES + 1];
    mst_dnnl_stage stages[MST_DNNL_STAGES];
    uint32_t first_back; /* the backward pass ends with this stage: nothing before has parameters */
    /* Rooms that stages use one after the other. */
    size_t weight_size, gradient_size, plain_size;
    float *weight_room;   /* a convolution's weights in the layout of an operation */
    float *gradient_room; /* their gradient in the layout that dw writes */
    float
        *plain_room; /* the same as plain numbers where it is to be added, the gradient of a bias behind it */
    char *memory;
    size_t memory_size;
} mst_dnnl_plan;

/* Called between mst_dnnl_enter and leave. *out is the caller's to destroy. */
mst_status mst_dnnl_plan_new(const mst_chain *chain, uint32_t n, bool training, mst_dnnl_plan **out);
void mst_dnnl_plan_destroy(mst_dnnl_plan *plan); /* NULL-safe */

#endif
