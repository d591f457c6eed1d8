/* Tables of a report; contract in sheet.h. */
#include "report/sheet.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"

#define LONG    32  /* characters of a cell that gets room to wrap */
#define MIDDLE  14  /* ... that is not narrowed to a word a line */
#define WIDE    180 /* characters of a line */
#define NOTHING "\xe2\x80\x93"

void mst_sheet_fini(mst_sheet *self)
{
    for (size_t i = 0; i < self->n_cells; i++)
        mst_free(self->cells[i].text);
    mst_free(self->cells);
    *self = (mst_sheet){0};
}

void mst_sheet_column_add(mst_sheet *self, const char *title, const char *key, bool number)
{
    if (self->n_columns < MST_SHEET_COLUMNS)
        self->columns[self->n_columns++] = (mst_sheet_column){title, key, number, 0};
    else
        self->failed = true;
}

void mst_sheet_part_add(mst_sheet *self, const char *title, const char *key, unsigned part)
{
    mst_sheet_column_add(self, title, key, true);
    self->columns[self->n_columns - 1].part = part;
}

static void add(mst_sheet *self, char *text, double value, bool raw)
{
    if (text == NULL || !mst_grow(&self->cells, &self->capacity, self->n_cells + 1, sizeof *self->cells)) {
        mst_free(text);
        self->failed = true;
        return;
    }
    self->cells[self->n_cells++] = (mst_cell){text, value, raw};
}

void mst_sheet_text(mst_sheet *self, const char *text)
{
    add(self, mst_strdup(text != NULL ? text : ""), NAN, false);
}

void mst_sheet_value(mst_sheet *self, double value, const char *text)
{
    add(self, mst_strdup(isnan(value) ? "" : text), value, false);
}

/* Zeros at the end of the number that the text begins with, up to so many digits: figures of a column are as
 * long as each other. Whole bytes, minutes and hours stay. */
static const char *align(char *text, size_t size, int digits)
{
    size_t n = strspn(text, "-0123456789."), zeros = 0;
    int has = 0;
    bool point = false, leading = true;
    for (size_t i = 0; i < n; i++) {
        point = point || text[i] == '.';
        leading = leading && (text[i] < '1' || text[i] > '9');
        has += !leading && text[i] != '.';
    }
    if (n == 0 || leading || has >= digits || text[n] == 'e' || text[n] == '+' ||
        strcmp(text + n, " B") == 0 || strcmp(text + n, " B/s") == 0 || strncmp(text + n, " min", 4) == 0 ||
        strncmp(text + n, " h", 2) == 0)
        return text;
    zeros = (size_t)(digits - has) + !point;
    size_t rest = strlen(text + n) + 1;
    if (n + zeros + rest > size)
        return text;
    memmove(text + n + zeros, text + n, rest);
    memset(text + n, '0', zeros);
    if (!point)
        text[n] = '.';
    return text;
}

void mst_sheet_count(mst_sheet *self, double value)
{
    char text[40];
    mst_sheet_value(self, value, mst_figure_count(value, text));
}

void mst_sheet_real(mst_sheet *self, double value)
{
    char text[40];
    mst_figure_real(value, text);
    mst_sheet_value(self, value, align(text, sizeof text, 4));
}

void mst_sheet_bytes(mst_sheet *self, double value)
{
    char text[40];
    mst_figure_bytes(value, text);
    mst_sheet_value(self, value, value == 0 ? NOTHING : align(text, sizeof text, 3));
}

void mst_sheet_rate(mst_sheet *self, double value)
{
    char text[40], whole[48];
    snprintf(whole, sizeof whole, "%s/s", mst_figure_bytes(value, text));
    mst_sheet_value(self, value, value == 0 ? NOTHING : align(whole, sizeof whole, 3));
}

void mst_sheet_seconds(mst_sheet *self, double value)
{
    char text[40];
    mst_figure_seconds(value, text);
    mst_sheet_value(self, value, align(text, sizeof text, 3));
}

void mst_sheet_percent(mst_sheet *self, double share)
{
    char text[40];
    mst_sheet_value(self, share, share == 0 ? NOTHING : mst_figure_percent(share, text));
}

void mst_sheet_precise(mst_sheet *self, double share)
{
    char text[40] = NOTHING;
    if (isfinite(share) && fabs(share) < 1e6)
        snprintf(text, sizeof text, "%.2f%%", share * 100);
    mst_sheet_value(self, share, text);
}

