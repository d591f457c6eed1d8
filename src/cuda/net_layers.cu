/* Layers of nets but products and norms: input, bias and activation, dropout; contract in net.cuh. Pools are in
 * net_pools.cu. */
#include "cuda/net_lines.cuh"

#define CHUNKS NET_CHUNKS

/* ---- input ---- */

/* Rows of numbers (c, h, w) to images, or to those of net_fold: `fold` x `fold` pixels are one. Thread: the
 * pixels of one line of a block of pixels, in one channel. */
template <typename T, bool LAST, typename IN>
static __global__ void input_kernel(mst_cuda_dims d, uint32_t fold, uint32_t pad, mst_cuda_dims to, uint32_t n,
                                    const IN *from, T *out)
{
    uint32_t lines = d.c * fold, items = to.h * to.w * lines;
    EACH_ROW(r, n)
    EACH_ITEM(i, items)
    {
        uint32_t c, dy, x, y;
        if (LAST) {
            uint32_t line = i % lines, pixel = i / lines;
            c = line / fold;
            dy = line % fold;
            x = pixel % to.w;
            y = pixel / to.w;
        } else { /* fold is 1 */
            x = i % to.w;
            y = i / to.w % to.h;
            c = i / to.w / to.h;
            dy = 0;
        }
        int sy = (int)(y * fold + dy) - (int)pad;
        const IN *line = from + ((uint64_t)r * d.c + c) * d.h * d.w + (int64_t)sy * d.w;
        T *at = out + (uint64_t)r * items * fold + (uint64_t)i * fold;
        bool inside = sy >= 0 && sy < (int)d.h;
        if (LAST && fold == 4) {
            float four[4];
#pragma unroll
            for (int dx = 0; dx < 4; dx++) {
                int sx = (int)(x * 4) + dx - (int)pad;
                float v = inside && sx >= 0 && sx < (int)d.w ? (float)line[sx] : 0.0f;
                four[dx] = sizeof(IN) == 1 ? v / 255.0f : v;
            }
            line_store_four(at, four);
            continue;
        }
        for (uint32_t dx = 0; dx < fold; dx++) {
            int sx = (int)(x * fold + dx) - (int)pad;
            float v = inside && sx >= 0 && sx < (int)d.w ? (float)line[sx] : 0.0f;
            net_put(&at[dx], sizeof(IN) == 1 ? v / 255.0f : v);
        }
    }
}

/* The same for rows that keep their layout, four numbers at a time. */
template <typename T, typename IN>
static __global__ void input_same(uint64_t fours, const IN *from, T *out)
{
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < fours; i += (uint64_t)gridDim.x * THREADS) {
        float v[4];
#pragma unroll
        for (int k = 0; k < 4; k++)
            v[k] = sizeof(IN) == 1 ? (float)from[4 * i + k] / 255.0f : (float)from[4 * i + k];
        line_store_four(out + 4 * i, v);
    }
}

template <typename T>
static void input_same_launch(mst_cuda_net *net, uint64_t fours, bool floats, const void *rows)
{
    unsigned blocks = mst_cuda_blocks(fours, THREADS, 4096);
    if (floats)
        input_same<<<blocks, THREADS, 0, net->stream>>>(fours, (const float *)rows, (T *)net->input);
    else
        input_same<<<blocks, THREADS, 0, net->stream>>>(fours, (const uint8_t *)rows, (T *)net->input);
}

mst_status net_input(mst_cuda_net *net, uint32_t n, bool floats, const void *rows)
{
    const net_layer *first = &net->layers[0];
    uint32_t fold = first->folded ? first->spec.stride : 1, pad = first->folded ? first->spec.pad : 0;
    mst_cuda_dims to = net->spec.in;
    bool same = !net->last || to.c == 1 || to.h * to.w == 1;
    if (!first->folded && same && net->row_size % 4 == 0) {
        if (net->half)
            input_same_launch<bf16>(net, n * net->row_size / 4, floats, rows);
        else
            input_same_launch<float>(net, n * net->row_size / 4, floats, rows);
        CUDA_LAUNCHED("the input");
        return MST_OK;
    }
    if (first->folded) {
        to = net_fold(first->spec).in;
        to.c /= fold * fold;
    }
    dim3 grid = net_grid(n, (uint64_t)to.h * to.w * to.c * fold);
#define CALL(T, LAST)                                                                                        \
    if (floats)                                                                                              \
        input_kernel<T, LAST, float><<<grid, THREADS, 0, net->stream>>>(net->spec.in, fold, pad, to, n,      \
                                                                        (const float *)rows, (T *)net->input); \
    else                                                                                                     \
        input_kernel<T, LAST, uint8_t><<<grid, THREADS, 0, net->stream>>>(                                   \
            net->spec.in, fold, pad, to, n, (const uint8_t *)rows, (T *)net->input)
    BY_TYPE(CALL);
#undef CALL
    CUDA_LAUNCHED("the input");
    return MST_OK;
}

