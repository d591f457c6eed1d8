/* A strict reader of JSON; contract in json_pull.h.
 *
 * Invariants
 * 1. at never leaves [start, end], and nothing at or after end is read.
 * 2. A string is never longer than its text, so its value replaces it in place: bytes before `at` may be
 * values of strings, bytes from `at` on are as they were given. */
#include "serve/json_pull.h"

#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

void mst_json_init(mst_json *self, char *text, size_t n)
{
    *self = (mst_json){.start = text, .at = text, .end = text + n};
}

static bool json_fail(mst_json *self, const char *error)
{
    if (self->error == NULL)
        self->error = error;
    return false;
}

const char *mst_json_error(const mst_json *self, char *out, size_t size)
{
    snprintf(out, size, "byte %zu: %s", (size_t)(self->at - self->start) + 1,
             self->error != NULL ? self->error : "no error");
    return out;
}

static void json_blanks(mst_json *self)
{
    while (self->at < self->end &&
           (*self->at == ' ' || *self->at == '\n' || *self->at == '\r' || *self->at == '\t'))
        self->at++;
}

/* ---- strings ---- */

/* Bytes of a string that are copied as they are: the first of another kind at or after p, or end. */
static char *json_plain(char *p, const char *end)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    for (; end - p >= 8; p += 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        uint64_t quote = w ^ '"' * ones, slash = w ^ '\\' * ones;
        uint64_t hit = ((quote - ones) & ~quote) | ((slash - ones) & ~slash) | ((w - 0x20 * ones) & ~w) | w;
        if (hit & tops)
            break;
    }
    while (p < end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20 && (unsigned char)*p < 0x80)
        p++;
    return p;
}

/* Four hex digits at p; -1: they are not there. */
static int32_t json_hex4(const char *p, const char *end)
{
    int32_t value = 0;
    if (end - p < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

static char *json_put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xc0 | c >> 6);
        *to++ = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        *to++ = (char)(0xe0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 63));
        *to++ = (char)(0x80 | (c & 63));
    } else {
        *to++ = (char)(0xf0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 63));
        *to++ = (char)(0x80 | (c >> 6 & 63));
        *to++ = (char)(0x80 | (c & 63));
    }
    return to;
}

/* \uXXXX, or a pair of surrogates; at is behind the u. */
static bool json_unicode(mst_json *self, char **to)
{
    int32_t c = json_hex4(self->at, self->end);
    if (c < 0)
        return json_fail(self, "\\u needs four hex digits");
    if (c >= 0xd800 && c < 0xdc00) {
        int32_t low = self->end - self->at >= 10 && self->at[4] == '\\' && self->at[5] == 'u'
                          ? json_hex4(self->at + 6, self->end)
                          : -1;
        if (low < 0xdc00 || low > 0xdfff)
            return json_fail(self, "half of a surrogate pair is missing");
        c = 0x10000 + ((c - 0xd800) << 10 | (low - 0xdc00));
        self->at += 6;
    } else if (c >= 0xdc00 && c < 0xe000) {
        return json_fail(self, "half of a surrogate pair is missing");
    }
    self->at += 4;
    *to = json_put_utf8(*to, (uint32_t)c);
    return true;
}

static bool json_escape(mst_json *self, char **to)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    self->at++; /* the backslash */
    const char *found = self->at < self->end && *self->at != '\0' ? strchr(from, *self->at) : NULL;
    if (self->at < self->end && *self->at == 'u') {
        self->at++;
        return json_unicode(self, to);
    }
    if (found == NULL)
        return json_fail(self, "an escape is not one of JSON");
    self->at++;
    *(*to)++ = into[found - from];
    return true;
}

/* The string whose opening quote is at `at`. */
static bool json_string(mst_json *self, mst_json_token *out)
{
    char *text = ++self->at, *to = text;
    for (;;) {
        char *stop = json_plain(self->at, self->end);
        if (to != self->at)
            memmove(to, self->at, (size_t)(stop - self->at));
        to += stop - self->at;
        self->at = stop;
        if (stop == self->end)
            return json_fail(self, "a string has no end");
        if (*stop == '"')
            break;
        if (*stop == '\\') {
            if (!json_escape(self, &to))
                return false;
            continue;
        }
        if ((unsigned char)*stop < 0x20)
            return json_fail(self, "a control character in a string must be escaped");
        size_t n = mst_utf8_length(stop, (size_t)(self->end - stop));
        if (n == 0)
            return json_fail(self, "a string is not UTF-8");
        memmove(to, stop, n);
        to += n;
        self->at += n;
    }
    self->at++;
    *out = (mst_json_token){.kind = MST_JSON_STRING, .text = text, .n = (size_t)(to - text)};
    return true;
}

/* ---- other values ---- */

static bool json_digits(mst_json *self)
{
    char *from = self->at;
    while (self->at < self->end && (unsigned)(*self->at - '0') < 10)
        self->at++;
    return self->at > from;
}

