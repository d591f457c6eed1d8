/* The kernels of mm_kernels.h for LANES floats in a vector, included by one file per instruction set with
 * LANES, MM_ISA and MM_SET defined.
 *
 * trace: a tile of LANES x LANES of b is turned in registers (log2(LANES) rounds of interleaving, after which
 * vector i holds column i), multiplied with that of a, and added in double: products of two floats are exact
 * there. The next tile is fetched into the second-level cache a row at a time meanwhile, because rows of a
 * tile are short and lie far apart, which no hardware prefetcher follows. */
#include <string.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

#include "base/rng.h"
#include "matmul/mm_kernels.h"

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t ivec __attribute__((vector_size(LANES * 4)));
typedef float half __attribute__((vector_size(LANES * 2)));
typedef double wide __attribute__((vector_size(LANES * 4)));

static inline vec load(const float *from)
{
    vec v;
    memcpy(&v, from, sizeof v);
    return v;
}

static inline void store(float *to, vec v)
{
    memcpy(to, &v, sizeof v);
}

/* LOW, HIGH: the first and the second halves of a and b, lane by lane in turn. */
#if LANES == 16
#define LOW(a, b)  __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH(a, b) __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define FIRST(a)   __builtin_shufflevector(a, a, 0, 1, 2, 3, 4, 5, 6, 7)
#define SECOND(a)  __builtin_shufflevector(a, a, 8, 9, 10, 11, 12, 13, 14, 15)
#elif LANES == 8
#define LOW(a, b)  __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define FIRST(a)   __builtin_shufflevector(a, a, 0, 1, 2, 3)
#define SECOND(a)  __builtin_shufflevector(a, a, 4, 5, 6, 7)
#else
#define LOW(a, b)  __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define FIRST(a)   __builtin_shufflevector(a, a, 0, 1)
#define SECOND(a)  __builtin_shufflevector(a, a, 2, 3)
#endif

/* A half as doubles. GCC makes two conversions, where AVX2 and AVX-512 have one instruction. */
#if defined(__AVX512F__)
#define WIDEN(x) ((wide)_mm512_cvtps_pd((__m256)(x)))
#elif defined(__AVX2__)
#define WIDEN(x) ((wide)_mm256_cvtps_pd((__m128)(x)))
#else
#define WIDEN(x) __builtin_convertvector(x, wide)
#endif

/* ---- random numbers ---- */

#define PHILOX_M0     0xD2511F53u
#define PHILOX_M1     0xCD9E8D57u
#define PHILOX_W0     0x9E3779B9u
#define PHILOX_W1     0xBB67AE85u
#define PHILOX_ROUNDS 10

/* Counters at once, one in each 32-bit lane. */
#define WAYS LANES
typedef uint32_t words __attribute__((vector_size(WAYS * 4)));
typedef uint64_t pairs __attribute__((vector_size(WAYS * 4)));

#if defined(__AVX512F__)
#define PRODUCT(a, m) ((pairs)_mm512_mul_epu32((__m512i)(a), _mm512_set1_epi64(m)))
#elif defined(__AVX2__)
#define PRODUCT(a, m) ((pairs)_mm256_mul_epu32((__m256i)(a), _mm256_set1_epi64x(m)))
#elif defined(__SSE2__)
#define PRODUCT(a, m) ((pairs)_mm_mul_epu32((__m128i)(a), _mm_set1_epi64x(m)))
#else
#define PRODUCT(a, m) (((pairs)(a)&0xFFFFFFFFu) * (uint64_t)(m))
#endif

/* The 64-bit products of the lanes with m: their high and their low words. */
static inline __attribute__((always_inline)) void multiply(words x, uint32_t m, words *high, words *low)
{
    pairs even = PRODUCT(x, m), odd = PRODUCT((pairs)x >> 32, m), upper = (pairs){0} + 0xFFFFFFFF00000000u;
    *high = (words)(even >> 32 | (odd & upper));
    *low = (words)((even & ~upper) | odd << 32);
}

/* Words 4 * counter ... 4 * (counter + WAYS) - 1 of the stream, as base/rng.h defines it. */
static void philox(uint64_t seed, uint64_t stream, uint32_t counter, float *restrict out)
{
    words zero = {0}, c0 = zero, c1 = zero + (uint32_t)MST_RNG_MATRIX, c2 = zero + (uint32_t)stream;
    words c3 = zero + (uint32_t)(stream >> 32), high0, high1, low0, low1;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int l = 0; l < WAYS; l++)
        c0[l] = counter + (uint32_t)l;
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        multiply(c0, PHILOX_M0, &high0, &low0);
        multiply(c2, PHILOX_M1, &high1, &low1);
        c0 = high1 ^ c1 ^ k0;
        c1 = low1;
        c2 = high0 ^ c3 ^ k1;
        c3 = low0;
        k0 += PHILOX_W0;
        k1 += PHILOX_W1;
    }
    /* Word w of counter l goes to 4 * l + w: two rounds of interleaving over the four vectors. */
    vec f0 = __builtin_convertvector((ivec)c0, vec) * 0x1p-31f;
    vec f1 = __builtin_convertvector((ivec)c1, vec) * 0x1p-31f;
    vec f2 = __builtin_convertvector((ivec)c2, vec) * 0x1p-31f;
    vec f3 = __builtin_convertvector((ivec)c3, vec) * 0x1p-31f;
    vec low02 = LOW(f0, f2), high02 = HIGH(f0, f2), low13 = LOW(f1, f3), high13 = HIGH(f1, f3);
    store(out, LOW(low02, low13));
    store(out + LANES, HIGH(low02, low13));
    store(out + 2 * LANES, LOW(high02, high13));
    store(out + 3 * LANES, HIGH(high02, high13));
}

