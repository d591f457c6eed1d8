/* Tables of text: CSV, TSV and others with a delimiter (contract of fields and layouts: csv_table.h).
 *
 * Every column is a field, in the order of the layout: numbers are the dense features 0, 1, ..., categories
 * and buckets are hashed into the features after them. A category is hashed like a feature of Vowpal Wabbit
 * text (vw.c) whose namespace is the name of the column. A missing number is 0 after its transformation, a
 * missing category the hash of an empty text; so every row has one entry per field.
 *
 * A record may span several lines, so blocks end after a record, not after any line: find_end follows the
 * quotes. It starts at the start of a record, so it needs no more than the block.
 *
 * Invariants
 * 1. Every key is below the context's features, and every row has layout->n_fields entries.
 * 2. Labels, weights and values are finite as floats; weights are not negative.
 * 3. find_end, record and parse agree about the ends of records: all take fields as mst_csv_next does. */
#include "data/csv_table.h"

#include "base/alloc.h"
#include "data/origin.h"
#include "data/vocabulary.h"

bool mst_csv_is_missing(const uint8_t *p, size_t n)
{
    static const char *const texts[] = {"NA", "N/A", "NaN", "nan", "null", "NULL", "None", "?"};
    if (n == 0)
        return true;
    for (size_t i = 0; n <= 4 && i < sizeof texts / sizeof *texts; i++)
        if (strlen(texts[i]) == n && memcmp(texts[i], p, n) == 0)
            return true;
    return false;
}

bool mst_csv_real(const uint8_t *p, size_t n, double *out)
{
    mst_csv_trim(&p, &n);
    return n > 0 && mst_number_real(p, p + n, out) == p + n && isfinite((float)*out);
}

mst_status mst_csv_unquote(mst_csv_copy *copy, mst_csv_field *field)
{
    const uint8_t *p = field->text + 1, *end = field->text + field->n;
    size_t n = 0;
    bool quoted = true;
    if (!mst_grow(&copy->bytes, &copy->capacity, field->n + 1, 1))
        return mst_fail_memory();
    for (; p < end; p++) {
        if (quoted && *p == '"') {
            if (p + 1 < end && p[1] == '"') {
                p++;
            } else {
                quoted = false;
                continue;
            }
        }
        copy->bytes[n++] = *p;
    }
    field->text = copy->bytes;
    field->n = n;
    field->raw = false;
    return MST_OK;
}

mst_csv_dialect mst_csv_dialect_of(const mst_data_options *options, const uint8_t *data, size_t n)
{
    static const uint8_t candidates[] = {',', '\t', ';', '|'};
    const char *given = options->csv_delimiter;
    mst_csv_dialect d = {.delimiter = ',', .quotes = options->csv_quote == MST_CSV_QUOTE_DOUBLE};
    size_t counts[sizeof candidates] = {0}, best = 0;
    bool quoted = false;
    if (given != NULL && strcmp(given, "tab") == 0)
        d.delimiter = '\t';
    else if (given != NULL && strcmp(given, "auto") != 0)
        d.delimiter = (uint8_t)given[0];
    else {
        for (size_t i = 0; i < n && (quoted || data[i] != '\n'); i++) {
            quoted ^= d.quotes && data[i] == '"';
            for (size_t k = 0; k < sizeof candidates; k++)
                counts[k] += !quoted && data[i] == candidates[k];
        }
        for (size_t k = 0; k < sizeof candidates; k++)
            best = counts[k] > counts[best] ? k : best;
        d.delimiter = candidates[best];
    }
    return d;
}

/* ---- records ---- */

static mst_csv_dialect csv_dialect(const mst_parse_context *context, const mst_block *block)
{
    const mst_csv_layout *l = context->prepared;
    return l != NULL ? l->dialect : mst_csv_dialect_of(context->options, block->data, block->size);
}

/* The last line feed of [p, end) that ends a record which starts at p; NULL: there is none. */
static const uint8_t *csv_last_end(mst_csv_dialect d, const uint8_t *p, const uint8_t *end)
{
    const uint8_t *last = NULL, *start = p, *quote;
    while (d.quotes && p < end && (quote = memchr(p, '"', (size_t)(end - p))) != NULL) {
        const uint8_t *newline = memrchr(p, '\n', (size_t)(quote - p));
        last = newline != NULL ? newline : last;
        p = quote + 1;
        if (quote != start && quote[-1] != d.delimiter && quote[-1] != '\n')
            continue;
        const uint8_t *close = mst_csv_close(p, end);
        if (close == NULL && end - p > MST_CSV_QUOTED) /* the record ends with the line */
            close = memchr(p, '\n', (size_t)(end - p));
        if (close == NULL || close + 1 == end) /* the next block may begin with the other half of a double */
            return last;
        last = *close == '\n' ? close : last;
        p = close + 1;
    }
    const uint8_t *newline = p < end ? memrchr(p, '\n', (size_t)(end - p)) : NULL;
    return newline != NULL ? newline : last;
}

