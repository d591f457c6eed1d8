/* Checks the values, names and expressions of a study's file, the latter against its rows; contract in
 * study.h.
 *
 * The check runs twice. Before the first step, the columns of sweeps and the values of their axes are known
 * from the file. After a step, its rows are known. Names in the rows of other steps pass. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "study/study.h"
#include "study/study_expr.h"
#include "study/study_report_impl.h"
#include "sweep/sweep_report.h"

/* ---- columns of sweeps ---- */

/* Sets a column and adds a value to those it can have; value may be NULL: it can have any. name may be NULL:
 * memory is short. False: so it is. */
static bool check_add(json_t *columns, const char *name, const char *value)
{
    char *own = name != NULL ? mst_strdup(name) : NULL;
    mst_study_column_name(own);
    json_t *values = own != NULL ? json_object_get(columns, own) : NULL;
    bool fine = own != NULL;
    if (fine && values == NULL)
        fine = json_object_set_new(columns, own, values = value != NULL ? json_array() : json_null()) == 0;
    if (fine && value != NULL && json_is_array(values))
        fine = json_array_append_new(values, mst_study_cell_value(value)) == 0;
    mst_free(own);
    return fine;
}

/* Columns of a sweep's report.csv and of mst_study_rows_share. text: the file of the sweep. */
static mst_status check_sweep(const char *text, json_t *columns)
{
    static const char *const parts[] = {"train", "for", "grid"};
    json_t *sweep = json_loads(text, 0, NULL), *spec = NULL, *value, *one;
    const char *name;
    mst_string fixed = {0};
    size_t i;
    mst_status st = mst_sweep_spec_parse("", text, strlen(text), &spec);
    bool fine = sweep != NULL && check_add(columns, "configuration", NULL);
    mst_sweep_report_columns(&fixed);
    for (char *at = fixed.text; at != NULL && *at != '\0';) {
        size_t n = strcspn(++at, ",");
        char *column = mst_sprintf("%.*s", (int)n, at);
        fine = check_add(columns, column, NULL) && fine;
        mst_free(column);
        at += n;
    }
    for (size_t k = 0; k < sizeof parts / sizeof *parts; k++)
        json_object_foreach(json_object_get(sweep, parts[k]), name, value)
        {
            one = json_array_size(value) == 1 ? json_array_get(value, 0) : value;
            if (json_is_string(one))
                fine = check_add(columns, name, json_string_value(one)) && fine;
        }
    json_object_foreach(json_object_get(spec, "grid"), name, value)
    {
        for (i = 0; json_array_size(value) > 1 && i < json_array_size(value); i++)
            fine = check_add(columns, name, mst_study_text(json_array_get(value, i), "label")) && fine;
    }
    if (st == MST_OK && (fixed.failed || !fine))
        st = mst_fail_memory();
    mst_string_fini(&fixed);
    json_decref(sweep);
    json_decref(spec);
    return st;
}

json_t *mst_study_sweep_columns(const json_t *spec)
{
    json_t *all = json_object(), *step;
    size_t i;
    json_array_foreach(json_object_get(spec, "steps"), i, step)
    {
        const char *text = mst_study_text(step, "sweep");
        json_t *columns = json_object();
        if (text != NULL && (check_sweep(text, columns) != MST_OK ||
                             json_object_set(all, mst_study_text(step, "name"), columns) != 0)) {
            json_decref(columns);
            json_decref(all);
            return NULL;
        }
        json_decref(columns);
    }
    return all;
}

/* ---- columns and conditions ---- */

mst_status mst_study_check_column(const mst_study_known *known, const char *step, const char *column)
{
    const json_t *columns = json_object_get(known->columns, step);
    if (columns == NULL || json_object_get(columns, column) != NULL)
        return MST_OK;
    return mst_fail(MST_EUSAGE, "step %s has no column %s", step, column);
}

