/* Pools of nets, with the bias and the activation before or after them; contract in net.cuh.
 *
 * Channels last: a thread has V channels of a pixel, which are 16 bytes. Channels first: a thread has one number
 * of a plane. */
#include "cuda/net_lines.cuh"

/* Fixes the sizes of windows that are common: K x K with stride S. K 0: any. */
template <int K, int S> static __device__ __forceinline__ void pool_fix(mst_cuda_layer &l)
{
    if (K > 0) {
        l.kh = l.kw = K;
        l.stride = S;
    }
}

/* Calls f(K, S) for the windows of a layer. */
#define BY_WINDOW(l, CALL)                                                                                   \
    do {                                                                                                     \
        if ((l).kh == 3 && (l).kw == 3 && (l).stride == 2)                                                   \
            CALL(3, 2);                                                                                      \
        else if ((l).kh == 2 && (l).kw == 2 && (l).stride == 2)                                              \
            CALL(2, 2);                                                                                      \
        else                                                                                                 \
            CALL(0, 0);                                                                                      \
    } while (0)

/* The part of a window that lies in the image. */
typedef struct area {
    int top, left, y0, y1, x0, x1;
} area;

static __device__ __forceinline__ area area_at(const mst_cuda_layer &l, uint32_t oy, uint32_t ox)
{
    area a;
    a.top = (int)(oy * l.stride) - (int)l.pad;
    a.left = (int)(ox * l.stride) - (int)l.pad;
    a.y0 = max(a.top, 0);
    a.x0 = max(a.left, 0);
    a.y1 = min(a.top + (int)l.kh, (int)l.in.h);
    a.x1 = min(a.left + (int)l.kw, (int)l.in.w);
    return a;
}

/* The numbers of V channels of a window; step: between pixels. */
template <typename T, int V, bool MAX>
static __device__ __forceinline__ line_of<T, V> pool_window(const mst_cuda_layer &l, const area &a, const T *x,
                                                            uint64_t step, uint16_t *best)
{
    line_of<T, V> out = {};
    if (MAX) {
        out = line_load<T, V>(x + ((uint64_t)a.y0 * l.in.w + a.x0) * step);
#pragma unroll
        for (int k = 0; k < V; k++)
            best[k] = (uint16_t)((a.y0 - a.top) * (int)l.kw + a.x0 - a.left);
    }
    for (int y = a.y0; y < a.y1; y++)
        for (int c = a.x0; c < a.x1; c++) {
            line_of<T, V> v = line_load<T, V>(x + ((uint64_t)y * l.in.w + c) * step);
            uint16_t at = (uint16_t)((y - a.top) * (int)l.kw + c - a.left);
#pragma unroll
            for (int k = 0; k < V; k++) {
                if (!MAX) {
                    out.v[k] += v.v[k];
                } else if (v.v[k] > out.v[k]) {
                    out.v[k] = v.v[k];
                    best[k] = at;
                }
            }
        }
    if (!MAX)
#pragma unroll
        for (int k = 0; k < V; k++)
            out.v[k] *= 1.0f / ((float)l.kh * (float)l.kw);
    return out;
}

template <int V> static __device__ __forceinline__ void best_store(uint16_t *to, const uint16_t *best)
{
    if constexpr (V == 8)
        *(uint4 *)to = *(const uint4 *)best;
    else if constexpr (V == 4)
        *(uint2 *)to = *(const uint2 *)best;
    else
        *to = *best;
}
template <int V> static __device__ __forceinline__ void best_load(const uint16_t *from, uint16_t *best)
{
    if constexpr (V == 8)
        *(uint4 *)best = *(const uint4 *)from;
    else if constexpr (V == 4)
        *(uint2 *)best = *(const uint2 *)from;
    else
        *best = *from;
}

/* ---- forward ---- */

