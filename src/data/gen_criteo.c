/* Criteo-like click logs; contract in gen.h.
 *
 * A categorical key is its popularity rank, drawn from a Zipf law of exponent 1 + 1/ZIPF_M by
 * rejection-inversion. With an integer ZIPF_M the inverse of the law's integral is an integer power, so a
 * draw costs no call of pow.
 *
 * Normal numbers are sums of four uniforms (Irwin-Hall): near enough, cheap, and equal on every machine.
 *
 * Rejection-inversion: W. Hoermann, G. Derflinger, "Rejection-inversion to generate variates from monotone
 * discrete distributions", ACM TOMACS 6 (1996). */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "data/cache.h"
#include "data/gen.h"

#define NUMERIC MST_GEN_CRITEO_NUMERIC
#define FIELDS  MST_GEN_CRITEO_FIELDS

#define ZIPF_M        10  /* exponent 1.1 */
#define ACCEPT_RANKS  256 /* ranks with a tabulated acceptance bound */
#define SAMPLE_ROWS   16384
#define SAMPLE_FIRST  (1ull << 62) /* rows that the calibration looks at; no data set reaches them */
#define POSITIVE      0.26
#define PLANTED_RIGHT 0.79

/* Vocabularies of the 26 fields of Criteo's public click log. */
static const uint32_t vocabulary[FIELDS] = {
    1460, 583,   10131227, 2202608, 305,  24,   12517, 633,     3,  93145, 5683,   8351593, 3194,
    27,   14992, 5461306,  10,      5652, 2173, 4,     7046547, 18, 15,    286181, 105,     142572,
};

/* Mean and deviation of the numeric features after the logarithm. */
static const float numeric_mean[NUMERIC] = {0.9f, 2.4f, 2.1f, 1.8f, 4.3f, 3.1f, 1.7f,
                                            2.2f, 3.4f, 0.4f, 0.9f, 0.3f, 1.8f};
static const float numeric_deviation[NUMERIC] = {0.8f, 1.2f, 1.0f, 0.8f, 0.7f, 1.1f, 1.0f,
                                                 0.9f, 1.0f, 0.4f, 0.7f, 0.4f, 0.9f};

typedef struct criteo_field {
    uint32_t first, size;
    double tail; /* integral of the law at size + 1/2 */
} criteo_field;

struct mst_gen_criteo_model {
    uint64_t features, seed, weight_seed;
    double scale, bias;
    double head, cut; /* integral at 3/2 less the law at 1; k - x below which a draw is accepted at once */
    double accept[ACCEPT_RANKS + 1];
    criteo_field fields[FIELDS];
};

/* ---- small pieces ---- */

