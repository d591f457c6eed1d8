/* Files with an index: the random-access dataset over plain text and TFRecord files, and the maker of its
 * index.
 *
 * The files are mapped. Chunk c holds the rows [n c, n (c + 1)) of all files together, n = chunk_rows; it is
 * found by the entry at or before its first row in a file, passing over the lines or records between the two,
 * and parsed when it is loaded. Chunks have 4096 rows, or fewer if rows are images.
 *
 * Invariants
 * 1. Which lines are rows is decided by mst_line_is_row alone, which records by the format. A
 * chunk that parses to another number of rows is MST_EINPUT, never a chunk of another size.
 * 2. Offsets of a valid index ascend and lie within the file; checked when it is opened.
 * 3. After open everything is read-only but the list of builders, which free_mutex guards: load may run
 * anywhere. */
#include "data/indexed.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/crc.h"
#include "base/file.h"
#include "data/guess.h"
#include "data/stream.h"
#include "data/text.h"

#define INDEX_VERSION 1
#define CHECK_BYTES   (1u << 20) /* of rows that are checked at a time */
static const char index_magic[8] = "MSTINDEX";

typedef struct index_head {
    char magic[8];
    uint32_t version, rows_per_entry;
    uint64_t file_size;
    int64_t mtime_ns;
    uint64_t n_rows, n_entries;
    char format[16];
} index_head;

typedef struct index_entry {
    uint64_t offset, line;
} index_entry;

_Static_assert(sizeof(index_head) == 64 && sizeof(index_entry) == 16, "written as they lie");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "index files are little-endian");

typedef struct indexed_file {
    const char *path;
    mst_map map;
    uint64_t first_row, n_rows, n_entries;
    uint32_t rows_per_entry;
    index_entry *entries;
} indexed_file;

typedef struct idle_builder {
    mst_chunk_builder builder;
    char *text; /* of the rows being parsed */
    size_t text_capacity;
    struct idle_builder *next;
} idle_builder;

typedef struct indexed {
    mst_dataset base;
    mst_parse_context context;
    mst_text_list paths;
    indexed_file *files;
    size_t n_files;
    pthread_mutex_t free_mutex; /* guards builders */
    idle_builder *builders;
} indexed;

static mst_status file_identity(const char *path, uint64_t *size, int64_t *mtime_ns)
{
    struct stat info;
    if (stat(path, &info) != 0)
        return mst_fail(MST_EINPUT, "%s: %s", path, strerror(errno));
    *size = (uint64_t)info.st_size;
    *mtime_ns = (int64_t)info.st_mtim.tv_sec * 1000000000 + info.st_mtim.tv_nsec;
    return MST_OK;
}

static void index_path(const char *path, char out[PATH_MAX + 16])
{
    snprintf(out, PATH_MAX + 16, "%s" MST_INDEX_SUFFIX, path);
}

/* Moves *p, which is below the end of the file, past one line or record, and *line past its lines. */
static mst_status indexed_step(const mst_format *format, const mst_parse_context *context, const char *path,
                               const mst_map *map, const uint8_t **p, uint64_t *line, bool *row)
{
    const uint8_t *start = *p, *end = map->data + map->size;
    if (mst_format_has_lines(format)) {
        const uint8_t *line_end = mst_line_end(start, end);
        *row = mst_line_is_row(start, line_end);
        *p = line_end + (line_end < end);
        (*line)++;
        return MST_OK;
    }
    size_t n;
    mst_block block = {
        .path = path, .data = start, .size = (size_t)(end - start), .offset = (uint64_t)(start - map->data)};
    TRY(format->record(context, &block, &n, row));
    if (n == 0)
        return mst_block_fail(format, &block, start, "the file ends in the middle of a record");
    *p = start + n;
    *line += format->text ? mst_count_newlines(start, n) : 1;
    return MST_OK;
}

/* ---- making ---- */

/* Text has an entry every 4096 rows; rows that are passed over cost a read of their line. Records may be
 * images, and passing over one may cost a read of the disk: by the size of the first, at most 1 MB of them
 * lies between two entries. */
static uint32_t indexed_entry_rows(const mst_format *format, uint64_t first_size)
{
    uint32_t rows = MST_INDEX_ROWS;
    while (!format->text && rows > 1 && rows * first_size > 1u << 20)
        rows /= 2;
    return rows;
}

