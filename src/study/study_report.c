/* The report of a study: its tables, and the page and the Markdown file; contract in study_report.h. */
#include "study/study_report.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/figure.h"
#include "base/file.h"
#include "report/page.h"
#include "study/study_report_impl.h"

/* ---- forms ---- */

static bool form_ends(const char *name, const char *end)
{
    return mst_ends_with(name, end);
}

mst_expr_form mst_study_form(const char *column, const char *unit)
{
    static const char *const shares[] = {"accuracy", "share", "error", "top5", "wait_share"};
    static const char *const counts[] = {"rows",        "iterations", "steps",  "rows_per_s",
                                         "steps_per_s", "batch",      "workers"};
    static const char *const bytes[] = {"memory", "memory_all", "traffic"};
    mst_expr_form form = {MST_FIGURE_PLAIN, -1};
    if (unit != NULL && mst_expr_unit(unit, &form))
        return form;
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        form.unit = form_ends(column, shares[i]) ? MST_FIGURE_SHARE : form.unit;
    if (form_ends(column, "_s"))
        form.unit = MST_FIGURE_SECONDS;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        form.unit = strcmp(column, counts[i]) == 0 ? MST_FIGURE_COUNT : form.unit;
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        form.unit =
            strcmp(column, bytes[i]) == 0 || form_ends(column, "bytes") ? MST_FIGURE_BYTES : form.unit;
    if (form_ends(column, "_rate"))
        form.unit = MST_FIGURE_RATE;
    return form;
}

/* ---- conclusion ---- */

/* The name of the first step with a command that has not ended well; NULL: all have. */
static mst_status conclusion_lacks(const mst_study *self, const char **out)
{
    mst_study_cell *cells;
    size_t n;
    *out = NULL;
    TRY(mst_study_cells(self, &cells, &n));
    for (size_t i = 0; i < n && *out == NULL; i++)
        if (!mst_study_is_done(self, &cells[i]))
            *out = mst_study_text(cells[i].step, "name");
    mst_study_cells_free(cells, n);
    return MST_OK;
}

mst_status mst_study_conclusion(const mst_study *self, mst_string *out, bool *found)
{
    mst_expr_scope scope = {.rows = self->rows,
                            .steps = json_object_get(self->spec, "steps"),
                            .values = json_object_get(self->spec, "values")};
    size_t i;
    json_t *rule;
    const char *incomplete;
    *found = false;
    TRY(conclusion_lacks(self, &incomplete));
    if (incomplete != NULL) {
        mst_string_format(out, "No conclusion: step %s is incomplete.", incomplete);
        return MST_OK;
    }
    json_array_foreach(json_object_get(self->spec, "conclusion"), i, rule)
    {
        const char *when = mst_study_text(rule, "when");
        double holds = 1;
        mst_string text = {0};
        mst_status st = when != NULL ? mst_expr_number(&scope, when, &holds) : MST_OK;
        if (st == MST_OK && holds != 0)
            st = mst_expr_sentence(&scope, mst_study_text(rule, "sentence"), &text);
        if (st == MST_OK && holds != 0) {
            mst_string_add(out, text.text != NULL ? text.text : "");
            *found = true;
        } else if (st !=
                   MST_OK) { /* a later rule must not be chosen because a figure of this one is missing */
            mst_string_format(out, "No conclusion: %s.", mst_error_text());
        }
        mst_string_fini(&text);
        if (st != MST_OK || holds != 0)
            return st == MST_ENOMEM ? st : MST_OK;
    }
    mst_string_add(out, "No conclusion: no rule of the file holds.");
    return MST_OK;
}

/* ---- tables ---- */

/* Whether the published row belongs to the row: all columns that both have are equal; at least one is. */
static bool table_joins(const json_t *row, const json_t *published)
{
    const char *name;
    json_t *value;
    size_t n = 0;
    json_object_foreach((json_t *)published, name, value)
    {
        if (strcmp(name, MST_STUDY_LINE) == 0 || json_object_get(row, name) == NULL)
            continue;
        char *where = mst_sprintf("%s=%s", name, json_is_string(value) ? json_string_value(value) : "");
        bool same = where != NULL && mst_study_row_matches(row, where);
        mst_free(where);
        if (!same)
            return false;
        n++;
    }
    return n > 0;
}

