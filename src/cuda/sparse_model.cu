/* A sparse model on the GPU: memory, streams, blocks, and the table of the plug-in; contract in
 * cuda_sparse.h.
 *
 * Three streams: copies of rows, preparation of blocks, steps. Events order the use of a block: the copy of
 * its rows, its preparation, its steps, then the next copy into it. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda/sparse_impl.cuh"

#define PATIENCE_S    600
#define BLOCK_ENTRIES (4u << 20) /* of a block that is longer than one step, about */
#define BLOCK_STEPS   1024       /* at most */
#define FETCH_BLOCKS  64         /* of threads that copy */

/* ---- memory ---- */

mst_status mst_sparse_grow(sparse_memory *memory, size_t bytes, const char *what)
{
    if (bytes <= memory->bytes)
        return MST_OK;
    mst_sparse_free(memory);
    size_t more = bytes + bytes / 8 + 256;
    cudaError_t code = cudaMalloc(&memory->at, more);
    if (code == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        memory->at = NULL;
        return mst_cuda_plugin_host->fail(
            MST_ENOMEM, "the GPU has no %.1f GB left for %s; reduce --batch or use --device cpu",
            (double)more * 1e-9, what);
    }
    CUDA_TRY(code);
    memory->bytes = more;
    return MST_OK;
}

mst_status mst_sparse_grow_zero(sparse_memory *memory, size_t bytes, const char *what)
{
    size_t before = memory->bytes;
    TRY(mst_sparse_grow(memory, bytes, what));
    if (memory->bytes != before)
        CUDA_TRY(cudaMemset(memory->at, 0, memory->bytes));
    return MST_OK;
}

void mst_sparse_free(sparse_memory *memory)
{
    if (memory->at != NULL)
        cudaFree(memory->at);
    memory->at = NULL;
    memory->bytes = 0;
}

/* ---- life ---- */

static mst_status model_use(const mst_cuda_sparse *self)
{
    CUDA_TRY(cudaSetDevice((int)self->spec.device));
    return MST_OK;
}

static void model_close(mst_cuda_sparse *self)
{
    if (self == NULL)
        return;
    if (model_use(self) == MST_OK)
        cudaDeviceSynchronize();
    for (uint32_t i = 0; i < MST_CUDA_SPARSE_SLOTS; i++) {
        sparse_block *b = &self->blocks[i];
        sparse_memory *all[] = {
            &b->labels,  &b->weights,    &b->ends,   &b->keys,          &b->values,      &b->fields,
            &b->numbers, &b->dense,      &b->sorted, &b->sorted_origin, &b->sorted_rows, &b->sorted_values,
            &b->starts,  &b->step_first, &b->pieces, &b->n_pieces,      &b->n_segments,  &b->device_rules,
            &b->coefs,   &b->losses,     &b->correct};
        for (sparse_memory *memory : all)
            mst_sparse_free(memory);
        mst_cuda_host_free(b->pinned);
        mst_cuda_host_free(b->pinned_numbers);
        mst_cuda_host_free(b->rules);
        for (cudaEvent_t event : {b->copied, b->prepared, b->trained})
            if (event != NULL)
                cudaEventDestroy(event);
    }
    sparse_memory *all[] = {&self->params[0],     &self->params[1],    &self->params[2],     &self->partials,
                            &self->arrived,       &self->sums,         &self->weighted,      &self->self,
                            &self->bias_partials, &self->bias_arrived, &self->pair_partials, &self->gradient,
                            &self->rest,          &self->squares,      &self->clip,          &self->totals,
                            &self->bad,           &self->composite,    &self->origin,        &self->row_of,
                            &self->scratch};
    for (sparse_memory *memory : all)
        mst_sparse_free(memory);
    mst_sparse_drop(self);
    for (cudaStream_t stream : {self->copy_stream, self->prepare_stream, self->train_stream})
        if (stream != NULL)
            cudaStreamDestroy(stream);
    cudaGetLastError();
    free(self);
}

static uint32_t model_block_steps(const mst_cuda_sparse *self)
{
    uint64_t steps = self->key_bits < 32 ? 1ull << (32 - self->key_bits) : 1;
    return (uint32_t)(steps < BLOCK_STEPS ? steps : BLOCK_STEPS);
}

