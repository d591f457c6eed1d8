/* Part of kernels_impl.h: the keys of one owner among the rows of a synchronous step (mst_picks in grad.h).
 *
 * Each thread picks the keys that it owns from the rows of all threads, before it needs any weight. Scanning
 * all rows costs less than passing contributions: a list that one core writes and another reads moves line by
 * line between their caches twice per step, while rows are only read. With AVX-512 a scan takes about 20 ns
 * per row of 26 keys. */

#ifdef __AVX512F__
INLINE size_t pick_row(const mst_row *row, uint32_t number, uint32_t n_prefix, uint32_t low, uint32_t span,
                       mst_picks *picks, size_t at)
{
    const __m512i factor = _mm512_set1_epi32((int)MST_OWNER_FACTOR), lows = _mm512_set1_epi32((int)low);
    for (uint32_t i = 0; i < row->n_keys; i += 16) {
        uint32_t left = row->n_keys - i;
        __mmask16 part = left < 16 ? (__mmask16)((1u << left) - 1) : (__mmask16)0xffff;
        __m512i keys = _mm512_maskz_loadu_epi32(part, row->keys + i);
        __m512i hash = _mm512_mullo_epi32(_mm512_srli_epi32(keys, MST_OWNER_SHIFT), factor);
        part = _mm512_mask_cmple_epu32_mask(part, _mm512_sub_epi32(hash, lows), _mm512_set1_epi32((int)span));
        part = _mm512_mask_cmpge_epu32_mask(part, keys, _mm512_set1_epi32((int)n_prefix));
        __m512 values = row->values ? _mm512_maskz_loadu_ps(part, row->values + i) : _mm512_set1_ps(1.0f);
        _mm512_storeu_si512(picks->keys + at, _mm512_maskz_compress_epi32(part, keys));
        _mm512_storeu_si512(picks->rows + at, _mm512_set1_epi32((int)number));
        _mm512_storeu_ps(picks->values + at, _mm512_maskz_compress_ps(part, values));
        at += (size_t)__builtin_popcount(part);
    }
    return at;
}
#else
INLINE size_t pick_row(const mst_row *row, uint32_t number, uint32_t n_prefix, uint32_t low, uint32_t span,
                       mst_picks *picks, size_t at)
{
    for (uint32_t i = 0; i < row->n_keys; i++) {
        uint32_t key = read_key(&row->keys[i]), hash = (key >> MST_OWNER_SHIFT) * MST_OWNER_FACTOR;
        picks->keys[at] = key;
        picks->rows[at] = number;
        picks->values[at] = row->values ? row->values[i] : 1.0f;
        at += (hash - low <= span) & (key >= n_prefix); /* no branch: it would be guessed wrong */
    }
    return at;
}
#endif

static void pick_keys(const mst_row *rows, uint32_t n, uint32_t n_prefix, uint32_t owner, uint32_t n_owners,
                      mst_picks *picks)
{
    /* mst_grad_owner(key) == owner for hashes in [low, low + span] */
    uint64_t end = (((uint64_t)(owner + 1) << 32) + n_owners - 1) / n_owners;
    uint32_t low = (uint32_t)((((uint64_t)owner << 32) + n_owners - 1) / n_owners);
    uint32_t span = (uint32_t)(end - 1 - low);
    size_t at = picks->n;
    for (uint32_t r = 0; r < n; r++) {
        if (r + RECORDS_AHEAD < n)
            prefetch_record(&rows[r + RECORDS_AHEAD]);
        picks->valued |= rows[r].values != NULL;
        at = pick_row(&rows[r], r, n_prefix, low, span, picks, at);
    }
    picks->n = at;
}

enum { PICKS_AHEAD = 48 }; /* keys whose weights are on their way */

static void subtract_picks(const mst_picks *picks, size_t from, size_t to, const float *coefs, float scale,
                           float *sparse)
{
    const uint32_t *keys = picks->keys, *rows = picks->rows;
    for (size_t i = from; i < to; i++) {
        float value = scale * coefs[rows[i]];
        __builtin_prefetch(&sparse[keys[i + PICKS_AHEAD < to ? i + PICKS_AHEAD : i]], 1);
        sparse[keys[i]] -= picks->valued ? value * picks->values[i] : value;
    }
}

static size_t collect_picks(const mst_picks *picks, size_t from, size_t to, const float *coefs, float scale,
                            const mst_linear *w, uint32_t *touched)
{
    const uint32_t *keys = picks->keys, *rows = picks->rows;
    size_t n_touched = 0;
    for (size_t i = from; i < to; i++) {
        float value = scale * coefs[rows[i]], *sum = row_at(w, keys[i]) + SCRATCH, was = *sum;
        __builtin_prefetch(row_at(w, keys[i + PICKS_AHEAD < to ? i + PICKS_AHEAD : i]), 1);
        touched[n_touched] = keys[i];
        n_touched += is_unmarked(was);
        *sum = marked(was + (picks->valued ? value * picks->values[i] : value));
    }
    return n_touched;
}
