/* A writer of tf.Example records with options that the library's writer does not have. */
#ifndef TESTS_EXAMPLE_WRITER_H
#define TESTS_EXAMPLE_WRITER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc.h"

typedef struct text {
    uint8_t data[1 << 16];
    size_t n;
} text;

static inline void put_bytes(text *t, const void *data, size_t n)
{
    assert_true(t->n + n <= sizeof t->data);
    memcpy(t->data + t->n, data, n);
    t->n += n;
}

static inline void put_varint(text *t, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        put_bytes(t, &(uint8_t){(uint8_t)(v | 0x80)}, 1);
    put_bytes(t, &(uint8_t){(uint8_t)v}, 1);
}

static inline void put_part(text *t, unsigned number, const text *part)
{
    put_varint(t, number << 3 | 2);
    put_varint(t, part->n);
    put_bytes(t, part->data, part->n);
}

static text list_part, feature_part, entry_part, example_part, wrapped;

static inline void put_feature(text *features, const char *name, unsigned kind)
{
    text *key = &wrapped;
    key->n = feature_part.n = entry_part.n = 0;
    put_bytes(key, name, strlen(name));
    put_part(&feature_part, kind, &list_part);
    put_part(&entry_part, 1, key);
    put_part(&entry_part, 2, &feature_part);
    put_part(features, 1, &entry_part);
}

static inline void put_floats(text *features, const char *name, bool packed, size_t n, const float *values)
{
    list_part.n = 0;
    if (packed) {
        put_varint(&list_part, 0x0a);
        put_varint(&list_part, 4 * n);
    }
    for (size_t i = 0; i < n; i++) {
        if (!packed)
            put_varint(&list_part, 0x0d);
        put_bytes(&list_part, &values[i], 4);
    }
    put_feature(features, name, 2);
}

static inline void put_ints(text *features, const char *name, bool packed, size_t n, const int64_t *values)
{
    static text numbers;
    numbers.n = list_part.n = 0;
    for (size_t i = 0; i < n; i++) {
        if (!packed)
            put_varint(&list_part, 0x08);
        put_varint(packed ? &numbers : &list_part, (uint64_t)values[i]);
    }
    if (packed)
        put_part(&list_part, 1, &numbers);
    put_feature(features, name, 3);
}

static inline void put_value(text *features, const char *name, const void *value, size_t n)
{
    static text string;
    string.n = list_part.n = 0;
    put_bytes(&string, value, n);
    put_part(&list_part, 1, &string);
    put_feature(features, name, 1);
}

static inline void put_string(text *features, const char *name, const char *value)
{
    put_value(features, name, value, strlen(value));
}

static inline void put_float(text *features, const char *name, float value)
{
    put_floats(features, name, true, 1, &value);
}

static inline void put_int(text *features, const char *name, int64_t value)
{
    put_ints(features, name, true, 1, &value);
}

/* Frames the features as a record of the file and empties them. */
static inline void end_record(text *file, text *features)
{
    example_part.n = 0;
    put_part(&example_part, 1, features);
    uint64_t length = example_part.n;
    uint32_t crc = mst_crc_mask(mst_crc32c(0, &length, 8));
    put_bytes(file, &length, 8);
    put_bytes(file, &crc, 4);
    put_bytes(file, example_part.data, example_part.n);
    crc = mst_crc_mask(mst_crc32c(0, example_part.data, example_part.n));
    put_bytes(file, &crc, 4);
    features->n = 0;
}

#endif
