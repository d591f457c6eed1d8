/* Local response normalisation and batch norm; contract in net.cuh, formulas in model/layer_lrn.c and
 * model/layer_batchnorm.c. */
#include "cuda/net.cuh"

#define THREADS 256
#define GRID(n) mst_cuda_blocks(n, THREADS, 65535), THREADS, 0, net->stream

#define BY_TYPE(CALL)                                                                                        \
    do {                                                                                                     \
        if (net->half)                                                                                       \
            CALL(bf16);                                                                                      \
        else                                                                                                 \
            CALL(float);                                                                                     \
    } while (0)

/* Numbers of a channel are `inner` apart, and channels `step`: inner 1 and step h*w, or inner c and step 1. */

/* ---- lrn ---- */

template <typename T>
static __global__ void lrn_kernel(mst_cuda_layer l, uint64_t n, uint32_t step, const T *x, float *s, T *y)
{
    int before = (int)l.size / 2, after = (int)l.size - 1 - before, channels = (int)l.in.c;
    float alpha = (float)(l.alpha / (double)l.size), beta = (float)l.beta;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x) {
        int c = (int)(i / step % l.in.c);
        int from = c > before ? -before : -c, to = after < channels - 1 - c ? after : channels - 1 - c;
        float sum = 0.0f;
        for (int q = from; q <= to; q++) {
            float v = net_get(&x[(int64_t)i + (int64_t)q * step]);
            sum += v * v;
        }
        sum = (float)l.k + alpha * sum;
        if (s != NULL)
            s[i] = sum;
        net_put(&y[i], net_get(&x[i]) * powf(sum, -beta));
    }
}

template <typename T>
static __global__ void lrn_back_kernel(mst_cuda_layer l, uint64_t n, uint32_t step, const T *x, const T *y,
                                       const float *s, const T *dy, T *dx)
{
    int before = ((int)l.size - 1) / 2, after = (int)l.size - 1 - before, channels = (int)l.in.c;
    float factor = (float)(2.0 * l.alpha * l.beta / (double)l.size), beta = (float)l.beta;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x) {
        int c = (int)(i / step % l.in.c);
        int from = c > before ? -before : -c, to = after < channels - 1 - c ? after : channels - 1 - c;
        float sum = 0.0f;
        for (int q = from; q <= to; q++) {
            int64_t at = (int64_t)i + (int64_t)q * step;
            sum += net_get(&dy[at]) * net_get(&y[at]) / s[at];
        }
        net_put(&dx[i], net_get(&dy[i]) * powf(s[i], -beta) - factor * net_get(&x[i]) * sum);
    }
}

mst_status net_lrn(mst_cuda_net *net, const net_layer *layer, uint32_t n, const void *x)
{
    const mst_cuda_layer &l = layer->spec;
    uint64_t size = n * net_size(&l.in);
    uint32_t step = net->last ? 1 : l.in.h * l.in.w;
#define CALL(T) lrn_kernel<T><<<GRID(size)>>>(l, size, step, (const T *)x, layer->stat, (T *)layer->y)
    BY_TYPE(CALL);
#undef CALL
    CUDA_LAUNCHED("lrn");
    return MST_OK;
}

mst_status net_lrn_back(mst_cuda_net *net, const net_layer *layer, uint32_t n, const void *dy, void *dx)
{
    const mst_cuda_layer &l = layer->spec;
    uint64_t size = n * net_size(&l.in);
    uint32_t step = net->last ? 1 : l.in.h * l.in.w;
#define CALL(T)                                                                                              \
    lrn_back_kernel<T><<<GRID(size)>>>(l, size, step, (const T *)layer->x, (const T *)layer->y, layer->stat, \
                                       (const T *)dy, (T *)dx)
    BY_TYPE(CALL);
#undef CALL
    CUDA_LAUNCHED("the gradient of lrn");
    return MST_OK;
}

/* ---- batch norm: one block per channel ---- */

static __device__ double block_sum(double v, double *parts)
{
    __syncthreads();
    parts[threadIdx.x] = v;
    __syncthreads();
    for (int k = THREADS / 2; k > 0; k /= 2) {
        if (threadIdx.x < k)
            parts[threadIdx.x] += parts[threadIdx.x + k];
        __syncthreads();
    }
    return parts[0];
}

/* Number k of channel c, of m = n * plane numbers. */
template <bool LAST>
static __device__ __forceinline__ uint64_t channel_at(uint64_t k, uint32_t c, uint32_t channels, uint32_t plane)
{
    return LAST ? k * channels + c : (k / plane * channels + c) * plane + k % plane;
}

typedef struct norm_params {
    const float *weight, *bias, *mean, *var;
} norm_params;

