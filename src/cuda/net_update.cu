/* The end of a step: loss, clipping, update; and layouts of weights. Contract in net.cuh. */
#include "cuda/net.cuh"
#include "cuda/rules.cuh"

#define THREADS 256
#define BLOCKS  1024
#define GRID(n) mst_cuda_blocks(n, THREADS, 65535), THREADS, 0, net->stream

/* ---- loss ---- */

static __device__ __forceinline__ float warp_max(float v)
{
    for (int k = 16; k > 0; k /= 2)
        v = fmaxf(v, __shfl_xor_sync(~0u, v, k));
    return v;
}
static __device__ __forceinline__ float warp_sum(float v)
{
    for (int k = 16; k > 0; k /= 2)
        v += __shfl_xor_sync(~0u, v, k);
    return v;
}
static __device__ __forceinline__ uint32_t warp_min(uint32_t v)
{
    for (int k = 16; k > 0; k /= 2)
        v = min(v, __shfl_xor_sync(~0u, v, k));
    return v;
}

/* A warp per row: softmax and cross-entropy. losses: loss, weight and correct of each row of the batch, added
 * up over steps. */
template <typename T>
static __global__ void softmax_kernel(uint32_t n, uint32_t c, uint32_t max_rows, const net_numbers *numbers,
                                      const float *labels, const float *weights, const T *y, T *d,
                                      double *losses)
{
    uint32_t r = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (r >= n)
        return;
    const T *row = y + (size_t)r * c;
    uint32_t label = labels[r] > 0.0f ? (uint32_t)labels[r] : 0, best = UINT32_MAX;
    float top = -INFINITY, sum = 0.0f, weight = weights[r];
    for (uint32_t k = lane; k < c; k += 32)
        top = fmaxf(top, net_get(&row[k]));
    top = warp_max(top);
    for (uint32_t k = lane; k < c; k += 32) {
        float v = net_get(&row[k]);
        sum += expf(v - top);
        best = v == top && k < best ? k : best;
    }
    sum = warp_sum(sum);
    best = warp_min(best);
    float own = label < c ? net_get(&row[label]) : 0.0f, factor = numbers->scale * weight;
    __syncwarp();
    for (uint32_t k = lane; k < c; k += 32)
        net_put(&d[(size_t)r * c + k],
                factor * (expf(net_get(&row[k]) - top) / sum - (k == label ? 1.0f : 0.0f)));
    if (lane == 0) {
        losses[r] += (double)weight * ((double)logf(sum) + (double)top - (double)own);
        losses[max_rows + r] += (double)weight;
        losses[2 * (size_t)max_rows + r] += best == label;
    }
}

/* A thread per row: the logistic loss of one score. */
template <typename T>
static __global__ void logistic_kernel(uint32_t n, uint32_t max_rows, float pos_weight,
                                       const net_numbers *numbers, const float *labels, const float *weights,
                                       const T *y, T *d, double *losses)
{
    uint32_t r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= n)
        return;
    net_put(&d[r], net_logistic(r, max_rows, pos_weight, numbers, labels, weights, net_get(&y[r]), losses));
}

mst_status net_loss(mst_cuda_net *net, uint32_t n, const char *slot, const void *scores, void *d)
{
    const net_numbers *numbers = (const net_numbers *)slot;
    const float *labels = (const float *)(slot + net_labels_at()), *weights = labels + net->spec.max_rows;
    uint32_t c = net->spec.n_scores, max_rows = net->spec.max_rows, warps = THREADS / 32;
#define CALL(T)                                                                                              \
    if (c > 1)                                                                                               \
        softmax_kernel<T><<<(n + warps - 1) / warps, THREADS, 0, net->stream>>>(                             \
            n, c, max_rows, numbers, labels, weights, (const T *)scores, (T *)d, net->losses);               \
    else                                                                                                     \
        logistic_kernel<T><<<(n + THREADS - 1) / THREADS, THREADS, 0, net->stream>>>(                        \
            n, max_rows, net->spec.pos_weight, numbers, labels, weights, (const T *)scores, (T *)d,          \
            net->losses)
    if (net->half)
        CALL(bf16);
    else
        CALL(float);
#undef CALL
    CUDA_LAUNCHED("the loss");
    return MST_OK;
}

/* ---- clipping ---- */

/* The sum of squares, by the last block in the order of blocks, and of those of a table; then the factor of the
 * gradient. */
static __global__ void clip_kernel(uint64_t n, const float *g, const net_numbers *numbers, const double *others,
                                   double *partial, unsigned *counter, float *factor)
{
    __shared__ bool last;
    double sum = 0.0;
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < n; i += (uint64_t)gridDim.x * THREADS)
        sum += (double)g[i] * (double)g[i];
    sum = net_block_sum<THREADS>(sum);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        last = atomicAdd(counter, 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last)
        return;
    __threadfence();
    sum = 0.0;
    for (uint32_t k = threadIdx.x; k < gridDim.x; k += THREADS)
        sum += __ldcg(&partial[k]);
    double square = net_block_sum<THREADS>(sum);
    if (threadIdx.x == 0) {
        for (uint32_t k = 0; others != NULL && k < NET_SQUARES; k++)
            square += others[k];
        double norm = sqrt(square), limit = (double)numbers->clip_norm;
        *factor = norm > limit ? (float)(limit / norm) : 1.0f;
        *counter = 0;
    }
}

/* ---- update ---- */

/* Numbers [0, trained) by the rule; those behind are state, and replaced. Four at a time: parameters begin at
 * multiples of 64. */
