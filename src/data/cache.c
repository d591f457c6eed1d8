/* The cache reader: cache files mapped into memory as one random-access dataset. Writer: cache_writer.c;
 * file: docs/CACHE.md.
 *
 * Opening checks header, source key and table (checksums and every number in them), keeps copies of header
 * and table, and makes one mst_chunk per table entry that points into the mapping. Peeking at a chunk is then
 * a reference count; its body is checked once: its checksum, then the bounds of every record, key and label,
 * because a checksum only shows that the file is as it was written. Loading gives a copy of the body that
 * was checked after copying.
 *
 * Other processes can change the file at any time, so a peeked chunk's records can change after their check:
 * mst_chunk_row keeps rows within the chunk, the feed copies keys and labels, and the file is checked from
 * time to time.
 *
 * Invariants
 * 1. No number of the file is used before it was checked against the size of the mapping, nor read twice.
 * 2. Chunks from load obey chunk.h: records are within the body, keys are in [n_dense, max_key] and ascend
 * unless any_order, fields are at most max_field, labels lie in [min_label, max_label] and all numbers are
 * finite.
 * 3. Peeked chunks live as long as the dataset: their references never reach zero before its destruction. */
#include "data/cache.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc.h"
#include "base/file.h"
#include "base/isa.h"
#include "data/cache_file.h"
#include "data/origin.h"
#include "data/stream.h"

typedef struct cache_file {
    mst_map map;
    char *path;
    uint32_t first_chunk;
    cache_header header;
    cache_entry *table; /* a copy: the file may change */
} cache_file;

typedef struct cache_dataset {
    mst_dataset base;
    cache_file *files;
    size_t n_files;
    mst_chunk *chunks;
} cache_dataset;

bool mst_cache_sniff(const uint8_t *head, size_t n)
{
    return n >= 8 && memcmp(head, CACHE_MAGIC, 8) == 0;
}

static mst_status cache_damaged(const char *path, uint64_t offset, const char *what)
{
    return mst_fail(MST_EINPUT, "%s at byte %llu: the cache is damaged: %s; delete it and convert again",
                    path, (unsigned long long)offset, what);
}

/* ---- header and table ---- */

static mst_status cache_check_header(const char *path, const mst_map *map, cache_header *h)
{
    if (map->size >= 4 &&
        (memcmp(map->data, "\x1f\x8b", 2) == 0 || memcmp(map->data, "\x28\xb5\x2f\xfd", 4) == 0))
        return mst_fail(MST_EINPUT, "%s: a cache cannot be read while it is compressed; unpack it with %s",
                        path, map->data[0] == 0x1f ? "gunzip" : "zstd -d");
    if (map->size < sizeof *h || !mst_cache_sniff(map->data, map->size))
        return mst_fail(MST_EINPUT, "%s is not a muster cache (wrong or missing magic at byte 0)", path);
    memcpy(h, map->data, sizeof *h);
    if (h->version == 0 || h->version > CACHE_VERSION)
        return mst_fail(MST_EINPUT,
                        "%s is a cache of version %u, this muster reads versions up to %u: convert it again",
                        path, h->version, CACHE_VERSION);
    if (h->header_size != sizeof *h)
        return cache_damaged(path, offsetof(cache_header, header_size), "the header has another size");
    if (h->file_size != map->size)
        return mst_fail(MST_EINPUT, "%s has %zu bytes, but its header states %llu: %s; convert it again",
                        path, map->size, (unsigned long long)h->file_size,
                        map->size < h->file_size ? "it was cut off" : "something was added at its end");
    if (h->key_size > CACHE_KEY_MAX || h->key_size > map->size - sizeof *h)
        return cache_damaged(path, offsetof(cache_header, key_size),
                             "the source key reaches beyond the file");
    cache_header zeroed = *h;
    zeroed.header_crc = 0;
    if (mst_crc32c(mst_crc32c(0, &zeroed, sizeof zeroed), map->data + sizeof *h, h->key_size) !=
        h->header_crc)
        return cache_damaged(path, 0, "the header does not match its checksum");
    return MST_OK;
}

