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
#define SPARE_BLOCKS 12    /* of a kernel of many steps, for long segments */
#define AHEAD        4     /* entries of a segment, and of a piece by lane, that are loaded ahead */

/* What a lane needs of a row besides weights; it is loaded before the barrier that precedes the row's step.
 */
struct linear_row {
    uint32_t from, to, keys[2];
    float values[2], dense;
};

static __device__ __forceinline__ linear_row linear_load_row(const sparse_view &v, uint32_t row,
                                                             uint32_t lane)
{
    linear_row r;
    sparse_row_entries(v, row, &r.from, &r.to);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t e = r.from + lane + 32 * i;
        r.keys[i] = e < r.to ? __ldcs(v.keys + e) : 0;
        r.values[i] = e < r.to && v.values != nullptr ? __ldcs(v.values + e) : 1.0f;
    }
    uint32_t column = 31 - lane; /* the last lanes have fewer keys */
    r.dense = column < v.n_dense ? __ldcs(v.dense + (uint64_t)row * v.n_dense + column) : 0.0f;
    return r;
}

static __device__ __forceinline__ float linear_margin(const sparse_view &v, uint32_t row, const linear_row &r,
                                                      uint32_t lane)
{
    const float *w = v.w + v.weight_at;
    uint32_t e = r.from + lane, column = 31 - lane;
    float a = e < r.to ? r.values[0] * __ldcg(w + r.keys[0]) : 0.0f;
    float b = e + 32 < r.to ? r.values[1] * __ldcg(w + r.keys[1]) : 0.0f;
    float c = column < v.n_dense ? r.dense * __ldcg(w + column) : 0.0f, bias = sparse_bias(v);
    for (column += 32; column < v.n_dense; column += 32)
        c += v.dense[(uint64_t)row * v.n_dense + column] * __ldcg(w + column);
    for (e += 64; e < r.to; e += 32)
        a += sparse_value(v, e) * __ldcg(w + v.keys[e]);
    return sparse_warp_sum(a + b + c) + bias;
}

static __device__ __forceinline__ void linear_end_row(const sparse_view &v, const sparse_step &s, uint32_t i,
                                                      const linear_row &r, uint32_t lane)
{
    float margin = linear_margin(v, s.first + i, r, lane);
    if (lane == 0)
        sparse_end_row(v, s.first + i, margin, s.scale);
}

/* The contribution of sorted entry i, whose row is known. */
static __device__ __forceinline__ float linear_part_of(const sparse_view &v, uint32_t i, uint32_t row)
{
    if (row == SPARSE_NONE)
        return 0.0f;
    float g = __ldcg(v.coefs + row);
    return v.sorted_values != nullptr ? g * __ldcs(v.sorted_values + i) : g;
}

static __device__ __forceinline__ float linear_part(const sparse_view &v, uint32_t i)
{
    return linear_part_of(v, i, __ldcs(v.sorted_rows + i));
}

static __device__ __forceinline__ uint32_t linear_key(const sparse_view &v, uint32_t i)
{
    return v.key_bits < 32 ? v.sorted[i] & ((1u << v.key_bits) - 1) : v.sorted[i];
}

/* A short segment, with the weight that it updates; loaded before the barrier that precedes its sum. The rows
 * phase writes no weights. */
struct linear_segment {
    uint32_t from, to, key, rows[AHEAD];
    sparse_cell cell;
};

static __device__ __forceinline__ linear_segment linear_load_segment(const sparse_view &v, mst_rule_kind kind,
                                                                     uint32_t i)
{
    linear_segment g;
    g.from = v.starts[i];
    g.to = v.starts[i + 1];
    if (g.to - g.from > SPARSE_SHORT) /* it has pieces */
        g.to = g.from;
    if (g.from == g.to)
        return g;
    g.key = linear_key(v, g.from);
    for (uint32_t j = 0; j < AHEAD; j++)
        g.rows[j] = g.from + j < g.to ? __ldcs(v.sorted_rows + g.from + j) : SPARSE_NONE;
    g.cell = sparse_load(v, kind, v.weight_at + g.key);
    return g;
}

