/* Steps of logreg, whose keys have one weight.
 *
 * A step of some thousand rows takes a few microseconds, less than the start of a kernel. So one kernel runs
 * many small steps, with barriers of the whole grid between phases. Steps that fill the GPU have a kernel per
 * phase. */
#include <cooperative_groups.h>

#include "cuda/sparse_impl.cuh"

#define THREADS      512
#define SMALL_ROWS   16384 /* rows of a step up to which one kernel runs many steps */
#define DENSE_ROWS   128   /* least rows of a piece of the bias and the dense numbers */
#define LEAST_BLOCKS 8     /* of asynchronous steps */
#define CHUNK        16    /* columns that are summed at a time */

/* The margin of a row: two entries per lane at a time, whose loads overlap. */
static __device__ __forceinline__ float linear_margin(const sparse_view &v, uint32_t row, uint32_t lane)
{
    const float *w = v.w + v.weight_at;
    uint32_t from, to;
    float a = 0.0f, b = 0.0f;
    sparse_row_entries(v, row, &from, &to);
    for (uint32_t c = 31 - lane; c < v.n_dense; c += 32) /* the last lanes have fewer keys */
        b += __ldg(v.dense + (uint64_t)row * v.n_dense + c) * __ldcg(w + c);
    for (uint32_t e = from + lane; e < to; e += 64) {
        bool more = e + 32 < to;
        uint32_t k = __ldcs(v.keys + e), l = more ? __ldcs(v.keys + e + 32) : 0;
        float x = sparse_value(v, e), y = more ? sparse_value(v, e + 32) : 0.0f;
        a += x * __ldcg(w + k);
        if (more)
            b += y * __ldcg(w + l);
    }
    return sparse_warp_sum(a + b) + sparse_bias(v);
}

static __device__ __forceinline__ void linear_rows(const sparse_view &v, const sparse_step &s, uint32_t warp,
                                                   uint32_t n_warps, uint32_t lane)
{
    for (uint32_t i = warp; i < s.n; i += n_warps) {
        float margin = linear_margin(v, s.first + i, lane);
        if (lane == 0)
            sparse_end_row(v, s.first + i, margin, s.scale);
    }
}

/* The contribution of sorted entry i. */
static __device__ __forceinline__ float linear_part(const sparse_view &v, uint32_t i)
{
    uint32_t row = __ldcs(v.sorted_rows + i);
    if (row == SPARSE_NONE)
        return 0.0f;
    float g = __ldcg(v.coefs + row);
    return v.sorted_values != nullptr ? g * __ldcs(v.sorted_values + i) : g;
}

static __device__ __forceinline__ void linear_update(const sparse_view &v, const mst_rule *rule, uint32_t i,
                                                     float g)
{
    uint32_t key = v.key_bits < 32 ? v.sorted[i] & ((1u << v.key_bits) - 1) : v.sorted[i];
    uint64_t at = v.weight_at + key;
    sparse_apply(v, rule, at, at, g);
}

/* Adds the sums of n pieces, in order of lanes. */
static __device__ __forceinline__ float linear_add_pieces(const float *partials, uint32_t n, uint32_t lane)
{
    float g = 0.0f;
    for (uint32_t i = lane; i < n; i += 32)
        g += __ldcg(partials + i);
    return sparse_warp_sum(g);
}

/* A piece of a long segment, by a warp. */
static __device__ void linear_piece(const sparse_view &v, const mst_rule *rule, uint32_t number,
                                    uint32_t lane)
{
    uint4 p = v.pieces[number];
    float g = 0.0f;
#pragma unroll 4
    for (uint32_t i = p.x + lane; i < p.y; i += 32)
        g += linear_part(v, i);
    g = sparse_warp_sum(g);
    if (p.z > 1) {
        if (lane == 0)
            v.partials[number] = g;
        if (!sparse_last_piece(v.arrived + p.w, p.z, lane))
            return;
        g = linear_add_pieces(v.partials + p.w, p.z, lane);
    }
    if (lane == 0)
        linear_update(v, rule, p.x, g);
}

/* Rows of a piece of the bias and the dense numbers: few enough that a small step has several pieces, and a
 * large one not too many. */
static __device__ __forceinline__ uint32_t linear_dense_rows(const sparse_view &v)
{
    uint32_t rows = v.batch / 256;
    return rows < DENSE_ROWS ? DENSE_ROWS : rows;
}

/* The sum of up to CHUNK columns from `first` on over rows [from, to); column n_dense is the bias. Lane c has
 * column c. */
