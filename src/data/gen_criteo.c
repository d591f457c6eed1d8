/* Criteo-like click logs; contract in gen.h.
 *
 * A categorical key is its popularity rank, drawn from a Zipf law of exponent 1 + 1/ZIPF_M by
 * rejection-inversion. With an integer ZIPF_M the inverse of the law's integral is an integer power, so a
 * draw costs no call of pow.
 *
 * With `scatter`, rank r of a field becomes key (r * step + offset) mod size, with a step near the golden
 * section of the size and prime to it; key_rank is the inverse.
 *
 * Normal numbers are sums of four uniforms (Irwin-Hall): near enough, cheap, and equal on every machine.
 *
 * Rejection-inversion: W. Hoermann, G. Derflinger, "Rejection-inversion to generate variates from monotone
 * discrete distributions", ACM TOMACS 6 (1996). */
#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/rng.h"
#include "data/cache.h"
#include "data/gen.h"

#define NUMERIC MST_GEN_CRITEO_NUMERIC
#define FIELDS  MST_GEN_CRITEO_FIELDS
#define RANK    MST_GEN_CRITEO_RANK

#define ZIPF_M        10  /* exponent 1.1 */
#define ACCEPT_RANKS  256 /* ranks with a tabulated acceptance bound */
#define SAMPLE_ROWS   16384
#define SAMPLE_FIRST  (1ull << 62) /* rows that the calibration looks at; no data set reaches them */
#define POSITIVE      0.26
#define PLANTED_RIGHT 0.79
#define PLANTED_LOSS  0.45    /* with interactions */
#define LOSS_UNIT     0x1p-20 /* of sums of losses, which do not depend on the order of chunks */

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
    double tail;                 /* integral of the law at size + 1/2 */
    uint32_t step, back, offset; /* of the scatter; back inverts step */
    uint32_t n_popular;          /* ranks with weights and factors, with interactions */
    const float *factors;        /* n_popular x RANK */
} criteo_field;

