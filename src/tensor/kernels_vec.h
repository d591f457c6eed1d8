/* Part of kernels_impl.h: vectors of LANES floats, partial loads and stores, exponential and logarithm. */
#ifdef __AVX512F__
#include <immintrin.h>
#endif

#define INLINE static inline __attribute__((always_inline)) MST_RACY

typedef float vec __attribute__((vector_size(LANES * 4)));
typedef int32_t ivec __attribute__((vector_size(LANES * 4)));
typedef float vec_u __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef int32_t ivec_u __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

INLINE vec load(const float *p)
{
    return *(const vec_u *)p;
}

INLINE void store(float *p, vec v)
{
    *(vec_u *)p = v;
}

INLINE vec splat(float x)
{
    return x - (vec){};
}

/* A product, vector or float, that is rounded before it is added to something: compilers fuse the two
 * otherwise. */
#if defined(__x86_64__)
#define ROUNDED_REGISTER "+x"
#elif defined(__aarch64__)
#define ROUNDED_REGISTER "+w"
#else
#define ROUNDED_REGISTER "+m"
#endif
#define rounded(product)                                                                                     \
    ({                                                                                                       \
        __auto_type rounded_product_ = (product);                                                            \
        __asm__("" : ROUNDED_REGISTER(rounded_product_));                                                    \
        rounded_product_;                                                                                    \
    })

INLINE vec select_vec(ivec mask, vec yes, vec no)
{
    return (vec)(((ivec)yes & mask) | ((ivec)no & ~mask));
}

INLINE bool any_lane(ivec mask)
{
#ifdef __AVX512F__
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#else
    int32_t any = 0;
    for (uint32_t i = 0; i < LANES; i++)
        any |= mask[i];
    return any != 0;
#endif
}

/* The first n (< LANES) floats, the rest zero; reads nothing beyond them. */
INLINE vec load_part(const float *p, uint32_t n)
{
    vec v = {};
    for (uint32_t i = 0; i < n; i++)
        v[i] = p[i];
    return v;
}

INLINE void store_part(float *p, uint32_t n, vec v)
{
    for (uint32_t i = 0; i < n; i++)
        p[i] = v[i];
}

#ifdef __AVX512F__
#define load_part(p, n)     ((vec)_mm512_maskz_loadu_ps((__mmask16)((1u << (n)) - 1), p))
#define store_part(p, n, v) _mm512_mask_storeu_ps(p, (__mmask16)((1u << (n)) - 1), (__m512)(v))
#endif

INLINE float sum_lanes(vec v)
{
#if LANES == 16
    typedef float half __attribute__((vector_size(32)));
    half h = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
             __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
#define HALF_LANES 8
#else
    vec h = v;
#define HALF_LANES LANES
#endif
    typedef float quarter __attribute__((vector_size(16)));
#if HALF_LANES == 8
    quarter q = __builtin_shufflevector(h, h, 0, 1, 2, 3) + __builtin_shufflevector(h, h, 4, 5, 6, 7);
#else
    quarter q = h;
#endif
    q += __builtin_shufflevector(q, q, 2, 3, 0, 1);
    return q[0] + q[1];
}

/* e^x for x <= 0, relative error below 2e-7; exactly 0 only below the smallest normal number. */
INLINE vec exp_nonpositive(vec x)
{
    x = select_vec(x > splat(-87.0f), x, splat(-87.0f));
    /* x = n ln2 + r, |r| <= ln2/2; e^r by its Taylor polynomial of degree 6 */
    vec t = x * splat(1.44269504f) - splat(0.5f);
    ivec n = __builtin_convertvector(t, ivec); /* truncates toward zero: rounds x/ln2, as it is negative */
    vec f = __builtin_convertvector(n, vec);
    vec r = x - f * splat(0.693359375f) - f * splat(-2.12194440e-4f);
    vec p = splat(1.0f / 720);
    p = p * r + splat(1.0f / 120);
    p = p * r + splat(1.0f / 24);
    p = p * r + splat(1.0f / 6);
    p = p * r + splat(0.5f);
    p = p * r + splat(1.0f);
    p = p * r + splat(1.0f);
    return p * (vec)((n + 127) << 23);
}

/* log(1 + e) for e in [0, 1]: 2 atanh(s), s = e / (2 + e) <= 1/3, by its series up to s^15. */
INLINE vec log1p_unit(vec e)
{
    vec s = e / (e + splat(2.0f)), q = s * s;
    vec p = splat(1.0f / 15);
    p = p * q + splat(1.0f / 13);
    p = p * q + splat(1.0f / 11);
    p = p * q + splat(1.0f / 9);
    p = p * q + splat(1.0f / 7);
    p = p * q + splat(1.0f / 5);
    p = p * q + splat(1.0f / 3);
    p = p * q + splat(1.0f);
    return p * s * splat(2.0f);
}

INLINE vec abs_vec(vec x)
{
    return (vec)((ivec)x & 0x7fffffff);
}

/* The scalar twin of exp_nonpositive, for batch 1, where one row's result is the next row's input. */
INLINE float exp_nonpositive_1(float x)
{
    x = x > -87.0f ? x : -87.0f;
    int32_t n = (int32_t)(x * 1.44269504f - 0.5f);
    float f = (float)n;
    float r = x - f * 0.693359375f - f * -2.12194440e-4f;
    float q = r * r; /* Estrin's scheme: shorter chain */
    float p01 = 1.0f + r, p23 = 0.5f + r * (1.0f / 6), p45 = 1.0f / 24 + r * (1.0f / 120);
    float p = p01 + q * (p23 + q * (p45 + q * (1.0f / 720)));
    union {
        int32_t bits;
        float value;
    } scale = {.bits = (n + 127) << 23};
    return p * scale.value;
}
