/* The rows of a step: scores, losses, and what the contributions to keys are made from; a warp per row. For
 * sparse_wide.cu. */
#ifndef MST_CUDA_SPARSE_ROWS_CUH
#define MST_CUDA_SPARSE_ROWS_CUH

#include "cuda/sparse_impl.cuh"

/* The place of the weight of two fields. */
static __device__ __forceinline__ uint32_t rows_pair(uint32_t fields, uint32_t f, uint32_t g)
{
    uint32_t low = f < g ? f : g, high = f < g ? g : f;
    return low * fields - low * (low + 1) / 2 + high;
}

/* bias + sum_i w_i x_i over all lanes; the first weight of a key is its linear one. */
static __device__ __forceinline__ float rows_linear(const sparse_view &v, uint32_t from, uint32_t to,
                                                    uint32_t lane)
{
    float sum = 0.0f;
    for (uint32_t e = from + lane; e < to; e += 32)
        sum += sparse_value(v, e) * __ldcg(sparse_weight(v, v.keys[e]));
    return sparse_warp_sum(sum) + sparse_bias(v);
}

/* Calls fn(row, number of the row in the step, from, to, lane) for the rows of this warp. */
#define ROWS_LOOP(v, s, row, at, from, to, lane)                                                             \
    sparse_step s = sparse_step_of(v, number);                                                               \
    uint32_t lane = threadIdx.x % 32, from, to;                                                              \
    for (uint32_t at = (blockIdx.x * blockDim.x + threadIdx.x) / 32, row = s.first + at; at < s.n;           \
         at += gridDim.x * (blockDim.x / 32), row = s.first + at)                                            \
        if (sparse_row_entries(v, row, &from, &to), true)

static __global__ void rows_logreg(sparse_view v, uint32_t number)
{
    ROWS_LOOP(v, s, row, at, from, to, lane)
    {
        float margin = rows_linear(v, from, to, lane);
        if (lane == 0)
            sparse_end_row(v, row, margin, s.scale);
    }
}

/* Logits into coefs, a lane per class; then the loss and d(loss)/d(logit). */
static __global__ void rows_softmax(sparse_view v, uint32_t number)
{
    ROWS_LOOP(v, s, row, at, from, to, lane)
    {
        float *y = v.coefs + (uint64_t)row * v.width, top = -INFINITY, sum = 0.0f, label = v.labels[row];
        float weight = v.weights != nullptr ? v.weights[row] : 1.0f;
        uint32_t own = label > 0.0f ? (uint32_t)label : 0, best = 0xffffffffu;
        own = own < v.width ? own : v.width - 1;
        for (uint32_t c = lane; c < v.width; c += 32) {
            float logit = v.n_bias != 0 ? __ldcg(v.w + v.bias_at + c) : 0.0f;
#pragma unroll 4
            for (uint32_t e = from; e < to; e++)
                logit += sparse_value(v, e) * __ldcg(sparse_weight(v, v.keys[e]) + c * v.weight_step);
            y[c] = logit;
            if (logit > top) {
                top = logit;
                best = c;
            }
        }
        float highest = sparse_warp_max(top);
        best = top == highest ? best : 0xffffffffu;
        best = __reduce_min_sync(0xffffffffu, best);
        for (uint32_t c = lane; c < v.width; c += 32)
            sum += expf(y[c] - highest);
        sum = sparse_warp_sum(sum);
        __syncwarp();
        float logit = y[own];
        __syncwarp();
        for (uint32_t c = lane; c < v.width; c += 32)
            y[c] = expf(y[c] - highest) * (s.scale * weight / sum) - (c == own ? s.scale * weight : 0.0f);
        if (lane == 0) {
            v.losses[row] = weight * (logf(sum) + highest - logit);
            v.correct[row] = best == own;
        }
    }
}

/* 1/2 sum_f ((sum_i v_if x_i)^2 - sum_i v_if^2 x_i^2). Lanes have a factor each, and where there are few
 * factors, groups of lanes share the entries. */
