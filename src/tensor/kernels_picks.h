/* Part of kernels_impl.h: synchronous steps of several threads by blocks of keys (mst_picks in grad.h).
 *
 * The popular keys of a row (18 of the 26 of a click log) are summed side by side, thread by thread; the
 * others are divided among blocks. Popular keys are replaced where they are, so that a row keeps the order of
 * its keys and its values: which keys are popular is different in every row, and moving them costs more than
 * to find them again. A step of 1,000 rows and 16 threads has some 30 keys in each block of a thread, so what
 * follows is written for short lists in the first-level cache.
 *
 * Rows may come as records (batch.h): then one pass reads a record, makes its row and divides its keys.
 *
 * Few threads (MST_FEW_BLOCKS) have no popular keys. Then all keys of a row are divided, and a vector of keys
 * is divided block by block; or, in batches that are not large, each thread picks the keys that it owns from
 * all rows. */

/* Keys that are not popular, on their way to the picks of their blocks. A list of its own: their number in a
 * row cannot be predicted. */
enum { UNPICKED = 128 };
typedef struct unpicked {
    uint32_t keys[UNPICKED + 16], rows[UNPICKED + 16], blocks[UNPICKED + 16];
    float values[UNPICKED + 16];
} unpicked;

/* The keys of an owner, mst_grad_owner: those beyond the prefix whose hash is from `first` on, and not more
 * than `last` above it. */
typedef struct own_keys {
    uint32_t n_prefix, first, last;
} own_keys;

INLINE own_keys own_keys_of(uint32_t n_prefix, uint32_t owner, uint32_t n_owners)
{
    uint64_t first = (((uint64_t)owner << 32) + n_owners - 1) / n_owners,
             end = (((uint64_t)(owner + 1) << 32) + n_owners - 1) / n_owners;
    return (own_keys){.n_prefix = n_prefix, .first = (uint32_t)first, .last = (uint32_t)(end - first - 1)};
}

INLINE bool is_own(const own_keys *own, uint32_t key)
{
    uint32_t hash = (key >> MST_OWNER_SHIFT) * MST_OWNER_FACTOR;
    return (hash - own->first <= own->last) & (key >= own->n_prefix);
}

/* The blocks of n keys of the list. */
INLINE void pick_blocks(unpicked *list, uint32_t n, uint32_t n_blocks);

INLINE void pick_all(unpicked *list, uint32_t n, bool valued, mst_picks *picks)
{
    size_t *ends = picks->ends;
    mst_pick *at = picks->at;
    pick_blocks(list, n, picks->n_blocks);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < n; i++) {
        size_t to = ends[list->blocks[i]]++;
        at[to].key = list->keys[i];
        at[to].row = list->rows[i];
        if (valued)
            picks->values[to] = list->values[i];
    }
}

#ifdef __AVX512F__
/* mst_grad_owner of 16 keys */
INLINE __m512i blocks_of(__m512i keys, uint32_t n_blocks)
{
    const __m512i factor = _mm512_set1_epi32((int)MST_OWNER_FACTOR), n = _mm512_set1_epi32((int)n_blocks);
    __m512i hash = _mm512_mullo_epi32(_mm512_srli_epi32(keys, MST_OWNER_SHIFT), factor);
    __m512i even = _mm512_srli_epi64(_mm512_mul_epu32(hash, n), 32);
    __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(hash, 32), n);
    return _mm512_mask_mov_epi32(even, 0xaaaa, odd);
}

INLINE void pick_blocks(unpicked *list, uint32_t n, uint32_t n_blocks)
{
    for (uint32_t i = 0; i < n; i += 16) /* beyond n: of earlier keys, or of zeros */
        _mm512_storeu_si512(list->blocks + i, blocks_of(_mm512_loadu_si512(list->keys + i), n_blocks));
}

/* Appends the marked keys of a row to the picks at `to`; returns their end. */
INLINE size_t store_picks(__m512i keys, __m512 values, __mmask16 marked, __m512i numbers, bool valued,
                          mst_pick *at, float *values_at, size_t to)
{
    const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0),
                  high = _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8);
    __m512i picked = _mm512_maskz_compress_epi32(marked, keys);
    _mm512_storeu_si512(at + to, _mm512_permutex2var_epi32(picked, low, numbers));
    _mm512_storeu_si512(at + to + 8, _mm512_permutex2var_epi32(picked, high, numbers));
    if (valued)
        _mm512_storeu_ps(values_at + to, _mm512_maskz_compress_ps(marked, values));
    return to + (uint32_t)__builtin_popcount(marked);
}

