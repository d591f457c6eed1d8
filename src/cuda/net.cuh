/* Shared by the files of nets in the plug-in (net*.cu): the net on the GPU, and the functions that enqueue its
 * layers.
 *
 * Numbers between layers are of type T: float, or bf16 with --precision bf16. Images are (n, c, h, w) with
 * fp32, and (n, h, w, c) otherwise, as tensor cores take them; kernels have the layout as a template
 * parameter. Plain rows (h = w = 1) are the same in both. Weights of convolutions have the layout of images:
 * (out, in, kh, kw) or (out, kh, kw, in).
 *
 * Sums over rows (gradients of biases, statistics of batch norm) have a fixed order: a step repeats bit for
 * bit. */
#ifndef MST_CUDA_NET_CUH
#define MST_CUDA_NET_CUH

#include <cuda_bf16.h>

#include <map>
#include <memory>
#include <vector>

#include "cuda/cuda_net.h"
#include "cuda/libraries.cuh"

#define NET_TRY(call)                                                                                        \
    do {                                                                                                     \
        mst_status net_st_ = (call);                                                                         \
        if (net_st_ != MST_OK)                                                                               \
            return net_st_;                                                                                  \
    } while (0)

typedef __nv_bfloat16 bf16;

#define NET_DROPOUTS 120 /* dropout layers of a net; a net has at most 128 layers */

/* The numbers of a step, as kernels read them. */
typedef struct net_numbers {
    mst_rule rule, rule_keys;
    float scale;
    float clip_norm;
    uint64_t first_row;
    uint64_t dropout[NET_DROPOUTS];
} net_numbers;

/* One layer, with the buffers of max_rows rows. */
typedef struct net_layer {
    mst_cuda_layer spec;
    bool merged;    /* an activation that another layer computes */
    int act;        /* the activation that is computed with this layer; -1: none */
    int bias;       /* the layer whose bias is added with the activation: itself, or, for a maxpool, the
                       convolution before it; -1: none */
    bool folded;    /* the first layer, a convolution with a stride on (h, w, c): see net_fold */
    void *kernels;  /* folded: the weights as they are multiplied; their gradient */
    float *kernels_back;
    bool unfold;    /* linear: its input is an image in (h, w, c) */
    uint32_t number; /* dropout: among the dropout layers */
    void *y;        /* output */
    void *flat;     /* unfold: the input in (c, h, w) */
    const void *x;  /* input of the pass under way */
    uint16_t *best; /* maxpool: place of the largest number in the window */
    float *stat;    /* lrn: sums; batch norm: mean and 1/deviation of each channel */
    /* In graphs (net_graph.cu): */
    uint32_t width;  /* numbers of the output, without padding */
    uint32_t pitch;  /* of joined inputs */
    const void *out; /* output of the pass under way: y, or that of another layer */
    const void *x0;  /* cross */
    float *du;       /* cross: gradient of its product */
    float *joined;   /* the inputs of a layer that has several */
    float *dy;       /* gradient of the output; merged: that of the layer that computes it */
    bool wanted;     /* dy leads to parameters */
    bool given;      /* dy was set in the pass under way */
} net_layer;

/* A product or a convolution, with the algorithm that was found for it. */
struct net_gemm;
struct net_conv;
typedef enum net_way { NET_FORWARD, NET_DATA, NET_FILTER } net_way;

/* Plans for one number of rows. */
typedef struct net_plans {
    std::vector<std::shared_ptr<net_gemm>> gemms; /* 3 per layer, by net_way */
    std::vector<std::shared_ptr<net_conv>> convs;
} net_plans;

/* The rows of a parameter on the GPU, where they may be padded with zeros. */
typedef struct net_shape {
    uint64_t rows, columns, pitch, floats;
} net_shape;

/* Rows with keys of a dataset, by number, that have as many entries each. */
typedef struct net_kept {
    uint32_t row_entries; /* 0: none */
    uint32_t *keys, *fields;
    float *values, *numbers, *labels; /* labels and weights, two each */
} net_kept;

#define NET_SLOTS  3
#define NET_CHUNKS 264 /* at most so many partial sums of a channel */

