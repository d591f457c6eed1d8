/* The chunk builder: between a format's parser and everything that reads rows.
 *
 * Packing goes over the rows twice. The first pass finds the shared dense prefix and whether all records have
 * one length; the second copies records on the assumption that the values behind the prefix are all one, and
 * starts over with values when it meets another.
 *
 * Invariants
 * 1. The keys of an ended row ascend, or its fields do (equal ones in the order they were added).
 * 2. Features [0, n_dense) occur exactly once in every row of a packed chunk, and no key below n_dense is in
 * a tail. Where rows have fields, dense feature j is of field j.
 * 3. A chunk and its arrays are one allocation; `words` starts on a 64-byte boundary. */
#include "data/chunk.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "data/chunk_pool.h"

#define INSERTION_MAX 48  /* rows up to this long are sorted in place */
#define FIRST_ROWS    512 /* capacities to start with */
#define FIRST_ENTRIES 4096

void mst_chunk_builder_init(mst_chunk_builder *b)
{
    *b = (mst_chunk_builder){.max_dense = UINT32_MAX};
}

void mst_chunk_builder_fini(mst_chunk_builder *b)
{
    mst_free(b->keys);
    mst_free(b->values);
    mst_free(b->fields);
    mst_free(b->row_start);
    mst_free(b->labels);
    mst_free(b->weights);
    mst_free(b->bytes);
    *b = (mst_chunk_builder){0};
}

void mst_chunk_builder_clear(mst_chunk_builder *b)
{
    b->n_entries = 0;
    b->n_rows = 0;
    b->any_weight = false;
    b->row_bytes = 0;
    b->order = MST_ORDER_KEYS;
}

/* Arrays that share a capacity grow one by one; it is raised only when all have grown. */
static bool grow_entries(mst_chunk_builder *b, size_t need)
{
    size_t for_keys = b->entry_capacity, for_values = b->entry_capacity;
    need = need < FIRST_ENTRIES ? FIRST_ENTRIES : need;
    if (!mst_grow(&b->keys, &for_keys, need, sizeof *b->keys) ||
        !mst_grow(&b->values, &for_values, need, sizeof *b->values))
        return false;
    b->entry_capacity = for_keys < for_values ? for_keys : for_values;
    return true;
}

static bool grow_rows(mst_chunk_builder *b, size_t need)
{
    size_t for_start = b->row_capacity, for_labels = b->row_capacity, for_weights = b->row_capacity;
    bool first = b->row_start == NULL;
    need = need < FIRST_ROWS ? FIRST_ROWS : need;
    if (!mst_grow(&b->row_start, &for_start, need, sizeof *b->row_start))
        return false;
    if (first)
        b->row_start[0] = 0;
    if (!mst_grow(&b->labels, &for_labels, need, sizeof *b->labels) ||
        !mst_grow(&b->weights, &for_weights, need, sizeof *b->weights))
        return false;
    b->row_capacity = for_start < for_labels ? for_start : for_labels;
    b->row_capacity = b->row_capacity < for_weights ? b->row_capacity : for_weights;
    return true;
}

mst_status mst_chunk_builder_room(mst_chunk_builder *b, size_t n)
{
    if (n > SIZE_MAX / 16 - b->n_entries)
        return mst_fail_memory();
    if (b->n_entries + n > b->entry_capacity && !grow_entries(b, b->n_entries + n))
        return mst_fail_memory();
    if (b->order == MST_ORDER_FIELDS &&
        !mst_grow(&b->fields, &b->field_capacity, b->entry_capacity, sizeof *b->fields))
        return mst_fail_memory();
    /* row_start has one element more than there are rows, and the row being added needs its end. */
    if (b->n_rows + 2 > b->row_capacity && !grow_rows(b, b->n_rows + 2))
        return mst_fail_memory();
    return MST_OK;
}

static bool chunk_fields_ascend(const uint16_t *fields, size_t n)
{
    unsigned bad = 0;
    for (size_t j = 1; j < n; j++)
        bad |= fields[j] < fields[j - 1];
    return !bad;
}

static bool chunk_ascends(const uint32_t *keys, size_t n)
{
    unsigned bad = 0;
    for (size_t j = 1; j < n; j++)
        bad |= keys[j] < keys[j - 1];
    return !bad;
}

