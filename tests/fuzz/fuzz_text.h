/* Shared by the fuzz targets of the text formats: the first byte selects options, the rest is a block that is
 * prepared and parsed; the rows of the builder must always satisfy their contract. */
#ifndef TESTS_FUZZ_TEXT_H
#define TESTS_FUZZ_TEXT_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/format.h"
#include "fuzz.h"

static inline void fuzz_check_rows(const mst_chunk_builder *b, uint64_t limit, uint32_t n_fields)
{
    for (size_t i = 0; i < b->n_rows; i++) {
        FUZZ_CHECK(isfinite(b->labels[i]) && isfinite(b->weights[i]) && b->weights[i] >= 0.0f);
        FUZZ_CHECK(b->row_start[i] <= b->row_start[i + 1] && b->row_start[i + 1] <= b->n_entries);
        for (size_t j = b->row_start[i]; j < b->row_start[i + 1]; j++) {
            FUZZ_CHECK(b->keys[j] < limit);
            FUZZ_CHECK(isfinite(b->values[j]));
            bool first = j == b->row_start[i];
            FUZZ_CHECK(first || b->order != MST_ORDER_KEYS || b->keys[j] >= b->keys[j - 1]);
            FUZZ_CHECK(first || b->order != MST_ORDER_FIELDS || b->fields[j] >= b->fields[j - 1]);
            FUZZ_CHECK(b->order != MST_ORDER_FIELDS || n_fields == 0 || b->fields[j] < n_fields);
        }
    }
}

/* The packed rows have the entries of the builder, in its order. */
static inline void fuzz_check_chunk(const mst_chunk *c, const mst_chunk_builder *b)
{
    for (uint32_t i = 0; i < c->n_rows; i++) {
        mst_row row;
        size_t at = b->row_start[i];
        mst_chunk_row(c, i, &row);
        FUZZ_CHECK(at + row.n_dense + row.n_keys == b->row_start[i + 1]);
        for (uint32_t j = 0; j < row.n_keys; j++) {
            size_t e = at + row.n_dense + j;
            FUZZ_CHECK(row.keys[j] == b->keys[e] && row.keys[j] >= c->n_dense && row.keys[j] <= c->max_key);
            FUZZ_CHECK(!c->fielded || mst_row_field(&row, j) <= c->max_field);
            FUZZ_CHECK(b->order != MST_ORDER_FIELDS || mst_row_field(&row, j) == b->fields[e]);
        }
    }
}

/* The rows of a have the same labels, weights and entries as the first rows of b. */
static inline void fuzz_same_rows(const mst_chunk_builder *a, const mst_chunk_builder *b)
{
    FUZZ_CHECK(a->n_rows <= b->n_rows && (a->n_rows == 0 || a->order == b->order));
    for (size_t i = 0; i < a->n_rows; i++) {
        FUZZ_CHECK(a->labels[i] == b->labels[i] && a->weights[i] == b->weights[i]);
        FUZZ_CHECK(a->row_start[i + 1] == b->row_start[i + 1]);
    }
    for (size_t i = 0; a->n_rows > 0 && i < a->row_start[a->n_rows]; i++) {
        FUZZ_CHECK(a->keys[i] == b->keys[i] && memcmp(&a->values[i], &b->values[i], sizeof(float)) == 0);
        FUZZ_CHECK(a->order != MST_ORDER_FIELDS || a->fields[i] == b->fields[i]);
    }
}

/* Record by record, the block gives the same rows as at once, up to a malformed one. For libsvm this compares
 * the parser with vector instructions, which leaves the last line of a block out, with the other one. */
static inline void fuzz_format(const mst_format *format, const mst_data_options *options, const uint8_t *data,
                               size_t n)
{
    mst_parse_context context = {
        .options = options, .features = (uint64_t)options->features, .any_key = options->any_key};
    mst_chunk_builder builder, single;
    mst_chunk *chunk;
    uint8_t *copy = malloc(n ? n : 1); /* of the exact size: a read beyond it is seen */
    memcpy(copy, data, n);
    mst_block block = {.path = "fuzz", .data = copy, .size = n, .line = 1};
    mst_chunk_builder_init(&builder);
    mst_chunk_builder_init(&single);
    int score = format->kind.sniff(copy, n, 0);
    FUZZ_CHECK(score >= 0 && score <= 2);
    if (format->prepare == NULL || format->prepare(&context, &block) == MST_OK) {
        mst_status st = format->parse(&context, &block, &builder);
        FUZZ_CHECK(st == MST_OK || (st == MST_EINPUT && mst_error_text()[0] != '\0'));
        fuzz_check_rows(&builder, mst_key_limit(&context), context.n_fields);
        if (builder.n_rows > 0 && mst_chunk_builder_pack(&builder, 0, builder.n_rows, &chunk) == MST_OK) {
            FUZZ_CHECK(chunk->n_rows == builder.n_rows);
            fuzz_check_chunk(chunk, &builder);
            mst_chunk_release(chunk);
        }
        mst_status good = mst_format_parse_good(format, &context, &block, NULL, &single);
        FUZZ_CHECK(good == MST_OK || (good == MST_EINPUT && mst_error_text()[0] != '\0'));
        fuzz_check_rows(&single, mst_key_limit(&context), context.n_fields);
        FUZZ_CHECK(st != MST_OK || (good == MST_OK && single.n_rows == builder.n_rows));
        fuzz_same_rows(&builder, &single);
        if (format->unprepare != NULL)
            format->unprepare(context.prepared);
    }
    mst_chunk_builder_fini(&builder);
    mst_chunk_builder_fini(&single);
    free(copy);
}

#endif