/* Fails at a malformed row of the block, which lies in the map: copied first, because parsers read bytes
 * twice and the file may change between. */
static mst_status indexed_check_rows(const mst_format *format, const mst_parse_context *context,
                                     mst_block block, idle_builder *b)
{
    if (!mst_grow(&b->text, &b->text_capacity, block.size + 1, 1))
        return mst_fail_memory();
    memcpy(b->text, block.data, block.size);
    block.data = (const uint8_t *)b->text;
    mst_chunk_builder_clear(&b->builder);
    return format->check != NULL ? format->check(&block)
                                 : mst_format_parse(format, context, &block, &b->builder);
}

/* b: memory for checks. */
static mst_status indexed_collect(const mst_format *format, const mst_parse_context *context,
                                  const char *path, const mst_map *map, idle_builder *b, index_head *head,
                                  index_entry **entries)
{
    const uint8_t *p = map->data + (format->text ? mst_text_mark(map->data, map->size) : 0);
    const uint8_t *end = map->data + map->size;
    size_t capacity = 0;
    mst_block rows = {.path = path, .data = p, .offset = (uint64_t)(p - map->data), .line = 1}; /* to check */
    for (uint64_t line = 1, next = 1; p < end; line = next) {
        const uint8_t *start = p;
        bool row = false;
        TRY(indexed_step(format, context, path, map, &p, &next, &row));
        rows.size = (size_t)(p - rows.data);
        if (rows.size >= CHECK_BYTES || p == end) {
            TRY(indexed_check_rows(format, context, rows, b));
            rows = (mst_block){.path = path, .data = p, .offset = (uint64_t)(p - map->data), .line = next};
        }
        if (!row)
            continue;
        if (head->n_rows == 0)
            head->rows_per_entry = indexed_entry_rows(format, (uint64_t)(p - start));
        if (head->n_rows++ % head->rows_per_entry != 0)
            continue;
        if (!mst_grow(entries, &capacity, head->n_entries + 1, sizeof **entries))
            return mst_fail_memory();
        (*entries)[head->n_entries++] = (index_entry){(uint64_t)(start - map->data), line};
    }
    return MST_OK;
}

static mst_status write_index(const char *path, const index_head *head, const index_entry *entries)
{
    char target[PATH_MAX + 16];
    mst_out *out = NULL;
    mst_status st;
    size_t body = head->n_entries * sizeof *entries;
    uint32_t crc = mst_crc32c(mst_crc32c(0, head, sizeof *head), entries, body);
    index_path(path, target);
    TRY_OUT(st, mst_out_open(target, &out));
    TRY_OUT(st, mst_out_write(out, head, sizeof *head));
    if (body > 0)
        TRY_OUT(st, mst_out_write(out, entries, body));
    TRY_OUT(st, mst_out_write(out, &crc, sizeof crc));
    TRY_OUT(st, mst_out_commit(out));
out:
    mst_out_close(out);
    return st;
}

/* The first block as a stream would have it, so that both settle on the same index base and layout. */
static mst_block indexed_first_block(const mst_format *format, const mst_parse_context *context,
                                     const char *path, const mst_map *map)
{
    size_t mark = format->text ? mst_text_mark(map->data, map->size) : 0, n = 0;
    mst_block block = {
        .path = path, .data = map->data + mark, .size = map->size - mark, .offset = mark, .line = 1};
    bool row;
    if (format->text && map->size <= MST_STREAM_BLOCK)
        return block;
    if (block.size > MST_STREAM_BLOCK)
        block.size = MST_STREAM_BLOCK;
    if (mst_format_has_lines(format)) {
        const uint8_t *newline = memrchr(block.data, '\n', block.size);
        n = newline != NULL ? (size_t)(newline - block.data) + 1 : 0;
    } else if (format->find_end(context, &block, &n) != MST_OK) {
        n = 0;
    }
    block.size = map->size - mark;
    if (n == 0 && mst_format_has_lines(format))
        n = (size_t)(mst_line_end(block.data, block.data + block.size) - block.data);
    else if (n == 0 && format->record(context, &block, &n, &row) != MST_OK)
        n = 0;
    block.size = n;
    return block;
}

