/* The layout of a table: its dialect, its header, and the meaning of its columns (contract: csv_table.h).
 *
 * Whatever the list of columns (csv_list.c) leaves open is found in the first block: the kind of a column,
 * the mean and deviation or the bounds of its numbers, the classes of its labels. The result is written as a
 * list that leaves nothing open and ends with "*:ignore": with this list, other files are read alike. Its
 * order is that of the fields, so the columns of another file may be in another order.
 *
 * Numbers of the layout are rounded to their text, so both ways give the same rows. */
#include <ctype.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/utf8.h"
#include "data/csv_table.h"
#include "data/text.h"
#include "data/vocabulary.h"

#define DEFAULT_FEATURES (1u << 20)
#define STRAY_SHARE      20 /* texts in a column of this many times as many numbers may be mistakes */

/* Facts about the values of a column in the first block. */
typedef struct csv_sample {
    float *values; /* the numbers */
    size_t n, capacity;
    size_t n_texts;     /* values that are neither a number nor missing */
    uint64_t text_line; /* of the first of them, and its text */
    char *text;
    bool repeats;          /* the text of the first record occurs again */
    mst_text_list classes; /* sorted: the texts, where they are needed */
    bool many;             /* they are more than MST_CSV_CLASSES */
    char *first;           /* the text of the first record */
    bool open;             /* whose quote is not closed */
} csv_sample;

/* A layout in the making. */
typedef struct csv_draft {
    mst_csv_layout *layout;
    mst_parse_context *context;
    const mst_block *block;
    mst_csv_list list;
    csv_sample *samples;
    uint32_t n_samples;
    uint32_t *by_name; /* columns of the file, sorted by name */
    mst_csv_copy copy;
    const uint8_t *counted; /* lines before are counted in `line` */
    uint64_t line;
} csv_draft;

/* ---- the first block ---- */

static int csv_compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static mst_status csv_sample_class(csv_sample *s, const mst_csv_field *f)
{
    char *text = s->many ? NULL : mst_sprintf("%.*s", (int)f->n, (const char *)f->text);
    if (s->many)
        return MST_OK;
    if (text == NULL)
        return mst_fail_memory();
    if (s->classes.n > 0 &&
        bsearch(&text, s->classes.items, s->classes.n, sizeof *s->classes.items, csv_compare_texts) != NULL) {
        mst_free(text);
        return MST_OK;
    }
    s->many = s->classes.n == MST_CSV_CLASSES;
    TRY(mst_text_list_take(&s->classes, text));
    mst_text_list_sort(&s->classes, 0);
    return MST_OK;
}

/* Keeps the place of the first text. */
static mst_status csv_sample_text(csv_draft *d, csv_sample *s, const mst_csv_field *f, const uint8_t *at)
{
    s->n_texts++;
    if (s->text != NULL)
        return MST_OK;
    if (at < d->counted) { /* the first record turned out to be a row */
        d->counted = d->block->data;
        d->line = d->block->line;
    }
    d->line += mst_count_newlines(d->counted, (size_t)(at - d->counted));
    d->counted = at;
    s->text_line = d->line;
    s->text = mst_strdup(mst_token_show(f->text, f->text + f->n).text);
    return s->text != NULL ? MST_OK : mst_fail_memory();
}

/* at: the field in the block. */
static mst_status csv_sample_value(csv_draft *d, csv_sample *s, const mst_csv_field *f, const uint8_t *at,
                                   bool classes)
{
    double value;
    const uint8_t *p = f->text;
    size_t n = f->n;
    mst_csv_trim(&p, &n);
    if (mst_csv_is_missing(p, n))
        return MST_OK;
    if (s->first != NULL && strlen(s->first) == n && memcmp(s->first, p, n) == 0)
        s->repeats = true;
    if (classes)
        return csv_sample_class(s, &(mst_csv_field){.text = p, .n = n});
    if (!mst_csv_real(p, n, &value))
        return csv_sample_text(d, s, &(mst_csv_field){.text = p, .n = n}, at);
    if (!mst_grow(&s->values, &s->capacity, s->n + 1, sizeof *s->values))
        return mst_fail_memory();
    s->values[s->n++] = (float)value;
    return MST_OK;
}

