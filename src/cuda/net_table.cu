/* The table of a net over embeddings on a GPU: factors and linear weight of every key, their state, and the entries
 * of a step; contract in net.cuh.
 *
 * The entries of a step are sorted by key, which keeps the order of those with one key. Their gradients are summed in
 * tiles of 32 sorted entries: a key whose entries are in one tile at once, the others from the sums of their tiles.
 * Sums therefore have a fixed order. Then the rule changes each key once. */
#include "cuda/net_lines.cuh"
#include "cuda/rules.cuh"

#include <cub/device/device_radix_sort.cuh>

#include <algorithm>
#include <new>

#define TILE  32
#define AHEAD 8 /* entries whose weights are read at a time */

struct net_table {
    mst_cuda_table spec;
    float *w, *state[2];
    uint64_t capacity; /* entries */
    uint32_t staged;
    uint32_t *keys, *order, *numbers; /* sorted keys, and the entry of each; 0, 1, 2, ... */
    float *sums, *tiles;              /* width for each entry; 2 x width for each tile */
    double *squares;
    void *temporary;
    size_t temporary_bytes;
    int bits; /* of keys, and of the padding */
};

/* An array of a slot: entries arrays are `entries` apart. */
static inline size_t table_ends_bytes(const mst_cuda_net *net)
{
    return ((size_t)net->spec.max_rows * sizeof(uint32_t) + 255) / 256 * 256;
}

static mst_status table_array(mst_cuda_net *net, uint64_t floats, float **out)
{
    void *at;
    NET_TRY(net_alloc(net, floats * sizeof(float), &at));
    CUDA_TRY(cudaMemset(at, 0, floats * sizeof(float)));
    *out = (float *)at;
    return MST_OK;
}

mst_status net_table_make(mst_cuda_net *net, const mst_cuda_table *spec)
{
    net_table *t = new (std::nothrow) net_table();
    void *at;
    if (t == NULL)
        return mst_cuda_plugin_host->fail(MST_ENOMEM, "out of memory");
    net->table = t;
    t->spec = *spec;
    while (t->bits < 32 && spec->n_keys >> t->bits != 0)
        t->bits++;
    NET_TRY(table_array(net, spec->n_keys * spec->width, &t->w));
    for (unsigned s = 0; net->spec.updates && s < mst_rule_slots(spec->rule); s++)
        NET_TRY(table_array(net, spec->n_keys * (spec->state_per_key ? 1 : spec->width) +
                                     (uint64_t)spec->head * spec->width,
                            &t->state[s]));
    NET_TRY(net_alloc(net, NET_SQUARES * sizeof(double), &at));
    t->squares = (double *)at;
    return MST_OK;
}

void net_table_free(mst_cuda_net *net)
{
    net_table *t = net->table;
    if (t == NULL)
        return;
    cudaFree(t->keys);
    cudaFree(t->order);
    cudaFree(t->numbers);
    cudaFree(t->sums);
    cudaFree(t->tiles);
    cudaFree(t->temporary);
    for (net_slot &slot : net->slots)
        cudaFree(slot.entries_device);
    delete t;
}

static mst_status table_grow(void **at, size_t bytes)
{
    cudaFree(*at);
    *at = NULL;
    CUDA_TRY(cudaMalloc(at, bytes));
    return MST_OK;
}

static __global__ void count_kernel(uint32_t n, uint32_t *out)
{
    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS)
        out[i] = i;
}