/* ---- folded convolutions ---- */

mst_cuda_layer net_fold(const mst_cuda_layer &l)
{
    mst_cuda_layer f = l;
    f.kh = (l.kh + l.stride - 1) / l.stride;
    f.kw = (l.kw + l.stride - 1) / l.stride;
    f.in.c = l.in.c * l.stride * l.stride;
    f.in.h = l.out.h - 1 + f.kh;
    f.in.w = l.out.w - 1 + f.kw;
    f.stride = 1;
    f.pad = 0;
    return f;
}

/* Number i of the folded weights (out, ky, kx, c, dy, dx): its place in (out, kh, kw, c); -1: it is zero. */
static __device__ __forceinline__ int64_t fold_place(const mst_cuda_layer &l, uint32_t fkh, uint32_t fkw, uint32_t i)
{
    uint32_t s = l.stride, dx = i % s, dy = i / s % s, c = i / s / s % l.in.c, rest = i / s / s / l.in.c;
    uint32_t kx = rest % fkw * s + dx, ky = rest / fkw % fkh * s + dy, o = rest / fkw / fkh;
    return kx < l.kw && ky < l.kh ? (((int64_t)o * l.kh + ky) * l.kw + kx) * l.in.c + c : -1;
}

template <typename T>
static __global__ void fold_kernel(mst_cuda_layer l, uint32_t fkh, uint32_t fkw, uint32_t n, const float *w, T *out)
{
    EACH_ITEM(i, n)
    {
        int64_t at = fold_place(l, fkh, fkw, i);
        net_put(&out[i], at >= 0 ? w[at] : 0.0f);
    }
}

static __global__ void fold_back_kernel(mst_cuda_layer l, uint32_t fkh, uint32_t fkw, uint32_t n, const float *g,
                                        float *out)
{
    EACH_ITEM(i, n)
    {
        int64_t at = fold_place(l, fkh, fkw, i);
        if (at >= 0)
            out[at] = g[i];
    }
}

mst_status net_fold_weights(mst_cuda_net *net, const net_layer *layer)
{
    mst_cuda_layer f = net_fold(layer->spec);
    uint32_t n = f.out.c * f.kh * f.kw * f.in.c, blocks = mst_cuda_blocks(n, THREADS, 1024);
    const float *w = net_floats(net, layer, 0);
    if (net->half)
        fold_kernel<<<blocks, THREADS, 0, net->stream>>>(layer->spec, f.kh, f.kw, n, w, (bf16 *)layer->kernels);
    else
        fold_kernel<<<blocks, THREADS, 0, net->stream>>>(layer->spec, f.kh, f.kw, n, w, (float *)layer->kernels);
    CUDA_LAUNCHED("a change of layout");
    return MST_OK;
}

mst_status net_fold_back(mst_cuda_net *net, const net_layer *layer)
{
    mst_cuda_layer f = net_fold(layer->spec);
    uint32_t n = f.out.c * f.kh * f.kw * f.in.c;
    fold_back_kernel<<<mst_cuda_blocks(n, THREADS, 1024), THREADS, 0, net->stream>>>(
        layer->spec, f.kh, f.kw, n, layer->kernels_back, net_gradient(net, layer, 0));
    CUDA_LAUNCHED("a change of layout");
    return MST_OK;
}

/* ---- bias and activation ---- */

