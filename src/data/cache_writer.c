/* The row writer of caches: chunks of any size in, a cache file of equal chunks out. Reader: cache.c; file:
 * docs/CACHE.md.
 *
 * The source key describes the source of the rows. Its last line (mst_cache_key_text) has the options they
 * were read with and their origin, if known. The info given to commit adds bytes and index_base, a larger
 * n_features or n_fields, and the sides of images when they fit the rows.
 *
 * Rows wait in `pending`, which is itself a chunk, until there are chunk_rows of them. Incoming records of
 * pending's layout are appended unchanged; a chunk that mixes layouts gets the layout that can hold both
 * (layout_join). chunk_rows is settled by the first rows: MST_CACHE_ROWS, or as many as fit CHUNK_BYTES.
 *
 * Invariants
 * 1. Facts about the rows (counts, label range, ...) are taken from the rows themselves, never from the
 * caller.
 * 2. The header is written last, so a file without one was never finished. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc.h"
#include "base/file.h"
#include "data/cache.h"
#include "data/cache_file.h"
#include "data/write.h"

#define CHUNK_BYTES (1u << 20)

typedef struct row_layout {
    uint32_t n_dense;
    bool bytes, weights, values, fields;
} row_layout;

typedef struct cache_writer {
    mst_row_writer base;
    mst_out *out;
    char *source_key;
    uint32_t chunk_rows; /* 0: not settled */
    mst_chunk pending;   /* stride 0; offsets and words are the arrays below */
    uint32_t *words, *offsets;
    size_t word_capacity, offset_capacity;
    uint32_t *scratch; /* pending's records while they change layout */
    size_t scratch_capacity;
    cache_entry *table;
    size_t n_chunks, table_capacity;
    uint32_t any_flags; /* of the chunks written */
    bool any_unfielded; /* some of their rows have no fields */
    mst_data_info facts;
} cache_writer;

static mst_status write_zeros(cache_writer *w, uint64_t n)
{
    static const uint8_t zeros[256];
    while (n > 0) {
        size_t piece = n < sizeof zeros ? (size_t)n : sizeof zeros;
        TRY(mst_out_write(w->out, zeros, piece));
        n -= piece;
    }
    return MST_OK;
}

static mst_status write_padding(cache_writer *w)
{
    uint64_t at = mst_out_offset(w->out);
    return write_zeros(w, cache_round(at) - at);
}

static mst_status writer_open(mst_row_writer *self)
{
    cache_writer *w = (cache_writer *)self;
    const char *path = self->path, *source_key = self->source_key != NULL ? self->source_key : "";
    if (strcmp(path, "-") == 0 || mst_ends_with(path, ".gz") || mst_ends_with(path, ".zst"))
        return mst_fail(
            MST_EUSAGE,
            "%s: a cache is read in place and so must be a plain file: give a name without .gz or .zst",
            path);
    if (strlen(source_key) > CACHE_KEY_MAX)
        return mst_fail(MST_EUSAGE, "%s: too many source files for one cache", path);
    w->facts.labels_integral = true;
    w->source_key = mst_strdup(source_key);
    if (w->source_key == NULL)
        return mst_fail_memory();
    TRY(mst_out_open(path, &w->out));
    TRY(write_zeros(w, sizeof(cache_header)));
    TRY(mst_out_write(w->out, source_key, strlen(source_key)));
    return write_padding(w);
}

static void writer_close(mst_row_writer *self)
{
    cache_writer *w = (cache_writer *)self;
    mst_out_close(w->out);
    mst_free(w->source_key);
    mst_free(w->words);
    mst_free(w->offsets);
    mst_free(w->scratch);
    mst_free(w->table);
}

/* ---- layouts ---- */

static row_layout writer_layout_of(const mst_chunk *c)
{
    return (row_layout){c->n_dense, c->dense_bytes, c->has_weights, c->has_values, c->has_fields};
}

static bool layout_same(row_layout a, row_layout b)
{
    return a.n_dense == b.n_dense && a.bytes == b.bytes && a.weights == b.weights && a.values == b.values &&
           a.fields == b.fields;
}

/* The layout that holds rows of both: the shorter dense prefix, with values for the features beyond it. */
static row_layout layout_join(row_layout a, row_layout b)
{
    return (row_layout){
        .n_dense = a.n_dense < b.n_dense ? a.n_dense : b.n_dense,
        .bytes = a.bytes && b.bytes && a.n_dense == b.n_dense,
        .weights = a.weights || b.weights,
        .values = a.values || b.values || a.n_dense != b.n_dense,
        .fields = a.fields || b.fields,
    };
}

static void set_layout(mst_chunk *c, row_layout l)
{
    c->n_dense = l.n_dense;
    c->dense_bytes = l.bytes;
    c->has_weights = l.weights;
    c->has_values = l.values;
    c->has_fields = l.fields;
}