/* The field at *p as the next of a record; *more: another one follows. */
static mst_status csv_step(csv_draft *d, const uint8_t **p, const uint8_t *end, mst_csv_field *f, bool *more)
{
    *f = mst_csv_next(&d->layout->dialect, *p, end);
    TRY(mst_csv_plain(&d->copy, f));
    *more = f->stop < end && *f->stop == d->layout->dialect.delimiter;
    *p = f->stop + (f->stop < end);
    return MST_OK;
}

/* The texts of the first record, trimmed. Returns the start of the next in *p. */
static mst_status csv_first_record(csv_draft *d, const uint8_t **p, const uint8_t *end)
{
    size_t capacity = 0;
    bool more = true;
    mst_csv_field f;
    while (more) {
        TRY(csv_step(d, p, end, &f, &more));
        if (d->n_samples == MST_CSV_COLUMNS)
            return mst_fail(MST_EINPUT, "%s has more than %u columns", d->block->path, MST_CSV_COLUMNS);
        if (!mst_grow(&d->samples, &capacity, d->n_samples + 1, sizeof *d->samples))
            return mst_fail_memory();
        mst_csv_trim(&f.text, &f.n);
        d->samples[d->n_samples] =
            (csv_sample){.first = mst_sprintf("%.*s", (int)f.n, (const char *)f.text), .open = f.open};
        if (d->samples[d->n_samples++].first == NULL)
            return mst_fail_memory();
    }
    return MST_OK;
}

/* Takes the values of the record at *p; with a label, only its classes. A record with too many fields or too
 * few, or an open quote, is refused by the parser. */
static mst_status csv_sample_record(csv_draft *d, const uint8_t **p, const uint8_t *end, uint32_t label)
{
    bool more = true;
    mst_csv_field f;
    for (uint32_t c = 0; more; c++) {
        const uint8_t *at = *p;
        TRY(csv_step(d, p, end, &f, &more));
        if (!f.open && c < d->n_samples && (label == UINT32_MAX || label == c))
            TRY(csv_sample_value(d, &d->samples[c], &f, at, c == label));
    }
    return MST_OK;
}

static const uint8_t *csv_skip_blank_lines(const uint8_t *p, const uint8_t *end)
{
    while (p < end && (*p == '\n' || (*p == '\r' && p + 1 < end && p[1] == '\n')))
        p++;
    return p;
}

/* Whether the record at p has all columns and no open quote; *next: its end. */
static bool csv_is_whole(const csv_draft *d, const uint8_t *p, const uint8_t *end, const uint8_t **next)
{
    uint32_t n = 0;
    bool open = false;
    for (bool more = true; more; n++) {
        mst_csv_field f = mst_csv_next(&d->layout->dialect, p, end);
        open |= f.open;
        more = f.stop < end && *f.stop == d->layout->dialect.delimiter;
        p = f.stop + (f.stop < end);
    }
    *next = p;
    return !open && n == d->n_samples;
}

static mst_status csv_sample_block(csv_draft *d, const uint8_t *p, uint32_t label)
{
    const uint8_t *end = d->block->data + d->block->size, *next;
    for (p = csv_skip_blank_lines(p, end); p < end; p = csv_skip_blank_lines(p, end))
        if (d->context->options->skip_bad_rows && !csv_is_whole(d, p, end, &next))
            p = next;
        else
            TRY(csv_sample_record(d, &p, end, label));
    return MST_OK;
}

/* Whether the list of columns, or an option for one, has this name. */
static bool csv_is_listed(const csv_draft *d, const char *name)
{
    const mst_data_options *o = d->context->options;
    double number;
    if (mst_csv_real((const uint8_t *)name, strlen(name), &number) || *name == '\0')
        return false;
    if ((o->csv_label != NULL && strcmp(o->csv_label, name) == 0) ||
        (o->csv_weight != NULL && strcmp(o->csv_weight, name) == 0))
        return true;
    for (uint32_t i = 0; i < d->list.n; i++)
        if (strcmp(d->list.items[i].name, name) == 0)
            return true;
    return false;
}

/* Whether the first record names the columns: every text of it is no number, and a column of numbers follows
 * or none of the texts occurs again. */
static bool csv_guess_header(const csv_draft *d)
{
    bool numbers = false, repeats = false;
    double number;
    for (uint32_t c = 0; c < d->n_samples; c++)
        if (csv_is_listed(d, d->samples[c].first))
            return true;
    for (uint32_t c = 0; c < d->n_samples; c++) {
        const csv_sample *s = &d->samples[c];
        size_t n = strlen(s->first);
        if ((mst_csv_is_missing((const uint8_t *)s->first, n) && (n > 0 || c > 0)) ||
            mst_csv_real((const uint8_t *)s->first, n, &number))
            return false;
        numbers |= s->n > 0 && s->n_texts == 0;
        repeats |= s->repeats;
    }
    return numbers || !repeats;
}

