/* The tf.Example walker and encoder (contract: example.h).
 *
 * Reading: every message level is a [at, end) pair that only shrinks; a length is compared with the rest of
 * its level before use. The shapes that common writers produce (one-byte lengths, key before value, one list)
 * are tried first; the general field reader handles all others.
 *
 * Writing: lengths precede contents in protobuf, so sizes are computed first and the record is then written
 * once, front to back. */
#include "data/example.h"

#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/crc.h"

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_LENGTH = 2, WIRE_32 = 5 };

static const char cut_short[] = "the tf.Example message is cut short";
static const char bad_varint[] = "the tf.Example message holds a number of more than 10 bytes";
static const char bad_tag[] = "the tf.Example message holds a field tag that is not protobuf's";
static const char bad_wire[] = "the tf.Example message holds a field of the wrong wire type";

const uint8_t *mst_varint_slow(const uint8_t *at, const uint8_t *end, uint64_t *out)
{
    uint64_t value = 0;
    for (unsigned shift = 0; at < end && shift < 70; shift += 7) {
        uint8_t byte = *at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return at;
        }
    }
    return NULL;
}

/* Tags and lengths: at most 5 bytes and 32 bits. NULL with *problem set. */
static const uint8_t *read_u32(const uint8_t *at, const uint8_t *end, uint32_t *out, const char **problem)
{
    if (at < end && *at < 0x80) {
        *out = *at;
        return at + 1;
    }
    uint64_t value = 0;
    const uint8_t *limit = end - at > 5 ? at + 5 : end;
    const uint8_t *next = mst_varint_slow(at, limit, &value);
    if (next == NULL || value > UINT32_MAX) {
        *problem = limit == end ? cut_short : bad_tag;
        return NULL;
    }
    *out = (uint32_t)value;
    return next;
}

/* Reads a length and checks that so much is left; *n is that length. */
static inline const uint8_t *read_length(const uint8_t *at, const uint8_t *end, uint32_t *n,
                                         const char **problem)
{
    at = read_u32(at, end, n, problem);
    if (at != NULL && *n > (size_t)(end - at)) {
        *problem = cut_short;
        return NULL;
    }
    return at;
}

/* Skips the value of an unknown field. */
static const uint8_t *example_skip(const uint8_t *at, const uint8_t *end, unsigned wire, const char **problem)
{
    uint64_t ignored;
    uint32_t n;
    switch (wire) {
    case WIRE_VARINT:
        at = mst_varint_slow(at, end, &ignored);
        if (at == NULL)
            *problem = bad_varint;
        return at;
    case WIRE_LENGTH:
        at = read_length(at, end, &n, problem);
        return at == NULL ? NULL : at + n;
    case WIRE_64:
    case WIRE_32:
        n = wire == WIRE_64 ? 8 : 4;
        if ((size_t)(end - at) < n) {
            *problem = cut_short;
            return NULL;
        }
        return at + n;
    default:
        *problem = bad_tag;
        return NULL;
    }
}

/* Moves *at past the next field that is length-delimited and numbered up to `known`: its number is returned,
 * its body in [*body, *body + *n). 0 at the end or with *problem set. Unknown fields are skipped. */
static unsigned next_message(const uint8_t **at, const uint8_t *end, unsigned known, const uint8_t **body,
                             uint32_t *n, const char **problem)
{
    const uint8_t *p = *at;
    while (p < end) {
        uint32_t tag;
        p = read_u32(p, end, &tag, problem);
        if (p == NULL)
            return 0;
        unsigned number = tag >> 3, wire = tag & 7;
        if (number == 0) {
            *problem = bad_tag;
            return 0;
        }
        if (number > known) {
            p = example_skip(p, end, wire, problem);
            if (p == NULL)
                return 0;
            continue;
        }
        if (wire != WIRE_LENGTH) {
            *problem = bad_wire;
            return 0;
        }
        p = read_length(p, end, n, problem);
        if (p == NULL)
            return 0;
        *body = p;
        *at = p + *n;
        return number;
    }
    *at = p;
    return 0;
}

