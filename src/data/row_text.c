/* Single rows without a file; contract in row_text.h.
 *
 * Tables have one layout, that of records with commas and quotes and all columns of the list: lines with
 * another delimiter, and lines without the label, are rewritten. */
#include "data/row_text.h"

#include <ctype.h>

#include "base/alloc.h"
#include "data/csv_table.h"
#include "data/name_list.h"
#include "data/origin.h"
#include "data/text.h"

#define CRITEO_INTEGERS   13u
#define CRITEO_CATEGORIES 26u
#define CRITEO_COLUMNS    (CRITEO_INTEGERS + CRITEO_CATEGORIES)

/* Columns that names are looked up in: open addressing, at most half full. */
typedef struct column_names {
    uint32_t *slots; /* column + 1, or 0 */
    uint32_t mask;
} column_names;

typedef mst_status named_fn(const mst_row_parser *self, const char *where, uint64_t number,
                            const mst_named_value *values, size_t n, mst_string *out);

struct mst_row_parser {
    const mst_format *format; /* NULL: refused */
    named_fn *named;
    mst_data_options options; /* a copy that borrows its texts */
    mst_parse_context context;
    bool started; /* the context needs fini */
    column_names names;
    mst_name_list *features; /* names of numbered features; or NULL */
    char *refusal;           /* format is NULL: the reason */
};

/* ---- names of columns ---- */

static const mst_csv_layout *table_layout(const mst_row_parser *self)
{
    return self->context.prepared;
}

static uint32_t names_slot(const mst_row_parser *self, const char *name, size_t n)
{
    const mst_csv_layout *l = table_layout(self);
    uint32_t s = (uint32_t)XXH64(name, n, 0) & self->names.mask;
    for (; self->names.slots[s] != 0; s = (s + 1) & self->names.mask) {
        const char *other = l->columns[self->names.slots[s] - 1].name;
        if (strlen(other) == n && memcmp(other, name, n) == 0)
            break;
    }
    return s;
}

static mst_status names_init(mst_row_parser *self)
{
    const mst_csv_layout *l = table_layout(self);
    uint32_t size = 16;
    while (size < 2 * l->n_columns)
        size *= 2;
    self->names.mask = size - 1;
    self->names.slots = mst_calloc(size, sizeof *self->names.slots);
    if (self->names.slots == NULL)
        return mst_fail_memory();
    for (uint32_t i = 0; i < l->n_columns; i++)
        self->names.slots[names_slot(self, l->columns[i].name, strlen(l->columns[i].name))] = i + 1;
    return MST_OK;
}

/* ---- messages ---- */

static mst_status row_fail(const char *where, uint64_t number, const char *message, ...)
    __attribute__((format(printf, 3, 4)));
static mst_status row_fail(const char *where, uint64_t number, const char *message, ...)
{
    char text[MST_ERROR_MAX];
    va_list args;
    va_start(args, message);
    vsnprintf(text, sizeof text, message, args);
    va_end(args);
    return mst_fail(MST_EINPUT, "%s:%llu: %s", where, (unsigned long long)number, text);
}

static mst_token_text shown(const char *text, size_t n)
{
    return mst_token_show((const uint8_t *)text, (const uint8_t *)text + n);
}

/* A value of a column. */
typedef struct column_value {
    const char *name, *text; /* text NULL: it is missing */
    size_t n_name, n_text;
} column_value;

/* The single value of a column: a number or a text, also as a list of one. */
static mst_status column_value_of(const char *where, uint64_t number, const mst_named_value *v,
                                  column_value *out)
{
    *out = (column_value){.name = v->name, .n_name = v->n_name};
    if (v->group != NULL && v->kind != MST_NAMED_PRESENT)
        return row_fail(where, number, "\"%s\" is an object; a column has a number, a text or null",
                        shown(v->group, v->n_group).text);
    if (v->group != NULL)
        *out = (column_value){v->group, v->name, v->n_group, v->n_name};
    else if (v->kind != MST_NAMED_MISSING)
        *out = (column_value){v->name, v->text, v->n_name, v->n_text};
    return MST_OK;
}

/* ---- criteo ---- */

