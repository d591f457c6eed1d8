/* A step of LeNet in five kernels; contract in net_lenet.cuh.
 *
 *   convolutions forward   a block per image: both convolutions and pools in shared memory
 *   linear layers          a block per few images: three products, loss, and three products back
 *   convolutions backward  a block takes images in turn; gradients of filters stay in its registers, and are
 *                          written once per block
 *   gradients              products over rows for the linear layers; sums over blocks for the convolutions
 *   update                 net_update.cu
 *
 * Of the convolutions' outputs only the pools are kept, and one bit per number for relu: a byte has the four
 * numbers of a window. Arrays of images are (channel, line, column); lines of shared memory have strides that
 * spread threads over its banks. */
#include "cuda/net_lenet.cuh"

#include <new>

#define SIDE      28
#define PIXELS    784
#define FILTERS1  6
#define FILTERS2  16
#define KERNEL    25
#define KERNEL_UP 28 /* a kernel in shared memory: whole float4s */
#define POOL1     196 /* 14 x 14 */
#define POOLED1   1176
#define POOLED2   400
#define UNITS1    120
#define UNITS2    84
#define CLASSES   32 /* at most */
#define LINE_X    46 /* strides in shared memory: padded image, ... */
#define LINE_P    22 /* ... first pool, ... */
#define LINE_D    24 /* ... gradient of the second convolution with a margin of 4 */
#define PLANE_D   (18 * LINE_D)
#define PARTIAL   2576 /* gradients of the convolutions: w1 150, b1 6, w2 2400, b2 16, and 4 unused */
#define BACK_MOST 264  /* blocks of the backward kernel */

struct net_lenet {
    float *pool1, *pool2, *h1, *h2, *d1, *d2, *d3, *dpool2, *partial;
    uint8_t *bits1, *bits2;
    uint32_t classes;
};

/* The parameters, or their gradients. */
typedef struct lenet_params {
    float *cw1, *cb1, *cw2, *cb2, *w1, *b1, *w2, *b2, *w3, *b3;
} lenet_params;

static lenet_params lenet_views(const mst_cuda_net *net, float *base)
{
    lenet_params p = {base + net->at[0], base + net->at[1], base + net->at[2], base + net->at[3],
                      base + net->at[4], base + net->at[5], base + net->at[6], base + net->at[7],
                      base + net->at[8], base + net->at[9]};
    return p;
}

/* ---- description ---- */

static bool lenet_conv(const mst_cuda_layer *l, uint32_t in, uint32_t side, uint32_t out, uint32_t pad)
{
    return l->kind == MST_CUDA_CONV && l->in.c == in && l->in.h == side && l->in.w == side && l->out.c == out &&
           l->kh == 5 && l->kw == 5 && l->stride == 1 && l->pad == pad && l->groups == 1 && l->n_params == 2;
}

static bool lenet_pool(const mst_cuda_layer *l)
{
    return l->kind == MST_CUDA_AVGPOOL && l->kh == 2 && l->kw == 2 && l->stride == 2 && l->pad == 0;
}

static bool lenet_linear(const mst_cuda_layer *l, uint64_t in, uint64_t least, uint64_t most)
{
    return l->kind == MST_CUDA_LINEAR && net_size(&l->in) == in && net_size(&l->out) >= least &&
           net_size(&l->out) <= most && l->n_params == 2;
}

bool net_lenet_is(const mst_cuda_net_spec *spec)
{
    static const int relus[] = {1, 4, 7, 9};
    const mst_cuda_layer *l = spec->layers;
    if (spec->n_layers != 11 || spec->n_params != 10 || !lenet_conv(&l[0], 1, 28, FILTERS1, 2) ||
        !lenet_pool(&l[2]) || !lenet_conv(&l[3], FILTERS1, 14, FILTERS2, 0) || !lenet_pool(&l[5]) ||
        !lenet_linear(&l[6], POOLED2, UNITS1, UNITS1) || !lenet_linear(&l[8], UNITS1, UNITS2, UNITS2) ||
        !lenet_linear(&l[10], UNITS2, 2, CLASSES))
        return false;
    for (int i = 0; i < 4; i++)
        if (l[relus[i]].kind != MST_CUDA_RELU)
            return false;
    for (uint32_t i = 0, k = 0; i < 11; i++)
        if (l[i].n_params > 0 && l[i].first_param != 2 * k++)
            return false;
    return true;
}

template <typename T> static mst_status lenet_array(mst_cuda_net *net, size_t n, T **out)
{
    return net_alloc(net, n * sizeof(T), (void **)out);
}

