/* The part of oneDNN that the executor dnnl needs. Only files that include dnnl_ops_impl.h call oneDNN.
 *
 * An mst_dnnl makes layouts (how a tensor lies in memory) and operations (a primitive with its arguments) at
 * set-up and owns them. An operation reports the layout it needs for each argument; the caller binds buffers
 * in those layouts and runs it. Running an operation allocates nothing here; its scratch memory is one block
 * for all of them, because they run one after the other.
 *
 * Thread: one thread at a time. Primitives are made for the number of OpenMP threads of the calling thread
 * and must run with the same number: mst_dnnl_enter before anything else here, mst_dnnl_leave after.
 * Errors: MST_ENOMEM, or MST_EUNSUPPORTED with oneDNN's name of the unsupported operation. */
#ifndef MST_TENSOR_DNNL_OPS_H
#define MST_TENSOR_DNNL_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mst_dnnl mst_dnnl;
typedef struct mst_dnnl_layout mst_dnnl_layout;
typedef struct mst_dnnl_op mst_dnnl_op;

/* Arguments of an operation; d: the gradient with respect to it. */
typedef enum mst_dnnl_arg {
    MST_DNNL_X,
    MST_DNNL_W,
    MST_DNNL_B,
    MST_DNNL_Y,
    MST_DNNL_DX,
    MST_DNNL_DW,
    MST_DNNL_DB,
    MST_DNNL_DY,
    MST_DNNL_KEPT, /* data that forward keeps for backward */
    MST_DNNL_MEAN,
    MST_DNNL_VARIANCE,
    MST_DNNL_SCALE,
    MST_DNNL_SHIFT,
    MST_DNNL_DSCALE,
    MST_DNNL_DSHIFT,
} mst_dnnl_arg;

/* *out is the caller's to close. Closing frees all layouts and operations. */
mst_status mst_dnnl_open(mst_dnnl **out);
void mst_dnnl_close(mst_dnnl *self); /* NULL-safe */

/* The calling thread's OpenMP threads from here on, which take over its floating-point mode if it flushes
 * subnormal numbers (base/float_mode.h); returns how many it had, for leave. */
int mst_dnnl_enter(unsigned n_threads);
void mst_dnnl_leave(int n_threads);

/* Gives the OpenMP threads that mst_dnnl_enter has made flush the present mode of the calling thread: the
 * program that calls the library may use the same threads. */
void mst_dnnl_restore_mode(void);

/* Runs fn(arg, 0..n-1), divided among the threads of enter. */
void mst_dnnl_each(unsigned n, void (*fn)(void *arg, unsigned i), void *arg);

/* ---- layouts ---- */

/* Row-major, dims in the order of the tensor. */
mst_status mst_dnnl_plain(mst_dnnl *self, int n_dims, const int64_t *dims, const mst_dnnl_layout **out);
size_t mst_dnnl_layout_size(const mst_dnnl_layout *layout); /* bytes, padding included */
bool mst_dnnl_layout_same(const mst_dnnl_layout *a, const mst_dnnl_layout *b);

/* ---- operations ---- */

/* A window that slides over images: convolution and pooling. pad_end may be less or more than pad. */
typedef struct mst_dnnl_window {
    int64_t n;         /* images */
    int64_t in[3];     /* c, h, w */
    int64_t out[3];    /* c, h, w */
    int64_t kernel[2]; /* h, w; likewise below */
    int64_t stride[2];
    int64_t pad[2], pad_end[2];
    int64_t groups;  /* convolution */
    bool bias, relu; /* convolution: with bias; followed by relu (forward only) */
} mst_dnnl_window;

/* The convolution: y; dx; dw and the bias's gradient. x and y have one layout in all three, which is the
 * library's choice as long as it computes none of the three in its slow reference way; those of W and DW are
 * each operation's own. W is (o, i, h, w), with groups (g, o/g, i/g, h, w). */
typedef struct mst_dnnl_conv_ops {
    mst_dnnl_op *forward, *dx, *dw; /* NULL: not wanted */
} mst_dnnl_conv_ops;
mst_status mst_dnnl_conv(mst_dnnl *self, const mst_dnnl_window *window, bool training, bool wants_dx,
                         mst_dnnl_conv_ops *out);

