/* Text that grows, its escapes, and figures as people read them; contract in buffer.h. */
#include "report/buffer.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"

#define REPLACEMENT "\xef\xbf\xbd"

void mst_buffer_fini(mst_buffer *self)
{
    mst_free(self->text);
    *self = (mst_buffer){0};
}

/* Room for n more bytes and the NUL. */
static bool reserve(mst_buffer *self, size_t n)
{
    if (!self->failed && !mst_grow(&self->text, &self->capacity, self->size + n + 1, 1))
        self->failed = true;
    return !self->failed;
}

void mst_buffer_addn(mst_buffer *self, const char *text, size_t n)
{
    if (!reserve(self, n))
        return;
    memcpy(self->text + self->size, text, n);
    self->size += n;
    self->text[self->size] = '\0';
}

void mst_buffer_add(mst_buffer *self, const char *text)
{
    mst_buffer_addn(self, text, strlen(text));
}

void mst_buffer_format(mst_buffer *self, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0 || !reserve(self, (size_t)n))
        return;
    va_start(args, format);
    vsnprintf(self->text + self->size, (size_t)n + 1, format, args);
    va_end(args);
    self->size += (size_t)n;
}

/* ---- escapes ---- */

/* Length of the UTF-8 character at p, which ends with a NUL at the latest; 0: not one. Overlong forms and
 * surrogates are not characters. */
static size_t utf8_length(const unsigned char *p)
{
    if (p[0] < 0x80)
        return 1;
    if (p[0] >= 0xc2 && p[0] <= 0xdf)
        return (p[1] & 0xc0) == 0x80 ? 2 : 0;
    if ((p[0] & 0xf0) == 0xe0) {
        unsigned char low = p[0] == 0xe0 ? 0xa0 : 0x80, high = p[0] == 0xed ? 0x9f : 0xbf;
        return p[1] >= low && p[1] <= high && (p[2] & 0xc0) == 0x80 ? 3 : 0;
    }
    if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        unsigned char low = p[0] == 0xf0 ? 0x90 : 0x80, high = p[0] == 0xf4 ? 0x8f : 0xbf;
        return p[1] >= low && p[1] <= high && (p[2] & 0xc0) == 0x80 && (p[3] & 0xc0) == 0x80 ? 4 : 0;
    }
    return 0;
}

/* Adds the text character by character; those for which replace has something get that instead. */
static void add_escaped(mst_buffer *self, const char *text, const char *(*replace)(char c))
{
    for (const unsigned char *p = (const unsigned char *)(text != NULL ? text : ""); *p != '\0';) {
        size_t n = utf8_length(p);
        const char *other = n == 1 ? replace((char)*p) : NULL;
        if (other != NULL)
            mst_buffer_add(self, other);
        else if (n == 0 || (*p < 0x20 && *p != '\n' && *p != '\t') || *p == 0x7f)
            mst_buffer_add(self, REPLACEMENT);
        else
            mst_buffer_addn(self, (const char *)p, n);
        p += n != 0 ? n : 1;
    }
}

static const char *html_replace(char c)
{
    return c == '<'    ? "&lt;"
           : c == '>'  ? "&gt;"
           : c == '&'  ? "&amp;"
           : c == '"'  ? "&quot;"
           : c == '\'' ? "&#39;"
                       : NULL;
}

static const char *markdown_replace(char c)
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

static const char *quote_replace(char c)
{
    return c == '"' ? "\"\"" : c == '\n' ? " " : NULL;
}

static const char *shell_replace(char c)
{
    return c == '\'' ? "'\\''" : NULL;
}

void mst_buffer_html(mst_buffer *self, const char *text)
{
    add_escaped(self, text, html_replace);
}

void mst_buffer_markdown(mst_buffer *self, const char *text)
{
    add_escaped(self, text, markdown_replace);
}

void mst_buffer_csv(mst_buffer *self, const char *text)
{
    bool plain = text == NULL || strpbrk(text, ",\"\n\r") == NULL;
    mst_buffer_add(self, plain ? "" : "\"");
    add_escaped(self, text, quote_replace);
    mst_buffer_add(self, plain ? "" : "\"");
}

