/* A reader of the program as a dataset (data/dataset.h): with random access if its number of rows is known,
 * else as a stream.
 *
 * Rows without keys are written by the program directly into the records of a chunk. Rows with keys go
 * through the builder, which sorts them and finds out whether all values are one. A chunk of a stream is made
 * when its block is read, because only one thread at a time may call the program; parsing hands it over.
 *
 * Invariants
 * 1. The chunk of a row follows from the description of the reader: it is the same in every process of a job.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "api/api_impl.h"
#include "base/alloc.h"

#define CHUNK_ROWS  1024
#define CHUNK_BYTES (1u << 20) /* approximately; a chunk has at least one row */

typedef struct reader_dataset {
    mst_dataset base;
    muster_reader reader;
    /* Stream: */
    bool open, ended;
    void *cursor;
    uint64_t next; /* next row */
} reader_dataset;

mst_status mst_api_reader_check(const char *name, const muster_reader *r)
{
    uint64_t features = r->n_features != 0 ? r->n_features : r->n_dense;
    if (name == NULL || name[0] == '\0')
        return mst_fail(MST_EUSAGE, "a reader needs a name");
    if (r->read == NULL)
        return mst_fail(MST_EUSAGE, "reader %s has no read function", name);
    if (r->n_dense == 0 && r->max_keys == 0)
        return mst_fail(MST_EUSAGE, "reader %s: rows need dense numbers or keys", name);
    if (features < r->n_dense || features > UINT32_MAX || (r->max_keys > 0 && features <= r->n_dense))
        return mst_fail(MST_EUSAGE, "reader %s: n_features must be more than n_dense where there are keys",
                        name);
    if (r->n_dense > 1u << 28 || r->max_keys > 1u << 28)
        return mst_fail(MST_EUSAGE, "reader %s: rows of more than 2^28 numbers", name);
    if (r->bytes && r->max_keys > 0)
        return mst_fail(MST_EUSAGE, "reader %s: rows of bytes cannot have keys", name);
    if (r->n_classes < 2 || r->n_classes > 1u << 24)
        return mst_fail(MST_EUSAGE, "reader %s: n_classes must be at least 2", name);
    bool image = r->channels != 0 || r->height != 0 || r->width != 0;
    if (image && (double)r->channels * r->height * r->width != (double)r->n_dense)
        return mst_fail(MST_EUSAGE, "reader %s: an image of %ux%ux%u is not %u numbers", name, r->channels,
                        r->height, r->width, r->n_dense);
    return MST_OK;
}

/* Checks requirements of every training: with a number that is NAN, training would fail much later. */
static mst_status reader_check_values(const reader_dataset *d, uint64_t number, const muster_row *row)
{
    const char *name = d->base.name;
    if (!(isfinite(row->label) && row->label == floorf(row->label)))
        return mst_fail(MST_EINPUT, "reader %s: row %" PRIu64 " has label %g; labels are 0, 1, 2, ...", name,
                        number, (double)row->label);
    for (uint32_t k = 0; !d->reader.bytes && k < d->reader.n_dense; k++)
        if (!isfinite(row->dense[k]))
            return mst_fail(MST_EINPUT, "reader %s: row %" PRIu64 " has %g as number %u", name, number,
                            (double)row->dense[k], k);
    for (uint32_t k = 0; k < row->n_keys; k++) {
        if (!isfinite(row->values[k]))
            return mst_fail(MST_EINPUT, "reader %s: row %" PRIu64 " has %g at key %u", name, number,
                            (double)row->values[k], row->keys[k]);
    }
    return MST_OK;
}

/* Reads a row from the program into prepared memory. */
static mst_status reader_read_row(const reader_dataset *d, void *cursor, uint64_t number, muster_row *row,
                                  bool *end)
{
    const muster_reader *r = &d->reader;
    char who[160];
    int over = 0;
    row->n_dense = r->n_dense;
    row->n_keys = 0;
    row->label = 0.0f;
    row->weight = 1.0f;
    muster_status status = r->read(cursor, number, row, &over);
    *end = over != 0;
    if (status != MUSTER_OK) {
        snprintf(who, sizeof who, "reader %s: row %" PRIu64, d->base.name, number);
        return mst_api_answer(status, who);
    }
    if (over && r->n_rows != 0)
        return mst_fail(MST_EINPUT, "reader %s: it ends at row %" PRIu64 " of %" PRIu64, d->base.name, number,
                        r->n_rows);
    if (row->n_keys > r->max_keys)
        return mst_fail(MST_EINPUT, "reader %s: row %" PRIu64 " has %u keys; the reader declares at most %u",
                        d->base.name, number, row->n_keys, r->max_keys);
    if (!isfinite(row->weight) || row->weight < 0.0f)
        return mst_fail(MST_EINPUT, "reader %s: row %" PRIu64 " has weight %g", d->base.name, number,
                        (double)row->weight);
    return *end ? MST_OK : reader_check_values(d, number, row);
}

