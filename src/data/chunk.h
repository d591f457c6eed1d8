/* A chunk: some thousand consecutive rows of a dataset in memory, as parsed or as mapped from a cache file.
 *
 * Rows are records of 32-bit words, one after the other, so that reading a row in shuffled order touches as
 * few cache lines as can be: label:f32  [weight:f32]  dense: n_dense f32, or n_dense bytes padded to words
 * keys: n u32  [values: n f32]  [fields: n u16 padded to words] All records of a chunk have the same parts; n
 * follows from the record's length. Or the rows are in arrays that belong to the program (array_rows.h), and
 * the chunk points at them. Chunks are immutable once made, shared by reference count, and safe to read from
 * any thread. */
#ifndef MST_DATA_CHUNK_H
#define MST_DATA_CHUNK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tensor/batch.h"

#define MST_FIELDS_MAX 65536u /* fields of a dataset */

/* Rows in separate arrays: dense numbers, or the keys of a CSR matrix. */
typedef struct mst_row_arrays {
    const float *labels;  /* or NULL: 0 */
    const float *weights; /* or NULL: 1 */
    const float *dense;   /* row i begins at i * stride; or NULL */
    const uint8_t *bytes; /* likewise; or NULL */
    size_t stride;        /* numbers from a row to the next */
    const void *starts;   /* row i has the keys [starts[i], starts[i + 1]); NULL: rows have none */
    bool wide_starts;     /* int64_t, else int32_t */
    const uint32_t *keys;
    const float *values;    /* or NULL: all one */
    const uint16_t *fields; /* or NULL */
    uint32_t prefix;        /* the first keys of every row are 0, 1, ..., prefix - 1, and dense features: */
    const float
        *prefixed; /* with these values, at the places of their keys; `values` are of the other keys */
} mst_row_arrays;

typedef struct mst_chunk mst_chunk;
typedef struct mst_chunk_pool mst_chunk_pool;
struct mst_chunk {
    uint32_t n_rows;
    uint32_t n_dense;
    bool dense_bytes, has_weights, has_values;
    bool fielded;            /* keys belong to fields: those stored, or by position (mst_row_field) */
    bool has_fields;         /* fields are stored */
    bool any_order;          /* keys of some row do not ascend */
    uint32_t stride;         /* words per record when all are equal; 0: see offsets */
    const uint32_t *offsets; /* n_rows + 1 word positions; NULL when stride != 0 */
    const uint32_t *words;   /* the records */
    size_t n_words;
    const mst_row_arrays *arrays; /* the rows from array_row on, in place of records; or NULL */
    uint64_t array_row;
    uint32_t max_key;   /* largest feature number present, dense ones included; 0 when none */
    uint32_t max_field; /* largest field, the dense ones included, where fielded */
    float min_label, max_label;
    bool whole_labels;   /* all labels are known to be whole numbers */
    uint64_t n_entries;  /* features present over all rows, dense ones included */
    uint64_t bytes_read; /* of the input that this chunk was made from */
    uint8_t *dropped;    /* mst_chunk_drop_unseen: 1 for rows that lost entries; NULL: none */
    atomic_uint references;
    void (*destroy)(mst_chunk *self); /* called with the last reference */
    /* Peeked chunks (dataset.h): checks that the rows are valid. NULL: they are. */
    mst_status (*check)(mst_chunk *self);
    atomic_uint checked;  /* 0: not yet; 1: a thread is checking; 2: the rows are valid */
    void *owner;          /* for check */
    mst_chunk_pool *pool; /* of the memory (chunk_pool.h); NULL: from the heap */
    size_t capacity;      /* of the memory, in bytes */
};

/* Whether the rows may be read. */
static inline bool mst_chunk_checked(const mst_chunk *chunk)
{
    return chunk->check == NULL || atomic_load_explicit(&chunk->checked, memory_order_acquire) == 2;
}

/* Checks the chunk unless another thread is checking it, which is MST_OK too: several threads can share the
 * work of checking many chunks and then wait for the rest. After a failure the next call checks again. */
mst_status mst_chunk_check(mst_chunk *chunk);

/* Returns when any thread has checked the chunk; fails if the check does. */
mst_status mst_chunk_check_wait(mst_chunk *chunk);

static inline void mst_chunk_hold(mst_chunk *chunk)
{
    atomic_fetch_add_explicit(&chunk->references, 1, memory_order_relaxed);
}

static inline void mst_chunk_release(mst_chunk *chunk) /* NULL-safe */
{
    if (chunk != NULL && atomic_fetch_sub_explicit(&chunk->references, 1, memory_order_acq_rel) == 1)
        chunk->destroy(chunk);
}

/* A chunk of rows that are images of n_pixels bytes, for the caller to fill before it is shared:
 * every label with mst_chunk_image_label, and the bytes at mst_chunk_image (a weight goes right before them).
 * *out is the caller's to release. */
