/* IDX files as a dataset (contract: idx.h).
 *
 * A file is: two zero bytes, a type byte, the number of dimensions, each dimension as big-endian u32, then
 * the items. Everything is read once, front to back, into the records of a resident dataset: unsigned bytes
 * unchanged, numbers of all other types as floats.
 *
 * Invariants
 * 1. Before a plain file is read, its size is checked against its header. */
#include "data/idx.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "data/stream.h"

enum { TYPE_U8 = 0x08, TYPE_I8 = 0x09, TYPE_I16 = 0x0b, TYPE_I32 = 0x0c, TYPE_F32 = 0x0d, TYPE_F64 = 0x0e };
enum { MAX_DIMENSIONS = 8 };
#define MAX_ITEM ((uint64_t)1 << 28) /* numbers of one item */

/* One open file, past its header. */
typedef struct idx_file {
    mst_in *in;
    const char *path;
    unsigned type, width, n_dimensions; /* width: bytes of a number */
    uint32_t n_items;
    uint64_t item;     /* numbers of an item */
    uint32_t sides[3]; /* channels, height, width; 0: items are not images */
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

static int idx_sniff(const uint8_t *head, size_t n, uint64_t file_size)
{
    (void)file_size;
    bool magic = n >= 8 && head[0] == 0 && head[1] == 0 && type_width(head[2]) != 0;
    return magic && head[3] >= 1 && head[3] <= MAX_DIMENSIONS && n >= 4u + 4u * head[3] ? MST_SNIFF_BINARY
                                                                                        : 0;
}

static uint32_t idx_big32(const uint8_t *at)
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
    f->n_items = idx_big32(head);
    for (unsigned d = 1; d < f->n_dimensions; d++) {
        f->item *= idx_big32(head + 4 * d);
        if (f->item > MAX_ITEM)
            return mst_fail(MST_EINPUT, "%s: its header describes items of more than %" PRIu64 " numbers",
                            path, MAX_ITEM);
    }
    if (f->item == 0)
        return mst_fail(MST_EINPUT, "%s: its header describes items of no numbers", path);
    if (f->n_dimensions == 3 || f->n_dimensions == 4) {
        const uint8_t *last = head + 4 * (f->n_dimensions - 2);
        f->sides[0] = f->n_dimensions == 4 ? idx_big32(head + 4) : 1;
        f->sides[1] = idx_big32(last);
        f->sides[2] = idx_big32(last + 4);
    }
    uint64_t expected = mst_in_offset(f->in) + f->n_items * f->item * f->width;
    uint64_t size = mst_in_file_size(f->in);
    if (!mst_in_compressed(f->in) && size != 0 && size < expected)
        return mst_fail(MST_EINPUT, "%s: cut off: %" PRIu64 " bytes, where its header requires %" PRIu64,
                        path, size, expected);
    if (!mst_in_compressed(f->in) && size != 0 && size > expected)
        return mst_fail(MST_EINPUT,
                        "%s: %" PRIu64 " bytes too many after the items that its header describes", path,
                        size - expected);
    return MST_OK;
}

static mst_status idx_read_exactly(idx_file *f, void *to, size_t n)
{
    size_t got;
    TRY(mst_in_read(f->in, to, n, &got));
    if (got < n)
        return mst_fail(MST_EINPUT,
                        "%s: cut off at byte %" PRIu64
                        ", before the end of the items that its header describes",
                        f->path, mst_in_offset(f->in));
    return MST_OK;
}