static uint64_t converted_words(const mst_row *row, row_layout l)
{
    uint64_t dense = l.bytes ? ((uint64_t)l.n_dense + 3) / 4 : l.n_dense;
    uint64_t tail = (uint64_t)row->n_keys + (row->n_dense - l.n_dense);
    return 1 + l.weights + dense + (l.values ? 2 * tail : tail) + (l.fields ? (tail + 1) / 2 : 0);
}

/* Writes a row in a layout that layout_join made from its own and another; returns the words written. */
static size_t convert_row(const mst_row *row, row_layout l, uint32_t *words)
{
    float *w = (float *)words;
    *w++ = row->label;
    if (l.weights)
        *w++ = row->weight;
    if (l.bytes) {
        uint32_t n = (l.n_dense + 3) / 4;
        memset(w, 0, n * sizeof *w);
        memcpy(w, row->bytes, l.n_dense);
        w += n;
    } else {
        for (uint32_t j = 0; j < l.n_dense; j++)
            *w++ = mst_row_dense(row, j);
    }
    uint32_t *keys = (uint32_t *)w;
    for (uint32_t j = l.n_dense; j < row->n_dense; j++)
        *keys++ = j;
    for (uint32_t j = 0; j < row->n_keys; j++)
        *keys++ = row->keys[j];
    w = (float *)keys;
    if (l.values) {
        for (uint32_t j = l.n_dense; j < row->n_dense; j++)
            *w++ = mst_row_dense(row, j);
        for (uint32_t j = 0; j < row->n_keys; j++)
            *w++ = row->values != NULL ? row->values[j] : 1.0f;
    }
    if (l.fields) {
        uint32_t tail = row->n_dense - l.n_dense + row->n_keys;
        uint16_t *fields = (uint16_t *)w;
        for (uint32_t j = l.n_dense; j < row->n_dense; j++)
            *fields++ = (uint16_t)j;
        for (uint32_t j = 0; j < row->n_keys; j++)
            *fields++ = (uint16_t)mst_row_field(row, j);
        if (tail % 2 != 0)
            *fields = 0;
        w += (tail + 1) / 2;
    }
    return (size_t)((uint32_t *)w - words);
}

/* ---- pending rows ---- */

static mst_status writer_reserve(cache_writer *w, uint64_t more_words, uint32_t more_rows)
{
    mst_chunk *p = &w->pending;
    if (p->n_words + more_words > UINT32_MAX)
        return mst_fail(MST_EINPUT, "%s: the rows are too large: %u of them make more than 16 GiB",
                        w->base.path, p->n_rows + more_rows);
    if (!mst_grow(&w->words, &w->word_capacity, p->n_words + more_words, sizeof *w->words) ||
        !mst_grow(&w->offsets, &w->offset_capacity, (size_t)p->n_rows + more_rows + 1, sizeof *w->offsets))
        return mst_fail_memory();
    if (p->n_rows == 0)
        w->offsets[0] = 0;
    p->words = w->words;
    p->offsets = w->offsets;
    return MST_OK;
}

static void append_converted(cache_writer *w, const mst_row *row, row_layout l)
{
    mst_chunk *p = &w->pending;
    p->n_words += convert_row(row, l, w->words + p->n_words);
    w->offsets[++p->n_rows] = (uint32_t)p->n_words;
}

static mst_status writer_relayout(cache_writer *w, row_layout l)
{
    mst_chunk old = w->pending;
    mst_row row;
    uint64_t need = 0;
    for (uint32_t i = 0; i < old.n_rows; i++) {
        mst_chunk_row(&old, i, &row);
        need += converted_words(&row, l);
    }
    if (!mst_grow(&w->scratch, &w->scratch_capacity, old.n_words, sizeof *w->scratch))
        return mst_fail_memory();
    memcpy(w->scratch, old.words, old.n_words * sizeof *w->scratch);
    old.words = w->scratch;
    if (need > old.n_words)
        TRY(writer_reserve(w, need - old.n_words, 0));
    set_layout(&w->pending, l);
    w->pending.n_rows = 0;
    w->pending.n_words = 0;
    uint32_t start = 0; /* offsets are rewritten behind the row being read */
    for (uint32_t i = 0; i < old.n_rows; i++) {
        uint32_t end = w->offsets[i + 1];
        mst_chunk one = old;
        one.stride = end - start;
        one.words = old.words + start;
        mst_chunk_row(&one, 0, &row);
        append_converted(w, &row, l);
        start = end;
    }
    return MST_OK;
}

static size_t row_position(const mst_chunk *c, uint32_t i)
{
    return c->stride ? (size_t)i * c->stride : c->offsets[i];
}

