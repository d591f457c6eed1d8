/* What option tables show: the text of --help, and the resolved values as JSON; contract in option.h. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/option.h"
#include "base/option_impl.h"

#define COLUMNS      100
#define LABEL_MAX    30 /* a longer label gets a line of its own */
#define CHOICES_SHOW 24 /* longer choices are listed in the help sentence */

/* ---- text that grows ---- */

typedef struct text {
    char *data;
    size_t n, capacity;
    bool failed;
} text;

static void text_add(text *t, const char *data, size_t n)
{
    if (t->failed || !mst_grow(&t->data, &t->capacity, t->n + n + 1, 1)) {
        t->failed = true;
        return;
    }
    memcpy(t->data + t->n, data, n);
    t->n += n;
    t->data[t->n] = '\0';
}

static void text_pad(text *t, size_t n)
{
    while (n-- > 0 && !t->failed)
        text_add(t, " ", 1);
}

static void text_print(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void text_print(text *t, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    if (length < 0 || t->failed || !mst_grow(&t->data, &t->capacity, t->n + (size_t)length + 1, 1)) {
        t->failed = true;
    } else {
        vsnprintf(t->data + t->n, (size_t)length + 1, format, again);
        t->n += (size_t)length;
    }
    va_end(again);
    va_end(args);
}

/* ---- help ---- */

static const char *metavar(const mst_option *row)
{
    if (row->metavar != NULL)
        return row->metavar;
    switch (row->type) {
    case MST_OPTION_INT:
        return "N";
    case MST_OPTION_REAL:
        return "X";
    case MST_OPTION_CHOICE:
        return strlen(row->choices) <= CHOICES_SHOW ? row->choices : "NAME";
    case MST_OPTION_LIST:
        return "A,B,...";
    default:
        return "TEXT";
    }
}

/* "  --name N" */
static void add_label(text *t, const mst_option *row)
{
    bool on = row->type == MST_OPTION_FLAG && row->fallback != NULL && strcmp(row->fallback, "true") == 0;
    text_print(t, "  --%s%s", on ? "[no-]" : "", row->name);
    if (row->type != MST_OPTION_FLAG)
        text_print(t, " %s", metavar(row));
}

static void add_sentence(text *t, const mst_option *row)
{
    text_print(t, "%s", row->help ? row->help : "");
    if (row->type == MST_OPTION_CHOICE && strcmp(metavar(row), row->choices) != 0) {
        const char *choice;
        size_t length;
        text_print(t, " (one of");
        for (int i = 0; (choice = mst_option_choice(row->choices, i, &length)) != NULL; i++)
            text_print(t, "%s %.*s", i ? "," : "", (int)length, choice);
        text_print(t, ")");
    }
    if (row->type != MST_OPTION_FLAG && row->fallback != NULL && *row->fallback != '\0')
        text_print(t, " (default: %s)", row->fallback);
    size_t shown = 0;
    for (size_t i = 0; i < MST_OPTION_NEEDS_MAX && row->needs[i].option != NULL; i++) {
        char need[256];
        if (row->needs[i].check != MST_NEED_SWEEP)
            text_print(t, shown++ == 0 ? " (only with %s" : " and %s",
                       mst_option_need_text(&row->needs[i], need, sizeof need));
    }
    text_print(t, "%s", shown > 0 ? ")" : "");
}

/* Adds words wrapped between column `indent`, where the line stands now, and COLUMNS. Columns are counted in
 * UTF-8 characters. */
static void add_wrapped(text *t, const char *words, size_t indent)
{
    size_t column = indent;
    while (*words != '\0') {
        size_t length = strcspn(words, " "), width = 0;
        for (size_t i = 0; i < length; i++)
            width += ((unsigned char)words[i] & 0xc0) != 0x80;
        if (column > indent && column + 1 + width > COLUMNS) {
            text_add(t, "\n", 1);
            text_pad(t, indent);
            column = indent;
        } else if (column > indent) {
            text_add(t, " ", 1);
            column++;
        }
        text_add(t, words, length);
        column += width;
        words += length;
        words += strspn(words, " ");
    }
    text_add(t, "\n", 1);
}

char *mst_options_help(const mst_option_group *groups, size_t n)
{
    text help = {0}, part = {0};
    size_t indent = 0;
    for (size_t g = 0; g < n; g++) {
        for (const mst_option *row = groups[g].table; row->name != NULL; row++) {
            part.n = 0;
            add_label(&part, row);
            if (part.n <= LABEL_MAX && part.n + 2 > indent)
                indent = part.n + 2;
        }
    }
    indent = indent ? indent : LABEL_MAX;
    text_print(&help, "%s", "");
    for (size_t g = 0; g < n; g++) {
        if (groups[g].table->name == NULL)
            continue;
        text_print(&help, "%s%s:\n", help.n ? "\n" : "", groups[g].title);
        for (const mst_option *row = groups[g].table; row->name != NULL; row++) {
            size_t start = help.n;
            add_label(&help, row);
            size_t width = help.n - start;
            part.n = 0;
            add_sentence(&part, row);
            if (width + 2 > indent && part.n > 0) {
                text_add(&help, "\n", 1);
                width = 0;
            }
            if (part.n > 0)
                text_pad(&help, indent - width);
            add_wrapped(&help, part.failed ? "" : part.data, indent);
        }
    }
    bool failed = help.failed || part.failed;
    mst_free(part.data);
    if (failed) {
        mst_free(help.data);
        return NULL;
    }
    return help.data;
}

/* ---- manifest ---- */

/* JSON text must be UTF-8; a path need not be: bytes beyond ASCII of one that is not become '?'. */
static json_t *json_text(const char *value)
{
    json_t *string = json_string(value);
    if (string != NULL)
        return string;
    char *plain = mst_strdup(value);
    if (plain == NULL)
        return NULL;
    for (char *c = plain; *c != '\0'; c++)
        if ((unsigned char)*c >= 0x80)
            *c = '?';
    string = json_string(plain);
    mst_free(plain);
    return string;
}

static json_t *json_list(const mst_text_list *list)
{
    json_t *array = json_array();
    for (size_t i = 0; array != NULL && i < list->n; i++) {
        if (json_array_append_new(array, json_text(list->items[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *json_value(const mst_option *row, const void *base)
{
    const void *field = (const char *)base + row->offset;
    switch (row->type) {
    case MST_OPTION_FLAG:
        return json_boolean(*(const bool *)field);
    case MST_OPTION_INT:
        return json_integer(*(const int64_t *)field);
    case MST_OPTION_REAL:
        return json_real(*(const double *)field);
    case MST_OPTION_TEXT: {
        const char *value = *(char *const *)field;
        return value ? json_text(value) : json_null();
    }
    case MST_OPTION_CHOICE: {
        size_t length;
        const char *choice = mst_option_choice(row->choices, *(const int *)field, &length);
        return choice ? json_stringn(choice, length) : json_null();
    }
    case MST_OPTION_LIST:
        return json_list(field);
    }
    return NULL;
}

json_t *mst_options_json(const mst_option_group *groups, size_t n)
{
    json_t *all = json_object();
    for (size_t g = 0; all != NULL && g < n; g++) {
        json_t *group = json_object_get(all, groups[g].title);
        if (group == NULL) {
            group = json_object();
            if (json_object_set_new(all, groups[g].title, group) != 0)
                goto fail;
        }
        for (const mst_option *row = groups[g].table; row->name != NULL; row++)
            if (json_object_set_new(group, row->name, json_value(row, groups[g].base)) != 0)
                goto fail;
    }
    return all;
fail:
    json_decref(all);
    return NULL;
}
