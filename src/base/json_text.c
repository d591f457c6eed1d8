/* Contract in json_text.h. */
#include "base/json_text.h"

#include <string.h>

#include "base/alloc.h"

/* Returns the length of the UTF-8 character at text, 0 if there is none. */
static size_t json_text_character(const char *text)
{
    char bytes[5] = {0};
    for (size_t n = 1; n <= 4 && text[n - 1] != 0; n++) {
        bytes[n - 1] = text[n - 1];
        json_t *good = json_stringn(bytes, n);
        json_decref(good);
        if (good != NULL)
            return n;
    }
    return 0;
}

json_t *mst_json_text(const char *text)
{
    json_t *value = json_string(text);
    if (value != NULL)
        return value;
    char *good = mst_alloc(3 * strlen(text) + 1);
    size_t n = 0;
    if (good == NULL)
        return NULL;
    while (*text != 0) {
        size_t length = json_text_character(text);
        memcpy(good + n, length > 0 ? text : "\xef\xbf\xbd", length > 0 ? length : 3);
        n += length > 0 ? length : 3;
        text += length > 0 ? length : 1;
    }
    value = json_stringn(good, n);
    mst_free(good);
    return value;
}
