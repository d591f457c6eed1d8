/* NumPy's arrays (contract: numpy.h): read once into the records of a resident dataset. An element is found
 * by the strides of its dimensions, so Fortran order and channels at the end need no case of their own. */
#include "data/numpy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/npy_header.h"
#include "base/utf8.h"
#include "data/npz.h"
#include "data/resident.h"
#include "data/stream.h"

#define TEXT_MOST    1000 /* characters of a label */
#define CLASSES_MOST 1000 /* labels that are texts */

/* An array in memory. */
typedef struct numpy_array {
    const char *path;
    mst_npy_shape shape;
    const uint8_t *elements;
    uint64_t count, strides[MST_NPY_DIMS]; /* in elements */
    bool texts;                            /* elements are texts (numpy_text) */
    mst_map map;
    mst_npz_member member;
} numpy_array;

static void numpy_array_fini(numpy_array *a)
{
    mst_map_close(&a->map);
    mst_free(a->member.owned);
}

/* Bytes of a text of the type U or S; 0: the type is another. */
static uint32_t numpy_text_size(const char *descr)
{
    const char *p = descr + (strchr("<|=", descr[0]) != NULL && descr[0] != '\0');
    char *end;
    if (*p != 'U' && *p != 'S')
        return 0;
    unsigned long n = strtoul(p + 1, &end, 10);
    return *end == '\0' && n > 0 && n <= TEXT_MOST ? (uint32_t)n * (*p == 'U' ? 4 : 1) : 0;
}

/* texts: its elements may be texts. */
static mst_status numpy_describe(numpy_array *a, const char *path, const uint8_t *data, size_t n, bool texts)
{
    mst_npy_shape *s = &a->shape;
    a->path = path;
    TRY(mst_npy_shape_parse(path, data, n, n, &a->shape));
    if (s->item == 0 && texts) {
        s->item = numpy_text_size(s->descr);
        a->texts = s->item > 0;
        s->little |= a->texts && s->descr[0] != '>';
    }
    if (s->item == 0 && texts)
        return mst_fail(
            MST_EINPUT,
            "%s: its labels have dtype %s; labels are numbers, or texts of at most %d characters: "
            "y.astype(str)",
            path, s->descr, TEXT_MOST);
    if (s->item == 0 || !s->little)
        return mst_fail(
            MST_EINPUT,
            "%s: has dtype %s; must be little-endian numbers: numpy.save(file, array.astype('<f4'))", path,
            s->descr);
    if (s->n_dims == 0 || s->n_dims > MST_NPY_DIMS)
        return mst_fail(MST_EINPUT, "%s: has %u dimensions; 1 to %d are possible", path, s->n_dims,
                        MST_NPY_DIMS);
    a->count = 1;
    for (uint32_t i = 0; i < s->n_dims; i++)
        if (__builtin_mul_overflow(a->count, s->dims[i], &a->count))
            return mst_fail(MST_EINPUT, "%s: its shape has too many elements", path);
    if (a->count > (n - s->at) / s->item)
        return mst_fail(MST_EINPUT, "%s: is cut off: %llu elements of %u bytes do not fit in its %zu bytes",
                        path, (unsigned long long)a->count, s->item, n);
    uint64_t stride = 1;
    for (uint32_t k = 0; k < s->n_dims; k++) {
        uint32_t i = s->fortran ? k : s->n_dims - 1 - k;
        a->strides[i] = stride;
        stride *= s->dims[i];
    }
    a->elements = data + s->at;
    return MST_OK;
}

/* Element i of texts in UTF-8; the caller frees. NULL: it has a character that is none, or no memory. */
static char *numpy_text(const numpy_array *a, uint64_t i)
{
    const uint8_t *p = a->elements + i * a->shape.item;
    bool wide = strchr(a->shape.descr, 'U') != NULL;
    uint32_t n = wide ? a->shape.item / 4 : a->shape.item;
    char *out = mst_alloc(4u * n + 1u), *at = out;
    for (uint32_t k = 0; out != NULL && k < n; k++) {
        uint32_t c = p[k];
        if (wide)
            memcpy(&c, p + 4 * k, sizeof c);
        if (c == 0)
            break;
        size_t length = wide ? mst_utf8_encode(c, at) : 1;
        if (!wide)
            *at = (char)c;
        if (length == 0) {
            mst_free(out);
            return NULL;
        }
        at += length;
    }
    if (out != NULL)
        *at = '\0';
    return out;
}

