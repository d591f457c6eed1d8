/* Any bytes as a file of feature names: it is refused with a message, or every name is found again. */
#include <stdlib.h>
#include <string.h>

#include "data/name_list.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = malloc(size > 0 ? size : 1); /* of the exact size for the parser */
    mst_name_list *list = NULL;
    if (size > 0)
        memcpy(copy, data, size);
    mst_status st = mst_name_list_parse("fuzz", copy, size, &list);
    FUZZ_CHECK(st == MST_OK || (st == MST_EINPUT && mst_error_text()[0] != '\0'));
    for (uint32_t i = 0; st == MST_OK && i < mst_name_list_size(list); i++) {
        const char *name = mst_name_list_get(list, i);
        uint32_t found;
        FUZZ_CHECK(name == NULL || (mst_name_list_find(list, name, strlen(name), &found) && found == i));
    }
    if (st == MST_OK) {
        uint32_t found;
        FUZZ_CHECK(mst_name_list_get(list, mst_name_list_size(list)) == NULL);
        (void)mst_name_list_find(list, copy, size, &found);
    }
    mst_name_list_destroy(list);
    free(copy);
    return 0;
}