/* ---- convolutions forward ---- */

/* Loads the image as numbers, with a margin of 2. */
template <typename IN> static __device__ void lenet_load(const IN *row, float *x)
{
    for (uint32_t i = threadIdx.x; i < 32 * LINE_X; i += blockDim.x) {
        int line = (int)(i / LINE_X) - 2, column = (int)(i % LINE_X) - 2;
        bool inside = line >= 0 && line < SIDE && column >= 0 && column < SIDE;
        float v = inside ? (float)row[line * SIDE + column] : 0.0f;
        x[i] = sizeof(IN) == 1 ? v / 255.0f : v;
    }
}

static __device__ void lenet_load_kernels(const float *from, uint32_t n, float *to)
{
    for (uint32_t i = threadIdx.x; i < n * KERNEL; i += blockDim.x)
        to[i / KERNEL * KERNEL_UP + i % KERNEL] = from[i];
}

static __device__ __forceinline__ void lenet_kernel(const float *from, float *k)
{
#pragma unroll
    for (int i = 0; i < KERNEL_UP / 4; i++)
        *(float4 *)(k + 4 * i) = *(const float4 *)(from + 4 * i);
}

/* 6 x 6 numbers. */
static __device__ __forceinline__ void lenet_patch(const float *from, int line, float (*patch)[6])
{
#pragma unroll
    for (int r = 0; r < 6; r++)
#pragma unroll
        for (int c = 0; c < 6; c += 2)
            *(float2 *)&patch[r][c] = *(const float2 *)(from + r * line + c);
}

/* Adds the kernel at the four places of a patch. */
static __device__ __forceinline__ void lenet_window(const float (*patch)[6], const float *k, float *sums)
{
#pragma unroll
    for (int i = 0; i < 5; i++)
#pragma unroll
        for (int j = 0; j < 5; j++) {
            sums[0] += k[i * 5 + j] * patch[i][j];
            sums[1] += k[i * 5 + j] * patch[i][j + 1];
            sums[2] += k[i * 5 + j] * patch[i + 1][j];
            sums[3] += k[i * 5 + j] * patch[i + 1][j + 1];
        }
}

/* Bias, relu and average of the four; bits of those above 0. */
static __device__ __forceinline__ float lenet_pool_of(float *sums, float bias, uint8_t *bits)
{
    float total = 0.0f;
    uint8_t set = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float v = sums[i] + bias;
        set |= (uint8_t)((v > 0.0f) << i);
        total += fmaxf(v, 0.0f);
    }
    *bits = set;
    return total * 0.25f;
}

template <typename IN>
static __global__ void __launch_bounds__(256)
    lenet_forward(lenet_params w, const IN *rows, float *pool1, uint8_t *bits1, float *pool2, uint8_t *bits2)
{
    __shared__ __align__(16) float x[32 * LINE_X], p1[FILTERS1 * 14 * LINE_P];
    __shared__ __align__(16) float k1[FILTERS1 * KERNEL_UP], k2[FILTERS2 * FILTERS1 * KERNEL_UP];
    uint32_t r = blockIdx.x, t = threadIdx.x, warp = t / 32, lane = t % 32;
    float patch[6][6], kernel[KERNEL_UP];
    lenet_load(rows + (size_t)r * PIXELS, x);
    lenet_load_kernels(w.cw1, FILTERS1, k1);
    lenet_load_kernels(w.cw2, FILTERS2 * FILTERS1, k2);
    __syncthreads();
    if (t < POOL1) {
        uint32_t py = t / 14, px = t % 14;
        lenet_patch(x + 2 * py * LINE_X + 2 * px, LINE_X, patch);
#pragma unroll 1
        for (int f = 0; f < FILTERS1; f++) {
            float sums[4] = {0};
            uint8_t bits;
            lenet_kernel(k1 + f * KERNEL_UP, kernel);
            lenet_window(patch, kernel, sums);
            float v = lenet_pool_of(sums, w.cb1[f], &bits);
            p1[(f * 14 + py) * LINE_P + px] = v;
            pool1[(size_t)r * POOLED1 + f * POOL1 + t] = v;
            bits1[(size_t)r * POOLED1 + f * POOL1 + t] = bits;
        }
    }
    __syncthreads();
    if (lane >= 25)
        return;
    uint32_t py = lane / 5, px = lane % 5;
    float sums[2][4] = {{0}};
#pragma unroll 1
    for (int c = 0; c < FILTERS1; c++) {
        lenet_patch(p1 + (c * 14 + 2 * py) * LINE_P + 2 * px, LINE_P, patch);
#pragma unroll
        for (int f = 0; f < 2; f++) {
            lenet_kernel(k2 + ((2 * warp + f) * FILTERS1 + c) * KERNEL_UP, kernel);
            lenet_window(patch, kernel, sums[f]);
        }
    }
#pragma unroll
    for (int f = 0; f < 2; f++) {
        uint32_t o = 2 * warp + f, at = o * 25 + lane;
        uint8_t bits;
        pool2[(size_t)r * POOLED2 + at] = lenet_pool_of(sums[f], w.cb2[o], &bits);
        bits2[(size_t)r * POOLED2 + at] = bits;
    }
}

