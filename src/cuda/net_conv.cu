/* Convolutions by cuDNN, or by the kernels of net_direct.cu where cuDNN is missing or has no engine; contract
 * in net.cuh.
 *
 * A plan is an engine of cuDNN with its knobs, for one layer, way and number of rows. Engines that are not
 * deterministic are left out, and with --precision fp32 those that round inputs for tensor cores. With bf16
 * the gradient of the filter is float where an engine gives that, else bf16 and widened afterwards. */
#include "cuda/net.cuh"
#include "cuda/net_direct.cuh"

#define CANDIDATES 12

typedef cudnnBackendDescriptor_t cudnn_desc;

/* Descriptors that are destroyed together, the last first. */
struct desc_set {
    const mst_cudnn *lib;
    std::vector<cudnn_desc> all;

    explicit desc_set(const mst_cudnn *l) : lib(l) {}
    desc_set(const desc_set &) = delete;
    ~desc_set()
    {
        while (!all.empty()) {
            lib->drop(all.back());
            all.pop_back();
        }
    }
    /* NULL: it cannot be made. */
    cudnn_desc make(cudnnBackendDescriptorType_t type)
    {
        cudnn_desc d = NULL;
        if (lib->make(type, &d) != CUDNN_STATUS_SUCCESS)
            return NULL;
        all.push_back(d);
        return d;
    }
};

struct net_conv {
    desc_set parts;
    cudnn_desc plan; /* NULL: own kernels */
    net_way way;
    bool widen; /* filter: the gradient comes as bf16 */
    bool turned; /* data: the plan is a convolution forward, with the weights of conv_turned */

    net_conv(const mst_cudnn *lib, net_way w) : parts(lib), plan(NULL), way(w), widen(false), turned(false) {}
};

enum { UID_A = 'a', UID_B = 'b', UID_OUT = 'o' };

static bool conv_set(const mst_cudnn *lib, cudnn_desc d, cudnnBackendAttributeName_t name,
                     cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
    return lib->set(d, name, type, n, values) == CUDNN_STATUS_SUCCESS;
}

/* A tensor of (n, c, h, w) in the layout of the net. */
static cudnn_desc conv_tensor(desc_set *set, bool last, cudnnDataType_t type, int64_t uid, int64_t n, int64_t c,
                              int64_t h, int64_t w)
{
    const mst_cudnn *lib = set->lib;
    int64_t dims[4] = {n, c, h, w}, align = 16;
    int64_t plain[4] = {c * h * w, h * w, w, 1}, channels_last[4] = {c * h * w, 1, w * c, c};
    cudnn_desc d = set->make(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    bool ok = d != NULL && conv_set(lib, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type) &&
              conv_set(lib, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims) &&
              conv_set(lib, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, last ? channels_last : plain) &&
              conv_set(lib, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid) &&
              conv_set(lib, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align) &&
              lib->finalize(d) == CUDNN_STATUS_SUCCESS;
    return ok ? d : NULL;
}

static cudnn_desc conv_window(desc_set *set, const mst_cuda_layer *l)
{
    const mst_cudnn *lib = set->lib;
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t pads[2] = {l->pad, l->pad}, strides[2] = {l->stride, l->stride}, ones[2] = {1, 1}, two = 2;
    cudnn_desc d = set->make(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    bool ok =
        d != NULL && conv_set(lib, d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute) &&
        conv_set(lib, d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode) &&
        conv_set(lib, d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &two) &&
        conv_set(lib, d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads) &&
        conv_set(lib, d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads) &&
        conv_set(lib, d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides) &&
        conv_set(lib, d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones) &&
        lib->finalize(d) == CUDNN_STATUS_SUCCESS;
    return ok ? d : NULL;
}

/* The names of an operation's attributes. */
static const struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t alpha, beta, window, x, w, y;
} conv_names[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY},
};