struct mst_gen_criteo_model {
    uint64_t features, seed, weight_seed;
    double scale, bias;
    double head, cut; /* integral at 3/2 less the law at 1; k - x below which a draw is accepted at once */
    double accept[ACCEPT_RANKS + 1];
    double interactions; /* share of the rows from which on a category has weight and factors; 0: all have a
                            weight */
    float pair_scale;    /* of the second-order part, beside the linear one */
    float *factors;      /* of all fields */
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

/* Key of a rank in [0, size), and its inverse. */
static inline uint32_t rank_key(const criteo_field *f, uint32_t rank)
{
    return f->first + (uint32_t)(((uint64_t)rank * f->step + f->offset) % f->size);
}

static inline uint32_t key_rank(const criteo_field *f, uint32_t key)
{
    uint64_t at = (uint64_t)(key - f->first) + f->size - f->offset;
    return (uint32_t)(at % f->size * f->back % f->size);
}

/* ---- rows ---- */

/* The planted model's sums over a row. */
typedef struct planted_sum {
    float linear;
    float factors[RANK], squares; /* sums of factors, and of their squares */
} planted_sum;

static inline void planted_add(const mst_gen_criteo_model *m, const criteo_field *f, uint32_t rank,
                               planted_sum *sum)
{
    if (m->interactions == 0) {
        sum->linear += planted_weight(m, f->first + rank);
        return;
    }
    if (rank >= f->n_popular)
        return;
    const float *v = f->factors + (size_t)rank * RANK;
    sum->linear += planted_weight(m, f->first + rank);
    for (uint32_t c = 0; c < RANK; c++) {
        sum->factors[c] += v[c];
        sum->squares += v[c] * v[c];
    }
}

/* Sum over all pairs of the products of their factors. */
static inline float planted_pairs(const planted_sum *sum)
{
    float pairs = -sum->squares;
    for (uint32_t c = 0; c < RANK; c++)
        pairs += sum->factors[c] * sum->factors[c];
    return 0.5f * pairs;
}

static inline float planted_margin(const mst_gen_criteo_model *m, const planted_sum *sum)
{
    return m->interactions > 0 ? sum->linear + m->pair_scale * planted_pairs(sum) : sum->linear;
}

/* Writes the row's 39 keys and values (26 values of one) and adds up the planted model. */
static inline planted_sum make_row(const mst_gen_criteo_model *m, mst_rng *rng, uint32_t *keys, float *values)
{
    planted_sum sum = {0};
    for (uint32_t j = 0; j < NUMERIC; j++) {
        float x = numeric_mean[j] + numeric_deviation[j] * normal_from(mst_rng_u64(rng));
        x = x < 0 ? 0 : x > 5 ? 5 : x;
        keys[j] = j;
        values[j] = (float)(int)(x * 100 + 0.5f) / 100.0f;
        sum.linear += planted_weight(m, j) * values[j];
    }
    for (uint32_t j = 0; j < FIELDS; j++) {
        const criteo_field *f = &m->fields[j];
        uint32_t rank = draw_rank(m, f, rng) - 1;
        keys[NUMERIC + j] = rank_key(f, rank);
        values[NUMERIC + j] = 1.0f;
        planted_add(m, f, rank, &sum);
    }
    return sum;
}

static double criteo_gen_probability(double margin)
{
    return 1.0 / (1.0 + exp(-margin));
}

double mst_gen_criteo_planted_margin(const mst_gen_criteo_model *m, const mst_row *row)
{
    planted_sum sum = {0};
    for (uint32_t j = 0; j < NUMERIC; j++) /* a short chunk may have more in its dense prefix */
        sum.linear += planted_weight(m, j) * row->dense[j];
    for (uint32_t j = NUMERIC; j < NUMERIC + FIELDS; j++) {
        const criteo_field *f = &m->fields[j - NUMERIC];
        planted_add(m, f, key_rank(f, j < row->n_dense ? j : row->keys[j - row->n_dense]), &sum);
    }
    return m->bias + m->scale * planted_margin(m, &sum);
}

/* A generation under way. */
typedef struct criteo_run {
    const mst_gen_criteo_model *model;
    atomic_uint_fast64_t loss; /* of the planted model, in LOSS_UNITs */
} criteo_run;

static mst_status criteo_make(const void *self, uint64_t first_row, uint32_t n, mst_chunk_builder *b,
                              mst_chunk **out)
{
    criteo_run *run = (criteo_run *)self;
    const mst_gen_criteo_model *m = run->model;
    double loss = 0;
    mst_chunk_builder_set_order(b, MST_ORDER_POSITION, NUMERIC);
    TRY(mst_chunk_builder_room(b, (size_t)n * (NUMERIC + FIELDS)));
    for (uint32_t i = 0; i < n; i++) {
        mst_rng rng;
        mst_rng_init(&rng, m->seed, MST_RNG_GENERATE, first_row + i);
        planted_sum sum = make_row(m, &rng, b->keys + b->n_entries, b->values + b->n_entries);
        b->n_entries += NUMERIC + FIELDS;
        double p = criteo_gen_probability(m->bias + m->scale * planted_margin(m, &sum));
        bool positive = mst_rng_uniform(&rng) < p;
        loss -= log(positive ? p : 1 - p);
        TRY(mst_chunk_builder_end_row(b, positive ? 1.0f : 0.0f, 1.0f));
    }
    atomic_fetch_add(&run->loss, (uint_fast64_t)(loss / LOSS_UNIT));
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

static uint64_t criteo_gen_gcd(uint64_t a, uint64_t b)
{
    while (b != 0) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* 1 / a mod n, for a prime to n. */
static uint32_t criteo_gen_inverse(uint32_t a, uint32_t n)
{
    int64_t t = 0, next_t = 1, r = n, next_r = a;
    while (next_r != 0) {
        int64_t q = r / next_r, rest = r - q * next_r, other = t - q * next_t;
        r = next_r;
        next_r = rest;
        t = next_t;
        next_t = other;
    }
    return (uint32_t)(t < 0 ? t + n : t);
}

static void init_field(criteo_field *f, uint32_t first, uint32_t size)
{
    *f = (criteo_field){.first = first, .size = size, .step = 1, .back = 1, .tail = law_integral(size + 0.5)};
}

static void scatter_field(criteo_field *f, uint64_t bits)
{
    uint32_t step = (uint32_t)(f->size * 0.6180339887);
    while (step > 1 && criteo_gen_gcd(step, f->size) != 1)
        step--;
    if (step < 1 || f->size < 2)
        return;
    f->step = step;
    f->back = criteo_gen_inverse(step, f->size);
    f->offset = (uint32_t)(bits % f->size);
}

/* Number of ranks that at least `share` of the rows have. */
static uint32_t popular_ranks(uint32_t size, double share)
{
    enum { EXACT = 1000 };
    double sum = 0;
    for (uint32_t k = 1; k <= size && k <= EXACT; k++)
        sum += criteo_gen_law(k);
    if (size > EXACT)
        sum += law_integral(size + 0.5) - law_integral(EXACT + 0.5);
    double last = pow(share * sum, -1.0 / (1.0 + 1.0 / ZIPF_M));
    return (uint32_t)fmin(last, size);
}

static void plant_factors(const mst_gen_criteo_model *m, const criteo_field *f, float *factors)
{
    double mean[RANK] = {0}, total = 0;
    for (uint32_t r = 0; r < f->n_popular; r++) {
        double share = criteo_gen_law(r + 1.0);
        total += share;
        for (uint32_t c = 0; c < RANK; c++) {
            uint64_t id = ((uint64_t)f->first + r) * RANK + c + 1;
            float v = normal_from(criteo_gen_mix(~m->weight_seed + id * 0x9e3779b97f4a7c15u));
            factors[(size_t)r * RANK + c] = v;
            mean[c] += share * (double)v;
        }
    }
    for (uint32_t r = 0; r < f->n_popular; r++)
        for (uint32_t c = 0; c < RANK; c++)
            factors[(size_t)r * RANK + c] -= (float)(mean[c] / total);
}

static mst_status plant_interactions(mst_gen_criteo_model *m, double share)
{
    size_t n = 0;
    for (uint32_t j = 0; j < FIELDS; j++) {
        m->fields[j].n_popular = popular_ranks(m->fields[j].size, share);
        n += m->fields[j].n_popular;
    }
    m->interactions = share;
    m->factors = mst_alloc(n * RANK * sizeof *m->factors);
    if (m->factors == NULL)
        return mst_fail_memory();
    float *at = m->factors;
    for (uint32_t j = 0; j < FIELDS; j++) {
        m->fields[j].factors = at;
        plant_factors(m, &m->fields[j], at);
        at += (size_t)m->fields[j].n_popular * RANK;
    }
    return MST_OK;
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

static double mean_loss(const float *margins, double scale, double bias)
{
    double sum = 0;
    for (size_t i = 0; i < SAMPLE_ROWS; i++) {
        double p = criteo_gen_probability(bias + scale * margins[i]);
        sum -= p > 0 && p < 1 ? p * log(p) + (1 - p) * log1p(-p) : 0;
    }
    return sum / SAMPLE_ROWS;
}

/* Makes the second-order parts of a sample vary as much as the linear ones; margins are both. */
static void balance_parts(mst_gen_criteo_model *m, const float *pairs, float *margins)
{
    double sum[2] = {0}, squares[2] = {0};
    for (size_t i = 0; i < SAMPLE_ROWS; i++) {
        double part[2] = {margins[i], pairs[i]};
        for (int k = 0; k < 2; k++) {
            sum[k] += part[k];
            squares[k] += part[k] * part[k];
        }
    }
    double linear = squares[0] - sum[0] * sum[0] / SAMPLE_ROWS,
           second = squares[1] - sum[1] * sum[1] / SAMPLE_ROWS;
    m->pair_scale = (float)sqrt(linear / second);
    for (size_t i = 0; i < SAMPLE_ROWS; i++)
        margins[i] += m->pair_scale * pairs[i];
}

/* Sets scale and bias by a sample: right answers of the planted model increase with the scale. */
static mst_status criteo_gen_calibrate(mst_gen_criteo_model *m)
{
    float *margins = mst_alloc(2 * SAMPLE_ROWS * sizeof *margins), *pairs;
    if (margins == NULL)
        return mst_fail_memory();
    pairs = margins + SAMPLE_ROWS;
    for (uint64_t i = 0; i < SAMPLE_ROWS; i++) {
        uint32_t keys[NUMERIC + FIELDS];
        float values[NUMERIC + FIELDS];
        mst_rng rng;
        mst_rng_init(&rng, m->seed, MST_RNG_GENERATE, SAMPLE_FIRST + i);
        planted_sum sum = make_row(m, &rng, keys, values);
        margins[i] = sum.linear;
        pairs[i] = planted_pairs(&sum);
    }
    if (m->interactions > 0)
        balance_parts(m, pairs, margins);
    double low = 0, high = 1;
    for (int i = 0; i < 14; i++) {
        m->scale = (low + high) / 2;
        m->bias = find_bias(margins, m->scale);
        if (m->interactions > 0 ? mean_loss(margins, m->scale, m->bias) > PLANTED_LOSS
                                : mean_probability(margins, m->scale, m->bias, true) < PLANTED_RIGHT)
            low = m->scale;
        else
            high = m->scale;
    }
    mst_free(margins);
    return MST_OK;
}

mst_status mst_gen_criteo_model_new(const mst_gen_criteo_options *options, mst_gen_criteo_model **out)
{
    uint64_t features = options->features, seed = options->seed;
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
        if (options->scatter)
            scatter_field(&m->fields[j], criteo_gen_mix(m->weight_seed ^ (j + 1)));
        first += sizes[j];
    }
    mst_status st = options->interactions > 0 ? plant_interactions(m, options->interactions) : MST_OK;
    if (st == MST_OK)
        st = criteo_gen_calibrate(m);
    if (st == MST_OK)
        *out = m;
    else
        mst_gen_criteo_model_destroy(m);
    return st;
}

void mst_gen_criteo_model_destroy(mst_gen_criteo_model *model)
{
    if (model != NULL)
        mst_free(model->factors);
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
    TRY(mst_gen_criteo_model_new(o, &model));
    criteo_run run = {.model = model};
    mst_status st =
        mst_gen_run(o->first_row, o->rows, MST_CACHE_ROWS, o->n_threads, criteo_make, &run, fn, arg);
    if (st == MST_OK && o->planted_loss != NULL)
        *o->planted_loss = o->rows > 0 ? (double)atomic_load(&run.loss) * LOSS_UNIT / (double)o->rows : 0;
    mst_gen_criteo_model_destroy(model);
    return st;
}
