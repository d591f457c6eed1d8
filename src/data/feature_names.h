/* The names of a model's features: lines of a file (name_list.h), columns of numbers, and categories of a
 * vocabulary as COLUMN=CATEGORY. Hashed features have none.
 *
 * Does not change once made: any thread. */
#ifndef MST_DATA_FEATURE_NAMES_H
#define MST_DATA_FEATURE_NAMES_H

#include <jansson.h>

#include "base/strings.h"
#include "data/name_list.h"

typedef struct mst_feature_names mst_feature_names;

/* data: how rows are read, of a checkpoint; borrowed for the life of the names. model: of messages. n_dense:
 * features that are numbers in front. vocabulary, list: files in place of those that the model was trained
 * with; or NULL. *out is the caller's to destroy, and NULL if features have no names. */
mst_status mst_feature_names_new(const json_t *data, const char *model, uint32_t n_dense,
                                 const char *vocabulary, const char *list, mst_feature_names **out);
void mst_feature_names_destroy(mst_feature_names *self); /* NULL-safe */

/* Appends the name to out. *field: of the feature, its own number where it is a number. False: it has no
 * name. */
mst_status mst_feature_names_get(const mst_feature_names *self, uint64_t feature, uint32_t *field,
                                 mst_string *out, bool *known);

#endif
