/* Shared by the files sparse_*.cu; no other file includes this.
 *
 * A step has up to three phases:
 *   rows      a warp per row: the score, the loss, and the factors of the row's contributions
 *   segments  the entries of one key in one step are a segment: its sum in a fixed order, then the update
 *   apply     only where the update needs the sums of all keys first ("split"): gradients that read weights
 *             of other keys (ffm), --clip-norm, and one state for more than 32 weights
 *
 * Invariants
 * 1. Sums have an order that depends on the rows alone, not on the schedule of the GPU: long segments are cut
 * into pieces at fixed places; the warp that finishes the last piece adds the pieces in order.
 * 2. Counters of finished pieces are zero between steps: the last piece resets its own.
 * 3. Weights and results of rows, which other processors write, are read past the first-level cache. */
#ifndef MST_CUDA_SPARSE_IMPL_CUH
#define MST_CUDA_SPARSE_IMPL_CUH

#include <cuda_runtime.h>
#include <stdint.h>

#include "cuda/cuda_sparse.h"
#include "cuda/device.cuh"
#include "cuda/rules.cuh"

#define SPARSE_NONE   0xffffffffu /* the row of an entry that only marks its key as touched */
#define SPARSE_SHORT  32          /* entries of a segment that one thread adds (keys of one weight) */
#define SPARSE_PIECE  512         /* entries of a piece, the same */
#define SPARSE_WIDE   64          /* both, of keys of several weights */
#define SPARSE_DENSER 16          /* a piece stands for more entries than these */
#define SPARSE_TOTALS 64          /* partial sums of losses */
#define SPARSE_TILE   64          /* rows of a partial sum of fwfm's pairs */

/* Everything that kernels read: the model, a block of rows, and what was prepared from it. */
struct sparse_view {
    /* The model. */
    float *w, *slots[2];
    uint64_t weight_at, key_step, weight_step, bias_at, pairs_at;
    uint32_t kind, width, head, n_bias, factors, fields;
    bool state_per_key;
    float pos_weight, l2_factors;
    /* The rows. */
    const float *labels, *weights; /* weights NULL: 1 */
    const uint32_t *ends;          /* NULL: every row has row_entries */
    uint32_t *keys;
    const float *values;      /* NULL: 1 */
    const uint16_t *field_of; /* NULL: not used */
    const float *dense;       /* n_dense of each row */
    uint32_t n_rows, n_dense, row_entries, batch, n_steps;
    bool distinct_fields, fill_head;
    /* The entries by step and key. */
    uint32_t key_bits;
    const uint32_t *sorted;      /* step << key_bits | key */
    const uint32_t *origin;      /* row of each (direct), or entry */
    const uint32_t *sorted_rows; /* direct: origin itself */
    const float *sorted_values;  /* NULL: 1 */
    const uint32_t *starts;      /* of segments; one more closes the last */
    const uint32_t *step_first;  /* segment, by step; one more */
    const uint4 *pieces;         /* of long segments: from, to, number of pieces, the first of them */
    const uint32_t *n_pieces;    /* by step */
    float *partials;             /* width of each piece */
    uint32_t *arrived;           /* by first piece */
    /* Results of rows. */
    float *coefs; /* width of them for softmax, otherwise 1: scaled d(loss)/d(score) */
    float *losses;
    uint8_t *correct;
    float *sums, *weighted; /* fm: factors; fwfm: fields x factors */
    float *self;            /* fwfm: by field, of rows with several entries of it */
    /* Sums of a step. */
    float *bias_partials; /* of logreg: of the dense numbers too */
    uint32_t *bias_arrived;
    float *pair_partials; /* tile x pair */
    float *gradient;      /* split: by segment of the step; NULL: updates are applied at once */
    float *rest;          /* split: of bias and pairs */
    const float *clip;    /* split: the factor; NULL: 1 */
    const mst_cuda_sparse_rules *rules;
};

/* Rows of a step. */
struct sparse_step {
    uint32_t number, first, n;
    float scale;
};

static __device__ __forceinline__ sparse_step sparse_step_of(const sparse_view &v, uint32_t number)
{
    uint32_t first = number * v.batch, left = v.n_rows - first;
    sparse_step s;
    s.number = number;
    s.first = first;
    s.n = left < v.batch ? left : v.batch;
    s.scale = 1.0f / (float)s.n;
    return s;
}

static __device__ __forceinline__ void sparse_row_entries(const sparse_view &v, uint32_t row, uint32_t *from,
                                                          uint32_t *to)
{
    if (v.ends == nullptr) {
        *from = row * v.row_entries;
        *to = *from + v.row_entries;
    } else {
        *from = row > 0 ? v.ends[row - 1] : 0;
        *to = v.ends[row];
    }
}

/* Sorted entries before those of a step. */
static __device__ __forceinline__ uint32_t sparse_entries_before(const sparse_view &v, uint32_t step)
{
    uint32_t row = step * v.batch;
    row = row < v.n_rows ? row : v.n_rows;
    uint32_t n = v.ends == nullptr ? row * v.row_entries : row > 0 ? v.ends[row - 1] : 0;
    return n + (v.fill_head ? step * v.head : 0);
}

