/* Any bytes as libsvm text, with a detected or a given index base, and with few, many or any features. A row
 * that is parsed with vector instructions must have the entries that strtoull and strtod find. */
#include "data/libsvm_vector.h"
#include "fuzz_text.h"

extern const mst_format mst_format_libsvm;

static void fuzz_vector_row(const uint8_t *data, size_t size, uint64_t limit)
{
    static mst_libsvm_list list;
    uint8_t *copy = malloc(size);
    memcpy(copy, data, size);
    mst_chunk_builder b;
    mst_chunk_builder_init(&b);
    FUZZ_CHECK(mst_chunk_builder_room(&b, size / 4 + 1) == MST_OK);
    mst_libsvm_list_init(&list, copy);
    const uint8_t *end = mst_libsvm_vector_row(&list, copy, copy + size, 1, limit, &b);
    char *at = (char *)copy;
    if (end != NULL)
        FUZZ_CHECK(end == memchr(copy, '\n', size));
    for (size_t i = 0; i < b.n_entries && end != NULL; i++) {
        FUZZ_CHECK(*at == ' ');
        uint64_t key = strtoull(at + 1, &at, 10) - 1;
        FUZZ_CHECK(*at == ':' && b.keys[i] == key && key < limit);
        FUZZ_CHECK(b.values[i] == (float)strtod(at + 1, &at));
    }
    FUZZ_CHECK(end == NULL || at == (char *)end || (*at == ' ' && at + 1 == (char *)end));
    mst_chunk_builder_fini(&b);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int64_t features[] = {0, 10, 1000000, 4294967295};
    if (size == 0)
        return 0;
    mst_data_options options = {.index_base = data[0] % 3,
                                .features = features[data[0] / 3 % 4],
                                .unlabelled = data[0] / 12 % 2,
                                .any_key = data[0] / 24 % 2};
    if (mst_libsvm_vector_works() && size > 80)
        fuzz_vector_row(data + 1, size - 1,
                        mst_key_limit(&(mst_parse_context){.features = (uint64_t)options.features}));
    fuzz_format(&mst_format_libsvm, &options, data + 1, size - 1);
    return 0;
}