/* Whether a value of the column, as far as they are known, fulfils the condition. */
static bool check_holds(const json_t *values, const mst_study_condition *c)
{
    size_t i;
    json_t *value;
    bool holds = !json_is_array(values);
    json_array_foreach(values, i, value)
    {
        holds = holds || mst_study_condition_holds(c, value);
    }
    return holds;
}

mst_status mst_study_check_where(const mst_study_known *known, const char *step, const char *where)
{
    const json_t *columns = json_object_get(known->columns, step), *rows = json_object_get(known->rows, step);
    const char *at = where != NULL ? where : "";
    mst_study_condition c;
    size_t i;
    json_t *row;
    while (mst_study_where_next(&at, &c)) {
        TRY(mst_study_check_column(known, step, c.column));
        if (columns != NULL && !known->any_value && !check_holds(json_object_get(columns, c.column), &c))
            return mst_fail(MST_EUSAGE, "no row of step %s has %s%c%s", step, c.column,
                            c.contained ? '~' : '=', c.value);
    }
    if (*at != '\0')
        return mst_fail(MST_EUSAGE, "%s: is not a condition like mode=sync or host~training", at);
    bool found = known->any_value || json_array_size(rows) == 0;
    json_array_foreach(rows, i, row)
    {
        found = found || mst_study_row_matches(row, where);
    }
    return found ? MST_OK : mst_fail(MST_EUSAGE, "no row of step %s has %s", step, where);
}

/* ---- the parts of the file ---- */

typedef struct checker {
    const char *path;
    mst_expr_scope scope; /* of expressions outside of rows */
} checker;

/* A failure with file, line and key. */
static mst_status check_at(const checker *c, int line, const char *key, mst_status st)
{
    mst_error error;
    if (st == MST_OK || st == MST_ENOMEM)
        return st;
    mst_error_save(&error, st);
    return mst_fail(MST_EUSAGE, "%s:%d: %s: %s", c->path, line, key, error.text);
}

static mst_status check_sentence(const checker *c, const json_t *mapping, const char *key)
{
    mst_string out = {0};
    mst_status st = mst_expr_sentence(&c->scope, mst_study_text(mapping, key), &out);
    mst_string_fini(&out);
    return check_at(c, mst_study_line_of(mapping, key), key, st);
}

static mst_status check_where(const checker *c, const json_t *one)
{
    return check_at(
        c, mst_study_line_of(one, "where"), "where",
        mst_study_check_where(c->scope.known, mst_study_text(one, "step"), mst_study_text(one, "where")));
}

/* ---- plain values ---- */

#define CHECK_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

/* The value of a key, if the mapping has it, must be a number above 0; zero: 0 is allowed, too. */
static mst_status check_number(const checker *c, const json_t *mapping, const char *key, bool zero)
{
    const char *text = mst_study_text(mapping, key);
    char *end = NULL;
    double number = text != NULL ? strtod(text, &end) : 0;
    if (text == NULL || (end != text && *end == '\0' && number >= 0 && number < 1e9 && (zero || number > 0)))
        return MST_OK;
    return mst_fail(MST_EUSAGE, "%s:%d: %s: %s: must be a number %s", c->path,
                    mst_study_line_of(mapping, key), key, text, zero ? "of 0 or more" : "above 0");
}

/* needs: is a word or a list of words. */
static mst_status check_needs(const checker *c, const json_t *spec)
{
    const json_t *needs = json_object_get(spec, "needs");
    size_t n = json_is_array(needs) ? json_array_size(needs) : 1;
    for (size_t i = 0; needs != NULL && i < n; i++) {
        const char *word = json_string_value(json_is_array(needs) ? json_array_get(needs, i) : needs);
        if (word == NULL || strcmp(word, "mpi") != 0)
            return mst_fail(MST_EUSAGE, "%s:%d: needs: %s: must be mpi, the only value", c->path,
                            mst_study_line_item(spec, "needs", i), word != NULL ? word : "a mapping");
    }
    return MST_OK;
}