void mst_buffer_shell(mst_buffer *self, const char *text)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_";
    bool plain = *text != '\0' && text[strspn(text, safe)] == '\0';
    mst_buffer_add(self, plain ? "" : "'");
    add_escaped(self, text, shell_replace);
    mst_buffer_add(self, plain ? "" : "'");
}

mst_status mst_buffer_save(const mst_buffer *self, const char *path)
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

/* ---- figures ---- */

#define FIGURE_SIZE 40

static const char *dash(char *out)
{
    memcpy(out, "\xe2\x80\x93", 4);
    return out;
}

const char *mst_figure_count(double value, char *out)
{
    char digits[32];
    if (!isfinite(value) || fabs(value) > 1e18)
        return dash(out);
    sprintf(out, "%s%s", value <= -0.5 ? "-" : "", mst_grouped((uint64_t)llround(fabs(value)), digits));
    return out;
}

/* Three digits, without the zeros that say nothing. */
static void three_digits(double value, char *out, size_t size)
{
    double a = fabs(value);
    snprintf(out, size, "%.*f", a >= 99.95 ? 0 : a >= 9.995 ? 1 : a >= 0.9995 ? 2 : 3, value);
    if (strchr(out, '.') != NULL) {
        size_t n = strlen(out);
        while (out[n - 1] == '0')
            out[--n] = '\0';
        if (out[n - 1] == '.')
            out[n - 1] = '\0';
    }
}

const char *mst_figure_short(double value, char *out)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P"};
    char number[FIGURE_SIZE - 8];
    size_t unit = 0;
    double a = fabs(value);
    if (!isfinite(value) || a > 1e20)
        return dash(out);
    if (a > 0 && a < 0.01) {
        snprintf(out, FIGURE_SIZE, "%.3g", value);
        return out;
    }
    for (; fabs(value) >= 999.5 && unit + 1 < sizeof units / sizeof *units; unit++)
        value /= 1000;
    three_digits(value, number, sizeof number);
    snprintf(out, FIGURE_SIZE, "%s%s", number, units[unit]);
    return out;
}

const char *mst_figure_bytes(double value, char *out)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    char number[FIGURE_SIZE - 8];
    size_t unit = 0;
    if (!isfinite(value) || fabs(value) > 1e20)
        return dash(out);
    for (; fabs(value) >= 999.5 && unit + 1 < sizeof units / sizeof *units; unit++)
        value /= 1000;
    if (unit == 0)
        snprintf(number, sizeof number, "%.0f", value);
    else
        three_digits(value, number, sizeof number);
    snprintf(out, FIGURE_SIZE, "%s %s", number, units[unit]);
    return out;
}

const char *mst_figure_seconds(double value, char *out)
{
    char number[FIGURE_SIZE - 8];
    if (!isfinite(value) || fabs(value) > 1e12)
        return dash(out);
    if (value >= 3599.5) {
        snprintf(out, FIGURE_SIZE, "%.0f h %.0f min", floor((value + 30) / 3600),
                 floor(fmod(value + 30, 3600) / 60));
    } else if (value >= 99.95) {
        double whole = floor(value + 0.5);
        int n = snprintf(out, FIGURE_SIZE, "%.0f min", floor(whole / 60));
        if (fmod(whole, 60) > 0)
            snprintf(out + n, FIGURE_SIZE - (size_t)n, " %.0f s", fmod(whole, 60));
    } else if (value == 0 || value >= 0.9995) {
        three_digits(value, number, sizeof number);
        snprintf(out, FIGURE_SIZE, "%s s", number);
    } else {
        bool micro = value < 0.9995e-3;
        three_digits(value * (micro ? 1e6 : 1e3), number, sizeof number);
        snprintf(out, FIGURE_SIZE, "%s %s", number, micro ? "\xc2\xb5s" : "ms");
    }
    return out;
}

const char *mst_figure_percent(double share, char *out)
{
    if (!isfinite(share) || fabs(share) > 1e6)
        return dash(out);
    snprintf(out, FIGURE_SIZE, "%.*f%%", fabs(share) >= 0.0995 || share == 0 ? 0 : 1, share * 100);
    return out;
}

const char *mst_figure_real(double value, char *out)
{
    if (!isfinite(value))
        return dash(out);
    snprintf(out, FIGURE_SIZE, "%.4g", value);
    return out;
}
