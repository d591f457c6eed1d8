/* The life of a net on a GPU: layers, memory, libraries, algorithms; contract in net_open.cuh. */
#include "cuda/net_open.cuh"

#include "cuda/net_lenet.cuh"

#include <algorithm>
#include <cstring>
#include <new>

#define SCRATCH_BYTES ((size_t)512 << 20) /* of libraries, for large nets; */
#define SCRATCH_SMALL ((size_t)32 << 20)  /* for nets without convolutions or with few rows */
#define LARGE         ((uint64_t)1 << 24) /* numbers between two layers of a large net */
#define ALIGN         64                  /* floats: parameters begin at multiples */

mst_status net_alloc(mst_cuda_net *net, size_t bytes, void **out)
{
    cudaError_t code = cudaMalloc(out, bytes > 0 ? bytes : 1);
    if (code == cudaErrorMemoryAllocation) {
        size_t free_bytes = 0, all = 0;
        cudaGetLastError();
        cudaMemGetInfo(&free_bytes, &all);
        return mst_cuda_plugin_host->fail(MST_ENOMEM,
                                          "the GPU has %.1f MB of memory left, and the net needs another %.1f MB; "
                                          "use a smaller --batch",
                                          (double)free_bytes / 1e6, (double)bytes / 1e6);
    }
    if (code != cudaSuccess)
        return mst_cuda_failed(code, "cudaMalloc");
    net->memory.push_back(*out);
    return MST_OK;
}

template <typename T> static mst_status net_array(mst_cuda_net *net, uint64_t n, T **out)
{
    void *at;
    NET_TRY(net_alloc(net, n * sizeof(T), &at));
    CUDA_TRY(cudaMemset(at, 0, n * sizeof(T)));
    *out = (T *)at;
    return MST_OK;
}

/* ---- layers ---- */

static bool is_activation(mst_cuda_kind kind)
{
    return kind == MST_CUDA_RELU || kind == MST_CUDA_TANH || kind == MST_CUDA_SIGMOID;
}

/* Whether a layer's gradient does without its own output, so that the next layer may replace it. Dropout, which
 * inference leaves out, does not count. */
static bool takes_activation(mst_cuda_kind kind)
{
    return kind == MST_CUDA_CONV || kind == MST_CUDA_LINEAR || kind == MST_CUDA_MAXPOOL ||
           kind == MST_CUDA_AVGPOOL || kind == MST_CUDA_BATCHNORM;
}

/* Layers that read layer i of a graph. */
static uint32_t net_readers(const mst_cuda_net_spec *spec, uint32_t i)
{
    uint32_t n = 0;
    for (uint32_t k = i + 1; k < spec->n_layers; k++)
        for (uint32_t j = 0; j < spec->layers[k].n_inputs; j++)
            n += spec->layers[k].inputs[j] == i;
    return n;
}

/* Whether the gradient of a layer of a graph leads to parameters. */
static bool net_wants(const mst_cuda_net *net, const mst_cuda_layer &s)
{
    bool wanted = s.n_params > 0 || s.kind == MST_CUDA_EMBEDDING || s.kind == MST_CUDA_WIDE;
    for (uint32_t j = 0; j < s.n_inputs; j++)
        wanted |= s.inputs[j] != MST_CUDA_THE_ROWS && net->layers[s.inputs[j]].wanted;
    return wanted;
}

/* Whether the rows of a layer's output may be padded: products alone read them, directly or joined to others. */
static bool net_may_pad(const mst_cuda_net *net, uint32_t i)
{
    const mst_cuda_layer &s = net->layers[i].spec;
    bool joins = s.kind == MST_CUDA_CONCAT && s.n_inputs > 1;
    if ((!joins && s.kind != MST_CUDA_CROSS) || s.out.h * s.out.w != 1 || i + 1 == net->layers.size())
        return false;
    for (const net_layer &reader : net->layers)
        for (uint32_t j = 0; j < reader.spec.n_inputs; j++)
            if (reader.spec.inputs[j] == i && reader.spec.kind != MST_CUDA_LINEAR && reader.spec.kind != MST_CUDA_CROSS &&
                reader.spec.kind != MST_CUDA_CONCAT)
                return false;
    return true;
}