/* The graph of one operation; NULL: cuDNN does not take it. */
static cudnn_desc conv_graph(mst_cuda_net *net, const net_layer *layer, net_way way, uint32_t n, bool widen,
                             desc_set *set)
{
    const mst_cudnn *lib = set->lib;
    mst_cuda_layer folded = layer->folded ? net_fold(layer->spec) : layer->spec, *l = &folded;
    cudnnDataType_t type = net->half ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
    cudnnDataType_t filter_type = way == NET_FILTER && !widen ? CUDNN_DATA_FLOAT : type;
    int64_t x_id = way == NET_FORWARD ? UID_A : way == NET_DATA ? UID_OUT : UID_B;
    int64_t w_id = way == NET_FILTER ? UID_OUT : UID_B, y_id = way == NET_FORWARD ? UID_OUT : UID_A;
    cudnn_desc x = conv_tensor(set, net->last, type, x_id, n, l->in.c, l->in.h, l->in.w);
    cudnn_desc w =
        conv_tensor(set, net->last, filter_type, w_id, l->out.c, l->in.c / l->groups, l->kh, l->kw);
    cudnn_desc y = conv_tensor(set, net->last, type, y_id, n, l->out.c, l->out.h, l->out.w);
    cudnn_desc window = conv_window(set, l);
    cudnn_desc op = set->make(conv_names[way].type);
    float one = 1.0f, zero = 0.0f;
    bool ok =
        x != NULL && w != NULL && y != NULL && window != NULL && op != NULL &&
        conv_set(lib, op, conv_names[way].x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x) &&
        conv_set(lib, op, conv_names[way].w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w) &&
        conv_set(lib, op, conv_names[way].y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y) &&
        conv_set(lib, op, conv_names[way].window, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &window) &&
        conv_set(lib, op, conv_names[way].alpha, CUDNN_TYPE_FLOAT, 1, &one) &&
        conv_set(lib, op, conv_names[way].beta, CUDNN_TYPE_FLOAT, 1, &zero) &&
        lib->finalize(op) == CUDNN_STATUS_SUCCESS;
    cudnn_desc graph = ok ? set->make(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR) : NULL;
    ok = graph != NULL &&
         conv_set(lib, graph, (cudnnBackendAttributeName_t)800 /* CUDNN_ATTR_OPERATIONGRAPH_HANDLE */,
                  CUDNN_TYPE_HANDLE, 1, &net->dnn) &&
         conv_set(lib, graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &op) &&
         lib->finalize(graph) == CUDNN_STATUS_SUCCESS;
    return ok ? graph : NULL;
}

/* Engines that the heuristics propose, the best first; their number. */
static int conv_engines(desc_set *set, cudnn_desc graph, cudnnBackendHeurMode_t mode, cudnn_desc *out, int most)
{
    const mst_cudnn *lib = set->lib;
    cudnn_desc heuristics = set->make(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    int64_t n = 0;
    if (heuristics == NULL ||
        !conv_set(lib, heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                  &graph) ||
        !conv_set(lib, heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) ||
        lib->finalize(heuristics) != CUDNN_STATUS_SUCCESS)
        return 0;
    for (int i = 0; i < most; i++)
        if ((out[i] = set->make(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) == NULL)
            return 0;
    if (lib->get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, &n, out) !=
        CUDNN_STATUS_SUCCESS)
        return 0;
    return n < most ? (int)n : most;
}

/* Whether the engine may be used: deterministic, and not less exact than the precision asks. */
static bool conv_allowed(const mst_cuda_net *net, const mst_cudnn *lib, cudnn_desc config)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    desc_set set(lib);
    cudnn_desc engine = set.make(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t n = 0;
    if (engine == NULL || lib->get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                   &engine) != CUDNN_STATUS_SUCCESS)
        return false;
    if (lib->get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n, notes) != CUDNN_STATUS_SUCCESS)
        n = 0;
    for (int64_t i = 0; i < n; i++) {
        bool rough = notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE ||
                     notes[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC ||
            notes[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION ||
            (rough && net->spec.precision == MST_CUDA_FP32))
            return false;
    }
    return true;
}

