/* IDX files as a dataset (contract: idx.h).
 *
 * A file is: two zero bytes, a type byte, the number of dimensions, each dimension as big-endian u32, then
 * the items. Everything is read once, front to back, into one region of finished records: label word, then
 * the item's bytes padded to words (unsigned bytes) or its numbers as floats (all other types). The region is
 * reserved lazily, so a header that lies costs address space only, and its padding is zero by itself.
 *
 * Invariants
 * 1. Before a plain file is read, its size equals what its header says.
 * 2. The region is freed with the last of its chunks; the dataset holds one reference to each. */
#include "data/idx.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

enum { TYPE_U8 = 0x08, TYPE_I8 = 0x09, TYPE_I16 = 0x0b, TYPE_I32 = 0x0c, TYPE_F32 = 0x0d, TYPE_F64 = 0x0e };
enum { MAX_DIMENSIONS = 8 };
#define MAX_ITEM   ((uint64_t)1 << 28) /* numbers of one item */
#define MAX_REGION ((uint64_t)1 << 42)

typedef struct idx_chunk {
    mst_chunk base;
    struct idx_store *store;
} idx_chunk;

/* What chunks point into; lives until the last chunk is released. */
typedef struct idx_store {
    atomic_uint n_chunks;
    uint32_t *words;
    size_t region; /* bytes */
    idx_chunk *chunks;
} idx_store;

typedef struct idx_dataset {
    mst_dataset base;
    idx_store *store;
} idx_dataset;

/* One open file, past its header. */
typedef struct idx_file {
    mst_in *in;
    const char *path;
    unsigned type, width, n_dimensions; /* width: bytes of a number */
    uint32_t n_items;
    uint64_t item;     /* numbers of an item */
    uint32_t sides[3]; /* channels, height, width; 0: items are no images */
} idx_file;

static unsigned type_width(unsigned type)
{
    switch (type) {
    case TYPE_U8:
    case TYPE_I8:
        return 1;
    case TYPE_I16:
        return 2;
    case TYPE_I32:
    case TYPE_F32:
        return 4;
    case TYPE_F64:
        return 8;
    default:
        return 0;
    }
}

int mst_idx_sniff(const uint8_t *head, size_t n)
{
    bool magic = n >= 8 && head[0] == 0 && head[1] == 0 && type_width(head[2]) != 0;
    return magic && head[3] >= 1 && head[3] <= MAX_DIMENSIONS && n >= 4u + 4u * head[3] ? 2 : 0;
}

static uint32_t big32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void file_close(idx_file *f)
{
    mst_in_close(f->in);
    f->in = NULL;
}

/* Opens a file and checks its header; the caller closes f in any case. */
static mst_status file_open(const char *path, idx_file *f)
{
    uint8_t head[4 + 4 * MAX_DIMENSIONS];
    size_t got;
    *f = (idx_file){.path = path, .item = 1};
    TRY(mst_in_open(path, &f->in));
    TRY(mst_in_read(f->in, head, 4, &got));
    f->type = head[2];
    if (got < 4 || head[0] != 0 || head[1] != 0 || (f->width = type_width(f->type)) == 0 || head[3] == 0 ||
        head[3] > MAX_DIMENSIONS)
        return mst_fail(MST_EINPUT, "%s: not an IDX file: its first four bytes are not an IDX magic number",
                        path);
    f->n_dimensions = head[3];
    TRY(mst_in_read(f->in, head, 4 * f->n_dimensions, &got));
    if (got < 4 * f->n_dimensions)
        return mst_fail(MST_EINPUT, "%s: the IDX file ends within its header", path);
    f->n_items = big32(head);
    for (unsigned d = 1; d < f->n_dimensions; d++) {
        f->item *= big32(head + 4 * d);
        if (f->item > MAX_ITEM)
            return mst_fail(MST_EINPUT, "%s: its header speaks of items of more than %" PRIu64 " numbers",
                            path, MAX_ITEM);
    }
    if (f->item == 0)
        return mst_fail(MST_EINPUT, "%s: its header speaks of items of no numbers", path);
    if (f->n_dimensions == 3 || f->n_dimensions == 4) {
        const uint8_t *last = head + 4 * (f->n_dimensions - 2);
        f->sides[0] = f->n_dimensions == 4 ? big32(head + 4) : 1;
        f->sides[1] = big32(last);
        f->sides[2] = big32(last + 4);
    }
    uint64_t expected = mst_in_offset(f->in) + f->n_items * f->item * f->width;
    uint64_t size = mst_in_file_size(f->in);
    if (!mst_in_compressed(f->in) && size != 0 && size < expected)
        return mst_fail(MST_EINPUT, "%s: cut off: %" PRIu64 " bytes, where its header speaks of %" PRIu64,
                        path, size, expected);
    if (!mst_in_compressed(f->in) && size != 0 && size > expected)
        return mst_fail(MST_EINPUT, "%s: %" PRIu64 " bytes too many after the items its header speaks of",
                        path, size - expected);
    return MST_OK;
}