void mst_sheet_raw(mst_sheet *self, mst_buffer *html)
{
    add(self, html->failed ? NULL : mst_strdup(html->text != NULL ? html->text : ""), NAN, true);
    mst_buffer_fini(html);
}

size_t mst_sheet_rows(const mst_sheet *self)
{
    return self->n_columns > 0 ? self->n_cells / self->n_columns : 0;
}

/* ---- writing ---- */

static bool is_bar(const mst_sheet *self, size_t column)
{
    return self->n_cells > column && self->cells[column].raw;
}

/* Something stands in the column. */
static bool is_shown(const mst_sheet *self, size_t column)
{
    for (size_t i = column; i < self->n_cells; i += self->n_columns)
        if (self->cells[i].text[0] != '\0' && strcmp(self->cells[i].text, NOTHING) != 0)
            return true;
    return column == 0;
}

bool mst_sheet_is_wide(const mst_sheet *self)
{
    size_t sum = 0;
    for (size_t c = 0; c < self->n_columns; c++) {
        size_t most = 0;
        if (!is_shown(self, c) || is_bar(self, c))
            continue;
        for (size_t i = c; i < self->n_cells; i += self->n_columns) {
            size_t n = strlen(self->cells[i].text);
            most = n > most ? n : most;
        }
        sum += (most < LONG ? most : LONG) + 3;
    }
    return sum > WIDE;
}

static void add_heading(const mst_sheet_column *c, mst_buffer *out)
{
    mst_buffer_format(out, "<th scope=\"col\"%s>", c->number ? " class=\"n\"" : "");
    if (c->part > 0)
        mst_buffer_format(
            out,
            "<svg class=\"part\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect class=\"p%u\" "
            "width=\"10\" height=\"10\" rx=\"2\"/></svg>",
            (c->part - 1) % 11);
    mst_buffer_html(out, c->title);
    mst_buffer_add(out, "</th>");
}

void mst_sheet_html(const mst_sheet *self, mst_buffer *out)
{
    out->failed = out->failed || self->failed;
    mst_buffer_add(out, "<div class=\"scroll\"><table><thead><tr>");
    for (size_t c = 0; c < self->n_columns; c++)
        if (is_shown(self, c))
            add_heading(&self->columns[c], out);
    mst_buffer_add(out, "</tr></thead><tbody>\n");
    for (size_t i = 0; i < mst_sheet_rows(self) * self->n_columns; i++) {
        size_t c = i % self->n_columns;
        mst_buffer_add(out, c == 0 ? "<tr>" : "");
        if (is_shown(self, c)) {
            mst_buffer_format(out, "<%s%s>", c == 0 ? "th scope=\"row\"" : "td",
                              self->columns[c].number                ? " class=\"n\""
                              : is_bar(self, c)                      ? " class=\"barcell\""
                              : strlen(self->cells[i].text) > LONG   ? " class=\"long\""
                              : strlen(self->cells[i].text) > MIDDLE ? " class=\"mid\""
                                                                     : "");
            if (self->cells[i].raw)
                mst_buffer_add(out, self->cells[i].text);
            else
                mst_buffer_html(out, self->cells[i].text);
            mst_buffer_add(out, c == 0 ? "</th>" : "</td>");
        }
        mst_buffer_add(out, c + 1 == self->n_columns ? "</tr>\n" : "");
    }
    mst_buffer_add(out, "</tbody></table></div>\n");
}

void mst_sheet_section(const mst_sheet *self, int level, mst_buffer *out)
{
    if (mst_sheet_rows(self) == 0)
        return;
    mst_buffer_format(out, "<section%s>\n", mst_sheet_is_wide(self) ? " class=\"wide\"" : "");
    if (level > 0)
        mst_buffer_format(out, "<h%d>%s</h%d>\n", level, self->title, level);
    if (self->note != NULL)
        mst_buffer_format(out, "<p class=\"note\">%s</p>\n", self->note);
    mst_sheet_html(self, out);
    mst_buffer_add(out, "</section>\n");
}