/* Whether the layers that a cross layer reads are padded as it is; otherwise none of them is. */
static bool net_pads_agree(const net_layer &l, uint32_t i, std::vector<bool> *pads)
{
    bool all = (*pads)[i], any = all;
    for (uint32_t j = 0; j < l.spec.n_inputs; j++) {
        bool one = l.spec.inputs[j] != MST_CUDA_THE_ROWS && (*pads)[l.spec.inputs[j]];
        all = all && one;
        any = any || one;
    }
    for (uint32_t j = 0; j < l.spec.n_inputs && !all; j++)
        if (l.spec.inputs[j] != MST_CUDA_THE_ROWS)
            (*pads)[l.spec.inputs[j]] = false;
    if (!all)
        (*pads)[i] = false;
    return all || !any;
}

static void net_pad_dims(mst_cuda_dims *d)
{
    d->c = (d->c + 3) / 4 * 4;
}

/* Rows of 429 numbers take other kernels of cuBLASLt than rows of 432, slower by a factor of two: inputs of products
 * begin at multiples of 16 bytes, with zeros behind their numbers. */
static void net_pad(mst_cuda_net *net)
{
    size_t n = net->layers.size();
    std::vector<bool> pads(n);
    for (size_t i = 0; i < n; i++) {
        net->layers[i].width = (uint32_t)net_size(&net->layers[i].spec.out);
        pads[i] = net_may_pad(net, (uint32_t)i);
    }
    for (bool agree = false; !agree;) {
        agree = true;
        for (size_t i = 0; i < n; i++)
            if (net->layers[i].spec.kind == MST_CUDA_CROSS)
                agree &= net_pads_agree(net->layers[i], (uint32_t)i, &pads);
    }
    for (size_t i = 0; i < n; i++) {
        mst_cuda_layer &s = net->layers[i].spec;
        bool own = s.n_inputs > 1 && s.kind == MST_CUDA_LINEAR && s.in.h * s.in.w == 1; /* joins them itself */
        if (pads[i])
            net_pad_dims(&s.out);
        if (own || ((s.kind == MST_CUDA_LINEAR || s.kind == MST_CUDA_CROSS) && s.inputs[0] != MST_CUDA_THE_ROWS &&
                    pads[s.inputs[0]]))
            net_pad_dims(&s.in);
    }
}

static mst_status net_add_layers(mst_cuda_net *net, const mst_cuda_net_spec *spec)
{
    for (uint32_t i = 0; i < spec->n_layers; i++) {
        const mst_cuda_layer &s = spec->layers[i];
        net_layer l = {};
        l.spec = s;
        l.act = -1;
        l.bias = (s.kind == MST_CUDA_CONV || s.kind == MST_CUDA_LINEAR) && s.n_params > 1 ? (int)i : -1;
        bool follows = !spec->graph || (s.n_inputs == 1 && s.inputs[0] + 1 == i && net_readers(spec, i - 1) == 1);
        if (i > 0 && follows && is_activation(s.kind) && takes_activation(net->layers[i - 1].spec.kind) &&
            net->layers[i - 1].act < 0) {
            net->layers[i - 1].act = (int)s.kind;
            l.merged = true;
        }
        if (i > 1 && !spec->graph && s.kind == MST_CUDA_MAXPOOL && net->layers[i - 1].merged &&
            net->layers[i - 2].spec.kind == MST_CUDA_CONV && net->layers[i - 2].act == MST_CUDA_RELU) {
            /* relu does not change which number of a window is the largest, except among zeros, whose
             * gradient is zero: the pool computes it, on fewer numbers */
            l.act = MST_CUDA_RELU;
            l.bias = net->layers[i - 2].bias;
            net->layers[i - 2].act = net->layers[i - 2].bias = -1;
        }
        l.wanted = spec->graph && net_wants(net, s);
        l.folded = i == 0 && s.kind == MST_CUDA_CONV && net->last && s.groups == 1 && s.stride > 1 &&
                   s.in.c * s.stride * s.stride <= 256;
        l.unfold = s.kind == MST_CUDA_LINEAR && net->last && s.in.h * s.in.w > 1 && s.in.c > 1;
        if (s.kind == MST_CUDA_DROPOUT)
            l.number = (uint32_t)net->n_dropouts++;
        if (s.kind == MST_CUDA_MAXPOOL && (uint64_t)s.kh * s.kw > 65535)
            return mst_cuda_plugin_host->fail(
                MST_EUNSUPPORTED, "--device cuda computes maxpool with windows of up to 65535 numbers, not %ux%u",
                s.kh, s.kw);
        net->layers.push_back(l);
    }
    if (spec->graph)
        net_pad(net);
    if (net->n_dropouts > NET_DROPOUTS)
        return mst_cuda_plugin_host->fail(MST_EUNSUPPORTED, "--device cuda computes nets of up to %d dropout layers",
                                          NET_DROPOUTS);
    return MST_OK;
}

