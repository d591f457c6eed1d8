/* Loops and vectors of the kernels over numbers between layers. */
#ifndef MST_CUDA_NET_LINES_CUH
#define MST_CUDA_NET_LINES_CUH

#include "cuda/net.cuh"

#define THREADS 256

/* Rows of the batch, and items of a row, in a grid of net_grid. */
#define EACH_ROW(r, n)      for (uint32_t r = blockIdx.y; r < (n); r += gridDim.y)
#define EACH_ITEM(i, items) for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < (items); i += gridDim.x * THREADS)

static inline dim3 net_grid(uint32_t rows, uint64_t items)
{
    return dim3(mst_cuda_blocks(items, THREADS, 4096), rows < 65535 ? rows : 65535);
}

/* Calls a kernel template <T, LAST> for the types of the net. */
#define BY_TYPE(CALL)                                                                                        \
    do {                                                                                                     \
        if (net->half)                                                                                       \
            CALL(bf16, true);                                                                                \
        else if (net->last)                                                                                  \
            CALL(float, true);                                                                               \
        else                                                                                                 \
            CALL(float, false);                                                                              \
    } while (0)

/* V numbers that are loaded and stored at once. */
template <typename T, int V> struct line_of {
    float v[V];
    __device__ __forceinline__ float get(int k) const
    {
        return v[k];
    }
    __device__ __forceinline__ void set(int k, float f)
    {
        v[k] = f;
    }
};

template <typename T, int V> static __device__ __forceinline__ line_of<T, V> line_load(const T *p)
{
    line_of<T, V> out;
    if constexpr (V == 8) {
        uint4 raw = *(const uint4 *)p;
        const bf16 *b = (const bf16 *)&raw;
#pragma unroll
        for (int k = 0; k < 8; k++)
            out.v[k] = __bfloat162float(b[k]);
    } else if constexpr (V == 4) {
        *(float4 *)out.v = *(const float4 *)p;
    } else {
        out.v[0] = net_get(p);
    }
    return out;
}

template <typename T, int V> static __device__ __forceinline__ void line_store(T *p, const line_of<T, V> &l)
{
    if constexpr (V == 8) {
        uint4 raw;
        __nv_bfloat162 *b = (__nv_bfloat162 *)&raw;
#pragma unroll
        for (int k = 0; k < 4; k++)
            b[k] = __floats2bfloat162_rn(l.v[2 * k], l.v[2 * k + 1]);
        *(uint4 *)p = raw;
    } else if constexpr (V == 4) {
        *(float4 *)p = *(const float4 *)l.v;
    } else {
        net_put(p, l.v[0]);
    }
}

/* Four numbers at a place that is aligned for them. */
static __device__ __forceinline__ void line_store_four(float *p, const float *v)
{
    *(float4 *)p = make_float4(v[0], v[1], v[2], v[3]);
}
static __device__ __forceinline__ void line_store_four(bf16 *p, const float *v)
{
    __nv_bfloat162 lo = __floats2bfloat162_rn(v[0], v[1]), hi = __floats2bfloat162_rn(v[2], v[3]);
    *(uint2 *)p = make_uint2(*(uint32_t *)&lo, *(uint32_t *)&hi);
}

#endif
