/* The baselines of the group sparse: logistic regression as a plain C loop, one per optimizer.
 *
 *     bench_sparse OPTIMIZER TRAIN.cache [TEST.cache] [--threads N] [--seconds S] [--lr RATE] [--features D]
 *
 * Batch 1, updates in place, passes in file order over rows in memory until S seconds are over. The weight of
 * a key and its optimizer state are side by side in one 16-byte or 8-byte row, so a key costs one cache miss,
 * and the keys of a row are prefetched two rows ahead. The numbers' weights and the bias are in local
 * variables. With several threads each takes a share of the rows and updates the shared weights without
 * locks.
 *
 * Prints `plain_OPTIMIZER_rows_per_s VALUE rows/s` and, with a test file, `plain_OPTIMIZER_test_loss VALUE
 * nats` after the first pass. Weights are written before the clock starts, so no page fault is counted. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/racy.h"
#include "plain_main.h"
#include "plain_rows.h"

#define INLINE static inline __attribute__((always_inline)) MST_RACY

enum { AHEAD = 2 };

typedef struct numbers {
    float lr, rate, unbias; /* adam: lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
    uint64_t t;
} numbers;

/* p is the weight, p[step] and p[2 * step] its state. */
typedef void rule(const numbers *c, float *p, int step, float g);

INLINE void sgd(const numbers *c, float *p, int step, float g)
{
    (void)step;
    p[0] -= c->lr * g;
}

INLINE void momentum(const numbers *c, float *p, int step, float g)
{
    float m = 0.9f * p[step] + g;
    p[step] = m;
    p[0] -= c->lr * m;
}

INLINE void adagrad(const numbers *c, float *p, int step, float g)
{
    float s = p[step] + g * g;
    p[step] = s;
    p[0] -= c->lr * g / (sqrtf(s) + 1e-8f);
}

INLINE void adam(const numbers *c, float *p, int step, float g)
{
    float m = 0.9f * p[step] + 0.1f * g, v = 0.999f * p[2 * step] + 0.001f * (g * g);
    p[step] = m;
    p[2 * step] = v;
    p[0] -= c->rate * m / (sqrtf(v) * c->unbias + 1e-8f);
}

INLINE void ftrl(const numbers *c, float *p, int step, float g)
{
    float n = p[2 * step], next = n + g * g;
    float z = p[step] + g - (sqrtf(next) - sqrtf(n)) / c->lr * p[0];
    p[step] = z;
    p[2 * step] = next;
    p[0] = -z / ((1.0f + sqrtf(next)) / c->lr);
}

typedef struct model {
    float *table; /* n_features rows of `stride` floats */
    float dense[3][N_NUMBERS + 1];
    uint64_t n_features;
    int stride;
} model;

typedef struct share {
    const rows *data;
    uint64_t from, to, done, deadline_ns, start_at;
    model *m;
    float lr;
    void (*pass)(model *m, const rows *data, uint64_t from, uint64_t to, float lr, uint64_t *t);
} share;

INLINE void pass_rows(rule *one, bool corrected, int stride, model *m, const rows *data, uint64_t from,
                      uint64_t to, float lr, uint64_t *t)
{
    enum { D = N_NUMBERS + 1 };
    float *table = m->table, dense[3 * D]; /* weights, then state */
    numbers c = {.lr = lr, .t = *t};
    memcpy(dense, m->dense, sizeof dense);
    for (uint64_t i = from; i < to; i++) {
        const word *r = data->records + i * RECORD, *x = r + 1, *k = r + 1 + N_NUMBERS;
        if (i + AHEAD < data->n)
            for (int j = 0; j < N_CATEGORIES; j++)
                __builtin_prefetch(&table[(uint64_t)k[AHEAD * RECORD + j].key * (unsigned)stride], 1);
        float s0 = 0, s1 = 0, z = dense[N_NUMBERS];
        for (int j = 0; j < N_CATEGORIES; j += 2) {
            s0 += table[(uint64_t)k[j].key * (unsigned)stride];
            s1 += table[(uint64_t)k[j + 1].key * (unsigned)stride];
        }
        for (int j = 0; j < N_NUMBERS; j++)
            z += dense[j] * x[j].number;
        float g = 1.0f / (1.0f + expf(-(z + (s0 + s1)))) - r->number;
        c.t++;
        if (corrected) { /* the corrections are one after some thousand steps */
            c.rate = c.t < 20000 ? lr / (1.0f - powf(0.9f, (float)c.t)) : lr;
            c.unbias = c.t < 20000 ? 1.0f / sqrtf(1.0f - powf(0.999f, (float)c.t)) : 1.0f;
        }
        for (int j = 0; j < N_NUMBERS; j++)
            one(&c, &dense[j], D, g * x[j].number);
        one(&c, &dense[N_NUMBERS], D, g);
        for (int j = 0; j < N_CATEGORIES; j++)
            one(&c, &table[(uint64_t)k[j].key * (unsigned)stride], 1, g);
    }
    memcpy(m->dense, dense, sizeof dense);
    *t = c.t;
}