static mst_status read_exactly(idx_file *f, void *to, size_t n)
{
    size_t got;
    TRY(mst_in_read(f->in, to, n, &got));
    if (got < n)
        return mst_fail(MST_EINPUT,
                        "%s: cut off at byte %" PRIu64 ", before the end of the items its header speaks of",
                        f->path, mst_in_offset(f->in));
    return MST_OK;
}

static mst_status expect_end(idx_file *f)
{
    uint8_t byte;
    size_t got;
    TRY(mst_in_read(f->in, &byte, 1, &got));
    if (got != 0)
        return mst_fail(MST_EINPUT, "%s: more bytes after the items its header speaks of", f->path);
    return MST_OK;
}

static float number_at(const uint8_t *at, unsigned type)
{
    union {
        uint32_t bits;
        float value;
    } single;
    union {
        uint64_t bits;
        double value;
    } twice;
    switch (type) {
    case TYPE_U8:
        return (float)at[0];
    case TYPE_I8:
        return (float)(int8_t)at[0];
    case TYPE_I16:
        return (float)(int16_t)(at[0] << 8 | at[1]);
    case TYPE_I32:
        return (float)(int32_t)big32(at);
    case TYPE_F32:
        single.bits = big32(at);
        return single.value;
    default:
        twice.bits = (uint64_t)big32(at) << 32 | big32(at + 4);
        return (float)twice.value;
    }
}

/* Reads n numbers as floats through a small buffer. */
static mst_status read_numbers(idx_file *f, float *to, size_t stride, size_t n)
{
    uint8_t buffer[4096];
    size_t per_buffer = sizeof buffer / f->width;
    for (size_t done = 0; done < n;) {
        size_t piece = n - done < per_buffer ? n - done : per_buffer;
        TRY(read_exactly(f, buffer, piece * f->width));
        for (size_t i = 0; i < piece; i++) {
            float value = number_at(buffer + i * f->width, f->type);
            if (!isfinite(value))
                return mst_fail(MST_EINPUT, "%s at byte %" PRIu64 ": a number that is not finite", f->path,
                                mst_in_offset(f->in) - (piece - i) * f->width);
            to[(done + i) * stride] = value;
        }
        done += piece;
    }
    return MST_OK;
}

/* ---- names ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

/* The path with `from` in its file name replaced, or NULL when that is not in it. Sets *st on lack of memory.
 */
static char *renamed(const char *path, const char *from, const char *to, mst_status *st)
{
    const char *name = base_name(path), *at = strstr(name, from);
    if (at == NULL)
        return NULL;
    char *out = mst_sprintf("%.*s%s%s", (int)(at - path), path, to, at + strlen(from));
    if (out == NULL)
        *st = mst_fail(MST_ENOMEM, "out of memory: the labels of %s", path);
    return out;
}

/* The labels file of a file of images by the usual names, whichever of NAME, NAME.gz and NAME.zst is there.
 */
