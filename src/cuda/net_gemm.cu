/* Inner products of linear layers by cuBLASLt; contract in net.cuh.
 *
 * Matrices are row-major, cuBLAS takes them as column-major and transposed: x (n, in) is in x n, w (out, in)
 * is in x out. Gradients of weights are float in every precision. */
#include "cuda/net.cuh"

#define CANDIDATES 12
#define TRIALS     10 /* calls of each */

struct net_gemm {
    const mst_cublas *lib;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    bool bias; /* adds it, and computes relu */

    ~net_gemm()
    {
        if (desc != NULL)
            lib->desc_destroy(desc);
        if (a != NULL)
            lib->layout_destroy(a);
        if (b != NULL)
            lib->layout_destroy(b);
        if (c != NULL)
            lib->layout_destroy(c);
    }
};

static mst_status gemm_failed(const net_layer *layer, const char *what, int code)
{
    return mst_cuda_plugin_host->fail(MST_EUNSUPPORTED,
                                      "cuBLASLt cannot compute the product of a linear layer of %llu inputs and "
                                      "%llu outputs (%s, code %d); use --device cpu",
                                      (unsigned long long)net_size(&layer->spec.in),
                                      (unsigned long long)net_size(&layer->spec.out), what, code);
}

static cublasStatus_t gemm_call(mst_cuda_net *net, const net_gemm *g, const cublasLtMatmulAlgo_t *algo, bool aside,
                                const void *a, const void *b, void *out)
{
    float one = 1.0f, zero = 0.0f;
    return net->cublas->matmul(net->lt, g->desc, &one, a, g->a, b, g->b, &zero, out, g->c, out, g->c, algo,
                               aside ? net->scratch_aside : net->scratch, net->scratch_bytes,
                               aside ? net->aside : net->stream);
}

/* Buffers to time algorithms on, as large as the operands. */
static void gemm_operands(mst_cuda_net *net, const net_layer *layer, net_way way, const void **a,
                          const void **b, void **out)
{
    *a = way == NET_FILTER ? (layer->flat != NULL ? layer->flat : net->diffs[0]) : net_weights(net, layer, 0);
    *b = net->diffs[way == NET_FORWARD ? 0 : 1];
    *out = way == NET_FORWARD ? layer->y : way == NET_DATA ? net->diffs[0] : net_gradient(net, layer, 0);
}

/* The milliseconds of a candidate: many calls as one graph, since a single call of a small product takes longer on
 * the host than on the GPU. False: it does not run. */
static bool gemm_time(mst_cuda_net *net, const net_gemm *g, const cublasLtMatmulAlgo_t *algo, const void *a, const void *b,
                      void *out, const cudaEvent_t *events, float *ms)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    bool ok = gemm_call(net, g, algo, false, a, b, out) == CUBLAS_STATUS_SUCCESS &&
              cudaStreamBeginCapture(net->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
    if (!ok)
        return false;
    for (int i = 0; ok && i < TRIALS; i++)
        ok = gemm_call(net, g, algo, false, a, b, out) == CUBLAS_STATUS_SUCCESS;
    ok = cudaStreamEndCapture(net->stream, &graph) == cudaSuccess && ok &&
         cudaGraphInstantiate(&exec, graph, 0) == cudaSuccess;
    for (int i = 0; ok && i < 2; i++) { /* the second time counts */
        cudaEventRecord(events[0], net->stream);
        ok = cudaGraphLaunch(exec, net->stream) == cudaSuccess;
        cudaEventRecord(events[1], net->stream);
    }
    ok = ok && cudaEventSynchronize(events[1]) == cudaSuccess &&
         cudaEventElapsedTime(ms, events[0], events[1]) == cudaSuccess;
    if (exec != NULL)
        cudaGraphExecDestroy(exec);
    if (graph != NULL)
        cudaGraphDestroy(graph);
    cudaGetLastError(); /* of a candidate that does not run */
    return ok;
}

/* The fastest of the candidates. */
static mst_status gemm_fastest(mst_cuda_net *net, const net_layer *layer, net_way way, net_gemm *g,
                               const cublasLtMatmulHeuristicResult_t *found, int n_found)
{
    const void *a, *b;
    void *out;
    float best = 1e30f;
    cudaEvent_t events[2];
    gemm_operands(net, layer, way, &a, &b, &out);
    for (cudaEvent_t &event : events)
        CUDA_TRY(cudaEventCreate(&event));
    for (int i = 0; i < n_found; i++) {
        float ms = 0.0f;
        if (gemm_time(net, g, &found[i].algo, a, b, out, events, &ms) && ms < best) {
            best = ms;
            g->algo = found[i].algo;
        }
    }
    for (cudaEvent_t event : events)
        cudaEventDestroy(event);
    return best < 1e30f ? MST_OK : gemm_failed(layer, "no algorithm runs", 0);
}