static void generate(uint64_t seed, uint64_t stream, uint64_t first, size_t n, float *out)
{
    float part[4 * WAYS];
    size_t skip = first % 4;
    uint64_t counter = first / 4;
    for (; n > 0; counter += WAYS) {
        if (skip == 0 && n >= 4 * WAYS) {
            philox(seed, stream, (uint32_t)counter, out);
            out += 4 * WAYS;
            n -= 4 * WAYS;
            continue;
        }
        size_t some = 4 * WAYS - skip < n ? 4 * WAYS - skip : n;
        philox(seed, stream, (uint32_t)counter, part);
        memcpy(out, part + skip, some * sizeof *out);
        out += some;
        n -= some;
        skip = 0;
    }
}

/* ---- trace ---- */

/* One round of interleaving vector i with vector i + LANES / 2. */
static inline __attribute__((always_inline)) void interleave(vec *restrict to, const vec *restrict from)
{
#pragma GCC unroll 8
    for (int i = 0; i < LANES / 2; i++) {
        to[2 * i] = LOW(from[i], from[i + LANES / 2]);
        to[2 * i + 1] = HIGH(from[i], from[i + LANES / 2]);
    }
}

/* Vector i becomes lane i of all. */
static inline __attribute__((always_inline)) void turn(vec x[LANES])
{
    vec y[LANES];
    interleave(y, x);
    interleave(x, y);
#if LANES >= 8
    interleave(y, x);
#if LANES == 16
    interleave(x, y);
#else
    memcpy(x, y, sizeof y);
#endif
#endif
}

/* sum += the LANES x LANES products at a and b, lane by lane. */
static inline __attribute__((always_inline)) void trace_square(const float *a, size_t lda, const float *b,
                                                               size_t ldb, wide sum[2])
{
    vec x[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        x[i] = load(b + (size_t)i * ldb);
    turn(x);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) {
        const float *row = a + (size_t)i * lda; /* halves of a come from memory, converted on the way */
        half v[2];
        memcpy(v, row, sizeof v);
        sum[0] += WIDEN(v[0]) * WIDEN(FIRST(x[i]));
        sum[1] += WIDEN(v[1]) * WIDEN(SECOND(x[i]));
    }
}

static inline void fetch_row(const float *row, size_t n)
{
    for (size_t i = 0; i < n; i += 16)
        __builtin_prefetch(row + i, 0, 2);
}

static double trace(const mst_mm_tile *t, size_t rows, size_t cols, const mst_mm_tile *next)
{
    wide sums[2] = {{0}};
    double sum = 0;
    size_t whole_rows = rows / LANES * LANES, whole_cols = cols / LANES * LANES;
    size_t ahead = 0, done = 0, area = whole_rows * whole_cols, sides = rows > cols ? rows : cols;
    for (size_t c = 0; c < whole_cols; c += LANES) {
        for (size_t r = 0; r < whole_rows; r += LANES) {
            done += LANES * LANES;
            for (; next != NULL && ahead * area < done * sides; ahead++) {
                if (ahead < rows)
                    fetch_row(next->a + ahead * next->lda, cols);
                if (ahead < cols)
                    fetch_row(next->b + ahead * next->ldb, rows);
            }
            trace_square(t->a + r * t->lda + c, t->lda, t->b + c * t->ldb + r, t->ldb, sums);
        }
    }
    for (int i = 0; i < LANES / 2; i++)
        sum += sums[0][i];
    for (int i = 0; i < LANES / 2; i++)
        sum += sums[1][i];
    for (size_t r = 0; r < rows; r++)
        for (size_t c = r < whole_rows ? whole_cols : 0; c < cols; c++)
            sum += (double)t->a[r * t->lda + c] * (double)t->b[c * t->ldb + r];
    return sum;
}

/* ---- the check ---- */

typedef double lanes __attribute__((vector_size(MST_MM_LANES * 8)));

static void times(const float *t, size_t rows, size_t cols, const double *x, double *y)
{
    size_t r = 0;
    for (; r + 4 <= rows; r += 4) { /* four rows share each load of x */
        lanes sum[4] = {{0}};
        const float *a = t + r * cols;
        for (size_t c = 0; c < cols; c++) {
            lanes v;
            memcpy(&v, x + c * MST_MM_LANES, sizeof v);
#pragma GCC unroll 4
            for (size_t i = 0; i < 4; i++)
                sum[i] += v * (double)a[i * cols + c];
        }
        for (size_t i = 0; i < 4; i++)
            for (size_t l = 0; l < MST_MM_LANES; l++)
                y[(r + i) * MST_MM_LANES + l] += sum[i][l];
    }
    for (; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            for (size_t l = 0; l < MST_MM_LANES; l++)
                y[r * MST_MM_LANES + l] += (double)t[r * cols + c] * x[c * MST_MM_LANES + l];
}

static double squares(const float *x, size_t n)
{
    double sums[16] = {0}, sum = 0;
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t l = 0; l < 16; l++)
            sums[l] += (double)x[i + l] * (double)x[i + l];
    for (; i < n; i++)
        sums[0] += (double)x[i] * (double)x[i];
    for (size_t l = 0; l < 16; l++)
        sum += sums[l];
    return sum;
}

#include "matmul/mm_kernels_sgemm.h"

const mst_mm_kernels MM_SET = {
    .isa = MM_ISA,
    .panel_rows = PANEL_ROWS,
    .panel_cols = PANEL_COLS,
    .generate = generate,
    .trace = trace,
    .times = times,
    .squares = squares,
    .pack_rows = pack_rows,
    .pack_cols = pack_cols,
    .multiply_panels = multiply_panels,
};