static mst_status cache_check_table(cache_file *f)
{
    const cache_header *h = &f->header;
    uint64_t first_body = cache_round(sizeof *h + h->key_size),
             bytes = (uint64_t)h->n_chunks * sizeof(cache_entry);
    if (h->table_offset % CACHE_ALIGN != 0 || h->table_offset < first_body || h->table_offset > f->map.size ||
        f->map.size - h->table_offset != bytes)
        return cache_damaged(f->path, offsetof(cache_header, table_offset),
                             "the table reaches beyond the file");
    f->table = mst_alloc(bytes + 1);
    if (f->table == NULL)
        return mst_fail_memory();
    memcpy(f->table, f->map.data + h->table_offset, bytes);
    if (mst_crc32c(0, f->table, bytes) != h->table_crc)
        return cache_damaged(f->path, h->table_offset, "the table of chunks does not match its checksum");
    if (h->chunk_rows == 0 || h->n_rows > (uint64_t)h->n_chunks * h->chunk_rows ||
        h->n_features > UINT32_MAX || h->n_dense > h->n_features || h->n_fields > MST_FIELDS_MAX ||
        !isfinite(h->min_label) || !isfinite(h->max_label))
        return cache_damaged(f->path, 0, "the header holds impossible counts");
    if ((h->channels | h->height | h->width) != 0 &&
        ((uint64_t)h->channels * h->height > UINT32_MAX ||
         (uint64_t)h->channels * h->height * h->width != h->n_dense || h->n_dense == 0))
        return cache_damaged(f->path, offsetof(cache_header, channels),
                             "the sides of its images do not fit its rows");
    return MST_OK;
}

/* Whether some number of keys takes so many words. */
static inline bool cache_length_fits(const mst_chunk *c, uint32_t words)
{
    return mst_chunk_key_words(c, mst_chunk_n_keys(c, words)) == words;
}

static const char *cache_check_entry(const cache_header *h, const cache_entry *e, bool last)
{
    if (e->n_rows == 0 || e->n_rows > h->chunk_rows || (!last && e->n_rows != h->chunk_rows))
        return "a chunk has a wrong number of rows";
    if (e->flags &
        ~(uint32_t)(CACHE_DENSE_BYTES | CACHE_WEIGHTS | CACHE_VALUES | CACHE_FIELDS | CACHE_ANY_ORDER))
        return "a chunk has unknown flags";
    if (e->n_words > UINT32_MAX || e->offset % CACHE_ALIGN != 0 || e->offset < sizeof *h ||
        e->offset > h->table_offset || cache_body_bytes(e) > h->table_offset - e->offset)
        return "a chunk reaches beyond the file";
    uint64_t dense = e->flags & CACHE_DENSE_BYTES ? ((uint64_t)e->n_dense + 3) / 4 : e->n_dense;
    uint64_t head = 1 + dense + (e->flags & CACHE_WEIGHTS ? 1 : 0);
    if (head * e->n_rows > e->n_words)
        return "a chunk is too small for its rows";
    mst_chunk parts = {.has_values = e->flags & CACHE_VALUES, .has_fields = e->flags & CACHE_FIELDS};
    if (e->stride && ((uint64_t)e->stride * e->n_rows != e->n_words || e->stride < head ||
                      !cache_length_fits(&parts, e->stride - (uint32_t)head)))
        return "the record length of a chunk does not fit its size";
    bool any = e->n_words > head * e->n_rows || e->n_dense > 0;
    if (e->n_dense > h->n_features || (any && e->max_key >= h->n_features) ||
        (e->n_dense > 0 && e->max_key < e->n_dense - 1))
        return "a chunk has features beyond those of the file";
    if (!(e->min_label >= h->min_label && e->min_label <= e->max_label && e->max_label <= h->max_label))
        return "a chunk has labels beyond those of the file";
    if (h->n_fields > 0 ? e->max_field >= h->n_fields : e->flags & CACHE_FIELDS)
        return "a chunk has fields beyond those of the file";
    if (e->flags & CACHE_ANY_ORDER && e->n_dense != h->n_dense)
        return "a chunk with keys in any order has another dense prefix than the file";
    return NULL;
}

/* ---- bodies ---- */

/* Nonzero when one of n numbers is an infinity or not a number. */
static inline uint32_t cache_not_finite(const uint32_t *bits, uint32_t n)
{
    uint32_t bad = 0;
    for (uint32_t j = 0; j < n; j++)
        bad |= (bits[j] & 0x7f800000u) == 0x7f800000u;
    return bad;
}

