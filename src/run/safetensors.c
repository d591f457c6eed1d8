/* Design: jansson parses the header, which is then checked field by field; the parsed tree is kept, because
 * the names point into it. Data moves through sparse_file.
 *
 * Invariants of an open file
 * 1. 8 + header length <= file size, and the header length is at most 100 MB: checked before any allocation.
 * 2. Sorted by their offsets, the tensors cover [0, file size - 8 - header length) without overlap or gap.
 * 3. end - begin = product of the shape x size of the data type, without overflow. */
#include "run/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "run/sparse_file.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are stored as they lie in memory");

#define HEADER_MAX 100000000u
#define DATA_ALIGN 64
#define METADATA   "__metadata__"
#define SHOWN_MAX  64

static const struct {
    const char *name;
    unsigned bits;
} dtypes[] = {
    {"F32", 32}, {"F64", 64}, {"F16", 16},    {"BF16", 16},   {"BOOL", 8},    {"U8", 8},      {"I8", 8},
    {"U16", 16}, {"I16", 16}, {"U32", 32},    {"I32", 32},    {"U64", 64},    {"I64", 64},    {"F8_E4M3", 8},
    {"F4", 4},   {"C64", 64}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6},
};

struct mst_safetensors {
    char *path;
    int fd;
    uint64_t data_at, data_size;
    json_t *root;        /* the header; NULL for a file that is written */
    mst_tensor *tensors; /* names: in the header */
    size_t n;
};

/* Text from a file for a message: truncated, and without control characters. */
typedef struct shown {
    char text[SHOWN_MAX];
} shown;

static shown safetensors_show(const char *text)
{
    shown s;
    size_t n = 0;
    for (; n < SHOWN_MAX - 1 && text[n] != 0; n++)
        s.text[n] = (unsigned char)text[n] < 32 || text[n] == 127 ? '?' : text[n];
    s.text[n] = 0;
    return s;
}

/* ---- header ---- */

static mst_status safetensors_bad_tensor(const mst_safetensors *self, const char *name, const char *what)
{
    return mst_fail(MST_EINPUT, "%s: not a valid safetensors file: tensor \"%s\" %s", self->path,
                    safetensors_show(name).text, what);
}

static bool safetensors_size(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static mst_status safetensors_parse_tensor(const mst_safetensors *self, const char *name, const json_t *entry,
                                           mst_tensor *tensor)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape"), *offsets = json_object_get(entry, "data_offsets");
    if (dtype == NULL || !json_is_array(shape) || !json_is_array(offsets))
        return safetensors_bad_tensor(self, name, "lacks dtype, shape or data_offsets");
    unsigned bits = 0;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtype, dtypes[i].name) == 0)
            bits = dtypes[i].bits;
    if (bits == 0)
        return safetensors_bad_tensor(self, name, "has an unknown dtype");
    if (json_array_size(shape) > MST_TENSOR_NDIM)
        return safetensors_bad_tensor(self, name, "has more than 8 dimensions");
    tensor->name = name;
    tensor->dtype = dtype;
    tensor->n_dims = (uint32_t)json_array_size(shape);
    tensor->n_elements = 1;
    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        if (!safetensors_size(json_array_get(shape, i), &tensor->dims[i]))
            return safetensors_bad_tensor(self, name, "has a shape that is not whole numbers");
        if (__builtin_mul_overflow(tensor->n_elements, tensor->dims[i], &tensor->n_elements))
            return safetensors_bad_tensor(self, name, "has a shape too large to exist");
    }
    uint64_t n_bits;
    if (__builtin_mul_overflow(tensor->n_elements, bits, &n_bits))
        return safetensors_bad_tensor(self, name, "has a shape too large to exist");
    if (json_array_size(offsets) != 2 || !safetensors_size(json_array_get(offsets, 0), &tensor->begin) ||
        !safetensors_size(json_array_get(offsets, 1), &tensor->end))
        return safetensors_bad_tensor(self, name, "has data_offsets that are not two whole numbers");
    if (tensor->begin > tensor->end)
        return safetensors_bad_tensor(self, name, "ends before it begins");
    if (tensor->end > self->data_size)
        return safetensors_bad_tensor(self, name, "lies beyond the end of the file");
    if (n_bits % 8 != 0 || tensor->end - tensor->begin != n_bits / 8)
        return safetensors_bad_tensor(self, name, "has a shape and dtype that do not fit its size in bytes");
    return MST_OK;
}

static mst_status safetensors_check_metadata(const mst_safetensors *self, json_t *metadata)
{
    const char *key;
    json_t *value;
    bool good = json_is_object(metadata);
    json_object_foreach(metadata, key, value) good = good && json_is_string(value);
    if (!good)
        return mst_fail(MST_EINPUT,
                        "%s: not a valid safetensors file: " METADATA " is not an object of texts",
                        self->path);
    return MST_OK;
}