/* Trained parameters first, then state. */
static void net_place_params(mst_cuda_net *net, const mst_cuda_net_spec *spec)
{
    net->params.assign(spec->params, spec->params + spec->n_params);
    net->at.resize(spec->n_params);
    for (const mst_cuda_param &p : net->params)
        net->shapes.push_back({1, p.size, p.size, p.size});
    for (uint32_t i = 0; spec->graph && i < spec->n_layers; i++) {
        const mst_cuda_layer &was = spec->layers[i], &now = net->layers[i].spec;
        uint64_t in = net_size(&was.in), to = net_size(&now.in), out = net_size(&was.out);
        if ((was.kind == MST_CUDA_LINEAR || was.kind == MST_CUDA_CROSS) && in != to)
            net->shapes[was.first_param] = {out, in, to, to * net_size(&now.out)};
    }
    for (int state = 0; state < 2; state++) {
        for (uint32_t i = 0; i < spec->n_params; i++)
            if (net->params[i].state == (state == 1)) {
                net->at[i] = net->n_floats;
                net->n_floats += (net->shapes[i].floats + ALIGN - 1) / ALIGN * ALIGN;
            }
        if (state == 0)
            net->n_trained = net->n_floats;
    }
}

/* ---- memory ---- */

static mst_status net_make_layer(mst_cuda_net *net, net_layer *l)
{
    const mst_cuda_layer &s = l->spec;
    size_t unit = net->half ? sizeof(bf16) : sizeof(float);
    uint64_t rows = net->spec.max_rows;
    if (net->spec.graph)
        NET_TRY(net_graph_make(net, l));
    if (l->merged || s.kind == MST_CUDA_CONCAT || s.kind == MST_CUDA_NUMBERS)
        return MST_OK;
    NET_TRY(net_alloc(net, rows * net_size(&s.out) * unit, &l->y));
    if (l->folded) {
        mst_cuda_layer f = net_fold(s);
        uint64_t size = (uint64_t)f.out.c * f.kh * f.kw * f.in.c;
        float *clear;
        NET_TRY(net_array(net, size, &clear));
        l->kernels = clear;
        if (net->spec.training)
            NET_TRY(net_array(net, size, &l->kernels_back));
    }
    if (l->unfold)
        NET_TRY(net_alloc(net, rows * net_size(&s.in) * unit, &l->flat));
    if (!net->spec.training)
        return MST_OK;
    if (s.kind == MST_CUDA_MAXPOOL)
        NET_TRY(net_array(net, rows * net_size(&s.out), &l->best));
    if (s.kind == MST_CUDA_LRN)
        NET_TRY(net_array(net, rows * net_size(&s.in), &l->stat));
    if (s.kind == MST_CUDA_BATCHNORM)
        NET_TRY(net_array(net, 2 * (uint64_t)s.in.c, &l->stat));
    return MST_OK;
}

/* Numbers of the largest array between layers, and channels of the widest. */
static void net_extremes(const mst_cuda_net *net, uint64_t *largest, uint64_t *channels)
{
    *largest = net->row_size;
    *channels = 1;
    for (const net_layer &l : net->layers) {
        mst_cuda_layer f = l.folded ? net_fold(l.spec) : l.spec;
        *largest = std::max(*largest, net_size(&f.in));
        *largest = std::max(*largest, std::max(net_size(&l.spec.in), net_size(&l.spec.out)));
        *channels = std::max<uint64_t>(*channels, std::max(l.spec.out.c, l.spec.in.c));
    }
}

static mst_status net_make_slots(mst_cuda_net *net)
{
    size_t bytes = net_rows_at(net) + net->spec.max_rows * net->row_size * sizeof(float);
    for (net_slot &slot : net->slots) {
        void *host, *device;
        CUDA_TRY(cudaHostAlloc(&host, bytes, cudaHostAllocPortable));
        memset(host, 0, net_rows_at(net));
        slot.host = (char *)host;
        NET_TRY(net_alloc(net, bytes, &device));
        slot.device = (char *)device;
        CUDA_TRY(cudaEventCreateWithFlags(&slot.copied, cudaEventDisableTiming));
        CUDA_TRY(cudaEventCreateWithFlags(&slot.used, cudaEventDisableTiming));
    }
    return MST_OK;
}