static inline uint64_t criteo_gen_mix(uint64_t x)
{
    x = (x ^ x >> 31) * 0x9fb21c651e98df25u;
    x = (x ^ x >> 29) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

/* About standard normal, from 64 random bits: the sum of four uniforms, centred and scaled to variance 1. */
static inline float normal_from(uint64_t bits)
{
    uint32_t sum = (uint32_t)((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
    return ((float)sum * (1.0f / 65536) - 2.0f) * 1.7320508f;
}

static inline float planted_weight(const mst_gen_criteo_model *m, uint32_t key)
{
    return normal_from(criteo_gen_mix(m->weight_seed + key * 0x9e3779b97f4a7c15u));
}

static double criteo_gen_law(double x)
{
    return pow(x, -1.0 - 1.0 / ZIPF_M);
}

static double law_integral(double x)
{
    return -ZIPF_M * pow(x, -1.0 / ZIPF_M);
}

/* x such that law_integral(x) = u: (-u / M)^-M. */
static inline double law_inverse(double u)
{
    double t = u * (-1.0 / ZIPF_M), t2 = t * t, t4 = t2 * t2, t8 = t4 * t4;
    static_assert(ZIPF_M == 10, "the power is written out");
    return 1.0 / (t8 * t2);
}

static inline double accept_bound(const mst_gen_criteo_model *m, uint32_t rank)
{
    return rank <= ACCEPT_RANKS ? m->accept[rank] : law_integral(rank + 0.5) - criteo_gen_law(rank);
}

/* A rank in [1, size]. */
static inline uint32_t draw_rank(const mst_gen_criteo_model *m, const criteo_field *f, mst_rng *rng)
{
    for (;;) {
        double u = f->tail + mst_rng_uniform(rng) * (m->head - f->tail);
        double x = law_inverse(u);
        uint32_t rank = x >= f->size ? f->size : (uint32_t)(x + 0.5);
        rank = rank < 1 ? 1 : rank;
        if (rank - x <= m->cut || u >= accept_bound(m, rank))
            return rank;
    }
}

/* ---- rows ---- */

/* Writes the row's 39 keys and values (26 values of one) and returns the margin before scale and bias. */
static inline float make_row(const mst_gen_criteo_model *m, mst_rng *rng, uint32_t *keys, float *values)
{
    float margin = 0;
    for (uint32_t j = 0; j < NUMERIC; j++) {
        float x = numeric_mean[j] + numeric_deviation[j] * normal_from(mst_rng_u64(rng));
        x = x < 0 ? 0 : x > 5 ? 5 : x;
        keys[j] = j;
        values[j] = (float)(int)(x * 100 + 0.5f) / 100.0f;
        margin += planted_weight(m, j) * values[j];
    }
    for (uint32_t j = 0; j < FIELDS; j++) {
        const criteo_field *f = &m->fields[j];
        uint32_t key = f->first + draw_rank(m, f, rng) - 1;
        keys[NUMERIC + j] = key;
        values[NUMERIC + j] = 1.0f;
        margin += planted_weight(m, key);
    }
    return margin;
}

static double criteo_gen_probability(double margin)
{
    return 1.0 / (1.0 + exp(-margin));
}

double mst_gen_criteo_planted_margin(const mst_gen_criteo_model *m, const mst_row *row)
{
    float margin = 0;
    for (uint32_t j = 0; j < row->n_dense; j++)
        margin += planted_weight(m, j) * row->dense[j];
    for (uint32_t j = 0; j < row->n_keys; j++)
        margin += planted_weight(m, row->keys[j]) * (row->values != NULL ? row->values[j] : 1.0f);
    return m->bias + m->scale * margin;
}

static mst_status criteo_make(const void *self, uint64_t first_row, uint32_t n, mst_chunk_builder *b,
                              mst_chunk **out)
{
    const mst_gen_criteo_model *m = self;
    TRY(mst_chunk_builder_room(b, (size_t)n * (NUMERIC + FIELDS)));
    for (uint32_t i = 0; i < n; i++) {
        mst_rng rng;
        mst_rng_init(&rng, m->seed, MST_RNG_GENERATE, first_row + i);
        float margin = make_row(m, &rng, b->keys + b->n_entries, b->values + b->n_entries);
        b->n_entries += NUMERIC + FIELDS;
        bool positive = mst_rng_uniform(&rng) < criteo_gen_probability(m->bias + m->scale * margin);
        TRY(mst_chunk_builder_end_row(b, positive ? 1.0f : 0.0f, 1.0f));
    }
    return mst_chunk_builder_pack(b, 0, n, out);
}

/* ---- the model ---- */

/* Vocabularies that sum to total: the public ones, the large ones cut to a common size when total is smaller,
 * all of them stretched when it is larger. */
static void choose_sizes(uint64_t total, uint32_t *sizes)
{
    uint64_t sum = 0, low = 1, high = UINT32_MAX;
    for (size_t j = 0; j < FIELDS; j++)
        sum += vocabulary[j];
    while (low < high) { /* the largest cap that keeps the sum within total */
        uint64_t cap = (low + high + 1) / 2, capped = 0;
        for (size_t j = 0; j < FIELDS; j++)
            capped += vocabulary[j] < cap ? vocabulary[j] : cap;
        if (capped <= total)
            low = cap;
        else
            high = cap - 1;
    }
    uint64_t used = 0;
    size_t largest = 0;
    for (size_t j = 0; j < FIELDS; j++) {
        uint64_t size = vocabulary[j] < low ? vocabulary[j] : low;
        if (total > sum)
            size = (uint64_t)((double)vocabulary[j] * ((double)total / (double)sum));
        sizes[j] = (uint32_t)size;
        used += size;
        largest = vocabulary[j] > vocabulary[largest] ? j : largest;
    }
    sizes[largest] += (uint32_t)(total - used);
}

static void init_field(criteo_field *f, uint32_t first, uint32_t size)
{
    *f = (criteo_field){.first = first, .size = size, .tail = law_integral(size + 0.5)};
}

static double mean_probability(const float *margins, double scale, double bias, bool of_right_answer)
{
    double sum = 0;
    for (size_t i = 0; i < SAMPLE_ROWS; i++) {
        double p = criteo_gen_probability(bias + scale * margins[i]);
        sum += of_right_answer && p < 0.5 ? 1 - p : p;
    }
    return sum / SAMPLE_ROWS;
}

/* The bias with which the mean probability is POSITIVE. */
static double find_bias(const float *margins, double scale)
{
    double low = -128, high = 128;
    for (int i = 0; i < 21; i++) {
        double middle = (low + high) / 2;
        if (mean_probability(margins, scale, middle, false) < POSITIVE)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

/* Sets scale and bias by a sample: right answers of the planted model increase with the scale. */
static mst_status criteo_gen_calibrate(mst_gen_criteo_model *m)
{
    float *margins = mst_alloc(SAMPLE_ROWS * sizeof *margins);
    if (margins == NULL)
        return mst_fail_memory();
    for (uint64_t i = 0; i < SAMPLE_ROWS; i++) {
        uint32_t keys[NUMERIC + FIELDS];
        float values[NUMERIC + FIELDS];
        mst_rng rng;
        mst_rng_init(&rng, m->seed, MST_RNG_GENERATE, SAMPLE_FIRST + i);
        margins[i] = make_row(m, &rng, keys, values);
    }
    double low = 0, high = 1;
    for (int i = 0; i < 14; i++) {
        m->scale = (low + high) / 2;
        m->bias = find_bias(margins, m->scale);
        if (mean_probability(margins, m->scale, m->bias, true) < PLANTED_RIGHT)
            low = m->scale;
        else
            high = m->scale;
    }
    mst_free(margins);
    return MST_OK;
}

mst_status mst_gen_criteo_model_new(uint64_t features, uint64_t seed, mst_gen_criteo_model **out)
{
    if (features < 128 || features > UINT32_MAX)
        return mst_fail(MST_EUSAGE, "gen criteo needs 128 to 4294967295 features, not %llu",
                        (unsigned long long)features);
    mst_gen_criteo_model *m = mst_zalloc(sizeof *m);
    if (m == NULL)
        return mst_fail_memory();
    m->features = features;
    m->seed = seed;
    m->weight_seed = criteo_gen_mix(seed + 0x2545f4914f6cdd1du);
    m->head = law_integral(1.5) - criteo_gen_law(1);
    m->cut = 2.0 - law_inverse(law_integral(2.5) - criteo_gen_law(2));
    for (uint32_t rank = 1; rank <= ACCEPT_RANKS; rank++)
        m->accept[rank] = law_integral(rank + 0.5) - criteo_gen_law(rank);
    uint32_t sizes[FIELDS], first = NUMERIC;
    choose_sizes(features - NUMERIC, sizes);
    for (uint32_t j = 0; j < FIELDS; j++) {
        init_field(&m->fields[j], first, sizes[j]);
        first += sizes[j];
    }
    mst_status st = criteo_gen_calibrate(m);
    if (st == MST_OK)
        *out = m;
    else
        mst_gen_criteo_model_destroy(m);
    return st;
}

void mst_gen_criteo_model_destroy(mst_gen_criteo_model *model)
{
    mst_free(model);
}

void mst_gen_criteo_field(const mst_gen_criteo_model *m, unsigned number, uint32_t *first, uint32_t *size)
{
    *first = m->fields[number].first;
    *size = m->fields[number].size;
}

mst_status mst_gen_criteo(const mst_gen_criteo_options *o, mst_chunk_fn *fn, void *arg)
{
    mst_gen_criteo_model *model = NULL;
    TRY(mst_gen_criteo_model_new(o->features, o->seed, &model));
    mst_status st =
        mst_gen_run(o->first_row, o->rows, MST_CACHE_ROWS, o->n_threads, criteo_make, model, fn, arg);
    mst_gen_criteo_model_destroy(model);
    return st;
}