static __device__ __forceinline__ void linear_end_segment(const sparse_view &v, const mst_rule *rule,
                                                          const linear_segment &g)
{
    if (g.from == g.to)
        return;
    float parts[AHEAD], sum = 0.0f;
#pragma unroll
    for (uint32_t j = 0; j < AHEAD; j++)
        parts[j] = linear_part_of(v, g.from + j, g.rows[j]);
#pragma unroll
    for (uint32_t j = 0; j < AHEAD; j++)
        sum += parts[j];
    for (uint32_t e = g.from + AHEAD; e < g.to; e++)
        sum += linear_part(v, e);
    sparse_update(v, rule, v.weight_at + g.key, g.cell, sum);
}

/* Adds the sums of n pieces, in order of lanes. */
static __device__ __forceinline__ float linear_add_pieces(const float *partials, uint32_t n, uint32_t lane)
{
    float g = 0.0f;
    for (uint32_t i = lane; i < n; i += 32)
        g += __ldcg(partials + i);
    return sparse_warp_sum(g);
}

/* A piece of a long segment, by a warp: the rows of a lane's first entries are loaded ahead. */
struct linear_piece {
    uint4 p; /* from, to, number of pieces, the first of them */
    uint32_t rows[AHEAD];
};

static __device__ __forceinline__ linear_piece linear_load_piece(const sparse_view &v, uint32_t number,
                                                                 uint32_t lane)
{
    linear_piece q;
    q.p = v.pieces[number];
    for (uint32_t j = 0; j < AHEAD; j++) {
        uint32_t i = q.p.x + lane + 32 * j;
        q.rows[j] = i < q.p.y ? __ldcs(v.sorted_rows + i) : SPARSE_NONE;
    }
    return q;
}

