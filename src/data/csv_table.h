/* Tables of text: CSV, TSV and the like (csv_table.c), and the layout of their columns (csv_layout.c).
 *
 * A record is a line of fields between delimiters. A field that begins with a quote ends at the next quote
 * that is not doubled; delimiters and line feeds before it are part of the field. A quote anywhere else is a
 * character like any other. A quoted field has at most MST_CSV_QUOTED bytes. Where no quote ends it by then,
 * the quote is open: the record is malformed and ends with the line that has the quote. */
#ifndef MST_DATA_CSV_TABLE_H
#define MST_DATA_CSV_TABLE_H

#include "base/strings.h"
#include "data/feature_hash.h"
#include "data/format.h"
#include "data/numbers.h"
#include "data/text.h"

#define MST_CSV_COLUMNS 65536u /* of a file: at most */
#define MST_CSV_QUOTED  131072 /* bytes of a quoted field: at most, as in Python's csv module */
#define MST_CSV_BUCKETS 32u    /* of a column: at most */
#define MST_CSV_CLASSES 1000u  /* texts of a label: at most */

/* The message about an open quote. */
#define MST_CSV_OPEN_QUOTE                                                                                   \
    "the quote that begins a field here is not closed before the end of the file or within 131072 bytes; "   \
    "--csv-quote none reads quotes as text"

extern const mst_format mst_format_csv;

/* Whether a text that is of no format looks like a table of which some records have another number of
 * columns, or a quote that is not closed: reading it as a table gives the message. */
bool mst_csv_is_damaged(const uint8_t *head, size_t n);

/* How bytes are divided into fields. */
typedef struct mst_csv_dialect {
    uint8_t delimiter;
    bool quotes;
} mst_csv_dialect;

/* The meaning of a column. Numbers come first: they are the dense features. */
typedef enum mst_csv_kind {
    MST_CSV_NUMBER,   /* as it is */
    MST_CSV_STANDARD, /* (v - mean) / deviation */
    MST_CSV_LOG,      /* log(1 + v), -log(1 - v) for negative v */
    MST_CSV_BUCKET,   /* a category: the bucket that holds it */
    MST_CSV_CATEGORY,
    MST_CSV_LABEL,
    MST_CSV_WEIGHT,
    MST_CSV_IGNORE,
    MST_CSV_GUESSED, /* not stated */
} mst_csv_kind;

static inline bool mst_csv_is_number(mst_csv_kind kind)
{
    return kind <= MST_CSV_LOG;
}

typedef struct mst_csv_column {
    char *name;
    mst_csv_kind kind;
    bool settled;       /* the parameters of its kind are known */
    double mean, scale; /* MST_CSV_STANDARD; scale is 1 / deviation */
    double deviation;
    uint32_t n_bounds; /* MST_CSV_BUCKET: v is in bucket i if i bounds are not above it */
    float bounds[MST_CSV_BUCKETS];
    mst_text_list classes; /* MST_CSV_LABEL: the texts of classes 0, 1, ...; none: labels are numbers */
    uint32_t field;        /* the place in the row: numbers first */
    uint64_t space;        /* hash of the name, which seeds that of the values */
    uint32_t keys[MST_CSV_BUCKETS + 2]; /* MST_CSV_BUCKET: of buckets 0..n_bounds and of a missing value */
} mst_csv_column;

void mst_csv_column_fini(mst_csv_column *column);

/* The list of columns: its entries, and the kind of columns without one. */
typedef struct mst_csv_list {
    mst_csv_column *items;
    uint32_t n;
    size_t capacity;
    mst_csv_kind star;
} mst_csv_list;

/* Adds the entries of a text. MST_EUSAGE when it is no list. */
mst_status mst_csv_list_read(mst_csv_list *self, const char *text);
/* Takes the entry over, on failure too. */
mst_status mst_csv_list_add(mst_csv_list *self, mst_csv_column item);
void mst_csv_list_fini(mst_csv_list *self);
/* The columns and "*:ignore" as a list, the caller's to free; NULL when memory is short. */
char *mst_csv_list_text(const mst_csv_column *columns, uint32_t n);

typedef struct mst_csv_layout {
    mst_csv_dialect dialect;
    bool header;             /* the first record names the columns */
    char *path;              /* of the file with this header, for messages */
    mst_text_list names;     /* of the columns of the file, from its header or "1", "2", ... */
    mst_csv_column *columns; /* in the order of the list of columns */
    uint32_t n_columns;
    const mst_csv_column **file; /* per column of the file; NULL: not used */
    uint32_t n_file;
    uint32_t n_numbers, n_fields;
    mst_text_list doubts; /* sentences about columns of numbers that are categories for a few texts */
    uint64_t range;       /* categories are hashed into [n_numbers, n_numbers + range) */
    char *text;           /* the list of columns with all that was found: --csv-columns for other files */
} mst_csv_layout;