/* Room for n entries. Graphs of steps have the old places: they go. */
static mst_status table_reserve(mst_cuda_net *net, uint64_t n)
{
    net_table *t = net->table;
    size_t bytes = table_ends_bytes(net) + 3 * n * sizeof(uint32_t);
    CUDA_TRY(cudaStreamSynchronize(net->copy));
    CUDA_TRY(cudaStreamSynchronize(net->stream));
    for (auto &known : net->graphs)
        cudaGraphExecDestroy(known.second);
    net->graphs.clear();
    t->capacity = 0;
    for (net_slot &slot : net->slots) {
        void *at;
        if (slot.entries != NULL)
            cudaFreeHost(slot.entries);
        slot.entries = NULL;
        CUDA_TRY(cudaHostAlloc(&at, bytes, cudaHostAllocPortable));
        slot.entries = (char *)at;
        NET_TRY(table_grow((void **)&slot.entries_device, bytes));
    }
    NET_TRY(table_grow((void **)&t->keys, n * sizeof(uint32_t)));
    NET_TRY(table_grow((void **)&t->order, n * sizeof(uint32_t)));
    NET_TRY(table_grow((void **)&t->numbers, n * sizeof(uint32_t)));
    NET_TRY(table_grow((void **)&t->sums, n * t->spec.width * sizeof(float)));
    NET_TRY(table_grow((void **)&t->tiles, n / TILE * 2 * t->spec.width * sizeof(float)));
    t->temporary_bytes = 0;
    CUDA_TRY(cub::DeviceRadixSort::SortPairs(NULL, t->temporary_bytes, t->keys, t->keys, t->order, t->order, (int)n, 0,
                                             t->bits, net->stream));
    NET_TRY(table_grow(&t->temporary, t->temporary_bytes + 256));
    count_kernel<<<mst_cuda_blocks(n, THREADS, 4096), THREADS, 0, net->stream>>>((uint32_t)n, t->numbers);
    CUDA_LAUNCHED("numbers of entries");
    t->capacity = n;
    return MST_OK;
}

/* Steps of about the same number of entries share a graph: rounded up by an eighth at most. */
static uint64_t table_padded(uint64_t n)
{
    uint64_t step = TILE;
    while (step * 8 < n)
        step *= 2;
    return std::max<uint64_t>((n + step - 1) / step * step, TILE);
}

mst_cuda_entries net_table_places(const mst_cuda_net *net, char *at, uint64_t n)
{
    uint32_t *keys = (uint32_t *)(at + table_ends_bytes(net));
    return {(uint32_t *)at, keys, keys + n, (float *)(keys + 2 * n)};
}

/* *all: n with padding, for which there is room. */
static mst_status table_room(mst_cuda_net *net, uint64_t n, uint64_t *all)
{
    net_table *t = net->table;
    *all = table_padded(n);
    if (t == NULL || *all > INT32_MAX / 2)
        return mst_cuda_plugin_host->fail(MST_EINPUT, "a step of %llu keys is too large for a GPU; reduce --batch",
                                          (unsigned long long)n);
    if (*all > t->capacity)
        NET_TRY(table_reserve(net, *all + *all / 4 / TILE * TILE));
    t->staged = (uint32_t)*all;
    return MST_OK;
}

mst_status net_table_unsent(mst_cuda_net *net, uint64_t n)
{
    uint64_t all;
    return table_room(net, n, &all);
}

mst_status net_table_entries(mst_cuda_net *net, uint64_t n, mst_cuda_entries *out)
{
    uint64_t all;
    NET_TRY(table_room(net, n, &all));
    *out = net_table_places(net, net->slots[net->slot].entries, all);
    for (uint64_t i = n; i < all; i++) {
        out->keys[i] = (uint32_t)net->spec.table.n_keys; /* sorted behind all keys */
        out->places[i] = 0;
        out->values[i] = 0.0f;
    }
    return MST_OK;
}

uint32_t net_table_staged(const mst_cuda_net *net)
{
    return net->table->staged;
}

mst_status net_table_send(mst_cuda_net *net, net_slot *slot, bool copies)
{
    if (net->table->staged == 0)
        return mst_cuda_plugin_host->fail(MST_EUSAGE, "the keys of a step on a GPU were not staged");
    if (copies)
        CUDA_TRY(cudaMemcpyAsync(slot->entries_device, slot->entries,
                                 table_ends_bytes(net) + 3 * (size_t)net->table->staged * sizeof(uint32_t),
                                 cudaMemcpyHostToDevice, net->copy));
    net->table->staged = 0;
    return MST_OK;
}