static mst_status usual_labels(const char *images, char **out)
{
    static const char *const images_parts[] = {"images-idx3", "images.idx3", "images-idx4", "images.idx4"};
    static const char *const labels_parts[] = {"labels-idx1", "labels.idx1", "labels-idx1", "labels.idx1"};
    static const char *const suffixes[] = {"", ".gz", ".zst"};
    mst_status st = MST_OK;
    char *named = NULL;
    for (size_t i = 0; i < 4 && named == NULL && st == MST_OK; i++)
        named = renamed(images, images_parts[i], labels_parts[i], &st);
    TRY(st);
    if (named == NULL)
        return mst_fail(MST_EINPUT,
                        "%s: name the file with its labels with --labels (it is not named ...images-idx3...)",
                        images);
    size_t length = strlen(named);
    for (size_t i = 1; i < 3; i++) {
        size_t n = strlen(suffixes[i]);
        if (length > n && strcmp(named + length - n, suffixes[i]) == 0)
            length -= n;
    }
    for (size_t i = 0; i < 3; i++) {
        char *candidate = mst_sprintf("%.*s%s", (int)length, named, suffixes[i]);
        if (candidate == NULL) {
            mst_free(named);
            return mst_fail(MST_ENOMEM, "out of memory: the labels of %s", images);
        }
        if (mst_path_exists(candidate)) {
            mst_free(named);
            *out = candidate;
            return MST_OK;
        }
        mst_free(candidate);
    }
    st = mst_fail(MST_EINPUT, "%s: its labels are not there (%.*s): name their file with --labels", images,
                  (int)length, named);
    mst_free(named);
    return st;
}

/* ---- the dataset ---- */

static void store_release(idx_store *store)
{
    mst_pages_release(store->words, store->region);
    mst_free(store->chunks);
    mst_free(store);
}

static void chunk_destroy(mst_chunk *self)
{
    idx_store *store = ((idx_chunk *)self)->store;
    if (atomic_fetch_sub_explicit(&store->n_chunks, 1, memory_order_acq_rel) == 1)
        store_release(store);
}

static mst_status idx_load(mst_dataset *self, uint32_t c, mst_chunk **out)
{
    mst_chunk *chunk = &((idx_dataset *)self)->store->chunks[c].base;
    mst_chunk_hold(chunk);
    *out = chunk;
    return MST_OK;
}

static void idx_destroy(mst_dataset *self)
{
    idx_dataset *d = (idx_dataset *)self;
    if (d == NULL)
        return;
    idx_store *store = d->store;
    unsigned n = store != NULL ? atomic_load_explicit(&store->n_chunks, memory_order_relaxed) : 0;
    if (store != NULL && n == 0)
        store_release(store);
    for (unsigned c = 0; c < n; c++) /* the last of them takes the store along, unless others hold chunks */
        mst_chunk_release(&store->chunks[c].base);
    mst_free(d->base.name);
    mst_free(d);
}

static const mst_dataset_ops idx_ops = {.name = "idx", .load = idx_load, .destroy = idx_destroy};