static mst_status check_kill(const checker *c, const json_t *kill)
{
    const char *signal = mst_study_text(kill, "signal");
    TRY(check_number(c, kill, "after", true));
    if (signal != NULL && strcmp(signal, "KILL") != 0 && strcmp(signal, "STOP") != 0 &&
        strcmp(signal, "TERM") != 0)
        return mst_fail(MST_EUSAGE, "%s:%d: kill: signal: %s: not one of KILL, STOP, TERM", c->path,
                        mst_study_line_of(kill, "signal"), signal);
    return MST_OK;
}

/* Whether the command sets the variable: NAME=VALUE, for NAME, read NAME. */
static bool check_is_assigned(const char *command, const char *name)
{
    size_t n = strlen(name);
    bool takes_names = false;
    while (*command != '\0') {
        size_t blank = strspn(command, " \t\n;&|(){}`"), word;
        if (memchr(command, '\n', blank) != NULL || memchr(command, ';', blank) != NULL)
            takes_names = false;
        command += blank;
        word = strcspn(command, " \t\n;&|(){}`");
        if (word >= n && strncmp(command, name, n) == 0 && (command[n] == '=' || (takes_names && word == n)))
            return true;
        takes_names = takes_names || (word == 3 && strncmp(command, "for", 3) == 0) ||
                      (word == 4 && strncmp(command, "read", 4) == 0);
        command += word;
    }
    return false;
}

/* A place in a command. */
typedef struct shell_text {
    const char *at;
    char quote;  /* the open quotation mark; 0: none */
    char before; /* the character before `at`; a blank at the start */
} shell_text;

/* The next $NAME or ${NAME} that the shell would replace, without those that have a value for the case that
 * there is none (${NAME:-0}). False: none is left. */
static bool check_next_name(shell_text *t, char name[64])
{
    for (; *t->at != '\0'; t->before = *t->at++) {
        if (*t->at == '\\' && t->quote != '\'' && t->at[1] != '\0') {
            t->at++;
        } else if (*t->at == t->quote) {
            t->quote = '\0';
        } else if (t->quote == '\0' && (*t->at == '\'' || *t->at == '"')) {
            t->quote = *t->at;
        } else if (t->quote == '\0' && *t->at == '#' && strchr(" \t\n;", t->before) != NULL) {
            t->at += strcspn(t->at, "\n") - 1; /* a comment */
        } else if (*t->at == '$' && t->quote != '\'') {
            const char *from = t->at + 1 + (t->at[1] == '{');
            size_t n = strspn(from, CHECK_LETTERS);
            if (n > 0 && n < 64 && !isdigit((unsigned char)*from) && (t->at[1] != '{' || from[n] == '}')) {
                memcpy(name, from, n);
                name[n] = '\0';
                t->at = from + n;
                t->before = name[n - 1];
                return true;
            }
        }
    }
    return false;
}

/* A $NAME of a command is a name of size: (replaced already) or each:, or a variable of the shell. A here
 * document is not checked. */
static mst_status check_command(const checker *c, const json_t *step)
{
    const char *command = mst_study_text(step, "run");
    shell_text text = {.at = command, .before = ' '};
    char name[64];
    if (command == NULL || strstr(command, "<<") != NULL)
        return MST_OK;
    while (check_next_name(&text, name))
        if (json_object_get(json_object_get(step, "each"), name) == NULL && getenv(name) == NULL &&
            strcmp(name, "PWD") != 0 && strcmp(name, "PPID") != 0 && strcmp(name, "IFS") != 0 &&
            !check_is_assigned(command, name))
            return mst_fail(MST_EUSAGE,
                            "%s:%d: run: $%s: neither a name of size: or each:, nor a variable that the "
                            "command or the environment sets",
                            c->path, mst_study_line_of(step, "run"), name);
    return MST_OK;
}

