/* Rows with keys that stay on the GPU after their first step, by their number in the dataset: a later step sends the
 * numbers of its rows, and the GPU collects their entries. Contract in cuda_net.h, layout of a slot in net.cuh. */
#include "cuda/net_lines.cuh"

#define KEEP_FREE ((size_t)4 << 30) /* bytes of the GPU that stay free */

/* Row r of the slot becomes row picks[r].number of those that stay (KEEP), or the reverse. A warp per row. */
template <bool KEEP>
static __global__ void keep_kernel(uint32_t n, uint32_t row_size, uint32_t n_fields, uint32_t max_rows,
                                   const mst_cuda_pick *picks, mst_cuda_entries entries, float *numbers, float *labels,
                                   net_kept kept)
{
    uint32_t lane = threadIdx.x % 32, size = kept.row_entries;
    for (uint32_t r = (blockIdx.x * THREADS + threadIdx.x) / 32; r < n; r += gridDim.x * THREADS / 32) {
        uint64_t number = picks[r].number, at = (uint64_t)r * size, of = number * size;
        for (uint32_t e = lane; e < size; e += 32)
            if (KEEP) {
                kept.keys[of + e] = entries.keys[at + e];
                kept.fields[of + e] = entries.places[at + e] - r * n_fields;
                kept.values[of + e] = entries.values[at + e];
            } else {
                entries.keys[at + e] = kept.keys[of + e];
                entries.places[at + e] = kept.fields[of + e] + r * n_fields;
                entries.values[at + e] = kept.values[of + e];
            }
        for (uint32_t i = lane; i < row_size; i += 32)
            if (KEEP)
                kept.numbers[number * row_size + i] = numbers[(uint64_t)r * row_size + i];
            else
                numbers[(uint64_t)r * row_size + i] = kept.numbers[number * row_size + i];
        if (lane < 2 && KEEP)
            kept.labels[2 * number + lane] = labels[lane * max_rows + r];
        else if (lane < 2)
            labels[lane * max_rows + r] = kept.labels[2 * number + lane];
        if (!KEEP && lane == 0)
            entries.ends[r] = (r + 1) * size;
    }
}

/* Entries [from, to) are no keys. */
static __global__ void pad_kernel(uint32_t from, uint32_t to, uint32_t n_keys, mst_cuda_entries entries)
{
    for (uint32_t e = from + blockIdx.x * THREADS + threadIdx.x; e < to; e += gridDim.x * THREADS) {
        entries.keys[e] = n_keys;
        entries.places[e] = 0;
        entries.values[e] = 0.0f;
    }
}

mst_status net_keep(mst_cuda_net *net, uint32_t n, uint32_t padded, mst_cuda_source source, net_slot *slot)
{
    const mst_cuda_pick *picks = (const mst_cuda_pick *)slot->images_device;
    const mst_cuda_table &table = net->spec.table;
    float *labels = (float *)(slot->device + net_labels_at()), *numbers = (float *)(slot->device + net_rows_at(net));
    mst_cuda_entries entries = net_table_places(net, slot->entries_device, padded);
    uint32_t blocks = mst_cuda_blocks(32ull * n, THREADS, 8192), row = (uint32_t)net->row_size;
    uint32_t max_rows = net->spec.max_rows, all = n * net->kept_rows.row_entries;
    if (source == MST_CUDA_IMAGES)
        keep_kernel<true><<<blocks, THREADS, 0, net->stream>>>(n, row, table.n_fields, max_rows, picks, entries, numbers,
                                                               labels, net->kept_rows);
    else
        keep_kernel<false><<<blocks, THREADS, 0, net->stream>>>(n, row, table.n_fields, max_rows, picks, entries, numbers,
                                                                labels, net->kept_rows);
    if (source == MST_CUDA_KEPT && all < padded)
        pad_kernel<<<mst_cuda_blocks(padded - all, THREADS, 1024), THREADS, 0, net->stream>>>(
            all, padded, (uint32_t)table.n_keys, entries);
    CUDA_LAUNCHED("rows that stay");
    return MST_OK;
}

mst_status nets_keep_rows(mst_cuda_net *net, uint64_t n_rows, uint32_t row_entries, bool *keeps)
{
    net_kept *kept = &net->kept_rows;
    size_t entries = n_rows * row_entries * sizeof(float), numbers = n_rows * net->row_size * sizeof(float);
    size_t labels = 2 * n_rows * sizeof(float), available, total, picks = net_images_at(net);
    void *at;
    *keeps = false;
    CUDA_TRY(cudaSetDevice((int)net->spec.device));
    CUDA_TRY(cudaMemGetInfo(&available, &total));
    if (net->table == NULL || kept->row_entries != 0 || row_entries == 0 || available < KEEP_FREE ||
        3 * entries + numbers + labels > available - KEEP_FREE)
        return MST_OK;
    for (net_slot &slot : net->slots) {
        CUDA_TRY(cudaHostAlloc(&at, picks, cudaHostAllocPortable));
        slot.images = (char *)at;
        NET_TRY(net_alloc(net, picks, &at));
        slot.images_device = (char *)at;
    }
    NET_TRY(net_alloc(net, entries, (void **)&kept->keys));
    NET_TRY(net_alloc(net, entries, (void **)&kept->fields));
    NET_TRY(net_alloc(net, entries, (void **)&kept->values));
    NET_TRY(net_alloc(net, numbers, (void **)&kept->numbers));
    NET_TRY(net_alloc(net, labels, (void **)&kept->labels));
    kept->row_entries = row_entries;
    *keeps = true;
    return MST_OK;
}