/* Cuts the finished records into chunks and gathers the figures. */
static mst_status make_chunks(idx_dataset *d, bool bytes, uint32_t n_dense, size_t stride)
{
    mst_data_info *info = &d->base.info;
    uint64_t n_rows = info->n_rows;
    uint32_t n_chunks = (uint32_t)((n_rows + MST_IDX_ROWS - 1) / MST_IDX_ROWS);
    idx_store *store = d->store;
    store->chunks = mst_calloc(n_chunks + 1u, sizeof *store->chunks);
    if (store->chunks == NULL)
        return mst_fail(MST_ENOMEM, "%s: out of memory: %u chunks", d->base.name, n_chunks);
    info->labels_integral = true;
    for (uint32_t c = 0; c < n_chunks; c++) {
        uint64_t first = (uint64_t)c * MST_IDX_ROWS;
        uint32_t n = (uint32_t)(n_rows - first < MST_IDX_ROWS ? n_rows - first : MST_IDX_ROWS);
        mst_chunk *chunk = &store->chunks[c].base;
        store->chunks[c].store = store;
        chunk->n_rows = n;
        chunk->n_dense = n_dense;
        chunk->dense_bytes = bytes;
        chunk->stride = (uint32_t)stride;
        chunk->words = store->words + first * stride;
        chunk->n_words = n * stride;
        chunk->max_key = n_dense - 1;
        chunk->n_entries = (uint64_t)n * n_dense;
        chunk->bytes_read = chunk->n_entries * (bytes ? 1 : 4);
        chunk->destroy = chunk_destroy;
        atomic_init(&chunk->references, 1);
        const float *labels = (const float *)chunk->words;
        chunk->min_label = chunk->max_label = labels[0];
        for (uint32_t i = 0; i < n; i++) {
            float label = labels[i * stride];
            chunk->min_label = fminf(chunk->min_label, label);
            chunk->max_label = fmaxf(chunk->max_label, label);
            info->n_positive += label > 0.0f;
            info->labels_integral &= label == floorf(label);
        }
        info->min_label = c == 0 ? chunk->min_label : fminf(info->min_label, chunk->min_label);
        info->max_label = c == 0 ? chunk->max_label : fmaxf(info->max_label, chunk->max_label);
    }
    atomic_init(&store->n_chunks, n_chunks);
    info->n_dense = n_dense;
    info->n_features = n_dense;
    info->n_entries = n_rows * n_dense;
    info->scanned = true;
    d->base.random = true;
    d->base.load_is_cheap = true;
    d->base.n_chunks = n_chunks;
    d->base.chunk_rows = MST_IDX_ROWS;
    return MST_OK;
}

/* The files of items among paths and where their rows start. */
typedef struct source {
    const char *path;
    char *labels;
    uint64_t first_row;
} source;

static mst_status read_source(const source *s, uint32_t *words, size_t stride)
{
    mst_status st;
    idx_file images = {0}, labels = {0};
    uint32_t *records = words + s->first_row * stride;
    TRY_OUT(st, file_open(s->path, &images));
    TRY_OUT(st, file_open(s->labels, &labels));
    if (labels.n_dimensions != 1) {
        st = mst_fail(MST_EINPUT, "%s: labels have one dimension, and it has %u", s->labels,
                      labels.n_dimensions);
        goto out;
    }
    if (labels.n_items != images.n_items) {
        st = mst_fail(MST_EINPUT, "%s holds %u labels for the %u items of %s", s->labels, labels.n_items,
                      images.n_items, s->path);
        goto out;
    }
    TRY_OUT(st, read_numbers(&labels, (float *)records, stride, labels.n_items));
    TRY_OUT(st, expect_end(&labels));
    for (uint32_t i = 0; i < images.n_items; i++) {
        uint32_t *item = records + i * stride + 1;
        if (images.type == TYPE_U8)
            TRY_OUT(st, read_exactly(&images, item, images.item));
        else
            TRY_OUT(st, read_numbers(&images, (float *)item, 1, images.item));
    }
    st = expect_end(&images);
out:
    file_close(&images);
    file_close(&labels);
    return st;
}

/* Tells files of items from files of labels, finds the labels, adds up the rows. *shape is the first file's.
 */