static mst_status model_init(mst_cuda_sparse *self)
{
    const mst_cuda_sparse_spec *spec = &self->spec;
    int processors = 0, least = 0, greatest = 0;
    TRY(model_use(self));
    CUDA_TRY(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, (int)spec->device));
    self->n_processors = (uint32_t)processors;
    for (self->key_bits = 1; self->key_bits < 32 && spec->n_features > 1ull << self->key_bits;)
        self->key_bits++;
    self->direct = spec->kind == MST_CUDA_LOGREG || spec->kind == MST_CUDA_SOFTMAX;
    self->split = spec->kind == MST_CUDA_FFM || spec->width > 32 || spec->clip_norm > 0.0f;
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_TRY(cudaStreamCreateWithFlags(&self->copy_stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaStreamCreateWithPriority(&self->prepare_stream, cudaStreamNonBlocking, least));
    CUDA_TRY(cudaStreamCreateWithPriority(&self->train_stream, cudaStreamNonBlocking, greatest));
    for (uint32_t slot = 0; slot <= spec->n_slots; slot++)
        TRY(mst_sparse_grow_zero(&self->params[slot], spec->size * sizeof(float), "weights and their state"));
    TRY(mst_sparse_grow_zero(&self->totals, SPARSE_TOTALS * 3 * sizeof(double), "sums"));
    TRY(mst_sparse_grow_zero(&self->bad, sizeof(uint32_t), "sums"));
    TRY(mst_sparse_grow_zero(&self->bias_arrived, sizeof(uint32_t), "sums"));
    for (uint32_t i = 0; i < MST_CUDA_SPARSE_SLOTS; i++) {
        sparse_block *b = &self->blocks[i];
        CUDA_TRY(cudaEventCreateWithFlags(&b->copied, cudaEventDisableTiming));
        CUDA_TRY(cudaEventCreateWithFlags(&b->prepared, cudaEventDisableTiming));
        CUDA_TRY(cudaEventCreateWithFlags(&b->trained, cudaEventDisableTiming));
        TRY(mst_cuda_host_alloc(model_block_steps(self) * sizeof *b->rules, (void **)&b->rules));
        TRY(mst_sparse_grow(&b->device_rules, model_block_steps(self) * sizeof *b->rules, "rules"));
    }
    TRY(mst_sparse_linear_open(self));
    CUDA_TRY(cudaDeviceSynchronize());
    return MST_OK;
}

static mst_status model_open(const mst_cuda_sparse_spec *spec, mst_cuda_sparse **out)
{
    mst_cuda_sparse *self = (mst_cuda_sparse *)calloc(1, sizeof *self);
    if (self == NULL)
        return mst_cuda_plugin_host->fail(MST_ENOMEM, "no memory is left for a model on the GPU");
    self->spec = *spec;
    self->held.last = -1;
    mst_status st = model_init(self);
    if (st != MST_OK) {
        model_close(self);
        return st;
    }
    *out = self;
    return MST_OK;
}

/* ---- waiting ---- */

/* Waits for an event in short naps. */
mst_status mst_sparse_wait(cudaEvent_t event)
{
    struct timespec begun, now, nap = {0, 20000};
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (;;) {
        cudaError_t code = cudaEventQuery(event);
        if (code == cudaSuccess)
            return MST_OK;
        if (code != cudaErrorNotReady)
            return mst_cuda_failed(code, "a step");
        nanosleep(&nap, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - begun.tv_sec > PATIENCE_S)
            return mst_cuda_plugin_host->fail(MST_ETIMEOUT, "the GPU did not finish a block of steps in %d s",
                                              PATIENCE_S);
    }
}

static mst_status model_wait_all(mst_cuda_sparse *self)
{
    for (uint32_t i = 0; i < MST_CUDA_SPARSE_SLOTS; i++)
        TRY(mst_sparse_wait(self->blocks[i].trained));
    return MST_OK;
}

/* ---- weights ---- */

static mst_status model_write(mst_cuda_sparse *self, uint32_t slot, uint64_t first, uint64_t count,
                              const float *in)
{
    TRY(model_use(self));
    TRY(model_wait_all(self));
    CUDA_TRY(cudaMemcpy((float *)self->params[slot].at + first, in, count * sizeof(float),
                        cudaMemcpyHostToDevice));
    return MST_OK;
}