/* What kernels read. */
typedef struct table_view {
    const uint32_t *ends, *keys, *places;
    const float *values;
    float *w;
    uint32_t n_keys, width, factors, n_fields, entries;
} table_view;

static table_view table_view_of(const mst_cuda_net *net, const net_slot *slot, uint32_t entries)
{
    const net_table *t = net->table;
    mst_cuda_entries at = net_table_places(net, slot->entries_device, entries);
    table_view v = {at.ends,
                    at.keys,
                    at.places,
                    at.values,
                    t->w,
                    (uint32_t)t->spec.n_keys,
                    t->spec.width,
                    t->spec.factors,
                    t->spec.n_fields,
                    entries};
    return v;
}

/* ---- forward ---- */

/* Value times weight k of the key of an entry. */
static __device__ __forceinline__ float entry_weight(const table_view &v, uint32_t e, uint32_t k)
{
    uint32_t key = v.keys[e];
    return key < v.n_keys ? v.values[e] * __ldg(&v.w[(uint64_t)key * v.width + k]) : 0.0f;
}

/* A warp per row: its entries one after the other, each lane an element of the factors. Entries may share a place. */
static __device__ void load_row(const table_view &v, uint32_t from, uint32_t to, float *embedding, float *row)
{
    uint32_t lane = threadIdx.x % 32, size = v.n_fields * v.factors;
    for (uint32_t i = lane; i < size; i += 32)
        row[i] = 0.0f;
    __syncwarp();
    for (uint32_t k = lane; k < v.factors; k += 32)
        for (uint32_t e = from; e < to; e += AHEAD) {
            float parts[AHEAD];
#pragma unroll
            for (uint32_t i = 0; i < AHEAD; i++) /* before the additions: reads do not wait for each other */
                parts[i] = e + i < to ? entry_weight(v, e + i, k) : 0.0f;
#pragma unroll
            for (uint32_t i = 0; i < AHEAD; i++)
                if (e + i < to)
                    embedding[(uint64_t)v.places[e + i] * v.factors + k] += parts[i];
        }
}

/* The same of at most 32 entries, one per lane, that have different places: all numbers at once. */
static __device__ void load_distinct(const table_view &v, uint32_t n, uint32_t key, uint32_t place, float value,
                                     float *embedding)
{
    uint32_t lane = threadIdx.x % 32, count = n * v.factors;
    for (uint32_t first = 0; first < count; first += 32 * AHEAD) {
        float parts[AHEAD];
        uint64_t places[AHEAD];
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++) {
            uint32_t at = first + 32 * i + lane, e = at / v.factors, k = at - e * v.factors;
            uint32_t of = __shfl_sync(~0u, key, (int)e % 32);
            float times = __shfl_sync(~0u, value, (int)e % 32);
            places[i] = (uint64_t)__shfl_sync(~0u, place, (int)e % 32) * v.factors + k;
            parts[i] = at < count && of < v.n_keys ? times * __ldg(&v.w[(uint64_t)of * v.width + k]) : 0.0f;
        }
#pragma unroll
        for (uint32_t i = 0; i < AHEAD; i++)
            if (first + 32 * i + lane < count)
                embedding[places[i]] = parts[i];
    }
}

/* A warp per row. */
static __global__ void load_kernel(table_view v, uint32_t n, float *embedding, float *wide)
{
    uint32_t lane = threadIdx.x % 32, size = v.n_fields * v.factors;
    for (uint32_t r = (blockIdx.x * THREADS + threadIdx.x) / 32; r < n; r += gridDim.x * THREADS / 32) {
        uint32_t from = r > 0 ? v.ends[r - 1] : 0, to = v.ends[r], own = from + lane;
        float *row = embedding + (uint64_t)r * size, sum = 0.0f;
        bool there = own < to;
        uint32_t key = there ? v.keys[own] : v.n_keys, place = there ? v.places[own] : ~lane;
        float value = there ? v.values[own] : 0.0f;
        bool distinct = to - from <= 32 && __all_sync(~0u, __match_any_sync(~0u, place) == 1u << lane);
        if (wide != NULL) { /* the first 32 entries, then the others */
            sum = key < v.n_keys ? value * __ldg(&v.w[(uint64_t)key * v.width + v.factors]) : 0.0f;
            for (uint32_t e = own + 32; e < to; e += 32)
                sum += entry_weight(v, e, v.factors);
        }
        if (embedding != NULL && distinct) {
            for (uint32_t i = lane; to - from < v.n_fields && i < size; i += 32)
                row[i] = 0.0f;
            __syncwarp();
            load_distinct(v, to - from, key, place, value, embedding);
        } else if (embedding != NULL) {
            load_row(v, from, to, embedding, row);
        }
        for (int by = 16; by > 0; by /= 2)
            sum += __shfl_xor_sync(~0u, sum, by);
        if (wide != NULL && lane == 0)
            wide[r] = sum;
    }
}