/* Rows of a step on their way. */
typedef struct net_slot {
    char *host, *device; /* numbers, labels, weights, rows */
    char *images, *images_device; /* picks, then images; or NULL */
    char *entries, *entries_device; /* ends, keys, places, values; or NULL */
    cudaEvent_t copied, used;
} net_slot;

typedef struct net_graph_key {
    uint32_t n, slot, entries;
    mst_cuda_source source;
    bool floats, update, clip;
    bool operator<(const net_graph_key &o) const
    {
        return n != o.n             ? n < o.n
               : slot != o.slot     ? slot < o.slot
               : entries != o.entries ? entries < o.entries
               : source != o.source ? source < o.source
               : floats != o.floats ? floats < o.floats
               : update != o.update ? update < o.update
                                    : clip < o.clip;
    }
} net_graph_key;

struct mst_cuda_net {
    mst_cuda_net_spec spec; /* layers and params NULL */
    std::vector<net_layer> layers;
    std::vector<mst_cuda_param> params;
    std::vector<uint64_t> at; /* first float of each parameter on the GPU */
    std::vector<net_shape> shapes;
    uint64_t n_trained, n_floats;
    bool half, last; /* numbers between layers are bf16; channels are last */
    uint64_t row_size, n_dropouts;
    cudaStream_t stream, copy;
    cudaStream_t aside; /* within a step of a graph: work that the layers after it do not wait for */
    cudaEvent_t fork, join, sorted;
    const mst_cublas *cublas;
    const mst_cudnn *cudnn; /* NULL: convolutions by own kernels */
    cublasLtHandle_t lt;
    cudnnHandle_t dnn;
    float *w, *g, *state[2];
    bf16 *wh; /* half: weights as bf16 */
    float *room; /* of one parameter, for changes of layout */
    void *input;
    void *diffs[2];
    void *scratch; /* of libraries */
    size_t scratch_bytes;
    void *scratch_aside; /* graphs: the same of the stream `aside` */
    float *sums;        /* partial sums of reductions */
    unsigned *counters; /* of blocks that have finished; zero between kernels */
    double *losses;     /* 3 x max_rows: loss, weight, correct */
    float *clip;
    struct net_table *table; /* of a net over embeddings; or NULL */
    mst_cuda_images images; /* channels 0: none */
    uint64_t pitch;         /* bytes of an image in memory */
    uint8_t *kept;          /* images of the dataset by number; or NULL */
    float *kept_labels;     /* and their labels and weights, two each */
    net_kept kept_rows;
    net_slot slots[NET_SLOTS];
    uint32_t slot; /* the next */
    bool staged;
    struct net_lenet *lenet; /* steps of LeNet; or NULL */
    std::map<uint32_t, net_plans> plans;
    std::map<net_graph_key, cudaGraphExec_t> graphs;
    std::vector<void *> memory; /* of the GPU */
};

/* Parts of a slot. */
static inline size_t net_labels_at(void)
{
    return (sizeof(net_numbers) + 255) / 256 * 256;
}
static inline size_t net_rows_at(const mst_cuda_net *net)
{
    return net_labels_at() + ((size_t)net->spec.max_rows * 2 * sizeof(float) + 255) / 256 * 256;
}

static inline uint64_t net_size(const mst_cuda_dims *d)
{
    return (uint64_t)d->c * d->h * d->w;
}

/* The weights of a layer's parameter i, for products. */
static inline const void *net_weights(const mst_cuda_net *net, const net_layer *layer, uint32_t i)
{
    uint64_t at = net->at[layer->spec.first_param + i];
    return net->half ? (const void *)(net->wh + at) : (const void *)(net->w + at);
}
static inline float *net_floats(const mst_cuda_net *net, const net_layer *layer, uint32_t i)
{
    return net->w + net->at[layer->spec.first_param + i];
}
static inline float *net_gradient(const mst_cuda_net *net, const net_layer *layer, uint32_t i)
{
    return net->g + net->at[layer->spec.first_param + i];
}

mst_status net_alloc(mst_cuda_net *net, size_t bytes, void **out); /* freed at close */

/* ---- graphs (net_graph.cu) ---- */