void mst_example_walk_init(mst_example_walk *walk, const uint8_t *message, size_t n)
{
    walk->outer_at = message;
    walk->outer_end = message + n;
    walk->at = walk->end = message;
    walk->problem = NULL;
}

/* The lists of a feature within an entry: the first one that counts is kept, with the bytes after it. */
static bool read_feature(const uint8_t *at, const uint8_t *end, const uint8_t *entry_end,
                         mst_example_feature *out, const char **problem)
{
    const uint8_t *body;
    uint32_t n;
    unsigned number;
    while ((number = next_message(&at, end, 3, &body, &n, problem)) != 0) {
        if (out->kind == (mst_example_kind)number) { /* merged */
            if (out->more == NULL)
                out->more = out->list + out->list_size;
            continue;
        }
        out->kind = (mst_example_kind)number; /* BYTES, FLOATS, INTS are numbered as the fields are */
        out->list = body;
        out->list_size = n;
        out->more = NULL;
        out->feature_end = end;
        out->entry_end = entry_end;
    }
    return *problem == NULL;
}

/* An entry of any shape. Kept apart from the loop over plain ones, which is hot. */
__attribute__((noinline)) static bool read_entry(const uint8_t *at, const uint8_t *end,
                                                 mst_example_feature *out, const char **problem)
{
    const uint8_t *body;
    uint32_t n;
    unsigned number;
    *out = (mst_example_feature){.name = at, .list = at};
    while ((number = next_message(&at, end, 2, &body, &n, problem)) != 0) {
        if (number == 1) {
            out->name = body;
            out->name_size = n;
        } else if (!read_feature(body, body + n, end, out, problem)) {
            return false;
        }
    }
    return *problem == NULL;
}

/* An entry as nearly every writer makes it: 0a NAME 12 FEATURE, the feature being one list, all lengths but
 * the outer ones below 128. False when it is shaped otherwise. */
static inline bool read_plain_entry(const uint8_t *at, const uint8_t *end, mst_example_feature *out)
{
    if (end - at < 6 || at[0] != 0x0a || at[1] >= 0x80 || end - at < at[1] + 6)
        return false;
    out->name = at + 2;
    out->name_size = at[1];
    at += 2 + out->name_size;
    if (at[0] != 0x12 || at[1] != end - at - 2 || at[3] != end - at - 4 || at[1] >= 0x80)
        return false;
    unsigned kind = at[2] >> 3;
    if ((at[2] & 7) != WIRE_LENGTH || kind < MST_EXAMPLE_BYTES || kind > MST_EXAMPLE_INTS)
        return false;
    out->kind = (mst_example_kind)kind;
    out->list = at + 4;
    out->list_size = at[3];
    out->more = NULL;
    return true;
}

bool mst_example_next(mst_example_walk *walk, mst_example_feature *out)
{
    const uint8_t *body;
    uint32_t n;
    for (;;) {
        if (walk->end - walk->at >= 2 && walk->at[0] == 0x0a && walk->at[1] < 0x80 &&
            walk->end - walk->at >= walk->at[1] + 2) {
            body = walk->at + 2;
            walk->at = body + walk->at[1];
            return read_plain_entry(body, walk->at, out) || read_entry(body, walk->at, out, &walk->problem);
        }
        if (next_message(&walk->at, walk->end, 1, &body, &n, &walk->problem) != 0)
            return read_entry(body, body + n, out, &walk->problem);
        if (walk->problem != NULL)
            return false;
        if (next_message(&walk->outer_at, walk->outer_end, 1, &body, &n, &walk->problem) == 0)
            return false;
        walk->at = body;
        walk->end = body + n;
    }
}

/* Goes to the next list of a feature with several that is not empty. read_entry has found that every one is
 * of this kind. */
static bool next_list(mst_example_list *list)
{
    const uint8_t *body;
    uint32_t n;
    while (list->more != NULL) {
        if (next_message(&list->more, list->feature_end, 3, &body, &n, &list->problem) != 0) {
            list->at = body;
            list->end = body + n;
            if (n > 0)
                return true;
            continue;
        }
        /* the next value of the entry; keys may lie between */
        list->more = list->feature_end;
        unsigned number;
        do
            number = next_message(&list->more, list->entry_end, 2, &body, &n, &list->problem);
        while (number == 1);
        if (number == 0) {
            list->more = NULL;
            break;
        }
        list->more = body;
        list->feature_end = body + n;
    }
    return false;
}

