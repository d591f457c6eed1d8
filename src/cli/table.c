/* Tables; contract in table.h. Widths are counted in UTF-8 characters. */
#include "cli/table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "cli/cli.h"

#define GAP 2 /* blanks between columns */

typedef struct cell {
    json_t *value;
    char *text;
} cell;

struct mst_table {
    const mst_column *columns;
    size_t n_columns;
    cell *cells; /* row after row */
    size_t n_cells, capacity;
    bool failed;
};

mst_status mst_table_new(const mst_column *columns, size_t n, mst_table **out)
{
    mst_table *table = mst_zalloc(sizeof *table);
    if (table == NULL)
        return mst_fail_memory();
    table->columns = columns;
    table->n_columns = n;
    *out = table;
    return MST_OK;
}

void mst_table_destroy(mst_table *table)
{
    if (table == NULL)
        return;
    for (size_t i = 0; i < table->n_cells; i++) {
        json_decref(table->cells[i].value);
        mst_free(table->cells[i].text);
    }
    mst_free(table->cells);
    mst_free(table);
}

void mst_table_value(mst_table *table, json_t *value, const char *text)
{
    char *copy = mst_strdup(text);
    if (table->failed || value == NULL || copy == NULL ||
        !mst_grow(&table->cells, &table->capacity, table->n_cells + 1, sizeof *table->cells)) {
        table->failed = true;
        json_decref(value);
        mst_free(copy);
        return;
    }
    table->cells[table->n_cells++] = (cell){value, copy};
}

void mst_table_text(mst_table *table, const char *text)
{
    json_t *value = text != NULL ? json_string(text) : json_null();
    if (value == NULL) /* not UTF-8: a path may be anything */
        value = json_string("?");
    mst_table_value(table, value, text != NULL ? text : "");
}

void mst_table_count(mst_table *table, uint64_t count)
{
    char text[32];
    mst_table_value(table, json_integer((json_int_t)count), mst_figure_grouped(count, text));
}

void mst_table_bytes(mst_table *table, uint64_t bytes)
{
    char text[32];
    mst_table_value(table, json_integer((json_int_t)bytes), mst_figure_size(bytes, text));
}

void mst_table_flag(mst_table *table, bool flag)
{
    mst_table_value(table, json_boolean(flag), flag ? "yes" : "no");
}

void mst_table_real(mst_table *table, double number, int digits)
{
    char text[64];
    if (!isfinite(number)) {
        mst_table_value(table, json_null(), isnan(number) ? "" : number > 0 ? "inf" : "-inf");
        return;
    }
    snprintf(text, sizeof text, "%.*f", digits, number);
    mst_table_value(table, json_real(number), text);
}

/* ---- facts ---- */

mst_status mst_facts_new(bool right, mst_table **out)
{
    static const mst_column columns[2][2] = {{{"name", false}, {"value", false}},
                                             {{"name", false}, {"value", true}}};
    return mst_table_new(columns[right], 2, out);
}

mst_table *mst_fact(mst_table *table, const char *name)
{
    mst_table_text(table, name);
    return table;
}

void mst_fact_missing(mst_table *table, const char *name, const char *text)
{
    mst_table_value(mst_fact(table, name), json_null(), text);
}

/* ---- text ---- */

static size_t table_width_of(const char *text)
{
    size_t n = 0;
    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void table_print_blanks(size_t n)
{
    printf("%*s", (int)n, "");
}

/* The last column is not padded on the right, so that no line ends in blanks. */
static void table_print_cell(const char *text, size_t width, bool right, bool first, bool last)
{
    size_t blanks = width - table_width_of(text);
    if (!first)
        table_print_blanks(GAP);
    if (right)
        table_print_blanks(blanks);
    fputs(text, stdout);
    if (!right && !last)
        table_print_blanks(blanks);
}

/* The key as people read it; at most 63 characters. */
static const char *table_heading(const mst_column *column, char *out)
{
    size_t i = 0;
    for (; i < 63 && column->key[i] != '\0'; i++)
        out[i] = column->key[i] == '_' ? ' ' : column->key[i];
    out[i] = '\0';
    return out;
}

mst_status mst_table_print(const mst_table *table, const char *title, bool headings)
{
    size_t n = table->n_columns;
    char text[64];
    size_t *widths = mst_calloc(n, sizeof *widths);
    if (widths == NULL || table->failed || n == 0) {
        mst_free(widths);
        return mst_fail_memory();
    }
    for (size_t c = 0; c < n && headings; c++)
        widths[c] = table_width_of(table_heading(&table->columns[c], text));
    for (size_t i = 0; i < table->n_cells; i++) {
        size_t width = table_width_of(table->cells[i].text);
        widths[i % n] = width > widths[i % n] ? width : widths[i % n];
    }
    if (title != NULL)
        printf("%s\n", title);
    const char *indent = title != NULL ? "  " : "";
    for (size_t i = headings ? 0 : n; i < n + table->n_cells; i++) {
        size_t c = i % n;
        const char *shown = i < n ? table_heading(&table->columns[c], text) : table->cells[i - n].text;
        fputs(c == 0 ? indent : "", stdout);
        table_print_cell(shown, widths[c], table->columns[c].right, c == 0, c + 1 == n);
        fputs(c + 1 == n ? "\n" : "", stdout);
    }
    mst_free(widths);
    return MST_OK;
}

/* ---- JSON ---- */

json_t *mst_table_json(const mst_table *table)
{
    json_t *rows = table->failed ? NULL : json_array(), *row = NULL;
    for (size_t i = 0; rows != NULL && i < table->n_cells; i++) {
        size_t c = i % table->n_columns;
        if (c == 0 && json_array_append_new(rows, row = json_object()) != 0)
            goto fail;
        if (json_object_set(row, table->columns[c].key, table->cells[i].value) != 0)
            goto fail;
    }
    if (rows == NULL)
        mst_fail_memory();
    return rows;
fail:
    json_decref(rows);
    mst_fail_memory();
    return NULL;
}

json_t *mst_table_json_facts(const mst_table *table)
{
    json_t *facts = table->failed ? NULL : json_object();
    for (size_t i = 0; facts != NULL && i + 1 < table->n_cells; i += table->n_columns) {
        char *key = mst_strdup(table->cells[i].text);
        for (char *c = key; c != NULL && *c != '\0'; c++)
            *c = *c == ' ' ? '_' : *c;
        if (key == NULL || json_object_set(facts, key, table->cells[i + 1].value) != 0) {
            json_decref(facts);
            facts = NULL;
        }
        mst_free(key);
    }
    if (facts == NULL)
        mst_fail_memory();
    return facts;
}
