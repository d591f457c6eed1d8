/* Shared by the two files of the tile executor: the plan (exec_tile_plan.c) and its execution (exec_tile.c).
 */
#ifndef MST_MODEL_EXEC_TILE_IMPL_H
#define MST_MODEL_EXEC_TILE_IMPL_H

#include <stdatomic.h>

#include "model/executor.h"
#include "model/layer_impl.h"
#include "model/tile_kernels.h"

#define TILE_CREW 4 /* threads that a tile has work for */

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
    float *gw, *gb;           /* sums of a convolution's gradients, by lane */
    float *gw_more, *gb_more; /* large planes: those of the rows from the middle on */
    float *factors;           /* of dropout */
    float *x_rows, *y_rows;   /* of TILE_PLAIN */
    void *state;              /* of TILE_PLAIN */
} tile_op;

/* The place of a tile in its batch. */
typedef struct tile_place {
    uint32_t n;       /* rows */
    bool first, last; /* of the batch */
    bool fresh;       /* the gradient of the batch is overwritten */
} tile_place;

struct tile_replica;

/* The arguments of an operation. */
typedef struct tile_task {
    const struct tile_replica *self;
    const tile_op *op;
    const mst_weights *w;
    const mst_batch *rows;
    tile_place place;
    float *g[MST_LAYER_PARAMS];
} tile_task;

/* Computes a part of the units of an operation. */
typedef void tile_fn(const tile_task *task, mst_tile_part part);

/* The operation under way, whose units any thread may take. */
typedef struct tile_work {
    _Alignas(64) atomic_uint_fast64_t
        units;   /* all, and those taken from the front and from the back (UNIT_BITS each) */
    tile_fn *fn; /* these two change only while no unit is left or under way */
    tile_task task;
    _Alignas(64) atomic_uint done; /* units that other threads have computed */
} tile_work;

typedef struct tile_replica {
    mst_replica base;
    tile_work *work; /* NULL: no other thread assists */
    const mst_tile_kernels *tile;
    bool training;
    uint32_t n_ops;
    tile_op ops[MST_NET_LAYERS + 1];
    float *input;            /* of the first operation */
    float *scratch;          /* as large as the largest array */
    float *rows, *more_rows; /* the same, for rows */
    void *pages;             /* size bytes, with the memory of all arrays */
    size_t size;
    char *memory; /* of the arrays; NULL while the plan adds up its size */
} tile_replica;

/* Fills in ops and allocates; memory is the caller's to release even after a failure. */
mst_status mst_tile_plan(tile_replica *self);

#endif