/* The column of "I1" to "C26", from 0; CRITEO_COLUMNS: none. */
static unsigned criteo_column(const char *name, size_t n)
{
    unsigned number = 0;
    if (n < 2 || n > 3 || (*name != 'I' && *name != 'C') || name[1] == '0')
        return CRITEO_COLUMNS;
    for (size_t i = 1; i < n; i++) {
        if (!isdigit((unsigned char)name[i]))
            return CRITEO_COLUMNS;
        number = number * 10 + (unsigned)(name[i] - '0');
    }
    if (*name == 'I')
        return number <= CRITEO_INTEGERS ? number - 1 : CRITEO_COLUMNS;
    return number <= CRITEO_CATEGORIES ? CRITEO_INTEGERS + number - 1 : CRITEO_COLUMNS;
}

static mst_status criteo_named(const mst_row_parser *self, const char *where, uint64_t number,
                               const mst_named_value *values, size_t n, mst_string *out)
{
    column_value found[CRITEO_COLUMNS] = {0};
    uint64_t given = 0;
    (void)self;
    for (size_t i = 0; i < n; i++) {
        column_value v;
        TRY(column_value_of(where, number, &values[i], &v));
        unsigned c = criteo_column(v.name, v.n_name);
        if (c == CRITEO_COLUMNS) {
            if (v.n_name == 5 && memcmp(v.name, "label", 5) == 0)
                continue;
            return row_fail(where, number,
                            "there is no column \"%s\"; Criteo rows have I1 to I13 and C1 to C26",
                            shown(v.name, v.n_name).text);
        }
        if (given >> c & 1)
            return row_fail(where, number, "column \"%s\" has two values", shown(v.name, v.n_name).text);
        given |= 1ull << c;
        found[c] = v;
        if (v.text != NULL &&
            (memchr(v.text, '\t', v.n_text) != NULL || memchr(v.text, '\n', v.n_text) != NULL))
            return row_fail(where, number, "the value of %s has a tab or a line feed",
                            shown(v.name, v.n_name).text);
    }
    size_t n_bytes = 0;
    for (unsigned c = 0; c < CRITEO_COLUMNS; c++)
        n_bytes += found[c].n_text;
    if (n_bytes == 0) /* with a label the line is not blank */
        mst_string_addn(out, "0\t", 2);
    for (unsigned c = 0; c < CRITEO_COLUMNS; c++) {
        if (found[c].text != NULL)
            mst_string_addn(out, found[c].text, found[c].n_text);
        if (c + 1 < CRITEO_COLUMNS)
            mst_string_addn(out, "\t", 1);
    }
    return MST_OK;
}

/* ---- tables ---- */

static void table_add_field(mst_string *out, bool first, const char *text, size_t n)
{
    if (!first)
        mst_string_addn(out, ",", 1);
    bool plain = memchr(text, ',', n) == NULL && memchr(text, '"', n) == NULL &&
                 memchr(text, '\n', n) == NULL && memchr(text, '\r', n) == NULL;
    if (plain) {
        mst_string_addn(out, text, n);
        return;
    }
    mst_string_addn(out, "\"", 1);
    for (const char *quote; n > 0 && (quote = memchr(text, '"', n)) != NULL;) {
        size_t part = (size_t)(quote - text) + 1;
        mst_string_addn(out, text, part);
        mst_string_addn(out, "\"", 1);
        text += part;
        n -= part;
    }
    mst_string_addn(out, text, n);
    mst_string_addn(out, "\"", 1);
}

static mst_status table_no_column(const mst_row_parser *self, const char *where, uint64_t number,
                                  const char *name, size_t n)
{
    const mst_csv_layout *l = table_layout(self);
    mst_string names = {0};
    for (uint32_t i = 0; i < l->n_columns && names.size < 200; i++)
        if (l->columns[i].kind <= MST_CSV_CATEGORY)
            mst_string_format(&names, "%s%s", names.size > 0 ? ", " : "", l->columns[i].name);
    mst_status st =
        row_fail(where, number, "there is no column \"%s\"; the model has %s%s", shown(name, n).text,
                 names.text != NULL ? names.text : "none", names.size >= 200 ? " ..." : "");
    mst_string_fini(&names);
    return st;
}

