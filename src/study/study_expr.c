/* Expressions over rows; contract in study_expr.h.
 *
 * A recursive descent that computes while it reads. Numbers keep the row that they came from, so that argmin
 * can name another column of it. */
#include "study/study_expr.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "study/study.h"

#define DEPTH_MAX 24
#define NAME_MAX_ 64
#define WORK_MAX  100000 /* values in one expression, with those of the values: that it names */

/* ---- units ---- */

bool mst_expr_unit(const char *name, mst_expr_form *out)
{
    mst_expr_form form = {MST_FIGURE_PLAIN, -1};
    bool found = name == NULL;
    if (name != NULL && isdigit((unsigned char)name[0]) && name[1] == '\0') {
        form.decimals = name[0] - '0';
        found = true;
    }
    for (int u = 0; !found && u <= MST_FIGURE_CORES; u++)
        if (strcmp(mst_figure_unit_name((mst_figure_unit)u), name) == 0) {
            form.unit = (mst_figure_unit)u;
            found = true;
        }
    if (found && out != NULL)
        *out = form;
    return found;
}

const char *mst_expr_text(mst_expr_form form, double value, char *out)
{
    if (form.decimals >= 0 && isfinite(value))
        snprintf(out, MST_FIGURE_SIZE, "%.*f", form.decimals, value);
    else if (form.unit == MST_FIGURE_SHARE)
        mst_figure_precise(value, out);
    else if (form.unit == MST_FIGURE_PLAIN && value == rint(value) && fabs(value) >= 1000)
        mst_figure_count(value, out);
    else
        mst_figure_text(form.unit, value, out);
    return out;
}

/* ---- values ---- */

typedef struct value {
    char *text; /* of a text; NULL: numbers */
    double *numbers;
    const json_t **rows; /* of each number; NULL entries: none */
    size_t n;
    char step[NAME_MAX_]; /* when checking: of the rows; "": none */
} value;

static void value_fini(value *v)
{
    mst_free(v->text);
    mst_free(v->numbers);
    mst_free(v->rows);
    *v = (value){0};
}

static mst_status value_alloc(value *v, size_t n)
{
    *v = (value){
        .n = n, .numbers = mst_calloc(n + 1, sizeof *v->numbers), .rows = mst_calloc(n + 1, sizeof *v->rows)};
    if (v->numbers != NULL && v->rows != NULL)
        return MST_OK;
    value_fini(v);
    return mst_fail_memory();
}

static mst_status value_set(value *v, double number)
{
    TRY(value_alloc(v, 1));
    v->numbers[0] = number;
    return MST_OK;
}

static mst_status value_set_text(value *v, const char *text)
{
    *v = (value){.text = mst_strdup(text)};
    return v->text != NULL ? MST_OK : mst_fail_memory();
}

/* ---- reading ---- */

typedef struct reader {
    const mst_expr_scope *scope;
    const char *text, *at;
    int depth;
    size_t *work;
} reader;

static mst_status expr_syntax(const reader *r, const char *what)
{
    return mst_fail(MST_EUSAGE, "\"%s\": %s at character %zu", r->text, what, (size_t)(r->at - r->text) + 1);
}

static void expr_blanks(reader *r)
{
    while (isspace((unsigned char)*r->at))
        r->at++;
}

static bool expr_takes(reader *r, const char *word)
{
    expr_blanks(r);
    size_t n = strlen(word);
    if (strncmp(r->at, word, n) != 0 ||
        (isalpha((unsigned char)word[0]) && (isalnum((unsigned char)r->at[n]) || r->at[n] == '_')))
        return false;
    r->at += n;
    return true;
}

static bool expr_name(reader *r, char out[NAME_MAX_])
{
    size_t n = 0;
    expr_blanks(r);
    if (!isalpha((unsigned char)*r->at) && *r->at != '_')
        return false;
    while (n + 1 < NAME_MAX_ && (isalnum((unsigned char)*r->at) || *r->at == '_'))
        out[n++] = *r->at++;
    out[n] = '\0';
    return true;
}

static mst_status expr_or(reader *r, value *out);

/* A cell as a number; NAN: it is a text or missing. */
static double expr_cell(const json_t *row, const char *column)
{
    const json_t *cell = json_object_get(row, column);
    const char *text = json_string_value(cell);
    char *end;
    if (json_is_number(cell))
        return json_number_value(cell);
    if (json_is_boolean(cell))
        return json_is_true(cell);
    if (text == NULL || *text == '\0')
        return NAN;
    double number = strtod(text, &end);
    return *end == '\0' ? number : NAN;
}