static mst_status expect_end(idx_file *f)
{
    uint8_t byte;
    size_t got;
    TRY(mst_in_read(f->in, &byte, 1, &got));
    if (got != 0)
        return mst_fail(MST_EINPUT, "%s: more bytes after the items that its header describes", f->path);
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
        return (float)(int32_t)idx_big32(at);
    case TYPE_F32:
        single.bits = idx_big32(at);
        return single.value;
    default:
        twice.bits = (uint64_t)idx_big32(at) << 32 | idx_big32(at + 4);
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
        TRY(idx_read_exactly(f, buffer, piece * f->width));
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

/* The path with `from` in its file name replaced, or NULL when that is not in it. Sets *st on lack of memory.
 */
static char *idx_renamed(const char *path, const char *from, const char *to, mst_status *st)
{
    const char *name = mst_path_name(path), *at = strstr(name, from);
    if (at == NULL)
        return NULL;
    char *out = mst_sprintf("%.*s%s%s", (int)(at - path), path, to, at + strlen(from));
    if (out == NULL)
        *st = mst_fail_memory();
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
        named = idx_renamed(images, images_parts[i], labels_parts[i], &st);
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
            return mst_fail_memory();
        }
        if (mst_path_exists(candidate)) {
            mst_free(named);
            *out = candidate;
            return MST_OK;
        }
        mst_free(candidate);
    }
    st = mst_fail(MST_EINPUT, "%s: its labels are missing (%.*s): name their file with --labels", images,
                  (int)length, named);
    mst_free(named);
    return st;
}

/* ---- training and test files in one folder ---- */

typedef enum idx_set { IDX_SET_OTHER, IDX_SET_TRAIN, IDX_SET_TEST } idx_set;

static idx_set idx_set_of(const char *path)
{
    const char *name = mst_path_name(path);
    if (strncmp(name, "train", 5) == 0)
        return IDX_SET_TRAIN;
    return strncmp(name, "t10k", 4) == 0 || strncmp(name, "test", 4) == 0 ? IDX_SET_TEST : IDX_SET_OTHER;
}

/* Whether the path is that of a file in the folder. */
static bool lies_in(const char *path, const char *folder)
{
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && mst_path_name(path) <= path + n + 1 && mst_path_name(path) > path;
}

/* If a folder among the patterns has files train... and files t10k... or test..., keeps those of one set
 * in paths and logs that; MST_SET_ALL keeps all. */
static void idx_choose_set(const mst_text_list *patterns, mst_set set, mst_text_list *paths)
{
    idx_set unwanted = set == MST_SET_TEST ? IDX_SET_TRAIN : IDX_SET_TEST;
    for (size_t i = 0; i < patterns->n && set != MST_SET_ALL; i++) {
        const char *folder = patterns->items[i];
        bool found[3] = {false};
        size_t n = 0;
        if (!mst_path_is_folder(folder))
            continue;
        for (size_t j = 0; j < paths->n; j++)
            if (lies_in(paths->items[j], folder))
                found[idx_set_of(paths->items[j])] = true;
        if (!found[IDX_SET_TRAIN] || !found[IDX_SET_TEST])
            continue;
        for (size_t j = 0; j < paths->n; j++) {
            if (lies_in(paths->items[j], folder) && idx_set_of(paths->items[j]) == unwanted)
                mst_free(paths->items[j]);
            else
                paths->items[n++] = paths->items[j];
        }
        paths->n = n;
        mst_info("%s: only the files of its %s set are read; name files to read others", folder,
                 set == MST_SET_TEST ? "test" : "training");
    }
}

/* ---- the dataset ---- */

/* The files of items among paths and where their rows start. */
typedef struct idx_source {
    const char *path;
    char *labels; /* NULL: they are not looked at */
    uint64_t first_row;
} idx_source;

/* One label for each of n_items records, `stride` words apart. */
static mst_status idx_read_labels(const idx_source *s, uint32_t n_items, uint32_t *records, size_t stride)
{
    mst_status st;
    idx_file labels = {0};
    for (uint32_t i = 0; i < n_items && s->labels == NULL; i++)
        records[i * stride] = 0; /* 0.0f */
    if (s->labels == NULL)
        return MST_OK;
    TRY_OUT(st, file_open(s->labels, &labels));
    if (labels.n_dimensions != 1) {
        st = mst_fail(MST_EINPUT, "%s: labels have one dimension, but it has %u", s->labels,
                      labels.n_dimensions);
        goto out;
    }
    if (labels.n_items != n_items) {
        st = mst_fail(MST_EINPUT, "%s holds %u labels for the %u items of %s", s->labels, labels.n_items,
                      n_items, s->path);
        goto out;
    }
    TRY_OUT(st, read_numbers(&labels, (float *)records, stride, labels.n_items));
    st = expect_end(&labels);
out:
    file_close(&labels);
    return st;
}

