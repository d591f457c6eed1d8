/* Steps of models whose keys have several weights, and of updates that need the gradient of all keys first:
 * a kernel per phase.
 *
 * Segments: a group of lanes takes a segment, a lane one weight of the key at a time, and adds the
 * contributions of the entries one after the other. */
#include "cuda/sparse_impl.cuh"
#include "cuda/sparse_rows.cuh"
#include "tensor/clip.h"

#define THREADS 256
#define SQUARES 256 /* partial sums of squares */

/* ---- segments ---- */

static __device__ __forceinline__ uint32_t wide_key(const sparse_view &v, uint32_t i)
{
    return v.key_bits < 32 ? v.sorted[i] & ((1u << v.key_bits) - 1) : v.sorted[i];
}

/* The sum of the contributions of sorted entries [from, to) to weight j of their key, except for ffm. */
static __device__ float wide_sum(const sparse_view &v, const sparse_step &s, uint32_t key, uint32_t from,
                                 uint32_t to, uint32_t j)
{
    float g = 0.0f, own = __ldcg(sparse_weight(v, key) + j * v.weight_step);
    for (uint32_t i = from; i < to; i++) {
        uint32_t row = v.sorted_rows[i];
        if (row == SPARSE_NONE)
            continue;
        float x = v.sorted_values != nullptr ? v.sorted_values[i] : 1.0f;
        if (v.kind == MST_CUDA_LOGREG || v.kind == MST_CUDA_SOFTMAX) {
            g += __ldcg(v.coefs + (uint64_t)row * v.width + j) * x;
            continue;
        }
        float c = __ldcg(v.coefs + row) * x;
        if (j == 0) {
            g += c;
            continue;
        }
        float l2 = v.l2_factors * s.scale * (v.weights != nullptr ? v.weights[row] : 1.0f), twice = c * x;
        uint32_t at = row - s.first;
        float sum;
        if (v.kind == MST_CUDA_FM) {
            sum = __ldcg(v.sums + (uint64_t)at * v.factors + j - 1);
        } else {
            uint32_t f = v.field_of[v.origin[i]];
            sum = __ldcg(v.weighted + ((uint64_t)at * v.fields + f) * v.factors + j - 1);
            twice *= __ldcg(v.w + v.pairs_at + rows_pair(v.fields, f, f));
        }
        g += c * sum - (twice - l2) * own;
    }
    return g;
}

/* One state for all weights of a key, each on its lane: the row-wise rule of tensor/rule_one.h. */
static __device__ __forceinline__ void wide_apply_row(const sparse_view &v, const mst_rule *rule,
                                                      uint32_t key, const float *g, uint32_t lane,
                                                      uint32_t lanes, uint32_t mask)
{
    float *w = sparse_weight(v, key),
          *state = v.slots[0] + v.weight_at + (uint64_t)v.head * v.width + (key - v.head);
    float squares = 0.0f, before = __ldcg(state);
    for (uint32_t j = lane, i = 0; j < v.width; j += lanes, i++) {
        float d = g[i] + rule->l2 * __ldcg(w + j);
        squares += d * d;
    }
    for (uint32_t by = lanes / 2; by > 0; by /= 2)
        squares += __shfl_xor_sync(mask, squares, (int)by);
    float sum = before + squares / (float)v.width, rate = rule->lr / (sqrtf(sum) + rule->eps);
    for (uint32_t j = lane, i = 0; j < v.width; j += lanes, i++) {
        float at = __ldcg(w + j);
        w[j] = mst_rule_shrink(at - rate * (g[i] + rule->l2 * at), rate * rule->l1);
    }
    if (lane == 0)
        *state = sum;
}

static __device__ __forceinline__ bool wide_by_row(const sparse_view &v, const mst_rule *rule, uint32_t key)
{
    return rule->by_row && v.state_per_key && key >= v.head;
}

/* The gradient of a segment is complete: lanes have one weight each (width at most the lanes). */
static __device__ __forceinline__ void wide_apply(const sparse_view &v, const mst_rule *rule, uint32_t key,
                                                  float g, uint32_t lane, uint32_t lanes, uint32_t mask)
{
    if (wide_by_row(v, rule, key)) {
        wide_apply_row(v, rule, key, &g, lane, lanes, mask);
    } else if (lane < v.width) {
        uint64_t at = v.weight_at + (uint64_t)key * v.key_step + lane * v.weight_step;
        sparse_apply(v, rule, at, g);
    }
}