mst_status net_table_load(mst_cuda_net *net, uint32_t n, const net_slot *slot, uint32_t entries, float *embedding,
                          float *wide)
{
    load_kernel<<<mst_cuda_blocks(32ull * n, THREADS, 8192), THREADS, 0, net->stream>>>(table_view_of(net, slot, entries),
                                                                                        n, embedding, wide);
    CUDA_LAUNCHED("the embedding");
    return MST_OK;
}

/* ---- gradients of keys ---- */

/* A warp per tile, a lane for each of its entries, which the others then read: its pieces of keys one after the other,
 * each lane a weight. A piece that is a whole key is a sum; the part of a key that began in an earlier tile, and that
 * which goes on behind this one, are sums of the tile. */
static __global__ void tiles_kernel(table_view v, const uint32_t *keys, const uint32_t *order, const float *embedding,
                                    const float *wide, float *sums, float *tiles)
{
    uint32_t lane = threadIdx.x % 32, n_tiles = v.entries / TILE;
    for (uint32_t t = (blockIdx.x * THREADS + threadIdx.x) / 32; t < n_tiles; t += gridDim.x * THREADS / 32) {
        uint32_t at = t * TILE, key = keys[at + lane], entry = order[at + lane];
        uint32_t before = at + lane > 0 ? keys[at + lane - 1] : ~key;
        uint32_t next = at + TILE < v.entries ? keys[at + TILE] : ~0u, place = v.places[entry];
        float value = v.values[entry], linear = wide != NULL ? value * wide[place / v.n_fields] : 0.0f;
        uint32_t heads = __ballot_sync(~0u, key != before), none = __ballot_sync(~0u, key >= v.n_keys);
        uint32_t end_key = __shfl_sync(~0u, key, TILE - 1);
        uint32_t count = none != 0 ? (uint32_t)__ffs((int)none) - 1 : TILE; /* keys; then padding */
        for (uint32_t first = 0; first < v.width; first += 32) {
            uint32_t k = first + lane, start = 0;
            float sum = 0.0f;
            for (uint32_t from = 0; from < count; from += AHEAD) {
                float parts[AHEAD];
#pragma unroll
                for (uint32_t i = 0; i < AHEAD; i++) {
                    uint32_t of = __shfl_sync(~0u, place, (int)(from + i));
                    float times = __shfl_sync(~0u, value, (int)(from + i));
                    parts[i] = __shfl_sync(~0u, linear, (int)(from + i));
                    if (k < v.factors && from + i < count)
                        parts[i] = embedding != NULL ? times * embedding[(uint64_t)of * v.factors + k] : 0.0f;
                }
#pragma unroll
                for (uint32_t i = 0; i < AHEAD; i++) {
                    uint32_t p = from + i;
                    sum += parts[i];
                    bool last = p + 1 == TILE || p + 1 == count;
                    if (p >= count || !(last || heads >> (p + 1) & 1))
                        continue;
                    bool begins = heads >> start & 1, ends = p + 1 < TILE || next != end_key;
                    float *to = !begins ? tiles + (uint64_t)t * 2 * v.width
                                : ends  ? sums + (uint64_t)(at + start) * v.width
                                        : tiles + ((uint64_t)t * 2 + 1) * v.width;
                    if (k < v.width)
                        to[k] = sum;
                    sum = 0.0f;
                    start = p + 1;
                }
            }
        }
    }
}