/* A $NAME in the run: of a kill is a name of each:. */
static mst_status check_kill_run(const checker *c, const json_t *step, const json_t *kill)
{
    shell_text text = {.at = mst_study_text(kill, "run"), .before = ' '};
    char name[64];
    while (check_next_name(&text, name))
        if (json_object_get(json_object_get(step, "each"), name) == NULL)
            return mst_fail(MST_EUSAGE,
                            "%s:%d: kill: run: $%s: neither a name of size: nor of each:", c->path,
                            mst_study_line_of(kill, "run"), name);
    return MST_OK;
}

/* A name of each: has a value or a list of values; with an empty list the step would have no command. */
static mst_status check_each(const checker *c, const json_t *step)
{
    json_t *each = json_object_get(step, "each"), *values;
    const char *name;
    json_object_foreach(each, name, values)
    {
        size_t n = json_is_array(values) ? json_array_size(values) : 1;
        bool fine = n > 0;
        if (strcmp(name, MST_STUDY_LINE) == 0)
            continue;
        for (size_t i = 0; i < n; i++)
            fine = fine && json_is_string(json_is_array(values) ? json_array_get(values, i) : values);
        if (!fine)
            return mst_fail(MST_EUSAGE, "%s:%d: each: %s: must be a list of one or more values", c->path,
                            mst_study_line_of(each, name), name);
    }
    return MST_OK;
}

static mst_status check_step(const checker *c, const json_t *step)
{
    static const char *const of_run[] = {"each", "rows"};
    const json_t *kill = json_object_get(step, "kill");
    for (size_t i = 0; i < sizeof of_run / sizeof *of_run; i++)
        if (mst_study_text(step, "sweep") != NULL && json_object_get(step, of_run[i]) != NULL)
            return mst_fail(MST_EUSAGE, "%s:%d: steps: %s: has no effect on a sweep", c->path,
                            mst_study_line_of(step, of_run[i]), of_run[i]);
    TRY(check_number(c, step, "timeout", false));
    TRY(check_each(c, step));
    TRY(check_command(c, step));
    if (kill == NULL)
        return MST_OK;
    TRY(check_kill(c, kill));
    return check_kill_run(c, step, kill);
}

/* ---- tables and plots ---- */

/* An expression over a row whose columns are these; NULL: any. */
static mst_status check_in_row(const checker *c, const json_t *columns, const char *text)
{
    mst_expr_scope scope = c->scope;
    if (columns != NULL && json_object_get(columns, text) != NULL)
        return MST_OK; /* a name that is no expression, like rows/s */
    scope.columns = columns;
    scope.any_column = columns == NULL;
    return mst_expr_check(&scope, text);
}

/* Whether an expression names the column. */
static bool check_is_named(const char *text, const char *column)
{
    size_t n = strlen(column);
    for (const char *at = strstr(text, column); at != NULL; at = strstr(at + 1, column))
        if ((at == text || strchr(CHECK_LETTERS, at[-1]) == NULL) &&
            (at[n] == '\0' || strchr(CHECK_LETTERS, at[n]) == NULL))
            return true;
    return false;
}

static const char *check_column_of(const json_t *column)
{
    return json_is_string(column) ? json_string_value(column) : mst_study_text(column, "of");
}

/* Columns that compute with a published value need a number there; a text would leave them empty. */
static mst_status check_published_numbers(const checker *c, const json_t *table, const json_t *columns,
                                          const json_t *published, int line)
{
    mst_expr_scope scope = c->scope;
    json_t *all = columns != NULL ? json_copy((json_t *)columns) : json_object(), *column;
    size_t i;
    mst_status st =
        all != NULL && json_object_update(all, (json_t *)published) == 0 ? MST_OK : mst_fail_memory();
    scope.columns = all;
    scope.any_column = columns == NULL;
    json_array_foreach(json_object_get(table, "columns"), i, column)
    {
        const char *of = check_column_of(column);
        if (st == MST_OK && json_object_get(all, of) == NULL) /* else a name that is no expression */
            st = check_at(c, line, "published", mst_expr_check(&scope, of));
    }
    json_decref(all);
    return st;
}

