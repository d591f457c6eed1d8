/* Packing whole blocks of keys with AVX-512; see key_pack_impl.h.
 *
 * Packing: a 32-bit word of a block of gaps of w bits, 17 <= w <= 32, holds bits of at most three gaps, which
 * permutes bring to the word's lane and shifts to their place (a shift by 32 or more leaves nothing). For
 * widths up to 16, neighbours are first joined to one number of twice the width; up to 8, eight of them are
 * joined to b whole bytes.
 *
 * Unpacking: a gap has bits of at most two neighbouring words. Blocks are read under a mask, so that no
 * later byte is read. */
#ifdef __x86_64__
#include <immintrin.h>

#include "ps/key_pack_impl.h"

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,bmi2,lzcnt")))
#define INLINE AVX512 static inline __attribute__((always_inline))

/* Which gap the first bit of a block's words lies in, by width from 17 on. */
#define WORDS(w)                                                                                             \
    {                                                                                                        \
        0, 32 / w, 64 / w, 96 / w, 128 / w, 160 / w, 192 / w, 224 / w, 256 / w, 288 / w, 320 / w, 352 / w,   \
            384 / w, 416 / w, 448 / w, 480 / w, 512 / w, 544 / w, 576 / w, 608 / w, 640 / w, 672 / w,        \
            704 / w, 736 / w, 768 / w, 800 / w, 832 / w, 864 / w, 896 / w, 928 / w, 960 / w, 992 / w,        \
    }
static const uint8_t g_first_gap[16][32] = {
    WORDS(17), WORDS(18), WORDS(19), WORDS(20), WORDS(21), WORDS(22), WORDS(23), WORDS(24),
    WORDS(25), WORDS(26), WORDS(27), WORDS(28), WORDS(29), WORDS(30), WORDS(31), WORDS(32),
};

INLINE __m512i iota(void)
{
    return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
}

/* a * b of numbers below 2^15 */
INLINE __m512i multiply(__m512i a, unsigned b)
{
    return _mm512_madd_epi16(a, _mm512_set1_epi32((int)b));
}

/* Words [from, from + 16) of gaps of w bits, 32 of them in low and high. */
INLINE __m512i words(__m512i low, __m512i high, unsigned w, unsigned from)
{
    const __m512i one = _mm512_set1_epi32(1), width = _mm512_set1_epi32((int)w);
    __m512i gap = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(g_first_gap[w - 17] + from)));
    __m512i bit = _mm512_slli_epi32(_mm512_add_epi32(iota(), _mm512_set1_epi32((int)from)), 5);
    __m512i skip = _mm512_sub_epi32(bit, multiply(gap, w)); /* bits of the first gap in the word before */
    __m512i left = _mm512_sub_epi32(width, skip);
    __m512i x = _mm512_srlv_epi32(_mm512_permutex2var_epi32(low, gap, high), skip);
    gap = _mm512_add_epi32(gap, one);
    __m512i y = _mm512_sllv_epi32(_mm512_permutex2var_epi32(low, gap, high), left);
    gap = _mm512_add_epi32(gap, one);
    left = _mm512_add_epi32(left, width);
    __m512i z = _mm512_sllv_epi32(_mm512_permutex2var_epi32(low, gap, high), left);
    return _mm512_ternarylogic_epi32(x, y, z, 0xFE); /* x | y | z */
}

/* Neighbouring numbers of w bits in 64-bit lanes joined: 16 lanes of low and high become 8. */
INLINE __m512i join(__m512i low, __m512i high, unsigned w)
{
    const __m512i even = _mm512_set_epi64(14, 12, 10, 8, 6, 4, 2, 0);
    const __m512i odd = _mm512_set_epi64(15, 13, 11, 9, 7, 5, 3, 1);
    __m512i x = _mm512_permutex2var_epi64(low, even, high), y = _mm512_permutex2var_epi64(low, odd, high);
    return _mm512_or_si512(x, _mm512_sll_epi64(y, _mm_cvtsi32_si128((int)w)));
}

/* Neighbouring 32-bit lanes joined to 64-bit ones of 2 * w bits. */
INLINE __m512i join_pairs(__m512i x, unsigned w)
{
    __m512i high = _mm512_sll_epi64(_mm512_srli_epi64(x, 32), _mm_cvtsi32_si128((int)w));
    return _mm512_or_si512(_mm512_and_si512(x, _mm512_set1_epi64(0xFFFFFFFF)), high);
}