template <typename T, int V, bool MAX, int ACT, int K, int S>
static __global__ void pool_last(mst_cuda_layer l, uint32_t n, const float *bias, const T *x, T *y, uint16_t *best)
{
    pool_fix<K, S>(l);
    uint32_t groups = l.in.c / V, items = l.out.h * l.out.w * groups;
    EACH_ROW(r, n)
    EACH_ITEM(i, items)
    {
        uint32_t c = i % groups * V, ox = i / groups % l.out.w, oy = i / groups / l.out.w;
        alignas(16) uint16_t at[V];
        uint64_t to = ((uint64_t)r * items + i) * V;
        line_of<T, V> v = pool_window<T, V, MAX>(l, area_at(l, oy, ox), x + (uint64_t)r * l.in.h * l.in.w * l.in.c + c,
                                                 l.in.c, at);
#pragma unroll
        for (int k = 0; k < V; k++)
            v.v[k] = net_act<ACT>(v.v[k] + (bias != NULL ? bias[c + k] : 0.0f));
        line_store<T, V>(y + to, v);
        if (MAX && best != NULL)
            best_store<V>(best + to, at);
    }
}

template <bool MAX, int ACT, int K, int S>
static __global__ void pool_first(mst_cuda_layer l, uint32_t planes, const float *bias, const float *x, float *y,
                                  uint16_t *best)
{
    pool_fix<K, S>(l);
    uint32_t items = l.out.h * l.out.w;
    EACH_ROW(p, planes)
    EACH_ITEM(i, items)
    {
        uint16_t at;
        line_of<float, 1> v = pool_window<float, 1, MAX>(l, area_at(l, i / l.out.w, i % l.out.w),
                                                         x + (uint64_t)p * l.in.h * l.in.w, 1, &at);
        y[(uint64_t)p * items + i] = net_act<ACT>(v.v[0] + (bias != NULL ? bias[p % l.in.c] : 0.0f));
        if (MAX && best != NULL)
            best[(uint64_t)p * items + i] = at;
    }
}

template <bool MAX, int ACT, int K, int S>
static void pool_launch(mst_cuda_net *net, const net_layer *layer, uint32_t n, const float *bias, const void *x)
{
    const mst_cuda_layer &l = layer->spec;
#define LAST(T, V)                                                                                           \
    pool_last<T, V, MAX, ACT, K, S><<<net_grid(n, net_size(&l.out) / V), THREADS, 0, net->stream>>>(               \
        l, n, bias, (const T *)x, (T *)layer->y, layer->best)
    if (net->half && l.in.c % 8 == 0)
        LAST(bf16, 8);
    else if (net->half)
        LAST(bf16, 1);
    else if (net->last && l.in.c % 4 == 0)
        LAST(float, 4);
    else if (net->last)
        LAST(float, 1);
    else
        pool_first<MAX, ACT, K, S><<<net_grid(n * l.in.c, (uint64_t)l.out.h * l.out.w), THREADS, 0, net->stream>>>(
            l, n * l.in.c, bias, (const float *)x, (float *)layer->y, layer->best);
#undef LAST
}

mst_status net_pool(mst_cuda_net *net, const net_layer *layer, uint32_t n, const float *bias, const void *x)
{
    bool max = layer->spec.kind == MST_CUDA_MAXPOOL;
#define CALL(ACT)                                                                                            \
    if (max)                                                                                                 \
        pool_launch<true, ACT, 0, 0>(net, layer, n, bias, x);                                                \
    else                                                                                                     \
        pool_launch<false, ACT, 0, 0>(net, layer, n, bias, x)
#define RELU(K, S) pool_launch<true, MST_CUDA_RELU, K, S>(net, layer, n, bias, x)
    if (max && layer->act == MST_CUDA_RELU)
        BY_WINDOW(layer->spec, RELU);
    else
        NET_BY_ACT(layer->act, CALL);
#undef RELU
#undef CALL
    CUDA_LAUNCHED("a pool");
    return MST_OK;
}

/* ---- backward ---- */

/* The windows that pixel (y, x) lies in: from (y0, x0) to (y1, x1), both included. */
typedef struct windows {
    int y0, y1, x0, x1;
} windows;

static __device__ __forceinline__ windows windows_of(const mst_cuda_layer &l, int y, int x)
{
    int bottom = y + (int)l.pad, right = x + (int)l.pad, stride = (int)l.stride;
    int top = bottom - (int)l.kh + 1, left = right - (int)l.kw + 1;
    windows w;
    w.y0 = top > 0 ? (top + stride - 1) / stride : 0;
    w.x0 = left > 0 ? (left + stride - 1) / stride : 0;
    w.y1 = min(bottom / stride, (int)l.out.h - 1);
    w.x1 = min(right / stride, (int)l.out.w - 1);
    return w;
}