/* The input of a layer in this pass; the inputs of a layer that has several are joined. */
mst_status net_graph_input(mst_cuda_net *net, net_layer *layer, uint32_t n, const void **x);
/* A layer of one of the kinds in graphs. */
mst_status net_graph_layer(mst_cuda_net *net, size_t i, uint32_t n, const void *x);
mst_status net_graph_back(mst_cuda_net *net, uint32_t n, const char *slot, const void *scores);
/* Whether the score is a sum, which net_graph_back computes together with the loss. */
bool net_graph_sums_scores(const mst_cuda_net *net);
/* The stream `aside` has what was enqueued so far before it; and the reverse. */
mst_status net_fork(mst_cuda_net *net);
mst_status net_join(mst_cuda_net *net);
/* Memory of a layer. */
mst_status net_graph_make(mst_cuda_net *net, net_layer *layer);
/* The gradient of one layer (net.cu): reads d, the gradient of its output, and leaves that of its input in *to,
 * unless `first`. Swaps the two where it does. */
mst_status net_layer_back(mst_cuda_net *net, size_t i, uint32_t n, bool first, const char *slot, void **d, void **to);

/* ---- tables (net_table.cu) ---- */

mst_status net_table_make(mst_cuda_net *net, const mst_cuda_table *spec);
void net_table_free(mst_cuda_net *net);
mst_status net_table_entries(mst_cuda_net *net, uint64_t n, mst_cuda_entries *out);
uint32_t net_table_staged(const mst_cuda_net *net); /* entries of the step, with padding */
mst_status net_table_send(mst_cuda_net *net, net_slot *slot, bool copies);
/* The step has n entries that are not staged: they are made on the GPU. */
mst_status net_table_unsent(mst_cuda_net *net, uint64_t n);
/* The places of n entries, with padding, of a slot at `at`. */
mst_cuda_entries net_table_places(const mst_cuda_net *net, char *at, uint64_t n);
/* Embedding and wide; NULL: the net has no such input. */
mst_status net_table_load(mst_cuda_net *net, uint32_t n, const net_slot *slot, uint32_t entries, float *embedding,
                          float *wide);
/* Sorts the keys of the step, on the stream `aside`; before sum. */
mst_status net_table_sort(mst_cuda_net *net, const net_slot *slot, uint32_t entries);
/* Sums the gradients of each key; *squares has the sum of their squares in 256 parts, if clip. */
mst_status net_table_sum(mst_cuda_net *net, const net_slot *slot, uint32_t entries, bool clip, const float *embedding,
                         const float *wide);
const double *net_table_squares(const mst_cuda_net *net);
#define NET_SQUARES 256
mst_status net_table_update(mst_cuda_net *net, uint32_t entries, const net_numbers *numbers, const float *clip);
mst_status net_table_copy(mst_cuda_net *net, uint32_t slot, uint64_t first, uint64_t n, const float *from, float *to);

/* ---- images (net_images.cu) ---- */

static inline size_t net_images_at(const mst_cuda_net *net)
{
    return ((size_t)net->spec.max_rows * sizeof(mst_cuda_pick) + 255) / 256 * 256;
}
mst_status nets_images(mst_cuda_net *net, const mst_cuda_images *images, bool *keeps);
/* Makes the rows of the slot out of images; they are numbers if images are normalised. */
mst_status net_augment(mst_cuda_net *net, uint32_t n, mst_cuda_source source, net_slot *slot);

/* ---- rows with keys that stay (net_keep.cu) ---- */

mst_status nets_keep_rows(mst_cuda_net *net, uint64_t n_rows, uint32_t row_entries, bool *keeps);
/* Keeps the rows of the slot (source images), or makes them out of those that stay (kept). padded: entries. */
mst_status net_keep(mst_cuda_net *net, uint32_t n, uint32_t padded, mst_cuda_source source, net_slot *slot);

/* ---- products (net_gemm.cu) ---- */

/* Finds algorithms for n rows; not while a graph is captured. search: by time. */
mst_status net_gemm_plan(mst_cuda_net *net, const net_layer *layer, net_way way, uint32_t n, bool search,
                         std::shared_ptr<net_gemm> *out);