#define PASS(name, corrected, stride)                                                                        \
    MST_RACY static void pass_##name(model *m, const rows *data, uint64_t from, uint64_t to, float lr,       \
                                     uint64_t *t)                                                            \
    {                                                                                                        \
        pass_rows(name, corrected, stride, m, data, from, to, lr, t);                                        \
    }
PASS(sgd, false, 1)
PASS(momentum, false, 2)
PASS(adagrad, false, 2)
PASS(adam, true, 4)
PASS(ftrl, false, 4)

static const struct plain_loop {
    const char *name;
    int stride;
    double lr;
    void (*pass)(model *m, const rows *data, uint64_t from, uint64_t to, float lr, uint64_t *t);
} plain_loops[] = {
    {"sgd", 1, 0.005, pass_sgd},        {"momentum", 2, 0.0005, pass_momentum},
    {"adagrad", 2, 0.02, pass_adagrad}, {"adam", 4, 0.0002, pass_adam},
    {"ftrl", 4, 0.02, pass_ftrl},
};

static double mean_loss(const model *m, const rows *data)
{
    double sum = 0;
    for (uint64_t i = 0; i < data->n; i++) {
        const word *r = data->records + i * RECORD;
        double z = m->dense[0][N_NUMBERS];
        for (int j = 0; j < N_NUMBERS; j++)
            z += (double)m->dense[0][j] * (double)r[1 + j].number;
        for (int j = 0; j < N_CATEGORIES; j++)
            z += (double)m->table[(uint64_t)r[1 + N_NUMBERS + j].key * (unsigned)m->stride];
        double margin = r->number > 0 ? z : -z;
        sum += margin > 0 ? log1p(exp(-margin)) : -margin + log1p(exp(margin));
    }
    return sum / (double)data->n;
}

/* Passes over the thread's rows in blocks until the time is over. */
MST_RACY static void *run_share(void *arg)
{
    enum { BLOCK = 4096 };
    share *s = arg;
    model mine = *s->m; /* the numbers' weights are this thread's own */
    uint64_t t = 0;
    for (uint64_t at = s->from; mst_now_ns() < s->deadline_ns;) {
        uint64_t to = at + BLOCK < s->to ? at + BLOCK : s->to;
        s->pass(&mine, s->data, at, to, s->lr, &t);
        s->done += to - at;
        at = to < s->to ? to : s->from;
    }
    return NULL;
}

static mst_status bench(const arguments *args)
{
    mst_status st = MST_OK;
    rows train_rows = {0}, test_rows = {0};
    share shares[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    const struct plain_loop *loop = NULL;
    for (size_t i = 0; i < sizeof plain_loops / sizeof *plain_loops; i++)
        if (strcmp(plain_loops[i].name, args->words[0]) == 0)
            loop = &plain_loops[i];
    if (loop == NULL)
        return mst_fail(MST_EUSAGE, "there is no plain loop with optimizer %s", args->words[0]);
    float lr = (float)(args->lr > 0 ? args->lr : loop->lr);
    model m = {.n_features = (uint64_t)args->n_features, .stride = loop->stride};
    size_t bytes = m.n_features * (size_t)loop->stride * sizeof(float);
    m.table = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (m.table == NULL)
        return mst_fail(MST_ENOMEM, "no memory for %llu weights", (unsigned long long)m.n_features);
    memset(m.table, 0, bytes);
    TRY_OUT(st, load(args->words[1], m.n_features, &train_rows));
    if (args->words[2] != NULL) {
        uint64_t t = 0;
        TRY_OUT(st, load(args->words[2], m.n_features, &test_rows));
        loop->pass(&m, &train_rows, 0, train_rows.n, lr, &t);
        printf("plain_%s_test_loss %.5f nats\n", loop->name, mean_loss(&m, &test_rows));
        memset(m.table, 0, bytes);
        memset(m.dense, 0, sizeof m.dense);
    }
    unsigned n = (unsigned)args->n_threads, started = 0;
    uint64_t start = mst_now_ns(), done = 0;
    for (; started < n; started++) {
        shares[started] = (share){.data = &train_rows,
                                  .from = train_rows.n * started / n,
                                  .to = train_rows.n * (started + 1) / n,
                                  .deadline_ns = start + (uint64_t)(args->seconds * 1e9),
                                  .m = &m,
                                  .lr = lr,
                                  .pass = loop->pass};
        if (pthread_create(&threads[started], NULL, run_share, &shares[started]) != 0)
            break;
    }
    for (unsigned i = 0; i < started; i++) {
        pthread_join(threads[i], NULL);
        done += shares[i].done;
    }
    if (started < n) {
        st = mst_fail(MST_ENOMEM, "cannot start %u threads", n);
        goto out;
    }
    printf("plain_%s_rows_per_s %.0f rows/s\n", loop->name, (double)done / mst_seconds_since(start));
out:
    mst_free(test_rows.records);
    mst_free(train_rows.records);
    free(m.table);
    return st;
}

int main(int argc, char **argv)
{
    return plain_main(
        argc, argv,
        "bench_sparse OPTIMIZER TRAIN.cache [TEST.cache] [--threads N] [--seconds S] [--lr RATE] "
        "[--features D]",
        2, 3, (arguments){.n_runs = -1, .n_features = 33762578, .n_threads = 1, .seconds = 5}, bench);
}
