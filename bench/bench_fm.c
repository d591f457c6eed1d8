/* The baselines of the group `click` of `make bench`: fm and ffm with Adagrad as plain C loops.
 *
 *     bench_fm fm|ffm TRAIN.cache [--seconds S] [--features D] [--lr RATE] [--threads N]
 *
 * Batch 1, updates in place, passes in file order until S seconds (5) are over, rows in memory: 39 keys
 * without values, the i-th of field i. This is the program of a careful engineer: the parameters of a feature
 * and their sums of squares are one record, the records of the row after the next are prefetched, the numbers
 * of factors (fm 16, ffm 4) are constants, and factors are vectors of the compiler, whatever the registers of
 * this machine hold. With several threads, each has its part of the rows and all share the records without
 * locks. The records are written before the clock starts.
 *
 * Prints `plain_MODEL_rows_per_s VALUE rows/s` and `plain_MODEL_train_loss VALUE nats`, the mean loss of each
 * row before it is trained on, in the first pass. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/team.h"
#include "data/cache.h"
#include "plain_main.h"

enum {
    FIELDS = 39,
    RECORD = 1 + FIELDS, /* label and keys: one word each */
    AHEAD = 2,           /* rows */
    FM_K = 16,
    FFM_K = 4,
};
#define EPS 1e-8f

typedef float vec __attribute__((vector_size(4 * FM_K), aligned(64)));

/* 128 bytes of factors begin a cache line. The linear weights are beside them: 8 of them share a line. */
typedef struct fm_record {
    vec v, squares;
} fm_record;

typedef struct fm_linear {
    float w, square;
} fm_linear;

typedef struct ffm_record {
    float v[FIELDS][FFM_K], squares[FIELDS][FFM_K], w, w_square;
} ffm_record;

typedef struct bench {
    bool fields; /* ffm */
    uint32_t *records;
    uint64_t n_rows, n_features;
    fm_record *fm;
    fm_linear *linear; /* of fm */
    ffm_record *ffm;
    float bias, bias_square, lr;
    unsigned n_threads;
    double losses[MAX_THREADS];
} bench;

static float sigmoid(float z)
{
    return 1.0f / (1.0f + expf(-z));
}

static float log_loss(float z, bool positive)
{
    float m = positive ? z : -z;
    return m > 0 ? log1pf(expf(-m)) : -m + log1pf(expf(m));
}

static void update(float *w, float *square, float g, float lr)
{
    *square += g * g;
    *w -= lr * g / (sqrtf(*square) + EPS);
}

/* The same for n weights with gradients d. Not inlined: gcc 12 then forgets that the arrays do not overlap.
 */
__attribute__((noinline)) static void update_all(float *restrict w, float *restrict squares,
                                                 const float *restrict d, int n, float lr)
{
    for (int i = 0; i < n; i++) {
        float s = squares[i] + d[i] * d[i];
        squares[i] = s;
        w[i] -= lr * d[i] / (sqrtf(s) + EPS);
    }
}

static void prefetch(const char *at, size_t size)
{
    for (size_t i = 0; i < size; i += 64)
        __builtin_prefetch(at + i, 1);
    __builtin_prefetch(at + size - 1, 1);
}