/* The dialect of a text that begins with these bytes: the options, or the delimiter that divides the first
 * record into most fields. */
mst_csv_dialect mst_csv_dialect_of(const mst_data_options *options, const uint8_t *data, size_t n);

/* The layout of a dataset from the options and its first block. */
mst_status mst_csv_layout_new(mst_parse_context *context, const mst_block *first, mst_csv_layout **out);
void mst_csv_layout_destroy(mst_csv_layout *self); /* NULL-safe */

/* Whether the first record of a file is the header. MST_EINPUT for another header. */
mst_status mst_csv_is_header(const mst_csv_layout *self, const mst_block *block, bool *header);

/* The kind of a column with its parameters, as in --csv-columns, without blanks except in names of classes.
 */
void mst_csv_kind_text(const mst_csv_column *column, mst_string *out);

static inline void mst_csv_trim(const uint8_t **p, size_t *n)
{
    for (; *n > 0 && mst_is_blank(**p); (*p)++, (*n)--)
        ;
    for (; *n > 0 && mst_is_blank((*p)[*n - 1]); (*n)--)
        ;
}

/* Whether a text stands for a missing value of a number. */
bool mst_csv_is_missing(const uint8_t *p, size_t n);

/* A finite number that is the whole text, but for blanks around it. */
bool mst_csv_real(const uint8_t *p, size_t n, double *out);

/* Hashes the column's name. */
static inline void mst_csv_seed(mst_csv_column *column, uint64_t hash_seed)
{
    column->space = mst_hash_space(column->name, strlen(column->name), hash_seed);
}

/* The key of one of its categories. */
static inline uint32_t mst_csv_key(const mst_csv_layout *self, const mst_csv_column *column, const void *text,
                                   size_t n)
{
    return self->n_numbers + mst_hash_name(column->space, text, n, self->range);
}

/* ---- fields ---- */

/* A field without the quotes around it. */
typedef struct mst_csv_field {
    const uint8_t *text;
    size_t n;
    const uint8_t *stop; /* the delimiter or line feed after it, or the end */
    bool raw;            /* text still has its quotes: mst_csv_unquote */
    bool open;           /* its quote is not closed */
} mst_csv_field;

/* Memory for a field without its quotes. */
typedef struct mst_csv_copy {
    uint8_t *bytes;
    size_t capacity;
} mst_csv_copy;

/* The first delimiter or line feed from p on, or end. */
static inline const uint8_t *mst_csv_stop(const uint8_t *p, const uint8_t *end, uint8_t delimiter)
{
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    uint64_t d = delimiter * ones, l = '\n' * ones;
    for (; end - p >= 8; p += 8) {
        uint64_t w = mst_load8(p), x = w ^ d, y = w ^ l;
        uint64_t hit = (((x - ones) & ~x) | ((y - ones) & ~y)) & tops; /* exact up to the first hit */
        if (hit != 0)
            return p + __builtin_ctzll(hit) / 8;
    }
    while (p < end && *p != delimiter && *p != '\n')
        p++;
    return p;
}

/* The quote that ends a quoted field whose content starts at p; NULL: there is none, or it is too far. */
static inline const uint8_t *mst_csv_close(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *last = end - p > MST_CSV_QUOTED ? p + MST_CSV_QUOTED + 1 : end;
    while (p < last && (p = memchr(p, '"', (size_t)(last - p))) != NULL) {
        if (p + 1 == end || p[1] != '"')
            return p;
        p += 2;
    }
    return NULL;
}

/* The field at p. */
static inline mst_csv_field mst_csv_next(const mst_csv_dialect *d, const uint8_t *p, const uint8_t *end)
{
    mst_csv_field f = {.text = p};
    bool quoted = d->quotes && p < end && *p == '"';
    const uint8_t *close = NULL;
    if (quoted) {
        close = mst_csv_close(p + 1, end);
        f.open = close == NULL;
        f.stop = close != NULL ? mst_csv_stop(close + 1, end, d->delimiter) : mst_line_end(p, end);
    } else {
        f.stop = mst_csv_stop(p, end, d->delimiter);
    }
    const uint8_t *last = f.stop;
    if (last > p + quoted && last[-1] == '\r' && (last == end || *last == '\n') && !f.open)
        last--;
    f.n = (size_t)(last - p);
    if (quoted && close != NULL && close + 1 == last && memchr(p + 1, '"', (size_t)(close - p - 1)) == NULL) {
        f.text = p + 1;
        f.n -= 2;
    } else {
        f.raw = quoted;
    }
    return f;
}

/* Copies a raw field without its quotes; the copy is valid until the next one. */
mst_status mst_csv_unquote(mst_csv_copy *copy, mst_csv_field *field);

static inline mst_status mst_csv_plain(mst_csv_copy *copy, mst_csv_field *field)
{
    return field->raw ? mst_csv_unquote(copy, field) : MST_OK;
}

#endif