static int by_offset(const void *a, const void *b)
{
    const mst_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static mst_status safetensors_parse_header(mst_safetensors *self, const char *text, size_t n)
{
    json_error_t error;
    const char *name;
    json_t *entry;
    self->root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (self->root == NULL && json_error_code(&error) == json_error_duplicate_key)
        return mst_fail(MST_EINPUT,
                        "%s: not a valid safetensors file: a name occurs twice in the header, by byte %d",
                        self->path, 8 + error.position);
    if (self->root == NULL && json_error_code(&error) == json_error_out_of_memory)
        return mst_fail_memory();
    if (!json_is_object(self->root))
        return mst_fail(MST_EINPUT, "%s: not a safetensors file: the header is not a JSON object (byte %d)",
                        self->path, 8 + (self->root == NULL ? error.position : 0));
    self->tensors = mst_calloc(json_object_size(self->root) + 1, sizeof *self->tensors);
    if (self->tensors == NULL)
        return mst_fail_memory();
    json_object_foreach(self->root, name, entry)
    {
        if (strcmp(name, METADATA) == 0)
            TRY(safetensors_check_metadata(self, entry));
        else
            TRY(safetensors_parse_tensor(self, name, entry, &self->tensors[self->n++]));
    }
    qsort(self->tensors, self->n, sizeof *self->tensors, by_offset);
    uint64_t at = 0;
    for (size_t i = 0; i < self->n; i++) {
        if (self->tensors[i].begin < at)
            return safetensors_bad_tensor(self, self->tensors[i].name, "overlaps another");
        if (self->tensors[i].begin > at)
            return safetensors_bad_tensor(self, self->tensors[i].name, "leaves a gap before it");
        at = self->tensors[i].end;
    }
    if (at != self->data_size)
        return mst_fail(MST_EINPUT,
                        "%s: not a valid safetensors file: %llu bytes at its end belong to no tensor",
                        self->path, (unsigned long long)(self->data_size - at));
    return MST_OK;
}

mst_status mst_safetensors_open(const char *path, mst_safetensors **out)
{
    mst_status st;
    char *header = NULL;
    struct stat info;
    uint64_t length = 0;
    mst_safetensors *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->fd = -1;
    self->path = mst_strdup(path);
    if (self->path == NULL)
        TRY_OUT(st, mst_fail_memory());
    self->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (self->fd < 0 || fstat(self->fd, &info) != 0)
        TRY_OUT(st, mst_fail(MST_EIO, "%s: cannot be opened: %s", path, strerror(errno)));
    if (!S_ISREG(info.st_mode))
        TRY_OUT(st, mst_fail(MST_EINPUT, "%s: not a plain file", path));
    uint64_t size = (uint64_t)info.st_size;
    if (size < 8)
        TRY_OUT(st, mst_fail(MST_EINPUT, "%s: not a safetensors file: only %llu bytes long", path,
                             (unsigned long long)size));
    TRY_OUT(st, mst_sparse_read(self->fd, path, 0, &length, 8, false));
    if (length > size - 8 || length > HEADER_MAX)
        TRY_OUT(st,
                mst_fail(MST_EINPUT, "%s: not a safetensors file: a header of %llu bytes in a file of %llu",
                         path, (unsigned long long)length, (unsigned long long)size));
    self->data_at = 8 + length;
    self->data_size = size - self->data_at;
    header = mst_zalloc(length + 1);
    if (header == NULL)
        TRY_OUT(st, mst_fail_memory());
    TRY_OUT(st, mst_sparse_read(self->fd, path, 8, header, length, false));
    TRY_OUT(st, safetensors_parse_header(self, header, length));
    *out = self;
    self = NULL;
out:
    mst_free(header);
    mst_safetensors_close(self);
    return st;
}

void mst_safetensors_close(mst_safetensors *self)
{
    if (self == NULL)
        return;
    if (self->fd >= 0)
        close(self->fd);
    json_decref(self->root);
    mst_free(self->tensors);
    mst_free(self->path);
    mst_free(self);
}

uint64_t mst_safetensors_data_at(const mst_safetensors *self)
{
    return self->data_at;
}

size_t mst_safetensors_count(const mst_safetensors *self)
{
    return self->n;
}

const mst_tensor *mst_safetensors_at(const mst_safetensors *self, size_t i)
{
    return &self->tensors[i];
}

const mst_tensor *mst_safetensors_find(const mst_safetensors *self, const char *name)
{
    for (size_t i = 0; i < self->n; i++)
        if (strcmp(self->tensors[i].name, name) == 0)
            return &self->tensors[i];
    return NULL;
}

mst_status mst_safetensors_read_at(mst_safetensors *self, const mst_tensor *tensor, uint64_t first,
                                   uint64_t n, float *out, bool lazy)
{
    if (strcmp(tensor->dtype, "F32") != 0)
        return mst_fail(MST_EINPUT, "%s: tensor \"%s\" is %s, and only F32 can be used", self->path,
                        safetensors_show(tensor->name).text, tensor->dtype);
    return mst_sparse_read(self->fd, self->path, self->data_at + tensor->begin + first * sizeof *out, out,
                           n * sizeof *out, lazy);
}

mst_status mst_safetensors_read(mst_safetensors *self, const mst_tensor *tensor, float *out, bool lazy)
{
    return mst_safetensors_read_at(self, tensor, 0, tensor->n_elements, out, lazy);
}

mst_status mst_safetensors_crc32c(mst_safetensors *self, uint32_t *out)
{
    return mst_sparse_crc32c(self->fd, self->path, self->data_at + self->data_size, out);
}

/* ---- writing ---- */

/* Assigns offsets to the tensors in order, and describes them in *root (new reference; NULL on failure). */
static mst_status safetensors_describe(mst_safetensors *self, const mst_tensor *tensors,
                                       const json_t *metadata, json_t **root)
{
    mst_status st = MST_OK;
    *root = json_object();
    bool good = *root != NULL;
    if (metadata != NULL)
        good = good && json_object_set_new(*root, METADATA, json_deep_copy(metadata)) == 0;
    for (size_t i = 0; i < self->n && good; i++) {
        mst_tensor *t = &self->tensors[i];
        *t = tensors[i];
        json_t *shape = json_array();
        t->n_elements = 1;
        for (uint32_t d = 0; d < t->n_dims; d++) {
            t->n_elements *= t->dims[d];
            good = json_array_append_new(shape, json_integer((json_int_t)t->dims[d])) == 0 && good;
        }
        t->begin = self->data_size;
        t->end = self->data_size += t->n_elements * sizeof(float);
        if (json_object_get(*root, t->name) != NULL) {
            json_decref(shape);
            TRY_OUT(st, mst_fail(MST_EUSAGE, "%s: two tensors named \"%s\"", self->path, t->name));
        }
        json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape, "data_offsets",
                                  (json_int_t)t->begin, (json_int_t)t->end);
        good = json_object_set_new(*root, t->name, entry) == 0 && good;
    }
    if (!good)
        st = mst_fail_memory();
out:
    if (st != MST_OK) {
        json_decref(*root);
        *root = NULL;
    }
    return st;
}