/* ---- linear layers ---- */

typedef struct lenet_rows {
    float *h1, *h2, *d1, *d2, *d3, *dpool2;
    const float *pool2, *labels, *weights;
    double *losses;
} lenet_rows;

/* out[i][o] of IMG images, o < n: sum over k < size of x[i][k] * w[o * size + k]; `parts` threads per output,
 * each with a part of the sum. x has lines of `size` numbers. */
template <int IMG, int PARTS>
static __device__ void lenet_product(uint32_t n, uint32_t size, const float *w, const float *bias,
                                     const float *x, float *parts, float *out)
{
    uint32_t t = threadIdx.x, o = t % n, part = t / n, from = part * (size / PARTS);
    float sums[IMG] = {0};
    if (part < PARTS) {
        const float *row = w + (size_t)o * size + from;
#pragma unroll 5
        for (uint32_t k = 0; k < size / PARTS; k += 4) {
            float4 v = *(const float4 *)(row + k);
#pragma unroll
            for (int i = 0; i < IMG; i++) {
                float4 u = *(const float4 *)(x + i * size + from + k);
                sums[i] += v.x * u.x + v.y * u.y + v.z * u.z + v.w * u.w;
            }
        }
#pragma unroll
        for (int i = 0; i < IMG; i++)
            parts[(part * n + o) * IMG + i] = sums[i];
    }
    __syncthreads();
    for (uint32_t j = t; j < n * IMG; j += blockDim.x) {
        uint32_t unit = j / IMG, i = j % IMG;
        float v = bias[unit];
#pragma unroll
        for (int p = 0; p < PARTS; p++)
            v += parts[(p * n + unit) * IMG + i];
        out[i * n + unit] = fmaxf(v, 0.0f);
    }
    __syncthreads();
}

/* out[k][i] = sum over o < n of d[o][i] * w[o * size + k], k < size, in fours. */
template <int IMG, int PARTS>
static __device__ void lenet_product_back(uint32_t n, uint32_t size, const float *w, const float *d,
                                          float *parts, float *out)
{
    uint32_t t = threadIdx.x, fours = size / 4, k = t % fours * 4, part = t / fours;
    float sums[4][IMG] = {{0}};
    if (part < PARTS) {
        uint32_t from = part * (n / PARTS);
#pragma unroll 6
        for (uint32_t o = from; o < from + n / PARTS; o++) {
            float4 v = *(const float4 *)(w + (size_t)o * size + k);
#pragma unroll
            for (int i = 0; i < IMG; i++) {
                float u = d[o * IMG + i];
                sums[0][i] += v.x * u;
                sums[1][i] += v.y * u;
                sums[2][i] += v.z * u;
                sums[3][i] += v.w * u;
            }
        }
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int i = 0; i < IMG; i++)
                parts[(part * size + k + j) * IMG + i] = sums[j][i];
    }
    __syncthreads();
    for (uint32_t j = t; j < size * IMG; j += blockDim.x) {
        float v = 0.0f;
#pragma unroll
        for (int p = 0; p < PARTS; p++)
            v += parts[p * size * IMG + j];
        out[j] = v;
    }
    __syncthreads();
}

/* Scores, loss and its gradient: a warp per image. */
template <int IMG>
static __device__ void lenet_loss(const lenet_params &w, const lenet_rows &a, const net_numbers *numbers,
                                  uint32_t first, uint32_t n, uint32_t max_rows, uint32_t classes,
                                  const float *h2, float *d3)
{
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp >= IMG)
        return;
    uint32_t r = first + warp;
    float score = -INFINITY, own = 0.0f;
    for (uint32_t c = 0; c < classes; c++) {
        float sum = 0.0f;
        for (uint32_t k = lane; k < UNITS2; k += 32)
            sum += w.w3[c * UNITS2 + k] * h2[warp * UNITS2 + k];
#pragma unroll
        for (int k = 16; k > 0; k /= 2)
            sum += __shfl_xor_sync(~0u, sum, k);
        score = lane == c ? sum + w.b3[c] : score;
    }
    bool there = r < n;
    uint32_t label = there && a.labels[r] > 0.0f ? (uint32_t)a.labels[r] : 0;
    float weight = there ? a.weights[r] : 0.0f, top = score;