template <typename T, bool LAST>
static __global__ void norm_kernel(mst_cuda_layer l, uint64_t m, bool training, norm_params p, float *stat,
                                   const T *x, T *y)
{
    __shared__ double parts[THREADS];
    uint32_t c = blockIdx.x, channels = l.in.c, plane = l.in.h * l.in.w;
    double mean = p.mean[c], var = p.var[c];
    if (training) {
        double sum = 0.0, square = 0.0;
        for (uint64_t k = threadIdx.x; k < m; k += THREADS)
            sum += (double)net_get(&x[channel_at<LAST>(k, c, channels, plane)]);
        mean = block_sum(sum, parts) / (double)m;
        for (uint64_t k = threadIdx.x; k < m; k += THREADS) {
            double d = (double)net_get(&x[channel_at<LAST>(k, c, channels, plane)]) - mean;
            square += d * d;
        }
        var = block_sum(square, parts) / (double)m;
        if (threadIdx.x == 0) {
            stat[c] = (float)mean;
            stat[channels + c] = (float)var;
        }
    }
    float scale = (float)((double)p.weight[c] / sqrt(var + l.eps)), shift = p.bias[c], middle = (float)mean;
    for (uint64_t k = threadIdx.x; k < m; k += THREADS) {
        uint64_t i = channel_at<LAST>(k, c, channels, plane);
        net_put(&y[i], (net_get(&x[i]) - middle) * scale + shift);
    }
}

typedef struct norm_gradients {
    float *weight, *bias, *mean, *var;
} norm_gradients;

template <typename T, bool LAST>
static __global__ void norm_back_kernel(mst_cuda_layer l, uint64_t m, norm_params p, norm_gradients g,
                                        const float *stat, const T *x, const T *dy, T *dx)
{
    __shared__ double parts[THREADS];
    uint32_t c = blockIdx.x, channels = l.in.c, plane = l.in.h * l.in.w;
    double mean = stat[c], var = stat[channels + c], inverse = 1.0 / sqrt(var + l.eps), sum = 0.0, product = 0.0;
    for (uint64_t k = threadIdx.x; k < m; k += THREADS) {
        uint64_t i = channel_at<LAST>(k, c, channels, plane);
        double d = (double)net_get(&dy[i]);
        sum += d;
        product += d * ((double)net_get(&x[i]) - mean) * inverse;
    }
    sum = block_sum(sum, parts);
    product = block_sum(product, parts);
    if (threadIdx.x == 0) {
        g.weight[c] = (float)product;
        g.bias[c] = (float)sum;
        g.mean[c] = (float)((1.0 - l.momentum) * (double)p.mean[c] + l.momentum * mean);
        g.var[c] = (float)((1.0 - l.momentum) * (double)p.var[c] +
                           l.momentum * var * (m > 1 ? (double)m / (double)(m - 1) : 1.0));
    }
    float scale = (float)((double)p.weight[c] * inverse), middle = (float)mean, inv = (float)inverse;
    float mean_d = (float)(sum / (double)m), mean_p = (float)(product / (double)m);
    for (uint64_t k = threadIdx.x; dx != NULL && k < m; k += THREADS) {
        uint64_t i = channel_at<LAST>(k, c, channels, plane);
        float z = (net_get(&x[i]) - middle) * inv;
        net_put(&dx[i], scale * (net_get(&dy[i]) - mean_d - z * mean_p));
    }
}

static norm_params norm_views(const mst_cuda_net *net, const net_layer *layer)
{
    norm_params p = {net_floats(net, layer, 0), net_floats(net, layer, 1), net_floats(net, layer, 2),
                     net_floats(net, layer, 3)};
    return p;
}

mst_status net_norm(mst_cuda_net *net, const net_layer *layer, uint32_t n, bool training, const void *x)
{
    const mst_cuda_layer &l = layer->spec;
    uint64_t m = (uint64_t)n * l.in.h * l.in.w;
    norm_params p = norm_views(net, layer);
    if (net->half)
        norm_kernel<bf16, true><<<l.in.c, THREADS, 0, net->stream>>>(l, m, training, p, layer->stat,
                                                                      (const bf16 *)x, (bf16 *)layer->y);
    else if (net->last)
        norm_kernel<float, true><<<l.in.c, THREADS, 0, net->stream>>>(l, m, training, p, layer->stat,
                                                                      (const float *)x, (float *)layer->y);
    else
        norm_kernel<float, false><<<l.in.c, THREADS, 0, net->stream>>>(l, m, training, p, layer->stat,
                                                                        (const float *)x, (float *)layer->y);
    CUDA_LAUNCHED("batch norm");
    return MST_OK;
}

mst_status net_norm_back(mst_cuda_net *net, const net_layer *layer, uint32_t n, const void *dy, void *dx)
{
    const mst_cuda_layer &l = layer->spec;
    uint64_t m = (uint64_t)n * l.in.h * l.in.w;
    norm_params p = norm_views(net, layer);
    norm_gradients g = {net_gradient(net, layer, 0), net_gradient(net, layer, 1), net_gradient(net, layer, 2),
                        net_gradient(net, layer, 3)};
    if (net->half)
        norm_back_kernel<bf16, true><<<l.in.c, THREADS, 0, net->stream>>>(
            l, m, p, g, layer->stat, (const bf16 *)layer->x, (const bf16 *)dy, (bf16 *)dx);
    else if (net->last)
        norm_back_kernel<float, true><<<l.in.c, THREADS, 0, net->stream>>>(
            l, m, p, g, layer->stat, (const float *)layer->x, (const float *)dy, (float *)dx);
    else
        norm_back_kernel<float, false><<<l.in.c, THREADS, 0, net->stream>>>(
            l, m, p, g, layer->stat, (const float *)layer->x, (const float *)dy, (float *)dx);
    CUDA_LAUNCHED("the gradient of batch norm");
    return MST_OK;
}
