/* Statistics of the fields of rows: distinct keys and missing values of each, for `muster data stat`. */
#ifndef MST_CLI_STAT_FIELDS_H
#define MST_CLI_STAT_FIELDS_H

#include <jansson.h>

#include "cli/table.h"
#include "data/dataset.h"

typedef struct mst_stat_fields mst_stat_fields;

/* origin: the meaning of keys and fields (origin.h), borrowed; or NULL. marked: missing numbers of rows are
 * NaN; otherwise their share is unknown. *out is the caller's to destroy. */
mst_status mst_stat_fields_new(const json_t *origin, bool marked, mst_stat_fields **out);
void mst_stat_fields_destroy(mst_stat_fields *self); /* NULL-safe */

/* Adds a row of a chunk that is fielded. */
mst_status mst_stat_fields_add(mst_stat_fields *self, const mst_row *row);

/* A table of the fields met, the caller's to destroy; NULL: none, or more than MST_STAT_FIELDS. */
#define MST_STAT_FIELDS 1024
mst_status mst_stat_fields_table(const mst_stat_fields *self, mst_table **out);

#endif
