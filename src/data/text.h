/* Lines and tokens of the text formats.
 *
 * A line ends with '\n' or with the data. Blanks are space, tab and carriage return (so that CRLF files parse
 * too). A line is a row unless it is blank or its first other character is '#': the one rule that parsers and
 * the index (data/indexed.c) share. */
#ifndef MST_DATA_TEXT_H
#define MST_DATA_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "data/numbers.h"

static inline bool mst_is_blank(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static inline const uint8_t *mst_skip_blanks(const uint8_t *p, const uint8_t *end)
{
    while (p < end && mst_is_blank(*p))
        p++;
    return p;
}

/* The end of the line at p: its '\n', or end. */
static inline const uint8_t *mst_line_end(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *newline = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
    return newline != NULL ? newline : end;
}

/* The end of the token at p: a blank, a newline, or end. */
static inline const uint8_t *mst_token_end(const uint8_t *p, const uint8_t *end)
{
    while (p < end && !mst_is_blank(*p) && *p != '\n')
        p++;
    return p;
}

/* A finite float that fills the token at *p, or ends at a comment; steps *p to its end. */
static inline bool mst_token_float(const uint8_t **p, const uint8_t *end, float *out)
{
    double value;
    const uint8_t *q = mst_number_real(*p, end, &value);
    if (q == NULL || (q < end && !mst_is_blank(*q) && *q != '\n' && *q != '#') || !isfinite((float)value))
        return false;
    *p = q;
    *out = (float)value;
    return true;
}

static inline bool mst_line_is_row(const uint8_t *p, const uint8_t *line_end)
{
    p = mst_skip_blanks(p, line_end);
    return p < line_end && *p != '#';
}

/* Newlines in [p, p + n). */
static inline uint64_t mst_count_newlines(const uint8_t *p, size_t n)
{
    uint64_t count = 0;
    while (n >= 4096) { /* constant trip counts: compiled to vector code */
        uint32_t part = 0;
        for (int i = 0; i < 32; i++) {
            uint8_t sum = 0;
            for (int j = 0; j < 128; j++)
                sum += p[i * 128 + j] == '\n';
            part += sum;
        }
        count += part;
        p += 4096;
        n -= 4096;
    }
    for (size_t i = 0; i < n; i++)
        count += p[i] == '\n';
    return count;
}

/* A token for a message: at most 40 characters, with '?' for unprintable ones. */
typedef struct mst_token_text {
    char text[48];
} mst_token_text;

static inline mst_token_text mst_token_show(const uint8_t *p, const uint8_t *end)
{
    mst_token_text out;
    size_t n = 0;
    for (; p < end && n < 40; p++)
        out.text[n++] = *p >= 0x20 && *p < 0x7f ? (char)*p : '?';
    if (p < end) {
        memcpy(out.text + n, "...", 3);
        n += 3;
    }
    out.text[n] = '\0';
    return out;
}

/* For sniffing: the next row of the head. A row that the head ends in counts only as the first one, without
 * the word it may have been cut in, unless the head is the whole file. Steps *p; false at the end. */
static inline bool mst_sniff_line(const uint8_t **p, const uint8_t *end, bool whole_file, bool first,
                                  const uint8_t **line, const uint8_t **line_end)
{
    while (*p < end) {
        const uint8_t *start = *p, *stop = mst_line_end(start, end);
        *p = stop < end ? stop + 1 : end;
        if (stop == end && !whole_file) {
            if (!first)
                return false;
            while (stop > start && !mst_is_blank(stop[-1]))
                stop--;
        }
        if (mst_line_is_row(start, stop)) {
            *line = start;
            *line_end = stop;
            return true;
        }
    }
    return false;
}

/* Whether the bytes can be text at all: no control characters but tab, newline and carriage return. */
static inline bool mst_looks_like_text(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((p[i] < 0x20 && p[i] != '\n' && p[i] != '\t' && p[i] != '\r') || p[i] == 0x7f)
            return false;
    return true;
}

#define MST_SNIFF_BYTES 65536 /* of a file's beginning, decompressed, that sniffers are given */
#define MST_SNIFF_LINES 20    /* that a text sniffer looks at */

/* What the head of a file has of rows "label entry entry ... # comment". */
typedef struct mst_sniffed_rows {
    int lines;
    bool entries, unlabelled; /* some row has entries; lacks a label */
} mst_sniffed_rows;

/* no_label: steps over the place of a missing label, or false. entry: whether [p, stop) is one. False: some
 * row is not of that form. */
static inline bool mst_sniff_rows(const uint8_t *head, size_t n,
                                  bool (*no_label)(const uint8_t **p, const uint8_t *end),
                                  bool (*entry)(const uint8_t *p, const uint8_t *stop), mst_sniffed_rows *out)
{
    const uint8_t *p = head, *end = head + n, *line, *line_end;
    *out = (mst_sniffed_rows){0};
    if (!mst_looks_like_text(head, n))
        return false;
    for (; out->lines < MST_SNIFF_LINES &&
           mst_sniff_line(&p, end, n < MST_SNIFF_BYTES, out->lines == 0, &line, &line_end);
         out->lines++) {
        float number;
        const uint8_t *q = mst_skip_blanks(line, line_end), *stop;
        if (!mst_token_float(&q, line_end, &number)) {
            if (!no_label(&q, line_end))
                return false;
            out->unlabelled = true;
        }
        for (; (q = mst_skip_blanks(q, line_end)) < line_end && *q != '#'; q = stop) {
            stop = mst_token_end(q, line_end);
            if (!entry(q, stop))
                return false;
            out->entries = true;
        }
    }
    return true;
}

#endif