static __device__ __forceinline__ float linear_columns(const sparse_view &v, uint32_t from, uint32_t to,
                                                       uint32_t first, uint32_t n, uint32_t lane)
{
    float sums[CHUNK], mine = 0.0f;
#pragma unroll
    for (uint32_t c = 0; c < CHUNK; c++)
        sums[c] = 0.0f;
    for (uint32_t row = from + lane; row < to; row += 32) {
        float coef = __ldcg(v.coefs + row);
        const float *x = v.dense + (uint64_t)row * v.n_dense + first;
#pragma unroll
        for (uint32_t c = 0; c < CHUNK; c++)
            if (c < n)
                sums[c] += first + c < v.n_dense ? coef * __ldg(x + c) : coef;
    }
#pragma unroll
    for (uint32_t c = 0; c < CHUNK; c++) {
        float sum = c < n ? sparse_warp_sum(sums[c]) : 0.0f;
        mine = lane == c ? sum : mine;
    }
    return mine;
}

static __device__ __forceinline__ void linear_update_column(const sparse_view &v, uint32_t number,
                                                            uint32_t column, float g)
{
    uint64_t at = column < v.n_dense ? v.weight_at + column : v.bias_at;
    sparse_apply(v, column < v.n_dense ? &v.rules[number].keys : &v.rules[number].rest, at, at, g);
}

/* A piece of the bias and the dense numbers, by a warp: n pieces in all. */
static __device__ void linear_dense_piece(const sparse_view &v, const sparse_step &s, uint32_t number,
                                          uint32_t n, uint32_t lane)
{
    uint32_t rows = linear_dense_rows(v), from = s.first + number * rows, to = from + rows;
    uint32_t columns = v.n_dense + v.n_bias;
    to = to < s.first + s.n ? to : s.first + s.n;
    for (uint32_t first = 0; first < columns; first += CHUNK) {
        uint32_t width = columns - first < CHUNK ? columns - first : CHUNK;
        float g = linear_columns(v, from, to, first, width, lane);
        if (lane < width && n == 1)
            linear_update_column(v, s.number, first + lane, g);
        else if (lane < width)
            v.bias_partials[(uint64_t)number * columns + first + lane] = g;
    }
    if (n == 1 || !sparse_last_piece(v.bias_arrived, n, lane))
        return;
    for (uint32_t c = lane; c < columns; c += 32) {
        float g = 0.0f;
#pragma unroll 8
        for (uint32_t i = 0; i < n; i++)
            g += __ldcg(v.bias_partials + (uint64_t)i * columns + c);
        linear_update_column(v, s.number, c, g);
    }
}

/* Bias and long segments by warps, from the last warp on; short segments by threads, from the first on. */
static __device__ void linear_segments(const sparse_view &v, const sparse_step &s, uint32_t warp,
                                       uint32_t n_warps, uint32_t lane)
{
    mst_rule keys = v.rules[s.number].keys;
    uint32_t rows = linear_dense_rows(v), n_bias = v.n_bias + v.n_dense != 0 ? (s.n + rows - 1) / rows : 0;
    uint32_t n_pieces = v.n_pieces[s.number];
    uint32_t first_piece = sparse_entries_before(v, s.number) / SPARSE_DENSER;
    for (uint32_t i = n_warps - 1 - warp; i < n_bias + n_pieces; i += n_warps) {
        if (i < n_bias)
            linear_dense_piece(v, s, i, n_bias, lane);
        else
            linear_piece(v, &keys, first_piece + i - n_bias, lane);
    }
    uint32_t end = v.step_first[s.number + 1];
    for (uint32_t i = v.step_first[s.number] + warp * 32 + lane; i < end; i += n_warps * 32) {
        uint32_t from = v.starts[i], to = v.starts[i + 1];
        if (to - from > SPARSE_SHORT)
            continue;
        float g = 0.0f;
        for (uint32_t e = from; e < to; e++)
            g += linear_part(v, e);
        linear_update(v, &keys, from, g);
    }
}

static __global__ void __launch_bounds__(THREADS) linear_many_steps(sparse_view v, uint32_t first, uint32_t n)
{
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    uint32_t lane = threadIdx.x % 32, warps = blockDim.x / 32, n_warps = gridDim.x * warps;
    uint32_t warp = (threadIdx.x / 32) * gridDim.x + blockIdx.x; /* neighbours are on different processors */
    for (uint32_t number = first; number < first + n; number++) {
        sparse_step s = sparse_step_of(v, number);
        linear_rows(v, s, warp, n_warps, lane);
        grid.sync();
        linear_segments(v, s, warp, n_warps, lane);
        grid.sync();
    }
}

