/* Tables of a report (sheet.h). */
#include "report/sheet.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "report/page.h"

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

void mst_sheet_part_add(mst_sheet *self, const char *title, const char *key, unsigned colour)
{
    mst_sheet_column_add(self, title, key, true);
    self->columns[self->n_columns - 1].part = colour + 1;
}

static void sheet_add(mst_sheet *self, char *text, double value)
{
    if (text == NULL || !mst_grow(&self->cells, &self->capacity, self->n_cells + 1, sizeof *self->cells)) {
        mst_free(text);
        self->failed = true;
        return;
    }
    self->cells[self->n_cells++] = (mst_cell){text, value};
}

void mst_sheet_text(mst_sheet *self, const char *text)
{
    sheet_add(self, mst_strdup(text != NULL ? text : ""), NAN);
}

void mst_sheet_value(mst_sheet *self, double value, const char *text)
{
    sheet_add(self, mst_strdup(isnan(value) ? "" : text), value);
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

size_t mst_sheet_rows(const mst_sheet *self)
{
    return self->n_columns > 0 ? self->n_cells / self->n_columns : 0;
}

/* ---- writing ---- */

/* Whether any cell of the column has text. */
static bool sheet_is_shown(const mst_sheet *self, size_t column)
{
    for (size_t i = column; i < self->n_cells; i += self->n_columns)
        if (self->cells[i].text[0] != '\0' && strcmp(self->cells[i].text, MST_FIGURE_NONE) != 0)
            return true;
    return column == 0;
}

json_t *mst_sheet_block(const mst_sheet *self)
{
    json_t *columns = json_array(), *rows = json_array();
    for (size_t c = 0; c < self->n_columns; c++) {
        const mst_sheet_column *column = &self->columns[c];
        if (!sheet_is_shown(self, c))
            continue;
        json_t *json = json_pack("{s:s, s:b}", "title", column->title, "number", (int)column->number);
        if (column->part > 0 && json != NULL)
            json_object_set_new(json, "part", json_integer(column->part - 1));
        json_array_append_new(columns, json);
    }
    for (size_t r = 0; r < mst_sheet_rows(self); r++) {
        json_t *row = json_array();
        for (size_t c = 0; c < self->n_columns; c++) {
            const mst_cell *cell = &self->cells[r * self->n_columns + c];
            json_t *text = sheet_is_shown(self, c) ? mst_page_string(cell->text) : NULL;
            if (text != NULL && self->columns[c].part > 0)
                text = json_pack("[o, f]", text, isfinite(cell->value) ? cell->value : 0);
            if (text != NULL)
                json_array_append_new(row, text);
        }
        json_array_append_new(rows, row);
    }
    json_t *block = json_pack("{s:s, s:s*, s:o, s:o}", "kind", "table", "note", self->note, "columns",
                              columns, "rows", rows);
    if (self->failed) {
        json_decref(block);
        return NULL;
    }
    return block;
}

void mst_sheet_markdown(const mst_sheet *self, mst_string *out)
{
    out->failed = out->failed || self->failed;
    if (mst_sheet_rows(self) == 0)
        return;
    mst_string_format(out, "## %s\n\n", self->title);
    if (self->note != NULL)
        mst_string_format(out, "%s\n\n", self->note);
    mst_string_add(out, "|");
    for (size_t c = 0; c < self->n_columns; c++)
        if (sheet_is_shown(self, c))
            mst_string_format(out, " %s |", self->columns[c].title);
    mst_string_add(out, "\n|");
    for (size_t c = 0; c < self->n_columns; c++)
        if (sheet_is_shown(self, c))
            mst_string_add(out, self->columns[c].number ? "---:|" : "---|");
    mst_string_add(out, "\n");
    for (size_t i = 0; i < mst_sheet_rows(self) * self->n_columns; i++) {
        size_t c = i % self->n_columns;
        mst_string_add(out, c == 0 ? "|" : "");
        if (sheet_is_shown(self, c)) {
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

bool mst_sheet_json(const mst_sheet *self, json_t *into)
{
    json_t *rows = json_array();
    bool fine = json_object_set_new(into, self->key, rows) == 0 && !self->failed;
    for (size_t r = 0; fine && r < mst_sheet_rows(self); r++) {
        json_t *row = json_object();
        fine = json_array_append_new(rows, row) == 0;
        for (size_t c = 0; fine && c < self->n_columns; c++) {
            const mst_cell *cell = &self->cells[r * self->n_columns + c];
            json_t *value = isfinite(cell->value)     ? json_real(cell->value)
                            : self->columns[c].number ? json_null()
                                                      : json_string(cell->text);
            if (value == NULL) /* text that is not UTF-8 */
                value = json_string("?");
            fine = json_object_set_new(row, self->columns[c].key, value) == 0;
        }
    }
    return fine;
}
