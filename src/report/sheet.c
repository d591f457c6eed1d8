/* Tables of a report; contract in sheet.h. */
#include "report/sheet.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/figure.h"

#define LONG   32  /* characters of a cell that gets room to wrap */
#define MIDDLE 14  /* ... that is not narrowed to a word a line */
#define WIDE   180 /* characters of a line */

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

static void sheet_figure(mst_sheet *self, mst_figure_unit unit, double value)
{
    char text[MST_FIGURE_SIZE];
    mst_sheet_value(self, value, mst_figure_column(unit, value, text));
}

void mst_sheet_count(mst_sheet *self, double value)
{
    sheet_figure(self, MST_FIGURE_COUNT, value);
}

void mst_sheet_real(mst_sheet *self, double value)
{
    sheet_figure(self, MST_FIGURE_PLAIN, value);
}

void mst_sheet_bytes(mst_sheet *self, double value)
{
    sheet_figure(self, MST_FIGURE_BYTES, value);
}

void mst_sheet_rate(mst_sheet *self, double value)
{
    sheet_figure(self, MST_FIGURE_RATE, value);
}

void mst_sheet_seconds(mst_sheet *self, double value)
{
    sheet_figure(self, MST_FIGURE_SECONDS, value);
}

void mst_sheet_percent(mst_sheet *self, double share)
{
    sheet_figure(self, MST_FIGURE_SHARE, share);
}

void mst_sheet_precise(mst_sheet *self, double share)
{
    char text[MST_FIGURE_SIZE];
    mst_sheet_value(self, share, mst_figure_precise(share, text));
}

void mst_sheet_raw(mst_sheet *self, mst_string *html)
{
    add(self, html->failed ? NULL : mst_strdup(html->text != NULL ? html->text : ""), NAN, true);
    mst_string_fini(html);
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
        if (self->cells[i].text[0] != '\0' && strcmp(self->cells[i].text, MST_FIGURE_NONE) != 0)
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

static void add_heading(const mst_sheet_column *c, mst_string *out)
{
    mst_string_format(out, "<th scope=\"col\"%s>", c->number ? " class=\"n\"" : "");
    if (c->part > 0)
        mst_string_format(
            out,
            "<svg class=\"part\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect class=\"p%u\" "
            "width=\"10\" height=\"10\" rx=\"2\"/></svg>",
            (c->part - 1) % 11);
    mst_string_html(out, c->title);
    mst_string_add(out, "</th>");
}

void mst_sheet_html(const mst_sheet *self, mst_string *out)
{
    out->failed = out->failed || self->failed;
    mst_string_add(out, "<div class=\"scroll\"><table><thead><tr>");
    for (size_t c = 0; c < self->n_columns; c++)
        if (is_shown(self, c))
            add_heading(&self->columns[c], out);
    mst_string_add(out, "</tr></thead><tbody>\n");
    for (size_t i = 0; i < mst_sheet_rows(self) * self->n_columns; i++) {
        size_t c = i % self->n_columns;
        mst_string_add(out, c == 0 ? "<tr>" : "");
        if (is_shown(self, c)) {
            mst_string_format(out, "<%s%s>", c == 0 ? "th scope=\"row\"" : "td",
                              self->columns[c].number                ? " class=\"n\""
                              : is_bar(self, c)                      ? " class=\"barcell\""
                              : strlen(self->cells[i].text) > LONG   ? " class=\"long\""
                              : strlen(self->cells[i].text) > MIDDLE ? " class=\"mid\""
                                                                     : "");
            if (self->cells[i].raw)
                mst_string_add(out, self->cells[i].text);
            else
                mst_string_html(out, self->cells[i].text);
            mst_string_add(out, c == 0 ? "</th>" : "</td>");
        }
        mst_string_add(out, c + 1 == self->n_columns ? "</tr>\n" : "");
    }
    mst_string_add(out, "</tbody></table></div>\n");
}

void mst_sheet_section(const mst_sheet *self, int level, mst_string *out)
{
    if (mst_sheet_rows(self) == 0)
        return;
    mst_string_format(out, "<section%s>\n", mst_sheet_is_wide(self) ? " class=\"wide\"" : "");
    if (level > 0)
        mst_string_format(out, "<h%d>%s</h%d>\n", level, self->title, level);
    if (self->note != NULL)
        mst_string_format(out, "<p class=\"note\">%s</p>\n", self->note);
    mst_sheet_html(self, out);
    mst_string_add(out, "</section>\n");
}

void mst_sheet_markdown(const mst_sheet *self, mst_string *out)
{
    out->failed = out->failed || self->failed;
    mst_string_add(out, "|");
    for (size_t c = 0; c < self->n_columns; c++)
        if (!is_bar(self, c) && is_shown(self, c))
            mst_string_format(out, " %s |", self->columns[c].title);
    mst_string_add(out, "\n|");
    for (size_t c = 0; c < self->n_columns; c++)
        if (!is_bar(self, c) && is_shown(self, c))
            mst_string_add(out, self->columns[c].number ? "---:|" : "---|");
    mst_string_add(out, "\n");
    for (size_t i = 0; i < mst_sheet_rows(self) * self->n_columns; i++) {
        size_t c = i % self->n_columns;
        mst_string_add(out, c == 0 ? "|" : "");
        if (!is_bar(self, c) && is_shown(self, c)) {
            mst_string_add(out, " ");
            mst_string_markdown(out, self->cells[i].text);
            mst_string_add(out, " |");
        }
        mst_string_add(out, c + 1 == self->n_columns ? "\n" : "");
    }
    mst_string_add(out, "\n");
}

void mst_sheet_csv(const mst_sheet *self, mst_string *out)
{
    out->failed = out->failed || self->failed;
    for (size_t r = 0; r < mst_sheet_rows(self); r++) {
        const mst_cell *row = self->cells + r * self->n_columns;
        for (size_t c = 1; c < self->n_columns; c++) {
            if (row[c].raw)
                continue;
            mst_string_csv(out, self->key);
            mst_string_add(out, ",");
            mst_string_csv(out, row[0].text);
            mst_string_add(out, ",");
            mst_string_csv(out, self->columns[c].key);
            mst_string_add(out, ",");
            if (isnan(row[c].value))
                mst_string_csv(out, row[c].text);
            else
                mst_string_format(out, "%.10g", row[c].value);
            mst_string_add(out, "\n");
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
    mst_string *out = arg;
    (void)name;
    if (mst_sheet_rows(sheet) == 0)
        return MST_OK;
    mst_string_format(out, "## %s\n\n", sheet->title);
    if (sheet->note != NULL)
        mst_string_format(out, "%s\n\n", sheet->note);
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

mst_status mst_sheets_markdown(const mst_sheet_maker *makers, size_t n, const void *report, mst_string *out)
{
    return each(makers, n, report, put_markdown, out);
}

mst_status mst_sheets_csv(const mst_sheet_maker *makers, size_t n, const void *report, mst_string *out)
{
    return each(makers, n, report, put_csv, out);
}

mst_status mst_sheets_json(const mst_sheet_maker *makers, size_t n, const void *report, json_t *into)
{
    return each(makers, n, report, put_json, into);
}