/* ---- rows without keys ---- */

static uint32_t reader_record_words(const muster_reader *r)
{
    return 2 + (r->bytes ? (r->n_dense + 3) / 4 : r->n_dense);
}

static void plain_destroy(mst_chunk *self)
{
    mst_free(self);
}

/* n rows from `first`, fewer at the end of a stream. */
static mst_status reader_make_plain(const reader_dataset *d, void *cursor, uint64_t first, uint32_t n,
                                    bool *end, mst_chunk **out)
{
    const muster_reader *r = &d->reader;
    uint32_t stride = reader_record_words(r), i = 0;
    mst_chunk *chunk = mst_zalloc(sizeof *chunk + (size_t)n * stride * 4);
    if (chunk == NULL)
        return mst_fail_memory();
    uint32_t *words = (uint32_t *)(chunk + 1);
    for (; i < n; i++) {
        uint32_t *record = words + (size_t)i * stride;
        float *numbers = (float *)record;
        muster_row row = {.dense = r->bytes ? NULL : numbers + 2,
                          .bytes = r->bytes ? (unsigned char *)(record + 2) : NULL};
        mst_status st = reader_read_row(d, cursor, first + i, &row, end);
        if (st != MST_OK) {
            mst_free(chunk);
            return st;
        }
        if (*end)
            break;
        numbers[0] = row.label;
        numbers[1] = row.weight;
        chunk->min_label = i == 0 ? row.label : fminf(chunk->min_label, row.label);
        chunk->max_label = i == 0 ? row.label : fmaxf(chunk->max_label, row.label);
    }
    chunk->n_rows = i;
    chunk->n_dense = r->n_dense;
    chunk->dense_bytes = r->bytes;
    chunk->has_weights = true;
    chunk->stride = stride;
    chunk->words = words;
    chunk->n_words = (size_t)i * stride;
    chunk->max_key = r->n_dense - 1;
    chunk->n_entries = (uint64_t)i * r->n_dense;
    chunk->bytes_read = chunk->n_words * 4;
    atomic_init(&chunk->references, 1);
    chunk->destroy = plain_destroy;
    *out = chunk;
    return MST_OK;
}

/* ---- rows with keys ---- */

static mst_status reader_add_row(const reader_dataset *d, uint64_t number, const muster_row *row,
                                 mst_chunk_builder *b)
{
    const muster_reader *r = &d->reader;
    TRY(mst_chunk_builder_room(b, (size_t)r->n_dense + row->n_keys));
    for (uint32_t k = 0; k < r->n_dense; k++)
        mst_chunk_builder_add(b, k, row->dense[k]);
    for (uint32_t k = 0; k < row->n_keys; k++) {
        if (row->keys[k] < r->n_dense || row->keys[k] >= r->n_features)
            return mst_fail(MST_EINPUT,
                            "reader %s: row %" PRIu64 " has key %u; keys must be from %u to %" PRIu64,
                            d->base.name, number, row->keys[k], r->n_dense, r->n_features - 1);
        mst_chunk_builder_add(b, row->keys[k], row->values[k]);
    }
    return mst_chunk_builder_end_row(b, row->label, row->weight);
}

