/* Graphs of layers on a GPU: layers with several inputs, and the pass backward; contract in net.cuh.
 *
 * Numbers are floats, in plain rows (n, c, h, w). Every layer has an array for the gradient of its output, which an
 * activation that another layer computes shares with that layer. In the pass backward the last layer that reads an
 * output sets its gradient, the others add to it, one after the other: sums have a fixed order. */
#include "cuda/net_lines.cuh"

/* ---- inputs ---- */

/* Numbers of input j. */
static uint32_t graph_part(const mst_cuda_net *net, const mst_cuda_layer &s, uint32_t j)
{
    return s.inputs[j] == MST_CUDA_THE_ROWS ? (uint32_t)net->row_size : net->layers[s.inputs[j]].width;
}

/* The same with padding. */
static uint32_t graph_part_pitch(const mst_cuda_net *net, const mst_cuda_layer &s, uint32_t j)
{
    return (uint32_t)(s.inputs[j] == MST_CUDA_THE_ROWS ? net->row_size : net_size(&net->layers[s.inputs[j]].spec.out));
}

static const void *graph_output(const mst_cuda_net *net, uint32_t input)
{
    return input == MST_CUDA_THE_ROWS ? net->input : net->layers[input].out;
}

/* The parts of a row: part j is columns [at[j], at[j + 1]), and an array of its own elsewhere. NULL: none there. */
typedef struct graph_parts {
    uint32_t n, at[MST_CUDA_INPUTS + 1], pitch[MST_CUDA_INPUTS];
    float *of[MST_CUDA_INPUTS];
    bool add[MST_CUDA_INPUTS];
} graph_parts;

/* The outputs of the layers that a layer reads. */
static graph_parts graph_parts_of(const mst_cuda_net *net, const mst_cuda_layer &s)
{
    graph_parts parts = {};
    for (uint32_t j = 0; j < s.n_inputs; j++) {
        uint32_t size = graph_part(net, s, j);
        parts.at[parts.n + 1] = parts.at[parts.n] + size;
        parts.pitch[parts.n] = graph_part_pitch(net, s, j);
        parts.of[parts.n] = (float *)graph_output(net, s.inputs[j]);
        parts.n += size > 0;
    }
    return parts;
}

/* JOIN: rows of the parts become whole rows. Otherwise whole rows are set in the parts, or added to them. */
template <bool JOIN> static __global__ void parts_kernel(uint32_t n, graph_parts parts, uint32_t pitch, float *rows)
{
    uint32_t size = parts.at[parts.n];
    uint64_t all = (uint64_t)n * size;
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < all; i += (uint64_t)gridDim.x * THREADS) {
        uint32_t r = (uint32_t)(i / size), k = (uint32_t)(i - (uint64_t)r * size), j = 0;
        while (k >= parts.at[j + 1])
            j++;
        float *at = parts.of[j] + (uint64_t)r * parts.pitch[j] + (k - parts.at[j]), *row = rows + (uint64_t)r * pitch;
        if (JOIN)
            row[k] = *at;
        else if (parts.of[j] != NULL)
            *at = parts.add[j] ? *at + row[k] : row[k];
    }
}

static mst_status graph_move(mst_cuda_net *net, bool join, uint32_t n, const graph_parts &parts, uint32_t pitch,
                             float *rows)
{
    unsigned blocks = mst_cuda_blocks((uint64_t)n * parts.at[parts.n], THREADS, 4096);
    if (parts.at[parts.n] == 0)
        return MST_OK;
    if (join)
        parts_kernel<true><<<blocks, THREADS, 0, net->stream>>>(n, parts, pitch, rows);
    else
        parts_kernel<false><<<blocks, THREADS, 0, net->stream>>>(n, parts, pitch, rows);
    CUDA_LAUNCHED("the parts of a row");
    return MST_OK;
}

/* Whether a layer reads several inputs as one row. */
static bool graph_joins(const mst_cuda_layer &s)
{
    return s.n_inputs > 1 && s.kind != MST_CUDA_CROSS && s.kind != MST_CUDA_ADD;
}

