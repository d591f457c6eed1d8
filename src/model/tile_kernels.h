/* Kernels of the tile executor: some images side by side in vector lanes, compiled once per instruction set
 * from tile_kernels_impl.h and chosen at run time.
 *
 * A tile is `lanes` images; an activation of (c, h, w) numbers is an array (c, h, w, lanes), so that every
 * layer is arithmetic on whole vectors whatever its shape, and no sum ever crosses lanes before the end.
 * Lanes without an image hold zeros in the input and zero gradients at the end of the net.
 *
 * Backward passes replace activations by gradients in place: a kernel that passes a gradient back reads dy,
 * and writes over x, multiplied by the derivative of the activation that produced x (which is a function of x
 * alone). Arrays begin on 64-byte boundaries; weights may lie anywhere. Results differ between instruction
 * sets in the last bits only. Weights are read in functions that are racy (base/racy.h). */
#ifndef MST_MODEL_TILE_KERNELS_H
#define MST_MODEL_TILE_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/isa.h"

#define MST_TILE_LANES_MAX 16

typedef enum mst_tile_act {
    MST_TILE_SAME,
    MST_TILE_RELU,
    MST_TILE_TANH,
    MST_TILE_SIGMOID,
} mst_tile_act;

/* A window that slides over the planes of an image: convolutions and pooling. Taps outside of the input count
 * as zeros, and not at all for the maximum, where every window must have one inside. */
typedef struct mst_tile_window {
    uint32_t c_in, h_in, w_in, c_out, h_out, w_out;
    uint32_t kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w;
    uint32_t groups; /* of channels; 1 for pooling */
} mst_tile_window;

/* A part [from, to) of an operation, for one of several threads: each result is computed by one of them, and
 * the division changes no bit of it. */
typedef struct mst_tile_part {
    uint32_t from, to;
} mst_tile_part;

/* Whether every number of the input lies in exactly one window: pooling then needs no scratch in the backward
 * pass. */
static inline bool mst_tile_window_exact(const mst_tile_window *g)
{
    return g->pad_h == 0 && g->pad_w == 0 && g->stride_h == g->kernel_h && g->stride_w == g->kernel_w &&
           g->h_out * g->kernel_h == g->h_in && g->w_out * g->kernel_w == g->w_in;
}

typedef struct mst_tile_kernels {
    mst_isa isa;
    uint32_t lanes;

    /* x (size, lanes) = rows (n, size) transposed, rows ld floats apart; lanes from n on become zero. And
     * back: n rows. */
    void (*to_lanes)(const float *rows, size_t ld, uint32_t n, size_t size, float *x);
    void (*to_rows)(const float *x, size_t size, uint32_t n, float *rows, size_t ld);

    /* Weights (n_rows, n_cols) in the order in which forward reads them; as many floats. Those of
     * convolutions: n_rows filters of a group. */
    void (*pack)(const float *w, uint32_t n_rows, size_t n_cols, float *packed);
    void (*pack_filters)(const float *w, uint32_t n_rows, size_t n_cols, float *packed);
    /* Weights (n_out, n_in, taps) of a group in the order in which conv_backward reads them. */
    void (*pack_back)(const float *w, uint32_t n_out, uint32_t n_in, uint32_t taps, float *packed);

    /* Rows of y = conv(x) + bias (NULL: none), less than 0 replaced by 0 where relu. */
    void (*conv_forward)(const mst_tile_window *g, mst_tile_part rows, const float *x, const float *packed,
                         const float *bias, bool relu, float *y);
    /* Rows of x = d(loss)/d(x) * act'(x) */
    void (*conv_backward)(const mst_tile_window *g, mst_tile_part rows, const float *dy,
                          const float *packed_back, mst_tile_act act, float *x);
    /* gw (weights, lanes) += gradients of the weights, lane by lane; gb (c_out, lanes; NULL: none) likewise.
     * Those of some of the conv_weights_units, groups of filters; of some rows of y. */
    uint32_t (*conv_weights_units)(const mst_tile_window *g);
    void (*conv_weights)(const mst_tile_window *g, mst_tile_part units, mst_tile_part rows, const float *x,
                         const float *dy, float *gw, float *gb);
    /* g[i] += sum of the lanes of sums[i]; fresh: g[i] = that */
    void (*add_lanes)(const float *sums, size_t n, bool fresh, float *g);

    /* The same for y (n_out) = W x + b, W (n_out, n_in). weights takes x as rows (n, n_in), which are
     * ld floats apart and may be read up to a multiple of lanes; fresh: gw and gb are overwritten. backward
     * computes a part of x. The others take a part of W, b and y by their addresses, from a multiple of
     * 16 on. */
    void (*linear_forward)(uint32_t n_in, uint32_t n_out, const float *x, const float *packed,
                           const float *bias, bool relu, float *y);
    void (*linear_backward)(uint32_t n_in, uint32_t n_out, mst_tile_part part, const float *dy,
                            const float *w, mst_tile_act act, float *x);
    void (*linear_weights)(uint32_t n_in, uint32_t n_out, uint32_t n, const float *x_rows, size_t ld,
                           const float *dy, bool fresh, float *gw, float *gb);

    /* Rows of y. */
    void (*max_forward)(const mst_tile_window *g, mst_tile_part rows, const float *x, float *y);
    void (*average_forward)(const mst_tile_window *g, mst_tile_part rows, const float *x, float *y);
    /* x by rows of dy: all of them, unless the windows are exact. Of equal numbers in a window, the first
     * gets the gradient. scratch: as large as x, unless the windows are exact. */
    void (*max_backward)(const mst_tile_window *g, mst_tile_part rows, const float *dy, mst_tile_act act,
                         float *x, float *scratch);
    void (*average_backward)(const mst_tile_window *g, mst_tile_part rows, const float *dy, mst_tile_act act,
                             float *x, float *scratch);

    /* y = act(x); may be one. Relative errors of tanh and the sigmoid are below 1e-6. */
    void (*act_forward)(mst_tile_act act, size_t size, const float *x, float *y);
    /* x = dy * act'(x); with factors (as large as x; NULL: none), times those */
    void (*act_backward)(mst_tile_act act, size_t size, const float *dy, const float *factors, float *x);
} mst_tile_kernels;

/* For an instruction set that this machine supports. */
const mst_tile_kernels *mst_tile_kernels_get(mst_isa isa);

#endif