/* A warp per tile in which a key begins that goes on behind it: adds the sums of its tiles. */
static __global__ void spans_kernel(table_view v, const uint32_t *keys, const float *tiles, float *sums)
{
    uint32_t lane = threadIdx.x % 32, n_tiles = v.entries / TILE;
    for (uint32_t t = (blockIdx.x * THREADS + threadIdx.x) / 32; t + 1 < n_tiles; t += gridDim.x * THREADS / 32) {
        uint32_t at = t * TILE, key = keys[at + lane], of = keys[at + TILE - 1];
        uint32_t before = at + lane > 0 ? keys[at + lane - 1] : ~key;
        uint32_t heads = __ballot_sync(~0u, key != before);
        if (heads == 0 || of >= v.n_keys || keys[at + TILE] != of)
            continue;
        uint32_t head = 31 - (uint32_t)__clz((int)heads), end = t + 1, same;
        do { /* 32 tiles at a time */
            same = __ballot_sync(~0u, end + lane < n_tiles && keys[(uint64_t)(end + lane) * TILE] == of);
            end += same == ~0u ? 32 : (uint32_t)__ffs((int)~same) - 1;
        } while (same == ~0u);
        for (uint32_t k = lane; k < v.width; k += 32) {
            float sum = tiles[((uint64_t)t * 2 + 1) * v.width + k];
            for (uint32_t from = t + 1; from < end; from += 2 * AHEAD) {
                float parts[2 * AHEAD];
#pragma unroll
                for (uint32_t i = 0; i < 2 * AHEAD; i++)
                    parts[i] = from + i < end ? tiles[(uint64_t)(from + i) * 2 * v.width + k] : 0.0f;
#pragma unroll
                for (uint32_t i = 0; i < 2 * AHEAD; i++)
                    sum += parts[i];
            }
            sums[(uint64_t)(at + head) * v.width + k] = sum;
        }
    }
}

/* Part b of the sum of squares: every NET_SQUARES-th group of keys. */
static __global__ void squares_kernel(table_view v, const uint32_t *keys, const float *sums, double *squares)
{
    double sum = 0.0;
    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < v.entries; i += NET_SQUARES * THREADS) {
        if (keys[i] >= v.n_keys || (i > 0 && keys[i] == keys[i - 1]))
            continue;
        for (uint32_t k = 0; k < v.width; k++)
            sum += (double)sums[(uint64_t)i * v.width + k] * (double)sums[(uint64_t)i * v.width + k];
    }
    sum = net_block_sum<THREADS>(sum);
    if (threadIdx.x == 0)
        squares[blockIdx.x] = sum;
}

mst_status net_table_sort(mst_cuda_net *net, const net_slot *slot, uint32_t entries)
{
    net_table *t = net->table;
    CUDA_TRY(cub::DeviceRadixSort::SortPairs(t->temporary, t->temporary_bytes, table_view_of(net, slot, entries).keys,
                                             t->keys, t->numbers, t->order, (int)entries, 0, t->bits, net->aside));
    CUDA_TRY(cudaEventRecord(net->sorted, net->aside));
    return MST_OK;
}

mst_status net_table_sum(mst_cuda_net *net, const net_slot *slot, uint32_t entries, bool clip, const float *embedding,
                         const float *wide)
{
    net_table *t = net->table;
    table_view v = table_view_of(net, slot, entries);
    unsigned blocks = mst_cuda_blocks(entries, THREADS, 8192);
    CUDA_TRY(cudaStreamWaitEvent(net->stream, net->sorted, 0));
    tiles_kernel<<<blocks, THREADS, 0, net->stream>>>(v, t->keys, t->order, embedding, wide, t->sums, t->tiles);
    spans_kernel<<<blocks, THREADS, 0, net->stream>>>(v, t->keys, t->tiles, t->sums);
    if (clip)
        squares_kernel<<<NET_SQUARES, THREADS, 0, net->stream>>>(v, t->keys, t->sums, t->squares);
    CUDA_LAUNCHED("the gradients of keys");
    return MST_OK;
}

