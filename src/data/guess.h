/* Recognises files by their first bytes: the kind of data, or, for a file that muster does not read, a
 * message that names its likely kind and a remedy. */
#ifndef MST_DATA_GUESS_H
#define MST_DATA_GUESS_H

#include "data/format.h"

/* The confidence that a file starting with these bytes is of that kind (mst_data_kind.sniff), without a byte
 * order mark for text. */
int mst_data_sniff(const mst_data_kind *kind, const uint8_t *head, size_t n, uint64_t file_size);

/* The kind of mst_data_kinds that a file starting with these bytes most likely is; NULL: none claims it. Text
 * of which most lines are rows of a format, and some are not, has that format: its parser names the bad
 * line. */
const mst_data_kind *mst_data_guess(const uint8_t *head, size_t n, uint64_t file_size);

/* Whether a file that no kind claims is text that may be a table of a single column or a damaged one. */
bool mst_data_may_be_table(const uint8_t *head, size_t n);

/* MST_EINPUT with the message for a file that no kind claims. */
mst_status mst_data_unknown(const char *path, const uint8_t *head, size_t n);

/* Whether text has nothing but blank lines and comments. */
bool mst_data_no_rows(const uint8_t *head, size_t n);

/* Bytes of a UTF-8 byte order mark at the start of a text: 3 or 0. The mark is not part of the first line. */
size_t mst_text_mark(const uint8_t *head, size_t n);

#endif