#pragma unroll
    for (int k = 16; k > 0; k /= 2)
        top = fmaxf(top, __shfl_xor_sync(~0u, top, k));
    uint32_t best = score == top ? lane : 32;
    float e = lane < classes ? expf(score - top) : 0.0f, sum = e;
#pragma unroll
    for (int k = 16; k > 0; k /= 2) {
        sum += __shfl_xor_sync(~0u, sum, k);
        best = min(best, __shfl_xor_sync(~0u, best, k));
    }
    own = __shfl_sync(~0u, score, label < 32 ? label : 0);
    if (lane < classes) {
        float d = numbers->scale * weight * (e / sum - (lane == label ? 1.0f : 0.0f));
        d3[lane * IMG + warp] = d;
        if (there)
            a.d3[(size_t)r * CLASSES + lane] = d;
    }
    if (lane == 0 && there) {
        a.losses[r] += (double)weight * ((double)logf(sum) + (double)top - (double)own);
        a.losses[max_rows + r] += (double)weight;
        a.losses[2 * (size_t)max_rows + r] += best == label;
    }
}

/* Zeroes gradients of units that are 0, and copies them to memory. d is [unit][i], h is [i][unit]. */
template <int IMG>
static __device__ void lenet_gate(uint32_t units, uint32_t first, uint32_t n, const float *h, float *d,
                                  float *h_out, float *d_out)
{
    for (uint32_t j = threadIdx.x; j < units * IMG; j += blockDim.x) {
        uint32_t i = j / units, unit = j % units;
        float v = h[j] > 0.0f ? d[unit * IMG + i] : 0.0f;
        d[unit * IMG + i] = v;
        if (first + i < n) {
            h_out[(size_t)(first + i) * units + unit] = h[j];
            d_out[(size_t)(first + i) * units + unit] = v;
        }
    }
    __syncthreads();
}

template <int IMG>
static __global__ void __launch_bounds__(256)
    lenet_linear_kernel(lenet_params w, lenet_rows a, const net_numbers *numbers, uint32_t n, uint32_t max_rows,
                        uint32_t classes)
{
    __shared__ __align__(16) float x[IMG * POOLED2], h1[IMG * UNITS1], h2[IMG * UNITS2];
    __shared__ __align__(16) float d1[UNITS1 * IMG], d2[UNITS2 * IMG], d3[CLASSES * IMG];
    __shared__ __align__(16) float parts[2 * POOLED2 * IMG];
    uint32_t first = blockIdx.x * IMG;
    for (uint32_t j = threadIdx.x; j < IMG * POOLED2; j += blockDim.x)
        x[j] = first + j / POOLED2 < n ? a.pool2[(size_t)first * POOLED2 + j] : 0.0f;
    __syncthreads();
    lenet_product<IMG, 2>(UNITS1, POOLED2, w.w1, w.b1, x, parts, h1);
    lenet_product<IMG, 3>(UNITS2, UNITS1, w.w2, w.b2, h1, parts, h2);
    lenet_loss<IMG>(w, a, numbers, first, n, max_rows, classes, h2, d3);
    __syncthreads();
    for (uint32_t j = threadIdx.x; j < UNITS2 * IMG; j += blockDim.x) {
        uint32_t unit = j / IMG, i = j % IMG;
        float sum = 0.0f;
        for (uint32_t c = 0; c < classes; c++)
            sum += w.w3[c * UNITS2 + unit] * d3[c * IMG + i];
        d2[j] = sum;
    }
    __syncthreads();
    lenet_gate<IMG>(UNITS2, first, n, h2, d2, a.h2, a.d2);
    lenet_product_back<IMG, 6>(UNITS2, UNITS1, w.w2, d2, parts, d1);
    lenet_gate<IMG>(UNITS1, first, n, h1, d1, a.h1, a.d1);
    lenet_product_back<IMG, 2>(UNITS1, POOLED2, w.w1, d1, parts, x);
    for (uint32_t j = threadIdx.x; j < IMG * POOLED2; j += blockDim.x)
        if (first + j / POOLED2 < n)
            a.dpool2[(size_t)first * POOLED2 + j] = x[j % POOLED2 * IMG + j / POOLED2];
}

