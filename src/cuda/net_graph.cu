/* Graphs of layers on a GPU: layers with several inputs, and the pass backward; contract in net.cuh.
 *
 * Numbers are floats, in plain rows (n, c, h, w). Every layer has an array for the gradient of its output, which an
 * activation that another layer computes shares with that layer. In the pass backward the last layer that reads an
 * output sets its gradient, the others add to it, one after the other: sums have a fixed order. */
#include "cuda/net_lines.cuh"

/* ---- inputs ---- */

/* Numbers of input j. */
static uint64_t graph_part(const mst_cuda_net *net, const mst_cuda_layer &s, uint32_t j)
{
    return s.inputs[j] == MST_CUDA_THE_ROWS ? net->row_size : net_size(&net->layers[s.inputs[j]].spec.out);
}

static const void *graph_output(const mst_cuda_net *net, uint32_t input)
{
    return input == MST_CUDA_THE_ROWS ? net->input : net->layers[input].out;
}

/* to[r * to_pitch + i] = from[r * from_pitch + i], or added to it. */
template <bool ADD>
static __global__ void part_kernel(uint32_t n, uint32_t size, const float *from, uint32_t from_pitch, float *to,
                                   uint32_t to_pitch)
{
    uint64_t all = (uint64_t)n * size;
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < all; i += (uint64_t)gridDim.x * THREADS) {
        uint64_t r = i / size, k = i % size;
        float v = from[r * from_pitch + k], *at = &to[r * to_pitch + k];
        *at = ADD ? *at + v : v;
    }
}

static mst_status graph_copy(mst_cuda_net *net, bool add, uint32_t n, uint64_t size, const float *from,
                             uint64_t from_pitch, float *to, uint64_t to_pitch)
{
    unsigned blocks = mst_cuda_blocks(n * size, THREADS, 4096);
    if (size == 0)
        return MST_OK;
    if (add)
        part_kernel<true><<<blocks, THREADS, 0, net->stream>>>(n, (uint32_t)size, from, (uint32_t)from_pitch, to,
                                                               (uint32_t)to_pitch);
    else
        part_kernel<false><<<blocks, THREADS, 0, net->stream>>>(n, (uint32_t)size, from, (uint32_t)from_pitch, to,
                                                                (uint32_t)to_pitch);
    CUDA_LAUNCHED("a part of a row");
    return MST_OK;
}

mst_status net_graph_input(mst_cuda_net *net, net_layer *layer, uint32_t n, const void **x)
{
    const mst_cuda_layer &s = layer->spec;
    uint64_t at = 0, whole = 0;
    if (s.n_inputs == 0) {
        *x = NULL;
        return MST_OK;
    }
    layer->x0 = graph_output(net, s.inputs[0]);
    *x = graph_output(net, s.inputs[s.n_inputs - 1]);
    if (s.n_inputs == 1 || s.kind == MST_CUDA_CROSS)
        return MST_OK;
    for (uint32_t j = 0; j < s.n_inputs; j++)
        whole += graph_part(net, s, j);
    for (uint32_t j = 0; j < s.n_inputs; j++) {
        uint64_t size = graph_part(net, s, j);
        NET_TRY(graph_copy(net, false, n, size, (const float *)graph_output(net, s.inputs[j]), size, layer->joined + at,
                           whole));
        at += size;
    }
    *x = layer->joined;
    return MST_OK;
}

mst_status net_graph_make(mst_cuda_net *net, net_layer *l)
{
    const mst_cuda_layer &s = l->spec;
    uint64_t rows = net->spec.max_rows, whole = 0;
    void *at;
    for (uint32_t j = 0; j < s.n_inputs; j++)
        whole += graph_part(net, s, j);
    if (s.n_inputs > 1 && s.kind != MST_CUDA_CROSS) {
        NET_TRY(net_alloc(net, rows * whole * sizeof(float), &at));
        l->joined = (float *)at;
    }
    if (s.kind == MST_CUDA_CROSS)
        NET_TRY(net_alloc(net, rows * net_size(&s.out) * sizeof(float), &l->flat));
    if (!net->spec.training)
        return MST_OK;
    if (l->merged) {
        l->dy = net->layers[s.inputs[0]].dy;
        return MST_OK;
    }
    NET_TRY(net_alloc(net, rows * net_size(&s.out) * sizeof(float), &at));
    l->dy = (float *)at;
    return MST_OK;
}