/* rows: of a table, whose cells are sentences with expressions; those without a value are empty. */
static void table_inline_rows(const mst_study *self, const json_t *table, json_t *rows)
{
    mst_expr_scope scope = {.rows = self->rows,
                            .steps = json_object_get(self->spec, "steps"),
                            .values = json_object_get(self->spec, "values")};
    size_t i;
    json_t *row, *cell;
    const char *name;
    json_array_foreach(json_object_get(table, "rows"), i, row)
    {
        json_t *own = json_object();
        json_object_foreach(row, name, cell)
        {
            mst_string text = {0};
            if (json_is_string(cell) && mst_expr_sentence(&scope, json_string_value(cell), &text) == MST_OK)
                json_object_set_new(own, name, json_string(text.text != NULL ? text.text : ""));
            mst_string_fini(&text);
        }
        json_array_append_new(rows, own);
    }
}

/* "mode sync, batch 77" of a published row: its columns that the rows have. */
static void table_add_key(const json_t *published, const json_t *row, mst_string *out)
{
    const char *name, *before = "";
    json_t *value;
    json_object_foreach((json_t *)published, name, value)
    {
        if (!json_is_string(value) || (row != NULL && json_object_get(row, name) == NULL))
            continue;
        mst_string_format(out, "%s%s %s", before, name, json_string_value(value));
        before = ", ";
    }
}

/* The rows of a table with the columns of published:; published rows without one of ours are appended, and
 * `unused` gets a sentence about each, if there are rows at all. unused may be NULL. New reference; NULL:
 * memory is short. */
static json_t *table_rows(const mst_study *self, const json_t *table, mst_text_list *unused)
{
    json_t *rows = json_array(), *row, *one;
    size_t i, k;
    const char *step = mst_study_text(table, "step");
    if (step == NULL)
        table_inline_rows(self, table, rows);
    json_array_foreach(json_object_get(self->rows, step != NULL ? step : ""), i, row)
    {
        if (mst_study_row_matches(row, mst_study_text(table, "where")))
            json_array_append_new(rows, json_copy(row));
    }
    size_t own = json_array_size(rows);
    json_t *first = own > 0 ? json_copy(json_array_get(rows, 0)) : NULL; /* without published columns */
    json_array_foreach(json_object_get(table, "published"), i, one)
    {
        bool joined = false;
        for (k = 0; k < own; k++) {
            row = json_array_get(rows, k);
            if (!table_joins(row, one))
                continue;
            json_object_update_missing(row, one);
            joined = true;
        }
        if (!joined && own > 0 && unused != NULL) {
            mst_string key = {0};
            table_add_key(one, first, &key);
            if (!key.failed)
                mst_text_list_format(unused, "No row of this study belongs to the published row of %s.",
                                     key.text != NULL ? key.text : "");
            mst_string_fini(&key);
        }
        if (!joined)
            json_array_append_new(rows, json_copy(one));
    }
    json_decref(first);
    return rows;
}

static void table_add_cell(const mst_study *self, const json_t *row, const json_t *column, mst_sheet *out)
{
    const char *of = json_is_string(column) ? json_string_value(column) : mst_study_text(column, "of");
    const char *text = mst_study_text(row, of);
    mst_expr_scope scope = {.rows = self->rows,
                            .steps = json_object_get(self->spec, "steps"),
                            .values = json_object_get(self->spec, "values"),
                            .row = row};
    mst_expr_form form = mst_study_form(of, mst_study_text(column, "unit"));
    char figure[MST_FIGURE_SIZE], quoted[600];
    mst_string words = {0};
    double number;
    if (mst_expr_number(&scope, of, &number) == MST_OK) {
        mst_sheet_value(out, number, mst_expr_text(form, number, figure));
        return;
    }
    if (text == NULL) { /* an expression may be a text */
        snprintf(quoted, sizeof quoted, "{%s}", of);
        text = mst_expr_sentence(&scope, quoted, &words) == MST_OK ? words.text : NULL;
    }
    mst_sheet_text(out, text != NULL ? text : "");
    mst_string_fini(&words);
}

/* Whether a column is aligned right: one of its cells is a number, or all its texts begin with one ("5 s").
 */
static bool table_is_numeric(const mst_sheet *sheet, size_t column)
{
    bool number = false, digits = true;
    size_t n_texts = 0;
    for (size_t i = column; i < sheet->n_cells; i += sheet->n_columns) {
        const char *text = sheet->cells[i].text != NULL ? sheet->cells[i].text : "";
        number = number || !isnan(sheet->cells[i].value);
        digits = digits && (*text == '\0' || isdigit((unsigned char)*text));
        n_texts += *text != '\0';
    }
    return number || (digits && n_texts > 0);
}

