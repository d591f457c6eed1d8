/* Tables of a report: the same cells as HTML, Markdown, CSV and JSON.
 *
 * A cell is text for people and, where it is a figure, its plain value for programs. Adding never fails
 * visibly: when memory runs out the sheet remembers it (failed). One thread. */
#ifndef MST_REPORT_SHEET_H
#define MST_REPORT_SHEET_H

#include <jansson.h>

#include "base/strings.h"

typedef struct mst_cell {
    char *text;
    double value; /* NAN: text only */
    bool raw;     /* text is HTML of our own making; for HTML only */
} mst_cell;

typedef struct mst_sheet_column {
    const char *title, *key; /* constant texts */
    bool number;             /* aligned right */
    unsigned part;           /* of the bar before it: 1 and on, in its colours; 0: none */
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

/* ... that stands for part 1, 2, ... of the bar in a column before it. */
void mst_sheet_part_add(mst_sheet *self, const char *title, const char *key, unsigned part);

void mst_sheet_text(mst_sheet *self, const char *text);
/* text as a figure function made it; NAN: an empty cell. Of bytes, rates and shares, 0 is a dash. */
void mst_sheet_value(mst_sheet *self, double value, const char *text);
void mst_sheet_count(mst_sheet *self, double value);
void mst_sheet_real(mst_sheet *self, double value);
void mst_sheet_bytes(mst_sheet *self, double value);
void mst_sheet_rate(mst_sheet *self, double value); /* bytes/s */
void mst_sheet_seconds(mst_sheet *self, double value);
void mst_sheet_percent(mst_sheet *self, double share);
void mst_sheet_precise(mst_sheet *self, double share); /* in percent, with two decimals */
/* A bar for HTML; nothing elsewhere. Takes the buffer's text. */
void mst_sheet_raw(mst_sheet *self, mst_string *html);

size_t mst_sheet_rows(const mst_sheet *self);
/* Whether it is too wide for an upright page of paper. */
bool mst_sheet_is_wide(const mst_sheet *self);

/* HTML and Markdown leave out columns in which nothing stands. The section is the title as a heading of that
 * level (0: none), the note and the table, which stay together in print; nothing when there are no rows. */
void mst_sheet_html(const mst_sheet *self, mst_string *out);
void mst_sheet_section(const mst_sheet *self, int level, mst_string *out);
void mst_sheet_markdown(const mst_sheet *self, mst_string *out);
/* table,row,column,value: a line for each cell but those of the first column, which names the row. */
void mst_sheet_csv(const mst_sheet *self, mst_string *out);
json_t *mst_sheet_json(const mst_sheet *self); /* [{key: value}]; new reference or NULL */

/* ---- the tables of a report, in their order ---- */

typedef struct mst_sheet_maker {
    const char *name; /* in JSON */
    mst_status (*make)(const void *report, mst_sheet *out);
} mst_sheet_maker;

/* What `make` fails with. Markdown: title, note and table of those that have rows. JSON: an entry of `into`
 * for each, MST_ENOMEM. */
mst_status mst_sheets_markdown(const mst_sheet_maker *makers, size_t n, const void *report, mst_string *out);
mst_status mst_sheets_csv(const mst_sheet_maker *makers, size_t n, const void *report, mst_string *out);
mst_status mst_sheets_json(const mst_sheet_maker *makers, size_t n, const void *report, json_t *into);

#endif
