/* Contract in json_text.h. */
#include "base/json_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc.h"
#include "base/file.h"

#define CHECKSUM_FRONT ",\n \"" MST_JSON_CHECKSUM "\": " /* the digits and an end follow */
#define CHECKSUM_END   "\n}\n"

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

/* Writes the text and the end; the file appears whole or not at all. */
static mst_status json_text_save(const char *text, size_t n, const char *end, const char *path)
{
    mst_status st;
    mst_out *out = NULL;
    TRY_OUT(st, mst_out_open(path, &out));
    TRY_OUT(st, mst_out_write(out, text, n));
    TRY_OUT(st, mst_out_write(out, end, strlen(end)));
    TRY_OUT(st, mst_out_commit(out));
out:
    mst_out_close(out);
    return st;
}

mst_status mst_json_save(const json_t *json, size_t flags, const char *path)
{
    char *text = json_dumps(json, flags);
    if (text == NULL)
        return mst_fail_memory();
    mst_status st = json_text_save(text, strlen(text), "\n", path);
    free(text); /* jansson's allocation */
    return st;
}

mst_status mst_json_save_checked(const json_t *object, const char *path)
{
    char end[64], *text = json_dumps(object, JSON_INDENT(1));
    if (text == NULL)
        return mst_fail_memory();
    size_t n = strlen(text) - strlen("\n}");
    snprintf(end, sizeof end, CHECKSUM_FRONT "%u" CHECKSUM_END, mst_crc32c(0, text, n));
    mst_status st = json_text_save(text, n, end, path);
    free(text); /* jansson's allocation */
    return st;
}

mst_status mst_json_verify(const json_t *root, const char *text, size_t size, const char *path)
{
    const json_t *stated = json_object_get(root, MST_JSON_CHECKSUM);
    if (stated == NULL)
        return MST_OK;
    char end[64];
    size_t n = (size_t)snprintf(end, sizeof end, CHECKSUM_FRONT "%llu" CHECKSUM_END,
                                (unsigned long long)json_integer_value(stated));
    if (json_is_integer(stated) && size >= n && memcmp(text + size - n, end, n) == 0 &&
        mst_crc32c(0, text, size - n) == json_integer_value(stated))
        return MST_OK;
    return mst_fail(MST_EINPUT,
                    "%s: damaged: its contents do not have the CRC-32C that it states; restore it, or remove "
                    "\"" MST_JSON_CHECKSUM "\" from it to use it as it is",
                    path);
}
