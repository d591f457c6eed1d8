/* Options as JSON, for manifests and --dry-run, and options from that JSON; contract in option.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/option_impl.h"

/* ---- options to JSON ---- */

/* JSON text must be UTF-8; a path need not be: bytes beyond ASCII of one that is not become '?'. */
static json_t *option_json_text(const char *value)
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

static json_t *option_json_list(const mst_text_list *list)
{
    json_t *array = json_array();
    for (size_t i = 0; array != NULL && i < list->n; i++) {
        if (json_array_append_new(array, option_json_text(list->items[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *option_json_value(const mst_option *row, const void *base)
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
        return value ? option_json_text(value) : json_null();
    }
    case MST_OPTION_CHOICE: {
        size_t length;
        const char *choice = mst_option_choice(row->choices, *(const int *)field, &length);
        return choice ? json_stringn(choice, length) : json_null();
    }
    case MST_OPTION_LIST:
        return option_json_list(field);
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
            if (json_object_set_new(group, row->name, option_json_value(row, groups[g].base)) != 0)
                goto fail;
    }
    return all;
fail:
    json_decref(all);
    return NULL;
}

/* ---- JSON to options ---- */

/* A copy in which every comma has a backslash before it. */
static char *option_escape_commas(const char *text)
{
    size_t n = 0;
    char *copy = mst_alloc(2 * strlen(text) + 1);
    for (; copy != NULL && *text != '\0'; text++) {
        if (*text == ',')
            copy[n++] = '\\';
        copy[n++] = *text;
    }
    if (copy != NULL)
        copy[n] = '\0';
    return copy;
}

/* With as many digits as it takes to read the same number back. */
static char *option_real_text(double value)
{
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    return mst_strdup(text);
}

char *mst_option_text(const json_t *value)
{
    if (json_is_string(value))
        return mst_strdup(json_string_value(value));
    if (json_is_boolean(value))
        return mst_strdup(json_is_true(value) ? "true" : "false");
    if (json_is_integer(value))
        return mst_sprintf("%lld", (long long)json_integer_value(value));
    if (json_is_real(value))
        return option_real_text(json_real_value(value));
    char *joined = mst_strdup("");
    for (size_t i = 0; joined != NULL && i < json_array_size(value); i++) {
        char *plain = mst_option_text(json_array_get(value, i)),
             *item = plain ? option_escape_commas(plain) : NULL;
        mst_free(plain);
        char *longer = item ? mst_sprintf("%s%s%s", joined, i > 0 ? "," : "", item) : NULL;
        mst_free(item);
        mst_free(joined);
        joined = longer;
    }
    return joined;
}

mst_status mst_options_adopt(mst_option_group *groups, size_t n, const json_t *values)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)values, name, value)
    {
        if (mst_options_is_set(groups, n, name) || json_is_null(value) ||
            (json_is_array(value) && json_array_size(value) == 0))
            continue;
        char *text = mst_option_text(value);
        if (text == NULL)
            return mst_fail_memory();
        mst_status st = mst_options_set(groups, n, name, text);
        mst_free(text);
        TRY(st);
    }
    return MST_OK;
}

mst_status mst_options_adopt_known(mst_option_group *group, const json_t *values)
{
    json_t *known = json_object();
    for (const mst_option *o = group->table; o->name != NULL; o++)
        if (json_object_get(values, o->name) != NULL)
            json_object_set(known, o->name, json_object_get(values, o->name));
    mst_status st = known != NULL ? mst_options_adopt(group, 1, known) : mst_fail_memory();
    json_decref(known);
    return st;
}
