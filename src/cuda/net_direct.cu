/* Convolutions by own kernels; contract in net_direct.cuh. Indices are (n, c, h, w), or (n, h, w, c) where
 * LAST; filters alike. */
#include "cuda/net_direct.cuh"

#define THREADS 256

/* The place of number (n, c, y, x) in images of c_n x h x w. */
template <bool LAST>
static __device__ __forceinline__ size_t direct_at(uint32_t n, uint32_t c, uint32_t y, uint32_t x, uint32_t c_n,
                                                   uint32_t h, uint32_t w)
{
    return LAST ? (((size_t)n * h + y) * w + x) * c_n + c : (((size_t)n * c_n + c) * h + y) * w + x;
}

template <typename T, bool LAST>
static __global__ void direct_forward(mst_cuda_layer l, uint32_t n, const T *x, const T *w, T *y)
{
    size_t total = (size_t)n * l.out.c * l.out.h * l.out.w;
    uint32_t n_in = l.in.c / l.groups, per_group = l.out.c / l.groups;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < total;
         i += (size_t)gridDim.x * blockDim.x) {
        uint32_t ox = i % l.out.w, oy = i / l.out.w % l.out.h, o = i / l.out.w / l.out.h % l.out.c;
        uint32_t r = (uint32_t)(i / l.out.w / l.out.h / l.out.c);
        uint32_t first = o / per_group * n_in;
        float sum = 0.0f;
        for (uint32_t c = 0; c < n_in; c++)
            for (uint32_t ky = 0; ky < l.kh; ky++)
                for (uint32_t kx = 0; kx < l.kw; kx++) {
                    int64_t iy = (int64_t)oy * l.stride + ky - l.pad, ix = (int64_t)ox * l.stride + kx - l.pad;
                    if (iy < 0 || iy >= l.in.h || ix < 0 || ix >= l.in.w)
                        continue;
                    sum += net_get(&x[direct_at<LAST>(r, first + c, (uint32_t)iy, (uint32_t)ix, l.in.c, l.in.h,
                                                      l.in.w)]) *
                           net_get(&w[direct_at<LAST>(o, c, ky, kx, n_in, l.kh, l.kw)]);
                }
        net_put(&y[direct_at<LAST>(r, o, oy, ox, l.out.c, l.out.h, l.out.w)], sum);
    }
}

template <typename T, bool LAST>
static __global__ void direct_data(mst_cuda_layer l, uint32_t n, const T *dy, const T *w, T *dx)
{
    size_t total = (size_t)n * l.in.c * l.in.h * l.in.w;
    uint32_t n_in = l.in.c / l.groups, per_group = l.out.c / l.groups;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < total;
         i += (size_t)gridDim.x * blockDim.x) {
        uint32_t ix = i % l.in.w, iy = i / l.in.w % l.in.h, c = i / l.in.w / l.in.h % l.in.c;
        uint32_t r = (uint32_t)(i / l.in.w / l.in.h / l.in.c);
        uint32_t group = c / n_in, c_in = c % n_in;
        float sum = 0.0f;
        for (uint32_t ky = 0; ky < l.kh; ky++)
            for (uint32_t kx = 0; kx < l.kw; kx++) {
                int64_t sy = (int64_t)iy + l.pad - ky, sx = (int64_t)ix + l.pad - kx;
                if (sy < 0 || sx < 0 || sy % l.stride != 0 || sx % l.stride != 0)
                    continue;
                uint32_t oy = (uint32_t)(sy / l.stride), ox = (uint32_t)(sx / l.stride);
                if (oy >= l.out.h || ox >= l.out.w)
                    continue;
                for (uint32_t j = 0; j < per_group; j++) {
                    uint32_t o = group * per_group + j;
                    sum += net_get(&dy[direct_at<LAST>(r, o, oy, ox, l.out.c, l.out.h, l.out.w)]) *
                           net_get(&w[direct_at<LAST>(o, c_in, ky, kx, n_in, l.kh, l.kw)]);
                }
            }
        net_put(&dx[direct_at<LAST>(r, c, iy, ix, l.in.c, l.in.h, l.in.w)], sum);
    }
}

