/* Shared by the fuzz targets of the text formats: the first byte selects options, the rest is a block that is
 * prepared and parsed; the rows of the builder must always satisfy their contract. */
#ifndef TESTS_FUZZ_TEXT_H
#define TESTS_FUZZ_TEXT_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/format.h"
#include "fuzz.h"

static inline void fuzz_check_rows(const mst_chunk_builder *b, uint64_t limit)
{
    for (size_t i = 0; i < b->n_rows; i++) {
        FUZZ_CHECK(isfinite(b->labels[i]) && isfinite(b->weights[i]) && b->weights[i] >= 0.0f);
        FUZZ_CHECK(b->row_start[i] <= b->row_start[i + 1] && b->row_start[i + 1] <= b->n_entries);
        for (size_t j = b->row_start[i]; j < b->row_start[i + 1]; j++) {
            FUZZ_CHECK(b->keys[j] < limit);
            FUZZ_CHECK(isfinite(b->values[j]));
            FUZZ_CHECK(j == b->row_start[i] || b->keys[j] >= b->keys[j - 1]);
        }
    }
}

static inline void fuzz_format(const mst_format *format, const mst_data_options *options, const uint8_t *data,
                               size_t n)
{
    mst_parse_context context = {
        .options = options, .features = (uint64_t)options->features, .any_key = options->any_key};
    mst_chunk_builder builder;
    mst_chunk *chunk;
    uint8_t *copy = malloc(n ? n : 1); /* of the exact size: a read beyond it is seen */
    memcpy(copy, data, n);
    mst_block block = {.path = "fuzz", .data = copy, .size = n, .line = 1};
    mst_chunk_builder_init(&builder);
    int score = format->kind.sniff(copy, n, 0);
    FUZZ_CHECK(score >= 0 && score <= 2);
    if (format->prepare == NULL || format->prepare(&context, &block) == MST_OK) {
        mst_status st = format->parse(&context, &block, &builder);
        FUZZ_CHECK(st == MST_OK || (st == MST_EINPUT && mst_error_text()[0] != '\0'));
        fuzz_check_rows(&builder, mst_key_limit(&context));
        if (builder.n_rows > 0 && mst_chunk_builder_pack(&builder, 0, builder.n_rows, &chunk) == MST_OK) {
            FUZZ_CHECK(chunk->n_rows == builder.n_rows);
            mst_chunk_release(chunk);
        }
        if (format->unprepare != NULL)
            format->unprepare(context.prepared);
    }
    mst_chunk_builder_fini(&builder);
    free(copy);
}

#endif
