/* Inside the executor gemm: a replica is a net with all its memory. exec_gemm_plan.c makes the arrays,
 * exec_gemm.c computes. */
#ifndef MST_MODEL_EXEC_GEMM_IMPL_H
#define MST_MODEL_EXEC_GEMM_IMPL_H

#include "model/executor.h"
#include "model/layer_impl.h"

typedef struct mst_gemm_layer {
    float *y, *d;                /* output and its gradient */
    bool shares;                 /* they belong to the layer that it reads */
    uint32_t owner;              /* the layer that they belong to */
    bool adds[MST_LAYER_INPUTS]; /* the gradient of that input has been set */
    void *state;
    float *rows, *d_rows; /* several inputs as one row, of layers that are computed by their own functions */
} mst_gemm_layer;

typedef struct mst_gemm_replica {
    mst_replica base;
    bool training;
    uint32_t tile; /* rows */
    float *input, *room;
    mst_gemm_layer layers[MST_NET_LAYERS];
} mst_gemm_replica;

/* Makes the arrays of a replica whose base, training and tile are set. */
mst_status mst_gemm_plan(mst_gemm_replica *self);

bool mst_gemm_is_activation(const mst_layer *layer);
/* Kinds that the executor computes itself; others have their own functions. */
bool mst_gemm_is_own(const mst_layer *layer);
/* Neither an input of the net nor without numbers. */
bool mst_gemm_computes(const mst_layer *layer);

#endif
