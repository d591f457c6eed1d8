/* Sanitises untrusted text for JSON, terminals and the Prometheus format. */
#ifndef MST_BASE_UTF8_H
#define MST_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A copy in which bytes that are not UTF-8 and control characters are U+FFFD; the caller frees. NULL when
 * memory is short. */
char *mst_utf8_clean(const char *text);

/* The same in place, with a question mark for each such byte. All errors and log lines pass through it, since
 * they may quote text of other processes (docs/SECURITY.md). */
void mst_utf8_mask(char *text);

/* Length of the valid sequence at text, of at most n bytes; 0: not one. Overlong forms, surrogates and code
 * points beyond U+10FFFF are not valid. */
size_t mst_utf8_length(const char *text, size_t n);

/* Writes a code point to out, which has room for 4 bytes, and returns their number; 0: it is not a code point
 * of a text. */
size_t mst_utf8_encode(uint32_t code, char *out);

/* Whether the whole text is valid and has no control characters (C0, DEL, C1). */
bool mst_utf8_plain(const char *text);

/* Columns that the text takes in a terminal, counting each character as one column; and bytes of its first
 * `columns` characters. */
size_t mst_utf8_columns(const char *text);
size_t mst_utf8_prefix(const char *text, size_t columns);

#endif
