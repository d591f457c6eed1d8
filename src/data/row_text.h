/* Single rows without a file: a line of the format that a model was trained on, or named values.
 *
 * Named values are written as a line of the format, which the parser of the format then reads. So a row of
 * names is the row of a file, and its errors are those of a file.
 *
 * | format | names of the row |
 * | criteo | I1 to I13 and C1 to C26; a column that is missing or null is an empty field |
 * | csv | columns; a column that is missing or null is an empty field; label, weight and ignored columns may
 *         be there |
 * | vw | namespaces, with the features in them as named numbers or as a list of names; a number at the top is
 *        a feature of the nameless namespace, a text is the only feature of the namespace it is named for |
 * | libsvm | indices, as in the file, or names of --feature-names |
 * | libffm | fields, with the indices in them |
 *
 * Once made, a parser does not change: any thread. */
#ifndef MST_DATA_ROW_TEXT_H
#define MST_DATA_ROW_TEXT_H

#include "base/strings.h"
#include "data/format.h"

typedef enum mst_named_kind {
    MST_NAMED_MISSING, /* null */
    MST_NAMED_NUMBER,  /* text is the number as it was written */
    MST_NAMED_TEXT,
    MST_NAMED_PRESENT, /* an item of a list: its name is the item */
} mst_named_kind;

/* A value of a row. Texts need no end. */
typedef struct mst_named_value {
    const char *group; /* the name of the object or list that holds it; NULL: the row holds it */
    const char *name, *text;
    size_t n_group, n_name, n_text;
    mst_named_kind kind;
} mst_named_value;

typedef struct mst_row_parser mst_row_parser;

/* options: how rows were read in training, and --features; they must outlive the parser. origin: of the rows
 * (origin.h), or NULL. fields: the model has fields. A model without a text format has a parser that refuses
 * every row with the reason. *out is the caller's to destroy; set only on MST_OK. */
mst_status mst_row_parser_new(const mst_data_options *options, const json_t *origin, bool fields,
                              mst_row_parser **out);
void mst_row_parser_destroy(mst_row_parser *self); /* NULL-safe */

/* The name of the format; "": rows have no text. */
const char *mst_row_parser_format(const mst_row_parser *self);

/* Adds one row to the builder. number: of the row, from 1, for messages "WHERE:NUMBER: ...". scratch: memory
 * of the calling thread, used again. MST_EINPUT: a bad row; the builder may hold a part of it. */
mst_status mst_row_parser_line(const mst_row_parser *self, const char *where, uint64_t number,
                               const char *line, size_t n, mst_string *scratch, mst_chunk_builder *out);
mst_status mst_row_parser_named(const mst_row_parser *self, const char *where, uint64_t number,
                                const mst_named_value *values, size_t n, mst_string *scratch,
                                mst_chunk_builder *out);

#endif