/* Columns in the order of the list; each value is found by its column, so all are collected first. */
static mst_status table_named(const mst_row_parser *self, const char *where, uint64_t number,
                              const mst_named_value *values, size_t n, mst_string *out)
{
    const mst_csv_layout *l = table_layout(self);
    uint32_t few[256] = {0}, *places = l->n_columns <= 256 ? few : NULL,
             *many = NULL; /* value + 1 of columns */
    column_value v;
    mst_status st = MST_OK;
    if (places == NULL)
        places = many = mst_calloc(l->n_columns, sizeof *places);
    if (places == NULL)
        return mst_fail_memory();
    for (size_t i = 0; i < n; i++) {
        TRY_OUT(st, column_value_of(where, number, &values[i], &v));
        uint32_t c = self->names.slots[names_slot(self, v.name, v.n_name)];
        if (c == 0)
            TRY_OUT(st, table_no_column(self, where, number, v.name, v.n_name));
        if (places[c - 1] != 0)
            TRY_OUT(st,
                    row_fail(where, number, "column \"%s\" has two values", shown(v.name, v.n_name).text));
        places[c - 1] = (uint32_t)i + 1;
    }
    for (uint32_t c = 0; c < l->n_columns; c++) {
        v = (column_value){0};
        if (places[c] != 0)
            TRY_OUT(st, column_value_of(where, number, &values[places[c] - 1], &v));
        if (l->columns[c].kind == MST_CSV_WEIGHT) /* has no effect on predictions */
            v = (column_value){.text = "1", .n_text = 1};
        table_add_field(out, c == 0, v.text != NULL ? v.text : "", v.n_text);
    }
    if (out->size == 0) /* an empty line is no record */
        mst_string_add(out, "\"\"");
out:
    mst_free(many);
    return st;
}

/* A line with any delimiter, with or without the label, as a record of the layout. */
static mst_status table_line(const mst_row_parser *self, const char *where, uint64_t number, const char *line,
                             size_t n, mst_string *out)
{
    const mst_csv_layout *l = table_layout(self);
    const uint8_t *p = (const uint8_t *)line, *end = p + n;
    mst_csv_dialect d = mst_csv_dialect_of(&self->options, p, n);
    mst_csv_copy copy = {0};
    uint32_t n_fields = 0, label = UINT32_MAX, c = 0;
    bool header = number == 1, named = false; /* columns of a table without a header are "1", "2", ... */
    mst_status st = MST_OK;
    for (uint32_t i = 0; i < l->n_columns; i++)
        label = l->columns[i].kind == MST_CSV_LABEL ? i : label;
    for (bool more = true; more; n_fields++) {
        mst_csv_field f = mst_csv_next(&d, p, end);
        more = f.stop < end && *f.stop == d.delimiter;
        p = f.stop + (f.stop < end);
        if (f.stop < end && !more && f.stop + 1 < end)
            return row_fail(where, number, "the line has a line feed outside of quotes");
    }
    bool unlabelled = label != UINT32_MAX && n_fields + 1 == l->n_columns;
    if (n_fields != l->n_columns && !unlabelled)
        return row_fail(where, number, "%u columns instead of %u%s", n_fields, l->n_columns,
                        label != UINT32_MAX ? ", the label included" : "");
    p = (const uint8_t *)line;
    for (bool more = true; more; c++) {
        mst_csv_field f = mst_csv_next(&d, p, end);
        if (f.open)
            TRY_OUT(st, row_fail(where, number, "a quote that begins a field is not closed"));
        TRY_OUT(st, mst_csv_plain(&copy, &f));
        if (unlabelled && c == label) {
            table_add_field(out, c == 0, "", 0);
            c++;
        }
        const char *name = l->columns[c].name;
        header = header && strlen(name) == f.n && memcmp(name, f.text, f.n) == 0;
        named = named || !isdigit((unsigned char)name[0]);
        table_add_field(out, c == 0, (const char *)f.text, f.n);
        more = f.stop < end && *f.stop == d.delimiter;
        p = f.stop + (f.stop < end);
    }
    if (header && named)
        TRY_OUT(st, row_fail(where, number, "the line is the header of the table; send the rows only"));
    if (unlabelled && label == n_fields)
        table_add_field(out, false, "", 0);
    if (out->size == 0)
        mst_string_add(out, "\"\"");
out:
    mst_free(copy.bytes);
    return st;
}

/* ---- vw ---- */

