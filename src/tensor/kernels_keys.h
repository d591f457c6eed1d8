/* Part of kernels_impl.h: numbers of keys in a hash table, for localising a batch (row_localiser.c). */

static uint32_t look_up_keys(const uint64_t *table, unsigned bits, const uint32_t *keys, uint32_t n,
                             uint32_t base, uint32_t *numbers, uint32_t *missing)
{
    uint32_t n_missing = 0;
#ifdef __AVX512F__
    const __m256i factor = _mm256_set1_epi32((int)MST_KEY_HASH);
    const __m128i shift = _mm_cvtsi32_si128((int)(32 - bits));
    const __m512i first = _mm512_set1_epi64((int64_t)base),
                  current = _mm512_set1_epi64(((int64_t)1 << 32) - (int64_t)base);
    __m256i place = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    for (uint32_t i = 0; i < n; i += 8, place = _mm256_add_epi32(place, _mm256_set1_epi32(8))) {
        __mmask8 part = n - i < 8 ? (__mmask8)((1u << (n - i)) - 1) : (__mmask8)0xff;
        __m256i key = _mm256_maskz_loadu_epi32(part, keys + i);
        __m256i at = _mm256_srl_epi32(_mm256_mullo_epi32(key, factor), shift);
        __m512i entry = _mm512_i32gather_epi64(at, (const void *)table, 8);
        __m512i number = _mm512_sub_epi64(entry, _mm512_slli_epi64(_mm512_cvtepu32_epi64(key), 32));
        __mmask8 other = _mm512_mask_cmpge_epu64_mask(part, _mm512_sub_epi64(number, first), current);
        _mm256_mask_storeu_epi32(numbers + i, part, _mm512_cvtepi64_epi32(number));
        _mm256_storeu_si256((__m256i *)(void *)(missing + n_missing),
                            _mm256_maskz_compress_epi32(other, place));
        n_missing += (uint32_t)__builtin_popcount(other);
    }
#else
    uint64_t current = ((uint64_t)1 << 32) - base; /* numbers from base on, less base, are below */
    for (uint32_t i = 0; i < n; i++) {
        uint64_t key = read_key(&keys[i]);
        uint64_t number = table[mst_key_bucket((uint32_t)key, bits)] - (key << 32);
        numbers[i] = (uint32_t)number;
        missing[n_missing] = i;
        n_missing += number - base >= current;
    }
#endif
    return n_missing;
}

static void rank_numbers(uint32_t *numbers, size_t n, uint32_t base, const uint32_t *ranks)
{
    size_t i = 0;
#ifdef __AVX512F__
    const __m512i first = _mm512_set1_epi32((int)base);
    for (; i + 16 <= n; i += 16) {
        __m512i at = _mm512_sub_epi32(_mm512_loadu_si512(numbers + i), first);
        _mm512_storeu_si512(numbers + i, _mm512_i32gather_epi32(at, (const void *)ranks, 4));
    }
#endif
    for (; i < n; i++)
        numbers[i] = ranks[numbers[i] - base];
}