bool mst_example_run(mst_example_list *list, const uint8_t **run, size_t *n)
{
    while (list->at < list->end || (list->more != NULL && next_list(list))) {
        uint32_t tag, length;
        uint64_t ignored;
        const uint8_t *p = read_u32(list->at, list->end, &tag, &list->problem);
        if (p == NULL)
            return false;
        unsigned number = tag >> 3, wire = tag & 7;
        if (number != 1) {
            if (number == 0)
                list->problem = bad_tag;
            else
                list->at = example_skip(p, list->end, wire, &list->problem);
            if (list->problem != NULL)
                return false;
            continue;
        }
        if (wire == WIRE_LENGTH) {
            p = read_length(p, list->end, &length, &list->problem);
            if (p == NULL)
                return false;
            if (list->kind == MST_EXAMPLE_FLOATS && length % 4 != 0) {
                list->problem = "a tf.Example float list has a length that is not a multiple of 4";
                return false;
            }
        } else if (wire == WIRE_32 && list->kind == MST_EXAMPLE_FLOATS) {
            length = 4;
            if (list->end - p < 4) {
                list->problem = cut_short;
                return false;
            }
        } else if (wire == WIRE_VARINT && list->kind == MST_EXAMPLE_INTS) {
            const uint8_t *next = mst_varint_slow(p, list->end, &ignored);
            if (next == NULL) {
                list->problem = bad_varint;
                return false;
            }
            length = (uint32_t)(next - p);
        } else {
            list->problem = bad_wire;
            return false;
        }
        *run = p;
        *n = length;
        list->at = p + length;
        return true;
    }
    return false;
}

/* ---- writing ---- */

static inline size_t varint_size(uint64_t v)
{
    return (size_t)(63 - __builtin_clzll(v | 1)) / 7 + 1;
}

