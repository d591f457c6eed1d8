/* The entries of a block by step and key. They depend on the rows alone, so that this work runs beside the
 * steps of an earlier block. */
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_select.cuh>
#include <cuda/std/functional>
#include <thrust/iterator/counting_iterator.h>

#include "cuda/sparse_impl.cuh"

/* Numbers entries by step and key. A key beyond the features, which a changed file can have, becomes 0 and
 * sets *bad. */
static __global__ void sparse_number_entries(sparse_view v, uint64_t n_features, bool direct,
                                             uint32_t *composite, uint32_t *origin, uint32_t *row_of,
                                             uint32_t *bad)
{
    uint32_t lane = threadIdx.x % 32, n_warps = gridDim.x * (blockDim.x / 32);
    for (uint32_t row = (blockIdx.x * blockDim.x + threadIdx.x) / 32; row < v.n_rows; row += n_warps) {
        uint32_t from, to, step = row / v.batch;
        uint32_t high = v.key_bits < 32 ? step << v.key_bits : 0;
        sparse_row_entries(v, row, &from, &to);
        for (uint32_t e = from + lane; e < to; e += 32) {
            uint32_t key = v.keys[e];
            if (key >= n_features) {
                *bad = 1;
                key = v.keys[e] = 0;
            }
            composite[e] = high | key;
            origin[e] = direct ? row : e;
            if (!direct)
                row_of[e] = row;
        }
    }
    if (!v.fill_head)
        return;
    uint32_t n = v.n_steps * v.head, base = sparse_entries_before(v, v.n_steps) - n;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        composite[base + i] = (v.key_bits < 32 ? i / v.head << v.key_bits : 0) | i % v.head;
        origin[base + i] = SPARSE_NONE;
    }
}

static __global__ void sparse_check_keys(uint32_t *keys, uint32_t n, uint64_t n_features, uint32_t *bad)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        if (keys[i] >= n_features) {
            *bad = 1;
            keys[i] = 0;
        }
}

static __global__ void sparse_find_rows(const uint32_t *origin, const uint32_t *row_of, const float *values,
                                        uint32_t n, uint32_t *sorted_rows, float *sorted_values)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        uint32_t e = origin[i];
        sorted_rows[i] = e == SPARSE_NONE ? SPARSE_NONE : row_of[e];
        if (values != nullptr)
            sorted_values[i] = e == SPARSE_NONE ? 0.0f : values[e];
    }
}

struct sparse_begins {
    const uint32_t *sorted;
    __device__ bool operator()(uint32_t i) const
    {
        return i == 0 || sorted[i] != sorted[i - 1];
    }
};

static __device__ __forceinline__ uint32_t sparse_step_number(const sparse_view &v, uint32_t i)
{
    return v.key_bits < 32 ? v.sorted[i] >> v.key_bits : 0;
}

/* The first segment of each step, and the pieces of long segments. The place of a segment's pieces in the
 * list varies from run to run; the sums do not depend on it. */
static __global__ void sparse_find_pieces(sparse_view v, const uint32_t *n_segments, uint32_t n_entries,
                                          uint32_t *starts, uint32_t *step_first, uint4 *pieces,
                                          uint32_t *n_pieces, uint32_t shortest, uint32_t piece)
{
    uint32_t n = *n_segments;
    for (uint32_t s = blockIdx.x * blockDim.x + threadIdx.x; s < n; s += gridDim.x * blockDim.x) {
        uint32_t from = starts[s], to = s + 1 < n ? starts[s + 1] : n_entries;
        uint32_t step = sparse_step_number(v, from);
        for (uint32_t t = s == 0 ? 0 : sparse_step_number(v, starts[s - 1]) + 1; t <= step; t++)
            step_first[t] = s;
        if (s + 1 == n) {
            for (uint32_t t = step + 1; t <= v.n_steps; t++)
                step_first[t] = n;
            starts[n] = n_entries;
        }
        if (to - from <= shortest)
            continue;
        uint32_t count = (to - from + piece - 1) / piece;
        uint32_t first = sparse_entries_before(v, step) / SPARSE_DENSER + atomicAdd(&n_pieces[step], count);
        for (uint32_t i = 0; i < count; i++) {
            uint32_t begin = from + i * piece, end = begin + piece;
            pieces[first + i] = make_uint4(begin, end < to ? end : to, count, first);
        }
    }
}

/* CUB sorts eight bits in a pass, with the size of its tiles for that. These sort nine bits, with tiles of
 * 512 threads: the 26 bits of 33.8 million features take three passes instead of four. The interface of CUB
 * has no such choice; versions whose policies may have other names sort with eight bits. */
