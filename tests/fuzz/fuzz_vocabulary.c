/* Any bytes as a vocabulary: it is refused with a message, or gives every category a key below its features.
 */
#include <stdlib.h>
#include <string.h>

#include "data/vocabulary.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char head[] =
        "muster vocabulary 1\n{\"dense\":1,\"fields\":3,\"features\":4,\"origin\":{\"keys\":\"vw\"}}\n";
    bool with_head = size > 0 && data[0] % 2;
    size_t n = (with_head ? sizeof head - 1 : 0) + (size > 0 ? size - 1 : 0);
    char *copy = malloc(n + 1); /* of the exact size for the parser */
    mst_vocabulary *v = NULL;
    if (with_head)
        memcpy(copy, head, sizeof head - 1);
    if (size > 1)
        memcpy(copy + n - (size - 1), data + 1, size - 1);
    mst_status st = mst_vocabulary_parse("fuzz", copy, n, &v);
    FUZZ_CHECK(st == MST_OK || (st == MST_EINPUT && mst_error_text()[0] != '\0'));
    if (st == MST_OK) {
        for (uint32_t field = 0; field < 70000; field += 1 + field / 3) {
            FUZZ_CHECK(mst_vocabulary_key(v, field, copy, n < 3 ? n : 3) < mst_vocabulary_features(v));
            FUZZ_CHECK(mst_vocabulary_number_key(v, field, -5) < mst_vocabulary_features(v));
        }
        mst_vocabulary_destroy(v);
    }
    free(copy);
    return 0;
}
