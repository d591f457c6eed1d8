/* ONNX files: a small encoder of protobuf messages (contract: onnx.h). Field numbers are those of onnx.proto.
 *
 * The weights of a model are written from where they lie: the lengths of all messages are known before the
 * first byte. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "model/onnx.h"

#define IR_VERSION  7
#define MESSAGE_MAX (2000ull << 20) /* bytes of a file with its weights; protobuf reads less than 2^31 */
#define DATA_ALIGN  4096u           /* of tensors in external data, so that they can be mapped */
#define MAX_INPUTS  32

enum { TYPE_FLOAT = 1, TYPE_INT64 = 7 };
enum { ATTRIBUTE_FLOAT = 1, ATTRIBUTE_INT = 2, ATTRIBUTE_INTS = 7 };

/* ---- messages ---- */

static void onnx_varint(mst_string *out, uint64_t value)
{
    char bytes[10];
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[n++] = (char)(value | 0x80);
    bytes[n++] = (char)value;
    mst_string_addn(out, bytes, n);
}

static void onnx_integer(mst_string *out, unsigned field, uint64_t value)
{
    onnx_varint(out, field << 3);
    onnx_varint(out, value);
}

static void onnx_bytes(mst_string *out, unsigned field, const char *data, size_t n)
{
    onnx_varint(out, field << 3 | 2);
    onnx_varint(out, n);
    if (n > 0)
        mst_string_addn(out, data, n);
}

static void onnx_text(mst_string *out, unsigned field, const char *text)
{
    onnx_bytes(out, field, text, strlen(text));
}

/* Adds a message to another and frees it. */
static void onnx_message(mst_string *out, unsigned field, mst_string *message)
{
    out->failed |= message->failed;
    onnx_bytes(out, field, message->text, message->size);
    mst_string_fini(message);
    *message = (mst_string){0};
}

static void onnx_float(mst_string *out, unsigned field, float value)
{
    onnx_varint(out, field << 3 | 5);
    mst_string_addn(out, (const char *)&value, sizeof value);
}

/* ---- the graph ---- */

void mst_onnx_graph_fini(mst_onnx_graph *self)
{
    mst_string_fini(&self->nodes);
    mst_string_fini(&self->inputs);
    mst_string_fini(&self->outputs);
    for (size_t i = 0; i < self->n_tensors; i++) {
        mst_free(self->tensors[i].name);
        mst_free(self->tensors[i].owned);
    }
    mst_free(self->tensors);
}

/* One of the words "name=TVALUE". */
static void onnx_attribute(mst_string *node, const char *word, size_t n)
{
    mst_string a = {0};
    const char *equals = memchr(word, '=', n), *value = equals + 2;
    char *end = (char *)value;
    onnx_bytes(&a, 1, word, (size_t)(equals - word));
    switch (equals[1]) {
    case 'i':
        onnx_integer(&a, 3, (uint64_t)strtoll(value, NULL, 10));
        onnx_integer(&a, 20, ATTRIBUTE_INT);
        break;
    case 'f':
        onnx_float(&a, 2, strtof(value, NULL));
        onnx_integer(&a, 20, ATTRIBUTE_FLOAT);
        break;
    default:
        for (;; value = end + 1) {
            onnx_integer(&a, 8, (uint64_t)strtoll(value, &end, 10));
            if (*end != ',')
                break;
        }
        onnx_integer(&a, 20, ATTRIBUTE_INTS);
    }
    onnx_message(node, 5, &a);
}

static void onnx_add_node(mst_onnx_graph *self, const char *op, const char *out, const char *inputs,
                          const char *attributes)
{
    mst_string node = {0};
    for (const char *p = inputs; *p != '\0';) {
        size_t n = strcspn(p, ",");
        onnx_bytes(&node, 1, p, n);
        p += n + (p[n] == ',');
    }
    onnx_text(&node, 2, out);
    onnx_text(&node, 3, out);
    onnx_text(&node, 4, op);
    for (const char *p = attributes; *p != '\0';) {
        size_t n = strcspn(p, " ");
        onnx_attribute(&node, p, n);
        p += n + (p[n] == ' ');
    }
    onnx_message(&self->nodes, 1, &node);
}