/* Appends the marked keys of a row to the picks of each block. */
INLINE void pick_vector(__m512i keys, __m512 values, __mmask16 marked, __m512i numbers, bool valued,
                        mst_picks *picks)
{
    const __m512i blocks = blocks_of(keys, picks->n_blocks);
    for (uint32_t b = 0; b < picks->n_blocks; b++) {
        __mmask16 own = _mm512_mask_cmpeq_epi32_mask(marked, blocks, _mm512_set1_epi32((int)b));
        picks->ends[b] =
            store_picks(keys, values, own, numbers, valued, picks->at, picks->values, picks->ends[b]);
    }
}

/* The first n elements of a vector. */
INLINE __mmask16 first_of(uint32_t n)
{
    return (__mmask16)((1u << n) - 1);
}

/* Lists the keys of a row that are neither popular nor below the prefix; returns how many are in the list
 * then. With a map, the keys go to keys_out, the popular ones translated. */
INLINE uint32_t divide_row(const mst_row *row, uint32_t number, uint32_t n_prefix, const mst_key_map *map,
                           bool valued, uint32_t *keys_out, unpicked *list, uint32_t n, mst_picks *picks)
{
    const uint32_t n_keys = row->n_keys;
    const uint32_t *keys_in = row->keys;
    const float *values_in = row->values;
    const __m512i numbers = _mm512_set1_epi32((int)number), prefix = _mm512_set1_epi32((int)n_prefix);
    for (uint32_t i = 0; i < n_keys; i += 16) {
        __mmask16 part = n_keys - i < 16 ? first_of(n_keys - i) : (__mmask16)0xffff;
        __m512i keys = _mm512_maskz_loadu_epi32(part, keys_in + i);
        __mmask16 other = _mm512_mask_cmpge_epu32_mask(part, keys, prefix);
        __m512 values = {};
        if (valued)
            values = values_in ? _mm512_maskz_loadu_ps(part, values_in + i) : _mm512_set1_ps(1.0f);
        if (map == NULL && picks->n_blocks <= MST_FEW_BLOCKS) {
            pick_vector(keys, values, other, numbers, valued, picks);
            continue;
        }
        if (map != NULL) {
            __m512i hash = _mm512_mullo_epi32(keys, _mm512_set1_epi32((int)map->factor));
            __m512i slot = _mm512_srl_epi32(hash, _mm_cvtsi32_si128((int)map->shift));
            __m512i bucket = _mm512_i32gather_epi32(slot, (const void *)map->buckets, 4);
            __m512i place =
                _mm512_xor_si512(bucket, _mm512_sll_epi32(hash, _mm_cvtsi32_si128((int)(32 - map->shift))));
            __mmask16 popular = _mm512_mask_cmplt_epu32_mask(part, place, _mm512_set1_epi32((int)map->n));
            other = (__mmask16)(other & ~popular);
            place = _mm512_add_epi32(place, _mm512_set1_epi32((int)map->base));
            _mm512_mask_storeu_epi32(keys_out + i, part, _mm512_mask_mov_epi32(keys, popular, place));
        }
        if (n > UNPICKED - 16) {
            pick_all(list, n, valued, picks);
            n = 0;
        }
        _mm512_storeu_si512(list->keys + n, _mm512_maskz_compress_epi32(other, keys));
        _mm512_storeu_si512(list->rows + n, numbers);
        if (valued)
            _mm512_storeu_ps(list->values + n, _mm512_maskz_compress_ps(other, values));
        n += (uint32_t)__builtin_popcount(other);
    }
    return n;
}

/* Appends the own keys of a row to the picks at `to`; returns their end. */
INLINE size_t pick_row(const uint32_t *keys_in, const float *values_in, uint32_t n_keys, uint32_t number,
                       const own_keys *own, bool valued, mst_pick *at, float *values_at, size_t to)
{
    const __m512i numbers = _mm512_set1_epi32((int)number), prefix = _mm512_set1_epi32((int)own->n_prefix),
                  factor = _mm512_set1_epi32((int)MST_OWNER_FACTOR),
                  first = _mm512_set1_epi32((int)own->first), last = _mm512_set1_epi32((int)own->last);
    for (uint32_t i = 0; i < n_keys; i += 16) {
        __mmask16 part = n_keys - i < 16 ? first_of(n_keys - i) : (__mmask16)0xffff;
        __m512i keys = _mm512_maskz_loadu_epi32(part, keys_in + i);
        __m512i hash = _mm512_mullo_epi32(_mm512_srli_epi32(keys, MST_OWNER_SHIFT), factor);
        __mmask16 mine = _mm512_mask_cmpge_epu32_mask(part, keys, prefix);
        mine = _mm512_mask_cmple_epu32_mask(mine, _mm512_sub_epi32(hash, first), last);
        __m512 values = {};
        if (valued)
            values = values_in ? _mm512_maskz_loadu_ps(part, values_in + i) : _mm512_set1_ps(1.0f);
        to = store_picks(keys, values, mine, numbers, valued, at, values_at, to);
    }
    return to;
}