/* A plan for the engine; NULL: it cannot be made, or needs more scratch than there is. */
static cudnn_desc conv_make_plan(mst_cuda_net *net, desc_set *set, cudnn_desc config)
{
    const mst_cudnn *lib = set->lib;
    cudnn_desc plan = set->make(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    int64_t bytes = 0, n = 0;
    bool ok = plan != NULL &&
              conv_set(lib, plan, (cudnnBackendAttributeName_t)400 /* CUDNN_ATTR_EXECUTION_PLAN_HANDLE */,
                       CUDNN_TYPE_HANDLE, 1, &net->dnn) &&
              conv_set(lib, plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                       &config) &&
              lib->finalize(plan) == CUDNN_STATUS_SUCCESS &&
              lib->get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &n, &bytes) ==
                  CUDNN_STATUS_SUCCESS &&
              (size_t)bytes <= net->scratch_bytes;
    return ok ? plan : NULL;
}

static bool conv_execute(mst_cuda_net *net, cudnn_desc plan, const void *a, const void *b, void *out)
{
    const mst_cudnn *lib = net->cudnn;
    desc_set set(lib);
    cudnn_desc pack = set.make(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    const void *pointers[3] = {a, b, out};
    int64_t ids[3] = {UID_A, UID_B, UID_OUT};
    return pack != NULL &&
           conv_set(lib, pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, pointers) &&
           conv_set(lib, pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, ids) &&
           conv_set(lib, pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &net->scratch) &&
           lib->finalize(pack) == CUDNN_STATUS_SUCCESS &&
           lib->execute(net->dnn, plan, pack) == CUDNN_STATUS_SUCCESS;
}

/* Milliseconds of three runs after one trial; negative: it fails. */
static float conv_time(mst_cuda_net *net, const net_layer *layer, net_way way, cudnn_desc plan)
{
    void *a = net->diffs[0], *b = net->diffs[1], *out = layer->y;
    cudaEvent_t from, to;
    float ms = -1.0f;
    if (way == NET_FORWARD)
        b = layer->folded ? layer->kernels : (void *)net_weights(net, layer, 0);
    else if (way == NET_DATA)
        b = (void *)net_weights(net, layer, 0), out = net->diffs[1];
    else
        out = net->room;
    if (cudaEventCreate(&from) != cudaSuccess || cudaEventCreate(&to) != cudaSuccess)
        return -1.0f;
    bool ok = conv_execute(net, plan, a, b, out);
    cudaEventRecord(from, net->stream);
    for (int i = 0; ok && i < 3; i++)
        ok = conv_execute(net, plan, a, b, out);
    cudaEventRecord(to, net->stream);
    ok = cudaEventSynchronize(to) == cudaSuccess && cudaGetLastError() == cudaSuccess && ok;
    if (ok && cudaEventElapsedTime(&ms, from, to) != cudaSuccess)
        ms = -1.0f;
    cudaEventDestroy(from);
    cudaEventDestroy(to);
    return ok ? ms : -1.0f;
}

/* Sets conv->plan to the fastest plan, or the first one without search; it stays NULL if there is none. The
 * milliseconds of the plan. */
static float conv_choose(mst_cuda_net *net, const net_layer *layer, net_way way, uint32_t n, bool search,
                        bool widen, net_conv *conv)
{
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    desc_set *set = &conv->parts;
    cudnn_desc graph = conv_graph(net, layer, way, n, widen, set);
    float best = 1e30f;
    for (int m = 0; graph != NULL && m < 2 && conv->plan == NULL; m++) {
        cudnn_desc configs[4 * CANDIDATES];
        int found = conv_engines(set, graph, modes[m], configs, 4 * CANDIDATES), tried = 0;
        for (int i = 0; i < found && tried < CANDIDATES; i++) {
            if (!conv_allowed(net, set->lib, configs[i]))
                continue;
            cudnn_desc plan = conv_make_plan(net, set, configs[i]);
            if (plan == NULL)
                continue;
            tried++;
            float ms = search ? conv_time(net, layer, way, plan) : 0.0f;
            if (ms >= 0.0f && ms < best) {
                best = ms;
                conv->plan = plan;
            }
            if (!search && conv->plan != NULL)
                break;
        }
    }
    conv->widen = widen && conv->plan != NULL;
    return best;
}

/* The gradient of the input as a convolution of the gradient of the output, for which cuDNN has more algorithms
 * in fp32. Weights are (in, out, kh, kw) then, each plane turned by half a circle. */
static bool conv_turned(const mst_cuda_net *net, const net_layer *layer, net_layer *out)
{
    const mst_cuda_layer &l = layer->spec;
    if (net->last || layer->folded || l.stride != 1 || l.groups != 1 || l.kh != l.kw || l.pad >= l.kh)
        return false;
    *out = *layer;
    out->spec.in = l.out;
    out->spec.out = l.in;
    out->spec.pad = l.kh - 1 - l.pad;
    out->y = net->diffs[1];
    return true;
}

static __global__ void turn_half_kernel(uint32_t n_out, uint32_t n_in, uint32_t k, const float *from, float *to)
{
    uint32_t n = n_out * n_in * k;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        uint32_t at = i % k, out = i / k % n_out, in = i / k / n_out;
        to[i] = from[(out * n_in + in) * k + (k - 1 - at)];
    }
}