mst_onnx_name mst_onnx_node(mst_onnx_graph *self, const char *op, const char *inputs, const char *attributes)
{
    mst_onnx_name out;
    snprintf(out.text, sizeof out.text, "%s_%u", op, self->n_names++);
    onnx_add_node(self, op, out.text, inputs, attributes);
    return out;
}

mst_onnx_name mst_onnx_call(mst_onnx_graph *self, const char *op, const char *attributes, const char *inputs,
                            ...)
{
    char list[MAX_INPUTS * sizeof(mst_onnx_name)];
    va_list args;
    va_start(args, inputs);
    vsnprintf(list, sizeof list, inputs, args);
    va_end(args);
    return mst_onnx_node(self, op, list, attributes);
}

/* Adds a tensor; takes `owned` over, on failure too. */
static mst_onnx_name onnx_tensor(mst_onnx_graph *self, const char *name, uint32_t n_dims,
                                 const uint64_t *dims, const void *data, void *owned, bool integers)
{
    mst_onnx_name out;
    mst_onnx_tensor t = {.n_dims = n_dims, .data = data, .owned = owned, .integers = integers};
    uint64_t count = 1;
    if (name != NULL)
        snprintf(out.text, sizeof out.text, "%s", name);
    else
        snprintf(out.text, sizeof out.text, "constant_%u", self->n_names++);
    for (uint32_t i = 0; i < n_dims; i++) {
        t.dims[i] = (int64_t)dims[i];
        count *= dims[i];
    }
    t.bytes = count * (integers ? 8 : 4);
    t.name = mst_strdup(out.text);
    if (t.name == NULL || data == NULL ||
        !mst_grow(&self->tensors, &self->tensor_capacity, self->n_tensors + 1, sizeof *self->tensors)) {
        mst_free(t.name);
        mst_free(owned);
        self->failed = true;
        return out;
    }
    self->tensors[self->n_tensors++] = t;
    return out;
}

static void *onnx_copy(const void *data, size_t n)
{
    void *copy = mst_alloc(n + 1);
    if (copy != NULL)
        memcpy(copy, data, n);
    return copy;
}

mst_onnx_name mst_onnx_weights(mst_onnx_graph *self, const char *name, uint32_t n_dims, const uint64_t *dims,
                               const float *data)
{
    return onnx_tensor(self, name, n_dims, dims, data, NULL, false);
}

mst_onnx_name mst_onnx_floats(mst_onnx_graph *self, uint32_t n_dims, const uint64_t *dims, const float *data)
{
    uint64_t count = 1;
    for (uint32_t i = 0; i < n_dims; i++)
        count *= dims[i];
    void *copy = onnx_copy(data, count * sizeof *data);
    return onnx_tensor(self, NULL, n_dims, dims, copy, copy, false);
}

mst_onnx_name mst_onnx_integers(mst_onnx_graph *self, size_t n, const int64_t *data)
{
    void *copy = onnx_copy(data, n * sizeof *data);
    return onnx_tensor(self, NULL, 1, (uint64_t[]){n}, copy, copy, true);
}

mst_onnx_name mst_onnx_number(mst_onnx_graph *self, double value)
{
    return mst_onnx_floats(self, 0, NULL, (float[]){(float)value});
}

static void onnx_declare(mst_string *out, unsigned field, const char *name, bool integers, const char *dims)
{
    mst_string info = {0}, type = {0}, tensor = {0}, shape = {0};
    for (const char *p = dims; *p != '\0';) {
        mst_string dim = {0};
        size_t n = strcspn(p, ",");
        if (*p >= '0' && *p <= '9')
            onnx_integer(&dim, 1, strtoull(p, NULL, 10));
        else
            onnx_bytes(&dim, 2, p, n);
        onnx_message(&shape, 1, &dim);
        p += n + (p[n] == ',');
    }
    onnx_integer(&tensor, 1, integers ? TYPE_INT64 : TYPE_FLOAT);
    onnx_message(&tensor, 2, &shape);
    onnx_message(&type, 1, &tensor);
    onnx_text(&info, 1, name);
    onnx_message(&info, 2, &type);
    onnx_message(out, field, &info);
}

void mst_onnx_input(mst_onnx_graph *self, const char *name, bool integers, const char *dims)
{
    onnx_declare(&self->inputs, 11, name, integers, dims);
}

