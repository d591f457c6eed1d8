/* Tables that commands print, as aligned text or as JSON from the same cells.
 *
 * A cell is a JSON value and the text that shows it. Rows are filled cell by cell from the left. Adding
 * returns nothing: when memory runs out the table records it, and printing or mst_table_json fails. One
 * thread. */
#ifndef MST_CLI_TABLE_H
#define MST_CLI_TABLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef struct mst_column {
    const char *key; /* in JSON, and the heading (underscores shown as spaces) */
    bool right;      /* aligned right, as numbers are */
} mst_column;

typedef struct mst_table mst_table;

/* columns must outlive the table. *out is the caller's to destroy; set only on MST_OK. */
mst_status mst_table_new(const mst_column *columns, size_t n, mst_table **out);
void mst_table_destroy(mst_table *table); /* NULL-safe */

void mst_table_text(mst_table *table, const char *text); /* NULL: empty, null in JSON */
void mst_table_count(mst_table *table, uint64_t value);  /* 1,234,567 */
void mst_table_bytes(mst_table *table, uint64_t value);  /* 1.5 MB; bytes in JSON */
void mst_table_flag(mst_table *table, bool value);       /* yes, no */
/* digits after the point; NAN: empty, null in JSON. */
void mst_table_real(mst_table *table, double value, int digits);
/* Any JSON value (takes the reference) shown as text. */
void mst_table_value(mst_table *table, json_t *value, const char *text);

/* A table of facts has a name and a value per row: mst_table_count(mst_fact(table, "rows"), n). Its values
 * are aligned right if `right` is set. */
mst_status mst_facts_new(bool right, mst_table **out);
mst_table *mst_fact(mst_table *table, const char *name);                     /* the table, for the value */
void mst_fact_missing(mst_table *table, const char *name, const char *text); /* null in JSON */

/* Prints title (NULL: none), headings and rows to standard output. Without headings for tables of facts. */
mst_status mst_table_print(const mst_table *table, const char *title, bool headings);

/* [{key: value, ...}, ...]; new reference. NULL, with MST_ENOMEM recorded, when memory is or was short. */
json_t *mst_table_json(const mst_table *table);

/* A table of facts as {name: value, ...}; spaces in names become underscores. New reference, or NULL as
 * above. */
json_t *mst_table_json_facts(const mst_table *table);

#endif
