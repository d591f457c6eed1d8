/* Text of any encoding in JSON, and JSON files. */
#ifndef MST_BASE_JSON_TEXT_H
#define MST_BASE_JSON_TEXT_H

#include <jansson.h>

#include "base/status.h"

/* JSON strings must be UTF-8. Each byte of text that is not valid UTF-8, as in a file name, becomes U+FFFD.
 * Returns a new reference, or NULL without memory. Thread: any. */
json_t *mst_json_text(const char *text);
/* The same for n texts, as an array. */
json_t *mst_json_texts(char *const *texts, size_t n);

/* Writes the text of json_dumps with these flags and a newline to path; the file appears whole or not at all.
 */
mst_status mst_json_save(const json_t *json, size_t flags, const char *path);

/* The same, indented by one blank, for an object without this entry; the entry is added as the last one, the
 * CRC-32C of the text before it. */
#define MST_JSON_CHECKSUM "crc32c"
mst_status mst_json_save_checked(const json_t *object, const char *path);
/* Compares the checksum of a text of mst_json_save_checked; root: as parsed. MST_EINPUT if they differ; a
 * text without a checksum is accepted. */
mst_status mst_json_verify(const json_t *root, const char *text, size_t size, const char *path);

#endif