void mst_onnx_output(mst_onnx_graph *self, const mst_onnx_name *value, const char *name, const char *dims)
{
    onnx_add_node(self, "Identity", name, value->text, "");
    onnx_declare(&self->outputs, 12, name, false, dims);
}

/* ---- the file ---- */

static uint64_t onnx_varint_size(uint64_t value)
{
    uint64_t n = 1;
    for (; value >= 0x80; value >>= 7)
        n++;
    return n;
}

static void onnx_entry(mst_string *out, unsigned field, const char *key, const char *value)
{
    mst_string entry = {0};
    onnx_text(&entry, 1, key);
    onnx_text(&entry, 2, value);
    onnx_message(out, field, &entry);
}

/* A tensor without its raw data: with external data, whole; otherwise up to the data, which follows. */
static void onnx_tensor_head(const mst_onnx_tensor *t, const char *location, uint64_t offset, mst_string *out)
{
    for (uint32_t i = 0; i < t->n_dims; i++)
        onnx_integer(out, 1, (uint64_t)t->dims[i]);
    onnx_integer(out, 2, t->integers ? TYPE_INT64 : TYPE_FLOAT);
    onnx_text(out, 8, t->name);
    if (location != NULL) {
        char number[24];
        onnx_entry(out, 13, "location", location);
        snprintf(number, sizeof number, "%llu", (unsigned long long)offset);
        onnx_entry(out, 13, "offset", number);
        snprintf(number, sizeof number, "%llu", (unsigned long long)t->bytes);
        onnx_entry(out, 13, "length", number);
        onnx_integer(out, 14, 1);
        return;
    }
    onnx_varint(out, 9 << 3 | 2);
    onnx_varint(out, t->bytes);
}

/* Where the weights are already; NULL: nowhere. */
static const mst_onnx_place *onnx_place_of(const mst_onnx_options *options, const mst_onnx_tensor *t)
{
    for (size_t i = 0; i < options->n_places && t->owned == NULL; i++)
        if (strcmp(options->places[i].view, t->name) == 0 && options->places[i].bytes == t->bytes)
            return &options->places[i];
    return NULL;
}

/* Whether the weights go to FILE.data. Small tensors, such as shapes, stay in the file. */
static bool onnx_is_external(const mst_onnx_options *options, const mst_onnx_tensor *t, bool external)
{
    return external && !t->integers && t->bytes >= 1024 && onnx_place_of(options, t) == NULL;
}

/* Writes the weights one after the other. */
static mst_status onnx_write_data(const mst_onnx_graph *self, const mst_onnx_options *options,
                                  const char *path)
{
    static const char zeros[DATA_ALIGN];
    mst_out *out = NULL;
    mst_status st;
    TRY(mst_out_open(path, &out));
    for (size_t i = 0; i < self->n_tensors; i++) {
        const mst_onnx_tensor *t = &self->tensors[i];
        size_t rest = (size_t)(t->bytes % DATA_ALIGN);
        if (!onnx_is_external(options, t, true))
            continue;
        TRY_OUT(st, mst_out_write(out, t->data, t->bytes));
        if (rest > 0)
            TRY_OUT(st, mst_out_write(out, zeros, DATA_ALIGN - rest));
    }
    st = mst_out_commit(out);
out:
    mst_out_close(out);
    return st;
}

/* One field of the graph or the model in two parts: the head, and data of n bytes. */
static mst_status onnx_write_part(mst_out *out, unsigned field, const mst_string *head, const void *data,
                                  uint64_t n)
{
    mst_string tag = {0};
    onnx_varint(&tag, field << 3 | 2);
    onnx_varint(&tag, head->size + n);
    mst_status st = tag.failed || head->failed ? mst_fail_memory() : mst_out_write(out, tag.text, tag.size);
    mst_string_fini(&tag);
    TRY(st);
    TRY(mst_out_write(out, head->text, head->size));
    return n > 0 ? mst_out_write(out, data, n) : MST_OK;
}