const double *net_table_squares(const mst_cuda_net *net)
{
    return net->table->squares;
}

/* ---- update ---- */

/* One state for the key, that of the mean of the squares (tensor/rule.h). */
static __device__ void update_row(const mst_rule *rule, uint32_t width, float *w, float *state, const float *g,
                                  float factor)
{
    uint32_t lane = threadIdx.x % 32;
    float squares = 0.0f, before = *state;
    for (uint32_t k = lane; k < width; k += 32) {
        float d = g[k] * factor + rule->l2 * w[k];
        squares += d * d;
    }
    for (int by = 16; by > 0; by /= 2)
        squares += __shfl_xor_sync(~0u, squares, by);
    float sum = before + squares / (float)width, rate = rule->lr / (sqrtf(sum) + rule->eps);
    for (uint32_t k = lane; k < width; k += 32)
        w[k] = mst_rule_shrink(w[k] - rate * (g[k] * factor + rule->l2 * w[k]), rate * rule->l1);
    if (lane == 0)
        *state = sum;
}

/* A warp per sorted entry; those that begin a key have its gradient. */
template <int KIND>
static __global__ void keys_kernel(mst_cuda_table spec, uint32_t entries, const uint32_t *keys, const float *sums,
                                   const net_numbers *numbers, const float *clip, float *w, float *a, float *b)
{
    mst_rule rule = numbers->rule_keys;
    float factor = clip != NULL ? *clip : 1.0f;
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = (blockIdx.x * THREADS + threadIdx.x) / 32; i < entries; i += gridDim.x * THREADS / 32) {
        uint32_t key = keys[i];
        if (key >= spec.n_keys || (i > 0 && keys[i - 1] == key))
            continue;
        const float *g = sums + (uint64_t)i * spec.width;
        uint64_t at = (uint64_t)key * spec.width;
        if (rule.by_row && spec.state_per_key && key >= spec.head) {
            update_row(&rule, spec.width, w + at, a + (uint64_t)spec.head * spec.width + (key - spec.head), g, factor);
            continue;
        }
        for (uint32_t k = lane; k < spec.width; k += 32)
            mst_rule_apply<KIND>(&rule, w, a, b, at + k, g[k] * factor);
    }
}

mst_status net_table_update(mst_cuda_net *net, uint32_t entries, const net_numbers *numbers, const float *clip)
{
    net_table *t = net->table;
    unsigned blocks = mst_cuda_blocks(32ull * entries, THREADS, 16384);
#define CALL(KIND)                                                                                           \
    case KIND:                                                                                               \
        keys_kernel<KIND><<<blocks, THREADS, 0, net->stream>>>(t->spec, entries, t->keys, t->sums, numbers,  \
                                                               clip, t->w, t->state[0], t->state[1]);        \
        break
    switch (t->spec.rule) {
        CALL(MST_RULE_SGD);
        CALL(MST_RULE_MOMENTUM);
        CALL(MST_RULE_ADAGRAD);
        CALL(MST_RULE_ADAM);
        CALL(MST_RULE_FTRL);
    }
#undef CALL
    CUDA_LAUNCHED("the update of keys");
    return MST_OK;
}

mst_status net_table_copy(mst_cuda_net *net, uint32_t slot, uint64_t first, uint64_t n, const float *from, float *to)
{
    net_table *t = net->table;
    float *at = t == NULL ? NULL : slot == 0 ? t->w : slot <= 2 ? t->state[slot - 1] : NULL;
    if (at == NULL)
        return mst_cuda_plugin_host->fail(MST_EUSAGE, "a net on a GPU has no table with state %u", slot);
    CUDA_TRY(from != NULL ? cudaMemcpyAsync(at + first, from, n * sizeof *from, cudaMemcpyHostToDevice, net->stream)
                          : cudaMemcpyAsync(to, at + first, n * sizeof *to, cudaMemcpyDeviceToHost, net->stream));
    return MST_OK;
}
