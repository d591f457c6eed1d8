/* Rows in arrays of the program; contract in array_rows.h.
 *
 * Invariants
 * 1. After mst_array_rows_new every key, label and field is in range and every number is finite, as long as
 * the program leaves its arrays alone.
 * 2. Chunk c has the rows from c * ARRAY_CHUNK_ROWS on; the facts about it are found by the check, so that a
 * dataset reads no row. */
#include "data/array_rows.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/isa.h"
#include "base/team.h"
#include "data/origin.h"

#define ARRAY_CHUNK_ROWS 1024

/* Facts about the rows of a chunk. */
typedef struct array_facts {
    uint32_t max_key, max_field;
    uint64_t n_entries, n_positive;
    float min_label, max_label;
    bool any_order, valued;
} array_facts;

struct mst_array_rows {
    atomic_uint references;
    char *name;
    mst_array_spec spec; /* name and arrays are not used after the check */
    mst_row_arrays arrays;
    void *owned[7]; /* converted and sorted arrays */
    unsigned n_owned;
    mst_chunk *chunks; /* templates, with the facts: their references are not counted */
    uint32_t n_chunks;
    mst_data_info info;
};

typedef struct array_dataset {
    mst_dataset base;
    mst_array_rows *rows;
} array_dataset;

/* A chunk that a feed holds. */
typedef struct array_chunk {
    mst_chunk base;
    mst_array_rows *rows;
} array_chunk;

/* ---- numbers of any type ---- */

static size_t array_item_size(mst_array_type type)
{
    static const size_t sizes[] = {0, 4, 8, 1, 4, 4, 8};
    return sizes[type];
}

static double array_number(const mst_array *a, uint64_t i)
{
    switch (a->type) {
    case MST_ARRAY_FLOAT32:
        return (double)((const float *)a->data)[i];
    case MST_ARRAY_FLOAT64:
        return ((const double *)a->data)[i];
    case MST_ARRAY_UINT8:
        return (double)((const uint8_t *)a->data)[i];
    case MST_ARRAY_INT32:
        return (double)((const int32_t *)a->data)[i];
    case MST_ARRAY_UINT32:
        return (double)((const uint32_t *)a->data)[i];
    case MST_ARRAY_INT64:
        return (double)((const int64_t *)a->data)[i];
    case MST_ARRAY_NONE:
        break;
    }
    return 0.0;
}

/* Nonzero if one of the numbers is not finite. */
MST_WIDE static uint32_t array_not_finite(const uint32_t *bits, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++)
        bad |= (uint32_t)((bits[i] & 0x7f800000u) == 0x7f800000u);
    return bad;
}

MST_WIDE static uint32_t array_not_one(const uint32_t *bits, size_t n)
{
    uint32_t other = 0;
    for (size_t i = 0; i < n; i++)
        other |= bits[i] ^ 0x3f800000u;
    return other;
}

MST_WIDE static uint32_t array_max_key(const uint32_t *keys, size_t n)
{
    uint32_t max = 0;
    for (size_t i = 0; i < n; i++)
        max = keys[i] > max ? keys[i] : max;
    return max;
}

MST_WIDE static uint32_t array_min_key(const uint32_t *keys, size_t n)
{
    uint32_t min = UINT32_MAX;
    for (size_t i = 0; i < n; i++)
        min = keys[i] < min ? keys[i] : min;
    return min;
}

MST_WIDE static void array_narrow(const double *from, float *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (float)from[i];
}

/* Keys beyond 32 bits become UINT32_MAX, which no model has. */
MST_WIDE static void array_narrow_keys(const int64_t *from, uint32_t *to, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = from[i] < 0 || from[i] > UINT32_MAX ? UINT32_MAX : (uint32_t)from[i];
}

/* ---- the check ---- */

typedef struct array_check {
    mst_array_rows *rows;
    array_facts *facts;
    atomic_uint next;
    float *labels, *weights, *dense, *values; /* converted; or NULL */
    uint32_t *keys;
    _Atomic uint64_t first_bad; /* chunk; UINT64_MAX: none */
} array_check;

static mst_status array_bad_start(const mst_array_rows *self, uint64_t row)
{
    const mst_row_arrays *a = &self->arrays;
    return mst_fail(MST_EINPUT,
                    "%s: row %" PRIu64 " begins at entry %" PRId64 " and ends at %" PRId64
                    "; there are %" PRIu64 " entries, and rows follow each other",
                    self->name, row, (int64_t)mst_array_start(a, row), (int64_t)mst_array_start(a, row + 1),
                    self->spec.n_entries);
}