static bool vw_word(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strchr(" :|\t\r\n", text[i]) != NULL) /* and NUL */
            return false;
    return true;
}

static mst_status vw_bad_word(const char *where, uint64_t number, const char *text, size_t n)
{
    return row_fail(where, number,
                    "\"%s\" is no name of VW text: names have no blanks, tabs, line feeds, colons and bars",
                    shown(text, n).text);
}

static mst_status vw_named(const mst_row_parser *self, const char *where, uint64_t number,
                           const mst_named_value *values, size_t n, mst_string *out)
{
    const char *open = NULL; /* the namespace that is open */
    size_t n_open = 0;
    (void)self;
    mst_string_addn(out, "|", 1); /* the nameless one, which may stay empty */
    for (size_t i = 0; i < n; i++) {
        const mst_named_value *v = &values[i];
        bool alone = v->group == NULL && v->kind == MST_NAMED_TEXT; /* "namespace": "feature" */
        const char *group = alone ? v->name : v->group, *name = alone ? v->text : v->name;
        size_t n_group = alone              ? v->n_name
                         : v->group != NULL ? v->n_group
                                            : 0,
               n_name = alone ? v->n_text : v->n_name;
        if (v->kind == MST_NAMED_MISSING)
            continue;
        if (v->kind == MST_NAMED_TEXT && !alone)
            return row_fail(where, number, "feature \"%s\" has a text as value; values are numbers",
                            shown(name, n_name).text);
        if (n_name == 0)
            return row_fail(where, number, "a feature has no name");
        if (!vw_word(name, n_name))
            return vw_bad_word(where, number, name, n_name);
        if (n_group > 0 && !vw_word(group, n_group))
            return vw_bad_word(where, number, group, n_group);
        if (n_group != n_open || (n_group > 0 && memcmp(group, open, n_group) != 0)) {
            mst_string_addn(out, " |", 2);
            if (n_group > 0)
                mst_string_addn(out, group, n_group);
            open = group;
            n_open = n_group;
        }
        mst_string_addn(out, " ", 1);
        mst_string_addn(out, name, n_name);
        if (v->kind == MST_NAMED_NUMBER) {
            mst_string_addn(out, ":", 1);
            mst_string_addn(out, v->text, v->n_text);
        }
    }
    return MST_OK;
}

/* ---- libsvm and libffm ---- */

static bool is_digits(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isdigit((unsigned char)text[i]))
            return false;
    return n > 0;
}

/* Adds the index of a feature as in the file. Names come before numbers. */
static mst_status numbered_index(const mst_row_parser *self, const char *where, uint64_t number,
                                 const mst_named_value *v, mst_string *out)
{
    uint32_t feature;
    if (self->features != NULL && mst_name_list_find(self->features, v->name, v->n_name, &feature))
        mst_string_format(out, "%llu", (unsigned long long)feature + self->context.index_base);
    else if (is_digits(v->name, v->n_name))
        mst_string_addn(out, v->name, v->n_name);
    else
        return row_fail(where, number, "\"%s\" is %s", shown(v->name, v->n_name).text,
                        self->features != NULL ? "neither an index nor a name of a feature"
                                               : "not an index; the model has numbered features");
    return MST_OK;
}

static mst_status numbered_named(const mst_row_parser *self, const char *where, uint64_t number,
                                 const mst_named_value *values, size_t n, bool fields, mst_string *out)
{
    mst_string_addn(out, "?", 1); /* the label */
    for (size_t i = 0; i < n; i++) {
        const mst_named_value *v = &values[i];
        if (v->kind == MST_NAMED_MISSING)
            continue;
        if ((v->group != NULL) != fields || v->kind == MST_NAMED_TEXT ||
            (!fields && v->kind == MST_NAMED_PRESENT))
            return row_fail(
                where, number,
                fields ? "\"%s\": a row is {\"field\": {\"index\": value, ...}, ...}"
                       : "\"%s\": a row is {\"index\": value, ...}",
                shown(v->group != NULL ? v->group : v->name, v->group != NULL ? v->n_group : v->n_name).text);
        if (fields && !is_digits(v->group, v->n_group))
            return row_fail(where, number, "\"%s\" is not the number of a field",
                            shown(v->group, v->n_group).text);
        mst_string_addn(out, " ", 1);
        if (fields) {
            mst_string_addn(out, v->group, v->n_group);
            mst_string_addn(out, ":", 1);
        }
        TRY(numbered_index(self, where, number, v, out));
        mst_string_addn(out, ":", 1);
        mst_string_addn(out, v->kind == MST_NAMED_PRESENT ? "1" : v->text,
                        v->kind == MST_NAMED_PRESENT ? 1 : v->n_text);
    }
    return MST_OK;
}

