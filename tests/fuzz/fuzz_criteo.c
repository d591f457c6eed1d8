/* Any bytes as Criteo's click logs, in all three encodings of the integers. */
#include "fuzz_text.h"

extern const mst_format mst_format_criteo;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int64_t features[] = {0, 1, 14, 4294967295};
    if (size == 0)
        return 0;
    mst_data_options options = {
        .criteo_numeric = data[0] % 3, .features = features[data[0] / 3 % 4], .unlabelled = data[0] / 12 % 2};
    fuzz_format(&mst_format_criteo, &options, data + 1, size - 1);
    return 0;
}
