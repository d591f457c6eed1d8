/* Any bytes as libsvm text, with a detected or a given index base, and with few, many or any features. */
#include "fuzz_text.h"

extern const mst_format mst_format_libsvm;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int64_t features[] = {0, 10, 1000000, 4294967295};
    if (size == 0)
        return 0;
    mst_data_options options = {.index_base = data[0] % 3,
                                .features = features[data[0] / 3 % 4],
                                .unlabelled = data[0] / 12 % 2,
                                .any_key = data[0] / 24 % 2};
    fuzz_format(&mst_format_libsvm, &options, data + 1, size - 1);
    return 0;
}