/* ---- convolutions backward ---- */

typedef struct lenet_shared {
    float x[32 * LINE_X], p1[FILTERS1 * 14 * LINE_P], d2[FILTERS2 * PLANE_D];
    float k2[FILTERS2 * FILTERS1 * KERNEL_UP], d1[FILTERS1 * PIXELS];
} lenet_shared;

#define BACK_THREADS 320

/* The gradient of the second convolution, with a margin of zeros. */
static __device__ void lenet_expand2(const float *dpool2, const uint8_t *bits2, float *d2)
{
    for (uint32_t j = threadIdx.x; j < POOLED2; j += BACK_THREADS) {
        uint32_t o = j / 25, py = j % 25 / 5, px = j % 5, bits = bits2[j];
        float v = dpool2[j] * 0.25f, *at = d2 + o * PLANE_D + (2 * py + 4) * LINE_D + 2 * px + 4;
        *(float2 *)at = make_float2(bits & 1 ? v : 0.0f, bits & 2 ? v : 0.0f);
        *(float2 *)(at + LINE_D) = make_float2(bits & 4 ? v : 0.0f, bits & 8 ? v : 0.0f);
    }
}

/* Thread (two filters, channel, line of the kernel): adds to 2 x 5 gradients. */
static __device__ __forceinline__ void lenet_filter2(const lenet_shared *s, float (*g)[5])
{
    uint32_t t = threadIdx.x, ky = t % 5, c = t / 5 % 6, pair = t / 30;
    for (int y = 0; y < 10; y++) {
        float p[14], d[10];
#pragma unroll
        for (int i = 0; i < 14; i += 2)
            *(float2 *)&p[i] = *(const float2 *)&s->p1[(c * 14 + y + ky) * LINE_P + i];
#pragma unroll
        for (int f = 0; f < 2; f++) {
#pragma unroll
            for (int i = 0; i < 10; i += 2)
                *(float2 *)&d[i] = *(const float2 *)&s->d2[(2 * pair + f) * PLANE_D + (y + 4) * LINE_D + 4 + i];
#pragma unroll
            for (int i = 0; i < 10; i++)
#pragma unroll
                for (int k = 0; k < 5; k++)
                    g[f][k] += d[i] * p[i + k];
        }
    }
}

/* Thread (channel, 2 x 2 numbers of the first pool): their gradients, spread over the 4 x 4 numbers of the first
 * convolution. */
static __device__ __forceinline__ void lenet_data2(lenet_shared *s, const uint8_t *bits1)
{
    uint32_t t = threadIdx.x, c = t / 49, y = t % 49 / 7 * 2, x = t % 7 * 2;
    float sums[4] = {0};
#pragma unroll 1
    for (int o = 0; o < FILTERS2; o++) {
        float patch[6][6], kernel[KERNEL_UP];
        lenet_patch(s->d2 + o * PLANE_D + y * LINE_D + x, LINE_D, patch);
        lenet_kernel(s->k2 + (o * FILTERS1 + c) * KERNEL_UP, kernel);
#pragma unroll
        for (int i = 0; i < 5; i++)
#pragma unroll
            for (int j = 0; j < 5; j++) {
                float k = kernel[i * 5 + j];
                sums[0] += k * patch[4 - i][4 - j];
                sums[1] += k * patch[4 - i][5 - j];
                sums[2] += k * patch[5 - i][4 - j];
                sums[3] += k * patch[5 - i][5 - j];
            }
    }
#pragma unroll
    for (int q = 0; q < 4; q++) {
        uint32_t py = y + q / 2, px = x + q % 2, bits = bits1[c * POOL1 + py * 14 + px];
        float v = sums[q] * 0.25f, *at = s->d1 + c * PIXELS + 2 * py * SIDE + 2 * px;
        *(float2 *)at = make_float2(bits & 1 ? v : 0.0f, bits & 2 ? v : 0.0f);
        *(float2 *)(at + SIDE) = make_float2(bits & 4 ? v : 0.0f, bits & 8 ? v : 0.0f);
    }
}