mst_status mst_index_build(const char *path, const mst_format *format, const mst_data_options *options,
                           uint64_t *n_rows)
{
    mst_status st;
    /* Readers may have other options: rows are checked with those that take most. */
    mst_data_options any = options != NULL ? *options : (mst_data_options){0};
    mst_parse_context context = {.options = &any};
    any.unlabelled = true;
    any.index_base = 1; /* indices from 0 */
    any.csv_columns = (char *)"*:category";
    idle_builder b = {0};
    mst_chunk_builder_init(&b.builder);
    mst_map map = {0};
    index_entry *entries = NULL;
    index_head head = {.version = INDEX_VERSION, .rows_per_entry = MST_INDEX_ROWS};
    mst_in *in = NULL;
    if (strcmp(path, "-") == 0)
        return mst_fail(MST_EINPUT, "standard input cannot be indexed; give a file");
    TRY_OUT(st, mst_in_open(path, &in));
    if (mst_in_compressed(in)) {
        st = mst_fail(MST_EINPUT,
                      "%s is compressed and cannot be indexed; decompress it, or use muster data convert",
                      path);
        goto out;
    }
    /* Identity before contents: a file that changes meanwhile gives an index that is found to be stale. */
    TRY_OUT(st, file_identity(path, &head.file_size, &head.mtime_ns));
    TRY_OUT(st, mst_map_open(path, &map));
    size_t n_head = map.size < MST_SNIFF_BYTES ? map.size : MST_SNIFF_BYTES;
    const mst_data_kind *kind = mst_data_guess(map.data, n_head, map.size);
    if (kind != NULL && !mst_data_kind_has(kind, MST_DATA_FORMAT)) {
        st = mst_fail(MST_EINPUT, "%s needs no index: rows of %s files can be read in any order", path,
                      kind->name);
        goto out;
    }
    if (format == NULL && kind == NULL) {
        st = mst_data_unknown(path, map.data, n_head);
        goto out;
    }
    if (format == NULL)
        format = mst_data_kind_format(kind);
    if (format->check == NULL) { /* where records of text end may follow from the layout */
        mst_block first = indexed_first_block(format, &context, path, &map);
        TRY_OUT(st, mst_parse_context_init(&context, format, &first));
    }
    TRY_OUT(st, indexed_collect(format, &context, path, &map, &b, &head, &entries));
    memcpy(head.magic, index_magic, sizeof head.magic);
    snprintf(head.format, sizeof head.format, "%s", format->kind.name);
    TRY_OUT(st, write_index(path, &head, entries));
    if (n_rows != NULL)
        *n_rows = head.n_rows;
out:
    mst_parse_context_fini(&context, format);
    mst_in_close(in);
    mst_map_close(&map);
    mst_chunk_builder_fini(&b.builder);
    mst_free(b.text);
    mst_free(entries);
    return st;
}

/* ---- opening ---- */

bool mst_indexed_available(const mst_text_list *paths)
{
    char beside[PATH_MAX + 16];
    for (size_t i = 0; i < paths->n; i++) {
        if (strcmp(paths->items[i], "-") == 0)
            return false;
        index_path(paths->items[i], beside);
        if (!mst_path_exists(beside))
            return false;
    }
    return true;
}