mst_status net_graph_input(mst_cuda_net *net, net_layer *layer, uint32_t n, const void **x)
{
    const mst_cuda_layer &s = layer->spec;
    if (s.n_inputs == 0) {
        *x = NULL;
        return MST_OK;
    }
    layer->x0 = graph_output(net, s.inputs[0]);
    *x = graph_output(net, s.inputs[s.n_inputs - 1]);
    if (!graph_joins(s))
        return MST_OK;
    *x = layer->joined;
    return graph_move(net, true, n, graph_parts_of(net, s), layer->pitch, layer->joined);
}

mst_status net_graph_make(mst_cuda_net *net, net_layer *l)
{
    const mst_cuda_layer &s = l->spec;
    uint64_t rows = net->spec.max_rows, whole = 0;
    void *at;
    for (uint32_t j = 0; j < s.n_inputs; j++)
        whole += graph_part(net, s, j);
    l->pitch = (uint32_t)(s.kind == MST_CUDA_CONCAT ? net_size(&s.out) : s.kind == MST_CUDA_LINEAR ? net_size(&s.in) : whole);
    if (graph_joins(s)) {
        NET_TRY(net_alloc(net, rows * l->pitch * sizeof(float), &at));
        CUDA_TRY(cudaMemset(at, 0, rows * l->pitch * sizeof(float)));
        l->joined = (float *)at;
    }
    if (s.kind == MST_CUDA_CROSS)
        NET_TRY(net_alloc(net, rows * net_size(&s.out) * sizeof(float), &l->flat));
    if (!net->spec.training)
        return MST_OK;
    if (s.kind == MST_CUDA_CROSS) {
        NET_TRY(net_alloc(net, rows * net_size(&s.out) * sizeof(float), &at));
        l->du = (float *)at;
    }
    if (l->merged) {
        l->dy = net->layers[s.inputs[0]].dy;
        return MST_OK;
    }
    NET_TRY(net_alloc(net, rows * net_size(&s.out) * sizeof(float), &at));
    CUDA_TRY(cudaMemset(at, 0, rows * net_size(&s.out) * sizeof(float))); /* padding stays zero */
    l->dy = (float *)at;
    return MST_OK;
}

/* ---- forward ---- */

/* Arrays of `size` numbers: y is their sum. */
static __global__ void add_kernel(uint64_t size, graph_parts parts, float *y)
{
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < size; i += (uint64_t)gridDim.x * THREADS) {
        float sum = 0.0f;
        for (uint32_t j = 0; j < parts.n; j++)
            sum = j == 0 ? parts.of[j][i] : sum + parts.of[j][i];
        y[i] = sum;
    }
}

/* The reverse: each is set to d, or d is added to it. */
static __global__ void add_back_kernel(uint64_t size, graph_parts parts, const float *d)
{
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < size; i += (uint64_t)gridDim.x * THREADS)
        for (uint32_t j = 0; j < parts.n; j++)
            if (parts.of[j] != NULL)
                parts.of[j][i] = parts.add[j] ? parts.of[j][i] + d[i] : d[i];
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

