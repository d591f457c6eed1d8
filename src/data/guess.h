/* What a file holds, by its first bytes: the format that claims it, or, for a file that muster does not read,
 * a sentence that names what it looks like and what to do about it. */
#ifndef MST_DATA_GUESS_H
#define MST_DATA_GUESS_H

#include "data/format.h"

/* The format of mst_formats that a file beginning with these bytes most likely has; NULL: none claims it.
 * Text of which most lines are rows of a format, and some are not, has that format: its parser names the bad
 * line. */
const mst_format *mst_format_guess(const uint8_t *head, size_t n, const char *path);

/* "libsvm, tfrecord, ...", for sentences. */
const char *mst_format_names(char *out, size_t size);

/* MST_EINPUT with the sentence of a file that no format claims. */
mst_status mst_format_unknown(const char *path, const uint8_t *head, size_t n);

/* Whether text has nothing but blank lines and comments. */
bool mst_format_no_rows(const uint8_t *head, size_t n);

/* Bytes of a byte order mark of UTF-8 at the start of a text, which is no part of its first line: 3 or 0. */
size_t mst_text_mark(const uint8_t *head, size_t n);

#endif