/* Takes the entries out of an index file's bytes after every check. */
static mst_status indexed_read_index(const mst_map *map, const char *name, const char *path,
                                     const mst_format *format, indexed_file *file)
{
    index_head head;
    uint64_t size = 0;
    int64_t mtime_ns = 0;
    uint32_t crc;
    if (map->size < sizeof head + sizeof crc || memcmp(map->data, index_magic, sizeof index_magic) != 0)
        return mst_fail(MST_EINPUT, "%s is not an index; remove it or run muster data index %s", name, path);
    memcpy(&head, map->data, sizeof head);
    if (head.version != INDEX_VERSION)
        return mst_fail(MST_EINPUT,
                        "%s is an index of version %u, not %u; remove it or run muster data index %s", name,
                        head.version, INDEX_VERSION, path);
    memcpy(&crc, map->data + map->size - sizeof crc, sizeof crc);
    if (crc != mst_crc32c(0, map->data, map->size - sizeof crc) ||
        (map->size - sizeof head - sizeof crc) / sizeof(index_entry) != head.n_entries ||
        (map->size - sizeof head - sizeof crc) % sizeof(index_entry) != 0 || head.rows_per_entry == 0 ||
        head.rows_per_entry > MST_INDEX_ROWS ||
        head.n_entries != head.n_rows / head.rows_per_entry + (head.n_rows % head.rows_per_entry != 0))
        return mst_fail(MST_EINPUT, "%s is damaged; remove it or run muster data index %s", name, path);
    TRY(file_identity(path, &size, &mtime_ns));
    if (size != head.file_size || mtime_ns != head.mtime_ns)
        return mst_fail(MST_EINPUT,
                        "%s was made before %s last changed; remove it or run muster data index %s", name,
                        path, path);
    if (strncmp(head.format, format->kind.name, sizeof head.format) != 0)
        return mst_fail(MST_EINPUT,
                        "%s was made for format %.15s, not %s; remove it or run muster data index %s", name,
                        head.format, format->kind.name, path);
    file->entries = mst_alloc(head.n_entries * sizeof *file->entries + 1);
    if (file->entries == NULL)
        return mst_fail_memory();
    memcpy(file->entries, map->data + sizeof head, head.n_entries * sizeof *file->entries);
    for (uint64_t i = 0; i < head.n_entries; i++)
        if (file->entries[i].offset >= size ||
            (i > 0 && file->entries[i].offset <= file->entries[i - 1].offset))
            return mst_fail(MST_EINPUT, "%s is damaged; remove it or run muster data index %s", name, path);
    file->n_rows = head.n_rows;
    file->n_entries = head.n_entries;
    file->rows_per_entry = head.rows_per_entry;
    return MST_OK;
}

static mst_status indexed_open_file(const char *path, const mst_format *format, indexed_file *file)
{
    char beside[PATH_MAX + 16];
    mst_map map = {0};
    index_path(path, beside);
    file->path = path;
    TRY(mst_map_open(path, &file->map));
    TRY(mst_map_open(beside, &map));
    mst_status st = indexed_read_index(&map, beside, path, format, file);
    mst_map_close(&map);
    if (st == MST_OK && file->n_entries > 0 && file->entries[file->n_entries - 1].offset >= file->map.size)
        st = mst_fail(MST_EINPUT, "%s changed while it was opened", path);
    return st;
}

/* ---- loading ---- */

/* Moves *p past n rows, or to the end of a file that has changed. Returns the lines or records passed. */
static uint64_t indexed_pass(const indexed *x, const indexed_file *file, uint64_t n, const uint8_t **p)
{
    const uint8_t *end = file->map.data + file->map.size;
    uint64_t passed = 0;
    for (bool row = false; n > 0 && *p < end; n -= row)
        if (indexed_step(x->base.format, &x->context, file->path, &file->map, p, &passed, &row) != MST_OK) {
            *p = end;
            break;
        }
    return passed;
}

/* The lines or records of rows [from, to) of a file. */
static void indexed_find_rows(const indexed *x, const indexed_file *file, uint64_t from, uint64_t to,
                              mst_block *block)
{
    uint32_t n = file->rows_per_entry;
    const index_entry *entry = &file->entries[from / n];
    const uint8_t *start = file->map.data + entry->offset, *end;
    uint64_t line = entry->line + indexed_pass(x, file, from % n, &start);
    if (to == file->n_rows) {
        end = file->map.data + file->map.size;
    } else if (to % n == 0) {
        end = file->map.data + file->entries[to / n].offset;
    } else {
        end = start;
        indexed_pass(x, file, to - from, &end);
    }
    if (end < start)
        end = start; /* the file has changed: fewer rows than there were */
    *block = (mst_block){.path = file->path,
                         .data = start,
                         .size = (size_t)(end - start),
                         .offset = (uint64_t)(start - file->map.data),
                         .line = line};
}

