/* Results of steps as rows; contract in study.h.
 *
 * A sweep's rows are those of its report.csv: one per configuration. A command's are its standard output:
 * JSON, or CSV with a line of names. Members of nested JSON objects have the names of both, joined by _. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "study/study.h"

#define RESULT_MAX  (64u << 20)
#define COLUMNS_MAX 512
#define ROWS_MAX    100000

void mst_study_column_name(char *name)
{
    for (; name != NULL && *name != '\0'; name++)
        if (*name == '-' || *name == ' ')
            *name = '_';
}

/* ---- CSV ---- */

/* The text of the next field, with quotes removed; *at is set behind it and its comma. *last: of its line. */
static char *rows_field(const char **at, const char *end, bool *last)
{
    mst_string out = {0};
    const char *p = *at;
    bool quoted = p < end && *p == '"';
    p += quoted;
    for (; p < end; p++) {
        if (quoted && *p == '"') {
            if (p + 1 < end && p[1] == '"')
                p++;
            else {
                quoted = false;
                continue;
            }
        } else if (!quoted && (*p == ',' || *p == '\n')) {
            break;
        }
        if (*p != '\r')
            mst_string_addn(&out, p, 1);
    }
    *last = p >= end || *p == '\n';
    *at = p < end ? p + 1 : p;
    char *text = mst_strdup(out.text != NULL ? out.text : "");
    mst_string_fini(&out);
    return text;
}

json_t *mst_study_cell_value(const char *text)
{
    char *end;
    double number = strtod(text, &end);
    if (end != text && *end == '\0' && isfinite(number) && !isspace((unsigned char)*text))
        return json_real(number);
    return json_string(text);
}

static mst_status rows_csv(const char *name, const char *text, size_t size, json_t *columns, json_t *out)
{
    mst_status st = MST_OK;
    const char *at = text, *end = text + size;
    mst_text_list names = {0};
    bool last = false;
    for (size_t k = 0; !last && st == MST_OK; k++)
        st = k < COLUMNS_MAX ? mst_text_list_take(&names, rows_field(&at, end, &last))
                             : mst_fail(MST_EINPUT, "%s: has more than %d columns", name, COLUMNS_MAX);
    for (size_t k = 0; st == MST_OK && k < names.n; k++) {
        mst_study_column_name(names.items[k]);
        if (columns != NULL && json_object_set_new(columns, names.items[k], json_null()) != 0)
            st = mst_fail(MST_EINPUT, "%s: is not valid UTF-8", name);
    }
    while (st == MST_OK && at < end) {
        json_t *row = json_object();
        size_t k = 0;
        for (last = false; !last && st == MST_OK; k++) {
            char *field = rows_field(&at, end, &last);
            if (field == NULL || row == NULL)
                st = mst_fail_memory();
            else if (k >= names.n)
                st = mst_fail(MST_EINPUT, "%s: row %zu has more fields than names", name,
                              json_array_size(out) + 1);
            else if (*field != '\0' &&
                     json_object_set_new(row, names.items[k], mst_study_cell_value(field)) != 0)
                st = mst_fail(MST_EINPUT, "%s: is not valid UTF-8", name);
            mst_free(field);
        }
        if (st == MST_OK && (json_array_size(out) == ROWS_MAX || json_array_append(out, row) != 0))
            st = mst_fail(MST_EINPUT, "%s: has more than %d rows", name, ROWS_MAX);
        json_decref(row);
    }
    mst_text_list_fini(&names);
    return st;
}

/* ---- JSON ---- */

/* Adds the members of an object, those of inner objects with both names. columns may be NULL. */
static void rows_flatten(const json_t *object, const char *prefix, int depth, json_t *columns, json_t *row)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        char *full = *prefix != '\0' ? mst_sprintf("%s_%s", prefix, name) : mst_strdup(name);
        mst_study_column_name(full);
        if (full != NULL && json_is_object(value) && depth < 4)
            rows_flatten(value, full, depth + 1, columns, row);
        else if (full != NULL && !json_is_array(value) && !json_is_object(value)) {
            if (columns != NULL)
                json_object_set_new(columns, full, json_null());
            if (!json_is_null(value))
                json_object_set(row, full, value);
        }
        mst_free(full);
    }
}

/* Adds an object, or the objects of an array, with the plain members of the object around it, which have
 * lower precedence. around may be NULL. */
static mst_status rows_add_json(const char *name, json_t *found, const json_t *around, json_t *columns,
                                json_t *out)
{
    size_t n = json_is_array(found) ? json_array_size(found) : found != NULL;
    for (size_t i = 0; i < n; i++) {
        json_t *row = json_object(), *outer = json_object();
        rows_flatten(json_is_array(found) ? json_array_get(found, i) : found, "", 0, columns, row);
        if (around != NULL)
            rows_flatten(around, "", 4, columns, outer);
        bool failed = row == NULL || json_object_update_missing(row, outer) != 0;
        bool full = json_array_size(out) >= ROWS_MAX;
        failed = failed || full || json_array_append(out, row) != 0;
        json_decref(row);
        json_decref(outer);
        if (failed)
            return full ? mst_fail(MST_EINPUT, "%s: has more than %d rows", name, ROWS_MAX)
                        : mst_fail_memory();
    }
    return MST_OK;
}