/* ---- forward ---- */

static __global__ void add_kernel(uint32_t n, uint32_t size, uint32_t parts, const float *x, float *y)
{
    uint64_t all = (uint64_t)n * size;
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < all; i += (uint64_t)gridDim.x * THREADS) {
        const float *at = x + i / size * size * parts + i % size;
        float sum = at[0];
        for (uint32_t p = 1; p < parts; p++)
            sum += at[(uint64_t)p * size];
        y[i] = sum;
    }
}

/* A warp per row; lanes have elements of the vectors. */
static __global__ void fm_kernel(uint32_t n, uint32_t vectors, uint32_t k, uint32_t out, const float *x, float *y)
{
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t r = (blockIdx.x * THREADS + threadIdx.x) / 32; r < n; r += gridDim.x * THREADS / 32) {
        const float *row = x + (uint64_t)r * vectors * k;
        float total = 0.0f;
        for (uint32_t j = lane; j < k; j += 32) {
            double sum = 0.0, squares = 0.0;
            for (uint32_t v = 0; v < vectors; v++) {
                double value = (double)row[(uint64_t)v * k + j];
                sum += value;
                squares += value * value;
            }
            float pairs = (float)(0.5 * (sum * sum - squares));
            if (out == 1)
                total += pairs;
            else
                y[(uint64_t)r * out + j] = pairs;
        }
        for (int by = 16; by > 0; by /= 2)
            total += __shfl_xor_sync(~0u, total, by);
        if (out == 1 && lane == 0)
            y[r] = total;
    }
}

static __global__ void fm_back_kernel(uint32_t n, uint32_t vectors, uint32_t k, uint32_t out, const float *x,
                                      const float *dy, float *dx)
{
    uint64_t all = (uint64_t)n * k;
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < all; i += (uint64_t)gridDim.x * THREADS) {
        uint64_t r = i / k, j = i % k, at = r * vectors * k + j;
        float sum = 0.0f, d = dy[out == 1 ? r : r * out + j];
        for (uint32_t v = 0; v < vectors; v++)
            sum += x[at + (uint64_t)v * k];
        for (uint32_t v = 0; v < vectors; v++)
            dx[at + (uint64_t)v * k] = d * (sum - x[at + (uint64_t)v * k]);
    }
}

/* Pairs (1,0), (2,0), (2,1), ...: that of a and b < a is number a (a - 1) / 2 + b. */
static __global__ void dot_kernel(uint32_t n, uint32_t vectors, uint32_t k, const float *x, float *y)
{
    uint32_t pairs = vectors * (vectors - 1) / 2;
    EACH_ROW(r, n)
    EACH_ITEM(p, pairs)
    {
        uint32_t a = (uint32_t)((1.0 + sqrt(1.0 + 8.0 * (double)p)) / 2.0);
        while (a * (a - 1) / 2 > p)
            a--;
        while ((a + 1) * a / 2 <= p)
            a++;
        const float *row = x + (uint64_t)r * vectors * k, *one = row + (uint64_t)a * k,
                    *other = row + (uint64_t)(p - a * (a - 1) / 2) * k;
        float sum = 0.0f;
        for (uint32_t e = 0; e < k; e++)
            sum += one[e] * other[e];
        y[(uint64_t)r * pairs + p] = sum;
    }
}

static __global__ void dot_back_kernel(uint32_t n, uint32_t vectors, uint32_t k, const float *x, const float *dy,
                                       float *dx)
{
    uint32_t pairs = vectors * (vectors - 1) / 2;
    EACH_ROW(r, n)
    EACH_ITEM(i, vectors * k)
    {
        uint32_t a = i / k, e = i % k;
        const float *row = x + (uint64_t)r * vectors * k, *d = dy + (uint64_t)r * pairs;
        float sum = 0.0f;
        for (uint32_t b = 0; b < vectors; b++)
            if (b != a)
                sum += d[a > b ? a * (a - 1) / 2 + b : b * (b - 1) / 2 + a] * row[(uint64_t)b * k + e];
        dx[(uint64_t)r * vectors * k + i] = sum;
    }
}

