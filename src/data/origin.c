/* Origins of rows; contract in origin.h. They come out of files, so nothing of their content is believed. */
#include "data/origin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/format.h"

json_t *mst_origin_numbers(void)
{
    return json_pack("{s:s}", "keys", "numbers");
}

const json_t *mst_origin_in(const json_t *object)
{
    const json_t *origin = json_object_get(object, MST_ORIGIN);
    return json_is_string(json_object_get(origin, "keys")) ? origin : NULL;
}

/* Whether a kind of column is of numbers, which are fields before all others. */
static bool origin_is_number(const char *kind)
{
    static const char *const kinds[] = {"float", "number", "standard", "log"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strncmp(kind, kinds[i], strlen(kinds[i])) == 0)
            return true;
    return false;
}

/* Columns are "NAME KIND"; a kind "float[WIDTH]" is several numbers. */
static void origin_column_name(const json_t *columns, uint32_t field, char *out, size_t size)
{
    for (int categories = 0; categories < 2; categories++) {
        size_t i;
        const json_t *column;
        json_array_foreach((json_t *)columns, i, column)
        {
            const char *text = json_string_value(column), *kind = text != NULL ? strrchr(text, ' ') : NULL;
            if (kind == NULL)
                return;
            bool floats = origin_is_number(kind + 1);
            uint32_t width =
                floats && strncmp(kind + 1, "float[", 6) == 0 ? (uint32_t)strtoul(kind + 7, NULL, 10) : 1;
            if (floats == (categories == 1))
                continue;
            if (field < width) {
                snprintf(out, size, "%.*s", (int)(kind - text), text);
                return;
            }
            field -= width;
        }
    }
}

/* Whether the rows have Criteo's columns. */
static bool origin_is_criteo(const json_t *origin)
{
    const json_t *source = json_object_get(origin, MST_ORIGIN_SOURCE);
    const char *keys = json_string_value(source != NULL ? source : json_object_get(origin, "keys")),
               *generated = json_string_value(json_object_get(origin, "generated"));
    return (keys != NULL && strcmp(keys, "criteo") == 0) ||
           (generated != NULL && strncmp(generated, "criteo", 6) == 0);
}

/* Whether Criteo's numbers are both features and buckets, which come after them. */
static bool origin_numeric_both(const json_t *origin)
{
    const char *numeric = json_string_value(json_object_get(origin, "criteo-numeric"));
    return numeric != NULL && strcmp(numeric, "both") == 0;
}

uint32_t mst_origin_named_fields(const json_t *origin)
{
    const json_t *columns = json_object_get(origin, "columns"),
                 *spaces = json_object_get(origin, MST_ORIGIN_FIELDS);
    uint32_t n = 0;
    char name[4];
    if (columns == NULL)
        return spaces != NULL              ? (uint32_t)json_array_size(spaces) + 1
               : !origin_is_criteo(origin) ? 0
                                           : 39 + (origin_numeric_both(origin) ? 13 : 0);
    do {
        name[0] = '\0';
        origin_column_name(columns, n, name, sizeof name);
    } while (name[0] != '\0' && ++n < MST_FIELDS_MAX);
    return n;
}

void mst_origin_field_name(const json_t *origin, uint32_t field, char *out, size_t size)
{
    const json_t *columns = json_object_get(origin, "columns"),
                 *spaces = json_object_get(origin, MST_ORIGIN_FIELDS);
    const char *name = json_string_value(json_array_get(spaces, field));
    out[0] = '\0';
    if (columns != NULL)
        origin_column_name(columns, field, out, size);
    else if (field < json_array_size(spaces))
        snprintf(out, size, "%s", name != NULL ? name : "");
    else if (spaces != NULL)
        snprintf(out, size, "(others)");
    else if (origin_is_criteo(origin)) {
        if (field >= 13 && origin_numeric_both(origin))
            field -= 13; /* the buckets of the numbers before */
        snprintf(out, size, "%c%u", field < 13 ? 'I' : 'C', field < 13 ? field + 1 : field - 12);
    }
}

bool mst_origin_missing_key(const json_t *origin, uint32_t field, uint32_t *key)
{
    const char *keys = json_string_value(json_object_get(origin, "keys"));
    const mst_format *format = mst_data_kind_format(mst_data_kind_find(keys));
    const json_t *missing = json_array_get(json_object_get(origin, MST_ORIGIN_MISSING), field);
    if (missing != NULL) {
        *key = (uint32_t)json_integer_value(missing);
        return json_integer_value(missing) >= 0;
    }
    return format != NULL && format->missing_key != NULL && format->missing_key(origin, field, key);
}