mst_status mst_chunk_images_new(uint32_t n_rows, uint32_t n_pixels, bool weights, mst_chunk **out);
uint8_t *mst_chunk_image(mst_chunk *chunk, uint32_t row);
void mst_chunk_image_label(mst_chunk *chunk, uint32_t row, float label);

/* Words before the keys of every record. */
static inline uint32_t mst_chunk_head_words(const mst_chunk *c)
{
    return 1u + c->has_weights + (c->dense_bytes ? (c->n_dense + 3) / 4 : c->n_dense);
}

/* Number of keys in `words` words of a record, those after its head. */
static inline uint32_t mst_chunk_n_keys(const mst_chunk *c, uint32_t words)
{
    uint32_t halves = 2u + (c->has_values ? 2 : 0) + c->has_fields; /* of a word per key */
    return (uint32_t)((uint64_t)words * 2 / halves);
}

/* Words that n keys take, with their values and fields. */
static inline uint64_t mst_chunk_key_words(const mst_chunk *c, uint64_t n)
{
    return n + (c->has_values ? n : 0) + (c->has_fields ? (n + 1) / 2 : 0);
}

/* The start of record i. A position outside the chunk, which a changed file can have, gives a record without
 * keys. */
static inline const uint32_t *mst_chunk_record(const mst_chunk *c, uint32_t i, uint32_t *length)
{
    *length = c->stride;
    if (c->stride)
        return c->words + (size_t)i * c->stride;
    uint32_t head = mst_chunk_head_words(c), start = c->offsets[i], end = c->offsets[i + 1];
    bool inside = start <= end && end <= c->n_words && end - start >= head;
    *length = inside ? end - start : head;
    return c->words + (inside ? start : 0);
}

/* Nonzero when one of a record's n keys or fields breaks the promises of its chunk. */
static inline uint32_t mst_chunk_bad_keys(const mst_chunk *c, const uint32_t *keys, uint32_t n)
{
    uint32_t bad = 0;
    if (n == 0)
        return 0;
    if (c->any_order) {
        for (uint32_t j = 0; j < n; j++)
            bad |= keys[j] < c->n_dense || keys[j] > c->max_key;
        return bad;
    }
    for (uint32_t j = 1; j < n; j++)
        bad |= keys[j] < keys[j - 1];
    return bad | (keys[0] < c->n_dense || keys[n - 1] > c->max_key);
}

static inline uint32_t mst_chunk_bad_fields(const mst_chunk *c, const uint16_t *fields, uint32_t n)
{
    uint32_t bad = 0;
    for (uint32_t j = 0; j < n; j++)
        bad |= fields[j] > c->max_field;
    return bad;
}

static inline uint64_t mst_array_start(const mst_row_arrays *a, uint64_t row)
{
    return a->wide_starts ? (uint64_t)((const int64_t *)a->starts)[row]
                          : (uint64_t)((const int32_t *)a->starts)[row];
}

static inline void mst_array_row(const mst_chunk *c, uint64_t at, mst_row *row)
{
    const mst_row_arrays *a = c->arrays;
    uint64_t from = a->starts != NULL ? mst_array_start(a, at) : 0,
             to = a->starts != NULL ? mst_array_start(a, at + 1) : 0;
    row->label = a->labels != NULL ? a->labels[at] : 0.0f;
    row->weight = a->weights != NULL ? a->weights[at] : 1.0f;
    row->n_dense = c->n_dense;
    row->dense = a->dense != NULL ? a->dense + at * a->stride : a->prefix != 0 ? a->prefixed + from : NULL;
    row->bytes = a->bytes != NULL ? a->bytes + at * a->stride : NULL;
    from += a->prefix;
    row->n_keys = (uint32_t)(to - from);
    row->keys = a->keys != NULL ? a->keys + from : NULL;
    row->values = a->values != NULL ? a->values + from : NULL;
    row->fields = a->fields != NULL ? a->fields + from : NULL;
    row->any_order = c->any_order;
}

static inline float mst_chunk_label(const mst_chunk *c, uint32_t i)
{
    uint32_t length;
    if (c->arrays != NULL)
        return c->arrays->labels != NULL ? c->arrays->labels[c->array_row + i] : 0.0f;
    return *(const float *)mst_chunk_record(c, i, &length);
}