/* The places of 16 keys among n_places from key `first` on; of other keys, places behind them. */
INLINE void find_places(const uint32_t *keys, uint32_t n, uint32_t first, uint32_t n_places, uint32_t *places)
{
    const __m512i behind =
        _mm512_add_epi32(_mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
                         _mm512_set1_epi32((int)n_places));
    __mmask16 part = n < 16 ? first_of(n) : (__mmask16)0xffff;
    __m512i place = _mm512_sub_epi32(_mm512_maskz_loadu_epi32(part, keys), _mm512_set1_epi32((int)first));
    __mmask16 popular = _mm512_cmplt_epu32_mask(place, _mm512_set1_epi32((int)n_places));
    _mm512_storeu_si512(places, _mm512_mask_mov_epi32(behind, popular, place));
}
#else
INLINE void pick_blocks(unpicked *list, uint32_t n, uint32_t n_blocks)
{
    for (uint32_t i = 0; i < n; i++)
        list->blocks[i] = mst_grad_owner(list->keys[i], n_blocks);
}

INLINE uint32_t divide_row(const mst_row *row, uint32_t number, uint32_t n_prefix, const mst_key_map *map,
                           bool valued, uint32_t *keys_out, unpicked *list, uint32_t n, mst_picks *picks)
{
    for (uint32_t i = 0; i < row->n_keys; i++) {
        uint32_t key = read_key(&row->keys[i]);
        bool popular = false;
        if (map != NULL) {
            uint32_t hash = key * map->factor,
                     place = mst_map_number(map->buckets[hash >> map->shift], hash, map->shift);
            popular = place < map->n;
            keys_out[i] = key ^ ((key ^ (map->base + place)) & -(uint32_t)popular);
        }
        if (n >= UNPICKED) {
            pick_all(list, n, valued, picks);
            n = 0;
        }
        list->keys[n] = key;
        list->rows[n] = number;
        if (valued)
            list->values[n] = value_of(row, i);
        n += !popular & (key >= n_prefix); /* no branch: it would be guessed wrong */
    }
    return n;
}

INLINE size_t pick_row(const uint32_t *keys, const float *values, uint32_t n_keys, uint32_t number,
                       const own_keys *own, bool valued, mst_pick *at, float *values_at, size_t to)
{
    for (uint32_t i = 0; i < n_keys; i++) {
        uint32_t key = read_key(&keys[i]);
        at[to] = (mst_pick){key, number};
        if (valued)
            values_at[to] = values != NULL ? values[i] : 1.0f;
        to += is_own(own, key);
    }
    return to;
}

INLINE void find_places(const uint32_t *keys, uint32_t n, uint32_t first, uint32_t n_places, uint32_t *places)
{
    for (uint32_t j = 0; j < 16; j++) {
        uint32_t place = (j < n ? keys[j] : 0) - first;
        places[j] = place < n_places ? place : n_places + j;
    }
}
#endif

/* Row r of the rows, or of the records where these are given. */
INLINE mst_row row_to_divide(const mst_row *rows, const mst_records *records, uint32_t r)
{
    if (records == NULL)
        return rows[r];
    mst_row row = records->first;
    size_t words = (size_t)r * records->stride;
    const float *numbers = (const float *)records->words + words;
    row.label = numbers[0];
    row.weight = records->weighted ? numbers[1] : 1.0f;
    row.dense += row.dense != NULL ? words : 0;
    row.bytes += row.bytes != NULL ? words * sizeof(uint32_t) : 0;
    row.keys += words;
    row.values += row.values != NULL ? words : 0;
    row.fields += row.fields != NULL ? 2 * words : 0;
    return row;
}