void mst_sheet_markdown(const mst_sheet *self, mst_buffer *out)
{
    out->failed = out->failed || self->failed;
    mst_buffer_add(out, "|");
    for (size_t c = 0; c < self->n_columns; c++)
        if (!is_bar(self, c) && is_shown(self, c))
            mst_buffer_format(out, " %s |", self->columns[c].title);
    mst_buffer_add(out, "\n|");
    for (size_t c = 0; c < self->n_columns; c++)
        if (!is_bar(self, c) && is_shown(self, c))
            mst_buffer_add(out, self->columns[c].number ? "---:|" : "---|");
    mst_buffer_add(out, "\n");
    for (size_t i = 0; i < mst_sheet_rows(self) * self->n_columns; i++) {
        size_t c = i % self->n_columns;
        mst_buffer_add(out, c == 0 ? "|" : "");
        if (!is_bar(self, c) && is_shown(self, c)) {
            mst_buffer_add(out, " ");
            mst_buffer_markdown(out, self->cells[i].text);
            mst_buffer_add(out, " |");
        }
        mst_buffer_add(out, c + 1 == self->n_columns ? "\n" : "");
    }
    mst_buffer_add(out, "\n");
}

void mst_sheet_csv(const mst_sheet *self, mst_buffer *out)
{
    out->failed = out->failed || self->failed;
    for (size_t r = 0; r < mst_sheet_rows(self); r++) {
        const mst_cell *row = self->cells + r * self->n_columns;
        for (size_t c = 1; c < self->n_columns; c++) {
            if (row[c].raw)
                continue;
            mst_buffer_csv(out, self->key);
            mst_buffer_add(out, ",");
            mst_buffer_csv(out, row[0].text);
            mst_buffer_add(out, ",");
            mst_buffer_csv(out, self->columns[c].key);
            mst_buffer_add(out, ",");
            if (isnan(row[c].value))
                mst_buffer_csv(out, row[c].text);
            else
                mst_buffer_format(out, "%.10g", row[c].value);
            mst_buffer_add(out, "\n");
        }
    }
}

json_t *mst_sheet_json(const mst_sheet *self)
{
    json_t *rows = json_array();
    for (size_t r = 0; rows != NULL && r < mst_sheet_rows(self); r++) {
        json_t *row = json_object();
        bool fine = row != NULL && !self->failed;
        for (size_t c = 0; fine && c < self->n_columns; c++) {
            const mst_cell *cell = &self->cells[r * self->n_columns + c];
            if (cell->raw)
                continue;
            json_t *value = isfinite(cell->value)     ? json_real(cell->value)
                            : self->columns[c].number ? json_null()
                                                      : json_string(cell->text);
            if (value == NULL) /* text that is not UTF-8 */
                value = json_string("?");
            fine = json_object_set_new(row, self->columns[c].key, value) == 0;
        }
        if (!fine || json_array_append(rows, row) != 0) {
            json_decref(rows);
            rows = NULL;
        }
        json_decref(row);
    }
    return rows;
}

/* ---- the tables of a report ---- */

/* Makes one after the other and puts each where it belongs. */
typedef mst_status put_fn(const mst_sheet *sheet, const char *name, void *arg);

static mst_status each(const mst_sheet_maker *makers, size_t n, const void *report, put_fn *put, void *arg)
{
    for (size_t i = 0; i < n; i++) {
        mst_sheet sheet = {0};
        mst_status st = makers[i].make(report, &sheet);
        if (st == MST_OK)
            st = put(&sheet, makers[i].name, arg);
        mst_sheet_fini(&sheet);
        TRY(st);
    }
    return MST_OK;
}

static mst_status put_markdown(const mst_sheet *sheet, const char *name, void *arg)
{
    mst_buffer *out = arg;
    (void)name;
    if (mst_sheet_rows(sheet) == 0)
        return MST_OK;
    mst_buffer_format(out, "## %s\n\n", sheet->title);
    if (sheet->note != NULL)
        mst_buffer_format(out, "%s\n\n", sheet->note);
    mst_sheet_markdown(sheet, out);
    return MST_OK;
}

static mst_status put_csv(const mst_sheet *sheet, const char *name, void *arg)
{
    (void)name;
    mst_sheet_csv(sheet, arg);
    return MST_OK;
}

static mst_status put_json(const mst_sheet *sheet, const char *name, void *arg)
{
    if (json_object_set_new(arg, name, mst_sheet_json(sheet)) != 0)
        return mst_fail_memory();
    return MST_OK;
}

mst_status mst_sheets_markdown(const mst_sheet_maker *makers, size_t n, const void *report, mst_buffer *out)
{
    return each(makers, n, report, put_markdown, out);
}

mst_status mst_sheets_csv(const mst_sheet_maker *makers, size_t n, const void *report, mst_buffer *out)
{
    return each(makers, n, report, put_csv, out);
}

mst_status mst_sheets_json(const mst_sheet_maker *makers, size_t n, const void *report, json_t *into)
{
    return each(makers, n, report, put_json, into);
}