static mst_status libsvm_named(const mst_row_parser *self, const char *where, uint64_t number,
                               const mst_named_value *values, size_t n, mst_string *out)
{
    return numbered_named(self, where, number, values, n, false, out);
}

static mst_status libffm_named(const mst_row_parser *self, const char *where, uint64_t number,
                               const mst_named_value *values, size_t n, mst_string *out)
{
    return numbered_named(self, where, number, values, n, true, out);
}

/* ---- life ---- */

static const struct {
    const char *name;
    named_fn *named;
} row_formats[] = {
    {"criteo", criteo_named}, {"csv", table_named},     {"vw", vw_named},
    {"libsvm", libsvm_named}, {"libffm", libffm_named}, {NULL, NULL},
};

static bool row_parser_is_table(const mst_row_parser *self)
{
    return self->format == &mst_format_csv;
}

/* The format of lines: the option, or that of the rows in training. */
static const char *row_parser_choose(const mst_data_options *options, const json_t *origin, bool fields)
{
    const json_t *source = json_object_get(origin, MST_ORIGIN_SOURCE);
    const char *keys = json_string_value(source != NULL ? source : json_object_get(origin, "keys"));
    if (options->format != NULL && strcmp(options->format, "auto") != 0)
        return options->format;
    if (keys != NULL && strcmp(keys, "numbers") == 0)
        return fields ? "libffm" : "libsvm";
    return keys;
}

static mst_status row_parser_refuse(mst_row_parser *self, const char *name)
{
    self->format = NULL;
    self->refusal =
        name != NULL
            ? mst_sprintf(
                  "the model was trained on %s data, whose rows are not lines of text; send an array of "
                  "numbers, or indices and values",
                  name)
            : mst_sprintf("the checkpoint does not record the format of its rows; start muster serve with "
                          "--format, or send an array of numbers, or indices and values");
    return self->refusal != NULL ? MST_OK : mst_fail_memory();
}

/* Lines of numbered features whose first index is not recorded. */
static mst_status row_parser_settle_base(mst_row_parser *self, const json_t *origin)
{
    const json_t *base = json_object_get(origin, "index-base");
    if (self->options.index_base != 0)
        return MST_OK;
    if (base != NULL) {
        self->options.index_base = json_integer_value(base) == 0 ? 1 : 2;
        return MST_OK;
    }
    self->format = NULL;
    self->refusal =
        mst_sprintf("the checkpoint does not record whether indices begin at 0 or 1; start muster "
                    "serve with --index-base, or send \"indices\", which begin at 0");
    return self->refusal != NULL ? MST_OK : mst_fail_memory();
}

/* A record with as many fields as the list has columns, so that the layout takes them by their places. */
static mst_status table_first(const mst_row_parser *self, mst_string *out)
{
    mst_csv_list list = {0};
    mst_status st = self->options.csv_columns != NULL
                        ? mst_csv_list_read(&list, self->options.csv_columns)
                        : mst_fail(MST_EINPUT, "the checkpoint does not record the columns of its rows; give "
                                               "them with --csv-columns");
    if (st == MST_OK && list.star != MST_CSV_IGNORE)
        st = mst_fail(MST_EUSAGE, "--csv-columns: the list must end with *:ignore to apply a model");
    for (uint32_t i = 0; st == MST_OK && i < list.n; i++)
        mst_string_add(out, i > 0 ? ",0" : "0");
    mst_string_add(out, "\n");
    mst_csv_list_fini(&list);
    return st == MST_OK && out->failed ? mst_fail_memory() : st;
}