/* Finds what is wrong with a row whose chunk the check refused; MST_OK: nothing. */
static mst_status array_explain_row(const mst_array_rows *self, uint64_t row)
{
    const mst_array_spec *s = &self->spec;
    const char *name = self->name;
    double label = s->labels.type != MST_ARRAY_NONE ? array_number(&s->labels, row) : 0.0,
           weight = s->weights.type != MST_ARRAY_NONE ? array_number(&s->weights, row) : 1.0;
    if (!(label >= 0.0 && label < s->n_classes && label == floor(label)))
        return mst_fail(MST_EINPUT, "%s: row %" PRIu64 " has label %g; labels are whole numbers from 0 to %u",
                        name, row, label, s->n_classes - 1);
    if (!(weight >= 0.0 && weight <= (double)FLT_MAX))
        return mst_fail(MST_EINPUT, "%s: row %" PRIu64 " has weight %g; weights are finite and not negative",
                        name, row, weight);
    for (uint32_t k = 0; s->dense.type != MST_ARRAY_NONE && k < s->n_dense; k++) {
        double x = array_number(&s->dense, row * s->stride + k);
        if (!isfinite((float)x))
            return mst_fail(
                MST_EINPUT,
                "%s: row %" PRIu64
                " has %g in column %u; NaN and inf are not allowed, and numbers must fit into 32 bits",
                name, row, x, k);
    }
    if (s->starts.type == MST_ARRAY_NONE)
        return MST_OK;
    uint64_t from = mst_array_start(&self->arrays, row), to = mst_array_start(&self->arrays, row + 1);
    for (uint64_t i = from; i < to; i++) {
        double key = array_number(&s->keys, i),
               x = s->values.type != MST_ARRAY_NONE ? array_number(&s->values, i) : 1.0;
        if (!(key >= s->n_dense && key < (double)s->n_features))
            return mst_fail(MST_EINPUT,
                            "%s: row %" PRIu64 " has column %.0f; columns are from %u to %" PRIu64, name, row,
                            key, s->n_dense, s->n_features - 1);
        if (!isfinite((float)x))
            return mst_fail(
                MST_EINPUT,
                "%s: row %" PRIu64
                " has %g in column %.0f; NaN and inf are not allowed, and numbers must fit into 32 bits",
                name, row, x, key);
        if (s->fields != NULL && s->fields[i] >= s->n_fields)
            return mst_fail(MST_EINPUT, "%s: row %" PRIu64 " has field %u; there are %u fields", name, row,
                            s->fields[i], s->n_fields);
    }
    if (s->n_fields > 0 && s->fields == NULL && to - from + s->n_dense > s->n_fields)
        return mst_fail(MST_EINPUT, "%s: row %" PRIu64 " has %" PRIu64 " entries, but there are %u fields",
                        name, row, to - from + s->n_dense, s->n_fields);
    return MST_OK;
}

static void array_convert(const mst_array *from, float *to, uint64_t first, uint64_t n)
{
    if (to == NULL)
        return;
    if (from->type == MST_ARRAY_FLOAT64)
        array_narrow((const double *)from->data + first, to + first, n);
    else
        for (uint64_t i = first; i < first + n; i++)
            to[i] = (float)array_number(from, i);
}

/* Labels and weights of rows [first, first + n). */
static bool array_check_labels(array_check *c, uint64_t first, uint32_t n, array_facts *f)
{
    const mst_row_arrays *a = &c->rows->arrays;
    float most = (float)(c->rows->spec.n_classes - 1);
    uint32_t bad = 0;
    array_convert(&c->rows->spec.labels, c->labels, first, n);
    array_convert(&c->rows->spec.weights, c->weights, first, n);
    f->min_label = f->max_label = a->labels != NULL ? a->labels[first] : 0.0f;
    for (uint32_t i = 0; a->labels != NULL && i < n; i++) {
        float label = a->labels[first + i];
        bad |= !(label >= 0.0f && label <= most) || label != rintf(label);
        f->min_label = label < f->min_label ? label : f->min_label;
        f->max_label = label > f->max_label ? label : f->max_label;
        f->n_positive += label > 0.0f;
    }
    for (uint32_t i = 0; a->weights != NULL && i < n; i++)
        bad |= !(a->weights[first + i] >= 0.0f && a->weights[first + i] <= FLT_MAX);
    return !bad;
}