/* Thread (channel, line of the kernel, four lines of the image): adds to 5 gradients. */
static __device__ __forceinline__ void lenet_filter1(const lenet_shared *s, float *g)
{
    uint32_t t = threadIdx.x, c = t / 35, ky = t / 7 % 5, group = t % 7;
    for (uint32_t y = 4 * group; y < 4 * group + 4; y++) {
        const float *line = s->x + (y + ky) * LINE_X, *d = s->d1 + c * PIXELS + y * SIDE;
        float p[8];
        *(float2 *)&p[4] = *(const float2 *)line;
        *(float2 *)&p[6] = *(const float2 *)(line + 2);
#pragma unroll
        for (int i = 0; i < SIDE; i += 4) {
            float4 v = *(const float4 *)(d + i);
            float q[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int k = 0; k < 4; k++)
                p[k] = p[k + 4];
            *(float2 *)&p[4] = *(const float2 *)(line + i + 4);
            *(float2 *)&p[6] = *(const float2 *)(line + i + 6);
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int k = 0; k < 5; k++)
                    g[k] += q[j] * p[j + k];
        }
    }
}

/* Gradients of biases: of the second convolution by threads 240 to 255, of the first by 210 to 293. */
static __device__ __forceinline__ float lenet_bias2(const lenet_shared *s)
{
    float sum = 0.0f;
    for (int i = 0; i < 100; i++)
        sum += s->d2[(threadIdx.x - 240) * PLANE_D + (i / 10 + 4) * LINE_D + 4 + i % 10];
    return sum;
}
static __device__ __forceinline__ float lenet_bias1(const lenet_shared *s)
{
    float sum = 0.0f;
    for (int i = 0; i < 56; i++)
        sum += s->d1[(threadIdx.x - 210) * 56 + i];
    return sum;
}

template <typename IN>
static __global__ void __launch_bounds__(BACK_THREADS)
    lenet_backward(lenet_params w, uint32_t n, const IN *rows, const float *pool1, const uint8_t *bits1,
                   const float *dpool2, const uint8_t *bits2, float *partial)
{
    extern __shared__ __align__(16) unsigned char memory[];
    lenet_shared *s = (lenet_shared *)memory;
    uint32_t t = threadIdx.x;
    float g2[2][5] = {{0}}, g1[5] = {0}, b1 = 0.0f, b2 = 0.0f;
    lenet_load_kernels(w.cw2, FILTERS2 * FILTERS1, s->k2);
    for (uint32_t j = t; j < FILTERS2 * PLANE_D; j += BACK_THREADS)
        s->d2[j] = 0.0f;
    for (uint32_t r = blockIdx.x; r < n; r += gridDim.x) {
        __syncthreads();
        lenet_load(rows + (size_t)r * PIXELS, s->x);
        for (uint32_t j = t; j < POOLED1; j += BACK_THREADS)
            s->p1[(j / 14) * LINE_P + j % 14] = pool1[(size_t)r * POOLED1 + j];
        lenet_expand2(dpool2 + (size_t)r * POOLED2, bits2 + (size_t)r * POOLED2, s->d2);
        __syncthreads();
        if (t < 294)
            lenet_data2(s, bits1 + (size_t)r * POOLED1);
        if (t < 240)
            lenet_filter2(s, g2);
        else if (t < 256)
            b2 += lenet_bias2(s);
        __syncthreads();
        if (t < 210)
            lenet_filter1(s, g1);
        else if (t < 294)
            b1 += lenet_bias1(s);
    }
    float *out = partial + (size_t)blockIdx.x * PARTIAL;
    __syncthreads();
    float *share = s->x; /* of the seven threads of a gradient of the first convolution, and its biases */
    if (t < 210)
        for (int k = 0; k < 5; k++)
            share[((t / 7) * 5 + k) * 7 + t % 7] = g1[k];
    else if (t < 294)
        share[1050 + t - 210] = b1;
    if (t < 240)
        for (int f = 0; f < 2; f++)
            for (int k = 0; k < 5; k++)
                out[156 + ((2 * (t / 30) + f) * FILTERS1 + t / 5 % 6) * KERNEL + t % 5 * 5 + k] = g2[f][k];
    else if (t < 256)
        out[2556 + t - 240] = b2;
    __syncthreads();
    if (t < 150) {
        float sum = 0.0f;
        for (int i = 0; i < 7; i++)
            sum += share[t * 7 + i];
        out[t] = sum;
    } else if (t < 156) {
        float sum = 0.0f;
        for (int i = 0; i < 14; i++)
            sum += share[1050 + (t - 150) * 14 + i];
        out[t] = sum;
    }
}

/* ---- gradients ---- */

#define TILE_O 16
#define TILE_K 64
#define TILE_N 32

