/* The origin of rows: the meaning of feature numbers. A model fits rows of one origin: on others its results
 * are meaningless.
 *
 * An origin is a JSON object. "keys" is the source of the numbers:
 *
 *   "numbers"                     the data holds them: libsvm, TFRecord with numbers, images, generated rows
 *   "criteo", "csv", "vw", "tfrecord"  they are hashes of values in the data, made by that format
 *   "vocabulary"                  a vocabulary gives them to values in the data (vocabulary.h)
 *
 * Further entries, present where they matter: "features" (that keys are hashed into), "hash-seed",
 * "criteo-numeric", "index-base" (libsvm), "columns" (TFRecord and csv: names and kinds, in order), "fields"
 * (vw), "generated", and "labels-from", the label of class 0 in the files.
 *
 * Two origins fit when "keys" and all entries that both have are equal. NULL: unknown, which fits
 * everything. */
#ifndef MST_DATA_ORIGIN_H
#define MST_DATA_ORIGIN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define MST_ORIGIN "origin" /* its name in a cache's source key and in the "data" of a checkpoint */

#define MST_ORIGIN_LABELS     "labels-from" /* an entry */
#define MST_ORIGIN_SOURCE     "source"      /* with a vocabulary: the format of the rows */
#define MST_ORIGIN_VOCABULARY "vocabulary"  /* its checksum */
#define MST_ORIGIN_MISSING    "missing" /* with a vocabulary: per field, the key of missing values or -1 */
#define MST_ORIGIN_CSV        "csv-columns" /* csv: the whole list of columns; other lists may give equal rows */
#define MST_ORIGIN_FIELDS     "fields" /* vw: the namespaces that are fields; another list changes no key */

/* {"keys": "numbers"}. New reference or NULL. */
json_t *mst_origin_numbers(void);

/* The origin in an object of any content, borrowed; NULL if it has no valid origin. */
const json_t *mst_origin_in(const json_t *object);

/* The number of fields with names; 0: fields have none. */
uint32_t mst_origin_named_fields(const json_t *origin);

/* The name of a field of such rows: of a column or a namespace; "" if it has none. */
void mst_origin_field_name(const json_t *origin, uint32_t field, char *out, size_t size);

/* Whether a key of the field stands for a missing value, and which. */
bool mst_origin_missing_key(const json_t *origin, uint32_t field, uint32_t *key);

/* MST_EINPUT, with a message that names the difference, when the rows of `name` do not fit `model` (in
 * words: the checkpoint's path, "the training data"). */
mst_status mst_origin_check(const json_t *origin, const char *model, const json_t *rows, const char *name);

/* The labels of the classes as they are in files: names, unless their number is another; -1 and 1; or numbers
 * from `from` on. A new reference. */
json_t *mst_origin_labels(const json_t *names, uint32_t n_classes, int64_t from, bool minus_one);

#endif