/* forward: y = x w^T; data: dx = dy w; filter: gradient = dy^T x. */
mst_status net_gemm_run(mst_cuda_net *net, const net_gemm *gemm, const void *a, const void *b, void *out);
bool net_gemm_adds_bias(const net_gemm *gemm); /* forward, in graphs: it also adds the bias, and computes relu */
/* The same beside the steps that follow in a graph, until net_join. */
mst_status net_gemm_aside(mst_cuda_net *net, const net_gemm *gemm, const void *a, const void *b, void *out);

/* ---- convolutions (net_conv.cu) ---- */

mst_status net_conv_plan(mst_cuda_net *net, const net_layer *layer, net_way way, uint32_t n, bool search,
                         std::shared_ptr<net_conv> *out);
/* forward: (x, w, y); data: (dy, w, dx); filter: (dy, x, gradient). */
mst_status net_conv_run(mst_cuda_net *net, const net_layer *layer, uint32_t n, const net_conv *conv,
                        const void *a, const void *b, void *out);

/* ---- layers (net_layers.cu, net_norms.cu) ---- */

mst_status net_input(mst_cuda_net *net, uint32_t n, bool floats, const void *rows);
/* y = act(y + bias) in place; bias NULL: none; act -1: none. */
mst_status net_bias_act(mst_cuda_net *net, const mst_cuda_dims *dims, uint32_t n, int act, const float *bias,
                        void *y);
/* d = d * act'(y) in place; its sums per channel in `bias` unless that is NULL. */
mst_status net_act_back(mst_cuda_net *net, const mst_cuda_dims *dims, uint32_t n, int act, const void *y,
                        void *d, float *bias);
/* With bias and activation; bias NULL: none. */
mst_status net_pool(mst_cuda_net *net, const net_layer *layer, uint32_t n, const float *bias, const void *x);
mst_status net_pool_back(mst_cuda_net *net, const net_layer *layer, uint32_t n, const void *dy, void *dx);
mst_status net_lrn(mst_cuda_net *net, const net_layer *layer, uint32_t n, const void *x);
mst_status net_lrn_back(mst_cuda_net *net, const net_layer *layer, uint32_t n, const void *dy, void *dx);
mst_status net_norm(mst_cuda_net *net, const net_layer *layer, uint32_t n, bool training, const void *x);
mst_status net_norm_back(mst_cuda_net *net, const net_layer *layer, uint32_t n, const void *dy, void *dx);
mst_status net_dropout(mst_cuda_net *net, const net_layer *layer, uint32_t n, const net_numbers *numbers,
                       const void *x, void *y);
/* A convolution with stride s on few channels is one with stride 1 on s*s times as many: every s x s pixels are
 * a pixel of an image that is smaller by s. The layer that is computed in place of l: */
mst_cuda_layer net_fold(const mst_cuda_layer &l);
/* The weights of l as those of net_fold(l), with zeros where it has none; and back, from their gradient. */
mst_status net_fold_weights(mst_cuda_net *net, const net_layer *layer);
mst_status net_fold_back(mst_cuda_net *net, const net_layer *layer);
/* Between (h, w, c) and (c, h, w). */
mst_status net_unfold(mst_cuda_net *net, const mst_cuda_dims *dims, uint32_t n, bool back, const void *x,
                      void *y);

/* ---- the end of a step (net_update.cu) ---- */

/* d may be the place of the scores. */
mst_status net_loss(mst_cuda_net *net, uint32_t n, const char *slot, const void *scores, void *d);
mst_status net_update(mst_cuda_net *net, const net_numbers *numbers, bool clip);
mst_status net_shadow(mst_cuda_net *net, uint64_t first, uint64_t n);
/* Changes the layout of a convolution's weights: (in, k) planes to (k, in), or back. */
mst_status net_turn(mst_cuda_net *net, const mst_cuda_layer *conv, bool back, const float *from, float *to);
mst_status net_scores(mst_cuda_net *net, uint64_t count, const void *scores, float *out);

/* ---- in kernels ---- */