/* Appends rows [from, from + n) of the chunk. */
static mst_status writer_append(cache_writer *w, const mst_chunk *c, uint32_t from, uint32_t n)
{
    mst_chunk *p = &w->pending;
    if (p->n_rows == 0) {
        set_layout(p, writer_layout_of(c));
        p->fielded = c->fielded;
        p->any_order = false;
        p->max_field = 0;
    }
    p->fielded &= c->fielded;
    p->any_order |= c->any_order;
    p->max_field = c->max_field > p->max_field ? c->max_field : p->max_field;
    row_layout l = layout_join(writer_layout_of(p), writer_layout_of(c));
    if (!layout_same(l, writer_layout_of(p)))
        TRY(writer_relayout(w, l));
    if (layout_same(l, writer_layout_of(c))) {
        size_t start = row_position(c, from), end = row_position(c, from + n);
        TRY(writer_reserve(w, end - start, n));
        memcpy(w->words + p->n_words, c->words + start, (end - start) * sizeof *w->words);
        for (uint32_t i = 1; i <= n; i++)
            w->offsets[p->n_rows + i] = (uint32_t)(p->n_words + row_position(c, from + i) - start);
        p->n_rows += n;
        p->n_words += end - start;
        return MST_OK;
    }
    for (uint32_t i = from; i < from + n; i++) {
        mst_row row;
        mst_chunk_row(c, i, &row);
        TRY(writer_reserve(w, converted_words(&row, l), 1));
        append_converted(w, &row, l);
    }
    return MST_OK;
}

/* ---- writing chunks ---- */

/* Looks at every pending row: fills the table entry and adds to the facts. */
static void take_facts(cache_writer *w, cache_entry *e)
{
    const mst_chunk *p = &w->pending;
    mst_data_info *f = &w->facts;
    mst_row row;
    bool equal = true;
    uint64_t features = p->n_dense;
    mst_chunk_row(p, 0, &row);
    e->min_label = e->max_label = row.label;
    if (f->n_rows == 0)
        f->min_label = f->max_label = row.label;
    for (uint32_t i = 0; i < p->n_rows; i++) {
        mst_chunk_row(p, i, &row);
        equal &= p->offsets[i + 1] - p->offsets[i] == p->offsets[1];
        for (uint32_t k = row.any_order || row.n_keys == 0 ? 0 : row.n_keys - 1; k < row.n_keys; k++)
            features = row.keys[k] >= features ? (uint64_t)row.keys[k] + 1 : features;
        e->n_entries += (uint64_t)row.n_dense + row.n_keys;
        e->min_label = fminf(e->min_label, row.label);
        e->max_label = fmaxf(e->max_label, row.label);
        f->n_positive += row.label > 0;
        f->labels_integral &= floorf(row.label) == row.label;
    }
    e->n_rows = p->n_rows;
    e->n_dense = p->n_dense;
    e->n_words = p->n_words;
    e->flags = (p->dense_bytes ? CACHE_DENSE_BYTES : 0) | (p->has_weights ? CACHE_WEIGHTS : 0) |
               (p->has_values ? CACHE_VALUES : 0) | (p->has_fields ? CACHE_FIELDS : 0) |
               (p->any_order ? CACHE_ANY_ORDER : 0);
    e->max_field = p->fielded ? p->max_field : 0;
    w->any_flags |= e->flags;
    w->any_unfielded |= !p->fielded;
    e->stride = equal ? p->offsets[1] : 0;
    e->max_key = features > 0 ? (uint32_t)(features - 1) : 0;

    f->n_rows += p->n_rows;
    f->n_entries += e->n_entries;
    f->n_features = features > f->n_features ? features : f->n_features;
    f->n_dense = p->n_dense > f->n_dense ? p->n_dense : f->n_dense;
    f->n_fields = e->max_field >= f->n_fields ? e->max_field + 1 : f->n_fields;
    f->min_label = fminf(f->min_label, e->min_label);
    f->max_label = fmaxf(f->max_label, e->max_label);
}

static mst_status writer_emit(cache_writer *w)
{
    mst_chunk *p = &w->pending;
    if (w->n_chunks == UINT32_MAX ||
        !mst_grow(&w->table, &w->table_capacity, w->n_chunks + 1, sizeof *w->table))
        return mst_fail_memory();
    cache_entry *e = &w->table[w->n_chunks];
    *e = (cache_entry){.offset = mst_out_offset(w->out)};
    take_facts(w, e);
    size_t record_bytes = p->n_words * sizeof *w->words;
    size_t offset_bytes = e->stride ? 0 : ((size_t)p->n_rows + 1) * sizeof *w->offsets;
    e->crc = mst_crc32c(mst_crc32c(0, w->words, record_bytes), w->offsets, offset_bytes);
    TRY(mst_out_write(w->out, w->words, record_bytes));
    TRY(mst_out_write(w->out, w->offsets, offset_bytes));
    TRY(write_padding(w));
    w->n_chunks++;
    p->n_rows = 0;
    p->n_words = 0;
    return MST_OK;
}