template <bool ADD>
static __global__ void fm_back_kernel(uint32_t n, uint32_t vectors, uint32_t k, uint32_t out,
                                      const float *__restrict__ x, const float *__restrict__ dy,
                                      float *__restrict__ dx)
{
    uint64_t all = (uint64_t)n * k;
    for (uint64_t i = blockIdx.x * (uint64_t)THREADS + threadIdx.x; i < all; i += (uint64_t)gridDim.x * THREADS) {
        uint64_t r = i / k, j = i % k, at = r * vectors * k + j;
        float sum = 0.0f, d = dy[out == 1 ? r : r * out + j];
#pragma unroll 8
        for (uint32_t v = 0; v < vectors; v++)
            sum += x[at + (uint64_t)v * k];
#pragma unroll 8
        for (uint32_t v = 0; v < vectors; v++) {
            float *to = &dx[at + (uint64_t)v * k], part = d * (sum - x[at + (uint64_t)v * k]);
            *to = ADD ? *to + part : part;
        }
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
    case MST_CUDA_ADD: add_kernel<<<FLAT(n * size)>>>(n * size, graph_parts_of(net, s), y); break;
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

/* The same arrays of gradients. */
static graph_parts graph_targets_of(mst_cuda_net *net, const mst_cuda_layer &s)
{
    graph_parts parts = {};
    for (uint32_t j = 0; j < s.n_inputs; j++) {
        uint32_t size = graph_part(net, s, j);
        if (size == 0)
            continue;
        parts.at[parts.n + 1] = parts.at[parts.n] + size;
        parts.pitch[parts.n] = graph_part_pitch(net, s, j);
        parts.of[parts.n] = graph_target(net, s.inputs[j], &parts.add[parts.n]);
        parts.n++;
    }
    return parts;
}

/* Gives the gradient of the joined inputs to each of them; one after the other to an input that is there twice. */
static mst_status graph_divide(mst_cuda_net *net, const net_layer *l, uint32_t n, float *dx)
{
    graph_parts parts = graph_targets_of(net, l->spec), now = parts;
    for (uint32_t j = 0, k; j < parts.n; j++) {
        for (k = 0; k < j && (now.of[k] == NULL || now.of[k] != parts.of[j]); k++)
            ;
        if (k == j)
            continue;
        for (k = j; k < parts.n; k++)
            now.of[k] = NULL;
        NET_TRY(graph_move(net, false, n, now, l->pitch, dx));
        now = parts;
        for (k = 0; k < j; k++)
            now.of[k] = NULL;
    }
    return graph_move(net, false, n, now, l->pitch, dx);
}

/* Gives d, the gradient of an output of `size` numbers per row, to `to`. */
static mst_status graph_give(mst_cuda_net *net, uint32_t n, uint64_t size, const float *d, float *to, bool add)
{
    graph_parts one = {.n = 1, .at = {0, (uint32_t)size}, .pitch = {(uint32_t)size}, .of = {to}, .add = {add}};
    return graph_move(net, false, n, one, (uint32_t)size, (float *)d);
}

static mst_status graph_add_back(mst_cuda_net *net, const net_layer *l, uint32_t n)
{
    uint64_t size = n * net_size(&l->spec.out);
    add_back_kernel<<<FLAT(size)>>>(size, graph_targets_of(net, l->spec), l->dy);
    CUDA_LAUNCHED("a gradient of add");
    return MST_OK;
}

/* The array of a layer with one input for its gradient, which nothing is in yet; NULL: there is none. */
static float *graph_own_target(mst_cuda_net *net, const mst_cuda_layer &s)
{
    bool add = false;
    if (s.n_inputs != 1 || s.inputs[0] == MST_CUDA_THE_ROWS)
        return NULL;
    const net_layer *below = &net->layers[s.inputs[0]];
    below = below->merged ? &net->layers[below->spec.inputs[0]] : below;
    return below->given ? NULL : graph_target(net, s.inputs[0], &add);
}

/* y = x0 * u + x, u = W x + b: du = dy * x0; dx = dy + W^T du; dx0 = dy * u. */
static mst_status graph_cross_back(mst_cuda_net *net, size_t i, uint32_t n)
{
    net_layer *l = &net->layers[i];
    const mst_cuda_layer &s = l->spec;
    const net_plans &plans = net->plans[n];
    uint64_t size = net_size(&s.out);
    float *du = l->du;
    bool add;
    product_kernel<false><<<FLAT(n * size)>>>(n * size, l->dy, (const float *)l->x0, NULL, du);
    CUDA_LAUNCHED("a cross layer");
    NET_TRY(net_act_back(net, &s.out, n, -1, l->y, du, s.n_params > 1 ? net_gradient(net, l, 1) : NULL));
    NET_TRY(net_gemm_aside(net, plans.gemms[3 * i + NET_FILTER].get(), l->x, du, net_gradient(net, l, 0)));
    float *to = graph_target(net, s.inputs[s.n_inputs - 1], &add);
    if (to != NULL) {
        float *dx = add ? (float *)net->diffs[1] : to;
        NET_TRY(net_gemm_run(net, plans.gemms[3 * i + NET_DATA].get(), net_weights(net, l, 0), du, dx));
        if (add)
            NET_TRY(graph_give(net, n, size, dx, to, true));
        NET_TRY(graph_give(net, n, size, l->dy, to, true));
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
    float *dx = (float *)net->diffs[1], *own;
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
    case MST_CUDA_VECTORS_FM: {
        bool add = false;
        float *target = s.n_inputs == 1 ? graph_target(net, s.inputs[0], &add) : dx;
#define CALL(ADD)                                                                                            \
    fm_back_kernel<ADD><<<FLAT((uint64_t)n * s.length)>>>(n, s.vectors, s.length, (uint32_t)net_size(&s.out), x, l->dy, \
                                                          target)
        if (add)
            CALL(true);
        else
            CALL(false);
#undef CALL
        CUDA_LAUNCHED("a gradient of fm");
        return s.n_inputs == 1 ? MST_OK : graph_divide(net, l, n, dx);
    }
    case MST_CUDA_VECTORS_DOT:
        own = graph_own_target(net, s);
        dot_back_kernel<<<net_grid(n, (uint64_t)s.vectors * s.length), THREADS, 0, net->stream>>>(
            n, s.vectors, s.length, x, l->dy, own != NULL ? own : dx);
        CUDA_LAUNCHED("a gradient of dot");
        return own != NULL ? MST_OK : graph_divide(net, l, n, dx);
    default:
        own = graph_own_target(net, s);
        to = own != NULL ? own : to;
        NET_TRY(net_layer_back(net, i, n, !below, slot, &d, &to));
        if (own != NULL)
            return d == own ? MST_OK : graph_give(net, n, net_size(&s.in), (const float *)d, own, false);
        return below ? graph_divide(net, l, n, (float *)d) : MST_OK;
    }
}

bool net_graph_sums_scores(const mst_cuda_net *net)
{
    const mst_cuda_layer &last = net->layers.back().spec;
    return net->spec.graph && last.kind == MST_CUDA_ADD && net_size(&last.out) == 1 && net->spec.n_scores == 1;
}

/* Scores as sums of parts, the loss, and its gradient for each part. A thread per row. */
static __global__ void sum_loss_kernel(uint32_t n, uint32_t max_rows, float pos_weight, const net_numbers *numbers,
                                       const float *labels, graph_parts parts, graph_parts targets, double *losses)
{
    for (uint32_t r = blockIdx.x * THREADS + threadIdx.x; r < n; r += gridDim.x * THREADS) {
        float sum = parts.of[0][r];
        for (uint32_t j = 1; j < parts.n; j++)
            sum += parts.of[j][r];
        float d = net_logistic(r, max_rows, pos_weight, numbers, labels, labels + max_rows, sum, losses);
        for (uint32_t j = 0; j < targets.n; j++)
            if (targets.of[j] != NULL)
                targets.of[j][r] = targets.add[j] ? targets.of[j][r] + d : d;
    }
}

static mst_status graph_loss(mst_cuda_net *net, uint32_t n, const char *slot, const void *scores)
{
    uint32_t last = (uint32_t)net->layers.size() - 1;
    const mst_cuda_layer &s = net->layers[last].spec;
    bool add;
    if (!net_graph_sums_scores(net))
        return net_loss(net, n, slot, scores, graph_target(net, last, &add));
    sum_loss_kernel<<<FLAT(n)>>>(n, net->spec.max_rows, net->spec.pos_weight, (const net_numbers *)slot,
                                 (const float *)(slot + net_labels_at()), graph_parts_of(net, s),
                                 graph_targets_of(net, s), net->losses);
    CUDA_LAUNCHED("the loss");
    return MST_OK;
}

mst_status net_graph_back(mst_cuda_net *net, uint32_t n, const char *slot, const void *scores)
{
    for (net_layer &l : net->layers)
        l.given = false;
    NET_TRY(graph_loss(net, n, slot, scores));
    for (size_t i = net->layers.size() - net_graph_sums_scores(net); i-- > 0;) {
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