template <typename T, int V, bool MAX>
static __device__ __forceinline__ line_of<T, V> pool_back_pixel(const mst_cuda_layer &l, int y, int x, const T *dy,
                                                                const uint16_t *best, uint64_t step)
{
    windows w = windows_of(l, y, x);
    line_of<T, V> out = {};
    float scale = 1.0f / ((float)l.kh * (float)l.kw);
    for (int oy = w.y0; oy <= w.y1; oy++)
        for (int ox = w.x0; ox <= w.x1; ox++) {
            uint64_t at = ((uint64_t)oy * l.out.w + ox) * step;
            line_of<T, V> v = line_load<T, V>(dy + at);
            alignas(16) uint16_t b[V];
            uint16_t own = (uint16_t)((y + (int)l.pad - oy * (int)l.stride) * (int)l.kw + x + (int)l.pad -
                                      ox * (int)l.stride);
            if (MAX)
                best_load<V>(best + at, b);
#pragma unroll
            for (int k = 0; k < V; k++)
                out.v[k] += !MAX ? v.v[k] * scale : b[k] == own ? v.v[k] : 0.0f;
        }
    return out;
}

template <typename T, int V, bool MAX, int K, int S>
static __global__ void pool_back_last(mst_cuda_layer l, uint32_t n, const T *dy, T *dx, const uint16_t *best)
{
    pool_fix<K, S>(l);
    uint32_t groups = l.in.c / V, items = l.in.h * l.in.w * groups;
    uint64_t outs = (uint64_t)l.out.h * l.out.w * l.in.c;
    EACH_ROW(r, n)
    EACH_ITEM(i, items)
    {
        uint32_t c = i % groups * V, x = i / groups % l.in.w, y = i / groups / l.in.w;
        line_store<T, V>(dx + ((uint64_t)r * items + i) * V,
                         pool_back_pixel<T, V, MAX>(l, (int)y, (int)x, dy + r * outs + c,
                                                    MAX ? best + r * outs + c : NULL, l.in.c));
    }
}

template <bool MAX, int K, int S>
static __global__ void pool_back_first(mst_cuda_layer l, uint32_t planes, const float *dy, float *dx,
                                       const uint16_t *best)
{
    pool_fix<K, S>(l);
    uint32_t items = l.in.h * l.in.w;
    uint64_t outs = (uint64_t)l.out.h * l.out.w;
    EACH_ROW(p, planes)
    EACH_ITEM(i, items)
    dx[(uint64_t)p * items + i] = pool_back_pixel<float, 1, MAX>(l, (int)(i / l.in.w), (int)(i % l.in.w),
                                                                 dy + p * outs, MAX ? best + p * outs : NULL, 1)
                                      .v[0];
}

template <bool MAX, int K, int S>
static void pool_back_launch(mst_cuda_net *net, const net_layer *layer, uint32_t n, const void *dy, void *dx)
{
    const mst_cuda_layer &l = layer->spec;
#define LAST(T, V)                                                                                           \
    pool_back_last<T, V, MAX, K, S><<<net_grid(n, net_size(&l.in) / V), THREADS, 0, net->stream>>>(                \
        l, n, (const T *)dy, (T *)dx, layer->best)
    if (net->half && l.in.c % 8 == 0)
        LAST(bf16, 8);
    else if (net->half)
        LAST(bf16, 1);
    else if (net->last && l.in.c % 4 == 0)
        LAST(float, 4);
    else if (net->last)
        LAST(float, 1);
    else
        pool_back_first<MAX, K, S><<<net_grid(n * l.in.c, (uint64_t)l.in.h * l.in.w), THREADS, 0, net->stream>>>(
            l, n * l.in.c, (const float *)dy, (float *)dx, layer->best);
#undef LAST
}

mst_status net_pool_back(mst_cuda_net *net, const net_layer *layer, uint32_t n, const void *dy, void *dx)
{
#define CALL(K, S) pool_back_launch<true, K, S>(net, layer, n, dy, dx)
    if (layer->spec.kind == MST_CUDA_MAXPOOL)
        BY_WINDOW(layer->spec, CALL);
    else
        pool_back_launch<false, 0, 0>(net, layer, n, dy, dx);
#undef CALL
    CUDA_LAUNCHED("the gradient of a pool");
    return MST_OK;
}
