/* Floats on the wire; contract in float_format.h.
 *
 * bf16 is the upper half of a float, rounded by adding just under half of its last place (exactly half where
 * that makes it even): integer work that compilers vectorise. fp16 has conversion instructions on x86; the
 * portable way gives the same bits, NANs included: they become quiet and keep the upper bits of their
 * payload. */
#include "tensor/float_format.h"

#include <string.h>

#include "tensor/float_format_impl.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "floats travel as they lie in memory");

#define INLINE static inline __attribute__((always_inline))

#define FLOAT_INFINITY 0x7F800000u
#define HALF_INFINITY  0x7C00u
#define HALF_MAX       0x7BFFu     /* 65504 */
#define HALF_NORMAL    0x38800000u /* 2^-14, the smallest normal fp16, as a float */
#define HALF_REBIAS    0x38000000u /* (127 - 15) << 23 */

INLINE uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

INLINE float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- bf16 ---- */

INLINE uint16_t to_bf16(float x)
{
    uint32_t bits = bits_of(x), rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    uint32_t nan = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7FFFFFFF) > FLOAT_INFINITY ? nan : rounded);
}

INLINE void encode_bf16(const float *in, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h = to_bf16(in[i]);
        memcpy(out + 2 * i, &h, sizeof h);
    }
}

INLINE void decode_bf16(const uint8_t *in, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, in + 2 * i, sizeof h);
        out[i] = float_of((uint32_t)h << 16);
    }
}

/* ---- fp16, portable ---- */

INLINE uint16_t to_fp16(float x)
{
    uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, size = bits & 0x7FFFFFFF, half;
    if (size > FLOAT_INFINITY)
        half = HALF_INFINITY | 0x200 | (size >> 13 & 0x3FF);
    else if (size == FLOAT_INFINITY)
        half = HALF_INFINITY;
    else if (size < HALF_NORMAL) /* 0.5 has the last place of the smallest fp16: the sum is rounded to it */
        half = bits_of(float_of(size) + 0.5f) - bits_of(0.5f);
    else
        half = (size + 0xFFF + (size >> 13 & 1) - HALF_REBIAS) >> 13;
    if (half > HALF_MAX && size < FLOAT_INFINITY)
        half = HALF_MAX;
    return (uint16_t)(sign | half);
}

INLINE float from_fp16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, size = half & 0x7FFF;
    if (size > HALF_INFINITY)
        return float_of(sign | FLOAT_INFINITY | 0x400000 | (size & 0x3FF) << 13);
    if (size == HALF_INFINITY)
        return float_of(sign | FLOAT_INFINITY);
    if (size < 0x400) /* subnormal: a multiple of 2^-24 */
        return float_of(sign | bits_of((float)size * 0x1p-24f));
    return float_of(sign | ((size << 13) + HALF_REBIAS));
}

static void encode_fp16(const float *in, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h = to_fp16(in[i]);
        memcpy(out + 2 * i, &h, sizeof h);
    }
}

static void decode_fp16(const uint8_t *in, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t h;
        memcpy(&h, in + 2 * i, sizeof h);
        out[i] = from_fp16(h);
    }
}

/* ---- x86 ---- */

#ifdef __x86_64__
#include <immintrin.h>

#define AVX2    __attribute__((target("avx2,f16c")))
#define AVX512  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

AVX2 static void encode_bf16_avx2(const float *in, size_t n, uint8_t *out)
{
    encode_bf16(in, n, out);
}

AVX2 static void decode_bf16_avx2(const uint8_t *in, size_t n, float *out)
{
    decode_bf16(in, n, out);
}

AVX512 static void encode_bf16_avx512(const float *in, size_t n, uint8_t *out)
{
    const __m512i below_half = _mm512_set1_epi32(0x7FFF), one = _mm512_set1_epi32(1);
    const __m512i infinity = _mm512_set1_epi32((int)FLOAT_INFINITY);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512i x = _mm512_loadu_si512(in + i), upper = _mm512_srli_epi32(x, 16);
        __m512i size = _mm512_and_si512(x, _mm512_set1_epi32(0x7FFFFFFF));
        __mmask16 nan = _mm512_cmpgt_epi32_mask(size, infinity);
        __m512i add = _mm512_add_epi32(below_half, _mm512_and_si512(upper, one));
        __m512i y = _mm512_srli_epi32(_mm512_add_epi32(x, add), 16);
        y = _mm512_mask_or_epi32(y, nan, upper, _mm512_set1_epi32(0x40));
        _mm256_storeu_si256((__m256i *)(out + 2 * i), _mm512_cvtepi32_epi16(y));
    }
    encode_bf16(in + i, n - i, out + 2 * i);
}

AVX512 static void decode_bf16_avx512(const uint8_t *in, size_t n, float *out)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(in + 2 * i)));
        _mm512_storeu_si512(out + i, _mm512_slli_epi32(x, 16));
    }
    decode_bf16(in + 2 * i, n - i, out + i);
}

/* min and max give their second argument when either is a NAN; infinities are put back. */
AVX2 static void encode_fp16_avx2(const float *in, size_t n, uint8_t *out)
{
    const __m256 most = _mm256_set1_ps(65504.0f), least = _mm256_set1_ps(-65504.0f);
    const __m256 sign = _mm256_set1_ps(-0.0f), infinity = _mm256_set1_ps(__builtin_inff());
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 x = _mm256_loadu_ps(in + i);
        __m256 infinite = _mm256_cmp_ps(_mm256_andnot_ps(sign, x), infinity, _CMP_EQ_OQ);
        __m256 y = _mm256_max_ps(least, _mm256_min_ps(most, x));
        y = _mm256_blendv_ps(y, x, infinite);
        _mm_storeu_si128((__m128i *)(out + 2 * i), _mm256_cvtps_ph(y, NEAREST));
    }
    encode_fp16(in + i, n - i, out + 2 * i);
}

