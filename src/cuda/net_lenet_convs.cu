/* The convolutions of LeNet; contract in net_lenet_impl.cuh. Arrays of images are (channel, line, column); lines
 * of shared memory have strides that spread threads over its banks. */
#include "cuda/net_lenet_impl.cuh"

#define SIDE      28
#define PIXELS    784
#define KERNEL    25
#define KERNEL_UP 28 /* a kernel in shared memory: whole float4s */
#define POOL1     196 /* 14 x 14 */
#define LINE_X    46 /* strides in shared memory: padded image, ... */
#define LINE_P    22 /* ... first pool, ... */
#define LINE_D    24 /* ... gradient of the second convolution with a margin of 4 */
#define PLANE_D   (18 * LINE_D)

/* ---- forward ---- */

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

/* ---- backward ---- */

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

/* ---- launches ---- */

mst_status lenet_convs_make(void)
{
    CUDA_TRY(cudaFuncSetAttribute(lenet_backward<uint8_t>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  sizeof(lenet_shared)));
    CUDA_TRY(cudaFuncSetAttribute(lenet_backward<float>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  sizeof(lenet_shared)));
    return MST_OK;
}

void lenet_convs_forward(mst_cuda_net *net, net_lenet *self, const lenet_params &w, uint32_t n, bool floats,
                         const void *rows)
{
    if (floats)
        lenet_forward<<<n, 256, 0, net->stream>>>(w, (const float *)rows, self->pool1, self->bits1, self->pool2,
                                                  self->bits2);
    else
        lenet_forward<<<n, 256, 0, net->stream>>>(w, (const uint8_t *)rows, self->pool1, self->bits1, self->pool2,
                                                  self->bits2);
}

void lenet_convs_backward(mst_cuda_net *net, net_lenet *self, const lenet_params &w, uint32_t n, bool floats,
                          const void *rows, uint32_t blocks)
{
    if (floats)
        lenet_backward<<<blocks, BACK_THREADS, sizeof(lenet_shared), net->stream>>>(
            w, n, (const float *)rows, self->pool1, self->bits1, self->dpool2, self->bits2, self->partial);
    else
        lenet_backward<<<blocks, BACK_THREADS, sizeof(lenet_shared), net->stream>>>(
            w, n, (const uint8_t *)rows, self->pool1, self->bits1, self->dpool2, self->bits2, self->partial);
}
