/* Taking options over from JSON, as mst_options_json wrote them; contract in option.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/option.h"

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
