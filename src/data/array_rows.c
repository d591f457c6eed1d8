/* Rows in arrays of the program; contract in array_rows.h.
 *
 * Invariants
 * 1. After mst_array_rows_new every key, label and field is in range and every number is finite, as long as
 * the program leaves its arrays alone.
 * 2. Chunk c has the rows from c * ARRAY_CHUNK_ROWS on; the facts about it are found by the check, so that a
 * dataset reads no row. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "data/array_rows_impl.h"
#include "data/origin.h"

typedef struct array_dataset {
    mst_dataset base;
    mst_array_rows *rows;
} array_dataset;

/* A chunk that a feed holds. */
typedef struct array_chunk {
    mst_chunk base;
    mst_array_rows *rows;
} array_chunk;

static size_t array_item_size(mst_array_type type)
{
    static const size_t sizes[] = {0, 4, 8, 1, 4, 4, 8};
    return sizes[type];
}

/* ---- making ---- */

static mst_status array_check_spec(const mst_array_spec *s)
{
    const char *name = s->name;
    mst_array_type d = s->dense.type, p = s->starts.type, k = s->keys.type, v = s->values.type;
    const mst_array *all[] = {&s->dense, &s->starts, &s->keys, &s->values, &s->labels, &s->weights};
    uint64_t counts[] = {s->n_rows * s->n_dense, 1, s->n_entries, s->n_entries, s->n_rows, s->n_rows};
    for (size_t i = 0; i < 6; i++) {
        size_t size = (unsigned)all[i]->type <= MST_ARRAY_INT64 ? array_item_size(all[i]->type) : 0;
        if ((unsigned)all[i]->type > MST_ARRAY_INT64)
            return mst_fail(MST_EUSAGE, "%s: %d is not a type of numbers", name, (int)all[i]->type);
        if (size > 0 && counts[i] > 0 && all[i]->data == NULL)
            return mst_fail(MST_EUSAGE, "%s: an array has a type but no data", name);
        if (size > 0 && (uintptr_t)all[i]->data % size != 0)
            return mst_fail(MST_EUSAGE, "%s: an array is not aligned to its numbers of %zu bytes", name,
                            size);
    }
    if (d != MST_ARRAY_NONE && d != MST_ARRAY_FLOAT32 && d != MST_ARRAY_FLOAT64 && d != MST_ARRAY_UINT8)
        return mst_fail(MST_EUSAGE, "%s: dense numbers are float32, float64 or uint8", name);
    if ((p != MST_ARRAY_NONE && p != MST_ARRAY_INT32 && p != MST_ARRAY_INT64) ||
        (p != MST_ARRAY_NONE && k != MST_ARRAY_INT32 && k != MST_ARRAY_UINT32 && k != MST_ARRAY_INT64) ||
        (v != MST_ARRAY_NONE && v != MST_ARRAY_FLOAT32 && v != MST_ARRAY_FLOAT64))
        return mst_fail(MST_EUSAGE,
                        "%s: the starts of rows are int32 or int64, their columns int32, uint32 or int64, "
                        "and their values float32 or float64",
                        name);
    if ((d == MST_ARRAY_NONE) != (s->n_dense == 0) || (d == MST_ARRAY_NONE && p == MST_ARRAY_NONE))
        return mst_fail(MST_EUSAGE, "%s: rows need dense numbers, or starts and columns", name);
    if (s->n_features < s->n_dense || s->n_features > UINT32_MAX || s->n_features == 0 ||
        (p == MST_ARRAY_NONE && s->n_features != s->n_dense) || s->n_dense > 1u << 28)
        return mst_fail(MST_EUSAGE,
                        "%s: %" PRIu64
                        " features with %u dense numbers; features are from 1 to 2^32 - 1, and "
                        "there are more than dense numbers only with columns",
                        name, s->n_features, s->n_dense);
    if (s->stride != 0 && s->stride < s->n_dense)
        return mst_fail(MST_EUSAGE, "%s: rows of %u numbers cannot be %" PRIu64 " numbers apart", name,
                        s->n_dense, s->stride);
    if (d == MST_ARRAY_UINT8 && p != MST_ARRAY_NONE)
        return mst_fail(MST_EUSAGE, "%s: rows of uint8 numbers cannot have further columns", name);
    if (s->n_classes < 2 || s->n_classes > 1u << 24)
        return mst_fail(MST_EUSAGE, "%s: there must be at least 2 classes", name);
    if (s->n_fields > MST_FIELDS_MAX || (s->fields != NULL && s->n_fields == 0) ||
        (s->n_fields > 0 && s->n_fields < s->n_dense))
        return mst_fail(MST_EUSAGE, "%s: %u fields; fields are from 1 to %u, with those of dense numbers",
                        name, s->n_fields, MST_FIELDS_MAX);
    bool image = s->channels != 0 || s->height != 0 || s->width != 0;
    if (image && (double)s->channels * s->height * s->width != (double)s->n_dense)
        return mst_fail(MST_EUSAGE, "%s: an image of %ux%ux%u is not %u numbers", name, s->channels,
                        s->height, s->width, s->n_dense);
    if (s->n_rows > (uint64_t)UINT32_MAX * ARRAY_CHUNK_ROWS || s->n_entries > (uint64_t)1 << 48)
        return mst_fail(MST_EINPUT, "%s: %" PRIu64 " rows are too many", name, s->n_rows);
    return MST_OK;
}