/* y = a * b + c; c NULL: without it; ADD: added to y. */
template <bool ADD>
static __global__ void product_kernel(uint64_t all, const float *a, const float *b, const float *c, float *y)
{
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < all; i += (uint64_t)gridDim.x * THREADS) {
        float v = a[i] * b[i] + (c != NULL ? c[i] : 0.0f);
        y[i] = ADD ? y[i] + v : v;
    }
}

#define FLAT(count) mst_cuda_blocks(count, THREADS, 4096), THREADS, 0, net->stream

mst_status net_graph_layer(mst_cuda_net *net, size_t i, uint32_t n, const void *x)
{
    net_layer *l = &net->layers[i];
    const mst_cuda_layer &s = l->spec;
    uint64_t size = net_size(&s.out);
    const float *in = (const float *)x;
    float *y = (float *)l->y;
    l->out = l->y;
    switch (s.kind) {
    case MST_CUDA_CONCAT: l->out = x; break;
    case MST_CUDA_NUMBERS: l->out = net->input; break;
    case MST_CUDA_ADD: add_kernel<<<FLAT(n * size)>>>(n, (uint32_t)size, (uint32_t)(net_size(&s.in) / size), in, y); break;
    case MST_CUDA_VECTORS_FM: fm_kernel<<<FLAT(32ull * n)>>>(n, s.vectors, s.length, (uint32_t)size, in, y); break;
    case MST_CUDA_VECTORS_DOT:
        dot_kernel<<<net_grid(n, size), THREADS, 0, net->stream>>>(n, s.vectors, s.length, in, y);
        break;
    case MST_CUDA_CROSS:
        NET_TRY(net_gemm_run(net, net->plans[n].gemms[3 * i].get(), net_weights(net, l, 0), x, l->flat));
        NET_TRY(net_bias_act(net, &s.out, n, -1, s.n_params > 1 ? net_floats(net, l, 1) : NULL, l->flat));
        product_kernel<false><<<FLAT(n * size)>>>(n * size, (const float *)l->x0, (const float *)l->flat, in, y);
        break;
    default: break; /* of the table: loaded before */
    }
    CUDA_LAUNCHED("a layer of a graph");
    return MST_OK;
}

/* ---- backward ---- */

/* The array for the gradient of an output, which the caller sets or, if *add, adds to; NULL: it is not wanted. */
static float *graph_target(mst_cuda_net *net, uint32_t input, bool *add)
{
    if (input == MST_CUDA_THE_ROWS || !net->layers[input].wanted)
        return NULL;
    net_layer *l = &net->layers[input];
    if (l->merged)
        l = &net->layers[l->spec.inputs[0]];
    *add = l->given;
    l->given = true;
    return l->dy;
}

/* Gives the gradient of the joined inputs to each of them. */
static mst_status graph_divide(mst_cuda_net *net, const net_layer *l, uint32_t n, const float *dx)
{
    const mst_cuda_layer &s = l->spec;
    uint64_t at = 0, whole = 0;
    for (uint32_t j = 0; j < s.n_inputs; j++)
        whole += graph_part(net, s, j);
    for (uint32_t j = 0; j < s.n_inputs; j++) {
        uint64_t size = graph_part(net, s, j);
        bool add;
        float *to = graph_target(net, s.inputs[j], &add);
        if (to != NULL)
            NET_TRY(graph_copy(net, add, n, size, dx + at, whole, to, size));
        at += size;
    }
    return MST_OK;
}

static mst_status graph_add_back(mst_cuda_net *net, const net_layer *l, uint32_t n)
{
    uint64_t size = net_size(&l->spec.out);
    for (uint32_t j = 0; j < l->spec.n_inputs; j++) {
        bool add;
        float *to = graph_part(net, l->spec, j) > 0 ? graph_target(net, l->spec.inputs[j], &add) : NULL;
        if (to != NULL)
            NET_TRY(graph_copy(net, add, n, size, l->dy, size, to, size));
    }
    return MST_OK;
}