/* Element i as a number. */
static double numpy_value(const numpy_array *a, uint64_t i)
{
    const uint8_t *p = a->elements + i * a->shape.item;
    union {
        float f4;
        double f8;
        uint16_t u2;
        uint32_t u4;
        uint64_t u8;
        int16_t i2;
        int32_t i4;
        int64_t i8;
    } v;
    memcpy(&v, p, a->shape.item);
    switch (a->shape.type[0] << 8 | a->shape.type[1]) {
    case 'f' << 8 | '4':
        return (double)v.f4;
    case 'f' << 8 | '8':
        return v.f8;
    case 'u' << 8 | '2':
        return v.u2;
    case 'u' << 8 | '4':
        return v.u4;
    case 'u' << 8 | '8':
        return (double)v.u8;
    case 'i' << 8 | '1':
        return (int8_t)*p;
    case 'i' << 8 | '2':
        return v.i2;
    case 'i' << 8 | '4':
        return v.i4;
    case 'i' << 8 | '8':
        return (double)v.i8;
    default: /* u1, b1 */
        return *p;
    }
}

/* ---- finding ---- */

static bool numpy_is_archive(const uint8_t *data, size_t n)
{
    return n >= 4 && memcmp(data, "PK\3\4", 4) == 0;
}

/* The arrays of an archive by their usual names; those of a test set where one is wanted. */
static mst_status numpy_from_archive(const char *path, mst_set set, numpy_array *x, numpy_array *y)
{
    static const char *const pairs[][2] = {
        {"x_test", "y_test"}, {"X_test", "y_test"}, {"x_train", "y_train"}, {"X_train", "y_train"},
        {"x", "y"},           {"X", "y"},           {"data", "labels"},     {"data", "target"},
        {"images", "labels"}, {"arr_0", "arr_1"}};
    for (size_t i = set == MST_SET_TEST ? 0 : 2; i < sizeof pairs / sizeof *pairs; i++) {
        TRY(mst_npz_find(path, x->map.data, x->map.size, pairs[i][0], &x->member));
        if (x->member.data == NULL)
            continue;
        TRY(mst_npz_find(path, x->map.data, x->map.size, pairs[i][1], &y->member));
        if (y->member.data == NULL && strcmp(pairs[i][1], "labels") == 0)
            TRY(mst_npz_find(path, x->map.data, x->map.size, "target", &y->member));
        TRY(numpy_describe(x, path, x->member.data, x->member.size, false));
        return y->member.data != NULL ? numpy_describe(y, path, y->member.data, y->member.size, true)
                                      : MST_OK;
    }
    return mst_fail(MST_EINPUT,
                    "%s has no rows under a usual name: save them with numpy.savez(FILE, X=rows, y=labels)",
                    path);
}

/* The file of the labels: the name of the rows with y in place of x. The caller frees; NULL: there is none.
 */
static char *numpy_labels_path(const char *path)
{
    static const char *const words[][2] = {{"images", "labels"}, {"data", "labels"}, {"_x", "_y"},
                                           {"x_", "y_"},         {"X", "y"},         {"x.", "y."}};
    const char *name = mst_path_name(path);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *at = strstr(name, words[i][0]);
        char *labels = at != NULL ? mst_sprintf("%.*s%s%s", (int)(at - path), path, words[i][1],
                                                at + strlen(words[i][0]))
                                  : NULL;
        if (labels != NULL && mst_path_exists(labels))
            return labels;
        mst_free(labels);
    }
    return NULL;
}

static mst_status numpy_find(const char *path, const mst_data_options *o, numpy_array *x, numpy_array *y,
                             char **labels)
{
    TRY(mst_map_open(path, &x->map));
    if (numpy_is_archive(x->map.data, x->map.size))
        return numpy_from_archive(path, o->set, x, y);
    TRY(numpy_describe(x, path, x->map.data, x->map.size, false));
    *labels = o->labels != NULL ? mst_strdup(o->labels) : numpy_labels_path(path);
    if (*labels == NULL)
        return MST_OK;
    TRY(mst_map_open(*labels, &y->map));
    return numpy_describe(y, *labels, y->map.data, y->map.size, true);
}