/* The names of published: are columns of the rows, which say where a figure belongs, or those of figures that
 * the table shows. */
static mst_status check_published(const checker *c, const json_t *table, const json_t *columns)
{
    size_t i, k;
    json_t *one, *value, *column;
    const char *name;
    json_array_foreach(json_object_get(table, "published"), i, one)
    {
        size_t n_keys = 0;
        int line = mst_study_line_item(table, "published", i);
        if (!json_is_object(one))
            return mst_fail(MST_EUSAGE, "%s:%d: published: must be a mapping", c->path, line);
        json_object_foreach(one, name, value)
        {
            bool known = columns == NULL || json_object_get(columns, name) != NULL;
            if (strcmp(name, MST_STUDY_LINE) == 0)
                continue;
            n_keys += known;
            json_array_foreach(json_object_get(table, "columns"), k, column)
            {
                known = known || check_is_named(check_column_of(column), name);
            }
            if (!known)
                return mst_fail(MST_EUSAGE,
                                "%s:%d: published: %s: neither a column of the rows nor shown by the table",
                                c->path, mst_study_line_of(one, name), name);
            if (!json_is_string(value))
                return mst_fail(MST_EUSAGE, "%s:%d: published: %s: must be a single value", c->path,
                                mst_study_line_of(one, name), name);
        }
        if (n_keys == 0)
            return mst_fail(MST_EUSAGE,
                            "%s:%d: published: names no column of the rows, so it belongs to none", c->path,
                            line);
    }
    return MST_OK;
}

/* The columns of a table's own rows. New reference. */
static json_t *check_inline_columns(const json_t *table)
{
    json_t *columns = json_object(), *row, *cell;
    const char *name;
    size_t i;
    json_array_foreach(json_object_get(table, "rows"), i, row)
    {
        json_object_foreach(row, name, cell)
        {
            json_object_set_new(columns, name, json_null()); /* a text with expressions may be a number */
        }
    }
    json_object_del(columns, MST_STUDY_LINE);
    return columns;
}

/* Columns and published: of a table; columns: of its rows, NULL: not known. */
static mst_status check_columns(const checker *c, const json_t *table, json_t *columns)
{
    size_t i;
    json_t *one, *value;
    const char *name;
    TRY(check_published(c, table, columns));
    json_array_foreach(json_object_get(table, "published"), i, one)
    {
        json_object_foreach(one, name, value)
        {
            if (columns != NULL && json_object_get(columns, name) == NULL)
                json_object_set_new(columns, name, json_null());
        }
    }
    json_array_foreach(json_object_get(table, "columns"), i, one)
    {
        int line =
            json_is_string(one) ? mst_study_line_item(table, "columns", i) : mst_study_line_of(one, "of");
        TRY(check_at(c, line, "columns", check_in_row(c, columns, check_column_of(one))));
    }
    json_array_foreach(json_object_get(table, "published"), i, one)
    {
        TRY(check_published_numbers(c, table, columns, one, mst_study_line_item(table, "published", i)));
    }
    return MST_OK;
}

static mst_status check_table(const checker *c, const json_t *table)
{
    const char *step = mst_study_text(table, "step"), *name;
    const json_t *known = step != NULL ? json_object_get(c->scope.known->columns, step) : NULL;
    json_t *columns = step == NULL    ? check_inline_columns(table)
                      : known != NULL ? json_copy((json_t *)known)
                                      : NULL;
    json_t *row, *cell;
    size_t i;
    mst_status st = MST_OK;
    if (columns == NULL && (step == NULL || known != NULL))
        return mst_fail_memory();
    if (step != NULL)
        TRY_OUT(st, check_where(c, table));
    TRY_OUT(st, check_columns(c, table, columns));
    json_array_foreach(json_object_get(table, "rows"), i, row)
    {
        json_object_foreach(row, name, cell)
        {
            if (json_is_string(cell))
                TRY_OUT(st, check_sentence(c, row, name));
        }
    }
out:
    json_decref(columns);
    return st;
}