static mst_status list_sources(const mst_text_list *paths, const mst_data_options *options, source *sources,
                               size_t *n_sources, idx_file *shape, mst_data_info *info)
{
    mst_status st = MST_OK;
    size_t n = 0, n_label_files = 0;
    bool given = options->labels != NULL && *options->labels != '\0';
    for (size_t i = 0; i < paths->n; i++) {
        idx_file f = {0};
        st = file_open(paths->items[i], &f);
        uint64_t bytes = st == MST_OK ? mst_in_file_size(f.in) : 0;
        file_close(&f);
        TRY(st);
        info->bytes += bytes;
        if (f.n_dimensions == 1) {
            n_label_files++;
            continue;
        }
        if (n > 0 && (f.item != shape->item || f.type != shape->type ||
                      memcmp(f.sides, shape->sides, sizeof f.sides) != 0))
            return mst_fail(MST_EINPUT, "%s and %s hold items of different size or type", sources[0].path,
                            f.path);
        if (n == 0)
            *shape = f;
        source *s = &sources[n];
        s->path = f.path;
        s->first_row = info->n_rows;
        *n_sources = ++n; /* from here on its labels are released with the rest */
        if (given) {
            s->labels = mst_strdup(options->labels);
            if (s->labels == NULL)
                return mst_fail(MST_ENOMEM, "out of memory: the labels of %s", s->path);
        } else {
            TRY(usual_labels(s->path, &s->labels));
        }
        info->n_rows += f.n_items;
    }
    if (n == 0)
        return mst_fail(MST_EINPUT, "%s: labels without items: name the file with the images",
                        paths->items[0]);
    if (given && n > 1)
        return mst_fail(MST_EUSAGE, "--labels names one file, and there are %zu files of items", n);
    if (n_label_files > n)
        return mst_fail(MST_EINPUT, "%zu files of labels for %zu files of items", n_label_files, n);
    return MST_OK;
}

mst_status mst_idx_open(const mst_text_list *paths, const mst_data_options *options, mst_dataset **out)
{
    mst_status st = MST_OK;
    size_t n_sources = 0;
    idx_file shape = {0};
    source *sources = NULL;
    idx_dataset *d = NULL;
    if (paths->n == 0)
        return mst_fail(MST_EUSAGE, "no IDX file is named");
    sources = mst_calloc(paths->n, sizeof *sources);
    d = mst_zalloc(sizeof *d);
    if (sources == NULL || d == NULL || (d->store = mst_zalloc(sizeof *d->store)) == NULL) {
        st = mst_fail(MST_ENOMEM, "out of memory: reading %s", paths->items[0]);
        goto out;
    }
    d->base.ops = &idx_ops;
    TRY_OUT(st, list_sources(paths, options, sources, &n_sources, &shape, &d->base.info));
    d->base.name = n_sources == 1 ? mst_strdup(sources[0].path)
                                  : mst_sprintf("%s and %zu more", sources[0].path, n_sources - 1);
    bool bytes = shape.type == TYPE_U8;
    size_t stride = 1 + (size_t)(bytes ? (shape.item + 3) / 4 : shape.item);
    uint64_t n_rows = d->base.info.n_rows, region = n_rows * stride * 4;
    if (d->base.name == NULL || n_rows > MAX_REGION / 4 / stride) {
        st = mst_fail(MST_ENOMEM, "%s: %" PRIu64 " rows of %zu bytes do not fit into memory", sources[0].path,
                      n_rows, stride * 4);
        goto out;
    }
    if (options->features != 0 && (uint64_t)options->features < shape.item) {
        st = mst_fail(MST_EINPUT, "%s: items of %" PRIu64 " numbers, and --features is %" PRId64,
                      sources[0].path, shape.item, options->features);
        goto out;
    }
    d->store->region = region + 4; /* there is always something to point at */
    d->store->words = mst_pages_reserve(d->store->region, false);
    if (d->store->words == NULL) {
        st = mst_fail(MST_ENOMEM, "%s: no memory for %" PRIu64 " bytes of rows", sources[0].path, region);
        goto out;
    }
    for (size_t i = 0; i < n_sources; i++)
        TRY_OUT(st, read_source(&sources[i], d->store->words, stride));
    TRY_OUT(st, make_chunks(d, bytes, (uint32_t)shape.item, stride));
    d->base.info.channels = shape.sides[0];
    d->base.info.height = shape.sides[1];
    d->base.info.width = shape.sides[2];
    *out = &d->base;
    d = NULL;
out:
    for (size_t i = 0; i < n_sources; i++)
        mst_free(sources[i].labels);
    mst_free(sources);
    if (d != NULL)
        idx_destroy(&d->base);
    return st;
}