static int csv_compare_names(const void *a, const void *b, void *arg)
{
    const mst_text_list *names = arg;
    return strcmp(names->items[*(const uint32_t *)a], names->items[*(const uint32_t *)b]);
}

/* Names of the columns of the file, and their order by name. */
static mst_status csv_name_columns(csv_draft *d)
{
    mst_csv_layout *l = d->layout;
    l->n_file = d->n_samples;
    l->file = mst_calloc(l->n_file + 1, sizeof *l->file);
    d->by_name = mst_calloc(l->n_file + 1, sizeof *d->by_name);
    if (l->file == NULL || d->by_name == NULL)
        return mst_fail_memory();
    for (uint32_t c = 0; c < l->n_file; c++) {
        const char *name = d->samples[c].first;
        bool named = l->header && *name != '\0';
        if (named && d->samples[c].open)
            return mst_fail(MST_EINPUT, "%s: the name of column %u: " MST_CSV_OPEN_QUOTE, d->block->path,
                            c + 1);
        if (named && !mst_utf8_plain(name))
            return mst_fail(
                MST_EINPUT,
                "%s: the name of column %u has a line feed or another control character, or is not "
                "UTF-8 (iconv -f LATIN1 -t UTF-8 converts a file)",
                d->block->path, c + 1);
        TRY(named ? mst_text_list_add(&l->names, name) : mst_text_list_format(&l->names, "%u", c + 1));
        d->by_name[c] = c;
    }
    qsort_r(d->by_name, l->n_file, sizeof *d->by_name, csv_compare_names, &l->names);
    for (uint32_t i = 1; i < l->n_file; i++)
        if (strcmp(l->names.items[d->by_name[i - 1]], l->names.items[d->by_name[i]]) == 0)
            return mst_fail(MST_EINPUT, "%s: two columns are named \"%s\"", d->block->path,
                            l->names.items[d->by_name[i]]);
    return MST_OK;
}