INLINE void divide_rows(const mst_row *rows, const mst_records *records, uint32_t n, uint32_t n_prefix,
                        const mst_key_map *map, bool valued, mst_row *out, uint32_t *keys, mst_picks *picks)
{
    unpicked list;
    memset(&list, 0, sizeof list); /* blocks of more keys than there are may be computed */
    uint32_t n_list = 0;
    for (uint32_t r = 0; r < n; r++) {
        if (r + RECORDS_AHEAD < n && records != NULL) {
            const uint32_t *ahead = records->words + (size_t)(r + RECORDS_AHEAD) * records->stride;
            prefetch_lines(ahead, ahead + records->stride);
        } else if (r + RECORDS_AHEAD < n) {
            prefetch_record(&rows[r + RECORDS_AHEAD]);
        }
        mst_row row = row_to_divide(rows, records, r);
        n_list = divide_row(&row, r, n_prefix, map, valued, keys, &list, n_list, picks);
        out[r] = row;
        if (map != NULL)
            out[r].keys = keys;
        keys += row.n_keys;
    }
    pick_all(&list, n_list, valued, picks);
}

static void divide_keys(const mst_row *rows, uint32_t n, const mst_division *d, mst_row *out, uint32_t *keys,
                        mst_picks *picks)
{
    /* copies, which no store changes */
    mst_key_map map = d->map != NULL ? *d->map : (mst_key_map){0};
    mst_records records = d->records != NULL ? *d->records : (mst_records){0};
    uint32_t n_prefix = d->n_prefix;
    if (d->map == NULL || picks->valued)
        divide_rows(rows, d->records != NULL ? &records : NULL, n, n_prefix, d->map != NULL ? &map : NULL,
                    picks->valued, out, keys, picks);
    else if (d->records != NULL)
        divide_rows(rows, &records, n, n_prefix, &map, false, out, keys, picks);
    else
        divide_rows(rows, NULL, n, n_prefix, &map, false, out, keys, picks);
}

/* Without a branch: other keys add to MST_PLACES_BEHIND floats behind the sums, side by side so that no
 * addition waits for another. */
static void add_places(const mst_row *rows, uint32_t n, uint32_t first, uint32_t n_places, const float *coefs,
                       float *sums)
{
    for (uint32_t r = 0; r < n; r++) {
        const mst_row *row = &rows[r];
        float coef = coefs[r];
        for (uint32_t i = 0; i < row->n_keys; i += 16) {
            uint32_t part = row->n_keys - i < 16 ? row->n_keys - i : 16, places[16];
            find_places(row->keys + i, part, first, n_places, places);
            if (row->values != NULL) {
                for (uint32_t j = 0; j < part; j++)
                    sums[places[j]] += coef * row->values[i + j];
            } else if (part == 16) {
#pragma GCC unroll 16
                for (uint32_t j = 0; j < 16; j++)
                    sums[places[j]] += coef;
            } else {
                for (uint32_t j = 0; j < part; j++)
                    sums[places[j]] += coef;
            }
        }
    }
}

enum { PICKS_AHEAD = 48 }; /* keys whose weights are on their way */

static void approach_picks(const mst_picks *picks, uint32_t block, const mst_linear *w)
{
    const mst_pick *at = picks->at + block * picks->room;
    size_t n_all = picks->ends[block] - block * picks->room;
    uint32_t n = n_all < PICKS_AHEAD ? (uint32_t)n_all : PICKS_AHEAD;
    size_t stride = w->stride > 1 ? ROW : 1;
    for (uint32_t i = 0; i < n; i++)
        __builtin_prefetch(w->sparse + at[i].key * stride, 1);
}

/* Picks of block 0 whose weights are fetched while others are updated: no more than the caches keep. */
#define NEXT_MOST 32768
INLINE size_t next_picks(const mst_picks *next)
{
    return next == NULL || next->ends[0] > NEXT_MOST ? 0 : next->ends[0];
}

static void subtract_picks(const mst_picks *picks, uint32_t block, const float *coefs, float scale,
                           float *sparse, const mst_picks *next)
{
    const mst_pick *at = picks->at + block * picks->room, *then = next != NULL ? next->at : NULL;
    const float *values = picks->valued ? picks->values + block * picks->room : NULL;
    size_t n = picks->ends[block] - block * picks->room, n_next = next_picks(next);
    for (size_t i = 0; i < n; i++) {
        if (i + PICKS_AHEAD < n)
            __builtin_prefetch(&sparse[at[i + PICKS_AHEAD].key], 1);
        if (i < n_next)
            __builtin_prefetch(&sparse[then[i].key], 1);
        float g = scale * coefs[at[i].row];
        sparse[at[i].key] -= values != NULL ? g * values[i] : g;
    }
}

