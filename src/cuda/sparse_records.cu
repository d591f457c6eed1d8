/* The records of a dataset on the GPU, as they are in its files: chunk after chunk. The entries of a block
 * are unpacked from them by the numbers of its rows.
 *
 * Loads of chunks are copied on the copy stream of the model, and nothing else is: a block waits for the last
 * load that was sent before it was reserved.
 *
 * Invariant: nothing about a record is trusted. Its positions are checked before use. A row that has another
 * number of keys than the host found, a label beyond those of the dataset or a number that is not finite sets
 * *bad. */
#include <string.h>

#include "cuda/sparse_impl.cuh"

#define HOLD_FREE ((size_t)4 << 30) /* bytes that stay free for blocks */

/* What the kernel reads. */
struct records_view {
    const uint32_t *words;
    const ulonglong2 *first; /* word and end of each chunk */
    const uint32_t *strides;
    uint64_t n_rows;
    uint32_t chunk_rows, n_chunks, n_dense, head, halves, fields;
    float min_label, max_label;
    bool dense_bytes, has_weights, has_values, has_fields, row_norm;
};

/* A record of the files: its words, or NULL if its positions are wrong. */
static __device__ __forceinline__ const uint32_t *records_find(const records_view &s, uint32_t number,
                                                               uint32_t *length)
{
    uint32_t chunk = number / s.chunk_rows, i = number - chunk * s.chunk_rows, stride = s.strides[chunk];
    ulonglong2 place = s.first[chunk];
    uint64_t first = place.x, end = place.y;
    *length = stride;
    if (stride != 0)
        return s.words + first + (uint64_t)i * stride;
    uint64_t rows = chunk + 1 < s.n_chunks ? s.chunk_rows : s.n_rows - (uint64_t)chunk * s.chunk_rows;
    const uint32_t *positions = s.words + end - (rows + 1);
    uint64_t n_words = end - (rows + 1) - first;
    uint32_t from = positions[i], to = positions[i + 1];
    *length = to - from;
    return from <= to && to <= n_words && to - from >= s.head ? s.words + first + from : nullptr;
}

static __device__ __forceinline__ float records_dense(const records_view &s, const uint32_t *dense,
                                                      uint32_t column)
{
    return s.dense_bytes ? (float)((const uint8_t *)dense)[column] / 255.0f : __uint_as_float(dense[column]);
}

static __device__ __forceinline__ uint32_t records_field(const records_view &s, uint32_t field)
{
    return field < s.fields ? field : 0;
}