static bool json_number(mst_json *self, mst_json_token *out)
{
    char *text = self->at;
    self->at += *self->at == '-';
    bool zero = self->at < self->end && *self->at == '0';
    if (!json_digits(self))
        return json_fail(self, "a value is missing or is none of JSON");
    if (zero && self->at - text > 1 + (*text == '-'))
        return json_fail(self, "a number begins with 0");
    if (self->at < self->end && *self->at == '.') {
        self->at++;
        if (!json_digits(self))
            return json_fail(self, "digits are missing after a point");
    }
    if (self->at < self->end && (*self->at == 'e' || *self->at == 'E')) {
        self->at++;
        self->at += self->at < self->end && (*self->at == '+' || *self->at == '-');
        if (!json_digits(self))
            return json_fail(self, "digits of an exponent are missing");
    }
    *out = (mst_json_token){.kind = MST_JSON_NUMBER, .text = text, .n = (size_t)(self->at - text)};
    return true;
}

static bool json_word(mst_json *self, const char *word, mst_json_kind kind, mst_json_token *out)
{
    size_t n = strlen(word);
    if ((size_t)(self->end - self->at) < n || memcmp(self->at, word, n) != 0)
        return json_fail(self, "a value is missing or is none of JSON");
    *out = (mst_json_token){.kind = kind, .text = self->at, .n = n};
    self->at += n;
    return true;
}

bool mst_json_value(mst_json *self, mst_json_token *out)
{
    *out = (mst_json_token){.kind = MST_JSON_BAD, .text = ""};
    if (self->error != NULL)
        return false;
    json_blanks(self);
    if (self->at == self->end)
        return json_fail(self, "the text ends early");
    switch (*self->at) {
    case '"':
        return json_string(self, out);
    case '[':
    case '{':
        if (self->depth == MST_JSON_DEPTH)
            return json_fail(self, "more than 32 levels");
        out->kind = *self->at == '[' ? MST_JSON_ARRAY : MST_JSON_OBJECT;
        self->at++;
        self->fresh[++self->depth] = true;
        return true;
    case 'n':
        return json_word(self, "null", MST_JSON_NULL, out);
    case 't':
        return json_word(self, "true", MST_JSON_TRUE, out);
    case 'f':
        return json_word(self, "false", MST_JSON_FALSE, out);
    default:
        return json_number(self, out);
    }
}

/* ---- arrays and objects ---- */

/* Whether another item or member follows in the array or object that is open; passes the comma before it, or
 * the end. */
static bool json_more(mst_json *self, char close)
{
    if (self->error != NULL || self->depth == 0)
        return false;
    json_blanks(self);
    bool fresh = self->fresh[self->depth];
    if (self->at == self->end)
        return json_fail(self, "the text ends early");
    if (*self->at == close) {
        self->at++;
        self->depth--;
        return false;
    }
    if (!fresh && *self->at != ',')
        return json_fail(self, "a comma is missing");
    self->at += !fresh;
    self->fresh[self->depth] = false;
    return true;
}

bool mst_json_item(mst_json *self, mst_json_token *out)
{
    *out = (mst_json_token){.kind = MST_JSON_BAD, .text = ""};
    return json_more(self, ']') && mst_json_value(self, out);
}

bool mst_json_member(mst_json *self, mst_json_token *name, mst_json_token *out)
{
    *name = *out = (mst_json_token){.kind = MST_JSON_BAD, .text = ""};
    if (!json_more(self, '}'))
        return false;
    json_blanks(self);
    if (self->at == self->end || *self->at != '"')
        return json_fail(self, "the name of a member is missing");
    if (!json_string(self, name))
        return false;
    json_blanks(self);
    if (self->at == self->end || *self->at != ':')
        return json_fail(self, "a colon is missing");
    self->at++;
    return mst_json_value(self, out);
}

bool mst_json_skip(mst_json *self, const mst_json_token *value)
{
    bool objects[MST_JSON_DEPTH + 1];
    unsigned from = self->depth;
    mst_json_token name, next;
    if (value->kind != MST_JSON_ARRAY && value->kind != MST_JSON_OBJECT)
        return self->error == NULL;
    objects[from] = value->kind == MST_JSON_OBJECT;
    while (self->error == NULL && self->depth >= from) {
        unsigned level = self->depth;
        bool more = objects[level] ? mst_json_member(self, &name, &next) : mst_json_item(self, &next);
        if (more && self->depth > level)
            objects[self->depth] = next.kind == MST_JSON_OBJECT;
    }
    return self->error == NULL;
}

bool mst_json_end(mst_json *self)
{
    if (self->error != NULL)
        return false;
    if (self->depth > 0)
        return json_fail(self, "the text ends early");
    json_blanks(self);
    return self->at == self->end || json_fail(self, "text follows the value");
}
