/* Strings that grow, and their escapes (strings.h). */
#include "base/strings.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/utf8.h"

#define REPLACEMENT "\xef\xbf\xbd"

void mst_string_fini(mst_string *self)
{
    mst_free(self->text);
    *self = (mst_string){0};
}

/* Room for n more bytes and the NUL. */
static bool string_reserve(mst_string *self, size_t n)
{
    if (!self->failed && !mst_grow(&self->text, &self->capacity, self->size + n + 1, 1))
        self->failed = true;
    return !self->failed;
}

void mst_string_addn(mst_string *self, const char *text, size_t n)
{
    if (!string_reserve(self, n))
        return;
    memcpy(self->text + self->size, text, n);
    self->size += n;
    self->text[self->size] = '\0';
}

void mst_string_add(mst_string *self, const char *text)
{
    mst_string_addn(self, text, strlen(text));
}

void mst_string_format(mst_string *self, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || !string_reserve(self, (size_t)n))
        return;
    va_start(args, format);
    vsnprintf(self->text + self->size, (size_t)n + 1, format, args);
    va_end(args);
    self->size += (size_t)n;
}

/* ---- escapes ---- */

/* Adds the text character by character; those for which replace has something get that instead. */
static void string_add_escaped(mst_string *self, const char *text, const char *(*replace)(char c))
{
    for (const unsigned char *p = (const unsigned char *)(text != NULL ? text : ""); *p != '\0';) {
        size_t n = mst_utf8_length((const char *)p, strnlen((const char *)p, 4));
        const char *other = n == 1 ? replace((char)*p) : NULL;
        if (other != NULL)
            mst_string_add(self, other);
        else if (n == 0 || (*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7f)
            mst_string_add(self, REPLACEMENT);
        else
            mst_string_addn(self, (const char *)p, n);
        p += n != 0 ? n : 1;
    }
}

static const char *string_replace_html(char c)
{
    return c == '<'    ? "&lt;"
           : c == '>'  ? "&gt;"
           : c == '&'  ? "&amp;"
           : c == '"'  ? "&quot;"
           : c == '\'' ? "&#39;"
                       : NULL;
}

static const char *string_replace_markdown(char c)
{
    return c == '|'    ? "\\|"
           : c == '\n' ? " "
           : c == '`'  ? "\\`"
           : c == '*'  ? "\\*"
           : c == '_'  ? "\\_"
           : c == '<'  ? "&lt;"
           : c == '&'  ? "&amp;"
           : c == '['  ? "\\["
           : c == '\\' ? "\\\\"
                       : NULL;
}

static const char *string_replace_quote(char c)
{
    return c == '"' ? "\"\"" : c == '\n' ? " " : NULL;
}

static const char *string_replace_shell(char c)
{
    return c == '\'' ? "'\\''" : NULL;
}

void mst_string_html(mst_string *self, const char *text)
{
    string_add_escaped(self, text, string_replace_html);
}

void mst_string_markdown(mst_string *self, const char *text)
{
    string_add_escaped(self, text, string_replace_markdown);
}

void mst_string_csv(mst_string *self, const char *text)
{
    bool plain = text == NULL || strpbrk(text, ",\"\n\r") == NULL;
    mst_string_add(self, plain ? "" : "\"");
    string_add_escaped(self, text, string_replace_quote);
    mst_string_add(self, plain ? "" : "\"");
}

void mst_string_shell(mst_string *self, const char *text)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_";
    bool plain = *text != '\0' && text[strspn(text, safe)] == '\0';
    mst_string_add(self, plain ? "" : "'");
    string_add_escaped(self, text, string_replace_shell);
    mst_string_add(self, plain ? "" : "'");
}

void mst_string_wrap(mst_string *self, const char *text, size_t indent, size_t columns)
{
    size_t column = indent;
    while (*text != '\0') {
        size_t length = strcspn(text, " "), width = 0;
        for (size_t i = 0; i < length; i++)
            width += ((unsigned char)text[i] & 0xc0) != 0x80;
        if (column > indent && column + 1 + width > columns) {
            mst_string_format(self, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            mst_string_add(self, " ");
            column++;
        }
        mst_string_addn(self, text, length);
        column += width;
        text += length;
        text += strspn(text, " ");
    }
    mst_string_add(self, "\n");
}

void mst_string_roff(mst_string *self, const char *text)
{
    bool line_starts = self->size == 0 || self->text[self->size - 1] == '\n';
    for (; *text != '\0'; text++) {
        if (line_starts && (*text == '.' || *text == '\''))
            mst_string_add(self, "\\&");
        line_starts = *text == '\n';
        switch (*text) {
        case '\\':
            mst_string_add(self, "\\e");
            break;
        case '-':
            mst_string_add(self, "\\-");
            break;
        case '\'':
            mst_string_add(self, "\\(aq");
            break;
        case '`':
            mst_string_add(self, "\\(ga");
            break;
        case '^':
            mst_string_add(self, "\\(ha");
            break;
        case '~':
            mst_string_add(self, "\\(ti");
            break;
        default:
            mst_string_addn(self, text, 1);
        }
    }
}

mst_status mst_string_save(const mst_string *self, const char *path)
{
    mst_status st;
    mst_out *out = NULL;
    if (self->failed)
        return mst_fail_memory();
    TRY_OUT(st, mst_out_open(path, &out));
    TRY_OUT(st, mst_out_write(out, self->text != NULL ? self->text : "", self->size));
    TRY_OUT(st, mst_out_commit(out));
out:
    mst_out_close(out);
    return st;
}

size_t mst_edit_distance(const char *a, const char *b)
{
    size_t rows[3][MST_EDIT_MAX + 1];
    size_t *two_up = rows[0], *up = rows[1], *here = rows[2];
    size_t n_a = strlen(a), n_b = strlen(b);
    for (size_t j = 0; j <= n_b; j++)
        up[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        here[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            size_t best = up[j - 1] + (a[i - 1] != b[j - 1]);
            best = up[j] + 1 < best ? up[j] + 1 : best;
            best = here[j - 1] + 1 < best ? here[j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && two_up[j - 2] + 1 < best)
                best = two_up[j - 2] + 1;
            here[j] = best;
        }
        size_t *spare = two_up;
        two_up = up;
        up = here;
        here = spare;
    }
    return up[n_b];
}

mst_status mst_random_hex(size_t n, char *out)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char byte;
        if (getrandom(&byte, 1, 0) != 1)
            return mst_fail(MST_EIO, "the system returned no random bytes");
        snprintf(out + 2 * i, 3, "%02x", byte);
    }
    return MST_OK;
}