static mst_status model_read(mst_cuda_sparse *self, uint32_t slot, uint64_t first, uint64_t count, float *out)
{
    TRY(model_use(self));
    TRY(model_wait_all(self));
    CUDA_TRY(cudaMemcpy(out, (const float *)self->params[slot].at + first, count * sizeof(float),
                        cudaMemcpyDeviceToHost));
    return MST_OK;
}

/* ---- blocks ---- */

static __global__ void model_fetch(sparse_fetch a, sparse_fetch b, sparse_fetch c)
{
    const sparse_fetch all[] = {a, b, c};
#pragma unroll
    for (const sparse_fetch &f : all)
        for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < f.bytes / 4; i += gridDim.x * blockDim.x)
            ((uint32_t *)f.to)[i] = ((const volatile uint32_t *)f.from)[i];
}

mst_status mst_sparse_fetch(cudaStream_t stream, sparse_fetch a, sparse_fetch b, sparse_fetch c)
{
    unsigned blocks = mst_cuda_blocks((a.bytes + b.bytes + c.bytes) / 4, 256, FETCH_BLOCKS);
    model_fetch<<<blocks, 256, 0, stream>>>(a, b, c);
    CUDA_LAUNCHED("a small copy");
    return MST_OK;
}

/* Divides the pinned memory among the arrays. */
static mst_status model_grow_pinned(sparse_block *b, uint32_t n_dense, uint32_t n_rows, uint32_t n_entries)
{
    mst_cuda_sparse_rows *r = &b->rows;
    if (b->pinned != NULL && n_rows <= r->row_capacity && n_entries <= r->entry_capacity)
        return MST_OK;
    size_t rows = ((size_t)n_rows + n_rows / 8 + 64) / 64 * 64, entries = n_entries + (size_t)n_entries / 8;
    entries = (entries + 64) / 64 * 64;
    mst_cuda_host_free(b->pinned);
    b->pinned = NULL;
    r->row_capacity = r->entry_capacity = 0;
    TRY(mst_cuda_host_alloc(rows * (12 + 4 * n_dense) + entries * 10, &b->pinned));
    r->labels = (float *)b->pinned;
    r->weights = r->labels + rows;
    r->dense = n_dense != 0 ? r->weights + 2 * rows : NULL; /* after the ends */
    r->keys = (uint32_t *)(r->weights + (2 + n_dense) * rows);
    r->values = (float *)(r->keys + entries);
    r->fields = (uint16_t *)(r->values + entries);
    r->row_capacity = (uint32_t)rows;
    r->entry_capacity = (uint32_t)entries;
    return MST_OK;
}

/* Numbers of a row that need not be entries. */
static uint32_t model_n_dense(const mst_cuda_sparse *self)
{
    return self->spec.kind == MST_CUDA_LOGREG && self->spec.head <= MST_CUDA_SPARSE_DENSE && !self->split
               ? self->spec.head
               : 0;
}

static mst_status model_reserve(mst_cuda_sparse *self, uint32_t at, uint32_t n_rows, uint32_t n_entries,
                                mst_cuda_sparse_rows **out)
{
    sparse_block *b = &self->blocks[at];
    TRY(model_use(self));
    TRY(mst_sparse_wait(b->trained));
    TRY(mst_sparse_wait(b->prepared)); /* of a block that was dropped */
    TRY(model_grow_pinned(b, model_n_dense(self), n_rows, n_entries));
    b->rows.ends = (uint32_t *)(b->rows.weights + b->rows.row_capacity);
    *out = &b->rows;
    return MST_OK;
}

static mst_status model_grow_numbers(sparse_block *b, uint32_t n_rows)
{
    if (n_rows <= b->number_capacity)
        return MST_OK;
    mst_cuda_host_free(b->pinned_numbers);
    b->pinned_numbers = NULL;
    b->number_capacity = 0;
    TRY(mst_cuda_host_alloc(n_rows * 2ull * sizeof(uint32_t), (void **)&b->pinned_numbers));
    b->number_capacity = n_rows;
    return MST_OK;
}

static mst_status model_reserve_held(mst_cuda_sparse *self, uint32_t at, uint32_t n_rows,
                                     mst_cuda_sparse_rows **out)
{
    sparse_block *b = &self->blocks[at];
    b->load = __atomic_load_n(&self->held.last, __ATOMIC_ACQUIRE);
    TRY(model_use(self));
    TRY(mst_sparse_wait(b->trained));
    TRY(mst_sparse_wait(b->prepared));
    TRY(model_grow_numbers(b, n_rows));
    b->rows.numbers = b->pinned_numbers;
    b->rows.ends = b->pinned_numbers + b->number_capacity;
    *out = &b->rows;
    return MST_OK;
}