AVX512 uint8_t *mst_key_pack_avx512(const uint32_t *keys, size_t n_blocks, uint8_t *out)
{
    const __m512i ones = _mm512_set1_epi32(-1);
    for (; n_blocks > 0; n_blocks--, keys += MST_KEY_PACK_BLOCK) {
        /* key - previous - 1 = key + ~previous */
        __m512i low =
            _mm512_add_epi32(_mm512_loadu_si512(keys), _mm512_xor_si512(_mm512_loadu_si512(keys - 1), ones));
        __m512i high = _mm512_add_epi32(_mm512_loadu_si512(keys + 16),
                                        _mm512_xor_si512(_mm512_loadu_si512(keys + 15), ones));
        unsigned b = 32 - _lzcnt_u32((uint32_t)_mm512_reduce_or_epi32(_mm512_or_si512(low, high)));
        *out++ = (uint8_t)b;
        if (b > 16) {
            _mm512_storeu_si512(out, words(low, high, b, 0));
            _mm512_storeu_si512(out + 64, words(low, high, b, 16));
        } else if (b > 8) {
            __m512i pairs =
                _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi64_epi32(join_pairs(low, b))),
                                   _mm512_cvtepi64_epi32(join_pairs(high, b)), 1);
            _mm512_storeu_si512(out, words(pairs, pairs, 2 * b, 0));
        } else {
            __m512i x = join(join_pairs(low, b), join_pairs(high, b), 2 * b);
            __m256i y = _mm512_castsi512_si256(join(x, x, 4 * b));
            __m128i first = _mm256_castsi256_si128(y), second = _mm256_extracti128_si256(y, 1);
            _mm_storel_epi64((__m128i *)out, first);
            _mm_storel_epi64((__m128i *)(out + b), _mm_unpackhi_epi64(first, first));
            _mm_storel_epi64((__m128i *)(out + 2 * b), second);
            _mm_storel_epi64((__m128i *)(out + 3 * b), _mm_unpackhi_epi64(second, second));
        }
        out += 4 * b;
    }
    return out;
}

/* Sums of lanes 0 to i in lane i. */
INLINE __m512i sums(__m512i x)
{
    const __m512i zero = _mm512_setzero_si512();
    x = _mm512_add_epi32(x, _mm512_alignr_epi32(x, zero, 15));
    x = _mm512_add_epi32(x, _mm512_alignr_epi32(x, zero, 14));
    x = _mm512_add_epi32(x, _mm512_alignr_epi32(x, zero, 12));
    return _mm512_add_epi32(x, _mm512_alignr_epi32(x, zero, 8));
}

/* Gaps [from, from + 16) of b bits out of the block's words. */
INLINE __m512i gaps(__m512i low, __m512i high, unsigned b, unsigned from)
{
    const __m512i word_bits = _mm512_set1_epi32(32);
    __m512i bit = multiply(_mm512_add_epi32(iota(), _mm512_set1_epi32((int)from)), b);
    __m512i word = _mm512_srli_epi32(bit, 5), skip = _mm512_and_si512(bit, _mm512_set1_epi32(31));
    __m512i x = _mm512_srlv_epi32(_mm512_permutex2var_epi32(low, word, high), skip);
    word = _mm512_add_epi32(word, _mm512_set1_epi32(1));
    __m512i y =
        _mm512_sllv_epi32(_mm512_permutex2var_epi32(low, word, high), _mm512_sub_epi32(word_bits, skip));
    __m512i mask = _mm512_set1_epi32((int)_bzhi_u32(~0u, b));
    return _mm512_and_si512(_mm512_or_si512(x, y), mask);
}

AVX512 size_t mst_key_unpack_avx512(const uint8_t **in, const uint8_t *end, size_t n_blocks, uint32_t *keys,
                                    bool *wrapped)
{
    const __m512i last = _mm512_set1_epi32(15), one = _mm512_set1_epi32(1);
    const uint8_t *at = *in;
    size_t done = 0;
    __m512i before = _mm512_set1_epi32((int)keys[-1]);
    __mmask16 bad = 0;
    for (; done < n_blocks && at < end; done++, keys += MST_KEY_PACK_BLOCK) {
        unsigned b = *at;
        if (b > 32 || (size_t)(end - at) < 1 + 4 * (size_t)b)
            break;
        uint32_t present = _bzhi_u32(~0u, b); /* words */
        __m512i low = _mm512_maskz_loadu_epi32((__mmask16)present, at + 1);
        __m512i high = _mm512_maskz_loadu_epi32((__mmask16)(present >> 16), at + 65);
        __m512i g0 = gaps(low, high, b, 0), g1 = gaps(low, high, b, 16);
        __m512i k0 = _mm512_add_epi32(sums(_mm512_add_epi32(g0, one)), before);
        __m512i k1 = sums(_mm512_add_epi32(g1, one));
        k1 = _mm512_add_epi32(k1, _mm512_permutexvar_epi32(last, k0));
        before = _mm512_permutexvar_epi32(last, k1);
        bad |= _mm512_cmple_epu32_mask(k0, g0) | _mm512_cmple_epu32_mask(k1, g1);
        _mm512_storeu_si512(keys, k0);
        _mm512_storeu_si512(keys + 16, k1);
        at += 1 + 4 * b;
    }
    *in = at;
    *wrapped |= bad != 0;
    return done;
}
#else
typedef int mst_key_pack_avx512_unused; /* a file is not empty */
#endif
