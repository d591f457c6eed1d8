/* A vocabulary: categories of each field and the keys they have, in place of hashing.
 *
 * Categories that occur at least min_count times have a key of their own; all others of a field, and those
 * never counted, share the first key of the field. Fields follow each other, so the keys of a row with one
 * category per field ascend:
 *
 *     [0, n_dense)   numbers
 *     field n_dense: rare categories, then its categories by count, most frequent first, equal ones by name
 *     field n_dense + 1: ...
 *
 * The file is text: a line "muster vocabulary 1", a line of JSON with the facts, then a line per key: key,
 * field, count and name between tabs; the key of rare categories has no name. Bytes of names below 0x21,
 * above 0x7e and backslashes are written as \xHH.
 *
 * A counter is a vocabulary in the making: mst_vocabulary_key counts. */
#ifndef MST_DATA_VOCABULARY_H
#define MST_DATA_VOCABULARY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text_list.h"

#define MST_VOCABULARY_SUFFIX ".vocabulary" /* after the name of the cache */

typedef struct mst_vocabulary mst_vocabulary;
struct mst_data_options;

/* *out is the caller's to destroy; set only on MST_OK. */
mst_status mst_vocabulary_counter_new(mst_vocabulary **out);
mst_status mst_vocabulary_load(const char *path, mst_vocabulary **out);
/* The same from the bytes of a file. */
mst_status mst_vocabulary_parse(const char *path, const char *text, size_t size, mst_vocabulary **out);
void mst_vocabulary_destroy(mst_vocabulary *self); /* NULL-safe */

/* The key of a category; of a counter: 0, after counting it. Any thread. field is below MST_FIELDS_MAX. */
uint32_t mst_vocabulary_key(const mst_vocabulary *self, uint32_t field, const void *name, size_t n);
/* The key of a number's decimal text. */
uint32_t mst_vocabulary_number_key(const mst_vocabulary *self, uint32_t field, int64_t number);

/* The field of a key, and its name as in the file; "" for numbers and rare categories. The caller frees *name
 * with mst_free. MST_EUSAGE: there is no such key. */
mst_status mst_vocabulary_name(const mst_vocabulary *self, uint64_t key, uint32_t *field, char **name);

uint64_t mst_vocabulary_features(const mst_vocabulary *self);
uint32_t mst_vocabulary_fields(const mst_vocabulary *self);
/* The origin of the rows that were counted (origin.h), borrowed. */
const json_t *mst_vocabulary_origin(const mst_vocabulary *self);
/* A counter counts from here on; n_dense: rows have numbers, which are keys [0, n_dense). */
void mst_vocabulary_start(mst_vocabulary *self, uint32_t n_dense);

/* Turns the origin of rows into that of rows read with the vocabulary. MST_EINPUT when the vocabulary was
 * made of rows of another one. Takes the reference of *origin and sets another. */
mst_status mst_vocabulary_adopt(const mst_vocabulary *self, const char *name, json_t **origin);

/* Counts the categories of the data and writes their vocabulary; options->min_count is at least 1. key: any
 * text that identifies the source, or NULL. */
mst_status mst_vocabulary_make(const mst_text_list *patterns, const struct mst_data_options *options,
                               unsigned n_threads, const char *key, const char *path);

/* Whether the file at path is a vocabulary made with this key. */
bool mst_vocabulary_fits(const char *path, const char *key);

#endif
