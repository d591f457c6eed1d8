/* The life of a net on a GPU. */
#ifndef MST_CUDA_NET_OPEN_CUH
#define MST_CUDA_NET_OPEN_CUH

#include "cuda/net.cuh"

/* As in the table of cuda_net.h. */
mst_status net_open(const mst_cuda_net_spec *spec, mst_cuda_net **out);
void net_close(mst_cuda_net *net);

/* Finds algorithms for n rows, if there are none yet. */
mst_status net_plan(mst_cuda_net *net, uint32_t n);

#endif