/* Memory for n converted numbers of 4 bytes; freed with the rows. */
static mst_status array_own(mst_array_rows *self, uint64_t n, void *out)
{
    void *block = mst_alloc(n * 4 + 4);
    if (block == NULL)
        return mst_fail_memory();
    self->owned[self->n_owned++] = block;
    memcpy(out, &block, sizeof block);
    return MST_OK;
}

/* Points at an array of floats, or at memory to convert it to. */
static mst_status array_place(mst_array_rows *self, const mst_array *from, uint64_t n, float **converted,
                              const float **out)
{
    *out = NULL;
    if (from->type == MST_ARRAY_FLOAT32)
        *out = from->data;
    if (from->type == MST_ARRAY_FLOAT32 || from->type == MST_ARRAY_NONE)
        return MST_OK;
    TRY(array_own(self, n, converted));
    *out = *converted;
    return MST_OK;
}

static mst_status array_place_all(mst_array_rows *self, mst_array_check *check)
{
    const mst_array_spec *s = &self->spec;
    mst_row_arrays *a = &self->arrays;
    TRY(array_place(self, &s->labels, s->n_rows, &check->labels, &a->labels));
    TRY(array_place(self, &s->weights, s->n_rows, &check->weights, &a->weights));
    a->stride = s->stride;
    if (s->dense.type == MST_ARRAY_UINT8)
        a->bytes = s->dense.data;
    else
        TRY(array_place(self, &s->dense, s->n_rows * s->n_dense, &check->dense, &a->dense));
    if (check->dense != NULL)
        a->stride = s->n_dense;
    if (s->starts.type == MST_ARRAY_NONE)
        return MST_OK;
    a->starts = s->starts.data;
    a->wide_starts = s->starts.type == MST_ARRAY_INT64;
    a->fields = s->fields;
    TRY(mst_array_check_starts(self));
    TRY(array_place(self, &s->values, s->n_entries, &check->values, &a->values));
    a->keys = s->keys.data;
    if (s->keys.type == MST_ARRAY_INT64) {
        TRY(array_own(self, s->n_entries, &check->keys));
        a->keys = check->keys;
    }
    return MST_OK;
}

/* Copies the keys and values, and sorts each row. */
static mst_status array_sort(mst_array_rows *self)
{
    const mst_array_spec *s = &self->spec;
    mst_row_arrays *a = &self->arrays;
    mst_status st = MST_OK;
    uint32_t *keys = NULL;
    float *values = NULL, *unused = NULL; /* unused: of the longest row without values */
    TRY(array_own(self, s->n_entries, &keys));
    memcpy(keys, a->keys, s->n_entries * sizeof *keys);
    if (a->values != NULL) {
        TRY(array_own(self, s->n_entries, &values));
        memcpy(values, a->values, s->n_entries * sizeof *values);
    } else {
        unused = mst_calloc(s->n_entries, sizeof *unused);
        if (unused == NULL)
            return mst_fail_memory();
    }
    for (uint64_t i = 0; st == MST_OK && i < s->n_rows; i++) {
        uint64_t from = mst_array_start(a, i), to = mst_array_start(a, i + 1);
        st = mst_sort_row(keys + from, values != NULL ? values + from : unused, to - from);
    }
    mst_free(unused);
    a->keys = keys;
    a->values = values;
    return st;
}

