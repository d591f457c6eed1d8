/* Strings that grow, for pages, tables and messages.
 *
 * Adding returns nothing: when memory runs out the string sets `failed` and ignores later additions, and the
 * caller checks once at the end. One thread. */
#ifndef MST_BASE_STRINGS_H
#define MST_BASE_STRINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mst_string {
    char *text; /* NUL-terminated once something was added; NULL before */
    size_t size, capacity;
    bool failed;
} mst_string;

void mst_string_fini(mst_string *self);
void mst_string_add(mst_string *self, const char *text);
void mst_string_addn(mst_string *self, const char *text, size_t n);
void mst_string_format(mst_string *self, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds the words of `text` and a newline, with line breaks so that lines end before `columns` and all but the
 * first are indented; `indent` is the current column, too. Columns are counted in UTF-8 characters. */
void mst_string_wrap(mst_string *self, const char *text, size_t indent, size_t columns);

/* Adds text of unknown origin, escaped for HTML, SVG and attributes in quotes. Bytes that are not UTF-8 and
 * control characters become U+FFFD. NULL adds nothing. */
void mst_string_html(mst_string *self, const char *text);
/* The same for a cell of a Markdown table, and for one field of a CSV file. */
void mst_string_markdown(mst_string *self, const char *text);
void mst_string_csv(mst_string *self, const char *text);
/* The same for one word of a POSIX shell, quoted if necessary. */
void mst_string_shell(mst_string *self, const char *text);
/* The same for a manual page; text may have several lines. */
void mst_string_roff(mst_string *self, const char *text);

/* Writes the whole text to path ("-": standard output), which appears whole or not at all. MST_ENOMEM when
 * the string failed. */
mst_status mst_string_save(const mst_string *self, const char *path);

/* Insertions, deletions, replacements and swaps of neighbours that turn a into b, to suggest a name; both
 * have at most MST_EDIT_MAX bytes. */
#define MST_EDIT_MAX 64
size_t mst_edit_distance(const char *a, const char *b);

/* n random bytes of the system as 2 n hexadecimal digits and a NUL. */
mst_status mst_random_hex(size_t n, char *out);

#endif