static mst_status reader_make_keyed(const reader_dataset *d, void *cursor, uint64_t first, uint32_t n,
                                    bool *end, mst_chunk **out)
{
    const muster_reader *r = &d->reader;
    mst_status st = MST_OK;
    mst_chunk_builder b;
    uint32_t i = 0;
    float *dense = mst_calloc((size_t)r->n_dense + 1, sizeof *dense);
    uint32_t *keys = mst_calloc(r->max_keys, sizeof *keys);
    float *values = mst_calloc(r->max_keys, sizeof *values);
    mst_chunk_builder_init(&b);
    b.max_dense = r->n_dense;
    if (dense == NULL || keys == NULL || values == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    for (; i < n; i++) {
        muster_row row = {.dense = r->n_dense > 0 ? dense : NULL, .keys = keys, .values = values};
        memset(dense, 0, r->n_dense * sizeof *dense);
        for (uint32_t k = 0; k < r->max_keys; k++)
            values[k] = 1.0f;
        TRY_OUT(st, reader_read_row(d, cursor, first + i, &row, end));
        if (*end)
            break;
        TRY_OUT(st, reader_add_row(d, first + i, &row, &b));
    }
    st = mst_chunk_builder_pack(&b, 0, i, out);
out:
    mst_chunk_builder_fini(&b);
    mst_free(values);
    mst_free(keys);
    mst_free(dense);
    return st;
}

static mst_status reader_make(const reader_dataset *d, void *cursor, uint64_t first, uint32_t n, bool *end,
                              mst_chunk **out)
{
    mst_api_forget();
    return d->reader.max_keys > 0 ? reader_make_keyed(d, cursor, first, n, end, out)
                                  : reader_make_plain(d, cursor, first, n, end, out);
}

/* ---- random access ---- */

static mst_status reader_load(mst_dataset *self, uint32_t c, mst_chunk **out)
{
    const reader_dataset *d = (const reader_dataset *)self;
    uint64_t first = (uint64_t)c * self->chunk_rows, left = d->reader.n_rows - first;
    bool end = false;
    return reader_make(d, d->reader.arg, first, left < self->chunk_rows ? (uint32_t)left : self->chunk_rows,
                       &end, out);
}

/* ---- streams: a raw block is a finished chunk ---- */

static void reader_close_cursor(reader_dataset *d)
{
    if (d->open && d->reader.close != NULL)
        d->reader.close(d->cursor);
    d->open = d->ended = false;
    d->next = 0;
}

static mst_status reader_open_cursor(reader_dataset *d)
{
    char who[160];
    d->cursor = d->reader.arg;
    if (d->reader.open != NULL) {
        mst_api_forget();
        snprintf(who, sizeof who, "reader %s: opening", d->base.name);
        TRY(mst_api_answer(d->reader.open(d->reader.arg, &d->cursor), who));
    }
    d->open = true;
    return MST_OK;
}

static mst_status reader_stream_read(mst_dataset *self, mst_raw_block **out)
{
    reader_dataset *d = (reader_dataset *)self;
    *out = NULL;
    if (!d->open)
        TRY(reader_open_cursor(d));
    if (d->ended)
        return MST_OK;
    mst_chunk *chunk = NULL;
    mst_status st = reader_make(d, d->cursor, d->next, self->chunk_rows, &d->ended, &chunk);
    if (st != MST_OK || chunk->n_rows == 0) {
        mst_chunk_release(chunk);
        return st;
    }
    d->next += chunk->n_rows;
    *out = (mst_raw_block *)chunk;
    return MST_OK;
}

static mst_status reader_stream_parse(mst_dataset *self, mst_raw_block *block, mst_chunk_builder *builder,
                                      mst_chunk **out)
{
    (void)self;
    (void)builder;
    *out = (mst_chunk *)block;
    return MST_OK;
}

static void reader_stream_skip(mst_dataset *self, mst_raw_block *block)
{
    (void)self;
    mst_chunk_release((mst_chunk *)block);
}

static mst_status reader_stream_rewind(mst_dataset *self)
{
    reader_close_cursor((reader_dataset *)self);
    return MST_OK;
}

/* ---- life ---- */

static void reader_destroy(mst_dataset *self)
{
    reader_dataset *d = (reader_dataset *)self;
    reader_close_cursor(d);
    mst_free(self->name);
    mst_free(d);
}

static const mst_data_kind reader_kind = {.name = "reader", .capabilities = MST_DATA_FIXED_ROWS};
static const mst_dataset_ops random_ops = {.load = reader_load, .destroy = reader_destroy};
static const mst_dataset_ops stream_ops = {.read = reader_stream_read,
                                           .parse = reader_stream_parse,
                                           .skip = reader_stream_skip,
                                           .rewind = reader_stream_rewind,
                                           .destroy = reader_destroy};

static uint32_t reader_chunk_rows(const muster_reader *r)
{
    uint64_t bytes = r->max_keys > 0 ? 8ull * (r->n_dense + r->max_keys) : 4ull * reader_record_words(r);
    uint64_t rows = CHUNK_BYTES / bytes;
    return rows < 1 ? 1 : rows > CHUNK_ROWS ? CHUNK_ROWS : (uint32_t)rows;
}

mst_status mst_api_reader_open(const char *name, const muster_reader *r, mst_dataset **out)
{
    reader_dataset *d = mst_zalloc(sizeof *d);
    char *copy = mst_strdup(name);
    uint32_t rows = reader_chunk_rows(r);
    uint64_t n_chunks = (r->n_rows + rows - 1) / rows;
    mst_status st = MST_OK;
    if (d == NULL || copy == NULL)
        st = mst_fail_memory();
    else if (n_chunks > UINT32_MAX)
        st = mst_fail(MST_EINPUT, "reader %s: %" PRIu64 " rows are too many", name, r->n_rows);
    if (st != MST_OK) {
        mst_free(d);
        mst_free(copy);
        return st;
    }
    d->reader = *r;
    if (d->reader.n_features == 0)
        d->reader.n_features = r->n_dense;
    d->base = (mst_dataset){
        .kind = &reader_kind,
        .ops = r->n_rows > 0 ? &random_ops : &stream_ops,
        .name = copy,
        .random = r->n_rows > 0,
        .n_chunks = (uint32_t)n_chunks,
        .chunk_rows = rows,
        .info = {.n_rows = r->n_rows,
                 .n_features = d->reader.n_features,
                 .n_dense = r->n_dense,
                 .max_label = (float)(r->n_classes - 1),
                 .labels_integral = true,
                 .index_base = UINT32_MAX,
                 .scanned = true, /* as the program describes it; the feed checks every row */
                 .channels = r->channels,
                 .height = r->height,
                 .width = r->width},
    };
    *out = &d->base;
    return MST_OK;
}
