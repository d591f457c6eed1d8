/* Any bytes as Vowpal Wabbit text, hashed into one, few, many or the default number of features. */
#include "fuzz_text.h"

extern const mst_format mst_format_vw;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int64_t features[] = {0, 1, 1000, 4294967295};
    if (size == 0)
        return 0;
    mst_data_options options = {.hash_seed = data[0] % 3,
                                .vw_fields = data[0] / 24 % 2 ? (char *)"a,b,,c" : NULL,
                                .features = features[data[0] / 3 % 4],
                                .unlabelled = data[0] / 12 % 2};
    fuzz_format(&mst_format_vw, &options, data + 1, size - 1);
    return 0;
}