/* Rows x c, V numbers at a time. */
template <typename T, int V, int ACT>
static __global__ void bias_act_last(uint64_t vectors, uint32_t groups, const float *bias, T *y)
{
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < vectors; i += (uint64_t)gridDim.x * THREADS) {
        uint32_t g = (uint32_t)(i % groups);
        line_of<T, V> v = line_load<T, V>(y + i * V);
#pragma unroll
        for (int k = 0; k < V; k++)
            v.set(k, net_act<ACT>(v.get(k) + (bias != NULL ? bias[g * V + k] : 0.0f)));
        line_store<T, V>(y + i * V, v);
    }
}

/* A block per plane of a channel. */
template <int ACT>
static __global__ void bias_act_first(uint32_t c, uint32_t inner, const float *bias, float *y)
{
    float b = bias != NULL ? bias[blockIdx.x % c] : 0.0f;
    float *plane = y + (uint64_t)blockIdx.x * inner;
    for (uint32_t i = threadIdx.x; i < inner; i += THREADS)
        plane[i] = net_act<ACT>(plane[i] + b);
}

template <int ACT>
static void bias_act(mst_cuda_net *net, const mst_cuda_dims *dims, uint32_t n, const float *bias, void *y)
{
    uint32_t inner = dims->h * dims->w;
    uint64_t size = n * net_size(dims);
#define LAST(T, V)                                                                                           \
    bias_act_last<T, V, ACT><<<mst_cuda_blocks(size / V, THREADS, 4096), THREADS, 0, net->stream>>>(         \
        size / V, dims->c / V, bias, (T *)y)
    if (!net->last && inner > 1)
        bias_act_first<ACT><<<n * dims->c, THREADS, 0, net->stream>>>(dims->c, inner, bias, (float *)y);
    else if (net->half && dims->c % 8 == 0)
        LAST(bf16, 8);
    else if (net->half)
        LAST(bf16, 1);
    else if (dims->c % 4 == 0)
        LAST(float, 4);
    else
        LAST(float, 1);
#undef LAST
}

mst_status net_bias_act(mst_cuda_net *net, const mst_cuda_dims *dims, uint32_t n, int act, const float *bias,
                        void *y)
{
    if (bias == NULL && act < 0)
        return MST_OK;
#define CALL(ACT) bias_act<ACT>(net, dims, n, bias, y)
    NET_BY_ACT(act, CALL);
#undef CALL
    CUDA_LAUNCHED("an activation");
    return MST_OK;
}

/* The last of gridDim.y blocks adds the partial sums of channels [first, first + count), in a fixed order. */
static __device__ void sum_chunks(const float *partial, uint32_t c, uint32_t first, uint32_t count,
                                  unsigned *counter, float *out)
{
    __shared__ bool last;
    __shared__ float sums[THREADS];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        last = atomicAdd(counter, 1) == gridDim.y - 1;
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    uint32_t parts = count < THREADS ? THREADS / count : 1, chunks = gridDim.y;
    parts = parts < 32 ? parts : 32;
    for (uint32_t at = 0; at < count; at += THREADS) {
        uint32_t i = at + threadIdx.x % (count < THREADS ? count : THREADS), part = count < THREADS ? threadIdx.x / count : 0;
        float sum = 0.0f;
        if (part < parts && i < count) {
#pragma unroll 8
            for (uint32_t k = part; k < chunks; k += parts)
                sum += __ldcg(&partial[(size_t)k * c + first + i]);
        }
        __syncthreads();
        sums[threadIdx.x] = sum;
        __syncthreads();
        if (part == 0 && i < count) {
            for (uint32_t k = 1; k < parts; k++)
                sum += sums[k * count + threadIdx.x];
            out[first + i] = sum;
        }
    }
    if (threadIdx.x == 0)
        *counter = 0;
}

/* Rows x c. Block (tile of channels, chunk of rows); a thread has V channels, and the block THREADS * V / tile rows
 * at a time. */