static inline void mst_chunk_row(const mst_chunk *c, uint32_t i, mst_row *row)
{
    if (c->arrays != NULL) {
        mst_array_row(c, c->array_row + i, row);
        return;
    }
    uint32_t length, head = mst_chunk_head_words(c);
    const uint32_t *record = mst_chunk_record(c, i, &length);
    const float *numbers = (const float *)record;
    const uint32_t *dense = record + 1 + c->has_weights;
    row->label = numbers[0];
    row->weight = c->has_weights ? numbers[1] : 1.0f;
    row->n_dense = c->n_dense;
    row->dense = c->dense_bytes ? NULL : (const float *)dense;
    row->bytes = c->dense_bytes ? (const uint8_t *)dense : NULL;
    row->n_keys = mst_chunk_n_keys(c, length - head);
    row->keys = record + head;
    row->values = c->has_values ? numbers + head + row->n_keys : NULL;
    row->fields =
        c->has_fields ? (const uint16_t *)(row->keys + (size_t)row->n_keys * (c->has_values ? 2 : 1)) : NULL;
    row->any_order = c->any_order;
}

/* ---- building ---- */

/* Sorts the entries of a row by key, unless they ascend already (stable). */
mst_status mst_sort_row(uint32_t *keys, float *values, size_t n);

/* The order of a row's entries. */
typedef enum mst_row_order {
    MST_ORDER_KEYS,     /* ascending keys; rows have no fields */
    MST_ORDER_POSITION, /* as added: entry i is of field i */
    MST_ORDER_FIELDS,   /* ascending fields, which are given with the entries */
} mst_row_order;

/* Collects rows as a parser finds them, then packs them: finds the longest prefix of features that every row
 * has (features 0..k-1 become dense) and whether the remaining values are all one. Reused from chunk to
 * chunk; parsing a row allocates nothing once the arrays have grown. One thread. */
typedef struct mst_chunk_builder {
    /* The row being added is entries [row_start[n_rows], n_entries). Parsers with tight loops may write keys
     * and values directly after mst_chunk_builder_room, and set n_entries. */
    uint32_t *keys;
    float *values;
    uint16_t *fields; /* MST_ORDER_FIELDS only */
    size_t n_entries, entry_capacity, field_capacity;
    mst_row_order order; /* of all rows since the last clear, which sets MST_ORDER_KEYS; see
                            mst_chunk_builder_set_order */
    size_t *row_start;   /* n_rows + 1 valid */
    float *labels, *weights;
    size_t n_rows, row_capacity;
    bool any_weight;
    uint8_t *bytes; /* rows of images: row_bytes each, in place of entries */
    size_t byte_capacity;
    uint32_t row_bytes;   /* 0: rows have entries */
    uint32_t max_dense;   /* the longest dense prefix that pack makes; unlimited after init */
    mst_chunk_pool *pool; /* for the memory of packed chunks; NULL after init: the heap */
} mst_chunk_builder;

void mst_chunk_builder_init(mst_chunk_builder *b);
void mst_chunk_builder_fini(mst_chunk_builder *b);
void mst_chunk_builder_clear(mst_chunk_builder *b);

/* For rows with fields, before any is added: keys below n_dense are dense features, and others are never. */
static inline void mst_chunk_builder_set_order(mst_chunk_builder *b, mst_row_order order, uint32_t n_dense)
{
    b->order = order;
    b->max_dense = n_dense < b->max_dense ? n_dense : b->max_dense;
}

/* Room for n more entries and one more row. */
mst_status mst_chunk_builder_room(mst_chunk_builder *b, size_t n);

/* Adds one feature to the current row; any order; repeated keys are kept. Caller has made room. */
static inline void mst_chunk_builder_add(mst_chunk_builder *b, uint32_t key, float value)
{
    b->keys[b->n_entries] = key;
    b->values[b->n_entries] = value;
    b->n_entries++;
}

/* Adds one feature of a field: MST_ORDER_FIELDS, set before room was made. */
static inline void mst_chunk_builder_add_field(mst_chunk_builder *b, uint16_t field, uint32_t key,
                                               float value)
{
    b->fields[b->n_entries] = field;
    mst_chunk_builder_add(b, key, value);
}

/* Makes the current row an image of n bytes, the same for all rows since the last clear; *planes is for the
 * caller to fill. */
mst_status mst_chunk_builder_image(mst_chunk_builder *b, uint32_t n, uint8_t **planes);

/* Ends the current row: sorts its entries, by key or by field, when they are out of order (stable). */
mst_status mst_chunk_builder_end_row(mst_chunk_builder *b, float label, float weight);
/* Forgets the entries of a row not ended. */
static inline void mst_chunk_builder_drop_row(mst_chunk_builder *b)
{
    b->n_entries = b->row_start[b->n_rows];
}

/* Rows with fields without the features from `features` on and those of fields from `fields` on (0: all
 * fields stay). `from` is checked; *out is a new chunk with one reference, the caller's. */
mst_status mst_chunk_drop_unseen(const mst_chunk *from, uint64_t features, uint32_t fields, mst_chunk **out);

/* Packs rows [from, to) into a new chunk (one reference, the caller's). The builder keeps its rows. */
mst_status mst_chunk_builder_pack(const mst_chunk_builder *b, size_t from, size_t to, mst_chunk **out);

#endif