/* Room on the GPU for the rows of the block, and for the results of steps. */
static mst_status model_block_memory(mst_cuda_sparse *self, sparse_block *b)
{
    const mst_cuda_sparse_rows *r = &b->rows;
    size_t scores = self->spec.kind == MST_CUDA_SOFTMAX ? self->spec.width : 1, n = r->n_rows,
           e = r->n_entries;
    TRY(mst_sparse_grow(&b->labels, n * 4, "rows"));
    TRY(mst_sparse_grow(&b->weights, r->weighted ? n * 4 : 0, "rows"));
    TRY(mst_sparse_grow(&b->ends, r->row_entries == 0 ? n * 4 : 0, "rows"));
    TRY(mst_sparse_grow(&b->dense, n * 4 * r->n_dense, "rows"));
    TRY(mst_sparse_grow(&b->numbers, n * 4, "rows"));
    TRY(mst_sparse_grow(&b->keys, e * 4, "rows"));
    TRY(mst_sparse_grow(&b->values, r->valued ? e * 4 : 0, "rows"));
    TRY(mst_sparse_grow(&b->fields, r->fielded ? e * 2 : 0, "rows"));
    TRY(mst_sparse_grow(&b->coefs, n * scores * 4, "rows"));
    TRY(mst_sparse_grow(&b->losses, n * 4, "rows"));
    return mst_sparse_grow(&b->correct, n, "rows");
}

static void model_set_view(mst_cuda_sparse *self, sparse_block *b)
{
    const mst_cuda_sparse_spec *spec = &self->spec;
    const mst_cuda_sparse_rows *r = &b->rows;
    sparse_view *v = &b->view;
    memset(v, 0, sizeof *v);
    v->w = (float *)self->params[0].at;
    v->slots[0] = (float *)self->params[1].at;
    v->slots[1] = (float *)self->params[2].at;
    v->weight_at = spec->weight_at;
    v->key_step = spec->key_step;
    v->weight_step = spec->weight_step;
    v->bias_at = spec->bias_at;
    v->pairs_at = spec->pairs_at;
    v->kind = spec->kind;
    v->width = spec->width;
    v->head = spec->head;
    v->n_bias = spec->n_bias;
    v->factors = spec->factors;
    v->fields = spec->fields;
    v->state_per_key = spec->state_per_key;
    v->pos_weight = spec->pos_weight;
    v->l2_factors = spec->l2_factors;
    v->labels = (const float *)b->labels.at;
    v->weights = r->weighted ? (const float *)b->weights.at : NULL;
    v->ends = r->row_entries == 0 ? (const uint32_t *)b->ends.at : NULL;
    v->keys = (uint32_t *)b->keys.at;
    v->values = r->valued ? (const float *)b->values.at : NULL;
    v->field_of = r->fielded ? (const uint16_t *)b->fields.at : NULL;
    v->dense = (const float *)b->dense.at;
    v->n_dense = r->n_dense;
    v->n_rows = r->n_rows;
    v->row_entries = r->row_entries;
    v->batch = spec->batch;
    v->n_steps = (r->n_rows + spec->batch - 1) / spec->batch;
    v->distinct_fields = r->distinct_fields;
    v->fill_head = r->fill_head;
    v->coefs = (float *)b->coefs.at;
    v->losses = (float *)b->losses.at;
    v->correct = (uint8_t *)b->correct.at;
    v->rules = (const mst_cuda_sparse_rules *)b->device_rules.at;
}

static mst_status model_copy(mst_cuda_sparse *self, sparse_memory *to, const void *from, size_t bytes)
{
    CUDA_TRY(cudaMemcpyAsync(to->at, from, bytes, cudaMemcpyHostToDevice, self->copy_stream));
    return MST_OK;
}