/* Unpacks the rows of a block, a warp for each. */
static __global__ void records_unpack(records_view s, const uint32_t *numbers, sparse_view v, float *labels,
                                      float *weights, float *dense, float *values, uint16_t *fields,
                                      uint32_t *bad)
{
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) / 32; i < v.n_rows;
         i += gridDim.x * (blockDim.x / 32)) {
        uint32_t length, from, to, n_front = v.n_dense != 0 ? 0 : s.n_dense;
        const uint32_t *record = records_find(s, numbers[i], &length);
        sparse_row_entries(v, i, &from, &to);
        uint32_t n = to - from > n_front ? to - from - n_front : 0;
        if (record == nullptr || (uint32_t)((uint64_t)(length - s.head) * 2 / s.halves) != n) {
            for (uint32_t e = from + lane; e < to; e += 32) {
                v.keys[e] = 0;
                if (values != nullptr)
                    values[e] = 0.0f;
                if (fields != nullptr)
                    fields[e] = 0;
            }
            for (uint32_t c = lane; c < v.n_dense; c += 32)
                dense[(uint64_t)i * v.n_dense + c] = 0.0f;
            if (lane == 0) {
                labels[i] = 0.0f;
                *bad = 1;
            }
            if (lane == 0 && weights != nullptr)
                weights[i] = 0.0f;
            continue;
        }
        float label = __uint_as_float(record[0]), weight = s.has_weights ? __uint_as_float(record[1]) : 1.0f;
        bool wrong = !(label >= s.min_label && label <= s.max_label) || !isfinite(weight);
        const uint32_t *numbers_of = record + 1 + s.has_weights, *keys = record + s.head;
        const uint16_t *stored = (const uint16_t *)(keys + (uint64_t)n * (s.has_values ? 2 : 1));
        float squares = 0.0f;
        for (uint32_t c = lane; c < s.n_dense; c += 32) {
            float x = records_dense(s, numbers_of, c);
            wrong |= !isfinite(x);
            squares += x * x;
            if (v.n_dense != 0) {
                dense[(uint64_t)i * v.n_dense + c] = x;
                continue;
            }
            v.keys[from + c] = c;
            values[from + c] = x;
            if (fields != nullptr)
                fields[from + c] = (uint16_t)records_field(s, c);
        }
        for (uint32_t k = lane; k < n; k += 32) {
            uint32_t e = from + n_front + k;
            float x = s.has_values ? __uint_as_float(keys[n + k]) : 1.0f;
            wrong |= !isfinite(x);
            squares += x * x;
            v.keys[e] = keys[k];
            if (values != nullptr)
                values[e] = x;
            if (fields != nullptr)
                fields[e] = (uint16_t)records_field(s, s.has_fields ? stored[k] : s.n_dense + k);
        }
        if (s.row_norm) {
            squares = sparse_warp_sum(squares);
            float by = squares > 0.0f ? 1.0f / sqrtf(squares) : 1.0f;
            __syncwarp();
            for (uint32_t e = from + lane; e < to; e += 32)
                values[e] *= by;
        }
        if (lane == 0)
            labels[i] = label;
        if (lane == 0 && weights != nullptr)
            weights[i] = weight;
        if (wrong)
            *bad = 1;
    }
}

/* The same for records of one length, of a label, numbers that become an array, and keys, up to 64 words: a
 * warp has ROWS rows at a time, so that many loads are under way. Numbers entries as sparse_number_entries
 * does, if composite is set. */
static __global__ void records_unpack_plain(records_view s, const uint32_t *numbers, sparse_view v,
                                            float *labels, float *dense, uint64_t n_features,
                                            uint32_t *composite, uint32_t *origin, uint32_t *bad)
{
    enum { ROWS = 4 };
    uint32_t lane = threadIdx.x % 32, n_warps = gridDim.x * (blockDim.x / 32);
    for (uint32_t base = (blockIdx.x * blockDim.x + threadIdx.x) / 32 * ROWS; base < v.n_rows;
         base += n_warps * ROWS) {
        uint32_t length = 0, row = base + lane, step = row / v.batch, words[ROWS][2];
        const uint32_t *own =
            lane < ROWS && row < v.n_rows ? records_find(s, numbers[row], &length) : nullptr;
#pragma unroll
        for (uint32_t r = 0; r < ROWS; r++) {
            const uint32_t *record =
                (const uint32_t *)__shfl_sync(0xffffffffu, (unsigned long long)own, (int)r);
            uint32_t n = __shfl_sync(0xffffffffu, length, (int)r);
            words[r][0] = lane < n ? __ldcs(record + lane) : 0;
            words[r][1] = lane + 32 < n ? __ldcs(record + lane + 32) : 0;
        }
#pragma unroll
        for (uint32_t r = 0; r < ROWS; r++) {
            uint32_t i = base + r, n = __shfl_sync(0xffffffffu, length, (int)r);
            uint32_t high = __shfl_sync(0xffffffffu, step, (int)r);
            high = v.key_bits < 32 ? high << v.key_bits : 0;
#pragma unroll
            for (uint32_t half = 0; half < 2; half++) {
                uint32_t at = lane + half * 32, word = words[r][half];
                float x = __uint_as_float(word);
                if (at >= n)
                    continue;
                if (at == 0) {
                    labels[i] = x;
                    if (!(x >= s.min_label && x <= s.max_label))
                        *bad = 1;
                } else if (at < s.head) {
                    dense[(uint64_t)i * s.n_dense + at - 1] = x;
                    if (!isfinite(x))
                        *bad = 1;
                } else {
                    uint32_t e = i * v.row_entries + at - s.head;
                    if (word >= n_features) {
                        *bad = 1;
                        word = 0;
                    }
                    v.keys[e] = word;
                    if (composite != nullptr) {
                        composite[e] = high | word;
                        origin[e] = i;
                    }
                }
            }
        }
    }
}

