/* Tables of a report: the same cells on the page and as Markdown, CSV and JSON.
 *
 * A cell is text for people and, if it is a figure, its plain value for programs. Adding returns nothing:
 * when memory runs out the sheet sets `failed`. One thread. */
#ifndef MST_REPORT_SHEET_H
#define MST_REPORT_SHEET_H

#include <jansson.h>

#include "base/strings.h"

typedef struct mst_cell {
    char *text;
    double value; /* NAN: text only */
} mst_cell;

typedef struct mst_sheet_column {
    const char *title, *key; /* constant texts */
    bool number;             /* aligned right */
    unsigned part;           /* 1 + the colour of its share in the row's bar; 0: not in the bar */
} mst_sheet_column;

#define MST_SHEET_COLUMNS 20

typedef struct mst_sheet {
    const char *title, *key, *note; /* constant texts; note: a sentence below the title, or NULL */
    mst_sheet_column columns[MST_SHEET_COLUMNS];
    size_t n_columns;
    mst_cell *cells; /* row by row */
    size_t n_cells, capacity;
    bool failed;
} mst_sheet;

void mst_sheet_fini(mst_sheet *self);
void mst_sheet_column_add(mst_sheet *self, const char *title, const char *key, bool number);

/* A column of shares that the page also shows as a bar; colour: 0 to 10. */
void mst_sheet_part_add(mst_sheet *self, const char *title, const char *key, unsigned colour);

void mst_sheet_text(mst_sheet *self, const char *text);
/* text: from base/figure.h; NAN: an empty cell. For bytes, rates and shares, 0 is a dash. */
void mst_sheet_value(mst_sheet *self, double value, const char *text);
void mst_sheet_count(mst_sheet *self, double value);
void mst_sheet_real(mst_sheet *self, double value);
void mst_sheet_bytes(mst_sheet *self, double value);
void mst_sheet_rate(mst_sheet *self, double value); /* bytes/s */
void mst_sheet_seconds(mst_sheet *self, double value);
void mst_sheet_percent(mst_sheet *self, double share);
void mst_sheet_precise(mst_sheet *self, double share); /* in percent, with two decimals */
size_t mst_sheet_rows(const mst_sheet *self);
/* The page's block {kind: "table", note, columns, rows} without columns that are empty; new reference or
 * NULL. */
json_t *mst_sheet_block(const mst_sheet *self);
/* Title, note and table without columns that are empty; nothing for a sheet without rows. */
void mst_sheet_markdown(const mst_sheet *self, mst_string *out);
/* table,row,column,value: a line for each cell but those of the first column, which names the row. */
void mst_sheet_csv(const mst_sheet *self, mst_string *out);
/* [{key: value}] as the entry of `into` with the sheet's key; false: memory is short. */
bool mst_sheet_json(const mst_sheet *self, json_t *into);

#endif
