/* A study: a question, the steps that answer it (sweeps and commands), and the tables, plots and rules that
 * turn their results into one page and one sentence. docs/STUDIES.md describes the file.
 *
 *   mst_study_spec_parse   FILE.yaml -> JSON with lines, checked, sizes substituted (study_file.c)
 *   mst_study_check        its names: of steps, columns and values of rows (study_check.c)
 *   mst_study_new          the study in its folder, with the state of its steps (study_state.c)
 *   mst_study_read_rows    results of a step as rows (study_rows.c)
 *   mst_expr_*             expressions over the rows (study_expr.h)
 *   mst_study_report_write report.html, report.md, plots (study_report.h)
 *
 * launch/study_steps.h starts the processes; this folder starts and prints nothing. One thread. */
#ifndef MST_STUDY_STUDY_H
#define MST_STUDY_STUDY_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"
#include "base/strings.h"
#include "base/text_list.h"

/* ---- studies that are part of the binary ---- */

typedef struct mst_known_study {
    const char *name, *text; /* name: of studies/02-batch-size.yaml without number and suffix */
    unsigned number;
} mst_known_study;
extern const mst_known_study mst_known_studies[]; /* by number; ends with a name of NULL */

/* ---- the file ---- */

/* The entry of a mapping with its lines: {"": its own, KEY: of the key, or of the key and the items of its
 * list}. */
#define MST_STUDY_LINE "@"

/* Values that replace $NAME in the texts of a file. */
typedef struct mst_study_size {
    bool full;                /* values of full: replace those of size: */
    const mst_text_list *set; /* NAME=VALUE, which replace both; or NULL */
    const json_t *built_in;   /* NAME -> text; or NULL */
} mst_study_size;

/* Parses, checks and substitutes. MST_EUSAGE with "FILE:LINE: what is wrong". New reference; set only on
 * MST_OK. */
mst_status mst_study_spec_parse(const char *path, const char *text, size_t size, const mst_study_size *how,
                                json_t **out);

/* The text of an entry; NULL: there is none. */
const char *mst_study_text(const json_t *mapping, const char *key);
/* The line of a mapping, and those of a key and of an item of its list; the nearest known one around it. */
int mst_study_line(const json_t *mapping);
int mst_study_line_of(const json_t *mapping, const char *key);
int mst_study_line_item(const json_t *mapping, const char *key, size_t item);

/* Adds text with each $NAME of `values` replaced; others stay. */
void mst_study_substitute(const json_t *values, const char *text, mst_string *out);

/* A large whole number with commas; any other value unchanged. out holds MST_FIGURE_SIZE bytes. */
const char *mst_study_grouped(const char *value, char *out);

/* ---- names ---- */

/* What is known of the rows of the steps. */
typedef struct mst_study_known {
    /* step -> {column: list of all values, or null: not known}; a step that is missing may have any column */
    const json_t *columns;
    const json_t *rows; /* step -> [row]; NULL: before the first step */
    bool any_value;     /* conditions may name values that no row has */
} mst_study_known;

/* Columns of the rows of sweeps, from the file alone. New reference; NULL: memory is short. */
json_t *mst_study_sweep_columns(const json_t *spec);

/* Whether the step has the column; whether each condition names a column and a value that a row has.
 * MST_EUSAGE. where may be NULL. */
mst_status mst_study_check_column(const mst_study_known *known, const char *step, const char *column);
mst_status mst_study_check_where(const mst_study_known *known, const char *step, const char *where);

/* Checks the expressions of a file and all names of steps, columns and values in it. Values pass if --set has
 * replaced some of size:, because fewer rows may be wanted. MST_EUSAGE with "FILE:LINE: what is wrong". */
mst_status mst_study_check(const char *path, const json_t *spec, const mst_study_known *known);

/* ---- a study in its folder ---- */

typedef struct mst_study {
    char *name, *folder, *file; /* file: for messages and the command of the report */
    bool full;
    json_t *spec;
    json_t *state; /* study.json: {"steps": {KEY: {"command", "state", "seconds", "sentence"}}} */
    /* Set by mst_study_read_rows. */
    json_t *rows;    /* step -> [{column: text or number}] */
    json_t *columns; /* step -> {column: null}; steps without results are missing */
} mst_study;

