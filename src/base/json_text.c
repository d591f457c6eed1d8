/* Contract in json_text.h. */
#include "base/json_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

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

json_t *mst_json_texts(char *const *texts, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++)
        if (json_array_append_new(array, mst_json_text(texts[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

mst_status mst_json_save(const json_t *json, size_t flags, const char *path)
{
    mst_status st;
    mst_out *out = NULL;
    char *text = json_dumps(json, flags);
    if (text == NULL)
        return mst_fail_memory();
    TRY_OUT(st, mst_out_open(path, &out));
    TRY_OUT(st, mst_out_write(out, text, strlen(text)));
    TRY_OUT(st, mst_out_write(out, "\n", 1));
    TRY_OUT(st, mst_out_commit(out));
out:
    mst_out_close(out);
    free(text); /* jansson's allocation */
    return st;
}
