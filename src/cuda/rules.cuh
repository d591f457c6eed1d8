/* The update rules (tensor/rule_one.h) as device functions: the formulas exist once. Products and sums are
 * fused where the compiler does so. */
#ifndef MST_CUDA_RULES_CUH
#define MST_CUDA_RULES_CUH

#define MST_RULE_INLINE static __device__ __forceinline__
#define restrict        __restrict__
#include "tensor/rule_one.h"
#undef restrict

/* Changes weight w[i], and its state a[i], b[i], by gradient g. */
template <int KIND>
static __device__ __forceinline__ void mst_rule_apply(const mst_rule *c, float *w, float *a, float *b, size_t i,
                                                      float g)
{
    if (KIND == MST_RULE_SGD)
        mst_rule_sgd(c, w, a, b, i, g);
    else if (KIND == MST_RULE_MOMENTUM)
        mst_rule_momentum(c, w, a, b, i, g);
    else if (KIND == MST_RULE_ADAGRAD)
        mst_rule_adagrad(c, w, a, b, i, g);
    else if (KIND == MST_RULE_ADAM)
        mst_rule_adam(c, w, a, b, i, g);
    else
        mst_rule_ftrl(c, w, a, b, i, g);
}

#endif