static mst_status parse_rows(indexed *x, uint64_t from, uint64_t to, idle_builder *b, uint64_t *bytes)
{
    mst_chunk_builder *builder = &b->builder;
    for (size_t f = 0; f < x->n_files && from < to; f++) {
        const indexed_file *file = &x->files[f];
        uint64_t past = file->first_row + file->n_rows, stop = to < past ? to : past;
        if (from >= past)
            continue;
        mst_block block;
        size_t before = builder->n_rows;
        indexed_find_rows(x, file, from - file->first_row, stop - file->first_row, &block);
        if (!mst_grow(&b->text, &b->text_capacity, block.size + 1, 1))
            return mst_fail_memory();
        if (block.size > 0) /* parsers read bytes twice, and the file may change between */
            memcpy(b->text, block.data, block.size);
        block.data = (const uint8_t *)b->text;
        mst_status st = mst_format_parse(x->base.format, &x->context, &block, builder);
        if (st != MST_OK || builder->n_rows - before != stop - from) {
            mst_error error;
            mst_error_save(&error, st);
            TRY(mst_map_check(&file->map));
            if (st != MST_OK)
                return mst_error_restore(&error);
        }
        if (builder->n_rows - before != stop - from)
            return mst_block_fail(
                x->base.format, &block, block.data,
                "%llu rows here where its index has %llu; remove the index or run muster data index %s",
                (unsigned long long)(builder->n_rows - before), (unsigned long long)(stop - from),
                file->path);
        *bytes += block.size;
        from = stop;
    }
    return MST_OK;
}

static mst_status indexed_load(mst_dataset *self, uint32_t c, mst_chunk **out)
{
    indexed *x = (indexed *)self;
    uint64_t from = (uint64_t)c * self->chunk_rows, to = from + self->chunk_rows, bytes = 0;
    mst_status st;
    mst_chunk *chunk;
    pthread_mutex_lock(&x->free_mutex);
    idle_builder *b = x->builders;
    if (b != NULL)
        x->builders = b->next;
    pthread_mutex_unlock(&x->free_mutex);
    if (b == NULL) {
        b = mst_zalloc(sizeof *b);
        if (b == NULL)
            return mst_fail_memory();
        mst_chunk_builder_init(&b->builder);
    }
    mst_chunk_builder_clear(&b->builder);
    b->builder.max_dense = x->context.max_dense;
    TRY_OUT(st, parse_rows(x, from, to < self->info.n_rows ? to : self->info.n_rows, b, &bytes));
    TRY_OUT(st, mst_chunk_builder_pack(&b->builder, 0, b->builder.n_rows, &chunk));
    chunk->bytes_read = bytes;
    *out = chunk;
out:
    pthread_mutex_lock(&x->free_mutex);
    b->next = x->builders;
    x->builders = b;
    pthread_mutex_unlock(&x->free_mutex);
    return st;
}

static void indexed_destroy(mst_dataset *self)
{
    indexed *x = (indexed *)self;
    mst_parse_context_fini(&x->context, x->base.format);
    for (size_t i = 0; x->files != NULL && i < x->n_files; i++) {
        mst_map_close(&x->files[i].map);
        mst_free(x->files[i].entries);
    }
    mst_free(x->files);
    while (x->builders != NULL) {
        idle_builder *next = x->builders->next;
        mst_chunk_builder_fini(&x->builders->builder);
        mst_free(x->builders->text);
        mst_free(x->builders);
        x->builders = next;
    }
    pthread_mutex_destroy(&x->free_mutex);
    mst_text_list_fini(&x->paths);
    mst_text_list_fini(&x->base.left_out);
    mst_text_list_fini(&x->base.doubts);
    mst_text_list_fini(&(mst_text_list){.items = x->base.class_names, .n = x->base.n_class_names});
    mst_free(x->base.name);
    mst_free(x);
}

static mst_status indexed_intact(const mst_dataset *self)
{
    const indexed *x = (const indexed *)self;
    for (size_t i = 0; i < x->n_files; i++)
        TRY(mst_map_check(&x->files[i].map));
    return MST_OK;
}

static const mst_dataset_ops indexed_ops = {
    .load = indexed_load,
    .intact = indexed_intact,
    .destroy = indexed_destroy,
};

static mst_block first_block(const indexed *x)
{
    for (size_t i = 0; i < x->n_files; i++)
        if (x->files[i].map.size > 0)
            return indexed_first_block(x->base.format, &x->context, x->files[i].path, &x->files[i].map);
    return (mst_block){.path = "", .data = (const uint8_t *)"", .line = 1};
}