/* y = x0 * u + x, u = W x + b: du = dy * x0; dx = dy + W^T du; dx0 = dy * u. */
static mst_status graph_cross_back(mst_cuda_net *net, size_t i, uint32_t n)
{
    net_layer *l = &net->layers[i];
    const mst_cuda_layer &s = l->spec;
    const net_plans &plans = net->plans[n];
    uint64_t size = net_size(&s.out);
    float *du = (float *)net->diffs[0], *dx = (float *)net->diffs[1];
    bool add;
    product_kernel<false><<<FLAT(n * size)>>>(n * size, l->dy, (const float *)l->x0, NULL, du);
    CUDA_LAUNCHED("a cross layer");
    NET_TRY(net_act_back(net, &s.out, n, -1, l->y, du, s.n_params > 1 ? net_gradient(net, l, 1) : NULL));
    NET_TRY(net_gemm_run(net, plans.gemms[3 * i + NET_FILTER].get(), l->x, du, net_gradient(net, l, 0)));
    float *to = graph_target(net, s.inputs[s.n_inputs - 1], &add);
    if (to != NULL) {
        NET_TRY(net_gemm_run(net, plans.gemms[3 * i + NET_DATA].get(), net_weights(net, l, 0), du, dx));
        NET_TRY(graph_copy(net, add, n, size, dx, size, to, size));
        NET_TRY(graph_copy(net, true, n, size, l->dy, size, to, size));
    }
    to = graph_target(net, s.inputs[0], &add);
    if (to == NULL)
        return MST_OK;
    if (add)
        product_kernel<true><<<FLAT(n * size)>>>(n * size, l->dy, (const float *)l->flat, NULL, to);
    else
        product_kernel<false><<<FLAT(n * size)>>>(n * size, l->dy, (const float *)l->flat, NULL, to);
    CUDA_LAUNCHED("a cross layer");
    return MST_OK;
}

static mst_status graph_layer_back(mst_cuda_net *net, size_t i, uint32_t n, const char *slot)
{
    net_layer *l = &net->layers[i];
    const mst_cuda_layer &s = l->spec;
    const float *x = (const float *)l->x;
    float *dx = (float *)net->diffs[1];
    void *d = l->dy, *to = net->diffs[1];
    bool below = false;
    for (uint32_t j = 0; j < s.n_inputs; j++)
        below |= s.inputs[j] != MST_CUDA_THE_ROWS && net->layers[s.inputs[j]].wanted;
    switch (s.kind) {
    case MST_CUDA_EMBEDDING:
    case MST_CUDA_NUMBERS:
    case MST_CUDA_WIDE: return MST_OK;
    case MST_CUDA_CONCAT: return graph_divide(net, l, n, l->dy);
    case MST_CUDA_ADD: return graph_add_back(net, l, n);
    case MST_CUDA_CROSS: return graph_cross_back(net, i, n);
    case MST_CUDA_VECTORS_FM:
        fm_back_kernel<<<FLAT((uint64_t)n * s.length)>>>(n, s.vectors, s.length, (uint32_t)net_size(&s.out), x, l->dy, dx);
        CUDA_LAUNCHED("a gradient of fm");
        return graph_divide(net, l, n, dx);
    case MST_CUDA_VECTORS_DOT:
        dot_back_kernel<<<net_grid(n, (uint64_t)s.vectors * s.length), THREADS, 0, net->stream>>>(n, s.vectors, s.length, x,
                                                                                                  l->dy, dx);
        CUDA_LAUNCHED("a gradient of dot");
        return graph_divide(net, l, n, dx);
    default:
        NET_TRY(net_layer_back(net, i, n, !below, slot, &d, &to));
        return below ? graph_divide(net, l, n, (const float *)d) : MST_OK;
    }
}

mst_status net_graph_back(mst_cuda_net *net, uint32_t n, const char *slot, const void *scores)
{
    bool add;
    for (net_layer &l : net->layers)
        l.given = false;
    NET_TRY(net_loss(net, n, slot, scores, graph_target(net, (uint32_t)net->layers.size() - 1, &add)));
    for (size_t i = net->layers.size(); i-- > 0;) {
        net_layer *l = &net->layers[i];
        if (l->merged || !l->wanted)
            continue;
        if (!l->given) /* no layer reads it */
            CUDA_TRY(cudaMemsetAsync(l->dy, 0, n * net_size(&l->spec.out) * sizeof(float), net->stream));
        l->given = true;
        NET_TRY(graph_layer_back(net, i, n, slot));
    }
    return MST_OK;
}