mst_status net_conv_plan(mst_cuda_net *net, const net_layer *layer, net_way way, uint32_t n, bool search,
                         std::shared_ptr<net_conv> *out)
{
    std::shared_ptr<net_conv> conv(new net_conv(net->cudnn, way));
    if (net->cudnn != NULL && way == NET_FILTER && net->half) {
        std::shared_ptr<net_conv> narrow(new net_conv(net->cudnn, way));
        float ms = conv_choose(net, layer, way, n, search, false, conv.get());
        if (conv->plan == NULL || search) {
            float other = conv_choose(net, layer, way, n, search, true, narrow.get());
            if (conv->plan == NULL || (narrow->plan != NULL && other < ms))
                conv = narrow;
        }
    } else if (net->cudnn != NULL) {
        net_layer turned;
        float ms = conv_choose(net, layer, way, n, search, false, conv.get());
        if (way == NET_DATA && search && conv_turned(net, layer, &turned)) {
            std::shared_ptr<net_conv> other(new net_conv(net->cudnn, way));
            float other_ms = conv_choose(net, &turned, NET_FORWARD, n, search, false, other.get());
            if (other->plan != NULL && (conv->plan == NULL || other_ms < ms))
                conv = other;
            conv->turned = conv == other;
        }
    }
    *out = conv;
    return MST_OK;
}

mst_status net_conv_run(mst_cuda_net *net, const net_layer *layer, uint32_t n, const net_conv *conv,
                        const void *a, const void *b, void *out)
{
    if (conv->plan == NULL)
        return net_direct_run(net, layer->folded ? net_fold(layer->spec) : layer->spec, conv->way, n, a, b, out);
    if (conv->turned) { /* fp32: weights and room are floats */
        const mst_cuda_layer &l = layer->spec;
        uint64_t size = (uint64_t)l.out.c * l.in.c * l.kh * l.kw;
        turn_half_kernel<<<mst_cuda_blocks(size, 256, 4096), 256, 0, net->stream>>>(l.out.c, l.in.c, l.kh * l.kw,
                                                                                    (const float *)b, net->room);
        CUDA_LAUNCHED("a change of layout");
        b = net->room;
    }
    void *to = conv->widen ? (void *)net->room : out;
    if (!conv_execute(net, conv->plan, a, b, to))
        return mst_cuda_plugin_host->fail(MST_EUNSUPPORTED, "cuDNN failed in a convolution of %ux%ux%u images",
                                          layer->spec.in.c, layer->spec.in.h, layer->spec.in.w);
    if (conv->widen) {
        mst_cuda_layer l = layer->folded ? net_fold(layer->spec) : layer->spec;
        uint64_t size = (uint64_t)l.out.c * (l.in.c / l.groups) * l.kh * l.kw;
        return net_widen(net, size, (const bf16 *)to, (float *)out);
    }
    return MST_OK;
}