/* The first row that breaks invariant 2, or n_rows. */
MST_WIDE static uint32_t first_bad_row(const mst_chunk *c)
{
    const uint32_t head = mst_chunk_head_words(c),
                   numbers = head - (c->dense_bytes ? (c->n_dense + 3) / 4 : 0);
    for (uint32_t i = 0; i < c->n_rows; i++) {
        uint32_t length;
        const uint32_t *record = mst_chunk_record(c, i, &length), *keys = record + head;
        uint32_t n = mst_chunk_n_keys(c, length - head);
        float label;
        memcpy(&label, record, sizeof label);
        uint32_t bad = !(label >= c->min_label && label <= c->max_label);
        bad |= cache_not_finite(record, numbers);
        bad |= mst_chunk_bad_keys(c, keys, n);
        if (c->has_values)
            bad |= cache_not_finite(keys + n, n);
        if (c->has_fields)
            bad |= mst_chunk_bad_fields(c, (const uint16_t *)(keys + (size_t)n * (c->has_values ? 2 : 1)), n);
        else if (c->fielded)
            bad |= n > 0 && (uint64_t)c->n_dense + n - 1 > c->max_field;
        if (bad)
            return i;
    }
    return c->n_rows;
}

static bool cache_positions_fit(const mst_chunk *c)
{
    uint32_t head = mst_chunk_head_words(c);
    if (c->offsets[0] != 0 || c->offsets[c->n_rows] != c->n_words)
        return false;
    for (uint32_t i = 0; i < c->n_rows; i++) {
        uint32_t start = c->offsets[i], end = c->offsets[i + 1];
        if (end < start || end > c->n_words || end - start < head ||
            !cache_length_fits(c, end - start - head))
            return false;
    }
    return true;
}

static const cache_file *cache_file_of(const cache_dataset *d, uint32_t c)
{
    size_t i = d->n_files - 1;
    while (i > 0 && d->files[i].first_chunk > c)
        i--;
    return &d->files[i];
}

/* Sets *c to the chunk of an entry with its body at `words` and one reference. */
static void cache_set_chunk(mst_chunk *c, const cache_header *h, const cache_entry *e, const uint32_t *words)
{
    *c = (mst_chunk){
        .n_rows = e->n_rows,
        .n_dense = e->n_dense,
        .dense_bytes = e->flags & CACHE_DENSE_BYTES,
        .has_weights = e->flags & CACHE_WEIGHTS,
        .has_values = e->flags & CACHE_VALUES,
        .fielded = h->n_fields > 0,
        .has_fields = e->flags & CACHE_FIELDS,
        .any_order = e->flags & CACHE_ANY_ORDER,
        .max_field = e->max_field,
        .stride = e->stride,
        .offsets = e->stride ? NULL : words + e->n_words,
        .words = words,
        .n_words = e->n_words,
        .max_key = e->max_key,
        .min_label = e->min_label,
        .max_label = e->max_label,
        .n_entries = e->n_entries,
        .bytes_read = cache_body_bytes(e),
        .references = 1,
    };
}

/* The chunk's body and its offset in the file. */
static const cache_entry *entry_of(const cache_dataset *d, uint32_t c, const cache_file **f,
                                   const uint8_t **body)
{
    *f = cache_file_of(d, c);
    const cache_entry *e = &(*f)->table[c - (*f)->first_chunk];
    *body = (*f)->map.data + e->offset;
    return e;
}

static mst_status cache_check_sum(uint32_t crc, const cache_file *f, const cache_entry *e)
{
    if (crc == e->crc)
        return MST_OK;
    TRY(mst_map_check(&f->map));
    return cache_damaged(f->path, e->offset, "a chunk does not match its checksum");
}

/* Checks rows in the file or in a copy of its body. */
static mst_status cache_check_rows(const mst_chunk *chunk, const cache_file *f, const cache_entry *e)
{
    TRY(cache_check_sum(mst_crc32c(0, chunk->words, cache_body_bytes(e)), f, e));
    if (chunk->stride == 0 && !cache_positions_fit(chunk))
        return cache_damaged(f->path, e->offset, "a record reaches beyond its chunk");
    uint32_t row = first_bad_row(chunk);
    if (row < chunk->n_rows)
        return mst_fail(
            MST_EINPUT,
            "%s at byte %llu: row %u of this chunk has a key, a label or a value out of range; delete "
            "the cache and convert again",
            f->path, (unsigned long long)e->offset, row);
    return MST_OK;
}