/* out[o][k] = sum over rows of d[row][o] * x[row][k], a tile of 16 x 64; 128 threads of 2 x 4. */
static __device__ void lenet_outer(uint32_t n, uint32_t outs, uint32_t d_line, const float *d, uint32_t size,
                                   const float *x, uint32_t tile, float *out)
{
    __shared__ __align__(16) float ds[TILE_N][TILE_O], xs[TILE_N][TILE_K];
    uint32_t tiles_k = (size + TILE_K - 1) / TILE_K, o0 = tile / tiles_k * TILE_O, k0 = tile % tiles_k * TILE_K;
    uint32_t t = threadIdx.x, o = t / 16 * 2, k = t % 16 * 4;
    float sums[2][4] = {{0}};
    for (uint32_t r0 = 0; r0 < n; r0 += TILE_N) {
        __syncthreads();
#pragma unroll 4
        for (uint32_t j = t; j < TILE_N * TILE_O; j += 128) {
            uint32_t r = j / TILE_O, i = j % TILE_O;
            ds[r][i] = r0 + r < n && o0 + i < outs ? d[(size_t)(r0 + r) * d_line + o0 + i] : 0.0f;
        }
#pragma unroll 4
        for (uint32_t j = t; j < TILE_N * TILE_K / 4; j += 128) {
            uint32_t r = j / (TILE_K / 4), i = j % (TILE_K / 4) * 4;
            float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (r0 + r < n && k0 + i < size) /* sizes are multiples of 4 */
                v = *(const float4 *)(x + (size_t)(r0 + r) * size + k0 + i);
            *(float4 *)&xs[r][i] = v;
        }
        __syncthreads();
#pragma unroll 8
        for (int r = 0; r < TILE_N; r++) {
            float4 v = *(const float4 *)&xs[r][k];
            float2 u = *(const float2 *)&ds[r][o];
            sums[0][0] += u.x * v.x;
            sums[0][1] += u.x * v.y;
            sums[0][2] += u.x * v.z;
            sums[0][3] += u.x * v.w;
            sums[1][0] += u.y * v.x;
            sums[1][1] += u.y * v.y;
            sums[1][2] += u.y * v.z;
            sums[1][3] += u.y * v.w;
        }
    }
    for (int i = 0; i < 2; i++)
        if (o0 + o + i < outs && k0 + k < size)
            *(float4 *)(out + (size_t)(o0 + o + i) * size + k0 + k) =
                make_float4(sums[i][0], sums[i][1], sums[i][2], sums[i][3]);
}

/* Sums of columns [first, first + 16) of n lines; 128 threads: 8 lines at a time. */
static __device__ void lenet_columns(uint32_t n, uint32_t line, uint32_t first, uint32_t columns, const float *from,
                                     float *out)
{
    __shared__ float parts[8][16];
    uint32_t t = threadIdx.x, c = t % 16, l = t / 16;
    float sum = 0.0f;
    if (first + c < columns)
#pragma unroll 4
        for (uint32_t r = l; r < n; r += 8)
            sum += from[(size_t)r * line + first + c];
    parts[l][c] = sum;
    __syncthreads();
    if (l == 0 && first + c < columns) {
        for (int i = 1; i < 8; i++)
            sum += parts[i][c];
        *out = sum;
    }
}

#define GRAD_FC1  56 /* blocks: tiles of 120 x 400, 84 x 120 and classes x 84, then columns in sixteens */
#define GRAD_FC2  12
#define GRAD_CONV 161

/* The place of gradient i of the convolutions. */
static __device__ float *lenet_conv_place(const lenet_params &g, uint32_t i)
{
    return i < 150 ? g.cw1 + i : i < 156 ? g.cb1 + (i - 150) : i < 2556 ? g.cw2 + (i - 156) : g.cb2 + (i - 2556);
}

static __global__ void __launch_bounds__(128)
    lenet_gradients(lenet_params g, lenet_rows a, uint32_t n, uint32_t classes, uint32_t blocks,
                    const float *partial)
{
    uint32_t b = blockIdx.x, fc3 = (classes + TILE_O - 1) / TILE_O * 2, c = threadIdx.x % 16;
    if (b < GRAD_FC1) {
        lenet_outer(n, UNITS1, UNITS1, a.d1, POOLED2, a.pool2, b, g.w1);
        return;
    }
    b -= GRAD_FC1;
    if (b < GRAD_FC2) {
        lenet_outer(n, UNITS2, UNITS2, a.d2, UNITS1, a.h1, b, g.w2);
        return;
    }
    b -= GRAD_FC2;
    if (b < fc3) {
        lenet_outer(n, classes, CLASSES, a.d3, UNITS2, a.h2, b, g.w3);
        return;
    }
    b -= fc3;
    if (b < GRAD_CONV) {
        uint32_t i = b * 16 + c;
        lenet_columns(blocks, PARTIAL, b * 16, 2572, partial, i < 2572 ? lenet_conv_place(g, i) : NULL);
        return;
    }
    b -= GRAD_CONV;
    if (b < 8)
        lenet_columns(n, UNITS1, b * 16, UNITS1, a.d1, g.b1 + b * 16 + c);
    else if (b < 14)
        lenet_columns(n, UNITS2, (b - 8) * 16, UNITS2, a.d2, g.b2 + (b - 8) * 16 + c);
    else
        lenet_columns(n, CLASSES, (b - 14) * 16, classes, a.d3, g.b3 + (b - 14) * 16 + c);
}