/* The fields of the model around its graph. */
static void onnx_model_fields(mst_string *out, const char *text, const char *version)
{
    mst_string opset = {0};
    onnx_integer(out, 1, IR_VERSION);
    onnx_text(out, 2, "muster");
    onnx_text(out, 3, version);
    onnx_text(out, 6, text);
    onnx_text(&opset, 1, "");
    onnx_integer(&opset, 2, MST_ONNX_OPSET);
    onnx_message(out, 8, &opset);
}

static mst_status onnx_write_model(const mst_onnx_graph *self, const char *text,
                                   const mst_onnx_options *options, const char *location, const char *path)
{
    mst_string *heads = mst_calloc(self->n_tensors + 1, sizeof *heads), name = {0}, fields = {0};
    uint64_t size, offset = 0;
    mst_out *out = NULL;
    mst_status st;
    if (heads == NULL)
        return mst_fail_memory();
    onnx_text(&name, 2, "muster");
    onnx_model_fields(&fields, text, options->version);
    size = self->nodes.size + name.size + self->inputs.size + self->outputs.size;
    for (size_t i = 0; i < self->n_tensors; i++) {
        const mst_onnx_tensor *t = &self->tensors[i];
        const mst_onnx_place *place = onnx_place_of(options, t);
        bool external = onnx_is_external(options, t, location != NULL);
        onnx_tensor_head(t,
                         place != NULL ? place->location
                         : external    ? location
                                       : NULL,
                         place != NULL ? place->offset : offset, &heads[i]);
        uint64_t n = heads[i].size + (external || place != NULL ? 0 : t->bytes);
        size += 1 + onnx_varint_size(n) + n;
        offset += external ? (t->bytes + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN : 0;
        fields.failed |= heads[i].failed;
    }
    onnx_varint(&fields, 7 << 3 | 2);
    onnx_varint(&fields, size);
    if (fields.failed || name.failed || self->nodes.failed || self->inputs.failed || self->outputs.failed) {
        st = mst_fail_memory();
        goto out;
    }
    TRY_OUT(st, mst_out_open(path, &out));
    TRY_OUT(st, mst_out_write(out, fields.text, fields.size));
    TRY_OUT(st, mst_out_write(out, self->nodes.text, self->nodes.size));
    TRY_OUT(st, mst_out_write(out, name.text, name.size));
    for (size_t i = 0; i < self->n_tensors; i++) {
        const mst_onnx_tensor *t = &self->tensors[i];
        bool outside = onnx_is_external(options, t, location != NULL) || onnx_place_of(options, t) != NULL;
        TRY_OUT(st, onnx_write_part(out, 5, &heads[i], t->data, outside ? 0 : t->bytes));
    }
    TRY_OUT(st, mst_out_write(out, self->inputs.text, self->inputs.size));
    TRY_OUT(st, mst_out_write(out, self->outputs.text, self->outputs.size));
    st = mst_out_commit(out);
out:
    mst_out_close(out);
    for (size_t i = 0; i < self->n_tensors; i++)
        mst_string_fini(&heads[i]);
    mst_free(heads);
    mst_string_fini(&name);
    mst_string_fini(&fields);
    return st;
}

mst_status mst_onnx_write(const mst_onnx_graph *self, const char *text, const mst_onnx_options *options,
                          const char *path)
{
    uint64_t bytes = 0;
    const char *slash = strrchr(path, '/');
    if (self->failed)
        return mst_fail_memory();
    for (size_t i = 0; i < self->n_tensors; i++)
        bytes += onnx_place_of(options, &self->tensors[i]) == NULL ? self->tensors[i].bytes : 0;
    bool external = options->external || bytes > MESSAGE_MAX;
    char *data = mst_sprintf("%s" MST_ONNX_SUFFIX, path),
         *location = mst_sprintf("%s" MST_ONNX_SUFFIX, slash != NULL ? slash + 1 : path);
    mst_status st = data != NULL && location != NULL ? MST_OK : mst_fail_memory();
    if (st == MST_OK && external && strcmp(path, "-") == 0)
        st = mst_fail(MST_EUSAGE,
                      "the weights need a file of their own, beside that of the model: give a name");
    if (st == MST_OK && external)
        st = onnx_write_data(self, options, data);
    if (st == MST_OK)
        st = onnx_write_model(self, text, options, external ? location : NULL, path);
    mst_free(data);
    mst_free(location);
    return st;
}