static void train_fm(bench *b, uint64_t from, uint64_t to, double *loss)
{
    fm_record *table = b->fm;
    fm_linear *linear = b->linear;
    float lr = b->lr, w[FIELDS], squares[FIELDS], d[FIELDS];
    for (uint64_t i = from; i < to; i++) {
        const uint32_t *keys = b->records + i * RECORD + 1;
        bool positive = keys[-1] != 0;
        vec sum = {0}, square = {0};
        float z = b->bias;
        for (int j = 0; i + AHEAD < to && j < FIELDS; j++) {
            uint32_t key = keys[AHEAD * RECORD + j];
            __builtin_prefetch(&table[key].v, 1);
            __builtin_prefetch(&table[key].squares, 1);
            __builtin_prefetch(&linear[key], 1);
        }
        for (int j = 0; j < FIELDS; j++) {
            vec v = table[keys[j]].v;
            z += linear[keys[j]].w;
            sum += v;
            square += v * v;
        }
        float pairs = 0;
        vec both = sum * sum - square;
        for (int f = 0; f < FM_K; f++)
            pairs += both[f];
        z += 0.5f * pairs;
        *loss += (double)log_loss(z, positive);
        float g = sigmoid(z) - (positive ? 1.0f : 0.0f);
        update(&b->bias, &b->bias_square, g, lr);
        for (int j = 0; j < FIELDS; j++) {
            w[j] = linear[keys[j]].w;
            squares[j] = linear[keys[j]].square;
            d[j] = g;
        }
        update_all(w, squares, d, FIELDS, lr);
        for (int j = 0; j < FIELDS; j++) {
            linear[keys[j]] = (fm_linear){w[j], squares[j]};
            fm_record *r = &table[keys[j]];
            vec dv = g * (sum - r->v), s = r->squares + dv * dv, root;
            for (int f = 0; f < FM_K; f++)
                root[f] = sqrtf(s[f]);
            r->squares = s;
            r->v -= lr * dv / (root + EPS);
        }
    }
}

static void train_ffm(bench *b, uint64_t from, uint64_t to, double *loss)
{
    static _Thread_local float gradient[FIELDS][FIELDS][FFM_K];
    ffm_record *table = b->ffm;
    float lr = b->lr;
    for (uint64_t i = from; i < to; i++) {
        const uint32_t *keys = b->records + i * RECORD + 1;
        bool positive = keys[-1] != 0;
        float z = b->bias, pairs[FFM_K] = {0};
        for (int j = 0; i + 1 < to && j < FIELDS; j++)
            prefetch((const char *)&table[keys[RECORD + j]], sizeof *table);
        for (int j = 0; j < FIELDS; j++) {
            const ffm_record *a = &table[keys[j]];
            z += a->w;
            for (int k = j + 1; k < FIELDS; k++) {
                const ffm_record *c = &table[keys[k]];
                for (int f = 0; f < FFM_K; f++) { /* the gradients, but for their common factor */
                    pairs[f] += a->v[k][f] * c->v[j][f];
                    gradient[j][k][f] = c->v[j][f];
                    gradient[k][j][f] = a->v[k][f];
                }
            }
        }
        z += (pairs[0] + pairs[1] + (pairs[2] + pairs[3])) / FIELDS;
        *loss += (double)log_loss(z, positive);
        float g = sigmoid(z) - (positive ? 1.0f : 0.0f), scale = g / FIELDS;
        update(&b->bias, &b->bias_square, g, lr);
        for (int j = 0; j < FIELDS; j++) {
            ffm_record *a = &table[keys[j]];
            float *d = gradient[j][0];
            update(&a->w, &a->w_square, g, lr);
            for (int f = 0; f < FIELDS * FFM_K; f++)
                d[f] *= scale;
            update_all(a->v[0], a->squares[0], d, FIELDS * FFM_K, lr);
        }
    }
}

static void train_part(void *arg, unsigned t)
{
    bench *b = arg;
    uint64_t from = b->n_rows * t / b->n_threads, to = b->n_rows * (t + 1) / b->n_threads;
    double loss = 0;
    if (b->fields)
        train_ffm(b, from, to, &loss);
    else
        train_fm(b, from, to, &loss);
    b->losses[t] = loss;
}

static void start(bench *b)
{
    b->bias = b->bias_square = 0;
    for (uint64_t key = 0; key < b->n_features; key++) {
        mst_rng rng;
        mst_rng_init(&rng, 1, MST_RNG_TEST, key);
        size_t n = b->fields ? (size_t)FIELDS * FFM_K : FM_K;
        float *v = b->fields ? b->ffm[key].v[0] : (float *)&b->fm[key].v;
        memset(v, 0, b->fields ? sizeof *b->ffm : sizeof *b->fm);
        if (!b->fields)
            b->linear[key] = (fm_linear){0};
        for (size_t i = 0; i < n; i++)
            v[i] = 0.05f * ((float)(mst_rng_u32(&rng) >> 8) * 0x1p-23f - 1.0f);
    }
}

