/* Inner products of linear layers by cuBLASLt; contract in net.cuh.
 *
 * Matrices are row-major, cuBLAS takes them as column-major and transposed: x (n, in) is in x n, w (out, in)
 * is in x out. Gradients of weights are float in every precision. */
#include "cuda/net.cuh"

#define CANDIDATES 8

struct net_gemm {
    const mst_cublas *lib;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algo;

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

static cublasStatus_t gemm_call(mst_cuda_net *net, const net_gemm *g, const cublasLtMatmulAlgo_t *algo,
                                const void *a, const void *b, void *out)
{
    float one = 1.0f, zero = 0.0f;
    return net->cublas->matmul(net->lt, g->desc, &one, a, g->a, b, g->b, &zero, out, g->c, out, g->c, algo,
                               net->scratch, net->scratch_bytes, net->stream);
}

/* Buffers to time algorithms on, as large as the operands. */
static void gemm_operands(mst_cuda_net *net, const net_layer *layer, net_way way, const void **a,
                          const void **b, void **out)
{
    *a = way == NET_FILTER ? (layer->flat != NULL ? layer->flat : net->diffs[0]) : net_weights(net, layer, 0);
    *b = net->diffs[way == NET_FORWARD ? 0 : 1];
    *out = way == NET_FORWARD ? layer->y : way == NET_DATA ? net->diffs[0] : net_gradient(net, layer, 0);
}

/* The fastest of the candidates, each run three times after one trial. */
static mst_status gemm_fastest(mst_cuda_net *net, const net_layer *layer, net_way way, net_gemm *g,
                               const cublasLtMatmulHeuristicResult_t *found, int n_found)
{
    const void *a, *b;
    void *out;
    float best = 1e30f;
    cudaEvent_t from, to;
    gemm_operands(net, layer, way, &a, &b, &out);
    CUDA_TRY(cudaEventCreate(&from));
    CUDA_TRY(cudaEventCreate(&to));
    for (int i = 0; i < n_found; i++) {
        float ms = 0.0f;
        bool ok = gemm_call(net, g, &found[i].algo, a, b, out) == CUBLAS_STATUS_SUCCESS;
        cudaEventRecord(from, net->stream);
        for (int k = 0; ok && k < 3; k++)
            ok = gemm_call(net, g, &found[i].algo, a, b, out) == CUBLAS_STATUS_SUCCESS;
        cudaEventRecord(to, net->stream);
        CUDA_TRY(cudaEventSynchronize(to));
        CUDA_TRY(cudaEventElapsedTime(&ms, from, to));
        if (ok && ms < best) {
            best = ms;
            g->algo = found[i].algo;
        }
    }
    cudaEventDestroy(from);
    cudaEventDestroy(to);
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
    lib->preference_destroy(preference);
    if (s != CUBLAS_STATUS_SUCCESS || n_found == 0)
        return gemm_failed(layer, "no algorithm", s);
    g->algo = found[0].algo;
    if (search && n_found > 1)
        NET_TRY(gemm_fastest(net, layer, way, g.get(), found, n_found));
    *out = g;
    return MST_OK;
}

mst_status net_gemm_run(mst_cuda_net *net, const net_gemm *gemm, const void *a, const void *b, void *out)
{
    cublasStatus_t s = gemm_call(net, gemm, &gemm->algo, a, b, out);
    if (s != CUBLAS_STATUS_SUCCESS)
        return mst_cuda_plugin_host->fail(MST_EUNSUPPORTED, "cuBLASLt failed in a product (code %d)", (int)s);
    return MST_OK;
}
