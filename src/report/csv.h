/* A CSV file that may still be growing, read into memory and followed.
 *
 * Columns are found by name. Only complete lines are read; text after the last newline waits for the next
 * update. Numbers are doubles, NAN where a field is empty or not a number; the columns that the caller
 * names as text are kept as text. A line with a wrong number of fields is skipped and counted, as is one
 * longer than a megabyte. Of a file at most a gigabyte is read. A file that was replaced or truncated
 * (another inode, or shorter) is read again from the start. One thread. */
#ifndef MST_REPORT_CSV_H
#define MST_REPORT_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

#define MST_CSV_NONE SIZE_MAX /* no such column */

typedef struct mst_csv {
    char *path;
    const char *const *text_columns; /* NULL-terminated names; outlives the table */
    char **names;
    bool *is_text;
    size_t n_columns; /* 0: no header yet */
    double *values;   /* n_rows x n_columns; of a text column: where its text starts in texts */
    size_t n_rows, values_capacity;
    char *texts;
    size_t texts_size, texts_capacity;
    uint64_t offset; /* bytes read so far: up to the end of a line, or into one that is skipped */
    bool skipping;   /* offset is in such a line */
    dev_t device;
    ino_t inode;
    size_t n_bad; /* lines skipped */
    bool present; /* the file was there at the last update */
    bool full;    /* the table's limit was reached; the rest of the file is not read */
    bool behind;  /* the last update has not reached the end of the file */
} mst_csv;

/* text_columns may be NULL. Nothing is read yet. */
mst_status mst_csv_init(mst_csv *self, const char *path, const char *const *text_columns);
void mst_csv_fini(mst_csv *self);

/* Reads new lines, of a large file a part of them. No file: MST_OK, and the table is empty. *changed, if not
 * NULL, is set when rows were added or dropped. MST_EIO, MST_ENOMEM; the table is usable in any case. */
mst_status mst_csv_update(mst_csv *self, bool *changed);

/* The same from bytes in memory; *used: the bytes of the complete lines. */
mst_status mst_csv_take(mst_csv *self, const char *data, size_t size, size_t *used);

size_t mst_csv_column(const mst_csv *self, const char *name);
/* NAN for column MST_CSV_NONE, for text and for values that are not finite. */
double mst_csv_value(const mst_csv *self, size_t row, size_t column);
/* The same, but infinite values are returned. */
double mst_csv_any_value(const mst_csv *self, size_t row, size_t column);
/* The last finite value of a column; NAN: it has none. */
double mst_csv_last(const mst_csv *self, const char *column);
/* "" for column MST_CSV_NONE and for numbers. Valid until the next update. */
const char *mst_csv_text(const mst_csv *self, size_t row, size_t column);

#endif