/* One block per weight. */
template <typename T, bool LAST>
static __global__ void direct_filter(mst_cuda_layer l, uint32_t n, const T *dy, const T *x, float *g)
{
    uint32_t n_in = l.in.c / l.groups, per_group = l.out.c / l.groups;
    uint32_t kx = blockIdx.x % l.kw, ky = blockIdx.x / l.kw % l.kh, c = blockIdx.x / l.kw / l.kh % n_in;
    uint32_t o = blockIdx.x / l.kw / l.kh / n_in, from = o / per_group * n_in + c;
    size_t total = (size_t)n * l.out.h * l.out.w;
    float sum = 0.0f;
    for (size_t i = threadIdx.x; i < total; i += THREADS) {
        uint32_t ox = i % l.out.w, oy = i / l.out.w % l.out.h, r = (uint32_t)(i / l.out.w / l.out.h);
        int64_t iy = (int64_t)oy * l.stride + ky - l.pad, ix = (int64_t)ox * l.stride + kx - l.pad;
        if (iy < 0 || iy >= l.in.h || ix < 0 || ix >= l.in.w)
            continue;
        sum += net_get(&dy[direct_at<LAST>(r, o, oy, ox, l.out.c, l.out.h, l.out.w)]) *
               net_get(&x[direct_at<LAST>(r, from, (uint32_t)iy, (uint32_t)ix, l.in.c, l.in.h, l.in.w)]);
    }
    sum = net_block_sum<THREADS>(sum);
    if (threadIdx.x == 0)
        g[direct_at<LAST>(o, c, ky, kx, n_in, l.kh, l.kw)] = sum;
}

template <typename T, bool LAST>
static mst_status direct_run(mst_cuda_net *net, const mst_cuda_layer *l, net_way way, uint32_t n, const T *a,
                             const T *b, void *out)
{
    uint64_t outs = n * net_size(&l->out), ins = n * net_size(&l->in);
    if (way == NET_FORWARD)
        direct_forward<T, LAST><<<mst_cuda_blocks(outs, THREADS, 65535), THREADS, 0, net->stream>>>(*l, n, a, b,
                                                                                                    (T *)out);
    else if (way == NET_DATA)
        direct_data<T, LAST>
            <<<mst_cuda_blocks(ins, THREADS, 65535), THREADS, 0, net->stream>>>(*l, n, a, b, (T *)out);
    else
        direct_filter<T, LAST><<<l->out.c * (l->in.c / l->groups) * l->kh * l->kw, THREADS, 0, net->stream>>>(
            *l, n, a, b, (float *)out);
    CUDA_LAUNCHED("a convolution");
    return MST_OK;
}

mst_status net_direct_run(mst_cuda_net *net, const mst_cuda_layer &layer, net_way way, uint32_t n, const void *a,
                          const void *b, void *out)
{
    const mst_cuda_layer *l = &layer;
    if (net->half)
        return direct_run<bf16, true>(net, l, way, n, (const bf16 *)a, (const bf16 *)b, out);
    if (net->last)
        return direct_run<float, true>(net, l, way, n, (const float *)a, (const float *)b, out);
    return direct_run<float, false>(net, l, way, n, (const float *)a, (const float *)b, out);
}

static __global__ void widen(uint64_t n, const bf16 *from, float *to)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x)
        to[i] = __bfloat162float(from[i]);
}

mst_status net_widen(mst_cuda_net *net, uint64_t n, const bf16 *from, float *to)
{
    widen<<<mst_cuda_blocks(n, THREADS, 65535), THREADS, 0, net->stream>>>(n, from, to);
    CUDA_LAUNCHED("a conversion");
    return MST_OK;
}
