/* The list of columns of --csv-columns (contract: csv_table.h): an entry per column, "NAME:KIND", or "*:KIND"
 * for all others. Names and texts with special characters are quoted, and kinds may have parameters:
 *
 *     age:standard(38.6;13.2),price:bucket(1;2.5;10),"city, state":category,income:label(<=50K;>50K),*:ignore
 *
 * A label with empty brackets is a number. */
#include <ctype.h>

#include "base/alloc.h"
#include "data/csv_table.h"

static const char *const kind_names[] = {"number",   "standard", "log",    "bucket",
                                         "category", "label",    "weight", "ignore"};

static mst_status csv_bad_list(const char *text, const char *at, const char *problem)
{
    return mst_fail(MST_EUSAGE,
                    "--csv-columns: %s at \"%.40s\"; a list is such as age:standard,city:category,id:ignore",
                    problem, *at != '\0' || at == text ? at : at - 1);
}

/* A word up to one of the stops, or in quotes. Steps *at; *out is the caller's to free. */
static mst_status csv_word(const char *text, const char **at, const char *stops, bool *quoted, char **out)
{
    mst_string word = {0};
    const char *p = *at;
    *quoted = *p == '"';
    mst_string_add(&word, "");
    if (*quoted) {
        for (p++; *p != '\0' && (*p != '"' || p[1] == '"'); p += 1 + (*p == '"'))
            mst_string_addn(&word, p, 1);
        if (*p == '\0') {
            mst_string_fini(&word);
            return csv_bad_list(text, *at, "a quote is not closed");
        }
        p++;
    } else {
        size_t n = strcspn(p, stops), shown = n;
        while (shown > 0 && p[shown - 1] == ' ')
            shown--;
        mst_string_addn(&word, p, shown);
        p += n;
    }
    if (word.failed) {
        mst_string_fini(&word);
        return mst_fail_memory();
    }
    *at = p;
    *out = word.text;
    return MST_OK;
}

void mst_csv_column_fini(mst_csv_column *c)
{
    mst_free(c->name);
    mst_text_list_fini(&c->classes);
}

/* The parameters of a kind, up to the closing bracket. */
static mst_status csv_parameters(const char *text, const char **at, mst_csv_column *c)
{
    double numbers[MST_CSV_BUCKETS];
    uint32_t n = 0;
    if (c->kind != MST_CSV_STANDARD && c->kind != MST_CSV_BUCKET && c->kind != MST_CSV_LABEL)
        return csv_bad_list(text, *at, "this kind has no parameters");
    (*at)++;
    while (**at != ')') {
        char *word;
        bool quoted;
        TRY(csv_word(text, at, ";)", &quoted, &word));
        mst_status st = MST_OK;
        if (c->kind == MST_CSV_LABEL)
            st = c->classes.n < MST_CSV_CLASSES ? mst_text_list_add(&c->classes, word)
                                                : csv_bad_list(text, *at, "there are too many classes");
        else if (n == MST_CSV_BUCKETS - 1 || !mst_csv_real((const uint8_t *)word, strlen(word), &numbers[n]))
            st = csv_bad_list(text, *at, "a parameter is no number, or there are too many");
        mst_free(word);
        TRY(st);
        n++;
        if (**at == ';')
            (*at)++;
        else if (**at != ')')
            return csv_bad_list(text, *at, "a bracket is not closed");
    }
    (*at)++;
    c->settled = true;
    if (c->kind == MST_CSV_STANDARD) {
        if (n != 2 || !(numbers[1] > 0.0))
            return csv_bad_list(text, *at, "standard has a mean and a deviation above 0");
        c->mean = numbers[0];
        c->deviation = numbers[1];
    }
    for (uint32_t i = 0; c->kind == MST_CSV_BUCKET && i < n; i++) {
        c->bounds[i] = (float)numbers[i];
        if (i > 0 && !(c->bounds[i] > c->bounds[i - 1]))
            return csv_bad_list(text, *at, "bounds of buckets ascend");
        c->n_bounds = i + 1;
    }
    return MST_OK;
}

static mst_status csv_kind(const char *text, const char **at, mst_csv_column *c)
{
    size_t n = strcspn(*at, "(,");
    while (n > 0 && (*at)[n - 1] == ' ')
        n--;
    for (c->kind = 0; c->kind < MST_CSV_GUESSED; c->kind++)
        if (strlen(kind_names[c->kind]) == n && strncmp(kind_names[c->kind], *at, n) == 0)
            break;
    if (c->kind == MST_CSV_GUESSED)
        return csv_bad_list(
            text, *at, "the kind is none of number, standard, log, bucket, category, label, weight, ignore");
    *at += n;
    if (**at == '(')
        return csv_parameters(text, at, c);
    c->settled = c->kind != MST_CSV_STANDARD && c->kind != MST_CSV_BUCKET && c->kind != MST_CSV_LABEL;
    return MST_OK;
}