/* The column of a name or number; UINT32_MAX: there is none. */
static uint32_t csv_find(const csv_draft *d, const char *name)
{
    const mst_csv_layout *l = d->layout;
    uint32_t low = 0, high = l->n_file;
    char *end;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        int order = strcmp(l->names.items[d->by_name[middle]], name);
        if (order == 0)
            return d->by_name[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    unsigned long number = isdigit((unsigned char)*name) ? strtoul(name, &end, 10) : 0;
    return number >= 1 && number <= l->n_file && *end == '\0' ? (uint32_t)number - 1 : UINT32_MAX;
}

static mst_status csv_no_column(const csv_draft *d, const char *name, const char *option)
{
    const mst_csv_layout *l = d->layout;
    mst_string names = {0};
    for (size_t i = 0; i < l->names.n && names.size < 200; i++)
        mst_string_format(&names, "%s%s", i > 0 ? ", " : "", l->names.items[i]);
    mst_status st =
        mst_fail(MST_EINPUT, "%s has no column \"%s\" (%s); its columns are %s%s", d->block->path, name,
                 option, names.text != NULL ? names.text : "", names.size >= 200 ? " ..." : "");
    mst_string_fini(&names);
    return st;
}

/* ---- resolving ---- */

/* The list leaves nothing open and its order is that of the fields. */
static bool csv_complete(const csv_draft *d)
{
    return d->list.star == MST_CSV_IGNORE;
}

/* Makes an entry for a column that an option names. */
static mst_status csv_apply_option(csv_draft *d, const char *name, mst_csv_kind kind, const char *option)
{
    uint32_t column = csv_find(d, name), other = UINT32_MAX;
    if (column == UINT32_MAX && d->context->options->unlabelled)
        return MST_OK;
    if (column == UINT32_MAX)
        return csv_no_column(d, name, option);
    for (uint32_t i = 0; i < d->list.n; i++) {
        if (csv_find(d, d->list.items[i].name) == column)
            other = i;
        if (d->list.items[i].kind == kind && csv_find(d, d->list.items[i].name) != column)
            d->list.items[i].kind = MST_CSV_IGNORE;
    }
    if (other == UINT32_MAX)
        return mst_csv_list_add(
            &d->list, (mst_csv_column){.name = mst_strdup(d->layout->names.items[column]), .kind = kind});
    if (d->list.items[other].kind != kind) {
        d->list.items[other].kind = kind;
        d->list.items[other].settled = false;
    }
    return MST_OK;
}

/* The label where nothing names it: a usual name, or the first column of a file without a header. */
static mst_status csv_guess_label(csv_draft *d)
{
    static const char *const usual[] = {"label", "target", "y", "class", "click", "clicked"};
    const mst_csv_layout *l = d->layout;
    for (uint32_t i = 0; i < d->list.n; i++)
        if (d->list.items[i].kind == MST_CSV_LABEL)
            return MST_OK;
    if (d->context->options->unlabelled)
        return MST_OK;
    if (!l->header)
        return csv_apply_option(d, "1", MST_CSV_LABEL, "--csv-label");
    for (size_t k = 0; k < sizeof usual / sizeof *usual; k++)
        for (size_t i = 0; i < l->names.n; i++)
            if (strcasecmp(l->names.items[i], usual[k]) == 0)
                return csv_apply_option(d, l->names.items[i], MST_CSV_LABEL, "--csv-label");
    return csv_no_column(d, "label", "--csv-label NAME names the label");
}

/* The columns of the layout and their places in the file; place: UINT32_MAX: it is not there. */
static mst_status csv_place_columns(csv_draft *d, uint32_t *places)
{
    mst_csv_layout *l = d->layout;
    bool complete = csv_complete(d), named = false;
    uint32_t label = UINT32_MAX;
    for (uint32_t i = 0; i < d->list.n; i++) {
        named |= csv_is_listed(d, d->list.items[i].name) && csv_find(d, d->list.items[i].name) != UINT32_MAX;
        label = d->list.items[i].kind == MST_CSV_LABEL ? i : label;
    }
    /* A file without the names of the list has its columns in the order of the list, to predict without that
     * of the label. */
    bool lacks = d->context->options->unlabelled && label != UINT32_MAX && l->n_file + 1 == d->list.n;
    bool by_place = complete && !named && (lacks || l->n_file == d->list.n);
    l->n_columns = complete ? d->list.n : l->n_file;
    l->columns = mst_calloc(l->n_columns + 1, sizeof *l->columns);
    if (l->columns == NULL)
        return mst_fail_memory();
    for (uint32_t c = 0; c < l->n_file && !complete; c++) {
        l->columns[c] =
            (mst_csv_column){.kind = d->list.star,
                             .settled = d->list.star == MST_CSV_NUMBER || d->list.star == MST_CSV_LOG ||
                                        d->list.star == MST_CSV_CATEGORY};
        places[c] = c;
    }
    for (uint32_t i = 0; i < d->list.n; i++) {
        uint32_t at = by_place ? (lacks && i == label ? UINT32_MAX : i - (lacks && i > label))
                               : csv_find(d, d->list.items[i].name);
        if (at == UINT32_MAX && !complete)
            return csv_no_column(d, d->list.items[i].name, "--csv-columns");
        mst_csv_column *c = &l->columns[complete ? i : at];
        mst_csv_column_fini(c);
        *c = d->list.items[i];
        d->list.items[i].name = NULL;
        d->list.items[i].classes = (mst_text_list){0};
        places[complete ? i : at] = at;
    }
    for (uint32_t c = 0; c < l->n_columns; c++)
        if (l->columns[c].name == NULL || !complete) {
            mst_free(l->columns[c].name);
            l->columns[c].name = mst_strdup(l->names.items[c]);
            if (l->columns[c].name == NULL)
                return mst_fail_memory();
        }
    return MST_OK;
}

static double csv_rounded(double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.9g", value);
    return strtod(text, NULL);
}

static int csv_compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Mean and deviation. */
static void csv_settle_standard(mst_csv_column *c, const csv_sample *s)
{
    double sum = 0.0, squares = 0.0;
    for (size_t i = 0; i < s->n; i++)
        sum += (double)s->values[i];
    double mean = s->n > 0 ? sum / (double)s->n : 0.0;
    for (size_t i = 0; i < s->n; i++)
        squares += ((double)s->values[i] - mean) * ((double)s->values[i] - mean);
    double deviation = s->n > 0 ? sqrt(squares / (double)s->n) : 0.0;
    c->mean = csv_rounded(mean);
    c->deviation = csv_rounded(deviation > 1e-12 * fabs(mean) && deviation > 1e-30 ? deviation : 1.0);
}

/* Bounds at quantiles: values that occur often have a bucket of their own. */
static void csv_settle_buckets(mst_csv_column *c, csv_sample *s)
{
    if (s->n > 0)
        qsort(s->values, s->n, sizeof *s->values, csv_compare_floats);
    size_t distinct = s->n > 0;
    for (size_t i = 1; i < s->n; i++)
        distinct += s->values[i] != s->values[i - 1];
    bool each = distinct <= MST_CSV_BUCKETS;
    for (size_t i = 1, n = each ? s->n : MST_CSV_BUCKETS; i < n; i++) {
        float v = s->values[each ? i : i * s->n / MST_CSV_BUCKETS];
        v = (float)csv_rounded((double)v);
        if (v > (c->n_bounds > 0 ? c->bounds[c->n_bounds - 1] : s->values[0]))
            c->bounds[c->n_bounds++] = v;
    }
}

/* A column of numbers is a category because of a few texts, which may be mistakes. */
static mst_status csv_doubt(csv_draft *d, const mst_csv_column *c, const csv_sample *s)
{
    if (s->text == NULL || s->n_texts * STRAY_SHARE > s->n)
        return MST_OK;
    return mst_text_list_format(
        &d->layout->doubts,
        "%s:%llu: \"%s\" makes column %s a category, although %zu of its first %zu values are numbers; "
        "correct "
        "the cell or leave it empty, or confirm the category with --csv-columns %s:category",
        d->block->path, (unsigned long long)s->text_line, s->text, c->name, s->n, s->n + s->n_texts, c->name);
}

/* The kind and the parameters that the list leaves open. */
static mst_status csv_settle_column(csv_draft *d, mst_csv_column *c, uint32_t place)
{
    static const mst_csv_kind numeric[] = {MST_CSV_STANDARD, MST_CSV_NUMBER, MST_CSV_LOG, MST_CSV_BUCKET};
    csv_sample none = {0}, *s = place != UINT32_MAX ? &d->samples[place] : &none;
    if (c->kind == MST_CSV_GUESSED) {
        c->kind = s->n > 0 && s->n_texts == 0 ? numeric[d->context->options->csv_numeric] : MST_CSV_CATEGORY;
        if (c->kind == MST_CSV_CATEGORY)
            TRY(csv_doubt(d, c, s));
        c->settled = c->kind == MST_CSV_NUMBER || c->kind == MST_CSV_LOG || c->kind == MST_CSV_CATEGORY;
    }
    if (!c->settled && c->kind == MST_CSV_STANDARD)
        csv_settle_standard(c, s);
    if (!c->settled && c->kind == MST_CSV_BUCKET)
        csv_settle_buckets(c, s);
    if (!c->settled && c->kind == MST_CSV_LABEL && s->n_texts > 0) {
        if (s->many)
            return mst_fail(MST_EINPUT,
                            "%s: the label \"%s\" has more than %d different texts; name another column with "
                            "--csv-label",
                            d->block->path, c->name, MST_CSV_CLASSES);
        for (size_t i = 0; i < s->classes.n; i++) {
            const char *text = s->classes.items[i];
            if (!mst_utf8_plain(text))
                return mst_fail(MST_EINPUT,
                                "%s: class %zu of the label \"%s\" has a control character or is not UTF-8",
                                d->block->path, i, c->name);
            TRY(mst_text_list_add(&c->classes, text));
        }
    }
    c->settled = true;
    c->scale = c->kind == MST_CSV_STANDARD ? 1.0 / c->deviation : 0.0;
    return MST_OK;
}

/* Fails where a column that is needed is not in the file. */
static mst_status csv_check_place(const csv_draft *d, const mst_csv_column *c, uint32_t place)
{
    bool optional = c->kind == MST_CSV_IGNORE || (d->context->options->unlabelled &&
                                                  (c->kind == MST_CSV_LABEL || c->kind == MST_CSV_WEIGHT));
    if (place != UINT32_MAX || optional)
        return MST_OK;
    return csv_no_column(d, c->name, c->kind == MST_CSV_LABEL ? "the label" : "--csv-columns");
}

/* Numbers the fields and prepares the keys of categories. */
static mst_status csv_number_fields(csv_draft *d, const uint32_t *places)
{
    mst_csv_layout *l = d->layout;
    mst_parse_context *context = d->context;
    uint32_t labels = 0, weights = 0;
    for (uint32_t i = 0; i < l->n_columns; i++) {
        TRY(csv_check_place(d, &l->columns[i], places[i]));
        l->n_numbers += mst_csv_is_number(l->columns[i].kind);
        labels += l->columns[i].kind == MST_CSV_LABEL;
        weights += l->columns[i].kind == MST_CSV_WEIGHT;
    }
    if (labels > 1 || weights > 1)
        return mst_fail(MST_EUSAGE, "--csv-columns: more than one column is the %s",
                        labels > 1 ? "label" : "weight");
    uint32_t number = 0, category = l->n_numbers;
    for (uint32_t i = 0; i < l->n_columns; i++) {
        mst_csv_column *c = &l->columns[i];
        if (places[i] != UINT32_MAX && c->kind != MST_CSV_IGNORE &&
            !(c->kind == MST_CSV_LABEL && context->options->unlabelled))
            l->file[places[i]] = c;
        if (mst_csv_is_number(c->kind))
            c->field = number++;
        else if (c->kind == MST_CSV_BUCKET || c->kind == MST_CSV_CATEGORY)
            c->field = category++;
        mst_csv_seed(c, (uint64_t)context->options->hash_seed);
    }
    l->n_fields = category;
    if (l->n_fields == 0)
        return mst_fail(MST_EINPUT, "%s has no columns to train on", d->block->path);
    if (context->features == 0)
        context->features = l->n_fields > l->n_numbers ? DEFAULT_FEATURES : l->n_numbers;
    if (context->features < (uint64_t)l->n_numbers + (l->n_fields > l->n_numbers))
        return mst_fail(MST_EUSAGE, "--features %llu: %s has %u column%s of numbers%s",
                        (unsigned long long)context->features, d->block->path, l->n_numbers,
                        l->n_numbers == 1 ? "" : "s",
                        l->n_fields > l->n_numbers ? " besides its categories" : "");
    l->range = context->features - l->n_numbers;
    context->n_fields = l->n_fields;
    context->n_numbers = l->n_numbers;
    for (uint32_t i = 0; i < l->n_columns; i++) {
        mst_csv_column *c = &l->columns[i];
        for (uint32_t b = 0; c->kind == MST_CSV_BUCKET && b <= c->n_bounds; b++) {
            char text[16];
            int n = snprintf(text, sizeof text, "%u", b);
            c->keys[b] = mst_csv_key(l, c, text, (size_t)n);
        }
        if (c->kind == MST_CSV_BUCKET)
            c->keys[c->n_bounds + 1] = mst_csv_key(l, c, "", 0);
        if (c->kind == MST_CSV_LABEL)
            context->classes = &c->classes;
    }
    return MST_OK;
}

void mst_csv_layout_destroy(mst_csv_layout *self)
{
    if (self == NULL)
        return;
    for (uint32_t i = 0; self->columns != NULL && i < self->n_columns; i++)
        mst_csv_column_fini(&self->columns[i]);
    mst_free(self->columns);
    mst_free(self->file);
    mst_free(self->path);
    mst_free(self->text);
    mst_text_list_fini(&self->names);
    mst_text_list_fini(&self->doubts);
    mst_free(self);
}

static mst_status csv_check_options(const mst_data_options *o)
{
    const char *d = o->csv_delimiter;
    if (d != NULL && strcmp(d, "auto") != 0 && strcmp(d, "tab") != 0 &&
        (strlen(d) != 1 || *d == '"' || *d == '\n' || *d == '\r'))
        return mst_fail(MST_EUSAGE, "--csv-delimiter %s: give one character, tab or auto", d);
    return MST_OK;
}

/* Settles everything about the first record, which starts at p. */
static mst_status csv_draft_run(csv_draft *d, const uint8_t *p)
{
    mst_csv_layout *l = d->layout;
    const mst_data_options *o = d->context->options;
    const uint8_t *first = p, *end = d->block->data + d->block->size;
    uint32_t *places = NULL, label = UINT32_MAX;
    mst_status st;
    TRY(csv_first_record(d, &p, end));
    TRY(csv_sample_block(d, p, UINT32_MAX));
    l->header =
        o->csv_header == MST_CSV_HEADER_AUTO ? csv_guess_header(d) : o->csv_header == MST_CSV_HEADER_YES;
    if (!l->header) {
        const uint8_t *again = first;
        TRY(csv_sample_record(d, &again, end, UINT32_MAX));
    }
    TRY(csv_name_columns(d));
    if (o->csv_label != NULL)
        TRY(csv_apply_option(d, o->csv_label, MST_CSV_LABEL, "--csv-label"));
    if (o->csv_weight != NULL)
        TRY(csv_apply_option(d, o->csv_weight, MST_CSV_WEIGHT, "--csv-weight"));
    TRY(csv_guess_label(d));
    places = mst_calloc((size_t)d->list.n + l->n_file + 1, sizeof *places);
    if (places == NULL)
        return mst_fail_memory();
    TRY_OUT(st, csv_place_columns(d, places));
    for (uint32_t i = 0; i < l->n_columns; i++)
        if (l->columns[i].kind == MST_CSV_LABEL && !l->columns[i].settled && places[i] != UINT32_MAX)
            label = places[i];
    if (label != UINT32_MAX && d->samples[label].n_texts > 0)
        TRY_OUT(st, csv_sample_block(d, l->header ? p : first, label));
    for (uint32_t i = 0; i < l->n_columns; i++)
        TRY_OUT(st, csv_settle_column(d, &l->columns[i], places[i]));
    TRY_OUT(st, csv_number_fields(d, places));
    l->text = mst_csv_list_text(l->columns, l->n_columns);
    st = l->text != NULL ? MST_OK : mst_fail_memory();
out:
    mst_free(places);
    return st;
}

mst_status mst_csv_layout_new(mst_parse_context *context, const mst_block *first, mst_csv_layout **out)
{
    const mst_data_options *o = context->options;
    csv_draft d = {.context = context,
                   .block = first,
                   .list.star = MST_CSV_GUESSED,
                   .counted = first->data,
                   .line = first->line};
    mst_status st;
    TRY(csv_check_options(o));
    mst_csv_layout *self = d.layout = mst_zalloc(sizeof *self);
    if (self == NULL)
        return mst_fail_memory();
    const uint8_t *p = csv_skip_blank_lines(first->data, first->data + first->size);
    self->dialect = mst_csv_dialect_of(o, p, first->size - (size_t)(p - first->data));
    self->path = mst_strdup(first->path);
    if (self->path == NULL) {
        st = mst_fail_memory();
        goto out;
    }
    if (o->csv_columns != NULL)
        TRY_OUT(st, mst_csv_list_read(&d.list, o->csv_columns));
    if (p < first->data + first->size)
        TRY_OUT(st, csv_draft_run(&d, p));
    else if (context->features == 0) /* no rows */
        context->features = DEFAULT_FEATURES;
    *out = self;
    self = NULL;
    st = MST_OK;
out:
    for (uint32_t i = 0; i < d.n_samples; i++) {
        mst_free(d.samples[i].values);
        mst_free(d.samples[i].first);
        mst_free(d.samples[i].text);
        mst_text_list_fini(&d.samples[i].classes);
    }
    mst_free(d.samples);
    mst_free(d.by_name);
    mst_free(d.copy.bytes);
    mst_csv_list_fini(&d.list);
    mst_csv_layout_destroy(self);
    return st;
}

mst_status mst_csv_is_header(const mst_csv_layout *self, const mst_block *block, bool *header)
{
    const uint8_t *p = block->data, *end = p + block->size;
    mst_csv_copy copy = {0};
    mst_status st = MST_OK;
    size_t same = 0, n = 0;
    bool more = self->header;
    for (; more && st == MST_OK; n++) {
        mst_csv_field f = mst_csv_next(&self->dialect, p, end);
        st = mst_csv_plain(&copy, &f);
        mst_csv_trim(&f.text, &f.n);
        const char *name = n < self->names.n ? self->names.items[n] : "";
        same += n < self->names.n && ((strlen(name) == f.n && memcmp(name, f.text, f.n) == 0) || f.n == 0);
        more = f.stop < end && *f.stop == self->dialect.delimiter;
        p = f.stop + (f.stop < end);
    }
    mst_free(copy.bytes);
    *header = self->header && same == n && n == self->names.n;
    if (st == MST_OK && self->header && !*header && same > 0 && 2 * same >= n)
        st = mst_block_fail(&mst_format_csv, block, block->data, "its header differs from that of %s",
                            self->path);
    return st;
}