static bool array_check_dense(array_check *c, uint64_t first, uint32_t n)
{
    const mst_array_spec *s = &c->rows->spec;
    const mst_row_arrays *a = &c->rows->arrays;
    uint32_t bad = 0;
    for (uint64_t i = first; i < first + n; i++) {
        if (c->dense != NULL)
            for (uint32_t k = 0; k < s->n_dense; k++)
                c->dense[i * s->n_dense + k] = (float)array_number(&s->dense, i * s->stride + k);
        if (a->dense != NULL)
            bad |= array_not_finite((const uint32_t *)(a->dense + i * a->stride), s->n_dense);
    }
    return !bad;
}

/* The keys of row i, [from, to): whether they ascend. */
static bool array_row_ascends(const uint32_t *keys, uint64_t from, uint64_t to)
{
    uint32_t bad = 0;
    for (uint64_t j = from + 1; j < to; j++)
        bad |= keys[j] < keys[j - 1];
    return !bad;
}

static bool array_check_keys(array_check *c, uint64_t first, uint32_t n, array_facts *f)
{
    const mst_array_rows *self = c->rows;
    const mst_array_spec *s = &self->spec;
    const mst_row_arrays *a = &self->arrays;
    uint64_t from = mst_array_start(a, first), to = mst_array_start(a, first + n), count = to - from;
    if (c->keys != NULL)
        array_narrow_keys((const int64_t *)s->keys.data + from, c->keys + from, count);
    array_convert(&s->values, c->values, from, count);
    f->n_entries = count;
    if (count == 0)
        return true;
    f->max_key = array_max_key(a->keys + from, count);
    bool bad = f->max_key >= s->n_features || array_min_key(a->keys + from, count) < s->n_dense;
    if (a->values != NULL) {
        bad |= array_not_finite((const uint32_t *)(a->values + from), count) != 0;
        f->valued = array_not_one((const uint32_t *)(a->values + from), count) != 0;
    }
    for (uint64_t i = first; i < first + n; i++) {
        uint64_t begin = mst_array_start(a, i), end = mst_array_start(a, i + 1);
        f->any_order |= !array_row_ascends(a->keys, begin, end);
        if (s->n_fields > 0 && s->fields == NULL && end > begin &&
            s->n_dense + end - begin - 1 > f->max_field)
            f->max_field = (uint32_t)(s->n_dense + end - begin - 1);
    }
    for (uint64_t i = from; s->fields != NULL && i < to; i++)
        f->max_field = s->fields[i] > f->max_field ? s->fields[i] : f->max_field;
    return !(bad || (s->n_fields > 0 && f->max_field >= s->n_fields));
}

static void array_check_thread(void *arg, unsigned thread)
{
    array_check *c = arg;
    const mst_array_spec *s = &c->rows->spec;
    (void)thread;
    for (uint32_t i; (i = atomic_fetch_add(&c->next, 1)) < c->rows->n_chunks;) {
        uint64_t first = (uint64_t)i * ARRAY_CHUNK_ROWS, left = s->n_rows - first;
        uint32_t n = left < ARRAY_CHUNK_ROWS ? (uint32_t)left : ARRAY_CHUNK_ROWS;
        array_facts *f = &c->facts[i];
        f->n_entries = 0;
        bool good = array_check_labels(c, first, n, f) && array_check_dense(c, first, n) &&
                    (s->starts.type == MST_ARRAY_NONE || array_check_keys(c, first, n, f));
        uint64_t known = atomic_load(&c->first_bad);
        while (!good && i < known && !atomic_compare_exchange_weak(&c->first_bad, &known, i)) {
        }
    }
}