static mst_status rows_json(const char *name, const char *text, size_t size, const char *path,
                            json_t *columns, json_t *out)
{
    json_error_t error;
    json_t *root = json_loadb(text, size, 0, &error);
    if (root == NULL)
        return mst_fail(MST_EINPUT, "%s:%d: not valid JSON: %s", name, error.line, error.text);
    mst_status st = MST_OK;
    size_t n_found = 0;
    for (size_t i = 0; st == MST_OK && i < (json_is_array(root) ? json_array_size(root) : 1); i++) {
        json_t *whole = json_is_array(root) ? json_array_get(root, i) : root;
        json_t *found = path != NULL ? json_object_get(whole, path) : whole;
        n_found += found != NULL;
        st = rows_add_json(name, found, path != NULL ? whole : NULL, columns, out);
    }
    if (st == MST_OK && n_found == 0 && path != NULL)
        st = mst_fail(MST_EINPUT, "%s: has no %s", name, path);
    json_decref(root);
    return st;
}

mst_status mst_study_rows_parse(const char *name, const char *text, size_t size, const char *path,
                                json_t *columns, json_t **out)
{
    size_t first = 0;
    json_t *rows = json_array();
    if (rows == NULL)
        return mst_fail_memory();
    while (first < size && isspace((unsigned char)text[first]))
        first++;
    mst_status st = first == size ? MST_OK
                    : text[first] == '{' || text[first] == '['
                        ? rows_json(name, text, size, path, columns, rows)
                        : rows_csv(name, text + first, size - first, columns, rows);
    if (st == MST_OK)
        *out = json_incref(rows);
    json_decref(rows);
    return st;
}

/* ---- steps ---- */

void mst_study_rows_share(const char *sweep, json_t *rows)
{
    json_t *spec = json_loads(sweep, 0, NULL), *shared = json_object(), *row, *value;
    static const char *const parts[] = {"train", "for", "grid"};
    size_t i;
    const char *name;
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
        json_object_foreach(json_object_get(spec, parts[k]), name, value)
        {
            const json_t *one = json_array_size(value) == 1 ? json_array_get(value, 0) : value;
            char *own = json_is_string(one) ? mst_strdup(name) : NULL;
            mst_study_column_name(own);
            if (own != NULL)
                json_object_set_new(shared, own, mst_study_cell_value(json_string_value(one)));
            mst_free(own);
        }
    json_array_foreach(rows, i, row)
    {
        json_object_update_missing(row, shared);
    }
    json_decref(shared);
    json_decref(spec);
}

static mst_status rows_read_file(const char *file, const char *path, const json_t *labels, json_t *columns,
                                 json_t *into)
{
    char *text = NULL;
    size_t size, i;
    json_t *rows = NULL, *row;
    if (!mst_path_exists(file))
        return MST_OK;
    TRY(mst_file_read_all(file, RESULT_MAX, &text, &size));
    mst_status st = mst_study_rows_parse(file, text, size, path, columns, &rows);
    json_array_foreach(rows, i, row)
    {
        const char *name;
        json_t *label;
        json_object_foreach((json_t *)labels, name, label)
        {
            json_object_set_new(row, name, mst_study_cell_value(json_string_value(label)));
        }
        if (st == MST_OK && json_array_append(into, row) != 0)
            st = mst_fail_memory();
    }
    json_decref(rows);
    mst_free(text);
    return st;
}

/* Replaces the names of the lab's hosts at the begin of texts, which are those of namespaces, by "host 1". */
static void rows_name_hosts(const mst_study *self, json_t *rows)
{
    char lab[17];
    const char *name;
    size_t i, n;
    json_t *row, *cell;
    mst_study_lab_name(self->folder, lab);
    n = strlen(lab);
    for (i = 0; mst_study_hosts(self->spec) > 0 && i < json_array_size(rows); i++) {
        row = json_array_get(rows, i);
        json_object_foreach(row, name, cell)
        {
            const char *text = json_string_value(cell);
            if (text == NULL || strncmp(text, lab, n) != 0 || !isdigit((unsigned char)text[n]))
                continue;
            char *plain = mst_sprintf("host %s", text + n);
            json_string_set(cell, plain != NULL ? plain : "");
            mst_free(plain);
        }
    }
}

/* Sets wall_s of the rows that do not have it: the wall time of the command. */
static void rows_add_time(const mst_study *self, const mst_study_cell *cell, json_t *rows)
{
    const json_t *known = json_object_get(json_object_get(self->state, "steps"), cell->key);
    size_t i;
    json_t *row, *seconds = json_object_get(known, "seconds");
    json_array_foreach(rows, i, row)
    {
        if (seconds != NULL && json_object_get(row, "wall_s") == NULL)
            json_object_set(row, "wall_s", seconds);
    }
}