/* Short segments, a group of G lanes each. */
template <int G> static __global__ void wide_segments(sparse_view v, uint32_t number)
{
    sparse_step s = sparse_step_of(v, number);
    mst_rule rule = v.rules[number].keys;
    uint32_t lane = threadIdx.x % G, first = v.step_first[number], end = v.step_first[number + 1];
    uint32_t mask = G == 32 ? 0xffffffffu : ((1u << (G % 32)) - 1) << (threadIdx.x % 32 / G * G);
    for (uint32_t i = first + (blockIdx.x * blockDim.x + threadIdx.x) / G; i < end;
         i += gridDim.x * (blockDim.x / G)) {
        uint32_t from = v.starts[i], to = v.starts[i + 1], key = wide_key(v, from);
        if (to - from > SPARSE_WIDE)
            continue;
        if (v.gradient != nullptr) {
            for (uint32_t j = lane; j < v.width; j += G)
                v.gradient[(uint64_t)(i - first) * v.width + j] = wide_sum(v, s, key, from, to, j);
            continue;
        }
        float g = lane < v.width ? wide_sum(v, s, key, from, to, lane) : 0.0f;
        wide_apply(v, &rule, key, g, lane, G, mask);
    }
}

/* The segment of the step that begins at sorted entry `from`. */
static __device__ uint32_t wide_find_segment(const sparse_view &v, uint32_t number, uint32_t from)
{
    uint32_t low = v.step_first[number], high = v.step_first[number + 1];
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (v.starts[middle] <= from)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The pieces of a long segment are summed: adds them, weight by weight, and updates or stores. */
static __device__ void wide_end_pieces(const sparse_view &v, const sparse_step &s, const mst_rule *rule,
                                       uint4 p, uint32_t key, uint32_t lane)
{
    uint32_t first = v.step_first[s.number];
    uint32_t segment = v.gradient != nullptr ? wide_find_segment(v, s.number, p.x) - first : 0;
    for (uint32_t base = 0; base < v.width; base += 32) {
        uint32_t j = base + lane;
        float g = 0.0f;
        for (uint32_t i = 0; j < v.width && i < p.z; i++)
            g += __ldcg(v.partials + (uint64_t)(p.w + i) * v.width + j);
        if (v.gradient != nullptr && j < v.width)
            v.gradient[(uint64_t)segment * v.width + j] = g;
        else if (v.gradient == nullptr)
            wide_apply(v, rule, key, g, lane, 32, 0xffffffffu);
    }
}

/* Pieces of long segments, a warp each. */
static __global__ void wide_pieces(sparse_view v, uint32_t number)
{
    sparse_step s = sparse_step_of(v, number);
    mst_rule rule = v.rules[number].keys;
    uint32_t lane = threadIdx.x % 32, n = v.n_pieces[number];
    uint32_t first = sparse_entries_before(v, number) / SPARSE_DENSER;
    for (uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) / 32; i < n;
         i += gridDim.x * (blockDim.x / 32)) {
        uint4 p = v.pieces[first + i];
        uint32_t key = wide_key(v, p.x);
        float *out = v.partials + (uint64_t)(first + i) * v.width;
        if (v.kind == MST_CUDA_FFM)
            rows_ffm_piece(v, s, key, p.x, p.y, out, lane);
        else
            for (uint32_t j = lane; j < v.width; j += 32)
                out[j] = wide_sum(v, s, key, p.x, p.y, j);
        if (sparse_last_piece(v.arrived + p.w, p.z, lane))
            wide_end_pieces(v, s, &rule, p, key, lane);
    }
}