#define SORT_NINE (CUB_VERSION / 100 == 3000)
#if SORT_NINE
struct sort_policies {
    struct MaxPolicy : cub::ChainedPolicy<900, MaxPolicy, MaxPolicy> {
        using Other = cub::detail::radix::policy_hub<uint32_t, uint32_t, uint32_t>::Policy900;
        static constexpr bool ONESWEEP = true;
        static constexpr int ONESWEEP_RADIX_BITS = 9;
        using HistogramPolicy = cub::AgentRadixSortHistogramPolicy<128, 16, 1, uint32_t, 9>;
        using ExclusiveSumPolicy = cub::AgentRadixSortExclusiveSumPolicy<256, 9>;
        using OnesweepPolicy =
            cub::AgentRadixSortOnesweepPolicy<512, 19, uint32_t, 1, cub::RADIX_RANK_MATCH_EARLY_COUNTS_ANY,
                                              cub::BLOCK_SCAN_RAKING_MEMOIZE, cub::RADIX_SORT_STORE_DIRECT,
                                              9>;
        using ScanPolicy = Other::ScanPolicy;
        using UpsweepPolicy = Other::UpsweepPolicy;
        using AltUpsweepPolicy = Other::AltUpsweepPolicy;
        using DownsweepPolicy = Other::DownsweepPolicy;
        using AltDownsweepPolicy = Other::AltDownsweepPolicy;
        using SingleTilePolicy = Other::SingleTilePolicy;
        using SegmentedPolicy = Other::SegmentedPolicy;
        using AltSegmentedPolicy = Other::AltSegmentedPolicy;
    };
};
#endif

static cudaError_t sparse_sort_pairs(void *scratch, size_t *bytes, cub::DoubleBuffer<uint32_t> keys,
                                     cub::DoubleBuffer<uint32_t> values, uint32_t n, int bits,
                                     cudaStream_t stream)
{
#if SORT_NINE
    using sort = cub::DispatchRadixSort<cub::SortOrder::Ascending, uint32_t, uint32_t, uint32_t,
                                        cub::detail::identity_decomposer_t, sort_policies>;
    if ((bits + 8) / 9 < (bits + 7) / 8)
        return sort::Dispatch(scratch, *bytes, keys, values, n, 0, bits, false, stream);
#endif
    return cub::DeviceRadixSort::SortPairs(scratch, *bytes, keys.Current(), keys.Alternate(),
                                           values.Current(), values.Alternate(), n, 0, bits, stream);
}

static mst_status sparse_sort(mst_cuda_sparse *self, sparse_block *b, uint32_t n)
{
    cub::DoubleBuffer<uint32_t> keys((uint32_t *)self->composite.at, (uint32_t *)b->sorted.at);
    cub::DoubleBuffer<uint32_t> origins((uint32_t *)self->origin.at, (uint32_t *)b->sorted_origin.at);
    uint32_t *starts = (uint32_t *)b->starts.at, *n_segments = (uint32_t *)b->n_segments.at;
    int bits = (int)self->key_bits;
    for (uint32_t steps = b->view.n_steps; steps > 1 && bits < 32; steps = (steps + 1) / 2)
        bits++;
    thrust::counting_iterator<uint32_t> numbers(0);
    sparse_begins begins = {keys.Alternate()};
    size_t sort_bytes = 0, select_bytes = 0;
    CUDA_TRY(sparse_sort_pairs(nullptr, &sort_bytes, keys, origins, n, bits, self->prepare_stream));
    CUDA_TRY(cub::DeviceSelect::If(nullptr, select_bytes, numbers, starts, n_segments, n, begins,
                                   self->prepare_stream));
    TRY(mst_sparse_grow(&self->scratch, sort_bytes > select_bytes ? sort_bytes : select_bytes, "sorting"));
    CUDA_TRY(sparse_sort_pairs(self->scratch.at, &sort_bytes, keys, origins, n, bits, self->prepare_stream));
    CUDA_TRY(cub::DeviceSelect::If(self->scratch.at, select_bytes, numbers, starts, n_segments, n, begins,
                                   self->prepare_stream));
    return MST_OK;
}