static mst_status table_sheet(const mst_study *self, const json_t *table, mst_sheet *out)
{
    json_t *rows = table_rows(self, table, NULL), *row, *column;
    const json_t *columns = json_object_get(table, "columns");
    size_t i, k;
    *out = (mst_sheet){
        .title = mst_study_text(table, "title"), .key = "table", .note = mst_study_text(table, "note")};
    if (rows == NULL)
        return mst_fail_memory();
    json_array_foreach(columns, k, column)
    {
        const char *of = json_is_string(column) ? json_string_value(column) : mst_study_text(column, "of");
        const char *title = mst_study_text(column, "title");
        mst_sheet_column_add(out, title != NULL ? title : of, of, false);
    }
    json_array_foreach(rows, i, row)
    {
        json_array_foreach(columns, k, column)
        {
            table_add_cell(self, row, column, out);
        }
    }
    for (k = 0; k < out->n_columns; k++)
        out->columns[k].number = table_is_numeric(out, k);
    json_decref(rows);
    return out->failed ? mst_fail_memory() : MST_OK;
}

/* A value of size: as a text; the items of a list are separated by semicolons. */
static void report_add_value(const json_t *value, mst_sheet *out)
{
    mst_string text = {0};
    char number[MST_FIGURE_SIZE];
    size_t i;
    json_t *item;
    if (json_is_string(value))
        mst_string_add(&text, mst_study_grouped(json_string_value(value), number));
    json_array_foreach(value, i, item)
    {
        mst_string_add(&text, i > 0 ? "; " : "");
        mst_string_add(&text, mst_study_grouped(json_string_value(item), number));
    }
    mst_sheet_text(out, text.text);
    out->failed = out->failed || text.failed;
    mst_string_fini(&text);
}

/* The values of size: in use and those of the published size. */
static void report_size_sheet(const mst_study *self, mst_sheet *out)
{
    const json_t *used = json_object_get(self->spec, "used"), *full = json_object_get(self->spec, "full");
    const char *name;
    json_t *value;
    *out = (mst_sheet){.title = "Size", .key = "size"};
    mst_sheet_column_add(out, "", "name", false);
    mst_sheet_column_add(out, "this run", "used", true);
    mst_sheet_column_add(out, "with --full", "full", true);
    json_object_foreach((json_t *)used, name, value)
    {
        const json_t *other = json_object_get(full, name);
        if (strcmp(name, MST_STUDY_LINE) == 0)
            continue;
        mst_sheet_text(out, name);
        report_add_value(value, out);
        report_add_value(other != NULL ? other : json_object_get(json_object_get(self->spec, "size"), name),
                         out);
    }
}

/* A command in one line. */
static void report_add_command(const char *command, mst_sheet *out)
{
    mst_string text = {0};
    while (*command != '\0') {
        size_t n = strcspn(command, "\n");
        mst_string_format(&text, "%s%.*s", text.size > 0 && n > 0 ? "; " : "", (int)n, command);
        command += n + (command[n] != '\0');
    }
    mst_sheet_text(out, text.text);
    out->failed = out->failed || text.failed;
    mst_string_fini(&text);
}

static mst_status report_steps_sheet(const mst_study *self, mst_sheet *out)
{
    mst_study_cell *cells;
    size_t n;
    *out = (mst_sheet){.title = "Steps", .key = "steps"};
    mst_sheet_column_add(out, "step", "step", false);
    mst_sheet_column_add(out, "state", "state", false);
    mst_sheet_column_add(out, "time", "seconds", true);
    mst_sheet_column_add(out, "rows", "rows", true);
    mst_sheet_column_add(out, "command", "command", false);
    mst_sheet_column_add(out, "why", "why", false);
    TRY(mst_study_cells(self, &cells, &n));
    for (size_t i = 0; i < n; i++) {
        const json_t *known = json_object_get(json_object_get(self->state, "steps"), cells[i].key);
        const char *state = mst_study_text(known, "state"), *why = mst_study_text(known, "sentence");
        const json_t *seconds = json_object_get(known, "seconds");
        mst_sheet_text(out, cells[i].key);
        mst_sheet_text(out, mst_study_is_changed(self, &cells[i]) ? "outdated"
                            : state != NULL                       ? state
                                                                  : "not run");
        mst_sheet_seconds(out, seconds != NULL ? json_number_value(seconds) : NAN);
        mst_sheet_count(
            out, (double)json_array_size(json_object_get(self->rows, mst_study_text(cells[i].step, "name"))));
        report_add_command(cells[i].command, out);
        mst_sheet_text(out, why != NULL ? why : "");
    }
    mst_study_cells_free(cells, n);
    return out->failed ? mst_fail_memory() : MST_OK;
}