AVX2 static void decode_fp16_avx2(const uint8_t *in, size_t n, float *out)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(in + 2 * i))));
    decode_fp16(in + 2 * i, n - i, out + i);
}

AVX512 static void encode_fp16_avx512(const float *in, size_t n, uint8_t *out)
{
    const __m512 most = _mm512_set1_ps(65504.0f), least = _mm512_set1_ps(-65504.0f);
    const __m512 infinity = _mm512_set1_ps(__builtin_inff());
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m512 x = _mm512_loadu_ps(in + i);
        __mmask16 finite = _mm512_cmp_ps_mask(_mm512_abs_ps(x), infinity, _CMP_NEQ_UQ);
        __m512 y = _mm512_mask_min_ps(x, finite, most, x);
        y = _mm512_mask_max_ps(y, finite, least, y);
        _mm256_storeu_si256((__m256i *)(out + 2 * i), _mm512_cvtps_ph(y, NEAREST));
    }
    encode_fp16(in + i, n - i, out + 2 * i);
}

AVX512 static void decode_fp16_avx512(const uint8_t *in, size_t n, float *out)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(out + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(in + 2 * i))));
    decode_fp16(in + 2 * i, n - i, out + i);
}
#endif

/* ---- choice ---- */

void mst_float_encode_with(mst_isa isa, mst_float_format wire, const float *in, size_t n, void *out)
{
    if (n == 0)
        return;
    if (wire == MST_FLOAT_FP32)
        memcpy(out, in, n * sizeof *in);
#ifdef __x86_64__
    else if (isa == MST_ISA_AVX512)
        (wire == MST_FLOAT_BF16 ? encode_bf16_avx512 : encode_fp16_avx512)(in, n, out);
    else if (isa == MST_ISA_AVX2)
        (wire == MST_FLOAT_BF16 ? encode_bf16_avx2 : encode_fp16_avx2)(in, n, out);
#endif
    else if (wire == MST_FLOAT_BF16)
        encode_bf16(in, n, out);
    else
        encode_fp16(in, n, out);
    (void)isa;
}

void mst_float_decode_with(mst_isa isa, mst_float_format wire, const void *in, size_t n, float *out)
{
    if (n == 0)
        return;
    if (wire == MST_FLOAT_FP32)
        memcpy(out, in, n * sizeof *out);
#ifdef __x86_64__
    else if (isa == MST_ISA_AVX512)
        (wire == MST_FLOAT_BF16 ? decode_bf16_avx512 : decode_fp16_avx512)(in, n, out);
    else if (isa == MST_ISA_AVX2)
        (wire == MST_FLOAT_BF16 ? decode_bf16_avx2 : decode_fp16_avx2)(in, n, out);
#endif
    else if (wire == MST_FLOAT_BF16)
        decode_bf16(in, n, out);
    else
        decode_fp16(in, n, out);
    (void)isa;
}

void mst_float_encode(mst_float_format wire, const float *in, size_t n, void *out)
{
    mst_float_encode_with(mst_isa_best(), wire, in, n, out);
}

void mst_float_decode(mst_float_format wire, const void *in, size_t n, float *out)
{
    mst_float_decode_with(mst_isa_best(), wire, in, n, out);
}

/* ---- finite values ---- */

#define FINITE_BLOCK 4096        /* floats between checks of the result */
#define BF16_LIMIT   0x7F7F8000u /* from here on a float rounds to the infinity of bf16 */

/* Bit 31 of the sum is set from `limit` on, a float without its sign. */
INLINE bool below_limit(const uint8_t *in, size_t n, uint32_t limit)
{
    uint32_t any = 0, more = 0x80000000u - limit;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, in + 4 * i, sizeof bits);
        any |= (bits & 0x7FFFFFFF) + more;
    }
    return any >> 31 == 0;
}

INLINE bool halves_finite(const uint8_t *in, size_t n, uint16_t infinity)
{
    uint16_t any = 0, more = (uint16_t)(0x8000u - infinity);
    for (size_t i = 0; i < n; i++) {
        uint16_t bits;
        memcpy(&bits, in + 2 * i, sizeof bits);
        any |= (uint16_t)((bits & infinity) + more);
    }
    return any >> 15 == 0;
}

bool mst_float_finite(mst_float_format wire, const void *in, size_t n)
{
    const uint8_t *at = in;
    bool finite = true;
    for (size_t done = 0; finite && done < n; done += FINITE_BLOCK) {
        size_t block = n - done < FINITE_BLOCK ? n - done : FINITE_BLOCK;
        finite =
            wire == MST_FLOAT_FP32
                ? below_limit(at, block, FLOAT_INFINITY)
                : halves_finite(at, block, wire == MST_FLOAT_BF16 ? FLOAT_INFINITY >> 16 : HALF_INFINITY);
        at += block * mst_float_size(wire);
    }
    return finite;
}

bool mst_float_encodes_finite(mst_float_format wire, const float *in, size_t n)
{
    uint32_t limit = wire == MST_FLOAT_BF16 ? BF16_LIMIT : FLOAT_INFINITY;
    bool finite = true;
    for (size_t done = 0; finite && done < n; done += FINITE_BLOCK)
        finite = below_limit((const uint8_t *)(in + done), n - done < FINITE_BLOCK ? n - done : FINITE_BLOCK,
                             limit);
    return finite;
}