/* by: is a list of columns, split at commas. */
static mst_status check_by(const checker *c, const json_t *plot)
{
    const char *by = mst_study_text(plot, "by"), *step = mst_study_text(plot, "step");
    mst_status st = MST_OK;
    while (by != NULL && st == MST_OK && *(by += strspn(by, " ,")) != '\0') {
        size_t n = strcspn(by, " ,");
        char *column = mst_sprintf("%.*s", (int)n, by);
        st = column != NULL ? mst_study_check_column(c->scope.known, step, column) : mst_fail_memory();
        mst_free(column);
        by += n;
    }
    return check_at(c, mst_study_line_of(plot, "by"), "by", st);
}

static mst_status check_plot(const checker *c, const json_t *plot)
{
    static const char *const axes[] = {"x", "y"};
    const json_t *columns = json_object_get(c->scope.known->columns, mst_study_text(plot, "step"));
    for (size_t k = 0; k < sizeof axes / sizeof *axes; k++)
        if (mst_study_text(plot, axes[k]) != NULL)
            TRY(check_at(c, mst_study_line_of(plot, axes[k]), axes[k],
                         check_in_row(c, columns, mst_study_text(plot, axes[k]))));
    TRY(mst_study_plot_check(c->path, plot));
    if (mst_study_text(plot, "load") != NULL && mst_study_text(plot, "run") == NULL)
        return mst_fail(MST_EUSAGE, "%s:%d: load: needs run:, the folder of a run", c->path,
                        mst_study_line_of(plot, "load"));
    TRY(check_where(c, plot));
    return check_by(c, plot);
}

/* Whether --set has replaced values of size:. */
static bool check_is_set(const json_t *spec)
{
    const json_t *used = json_object_get(spec, "used"), *full = json_object_get(spec, "full");
    json_t *size = json_object_get(spec, "size"), *all = size != NULL ? json_copy(size) : json_object();
    if (full != NULL)
        json_object_update(all, (json_t *)full);
    bool set = used != NULL && !json_equal(used, all) && size != NULL && !json_equal(used, size);
    json_decref(all);
    return set;
}

mst_status mst_study_check(const char *path, const json_t *spec, const mst_study_known *from)
{
    mst_study_known own = {.columns = from->columns, .rows = from->rows, .any_value = check_is_set(spec)};
    const mst_study_known *known = &own;
    checker c = {.path = path,
                 .scope = {.steps = json_object_get(spec, "steps"),
                           .values = json_object_get(spec, "values"),
                           .known = known}};
    size_t i;
    const char *name;
    json_t *one;
    TRY(check_needs(&c, spec));
    TRY(check_number(&c, spec, "minutes", false));
    json_array_foreach(c.scope.steps, i, one)
    {
        TRY(check_step(&c, one));
    }
    json_object_foreach((json_t *)c.scope.values, name, one)
    {
        if (strcmp(name, MST_STUDY_LINE) == 0)
            continue;
        int line = mst_study_line_of(c.scope.values, name);
        if (!json_is_string(one))
            return mst_fail(MST_EUSAGE, "%s:%d: values: %s: must be an expression", path, line, name);
        TRY(check_at(&c, line, name, mst_expr_check(&c.scope, json_string_value(one))));
    }
    json_array_foreach(json_object_get(spec, "tables"), i, one)
    {
        TRY(check_table(&c, one));
    }
    json_array_foreach(json_object_get(spec, "plots"), i, one)
    {
        TRY(check_plot(&c, one));
    }
    json_array_foreach(json_object_get(spec, "conclusion"), i, one)
    {
        if (mst_study_text(one, "when") != NULL)
            TRY(check_at(&c, mst_study_line_of(one, "when"), "when",
                         mst_expr_check(&c.scope, mst_study_text(one, "when"))));
        TRY(check_sentence(&c, one, "sentence"));
    }
    return MST_OK;
}