/* Number of rows of the chunk, from `from` on, that go into pending before it must be checked again. */
static uint32_t rows_to_take(const cache_writer *w, const mst_chunk *c, uint32_t from)
{
    const mst_chunk *p = &w->pending;
    uint32_t left = c->n_rows - from;
    uint32_t room = (w->chunk_rows ? w->chunk_rows : MST_CACHE_ROWS) - p->n_rows;
    uint32_t n = left < room ? left : room;
    if (w->chunk_rows != 0)
        return n;
    size_t start = row_position(c, from), limit = CHUNK_BYTES / sizeof(uint32_t);
    uint32_t taken = 0;
    while (taken < n && p->n_words + row_position(c, from + taken) - start < limit)
        taken++;
    return taken;
}

static mst_status writer_add(mst_row_writer *self, const mst_chunk *chunk)
{
    cache_writer *w = (cache_writer *)self;
    for (uint32_t from = 0; from < chunk->n_rows;) {
        uint32_t n = rows_to_take(w, chunk, from);
        TRY(writer_append(w, chunk, from, n));
        from += n;
        mst_chunk *p = &w->pending;
        if (w->chunk_rows == 0 &&
            (p->n_rows == MST_CACHE_ROWS || p->n_words >= CHUNK_BYTES / sizeof(uint32_t)))
            w->chunk_rows = p->n_rows;
        if (w->chunk_rows != 0 && p->n_rows == w->chunk_rows)
            TRY(writer_emit(w));
    }
    return MST_OK;
}

static mst_status writer_commit(mst_row_writer *self, const mst_data_info *info)
{
    cache_writer *w = (cache_writer *)self;
    if (w->chunk_rows == 0)
        w->chunk_rows = MST_CACHE_ROWS;
    if (w->pending.n_rows > 0)
        TRY(writer_emit(w));
    const mst_data_info *f = &w->facts;
    uint64_t n_features = f->n_features;
    if (info != NULL && info->n_features > n_features)
        n_features = info->n_features;
    if (n_features > UINT32_MAX)
        return mst_fail(MST_EINPUT, "%s: feature %llu is beyond the largest possible, 4294967294",
                        w->base.path, (unsigned long long)n_features - 1);
    size_t table_bytes = w->n_chunks * sizeof *w->table;
    cache_header h = {
        .magic = CACHE_MAGIC,
        .version = w->any_flags & (CACHE_FIELDS | CACHE_ANY_ORDER) ? CACHE_VERSION : 1,
        .header_size = sizeof h,
        .n_rows = f->n_rows,
        .n_features = n_features,
        .n_entries = f->n_entries,
        .n_positive = f->n_positive,
        .source_bytes = info != NULL ? info->bytes : 0,
        .n_dense = f->n_dense,
        .index_base = info != NULL ? info->index_base : 0,
        .min_label = f->min_label,
        .max_label = f->max_label,
        .flags = f->labels_integral ? CACHE_LABELS_INTEGRAL : 0,
        .n_chunks = (uint32_t)w->n_chunks,
        .chunk_rows = w->chunk_rows,
        .key_size = (uint32_t)strlen(w->source_key),
        .table_offset = mst_out_offset(w->out),
        .table_crc = mst_crc32c(0, w->table, table_bytes),
    };
    if (info != NULL && (uint64_t)info->channels * info->height * info->width == f->n_dense) {
        h.channels = info->channels;
        h.height = info->height;
        h.width = info->width;
    }
    if (!w->any_unfielded && f->n_rows > 0) /* rows may end before the last field */
        h.n_fields = info != NULL && info->n_fields > f->n_fields ? info->n_fields : f->n_fields;
    h.file_size = h.table_offset + table_bytes;
    h.header_crc = mst_crc32c(mst_crc32c(0, &h, sizeof h), w->source_key, h.key_size);
    TRY(mst_out_write(w->out, w->table, table_bytes));
    TRY(mst_out_patch(w->out, 0, &h, sizeof h));
    return mst_out_commit(w->out);
}

const mst_row_writer_ops mst_row_writer_cache = {
    .name = "cache",
    .help = "muster's binary cache: checksummed, read in place and in any order",
    .suffixes = ".cache",
    .size = sizeof(cache_writer),
    .keeps_origin = true,
    .open = writer_open,
    .add = writer_add,
    .commit = writer_commit,
    .close = writer_close,
};