static __global__ void __launch_bounds__(THREADS) linear_step_rows(sparse_view v, uint32_t number)
{
    uint32_t warps = blockDim.x / 32;
    linear_rows(v, sparse_step_of(v, number), blockIdx.x * warps + threadIdx.x / 32, gridDim.x * warps,
                threadIdx.x % 32);
}

static __global__ void __launch_bounds__(THREADS) linear_step_segments(sparse_view v, uint32_t number)
{
    uint32_t warps = blockDim.x / 32;
    linear_segments(v, sparse_step_of(v, number), blockIdx.x * warps + threadIdx.x / 32, gridDim.x * warps,
                    threadIdx.x % 32);
}

/* Asynchronous plain SGD: every row subtracts its contributions when it has its margin, whatever other rows
 * do meanwhile. About a batch of rows is under way at a time. The bias is subtracted once per group of rows.
 */
static __global__ void __launch_bounds__(THREADS)
    linear_atomic_steps(sparse_view v, uint32_t first, uint32_t n)
{
    __shared__ float bias[THREADS / 32];
    uint32_t lane = threadIdx.x % 32, in_block = threadIdx.x / 32, warps = blockDim.x / 32;
    uint32_t from_row = first * v.batch, to_row = (first + n) * v.batch;
    to_row = to_row < v.n_rows ? to_row : v.n_rows;
    for (uint32_t base = from_row + blockIdx.x * warps; base < to_row; base += gridDim.x * warps) {
        uint32_t row = base + in_block;
        float change = 0.0f;
        if (row < to_row) {
            sparse_step s = sparse_step_of(v, row / v.batch);
            float margin = linear_margin(v, row, lane);
            if (lane == 0)
                sparse_end_row(v, row, margin, s.scale);
            float coef = __shfl_sync(0xffffffffu, lane == 0 ? v.coefs[row] : 0.0f, 0);
            float keys = -v.rules[s.number].keys.lr * coef;
            change = -v.rules[s.number].rest.lr * coef;
            uint32_t from, to;
            sparse_row_entries(v, row, &from, &to);
            for (uint32_t e = from + lane; e < to; e += 32)
                atomicAdd(v.w + v.weight_at + v.keys[e], keys * sparse_value(v, e));
            for (uint32_t c = lane; c < v.n_dense; c += 32)
                atomicAdd(v.w + v.weight_at + c, keys * v.dense[(uint64_t)row * v.n_dense + c]);
        }
        if (v.n_bias == 0)
            continue;
        if (lane == 0)
            bias[in_block] = change;
        __syncthreads();
        if (threadIdx.x < 32) {
            float sum = sparse_warp_sum(lane < warps ? bias[lane] : 0.0f);
            if (lane == 0)
                atomicAdd(v.w + v.bias_at, sum);
        }
        __syncthreads();
    }
}

mst_status mst_sparse_linear_open(mst_cuda_sparse *self)
{
    int per_processor = 0;
    CUDA_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, linear_many_steps, THREADS, 0));
    self->coop_blocks = per_processor > 0 ? (int)self->n_processors : 0;
    return MST_OK;
}

mst_status mst_sparse_linear_steps(mst_cuda_sparse *self, sparse_block *b, uint32_t first, uint32_t n)
{
    sparse_view v = b->view;
    cudaStream_t stream = self->train_stream;
    unsigned whole = self->n_processors * (2048 / THREADS);
    if (self->spec.atomic) {
        unsigned blocks = mst_cuda_blocks(v.batch, THREADS / 32, whole);
        blocks = blocks < LEAST_BLOCKS ? LEAST_BLOCKS : blocks;
        linear_atomic_steps<<<blocks, THREADS, 0, stream>>>(v, first, n);
        CUDA_LAUNCHED("asynchronous steps");
        return MST_OK;
    }
    if (v.batch <= SMALL_ROWS && self->coop_blocks > 0) {
        void *arguments[] = {&v, &first, &n};
        CUDA_TRY(cudaLaunchCooperativeKernel((const void *)linear_many_steps,
                                             dim3((unsigned)self->coop_blocks), dim3(THREADS), arguments, 0,
                                             stream));
        return MST_OK;
    }
    for (uint32_t i = first; i < first + n; i++) {
        linear_step_rows<<<whole * 2, THREADS, 0, stream>>>(v, i);
        linear_step_segments<<<whole * 2, THREADS, 0, stream>>>(v, i);
    }
    CUDA_LAUNCHED("a step");
    return MST_OK;
}