void mst_sparse_drop(mst_cuda_sparse *self)
{
    cudaStreamSynchronize(self->copy_stream);
    cudaStreamSynchronize(self->prepare_stream);
    mst_sparse_free(&self->held.words);
    mst_sparse_free(&self->held.first);
    mst_sparse_free(&self->held.strides);
    mst_cuda_host_free(self->held.places);
    mst_cuda_host_free(self->held.pinned);
    self->held.places = NULL;
    self->held.pinned = NULL;
    for (sparse_sending &load : self->held.loads) {
        if (load.sent != NULL)
            cudaEventDestroy(load.sent);
        memset(&load, 0, sizeof load);
    }
    self->held.n_sent = self->held.n_placed = 0;
    self->held.last = -1;
}

static mst_status records_hold(mst_cuda_sparse *self, const mst_cuda_sparse_records *records)
{
    size_t n = records->n_chunks;
    self->held.records = *records;
    TRY(mst_sparse_grow(&self->held.words, records->n_words * sizeof(uint32_t),
                        "the records of the dataset"));
    CUDA_TRY(
        cudaMemset(self->held.words.at, 0, records->longest * sizeof(uint32_t))); /* rows of rehearsals */
    TRY(mst_sparse_grow_zero(&self->held.first, n * sizeof(ulonglong2), "the records of the dataset"));
    TRY(mst_cuda_host_alloc(n * sizeof(ulonglong2), (void **)&self->held.places));
    TRY(mst_sparse_grow(&self->held.strides, n * sizeof(uint32_t), "the records of the dataset"));
    CUDA_TRY(
        cudaMemcpy(self->held.strides.at, records->strides, n * sizeof(uint32_t), cudaMemcpyHostToDevice));
    uint64_t words = records->longest < MST_CUDA_SPARSE_LOAD ? MST_CUDA_SPARSE_LOAD : records->longest;
    TRY(mst_cuda_host_alloc(words * MST_CUDA_SPARSE_LOADS * sizeof(uint32_t), (void **)&self->held.pinned));
    for (uint32_t i = 0; i < MST_CUDA_SPARSE_LOADS; i++) {
        self->held.loads[i].pinned = self->held.pinned + i * words;
        CUDA_TRY(cudaEventCreateWithFlags(&self->held.loads[i].sent, cudaEventDisableTiming));
    }
    return MST_OK;
}

mst_status mst_sparse_hold(mst_cuda_sparse *self, const mst_cuda_sparse_records *records, bool *held)
{
    size_t available, total;
    CUDA_TRY(cudaMemGetInfo(&available, &total));
    *held = available > HOLD_FREE && records->n_words * sizeof(uint32_t) < available - HOLD_FREE;
    if (!*held)
        return MST_OK;
    mst_status st = records_hold(self, records);
    *held = st == MST_OK;
    if (st != MST_OK)
        mst_sparse_drop(self);
    return st == MST_ENOMEM ? MST_OK : st;
}

mst_status mst_sparse_stage(mst_cuda_sparse *self, uint32_t i, uint32_t **out)
{
    sparse_sending *load = &self->held.loads[i];
    TRY(mst_sparse_wait(load->sent));
    *out = load->pinned;
    return MST_OK;
}