/* The rows of a step's command; a step without rows so far has no columns. */
static mst_status rows_read_cell(mst_study *self, const mst_study_cell *cell)
{
    const char *step = mst_study_text(cell->step, "name"), *sweep = mst_study_text(cell->step, "sweep"),
               *name;
    json_t *into = json_object_get(self->rows, step), *columns = json_object_get(self->columns, step);
    json_t *own = columns != NULL ? json_incref(columns) : json_object(), *value;
    char *file = sweep != NULL ? mst_sprintf("%s/%s/report.csv", self->folder, step)
                               : mst_sprintf("%s/out/%s.out", self->folder, cell->key);
    mst_status st = MST_OK;
    if (into == NULL && json_object_set_new(self->rows, step, into = json_array()) != 0)
        into = NULL;
    if (file == NULL || into == NULL || own == NULL)
        TRY_OUT(st, mst_fail_memory());
    if (sweep != NULL ? !mst_study_is_changed(self, cell) : mst_study_is_done(self, cell))
        TRY_OUT(st, rows_read_file(file, mst_study_text(cell->step, "rows"), cell->labels, own, into));
    if (sweep != NULL)
        mst_study_rows_share(sweep, into);
    else
        rows_add_time(self, cell, into);
    rows_name_hosts(self, into);
    if (json_array_size(into) > 0) {
        json_object_foreach(json_array_get(into, 0), name, value) /* labels and shared options */
        {
            if (json_object_get(own, name) == NULL)
                json_object_set_new(own, name, json_null());
        }
        json_object_set(self->columns, step, own);
    }
out:
    json_decref(own);
    mst_free(file);
    return st;
}

/* A step whose output cannot be read, with the line of the file. */
static mst_status rows_fail(const mst_study *self, const mst_study_cell *cell, mst_status st)
{
    mst_error error;
    if (st != MST_EINPUT)
        return st;
    mst_error_save(&error, st);
    return mst_fail(MST_EINPUT, "%s:%d: step %s: %s", self->file, mst_study_line(cell->step),
                    mst_study_text(cell->step, "name"), error.text);
}

mst_status mst_study_read_rows(mst_study *self)
{
    mst_study_cell *cells;
    size_t n;
    json_decref(self->rows);
    json_decref(self->columns);
    self->rows = json_object();
    self->columns = json_object();
    if (self->rows == NULL || self->columns == NULL)
        return mst_fail_memory();
    TRY(mst_study_cells(self, &cells, &n));
    mst_status st = MST_OK;
    for (size_t i = 0; i < n && st == MST_OK; i++)
        st = rows_fail(self, &cells[i], rows_read_cell(self, &cells[i]));
    mst_study_cells_free(cells, n);
    mst_study_known known = {.columns = self->columns, .rows = self->rows};
    return st == MST_OK ? mst_study_check(self->file, self->spec, &known) : st;
}

/* ---- selection ---- */

/* Whether a cell is that text; numbers are compared as numbers. */
static bool rows_is(const json_t *cell, const char *text)
{
    char *end;
    double wanted = strtod(text, &end);
    bool is_number = end != text && *end == '\0';
    if (json_is_number(cell))
        return is_number && json_number_value(cell) == wanted;
    if (json_is_boolean(cell))
        return strcmp(text, json_is_true(cell) ? "true" : "false") == 0;
    return json_is_string(cell) && strcmp(json_string_value(cell), text) == 0;
}

/* Copies n characters without blanks at both ends. False: they do not fit. */
static bool rows_trim(const char *text, size_t n, char *out, size_t size)
{
    for (; n > 0 && isspace((unsigned char)*text); n--)
        text++;
    while (n > 0 && isspace((unsigned char)text[n - 1]))
        n--;
    return snprintf(out, size, "%.*s", (int)n, text) < (int)size;
}

bool mst_study_where_next(const char **where, mst_study_condition *out)
{
    const char *at = *where + strspn(*where, " ,\n\t");
    size_t n = strcspn(at, ","), equals = strcspn(at, "=~");
    *where = at;
    if (equals >= n || !rows_trim(at, equals, out->column, sizeof out->column) ||
        !rows_trim(at + equals + 1, n - equals - 1, out->value, sizeof out->value))
        return false;
    mst_study_column_name(out->column);
    out->contained = at[equals] == '~';
    *where = at + n;
    return true;
}

bool mst_study_condition_holds(const mst_study_condition *condition, const json_t *cell)
{
    if (condition->contained)
        return json_is_string(cell) && strstr(json_string_value(cell), condition->value) != NULL;
    return rows_is(cell, condition->value);
}

bool mst_study_row_matches(const json_t *row, const char *where)
{
    mst_study_condition c;
    while (where != NULL && mst_study_where_next(&where, &c))
        if (!mst_study_condition_holds(&c, json_object_get(row, c.column)))
            return false;
    return where == NULL || *where == '\0';
}