/* Takes a reference of spec and reads FOLDER/study.json if there is one; overwrite: removes what the folder
 * has of an earlier study first. MST_EEXIST if the folder contains something else. *out is the caller's to
 * destroy; set only on MST_OK. */
mst_status mst_study_new(const char *name, const char *file, const char *folder, json_t *spec, bool full,
                         bool overwrite, mst_study **out);
void mst_study_destroy(mst_study *self); /* NULL-safe */
mst_status mst_study_save(const mst_study *self);

/* One command of a step: one of a plain step, one for each combination of each:. */
typedef struct mst_study_cell {
    char *key;      /* "product" or "product-together-512"; names its files */
    char *command;  /* for a shell in the folder */
    json_t *labels; /* name of each: -> text */
    const json_t *step;
} mst_study_cell;
/* *cells: the caller's to free with mst_study_cells_free. */
mst_status mst_study_cells(const mst_study *self, mst_study_cell **cells, size_t *n);
void mst_study_cells_free(mst_study_cell *cells, size_t n);

/* Whether the cell has ended well with this command. */
bool mst_study_is_done(const mst_study *self, const mst_study_cell *cell);
/* Whether the cell has ended with another command, so that its results are not those of this file. */
bool mst_study_is_changed(const mst_study *self, const mst_study_cell *cell);
/* Forgets the results of the steps after that of a cell, which is about to run: commands may depend on it.
 * Sweeps may, too, if the cell is a command that has changed, such as one that makes data. */
mst_status mst_study_forget_later(mst_study *self, const mst_study_cell *cell);
/* Records the end of a cell. sentence: why it failed, or NULL: it succeeded. */
mst_status mst_study_mark(mst_study *self, const mst_study_cell *cell, double seconds, const char *sentence);
/* The first failure as "STEP: why"; NULL: none. The caller frees. */
char *mst_study_failure(const mst_study *self);

/* Writes the files that the steps need: the YAML of sweeps, and hosts.txt of the lab, with hosts1.txt,
 * hosts2.txt, ... of its first ones. */
mst_status mst_study_write_inputs(const mst_study *self);

/* Reads the results of every step that has some, and checks the names of the file against them: MST_EUSAGE
 * with "FILE:LINE: what is wrong". */
mst_status mst_study_read_rows(mst_study *self);
/* Rows of JSON or CSV text; path: of an array within JSON ("workers"), or NULL. Adds the names of all columns
 * to columns, also of those without a value. columns may be NULL. New reference; MST_EINPUT. */
mst_status mst_study_rows_parse(const char *name, const char *text, size_t size, const char *path,
                                json_t *columns, json_t **out);
/* Adds the options that all runs of a sweep share, and its axes with a single value, which its CSV files do
 * not have. sweep: its file as JSON. */
void mst_study_rows_share(const char *sweep, json_t *rows);

/* A value of a cell: a number if the text is one. New reference. */
json_t *mst_study_cell_value(const char *text);
/* A column's name in expressions: global_batch for global-batch. Changes the text in place. */
void mst_study_column_name(char *name);

/* One condition of "mode=sync, host~training" (~: contains). */
typedef struct mst_study_condition {
    char column[64], value[128];
    bool contained;
} mst_study_condition;
/* Reads the next condition and moves *where behind it. False: none is left, or *where is not a condition. */
bool mst_study_where_next(const char **where, mst_study_condition *out);
/* Whether a cell fulfils the condition. */
bool mst_study_condition_holds(const mst_study_condition *condition, const json_t *cell);
/* Whether the row fulfils all conditions; NULL: any row does. */
bool mst_study_row_matches(const json_t *row, const char *where);

/* ---- the lab ---- */

#define MST_STUDY_HOSTS_MAX 32
/* Hosts of lab:, 0 without one. */
unsigned mst_study_hosts(const json_t *spec);
/* The name of the lab of a folder: the same for the same folder. */
void mst_study_lab_name(const char *folder, char out[17]);

#endif