static void array_make_chunk(mst_array_rows *self, uint32_t c, const mst_array_facts *f)
{
    const mst_array_spec *s = &self->spec;
    mst_data_info *info = &self->info;
    mst_chunk *chunk = &self->chunks[c];
    uint64_t first = (uint64_t)c * ARRAY_CHUNK_ROWS, left = s->n_rows - first;
    chunk->n_rows = left < ARRAY_CHUNK_ROWS ? (uint32_t)left : ARRAY_CHUNK_ROWS;
    chunk->n_dense = info->n_dense;
    chunk->dense_bytes = self->arrays.bytes != NULL;
    chunk->has_weights = self->arrays.weights != NULL;
    chunk->has_values = self->arrays.values != NULL;
    chunk->fielded = s->n_fields > 0;
    chunk->has_fields = s->fields != NULL;
    chunk->any_order = f->any_order && s->n_fields > 0;
    chunk->arrays = &self->arrays;
    chunk->array_row = first;
    chunk->n_entries = f->n_entries + (uint64_t)chunk->n_rows * s->n_dense;
    chunk->max_key = f->n_entries > 0 ? f->max_key : s->n_dense > 0 ? s->n_dense - 1 : 0;
    chunk->max_field = f->max_field;
    if (s->n_dense > 0 && f->max_field < s->n_dense - 1)
        chunk->max_field = s->n_dense - 1;
    chunk->min_label = f->min_label;
    chunk->max_label = f->max_label;
    chunk->whole_labels = true;
    chunk->bytes_read = chunk->n_entries * 4;
    info->n_entries += chunk->n_entries;
    info->n_positive += f->n_positive;
}

static mst_status array_rows_fill(mst_array_rows *self, unsigned n_threads)
{
    const mst_array_spec *s = &self->spec;
    mst_array_check check = {.rows = self};
    mst_status st;
    TRY(array_place_all(self, &check));
    self->n_chunks = (uint32_t)((s->n_rows + ARRAY_CHUNK_ROWS - 1) / ARRAY_CHUNK_ROWS);
    self->chunks = mst_calloc(self->n_chunks + 1u, sizeof *self->chunks);
    check.facts = mst_calloc(self->n_chunks + 1u, sizeof *check.facts);
    if (self->chunks == NULL || check.facts == NULL)
        TRY_OUT(st, mst_fail_memory());
    check.prefix = s->starts.type != MST_ARRAY_NONE ? mst_array_sample_prefix(self) : 0;
    TRY_OUT(st, mst_array_check_run(self, &check, n_threads));
    bool valued = false, tail_valued = false, sorted = true;
    for (uint32_t c = 0; c < self->n_chunks; c++) {
        const mst_array_facts *f = &check.facts[c];
        valued |= f->valued;
        tail_valued |= f->tail_valued;
        sorted &= !f->any_order;
        check.prefix = f->short_prefix ? 0 : check.prefix;
    }
    if (!valued)
        self->arrays.values = NULL;
    if (!sorted && s->n_fields == 0)
        TRY_OUT(st, array_sort(self));
    if (sorted && valued && check.prefix > 0) {
        self->arrays.prefix = check.prefix;
        self->arrays.prefixed = self->arrays.values;
        self->arrays.values = tail_valued ? self->arrays.values : NULL;
    }
    uint32_t n_dense = s->n_dense > 0 ? s->n_dense : self->arrays.prefix;
    self->info = (mst_data_info){
        .n_rows = s->n_rows,
        .n_features = s->n_features,
        .n_dense = n_dense,
        .max_label = (float)(s->n_classes - 1), /* as the program describes it; the smallest is 0 */
        .labels_integral = true,
        .index_base = UINT32_MAX,
        .n_fields = s->n_fields,
        .scanned = true,
        .channels = s->channels,
        .height = s->height,
        .width = s->width,
    };
    for (uint32_t c = 0; c < self->n_chunks; c++)
        array_make_chunk(self, c, &check.facts[c]);
    self->info.bytes = self->info.n_entries * 4;
out:
    mst_free(check.facts);
    return st;
}

mst_status mst_array_rows_new(const mst_array_spec *spec, unsigned n_threads, mst_array_rows **out)
{
    TRY(array_check_spec(spec));
    mst_array_rows *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    atomic_init(&self->references, 1);
    self->spec = *spec;
    if (self->spec.stride == 0)
        self->spec.stride = spec->n_dense;
    self->name = mst_strdup(spec->name);
    mst_status st = self->name != NULL ? array_rows_fill(self, n_threads) : mst_fail_memory();
    if (st != MST_OK) {
        mst_array_rows_release(self);
        return st;
    }
    *out = self;
    return MST_OK;
}

mst_status mst_array_spec_check(const mst_array_spec *spec)
{
    TRY(array_check_spec(spec));
    mst_array_rows rows = {
        .spec = *spec,
        .name = (char *)spec->name, /* not changed */
        .arrays = {.starts = spec->starts.data, .wide_starts = spec->starts.type == MST_ARRAY_INT64}};
    return spec->starts.type != MST_ARRAY_NONE ? mst_array_check_starts(&rows) : MST_OK;
}

static mst_array array_from(mst_array a, uint64_t first)
{
    if (a.type != MST_ARRAY_NONE)
        a.data = (const char *)a.data + first * array_item_size(a.type);
    return a;
}

