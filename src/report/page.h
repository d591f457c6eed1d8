/* The page of a report: one HTML file that needs nothing else. Its document is JSON, which the page's script
 * (web/page.js) renders; muster dash serves the same page for live runs.
 *
 * A document has sections, and a section has blocks: texts, tables, plots, commands. Adding returns nothing:
 * when memory runs out the page sets `failed`, and mst_page_html returns MST_ENOMEM. One thread. */
#ifndef MST_REPORT_PAGE_H
#define MST_REPORT_PAGE_H

#include <jansson.h>

#include "base/strings.h"
#include "report/sheet.h"

typedef struct mst_page {
    json_t *document, *blocks; /* blocks: of the last section, or of a fold in it; borrowed */
    json_t *outer;             /* the blocks around an open fold; borrowed */
    char *title;
    bool failed;
} mst_page;

/* With an empty section "head" that has the title as its heading. */
void mst_page_init(mst_page *self, const char *title);
void mst_page_fini(mst_page *self);

/* Later blocks belong to this section, or to the fold in it until it ends. */
void mst_page_section(mst_page *self, const char *id, const char *title);
void mst_page_fold(mst_page *self, const char *title);
void mst_page_fold_end(mst_page *self);

/* style: "", "sub", "note", "warn", "verdict" or "verdict fine"; label: bold text before it, or NULL. */
void mst_page_text(mst_page *self, const char *style, const char *label, const char *text);
void mst_page_tile(mst_page *self, const char *value, const char *what); /* next to the tile before it */
/* title: shown above it; false: only the note and the table. Nothing for a sheet without rows. */
void mst_page_sheet(mst_page *self, const mst_sheet *sheet, bool title);
void mst_page_command(mst_page *self, const char *command);
/* A file as it is, folded. Takes the value, which may be NULL: nothing. */
void mst_page_raw(mst_page *self, const char *title, const json_t *value);
/* Any other block. Takes the reference; NULL: memory is short. */
void mst_page_block(mst_page *self, json_t *block);

/* The whole file. The scripts and styles are allowed by their hashes, and nothing is fetched. */
mst_status mst_page_html(mst_page *self, mst_string *out);

/* A JSON string of text that need not be UTF-8; new reference or NULL. */
json_t *mst_page_string(const char *text);

#endif