static mst_status expr_cell_text(const json_t *row, const char *column, value *out)
{
    const json_t *cell = json_object_get(row, column);
    char text[MST_FIGURE_SIZE];
    if (json_is_string(cell))
        return value_set_text(out, json_string_value(cell));
    double number = expr_cell(row, column);
    if (isnan(number))
        return mst_fail(MST_EINPUT, "a row has no column %s", column);
    return value_set_text(out, mst_expr_text((mst_expr_form){MST_FIGURE_PLAIN, -1}, number, text));
}

static bool expr_is_step(const reader *r, const char *name)
{
    size_t i;
    json_t *step;
    json_array_foreach(r->scope->steps, i, step)
    {
        if (strcmp(mst_study_text(step, "name"), name) == 0)
            return true;
    }
    return false;
}

/* STEP.column or STEP[where].column, after the name of the step. */
static mst_status expr_select(reader *r, const char *step, value *out)
{
    char *where = NULL, column[NAME_MAX_];
    mst_status st = MST_OK;
    size_t i, n = 0;
    json_t *row;
    if (expr_takes(r, "[")) {
        size_t length = strcspn(r->at, "]");
        if (r->at[length] == '\0')
            return expr_syntax(r, "a ] is missing");
        where = mst_sprintf("%.*s", (int)length, r->at);
        r->at += length + 1;
        if (where == NULL)
            return mst_fail_memory();
    }
    if (!expr_takes(r, ".") || !expr_name(r, column))
        TRY_OUT(st, expr_syntax(r, "the column is missing: STEP[where].column"));
    if (r->scope->rows == NULL) {
        TRY_OUT(st, mst_study_check_where(r->scope->known, step, where));
        TRY_OUT(st, mst_study_check_column(r->scope->known, step, column));
        st = value_set(out, 1);
        snprintf(out->step, sizeof out->step, "%s", step);
        goto out;
    }
    const json_t *rows = json_object_get(r->scope->rows, step);
    TRY_OUT(st, value_alloc(out, json_array_size(rows)));
    json_array_foreach(rows, i, row)
    {
        double number = mst_study_row_matches(row, where) ? expr_cell(row, column) : NAN;
        if (isnan(number))
            continue;
        out->numbers[n] = number;
        out->rows[n++] = row;
    }
    out->n = n;
    if (n == 0) {
        value_fini(out);
        st = mst_fail(MST_EINPUT, "step %s has no figure %s%s%s", step, column,
                      where != NULL ? " where " : "", where != NULL ? where : "");
    }
out:
    mst_free(where);
    return st;
}

/* ---- functions ---- */

static mst_status expr_one(const reader *r, const value *v, double *out)
{
    if (v->text != NULL)
        return mst_fail(MST_EUSAGE, "\"%s\": the text %s is not a number", r->text, v->text);
    if (v->n != 1)
        return mst_fail(MST_EUSAGE,
                        "\"%s\": %zu rows match where one is needed; select one, or use min, max or mean",
                        r->text, v->n);
    *out = v->numbers[0];
    return MST_OK;
}

static double expr_reduce(const char *name, const value *v)
{
    double low = INFINITY, high = -INFINITY, sum = 0;
    for (size_t i = 0; i < v->n; i++) {
        low = fmin(low, v->numbers[i]);
        high = fmax(high, v->numbers[i]);
        sum += v->numbers[i];
    }
    return strcmp(name, "min") == 0      ? low
           : strcmp(name, "max") == 0    ? high
           : strcmp(name, "sum") == 0    ? sum
           : strcmp(name, "count") == 0  ? (double)v->n
           : strcmp(name, "spread") == 0 ? high / low
                                         : sum / (double)v->n;
}

/* The slope of log y over log x by least squares: the exponent of a power law. */
static mst_status expr_slope(const reader *r, const value *x, const value *y, double *out)
{
    double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
    if (x->n != y->n || x->text != NULL || y->text != NULL)
        return mst_fail(MST_EINPUT, "\"%s\": slope needs as many x as y", r->text);
    for (size_t i = 0; i < x->n; i++) {
        if (!(x->numbers[i] > 0) || !(y->numbers[i] > 0))
            continue;
        double a = log(x->numbers[i]), b = log(y->numbers[i]);
        n++;
        sx += a;
        sy += b;
        sxx += a * a;
        sxy += a * b;
    }
    double below = n * sxx - sx * sx;
    if (r->scope->rows == NULL) {
        *out = 1;
        return MST_OK;
    }
    if (n < 2 || !(below > 0))
        return mst_fail(MST_EINPUT, "\"%s\": slope needs two different x at least", r->text);
    *out = (n * sxy - sx * sy) / below;
    return MST_OK;
}

