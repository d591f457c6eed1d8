/* Rows that stay on the GPU after their first use: arrays by the number of the row in the dataset. A later
 * epoch sends the numbers of its rows in order, and the GPU collects them. */
#include "cuda/sparse_impl.cuh"

#define KEEP_FREE ((size_t)4 << 30) /* bytes that stay free for blocks */

/* A row of arrays, by entry. */
struct keep_arrays {
    float *labels, *weights, *values, *dense;
    uint32_t *keys;
    uint16_t *fields;
};

/* Row i of `in` becomes row numbers[i] of `out` (scatter), or the reverse. Absent arrays are NULL in both. */
static __global__ void keep_copy(const uint32_t *numbers, uint32_t n_rows, uint32_t row_entries,
                                 uint32_t n_dense, keep_arrays in, keep_arrays out, bool scatter)
{
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) / 32; i < n_rows;
         i += gridDim.x * (blockDim.x / 32)) {
        uint32_t number = numbers[i], from = scatter ? i : number, to = scatter ? number : i;
        uint64_t source = (uint64_t)from * row_entries, target = (uint64_t)to * row_entries;
        for (uint32_t e = lane; e < row_entries; e += 32) {
            out.keys[target + e] = in.keys[source + e];
            if (in.values != nullptr)
                out.values[target + e] = in.values[source + e];
            if (in.fields != nullptr)
                out.fields[target + e] = in.fields[source + e];
        }
        for (uint32_t c = lane; c < n_dense; c += 32)
            out.dense[(uint64_t)to * n_dense + c] = in.dense[(uint64_t)from * n_dense + c];
        if (lane == 0)
            out.labels[to] = in.labels[from];
        if (lane == 0 && in.weights != nullptr)
            out.weights[to] = in.weights[from];
    }
}

void mst_sparse_forget(mst_cuda_sparse *self)
{
    mst_sparse_free(&self->kept.labels);
    mst_sparse_free(&self->kept.weights);
    mst_sparse_free(&self->kept.keys);
    mst_sparse_free(&self->kept.values);
    mst_sparse_free(&self->kept.fields);
    mst_sparse_free(&self->kept.dense);
    self->kept.n = 0;
}

static mst_status keep_begin(mst_cuda_sparse *self, const mst_cuda_sparse_rows *rows, uint64_t n, bool *kept)
{
    size_t entries = (size_t)n * rows->row_entries, available, total;
    size_t bytes =
        n * (8 + 4 * rows->n_dense) + entries * (4 + (rows->valued ? 4 : 0) + (rows->fielded ? 2 : 0));
    CUDA_TRY(cudaMemGetInfo(&available, &total));
    *kept = available > KEEP_FREE && bytes < available - KEEP_FREE;
    if (!*kept)
        return MST_OK;
    TRY(mst_sparse_grow(&self->kept.labels, n * 4, "rows that stay"));
    TRY(mst_sparse_grow(&self->kept.keys, entries * 4, "rows that stay"));
    TRY(mst_sparse_grow(&self->kept.dense, n * 4 * rows->n_dense, "rows that stay"));
    if (rows->weighted)
        TRY(mst_sparse_grow(&self->kept.weights, n * 4, "rows that stay"));
    if (rows->valued)
        TRY(mst_sparse_grow(&self->kept.values, entries * 4, "rows that stay"));
    if (rows->fielded)
        TRY(mst_sparse_grow(&self->kept.fields, entries * 2, "rows that stay"));
    self->kept.n = n;
    self->kept.row_entries = rows->row_entries;
    self->kept.n_dense = rows->n_dense;
    self->kept.weighted = rows->weighted;
    self->kept.valued = rows->valued;
    self->kept.fielded = rows->fielded;
    self->kept.distinct_fields = true;
    self->kept.fill_head = false;
    return MST_OK;
}

static keep_arrays keep_arrays_of(const mst_cuda_sparse *self)
{
    keep_arrays a = {(float *)self->kept.labels.at,
                     self->kept.weighted ? (float *)self->kept.weights.at : nullptr,
                     self->kept.valued ? (float *)self->kept.values.at : nullptr,
                     (float *)self->kept.dense.at,
                     (uint32_t *)self->kept.keys.at,
                     self->kept.fielded ? (uint16_t *)self->kept.fields.at : nullptr};
    return a;
}

static keep_arrays keep_block_arrays(const mst_cuda_sparse *self, const sparse_block *b)
{
    keep_arrays a = {(float *)b->labels.at,
                     self->kept.weighted ? (float *)b->weights.at : nullptr,
                     self->kept.valued ? (float *)b->values.at : nullptr,
                     (float *)b->dense.at,
                     (uint32_t *)b->keys.at,
                     self->kept.fielded ? (uint16_t *)b->fields.at : nullptr};
    return a;
}

mst_status mst_sparse_keep(mst_cuda_sparse *self, sparse_block *b, uint64_t n_numbers, bool *kept)
{
    const mst_cuda_sparse_rows *r = &b->rows;
    *kept = false;
    if (r->row_entries == 0 || n_numbers > UINT32_MAX)
        return MST_OK;
    if (self->kept.n == 0) {
        mst_status st = keep_begin(self, r, n_numbers, kept);
        if (st != MST_OK || !*kept)
            mst_sparse_forget(self);
        if (!*kept || st == MST_ENOMEM)
            return MST_OK;
        TRY(st);
    }
    *kept = r->row_entries == self->kept.row_entries && r->n_dense == self->kept.n_dense &&
            r->weighted == self->kept.weighted && r->valued == self->kept.valued &&
            r->fielded == self->kept.fielded && n_numbers == self->kept.n;
    if (!*kept)
        return MST_OK;
    self->kept.distinct_fields &= r->distinct_fields;
    self->kept.fill_head |= r->fill_head;
    CUDA_TRY(cudaMemcpyAsync(b->numbers.at, r->numbers, (size_t)r->n_rows * 4, cudaMemcpyHostToDevice,
                             self->prepare_stream));
    keep_copy<<<self->n_processors * 8, 256, 0, self->prepare_stream>>>(
        (const uint32_t *)b->numbers.at, r->n_rows, r->row_entries, r->n_dense, keep_block_arrays(self, b),
        keep_arrays_of(self), true);
    CUDA_LAUNCHED("the copy of rows that stay");
    return MST_OK;
}

mst_status mst_sparse_gather(mst_cuda_sparse *self, sparse_block *b)
{
    mst_cuda_sparse_rows *r = &b->rows;
    r->row_entries = self->kept.row_entries;
    r->n_dense = self->kept.n_dense;
    r->n_entries = r->n_rows * r->row_entries;
    r->weighted = self->kept.weighted;
    r->valued = self->kept.valued;
    r->fielded = self->kept.fielded;
    r->distinct_fields = self->kept.distinct_fields;
    r->fill_head = self->kept.fill_head;
    CUDA_TRY(cudaMemcpyAsync(b->numbers.at, r->numbers, (size_t)r->n_rows * 4, cudaMemcpyHostToDevice,
                             self->prepare_stream));
    keep_copy<<<self->n_processors * 8, 256, 0, self->prepare_stream>>>(
        (const uint32_t *)b->numbers.at, r->n_rows, r->row_entries, r->n_dense, keep_arrays_of(self),
        keep_block_arrays(self, b), false);
    CUDA_LAUNCHED("the collection of rows that stay");
    return MST_OK;
}
