/* Any bytes as libffm text, with bounds on fields and indices or without. */
#include "fuzz_text.h"

extern const mst_format mst_format_libffm;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int64_t features[] = {0, 1, 1000, 4294967295};
    static const int64_t fields[] = {0, 1, 40, 65536};
    if (size == 0)
        return 0;
    mst_data_options options = {
        .fields = fields[data[0] % 4], .features = features[data[0] / 4 % 4], .unlabelled = data[0] / 16 % 2};
    fuzz_format(&mst_format_libffm, &options, data + 1, size - 1);
    return 0;
}