static bool csv_is_blank_line(const uint8_t *p, const uint8_t *end)
{
    return p < end && (*p == '\n' || (*p == '\r' && (p + 1 == end || p[1] == '\n')));
}

/* Whether the block starts at the start of a file. */
static bool csv_at_start(const mst_block *block)
{
    return block->line <= 1 && block->offset <= 3; /* a byte order mark has 3 bytes */
}

/* Blank lines at the start of a file stay with the record after them, which may be the header. */
static mst_status csv_find_end(const mst_parse_context *context, const mst_block *block, size_t *whole)
{
    const uint8_t *p = block->data, *last = csv_last_end(csv_dialect(context, block), p, p + block->size);
    *whole = last != NULL ? (size_t)(last - p) + 1 : 0;
    if (!csv_at_start(block))
        return MST_OK;
    while (last != NULL && p <= last && csv_is_blank_line(p, last + 1))
        p++;
    *whole = last != NULL && p > last ? 0 : *whole;
    return MST_OK;
}

/* The end of the record at p, after its line feed. */
static const uint8_t *csv_record_end(const mst_csv_dialect *d, const uint8_t *p, const uint8_t *end)
{
    for (bool more = true; more; p += p < end) {
        p = mst_csv_next(d, p, end).stop;
        more = p < end && *p == d->delimiter;
    }
    return p;
}

/* The length of the header and of blank lines before it, at the start of a file; 0: there is none. */
static mst_status csv_header_length(const mst_csv_layout *l, const mst_block *block, size_t *n)
{
    const uint8_t *end = block->data + block->size;
    mst_block rest = *block;
    bool header = false;
    *n = 0;
    if (l == NULL || !csv_at_start(block))
        return MST_OK;
    for (; csv_is_blank_line(rest.data, end); rest.data++)
        ;
    rest.size = (size_t)(end - rest.data);
    if (rest.size > 0)
        TRY(mst_csv_is_header(l, &rest, &header));
    if (header)
        *n = (size_t)(csv_record_end(&l->dialect, rest.data, end) - block->data);
    return MST_OK;
}

static mst_status csv_record(const mst_parse_context *context, const mst_block *block, size_t *n, bool *row)
{
    mst_csv_dialect d = csv_dialect(context, block);
    const uint8_t *p = block->data, *end = p + block->size;
    TRY(csv_header_length(context->prepared, block, n));
    *row = *n == 0 && !csv_is_blank_line(p, end);
    if (*n == 0)
        *n = (size_t)(csv_record_end(&d, p, end) - p);
    return MST_OK;
}

/* ---- rows ---- */

typedef struct csv_parser {
    const mst_parse_context *context;
    const mst_csv_layout *layout;
    const mst_block *block;
    const uint8_t *record; /* the start of the present one */
    mst_csv_copy copy;
} csv_parser;

static mst_status csv_bad_value(const csv_parser *p, const mst_csv_column *c, const mst_csv_field *f,
                                const uint8_t *at)
{
    const char *shown = mst_token_show(f->text, f->text + f->n).text;
    mst_string kinds = {0};
    for (size_t i = 0; i < c->classes.n && kinds.size < 80; i++)
        mst_string_format(&kinds, "%s%s", i > 0 ? ", " : "", c->classes.items[i]);
    mst_status st;
    if (c->kind == MST_CSV_LABEL && c->classes.n > 0)
        st = mst_block_fail(&mst_format_csv, p->block, at, "label \"%s\" (%s) is none of the classes %s%s",
                            shown, c->name, kinds.text, kinds.size >= 80 ? " ..." : "");
    else if (c->kind == MST_CSV_LABEL)
        st = mst_block_fail(&mst_format_csv, p->block, at, "label \"%s\" (%s) is not a finite number", shown,
                            c->name);
    else if (c->kind == MST_CSV_WEIGHT)
        st = mst_block_fail(&mst_format_csv, p->block, at,
                            "weight \"%s\" (%s) is not a finite number above or equal to 0", shown, c->name);
    else if (p->context->requests)
        st = mst_block_fail(&mst_format_csv, p->block, at, "\"%s\" in column %s is not a finite number",
                            shown, c->name);
    else
        st = mst_block_fail(
            &mst_format_csv, p->block, at,
            "\"%s\" in column %s is not a finite number; --csv-columns with %s:category takes any text",
            shown, c->name, c->name);
    mst_string_fini(&kinds);
    return st;
}