template <typename T, int V, int ACT>
static __global__ void act_back_last(uint64_t rows, uint32_t c, uint32_t tile, const T *y, T *d, float *partial,
                                     unsigned *counters, float *bias)
{
    __shared__ float parts[THREADS * V];
    uint32_t groups = tile / V, lane = threadIdx.x % groups, line = threadIdx.x / groups, lines = THREADS / groups;
    uint32_t column = blockIdx.x * tile + lane * V;
    float sums[V] = {0};
    if (column < c && line < lines)
#pragma unroll 2
        for (uint64_t r = blockIdx.y * (uint64_t)lines + line; r < rows; r += (uint64_t)gridDim.y * lines) {
            uint64_t i = r * c + column;
            line_of<T, V> v = line_load<T, V>(d + i), u;
            if (ACT >= 0)
                u = line_load<T, V>(y + i);
#pragma unroll
            for (int k = 0; k < V; k++) {
                float g = v.get(k);
                if (ACT >= 0) {
                    g *= net_act_slope<ACT>(u.get(k));
                    v.set(k, g);
                }
                sums[k] += g;
            }
            if (ACT >= 0)
                line_store<T, V>(d + i, v);
        }
    if (bias == NULL)
        return;
#pragma unroll
    for (int k = 0; k < V; k++)
        parts[(line * groups + lane) * V + k] = sums[k];
    __syncthreads();
    for (uint32_t most = lines, half; most > 1; most = half) { /* lines are added to those of the first half */
        half = (most + 1) / 2;
        for (uint32_t i = threadIdx.x; i < (most - half) * tile; i += THREADS)
            parts[i] += parts[half * tile + i];
        __syncthreads();
    }
    uint32_t first = blockIdx.x * tile, count = c - first < tile ? c - first : tile;
    for (uint32_t i = threadIdx.x; i < count; i += THREADS)
        partial[(size_t)blockIdx.y * c + first + i] = parts[i];
    sum_chunks(partial, c, first, count, &counters[blockIdx.x], bias);
}

