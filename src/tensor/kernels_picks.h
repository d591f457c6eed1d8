/* Part of kernels_impl.h: the keys of each owner among the rows of a synchronous step (mst_picks in grad.h).
 *
 * Few threads: each picks the keys that it owns from the rows of all threads, before it needs any weight.
 * Scanning all rows costs less than passing contributions: a list that one core writes and another reads
 * moves line by line between their caches twice per step, while rows are only read. With AVX-512 a scan takes
 * about 15 ns per row of 26 keys. That is the same for any number of threads, so many threads divide the keys
 * of their own rows among the owners instead. */

#ifdef __AVX512F__
/* Appends the keys under a mask; returns how many they are. */
INLINE uint32_t append_picks(__m512i keys, __m512 values, __mmask16 part, uint32_t number, bool valued,
                             mst_picks *picks, size_t at)
{
    const __m512i row = _mm512_set1_epi64((int64_t)((uint64_t)number << 32));
    __m512i packed = _mm512_maskz_compress_epi32(part, keys);
    __m512i low = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(packed));
    __m512i high = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(packed, 1));
    _mm512_storeu_si512(picks->at + at, _mm512_or_si512(low, row));
    _mm512_storeu_si512(picks->at + at + 8, _mm512_or_si512(high, row));
    if (valued)
        _mm512_storeu_ps(picks->values + at, _mm512_maskz_compress_ps(part, values));
    return (uint32_t)__builtin_popcount(part);
}

INLINE size_t pick_row(const mst_row *row, uint32_t number, uint32_t n_prefix, uint32_t low, uint32_t span,
                       bool valued, mst_picks *picks, size_t at)
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
        at += append_picks(keys, values, part, number, valued, picks, at);
    }
    return at;
}
#else
INLINE size_t pick_row(const mst_row *row, uint32_t number, uint32_t n_prefix, uint32_t low, uint32_t span,
                       bool valued, mst_picks *picks, size_t at)
{
    for (uint32_t i = 0; i < row->n_keys; i++) {
        uint32_t key = read_key(&row->keys[i]), hash = (key >> MST_OWNER_SHIFT) * MST_OWNER_FACTOR;
        picks->at[at] = (mst_pick){key, number};
        if (valued)
            picks->values[at] = value_of(row, i);
        at += (hash - low <= span) & (key >= n_prefix); /* no branch: it would be guessed wrong */
    }
    return at;
}
#endif

INLINE bool rows_valued(const mst_row *rows, uint32_t n)
{
    bool valued = false;
    for (uint32_t r = 0; r < n; r++)
        valued |= rows[r].values != NULL;
    return valued;
}

static void pick_keys(const mst_row *rows, uint32_t n, uint32_t n_prefix, uint32_t owner, uint32_t n_owners,
                      mst_picks *picks)
{
    /* mst_grad_owner(key) == owner for hashes in [low, low + span] */
    uint64_t end = (((uint64_t)(owner + 1) << 32) + n_owners - 1) / n_owners;
    uint32_t low = (uint32_t)((((uint64_t)owner << 32) + n_owners - 1) / n_owners);
    uint32_t span = (uint32_t)(end - 1 - low);
    size_t at = picks->n;
    if (rows_valued(rows, n))
        mst_picks_value(picks);
    for (uint32_t r = 0; r < n; r++) {
        if (r + RECORDS_AHEAD < n)
            prefetch_record(&rows[r + RECORDS_AHEAD]);
        at = picks->valued ? pick_row(&rows[r], r, n_prefix, low, span, true, picks, at)
                           : pick_row(&rows[r], r, n_prefix, low, span, false, picks, at);
    }
    picks->n = at;
}

#ifdef __AVX512F__
/* Keys with those of the map translated. */
INLINE __m512i translate_16(__m512i keys, const mst_key_map *map)
{
    const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    __m512i slot = _mm512_srl_epi32(_mm512_mullo_epi32(keys, _mm512_set1_epi32((int)map->factor)),
                                    _mm_cvtsi32_si128((int)map->shift));
    __m512i low = _mm512_i32gather_epi64(_mm512_castsi512_si256(slot), (const void *)map->buckets, 8);
    __m512i high = _mm512_i32gather_epi64(_mm512_extracti64x4_epi64(slot, 1), (const void *)map->buckets, 8);
    __m512i found = _mm512_permutex2var_epi32(low, evens, high);
    __m512i delta = _mm512_permutex2var_epi32(low, _mm512_add_epi32(evens, _mm512_set1_epi32(1)), high);
    delta = _mm512_add_epi32(delta, _mm512_set1_epi32((int)map->base));
    return _mm512_mask_add_epi32(keys, _mm512_cmpeq_epi32_mask(found, keys), keys, delta);
}