static __device__ __forceinline__ void linear_end_piece(const sparse_view &v, const mst_rule *rule,
                                                        uint32_t number, const linear_piece &q, uint32_t lane)
{
    float g = 0.0f;
    uint4 p = q.p;
#pragma unroll
    for (uint32_t j = 0; j < AHEAD; j++)
        g += linear_part_of(v, p.x + lane + 32 * j, q.rows[j]);
#pragma unroll 4
    for (uint32_t i = p.x + lane + 32 * AHEAD; i < p.y; i += 32)
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
        sparse_apply(v, rule, v.weight_at + linear_key(v, p.x), g);
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
    sparse_apply(v, column < v.n_dense ? &v.rules[number].keys : &v.rules[number].rest, at, g);
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

/* The work of a step after its rows. Bias, dense numbers and long segments are of warps, from the last warp
 * on; short segments of threads, from the first on. */
struct linear_work {
    uint32_t n_dense, n_items, first_piece; /* pieces of dense numbers, of them and long segments */
    uint32_t item, segment, end;            /* the first ones of this warp and thread */
    mst_rule keys;
    linear_segment g;
    linear_piece q;
};

static __device__ __forceinline__ void linear_load_work(const sparse_view &v, const sparse_step &s,
                                                        uint32_t warp, uint32_t n_warps, uint32_t lane,
                                                        linear_work *k)
{
    uint32_t rows = linear_dense_rows(v);
    k->n_dense = v.n_bias + v.n_dense != 0 ? (s.n + rows - 1) / rows : 0;
    k->n_items = k->n_dense + v.n_pieces[s.number];
    k->first_piece = sparse_entries_before(v, s.number) / SPARSE_DENSER;
    k->item = n_warps - 1 - warp;
    k->segment = v.step_first[s.number] + warp * 32 + lane;
    k->end = v.step_first[s.number + 1];
    k->keys = v.rules[s.number].keys;
    k->g.from = k->g.to = 0;
    if (k->segment < k->end)
        k->g = linear_load_segment(v, k->keys.kind, k->segment);
    if (k->item >= k->n_dense && k->item < k->n_items)
        k->q = linear_load_piece(v, k->first_piece + k->item - k->n_dense, lane);
}

static __device__ __forceinline__ void linear_end_work(const sparse_view &v, const sparse_step &s,
                                                       uint32_t n_warps, uint32_t lane, linear_work *k)
{
    for (uint32_t i = k->item; i < k->n_items; i += n_warps) {
        if (i < k->n_dense) {
            linear_dense_piece(v, s, i, k->n_dense, lane);
            continue;
        }
        uint32_t number = k->first_piece + i - k->n_dense;
        if (i != k->item)
            k->q = linear_load_piece(v, number, lane);
        linear_end_piece(v, &k->keys, number, k->q, lane);
    }
    linear_end_segment(v, &k->keys, k->g);
    for (uint32_t i = k->segment + n_warps * 32; i < k->end; i += n_warps * 32)
        linear_end_segment(v, &k->keys, linear_load_segment(v, k->keys.kind, i));
}

static __global__ void __launch_bounds__(THREADS) linear_many_steps(sparse_view v, uint32_t first, uint32_t n)
{
    cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    uint32_t lane = threadIdx.x % 32, n_warps = gridDim.x * (blockDim.x / 32);
    uint32_t warp = (threadIdx.x / 32) * gridDim.x + blockIdx.x; /* neighbours are on different processors */
    sparse_step s = sparse_step_of(v, first);
    linear_row row = {};
    if (warp < s.n)
        row = linear_load_row(v, s.first + warp, lane);
    for (uint32_t number = first; number < first + n; number++) {
        linear_work work;
        s = sparse_step_of(v, number);
        linear_load_work(v, s, warp, n_warps, lane, &work);
        if (warp < s.n)
            linear_end_row(v, s, warp, row, lane);
        for (uint32_t i = warp + n_warps; i < s.n; i += n_warps)
            linear_end_row(v, s, i, linear_load_row(v, s.first + i, lane), lane);
        grid.sync();
        linear_end_work(v, s, n_warps, lane, &work);
        if (number + 1 < first + n) {
            sparse_step next = sparse_step_of(v, number + 1);
            if (warp < next.n)
                row = linear_load_row(v, next.first + warp, lane);
        }
        grid.sync();
    }
}

static __global__ void __launch_bounds__(THREADS) linear_step_rows(sparse_view v, uint32_t number)
{
    uint32_t lane = threadIdx.x % 32, warps = blockDim.x / 32;
    sparse_step s = sparse_step_of(v, number);
    for (uint32_t i = blockIdx.x * warps + threadIdx.x / 32; i < s.n; i += gridDim.x * warps)
        linear_end_row(v, s, i, linear_load_row(v, s.first + i, lane), lane);
}

static __global__ void __launch_bounds__(THREADS) linear_step_segments(sparse_view v, uint32_t number)
{
    uint32_t lane = threadIdx.x % 32, n_warps = gridDim.x * (blockDim.x / 32);
    uint32_t warp = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, end = v.step_first[number + 1];
    sparse_step s = sparse_step_of(v, number);
    uint32_t rows = linear_dense_rows(v), n_pieces = v.n_pieces[number];
    uint32_t n_dense = v.n_bias + v.n_dense != 0 ? (s.n + rows - 1) / rows : 0;
    uint32_t first_piece = sparse_entries_before(v, number) / SPARSE_DENSER;
    mst_rule keys = v.rules[number].keys;
    for (uint32_t i = n_warps - 1 - warp; i < n_dense + n_pieces; i += n_warps) {
        uint32_t piece = first_piece + i - n_dense;
        if (i < n_dense)
            linear_dense_piece(v, s, i, n_dense, lane);
        else
            linear_end_piece(v, &keys, piece, linear_load_piece(v, piece, lane), lane);
    }
    for (uint32_t i = v.step_first[number] + warp * 32 + lane; i < end; i += n_warps * 32)
        linear_end_segment(v, &keys, linear_load_segment(v, keys.kind, i));
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
            float margin = linear_margin(v, row, linear_load_row(v, row, lane), lane);
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
    /* as many warps as rows; the other processors prepare the next block meanwhile */
    int most = (int)(self->n_processors * 3 / 4), warps = THREADS / 32;
    int blocks = (int)((self->spec.batch + warps - 1) / warps) + SPARE_BLOCKS;
    self->coop_blocks = per_processor > 0 ? (blocks < most ? blocks : most) : 0;
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
