/* Rows of libsvm text with vector instructions; contract in libsvm_vector.h.
 *
 * The scalar loop of libsvm.c takes about 18 cycles for a feature, most of them for the digits and for
 * branches on the form of the value. Here a row is a list of tokens, known from the positions of blanks, line
 * feeds and colons: feature i is between two ends with a colon in it. So eight features are eight lanes, each
 * with the 8 bytes of its key and of its value, without a branch on their form.
 *
 * Invariants
 * 1. Positions are listed only for bytes with at least 8 more behind them, so that 8-byte loads stay inside.
 * 2. Entries are stored only after all lanes of their group have been checked: a feature has at least 4
 * characters, so the room that the caller made suffices.
 * 3. The values equal those of the scalar loop to the bit: a mantissa below 2^24 times a power of ten down to
 * 1e-6 (the comment on `inverses` in libsvm.c has the proof), or a whole number of up to 8 digits. */
#include "data/libsvm_vector.h"

#define PAUSE       64 /* rows that the other path parses after one of another form */
#define MOST_BEHIND 8

#if defined(__x86_64__)
#include <immintrin.h>

#define VECTOR                                                                                               \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512cd,avx512vbmi2,bmi,bmi2,popcnt")))

bool mst_libsvm_vector_works(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vbmi2") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
           __builtin_cpu_supports("popcnt");
}

/* Appends base + the numbers of the set bits; up to 63 words behind them are overwritten. */
VECTOR static inline uint32_t list_bits(uint16_t *out, uint32_t n, uint64_t bits, __m512i places,
                                        __m512i base)
{
    unsigned count = (unsigned)__builtin_popcountll(bits);
    __m512i list = _mm512_maskz_compress_epi8(bits, places);
    _mm512_storeu_si512(out + n, _mm512_add_epi16(_mm512_cvtepu8_epi16(_mm512_castsi512_si256(list)), base));
    if (count > 32)
        _mm512_storeu_si512(out + n + 32,
                            _mm512_add_epi16(_mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(list, 1)), base));
    return n + count;
}

VECTOR static void list_fill(mst_libsvm_list *l, const uint8_t *p, const uint8_t *end)
{
    uint8_t numbers[64];
    for (int i = 0; i < 64; i++)
        numbers[i] = (uint8_t)i;
    const __m512i places = _mm512_loadu_si512(numbers);
    l->from = p;
    l->n_ends = l->n_colons = l->n_lines = 0;
    l->next_end = l->next_colon = l->next_line = 0;
    for (uint32_t at = 0; at < MST_LIBSVM_LISTED && end - p >= 64 + MOST_BEHIND; at += 64, p += 64) {
        __m512i text = _mm512_loadu_si512(p), base = _mm512_set1_epi16((short)at);
        uint64_t lines = _mm512_cmpeq_epi8_mask(text, _mm512_set1_epi8('\n'));
        uint64_t ends = lines | _mm512_cmpeq_epi8_mask(text, _mm512_set1_epi8(' '));
        uint64_t colons = _mm512_cmpeq_epi8_mask(text, _mm512_set1_epi8(':'));
        for (; lines != 0; lines &= lines - 1)
            l->lines[l->n_lines++] =
                (uint16_t)(l->n_ends + (unsigned)__builtin_popcountll(ends & ((lines & -lines) - 1)));
        l->n_ends = list_bits(l->ends, l->n_ends, ends, places, base);
        l->n_colons = list_bits(l->colons, l->n_colons, colons, places, base);
    }
}

/* Makes the next characters those from `at` on. */
static void list_skip(mst_libsvm_list *l, uint32_t at)
{
    while (l->next_end < l->n_ends && l->ends[l->next_end] < at)
        l->next_end++;
    while (l->next_colon < l->n_colons && l->colons[l->next_colon] < at)
        l->next_colon++;
    while (l->next_line < l->n_lines && l->lines[l->next_line] < l->next_end)
        l->next_line++;
}

/* The number that up to 8 digits spell: the last bytes of each lane, after zeros. */
VECTOR static inline __m512i spelled(__m512i digits)
{
    __m512i pairs = _mm512_maddubs_epi16(digits, _mm512_set1_epi16(0x010a));
    __m512i fours = _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x00010064));
    return _mm512_add_epi64(_mm512_mul_epu32(fours, _mm512_set1_epi64(10000)), _mm512_srli_epi64(fours, 32));
}

VECTOR static inline __m512i widened(const uint16_t *positions)
{
    return _mm512_cvtepu16_epi64(_mm_loadu_si128((const __m128i *)positions));
}

/* The bytes of tokens, digits as their values: the last one is the last byte of its lane, after zeros. */
VECTOR static inline __m512i token_bytes(const uint8_t *from, __mmask8 lanes, __m512i start, __m512i bits)
{
    const __m512i zeros = _mm512_set1_epi8('0');
    __m512i bytes = _mm512_mask_i64gather_epi64(zeros, lanes, start, from, 1);
    return _mm512_sllv_epi64(_mm512_xor_si512(bytes, zeros), _mm512_sub_epi64(_mm512_set1_epi64(64), bits));
}

/* The values that start after the colons, of `bits` / 8 characters. Returns the lanes where a point is the
 * first or the last character; *digits: all bytes are digits where those of the value are, apart from one
 * point. */