static mst_status indexed_settle_chunks(indexed *x)
{
    uint32_t rows = MST_INDEX_ROWS, row = x->context.max_dense;
    if (x->context.channels != 0 && rows > MST_IMAGE_BLOCK / row)
        rows = row < MST_IMAGE_BLOCK ? MST_IMAGE_BLOCK / row : 1;
    uint64_t n = x->base.info.n_rows / rows + (x->base.info.n_rows % rows != 0);
    if (n > UINT32_MAX)
        return mst_fail(MST_EINPUT, "%s: %llu rows are too many", x->base.name,
                        (unsigned long long)x->base.info.n_rows);
    x->base.chunk_rows = rows;
    x->base.n_chunks = (uint32_t)n;
    return MST_OK;
}

/* A file is indexed by itself; its first row must be the one that it has in this dataset. */
static mst_status indexed_check_header(const indexed *x, const indexed_file *file)
{
    const mst_format *format = x->base.format;
    const uint8_t *p = file->map.data, *end = p + file->map.size, *start = p;
    uint64_t line = 0;
    bool row = false;
    if (!format->text || mst_format_has_lines(format))
        return MST_OK;
    p += mst_text_mark(p, file->map.size);
    while (!row && p < end) {
        start = p;
        TRY(indexed_step(format, &x->context, file->path, &file->map, &p, &line, &row));
    }
    if (row ? file->n_entries > 0 && (uint64_t)(start - file->map.data) == file->entries[0].offset
            : file->n_entries == 0)
        return MST_OK;
    return mst_fail(MST_EINPUT,
                    "%s: its index and %s differ on whether its first line is a header; remove the index or "
                    "run muster data index %s "
                    "--csv-header yes or no",
                    file->path, x->files[0].path, file->path);
}

mst_status mst_indexed_open(const mst_text_list *paths, const mst_format *format,
                            const mst_data_options *options, mst_dataset **out)
{
    mst_status st;
    indexed *x = mst_zalloc(sizeof *x);
    if (x == NULL)
        return mst_fail_memory();
    pthread_mutex_init(&x->free_mutex, NULL);
    x->base.ops = &indexed_ops;
    x->base.kind = &format->kind;
    x->base.format = format;
    x->base.random = true;
    x->base.info.bytes = mst_paths_bytes(paths);
    x->context.options = options;
    x->context.features = (uint64_t)options->features;
    x->context.any_key = options->any_key;
    x->base.name = mst_paths_name(paths);
    x->files = mst_calloc(paths->n, sizeof *x->files);
    if (x->base.name == NULL || x->files == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    for (size_t i = 0; i < paths->n; i++)
        TRY_OUT(st, mst_text_list_add(&x->paths, paths->items[i]));
    for (size_t i = 0; i < paths->n; i++) {
        x->n_files = i + 1;
        x->files[i].first_row = x->base.info.n_rows;
        TRY_OUT(st, indexed_open_file(x->paths.items[i], format, &x->files[i]));
        x->base.info.n_rows += x->files[i].n_rows;
    }
    mst_block first = first_block(x);
    TRY_OUT(st, mst_parse_context_init(&x->context, format, &first));
    TRY_OUT(st, mst_dataset_take_context(&x->base, &x->context));
    for (size_t i = 0; i < x->n_files; i++)
        TRY_OUT(st, indexed_check_header(x, &x->files[i]));
    if (x->context.channels == 0)
        mst_dataset_take_first(&x->base, &x->context, &first);
    TRY_OUT(st, indexed_settle_chunks(x));
    x->base.info.n_dense = x->context.max_dense;
    if (x->context.features != 0 && x->context.max_dense > x->context.features) /* any_key */
        x->context.max_dense = (uint32_t)x->context.features;
    x->base.info.index_base = x->context.index_base;
    if (format->hashes || x->context.features != (uint64_t)options->features) /* settled by prepare */
        x->base.info.n_features = x->context.features;
    TRY_OUT(st, mst_format_origin(format, &x->context, &x->base.origin));
    *out = &x->base;
    return MST_OK;
out:
    indexed_destroy(&x->base);
    return st;
}
