/* A step of LeNet in five kernels: its layers are so small that launches and memory would take most of the
 * time. Products are float in every --precision. */
#ifndef MST_CUDA_NET_LENET_CUH
#define MST_CUDA_NET_LENET_CUH

#include "cuda/net.cuh"

struct net_lenet;

/* Whether the layers are those of LeNet: convolutions of 6 and 16 filters of 5x5 on 28x28 images, relu, average
 * pools, 120 and 84 units with relu, up to 32 classes. */
bool net_lenet_is(const mst_cuda_net_spec *spec);
/* Its memory, which the net owns. */
mst_status net_lenet_make(mst_cuda_net *net, net_lenet **out);
void net_lenet_free(net_lenet *self); /* NULL-safe */
/* Forward, loss and backward: the gradient is in net->g. */
mst_status net_lenet_train(mst_cuda_net *net, net_lenet *self, uint32_t n, bool floats, const char *slot);

#endif
