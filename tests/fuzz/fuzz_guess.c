/* Fuzzes the description of files of unknown format: any bytes get a sentence. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/guess.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    uint8_t *exact = malloc(size);
    memcpy(exact, data, size);
    if (mst_data_guess(exact, size, 0) == NULL && mst_data_unknown("fuzz", exact, size) != MST_EINPUT)
        abort();
    free(exact);
    return 0;
}
