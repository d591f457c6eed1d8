/* The life of a net on a GPU. */
#ifndef MST_CUDA_NET_OPEN_CUH
#define MST_CUDA_NET_OPEN_CUH

#include <mutex>

#include "cuda/net.cuh"

/* Held while a net is opened or closed, and while a step is captured: the former wait for the whole GPU, which
 * ends captures of other threads. */
std::mutex &net_alone(void);

/* As in the table of cuda_net.h. */
mst_status net_open(const mst_cuda_net_spec *spec, mst_cuda_net **out);
void net_close(mst_cuda_net *net);

/* Finds algorithms for n rows, if there are none yet. */
mst_status net_plan(mst_cuda_net *net, uint32_t n);

#endif
