/* Training of a net on a GPU, without reading data: bench_gpu NET BATCH PRECISION [SECONDS [NUMBERS]].
 *
 * NET is a known net. Every step copies its rows, which are random bytes (NUMBERS 1: floats), from pinned
 * memory to the GPU, as training does. Prints `images_per_s X images/s`, the median of five parts of the
 * time.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "model/chain_gpu.h"

#define PARTS 5

static int bench_fail(const char *what)
{
    fprintf(stderr, "bench_gpu: %s: %s\n", what, mst_error_text());
    return 1;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static mst_status bench_steps(const mst_cuda *gpu, mst_cuda_net *net, uint32_t batch, bool floats, uint64_t n,
                              uint64_t *step)
{
    static const uint64_t dropout[MST_NET_LAYERS] = {1};
    mst_cuda_loss loss;
    for (uint64_t i = 0; i < n; i++) {
        mst_cuda_rows places;
        mst_cuda_step numbers = {.n_rows = batch,
                                 .floats = floats,
                                 .scale = 1.0f / (float)batch,
                                 .dropout = dropout,
                                 .rule = {.kind = MST_RULE_SGD, .lr = 0.001f}};
        TRY(gpu->ops->net->stage(net, &places));
        if (++*step <= 3) { /* each staging buffer once */
            mst_rng rng;
            mst_rng_init(&rng, 1, MST_RNG_TEST, *step);
            for (uint32_t r = 0; r < batch; r++) {
                places.labels[r] = (float)mst_rng_below(&rng, 10);
                places.weights[r] = 1.0f;
            }
        }
        TRY(gpu->ops->net->step(net, &numbers));
    }
    return gpu->ops->net->losses(net, &loss);
}

/* The rows of every staging buffer. */
static mst_status bench_fill(const mst_cuda *gpu, mst_cuda_net *net, uint32_t batch, uint64_t size,
                             bool floats, uint64_t *step)
{
    for (int k = 0; k < 3; k++) {
        mst_cuda_rows places;
        mst_rng rng;
        mst_rng_init(&rng, 2, MST_RNG_TEST, (uint64_t)k);
        TRY(gpu->ops->net->stage(net, &places));
        for (uint64_t i = 0; i < batch * size; i++)
            if (floats)
                places.numbers[i] = (float)(mst_rng_u32(&rng) >> 8) * 0x1p-24f;
            else
                places.bytes[i] = (uint8_t)mst_rng_u32(&rng);
        TRY(bench_steps(gpu, net, batch, floats, 1, step));
    }
    return MST_OK;
}

int main(int argc, char **argv)
{
    static const char *const precisions[] = {"fp32", "tf32", "bf16"};
    const mst_known_net *known = mst_known_nets;
    double seconds = argc > 4 ? atof(argv[4]) : 2.0, rates[PARTS];
    uint32_t batch = argc > 2 ? (uint32_t)atoi(argv[2]) : 0;
    bool floats = argc > 5 && atoi(argv[5]) != 0;
    mst_cuda gpu;
    mst_chain *chain;
    mst_params params = {0};
    mst_cuda_net *net;
    uint64_t step = 0;
    int p = 0;
    while (argc > 3 && p < 3 && strcmp(argv[3], precisions[p]) != 0)
        p++;
    while (argc > 1 && known->name != NULL && strcmp(known->name, argv[1]) != 0)
        known++;
    if (argc < 4 || batch == 0 || p == 3 || known->name == NULL) {
        fprintf(stderr, "usage: bench_gpu NET BATCH fp32|tf32|bf16 [SECONDS [NUMBERS]]\n");
        return 2;
    }
    if (mst_cuda_choose("cuda", 0, &gpu) != MST_OK)
        return bench_fail("no GPU");
    gpu.precision = (mst_cuda_precision)p;
    mst_chain_gpu_options options = {
        .max_rows = batch, .pos_weight = 1.0f, .training = true, .updates = true, .rule = MST_RULE_SGD};
    if (mst_chain_parse(known->text, known->name, &known->in, known->n_classes, &chain) != MST_OK ||
        mst_chain_declare(chain, &params) != MST_OK || mst_params_reserve(&params, 0, 0) != MST_OK)
        return bench_fail("net");
    mst_chain_start(chain, &params, 1);
    uint64_t start = mst_now_ns();
    if (mst_chain_gpu_open(&gpu, chain, &options, &net) != MST_OK)
        return bench_fail("open");
    for (uint32_t v = 0; v < params.n_views; v++)
        if (gpu.ops->net->write(net, 0, v, params.w + params.views[v].offset) != MST_OK)
            return bench_fail("write");
    if (bench_fill(&gpu, net, batch, mst_dims_size(&chain->in), floats, &step) != MST_OK)
        return bench_fail("first steps");
    fprintf(stderr, "bench_gpu: opened in %.2f s\n", mst_seconds_since(start));
    start = mst_now_ns();
    if (bench_steps(&gpu, net, batch, floats, 20, &step) != MST_OK)
        return bench_fail("steps");
    uint64_t n = (uint64_t)(seconds / PARTS / (mst_seconds_since(start) / 20)) + 1;
    for (int i = 0; i < PARTS; i++) {
        start = mst_now_ns();
        if (bench_steps(&gpu, net, batch, floats, n, &step) != MST_OK)
            return bench_fail("steps");
        rates[i] = (double)(n * batch) / mst_seconds_since(start);
    }
    qsort(rates, PARTS, sizeof *rates, by_value);
    printf("images_per_s %.0f images/s\n", rates[PARTS / 2]);
    gpu.ops->net->close(net);
    mst_params_fini(&params);
    mst_chain_destroy(chain);
    return 0;
}
