/* The registry of row writers, and those of TFRecord. Text formats: write_text.c; cache: cache_writer.c. */
#include "data/write.h"

#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "data/example.h"

/* ---- TFRecord ---- */

typedef struct record_rows {
    mst_row_writer base;
    mst_out *out;
    mst_example_buffer buffer;
} record_rows;

static mst_status record_open(mst_row_writer *self)
{
    return mst_out_open(self->path, &((record_rows *)self)->out);
}

static mst_status record_add(mst_row_writer *self, const mst_chunk *chunk, mst_example_layout layout)
{
    record_rows *w = (record_rows *)self;
    w->buffer.n = 0;
    for (uint32_t i = 0; i < chunk->n_rows; i++) {
        mst_row row;
        mst_chunk_row(chunk, i, &row);
        TRY(mst_example_append(&w->buffer, layout, &row));
    }
    return mst_out_write(w->out, w->buffer.data, w->buffer.n);
}

static mst_status add_pairs(mst_row_writer *self, const mst_chunk *chunk)
{
    return record_add(self, chunk, MST_EXAMPLE_PAIRS);
}

/* A column per field: rows must all have as many, and the numbers must be those that every row has. */
static mst_status write_add_columns(mst_row_writer *self, const mst_chunk *chunk)
{
    if (chunk->has_values || chunk->has_fields || chunk->stride == 0)
        return mst_fail(
            MST_EINPUT,
            "%s: rows with different fields, or with values beside keys, do not fit fixed columns: use "
            "tfrecord in place of tfrecord-columns",
            self->path);
    return record_add(self, chunk, MST_EXAMPLE_COLUMNS);
}

static mst_status record_commit(mst_row_writer *self, const mst_data_info *info)
{
    (void)info;
    return mst_out_commit(((record_rows *)self)->out);
}

static void record_close(mst_row_writer *self)
{
    record_rows *w = (record_rows *)self;
    mst_out_close(w->out);
    mst_free(w->buffer.data);
}

static const mst_row_writer_ops pairs_ops = {
    .name = "tfrecord",
    .help = "TFRecord of tf.Example with label, index and value",
    .suffixes = ".tfrecord .tfrecords",
    .size = sizeof(record_rows),
    .open = record_open,
    .add = add_pairs,
    .commit = record_commit,
    .close = record_close,
};

static const mst_row_writer_ops columns_ops = {
    .name = "tfrecord-columns",
    .help = "TFRecord of tf.Example with label and a column per field: I1.. (numbers), C1.. (keys)",
    .suffixes = "",
    .size = sizeof(record_rows),
    .open = record_open,
    .add = write_add_columns,
    .commit = record_commit,
    .close = record_close,
};

const mst_row_writer_ops *const mst_row_writers[] = {
    &mst_row_writer_libsvm, &mst_row_writer_libffm, &pairs_ops, &columns_ops, &mst_row_writer_criteo,
    &mst_row_writer_vw,     &mst_row_writer_cache,  NULL,
};

/* ---- finding and using ---- */

static mst_status write_unknown(const char *name)
{
    char names[256] = "";
    for (size_t i = 0; mst_row_writers[i] != NULL; i++) {
        strncat(names, i > 0 ? ", " : "", sizeof names - strlen(names) - 1);
        strncat(names, mst_row_writers[i]->name, sizeof names - strlen(names) - 1);
    }
    return mst_fail(MST_EUSAGE, "no format named \"%s\" to write: there are %s", name, names);
}

/* Whether path, of n bytes, ends in one of the suffixes. */
static bool has_suffix(const char *path, size_t n, const char *suffixes)
{
    for (const char *s = suffixes; *s != '\0'; s += strspn(s, " ")) {
        size_t m = strcspn(s, " ");
        if (n > m && memcmp(path + n - m, s, m) == 0)
            return true;
        s += m;
    }
    return false;
}

mst_status mst_row_writer_find(const char *name, const char *path, const mst_row_writer_ops **out)
{
    size_t n = strlen(path);
    if (has_suffix(path, n, ".gz"))
        n -= 3;
    else if (has_suffix(path, n, ".zst"))
        n -= 4;
    for (size_t i = 0; mst_row_writers[i] != NULL; i++) {
        const mst_row_writer_ops *ops = mst_row_writers[i];
        if (name != NULL ? strcmp(ops->name, name) == 0 : has_suffix(path, n, ops->suffixes)) {
            *out = ops;
            return MST_OK;
        }
    }
    if (name != NULL)
        return write_unknown(name);
    return mst_fail(MST_EUSAGE, "the name %s does not determine the format to write: name it with --to",
                    path);
}

mst_status mst_row_writer_new(const mst_row_writer_ops *ops, const char *path, const char *source_key,
                              mst_row_writer **out)
{
    mst_row_writer *w = mst_zalloc(ops->size);
    if (w == NULL)
        return mst_fail_memory();
    w->ops = ops;
    w->source_key = source_key;
    w->path = mst_strdup(path);
    mst_status st = w->path != NULL ? ops->open(w) : mst_fail_memory();
    if (st == MST_OK)
        *out = w;
    else
        mst_row_writer_destroy(w);
    return st;
}

mst_status mst_row_writer_add(mst_row_writer *w, const mst_chunk *chunk)
{
    TRY(w->ops->add(w, chunk));
    w->n_rows += chunk->n_rows;
    return MST_OK;
}

mst_status mst_row_writer_commit(mst_row_writer *w, const mst_data_info *info)
{
    return w->ops->commit(w, info);
}

void mst_row_writer_destroy(mst_row_writer *w)
{
    if (w == NULL)
        return;
    w->ops->close(w);
    mst_free(w->path);
    mst_free(w);
}