void mst_array_spec_slice(const mst_array_spec *spec, uint64_t first, uint32_t n, int64_t *starts,
                          mst_array_spec *out)
{
    mst_row_arrays whole = {.starts = spec->starts.data, .wide_starts = spec->starts.type == MST_ARRAY_INT64};
    uint64_t from = 0;
    *out = *spec;
    out->number += first;
    out->n_rows = n;
    out->labels = array_from(spec->labels, first);
    out->weights = array_from(spec->weights, first);
    out->dense = array_from(spec->dense, first * (spec->stride != 0 ? spec->stride : spec->n_dense));
    if (spec->starts.type == MST_ARRAY_NONE)
        return;
    from = mst_array_start(&whole, first);
    for (uint32_t i = 0; i <= n; i++)
        starts[i] = (int64_t)(mst_array_start(&whole, first + i) - from);
    out->starts = (mst_array){starts, MST_ARRAY_INT64};
    out->keys = array_from(spec->keys, from);
    out->values = array_from(spec->values, from);
    out->fields = spec->fields != NULL ? spec->fields + from : NULL;
    out->n_entries = (uint64_t)starts[n];
}

mst_array_rows *mst_array_rows_hold(mst_array_rows *self)
{
    atomic_fetch_add_explicit(&self->references, 1, memory_order_relaxed);
    return self;
}

void mst_array_rows_release(mst_array_rows *self)
{
    if (self == NULL || atomic_fetch_sub_explicit(&self->references, 1, memory_order_acq_rel) != 1)
        return;
    for (unsigned i = 0; i < self->n_owned; i++)
        mst_free(self->owned[i]);
    mst_free(self->chunks);
    mst_free(self->name);
    mst_free(self);
}

const mst_data_info *mst_array_rows_info(const mst_array_rows *self)
{
    return &self->info;
}

const char *mst_array_rows_name(const mst_array_rows *self)
{
    return self->name;
}

uint32_t mst_array_rows_dense(const mst_array_rows *self)
{
    return self->spec.n_dense;
}

void mst_array_rows_get(const mst_array_rows *self, uint64_t number, uint32_t max_dense, mst_row *row)
{
    uint32_t prefix = self->arrays.prefix;
    mst_chunk_row(&self->chunks[number / ARRAY_CHUNK_ROWS], (uint32_t)(number % ARRAY_CHUNK_ROWS), row);
    if (prefix <= max_dense)
        return;
    row->values = row->dense;
    row->keys -= prefix;
    row->n_keys += prefix;
    row->n_dense = 0;
    row->dense = NULL;
}

/* ---- datasets ---- */

static void array_chunk_destroy(mst_chunk *chunk)
{
    mst_array_rows_release(((array_chunk *)chunk)->rows);
    mst_free(chunk);
}

static mst_status array_load(mst_dataset *self, uint32_t c, mst_chunk **out)
{
    mst_array_rows *rows = ((array_dataset *)self)->rows;
    array_chunk *chunk = mst_alloc(sizeof *chunk);
    if (chunk == NULL)
        return mst_fail_memory();
    chunk->base = rows->chunks[c];
    chunk->base.destroy = array_chunk_destroy;
    atomic_init(&chunk->base.references, 1);
    chunk->rows = mst_array_rows_hold(rows);
    *out = &chunk->base;
    return MST_OK;
}

static void array_destroy(mst_dataset *self)
{
    mst_array_rows_release(((array_dataset *)self)->rows);
    mst_free(self->name);
    mst_free(self);
}

static const mst_data_kind array_kind = {.name = "arrays", .capabilities = MST_DATA_FIXED_ROWS};
static const mst_data_kind array_keys_kind = {.name = "arrays"};
static const mst_dataset_ops array_ops = {.load = array_load, .destroy = array_destroy};

mst_status mst_array_rows_open(mst_array_rows *rows, const char *name, mst_dataset **out)
{
    array_dataset *self = mst_zalloc(sizeof *self);
    char *copy = mst_strdup(name);
    if (self == NULL || copy == NULL) {
        mst_free(self);
        mst_free(copy);
        return mst_fail_memory();
    }
    self->rows = mst_array_rows_hold(rows);
    self->base = (mst_dataset){
        .kind = rows->arrays.starts == NULL ? &array_kind : &array_keys_kind,
        .ops = &array_ops,
        .name = copy,
        .random = true,
        .load_is_cheap = true,
        .n_chunks = rows->n_chunks,
        .chunk_rows = ARRAY_CHUNK_ROWS,
        .origin = mst_origin_numbers(),
        .info = rows->info,
    };
    *out = &self->base;
    return MST_OK;
}