static mst_status read_source(const idx_source *s, mst_dataset *dataset)
{
    mst_status st;
    idx_file images = {0};
    size_t stride = (size_t)(mst_resident_record(dataset, 1) - mst_resident_record(dataset, 0));
    uint32_t *records = mst_resident_record(dataset, s->first_row);
    TRY_OUT(st, file_open(s->path, &images));
    TRY_OUT(st, idx_read_labels(s, images.n_items, records, stride));
    for (uint32_t i = 0; i < images.n_items; i++) {
        uint32_t *item = records + i * stride + 1;
        if (images.type == TYPE_U8)
            TRY_OUT(st, idx_read_exactly(&images, item, images.item));
        else
            TRY_OUT(st, read_numbers(&images, (float *)item, 1, images.item));
    }
    st = expect_end(&images);
out:
    file_close(&images);
    return st;
}

/* Separates files of items from files of labels, finds the labels, adds up the rows. *shape is the first
 * file's.
 */
static mst_status list_sources(const mst_text_list *paths, const mst_data_options *options,
                               idx_source *sources, size_t *n_sources, idx_file *shape, mst_data_info *info)
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
        idx_source *s = &sources[n];
        s->path = f.path;
        s->first_row = info->n_rows;
        *n_sources = ++n; /* from here on its labels are released with the rest */
        if (options->unlabelled) {
            s->labels = NULL;
        } else if (given) {
            s->labels = mst_strdup(options->labels);
            if (s->labels == NULL)
                return mst_fail_memory();
        } else {
            TRY(usual_labels(s->path, &s->labels));
        }
        info->n_rows += f.n_items;
    }
    if (n == 0)
        return mst_fail(MST_EINPUT, "%s: labels without items: name the file with the images",
                        paths->items[0]);
    if (given && n > 1 && !options->unlabelled)
        return mst_fail(MST_EUSAGE, "--labels names one file, but there are %zu files of items", n);
    if (n_label_files > n && !options->unlabelled)
        return mst_fail(MST_EINPUT, "%zu files of labels for %zu files of items", n_label_files, n);
    return MST_OK;
}

mst_status mst_idx_open(const mst_text_list *paths, const mst_data_options *options, mst_dataset **out)
{
    mst_status st = MST_OK;
    size_t n_sources = 0;
    idx_file shape = {0};
    idx_source *sources = NULL;
    char *name = NULL;
    mst_data_info info = {0};
    mst_dataset *d = NULL;
    if (paths->n == 0)
        return mst_fail(MST_EUSAGE, "no IDX file is named");
    sources = mst_calloc(paths->n, sizeof *sources);
    if (sources == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    TRY_OUT(st, list_sources(paths, options, sources, &n_sources, &shape, &info));
    name = n_sources == 1 ? mst_strdup(sources[0].path)
                          : mst_sprintf("%s and %zu more", sources[0].path, n_sources - 1);
    if (name == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    TRY_OUT(st, mst_resident_new(&mst_data_idx, name, info.n_rows, (uint32_t)shape.item,
                                 shape.type == TYPE_U8, &d));
    for (size_t i = 0; i < n_sources; i++)
        TRY_OUT(st, read_source(&sources[i], d));
    TRY_OUT(st, mst_resident_finish(d, options->unlabelled ? 0 : options->labels_from));
    d->info.bytes = info.bytes;
    d->info.channels = shape.sides[0];
    d->info.height = shape.sides[1];
    d->info.width = shape.sides[2];
    *out = d;
    d = NULL;
out:
    for (size_t i = 0; i < n_sources; i++)
        mst_free(sources[i].labels);
    mst_free(sources);
    mst_free(name);
    mst_dataset_destroy(d);
    return st;
}

static mst_status idx_open(const mst_data_kind *self, mst_data_source *source, mst_dataset **out)
{
    (void)self;
    idx_choose_set(source->patterns, source->options->set, source->paths);
    return mst_idx_open(source->paths, source->options, out);
}

const mst_data_kind mst_data_idx = {
    .name = "idx",
    .help = "MNIST's format: images and labels in a file each",
    .capabilities = MST_DATA_FIXED_ROWS,
    .reads = "labels",
    .sniff = idx_sniff,
    .open = idx_open,
};