static mst_status model_prepare(mst_cuda_sparse *self, uint32_t at)
{
    sparse_block *b = &self->blocks[at];
    const mst_cuda_sparse_rows *r = &b->rows;
    TRY(model_use(self));
    TRY(model_block_memory(self, b));
    TRY(model_copy(self, &b->labels, r->labels, r->n_rows * 4ull));
    if (r->weighted)
        TRY(model_copy(self, &b->weights, r->weights, r->n_rows * 4ull));
    if (r->n_dense != 0)
        TRY(model_copy(self, &b->dense, r->dense, r->n_rows * 4ull * r->n_dense));
    if (r->row_entries == 0)
        TRY(model_copy(self, &b->ends, r->ends, r->n_rows * 4ull));
    TRY(model_copy(self, &b->keys, r->keys, r->n_entries * 4ull));
    if (r->valued)
        TRY(model_copy(self, &b->values, r->values, r->n_entries * 4ull));
    if (r->fielded)
        TRY(model_copy(self, &b->fields, r->fields, r->n_entries * 2ull));
    CUDA_TRY(cudaEventRecord(b->copied, self->copy_stream));
    CUDA_TRY(cudaStreamWaitEvent(self->prepare_stream, b->copied, 0));
    model_set_view(self, b);
    TRY(mst_sparse_prepare(self, b, false));
    CUDA_TRY(cudaEventRecord(b->prepared, self->prepare_stream));
    return MST_OK;
}

static mst_status model_prepare_held(mst_cuda_sparse *self, uint32_t at)
{
    sparse_block *b = &self->blocks[at];
    const mst_cuda_sparse_rows *r = &b->rows;
    TRY(model_use(self));
    TRY(model_block_memory(self, b));
    if (b->load >= 0) /* once more on its way, with other chunks: the event is that of a later copy */
        CUDA_TRY(cudaStreamWaitEvent(self->prepare_stream, self->held.loads[b->load].sent, 0));
    TRY(mst_sparse_fetch(self->prepare_stream, {b->numbers.at, r->numbers, r->n_rows * 4ull},
                         {b->ends.at, r->ends, r->row_entries == 0 ? r->n_rows * 4ull : 0},
                         mst_sparse_places(self)));
    model_set_view(self, b);
    TRY(mst_sparse_prepare(self, b, true));
    CUDA_TRY(cudaEventRecord(b->prepared, self->prepare_stream));
    return MST_OK;
}

static mst_status model_hold(mst_cuda_sparse *self, const mst_cuda_sparse_records *records, bool *held)
{
    TRY(model_use(self));
    return mst_sparse_hold(self, records, held);
}

static mst_status model_stage(mst_cuda_sparse *self, uint32_t i, uint32_t **out)
{
    TRY(model_use(self));
    return mst_sparse_stage(self, i, out);
}

static mst_status model_send(mst_cuda_sparse *self, uint32_t i, const mst_cuda_sparse_part *parts, uint32_t n)
{
    TRY(model_use(self));
    return mst_sparse_send(self, i, parts, n);
}

static void model_drop(mst_cuda_sparse *self)
{
    if (model_use(self) == MST_OK)
        mst_sparse_drop(self);
}

/* ---- steps ---- */

/* Adds the results of rows [from, to) to the totals; every block of threads has totals of its own. */
static __global__ void model_add_totals(sparse_view v, uint32_t from, uint32_t to, double *totals)
{
    __shared__ double parts[3][256];
    double loss = 0.0, weight = 0.0, correct = 0.0;
    bool binary = v.kind != MST_CUDA_SOFTMAX;
    for (uint32_t i = from + blockIdx.x * 256 + threadIdx.x; i < to; i += SPARSE_TOTALS * 256) {
        double by = v.weights != NULL ? (double)v.weights[i] : 1.0;
        loss += (double)v.losses[i];
        weight += binary && v.labels[i] > 0.0f ? by * (double)v.pos_weight : by;
        correct += (double)v.correct[i];
    }
    parts[0][threadIdx.x] = loss;
    parts[1][threadIdx.x] = weight;
    parts[2][threadIdx.x] = correct;
    __syncthreads();
    for (uint32_t by = 128; by > 0; by /= 2) {
        for (uint32_t p = 0; threadIdx.x < by && p < 3; p++)
            parts[p][threadIdx.x] += parts[p][threadIdx.x + by];
        __syncthreads();
    }
    if (threadIdx.x < 3)
        totals[blockIdx.x * 3 + threadIdx.x] += parts[threadIdx.x][0];
}