static mst_status cache_check_body(mst_chunk *chunk)
{
    const cache_dataset *d = chunk->owner;
    const cache_file *f;
    const uint8_t *body;
    const cache_entry *e = entry_of(d, (uint32_t)(chunk - d->chunks), &f, &body);
    mst_map_populate(&f->map, e->offset, cache_body_bytes(e));
    return cache_check_rows(chunk, f, e);
}

static mst_status cache_check_number(const mst_dataset *self, uint32_t c)
{
    return c < self->n_chunks
               ? MST_OK
               : mst_fail(MST_EUSAGE, "%s has %u chunks and none numbered %u", self->name, self->n_chunks, c);
}

static mst_status cache_peek(mst_dataset *self, uint32_t c, mst_chunk **out)
{
    cache_dataset *d = (cache_dataset *)self;
    TRY(cache_check_number(self, c));
    mst_chunk_hold(&d->chunks[c]);
    *out = &d->chunks[c];
    return MST_OK;
}

static void cache_free_copy(mst_chunk *chunk)
{
    mst_free(chunk);
}

static mst_status cache_load(mst_dataset *self, uint32_t c, mst_chunk **out)
{
    cache_dataset *d = (cache_dataset *)self;
    const cache_file *f;
    const uint8_t *body;
    TRY(cache_check_number(self, c));
    const cache_entry *e = entry_of(d, c, &f, &body);
    size_t head = cache_round(sizeof(mst_chunk)), bytes = cache_body_bytes(e);
    uint8_t *block = mst_alloc_lines(head + bytes);
    if (block == NULL)
        return mst_fail_memory();
    mst_chunk *chunk = (mst_chunk *)block;
    uint32_t *words = (uint32_t *)(block + head);
    mst_map_populate(&f->map, e->offset, bytes);
    memcpy(words, body, bytes);
    cache_set_chunk(chunk, &f->header, e, words);
    chunk->destroy = cache_free_copy;
    mst_status st = cache_check_rows(chunk, f, e);
    if (st == MST_OK)
        *out = chunk;
    else
        mst_chunk_release(chunk);
    return st;
}

/* A copy of many threads is faster with the faults of its own reads than with mst_map_populate, which locks
 * the mappings of the process (16 threads: 70 instead of 33 GB/s). */
static mst_status cache_copy(mst_dataset *self, uint32_t c, uint32_t *to)
{
    cache_dataset *d = (cache_dataset *)self;
    const cache_file *f;
    const uint8_t *body;
    TRY(cache_check_number(self, c));
    const cache_entry *e = entry_of(d, c, &f, &body);
    return cache_check_sum(mst_crc32c_copy(0, to, body, cache_body_bytes(e)), f, e);
}

/* ---- opening ---- */

static void cache_keep(mst_chunk *chunk)
{
    (void)chunk; /* memory is the dataset's */
}

static void cache_close_file(cache_file *f)
{
    mst_map_close(&f->map);
    mst_free(f->path);
    mst_free(f->table);
}

static void cache_destroy(mst_dataset *self)
{
    cache_dataset *d = (cache_dataset *)self;
    for (size_t i = 0; d->files != NULL && i < d->n_files; i++)
        cache_close_file(&d->files[i]);
    mst_text_list_fini(&(mst_text_list){.items = self->class_names, .n = self->n_class_names});
    mst_text_list_fini(&self->left_out);
    mst_text_list_fini(&self->doubts);
    mst_free(d->files);
    mst_free(d->chunks);
    mst_free(self->name);
    mst_free(d);
}

static mst_status cache_intact(const mst_dataset *self)
{
    const cache_dataset *d = (const cache_dataset *)self;
    for (size_t i = 0; i < d->n_files; i++)
        TRY(mst_map_check(&d->files[i].map));
    return MST_OK;
}

static const mst_dataset_ops cache_ops = {
    .load = cache_load,
    .peek = cache_peek,
    .copy = cache_copy,
    .intact = cache_intact,
    .destroy = cache_destroy,
};