static mst_status sparse_prepare_memory(mst_cuda_sparse *self, sparse_block *b, bool direct, uint32_t n)
{
    size_t words = ((size_t)n + 1) * sizeof(uint32_t);
    TRY(mst_sparse_grow(&self->composite, words, "keys"));
    TRY(mst_sparse_grow(&b->sorted, words, "keys"));
    TRY(mst_sparse_grow(&self->origin, words, "keys"));
    TRY(mst_sparse_grow(&b->sorted_origin, words, "keys"));
    TRY(mst_sparse_grow(&b->starts, words, "keys"));
    TRY(mst_sparse_grow(&b->n_segments, sizeof(uint32_t), "keys"));
    TRY(mst_sparse_grow(&b->step_first, ((size_t)b->view.n_steps + 1) * sizeof(uint32_t), "steps"));
    TRY(mst_sparse_grow(&b->n_pieces, ((size_t)b->view.n_steps + 1) * sizeof(uint32_t), "steps"));
    TRY(mst_sparse_grow(&b->pieces, ((size_t)n / SPARSE_DENSER + 1) * sizeof(uint4), "keys"));
    if (direct)
        return MST_OK;
    TRY(mst_sparse_grow(&self->row_of, words, "keys"));
    TRY(mst_sparse_grow(&b->sorted_rows, words, "keys"));
    return b->rows.valued ? mst_sparse_grow(&b->sorted_values, words, "keys") : MST_OK;
}

mst_status mst_sparse_prepare(mst_cuda_sparse *self, sparse_block *b, bool held)
{
    sparse_view *v = &b->view;
    cudaStream_t stream = self->prepare_stream;
    bool direct = self->direct && v->values == nullptr;
    uint64_t all = (uint64_t)b->rows.n_entries +
                   (v->fill_head && !self->spec.atomic ? (uint64_t)v->n_steps * v->head : 0);
    if (all > MST_CUDA_SPARSE_ENTRIES)
        return mst_cuda_plugin_host->fail(MST_EINPUT,
                                          "a step has %llu keys, and --device cuda takes at most %u; "
                                          "reduce --batch or use --device cpu",
                                          (unsigned long long)all, MST_CUDA_SPARSE_ENTRIES);
    uint32_t n = (uint32_t)all, wide = self->spec.width > 1 || self->split;
    unsigned grid = self->n_processors * 8;
    b->n_entries = n;
    TRY(sparse_prepare_memory(self, b, direct, n));
    CUDA_TRY(cudaMemsetAsync(b->step_first.at, 0, ((size_t)v->n_steps + 1) * sizeof(uint32_t), stream));
    CUDA_TRY(cudaMemsetAsync(b->n_pieces.at, 0, ((size_t)v->n_steps + 1) * sizeof(uint32_t), stream));
    v->key_bits = self->key_bits;
    v->sorted = (const uint32_t *)b->sorted.at;
    v->origin = (const uint32_t *)b->sorted_origin.at;
    v->sorted_rows = direct ? v->origin : (const uint32_t *)b->sorted_rows.at;
    v->sorted_values = v->values != nullptr ? (const float *)b->sorted_values.at : nullptr;
    v->starts = (const uint32_t *)b->starts.at;
    v->step_first = (const uint32_t *)b->step_first.at;
    v->pieces = (const uint4 *)b->pieces.at;
    v->n_pieces = (const uint32_t *)b->n_pieces.at;
    bool numbered = false;
    if (held)
        TRY(mst_sparse_unpack(self, b, direct && !v->fill_head && !self->spec.atomic, &numbered));
    if (n == 0 || (numbered && self->spec.atomic))
        return MST_OK;
    if (self->spec.atomic) { /* no sums by key */
        sparse_check_keys<<<grid, 256, 0, stream>>>(v->keys, n, self->spec.n_features,
                                                    (uint32_t *)self->bad.at);
        CUDA_LAUNCHED("the check of keys");
        return MST_OK;
    }
    if (!numbered)
        sparse_number_entries<<<grid, 256, 0, stream>>>(
            *v, self->spec.n_features, direct, (uint32_t *)self->composite.at, (uint32_t *)self->origin.at,
            (uint32_t *)self->row_of.at, (uint32_t *)self->bad.at);
    CUDA_LAUNCHED("the numbering of keys");
    TRY(sparse_sort(self, b, n));
    if (!direct)
        sparse_find_rows<<<grid, 256, 0, stream>>>(v->origin, (const uint32_t *)self->row_of.at, v->values, n,
                                                   (uint32_t *)b->sorted_rows.at,
                                                   (float *)b->sorted_values.at);
    sparse_find_pieces<<<grid, 256, 0, stream>>>(
        *v, (const uint32_t *)b->n_segments.at, n, (uint32_t *)b->starts.at, (uint32_t *)b->step_first.at,
        (uint4 *)b->pieces.at, (uint32_t *)b->n_pieces.at, wide ? SPARSE_WIDE : SPARSE_SHORT,
        wide ? SPARSE_WIDE : SPARSE_PIECE);
    CUDA_LAUNCHED("the search of segments");
    return MST_OK;
}