/* ---- the step ---- */

mst_status net_lenet_make(mst_cuda_net *net, net_lenet **out)
{
    net_lenet *self = new (std::nothrow) net_lenet();
    size_t n = net->spec.max_rows;
    if (self == NULL)
        return mst_cuda_plugin_host->fail(MST_ENOMEM, "out of memory");
    *out = self;
    self->classes = net->spec.n_scores;
    NET_TRY(lenet_array(net, n * POOLED1, &self->pool1));
    NET_TRY(lenet_array(net, n * POOLED1, &self->bits1));
    NET_TRY(lenet_array(net, n * POOLED2, &self->pool2));
    NET_TRY(lenet_array(net, n * POOLED2, &self->bits2));
    NET_TRY(lenet_array(net, n * POOLED2, &self->dpool2));
    NET_TRY(lenet_array(net, n * UNITS1, &self->h1));
    NET_TRY(lenet_array(net, n * UNITS1, &self->d1));
    NET_TRY(lenet_array(net, n * UNITS2, &self->h2));
    NET_TRY(lenet_array(net, n * UNITS2, &self->d2));
    NET_TRY(lenet_array(net, n * CLASSES, &self->d3));
    NET_TRY(lenet_array(net, (size_t)BACK_MOST * PARTIAL, &self->partial));
    CUDA_TRY(cudaFuncSetAttribute(lenet_backward<uint8_t>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  sizeof(lenet_shared)));
    CUDA_TRY(cudaFuncSetAttribute(lenet_backward<float>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  sizeof(lenet_shared)));
    return MST_OK;
}

void net_lenet_free(net_lenet *self)
{
    delete self;
}

template <typename IN>
static mst_status lenet_train(mst_cuda_net *net, net_lenet *self, uint32_t n, const char *slot)
{
    const net_numbers *numbers = (const net_numbers *)slot;
    const IN *rows = (const IN *)(slot + net_rows_at(net));
    lenet_params w = lenet_views(net, net->w), g = lenet_views(net, net->g);
    lenet_rows a = {self->h1,     self->h2,    self->d1, self->d2, self->d3, self->dpool2,
                    self->pool2,  NULL,        NULL,     net->losses};
    uint32_t blocks = n < BACK_MOST ? n : BACK_MOST, max_rows = net->spec.max_rows;
    uint32_t tiles3 = (self->classes + TILE_O - 1) / TILE_O;
    a.labels = (const float *)(slot + net_labels_at());
    a.weights = a.labels + max_rows;
    lenet_forward<IN><<<n, 256, 0, net->stream>>>(w, rows, self->pool1, self->bits1, self->pool2, self->bits2);
    if (n <= 64)
        lenet_linear_kernel<1><<<n, 256, 0, net->stream>>>(w, a, numbers, n, max_rows, self->classes);
    else if (n <= 256)
        lenet_linear_kernel<2><<<(n + 1) / 2, 256, 0, net->stream>>>(w, a, numbers, n, max_rows, self->classes);
    else
        lenet_linear_kernel<4><<<(n + 3) / 4, 256, 0, net->stream>>>(w, a, numbers, n, max_rows, self->classes);
    lenet_backward<IN><<<blocks, BACK_THREADS, sizeof(lenet_shared), net->stream>>>(
        w, n, rows, self->pool1, self->bits1, self->dpool2, self->bits2, self->partial);
    lenet_gradients<<<GRAD_FC1 + GRAD_FC2 + 2 * tiles3 + GRAD_CONV + 14 + tiles3, 128, 0, net->stream>>>(
        g, a, n, self->classes, blocks, self->partial);
    CUDA_LAUNCHED("a step of LeNet");
    return MST_OK;
}

mst_status net_lenet_train(mst_cuda_net *net, net_lenet *self, uint32_t n, bool floats, const char *slot)
{
    return floats ? lenet_train<float>(net, self, n, slot) : lenet_train<uint8_t>(net, self, n, slot);
}