template <int KIND, bool HALF>
static __global__ void update_kernel(uint64_t n, uint64_t trained, const net_numbers *numbers,
                                     const float *clip, float *w, float *a, float *b, const float *g, bf16 *wh)
{
    mst_rule rule = numbers->rule;
    float factor = clip != NULL ? *clip : 1.0f;
    for (uint64_t i = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) * 4; i < n;
         i += (uint64_t)gridDim.x * blockDim.x * 4) {
        float4 g4 = *(const float4 *)(g + i);
        float gs[4] = {g4.x, g4.y, g4.z, g4.w}, ws[4], as[4] = {0}, bs[4] = {0};
        if (i >= trained) {
            *(float4 *)(w + i) = g4;
            continue;
        }
        *(float4 *)ws = *(const float4 *)(w + i);
        if (KIND != MST_RULE_SGD)
            *(float4 *)as = *(const float4 *)(a + i);
        if (KIND == MST_RULE_ADAM || KIND == MST_RULE_FTRL)
            *(float4 *)bs = *(const float4 *)(b + i);
#pragma unroll
        for (int k = 0; k < 4; k++)
            mst_rule_apply<KIND>(&rule, ws, as, bs, k, gs[k] * factor);
        *(float4 *)(w + i) = *(float4 *)ws;
        if (KIND != MST_RULE_SGD)
            *(float4 *)(a + i) = *(float4 *)as;
        if (KIND == MST_RULE_ADAM || KIND == MST_RULE_FTRL)
            *(float4 *)(b + i) = *(float4 *)bs;
        if (HALF) {
            __nv_bfloat162 lo = __floats2bfloat162_rn(ws[0], ws[1]), hi = __floats2bfloat162_rn(ws[2], ws[3]);
            uint2 both = make_uint2(*(uint32_t *)&lo, *(uint32_t *)&hi);
            *(uint2 *)(wh + i) = both;
        }
    }
}

template <int KIND> static void update_launch(mst_cuda_net *net, const net_numbers *numbers, const float *clip)
{
    uint64_t n = net->n_floats;
    if (net->half)
        update_kernel<KIND, true><<<GRID(n / 4)>>>(n, net->n_trained, numbers, clip, net->w, net->state[0],
                                                   net->state[1], net->g, net->wh);
    else
        update_kernel<KIND, false><<<GRID(n / 4)>>>(n, net->n_trained, numbers, clip, net->w, net->state[0],
                                                    net->state[1], net->g, NULL);
}

mst_status net_update(mst_cuda_net *net, const net_numbers *numbers, bool clip)
{
    const float *factor = clip ? net->clip : NULL;
    if (clip) {
        clip_kernel<<<mst_cuda_blocks(net->n_trained, THREADS, BLOCKS), THREADS, 0, net->stream>>>(
            net->n_trained, net->g, numbers, net->table != NULL ? net_table_squares(net) : NULL, (double *)net->sums, net->counters, net->clip);
        CUDA_LAUNCHED("the norm of the gradient");
    }
    switch (net->spec.rule) {
    case MST_RULE_SGD: update_launch<MST_RULE_SGD>(net, numbers, factor); break;
    case MST_RULE_MOMENTUM: update_launch<MST_RULE_MOMENTUM>(net, numbers, factor); break;
    case MST_RULE_ADAGRAD: update_launch<MST_RULE_ADAGRAD>(net, numbers, factor); break;
    case MST_RULE_ADAM: update_launch<MST_RULE_ADAM>(net, numbers, factor); break;
    case MST_RULE_FTRL: update_launch<MST_RULE_FTRL>(net, numbers, factor); break;
    }
    CUDA_LAUNCHED("the update");
    return MST_OK;
}

/* ---- copies of weights ---- */

static __global__ void narrow_kernel(uint64_t n, const float *from, bf16 *to)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x)
        to[i] = __float2bfloat16(from[i]);
}

mst_status net_shadow(mst_cuda_net *net, uint64_t first, uint64_t n)
{
    narrow_kernel<<<GRID(n)>>>(n, net->w + first, net->wh + first);
    CUDA_LAUNCHED("a conversion");
    return MST_OK;
}

/* (out, a, b) to (out, b, a). */
static __global__ void turn_kernel(uint64_t n, uint32_t a, uint32_t b, const float *from, float *to)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x) {
        uint64_t plane = (uint64_t)a * b, o = i / plane, at = i % plane;
        to[i] = from[o * plane + at % a * b + at / a];
    }
}

mst_status net_turn(mst_cuda_net *net, const mst_cuda_layer *conv, bool back, const float *from, float *to)
{
    uint32_t n_in = conv->in.c / conv->groups, k = conv->kh * conv->kw;
    uint64_t n = (uint64_t)conv->out.c * n_in * k;
    turn_kernel<<<GRID(n)>>>(n, back ? k : n_in, back ? n_in : k, from, to);
    CUDA_LAUNCHED("a change of layout");
    return MST_OK;
}

template <typename T> static __global__ void scores_kernel(uint64_t n, const T *from, float *to)
{
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < n;
         i += (uint64_t)gridDim.x * blockDim.x)
        to[i] = net_get(&from[i]);
}

mst_status net_scores(mst_cuda_net *net, uint64_t count, const void *scores, float *out)
{
    if (net->half)
        scores_kernel<<<GRID(count)>>>(count, (const bf16 *)scores, out);
    else
        scores_kernel<<<GRID(count)>>>(count, (const float *)scores, out);
    CUDA_LAUNCHED("the scores");
    return MST_OK;
}