/* Adds an entry; takes the name and the classes over, on failure too. */
mst_status mst_csv_list_add(mst_csv_list *self, mst_csv_column item)
{
    if (item.name == NULL || !mst_grow(&self->items, &self->capacity, self->n + 1, sizeof *self->items)) {
        mst_csv_column_fini(&item);
        return mst_fail_memory();
    }
    self->items[self->n++] = item;
    return MST_OK;
}

/* "C1..C26": an entry per column. false: the word is no range. */
static bool csv_range(mst_csv_list *self, const mst_csv_column *item, mst_status *st)
{
    const char *name = item->name, *dots = strstr(name, "..");
    if (dots == NULL)
        return false;
    const char *second = dots + 2, *digits = dots, *last = second + strlen(second);
    while (digits > name && isdigit((unsigned char)digits[-1]))
        digits--;
    while (last > second && isdigit((unsigned char)last[-1]))
        last--;
    int n = (int)(digits - name);
    if (digits == dots || *last == '\0' || last - second != n || strncmp(name, second, (size_t)n) != 0 ||
        dots - digits > 6 || strlen(last) > 6)
        return false;
    long from = strtol(digits, NULL, 10), to = strtol(last, NULL, 10);
    *st = to - from < (long)MST_CSV_COLUMNS
              ? MST_OK
              : mst_fail(MST_EUSAGE, "--csv-columns: %s has too many columns", name);
    for (long i = from; *st == MST_OK && i <= to; i++) {
        mst_csv_column one = *item;
        one.name = mst_sprintf("%.*s%ld", n, name, i);
        *st = mst_csv_list_add(self, one);
    }
    return true;
}

mst_status mst_csv_list_read(mst_csv_list *self, const char *text)
{
    const char *at = text;
    while (*at != '\0') {
        mst_csv_column item = {.kind = MST_CSV_GUESSED};
        bool quoted;
        mst_status st;
        while (*at == ' ')
            at++;
        const char *start = at;
        TRY(csv_word(text, &at, ",:", &quoted, &item.name));
        st = *at == ':' ? (at++, csv_kind(text, &at, &item)) : MST_OK;
        while (*at == ' ')
            at++;
        if (st == MST_OK && *at != '\0' && *at != ',')
            st = csv_bad_list(text, at, "a comma is missing");
        if (st == MST_OK && item.name[0] == '\0')
            st = csv_bad_list(text, start, "a name is missing");
        bool ranges = !quoted && item.classes.n == 0;
        if (st == MST_OK && !quoted && strcmp(item.name, "*") == 0)
            self->star = item.kind;
        else if (st == MST_OK && !(ranges && csv_range(self, &item, &st))) {
            TRY(mst_csv_list_add(self, item));
            item = (mst_csv_column){0};
        }
        mst_csv_column_fini(&item);
        TRY(st);
        at += *at == ',';
    }
    return MST_OK;
}

static bool csv_needs_quotes(const char *text, const char *special)
{
    size_t n = strlen(text);
    return n == 0 || strpbrk(text, special) != NULL || text[0] == ' ' || text[n - 1] == ' ' ||
           strstr(text, "..") != NULL || strcmp(text, "*") == 0;
}

static void csv_write_word(mst_string *out, const char *text, const char *special)
{
    if (!csv_needs_quotes(text, special)) {
        mst_string_add(out, text);
        return;
    }
    mst_string_add(out, "\"");
    for (; *text != '\0'; text++)
        mst_string_addn(out, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1);
    mst_string_add(out, "\"");
}

void mst_csv_kind_text(const mst_csv_column *c, mst_string *out)
{
    mst_string_add(out, kind_names[c->kind]);
    if (c->kind == MST_CSV_STANDARD)
        mst_string_format(out, "(%.9g;%.9g)", c->mean, c->deviation);
    if (c->kind != MST_CSV_BUCKET && c->kind != MST_CSV_LABEL)
        return;
    mst_string_add(out, "(");
    for (uint32_t i = 0; c->kind == MST_CSV_BUCKET && i < c->n_bounds; i++)
        mst_string_format(out, "%s%.9g", i > 0 ? ";" : "", (double)c->bounds[i]);
    for (size_t i = 0; c->kind == MST_CSV_LABEL && i < c->classes.n; i++) {
        mst_string_add(out, i > 0 ? ";" : "");
        csv_write_word(out, c->classes.items[i], ";)\"");
    }
    mst_string_add(out, ")");
}

char *mst_csv_list_text(const mst_csv_column *columns, uint32_t n)
{
    mst_string text = {0};
    for (uint32_t i = 0; i < n; i++) {
        csv_write_word(&text, columns[i].name, ",:\"()");
        mst_string_add(&text, ":");
        mst_csv_kind_text(&columns[i], &text);
        mst_string_add(&text, ",");
    }
    mst_string_add(&text, "*:ignore");
    if (text.failed)
        mst_string_fini(&text);
    return text.text;
}

void mst_csv_list_fini(mst_csv_list *self)
{
    for (uint32_t i = 0; i < self->n; i++)
        mst_csv_column_fini(&self->items[i]);
    mst_free(self->items);
}
