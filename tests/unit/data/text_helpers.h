/* Shared by the tests of the text formats: parsing a string, and files in a temporary folder. */
#ifndef TESTS_TEXT_HELPERS_H
#define TESTS_TEXT_HELPERS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "data/format.h"
#include "temp_folder.h"

typedef struct parsed {
    mst_chunk_builder b;
    mst_parse_context context;
    mst_status st;
} parsed;

/* The bytes are copied to a block of their exact size, so that a sanitizer sees any read beyond it. */
static inline parsed parse_bytes(const mst_format *format, const mst_data_options *options, const void *bytes,
                                 size_t n)
{
    parsed out = {.context = {.options = options, .features = (uint64_t)options->features}};
    uint8_t *copy = malloc(n ? n : 1);
    memcpy(copy, bytes, n);
    mst_block block = {.path = "data.txt", .data = copy, .size = n, .line = 1};
    mst_chunk_builder_init(&out.b);
    out.st = format->prepare(&out.context, &block);
    if (out.st == MST_OK) {
        out.st = format->parse(&out.context, &block, &out.b);
        if (format->unprepare != NULL)
            format->unprepare(out.context.prepared);
    }
    free(copy);
    return out;
}

static inline parsed parse_text(const mst_format *format, const mst_data_options *options, const char *text)
{
    return parse_bytes(format, options, text, strlen(text));
}

/* Asserts that the text is refused with exactly this sentence. */
static inline void assert_refused(const mst_format *format, const mst_data_options *options, const char *text,
                                  const char *sentence)
{
    parsed p = parse_text(format, options, text);
    assert_int_equal(p.st, MST_EINPUT);
    assert_string_equal(mst_error_text(), sentence);
    mst_chunk_builder_fini(&p.b);
}

static inline size_t row_length(const mst_chunk_builder *b, size_t row)
{
    return b->row_start[row + 1] - b->row_start[row];
}

/* "key:value key:value" of a row, for comparing. */
static inline const char *row_text(const mst_chunk_builder *b, size_t row)
{
    static char text[4096];
    size_t n = 0;
    text[0] = '\0';
    for (size_t i = b->row_start[row]; i < b->row_start[row + 1]; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%u:%g", n ? " " : "", b->keys[i],
                              (double)b->values[i]);
    return text;
}

/* ---- files ---- */

static inline const char *in_folder(const char *name)
{
    static char paths[4][128];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static inline const char *write_file(const char *name, const void *data, size_t n)
{
    const char *path = in_folder(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

/* An mst_chunk_fn: rows come in order, and their labels count them. arg: uint64_t, the next one. */
static inline mst_status check_order(void *arg, uint64_t first_row, mst_chunk *chunk)
{
    uint64_t *next = arg;
    assert_int_equal(first_row, *next);
    for (uint32_t i = 0; i < chunk->n_rows; i++) {
        mst_row row;
        mst_chunk_row(chunk, i, &row);
        assert_true(row.label == (float)(first_row + i));
    }
    *next += chunk->n_rows;
    return MST_OK;
}

#endif
