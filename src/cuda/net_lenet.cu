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
 * numbers of a window. */
#include "cuda/net_lenet_impl.cuh"

#include <new>

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

/* ---- gradients ---- */

#define TILE_O 16
#define TILE_K 64
#define TILE_N 32
#define GROUPS 4

/* out[o][k] = sum over rows of d[row][o] * x[row][k], a tile of 16 x 64. Four groups of 128 threads take every
 * fourth TILE_N rows; a thread has 2 x 4 sums, which the groups add up in order at the end. */
static __device__ void lenet_outer(uint32_t n, uint32_t outs, uint32_t d_line, const float *d, uint32_t size,
                                   const float *x, uint32_t tile, float *out)
{
    __shared__ __align__(16) float ds[GROUPS][TILE_N][TILE_O], xs[GROUPS][TILE_N][TILE_K];
    uint32_t tiles_k = (size + TILE_K - 1) / TILE_K, o0 = tile / tiles_k * TILE_O, k0 = tile % tiles_k * TILE_K;
    uint32_t group = threadIdx.x / 128, t = threadIdx.x % 128, o = t / 16 * 2, k = t % 16 * 4;
    float sums[2][4] = {{0}};
    for (uint32_t r0 = 0; r0 < n; r0 += GROUPS * TILE_N) {
        uint32_t first = r0 + group * TILE_N;
        float dv[TILE_N * TILE_O / 128];
        float4 xv[TILE_N * TILE_K / 512];
#pragma unroll
        for (uint32_t j = 0; j < TILE_N * TILE_O / 128; j++) {
            uint32_t r = (j * 128 + t) / TILE_O, i = t % TILE_O;
            dv[j] = first + r < n && o0 + i < outs ? d[(size_t)(first + r) * d_line + o0 + i] : 0.0f;
        }
#pragma unroll
        for (uint32_t j = 0; j < TILE_N * TILE_K / 512; j++) {
            uint32_t r = (j * 128 + t) / (TILE_K / 4), i = t % (TILE_K / 4) * 4;
            xv[j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (first + r < n && k0 + i < size) /* sizes are multiples of 4 */
                xv[j] = *(const float4 *)(x + (size_t)(first + r) * size + k0 + i);
        }
        __syncthreads();
#pragma unroll
        for (uint32_t j = 0; j < TILE_N * TILE_O / 128; j++)
            ds[group][(j * 128 + t) / TILE_O][t % TILE_O] = dv[j];
#pragma unroll
        for (uint32_t j = 0; j < TILE_N * TILE_K / 512; j++)
            *(float4 *)&xs[group][(j * 128 + t) / (TILE_K / 4)][t % (TILE_K / 4) * 4] = xv[j];
        __syncthreads();
#pragma unroll 8
        for (int r = 0; r < TILE_N; r++) {
            float4 v = *(const float4 *)&xs[group][r][k];
            float2 u = *(const float2 *)&ds[group][r][o];
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
    __syncthreads();
    float *share = &xs[0][0][0]; /* 8 sums of each thread */
    for (int i = 0; i < 8; i++)
        share[(group * 8 + i) * 128 + t] = sums[i / 4][i % 4];
    __syncthreads();
    for (uint32_t j = threadIdx.x; j < TILE_O * TILE_K; j += GROUPS * 128) {
        uint32_t i = j / 128, thread = j % 128, row = o0 + thread / 16 * 2 + i / 4, column = k0 + thread % 16 * 4 + i % 4;
        float sum = 0.0f;
        for (int g = 0; g < GROUPS; g++)
            sum += share[(g * 8 + i) * 128 + thread];
        if (row < outs && column < size)
            out[(size_t)row * size + column] = sum;
    }
}

/* Sums of columns [first, first + 16) of n lines: 32 lines at a time. */
static __device__ void lenet_columns(uint32_t n, uint32_t line, uint32_t first, uint32_t columns, const float *from,
                                     float *out)
{
    __shared__ float parts[8 * GROUPS][16];
    uint32_t t = threadIdx.x, c = t % 16, l = t / 16;
    float sum = 0.0f;
    if (first + c < columns)
#pragma unroll 4
        for (uint32_t r = l; r < n; r += 8 * GROUPS)
            sum += from[(size_t)r * line + first + c];
    parts[l][c] = sum;
    __syncthreads();
    if (l == 0 && first + c < columns) {
        for (int i = 1; i < 8 * GROUPS; i++)
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

static __global__ void __launch_bounds__(GROUPS * 128)
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
    return lenet_convs_make();
}

void net_lenet_free(net_lenet *self)
{
    delete self;
}

mst_status net_lenet_train(mst_cuda_net *net, net_lenet *self, uint32_t n, bool floats, const char *slot)
{
    const net_numbers *numbers = (const net_numbers *)slot;
    const void *rows = slot + net_rows_at(net);
    lenet_params w = lenet_views(net, net->w), g = lenet_views(net, net->g);
    lenet_rows a = {self->h1,     self->h2,    self->d1, self->d2, self->d3, self->dpool2,
                    self->pool2,  NULL,        NULL,     net->losses};
    uint32_t blocks = n < BACK_MOST ? n : BACK_MOST, max_rows = net->spec.max_rows;
    uint32_t tiles3 = (self->classes + TILE_O - 1) / TILE_O;
    a.labels = (const float *)(slot + net_labels_at());
    a.weights = a.labels + max_rows;
    lenet_convs_forward(net, self, w, n, floats, rows);
    if (n <= 64)
        lenet_linear_kernel<1><<<n, 256, 0, net->stream>>>(w, a, numbers, n, max_rows, self->classes);
    else if (n <= 256)
        lenet_linear_kernel<2><<<(n + 1) / 2, 256, 0, net->stream>>>(w, a, numbers, n, max_rows, self->classes);
    else
        lenet_linear_kernel<4><<<(n + 3) / 4, 256, 0, net->stream>>>(w, a, numbers, n, max_rows, self->classes);
    lenet_convs_backward(net, self, w, n, floats, rows, blocks);
    lenet_gradients<<<GRAD_FC1 + GRAD_FC2 + 2 * tiles3 + GRAD_CONV + 14 + tiles3, GROUPS * 128, 0, net->stream>>>(
        g, a, n, self->classes, blocks, self->partial);
    CUDA_LAUNCHED("a step of LeNet");
    return MST_OK;
}