/* Channels first: block (channel, chunk of images). */
template <int ACT>
static __global__ void act_back_first(uint32_t n, uint32_t c, uint32_t inner, const float *y, float *d,
                                      float *partial, unsigned *counters, float *bias)
{
    __shared__ float parts[THREADS];
    float sum = 0.0f;
    for (uint32_t r = blockIdx.y; r < n; r += gridDim.y) {
        uint64_t at = ((uint64_t)r * c + blockIdx.x) * inner;
        for (uint32_t i = threadIdx.x; i < inner; i += THREADS) {
            float v = d[at + i];
            if (ACT >= 0) {
                v *= net_act_slope<ACT>(y[at + i]);
                d[at + i] = v;
            }
            sum += v;
        }
    }
    if (bias == NULL)
        return;
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (int k = THREADS / 2; k > 0; k /= 2) {
        if (threadIdx.x < k)
            parts[threadIdx.x] += parts[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        partial[(size_t)blockIdx.y * c + blockIdx.x] = parts[0];
    sum_chunks(partial, c, blockIdx.x, 1, &counters[blockIdx.x], bias);
}

template <int ACT>
static void act_back(mst_cuda_net *net, const mst_cuda_dims *dims, uint32_t n, const void *y, void *d, float *bias)
{
    uint32_t inner = dims->h * dims->w, c = dims->c;
    uint64_t rows = (uint64_t)n * inner;
    if (!net->last && inner > 1) {
        dim3 grid(c, n < 64 ? n : 64);
        act_back_first<ACT><<<grid, THREADS, 0, net->stream>>>(n, c, inner, (const float *)y, (float *)d, net->sums,
                                                               net->counters, bias);
        return;
    }
    uint32_t v = net->half ? (c % 8 == 0 ? 8 : 1) : c % 4 == 0 ? 4 : 1;
    uint32_t most_tile = v > 1 ? 8 * v : 32; /* 128 bytes of a row */
    uint32_t tile = c < most_tile ? c : most_tile, lines = THREADS / (tile / v), tiles = (c + tile - 1) / tile;
    uint64_t chunks = (rows + 4 * lines - 1) / (4 * lines), most = CHUNKS / tiles > 0 ? CHUNKS / tiles : 1;
    dim3 grid(tiles, (unsigned)(chunks < most ? chunks : most));
#define LAST(T, V)                                                                                           \
    act_back_last<T, V, ACT><<<grid, THREADS, 0, net->stream>>>(rows, c, tile, (const T *)y, (T *)d, net->sums, \
                                                                net->counters, bias)
    if (net->half && v == 8)
        LAST(bf16, 8);
    else if (net->half)
        LAST(bf16, 1);
    else if (v == 4)
        LAST(float, 4);
    else
        LAST(float, 1);
#undef LAST
}

mst_status net_act_back(mst_cuda_net *net, const mst_cuda_dims *dims, uint32_t n, int act, const void *y,
                        void *d, float *bias)
{
    if (bias == NULL && act < 0)
        return MST_OK;
#define CALL(ACT) act_back<ACT>(net, dims, n, y, d, bias)
    NET_BY_ACT(act, CALL);
#undef CALL
    CUDA_LAUNCHED("the gradient of an activation");
    return MST_OK;
}

/* ---- dropout ---- */

#define RNG_DROPOUT 5 /* MST_RNG_DROPOUT of base/rng.h */

/* Four units of a row, which share a block of random words. Units count in (c, h, w). */
template <typename T, bool LAST>
static __global__ void dropout_kernel(mst_cuda_dims d, uint32_t n, uint32_t number, double rate,
                                      const net_numbers *numbers, const T *x, T *y)
{
    uint64_t limit = (uint64_t)(rate * 4294967296.0), seed = numbers->dropout[number];
    float keep = (float)(1.0 / (1.0 - rate));
    uint32_t size = d.c * d.h * d.w, inner = d.h * d.w;
    EACH_ROW(r, n)
    EACH_ITEM(i, (size + 3) / 4)
    {
        uint4 words = net_philox(seed, i, RNG_DROPOUT, numbers->first_row + r);
        uint32_t w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) {
            uint32_t unit = 4 * i + k;
            if (unit >= size)
                break;
            uint64_t at = (uint64_t)r * size + (LAST ? unit % inner * d.c + unit / inner : unit);
            net_put(&y[at], w[k] < limit ? 0.0f : net_get(&x[at]) * keep);
        }
    }
}

mst_status net_dropout(mst_cuda_net *net, const net_layer *layer, uint32_t n, const net_numbers *numbers,
                       const void *x, void *y)
{
    const mst_cuda_layer &l = layer->spec;
    dim3 grid = net_grid(n, (net_size(&l.in) + 3) / 4);
#define CALL(T, LAST)                                                                                        \
    dropout_kernel<T, LAST><<<grid, THREADS, 0, net->stream>>>(l.in, n, layer->number, l.rate, numbers,      \
                                                               (const T *)x, (T *)y)
    if (net->half && l.in.h * l.in.w > 1)
        CALL(bf16, true);
    else if (net->half)
        CALL(bf16, false);
    else if (net->last && l.in.h * l.in.w > 1)
        CALL(float, true);
    else
        CALL(float, false);
#undef CALL
    CUDA_LAUNCHED("dropout");
    return MST_OK;
}

/* ---- images as rows ---- */

template <typename T, bool BACK>
static __global__ void unfold_kernel(uint32_t c, uint32_t inner, uint32_t n, const T *x, T *y)
{
    uint32_t size = c * inner;
    EACH_ROW(r, n)
    EACH_ITEM(i, size)
    {
        uint32_t from = BACK ? i % c * inner + i / c : i % inner * c + i / inner;
        y[(uint64_t)r * size + i] = x[(uint64_t)r * size + from];
    }
}

mst_status net_unfold(mst_cuda_net *net, const mst_cuda_dims *dims, uint32_t n, bool back, const void *x,
                      void *y)
{
    dim3 grid = net_grid(n, net_size(dims));
    uint32_t inner = dims->h * dims->w;
#define CALL(T)                                                                                              \
    if (back)                                                                                                \
        unfold_kernel<T, true><<<grid, THREADS, 0, net->stream>>>(dims->c, inner, n, (const T *)x, (T *)y);  \
    else                                                                                                     \
        unfold_kernel<T, false><<<grid, THREADS, 0, net->stream>>>(dims->c, inner, n, (const T *)x, (T *)y)
    if (net->half)
        CALL(bf16);
    else
        CALL(float);
#undef CALL
    CUDA_LAUNCHED("a change of layout");
    return MST_OK;
}
