/* The baseline of `make bench`: sparse logistic regression as a plain C loop.
 *
 *     bench_plain TRAIN.cache [TEST.cache] [--runs N] [--lr RATE] [--features D]
 *
 * One thread, batch 1, updates in place, one pass in file order, rows in memory. This is the program that a
 * careful engineer writes in ten minutes: no prefetch, no huge pages, no intrinsics, no threads. It has the
 * simple optimisations: 13 numbers + 26 categories per row (no stored ones, no index for features of every
 * row), one record of 40 words per row, the 13 weights and the bias in local variables, and several
 * accumulators per sum, because the compiler may not reorder float additions. The weights are written before
 * the clock starts, so no page fault is counted.
 *
 * Prints `plain_loop_rows_per_s VALUE rows/s`, the median over N runs that each start from zero weights, and
 * with a test file `plain_loop_test_loss VALUE nats`. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "plain_main.h"
#include "plain_rows.h"

typedef struct model {
    float *weights; /* D; [0, N_NUMBERS) belong to the numbers */
    uint64_t n_features;
    float bias;
} model;

static void train(model *m, const rows *data, float lr)
{
    float *w = m->weights, dense[N_NUMBERS], bias = m->bias;
    memcpy(dense, w, sizeof dense);
    const word *r = data->records;
    for (uint64_t i = 0; i < data->n; i++, r += RECORD) {
        const word *x = r + 1, *k = r + 1 + N_NUMBERS;
        float s0 = 0, s1 = 0, d0 = 0, d1 = 0, d2 = 0, d3 = bias;
        for (int j = 0; j < N_CATEGORIES; j += 2) {
            s0 += w[k[j].key];
            s1 += w[k[j + 1].key];
        }
        for (int j = 0; j + 4 <= N_NUMBERS; j += 4) {
            d0 += dense[j] * x[j].number;
            d1 += dense[j + 1] * x[j + 1].number;
            d2 += dense[j + 2] * x[j + 2].number;
            d3 += dense[j + 3] * x[j + 3].number;
        }
        d0 += dense[N_NUMBERS - 1] * x[N_NUMBERS - 1].number;
        float z = (s0 + s1) + ((d0 + d1) + (d2 + d3));
        float g = lr * (r->number - 1.0f / (1.0f + expf(-z)));
        bias += g;
        for (int j = 0; j < N_NUMBERS; j++)
            dense[j] += g * x[j].number;
        for (int j = 0; j < N_CATEGORIES; j++)
            w[k[j].key] += g;
    }
    memcpy(w, dense, sizeof dense);
    m->bias = bias;
}

static double mean_loss(const model *m, const rows *data)
{
    double sum = 0;
    const word *r = data->records;
    for (uint64_t i = 0; i < data->n; i++, r += RECORD) {
        double z = m->bias;
        for (int j = 0; j < N_NUMBERS; j++)
            z += (double)m->weights[j] * r[1 + j].number;
        for (int j = 0; j < N_CATEGORIES; j++)
            z += m->weights[r[1 + N_NUMBERS + j].key];
        double margin = r->number > 0 ? z : -z;
        sum += margin > 0 ? log1p(exp(-margin)) : -margin + log1p(exp(margin));
    }
    return sum / (double)data->n;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static mst_status bench(const arguments *args)
{
    mst_status st;
    rows train_rows = {0}, test_rows = {0};
    model m = {.n_features = (uint64_t)args->n_features};
    double rates[MAX_RUNS];
    size_t n_runs = (size_t)args->n_runs;
    m.weights = mst_calloc(m.n_features, sizeof *m.weights);
    if (m.weights == NULL) {
        st = mst_fail(MST_ENOMEM, "no memory for %llu weights", (unsigned long long)m.n_features);
        goto out;
    }
    TRY_OUT(st, load(args->words[0], m.n_features, &train_rows));
    if (args->words[1] != NULL)
        TRY_OUT(st, load(args->words[1], m.n_features, &test_rows));
    for (size_t run = 0; run < n_runs; run++) {
        memset(m.weights, 0, m.n_features * sizeof *m.weights);
        m.bias = 0;
        uint64_t start = mst_now_ns();
        train(&m, &train_rows, (float)args->lr);
        rates[run] = (double)train_rows.n / mst_seconds_since(start);
    }
    qsort(rates, n_runs, sizeof *rates, by_value);
    printf("plain_loop_rows_per_s %.0f rows/s\n", 0.5 * (rates[(n_runs - 1) / 2] + rates[n_runs / 2]));
    if (test_rows.n > 0)
        printf("plain_loop_test_loss %.5f nats\n", mean_loss(&m, &test_rows));
out:
    mst_free(test_rows.records);
    mst_free(train_rows.records);
    mst_free(m.weights);
    return st;
}

int main(int argc, char **argv)
{
    return plain_main(
        argc, argv, "bench_plain TRAIN.cache [TEST.cache] [--runs N] [--lr RATE] [--features D]", 1, 2,
        (arguments){.n_runs = 5, .n_features = 33762578, .lr = 0.05, .n_threads = -1, .seconds = -1}, bench);
}