/* Pooling; averages count padding or not. */
typedef enum mst_dnnl_pooling { MST_DNNL_MAX, MST_DNNL_AVERAGE, MST_DNNL_AVERAGE_PADDED } mst_dnnl_pooling;
mst_status mst_dnnl_pool(mst_dnnl *self, const mst_dnnl_window *window, mst_dnnl_pooling how, bool training,
                         const mst_dnnl_layout *x, mst_dnnl_op **out);
mst_status mst_dnnl_pool_dx(mst_dnnl *self, const mst_dnnl_window *window, mst_dnnl_pooling how,
                            const mst_dnnl_op *forward, mst_dnnl_op **out);

/* Elementwise: y = f(x); dx from dy and y. X and Y may be one buffer, DX and DY too. */
typedef enum mst_dnnl_function { MST_DNNL_RELU, MST_DNNL_TANH, MST_DNNL_SIGMOID } mst_dnnl_function;
mst_status mst_dnnl_map(mst_dnnl *self, mst_dnnl_function function, bool training, const mst_dnnl_layout *x,
                        mst_dnnl_op **out);
mst_status mst_dnnl_map_dx(mst_dnnl *self, mst_dnnl_function function, const mst_dnnl_op *forward,
                           mst_dnnl_op **out);

/* Batch norm with SCALE and SHIFT. Training: MEAN and VARIANCE of the batch are written; otherwise read. */
mst_status mst_dnnl_norm(mst_dnnl *self, float epsilon, bool training, const mst_dnnl_layout *x,
                         mst_dnnl_op **out);
mst_status mst_dnnl_norm_dx(mst_dnnl *self, float epsilon, const mst_dnnl_op *forward, mst_dnnl_op **out);

/* Local response normalisation over channels; alpha is divided by size, which is odd. */
typedef struct mst_dnnl_lrn_options {
    int64_t size;
    float alpha, beta, k;
} mst_dnnl_lrn_options;
mst_status mst_dnnl_lrn(mst_dnnl *self, const mst_dnnl_lrn_options *options, bool training,
                        const mst_dnnl_layout *x, mst_dnnl_op **out);
mst_status mst_dnnl_lrn_dx(mst_dnnl *self, const mst_dnnl_lrn_options *options, const mst_dnnl_op *forward,
                           mst_dnnl_op **out);

/* Y (m x n) = X (m x k) * W^T (W is n x k), plain numbers; + B (n), then relu, where wanted. */
typedef struct mst_dnnl_product {
    int64_t m, n, k;
    bool bias, relu;
} mst_dnnl_product;
mst_status mst_dnnl_inner(mst_dnnl *self, const mst_dnnl_product *product, mst_dnnl_op **out);

/* X into Y, another layout of the same tensor. */
mst_status mst_dnnl_reorder(mst_dnnl *self, const mst_dnnl_layout *x, const mst_dnnl_layout *y,
                            mst_dnnl_op **out);

/* The layout of an argument; NULL when the operation has no such argument. */
const mst_dnnl_layout *mst_dnnl_op_layout(const mst_dnnl_op *op, mst_dnnl_arg arg);

/* Binds an argument to a buffer until it is bound again; ignored when the operation has no such argument. */
void mst_dnnl_bind(mst_dnnl_op *op, mst_dnnl_arg arg, const void *data);

/* Once, after all operations are made: the scratch memory they share. Returns its size through *size (may be
 * NULL). */
mst_status mst_dnnl_scratch(mst_dnnl *self, size_t *size);

mst_status mst_dnnl_run(mst_dnnl_op *op);

/* y (m x n) = x (m x k) * w (k x n) + beta * y, plain numbers; turned: x is stored k x m. Needs no operation;
 * faster than one where m or k is the number of images, but not with w turned. */
mst_status mst_dnnl_gemm(bool turned, int64_t m, int64_t n, int64_t k, const float *x, const float *w,
                         float beta, float *y);
/* y (m x n) = x (m x k) * w^T (w is n x k) + beta * y. */
mst_status mst_dnnl_gemm_turned(int64_t m, int64_t n, int64_t k, const float *x, const float *w, float beta,
                                float *y);

#endif
