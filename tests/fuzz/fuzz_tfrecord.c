/* Fuzzes the TFRecord reader: find_end, prepare and parse on any bytes, and rows of any tf.Example.
 *
 * The first byte selects options. With its high bit set, the rest is tf.Example messages, each behind its own
 * length byte pair, framed here with correct checksums, so the fuzzer need not guess CRCs; with the high bit
 * of the length set, that of the data is wrong. Rows that are parsed one by one, without malformed ones,
 * equal those that are parsed at once. */
#include "base/alloc.h"
#include "base/crc.h"
#include "data/tfrecord.h"
#include "fuzz_text.h"

static size_t frame(uint8_t *to, const uint8_t *data, size_t n)
{
    uint64_t length = n;
    uint32_t crc = mst_crc_mask(mst_crc32c(0, &length, 8));
    memcpy(to, &length, 8);
    memcpy(to + 8, &crc, 4);
    memcpy(to + 12, data, n);
    crc = mst_crc_mask(mst_crc32c(0, data, n));
    memcpy(to + 12 + n, &crc, 4);
    return n + 16;
}

static void parse_block(mst_parse_context *context, const mst_block *block)
{
    mst_chunk_builder builder, single;
    mst_chunk *chunk;
    mst_chunk_builder_init(&builder);
    mst_chunk_builder_init(&single);
    mst_status checked = mst_tfrecord_check(block);
    if (mst_format_tfrecord.prepare(context, block) == MST_OK) {
        FUZZ_CHECK(checked == MST_OK || context->options->skip_bad_rows);
        mst_status st = mst_format_tfrecord.parse(context, block, &builder);
        FUZZ_CHECK(mst_format_parse_good(&mst_format_tfrecord, context, block, NULL, &single) == MST_OK);
        FUZZ_CHECK(st != MST_OK || builder.n_rows == single.n_rows);
        fuzz_same_rows(&builder, &single);
        for (size_t i = 0; i < builder.n_entries; i++)
            FUZZ_CHECK(builder.keys[i] < mst_key_limit(context));
        if (st == MST_OK && builder.n_rows > 0 &&
            mst_chunk_builder_pack(&builder, 0, builder.n_rows, &chunk) == MST_OK)
            mst_chunk_release(chunk);
        mst_format_tfrecord.unprepare(context->prepared);
    }
    mst_chunk_builder_fini(&builder);
    mst_chunk_builder_fini(&single);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > 1 << 16)
        return 0;
    unsigned choice = data[0];
    data++;
    size--;
    uint8_t *file = malloc(size * 9 + 16);
    size_t n = 0;
    if (choice & 0x80) {
        while (size >= 2) {
            size_t length = (size_t)data[0] | (size_t)(data[1] & 0x7f) << 8;
            bool damaged = data[1] & 0x80;
            data += 2;
            size -= 2;
            length = length < size ? length : size;
            n += frame(file + n, data, length);
            file[n - 1] ^= damaged;
            data += length;
            size -= length;
        }
    } else if (size > 0) {
        memcpy(file, data, size);
        n = size;
    }
    uint8_t *exact = malloc(n + 1);
    memcpy(exact, file, n);
    free(file);

    mst_data_options options = {.tf_keys = (int)(choice % 3), .image_size = "5x4"};
    if (choice & 4)
        options.tf_columns = "I1..I3,C1,C2";
    options.unlabelled = choice & 64;
    if (choice & 64)
        options.tf_columns = "I1:float[2],I2,C1..C2:bytes,C3:int64";
    if (choice & 8)
        options.tf_weight = "w";
    if (choice & 16)
        options.tf_label = "a name of more than eight bytes";
    mst_block block = {.path = "fuzz", .data = exact, .size = n};
    size_t whole = 0;
    if (mst_format_tfrecord.find_end(NULL, &block, &whole) == MST_OK) {
        FUZZ_CHECK(whole <= n);
        block.size = whole;
        for (int skip = 0; skip < 2; skip++) {
            options.skip_bad_rows = skip != 0;
            parse_block(&(mst_parse_context){.options = &options,
                                             .features = choice & 32 ? 1000 : 0,
                                             .any_key = choice % 5 == 0},
                        &block);
        }
    }
    free(exact);
    return 0;
}