/* ---- labels that are texts ---- */

/* Whether the sorted or given list has the text, and where. */
static bool numpy_find_class(const mst_text_list *names, const char *text, size_t *out)
{
    for (size_t i = 0; i < names->n; i++)
        if (strcmp(names->items[i], text) == 0) {
            *out = i;
            return true;
        }
    return false;
}

/* ---- rows ---- */

/* Dimensions of a row as channels, height and width, in the order of its numbers; their strides. */
typedef struct numpy_rows {
    uint64_t sides[3], strides[3];
    bool image, bytes;
} numpy_rows;

static mst_status numpy_layout(const numpy_array *x, numpy_rows *out)
{
    const uint64_t *d = x->shape.dims, *s = x->strides;
    *out = (numpy_rows){
        .sides = {1, 1, 1}, .image = x->shape.n_dims > 2, .bytes = strcmp(x->shape.type, "u1") == 0};
    bool last = x->shape.n_dims == 4 && (d[3] == 1 || d[3] == 3) && d[1] != 1 && d[1] != 3;
    switch (x->shape.n_dims) {
    case 2:
        out->sides[2] = d[1];
        out->strides[2] = s[1];
        break;
    case 3:
        memcpy(out->sides + 1, d + 1, 2 * sizeof *d);
        memcpy(out->strides + 1, s + 1, 2 * sizeof *s);
        break;
    case 4:
        for (int k = 0; k < 3; k++) {
            int from = last ? (k == 0 ? 3 : k) : k + 1;
            out->sides[k] = d[from];
            out->strides[k] = s[from];
        }
        break;
    default:
        return mst_fail(MST_EINPUT, "%s: has 1 dimension; rows are the first of two or more", x->path);
    }
    uint64_t size = x->count / (d[0] > 0 ? d[0] : 1);
    if (d[0] > 0 && (size == 0 || size > 1u << 28))
        return mst_fail(MST_EINPUT, "%s: rows of %llu numbers are not possible", x->path,
                        (unsigned long long)size);
    return MST_OK;
}

/* The classes of labels that are texts: those of the options (of the training data), or all texts, sorted. */
static mst_status numpy_classes(const numpy_array *y, const mst_text_list *known, mst_dataset *d)
{
    mst_text_list names = {0};
    mst_status st = MST_OK;
    for (size_t i = 0; i < known->n && st == MST_OK; i++)
        st = mst_text_list_add(&names, known->items[i]);
    for (uint64_t i = 0; known->n == 0 && i < y->count && st == MST_OK; i++) {
        char *text = numpy_text(y, i);
        if (text == NULL || !mst_utf8_plain(text))
            st =
                mst_fail(MST_EINPUT, "%s: label %llu is not a text in UTF-8", y->path, (unsigned long long)i);
        else if (!numpy_find_class(&names, text, &(size_t){0})) {
            st = names.n < CLASSES_MOST
                     ? mst_text_list_add(&names, text)
                     : mst_fail(MST_EINPUT, "%s: its labels are more than %d different texts", y->path,
                                CLASSES_MOST);
            mst_text_list_sort(&names, 0);
        }
        mst_free(text);
    }
    d->class_names = names.items;
    d->n_class_names = (uint32_t)names.n;
    return st;
}

/* The number of label r. */
static mst_status numpy_label(const numpy_array *y, uint64_t r, const mst_dataset *d, float *out)
{
    const mst_text_list names = {.items = d->class_names, .n = d->n_class_names};
    size_t class = 0;
    if (!y->texts) {
        *out = (float)numpy_value(y, r);
        return isfinite(*out) ? MST_OK
                              : mst_fail(MST_EINPUT, "%s: label %llu is not a finite number", y->path,
                                         (unsigned long long)r);
    }
    char *text = numpy_text(y, r);
    mst_status st = text != NULL && numpy_find_class(&names, text, &class)
                        ? MST_OK
                        : mst_fail(MST_EINPUT, "%s: label %llu, \"%s\", is none of the classes of the model",
                                   y->path, (unsigned long long)r, text != NULL ? text : "");
    mst_free(text);
    *out = (float)class;
    return st;
}