/* Appends the keys of a row to `cold` or, if they are popular, to `hot`. */
INLINE void divide_row(const mst_row *row, uint32_t number, const mst_division *d, uint32_t *keys_out,
                       bool valued, mst_picks *cold, mst_picks *hot)
{
    for (uint32_t i = 0; i < row->n_keys; i += 16) {
        uint32_t left = row->n_keys - i;
        __mmask16 part = left < 16 ? (__mmask16)((1u << left) - 1) : (__mmask16)0xffff, mine = 0;
        __m512i keys = _mm512_maskz_loadu_epi32(part, row->keys + i);
        __m512 values = row->values ? _mm512_maskz_loadu_ps(part, row->values + i) : _mm512_set1_ps(1.0f);
        if (d->map != NULL) {
            keys = translate_16(keys, d->map);
            _mm512_mask_storeu_epi32(keys_out + i, part, keys);
        }
        part = _mm512_mask_cmpge_epu32_mask(part, keys, _mm512_set1_epi32((int)d->n_prefix));
        if (d->map != NULL) {
            __m512i place = _mm512_sub_epi32(keys, _mm512_set1_epi32((int)d->popular));
            mine = _mm512_mask_cmplt_epu32_mask(part, place, _mm512_set1_epi32((int)d->n_popular));
            hot->n += append_picks(place, values, mine, number, valued, hot, hot->n);
        }
        cold->n += append_picks(keys, values, (__mmask16)(part & ~mine), number, valued, cold, cold->n);
    }
}
#else
INLINE void divide_row(const mst_row *row, uint32_t number, const mst_division *d, uint32_t *keys_out,
                       bool valued, mst_picks *cold, mst_picks *hot)
{
    const uint32_t *keys = d->map != NULL ? keys_out : row->keys;
    if (d->map != NULL)
        translate_keys(row, d->map, keys_out, NULL, 1);
    for (uint32_t i = 0; i < row->n_keys; i++) {
        uint32_t key = read_key(&keys[i]), place = key - d->popular;
        bool popular = d->map != NULL && place < d->n_popular;
        mst_picks *list = popular ? hot : cold;
        list->at[list->n] = (mst_pick){popular ? place : key, number};
        if (valued)
            list->values[list->n] = value_of(row, i);
        list->n += key >= d->n_prefix;
    }
}
#endif

/* In two passes, because the number of an owner's keys in a row cannot be predicted: first by popularity, and
 * then all keys that are not popular. */
static void divide_keys(const mst_row *rows, uint32_t n, uint32_t number, const mst_division *d, mst_row *out,
                        uint32_t *keys, mst_picks *owners)
{
    mst_picks *hot = &owners[d->n_owners], *cold = hot + 1;
    mst_picks_clear(cold);
    for (uint32_t o = 0; o < d->n_owners + 2 && (hot->valued || rows_valued(rows, n)); o++)
        mst_picks_value(&owners[o]);
    for (uint32_t r = 0; r < n; r++) {
        if (r + RECORDS_AHEAD < n)
            prefetch_record(&rows[r + RECORDS_AHEAD]);
        if (hot->valued)
            divide_row(&rows[r], number + r, d, keys, true, cold, hot);
        else
            divide_row(&rows[r], number + r, d, keys, false, cold, hot);
        if (d->map != NULL) {
            out[r] = rows[r];
            out[r].keys = keys;
            keys += rows[r].n_keys;
        }
    }
    for (size_t i = 0; i < cold->n; i++) {
        mst_picks *list = &owners[mst_grad_owner(cold->at[i].key, d->n_owners)];
        list->at[list->n] = cold->at[i];
        if (cold->valued)
            list->values[list->n] = cold->values[i];
        list->n++;
    }
}

enum { PICKS_AHEAD = 48 }; /* keys whose weights are on their way */

/* The key of a pick some way ahead, whose weight is needed soon. */
INLINE uint32_t pick_ahead(const mst_picks *picks, size_t i, size_t to)
{
    return picks->at[i + PICKS_AHEAD < to ? i + PICKS_AHEAD : i].key;
}

INLINE float pick_gradient(const mst_picks *picks, size_t i, const float *coefs, float scale)
{
    float value = scale * coefs[picks->at[i].row];
    return picks->valued ? value * picks->values[i] : value;
}

static void add_picks(const mst_picks *picks, size_t from, size_t to, const float *coefs, float *sums)
{
    const mst_pick *at = picks->at;
    if (!picks->valued) {
#pragma GCC unroll 4
        for (size_t i = from; i < to; i++)
            sums[at[i].key] += coefs[at[i].row];
        return;
    }
    for (size_t i = from; i < to; i++)
        sums[at[i].key] += coefs[at[i].row] * picks->values[i];
}

static void subtract_picks(const mst_picks *picks, size_t from, size_t to, const float *coefs, float scale,
                           float *sparse)
{
    for (size_t i = from; i < to && i < from + PICKS_AHEAD; i++)
        __builtin_prefetch(&sparse[picks->at[i].key], 1);
    for (size_t i = from; i < to; i++) {
        __builtin_prefetch(&sparse[pick_ahead(picks, i, to)], 1);
        sparse[picks->at[i].key] -= pick_gradient(picks, i, coefs, scale);
    }
}

static size_t collect_picks(const mst_picks *picks, size_t from, size_t to, const float *coefs, float scale,
                            const mst_linear *w, uint32_t *touched)
{
    size_t n_touched = 0;
    for (size_t i = from; i < to && i < from + PICKS_AHEAD; i++)
        __builtin_prefetch(row_at(w, picks->at[i].key), 1);
    for (size_t i = from; i < to; i++) {
        uint32_t key = picks->at[i].key;
        float *sum = row_at(w, key) + SCRATCH, was = *sum;
        __builtin_prefetch(row_at(w, pick_ahead(picks, i, to)), 1);
        touched[n_touched] = key;
        n_touched += is_unmarked(was);
        *sum = marked(was + pick_gradient(picks, i, coefs, scale));
    }
    return n_touched;
}