/* Memory of sums, which all blocks use one after the other. */
static mst_status model_step_memory(mst_cuda_sparse *self, sparse_block *b)
{
    const mst_cuda_sparse_spec *spec = &self->spec;
    size_t n_pieces = (size_t)b->n_entries / SPARSE_DENSER + 2;
    size_t n_bias =
        ((size_t)(b->view.n_rows < spec->batch ? b->view.n_rows : spec->batch) / SPARSE_WIDE + 1) *
        (spec->n_bias + 1 + model_n_dense(self));
    TRY(mst_sparse_grow(&self->partials, n_pieces * spec->width * sizeof(float), "sums"));
    TRY(mst_sparse_grow_zero(&self->arrived, n_pieces * sizeof(uint32_t), "sums"));
    TRY(mst_sparse_grow(&self->bias_partials, n_bias * sizeof(float), "sums"));
    b->view.partials = (float *)self->partials.at;
    b->view.arrived = (uint32_t *)self->arrived.at;
    b->view.bias_partials = (float *)self->bias_partials.at;
    b->view.bias_arrived = (uint32_t *)self->bias_arrived.at;
    return MST_OK;
}

static mst_status model_train(mst_cuda_sparse *self, uint32_t at, uint32_t first, uint32_t n,
                              const mst_cuda_sparse_rules *rules)
{
    sparse_block *b = &self->blocks[at];
    uint32_t from = first * self->spec.batch, to = from + n * self->spec.batch;
    TRY(model_use(self));
    TRY(model_step_memory(self, b));
    memcpy(b->rules + first, rules, n * sizeof *rules);
    CUDA_TRY(cudaStreamWaitEvent(self->train_stream, b->prepared, 0));
    TRY(mst_sparse_fetch(
        self->train_stream,
        {(mst_cuda_sparse_rules *)b->device_rules.at + first, b->rules + first, n * sizeof *rules}, {}, {}));
    if (self->spec.kind == MST_CUDA_LOGREG && !self->split)
        TRY(mst_sparse_linear_steps(self, b, first, n));
    else
        TRY(mst_sparse_wide_steps(self, b, first, n));
    to = to < b->view.n_rows ? to : b->view.n_rows;
    model_add_totals<<<SPARSE_TOTALS, 256, 0, self->train_stream>>>(b->view, from, to,
                                                                    (double *)self->totals.at);
    CUDA_LAUNCHED("the sum of losses");
    CUDA_TRY(cudaEventRecord(b->trained, self->train_stream));
    return MST_OK;
}

static mst_status model_rehearse(mst_cuda_sparse *self, uint32_t at, uint32_t n,
                                 const mst_cuda_sparse_rules *rules)
{
    TRY(model_prepare_held(self, at));
    TRY(model_train(self, at, 0, n, rules));
    CUDA_TRY(cudaDeviceSynchronize());
    CUDA_TRY(cudaMemset(self->totals.at, 0, SPARSE_TOTALS * 3 * sizeof(double)));
    CUDA_TRY(cudaMemset(self->bad.at, 0, sizeof(uint32_t)));
    CUDA_TRY(cudaDeviceSynchronize());
    return MST_OK;
}

static mst_status model_finish(mst_cuda_sparse *self, mst_cuda_sparse_sums *sums)
{
    double totals[SPARSE_TOTALS * 3];
    uint32_t bad;
    memset(sums, 0, sizeof *sums);
    TRY(model_use(self));
    TRY(model_wait_all(self));
    CUDA_TRY(cudaMemcpy(totals, self->totals.at, sizeof totals, cudaMemcpyDeviceToHost));
    CUDA_TRY(cudaMemset(self->totals.at, 0, sizeof totals));
    CUDA_TRY(cudaMemcpy(&bad, self->bad.at, sizeof bad, cudaMemcpyDeviceToHost));
    CUDA_TRY(cudaDeviceSynchronize());
    for (uint32_t i = 0; i < SPARSE_TOTALS; i++) {
        sums->loss += totals[i * 3];
        sums->weight += totals[i * 3 + 1];
        sums->correct += totals[i * 3 + 2];
    }
    if (bad != 0)
        return mst_cuda_plugin_host->fail(MST_EINPUT, "a row has a key beyond the features of the model: its "
                                                      "file was changed while it was in use");
    return MST_OK;
}

extern "C" {
const mst_cuda_sparse_ops mst_cuda_sparse_table = {
    model_open,    model_close,    model_write, model_read,   model_block_steps,  model_reserve,
    model_prepare, model_hold,     model_stage, model_send,   model_reserve_held, model_prepare_held,
    model_drop,    model_rehearse, model_train, model_finish,
};
}