static mst_status copy_chunk(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    bench *b = arg;
    for (uint32_t i = 0; i < chunk->n_rows; i++) {
        mst_row row;
        uint32_t *record = b->records + (first_row + i) * RECORD;
        mst_chunk_row(chunk, i, &row);
        if (row.n_dense != 0 || row.n_keys != FIELDS || row.values != NULL || first_row + i >= b->n_rows)
            return mst_fail(MST_EINPUT, "row %llu does not have %d keys without values",
                            (unsigned long long)(first_row + i), FIELDS);
        record[0] = row.label > 0;
        for (uint32_t j = 0; j < FIELDS; j++) {
            if (row.keys[j] >= b->n_features)
                return mst_fail(MST_EINPUT, "row %llu has feature %u; give --features above it",
                                (unsigned long long)(first_row + i), row.keys[j]);
            record[1 + j] = row.keys[j];
        }
    }
    return MST_OK;
}

static mst_status load(bench *b, const char *path)
{
    mst_status st;
    mst_text_list paths = {0};
    mst_dataset *dataset = NULL;
    TRY_OUT(st, mst_text_list_add(&paths, path));
    TRY_OUT(st, mst_cache_open(&paths, &dataset));
    b->n_rows = dataset->info.n_rows;
    b->records = mst_calloc(b->n_rows, RECORD * sizeof *b->records);
    if (b->records == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    TRY_OUT(st, mst_dataset_each(dataset, 1, copy_chunk, b));
out:
    mst_dataset_destroy(dataset);
    mst_text_list_fini(&paths);
    return st;
}

static mst_status run(const arguments *args)
{
    mst_status st;
    const char *model = args->words[0];
    if (strcmp(model, "fm") != 0 && strcmp(model, "ffm") != 0)
        return mst_fail(MST_EUSAGE, "there is no plain loop of %s", model);
    bench b = {.fields = strcmp(model, "ffm") == 0,
               .n_features = (uint64_t)args->n_features,
               .lr = (float)args->lr,
               .n_threads = (unsigned)args->n_threads};
    size_t factors = b.n_features * (b.fields ? sizeof(ffm_record) : sizeof(fm_record)),
           size = factors + (b.fields ? 0 : b.n_features * sizeof(fm_linear));
    double loss = 0, seconds;
    uint64_t rows = 0;
    mst_team *team = NULL;
    void *table = mst_pages_reserve(size, true);
    b.fm = table;
    b.ffm = table;
    if (table == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    b.linear = (fm_linear *)((char *)table + factors);
    TRY_OUT(st, load(&b, args->words[1]));
    TRY_OUT(st, mst_team_new(b.n_threads, &team));
    start(&b);
    uint64_t began = mst_now_ns();
    do {
        mst_team_run(team, train_part, &b);
        for (unsigned t = 0; t < b.n_threads && rows == 0; t++)
            loss += b.losses[t];
        rows += b.n_rows;
        seconds = mst_seconds_since(began);
    } while (seconds < args->seconds);
    printf("plain_%s_rows_per_s %.0f rows/s\n", model, (double)rows / seconds);
    printf("plain_%s_train_loss %.5f nats\n", model, loss / (double)b.n_rows);
out:
    mst_team_destroy(team);
    mst_free(b.records);
    if (table != NULL)
        mst_pages_release(table, size);
    return st;
}

int main(int argc, char **argv)
{
    return plain_main(
        argc, argv, "bench_fm fm|ffm TRAIN.cache [--seconds S] [--features D] [--lr RATE] [--threads N]", 2,
        2, (arguments){.n_runs = -1, .n_features = 1 << 22, .n_threads = 1, .lr = 0.05, .seconds = 5}, run);
}
