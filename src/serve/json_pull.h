/* A strict reader of JSON (RFC 8259) for requests: the caller walks the text, and nothing is built.
 *
 * Strict: UTF-8 only, no comments, no trailing commas, no NaN, no numbers such as 01 or .5, no control
 * characters and no lone surrogates in strings, nothing after the value, at most MST_JSON_DEPTH levels.
 *
 *     mst_json_value(&j, &v);                     v.kind is MST_JSON_ARRAY
 *     while (mst_json_item(&j, &v)) ...           each item; arrays and objects in it must be walked or
 * skipped mst_json_end(&j)                            false: j.error
 *
 * After an error every call returns false or MST_JSON_BAD, so callers look once, at the end. The text is
 * changed: strings with escapes are replaced by their value. One thread. */
#ifndef MST_SERVE_JSON_PULL_H
#define MST_SERVE_JSON_PULL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MST_JSON_DEPTH 32

typedef enum mst_json_kind {
    MST_JSON_BAD,
    MST_JSON_NULL,
    MST_JSON_TRUE,
    MST_JSON_FALSE,
    MST_JSON_NUMBER,
    MST_JSON_STRING,
    MST_JSON_ARRAY,
    MST_JSON_OBJECT,
} mst_json_kind;

/* A value. Numbers have the text that was written, strings their value (which may hold NUL); both are valid
 * as long as the text of the reader. */
typedef struct mst_json_token {
    mst_json_kind kind;
    const char *text;
    size_t n;
} mst_json_token;

typedef struct mst_json {
    char *start, *at, *end;
    const char *error; /* a phrase, "a comma is missing"; NULL: none so far */
    unsigned depth;
    bool fresh[MST_JSON_DEPTH + 1]; /* level d has had no item yet */
} mst_json;

/* The text belongs to the caller and is changed. */
void mst_json_init(mst_json *self, char *text, size_t n);

/* The value at the current place. An array or an object is entered: its items follow. */
bool mst_json_value(mst_json *self, mst_json_token *out);
/* The next item of the array that is open; false: it has ended, or an error. */
bool mst_json_item(mst_json *self, mst_json_token *out);
/* The next member of the object that is open. */
bool mst_json_member(mst_json *self, mst_json_token *name, mst_json_token *out);
/* Passes the rest of a value that was read: walks an array or an object to its end. */
bool mst_json_skip(mst_json *self, const mst_json_token *value);
/* Whether the text was one valid value and nothing else. */
bool mst_json_end(mst_json *self);

/* The error with its place: "byte 17: a comma is missing". out is returned. */
const char *mst_json_error(const mst_json *self, char *out, size_t size);

#endif