/* Numbers of a row as the first layer reads it. */
static uint64_t net_input_size(const mst_cuda_net *net)
{
    mst_cuda_dims folded = net->layers[0].folded ? net_fold(net->layers[0].spec).in : net->spec.in;
    return net_size(&folded);
}

static mst_status net_make_memory(mst_cuda_net *net)
{
    size_t unit = net->half ? sizeof(bf16) : sizeof(float);
    uint64_t rows = net->spec.max_rows, largest, channels, most = 1;
    net_extremes(net, &largest, &channels);
    for (const mst_cuda_param &p : net->params)
        most = std::max(most, p.size);
    for (const net_layer &l : net->layers)
        if (l.folded) {
            mst_cuda_layer f = net_fold(l.spec);
            most = std::max(most, (uint64_t)f.out.c * f.kh * f.kw * f.in.c);
        }
    net->scratch_bytes = rows * largest > LARGE ? SCRATCH_BYTES : SCRATCH_SMALL;
    NET_TRY(net_array(net, net->n_floats, &net->w));
    NET_TRY(net_array(net, most, &net->room));
    if (net->half)
        NET_TRY(net_array(net, net->n_floats, &net->wh));
    NET_TRY(net_alloc(net, rows * net_input_size(net) * unit, &net->input));
    for (void *&diff : net->diffs)
        NET_TRY(net_alloc(net, rows * std::max<uint64_t>(largest, net->spec.n_scores) * sizeof(float), &diff));
    NET_TRY(net_alloc(net, net->scratch_bytes, &net->scratch));
    if (net->spec.graph)
        NET_TRY(net_alloc(net, net->scratch_bytes, &net->scratch_aside));
    NET_TRY(net_array(net, 3 * rows, &net->losses));
    NET_TRY(net_array(net, NET_CHUNKS * std::max<uint64_t>(channels, 2048), &net->sums));
    NET_TRY(net_array(net, channels, &net->counters));
    NET_TRY(net_array(net, (uint64_t)1, &net->clip));
    if (net->spec.training)
        NET_TRY(net_array(net, net->n_floats, &net->g));
    for (unsigned s = 0; net->spec.updates && s < mst_rule_slots(net->spec.rule); s++)
        NET_TRY(net_array(net, net->n_floats, &net->state[s]));
    for (net_layer &l : net->layers)
        NET_TRY(net_make_layer(net, &l));
    return net_make_slots(net);
}

/* ---- libraries ---- */

static mst_status net_open_libraries(mst_cuda_net *net)
{
    bool conv = false, linear = false;
    for (const net_layer &l : net->layers) {
        conv |= l.spec.kind == MST_CUDA_CONV;
        linear |= l.spec.kind == MST_CUDA_LINEAR || l.spec.kind == MST_CUDA_CROSS;
    }
    if (linear) {
        NET_TRY(mst_cublas_load(&net->cublas));
        if (net->cublas->create(&net->lt) != CUBLAS_STATUS_SUCCESS)
            return mst_cuda_plugin_host->fail(MST_EUNSUPPORTED, "cuBLASLt cannot be started on this GPU");
    }
    if (!conv)
        return MST_OK;
    NET_TRY(mst_cudnn_load(&net->cudnn));
    cudnnStatus_t s = net->cudnn->create(&net->dnn);
    if (s == CUDNN_STATUS_SUCCESS)
        s = net->cudnn->set_stream(net->dnn, net->stream);
    if (s != CUDNN_STATUS_SUCCESS)
        return mst_cuda_plugin_host->fail(MST_EUNSUPPORTED, "cuDNN cannot be started on this GPU: %s",
                                          net->cudnn->error(s));
    return MST_OK;
}

mst_status net_plan(mst_cuda_net *net, uint32_t n)
{
    if (net->plans.count(n) > 0)
        return MST_OK;
    net_plans made;
    bool search = n == net->spec.max_rows && net->spec.updates && net->lenet == NULL, first = true;
    made.gemms.resize(3 * net->layers.size());
    made.convs.resize(3 * net->layers.size());
    for (size_t i = 0; i < net->layers.size(); i++) {
        const net_layer *l = &net->layers[i];
        for (int way = NET_FORWARD; way <= (net->spec.training ? NET_FILTER : NET_FORWARD); way++) {
            if (way == NET_DATA && first && !net->spec.graph)
                continue;
            if (l->spec.kind == MST_CUDA_CONV)
                NET_TRY(net_conv_plan(net, l, (net_way)way, n, search, &made.convs[3 * i + way]));
            if (l->spec.kind == MST_CUDA_LINEAR || l->spec.kind == MST_CUDA_CROSS)
                NET_TRY(net_gemm_plan(net, l, (net_way)way, n, search, &made.gemms[3 * i + way]));
        }
        first = first && l->spec.n_params == 0;
    }
    net->plans.emplace(n, std::move(made));
    return MST_OK;
}