static __device__ __forceinline__ float sparse_value(const sparse_view &v, uint32_t entry)
{
    return v.values != nullptr ? v.values[entry] : 1.0f;
}

static __device__ __forceinline__ float *sparse_weight(const sparse_view &v, uint32_t key)
{
    return v.w + v.weight_at + (uint64_t)key * v.key_step;
}

static __device__ __forceinline__ float sparse_warp_sum(float x)
{
    for (int by = 16; by > 0; by /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, by);
    return x;
}

static __device__ __forceinline__ float sparse_warp_max(float x)
{
    for (int by = 16; by > 0; by /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, by));
    return x;
}

/* A weight with its state. */
struct sparse_cell {
    float w, a, b;
};

static __device__ __forceinline__ sparse_cell sparse_load(const sparse_view &v, mst_rule_kind kind,
                                                          uint64_t at)
{
    bool first = kind != MST_RULE_SGD, second = kind == MST_RULE_ADAM || kind == MST_RULE_FTRL;
    sparse_cell c;
    c.w = __ldcg(v.w + at);
    c.a = first ? __ldcg(v.slots[0] + at) : 0.0f;
    c.b = second ? __ldcg(v.slots[1] + at) : 0.0f;
    return c;
}

/* The rule on the weight at float `at`, which was loaded. */
static __device__ __forceinline__ void sparse_update(const sparse_view &v, const mst_rule *rule, uint64_t at,
                                                     sparse_cell c, float g)
{
    switch (rule->kind) {
    case MST_RULE_SGD:
        mst_rule_sgd(rule, &c.w, &c.a, &c.b, 0, g);
        break;
    case MST_RULE_MOMENTUM:
        mst_rule_momentum(rule, &c.w, &c.a, &c.b, 0, g);
        break;
    case MST_RULE_ADAGRAD:
        mst_rule_adagrad(rule, &c.w, &c.a, &c.b, 0, g);
        break;
    case MST_RULE_ADAM:
        mst_rule_adam(rule, &c.w, &c.a, &c.b, 0, g);
        break;
    case MST_RULE_FTRL:
        mst_rule_ftrl(rule, &c.w, &c.a, &c.b, 0, g);
        break;
    }
    v.w[at] = c.w;
    if (rule->kind != MST_RULE_SGD)
        v.slots[0][at] = c.a;
    if (rule->kind == MST_RULE_ADAM || rule->kind == MST_RULE_FTRL)
        v.slots[1][at] = c.b;
}

static __device__ __forceinline__ void sparse_apply(const sparse_view &v, const mst_rule *rule, uint64_t at,
                                                    float g)
{
    sparse_update(v, rule, at, sparse_load(v, rule->kind, at), g);
}

/* d(loss)/d(margin) and the loss of a row of two classes, as in the kernels of the CPU. */
static __device__ __forceinline__ float sparse_logistic(float margin, float label, float weight,
                                                        float pos_weight, float *loss)
{
    bool positive = label > 0.0f;
    float y = positive ? 1.0f : -1.0f, z = margin * y, by = positive ? pos_weight * weight : weight;
    float e = expf(-fabsf(z)), wrong = (z >= 0.0f ? e : 1.0f) / (1.0f + e);
    float value = by * ((z < 0.0f ? -z : 0.0f) + log1pf(e));
    *loss = isnan(margin) ? margin : value;
    return -(y * by * wrong);
}

/* Ends a row of two classes; lane 0 has the result. */
static __device__ __forceinline__ void sparse_end_row(const sparse_view &v, uint32_t row, float margin,
                                                      float scale)
{
    float loss, label = v.labels[row];
    float coef =
        sparse_logistic(margin, label, v.weights != nullptr ? v.weights[row] : 1.0f, v.pos_weight, &loss);
    v.coefs[row] = coef * scale;
    v.losses[row] = loss;
    v.correct[row] = (margin > 0.0f) == (label > 0.0f);
}

static __device__ __forceinline__ float sparse_bias(const sparse_view &v)
{
    return v.n_bias != 0 ? __ldcg(v.w + v.bias_at) : 0.0f;
}

/* Whether this warp finishes the last of n pieces; all lanes have written their part of its sums. */
static __device__ __forceinline__ bool sparse_last_piece(uint32_t *arrived, uint32_t n, uint32_t lane)
{
    uint32_t before = 0;
    __threadfence();
    __syncwarp();
    if (lane == 0)
        before = atomicAdd(arrived, 1);
    before = __shfl_sync(0xffffffffu, before, 0);
    if (before != n - 1)
        return false;
    __threadfence();
    if (lane == 0)
        *arrived = 0;
    return true;
}

/* ---- functions of the files ---- */