mst_status mst_study_unused(const mst_study *self, mst_text_list *out)
{
    size_t i;
    json_t *table;
    json_array_foreach(json_object_get(self->spec, "tables"), i, table)
    {
        json_t *rows = table_rows(self, table, out);
        if (rows == NULL)
            return mst_fail_memory();
        json_decref(rows);
    }
    const char *name;
    json_object_foreach(self->rows, name, table)
    {
        if (json_array_size(table) > 0)
            return MST_OK;
    }
    return mst_text_list_format(
        out, "No step recorded a row: the rows of a command are the JSON or CSV that it prints.");
}

/* ---- the two files ---- */

/* Both are written side by side: each text, table and plot goes to the page and to the Markdown. */
typedef struct report {
    const mst_study *study;
    mst_page page;
    mst_string markdown;
    size_t n_plots;
    json_t *plots; /* of the page's block; borrowed */
} report;

static void report_section(report *r, const char *id, const char *title)
{
    mst_page_section(&r->page, id, title);
    mst_string_add(&r->markdown, "## ");
    mst_string_markdown(&r->markdown, title);
    mst_string_add(&r->markdown, "\n\n");
}

static void report_text(report *r, const char *style, const char *label, const char *text)
{
    mst_page_text(&r->page, style, label, text);
    if (label != NULL)
        mst_string_format(&r->markdown, "**%s.** ", label);
    mst_string_markdown(&r->markdown, text);
    mst_string_add(&r->markdown, "\n\n");
}

static void report_command(report *r, const char *command)
{
    mst_page_command(&r->page, command);
    mst_string_format(&r->markdown, "```sh\n%s\n```\n\n", command);
}

/* A section of its own. */
static void report_sheet(report *r, const char *id, const mst_sheet *sheet)
{
    if (mst_sheet_rows(sheet) == 0)
        return;
    mst_page_section(&r->page, id, sheet->title);
    mst_page_sheet(&r->page, sheet, false);
    mst_sheet_markdown(sheet, &r->markdown);
}

static mst_status report_save(const report *r, const char *name, const mst_string *text)
{
    char *path = mst_sprintf("%s/%s", r->study->folder, name);
    mst_status st = path != NULL ? mst_string_save(text, path) : mst_fail_memory();
    mst_free(path);
    return st;
}

static mst_status report_add_plot(void *arg, const mst_plot *plot)
{
    report *r = arg;
    mst_string svg = {0};
    char name[32];
    snprintf(name, sizeof name, "plots/%zu.svg", ++r->n_plots);
    if (r->plots == NULL) {
        json_t *block = json_pack("{s:s, s:[]}", "kind", "plots", "plots");
        r->plots = json_object_get(block, "plots");
        report_section(r, "plots", "Plots");
        mst_page_block(&r->page, json_pack("{s:s}", "kind", "tools"));
        mst_page_block(&r->page, block);
    }
    if (json_array_append_new(r->plots, mst_plot_json(plot, NULL)) != 0)
        return mst_fail_memory();
    mst_plot_svg(plot, &svg);
    mst_status st = report_save(r, name, &svg);
    mst_string_fini(&svg);
    mst_string_add(&r->markdown, "![");
    mst_string_markdown(&r->markdown, plot->title);
    mst_string_format(&r->markdown, "](%s)\n\n", name);
    return st;
}

static void report_own_command(const mst_study *self, mst_string *out)
{
    mst_string_add(out, "muster study ");
    mst_string_shell(out, self->file);
    mst_string_add(out, self->full ? " --full" : "");
}

static void report_add_head(report *r, const char *conclusion, bool found)
{
    const json_t *spec = r->study->spec;
    mst_string command = {0};
    const char *published = mst_study_text(spec, "published");
    report_own_command(r->study, &command);
    mst_string_add(&r->markdown, "# ");
    mst_string_markdown(&r->markdown, mst_study_text(spec, "title"));
    mst_string_add(&r->markdown, "\n\n");
    report_text(r, "", "Question", mst_study_text(spec, "question"));
    report_text(r, found ? "verdict fine" : "warn", "Conclusion", conclusion);
    if (published != NULL)
        report_text(r, "sub", "Published", published);
    report_command(r, command.text != NULL ? command.text : "");
    r->page.failed = r->page.failed || command.failed;
    mst_string_fini(&command);
}