/* ---- life ---- */

std::mutex &net_alone(void)
{
    static std::mutex *lock = new std::mutex; /* never destroyed: threads may use it until the end */
    return *lock;
}

static void net_free(mst_cuda_net *net)
{
    cudaSetDevice((int)net->spec.device);
    if (net->stream != NULL)
        cudaStreamSynchronize(net->stream);
    for (auto &known : net->graphs)
        cudaGraphExecDestroy(known.second);
    net->plans.clear();
    net_lenet_free(net->lenet);
    if (net->lt != NULL)
        net->cublas->destroy(net->lt);
    if (net->dnn != NULL)
        net->cudnn->destroy(net->dnn);
    for (net_slot &slot : net->slots) {
        if (slot.host != NULL)
            cudaFreeHost(slot.host);
        if (slot.images != NULL)
            cudaFreeHost(slot.images);
        if (slot.entries != NULL)
            cudaFreeHost(slot.entries);
        if (slot.copied != NULL)
            cudaEventDestroy(slot.copied);
        if (slot.used != NULL)
            cudaEventDestroy(slot.used);
    }
    net_table_free(net);
    for (void *at : net->memory)
        cudaFree(at);
    for (cudaStream_t stream : {net->copy, net->aside, net->stream})
        if (stream != NULL)
            cudaStreamDestroy(stream);
    for (cudaEvent_t event : {net->fork, net->join, net->sorted})
        if (event != NULL)
            cudaEventDestroy(event);
    delete net;
}

void net_close(mst_cuda_net *net)
{
    if (net == NULL)
        return;
    std::lock_guard<std::mutex> alone(net_alone());
    net_free(net);
}

static mst_status net_set_up(mst_cuda_net *net, const mst_cuda_net_spec *spec)
{
    net->spec = *spec;
    net->spec.layers = NULL;
    net->spec.params = NULL;
    bool lenet = spec->training && !spec->graph && net_lenet_is(spec);
    if (lenet)
        net->spec.precision = MST_CUDA_FP32; /* its kernels compute in float */
    if (spec->graph && spec->precision == MST_CUDA_BF16)
        net->spec.precision = MST_CUDA_TF32; /* numbers between the layers of a graph are floats */
    net->half = net->spec.precision == MST_CUDA_BF16;
    net->last = net->spec.precision != MST_CUDA_FP32 && !spec->graph;
    net->row_size = net_size(&spec->in);
    CUDA_TRY(cudaSetDevice((int)spec->device));
    CUDA_TRY(cudaStreamCreateWithFlags(&net->stream, cudaStreamNonBlocking));
    CUDA_TRY(cudaStreamCreateWithFlags(&net->copy, cudaStreamNonBlocking));
    CUDA_TRY(cudaStreamCreateWithFlags(&net->aside, cudaStreamNonBlocking));
    for (cudaEvent_t *event : {&net->fork, &net->join, &net->sorted})
        CUDA_TRY(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
    NET_TRY(net_add_layers(net, spec));
    net_place_params(net, spec);
    NET_TRY(net_open_libraries(net));
    NET_TRY(net_make_memory(net));
    if (spec->table.width > 0)
        NET_TRY(net_table_make(net, &spec->table));
    if (lenet)
        NET_TRY(net_lenet_make(net, &net->lenet));
    CUDA_TRY(cudaDeviceSynchronize()); /* memory is cleared on another stream */
    return net_plan(net, spec->max_rows);
}

mst_status net_open(const mst_cuda_net_spec *spec, mst_cuda_net **out)
{
    std::lock_guard<std::mutex> alone(net_alone());
    mst_cuda_net *net = new (std::nothrow) mst_cuda_net();
    if (net == NULL)
        return mst_cuda_plugin_host->fail(MST_ENOMEM, "out of memory");
    mst_status st = net_set_up(net, spec);
    if (st != MST_OK) {
        net_free(net);
        return st;
    }
    *out = net;
    return MST_OK;
}
