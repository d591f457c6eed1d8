/* The check of rows in arrays: bounds, labels, finite numbers; and the conversion of arrays that are not read
 * in place. Contract in array_rows_impl.h.
 *
 * Chunks are checked by several threads. The first chunk that is refused is read again, row by row, for the
 * message. */
#include <float.h>
#include <inttypes.h>
#include <math.h>

#include "base/isa.h"
#include "base/team.h"
#include "data/array_rows_impl.h"

/* ---- numbers of any type ---- */

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

static mst_status array_bad_start(const mst_array_rows *self, uint64_t row)
{
    const mst_row_arrays *a = &self->arrays;
    return mst_fail(MST_EINPUT,
                    "%s: row %" PRIu64 " begins at entry %" PRId64 " and ends at %" PRId64
                    "; there are %" PRIu64 " entries, and rows follow each other",
                    self->name, self->spec.number + row, (int64_t)mst_array_start(a, row),
                    (int64_t)mst_array_start(a, row + 1), self->spec.n_entries);
}

/* Finds what is wrong with a row whose chunk the check refused; MST_OK: nothing. */
static mst_status array_explain_row(const mst_array_rows *self, uint64_t row)
{
    const mst_array_spec *s = &self->spec;
    const char *name = self->name;
    const uint64_t number = s->number + row; /* in messages */
    double label = s->labels.type != MST_ARRAY_NONE ? array_number(&s->labels, row) : 0.0,
           weight = s->weights.type != MST_ARRAY_NONE ? array_number(&s->weights, row) : 1.0;
    if (!(label >= 0.0 && label < s->n_classes && label == floor(label)))
        return mst_fail(MST_EINPUT, "%s: row %" PRIu64 " has label %g; labels are whole numbers from 0 to %u",
                        name, number, label, s->n_classes - 1);
    if (!(weight >= 0.0 && weight <= (double)FLT_MAX))
        return mst_fail(MST_EINPUT, "%s: row %" PRIu64 " has weight %g; weights are finite and not negative",
                        name, number, weight);
    for (uint32_t k = 0; s->dense.type != MST_ARRAY_NONE && k < s->n_dense; k++) {
        double x = array_number(&s->dense, row * s->stride + k);
        if (!isfinite((float)x))
            return mst_fail(
                MST_EINPUT,
                "%s: row %" PRIu64
                " has %g in column %u; NaN and inf are not allowed, and numbers must fit into 32 bits",
                name, number, x, k);
    }
    if (s->starts.type == MST_ARRAY_NONE)
        return MST_OK;
    uint64_t from = mst_array_start(&self->arrays, row), to = mst_array_start(&self->arrays, row + 1);
    for (uint64_t i = from; i < to; i++) {
        double key = array_number(&s->keys, i),
               x = s->values.type != MST_ARRAY_NONE ? array_number(&s->values, i) : 1.0;
        if (!(key >= s->n_dense && key < (double)s->n_features))
            return mst_fail(MST_EINPUT,
                            "%s: row %" PRIu64 " has column %.0f; columns are from %u to %" PRIu64, name,
                            number, key, s->n_dense, s->n_features - 1);
        if (!isfinite((float)x))
            return mst_fail(
                MST_EINPUT,
                "%s: row %" PRIu64
                " has %g in column %.0f; NaN and inf are not allowed, and numbers must fit into 32 bits",
                name, number, x, key);
        if (s->fields != NULL && s->fields[i] >= s->n_fields)
            return mst_fail(MST_EINPUT, "%s: row %" PRIu64 " has field %u; there are %u fields", name, number,
                            s->fields[i], s->n_fields);
    }
    if (s->n_fields > 0 && s->fields == NULL && to - from + s->n_dense > s->n_fields)
        return mst_fail(MST_EINPUT, "%s: row %" PRIu64 " has %" PRIu64 " entries, but there are %u fields",
                        name, number, to - from + s->n_dense, s->n_fields);
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
static bool array_check_labels(mst_array_check *c, uint64_t first, uint32_t n, mst_array_facts *f)
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

static bool array_check_dense(mst_array_check *c, uint64_t first, uint32_t n)
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

/* The number of a row's keys that are 0, 1, 2, ... from the first on; at most `most`. */
static uint32_t array_row_prefix(const mst_array *keys, uint64_t from, uint64_t to, uint32_t most)
{
    uint32_t n = 0;
    while (n < most && from + n < to && array_number(keys, from + n) == n)
        n++;
    return n < to - from && n > 0 && array_number(keys, from + n) == n - 1 ? n - 1 : n; /* a repeated key */
}

uint32_t mst_array_sample_prefix(const mst_array_rows *self)
{
    enum { SAMPLE = 64, MOST = 1024 };
    const mst_array_spec *s = &self->spec;
    uint32_t prefix = MOST;
    if (s->n_fields > 0 || s->n_dense > 0 || s->values.type == MST_ARRAY_NONE || s->n_rows == 0)
        return 0;
    for (uint32_t i = 0; i < 2 * SAMPLE && prefix > 0; i++) {
        uint64_t row = i < SAMPLE ? i : s->n_rows / SAMPLE * (i - SAMPLE);
        if (row < s->n_rows)
            prefix = array_row_prefix(&s->keys, mst_array_start(&self->arrays, row),
                                      mst_array_start(&self->arrays, row + 1), prefix);
    }
    return prefix;
}

/* Whether a row, whose keys ascend, has the prefix. */
static inline bool array_row_has_prefix(const uint32_t *keys, uint64_t n, uint32_t prefix)
{
    uint32_t different = 0;
    if (n < prefix)
        return false;
    for (uint32_t k = 0; k < prefix; k++)
        different |= keys[k] ^ k;
    return different == 0 && (n == prefix || keys[prefix] >= prefix);
}

/* The keys of rows [first, first + n), in one pass. */
MST_WIDE static void array_scan_keys(const mst_row_arrays *a, uint64_t first, uint32_t n, uint32_t prefix,
                                     uint32_t *min_key, mst_array_facts *f)
{
    *min_key = UINT32_MAX;
    for (uint64_t i = first; i < first + n; i++) {
        uint64_t begin = mst_array_start(a, i), count = mst_array_start(a, i + 1) - begin;
        const uint32_t *keys = a->keys + begin;
        uint32_t falls = 0, low = UINT32_MAX, high = 0;
        for (uint64_t j = 1; j < count; j++)
            falls |= keys[j] < keys[j - 1];
        if (falls == 0 && count > 0) {
            low = keys[0];
            high = keys[count - 1];
        }
        for (uint64_t j = 0; falls != 0 && j < count; j++) {
            low = keys[j] < low ? keys[j] : low;
            high = keys[j] > high ? keys[j] : high;
        }
        *min_key = low < *min_key ? low : *min_key;
        f->max_key = high > f->max_key ? high : f->max_key;
        f->any_order |= falls != 0;
        f->short_prefix |= !array_row_has_prefix(keys, count, prefix);
    }
}

/* Their values, in one pass, after the keys. Nonzero if one is not finite. */
MST_WIDE static uint32_t array_scan_values(const mst_row_arrays *a, uint64_t first, uint32_t n,
                                           uint32_t prefix, mst_array_facts *f)
{
    uint32_t infinite = 0, head = 0, tail = 0;
    prefix = f->short_prefix ? 0 : prefix;
    for (uint64_t i = first; i < first + n; i++) {
        uint64_t begin = mst_array_start(a, i), count = mst_array_start(a, i + 1) - begin;
        const uint32_t *bits = (const uint32_t *)(a->values + begin);
        for (uint64_t j = 0; j < prefix; j++) {
            infinite |= (uint32_t)((bits[j] & 0x7f800000u) == 0x7f800000u);
            head |= bits[j] ^ 0x3f800000u;
        }
        for (uint64_t j = prefix; j < count; j++) {
            infinite |= (uint32_t)((bits[j] & 0x7f800000u) == 0x7f800000u);
            tail |= bits[j] ^ 0x3f800000u;
        }
    }
    f->valued = (head | tail) != 0;
    f->tail_valued = prefix > 0 && tail != 0;
    return infinite;
}

static bool array_check_keys(mst_array_check *c, uint64_t first, uint32_t n, mst_array_facts *f)
{
    const mst_array_rows *self = c->rows;
    const mst_array_spec *s = &self->spec;
    const mst_row_arrays *a = &self->arrays;
    uint64_t from = mst_array_start(a, first), to = mst_array_start(a, first + n), count = to - from;
    if (c->keys != NULL)
        array_narrow_keys((const int64_t *)s->keys.data + from, c->keys + from, count);
    array_convert(&s->values, c->values, from, count);
    f->n_entries = count;
    if (count == 0) {
        f->short_prefix = n > 0;
        return true;
    }
    uint32_t min_key;
    array_scan_keys(a, first, n, c->prefix, &min_key, f);
    bool bad = f->max_key >= s->n_features || min_key < s->n_dense;
    if (a->values != NULL)
        bad |= array_scan_values(a, first, n, c->prefix, f) != 0;
    for (uint64_t i = first; s->n_fields > 0 && s->fields == NULL && i < first + n; i++) {
        uint64_t length = mst_array_start(a, i + 1) - mst_array_start(a, i);
        if (length > 0 && s->n_dense + length - 1 > f->max_field)
            f->max_field = (uint32_t)(s->n_dense + length - 1);
    }
    for (uint64_t i = from; s->fields != NULL && i < to; i++)
        f->max_field = s->fields[i] > f->max_field ? s->fields[i] : f->max_field;
    return !(bad || (s->n_fields > 0 && f->max_field >= s->n_fields));
}

static void array_check_thread(void *arg, unsigned thread)
{
    mst_array_check *c = arg;
    const mst_array_spec *s = &c->rows->spec;
    (void)thread;
    for (uint32_t i; (i = atomic_fetch_add(&c->next, 1)) < c->rows->n_chunks;) {
        uint64_t first = (uint64_t)i * ARRAY_CHUNK_ROWS, left = s->n_rows - first;
        uint32_t n = left < ARRAY_CHUNK_ROWS ? (uint32_t)left : ARRAY_CHUNK_ROWS;
        mst_array_facts *f = &c->facts[i];
        f->n_entries = 0;
        bool good = array_check_labels(c, first, n, f) && array_check_dense(c, first, n) &&
                    (s->starts.type == MST_ARRAY_NONE || array_check_keys(c, first, n, f));
        uint64_t known = atomic_load(&c->first_bad);
        while (!good && i < known && !atomic_compare_exchange_weak(&c->first_bad, &known, i)) {
        }
    }
}

mst_status mst_array_check_starts(const mst_array_rows *self)
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

mst_status mst_array_check_run(mst_array_rows *self, mst_array_check *check, unsigned n_threads)
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