static void insertion_sort(uint32_t *keys, float *values, size_t n)
{
    for (size_t j = 1; j < n; j++) {
        uint32_t key = keys[j];
        float value = values[j];
        size_t i = j;
        for (; i > 0 && keys[i - 1] > key; i--) {
            keys[i] = keys[i - 1];
            values[i] = values[i - 1];
        }
        keys[i] = key;
        values[i] = value;
    }
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sorts (key, position) as one number, which makes any sort stable, then gathers the values. */
static mst_status sort_long(uint32_t *keys, float *values, size_t n)
{
    if (n > UINT32_MAX)
        return mst_fail(MST_EINPUT, "a row of %zu features cannot be sorted", n);
    uint64_t *order = mst_alloc(n * (sizeof *order + sizeof *values));
    if (order == NULL)
        return mst_fail_memory();
    float *copy = (float *)(order + n);
    for (size_t j = 0; j < n; j++)
        order[j] = (uint64_t)keys[j] << 32 | (uint32_t)j;
    memcpy(copy, values, n * sizeof *values);
    qsort(order, n, sizeof *order, compare_u64);
    for (size_t j = 0; j < n; j++) {
        keys[j] = (uint32_t)(order[j] >> 32);
        values[j] = copy[(uint32_t)order[j]];
    }
    mst_free(order);
    return MST_OK;
}

static void insertion_sort_u64(uint64_t *items, size_t n)
{
    for (size_t j = 1; j < n; j++) {
        uint64_t item = items[j];
        size_t i = j;
        for (; i > 0 && items[i - 1] > item; i--)
            items[i] = items[i - 1];
        items[i] = item;
    }
}

/* Sorts (field, position) likewise, then gathers keys, values and fields. */
static mst_status sort_by_field(mst_chunk_builder *b, size_t start, size_t n)
{
    if (n > UINT32_MAX)
        return mst_fail(MST_EINPUT, "a row of %zu features cannot be sorted", n);
    uint64_t few[INSERTION_MAX * 2], *order = n <= INSERTION_MAX ? few : mst_alloc(2 * n * sizeof *order);
    if (order == NULL)
        return mst_fail_memory();
    uint64_t *entries = order + n; /* key and value of each */
    for (size_t j = 0; j < n; j++) {
        uint32_t bits;
        memcpy(&bits, &b->values[start + j], sizeof bits);
        order[j] = (uint64_t)b->fields[start + j] << 32 | (uint32_t)j;
        entries[j] = (uint64_t)b->keys[start + j] << 32 | bits;
    }
    if (n <= INSERTION_MAX)
        insertion_sort_u64(order, n);
    else
        qsort(order, n, sizeof *order, compare_u64);
    for (size_t j = 0; j < n; j++) {
        uint64_t entry = entries[(uint32_t)order[j]];
        uint32_t bits = (uint32_t)entry;
        b->fields[start + j] = (uint16_t)(order[j] >> 32);
        b->keys[start + j] = (uint32_t)(entry >> 32);
        memcpy(&b->values[start + j], &bits, sizeof bits);
    }
    if (order != few)
        mst_free(order);
    return MST_OK;
}

mst_status mst_chunk_builder_image(mst_chunk_builder *b, uint32_t n, uint8_t **planes)
{
    TRY(mst_chunk_builder_room(b, 0));
    size_t before = b->n_rows * (size_t)n;
    if (!mst_grow(&b->bytes, &b->byte_capacity, before + n, 1))
        return mst_fail_memory();
    b->row_bytes = n;
    *planes = b->bytes + before;
    return MST_OK;
}

mst_status mst_sort_row(uint32_t *keys, float *values, size_t n)
{
    if (chunk_ascends(keys, n))
        return MST_OK;
    if (n > INSERTION_MAX)
        return sort_long(keys, values, n);
    insertion_sort(keys, values, n);
    return MST_OK;
}

mst_status mst_chunk_builder_end_row(mst_chunk_builder *b, float label, float weight)
{
    if (b->n_rows + 2 > b->row_capacity)
        TRY(mst_chunk_builder_room(b, 0));
    size_t start = b->row_start[b->n_rows], n = b->n_entries - start;
    if (b->order == MST_ORDER_FIELDS) {
        if (!chunk_fields_ascend(b->fields + start, n))
            TRY(sort_by_field(b, start, n));
    } else if (b->order == MST_ORDER_KEYS) {
        TRY(mst_sort_row(b->keys + start, b->values + start, n));
    }
    b->labels[b->n_rows] = label;
    b->weights[b->n_rows] = weight;
    b->any_weight |= weight != 1.0f;
    b->n_rows++;
    b->row_start[b->n_rows] = b->n_entries;
    return MST_OK;
}

/* ---- packing ---- */

/* The largest k <= limit such that entries 0..k-1 are the features 0..k-1 and the next key is not below k. */
static size_t dense_prefix(const uint32_t *keys, size_t n, size_t limit)
{
    size_t k = n < limit ? n : limit;
    uint32_t different = 0;
    for (size_t j = 0; j < k; j++)
        different |= keys[j] ^ (uint32_t)j;
    if (different) {
        k = 0;
        while (keys[k] == k)
            k++;
    }
    if (k < n && keys[k] < k) /* key k-1 repeats */
        k = keys[k];
    return k;
}

/* Likewise for keys in any order; fields, unless NULL, are those of the entries. */
static size_t dense_prefix_any_order(const uint32_t *keys, const uint16_t *fields, size_t n, size_t limit)
{
    size_t k = 0, most = n < limit ? n : limit;
    while (k < most && keys[k] == k && (fields == NULL || fields[k] == k))
        k++;
    for (size_t j = k; j < n; j++) /* of the entries from keys[j] on, none is below keys[j] */
        k = keys[j] < k ? keys[j] : k;
    return k;
}

typedef struct pack_plan {
    size_t n_dense;
    bool equal; /* all rows have as many entries as the first */
    bool weights, values;
    bool fields, any_order;
    uint32_t max_key, max_field;
    float min_label, max_label;
    bool whole_labels;
} pack_plan;

/* Takes the facts about a row of entries in the order of fields: MST_ORDER_POSITION or MST_ORDER_FIELDS. */
static void plan_fielded_row(const mst_chunk_builder *b, size_t start, size_t n, size_t *k, pack_plan *p)
{
    const uint32_t *keys = b->keys + start;
    const uint16_t *fields = b->order == MST_ORDER_FIELDS ? b->fields + start : NULL;
    uint32_t max_key = p->max_key, other = 0;
    if (n == 0) {
        *k = 0;
        return;
    }
    if (*k > 0)
        *k = dense_prefix_any_order(keys, fields, n, *k);
    for (size_t j = 0; j < n; j++)
        max_key = keys[j] > max_key ? keys[j] : max_key;
    for (size_t j = 0; fields != NULL && j < n; j++)
        other |= fields[j] ^ (uint32_t)j;
    uint32_t last = fields != NULL ? fields[n - 1] : (uint32_t)n - 1;
    p->max_key = max_key;
    p->max_field = last > p->max_field ? last : p->max_field;
    p->fields |= other != 0;
    p->any_order |= !chunk_ascends(keys, n);
}

static void chunk_plan(const mst_chunk_builder *b, size_t from, size_t to, pack_plan *p)
{
    *p = (pack_plan){.equal = true, .whole_labels = true};
    if (from == to)
        return;
    size_t first = b->row_start[from + 1] - b->row_start[from];
    size_t k = b->max_dense;
    p->min_label = p->max_label = b->labels[from];
    for (size_t i = from; i < to; i++) {
        size_t start = b->row_start[i], n = b->row_start[i + 1] - start;
        p->equal &= n == first;
        if (b->order != MST_ORDER_KEYS)
            plan_fielded_row(b, start, n, &k, p);
        else if (k > 0)
            k = dense_prefix(b->keys + start, n, k);
        if (b->order == MST_ORDER_KEYS && n > 0 && b->keys[start + n - 1] > p->max_key)
            p->max_key = b->keys[start + n - 1];
        float label = b->labels[i];
        p->min_label = label < p->min_label ? label : p->min_label;
        p->max_label = label > p->max_label ? label : p->max_label;
        p->whole_labels &= fabsf(label) < 0x1p24f && label == (float)(int32_t)label;
        p->weights |= b->weights[i] != 1.0f;
    }
    p->n_dense = k;
}

static size_t words_of(const mst_chunk_builder *b, size_t from, size_t to, const pack_plan *p)
{
    size_t n_rows = to - from, n_entries = n_rows ? b->row_start[to] - b->row_start[from] : 0,
           tail = n_entries - n_rows * p->n_dense,
           n_words = n_rows * (1 + p->weights + p->n_dense) + (p->values ? 2 * tail : tail);
    for (size_t i = from; p->fields && i < to; i++)
        n_words += (b->row_start[i + 1] - b->row_start[i] - p->n_dense + 1) / 2;
    return n_words;
}

/* Writes n fields and pads them to words; returns the words written. */
static size_t fill_fields(uint32_t *words, const uint16_t *fields, size_t n)
{
    if (n > 0)
        words[(n - 1) / 2] = 0;
    memcpy(words, fields, n * sizeof *fields);
    return (n + 1) / 2;
}

/* Copies the records; false when p has no values and a tail value is not one. */
static bool chunk_fill(const mst_chunk_builder *b, size_t from, size_t to, const pack_plan *p,
                       uint32_t *words, uint32_t *offsets)
{
    static const float one = 1.0f;
    uint32_t one_bits, *w = words;
    memcpy(&one_bits, &one, sizeof one_bits);
    for (size_t i = from; i < to; i++) {
        size_t start = b->row_start[i], n = b->row_start[i + 1] - start - p->n_dense;
        const uint32_t *keys = b->keys + start + p->n_dense;
        const uint32_t *bits = (const uint32_t *)(b->values + start) + p->n_dense;
        if (offsets != NULL)
            *offsets++ = (uint32_t)(w - words);
        memcpy(w++, &b->labels[i], sizeof *w);
        if (p->weights)
            memcpy(w++, &b->weights[i], sizeof *w);
        memcpy(w, b->values + start, p->n_dense * sizeof *w);
        w += p->n_dense;
        if (p->values) {
            memcpy(w, keys, n * sizeof *w);
            memcpy(w + n, bits, n * sizeof *w);
            w += 2 * n;
            w += p->fields ? fill_fields(w, b->fields + start + p->n_dense, n) : 0;
            continue;
        }
        uint32_t other = 0;
        for (size_t j = 0; j < n; j++) {
            w[j] = keys[j];
            other |= bits[j] ^ one_bits;
        }
        if (other)
            return false;
        w += n;
        w += p->fields ? fill_fields(w, b->fields + start + p->n_dense, n) : 0;
    }
    if (offsets != NULL)
        *offsets = (uint32_t)(w - words);
    return true;
}

static size_t round_line(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

mst_status mst_chunk_images_new(uint32_t n_rows, uint32_t n_pixels, bool weights, mst_chunk **out)
{
    size_t head = round_line(sizeof(mst_chunk)), stride = 1 + weights + ((size_t)n_pixels + 3) / 4,
           n_words = n_rows * stride;
    if (n_words > UINT32_MAX)
        return mst_fail(MST_EINPUT, "%u images of %u bytes are too many for one chunk", n_rows, n_pixels);
    mst_chunk *chunk = mst_chunk_pool_take(NULL, head + round_line(n_words * sizeof(uint32_t)));
    if (chunk == NULL)
        return mst_fail_memory();
    uint8_t *block = (uint8_t *)chunk;
    uint32_t *words = (uint32_t *)(block + head);
    for (size_t i = 0; i < n_rows; i++) /* equal images have equal padding */
        words[(i + 1) * stride - 1] = 0;
    *chunk = (mst_chunk){
        .n_rows = n_rows,
        .n_dense = n_pixels,
        .dense_bytes = true,
        .has_weights = weights,
        .stride = (uint32_t)stride,
        .words = words,
        .n_words = n_words,
        .max_key = n_pixels - 1,
        .min_label = INFINITY,
        .max_label = -INFINITY,
        .n_entries = (uint64_t)n_rows * n_pixels,
        .references = 1,
        .destroy = mst_chunk_pool_give,
        .capacity = chunk->capacity,
    };
    *out = chunk;
    return MST_OK;
}

uint8_t *mst_chunk_image(mst_chunk *chunk, uint32_t row)
{
    uint32_t *record = (uint32_t *)chunk->words + (size_t)row * chunk->stride; /* not shared yet */
    return (uint8_t *)(record + 1 + chunk->has_weights);
}

void mst_chunk_image_label(mst_chunk *chunk, uint32_t row, float label)
{
    memcpy((uint32_t *)chunk->words + (size_t)row * chunk->stride, &label, sizeof label);
    chunk->min_label = label < chunk->min_label ? label : chunk->min_label;
    chunk->max_label = label > chunk->max_label ? label : chunk->max_label;
}

/* Rows of images. */
static mst_status pack_images(const mst_chunk_builder *b, size_t from, size_t to, mst_chunk **out)
{
    mst_chunk *chunk;
    TRY(mst_chunk_images_new((uint32_t)(to - from), (uint32_t)b->row_bytes, b->any_weight, &chunk));
    for (size_t i = from; i < to; i++) {
        uint32_t row = (uint32_t)(i - from);
        uint8_t *image = mst_chunk_image(chunk, row);
        mst_chunk_image_label(chunk, row, b->labels[i]);
        if (b->any_weight)
            memcpy(image - sizeof(float), &b->weights[i], sizeof(float));
        memcpy(image, b->bytes + i * b->row_bytes, b->row_bytes);
    }
    *out = chunk;
    return MST_OK;
}

mst_status mst_chunk_builder_pack(const mst_chunk_builder *b, size_t from, size_t to, mst_chunk **out)
{
    pack_plan p;
    if (b->row_bytes != 0 && from < to)
        return pack_images(b, from, to, out);
    chunk_plan(b, from, to, &p);
    size_t n_rows = to - from, n_entries = n_rows ? b->row_start[to] - b->row_start[from] : 0;
    for (;; p.values = true) {
        size_t n_words = words_of(b, from, to, &p);
        if (n_words > UINT32_MAX || n_rows >= UINT32_MAX)
            return mst_fail(MST_EINPUT, "%zu rows with %zu features are too many for one chunk", n_rows,
                            n_entries);
        bool strided = p.equal && n_rows > 0;
        size_t head = round_line(sizeof(mst_chunk)),
               offset_bytes = strided ? 0 : (n_rows + 1) * sizeof(uint32_t);
        mst_chunk *chunk =
            mst_chunk_pool_take(b->pool, head + round_line(n_words * sizeof(uint32_t)) + offset_bytes);
        if (chunk == NULL)
            return mst_fail_memory();
        uint8_t *block = (uint8_t *)chunk;
        uint32_t *words = (uint32_t *)(block + head);
        uint32_t *offsets =
            strided ? NULL : (uint32_t *)(block + head + round_line(n_words * sizeof(uint32_t)));
        if (!chunk_fill(b, from, to, &p, words, offsets)) {
            mst_chunk_pool_give(chunk);
            continue;
        }
        *chunk = (mst_chunk){
            .n_rows = (uint32_t)n_rows,
            .n_dense = (uint32_t)p.n_dense,
            .has_weights = p.weights,
            .has_values = p.values,
            .fielded = b->order != MST_ORDER_KEYS,
            .has_fields = p.fields,
            .any_order = p.any_order,
            .max_field = p.max_field,
            .stride = strided ? (uint32_t)(n_words / n_rows) : 0,
            .offsets = offsets,
            .words = words,
            .n_words = n_words,
            .max_key = p.max_key,
            .min_label = p.min_label,
            .max_label = p.max_label,
            .whole_labels = p.whole_labels,
            .n_entries = n_entries,
            .references = 1,
            .destroy = mst_chunk_pool_give,
            .pool = chunk->pool,
            .capacity = chunk->capacity,
        };
        *out = chunk;
        return MST_OK;
    }
}

/* ---- checking ---- */

mst_status mst_chunk_check(mst_chunk *chunk)
{
    unsigned state = 0;
    if (mst_chunk_checked(chunk) || !atomic_compare_exchange_strong(&chunk->checked, &state, 1))
        return MST_OK;
    mst_status st = chunk->check(chunk);
    atomic_store_explicit(&chunk->checked, st == MST_OK ? 2 : 0, memory_order_release);
    return st;
}

mst_status mst_chunk_check_wait(mst_chunk *chunk)
{
    while (!mst_chunk_checked(chunk)) {
        TRY(mst_chunk_check(chunk));
        if (!mst_chunk_checked(chunk))
            sched_yield(); /* the checking thread needs a fraction of a millisecond and does not wait */
    }
    return MST_OK;
}