/* Numbers of at most 7 digits, with a sign and a point, are read at once where 8 bytes may be read. */
static inline bool csv_quick(const uint8_t *p, size_t n, const uint8_t *end, double *out)
{
    bool negative = n > 0 && *p == '-';
    const uint8_t *stop = p + n;
    p += negative;
    if (end - p < 16)
        return false;
    unsigned digits = mst_digits_count8(mst_load8(p)), decimals = 0;
    if (digits == 0 || digits > 7)
        return false;
    uint32_t mantissa = mst_digits_value8(mst_load8(p), digits);
    p += digits;
    if (p < stop && *p == '.') {
        p++;
        decimals = mst_digits_count8(mst_load8(p));
        if (decimals == 0 || digits + decimals > 7)
            return false;
        mantissa =
            mantissa * (uint32_t)mst_powers_of_ten[decimals] + mst_digits_value8(mst_load8(p), decimals);
        p += decimals;
    }
    if (p != stop)
        return false;
    *out = (double)mantissa / mst_powers_of_ten[decimals];
    *out = negative ? -*out : *out;
    return true;
}

/* A number, or a missing one. false: neither. */
static inline bool csv_number(const csv_parser *p, const mst_csv_field *f, double *out, bool *missing)
{
    const uint8_t *end = p->block->data + p->block->size;
    *missing = false;
    if (f->text >= p->block->data && f->text < end && csv_quick(f->text, f->n, end, out))
        return true;
    if (mst_csv_real(f->text, f->n, out))
        return true;
    const uint8_t *text = f->text;
    size_t n = f->n;
    mst_csv_trim(&text, &n);
    *missing = mst_csv_is_missing(text, n);
    return *missing;
}

