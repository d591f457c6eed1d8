/* Names of numbered features, from a file (--feature-names): text, one name per line. Line 1 names feature 0,
 * the first one of the rows, whatever --index-base is. An empty line is a feature without a name. Names
 * differ; they may have any bytes but NUL and line ends.
 *
 * Does not change once made: any thread. */
#ifndef MST_DATA_NAME_LIST_H
#define MST_DATA_NAME_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mst_name_list mst_name_list;

/* *out is the caller's to destroy; set only on MST_OK. */
mst_status mst_name_list_load(const char *path, mst_name_list **out);
/* The same from the bytes of a file. */
mst_status mst_name_list_parse(const char *path, const char *text, size_t size, mst_name_list **out);
void mst_name_list_destroy(mst_name_list *self); /* NULL-safe */

uint32_t mst_name_list_size(const mst_name_list *self); /* lines */
/* The name of a feature; NULL: it has none. */
const char *mst_name_list_get(const mst_name_list *self, uint64_t feature);
bool mst_name_list_find(const mst_name_list *self, const char *name, size_t n, uint32_t *feature);

#endif