static mst_status row_parser_prepare(mst_row_parser *self)
{
    mst_string first = {0};
    mst_status st = MST_OK;
    self->context = (mst_parse_context){.options = &self->options,
                                        .features = (uint64_t)self->options.features,
                                        .any_key = true,
                                        .requests = true};
    if (row_parser_is_table(self)) {
        st = table_first(self, &first);
        self->options.csv_delimiter = (char *)",";
        self->options.csv_quote = MST_CSV_QUOTE_DOUBLE;
        self->options.csv_header = MST_CSV_HEADER_NO;
    }
    if (st == MST_OK) {
        mst_block block = {.path = "the model",
                           .data = (const uint8_t *)(first.text != NULL ? first.text : ""),
                           .size = first.size,
                           .line = 1};
        self->started = true;
        st = mst_parse_context_init(&self->context, self->format, &block);
    }
    mst_string_fini(&first);
    return st;
}

mst_status mst_row_parser_new(const mst_data_options *options, const json_t *origin, bool fields,
                              mst_row_parser **out)
{
    const char *name = row_parser_choose(options, origin, fields);
    mst_status st = MST_OK;
    mst_row_parser *self = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    self->options = *options;
    self->options.unlabelled = true;
    self->options.any_key = true;
    self->format = mst_data_kind_format(mst_data_kind_find(name));
    for (size_t i = 0; row_formats[i].name != NULL && name != NULL; i++)
        if (strcmp(row_formats[i].name, name) == 0)
            self->named = row_formats[i].named;
    if (self->named == NULL)
        TRY_OUT(st, row_parser_refuse(self, name));
    else if (self->named == libsvm_named)
        TRY_OUT(st, row_parser_settle_base(self, origin));
    if (self->format != NULL)
        TRY_OUT(st, row_parser_prepare(self));
    if (self->format != NULL && self->format->numbered && options->feature_names != NULL)
        TRY_OUT(st, mst_name_list_load(options->feature_names, &self->features));
    if (row_parser_is_table(self)) {
        TRY_OUT(st, names_init(self));
        self->options.csv_delimiter = options->csv_delimiter; /* of lines */
        self->options.csv_quote = options->csv_quote;
    }
    *out = self;
    self = NULL;
out:
    mst_row_parser_destroy(self);
    return st;
}

void mst_row_parser_destroy(mst_row_parser *self)
{
    if (self == NULL)
        return;
    if (self->started)
        mst_parse_context_fini(&self->context, self->format);
    mst_free(self->names.slots);
    mst_name_list_destroy(self->features);
    mst_free(self->refusal);
    mst_free(self);
}

const char *mst_row_parser_format(const mst_row_parser *self)
{
    return self->format != NULL ? self->format->kind.name : "";
}

/* ---- rows ---- */

static mst_status row_parser_parse(const mst_row_parser *self, const char *where, uint64_t number,
                                   const char *text, size_t n, mst_chunk_builder *out)
{
    mst_block block = {.path = where, .data = (const uint8_t *)text, .size = n, .line = number};
    size_t before = out->n_rows;
    TRY(self->format->parse(&self->context, &block, out));
    return out->n_rows == before + 1
               ? MST_OK
               : row_fail(where, number, "the line is %s",
                          out->n_rows == before ? "blank or a comment" : "several rows");
}

mst_status mst_row_parser_line(const mst_row_parser *self, const char *where, uint64_t number,
                               const char *line, size_t n, mst_string *scratch, mst_chunk_builder *out)
{
    if (self->format == NULL)
        return row_fail(where, number, "%s", self->refusal);
    if (n > 0 && line[n - 1] == '\n')
        n--;
    if (!row_parser_is_table(self)) {
        if (memchr(line, '\n', n) != NULL)
            return row_fail(where, number, "the line has a line feed; send one row per line");
        return row_parser_parse(self, where, number, line, n, out);
    }
    scratch->size = 0;
    TRY(table_line(self, where, number, line, n, scratch));
    if (scratch->failed)
        return mst_fail_memory();
    return row_parser_parse(self, where, number, scratch->text, scratch->size, out);
}

mst_status mst_row_parser_named(const mst_row_parser *self, const char *where, uint64_t number,
                                const mst_named_value *values, size_t n, mst_string *scratch,
                                mst_chunk_builder *out)
{
    if (self->format == NULL)
        return row_fail(where, number, "%s", self->refusal);
    scratch->size = 0;
    TRY(self->named(self, where, number, values, n, scratch));
    if (scratch->failed)
        return mst_fail_memory();
    return row_parser_parse(self, where, number, scratch->text, scratch->size, out);
}