static __global__ void rows_fm(sparse_view v, uint32_t number)
{
    uint32_t group = 1;
    while (group < v.factors && group < 32)
        group *= 2;
    ROWS_LOOP(v, s, row, at, from, to, lane)
    {
        float total = 0.0f;
        uint32_t f = lane % group, part = lane / group, parts = 32 / group;
        for (uint32_t base = 0; base < v.factors; base += group) {
            float sum = 0.0f, square = 0.0f;
            bool mine = base + f < v.factors;
#pragma unroll 4
            for (uint32_t e = from + part; e < to; e += parts) {
                float xv =
                    mine ? sparse_value(v, e) * __ldcg(sparse_weight(v, v.keys[e]) + 1 + base + f) : 0.0f;
                sum += xv;
                square += xv * xv;
            }
            for (uint32_t by = 16; by >= group; by /= 2) {
                sum += __shfl_xor_sync(0xffffffffu, sum, (int)by);
                square += __shfl_xor_sync(0xffffffffu, square, (int)by);
            }
            if (part == 0 && mine) {
                v.sums[(uint64_t)at * v.factors + base + f] = sum;
                total += __fmul_rn(sum, sum) - square; /* not fused: exactly 0 with one feature */
            }
        }
        float margin = rows_linear(v, from, to, lane) + 0.5f * sparse_warp_sum(total);
        if (lane == 0)
            sparse_end_row(v, row, margin, s.scale);
    }
}

/* sum_{i<j} (v_i,f(j) . v_j,f(i)) x_i x_j: lanes have a pair each. */
static __global__ void rows_ffm(sparse_view v, uint32_t number)
{
    ROWS_LOOP(v, s, row, at, from, to, lane)
    {
        float total = 0.0f;
        for (uint32_t i = from; i < to; i++) {
            float x = sparse_value(v, i), sum = 0.0f;
            const float *a = sparse_weight(v, v.keys[i]) + 1, *b;
            uint32_t field = v.field_of[i];
            for (uint32_t j = i + 1 + lane; j < to; j += 32) {
                const float *p = a + (uint64_t)v.field_of[j] * v.factors;
                float dot = 0.0f;
                b = sparse_weight(v, v.keys[j]) + 1 + (uint64_t)field * v.factors;
                for (uint32_t c = 0; c < v.factors; c++)
                    dot += __ldcg(p + c) * __ldcg(b + c);
                sum += sparse_value(v, j) * dot;
            }
            total += x * sum;
        }
        float margin = rows_linear(v, from, to, lane) + sparse_warp_sum(total);
        if (lane == 0)
            sparse_end_row(v, row, margin, s.scale);
    }
}

/* ffm: the contribution of sorted entry i to its key, added to g. Lanes have a weight for another entry of
 * the row each; where entries of the row share a field, they take turns. */
static __device__ void rows_ffm_entry(const sparse_view &v, const sparse_step &s, uint32_t key, uint32_t i,
                                      float *g, uint32_t lane)
{
    uint32_t own = v.origin[i], from, to, row = v.sorted_rows[i], k = v.factors;
    if (row == SPARSE_NONE)
        return;
    const float *w = sparse_weight(v, key) + 1;
    uint32_t field = v.field_of[own];
    float c = __ldcg(v.coefs + row) * sparse_value(v, own);
    float l2 = v.l2_factors * s.scale * (v.weights != nullptr ? v.weights[row] : 1.0f);
    sparse_row_entries(v, row, &from, &to);
    if (lane == 0)
        g[0] += c;
    uint32_t n = (to - from) * k, lanes = v.distinct_fields ? 32 : k < 32 ? k : 32;
    for (uint32_t base = 0; base < n; base += lanes) {
        uint32_t at = base + lane, e = from + at / k, f = at % k;
        /* in turns: entry after entry, and lanes have the factors of one */
        if (lane < lanes && at < n && e != own) {
            uint32_t place = v.field_of[e] * k + f;
            float other = __ldcg(sparse_weight(v, v.keys[e]) + 1 + (uint64_t)field * k + f);
            g[1 + place] += c * sparse_value(v, e) * other + l2 * __ldcg(w + place);
        }
        __syncwarp();
    }
}

/* ffm: the sum of sorted entries [from, to), which are of one key, into g. */
static __device__ void rows_ffm_piece(const sparse_view &v, const sparse_step &s, uint32_t key, uint32_t from,
                                      uint32_t to, float *g, uint32_t lane)
{
    for (uint32_t j = lane; j < v.width; j += 32)
        g[j] = 0.0f;
    __syncwarp();
    for (uint32_t i = from; i < to; i++) {
        rows_ffm_entry(v, s, key, i, g, lane);
        __syncwarp();
    }
}

