/* Part of kernels_impl.h: numbers of keys in a hash table, for localising a batch (row_localiser.c). */

static uint32_t look_up_keys(const uint32_t *table, unsigned bits, const uint32_t *keys, uint32_t n,
                             uint32_t *numbers, uint32_t *missing)
{
    uint32_t n_missing = 0;
#ifdef __AVX512F__
    const __m256i factor = _mm256_set1_epi32((int)MST_KEY_HASH), one = _mm256_set1_epi32(1),
                  none = _mm256_set1_epi32((int)MST_NO_KEY);
    const __m128i shift = _mm_cvtsi32_si128((int)(32 - bits));
    const __m512i low = _mm512_set1_epi64(UINT32_MAX);
    __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (uint32_t i = 0; i < n; i += 8, place = _mm256_add_epi32(place, _mm256_set1_epi32(8))) {
        __mmask8 part = n - i < 8 ? (__mmask8)((1u << (n - i)) - 1) : (__mmask8)0xff;
        __m256i key = _mm256_maskz_loadu_epi32(part, keys + i);
        __m256i at = _mm256_srl_epi32(_mm256_mullo_epi32(key, factor), shift);
        __m512i bucket = _mm512_i32gather_epi64(at, (const void *)table, 8),
                wide = _mm512_cvtepu32_epi64(key);
        __mmask8 first = _mm512_cmpeq_epi64_mask(_mm512_and_si512(bucket, low), wide);
        __mmask8 second = _mm512_cmpeq_epi64_mask(_mm512_srli_epi64(bucket, 32), wide);
        __mmask8 other = part & (__mmask8)(~(first | second) | _mm256_cmpeq_epi32_mask(key, none));
        __m256i number = _mm256_add_epi32(at, at);
        number = _mm256_mask_add_epi32(number, second, number, one);
        _mm256_mask_storeu_epi32(numbers + i, part, number);
        _mm256_storeu_si256((__m256i *)(void *)(missing + n_missing),
                            _mm256_maskz_compress_epi32(other, place));
        n_missing += (uint32_t)__builtin_popcount(other);
    }
#else
    for (uint32_t i = 0; i < n; i++) {
        uint32_t key = keys[i], at = 2 * mst_key_bucket(key, bits), second = table[at + 1] == key;
        numbers[i] = at + second;
        missing[n_missing] = i;
        n_missing += !((table[at] == key) | second) | (key == MST_NO_KEY);
    }
#endif
    return n_missing;
}

static void rank_numbers(uint32_t *numbers, size_t n, const uint32_t *ranks)
{
    size_t i = 0;
#ifdef __AVX512F__
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_si512(numbers + i,
                            _mm512_i32gather_epi32(_mm512_loadu_si512(numbers + i), (const void *)ranks, 4));
#endif
    for (; i < n; i++)
        numbers[i] = ranks[numbers[i]];
}

static void sum_counts(uint32_t *counts, uint32_t n)
{
#ifdef __AVX512F__
    const __m512i zero = _mm512_setzero_si512(), last = _mm512_set1_epi32(15);
    __m512i before = zero;
    for (uint32_t i = 0; i < n; i += 16) {
        __m512i count = _mm512_loadu_si512(counts + i), sum = count;
        sum = _mm512_add_epi32(sum, _mm512_alignr_epi32(sum, zero, 15));
        sum = _mm512_add_epi32(sum, _mm512_alignr_epi32(sum, zero, 14));
        sum = _mm512_add_epi32(sum, _mm512_alignr_epi32(sum, zero, 12));
        sum = _mm512_add_epi32(sum, _mm512_alignr_epi32(sum, zero, 8));
        _mm512_storeu_si512(counts + i, _mm512_add_epi32(_mm512_sub_epi32(sum, count), before));
        before = _mm512_add_epi32(before, _mm512_permutexvar_epi32(last, sum));
    }
#else
    uint32_t before = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t count = counts[i];
        counts[i] = before;
        before += count;
    }
#endif
}
