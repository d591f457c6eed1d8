/* Text of any encoding as a JSON string. */
#ifndef MST_BASE_JSON_TEXT_H
#define MST_BASE_JSON_TEXT_H

#include <jansson.h>

/* JSON strings must be UTF-8. Each byte of text that is not valid UTF-8, as in a file name, becomes U+FFFD.
 * Returns a new reference, or NULL without memory. Thread: any. */
json_t *mst_json_text(const char *text);

#endif