mst_status mst_sparse_send(mst_cuda_sparse *self, uint32_t i, const mst_cuda_sparse_part *parts, uint32_t n)
{
    sparse_sending *load = &self->held.loads[i];
    uint64_t sent = self->held.n_sent, end = sent + parts[n - 1].at + parts[n - 1].n;
    for (uint32_t k = 0; k < n; k++)
        self->held.places[parts[k].chunk] =
            make_ulonglong2(sent + parts[k].at, sent + parts[k].at + parts[k].n);
    CUDA_TRY(cudaMemcpyAsync((uint32_t *)self->held.words.at + sent, load->pinned,
                             (end - sent) * sizeof(uint32_t), cudaMemcpyHostToDevice, self->copy_stream));
    CUDA_TRY(cudaEventRecord(load->sent, self->copy_stream));
    __atomic_store_n(&self->held.last, (int32_t)i, __ATOMIC_RELEASE);
    __atomic_store_n(&self->held.n_sent, end, __ATOMIC_RELEASE);
    return MST_OK;
}

/* The whole table. Places that are written meanwhile are those of chunks which later blocks need. */
sparse_fetch mst_sparse_places(mst_cuda_sparse *self)
{
    uint64_t sent = __atomic_load_n(&self->held.n_sent, __ATOMIC_ACQUIRE);
    bool all = self->held.n_placed == sent;
    self->held.n_placed = sent;
    return {self->held.first.at, self->held.places,
            all ? 0 : self->held.records.n_chunks * sizeof(ulonglong2)};
}

mst_status mst_sparse_unpack(mst_cuda_sparse *self, sparse_block *b, bool numbers, bool *numbered)
{
    const mst_cuda_sparse_records *r = &self->held.records;
    const mst_cuda_sparse_rows *rows = &b->rows;
    records_view s;
    memset(&s, 0, sizeof s);
    s.words = (const uint32_t *)self->held.words.at;
    s.first = (const ulonglong2 *)self->held.first.at;
    s.strides = (const uint32_t *)self->held.strides.at;
    s.n_rows = r->n_rows;
    s.n_chunks = r->n_chunks;
    s.chunk_rows = r->chunk_rows;
    s.n_dense = r->n_dense;
    s.head = 1 + r->has_weights + (r->dense_bytes ? (r->n_dense + 3) / 4 : r->n_dense);
    s.halves = 2 + (r->has_values ? 2 : 0) + r->has_fields;
    s.fields = self->spec.fields;
    s.dense_bytes = r->dense_bytes;
    s.has_weights = r->has_weights;
    s.has_values = r->has_values;
    s.has_fields = r->has_fields;
    s.row_norm = r->row_norm;
    s.min_label = r->min_label;
    s.max_label = r->max_label;
    /* rows->n_dense: the numbers become an array */
    uint32_t stride = s.head + rows->row_entries;
    bool plain = rows->row_entries != 0 && stride <= 64 && rows->n_dense == r->n_dense && !r->dense_bytes &&
                 !rows->weighted && !rows->valued && !rows->fielded;
    *numbered = plain && (numbers || self->spec.atomic);
    if (plain)
        records_unpack_plain<<<self->n_processors * 8, 256, 0, self->prepare_stream>>>(
            s, (const uint32_t *)b->numbers.at, b->view, (float *)b->labels.at, (float *)b->dense.at,
            self->spec.n_features, numbers ? (uint32_t *)self->composite.at : nullptr,
            (uint32_t *)self->origin.at, (uint32_t *)self->bad.at);
    else
        records_unpack<<<self->n_processors * 8, 256, 0, self->prepare_stream>>>(
            s, (const uint32_t *)b->numbers.at, b->view, (float *)b->labels.at,
            rows->weighted ? (float *)b->weights.at : nullptr, (float *)b->dense.at,
            rows->valued ? (float *)b->values.at : nullptr,
            rows->fielded ? (uint16_t *)b->fields.at : nullptr, (uint32_t *)self->bad.at);
    CUDA_LAUNCHED("the unpacking of rows");
    return MST_OK;
}