static mst_status numpy_fill(const numpy_array *x, const numpy_array *y, const numpy_rows *rows,
                             mst_dataset *d)
{
    for (uint64_t r = 0; r < x->shape.dims[0]; r++) {
        uint32_t *record = mst_resident_record(d, r);
        float label = 0.0f, *out = (float *)(record + 1);
        uint8_t *bytes = (uint8_t *)(record + 1);
        if (y->elements != NULL)
            TRY(numpy_label(y, r, d, &label));
        memcpy(record, &label, sizeof label);
        uint64_t n = 0, at = r * x->strides[0];
        for (uint64_t c = 0; c < rows->sides[0]; c++)
            for (uint64_t h = 0; h < rows->sides[1]; h++)
                for (uint64_t w = 0; w < rows->sides[2]; w++, n++) {
                    uint64_t i = at + c * rows->strides[0] + h * rows->strides[1] + w * rows->strides[2];
                    if (rows->bytes) {
                        bytes[n] = x->elements[i];
                        continue;
                    }
                    out[n] = (float)numpy_value(x, i);
                    if (!isfinite(out[n]))
                        return mst_fail(MST_EINPUT, "%s: number %llu of row %llu is not a finite float32",
                                        x->path, (unsigned long long)n + 1, (unsigned long long)r + 1);
                }
    }
    return MST_OK;
}

static mst_status numpy_open(const mst_data_kind *self, mst_data_source *source, mst_dataset **out)
{
    const mst_data_options *o = source->options;
    numpy_array x = {0}, y = {0};
    numpy_rows rows;
    mst_dataset *d = NULL;
    char *labels = NULL;
    mst_status st;
    const char *path = source->paths->items[0];
    if (source->paths->n > 1)
        return mst_fail(MST_EINPUT,
                        "%s and %s: give one array, whose labels are found by its name or with --labels FILE",
                        path, source->paths->items[1]);
    TRY_OUT(st, numpy_find(path, o, &x, &y, &labels));
    TRY_OUT(st, numpy_layout(&x, &rows));
    if (y.elements == NULL && !o->unlabelled) {
        st = mst_fail(MST_EINPUT,
                      "%s has no labels: give them with --labels FILE.npy, or as y of a .npz file", path);
        goto out;
    }
    if (y.elements != NULL && (y.count != x.shape.dims[0] || y.shape.dims[0] != y.count)) {
        st = mst_fail(MST_EINPUT, "%s has %llu rows, but %llu labels", path,
                      (unsigned long long)x.shape.dims[0], (unsigned long long)y.count);
        goto out;
    }
    uint64_t size = rows.sides[0] * rows.sides[1] * rows.sides[2];
    TRY_OUT(st, mst_resident_new(self, path, x.shape.dims[0], (uint32_t)size, rows.bytes, &d));
    if (o->unlabelled)
        y.elements = NULL;
    if (y.elements != NULL && y.texts)
        TRY_OUT(st, numpy_classes(&y, &o->image_classes, d));
    TRY_OUT(st, numpy_fill(&x, &y, &rows, d));
    TRY_OUT(st, mst_map_check(&x.map));
    TRY_OUT(st, mst_resident_finish(d, o->unlabelled ? 0 : o->labels_from));
    d->info.bytes = mst_paths_bytes(source->paths);
    if (rows.image) {
        d->info.channels = (uint32_t)rows.sides[0];
        d->info.height = (uint32_t)rows.sides[1];
        d->info.width = (uint32_t)rows.sides[2];
    }
    *out = d;
    d = NULL;
out:
    mst_dataset_destroy(d);
    numpy_array_fini(&x);
    numpy_array_fini(&y);
    mst_free(labels);
    return st;
}

static int numpy_sniff(const uint8_t *head, size_t n, uint64_t file_size)
{
    (void)file_size;
    bool array = n >= MST_NPY_MAGIC_SIZE && memcmp(head, MST_NPY_MAGIC, MST_NPY_MAGIC_SIZE) == 0;
    return array || (numpy_is_archive(head, n) && memmem(head, n, ".npy", 4) != NULL) ? MST_SNIFF_BINARY : 0;
}

const mst_data_kind mst_data_numpy = {
    .name = "numpy",
    .help = "NumPy's .npy and .npz: rows, and labels beside them or as y; --labels names another file",
    .capabilities = MST_DATA_FIXED_ROWS,
    .reads = "labels",
    .sniff = numpy_sniff,
    .open = numpy_open,
};