static __global__ void wide_ffm_segments(sparse_view v, uint32_t number)
{
    sparse_step s = sparse_step_of(v, number);
    uint32_t lane = threadIdx.x % 32, first = v.step_first[number], end = v.step_first[number + 1];
    for (uint32_t i = first + (blockIdx.x * blockDim.x + threadIdx.x) / 32; i < end;
         i += gridDim.x * (blockDim.x / 32)) {
        uint32_t from = v.starts[i], to = v.starts[i + 1];
        if (to - from <= SPARSE_WIDE)
            rows_ffm_piece(v, s, wide_key(v, from), from, to, v.gradient + (uint64_t)(i - first) * v.width,
                           lane);
    }
}

/* ---- the other weights ---- */

static __device__ __forceinline__ void wide_rest(const sparse_view &v, const mst_rule *rule, uint32_t i,
                                                 uint64_t at, float g)
{
    if (v.rest != nullptr)
        v.rest[i] = g;
    else
        sparse_apply(v, rule, at, g);
}

/* The bias: a warp per piece of rows, a lane per weight of it. */
static __global__ void wide_bias(sparse_view v, uint32_t number)
{
    sparse_step s = sparse_step_of(v, number);
    mst_rule rule = v.rules[number].rest;
    uint32_t lane = threadIdx.x % 32, n = (s.n + SPARSE_WIDE - 1) / SPARSE_WIDE, width = v.n_bias;
    for (uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) / 32; i < n;
         i += gridDim.x * (blockDim.x / 32)) {
        uint32_t from = s.first + i * SPARSE_WIDE, to = from + SPARSE_WIDE;
        to = to < s.first + s.n ? to : s.first + s.n;
        for (uint32_t j = lane; j < width; j += 32) {
            float g = 0.0f;
            for (uint32_t row = from; row < to; row++)
                g += __ldcg(v.coefs + (uint64_t)row * width + j);
            v.bias_partials[(uint64_t)i * width + j] = g;
        }
        if (!sparse_last_piece(v.bias_arrived, n, lane))
            continue;
        for (uint32_t j = lane; j < width; j += 32) {
            float g = 0.0f;
            for (uint32_t p = 0; p < n; p++)
                g += __ldcg(v.bias_partials + (uint64_t)p * width + j);
            wide_rest(v, &rule, j, v.bias_at + j, g);
        }
    }
}

/* fwfm: the gradient of the pairs over a tile of rows per block, then their sums. */
static __global__ void wide_pair_tiles(sparse_view v, uint32_t number)
{
    sparse_step s = sparse_step_of(v, number);
    uint32_t n_pairs = sparse_n_pairs(v.kind, v.fields), from = blockIdx.x * SPARSE_TILE;
    uint32_t to = from + SPARSE_TILE < s.n ? from + SPARSE_TILE : s.n;
    for (uint32_t f = 0; f < v.fields; f++)
        for (uint32_t g = f + threadIdx.x; g < v.fields; g += blockDim.x) {
            float sum = 0.0f;
            for (uint32_t r = from; r < to; r++) {
                const float *row = v.sums + (uint64_t)r * v.fields * v.factors;
                float coef = v.coefs[s.first + r], dot = 0.0f;
                if (f == g)
                    dot = 0.5f * v.self[(uint64_t)r * v.fields + f];
                else
                    for (uint32_t c = 0; c < v.factors; c++)
                        dot += row[f * v.factors + c] * row[g * v.factors + c];
                sum += coef * dot;
            }
            v.pair_partials[(uint64_t)blockIdx.x * n_pairs + rows_pair(v.fields, f, g)] = sum;
        }
}

static __global__ void wide_pairs(sparse_view v, uint32_t number)
{
    sparse_step s = sparse_step_of(v, number);
    mst_rule rule = v.rules[number].rest;
    uint32_t n_pairs = sparse_n_pairs(v.kind, v.fields), tiles = (s.n + SPARSE_TILE - 1) / SPARSE_TILE;
    for (uint32_t p = blockIdx.x * blockDim.x + threadIdx.x; p < n_pairs; p += gridDim.x * blockDim.x) {
        float g = 0.0f;
        for (uint32_t t = 0; t < tiles; t++)
            g += v.pair_partials[(uint64_t)t * n_pairs + p];
        wide_rest(v, &rule, v.n_bias + p, v.pairs_at + p, g);
    }
}

/* ---- split updates ---- */