/* Device memory that grows. */
struct sparse_memory {
    void *at;
    size_t bytes;
};
mst_status mst_sparse_grow(sparse_memory *memory, size_t bytes, const char *what);
/* Grows and clears all of it. */
mst_status mst_sparse_grow_zero(sparse_memory *memory, size_t bytes, const char *what);
void mst_sparse_free(sparse_memory *memory);

/* A block: pinned memory, its copy on the GPU, and what was prepared from it. */
struct sparse_block {
    mst_cuda_sparse_rows rows;
    void *pinned;
    mst_cuda_sparse_rules *rules; /* pinned, by step */
    uint32_t *pinned_numbers;     /* and ends, row_capacity of each */
    uint32_t number_capacity;
    sparse_memory labels, weights, ends, keys, values, fields, dense, numbers;
    sparse_memory sorted, sorted_origin, sorted_rows, sorted_values, starts, step_first, pieces, n_pieces,
        n_segments;
    sparse_memory device_rules, coefs, losses, correct;
    cudaEvent_t copied, prepared, trained;
    int32_t load;       /* the last one that was sent when the block was reserved; -1: none */
    uint32_t n_entries; /* with those of the head */
    sparse_view view;
};

/* Chunks on their way to the GPU. */
struct sparse_sending {
    uint32_t *pinned; /* its part of held.pinned */
    cudaEvent_t sent;
};

struct mst_cuda_sparse {
    mst_cuda_sparse_spec spec;
    uint32_t key_bits, n_processors;
    bool split, direct; /* direct: entries of rows without values are sorted with their rows */
    int coop_blocks;    /* of the kernel of many steps */
    sparse_memory params[3];
    sparse_block blocks[MST_CUDA_SPARSE_SLOTS];
    /* Of the block in preparation: */
    sparse_memory composite, origin, row_of, scratch;
    /* Of the step under way, for all blocks: */
    sparse_memory partials, arrived, sums, weighted, self, bias_partials, bias_arrived, pair_partials,
        gradient, rest, squares, clip;
    sparse_memory totals, bad;
    /* The records of the dataset: */
    struct {
        mst_cuda_sparse_records records;     /* `strides` is not valid */
        sparse_memory words, first, strides; /* first: word and end of each chunk */
        ulonglong2 *places;                  /* pinned: `first` of the chunks that were sent */
        uint64_t n_sent, n_placed;           /* words; those whose places the GPU has, or will */
        int32_t last;                        /* load that was sent; -1: none */
        uint32_t *pinned;
        sparse_sending loads[MST_CUDA_SPARSE_LOADS];
    } held;
    cudaStream_t copy_stream, prepare_stream, train_stream;
};

/* Number of weights of pairs of fields. */
static inline __host__ __device__ uint32_t sparse_n_pairs(uint32_t kind, uint32_t fields)
{
    return kind == MST_CUDA_FWFM ? fields * (fields + 1) / 2 : 0;
}

/* sparse_prepare.cu: sorts the entries of the block on the prepare stream; unpacks its rows first, if they
 * are held. */
mst_status mst_sparse_prepare(mst_cuda_sparse *self, sparse_block *b, bool held);
/* Waits for an event, at most 600 s. */
mst_status mst_sparse_wait(cudaEvent_t event);
/* A small copy by the processors: that of the copy engine would wait for the copies of chunks. `from` is
 * pinned. */
struct sparse_fetch {
    void *to;
    const void *from;
    size_t bytes; /* a multiple of 4 */
};
mst_status mst_sparse_fetch(cudaStream_t stream, sparse_fetch a, sparse_fetch b, sparse_fetch c);
/* sparse_records.cu: contracts in cuda_sparse.h. Places: the copy of those of the chunks that were sent, if
 * the GPU lacks some. Unpack: the rows of the block, whose numbers are on the GPU and whose view is set;
 * `numbers`: entries may be numbered too, without those of the head. */
mst_status mst_sparse_hold(mst_cuda_sparse *self, const mst_cuda_sparse_records *records, bool *held);
mst_status mst_sparse_stage(mst_cuda_sparse *self, uint32_t i, uint32_t **out);
mst_status mst_sparse_send(mst_cuda_sparse *self, uint32_t i, const mst_cuda_sparse_part *parts, uint32_t n);
sparse_fetch mst_sparse_places(mst_cuda_sparse *self);
mst_status mst_sparse_unpack(mst_cuda_sparse *self, sparse_block *b, bool numbers, bool *numbered);
void mst_sparse_drop(mst_cuda_sparse *self);
/* sparse_linear.cu: steps of logreg; several in one kernel if they are small. */
mst_status mst_sparse_linear_steps(mst_cuda_sparse *self, sparse_block *b, uint32_t first, uint32_t n);
mst_status mst_sparse_linear_open(mst_cuda_sparse *self);
/* sparse_wide.cu: steps of the other models, and of logreg where updates are split. */
mst_status mst_sparse_wide_steps(mst_cuda_sparse *self, sparse_block *b, uint32_t first, uint32_t n);

#endif