static inline uint8_t *put_varint(uint8_t *at, uint64_t v)
{
    while (v >= 0x80) {
        *at++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *at++ = (uint8_t)v;
    return at;
}

static inline uint8_t *put_field(uint8_t *at, unsigned number, size_t n)
{
    *at++ = (uint8_t)(number << 3 | WIRE_LENGTH);
    return put_varint(at, n);
}

/* Size of a length-delimited field with a body of n bytes. */
static inline size_t field_size(size_t n)
{
    return 1 + varint_size(n) + n;
}

/* Size of the body of a map entry whose packed list takes n bytes. */
static inline size_t entry_size(size_t name_size, size_t n)
{
    return field_size(name_size) + field_size(field_size(field_size(n)));
}

/* Everything of an entry up to the packed numbers. */
static uint8_t *put_entry(uint8_t *at, const char *name, size_t name_size, mst_example_kind kind, size_t n)
{
    at = put_field(at, 1, entry_size(name_size, n));
    at = put_field(at, 1, name_size);
    memcpy(at, name, name_size);
    at = put_field(at + name_size, 2, field_size(field_size(n)));
    at = put_field(at, kind, field_size(n));
    return put_field(at, 1, n);
}

static uint8_t *put_float_entry(uint8_t *at, const char *name, size_t name_size, float value)
{
    at = put_entry(at, name, name_size, MST_EXAMPLE_FLOATS, 4);
    memcpy(at, &value, 4);
    return at + 4;
}

/* "I7", "C26": letter and number from 1. */
static size_t column_name(char letter, uint32_t i, char out[12])
{
    char digits[11];
    size_t n = 0, length = 1;
    uint32_t number = i + 1;
    for (; number > 0; number /= 10)
        digits[n++] = (char)('0' + number % 10);
    out[0] = letter;
    while (n > 0)
        out[length++] = digits[--n];
    return length;
}

static size_t pairs_size(const mst_row *row, size_t *index_size, size_t *value_size)
{
    size_t n = (size_t)row->n_dense + row->n_keys;
    *index_size = 0;
    for (uint32_t i = 0; i < row->n_dense; i++)
        *index_size += varint_size(i);
    for (uint32_t i = 0; i < row->n_keys; i++)
        *index_size += varint_size(row->keys[i]);
    *value_size = row->n_dense == 0 && row->values == NULL ? SIZE_MAX : 4 * n;
    size_t size = field_size(entry_size(5, *index_size));
    return *value_size == SIZE_MAX ? size : size + field_size(entry_size(5, *value_size));
}

static uint8_t *put_pairs(uint8_t *at, const mst_row *row, size_t index_size, size_t value_size)
{
    at = put_entry(at, "index", 5, MST_EXAMPLE_INTS, index_size);
    for (uint32_t i = 0; i < row->n_dense; i++)
        at = put_varint(at, i);
    for (uint32_t i = 0; i < row->n_keys; i++)
        at = put_varint(at, row->keys[i]);
    if (value_size == SIZE_MAX)
        return at;
    at = put_entry(at, "value", 5, MST_EXAMPLE_FLOATS, value_size);
    for (uint32_t i = 0; i < row->n_dense; i++, at += 4) {
        float value = mst_row_dense(row, i);
        memcpy(at, &value, 4);
    }
    for (uint32_t i = 0; i < row->n_keys; i++, at += 4) {
        float value = row->values != NULL ? row->values[i] : 1.0f;
        memcpy(at, &value, 4);
    }
    return at;
}

static size_t columns_size(const mst_row *row)
{
    char name[12];
    size_t size = 0;
    for (uint32_t i = 0; i < row->n_dense; i++)
        size += field_size(entry_size(column_name('I', i, name), 4));
    for (uint32_t i = 0; i < row->n_keys; i++)
        size += field_size(entry_size(column_name('C', i, name), varint_size(row->keys[i])));
    return size;
}

static uint8_t *put_columns(uint8_t *at, const mst_row *row)
{
    char name[12];
    for (uint32_t i = 0; i < row->n_dense; i++) {
        size_t length = column_name('I', i, name);
        at = put_float_entry(at, name, length, mst_row_dense(row, i));
    }
    for (uint32_t i = 0; i < row->n_keys; i++) {
        size_t length = column_name('C', i, name);
        at = put_entry(at, name, length, MST_EXAMPLE_INTS, varint_size(row->keys[i]));
        at = put_varint(at, row->keys[i]);
    }
    return at;
}

mst_status mst_example_append(mst_example_buffer *buffer, mst_example_layout layout, const mst_row *row)
{
    size_t index_size = 0, value_size = 0;
    bool columns = layout == MST_EXAMPLE_COLUMNS, weighted = row->weight != 1.0f;
    if (columns && row->values != NULL)
        return mst_fail(MST_EINPUT,
                        "TFRecord columns hold categories without values, but this row has values: "
                        "write index/value pairs instead");
    size_t features = field_size(entry_size(5, 4));
    if (weighted)
        features += field_size(entry_size(6, 4));
    features += columns ? columns_size(row) : pairs_size(row, &index_size, &value_size);
    size_t message = field_size(features);
    if (!mst_grow(&buffer->data, &buffer->capacity, buffer->n + message + 16, 1))
        return mst_fail_memory();

    uint8_t *start = buffer->data + buffer->n;
    uint64_t length = message;
    memcpy(start, &length, 8);
    uint32_t crc = mst_crc_mask(mst_crc32c(0, start, 8));
    memcpy(start + 8, &crc, 4);
    uint8_t *at = put_field(start + 12, 1, features);
    at = put_float_entry(at, "label", 5, row->label);
    if (weighted)
        at = put_float_entry(at, "weight", 6, row->weight);
    at = columns ? put_columns(at, row) : put_pairs(at, row, index_size, value_size);
    crc = mst_crc_mask(mst_crc32c(0, start + 12, message));
    memcpy(at, &crc, 4);
    buffer->n += message + 16;
    return MST_OK;
}
