/* The origin of rows: the meaning of feature numbers. A model fits rows of one origin: on others its results
 * are meaningless.
 *
 * An origin is a JSON object. "keys" is the source of the numbers:
 *
 *   "numbers"                     the data holds them: libsvm, TFRecord with numbers, images, generated rows
 *   "criteo", "vw", "tfrecord"    they are hashes of values in the data, made by that format
 *
 * Further entries, present where they matter: "features" (that keys are hashed into), "hash-seed",
 * "criteo-numeric", "index-base" (libsvm), "columns" (TFRecord: names and kinds, in order), "generated", and
 * "labels-from", the label of class 0 in the files.
 *
 * Two origins fit when "keys" and all entries that both have are equal. NULL: unknown, which fits
 * everything. */
#ifndef MST_DATA_ORIGIN_H
#define MST_DATA_ORIGIN_H

#include <jansson.h>

#include "base/status.h"

#define MST_ORIGIN "origin" /* its name in a cache's source key and in the "data" of a checkpoint */

#define MST_ORIGIN_LABELS "labels-from" /* an entry */

/* {"keys": "numbers"}. New reference or NULL. */
json_t *mst_origin_numbers(void);

/* The origin in an object of any content, borrowed; NULL if it has no valid origin. */
const json_t *mst_origin_in(const json_t *object);

/* MST_EINPUT, with a message that names the difference, when the rows of `name` do not fit `model` (in
 * words: the checkpoint's path, "the training data"). */
mst_status mst_origin_check(const json_t *origin, const char *model, const json_t *rows, const char *name);

#endif