/* argmin(values, column): the column in the row of the lowest value. After the comma. */
static mst_status expr_arg(reader *r, bool high, const value *of, value *out)
{
    char column[NAME_MAX_];
    size_t best = 0;
    if (!expr_name(r, column))
        return expr_syntax(r, "the name of a column is missing");
    for (size_t i = 1; i < of->n; i++)
        if (high ? of->numbers[i] > of->numbers[best] : of->numbers[i] < of->numbers[best])
            best = i;
    if (r->scope->rows == NULL && of->step[0] != '\0')
        TRY(mst_study_check_column(r->scope->known, of->step, column));
    if (r->scope->rows == NULL)
        return value_set_text(out, "");
    if (of->text != NULL || of->rows[best] == NULL)
        return mst_fail(MST_EUSAGE, "\"%s\": argmin and argmax need the figures of a step", r->text);
    return expr_cell_text(of->rows[best], column, out);
}

static bool expr_is_reduction(const char *name)
{
    static const char *const names[] = {"min", "max", "sum", "count", "spread", "mean"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* After the opening parenthesis. */
static mst_status expr_call(reader *r, const char *name, value *out)
{
    mst_status st;
    value args[3] = {{0}};
    size_t n = 0;
    double a = NAN, b = NAN, c = NAN;
    bool argmax = strcmp(name, "argmax") == 0;
    for (bool more = true; more; n++) {
        if (n == 3)
            TRY_OUT(st, expr_syntax(r, "too many arguments"));
        if (n == 1 && (argmax || strcmp(name, "argmin") == 0)) {
            TRY_OUT(st, expr_arg(r, argmax, &args[0], out));
            if (!expr_takes(r, ")")) {
                value_fini(out);
                st = expr_syntax(r, "a ) is missing");
            }
            goto out;
        }
        TRY_OUT(st, expr_or(r, &args[n]));
        more = expr_takes(r, ",");
    }
    if (!expr_takes(r, ")"))
        TRY_OUT(st, expr_syntax(r, "a ) is missing"));
    if (strcmp(name, "if") == 0 && n == 3) {
        TRY_OUT(st, expr_one(r, &args[0], &a));
        value *chosen = a != 0 ? &args[1] : &args[2];
        *out = *chosen;
        *chosen = (value){0};
        goto out;
    }
    if (n == 1 && expr_is_reduction(name)) {
        if (args[0].text != NULL)
            TRY_OUT(st, expr_one(r, &args[0], &a));
        st = value_set(out, expr_reduce(name, &args[0]));
        goto out;
    }
    if (strcmp(name, "slope") == 0 && n == 2) {
        TRY_OUT(st, expr_slope(r, &args[0], &args[1], &a));
        st = value_set(out, a);
        goto out;
    }
    TRY_OUT(st, expr_one(r, &args[0], &a));
    if (n > 1)
        TRY_OUT(st, expr_one(r, &args[1], &b));
    if (n > 2)
        TRY_OUT(st, expr_one(r, &args[2], &c));
    if (strcmp(name, "abs") == 0 && n == 1)
        st = value_set(out, fabs(a));
    else if (strcmp(name, "round") == 0 && n == 1)
        st = value_set(out, rint(a));
    else if (strcmp(name, "within") == 0 && n == 3)
        st = value_set(out, fabs(a - b) <= c * fabs(b));
    else
        st = mst_fail(
            MST_EUSAGE,
            "\"%s\": %s: not one of abs, argmax, argmin, count, if, max, mean, min, round, slope, spread, "
            "sum and within with so many arguments",
            r->text, name);
out:
    for (size_t i = 0; i < 3; i++)
        value_fini(&args[i]);
    return st;
}

/* ---- grammar ---- */

/* A name: of a function, a step, a value of the file, a column of the row. */
static mst_status expr_named(reader *r, value *out)
{
    char name[NAME_MAX_];
    expr_name(r, name);
    if (expr_takes(r, "("))
        return expr_call(r, name, out);
    expr_blanks(r);
    if (expr_is_step(r, name) && (*r->at == '[' || *r->at == '.'))
        return expr_select(r, name, out);
    const char *text = mst_study_text(r->scope->values, name);
    if (text != NULL) {
        reader inner = {.scope = r->scope, .text = text, .at = text, .depth = r->depth, .work = r->work};
        TRY(expr_or(&inner, out));
        expr_blanks(&inner);
        if (*inner.at == '\0')
            return MST_OK;
        value_fini(out);
        return expr_syntax(&inner, "unexpected text");
    }
    if (r->scope->rows == NULL) {
        const json_t *cell = json_object_get(r->scope->columns, name);
        if (json_is_string(cell) && isnan(expr_cell(r->scope->columns, name)))
            return value_set_text(out, json_string_value(cell));
        if (r->scope->any_column || cell != NULL)
            return value_set(out, 1);
        return r->scope->columns == NULL
                   ? mst_fail(
                         MST_EUSAGE,
                         "\"%s\": %s: neither a step with a column, as in %s.train_s, nor one of values:",
                         r->text, name, name)
                   : mst_fail(MST_EUSAGE,
                              "\"%s\": %s: neither a column of the rows nor one of values:", r->text, name);
    }
    if (r->scope->row != NULL) {
        const json_t *cell = json_object_get(r->scope->row, name);
        double number = expr_cell(r->scope->row, name);
        if (!isnan(number))
            return value_set(out, number);
        if (json_is_string(cell))
            return value_set_text(out, json_string_value(cell));
    }
    return mst_fail(MST_EINPUT, "\"%s\": there is no figure %s", r->text, name);
}

static mst_status expr_primary(reader *r, value *out)
{
    mst_status st;
    expr_blanks(r);
    if (++r->depth > DEPTH_MAX || ++*r->work > WORK_MAX)
        return expr_syntax(r, "is nested too deeply");
    if (expr_takes(r, "(")) {
        TRY(expr_or(r, out));
        if (!expr_takes(r, ")")) {
            value_fini(out);
            return expr_syntax(r, "a ) is missing");
        }
        st = MST_OK;
    } else if (expr_takes(r, "-")) {
        st = expr_primary(r, out);
        if (st == MST_OK && out->text != NULL) {
            value_fini(out);
            return expr_syntax(r, "a text has no sign");
        }
        for (size_t i = 0; st == MST_OK && i < out->n; i++)
            out->numbers[i] = -out->numbers[i];
    } else if (*r->at == '\'') {
        size_t n = strcspn(r->at + 1, "'");
        if (r->at[1 + n] == '\0')
            return expr_syntax(r, "a ' is missing");
        char *text = mst_sprintf("%.*s", (int)n, r->at + 1);
        st = text != NULL ? value_set_text(out, text) : mst_fail_memory();
        mst_free(text);
        r->at += n + 2;
    } else if (isdigit((unsigned char)*r->at)) {
        char *end;
        double number = strtod(r->at, &end);
        r->at = end;
        st = value_set(out, number);
    } else if (isalpha((unsigned char)*r->at) || *r->at == '_') {
        st = expr_named(r, out);
    } else {
        st = expr_syntax(r, "a value is missing");
    }
    r->depth--;
    return st;
}

static double expr_compute(char op, double a, double b)
{
    switch (op) {
    case '*':
        return a * b;
    case '/':
        return a / b;
    case '+':
        return a + b;
    case '-':
        return a - b;
    case '<':
        return a < b;
    case '>':
        return a > b;
    case 'l':
        return a <= b;
    case 'g':
        return a >= b;
    case '=':
        return a == b;
    case '!':
        return a != b;
    case '&':
        return a != 0 && b != 0;
    default:
        return a != 0 || b != 0;
    }
}

/* a = a op b; several numbers with one, or with as many. Frees b. */
static mst_status expr_apply(const reader *r, char op, value *a, value *b)
{
    mst_status st = MST_OK;
    value out = {0};
    if (a->text != NULL && b->text != NULL && (op == '=' || op == '!')) {
        st = value_set(&out, (strcmp(a->text, b->text) == 0) == (op == '='));
    } else if (r->scope->rows == NULL && ((a->text == NULL && b->text == NULL) || op == '=' || op == '!')) {
        st = value_set(&out, 1); /* a column may be a text */
        snprintf(out.step, sizeof out.step, "%s", a->step[0] != '\0' ? a->step : b->step);
    } else if (a->text != NULL || b->text != NULL) {
        st = mst_fail(MST_EUSAGE, "\"%s\": the text %s cannot be computed with", r->text,
                      a->text != NULL ? a->text : b->text);
    } else if (a->n != b->n && a->n != 1 && b->n != 1) {
        st = mst_fail(MST_EINPUT, "\"%s\": %zu figures cannot be combined with %zu", r->text, a->n, b->n);
    } else {
        size_t n = a->n > b->n ? a->n : b->n;
        st = value_alloc(&out, n);
        for (size_t i = 0; st == MST_OK && i < n; i++) {
            out.numbers[i] = expr_compute(op, a->numbers[a->n == 1 ? 0 : i], b->numbers[b->n == 1 ? 0 : i]);
            out.rows[i] = a->n == n ? a->rows[i] : b->rows[i];
        }
    }
    value_fini(a);
    value_fini(b);
    if (st == MST_OK)
        *a = out;
    return st;
}

/* Operators of one level, from the left. */
typedef struct level {
    const char *words[7];
    char ops[7];
    size_t n;
} level;
static const level levels[] = {
    {{"or"}, {'|'}, 1},
    {{"and"}, {'&'}, 1},
    {{"<=", ">=", "==", "!=", "<", ">"}, {'l', 'g', '=', '!', '<', '>'}, 6},
    {{"+", "-"}, {'+', '-'}, 2},
    {{"*", "/"}, {'*', '/'}, 2},
};
#define LEVELS (sizeof levels / sizeof *levels)

static mst_status expr_level(reader *r, size_t at, value *out)
{
    if (at == LEVELS)
        return expr_primary(r, out);
    TRY(expr_level(r, at + 1, out));
    for (;;) {
        size_t k = 0;
        while (k < levels[at].n && !expr_takes(r, levels[at].words[k]))
            k++;
        if (k == levels[at].n)
            return MST_OK;
        value right;
        mst_status st = expr_level(r, at + 1, &right);
        if (st == MST_OK)
            st = expr_apply(r, levels[at].ops[k], out, &right);
        else
            value_fini(out);
        TRY(st);
    }
}

static mst_status expr_or(reader *r, value *out)
{
    return expr_level(r, 0, out);
}

static mst_status expr_value(const mst_expr_scope *scope, const char *text, value *out)
{
    size_t work = 0;
    reader r = {.scope = scope, .text = text, .at = text, .work = &work};
    TRY(expr_or(&r, out));
    expr_blanks(&r);
    if (*r.at == '\0')
        return MST_OK;
    value_fini(out);
    return expr_syntax(&r, "unexpected text");
}

mst_status mst_expr_check(const mst_expr_scope *scope, const char *text)
{
    value v = {0};
    mst_status st = expr_value(scope, text, &v);
    value_fini(&v);
    return st;
}

mst_status mst_expr_number(const mst_expr_scope *scope, const char *text, double *out)
{
    value v;
    reader r = {.text = text};
    TRY(expr_value(scope, text, &v));
    mst_status st = expr_one(&r, &v, out);
    value_fini(&v);
    return st;
}

/* ---- sentences ---- */

/* EXPRESSION or EXPRESSION|UNIT, changed in place. */
static mst_status expr_insert(const mst_expr_scope *scope, char *text, mst_string *out)
{
    mst_expr_form form;
    char *unit = strrchr(text, '|'), figure[MST_FIGURE_SIZE];
    value v;
    double number = NAN;
    if (unit != NULL)
        *unit++ = '\0';
    if (!mst_expr_unit(unit, &form))
        return mst_fail(MST_EUSAGE, "{%s|%s}: the unit is not one of " MST_EXPR_UNITS, text, unit);
    TRY(expr_value(scope, text, &v));
    mst_status st = MST_OK;
    reader r = {.text = text};
    if (v.text != NULL)
        mst_string_add(out, v.text);
    else if ((st = expr_one(&r, &v, &number)) == MST_OK)
        mst_string_add(out, mst_expr_text(form, number, figure));
    value_fini(&v);
    return st;
}

mst_status mst_expr_sentence(const mst_expr_scope *scope, const char *text, mst_string *out)
{
    while (*text != '\0') {
        size_t n = strcspn(text, "{");
        mst_string_addn(out, text, n);
        text += n;
        if (*text == '\0')
            break;
        n = strcspn(++text, "}");
        if (text[n] == '\0')
            return mst_fail(MST_EUSAGE, "\"%s\": a } is missing", text);
        char *inner = mst_sprintf("%.*s", (int)n, text);
        mst_status st = inner != NULL ? expr_insert(scope, inner, out) : mst_fail_memory();
        mst_free(inner);
        TRY(st);
        text += n + 1;
    }
    return out->failed ? mst_fail_memory() : MST_OK;
}