mst_status net_gemm_plan(mst_cuda_net *net, const net_layer *layer, net_way way, uint32_t n, bool search,
                         std::shared_ptr<net_gemm> *out)
{
    const mst_cublas *lib = net->cublas;
    std::shared_ptr<net_gemm> g(new net_gemm());
    uint64_t in = net_size(&layer->spec.in), outs = net_size(&layer->spec.out);
    cudaDataType_t type = net->half ? CUDA_R_16BF : CUDA_R_32F;
    cublasComputeType_t compute =
        net->spec.precision == MST_CUDA_TF32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasOperation_t trans = CUBLAS_OP_T;
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    cublasLtMatmulPreference_t preference = NULL;
    int n_found = 0;
    size_t limit = net->scratch_bytes;
    cublasStatus_t s;
    g->lib = lib;
    if ((s = lib->desc_create(&g->desc, compute, CUDA_R_32F)) != CUBLAS_STATUS_SUCCESS)
        return gemm_failed(layer, "description", s);
    if (way == NET_FORWARD)
        lib->desc_set(g->desc, CUBLASLT_MATMUL_DESC_TRANSA, &trans, sizeof trans);
    if (way == NET_FILTER)
        lib->desc_set(g->desc, CUBLASLT_MATMUL_DESC_TRANSB, &trans, sizeof trans);
    g->bias = way == NET_FORWARD && net->spec.graph && layer->spec.kind == MST_CUDA_LINEAR && layer->bias >= 0;
    if (g->bias) {
        cublasLtEpilogue_t epilogue = layer->act == MST_CUDA_RELU ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_BIAS;
        const float *bias = net_floats(net, layer, 1);
        lib->desc_set(g->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
        lib->desc_set(g->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias);
    }
    /* forward: w (in x out)^T, x (in x n); data: w, dy (out x n); filter: x (in x n), dy (out x n)^T */
    if (way == NET_FILTER) {
        lib->layout_create(&g->a, type, in, n, (int64_t)in);
        lib->layout_create(&g->b, type, outs, n, (int64_t)outs);
        lib->layout_create(&g->c, CUDA_R_32F, in, outs, (int64_t)in);
    } else {
        uint64_t rows = way == NET_FORWARD ? in : outs, to = way == NET_FORWARD ? outs : in;
        lib->layout_create(&g->a, type, in, outs, (int64_t)in);
        lib->layout_create(&g->b, type, rows, n, (int64_t)rows);
        lib->layout_create(&g->c, type, to, n, (int64_t)to);
    }
    if (g->a == NULL || g->b == NULL || g->c == NULL)
        return gemm_failed(layer, "layout", 0);
    lib->preference_create(&preference);
    lib->preference_set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit);
    s = lib->heuristic(net->lt, g->desc, g->a, g->b, g->c, g->c, preference, search ? CANDIDATES : 1, found,
                       &n_found);
    if (g->bias && (s != CUBLAS_STATUS_SUCCESS || n_found == 0)) { /* not with the bias, then */
        cublasLtEpilogue_t none = CUBLASLT_EPILOGUE_DEFAULT;
        g->bias = false;
        lib->desc_set(g->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &none, sizeof none);
        s = lib->heuristic(net->lt, g->desc, g->a, g->b, g->c, g->c, preference, search ? CANDIDATES : 1, found, &n_found);
    }
    lib->preference_destroy(preference);
    if (s != CUBLAS_STATUS_SUCCESS || n_found == 0)
        return gemm_failed(layer, "no algorithm", s);
    g->algo = found[0].algo;
    if (search && n_found > 1)
        NET_TRY(gemm_fastest(net, layer, way, g.get(), found, n_found));
    *out = g;
    return MST_OK;
}

bool net_gemm_adds_bias(const net_gemm *gemm)
{
    return gemm != NULL && gemm->bias;
}

static mst_status gemm_run(mst_cuda_net *net, const net_gemm *gemm, bool aside, const void *a, const void *b, void *out)
{
    cublasStatus_t s = gemm_call(net, gemm, &gemm->algo, aside, a, b, out);
    if (s != CUBLAS_STATUS_SUCCESS)
        return mst_cuda_plugin_host->fail(MST_EUNSUPPORTED, "cuBLASLt failed in a product (code %d)", (int)s);
    return MST_OK;
}

mst_status net_gemm_run(mst_cuda_net *net, const net_gemm *gemm, const void *a, const void *b, void *out)
{
    return gemm_run(net, gemm, false, a, b, out);
}

mst_status net_gemm_aside(mst_cuda_net *net, const net_gemm *gemm, const void *a, const void *b, void *out)
{
    NET_TRY(net_fork(net));
    return gemm_run(net, gemm, true, a, b, out);
}
