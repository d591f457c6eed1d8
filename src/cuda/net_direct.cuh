/* Convolutions by own kernels, one thread per output: for hosts without cuDNN and shapes that it does not
 * take. */
#ifndef MST_CUDA_NET_DIRECT_CUH
#define MST_CUDA_NET_DIRECT_CUH

#include "cuda/net.cuh"

/* As net_conv_run. */
mst_status net_direct_run(mst_cuda_net *net, const mst_cuda_layer &layer, net_way way, uint32_t n, const void *a,
                          const void *b, void *out);

/* bf16 to float. */
mst_status net_widen(mst_cuda_net *net, uint64_t n, const bf16 *from, float *to);

#endif