/* fwfm: the sums of v_i x_i of each field, into `sums` (fields x factors). */
static __device__ void rows_fwfm_sums(const sparse_view &v, uint32_t from, uint32_t to, float *sums,
                                      uint32_t lane)
{
    uint32_t k = v.factors;
    for (uint32_t i = lane; i < v.fields * k; i += 32)
        sums[i] = 0.0f;
    __syncwarp();
    if (v.distinct_fields) {
        for (uint32_t i = lane; i < (to - from) * k; i += 32) {
            uint32_t e = from + i / k, f = i % k;
            sums[v.field_of[e] * k + f] = sparse_value(v, e) * __ldcg(sparse_weight(v, v.keys[e]) + 1 + f);
        }
    } else {
        for (uint32_t e = from; e < to; e++)
            for (uint32_t f = lane; f < k; f += 32)
                sums[v.field_of[e] * k + f] +=
                    sparse_value(v, e) * __ldcg(sparse_weight(v, v.keys[e]) + 1 + f);
    }
    __syncwarp();
}

/* The sum of |v_i x_i|^2 of a field. *n: its entries. */
static __device__ float rows_fwfm_squares(const sparse_view &v, uint32_t from, uint32_t to, uint32_t field,
                                          uint32_t *n)
{
    float sum = 0.0f;
    *n = 0;
    for (uint32_t e = from; e < to; e++) {
        if (v.field_of[e] != field)
            continue;
        float x = sparse_value(v, e);
        const float *w = sparse_weight(v, v.keys[e]) + 1;
        for (uint32_t f = 0; f < v.factors; f++) {
            float xv = x * __ldcg(w + f);
            sum += xv * xv;
        }
        ++*n;
    }
    return sum;
}

/* 1/2 (sum_f s_f . (sum_g r_fg s_g) - sum_i r_f(i),f(i) |v_i x_i|^2) */
static __global__ void rows_fwfm(sparse_view v, uint32_t number)
{
    ROWS_LOOP(v, s, row, at, from, to, lane)
    {
        uint32_t k = v.factors, n = v.fields * k;
        float *sums = v.sums + (uint64_t)at * n, *weighted = v.weighted + (uint64_t)at * n, total = 0.0f;
        const float *pairs = v.w + v.pairs_at;
        rows_fwfm_sums(v, from, to, sums, lane);
        for (uint32_t i = lane; i < n; i += 32) {
            uint32_t f = i / k, c = i % k;
            float sum = 0.0f;
            for (uint32_t g = 0; g < v.fields; g++)
                sum += __ldcg(pairs + rows_pair(v.fields, f, g)) * sums[g * k + c];
            weighted[i] = sum;
            total += sums[i] * sum;
        }
        for (uint32_t f = lane; f < v.fields; f += 32) {
            uint32_t count = 0;
            float square = 0.0f, length = 0.0f;
            for (uint32_t c = 0; c < k; c++)
                length += sums[f * k + c] * sums[f * k + c];
            square = v.distinct_fields ? length : rows_fwfm_squares(v, from, to, f, &count);
            v.self[(uint64_t)at * v.fields + f] = count > 1 ? length - square : 0.0f;
            total -= __ldcg(pairs + rows_pair(v.fields, f, f)) * square;
        }
        float margin = rows_linear(v, from, to, lane) + 0.5f * sparse_warp_sum(total);
        if (lane == 0)
            sparse_end_row(v, row, margin, s.scale);
    }
}

/* The row-wise rule on a gradient in memory, by a warp. */
static __device__ void rows_apply_stored(const sparse_view &v, const mst_rule *rule, uint32_t key,
                                         const float *g, float clip, uint32_t lane)
{
    float *w = sparse_weight(v, key);
    float *state = v.slots[0] + v.weight_at + (uint64_t)v.head * v.width + (key - v.head), squares = 0.0f;
    for (uint32_t j = lane; j < v.width; j += 32) {
        float d = g[j] * clip + rule->l2 * __ldcg(w + j);
        squares += d * d;
    }
    float sum = __ldcg(state) + sparse_warp_sum(squares) / (float)v.width;
    float rate = rule->lr / (sqrtf(sum) + rule->eps);
    __syncwarp();
    for (uint32_t j = lane; j < v.width; j += 32) {
        float at = __ldcg(w + j);
        w[j] = mst_rule_shrink(at - rate * (g[j] * clip + rule->l2 * at), rate * rule->l1);
    }
    if (lane == 0)
        *state = sum;
}

#endif
