/* Shared by the files of LeNet (net_lenet.cu, net_lenet_convs.cu). */
#ifndef MST_CUDA_NET_LENET_IMPL_CUH
#define MST_CUDA_NET_LENET_IMPL_CUH

#include "cuda/net_lenet.cuh"

#define FILTERS1  6
#define FILTERS2  16
#define POOLED1   1176
#define POOLED2   400
#define UNITS1    120
#define UNITS2    84
#define CLASSES   32 /* at most */
#define PARTIAL   2576 /* gradients of the convolutions: w1 150, b1 6, w2 2400, b2 16, and 4 unused */
#define BACK_MOST 264  /* blocks of the backward kernel */

struct net_lenet {
    float *pool1, *pool2, *h1, *h2, *d1, *d2, *d3, *dpool2, *partial;
    uint8_t *bits1, *bits2;
    uint32_t classes;
};

/* The parameters, or their gradients. */
typedef struct lenet_params {
    float *cw1, *cb1, *cw2, *cb2, *w1, *b1, *w2, *b2, *w3, *b3;
} lenet_params;

/* The convolutions of n images, forward and backward; the latter writes the gradients of `blocks` blocks to
 * self->partial. make: once, before. */
mst_status lenet_convs_make(void);
void lenet_convs_forward(mst_cuda_net *net, net_lenet *self, const lenet_params &w, uint32_t n, bool floats,
                         const void *rows);
void lenet_convs_backward(mst_cuda_net *net, net_lenet *self, const lenet_params &w, uint32_t n, bool floats,
                          const void *rows, uint32_t blocks);

#endif