static __global__ void wide_squares(sparse_view v, uint32_t number, uint32_t n_rest, double *squares)
{
    __shared__ double parts[THREADS];
    uint64_t n = (uint64_t)(v.step_first[number + 1] - v.step_first[number]) * v.width;
    double sum = 0.0;
    for (uint64_t i = blockIdx.x * THREADS + threadIdx.x; i < n + n_rest; i += gridDim.x * THREADS) {
        float g = i < n ? v.gradient[i] : v.rest[i - n];
        sum += (double)g * g;
    }
    parts[threadIdx.x] = sum;
    __syncthreads();
    for (uint32_t by = THREADS / 2; by > 0; by /= 2) {
        if (threadIdx.x < by)
            parts[threadIdx.x] += parts[threadIdx.x + by];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        squares[blockIdx.x] = parts[0];
}

static __global__ void wide_clip(const double *squares, double limit, float *clip)
{
    double sum = 0.0;
    for (uint32_t i = 0; i < SQUARES; i++)
        sum += squares[i];
    double norm = sqrt(sum);
    *clip = norm > limit ? (float)(limit / norm) : 1.0f;
}

/* Applies the gradient of the segments, a warp each, and of the other weights. */
static __global__ void wide_apply_all(sparse_view v, uint32_t number, uint32_t n_rest)
{
    mst_rule rule = v.rules[number].keys, rest = v.rules[number].rest;
    uint32_t lane = threadIdx.x % 32, first = v.step_first[number], end = v.step_first[number + 1];
    uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, n_threads = gridDim.x * blockDim.x;
    float clip = v.clip != nullptr ? *v.clip : 1.0f;
    for (uint32_t i = first + thread / 32; i < end; i += n_threads / 32) {
        uint32_t key = wide_key(v, v.starts[i]);
        float *g = v.gradient + (uint64_t)(i - first) * v.width;
        if (wide_by_row(v, &rule, key)) {
            rows_apply_stored(v, &rule, key, g, clip, lane);
            continue;
        }
        for (uint32_t j = lane; j < v.width; j += 32) {
            uint64_t at = v.weight_at + (uint64_t)key * v.key_step + j * v.weight_step;
            sparse_apply(v, &rule, at, g[j] * clip);
        }
    }
    for (uint32_t i = thread; i < n_rest; i += n_threads) {
        uint64_t at = i < v.n_bias ? v.bias_at + i : v.pairs_at + i - v.n_bias;
        sparse_apply(v, &rest, at, v.rest[i] * clip);
    }
}

/* ---- a step ---- */

static mst_status wide_memory(mst_cuda_sparse *self, sparse_block *b)
{
    const mst_cuda_sparse_spec *spec = &self->spec;
    sparse_view *v = &b->view;
    uint64_t rows = v->n_rows < spec->batch ? v->n_rows : spec->batch, entries = b->n_entries;
    uint64_t n_pairs = sparse_n_pairs(spec->kind, spec->fields);
    uint64_t row_floats = spec->kind == MST_CUDA_FM     ? spec->factors
                          : spec->kind == MST_CUDA_FWFM ? (uint64_t)spec->fields * spec->factors
                                                        : 0;
    TRY(mst_sparse_grow(&self->sums, rows * row_floats * sizeof(float), "sums of rows"));
    if (spec->kind == MST_CUDA_FWFM) {
        TRY(mst_sparse_grow(&self->weighted, rows * row_floats * sizeof(float), "sums of rows"));
        TRY(mst_sparse_grow(&self->self, rows * spec->fields * sizeof(float), "sums of rows"));
        TRY(mst_sparse_grow(&self->pair_partials, (rows / SPARSE_TILE + 1) * n_pairs * sizeof(float),
                            "pairs"));
    }
    if (self->split) {
        uint64_t most = entries; /* of one step */
        if (v->ends == nullptr)
            most = rows * v->row_entries + (v->fill_head ? v->head : 0);
        most = most < entries ? most : entries;
        TRY(mst_sparse_grow(&self->gradient, most * spec->width * sizeof(float), "gradients"));
        TRY(mst_sparse_grow(&self->rest, (spec->n_bias + n_pairs + 1) * sizeof(float), "gradients"));
        TRY(mst_sparse_grow(&self->squares, SQUARES * sizeof(double), "gradients"));
        TRY(mst_sparse_grow(&self->clip, sizeof(float), "gradients"));
    }
    v->sums = (float *)self->sums.at;
    v->weighted = (float *)self->weighted.at;
    v->self = (float *)self->self.at;
    v->pair_partials = (float *)self->pair_partials.at;
    v->gradient = self->split ? (float *)self->gradient.at : nullptr;
    v->rest = self->split ? (float *)self->rest.at : nullptr;
    v->clip = spec->clip_norm > 0.0f ? (const float *)self->clip.at : nullptr;
    return MST_OK;
}

static void wide_launch_rows(const sparse_view &v, uint32_t number, unsigned grid, cudaStream_t stream)
{
    switch (v.kind) {
    case MST_CUDA_LOGREG:
        rows_logreg<<<grid, THREADS, 0, stream>>>(v, number);
        break;
    case MST_CUDA_SOFTMAX:
        rows_softmax<<<grid, THREADS, 0, stream>>>(v, number);
        break;
    case MST_CUDA_FM:
        rows_fm<<<grid, THREADS, 0, stream>>>(v, number);
        break;
    case MST_CUDA_FFM:
        rows_ffm<<<grid, THREADS, 0, stream>>>(v, number);
        break;
    case MST_CUDA_FWFM:
        rows_fwfm<<<grid, THREADS, 0, stream>>>(v, number);
        break;
    }
}

static void wide_launch_segments(const sparse_view &v, uint32_t number, unsigned grid, cudaStream_t stream)
{
    if (v.kind == MST_CUDA_FFM)
        wide_ffm_segments<<<grid, THREADS, 0, stream>>>(v, number);
    else if (v.width <= 4)
        wide_segments<4><<<grid, THREADS, 0, stream>>>(v, number);
    else if (v.width <= 8)
        wide_segments<8><<<grid, THREADS, 0, stream>>>(v, number);
    else if (v.width <= 16)
        wide_segments<16><<<grid, THREADS, 0, stream>>>(v, number);
    else
        wide_segments<32><<<grid, THREADS, 0, stream>>>(v, number);
    wide_pieces<<<grid, THREADS, 0, stream>>>(v, number);
}

mst_status mst_sparse_wide_steps(mst_cuda_sparse *self, sparse_block *b, uint32_t first, uint32_t n)
{
    TRY(wide_memory(self, b));
    const sparse_view &v = b->view;
    cudaStream_t stream = self->train_stream;
    unsigned grid = self->n_processors * 8;
    uint32_t n_rest = v.n_bias + sparse_n_pairs(v.kind, v.fields);
    for (uint32_t i = first; i < first + n; i++) {
        uint32_t left = v.n_rows - i * v.batch, rows = left < v.batch ? left : v.batch;
        wide_launch_rows(v, i, mst_cuda_blocks(rows, THREADS / 32, grid), stream);
        wide_launch_segments(v, i, grid, stream);
        if (v.kind == MST_CUDA_FWFM) /* segments read the weights of pairs */
            wide_pair_tiles<<<(rows + SPARSE_TILE - 1) / SPARSE_TILE, 64, 0, stream>>>(v, i);
        if (v.kind == MST_CUDA_FWFM)
            wide_pairs<<<mst_cuda_blocks(n_rest, THREADS, grid), THREADS, 0, stream>>>(v, i);
        if (v.n_bias != 0)
            wide_bias<<<mst_cuda_blocks(rows / SPARSE_WIDE + 1, THREADS / 32, grid), THREADS, 0, stream>>>(v,
                                                                                                           i);
        if (v.clip != nullptr) {
            wide_squares<<<SQUARES, THREADS, 0, stream>>>(v, i, n_rest, (double *)self->squares.at);
            wide_clip<<<1, 1, 0, stream>>>((const double *)self->squares.at, (double)self->spec.clip_norm,
                                           (float *)self->clip.at);
        }
        if (v.gradient != nullptr)
            wide_apply_all<<<grid, THREADS, 0, stream>>>(v, i, n_rest);
    }
    CUDA_LAUNCHED("a step");
    return MST_OK;
}
