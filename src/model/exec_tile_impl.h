/* Shared by the two files of the tile executor: the plan (exec_tile_plan.c) and its execution (exec_tile.c).
 */
#ifndef MST_MODEL_EXEC_TILE_IMPL_H
#define MST_MODEL_EXEC_TILE_IMPL_H

#include "model/executor.h"
#include "model/layer_impl.h"
#include "model/tile_kernels.h"

typedef enum tile_kind {
    TILE_CONV,
    TILE_LINEAR,
    TILE_MAXPOOL,
    TILE_AVGPOOL,
    TILE_DROPOUT,
    TILE_SAME,  /* a copy: an activation that follows no other layer */
    TILE_PLAIN, /* a kind with its own plain functions only */
} tile_kind;

/* A layer, together with the activation that follows it. x is the y of the operation before. Arrays are
 * (numbers, lanes) unless called rows. */
typedef struct tile_op {
    tile_kind kind;
    const mst_layer *layer;
    mst_tile_window window; /* convolutions and pooling */
    size_t in_size, out_size;
    mst_tile_act act_in, act; /* that x and y came out of */
    bool back;                /* whether the gradient must go on to x */
    float *x, *y;             /* the backward pass replaces y by its gradient */
    float *packed, *packed_back;
    float *gw, *gb;         /* sums of a convolution's gradients, by lane */
    float *factors;         /* of dropout */
    float *x_rows, *y_rows; /* of TILE_PLAIN */
    void *state;            /* of TILE_PLAIN */
} tile_op;

#define TILE_BLOCKS (MST_NET_LAYERS * 5 + 8)

typedef struct tile_replica {
    mst_replica base;
    const mst_tile_kernels *tile;
    bool training;
    uint32_t n_ops;
    tile_op ops[MST_NET_LAYERS + 1];
    float *input;              /* of the first operation */
    float *scratch;            /* as large as the largest array */
    float *rows, *more_rows;   /* the same, for rows */
    void *blocks[TILE_BLOCKS]; /* all memory */
    uint32_t n_blocks;
} tile_replica;

/* Fills in ops and allocates; blocks are the caller's to free even after a failure. */
mst_status mst_tile_plan(tile_replica *self);

#endif
