/* Any bytes as an archive of arrays: a member that is found lies in the archive or in its own memory, and its
 * header can be read. */
#include <string.h>

#include "base/alloc.h"
#include "base/npy_header.h"
#include "data/npz.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"X", "y", "arr_0"};
    uint8_t *copy = malloc(size ? size : 1); /* of the exact size: a read beyond it is seen */
    memcpy(copy, data, size);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        mst_npz_member m;
        mst_npy_shape shape;
        if (mst_npz_find("fuzz", copy, size, names[i], &m) != MST_OK || m.data == NULL)
            continue;
        FUZZ_CHECK(m.owned != NULL || (m.data >= copy && m.data + m.size <= copy + size));
        if (mst_npy_shape_parse("fuzz", m.data, m.size, m.size, &shape) == MST_OK)
            FUZZ_CHECK(shape.at <= m.size);
        mst_free(m.owned);
    }
    free(copy);
    return 0;
}