mst_status mst_safetensors_create(const char *path, const mst_tensor *tensors, size_t n,
                                  const json_t *metadata, mst_safetensors **out)
{
    mst_status st;
    json_t *root = NULL;
    char *text = NULL, *header = NULL;
    mst_safetensors *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->fd = -1;
    self->n = n;
    self->path = mst_strdup(path);
    self->tensors = mst_calloc(n + 1, sizeof *self->tensors);
    if (self->path == NULL || self->tensors == NULL)
        TRY_OUT(st, mst_fail_memory());
    TRY_OUT(st, safetensors_describe(self, tensors, metadata, &root));
    text = json_dumps(root, JSON_COMPACT);
    size_t length = text == NULL ? 0 : strlen(text);
    self->data_at = (8 + length + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
    header = mst_alloc(self->data_at);
    if (text == NULL || header == NULL)
        TRY_OUT(st, mst_fail_memory());
    if (self->data_at - 8 > HEADER_MAX)
        TRY_OUT(st, mst_fail(MST_EUSAGE, "%s: a header of more than 100 MB", path));
    uint64_t padded = self->data_at - 8;
    memcpy(header, &padded, 8);
    memset(header + 8, ' ', padded);
    memcpy(header + 8, text, length);
    self->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (self->fd < 0)
        TRY_OUT(st, mst_fail(MST_EIO, "%s: cannot be created: %s", path, strerror(errno)));
    if (ftruncate(self->fd, (off_t)(self->data_at + self->data_size)) != 0)
        TRY_OUT(st, mst_fail(MST_EIO, "%s: cannot be written: %s", path, strerror(errno)));
    TRY_OUT(st, mst_sparse_write(self->fd, path, 0, header, self->data_at, false));
    *out = self;
    self = NULL;
out:
    if (self != NULL && self->fd >= 0)
        unlink(path);
    mst_safetensors_close(self);
    mst_free(header);
    free(text);
    json_decref(root);
    return st;
}

mst_status mst_safetensors_write_at(mst_safetensors *self, size_t i, uint64_t first, uint64_t n,
                                    const float *data, bool lazy)
{
    uint64_t at = self->data_at + self->tensors[i].begin + first * sizeof *data;
    return mst_sparse_write(self->fd, self->path, at, data, n * sizeof *data, lazy);
}

mst_status mst_safetensors_sync(mst_safetensors *self, uint64_t *bytes, uint32_t *crc32c)
{
    TRY(mst_sparse_crc32c(self->fd, self->path, self->data_at + self->data_size, crc32c));
    if (fsync(self->fd) != 0)
        return mst_fail(MST_EIO, "%s: cannot be written: %s", self->path, strerror(errno));
    *bytes = self->data_at + self->data_size;
    return MST_OK;
}