static mst_status report_add_results(report *r)
{
    size_t i;
    json_t *table;
    mst_status st = MST_OK;
    json_array_foreach(json_object_get(r->study->spec, "tables"), i, table)
    {
        mst_sheet sheet;
        mst_text_list unused = {0};
        char id[32];
        snprintf(id, sizeof id, "table-%zu", i + 1);
        st = table_sheet(r->study, table, &sheet);
        if (st == MST_OK)
            report_sheet(r, id, &sheet);
        mst_sheet_fini(&sheet);
        json_decref(table_rows(r->study, table, &unused));
        for (size_t k = 0; k < unused.n; k++)
            report_text(r, "sub", NULL, unused.items[k]);
        mst_text_list_fini(&unused);
        TRY(st);
    }
    return mst_study_plots(r->study, report_add_plot, r);
}

static mst_status report_add_rest(report *r)
{
    const json_t *spec = r->study->spec;
    const char *machine = mst_study_text(r->study->state, "machine");
    mst_sheet sheet;
    size_t i;
    json_t *text;
    report_section(r, "differs", "Differences from the published setting");
    json_array_foreach(json_object_get(spec, "differs"), i, text)
    {
        if (json_is_string(text))
            report_text(r, "", NULL, json_string_value(text));
    }
    if (machine != NULL)
        report_text(r, "", NULL, machine);
    report_size_sheet(r->study, &sheet);
    report_sheet(r, "size", &sheet);
    bool failed = sheet.failed;
    mst_sheet_fini(&sheet);
    sheet = (mst_sheet){0};
    mst_status st = failed ? mst_fail_memory() : report_steps_sheet(r->study, &sheet);
    if (st == MST_OK)
        report_sheet(r, "steps", &sheet);
    mst_sheet_fini(&sheet);
    return st;
}

mst_status mst_study_report_write(const mst_study *self)
{
    mst_status st;
    report r = {.study = self};
    mst_string conclusion = {0}, html = {0};
    bool found;
    char *plots = mst_sprintf("%s/plots", self->folder);
    mst_page_init(&r.page, mst_study_text(self->spec, "title"));
    TRY_OUT(st, plots != NULL ? mst_remove_tree(plots) : mst_fail_memory());
    TRY_OUT(st, mst_make_folders(plots));
    TRY_OUT(st, mst_study_conclusion(self, &conclusion, &found));
    report_add_head(&r, conclusion.text, found);
    mst_page_block(&r.page, json_pack("{s:s}", "kind", "nav"));
    TRY_OUT(st, report_add_results(&r));
    TRY_OUT(st, report_add_rest(&r));
    TRY_OUT(st, mst_page_html(&r.page, &html));
    TRY_OUT(st, report_save(&r, "report.html", &html));
    st = report_save(&r, "report.md", &r.markdown);
out:
    mst_page_fini(&r.page);
    mst_string_fini(&r.markdown);
    mst_string_fini(&conclusion);
    mst_string_fini(&html);
    mst_free(plots);
    return st;
}

mst_status mst_study_summary(const mst_study *self, unsigned number, mst_string *out)
{
    mst_string table = {0}, conclusion = {0};
    mst_sheet sheet = {0};
    bool found;
    const char *machine = mst_study_text(self->state, "machine");
    if (machine != NULL && (out->text == NULL || strstr(out->text, machine) == NULL)) {
        mst_string_markdown(out, machine);
        mst_string_add(out, "\n\n");
    }
    mst_string_format(out, "### %u. ", number);
    mst_string_markdown(out, mst_study_text(self->spec, "title"));
    mst_string_add(out, "\n`");
    report_own_command(self, out);
    mst_string_add(out, "`: ");
    mst_status st = mst_study_conclusion(self, &conclusion, &found);
    mst_string_markdown(out, conclusion.text != NULL ? conclusion.text : "");
    mst_string_add(out, "\n\n");
    mst_string_fini(&conclusion);
    TRY(st);
    st = table_sheet(self, json_array_get(json_object_get(self->spec, "tables"), 0), &sheet);
    if (st == MST_OK && mst_sheet_rows(&sheet) > 0) {
        sheet.title = "";
        sheet.note = NULL;
        mst_sheet_markdown(&sheet, &table);
        const char *lines = table.text != NULL ? strchr(table.text, '|') : NULL; /* without heading */
        mst_string_add(out, lines != NULL ? lines : "");
    }
    mst_sheet_fini(&sheet);
    mst_string_fini(&table);
    return st != MST_OK || !out->failed ? st : mst_fail_memory();
}