static mst_status cache_open_file(cache_file *f, const char *path)
{
    f->path = mst_strdup(path);
    if (f->path == NULL)
        return mst_fail_memory();
    TRY(mst_map_open(path, &f->map));
    TRY(cache_check_header(path, &f->map, &f->header));
    TRY(cache_check_table(f));
    const cache_header *h = &f->header;
    uint64_t n_rows = 0;
    for (uint32_t i = 0; i < h->n_chunks; i++) {
        const char *problem = cache_check_entry(h, &f->table[i], i + 1 == h->n_chunks);
        if (problem != NULL)
            return cache_damaged(path, h->table_offset + i * sizeof(cache_entry), problem);
        n_rows += f->table[i].n_rows;
    }
    if (n_rows != h->n_rows)
        return cache_damaged(path, offsetof(cache_header, n_rows), "the rows of its chunks do not add up");
    return MST_OK;
}

/* With equal chunks, a division finds a row's chunk; so all files but the last must end on a whole chunk.
 */
static mst_status cache_join_file(cache_dataset *d, const cache_file *f, bool first, bool last)
{
    const cache_header *h = &f->header;
    mst_data_info *info = &d->base.info;
    if (first)
        d->base.chunk_rows = h->chunk_rows;
    if (h->chunk_rows != d->base.chunk_rows)
        return mst_fail(MST_EINPUT,
                        "%s cannot be read as one with the other caches: its chunks have %u rows, theirs %u; "
                        "convert the sources together into one cache",
                        f->path, h->chunk_rows, d->base.chunk_rows);
    if (!last && h->n_rows % h->chunk_rows != 0)
        return mst_fail(MST_EINPUT,
                        "%s cannot be read as one with the caches that follow: its %" PRIu64
                        " rows do not fill chunks of %u; convert the sources together into one cache",
                        f->path, h->n_rows, h->chunk_rows);
    if ((uint64_t)d->base.n_chunks + h->n_chunks > UINT32_MAX)
        return mst_fail(MST_EINPUT, "%s: more than 2^32 chunks", f->path);
    d->base.n_chunks += h->n_chunks;
    if (first || (info->n_rows == 0 && h->n_rows > 0)) {
        info->min_label = h->min_label;
        info->max_label = h->max_label;
    } else if (h->n_rows > 0) {
        info->min_label = fminf(info->min_label, h->min_label);
        info->max_label = fmaxf(info->max_label, h->max_label);
    }
    bool integral = h->flags & CACHE_LABELS_INTEGRAL;
    info->labels_integral = first ? integral : info->labels_integral && integral;
    info->index_base = first ? h->index_base : info->index_base;
    bool same =
        first || (info->channels == h->channels && info->height == h->height && info->width == h->width);
    info->channels = same ? h->channels : 0;
    info->height = same ? h->height : 0;
    info->width = same ? h->width : 0;
    bool fields = first || info->n_fields > 0;
    info->n_fields = !fields || h->n_fields == 0    ? 0
                     : h->n_fields > info->n_fields ? h->n_fields
                                                    : info->n_fields;
    info->n_rows += h->n_rows;
    info->n_entries += h->n_entries;
    info->n_positive += h->n_positive;
    info->n_features = h->n_features > info->n_features ? h->n_features : info->n_features;
    info->n_dense = h->n_dense > info->n_dense ? h->n_dense : info->n_dense;
    info->bytes += f->map.size;
    info->scanned = true;
    return MST_OK;
}

static void cache_make_chunks(cache_dataset *d, const cache_file *f)
{
    for (uint32_t i = 0; i < f->header.n_chunks; i++) {
        mst_chunk *c = &d->chunks[f->first_chunk + i];
        cache_set_chunk(c, &f->header, &f->table[i], (const uint32_t *)(f->map.data + f->table[i].offset));
        c->destroy = cache_keep;
        c->check = cache_check_body;
        c->owner = d;
    }
}

/* The last line of a file's source key: an object, or NULL. New reference. */
static json_t *cache_key_json(const cache_file *f)
{
    const char *key = (const char *)f->map.data + sizeof f->header;
    size_t end = f->header.key_size, start;
    while (end > 0 && key[end - 1] == '\n')
        end--;
    for (start = end; start > 0 && key[start - 1] != '\n'; start--)
        ;
    return end > start ? json_loadb(key + start, end - start, 0, NULL) : NULL;
}