template <typename T> static __device__ __forceinline__ float net_get(const T *p);
template <> __device__ __forceinline__ float net_get<float>(const float *p)
{
    return *p;
}
template <> __device__ __forceinline__ float net_get<bf16>(const bf16 *p)
{
    return __bfloat162float(*p);
}
static __device__ __forceinline__ void net_put(float *p, float v)
{
    *p = v;
}
static __device__ __forceinline__ void net_put(bf16 *p, float v)
{
    *p = __float2bfloat16(v);
}

template <int ACT> static __device__ __forceinline__ float net_act(float x)
{
    return ACT == MST_CUDA_RELU      ? fmaxf(x, 0.0f)
           : ACT == MST_CUDA_TANH    ? tanhf(x)
           : ACT == MST_CUDA_SIGMOID ? 1.0f / (1.0f + expf(-x))
                                     : x;
}
/* The derivative, by the output. */
template <int ACT> static __device__ __forceinline__ float net_act_slope(float y)
{
    return ACT == MST_CUDA_RELU      ? (y > 0.0f ? 1.0f : 0.0f)
           : ACT == MST_CUDA_TANH    ? 1.0f - y * y
           : ACT == MST_CUDA_SIGMOID ? y * (1.0f - y)
                                     : 1.0f;
}

/* The gradient of row r by its score; adds its logistic loss, weight, and whether it is right. */
static __device__ __forceinline__ float net_logistic(uint32_t r, uint32_t max_rows, float pos_weight,
                                                     const net_numbers *numbers, const float *labels,
                                                     const float *weights, float margin, double *losses)
{
    bool positive = labels[r] > 0.0f;
    float sign = positive ? 1.0f : -1.0f, t = -sign * margin;
    float weight = weights[r] * (positive ? pos_weight : 1.0f);
    float loss = t > 0.0f ? t + log1pf(expf(-t)) : log1pf(expf(t));
    float p = t >= 0.0f ? 1.0f / (1.0f + expf(-t)) : expf(t) / (1.0f + expf(t));
    losses[r] += (double)weight * (double)loss;
    losses[max_rows + r] += (double)weight;
    losses[2 * (size_t)max_rows + r] += (margin > 0.0f) == positive;
    return -sign * p * weight * numbers->scale;
}

/* The sum over the N threads of a block, in a fixed order; for all of them. */
template <int N, typename T> static __device__ __forceinline__ T net_block_sum(T v)
{
    __shared__ T parts[N];
    __syncthreads(); /* the threads have read the sum before */
    parts[threadIdx.x] = v;
    __syncthreads();
    for (int k = N / 2; k > 0; k /= 2) {
        if (threadIdx.x < k)
            parts[threadIdx.x] += parts[threadIdx.x + k];
        __syncthreads();
    }
    return parts[0];
}

/* Calls f.template operator()<ACT>() for the activation. */
#define NET_BY_ACT(act, CALL)                                                                                \
    do {                                                                                                     \
        if ((act) == MST_CUDA_RELU)                                                                          \
            CALL(MST_CUDA_RELU);                                                                             \
        else if ((act) == MST_CUDA_TANH)                                                                     \
            CALL(MST_CUDA_TANH);                                                                             \
        else if ((act) == MST_CUDA_SIGMOID)                                                                  \
            CALL(MST_CUDA_SIGMOID);                                                                          \
        else                                                                                                 \
            CALL(-1);                                                                                        \
    } while (0)

/* Philox4x32-10: the words that base/rng.c gives for the block of a stream. */
static __device__ __forceinline__ uint4 net_philox(uint64_t seed, uint32_t block, uint32_t purpose,
                                                   uint64_t index)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    uint4 c = make_uint4(block, purpose, (uint32_t)index, (uint32_t)(index >> 32));
#pragma unroll
    for (int i = 0; i < 10; i++) {
        uint32_t h0 = __umulhi(0xD2511F53u, c.x), l0 = 0xD2511F53u * c.x;
        uint32_t h1 = __umulhi(0xCD9E8D57u, c.z), l1 = 0xCD9E8D57u * c.z;
        c = make_uint4(h1 ^ c.y ^ k0, l1, h0 ^ c.w ^ k1, l0);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

#endif