static uint32_t csv_bucket(const mst_csv_column *c, float value)
{
    uint32_t low = 0, high = c->n_bounds;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (c->bounds[middle] <= value)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The label or the weight of a row. */
static mst_status csv_head(const csv_parser *p, const mst_csv_column *c, const mst_csv_field *f,
                           const uint8_t *at, float *label, float *weight)
{
    const uint8_t *text = f->text;
    size_t n = f->n;
    double value = 0.0;
    bool missing = false;
    if (c->classes.n > 0) {
        size_t i = 0;
        mst_csv_trim(&text, &n);
        while (i < c->classes.n &&
               (strlen(c->classes.items[i]) != n || memcmp(c->classes.items[i], text, n) != 0))
            i++;
        if (i == c->classes.n)
            return csv_bad_value(p, c, f, at);
        *label = (float)i;
        return MST_OK;
    }
    if (!csv_number(p, f, &value, &missing) || (c->kind == MST_CSV_WEIGHT && (missing || value < 0.0)))
        return csv_bad_value(p, c, f, at);
    if (missing)
        return mst_block_fail(&mst_format_csv, p->block, at, MST_NO_LABEL);
    *(c->kind == MST_CSV_LABEL ? label : weight) = (float)value;
    return MST_OK;
}

/* A number or a bucket: key and value of its field. */
static inline mst_status csv_numeric(const csv_parser *p, const mst_csv_column *c, const mst_csv_field *f,
                                     const uint8_t *at, uint32_t *key, float *out)
{
    const mst_vocabulary *v = p->context->vocabulary;
    double value = 0.0;
    bool missing;
    if (!csv_number(p, f, &value, &missing))
        return csv_bad_value(p, c, f, at);
    if (c->kind == MST_CSV_BUCKET) {
        uint32_t bucket = missing ? c->n_bounds + 1 : csv_bucket(c, (float)value);
        *key = v == NULL ? c->keys[bucket]
               : missing ? mst_vocabulary_key(v, c->field, "", 0)
                         : mst_vocabulary_number_key(v, c->field, bucket);
        *out = 1.0f;
        return MST_OK;
    }
    if (c->kind == MST_CSV_STANDARD)
        value = (value - c->mean) * c->scale;
    else if (c->kind == MST_CSV_LOG)
        value = value < 0.0 ? -log1p(-value) : log1p(value);
    *key = c->field;
    *out = missing ? mst_missing_number(p->context->options) : (float)value;
    return missing || isfinite(*out) ? MST_OK : csv_bad_value(p, c, f, at);
}

static mst_status csv_bad_record(const csv_parser *p, uint32_t fields)
{
    return mst_block_fail(&mst_format_csv, p->block, p->record, "%u columns instead of %u%s", fields,
                          p->layout->n_file, fields == 1 ? "; --csv-delimiter states the delimiter" : "");
}

/* The record at p->record; *next is the start of the next one. */
static inline mst_status csv_row(csv_parser *p, mst_chunk_builder *out, const uint8_t **next)
{
    const mst_csv_layout *l = p->layout;
    const mst_vocabulary *v = p->context->vocabulary;
    const uint8_t *at = p->record, *end = p->block->data + p->block->size;
    uint32_t *keys = out->keys + out->n_entries, c = 0;
    float *values = out->values + out->n_entries, label = 0.0f, weight = 1.0f;
    for (bool more = true; more; c++) {
        mst_csv_field f = mst_csv_next(&l->dialect, at, end);
        const mst_csv_column *column = c < l->n_file ? l->file[c] : NULL;
        if (f.open)
            return mst_block_fail(&mst_format_csv, p->block, at, MST_CSV_OPEN_QUOTE);
        if (column != NULL) {
            TRY(mst_csv_plain(&p->copy, &f));
            uint32_t *key = &keys[column->field];
            float *value = &values[column->field];
            if (column->kind == MST_CSV_CATEGORY) {
                *key = v != NULL ? mst_vocabulary_key(v, column->field, f.text, f.n)
                                 : mst_csv_key(l, column, f.text, f.n);
                *value = 1.0f;
            } else if (column->kind <= MST_CSV_BUCKET) {
                TRY(csv_numeric(p, column, &f, at, key, value));
            } else {
                TRY(csv_head(p, column, &f, at, &label, &weight));
            }
        }
        more = f.stop < end && *f.stop == l->dialect.delimiter;
        at = f.stop + (f.stop < end);
    }
    if (c != l->n_file)
        return csv_bad_record(p, c);
    *next = at;
    out->n_entries += l->n_fields;
    return mst_chunk_builder_end_row(out, label, weight);
}

static mst_status csv_parse(const mst_parse_context *context, const mst_block *block, mst_chunk_builder *out)
{
    const mst_csv_layout *l = context->prepared;
    csv_parser p = {.context = context, .layout = l, .block = block, .record = block->data};
    const uint8_t *end = block->data + block->size;
    mst_status st = MST_OK;
    size_t header;
    mst_chunk_builder_set_order(out, MST_ORDER_POSITION, l->n_numbers);
    TRY(csv_header_length(l, block, &header));
    p.record += header;
    while (p.record < end && st == MST_OK) {
        if (csv_is_blank_line(p.record, end)) {
            p.record++;
            continue;
        }
        st = mst_chunk_builder_room(out, l->n_fields);
        if (st == MST_OK)
            st = csv_row(&p, out, &p.record);
    }
    mst_free(p.copy.bytes);
    return st;
}

/* ---- the format ---- */

static mst_status csv_prepare(mst_parse_context *context, const mst_block *first)
{
    mst_csv_layout *l = NULL;
    TRY(mst_csv_layout_new(context, first, &l));
    context->prepared = l;
    context->doubts = &l->doubts;
    return MST_OK;
}

static void csv_unprepare(const void *prepared)
{
    mst_csv_layout_destroy((mst_csv_layout *)prepared);
}

static json_t *csv_origin(const mst_parse_context *context)
{
    const mst_csv_layout *l = context->prepared;
    json_t *columns = json_array();
    for (uint32_t i = 0; i < l->n_columns; i++) {
        mst_string text = {0};
        if (l->columns[i].kind > MST_CSV_CATEGORY)
            continue;
        mst_string_format(&text, "%s ", l->columns[i].name);
        mst_csv_kind_text(&l->columns[i], &text);
        if (text.failed || json_array_append_new(columns, json_string(text.text)) != 0) {
            json_decref(columns);
            columns = NULL;
        }
        mst_string_fini(&text);
    }
    return json_pack("{s:s, s:I, s:I, s:o, s:s}", "keys", "csv", "features", (json_int_t)context->features,
                     "hash-seed", (json_int_t)context->options->hash_seed, "columns", columns, MST_ORIGIN_CSV,
                     l->text != NULL ? l->text : "");
}

static bool csv_missing_key(const json_t *origin, uint32_t field, uint32_t *key)
{
    const char *text = json_string_value(json_object_get(origin, MST_ORIGIN_CSV));
    json_int_t features = json_integer_value(json_object_get(origin, "features"));
    mst_csv_list list = {0};
    mst_csv_layout l = {0};
    bool found = false;
    uint32_t number = 0;
    if (text == NULL || mst_csv_list_read(&list, text) != MST_OK)
        features = 0;
    for (uint32_t i = 0; i < list.n; i++)
        l.n_numbers += mst_csv_is_number(list.items[i].kind);
    l.range = (uint64_t)features - l.n_numbers;
    for (uint32_t i = 0; i < list.n && features > (json_int_t)l.n_numbers; i++) {
        mst_csv_column *c = &list.items[i];
        if (c->kind != MST_CSV_BUCKET && c->kind != MST_CSV_CATEGORY)
            continue;
        if (l.n_numbers + number++ == field) {
            mst_csv_seed(c, (uint64_t)json_integer_value(json_object_get(origin, "hash-seed")));
            *key = mst_csv_key(&l, c, "", 0);
            found = true;
        }
    }
    mst_csv_list_fini(&list);
    return found;
}

/* The first records of a text. */
typedef struct csv_shape {
    unsigned columns;    /* of the first record */
    unsigned rows, same; /* records, and those with as many columns */
    unsigned single;     /* records without a delimiter */
    bool open;           /* the quote of a field is not closed */
} csv_shape;

static csv_shape csv_shape_of(const uint8_t *head, size_t n)
{
    const mst_data_options options = {0};
    const uint8_t *p = head, *end = head + n;
    csv_shape out = {0};
    if (!mst_looks_like_text(head, n))
        return out;
    while (csv_is_blank_line(p, end))
        p++;
    if (p < end && (*p == '{' || *p == '[' || *p == '<')) /* JSON, XML */
        return out;
    mst_csv_dialect d = mst_csv_dialect_of(&options, p, (size_t)(end - p));
    while (p < end && out.rows < MST_SNIFF_LINES) {
        unsigned fields = 0;
        bool more = !csv_is_blank_line(p, end), cut = false;
        for (; more; fields++) {
            mst_csv_field f = mst_csv_next(&d, p, end);
            more = f.stop < end && *f.stop == d.delimiter;
            cut = (f.open || f.stop == end) && n == MST_SNIFF_BYTES; /* the record goes on beyond the head */
            out.open |= f.open;
            p = f.stop;
            p += more;
        }
        p += p < end;
        if (cut && out.rows > 0)
            break;
        if (fields == 0)
            continue;
        out.columns = out.rows == 0 ? fields : out.columns;
        out.same += fields == out.columns;
        out.single += fields == 1;
        out.rows++;
        if (cut)
            break;
    }
    return out;
}

/* 1: at least two columns, the same number in the first records. */
static int csv_sniff(const uint8_t *head, size_t n, uint64_t file_size)
{
    csv_shape s = csv_shape_of(head, n);
    (void)file_size;
    return s.columns >= 2 && s.same == s.rows ? 1 : 0;
}

bool mst_csv_is_damaged(const uint8_t *head, size_t n)
{
    csv_shape s = csv_shape_of(head, n);
    bool some = s.same >= 2 || (s.rows >= 2 && s.single == 0);
    return s.columns >= 2 && ((some && 2 * s.same >= s.rows) || s.open);
}

const mst_format mst_format_csv = {
    .kind =
        {
            .name = "csv",
            .help = "CSV, TSV and other tables of text: columns of numbers, and categories hashed into "
                    "--features "
                    "(2^20 when 0)",
            .capabilities = MST_DATA_FORMAT | MST_DATA_PARSED,
            .reads = "csv- hash-seed vocabulary",
            .sniff = csv_sniff,
            .open = mst_format_open,
        },
    .text = true,
    .categories = true,
    .hashes = true,
    .find_end = csv_find_end,
    .record = csv_record,
    .prepare = csv_prepare,
    .unprepare = csv_unprepare,
    .origin = csv_origin,
    .missing_key = csv_missing_key,
    .parse = csv_parse,
};