/* The origin of the rows of a file joins that of the files before it; where one is not known, none is. */
static mst_status cache_join_origin(cache_dataset *d, const cache_file *f, bool first)
{
    mst_status st = MST_OK;
    json_t *root = cache_key_json(f);
    const json_t *origin = mst_origin_in(root);
    if (first)
        d->base.origin = json_incref((json_t *)origin);
    else
        st = mst_origin_check(d->base.origin, d->files[0].path, origin, f->path);
    if (origin == NULL) {
        json_decref(d->base.origin);
        d->base.origin = NULL;
    }
    json_decref(root);
    return st;
}

mst_status mst_cache_open(const mst_text_list *paths, mst_dataset **out)
{
    mst_status st = MST_OK;
    if (paths->n == 0)
        return mst_fail(MST_EUSAGE, "no cache file was named");
    cache_dataset *d = mst_zalloc(sizeof *d);
    if (d == NULL)
        return mst_fail_memory();
    d->base.kind = &mst_data_cache;
    d->base.ops = &cache_ops;
    d->base.random = true;
    d->base.load_is_cheap = true;
    d->base.name = mst_paths_name(paths);
    d->files = mst_calloc(paths->n, sizeof *d->files);
    if (d->base.name == NULL || d->files == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    for (size_t i = 0; i < paths->n; i++) {
        cache_file *f = &d->files[i];
        d->n_files = i + 1;
        f->first_chunk = d->base.n_chunks;
        TRY_OUT(st, cache_open_file(f, paths->items[i]));
        TRY_OUT(st, cache_join_file(d, f, i == 0, i + 1 == paths->n));
        TRY_OUT(st, cache_join_origin(d, f, i == 0));
    }
    d->chunks = mst_calloc((size_t)d->base.n_chunks + 1, sizeof *d->chunks);
    if (d->chunks == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    for (size_t i = 0; i < d->n_files; i++)
        cache_make_chunks(d, &d->files[i]);
    d->base.labels_from = (int64_t)json_integer_value(json_object_get(d->base.origin, MST_ORIGIN_LABELS));
    *out = &d->base;
    d = NULL;
out:
    if (d != NULL)
        mst_dataset_destroy(&d->base);
    return st;
}

static json_t *cache_key_options(const cache_file *f)
{
    json_t *root = cache_key_json(f), *options = json_incref(json_object_get(root, "data"));
    json_decref(root);
    return options;
}

json_t *mst_cache_options(const mst_dataset *dataset)
{
    if (dataset->ops != &cache_ops)
        return NULL;
    const cache_dataset *d = (const cache_dataset *)dataset;
    json_t *options = cache_key_options(&d->files[0]);
    for (size_t i = 1; i < d->n_files && options != NULL; i++) {
        json_t *other = cache_key_options(&d->files[i]);
        if (!json_equal(options, other)) {
            json_decref(options);
            options = NULL;
        }
        json_decref(other);
    }
    return options;
}

mst_status mst_cache_checksum(const char *path, uint32_t *checksum, uint64_t *rows)
{
    cache_file f = {0};
    mst_status st = cache_open_file(&f, path);
    for (uint32_t i = 0; st == MST_OK && i < f.header.n_chunks; i++) {
        cache_entry e = f.table[i];
        e.offset = 0; /* depends on the size of the source key */
        *checksum = mst_crc32c(*checksum, &e, sizeof e);
        *rows += e.n_rows;
    }
    cache_close_file(&f);
    return st;
}

mst_status mst_cache_fits(const char *path, const char *source_key, bool *fits)
{
    *fits = false;
    if (!mst_path_exists(path))
        return MST_OK;
    cache_file f = {0};
    mst_status st = cache_open_file(&f, path);
    if (st == MST_OK)
        *fits = f.header.key_size == strlen(source_key) &&
                memcmp(f.map.data + sizeof f.header, source_key, f.header.key_size) == 0;
    cache_close_file(&f);
    return st == MST_ENOMEM ? st : MST_OK;
}

static int cache_sniff(const uint8_t *head, size_t n, uint64_t file_size)
{
    (void)file_size;
    return mst_cache_sniff(head, n) ? MST_SNIFF_BINARY : 0;
}

static mst_status cache_open(const mst_data_kind *self, mst_data_source *source, mst_dataset **out)
{
    (void)self;
    return mst_cache_open(source->paths, out);
}

const mst_data_kind mst_data_cache = {
    .name = "cache",
    .help = "muster's binary cache, mapped and read in any order",
    .capabilities = MST_DATA_CACHED,
    .sniff = cache_sniff,
    .open = cache_open,
};