VECTOR static inline __mmask8 decimals(const uint8_t *from, __mmask8 lanes, __m512i start, __m512i bits,
                                       __m512i *digits, __m512d *number)
{
    const __m512d inverses = _mm512_set_pd(1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0);
    __m512i value = token_bytes(from, lanes, start, bits);
    __m512i point = _mm512_movm_epi8(_mm512_cmpeq_epi8_mask(value, _mm512_set1_epi8('.' ^ '0')));
    __mmask8 pointed = _mm512_test_epi64_mask(point, point);
    /* The digits before the first point move up by one byte, over it; a second point stays: no digit. */
    __m512i before = _mm512_andnot_si512(point, _mm512_sub_epi64(point, _mm512_set1_epi64(1)));
    __m512i upto = _mm512_or_si512(_mm512_slli_epi64(before, 8), _mm512_set1_epi64(0xff));
    __m512i closed = _mm512_or_si512(_mm512_slli_epi64(_mm512_and_si512(value, before), 8),
                                     _mm512_andnot_si512(upto, value));
    __m512i behind = _mm512_lzcnt_epi64(point); /* 8 for each digit behind the point; 64: there is none */
    __m512d scale = _mm512_permutexvar_pd(_mm512_srli_epi64(behind, 3), inverses); /* 8 is taken as 0 */
    *digits = _mm512_mask_mov_epi64(value, pointed, closed);
    *number = _mm512_mul_pd(_mm512_cvtepu64_pd(spelled(*digits)), scale);
    return _mm512_mask_cmpeq_epi64_mask(lanes, behind, _mm512_setzero_si512()) |
           _mm512_mask_cmpeq_epi64_mask(lanes, behind, _mm512_sub_epi64(bits, _mm512_set1_epi64(8)));
}

/* Up to eight features: the one in lane i is between ends[i] and ends[i + 1] and has its colon at colons[i].
 * False: one has another form. */
VECTOR static inline bool group_parse(const uint8_t *from, const uint16_t *ends, const uint16_t *colons,
                                      __mmask8 lanes, uint32_t base, uint64_t limit, uint32_t *keys,
                                      float *values)
{
    const __m512i one = _mm512_set1_epi64(1), eight = _mm512_set1_epi64(8);
    __m512i start = _mm512_add_epi64(widened(ends), one), colon = widened(colons);
    __m512i value_start = _mm512_add_epi64(colon, one), key_size = _mm512_sub_epi64(colon, start),
            value_size = _mm512_sub_epi64(widened(ends + 1), value_start);
    __mmask8 good = _mm512_mask_cmplt_epu64_mask(lanes, _mm512_sub_epi64(key_size, one), eight);
    good = _mm512_mask_cmplt_epu64_mask(good, _mm512_sub_epi64(value_size, one), eight);
    if (good != lanes)
        return false;
    __m512i key = token_bytes(from, lanes, start, _mm512_slli_epi64(key_size, 3)), digits;
    __m512d number;
    __mmask8 bad = 0;
    if (_mm512_mask_cmpneq_epi64_mask(lanes, value_size, one) == 0) { /* categories: mostly 1 */
        digits = _mm512_srli_epi64(token_bytes(from, lanes, value_start, eight), 56);
        number = _mm512_cvtepu64_pd(digits);
    } else {
        bad = decimals(from, lanes, value_start, _mm512_slli_epi64(value_size, 3), &digits, &number);
    }
    __m512i index = _mm512_sub_epi64(spelled(key), _mm512_set1_epi64(base));
    bad |= _mm512_mask_cmpge_epu64_mask(lanes, index, _mm512_set1_epi64((long long)limit));
    if (bad != 0 || _mm512_cmpgt_epu8_mask(_mm512_max_epu8(key, digits), _mm512_set1_epi8(9)) != 0)
        return false;
    _mm256_mask_storeu_epi32(keys, lanes, _mm512_cvtepi64_epi32(index));
    _mm256_mask_storeu_ps(values, lanes, _mm512_cvtpd_ps(number));
    return true;
}

VECTOR const uint8_t *mst_libsvm_vector_row(mst_libsvm_list *l, const uint8_t *p, const uint8_t *end,
                                            uint32_t base, uint64_t limit, mst_chunk_builder *out)
{
    if (l->pause > 0) {
        l->pause--;
        return NULL;
    }
    list_skip(l, (uint32_t)(p - l->from));
    if (l->next_line == l->n_lines)
        list_fill(l, p, end);
    uint32_t first = l->next_end, colon = l->next_colon;
    if (l->next_line == l->n_lines || l->from + l->ends[first] != p) {
        l->pause = PAUSE;
        return NULL;
    }
    uint32_t last = l->lines[l->next_line], n = last - first;
    n -= n > 0 && l->ends[last] - l->ends[last - 1] == 1; /* a blank before the line feed */
    size_t n_entries = out->n_entries;
    bool good = n <= l->n_colons - colon;
    for (uint32_t i = 0; i < n && good; i += 8) {
        __mmask8 lanes = n - i >= 8 ? (__mmask8)0xff : (__mmask8)((1u << (n - i)) - 1);
        good = group_parse(l->from, l->ends + first + i, l->colons + colon + i, lanes, base, limit,
                           out->keys + n_entries + i, out->values + n_entries + i);
    }
    if (!good) {
        l->pause = PAUSE;
        return NULL;
    }
    out->n_entries = n_entries + n;
    l->next_end = last + 1;
    l->next_colon = colon + n;
    l->next_line++;
    return l->from + l->ends[last];
}

#else

bool mst_libsvm_vector_works(void)
{
    return false;
}

const uint8_t *mst_libsvm_vector_row(mst_libsvm_list *l, const uint8_t *p, const uint8_t *end, uint32_t base,
                                     uint64_t limit, mst_chunk_builder *out)
{
    (void)l, (void)p, (void)end, (void)base, (void)limit, (void)out;
    return NULL;
}

#endif
