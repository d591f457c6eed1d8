/* UTF-8 (utf8.h). */
#include "base/utf8.h"

#include <string.h>

#include "base/alloc.h"

size_t mst_utf8_length(const char *text, size_t n)
{
    const uint8_t *b = (const uint8_t *)text;
    if (n == 0)
        return 0;
    if (b[0] < 0x80)
        return 1;
    size_t length = b[0] >= 0xc2 && b[0] <= 0xdf ? 2 : b[0] >= 0xe0 && b[0] <= 0xef ? 3 : 4;
    if (b[0] < 0xc2 || b[0] > 0xf4 || n < length)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((b[i] & 0xc0) != 0x80)
            return 0;
    if ((b[0] == 0xe0 && b[1] < 0xa0) || (b[0] == 0xed && b[1] > 0x9f) || (b[0] == 0xf0 && b[1] < 0x90) ||
        (b[0] == 0xf4 && b[1] > 0x8f))
        return 0;
    return length;
}

size_t mst_utf8_encode(uint32_t code, char *out)
{
    size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const uint8_t first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        return 0;
    for (size_t i = length - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(first[length] | code);
    return length;
}

/* Whether the valid sequence at text, of that length, is a control character. */
static bool utf8_is_control(const char *text, size_t length)
{
    const uint8_t *b = (const uint8_t *)text;
    return (length == 1 && (b[0] < 0x20 || b[0] == 0x7f)) || (length == 2 && b[0] == 0xc2 && b[1] < 0xa0);
}

bool mst_utf8_plain(const char *text)
{
    for (size_t n = strlen(text); n > 0;) {
        size_t length = mst_utf8_length(text, n);
        if (length == 0 || utf8_is_control(text, length))
            return false;
        text += length;
        n -= length;
    }
    return true;
}

char *mst_utf8_clean(const char *text)
{
    size_t n = strlen(text), used = 0;
    char *out = mst_alloc(3 * n + 1); /* U+FFFD takes three bytes */
    if (out == NULL)
        return NULL;
    for (size_t i = 0; i < n;) {
        size_t length = mst_utf8_length(text + i, n - i);
        if (length == 0 || utf8_is_control(text + i, length)) {
            memcpy(out + used, "\xef\xbf\xbd", 3);
            used += 3;
            i += length > 0 ? length : 1;
            continue;
        }
        memcpy(out + used, text + i, length);
        used += length;
        i += length;
    }
    out[used] = '\0';
    return out;
}

void mst_utf8_mask(char *text)
{
    for (size_t n = strlen(text); n > 0;) {
        size_t length = mst_utf8_length(text, n), step = length > 0 ? length : 1;
        if (length == 0 || utf8_is_control(text, length))
            memset(text, '?', step);
        text += step;
        n -= step;
    }
}

size_t mst_utf8_columns(const char *text)
{
    size_t n = 0;
    for (; *text != '\0'; text++)
        n += ((uint8_t)*text & 0xc0) != 0x80;
    return n;
}

size_t mst_utf8_prefix(const char *text, size_t columns)
{
    size_t i = 0;
    for (; text[i] != '\0'; i++)
        if (((uint8_t)text[i] & 0xc0) != 0x80 && columns-- == 0)
            break;
    return i;
}