/* An entry as text; "" when memory is short. */
static void origin_entry_text(const json_t *value, char *out, size_t size)
{
    char *text = json_is_string(value) ? strdup(json_string_value(value))
                                       : json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(out, size, "%s", text != NULL ? text : "");
    free(text); /* jansson's allocation */
}

/* has, had: a description of the rows of each origin, "read with --hash-seed 3"; what: the thing with
 * different meanings. */
static mst_status refuse_rows(const char *name, const char *has, const char *model, const char *had,
                              const char *what)
{
    return mst_fail(
        MST_EINPUT,
        "%s has rows %s, but %s is for rows %s: %s mean different things in the two; --force uses them "
        "anyway",
        name, has, model, had, what);
}

/* Two texts around an entry of each origin. */
static mst_status origin_refuse(const char *name, const json_t *mine, const char *model, const json_t *theirs,
                                const char *before, const char *after)
{
    char entry[120], has[240], had[240];
    origin_entry_text(mine, entry, sizeof entry);
    snprintf(has, sizeof has, "%s%s%s", before, entry, after);
    origin_entry_text(theirs, entry, sizeof entry);
    snprintf(had, sizeof had, "%s%s%s", before, entry, after);
    return refuse_rows(name, has, model, had,
                       strstr(before, "--labels-from") != NULL ? "labels" : "feature numbers");
}

/* A description of rows with such "keys". */
static void keys_text(const json_t *keys, char *out, size_t size)
{
    const char *text = json_string_value(keys);
    if (strcmp(text, "numbers") == 0)
        snprintf(out, size, "with numbered features");
    else if (strcmp(text, "vocabulary") == 0)
        snprintf(out, size, "with features of a vocabulary");
    else
        snprintf(out, size, "with features hashed by %.40s", text);
}

static mst_status refuse_keys(const char *name, const json_t *mine, const char *model, const json_t *theirs)
{
    char has[80], had[80];
    keys_text(mine, has, sizeof has);
    keys_text(theirs, had, sizeof had);
    return refuse_rows(name, has, model, had, "feature numbers");
}

/* The first column that differs, or how many there are. */
static mst_status refuse_columns(const char *name, const json_t *mine, const char *model,
                                 const json_t *theirs)
{
    size_t n = json_array_size(mine), m = json_array_size(theirs);
    for (size_t i = 0; i < n && i < m; i++) {
        char before[48];
        const json_t *one = json_array_get(mine, i), *other = json_array_get(theirs, i);
        snprintf(before, sizeof before, "whose column %zu is \"", i + 1);
        if (!json_equal(one, other))
            return origin_refuse(name, one, model, other, before, "\"");
    }
    json_t *one = json_integer((json_int_t)n), *other = json_integer((json_int_t)m);
    mst_status st = origin_refuse(name, one, model, other, "of ", " columns");
    json_decref(one);
    json_decref(other);
    return st;
}

mst_status mst_origin_check(const json_t *origin, const char *model, const json_t *rows, const char *name)
{
    static const struct {
        const char *entry, *before, *after;
    } entries[] = {{"features", "hashed into ", " features"},
                   {"hash-seed", "read with --hash-seed ", ""},
                   {"criteo-numeric", "read with --criteo-numeric ", ""},
                   {"index-base", "read with --index-base ", ""},
                   {"generated", "generated as ", ""},
                   {MST_ORIGIN_SOURCE, "of format ", ""},
                   {MST_ORIGIN_VOCABULARY, "numbered by vocabulary ", ""},
                   {MST_ORIGIN_LABELS, "read with --labels-from ", ""}};
    if (origin == NULL || rows == NULL)
        return MST_OK;
    const json_t *theirs = json_object_get(origin, "keys"), *mine = json_object_get(rows, "keys");
    if (!json_equal(theirs, mine))
        return refuse_keys(name, mine, model, theirs);
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        theirs = json_object_get(origin, entries[i].entry);
        mine = json_object_get(rows, entries[i].entry);
        if (theirs != NULL && mine != NULL && !json_equal(theirs, mine))
            return origin_refuse(name, mine, model, theirs, entries[i].before, entries[i].after);
    }
    theirs = json_object_get(origin, "columns");
    mine = json_object_get(rows, "columns");
    if (theirs != NULL && mine != NULL && !json_equal(theirs, mine))
        return refuse_columns(name, mine, model, theirs);
    return MST_OK;
}

json_t *mst_origin_labels(const json_t *names, uint32_t n_classes, int64_t from, bool minus_one)
{
    if (json_array_size(names) == n_classes)
        return json_deep_copy(names);
    if (minus_one && n_classes == 2)
        return json_pack("[i, i]", -1, 1);
    json_t *labels = json_array();
    for (uint32_t c = 0; c < n_classes; c++)
        json_array_append_new(labels, json_integer(from + c));
    return labels;
}