/* Rows follow each other and end at n_entries; from here on a row's entries may be read. */
static mst_status array_check_starts(const mst_array_rows *self)
{
    const mst_row_arrays *a = &self->arrays;
    const mst_array_spec *s = &self->spec;
    uint64_t before = mst_array_start(a, 0), bad = 0;
    if (before != 0)
        return mst_fail(MST_EINPUT, "%s: the first row begins at entry %" PRId64 ", not at 0", self->name,
                        (int64_t)before);
    for (uint64_t i = 1; i <= s->n_rows; i++) {
        uint64_t now = mst_array_start(a, i);
        bad |= (uint64_t)(now < before || now > s->n_entries || now - before > UINT32_MAX / 2);
        before = now;
    }
    for (uint64_t i = 0; bad && i < s->n_rows; i++) {
        uint64_t from = mst_array_start(a, i), to = mst_array_start(a, i + 1);
        if (to < from || to > s->n_entries || to - from > UINT32_MAX / 2)
            return array_bad_start(self, i);
    }
    if (before != s->n_entries)
        return mst_fail(MST_EINPUT,
                        "%s: the last row ends at entry %" PRIu64 ", but there are %" PRIu64 " entries",
                        self->name, before, s->n_entries);
    return MST_OK;
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

static mst_status array_place_all(mst_array_rows *self, array_check *check)
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
    TRY(array_check_starts(self));
    TRY(array_place(self, &s->values, s->n_entries, &check->values, &a->values));
    a->keys = s->keys.data;
    if (s->keys.type == MST_ARRAY_INT64) {
        TRY(array_own(self, s->n_entries, &check->keys));
        a->keys = check->keys;
    }
    return MST_OK;
}

static mst_status array_run_check(mst_array_rows *self, array_check *check, unsigned n_threads)
{
    mst_team *team = NULL;
    unsigned most = self->n_chunks / 4 + 1; /* a thread costs as much as a few chunks */
    atomic_init(&check->next, 0);
    atomic_init(&check->first_bad, UINT64_MAX);
    n_threads = n_threads < most ? n_threads : most;
    if (n_threads > 1) {
        TRY(mst_team_new(n_threads, &team));
        mst_team_run(team, array_check_thread, check);
        mst_team_destroy(team);
    } else {
        array_check_thread(check, 0);
    }
    uint64_t bad = atomic_load(&check->first_bad), first = bad * ARRAY_CHUNK_ROWS;
    if (bad == UINT64_MAX)
        return MST_OK;
    for (uint64_t row = first; row < first + ARRAY_CHUNK_ROWS && row < self->spec.n_rows; row++)
        TRY(array_explain_row(self, row));
    return mst_fail(MST_EINPUT, "%s: the arrays were changed while they were checked", self->name);
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

static void array_make_chunk(mst_array_rows *self, uint32_t c, const array_facts *f)
{
    const mst_array_spec *s = &self->spec;
    mst_data_info *info = &self->info;
    mst_chunk *chunk = &self->chunks[c];
    uint64_t first = (uint64_t)c * ARRAY_CHUNK_ROWS, left = s->n_rows - first;
    chunk->n_rows = left < ARRAY_CHUNK_ROWS ? (uint32_t)left : ARRAY_CHUNK_ROWS;
    chunk->n_dense = s->n_dense;
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
    info->min_label = c == 0 || f->min_label < info->min_label ? f->min_label : info->min_label;
}

static mst_status array_rows_fill(mst_array_rows *self, unsigned n_threads)
{
    const mst_array_spec *s = &self->spec;
    array_check check = {.rows = self};
    mst_status st;
    TRY(array_place_all(self, &check));
    self->n_chunks = (uint32_t)((s->n_rows + ARRAY_CHUNK_ROWS - 1) / ARRAY_CHUNK_ROWS);
    self->chunks = mst_calloc(self->n_chunks + 1u, sizeof *self->chunks);
    check.facts = mst_calloc(self->n_chunks + 1u, sizeof *check.facts);
    if (self->chunks == NULL || check.facts == NULL)
        TRY_OUT(st, mst_fail_memory());
    TRY_OUT(st, array_run_check(self, &check, n_threads));
    bool valued = false, sorted = true;
    for (uint32_t c = 0; c < self->n_chunks; c++) {
        valued |= check.facts[c].valued;
        sorted &= !check.facts[c].any_order;
    }
    if (!valued)
        self->arrays.values = NULL;
    if (!sorted && s->n_fields == 0)
        TRY_OUT(st, array_sort(self));
    self->info = (mst_data_info){
        .n_rows = s->n_rows,
        .n_features = s->n_features,
        .n_dense = s->n_dense,
        .max_label = (float)(s->n_classes - 1), /* as the program describes it */
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

void mst_array_rows_get(const mst_array_rows *self, uint64_t number, mst_row *row)
{
    mst_chunk_row(&self->chunks[number / ARRAY_CHUNK_ROWS], (uint32_t)(number % ARRAY_CHUNK_ROWS), row);
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