static size_t collect_picks(const mst_picks *picks, uint32_t block, const float *coefs, float scale,
                            const mst_linear *w, uint32_t *touched, const mst_picks *next)
{
    const mst_pick *at = picks->at + block * picks->room, *then = next != NULL ? next->at : NULL;
    const float *values = picks->valued ? picks->values + block * picks->room : NULL;
    size_t n = picks->ends[block] - block * picks->room, n_next = next_picks(next);
    size_t n_touched = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t key = at[i].key;
        float *sum = row_at(w, key) + SCRATCH, was = *sum, g = scale * coefs[at[i].row];
        if (i + PICKS_AHEAD < n)
            __builtin_prefetch(row_at(w, at[i + PICKS_AHEAD].key), 1);
        if (i < n_next)
            __builtin_prefetch(row_at(w, then[i].key), 1);
        touched[n_touched] = key;
        n_touched += is_unmarked(was);
        *sum = marked(was + (values != NULL ? g * values[i] : g));
    }
    return n_touched;
}

/* ---- the keys that a thread owns ---- */

INLINE void pick_each(const mst_row *rows, const mst_records *records, uint32_t first, uint32_t n,
                      const own_keys *own, bool valued, mst_picks *picks)
{
    mst_pick *at = picks->at;
    float *values_at = picks->values;
    size_t to = picks->ends[0];
    for (uint32_t r = 0; r < n; r++) {
        size_t words = records != NULL ? (size_t)r * records->stride : 0;
        const mst_row *row = records != NULL ? &records->first : &rows[r];
        const float *values = row->values != NULL ? row->values + words : NULL;
        if (r + RECORDS_AHEAD < n && records == NULL) /* the hardware follows records */
            prefetch_record(&rows[r + RECORDS_AHEAD]);
        to = pick_row(row->keys + words, values, row->n_keys, first + r, own, valued, at, values_at, to);
    }
    picks->ends[0] = to;
}

static void pick_own(const mst_row *rows, const mst_records *records, uint32_t first, uint32_t n,
                     uint32_t n_prefix, uint32_t owner, uint32_t n_owners, mst_picks *picks)
{
    own_keys own = own_keys_of(n_prefix, owner, n_owners);
    mst_records copy = records != NULL ? *records : (mst_records){0}; /* which no store changes */
    if (records == NULL)
        pick_each(rows, NULL, first, n, &own, picks->valued, picks);
    else if (picks->valued)
        pick_each(NULL, &copy, first, n, &own, true, picks);
    else
        pick_each(NULL, &copy, first, n, &own, false, picks);
}

/* No branch depends on the number of a row's picks, which cannot be predicted, and no addition waits for a
 * store. The sum so far is in lane 0. */
INLINE void sum_each(const mst_pick *at, const float *values, size_t n, const float *w, size_t stride,
                     float *margins)
{
    typedef int32_t iquad __attribute__((vector_size(16)));
    static const iquad keep[2] = {{0}, {-1}};
    quad sum = {};
    uint32_t row = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        if (i + PICKS_AHEAD < n)
            __builtin_prefetch(&w[at[i + PICKS_AHEAD].key * stride], 1);
        float weight = w[at[i].key * stride];
        sum = (quad)((iquad)sum & keep[at[i].row == row]) +
              (quad){values != NULL ? values[i] * weight : weight};
        row = at[i].row;
        margins[row] = sum[0];
    }
}

static void sum_picks(const mst_picks *picks, const mst_linear *w, float *margins)
{
    size_t n = picks->ends[0];
    if (w->stride > 1)
        sum_each(picks->at, picks->valued ? picks->values : NULL, n, w->sparse, ROW, margins);
    else if (picks->valued)
        sum_each(picks->at, picks->values, n, w->sparse, 1, margins);
    else
        sum_each(picks->at, NULL, n, w->sparse, 1, margins);
}

static void make_rows(const mst_records *records, uint32_t from, uint32_t to, mst_row *out)
{
    const mst_records copy = *records; /* which no store changes */
    for (uint32_t r = from; r < to; r++)
        out[r - from] = row_to_divide(NULL, &copy, r);
}

static void add_prefix(const mst_row *rows, uint32_t n, uint32_t n_prefix, const mst_linear *w,
                       float *margins)
{
    for (uint32_t r = 0; r < n; r++) {
        const mst_row *row = &rows[r];
        if (r + RECORDS_AHEAD < n)
            prefetch_record(&rows[r + RECORDS_AHEAD]);
        float m = prefix_margin(row, w);
        for (uint32_t i = 0; i < row->n_keys; i++) {
            uint32_t key = read_key(&row->keys[i]);
            if (key >= n_prefix)
                break;
            m += value_of(row, i) * w->dense[key];
        }
        margins[r] += m;
    }
}
